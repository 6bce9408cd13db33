//! What asking the filters of exchanges' bindings takes on this shard, as far as messages were drawn.
//!
//! Counted is in steps, which are the same whatever the machine does meanwhile; one is some ten nanoseconds. Where it is
//! much, the shard that orders the directory's changes hears of it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::Now;

use crate::directory::{FilterCost, FilterSample};
use crate::timers::{Timer, Timers};

/// Messages that count of the past, about: each further one counts one part in so many.
const KEPT: u64 = 32;
/// Messages that were drawn from which on the mean says something.
const ENOUGH: u64 = 16;
/// Parts of a step that means are counted in.
const PARTS: u64 = 256;
/// What others know is told anew when it is wrong by one part in so many.
const WRONG_PART: u32 = 8;

/// How often it is looked whether what was told is still seen.
const REVIEW_INTERVAL: Duration = Duration::from_secs(60);

/// What messages took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Costs {
    /// Messages that were drawn.
    pub(crate) samples: u64,
    /// Steps for reading a message, in the mean.
    pub(crate) reading: u32,
    /// Steps for asking the filters, in the mean.
    pub(crate) matching: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    samples: u64,
    /// In parts of a step.
    reading: u64,
    matching: u64,
    /// Distinct filters that are not looked up, at the last message that was drawn.
    unanchored: u32,
    /// What the ordering shard knows: it was told nothing, that it is not much, or how much it is.
    told: Option<Option<FilterCost>>,
    /// Messages that were drawn since the last review.
    fresh: u64,
}

impl Record {
    fn add(&mut self, sample: FilterSample) {
        self.samples += 1;
        self.fresh += 1;
        let share = self.samples.min(KEPT);
        let mix = |mean: &mut u64, steps: u32| {
            *mean = (*mean * (share - 1) + u64::from(steps) * PARTS) / share;
        };
        // Filters that went take nothing any more; what the others take is seen by and by.
        if sample.unanchored < self.unanchored {
            let (now, before) = (u64::from(sample.unanchored), u64::from(self.unanchored));
            self.matching = self.matching * now / before;
        }
        mix(&mut self.reading, sample.reading);
        mix(&mut self.matching, sample.matching);
        self.unanchored = sample.unanchored;
    }

    fn costs(&self) -> Costs {
        let steps = |parts: u64| u32::try_from(parts / PARTS).unwrap_or(u32::MAX);
        let (reading, matching) = (steps(self.reading), steps(self.matching));
        Costs { samples: self.samples, reading, matching }
    }

    /// What the ordering shard is to know: nothing below so many steps.
    fn much(&self, steps_min: u32) -> Option<FilterCost> {
        let Costs { samples, matching: steps, .. } = self.costs();
        let unanchored = self.unanchored;
        // It is not told over and over where it is about as much.
        let is_told = matches!(self.told, Some(Some(_)));
        let steps_min = if is_told { steps_min / 4 * 3 } else { steps_min };
        (samples >= ENOUGH && steps >= steps_min).then_some(FilterCost { steps, unanchored })
    }

    /// Whether what it knows is wrong.
    fn is_wrong(&self, steps_min: u32) -> bool {
        if self.samples < ENOUGH {
            return false;
        }
        match (self.told, self.much(steps_min)) {
            // Who told of an exchange that had the name before is corrected, too.
            (None, _) => true,
            (Some(told), now) => match (told, now) {
                (None, None) => false,
                (Some(told), Some(now)) => {
                    told.steps.abs_diff(now.steps) > told.steps / WRONG_PART
                        || told.unanchored.abs_diff(now.unanchored) > told.unanchored / WRONG_PART
                }
                (None, Some(_)) | (Some(_), None) => true,
            },
        }
    }
}

/// What asking the filters of each exchange took.
#[derive(Debug, Default)]
pub(crate) struct FilterCosts {
    /// By place in the directory.
    by_place: BTreeMap<u32, Record>,
    /// Places of which the ordering shard knows something wrong.
    wrong: BTreeSet<u32>,
    /// Whether the timer is armed.
    goes: bool,
}

impl FilterCosts {
    /// A message was drawn. Others are to hear of what takes so many steps.
    pub(crate) fn add(&mut self, sample: FilterSample, steps_min: u32) {
        let record = self.by_place.entry(sample.exchange).or_default();
        record.add(sample);
        if record.is_wrong(steps_min) {
            self.wrong.insert(sample.exchange);
        }
    }

    /// What messages to the exchange at a place took, if any was drawn.
    pub(crate) fn costs(&self, place: u32) -> Option<Costs> {
        self.by_place.get(&place).map(Record::costs)
    }

    /// Whether [`FilterCosts::take_wrong`] has something.
    #[inline]
    pub(crate) fn has_wrong(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// What the ordering shard is told now, by place.
    pub(crate) fn take_wrong(&mut self, steps_min: u32) -> Vec<(u32, Option<FilterCost>)> {
        let wrong = core::mem::take(&mut self.wrong);
        let told = |place: u32| {
            let record = self.by_place.get_mut(&place)?;
            let much = record.much(steps_min);
            record.told = Some(much);
            Some((place, much))
        };
        wrong.into_iter().filter_map(told).collect()
    }

    /// Arms the timer of [`FilterCosts::review`], where something was told that may change without a further message.
    pub(crate) fn arm(&mut self, now: Now, timers: &mut Timers) {
        let is_much = |record: &Record| matches!(record.told, Some(Some(_)));
        if !self.goes && self.by_place.values().any(is_much) {
            self.goes = true;
            timers.arm(now.instant + REVIEW_INTERVAL, Timer::FilterCosts);
        }
    }

    /// It is time to look at what was told. Where no message was drawn since, nothing is known any more, and the ordering
    /// shard hears so; else it hears again how much it is: it may have forgotten, with the last filter.
    pub(crate) fn review(&mut self) {
        self.goes = false;
        for (place, record) in &mut self.by_place {
            let is_much = matches!(record.told, Some(Some(_)));
            if is_much && record.fresh == 0 {
                *record = Record { told: record.told, ..Record::default() };
            }
            if is_much {
                self.wrong.insert(*place);
            }
            record.fresh = 0;
        }
    }

    /// The exchanges at these places are gone.
    pub(crate) fn forget(&mut self, places: &[u32]) {
        if self.by_place.is_empty() {
            return;
        }
        for place in places {
            self.by_place.remove(place);
            self.wrong.remove(place);
        }
    }

    /// Allocated bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_place.len() * size_of::<(u32, Record)>() + self.wrong.len() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: u32 = 1000;

    fn sample(exchange: u32, matching: u32, unanchored: u32) -> FilterSample {
        FilterSample { exchange, reading: 20, matching, unanchored }
    }

    fn told(costs: &mut FilterCosts) -> Vec<(u32, Option<FilterCost>)> {
        costs.take_wrong(MUCH)
    }

    #[test]
    fn what_is_much_is_told_when_enough_was_seen_and_again_when_it_is_otherwise() {
        let mut costs = FilterCosts::default();
        for _ in 1..ENOUGH {
            costs.add(sample(7, 3000, 10), MUCH);
        }
        assert!(!costs.has_wrong());
        costs.add(sample(7, 3000, 10), MUCH);
        let much = |steps, unanchored| Some(FilterCost { steps, unanchored });
        assert_eq!(told(&mut costs), [(7, much(3000, 10))]);
        let expected = Costs { samples: ENOUGH, reading: 20, matching: 3000 };
        assert_eq!(costs.costs(7), Some(expected));
        costs.add(sample(7, 3100, 11), MUCH);
        assert!(!costs.has_wrong(), "little has changed");
        costs.add(sample(7, 3000, 20), MUCH);
        assert_eq!(told(&mut costs), [(7, much(3005, 20))]);
        costs.add(sample(7, 2000, 10), MUCH);
        assert_eq!(told(&mut costs), [(7, much(1528, 10))], "half of them, half of it");
        // It becomes cheap, which is told once.
        let mut last = Vec::new();
        for _ in 0..1000 {
            costs.add(sample(7, 10, 1), MUCH);
            last.extend(told(&mut costs));
        }
        assert_eq!(last.last(), Some(&(7, None)));
        assert_eq!(last.iter().filter(|(_, cost)| cost.is_none()).count(), 1);
        assert!(last.len() < 20, "{} times", last.len());
    }

    #[test]
    fn what_is_seen_no_more_is_forgotten_and_what_is_seen_is_told_again() {
        let mut costs = FilterCosts::default();
        let mut timers = Timers::default();
        for _ in 0..ENOUGH {
            costs.add(sample(7, 3000, 10), MUCH);
            costs.add(sample(8, 5, 0), MUCH);
        }
        let much = Some(FilterCost { steps: 3000, unanchored: 10 });
        assert_eq!(told(&mut costs), [(7, much), (8, None)]);
        costs.arm(Now::from_millis(5), &mut timers);
        costs.arm(Now::from_millis(6), &mut timers);
        assert_eq!((timers.len(), timers.next()), (1, lepus_base::Instant::from_millis(60_005)));
        // Messages were drawn.
        costs.review();
        assert_eq!(told(&mut costs), [(7, much)]);
        // None was.
        costs.review();
        assert_eq!(told(&mut costs), [(7, None)]);
        assert_eq!(costs.costs(7), Some(Costs::default()));
        costs.review();
        assert_eq!(told(&mut costs), []);
        costs.arm(Now::from_millis(7), &mut timers);
        assert_eq!(timers.len(), 1, "there is nothing to look at");
    }

    #[test]
    fn cheap_filters_are_told_once_and_forgotten_with_their_exchange() {
        let mut costs = FilterCosts::default();
        let mut last = Vec::new();
        for _ in 0..10 * ENOUGH {
            costs.add(sample(3, 5, 0), MUCH);
            last.extend(told(&mut costs));
        }
        assert_eq!(last, [(3, None)]);
        costs.forget(&[3, 4]);
        assert_eq!((costs.costs(3), costs.memory_bytes()), (None, 0));
        for _ in 0..ENOUGH {
            costs.add(sample(3, 5000, 1), MUCH);
        }
        assert!(costs.has_wrong(), "another exchange at the place begins anew");
        costs.forget(&[3]);
        assert_eq!(told(&mut costs), []);
    }
}
