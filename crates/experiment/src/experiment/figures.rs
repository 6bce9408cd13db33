//! Parts that the experiments' reports share.

use crate::plot::{Axis, BarPlot, Group, LinePlot, Look, Series, Unit};
use crate::record::{Record, cell};
use crate::report::{Block, Table, plot};
use crate::workload::{Interval, Outcome};

/// Messages per second of every case, as bars with the range of the rounds.
pub(super) fn rate_bars(record: &Record, title: &str) -> Block {
    bars(record, title, "messages per second", Unit::Number, |outcome| Some(outcome.rate()))
}

/// A figure of every case as bars with the range of the rounds.
pub(super) fn bars(
    record: &Record,
    title: &str,
    label: &str,
    unit: Unit,
    figure: impl Fn(&Outcome) -> Option<f64>,
) -> Block {
    let cases = record.cases();
    let loads: Vec<&String> = cases.iter().map(|case| &case.1).collect();
    let one_load = loads.iter().all(|load| *load == loads[0]);
    let places: Vec<&String> = cases.iter().map(|case| &case.0).collect();
    let one_place = places.iter().all(|place| *place == places[0]);
    let groups = cases.iter().map(|(placement, load)| Group {
        label: match (one_load, one_place) {
            (true, _) => placement.replace(", ", "\n"),
            (false, true) => load.clone(),
            (false, false) => format!("{load}\n{placement}"),
        },
        bars: (0..record.names.len())
            .map(|subject| record.spread(subject, placement, load, &figure))
            .collect(),
    });
    let groups = groups.collect();
    let (title, label) = (title.to_owned(), label.to_owned());
    plot(BarPlot { title, label, unit, names: record.names.clone(), groups }.render())
}

/// A line for each broker and kind of figure: the broker gives the colour, the kind the pattern.
pub(super) fn lines(
    record: &Record,
    kinds: &[&str],
    points: impl Fn(usize, usize) -> Vec<(f64, f64)>,
) -> Vec<Series> {
    let mut series = Vec::new();
    for (subject, name) in record.names.iter().enumerate() {
        for (kind, text) in kinds.iter().enumerate() {
            let name = if text.is_empty() { name.clone() } else { format!("{name}, {text}") };
            let pattern = subject * kinds.len() + kind;
            let points = points(subject, kind);
            series.push(Series { name, look: Look { colour: subject, pattern }, points });
        }
    }
    series
}

/// A figure of an interval and its name.
pub(super) type Kind<'a> = (&'a str, fn(&Interval) -> Option<f64>);

/// One figure of each second of the first round of a case, for each broker and kind; of a run that was
/// over before its first second was told, the mean.
pub(super) fn over_time(
    record: &Record,
    (placement, load): (&str, &str),
    title: String,
    y: Axis,
    kinds: &[Kind<'_>],
) -> Block {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.0).collect();
    let log = y.log;
    let series = lines(record, &names, |subject, kind| {
        let run = record.runs_of(subject, placement, load).next();
        let intervals = run.map_or(&[][..], |run| match run.outcome.intervals.as_slice() {
            [] => core::slice::from_ref(&run.outcome.total),
            intervals => intervals,
        });
        let point = |interval: &Interval| Some((interval.at_seconds, kinds[kind].1(interval)?));
        intervals.iter().filter_map(point).filter(|point| !log || point.1 > 0.0).collect()
    });
    let x = Axis::new("time", Unit::Seconds);
    plot(LinePlot { title, x, y, series }.render())
}

/// Percentile curves of the first round of a case, a line for each broker.
pub(super) fn percentiles(
    record: &Record,
    (placement, load): (&str, &str),
    title: String,
) -> Block {
    let series = lines(record, &[""], |subject, _| {
        let run = record.runs_of(subject, placement, load).next();
        let latency = run.and_then(|run| run.outcome.total.consumer_latency.as_ref());
        let curve = latency.map_or(&[][..], |latency| latency.curve.as_slice());
        curve.iter().copied().filter(|point| point.0 < 1.0 && point.1 > 0.0).collect()
    });
    let x = Axis::new("share of messages that are at least as fast", Unit::Quantile);
    let y = Axis::new("latency", Unit::Micros).log();
    plot(LinePlot { title, x, y, series }.render())
}

/// What every case cost, a row for each broker.
pub(crate) fn cost_table(record: &Record) -> Block {
    let head = [
        "load",
        "CPUs",
        "broker",
        "messages per second",
        "broker's CPU per message",
        "tester's CPU per message",
        "tester's share of a core",
        "switches per 1,000 messages: voluntary",
        "forced",
        "resident, most",
        "memory by NUMA node",
    ];
    let mut rows = Vec::new();
    for (placement, load) in record.cases() {
        for (subject, name) in record.names.iter().enumerate() {
            if record.runs_of(subject, &placement, &load).next().is_none() {
                continue;
            }
            let of = |figure: &dyn Fn(&Outcome) -> Option<f64>, unit| {
                cell(record.spread(subject, &placement, &load, figure), unit)
            };
            rows.push(vec![
                load.clone(),
                placement.clone(),
                name.clone(),
                of(&|outcome| Some(outcome.rate()), Unit::Number),
                of(&|outcome| outcome.broker_micros, Unit::Micros),
                of(&|outcome| Some(outcome.tester_micros), Unit::Micros),
                tester(record, subject, &placement, &load),
                of(&|outcome| outcome.switches.map(|pair| pair.0 * 1e3), Unit::Number),
                of(&|outcome| outcome.switches.map(|pair| pair.1 * 1e3), Unit::Number),
                of(&|outcome| outcome.resident_bytes_max().map(|bytes| bytes as f64), Unit::Bytes),
                nodes(record, subject, &placement, &load),
            ]);
        }
    }
    Block::Table(Table { rows, ..Table::new(head) })
}

/// How much of a core the tester needed, and whether it was what was measured.
fn tester(record: &Record, subject: usize, placement: &str, load: &str) -> String {
    let share = record.spread(subject, placement, load, |outcome| Some(outcome.tester_share));
    let is_limit = record.runs_of(subject, placement, load).any(|run| run.outcome.is_tester_limit);
    let note = if is_limit { ", near its own limit" } else { "" };
    format!("{}{note}", cell(share, Unit::Share))
}

/// Shares of the last sample's pages by NUMA node.
fn nodes(record: &Record, subject: usize, placement: &str, load: &str) -> String {
    let runs = record.runs_of(subject, placement, load);
    let last = runs.filter_map(|run| {
        run.outcome
            .samples
            .iter()
            .rev()
            .map(|sample| &sample.node_pages)
            .find(|pages| !pages.is_empty())
    });
    let Some(pages) = last.last() else { return "–".to_owned() };
    let all: u64 = pages.iter().map(|(_, count)| count).sum();
    let share = |(node, count): &(u32, u64)| {
        format!("node {node}: {}", Unit::Share.text(*count as f64 / all.max(1) as f64))
    };
    pages.iter().map(share).collect::<Vec<_>>().join(", ")
}

/// A sentence on a case: the brokers' rates and, of two, their ratio.
pub(super) fn rate_sentence(record: &Record, placement: &str, load: &str, what: &str) -> String {
    let mut parts = Vec::new();
    for (subject, name) in record.names.iter().enumerate() {
        let rate = record.spread(subject, placement, load, |outcome| Some(outcome.rate()));
        let cost = record.spread(subject, placement, load, |outcome| outcome.broker_micros);
        let Some(rate) = rate else { continue };
        let cost = cost.map_or(String::new(), |cost| {
            format!(" at {} of its CPU each", Unit::Micros.text(cost.value))
        });
        let mut runs = record.runs_of(subject, placement, load);
        let limit = match runs.any(|run| run.outcome.is_tester_limit) {
            true => " (the load tester was near its own limit)",
            false => "",
        };
        let rate = Unit::Number.text(rate.value);
        parts.push(format!("{name} {rate} messages per second{cost}{limit}"));
    }
    if parts.is_empty() {
        return format!("{what}: no run went well.");
    }
    let ratio = record.ratio(placement, load, |outcome| Some(outcome.rate()));
    format!("{what}: {}{}.", parts.join("; "), ratio_words(ratio))
}

/// `; 3.0 times (2.9 to 3.1 over the pairs)`, or nothing.
pub(super) fn ratio_words(ratio: Option<crate::plot::Bar>) -> String {
    ratio.map_or(String::new(), |ratio| {
        let text = crate::plot::significant;
        format!(
            "; by pair {} times ({} to {})",
            text(ratio.value),
            text(ratio.low),
            text(ratio.high)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;

    /// The tester tells a line a second: a run may be over, or held up, before the first.
    #[test]
    fn a_run_without_a_line_of_the_tester_has_a_point_in_the_plot_over_time() {
        let total =
            Interval { at_seconds: 0.9, seconds: 0.9, received: 90.0, ..Interval::default() };
        let run = Run {
            subject: 0,
            placement: "1 core".to_owned(),
            load: "loop".to_owned(),
            round: 0,
            outcome: Outcome { total, ..Outcome::default() },
        };
        let record =
            Record { names: vec!["lepus".to_owned()], runs: vec![run], ..Record::default() };
        let axis = Axis::new("messages per second", Unit::Number);
        let kinds: [Kind<'_>; 1] = [("", |interval| Some(interval.received / interval.seconds))];
        let block = over_time(&record, ("1 core", "loop"), "rate".to_owned(), axis, &kinds);
        let Block::Plot(svg) = block else { panic!("{block:?}") };
        assert!(svg.contains("lepus: 100 at 0.900 s"), "{svg}");
        assert!(!svg.contains("no figures"), "{svg}");
    }
}
