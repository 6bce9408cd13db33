//! Direct routing: bindings by their exact key.

use crate::binding::{Bindings, Link, Links};
use core::hash::{BuildHasher, Hasher};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use lepus_base::HashState;

/// Links by routing key. The key itself stands in the binding's record only.
#[derive(Debug)]
pub(crate) struct Keys {
    /// No list in it is empty.
    lists: HashTable<Links>,
    state: HashState,
}

impl Keys {
    pub(super) fn new(state: HashState) -> Keys {
        Keys { lists: HashTable::new(), state }
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.lists.allocation_size()
    }

    pub(super) fn get<'a>(&'a self, key: &str, bindings: &'a Bindings) -> &'a [Link] {
        if self.lists.is_empty() {
            return &[];
        }
        self.lists
            .find(hash(self.state, key.as_bytes()), |links| {
                key_of(links, bindings) == key.as_bytes()
            })
            .map_or(&[], |links| bindings.links(links))
    }

    pub(super) fn insert(&mut self, bindings: &mut Bindings, place: u32) {
        let key = bindings.get(place).routing_key.as_bytes();
        let state = self.state;
        let entry = self.lists.entry(
            hash(state, key),
            |links| key_of(links, bindings) == key,
            |links| hash(state, key_of(links, bindings)),
        );
        let mut entry = match entry {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => entry.insert(Links::EMPTY),
        };
        bindings.push_link(entry.get_mut(), place);
    }

    pub(super) fn remove(&mut self, bindings: &mut Bindings, place: u32) {
        let key = bindings.get(place).routing_key.as_bytes();
        let entry =
            self.lists.find_entry(hash(self.state, key), |links| key_of(links, bindings) == key);
        let Ok(mut entry) = entry else { return };
        bindings.remove_link(entry.get_mut(), place);
        if entry.get().is_empty() {
            entry.remove();
        }
    }
}

fn key_of<'a>(links: &'a Links, bindings: &'a Bindings) -> &'a [u8] {
    match bindings.links(links) {
        [first, ..] => bindings.get(first.binding).routing_key.as_bytes(),
        [] => &[],
    }
}

fn hash(state: HashState, key: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(key);
    hasher.finish()
}
