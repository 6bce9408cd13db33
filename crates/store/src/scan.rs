//! Reading a segment's bytes: which batches and records are whole, and what can be saved of
//! damaged ones.

use alloc::vec::Vec;
use core::ops::Range;

use crate::checksum::crc;
use crate::disk::{Action, File, LogId};
use crate::key::Key;
use crate::keys::Keys;
use crate::record::{self, MessageRecord, Names, RECORD_HEADER_BYTES};
use crate::segment::{BATCH_HEADER_BYTES, BatchHeader, SEGMENT_HEADER_BYTES, batch_magic};

/// Bytes looked at together in the search for a batch; most of what is searched is zeros.
const STRIDE_BYTES: usize = 64;
/// Bytes checksummed at most when records are searched byte by byte.
const SALVAGE_BYTES_MAX: usize = 64 << 20;

/// A segment's bytes and where they belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image<'a> {
    pub keys: Keys,
    pub generation: u32,
    pub bytes: &'a [u8],
}

/// Bytes of a segment read at once: nobody who waits for a message shall wait for more.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes of a segment that a disk gives or does not, as one.
const SECTOR_BYTES: usize = 4096;

/// A segment being read, piece by piece.
#[derive(Debug)]
pub(crate) struct SegmentRead {
    pub generation: u32,
    /// Its file's.
    pub slot: u32,
    length: usize,
    /// What was read so far.
    pub bytes: Vec<u8>,
    /// Up to here it is read in short pieces, because a long one cannot be read as a whole.
    narrow_until: usize,
}

impl SegmentRead {
    /// The first `length` bytes of the segment `generation`, whose file has this slot.
    pub(crate) fn new(generation: u32, slot: u32, length: usize) -> SegmentRead {
        SegmentRead { generation, slot, length, bytes: Vec::new(), narrow_until: 0 }
    }

    /// Whether the next piece is a short one.
    pub(crate) fn is_narrow(&self) -> bool {
        self.bytes.len() < self.narrow_until
    }

    fn piece_bytes(&self) -> usize {
        if self.is_narrow() { SECTOR_BYTES } else { PIECE_BYTES }
    }

    /// The next read; `None` when all is read.
    pub(crate) fn next(&self, log: LogId) -> Option<Action> {
        let length = self.length.saturating_sub(self.bytes.len()).min(self.piece_bytes());
        let (file, offset) = (File::Segment(log, self.slot), self.bytes.len() as u64);
        (length > 0).then_some(Action::Read { file, offset, length })
    }

    /// Takes what was read; there is no more where that is short.
    pub(crate) fn take(&mut self, bytes: Vec<u8>) {
        let wanted = self.length.saturating_sub(self.bytes.len()).min(self.piece_bytes());
        if self.bytes.is_empty() && bytes.len() == self.length {
            self.bytes = bytes;
            return;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(self.length);
        }
        self.bytes.extend_from_slice(&bytes);
        if bytes.len() < wanted {
            self.end();
        }
    }

    /// What comes next cannot be read: a long piece is read again in short ones, and zeros stand for one of
    /// these.
    pub(crate) fn skip(&mut self) {
        if self.is_narrow() {
            let end = self.length.min(self.bytes.len() + SECTOR_BYTES);
            self.bytes.resize(end, 0);
        } else {
            self.narrow_until = self.bytes.len() + PIECE_BYTES;
        }
    }

    /// There is nothing more to be read.
    pub(crate) fn end(&mut self) {
        self.length = self.bytes.len();
    }
}

/// A batch's header that is intact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundBatch {
    pub offset: usize,
    pub header: BatchHeader,
    pub crc: u32,
}

impl FoundBatch {
    pub(crate) fn records(&self) -> Range<usize> {
        let start = self.offset + BATCH_HEADER_BYTES;
        start..start + self.header.length as usize
    }
}

/// One record: where it is, its kind and payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRecord<'a> {
    pub offset: u32,
    pub kind: u8,
    pub payload: &'a [u8],
}

impl<'a> Image<'a> {
    fn seed(&self, offset: usize) -> u32 {
        self.keys.seed(self.generation, offset as u32)
    }

    fn key(&self) -> Key {
        self.keys.of(self.generation)
    }

    /// The header at `offset`, if it is one; its records may be damaged.
    pub(crate) fn header(&self, offset: usize) -> Option<FoundBatch> {
        let bytes = self.bytes.get(offset..)?;
        let (header, crc) = BatchHeader::decode(bytes, self.key(), self.seed(offset))?;
        (header.generation == self.generation).then_some(FoundBatch { offset, header, crc })
    }

    /// Whether all records of a batch are whole.
    pub(crate) fn is_whole(&self, batch: &FoundBatch) -> bool {
        let range = batch.records();
        let (mut at, mut records, mut sums) = (range.start, 0, 0);
        if range.end > self.bytes.len() {
            return false;
        }
        while at < range.end {
            let bytes = &self.bytes[at..range.end];
            let Some((_, payload, sum)) = record::decode(bytes, self.seed(at)) else {
                return false;
            };
            sums = crc(sums, &sum.to_le_bytes());
            records += 1;
            at += RECORD_HEADER_BYTES + payload.len();
        }
        records == batch.header.records && sums == batch.header.records_crc
    }

    /// The records of a batch found whole.
    pub(crate) fn records(
        &self,
        batch: &FoundBatch,
    ) -> impl Iterator<Item = FoundRecord<'a>> + use<'a> {
        let range = batch.records();
        let bytes = self.bytes.get(..range.end).unwrap_or(self.bytes);
        let mut at = range.start;
        core::iter::from_fn(move || {
            let (kind, length) = record::peek(bytes.get(at..)?)?;
            let payload = bytes.get(at + RECORD_HEADER_BYTES..at + length)?;
            let offset = at as u32;
            at += length;
            Some(FoundRecord { offset, kind, payload })
        })
    }

    /// Exchange and routing key in the message record at `lender`, if that is whole.
    pub(crate) fn names(&self, lender: u32) -> Option<(&'a [u8], &'a [u8])> {
        let bytes = self.bytes.get(lender as usize..)?;
        let (_, payload, _) = record::decode(bytes, self.seed(lender as usize))?;
        match MessageRecord::decode(payload)?.names {
            Names::Here(exchange, routing_key) => Some((exchange, routing_key)),
            Names::At(_) => None,
        }
    }

    /// Whether a whole record begins at `at`.
    pub(crate) fn is_record(&self, at: usize) -> bool {
        let bytes = self.bytes.get(at..);
        bytes.is_some_and(|bytes| record::decode(bytes, self.seed(at)).is_some())
    }

    /// Whether a record may end at `at`: there all ends, or a batch or a whole record begins.
    pub(crate) fn is_boundary(&self, at: usize) -> bool {
        at == self.bytes.len() || self.header(at).is_some() || self.is_record(at)
    }

    /// Where the first batch or whole record behind `at` begins, or all ends.
    pub(crate) fn next_boundary(&self, at: usize) -> usize {
        let end = self.next_header(at + 1).map_or(self.bytes.len(), |batch| batch.offset);
        let mut first = end;
        self.salvage(at + 1..end, |record| first = first.min(record.offset as usize));
        first
    }

    /// The next intact batch header at or behind `from`.
    pub(crate) fn next_header(&self, from: usize) -> Option<FoundBatch> {
        let mut at = from;
        loop {
            at = find_magic(self.bytes, batch_magic(self.key()), at)?;
            if let Some(found) = self.header(at) {
                return Some(found);
            }
            at += 1;
        }
    }

    /// Calls `each` for every whole record within `range`, which has damage in it.
    pub(crate) fn salvage(&self, range: Range<usize>, mut each: impl FnMut(FoundRecord<'a>)) {
        let Some(bytes) = self.bytes.get(..range.end.min(self.bytes.len())) else { return };
        let (mut at, mut budget) = (range.start, SALVAGE_BYTES_MAX);
        while at + RECORD_HEADER_BYTES <= bytes.len() {
            if let Some((kind, length)) = record::peek(&bytes[at..])
                && length <= bytes.len() - at
                && length <= budget
            {
                if let Some((_, payload, _)) = record::decode(&bytes[at..], self.seed(at)) {
                    each(FoundRecord { offset: at as u32, kind, payload });
                    at += length;
                    continue;
                }
                budget -= length;
                // Damage in the payload leaves the length right.
                if let Some(next) = bytes.get(at + length..)
                    && record::decode(next, self.seed(at + length)).is_some()
                {
                    at += length;
                    continue;
                }
            }
            at += 1;
        }
    }
}

/// A segment as a batch of it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub generation: u32,
    pub key: Key,
    pub batch: FoundBatch,
}

/// The segment that its first batch says it is, where that batch's header is intact. No message has bytes at that
/// place.
pub(crate) fn first_batch(keys: Keys, bytes: &[u8]) -> Option<Life> {
    let at = SEGMENT_HEADER_BYTES;
    kinds(keys).find_map(|key| Some(batch_of_any(keys, key, bytes, at)?.0))
}

/// The keys that a segment may have of which nothing is known.
fn kinds(keys: Keys) -> impl Iterator<Item = Key> {
    let without = keys.are_mixed().then_some(Key::NONE);
    [keys.key].into_iter().chain(without)
}

/// The first batch of the latest life that a file's bytes tell of, and which segment of the log that was:
/// behind what was written of it there may be batches of lives before. A message may have in it what looks
/// like a batch of a segment without a key: only segments that `is_possible` accepts count, no batch is
/// looked for within a whole one, and one without a whole record at its begin says nothing.
pub(crate) fn latest_life(
    keys: Keys,
    bytes: &[u8],
    is_possible: impl Fn(u32) -> bool,
) -> Option<Life> {
    kinds(keys).find_map(|key| latest_life_with(keys, key, bytes, &is_possible))
}

fn latest_life_with(
    keys: Keys,
    key: Key,
    bytes: &[u8],
    is_possible: &impl Fn(u32) -> bool,
) -> Option<Life> {
    let (mut at, mut latest) = (0, None::<Life>);
    let mut budget = SALVAGE_BYTES_MAX;
    while let Some(found) = find_magic(bytes, batch_magic(key), at) {
        at = found + 1;
        let Some((life, image)) = batch_of_any(keys, key, bytes, found) else { continue };
        if !is_possible(life.generation) {
            continue;
        }
        let records = life.batch.records();
        let is_whole = image.is_whole(&life.batch);
        if is_whole {
            at = records.end.max(at);
        } else {
            // What overlaps is not checksummed over and over.
            let length = records.end.min(bytes.len()).saturating_sub(records.start);
            let Some(rest) = budget.checked_sub(length) else { break };
            budget = rest;
        }
        let is_later = latest.is_none_or(|best| best.generation < life.generation);
        if is_later && (is_whole || image.is_record(records.start)) {
            latest = Some(life);
        }
    }
    latest
}

/// The batch at `offset`, of whatever segment that has this key.
fn batch_of_any(
    mut keys: Keys,
    key: Key,
    bytes: &[u8],
    offset: usize,
) -> Option<(Life, Image<'_>)> {
    let claimed = bytes.get(offset..)?.get(16..)?.first_chunk()?;
    let generation = u32::from_le_bytes(*claimed) ^ key.second_half();
    if key.is_none() && !keys.of(generation).is_none() {
        return None;
    }
    // Nobody can guess a key: who has it is believed, also where it is not known that segments have it so early.
    keys.learn(generation, key);
    let image = Image { keys, generation, bytes };
    let batch = image.header(offset)?;
    Some((Life { generation, key, batch }, image))
}

/// Where a batch may begin, at or behind `from`, that begins with these bytes.
fn find_magic(bytes: &[u8], magic: [u8; 4], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(stride) = bytes.get(at..at + STRIDE_BYTES) {
        // Without an early end, so that the compiler compares many at once.
        let is_there = stride.iter().fold(false, |found, byte| found | (*byte == magic[0]));
        if is_there {
            let end = bytes.len().min(at + STRIDE_BYTES + magic.len() - 1);
            let mut windows = bytes[at..end].windows(magic.len());
            if let Some(found) = windows.position(|window| window == magic) {
                return Some(at + found);
            }
        }
        at += STRIDE_BYTES;
    }
    let mut windows = bytes.get(at..)?.windows(magic.len());
    windows.position(|window| window == magic).map(|found| at + found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::BATCH_MAGIC;
    use alloc::vec;

    #[test]
    fn a_magic_is_found_wherever_it_stands() {
        for at in 0..200 {
            for length in [at + 4, at + 5, 300] {
                let mut bytes = vec![0; length];
                bytes[at..at + 4].copy_from_slice(&BATCH_MAGIC);
                for from in 0..=at {
                    assert_eq!(find_magic(&bytes, BATCH_MAGIC, from), Some(at), "{from} {length}");
                }
                assert_eq!(find_magic(&bytes, BATCH_MAGIC, at + 1), None);
                bytes[at + 3] = 0;
                assert_eq!(find_magic(&bytes, BATCH_MAGIC, 0), None);
            }
        }
        assert_eq!(find_magic(&[], BATCH_MAGIC, 0), None);
        assert_eq!(find_magic(&[0; 3], BATCH_MAGIC, 9), None);
    }
}
