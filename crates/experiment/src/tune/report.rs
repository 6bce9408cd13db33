//! What tuning says: a table for the terminal, and the page.

use super::course::{Course, expected_seconds, slowest};
use super::judge::{Advice, Reason, advise, compare};
use super::variant::Variant;
use crate::experiment::figures::cost_table;
use crate::plot::{Axis, Bar, BarPlot, Group, LinePlot, Look, Series, Unit};
use crate::report::{Block, Content, Table, plot};
use crate::statistics::{Confidence, Estimate, mean};
use crate::workload::Outcome;
use serde_json::{Value, json};

/// More settings than fit beside each other are bars no more; the table has them.
const BARS_MAX: usize = 10;

/// What was found of one setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Messages per second with their interval.
    pub rate: Option<Estimate>,
    /// The mean of the slowest 5 %, in microseconds, with its interval.
    pub slowest: Option<Estimate>,
    /// Its score by that of what `lepus` does by itself.
    pub ratio: Option<Estimate>,
    /// After how many rounds it was given up.
    pub given_up: Option<usize>,
    /// Whether the load tester was near its own limit.
    pub is_tester_limit: bool,
}

/// The lines of all settings, in their order.
#[must_use]
pub fn lines(course: &Course<'_>) -> Vec<Line> {
    let line = |(at, variant): (usize, &Variant)| {
        let outcomes: Vec<&Outcome> = course
            .record
            .runs
            .iter()
            .filter(|run| run.placement == variant.name)
            .map(|run| &run.outcome)
            .collect();
        let rates: Vec<f64> = outcomes.iter().map(|outcome| outcome.rate()).collect();
        let slow: Vec<f64> = outcomes.iter().filter_map(|outcome| slowest(outcome)).collect();
        Line {
            rate: mean(&rates, Confidence::P95),
            slowest: mean(&slow, Confidence::P95),
            ratio: match at {
                0 => None,
                _ => compare(&course.scores[at], &course.scores[0], Confidence::P95),
            },
            given_up: course.given_up.iter().find(|given| given.0 == at).map(|given| given.1),
            is_tester_limit: outcomes.iter().any(|outcome| outcome.is_tester_limit),
        }
    };
    course.variants.iter().enumerate().map(line).collect()
}

/// What is recommended.
#[must_use]
pub fn advice(course: &Course<'_>) -> Option<Advice> {
    course.judged(advise)
}

fn estimate(value: Option<Estimate>, unit: Unit) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |of| {
            format!(
                "{} ({} to {})",
                unit.text(of.value),
                unit.text(of.low.max(0.0)),
                unit.text(of.high)
            )
        },
    )
}

fn ratio(value: Option<Estimate>) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |of| format!("{:.3} ({:.3} to {:.3})", of.value, of.low, of.high),
    )
}

const HEAD: [&str; 6] =
    ["setting", "CPUs", "messages per second", "slowest 5 %", "by the first, per round", "notes"];

fn settings(course: &Course<'_>, lines: &[Line]) -> Table {
    let row = |(variant, line): (&Variant, &Line)| {
        let mut notes = Vec::new();
        if variant.is_shared {
            notes.push("shares CPUs with the load".to_owned());
        }
        if let Some(rounds) = line.given_up {
            notes.push(format!("given up after {rounds} rounds"));
        }
        if line.is_tester_limit {
            notes.push("the load tester was near its own limit".to_owned());
        }
        vec![
            variant.name.clone(),
            variant.cpus.to_string(),
            estimate(line.rate, Unit::Number),
            estimate(line.slowest, Unit::Micros),
            ratio(line.ratio),
            notes.join("; "),
        ]
    };
    let rows = course.variants.iter().zip(lines).map(row).collect();
    Table { rows, ..Table::new(HEAD) }
}

/// The table for a terminal, with its head.
#[must_use]
pub fn table(course: &Course<'_>) -> String {
    settings(course, &lines(course)).text()
}

/// What would be tried, and for how long.
#[must_use]
pub fn plan_text(plan: &super::call::Plan, variants: &[Variant]) -> String {
    let head = ["setting", "shards", "placement", "CPUs of shards", "CPUs of the load"];
    let mut table = Table::new(head);
    for variant in variants {
        let shared = if variant.is_shared { ", shared with shards" } else { "" };
        let load: Vec<String> = variant.load.iter().map(usize::to_string).collect();
        table.rows.push(vec![
            variant.name.clone(),
            variant.shards.to_string(),
            variant.placement.to_string(),
            variant.cpus.to_string(),
            format!("{}{shared}", load.join(",")),
        ]);
    }
    let minutes = (expected_seconds(plan, variants) / 60.0).ceil();
    format!(
        "{}{} settings, {} rounds of {} s each after {} s of warming up, with `lepus perf {}`, then as many fresh \
         rounds of those that seem best: at most about {minutes} min\n",
        table.text(),
        variants.len(),
        plan.rounds,
        plan.seconds,
        plan.warm_up,
        plan.load.join(" "),
    )
}

/// The recommendation in words.
#[must_use]
pub fn advice_text(course: &Course<'_>, advice: Option<Advice>) -> String {
    let Some(advice) = advice else {
        return "Nothing was measured, nothing is recommended.".to_owned();
    };
    let choice = &course.variants[advice.choice];
    let best = &course.variants[advice.best].name;
    let shards = match choice.is_default {
        true => "auto".to_owned(),
        false => choice.shards.to_string(),
    };
    let why = match advice.reason {
        Reason::Alone => "there was nothing to compare it with".to_owned(),
        Reason::NothingBetter(other) => format!(
            "what lepus does by itself; nothing is shown to be better: the best other is at {} times of it",
            ratio(Some(other))
        ),
        Reason::NotConfirmed(other) => format!(
            "what lepus does by itself; {best} seemed better and is not shown to be: at {} times of it",
            ratio(Some(other))
        ),
        Reason::Better(gain) => format!(
            "in fresh rounds it is at {} times of what lepus does by itself",
            ratio(Some(gain))
        ),
        Reason::Fewer(part) => format!(
            "it is at {} times of the best, {best}, with {} shards in place of {}",
            ratio(Some(part)),
            choice.shards,
            course.variants[advice.best].shards
        ),
    };
    format!("Recommended: shards = {shards}, placement = {}; {why}.", choice.placement)
}

/// What the page says.
#[must_use]
pub fn content(course: &Course<'_>, advice: Option<Advice>) -> Content {
    let lines = lines(course);
    let mut content = Content::default();
    content.seen.push(advice_text(course, advice));
    content.seen.extend(warnings(course, &lines));
    let rate = |line: &Line| line.rate;
    let slow = |line: &Line| line.slowest;
    for (title, label, unit, of) in [
        (
            "Throughput by number of cores",
            "messages per second",
            Unit::Number,
            &rate as &dyn Fn(&Line) -> _,
        ),
        (
            "Latency of the slowest 5 % by number of cores",
            "mean of the slowest 5 %",
            Unit::Micros,
            &slow,
        ),
    ] {
        let y = Axis::new(label, unit);
        content.blocks.push(curve(course, &lines, title, y, of));
    }
    if course.variants.len() <= BARS_MAX {
        content.blocks.push(bars(course, &lines));
    }
    content.blocks.push(Block::Heading("All settings".to_owned()));
    content.blocks.push(Block::Table(settings(course, &lines)));
    content.blocks.push(Block::Text(
        "In brackets: 95 % confidence intervals by Student's t distribution. Ratios are means over rounds of the ratio \
         of two runs that were neighbours in time; for latency a ratio above 1 is a shorter one."
            .to_owned(),
    ));
    content.blocks.push(Block::Heading("What a message cost".to_owned()));
    content.blocks.push(cost_table(&course.record));
    content
}

/// What makes the figures less than they seem.
#[must_use]
pub fn warnings(course: &Course<'_>, lines: &[Line]) -> Vec<String> {
    let mut out = Vec::new();
    let shared: Vec<&str> = course
        .variants
        .iter()
        .filter(|variant| variant.is_shared)
        .map(|variant| variant.name.as_str())
        .collect();
    if !shared.is_empty() {
        out.push(format!(
            "There are too few CPUs for broker and load apart with: {}. The load has {} of them there too, so that the \
             broker alone would reach more than these figures.",
            shared.join("; "),
            course.variants[0].load.len()
        ));
    }
    let limited = lines.iter().filter(|line| line.is_tester_limit).count();
    if limited > 0 {
        out.push(format!(
            "With {limited} of {} settings the load tester was near its own limit: differences between them may be \
             hidden. More of them (--testers), or a load that asks more of the broker, would show them.",
            lines.len()
        ));
    }
    out
}

fn curve(
    course: &Course<'_>,
    lines: &[Line],
    title: &str,
    y: Axis,
    of: &dyn Fn(&Line) -> Option<Estimate>,
) -> Block {
    let mut on_curve: Vec<(f64, Estimate)> = Vec::new();
    let mut others = Vec::new();
    for (variant, line) in course.variants.iter().zip(lines) {
        let Some(value) = of(line) else { continue };
        let cores = variant.shards as f64;
        if variant.is_of_curve {
            on_curve.push((cores, value));
        } else {
            others.push((variant.name.clone(), (cores, value.value)));
        }
    }
    on_curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    let points = |of: fn(&Estimate) -> f64| -> Vec<(f64, f64)> {
        on_curve.iter().map(|(cores, value)| (*cores, of(value))).collect()
    };
    let line = |name: &str, pattern, points| Series {
        name: name.to_owned(),
        look: Look { colour: 0, pattern },
        points,
    };
    let mut series = vec![
        line("by number of cores", 0, points(|value| value.value)),
        line("95 % interval, lower limit", 1, points(|value| value.low.max(0.0))),
        line("upper limit", 2, points(|value| value.high)),
    ];
    for (at, (name, point)) in others.into_iter().enumerate() {
        series.push(Series { name, look: Look::nth(at + 3), points: vec![point] });
    }
    let x = Axis::new("shards", Unit::Number);
    plot(LinePlot { title: title.to_owned(), x, y, series }.render())
}

fn bars(course: &Course<'_>, lines: &[Line]) -> Block {
    let group = |(variant, line): (&Variant, &Line)| {
        let bar = |of: Estimate| Bar { value: of.value, low: of.low.max(0.0), high: of.high };
        Group { label: variant.name.replace(" = ", "\n"), bars: vec![line.rate.map(bar)] }
    };
    let title = "Messages per second by setting, with 95 % intervals".to_owned();
    let groups = course.variants.iter().zip(lines).map(group).collect();
    let label = "messages per second".to_owned();
    let names = vec!["lepus".to_owned()];
    plot(BarPlot { title, label, unit: Unit::Number, names, groups }.render())
}

/// The machine-readable result.
#[must_use]
pub fn result(course: &Course<'_>, advice: Option<Advice>) -> Value {
    let of = |value: Option<Estimate>| {
        value.map(|of| json!({"mean": of.value, "low": of.low, "high": of.high, "count": of.count}))
    };
    let lines = lines(course);
    let setting = |(variant, line): (&Variant, &Line)| {
        json!({
            "name": variant.name,
            "shards": variant.shards,
            "placement": variant.placement.to_string(),
            "cpus": variant.cpus.to_string(),
            "load_cpus": variant.load,
            "shares_cpus_with_load": variant.is_shared,
            "messages_per_second": of(line.rate),
            "slowest_5_us": of(line.slowest),
            "ratio_to_first": of(line.ratio),
            "given_up_after_rounds": line.given_up,
            "tester_near_ceiling": line.is_tester_limit,
        })
    };
    let choice = advice.map(|advice| {
        let variant = &course.variants[advice.choice];
        json!({
            "name": variant.name,
            "shards": if variant.is_default { json!("auto") } else { json!(variant.shards) },
            "placement": variant.placement.to_string(),
            "best": course.variants[advice.best].name,
        })
    });
    json!({
        "brokers": course.record.cast.json(),
        "load": course.record.cast.loads(),
        "rounds": course.plan.rounds,
        "settings": course.variants.iter().zip(&lines).map(setting).collect::<Vec<_>>(),
        "recommended": choice,
        "record": course.record.json(),
    })
}
