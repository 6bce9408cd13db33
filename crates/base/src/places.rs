//! Where queues stand, by their ids.

use core::hash::BuildHasher;

use crate::{HashState, LinearTable, QueueId};

/// Finds the place of a queue in a table by its id. Only places are kept here, 5 bytes each; the
/// table itself says which id stands at a place.
#[derive(Clone, Debug)]
pub struct Places {
    hash: HashState,
    places: LinearTable<u32>,
}

impl Places {
    /// None yet. `hash` is that of the table's owner, so that ids cannot be chosen to clash.
    #[must_use]
    pub fn new(hash: HashState) -> Places {
        Places { hash, places: LinearTable::new() }
    }

    /// Makes room for about `count` queues, unless there are some already.
    pub fn prepare(&mut self, count: usize) {
        self.places.prepare(count);
    }

    /// Allocated bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.places.allocation_size()
    }

    fn hash(&self, id: QueueId) -> u64 {
        self.hash.hash_one(id)
    }

    /// The place of a queue; `id_at` tells which one stands at a place.
    #[inline]
    pub fn find(&self, id: QueueId, id_at: impl Fn(u32) -> QueueId) -> Option<u32> {
        self.places.find(self.hash(id), |&place| id_at(place) == id).copied()
    }

    /// Notes the place of a queue that has none.
    pub fn insert(&mut self, id: QueueId, place: u32, id_at: impl Fn(u32) -> QueueId) {
        let state = self.hash;
        let hash = self.hash(id);
        self.places.insert_unique(hash, place, |&place| state.hash_one(id_at(place)));
    }

    /// Forgets the place of a queue and tells it.
    pub fn remove(&mut self, id: QueueId, id_at: impl Fn(u32) -> QueueId) -> Option<u32> {
        self.places.remove(self.hash(id), |&place| id_at(place) == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn each_queue_is_found_where_it_stands_until_it_goes() {
        let mut ids: Vec<QueueId> = Vec::new();
        let mut places = Places::new(HashState::new(7));
        for number in 0..1000 {
            ids.push(QueueId(number * 3));
            places.insert(QueueId(number * 3), number as u32, |place| ids[place as usize]);
        }
        let id_at = |place: u32| ids[place as usize];
        for number in 0..3000 {
            let place = (number % 3 == 0).then_some(number as u32 / 3);
            assert_eq!(places.find(QueueId(number), id_at), place);
        }
        assert_eq!(places.remove(QueueId(30), id_at), Some(10));
        assert_eq!(places.remove(QueueId(30), id_at), None);
        assert_eq!(places.find(QueueId(30), id_at), None);
        assert_eq!(places.find(QueueId(33), id_at), Some(11));
    }
}
