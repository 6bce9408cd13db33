//! The room of the next checkpoint, taken before it is needed: on a full disk nothing dead comes free
//! without a checkpoint, and none is written without room.
//!
//! The file of the checkpoint before the valid one becomes the next one's, with its blocks. So from
//! the second checkpoint on there are always two files, and what a checkpoint needs beyond the room
//! of an old one is only what the state has grown by.

use alloc::vec::Vec;
use lepus_base::{Instant, Now};

use super::{Purpose, Store};
use crate::disk::{Action, DiskError, File, Operations};
use crate::retry::Retry;

/// Room is taken in multiples of this.
const UNIT_BYTES: u64 = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    /// A file that no valid checkpoint needs: its blocks become the next one's.
    from: Option<File>,
    /// How long the next checkpoint's file is to be, once that is known.
    wanted: u64,
    /// It is asked for so much only, when the disk has refused that.
    least: u64,
    /// The next checkpoint's file is so long.
    bytes: u64,
    /// An operation is under way for so many bytes, in which this file gets the name of the next one's.
    asked: Option<(u64, Option<File>)>,
    /// A checkpoint had no room: the next one waits for it.
    is_awaited: bool,
    retry: Retry,
}

impl Reserve {
    /// What the start found: files that are not needed when the next checkpoint is valid, and the one
    /// that is valid now.
    pub(super) fn after(obsolete: &mut Vec<File>, valid: Option<File>) -> Reserve {
        let mut reserve = Reserve::default();
        if let Some(file) = valid {
            obsolete.retain(|found| *found != file);
            reserve.take_one(obsolete);
            obsolete.push(file);
        }
        reserve
    }

    /// A checkpoint is valid: no other one waits.
    pub(super) fn valid(&mut self) {
        self.is_awaited = false;
    }

    /// One that says everything would take about `length` bytes now, and perhaps somewhat more when it comes.
    /// The file may grow by no more than `spare`.
    pub(super) fn want(&mut self, length: u64, spare: u64) {
        let has_too_little = length > self.bytes || self.bytes < self.wanted;
        if self.is_awaited || self.asked.is_some() || !has_too_little {
            return;
        }
        let most = self.file_bytes().saturating_add(spare) / UNIT_BYTES * UNIT_BYTES;
        let wanted = (length + length / 4).next_multiple_of(UNIT_BYTES).min(most);
        if wanted > self.bytes {
            (self.wanted, self.least, self.bytes) = (wanted, wanted, 0);
        }
    }

    /// A checkpoint of about `about` bytes needed `least` and more, and the disk did not have that.
    pub(super) fn lacked(&mut self, least: u64, about: u64) {
        [self.least, self.wanted] = [least, about].map(|bytes| bytes.next_multiple_of(UNIT_BYTES));
        (self.bytes, self.is_awaited) = (0, true);
    }

    /// The disk does not have it: what is known to be too little is tried again, before nothing is.
    fn refused(&mut self) {
        self.wanted = self.least;
    }

    /// What it takes of the disk, or is to take.
    pub(super) fn file_bytes(&self) -> u64 {
        self.bytes.max(self.wanted)
    }

    /// Takes the file of a checkpoint out of those that can go.
    pub(super) fn take_one(&mut self, obsolete: &mut Vec<File>) {
        let is_checkpoint = |file: &File| matches!(file, File::Checkpoint(..));
        if self.from.is_none()
            && let Some(place) = obsolete.iter().rposition(is_checkpoint)
        {
            self.from = Some(obsolete.swap_remove(place));
        }
    }

    /// A checkpoint begins, and uses it.
    pub(super) fn begin(&mut self) {
        (self.wanted, self.least, self.bytes, self.is_awaited) = (0, 0, 0, false);
    }

    /// Whether no checkpoint is to begin before there is room for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited && self.bytes < self.wanted
    }

    /// Whether the disk has refused the room.
    fn is_missing(&self) -> bool {
        self.is_awaited() || (self.bytes < self.wanted && self.retry.is_in_trouble())
    }

    /// When the room is asked for.
    pub(super) fn due(&self) -> Instant {
        let is_wanted = self.bytes < self.wanted && self.asked.is_none();
        if is_wanted { self.retry.at() } else { Instant::NEVER }
    }
}

impl Store {
    /// Asks for the room of the next checkpoint if it is not there.
    pub(super) fn reserve(&mut self, now: Now, out: &mut Operations) {
        if self.reserve.due() > now.instant || self.log.stopped().is_some() {
            return;
        }
        let length = self.reserve.wanted;
        let file = File::Checkpoint(self.settings.log, self.publication.next_number());
        let from = self.reserve.from.take();
        self.reserve.asked = Some((length, from));
        self.ask(Action::Reserve { from, file, length }, Purpose::Reserve, out);
    }

    pub(super) fn reserved(
        &mut self,
        now: Now,
        result: Result<usize, DiskError>,
        out: &mut Operations,
    ) {
        let Some((length, from)) = self.reserve.asked.take() else { return };
        match result {
            Ok(_) => {
                self.reserve.bytes = length;
                self.reserve.retry.succeeded();
            }
            Err(error) => {
                let file = File::Checkpoint(self.settings.log, self.publication.next_number());
                if error.is_lack() {
                    // It may have its old name still, and would be left; else there is no such file.
                    self.reserve.from = from;
                } else {
                    self.publication.leave_next(self.settings.log, from);
                }
                let pause = self.settings.retry_interval;
                if !self.reserve.retry.failed(now, pause, error) {
                    self.stop(file, error);
                } else if error == DiskError::Full {
                    if self.reserve.is_awaited {
                        self.checkpoint_waits(length);
                    }
                    if self.reserve.is_awaited || self.log.has_more_than_reserve() {
                        self.log.give_back(out);
                    }
                    self.reserve.refused();
                }
            }
        }
        self.log.make_none(self.reserve.is_missing());
    }
}
