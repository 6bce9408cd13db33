//! The index file: its pages are written, its free end is cut off, and pages at its end are moved down
//! while most of it is free.

use lepus_base::{Instant, Now};

use super::{Purpose, Store};
use crate::disk::{Action, Completion, DiskError, File, Operations};
use crate::lane::{PAGE_BYTES, page_name};
use crate::lanes::LaneSlot;

/// Places looked at in one call of [`Store::work`] to find a page to move.
const LOOKS: usize = 256;
/// Pages moved between two checkpoints at most: what they leave comes free with the next one.
const MOVES_MAX: usize = 4096;

/// Pages on their way down.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// Behind the next place to look at; 0 for none.
    below: u32,
    /// The place that is being read.
    reading: Option<u32>,
    /// Pages moved since the last checkpoint.
    moved: usize,
}

impl Store {
    /// From when on closed pages beyond the budget may be written; `None` where there are none, or
    /// one is under way that tells whether it can be done again.
    pub(super) fn pages_due(&self) -> Option<Instant> {
        let is_write = |purpose: &Purpose| matches!(purpose, Purpose::PageWrite { .. });
        let may_write = self.log.stopped().is_none()
            && self.closed_pages.len() > self.settings.index_pages_max
            && !(self.index_retry.is_in_trouble() && self.waits.values().any(is_write));
        may_write.then(|| self.index_retry.at())
    }

    /// Writes the oldest closed pages beyond the budget to the index file; one of them after a
    /// failure.
    pub(super) fn write_pages(&mut self, now: Now, out: &mut Operations) {
        while self.pages_due().is_some_and(|at| at <= now.instant) {
            let Some(page) = self.closed_pages.pop_front() else { return };
            if !self.write_page(page, out) {
                self.closed_pages.push_front(page);
                return;
            }
        }
    }

    /// Writes a closed page that is only in memory. False if there is no place for it now.
    fn write_page(&mut self, (lane, first): (LaneSlot, u64), out: &mut Operations) -> bool {
        let Some(found) = self.state.lane_mut(lane) else { return true };
        let Some(place) = self.index.take() else { return false };
        let Some(bytes) = found.start_write(first, place) else {
            self.index.written(place);
            self.index.release([place]);
            return true;
        };
        self.index_bytes += bytes.len() as u64;
        let action = Action::Write {
            file: File::Index(self.settings.log),
            offset: u64::from(place) * bytes.len() as u64,
            bytes,
            start: 0,
            sync: false,
        };
        self.ask(action, Purpose::PageWrite { lane, first, place }, out);
        true
    }

    /// The write of an index page ended. After a failure the page stays in memory.
    pub(super) fn page_written(
        &mut self,
        now: Now,
        (lane, first, place): (LaneSlot, u64, u32),
        result: Result<usize, DiskError>,
    ) {
        let error = match result {
            Ok(PAGE_BYTES) => None,
            // The rest has no room.
            Ok(_) => Some(DiskError::Full),
            Err(error) => Some(error),
        };
        self.index.written(place);
        self.index_unsynced |= error.is_none();
        match error {
            None => {
                self.index_retry.succeeded();
                self.publication.index_written();
            }
            Some(error) => {
                if !self.index_retry.failed(now, self.settings.retry_interval, error) {
                    self.stop(File::Index(self.settings.log), error);
                }
            }
        }
        let Some(found) = self.state.lane_mut(lane) else { return };
        if let Some(place) = found.end_write(first, error.is_none()) {
            if error.is_some_and(DiskError::is_lack) {
                self.index.release([place]);
            }
            // Otherwise this place of the file may be the trouble.
            self.closed_pages.push_back((lane, first));
        }
        self.state.lanes.weigh(lane);
    }

    /// A checkpoint is valid that does not name what came free before: the end of the file may go.
    pub(super) fn shrink_index(&mut self, out: &mut Operations) {
        if let Some(length) = self.index.begin_cut() {
            let file = File::Index(self.settings.log);
            self.ask(Action::Truncate { file, length }, Purpose::Cut, out);
        }
        self.moving.moved = 0;
        if self.index.is_sparse() && self.moving.reading.is_none() {
            self.moving.below = self.index.end();
        }
    }

    /// The file was cut, or could not be: then the next checkpoint tries again.
    pub(super) fn index_cut(&mut self, result: Result<usize, DiskError>) {
        self.index.end_cut(result.is_ok());
    }

    /// Begins to move the last page of the file, if most of the file is free. True if more can be looked
    /// at at once.
    pub(super) fn move_pages(&mut self, out: &mut Operations) -> bool {
        let is_quiet = self.log.stopped().is_none()
            && !self.failed_reads.are_there()
            && !self.index_retry.is_in_trouble()
            && !self.publication.is_closing();
        if self.moving.below == 0 || self.moving.reading.is_some() || !is_quiet {
            return false;
        }
        for _ in 0..LOOKS {
            let Some(place) = self.moving.below.checked_sub(1) else { break };
            if !self.index.has_lower(place) || self.moving.moved >= MOVES_MAX {
                self.end_moving();
                return false;
            }
            self.moving.below = place;
            if self.index.is_used(place) {
                self.moving.reading = Some(place);
                let offset = u64::from(place) * PAGE_BYTES as u64;
                let file = File::Index(self.settings.log);
                let action = Action::Read { file, offset, length: PAGE_BYTES };
                self.ask(action, Purpose::Move { place }, out);
                return false;
            }
        }
        self.moving.below > 0
    }

    /// What pages left comes free with the next checkpoint.
    fn end_moving(&mut self) {
        self.moving.below = 0;
        if self.moving.moved > 0 {
            self.publication.request();
        }
    }

    /// A page at the end of the file was read: it says itself whose it is. Then it is written to a lower
    /// place.
    pub(super) fn page_to_move(&mut self, place: u32, done: Completion, out: &mut Operations) {
        if self.moving.reading.take() != Some(place) {
            return;
        }
        if done.result.is_err() {
            return self.end_moving();
        }
        let Some((lane, first)) = page_name(place, &done.bytes) else { return };
        // What came free meanwhile, or waits for the next checkpoint for that, is nobody's.
        let Some(slot) = self.state.find(lane) else { return };
        let is_there = |index: &crate::lane::LaneIndex| index.has_page_at(first, place);
        let mut is_its_own = false;
        self.state.lanes.look(slot, |index| is_its_own = is_there(index));
        if !is_its_own || !self.index.has_lower(place) {
            return;
        }
        let Some(index) = self.state.lane_mut(slot) else { return };
        index.lift(first, done.bytes);
        self.state.freed_pages.push(place);
        self.moving.moved += 1;
        if !self.write_page((slot, first), out) {
            self.closed_pages.push_back((slot, first));
        }
        self.state.lanes.weigh(slot);
    }

    /// Places came free: what was read of one is not to be moved any more, since another page may be
    /// written there.
    pub(super) fn places_free(&mut self, places: alloc::vec::Vec<u32>) {
        if self.moving.reading.is_some_and(|place| places.contains(&place)) {
            self.moving.reading = None;
        }
        self.index.release(places);
    }
}
