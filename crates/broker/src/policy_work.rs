//! How far a shard's queues and exchanges follow the policies as they are now.
//!
//! A change of policies is applied to the directory at once. What it means for each queue and exchange of its virtual
//! host is found out by a walk over all of the shard, in slices. A change meanwhile has another walk follow: who was
//! looked at before it is looked at again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use lepus_base::{QueueId, VhostId};

use crate::owner::{Conditions, Owner};

/// Questions that wait at most; who asks more is told at once how far the shard is.
const WAITING_MAX: usize = 4_096;

/// What a walk looks at, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Exchanges,
    Queues,
}

/// A walk that is under way.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Whose queues and exchanges are looked at.
    pub(crate) vhosts: BTreeSet<VhostId>,
    /// What it brings everybody up to: a number of [`Directory::policy_epoch`](crate::directory::Directory).
    pub(crate) epoch: u64,
    pub(crate) stage: Stage,
    /// The place to look at next.
    pub(crate) next: usize,
}

/// The walks of a shard, what is left to be done after them, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct PolicyWork {
    /// Virtual hosts whose policies changed since the walk began.
    next: BTreeSet<VhostId>,
    walk: Option<Walk>,
    /// The epoch of the last walk that is over.
    walked: u64,
    /// Queues that drop what is above their new limits, with the epoch of the walk that found them.
    trimming: BTreeMap<QueueId, u64>,
    /// How many of these each walk has.
    trimming_of: BTreeMap<u64, usize>,
    /// Questions by the epoch that they wait for, and by their number.
    waiting: BTreeSet<(u64, u64)>,
}

impl PolicyWork {
    /// Everybody follows the policies of this epoch from the beginning.
    pub(crate) fn start_at(&mut self, epoch: u64) {
        self.walked = epoch;
    }

    /// Policies of a virtual host changed.
    pub(crate) fn changed(&mut self, vhost: VhostId) {
        self.next.insert(vhost);
    }

    /// The walk that is under way, or one that begins now with the policies of this epoch; `None` where nothing has
    /// changed. It comes back by [`PolicyWork::go_on_later`] or [`PolicyWork::over`].
    pub(crate) fn begin(&mut self, epoch: u64) -> Option<Walk> {
        self.walk.take().or_else(|| {
            let vhosts = core::mem::take(&mut self.next);
            (!vhosts.is_empty()).then_some(Walk { vhosts, epoch, stage: Stage::Exchanges, next: 0 })
        })
    }

    /// A slice of a walk is over.
    pub(crate) fn go_on_later(&mut self, walk: Walk) {
        self.walk = Some(walk);
    }

    /// A walk is over.
    pub(crate) fn over(&mut self, walk: &Walk) {
        self.walked = walk.epoch;
    }

    /// A queue that a walk with this epoch met drops what is above its new limits.
    pub(crate) fn trim(&mut self, queue: QueueId, epoch: u64) {
        if self.trimming.insert(queue, epoch) != Some(epoch) {
            *self.trimming_of.entry(epoch).or_default() += 1;
        }
    }

    /// A queue keeps to its limits, or is not here any more.
    #[inline]
    pub(crate) fn trimmed(&mut self, queue: QueueId) {
        if !self.trimming.is_empty() {
            self.end_trimming(queue);
        }
    }

    fn end_trimming(&mut self, queue: QueueId) {
        let Some(epoch) = self.trimming.remove(&queue) else { return };
        if let Some(count) = self.trimming_of.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                self.trimming_of.remove(&epoch);
            }
        }
    }

    /// The epoch whose policies every queue and exchange of the shard follows.
    pub(crate) fn done(&self) -> u64 {
        match self.trimming_of.first_key_value() {
            // It has yet to be followed by those of its walk.
            Some((epoch, _)) => self.walked.min(epoch - 1),
            None => self.walked,
        }
    }

    /// A question waits until the policies of an epoch are followed. False where very many do.
    pub(crate) fn wait(&mut self, epoch: u64, number: u64) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.insert((epoch, number));
        }
        has_room
    }

    /// Whether some question waits.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The questions that wait no more.
    pub(crate) fn take_answered(&mut self) -> Vec<u64> {
        let left = self.waiting.split_off(&(self.done() + 1, 0));
        core::mem::replace(&mut self.waiting, left).into_iter().map(|(_, number)| number).collect()
    }
}

impl Owner for PolicyWork {
    /// Whether a walk is under way or is to begin. What is trimmed is work of its queues.
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        self.walk.is_some() || !self.next.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_during_a_walk_has_another_one_follow() {
        let mut work = PolicyWork::default();
        work.changed(VhostId(1));
        let walk = work.begin(1).unwrap();
        work.go_on_later(walk);
        work.changed(VhostId(2));
        let walk = work.begin(2).unwrap();
        assert_eq!((walk.epoch, walk.vhosts.contains(&VhostId(2))), (1, false));
        work.over(&walk);
        assert_eq!(work.done(), 1);
        let walk = work.begin(2).unwrap();
        assert!(walk.vhosts.contains(&VhostId(2)) && !walk.vhosts.contains(&VhostId(1)));
        work.over(&walk);
        assert_eq!(work.done(), 2);
        assert!(work.begin(2).is_none());
    }

    #[test]
    fn questions_wait_until_the_last_queue_is_trimmed() {
        let mut work = PolicyWork::default();
        for epoch in [1, 2] {
            work.changed(VhostId(1));
            let walk = work.begin(epoch).unwrap();
            work.trim(QueueId(epoch), epoch);
            work.over(&walk);
        }
        assert!(work.wait(1, 10) && work.wait(2, 20));
        assert_eq!((work.done(), work.take_answered()), (0, Vec::new()));
        work.trimmed(QueueId(1));
        assert_eq!((work.done(), work.take_answered()), (1, alloc::vec![10]));
        work.trimmed(QueueId(7));
        work.trimmed(QueueId(2));
        assert_eq!((work.done(), work.take_answered()), (2, alloc::vec![20]));
        assert!(!work.is_awaited());
    }
}
