//! E5: one stream through a broker on one core and on more.

use super::Experiment;
use super::figures::{cost_table, lines, rate_bars, rate_sentence};
use crate::plot::{Axis, LinePlot, Unit};
use crate::record::Record;
use crate::report::{Block, Content, plot};
use crate::session::Session;
use crate::subject::Placement;
use crate::workload::Load;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "feed",
    title: "feed: is the broker faster on one core than on several?",
    asks: "A producer sends numbered messages of 100 bytes, a consumer checks that each arrives intact and in order. A report \
           of 2010 measured 790,000 messages a second with the server on one CPU, 530,000 on two, 270,000 on six. How does \
           throughput follow the broker's cores here, and did everything arrive?",
    measure,
    describe,
};

const LOAD: &str = "feed";
const SECONDS: f64 = 30.0;

fn measure(session: &mut Session<'_>) {
    let plan = session.plan;
    let seconds = plan.seconds(SECONDS);
    session.sweep(Load::timed(LOAD, &["feed", "-s", "100"], 100, seconds));
}

fn describe(session: &Session<'_>) -> Content {
    let record = &session.record;
    let mut content = Content::default();
    for (placement, load) in record.cases() {
        let what = format!("On {placement}");
        content.seen.push(rate_sentence(record, &placement, &load, &what));
    }
    content.seen.push(checked(record));
    content.blocks.push(rate_bars(record, "Messages per second by the broker's CPUs"));
    let placements = session.plan.sweep();
    if placements.len() > 2 {
        let series = lines(record, &[""], |subject, _| {
            let point = |placement: &Placement| {
                let rate = record
                    .spread(subject, &placement.label(), LOAD, |outcome| Some(outcome.rate()))?;
                Some((placement.broker.len() as f64, rate.value))
            };
            placements.iter().filter_map(point).collect()
        });
        let title = "Throughput by number of cores".to_owned();
        let x = Axis::new("cores of the broker", Unit::Number);
        let y = Axis::new("messages per second", Unit::Number);
        content.blocks.push(plot(LinePlot { title, x, y, series }.render()));
    }
    content.blocks.push(Block::Heading("What a message cost".to_owned()));
    content.blocks.push(cost_table(record));
    content
}

/// What the checks of content and order found.
fn checked(record: &Record) -> String {
    let gaps: Vec<String> = record
        .runs
        .iter()
        .filter_map(|run| {
            let name = &record.names[run.subject];
            let gap = run.outcome.gap.as_ref()?;
            Some(format!("{name}, {}, round {}: {gap}", run.placement, run.round + 1))
        })
        .collect();
    let messages: f64 = record.runs.iter().map(|run| run.outcome.total.received).sum();
    match gaps.first() {
        None => format!(
            "All of {} messages arrived intact and in order.",
            crate::plot::significant(messages)
        ),
        Some(gap) => format!("Not everything arrived as it was sent: first gap of {gap}."),
    }
}
