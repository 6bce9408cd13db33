//! The store of one shard: a commit log, the index of its queues, checkpoints and recovery.
//!
//! Pure: no I/O, no clock, no threads. What goes in is appended; disk operations come out as
//! values ([`disk::Operations`]) and their completions go back in. The format is described in
//! `docs/store.md`.
//!
//! # How a shard drives a store
//! 1. [`Store::open`]; carry operations out and hand completions to [`Store::complete`] until
//!    [`Event::Ready`] (or [`Event::Refused`]). Then [`Store::retain_queues`] with the queues that
//!    are defined, and [`Store::lane`] for each queue when it is first used. A lane's messages are
//!    counted by [`Store::count`]; new sequence numbers start at [`Store::next_seq`].
//! 2. Publish: give the message a sequence number in each of its queues' lanes and call
//!    [`Store::append`] once for all of them. Whatever waits for it (confirm, commit) waits until
//!    [`Store::durable`] has reached what [`Store::end`] said right after; say
//!    [`Store::want_durable`] once per cycle if anything waits. Transient messages stay in the
//!    broker's memory until its budget is used up; then they are appended to the queue's lane with
//!    [`LEVEL_TRANSIENT`], in growing order, without waiting.
//! 3. Deliver: entries come from [`Store::fetch`], a window at a time; their messages from
//!    [`Store::lookup`], from a buffer or with read-ahead from disk. While
//!    [`Store::is_fetched`] is true, a message just appended can go straight into the window,
//!    followed by [`Store::skip_fetch`]. A window that is too large is dropped and fetched again
//!    after [`Store::rewind`]. Unacked and requeued messages are the broker's: they keep entry and
//!    number, and cost nothing here. A queue with priorities has one lane per priority.
//! 4. Acknowledged, expired, dropped or dead-lettered messages are settled by [`Store::settle`];
//!    a purge is [`Store::purge`], a deleted queue [`Store::drop_queue`]. A transaction's records
//!    are one batch after [`Store::hold`].
//! 5. End of a cycle: [`Store::flush`]; when idle [`Store::work`]; a timer at
//!    [`Store::next_timeout`]. [`Store::space`] says when publishers have to be held back.
//! 6. Orderly end: [`Store::flush`] until nothing is under way, [`Store::close`], and on until
//!    [`Store::is_closed`].
//!
//! Definitions live in a log of their own, a second [`Store`] that holds only opaque records
//! ([`Store::append_opaque`], [`Store::take_opaque`], [`Store::begin_snapshot`]).
//!
//! A log whose shard is gone is adopted by opening it, with its own [`disk::LogId`], beside the
//! own one and appending no messages to it: its queues are read from it first, settles go to it,
//! and when it holds nothing more its files can be deleted.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod cache;
mod checkpoint;
mod checksum;
pub mod disk;
mod gather;
mod index_file;
pub mod inspect;
mod key;
mod keys;
mod lane;
mod lanes;
mod log;
mod names;
mod page;
pub mod place;
mod record;
mod recovery;
mod relocations;
mod replay;
mod retry;
mod root;
mod runs;
mod scan;
pub mod segment;
mod settings;
pub mod simulation;
mod spans;
mod state;
mod store;
mod varint;

pub use checkpoint::CHECKPOINT_VERSION;
pub use key::Key;
pub use keys::Keys;
pub use lanes::LaneSlot;
pub use log::AppendError;
pub use page::Entry;
pub use record::{LEVEL_TRANSIENT, Lane, Message, Reference};
pub use recovery::{Damage, Refusal};
pub use root::Root;
pub use settings::{Settings, SyncMode};
pub use store::{Event, Fetch, Figures, Lookup, Outline, Place, SegmentCounts, Space, Store};
