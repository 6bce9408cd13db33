//! The process's clocks.

use std::time::{Duration, Instant as Monotonic, SystemTime, UNIX_EPOCH};

use lepus_base::{Instant, Now};

/// How long a shard trusts its last reading of the wall clock.
const WALL_AGE_MAX: Duration = Duration::from_millis(100);

/// One origin for all threads of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Monotonic,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Clock {
        Clock { origin: Monotonic::now() }
    }

    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { instant: self.instant(), wall_millis: wall_millis() }
    }

    /// Monotonic time. Never 0, so that 0 can stand for "before everything".
    #[must_use]
    pub fn instant(&self) -> Instant {
        let nanos = self.origin.elapsed().as_nanos();
        Instant(u64::try_from(nanos).unwrap_or(u64::MAX).max(1))
    }
}

fn wall_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the monotonic clock every time and the wall clock now and then.
#[derive(Debug)]
pub(crate) struct Ticker {
    clock: Clock,
    wall: Now,
}

impl Ticker {
    pub(crate) fn new(clock: Clock) -> Ticker {
        Ticker { clock, wall: clock.now() }
    }

    pub(crate) fn now(&mut self) -> Now {
        let instant = self.clock.instant();
        let mut age = instant.since(self.wall.instant);
        if age > WALL_AGE_MAX {
            self.wall = Now { instant, wall_millis: wall_millis() };
            age = Duration::ZERO;
        }
        Now { instant, wall_millis: self.wall.wall_millis + age.as_millis() as u64 }
    }
}
