//! A hash table that never moves many of its entries at once.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use hashbrown::HashTable;

use crate::visits::visit;

/// Entries that a segment has on average before another one is made: half as many as fit into 1,024
/// buckets, with room for those that have more than others.
const SEGMENT_ENTRIES: usize = 416;
/// Entries that the only segment has before there are more.
const ALONE_MAX: usize = 2 * SEGMENT_ENTRIES;

/// A [`HashTable`] that grows by linear hashing: when it has become too full, one of its segments is
/// divided in two, and all others stay as they are. Whatever its size, an insertion hashes about two
/// thousand entries anew at most, and one on average.
///
/// As with [`HashTable`], entries are found by a hash that the caller knows to make, of which all bits
/// matter.
#[derive(Clone, Debug)]
pub struct LinearTable<T>(Form<T>);

#[derive(Clone, Debug)]
enum Form<T> {
    /// Small: no more than a hash table.
    One(HashTable<T>),
    Many(Box<Many<T>>),
}

#[derive(Clone, Debug)]
struct Many<T> {
    segments: Vec<HashTable<T>>,
    /// The smallest power of two that is not less than the number of segments, minus one.
    mask: usize,
    len: usize,
    /// Bytes that the segments have allocated.
    bytes: usize,
}

/// The bits of a hash that choose the segment; a segment looks at lower ones and at the highest.
fn bits(hash: u64) -> usize {
    (hash >> 28) as usize
}

impl<T> LinearTable<T> {
    /// An empty table, which allocates nothing.
    #[must_use]
    pub const fn new() -> LinearTable<T> {
        LinearTable(Form::One(HashTable::new()))
    }

    /// Makes an empty table large enough for about `count` entries, as large as it would have grown with
    /// them: nearly none is hashed anew when they come. One that has entries stays as it is.
    pub fn prepare(&mut self, count: usize) {
        if !self.is_empty() {
            return;
        }
        self.0 = match count {
            0..=ALONE_MAX => Form::One(HashTable::with_capacity(count)),
            _ => Form::Many(Box::new(Many::with_capacity(count))),
        };
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::One(table) => table.len(),
            Form::Many(many) => many.len,
        }
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allocated bytes, about; telling them takes no walk.
    #[must_use]
    pub fn allocation_size(&self) -> usize {
        match &self.0 {
            Form::One(table) => table.allocation_size(),
            Form::Many(many) => many.bytes + many.segments.capacity() * size_of::<HashTable<T>>(),
        }
    }

    /// The entry with this hash for which `is_same` holds.
    #[inline]
    pub fn find(&self, hash: u64, is_same: impl FnMut(&T) -> bool) -> Option<&T> {
        visit(1);
        match &self.0 {
            Form::One(table) => table.find(hash, is_same),
            Form::Many(many) => many.segments[many.place(hash)].find(hash, is_same),
        }
    }

    /// The same, to change the entry in a way that keeps its hash.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, is_same: impl FnMut(&T) -> bool) -> Option<&mut T> {
        visit(1);
        match &mut self.0 {
            Form::One(table) => table.find_mut(hash, is_same),
            Form::Many(many) => {
                let place = many.place(hash);
                many.segments[place].find_mut(hash, is_same)
            }
        }
    }

    /// Adds an entry that the table does not have. `hash_of` tells the hash of those that it has.
    pub fn insert_unique(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) {
        if let Form::One(table) = &mut self.0
            && table.len() >= ALONE_MAX
        {
            let (len, bytes) = (table.len(), table.allocation_size());
            let segments = vec![mem::take(table)];
            self.0 = Form::Many(Box::new(Many { segments, mask: 0, len, bytes }));
        }
        match &mut self.0 {
            Form::One(table) => drop(table.insert_unique(hash, entry, hash_of)),
            Form::Many(many) => many.insert(hash, entry, hash_of),
        }
    }

    /// Takes out the entry with this hash for which `is_same` holds.
    pub fn remove(&mut self, hash: u64, is_same: impl FnMut(&T) -> bool) -> Option<T> {
        match &mut self.0 {
            Form::One(table) => Some(table.find_entry(hash, is_same).ok()?.remove().0),
            Form::Many(many) => many.remove(hash, is_same),
        }
    }
}

impl<T> Default for LinearTable<T> {
    fn default() -> LinearTable<T> {
        LinearTable::new()
    }
}

impl<T> Many<T> {
    fn with_capacity(count: usize) -> Many<T> {
        let number = count.div_ceil(SEGMENT_ENTRIES);
        let mask = number.next_power_of_two() - 1;
        let half = mask.div_ceil(2);
        let segments: Vec<HashTable<T>> = (0..number)
            .map(|place| {
                // One that is not divided yet has those of two.
                let is_whole = place < half && place + half >= number;
                HashTable::with_capacity((count / (mask + 1)) << u32::from(is_whole))
            })
            .collect();
        let bytes = segments.iter().map(HashTable::allocation_size).sum();
        Many { segments, mask, len: 0, bytes }
    }

    fn place(&self, hash: u64) -> usize {
        let place = bits(hash) & self.mask;
        // The segment that is to be divided has what will go to the one that is not there yet.
        if place < self.segments.len() { place } else { place & self.mask >> 1 }
    }

    fn insert(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) {
        if self.len >= self.segments.len() * SEGMENT_ENTRIES {
            self.divide(&hash_of);
        }
        let place = self.place(hash);
        let segment = &mut self.segments[place];
        let before = segment.allocation_size();
        segment.insert_unique(hash, entry, hash_of);
        self.bytes += segment.allocation_size() - before;
        self.len += 1;
    }

    /// Makes two segments of the next one.
    fn divide(&mut self, hash_of: &impl Fn(&T) -> u64) {
        let added = self.segments.len();
        self.mask = (added + 1).next_power_of_two() - 1;
        let divided = added & self.mask >> 1;
        let entries = mem::take(&mut self.segments[divided]);
        self.bytes -= entries.allocation_size();
        let half = || HashTable::with_capacity(entries.len() / 2);
        let mut halves = [half(), half()];
        for entry in entries {
            let hash = hash_of(&entry);
            let way = usize::from(bits(hash) & self.mask == added);
            halves[way].insert_unique(hash, entry, hash_of);
        }
        self.bytes += halves.iter().map(HashTable::allocation_size).sum::<usize>();
        let [stays, goes] = halves;
        self.segments[divided] = stays;
        self.segments.push(goes);
    }

    fn remove(&mut self, hash: u64, is_same: impl FnMut(&T) -> bool) -> Option<T> {
        let place = self.place(hash);
        let segment = &mut self.segments[place];
        let entry = segment.find_entry(hash, is_same).ok()?.remove().0;
        self.len -= 1;
        if segment.is_empty() {
            self.bytes -= mem::take(segment).allocation_size();
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use alloc::collections::BTreeSet;
    use core::cell::Cell;

    /// Entries that an insertion may hash anew.
    const HASHED_MAX: usize = 2_000;

    fn hash(number: &u64) -> u64 {
        let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 31)
    }

    fn insert(table: &mut LinearTable<u64>, number: u64) -> usize {
        let hashed = Cell::new(0);
        table.insert_unique(hash(&number), number, |other| {
            hashed.set(hashed.get() + 1);
            hash(other)
        });
        hashed.get()
    }

    fn has(table: &LinearTable<u64>, number: u64) -> bool {
        table.find(hash(&number), |other| *other == number).is_some()
    }

    #[test]
    fn however_large_it_is_an_insertion_moves_few_entries() {
        let mut table = LinearTable::new();
        let (mut most, mut all) = (0, 0);
        for number in 0..300_000 {
            let hashed = insert(&mut table, number);
            (most, all) = (most.max(hashed), all + hashed);
        }
        assert!(most <= HASHED_MAX, "{most}");
        assert!(all < 3 * 300_000, "{all}");
        assert!((0..300_000).all(|number| has(&table, number)) && !has(&table, 300_000));
    }

    #[test]
    fn it_takes_about_as_many_bytes_as_a_hash_table() {
        let (mut table, mut other) = (LinearTable::new(), HashTable::new());
        let (mut own, mut others) = (0.0, 0.0);
        for number in 0..400_000_u64 {
            table.insert_unique(hash(&number), number as u32, |one| hash(&u64::from(*one)));
            other.insert_unique(hash(&number), number as u32, |one| hash(&u64::from(*one)));
            if number > 10_000 {
                own += table.allocation_size() as f64 / number as f64;
                others += other.allocation_size() as f64 / number as f64;
            }
        }
        assert!(own < 1.25 * others, "{own} and {others}");
    }

    #[test]
    fn one_that_was_prepared_hashes_next_to_nothing_anew_and_is_as_large_as_one_that_grew() {
        for count in [1, 500, 833, 1_000, 4_000, 53_248, 70_000, 106_496, 106_497, 250_000] {
            let (mut table, mut other) = (LinearTable::new(), LinearTable::new());
            table.prepare(count as usize);
            let before = table.allocation_size();
            let mut hashed = 0;
            for number in 0..count {
                hashed += insert(&mut table, number);
                insert(&mut other, number);
            }
            // A segment has more than its share now and then.
            assert!(hashed <= count as usize / 5 + 500, "{hashed} of {count}");
            assert!((0..count).all(|number| has(&table, number)) && !has(&table, count));
            let (own, others) = (table.allocation_size() as f64, other.allocation_size() as f64);
            assert!(own < 1.1 * others + 4096.0, "{count}: {own} and {others}");
            assert!(before as f64 > 0.8 * own - 4096.0, "{count}: {before} and {own}");
            // It goes on growing as any other.
            for number in count..2 * count {
                assert!(insert(&mut table, number) <= HASHED_MAX);
            }
            assert!((0..2 * count).all(|number| has(&table, number)));
        }
        let mut table = LinearTable::new();
        insert(&mut table, 7);
        table.prepare(100_000);
        assert!(has(&table, 7) && table.allocation_size() < 1_000);
        let mut table = LinearTable::<u64>::new();
        table.prepare(0);
        assert_eq!(table.allocation_size(), 0);
    }

    #[test]
    fn it_finds_what_a_set_has() {
        let (mut table, mut model) = (LinearTable::new(), BTreeSet::new());
        let mut rng = Rng::new(3);
        // It grows, shrinks to nothing, and grows again.
        for (rounds, chance) in [(20_000, 9), (60_000, 2), (20_000, 8)] {
            for _ in 0..rounds {
                let number = rng.below(9_000);
                if rng.below(10) < chance {
                    if model.insert(number) {
                        insert(&mut table, number);
                    }
                } else {
                    let removed = table.remove(hash(&number), |other| *other == number);
                    assert_eq!(removed, model.take(&number));
                }
                assert_eq!(table.len(), model.len());
                let number = rng.below(9_000);
                assert_eq!(has(&table, number), model.contains(&number));
            }
        }
        for number in &model {
            let found = table.find_mut(hash(number), |other| other == number);
            assert_eq!(found, Some(&mut number.clone()));
            assert_eq!(table.remove(hash(number), |other| other == number), Some(*number));
        }
        assert!(table.is_empty());
        let Form::Many(many) = &table.0 else { panic!("it was large") };
        assert_eq!(many.bytes, 0);
    }

    #[test]
    fn a_small_one_is_as_small_as_a_hash_table() {
        assert_eq!(size_of::<LinearTable<u32>>(), size_of::<HashTable<u32>>());
        assert_eq!(LinearTable::<u32>::new().allocation_size(), 0);
    }
}
