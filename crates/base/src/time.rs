//! Time as a value. The core never reads a clock; the driver reads it once per cycle.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Monotonic time: nanoseconds since an arbitrary start of the process (or of the simulation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// A moment that is never reached; the sum of any instant and a huge duration.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// An instant this many milliseconds after the start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Instant {
        Instant(millis.saturating_mul(1_000_000))
    }

    /// Time since `earlier`; zero where `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// Both clocks, read together once per cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time, for timers and ages.
    pub instant: Instant,
    /// Wall time in milliseconds since 1970-01-01 UTC, for what users see (`x-death` times, logs).
    pub wall_millis: u64,
}

impl Now {
    /// Virtual time: both clocks at the same number of milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Now {
        Now { instant: Instant::from_millis(millis), wall_millis: millis }
    }
}
