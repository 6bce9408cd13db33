//! E4: the load tester's view of one queue and of many.

use super::figures::{cost_table, over_time, percentiles, rate_bars, rate_sentence};
use super::{Experiment, Work};
use crate::plot::{Axis, Unit};
use crate::profile;
use crate::record::Profiled;
use crate::report::{Block, Content, Table};
use crate::session::Session;
use crate::subject::{Choice, Kind};
use crate::workload::Load;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "jit",
    title: "jit: one queue and many, seen from the load tester",
    asks: "One producer and one consumer on one queue, then 150 producers and 300 consumers on 100 queues: 12-byte \
           messages, mandatory, at most 100 publishes unconfirmed, prefetch 300. A report of 2020 compared a broker \
           interpreted (24,354 and 37,489 messages a second) and compiled (36,620 and 47,626). How many messages a second \
           pass, and how long do consumers and publishers wait, second by second?",
    is_checked: false,
    work: Work::Brokers { measure, describe },
};

const SECONDS: f64 = 60.0;
const FLAGS: [&str; 8] = ["-f", "mandatory", "-q", "300", "-c", "100", "-s", "12"];
const SINGLE: [&str; 7] = ["throughput", "-x", "1", "-y", "1", "-u", "lepus-jit"];
const MANY: [&str; 11] = [
    "throughput",
    "-x",
    "150",
    "-y",
    "300",
    "--queue-pattern",
    "perf-test-%d",
    "--queue-pattern-from",
    "1",
    "--queue-pattern-to",
    "100",
];

fn measure(session: &mut Session<'_>) {
    let seconds = session.plan.seconds(SECONDS);
    let load =
        |name: &str, words: &[&str]| Load::timed(name, &[words, &FLAGS].concat(), 12, seconds);
    let loads = [load("one queue", &SINGLE), load("100 queues", &MANY)];
    let placement = session.plan.apart();
    session.expect_turns(1, &loads);
    let ours =
        session.plan.choices.iter().filter(|choice| **choice == Choice::Ours(Kind::Lepus)).count();
    session.progress.expect(ours as f64 * loads.iter().map(profile::seconds_expected).sum::<f64>());
    session.take_turns(&placement, &loads);
    session.record.profiles = profile::take(session, &placement, &loads);
}

fn describe(session: &Session<'_>) -> Content {
    let record = &session.record;
    let mut content = Content::default();
    content.blocks.push(rate_bars(record, "Messages per second"));
    for (placement, load) in record.cases() {
        let case = (placement.as_str(), load.as_str());
        content.seen.push(rate_sentence(record, &placement, &load, &capital(&load)));
        content.blocks.push(Block::Heading(capital(&load)));
        let rate = Axis::new("messages per second", Unit::Number);
        let title = format!("{}: messages per second over time", capital(&load));
        content.blocks.push(over_time(
            record,
            case,
            title,
            rate,
            &[("", |interval| {
                (interval.seconds > 0.0).then(|| interval.received / interval.seconds)
            })],
        ));
        let wait = || Axis::new("latency", Unit::Micros).log();
        let title = format!("{}: from publish to delivery, second by second", capital(&load));
        content.blocks.push(over_time(
            record,
            case,
            title,
            wait(),
            &[
                ("median", |interval| Some(interval.consumer_latency.as_ref()?.p50)),
                ("95 %", |interval| Some(interval.consumer_latency.as_ref()?.p95)),
                ("99 %", |interval| Some(interval.consumer_latency.as_ref()?.p99)),
            ],
        ));
        let title = format!("{}: from publish to confirm, second by second", capital(&load));
        content.blocks.push(over_time(
            record,
            case,
            title,
            wait(),
            &[
                ("median", |interval| Some(interval.confirm_latency.as_ref()?.p50)),
                ("95 %", |interval| Some(interval.confirm_latency.as_ref()?.p95)),
                ("99 %", |interval| Some(interval.confirm_latency.as_ref()?.p99)),
            ],
        ));
        let title = format!("{}: latency from publish to delivery by percentile", capital(&load));
        content.blocks.push(percentiles(record, case, title));
    }
    content.blocks.push(Block::Heading("What a message cost".to_owned()));
    content.blocks.push(cost_table(record));
    for profile in &record.profiles {
        show_profile(&mut content, profile);
    }
    content
}

/// The phases in a sentence, the flame graph, and the functions that cost most.
fn show_profile(content: &mut Content, profile: &Profiled) {
    let Profiled { name, load, .. } = profile;
    let phases = profile.phases.iter().filter(|(_, percent)| *percent >= 0.5);
    let phases: Vec<String> =
        phases.map(|(phase, percent)| format!("{phase} {percent:.0} %")).collect();
    content.seen.push(format!(
        "{}: the shards of {name} spent their CPU time on {}.",
        capital(load),
        phases.join(", ")
    ));
    content.blocks.push(Block::Heading(format!("Where {name} spent its CPU time: {load}")));
    content.blocks.push(Block::Plot(profile.svg.clone()));
    let row = |(name, own, accumulated): &(String, f64, f64)| {
        vec![name.clone(), format!("{own:.1}"), format!("{accumulated:.1}")]
    };
    let head = ["function", "own time, %", "with what it called, %"];
    let rows = profile.functions.iter().map(row).collect();
    content.blocks.push(Block::Table(Table { rows, ..Table::new(head) }));
    let text = format!("A run of its own. Not seen: {}", profile.not_seen.join(" "));
    content.blocks.push(Block::Text(text));
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
