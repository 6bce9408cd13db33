//! How far the other shards have followed the directory's changes.
//!
//! A shard applies what is in its lane before it does anything else. If changes came as fast as it applies them it would
//! do nothing else, so the shard that makes them waits for those that follow.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::ShardId;

/// Changes that some shard has not applied, or not said so, at most.
const AHEAD_MAX: u64 = 512;
/// Slices of deletions that some shard has not applied, at most: each is a fraction of a millisecond.
const SLICES_AHEAD_MAX: usize = 4;
/// A shard says how many changes it has applied when there are so many, and at each slice of a deletion.
const TOLD_TOGETHER: u32 = 64;

/// What the shard that makes the changes knows of the others.
#[derive(Debug)]
pub(super) struct Followers {
    /// Changes that were told.
    told: u64,
    /// Of these, by number, the slices of deletions that some shard has yet to apply.
    slices: VecDeque<u64>,
    /// How many each shard has applied, by shard; the own one's does not count.
    applied: Vec<u64>,
    /// The least of those.
    least: u64,
}

impl Followers {
    /// The followers of one of `shards` shards.
    pub(super) fn new(own: ShardId, shards: u16) -> Followers {
        let mut applied = alloc::vec![0; usize::from(shards)];
        // A shard is never behind itself.
        applied[own.index()] = u64::MAX;
        let least = if shards > 1 { 0 } else { u64::MAX };
        Followers { told: 0, slices: VecDeque::new(), applied, least }
    }

    /// A change was told.
    pub(super) fn tell(&mut self, is_slice: bool) {
        self.told += 1;
        if is_slice && self.least < self.told {
            self.slices.push_back(self.told);
        }
    }

    /// Another shard has applied so many more.
    pub(super) fn follow(&mut self, shard: ShardId, count: u32) {
        let applied = &mut self.applied[shard.index()];
        *applied += u64::from(count);
        assert!(*applied <= self.told, "a shard has applied more changes than there are");
        self.least = self.applied.iter().copied().min().unwrap_or(u64::MAX);
        while self.slices.pop_front_if(|number| *number <= self.least).is_some() {}
    }

    /// Whether some shard has so much to follow that no further change is made, where `waiting` have been decided.
    pub(super) fn are_far_behind(&self, waiting: usize) -> bool {
        (self.told + waiting as u64).saturating_sub(self.least) >= AHEAD_MAX
    }

    /// Whether some shard has so many slices of deletions to apply that no further one is made.
    pub(super) fn have_slices(&self) -> bool {
        self.slices.len() >= SLICES_AHEAD_MAX
    }
}

/// What a shard that follows has not said yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Following {
    applied: u32,
}

impl Following {
    /// A change was applied. How many to tell of now, if any.
    pub(crate) fn apply(&mut self, is_slice: bool) -> Option<u32> {
        self.applied += 1;
        let is_due = is_slice || self.applied >= TOLD_TOGETHER;
        is_due.then(|| core::mem::take(&mut self.applied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_shard_counts_and_a_shard_alone_waits_for_nobody() {
        let mut alone = Followers::new(ShardId(0), 1);
        let mut three = Followers::new(ShardId(0), 3);
        for _ in 0..AHEAD_MAX {
            assert!(!three.are_far_behind(0));
            alone.tell(false);
            three.tell(false);
        }
        assert!(three.are_far_behind(0) && !alone.are_far_behind(9_999));
        three.follow(ShardId(1), AHEAD_MAX as u32);
        assert!(three.are_far_behind(0));
        three.follow(ShardId(2), 2);
        assert!(!three.are_far_behind(1) && three.are_far_behind(2));
    }

    #[test]
    fn a_slice_is_told_of_at_once_and_other_changes_together() {
        let (mut followers, mut following) = (Followers::new(ShardId(0), 2), Following::default());
        for number in 1..=2 * TOLD_TOGETHER {
            followers.tell(false);
            let told = following.apply(false);
            assert_eq!(told, (number % TOLD_TOGETHER == 0).then_some(TOLD_TOGETHER));
            told.into_iter().for_each(|count| followers.follow(ShardId(1), count));
            assert!(!followers.have_slices());
        }
        followers.tell(false);
        assert_eq!(following.apply(false), None);
        for _ in 0..SLICES_AHEAD_MAX {
            assert!(!followers.have_slices());
            followers.tell(true);
        }
        assert!(followers.have_slices());
        followers.follow(ShardId(1), following.apply(true).expect("it is told at once"));
        assert!(!followers.have_slices());
    }

    #[test]
    fn what_is_not_told_yet_keeps_nobody_waiting_for_ever() {
        assert!(u64::from(TOLD_TOGETHER) < AHEAD_MAX);
    }
}
