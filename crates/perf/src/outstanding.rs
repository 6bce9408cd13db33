//! What was sent and has not come: how many deliveries, and since when.
//!
//! Messages carry the moment that they count from. Here it is noted, for slots of time, how many were sent
//! with such a moment and how many came with it; what is left over never came.

use std::collections::VecDeque;

/// A slot is so many bits of a stamp wide: 8.4 ms of nanoseconds, 8 of milliseconds.
const NANOS_BITS: u32 = 23;
const MILLIS_BITS: u32 = 3;
/// Slots at most: two hours. Older ones become one.
const SLOTS_MAX: usize = 1 << 20;

/// Deliveries under way.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    /// Deliveries that the messages of a producer lead to in turn, by the producer's number; empty where that is not
    /// known.
    copies: Vec<Vec<u64>>,
    bits: u32,
    /// Number of the first slot.
    first: u64,
    /// The lowest number that was ever sent; lower ones came from elsewhere.
    lowest: u64,
    slots: VecDeque<u64>,
    total: u64,
    strays: u64,
}

impl Outstanding {
    /// Nothing under way. `copies`: deliveries that the messages of a producer lead to in turn, by the producer's
    /// number; `None` where they cannot be foreseen.
    pub(crate) fn new(copies: Option<Vec<Vec<u64>>>, millis: bool) -> Outstanding {
        let bits = if millis { MILLIS_BITS } else { NANOS_BITS };
        Outstanding { copies: copies.unwrap_or_default(), bits, ..Outstanding::default() }
    }

    /// Deliveries under way; `None` where that is not known.
    pub(crate) fn total(&self) -> Option<u64> {
        (!self.copies.is_empty()).then_some(self.total)
    }

    /// Deliveries that came though none was under way with their stamp.
    pub(crate) fn strays(&self) -> u64 {
        self.strays
    }

    /// Deliveries of the message with this number, from 0, of this producer.
    pub(crate) fn copies(&self, producer: u32, number: u64) -> u64 {
        match self.copies.get(producer as usize).map(Vec::as_slice) {
            None | Some([]) => 0,
            Some([copies]) => *copies,
            Some(several) => several[(number % several.len() as u64) as usize],
        }
    }

    /// The message with this number of `producer`, which carries `stamp`, was sent.
    pub(crate) fn sent(&mut self, producer: u32, number: u64, stamp: u64) {
        let copies = self.copies(producer, number);
        if copies == 0 {
            return;
        }
        let slot = stamp >> self.bits;
        if self.slots.is_empty() {
            (self.first, self.lowest) = (slot, slot);
        }
        self.lowest = self.lowest.min(slot);
        // One planned for before the first one sent counts with that.
        let mut at = slot.saturating_sub(self.first) as usize;
        if at >= SLOTS_MAX {
            let gone = at + 1 - SLOTS_MAX;
            let oldest: u64 = self.slots.drain(..gone.min(self.slots.len())).sum();
            self.first += gone as u64;
            at -= gone;
            match self.slots.front_mut() {
                Some(first) => *first += oldest,
                None => self.slots.push_back(oldest),
            }
        }
        if self.slots.len() <= at {
            self.slots.resize(at + 1, 0);
        }
        self.slots[at] += copies;
        self.total += copies;
    }

    /// A message that carries `stamp` came. One that nobody here has sent changes nothing but the count of strays.
    pub(crate) fn received(&mut self, stamp: u64) {
        let slot = stamp >> self.bits;
        let at = slot.saturating_sub(self.first) as usize;
        match self.slots.get_mut(at) {
            Some(left) if *left > 0 && slot >= self.lowest => {
                *left -= 1;
                self.total -= 1;
            }
            _ => self.strays += 1,
        }
    }

    /// Calls `each` with a stamp and the number of deliveries that have been under way since then.
    pub(crate) fn each(&self, mut each: impl FnMut(u64, u64)) {
        for (at, left) in self.slots.iter().enumerate().filter(|(_, left)| **left > 0) {
            each((self.first + at as u64) << self.bits, *left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn left(outstanding: &Outstanding) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        outstanding.each(|stamp, count| found.push((stamp / MILLI, count)));
        found
    }

    #[test]
    fn what_did_not_come_is_known_with_its_moment_whatever_the_order() {
        let mut outstanding = Outstanding::new(Some(vec![vec![1], vec![2]]), false);
        for millis in [1_000, 1_000, 2_000, 3_000] {
            outstanding.sent(0, 0, millis * MILLI);
        }
        outstanding.sent(1, 0, 3_000 * MILLI);
        assert_eq!(outstanding.total(), Some(6));
        // Not from here: of a moment long ago, and further down one too many.
        outstanding.received(5);
        assert_eq!(outstanding.total(), Some(6));
        for millis in [3_000, 1_000, 1_000, 3_000] {
            outstanding.received(millis * MILLI);
        }
        outstanding.received(1_000 * MILLI);
        assert_eq!((outstanding.total(), outstanding.strays()), (Some(2), 2));
        let left = left(&outstanding);
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left[0].0.abs_diff(2_000) < 9 && left[1].0.abs_diff(3_000) < 9, "{left:?}");
    }

    #[test]
    fn messages_lead_to_deliveries_in_turn() {
        let mut outstanding = Outstanding::new(Some(vec![vec![0, 3, 1]]), false);
        for number in 0..7 {
            outstanding.sent(0, number, 1_000 * MILLI);
        }
        assert_eq!(outstanding.total(), Some(8));
        assert_eq!((outstanding.copies(0, 4), outstanding.copies(1, 4)), (3, 0));
    }

    #[test]
    fn where_copies_are_not_known_nothing_is() {
        let mut outstanding = Outstanding::new(None, true);
        outstanding.sent(0, 0, 1);
        assert_eq!(outstanding.total(), None);
        assert_eq!(left(&outstanding), []);
    }

    #[test]
    fn a_run_of_days_takes_no_more_memory_than_one_of_hours() {
        let mut outstanding = Outstanding::new(Some(vec![vec![1]]), true);
        outstanding.sent(0, 0, 8_000);
        for day in 1..5 {
            outstanding.sent(0, 0, day * 86_400_000);
        }
        assert!(outstanding.slots.len() <= SLOTS_MAX);
        assert_eq!(outstanding.total(), Some(5));
        let mut count = 0;
        outstanding.each(|_, left| count += left);
        assert_eq!(count, 5);
    }
}
