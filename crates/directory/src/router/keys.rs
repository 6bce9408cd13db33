//! Direct routing: bindings by their exact key.

use crate::binding::{Bindings, Link, Links};
use core::hash::{BuildHasher, Hasher};
use lepus_base::{HashState, LinearTable};

/// Links by routing key. The key itself stands in the binding's record only.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// No list in it is empty.
    lists: LinearTable<Links>,
    state: HashState,
}

impl Keys {
    pub(super) fn new(state: HashState) -> Keys {
        Keys { lists: LinearTable::new(), state }
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
        let hash_of_key = hash(state, key);
        if let Some(links) =
            self.lists.find_mut(hash_of_key, |links| key_of(links, bindings) == key)
        {
            bindings.push_link(links, place);
            return;
        }
        let mut links = Links::EMPTY;
        bindings.push_link(&mut links, place);
        let hash_of = |links: &Links| hash(state, key_of(links, bindings));
        self.lists.insert_unique(hash_of_key, links, hash_of);
    }

    pub(super) fn remove(&mut self, bindings: &mut Bindings, place: u32) {
        let key = bindings.get(place).routing_key.as_bytes();
        let hash = hash(self.state, key);
        let found = self.lists.find_mut(hash, |links| key_of(links, bindings) == key);
        let Some(links) = found else { invariant!("a binding that goes is listed under its key") };
        bindings.remove_link(links, place);
        if links.is_empty() {
            self.lists.remove(hash, |links| links.is_empty());
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
