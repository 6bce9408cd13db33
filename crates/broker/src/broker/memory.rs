//! The memory of a shard as a whole and its timers, once a turn.

use crate::broker::Broker;
use crate::idle_tables::IDLE_INTERVAL;
use crate::mail::MailBatch;
use crate::outbox::Outbox;
use crate::timers::Timer;
use lepus_base::{Now, QueueId};

/// A queue's tables of fewer bytes are left as they are.
pub(crate) const SPARE_BYTES: usize = 512;

/// Timers that may be there for nothing before they are swept out.
pub(crate) const IDLE_TIMERS_MAX: usize = 4096;

impl Broker {
    /// Brings the sums of tables up to date at the end of a cycle: those of queues that were used, and
    /// what costs no walk to tell.
    pub(crate) fn weigh_tables(&mut self, now: Now, out: &Outbox) {
        let (shard, remote) = (&mut self.shard, &self.homes.remote);
        let mut unweighed = core::mem::take(&mut shard.unweighed);
        for slot in unweighed.drain(..) {
            let Some(home) = self.homes.queues.get_mut(slot as usize) else { continue };
            home.weigh(shard);
            if home.note_spare(SPARE_BYTES) && self.homes.idle_tables.note(slot, home.id) {
                shard.timers.arm(now.instant + IDLE_INTERVAL, Timer::Tables);
            }
        }
        shard.unweighed = unweighed;
        shard.log_bytes = self.journal.memory_bytes()
            + self.homes.dead_letters.ledger_bytes()
            + self.homes.delayed.memory_bytes();
        match shard.held.unacked {
            0 => self.homes.oldest.forget(),
            _ if self.journal.is_on() => self.homes.oldest.arm(now, &mut shard.timers),
            _ => {}
        }
        let mail: usize = out.mail.iter().map(MailBatch::weight).sum();
        shard.table_bytes = self.directory.bytes()
            + self.homes.slots.memory_bytes()
            + self.homes.idle_tables.memory_bytes()
            + self.homes.postponed.memory_bytes()
            + shard.jobs.memory_bytes()
            + self.homes.spilling.len() * size_of::<QueueId>()
            + shard.timers.memory_bytes()
            + self.connections.by_id.allocation_size()
            + remote.consumers.allocation_size()
            + remote.windows.allocation_size()
            + shard.backpressure.memory_bytes()
            + self.homes.dead_letters.memory_bytes()
            + shard.resting_bytes
            + mail;
    }

    /// What [`crate::shard::Shard::memory`] would be if everything was counted anew, by a walk over all.
    #[must_use]
    pub fn memory_by_walk(&self) -> usize {
        let shard = &self.shard;
        let all = self.connections.all.iter().map(|(_, connection)| connection);
        let open = all.filter(|connection| !connection.vhost_name.is_empty());
        let connections: usize = open.map(|connection| connection.memory_by_walk()).sum();
        let homes: usize = self.homes.queues.iter().map(|(_, home)| home.memory_bytes()).sum();
        let dead = self.homes.working.deleted_bytes();
        let logs = self.journal.memory_by_walk()
            + self.homes.dead_letters.ledger_bytes()
            + self.homes.delayed.memory_bytes();
        let counted = shard.connection_bytes + shard.queue_bytes + shard.log_bytes;
        shard.memory() - counted + connections + homes + dead + logs
    }

    /// Sweeps out the timers of connections and queues that are gone, when they are many.
    pub(crate) fn sweep_timers(&mut self) {
        let (connections, homes) = (&self.connections.all, &self.homes.queues);
        let awaited = connections.len() + homes.len();
        if self.shard.timers.len() <= 2 * awaited + IDLE_TIMERS_MAX {
            return;
        }
        self.shard.timers.sweep(|at, timer| match timer {
            Timer::Connection(slot, id) => connections
                .get(slot as usize)
                .is_some_and(|connection| connection.id == id && connection.armed == at),
            Timer::Queue(slot, id) => {
                homes.get(slot as usize).is_some_and(|home| home.id == id && home.is_armed_for(at))
            }
            Timer::Letters(_)
            | Timer::Looks
            | Timer::Oldest
            | Timer::UnreadReplies
            | Timer::Trim
            | Timer::Tables => true,
        });
    }
}
