//! The slab of debug builds: what is looked at in it is counted.

use core::ops::{Index, IndexMut};

use crate::visits::visit;

/// [`slab::Slab`] as far as it is needed, with [`visits`](crate::visits()).
#[derive(Clone, Debug)]
pub struct Slab<T>(slab::Slab<T>);

impl<T> Slab<T> {
    /// An empty slab.
    #[must_use]
    pub const fn new() -> Slab<T> {
        Slab(slab::Slab::new())
    }

    /// An empty slab with memory for so many values.
    #[must_use]
    pub fn with_capacity(count: usize) -> Slab<T> {
        Slab(slab::Slab::with_capacity(count))
    }

    /// The place that the next value gets.
    #[must_use]
    pub fn vacant_key(&self) -> usize {
        self.0.vacant_key()
    }

    /// Places that it has memory for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Sees to it that so many more values have room.
    pub fn reserve(&mut self, additional: usize) {
        self.0.reserve(additional);
    }

    /// Gives memory back that no value needs.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a value at a place.
    #[must_use]
    pub fn contains(&self, place: usize) -> bool {
        visit(1);
        self.0.contains(place)
    }

    /// The value at a place.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&T> {
        visit(1);
        self.0.get(place)
    }

    /// The value at a place, to be changed.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        visit(1);
        self.0.get_mut(place)
    }

    /// Adds a value; its place.
    pub fn insert(&mut self, value: T) -> usize {
        visit(1);
        self.0.insert(value)
    }

    /// The place that the next value gets, to be filled.
    pub fn vacant_entry(&mut self) -> slab::VacantEntry<'_, T> {
        visit(1);
        self.0.vacant_entry()
    }

    /// Drops the values that `keeps` does not want. It looks at all of them.
    pub fn retain(&mut self, keeps: impl FnMut(usize, &mut T) -> bool) {
        visit(self.0.len());
        self.0.retain(keeps);
    }

    /// Takes the value at a place out.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, place: usize) -> T {
        visit(1);
        self.0.remove(place)
    }

    /// Takes the value at a place out, if there is one.
    pub fn try_remove(&mut self, place: usize) -> Option<T> {
        visit(1);
        self.0.try_remove(place)
    }

    /// The values with their places. It counts as a look at all of them.
    pub fn iter(&self) -> slab::Iter<'_, T> {
        visit(self.0.len());
        self.0.iter()
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> slab::IterMut<'_, T> {
        visit(self.0.len());
        self.0.iter_mut()
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;

    fn index(&self, place: usize) -> &T {
        visit(1);
        &self.0[place]
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        visit(1);
        &mut self.0[place]
    }
}

impl<'a, T> IntoIterator for &'a Slab<T> {
    type Item = (usize, &'a T);
    type IntoIter = slab::Iter<'a, T>;

    fn into_iter(self) -> slab::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Slab<T> {
    type Item = (usize, &'a mut T);
    type IntoIter = slab::IterMut<'a, T>;

    fn into_iter(self) -> slab::IterMut<'a, T> {
        self.iter_mut()
    }
}
