//! E5: one stream through a broker on one core and on more.

use super::figures::{cost_table, lines, rate_bars, rate_sentence};
use super::{Experiment, Work};
use crate::plot::{Axis, LinePlot, Unit};
use crate::record::Record;
use crate::report::{Block, Content, plot};
use crate::session::Session;
use crate::subject::Placement;
use crate::workload::{Load, Outcome};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "feed",
    title: "feed: is the broker faster on one core than on several?",
    asks: "A producer sends numbered messages of 100 bytes, a consumer checks that each arrives intact and in order. A report \
           of 2010 measured 790,000 messages a second with the server on one CPU, 530,000 on two, 270,000 on six. How does \
           throughput follow the broker's cores here, and did everything arrive?",
    is_checked: true,
    work: Work::Brokers { measure, describe },
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
    // Of what was on its way when somebody ended it nothing is known.
    let whole = || record.runs.iter().filter(|run| !run.outcome.is_cut_short);
    let sum = |of: fn(&Outcome) -> f64| -> f64 { whole().map(|run| of(&run.outcome)).sum() };
    let (sent, arrived) = (sum(|outcome| outcome.total.sent), sum(Outcome::arrived));
    let failed = record.runs.iter().filter(|run| !run.outcome.errors.is_empty()).count();
    let text = crate::plot::significant;
    let mut out = match gaps.first() {
        None if whole().next().is_none() => {
            return "No run came to its end: whether all messages arrived is not known.".to_owned();
        }
        None if arrived >= sent && failed == 0 => {
            return format!("All of {} messages arrived intact and in order.", text(sent));
        }
        // Rounded, some that are missing would not be seen.
        _ => format!("{arrived:.0} of {sent:.0} messages arrived."),
    };
    if failed > 0 {
        out.push_str(&format!(" In {failed} of {} runs there were errors.", record.runs.len()));
    }
    if let Some(gap) = gaps.first() {
        out.push_str(&format!(" Not everything arrived as it was sent: first gap of {gap}."));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;
    use crate::workload::Interval;

    #[test]
    fn what_did_not_arrive_is_told() {
        let outcome = |sent, received| Outcome {
            total: Interval { sent, received, ..Interval::default() },
            ..Outcome::default()
        };
        let said = |outcome: Outcome| {
            let holds = EXPERIMENT.holds(&outcome);
            let (placement, load) = ("1 core".to_owned(), LOAD.to_owned());
            let run = Run { subject: 0, placement, load, round: 0, outcome };
            let record =
                Record { names: vec!["x".to_owned()], runs: vec![run], ..Record::default() };
            (checked(&record), holds)
        };
        let (text, holds) = said(outcome(1_000.0, 1_000.0));
        assert!(text.starts_with("All of 1,000 messages") && holds, "{text}");
        let (text, holds) = said(outcome(1_000_000.0, 999_999.0));
        assert!(text.starts_with("999999 of 1000000 messages") && !holds, "{text}");
        let lost = Outcome { missing: 3.0, ..outcome(10.0, 10.0) };
        assert_eq!(said(lost.clone()), ("7 of 10 messages arrived.".to_owned(), false));
        let (text, holds) = said(Outcome { is_cut_short: true, ..lost });
        assert!(text.starts_with("No run came to its end") && holds, "{text}");
        let failed = Outcome { errors: vec!["reset".to_owned()], ..outcome(10.0, 10.0) };
        let (text, holds) = said(failed);
        assert!(text.contains("In 1 of 1 runs there were errors") && !holds, "{text}");
        let gap = Outcome { gap: Some("7 is missing".to_owned()), ..outcome(10.0, 9.0) };
        let (text, holds) = said(gap);
        assert!(text.contains("9 of 10") && text.contains("7 is missing") && !holds, "{text}");
    }
}
