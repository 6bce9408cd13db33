//! The fields that a set's filters name, each with a slot for its value.

use crate::extract::Extraction;
use crate::path::Path;
use alloc::vec::Vec;
use lepus_base::{HashMap, HashState};

/// Where a field's value is after a message was read.
pub(crate) type Slot = u32;

/// Fields in use, counted.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    slots: HashMap<Path, Slot>,
    /// By slot, the field and how often it is used; none where the slot is free.
    used: Vec<Option<(Path, u32)>>,
    free: Vec<Slot>,
    extraction: Extraction,
}

impl Paths {
    pub(crate) fn new(state: HashState) -> Paths {
        Paths {
            slots: HashMap::with_hasher(state),
            used: Vec::new(),
            free: Vec::new(),
            extraction: Extraction::default(),
        }
    }

    /// Number of fields in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Number of slots, free ones included.
    pub(crate) fn slots(&self) -> usize {
        self.used.len()
    }

    /// What reads them.
    pub(crate) fn extraction(&self) -> &Extraction {
        &self.extraction
    }

    /// The slot of a field that is used once more.
    pub(crate) fn acquire(&mut self, path: &Path) -> Slot {
        if let Some(&slot) = self.slots.get(path) {
            if let Some(Some((_, users))) = self.used.get_mut(slot as usize) {
                *users += 1;
            }
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.used.push(None);
            (self.used.len() - 1) as Slot
        });
        self.used[slot as usize] = Some((path.clone(), 1));
        self.slots.insert(path.clone(), slot);
        self.rebuild();
        slot
    }

    /// One use of a slot ends.
    pub(crate) fn release(&mut self, slot: Slot) {
        let Some(used) = self.used.get_mut(slot as usize) else { return };
        let Some((_, users)) = used else { return };
        *users -= 1;
        if *users == 0
            && let Some((path, _)) = used.take()
        {
            self.slots.remove(&path);
            self.free.push(slot);
            self.rebuild();
        }
    }

    /// Their number is bounded, and seldom does it change.
    fn rebuild(&mut self) {
        let used = self.used.iter().zip(0..);
        let paths = used.filter_map(|(used, slot)| Some((&used.as_ref()?.0, slot)));
        self.extraction = Extraction::new(paths);
    }
}
