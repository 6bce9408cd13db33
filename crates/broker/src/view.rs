//! A shard's state to be read: figures, lists, sums, and who waits for what is over. Nothing is changed by any of it.

mod overdue;
mod owners;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::Now;
use lepus_store::disk::LogId;

use crate::connections::Connections;
use crate::directory::Directory;
use crate::held::Held;
use crate::homes::Homes;
use crate::journal::{Journal, OldestDelivery, log_of};
use crate::lists::Lists;
use crate::query::{Figures, Holdings, Shortage};
use crate::sessions::Sessions;
use crate::shard::Shard;

/// All of a shard's state, to be read.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub(crate) connections: &'a Connections,
    pub(crate) sessions: &'a Sessions,
    pub(crate) homes: &'a Homes,
    pub(crate) journal: &'a Journal,
    pub(crate) directory: &'a Directory,
    pub(crate) shard: &'a Shard,
}

impl<'a> View<'a> {
    pub(crate) fn lists(&self) -> Lists<'a> {
        Lists {
            shard: self.shard.id,
            exchanges: &self.shard.exchanges,
            filter_costs: &self.shard.filter_costs,
            homes: self.homes,
            connections: self.connections,
            directory: self.directory,
        }
    }

    /// The totals of this shard.
    #[must_use]
    pub fn figures(&self, now: Now) -> Figures {
        let oldest = self.oldest_delivery(now);
        let mut logs = self.journal.figures();
        logs.is_low |= self.shard.backpressure.is_ordered(Shortage::Disk);
        Figures {
            counters: self.shard.counters,
            holdings: self.holdings(),
            logs,
            oldest: oldest.and_then(|delivery| self.lists().oldest(delivery)),
        }
    }

    /// The part of them that tells what there is.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let Held { channels, publishers, ready, unacked, passed_over, consumers } = self.shard.held;
        Holdings {
            connections: self.connections.len() as u64,
            channels,
            consumers,
            publishers,
            queues: self.homes.len() as u64,
            ready,
            unacked,
            passed_over,
            delayed: self.homes.delayed() as u64,
            memory_bytes: self.shard.memory() as u64,
            memory_lent_bytes: self.shard.loan.limit as u64,
            memory_alarm: self.shard.backpressure.has_memory_alarm(),
        }
    }

    /// The unacknowledged delivery that pins the oldest segment, as it was found last.
    #[must_use]
    pub fn oldest_delivery(&self, now: Now) -> Option<OldestDelivery> {
        let (position, queue) = self.homes.oldest().filter(|_| self.shard.held.unacked > 0)?;
        let home = self.homes.find(queue)?;
        self.journal.delivery_at(now, home.log, position, queue)
    }

    /// What differs between the sums that are kept and what a walk over everything finds, in words; for
    /// tests. To be called between two cycles.
    #[must_use]
    pub fn miscounted(&self) -> Option<String> {
        let (held, walked) = (self.shard.held, self.lists().held());
        if held != walked {
            return Some(format!("{held:?} is counted, there is {walked:?}"));
        }
        let (held, walked) = (&self.shard.held_of_vhosts, self.lists().held_of_vhosts());
        let is_same = held.iter().eq(walked.iter());
        (!is_same).then(|| format!("{held:?} is counted, there is {walked:?}"))
    }

    /// What [`Shard::memory`] would be if everything was counted anew, by a walk over all.
    #[must_use]
    pub fn memory_by_walk(&self) -> usize {
        let all = self.connections.iter().map(|(_, connection)| connection);
        let open = all.filter(|connection| !connection.vhost_name.is_empty());
        let connections: usize = open.map(|connection| connection.memory_by_walk()).sum();
        let logs = self.journal.memory_by_walk() + self.homes.log_bytes();
        let shard = self.shard;
        let counted = shard.connection_bytes + shard.queue_bytes + shard.log_bytes;
        shard.memory() - counted + connections + self.homes.queue_bytes_by_walk() + logs
    }

    /// Logs of shards that are gone, in which nothing is and which no queue names. All logs are recovered.
    #[must_use]
    pub fn empty_logs(&self) -> Vec<LogId> {
        let durable = self.directory.queues(None).filter(|info| info.durable);
        let mut named: Vec<LogId> = durable.map(log_of).collect();
        named.sort_unstable();
        self.journal.empty(|id| named.binary_search(&id).is_ok())
    }
}
