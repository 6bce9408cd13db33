//! Who gets which message by its content, beside who gets it by its key.

use crate::experiment::figures::ratio_words;
use crate::plot::{Axis, Bar, BarPlot, Group, LinePlot, Look, Series, Unit, significant};
use crate::record::Record;
use crate::report::{Block, Content, plot};
use crate::session::Session;
use crate::statistics::spread;
use crate::subject::{Kind, Subject};
use crate::workload::{Load, Outcome};

/// Offered messages a second, of all publishers.
const RATES: [u64; 3] = [20_000, 100_000, 400_000];
/// Below this scale there is the first of them alone.
const SCALE_MIN: f64 = 0.01;
/// The part of the offered rate that has to be sent where a broker keeps up, and so many seconds of it may not have come in the end.
const SENT_MIN: f64 = 0.95;
const MISSING_SECONDS_MAX: f64 = 0.05;

/// How messages find their subscribers.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    words: &'static [&'static str],
}

/// All others are held against the first.
const WAYS: [Way; 3] = [
    Way {
        name: "topic keys",
        words: &[
            "throughput",
            "-x",
            "4",
            "-y",
            "4",
            "-t",
            "topic",
            "-e",
            "lepus-ticker-topic",
            "--queue-pattern",
            "lepus-ticker-topic-%d",
            "--queue-pattern-from",
            "1",
            "--queue-pattern-to",
            "4",
            "-a",
            "-s",
            "1024",
        ],
    },
    Way {
        name: "4 filters",
        words: &[
            "filters",
            "-x",
            "4",
            "--connections",
            "4",
            "--queues",
            "4",
            "--count",
            "4",
            "--symbols",
            "4",
            "--ranges",
            "0",
            "-c",
            "-1",
            "--body",
            "json:1024",
        ],
    },
    Way {
        name: "10,000 filters",
        words: &[
            "filters",
            "-x",
            "4",
            "--connections",
            "4",
            "--queues",
            "4",
            "--count",
            "10000",
            "-c",
            "-1",
            "--body",
            "json:1024",
        ],
    },
];

/// A figure of a run, where it has one.
type Figure = fn(&Outcome) -> Option<f64>;

fn load(way: Way, rate: u64, seconds: f64) -> Load {
    let each = (rate / super::PUBLISHERS).to_string();
    let words: Vec<&str> = way.words.iter().copied().chain(["-r", &each]).collect();
    let name = format!("{}, {} msg/s", way.name, significant(rate as f64));
    Load::timed(&name, &words, 1_024, seconds)
}

fn rates(scale: f64) -> &'static [u64] {
    if scale < SCALE_MIN { &RATES[..1] } else { &RATES }
}

/// Whether it can take filters: what is known to be another broker cannot.
fn filters(subject: &Subject) -> bool {
    subject.kind().is_none_or(|kind| kind == Kind::Lepus)
}

/// All ways at all rates, in turn.
pub(super) fn measure(session: &mut Session<'_>) {
    let seconds = session.plan.seconds(super::SECONDS);
    let (rates, rounds) = (rates(session.plan.scale), session.plan.rounds);
    let placement = session.plan.apart();
    for number in 0..session.plan.choices.len() {
        let Some(subject) = session.start(number, &placement, true) else { continue };
        if !filters(&subject) {
            continue;
        }
        session.progress.expect((rates.len() * rounds * WAYS.len()) as f64 * seconds);
        let mut is_keeping_up = [true; WAYS.len()];
        for rate in rates {
            for round in 0..rounds {
                for (way, keeping_up) in WAYS.iter().zip(&mut is_keeping_up) {
                    if !*keeping_up {
                        session.progress.expect(-seconds);
                        continue;
                    }
                    let load = load(*way, *rate, seconds);
                    let went_well = session.load((number, &subject), &placement, &load, round);
                    let last = session.record.runs.last();
                    *keeping_up =
                        went_well && last.is_some_and(|run| keeps_up(&run.outcome, *rate));
                }
            }
        }
    }
}

/// Not every message has to come to somebody, so that it is what was sent that tells.
fn keeps_up(outcome: &Outcome, rate: u64) -> bool {
    let rate = rate as f64;
    outcome.missing <= rate * MISSING_SECONDS_MAX
        && outcome.total.sent >= rate * outcome.total.seconds * SENT_MIN
}

/// Microseconds of the broker's CPU by published message.
fn cpu(outcome: &Outcome) -> Option<f64> {
    let total = &outcome.total;
    (total.sent > 0.0).then_some(outcome.broker_micros? * total.received / total.sent)
}

fn mean(outcome: &Outcome) -> Option<f64> {
    outcome.total.consumer_latency.as_ref().map(|latency| latency.mean)
}

fn slowest(outcome: &Outcome) -> Option<f64> {
    outcome.total.consumer_latency.as_ref().map(|latency| latency.mean_slowest_5)
}

/// Two pictures and the sentences for each broker that takes filters.
pub(super) fn describe(session: &Session<'_>, content: &mut Content) {
    let record = &session.record;
    let placement = session.plan.apart().label();
    let rates = rates(session.plan.scale);
    for (subject, broker) in record.names.iter().enumerate() {
        let of = |way: Way, rate: u64, figure: fn(&Outcome) -> Option<f64>| {
            record.spread(subject, &placement, &load(way, rate, 1.0).name, figure)
        };
        if rates.iter().all(|rate| of(WAYS[1], *rate, cpu).is_none()) {
            continue;
        }
        content.blocks.push(Block::Heading(format!("By content and by key, {broker}")));
        let groups = rates.iter().map(|rate| Group {
            label: format!("{} msg/s", significant(*rate as f64)),
            bars: WAYS.map(|way| of(way, *rate, cpu)).to_vec(),
        });
        let bars = BarPlot {
            title: format!(
                "Broker's CPU for each message by how it finds its subscriber, {broker}"
            ),
            label: "CPU per message".to_owned(),
            unit: Unit::Micros,
            names: WAYS.map(|way| way.name.to_owned()).to_vec(),
            groups: groups.collect(),
        };
        content.blocks.push(plot(bars.render()));
        if rates.len() > 1 {
            let kinds: [(&str, Figure); 2] = [("mean", mean), ("mean of the slowest 5 %", slowest)];
            let mut series = Vec::new();
            for (nth, way) in WAYS.iter().enumerate() {
                for (kind, (name, figure)) in kinds.iter().enumerate() {
                    let point = |rate: &u64| {
                        of(*way, *rate, *figure).map(|bar| (*rate as f64, bar.value.max(1.0)))
                    };
                    series.push(Series {
                        name: format!("{}, {name}", way.name),
                        look: Look { colour: nth, pattern: nth * kinds.len() + kind },
                        points: rates.iter().filter_map(point).collect(),
                    });
                }
            }
            series.retain(|series| series.points.len() > 1);
            let lines = LinePlot {
                title: format!("Latency by how messages find their subscribers, {broker}"),
                x: Axis::new("offered messages per second", Unit::Number).log(),
                y: Axis::new("latency", Unit::Micros).log(),
                series,
            };
            content.blocks.push(plot(lines.render()));
        }
        content.blocks.push(Block::Text(
            "Four publishers, four subscribers, 1 KiB, nothing stored or acknowledged. Topic keys: each subscriber has a key. 4 filters: each asks \
             for one symbol in the body, so that every message has one subscriber as well. 10,000 filters: nine in ten ask for one of 1,000 \
             symbols, all for ranges of price and quantity, and about one matches a message. The CPU is by published message."
                .to_owned(),
        ));
        for way in &WAYS[1..] {
            content.seen.extend(sentence(record, subject, &placement, rates, *way));
        }
    }
}

/// What a way costs beside the first, at the highest rate at which both kept up.
fn sentence(
    record: &Record,
    subject: usize,
    placement: &str,
    rates: &[u64],
    way: Way,
) -> Option<String> {
    let kept = |way: Way, rate: u64| {
        let name = load(way, rate, 1.0).name;
        let mut runs = record.runs_of(subject, placement, &name).peekable();
        runs.peek().is_some()
            && runs.all(|run| run.outcome.is_good() && keeps_up(&run.outcome, rate))
    };
    let rate = *rates.iter().rev().find(|rate| kept(WAYS[0], **rate) && kept(way, **rate))?;
    let of = |way: Way, figure: fn(&Outcome) -> Option<f64>| {
        let found = record.spread(subject, placement, &load(way, rate, 1.0).name, figure);
        found.map_or_else(|| "–".to_owned(), |bar| Unit::Micros.text(bar.value))
    };
    let first = WAYS[0];
    Some(format!(
        "{}, {} messages a second: {} took {} of the broker's CPU for a message at a mean latency of {}, {} for the slowest 5 %; {} \
         {}, {} and {}{}.",
        record.names[subject],
        significant(rate as f64),
        way.name,
        of(way, cpu),
        of(way, mean),
        of(way, slowest),
        first.name,
        of(first, cpu),
        of(first, mean),
        of(first, slowest),
        ratio_words(ratio(record, subject, placement, rate, way)),
    ))
}

/// The CPU of a way by that of the first one, round by round.
fn ratio(record: &Record, subject: usize, placement: &str, rate: u64, way: Way) -> Option<Bar> {
    let [own, first] = [way, WAYS[0]].map(|way| load(way, rate, 1.0).name);
    let ratios = record.runs_of(subject, placement, &own).filter_map(|run| {
        let mut others = record.runs_of(subject, placement, &first);
        let other = others.find(|other| other.round == run.round)?;
        Some(cpu(&run.outcome)? / cpu(&other.outcome).filter(|cpu| *cpu > 0.0)?)
    });
    spread(ratios.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;
    use crate::workload::{Interval, Latency};

    fn run(way: usize, round: usize, broker_micros: f64, received: f64) -> Run {
        let rate = RATES[0];
        let total = Interval {
            seconds: 1.0,
            sent: rate as f64,
            received,
            consumer_latency: Some(Latency { mean: 100.0, ..Latency::default() }),
            ..Interval::default()
        };
        Run {
            subject: 0,
            placement: "1 core".to_owned(),
            load: load(WAYS[way], rate, 1.0).name,
            round,
            outcome: Outcome { total, broker_micros: Some(broker_micros), ..Outcome::default() },
        }
    }

    #[test]
    fn filters_are_told_beside_keys_by_published_message() {
        // Half of the messages come to somebody: 3 µs by delivery are 1.5 by message.
        let runs = vec![
            run(0, 0, 1.0, 20_000.0),
            run(1, 0, 3.0, 10_000.0),
            run(0, 1, 1.0, 20_000.0),
            run(1, 1, 4.0, 10_000.0),
        ];
        let record = Record { names: vec!["lepus".to_owned()], runs, ..Record::default() };
        let text = sentence(&record, 0, "1 core", &RATES, WAYS[1]).unwrap();
        assert!(text.starts_with("lepus, 20,000 messages a second: 4 filters took"), "{text}");
        assert!(text.contains("by pair 1.75 times (1.50 to 2.00)"), "{text}");
        assert_eq!(sentence(&record, 0, "1 core", &RATES, WAYS[2]), None);
    }

    #[test]
    fn what_comes_to_nobody_is_no_backlog() {
        let mut outcome = run(2, 0, 1.0, 5_000.0).outcome;
        assert!(keeps_up(&outcome, RATES[0]));
        outcome.missing = 2_000.0;
        assert!(!keeps_up(&outcome, RATES[0]));
        outcome = Outcome { missing: 0.0, ..outcome };
        outcome.total.sent = 18_000.0;
        assert!(!keeps_up(&outcome, RATES[0]));
    }

    #[test]
    fn small_runs_have_one_rate() {
        assert_eq!(rates(0.002), [20_000]);
        assert_eq!(rates(0.2), RATES);
    }
}
