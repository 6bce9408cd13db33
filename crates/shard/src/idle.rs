//! Whether a shard without work spins for a moment before it sleeps.
//!
//! A sleeping thread costs its peer about 7 µs to wake and runs about 22 µs later; one that still
//! spins takes half a microsecond. Spinning pays where the next work comes soon, which the recent
//! past tells: every pause that was short speaks for it, every long one against it.

use std::time::Duration;

/// The longest spin.
pub(crate) const SPIN_MAX: Duration = Duration::from_micros(40);
/// Beyond this a sleep says nothing for spinning.
const SHORT: Duration = Duration::from_micros(60);
const SCORE_MAX: u8 = 8;
/// From this score on it spins.
const SCORE_SPIN: u8 = 4;

/// The memory of recent pauses.
#[derive(Debug)]
pub(crate) struct Idle {
    allowed: bool,
    score: u8,
}

impl Idle {
    /// `allowed` only where the shard has a CPU of its own and power is no concern.
    pub(crate) fn new(allowed: bool) -> Idle {
        Idle { allowed, score: 0 }
    }

    pub(crate) fn should_spin(&self) -> bool {
        self.allowed && self.score >= SCORE_SPIN
    }

    /// The shard spun, and found work or did not.
    pub(crate) fn spun(&mut self, found: bool) {
        if found {
            self.score = (self.score + 1).min(SCORE_MAX);
        } else {
            self.score = self.score.saturating_sub(2);
        }
    }

    /// The shard slept so long until there was work (or a timer).
    pub(crate) fn slept(&mut self, time: Duration) {
        if time < SHORT {
            self.score = (self.score + 1).min(SCORE_MAX);
        } else {
            self.score = self.score.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_lead_to_spinning_and_idleness_ends_it() {
        let mut idle = Idle::new(true);
        assert!(!idle.should_spin(), "a fresh shard is idle");
        for _ in 0..SCORE_SPIN {
            idle.slept(Duration::from_micros(20));
        }
        assert!(idle.should_spin());
        for _ in 0..100 {
            idle.spun(true);
        }
        let mut wasted = 0;
        while idle.should_spin() {
            idle.spun(false);
            idle.slept(Duration::from_secs(1));
            wasted += 1;
        }
        assert!(wasted <= 2, "{wasted} spins for nothing");
    }

    #[test]
    fn economy_never_spins() {
        let mut idle = Idle::new(false);
        for _ in 0..100 {
            idle.slept(Duration::ZERO);
            idle.spun(true);
        }
        assert!(!idle.should_spin());
    }
}
