//! Reads that failed. What could not be read now may be read later: whoever waits for it goes on
//! waiting, and the read is made again after a pause, which grows. One that fails for
//! [`Settings::read_retry_limit`](crate::Settings::read_retry_limit) is given up: if others worked
//! meanwhile, its place of the disk is the trouble, and it counts as damage; otherwise the store stops,
//! as after a failed write. Where there are no others one is made, to tell these apart. What the system only
//! lacks the means for is never given up.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::{Instant, Now, Position};

use super::failing_records::FailingRecords;
use super::{Event, Purpose, Store};
use crate::disk::{Action, DiskError, File, OperationId, Operations};
use crate::lanes::LaneSlot;
use crate::place::{generation, offset};
use crate::record::{self, RECORD_HEADER_BYTES};
use crate::segment::SEGMENT_HEADER_BYTES;

/// The first pause.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// And the longest.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Reads made again in one call of [`Store::flush`].
const READS_AGAIN: usize = 64;

/// What was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Records, by the read's first position.
    Records(Position),
    /// The page of a lane that begins with this number.
    Page(LaneSlot, u64),
    /// A piece of a segment for pages that are put together again.
    Piece,
}

/// A record that somebody waits for.
#[derive(Debug, Default)]
struct Needed {
    /// Bytes of it that are needed, at most.
    length: usize,
    /// What was looked up, each with how much of the record is needed for it.
    asked: Vec<(Position, usize)>,
}

/// What becomes of a read that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Again,
    Damaged,
    Stop,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FailedReads {
    /// With the moment when each failed first.
    waiting: Vec<(What, Instant)>,
    /// Those whose time has come: some of them are made again in each call.
    due: VecDeque<(What, Instant)>,
    /// Pages of the index that are being read, whether or not that has failed, and those that wait or are due.
    pages: BTreeSet<(LaneSlot, u64)>,
    pub(super) records: FailingRecords,
    /// When reads that are made again failed first.
    again: BTreeMap<OperationId, Instant>,
    /// When those that wait are made again.
    at: Instant,
    pause: Duration,
    /// When this trouble began, and the failures since then.
    since: Instant,
    failures: u64,
    is_told: bool,
    /// When a read worked last.
    worked_at: Instant,
    /// Reads made only to see whether any works.
    trials: usize,
    /// Failures in this run.
    pub(super) count: u64,
}

impl Default for FailedReads {
    fn default() -> FailedReads {
        FailedReads {
            waiting: Vec::new(),
            due: VecDeque::new(),
            pages: BTreeSet::new(),
            records: FailingRecords::default(),
            again: BTreeMap::new(),
            at: Instant::NEVER,
            pause: PAUSE_MIN,
            since: Instant(0),
            failures: 0,
            is_told: false,
            worked_at: Instant(0),
            trials: 0,
            count: 0,
        }
    }
}

impl FailedReads {
    /// Whether a read failed that has not worked since.
    pub(super) fn are_there(&self) -> bool {
        !self.waiting.is_empty() || !self.due.is_empty() || !self.again.is_empty()
    }

    /// Reads that failed and have not worked since.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.due.len() + self.again.len()
    }

    /// When those that wait are to be made again.
    pub(super) fn next_timeout(&self) -> Instant {
        if self.due.is_empty() { self.at } else { Instant(0) }
    }

    /// Whether a page is being read, or will be again.
    pub(super) fn has_page(&self, page: (LaneSlot, u64)) -> bool {
        self.pages.contains(&page)
    }

    /// The read of a page begins.
    pub(super) fn page_began(&mut self, page: (LaneSlot, u64)) {
        self.pages.insert(page);
    }

    /// The read of a page ended, well or not.
    pub(super) fn page_ended(&mut self, page: (LaneSlot, u64)) {
        self.pages.remove(&page);
    }

    fn wait(&mut self, what: What, first: Instant) {
        if let What::Page(lane, page) = what {
            self.pages.insert((lane, page));
        }
        self.waiting.push((what, first));
    }

    /// The next one that is to be made again now.
    fn next_due(&mut self) -> Option<(What, Instant)> {
        let next = self.due.pop_front()?;
        if let What::Page(lane, page) = next.0 {
            self.pages.remove(&(lane, page));
        }
        Some(next)
    }

    /// When a read that is made again failed first.
    pub(super) fn since(&self, id: OperationId) -> Option<Instant> {
        self.again.get(&id).copied()
    }

    /// A read is made again that failed first at `first`.
    pub(super) fn began(&mut self, id: OperationId, first: Instant) {
        self.again.insert(id, first);
    }

    /// Whether one has failed for half of `limit`, and none has worked since it began to.
    fn needs_trial(&self, now: Now, limit: Duration) -> bool {
        // Some have failed once more while others were made again.
        let waiting = self.waiting.iter().map(|(_, first)| first);
        let first = self.again.values().chain(waiting).min();
        first
            .is_some_and(|first| now.instant.since(*first) >= limit / 2 && self.worked_at <= *first)
    }

    /// One that only tells whether any works failed, too.
    pub(super) fn trial_failed(&mut self) {
        self.count += 1;
        self.failures += 1;
    }

    /// A read failed that began to fail at `first`.
    fn failed(
        &mut self,
        now: Now,
        (what, first): (What, Instant),
        error: DiskError,
        limit: Duration,
    ) -> Verdict {
        self.count += 1;
        self.failures += 1;
        if error != DiskError::Busy && now.instant.since(first) >= limit {
            let others_work = self.worked_at > first;
            return if others_work || limit.is_zero() { Verdict::Damaged } else { Verdict::Stop };
        }
        if !self.is_told {
            self.since = now.instant;
        }
        self.wait(what, first);
        // Those that fail together wait together.
        if self.at == Instant::NEVER {
            self.at = now.instant + self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        Verdict::Again
    }

    /// Nothing fails any more: how often it did, and for how long.
    fn end(&mut self, now: Now) -> (u64, Duration) {
        self.pause = PAUSE_MIN;
        self.at = Instant::NEVER;
        self.is_told = false;
        (core::mem::take(&mut self.failures), now.instant.since(self.since))
    }
}

impl Store {
    /// A read ended well. True if it was one that was made again.
    pub(super) fn read_worked(&mut self, now: Now, id: OperationId) -> bool {
        let reads = &mut self.failed_reads;
        reads.worked_at = now.instant;
        let was_again = reads.again.remove(&id).is_some();
        if was_again {
            // The others may work too.
            if !reads.waiting.is_empty() {
                reads.at = now.instant;
            }
            self.tell_end(now);
        }
        was_again
    }

    /// A read of a record, or a part of it, ended well.
    pub(super) fn record_read(&mut self, now: Now, id: OperationId, start: Position) {
        if self.read_worked(now, id) {
            self.failed_reads.records.tried(now, start);
        }
    }

    /// A read found no file: nothing is to be made again.
    pub(super) fn read_found_nothing(&mut self, now: Now, id: OperationId) {
        if self.failed_reads.again.remove(&id).is_some() {
            self.tell_end(now);
        }
    }

    fn tell_end(&mut self, now: Now) {
        if !self.failed_reads.are_there() && self.failed_reads.is_told {
            let (failures, time) = self.failed_reads.end(now);
            self.events.push(Event::ReadsWork { failures, time });
        }
    }

    /// A read of records failed. True if it is given up: then they are damaged.
    pub(super) fn records_failed(
        &mut self,
        now: Now,
        id: OperationId,
        start: Position,
        error: DiskError,
        out: &mut Operations,
    ) -> bool {
        let slot = self.log.segments.get(&generation(start)).and_then(|found| found.slot);
        // Without a file nobody waits for it.
        if !self.cache.is_awaited(start) || slot.is_none() {
            self.failed_reads.count += 1;
            self.failed_reads.again.remove(&id);
            return true;
        }
        let mut known = self.failed_reads.since(id);
        if error == DiskError::Busy {
            // It says nothing of the place: what fails later begins to fail then.
            known = None;
            self.failed_reads.records.worked(start);
        }
        let first = self.failed_reads.records.failed(now, start, known);
        if !self.cache.is_alone(id, self.least(start)) {
            self.failed_reads.count += 1;
            self.failed_reads.again.remove(&id);
            self.cache.stall(id);
            self.read_records_again(start, first, out);
            return false;
        }
        self.failed_reads.again.insert(id, first);
        let file = File::Segment(self.settings.log, slot.unwrap_or(u32::MAX));
        let is_given_up = self.read_failed(now, (id, What::Records(start)), (file, error));
        if !is_given_up {
            self.cache.stall(id);
        }
        is_given_up
    }

    /// The least that is to be read of a record: all of it once its header is known.
    fn least(&self, record: Position) -> usize {
        let header = self.cache.read(record).and_then(record::peek);
        header.map_or(RECORD_HEADER_BYTES, |(_, length)| length)
    }

    /// A read failed. True if it is given up: then what it was to bring is damaged.
    pub(super) fn read_failed(
        &mut self,
        now: Now,
        (id, what): (OperationId, What),
        (file, error): (File, DiskError),
    ) -> bool {
        let known = self.failed_reads.again.remove(&id);
        // While the system lacks the means nobody knows whether the disk has it.
        let known = known.filter(|_| error != DiskError::Busy);
        let first = known.unwrap_or(now.instant);
        let limit = self.settings.read_retry_limit;
        match self.failed_reads.failed(now, (what, first), error, limit) {
            Verdict::Again => {
                if !core::mem::replace(&mut self.failed_reads.is_told, true) {
                    self.events.push(Event::ReadsFail(file, error));
                }
                return false;
            }
            Verdict::Damaged => self.tell_end(now),
            Verdict::Stop => self.stop(file, error),
        }
        // Of a log that has stopped nothing is believed any more, nor that it is damaged.
        self.log.stopped().is_none()
    }

    /// Makes some of the reads again that have waited for their time; [`Store::next_timeout`] says whether
    /// there are more.
    pub(super) fn read_again(&mut self, now: Now, out: &mut Operations) {
        self.failed_reads.records.look_at_begun(now);
        if self.log.stopped().is_some() {
            return;
        }
        let reads = &mut self.failed_reads;
        if now.instant >= reads.at {
            reads.at = Instant::NEVER;
            reads.due.extend(reads.waiting.drain(..));
        }
        if reads.due.is_empty() {
            return;
        }
        for _ in 0..READS_AGAIN {
            let Some((what, first)) = self.failed_reads.next_due() else { break };
            self.make_again(what, first, out);
        }
        if !self.failed_reads.due.is_empty() {
            return;
        }
        if self.failed_reads.needs_trial(now, self.settings.read_retry_limit) {
            self.try_another(out);
        }
        self.tell_end(now);
    }

    fn make_again(&mut self, what: What, first: Instant, out: &mut Operations) {
        match what {
            What::Records(start) => self.read_records_again(start, first, out),
            What::Page(lane, page) => match self.read_page(lane, page, out) {
                Some(id) => self.failed_reads.began(id, first),
                None => self.events.push(Event::LaneReady(lane)),
            },
            What::Piece => {
                if let Some(id) = self.read_piece(out) {
                    self.failed_reads.began(id, first);
                }
            }
        }
    }

    /// Reads the header of a segment that nobody waits for, to see whether anything can be read.
    fn try_another(&mut self, out: &mut Operations) {
        let slots: Vec<u32> =
            self.log.segments.values().filter_map(|segment| segment.slot).collect();
        // Another one each time: it may be the one with the place that cannot be read.
        let trials = &mut self.failed_reads.trials;
        *trials = trials.wrapping_add(1);
        let Some(&slot) = slots.get(*trials % slots.len().max(1)) else { return };
        let file = File::Segment(self.settings.log, slot);
        self.ask(
            Action::Read { file, offset: 0, length: SEGMENT_HEADER_BYTES },
            Purpose::Trial,
            out,
        );
    }

    /// Reads the records that somebody waits for, of a read that failed: each alone, since a place that
    /// cannot be read shall keep nobody else waiting.
    pub(super) fn read_records_again(
        &mut self,
        start: Position,
        first: Instant,
        out: &mut Operations,
    ) {
        let mut needs: BTreeMap<Position, Needed> = BTreeMap::new();
        for (asked, record, length) in self.cache.end_stalled(start) {
            let needed = needs.entry(record).or_default();
            needed.length = length.max(needed.length);
            needed.asked.push((asked, length));
        }
        for (at, Needed { length, asked }) in needs {
            let length = length.min(self.readable(at)).min(self.least(at));
            let slot = self.log.segments.get(&generation(at)).and_then(|found| found.slot);
            let Some(slot) = slot.filter(|_| length > 0) else {
                self.events.extend(asked.iter().map(|(asked, _)| Event::MessageReady(*asked)));
                continue;
            };
            let file = File::Segment(self.settings.log, slot);
            let id = out.push(Action::Read { file, offset: offset(at).into(), length });
            self.cache.start(id, at, length, 0);
            self.failed_reads.again.insert(id, first);
            for (asked, length) in asked {
                self.cache.wait(at, asked, at, length);
            }
        }
    }
}
