//! How far a shard's queues and exchanges follow the policies as they are now.
//!
//! A change of policies is applied to the directory at once. What it means for each queue and exchange of its virtual
//! host is found out by a walk over all of the shard, in slices. A change meanwhile has another walk follow: who was
//! looked at before it is looked at again.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{Instant, Now, QueueId, VhostId};

use crate::owner::{Conditions, Owner};

/// Questions that wait at most; who asks more is told at once how far the shard is.
const WAITING_MAX: usize = 4_096;
/// How long a question waits at most. Who asked may have given up long before, which nobody tells the shard.
const WAIT_MAX: Duration = Duration::from_secs(15);

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
    /// Queues that drop what is above their new limits, with the epoch of the walk that found them first.
    trimming: BTreeMap<QueueId, u64>,
    /// How many of these each walk has.
    trimming_of: BTreeMap<u64, usize>,
    /// Questions by the epoch that they wait for, and by their number.
    waiting: BTreeSet<(u64, u64)>,
    /// The same by the moment at which they wait no longer.
    until: BTreeSet<(Instant, u64, u64)>,
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

    /// A queue that a walk with this epoch met drops what is above its new limits. Where it does so since an earlier
    /// walk, it follows the policies of neither.
    pub(crate) fn trim(&mut self, queue: QueueId, epoch: u64) {
        if let Entry::Vacant(entry) = self.trimming.entry(queue) {
            entry.insert(epoch);
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

    /// A question waits until the policies of an epoch are followed, but not for ever. False where very many do.
    pub(crate) fn wait(&mut self, now: Now, epoch: u64, number: u64) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.insert((epoch, number));
            self.until.insert((now.instant + WAIT_MAX, epoch, number));
        }
        has_room
    }

    /// When the first question waits no longer.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.until.first().map_or(Instant::NEVER, |(at, ..)| *at)
    }

    /// Whether some question waits.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The questions whose policies are followed.
    pub(crate) fn take_answered(&mut self) -> Vec<u64> {
        let left = self.waiting.split_off(&(self.done() + 1, 0));
        let answered = core::mem::replace(&mut self.waiting, left);
        if !answered.is_empty() {
            self.until.retain(|(_, epoch, number)| !answered.contains(&(*epoch, *number)));
        }
        answered.into_iter().map(|(_, number)| number).collect()
    }

    /// The questions that have waited for too long.
    pub(crate) fn take_overdue(&mut self, now: Now) -> Vec<u64> {
        let mut overdue = Vec::new();
        while self.next_timeout() <= now.instant
            && let Some((_, epoch, number)) = self.until.pop_first()
        {
            self.waiting.remove(&(epoch, number));
            overdue.push(number);
        }
        overdue
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
        let now = Now::default();
        assert!(work.wait(now, 1, 10) && work.wait(now, 2, 20));
        assert_eq!((work.done(), work.take_answered()), (0, Vec::new()));
        work.trimmed(QueueId(1));
        assert_eq!((work.done(), work.take_answered()), (1, alloc::vec![10]));
        work.trimmed(QueueId(7));
        work.trimmed(QueueId(2));
        assert_eq!((work.done(), work.take_answered()), (2, alloc::vec![20]));
        assert!(!work.is_awaited());
    }

    #[test]
    fn a_queue_that_several_changes_find_trimming_ends_all_of_them() {
        let mut work = PolicyWork::default();
        for epoch in 1..=3 {
            work.changed(VhostId(1));
            let walk = work.begin(epoch).unwrap();
            work.trim(QueueId(1), epoch);
            work.over(&walk);
        }
        assert_eq!(work.done(), 0);
        work.trimmed(QueueId(1));
        assert_eq!(work.done(), 3);
    }
}
