//! Whether a shard without work spins for a moment before it sleeps.
//!
//! A sleeping thread costs its peer about 7 µs to wake and runs about 22 µs later; one that still
//! spins takes half a microsecond. Spinning pays where the next work comes soon, which the recent
//! past tells: every pause that was short speaks for it, every long one against it.

use std::time::Duration;

use lepus_base::Instant;

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

/// How often the system is asked whether others want the CPU.
const CHECK: Duration = Duration::from_millis(10);
/// A window longer than this says little about the present.
const WINDOW_MAX: Duration = Duration::from_millis(50);
/// How long a shard that has rivals leaves the CPU to them.
const YIELD: Duration = Duration::from_millis(200);

/// Tells whether another thread wants the CPU of this one: then spinning would take it away.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    checked_at: Instant,
    delay_nanos: u64,
    until: Instant,
}

impl Rivals {
    /// Whether others want the CPU. `delay` reads for how many nanoseconds this thread has had to
    /// wait for it so far.
    pub(crate) fn want_cpu(&mut self, now: Instant, delay: impl FnOnce() -> Option<u64>) -> bool {
        let window = now.since(self.checked_at);
        if window < CHECK {
            return now < self.until;
        }
        let Some(total) = delay() else { return false };
        let waited = total.saturating_sub(self.delay_nanos);
        self.checked_at = now;
        self.delay_nanos = total;
        // Being woken costs a wait, too, but not a tenth of the time.
        if window < WINDOW_MAX && u128::from(waited) > window.as_nanos() / 10 {
            self.until = now + YIELD;
        }
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_stop_the_spinning_for_a_while() {
        let mut rivals = Rivals::default();
        let at = Instant::from_millis;
        assert!(!rivals.want_cpu(at(1000), || Some(5_000_000)), "the first look is no window");
        assert!(!rivals.want_cpu(at(1001), || panic!("asked too often")));
        // 0.5 ms of 20 ms.
        assert!(!rivals.want_cpu(at(1020), || Some(5_500_000)));
        // 8 ms of 20 ms.
        assert!(rivals.want_cpu(at(1040), || Some(13_500_000)));
        assert!(rivals.want_cpu(at(1045), || panic!("asked too often")));
        assert!(rivals.want_cpu(at(1200), || Some(13_500_000)));
        assert!(!rivals.want_cpu(at(1250), || Some(13_500_000)));
        assert!(!rivals.want_cpu(at(1270), || None), "a system that does not count");
    }

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
