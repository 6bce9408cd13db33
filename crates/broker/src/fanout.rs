//! One message on its way to queues that cannot have it at once: they are very many, or a log has no
//! room for it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lepus_base::{Body, Now, QueueId, ShardId};

use crate::broker::Broker;
use crate::channel::{At, Pending, Target};
use crate::delayed::{Delayed, Later};
use crate::directory::Directory;
use crate::edge::is_near;
use crate::effort::MESSAGE_BYTES;
use crate::jobs::{Job, Step};
use crate::journal::{Journal, LogSet, Need, Occupied, Refusals, Room};
use crate::mail::{ChannelRef, LETTERS_CONNECTION, Mail, Many, Receipt, Terms};
use crate::message::{Incoming, MessageView, packed};
use crate::outbox::Outbox;
use crate::publish::Routed;

/// Who goes on when all its queues have the message.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// A channel.
    Channel(ChannelRef),
    /// The commit of a channel.
    Commit(ChannelRef),
    /// A channel of another shard, from which the message came.
    Far(ChannelRef),
    /// What stands for one dead letter of this shard, or for one message that a delayed exchange held.
    Source(ChannelRef),
}

impl Owner {
    fn channel(self) -> ChannelRef {
        match self {
            Owner::Channel(channel)
            | Owner::Commit(channel)
            | Owner::Far(channel)
            | Owner::Source(channel) => channel,
        }
    }
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
    /// How long a delayed exchange, which is the target, holds it back.
    later: Option<Box<Later>>,
    /// Targets that were on their way, or have moved since: they get it last.
    moved: Vec<Target>,
    receipt: Receipt,
    /// How it comes to queues of other shards.
    reach: Reach,
    /// What it may use that is kept for those that are passed on.
    passing: Option<Passing>,
}

/// The part of a message that is passed on in the room that is kept for that. It is used only when all
/// that is left of the message fits: what had a part of its copies would free nothing, and would
/// keep those waiting that fit.
#[derive(Clone, Copy, Debug)]
struct Passing {
    /// The log in which the message comes free then.
    frees: u16,
    /// What is left of it needs this, as far as is known.
    rest: Option<Need>,
}

/// How a message comes to queues of other shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It is still to be mailed to them.
    Unsent,
    /// It is on its way to them.
    Sent,
    /// It came by mail itself: each queue is reported.
    Mailed,
}

impl Fanout {
    /// One of its queues is elsewhere now, perhaps. Under the old id nobody finds it.
    pub(crate) fn redirect(&mut self, old: QueueId, new: Target, own: ShardId) {
        assert!(!self.is_mailed_for(old), "a queue stays until it has what was mailed to it");
        if let Some(target) = self.moved.iter_mut().find(|target| target.queue == old) {
            *target = new;
            return;
        }
        // One of another shard has it if it was mailed: it did not move before.
        let is_unsent = self.reach == Reach::Unsent;
        let waits = |target: &Target| target.queue == old && (is_unsent || target.home == own);
        if self.targets[self.next..].iter().any(waits) {
            self.moved.push(new);
        }
    }

    /// Whether a queue of this shard is to get it, to which it was mailed.
    pub(crate) fn is_mailed_for(&self, queue: QueueId) -> bool {
        self.reach == Reach::Mailed
            && self.targets[self.next..].iter().any(|target| target.queue == queue)
    }

    /// Who published it.
    pub(crate) fn channel(&self) -> ChannelRef {
        self.owner.channel()
    }

    /// The channel of this shard that published it.
    pub(crate) fn client(&self) -> Option<ChannelRef> {
        match self.owner {
            Owner::Channel(channel) | Owner::Commit(channel) => Some(channel),
            Owner::Far(_) | Owner::Source(_) => None,
        }
    }

    /// Whether it still waits, for `need` or for all that is left of it to find what is kept for it.
    pub(crate) fn must_wait(
        &self,
        need: Need,
        refusals: &mut Refusals,
        journal: &mut Journal,
    ) -> bool {
        let passing = self.passing.and_then(|passing| Some((passing.rest?, passing.frees)));
        refusals.must_wait(need, journal)
            && passing.is_none_or(|(rest, frees)| journal.must_wait_to_pass_on(rest, Some(frees)))
    }

    /// Whether it waits for others that a delayed exchange holds back, whatever room there is: too many of them take
    /// several segments, as it does.
    pub(crate) fn waits_for_others(
        &self,
        directory: &Directory,
        delayed: &Delayed,
        journal: &mut Journal,
    ) -> bool {
        let Some(later) = &self.later else { return false };
        // An exchange that is gone holds nothing back, and at the end of a run nobody waits.
        let is_held_back = self.targets.iter().any(|to| directory.holding(to.queue).is_some());
        is_held_back && !journal.closes() && !delayed.takes_long(later.segments, journal)
    }

    /// Queues that are yet to get it.
    fn rest(&self) -> usize {
        self.targets.len() - self.next + self.moved.len()
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
        let owner = if self.is_committing(at) {
            Owner::Commit(at.channel)
        } else {
            self.set_pending(at, Pending::Route);
            Owner::Channel(at.channel)
        };
        let fanout = self.fanout_of(owner, view, terms, targets, Reach::Unsent);
        self.jobs.begin_fanout(Fanout { later: later.map(Box::new), ..fanout });
    }

    /// A message that is passed on from one queue, or a delayed exchange, to very many queues becomes
    /// a job. Others from there wait until it is done, which `terms.from` says. Then it comes free in
    /// a log, if it is in one.
    pub(crate) fn start_passing_on(
        &mut self,
        packed: &[u8],
        terms: Terms,
        targets: &[Target],
        frees: Option<u16>,
    ) {
        let view = MessageView::unpack(packed);
        let owner = Owner::Source(terms.from);
        let fanout = self.fanout_of(owner, &view, terms, targets, Reach::Unsent);
        let passing = frees.map(|frees| Passing { frees, rest: None });
        self.jobs.begin_fanout(Fanout { passing, ..fanout });
    }

    fn fanout_of(
        &mut self,
        owner: Owner,
        view: &MessageView<'_>,
        terms: Terms,
        targets: &[Target],
        reach: Reach,
    ) -> Fanout {
        let body = view.pack(&mut self.edge.pool);
        let targets = self.jobs.list_of(targets);
        Fanout {
            owner,
            body,
            bytes: view.body.len() as u32,
            terms,
            targets,
            next: 0,
            later: None,
            moved: Vec::new(),
            receipt: Receipt::Taken,
            reach,
            passing: None,
        }
    }

    /// A message from another shard for very many queues of this one.
    pub(crate) fn mailed_fanout(&mut self, many: &Many, bytes: &[u8]) -> Fanout {
        let ids = bytes.get(many.queues.start as usize..many.queues.end as usize);
        let own = self.edge.shard;
        let target = |id: &[u8; 8]| Target {
            queue: QueueId(u64::from_le_bytes(*id)),
            home: own,
            slot: u32::MAX,
        };
        let ids = ids.unwrap_or_default().as_chunks().0;
        let targets: Vec<Target> = ids.iter().map(target).collect();
        let terms = Terms {
            persistent: many.persistent,
            priority: many.priority,
            expiration: many.expiration,
            from: many.from,
            number: many.number,
        };
        let owner = Owner::Far(many.from);
        let view = packed(bytes, many.message.clone());
        self.fanout_of(owner, &view, terms, &targets, Reach::Mailed)
    }

    /// Mails a message once to each other shard with queues that get it.
    fn mail_fanout(&mut self, fanout: &mut Fanout, out: &mut Outbox) {
        fanout.reach = Reach::Sent;
        let own = self.edge.shard;
        if fanout.targets.iter().all(|target| target.home == own) {
            return;
        }
        let shards = 0..out.mail.shards();
        let starts: Vec<usize> = shards.map(|shard| out.mail[shard].bytes.len()).collect();
        for target in fanout.targets.iter().filter(|target| target.home != own) {
            if self.migrations.rests(target.queue).is_some() {
                fanout.moved.push(*target);
            } else {
                let bytes = &mut out.mail[target.home.index()].bytes;
                bytes.extend_from_slice(&target.queue.0.to_le_bytes());
            }
        }
        let (mut queues, mut shards) = (0, 0);
        for (shard, start) in starts.into_iter().enumerate() {
            let end = out.mail[shard].bytes.len();
            let count = (end - start) as u64 / 8;
            if count == 0 {
                continue;
            }
            let batch = &mut out.mail[shard];
            batch.bytes.extend_from_slice(self.edge.pool.get(fanout.body));
            batch.items.push(Mail::EnqueueMany(Box::new(Many {
                message: end as u32..batch.bytes.len() as u32,
                queues: start as u32..end as u32,
                persistent: fanout.terms.persistent,
                priority: fanout.terms.priority,
                expiration: fanout.terms.expiration,
                from: fanout.terms.from,
                number: fanout.terms.number,
            })));
            let counters = &mut self.edge.counters;
            counters.enqueued_remote += count;
            if is_near(&self.edge.near, ShardId(shard as u16)) {
                counters.enqueued_near += count;
            }
            queues += count as u32;
            shards += 1;
        }
        if let Some((to, number)) = fanout.terms.confirm() {
            self.expect_reports(to, number, queues);
        }
        if shards > 0 {
            self.jobs.send_away(fanout.owner.channel(), shards);
        }
    }

    /// One slice of a message's queues.
    pub(crate) fn step_fanout(
        &mut self,
        now: Now,
        mut fanout: Fanout,
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        if self.postponed.has_from(fanout.channel()) {
            // What was published before must not be overtaken.
            return Step::NeedsRoom(Job::Fanout(fanout), Need::default());
        }
        if fanout.reach == Reach::Unsent {
            self.mail_fanout(&mut fanout, out);
        }
        let slice = fanout.slice(*budget);
        let mut here = core::mem::take(&mut self.targets);
        here.clear();
        // Those of other shards got it by mail, but for those on their way, which come last.
        let is_last = fanout.next == fanout.targets.len();
        here.extend(slice.iter().filter(|target| is_last || target.home == self.edge.shard));
        let step = self.serve_fanout(now, fanout, &here, budget, out);
        self.targets = here;
        step
    }

    fn serve_fanout(
        &mut self,
        now: Now,
        mut fanout: Fanout,
        here: &[Target],
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        self.edge.pool.retain(fanout.body);
        let mut incoming = Incoming::from_body(fanout.body, fanout.bytes);
        let (room, passes) = self.room_for_slice(&mut fanout, &incoming, here);
        if let Room::Later(need) = room {
            // To look at them is work, too.
            *budget = budget.saturating_sub(here.len().max(1));
            incoming.finish(&mut self.edge.pool);
            return Step::NeedsRoom(Job::Fanout(fanout), need);
        }
        self.journal.set_passing(passes, true);
        if fanout.reach == Reach::Mailed {
            self.enqueue_mailed(now, incoming, here, fanout.terms, out);
        } else {
            let routed = match fanout.later.as_deref() {
                // Deleted meanwhile, with all that it held back.
                Some(_) if self.directory.holding(here[0].queue).is_none() => Routed::default(),
                Some(&later) => {
                    let packed = self.edge.pool.get(fanout.body).to_vec();
                    let later = (here[0].queue, later);
                    self.delay_one(now, later, &MessageView::unpack(&packed), &fanout.terms, out)
                }
                None => self.enqueue_all(now, &mut incoming, here, fanout.terms, out),
            };
            incoming.finish(&mut self.edge.pool);
            fanout.receipt = fanout.receipt.max(routed.receipt);
            if let Some((to, number)) = fanout.terms.confirm() {
                self.expect_reports(to, number, routed.remote + routed.logs);
            }
        }
        self.journal.set_passing(passes, false);
        let count = fanout.slice(*budget).len();
        *budget = budget.saturating_sub(count.max(1) + fanout.bytes as usize / MESSAGE_BYTES);
        if !fanout.pass(count) {
            return Step::More(Job::Fanout(fanout));
        }
        self.finish_fanout(fanout, out);
        Step::Done
    }

    /// Whether there is room for the next queues of a message, and in which log it takes that of what is
    /// kept for those that are passed on.
    fn room_for_slice(
        &mut self,
        fanout: &mut Fanout,
        incoming: &Incoming<'_>,
        here: &[Target],
    ) -> (Room, Option<u16>) {
        let persistent = fanout.terms.persistent;
        let room = self.room_for(incoming, persistent, here);
        let (directory, delayed) = (&self.directory, &self.delayed);
        if room == Room::Now && fanout.waits_for_others(directory, delayed, &mut self.journal) {
            let need = Need { logs: LogSet::OWN, bytes: self.bytes_in_log(incoming, 1) };
            return (Room::Later(need), None);
        }
        let Some(passing) = fanout.passing.filter(|_| room != Room::Now) else {
            return (room, None);
        };
        let frees = Some(passing.frees);
        let bytes = self.bytes_in_log(incoming, fanout.rest());
        self.journal.set_passing(frees, true);
        let of_rest = self.lack_of_room(bytes, here, Occupied::default());
        self.journal.set_passing(frees, false);
        let rest = if let Room::Later(need) = of_rest { Some(need) } else { None };
        fanout.passing = Some(Passing { rest, ..passing });
        match (of_rest, room) {
            (Room::Now, _) => (Room::Now, frees),
            (Room::Later(_), Room::Never(_)) => (of_rest, None),
            _ => (room, None),
        }
    }

    fn finish_fanout(&mut self, fanout: Fanout, out: &mut Outbox) {
        if self.jobs.is_away(fanout.channel()) {
            self.let_others_pass(&fanout);
        }
        self.jobs.end_fanout(&fanout);
        self.edge.pool.release(fanout.body);
        self.jobs.drop_list(fanout.targets);
        if fanout.reach != Reach::Mailed
            && let Some((to, number)) = fanout.terms.confirm()
        {
            self.publish_reported(to, number, number, 1, fanout.receipt);
        }
        match fanout.owner {
            Owner::Far(to) => out.mail[to.shard.index()].items.push(Mail::Fanned { to }),
            owner => self.fanned(owner.channel()),
        }
    }

    /// A message can only wait now, for room or for other shards: if it is one that is passed on, those of others
    /// that are do not wait with it.
    pub(crate) fn let_others_pass(&mut self, fanout: &Fanout) {
        if let Owner::Source(from) = fanout.owner {
            self.give_turn_away(from, fanout.bytes as usize + size_of_val(&*fanout.targets));
        }
    }

    /// All queues of a shard, this one or another, have what was published to very many.
    pub(crate) fn fanned(&mut self, channel: ChannelRef) {
        if !self.jobs.come_back(channel) {
            return;
        }
        if channel.connection == LETTERS_CONNECTION {
            self.passed_on(channel);
        } else if !self.postponed.has_from(channel) {
            self.go_on_publishing(channel);
        }
    }

    /// A channel of this shard publishes nothing more before what waits of it for room is in its
    /// queue.
    pub(crate) fn pause_publishing(&mut self, channel: ChannelRef) {
        let Some(at) = self.find_channel(channel) else { return };
        let connection = &mut self.edge.connections[at.slot as usize];
        // It may wait for something else; that is seen to when it has come.
        if connection
            .incarnation(channel.channel)
            .is_some_and(|found| found.pending.is_none() && found.ending.is_none())
        {
            self.set_pending(at, Pending::Route);
        }
    }

    /// Nothing of a channel of this shard waits for room any more.
    pub(crate) fn resume_publishing(&mut self, channel: ChannelRef) {
        if channel.connection == LETTERS_CONNECTION {
            self.set_aside_over(channel);
        } else if !self.jobs.has_fanout_of(channel) {
            self.go_on_publishing(channel);
        }
    }

    fn go_on_publishing(&mut self, channel: ChannelRef) {
        if !self.jobs.end_fanning(channel) {
            self.finish_pending_route(channel);
        }
    }

    /// More reports of a publish are to come than were counted.
    fn expect_reports(&mut self, to: ChannelRef, number: u64, more: u32) {
        if to.connection == LETTERS_CONNECTION {
            return self.edge.dead_letters.expect(number, more);
        }
        let Some((_, connection)) = self.edge.connection(to.connection, u32::MAX) else { return };
        let Some(channel) = connection.incarnation(to.channel) else { return };
        if let Some(confirms) = channel.committing.as_mut().or(channel.confirms.as_mut()) {
            confirms.expect(number, more);
        }
    }

    fn finish_pending_route(&mut self, at: ChannelRef) {
        let Some((slot, connection)) = self.edge.connection(at.connection, u32::MAX) else {
            return;
        };
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
