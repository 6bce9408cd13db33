//! The logs at the start and at the end of a run.

use alloc::vec::Vec;

use lepus_base::Now;
use lepus_store::disk::LogId;

use crate::broker::Broker;
use crate::journal::{Recovery, log_of};
use crate::outbox::Outbox;

impl Broker {
    /// Begins to recover the logs that the settings name; to be called once, when the directory
    /// is complete. The operations are in `out.disk`; [`Broker::recovery`] tells when it is done.
    pub fn open_stores(&mut self, now: Now, out: &mut Outbox) {
        let Some(settings) = self.shard.settings.store.clone() else { return };
        let unwritten_bytes_max = self.shard.limits.unwritten_bytes_max;
        self.journal.open(&settings, unwritten_bytes_max, &mut out.disk);
        for (_, home) in &mut self.homes.queues {
            // A queue that was there before the logs were.
            if let Some(info) = self.directory.queue_by_id(home.id) {
                home.log = self.journal.place_of(log_of(info));
                if info.durable {
                    self.journal.name(home.log);
                }
            }
        }
        self.journal.flush(now, &mut out.disk);
    }

    /// Logs of shards that are gone, in which nothing is and which no queue names. All logs are recovered.
    #[must_use]
    pub fn empty_logs(&self) -> Vec<LogId> {
        let durable = self.directory.queues(None).filter(|info| info.durable);
        let mut named: Vec<LogId> = durable.map(log_of).collect();
        named.sort_unstable();
        self.journal.empty(|id| named.binary_search(&id).is_ok())
    }

    /// Before anybody is served: nothing is done with these logs any more, so that their files can be
    /// removed.
    pub fn give_up_logs(&mut self, logs: &[LogId]) {
        self.journal.give_up(logs);
    }

    /// How far the recovery of the logs is.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.journal.recovery()
    }
}
