//! Several passes over the log, where no checkpoint says where to begin and memory does not have all of
//! it. Index pages that are complete go to the index file between them, behind what is there: the
//! checkpoint that is damaged may be brought back by somebody.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use lepus_base::Position;

use super::{Damage, Recovery, Wait};
use crate::disk::{Action, DiskError, File, Operations};
use crate::lane::PAGE_BYTES;
use crate::lanes::LaneSlot;
use crate::log::Chain;
use crate::segment::SEGMENT_HEADER_BYTES;

/// Pages being written at once.
const WRITES_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Passes {
    /// What was known when reading began.
    begin: (Chain, Position),
    /// What the first pass found.
    first: Option<First>,
    /// Pages that are only in memory.
    pages: VecDeque<(LaneSlot, u64)>,
    /// The next place of the index file, if any was taken.
    place: Option<u32>,
    /// The disk does not take pages: they stay in memory.
    is_refused: bool,
}

/// What further passes would find again.
#[derive(Debug)]
struct First {
    damages: Vec<Damage>,
    opaque_batches: Vec<(Position, Chain)>,
    log_bytes: u64,
}

impl Passes {
    /// Reading begins.
    pub(super) fn begin(&mut self, chain: Chain, evidence: Position) {
        self.begin = (chain, evidence);
    }

    /// How long the index file is, if pages were written to it.
    pub(super) fn index_bytes(&self) -> Option<u64> {
        self.place.map(|place| u64::from(place) * PAGE_BYTES as u64)
    }
}

impl Recovery {
    pub(super) fn start_rebuild(&mut self) {
        self.replay.start_rebuild(self.settings.rebuild_entries_max);
    }

    /// The log was read to its end.
    pub(super) fn end_pass(&mut self, out: &mut Operations) {
        if self.replay.is_rebuild() {
            // Whatever they are: nothing says that they are not needed.
            self.keep_unexplained(1..u32::MAX);
        }
        let mut lanes = Vec::new();
        let goes_on = self.replay.end_pass(&mut self.state, &mut self.segments, &mut lanes);
        if self.passes.first.is_none() {
            self.passes.first = Some(First {
                damages: core::mem::take(&mut self.damages),
                opaque_batches: core::mem::take(&mut self.opaque_batches),
                log_bytes: self.log_bytes,
            });
        }
        if !goes_on {
            if let Some(first) = self.passes.first.take() {
                self.damages = first.damages;
                self.opaque_batches = first.opaque_batches;
                self.log_bytes = first.log_bytes;
            }
            return self.end_reading(out);
        }
        for slot in lanes.into_iter().filter(|_| !self.passes.is_refused) {
            let pages = &mut self.passes.pages;
            self.state.lanes.look(slot, |lane| {
                pages.extend(lane.pages_in_memory().map(|first| (slot, first)));
            });
        }
        self.write_pages(out);
    }

    /// Writes pages; the next pass begins when all are written.
    fn write_pages(&mut self, out: &mut Operations) {
        let index = self.files.iter().find(|(file, _)| matches!(file, File::Index(_)));
        let length = index.map_or(0, |(_, length)| length.div_ceil(PAGE_BYTES as u64));
        while self.waits.len() < WRITES_MAX
            && let Some((slot, first)) = self.passes.pages.pop_front()
        {
            let place = self.passes.place.unwrap_or(length as u32);
            let lane = self.state.lane_mut(slot);
            let Some(bytes) = lane.and_then(|lane| lane.start_write(first, place)) else {
                continue;
            };
            self.passes.place = Some(place + 1);
            let action = Action::Write {
                file: File::Index(self.settings.log),
                offset: u64::from(place) * PAGE_BYTES as u64,
                bytes,
                start: 0,
                sync: false,
            };
            self.ask(action, Wait::Page(slot, first, place), out);
        }
        if self.waits.is_empty() {
            self.next_pass(out);
        }
    }

    /// The write of a page ended. What the disk does not take stays in memory.
    pub(super) fn page_written(
        &mut self,
        (slot, first, place): (LaneSlot, u64, u32),
        result: Result<usize, DiskError>,
        out: &mut Operations,
    ) {
        let is_written = result == Ok(PAGE_BYTES);
        if let Some(lane) = self.state.lane_mut(slot) {
            lane.end_write(first, is_written);
        }
        self.state.lanes.weigh(slot);
        if is_written {
            self.used_pages.push(place);
        } else {
            self.passes.is_refused = true;
            self.passes.pages.clear();
        }
        self.write_pages(out);
    }

    fn next_pass(&mut self, out: &mut Operations) {
        (self.chain, self.evidence) = self.passes.begin;
        self.damages.clear();
        self.opaque_batches.clear();
        self.is_gathered = false;
        self.gathering.clear();
        let first = self.tails.keys().next().copied();
        self.at = (first.unwrap_or(1), SEGMENT_HEADER_BYTES);
        match first {
            Some(generation) => self.read_tail(generation, out),
            None => self.follow(out),
        }
    }
}
