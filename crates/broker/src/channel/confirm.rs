//! Publisher confirms of one channel.
//!
//! Publish numbers start at 1. A number is *open* while a queue on another shard or the log has
//! yet to report it; all other numbers are settled at once. Confirms go out at the end of a
//! cycle: one `basic.ack` with `multiple` up to the lowest open number, nacks one by one.

use alloc::collections::VecDeque;

use crate::mail::Receipt;

/// Open publishes that room is kept for when there is none.
const SPARE_PUBLISHES_MAX: usize = 1024;

#[derive(Debug)]
struct Open {
    number: u64,
    /// Reports still missing.
    missing: u32,
    receipt: Receipt,
}

/// What to tell the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// All numbers up to this one that were not reported before.
    Ack {
        /// The last number.
        number: u64,
        /// How many it stands for.
        count: u64,
    },
    /// This number was refused.
    Nack(u64),
}

/// The state of publisher confirms on one channel.
#[derive(Debug, Default)]
pub struct Confirms {
    last: u64,
    /// All numbers up to this one have been reported to the publisher.
    reported: u64,
    open: VecDeque<Open>,
    /// Whether the channel is on the shard's list of channels to flush.
    pub listed: bool,
    /// Room for open publishes at the last call of [`Confirms::take_resized`].
    seen_capacity: usize,
}

impl Confirms {
    /// Allocated bytes, this value included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Confirms>() + self.open.capacity() * size_of::<Open>()
    }

    /// Whether that changed since the last call.
    pub fn take_resized(&mut self) -> bool {
        let capacity = self.open.capacity();
        core::mem::replace(&mut self.seen_capacity, capacity) != capacity
    }

    /// Takes the number of the next publish.
    pub fn take_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Publishes that are not reported yet.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.last - self.reported
    }

    /// Keeps the newest number open until `missing` reports came. `receipt` is what is known
    /// already: a refusal on the own shard may have nothing missing.
    pub fn open(&mut self, number: u64, missing: u32, receipt: Receipt) {
        if missing == 0 && receipt == Receipt::Taken {
            return;
        }
        self.open.push_back(Open { number, missing, receipt });
    }

    /// A number that is open waits for more reports.
    pub fn expect(&mut self, number: u64, more: u32) {
        let place = self.open.partition_point(|open| open.number < number);
        let Some(open) = self.open.get_mut(place).filter(|open| open.number == number) else {
            invariant!("what more reports are to come for is not confirmed yet");
        };
        open.missing += more;
    }

    /// So many `reports` for each number in `first..=last` have come.
    pub fn report(&mut self, first: u64, last: u64, reports: u32, receipt: Receipt) {
        let start = self.open.partition_point(|open| open.number < first);
        for open in self.open.iter_mut().skip(start) {
            if open.number > last {
                break;
            }
            invariant!(reports <= open.missing, "nobody reports what nobody waits for");
            open.missing -= reports;
            open.receipt = open.receipt.max(receipt);
        }
    }

    /// Whether all numbers are reported, and every log that was to have them does.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.open.iter().all(|open| open.missing == 0 && open.receipt != Receipt::Unlogged)
    }

    /// The worst that is known of the numbers that are open.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.open.iter().map(|open| open.receipt).max().unwrap_or_default()
    }

    /// The next confirmation that may go out, if any.
    pub fn pop(&mut self) -> Option<Confirmation> {
        // Positive outcomes run together until a refusal or the lowest open number.
        while let Some(front) = self.open.front() {
            if front.missing > 0 {
                return self.ack_up_to(front.number - 1);
            }
            if front.receipt != Receipt::Taken {
                let number = front.number;
                if let Some(ack) = self.ack_up_to(number - 1) {
                    return Some(ack);
                }
                self.open.pop_front();
                self.reported = number;
                return Some(Confirmation::Nack(number));
            }
            self.open.pop_front();
        }
        if self.open.capacity() > SPARE_PUBLISHES_MAX {
            self.open = VecDeque::new();
        }
        self.ack_up_to(self.last)
    }

    fn ack_up_to(&mut self, number: u64) -> Option<Confirmation> {
        if number <= self.reported {
            return None;
        }
        let count = number - self.reported;
        self.reported = number;
        Some(Confirmation::Ack { number, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn drain(confirms: &mut Confirms) -> Vec<Confirmation> {
        core::iter::from_fn(|| confirms.pop()).collect()
    }

    fn ack(number: u64, count: u64) -> Confirmation {
        Confirmation::Ack { number, count }
    }

    #[test]
    fn publishes_settled_at_once_are_confirmed_together() {
        let mut confirms = Confirms::default();
        for _ in 0..3 {
            confirms.take_number();
        }
        assert_eq!(drain(&mut confirms), [ack(3, 3)]);
        confirms.take_number();
        assert_eq!(drain(&mut confirms), [ack(4, 1)]);
        assert_eq!(confirms.outstanding(), 0);
    }

    #[test]
    fn multiple_reaches_only_below_the_lowest_open_number() {
        let mut confirms = Confirms::default();
        for missing in [0, 0, 2, 0] {
            let number = confirms.take_number();
            confirms.open(number, missing, Receipt::Taken);
        }
        assert_eq!(drain(&mut confirms), [ack(2, 2)]);
        confirms.report(3, 3, 1, Receipt::Taken);
        assert_eq!(drain(&mut confirms), []);
        confirms.report(3, 3, 1, Receipt::Taken);
        assert_eq!(drain(&mut confirms), [ack(4, 2)]);
    }

    #[test]
    fn a_refusal_is_a_nack_of_exactly_that_number() {
        let mut confirms = Confirms::default();
        for receipt in [Receipt::Taken, Receipt::Refused, Receipt::Taken] {
            let number = confirms.take_number();
            confirms.open(number, 0, receipt);
        }
        assert_eq!(drain(&mut confirms), [ack(1, 1), Confirmation::Nack(2), ack(3, 1)]);
    }

    #[test]
    fn a_publish_that_turns_out_to_wait_longer_is_not_confirmed_before() {
        let mut confirms = Confirms::default();
        for missing in [1, 1] {
            let number = confirms.take_number();
            confirms.open(number, missing, Receipt::Taken);
        }
        confirms.expect(1, 1);
        confirms.report(1, 2, 1, Receipt::Taken);
        assert_eq!(drain(&mut confirms), []);
        confirms.report(1, 1, 1, Receipt::Taken);
        assert_eq!(drain(&mut confirms), [ack(2, 2)]);
        assert!(confirms.is_committed());
    }

    #[test]
    fn what_a_log_did_not_take_is_never_committed() {
        let mut confirms = Confirms::default();
        let number = confirms.take_number();
        confirms.open(number, 5, Receipt::Taken);
        confirms.report(number, number, 3, Receipt::Refused);
        confirms.report(number, number, 2, Receipt::Taken);
        assert!(confirms.is_committed());
        let number = confirms.take_number();
        confirms.open(number, 2, Receipt::Taken);
        confirms.report(number, number, 2, Receipt::Unlogged);
        assert!(!confirms.is_committed());
        assert_eq!(drain(&mut confirms), [Confirmation::Nack(1), Confirmation::Nack(2)]);
    }
}
