//! The broker's state and rules on one shard: a function of its inputs.
//!
//! Pure: no clock, no threads, no I/O.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod directory;
pub mod message;
pub mod queue;
pub mod refusal;
