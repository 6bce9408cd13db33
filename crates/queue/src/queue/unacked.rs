//! The messages of a queue that were delivered and not yet settled.

use alloc::vec::Vec;

use lepus_base::{Position, Slab, slab_bytes};

use super::consumers::ConsumerHandle;
use crate::entry::Entry;

/// Slots that an emptied list keeps.
const SPARE_SLOTS_MAX: usize = 256;
/// Longer lists are not looked through for slots behind the last one in use.
const TRIMMED_SLOTS_MAX: usize = 4 * SPARE_SLOTS_MAX;

/// A delivered message.
#[derive(Debug)]
pub(super) struct Unacked {
    pub(super) entry: Entry,
    /// Who has it; [`ConsumerHandle::NONE`] for `basic.get`.
    pub(super) consumer: ConsumerHandle,
}

/// Delivered messages by slot. A slot is guarded by the sequence number of its entry.
#[derive(Debug, Default)]
pub(super) struct UnackedList {
    slots: Slab<Unacked>,
    bytes: u64,
    /// With fewer it is worth a try to give memory back: the last one looked at all slots.
    trim_below: usize,
}

impl UnackedList {
    pub(super) fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Sum of the payloads.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn insert(&mut self, entry: Entry, consumer: ConsumerHandle) -> u32 {
        self.bytes += u64::from(entry.bytes);
        let is_full = self.slots.len() == self.slots.capacity();
        let slot = self.slots.insert(Unacked { entry, consumer }) as u32;
        if is_full {
            self.note_trim(usize::MAX);
        }
        slot
    }

    /// Says when to try to give memory back: when an eighth of it is used, and fewer than `most`.
    #[cold]
    fn note_trim(&mut self, most: usize) {
        let capacity = self.slots.capacity();
        let is_spare = capacity > SPARE_SLOTS_MAX;
        self.trim_below = if is_spare { most.min(capacity / 8).max(1) } else { 0 };
    }

    /// The slot that the next delivery will have.
    pub(super) fn next_slot(&self) -> u32 {
        self.slots.vacant_key() as u32
    }

    /// Priority, lane and number of those that are in the log, sorted.
    pub(super) fn logged(&self) -> Vec<(u8, bool, u64)> {
        let entries = self.slots.iter().map(|(_, unacked)| &unacked.entry);
        let logged = entries.filter(|entry| entry.place.position().is_some());
        let mut found: Vec<_> =
            logged.map(|entry| (entry.priority, entry.place.is_spilled(), entry.seq)).collect();
        found.sort_unstable();
        found
    }

    /// The lowest position in the log of those in so many slots from `first` on, and how many slots
    /// there were.
    pub(super) fn oldest(&self, first: usize, slots: usize) -> (Option<Position>, usize) {
        let end = self.slots.capacity().min(first.saturating_add(slots));
        let found = (first..end).filter_map(|slot| self.slots.get(slot)?.entry.place.position());
        (found.min(), end.saturating_sub(first))
    }

    /// Takes the delivery out; `None` if it is not there (any more).
    #[inline]
    pub(super) fn take(&mut self, slot: u32, seq: u64) -> Option<Unacked> {
        let index = slot as usize;
        if self.slots.get(index)?.entry.seq != seq {
            return None;
        }
        let unacked = self.slots.try_remove(index)?;
        self.bytes -= u64::from(unacked.entry.bytes);
        if self.slots.len() < self.trim_below {
            self.give_back();
        }
        Some(unacked)
    }

    /// Gives memory back, as far as no slot behind is in use.
    #[cold]
    fn give_back(&mut self) {
        let left = self.slots.len();
        if left == 0 {
            self.slots = Slab::new();
        } else {
            self.slots.shrink_to_fit();
        }
        self.note_trim(left / 2);
    }

    /// Takes whatever is at or behind `slot`, and says where to go on.
    pub(super) fn take_from(&mut self, slot: usize) -> Option<(Entry, usize)> {
        let slot = (slot..self.slots.capacity()).find(|&slot| self.slots.contains(slot))?;
        let unacked = self.slots.try_remove(slot)?;
        self.bytes -= u64::from(unacked.entry.bytes);
        Some((unacked.entry, slot + 1))
    }

    /// Gives spare capacity back.
    pub(super) fn trim(&mut self) {
        if self.slots.is_empty() {
            self.slots = Slab::new();
        } else if self.slots.capacity() <= TRIMMED_SLOTS_MAX {
            self.slots.shrink_to_fit();
        } else {
            // The next one that is settled has it looked through again.
            self.note_trim(usize::MAX);
        }
    }

    /// Allocated bytes, without the bodies and without the value itself.
    pub(super) fn memory_bytes(&self) -> usize {
        slab_bytes(&self.slots)
    }
}
