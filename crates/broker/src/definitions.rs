//! The definitions log: durable changes of the directory are on the disk before anyone sees them.
//!
//! Requests are decided in the order in which they came. One whose change is durable is recorded
//! and waits, with all that are decided after it, until the log is synced; then their changes are
//! applied, sent to the other shards and answered, in order. Requests that come meanwhile share
//! the next sync, as far as they have nothing to do with each other.

mod deletion;
mod draft;
mod followers;
mod log;
mod questions;
mod replay;
pub mod salvage;

use deletion::Deletions;
pub use draft::{Draft, OpenError, Run};
use followers::{Followers, Following};
pub(crate) use log::stopped;
pub use log::{DefinitionsLog, Recorded};
pub use replay::{Record, RecoveryError};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{HashState, Instant, Now, Position, QueueId, ShardId, VhostId};
use lepus_store::disk::{Completion, DiskError, File, LogId, Operations};

use crate::directory::{Change, Checked, Directory, Footprint, Request};
use crate::mail::{Mail, Origin};
use crate::outbox::{Outbox, Severity};
use crate::query::Answer;
use crate::refusal::{Refusal, RefusalKind};
use log::Slice;
use questions::Questions;

/// The log of definitions; shard 0 drives it.
pub const LOG: LogId = LogId(0);

/// Requests that share a sync at most.
const BATCH_MAX: usize = 512;
/// What is decided in one cycle at most, in changes and in bindings that go with them.
const EFFORT_MAX: usize = 2_048;
/// How long a durable change waits for room on the disk before it is refused.
const FULL_TIMEOUT: Duration = Duration::from_secs(5);

/// What a request comes to.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Nothing changes.
    Answer(Result<Option<QueueId>, Refusal>),
    /// This has to be applied.
    Change(Change),
}

/// A request that was decided and waits for the log.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) origin: Origin,
    pub(crate) decision: Decision,
    /// Its own change is in the log.
    pub(crate) is_logged: bool,
}

/// What of a change the shard that orders them has to see to.
#[derive(Debug)]
pub(crate) struct Aftermath {
    pub(crate) goes_in_slices: bool,
    pub(crate) looks: usize,
    pub(crate) exchanges_left: Vec<(VhostId, Box<str>)>,
}

/// What orders the directory's changes.
#[derive(Debug)]
pub struct Definitions {
    log: Option<Box<DefinitionsLog>>,
    /// Requests that are not decided yet.
    waiting: VecDeque<(Origin, Request)>,
    /// Requests that were decided since the last sync, the first of them durable.
    batch: Vec<Decided>,
    touched: Footprint,
    /// Where the log has to be synced for the batch; `None` while the batch may grow.
    end: Option<Position>,
    /// What is deleted and not over yet, with all that follows from it.
    deletions: Deletions,
    /// How far the other shards are with the changes.
    followers: Followers,
    /// On a shard that follows: what it has yet to say of that.
    following: Following,
    /// Questions that ask for many changes and are not answered.
    questions: Questions,
    /// How much was decided in this cycle, in changes and in bindings that go with them.
    effort: usize,
    /// The rest of what waits is decided in the next cycle.
    is_put_off: bool,
    /// Requests are being decided or carried out: others wait.
    is_busy: bool,
    /// When to stop waiting for room on the disk.
    full_until: Instant,
    /// There was none.
    is_full: bool,
    is_closing: bool,
    has_closed: bool,
    told_failure: bool,
}

impl Definitions {
    /// Those of shard `own` of `shards`.
    pub(crate) fn new(hash: HashState, own: ShardId, shards: u16) -> Definitions {
        Definitions {
            log: None,
            waiting: VecDeque::new(),
            batch: Vec::new(),
            touched: Footprint::new(hash),
            end: None,
            deletions: Deletions::default(),
            followers: Followers::new(own, shards),
            following: Following::default(),
            questions: Questions::default(),
            effort: 0,
            is_put_off: false,
            is_busy: false,
            full_until: Instant::NEVER,
            is_full: false,
            is_closing: false,
            has_closed: false,
            told_failure: false,
        }
    }

    /// From now on durable changes go into this log.
    pub(crate) fn take_log(&mut self, log: DefinitionsLog) {
        self.log = Some(Box::new(log));
    }

    /// Whether there is one.
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// A request waits to be decided.
    pub(crate) fn wait(&mut self, origin: Origin, request: Request) {
        self.waiting.push_back((origin, request));
    }

    /// The requests of a question wait to be decided, at least one.
    pub(crate) fn wait_for_all(&mut self, question: u64, requests: Vec<Request>) {
        self.questions.add(question, requests.len());
        let waiting = requests.into_iter().zip(0..);
        let waiting =
            waiting.map(|(request, index)| (Origin::ControlPart { question, index }, request));
        self.waiting.extend(waiting);
    }

    /// Who asked for moves of queues that are not decided yet: they never will be.
    pub(crate) fn take_moves(&mut self) -> Vec<Origin> {
        let is_move =
            |(_, request): &(Origin, Request)| matches!(request, Request::MoveQueue { .. });
        let waiting = core::mem::take(&mut self.waiting);
        let (moves, others): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(is_move);
        self.waiting = others;
        moves.into_iter().map(|(origin, _)| origin).collect()
    }

    /// Requests begin to be decided or carried out. False where they are already: others wait.
    pub(crate) fn begin(&mut self) -> bool {
        !core::mem::replace(&mut self.is_busy, true)
    }

    /// They were.
    pub(crate) fn end(&mut self) {
        self.is_busy = false;
    }

    /// Decides the next request, if it need not wait: then what is to be carried out now, or `None` if that waits for
    /// the log.
    pub(crate) fn decide_next(
        &mut self,
        now: Now,
        directory: &mut Directory,
    ) -> Option<Option<Decided>> {
        if !self.may_decide() {
            return None;
        }
        let (origin, request) = self.waiting.pop_front()?;
        let is_first = self.batch.is_empty();
        match self.decide(now, directory, origin, request) {
            Err(request) => {
                self.waiting.push_front((origin, *request));
                None
            }
            Ok(decided) if is_first && !decided.is_logged => Some(Some(decided)),
            Ok(decided) => {
                if let Decision::Change(change) = &decided.decision {
                    directory.reserve(change);
                }
                self.batch.push(decided);
                Some(None)
            }
        }
    }

    /// Decides a request. It comes back if that has to wait.
    fn decide(
        &mut self,
        now: Now,
        directory: &Directory,
        origin: Origin,
        request: Request,
    ) -> Result<Decided, Box<Request>> {
        if self.batch.is_empty() {
            self.touched.clear();
        }
        if self.log.is_some() && !self.touched.add(directory, &request) {
            return Err(Box::new(request));
        }
        let mut is_logged = false;
        let mut effort = 1;
        let decision = match (directory.check(&request), &mut self.log) {
            (Err(refusal), _) => {
                effort = directory.refusal_effort(&request);
                Decision::Answer(Err(refusal))
            }
            (Ok(Checked::Already(id)), _) => Decision::Answer(Ok(id)),
            (Ok(Checked::Change(change)), None) => {
                effort = directory.effort(&change);
                Decision::Change(change)
            }
            (Ok(Checked::Change(change)), Some(log)) => {
                effort = directory.effort(&change);
                match log.record(directory, &change) {
                    Recorded::Nothing => Decision::Change(change),
                    Recorded::Logged => {
                        is_logged = true;
                        self.has_room();
                        Decision::Change(change)
                    }
                    Recorded::Refused(refusal) => Decision::Answer(Err(refusal)),
                    Recorded::Full => match self.no_room(now) {
                        Some(refusal) => Decision::Answer(Err(refusal)),
                        None => return Err(Box::new(request)),
                    },
                }
            }
        };
        self.effort += effort;
        Ok(Decided { origin, decision, is_logged })
    }

    /// What waited for the log, if the log has it or never will: that is refused then. What it reserved in the directory
    /// is released.
    pub(crate) fn take_batch(
        &mut self,
        directory: &mut Directory,
        own: ShardId,
        out: &mut Outbox,
    ) -> Vec<(Origin, Decision)> {
        let Some(log) = &self.log else { return Vec::new() };
        let is_synced = self.end.is_some_and(|end| log.is_synced(end));
        if !is_synced && log.failure().is_none() {
            return Vec::new();
        }
        self.end = None;
        let mut batch = Vec::with_capacity(self.batch.len());
        for Decided { origin, mut decision, is_logged } in self.batch.drain(..) {
            if let Decision::Change(change) = &decision {
                directory.release(change);
            }
            if is_logged && !is_synced {
                if let Origin::Migration { shard, queue } = origin {
                    // Its home takes no persistent messages any more: nobody knows whether the log has its move.
                    out.send(own, shard, Mail::QueueUndecided { queue });
                }
                decision = Decision::Answer(Err(stopped()));
            }
            batch.push((origin, decision));
        }
        batch
    }

    /// A change is applied here. The other shards hear of it, and who asked for it gets the answer, if need be once all
    /// that follows from it is over.
    pub(crate) fn applied(
        &mut self,
        own: ShardId,
        origin: Origin,
        change: Change,
        aftermath: Aftermath,
        out: &mut Outbox,
    ) {
        let id = change.queue_id();
        self.tell(change, out);
        if aftermath.goes_in_slices || !aftermath.exchanges_left.is_empty() {
            self.defer(origin, aftermath);
        } else if !matches!(origin, Origin::Home { .. }) {
            // A queue's home knows by the change itself.
            self.answer(own, origin, Ok(id), out);
        }
    }

    /// Answers whoever asked for a change.
    pub(crate) fn answer(
        &mut self,
        own: ShardId,
        origin: Origin,
        result: Result<Option<QueueId>, Refusal>,
        out: &mut Outbox,
    ) {
        let shard = match origin {
            Origin::Start => return,
            // What could not be deleted stays: whoever deleted the rest cannot help it.
            Origin::Deletion(number) => return self.deleted_in_part(own, number, out),
            Origin::Control(question) => {
                let answer = Answer::Changed(result.map(|_| ()));
                return out.answers.push((question, answer));
            }
            Origin::ControlPart { question, index } => {
                if let Some(all) = self.questions.answered(question, index, result.map(|_| ())) {
                    out.answers.push((question, Answer::ChangedAll(all)));
                }
                return;
            }
            Origin::Channel(channel) => channel.shard,
            Origin::Ending { shard, .. }
            | Origin::Migration { shard, .. }
            | Origin::Home { shard, .. } => shard,
        };
        out.send(own, shard, Mail::Answer { origin, result });
    }

    /// One of the things that a deletion waits for is over.
    fn deleted_in_part(&mut self, own: ShardId, number: u64, out: &mut Outbox) {
        if let Some(origin) = self.deletions.one_less(number) {
            self.answer(own, origin, Ok(None), out);
        }
    }

    /// Has whoever asked for a deletion wait until all that follows from it is over.
    fn defer(&mut self, origin: Origin, aftermath: Aftermath) {
        let number = self.deletions.add(origin);
        if aftermath.goes_in_slices {
            self.deletions.wait_for_slices(number);
        }
        self.deletions.request(number, aftermath.exchanges_left, &mut self.waiting);
    }

    /// Whether somebody waits for a deletion.
    #[must_use]
    pub fn has_deletions(&self) -> bool {
        !self.deletions.is_empty()
    }

    /// Tells the other shards of a change.
    pub(crate) fn tell(&mut self, change: Change, out: &mut Outbox) {
        self.followers.tell(matches!(change, Change::Cleared));
        out.tell_change(change);
    }

    /// On a shard that follows: a change was applied. How many the one that makes them is to be told of now, if any.
    pub(crate) fn follow(&mut self, change: &Change) -> Option<u32> {
        self.following.apply(matches!(change, Change::Cleared))
    }

    /// Another shard has applied so many more changes.
    pub(crate) fn followed(&mut self, shard: ShardId, count: u32) {
        self.followers.follow(shard, count);
    }

    /// Whether a slice of something that was deleted may go, as far as deletions and other shards are concerned.
    pub(crate) fn has_slices(&self) -> bool {
        self.deletions.has_slices() && !self.followers.have_slices()
    }

    /// The deletion of which further slices may go: none do while decisions wait for the log, which hold for the directory
    /// as it is.
    pub(crate) fn next_slice(&self) -> Option<u64> {
        if self.batch.is_empty() { self.deletions.first() } else { None }
    }

    /// A slice of a deletion went, perhaps its last. These exchanges delete themselves by that.
    pub(crate) fn sliced(
        &mut self,
        own: ShardId,
        number: u64,
        exchanges: Vec<(VhostId, Box<str>)>,
        is_over: bool,
        out: &mut Outbox,
    ) {
        self.deletions.request(number, exchanges, &mut self.waiting);
        if is_over {
            self.deletions.end_slices();
            self.deleted_in_part(own, number, out);
        }
    }

    /// Whether another request may be decided now.
    fn may_decide(&self) -> bool {
        let is_recording = self.log.as_ref().is_some_and(|log| log.is_recording());
        self.end.is_none()
            && self.batch.len() < BATCH_MAX
            && self.effort < EFFORT_MAX
            && !self.followers.are_far_behind(self.batch.len())
            && !is_recording
    }

    /// Notes whether requests wait only because enough was decided in this cycle.
    pub(crate) fn put_off(&mut self) {
        let is_recording = self.log.as_ref().is_some_and(|log| log.is_recording());
        self.is_put_off = self.effort >= EFFORT_MAX
            && !self.followers.are_far_behind(0)
            && self.end.is_none()
            && self.batch.is_empty()
            && !is_recording
            && !self.waiting.is_empty();
    }

    /// The log has no room: a refusal, or `None` as long as it is worth waiting for.
    fn no_room(&mut self, now: Now) -> Option<Refusal> {
        if self.full_until == Instant::NEVER {
            self.full_until = now.instant + FULL_TIMEOUT;
        }
        self.is_full |= self.full_until <= now.instant;
        let text = "the disk has no room for definitions";
        self.is_full.then(|| Refusal::new(RefusalKind::ResourceError, text))
    }

    /// A change was recorded.
    fn has_room(&mut self) {
        self.full_until = Instant::NEVER;
        self.is_full = false;
    }

    /// When [`flush`](crate::Broker::flush) has something to do for the log without anything happening.
    pub(crate) fn next_timeout(&self) -> Instant {
        let Some(log) = &self.log else { return Instant::NEVER };
        let until = if self.is_full { Instant::NEVER } else { self.full_until };
        log.next_timeout().min(until)
    }

    /// Whether [`work`](crate::Broker::work) would get on with something.
    pub(crate) fn has_work(&self) -> bool {
        if self.is_put_off || (self.has_slices() && self.batch.is_empty()) {
            return true;
        }
        let Some(log) = &self.log else { return false };
        log.is_recording() && !log.is_blocked() && self.full_until == Instant::NEVER
    }

    /// The file of the log that could not be written or synced.
    #[must_use]
    pub fn failure(&self) -> Option<(File, DiskError)> {
        self.log.as_ref()?.failure()
    }

    /// A disk operation of the log ended. Whether there is a log.
    pub(crate) fn complete(
        &mut self,
        now: Now,
        completion: Completion,
        out: &mut Operations,
    ) -> bool {
        let log = self.log.as_mut();
        log.map(|log| log.complete(now, completion, out)).is_some()
    }

    /// Tells once that the log cannot be written.
    pub(crate) fn tell_failure(&mut self, out: &mut Outbox) {
        let Some((file, error)) = self.failure() else { return };
        if !core::mem::replace(&mut self.told_failure, true) {
            let text = format!(
                "cannot write {file}: {error:?}; durable changes of definitions are refused"
            );
            out.log(Severity::Error, "definitions-stopped", text);
        }
    }

    /// Whether requests were put off to this cycle.
    pub(crate) fn take_put_off(&mut self) -> bool {
        core::mem::take(&mut self.is_put_off)
    }

    /// Records a slice of a snapshot. Whether one was begun.
    pub(crate) fn record_slice(&mut self, now: Now, directory: &Directory) -> bool {
        let Some(log) = &mut self.log else { return false };
        if !log.is_recording() {
            return false;
        }
        match log.record_slice(directory) {
            Slice::More | Slice::Blocked | Slice::Done => self.has_room(),
            Slice::Full => {
                if self.no_room(now).is_some()
                    && let Some(log) = &mut self.log
                {
                    log.give_up();
                }
            }
        }
        true
    }

    /// The end of a cycle: what was decided is synced, and the log is closed if that is asked for and nothing waits for
    /// it.
    pub(crate) fn flush(&mut self, now: Now, out: &mut Outbox) {
        self.effort = 0;
        let Some(log) = &mut self.log else { return };
        if self.end.is_none() && !self.batch.is_empty() {
            self.end = Some(log.end());
            log.want_synced();
        }
        // A snapshot would have what is left of what was deleted.
        if self.batch.is_empty() && self.deletions.is_empty() {
            log.begin_snapshot();
        }
        if self.is_closing && !self.has_closed && self.is_quiet() {
            self.has_closed = true;
            if let Some(log) = &mut self.log {
                log.close();
            }
        }
        if let Some(log) = &mut self.log {
            log.flush(now, &mut out.disk);
        }
        self.tell_failure(out);
    }

    /// No change follows.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Whether the end of the log is on the disk.
    pub(crate) fn is_closed(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.is_closed())
    }

    /// Whether nothing waits for the log any more.
    fn is_quiet(&self) -> bool {
        self.batch.is_empty()
            && self.waiting.is_empty()
            && !self.log.as_ref().is_some_and(|log| log.is_recording())
    }
}
