//! One message on its way to queues that cannot have it at once: they are very many, or a log has no
//! room for it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use lepus_base::{Body, Instant, Now, QueueId};

use crate::broker::Broker;
use crate::channel::{At, Pending, Target};
use crate::jobs::{Job, Step};
use crate::mail::{ChannelRef, Receipt};
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::{Room, Terms};

/// Who goes on when all its queues have the message.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// A channel, with its connection's slot.
    Channel(u32, ChannelRef),
    /// The commit of a channel.
    Commit(ChannelRef),
}

/// A message for queues that get it in slices. It owns one reference to its body.
#[derive(Debug)]
pub(crate) struct Fanout {
    owner: Owner,
    body: Body,
    /// Size of the payload.
    bytes: u32,
    terms: Terms,
    targets: Arc<[Target]>,
    next: usize,
    /// When a delayed exchange, which is the target, lets go of it.
    until: Option<Instant>,
    /// Targets that have moved since: they get it last.
    moved: Vec<Target>,
    receipt: Receipt,
}

impl Fanout {
    /// One of its queues is elsewhere now. Under the old id nobody finds it.
    pub(crate) fn redirect(&mut self, old: QueueId, new: Target) {
        if self.targets[self.next..].iter().any(|target| target.queue == old) {
            self.moved.push(new);
        }
        for target in self.moved.iter_mut().filter(|target| target.queue == old) {
            *target = new;
        }
    }

    /// The queues that get it next.
    fn slice(&self, budget: usize) -> &[Target] {
        let rest = &self.targets[self.next..];
        if rest.is_empty() { &self.moved } else { &rest[..rest.len().min(budget)] }
    }

    /// The next queues have it. Whether that were all.
    fn pass(&mut self, count: usize) -> bool {
        if self.next < self.targets.len() {
            self.next += count;
        } else {
            self.moved.clear();
        }
        self.next == self.targets.len() && self.moved.is_empty()
    }
}

impl Broker {
    /// A channel's publish, or one of its commit, becomes a job. With `until` the target is a delayed
    /// exchange, which holds it so long.
    pub(crate) fn start_fanout(
        &mut self,
        at: At,
        view: &MessageView<'_>,
        terms: Terms,
        targets: &[Target],
        until: Option<Instant>,
    ) {
        let owner = if self.is_committing(at) {
            Owner::Commit(at.channel)
        } else {
            self.set_pending(at, Pending::Route);
            Owner::Channel(at.slot, at.channel)
        };
        let body = view.pack(&mut self.edge.pool);
        let targets = self.jobs.list_of(targets);
        self.jobs.push(Job::Fanout(Fanout {
            owner,
            body,
            bytes: view.body.len() as u32,
            terms,
            targets,
            next: 0,
            until,
            moved: Vec::new(),
            receipt: Receipt::Taken,
        }));
    }

    /// One slice of a message's queues.
    pub(crate) fn step_fanout(
        &mut self,
        now: Now,
        mut fanout: Fanout,
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        let slice = fanout.slice(*budget);
        self.edge.pool.retain(fanout.body);
        let mut incoming = Incoming::from_body(fanout.body, fanout.bytes);
        if let Room::Later(bytes) = self.room_for(&incoming, fanout.terms.persistent, slice) {
            incoming.finish(&mut self.edge.pool);
            return Step::NeedsRoom(Job::Fanout(fanout), bytes);
        }
        let routed = match fanout.until {
            Some(due) => {
                let packed = self.edge.pool.get(fanout.body).to_vec();
                let later = (slice[0].queue, due.since(now.instant));
                self.delay_one(now, later, &MessageView::unpack(&packed), &fanout.terms, out)
            }
            None => self.enqueue_all(now, &mut incoming, slice, fanout.terms, out),
        };
        incoming.finish(&mut self.edge.pool);
        let count = slice.len();
        *budget = budget.saturating_sub(count);
        fanout.receipt = fanout.receipt.max(routed.receipt);
        if let Some((to, number)) = fanout.terms.confirm {
            self.expect_reports(to, number, routed.remote + routed.logs);
        }
        if !fanout.pass(count) {
            return Step::More(Job::Fanout(fanout));
        }
        self.finish_fanout(fanout);
        Step::Done
    }

    fn finish_fanout(&mut self, fanout: Fanout) {
        self.edge.pool.release(fanout.body);
        self.jobs.drop_list(fanout.targets);
        if let Some((to, number)) = fanout.terms.confirm {
            self.publish_reported(to, number, number, 1, fanout.receipt);
        }
        match fanout.owner {
            Owner::Channel(slot, channel) => self.finish_pending_route(slot, channel),
            Owner::Commit(channel) => self.jobs.end_fanning(channel),
        }
    }

    /// More reports of a publish are to come than were counted.
    fn expect_reports(&mut self, to: ChannelRef, number: u64, more: u32) {
        let Some((_, connection)) = self.edge.connection(to.connection, u32::MAX) else { return };
        let Some(channel) = connection.incarnation(to.channel) else { return };
        if let Some(confirms) = channel.committing.as_mut().or(channel.confirms.as_mut()) {
            confirms.expect(number, more);
        }
    }

    fn finish_pending_route(&mut self, slot: u32, at: ChannelRef) {
        let Some(connection) = self.edge.connection_at(slot, at.connection) else { return };
        let Some(channel) = connection.incarnation(at.channel) else { return };
        if matches!(channel.pending.as_deref(), Some(Pending::Route)) {
            channel.pending = None;
            self.unpark(slot, at);
        }
    }

    /// Whether it is a channel's commit that publishes.
    fn is_committing(&mut self, at: At) -> bool {
        let connection = &mut self.edge.connections[at.slot as usize];
        let channel = connection.incarnation(at.channel.channel);
        channel.is_some_and(|found| matches!(found.pending.as_deref(), Some(Pending::Commit)))
    }
}
