//! Which connections are not read, or blocked, and when they go on.

use crate::backpressure::Cause;
use crate::connection::GETS_MAX;
use crate::connections::Connections;
use crate::mail::ChannelRef;
use crate::mail::Shortage;
use crate::outbox::Outbox;
use crate::sessions::SessionSide;
use crate::shard::Shard;
use alloc::vec::Vec;
use lepus_base::Now;

impl Connections {
    /// Reads a client again that was not read since it did not read, and that has read enough of what was sent to it.
    pub(crate) fn resume_unread(&mut self, shard: &mut Shard, slot: u32, out: &mut Outbox) {
        let Some(connection) = self.get(slot) else {
            return race!("the connection closed before its client had read");
        };
        let is_paused = connection.paused.has(Cause::Unread);
        if !is_paused || !connection.has_read(shard.limits.unread_bytes_max) {
            return;
        }
        let (id, own) = (connection.id, shard.id);
        let waiting: Vec<ChannelRef> = connection
            .open_channels()
            .filter(|channel| !channel.parked.is_empty() && channel.pending.is_none())
            .map(|channel| ChannelRef { shard: own, connection: id, channel: channel.key })
            .collect();
        for channel in waiting {
            self.unpark(slot, channel);
        }
        self.resume(shard, slot, Cause::Unread, out);
    }
}

impl SessionSide<'_> {
    /// Reads publishers again that were paused for a log, here or on other shards, where none of theirs lags any more.
    pub(crate) fn resume_loggers(&mut self, out: &mut Outbox) {
        let (connections, shard) = (&mut self.connections, &mut self.shard);
        for (slot, id) in shard.backpressure.look_at_logs() {
            if connections.connection_at(slot, id).is_none() {
                continue;
            }
            if connections.feeds_lagging_shard(shard, slot) {
                shard.backpressure.keep_waiting_for_log((slot, id));
            } else {
                connections.resume(shard, slot, Cause::Log, out);
            }
        }
    }

    /// Stops reading a client that does not read its answers. True when it is to wait.
    pub(crate) fn must_wait(&mut self, slot: u32, out: &mut Outbox) -> bool {
        let limit = self.shard.limits.unread_bytes_max;
        let Some(connection) = self.connections.get(slot) else {
            return race!("the connection closed before it was to wait", false);
        };
        if connection.end.is_some() {
            // Nothing is asked any more, and nothing that was asked is to wait for ever.
            return false;
        }
        if connection.send.backlog() > limit || connection.gets_under_way >= GETS_MAX {
            self.connections.pause(self.shard, slot, Cause::Unread, out);
            return true;
        }
        false
    }

    /// Pauses a client while the mail to some shard has no room.
    pub(crate) fn wait_for_mail(&mut self, slot: u32, out: &mut Outbox) {
        if self.shard.is_mail_full(out) {
            self.connections.pause(self.shard, slot, Cause::Mail, out);
        }
    }

    /// A turn ends: what came too late for it is read again.
    pub(crate) fn end_turn(&mut self, out: &mut Outbox) {
        self.shard.effort.end_turn();
        let waiting = self.shard.backpressure.end_turn();
        self.connections.resume_all(self.shard, waiting, Cause::Turn, out);
    }

    /// A publisher's shard uses more than it has. True where there is more, or where the answer to
    /// that is to come: until then the publisher is not read.
    #[cold]
    pub(crate) fn waits_for_loan(&mut self, slot: u32, out: &mut Outbox) -> bool {
        self.shard.adjust_loan(out);
        if self.shard.loan.is_all() {
            return false;
        }
        if self.shard.awaits_loan() {
            self.connections.pause(self.shard, slot, Cause::Mail, out);
        }
        true
    }

    /// What a shard is short of to which a connection has published.
    pub(crate) fn feeds_short_shard(&self, slot: u32) -> Option<Shortage> {
        let known_shards = &self.connections.get(slot)?.known_shards;
        self.shard.backpressure.shortage_among(known_shards)
    }

    /// Whether an operator's alarm holds back what a connection publishes; it is blocked then. What is really short is noticed
    /// after the publish that makes it so, an order is there before.
    pub(crate) fn is_held_by_order(&mut self, slot: u32, out: &mut Outbox) -> bool {
        let Some(shortage) = self.shard.backpressure.ordered() else { return false };
        self.connections.block(self.shard, slot, shortage, out);
        true
    }

    /// A connection is in the middle of a message, perhaps. An operator's alarm holds the rest of it back: what is put
    /// together cannot be given back. What is really short does not, since such parts may be what takes the memory.
    #[inline]
    pub(crate) fn hold_begun_by_order(&mut self, slot: u32, out: &mut Outbox) {
        if self.shard.backpressure.ordered().is_some() {
            self.hold_begun(slot, out);
        }
    }

    #[cold]
    fn hold_begun(&mut self, slot: u32, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let has_begun = connection.session.amqp().is_some_and(|amqp| amqp.has_begun_message());
        if has_begun && connection.end.is_none() && self.is_held_by_order(slot, out) {
            self.connections.pause(self.shard, slot, Cause::Shortage, out);
        }
    }

    /// Slows a publisher down when its shard's memory or a mail batch is full.
    pub(crate) fn apply_backpressure(&mut self, slot: u32, out: &mut Outbox) {
        let is_over = self.shard.memory() > self.shard.loan.limit;
        let is_full = is_over && !self.waits_for_loan(slot, out);
        if is_full {
            self.shard.backpressure.note_memory_full();
            self.connections.block(self.shard, slot, Shortage::Memory, out);
        } else if self.journal.is_short() {
            self.connections.block(self.shard, slot, Shortage::Disk, out);
        } else if self.shard.backpressure.is_short_elsewhere()
            && let Some(shortage) = self.feeds_short_shard(slot)
        {
            self.connections.block(self.shard, slot, shortage, out);
        }
        if self.journal.is_behind() || self.connections.feeds_lagging_shard(self.shard, slot) {
            self.connections.pause(self.shard, slot, Cause::Log, out);
        }
        self.wait_for_mail(slot, out);
    }

    /// Of channels that wait for room in a log, those whose clients are gone wait for nothing any more, nor does what
    /// they said behind it.
    pub(crate) fn end_lost_of(&mut self, now: Now, waiting: Vec<ChannelRef>, out: &mut Outbox) {
        for channel in waiting {
            if self.connections.is_lost(channel.connection) {
                self.end_lost(now, channel, out);
            }
        }
    }
}
