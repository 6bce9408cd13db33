//! For which queues somebody waits for room in their logs: who does is found when one of them is gone.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use lepus_base::QueueId;

/// What a queue costs that somebody waits for, about, in bytes.
const TARGET_BYTES: usize = size_of::<(QueueId, QueueId)>() + size_of::<QueueId>();

/// Those who wait, each named by the queue or the delayed exchange whose messages it has, and the queues that are to
/// get the first of them.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    by_waiter: BTreeMap<QueueId, Vec<QueueId>>,
    by_target: BTreeSet<(QueueId, QueueId)>,
}

impl Awaited {
    /// Somebody waits for room for these queues, and no others.
    pub(crate) fn wait(&mut self, waiter: QueueId, targets: Vec<QueueId>) {
        self.end(waiter);
        self.by_target.extend(targets.iter().map(|target| (*target, waiter)));
        self.by_waiter.insert(waiter, targets);
    }

    /// Somebody does not wait for room any more.
    pub(crate) fn end(&mut self, waiter: QueueId) {
        for target in self.by_waiter.remove(&waiter).into_iter().flatten() {
            self.by_target.remove(&(target, waiter));
        }
    }

    /// Those who wait for room for a queue.
    pub(crate) fn waiters_for(&self, target: QueueId) -> Vec<QueueId> {
        let all = (target, QueueId(0))..=(target, QueueId(u64::MAX));
        self.by_target.range(all).map(|(_, waiter)| *waiter).collect()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_target.len() * TARGET_BYTES
            + self.by_waiter.len() * size_of::<(QueueId, Vec<QueueId>)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_queue_is_found_until_he_waits_no_longer() {
        let queues = |ids: &[u64]| -> Vec<QueueId> { ids.iter().copied().map(QueueId).collect() };
        let mut awaited = Awaited::default();
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
