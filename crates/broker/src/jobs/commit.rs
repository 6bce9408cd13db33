//! `tx.commit`: what a transaction held is published and settled, in slices when it is much.
//!
//! First it is found out where its publishes go and how much of each shard's log they take. What
//! fits a segment of each log is published in one go, so that a crash leaves it there as a whole or
//! not at all. What is more comes in slices, each when there is room for it. What no log can ever
//! take is refused before anything is published.
//!
//! Its settlements are in the same batch as its publishes where all of both is in one log of this
//! shard. Elsewhere they follow when all logs have its publishes, as a commit of their own: a crash
//! may leave a message where it was taken from and where it was published to, and never in neither.

mod filling;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::ShardId;
use lepus_store::Store;

use self::filling::Filling;
use super::Jobs;
use crate::channel::settles::Settles;
use crate::channel::unacked::Unacked;
use crate::channel::{At, HeldPublish, Tx};
use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::journal::{Journal, LogSet, Need};
use crate::mail::ChannelRef;
use crate::queue::Outcome;
use crate::refusal::{Refusal, RefusalKind};

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
    /// Whether it is to be refused as a whole where one of its publishes would not be taken.
    is_strict: bool,
    /// Whether its settlements wait until all of its publishes are reported.
    settles_wait: bool,
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
pub(crate) struct Whole {
    /// Bytes in the log of each shard, at most.
    pub parts: Vec<usize>,
    /// Logs of this shard that have something of it.
    pub logs: LogSet,
    /// Publishes, copies of them in queues, and settlements that are made with them.
    pub steps: usize,
    /// The log that has the settlements in the same batch as the publishes.
    pub settled_in: Option<u16>,
}

/// How a commit goes on once its size is known.
pub(crate) enum Plan {
    /// In one go.
    Whole(Whole),
    Sliced,
    /// Its logs here have to have room first.
    NeedsRoom(Need),
    /// Not at all.
    Refused(Refusal),
}

impl Commit {
    /// What the transaction of a channel held. Its size `matters` where some of it is to be logged.
    fn new(at: At, tx: Tx, matters: bool, is_strict: bool) -> Commit {
        Commit {
            at,
            bytes: tx.publishes_bytes(),
            publishes: tx.publishes.into(),
            settles: tx.settles,
            sizing: (matters || is_strict).then(Sizing::default),
            has_turn: false,
            is_strict,
            settles_wait: false,
        }
    }

    /// Where it was asked for.
    pub(crate) fn at(&self) -> At {
        self.at
    }

    /// It has its turn among the jobs from now on. Whether it had it already.
    pub(crate) fn take_turn(&mut self) -> bool {
        core::mem::replace(&mut self.has_turn, true)
    }

    /// Its size is known, and there is room: something of it is done from now on.
    pub(crate) fn begin(&mut self) {
        self.sizing = None;
    }

    /// Whether it is to be refused as a whole where one of its publishes would not be taken.
    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Whether something of it is yet to be published.
    pub(crate) fn has_publishes(&self) -> bool {
        !self.publishes.is_empty()
    }

    /// Its settlements are made when all of its publishes are reported.
    pub(crate) fn let_settles_wait(&mut self) {
        self.settles_wait = true;
    }

    /// Takes the settlements that are made when all of its publishes are reported, if there are any.
    pub(crate) fn take_waiting_settles(&mut self) -> Option<Settles> {
        (self.settles_wait && !self.settles.is_empty()).then(|| core::mem::take(&mut self.settles))
    }

    /// Takes the next of its publishes, which is counted until [`Jobs::discount_publish`].
    pub(crate) fn next_publish(&mut self) -> Option<HeldPublish> {
        self.publishes.pop_front()
    }

    /// Takes the next of its settlements.
    pub(crate) fn next_settle(&mut self) -> Option<(Unacked, Outcome)> {
        self.settles.pop()
    }

    /// Whether nothing of it is left.
    pub(crate) fn is_done(&self) -> bool {
        self.publishes.is_empty() && self.settles.is_empty()
    }

    /// Finds out how much it takes, for this version of the directory; `None` where that does not matter or is known.
    pub(crate) fn sizer(&mut self, version: u64, shards: usize) -> Option<Sizer<'_>> {
        let Commit { publishes, settles, bytes, is_strict, sizing, .. } = self;
        let sizing = sizing.as_mut()?;
        if sizing.version != version && !sizing.is_large {
            let (parts, queues) = (vec![0; shards], vec![0; shards]);
            let is_anew = sizing.version != 0;
            let fillings = vec![Filling::default(); shards];
            *sizing = Sizing { version, is_anew, parts, fillings, queues, ..Sizing::default() };
        }
        Some(Sizer { publishes, settles, bytes: *bytes, sizing, is_strict: *is_strict })
    }

    /// Whether this channel asked for it.
    pub(crate) fn is_of(&self, channel: ChannelRef) -> bool {
        self.at.channel == channel
    }

    /// The channel that asked for it.
    pub(crate) fn channel(&self) -> ChannelRef {
        self.at.channel
    }

    /// Whether something of it is done already.
    pub(crate) fn is_begun(&self) -> bool {
        self.sizing.is_none()
    }
}

/// A commit whose size is being found out.
pub(crate) struct Sizer<'a> {
    publishes: &'a VecDeque<HeldPublish>,
    settles: &'a Settles,
    /// Memory of the publishes.
    bytes: usize,
    sizing: &'a mut Sizing,
    is_strict: bool,
}

impl Sizer<'_> {
    /// Whether not all of its publishes are known.
    pub(crate) fn has_more(&self) -> bool {
        self.sizing.next < self.publishes.len()
    }

    /// Whether the rest may be found out in another slice. In slices it might never be known, where the directory
    /// changes all the time.
    pub(crate) fn may_be_put_off(&self) -> bool {
        !self.sizing.is_anew || self.sizing.is_large
    }

    /// If it is to be refused as a whole where one of its publishes would not be taken: how many there are, and bytes of
    /// their bodies, at most.
    pub(crate) fn strictly(&self) -> Option<(u64, u64)> {
        let first = self.publishes.front().filter(|_| self.is_strict)?;
        let is_alone = self.publishes.len() == 1;
        let bytes = if is_alone { first.body.len() } else { self.bytes };
        Some((self.publishes.len() as u64, bytes as u64))
    }

    /// Whether the next publish, whose way is known, would come back, and the whole is to be refused for that.
    pub(crate) fn is_in_vain(&self) -> bool {
        let next = self.publishes.get(self.sizing.next).filter(|_| self.is_strict);
        next.is_some_and(|held| held.mandatory)
            && self.sizing.queues.iter().all(|&queues| queues == 0)
    }

    /// The only log of this shard that has all of its publishes, and what it is to settle there.
    pub(crate) fn only_log(&self, own: ShardId, journal: &Journal) -> Option<(u16, &Settles)> {
        let sizing = &*self.sizing;
        let is_here = |(shard, &bytes): (usize, &usize)| (bytes > 0) == (shard == own.index());
        let log = sizing.logs.only(journal.len())?;
        let is_unit = !self.settles.is_empty()
            && !sizing.is_large
            && sizing.parts.iter().enumerate().all(is_here)
            && sizing.steps + self.settles.len() <= STEPS_AT_ONCE_MAX
            && sizing.parts[own.index()] + self.settles_bytes() <= journal.payload_bytes_max();
        is_unit.then_some((log, self.settles))
    }

    /// What its settlements take in a log, at most.
    fn settles_bytes(&self) -> usize {
        self.settles.len() * Store::SETTLE_BYTES_MAX
    }

    /// The next publish, if it is yet to be found out which queues it reaches, and where to count these by shard.
    pub(crate) fn next_way(&mut self) -> Option<(&HeldPublish, &mut [usize])> {
        let sizing = &mut *self.sizing;
        let held = self.publishes.get(sizing.next)?;
        let before = self.publishes.get(sizing.next.wrapping_sub(1));
        let is_same_way = sizing.is_route_known && before.is_some_and(|b| held.goes_with(b));
        (!is_same_way).then_some((held, &mut sizing.queues))
    }

    /// The next publish reaches the queues that were counted, in these logs of this shard, and finding that out took
    /// as long as so many queues. How many it reaches.
    pub(crate) fn learn_way(
        &mut self,
        is_route_known: bool,
        logs: LogSet,
        routing: usize,
    ) -> usize {
        self.sizing.is_route_known = is_route_known;
        self.sizing.queues_logs = logs;
        self.sizing.steps += routing;
        self.sizing.queues.iter().sum()
    }

    /// Adds what the next publish takes, whose way is known.
    pub(crate) fn add_next(&mut self, own: ShardId, journal: &Journal) {
        let Some(held) = self.publishes.get(self.sizing.next) else { return };
        self.sizing.add(held, own, journal);
        self.sizing.next += 1;
    }

    /// How the commit goes on, all of whose publishes are known. While a queue `is_moving` its part would come apart
    /// from the rest. Its settlements go with the publishes where they are `settled_in` the same log.
    pub(crate) fn plan(
        &self,
        own: ShardId,
        is_moving: bool,
        settled_in: Option<u16>,
        journal: &mut Journal,
    ) -> Plan {
        let sizing = &*self.sizing;
        if let Err(refusal) = sizing.could_be_held(journal) {
            return Plan::Refused(refusal);
        }
        if sizing.is_large && self.is_strict && self.publishes.len() > 1 {
            let text = "transaction is larger than what is published as a whole";
            return Plan::Refused(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        if sizing.is_large {
            return Plan::Sliced;
        }
        let (mut parts, mut steps, logs) = (sizing.parts.clone(), sizing.steps, sizing.logs);
        if settled_in.is_some() {
            parts[own.index()] += self.settles_bytes();
            steps += self.settles.len();
        }
        let need = Need { logs, bytes: parts[own.index()] };
        if is_moving || journal.must_wait_for(need) {
            return Plan::NeedsRoom(need);
        }
        Plan::Whole(Whole { parts, logs, steps, settled_in })
    }
}

impl Sizing {
    /// Adds what one publish takes.
    fn add(&mut self, held: &HeldPublish, own: ShardId, journal: &Journal) {
        let all: usize = self.queues.iter().sum();
        self.steps += 1 + all;
        self.is_large |= self.steps > STEPS_AT_ONCE_MAX;
        if !PropertiesRef(&held.properties).is_persistent() {
            return;
        }
        let own = own.index();
        let here = self.parts[own];
        let segment = journal.payload_bytes_max();
        for (filling, &queues) in self.fillings.iter_mut().zip(&self.queues) {
            if queues > 0 {
                // One for very many queues is several.
                let at_once = queues.min(TARGETS_AT_ONCE_MAX);
                let most = journal.message_bytes(&held.view(), at_once);
                self.largest = self.largest.max(most);
                let least = journal.message_bytes_min(&held.view(), queues);
                filling.add(least, most <= Store::WHOLE_BYTES_MAX.min(segment), segment);
            }
        }
        for (part, &queues) in self.parts.iter_mut().zip(&self.queues) {
            // Where chance decides, it may be another shard's turn the next time.
            let queues = if self.is_route_known { queues } else { all };
            if queues > 0 {
                *part += journal.message_bytes(&held.view(), queues);
                self.is_large |= *part > segment;
            }
        }
        if self.parts[own] > here {
            self.logs.unite(self.queues_logs);
        }
    }

    /// Whether empty logs would hold a commit. What it takes at most is no measure, which is many times
    /// more where small messages have many copies; but of each publish that is asked, too, before the
    /// first is made.
    ///
    /// # Errors
    /// 406 where they would not.
    fn could_be_held(&self, journal: &Journal) -> Result<(), Refusal> {
        let segment = journal.payload_bytes_max();
        let could_hold = |bytes| journal.could_hold(bytes);
        let mut fillings = self.fillings.iter();
        let too_large = match fillings.find(|filling| !could_hold(filling.taken(segment))) {
            Some(filling) => filling.bytes,
            None if !could_hold(self.largest) => self.largest,
            None => return Ok(()),
        };
        let text = format!("transaction of {too_large} bytes is larger than what may be stored");
        Err(Refusal::new(RefusalKind::PreconditionFailed, text))
    }
}

impl Jobs {
    /// Publishes that nobody commits are freed in slices. What their transaction was to settle is
    /// unacknowledged as before.
    pub(crate) fn discard_tx(&mut self, tx: Tx) -> Settles {
        self.count_held(tx.publishes_bytes());
        self.discard(tx.publishes.into());
        tx.settles
    }

    /// A commit begins.
    pub(crate) fn begin_commit(
        &mut self,
        at: At,
        tx: Tx,
        size_matters: bool,
        is_strict: bool,
    ) -> Commit {
        let commit = Commit::new(at, tx, size_matters, is_strict);
        self.count_held(commit.bytes);
        commit
    }

    /// A publish of a commit, which took so many bytes, is done.
    pub(crate) fn discount_publish(&mut self, commit: &mut Commit, bytes: usize) {
        commit.bytes -= bytes;
        self.discount_held(bytes);
    }

    /// Nothing more of a commit will be done. What it was to settle.
    pub(crate) fn undo_commit(&mut self, commit: Commit) -> Settles {
        self.discard(commit.publishes);
        commit.settles
    }
}
