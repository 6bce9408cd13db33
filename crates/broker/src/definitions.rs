//! The definitions log: durable changes of the directory are on the disk before anyone sees them.

use lepus_base::{Instant, Now};
use lepus_store::disk::{Completion, LogId};

use crate::broker::Broker;
use crate::outbox::Outbox;

/// The log of definitions; shard 0 drives it.
pub const LOG: LogId = LogId(0);

/// What orders the directory's changes.
#[derive(Debug, Default)]
pub(crate) struct Definitions {}

impl Definitions {
    /// When [`Broker::flush`] has something to do for the log without anything happening.
    pub(crate) fn next_timeout(&self) -> Instant {
        Instant::NEVER
    }

    /// Whether [`Broker::work`] would get on with something.
    pub(crate) fn has_work(&self) -> bool {
        false
    }

    /// Whether the end of the log is on the disk.
    pub(crate) fn is_closed(&self) -> bool {
        true
    }
}

impl Broker {
    /// A disk operation of the log ended.
    pub(crate) fn definitions_done(&mut self, _: Now, _: Completion, _: &mut Outbox) {}

    /// A slice of work that nobody waits for.
    pub(crate) fn work_on_definitions(&mut self, _: Now, _: &mut Outbox) {}

    /// The end of a cycle.
    pub(crate) fn flush_definitions(&mut self, _: Now, _: &mut Outbox) {}

    /// No change follows.
    pub(crate) fn close_definitions(&mut self, _: Now, _: &mut Outbox) {}
}
