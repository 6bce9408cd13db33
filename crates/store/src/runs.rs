//! Sets of sequence numbers, as runs.

use alloc::collections::BTreeMap;

/// A set of numbers, kept as disjoint runs that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunSet(BTreeMap<u64, u64>);

impl RunSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.0.len()
    }

    /// Parts of runs within `first..end`.
    fn within(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.0.range(..first).next_back().filter(|(_, run_end)| **run_end > first);
        let runs = before.into_iter().chain(self.0.range(first..end.max(first)));
        runs.map(move |(&start, &stop)| (start.max(first), stop.min(end)))
    }

    /// Number of members within `first..end`.
    pub(crate) fn members_within(&self, first: u64, end: u64) -> u64 {
        self.within(first, end).map(|(start, stop)| stop - start).sum()
    }

    /// Number of members within `first..end` that `other` has too.
    pub(crate) fn members_shared(&self, other: &RunSet, first: u64, end: u64) -> u64 {
        self.within(first, end).map(|(start, stop)| other.members_within(start, stop)).sum()
    }

    pub(crate) fn contains(&self, member: u64) -> bool {
        self.0.range(..=member).next_back().is_some_and(|(_, &end)| member < end)
    }

    /// Adds `first..end`.
    pub(crate) fn insert(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let (mut start, mut stop) = (first, end);
        if let Some((&before, before_end)) = self.0.range_mut(..=first).next_back()
            && *before_end >= first
        {
            if *before_end >= end {
                return;
            }
            start = before;
            stop = end;
            *before_end = end;
        }
        while let Some((&next, &next_end)) = self.0.range(start + 1..).next() {
            if next > stop {
                break;
            }
            self.0.remove(&next);
            stop = stop.max(next_end);
        }
        self.0.insert(start, stop);
    }

    /// Takes `first..end` out.
    pub(crate) fn remove(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        while let Some((&start, &stop)) = self.0.range(..end).next_back() {
            if stop <= first {
                break;
            }
            self.0.remove(&start);
            if stop > end {
                self.0.insert(end, stop);
            }
            if start < first {
                self.0.insert(start, first);
            }
            if start <= first {
                break;
            }
        }
    }

    /// Makes one run of the lower half of them, with what is between.
    pub(crate) fn join_lower_half(&mut self) {
        let middle = self.0.len() / 2;
        let first = self.0.keys().next().copied();
        let end = self.0.values().nth(middle).copied();
        if let (Some(first), Some(end)) = (first, end) {
            self.insert(first, end);
        }
    }

    /// The last run, as (first, end).
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        self.0.last_key_value().map(|(&first, &end)| (first, end))
    }

    /// All runs as (first, end), growing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&first, &end)| (first, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use lepus_base::Rng;

    #[test]
    fn runs_hold_what_a_plain_set_holds() {
        for round in 0..200 {
            let mut rng = Rng::new(round);
            let (mut runs, mut plain) = (RunSet::default(), BTreeSet::new());
            for _ in 0..100 {
                let first = rng.below(60);
                let end = first + rng.below(8);
                if rng.chance(2, 3) {
                    runs.insert(first, end);
                    plain.extend(first..end);
                } else {
                    runs.remove(first, end);
                    plain.retain(|member| !(first..end).contains(member));
                }
                assert_eq!(runs.members_within(0, 100), plain.len() as u64);
                let (from, to) = (rng.below(70), rng.below(70));
                let within = plain.range(from..to.max(from)).count() as u64;
                assert_eq!(runs.members_within(from, to.max(from)), within);
                for member in 0..70 {
                    assert_eq!(runs.contains(member), plain.contains(&member));
                }
                let list: alloc::vec::Vec<_> = runs.iter().collect();
                assert!(list.windows(2).all(|pair| pair[0].1 < pair[1].0), "{list:?}");
            }
        }
    }
}
