//! What it takes to ask an exchange's filters, by messages that are drawn: one in sixteen, by a row of numbers that looks
//! like chance, so that messages to exchanges in turn are drawn of each.

use alloc::vec::Vec;

/// Messages that are kept for whoever takes them.
const SAMPLES_MAX: usize = 64;
/// A message is drawn where the number has no bit from this one on.
const DRAWN_BIT: u32 = 28;
const FACTOR: u32 = 747_796_405;
const TERM: u32 = 2_891_336_453;

/// What a message took of the filters of an exchange's bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterSample {
    /// The place of the exchange.
    pub exchange: u32,
    /// Steps for reading it, of some ten nanoseconds each.
    pub reading: u32,
    /// Steps for all else.
    pub matching: u32,
    /// Distinct filters that are not looked up.
    pub unanchored: u32,
}

impl FilterSample {
    pub(super) fn new(exchange: u32, reading: u64, matching: u64, unanchored: u32) -> FilterSample {
        let steps = |steps| u32::try_from(steps).unwrap_or(u32::MAX);
        FilterSample { exchange, reading: steps(reading), matching: steps(matching), unanchored }
    }
}

/// What the filters of an exchange take of a message on a shard, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterCost {
    /// Steps, of some ten nanoseconds each.
    pub steps: u32,
    /// How many distinct filters were not looked up then.
    pub unanchored: u32,
}

impl FilterCost {
    /// What it is with so many of these. With fewer it takes less; with more it is what was seen.
    pub(super) fn with(self, unanchored: u32) -> u32 {
        if unanchored >= self.unanchored {
            return self.steps;
        }
        let steps = u64::from(self.steps) * u64::from(unanchored) / u64::from(self.unanchored);
        u32::try_from(steps).unwrap_or(u32::MAX)
    }
}

/// Messages that were drawn and not taken.
#[derive(Debug, Default)]
pub(super) struct Samples {
    number: u32,
    drawn: Vec<FilterSample>,
}

impl Samples {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.drawn.is_empty()
    }

    /// Whether the next message is one of them; the first one is.
    #[inline]
    pub(super) fn is_drawn(&mut self) -> bool {
        let is_drawn = self.number >> DRAWN_BIT == 0;
        self.number = self.number.wrapping_mul(FACTOR).wrapping_add(TERM);
        is_drawn
    }

    #[cold]
    pub(super) fn add(&mut self, sample: FilterSample) {
        if self.drawn.len() < SAMPLES_MAX {
            self.drawn.push(sample);
        }
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = FilterSample> {
        self.drawn.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_in_sixteen_is_drawn_of_exchanges_in_turn() {
        for turns in [1, 2, 3, 4, 8, 16, 17] {
            let mut samples = Samples::default();
            let mut drawn = alloc::vec![0; turns];
            for message in 0..turns * 16_000 {
                drawn[message % turns] += usize::from(samples.is_drawn());
            }
            assert!(drawn.iter().all(|count| (700..1300).contains(count)), "{turns}: {drawn:?}");
        }
    }

    #[test]
    fn fewer_filters_take_less_and_more_what_was_seen() {
        let cost = FilterCost { steps: 30_000, unanchored: 300 };
        assert_eq!([0, 100, 300, 400].map(|now| cost.with(now)), [0, 10_000, 30_000, 30_000]);
        assert_eq!(FilterCost { steps: 5, unanchored: 0 }.with(0), 5);
        let largest = FilterCost { steps: u32::MAX, unanchored: u32::MAX };
        assert_eq!(largest.with(u32::MAX - 1), u32::MAX - 1);
    }
}
