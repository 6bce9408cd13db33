//! Filters that come and go: how fast alone, and what matching keeps beside them.

use crate::{Kind, Load, ROUNDS, cpu_time, drive_one, load, name, text};
use lepus_base::{HashState, Rng};
use lepus_filter::{Filter, FilterSet, Limits, Scratch, SetLimits};
use std::time::{Duration, Instant};

/// What a turn of a shard tidies up at most, in steps.
const TURN_STEPS: usize = 8_192;
/// Messages of a turn.
const TURN_MESSAGES: usize = 32;
/// How long matching is watched at a rate of changes, and how often.
const WINDOW: Duration = Duration::from_millis(300);
const WINDOWS: usize = 9;

/// How fast filters come and go.
pub fn alone() {
    for (kind, count) in
        [(Kind::Anchored, 10_000), (Kind::Anchored, 100_000), (Kind::Unanchored, 100_000)]
    {
        let mut load = load(kind, count, 231);
        let mut rng = Rng::new(8);
        let changes = 50_000;
        let new: Vec<String> =
            (0..changes).map(|index| text(kind, index, count, &mut rng)).collect();
        let mut longest = Longest::default();
        let begin = cpu_time();
        for text in &new {
            longest.of(|| {
                let filter = Filter::parse(text, &Limits::default()).expect("a filter");
                load.subscriptions.push_back(load.set.add(&filter, 0).expect("there is room"));
            });
        }
        let added = cpu_time().saturating_sub(begin);
        let begin = cpu_time();
        let mut longest_slice = Longest::default();
        while longest_slice.of(|| load.set.work(TURN_STEPS)) {}
        let merged = cpu_time().saturating_sub(begin);
        let begin = cpu_time();
        for subscription in load.subscriptions.drain(..changes) {
            longest.of(|| load.set.remove(subscription));
        }
        let removed = cpu_time().saturating_sub(begin);
        let each = |time: Duration| time.as_nanos() / changes as u128;
        let rate = |time: Duration| changes as f64 / time.as_secs_f64();
        println!(
            "{:12} {count:>9}: add with parsing {} ns ({:.0}/s), remove {} ns ({:.0}/s), tidying {} ns each; the longest change {}, slice {}",
            name(kind),
            each(added),
            rate(added),
            each(removed),
            rate(removed),
            each(merged),
            longest,
            longest_slice,
        );
    }
}

/// The longest of 5,000 changes by filters that are made to be dear: each is filed at 64 places with eight ends, and they
/// have 300 shapes.
pub fn dear() {
    let limits = SetLimits { bytes_max: usize::MAX, ..SetLimits::default() };
    let values: Vec<String> = (0..64).map(|value| value.to_string()).collect();
    let filters: Vec<Filter> = (0..5_000)
        .map(|number| {
            let first = number % 300;
            let ranges: Vec<String> = (first..first + 4)
                .map(|field| format!("f{field} > {number} AND f{field} < 9{number}"))
                .collect();
            let text = format!("k IN ({}) AND {}", values.join(","), ranges.join(" AND "));
            Filter::parse(&text, &Limits::default()).expect("a filter")
        })
        .collect();
    let mut least: Option<[Longest; 3]> = None;
    for _ in 0..ROUNDS {
        let mut set = FilterSet::new(limits, HashState::new(1));
        let [mut added, mut slices, mut removed] = [const { Longest { micros: Vec::new() } }; 3];
        let mut subscriptions = Vec::new();
        for filter in &filters {
            subscriptions.push(added.of(|| set.add(filter, 0).expect("there is room")));
        }
        while slices.of(|| set.work(TURN_STEPS)) {}
        for subscription in subscriptions {
            removed.of(|| set.remove(subscription));
        }
        let now = [added, slices, removed];
        // The same is done in each round: what took longer in one of them was not it.
        least = Some(match least {
            Some(mut least) => {
                least.iter_mut().zip(&now).for_each(|(least, now)| least.lower(now));
                least
            }
            None => now,
        });
    }
    if let Some([added, slices, removed]) = least {
        println!("dear ones: the longest add {added}, slice {slices}, remove {removed}");
    }
}

/// The longest of many runs, and the 99.9 % that are shorter: the longest of all may be the scheduler's.
#[derive(Default)]
struct Longest {
    micros: Vec<u32>,
}

impl Longest {
    fn of<R>(&mut self, run: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let result = run();
        self.micros.push(begin.elapsed().as_micros() as u32);
        result
    }
}

impl Longest {
    /// Takes of each run the shorter one.
    fn lower(&mut self, other: &Longest) {
        self.micros
            .iter_mut()
            .zip(&other.micros)
            .for_each(|(own, other)| *own = (*own).min(*other));
    }
}

impl std::fmt::Display for Longest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let last = sorted.last().copied().unwrap_or(0);
        let most = sorted.get(sorted.len().saturating_sub(1 + sorted.len() / 1000));
        write!(f, "{} us (99.9 %: {} us)", last, most.copied().unwrap_or(0))
    }
}

/// Messages a second of CPU time while filters come and go at a rate, one after the other. A window without changes stands
/// on each side of one with them, so that what else the machine does falls on both.
pub fn beside() {
    for (kind, count) in [(Kind::Anchored, 100_000), (Kind::Unanchored, 100_000)] {
        let mut load = load(kind, count, 231);
        let mut rng = Rng::new(8);
        let new: Vec<String> =
            (0..60_000).map(|index| text(kind, index, count, &mut rng)).collect();
        let mut changes = Changes { texts: new, next: 0 };
        let mut scratch = Scratch::default();
        window(&mut load, 0.0, &mut changes, &mut scratch);
        for changes_per_second in [1_000.0, 20_000.0] {
            let mut kept: Vec<f64> = (0..WINDOWS)
                .map(|_| {
                    let before = window(&mut load, 0.0, &mut changes, &mut scratch);
                    let beside = window(&mut load, changes_per_second, &mut changes, &mut scratch);
                    let after = window(&mut load, 0.0, &mut changes, &mut scratch);
                    2.0 * beside / (before + after)
                })
                .collect();
            kept.sort_by(f64::total_cmp);
            println!(
                "{:12} {count:>9}: with {changes_per_second:>6} changes a second matching keeps {:.1} % ({:.1} to {:.1})",
                name(kind),
                100.0 * kept[WINDOWS / 2],
                100.0 * kept[0],
                100.0 * kept[WINDOWS - 1],
            );
        }
    }
}

struct Changes {
    texts: Vec<String>,
    next: usize,
}

impl Changes {
    /// A filter comes, or the oldest one goes.
    fn make(&mut self, load: &mut Load) {
        self.next += 1;
        if self.next.is_multiple_of(2) {
            let oldest = load.subscriptions.pop_front().expect("a filter");
            load.set.remove(oldest);
        } else {
            let text = &self.texts[self.next / 2 % self.texts.len()];
            let filter = Filter::parse(text, &Limits::default()).expect("a filter");
            load.subscriptions.push_back(load.set.add(&filter, 0).expect("there is room"));
        }
    }
}

/// Messages a second of CPU time.
fn window(load: &mut Load, rate: f64, changes: &mut Changes, scratch: &mut Scratch) -> f64 {
    let begin = cpu_time();
    let (mut messages, mut made) = (0_usize, 0.0);
    loop {
        for _ in 0..TURN_MESSAGES {
            drive_one(load, messages, scratch);
            messages += 1;
        }
        let elapsed = cpu_time().saturating_sub(begin);
        if elapsed > WINDOW {
            return messages as f64 / elapsed.as_secs_f64();
        }
        while made < rate * elapsed.as_secs_f64() {
            changes.make(load);
            made += 1.0;
        }
        if rate > 0.0 {
            load.set.work(TURN_STEPS);
        }
    }
}
