//! Queues with work left: those that have messages to expire or to drop, and what is left of deleted ones.

use alloc::collections::VecDeque;

use lepus_base::QueueId;

use crate::owner::{Conditions, Owner};
use crate::queue::Queue;

/// The queues of a shard that have work left.
#[derive(Debug, Default)]
pub(crate) struct Working {
    /// Their slots and ids, by turns; each is marked there.
    queues: VecDeque<(u32, QueueId)>,
    /// Deleted queues whose messages are still to be released, with the bytes that the shard's sum has of them.
    deleted: VecDeque<(Queue, usize)>,
}

impl Working {
    /// A queue has work left, whose mark `is_listed` says whether it is here.
    pub(crate) fn list(&mut self, is_listed: &mut bool, slot: u32, id: QueueId) {
        if !core::mem::replace(is_listed, true) {
            self.queues.push_back((slot, id));
        }
    }

    /// The next queue whose turn it is. Its mark is to be taken away.
    pub(crate) fn next(&mut self) -> Option<(u32, QueueId)> {
        self.queues.pop_front()
    }

    /// A queue is deleted, of which the shard's sum has so many bytes.
    pub(crate) fn delete(&mut self, queue: Queue, counted_bytes: usize) {
        self.deleted.push_back((queue, counted_bytes));
    }

    /// The next deleted queue, which comes back by [`Working::delete`] if more of it is left.
    pub(crate) fn next_deleted(&mut self) -> Option<(Queue, usize)> {
        self.deleted.pop_front()
    }

    /// Bytes that the shard's sum has of deleted queues.
    pub(crate) fn deleted_bytes(&self) -> usize {
        self.deleted.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Owner for Working {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        !self.queues.is_empty() || !self.deleted.is_empty()
    }
}
