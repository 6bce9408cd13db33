//! E3, as far as it exists: latency by offered rate, with the log and without, and what content filters cost beside keys.

mod content;

use super::figures::{cost_table, lines};
use super::{Experiment, Work};
use crate::plot::{Axis, LinePlot, Unit, significant};
use crate::record::Record;
use crate::report::{Block, Content, plot};
use crate::session::Session;
use crate::subject::Subject;
use crate::workload::{Latency, Load, Outcome};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ticker",
    title: "ticker: latency by offered rate, log on and off; filters beside keys",
    asks: "A report of 2014 judged an engine for market data by the mean latency of its 1 KiB messages and by the mean of \
           the slowest 5 %: before tuning that rose steeply past 50,000 messages a second. Here 4 publishers offer \
           a fixed rate to 4 consumers, whether the broker keeps up or not; what a slow moment delays counts as \
           waiting (no coordinated omission). At which rate does the slow tail rise, and what does the log cost? \
           Subscriptions of that engine were conditions over the content of a message: what do such filters cost beside topic keys? \
           (The database of that report comes later.)",
    is_checked: false,
    work: Work::Brokers { measure, describe },
};

const SECONDS: f64 = 20.0;
const PUBLISHERS: u64 = 4;
const RATES: [u64; 9] =
    [1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];
const LOGS: [&str; 2] = ["log off", "log on"];
/// A broker does not keep up when its backlog at the end is longer than in the middle of the run, by more than the
/// load of so many seconds: what is under way changes from moment to moment.
const GROWTH_SECONDS_MAX: f64 = 0.05;

fn load(log: usize, rate: u64, seconds: f64) -> Load {
    let each = (rate / PUBLISHERS).to_string();
    let mut words = vec![
        "throughput",
        "-x",
        "4",
        "-y",
        "4",
        "--queue-pattern",
        "lepus-ticker-%d",
        "--queue-pattern-from",
        "1",
        "--queue-pattern-to",
        "4",
        "-s",
        "1024",
        "-q",
        "1000",
        "-r",
        &each,
    ];
    if log == 1 {
        words.extend(["-f", "persistent"]);
    }
    let name = format!("{}, {} msg/s", LOGS[log], significant(rate as f64));
    Load::timed(&name, &words, 1_024, seconds)
}

fn measure(session: &mut Session<'_>) {
    let seconds = session.plan.seconds(SECONDS);
    let count = session.plan.choices.len();
    session.progress.expect((LOGS.len() * RATES.len() * count) as f64 * seconds);
    let placement = session.plan.apart();
    for log in 0..LOGS.len() {
        let subjects: Vec<Option<Subject>> =
            (0..count).map(|number| session.start(number, &placement, true)).collect();
        let mut is_keeping_up = vec![true; count];
        for rate in RATES {
            for (number, subject) in subjects.iter().enumerate() {
                let load = load(log, rate, seconds);
                let Some(subject) = subject.as_ref().filter(|_| is_keeping_up[number]) else {
                    session.progress.expect(-seconds);
                    continue;
                };
                let went_well = session.load((number, subject), &placement, &load, 0);
                let last = session.record.runs.last();
                is_keeping_up[number] =
                    went_well && last.is_some_and(|run| keeps_up(&run.outcome, rate));
            }
        }
    }
    content::measure(session);
}

fn keeps_up(outcome: &Outcome, rate: u64) -> bool {
    let rate = rate as f64;
    outcome.missing <= rate * GROWTH_SECONDS_MAX
        && outcome.backlog_growth(rate) <= GROWTH_SECONDS_MAX
}

fn describe(session: &Session<'_>) -> Content {
    let record = &session.record;
    let placement = session.plan.apart().label();
    let mut content = Content::default();
    for (log, name) in LOGS.iter().enumerate() {
        let figures: [fn(&Latency) -> f64; 2] =
            [|latency| latency.mean, |latency| latency.mean_slowest_5];
        let series = lines(record, &["mean", "mean of the slowest 5 %"], |subject, kind| {
            let point = |rate: &u64| {
                let latency = latency(record, subject, &placement, log, *rate)?;
                Some((*rate as f64, figures[kind](latency).max(1.0)))
            };
            RATES.iter().filter_map(point).collect()
        });
        let title = format!("Latency from publish to delivery by offered rate, {name}");
        let x = Axis::new("offered messages per second", Unit::Number).log();
        let y = Axis::new("latency", Unit::Micros).log();
        content.blocks.push(plot(LinePlot { title, x, y, series }.render()));
        for (subject, broker) in record.names.iter().enumerate() {
            content.seen.extend(
                sentence(record, subject, &placement, log)
                    .map(|text| format!("{broker}, {name}: {text}")),
            );
        }
    }
    content::describe(session, &mut content);
    content.blocks.push(Block::Heading("Every rate".to_owned()));
    content.blocks.push(Block::Text(
        "With log on and off one run for each rate, until a broker's backlog grows from the middle of a run to its end."
            .to_owned(),
    ));
    content.blocks.push(cost_table(record));
    content
}

fn latency<'a>(
    record: &'a Record,
    subject: usize,
    placement: &str,
    log: usize,
    rate: u64,
) -> Option<&'a Latency> {
    let name = load(log, rate, 1.0).name;
    let run = record
        .runs
        .iter()
        .find(|run| run.subject == subject && run.placement == placement && run.load == name)?;
    run.outcome.total.consumer_latency.as_ref()
}

/// The highest rate that a broker kept up with, and the latencies there.
fn sentence(record: &Record, subject: usize, placement: &str, log: usize) -> Option<String> {
    let kept = |rate: &&u64| {
        let name = load(log, **rate, 1.0).name;
        let mut runs = record.runs_of(subject, placement, &name).peekable();
        runs.peek().is_some() && runs.all(|run| keeps_up(&run.outcome, **rate))
    };
    let Some(rate) = RATES.iter().rev().find(kept) else {
        return record
            .runs
            .iter()
            .any(|run| run.subject == subject && run.load.starts_with(LOGS[log]))
            .then(|| {
                format!("did not keep up with {} messages a second.", significant(RATES[0] as f64))
            });
    };
    let found = latency(record, subject, placement, log, *rate)?;
    Some(format!(
        "kept up with {} messages a second at a mean latency of {}, {} for the slowest 5 %.",
        significant(*rate as f64),
        Unit::Micros.text(found.mean),
        Unit::Micros.text(found.mean_slowest_5)
    ))
}
