//! The files of segments: how many are ready, how many there may be, and what becomes of empty ones.

use core::time::Duration;

use lepus_base::{Instant, Now, Position};

use super::{Creation, Log};
use crate::disk::{Action, DiskError, File, Fill, Operations};
use crate::settings::Settings;

/// For how long segments are kept ready after a message, where they are not always.
const READY_INTERVAL: Duration = Duration::from_secs(10);

/// Which segments are prepared, and what the log may take of the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Segments are ready at all times.
    is_kept_ready: bool,
    /// Somebody has asked for room since the last flush.
    was_asked: bool,
    /// Where the last message ended then.
    message_end: Position,
    /// Until then they are ready.
    ready_until: Instant,
    /// They are.
    is_ready: bool,
    /// Bytes of all segments' files, those included that are being made.
    bytes: u64,
    /// Bytes of the log's other files, with those that they will soon take.
    other_bytes: u64,
    /// What all of them may be.
    bytes_max: u64,
    /// Segments that there were when the disk had no room for another one, while it has none.
    fit: usize,
    /// Segments begun since the last checkpoint.
    begun: usize,
    /// And between that one and the one before.
    begun_before: usize,
    /// Empty segments that are kept only because they are used again soon.
    surplus: usize,
}

impl Room {
    pub(super) fn new(settings: &Settings, bytes: u64) -> Room {
        Room {
            is_kept_ready: settings.is_kept_ready,
            was_asked: false,
            message_end: Position(0),
            ready_until: Instant(0),
            is_ready: settings.is_kept_ready,
            bytes,
            other_bytes: 0,
            bytes_max: settings.bytes_max,
            fit: usize::MAX,
            begun: 0,
            begun_before: 0,
            surplus: 0,
        }
    }

    /// Somebody asks for room.
    pub(super) fn ask(&mut self) {
        (self.was_asked, self.is_ready) = (true, true);
    }

    /// A segment was begun, for a message or for something else.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
    }

    /// A checkpoint is valid.
    fn end_interval(&mut self) {
        self.begun_before = core::mem::take(&mut self.begun);
    }

    /// It does not go on like that.
    fn forget_begun(&mut self) {
        (self.begun, self.begun_before) = (0, 0);
    }

    /// Empty segments that are used again soon, if it goes on like that.
    fn soon(&self) -> usize {
        self.begun.max(self.begun_before)
    }

    /// Whether there were messages not long ago.
    fn is_active(&self, now: Now) -> bool {
        now.instant < self.ready_until
    }

    fn look(&mut self, now: Now, message_end: Position) {
        let is_more = core::mem::replace(&mut self.message_end, message_end) < message_end;
        if core::mem::take(&mut self.was_asked) || (is_more && message_end > Position(0)) {
            self.ready_until = now.instant + READY_INTERVAL;
        }
        self.is_ready = self.is_kept_ready || self.is_active(now);
    }
}

impl Log {
    /// Segments are prepared, and are ready for a while.
    pub(crate) fn ask(&mut self) {
        self.room.ask();
    }

    /// From now on segments are ready at all times.
    pub(crate) fn keep_ready(&mut self) {
        (self.room.is_kept_ready, self.room.is_ready) = (true, true);
    }

    /// What others leave of the disk, and what the log's other files take or will soon.
    pub(crate) fn set_room(&mut self, bytes_max: u64, other_bytes: u64) {
        (self.room.bytes_max, self.room.other_bytes) = (bytes_max, other_bytes);
    }

    /// Bytes of all files, with those that will soon be taken.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.room.bytes + self.room.other_bytes
    }

    /// A checkpoint is valid.
    pub(crate) fn end_interval(&mut self) {
        self.room.end_interval();
    }

    /// Segments that there may be, if nothing else were on the disk than the log's other files.
    pub(super) fn segments_max(&self) -> usize {
        let bytes = self.settings.bytes_max.saturating_sub(self.room.other_bytes);
        let fit = bytes / u64::from(self.settings.segment_bytes);
        usize::try_from(fit).unwrap_or(usize::MAX).min(self.settings.segments_max)
    }

    /// Whether most of what there may be is in use.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.segments.len() >= self.settings.segments_max / 4 * 3
            || self.disk_bytes() >= self.room.bytes_max / 4 * 3
            || self.is_disk_nearly_full
    }

    /// Whether the number of its segments allows another one.
    pub(crate) fn has_segments_left(&self) -> bool {
        self.count() < self.settings.segments_max
    }

    /// Segments that there are, those included that wait for one of the prepared files.
    fn count(&self) -> usize {
        self.segments.len() + self.spare_segments()
    }

    /// Whether there may be another segment.
    pub(crate) fn may_grow(&self) -> bool {
        let bytes = self.disk_bytes().saturating_add(self.settings.segment_bytes.into());
        // One that waits for its file is counted already.
        let has_left = self.has_segments_left() || self.spare.len() < self.waiting_segments;
        !self.makes_none && has_left && bytes <= self.room.bytes_max
    }

    /// How many further segments there may be.
    fn growth_left(&self) -> usize {
        if !self.may_grow() {
            return 0;
        }
        let bytes = self.room.bytes_max.saturating_sub(self.disk_bytes());
        let fit = bytes / u64::from(self.settings.segment_bytes);
        let left = self.settings.segments_max.saturating_sub(self.count());
        left.min(usize::try_from(fit).unwrap_or(usize::MAX))
    }

    /// Prepared segments that are kept for what is passed on while a message lives that lies in so many
    /// segments: what can still be made is not.
    pub(super) fn kept_for_passing(&self, longest: usize) -> usize {
        self.passing_segments(longest).saturating_sub(self.growth_left())
    }

    /// Segments that are kept for what is passed on once no more can be made: as many as the longest message
    /// takes, where that leaves enough of the log to others.
    pub(super) fn passing_segments(&self, longest: usize) -> usize {
        let Settings { reserve_segments, passing_segments, .. } = self.settings;
        if passing_segments == 0 || longest == 0 {
            return passing_segments;
        }
        // Of the segments in which the last one ended, and this one will end, it has only a part.
        let needed = longest + 1;
        // It lies in so many, what is written to is another, and somebody else wants one.
        let with_it = longest + needed + reserve_segments + 2;
        if with_it > self.segments_max().min(self.room.fit) / 4 * 3 {
            return passing_segments;
        }
        passing_segments.max(needed)
    }

    /// Prepared segments beyond what waits for one.
    pub(crate) fn spare_segments(&self) -> usize {
        self.spare.len().saturating_sub(self.waiting_segments)
    }

    /// Whether another segment should be made, and none is on its way.
    pub(super) fn lacks_segment(&self) -> bool {
        self.creation.is_none() && self.lacks_spares()
    }

    pub(super) fn lacks_spares(&self) -> bool {
        self.lacks_ordinary_spares()
            || self.spare_segments() < self.spare_wanted
            || (!self.room.is_ready && self.spare.len() < self.waiting_segments)
    }

    /// Whether there are fewer than are to be ready when nobody waits for room.
    pub(super) fn lacks_ordinary_spares(&self) -> bool {
        let Settings { spare_segments, reserve_segments, .. } = self.settings;
        // A disk does not say beforehand that it will be full.
        let passing = match self.longest {
            0 => self.kept_for_passing(0),
            longest => self.passing_segments(longest),
        };
        self.room.is_ready && self.spare_segments() < spare_segments + reserve_segments + passing
    }

    /// Prepared segments that are kept when one comes free, or all that are to be ready.
    fn spares_kept(&self) -> usize {
        let ready = self.ready_spares();
        // As other logs take the rest of what may be used, this one is nearly full, too.
        let soon = if self.is_nearly_full() { 0 } else { self.room.soon() };
        (ready + soon).min(self.settings.free_segments_max).max(ready).max(self.spare_wanted)
    }

    /// Prepared segments that are to be ready, also once no more can be made: what is given back of them
    /// would be made again.
    fn ready_spares(&self) -> usize {
        self.settings.spare_segments + self.reserve_at_most()
    }

    /// [`Log::reserve`] once no more can be made.
    pub(super) fn reserve_at_most(&self) -> usize {
        self.settings.reserve_segments + self.passing_segments(self.longest)
    }

    /// Whether there are too few segments for messages.
    pub(super) fn lacks_reserve(&self) -> bool {
        (self.room.is_ready && self.spare_segments() <= self.settings.reserve_segments)
            || self.spare_segments() < self.spare_wanted
    }

    /// Whether messages may come at any time, so that segments are ready for them.
    pub(crate) fn is_ready(&self) -> bool {
        self.room.is_ready
    }

    /// From when on no messages have come for a while, if none come until then.
    pub(crate) fn quiet_from(&self) -> Instant {
        self.room.ready_until
    }

    /// When segments need not be ready any more, or fewer of them.
    pub(super) fn rest_due(&self) -> Instant {
        let has_more = self.creation.is_none() && self.spare_segments() > self.spares_kept();
        let is_less = !self.room.is_kept_ready || self.room.soon() > 0 || has_more;
        let rests = self.room.is_ready && is_less && !self.room.was_asked;
        if rests { self.room.ready_until } else { Instant::NEVER }
    }

    /// Gives segments back that nobody will use: those that are not used again soon, and all of them where
    /// they need not be ready at all times.
    fn give_rest(&mut self, now: Now, out: &mut Operations) {
        self.room.look(now, self.message_end());
        if !self.room.is_active(now) {
            self.room.forget_begun();
        }
        if self.creation.is_some() {
            return;
        }
        if !self.room.is_ready {
            (self.spare_wanted, self.is_passing_wanted) = (0, false);
            while self.give_back(out) {}
            if !self.lacks_spares() {
                self.full = false;
            }
            return;
        }
        self.room.surplus = self.room.surplus.min(self.spare_segments());
        // While somebody may be about to use what was made for him, only what was kept for later goes.
        let most = if self.room.is_active(now) { self.room.surplus } else { usize::MAX };
        let spare = self.spare_segments().saturating_sub(self.spares_kept());
        for _ in 0..spare.min(most) {
            self.give_back(out);
        }
    }

    /// Makes the next segment if one is lacking.
    pub(super) fn prepare(&mut self, now: Now, out: &mut Operations) {
        self.give_rest(now, out);
        if !self.lacks_segment() {
            return;
        }
        if !self.may_grow() {
            self.full = true;
            return;
        }
        if !self.creation_retry.is_due(now) {
            // What came free since then has been taken, or is less than somebody waits for.
            self.full |= self.lacks_reserve();
            return;
        }
        let slot = self.next_slot;
        self.next_slot += 1;
        let file = File::Segment(self.id, slot);
        let length = self.settings.segment_bytes.into();
        self.room.bytes += u64::from(self.settings.segment_bytes);
        let id = out.push(Action::Create { file, length });
        self.creation = Some(Creation::File { id, slot });
    }

    /// A segment whose messages are gone: its file is used again or deleted.
    pub(crate) fn free(&mut self, generation: u32, out: &mut Operations) {
        let Some(segment) = self.segments.remove(&generation) else { return };
        assert!(generation <= crate::place::generation(self.written), "it is written");
        // Without a file it was lost before the start.
        let Some(slot) = segment.slot else { return };
        let is_surplus = self.spare_segments() >= self.spares_kept();
        if segment.file_bytes != self.settings.segment_bytes || is_surplus {
            self.room.bytes = self.room.bytes.saturating_sub(segment.file_bytes.into());
            self.ignored.push(out.push(Action::Delete(File::Segment(self.id, slot))));
            self.creation_retry.hurry();
        } else {
            self.spare.push(slot);
            self.room.surplus += usize::from(self.spare_segments() > self.ready_spares());
            if self.spare_segments() > self.settings.reserve_segments {
                self.full = false;
            }
        }
    }

    /// Whether three quarters of the disk are in use, as an operation said.
    pub(crate) fn learn_fill(&mut self, fill: Option<Fill>) {
        if let Some(fill) = fill {
            self.is_disk_nearly_full = fill == Fill::Nearly;
        }
    }

    /// No segment is made while a checkpoint waits for room, and none again when it does not.
    pub(crate) fn make_none(&mut self, makes_none: bool) {
        self.makes_none = makes_none;
    }

    /// Whether a prepared segment may be used by messages.
    pub(crate) fn has_more_than_reserve(&self) -> bool {
        self.spare_segments() > self.settings.reserve_segments
    }

    /// Gives the file of a spare segment back to the disk, if none of those that are begun waits for it: what
    /// they hold must be written before anything comes free.
    pub(crate) fn give_back(&mut self, out: &mut Operations) -> bool {
        if self.spare.len() <= self.waiting_segments {
            return false;
        }
        let Some(slot) = self.spare.pop() else { return false };
        self.room.surplus = self.room.surplus.saturating_sub(1);
        self.room.bytes = self.room.bytes.saturating_sub(self.settings.segment_bytes.into());
        self.ignored.push(out.push(Action::Delete(File::Segment(self.id, slot))));
        true
    }

    /// A new segment was made: the disk may have room for others.
    pub(super) fn creation_succeeded(&mut self) {
        self.creation_retry.succeeded();
        if self.count() > self.room.fit {
            self.room.fit = usize::MAX;
        }
    }

    /// The file of a new segment could not be made, or its name not be made durable. It is made anew
    /// later.
    pub(super) fn creation_failed(&mut self, now: Now, slot: u32, error: DiskError) {
        self.room.bytes = self.room.bytes.saturating_sub(self.settings.segment_bytes.into());
        self.next_slot = slot;
        if error == DiskError::Full {
            self.room.fit = self.count();
        }
        if !self.creation_retry.failed(now, self.settings.retry_interval, error) {
            self.stop_for(File::Segment(self.id, slot), error);
        }
    }
}
