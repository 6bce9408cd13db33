//! Which connections and queues should move to another shard: a function from load figures to a bounded list
//! of moves with reasons.
//!
//! Pure: `no_std`, no clock, no I/O. [`Balancer::decide`] is called once per interval (a second);
//! what it remembers between two calls is what keeps it calm. Why it decides so is written in
//! `docs/decisions/balancer.md`.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod balancer;
mod distance;
mod estimate;
mod load;
mod restless;

pub use balancer::{Balancer, Rules};
pub use distance::{Distance, Distances};
pub use load::{BusyQueue, Decision, Load, Move, QueueMove, Reason, ShardLoad, Talker};
pub use restless::Restless;
