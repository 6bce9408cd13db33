//! Making checkpoints valid, one step after the other, and what may be used again then.
//!
//! The state is that at one position of the log. A checkpoint is a section of a file: the first of a
//! new one, with everything, or one behind those that are valid, with what changed since. It is
//! encoded in slices, a few each cycle, and written as they come. When it is complete it is synced,
//! the index pages it names too, and the log up to its position; then the directory, if the file is
//! new; then one of the two root records, the one that is not valid now.

use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_base::{Instant, Now, Position};

use super::{Event, FREE_INTERVAL, Purpose, Shared, Store};
use crate::checkpoint::{self, Head, Valid};
use crate::checksum::crc;
use crate::disk::{Action, DiskError, File, LogId, Operations};
use crate::lane::PAGE_BYTES;
use crate::log::Segment;
use crate::retry::Retry;
use crate::root::{ROOT_RECORD_BYTES, ROOT_STRIDE_BYTES, Root};

/// Places and rows looked at in one slice.
const SLICE_LOOKS: usize = 256;
/// Slices gathered for one write.
const CHUNK_SLICES: usize = 16;
/// Chunks encoded and not yet written, from which on encoding waits for the disk.
const CHUNKS_MAX: usize = 4;
/// Bytes after which what is written so far is synced, so that the last sync has little to do and
/// nobody's sync waits for all of it.
const SYNC_BYTES: usize = 4 << 20;
/// Room is reserved for the first checkpoint of a log from so many bytes on.
const RESERVED_BYTES_MIN: u64 = 64 << 10;
/// What a section takes without any rows, about.
const HEAD_BYTES: u64 = 128;
/// What a row of the tables takes in a section, about.
const ROW_BYTES: u64 = 16;

/// An operation of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The write of the chunk at `offset` of the file, from its byte `start` on.
    Write {
        offset: u64,
        start: usize,
    },
    Sync,
    SyncIndex,
    Directory,
    Root,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Rows are being encoded.
    Encoding(Part),
    /// Everything is with the disk.
    Writing,
    Files,
    Directory,
    Root,
    /// The root was not written, and is tried again: nobody knows what of it reached the disk.
    RootFailed,
}

/// A table of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Removed,
    Relocations,
    Lanes,
}

/// Bytes on their way to the file.
#[derive(Debug)]
struct Chunk {
    offset: u64,
    bytes: Shared,
    sync: bool,
}

#[derive(Debug)]
struct Current {
    /// Tells its operations from those of others.
    attempt: u64,
    root: Root,
    /// It is the first section of a file.
    is_base: bool,
    /// The log must be synced up to here.
    end: Position,
    /// While the disk is full, this is enough: behind it are only settles, which the checkpoint has.
    message_end: Position,
    /// Encoded, and not handed to the disk yet.
    open: Vec<u8>,
    /// Those with the disk.
    chunks: Vec<Chunk>,
    /// Bytes handed to the disk since a sync was asked for.
    unsynced: usize,
    stage: Stage,
    waiting: u32,
    /// Segments with nothing that lives at this position.
    dead: Vec<u32>,
    /// Index pages that no lane used at this position.
    released: Vec<u32>,
}

/// Whether the index file is certain to be there after a loss of power. It is made by the first page that
/// is written, and no root may name a checkpoint with pages of it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum IndexName {
    /// There is no file yet.
    #[default]
    Missing,
    /// It was made since the directory was synced.
    Unsynced,
    Synced,
}

impl IndexName {
    /// The directory is being synced.
    fn sync(&mut self) {
        if *self == IndexName::Unsynced {
            *self = IndexName::Synced;
        }
    }

    /// That failed.
    fn doubt(&mut self) {
        if *self == IndexName::Synced {
            *self = IndexName::Unsynced;
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Publication {
    /// For the next file.
    number: u64,
    attempts: u64,
    root_index: usize,
    valid: Option<Valid>,
    /// The next checkpoint says everything: what changed had no room, or could not be written behind the valid
    /// one.
    is_base_forced: bool,
    obsolete: Vec<File>,
    current: Option<Current>,
    requested: bool,
    closing: bool,
    /// Failures of checkpoints.
    retry: Retry,
    last_at: Instant,
    log_bytes: u64,
    appended: u64,
    /// The generation in which the last one left off, if nothing in it lives: a later one can free it,
    /// once something is behind it.
    left_off: Option<u32>,
    index_name: IndexName,
    /// Somebody was told that one waits for room.
    told_waiting: bool,
    pub published: u64,
    /// Bytes written so far.
    pub bytes: u64,
}

impl Current {
    /// Whether the disk should take what is encoded first.
    fn is_behind(&self) -> bool {
        self.chunks.len() >= CHUNKS_MAX
    }

    fn is_encoding(&self) -> bool {
        matches!(self.stage, Stage::Encoding(_))
    }
}

impl Publication {
    pub(super) fn after(
        now: Now,
        valid: Option<Valid>,
        (number, root_index): (u64, usize),
        obsolete: Vec<File>,
        requested: bool,
    ) -> Publication {
        Publication {
            number,
            root_index,
            valid,
            obsolete,
            requested,
            last_at: now.instant,
            ..Publication::default()
        }
    }

    /// The segment in which the log of the run before ended, if nothing in it lives: no checkpoint has said
    /// that it is dead.
    pub(super) fn left_off_in(&mut self, generation: Option<u32>) {
        self.left_off = generation;
    }

    /// The start found an index file, and its name is on the disk.
    pub(super) fn index_found(&mut self) {
        self.index_name = IndexName::Synced;
    }

    /// A page was written to the index file.
    pub(super) fn index_written(&mut self) {
        if self.index_name == IndexName::Missing {
            self.index_name = IndexName::Unsynced;
        }
    }

    /// Nothing may change any more.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// The number of the next checkpoint.
    pub(super) fn next_number(&self) -> u64 {
        self.number
    }

    /// The next checkpoint gets another file than the one that was to have its room, which may be the trouble, and
    /// so may the one `from` that was to become it.
    pub(super) fn leave_next(&mut self, log: LogId, from: Option<File>) {
        self.obsolete.extend(from);
        self.obsolete.push(File::Checkpoint(log, self.number));
        self.number += 1;
    }

    /// Bytes of the checkpoint that is valid.
    pub(super) fn valid_bytes(&self) -> u64 {
        self.valid.map_or(0, |valid| valid.length)
    }

    /// Bytes of the one under way, if that has a file of its own: about those of the one before.
    pub(super) fn base_bytes(&self) -> u64 {
        let current = self.current.as_ref().filter(|current| current.is_base);
        current.map_or(0, |current| current.root.length.max(self.valid_bytes()))
    }

    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// When a checkpoint is due without anything happening; `free_due` says from when on it is worth what it
    /// would free.
    fn due(&self, free_due: Instant) -> Instant {
        if let Some(current) = &self.current {
            match current.stage {
                // The rest, unless the disk is behind.
                Stage::Encoding(_) if !current.is_behind() => Instant(0),
                Stage::RootFailed => self.retry.at(),
                _ => Instant::NEVER,
            }
        } else if self.requested {
            self.retry.at()
        } else {
            free_due.max(self.retry.at())
        }
    }

    /// Whether so much is behind the first section of the file once `more` is, and not less than `least`, that
    /// a new file costs no more.
    fn is_long(&self, more: u64, least: u64) -> bool {
        self.valid.is_none_or(|valid| {
            let least = valid.base_bytes.max(least);
            self.is_base_forced || valid.length - valid.base_bytes + more >= least
        })
    }
}

impl Store {
    /// Asks for a checkpoint now.
    pub fn request_checkpoint(&mut self) {
        self.publication.requested = true;
    }

    /// The last checkpoint of an orderly stop: [`Event::Checkpointed`] says when it is valid and
    /// the files can be left. Nothing may be appended, settled or purged from here on.
    pub fn close(&mut self) {
        self.publication.requested = true;
        self.publication.closing = true;
    }

    /// Whether the final checkpoint is valid and no operation is under way.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.publication.closing
            && !self.publication.requested
            && self.publication.current.is_none()
    }

    fn is_checkpoint_due(&self, now: Now) -> bool {
        let publication = &self.publication;
        let is_early = !publication.retry.is_due(now) || self.reserve.is_awaited();
        if is_early || self.log.stopped().is_some() {
            return false;
        }
        let grown = self.log.bytes_written - publication.log_bytes;
        let scale = self.checkpoint_bytes() * self.settings.checkpoint_factor;
        let scale = scale.min(self.settings.checkpoint_log_bytes_max);
        let bound = self.settings.checkpoint_log_bytes.max(scale);
        publication.requested
            || grown > bound
            || self.appended - publication.appended > self.settings.checkpoint_messages
            || (self.state.died > 0 && (self.log.lacks_room() || self.died_bytes() > bound))
            || self.checkpoint_due() <= now.instant
    }

    /// Whether a checkpoint that says everything would be a segment shorter than the file of the valid one, while
    /// the files of the log may be no longer together: then messages may have no room though nothing lives.
    fn is_worth_writing_anew(&self) -> bool {
        let bytes = self.base_bytes() + u64::from(self.settings.segment_bytes);
        self.settings.bytes_max != u64::MAX && self.publication.valid_bytes() >= bytes
    }

    /// Bytes of the segments that died since the last checkpoint.
    fn died_bytes(&self) -> u64 {
        self.state.died as u64 * u64::from(self.settings.segment_bytes)
    }

    /// When a checkpoint is due, or goes on, without anything happening.
    pub(super) fn checkpoint_due(&self) -> Instant {
        let pages = self.state.freed_pages.len();
        let is_cut = self.index.is_worth_cutting(pages);
        let freed = self.died_bytes() + if is_cut { (pages * PAGE_BYTES) as u64 } else { 0 };
        let frees = self.state.died > 0 || is_cut;
        self.publication.due(if frees { self.free_due(freed) } else { Instant::NEVER })
    }

    /// From when on a checkpoint is worth `freed` bytes that would come free. What has died waits until it is as
    /// much as that would write, unless the disk is short. When no messages come any more it may not become
    /// as much: then it waits as many times longer.
    fn free_due(&self, freed: u64) -> Instant {
        let (last_at, cost) = (self.publication.last_at, self.checkpoint_bytes());
        if self.log.lacks_room() || freed >= cost {
            return last_at + FREE_INTERVAL;
        }
        let times = u32::try_from(cost.div_ceil(freed.max(1))).unwrap_or(u32::MAX);
        (last_at + FREE_INTERVAL.saturating_mul(times)).max(self.log.quiet_from())
    }

    /// Whether the next checkpoint says everything, in a new file.
    fn is_base_next(&self) -> bool {
        let least = self.settings.checkpoint_delta_bytes_min;
        self.publication.is_long(self.delta_bytes(), least) || self.state.lanes.needs_base()
    }

    /// What the next checkpoint will have written, about.
    fn checkpoint_bytes(&self) -> u64 {
        match self.publication.valid {
            None => 0,
            Some(_) if self.is_base_next() => self.base_bytes(),
            Some(_) => self.delta_bytes(),
        }
    }

    /// What has changed since the last checkpoint takes, about.
    fn delta_bytes(&self) -> u64 {
        self.row_bytes() + self.state.lanes.changing_bytes()
    }

    /// What a checkpoint takes that says everything, about.
    pub(super) fn base_bytes(&self) -> u64 {
        self.row_bytes() + self.state.lanes.all_bytes()
    }

    /// What every checkpoint has.
    fn row_bytes(&self) -> u64 {
        let rows = self.log.segments.len() + self.state.tables.relocations.len();
        HEAD_BYTES + rows as u64 * ROW_BYTES
    }

    /// Whether a checkpoint goes on, or may begin: what one that was given up left with the disk may
    /// still say that the index cannot be relied on.
    pub(super) fn may_publish(&self) -> bool {
        self.publication.current.is_some()
            || (self.log.stopped().is_none() && !self.has_left_operations())
    }

    fn has_left_operations(&self) -> bool {
        let is_left =
            |purpose: &Purpose| matches!(purpose, Purpose::Publish(..) | Purpose::Reserve);
        self.waits.values().any(is_left)
    }

    /// Whether room may be asked for now: not while a checkpoint takes what there is, nor at the end for
    /// another one.
    pub(super) fn may_reserve(&self) -> bool {
        self.publication.current.is_none()
            && (!self.publication.closing || self.reserve.is_awaited())
    }

    pub(super) fn publish(&mut self, now: Now, out: &mut Operations) {
        self.state.died += core::mem::take(&mut self.log.sealed_dead);
        let end_generation = crate::place::generation(self.log.end());
        if self.publication.left_off.take_if(|left_off| *left_off < end_generation).is_some() {
            self.state.died += 1;
        }
        if self.may_reserve() {
            let bytes = self.base_bytes();
            if self.publication.valid.is_some() || bytes >= RESERVED_BYTES_MIN {
                let spare = self.bytes_max.saturating_sub(self.log.disk_bytes());
                self.reserve.want(bytes, spare);
            }
            self.reserve(now, out);
        }
        if self.publication.current.is_none() {
            if self.log.lacks_room() && self.is_worth_writing_anew() {
                (self.publication.is_base_forced, self.publication.requested) = (true, true);
            }
            if !self.is_checkpoint_due(now) || !self.may_publish() {
                return;
            }
            self.begin_checkpoint();
        }
        self.encode_checkpoint(1, out);
        self.publish_files(now, out);
    }

    /// Goes on when all files are written.
    fn publish_files(&mut self, now: Now, out: &mut Operations) {
        let Some(current) = &mut self.publication.current else { return };
        if current.waiting > 0 {
            return;
        }
        let needed = if self.log.lacks_room() { current.message_end } else { current.end };
        let is_retried = self.publication.retry.is_due(now) && self.log.stopped().is_none();
        match current.stage {
            Stage::Writing => {
                current.stage = Stage::Files;
                let file = File::Checkpoint(self.settings.log, current.root.number);
                self.wait_for(Step::Sync, Action::Sync(file), out);
                if core::mem::take(&mut self.index_unsynced) {
                    let index = File::Index(self.settings.log);
                    self.wait_for(Step::SyncIndex, Action::Sync(index), out);
                }
            }
            Stage::Files
                if self.log.synced() >= needed
                    && (current.is_base || self.publication.index_name == IndexName::Unsynced) =>
            {
                current.stage = Stage::Directory;
                self.publication.index_name.sync();
                self.wait_for(Step::Directory, Action::SyncDirectory(self.settings.log), out);
            }
            Stage::Files if self.log.synced() >= needed => self.write_root(out),
            Stage::RootFailed if is_retried => self.write_root(out),
            _ => {}
        }
    }

    fn write_root(&mut self, out: &mut Operations) {
        let Some(current) = &mut self.publication.current else { return };
        current.stage = Stage::Root;
        let action = Action::Write {
            file: File::Root(self.settings.log),
            offset: (self.publication.root_index * ROOT_STRIDE_BYTES) as u64,
            bytes: Arc::new(current.root.encode()),
            start: 0,
            sync: true,
        };
        self.wait_for(Step::Root, action, out);
    }

    fn begin_checkpoint(&mut self) {
        self.write_settles();
        if self.publication.closing {
            // Nothing comes behind the last checkpoint, and it says what they say.
            self.settles.clear();
        }
        let end = self.log.cut();
        // Opaque records have no other state than themselves: they are read again every time.
        let chain = if self.has_opaque { self.opaque_start } else { end };
        let is_base = self.is_base_next();
        let valid = self.publication.valid.filter(|_| !is_base);
        let number = valid.map_or(self.publication.number, |valid| valid.number);
        let chunk_bytes = CHUNK_SLICES * self.settings.checkpoint_slice_bytes;
        let is_delivered = self.state.lanes.begin_snapshot(is_base, chunk_bytes);
        self.state.tables.relocations.freeze();
        let log = self.settings.log;
        let generation = self.log.generation();
        let previous = valid.map(|valid| valid.crc);
        let head = Head { log, number, chain, generation, previous, is_delivered };
        let open = checkpoint::begin_section(&head, &self.log.segments, &self.state.tables.spans);
        let end_generation = crate::place::generation(chain.end);
        let dead = self.log.segments.iter().filter(|(generation, segment)| {
            segment.live == 0 && segment.pins == 0 && **generation < end_generation
        });
        let dead = dead.map(|(&generation, _)| generation).collect();
        let last = self.log.segments.get(&end_generation);
        let is_left = !self.has_opaque && last.is_some_and(Segment::is_dead);
        self.publication.left_off = is_left.then_some(end_generation);
        self.log.want_synced();
        if is_base {
            self.reserve.begin();
        }
        if self.log.waits_for_segment() && self.log.message_end() > self.log.written() {
            // Nobody asks for the next one's room before this one is valid, and it waits for the log. For settles
            // it does not wait: what is left of the disk is for itself.
            self.log.make_none(false);
        }
        let publication = &mut self.publication;
        publication.number += u64::from(is_base);
        publication.attempts += 1;
        publication.requested = false;
        publication.log_bytes = self.log.bytes_written;
        publication.appended = self.appended;
        self.state.died = 0;
        let is_clean = publication.closing;
        let length = valid.map_or(0, |valid| valid.length);
        let crc = valid.map_or(0, |valid| checkpoint::crc_behind(valid.crc));
        publication.current = Some(Current {
            attempt: publication.attempts,
            root: Root { log, number, length, crc, is_clean },
            is_base,
            end: end.end,
            message_end: end.end.min(self.log.message_end()),
            open,
            chunks: Vec::new(),
            unsynced: 0,
            stage: Stage::Encoding(Part::Removed),
            waiting: 0,
            dead,
            released: core::mem::take(&mut self.state.freed_pages),
        });
    }

    /// Encodes further rows for the checkpoint under way. True if more are left that can be encoded at
    /// once.
    pub(super) fn encode_checkpoint(&mut self, slices: usize, out: &mut Operations) -> bool {
        let chunk_bytes = CHUNK_SLICES * self.settings.checkpoint_slice_bytes;
        let mut left = slices;
        while left > 0 {
            let Some(current) = &mut self.publication.current else { return false };
            let Stage::Encoding(part) = current.stage else { return false };
            let before = current.open.len();
            if current.is_behind() {
                return false;
            }
            let stage = match part {
                Part::Removed => self.encode_removed(),
                Part::Relocations => self.encode_relocations(),
                Part::Lanes => self.encode_lanes(chunk_bytes),
            };
            let Some(current) = &mut self.publication.current else { return false };
            current.stage = stage;
            // A table that is empty is no slice.
            let is_short = stage != Stage::Encoding(part) && current.open.len() <= before + 1;
            left -= usize::from(!is_short);
            let is_done = !current.is_encoding();
            if is_done || current.open.len() >= chunk_bytes {
                self.write_chunk(is_done, out);
            }
        }
        self.publication.current.as_ref().is_some_and(Current::is_encoding)
    }

    fn encode_removed(&mut self) -> Stage {
        let Some(current) = &mut self.publication.current else { return Stage::Writing };
        let (mut rows, mut bytes) = (0, Vec::new());
        let is_done = self.state.lanes.show_removed(SLICE_LOOKS, |lane| {
            rows += 1;
            checkpoint::put_removed(&mut bytes, lane);
        });
        checkpoint::put_block(&mut current.open, rows, &bytes);
        if !is_done {
            return current.stage;
        }
        checkpoint::end_table(&mut current.open);
        Stage::Encoding(Part::Relocations)
    }

    fn encode_relocations(&mut self) -> Stage {
        let Some(current) = &mut self.publication.current else { return Stage::Writing };
        let (mut rows, mut bytes) = (0, Vec::new());
        let is_done = self.state.tables.relocations.show(SLICE_LOOKS, |origin, row| {
            if !row.is_transient {
                rows += 1;
                checkpoint::put_relocation(&mut bytes, origin, row);
            }
        });
        checkpoint::put_block(&mut current.open, rows, &bytes);
        if !is_done {
            return current.stage;
        }
        checkpoint::end_table(&mut current.open);
        Stage::Encoding(Part::Lanes)
    }

    fn encode_lanes(&mut self, chunk_bytes: usize) -> Stage {
        let Some(current) = &mut self.publication.current else { return Stage::Writing };
        let slice = self.settings.checkpoint_slice_bytes;
        let lanes = &mut self.state.lanes;
        let is_done = !lanes.has_block() && lanes.encode_some(slice, SLICE_LOOKS);
        if is_done || lanes.has_block() || lanes.growing_bytes() >= chunk_bytes {
            let (rows, bytes) = lanes.take_block();
            checkpoint::put_block(&mut current.open, rows, &bytes);
        }
        if !is_done || lanes.has_block() || lanes.growing_bytes() > 0 {
            return current.stage;
        }
        checkpoint::end_table(&mut current.open);
        Stage::Writing
    }

    fn write_chunk(&mut self, is_last: bool, out: &mut Operations) {
        let Some(current) = &mut self.publication.current else { return };
        let mut bytes = core::mem::take(&mut current.open);
        current.root.crc = crc(current.root.crc, &bytes);
        if is_last {
            bytes.extend_from_slice(&current.root.crc.to_le_bytes());
        }
        let offset = current.root.length;
        current.root.length += bytes.len() as u64;
        self.publication.bytes += bytes.len() as u64;
        current.unsynced += bytes.len();
        let sync = current.unsynced >= SYNC_BYTES;
        if sync {
            current.unsynced = 0;
        }
        current.chunks.push(Chunk { offset, bytes: Arc::new(bytes), sync });
        self.write_checkpoint(offset, 0, out);
    }

    fn wait_for(&mut self, step: Step, action: Action, out: &mut Operations) {
        if let Some(current) = &mut self.publication.current {
            current.waiting += 1;
            let attempt = current.attempt;
            self.ask(action, Purpose::Publish(attempt, step), out);
        }
    }

    fn write_checkpoint(&mut self, offset: u64, start: usize, out: &mut Operations) {
        let Some(current) = &self.publication.current else { return };
        let Some(chunk) = current.chunks.iter().find(|chunk| chunk.offset == offset) else {
            return;
        };
        let action = Action::Write {
            file: File::Checkpoint(self.settings.log, current.root.number),
            offset: offset + start as u64,
            bytes: chunk.bytes.clone(),
            start,
            sync: chunk.sync,
        };
        self.wait_for(Step::Write { offset, start }, action, out);
    }

    pub(super) fn publish_step(
        &mut self,
        now: Now,
        (attempt, step): (u64, Step),
        result: Result<usize, DiskError>,
        out: &mut Operations,
    ) {
        let current = self.publication.current.as_mut();
        let Some(current) = current.filter(|current| current.attempt == attempt) else {
            // A step of a checkpoint that was given up.
            if let (Step::SyncIndex, Err(error)) = (step, result) {
                self.index_not_synced(error);
            }
            return;
        };
        current.waiting = current.waiting.saturating_sub(1);
        let count = match result {
            Ok(count) => count,
            Err(error) => {
                if matches!(step, Step::SyncIndex) {
                    self.index_not_synced(error);
                }
                if matches!(step, Step::Directory) {
                    self.publication.index_name.doubt();
                }
                return match step {
                    Step::Root => self.root_failed(now, error),
                    _ => self.give_up(now, error, out),
                };
            }
        };
        match step {
            Step::Write { offset, start } => {
                let found = current.chunks.iter().position(|chunk| chunk.offset == offset);
                let Some(found) = found else { return };
                let start = start + count;
                if start < current.chunks[found].bytes.len() {
                    if count == 0 {
                        return self.give_up(now, DiskError::Failed, out);
                    }
                    return self.write_checkpoint(offset, start, out);
                }
                current.chunks.swap_remove(found);
            }
            Step::Sync | Step::SyncIndex => {}
            Step::Directory => return self.write_root(out),
            Step::Root if count < ROOT_RECORD_BYTES => {
                return self.root_failed(now, DiskError::Failed);
            }
            Step::Root => return self.published(now, out),
        }
        self.publish_files(now, out);
    }

    /// What was written to the index is not known to be there: its pages cannot be relied on, unless the file
    /// was not even open. Then the next checkpoint has it synced.
    fn index_not_synced(&mut self, error: DiskError) {
        self.index_unsynced = true;
        if error != DiskError::Busy {
            self.stop(File::Index(self.settings.log), error);
        }
    }

    /// The root may name the checkpoint already, or not: nothing else can be done with it than to try
    /// again.
    fn root_failed(&mut self, now: Now, error: DiskError) {
        let Some(current) = &mut self.publication.current else { return };
        current.stage = Stage::RootFailed;
        if !self.publication.retry.failed(now, self.settings.retry_interval, error) {
            self.stop(File::Root(self.settings.log), error);
        }
    }

    fn give_up(&mut self, now: Now, error: DiskError, out: &mut Operations) {
        let Some(current) = self.publication.current.take() else { return };
        self.state.lanes.snapshot_failed();
        self.state.tables.relocations.thaw();
        self.state.freed_pages.extend(current.released);
        self.state.died += current.dead.len();
        self.publication.requested = true;
        let file = File::Checkpoint(self.settings.log, current.root.number);
        if !self.publication.retry.failed(now, self.settings.retry_interval, error) {
            self.stop(file, error);
        }
        let is_written_over = error.is_lack() && current.is_base;
        if is_written_over {
            // By the next one: what it has of the disk is not given away, and there are no more files.
            self.publication.number = current.root.number;
        }
        if error == DiskError::Full && current.is_base {
            let about = self.base_bytes().max(current.root.length);
            self.reserve.lacked(current.root.length, about);
            self.log.make_none(true);
            self.log.give_back(out);
            self.checkpoint_waits(about);
        } else if current.is_base && !is_written_over {
            // This place of the disk may be the trouble.
            self.publication.obsolete.push(file);
        } else if !current.is_base && error != DiskError::Busy {
            // In the next file everything has its room, and the place where this one goes on may be the trouble.
            self.publication.is_base_forced = true;
        }
    }

    /// The disk refused the room without which there is no checkpoint: somebody is told once.
    pub(super) fn checkpoint_waits(&mut self, bytes: u64) {
        if !core::mem::replace(&mut self.publication.told_waiting, true) {
            self.events.push(Event::CheckpointWaits(bytes));
        }
    }

    fn published(&mut self, now: Now, out: &mut Operations) {
        let Some(current) = self.publication.current.take() else { return };
        let publication = &mut self.publication;
        publication.root_index = 1 - publication.root_index;
        publication.last_at = now.instant;
        publication.retry.succeeded();
        publication.published += 1;
        let Root { number, length, crc, .. } = current.root;
        let before = publication.valid;
        let base_bytes =
            before.filter(|_| !current.is_base).map_or(length, |valid| valid.base_bytes);
        publication.valid = Some(Valid { number, length, base_bytes, crc });
        let mut obsolete = core::mem::take(&mut publication.obsolete);
        if current.is_base {
            publication.is_base_forced = false;
            obsolete.extend(before.map(|valid| File::Checkpoint(self.settings.log, valid.number)));
        }
        self.log.make_none(false);
        self.log.end_interval();
        self.reserve.valid();
        // Also when the run ends: the next one takes it.
        self.reserve.take_one(&mut obsolete);
        for file in obsolete {
            self.ask(Action::Delete(file), Purpose::Ignored, out);
        }
        self.state.lanes.snapshot_valid();
        self.places_free(current.released);
        self.shrink_index(out);
        for generation in current.dead {
            let Some(segment) = self.log.segments.get(&generation) else { continue };
            if crate::place::position(generation, segment.used_bytes) > self.log.written() {
                // On a full disk nobody waited until it was written, and that still needs its file.
                self.state.died += 1;
            } else if segment.is_empty() {
                self.log.free(generation, out);
                self.state.tables.relocations.forget(generation);
            }
        }
        self.events.push(Event::Checkpointed(current.root.number));
        if core::mem::take(&mut self.publication.told_waiting) {
            self.events.push(Event::CheckpointGoesOn);
        }
    }
}
