//! The arrays that quantifiers look at.

use crate::path::{ListPath, step_bytes};
use crate::paths::{Paths, Slot};
use alloc::vec::Vec;
use lepus_base::{HashMap, HashState};

/// An array and the way from each of its elements on.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) path: ListPath,
    pub(super) slot: Slot,
    users: u32,
}

/// Arrays in use, counted.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    ids: HashMap<ListPath, u32>,
    lists: Vec<Option<List>>,
    free: Vec<u32>,
    /// Bytes of their steps.
    bytes: usize,
}

impl Lists {
    pub(super) fn new(state: HashState) -> Lists {
        Lists { ids: HashMap::with_hasher(state), lists: Vec::new(), free: Vec::new(), bytes: 0 }
    }

    /// Number of arrays in use.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Number of places, free ones included.
    pub(super) fn places(&self) -> usize {
        self.lists.len()
    }

    pub(super) fn get(&self, id: u32) -> Option<&List> {
        self.lists.get(id as usize)?.as_ref()
    }

    /// The place of an array that is used once more.
    pub(super) fn acquire(&mut self, path: &ListPath, paths: &mut Paths) -> u32 {
        let slot = paths.acquire(&path.list);
        if let Some(&id) = self.ids.get(path) {
            if let Some(list) = &mut self.lists[id as usize] {
                list.users += 1;
            }
            return id;
        }
        let list = Some(List { path: path.clone(), slot, users: 1 });
        let id = match self.free.pop() {
            Some(free) => {
                self.lists[free as usize] = list;
                free
            }
            None => {
                self.lists.push(list);
                (self.lists.len() - 1) as u32
            }
        };
        self.bytes += 2 * list_bytes(path);
        self.ids.insert(path.clone(), id);
        id
    }

    /// One use of a place ends.
    pub(super) fn release(&mut self, id: u32, paths: &mut Paths) {
        let Some(place) = self.lists.get_mut(id as usize) else { return };
        let Some(list) = place else { return };
        let slot = list.slot;
        list.users -= 1;
        if list.users == 0
            && let Some(list) = place.take()
        {
            self.bytes -= 2 * list_bytes(&list.path);
            self.ids.remove(&list.path);
            self.free.push(id);
        }
        paths.release(slot);
    }

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        self.ids.allocation_size()
            + self.lists.capacity() * size_of::<Option<List>>()
            + self.free.capacity() * size_of::<u32>()
            + self.bytes
    }
}

fn list_bytes(path: &ListPath) -> usize {
    step_bytes(path.list.steps()) + step_bytes(&path.element)
}
