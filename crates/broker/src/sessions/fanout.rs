//! A channel's publish that very many queues get, or that waits for room: the channel publishes nothing meanwhile.

use crate::channel::{At, Pending, Target};
use crate::delayed::Later;
use crate::jobs::Asker;
use crate::mail::{ChannelRef, Terms};
use crate::message::MessageView;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// A channel's publish, or one of its commit, becomes a job. With `later` the target is a delayed
    /// exchange, which holds it back.
    pub(crate) fn start_fanout(
        &mut self,
        at: At,
        view: &MessageView<'_>,
        terms: Terms,
        targets: &[Target],
        later: Option<Later>,
    ) {
        let asker = if self.is_committing(at) {
            Asker::Commit(at.channel)
        } else {
            self.set_pending(at, Pending::Route);
            Asker::Channel(at.channel)
        };
        self.shard.jobs.start_fanout(&mut self.shard.pool, asker, view, terms, targets, later);
    }

    /// A channel of this shard publishes nothing more before what waits of it for room is in its
    /// queue.
    pub(crate) fn pause_publishing(&mut self, channel: ChannelRef) {
        let Some(at) = self.find_channel(channel) else {
            return race!("the channel closed while its publish waited");
        };
        let connection = &mut self.connections[at.slot];
        // It may wait for something else; that is seen to when it has come.
        if connection
            .incarnation(channel.channel)
            .is_some_and(|found| found.pending.is_none() && found.ending.is_none())
        {
            self.set_pending(at, Pending::Route);
        }
    }

    /// What a channel published begins to wait for room, or has it.
    pub(crate) fn publishes_wait(&mut self, channel: ChannelRef, on: bool) {
        if let Some((_, connection)) = self.connections.connection(channel.connection, u32::MAX)
            && let Some(found) = connection.incarnation(channel.channel)
        {
            found.publishes_wait = on;
        }
        if on {
            self.pause_publishing(channel);
        } else if !self.shard.jobs.has_fanout_of(channel) {
            self.go_on_publishing(channel);
        }
    }

    pub(crate) fn go_on_publishing(&mut self, channel: ChannelRef) {
        if !self.shard.jobs.end_fanning(channel) {
            self.finish_pending_route(channel);
        }
    }

    pub(crate) fn finish_pending_route(&mut self, at: ChannelRef) {
        let Some((slot, connection)) = self.connections.connection(at.connection, u32::MAX) else {
            return race!("the connection closed while its publish waited");
        };
        let Some(channel) = connection.incarnation(at.channel) else {
            return race!("the channel closed while its publish waited");
        };
        if matches!(channel.pending.as_deref(), Some(Pending::Route)) {
            channel.pending = None;
            self.connections.unpark(slot, at);
        }
    }

    /// Whether it is a channel's commit that publishes.
    pub(crate) fn is_committing(&mut self, at: At) -> bool {
        let connection = &mut self.connections[at.slot];
        let channel = connection.incarnation(at.channel.channel);
        channel.is_some_and(|found| matches!(found.pending.as_deref(), Some(Pending::Commit)))
    }
}
