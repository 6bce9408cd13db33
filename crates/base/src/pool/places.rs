//! Where the bodies of a pool lie, by handle.

use alloc::vec::Vec;

/// Stands for "no place".
const NONE: u32 = u32::MAX;
/// Places that a table keeps room for, in use or not.
const KEPT_PLACES: usize = 64 * 1024;
/// Unused places at the end that go with one that is removed.
const DROPPED_AT_ONCE_MAX: usize = 4;

/// Where one body lies. While the place is vacant, `references` is 0, and `chunk` and `offset` are
/// its neighbours in the list of vacant ones.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) chunk: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) references: u32,
}

/// All places. Vacant ones are linked in both directions, so that the table can get shorter from its
/// end in constant time per removal, without a walk.
#[derive(Debug)]
pub(super) struct Places {
    places: Vec<Place>,
    /// The first vacant place.
    vacant: u32,
    len: usize,
}

impl Default for Places {
    fn default() -> Places {
        Places { places: Vec::new(), vacant: NONE, len: 0 }
    }
}

impl Places {
    /// Bodies that have a place.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the table.
    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
    }

    /// Makes the table, with room for some places, if there is none.
    pub(super) fn reserve(&mut self, count: usize) {
        if self.places.capacity() < count {
            self.places.reserve(count);
        }
    }

    /// Adds a place with one reference.
    #[inline]
    pub(super) fn insert(&mut self, chunk: u32, offset: u32, length: u32) -> u32 {
        self.len += 1;
        let place = Place { chunk, offset, length, references: 1 };
        let handle = self.vacant;
        if handle == NONE {
            let handle = u32::try_from(self.places.len()).expect("fewer than 4 billion bodies");
            self.places.push(place);
            return handle;
        }
        let next = core::mem::replace(&mut self.places[handle as usize], place).offset;
        self.vacant = next;
        if next != NONE {
            self.places[next as usize].chunk = NONE;
        }
        handle
    }

    /// The place of a body.
    ///
    /// # Panics
    /// When the body was released.
    #[inline]
    pub(super) fn get(&self, handle: u32) -> &Place {
        let place = &self.places[handle as usize];
        assert!(place.references > 0, "the body was released");
        place
    }

    /// The same, to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, handle: u32) -> &mut Place {
        let place = &mut self.places[handle as usize];
        assert!(place.references > 0, "the body was released");
        place
    }

    /// Whether the body with this handle lives and lies there.
    #[inline]
    pub(super) fn is_at(&self, handle: u32, chunk: u32, offset: u32) -> bool {
        let is_there =
            |place: &Place| place.references > 0 && place.chunk == chunk && place.offset == offset;
        self.places.get(handle as usize).is_some_and(is_there)
    }

    /// Makes the place of a body vacant.
    #[inline]
    pub(super) fn remove(&mut self, handle: u32) {
        self.len -= 1;
        let next = core::mem::replace(&mut self.vacant, handle);
        if next != NONE {
            self.places[next as usize].chunk = handle;
        }
        self.places[handle as usize] =
            Place { chunk: NONE, offset: next, length: 0, references: 0 };
        if self.places.len() > KEPT_PLACES {
            self.shorten();
        }
    }

    /// Gives back the memory of all vacant places at the end.
    pub(super) fn give_back(&mut self) {
        while self.drop_last() {}
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to_fit();
        }
    }

    /// Drops vacant places at the end.
    #[cold]
    fn shorten(&mut self) {
        for _ in 0..DROPPED_AT_ONCE_MAX {
            if !self.drop_last() {
                break;
            }
        }
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to(self.places.capacity() / 2);
        }
    }

    /// Drops the last place if it is vacant; whether it was.
    fn drop_last(&mut self) -> bool {
        let Some(&Place { chunk: previous, offset: next, references: 0, .. }) = self.places.last()
        else {
            return false;
        };
        match previous {
            NONE => self.vacant = next,
            previous => self.places[previous as usize].offset = next,
        }
        if next != NONE {
            self.places[next as usize].chunk = previous;
        }
        self.places.pop();
        true
    }
}
