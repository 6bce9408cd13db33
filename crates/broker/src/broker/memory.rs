//! The memory of a shard as a whole, brought up to date once a turn; and what happens to those who need more than there
//! is in the middle of a message.

use alloc::format;

use lepus_base::{Now, QueueId};

use super::Broker;
use crate::idle_tables::IDLE_INTERVAL;
use crate::mail::MailBatch;
use crate::outbox::Outbox;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Asked, Closing};
use crate::timers::Timer;

/// A queue's tables of fewer bytes are left as they are.
const SPARE_BYTES: usize = 512;
/// Half a message below this size is not worth closing a connection for, in bytes.
const HALF_MESSAGE_BYTES_MIN: usize = 64 * 1024;

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
            + self.sessions.by_id.allocation_size()
            + remote.consumers.allocation_size()
            + remote.windows.allocation_size()
            + shard.backpressure.memory_bytes()
            + self.homes.dead_letters.memory_bytes()
            + shard.resting_bytes
            + mail;
    }

    /// Queues that were not used since the last look give spare room in their tables back.
    pub(crate) fn look_at_tables(&mut self, now: Now) {
        let (homes, shard) = (&mut self.homes.queues, &mut self.shard);
        let next = self.homes.idle_tables.look(|slot, id| {
            let home = homes.get_mut(slot as usize).filter(|home| home.id == id);
            home.map_or(Some(0), |home| home.give_spare(now, shard))
        });
        if let Some(pause) = next {
            self.shard.timers.arm(now.instant + pause, Timer::Tables);
        }
    }

    /// What [`crate::shard::Shard::memory`] would be if everything was counted anew, by a walk over all.
    #[must_use]
    pub fn memory_by_walk(&self) -> usize {
        let shard = &self.shard;
        let all = self.sessions.connections.iter().map(|(_, connection)| connection);
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

    /// Gives the memory of empty send buffers back; busy ones are looked at again.
    pub(crate) fn trim_buffers(&mut self, now: Now) {
        for (slot, id) in core::mem::take(&mut self.sessions.spacious) {
            let Some(connection) = self.sessions.connection_at(slot, id) else { continue };
            connection.spacious = false;
            connection.send.shrink();
            self.sessions.recount(&mut self.shard, slot);
            self.sessions.note_spacious(&mut self.shard, slot, now);
        }
    }

    /// Counts send buffers that have grown, whether their sockets take bytes or not.
    pub(crate) fn count_grown(&mut self, out: &mut Outbox) {
        for slot in out.grown.drain(..) {
            self.sessions.recount(&mut self.shard, slot.0);
        }
    }

    /// Counts a connection anew after bytes came in. One that is in the middle of a message is
    /// closed when the shard's memory is used up so far that not even one more message has room:
    /// blocked publishers may end what they began, and many of them together could take any
    /// amount.
    #[inline]
    pub(crate) fn weigh(&mut self, now: Now, slot: u32, leftover: usize, out: &mut Outbox) {
        let Some(connection) = self.sessions.connections.get_mut(slot as usize) else { return };
        connection.leftover_bytes = leftover;
        let held = connection.session.held_bytes();
        let ends = connection.end.is_some();
        self.sessions.recount(&mut self.shard, slot);
        if held < HALF_MESSAGE_BYTES_MIN || ends {
            return;
        }
        let limit = self.shard.loan.obtainable;
        let body_bytes_max = self.shard.settings.server.body_bytes_max as usize;
        if self.shard.memory() > (limit + limit / 4).saturating_add(body_bytes_max) {
            let text = format!("no memory for the rest of a message after {held} bytes");
            let refusal = Refusal::new(RefusalKind::ResourceError, text);
            self.fail_connection(now, slot, Closing::Refused(&refusal, Asked::Publish), out);
            self.sessions.recount(&mut self.shard, slot);
        }
    }
}
