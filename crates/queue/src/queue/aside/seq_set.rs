//! Sets of sequence numbers that take little memory, whether their members lie close together or far apart.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Numbers of a part.
const PART: u64 = 4096;
/// Words of a part with one bit for each number.
const WORDS: usize = PART as usize / 64;
/// A part of so many members is kept as bits: a list would take more.
const LISTED_MAX: usize = WORDS * 4;

/// The members among 4,096 numbers.
#[derive(Debug)]
enum Part {
    /// Some, in order, by their places in the part.
    Listed(Vec<u16>),
    /// Many, by a bit each, and how many they are.
    Bits(Box<[u64; WORDS]>, u16),
    /// All.
    Whole,
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::Listed(list) => list.len() as u64,
            Part::Bits(_, count) => u64::from(*count),
            Part::Whole => PART,
        }
    }

    fn insert(&mut self, place: u16) -> bool {
        match self {
            Part::Listed(list) => {
                let at = match list.last() {
                    Some(last) if *last < place => list.len(),
                    _ => match list.binary_search(&place) {
                        Ok(_) => return false,
                        Err(at) => at,
                    },
                };
                if list.len() < LISTED_MAX {
                    list.insert(at, place);
                    return true;
                }
                let mut words = Box::new([0; WORDS]);
                for member in list.iter().chain([&place]) {
                    words[usize::from(*member / 64)] |= 1 << (member % 64);
                }
                *self = Part::Bits(words, LISTED_MAX as u16 + 1);
            }
            Part::Bits(words, count) => {
                let (word, bit) = (&mut words[usize::from(place / 64)], 1 << (place % 64));
                if *word & bit != 0 {
                    return false;
                }
                *word |= bit;
                *count += 1;
                if u64::from(*count) == PART {
                    *self = Part::Whole;
                }
            }
            Part::Whole => return false,
        }
        true
    }

    fn remove(&mut self, place: u16) -> bool {
        match self {
            Part::Listed(list) => match list.binary_search(&place) {
                Ok(at) => drop(list.remove(at)),
                Err(_) => return false,
            },
            Part::Bits(words, count) => {
                let (word, bit) = (&mut words[usize::from(place / 64)], 1 << (place % 64));
                if *word & bit == 0 {
                    return false;
                }
                *word &= !bit;
                *count -= 1;
                if usize::from(*count) <= LISTED_MAX / 2 {
                    *self = Part::Listed(members(words).collect());
                }
            }
            Part::Whole => {
                let mut words = Box::new([u64::MAX; WORDS]);
                words[usize::from(place / 64)] &= !(1 << (place % 64));
                *self = Part::Bits(words, PART as u16 - 1);
            }
        }
        true
    }

    /// The first member at or behind a place.
    fn next(&self, place: u16) -> Option<u16> {
        match self {
            Part::Listed(list) => list.get(list.partition_point(|member| *member < place)).copied(),
            Part::Bits(words, _) => {
                let first = usize::from(place / 64);
                let masked = words[first] & (u64::MAX << (place % 64));
                let rest = words[first + 1..].iter().copied();
                let mut words = (first..).zip(core::iter::once(masked).chain(rest));
                let (word, bits) = words.find(|(_, bits)| *bits != 0)?;
                Some((word * 64) as u16 + bits.trailing_zeros() as u16)
            }
            Part::Whole => Some(place),
        }
    }

    fn last(&self) -> Option<u16> {
        match self {
            Part::Listed(list) => list.last().copied(),
            Part::Bits(words, _) => {
                let word = words.iter().rposition(|bits| *bits != 0)?;
                Some((word * 64) as u16 + 63 - words[word].leading_zeros() as u16)
            }
            Part::Whole => Some(PART as u16 - 1),
        }
    }

    /// Members at or behind a place.
    fn count_from(&self, place: u16) -> u64 {
        match self {
            Part::Listed(list) => {
                (list.len() - list.partition_point(|member| *member < place)) as u64
            }
            Part::Bits(words, _) => {
                let first = usize::from(place / 64);
                let masked = words[first] & (u64::MAX << (place % 64));
                let rest = words[first + 1..].iter().copied();
                let counts = core::iter::once(masked).chain(rest).map(u64::count_ones);
                counts.map(u64::from).sum()
            }
            Part::Whole => PART - u64::from(place),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Part::Listed(list) => list.capacity() * size_of::<u16>(),
            Part::Bits(..) => size_of::<[u64; WORDS]>(),
            Part::Whole => 0,
        }
    }
}

fn members(words: &[u64; WORDS]) -> impl Iterator<Item = u16> {
    (0..PART as u16).filter(|place| words[usize::from(place / 64)] & 1 << (place % 64) != 0)
}

/// Parts whose members are counted when somebody asks.
const COUNTED_PARTS: usize = 1024;
/// Bytes of a part beside its members, about.
const PART_BYTES: usize = 48;

/// A set of sequence numbers.
#[derive(Debug, Default)]
pub(super) struct SeqSet {
    /// Parts with members, by their first number divided by 4,096.
    parts: BTreeMap<u64, Part>,
    len: u64,
    /// Bytes of all parts.
    bytes: usize,
}

impl SeqSet {
    #[cfg(test)]
    fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a number. Whether it was new.
    pub(super) fn insert(&mut self, seq: u64) -> bool {
        let bytes = &mut self.bytes;
        let part = self.parts.entry(seq / PART).or_insert_with(|| {
            *bytes += PART_BYTES;
            Part::Listed(Vec::new())
        });
        let before = part.memory_bytes();
        let is_new = part.insert((seq % PART) as u16);
        self.bytes = self.bytes - before + part.memory_bytes();
        self.len += u64::from(is_new);
        is_new
    }

    /// Takes a number out. Whether it was there.
    pub(super) fn remove(&mut self, seq: u64) -> bool {
        let number = seq / PART;
        let Some(part) = self.parts.get_mut(&number) else { return false };
        let before = part.memory_bytes();
        let was_there = part.remove((seq % PART) as u16);
        self.bytes = self.bytes - before + part.memory_bytes();
        self.len -= u64::from(was_there);
        if part.len() == 0 {
            self.bytes -= part.memory_bytes() + PART_BYTES;
            self.parts.remove(&number);
        }
        was_there
    }

    /// The first member at or above a number.
    pub(super) fn next(&self, seq: u64) -> Option<u64> {
        let first = seq / PART;
        let within = self.parts.get(&first).and_then(|part| part.next((seq % PART) as u16));
        if let Some(place) = within {
            return Some(first * PART + u64::from(place));
        }
        let (number, part) = self.parts.range(first + 1..).next()?;
        part.next(0).map(|place| number * PART + u64::from(place))
    }

    /// The last member.
    pub(super) fn last(&self) -> Option<u64> {
        let (number, part) = self.parts.last_key_value()?;
        part.last().map(|place| number * PART + u64::from(place))
    }

    /// Members at or above a number; at least so many where there are very many.
    pub(super) fn count_from(&self, seq: u64) -> u64 {
        let first = seq / PART;
        let within = self.parts.get(&first).map_or(0, |part| part.count_from((seq % PART) as u16));
        let others = self.parts.range(first + 1..).take(COUNTED_PARTS);
        within + others.map(|(_, part)| part.len()).sum::<u64>()
    }

    /// Takes out what lies in `first..end`; how many they were.
    pub(super) fn remove_range(&mut self, first: u64, end: u64) -> u64 {
        let mut count = 0;
        while let Some(seq) = self.next(first).filter(|seq| *seq < end) {
            self.remove(seq);
            count += 1;
        }
        count
    }

    /// Allocated bytes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use lepus_base::Rng;

    #[test]
    fn it_has_what_an_ordinary_set_has() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (mut set, mut model) = (SeqSet::default(), BTreeSet::new());
            let range = [100, 5_000, 20_000][seed as usize % 3];
            for _ in 0..30_000 {
                let seq = rng.below(range);
                // Parts are filled, become whole, and are emptied.
                if rng.chance(if seed % 2 == 0 { 9 } else { 4 }, 10) {
                    assert_eq!(set.insert(seq), model.insert(seq));
                } else {
                    assert_eq!(set.remove(seq), model.remove(&seq));
                }
                let from = rng.below(range + 10);
                assert_eq!(set.next(from), model.range(from..).next().copied());
                assert_eq!(set.len(), model.len() as u64);
                assert_eq!(set.last(), model.last().copied());
                if rng.chance(1, 50) {
                    assert_eq!(set.count_from(from), model.range(from..).count() as u64);
                }
            }
            let end = range / 2;
            let removed = model.range(..end).count() as u64;
            assert_eq!(set.remove_range(0, end), removed);
            assert_eq!(set.next(0), model.range(end..).next().copied());
            assert_eq!(set.remove_range(0, u64::MAX), model.len() as u64 - removed);
            assert_eq!((set.memory_bytes(), set.is_empty()), (0, true));
        }
    }

    #[test]
    fn runs_take_bytes_and_scattered_members_two_bytes_each() {
        let (mut run, mut scattered) = (SeqSet::default(), SeqSet::default());
        let count = 1_000_000;
        for seq in 0..count {
            run.insert(seq);
            scattered.insert(seq * 3);
        }
        assert!(run.memory_bytes() < 20_000, "{} bytes", run.memory_bytes());
        assert!(scattered.memory_bytes() < 2 * count as usize, "{}", scattered.memory_bytes());
    }
}
