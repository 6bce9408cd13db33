//! Entries of a lane in few bytes: runs of messages that follow each other in the log.
//!
//! A run is `count << 3 | flags`, then, as the flags say, the gap in sequence numbers before it;
//! the signed distance of its first position from the position before; for more than one entry
//! the stride from position to position; the size of the bodies, if it changed; the signed change
//! of the deadline, if it changed. All are integers of variable length.

use alloc::vec::Vec;
use lepus_base::Position;

use crate::varint::{Reader, put, put_signed};

/// Bytes of runs that one page holds.
pub(crate) const PAGE_PAYLOAD_BYTES: usize = 4096 - PAGE_HEADER_BYTES;
/// Bytes of a page on disk before its runs.
pub(crate) const PAGE_HEADER_BYTES: usize = 48;
/// Longest encoding of one run.
const RUN_BYTES_MAX: usize = 52;

const FLAG_GAP: u64 = 1;
const FLAG_BYTES: u64 = 2;
const FLAG_DEADLINE: u64 = 4;

/// One message of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Sequence number in its lane.
    pub seq: u64,
    /// Where its record lies.
    pub position: Position,
    /// Size of the body.
    pub bytes: u32,
    /// Wall time in milliseconds when it expires; 0 for never.
    pub deadline_millis: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    count: u64,
    first: Entry,
    stride: u64,
}

impl Run {
    fn entry(&self, index: u64) -> Entry {
        Entry {
            seq: self.first.seq.wrapping_add(index),
            position: Position(self.first.position.0.wrapping_add(self.stride.wrapping_mul(index))),
            ..self.first
        }
    }

    fn last(&self) -> Entry {
        self.entry(self.count.saturating_sub(1))
    }

    fn find(&self, seq: u64) -> Option<Entry> {
        let index = seq.checked_sub(self.first.seq)?;
        (index < self.count).then(|| self.entry(index))
    }

    fn encode(&self, before: &Entry, out: &mut Vec<u8>) {
        let gap = self.first.seq.wrapping_sub(before.seq).wrapping_sub(1);
        let mut flags = if gap != 0 { FLAG_GAP } else { 0 };
        flags |= if self.first.bytes != before.bytes { FLAG_BYTES } else { 0 };
        flags |=
            if self.first.deadline_millis != before.deadline_millis { FLAG_DEADLINE } else { 0 };
        put(out, self.count << 3 | flags);
        if gap != 0 {
            put(out, gap);
        }
        put_signed(out, self.first.position.0.wrapping_sub(before.position.0) as i64);
        if self.count > 1 {
            put(out, self.stride);
        }
        if flags & FLAG_BYTES != 0 {
            put(out, self.first.bytes.into());
        }
        if flags & FLAG_DEADLINE != 0 {
            let change = self.first.deadline_millis.wrapping_sub(before.deadline_millis);
            put_signed(out, change as i64);
        }
    }

    fn decode(reader: &mut Reader<'_>, before: &Entry) -> Option<Run> {
        let tag = reader.varint()?;
        let gap = if tag & FLAG_GAP != 0 { reader.varint()? } else { 0 };
        let count = tag >> 3;
        let position = before.position.0.wrapping_add(reader.signed()? as u64);
        let stride = if count > 1 { reader.varint()? } else { 0 };
        let bytes = if tag & FLAG_BYTES != 0 { reader.varint32()? } else { before.bytes };
        let change = if tag & FLAG_DEADLINE != 0 { reader.signed()? } else { 0 };
        let first = Entry {
            seq: before.seq.wrapping_add(1).checked_add(gap)?,
            position: Position(position),
            bytes,
            deadline_millis: before.deadline_millis.wrapping_add(change as u64),
        };
        (count > 0).then_some(Run { count, first, stride })
    }
}

/// The entry before the first one of a page.
fn before(first: u64) -> Entry {
    Entry { seq: first.wrapping_sub(1), ..Entry::default() }
}

/// The entry with this number in the runs of the page that begins with `first`.
pub(crate) fn find(first: u64, runs: &[u8], seq: u64) -> Option<Entry> {
    let (mut reader, mut before) = (Reader(runs), before(first));
    while before.seq.wrapping_add(1) <= seq && !reader.is_empty() {
        let run = Run::decode(&mut reader, &before)?;
        if let Some(entry) = run.find(seq) {
            return Some(entry);
        }
        before = run.last();
    }
    None
}

/// Whether the runs of the page that begins with `first` have so many entries. Who goes through them one by one
/// comes to an end then.
pub(crate) fn has_entries(first: u64, runs: &[u8], count: u32) -> bool {
    let mut found = 0u64;
    each_run(first, runs, |first, end| found = found.saturating_add(end.wrapping_sub(first)));
    found == u64::from(count)
}

/// Shows the runs of the page that begins with `first`: the first number of each, and the one behind its last.
pub(crate) fn each_run(first: u64, runs: &[u8], mut look: impl FnMut(u64, u64)) {
    let (mut reader, mut before) = (Reader(runs), before(first));
    while !reader.is_empty() {
        let Some(run) = Run::decode(&mut reader, &before) else { return };
        before = run.last();
        look(run.first.seq, before.seq.wrapping_add(1));
    }
}

/// The page at the end of a lane, where entries are appended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    /// Not yet in `bytes`; count 0 if there is none.
    open: Run,
    /// The last entry in `bytes`.
    before: Entry,
    first: u64,
    count: u32,
}

impl Builder {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn last(&self) -> u64 {
        if self.open.count > 0 { self.open.last().seq } else { self.before.seq }
    }

    /// Forgets all entries, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.open.count = 0;
        self.count = 0;
    }

    /// Whether another entry may not fit into a page.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() + 2 * RUN_BYTES_MAX > PAGE_PAYLOAD_BYTES
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        if self.count == 0 {
            self.first = entry.seq;
            self.before = before(entry.seq);
        }
        self.count += 1;
        let run = &mut self.open;
        if run.count > 0 {
            let last = run.last();
            let stride = entry.position.0.wrapping_sub(last.position.0);
            let follows = entry.seq == last.seq.wrapping_add(1)
                && entry.bytes == last.bytes
                && entry.deadline_millis == last.deadline_millis
                && stride < 1 << 28
                && (run.count == 1 || stride == run.stride);
            if follows {
                run.stride = stride;
                run.count += 1;
                return;
            }
            run.encode(&self.before, &mut self.bytes);
            self.before = last;
        }
        *run = Run { count: 1, first: entry, stride: 0 };
    }

    /// The entry with this number.
    pub(crate) fn find(&self, seq: u64) -> Option<Entry> {
        find(self.first, &self.bytes, seq).or_else(|| self.open.find(seq))
    }

    /// Ends the open run; gives the bytes of the page.
    pub(crate) fn finish(&mut self) -> &mut Vec<u8> {
        if self.open.count > 0 {
            self.open.encode(&self.before, &mut self.bytes);
            self.before = self.open.last();
            self.open.count = 0;
        }
        &mut self.bytes
    }

    pub(crate) fn cursor(&self) -> Cursor {
        Cursor::new(self.first)
    }

    pub(crate) fn next(&self, cursor: &mut Cursor) -> Option<Entry> {
        if let Some(entry) = cursor.next(&self.bytes) {
            return Some(entry);
        }
        // The open run stands where the bytes end.
        let entry = (cursor.index < self.open.count).then(|| self.open.entry(cursor.index))?;
        cursor.index += 1;
        Some(entry)
    }

    /// The place before the first entry whose number is `seq` or higher.
    pub(crate) fn cursor_at(&self, seq: u64) -> Cursor {
        let mut cursor = Cursor::at(self.first, &self.bytes, seq);
        if cursor.offset == self.bytes.len() && self.open.count > 0 {
            cursor.index = seq.saturating_sub(self.open.first.seq).min(self.open.count);
        }
        cursor
    }

    /// Shows its runs: the first number of each, and the one behind its last.
    pub(crate) fn each_run(&self, mut look: impl FnMut(u64, u64)) {
        each_run(self.first, &self.bytes, &mut look);
        if self.open.count > 0 {
            look(self.open.first.seq, self.open.last().seq + 1);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Everything needed to go on appending later.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.count.into());
        if self.count == 0 {
            return;
        }
        let mut open = Vec::new();
        let mut last = self.before;
        if self.open.count > 0 {
            self.open.encode(&self.before, &mut open);
            last = self.open.last();
        }
        put(out, self.first);
        for value in [
            last.seq,
            last.position.0,
            last.bytes.into(),
            last.deadline_millis,
            (self.bytes.len() + open.len()) as u64,
        ] {
            put(out, value);
        }
        out.extend_from_slice(&self.bytes);
        out.extend_from_slice(&open);
    }

    /// Reads over what [`Builder::decode`] reads.
    pub(crate) fn skip(reader: &mut Reader<'_>) -> Option<()> {
        if reader.varint32()? == 0 {
            return Some(());
        }
        let (_first, _seq, _position) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let (_bytes, _deadline) = (reader.varint32()?, reader.varint()?);
        let length = usize::try_from(reader.varint()?).ok()?;
        reader.bytes(length)?;
        Some(())
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Builder> {
        let count = reader.varint32()?;
        if count == 0 {
            return Some(Builder::default());
        }
        let first = reader.varint()?;
        let before = Entry {
            seq: reader.varint()?,
            position: Position(reader.varint()?),
            bytes: reader.varint32()?,
            deadline_millis: reader.varint()?,
        };
        let length = usize::try_from(reader.varint()?).ok()?;
        let bytes = reader.bytes(length)?.to_vec();
        Some(Builder { bytes, open: Run::default(), before, first, count })
    }
}

/// A place between two entries of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    first: u64,
    offset: usize,
    before: Entry,
    index: u64,
}

impl Cursor {
    /// Before the first entry of the page that begins with `first`.
    pub(crate) fn new(first: u64) -> Cursor {
        Cursor { first, offset: 0, before: before(first), index: 0 }
    }

    /// The same, before the first entry whose number is `seq` or higher: what is before is not looked at one by
    /// one.
    pub(crate) fn at(first: u64, bytes: &[u8], seq: u64) -> Cursor {
        let mut cursor = Cursor::new(first);
        while let Some(rest) = bytes.get(cursor.offset..).filter(|rest| !rest.is_empty()) {
            let mut reader = Reader(rest);
            let Some(run) = Run::decode(&mut reader, &cursor.before) else { break };
            if run.last().seq >= seq {
                cursor.index = seq.saturating_sub(run.first.seq);
                break;
            }
            cursor.offset = bytes.len() - reader.0.len();
            cursor.before = run.last();
        }
        cursor
    }

    /// The page it belongs to.
    pub(crate) fn page(&self) -> u64 {
        self.first
    }

    /// The next entry in a page's runs; `None` behind the last, or where the bytes are no runs.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Option<Entry> {
        loop {
            let mut reader = Reader(bytes.get(self.offset..)?);
            if reader.is_empty() {
                return None;
            }
            let run = Run::decode(&mut reader, &self.before)?;
            if self.index < run.count {
                let entry = run.entry(self.index);
                self.index += 1;
                return Some(entry);
            }
            self.offset = bytes.len() - reader.0.len();
            self.before = run.last();
            self.index = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_base::Rng;

    fn entries(seed: u64, count: usize) -> Vec<Entry> {
        let mut rng = Rng::new(seed);
        let mut entry =
            Entry { seq: rng.below(1000), position: Position(1 << 32), ..Entry::default() };
        let entries = (0..count).map(|_| {
            if rng.chance(1, 5) {
                entry.seq += rng.below(5);
                entry.bytes = rng.below(3000) as u32;
                entry.position.0 += rng.below(1 << 33);
            }
            if rng.chance(1, 9) {
                entry.deadline_millis = rng.below(1 << 41);
            }
            entry.seq += 1;
            entry.position.0 += u64::from(entry.bytes) + 40;
            entry
        });
        entries.collect()
    }

    #[test]
    fn entries_come_out_as_they_went_in() {
        for seed in 0..100 {
            let list = entries(seed, 300);
            let mut builder = Builder::default();
            let mut cursor = None;
            let mut read = Vec::new();
            for (index, &entry) in list.iter().enumerate() {
                builder.push(entry);
                // A reader that keeps up sees each entry once.
                let cursor = cursor.get_or_insert_with(|| builder.cursor());
                if index % 3 == 0 {
                    read.extend(core::iter::from_fn(|| builder.next(cursor)));
                    assert_eq!(read.len(), index + 1);
                }
            }
            let mut bytes = Vec::new();
            builder.encode(&mut bytes);
            let copy = Builder::decode(&mut Reader(&bytes)).unwrap();
            for builder in [&builder, &copy] {
                let mut cursor = builder.cursor();
                let all: Vec<_> = core::iter::from_fn(|| builder.next(&mut cursor)).collect();
                assert_eq!(all, list);
                for entry in &list {
                    let mut cursor = builder.cursor_at(entry.seq);
                    assert_eq!(builder.next(&mut cursor), Some(*entry));
                    assert_eq!(builder.find(entry.seq), Some(*entry));
                    let next = list.iter().find(|next| next.seq == entry.seq + 1);
                    assert_eq!(builder.find(entry.seq + 1), next.copied());
                }
                let mut numbers = Vec::new();
                builder.each_run(|first, end| numbers.extend(first..end));
                assert!(numbers.iter().eq(list.iter().map(|entry| &entry.seq)));
                assert_eq!((builder.first(), builder.last()), (list[0].seq, list[299].seq));
            }
        }
    }

    #[test]
    fn entries_of_one_batch_take_a_fraction_of_a_byte_each() {
        let mut builder = Builder::default();
        for seq in 0..100_000u64 {
            let batch = seq / 100;
            let position = Position((1 << 32) + seq * 1070 + batch * 48);
            builder.push(Entry { seq, position, bytes: 1024, deadline_millis: 0 });
        }
        assert!(builder.finish().len() < 10_000);
    }

    #[test]
    fn entries_of_interleaved_queues_take_at_most_six_bytes_each() {
        let mut rng = Rng::new(3);
        let mut builder = Builder::default();
        let mut position = 1 << 32;
        for seq in 0..10_000 {
            position += rng.below(100) * 1070 + 48;
            let bytes = 1000 + rng.below(2) as u32;
            builder.push(Entry { seq, position: Position(position), bytes, deadline_millis: 0 });
        }
        assert!(builder.finish().len() <= 60_000);
    }

    #[test]
    fn arbitrary_bytes_give_an_end_and_no_panic() {
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let mut bytes = alloc::vec![0; rng.below(60) as usize];
            rng.fill(&mut bytes);
            let mut cursor = Cursor::new(rng.next_u64());
            for _ in 0..1000 {
                if cursor.next(&bytes).is_none() {
                    break;
                }
            }
            let _ = Builder::decode(&mut Reader(&bytes));
        }
    }
}
