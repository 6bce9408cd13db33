//! The fields that a set's filters name, each with a slot for its value.

use crate::extract::Extraction;
use crate::path::{Path, step_bytes};
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
    /// Bytes of their steps.
    bytes: usize,
}

impl Paths {
    pub(crate) fn new(state: HashState) -> Paths {
        Paths {
            slots: HashMap::with_hasher(state),
            used: Vec::new(),
            free: Vec::new(),
            extraction: Extraction::default(),
            bytes: 0,
        }
    }

    /// Number of fields in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether a field is in use.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.slots.contains_key(path)
    }

    /// Number of slots, free ones included.
    pub(crate) fn slots(&self) -> usize {
        self.used.len()
    }

    /// What reads them.
    pub(crate) fn extraction(&self) -> &Extraction {
        &self.extraction
    }

    /// The slot of a field that is used once more. As much work as the field has steps.
    pub(crate) fn acquire(&mut self, path: &Path) -> Slot {
        if let Some(&slot) = self.slots.get(path) {
            if let Some(Some((_, users))) = self.used.get_mut(slot as usize) {
                *users += 1;
            }
            return slot;
        }
        let slot = self.reserve();
        self.used[slot as usize] = Some((path.clone(), 1));
        self.slots.insert(path.clone(), slot);
        self.bytes += 2 * step_bytes(path.steps());
        self.extraction.insert(path, slot);
        slot
    }

    /// A slot that is of no field.
    pub(crate) fn reserve(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            self.used.push(None);
            (self.used.len() - 1) as Slot
        })
    }

    /// The end of one.
    pub(crate) fn free(&mut self, slot: Slot) {
        self.free.push(slot);
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
            self.bytes -= 2 * step_bytes(path.steps());
            self.extraction.remove(&path, slot);
        }
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.allocation_size()
            + self.used.capacity() * size_of::<Option<(Path, u32)>>()
            + self.free.capacity() * size_of::<Slot>()
            + self.extraction.bytes()
            + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Step;
    use alloc::format;

    /// A set of very many names is not gone through for each of them.
    #[test]
    fn a_name_that_comes_or_goes_is_as_much_work_as_it_is_long() {
        let mut paths = Paths::new(HashState::new(1));
        let name = |number: u32| {
            Path::Body(Vec::from([
                Step::Name(format!("n{}", number % 500).into()),
                Step::Name(format!("m{number}").into()),
            ]))
        };
        let mut most = 0;
        for number in 0..5_000 {
            let before = paths.extraction.touched();
            paths.acquire(&name(number));
            most = most.max(paths.extraction.touched() - before);
        }
        for slot in 0..5_000 {
            let before = paths.extraction.touched();
            paths.release(slot);
            most = most.max(paths.extraction.touched().saturating_sub(before));
        }
        assert!(most <= 8, "{most}");
        assert_eq!((paths.len(), paths.extraction.reads_bodies()), (0, false));
    }
}
