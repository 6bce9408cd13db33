//! What comes out: entries of lanes, and messages by their position.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use lepus_base::Position;

use super::{Event, Store};
use crate::cache::{Cache, Cover, Finished, Large};
use crate::disk::{Action, File, Operations};
use crate::lane::Stop;
use crate::lanes::LaneSlot;
use crate::page::Entry;
use crate::place::{generation, offset, position};
use crate::record::{self, Message, MessageRecord, Names, RECORD_HEADER_BYTES};
use crate::recovery::Damage;
use crate::segment::{BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES};

/// Whether a fetch gave all there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fetch {
    /// As many entries as wanted, or as there are.
    Done,
    /// An index page is read first: [`Event::LaneReady`] says when to go on.
    Pending,
}

/// A message looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Lookup<'a> {
    /// Here it is.
    Found(Message<'a>),
    /// It is being read: [`Event::MessageReady`] says when to look again.
    Pending,
    /// It is damaged, which was reported. Whoever it is for may [`Store::set_aside`] it.
    Lost,
}

/// Whether a record can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// In memory.
    Ready,
    /// On its way.
    Pending,
    /// Damaged or missing.
    Lost,
}

/// Where the first record of a segment lies.
const FIRST_RECORD: u32 = (SEGMENT_HEADER_BYTES + BATCH_HEADER_BYTES) as u32;

/// Records that the disk does not give, in this run.
pub(super) type Unreadable = BTreeSet<Position>;

/// So many of them are remembered.
const UNREADABLE_MAX: usize = 1 << 16;

/// Messages that lie in several segments are put together in so many times the memory for what is read.
const LARGE_CACHES: usize = 4;

/// What is read of a record nothing is known of.
const UNKNOWN_BYTES: usize = 4096;
/// What a record has beside its body, at most, to be counted on.
const EXTRA_BYTES_MAX: usize = 4096;
/// Numbers in a record grow along a log.
const EXTRA_SLACK_BYTES: usize = 8;
/// Out of a cache's bytes, how many parts of four may be read before somebody looks them up.
const OUTSTANDING_QUARTERS: usize = 3;
/// Longest read of announced records.
const SPAN_BYTES_MAX: usize = 1 << 20;

/// The record that a lookup needs, and how much of it is to be read.
#[derive(Clone, Copy, Debug)]
struct Need {
    /// The position that was looked up.
    asked: Position,
    /// The record.
    at: Position,
    /// Its length, as far as that is known.
    length: usize,
}

impl Store {
    /// Reads up to `count` further entries of a lane, in order, into `into`. Each is given once,
    /// until [`Store::rewind`].
    pub fn fetch(
        &mut self,
        lane: LaneSlot,
        count: usize,
        into: &mut Vec<Entry>,
        out: &mut Operations,
    ) -> Fetch {
        let Some(index) = self.state.lane_mut(lane) else { return Fetch::Done };
        match index.fetch(count, into) {
            Stop::Done => Fetch::Done,
            Stop::Page(first) => {
                self.read_page(lane, first, out);
                Fetch::Pending
            }
        }
    }

    /// Reads up to `count` entries of a lane again, from a number on, which were fetched before; what [`Store::fetch`]
    /// gives next stays. Up to which number all that live were given.
    pub fn fetch_at(
        &mut self,
        lane: LaneSlot,
        from: u64,
        count: usize,
        into: &mut Vec<Entry>,
        out: &mut Operations,
    ) -> (Fetch, u64) {
        let Some(index) = self.state.lane_mut(lane) else { return (Fetch::Done, u64::MAX) };
        match index.fetch_at(from, count, into) {
            (Stop::Done, end) => (Fetch::Done, end),
            (Stop::Page(first), end) => {
                self.read_page(lane, first, out);
                (Fetch::Pending, end)
            }
        }
    }

    /// Whether everything appended to the lane so far was fetched: what is appended next may be
    /// used without a fetch, followed by [`Store::skip_fetch`].
    #[must_use]
    pub fn is_fetched(&self, lane: LaneSlot) -> bool {
        self.state.lanes.is_fetched(lane)
    }

    /// Fetching goes on at `seq` again: entries behind it were dropped from memory.
    pub fn rewind(&mut self, lane: LaneSlot, seq: u64) {
        if let Some(index) = self.state.lane_mut(lane) {
            index.rewind(seq);
        }
    }

    /// The entries appended so far need no fetch.
    pub fn skip_fetch(&mut self, lane: LaneSlot) {
        if let Some(index) = self.state.lane_mut(lane) {
            index.skip_fetch();
        }
    }

    /// The message of an entry: from a buffer, or read from disk.
    pub fn lookup(&mut self, at: Position, out: &mut Operations) -> Lookup<'_> {
        self.lookup_within(at, UNKNOWN_BYTES, out)
    }

    /// As [`Store::lookup`]; `bytes` is the size of the body, as the entry says it. Only about so
    /// much is read of a record that lies alone.
    pub fn lookup_sized(&mut self, at: Position, bytes: u32, out: &mut Operations) -> Lookup<'_> {
        self.lookup_within(at, self.expected(bytes), out)
    }

    fn lookup_within(&mut self, at: Position, length: usize, out: &mut Operations) -> Lookup<'_> {
        match self.ready(at, length, true, out) {
            Found::Ready => self.message(at).map_or(Lookup::Lost, Lookup::Found),
            Found::Pending => Lookup::Pending,
            Found::Lost => Lookup::Lost,
        }
    }

    /// Says what will be looked up next, in that order: it is read ahead, each record alone or
    /// neighbours together. How many of the entries are in memory or on their way then; the rest
    /// would need more memory than there is. No event tells when they are there.
    pub fn prefetch(&mut self, entries: &[Entry], out: &mut Operations) -> usize {
        let mut span: Option<(Position, usize)> = None;
        if self.failed_reads.are_there() {
            // What nobody needs yet is not worth another failure.
            return 0;
        }
        for (index, entry) in entries.iter().enumerate() {
            let at = self.state.tables.place(entry.position);
            let body = (entry.bytes as usize).max(RECORD_HEADER_BYTES);
            let is_there = self.log.read(at).is_some() || self.cache.cover(at, body) != Cover::Gap;
            let length = self.expected(entry.bytes).min(self.readable(at));
            if is_there || length == 0 {
                continue;
            }
            if self.is_far(entries[0].position, at) {
                if let Some((start, bytes)) = span {
                    self.read_span(start, bytes, out);
                }
                return index;
            }
            if let Some((start, bytes)) = &mut span {
                let reached = start.0 + *bytes as u64;
                if at >= *start
                    && at.0 <= reached + Cache::gap(length) as u64
                    && generation(at) == generation(*start)
                    && *bytes < SPAN_BYTES_MAX
                {
                    *bytes = (*bytes).max((at.0 - start.0) as usize + length);
                    continue;
                }
                self.read_span(*start, *bytes, out);
                // What is read ahead of that may reach as far.
                if self.cache.cover(at, body) != Cover::Gap {
                    span = None;
                    continue;
                }
            }
            if self.outstanding_rest() < length {
                return index;
            }
            span = Some((at, length));
        }
        if let Some((start, bytes)) = span {
            self.read_span(start, bytes, out);
        }
        entries.len()
    }

    /// Whether a record is too far behind the head of its queue to be read already. Queues that
    /// are drained together then keep to one stretch of the log, and share what is read of it.
    fn is_far(&self, head: Position, at: Position) -> bool {
        let near = self.settings.cache_bytes / 2 / 4;
        let segments = u64::from(generation(at).saturating_sub(generation(head)));
        let from = segments * u64::from(self.settings.segment_bytes) + u64::from(offset(at));
        let distance = from.saturating_sub(offset(head).into());
        self.cache.outstanding() > near && distance > near as u64
    }

    /// About how long the record of a message is.
    fn expected(&self, body: u32) -> usize {
        body as usize + self.record_extra + EXTRA_SLACK_BYTES
    }

    /// What may be read before somebody has looked up more of what was read.
    fn outstanding_rest(&self) -> usize {
        let most = self.settings.cache_bytes / 2 / 4 * OUTSTANDING_QUARTERS;
        most.saturating_sub(self.cache.outstanding())
    }

    /// Reads `length` bytes, and what seems worth it behind them. False if the segment has no
    /// file.
    fn read_span(&mut self, at: Position, length: usize, out: &mut Operations) -> bool {
        let slot = self.log.segments.get(&generation(at)).and_then(|found| found.slot);
        let Some(slot) = slot else { return false };
        let readable = self.readable(at);
        let room = self.outstanding_rest().saturating_sub(length);
        let is_in_trouble = self.failed_reads.are_there();
        let ahead_max =
            if is_in_trouble { 0 } else { (4 * self.settings.read_ahead_bytes).min(room) };
        let (ahead, run) = self.cache.ahead(at, length, ahead_max);
        let length = (length + ahead).min(readable);
        if length == 0 {
            return false;
        }
        let file = File::Segment(self.settings.log, slot);
        let id = out.push(Action::Read { file, offset: offset(at).into(), length });
        self.cache.start(id, at, length, run);
        self.failed_reads.records.begins(at);
        true
    }

    /// A record in the cache was looked up: goes on reading if that is a habit here.
    fn looked_up(&mut self, at: Position, length: usize, out: &mut Operations) {
        let Some(next) = self.cache.touch(at, length) else { return };
        if self.failed_reads.are_there() {
            return;
        }
        if self.readable(next) > 0 && self.cache.is_gap(next) {
            self.read_span(next, 0, out);
        }
    }

    /// For who drives the store without [`Store::flush`], which ends each cycle with this: what was looked up
    /// so far has been used. Long messages that are whole are forgotten, and who waits for their room is told.
    pub fn end_lookups(&mut self) {
        let woken = self.cache.end_cycle();
        self.events.extend(woken.into_iter().map(Event::MessageReady));
    }

    /// The message of an entry, if a lookup just found it.
    #[must_use]
    pub fn message(&self, at: Position) -> Option<Message<'_>> {
        let at = self.state.tables.place(at);
        let record = self.record(at)?;
        let (exchange, routing_key) = match record.names {
            Names::Here(exchange, routing_key) => (exchange, routing_key),
            Names::At(lender) => self.cache.names(position(generation(at), lender))?,
        };
        let body = match self.cache.large(at) {
            Some(large) => &large.body,
            None => record.body,
        };
        let is_whole = body.len() == record.body_bytes as usize;
        is_whole.then_some(Message { exchange, routing_key, properties: record.properties, body })
    }

    fn bytes(&self, at: Position) -> Option<&[u8]> {
        self.log.read(at).or_else(|| self.cache.read(at))
    }

    /// The record at `at`, if it was just made ready.
    pub(super) fn record(&self, at: Position) -> Option<MessageRecord<'_>> {
        let payload = match self.cache.large(at) {
            Some(large) => &large.first,
            None => self.payload(at, record::KIND_MESSAGE)?,
        };
        MessageRecord::decode(payload)
    }

    fn payload(&self, at: Position, kind: u8) -> Option<&[u8]> {
        let bytes = self.bytes(at)?;
        let (found, length) = record::peek(bytes)?;
        (found == kind).then_some(())?;
        bytes.get(RECORD_HEADER_BYTES..length)
    }

    /// Makes sure that everything of the message that lies at `at` is in memory.
    pub(super) fn ready_whole(&mut self, at: Position, out: &mut Operations) -> Found {
        // One at a time.
        self.ready(at, UNKNOWN_BYTES, false, out)
    }

    /// Makes sure that everything of a message is in memory.
    fn ready(
        &mut self,
        asked: Position,
        length: usize,
        is_bounded: bool,
        out: &mut Operations,
    ) -> Found {
        let at = self.state.tables.place(asked);
        if self.cache.large(at).is_none() {
            let found = self.ready_record(Need { asked, at, length }, out);
            if found != Found::Ready {
                return found;
            }
        }
        let Some(record) = self.record(at) else { return Found::Lost };
        let is_fragmented = record.is_fragmented();
        let extra = RECORD_HEADER_BYTES + record.envelope_bytes;
        let lender = match record.names {
            Names::At(lender) => Some(lender),
            Names::Here(..) => None,
        };
        // Grows at once, shrinks slowly.
        let known = self.record_extra;
        self.record_extra = extra.min(EXTRA_BYTES_MAX).max(known - known.div_ceil(256));
        if is_fragmented {
            let found = self.assemble((asked, at), is_bounded, out);
            if found != Found::Ready {
                return found;
            }
        }
        let Some(lender) = lender else { return Found::Ready };
        let at = position(generation(at), lender);
        self.ready_names(Need { asked, at, length: length.min(UNKNOWN_BYTES) }, out)
    }

    fn ready_names(&mut self, need: Need, out: &mut Operations) -> Found {
        let lender = need.at;
        if self.cache.names(lender).is_some() {
            return Found::Ready;
        }
        let found = self.ready_record(need, out);
        if found != Found::Ready {
            return found;
        }
        let Some(MessageRecord { names: Names::Here(exchange, routing_key), .. }) =
            self.record(lender)
        else {
            return Found::Lost;
        };
        let (exchange, routing_key) = (exchange.to_vec(), routing_key.to_vec());
        self.cache.put_names(lender, &exchange, &routing_key);
        Found::Ready
    }

    /// Bytes of fragmented messages put together at once; one alone may have more.
    fn large_bytes_max(&self) -> usize {
        LARGE_CACHES * self.settings.cache_bytes
    }

    /// Puts the fragments of a message together, one after the other.
    fn assemble(
        &mut self,
        (asked, at): (Position, Position),
        is_bounded: bool,
        out: &mut Operations,
    ) -> Found {
        if self.cache.large(at).is_none() {
            let (Some(payload), Some(record)) =
                (self.payload(at, record::KIND_MESSAGE), self.record(at))
            else {
                return Found::Lost;
            };
            let total = record.body_bytes as usize;
            if is_bounded && !self.cache.has_large_room(total, self.large_bytes_max()) {
                self.cache.wait_for_large(asked);
                return Found::Pending;
            }
            let large = Large {
                first: payload.to_vec(),
                body: record.body.to_vec(),
                asked,
                total,
                generation: generation(at),
            };
            self.cache.put_large(at, large);
        }
        while let Some(large) = self.cache.large(at)
            && large.body.len() < large.total
        {
            let part = position(large.generation + 1, FIRST_RECORD);
            let length = large.total - large.body.len() + RECORD_HEADER_BYTES;
            let found = self.ready_record(Need { asked, at: part, length }, out);
            if found == Found::Lost {
                self.cache.drop_large(at);
            }
            if found != Found::Ready {
                return found;
            }
            let payload = self.payload(part, record::KIND_FRAGMENT).unwrap_or_default().to_vec();
            let Some(large) = self.cache.large_mut(at) else { return Found::Lost };
            if payload.is_empty() || large.body.len() + payload.len() > large.total {
                self.cache.drop_large(at);
                return Found::Lost;
            }
            large.body.reserve_exact(payload.len());
            large.body.extend_from_slice(&payload);
            large.generation += 1;
        }
        Found::Ready
    }

    /// Makes sure that a record is in memory and whole.
    fn ready_record(&mut self, need: Need, out: &mut Operations) -> Found {
        let at = need.at;
        if self.log.read(at).is_some_and(|bytes| record::peek(bytes).is_some()) {
            return Found::Ready;
        }
        if self.unreadable.contains(&at) {
            return self.lost(at, need.length);
        }
        let readable = self.readable(at);
        if readable < RECORD_HEADER_BYTES {
            return self.lost(at, readable);
        }
        let mut length = need.length.max(RECORD_HEADER_BYTES).min(readable);
        if self.failed_reads.are_there() {
            // Its length first: what is behind it may be what fails.
            length = RECORD_HEADER_BYTES;
        }
        let mut cover = self.cache.cover(at, RECORD_HEADER_BYTES);
        if cover == Cover::Ready {
            self.cache.join(at, RECORD_HEADER_BYTES);
            let header = self.cache.read(at).and_then(record::peek);
            let Some((_, whole)) = header else { return self.lost(at, 0) };
            if whole > readable {
                return self.lost(at, readable);
            }
            length = whole;
            cover = self.cache.cover(at, length);
        }
        match cover {
            Cover::Ready => {
                self.cache.join(at, length);
                let seed = self.log.keys.seed(generation(at), offset(at));
                let whole = self.cache.read(at).and_then(|bytes| bytes.get(..length));
                if whole.and_then(|bytes| record::decode(bytes, seed)).is_none() {
                    return self.lost(at, length);
                }
                self.failed_reads.records.worked(at);
                self.looked_up(at, length, out);
                Found::Ready
            }
            // What failed may bring its own record only.
            Cover::Pending(read) if read == at || !self.cache.is_stalled(read) => {
                self.cache.wait(read, need.asked, at, length);
                Found::Pending
            }
            Cover::Pending(_) | Cover::Gap => {
                if !self.read_span(at, length, out) {
                    return self.lost(at, 0);
                }
                self.cache.wait(at, need.asked, at, length);
                Found::Pending
            }
        }
    }

    /// Bytes of the segment behind `at` that are written.
    pub(super) fn readable(&self, at: Position) -> usize {
        let written = self.log.written();
        let end = match self.log.segments.get(&generation(at)) {
            Some(_) if generation(at) == generation(written) => offset(written),
            Some(segment) => segment.used_bytes,
            None => 0,
        };
        end.saturating_sub(offset(at)) as usize
    }

    /// Where the record of a message is that the index has at `at`, or a further part of it: its position
    /// now, its segment's file, and how much of that is written. `None` if the log has no such segment.
    #[must_use]
    pub fn record_place(&self, at: Position) -> Option<(Position, File, u32)> {
        let at = self.state.tables.place(at);
        let slot = self.log.segments.get(&generation(at))?.slot?;
        let end = offset(at).saturating_add(self.readable(at) as u32);
        Some((at, File::Segment(self.settings.log, slot), end))
    }

    /// Where the part of a message is that follows the one in segment `generation`.
    #[must_use]
    pub fn next_part(generation: u32) -> Position {
        position(generation.saturating_add(1), FIRST_RECORD)
    }

    fn lost(&mut self, at: Position, length: usize) -> Found {
        let slot = self.log.segments.get(&generation(at)).and_then(|found| found.slot);
        self.events.push(Event::Damaged(Damage {
            file: File::Segment(self.settings.log, slot.unwrap_or(u32::MAX)),
            offset: offset(at).into(),
            bytes: length as u64,
        }));
        Found::Lost
    }

    /// A read ended.
    pub(super) fn read_done(&mut self, finished: Finished, out: &mut Operations) {
        if self.unreadable.len() + finished.failed.len() > UNREADABLE_MAX {
            self.unreadable.clear();
        }
        self.unreadable.extend(finished.failed);
        for (asked, record) in finished.asked {
            if !self.take_names(asked, record, out) {
                let at = self.state.tables.place(asked);
                // The first part of a long message is kept apart from what was read.
                let is_begun = self.cache.large(at).is_some();
                if !is_begun || generation(record) != generation(at) {
                    self.cache.keep(if is_begun { record } else { at });
                }
                self.events.push(Event::MessageReady(asked));
            }
        }
    }

    /// Remembers the names that the record just read lends to the one that was looked up: until
    /// that one is looked up again, other reads may have taken the place of both. Whether more of
    /// the lender is read first, which `asked` waits for.
    fn take_names(&mut self, asked: Position, lender: Position, out: &mut Operations) -> bool {
        let at = self.state.tables.place(asked);
        if lender == at
            // A fragment: it lies in a segment behind that of its message.
            || generation(lender) != generation(at)
            || self.cache.names(lender).is_some()
            || self.unreadable.contains(&lender)
        {
            return false;
        }
        let Some(bytes) = self.cache.read(lender) else { return false };
        if bytes.len() < RECORD_HEADER_BYTES {
            return false;
        }
        let found = record::peek(bytes).filter(|(kind, _)| *kind == record::KIND_MESSAGE);
        let length = found.map(|(_, length)| length);
        if let Some(length) = length.filter(|length| *length > bytes.len())
            && length <= self.readable(lender)
        {
            let reads = self.read_span(lender, length, out);
            if reads {
                self.cache.wait(lender, asked, lender, length);
            }
            return reads;
        }
        let seed = self.log.keys.seed(generation(lender), offset(lender));
        let whole = length.and_then(|length| bytes.get(..length));
        let payload = whole.and_then(|bytes| record::decode(bytes, seed)).map(|found| found.1);
        let names = payload.and_then(MessageRecord::decode).map(|record| record.names);
        if let Some(Names::Here(exchange, routing_key)) = names {
            let (exchange, routing_key) = (exchange.to_vec(), routing_key.to_vec());
            self.cache.put_names(lender, &exchange, &routing_key);
        } else {
            // What is wrong is told when it is looked up. Until then the read of a long message may take its
            // place, and must not begin all over again for it.
            self.unreadable.insert(lender);
        }
        false
    }
}
