//! Bytes of a client are read: rows of frames that are like those before, and one event after the other.

use lepus_base::Now;

use crate::backpressure::Cause;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::session::{Event, Incoming};
use crate::sessions::SessionSide;

/// What the next bytes of a connection were.
pub(crate) enum Read {
    /// Frames that are like those before; how many bytes.
    Row(usize),
    /// An event.
    Event {
        /// The bytes that were used for it.
        bytes: usize,
        /// Whether nothing more is to be read for now.
        is_last: bool,
    },
}

impl Read {
    /// How many bytes were used.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Read::Row(bytes) | Read::Event { bytes, .. } => *bytes,
        }
    }
}

impl SessionSide<'_> {
    /// Bytes of a connection are about to be read.
    #[inline]
    pub(crate) fn begin_reading(&mut self, slot: u32, out: &mut Outbox) {
        self.wait_for_mail(slot, out);
        self.hold_begun_by_order(slot, out);
        self.shard.effort.begin_reading();
    }

    /// Takes what is next of a connection's bytes. `None` where there is nothing whole, or the connection is not to be
    /// read further now.
    #[inline(always)]
    pub(crate) fn read_next(
        &mut self,
        now: Now,
        slot: u32,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Option<Read> {
        let connection = self.connections.get_mut(slot)?;
        if !connection.paused.is_empty() || connection.gone {
            return None;
        }
        if self.shard.effort.has_read_enough() {
            self.connections.pause(self.shard, slot, Cause::Turn, out);
            return None;
        }
        if connection.send.backlog() > self.shard.limits.unread_bytes_max {
            self.connections.pause(self.shard, slot, Cause::Unread, out);
            return None;
        }
        let used = match bytes.get(10) {
            Some(40) => self.publish_row(now, slot, bytes, out),
            Some(80) => self.ack_row(now, slot, bytes, out),
            _ => 0,
        };
        if used > 0 {
            return Some(Read::Row(used));
        }
        self.read_event(now, slot, bytes, out)
    }

    /// The next event of a connection's bytes, which is carried out.
    fn read_event(&mut self, now: Now, slot: u32, bytes: &[u8], out: &mut Outbox) -> Option<Read> {
        let connection = self.connections.get_mut(slot)?;
        let sent_before = connection.send.bytes.len();
        let (used, event) =
            connection.session.receive(now.instant, bytes, &mut connection.send.bytes);
        let has_answered = connection.send.bytes.len() > sent_before;
        let is_blocked = connection.blocked;
        if let Some(to) = self.hand_over_target(now, slot, &event) {
            out.hand_over.push((ConnectionSlot(slot), to));
            return None;
        }
        if let Event::Publish { publish, .. } = &event
            && (is_blocked || self.is_held_by_order(slot, out))
        {
            self.connections.pause(self.shard, slot, Cause::Shortage, out);
            // One that was put together cannot be given back. Orders are there before it is.
            if matches!(publish, Incoming::Borrowed(_)) {
                return None;
            }
        }
        if has_answered {
            self.connections.mark_dirty(slot, out);
        }
        let is_last = used == 0 && matches!(event, Event::None);
        if !is_last {
            if let Event::Publish { publish: Incoming::Borrowed(publish), .. } = event {
                self.on_event(now, slot, event, out);
                self.learn_publish(slot, bytes, &publish);
            } else {
                self.on_event(now, slot, event, out);
            }
        }
        Some(Read::Event { bytes: used, is_last })
    }

    /// Whether a connection is to be handed over to another shard: nothing more of it is read here.
    pub(crate) fn is_leaving(&self, slot: u32, out: &Outbox) -> bool {
        out.hand_over.last().is_some_and(|(moved, _)| moved.0 == slot)
    }

    /// Bytes of a connection were read: how many, and how many wait.
    #[inline]
    pub(crate) fn end_reading(
        &mut self,
        now: Now,
        slot: u32,
        (used, left): (usize, usize),
        out: &mut Outbox,
    ) {
        self.shard.effort.end_reading();
        self.account_memory(now, slot, (used, left), out);
    }
}
