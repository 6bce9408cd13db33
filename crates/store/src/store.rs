//! One shard's store, driven by values: see the crate's documentation.

mod append;
mod compaction;
mod counts;
mod failed_reads;
mod failing_records;
mod index;
mod kept;
mod publish;
mod read;
mod rebuild;
mod reserve;
mod rewrite;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::{Instant, Now, Position, QueueId};

use crate::cache::Cache;
use crate::disk::{Action, Completion, DiskError, File, OperationId, Operations};
use crate::index_file::IndexFile;
use crate::keys::Keys;
use crate::lane::Summary;
use crate::lanes::LaneSlot;
use crate::log::{Chain, Log};
use crate::names::NameTable;
use crate::record::Lane;
use crate::recovery::{Damage, Recovery, Refusal};
use crate::retry::Retry;
use crate::segment::SEGMENT_BYTES_MAX;
use crate::settings::Settings;
use crate::state::State;
use crate::store::failed_reads::What;

pub use append::Place;
pub use counts::SegmentCounts;
pub use read::{Fetch, Lookup};

/// Settles gathered before they are encoded.
const SETTLES_MAX: usize = 4096;
/// What a record is thought to have beside its body, before one was read.
const RECORD_EXTRA_BYTES: usize = 64;
/// Lanes looked at in one call of [`Store::flush`] to find idle ones.
const COOL_LOOKS: usize = 4;
/// Lanes looked at for that in one call of [`Store::work`].
const WORK_COOL_LOOKS: usize = 64;
/// Slices of a checkpoint encoded in one call of [`Store::work`]; one in a call of
/// [`Store::flush`].
const WORK_SLICES: usize = 4;
/// Pages accounted for in one call of [`Store::work`].
const ACCOUNT_PAGES: usize = 16;
/// Rows of moved messages of segments that are gone looked at in one call of [`Store::work`].
const SWEEP_ROWS: usize = 4096;

/// What a store tells its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Recovery is done: the store takes records.
    Ready {
        /// Whether the last run ended in order; otherwise every message found is redelivered.
        is_clean: bool,
    },
    /// Recovery failed; nothing was changed.
    Refused(Refusal),
    /// Everything was read and nothing written ([`Settings::asks_first`]): damage was told before, and
    /// [`Store::take_opaque`] has the opaque records. The store waits for [`Store::go_on`], or is
    /// dropped and leaves the files as they are.
    Found,
    /// A page of the lane was read: fetch again.
    LaneReady(LaneSlot),
    /// What the lookup of this position waited for was read, or cannot be: look it up again.
    MessageReady(Position),
    /// Bytes that were synced once cannot be read.
    Damaged(Damage),
    /// Reads fail now, of this file first. Who waits for them goes on waiting; they are made again until
    /// [`Event::ReadsWork`] or [`Event::Stopped`].
    ReadsFail(File, DiskError),
    /// No read fails any more.
    ReadsWork {
        /// How many failed since [`Event::ReadsFail`].
        failures: u64,
        /// How long ago that was.
        time: Duration,
    },
    /// A damaged page of the index was put together again from the log, and so many messages of the lane
    /// that were in it were not found.
    Missing(Lane, u64),
    /// A write or sync failed, or all reads for too long: nothing appended since will be confirmed.
    Stopped(File, DiskError),
    /// A checkpoint is valid.
    Checkpointed(u64),
    /// The disk has no room for a checkpoint of about so many bytes: nothing comes free before it has.
    CheckpointWaits(u64),
    /// It had room for one again.
    CheckpointGoesOn,
}

/// How much room is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Enough.
    Ample,
    /// Segments are running out: publishers should be held back.
    Low,
    /// Messages that do not fit into the current segment are refused until one is prepared;
    /// settles and checkpoints go on.
    Full,
}

/// What is in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Which lane.
    pub slot: LaneSlot,
    /// Messages that live; see [`Store::count`].
    pub count: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// The lowest sequence number that was never used.
    pub next_seq: u64,
}

/// Figures for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes written to segments, by this run.
    pub log_bytes: u64,
    /// Bytes written to index and checkpoints.
    pub index_bytes: u64,
    /// Bytes read from segments.
    pub read_bytes: u64,
    /// Reads of segments.
    pub reads: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Segments in use, those with nothing that lives, and those ready for use.
    pub segments: usize,
    /// Segments with nothing that lives; the next checkpoint frees them.
    pub dead_segments: usize,
    /// Prepared segments.
    pub spare_segments: usize,
    /// Memory of buffers, index and caches.
    pub memory_bytes: usize,
    /// Messages whose body was moved by compaction and still lives.
    pub relocated: usize,
    /// Messages that compaction moved in this run.
    pub moved: u64,
    /// The segment with the oldest message that lives.
    pub oldest_generation: u32,
    /// Checkpoints written by this run.
    pub checkpoints: u64,
    /// Reads that failed in this run.
    pub failed_reads: u64,
    /// Reads that failed, have not worked since and are made again.
    pub waiting_reads: usize,
    /// Messages that are damaged and kept, as far as this run has met them.
    pub damaged: u64,
    /// Segments that are kept for damage that a start met in them.
    pub damaged_segments: usize,
    /// How often the start read the log because it had no checkpoint; 0 if it had one.
    pub rebuild_passes: u64,
    /// Entries that it gathered at once for that, at most.
    pub rebuild_entries: usize,
}

/// Who asked for an operation that is not the log's.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    PageWrite {
        lane: LaneSlot,
        first: u64,
        place: u32,
    },
    PageRead {
        lane: LaneSlot,
        first: u64,
        place: u32,
    },
    Compaction {
        generation: u32,
    },
    Rebuild {
        generation: u32,
    },
    Publish(u64, publish::Step),
    Reserve,
    /// The end of the index file is cut off.
    Cut,
    /// A page is read that is to be moved down.
    Move {
        place: u32,
    },
    /// A read that only tells whether any works.
    Trial,
    Ignored,
}

#[derive(Debug)]
enum Phase {
    Recovering(alloc::boxed::Box<Recovery>),
    Refused,
    Running,
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct Store {
    settings: Settings,
    phase: Phase,
    log: Log,
    state: State,
    cache: Cache,
    names: NameTable,
    waits: BTreeMap<OperationId, Purpose>,
    events: Vec<Event>,
    /// What a start would have to replay of this run: see [`append::weight`].
    appended: u64,
    settles: Vec<(LaneSlot, u64)>,
    /// Those gathered before, while settles are gathered that are to land in the batch that is held.
    others_settles: Vec<(LaneSlot, u64)>,
    settle_due: Instant,
    runs: Vec<(u64, u64)>,
    /// Closed index pages in memory, oldest first.
    closed_pages: VecDeque<(LaneSlot, u64)>,
    index: IndexFile,
    moving: index::Moving,
    index_unsynced: bool,
    index_bytes: u64,
    /// Failures to write index pages.
    index_retry: Retry,
    publication: publish::Publication,
    reserve: reserve::Reserve,
    compaction: compaction::Compaction,
    rewriting: rewrite::Rewriting,
    rebuilding: rebuild::Rebuilding,
    opaque: Vec<(Position, Vec<u8>)>,
    /// Where the opaque records begin that count.
    opaque_start: Chain,
    snapshot: Option<Chain>,
    /// Where the last complete snapshot begins, as far as it is known.
    last_snapshot: Option<Chain>,
    /// Batches that recovery found: their first opaque records, and what is before them.
    opaque_batches: Vec<(Position, Chain)>,
    /// The log holds opaque records: what they need is kept.
    has_opaque: bool,
    unreadable: read::Unreadable,
    failed_reads: failed_reads::FailedReads,
    /// About what a record has beside its body.
    record_extra: usize,
    /// The log is recovered, and lanes are being counted; whether the last run ended in order.
    opening: Option<bool>,
    uncounted: Vec<LaneSlot>,
    told_stopped: bool,
    rebuilt: crate::replay::Rebuilt,
    /// Segments are ready at all times.
    keeps_ready: bool,
    /// Bytes that all files may have.
    bytes_max: u64,
}

impl Store {
    /// Begins to recover a log; [`Event::Ready`] or [`Event::Refused`] ends it.
    ///
    /// # Panics
    /// When a segment is to be shorter than 4 KiB or longer than 256 MiB.
    pub fn open(settings: Settings, out: &mut Operations) -> Store {
        let bytes = u64::from(settings.segment_bytes);
        assert!((4096..=SEGMENT_BYTES_MAX).contains(&bytes), "segments of 4 KiB to 256 MiB");
        let recovery = Recovery::new(settings, out);
        Store {
            settings,
            phase: Phase::Recovering(alloc::boxed::Box::new(recovery)),
            log: Log::new(settings, crate::log::Resume::new(settings.log)),
            state: State::default(),
            cache: Cache::default(),
            names: NameTable::default(),
            waits: BTreeMap::new(),
            events: Vec::new(),
            appended: 0,
            settles: Vec::new(),
            others_settles: Vec::new(),
            settle_due: Instant::NEVER,
            runs: Vec::new(),
            closed_pages: VecDeque::new(),
            index: IndexFile::default(),
            moving: index::Moving::default(),
            index_unsynced: false,
            index_bytes: 0,
            index_retry: Retry::default(),
            publication: publish::Publication::default(),
            reserve: reserve::Reserve::default(),
            compaction: compaction::Compaction::default(),
            rewriting: rewrite::Rewriting::default(),
            rebuilding: rebuild::Rebuilding::default(),
            opaque: Vec::new(),
            opaque_start: Chain::default(),
            snapshot: None,
            last_snapshot: None,
            opaque_batches: Vec::new(),
            has_opaque: false,
            unreadable: read::Unreadable::new(),
            failed_reads: failed_reads::FailedReads::default(),
            record_extra: RECORD_EXTRA_BYTES,
            opening: None,
            uncounted: Vec::new(),
            told_stopped: false,
            rebuilt: crate::replay::Rebuilt::default(),
            keeps_ready: settings.is_kept_ready,
            bytes_max: settings.bytes_max,
        }
    }

    /// Takes what happened since, oldest first.
    pub fn take_events(&mut self, into: &mut Vec<Event>) {
        into.append(&mut self.events);
    }

    /// The keys of its segments, with which [`crate::inspect`] reads them.
    #[must_use]
    pub fn keys(&self) -> Keys {
        match &self.phase {
            Phase::Recovering(recovery) => recovery.keys(),
            _ => self.log.keys,
        }
    }

    /// Whether recovery is done.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.opening.is_none()
    }

    /// An operation ended.
    pub fn complete(&mut self, now: Now, completion: Completion, out: &mut Operations) {
        if let Phase::Recovering(recovery) = &mut self.phase {
            let asked = recovery.asks();
            recovery.complete(completion, out);
            if recovery.asks() && !asked {
                self.events.extend(recovery.damages().iter().copied().map(Event::Damaged));
                self.events.push(Event::Found);
                self.opaque = recovery.take_opaque();
                self.opaque_batches = recovery.take_opaque_batches();
                // Also where nothing of it can be read.
                self.has_opaque = true;
            }
            return self.recovered(now, out);
        }
        self.log.learn_fill(completion.fill);
        if let Some(purpose) = self.waits.remove(&completion.id) {
            self.completed(now, purpose, completion, out);
            return self.count_lanes(now, out);
        }
        let Completion { id, result, bytes, files, fill } = completion;
        if let Some(start) = self.cache.reading(id) {
            match result {
                Ok(_) => self.record_read(now, id, start),
                Err(DiskError::NotFound) => self.read_found_nothing(now, id),
                Err(error) => {
                    if !self.records_failed(now, id, start, error, out) {
                        return;
                    }
                }
            }
            let (bytes, budget) = (result.is_ok().then_some(bytes), self.settings.cache_bytes / 2);
            if let Some(finished) = self.cache.finish(id, bytes, budget) {
                self.read_done(finished, out);
            }
            return;
        }
        let completion = Completion { id, result, bytes: Vec::new(), files, fill };
        self.log.complete(now, &completion, out);
        if let Some((file, error)) = self.log.stopped()
            && !self.told_stopped
        {
            self.told_stopped = true;
            self.events.push(Event::Stopped(file, error));
        }
    }

    fn recovered(&mut self, now: Now, out: &mut Operations) {
        let Phase::Recovering(recovery) = &self.phase else { return };
        match recovery.result() {
            None => {}
            Some(Ok(())) => self.start(now, out),
            Some(Err(refusal)) => {
                self.phase = Phase::Refused;
                self.events.push(Event::Refused(refusal));
            }
        }
    }

    /// The owner has looked at what [`Event::Found`] told of and wants to go on with it: the files
    /// are written to from here on.
    pub fn go_on(&mut self, now: Now, out: &mut Operations) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if recovery.asks() {
            recovery.take_over(out);
            self.recovered(now, out);
        }
    }

    fn completed(
        &mut self,
        now: Now,
        purpose: Purpose,
        completion: Completion,
        out: &mut Operations,
    ) {
        match purpose {
            Purpose::PageWrite { lane, first, place } => {
                self.page_written(now, (lane, first, place), completion.result);
            }
            Purpose::PageRead { lane, first, place } => {
                self.page_read(now, (lane, first, place), completion, out);
            }
            Purpose::Compaction { generation } => {
                self.compaction_read(now, generation, completion, out);
            }
            Purpose::Rebuild { generation } => self.piece_read(now, generation, completion, out),
            Purpose::Publish(number, step) => {
                self.publish_step(now, (number, step), completion.result, out);
            }
            Purpose::Reserve => self.reserved(now, completion.result, out),
            Purpose::Cut => self.index_cut(completion.result),
            Purpose::Move { place } => self.page_to_move(place, completion, out),
            Purpose::Trial => match completion.result {
                Ok(_) => {
                    self.read_worked(now, completion.id);
                }
                Err(_) => self.failed_reads.trial_failed(),
            },
            Purpose::Ignored => {}
        }
    }

    /// The read of an index page ended.
    fn page_read(
        &mut self,
        now: Now,
        (lane, first, place): (LaneSlot, u64, u32),
        completion: Completion,
        out: &mut Operations,
    ) {
        let Completion { id, result, bytes, .. } = completion;
        let file = File::Index(self.settings.log);
        self.failed_reads.page_ended((lane, first));
        match result {
            Ok(_) => {
                self.read_worked(now, id);
            }
            // A file that is not there holds nothing.
            Err(DiskError::NotFound) => self.read_found_nothing(now, id),
            Err(error) if self.refuses_for(file, error) => return,
            Err(error) => {
                if !self.read_failed(now, (id, What::Page(lane, first)), (file, error)) {
                    return self.page_seen((lane, first), out);
                }
            }
        }
        let found = self.state.lane_mut(lane);
        let Some(found) = found else { return self.page_seen((lane, first), out) };
        // One that was written to another place meanwhile is not what was read.
        let is_whole = !found.has_page_at(first, place) || found.end_read(first, bytes);
        self.state.lanes.weigh(lane);
        if is_whole {
            self.events.push(Event::LaneReady(lane));
        } else {
            self.events.push(Event::Damaged(Damage {
                file,
                offset: u64::from(place) * crate::lane::PAGE_BYTES as u64,
                bytes: crate::lane::PAGE_BYTES as u64,
            }));
            self.rebuild_page(lane, first, out);
        }
        self.page_seen((lane, first), out);
    }

    /// Before anybody is served nobody waits: a log that cannot be read then is refused.
    fn refuses_for(&mut self, file: File, error: DiskError) -> bool {
        let refuses = self.opening.is_some() && !self.settings.read_retry_limit.is_zero();
        if refuses {
            self.phase = Phase::Refused;
            self.events.push(Event::Refused(Refusal::Disk(file, error)));
        }
        refuses
    }

    fn ask(&mut self, action: Action, purpose: Purpose, out: &mut Operations) {
        self.begin(action, purpose, out);
    }

    fn begin(&mut self, action: Action, purpose: Purpose, out: &mut Operations) -> OperationId {
        let id = out.push(action);
        self.waits.insert(id, purpose);
        id
    }

    fn start(&mut self, now: Now, out: &mut Operations) {
        let phase = core::mem::replace(&mut self.phase, Phase::Running);
        let Phase::Recovering(recovery) = phase else { return };
        let found = recovery.into_recovered();
        self.state = found.state;
        let settings = Settings { is_kept_ready: self.keeps_ready, ..self.settings };
        self.log = Log::new(settings, found.resume);
        if !self.settings.asks_first {
            self.has_opaque = !found.opaque.is_empty();
            self.opaque = found.opaque;
            self.events.extend(found.damages.iter().copied().map(Event::Damaged));
        }
        self.opaque_start = found.start;
        self.index = IndexFile::after(found.used_pages, found.index_bytes.unwrap_or(0));
        let mut obsolete = found.obsolete;
        self.reserve = reserve::Reserve::after(&mut obsolete, found.checkpoint);
        let valid = found.valid.map(|valid| File::Checkpoint(self.settings.log, valid.number));
        obsolete.retain(|file| Some(*file) != valid);
        // Segments of another length than is wanted now: they go with the next checkpoint.
        let has_strange = obsolete.iter().any(|file| matches!(file, File::Segment(..)));
        self.publication = publish::Publication::after(
            now,
            found.valid,
            (found.checkpoint_number, found.root_index),
            obsolete,
            // Of damaged definitions the files stay as they are until a snapshot replaces them.
            (found.damages.is_empty() || !self.has_opaque)
                && (found.log_bytes > 0 || !found.is_clean || has_strange),
        );
        if !self.has_opaque {
            let last = self.log.segments.last_key_value();
            let last = last.filter(|(_, segment)| segment.is_dead());
            self.publication.left_off_in(last.map(|(&generation, _)| generation));
        }
        if found.index_bytes.is_some() && !found.has_written_pages {
            self.publication.index_found();
        }
        if found.has_written_pages {
            self.index_unsynced = true;
            self.publication.index_written();
        }
        self.rebuilt = found.rebuilt;
        self.closed_pages.extend(self.state.lanes.pages_in_memory());
        self.opening = Some(found.is_clean);
        for slot in self.state.unaccounted.clone() {
            let lane = self.state.lane_mut(LaneSlot(slot));
            if lane.is_some_and(|lane| !lane.recount()) {
                self.uncounted.push(LaneSlot(slot));
            }
        }
        self.count_lanes(now, out);
    }

    /// Before anybody asks for them, messages of lanes are counted where that takes their pages.
    fn count_lanes(&mut self, now: Now, out: &mut Operations) {
        let Some(is_clean) = self.opening else { return };
        while let Some(&slot) = self.uncounted.last() {
            if let Some(first) = self.state.account_lane(slot, &mut self.log.segments) {
                self.read_page(slot, first, out);
                return;
            }
            let is_left = |lane: &mut crate::lane::LaneIndex| lane.has_unaccounted();
            if !self.state.lane_mut(slot).is_some_and(is_left) {
                self.uncounted.pop();
            }
        }
        self.opening = None;
        self.events.push(Event::Ready { is_clean });
        self.flush(now, out);
    }

    /// End of a cycle: hands settles to the log, and submits the write or sync that is due.
    pub fn flush(&mut self, now: Now, out: &mut Operations) {
        if !self.is_running() {
            return;
        }
        self.read_again(now, out);
        if !self.settles.is_empty() {
            if self.settle_due == Instant::NEVER {
                self.settle_due = now.instant + self.settings.write_interval;
            }
            let is_due = self.settle_due <= now.instant || self.log.is_due(now);
            if is_due || self.settles.len() >= SETTLES_MAX {
                self.write_settles();
                if !self.settles.is_empty() {
                    self.settle_due = now.instant + self.settings.write_interval;
                }
            }
        }
        self.state.lanes.cool(self.settings.lanes_kept, COOL_LOOKS);
        self.end_lookups();
        self.publish(now, out);
        self.share_disk();
        self.log.set_longest(self.state.tables.spans.longest());
        self.log.flush(now, out);
    }

    /// Work that nobody waits for, a slice of it: counting after a purge or recovery, index pages
    /// to disk, compaction. True if more is left that can go on at once.
    pub fn work(&mut self, now: Now, out: &mut Operations) -> bool {
        if !self.is_running() {
            return false;
        }
        let more = self.account(out) | self.encode_checkpoint(WORK_SLICES, out);
        let more = self.fold(out) | more;
        let more = self.state.tables.relocations.sweep(SWEEP_ROWS) | more;
        self.state.lanes.cool(self.settings.lanes_kept, WORK_COOL_LOOKS);
        self.write_pages(now, out);
        let more = self.move_pages(out) | more;
        // What was written behind the last checkpoint of an orderly end would say that it was none.
        (!self.publication.is_closing() && self.compact(now, out)) || more
    }

    fn account(&mut self, out: &mut Operations) -> bool {
        let mut waits = 0;
        for _ in 0..ACCOUNT_PAGES {
            let Some((lane, page)) = self.state.account(&mut self.log.segments) else {
                return false;
            };
            if let Some(first) = page {
                waits += 1;
                self.read_page(lane, first, out);
            }
        }
        waits < ACCOUNT_PAGES
    }

    /// Has a page read that is on disk, unless it is being read or will be again. The operation.
    fn read_page(
        &mut self,
        lane: LaneSlot,
        first: u64,
        out: &mut Operations,
    ) -> Option<OperationId> {
        if self.failed_reads.has_page((lane, first)) {
            return None;
        }
        let page = self.state.lane_mut(lane)?.page_mut(first)?;
        let place = page.slot().filter(|_| page.is_readable())?;
        let length = crate::lane::PAGE_BYTES;
        let offset = u64::from(place) * length as u64;
        let file = File::Index(self.settings.log);
        let purpose = Purpose::PageRead { lane, first, place };
        self.failed_reads.page_began((lane, first));
        Some(self.begin(Action::Read { file, offset, length }, purpose, out))
    }

    /// Nothing can be relied on any more, because of this file.
    fn stop(&mut self, file: File, error: DiskError) {
        self.log.stop_for(file, error);
        if !self.told_stopped {
            self.told_stopped = true;
            self.events.push(Event::Stopped(file, error));
        }
    }

    /// When [`Store::flush`] or [`Store::work`] has something to do without further input.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        // A log that has stopped does nothing any more, whatever was due.
        if !self.is_running() || self.log.stopped().is_some() {
            return Instant::NEVER;
        }
        let others = self.log.next_timeout().min(self.settle_due).min(self.compaction_due());
        let others = if self.cache.wakes() { Instant(0) } else { others };
        let others = others.min(self.failed_reads.next_timeout());
        // Without a failure they are written by the next work.
        let pages = self.pages_due().filter(|_| self.index_retry.is_in_trouble());
        let is_closing = self.publication.is_closing();
        let others = others.min(pages.filter(|_| !is_closing).unwrap_or(Instant::NEVER));
        let others =
            others.min(if self.may_reserve() { self.reserve.due() } else { Instant::NEVER });
        let due = match self.reserve.is_awaited() {
            true => Instant::NEVER,
            false => self.checkpoint_due(),
        };
        if due < others && self.may_publish() { due } else { others }
    }

    /// Where the log ends. What was appended before is durable when [`Store::durable`] is here.
    #[must_use]
    pub fn end(&self) -> Position {
        self.log.end()
    }

    /// What confirms may rely on, as [`Settings::sync`] says: everything appended before.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.log.durable()
    }

    /// Everything before is synced.
    #[must_use]
    pub fn synced(&self) -> Position {
        self.log.synced()
    }

    /// Something waits until everything appended so far is durable: the next flush writes, and in
    /// mode `Always` syncs.
    pub fn want_durable(&mut self) {
        self.log.want();
    }

    /// Everything appended so far must be synced, in every mode.
    pub fn want_synced(&mut self) {
        self.log.want_synced();
    }

    /// What is left of the disk.
    #[must_use]
    pub fn space(&self) -> Space {
        let spare = self.log.spare_segments();
        if !self.log.is_ready() {
            Space::Ample
        } else if spare <= self.log.reserve(1) {
            Space::Full
        } else if self.log.is_full() {
            Space::Low
        } else {
            Space::Ample
        }
    }

    /// Messages may come at any time from now on: segments are ready for them, also where
    /// [`Settings::is_kept_ready`] says otherwise.
    pub fn keep_ready(&mut self) {
        self.keeps_ready = true;
        self.log.keep_ready();
    }

    /// Bytes of the disk that its files take, or will soon: those of the next checkpoint count.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.log.disk_bytes()
    }

    /// What [`Store::disk_bytes`] may be; others take the rest of what they have in common.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Tells the log what is left for segments.
    fn share_disk(&mut self) {
        if self.settings.bytes_max == u64::MAX {
            return;
        }
        // Two that say everything, in the end: the valid one and the next.
        let (about, valid) = (self.base_bytes(), self.publication.valid_bytes());
        let next = self.reserve.file_bytes().max(self.publication.base_bytes());
        let other = self.index.bytes() + valid.max(about) + next.max(about);
        self.log.set_room(self.bytes_max, other);
    }

    /// Bytes appended and not yet written.
    #[must_use]
    pub fn unwritten_bytes(&self) -> usize {
        self.log.unwritten_bytes()
    }

    /// Memory of the index: lanes with their pages, what is settled of them, what a checkpoint under way keeps
    /// of those that changed before their turn, places of moved messages.
    #[must_use]
    pub fn index_memory_bytes(&self) -> usize {
        self.state.memory_bytes()
    }

    /// Whether lanes are idle and take more memory than they have to: [`Store::work`] sees to it.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.is_running() && self.state.lanes.is_warm(self.settings.lanes_kept)
    }

    /// Memory of messages that lie in several segments and are being read.
    #[must_use]
    pub fn large_bytes(&self) -> usize {
        self.cache.large_bytes()
    }

    /// The lane, made if it is new.
    pub fn lane(&mut self, lane: Lane) -> LaneSlot {
        self.state.slot(lane)
    }

    /// The lanes of one queue, ordered by level.
    #[must_use]
    pub fn lanes_of(&self, queue: QueueId) -> Vec<LaneSlot> {
        self.state.lanes_of(queue)
    }

    /// All lanes, ordered by queue and level.
    pub fn lanes(&self) -> impl Iterator<Item = (Lane, LaneSlot)> {
        self.state.lanes.all()
    }

    fn summary(&self, slot: LaneSlot) -> Summary {
        self.state.lanes.summary(slot).unwrap_or_default()
    }

    /// Messages of a lane that live, and the bytes of their bodies. After an unclean stop the
    /// bytes may count what was settled just before it, until [`Store::work`] is done.
    #[must_use]
    pub fn count(&self, slot: LaneSlot) -> (u64, u64) {
        let summary = self.summary(slot);
        (summary.live, summary.live_bytes)
    }

    /// All of that at once.
    #[must_use]
    pub fn outline(&self, slot: LaneSlot) -> Outline {
        let Summary { live, live_bytes, next, .. } = self.summary(slot);
        Outline { slot, count: live, bytes: live_bytes, next_seq: next }
    }

    /// The lowest sequence number that was never used in the lane.
    #[must_use]
    pub fn next_seq(&self, slot: LaneSlot) -> u64 {
        self.summary(slot).next
    }

    /// The message was delivered and came back, or was not acknowledged when the run ends in
    /// order: [`Store::is_redelivered`] says so from here on, in this run and in later ones.
    pub fn mark_delivered(&mut self, slot: LaneSlot, seq: u64) {
        if let Some(lane) = self.state.lane_mut(slot) {
            lane.mark(seq);
        }
    }

    /// Whether the message was delivered before: it was marked, by this run or an earlier one. What
    /// is found after a run that did not end in order is marked as a whole, because nobody knows.
    #[must_use]
    pub fn is_redelivered(&self, slot: LaneSlot, seq: u64) -> bool {
        self.state.lanes.is_marked(slot, seq)
    }

    /// Drops the queues for which `keep` says no: those that were deleted. It is told of each how many
    /// persistent messages it has.
    pub fn retain_queues(&mut self, mut keep: impl FnMut(QueueId, u64) -> bool) {
        let mut queues: Vec<QueueId> = self.state.lanes.all().map(|(lane, _)| lane.queue).collect();
        queues.dedup();
        for queue in queues {
            let lanes = self.state.lanes.all_of(queue).filter(|(lane, _)| !lane.is_transient());
            let live = lanes.map(|(_, slot)| self.summary(slot).live).sum();
            if !keep(queue, live) {
                crate::replay::drop_queue(queue, &mut self.state);
            }
        }
    }

    /// Opaque records found in recovery, in order; empty when taken before.
    pub fn take_opaque(&mut self) -> Vec<(Position, Vec<u8>)> {
        core::mem::take(&mut self.opaque)
    }

    /// Whether reads that failed wait to be made again.
    #[must_use]
    pub fn has_waiting_reads(&self) -> bool {
        self.failed_reads.len() > 0
    }

    /// Whether a write or a sync that failed waits to be made again.
    #[must_use]
    pub fn has_waiting_writes(&self) -> bool {
        self.log.has_waiting_writes()
    }

    /// Figures for metrics.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let segments = self.log.segments.values();
        let is_dead = |segment: &&crate::log::Segment| segment.live + segment.live_transient == 0;
        let index = self.state.memory_bytes();
        Figures {
            log_bytes: self.log.bytes_written,
            index_bytes: self.index_bytes + self.publication.bytes,
            read_bytes: self.cache.bytes_read,
            reads: self.cache.reads,
            syncs: self.log.syncs,
            segments: segments.len(),
            dead_segments: segments.filter(is_dead).count(),
            spare_segments: self.log.spare_segments(),
            memory_bytes: self.log.memory_bytes() + self.cache.memory_bytes() + index,
            relocated: self.state.tables.relocations.len(),
            moved: self.compaction.moved,
            oldest_generation: self.log.segments.keys().next().copied().unwrap_or(0),
            checkpoints: self.publication.published,
            failed_reads: self.failed_reads.count,
            waiting_reads: self.failed_reads.len(),
            damaged: self.state.lanes.damaged(),
            damaged_segments: self.damaged_segments().len(),
            rebuild_passes: self.rebuilt.passes,
            rebuild_entries: self.rebuilt.gathered,
        }
    }
}

/// How long a dead segment waits for a checkpoint at most.
const FREE_INTERVAL: Duration = Duration::from_secs(10);

/// Bytes shared with an operation.
type Shared = Arc<Vec<u8>>;
