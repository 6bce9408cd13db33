//! The index of one lane: which messages live and where they lie, in pages.
//!
//! The page at the end is open; closed ones are in memory or on disk. What is settled is kept as
//! runs, only for pages that still hold something: a page whose last entry is settled goes.

mod rewrite;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::checksum::crc;
use crate::page::{Builder, Cursor, Entry, PAGE_HEADER_BYTES, PAGE_PAYLOAD_BYTES};
use crate::record::Lane;
use crate::runs::RunSet;
use crate::varint::{Reader, put};

pub(crate) use rewrite::{Folded, Located, Part};

/// Bytes of a page on disk.
pub const PAGE_BYTES: usize = PAGE_HEADER_BYTES + PAGE_PAYLOAD_BYTES;

/// Runs of marks above which some are joined.
const MARK_RUNS_MAX: usize = 1 << 16;

/// The runs of the page `slot` of the index file; `None` if it is damaged.
pub(crate) fn page_runs(slot: u32, bytes: &[u8]) -> Option<&[u8]> {
    let length = usize::from(u16::from_le_bytes(*bytes.get(4..)?.first_chunk::<2>()?));
    let covered = bytes.get(4..PAGE_HEADER_BYTES + length)?;
    let sum = u32::from_le_bytes(*bytes.first_chunk::<4>()?);
    (sum == crc(slot, covered)).then(|| &bytes[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + length])
}

/// The lane that has the page `place` of the index file, and the page's first number, as the page itself
/// says; `None` if it is damaged.
pub(crate) fn page_name(place: u32, bytes: &[u8]) -> Option<(Lane, u64)> {
    page_runs(place, bytes)?;
    let mut reader = Reader(bytes.get(4..)?);
    let level = (reader.u32()? >> 16) as u16;
    let queue = lepus_base::QueueId(reader.u64()?);
    Some((Lane { queue, level }, reader.u64()?))
}

/// Where a closed page is.
#[derive(Clone, Debug)]
pub(crate) enum PageState {
    /// Only in memory: header (blank) and runs.
    Memory(Vec<u8>),
    /// Being written to a slot.
    Writing(u32, Arc<Vec<u8>>),
    /// Only on disk.
    Disk(u32),
    /// Read back.
    Loaded(u32, Vec<u8>),
    /// On disk, and damaged.
    Lost(u32),
    /// Damaged, and being put together from the log.
    Rebuilding(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub first: u64,
    pub last: u64,
    pub count: u32,
    /// Bytes of its runs.
    pub length: u16,
    settled: u32,
    pub state: PageState,
}

impl Page {
    fn runs(&self) -> Option<&[u8]> {
        let range = PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + usize::from(self.length);
        match &self.state {
            PageState::Memory(bytes) | PageState::Loaded(_, bytes) => bytes.get(range),
            PageState::Writing(_, bytes) => bytes.get(range),
            PageState::Disk(_) | PageState::Rebuilding(_) => None,
            PageState::Lost(_) => Some(&[]),
        }
    }

    pub(crate) fn slot(&self) -> Option<u32> {
        match self.state {
            PageState::Memory(_) => None,
            PageState::Writing(slot, _)
            | PageState::Disk(slot)
            | PageState::Loaded(slot, _)
            | PageState::Lost(slot)
            | PageState::Rebuilding(slot) => Some(slot),
        }
    }
}

impl Page {
    /// Whether reading it makes sense.
    pub(crate) fn is_readable(&self) -> bool {
        matches!(self.state, PageState::Disk(_))
    }
}

/// Why reading a lane stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Enough, or nothing more.
    Done,
    /// The page that begins with this number has to be read first.
    Page(u64),
}

/// What is known of a lane without taking it apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub lane: Lane,
    pub is_dropped: bool,
    pub next: u64,
    pub live: u64,
    pub live_bytes: u64,
    pub has_unaccounted: bool,
    /// Every entry below may have been delivered, as the checkpoint says that it is from.
    pub delivered_below: u64,
}

impl Summary {
    /// The beginning of an encoded lane that has nothing to account for.
    pub(crate) fn peek(bytes: &[u8]) -> Option<Summary> {
        Summary::read(&mut Reader(bytes))
    }

    fn read(reader: &mut Reader<'_>) -> Option<Summary> {
        let queue = lepus_base::QueueId(reader.varint()?);
        let level = u16::try_from(reader.varint()?).ok()?;
        Some(Summary {
            lane: Lane { queue, level },
            is_dropped: reader.varint()? != 0,
            next: reader.varint()?,
            live: reader.varint()?,
            live_bytes: reader.varint()?,
            has_unaccounted: false,
            delivered_below: 0,
        })
    }

    /// Reads over an encoded lane, which [`LaneIndex::decode`] can read then, but for the marks at
    /// its end; shows the first number of each page, and its place in the index file if it has one.
    pub(crate) fn skip_with(
        reader: &mut Reader<'_>,
        mut show: impl FnMut(u64, Option<u32>),
    ) -> Option<Summary> {
        let mut summary = Summary::read(reader)?;
        reader.varint32()?;
        skip_runs(reader)?;
        summary.has_unaccounted = skip_runs(reader)? > 0;
        Builder::skip(reader)?;
        for _ in 0..reader.varint()? {
            let first = reader.varint()?;
            first.checked_add(reader.varint()?)?;
            let (_count, _settled) = (reader.varint32()?, reader.varint32()?);
            let length = u16::try_from(reader.varint()?).ok()?;
            match reader.varint()? {
                0 => {
                    reader.bytes(length.into())?;
                    show(first, None);
                }
                place => show(first, Some(u32::try_from(place - 1).ok()?)),
            }
        }
        Some(summary)
    }
}

/// Appends a set to a checkpoint.
fn put_runs(out: &mut Vec<u8>, set: &RunSet) {
    put(out, set.runs() as u64);
    let mut last = 0;
    for (first, end) in set.iter() {
        put(out, first - last);
        put(out, end - first);
        last = end;
    }
}

fn read_runs(reader: &mut Reader<'_>) -> Option<RunSet> {
    let mut set = RunSet::default();
    let mut last = 0u64;
    for _ in 0..reader.varint()? {
        let first = last.checked_add(reader.varint()?)?;
        last = first.checked_add(reader.varint()?)?;
        set.insert(first, last);
    }
    Some(set)
}

/// Reads over a set; how many runs it has.
pub(crate) fn skip_runs(reader: &mut Reader<'_>) -> Option<u64> {
    let runs = reader.varint()?;
    let mut last = 0u64;
    for _ in 0..runs {
        last = last.checked_add(reader.varint()?)?.checked_add(reader.varint()?)?;
    }
    Some(runs)
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LaneIndex {
    pub lane: Lane,
    pages: VecDeque<Page>,
    tail: Builder,
    tail_settled: u32,
    next: u64,
    settled: RunSet,
    /// Settled too, but the counts of their segments do not know yet: their positions have to be
    /// read for that.
    unaccounted: RunSet,
    /// How many of those live as far as `live` knows; see [`LaneIndex::recount`].
    unaccounted_live: u64,
    /// Of those that live, which were delivered and came back.
    marks: RunSet,
    live: u64,
    live_bytes: u64,
    /// Of those that live, which cannot be read, and the bytes of their bodies: nobody is given them,
    /// and they are not settled.
    damaged: BTreeMap<u64, u32>,
    damaged_bytes: u64,
    fetch_from: u64,
    /// Entries below may be known to somebody, by the positions they had then.
    seen_below: u64,
    cursor: Option<Cursor>,
    /// The queue is gone; the lane goes when everything is accounted for.
    pub is_dropped: bool,
    /// On the list of lanes with something to account for.
    pub is_listed: bool,
    /// What [`LaneIndex::encode`] says has changed.
    is_changed: bool,
    /// What [`LaneIndex::memory_bytes`] was when that was asked for a sum over all lanes.
    weighed: usize,
}

impl LaneIndex {
    pub(crate) fn new(lane: Lane) -> LaneIndex {
        LaneIndex { lane, ..LaneIndex::default() }
    }

    /// The lowest sequence number not used so far.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Messages that live, not counting those whose settles are still to be accounted for, and those
    /// that are damaged.
    pub(crate) fn live(&self) -> u64 {
        self.live.saturating_sub(self.unaccounted_live + self.damaged.len() as u64)
    }

    /// Messages that live and are damaged.
    pub(crate) fn damaged(&self) -> usize {
        self.damaged.len()
    }

    /// An entry's message cannot be read: it is kept, and not given to anybody.
    pub(crate) fn set_aside(&mut self, seq: u64, bytes: u32) {
        if self.is_live(seq) && self.damaged.insert(seq, bytes).is_none() {
            self.damaged_bytes += u64::from(bytes);
        }
    }

    /// Damaged entries in `first..end` are gone.
    fn forget_damaged(&mut self, first: u64, end: u64) {
        while let Some((&seq, &bytes)) = self.damaged.range(first..end.max(first)).next() {
            self.damaged.remove(&seq);
            self.damaged_bytes -= u64::from(bytes);
        }
    }

    pub(crate) fn has_unaccounted(&self) -> bool {
        !self.unaccounted.is_empty()
    }

    /// Appends an entry; its number is at least [`LaneIndex::next`]. True if a page was closed.
    pub(crate) fn append(&mut self, entry: Entry) -> bool {
        self.is_changed = true;
        self.next = entry.seq + 1;
        self.live += 1;
        self.live_bytes += u64::from(entry.bytes);
        let closes = self.tail.is_full();
        if closes {
            // What is settled is kept only within pages.
            self.settled.remove(self.tail.last() + 1, entry.seq);
            self.close_tail();
        }
        self.tail.push(entry);
        closes
    }

    /// Whether what [`LaneIndex::encode`] says has changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.is_changed)
    }

    /// Numbers below `next` are used, by whatever.
    pub(crate) fn skip_to(&mut self, next: u64) {
        self.is_changed = true;
        self.next = self.next.max(next);
    }

    /// Numbers in `first..end` are of messages that the log still has, and that were settled before the lane
    /// was put together from it: without entries of their own, within pages and what the open page may grow
    /// over they would pass for live.
    pub(crate) fn settle_absent(&mut self, first: u64, end: u64) {
        self.skip_to(end);
        let index = self.pages.partition_point(|page| page.last < first);
        for page in self.pages.range(index..).take_while(|page| page.first < end) {
            self.settled.insert(first.max(page.first), end.min(page.last + 1));
        }
        if self.tail.count() > 0 && end > self.tail.first() {
            self.settled.insert(first.max(self.tail.first()), end);
        }
    }

    fn close_tail(&mut self) {
        let mut tail = core::mem::take(&mut self.tail);
        let (first, last, count) = (tail.first(), tail.last(), tail.count());
        let runs = tail.finish();
        let mut bytes = Vec::with_capacity(PAGE_HEADER_BYTES + runs.len());
        bytes.resize(PAGE_HEADER_BYTES, 0);
        bytes.extend_from_slice(runs);
        let length = runs.len() as u16;
        let state = PageState::Memory(bytes);
        let settled = core::mem::take(&mut self.tail_settled);
        self.pages.push_back(Page { first, last, count, length, settled, state });
    }

    /// The page an entry is in; `None` for the tail.
    fn page_of(&self, seq: u64) -> Option<usize> {
        if self.tail.count() > 0 && seq >= self.tail.first() {
            return None;
        }
        if self.pages.front().is_some_and(|page| seq <= page.last) {
            return Some(0);
        }
        self.pages.partition_point(|page| page.first <= seq).checked_sub(1)
    }

    fn holds(&self, seq: u64) -> bool {
        match self.page_of(seq) {
            Some(index) => (self.pages[index].first..=self.pages[index].last).contains(&seq),
            None => self.tail.count() > 0 && (self.tail.first()..=self.tail.last()).contains(&seq),
        }
    }

    /// Whether the entry, which was appended once, is not settled.
    pub(crate) fn is_live(&self, seq: u64) -> bool {
        !self.is_dropped
            && self.holds(seq)
            && !self.settled.contains(seq)
            && !self.unaccounted.contains(seq)
    }

    /// Settles one entry that the caller accounts for. False if it was settled before.
    pub(crate) fn settle(&mut self, seq: u64, bytes: u32, freed: &mut Vec<u32>) -> bool {
        if !self.is_live(seq) {
            return false;
        }
        self.is_changed = true;
        self.settled.insert(seq, seq + 1);
        if !self.damaged.is_empty() {
            self.forget_damaged(seq, seq + 1);
        }
        self.live -= 1;
        self.live_bytes = self.live_bytes.saturating_sub(bytes.into());
        match self.page_of(seq) {
            Some(index) => {
                self.pages[index].settled += 1;
                self.drop_settled_page(index, freed);
            }
            None => {
                self.tail_settled += 1;
                self.drop_settled_tail();
            }
        }
        true
    }

    /// Settles whatever is in `first..end`; [`LaneIndex::account`] does the rest.
    pub(crate) fn settle_range(&mut self, first: u64, end: u64) {
        self.skip_to(end);
        self.forget_damaged(first, end);
        self.unaccounted.insert(first, end);
    }

    /// Everything goes.
    pub(crate) fn drop_all(&mut self) {
        self.is_changed = true;
        self.is_dropped = true;
        self.forget_damaged(0, self.next);
        self.unaccounted.insert(0, self.next);
        self.unaccounted_live = self.live;
    }

    /// Counts what is settled and not accounted for. False if that is not exact, because a page on
    /// disk has gaps and is settled in part.
    pub(crate) fn recount(&mut self) -> bool {
        if self.is_dropped {
            return true;
        }
        let (settled, unaccounted) = (&self.settled, &self.unaccounted);
        let count = |first, end| {
            let shared = settled.members_shared(unaccounted, first, end);
            unaccounted.members_within(first, end) - shared
        };
        let (mut live, mut is_exact) = (0, true);
        for page in &self.pages {
            let end = page.last + 1;
            let covered = unaccounted.members_within(page.first, end);
            let all = u64::from(page.count.saturating_sub(page.settled));
            if covered == 0 {
                continue;
            }
            if covered == end - page.first {
                live += all;
            } else if let Some(runs) = page.runs() {
                crate::page::each_run(page.first, runs, |first, end| live += count(first, end));
            } else {
                let both = settled.members_shared(unaccounted, page.first, end);
                is_exact &= u64::from(page.count) == end - page.first;
                live += covered.saturating_sub(both).min(all);
            }
        }
        self.tail.each_run(|first, end| live += count(first, end));
        self.unaccounted_live = live;
        is_exact
    }

    fn drop_settled_page(&mut self, index: usize, freed: &mut Vec<u32>) {
        let page = &self.pages[index];
        if page.settled < page.count {
            return;
        }
        let (first, end) = (page.first, page.last + 1);
        freed.extend(page.slot());
        self.pages.remove(index);
        self.forget(first, end);
    }

    /// Nothing in `first..end` lives or is part of a page any more.
    fn forget(&mut self, first: u64, end: u64) {
        self.settled.remove(first, end);
        self.forget_damaged(first, end);
        if !self.marks.is_empty() {
            self.marks.remove(first, end);
        }
    }

    /// The entry was delivered, and came back.
    pub(crate) fn mark(&mut self, seq: u64) {
        if !self.is_live(seq) {
            return;
        }
        self.is_changed = true;
        self.marks.insert(seq, seq + 1);
        if self.marks.runs() > MARK_RUNS_MAX {
            self.marks.join_lower_half();
        }
    }

    /// Whether the entry was marked.
    pub(crate) fn is_marked(&self, seq: u64) -> bool {
        self.marks.contains(seq)
    }

    fn drop_settled_tail(&mut self) {
        if self.tail_settled < self.tail.count() || self.tail.count() == 0 {
            return;
        }
        self.forget(self.tail.first(), self.next);
        self.tail.clear();
        self.tail_settled = 0;
        // A reader's place in the page is gone with it.
        self.cursor = None;
    }

    /// Goes through up to `most` entries of one page with entries to account for, which may have millions; calls
    /// `each` for those settled now.
    pub(crate) fn account(
        &mut self,
        most: usize,
        freed: &mut Vec<u32>,
        mut each: impl FnMut(&Entry),
    ) -> Stop {
        let Some((first, end)) = self.unaccounted.iter().next() else { return Stop::Done };
        self.is_changed = true;
        let index = self.pages.partition_point(|page| page.last < first);
        let is_tail = index == self.pages.len();
        let (page_first, page_last) = match self.pages.get(index) {
            Some(page) => (page.first, page.last),
            None if self.tail.count() > 0 && self.tail.last() >= first => {
                (self.tail.first(), self.tail.last())
            }
            None => {
                self.unaccounted = RunSet::default();
                self.unaccounted_live = 0;
                return Stop::Done;
            }
        };
        if page_first >= end {
            self.unaccounted.remove(first, end);
            if self.unaccounted.is_empty() {
                self.unaccounted_live = 0;
            }
            return Stop::Done;
        }
        let mut done = 0;
        let (live, settled, unaccounted) = (&mut self.live, &mut self.settled, &self.unaccounted);
        let live_bytes = &mut self.live_bytes;
        let mut visit = |entry: Entry| {
            if unaccounted.contains(entry.seq) && !settled.contains(entry.seq) {
                settled.insert(entry.seq, entry.seq + 1);
                *live -= 1;
                *live_bytes = live_bytes.saturating_sub(entry.bytes.into());
                done += 1;
                each(&entry);
            }
            entry.seq + 1
        };
        // What was gone through ends here.
        let mut until = page_last + 1;
        if is_tail {
            let mut cursor = self.tail.cursor_at(first);
            let entries = core::iter::from_fn(|| self.tail.next(&mut cursor));
            if let Some(last) = entries.take(most).map(&mut visit).last() {
                until = last;
            }
            self.tail_settled += done;
        } else {
            let page = &mut self.pages[index];
            let Some(runs) = page.runs() else { return Stop::Page(page.first) };
            let mut cursor = Cursor::at(page.first, runs, first);
            let entries = core::iter::from_fn(|| cursor.next(runs));
            if let Some(last) = entries.take(most).map(&mut visit).last() {
                until = last;
            }
            page.settled += done;
        }
        self.unaccounted.remove(page_first.min(first), until);
        self.unaccounted_live = self.unaccounted_live.saturating_sub(done.into());
        if self.unaccounted.is_empty() {
            self.unaccounted_live = 0;
        }
        match is_tail {
            _ if until <= page_last => {}
            true => self.drop_settled_tail(),
            false => {
                self.unload(index);
                self.drop_settled_page(index, freed);
            }
        }
        Stop::Done
    }

    /// Gives a page that was read back to the disk.
    fn unload(&mut self, index: usize) {
        if let Some(page) = self.pages.get_mut(index)
            && let PageState::Loaded(slot, _) = page.state
        {
            page.state = PageState::Disk(slot);
        }
    }

    /// Reads up to `count` further entries that live into `out`.
    pub(crate) fn fetch(&mut self, count: usize, out: &mut Vec<Entry>) -> Stop {
        let stop = self.fetch_entries(count, out);
        self.seen_below = self.seen_below.max(self.fetch_from);
        stop
    }

    /// The same from a number on, of entries that were fetched before; what [`LaneIndex::fetch`] gives next stays. Up to
    /// which number they were read.
    pub(crate) fn fetch_at(
        &mut self,
        from: u64,
        count: usize,
        out: &mut Vec<Entry>,
    ) -> (Stop, u64) {
        let (fetch_from, cursor) = (self.fetch_from, self.cursor.take());
        self.fetch_from = from;
        let stop = self.fetch_entries(count, out);
        let end = core::mem::replace(&mut self.fetch_from, fetch_from);
        self.cursor = cursor;
        (stop, end)
    }

    fn fetch_entries(&mut self, count: usize, out: &mut Vec<Entry>) -> Stop {
        let mut left = count;
        while left > 0 && !self.is_dropped {
            let index = self.pages.partition_point(|page| page.last < self.fetch_from);
            let (is_tail, first) = match self.pages.get(index) {
                Some(page) => (false, page.first),
                None if self.tail.count() > 0 && self.tail.last() >= self.fetch_from => {
                    (true, self.tail.first())
                }
                None => {
                    self.fetch_from = self.next;
                    break;
                }
            };
            let runs = if is_tail { Some(&[][..]) } else { self.pages[index].runs() };
            let Some(runs) = runs else { return Stop::Page(first) };
            let mut cursor = match self.cursor {
                Some(cursor) if cursor.page() == first => cursor,
                _ if is_tail => self.tail.cursor_at(self.fetch_from),
                _ => Cursor::at(first, runs, self.fetch_from),
            };
            loop {
                if left == 0 {
                    self.cursor = Some(cursor);
                    return Stop::Done;
                }
                let entry = if is_tail { self.tail.next(&mut cursor) } else { cursor.next(runs) };
                let Some(entry) = entry else { break };
                if entry.seq < self.fetch_from {
                    continue;
                }
                self.fetch_from = entry.seq + 1;
                if !self.settled.contains(entry.seq)
                    && !self.unaccounted.contains(entry.seq)
                    && !self.damaged.contains_key(&entry.seq)
                {
                    out.push(entry);
                    left -= 1;
                }
            }
            self.cursor = Some(cursor);
            if is_tail {
                self.fetch_from = self.next;
                break;
            }
            self.fetch_from = self.fetch_from.max(self.pages[index].last + 1);
            self.cursor = None;
            self.unload(index);
        }
        Stop::Done
    }

    /// Whether [`LaneIndex::fetch`] has seen all entries so far.
    pub(crate) fn is_fetched(&self) -> bool {
        self.is_dropped || self.fetch_from >= self.next
    }

    /// Whether nothing that was fetched and lives is unknown to who fetched it: set aside, or in a page
    /// that cannot be read.
    pub(crate) fn is_whole(&self) -> bool {
        let is_lost =
            |page: &Page| matches!(page.state, PageState::Lost(_) | PageState::Rebuilding(_));
        self.damaged.is_empty() && !self.pages.iter().any(is_lost)
    }

    /// The next fetch begins at `seq` again.
    pub(crate) fn rewind(&mut self, seq: u64) {
        self.fetch_from = seq;
        self.cursor = None;
    }

    /// The caller has the entry just appended and needs no fetch for it.
    pub(crate) fn skip_fetch(&mut self) {
        self.fetch_from = self.next;
        self.seen_below = self.next;
        self.cursor = None;
    }

    /// Takes over how far fetching was.
    pub(crate) fn resume(&mut self, fetch_from: u64) {
        self.fetch_from = fetch_from;
        self.seen_below = fetch_from;
    }

    pub(crate) fn page_mut(&mut self, first: u64) -> Option<&mut Page> {
        let index = self.pages.partition_point(|page| page.first < first);
        self.pages.get_mut(index).filter(|page| page.first == first)
    }

    /// The last closed page, if it is only in memory.
    pub(crate) fn unwritten_page_last(&self) -> Option<u64> {
        let unwritten = |page: &&Page| matches!(page.state, PageState::Memory(_));
        self.pages.back().filter(unwritten).map(|page| page.first)
    }

    /// Closed pages that are only in memory, by their first numbers.
    pub(crate) fn pages_in_memory(&self) -> impl Iterator<Item = u64> {
        let is_there = |page: &&Page| matches!(page.state, PageState::Memory(_));
        self.pages.iter().filter(is_there).map(|page| page.first)
    }

    /// What fetching has seen: entries below.
    pub(crate) fn fetch_from(&self) -> u64 {
        self.fetch_from
    }

    /// The pages of the index file that it has.
    pub(crate) fn page_slots(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().filter_map(Page::slot)
    }

    /// Whether [`LaneIndex::encode`] says everything: all pages are on disk and nobody waits for one,
    /// and nothing is to be accounted for.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.is_listed
            && self.damaged.is_empty()
            && self.fetch_from >= self.seen_below
            && self.unaccounted.is_empty()
            && self.pages.iter().all(Page::is_readable)
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            lane: self.lane,
            is_dropped: self.is_dropped,
            next: self.next,
            live: self.live(),
            live_bytes: self.live_bytes.saturating_sub(self.damaged_bytes),
            has_unaccounted: self.has_unaccounted(),
            delivered_below: 0,
        }
    }

    /// The lane itself, its pages, with the tail.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pages: usize = self.pages.iter().map(|page| page.runs().map_or(0, <[u8]>::len)).sum();
        let runs = self.settled.runs() + self.unaccounted.runs() + self.marks.runs();
        let places = self.pages.capacity() * size_of::<Page>();
        size_of::<LaneIndex>() + pages + places + self.tail.memory_bytes() + runs * 24
    }

    /// Brings a sum over lanes up to date with this one.
    pub(crate) fn weigh(&mut self, sum: &mut usize) {
        let now = self.memory_bytes();
        *sum = *sum + now - core::mem::replace(&mut self.weighed, now);
    }

    /// What the lane is in a sum over lanes.
    pub(crate) fn weighed(&self) -> usize {
        self.weighed
    }

    /// Appends the lane as it is now to a checkpoint.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.lane.queue.0);
        put(out, self.lane.level.into());
        put(out, self.is_dropped.into());
        put(out, self.next);
        put(out, self.live);
        put(out, self.live_bytes);
        put(out, self.tail_settled.into());
        put_runs(out, &self.settled);
        put_runs(out, &self.unaccounted);
        self.tail.encode(out);
        put(out, self.pages.len() as u64);
        for page in &self.pages {
            put(out, page.first);
            put(out, page.last - page.first);
            put(out, page.count.into());
            put(out, page.settled.into());
            put(out, page.length.into());
            // A page whose write is not complete is not on disk.
            let slot = match page.state {
                PageState::Memory(_) | PageState::Writing(..) => None,
                _ => page.slot(),
            };
            match slot {
                Some(slot) => put(out, u64::from(slot) + 1),
                None => {
                    put(out, 0);
                    out.extend_from_slice(page.runs().unwrap_or_default());
                }
            }
        }
        put_runs(out, &self.marks);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<LaneIndex> {
        let queue = lepus_base::QueueId(reader.varint()?);
        let level = u16::try_from(reader.varint()?).ok()?;
        let mut index = LaneIndex::new(Lane { queue, level });
        index.is_dropped = reader.varint()? != 0;
        index.next = reader.varint()?;
        index.live = reader.varint()?;
        index.live_bytes = reader.varint()?;
        index.tail_settled = reader.varint32()?;
        index.settled = read_runs(reader)?;
        index.unaccounted = read_runs(reader)?;
        index.tail = Builder::decode(reader)?;
        for _ in 0..reader.varint()? {
            let first = reader.varint()?;
            let last = first.checked_add(reader.varint()?)?;
            let (count, settled) = (reader.varint32()?, reader.varint32()?);
            let length = u16::try_from(reader.varint()?).ok()?;
            let state = match reader.varint()? {
                0 => {
                    let runs = reader.bytes(length.into())?;
                    let mut bytes = Vec::with_capacity(PAGE_HEADER_BYTES + runs.len());
                    bytes.resize(PAGE_HEADER_BYTES, 0);
                    bytes.extend_from_slice(runs);
                    PageState::Memory(bytes)
                }
                slot => PageState::Disk(u32::try_from(slot - 1).ok()?),
            };
            index.pages.push_back(Page { first, last, count, length, settled, state });
        }
        index.marks = read_runs(reader)?;
        Some(index)
    }

    /// Takes page bytes to be written to `slot`: a whole page with its header.
    pub(crate) fn start_write(&mut self, first: u64, slot: u32) -> Option<Arc<Vec<u8>>> {
        let lane = self.lane;
        let page = self.page_mut(first)?;
        let PageState::Memory(bytes) = &mut page.state else { return None };
        let mut bytes = core::mem::take(bytes);
        bytes.resize(PAGE_BYTES, 0);
        let length = usize::from(page.length);
        bytes[4..6].copy_from_slice(&page.length.to_le_bytes());
        bytes[6..8].copy_from_slice(&lane.level.to_le_bytes());
        bytes[8..16].copy_from_slice(&lane.queue.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&page.first.to_le_bytes());
        bytes[24..32].copy_from_slice(&page.last.to_le_bytes());
        bytes[32..36].copy_from_slice(&page.count.to_le_bytes());
        let sum = crc(slot, &bytes[4..PAGE_HEADER_BYTES + length]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        let bytes = Arc::new(bytes);
        page.state = PageState::Writing(slot, bytes.clone());
        Some(bytes)
    }

    /// The write of a page ended; after a failure it stays in memory, and the slot is given back.
    pub(crate) fn end_write(&mut self, first: u64, ok: bool) -> Option<u32> {
        let page = self.page_mut(first)?;
        let PageState::Writing(slot, bytes) = &page.state else { return None };
        let slot = *slot;
        if ok {
            page.state = PageState::Disk(slot);
            self.is_changed = true;
            return None;
        }
        let mut bytes = bytes.as_ref().clone();
        bytes.truncate(PAGE_HEADER_BYTES + usize::from(page.length));
        page.state = PageState::Memory(bytes);
        Some(slot)
    }

    /// Whether the page that begins with `first` is at this place of the index file.
    pub(crate) fn has_page_at(&self, first: u64, place: u32) -> bool {
        let index = self.pages.partition_point(|page| page.first < first);
        self.pages.get(index).is_some_and(|page| {
            let is_written = matches!(page.state, PageState::Disk(_) | PageState::Loaded(..));
            page.first == first && is_written && page.slot() == Some(place)
        })
    }

    /// A page leaves its place of the index file, where these bytes were read: it is only in memory now.
    pub(crate) fn lift(&mut self, first: u64, mut bytes: Vec<u8>) {
        self.is_changed = true;
        let Some(page) = self.page_mut(first) else { return };
        bytes.truncate(PAGE_HEADER_BYTES + usize::from(page.length));
        page.state = PageState::Memory(bytes);
    }

    /// Takes a page that was read; false where it is damaged.
    pub(crate) fn end_read(&mut self, first: u64, bytes: Vec<u8>) -> bool {
        let lane = self.lane;
        let Some(page) = self.page_mut(first) else { return true };
        let PageState::Disk(slot) = page.state else { return true };
        let is_whole = page_runs(slot, &bytes).is_some_and(|runs| {
            let mut reader = Reader(&bytes[4..]);
            runs.len() == usize::from(page.length)
                && crate::page::has_entries(page.first, runs, page.count)
                && reader.u32() == Some(u32::from(page.length) | u32::from(lane.level) << 16)
                && reader.u64() == Some(lane.queue.0)
                && reader.u64() == Some(page.first)
        });
        page.state = if is_whole { PageState::Loaded(slot, bytes) } else { PageState::Lost(slot) };
        is_whole
    }
}
