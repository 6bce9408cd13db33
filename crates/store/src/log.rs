//! The writer of one log: records gather in a batch, batches go to the disk one at a time.
//!
//! Appending gives a position at once. At most one write, with its sync, is in flight; what is
//! appended meanwhile forms the next batch. A sync is asked for only when something waits for it
//! or a timer says so.

mod buffers;
mod live;
mod room;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_base::{Instant, Now, Position};

pub(crate) use live::Segment;

use crate::checksum::crc;
use crate::disk::{Action, Completion, DiskError, File, LogId, OperationId, Operations};
use crate::gather::Gather;
use crate::keys::Keys;
use crate::place::position;
use crate::record::{KIND_FILLER, KIND_QUEUE_DROPPED, KIND_SETTLES, RECORD_HEADER_BYTES, word};
use crate::retry::Retry;
use crate::segment::{
    BATCH_HEADER_BYTES, BatchHeader, SEGMENT_HEADER_BYTES, SegmentHeader, reserve_batch, stamp,
};
use crate::settings::{Settings, SyncMode};

/// A write ends at a multiple of this: overwriting whole pages needs no page to be read first.
const PAGE_BYTES: usize = 4096;
/// Buffers kept for further batches.
const SPARE_BUFFERS_MAX: usize = 4;

/// The records of one write.
#[derive(Debug, Default)]
struct Batch {
    generation: u32,
    /// Offset of `bytes[0]` in the segment.
    offset: u32,
    /// Where in `bytes` the batch's header is: behind the segment's, if that comes along.
    header_at: usize,
    bytes: Vec<u8>,
    records_crc: u32,
    records: u32,
}

impl Batch {
    /// Where it ends so far.
    fn end(&self) -> u32 {
        self.offset + self.bytes.len() as u32
    }

    /// Appends a record whose payload `fill` writes.
    fn push(&mut self, keys: &Keys, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Position {
        let at = self.bytes.len();
        let offset = self.end();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        fill(&mut self.bytes);
        let payload = self.bytes.len() - at - RECORD_HEADER_BYTES;
        self.bytes[at + 4..at + 8].copy_from_slice(&word(kind, payload));
        let sum = crc(keys.seed(self.generation, offset), &self.bytes[at + 4..]);
        self.bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        self.records_crc = crc(self.records_crc, &sum.to_le_bytes());
        self.records += 1;
        position(self.generation, offset)
    }
}

/// A closed batch: waiting for its write, being written, or kept to serve reads.
#[derive(Debug)]
struct Closed {
    generation: u32,
    offset: u32,
    /// Where in `bytes` its header is.
    header_at: usize,
    /// What its header says was synced.
    named: Position,
    bytes: Arc<Vec<u8>>,
    /// Without the zeros that fill its last page.
    length: usize,
    /// Nothing else follows in its segment.
    is_last: bool,
}

impl Closed {
    /// Says in its header what is synced now.
    fn name(&mut self, keys: &Keys, synced: Position) {
        self.named = synced;
        let seed = keys.seed(self.generation, self.offset + self.header_at as u32);
        // Nobody else has the bytes while no write is under way.
        stamp(&mut Arc::make_mut(&mut self.bytes)[self.header_at..], synced, seed);
    }

    fn start(&self) -> Position {
        position(self.generation, self.offset)
    }

    fn end(&self) -> Position {
        position(self.generation, self.offset + self.length as u32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    Write { id: OperationId, start: usize, sync: bool },
    Sync { id: OperationId, end: Position },
}

#[derive(Clone, Copy, Debug)]
enum Creation {
    File { id: OperationId, slot: u32 },
    Directory { id: OperationId, slot: u32 },
}

/// What ties a batch to the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Where the last batch ends.
    pub end: Position,
    /// Its checksum.
    pub crc: u32,
    /// Number of the next batch.
    pub number: u64,
}

/// Where a log goes on: what recovery found.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    pub keys: Keys,
    pub generation: u32,
    pub chain: Chain,
    pub segments: BTreeMap<u32, Segment>,
    /// Files of the right length that hold nothing any more.
    pub spare: Vec<u32>,
    pub next_slot: u32,
}

impl Resume {
    /// The begin of a log that has nothing.
    pub(crate) fn new(log: LogId) -> Resume {
        Resume {
            keys: Keys::none(log),
            generation: 1,
            chain: Chain::default(),
            segments: BTreeMap::new(),
            spare: Vec::new(),
            next_slot: 0,
        }
    }
}

/// Why a message was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// What is prepared is reserved for settles and checkpoints. More is being prepared if the
    /// disk has it: [`crate::Store::space`] tells; try again then.
    Full,
    /// Names and properties do not fit into a segment.
    TooLarge,
    /// The log stopped after a failed write or sync.
    Stopped,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    id: LogId,
    pub(crate) keys: Keys,
    settings: Settings,
    open: Batch,
    /// The open batch is not closed for its size below this.
    held: usize,
    /// There is a message in the open batch.
    holds_message: bool,
    /// The same of settles.
    holds_settles: bool,
    message_end: Position,
    /// What is appended next comes free elsewhere in the log.
    is_passing: bool,
    /// Prepared segments that something large waits for.
    spare_wanted: usize,
    /// Something that is passed on is among what waits for them.
    is_passing_wanted: bool,
    /// Nobody has asked for them since the last look.
    is_wish_old: bool,
    /// In how many segments the longest message lies that may have to be passed on.
    longest: usize,
    closed: VecDeque<Closed>,
    recent: VecDeque<Closed>,
    recent_bytes: usize,
    buffers: Vec<Vec<u8>>,
    flight: Option<Flight>,
    /// Where the next batch begins.
    generation: u32,
    offset: u32,
    padded_to: u32,
    previous_end: Position,
    previous_crc: u32,
    batch_number: u64,
    /// Everything below is covered by a completed write, by a completed sync.
    written: Position,
    synced: Position,
    /// Bytes of all closed batches.
    appended: u64,
    gather: Gather,
    /// Something waits for the log up to here; and must have it synced, whatever the mode.
    wanted: Position,
    must: Position,
    write_due: Instant,
    sync_due: Instant,
    /// Segments by generation.
    pub segments: BTreeMap<u32, Segment>,
    /// The last so many of them have no file yet.
    waiting_segments: usize,
    /// Segments that were left with nothing alive in them, since this was looked at last.
    pub sealed_dead: usize,
    spare: Vec<u32>,
    next_slot: u32,
    creation: Option<Creation>,
    /// A checkpoint waits for room: no segment takes it.
    makes_none: bool,
    /// What the last operation said that can tell.
    is_disk_nearly_full: bool,
    room: room::Room,
    ignored: Vec<OperationId>,
    full: bool,
    /// Failures to make a segment.
    creation_retry: Retry,
    /// A write found the disk full and is tried again then.
    write_retry_at: Instant,
    /// Until then nothing is written, because a sync found no means; 0 without that.
    sync_retry_at: Instant,
    stopped: Option<(File, DiskError)>,
    /// Bytes handed to writes so far.
    pub bytes_written: u64,
    /// Writes and syncs that completed.
    pub syncs: u64,
}

impl Log {
    pub(crate) fn new(settings: Settings, resume: Resume) -> Log {
        let files = resume.segments.values().filter(|segment| segment.slot.is_some());
        let bytes: u64 = files.map(|segment| u64::from(segment.file_bytes)).sum();
        let spare = resume.spare.len() as u64 * u64::from(settings.segment_bytes);
        let room = room::Room::new(&settings, bytes + spare);
        Log {
            id: settings.log,
            keys: resume.keys,
            settings,
            open: Batch::default(),
            held: 0,
            holds_message: false,
            holds_settles: false,
            message_end: Position(0),
            is_passing: false,
            spare_wanted: 0,
            is_passing_wanted: false,
            is_wish_old: false,
            longest: 0,
            closed: VecDeque::new(),
            recent: VecDeque::new(),
            recent_bytes: 0,
            buffers: Vec::new(),
            flight: None,
            generation: resume.generation,
            offset: 0,
            padded_to: 0,
            previous_end: resume.chain.end,
            previous_crc: resume.chain.crc,
            batch_number: resume.chain.number,
            written: resume.chain.end,
            synced: resume.chain.end,
            appended: 0,
            gather: Gather::new(settings.gather_interval, settings.gather_bytes),
            wanted: Position(0),
            must: Position(0),
            write_due: Instant::NEVER,
            sync_due: Instant::NEVER,
            segments: resume.segments,
            waiting_segments: 0,
            sealed_dead: 0,
            spare: resume.spare,
            next_slot: resume.next_slot,
            creation: None,
            makes_none: false,
            is_disk_nearly_full: false,
            room,
            ignored: Vec::new(),
            full: false,
            creation_retry: Retry::default(),
            write_retry_at: Instant(0),
            sync_retry_at: Instant(0),
            stopped: None,
            bytes_written: 0,
            syncs: 0,
        }
    }

    /// Where the last record ends.
    pub(crate) fn end(&self) -> Position {
        if self.open.bytes.is_empty() {
            return match self.offset {
                0 => self.previous_end,
                offset => position(self.generation, offset),
            };
        }
        position(self.open.generation, self.open.offset + self.open.bytes.len() as u32)
    }

    /// What confirms may rely on: everything below.
    pub(crate) fn durable(&self) -> Position {
        match self.settings.sync {
            SyncMode::Always => self.synced,
            SyncMode::Interval | SyncMode::Never => self.written,
        }
    }

    pub(crate) fn synced(&self) -> Position {
        self.synced
    }

    /// Whether a write or a sync that failed is to be made again.
    pub(crate) fn has_waiting_writes(&self) -> bool {
        self.write_retry_at > Instant(0) || self.sync_retry_at > Instant(0)
    }

    pub(crate) fn stopped(&self) -> Option<(File, DiskError)> {
        self.stopped
    }

    /// Whether messages of ordinary size run out of room, and no more can be made.
    pub(crate) fn is_full(&self) -> bool {
        self.full && (self.lacks_ordinary_spares() || self.write_retry_at > Instant(0))
    }

    /// Whether a segment was lacking, also for who waits for more than messages of ordinary size take, and no more
    /// can be made.
    pub(crate) fn makes_no_room(&self) -> bool {
        self.full
    }

    /// Bytes of messages that can be appended, without the last `kept` prepared segments.
    pub(crate) fn room_for_copies(&self, kept: usize) -> u64 {
        let spare = self.spare_segments().saturating_sub(kept) as u64;
        let is_begun = self.offset > 0 || !self.open.bytes.is_empty();
        let rest = if is_begun { self.rest() as u64 } else { 0 };
        let room = rest + spare * self.payload_bytes_max() as u64;
        if spare == 0 && self.spare_segments() > 0 {
            room.max(self.last_for_copies() as u64)
        } else {
            room
        }
    }

    /// What a copy that begins the last prepared segment may take of it. Every start begins a segment: after
    /// some of them on a full disk it is the only one, and without copies none comes free.
    fn last_for_copies(&self) -> usize {
        self.payload_bytes_max() / 2
    }

    /// Whether a copy of so many bytes may be appended.
    pub(crate) fn has_room_for_copy(&self, bytes: usize) -> bool {
        self.has_room_for_settles(bytes)
            || (self.spare_segments() == 1 && bytes <= self.last_for_copies())
    }

    /// Whether settles of so many bytes may be appended. Where no more segments can be made the last prepared
    /// one is for what cannot wait: a checkpoint waits until all that is appended is written, and without a
    /// checkpoint nothing comes free.
    pub(crate) fn has_room_for_settles(&self, bytes: usize) -> bool {
        let is_begun = self.offset > 0 || !self.open.bytes.is_empty();
        !self.full
            || (is_begun && bytes <= self.rest_behind_batch())
            || self.spare_segments() > self.segments_for(bytes)
    }

    /// The same, or something large waits for more room than can be made.
    pub(crate) fn lacks_room(&self) -> bool {
        self.full
    }

    /// Chain values for a checkpoint that covers the log up to [`Log::end`]: closes the batch.
    pub(crate) fn cut(&mut self) -> Chain {
        self.close();
        Chain { end: self.end(), crc: self.previous_crc, number: self.batch_number }
    }

    /// The same where what follows begins a segment: reading begins there, and needs none before it.
    pub(crate) fn cut_segment(&mut self) -> Chain {
        self.next_segment();
        let end = position(self.generation, SEGMENT_HEADER_BYTES as u32);
        Chain { end, ..self.cut() }
    }

    /// Confirms wait for everything appended so far.
    pub(crate) fn want(&mut self) {
        self.wanted = self.end();
    }

    /// Everything appended so far must be synced whatever the mode.
    pub(crate) fn want_synced(&mut self) {
        self.must = self.end();
    }

    fn rest(&self) -> usize {
        let used = if self.open.bytes.is_empty() {
            let headers = if self.offset == 0 { SEGMENT_HEADER_BYTES } else { 0 };
            self.offset as usize + headers + BATCH_HEADER_BYTES
        } else {
            self.open.offset as usize + self.open.bytes.len()
        };
        (self.settings.segment_bytes as usize).saturating_sub(used + RECORD_HEADER_BYTES)
    }

    /// The same if the open batch is closed, and filled, before anything more comes.
    fn rest_behind_batch(&self) -> usize {
        if self.open.bytes.is_empty() {
            return self.rest();
        }
        let used = self.page_end(self.open.end()) as usize;
        let headers = BATCH_HEADER_BYTES + RECORD_HEADER_BYTES;
        (self.settings.segment_bytes as usize).saturating_sub(used + headers)
    }

    /// Payload bytes that a record at the very beginning of a segment can have.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.settings.payload_bytes_max()
    }

    /// Payload bytes the next record can have without leaving its segment.
    pub(crate) fn payload_rest(&self) -> usize {
        self.rest()
    }

    /// Makes sure that a record with `payload` bytes fits into the segment; opens the next one if
    /// needed. The reserve is for what is not `is_message`.
    pub(crate) fn make_room(
        &mut self,
        payload: usize,
        is_message: bool,
    ) -> Result<(), AppendError> {
        if self.stopped.is_some() {
            return Err(AppendError::Stopped);
        }
        if payload > self.payload_bytes_max() {
            return Err(AppendError::TooLarge);
        }
        if self.open.bytes.len() > self.settings.batch_bytes_max.max(self.held) {
            self.close();
        }
        let begins = payload > self.rest() || (self.offset == 0 && self.open.bytes.is_empty());
        if is_message && (begins || !self.may_fill_segment()) {
            self.admit(usize::from(begins))?;
        }
        if payload > self.rest() {
            self.next_segment();
        }
        Ok(())
    }

    /// Whether a message of `bytes` would be taken now. If not, segments are prepared.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        self.stopped.is_some()
            || match self.fits_in_segment(bytes) {
                true => self.may_fill_segment() || self.admit(0).is_ok(),
                false => self.admit(self.segments_for(bytes)).is_ok(),
            }
    }

    /// The same for who does not wait: no segments are prepared.
    pub(crate) fn would_take(&self, bytes: usize) -> bool {
        self.stopped.is_some()
            || match self.fits_in_segment(bytes) {
                true => self.may_fill_segment(),
                false => {
                    let segments = self.segments_for(bytes);
                    self.spare_segments() >= segments + self.reserve(segments)
                }
            }
    }

    /// Whether a message needs no further segment.
    fn fits_in_segment(&self, bytes: usize) -> bool {
        let is_begun = self.offset > 0 || !self.open.bytes.is_empty();
        bytes <= self.rest_behind_batch() && is_begun
    }

    /// Whether the next messages may use what is left of the current segment. What was kept for those
    /// that are passed on is still theirs when one of them has begun it.
    fn may_fill_segment(&self) -> bool {
        // Asked for each message: what costs least first.
        ((self.is_passing || self.settings.passing_segments == 0) && !self.waits_for_segment())
            || self.spare_segments() >= self.reserve_at_most()
            || (!self.full && self.may_grow() && !self.waits_for_segment())
            || self.spare_segments() >= self.reserve(0)
    }

    /// Whether a message of `bytes` would be taken by a log in which nothing is but one of `occupied`
    /// bytes.
    pub(crate) fn could_hold(&self, bytes: usize, occupied: usize) -> bool {
        let Settings { reserve_segments, passing_segments, .. } = self.settings;
        let reserve = reserve_segments + if self.is_passing { 0 } else { passing_segments };
        let needed = self.segments_for(bytes) + reserve;
        // One more is being written to, and it may hold the end of the other.
        needed + occupied / self.payload_bytes_max() < self.segments_max()
    }

    /// Segments that a message of `bytes` may begin, or several that are [held](Log::hold) together:
    /// what is cut leaves no room at the end of a segment.
    pub(crate) fn segments_for(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.payload_bytes_max()).max(1)
    }

    /// Whether `segments` further ones can be used for messages. If not, they are prepared.
    pub(crate) fn admit(&mut self, segments: usize) -> Result<(), AppendError> {
        self.room.ask();
        let needed = segments + self.reserve(segments);
        if self.spare_segments() >= needed {
            return Ok(());
        }
        let (others, passes) =
            if self.is_wish_old { (0, false) } else { (self.spare_wanted, self.is_passing_wanted) };
        self.is_passing_wanted = passes || self.is_passing;
        (self.spare_wanted, self.is_wish_old) = (needed.max(others), false);
        Err(AppendError::Full)
    }

    /// Prepared segments that messages may not use now, if the next one takes so many. It may have to be
    /// passed on itself, later.
    pub(crate) fn reserve(&self, segments: usize) -> usize {
        let longest = if segments > 1 { self.longest.max(segments) } else { self.longest };
        let passing = match (self.is_passing, self.full) {
            (true, _) => 0,
            (false, true) => self.passing_segments(longest),
            (false, false) => self.kept_for_passing(longest),
        };
        self.settings.reserve_segments + passing
    }

    /// The longest message that may have to be passed on lies in so many segments.
    pub(crate) fn set_longest(&mut self, segments: usize) {
        self.longest = segments;
    }

    /// Whether the messages that come next are passed on.
    pub(crate) fn set_passing(&mut self, is_passing: bool) {
        self.is_passing = is_passing;
    }

    /// Whoever was refused room and does not ask again before the next call wants none any more.
    pub(crate) fn forget_wishes(&mut self) {
        let is_old = core::mem::replace(&mut self.is_wish_old, true);
        if is_old && self.spare_wanted > 0 {
            (self.spare_wanted, self.is_passing_wanted) = (0, false);
            if !self.lacks_spares() {
                self.full = false;
            }
        }
    }

    /// Whether what is to be passed on finds no room, and no more can be made.
    pub(crate) fn lacks_room_to_pass_on(&self) -> bool {
        self.full && self.is_passing_wanted
    }

    /// The last message appended ends before.
    pub(crate) fn message_end(&self) -> Position {
        if self.holds_message { self.end() } else { self.message_end }
    }

    /// Makes the next `bytes` of records land in one batch, or as much as a segment holds.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), AppendError> {
        let bytes = bytes.min(self.payload_bytes_max());
        self.make_room(bytes, true)?;
        if self.open.bytes.len() + bytes > self.settings.batch_bytes_max {
            self.close();
            self.make_room(bytes, true)?;
        }
        self.held = self.open.bytes.len() + bytes + SEGMENT_HEADER_BYTES + BATCH_HEADER_BYTES;
        Ok(())
    }

    /// Leaves the current segment.
    pub(crate) fn next_segment(&mut self) {
        if self.offset == 0 && self.open.bytes.is_empty() {
            return;
        }
        self.close();
        if let Some(last) = self.closed.back_mut() {
            last.is_last = true;
        }
        if let Some(segment) = self.segments.get_mut(&self.generation) {
            segment.is_sealed = true;
            self.sealed_dead += usize::from(segment.is_dead());
        }
        self.previous_end = position(self.generation, self.offset);
        self.generation += 1;
        self.offset = 0;
        self.padded_to = 0;
    }

    fn begin(&mut self) {
        let mut bytes = self.buffers.pop().unwrap_or_default();
        bytes.clear();
        if self.offset == 0 {
            bytes.resize(SEGMENT_HEADER_BYTES, 0);
            let segment = Segment { file_bytes: self.settings.segment_bytes, ..Segment::default() };
            self.segments.insert(self.generation, segment);
            self.waiting_segments += 1;
            self.room.begin();
        }
        let header_at = bytes.len();
        reserve_batch(&mut bytes);
        self.open = Batch {
            generation: self.generation,
            offset: self.offset,
            header_at,
            bytes,
            records_crc: 0,
            records: 0,
        };
    }

    /// Appends a record whose payload `fill` writes; [`Log::make_room`] was asked before.
    pub(crate) fn append(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Position {
        if self.open.bytes.is_empty() {
            self.begin();
        }
        let is_settle = matches!(kind, KIND_SETTLES | KIND_QUEUE_DROPPED);
        self.holds_message |= !is_settle;
        self.holds_settles |= is_settle;
        self.open.push(&self.keys, kind, fill)
    }

    /// The end of the page that `offset` is in, or of the segment.
    fn page_end(&self, offset: u32) -> u32 {
        offset.next_multiple_of(PAGE_BYTES as u32).min(self.settings.segment_bytes)
    }

    /// Finishes the open batch: headers, and zeros up to the end of a page not yet written to.
    fn close(&mut self) {
        if self.open.bytes.is_empty() {
            return;
        }
        self.held = 0;
        if core::mem::take(&mut self.holds_message) {
            self.message_end = self.end();
        }
        let mut open = core::mem::take(&mut self.open);
        let gap = (self.page_end(open.end()) - open.end()) as usize;
        if open.bytes.len() >= self.settings.fill_bytes_min && gap >= RECORD_HEADER_BYTES {
            let whole = open.bytes.len() + gap;
            open.push(&self.keys, KIND_FILLER, |out| out.resize(whole, 0));
        }
        if open.header_at > 0 {
            let header = SegmentHeader {
                log: self.id,
                generation: open.generation,
                segment_bytes: self.settings.segment_bytes,
                previous_end: self.previous_end,
                previous_crc: self.previous_crc,
                batch_number: self.batch_number,
                synced: self.synced,
                key: self.keys.of(open.generation),
            };
            open.bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        }
        let length = open.bytes.len();
        self.appended += length as u64;
        let header = BatchHeader {
            length: (length - open.header_at - BATCH_HEADER_BYTES) as u32,
            number: self.batch_number,
            generation: open.generation,
            records: open.records,
            synced: self.synced,
            previous_crc: self.previous_crc,
            records_crc: open.records_crc,
        };
        let offset = open.offset + open.header_at as u32;
        let (key, seed) = (self.keys.of(open.generation), self.keys.seed(open.generation, offset));
        let (bytes, sum) = header.encode(key, seed);
        open.bytes[open.header_at..][..BATCH_HEADER_BYTES].copy_from_slice(&bytes);
        self.previous_crc = sum;
        self.batch_number += 1;
        self.offset = open.offset + length as u32;
        let page_end = self.page_end(self.offset);
        if page_end > self.padded_to {
            open.bytes.resize((page_end - open.offset) as usize, 0);
            self.padded_to = page_end;
        }
        if let Some(segment) = self.segments.get_mut(&open.generation) {
            segment.used_bytes = self.offset;
            segment.has_settles |= core::mem::take(&mut self.holds_settles);
        }
        self.closed.push_back(Closed {
            generation: open.generation,
            offset: open.offset,
            header_at: open.header_at,
            named: self.synced,
            bytes: Arc::new(open.bytes),
            length,
            is_last: false,
        });
    }

    /// What was appended so far is written at this moment at the latest.
    pub(crate) fn write_by(&mut self, due: Instant) {
        if !self.open.bytes.is_empty() {
            self.write_due = self.write_due.min(due);
        }
    }

    /// Whether somebody waits who is not to wait until more has gathered.
    fn is_awaited(&self, now: Now) -> bool {
        let holds = self.closed.is_empty() && self.gather.holds(now.instant, self.open.bytes.len());
        self.wanted > self.durable() && !holds
    }

    /// Whether [`Log::flush`] would write now.
    pub(crate) fn is_due(&self, now: Now) -> bool {
        self.flight.is_none()
            && (self.is_awaited(now)
                || self.must > self.synced
                || !self.closed.is_empty()
                || self.open.bytes.len() >= self.settings.write_bytes_min
                || self.write_due <= now.instant)
    }

    /// End of a cycle: submits the next write or sync if one is due, and prepares segments.
    pub(crate) fn flush(&mut self, now: Now, out: &mut Operations) {
        if self.stopped.is_some() {
            return;
        }
        self.prepare(now, out);
        if !self.open.bytes.is_empty() && self.write_due == Instant::NEVER {
            self.write_due = now.instant + self.settings.write_interval;
        }
        self.gather.look(now.instant, self.appended_bytes());
        if self.flight.is_some() || now.instant < self.sync_retry_at {
            return;
        }
        self.sync_retry_at = Instant(0);
        let must = self.must > self.synced;
        let sync = must
            || (self.is_awaited(now) && self.settings.sync == SyncMode::Always)
            || self.sync_due <= now.instant;
        let write = self.is_due(now);
        if write && self.closed.is_empty() {
            self.close();
        }
        // One that is to be made again keeps no sync of what was written before from its time.
        if write && !self.closed.is_empty() && now.instant >= self.write_retry_at {
            self.gather.begins(now.instant);
            self.submit(0, sync, out);
        } else if sync && self.written > self.synced {
            self.submit_sync(out);
        }
    }

    fn submit(&mut self, start: usize, sync: bool, out: &mut Operations) {
        let Some(front) = self.closed.front_mut() else { return };
        if front.offset == 0 && start == 0 && self.written > self.synced {
            // A sync of the new file would not cover what the one before still has unsynced.
            return self.submit_sync(out);
        }
        let Some(segment) = self.segments.get_mut(&front.generation) else { return };
        let slot = match segment.slot {
            Some(slot) => slot,
            None => {
                let Some(slot) = self.spare.pop() else { return };
                segment.slot = Some(slot);
                assert!(self.waiting_segments > 0, "a segment got a file that waited for none");
                self.waiting_segments -= 1;
                slot
            }
        };
        // Others were synced while it waited: the last batch before a crash is the only one that no other
        // one names.
        if start == 0 && front.named != self.synced {
            front.name(&self.keys, self.synced);
        }
        let sync = sync || front.is_last;
        self.bytes_written += (front.bytes.len() - start) as u64;
        let id = out.push(Action::Write {
            file: File::Segment(self.id, slot),
            offset: u64::from(front.offset) + start as u64,
            bytes: front.bytes.clone(),
            start,
            sync,
        });
        self.flight = Some(Flight::Write { id, start, sync });
        if self.closed.len() == 1 && self.open.bytes.is_empty() {
            self.write_due = Instant::NEVER;
        }
    }

    fn submit_sync(&mut self, out: &mut Operations) {
        let generation = crate::place::generation(self.written);
        let Some(slot) = self.segments.get(&generation).and_then(|segment| segment.slot) else {
            self.synced = self.written;
            return;
        };
        let id = out.push(Action::Sync(File::Segment(self.id, slot)));
        self.flight = Some(Flight::Sync { id, end: self.written });
    }

    /// Takes a completion; false if it belongs to somebody else.
    pub(crate) fn complete(
        &mut self,
        now: Now,
        completion: &Completion,
        out: &mut Operations,
    ) -> bool {
        if let Some(index) = self.ignored.iter().position(|id| *id == completion.id) {
            self.ignored.swap_remove(index);
            return true;
        }
        match self.flight {
            Some(Flight::Write { id, start, sync }) if id == completion.id => {
                self.flight = None;
                self.write_done(now, start, sync, completion.result, out);
                return true;
            }
            Some(Flight::Sync { id, end }) if id == completion.id => {
                self.flight = None;
                match completion.result {
                    Ok(_) => self.sync_done(end),
                    // The file was not even open: nothing was tried.
                    Err(DiskError::Busy) => {
                        self.sync_retry_at = now.instant + self.settings.retry_interval;
                    }
                    Err(error) => self.stop(crate::place::generation(end), error),
                }
                return true;
            }
            _ => {}
        }
        match self.creation {
            Some(Creation::File { id, slot }) if id == completion.id => {
                self.creation = None;
                if let Err(error) = completion.result {
                    // While there are others, nobody waits for this one.
                    self.full |= error != DiskError::Busy || self.lacks_reserve();
                    self.creation_failed(now, slot, error);
                } else {
                    let id = out.push(Action::SyncDirectory(self.id));
                    self.creation = Some(Creation::Directory { id, slot });
                }
                true
            }
            Some(Creation::Directory { id, slot }) if id == completion.id => {
                self.creation = None;
                if let Err(error) = completion.result {
                    self.creation_failed(now, slot, error);
                } else {
                    self.spare.push(slot);
                    self.creation_succeeded();
                    self.full = false;
                    if self.spare_segments() >= self.spare_wanted {
                        (self.spare_wanted, self.is_passing_wanted) = (0, false);
                    }
                }
                true
            }
            _ => false,
        }
    }

    fn write_done(
        &mut self,
        now: Now,
        start: usize,
        sync: bool,
        result: Result<usize, DiskError>,
        out: &mut Operations,
    ) {
        let Some(front) = self.closed.front() else { return };
        let count = match result {
            Ok(count) => count,
            Err(error) if error.is_lack() => {
                self.full |= error == DiskError::Full;
                self.write_retry_at = now.instant + self.settings.retry_interval;
                return;
            }
            Err(error) => return self.stop(front.generation, error),
        };
        let start = start + count;
        if start < front.bytes.len() {
            if count == 0 {
                return self.stop(front.generation, DiskError::Failed);
            }
            return self.submit(start, sync, out);
        }
        if core::mem::take(&mut self.write_retry_at) > Instant(0) && !self.lacks_spares() {
            self.full = false;
        }
        let Some(front) = self.closed.front() else { return };
        self.written = front.end();
        if sync {
            self.sync_done(self.written);
        } else if self.settings.sync != SyncMode::Never && self.sync_due == Instant::NEVER {
            // What was written may have waited for that already.
            let Settings { sync_interval, write_interval, .. } = self.settings;
            self.sync_due = now.instant + sync_interval.saturating_sub(write_interval);
        }
        self.gather.ends(now.instant, self.appended_bytes());
        if let Some(batch) = self.closed.pop_front() {
            self.recent_bytes += batch.bytes.capacity();
            self.recent.push_back(batch);
        }
        self.forget();
    }

    fn sync_done(&mut self, end: Position) {
        self.syncs += 1;
        self.synced = end;
        self.sync_due = Instant::NEVER;
    }

    fn stop(&mut self, generation: u32, error: DiskError) {
        let slot = self.segments.get(&generation).and_then(|segment| segment.slot);
        self.stop_for(File::Segment(self.id, slot.unwrap_or(u32::MAX)), error);
    }

    /// Nothing can be relied on any more: no write, no sync, no confirm from here on.
    pub(crate) fn stop_for(&mut self, file: File, error: DiskError) {
        self.stopped.get_or_insert((file, error));
    }

    pub(crate) fn written(&self) -> Position {
        self.written
    }

    /// When [`Log::flush`] has something to do without new records.
    pub(crate) fn next_timeout(&self) -> Instant {
        if self.stopped.is_some() {
            return Instant::NEVER;
        }
        // Also where a segment that came free ended the shortage before the time to try again: those who
        // wait may want more of them.
        let retries = self.lacks_segment() && self.may_grow();
        let retry = if retries { self.creation_retry.at() } else { Instant::NEVER };
        if self.flight.is_some() {
            return retry;
        }
        if self.sync_retry_at > Instant(0) {
            return retry.min(self.sync_retry_at);
        }
        let gathers = self.wanted > self.durable() && !self.open.bytes.is_empty();
        let write = match self.closed.front() {
            None if gathers => self.write_due.min(self.gather.until()),
            None => self.write_due,
            // It is written when there is a segment for it.
            Some(front) if self.lacks_file(front) => Instant::NEVER,
            Some(_) => self.write_retry_at,
        };
        write.min(self.sync_due).min(retry).min(self.rest_due())
    }

    /// Whether a batch has no file to go to yet.
    fn lacks_file(&self, batch: &Closed) -> bool {
        let segment = self.segments.get(&batch.generation);
        self.spare.is_empty() && segment.is_some_and(|segment| segment.slot.is_none())
    }

    /// Whether some of what is appended has no segment, and there is none for it.
    pub(crate) fn waits_for_segment(&self) -> bool {
        self.waiting_segments > self.spare.len()
    }

    /// Bytes of all batches so far, the open one included.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended + self.open.bytes.len() as u64
    }

    /// Generation of the segment that is written to.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }
}
