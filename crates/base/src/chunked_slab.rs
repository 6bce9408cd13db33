//! A slab that does not move what is in it when it grows.

use alloc::vec::Vec;
use core::mem;
use core::ops::{Index, IndexMut};

use crate::visits::visit;

/// Places of a chunk.
const CHUNK: usize = 1024;
/// Stands for "no vacant place".
const NONE: u32 = u32::MAX;

/// Values by their places, which they keep; a place is used again when its value is gone.
///
/// It is what [`crate::Slab`] is, but only its first 1,024 values are moved when it grows. At most
/// 2³² - 1 values fit in.
#[derive(Debug)]
pub struct ChunkedSlab<T> {
    /// The first places: this list grows.
    first: Vec<Entry<T>>,
    /// All others, in lists that have their full length from the start.
    rest: Vec<Vec<Entry<T>>>,
    len: usize,
    /// Where values are or were.
    places: usize,
    /// The vacant place that is used next.
    vacant: u32,
}

#[derive(Clone, Debug)]
enum Entry<T> {
    /// With the vacant place that is used after it.
    Vacant(u32),
    Occupied(T),
}

impl<T: Clone> Clone for ChunkedSlab<T> {
    /// Its lists have their full length, too: they do not grow later.
    fn clone(&self) -> ChunkedSlab<T> {
        let copy = |list: &Vec<Entry<T>>| {
            let mut copy = Vec::with_capacity(CHUNK);
            copy.extend_from_slice(list);
            copy
        };
        ChunkedSlab {
            first: self.first.clone(),
            rest: self.rest.iter().map(copy).collect(),
            len: self.len,
            places: self.places,
            vacant: self.vacant,
        }
    }
}

impl<T> ChunkedSlab<T> {
    /// Bytes that it takes for each of its values.
    pub const ENTRY_BYTES: usize = size_of::<Entry<T>>();

    /// An empty slab, which allocates nothing.
    #[must_use]
    pub const fn new() -> ChunkedSlab<T> {
        ChunkedSlab { first: Vec::new(), rest: Vec::new(), len: 0, places: 0, vacant: NONE }
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of places, vacant ones included: all values are below.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places
    }

    /// Allocated bytes, about.
    #[must_use]
    pub fn allocation_size(&self) -> usize {
        let lists = self.rest.capacity() * size_of::<Vec<Entry<T>>>();
        (self.first.capacity() + self.rest.len() * CHUNK) * Self::ENTRY_BYTES + lists
    }

    #[inline]
    fn entry(&self, place: usize) -> Option<&Entry<T>> {
        if place < CHUNK {
            self.first.get(place)
        } else {
            self.rest.get(place / CHUNK - 1)?.get(place % CHUNK)
        }
    }

    #[inline]
    fn entry_mut(&mut self, place: usize) -> Option<&mut Entry<T>> {
        if place < CHUNK {
            self.first.get_mut(place)
        } else {
            self.rest.get_mut(place / CHUNK - 1)?.get_mut(place % CHUNK)
        }
    }

    /// The value at a place.
    #[must_use]
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        visit(1);
        match self.entry(place)? {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant(_) => None,
        }
    }

    /// The value at a place, to be changed.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        visit(1);
        match self.entry_mut(place)? {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant(_) => None,
        }
    }

    /// Whether there is a value at a place.
    #[must_use]
    pub fn contains(&self, place: usize) -> bool {
        self.get(place).is_some()
    }

    /// Adds a value; its place.
    pub fn insert(&mut self, value: T) -> usize {
        self.len += 1;
        if self.vacant != NONE {
            let place = self.vacant as usize;
            let entry = self.entry_mut(place).expect("a vacant place is there");
            let before = mem::replace(entry, Entry::Occupied(value));
            let Entry::Vacant(next) = before else { unreachable!("the place is vacant") };
            self.vacant = next;
            return place;
        }
        let place = self.places;
        assert!(place < NONE as usize, "places have 32 bits");
        let list = match place / CHUNK {
            0 => &mut self.first,
            number => {
                if self.rest.len() < number {
                    self.rest.push(Vec::with_capacity(CHUNK));
                }
                &mut self.rest[number - 1]
            }
        };
        list.push(Entry::Occupied(value));
        self.places += 1;
        place
    }

    /// Takes the value at a place out.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, place: usize) -> T {
        let next = self.vacant;
        let entry = self.entry_mut(place).filter(|entry| matches!(entry, Entry::Occupied(_)));
        let entry = entry.expect("a value is at the place");
        let Entry::Occupied(value) = mem::replace(entry, Entry::Vacant(next)) else {
            unreachable!("the place is not vacant")
        };
        self.vacant = place as u32;
        self.len -= 1;
        value
    }

    /// The values with their places, by place.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        visit(self.len);
        let all = self.first.iter().chain(self.rest.iter().flatten());
        all.enumerate().filter_map(|(place, entry)| match entry {
            Entry::Occupied(value) => Some((place, value)),
            Entry::Vacant(_) => None,
        })
    }
}

impl<T> Default for ChunkedSlab<T> {
    fn default() -> ChunkedSlab<T> {
        ChunkedSlab::new()
    }
}

impl<T> Index<usize> for ChunkedSlab<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: usize) -> &T {
        self.get(place).expect("a value is at the place")
    }
}

impl<T> IndexMut<usize> for ChunkedSlab<T> {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut T {
        self.get_mut(place).expect("a value is at the place")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use alloc::boxed::Box;
    use slab::Slab;

    #[test]
    fn values_stand_where_a_slab_has_them() {
        let (mut slab, mut model) = (ChunkedSlab::new(), Slab::new());
        let mut rng = Rng::new(5);
        let mut taken: Vec<usize> = Vec::new();
        for (rounds, chance) in [(20_000, 8), (30_000, 2), (20_000, 7)] {
            for round in 0..rounds {
                if rng.below(10) < chance {
                    let place = slab.insert(round);
                    assert_eq!(place, model.insert(round));
                    taken.push(place);
                } else if !taken.is_empty() {
                    let place = taken.swap_remove(rng.below(taken.len() as u64) as usize);
                    assert_eq!(slab.remove(place), model.remove(place));
                }
                assert_eq!(slab.len(), model.len());
                let place = rng.below(20_000) as usize;
                assert_eq!(slab.get(place), model.get(place));
                assert_eq!(slab.contains(place), model.contains(place));
            }
            assert!(slab.iter().eq(model.iter()));
            assert!(slab.places() <= model.capacity());
        }
        for &place in &taken {
            slab[place] += 1;
            assert_eq!(slab[place], model[place] + 1);
            slab.remove(place);
        }
        assert!(slab.is_empty() && slab.iter().next().is_none());
    }

    #[test]
    fn values_behind_the_first_stay_where_they_are_in_memory() {
        let mut slab = ChunkedSlab::new();
        let mut seen: Vec<*const u64> = Vec::new();
        for number in 0..50_000 {
            let place = slab.insert(number);
            if place >= CHUNK {
                seen.push(&raw const slab[place]);
            }
        }
        let now = slab.iter().skip(CHUNK).map(|(_, value)| &raw const *value);
        assert!(now.eq(seen));
    }

    #[test]
    fn a_copy_has_the_same_values_and_grows_as_the_first_does() {
        let mut slab = ChunkedSlab::new();
        for number in 0..3 * CHUNK + 10 {
            slab.insert(number);
        }
        for place in [7, CHUNK + 7, 3 * CHUNK + 7] {
            slab.remove(place);
        }
        let mut copy = slab.clone();
        assert!(copy.iter().eq(slab.iter()));
        assert_eq!((copy.len(), copy.places()), (slab.len(), slab.places()));
        let before = &raw const copy[3 * CHUNK + 9];
        for number in 0..CHUNK {
            assert_eq!(copy.insert(number), slab.insert(number));
        }
        assert_eq!(&raw const copy[3 * CHUNK + 9], before);
        assert!(copy.iter().eq(slab.iter()));
    }

    #[test]
    fn a_place_takes_no_more_than_in_a_slab() {
        assert_eq!(ChunkedSlab::<Box<u32>>::ENTRY_BYTES, 16);
        assert_eq!(ChunkedSlab::<[u32; 9]>::ENTRY_BYTES, 40);
        let mut slab = ChunkedSlab::new();
        for _ in 0..100_000 {
            slab.insert([0_u64; 5]);
        }
        assert!(slab.allocation_size() < 100_000 * 49);
    }

    #[test]
    #[should_panic(expected = "a value is at the place")]
    fn what_is_not_there_cannot_be_taken_out() {
        let mut slab = ChunkedSlab::new();
        let place = slab.insert(1);
        slab.remove(place);
        slab.remove(place);
    }
}
