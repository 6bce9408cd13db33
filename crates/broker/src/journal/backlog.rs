//! One queue's part of its log.

use alloc::vec::Vec;

use lepus_base::{Instant, Now, Position};
use lepus_store::disk::Operations;
use lepus_store::{AppendError, Fetch, LEVEL_TRANSIENT, Lane, LaneSlot, Lookup, Place, Store};

use super::{Log, READERS_MAX, Reader};
use crate::entry::{Entry, Place as EntryPlace, Ticket};
use crate::message::{Layout, MessageView};
use crate::queue::{Found, QueueLog};

/// Entries in windows of all queues of a shard above which windows are kept short.
const SHARD_ENTRIES_MAX: usize = 256 * 1024;
/// Entries fetched at once.
const FETCH_ENTRIES: usize = 256;
/// The same while windows are kept short.
const SHORT_FETCH_ENTRIES: usize = 16;

/// What a queue does with its log. Whatever waits for the disk is remembered under its reader.
#[derive(Debug)]
pub struct Backlog<'a> {
    pub(super) log: &'a mut Log,
    pub(super) windows: &'a mut usize,
    pub(super) fetched: &'a mut Vec<lepus_store::Entry>,
    pub(super) operations: &'a mut Operations,
    pub(super) now: Now,
    pub(super) reader: Reader,
}

impl Backlog<'_> {
    /// Whether everything in a lane was fetched: what is appended next may be passed.
    pub(crate) fn is_fetched(&self, lane: LaneSlot) -> bool {
        self.log.store.is_fetched(lane)
    }

    /// As [`QueueLog::fetch`], as the log has them and for no window.
    pub(crate) fn list(
        &mut self,
        lane: LaneSlot,
        each: impl FnMut(&lepus_store::Entry),
    ) -> (usize, Fetch, bool) {
        let result = self.fetch_some(lane, FETCH_ENTRIES);
        self.fetched.iter().for_each(each);
        (self.fetched.len(), result, self.log.store.is_fetched(lane))
    }

    fn fetch_some(&mut self, lane: LaneSlot, count: usize) -> Fetch {
        self.fetched.clear();
        let result = self.log.store.fetch(lane, count, self.fetched, self.operations);
        if result == Fetch::Pending && self.fetched.is_empty() {
            self.log.awaited.insert(lane, self.reader);
        }
        result
    }
}

impl QueueLog for Backlog<'_> {
    fn lane(&mut self, priority: u8, spilled: bool) -> LaneSlot {
        let level = u16::from(priority) | if spilled { LEVEL_TRANSIENT } else { 0 };
        self.log.store.lane(Lane { queue: self.reader.1, level })
    }

    fn next_seq(&self) -> u64 {
        let store = &self.log.store;
        let lanes = store.lanes_of(self.reader.1);
        lanes.into_iter().map(|slot| store.next_seq(slot)).max().unwrap_or(0)
    }

    fn has_window_room(&self) -> bool {
        *self.windows < SHARD_ENTRIES_MAX
    }

    fn window(&mut self, lane: LaneSlot) {
        *self.windows += 1;
        self.pass(lane);
    }

    fn pass(&mut self, lane: LaneSlot) {
        self.log.store.skip_fetch(lane);
    }

    fn add_to_windows(&mut self, count: usize) {
        *self.windows += count;
    }

    fn forget(&mut self, count: usize) {
        *self.windows = self.windows.saturating_sub(count);
    }

    fn fetch(
        &mut self,
        (priority, spilled): (u8, bool),
        lane: LaneSlot,
        mut each: impl FnMut(Entry),
    ) -> (usize, Fetch, bool) {
        let count = if self.has_window_room() { FETCH_ENTRIES } else { SHORT_FETCH_ENTRIES };
        let result = self.fetch_some(lane, count);
        let found = self.fetched.len();
        *self.windows += found;
        for entry in self.fetched.drain(..) {
            each(self.log.entry(self.now, lane, (priority, spilled), &entry));
        }
        (found, result, self.log.store.is_fetched(lane))
    }

    fn fetch_at(
        &mut self,
        (priority, spilled): (u8, bool),
        lane: LaneSlot,
        from: u64,
        count: usize,
        mut each: impl FnMut(Entry),
    ) -> (usize, Fetch, u64) {
        self.fetched.clear();
        let (result, end) =
            self.log.store.fetch_at(lane, from, count, self.fetched, self.operations);
        if result == Fetch::Pending && self.fetched.is_empty() {
            self.log.awaited.insert(lane, self.reader);
        }
        let found = self.fetched.len();
        *self.windows += found;
        for entry in self.fetched.drain(..) {
            each(self.log.entry(self.now, lane, (priority, spilled), &entry));
        }
        (found, result, end)
    }

    fn announce<'e>(&mut self, entries: impl Iterator<Item = &'e Entry>) -> usize {
        self.fetched.clear();
        self.fetched.extend(entries.filter_map(|entry| {
            Some(lepus_store::Entry {
                seq: entry.seq,
                position: entry.place.position()?,
                bytes: entry.bytes,
                deadline_millis: 0,
            })
        }));
        if self.fetched.is_empty() {
            return 0;
        }
        self.log.store.prefetch(self.fetched, self.operations)
    }

    fn lookup(&mut self, at: Position, bytes: u32) -> Found {
        self.log.lookup(at, bytes, self.reader, self.operations)
    }

    fn settle(&mut self, lane: LaneSlot, entry: &Entry) {
        self.log.settle(lane, entry);
    }

    fn set_aside(&mut self, lane: LaneSlot, entry: &Entry) {
        self.log.set_aside(lane, entry);
    }

    fn mark_delivered(&mut self, lane: LaneSlot, seq: u64) {
        if self.log.takes() {
            self.log.store.mark_delivered(lane, seq);
        }
    }

    fn purge(&mut self, lane: LaneSlot, end: u64, kept: &[u64]) {
        if self.log.takes() {
            self.log.store.purge(lane, end, kept);
            self.log.has_work = true;
        }
    }

    fn purge_unfetched(&mut self, lane: LaneSlot, end: u64) -> bool {
        if !self.log.takes() {
            return true;
        }
        self.log.has_work = true;
        self.log.store.purge_unfetched(lane, end)
    }

    fn append(
        &mut self,
        view: &MessageView<'_>,
        lane: LaneSlot,
        ticket: &Ticket,
    ) -> Result<Position, AppendError> {
        let place = place_of(self.now, lane, ticket);
        self.log.append(view, &[place])
    }
}

impl Log {
    /// What a queue keeps of an entry.
    fn entry(
        &self,
        now: Now,
        lane: LaneSlot,
        (priority, spilled): (u8, bool),
        entry: &lepus_store::Entry,
    ) -> Entry {
        Entry {
            seq: entry.seq,
            deadline: instant_of(now, entry.deadline_millis),
            place: EntryPlace::logged(entry.position, spilled),
            bytes: entry.bytes,
            delivery_count: 0,
            priority,
            redelivered: self.store.is_redelivered(lane, entry.seq),
        }
    }

    /// Makes sure that a message is in memory; otherwise `reader` is woken when that may be so.
    pub(crate) fn lookup(
        &mut self,
        at: Position,
        bytes: u32,
        reader: Reader,
        operations: &mut Operations,
    ) -> Found {
        self.message(at, bytes, reader, operations).map_or_else(|found| found, |_| Found::Ready)
    }

    /// A message, or why it is not there; `reader` is woken when it may be.
    #[inline]
    pub(crate) fn message(
        &mut self,
        at: Position,
        bytes: u32,
        reader: Reader,
        operations: &mut Operations,
    ) -> Result<MessageView<'_>, Found> {
        if self.readers.len() >= READERS_MAX && self.store.message(at).is_none() {
            // One that tries several messages waits once.
            if self.waiting_readers.back() != Some(&reader) {
                self.waiting_readers.push_back(reader);
            }
            return Err(Found::Pending);
        }
        match self.store.lookup_sized(at, bytes, operations) {
            Lookup::Found(message) => Ok(MessageView {
                exchange: message.exchange,
                routing_key: message.routing_key,
                properties: message.properties,
                body: message.body,
                layout: Layout::Parts,
            }),
            Lookup::Pending => {
                self.readers.insert((at, reader));
                Err(Found::Pending)
            }
            Lookup::Lost => Err(Found::Lost),
        }
    }

    /// A message that a look-up just found.
    pub(crate) fn found(&self, at: Position) -> Option<MessageView<'_>> {
        let message = self.store.message(at)?;
        Some(MessageView {
            exchange: message.exchange,
            routing_key: message.routing_key,
            properties: message.properties,
            body: message.body,
            layout: Layout::Parts,
        })
    }

    /// A message of a queue is done with.
    pub(crate) fn settle(&mut self, lane: LaneSlot, entry: &Entry) {
        if self.takes()
            && let Some(position) = entry.place.position()
        {
            self.store.settle(lane, entry.seq, position, entry.bytes);
        }
    }

    /// A message of a queue is damaged: it stays, and nobody is given it.
    pub(crate) fn set_aside(&mut self, lane: LaneSlot, entry: &Entry) {
        self.store.set_aside(lane, entry.seq, entry.bytes);
    }

    /// The store itself, to look at.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }
}

/// The place of a message that is to be appended.
pub(crate) fn place_of(now: Now, lane: LaneSlot, ticket: &Ticket) -> Place {
    Place { lane, seq: ticket.seq, deadline_millis: millis_of(now, ticket.deadline) }
}

/// A deadline by the wall clock, which is the one that survives a restart; 0 for never.
fn millis_of(now: Now, deadline: Instant) -> u64 {
    if deadline == Instant::NEVER {
        return 0;
    }
    let left = deadline.0.saturating_sub(now.instant.0).div_ceil(1_000_000);
    now.wall_millis.saturating_add(left).max(1)
}

/// The deadline by this run's clock.
fn instant_of(now: Now, millis: u64) -> Instant {
    match millis.checked_sub(now.wall_millis) {
        _ if millis == 0 => Instant::NEVER,
        Some(left) => Instant(now.instant.0.saturating_add(left.saturating_mul(1_000_000))),
        None => {
            let late = (now.wall_millis - millis).saturating_mul(1_000_000);
            Instant(now.instant.0.saturating_sub(late))
        }
    }
}
