//! The runtime: one pinned thread per shard, and the threads that feed them.
//!
//! A [`Shard`] turns readiness, mail and time into calls of a [`Core`] (the broker) and carries out
//! what the core puts into its outbox. [`Runtime::start`] makes the shards, the mesh between them,
//! the acceptor and the TLS handshakes, and gives a [`Running`] to the control threads.
#![forbid(unsafe_code)]

mod acceptor;
mod broker;
mod clock;
mod command;
mod connection;
mod core;
mod distributor;
mod duty;
mod handshake;
mod idle;
mod inside;
mod metrics;
mod notice;
mod pace;
mod placement;
mod porch;
mod runtime;
mod shard;
pub mod tls;

#[cfg(test)]
extern crate self as lepus_shard;
#[cfg(test)]
#[path = "../tests/echo/core.rs"]
#[allow(dead_code)]
mod echo_core;

mod wiring;

pub use clock::Clock;
pub use command::{Commands, Stopped, Unanswered};
pub use connection::{Arrival, Parcel};
pub use core::{Core, Effects, PeerInfo, Slot, TlsPeer};
pub use idle::IdlePreset;
pub use inside::Inside;
pub use lepus_reactor::files::FreeLimit;
pub use metrics::{MetricsSnapshot, ShardMetrics};
pub use notice::{Notice, NoticeReader, Notices, WAITING_NOTICES_MAX, notices};
pub use porch::{Admission, EntranceMetrics, EntranceSnapshot};
pub use runtime::{
    Config, Listener, Running, Runtime, StartError, StopReport, Stopper, Storage, Transport,
    is_vital_thread,
};
pub use shard::{Shard, Turn};
pub use tls::{LoginFrom, RevocationCheck, Revocations, TlsError, TlsFiles};
pub use wiring::{Follower, Links, Wiring};
