//! What was parked behind a question is handled once that is answered.

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::channel::{At, Ending};
use crate::mail::ChannelRef;
use crate::outbox::Outbox;
use crate::sessions::lifecycle::answer_parked_close;
use lepus_base::{ConnectionId, Now};

/// Parked frames of one channel handled in one go.
pub(crate) const REPLAY_AT_ONCE_MAX: usize = 512;

impl Broker {
    /// Handles frames that were parked behind questions that are answered now.
    pub(crate) fn replay_parked(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..self.connections.follow_ups.channels_to_unpark() {
            if self.shard.effort.is_used_up() {
                return;
            }
            let Some((slot, id, key)) = self.connections.follow_ups.next_to_unpark() else {
                return;
            };
            self.replay_channel(now, slot, id, key, out);
        }
    }

    pub(crate) fn replay_channel(
        &mut self,
        now: Now,
        slot: u32,
        id: ConnectionId,
        key: u64,
        out: &mut Outbox,
    ) {
        let shard = self.shard.id;
        let Some(connection) = self.connections.connection_at(slot, id) else { return };
        let vhost = connection.vhost;
        let is_silent = connection.is_silent;
        let Some(channel) = connection.incarnation(key) else { return };
        channel.unparking = false;
        if is_silent {
            // What is parked goes with the channel.
            return;
        }
        let parked = core::mem::take(&mut channel.parked);
        connection.parked_bytes = connection.parked_bytes.saturating_sub(parked.len());
        let at = At { slot, vhost, channel: ChannelRef { shard, connection: id, channel: key } };
        let mut place = 0;
        for _ in 0..REPLAY_AT_ONCE_MAX {
            let Some(connection) = self.connections.connection_at(slot, id) else { return };
            let Some(channel) = connection.incarnation(key) else { break };
            if channel.ending.is_some() || channel.pending.is_some() || place >= parked.len() {
                break;
            }
            if self.session().must_wait(slot, out) || self.shard.effort.is_used_up() {
                break;
            }
            let Some(used) = self.session().replay_one(now, at, &parked[place..], out) else {
                break;
            };
            self.carry_own_mail(now, out);
            place += used;
        }
        let Some(connection) = self.connections.connection_at(slot, id) else { return };
        let ending = connection.incarnation(key).map(|channel| channel.ending);
        if ending == Some(Some(Ending::ByBroker)) {
            answer_parked_close(connection, at, &parked[place..], out);
        }
        if let Some(channel) = connection.incarnation(key)
            && channel.ending.is_none()
        {
            // Nothing was parked meanwhile: frames are only parked while bytes are received.
            channel.parked = parked;
            channel.parked.drain(..place.min(channel.parked.len()));
            let left = channel.parked.len();
            let is_asking = channel.pending.is_some();
            if left == 0 {
                channel.parked = alloc::vec::Vec::new();
            }
            connection.parked_bytes += left;
            // Otherwise it goes on with the answer, or when the client has read.
            let is_unread = connection.paused.has(Cause::Unread) && connection.end.is_none();
            if left > 0
                && !is_asking
                && !is_unread
                && let Some(channel) = connection.incarnation(key)
            {
                channel.unparking = true;
                self.connections.follow_ups.unpark(slot, id, key);
            }
        }
        self.connections.recount(&mut self.shard, slot);
        self.session().resume_parked(slot, out);
    }
}
