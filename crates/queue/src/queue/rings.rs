//! Rings of consumers, one for each priority, and which of them is the first with somebody in it.
//!
//! Any number of priorities may be in use, so no step goes over all of them: a priority is found in
//! a tree by who joins or leaves, and the rings with somebody in them are a heap.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lepus_base::{Slab, slab_bytes};

/// Stands for no member, and for no place in the heap.
pub(super) const NONE: u32 = u32::MAX;
/// The ring of priority 0, which is always there: most consumers name no priority.
const PLAIN: u32 = 0;
/// What an entry of the tree takes, about, in bytes.
const MAPPED_BYTES: usize = 16;

/// Members of one priority that wait for their turn.
#[derive(Debug)]
pub(super) struct Ring {
    /// The first member whose turn it is; [`NONE`] where nobody waits.
    pub(super) head: u32,
    /// The last one.
    pub(super) tail: u32,
    /// Consumers of this priority, in the ring or not.
    members: u32,
    /// Place in the heap; [`NONE`] while the ring is empty.
    place: u32,
    priority: i32,
}

impl Ring {
    fn new(priority: i32) -> Ring {
        Ring { head: NONE, tail: NONE, members: 0, place: NONE, priority }
    }
}

/// All rings of a queue. A ring keeps its number as long as it has members.
#[derive(Debug)]
pub(super) struct Rings {
    rings: Slab<Ring>,
    /// Numbers by priority, but for priority 0.
    by_priority: BTreeMap<i32, u32>,
    /// Priorities and numbers of the rings with somebody in them: no parent has a lower priority
    /// than its two children at twice its place.
    ready: Vec<(i32, u32)>,
    #[cfg(test)]
    pub(super) looks: usize,
}

impl Rings {
    pub(super) fn new() -> Rings {
        let mut rings = Slab::with_capacity(1);
        rings.insert(Ring::new(0));
        Rings {
            rings,
            by_priority: BTreeMap::new(),
            ready: Vec::with_capacity(1),
            #[cfg(test)]
            looks: 0,
        }
    }

    /// A consumer comes. The number of its ring.
    pub(super) fn join(&mut self, priority: i32) -> u32 {
        let rings = &mut self.rings;
        let number = match priority {
            0 => PLAIN,
            _ => *self
                .by_priority
                .entry(priority)
                .or_insert_with(|| rings.insert(Ring::new(priority)) as u32),
        };
        rings[number as usize].members += 1;
        number
    }

    /// A consumer of this ring, which is not in it any more, goes.
    pub(super) fn leave(&mut self, number: u32) {
        let ring = &mut self.rings[number as usize];
        ring.members -= 1;
        if ring.members == 0 && number != PLAIN {
            assert!(ring.place == NONE, "nobody is in a ring without members");
            let priority = ring.priority;
            self.rings.remove(number as usize);
            self.by_priority.remove(&priority);
        }
    }

    /// Whether nobody is in any ring.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The first member of the ring with the highest priority.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        let &(_, number) = self.ready.first()?;
        Some(self.rings[number as usize].head)
    }

    /// A ring, to link members in or out. [`Rings::note`] is to follow where it may have become
    /// empty, or is not any more.
    #[inline]
    pub(super) fn ring(&mut self, number: u32) -> &mut Ring {
        &mut self.rings[number as usize]
    }

    /// A ring has become empty, or is not any more.
    #[inline]
    pub(super) fn note(&mut self, number: u32) {
        let ring = &mut self.rings[number as usize];
        if ring.head != NONE {
            self.ready.push((ring.priority, number));
            self.rise(self.ready.len() - 1);
            return;
        }
        let place = core::mem::replace(&mut ring.place, NONE) as usize;
        self.ready.swap_remove(place);
        if place < self.ready.len() {
            // If it rises, what it changes places with is higher than all below.
            self.rise(place);
            self.sink(place);
        }
    }

    /// Allocated bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        slab_bytes(&self.rings)
            + self.by_priority.len() * MAPPED_BYTES
            + self.ready.capacity() * size_of::<(i32, u32)>()
    }

    /// Moves what is at a place of the heap up to where it belongs.
    #[inline]
    fn rise(&mut self, mut place: usize) {
        let moved = self.ready[place];
        while place > 0 {
            #[cfg(test)]
            self.look();
            let parent = (place - 1) / 2;
            if self.ready[parent].0 >= moved.0 {
                break;
            }
            self.set(place, self.ready[parent]);
            place = parent;
        }
        self.set(place, moved);
    }

    /// Moves what is at a place of the heap down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        let moved = self.ready[place];
        loop {
            #[cfg(test)]
            self.look();
            let left = 2 * place + 1;
            let (Some(&child), other) = (self.ready.get(left), self.ready.get(left + 1)) else {
                break;
            };
            let (child, at) = match other {
                Some(&other) if other.0 > child.0 => (other, left + 1),
                _ => (child, left),
            };
            if child.0 <= moved.0 {
                break;
            }
            self.set(place, child);
            place = at;
        }
        self.set(place, moved);
    }

    #[inline]
    fn set(&mut self, place: usize, ready: (i32, u32)) {
        self.ready[place] = ready;
        self.rings[ready.1 as usize].place = place as u32;
    }

    #[cfg(test)]
    fn look(&mut self) {
        self.looks += 1;
    }
}
