//! The definitions log: durable changes of the directory are on the disk before anyone sees them.
//!
//! Requests are decided in the order in which they came. One whose change is durable is recorded
//! and waits, with all that are decided after it, until the log is synced; then their changes are
//! applied, sent to the other shards and answered, in order. Requests that come meanwhile share
//! the next sync, as far as they have nothing to do with each other.

mod deletion;
mod draft;
mod log;
mod replay;
pub mod salvage;

pub(crate) use deletion::Deletions;
pub use draft::{Draft, OpenError, Run};
pub(crate) use log::stopped;
pub use log::{DefinitionsLog, Recorded};
pub use replay::{Record, RecoveryError};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_amqp::code::ReplyCode;
use lepus_base::{HashState, Instant, Now, Position, QueueId};
use lepus_store::disk::{Completion, DiskError, File, LogId, Operations};

use crate::directory::{Change, Directory, Footprint, Request};
use crate::mail::Origin;
use crate::outbox::{Outbox, Severity};
use crate::refusal::Refusal;
use log::Slice;

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

/// What orders the directory's changes.
#[derive(Debug)]
pub(crate) struct Definitions {
    pub(crate) log: Option<Box<DefinitionsLog>>,
    /// Requests that are not decided yet.
    pub(crate) waiting: VecDeque<(Origin, Request)>,
    /// Requests that were decided since the last sync, the first of them durable.
    pub(crate) batch: Vec<Decided>,
    pub(crate) touched: Footprint,
    /// Where the log has to be synced for the batch; `None` while the batch may grow.
    pub(crate) end: Option<Position>,
    /// What is deleted and not over yet, with all that follows from it.
    pub(crate) deletions: Deletions,
    /// How much was decided in this cycle, in changes and in bindings that go with them.
    pub(crate) effort: usize,
    /// The rest of what waits is decided in the next cycle.
    pub(crate) is_put_off: bool,
    /// Requests are being decided or carried out: others wait.
    pub(crate) is_busy: bool,
    /// When to stop waiting for room on the disk.
    full_until: Instant,
    /// There was none.
    is_full: bool,
    is_closing: bool,
    has_closed: bool,
    told_failure: bool,
}

impl Definitions {
    pub(crate) fn new(hash: HashState) -> Definitions {
        Definitions {
            log: None,
            waiting: VecDeque::new(),
            batch: Vec::new(),
            touched: Footprint::new(hash),
            end: None,
            deletions: Deletions::default(),
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

    /// Whether another request may be decided now.
    pub(crate) fn may_decide(&self) -> bool {
        let is_recording = self.log.as_ref().is_some_and(|log| log.is_recording());
        self.end.is_none()
            && self.batch.len() < BATCH_MAX
            && self.effort < EFFORT_MAX
            && !is_recording
    }

    /// Notes whether requests wait only because enough was decided in this cycle.
    pub(crate) fn put_off(&mut self) {
        let is_recording = self.log.as_ref().is_some_and(|log| log.is_recording());
        self.is_put_off = self.effort >= EFFORT_MAX
            && self.end.is_none()
            && self.batch.is_empty()
            && !is_recording
            && !self.waiting.is_empty();
    }

    /// The log has no room: a refusal, or `None` as long as it is worth waiting for.
    pub(crate) fn no_room(&mut self, now: Now) -> Option<Refusal> {
        if self.full_until == Instant::NEVER {
            self.full_until = now.instant + FULL_TIMEOUT;
        }
        self.is_full |= self.full_until <= now.instant;
        let text = "the disk has no room for definitions";
        self.is_full.then(|| Refusal::new(ReplyCode::RESOURCE_ERROR, text))
    }

    /// A change was recorded.
    pub(crate) fn has_room(&mut self) {
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
        if self.is_put_off || (self.deletions.has_slices() && self.batch.is_empty()) {
            return true;
        }
        let Some(log) = &self.log else { return false };
        log.is_recording() && !log.is_blocked() && self.full_until == Instant::NEVER
    }

    /// The file of the log that could not be written or synced.
    pub(crate) fn failure(&self) -> Option<(File, DiskError)> {
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
