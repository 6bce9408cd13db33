//! The machine of one queue: what waits, what was delivered, and who consumes.
//!
//! Pure, and without knowledge of connections, channels and other queues: what a [`Queue`] causes goes into a [`Sink`],
//! and what it asks of its log is a [`QueueLog`]. What a queue's arguments mean is here, too, because the queue follows
//! them: [`QueueSettings`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod entry;
mod log;
pub mod message;
mod queue;
pub mod refusal;
mod settings;

pub use entry::{
    Admission, Content, Delivery, Enqueued, Entry, Get, Got, NO_SLOT, Outcome, Place, Reason, Sent,
    Ticket,
};
pub use log::{Found, QueueLog};
pub use queue::{
    Consumer, ConsumerHandle, ConsumerKey, Deleted, Orphans, Queue, Sink, SubscribeError, Totals,
};
pub use settings::{Overflow, QueueKind, QueueSettings, TIMER_MILLIS_MAX};
