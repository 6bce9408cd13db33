//! The course of the runs: rounds in which every setting has its turn.

use super::call::{Goal, Plan};
use super::judge::{self, Found, Scores};
use super::variant::Variant;
use crate::cast::Cast;
use crate::identity::{Identity, OWN_TESTER, own_tester};
use crate::progress::Progress;
use crate::record::{Record, Run};
use crate::sample::INTERVAL;
use crate::stop::Stop;
use crate::subject::{Choice, Kind, Placement, Site, Subject};
use crate::workload::{self, Latency, Load, Outcome};
use lepus_perf::to_stderr;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// How long a run may take beyond its load.
const PATIENCE: f64 = 120.0;
/// What start and stop of a broker and the load's setting up take, for telling the time left.
const STARTS_SECONDS: f64 = 2.0;

/// Tuning under way, and what it has shown.
pub struct Course<'a> {
    /// What was asked for.
    pub plan: &'a Plan,
    /// The settings.
    pub variants: &'a [Variant],
    /// The runs: the placement's name is the setting's.
    pub record: Record,
    /// A list for each setting.
    pub scores: Vec<Scores>,
    /// Those that have not been given up.
    pub is_in: Vec<bool>,
    /// What was given up, with the number of rounds after which.
    pub given_up: Vec<(usize, usize)>,
}

/// How long everything will take, in seconds, if nothing is given up.
#[must_use]
pub fn expected_seconds(plan: &Plan, variants: &[Variant]) -> f64 {
    let finalists = variants.len().min(FINALISTS_MAX);
    ((variants.len() + finalists) * plan.rounds) as f64 * run_seconds(plan)
}

/// The broker's name in figures.
const NAME: &str = "lepus";

/// What lepus does by itself, the leader, and one with fewer shards.
const FINALISTS_MAX: usize = 3;

/// How long a run takes, start and warm-up included.
fn run_seconds(plan: &Plan) -> f64 {
    plan.warm_up + plan.seconds + STARTS_SECONDS
}

impl<'a> Course<'a> {
    /// Runs all rounds, or until it is wished to stop, or only one setting is left.
    #[must_use]
    pub fn run(plan: &'a Plan, variants: &'a [Variant], stop: &Stop) -> Course<'a> {
        let record = Record { names: vec![NAME.to_owned()], ..Record::default() };
        record.cast.load(OWN_TESTER, || own_tester(&plan.site.lepus));
        let count = variants.len();
        let mut course = Course {
            plan,
            variants,
            record,
            scores: vec![Scores::new(); count],
            is_in: vec![true; count],
            given_up: Vec::new(),
        };
        let mut progress = Progress::start();
        progress.expect(expected_seconds(plan, variants));
        for round in 0..plan.rounds {
            for at in judge::turns(round, &course.is_in) {
                if !stop.is_wanted() {
                    course.turn(at, round, &mut progress, stop);
                }
            }
            if stop.is_wanted() {
                course.record.stopped = true;
                break;
            }
            course.give_up(round + 1, &mut progress);
            let left = course.is_in.iter().filter(|is_in| **is_in).count();
            if left == 1 && count > 1 {
                break;
            }
        }
        course.confirm(&mut progress, stop);
        course
    }

    /// Fresh rounds of those that seem best, which had no part in finding them.
    fn confirm(&mut self, progress: &mut Progress, stop: &Stop) {
        let finalists = self.judged(judge::finalists);
        progress.expect(
            (finalists.len() as f64 - self.variants.len().min(FINALISTS_MAX) as f64)
                * self.plan.rounds as f64
                * run_seconds(self.plan),
        );
        let is_final: Vec<bool> =
            (0..self.variants.len()).map(|at| finalists.contains(&at)).collect();
        for round in self.plan.rounds..2 * self.plan.rounds {
            for at in judge::turns(round, &is_final) {
                if !stop.is_wanted() {
                    self.turn(at, round, progress, stop);
                }
            }
            if stop.is_wanted() {
                self.record.stopped = true;
                break;
            }
        }
    }

    /// What follows from everything that was measured.
    pub fn judged<T>(&self, judge: impl Fn(&Found<'_>) -> T) -> T {
        let shards: Vec<usize> = self.variants.iter().map(|variant| variant.shards).collect();
        let is_shared = |at: usize| self.variants[at].is_shared;
        let is_comparable: Vec<bool> =
            (0..self.variants.len()).map(|at| is_shared(at) == is_shared(0)).collect();
        judge(&Found {
            scores: &self.scores,
            is_in: &self.is_in,
            is_comparable: &is_comparable,
            shards: &shards,
            search_rounds: self.plan.rounds,
        })
    }

    fn turn(&mut self, at: usize, round: usize, progress: &mut Progress, stop: &Stop) {
        let (plan, variant) = (self.plan, &self.variants[at]);
        let seconds = run_seconds(plan);
        let what = match round.checked_sub(plan.rounds) {
            None => format!("round {} of {}: {}", round + 1, plan.rounds, variant.name),
            Some(fresh) => {
                format!("fresh round {} of {}: {}", fresh + 1, plan.rounds, variant.name)
            }
        };
        progress.tell(&what);
        let outcome = measure(plan, variant, &self.record.cast, stop);
        progress.done(seconds);
        // A run that was cut short is none.
        if stop.is_wanted() {
            return;
        }
        let score = match outcome {
            Ok(outcome) => {
                for error in &outcome.errors {
                    self.record.faults.push(format!("{what}: {error}"));
                }
                let score = score(plan.goal, &outcome);
                let (load, placement) = (plan.load.join(" "), variant.name.clone());
                self.record.runs.push(Run { subject: 0, placement, load, round, outcome });
                score
            }
            Err(error) => {
                to_stderr(format_args!("left out: {what}: {error}"));
                self.record.faults.push(format!("{what}: {error}"));
                None
            }
        };
        let scores = &mut self.scores[at];
        scores.resize(round, None);
        scores.push(score);
        // What cannot even start is not tried again and again.
        if at != 0 && scores.len() >= 2 && scores.iter().all(Option::is_none) {
            self.is_in[at] = false;
            progress.expect(-seconds * plan.rounds.saturating_sub(round + 1) as f64);
        }
    }

    fn give_up(&mut self, rounds: usize, progress: &mut Progress) {
        if self.plan.keeps_losers || rounds == self.plan.rounds {
            return;
        }
        for at in judge::losers(&self.scores, &self.is_in, self.plan.rounds) {
            self.is_in[at] = false;
            self.given_up.push((at, rounds));
            let left = (self.plan.rounds - rounds) as f64;
            progress.expect(-left * run_seconds(self.plan));
            to_stderr(format_args!("{} is clearly worse and given up", self.variants[at].name));
        }
    }
}

/// The score of a run: higher is better. None where it tells nothing.
fn score(goal: Goal, outcome: &Outcome) -> Option<f64> {
    let score = match goal {
        Goal::Throughput => outcome.rate(),
        Goal::Latency => 1.0 / slowest(outcome)?,
    };
    (outcome.is_good() && score.is_finite() && score > 0.0).then_some(score)
}

/// The mean latency of the slowest 5 %, in microseconds.
#[must_use]
pub fn slowest(outcome: &Outcome) -> Option<f64> {
    let total = &outcome.total;
    let latency = total.consumer_latency.as_ref().or(total.confirm_latency.as_ref());
    latency.map(|latency| latency.mean_slowest_5).filter(|micros| *micros > 0.0)
}

/// One run on a broker of its own, which is noted.
fn measure(plan: &Plan, variant: &Variant, cast: &Cast, stop: &Stop) -> io::Result<Outcome> {
    let mut site = Site { flags: variant.flags(), ..plan.site.clone() };
    site.flags.extend(plan.site.flags.iter().cloned());
    // It places itself, on what the load leaves.
    let anywhere =
        Placement { name: variant.name.clone(), broker: variant.broker.clone(), load: Vec::new() };
    let subject =
        Subject::start(&Choice::Ours(Kind::Lepus), "broker", &site, &anywhere, true, stop)?;
    // What it is started with in each turn stands in the table of settings.
    let flags = plan.site.flags.iter().map(String::as_str);
    let settings: Vec<&str> = std::iter::once("each setting in turn").chain(flags).collect();
    let settings = settings.join(" ");
    cast.broker(NAME, &settings, || {
        let identity = Identity::of(&subject, NAME, &site.lepus);
        Identity { settings: settings.clone(), ..identity }
    });
    let load = Load {
        name: plan.load.join(" "),
        words: words(plan, variant.load.len()),
        body_bytes: 0,
        seconds: Some(plan.seconds),
        patience: Duration::from_secs_f64(plan.warm_up + plan.seconds + PATIENCE),
        sample_every: INTERVAL,
        linger: Duration::ZERO,
        is_from_start: false,
    };
    // Only the first tester looks at the broker.
    let unseen = Subject::elsewhere(&subject.uri);
    let outcomes: Vec<io::Result<Outcome>> = std::thread::scope(|scope| {
        let runs: Vec<_> = variant
            .load
            .iter()
            .enumerate()
            .map(|(at, cpu)| {
                let place = Placement { load: vec![*cpu], ..anywhere.clone() };
                let subject = if at == 0 { &subject } else { &unseen };
                let (site, load) = (&site, &load);
                scope.spawn(move || workload::run(&site.lepus, load, subject, &place, stop))
            })
            .collect();
        let ended = || io::Error::other("a load's thread ended");
        runs.into_iter().map(|run| run.join().unwrap_or_else(|_| Err(ended()))).collect()
    });
    let outcomes: io::Result<Vec<Outcome>> = outcomes.into_iter().collect();
    together(outcomes?).ok_or_else(|| io::Error::other("there was no load"))
}

/// The words of each of so many testers.
fn words(plan: &Plan, testers: usize) -> Vec<String> {
    let mut words = plan.load.clone();
    words.extend(["--warm-up".to_owned(), plan.warm_up.to_string()]);
    if testers > 1 {
        // Where queues have names they take each other's messages: none knows what is outstanding.
        words.extend(["--drain", "0"].map(str::to_owned));
    }
    words
}

/// The testers' outcomes as one: rates and counts are summed, latencies are those of one distribution, costs are those
/// of all messages.
fn together(outcomes: Vec<Outcome>) -> Option<Outcome> {
    let mut rest = outcomes.into_iter();
    let mut sum = rest.next()?;
    for other in rest {
        // What the first tester's watch has counted for its own messages is shared by all.
        let own = sum.rate();
        let (first, second) = (&mut sum.total, &other.total);
        let pace = if second.seconds > 0.0 { first.seconds / second.seconds } else { 0.0 };
        first.sent += second.sent * pace;
        first.received += second.received * pace;
        first.confirmed += second.confirmed * pace;
        let told = sum.told_rate.zip(other.told_rate);
        first.consumer_latency =
            mixed(first.consumer_latency.take(), second.consumer_latency.as_ref());
        first.confirm_latency =
            mixed(first.confirm_latency.take(), second.confirm_latency.as_ref());
        sum.told_rate = told.map(|(first, second)| first + second);
        sum.missing += other.missing;
        let all = sum.rate();
        let part = if all > 0.0 { own / all } else { 1.0 };
        sum.broker_micros = sum.broker_micros.map(|micros| micros * part);
        sum.switches = sum.switches.map(|pair| (pair.0 * part, pair.1 * part));
        sum.tester_micros = sum.tester_micros * part + other.tester_micros * (1.0 - part);
        sum.tester_share = sum.tester_share.max(other.tester_share);
        sum.is_tester_limit |= other.is_tester_limit;
        sum.gap = sum.gap.or(other.gap);
        sum.errors.extend(other.errors);
    }
    Some(sum)
}

/// Two distributions as one. Where one of them tells no distribution, the first one's figures stand for both.
fn mixed(first: Option<Latency>, second: Option<&Latency>) -> Option<Latency> {
    let (Some(first), Some(second)) = (&first, second) else { return first.or(second.cloned()) };
    let mut buckets: BTreeMap<u64, f64> = BTreeMap::new();
    for (micros, count) in first.buckets.iter().chain(&second.buckets) {
        // In nanoseconds, so that values can be ordered and equal ones found.
        *buckets.entry((micros * 1e3).round() as u64).or_default() += count;
    }
    let buckets: Vec<(f64, f64)> =
        buckets.into_iter().map(|(nanos, count)| (nanos as f64 / 1e3, count)).collect();
    Latency::of(buckets).or(Some(first.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::read_words;
    use super::*;
    use crate::workload::Interval;

    fn outcome(received: f64, seconds: f64, slowest: f64) -> Outcome {
        let latency = Latency {
            count: received,
            mean_slowest_5: slowest,
            max: slowest,
            buckets: vec![(slowest, received)],
            ..Latency::default()
        };
        let total =
            Interval { received, seconds, consumer_latency: Some(latency), ..Interval::default() };
        Outcome { total, broker_micros: Some(4.0), ..Outcome::default() }
    }

    #[test]
    fn every_tester_warms_up_before_what_counts() {
        let plan = read_words(&["--warm-up=7.5", "--seconds=3", "--load=loop -x 2"]).unwrap();
        let warm = ["loop", "-x", "2", "--warm-up", "7.5"];
        assert_eq!(words(&plan, 1), warm);
        assert_eq!(words(&plan, 2)[..warm.len()], warm);
        assert!(run_seconds(&plan) >= 10.5);
    }

    #[test]
    fn several_testers_count_as_one() {
        let all = together(vec![outcome(300.0, 3.0, 10.0), outcome(300.0, 1.0, 50.0)]).unwrap();
        assert_eq!(all.rate(), 400.0);
        // The broker's 4 µs for each of the first one's messages went into those of both.
        assert_eq!(all.broker_micros, Some(1.0));
        // Half of all messages took 50 µs: so did the slowest 5 % of them.
        assert_eq!(slowest(&all), Some(50.0));
        assert!(together(Vec::new()).is_none());
    }

    #[test]
    fn one_slow_tester_of_four_is_not_diluted() {
        let fast = || outcome(950.0, 1.0, 10.0);
        let slow = outcome(150.0, 1.0, 1_000.0);
        let all = together(vec![fast(), slow, fast(), fast()]).unwrap();
        let latency = all.total.consumer_latency.as_ref().unwrap();
        assert_eq!((latency.count, latency.p95, latency.p99), (3_000.0, 10.0, 1_000.0));
        // The slowest 150 of 3,000.
        assert_eq!((latency.mean_slowest_5, latency.max), (1_000.0, 1_000.0));
    }

    #[test]
    fn a_run_that_lost_messages_or_failed_has_no_score() {
        let good = outcome(300.0, 3.0, 10.0);
        assert_eq!(score(Goal::Throughput, &good), Some(100.0));
        assert_eq!(score(Goal::Latency, &good), Some(0.1));
        let failed = Outcome { errors: vec!["exit status: 1".to_owned()], ..good.clone() };
        assert_eq!(score(Goal::Throughput, &failed), None);
        let bad = Outcome { gap: Some("7 is missing".to_owned()), ..good };
        assert_eq!(score(Goal::Throughput, &bad), None);
        assert_eq!(score(Goal::Throughput, &outcome(0.0, 3.0, 10.0)), None);
        assert_eq!(score(Goal::Latency, &outcome(9.0, 3.0, 0.0)), None);
    }
}
