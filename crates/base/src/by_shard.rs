//! Something for each other shard, mostly for few of them at a time.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::ShardId;

/// A value for each shard, found by its number. It knows which of them may hold anything, so that a
/// look at all of these costs nothing for the others, however many shards there are.
#[derive(Debug, Default)]
pub struct ByShard<T> {
    values: Vec<T>,
    /// Those that were changed since they were last seen to be empty, each once.
    touched: Vec<ShardId>,
    is_touched: Vec<bool>,
}

impl<T: Default> ByShard<T> {
    /// An empty value for each of so many shards.
    #[must_use]
    pub fn new(shards: u16) -> ByShard<T> {
        let mut values = Vec::new();
        values.resize_with(usize::from(shards), T::default);
        let is_touched = values.iter().map(|_| false).collect();
        ByShard { values, touched: Vec::new(), is_touched }
    }
}

impl<T> ByShard<T> {
    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.values.len()
    }

    /// The values that may not be empty, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.touched.iter().map(|shard| &self.values[shard.index()])
    }

    /// The shards whose values may not be empty, in their order.
    pub fn touched(&mut self) -> &[ShardId] {
        self.touched.sort_unstable();
        &self.touched
    }

    /// One of those that [`ByShard::touched`] gave; looking at values keeps their places.
    #[must_use]
    pub fn touched_at(&self, place: usize) -> ShardId {
        self.touched[place]
    }

    /// Has a shard among those whose values may not be empty.
    #[inline]
    pub fn touch(&mut self, shard: ShardId) {
        if let Some(is_touched) = self.is_touched.get_mut(shard.index())
            && !core::mem::replace(is_touched, true)
        {
            self.touched.push(shard);
        }
    }

    /// Forgets those shards whose values are empty.
    pub fn settle(&mut self, mut is_empty: impl FnMut(ShardId, &T) -> bool) {
        let (values, is_touched) = (&self.values, &mut self.is_touched);
        self.touched.retain(|&shard| {
            let stays = !is_empty(shard, &values[shard.index()]);
            is_touched[shard.index()] = stays;
            stays
        });
    }
}

impl<T> Index<usize> for ByShard<T> {
    type Output = T;

    #[inline]
    fn index(&self, shard: usize) -> &T {
        &self.values[shard]
    }
}

impl<T> IndexMut<usize> for ByShard<T> {
    #[inline]
    fn index_mut(&mut self, shard: usize) -> &mut T {
        self.touch(ShardId(shard as u16));
        &mut self.values[shard]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_changed_and_is_not_empty_is_looked_at() {
        let mut lists: ByShard<Vec<u32>> = ByShard::new(300);
        assert_eq!((lists.shards(), lists.iter().count()), (300, 0));
        for shard in [7, 299, 7, 0] {
            lists[shard].push(1);
        }
        lists.touch(ShardId(5));
        assert_eq!(lists.touched(), [0, 5, 7, 299].map(ShardId));
        assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), 4);
        lists[7].clear();
        lists.settle(|_, list| list.is_empty());
        assert_eq!(lists.touched(), [0, 299].map(ShardId));
        lists[7].push(2);
        assert_eq!(lists.touched(), [0, 7, 299].map(ShardId));
        assert_eq!(lists[7], [2]);
    }
}
