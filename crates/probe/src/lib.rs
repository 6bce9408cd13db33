//! What programs need that look at a broker from outside, load testers, experiments and tests: what Linux says about a
//! process, a directory that goes with its value, a client for tests that must not fail.
#![forbid(unsafe_code)]

pub mod procfs;
mod scratch;
pub mod session;

pub use lepus_client::Client;
pub use scratch::Scratch;
