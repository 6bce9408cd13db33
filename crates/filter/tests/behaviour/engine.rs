//! The engine against the naive evaluator, and what a set does when filters come and go.

use crate::generate::Generator;
use crate::oracle;
use crate::sample::Sample;
use lepus_base::{HashState, Rng};
use lepus_filter::{Filter, FilterSet, Limits, Match, Scratch, SetLimits, Subscription};

/// A set and what should be in it.
struct Pair {
    set: FilterSet,
    scratch: Scratch,
    /// In the order in which they were added.
    expected: Vec<(Subscription, Filter, u64)>,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        Pair {
            set: FilterSet::new(SetLimits::default(), HashState::new(seed)),
            scratch: Scratch::default(),
            expected: Vec::new(),
        }
    }

    fn add(&mut self, text: &str, target: u64) -> Subscription {
        let filter = Filter::parse(text, &Limits::default())
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let subscription = self.set.add(&filter, target).expect("there is room");
        self.expected.push((subscription, filter, target));
        subscription
    }

    fn remove(&mut self, at: usize) {
        let (subscription, ..) = self.expected.remove(at);
        assert!(self.set.remove(subscription));
        assert!(!self.set.remove(subscription));
    }

    fn targets(&mut self, sample: &Sample) -> Vec<u64> {
        let mut found: Vec<Match> = Vec::new();
        let report = self.set.matches(&sample.message(), u64::MAX, &mut self.scratch, &mut found);
        assert!(self.set.is_empty() || report.steps > 0);
        assert!(found.is_sorted_by_key(|found| found.number));
        found.into_iter().map(|found| found.target).collect()
    }

    /// Compares all verdicts on a message. Returns how many there were.
    fn check(&mut self, sample: &Sample) -> usize {
        let found = self.targets(sample);
        let message = sample.message();
        let matching = self
            .expected
            .iter()
            .filter(|(_, filter, _)| oracle::verdict(filter.tree(), &message) == Some(true));
        let expected: Vec<u64> = matching.map(|(_, _, target)| *target).collect();
        if found != expected {
            let different: Vec<&str> = self
                .expected
                .iter()
                .filter(|(_, _, target)| found.contains(target) != expected.contains(target))
                .map(|(_, filter, _)| filter.normal())
                .collect();
            panic!("the engine differs on {different:?}\n{}", show(sample));
        }
        self.expected.len()
    }
}

fn show(sample: &Sample) -> String {
    let properties = lepus_amqp::Properties::decode(&sample.properties);
    let body = String::from_utf8_lossy(&sample.body);
    format!("{properties:?}\n{body}\n{:?} {:?}", sample.format, sample.message().meta)
}

/// Pairs of a filter and a message to compare.
fn pairs() -> usize {
    let given = std::env::var("LEPUS_FILTER_PAIRS").ok().and_then(|pairs| pairs.parse().ok());
    given.unwrap_or(20_000)
}

/// A set of random filters that come and go between messages. `LEPUS_FILTER_PAIRS` says how many verdicts are compared,
/// `LEPUS_FILTER_SEED` where the filters begin.
#[test]
fn every_verdict_is_the_naive_evaluators() {
    let seed = std::env::var("LEPUS_FILTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut rng = Rng::new(seed.unwrap_or(1));
    let mut generator = Generator::new(Rng::new(rng.next_u64()));
    let mut compared = 0;
    let mut target = 0;
    while compared < pairs() {
        let mut pair = Pair::new(rng.next_u64());
        for _ in 0..4 {
            for _ in 0..rng.below(120) {
                target += 1;
                pair.add(&generator.filter(), target);
            }
            for _ in 0..rng.below(40) {
                if !pair.expected.is_empty() {
                    pair.remove(rng.below(pair.expected.len() as u64) as usize);
                }
            }
            for _ in 0..12 {
                if rng.chance(1, 2) {
                    pair.set.work(rng.below(200) as usize);
                }
                compared += pair.check(&generator.message());
            }
        }
        while !pair.expected.is_empty() {
            pair.remove(rng.below(pair.expected.len() as u64) as usize);
        }
        while pair.set.work(1000) {}
        assert!(pair.set.is_empty() && !pair.set.reads_bodies());
    }
}

/// Filters of few shapes in large numbers, so that groups, segments and merges have work.
#[test]
fn columns_and_merges_change_no_verdict() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new(seed);
        let filter = |rng: &mut Rng| {
            let (sym, text) = (rng.below(5), rng.below(30));
            let (low, high) = (rng.below(400) as i64 - 200, rng.below(400) as i64 - 200);
            match rng.below(9) {
                0..3 => format!("sym = 's{sym}' AND b.price > {low}.5 AND b.qty < {high}"),
                3 => format!("b.price > {low} AND b.qty <= {high}"),
                4 => format!("b.price BETWEEN {low} AND {high} AND b.s >= 'k{text}'"),
                5 => format!("sym = 's{sym}' AND b.s < 'k{text}' AND b.qty % 2 = 0"),
                6 => format!("b.s LIKE 'k{text}%' AND b.qty > {low}"),
                7 => {
                    format!("b.qty = {low} OR b.qty = {high} OR sym = 's{sym}' AND b.price < {low}")
                }
                _ => format!("b.qty IN ({low}, {high}, 5) AND sym = 's{sym}' AND b.price >= {low}"),
            }
        };
        let sample = |rng: &mut Rng| {
            let mut sample =
                Sample::headers(lepus_amqp::Table::new().with("sym", format!("s{}", rng.below(6))));
            let price = match rng.below(5) {
                0 => "null".to_owned(),
                1 => "\"x\"".to_owned(),
                2 => format!("{}.5", rng.below(200)),
                _ => format!("{}", rng.below(400) as i64 - 200),
            };
            let (qty, text) = (rng.below(400) as i64 - 200, rng.below(30));
            sample.body =
                format!("{{\"price\": {price}, \"qty\": {qty}, \"s\": \"k{text}\"}}").into_bytes();
            sample
        };
        let mut target = 0;
        for round in 0..12 {
            for _ in 0..rng.below(400) {
                target += 1;
                pair.add(&filter(&mut rng), target);
            }
            let removed = if round > 6 { 500 } else { 100 };
            for _ in 0..rng.below(removed) {
                if !pair.expected.is_empty() {
                    pair.remove(rng.below(pair.expected.len() as u64) as usize);
                }
            }
            for _ in 0..4 {
                pair.set.work(rng.below(300) as usize);
                pair.check(&sample(&mut rng));
            }
        }
        while pair.set.work(500) {}
        for _ in 0..20 {
            pair.check(&sample(&mut rng));
        }
    }
}

#[test]
fn equal_filters_are_kept_once_and_match_in_the_order_of_their_uses() {
    let mut pair = Pair::new(1);
    let first = pair.add("x = 1", 30);
    pair.add("x > 0 OR x = 1", 20);
    let second = pair.add("( a.x=1 )", 10);
    assert_eq!(pair.set.len(), 2);
    assert_eq!(pair.set.normal(second), Some("x = 1"));
    let sample = Sample::headers(lepus_amqp::Table::new().with("x", 1));
    assert_eq!(pair.targets(&sample), [30, 20, 10]);
    assert!(pair.set.remove(first));
    assert_eq!(pair.targets(&sample), [20, 10]);
    assert!(pair.set.remove(second));
    assert_eq!(pair.targets(&sample), [20]);
    assert_eq!(pair.set.len(), 1);
    assert_eq!(pair.set.normal(second), None);
}

#[test]
fn bodies_are_read_only_for_filters_that_name_a_field_of_them() {
    let mut pair = Pair::new(1);
    pair.add("x = 1", 1);
    assert!(!pair.set.reads_bodies());
    let mut out = Vec::new();
    let sample = Sample::body("{not json");
    assert!(
        !pair.set.matches(&sample.message(), u64::MAX, &mut pair.scratch, &mut out).is_malformed
    );
    let body = pair.add("b.x IS MISSING", 2);
    assert!(
        pair.set.matches(&sample.message(), u64::MAX, &mut pair.scratch, &mut out).is_malformed
    );
    assert_eq!(out, [Match { number: 1, target: 2 }]);
    pair.set.remove(body);
    assert!(!pair.set.reads_bodies());
}

#[test]
fn a_set_over_its_limits_refuses_and_stays_as_it_is() {
    let limits = SetLimits {
        filters_max: 3,
        unindexed_max: 1,
        paths_max: 4,
        body_bytes_max: 20,
        ..SetLimits::default()
    };
    let mut set = FilterSet::new(limits, HashState::new(1));
    let add = |set: &mut FilterSet, text: &str| {
        set.add(&Filter::parse(text, &Limits::default()).unwrap(), 0)
    };
    let one = add(&mut set, "b.x + 1 = 2").unwrap();
    let error = add(&mut set, "NOT b.x = 2").unwrap_err();
    assert_eq!((error.allowed, set.len()), (1, 1));
    assert!(add(&mut set, "b.x + 1 = 2").is_ok(), "an equal one is no new one");
    assert!(set.remove(one));
    let error = add(&mut set, "a = 1 AND c = 1 AND d = 1 AND e = 1").unwrap_err();
    assert_eq!(error.to_string(), "more than 4 fields in all filters");
    assert!(add(&mut set, "a = 1 AND c > 1 AND d = 1").is_ok());
    assert!(add(&mut set, "a = 2").is_ok());
    assert_eq!(add(&mut set, "a = 3").unwrap_err().to_string(), "more than 3 filters");
    // A body above the limit has no fields.
    let mut out = Vec::new();
    let mut scratch = Scratch::default();
    set.matches(&Sample::body(r#"{"x": 1}"#).message(), u64::MAX, &mut scratch, &mut out);
    assert_eq!(out.len(), 1);
    set.matches(
        &Sample::body(r#"{"x": 1, "y": "long"}"#).message(),
        u64::MAX,
        &mut scratch,
        &mut out,
    );
    assert_eq!(out.len(), 1);
}

#[test]
fn a_set_gives_back_what_its_filters_took() {
    let mut pair = Pair::new(1);
    let mut after = Vec::new();
    for _ in 0..4 {
        for number in 0..3000 {
            pair.add(
                &format!("x = {} AND y > {number} AND z LIKE '%{number}'", number % 50),
                number,
            );
        }
        while pair.set.work(1000) {}
        let full = pair.set.bytes_hot();
        while !pair.expected.is_empty() {
            pair.remove(pair.expected.len() - 1);
            pair.set.work(50);
        }
        while pair.set.work(1000) {}
        assert!(pair.set.bytes_hot() < full);
        after.push(pair.set.bytes_hot());
    }
    assert_eq!(after[1], after[3], "{after:?}");
}

/// The steps of a message are those of what it and the filters are, and small where filters are looked up.
#[test]
fn steps_count_what_a_message_costs() {
    let steps = |filters: &[String], sample: &Sample| {
        let mut pair = Pair::new(1);
        for (target, filter) in filters.iter().enumerate() {
            pair.add(filter, target as u64);
        }
        while pair.set.work(1000) {}
        let mut out = Vec::new();
        pair.set.matches(&sample.message(), u64::MAX, &mut pair.scratch, &mut out).steps
    };
    let sample = Sample::body(r#"{"sym": "s7", "price": 10, "s": "aaaaaaaaaaaaaaaaaaaa"}"#);
    let looked_up: Vec<String> = (0..2000).map(|index| format!("b.sym = 's{index}'")).collect();
    let ranges: Vec<String> = (0..2000).map(|index| format!("b.price > {index}.5")).collect();
    let evaluated: Vec<String> =
        (0..2000).map(|index| format!("b.price + 0 > {index}.5")).collect();
    assert!(steps(&looked_up, &sample) < 20);
    assert!((100..500).contains(&steps(&ranges, &sample)));
    assert!(steps(&evaluated, &sample) >= 4000);
    let long = Sample::body(&format!(r#"{{"tags": [{}1]}}"#, "1, ".repeat(10_000)));
    assert!(steps(&["ANY(b.tags) = 2".to_owned()], &long) > 10_000);
}

#[test]
fn what_would_take_too_long_is_not_begun() {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    let long = Sample::body(&format!(r#"{{"x": "{}"}}"#, "ab".repeat(100_000)));
    for text in ["b.x REGEXP '(a?){300}c'", "b.x LIKE '%b_a%_c%'", "b.x REGEXP '^ab'"] {
        let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
        set.add(&Filter::parse(text, &Limits::default()).unwrap(), 1).unwrap();
        let report = set.matches(&long.message(), 50_000, &mut scratch, &mut out);
        assert!(report.has_run_out && report.steps <= 50_000, "{text}: {report:?}");
        // The next message is not the poorer for it.
        let report =
            set.matches(&Sample::body(r#"{"x": "abc"}"#).message(), 50_000, &mut scratch, &mut out);
        assert!(!report.has_run_out, "{text}: {report:?}");
    }
    assert_eq!(out.len(), 2);
    // Neither one that many filters of an array take together.
    let list = Sample::body(&format!(r#"{{"x": [{}]}}"#, vec!["1"; 10_000].join(",")));
    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
    for number in 2..1_000 {
        let text = format!("ANY(b.x) = {number}");
        set.add(&Filter::parse(&text, &Limits::default()).unwrap(), number).unwrap();
    }
    let report = set.matches(&list.message(), 50_000, &mut scratch, &mut out);
    assert!(report.has_run_out && report.steps <= 50_000, "{report:?}");
}
