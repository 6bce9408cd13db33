//! When the deliveries of a channel were made, without a note on each of them: what the last tag was
//! at some looks in the past.

use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::Instant;

/// Marks are as far apart as this part of the age of the oldest: so they grow with its logarithm.
const PARTS: u32 = 64;

/// The last delivery tag at past looks, the oldest first.
#[derive(Debug, Default)]
pub struct Ages(Vec<Mark>);

/// All deliveries up to `tag` were made by `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    tag: u64,
    at: Instant,
}

impl Ages {
    /// A look: the tag of the oldest delivery that waits, if any does, and the last tag given.
    /// Returns for how long the oldest has waited at least. In truth it may be longer by the time
    /// between two looks and a sixtieth of the longest wait.
    pub fn look(&mut self, now: Instant, oldest: Option<u64>, last_tag: u64) -> Duration {
        let Some(oldest) = oldest else {
            self.0 = Vec::new();
            return Duration::ZERO;
        };
        let settled = self.0.iter().take_while(|mark| mark.tag < oldest).count();
        self.0.drain(..settled);
        let is_due = match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => {
                last.tag < last_tag && now.since(last.at) >= now.since(first.at) / PARTS
            }
            _ => true,
        };
        if is_due {
            self.0.push(Mark { tag: last_tag, at: now });
        }
        self.0.first().map_or(Duration::ZERO, |mark| now.since(mark.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    #[test]
    fn the_oldest_counts_from_the_first_look_after_its_delivery() {
        let mut ages = Ages::default();
        assert_eq!(ages.look(at(30), Some(1), 3), Duration::ZERO);
        assert_eq!(ages.look(at(60), Some(1), 5), Duration::from_secs(30));
        // The third was there at the first look, the fourth only at the second.
        assert_eq!(ages.look(at(90), Some(3), 5), Duration::from_secs(60));
        assert_eq!(ages.look(at(90), Some(4), 5), Duration::from_secs(30));
        assert_eq!(ages.look(at(120), Some(6), 6), Duration::ZERO);
    }

    #[test]
    fn without_deliveries_nothing_is_kept() {
        let mut ages = Ages::default();
        ages.look(at(30), Some(1), 1);
        assert_eq!(ages.look(at(60), None, 9), Duration::ZERO);
        assert_eq!(ages.0.capacity(), 0);
        assert_eq!(ages.look(at(90), Some(10), 10), Duration::ZERO);
    }

    #[test]
    fn marks_stay_few_and_are_never_too_early() {
        let mut ages = Ages::default();
        for tag in 1..100_000 {
            // Each look finds one more; the first is never settled.
            let waited = ages.look(at(30 * tag), Some(1), tag);
            assert_eq!(waited, Duration::from_secs(30 * (tag - 1)));
            assert!(ages.0.len() <= 1000);
        }
        let now = 100_000;
        for oldest in [50_000, 70_000, 99_000] {
            let waited = ages.look(at(30 * now), Some(oldest), now).as_secs();
            let truth = 30 * (now - oldest);
            assert!(waited <= truth && truth - waited <= 30 * now / 60, "{waited} of {truth}");
        }
    }
}
