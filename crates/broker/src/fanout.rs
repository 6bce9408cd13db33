//! Publishes to very many queues, served in slices between other work.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lepus_base::{Body, Now, QueueId};

use crate::broker::Broker;
use crate::channel::{At, Pending, Target};
use crate::mail::ChannelRef;
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::Terms;

/// A publish to more queues than this is served in slices.
pub(crate) const TARGETS_AT_ONCE_MAX: usize = 512;

/// A publish to very many queues. It owns one reference to its body.
#[derive(Debug)]
pub(crate) struct Fanout {
    slot: u32,
    channel: ChannelRef,
    body: Body,
    terms: Terms,
    targets: Vec<Target>,
    next: usize,
    refused: bool,
    /// Whether it is the commit of a transaction that counts.
    commits: bool,
}

impl Fanout {
    /// A publish none of whose targets has been served.
    pub(crate) fn new(
        at: At,
        body: Body,
        terms: Terms,
        targets: Vec<Target>,
        commits: bool,
    ) -> Fanout {
        let (slot, channel) = (at.slot, at.channel);
        Fanout { slot, channel, body, terms, targets, next: 0, refused: false, commits }
    }

    /// One of its queues is elsewhere now.
    pub(crate) fn redirect(&mut self, old: QueueId, new: Target) {
        for target in self.targets.iter_mut().filter(|target| target.queue == old) {
            *target = new;
        }
    }
}

impl Broker {
    pub(crate) fn start_fanout(&mut self, at: At, fanout: Fanout) {
        let connection = &mut self.edge.connections[at.slot as usize];
        if let Some(channel) = connection.incarnation(at.channel.channel)
            && channel.pending.is_none()
        {
            channel.pending = Some(Box::new(Pending::Route));
        }
        self.fanouts.push_back(fanout);
    }

    /// One slice of a publish to very many queues. True when more is left.
    pub(crate) fn work_on_fanouts(&mut self, now: Now, out: &mut Outbox) -> bool {
        let Some(mut fanout) = self.fanouts.pop_front() else { return false };
        let end = (fanout.next + TARGETS_AT_ONCE_MAX).min(fanout.targets.len());
        self.edge.pool.retain(fanout.body);
        let bytes = MessageView::unpack(self.edge.pool.get(fanout.body)).body.len() as u32;
        let mut incoming = Incoming::from_body(fanout.body, bytes);
        let slice = &fanout.targets[fanout.next..end];
        let routed = self.enqueue_all(now, &mut incoming, slice, fanout.terms, out);
        incoming.finish(&mut self.edge.pool);
        fanout.refused |= routed.refused;
        if let Some((to, number)) = fanout.terms.confirm {
            self.expect_reports(to, number, routed.remote + routed.logs);
        }
        fanout.next = end;
        if end < fanout.targets.len() {
            self.next_fanout(fanout);
            return true;
        }
        self.edge.pool.release(fanout.body);
        if let Some((_, number)) = fanout.terms.confirm {
            self.publish_reported(fanout.channel, number, number, fanout.refused);
        }
        if !fanout.commits {
            self.finish_pending_route(fanout.slot, fanout.channel);
        }
        !self.fanouts.is_empty()
    }

    /// More reports of a publish are to come than were counted.
    fn expect_reports(&mut self, to: ChannelRef, number: u64, more: u32) {
        let Some((_, connection)) = self.edge.connection(to.connection, u32::MAX) else { return };
        let Some(channel) = connection.incarnation(to.channel) else { return };
        if let Some(confirms) = channel.committing.as_mut().or(channel.confirms.as_mut()) {
            confirms.expect(number, more);
        }
    }

    /// Whether a channel's publish is still being served: the next of the same transaction must
    /// not overtake it.
    pub(crate) fn has_fanout(&self, channel: ChannelRef) -> bool {
        self.fanouts.iter().any(|fanout| fanout.channel == channel)
    }

    /// Lets other channels' publishes go first; those of the same channel keep their order.
    fn next_fanout(&mut self, fanout: Fanout) {
        let channel = fanout.channel;
        let waiting = self.fanouts.len();
        let mut same = Vec::from([fanout]);
        for _ in 0..waiting {
            let Some(other) = self.fanouts.pop_front() else { break };
            if other.channel == channel {
                same.push(other);
            } else {
                self.fanouts.push_back(other);
            }
        }
        self.fanouts.extend(same);
    }

    fn finish_pending_route(&mut self, slot: u32, at: ChannelRef) {
        let Some(connection) = self.edge.connection_at(slot, at.connection) else { return };
        let Some(channel) = connection.incarnation(at.channel) else { return };
        if matches!(channel.pending.as_deref(), Some(Pending::Route)) {
            channel.pending = None;
            self.unpark(slot, at);
        }
    }
}
