//! Queues with work left: those that have messages to expire or to drop, and what is left of deleted ones.

use alloc::collections::VecDeque;
use core::time::Duration;

use lepus_base::{Instant, QueueId};

use crate::owner::{Conditions, Owner};
use crate::queue::Queue;

/// Entries released or expired in one slice of work.
pub(crate) const WORK_BUDGET: usize = 512;
/// Messages that filters look at in one slice, where clients may come at any time: some forty microseconds.
const SELECTING_BUDGET: usize = 64;
/// They owe no more than this: a slice that was longer was so for another reason.
const OWED_MAX: Duration = Duration::from_millis(10);
/// How long after a client was served others are expected.
const SERVED_LATELY: Duration = Duration::from_millis(2);
/// What a message takes that cheap filters look at, about: their share of a turn, however short it is.
const LOOK: Duration = Duration::from_micros(1);
/// While clients are served filters get one part in so many of the time.
const SERVING_PART: u32 = 10;
/// Shortly after clients were served filters pay one part in so many of the time for what they took beyond a slice.
const LEISURELY_PART: u32 = 4;

/// How much of a shard's time filters get that go through backlogs.
#[derive(Debug, Default)]
struct SelectingShare {
    /// When they got some last.
    looked: Instant,
    /// When clients were served last.
    served: Instant,
}

/// What a queue's filters took beyond their share, in nanoseconds: one message may take as long as hundreds of others. Others do not
/// pay for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt(u32);

impl Debt {
    fn get(self) -> Duration {
        Duration::from_nanos(self.0.into())
    }

    /// The filters took as long as `used` messages take, where they had so many `looks`.
    pub(crate) fn looked(&mut self, looks: usize, used: usize) {
        let beyond = u32::try_from(used.saturating_sub(looks)).unwrap_or(u32::MAX);
        self.set(self.get() + LOOK.saturating_mul(beyond));
    }

    fn set(&mut self, owed: Duration) {
        self.0 = u32::try_from(owed.min(OWED_MAX).as_nanos()).unwrap_or(u32::MAX);
    }
}

impl SelectingShare {
    /// Messages that a queue's filters may look at now, which may owe some time; `is_serving` says whether clients are served
    /// in this turn.
    fn looks(&mut self, now: Instant, is_serving: bool, debt: &mut Debt) -> usize {
        let owed = debt.get();
        let elapsed = now.since(core::mem::replace(&mut self.looked, now));
        if is_serving {
            self.served = now;
            let share = (elapsed / SERVING_PART).max(LOOK);
            debt.set(owed.saturating_sub(share));
            if owed >= share {
                return 0;
            }
            let due = share - owed;
            return (due.as_nanos() / LOOK.as_nanos()).clamp(1, WORK_BUDGET as u128) as usize;
        }
        if now.since(self.served) >= SERVED_LATELY {
            *debt = Debt::default();
            return WORK_BUDGET;
        }
        debt.set(owed.saturating_sub((elapsed / LEISURELY_PART).max(LOOK)));
        if *debt == Debt::default() { SELECTING_BUDGET } else { 0 }
    }
}

/// The queues of a shard that have work left.
#[derive(Debug, Default)]
pub(crate) struct Working {
    /// Their slots and ids, by turns; each is marked there.
    queues: VecDeque<(u32, QueueId)>,
    /// Deleted queues whose messages are still to be released, with the bytes that the shard's sum has of them.
    deleted: VecDeque<(Queue, usize)>,
    selecting: SelectingShare,
}

impl Working {
    /// Messages that filters of consumers may look at in a queue's slice of work. What they look at again has no haste;
    /// `is_serving` says whether clients are served in this turn.
    pub(crate) fn looks(&mut self, now: Instant, is_serving: bool, debt: &mut Debt) -> usize {
        self.selecting.looks(now, is_serving, debt)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_get_a_tenth_of_a_shard_that_serves_clients_and_small_slices_shortly_after() {
        let (mut share, mut now) = (SelectingShare::default(), Instant::default());
        let mut debt = Debt::default();
        now = now + Duration::from_secs(1);
        assert_eq!(share.looks(now, false, &mut debt), WORK_BUDGET);
        let mut looks = 0;
        for _ in 0..1000 {
            now = now + Duration::from_micros(100);
            looks += share.looks(now, true, &mut debt);
        }
        assert_eq!(looks, 10_000);
        assert_eq!(share.looks(now, true, &mut debt), 1);
        now = now + Duration::from_secs(1);
        assert_eq!(share.looks(now, true, &mut debt), WORK_BUDGET);
        now = now + SERVED_LATELY / 2;
        assert_eq!(share.looks(now, false, &mut debt), SELECTING_BUDGET);
        now = now + SERVED_LATELY;
        assert_eq!(share.looks(now, false, &mut debt), WORK_BUDGET);
    }

    #[test]
    fn filters_that_took_long_wait_until_that_was_their_share() {
        let (mut share, mut now) = (SelectingShare::default(), Instant::default());
        let mut debt = Debt::default();
        now = now + Duration::from_secs(1);
        let looks = share.looks(now, true, &mut debt);
        // One message took as long as 300 others beyond that: three milliseconds of a shard that serves.
        for (micros, expected) in [(100, 30), (10, 300)] {
            debt.looked(looks, looks + 300);
            let mut turns = 0;
            loop {
                now = now + Duration::from_micros(micros);
                turns += 1;
                if share.looks(now, true, &mut debt) > 0 {
                    break;
                }
            }
            assert!((expected..=expected + 2).contains(&turns), "{turns}");
        }
        // Shortly after a client was served they wait less, and not at all where nobody comes.
        debt.looked(0, 300);
        let mut turns = 0;
        loop {
            now = now + Duration::from_micros(10);
            turns += 1;
            if share.looks(now, false, &mut debt) > 0 {
                break;
            }
        }
        assert!((118..=122).contains(&turns), "{turns}");
        debt.looked(0, 300);
        assert_eq!(share.looks(now + SERVED_LATELY, false, &mut debt), WORK_BUDGET);
    }

    #[test]
    fn a_queue_does_not_pay_for_what_another_ones_filters_took() {
        let (mut share, mut now) = (SelectingShare::default(), Instant::default());
        let (mut dear, mut cheap) = (Debt::default(), Debt::default());
        let (mut looks, mut dear_turns) = (0, 0);
        for turn in 0..10_000 {
            now = now + Duration::from_micros(100);
            if turn % 2 == 0 {
                looks += share.looks(now, true, &mut cheap);
            } else if let own @ 1.. = share.looks(now, true, &mut dear) {
                dear.looked(own, 500);
                dear_turns += 1;
            }
        }
        assert_eq!(looks, 50_000, "a half of a tenth of a second");
        assert!((90..=110).contains(&dear_turns), "the other half: {dear_turns}");
    }
}
