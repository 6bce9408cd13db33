//! How far an experiment is, on standard error.

use lepus_perf::to_stderr;
use std::time::{Duration, Instant};

/// Counts the time that was expected and the time that passed.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    expected_seconds: f64,
    done_seconds: f64,
}

impl Progress {
    /// Begins to count.
    #[must_use]
    pub fn start() -> Progress {
        Progress { start: Instant::now(), expected_seconds: 0.0, done_seconds: 0.0 }
    }

    /// Adds time of loads that will come; negative for those that will not.
    pub fn expect(&mut self, seconds: f64) {
        self.expected_seconds = (self.expected_seconds + seconds).max(self.done_seconds);
    }

    /// Tells what begins now.
    pub fn tell(&self, what: &str) {
        let left = left(self.start.elapsed(), self.done_seconds, self.expected_seconds);
        to_stderr(format_args!("{what} ({left})"));
    }

    /// Notes that loads of this time have ended.
    pub fn done(&mut self, seconds: f64) {
        self.done_seconds += seconds;
    }
}

/// What is left if the rest takes its time as what is done did; starts of brokers are in that.
fn left(elapsed: Duration, done: f64, expected: f64) -> String {
    let pace = if done > 0.0 { (elapsed.as_secs_f64() / done).max(1.0) } else { 1.5 };
    let seconds = ((expected - done).max(0.0) * pace).ceil();
    match seconds < 120.0 {
        true => format!("about {seconds:.0} s left"),
        false => format!("about {:.0} min left", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_pace_so_far() {
        assert_eq!(left(Duration::ZERO, 0.0, 20.0), "about 30 s left");
        assert_eq!(left(Duration::from_secs(40), 20.0, 40.0), "about 40 s left");
        assert_eq!(left(Duration::from_secs(40), 10.0, 110.0), "about 7 min left");
        assert_eq!(left(Duration::from_secs(9), 9.0, 3.0), "about 0 s left");
    }
}
