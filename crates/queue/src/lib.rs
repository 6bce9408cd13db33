//! The machine of one queue: what waits, what was delivered, and who consumes.
//!
//! [`Queue::apply`] with a [`command::Command`] is the only way to change one. Pure, and without knowledge of connections, channels and other queues: what a [`Queue`] causes goes into a [`Sink`],
//! and what it asks of its log is a [`QueueLog`]. What a queue's arguments mean is here, too, because the queue follows
//! them: [`QueueSettings`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[macro_use(invariant, race)]
extern crate lepus_base;

mod apply;
mod code;
pub mod command;
pub mod entry;
mod log;
pub mod message;
mod queue;
mod record;
#[cfg(any(debug_assertions, feature = "record"))]
mod recording;
pub mod refusal;
mod replay;
mod settings;

pub use entry::{
    Admission, Content, Delivery, Enqueued, Entry, Get, Got, NO_SLOT, Outcome, Place, Reason, Sent,
    Ticket,
};
pub use log::{Found, QueueLog};
pub use queue::{
    CAN_RECORD, Consumer, ConsumerFilter, ConsumerHandle, ConsumerKey, Deleted, Distance, NoLog,
    NoSink, Orphans, Queue, Recorder, SELECTORS_MAX, SelectScratch, Selected, SelectorBits,
    SelectorFigures, SelectorList, Selectors, Sink, SubscribeError, Totals,
};
pub use replay::Replay;
pub use settings::{Overflow, PolicySettings, QueueKind, QueueSettings, TIMER_MILLIS_MAX};
