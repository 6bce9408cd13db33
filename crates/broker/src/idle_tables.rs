//! Which queues may have spare room in their tables: it is given back once they have been idle for a while.

use alloc::collections::VecDeque;
use core::time::Duration;

use lepus_base::QueueId;

/// A queue that is not used for so long gives spare room back, after twice as long at the latest.
pub(crate) const IDLE_INTERVAL: Duration = Duration::from_secs(10);
/// How soon the next ones are looked at, while some are left.
pub(crate) const SLICE_INTERVAL: Duration = Duration::from_millis(1);
/// Queues looked at in one go.
const LOOKED_AT_ONCE: usize = 256;
/// Bytes of tables that are gone through in one go, about: one queue may have many, of all its priorities.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Queues whose tables may have spare room, by slot and id.
#[derive(Debug, Default)]
pub(crate) struct IdleTables {
    queues: VecDeque<(u32, QueueId)>,
    /// How many of them, from the front, are still looked at before the next interval begins.
    left: usize,
}

impl IdleTables {
    /// Notes one that is not noted yet. Whether it is the only one: then a look is due after [`IDLE_INTERVAL`].
    pub(crate) fn note(&mut self, slot: u32, id: QueueId) -> bool {
        self.queues.push_back((slot, id));
        self.queues.len() == 1
    }

    /// It is time to look, or to look on: at those for which `gives` is asked. It gives the spare room of one back
    /// that was idle, and says how many bytes its tables had before, 0 if the queue is gone; `None` for one in use,
    /// which is looked at again. When the next look is due, from now on.
    pub(crate) fn look(
        &mut self,
        mut gives: impl FnMut(u32, QueueId) -> Option<usize>,
    ) -> Option<Duration> {
        if self.left == 0 {
            self.left = self.queues.len();
        }
        let (mut count, mut bytes) = (self.left.min(LOOKED_AT_ONCE), 0);
        while count > 0 && bytes < BYTES_AT_ONCE {
            let Some((slot, id)) = self.queues.pop_front() else { break };
            (count, self.left) = (count - 1, self.left - 1);
            match gives(slot, id) {
                Some(had) => bytes += had,
                None => self.queues.push_back((slot, id)),
            }
        }
        if self.left > 0 {
            return Some(SLICE_INTERVAL);
        }
        if self.queues.len() < self.queues.capacity() / 8 {
            self.queues.shrink_to(2 * self.queues.len());
        }
        (!self.queues.is_empty()).then_some(IDLE_INTERVAL)
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.queues.capacity() * size_of::<(u32, QueueId)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_in_use_are_looked_at_again_and_many_in_slices() {
        let mut tables = IdleTables::default();
        assert!(tables.note(0, QueueId(0)), "the first one");
        for slot in 1..300 {
            assert!(!tables.note(slot, QueueId(slot.into())));
        }
        let mut seen = 0;
        let mut look = |tables: &mut IdleTables, idle: bool| {
            tables.look(|slot, id| {
                assert_eq!(QueueId(slot.into()), id);
                seen += 1;
                (idle || slot == 7).then_some(100)
            })
        };
        assert_eq!(look(&mut tables, false), Some(SLICE_INTERVAL));
        assert_eq!(look(&mut tables, false), Some(IDLE_INTERVAL));
        assert_eq!(look(&mut tables, true), Some(SLICE_INTERVAL));
        assert_eq!(look(&mut tables, true), None);
        assert_eq!(seen, 300 + 299);
        assert_eq!(tables.memory_bytes(), 0);
        assert!(tables.note(1, QueueId(1)), "the first one again");
    }

    #[test]
    fn large_ones_take_more_slices_and_a_long_list_gets_shorter() {
        let mut tables = IdleTables::default();
        for slot in 0..200 {
            tables.note(slot, QueueId(slot.into()));
        }
        let mut slices = 1;
        let mut large = |slot, _| (slot > 0).then_some(BYTES_AT_ONCE / 4);
        while tables.look(&mut large) == Some(SLICE_INTERVAL) {
            slices += 1;
        }
        assert_eq!(slices, 50);
        assert!(tables.memory_bytes() <= 4 * size_of::<(u32, QueueId)>());
    }
}
