//! `tx.commit`: what a transaction held is published and settled, in slices when it is much.
//!
//! First it is found out where its publishes go and how much of each shard's log they take. What
//! fits a segment of each log is published in one go, so that a crash leaves it there as a whole or
//! not at all. What is more comes in slices, each when there is room for it. What no log can ever
//! take is refused before anything is published.

mod filling;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::PropertiesRef;
use lepus_base::Now;
use lepus_store::Store;

use self::filling::Filling;
use crate::broker::Broker;
use crate::channel::settles::Settles;
use crate::channel::unacked::Unacked;
use crate::channel::{At, HeldPublish, Pending, Tx};
use crate::effort::{MESSAGE_BYTES, TARGETS_AT_ONCE_MAX, as_queues};
use crate::jobs::{Job, Step};
use crate::journal::{LogSet, Need};
use crate::mail::{COMMIT_NUMBER, ChannelRef, Mail, Receipt};
use crate::outbox::Outbox;
use crate::publish::Served;
use crate::refusal::Refusal;

/// Publishes, and copies of them in queues, that are made in one go at most: nobody else is served
/// meanwhile, for a few milliseconds.
const STEPS_AT_ONCE_MAX: usize = 1 << 14;

/// The commit of a transaction.
#[derive(Debug)]
pub(crate) struct Commit {
    at: At,
    publishes: VecDeque<HeldPublish>,
    settles: Settles,
    /// Memory of the publishes that are left.
    bytes: usize,
    /// While it is not known how much it takes.
    sizing: Option<Sizing>,
    /// Whether it has its turn among the jobs: one that takes long has to wait for that.
    has_turn: bool,
}

/// What a commit takes, as far as is known.
#[derive(Debug, Default)]
struct Sizing {
    /// Version of the directory for which this holds.
    version: u64,
    /// Whether it had to be found out anew, since the directory changed.
    is_anew: bool,
    /// The publish that is looked at next.
    next: usize,
    /// Bytes in the log of each shard, at most.
    parts: Vec<usize>,
    /// Logs of this shard that are to have something of it.
    logs: LogSet,
    /// What it fills of the log of each shard at least.
    fillings: Vec<Filling>,
    /// Bytes of the largest publish in one log, at most.
    largest: usize,
    /// Publishes that were looked at, and copies of them in queues.
    steps: usize,
    /// Whether it is too much to be published in one go. Then it is not found out anew, since how
    /// much it takes need not be known exactly.
    is_large: bool,
    /// Queues of the publish looked at last, by shard.
    queues: Vec<usize>,
    /// Logs of those that are here.
    queues_logs: LogSet,
    /// Whether the next publish reaches the same ones if it names the same exchange and key.
    is_route_known: bool,
}

/// What a commit takes that is published in one go.
struct Whole {
    /// Bytes in the log of each shard, at most.
    parts: Vec<usize>,
    /// Logs of this shard that have something of it.
    logs: LogSet,
    /// Publishes, and copies of them in queues.
    steps: usize,
}

/// How a commit goes on once its size is known.
enum Plan {
    /// In one go.
    Whole(Whole),
    Sliced,
    /// Its logs here have to have room first.
    NeedsRoom(Need),
    /// Not at all.
    Refused(Refusal),
}

impl Commit {
    pub(crate) fn is_of(&self, channel: ChannelRef) -> bool {
        self.at.channel == channel
    }

    pub(crate) fn channel(&self) -> ChannelRef {
        self.at.channel
    }

    /// Whether something of it is done already.
    pub(crate) fn is_begun(&self) -> bool {
        self.sizing.is_none()
    }
}

impl Broker {
    /// A transaction that nobody commits: its publishes are freed in slices. What it was to settle is
    /// unacknowledged as before.
    pub(crate) fn discard_tx(&mut self, tx: Tx) -> Settles {
        self.jobs.count_held(tx.publishes_bytes());
        self.jobs.discard(tx.publishes.into());
        tx.settles
    }

    /// Begins to commit what a channel's transaction held.
    pub(crate) fn begin_commit(&mut self, now: Now, at: At, tx: Tx, out: &mut Outbox) {
        self.set_pending(at, Pending::Commit);
        let connection = &mut self.edge.connections[at.slot as usize];
        if let Some(channel) = connection.incarnation(at.channel.channel) {
            let committing = channel.committing.insert(Box::default());
            committing.take_number();
            committing.open(COMMIT_NUMBER, 1, Receipt::Taken);
        }
        let bytes = tx.publishes_bytes();
        self.jobs.count_held(bytes);
        let sizes = self.journal.is_on() && tx.is_persistent;
        let commit = Box::new(Commit {
            at,
            publishes: tx.publishes.into(),
            settles: tx.settles,
            bytes,
            sizing: sizes.then(Sizing::default),
            has_turn: false,
        });
        if self.edge.effort.is_used_up() {
            // Others have begun to commit in this turn.
            return self.jobs.push(Job::Commit(commit));
        }
        let mut budget = TARGETS_AT_ONCE_MAX;
        self.work_on_job(now, Job::Commit(commit), &mut budget, out);
        self.edge.effort.spend_on_queues(TARGETS_AT_ONCE_MAX - budget);
    }

    /// One slice of a commit.
    pub(crate) fn step_commit(
        &mut self,
        now: Now,
        mut commit: Box<Commit>,
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        if self.postponed.has_from(commit.channel()) {
            // What was published before must not be overtaken.
            return Step::Fans(commit);
        }
        if commit.sizing.is_some() {
            let plan = self.plan(&mut commit, budget);
            let has_turn = core::mem::replace(&mut commit.has_turn, true);
            match plan {
                None => return Step::More(Job::Commit(commit)),
                Some(Plan::NeedsRoom(need)) => return Step::NeedsRoom(Job::Commit(commit), need),
                Some(Plan::Refused(refusal)) => {
                    self.refuse_commit(now, *commit, &refusal, out);
                    return Step::Done;
                }
                // Reading goes on with other channels, each of which may commit as much.
                Some(Plan::Whole(whole)) if whole.steps > TARGETS_AT_ONCE_MAX && !has_turn => {
                    return Step::More(Job::Commit(commit));
                }
                Some(Plan::Whole(whole)) => {
                    *budget = budget.saturating_sub(whole.steps);
                    let result = self.publish_whole(now, &mut commit, &whole, out);
                    if let Err(refusal) = result {
                        self.refuse_commit(now, *commit, &refusal, out);
                        return Step::Done;
                    }
                }
                Some(Plan::Sliced) => {}
            }
            commit.sizing = None;
        }
        while *budget > 0
            && let Some(held) = commit.publishes.pop_front()
        {
            let bytes = held.memory_bytes();
            self.discount(&mut commit, bytes);
            let before = self.edge.effort.used();
            let (served, queues) = self.publish_held(now, commit.at, &held, false, out);
            let effort = as_queues(self.edge.effort.used() - before);
            *budget = budget.saturating_sub(1 + queues.max(effort) + bytes / MESSAGE_BYTES);
            match served {
                Served::Now => {}
                Served::Later => return Step::Fans(commit),
                Served::Never(_) | Served::NeverReleased(_) | Served::TooFar(_) => {
                    if let Err(refusal) = served.check(&held.exchange) {
                        self.refuse_commit(now, *commit, &refusal, out);
                    }
                    return Step::Done;
                }
            }
        }
        while *budget > 0
            && let Some((unacked, outcome)) = commit.settles.pop()
        {
            *budget -= 1;
            self.settle_one(now, commit.at, &unacked, outcome, out);
        }
        if !commit.publishes.is_empty() || !commit.settles.is_empty() {
            return Step::More(Job::Commit(commit));
        }
        self.finish_commit(now, commit.at, out);
        Step::Done
    }

    fn discount(&mut self, commit: &mut Commit, bytes: usize) {
        commit.bytes -= bytes;
        self.jobs.discount_held(bytes);
    }

    /// Finds out how much a commit takes, and how it goes on; `None` if the budget was too small.
    fn plan(&mut self, commit: &mut Commit, budget: &mut usize) -> Option<Plan> {
        let (at, publishes) = (commit.at, &commit.publishes);
        let sizing = commit.sizing.as_mut()?;
        if sizing.version != self.directory.version() && !sizing.is_large {
            let shards = usize::from(self.settings.shards);
            let (parts, queues) = (vec![0; shards], vec![0; shards]);
            let (version, is_anew) = (self.directory.version(), sizing.version != 0);
            let fillings = vec![Filling::default(); shards];
            *sizing = Sizing { version, is_anew, parts, fillings, queues, ..Sizing::default() };
        }
        let mut left = core::mem::take(budget);
        while let Some(held) = publishes.get(sizing.next) {
            // Found out in slices it might never be known, where the directory changes all the time.
            if left == 0 && (!sizing.is_anew || sizing.is_large) {
                return None;
            }
            let is_same_way = sizing.is_route_known
                && publishes.get(sizing.next.wrapping_sub(1)).is_some_and(|b| held.goes_with(b));
            left = left.saturating_sub(1);
            if !is_same_way {
                let queues = &mut sizing.queues;
                let before = self.edge.effort.used();
                sizing.is_route_known = match self.count_queues(at, held, queues) {
                    Ok(is_route_known) => is_route_known,
                    Err(refusal) => return Some(Plan::Refused(refusal)),
                };
                sizing.queues_logs = self.logs_of_routes();
                let routing = as_queues(self.edge.effort.used() - before);
                sizing.steps += routing;
                left = left.saturating_sub(queues.iter().sum::<usize>() / 4 + routing);
            }
            self.add_size(held, sizing);
            sizing.next += 1;
        }
        *budget = left;
        Some(self.plan_for(sizing))
    }

    /// Adds what one publish takes.
    fn add_size(&self, held: &HeldPublish, sizing: &mut Sizing) {
        let all: usize = sizing.queues.iter().sum();
        sizing.steps += 1 + all;
        sizing.is_large |= sizing.steps > STEPS_AT_ONCE_MAX;
        if !PropertiesRef(&held.properties).is_persistent() {
            return;
        }
        let own = self.edge.shard.index();
        let here = sizing.parts[own];
        let segment = self.journal.payload_bytes_max();
        for (filling, &queues) in sizing.fillings.iter_mut().zip(&sizing.queues) {
            if queues > 0 {
                // One for very many queues is several.
                let at_once = queues.min(TARGETS_AT_ONCE_MAX);
                let most = self.journal.message_bytes(&held.view(), at_once);
                sizing.largest = sizing.largest.max(most);
                let least = self.journal.message_bytes_min(&held.view(), queues);
                filling.add(least, most <= Store::WHOLE_BYTES_MAX.min(segment), segment);
            }
        }
        for (part, &queues) in sizing.parts.iter_mut().zip(&sizing.queues) {
            // Where chance decides, it may be another shard's turn the next time.
            let queues = if sizing.is_route_known { queues } else { all };
            if queues > 0 {
                *part += self.journal.message_bytes(&held.view(), queues);
                sizing.is_large |= *part > segment;
            }
        }
        if sizing.parts[own] > here {
            sizing.logs.unite(sizing.queues_logs);
        }
    }

    fn plan_for(&mut self, sizing: &Sizing) -> Plan {
        let here = sizing.parts[self.edge.shard.index()];
        if let Err(refusal) = self.could_commit(sizing) {
            return Plan::Refused(refusal);
        }
        if sizing.is_large {
            return Plan::Sliced;
        }
        // While a queue is on its way, its part would come apart from the rest.
        let need = Need { logs: sizing.logs, bytes: here };
        if !self.migrations.is_idle() || self.journal.must_wait_for(need) {
            return Plan::NeedsRoom(need);
        }
        Plan::Whole(Whole { parts: sizing.parts.clone(), logs: sizing.logs, steps: sizing.steps })
    }

    /// Whether empty logs would hold a commit. What it takes at most is no measure, which is many times
    /// more where small messages have many copies; but of each publish that is asked, too, before the
    /// first is made.
    ///
    /// # Errors
    /// 406 where they would not.
    fn could_commit(&self, sizing: &Sizing) -> Result<(), Refusal> {
        let segment = self.journal.payload_bytes_max();
        let could_hold = |bytes| self.journal.could_hold(bytes);
        let mut fillings = sizing.fillings.iter();
        let too_large = match fillings.find(|filling| !could_hold(filling.taken(segment))) {
            Some(filling) => filling.bytes,
            None if !could_hold(sizing.largest) => sizing.largest,
            None => return Ok(()),
        };
        let text = format!("transaction of {too_large} bytes is larger than what may be stored");
        Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text))
    }

    /// Publishes all of a commit so that it is in one batch of each log.
    ///
    /// # Errors
    /// What a publish is refused for which chance sent another way than before, too long a one. It
    /// and those behind it are not published then.
    fn publish_whole(
        &mut self,
        now: Now,
        commit: &mut Commit,
        whole: &Whole,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let bytes = whole.parts[self.edge.shard.index()];
        self.journal.hold(Need { logs: whole.logs, bytes });
        // The room in the log, and the batch, are for what has to be there.
        self.edge.is_committing = true;
        let shards = 0..out.mail.shards();
        let before: Vec<usize> = shards.map(|shard| out.mail[shard].items.len()).collect();
        let mut result = Ok(());
        while result.is_ok()
            && let Some(held) = commit.publishes.pop_front()
        {
            let (served, _) = self.publish_held(now, commit.at, &held, true, out);
            assert!(
                matches!(served, Served::Now | Served::TooFar(_)),
                "there was room for all of it"
            );
            self.discount(commit, held.memory_bytes());
            result = served.check(&held.exchange);
        }
        self.edge.is_committing = false;
        for (shard, (&before, &bytes)) in before.iter().zip(&whole.parts).enumerate() {
            let items = out.mail[shard].items.len() - before;
            if items > 0 && bytes > 0 {
                out.mail[shard].items.insert(before, Mail::Commit { bytes, items });
            }
        }
        result
    }

    /// Nothing more of a commit is done.
    fn refuse_commit(&mut self, now: Now, commit: Commit, refusal: &Refusal, out: &mut Outbox) {
        let at = commit.at;
        self.undo(commit);
        self.fail_channel(now, at, refusal, (90, 20), out);
    }

    /// A channel ends: its commit does not happen unless it has begun. Then the end waits for it.
    pub(crate) fn give_commit_up(&mut self, at: At) {
        if let Some(commit) = self.jobs.take_unbegun(at.channel) {
            self.undo(*commit);
        }
    }

    /// Nothing more of a commit will be done.
    fn undo(&mut self, commit: Commit) {
        let at = commit.at;
        self.jobs.discard(commit.publishes);
        let connection = &mut self.edge.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        channel.pending = None;
        channel.committing = None;
        // The channel ends, with what its transaction was to settle.
        let tx = channel.tx.get_or_insert_default();
        let bytes = commit.settles.len() * size_of::<Unacked>();
        (tx.settles, tx.bytes) = (commit.settles, tx.bytes + bytes);
        connection.tx_bytes += bytes;
    }

    /// All of a commit is done; it is answered when all reports are there.
    fn finish_commit(&mut self, now: Now, at: At, out: &mut Outbox) {
        let connection = &mut self.edge.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        if channel.ending.is_some() {
            channel.pending = None;
            return self.go_on(now, at, out);
        }
        self.set_pending(at, Pending::Committed);
        self.publish_reported(at.channel, COMMIT_NUMBER, COMMIT_NUMBER, 1, Receipt::Taken);
    }
}
