//! What programs need that look at a broker from outside, load testers, experiments and tests: a client that waits for each
//! answer, what Linux says about a process, a directory that goes with its value.
#![forbid(unsafe_code)]

pub mod client;
pub mod procfs;
mod scratch;
pub mod session;

pub use client::Client;
pub use scratch::Scratch;
