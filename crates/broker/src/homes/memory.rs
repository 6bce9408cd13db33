//! Tables of queues that were not used give spare room back.

use lepus_base::Now;

use crate::idle_tables::{IDLE_INTERVAL, SLICE_INTERVAL};
use crate::mail::MailBatch;
use crate::outbox::Outbox;

use crate::homes::HomeSide;
use crate::timers::Timer;

/// A queue's tables of fewer bytes are left as they are.
pub(crate) const SPARE_BYTES: usize = 512;

/// Timers that may be there for nothing before they are swept out.
pub(crate) const IDLE_TIMERS_MAX: usize = 4096;

impl HomeSide<'_> {
    /// Queues that were not used since the last look give spare room in their tables back; so does the pool.
    pub(crate) fn look_at_tables(&mut self, now: Now) {
        let (homes, shard) = (&mut self.homes.queues, &mut self.shard);
        let next = self.homes.idle_tables.look(|slot, id| {
            let home = homes.get_mut(slot as usize).filter(|home| home.id == id);
            home.map_or(Some(0), |home| home.give_spare(now, shard))
        });
        if next != Some(SLICE_INTERVAL) {
            self.shard.pool.give_unused();
        }
        if next.is_none() {
            // No look follows: what was used meanwhile was used by queues that are idle or gone.
            self.shard.pool.give_unused();
        }
        if let Some(pause) = next {
            self.shard.timers.arm(now.instant + pause, Timer::Tables);
        }
    }

    /// Brings the sums of tables up to date at the end of a cycle: those of queues that were used, and
    /// what costs no walk to tell.
    pub(crate) fn account_tables(&mut self, now: Now, out: &Outbox) {
        let mut uncounted = core::mem::take(&mut self.shard.uncounted);
        for slot in uncounted.drain(..) {
            let Some(home) = self.homes.queues.get_mut(slot as usize) else {
                race!("the queue left before its tables were counted");
                continue;
            };
            home.account_memory(self.shard);
            if home.note_spare(SPARE_BYTES) && self.homes.idle_tables.note(slot, home.id) {
                self.shard.timers.arm(now.instant + IDLE_INTERVAL, Timer::Tables);
            }
        }
        self.shard.uncounted = uncounted;
        self.shard.log_bytes = self.journal.memory_bytes() + self.homes.log_bytes();
        match self.shard.held.unacked {
            0 => self.homes.oldest.forget(),
            _ if self.journal.is_on() => self.homes.oldest.arm(now, &mut self.shard.timers),
            _ => {}
        }
        let mail: usize = out.mail.iter().map(MailBatch::weight).sum();
        self.shard.table_bytes = self.directory.bytes()
            + self.homes.table_bytes()
            + self.connections.table_bytes()
            + self.shard.jobs.memory_bytes()
            + self.shard.timers.memory_bytes()
            + self.shard.backpressure.memory_bytes()
            + self.shard.exchanges.memory_bytes()
            + self.shard.filter_costs.memory_bytes()
            + self.shard.held_of_vhosts.memory_bytes()
            + self.shard.parked_mail_bytes
            + mail;
    }

    /// Sweeps out the timers of connections and queues that are gone, when they are many.
    pub(crate) fn sweep_timers(&mut self) {
        let (connections, homes) = (&self.connections, &self.homes.queues);
        let awaited = connections.len() + homes.len();
        if self.shard.timers.len() <= 2 * awaited + IDLE_TIMERS_MAX {
            return;
        }
        self.shard.timers.sweep(|at, timer| match timer {
            Timer::Connection(slot, id) => connections
                .get(slot)
                .is_some_and(|connection| connection.id == id && connection.armed == at),
            Timer::Queue(slot, id) => {
                homes.get(slot as usize).is_some_and(|home| home.id == id && home.is_armed_for(at))
            }
            Timer::Letters(_)
            | Timer::Looks
            | Timer::Oldest
            | Timer::UnreadReplies
            | Timer::Trim
            | Timer::Tables
            | Timer::Selectors
            | Timer::FilterCosts => true,
        });
    }
}
