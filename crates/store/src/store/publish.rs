//! Making checkpoints valid, one step after the other, and what may be used again then.
//!
//! The state is encoded in one go at a position of the log. The file is written and synced, the
//! index pages it names too, and the log up to its position; then the directory; then one of the
//! two root records, the one that is not valid now.

use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_base::{Instant, Now, Position};

use super::{Event, FREE_INTERVAL, Purpose, Shared, Store};
use crate::checkpoint::{self, ROOT_STRIDE_BYTES, Root};
use crate::disk::{Action, DiskError, File, Operations};

/// An operation of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Write { start: usize },
    SyncIndex,
    Directory,
    Root,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Files,
    Directory,
    Root,
}

#[derive(Debug)]
struct Current {
    root: Root,
    /// The log must be synced up to here: behind it are only settles, which the checkpoint has.
    end: Position,
    bytes: Shared,
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
    not_before: Instant,
    last_at: Instant,
    log_bytes: u64,
    length: u64,
    pub published: u64,
    /// Bytes written so far.
    pub bytes: u64,
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

    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// When a checkpoint is due without anything happening.
    pub(super) fn due(&self, died: usize) -> Instant {
        if self.current.is_some() {
            Instant::NEVER
        } else if self.requested {
            self.not_before
        } else if died > 0 {
            (self.last_at + FREE_INTERVAL).max(self.not_before)
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
        if now.instant < publication.not_before || self.log.stopped().is_some() {
            return false;
        }
        let grown = self.log.bytes_written - publication.log_bytes;
        let scale = publication.length * self.settings.checkpoint_factor;
        let bound = self.settings.checkpoint_log_bytes.max(scale);
        let died = self.state.died as u64 * u64::from(self.settings.segment_bytes);
        publication.requested
            || grown > bound
            || (died > 0 && (self.log.is_full() || died > bound))
            || publication.due(self.state.died) <= now.instant
    }

    pub(super) fn publish(&mut self, now: Now, out: &mut Operations) {
        if let Some(current) = &mut self.publication.current {
            if current.stage == Stage::Files
                && current.waiting == 0
                && self.log.synced() >= current.end
            {
                current.stage = Stage::Directory;
                let action = Action::SyncDirectory(self.settings.log);
                self.ask(action, Purpose::Publish(Step::Directory), out);
            }
            return;
        }
        if self.is_checkpoint_due(now) {
            self.begin_checkpoint(out);
        }
    }

    fn begin_checkpoint(&mut self, out: &mut Operations) {
        self.write_settles();
        let end = self.log.cut();
        // Opaque records have no other state than themselves: they are read again every time.
        let chain = if self.has_opaque { self.opaque_start } else { end };
        let generation = self.log.generation();
        let number = self.publication.number;
        let lanes = self.state.all().filter_map(|(lane, slot)| {
            self.state.lane(slot).filter(|index| !lane.is_transient() && index.next() > 0)
        });
        let bytes = checkpoint::encode(
            (self.settings.log, number, chain, generation),
            &self.log.segments,
            &self.state.tables,
            lanes,
        );
        let crc = bytes.last_chunk::<4>().map_or(0, |sum| u32::from_le_bytes(*sum));
        let length = bytes.len() as u64;
        let end_generation = crate::place::generation(chain.end);
        let dead = self.log.segments.iter().filter(|(generation, segment)| {
            segment.live == 0 && segment.pins == 0 && **generation < end_generation
        });
        let dead = dead.map(|(&generation, _)| generation).collect();
        self.log.want_synced();
        self.publication.number += 1;
        self.publication.requested = false;
        self.publication.log_bytes = self.log.bytes_written;
        self.publication.length = length;
        self.publication.bytes += length;
        self.state.died = 0;
        let is_clean = self.publication.closing;
        let root = Root { log: self.settings.log, number, length, crc, is_clean };
        self.publication.current = Some(Current {
            root,
            end: end.end.min(self.log.message_end()),
            bytes: Arc::new(bytes),
            stage: Stage::Files,
            waiting: 0,
            dead,
            released: core::mem::take(&mut self.state.freed_pages),
        });
        self.write_checkpoint(0, out);
        if core::mem::take(&mut self.index_unsynced) {
            self.wait_for(Step::SyncIndex, Action::Sync(File::Index(self.settings.log)), out);
        }
    }

    fn wait_for(&mut self, step: Step, action: Action, out: &mut Operations) {
        if let Some(current) = &mut self.publication.current {
            current.waiting += 1;
            self.ask(action, Purpose::Publish(step), out);
        }
    }

    fn write_checkpoint(&mut self, start: usize, out: &mut Operations) {
        let Some(current) = &self.publication.current else { return };
        let action = Action::Write {
            file: File::Checkpoint(self.settings.log, current.root.number),
            offset: start as u64,
            bytes: current.bytes.clone(),
            start,
            sync: true,
        };
        self.wait_for(Step::Write { start }, action, out);
    }

    pub(super) fn publish_step(
        &mut self,
        now: Now,
        step: Step,
        result: Result<usize, DiskError>,
        out: &mut Operations,
    ) {
        let Some(current) = &mut self.publication.current else {
            // A step of a checkpoint that was given up.
            if let (Step::SyncIndex, Err(error)) = (step, result) {
                self.stop_index(error);
            }
            return;
        };
        current.waiting = current.waiting.saturating_sub(1);
        let count = match result {
            Ok(count) => count,
            Err(error) => {
                if matches!(step, Step::SyncIndex) {
                    self.stop_index(error);
                }
                return self.give_up(now, error, out);
            }
        };
        match step {
            Step::Write { start } => {
                let start = start + count;
                if start < current.bytes.len() {
                    if count == 0 {
                        return self.give_up(now, DiskError::Failed, out);
                    }
                    return self.write_checkpoint(start, out);
                }
            }
            Step::SyncIndex => {}
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
                return self.ask(action, Purpose::Publish(Step::Root), out);
            }
            Step::Root if count < checkpoint::ROOT_RECORD_BYTES => {
                return self.give_up(now, DiskError::Failed, out);
            }
            Step::Root => return self.published(now, out),
        }
        self.publish(now, out);
    }

    /// What was synced last in the index is not known to be there: its pages cannot be relied on.
    fn stop_index(&mut self, error: DiskError) {
        let file = File::Index(self.settings.log);
        self.log.stop_for(file, error);
        if !self.told_stopped {
            self.told_stopped = true;
            self.events.push(Event::Stopped(file, error));
        }
    }

    fn give_up(&mut self, now: Now, error: DiskError, out: &mut Operations) {
        let Some(current) = self.publication.current.take() else { return };
        self.state.freed_pages.extend(current.released);
        self.state.died += current.dead.len();
        self.publication.requested = true;
        self.publication.not_before = now.instant + self.settings.retry_interval;
        if current.stage != Stage::Root {
            self.publication
                .obsolete
                .push(File::Checkpoint(self.settings.log, current.root.number));
        }
        if error == DiskError::Full && current.stage == Stage::Files {
            self.log.give_back(out);
        }
    }

    fn published(&mut self, now: Now, out: &mut Operations) {
        let Some(current) = self.publication.current.take() else { return };
        let publication = &mut self.publication;
        publication.root_index = 1 - publication.root_index;
        publication.last_at = now.instant;
        publication.published += 1;
        let this = File::Checkpoint(self.settings.log, current.root.number);
        let obsolete = core::mem::replace(&mut publication.obsolete, alloc::vec![this]);
        for file in obsolete {
            self.ask(Action::Delete(file), Purpose::Ignored, out);
        }
        self.free_pages.extend(current.released);
        for generation in current.dead {
            let is_free = self.log.segments.get(&generation).is_some_and(|segment| {
                segment.live + segment.live_transient == 0 && segment.pins == 0
            });
            if is_free {
                self.log.free(generation, out);
            }
        }
        self.events.push(Event::Checkpointed(current.root.number));
    }
}
