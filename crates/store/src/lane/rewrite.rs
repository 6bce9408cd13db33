//! Pages written anew: with the places that messages have now, or from the log.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lepus_base::Position;

use super::{LaneIndex, Page, PageState};
use crate::page::{Builder, Cursor, Entry, PAGE_HEADER_BYTES};

/// A page, or what follows the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The page that begins with this number.
    Page(u64),
    /// The open page at the end.
    Tail,
}

/// Where the entry of a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// This is its position.
    At(Position),
    /// The page that begins with this number has to be read first.
    Page(u64),
    /// There is none.
    Nowhere,
}

/// What became of a part that was to be written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Folded {
    /// Nothing in it was to be changed.
    Same,
    /// It has to be read first.
    Unread,
    /// Pages that are only in memory now, by their first numbers.
    Pages(Vec<u64>),
}

impl LaneIndex {
    /// The position of an entry as the index has it.
    pub(crate) fn locate(&self, seq: u64) -> Located {
        let found = match self.page_of(seq) {
            None => self.tail.find(seq),
            Some(index) => {
                let page = &self.pages[index];
                let Some(runs) = page.runs() else { return Located::Page(page.first) };
                crate::page::find(page.first, runs, seq)
            }
        };
        found.map_or(Located::Nowhere, |entry| Located::At(entry.position))
    }

    /// The first part none of whose entries anybody knows, at `seq` or behind.
    pub(crate) fn unseen_part(&self, seq: u64) -> Option<Part> {
        let seq = seq.max(self.seen_below);
        let index = self.pages.partition_point(|page| page.first < seq);
        match self.pages.get(index) {
            Some(page) => Some(Part::Page(page.first)),
            None if self.tail.count() > 0 && self.tail.first() >= seq => Some(Part::Tail),
            None => None,
        }
    }

    /// Shows the entries that are in memory, those settled too.
    pub(crate) fn each_in_memory(&self, mut look: impl FnMut(Entry)) {
        for page in &self.pages {
            let Some(runs) = page.runs() else { continue };
            let mut cursor = Cursor::new(page.first);
            while let Some(entry) = cursor.next(runs) {
                look(entry);
            }
        }
        let mut cursor = self.tail.cursor();
        while let Some(entry) = self.tail.next(&mut cursor) {
            look(entry);
        }
    }

    /// The number behind a part.
    pub(crate) fn part_end(&self, part: Part) -> u64 {
        match part {
            Part::Page(first) => {
                let index = self.pages.partition_point(|page| page.first < first);
                self.pages.get(index).map_or(first + 1, |page| page.last + 1)
            }
            Part::Tail => self.next,
        }
    }

    /// Writes a part anew if `place` gives another position for any of its entries. It is called
    /// once for each entry that lives, and only if it will count.
    pub(crate) fn fold(
        &mut self,
        part: Part,
        freed: &mut Vec<u32>,
        is_moved: impl Fn(Position) -> bool,
        mut place: impl FnMut(Position) -> Position,
    ) -> Folded {
        let mut entries = Vec::new();
        match part {
            Part::Tail => {
                let mut cursor = self.tail.cursor();
                entries.extend(core::iter::from_fn(|| self.tail.next(&mut cursor)));
            }
            Part::Page(first) => {
                let index = self.pages.partition_point(|page| page.first < first);
                let Some(page) = self.pages.get(index) else { return Folded::Same };
                let is_usable = matches!(
                    page.state,
                    PageState::Memory(_) | PageState::Disk(_) | PageState::Loaded(..)
                );
                if !is_usable {
                    return Folded::Same;
                }
                let Some(runs) = page.runs() else { return Folded::Unread };
                let mut cursor = Cursor::new(page.first);
                entries.extend(core::iter::from_fn(|| cursor.next(runs)));
            }
        }
        entries.retain(|entry| !self.settled.contains(entry.seq));
        if !entries.iter().any(|entry| is_moved(entry.position)) {
            if let Part::Page(first) = part {
                let index = self.pages.partition_point(|page| page.first < first);
                self.unload(index);
            }
            return Folded::Same;
        }
        for entry in &mut entries {
            entry.position = place(entry.position);
        }
        match part {
            Part::Page(first) => Folded::Pages(self.replace(first, &entries, freed)),
            Part::Tail => Folded::Pages(self.replace_tail(&entries)),
        }
    }

    /// A damaged page is to be put together; `None` if it is not damaged.
    pub(crate) fn begin_rebuild(&mut self, first: u64) -> Option<()> {
        let page = self.page_mut(first)?;
        let PageState::Lost(slot) = page.state else { return None };
        page.state = PageState::Rebuilding(slot);
        Some(())
    }

    /// The last number of the page that begins with `first`.
    pub(crate) fn page_last(&mut self, first: u64) -> Option<u64> {
        self.page_mut(first).map(|page| page.last)
    }

    /// Up to `count` pages behind the one that begins with `first` that are only on disk, by their first
    /// numbers.
    pub(crate) fn pages_on_disk(&self, first: u64, count: usize) -> Vec<u64> {
        let index = self.pages.partition_point(|page| page.first <= first);
        let behind = self.pages.range(index..).filter(|page| page.is_readable());
        behind.take(count).map(|page| page.first).collect()
    }

    /// A page that was read for a moment goes back to the disk.
    pub(crate) fn unload_page(&mut self, first: u64) {
        let index = self.pages.partition_point(|page| page.first < first);
        self.unload(index);
    }

    /// Puts a page that was damaged together again from what the log has of it. The pages that stand for
    /// it, and how many of its messages were not found: those leave the index.
    pub(crate) fn rebuild(
        &mut self,
        first: u64,
        found: &BTreeMap<u64, Entry>,
        freed: &mut Vec<u32>,
    ) -> (Vec<u64>, u64) {
        let entries = found.values().filter(|entry| !self.settled.contains(entry.seq));
        let entries: Vec<Entry> = entries.copied().collect();
        let live = self.page_mut(first).map_or(0, |page| page.count.saturating_sub(page.settled));
        let missing = u64::from(live).saturating_sub(entries.len() as u64);
        (self.replace(first, &entries, freed), missing)
    }

    /// Puts pages with these entries, which live, in the place of one.
    fn replace(&mut self, first: u64, entries: &[Entry], freed: &mut Vec<u32>) -> Vec<u64> {
        let index = self.pages.partition_point(|page| page.first < first);
        let Some(old) = self.pages.get(index).filter(|page| page.first == first) else {
            return Vec::new();
        };
        self.is_changed = true;
        freed.extend(old.slot());
        let (begin, end) = (old.first, old.last + 1);
        let before = u64::from(old.count.saturating_sub(old.settled));
        self.pages.remove(index);
        self.live = (self.live + entries.len() as u64).saturating_sub(before);
        if self.cursor.is_some_and(|cursor| cursor.page() == first) {
            self.cursor = None;
        }
        let mut pages = Vec::new();
        let mut builder = Builder::default();
        for entry in entries {
            if builder.is_full() {
                pages.push(closed(&mut builder));
            }
            builder.push(*entry);
        }
        if builder.count() > 0 {
            pages.push(closed(&mut builder));
        }
        // What is settled is kept only within pages.
        let mut from = begin;
        for page in &pages {
            self.forget(from, page.first);
            from = page.last + 1;
        }
        self.forget(from, end);
        let firsts = pages.iter().map(|page| page.first).collect();
        for page in pages.into_iter().rev() {
            self.pages.insert(index, page);
        }
        firsts
    }

    fn replace_tail(&mut self, entries: &[Entry]) -> Vec<u64> {
        self.is_changed = true;
        let begin = self.tail.first();
        self.tail.clear();
        self.tail_settled = 0;
        self.cursor = None;
        let mut firsts = Vec::new();
        let (mut from, end) = (begin, self.next);
        for entry in entries {
            if self.tail.is_full() {
                self.close_tail();
                firsts.extend(self.pages.back().map(|page| page.first));
                from = self.pages.back().map_or(from, |page| page.last + 1);
            }
            if self.tail.count() == 0 {
                self.forget(from, entry.seq);
            }
            self.tail.push(*entry);
        }
        if self.tail.count() == 0 {
            self.forget(from, end);
        }
        // Otherwise the page goes on: what was settled behind its last entry lies within it then.
        firsts
    }
}

/// The entries of a builder as a closed page.
fn closed(builder: &mut Builder) -> Page {
    let (first, last, count) = (builder.first(), builder.last(), builder.count());
    let runs = builder.finish();
    let mut bytes = Vec::with_capacity(PAGE_HEADER_BYTES + runs.len());
    bytes.resize(PAGE_HEADER_BYTES, 0);
    bytes.extend_from_slice(runs);
    let length = runs.len() as u16;
    builder.clear();
    Page { first, last, count, length, settled: 0, state: PageState::Memory(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Lane;
    use lepus_base::QueueId;

    /// The open page grows over the numbers behind its last entry: they must still count as settled, or
    /// what the log has of them would be moved as if it lived, and their segments miscounted.
    #[test]
    fn what_was_settled_behind_a_rewritten_tail_stays_settled_when_the_tail_grows() {
        let mut lane = LaneIndex::new(Lane::of(QueueId(1)));
        let mut freed = Vec::new();
        let entry = |seq| Entry { seq, position: Position(seq), bytes: 1, deadline_millis: 0 };
        for seq in 0..10 {
            lane.append(entry(seq));
        }
        for seq in 5..10 {
            assert!(lane.settle(seq, 1, &mut freed));
        }
        let folded = lane.fold(Part::Tail, &mut freed, |_| true, |at| Position(at.0 + 100));
        assert_eq!(folded, Folded::Pages(Vec::new()));
        lane.append(entry(10));
        let live: Vec<u64> = (0..=10).filter(|seq| lane.is_live(*seq)).collect();
        assert_eq!(live, [0, 1, 2, 3, 4, 10]);
        assert_eq!(lane.live(), 6);
        assert!(!lane.settle(7, 1, &mut freed));
    }
}
