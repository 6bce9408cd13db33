//! What was parked behind a question is handled once that is answered.

use alloc::vec::Vec;

use lepus_base::Now;

use crate::backpressure::Cause;
use crate::channel::{At, Ending};
use crate::mail::ChannelRef;
use crate::outbox::Outbox;
use crate::parked::{self, Parked};
use crate::session::{Asked, Operation};
use crate::sessions::SessionSide;
use crate::sessions::lifecycle::answer_parked_close;

/// Parked frames of one channel handled in one go.
const REPLAY_AT_ONCE_MAX: usize = 512;

/// Frames of a channel that were parked and are handled now.
pub(crate) struct Replay {
    at: At,
    parked: Vec<u8>,
    /// Bytes of them that are handled.
    done: usize,
    /// Frames that may still be handled in one go.
    left: usize,
}

impl SessionSide<'_> {
    /// A channel whose parked frames can be handled, unless this turn has done enough. To be ended by
    /// [`SessionSide::end_replay`].
    pub(crate) fn begin_replay(&mut self) -> Option<Replay> {
        loop {
            if self.shard.effort.is_used_up() {
                return None;
            }
            let (slot, id, key) = self.connections.follow_ups().next_to_unpark()?;
            let shard = self.shard.id;
            let Some(connection) = self.connections.connection_at(slot, id) else {
                race!("the connection closed before its parked frames had their turn");
                continue;
            };
            let vhost = connection.vhost;
            let is_silent = connection.is_silent;
            let Some(channel) = connection.incarnation(key) else {
                race!("the channel closed before its parked frames had their turn");
                continue;
            };
            channel.unparking = false;
            if is_silent {
                // What is parked goes with the channel.
                continue;
            }
            let parked = core::mem::take(&mut channel.parked);
            connection.parked_bytes = connection.parked_bytes.saturating_sub(parked.len());
            let channel = ChannelRef { shard, connection: id, channel: key };
            let at = At { slot, vhost, channel };
            return Some(Replay { at, parked, done: 0, left: REPLAY_AT_ONCE_MAX });
        }
    }

    /// Handles the next of them. False where none is left, or the channel has to wait again.
    pub(crate) fn replay_next(&mut self, now: Now, replay: &mut Replay, out: &mut Outbox) -> bool {
        let at = replay.at;
        let channel = self.connections.channel_at(at);
        let may_go_on =
            channel.is_some_and(|channel| channel.ending.is_none() && channel.pending.is_none());
        if !may_go_on || replay.left == 0 || replay.done >= replay.parked.len() {
            return false;
        }
        if self.must_wait(at.slot, out) || self.shard.effort.is_used_up() {
            return false;
        }
        replay.left -= 1;
        let used = self.replay_first(now, at, &replay.parked[replay.done..], out);
        replay.done += used.unwrap_or(0);
        used.is_some()
    }

    /// What is left of them is parked again.
    pub(crate) fn end_replay(&mut self, replay: Replay, out: &mut Outbox) {
        let Replay { at, parked, done, .. } = replay;
        let (slot, id, key) = (at.slot, at.channel.connection, at.channel.channel);
        let Some(connection) = self.connections.connection_at(slot, id) else {
            return race!("the connection closed over a parked frame");
        };
        let ending = connection.incarnation(key).map(|channel| channel.ending);
        if ending == Some(Some(Ending::ByBroker)) {
            answer_parked_close(connection, at, &parked[done..], out);
        }
        if let Some(channel) = connection.incarnation(key)
            && channel.ending.is_none()
        {
            // Nothing was parked meanwhile: frames are only parked while bytes are received.
            channel.parked = parked;
            channel.parked.drain(..done.min(channel.parked.len()));
            let left = channel.parked.len();
            let is_asking = channel.pending.is_some();
            if left == 0 {
                channel.parked = Vec::new();
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
                self.connections.follow_ups().unpark(slot, id, key);
            }
        }
        self.connections.recount(self.shard, slot);
        self.resume_parked(slot, out);
    }

    /// Handles the first of what is parked. Returns the bytes it took; `None` when nothing is left.
    fn replay_first(&mut self, now: Now, at: At, bytes: &[u8], out: &mut Outbox) -> Option<usize> {
        let (parked, used) = parked::first(bytes)?;
        match parked {
            Parked::End => self.end_channel(now, at, Ending::ByConnection, out),
            Parked::Operation(frame) => {
                let connection = self.connections.get(at.slot)?;
                let (operation, asked) = connection
                    .session
                    .operation(frame)
                    .expect("what was read once can be read again");
                let operation = match operation {
                    // Nobody reads it: the end gives it back. What comes behind may name its number.
                    Operation::Get { queue, .. } if connection.end.is_some() => {
                        Operation::Get { queue, no_ack: false }
                    }
                    other => other,
                };
                self.perform(now, at, &operation, asked, out);
            }
            Parked::Publish(publish) => {
                if let Err(refusal) = self.publish(now, at, publish, out) {
                    self.fail_channel(now, at, &refusal, Asked::Publish, out);
                }
            }
        }
        Some(used)
    }
}
