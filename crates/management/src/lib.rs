//! What operators and their tools see: metrics and health over HTTP, definitions files.
//!
//! Nothing here runs on a shard's thread.
#![forbid(unsafe_code)]

pub mod api;
pub mod definitions;
pub mod exposition;
mod gzip;
pub mod http;
mod json;
pub mod machine;
pub mod metrics;
pub mod snapshot;
pub mod sockets;
pub mod status;
pub mod table;
pub mod web;
