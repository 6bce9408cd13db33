//! Whether a shard without work spins for a moment before it sleeps.
//!
//! A sleeping thread costs its peer about 7 µs to wake and runs about 22 µs later; one that still
//! spins takes half a microsecond. Spinning pays where the next work comes soon, which the recent
//! past tells: every pause that was short speaks for it, every long one against it.

use std::time::Duration;

use lepus_base::Instant;

/// What a shard without work does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePreset {
    /// Looks around for a moment where work has come soon before, then sleeps.
    #[default]
    Adaptive,
    /// Looks around longer, and for longer pauses: less latency for more CPU, while there is work.
    Latency,
    /// Sleeps at once: less CPU for a little latency.
    Economy,
}

impl IdlePreset {
    /// What becomes of an operator's choice where a shard may spin or not, and whether the shard may nap: that is chosen
    /// apart from spinning.
    pub(crate) fn where_it_may_spin(self, may_spin: bool) -> (IdlePreset, bool) {
        let idle = if may_spin { self } else { IdlePreset::Economy };
        (idle, self != IdlePreset::Latency)
    }

    /// The longest spin.
    pub(crate) fn spin_max(self) -> Duration {
        match self {
            IdlePreset::Adaptive => Duration::from_micros(40),
            IdlePreset::Latency => Duration::from_micros(400),
            IdlePreset::Economy => Duration::ZERO,
        }
    }

    /// Beyond this a sleep says nothing for spinning: waking from it costs some 20 µs.
    fn short(self) -> Duration {
        self.spin_max() + Duration::from_micros(20)
    }
}

const SCORE_MAX: u8 = 8;
/// From this score on it spins.
const SCORE_SPIN: u8 = 4;

/// The memory of recent pauses.
#[derive(Debug)]
pub(crate) struct Idle {
    preset: IdlePreset,
    score: u8,
}

impl Idle {
    /// Any preset but economy only where the shard has a CPU of its own.
    pub(crate) fn new(preset: IdlePreset) -> Idle {
        Idle { preset, score: 0 }
    }

    /// The longest spin.
    pub(crate) fn spin_max(&self) -> Duration {
        self.preset.spin_max()
    }

    pub(crate) fn should_spin(&self) -> bool {
        self.preset != IdlePreset::Economy && self.score >= SCORE_SPIN
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
        if time < self.preset.short() {
            self.score = (self.score + 1).min(SCORE_MAX);
        } else {
            self.score = self.score.saturating_sub(1);
        }
    }
}

/// How often the system is asked whether others want the CPU.
const CHECK: Duration = Duration::from_millis(10);
/// In a window up to this long, to have waited for a tenth of it means that others want the CPU. A
/// longer one says little about the present, unless most of it was waiting: a thread that is
/// stopped because its process has used up its quota sees such windows only.
const WINDOW_MAX: Duration = Duration::from_millis(50);
/// How long a shard that has rivals leaves the CPU to them.
const YIELD: Duration = Duration::from_millis(200);
/// How long it does not spin after its process was stopped because its quota was used up: what it
/// would spin is missing to all threads of the process.
const YIELD_AFTER_STOP: Duration = Duration::from_secs(10);

/// What the system has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// For how many nanoseconds this thread has had to wait for its CPU.
    pub(crate) waited: u64,
    /// How often the process was stopped because its quota was used up.
    pub(crate) stops: u64,
}

/// Tells whether somebody else needs the CPU time of this thread: then spinning would take it away.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    checked_at: Instant,
    /// None before the first look.
    counted: Option<Counted>,
    until: Instant,
}

impl Rivals {
    /// Whether others want the CPU time. `count` asks the system.
    pub(crate) fn want_cpu(
        &mut self,
        now: Instant,
        count: impl FnOnce() -> Option<Counted>,
    ) -> bool {
        let window = now.since(self.checked_at);
        if window < CHECK {
            return now < self.until;
        }
        let Some(counted) = count() else { return false };
        self.checked_at = now;
        let Some(before) = self.counted.replace(counted) else { return false };
        let waited = u128::from(counted.waited.saturating_sub(before.waited));
        // Being woken costs a wait, too, but not a tenth of the time.
        let much = window.as_nanos() / if window < WINDOW_MAX { 10 } else { 2 };
        if waited > much {
            self.until = self.until.max(now + YIELD);
        }
        if counted.stops > before.stops {
            self.until = now + YIELD_AFTER_STOP;
        }
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(nanos: u64) -> Option<Counted> {
        Some(Counted { waited: nanos, stops: 0 })
    }

    #[test]
    fn low_latency_means_no_naps_also_where_a_shard_may_not_spin() {
        use IdlePreset::{Adaptive, Economy, Latency};
        assert_eq!(Latency.where_it_may_spin(true), (Latency, false));
        assert_eq!(Latency.where_it_may_spin(false), (Economy, false));
        assert_eq!(Adaptive.where_it_may_spin(false), (Economy, true));
        assert_eq!(Economy.where_it_may_spin(true), (Economy, true));
    }

    #[test]
    fn rivals_stop_the_spinning_for_a_while() {
        let mut rivals = Rivals::default();
        let at = Instant::from_millis;
        assert!(!rivals.want_cpu(at(1000), || waited(5_000_000)), "the first look is no window");
        assert!(!rivals.want_cpu(at(1001), || panic!("asked too often")));
        // 0.5 ms of 20 ms.
        assert!(!rivals.want_cpu(at(1020), || waited(5_500_000)));
        // 8 ms of 20 ms.
        assert!(rivals.want_cpu(at(1040), || waited(13_500_000)));
        assert!(rivals.want_cpu(at(1045), || panic!("asked too often")));
        assert!(rivals.want_cpu(at(1200), || waited(13_500_000)));
        assert!(!rivals.want_cpu(at(1250), || waited(13_500_000)));
        assert!(!rivals.want_cpu(at(1270), || None), "a system that does not count");
    }

    #[test]
    fn a_long_window_counts_when_most_of_it_was_waiting() {
        let at = Instant::from_millis;
        // Half a CPU granted: it runs for 50 ms and is stopped for 50 ms, again and again.
        let mut rivals = Rivals::default();
        assert!(!rivals.want_cpu(at(1000), || waited(0)));
        assert!(rivals.want_cpu(at(1060), || waited(50_000_000)));
        // It was asleep for long, and waited a while when it was woken.
        let mut rivals = Rivals::default();
        assert!(!rivals.want_cpu(at(1000), || waited(0)));
        assert!(!rivals.want_cpu(at(9000), || waited(50_000_000)));
    }

    #[test]
    fn a_process_that_was_stopped_by_its_quota_does_not_spin_for_seconds() {
        let at = Instant::from_millis;
        let mut rivals = Rivals::default();
        let stopped = |stops| Some(Counted { waited: 0, stops });
        assert!(!rivals.want_cpu(at(1000), || stopped(7)), "that was before");
        assert!(!rivals.want_cpu(at(1100), || stopped(7)));
        assert!(rivals.want_cpu(at(1200), || stopped(8)));
        assert!(rivals.want_cpu(at(11_100), || stopped(8)));
        assert!(!rivals.want_cpu(at(11_300), || stopped(8)));
    }

    #[test]
    fn short_sleeps_lead_to_spinning_and_idleness_ends_it() {
        for preset in [IdlePreset::Adaptive, IdlePreset::Latency] {
            let mut idle = Idle::new(preset);
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
    }

    /// What `pauses` cost in virtual time: spins, those in vain, and sleeps.
    fn spend(preset: IdlePreset, pauses: impl Iterator<Item = Duration>) -> (u32, u32, u32) {
        let mut idle = Idle::new(preset);
        let (mut spins, mut vain, mut sleeps) = (0, 0, 0);
        for pause in pauses {
            let mut left = pause;
            if idle.should_spin() {
                spins += 1;
                let found = pause <= idle.spin_max();
                idle.spun(found);
                if found {
                    continue;
                }
                vain += 1;
                left -= idle.spin_max();
            }
            sleeps += 1;
            idle.slept(left);
        }
        (spins, vain, sleeps)
    }

    #[test]
    fn an_idle_broker_sleeps_whatever_the_preset() {
        for preset in [IdlePreset::Adaptive, IdlePreset::Latency, IdlePreset::Economy] {
            let ticks = std::iter::repeat_n(Duration::from_millis(200), 1000);
            assert_eq!(spend(preset, ticks), (0, 0, 1000), "{preset:?}");
            // A burst, then nothing: a few spins at most are in vain.
            let burst = std::iter::repeat_n(Duration::from_micros(10), 1000);
            let silence = std::iter::repeat_n(Duration::from_millis(200), 1000);
            let (_, vain, _) = spend(preset, burst.chain(silence));
            assert!(vain <= 3, "{preset:?}: {vain}");
        }
    }

    #[test]
    fn latency_spins_through_pauses_that_the_others_sleep_through() {
        let pauses = || std::iter::repeat_n(Duration::from_micros(200), 1000);
        assert_eq!(spend(IdlePreset::Adaptive, pauses()), (0, 0, 1000));
        assert_eq!(spend(IdlePreset::Economy, pauses()), (0, 0, 1000));
        let (spins, vain, sleeps) = spend(IdlePreset::Latency, pauses());
        assert_eq!((spins, vain, sleeps), (996, 0, 4));
        let short = || std::iter::repeat_n(Duration::from_micros(10), 1000);
        assert_eq!(spend(IdlePreset::Adaptive, short()), (996, 0, 4));
        assert_eq!(spend(IdlePreset::Economy, short()), (0, 0, 1000), "economy never spins");
    }
}
