//! Who is made to wait, and who goes on: what the owners of a shard know, put together once a turn.

use alloc::vec::Vec;

use crate::backpressure::Cause;
use crate::mail::ChannelRef;
use crate::outbox::Outbox;
use crate::sessions::SessionSide;

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
        let Some(connection) = self.connections.all.get(slot as usize) else { return false };
        if connection.end.is_some() {
            // Nothing is asked any more, and nothing that was asked is to wait for ever.
            return false;
        }
        if connection.send.backlog() > limit {
            self.connections.pause(&mut self.shard, slot, Cause::Unread, out);
            return true;
        }
        false
    }

    /// Reads a client again that has read enough of what was sent to it.
    pub(crate) fn resume_unread(&mut self, slot: u32, out: &mut Outbox) {
        let limit = self.shard.limits.unread_bytes_max;
        let shard = self.shard.id;
        let Some(connection) = self.connections.all.get(slot as usize) else { return };
        if connection.send.backlog() > limit / 2 {
            return;
        }
        let id = connection.id;
        let waiting: Vec<ChannelRef> = connection
            .open_channels()
            .filter(|channel| !channel.parked.is_empty() && channel.pending.is_none())
            .map(|channel| ChannelRef { shard, connection: id, channel: channel.key })
            .collect();
        for channel in waiting {
            self.connections.unpark(slot, channel);
        }
        self.connections.resume(&mut self.shard, slot, Cause::Unread, out);
    }

    /// Pauses a client while the mail to some shard has no room.
    pub(crate) fn press_mail(&mut self, slot: u32, out: &mut Outbox) {
        if self.shard.is_mail_full(out) {
            self.connections.pause(&mut self.shard, slot, Cause::Mail, out);
        }
    }
}
