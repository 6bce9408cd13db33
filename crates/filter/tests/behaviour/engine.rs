//! The engine against the naive evaluator, and what a set does when filters come and go.

use crate::generate::Generator;
use crate::oracle;
use crate::sample::Sample;
use lepus_amqp::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_base::{HashState, Rng};
use lepus_filter::{
    BodyFormat, Dear, Filter, FilterSet, Limits, Match, Report, Scratch, SetLimits, Shares,
    Subscription,
};

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
            .unwrap_or_else(|error| panic!("{text}: {error:?}"));
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
        self.ask_with_shares(sample, &found);
        found.into_iter().map(|found| found.target).collect()
    }

    /// With little for each filter it is those that give up alone that are not found.
    fn ask_with_shares(&mut self, sample: &Sample, expected: &[Match]) {
        let each = 1 << (sample.properties.len() % 10);
        let (mut found, mut dear): (Vec<Match>, Vec<Dear>) = (Vec::new(), Vec::new());
        let shares = Shares { asked: u64::MAX, each, dear: each / 2 };
        let steps_max = each * self.expected.len() as u64 + 10_000;
        let (message, scratch) = (sample.message(), &mut self.scratch);
        let report =
            self.set.matches_shared(&message, steps_max, shares, scratch, &mut found, &mut dear);
        if report.has_run_out() {
            assert!(found.is_empty());
            return;
        }
        assert!(dear.iter().all(|dear| dear.steps > each / 2 || dear.has_given_up()));
        let has_given_up =
            |one: &Match| dear.iter().any(|dear| dear.target == one.target && dear.has_given_up());
        let missed = expected.iter().filter(|one| !found.contains(one));
        assert!(missed.copied().all(|one| has_given_up(&one)), "{}", show(sample));
        assert!(found.iter().all(|one| expected.contains(one)), "{}", show(sample));
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

/// Filters come and go in bursts while what was added is on its way into columns: after each step of that, and with
/// removals in the middle of it, a message is matched as if nothing was going on.
#[test]
fn a_set_is_right_after_each_step_of_tidying() {
    for seed in 0..5 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new(seed);
        let filter = |rng: &mut Rng| {
            let (sym, low, high) = (rng.below(3), rng.below(40), rng.below(40));
            let less = ["<", "<="][rng.below(2) as usize];
            match rng.below(6) {
                0 | 1 => format!("b.price > {low} AND b.qty {less} {high}"),
                2 => format!("sym IN ('s{sym}', 's2') AND b.price {less} {high}.5"),
                // Some constants are no floats.
                3 => format!("b.qty < 90071992547409{low} AND b.price >= {low}"),
                4 => format!("b.s >= 'k{low}' AND b.s {less} 'k{high}'"),
                _ => format!("NOT b.price {less} {high}"),
            }
        };
        let mut target = 0;
        for round in 0..14 {
            for _ in 0..rng.below(150) {
                target += 1;
                pair.add(&filter(&mut rng), target);
            }
            let is_over = round % 7 == 6;
            let kept = if is_over { 20 } else { 400 };
            while pair.expected.len() > kept {
                pair.remove(rng.below(pair.expected.len() as u64) as usize);
            }
            for _ in 0..12 {
                let most = 1 << rng.below(9);
                pair.set.work(1 + rng.below(most) as usize);
                if rng.chance(1, 2) && !pair.expected.is_empty() {
                    pair.remove(rng.below(pair.expected.len() as u64) as usize);
                }
                let (price, qty) =
                    (rng.below(40), [rng.below(40), u64::MAX][rng.below(2) as usize]);
                let headers = Table::new().with("sym", format!("s{}", rng.below(4)));
                let mut sample = Sample::headers(headers);
                sample.body = format!(
                    "{{\"price\": {price}, \"qty\": {qty}, \"s\": \"k{}\"}}",
                    rng.below(40)
                )
                .into_bytes();
                pair.check(&sample);
            }
        }
        while !pair.expected.is_empty() {
            pair.remove(rng.below(pair.expected.len() as u64) as usize);
        }
        while pair.set.work(1) {}
        assert!(pair.set.is_empty());
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
    let is_unreadable = |pair: &mut Pair, sample: &Sample, out: &mut Vec<Match>| {
        pair.set.matches(&sample.message(), u64::MAX, &mut pair.scratch, out).is_body_unreadable
    };
    assert!(!is_unreadable(&mut pair, &sample, &mut out));
    let body = pair.add("b.x IS MISSING", 2);
    assert!(is_unreadable(&mut pair, &sample, &mut out));
    assert_eq!(out, [Match { number: 1, target: 2 }]);
    pair.set.remove(body);
    assert!(!pair.set.reads_bodies());
}

#[test]
fn a_body_that_is_asked_for_and_cannot_be_read_is_told_of() {
    let limits = SetLimits { body_bytes_max: 20, ..SetLimits::default() };
    let mut set = FilterSet::new(limits, HashState::new(1));
    let filter = Filter::parse("b.x = 1 OR b.x IS MISSING", &Limits::default());
    set.add(&filter.unwrap(), 0).unwrap();
    let mut scratch = Scratch::default();
    let mut ask = |kind: &str, encoding: &str, body: &str, format: BodyFormat| {
        let text = |text: &str| (!text.is_empty()).then(|| text.into());
        let (content_type, content_encoding) = (text(kind), text(encoding));
        let properties = Properties { content_type, content_encoding, ..Properties::default() };
        let sample = Sample { format, ..Sample::new(&properties, body) };
        let mut out = Vec::new();
        let report = set.matches(&sample.message(), u64::MAX, &mut scratch, &mut out);
        // It is missing then, and the filter says so.
        assert_eq!(out.len(), 1);
        report.is_body_unreadable
    };
    let (json, long) = ("application/json", r#"{"x": 1, "y": "long"}"#);
    let mut auto = |kind, encoding, body| ask(kind, encoding, body, BodyFormat::Auto);
    for (kind, encoding, body) in [
        (json, "", "{"),
        (json, "", ""),
        ("", "", "[1] 2"),
        (json, "", long),
        ("", "", long),
        ("application/fix", "", "8=FIX.4.4\u{1}35=D\u{1}55=IBM\u{1}"),
        (json, "gzip", "{}"),
        // What it is, is not to be seen.
        ("", "gzip", "?"),
    ] {
        assert!(auto(kind, encoding, body), "{kind} {encoding} {body}");
    }
    for (kind, encoding, body) in [
        (json, "", r#"{"x": 1}"#),
        (json, "utf-8", r#"{"x": 1}"#),
        ("application/nvfix", "", "nothing"),
        ("", "", "some text"),
        ("", "", "some text that is longer than is read"),
        ("text/plain", "gzip", "?"),
    ] {
        assert!(!auto(kind, encoding, body), "{kind} {encoding} {body}");
    }
    assert!(!ask(json, "gzip", long, BodyFormat::None));
    assert!(ask("text/plain", "", "some text", BodyFormat::Json));
}

#[test]
fn a_body_that_takes_too_many_steps_is_not_unreadable_for_that() {
    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
    set.add(&Filter::parse("b.x = 'y'", &Limits::default()).unwrap(), 0).unwrap();
    let mut scratch = Scratch::default();
    let escaped = Sample::body(&format!("{{\"x\": \"{}\"}}", "\\n".repeat(1000)));
    let mut ask = |steps_max| {
        let report = set.matches(&escaped.message(), steps_max, &mut scratch, &mut Vec::new());
        (report.has_run_out(), report.is_body_unreadable)
    };
    assert_eq!(ask(100), (true, false));
    assert_eq!(ask(u64::MAX), (false, false));
}

#[test]
fn what_one_filter_takes_is_not_what_others_miss() {
    let mut pair = Pair::new(1);
    let dear = |number| format!("b.x REGEXP '(a?){{20}}{number}'");
    let texts =
        [dear(1), "SIZE(b.x) = 1 OR b.y = 1".into(), dear(2), "b.y + 1 = 2".into(), dear(3)];
    for (target, text) in (0..).zip(&texts) {
        pair.add(text, target);
    }
    let sample = Sample::body(&format!("{{\"x\": \"{}2\", \"y\": 1}}", "a".repeat(100)));
    let mut ask = |steps_max, each| {
        let (mut found, mut dear) = (Vec::new(), Vec::new());
        let (message, scratch, shares) =
            (sample.message(), &mut pair.scratch, Shares { asked: u64::MAX, each, dear: 100 });
        let report: Report =
            pair.set.matches_shared(&message, steps_max, shares, scratch, &mut found, &mut dear);
        let targets: Vec<u64> = found.iter().map(|found| found.target).collect();
        let told: Vec<(u64, bool)> =
            dear.iter().map(|dear| (dear.target, dear.has_given_up())).collect();
        (targets, told, report.has_run_out())
    };
    let all = ask(u64::MAX, 1);
    assert_eq!(all, (vec![1, 2, 3], vec![(0, false), (2, false), (4, false)], false));
    // Together they may take what one of the dear ones does, or less: the others have their shares.
    let (found, told, has_run_out) = ask(20_000, 500);
    assert!(found.contains(&1) && found.contains(&3) && !has_run_out, "{found:?}");
    assert_eq!(told.iter().filter(|(_, has_given_up)| !has_given_up).count(), 1, "{told:?}");
    assert_eq!(told.len(), 3);
    let (found, told, has_run_out) = ask(3_000, 500);
    assert_eq!((found, has_run_out), (vec![1, 3], false));
    assert_eq!(told, [(0, true), (2, true), (4, true)]);
    assert!(ask(1, 1).2);
    // Who is not asked takes nothing.
    let (mut found, mut dear) = (Vec::new(), Vec::new());
    let (message, scratch) = (sample.message(), &mut pair.scratch);
    let shares = Shares { asked: 0b100, each: 1, dear: 100 };
    let _ = pair.set.matches_shared(&message, 100_000, shares, scratch, &mut found, &mut dear);
    assert!(found.iter().any(|found| found.target == 2));
    assert_eq!(dear.iter().map(|dear| dear.target).collect::<Vec<_>>(), [2]);
}

/// A filter has its share once, however many branches it has.
#[test]
fn branches_of_one_filter_leave_others_their_shares() {
    for count in [10, 30, 61, 62] {
        let mut pair = Pair::new(count);
        for number in 0..count {
            let branch = |branch| format!("h{branch} = 1 AND b.text LIKE '%q{number}x{branch}%'");
            let branches: Vec<String> = (0..8).map(branch).collect();
            pair.add(&format!("({})", branches.join(") OR (")), number);
        }
        pair.add("b.text LIKE '%needle%'", 62);
        pair.add("h3 = 1 AND b.text LIKE '%needle%'", 63);
        let mut sample = Sample::body(&format!("{{\"text\": \"{}needle\"}}", "a".repeat(800)));
        let all = (0..8).map(|number| format!("h{number}")).chain(["hv".to_owned()]);
        let headers = all.fold(Table::new(), |table, name| table.with(&name, 1));
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        sample.properties = properties.to_bytes();
        let shares = Shares { asked: u64::MAX, each: 512, dear: 16 };
        let (mut found, mut dear) = (Vec::new(), Vec::new());
        let (message, scratch) = (sample.message(), &mut pair.scratch);
        let report =
            pair.set.matches_shared(&message, 32_768, shares, scratch, &mut found, &mut dear);
        let targets: Vec<u64> = found.iter().map(|found| found.target).collect();
        assert_eq!((targets, report.has_run_out()), (vec![62, 63], false), "{count}: {report:?}");
    }
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
    let error = add(&mut set, "NOT b.x + 1 = 2").unwrap_err();
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
    let body =
        r#"{"sym": "s7", "price": 10, "high": 1900, "odd": 1980, "s": "aaaaaaaaaaaaaaaaaaaa"}"#;
    let sample = Sample::body(body);
    let looked_up: Vec<String> = (0..2000).map(|index| format!("b.sym = 's{index}'")).collect();
    let ranges: Vec<String> = (0..2000).map(|index| format!("b.price > {index}.5")).collect();
    let computed: Vec<String> = (0..2000).map(|index| format!("b.price + 0 > {index}.5")).collect();
    let evaluated: Vec<String> =
        (0..2000).map(|index| format!("NOT b.price + 0 <= {index}.5")).collect();
    assert!(steps(&looked_up, &sample) < 25);
    // Most of them lie elsewhere, where they are sorted by it.
    assert!(steps(&ranges, &sample) < 100);
    assert!(steps(&computed, &sample) < 100);
    let mixed: Vec<String> = (0..2000)
        .map(|index| format!("b.high > {index}.5 AND b.odd < {}", index * 7919 % 2000))
        .collect();
    assert!((100..500).contains(&steps(&mixed, &sample)));
    assert!(steps(&evaluated, &sample) >= 4000);
    let long = Sample::body(&format!(r#"{{"tags": [{}1]}}"#, "1, ".repeat(10_000)));
    assert!(steps(&["ANY(b.tags) = 2".to_owned()], &long) > 10_000);
}

/// Arithmetic against numbers stands in columns as well, whatever the values are.
#[test]
fn what_is_computed_is_compared_as_it_is_evaluated() {
    let conditions = [
        "b.x + b.y > {}",
        "b.x * 2 = {}",
        "{} >= -b.x",
        "ABS(b.x - {}) < 3",
        "b.x / b.y BETWEEN {} AND 6",
        "+x <= {} AND FLOOR(b.y) > -{}",
        "b.x % 3 = {} OR b.y - 1 < {}",
        "b.x + 0 = {} AND b.y = 2",
        "b.x + 0 > {}.5 AND b.x + 0 < 7",
        "b.44 + 1 >= {}",
        "NOT b.x + 1 > {}",
    ];
    let values = [
        "-3",
        "0",
        "1",
        "2.5",
        "7",
        "9007199254740993",
        "18446744073709551615",
        "\"2\"",
        "null",
        "[1]",
    ];
    let mut pair = Pair::new(3);
    for (index, condition) in conditions.iter().enumerate() {
        for constant in 0..40 {
            pair.add(
                &condition.replace("{}", &(constant % 9).to_string()),
                (100 * index + constant) as u64,
            );
        }
    }
    let check = |pair: &mut Pair| {
        let mut found = 0;
        for one in values {
            for two in values {
                let sample = Sample::body(&format!("{{\"x\":{one},\"y\":{two}}}"));
                pair.check(&sample);
                found += pair.targets(&sample).len();
            }
        }
        let mut fix = Sample::body("8=FIX\u{1}44=2.5\u{1}");
        fix.format = lepus_filter::BodyFormat::Fix;
        pair.check(&fix);
        pair.check(&Sample::headers(lepus_amqp::Table::new().with("x", 1_i64)));
        found
    };
    assert!(check(&mut pair) > 1000);
    while pair.set.work(1000) {}
    assert!(check(&mut pair) > 1000);
    while !pair.expected.is_empty() {
        pair.remove(pair.expected.len() / 2);
        if pair.expected.len().is_multiple_of(64) {
            check(&mut pair);
        }
    }
    assert!(!pair.set.reads_bodies());
}

/// Conditions that are no AND of comparisons stand in columns as well, whatever the values are: null, of another type, no
/// number, or text of FIX.
#[test]
fn conditions_of_any_form_are_compared_as_they_are_evaluated() {
    let conditions = [
        "NOT (x <= {} OR y >= {})",
        "NOT (x = {} AND y <> {})",
        "x <> {} AND NOT y = {}",
        "(x < {} OR y < {}) AND (x > 1 OR y > {} OR x IS NULL)",
        "NOT (x BETWEEN {} AND 5) AND NOT (y NOT BETWEEN 2 AND {})",
        "NOT (NOT x > {} AND y IS NOT MISSING)",
        "x <> {} AND (flag OR NOT y > {})",
        "NOT (flag AND x <> {}) AND (flag IS TRUE OR y IS NOT NULL)",
        "s <> '{}' AND (x < {} OR NOT s > '{}')",
        "NOT s BETWEEN '{}' AND '7' AND y <> {}",
        "NOT (x < {} OR y < '{}')",
        "9007199254740993 <> x AND {} <> y",
        "k = {} AND NOT (x > {} OR y < {})",
        // These are evaluated.
        "NOT (x < {} OR x < y)",
        "NOT (x > {} OR s LIKE 'k%')",
    ];
    let numbers = ["2", "3.5", "9007199254740993"].map(|text| text.parse::<f64>().unwrap());
    let mut values: Vec<Option<Value>> = numbers.map(|number| Some(Value::F64(number))).into();
    values.extend([0_i64, 3, 6, i64::MAX, 9_007_199_254_740_993].map(|value| Some(value.into())));
    values.extend([f64::NAN, f64::INFINITY].map(|value| Some(Value::F64(value))));
    values.extend([None, Some(Value::Void), Some(Value::from("5")), Some(Value::from(true))]);
    let mut pair = Pair::new(5);
    let mut rng = Rng::new(5);
    let mut target = 0;
    for condition in conditions {
        for number in 0..160 {
            target += 1;
            let mut text = condition.to_owned();
            while text.contains("{}") {
                let constant = if number % 20 == 19 { u64::MAX } else { rng.below(8) };
                text = text.replacen("{}", &constant.to_string(), 1);
            }
            pair.add(&text, target);
        }
    }
    let check = |pair: &mut Pair, rng: &mut Rng| {
        let mut found = 0;
        for _ in 0..60 {
            let mut table = Table::new();
            for name in ["x", "y"] {
                if let Some(value) = &values[rng.below(values.len() as u64) as usize] {
                    table.insert(name, value.clone());
                }
            }
            if rng.chance(2, 3) {
                table.insert("flag", rng.chance(1, 2));
            }
            match rng.below(3) {
                0 => table.insert("s", format!("{}", rng.below(9))),
                1 => table.insert("s", 3_i64),
                _ => {}
            }
            table.insert("k", rng.below(8) as i64);
            let sample = Sample::headers(table);
            pair.check(&sample);
            found += pair.targets(&sample).len();
        }
        found
    };
    assert!(check(&mut pair, &mut rng) > 1000);
    while pair.set.work(1000) {}
    assert!(check(&mut pair, &mut rng) > 1000);
    for _ in 0..1000 {
        pair.remove(rng.below(pair.expected.len() as u64) as usize);
    }
    check(&mut pair, &mut rng);
    while pair.set.work(1000) {}
    check(&mut pair, &mut rng);
    // Text of FIX is a number against numbers, and a string against strings.
    let mut pair = Pair::new(6);
    for number in 0..200 {
        pair.add(&format!("NOT (b.44 < {} OR b.55 = '{}')", number % 13, number % 7), number);
        pair.add(
            &format!("b.44 <> {} OR b.44 <> '{}' AND b.55 <> 3", number % 13, number % 7),
            number + 1000,
        );
    }
    for _ in 0..2 {
        for (one, two) in [("2.5", "3"), ("x", "3"), ("12", "6"), ("", "6"), ("3", "y")] {
            let mut fix = Sample::body(&format!("8=FIX\u{1}44={one}\u{1}55={two}\u{1}"));
            fix.format = lepus_filter::BodyFormat::Fix;
            pair.check(&fix);
            pair.check(&Sample::headers(Table::new()));
        }
        while pair.set.work(1000) {}
    }
    while !pair.expected.is_empty() {
        pair.remove(0);
    }
    while pair.set.work(1000) {}
    assert!(!pair.set.reads_bodies());
}

/// Many conditions of one form cost what columns cost.
#[test]
fn conditions_of_one_form_are_not_evaluated_one_by_one() {
    let mut pair = Pair::new(1);
    for number in 0..3000 {
        pair.add(&format!("NOT (b.x <= {number} OR b.y IS NULL OR b.x > 9{number})"), number);
    }
    while pair.set.work(1000) {}
    let mut out = Vec::new();
    for (body, most) in [(r#"{"x": 0, "y": 1}"#, 400), (r#"{"x": 0}"#, 150)] {
        let sample = Sample::body(body);
        let report = pair.set.matches(&sample.message(), u64::MAX, &mut pair.scratch, &mut out);
        assert!(report.steps < most && out.is_empty(), "{report:?}");
    }
}

/// More than there may be that is computed for all messages is evaluated where it stands.
#[test]
fn very_many_expressions_are_evaluated() {
    let mut pair = Pair::new(4);
    for index in 0..200 {
        pair.add(&format!("b.x + {index} > {}", 2 * index as i64 - 100), index);
    }
    for value in [-200, 0, 50, 99] {
        assert_eq!(pair.check(&Sample::body(&format!("{{\"x\":{value}}}"))), 200);
    }
    for _ in 0..150 {
        pair.remove(20);
    }
    assert_eq!(pair.check(&Sample::body("{\"x\":7}")), 50);
}

/// A set of one filter.
fn set_of(text: &str) -> FilterSet {
    let filter = Filter::parse(text, &Limits::default());
    let filter = filter.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
    set.add(&filter, 1).unwrap();
    set
}

/// Each operator that looks at a string or at elements: it counts them, and is not begun where that would be too much.
#[test]
fn operators_ask_for_what_they_look_at_before_they_do() {
    let bytes = 60_000;
    let string =
        |unit: &str| Sample::body(&format!("{{\"s\":\"{}\"}}", unit.repeat(bytes / unit.len())));
    let list = |unit: &str| {
        let units = vec![unit; bytes / (unit.len() + 1)];
        Sample::body(&format!("{{\"s\":[{}]}}", units.join(",")))
    };
    let members: Vec<String> = (0..bytes / 10).map(|index| format!("\"k{index:05}\":1")).collect();
    let object = Sample::body(&format!("{{\"s\":{{{}}}}}", members.join(",")));
    let array = lepus_amqp::Value::Array(vec![lepus_amqp::Value::Void; bytes]);
    let headers = Sample::headers(lepus_amqp::Table::new().with("s", array));
    let mut fix = Sample::body(&"1=2\u{1}".repeat(bytes / 4));
    fix.format = lepus_filter::BodyFormat::Fix;
    let near = Sample::body(&format!("{{\"s\":\"{}\"}}", "1".repeat(700)));
    let long = "a".repeat(15_000);
    // The filter, a message, and the bytes that are looked at for a step at most.
    let rows: Vec<(String, Sample, usize)> = vec![
        (format!("b.s <> '{long}' OR b.s + 0 = 1"), string("a"), 300),
        (format!("b.s + 0 = 1 OR b.s < '{long}'"), string("a"), 300),
        (format!("b.s + 0 = 1 OR b.s IN (b.x, '{long}')"), string("a"), 300),
        ("UPPER(b.s) = 'x'".into(), string("é"), 4),
        ("LOWER(b.s) = 'x'".into(), string("É"), 4),
        ("LENGTH(b.s) = 1".into(), string("é"), 8),
        ("LEFT(b.s, 50000) = 'x'".into(), string("é"), 8),
        ("RIGHT(b.s, 1) = 'x'".into(), string("é"), 8),
        ("SUBSTRING(b.s, 50000) = 'x'".into(), string("é"), 8),
        ("SUBSTRING(b.s, 1, 50000) = 'x'".into(), string("é"), 8),
        (format!("CONTAINS(b.s, '{long}b')"), string("a"), 8),
        ("CONTAINS(b.s, b.s)".into(), string("a"), 8),
        (format!("STARTS_WITH(b.s, '{long}')"), string("a"), 300),
        (format!("ENDS_WITH(b.s, '{long}')"), string("a"), 300),
        ("b.s LIKE '%ab%c'".into(), string("a"), 8),
        ("b.s LIKE '%a_b%'".into(), string("a"), 2),
        ("b.s LIKE '%_b'".into(), string("a"), 8),
        ("b.s ILIKE '%ab%'".into(), string("a"), 2),
        ("b.s REGEXP 'a+b'".into(), string("a"), 1),
        ("NUM(b.s) = 1".into(), near.clone(), 2),
        ("SIZE(b.s) = 1".into(), list("1"), 16),
        ("SIZE(b.s) = 1".into(), object.clone(), 4),
        ("SIZE(s) = 1".into(), headers.clone(), 8),
        ("ANY(b.s) = 2".into(), list("1"), 8),
        ("ALL(b.s[*].a) = 2".into(), list("{\"a\":2}"), 8),
        ("ANY(b.s) = 'x'".into(), list("\"\\u0041\""), 8),
        ("ANY(b.s) = 1".into(), list(&"9".repeat(400)), 8),
        ("ANY(s) = 2".into(), headers.clone(), 8),
        ("ANY(b.1) = '3'".into(), fix.clone(), 8),
    ];
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    for (text, sample, bytes_per_step) in rows {
        let set = set_of(&text);
        let message = sample.message();
        // Reading it is done in any case; what is wanted counts beside its bytes.
        let reading = set.matches(&message, 0, &mut scratch, &mut out).steps;
        assert!(reading >= set.reading_steps(&message));
        let report = set.matches(&message, u64::MAX, &mut scratch, &mut out);
        let looked_at = message.body.len().max(message.properties.0.len()) as u64;
        let steps = report.steps - reading;
        assert!(
            steps >= looked_at / bytes_per_step as u64,
            "{text}: {steps} steps for {looked_at} bytes"
        );
        // With one step less than it takes it says nothing, and has taken no more.
        out.clear();
        for steps_max in [0, steps / 2, steps - 1] {
            let report = set.matches(&message, steps_max, &mut scratch, &mut out);
            assert!(report.has_run_out() && out.is_empty(), "{text}: {report:?}");
            assert!(report.steps <= steps_max + reading, "{text}: {report:?}");
        }
        let report = set.matches(&message, steps, &mut scratch, &mut out);
        assert!(!report.has_run_out() && report.steps == steps + reading, "{text}: {report:?}");
        out.clear();
    }
}

/// Conditions on one field, each grouped in its own way, few and many of each: every group reads the number by itself.
#[test]
fn a_long_number_of_fix_is_paid_by_each_group_that_reads_it() {
    const GROUPS: usize = 20;
    let digits = 60_000;
    let mut scratch = Scratch::default();
    for (copies, last) in [(1, ""), (1, "x"), (700, ""), (700, "x")] {
        let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
        for (group, copy) in (0..GROUPS * copies).map(|index| (index % GROUPS, index / GROUPS)) {
            let mut text = "b.44 < 1".to_owned();
            for end in 0..5 {
                let word = if group >> end & 1 == 1 { "AND" } else { "OR" };
                text = format!("({text}) {word} b.44 > {}", 10 * copy + end);
            }
            // Otherwise it would be an AND, which has no form.
            text = format!("({text}) AND (b.44 < 5 OR b.44 > 7)");
            let filter = Filter::parse(&text, &Limits::default()).unwrap();
            set.add(&filter, 1).unwrap();
        }
        while set.work(100_000) {}
        let mut sample = Sample::body(&format!("44={}{last}\u{1}", "1".repeat(digits)));
        sample.format = lepus_filter::BodyFormat::Fix;
        let message = sample.message();
        let mut out = Vec::new();
        let reading = set.matches(&message, 0, &mut scratch, &mut out).steps;
        let report = set.matches(&message, u64::MAX, &mut scratch, &mut out);
        let least = (GROUPS * digits / 16) as u64;
        assert!(report.steps - reading >= least, "{copies} copies: {report:?}, {reading} to read");
    }
}

#[test]
fn what_takes_long_to_read_is_refused_before_it_is_translated() {
    let refused = |text: &str| match Filter::parse(text, &Limits::default()) {
        Ok(_) => "taken".to_owned(),
        Err(error) => error.reason.reply(),
    };
    let weight = "more than 2000 units of what regular expressions take to be translated";
    let length = "more than 1024 bytes of a regular expression";
    let one = "(?i)[\\w]{0}".repeat(19);
    assert_eq!(refused(&format!("a REGEXP '{one}'")), "taken");
    assert_eq!(refused(&format!("a REGEXP '{one}' OR b REGEXP '{one}'")), weight);
    assert_eq!(refused(&format!("a REGEXP '{}'", "(?i)[\\w]{0}".repeat(1_300))), length);
    let nested = format!("{}{}", "[\\w".repeat(30), "]".repeat(30));
    assert_eq!(refused(&format!("a REGEXP '{nested}'")), weight);
    assert_eq!(refused(&format!("a REGEXP '{}'", "a".repeat(1024))), "taken");
    let fields: Vec<String> = (0..64).map(|number| format!("x{number} = 1")).collect();
    assert_eq!(refused(&fields.join(" AND ")), "taken");
    assert_eq!(refused(&format!("{} AND y = 1", fields.join(" AND "))), "more than 64 fields");
    assert_eq!(
        refused(&format!("{} AND ANY(b.y) = 1", fields.join(" AND "))),
        "more than 64 fields"
    );
}

#[test]
fn a_filter_takes_what_its_text_takes_and_little_more() {
    let values = |from: u32| {
        let list: Vec<String> = (from..from + 64).map(|value| value.to_string()).collect();
        list.join(",")
    };
    let ins: Vec<String> =
        (0..8).map(|field| format!("b.f{field} IN ({})", values(100 * field))).collect();
    let long = "a".repeat(15_000);
    let rows = [
        ins.join(" OR "),
        format!("{}b.x = '{long}'", "NOT ".repeat(60)),
        format!("b.f IN ({}) AND b.x > '{}'", values(0), &long[..14_000]),
        "b.x REGEXP '[a-c]{2}é' OR b.x REGEXP '\\w+'".to_owned(),
    ];
    for text in rows {
        let mut set = set_of(&text);
        let one = set.bytes();
        let most = 40_000 + 7 * text.len();
        assert!(one < most, "{} takes {one} bytes", &text[..20]);
        let filter = Filter::parse(&text, &Limits::default()).unwrap();
        assert!(one <= filter.bytes_max() + 4_000, "{one} {}", filter.bytes_max());
        // An equal one takes next to nothing, and what is taken out is given back.
        let again = set.add(&filter, 2).unwrap();
        assert!(set.bytes() <= one + 100);
        set.remove(again);
        assert!(set.bytes() <= one + 100);
    }
    // What is asked of each message is the same as before.
    let set = set_of(&ins.join(" OR "));
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    for (value, count) in [(705, 1), (64, 0)] {
        out.clear();
        let sample = Sample::body(&format!("{{\"f7\": {value}}}"));
        set.matches(&sample.message(), u64::MAX, &mut scratch, &mut out);
        assert_eq!(out.len(), count);
    }
}

#[test]
fn what_would_take_too_long_is_not_begun() {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    let long = Sample::body(&format!(r#"{{"x": "{}"}}"#, "ab".repeat(100_000)));
    for text in ["b.x REGEXP '(a?){300}c'", "b.x LIKE '%b_a%_c%'", "b.x REGEXP '^ab'"] {
        let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
        set.add(&Filter::parse(text, &Limits::default()).unwrap(), 1).unwrap();
        let report = set.matches(&long.message(), 50_000, &mut scratch, &mut out);
        assert!(report.has_run_out() && report.steps <= 90_000, "{text}: {report:?}");
        // The next message is not the poorer for it.
        let report =
            set.matches(&Sample::body(r#"{"x": "abc"}"#).message(), 50_000, &mut scratch, &mut out);
        assert!(!report.has_run_out(), "{text}: {report:?}");
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
    assert!(report.has_run_out() && report.steps <= 60_000, "{report:?}");
}

#[test]
fn elements_of_an_array_in_the_headers_are_asked_for_one_by_one() {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    let decimal = Value::Decimal { scale: 255, value: 7 };
    let long = Sample::headers(Table::new().with("x", vec![decimal; 20_000]));
    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
    set.add(&Filter::parse("ANY(a.x) = 1", &Limits::default()).unwrap(), 1).unwrap();
    let report = set.matches(&long.message(), 100_000, &mut scratch, &mut out);
    assert!(report.has_run_out() && report.steps < 120_000, "{report:?}");
    let short = Sample::headers(Table::new().with("x", vec![Value::from(1); 1_000]));
    let report = set.matches(&short.message(), 100_000, &mut scratch, &mut out);
    assert!(!report.has_run_out() && out.len() == 1, "{report:?}");
}

/// A decimal of a long scale takes long: it is read once for all conditions, and counted whichever way it is read.
#[test]
fn headers_that_are_wanted_count_by_what_it_takes_to_read_them() {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    let decimal = |scale| Value::Decimal { scale, value: u32::MAX };
    let mut steps = |filter: &str, more: &str, headers: &Table| {
        let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
        for (number, text) in [filter, more].iter().filter(|text| !text.is_empty()).enumerate() {
            set.add(&Filter::parse(text, &Limits::default()).unwrap(), number as u64).unwrap();
        }
        let message = Sample::headers(headers.clone());
        set.matches(&message.message(), 1_000_000, &mut scratch, &mut out).steps
    };
    let many = vec!["a.d >= 0"; 30].join(" AND ");
    let (long, short) = (Table::new().with("d", decimal(255)), Table::new().with("d", decimal(2)));
    // Alone they are asked directly, beside a filter of bodies with all others.
    for more in ["", "b.x = 1"] {
        let (of_long, of_short) = (steps(&many, more, &long), steps(&many, more, &short));
        assert_eq!(of_long - of_short, 40, "{more}");
    }
    let names: Vec<String> = (0..900).map(|number| format!("n{number}")).collect();
    let table = names.iter().fold(Table::new(), |table, name| table.with(name, 1));
    let each: Vec<String> = names[..60].iter().map(|name| format!("a.{name} + a.x > 2")).collect();
    let of_60 = steps(&each.join(" OR "), "", &table);
    assert!(of_60 > 900 * 5, "{of_60} steps for 900 headers among 61 names");
}
