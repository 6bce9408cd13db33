//! How channels, connections and the consumers of deleted queues end, step by step.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, Now, QueueId};

use super::deliveries::return_late;
use crate::channel::{At, Ending, Pending};
use crate::directory::Request;
use crate::ends::{End, Parting};
use crate::mail::consumer_key;
use crate::mail::{ChannelRef, Origin};
use crate::outbox::Outbox;
use crate::sessions::SessionSide;

/// Consumers of deleted queues that are cancelled at once where their channel has no room for one
/// more.
pub(crate) const ORPHANS_AT_ONCE_MAX: usize = 1024;

impl SessionSide<'_> {
    /// Slices of what ends.
    pub(crate) fn work_on_ends(&mut self, now: Now, out: &mut Outbox) {
        self.sessions.ends.renew();
        while let Some(end) = self.sessions.ends.next() {
            self.go_on_ending(now, end, out);
        }
        self.sessions.ends.renew();
    }

    /// A slice of one end.
    pub(crate) fn go_on_ending(&mut self, now: Now, mut end: End, out: &mut Outbox) {
        let enough = self.sessions.ends.begin_slice();
        while self.sessions.ends.take_step(enough) {
            let is_done = match &mut end {
                End::Channel { at, next } => self.ask_next_cancel(now, *at, next, out),
                End::Connection(parting) => self.end_next(now, parting, out),
            };
            if is_done {
                return;
            }
        }
        self.sessions.ends.put_off(end);
    }

    /// Takes steps for `work` on something that ends, as far as there are some left.
    pub(crate) fn with_end_steps(&mut self, work: impl FnOnce(&mut Self, &mut usize)) {
        let before = self.sessions.ends.steps();
        let mut steps = before;
        work(self, &mut steps);
        self.sessions.ends.spend(before - steps);
    }

    /// An ending channel begins to cancel its consumers.
    pub(crate) fn cancel_consumers(&mut self, now: Now, at: At, out: &mut Outbox) {
        // One answer more than there are consumers, so that the last cannot come before all are
        // asked.
        self.set_pending(at, Pending::End { waiting: 1 });
        self.go_on_ending(now, End::Channel { at, next: 0 }, out);
    }

    /// Asks the home of a channel's next consumer to remove it. Whether there was none left.
    pub(crate) fn ask_next_cancel(
        &mut self,
        now: Now,
        at: At,
        next: &mut usize,
        out: &mut Outbox,
    ) -> bool {
        let Some(connection) = self.connections.connection_at(at.slot, at.channel.connection)
        else {
            return race!(
                "the connection closed before its channel's consumers were cancelled",
                true
            );
        };
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            return race!("the channel closed before its consumers were cancelled", true);
        };
        let all = channel.subscriptions.as_ref();
        let Some(number) = all.and_then(|all| all.next_from(*next)) else {
            self.consumers_asked(now, at, out);
            return true;
        };
        *next = number + 1;
        let Some(Pending::End { waiting }) = channel.pending.as_deref_mut() else {
            invariant!("a channel that ends waits for the homes of its consumers");
        };
        *waiting += 1;
        self.ask_cancel(at, number as u32, out);
        // What comes for it from now on is returned behind the question.
        self.drop_subscription(at, number as u32);
        false
    }

    /// The homes of all consumers of an ending channel are asked, if it had any.
    pub(crate) fn consumers_asked(&mut self, now: Now, at: At, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(at.slot) else {
            invariant!("a channel stays until its consumers are cancelled")
        };
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays until its consumers are cancelled")
        };
        // Behind the questions, so that they do not come again.
        let subscriptions = channel.subscriptions.take();
        if subscriptions.as_ref().is_some_and(|all| all.is_listed) {
            connection.stalled.retain(|&stalled| stalled != at.channel.channel);
        }
        for late in subscriptions.map(|all| all.late).unwrap_or_default() {
            return_late(at.channel.connection, late, out);
        }
        connection.account_channel(at.channel.channel);
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays until its consumers are cancelled")
        };
        if let Some(Pending::End { waiting }) = channel.pending.as_deref_mut()
            && *waiting > 1
        {
            *waiting -= 1;
            return;
        }
        channel.pending = None;
        self.requeue_all(now, at, out);
    }

    /// `channel.close-ok`: the number is free.
    pub(crate) fn channel_close_ok(&mut self, at: At) {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        if channel.ending != Some(Ending::ByBroker) {
            return;
        }
        self.shard.counters.channels_closed += 1;
        if channel.pending.is_some() {
            // Other shards are still cleaning up after it.
            connection.retire_channel(at.channel.number());
        } else {
            connection.remove_channel(at.channel.number());
        }
    }

    /// The channels of a connection and its exclusive queues begin to go.
    pub(crate) fn part(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot) else {
            invariant!("a connection stays until all that it has is gone")
        };
        let id = connection.id;
        let queues = core::mem::take(&mut connection.exclusive_queues);
        let retired: Vec<u64> = connection.retired().map(|channel| channel.key).collect();
        let channels = connection.channels.len() + retired.len();
        // One more than there is to clean, so that it cannot finish before all is begun.
        connection.cleaning = (channels + queues.len() + 1) as u32;
        for key in retired {
            self.end_with_connection(now, slot, id, key, out);
        }
        let parting = Box::new(Parting::new(slot, id, queues));
        self.go_on_ending(now, End::Connection(parting), out);
    }

    /// Ends the next channel of a connection, or its next exclusive queue. Whether there was none
    /// left.
    pub(crate) fn end_next(&mut self, now: Now, parting: &mut Parting, out: &mut Outbox) -> bool {
        let (slot, id) = parting.connection();
        let Some(connection) = self.connections.connection_at(slot, id) else {
            invariant!("a connection stays until all that it has is gone")
        };
        if let Some(key) = parting.next_channel(&connection.channels) {
            self.end_with_connection(now, slot, id, key, out);
            return false;
        }
        if let Some(queue) = parting.next_queue() {
            let origin = Origin::Ending { shard: self.shard.id, connection: id };
            self.shard.ask_directory(origin, Request::DeleteQueue { id: queue }, out);
            return false;
        }
        self.cleaned(now, slot, out);
        true
    }

    /// Ends one channel because its connection ends.
    pub(crate) fn end_with_connection(
        &mut self,
        now: Now,
        slot: u32,
        id: ConnectionId,
        key: u64,
        out: &mut Outbox,
    ) {
        let shard = self.shard.id;
        let Some(connection) = self.connections.connection_at(slot, id) else {
            invariant!("a connection stays until all that it has is gone")
        };
        let (vhost, is_silent) = (connection.vhost, connection.is_silent);
        let Some(channel) = connection.incarnation(key) else {
            return race!("the channel closed before its connection did");
        };
        let to = ChannelRef { shard, connection: id, channel: key };
        let at = At { slot, channel: to, vhost };
        if !is_silent && !channel.parked.is_empty() {
            return self.end_behind_parked(at);
        }
        let ended = channel.ending.is_some() && channel.pending.is_none();
        self.end_channel(now, at, Ending::ByConnection, out);
        if ended {
            // It had been cleaned up before and only waited for the client's close-ok.
            self.finish_end(now, at, out);
        }
    }

    /// What was said on a channel before the end of its connection still holds: the end stands
    /// behind it.
    pub(crate) fn end_behind_parked(&mut self, at: At) {
        let Some(connection) = self.connections.connection_at(at.slot, at.channel.connection)
        else {
            return race!("the connection closed before its parked frames had their turn");
        };
        if connection.park_end(at.channel.channel) {
            self.connections.unpark(at.slot, at.channel);
        }
    }

    /// A publish of a client that is gone waits for room in a log. Who said more behind it waits for
    /// nothing any more: what is parked is dropped, and its consumers and deliveries go to others,
    /// who may make that room.
    pub(crate) fn end_lost(&mut self, now: Now, channel: ChannelRef, out: &mut Outbox) {
        let Some((slot, connection)) = self.connections.connection(channel.connection, u32::MAX)
        else {
            return race!("the connection closed before its channel was lost");
        };
        let vhost = connection.vhost;
        let Some(found) = connection.incarnation(channel.channel) else {
            return race!("the channel closed before it was lost");
        };
        if found.ending.is_none() {
            self.end_channel(now, At { slot, channel, vhost }, Ending::ByConnection, out);
        }
    }

    /// A consumer's tag is wanted for another one, or there is no room for one more on the channel:
    /// those of deleted queues that have yet to be told are, as if their turn had come.
    pub(crate) fn cancel_orphans(&mut self, at: At, tag: Option<&str>, out: &mut Outbox) {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        let Some(all) = &channel.subscriptions else { return };
        let is_orphan = |queue: QueueId| self.directory.queue_by_id(queue).is_none();
        let orphans = match tag {
            Some(tag) => {
                all.named(tag).filter(|&(_, queue)| is_orphan(queue)).into_iter().collect()
            }
            None => {
                let orphans = all.with_queues().filter(|&(_, queue)| is_orphan(queue));
                orphans.take(ORPHANS_AT_ONCE_MAX).collect::<Vec<_>>()
            }
        };
        for (number, queue) in orphans {
            let key = consumer_key(at.channel, at.channel.channel, number);
            self.consumer_cancelled(key, queue, out);
        }
    }
}
