//! When something that failed is tried again, and how often.

use core::time::Duration;

use lepus_base::{Instant, Now};

use crate::disk::DiskError;

/// Failures in a row after which nothing is tried any more, but for a lack that may pass.
const FAILURES_MAX: u32 = 5;

/// What is known of the failures of one kind of operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    /// Not before then.
    at: Instant,
    /// In a row, those not counted that found no room or no means.
    failures: u32,
}

impl Retry {
    /// Whether an operation may be tried.
    pub(crate) fn is_due(&self, now: Now) -> bool {
        now.instant >= self.at
    }

    /// When an operation may be tried; in the past after a success.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Whether the last one failed.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.at > Instant(0)
    }

    /// An operation failed: the next one waits for `pause`. False when there is to be none, because
    /// this is no lack of room or means and happened too often. Several that were under way together are one
    /// failure.
    pub(crate) fn failed(&mut self, now: Now, pause: Duration, error: DiskError) -> bool {
        if self.is_due(now) {
            self.failures += u32::from(!error.is_lack());
            self.at = now.instant + pause;
        }
        self.failures < FAILURES_MAX
    }

    /// An operation succeeded.
    pub(crate) fn succeeded(&mut self) {
        *self = Retry::default();
    }

    /// What was missing may be there now.
    pub(crate) fn hurry(&mut self) {
        self.at = Instant(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    #[test]
    fn failures_that_come_together_count_once_and_a_success_ends_the_row() {
        let mut retry = Retry::default();
        let mut now = Now::from_millis(1);
        for round in 1..=4 {
            assert!((0..10).all(|_| retry.failed(now, PAUSE, DiskError::Failed)), "{round}");
            assert!(!retry.is_due(now));
            now.instant = retry.at();
            assert!(retry.is_due(now));
        }
        retry.succeeded();
        assert!(retry.failed(now, PAUSE, DiskError::Failed));
    }

    #[test]
    fn room_and_means_are_waited_for_without_end_and_nothing_else_is() {
        let mut retry = Retry::default();
        let mut now = Now::from_millis(1);
        for error in [DiskError::Full, DiskError::Busy] {
            for _ in 0..1000 {
                assert!(retry.failed(now, PAUSE, error));
                now.instant = retry.at();
            }
        }
        let mut tries = 1;
        while retry.failed(now, PAUSE, DiskError::Failed) {
            now.instant = retry.at();
            tries += 1;
        }
        assert_eq!(tries, FAILURES_MAX);
    }
}
