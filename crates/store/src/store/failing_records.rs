//! Since when records cannot be read. The few bytes that say how long a record is may be read while the rest of it
//! cannot, so the end of one try says little: a record fails until it was looked at as a whole, or until nobody
//! has tried to read it for a while.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::{Instant, Now, Position};

use super::failed_reads::PAUSE_MAX;

/// So many records are remembered.
const RECORDS_MAX: usize = 1 << 16;
/// A failure is forgotten when nobody tries again for so many of the longest pauses.
const PAUSES: u32 = 4;

#[derive(Clone, Copy, Debug)]
struct Failing {
    /// When it failed first.
    first: Instant,
    /// When the last try ended.
    last: Instant,
}

impl Failing {
    fn is_over(&self, now: Now) -> bool {
        now.instant.since(self.last) > forgotten_after()
    }
}

fn forgotten_after() -> Duration {
    PAUSE_MAX * PAUSES
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FailingRecords {
    /// By the first position of the reads.
    records: BTreeMap<Position, Failing>,
    /// Of these a read was begun since the last [`FailingRecords::look_at_begun`].
    begun: Vec<Position>,
    /// When the full table was looked through last.
    cleared_at: Instant,
}

impl FailingRecords {
    /// Somebody has a read begun at `at`.
    pub(super) fn begins(&mut self, at: Position) {
        if self.records.contains_key(&at) {
            self.begun.push(at);
        }
    }

    /// Forgets those that were not tried for a while before the reads that were begun just now.
    pub(super) fn look_at_begun(&mut self, now: Now) {
        for at in self.begun.drain(..) {
            if self.records.get(&at).is_some_and(|failing| failing.is_over(now)) {
                self.records.remove(&at);
            }
        }
    }

    /// A read at `at` failed. When it failed first, of which a read that is made again knows `first`.
    pub(super) fn failed(&mut self, now: Now, at: Position, first: Option<Instant>) -> Instant {
        let first = first.unwrap_or(now.instant);
        if let Some(failing) = self.records.get_mut(&at) {
            failing.first = failing.first.min(first);
            failing.last = now.instant;
            return failing.first;
        }
        self.make_room(now);
        if self.records.len() < RECORDS_MAX {
            self.records.insert(at, Failing { first, last: now.instant });
        }
        first
    }

    /// A read that was made again at `at` worked, perhaps of a part of the record only.
    pub(super) fn tried(&mut self, now: Now, at: Position) {
        if let Some(failing) = self.records.get_mut(&at) {
            failing.last = now.instant;
        }
    }

    /// The record was read.
    pub(super) fn worked(&mut self, at: Position) {
        if !self.records.is_empty() {
            self.records.remove(&at);
        }
    }

    /// Forgets what nobody tries any more where there are too many.
    fn make_room(&mut self, now: Now) {
        let is_due = now.instant >= self.cleared_at + forgotten_after();
        if self.records.len() >= RECORDS_MAX && is_due {
            self.records.retain(|_, failing| !failing.is_over(now));
            self.cleared_at = now.instant;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Position = Position(7);

    fn now(seconds: u64) -> Now {
        Now::from_millis(seconds * 1000)
    }

    #[test]
    fn a_record_fails_since_the_first_of_tries_that_follow_each_other() {
        let mut records = FailingRecords::default();
        assert_eq!(records.failed(now(1), AT, None), now(1).instant);
        // The disk takes its time; tries are what counts, not how long they take.
        for round in 0..5 {
            let begun = now(5 + round * 40);
            records.tried(begun, AT);
            records.begins(AT);
            records.look_at_begun(begun);
            assert_eq!(records.failed(now(40 + round * 40), AT, None), now(1).instant);
        }
    }

    #[test]
    fn a_failure_long_after_the_last_try_is_the_first_of_its_own() {
        let mut records = FailingRecords::default();
        records.failed(now(1), AT, None);
        records.tried(now(3), AT);
        records.begins(AT);
        records.look_at_begun(now(12));
        assert_eq!(records.failed(now(12), AT, None), now(12).instant);
        // What a read knows that is made again counts.
        assert_eq!(records.failed(now(13), AT, Some(now(9).instant)), now(9).instant);
        records.worked(AT);
        assert_eq!(records.failed(now(14), AT, None), now(14).instant);
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for_and_old_ones_make_room() {
        let mut records = FailingRecords::default();
        let most = RECORDS_MAX as u64;
        for at in 0..most + 10 {
            records.failed(now(20), Position(at), None);
        }
        assert_eq!(records.records.len(), RECORDS_MAX);
        assert_eq!(records.failed(now(21), Position(3), None), now(20).instant);
        assert_eq!(records.failed(now(30), Position(most), None), now(30).instant);
        assert_eq!(records.records.len(), 1);
    }
}
