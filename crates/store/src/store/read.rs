//! What comes out: entries of lanes, and messages by their position.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use lepus_base::Position;

use super::{Event, Store};
use crate::cache::Large;
use crate::checksum::seed;
use crate::disk::{Action, File, Operations};
use crate::lane::Stop;
use crate::page::Entry;
use crate::place::{generation, offset, position};
use crate::record::{self, Message, MessageRecord, Names, RECORD_HEADER_BYTES};
use crate::recovery::Damage;
use crate::segment::{BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::state::LaneSlot;

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
    /// It cannot be read; the damage was reported.
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

/// Reads that failed, to be told once each.
pub(super) type FailedReads = BTreeSet<Position>;

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

    /// Whether everything appended to the lane so far was fetched: what is appended next may be
    /// used without a fetch, followed by [`Store::skip_fetch`].
    #[must_use]
    pub fn is_fetched(&self, lane: LaneSlot) -> bool {
        self.index(lane).is_none_or(crate::lane::LaneIndex::is_fetched)
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

    /// The message of an entry: from a buffer, or read from disk with what follows it.
    pub fn lookup(&mut self, at: Position, out: &mut Operations) -> Lookup<'_> {
        match self.ready(at, out) {
            Found::Ready => self.message(at).map_or(Lookup::Lost, Lookup::Found),
            Found::Pending => Lookup::Pending,
            Found::Lost => Lookup::Lost,
        }
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

    fn record(&self, at: Position) -> Option<MessageRecord<'_>> {
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

    /// Makes sure that everything of a message is in memory.
    fn ready(&mut self, at: Position, out: &mut Operations) -> Found {
        let at = self.state.tables.place(at);
        if self.cache.large(at).is_none() {
            let found = self.ready_record(at, 0, out);
            if found != Found::Ready {
                return found;
            }
        }
        let Some(record) = self.record(at) else { return Found::Lost };
        let is_fragmented = record.is_fragmented();
        let lender = match record.names {
            Names::At(lender) => Some(lender),
            Names::Here(..) => None,
        };
        if is_fragmented {
            let found = self.assemble(at, out);
            if found != Found::Ready {
                return found;
            }
        }
        match lender {
            Some(lender) => self.ready_names(position(generation(at), lender), out),
            None => Found::Ready,
        }
    }

    fn ready_names(&mut self, lender: Position, out: &mut Operations) -> Found {
        if self.cache.names(lender).is_some() {
            return Found::Ready;
        }
        let found = self.ready_record(lender, 0, out);
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

    /// Puts the fragments of a message together, one after the other.
    fn assemble(&mut self, at: Position, out: &mut Operations) -> Found {
        if self.cache.large(at).is_none() {
            let (Some(payload), Some(record)) =
                (self.payload(at, record::KIND_MESSAGE), self.record(at))
            else {
                return Found::Lost;
            };
            let large = Large {
                first: payload.to_vec(),
                body: record.body.to_vec(),
                total: record.body_bytes as usize,
                generation: generation(at),
            };
            self.cache.put_large(at, large);
        }
        while let Some(large) = self.cache.large(at)
            && large.body.len() < large.total
        {
            let part = position(large.generation + 1, FIRST_RECORD);
            let hint = large.total - large.body.len() + RECORD_HEADER_BYTES;
            let found = self.ready_record(part, hint, out);
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
            large.body.extend_from_slice(&payload);
            large.generation += 1;
        }
        Found::Ready
    }

    /// Makes sure that the record at `at` is in memory and whole. `hint` bytes are wanted.
    fn ready_record(&mut self, at: Position, hint: usize, out: &mut Operations) -> Found {
        if self.log.read(at).is_some_and(|bytes| record::peek(bytes).is_some()) {
            return Found::Ready;
        }
        if self.failed_reads.remove(&at) {
            return Found::Lost;
        }
        let mut needed = RECORD_HEADER_BYTES.max(hint.min(self.settings.segment_bytes as usize));
        if let Some(bytes) = self.cache.read(at)
            && bytes.len() >= RECORD_HEADER_BYTES
        {
            let Some((_, length)) = record::peek(bytes) else { return self.lost(at, 0) };
            if let Some(whole) = bytes.get(..length) {
                let seed = seed(self.settings.log, generation(at), offset(at));
                if record::decode(whole, seed).is_none() {
                    return self.lost(at, length);
                }
                self.cache.touch(at);
                return Found::Ready;
            }
            needed = length;
        }
        if self.cache.is_pending(at, needed.min(self.readable(at))) {
            return Found::Pending;
        }
        let readable = self.readable(at);
        let needed = if hint > 0 { needed.min(readable) } else { needed };
        if readable < needed {
            return self.lost(at, readable);
        }
        let Some(slot) = self.log.segments.get(&generation(at)).and_then(|found| found.slot) else {
            return self.lost(at, 0);
        };
        let length = needed.max(self.settings.read_ahead_bytes).min(readable);
        let file = File::Segment(self.settings.log, slot);
        let id = out.push(Action::Read { file, offset: offset(at).into(), length });
        self.cache.start(id, at, length);
        Found::Pending
    }

    /// Bytes of the segment behind `at` that are written.
    fn readable(&self, at: Position) -> usize {
        let written = self.log.written();
        let end = match self.log.segments.get(&generation(at)) {
            Some(_) if generation(at) == generation(written) => offset(written),
            Some(segment) => segment.used_bytes,
            None => 0,
        };
        end.saturating_sub(offset(at)) as usize
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

    pub(super) fn read_failed(&mut self, start: Position) {
        self.failed_reads.insert(start);
    }
}
