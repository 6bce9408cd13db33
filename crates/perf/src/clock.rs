//! The clocks of a run.

use lepus_base::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Reads the clocks and turns instants into the numbers that bodies carry.
///
/// Bodies carry the monotonic clock in nanoseconds, which all processes of a host share, or the wall clock in
/// milliseconds for producers and consumers on different hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Wall minus monotonic time in milliseconds; `None` for nanoseconds.
    wall_offset_millis: Option<i64>,
}

impl Clock {
    /// A clock for stamps in milliseconds or nanoseconds.
    pub(crate) fn new(millis: bool) -> Clock {
        let offset = || {
            let wall = nanos(ClockId::Realtime) / 1_000_000;
            let monotonic = nanos(ClockId::Monotonic) / 1_000_000;
            wall as i64 - monotonic as i64
        };
        Clock { wall_offset_millis: millis.then(offset) }
    }

    /// Monotonic time.
    pub(crate) fn now(&self) -> Instant {
        Instant(nanos(ClockId::Monotonic))
    }

    /// What a body sent at `instant` carries.
    pub(crate) fn stamp(&self, instant: Instant) -> u64 {
        match self.wall_offset_millis {
            None => instant.0,
            Some(offset) => (instant.0 / 1_000_000).saturating_add_signed(offset),
        }
    }
}

/// CPU time of this process so far, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    nanos(ClockId::ProcessCPUTime) as f64 / 1e9
}

/// A name for a run that no other run of this host has at the same time of day: `test-HHMMSS-mmm` in UTC.
pub(crate) fn run_name() -> String {
    let millis = nanos(ClockId::Realtime) / 1_000_000;
    let seconds = millis / 1_000;
    format!(
        "test-{:02}{:02}{:02}-{:03}",
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        millis % 1_000
    )
}

/// A number that differs between runs, for generated names.
pub(crate) fn seed() -> u64 {
    nanos(ClockId::Realtime) ^ (u64::from(std::process::id()) << 40)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_differ_as_their_instants_do() {
        for (millis, expected) in [(false, 5_000_000), (true, 5)] {
            let clock = Clock::new(millis);
            let now = clock.now();
            let later = now + std::time::Duration::from_millis(5);
            assert_eq!(clock.stamp(later) - clock.stamp(now), expected);
        }
    }

    #[test]
    fn a_run_name_has_the_reference_s_form() {
        let name = run_name();
        assert_eq!(name.len(), "test-114434-950".len(), "{name}");
    }
}
