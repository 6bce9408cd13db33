//! Messages read back from segments: blocks of what was read, within a budget.
//!
//! How much is read at once follows from what was read before. A record that lies alone is read
//! alone; where a read continues an earlier one (of whichever queue), a part of the length read so
//! far is read ahead. So a queue whose messages lie far apart reads about its own bytes, and
//! queues that are drained side by side share long reads.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Bound;
use lepus_base::{Position, Slab};

use crate::disk::OperationId;

/// Names remembered in one half of the table; the older half is forgotten when the newer is full.
const NAMES_MAX: usize = 2048;
/// Blocks kept whatever the budget: a message and the record that lends it its names.
const BLOCKS_MIN: usize = 2;
/// Reads after which a block is no longer kept for who was told of it: a queue may have gone.
const KEPT_READS: u64 = 64;
/// Places that the table of blocks begins with: one that grows from less than 1,032 bytes may lie, and stay,
/// in memory of another thread, on another node.
const SLOTS_MIN: usize = 64;
/// Fragmented messages put together at once at most.
const LARGE_MAX: usize = 8;
/// A gap between two reads that still counts as following each other, at least: a page. The system reads whole pages, so
/// that what lies closer together is read from the disk in any case.
const GAP_BYTES_MIN: usize = 4096;
/// Out of so many bytes that follow each other one is read ahead.
const AHEAD_PART: u64 = 4;
/// A read ahead ends where a block of at least this length begins.
const WALL_BYTES_MIN: usize = 4096;

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// Bytes read in one piece that end where this begins.
    run: u64,
    /// Bytes that nobody has looked up so far, about.
    unread: usize,
    /// How far somebody has come who looks up what is in it.
    reached: usize,
    /// Passed over once when there was no room.
    is_spared: bool,
    /// What follows was asked for, or there was no reason to.
    is_continued: bool,
}

/// A read on its way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    length: usize,
    run: u64,
}

/// A fragmented message, as far as it is put together.
#[derive(Debug, Default)]
pub(crate) struct Large {
    /// Payload of its first record.
    pub first: Vec<u8>,
    pub body: Vec<u8>,
    /// What was looked up for it.
    pub asked: Position,
    /// Length of the whole body.
    pub total: usize,
    /// The segment of its last fragment so far.
    pub generation: u32,
}

/// What is there of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// All of it.
    Ready,
    /// All of it is there or on its way; the read that begins here is waited for first.
    Pending(Position),
    /// Some of it is neither.
    Gap,
}

/// Who waits: the read, the position that was looked up, the record that has to be read for it and
/// how much of that.
type Wait = (Position, Position, Position, usize);

/// Exchange and routing key in one piece, and the length of the first.
type StoredNames = (u8, Box<[u8]>);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Places in `slots` by start. No block lies within another.
    blocks: BTreeMap<Position, usize>,
    slots: Slab<Block>,
    /// Where the block that was found last begins, and ends or the next one begins, and its place:
    /// neighbours are looked up one after the other, and each several times.
    found: Cell<(Position, Position, usize)>,
    bytes: usize,
    /// Of these, the ones that lie ahead of everybody who looks up what is in their blocks.
    unreached: usize,
    /// Starts of blocks in the order in which they are to go; some are gone.
    order: VecDeque<Position>,
    /// Where the block begins that stays until it is looked up, and how many reads there were before. Otherwise readers
    /// that are told of their messages in turn could push them out of each other's reach for ever.
    kept: Option<(Position, u64)>,
    /// Reads by start; none lies within another.
    pending: BTreeMap<Position, Pending>,
    operations: BTreeMap<OperationId, (Position, Pending)>,
    /// Bytes of reads that failed and are to be made again, by their start.
    stalled: BTreeMap<Position, usize>,
    pending_bytes: usize,
    waits: BTreeSet<Wait>,
    names: [BTreeMap<Position, StoredNames>; 2],
    large: BTreeMap<Position, Large>,
    /// Those looked up for which there was no room among them.
    large_waits: BTreeSet<Position>,
    /// The one that was told last that there is.
    large_woken: Option<Position>,
    /// One has left them since.
    has_large_left: bool,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Reads so far.
    pub reads: u64,
}

/// What a finished read leads to.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// Positions that were looked up and waited for it, each with the record it needed of it.
    pub asked: Vec<(Position, Position)>,
    /// The records they needed, if the read failed.
    pub failed: Vec<Position>,
}

fn end(start: Position, length: usize) -> Position {
    Position(start.0 + length as u64)
}

impl Cache {
    /// Start and place of the last block that has something at `at`.
    #[inline]
    fn block_at(&self, at: Position) -> Option<(Position, usize)> {
        let (start, until, slot) = self.found.get();
        if start <= at && at < until { Some((start, slot)) } else { self.search(at) }
    }

    fn search(&self, at: Position) -> Option<(Position, usize)> {
        let (&start, &slot) = self.blocks.range(..=at).next_back()?;
        let until = end(start, self.slots[slot].bytes.len());
        if at >= until {
            return None;
        }
        let next = self.blocks.range((Bound::Excluded(at), Bound::Unbounded)).next();
        let until = next.map_or(until, |(&next, _)| until.min(next));
        self.found.set((start, until, slot));
        Some((start, slot))
    }

    /// What was read at `at`, as far as its block reaches.
    pub(crate) fn read(&self, at: Position) -> Option<&[u8]> {
        let (start, slot) = self.block_at(at)?;
        self.slots.get(slot)?.bytes.get((at.0 - start.0) as usize..)
    }

    /// What is there of `length` bytes at `at`.
    pub(crate) fn cover(&self, at: Position, length: usize) -> Cover {
        let (mut next, until) = (at, end(at, length));
        let mut waits_for = None;
        while next < until {
            if let Some(part) = self.read(next) {
                next = end(next, part.len());
                continue;
            }
            let read = self.pending.range(..=next).next_back();
            let Some((&start, read)) =
                read.filter(|(start, read)| end(**start, read.length) > next)
            else {
                return Cover::Gap;
            };
            waits_for.get_or_insert(start);
            next = end(start, read.length);
        }
        waits_for.map_or(Cover::Ready, Cover::Pending)
    }

    /// Whether nothing of what follows is there or on its way. A part of a page alone is not worth a read: whoever needs it
    /// asks for it.
    pub(crate) fn is_gap(&self, next: Position) -> bool {
        let near = next..end(next, GAP_BYTES_MIN);
        self.cover(next, 1) == Cover::Gap
            && self.blocks.range(near.clone()).next().is_none()
            && self.pending.range(near).next().is_none()
    }

    /// Puts `length` bytes that are covered by several blocks into one.
    pub(crate) fn join(&mut self, at: Position, length: usize) {
        if self.read(at).is_none_or(|bytes| bytes.len() >= length) {
            return;
        }
        let mut bytes = Vec::with_capacity(length);
        while let Some(part) = self.read(end(at, bytes.len()))
            && bytes.len() < length
        {
            let wanted = part.len().min(length - bytes.len());
            bytes.extend_from_slice(&part[..wanted]);
        }
        self.insert(at, bytes, 0, true);
    }

    /// Marks a record as looked up. Where to go on reading, if this reader wants more.
    pub(crate) fn touch(&mut self, at: Position, length: usize) -> Option<Position> {
        let (start, slot) = self.block_at(at)?;
        let block = self.slots.get_mut(slot)?;
        if self.kept.is_some_and(|(kept, _)| kept == start) {
            self.kept = None;
        }
        block.unread -= length.min(block.unread);
        let passed = (at.0 - start.0) as usize + length;
        let reached = passed.min(block.bytes.len());
        self.unreached -= reached.saturating_sub(block.reached);
        block.reached = block.reached.max(reached);
        if block.is_continued || passed < block.bytes.len() / 2 {
            return None;
        }
        block.is_continued = true;
        Some(end(start, block.bytes.len()))
    }

    /// Bytes read in one piece that end at `at`, or shortly before.
    fn run_before(&self, at: Position, gap: usize) -> u64 {
        let block = self.blocks.range(..at).next_back();
        let block = block.map(|(start, &slot)| (start, &self.slots[slot]));
        let block = block.map(|(start, block)| (start, block.bytes.len(), block.run));
        let read = self.pending.range(..at).next_back();
        let read = read.map(|(start, read)| (start, read.length, read.run));
        let run = |found: Option<(&Position, usize, u64)>| {
            let (start, length, run) = found?;
            let reached = end(*start, length).0;
            (reached + gap as u64 >= at.0).then(|| run + at.0.min(reached) - start.0)
        };
        run(block).max(run(read)).unwrap_or(0)
    }

    /// The gap after which a record of this length still follows the one before.
    pub(crate) fn gap(length: usize) -> usize {
        (length / AHEAD_PART as usize).max(GAP_BYTES_MIN)
    }

    /// How many bytes more than the `length` that are needed at `at` should be read, and the
    /// bytes before that it continues.
    pub(crate) fn ahead(&self, at: Position, length: usize, ahead_max: usize) -> (usize, u64) {
        let run = self.run_before(at, Self::gap(length));
        let ahead = ((run / AHEAD_PART) as usize).min(ahead_max);
        // Less than another record is of no use.
        let ahead = if ahead < length { 0 } else { ahead };
        let from = end(at, length);
        let until = end(from, ahead);
        let is_wall = |slot: usize| self.slots[slot].bytes.len() >= WALL_BYTES_MIN;
        let block = self.blocks.range(from..until).find(|(_, slot)| is_wall(**slot));
        let read = self.pending.range(from..until).find(|(_, read)| read.length >= WALL_BYTES_MIN);
        let wall = [block.map(|(start, _)| start), read.map(|(start, _)| start)];
        let wall = wall.into_iter().flatten().min().map_or(until, |start| *start);
        ((wall.0 - from.0) as usize, run)
    }

    /// Bytes on their way or ahead of everybody.
    pub(crate) fn outstanding(&self) -> usize {
        self.pending_bytes + self.unreached
    }

    /// A read begins.
    pub(crate) fn start(&mut self, id: OperationId, start: Position, length: usize, run: u64) {
        let until = end(start, length);
        while let Some((&inner, _)) = self
            .pending
            .range(start..until)
            .find(|(inner, read)| end(**inner, read.length) <= until)
        {
            self.pending.remove(&inner);
        }
        let read = Pending { length, run };
        self.pending.insert(start, read);
        self.operations.insert(id, (start, read));
        self.pending_bytes += length;
        self.reads += 1;
    }

    /// Somebody looked up `asked`, and needs `length` bytes at `record` for it, from this read.
    pub(crate) fn wait(
        &mut self,
        read: Position,
        asked: Position,
        record: Position,
        length: usize,
    ) {
        self.waits.insert((read, asked, record, length));
    }

    /// Where the read begins; `None` if it is somebody else's.
    pub(crate) fn reading(&self, id: OperationId) -> Option<Position> {
        self.operations.get(&id).map(|(start, _)| *start)
    }

    fn waits_of(&self, start: Position) -> impl Iterator<Item = &Wait> {
        let first = (start, Position(0), Position(0), 0);
        self.waits.range(first..).take_while(move |wait| wait.0 == start)
    }

    /// Whether somebody waits for the read that begins here.
    pub(crate) fn is_awaited(&self, start: Position) -> bool {
        self.waits_of(start).next().is_some()
    }

    /// Whether a read is to bring no more than `length` bytes, all of one record that somebody waits for.
    pub(crate) fn is_alone(&self, id: OperationId, length: usize) -> bool {
        let Some(&(start, read)) = self.operations.get(&id) else { return false };
        read.length <= length && self.waits_of(start).all(|wait| wait.2 == start)
    }

    /// Whether the read that begins here failed and is to be made again.
    pub(crate) fn is_stalled(&self, start: Position) -> bool {
        self.stalled.contains_key(&start)
    }

    /// A read failed and is to be made again: who waits for it goes on waiting.
    pub(crate) fn stall(&mut self, id: OperationId) {
        if let Some((start, read)) = self.operations.remove(&id) {
            *self.stalled.entry(start).or_default() += read.length;
        }
    }

    /// A read that failed is made again in another way. Who waited for it: what was looked up, the
    /// record that was needed for it and how much of that.
    pub(crate) fn end_stalled(&mut self, start: Position) -> Vec<(Position, Position, usize)> {
        if let Some(length) = self.stalled.remove(&start) {
            self.pending_bytes -= length;
            self.pending.remove(&start);
        }
        let waits: Vec<Wait> = self.waits_of(start).copied().collect();
        for wait in &waits {
            self.waits.remove(wait);
        }
        waits.into_iter().map(|(_, asked, record, length)| (asked, record, length)).collect()
    }

    /// Takes what was read; `None` if the read was somebody else's.
    pub(crate) fn finish(
        &mut self,
        id: OperationId,
        bytes: Option<Vec<u8>>,
        budget: usize,
    ) -> Option<Finished> {
        let (start, read) = self.operations.remove(&id)?;
        self.pending_bytes -= read.length;
        if self.pending.get(&start).is_some_and(|found| found.length == read.length) {
            self.pending.remove(&start);
        }
        let mut finished = Finished::default();
        let length = bytes.as_ref().map_or(0, Vec::len);
        let first = (start, Position(0), Position(0), 0);
        while let Some(&wait) = self.waits.range(first..).next()
            && wait.0 == start
        {
            self.waits.remove(&wait);
            let (_, asked, record, needed) = wait;
            finished.asked.push((asked, record));
            // The file may be shorter than it should be.
            let is_short = length < read.length && end(record, needed) > end(start, length);
            if bytes.is_none() || is_short {
                finished.failed.push(record);
            }
        }
        if let Some(bytes) = bytes {
            self.bytes_read += bytes.len() as u64;
            self.evict(budget.saturating_sub(bytes.len()));
            self.insert(start, bytes, read.run, read.run == 0);
        }
        Some(finished)
    }

    fn insert(&mut self, start: Position, bytes: Vec<u8>, run: u64, is_continued: bool) {
        let until = end(start, bytes.len());
        let before = self.blocks.range(..=start).next_back();
        let reaches = |(at, slot): (&Position, &usize)| end(*at, self.slots[*slot].bytes.len());
        if before.is_some_and(|block| reaches(block) >= until) {
            return;
        }
        let inner = self.blocks.range(start..until).filter(|block| reaches(*block) <= until);
        for inner in inner.map(|(&at, _)| at).collect::<Vec<_>>() {
            self.remove(inner);
        }
        self.found.take();
        let unread = bytes.len();
        self.bytes += unread;
        self.unreached += unread;
        let block = Block { bytes, run, unread, reached: 0, is_spared: false, is_continued };
        if self.slots.capacity() == 0 {
            self.slots.reserve(SLOTS_MIN);
        }
        let slot = self.slots.insert(block);
        self.blocks.insert(start, slot);
        self.order.push_back(start);
    }

    fn remove(&mut self, start: Position) {
        self.found.take();
        self.kept = self.kept.filter(|(kept, _)| *kept != start);
        if let Some(slot) = self.blocks.remove(&start) {
            let block = self.slots.remove(slot);
            self.bytes -= block.bytes.len();
            self.unreached -= block.bytes.len() - block.reached;
        }
    }

    /// Somebody is told that a record is there: its block stays until it is looked up, unless another one does.
    pub(crate) fn keep(&mut self, at: Position) {
        let is_over = |(_, reads)| self.reads - reads > KEPT_READS;
        if self.kept.is_none_or(is_over) {
            self.kept = self.block_at(at).map(|(start, _)| (start, self.reads));
        }
    }

    /// Makes room: the oldest first, but each block that is still to be looked up only the second
    /// time around, and one not at all of which somebody was told.
    fn evict(&mut self, budget: usize) {
        while self.bytes > budget
            && self.blocks.len() >= BLOCKS_MIN + usize::from(self.kept.is_some())
        {
            let Some(start) = self.order.pop_front() else { break };
            let Some(&slot) = self.blocks.get(&start) else { continue };
            let block = &mut self.slots[slot];
            let is_kept = self.kept.is_some_and(|(kept, _)| kept == start);
            if is_kept || (!block.is_spared && block.unread > block.bytes.len() / 8) {
                block.is_spared = true;
                self.order.push_back(start);
                continue;
            }
            self.remove(start);
        }
        // Starts of blocks that went into others.
        if self.order.len() > 2 * self.blocks.len() + 64 {
            let blocks = &self.blocks;
            let mut seen = BTreeSet::new();
            self.order.retain(|start| blocks.contains_key(start) && seen.insert(*start));
        }
    }

    /// Exchange and routing key defined by the record at `at`.
    pub(crate) fn names(&self, at: Position) -> Option<(&[u8], &[u8])> {
        let (exchange, names) = self.names.iter().find_map(|half| half.get(&at))?;
        names.split_at_checked((*exchange).into())
    }

    pub(crate) fn put_names(&mut self, at: Position, exchange: &[u8], routing_key: &[u8]) {
        if self.names[0].len() >= NAMES_MAX {
            self.names.swap(0, 1);
            self.names[0].clear();
        }
        let names = [exchange, routing_key].concat().into_boxed_slice();
        self.names[0].insert(at, (exchange.len() as u8, names));
    }

    pub(crate) fn large(&self, at: Position) -> Option<&Large> {
        self.large.get(&at)
    }

    pub(crate) fn large_mut(&mut self, at: Position) -> Option<&mut Large> {
        self.large.get_mut(&at)
    }

    /// Whether there is room for another fragmented message of `total` bytes: a single one always has it.
    pub(crate) fn has_large_room(&self, total: usize, bytes_max: usize) -> bool {
        let others: usize = self.large.values().map(|large| large.total).sum();
        self.large.is_empty() || (others + total <= bytes_max && self.large.len() < LARGE_MAX)
    }

    /// Whoever looked up `asked` is told when others are done.
    pub(crate) fn wait_for_large(&mut self, asked: Position) {
        self.large_waits.insert(asked);
    }

    pub(crate) fn put_large(&mut self, at: Position, large: Large) {
        self.large.insert(at, large);
    }

    pub(crate) fn drop_large(&mut self, at: Position) {
        self.large.remove(&at);
    }

    /// Forgets fragmented messages that are whole: whoever looked one up has it by now. Who may look
    /// again, because there is room; one at a time, since each reads its first part again.
    pub(crate) fn end_cycle(&mut self) -> Option<Position> {
        if self.large.is_empty() && self.large_waits.is_empty() {
            return None;
        }
        let before = self.large.len();
        self.large.retain(|_, large| large.body.len() < large.total);
        if self.large_waits.is_empty() {
            return None;
        }
        // What nobody waits for any more is put together again when somebody asks.
        let waits = &self.waits;
        let is_read = |asked: Position| waits.iter().any(|wait| wait.1 == asked);
        self.large.retain(|_, large| is_read(large.asked));
        self.has_large_left |= self.large.len() < before;
        let is_begun = |asked: Position| self.large.values().any(|large| large.asked == asked);
        if self.large_woken.is_some_and(|asked| is_read(asked) && !is_begun(asked)) {
            return None;
        }
        self.large_woken = None;
        if self.large.is_empty() || core::mem::take(&mut self.has_large_left) {
            self.large_woken = self.large_waits.pop_first();
        }
        self.large_woken
    }

    /// Whether somebody may be woken by the end of the cycle without anything else happening.
    pub(crate) fn wakes(&self) -> bool {
        !self.large_waits.is_empty() && self.large.is_empty() && self.waits.is_empty()
    }

    /// Memory of fragmented messages.
    pub(crate) fn large_bytes(&self) -> usize {
        self.large.values().map(|large| large.first.capacity() + large.body.capacity()).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let names = self.names[0].len() + self.names[1].len();
        self.bytes
            + self.large_bytes()
            + names * 96
            + self.slots.capacity() * 64
            + self.blocks.len() * 32
    }
}
