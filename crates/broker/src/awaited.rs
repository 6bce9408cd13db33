//! For which queues somebody waits for room in their logs: who does is found when one of them is gone.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use lepus_base::QueueId;

/// Those who wait, and the queues for which they do. A waiter is named by what tells it from all others.
#[derive(Debug, Default)]
pub(crate) struct Awaited<Waiter> {
    by_waiter: BTreeMap<Waiter, Vec<QueueId>>,
    by_target: BTreeSet<(QueueId, Waiter)>,
}

impl<Waiter: Copy + Default + Ord> Awaited<Waiter> {
    /// Somebody waits for room for these queues, and no others.
    pub(crate) fn wait(&mut self, waiter: Waiter, targets: Vec<QueueId>) {
        self.end(waiter);
        self.by_target.extend(targets.iter().map(|target| (*target, waiter)));
        self.by_waiter.insert(waiter, targets);
    }

    /// Somebody does not wait for room any more.
    pub(crate) fn end(&mut self, waiter: Waiter) {
        for target in self.by_waiter.remove(&waiter).into_iter().flatten() {
            self.by_target.remove(&(target, waiter));
        }
    }

    /// Those who wait for room for a queue.
    pub(crate) fn waiters_for(&self, target: QueueId) -> Vec<Waiter> {
        // The default is the least of all.
        let from = self.by_target.range((target, Waiter::default())..);
        from.take_while(|(queue, _)| *queue == target).map(|(_, waiter)| *waiter).collect()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        // Each queue is in the list of its waiter as well.
        self.by_target.len() * (size_of::<(QueueId, Waiter)>() + size_of::<QueueId>())
            + self.by_waiter.len() * size_of::<(Waiter, Vec<QueueId>)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_queue_is_found_until_he_waits_no_longer() {
        let queues = |ids: &[u64]| -> Vec<QueueId> { ids.iter().copied().map(QueueId).collect() };
        let mut awaited = Awaited::<QueueId>::default();
        awaited.wait(QueueId(1), queues(&[7, 8, 8]));
        awaited.wait(QueueId(2), queues(&[8, 9]));
        assert_eq!(awaited.waiters_for(QueueId(8)), queues(&[1, 2]));
        assert_eq!(awaited.waiters_for(QueueId(5)), []);
        awaited.wait(QueueId(1), queues(&[9]));
        assert_eq!(awaited.waiters_for(QueueId(8)), queues(&[2]));
        assert_eq!(awaited.waiters_for(QueueId(9)), queues(&[1, 2]));
        awaited.end(QueueId(1));
        awaited.end(QueueId(2));
        awaited.end(QueueId(2));
        assert_eq!(awaited.waiters_for(QueueId(9)), []);
        assert_eq!(awaited.memory_bytes(), 0);
    }
}
