//! When messages are due: an open-loop plan that knows nothing about the broker.
//!
//! Message *n* has a time that is fixed when the run starts. A stall does not move the plan: what fell due meanwhile is
//! sent as soon as possible, so that a slow broker meets the same load as a fast one.

use lepus_base::Instant;
use std::time::Duration;

const SECOND: f64 = 1e9;

/// One rate for a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// Messages per second; 0 is a pause.
    pub rate: f64,
    pub duration: Duration,
}

/// The due times of one producer's or consumer's messages. Stretches repeat for ever.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    start: Instant,
    stretches: Vec<Stretch>,
    /// Messages in one round over all stretches.
    round_messages: f64,
    /// Nanoseconds of one round.
    round_nanos: f64,
}

impl Schedule {
    /// A constant rate in messages per second; `rate` is above 0.
    pub(crate) fn constant(rate: f64) -> Schedule {
        Schedule::variable(vec![Stretch { rate, duration: Duration::from_secs(3600) }])
    }

    /// The stretches one after the other, over and over.
    pub(crate) fn variable(stretches: Vec<Stretch>) -> Schedule {
        let messages = |stretch: &Stretch| stretch.rate * stretch.duration.as_secs_f64();
        Schedule {
            start: Instant(0),
            round_messages: stretches.iter().map(messages).sum(),
            round_nanos: stretches.iter().map(|stretch| stretch.duration.as_nanos() as f64).sum(),
            stretches,
        }
    }

    /// Lets the plan begin at `start`: message 0 is due then.
    pub(crate) fn begin(&mut self, start: Instant) {
        self.start = start;
    }

    /// How many messages are due at `now`, counted from the start. At the start itself the first one is.
    pub(crate) fn due_count(&self, now: Instant) -> u64 {
        if now < self.start || self.round_messages <= 0.0 {
            return 0;
        }
        let nanos = (now.0 - self.start.0) as f64;
        let rounds = (nanos / self.round_nanos).floor();
        let mut rest = nanos - rounds * self.round_nanos;
        let mut count = rounds * self.round_messages;
        let mut pausing = false;
        for stretch in &self.stretches {
            let length = stretch.duration.as_nanos() as f64;
            pausing = stretch.rate <= 0.0;
            count += stretch.rate * rest.min(length) / SECOND;
            if rest < length {
                break;
            }
            rest -= length;
        }
        // A message is due at the start of its share of time, except that a pause starts nothing.
        if pausing {
            (count - 1e-6).ceil().max(0.0) as u64
        } else {
            (count + 1e-6).floor() as u64 + 1
        }
    }

    /// When message `number` (from 0) is due.
    pub(crate) fn due_at(&self, number: u64) -> Instant {
        if self.round_messages <= 0.0 {
            return Instant::NEVER;
        }
        let number = number as f64;
        let rounds = (number / self.round_messages).floor();
        let mut rest = number - rounds * self.round_messages;
        let mut nanos = rounds * self.round_nanos;
        for stretch in &self.stretches {
            let messages = stretch.rate * stretch.duration.as_secs_f64();
            if rest < messages {
                nanos += rest / stretch.rate * SECOND;
                break;
            }
            rest -= messages;
            nanos += stretch.duration.as_nanos() as f64;
        }
        Instant(self.start.0.saturating_add(nanos as u64))
    }
}

/// Values that hold for a time each, one after the other, over and over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cycle<T> {
    start: Instant,
    /// Each value with the nanoseconds that it holds for.
    parts: Vec<(T, u64)>,
    round_nanos: u64,
}

impl<T: Copy + Default> Cycle<T> {
    /// A cycle over `parts`, whose durations are above 0.
    pub(crate) fn new(parts: Vec<(T, Duration)>) -> Cycle<T> {
        let parts: Vec<(T, u64)> = parts
            .into_iter()
            .map(|(value, duration)| (value, duration.as_nanos().min(u128::from(u64::MAX)) as u64))
            .collect();
        let round_nanos = parts.iter().fold(0u64, |sum, (_, nanos)| sum.saturating_add(*nanos));
        Cycle { start: Instant(0), parts, round_nanos }
    }

    /// Lets the first value hold from `start` on.
    pub(crate) fn begin(&mut self, start: Instant) {
        self.start = start;
    }

    /// Number of the value that holds at `now`, from 0.
    pub(crate) fn place(&self, now: Instant) -> usize {
        let mut rest =
            now.0.saturating_sub(self.start.0).checked_rem(self.round_nanos).unwrap_or(0);
        for (place, (_, nanos)) in self.parts.iter().enumerate() {
            if rest < *nanos {
                return place;
            }
            rest -= nanos;
        }
        0
    }

    /// The value that holds at `now`.
    pub(crate) fn at(&self, now: Instant) -> T {
        self.parts.get(self.place(now)).map_or_else(T::default, |(value, _)| *value)
    }

    /// A cycle of the same durations whose values are their places, from 0.
    pub(crate) fn places(&self) -> Cycle<usize> {
        let parts = self.parts.iter().enumerate().map(|(place, (_, nanos))| (place, *nanos));
        Cycle { start: self.start, parts: parts.collect(), round_nanos: self.round_nanos }
    }

    /// All values in their order.
    pub(crate) fn values(&self) -> impl Iterator<Item = T> {
        self.parts.iter().map(|(value, _)| *value)
    }
}

/// Reads `VALUE:SECONDS`, a whole number that holds for a time.
///
/// # Errors
/// A text for the user.
pub(crate) fn parse_part(text: &str) -> Result<(u64, Duration), String> {
    let wrong = || format!("'{text}' is not VALUE:SECONDS, for example 1000:10");
    let (value, seconds) = text.split_once(':').ok_or_else(wrong)?;
    let value: u64 = value.trim().parse().map_err(|_| wrong())?;
    let seconds: f64 = seconds.trim().parse().map_err(|_| wrong())?;
    if !(seconds > 0.0 && seconds <= 1e9) {
        return Err(wrong());
    }
    Ok((value, Duration::from_secs_f64(seconds)))
}

/// Reads `RATE:SECONDS`.
///
/// # Errors
/// A text for the user.
pub(crate) fn parse_stretch(text: &str) -> Result<Stretch, String> {
    let wrong = || format!("'{text}' is not RATE:SECONDS, for example 1000:10");
    let (rate, seconds) = text.split_once(':').ok_or_else(wrong)?;
    let rate: f64 = rate.trim().parse().map_err(|_| wrong())?;
    let seconds: f64 = seconds.trim().parse().map_err(|_| wrong())?;
    if !rate.is_finite() || rate < 0.0 || !(seconds > 0.0 && seconds <= 1e9) {
        return Err(wrong());
    }
    Ok(Stretch { rate, duration: Duration::from_secs_f64(seconds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_constant_rate_is_even() {
        let mut schedule = Schedule::constant(100.0);
        schedule.begin(at(5_000));
        assert_eq!(schedule.due_count(at(4_999)), 0);
        assert_eq!(schedule.due_count(at(5_000)), 1);
        assert_eq!(schedule.due_count(at(5_009)), 1);
        assert_eq!(schedule.due_count(at(5_010)), 2);
        assert_eq!(schedule.due_count(at(6_000)), 101);
        assert_eq!(schedule.due_at(0), at(5_000));
        assert_eq!(schedule.due_at(1), at(5_010));
        assert_eq!(schedule.due_at(100), at(6_000));
    }

    #[test]
    fn a_stall_does_not_move_the_plan() {
        let mut schedule = Schedule::constant(1_000.0);
        schedule.begin(at(0));
        assert_eq!(schedule.due_count(at(10_000)), 10_001);
        assert_eq!(schedule.due_at(10_001), at(10_001));
    }

    #[test]
    fn a_message_is_due_exactly_from_its_time_on() {
        for rate in [0.5, 1.0, 3.0, 7.0, 99.9, 30_000.0, 1_000_000.0] {
            let mut schedule = Schedule::constant(rate);
            schedule.begin(at(1));
            for number in [0u64, 1, 2, 1_000, 123_456, 5_000_000] {
                let due = schedule.due_at(number);
                let count = schedule.due_count(Instant(due.0 + 2));
                assert!(count > number, "rate {rate}, message {number}, count {count}");
                let before = Instant(due.0.saturating_sub(200));
                assert!(schedule.due_count(before) <= number + 1, "rate {rate}, message {number}");
            }
        }
    }

    #[test]
    fn stretches_follow_each_other_and_repeat() {
        let stretches = ["100:1", "0:2", "10:1"].map(|text| parse_stretch(text).unwrap());
        let mut schedule = Schedule::variable(stretches.to_vec());
        schedule.begin(at(0));
        assert_eq!(schedule.due_count(at(500)), 51);
        assert_eq!(schedule.due_count(at(1_500)), 100);
        assert_eq!(schedule.due_count(at(2_999)), 100);
        assert_eq!(schedule.due_count(at(3_000)), 101);
        assert_eq!(schedule.due_count(at(3_950)), 110);
        assert_eq!(schedule.due_count(at(4_000)), 111);
        assert_eq!(schedule.due_at(99), at(990));
        assert_eq!(schedule.due_at(100), at(3_000));
        assert_eq!(schedule.due_at(110), at(4_000));
    }

    #[test]
    fn a_pause_for_ever_never_falls_due() {
        let schedule = Schedule::variable(vec![parse_stretch("0:5").unwrap()]);
        assert_eq!(schedule.due_count(at(100_000)), 0);
        assert_eq!(schedule.due_at(0), Instant::NEVER);
    }

    #[test]
    fn the_values_of_a_cycle_take_turns() {
        let parts = ["10:1", "20:2"].map(|text| parse_part(text).unwrap());
        let mut cycle = Cycle::new(parts.to_vec());
        cycle.begin(at(500));
        for (millis, value) in
            [(0, 10), (500, 10), (1_499, 10), (1_500, 20), (3_499, 20), (3_500, 10)]
        {
            assert_eq!(cycle.at(at(millis)), value, "{millis}");
        }
        assert!(cycle.values().eq([10, 20]));
        for text in ["", "5", "5:0", "-1:5", "1.5:5", "5:x"] {
            assert!(parse_part(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stretches_are_read_strictly() {
        for text in ["", "5", "5:", ":5", "-1:5", "5:0", "5:-1", "a:b", "NaN:1", "1:NaN", "inf:1"] {
            assert!(parse_stretch(text).is_err(), "{text}");
        }
    }
}
