//! How the definitions log is driven, on shard 0.

use lepus_base::Now;
use lepus_store::disk::{Completion, DiskError, File};

use crate::broker::Broker;
use crate::definitions::DefinitionsLog;
use crate::outbox::Outbox;

impl Broker {
    /// Gives shard 0 the definitions log, whose changes were applied before.
    pub fn take_definitions_log(&mut self, log: DefinitionsLog) {
        self.definitions.take_log(log);
    }

    /// The file of the definitions log that could not be written or synced. Durable changes are
    /// refused since.
    #[must_use]
    pub fn definitions_failure(&self) -> Option<(File, DiskError)> {
        self.definitions.failure()
    }

    /// A disk operation of the log ended.
    pub(crate) fn definitions_done(&mut self, now: Now, completion: Completion, out: &mut Outbox) {
        if self.definitions.complete(now, completion, &mut out.disk) {
            self.definitions.tell_failure(out);
            self.advance(now, out);
        }
    }

    /// Slices of what was deleted, what was put off, and a slice of a snapshot.
    pub(crate) fn work_on_definitions(&mut self, now: Now, out: &mut Outbox) {
        self.work_on_deletions(now, out);
        if self.definitions.take_put_off() {
            self.advance(now, out);
        }
        if self.definitions.record_slice(now, &self.directory) {
            self.advance(now, out);
        }
    }

    /// The end of a cycle.
    pub(crate) fn flush_definitions(&mut self, now: Now, out: &mut Outbox) {
        if self.definitions.has_log() {
            self.advance(now, out);
        }
        self.definitions.flush(now, out);
    }

    /// No change follows.
    pub(crate) fn close_definitions(&mut self, now: Now, out: &mut Outbox) {
        self.definitions.close();
        self.flush_definitions(now, out);
    }
}
