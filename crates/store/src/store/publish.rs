//! Making checkpoints valid, one step after the other, and what may be used again then.
//!
//! The state is that at one position of the log. Lanes are encoded in slices, a few each cycle, and
//! written as they come. When the file is complete it is synced, the index pages it names too, and
//! the log up to its position; then the directory; then one of the two root records, the one that
//! is not valid now.

use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_base::{Instant, Now, Position};

use super::{Event, FREE_INTERVAL, Purpose, Shared, Store};
use crate::checkpoint::{self, ROOT_STRIDE_BYTES, Root};
use crate::checksum::crc;
use crate::disk::{Action, DiskError, File, Operations};
use crate::retry::Retry;

/// Places looked at in one slice.
const SLICE_LOOKS: usize = 256;
/// Slices gathered for one write.
const CHUNK_SLICES: usize = 16;
/// Chunks encoded and not yet written, from which on encoding waits for the disk.
const CHUNKS_MAX: usize = 4;

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
    /// Lanes are being encoded.
    Encoding,
    /// Everything is with the disk.
    Writing,
    Files,
    Directory,
    Root,
}

#[derive(Debug)]
struct Current {
    root: Root,
    /// The log must be synced up to here: behind it are only settles, which the checkpoint has.
    end: Position,
    /// Encoded, and not handed to the disk yet.
    open: Vec<u8>,
    /// Chunks with the disk, by their offset.
    chunks: Vec<(u64, Shared)>,
    stage: Stage,
    waiting: u32,
    /// Segments with nothing that lives at this position.
    dead: Vec<u32>,
    /// Index pages that no lane used at this position.
    released: Vec<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Publication {
    number: u64,
    root_index: usize,
    obsolete: Vec<File>,
    current: Option<Current>,
    requested: bool,
    closing: bool,
    /// Failures of checkpoints.
    retry: Retry,
    last_at: Instant,
    log_bytes: u64,
    appended: u64,
    length: u64,
    /// The length of the one that is valid, if this run made it.
    valid_length: u64,
    pub published: u64,
    /// Bytes written so far.
    pub bytes: u64,
}

impl Current {
    /// Whether the disk should take what is encoded first.
    fn is_behind(&self) -> bool {
        self.chunks.len() >= CHUNKS_MAX
    }
}

impl Publication {
    pub(super) fn after(
        now: Now,
        number: u64,
        root_index: usize,
        obsolete: Vec<File>,
        requested: bool,
    ) -> Publication {
        Publication {
            number,
            root_index,
            obsolete,
            requested,
            last_at: now.instant,
            ..Publication::default()
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

    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// When a checkpoint is due without anything happening; `frees` says whether it would free as
    /// much as it costs.
    fn due(&self, frees: bool) -> Instant {
        if let Some(current) = &self.current {
            // The rest of the lanes, unless the disk is behind.
            let is_free = current.stage == Stage::Encoding && !current.is_behind();
            if is_free { Instant(0) } else { Instant::NEVER }
        } else if self.requested {
            self.retry.at()
        } else if frees {
            (self.last_at + FREE_INTERVAL).max(self.retry.at())
        } else {
            Instant::NEVER
        }
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
        let scale = publication.length * self.settings.checkpoint_factor;
        let scale = scale.min(self.settings.checkpoint_log_bytes_max);
        let bound = self.settings.checkpoint_log_bytes.max(scale);
        publication.requested
            || grown > bound
            || self.appended - publication.appended > self.settings.checkpoint_messages
            || (self.state.died > 0 && (self.log.lacks_room() || self.died_bytes() > bound))
            || self.checkpoint_due() <= now.instant
    }

    /// Bytes of the segments that died since the last checkpoint.
    fn died_bytes(&self) -> u64 {
        self.state.died as u64 * u64::from(self.settings.segment_bytes)
    }

    /// When a checkpoint is due, or goes on, without anything happening. What has died waits for one
    /// until it is as long as the checkpoint would be, unless the disk is short.
    pub(super) fn checkpoint_due(&self) -> Instant {
        let frees = self.state.died > 0
            && (self.log.lacks_room() || self.died_bytes() >= self.publication.length);
        self.publication.due(frees)
    }

    /// Whether a checkpoint goes on, or may begin: what one that was given up left with the disk may
    /// still say that the index cannot be relied on.
    pub(super) fn may_publish(&self) -> bool {
        let is_left =
            |purpose: &Purpose| matches!(purpose, Purpose::Publish(..) | Purpose::Reserve);
        self.publication.current.is_some()
            || (self.log.stopped().is_none() && !self.waits.values().any(is_left))
    }

    pub(super) fn publish(&mut self, now: Now, out: &mut Operations) {
        self.state.died += core::mem::take(&mut self.log.sealed_dead);
        if self.publication.current.is_none() {
            if !self.publication.closing || self.reserve.is_awaited() {
                self.reserve(now, out);
            }
            if !self.is_checkpoint_due(now) || !self.may_publish() {
                return;
            }
            self.begin_checkpoint();
        }
        self.encode_lanes(1, out);
        self.publish_files(out);
    }

    /// Goes on when all files are written.
    fn publish_files(&mut self, out: &mut Operations) {
        let Some(current) = &mut self.publication.current else { return };
        if current.waiting > 0 {
            return;
        }
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
            Stage::Files if self.log.synced() >= current.end => {
                current.stage = Stage::Directory;
                let purpose = Purpose::Publish(current.root.number, Step::Directory);
                self.ask(Action::SyncDirectory(self.settings.log), purpose, out);
            }
            _ => {}
        }
    }

    fn begin_checkpoint(&mut self) {
        self.write_settles();
        let end = self.log.cut();
        // Opaque records have no other state than themselves: they are read again every time.
        let chain = if self.has_opaque { self.opaque_start } else { end };
        let generation = self.log.generation();
        let number = self.publication.number;
        let lanes = self.state.lanes.begin_snapshot();
        let open = checkpoint::encode(
            (self.settings.log, number, chain, generation),
            &self.log.segments,
            &self.state.tables,
            lanes,
        );
        let end_generation = crate::place::generation(chain.end);
        let dead = self.log.segments.iter().filter(|(generation, segment)| {
            segment.live == 0 && segment.pins == 0 && **generation < end_generation
        });
        let dead = dead.map(|(&generation, _)| generation).collect();
        self.log.want_synced();
        self.publication.number += 1;
        self.reserve.begin();
        self.publication.requested = false;
        self.publication.log_bytes = self.log.bytes_written;
        self.publication.appended = self.appended;
        self.state.died = 0;
        let is_clean = self.publication.closing;
        let log = self.settings.log;
        self.publication.current = Some(Current {
            root: Root { log, number, length: 0, crc: 0, is_clean },
            end: end.end.min(self.log.message_end()),
            open,
            chunks: Vec::new(),
            stage: Stage::Encoding,
            waiting: 0,
            dead,
            released: core::mem::take(&mut self.state.freed_pages),
        });
    }

    /// Encodes further lanes for the checkpoint under way. True if more are left that can be
    /// encoded at once.
    pub(super) fn encode_lanes(&mut self, slices: usize, out: &mut Operations) -> bool {
        for _ in 0..slices {
            let Some(current) = &mut self.publication.current else { return false };
            if current.stage != Stage::Encoding || current.is_behind() {
                return false;
            }
            let slice = self.settings.checkpoint_slice_bytes;
            let is_done = self.state.lanes.encode_some(slice, SLICE_LOOKS);
            if is_done || self.state.lanes.encoded_bytes() >= CHUNK_SLICES * slice {
                current.open.append(&mut self.state.lanes.take_encoded());
                current.root.crc = crc(current.root.crc, &current.open);
                if is_done {
                    let sum = current.root.crc.to_le_bytes();
                    current.open.extend_from_slice(&sum);
                    current.stage = Stage::Writing;
                    self.state.lanes.end_snapshot();
                }
                self.write_chunk(out);
            }
        }
        self.publication.current.as_ref().is_some_and(|current| current.stage == Stage::Encoding)
    }

    fn write_chunk(&mut self, out: &mut Operations) {
        let Some(current) = &mut self.publication.current else { return };
        let offset = current.root.length;
        let bytes = core::mem::take(&mut current.open);
        current.root.length += bytes.len() as u64;
        self.publication.bytes += bytes.len() as u64;
        self.publication.length = current.root.length;
        current.chunks.push((offset, Arc::new(bytes)));
        self.write_checkpoint(offset, 0, out);
    }

    fn wait_for(&mut self, step: Step, action: Action, out: &mut Operations) {
        if let Some(current) = &mut self.publication.current {
            current.waiting += 1;
            let number = current.root.number;
            self.ask(action, Purpose::Publish(number, step), out);
        }
    }

    fn write_checkpoint(&mut self, offset: u64, start: usize, out: &mut Operations) {
        let Some(current) = &self.publication.current else { return };
        let Some((_, bytes)) = current.chunks.iter().find(|(at, _)| *at == offset) else { return };
        let action = Action::Write {
            file: File::Checkpoint(self.settings.log, current.root.number),
            offset: offset + start as u64,
            bytes: bytes.clone(),
            start,
            sync: false,
        };
        self.wait_for(Step::Write { offset, start }, action, out);
    }

    pub(super) fn publish_step(
        &mut self,
        now: Now,
        (number, step): (u64, Step),
        result: Result<usize, DiskError>,
        out: &mut Operations,
    ) {
        let current = self.publication.current.as_mut();
        let Some(current) = current.filter(|current| current.root.number == number) else {
            // A step of a checkpoint that was given up.
            if let (Step::SyncIndex, Err(error)) = (step, result) {
                self.stop(File::Index(self.settings.log), error);
            }
            return;
        };
        current.waiting = current.waiting.saturating_sub(1);
        let count = match result {
            Ok(count) => count,
            Err(error) => {
                if matches!(step, Step::SyncIndex) {
                    // What was synced last in the index is not known to be there: its pages cannot be
                    // relied on.
                    self.stop(File::Index(self.settings.log), error);
                }
                return self.give_up(now, error, out);
            }
        };
        match step {
            Step::Write { offset, start } => {
                let found = current.chunks.iter().position(|(at, _)| *at == offset);
                let Some(found) = found else { return };
                let start = start + count;
                if start < current.chunks[found].1.len() {
                    if count == 0 {
                        return self.give_up(now, DiskError::Failed, out);
                    }
                    return self.write_checkpoint(offset, start, out);
                }
                current.chunks.swap_remove(found);
            }
            Step::Sync | Step::SyncIndex => {}
            Step::Directory => {
                current.stage = Stage::Root;
                let bytes = Arc::new(current.root.encode());
                let action = Action::Write {
                    file: File::Root(self.settings.log),
                    offset: (self.publication.root_index * ROOT_STRIDE_BYTES) as u64,
                    bytes,
                    start: 0,
                    sync: true,
                };
                return self.ask(action, Purpose::Publish(number, Step::Root), out);
            }
            Step::Root if count < checkpoint::ROOT_RECORD_BYTES => {
                return self.give_up(now, DiskError::Failed, out);
            }
            Step::Root => return self.published(now, out),
        }
        self.publish_files(out);
    }

    fn give_up(&mut self, now: Now, error: DiskError, out: &mut Operations) {
        let Some(current) = self.publication.current.take() else { return };
        self.state.lanes.end_snapshot();
        self.state.freed_pages.extend(current.released);
        self.state.died += current.dead.len();
        self.publication.requested = true;
        let checkpoint = File::Checkpoint(self.settings.log, current.root.number);
        let file = match current.stage {
            Stage::Root => File::Root(self.settings.log),
            _ => checkpoint,
        };
        if !self.publication.retry.failed(now, self.settings.retry_interval, error) {
            self.stop(file, error);
        }
        if error == DiskError::Full && current.stage != Stage::Root {
            // The next one is written over it: what it has of the disk is not given away.
            self.publication.number = current.root.number;
            self.reserve.lacked(current.root.length.max(self.publication.valid_length));
            self.log.make_none(true);
            self.log.give_back(out);
        } else {
            // The root may name it, or this place of the disk is the trouble.
            self.publication.obsolete.push(checkpoint);
        }
    }

    fn published(&mut self, now: Now, out: &mut Operations) {
        let Some(current) = self.publication.current.take() else { return };
        let publication = &mut self.publication;
        publication.root_index = 1 - publication.root_index;
        publication.last_at = now.instant;
        publication.retry.succeeded();
        publication.published += 1;
        publication.valid_length = current.root.length;
        let this = File::Checkpoint(self.settings.log, current.root.number);
        let mut obsolete = core::mem::replace(&mut publication.obsolete, alloc::vec![this]);
        self.log.make_none(false);
        self.reserve.want(current.root.length);
        // Also when the run ends: the next one takes it.
        self.reserve.take_one(&mut obsolete);
        for file in obsolete {
            self.ask(Action::Delete(file), Purpose::Ignored, out);
        }
        self.free_pages.extend(current.released);
        for generation in current.dead {
            let is_free =
                self.log.segments.get(&generation).is_some_and(|segment| segment.is_empty());
            if is_free {
                self.log.free(generation, out);
                self.state.tables.forget(generation);
            }
        }
        self.events.push(Event::Checkpointed(current.root.number));
    }
}
