//! Messages that are gone for clients, on the way to being released in slices.

use alloc::vec::Vec;

use super::Sink;
use super::ready::Ready;
use super::unacked::UnackedList;
use crate::entry::Entry;

/// Messages that are gone for clients and not released yet.
#[derive(Debug, Default)]
pub(super) struct Trash {
    pub(super) ready: Vec<Ready>,
    pub(super) unacked: Vec<UnackedList>,
    /// Where to go on in the last of `unacked`.
    slot: usize,
}

impl Trash {
    /// Allocated bytes, this value included.
    pub(super) fn memory_bytes(&self) -> usize {
        let ready: usize = self.ready.iter().map(Ready::memory_bytes).sum();
        let unacked: usize = self.unacked.iter().map(UnackedList::memory_bytes).sum();
        size_of::<Trash>() + ready + unacked
    }

    /// Releases messages; those in the log went with their lanes. Returns whether some are left.
    pub(super) fn release(&mut self, budget: &mut usize, sink: &mut impl Sink) -> bool {
        let mut discard = |entry: Entry| {
            if entry.place.body().is_some() {
                sink.discard(entry);
            }
        };
        while let Some(ready) = self.ready.last_mut() {
            while let Some((entry, _)) = (*budget > 0).then(|| ready.pop()).flatten() {
                *budget -= 1;
                discard(entry);
            }
            if !ready.is_empty() {
                return true;
            }
            self.ready.pop();
        }
        while let Some(unacked) = self.unacked.last_mut() {
            while *budget > 0
                && let Some((entry, next)) = unacked.take_from(self.slot)
            {
                *budget -= 1;
                self.slot = next;
                discard(entry);
            }
            if unacked.len() > 0 {
                return true;
            }
            self.unacked.pop();
            self.slot = 0;
        }
        false
    }
}
