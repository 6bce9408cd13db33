//! One message on its way to queues that cannot have it at once: they are very many, or a log has no
//! room for it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lepus_base::{Body, Pool, QueueId, ShardId};

use super::{Job, Jobs};
use crate::channel::Target;
use crate::delayed::{Delayed, Later};
use crate::directory::Directory;
use crate::effort::MESSAGE_BYTES;
use crate::journal::{Journal, Need, Refusals, Room};
use crate::mail::{ChannelRef, Mail, Many, Receipt, Terms};
use crate::message::{Incoming, MessageView, packed};
use crate::outbox::Outbox;

/// Who goes on when all its queues have the message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// A channel.
    Channel(ChannelRef),
    /// The commit of a channel.
    Commit(ChannelRef),
    /// A channel of another shard, from which the message came.
    Far(ChannelRef),
    /// What stands for one dead letter of this shard, or for one message that a delayed exchange held.
    Source(ChannelRef),
}

impl Asker {
    /// The channel, or what stands for one.
    pub(crate) fn channel(self) -> ChannelRef {
        match self {
            Asker::Channel(channel)
            | Asker::Commit(channel)
            | Asker::Far(channel)
            | Asker::Source(channel) => channel,
        }
    }
}

/// A message for queues that get it in slices. It owns one reference to its body.
#[derive(Debug)]
pub(crate) struct Fanout {
    asker: Asker,
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
        self.asker.channel()
    }

    /// The channel of this shard that published it.
    pub(crate) fn client(&self) -> Option<ChannelRef> {
        match self.asker {
            Asker::Channel(channel) | Asker::Commit(channel) => Some(channel),
            Asker::Far(_) | Asker::Source(_) => None,
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

    /// Has a delayed exchange, which is its target, hold it back.
    fn held_back(self, later: Option<Later>) -> Fanout {
        Fanout { later: later.map(Box::new), ..self }
    }

    /// Whether it is still to be mailed to other shards.
    pub(crate) fn is_unsent(&self) -> bool {
        self.reach == Reach::Unsent
    }

    /// Whether it came by mail: each queue is reported.
    pub(crate) fn is_mailed(&self) -> bool {
        self.reach == Reach::Mailed
    }

    /// With what it is put into its queues.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// How long its target, a delayed exchange, is to hold it back.
    pub(crate) fn later(&self) -> Option<Later> {
        self.later.as_deref().copied()
    }

    /// Its body, as it is in the pool.
    pub(crate) fn body(&self) -> Body {
        self.body
    }

    /// The message, with a reference of its own.
    pub(crate) fn incoming(&self, pool: &mut Pool) -> Incoming<'static> {
        pool.retain(self.body);
        Incoming::from_body(self.body, self.bytes)
    }

    /// What became of it in some of its queues.
    pub(crate) fn learn(&mut self, receipt: Receipt) {
        self.receipt = self.receipt.max(receipt);
    }

    /// From where it is passed on, if it is, and bytes that it takes meanwhile.
    pub(crate) fn passed_on(&self) -> Option<(ChannelRef, usize)> {
        let Asker::Source(from) = self.asker else { return None };
        Some((from, self.bytes as usize + size_of_val(&*self.targets)))
    }

    /// Mails it once to each other shard with queues that get it: how many these are. Queues that are on their way, as
    /// `is_away` says, get it last.
    pub(crate) fn mail(
        &mut self,
        own: ShardId,
        pool: &Pool,
        is_away: impl Fn(QueueId) -> bool,
        out: &mut Outbox,
    ) -> Vec<(ShardId, u32)> {
        self.reach = Reach::Sent;
        let mut sent = Vec::new();
        if self.targets.iter().all(|target| target.home == own) {
            return sent;
        }
        let shards = 0..out.mail.shards();
        let starts: Vec<usize> = shards.map(|shard| out.mail[shard].bytes.len()).collect();
        for target in self.targets.iter().filter(|target| target.home != own) {
            if is_away(target.queue) {
                self.moved.push(*target);
            } else {
                let bytes = &mut out.mail[target.home.index()].bytes;
                bytes.extend_from_slice(&target.queue.0.to_le_bytes());
            }
        }
        for (shard, start) in starts.into_iter().enumerate() {
            let batch = &mut out.mail[shard];
            let end = batch.bytes.len();
            let count = (end - start) / 8;
            if count == 0 {
                continue;
            }
            batch.bytes.extend_from_slice(pool.get(self.body));
            batch.items.push(Mail::EnqueueMany(Box::new(Many {
                message: end as u32..batch.bytes.len() as u32,
                queues: start as u32..end as u32,
                persistent: self.terms.persistent,
                priority: self.terms.priority,
                expiration: self.terms.expiration,
                from: self.terms.from,
                number: self.terms.number,
            })));
            sent.push((ShardId(shard as u16), count as u32));
        }
        sent
    }

    /// Adds the queues of this shard to `here` that get it next. Those of other shards got it by mail, but for those on
    /// their way, which come last.
    pub(crate) fn next_here(&self, budget: usize, own: ShardId, here: &mut Vec<Target>) {
        let is_last = self.next == self.targets.len();
        let slice = self.slice(budget).iter();
        here.extend(slice.filter(|target| is_last || target.home == own));
    }

    /// The log in which it comes free once it is in its queues, where it may use the room that is kept for that.
    pub(crate) fn frees(&self) -> Option<u16> {
        self.passing.map(|passing| passing.frees)
    }

    /// The room for all that is left of it, in what is kept for those that are passed on.
    pub(crate) fn learn_room_of_rest(&mut self, room: Room) {
        if let Some(passing) = &mut self.passing {
            passing.rest = if let Room::Later(need) = room { Some(need) } else { None };
        }
    }

    /// Queues that are yet to get it.
    pub(crate) fn rest(&self) -> usize {
        self.targets.len() - self.next + self.moved.len()
    }

    /// The queues that get it next.
    fn slice(&self, budget: usize) -> &[Target] {
        let rest = &self.targets[self.next..];
        if rest.is_empty() { &self.moved } else { &rest[..rest.len().min(budget)] }
    }

    /// The next queues have it, which takes them and the message off the `budget`. Whether that were all.
    pub(crate) fn pass(&mut self, budget: &mut usize) -> bool {
        let count = self.slice(*budget).len();
        *budget = budget.saturating_sub(count.max(1) + self.bytes as usize / MESSAGE_BYTES);
        if self.next < self.targets.len() {
            self.next += count;
        } else {
            self.moved.clear();
        }
        self.next == self.targets.len() && self.moved.is_empty()
    }
}

/// What is left to be done when all queues of a message have it that this shard puts it into.
pub(crate) struct Ended {
    /// Who goes on.
    pub asker: Asker,
    /// Who is told what became of it, if it did not come by mail.
    pub confirm: Option<(ChannelRef, u64)>,
    pub receipt: Receipt,
}

impl Jobs {
    /// A channel's publish, or one of its commit, becomes a job. With `later` the target is a delayed
    /// exchange, which holds it back.
    pub(crate) fn start_fanout(
        &mut self,
        pool: &mut Pool,
        asker: Asker,
        view: &MessageView<'_>,
        terms: Terms,
        targets: &[Target],
        later: Option<Later>,
    ) {
        let fanout = self.fanout_of(pool, asker, view, terms, targets);
        self.begin_fanout(fanout.held_back(later));
    }

    /// A message that is passed on from one queue, or a delayed exchange, to very many queues becomes
    /// a job. Others from there wait until it is done, which `terms.from` says. Then it comes free in
    /// a log, if it is in one.
    pub(crate) fn start_passing_on(
        &mut self,
        pool: &mut Pool,
        packed: &[u8],
        terms: Terms,
        targets: &[Target],
        frees: Option<u16>,
    ) {
        let view = MessageView::unpack(packed);
        let fanout = self.fanout_of(pool, Asker::Source(terms.from), &view, terms, targets);
        let passing = frees.map(|frees| Passing { frees, rest: None });
        self.begin_fanout(Fanout { passing, ..fanout });
    }

    /// A message from another shard for very many queues of this one.
    pub(crate) fn mailed_fanout(
        &mut self,
        pool: &mut Pool,
        own: ShardId,
        many: &Many,
        bytes: &[u8],
    ) -> Fanout {
        let ids = bytes.get(many.queues.start as usize..many.queues.end as usize);
        let target = |id: &[u8; 8]| Target {
            queue: QueueId(u64::from_le_bytes(*id)),
            home: own,
            slot: u32::MAX,
        };
        let Some(ids) = ids else { invariant!("a batch has the queues that its mail names") };
        let ids = ids.as_chunks().0;
        let targets: Vec<Target> = ids.iter().map(target).collect();
        let terms = Terms {
            persistent: many.persistent,
            priority: many.priority,
            expiration: many.expiration,
            from: many.from,
            number: many.number,
        };
        let view = packed(bytes, many.message.clone());
        let fanout = self.fanout_of(pool, Asker::Far(many.from), &view, terms, &targets);
        Fanout { reach: Reach::Mailed, ..fanout }
    }

    fn fanout_of(
        &mut self,
        pool: &mut Pool,
        asker: Asker,
        view: &MessageView<'_>,
        terms: Terms,
        targets: &[Target],
    ) -> Fanout {
        let body = view.pack(pool);
        let targets = self.list_of(targets);
        Fanout {
            asker,
            body,
            bytes: view.body.len() as u32,
            terms,
            targets,
            next: 0,
            later: None,
            moved: Vec::new(),
            receipt: Receipt::Taken,
            reach: Reach::Unsent,
            passing: None,
        }
    }

    /// A publish to be served in slices.
    fn begin_fanout(&mut self, fanout: Fanout) {
        if let Some(channel) = fanout.client() {
            let is_first = self.publishing.insert(channel);
            assert!(is_first, "a channel has one job at a time");
        }
        self.push(Job::Fanout(fanout));
    }

    /// A publish is served as far as this shard is concerned.
    pub(crate) fn end_fanout(&mut self, pool: &mut Pool, fanout: Fanout) -> Ended {
        if let Some(channel) = fanout.client() {
            let was_job = self.publishing.remove(&channel);
            assert!(was_job, "a publish that was a job ends once");
        }
        pool.release(fanout.body);
        let confirm = if fanout.is_mailed() { None } else { fanout.terms.confirm() };
        self.drop_list(fanout.targets);
        Ended { asker: fanout.asker, confirm, receipt: fanout.receipt }
    }
}
