//! Send buffers that give memory back, and a client in the middle of a message for which there is none.

use alloc::format;

use core::time::Duration;

use lepus_base::Now;

use crate::outbox::Outbox;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Asked, Closing};
use crate::sessions::SessionSide;
use crate::timers::Timer;

/// How long an empty send buffer keeps its memory, about.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);
/// Half a message below this size is not worth closing a connection for, in bytes.
pub(crate) const HALF_MESSAGE_BYTES_MIN: usize = 64 * 1024;

impl SessionSide<'_> {
    /// Gives the memory of empty send buffers back; busy ones are looked at again.
    pub(crate) fn trim_buffers(&mut self, now: Now) {
        for (slot, id) in core::mem::take(&mut self.sessions.trimmable) {
            let Some(connection) = self.connections.connection_at(slot, id) else {
                race!("the connection closed before its buffer was trimmed");
                continue;
            };
            connection.trimmable = false;
            connection.send.shrink();
            self.connections.recount(self.shard, slot);
            self.note_trimmable(slot, now);
        }
    }

    /// Counts send buffers that have grown, whether their sockets take bytes or not.
    pub(crate) fn count_grown(&mut self, out: &mut Outbox) {
        for slot in out.grown.drain(..) {
            self.connections.recount(self.shard, slot.0);
        }
    }

    /// Counts a connection anew after bytes came in. One that is in the middle of a message is
    /// closed when the shard's memory is used up so far that not even one more message has room:
    /// blocked publishers may end what they began, and many of them together could take any
    /// amount.
    #[inline]
    pub(crate) fn account_memory(
        &mut self,
        now: Now,
        slot: u32,
        (used, leftover): (usize, usize),
        out: &mut Outbox,
    ) {
        let Some(connection) = self.connections.get_mut(slot) else {
            invariant!("bytes come from a connection that is there")
        };
        connection.octets.received += used as u64;
        connection.octets.reads += 1;
        connection.leftover_bytes = leftover;
        let held = connection.session.held_bytes();
        let ends = connection.end.is_some();
        self.connections.recount(self.shard, slot);
        if held < HALF_MESSAGE_BYTES_MIN || ends {
            return;
        }
        let limit = self.shard.loan.obtainable;
        let body_bytes_max = self.shard.settings.server.body_bytes_max as usize;
        if self.shard.memory() > (limit + limit / 4).saturating_add(body_bytes_max) {
            let text = format!("no memory for the rest of a message after {held} bytes");
            let refusal = Refusal::new(RefusalKind::ResourceError, text);
            self.fail_connection(now, slot, Closing::Refused(&refusal, Asked::Publish), out);
            self.connections.recount(self.shard, slot);
        }
    }

    /// Notes a send buffer that is empty and keeps its memory, to be looked at again.
    #[inline]
    pub(crate) fn note_trimmable(&mut self, slot: u32, now: Now) {
        let Some(connection) = self.connections.get_mut(slot) else {
            invariant!("a connection that was just found is there")
        };
        if connection.trimmable || !connection.send.is_empty() || !connection.send.is_trimmable() {
            return;
        }
        connection.trimmable = true;
        if self.sessions.trimmable.is_empty() {
            self.shard.timers.arm(now.instant + TRIM_INTERVAL, Timer::Trim);
        }
        self.sessions.trimmable.push((slot, connection.id));
    }
}
