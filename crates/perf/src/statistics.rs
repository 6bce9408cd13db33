//! Counters and latencies of a run: one set for the running interval, one for the whole.

use hdrhistogram::Histogram;
use lepus_base::Instant;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub sent: u64,
    pub received: u64,
    pub returned: u64,
    pub confirmed: u64,
    pub nacked: u64,
}

impl Counters {
    fn add(&mut self, other: &Counters) {
        self.sent += other.sent;
        self.received += other.received;
        self.returned += other.returned;
        self.confirmed += other.confirmed;
        self.nacked += other.nacked;
    }
}

/// Latencies of one kind in the run's unit (nanoseconds, or milliseconds between hosts).
///
/// Messages that came in one read often share a latency, so equal neighbours are recorded together.
#[derive(Debug)]
pub(crate) struct Latency {
    interval: Histogram<u64>,
    total: Histogram<u64>,
    value: u64,
    count: u64,
}

/// Highest latency told apart: one hour of nanoseconds. Longer ones count as this.
const LATENCY_MAX: u64 = 3_600_000_000_000;

impl Latency {
    fn new() -> Latency {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX, 3)
            .expect("the bounds of the histogram are in order");
        Latency { interval: histogram.clone(), total: histogram, value: 0, count: 0 }
    }

    /// Records one latency.
    pub(crate) fn record(&mut self, value: u64) {
        if value == self.value {
            self.count += 1;
        } else {
            self.settle();
            (self.value, self.count) = (value, 1);
        }
    }

    /// Records one latency so many times.
    pub(crate) fn record_many(&mut self, value: u64, count: u64) {
        self.settle();
        self.interval.saturating_record_n(value, count);
    }

    fn settle(&mut self) {
        if self.count > 0 {
            self.interval.saturating_record_n(self.value, self.count);
            self.count = 0;
        }
    }

    /// Figures of the interval; it starts anew.
    fn turn(&mut self) -> Quantiles {
        self.settle();
        let figures = Quantiles::of(&self.interval);
        // Both have the same bounds, which is all that adding can object to.
        let added = self.total.add(&self.interval);
        debug_assert!(added.is_ok());
        self.interval.reset();
        figures
    }

    /// Figures of the whole run up to the last turn.
    pub(crate) fn total(&self) -> Quantiles {
        Quantiles::of(&self.total)
    }

    /// The values of the whole run up to the last turn, each with how often it came, ascending.
    pub(crate) fn buckets(&self) -> Vec<(u64, u64)> {
        let recorded = self.total.iter_recorded();
        let bucket = |at: hdrhistogram::iterators::IterationValue<u64>| {
            let value = self.total.median_equivalent(at.value_iterated_to()).min(self.total.max());
            (value, at.count_at_value())
        };
        recorded.map(bucket).collect()
    }

    /// Forgets everything.
    fn reset(&mut self) {
        self.interval.reset();
        self.total.reset();
        self.count = 0;
    }

    /// The distribution of the whole run up to the last turn: pairs of a share of all values (0 to 1) and the value
    /// that this share does not exceed, closer and closer together towards 1.
    pub(crate) fn curve(&self) -> Vec<(f64, u64)> {
        let mut curve: Vec<(f64, u64)> = Vec::new();
        if self.total.is_empty() {
            return curve;
        }
        for point in self.total.iter_quantiles(CURVE_POINTS_PER_HALVING) {
            let share = point.quantile_iterated_to();
            let value = point.value_iterated_to().min(self.total.max());
            if curve.last().is_none_or(|(last, _)| *last < share) {
                curve.push((share, value));
            }
        }
        curve
    }
}

/// Points of a curve between a share and the one half as far from 1.
const CURVE_POINTS_PER_HALVING: u32 = 8;

/// Points of a latency distribution, in the run's unit; all 0 without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quantiles {
    pub count: u64,
    pub min: u64,
    pub median: u64,
    pub p75: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
    /// Mean of the slowest 5 %.
    pub tail_mean: u64,
    pub mean: u64,
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Quantiles {
        if histogram.is_empty() {
            return Quantiles::default();
        }
        Quantiles {
            count: histogram.len(),
            min: histogram.min(),
            median: histogram.value_at_quantile(0.5),
            p75: histogram.value_at_quantile(0.75),
            p95: histogram.value_at_quantile(0.95),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            p9999: histogram.value_at_quantile(0.9999),
            max: histogram.max(),
            tail_mean: tail_mean(histogram),
            mean: histogram.mean() as u64,
        }
    }
}

/// Mean of the slowest twentieth, at least one value.
fn tail_mean(histogram: &Histogram<u64>) -> u64 {
    let wanted = histogram.len().div_ceil(20);
    let mut skip = histogram.len() - wanted;
    let mut sum = 0u128;
    for bucket in histogram.iter_recorded() {
        let count = bucket.count_at_value();
        let skipped = count.min(skip);
        skip -= skipped;
        let value = histogram.median_equivalent(bucket.value_iterated_to()).min(histogram.max());
        sum += u128::from(count - skipped) * u128::from(value);
    }
    (sum / u128::from(wanted)) as u64
}

/// The figures of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Seconds from the start of the run to the end of the interval.
    pub at_seconds: f64,
    /// Length of the interval in seconds.
    pub seconds: f64,
    pub counters: Counters,
    pub consumer_latency: Quantiles,
    pub confirm_latency: Quantiles,
}

impl Interval {
    /// `count` per second of the interval.
    pub(crate) fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

/// Everything that a run counts.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// The running interval; its owners count directly here.
    pub now: Counters,
    pub consumer_latency: Latency,
    pub confirm_latency: Latency,
    total: Counters,
    start: Instant,
    interval_start: Instant,
}

impl Statistics {
    /// Statistics that begin at `start`.
    pub(crate) fn new(start: Instant) -> Statistics {
        Statistics {
            now: Counters::default(),
            consumer_latency: Latency::new(),
            confirm_latency: Latency::new(),
            total: Counters::default(),
            start,
            interval_start: start,
        }
    }

    /// Forgets what was counted and begins anew at `now`.
    pub(crate) fn restart(&mut self, now: Instant) {
        (self.now, self.total) = (Counters::default(), Counters::default());
        self.consumer_latency.reset();
        self.confirm_latency.reset();
        self.begin(now);
    }

    /// Moves the start to `now`, keeping what was counted.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.start = now;
        self.interval_start = now;
    }

    /// Ends the interval at `now` and begins the next.
    pub(crate) fn turn(&mut self, now: Instant) -> Interval {
        let interval = Interval {
            at_seconds: now.since(self.start).as_secs_f64(),
            seconds: now.since(self.interval_start).as_secs_f64(),
            counters: self.now,
            consumer_latency: self.consumer_latency.turn(),
            confirm_latency: self.confirm_latency.turn(),
        };
        self.total.add(&self.now);
        self.now = Counters::default();
        self.interval_start = now;
        interval
    }

    /// Counts of the whole run, the running interval included.
    pub(crate) fn total(&self) -> Counters {
        let mut total = self.total;
        total.add(&self.now);
        total
    }

    /// Seconds from the start to `now`.
    pub(crate) fn seconds(&self, now: Instant) -> f64 {
        now.since(self.start).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_only_what_came_in_it() {
        let mut statistics = Statistics::new(Instant::from_millis(10_000));
        statistics.now.sent = 500;
        statistics.now.received = 400;
        let first = statistics.turn(Instant::from_millis(11_000));
        assert_eq!(first.at_seconds, 1.0);
        assert_eq!(first.rate(first.counters.sent), 500.0);
        statistics.now.sent = 100;
        let second = statistics.turn(Instant::from_millis(11_500));
        assert_eq!(second.at_seconds, 1.5);
        assert_eq!(second.rate(second.counters.sent), 200.0);
        assert_eq!(second.counters.received, 0);
        assert_eq!(statistics.total().sent, 600);
        assert_eq!(statistics.total().received, 400);
        assert_eq!(statistics.seconds(Instant::from_millis(12_000)), 2.0);
    }

    #[test]
    fn an_empty_interval_divides_by_nothing() {
        let mut statistics = Statistics::new(Instant(5));
        let interval = statistics.turn(Instant(5));
        assert_eq!(interval.rate(7), 0.0);
        assert_eq!(interval.consumer_latency, Quantiles::default());
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut statistics = Statistics::new(Instant(0));
        for value in 1..=1_000 {
            statistics.consumer_latency.record(value);
        }
        let figures = statistics.turn(Instant(1)).consumer_latency;
        assert_eq!((figures.min, figures.median, figures.p75, figures.p95), (1, 500, 750, 950));
        assert_eq!((figures.p99, figures.max, figures.count), (990, 1_000, 1_000));
        assert_eq!(figures.tail_mean, 975);
        let next = statistics.turn(Instant(2)).consumer_latency;
        assert_eq!(next.count, 0);
        assert_eq!(statistics.consumer_latency.total().count, 1_000);
    }

    #[test]
    fn the_far_percentiles_and_the_curve_are_those_of_the_values() {
        let mut statistics = Statistics::new(Instant(0));
        for value in 1..=100_000 {
            statistics.consumer_latency.record(value);
        }
        let figures = statistics.turn(Instant(1)).consumer_latency;
        // Three digits are kept, so that a figure is at most a thousandth off.
        let near = |figure: u64, value: u64| figure.abs_diff(value) <= value / 1_000;
        assert!(near(figures.p999, 99_900), "{figures:?}");
        assert!(near(figures.p9999, 99_990), "{figures:?}");
        assert!(near(figures.mean, 50_000), "{figures:?}");
        assert!(near(figures.tail_mean, 97_500), "{figures:?}");
        let curve = statistics.consumer_latency.curve();
        assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        assert_eq!(curve.last().map(|point| point.0), Some(1.0));
        assert!(near(curve.last().unwrap().1, 100_000));
        for (share, value) in curve.iter().filter(|point| point.1 > 0) {
            let expected = (share * 100_000.0) as u64;
            assert!(value.abs_diff(expected) <= 1 + expected / 500, "{share}: {value}");
        }
        assert!(statistics.confirm_latency.curve().is_empty());
    }

    #[test]
    fn runs_of_equal_values_count_each_time() {
        let mut statistics = Statistics::new(Instant(0));
        for value in [5, 5, 5, 9, 5, 0, 0] {
            statistics.confirm_latency.record(value);
        }
        let figures = statistics.turn(Instant(1)).confirm_latency;
        assert_eq!((figures.count, figures.median, figures.max), (7, 5, 9));
        assert_eq!(figures.min, 0);
    }

    #[test]
    fn a_latency_beyond_the_scale_counts_as_the_longest() {
        let mut statistics = Statistics::new(Instant(0));
        statistics.consumer_latency.record(u64::MAX);
        let figures = statistics.turn(Instant(1)).consumer_latency;
        assert_eq!(figures.count, 1);
        assert!(figures.max >= LATENCY_MAX);
    }
}
