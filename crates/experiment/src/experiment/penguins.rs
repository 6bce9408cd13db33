//! E1: many channels that each republish what they receive.

use super::figures::{bars, cost_table, over_time, rate_bars, rate_sentence};
use super::{Experiment, Work};
use crate::plot::{Axis, Unit};
use crate::record::{Record, cell};
use crate::report::{Block, Content};
use crate::session::Session;
use crate::workload::Load;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "penguins",
    title: "penguins: does a broker get slower on more cores?",
    asks: "9 clients with 500 channels each, every channel with a queue of its own; each publishes 11 bytes and \
           publishes again when it receives them. A report of 2011 found a machine of 24 real cores almost half as fast \
           as one of 12: each message crossed schedulers and NUMA nodes at nearly every step. How many messages a \
           second pass, what do they cost, and how many stay on one core from publish to deliver?",
    is_checked: false,
    work: Work::Brokers { measure, describe },
};

const LOAD: &str = "loop";
const SECONDS: f64 = 60.0;
const CHANNELS: u64 = 500;

fn measure(session: &mut Session<'_>) {
    let plan = session.plan;
    let seconds = plan.seconds(SECONDS);
    let channels = plan.count(CHANNELS, 5).to_string();
    let words = ["loop", "--connections", "9", "--channels", &channels, "-s", "11"];
    session.sweep(Load::timed(LOAD, &words, 11, seconds));
}

fn describe(session: &Session<'_>) -> Content {
    let record = &session.record;
    let mut content = Content::default();
    for (placement, load) in record.cases() {
        let what = format!("On {placement}");
        content.seen.push(rate_sentence(record, &placement, &load, &what));
    }
    content.seen.extend(stayed(record));
    content.blocks.push(rate_bars(record, "Messages per second by the broker's CPUs"));
    let cost = "Broker's CPU per message by the broker's CPUs";
    let micros = Unit::Micros;
    content
        .blocks
        .push(bars(record, cost, "CPU per message", micros, |outcome| outcome.broker_micros));
    for (placement, load) in record.cases() {
        let title = format!("Messages per second over time, {placement}");
        let y = Axis::new("messages per second", Unit::Number);
        let case = (placement.as_str(), load.as_str());
        content.blocks.push(over_time(
            record,
            case,
            title,
            y,
            &[("", |interval| {
                (interval.seconds > 0.0).then(|| interval.received / interval.seconds)
            })],
        ));
    }
    content.blocks.push(Block::Heading("What a message cost".to_owned()));
    content.blocks.push(cost_table(record));
    content
}

/// Sentences on how many messages stayed on their shard, where a broker tells.
fn stayed(record: &Record) -> Vec<String> {
    let mut sentences = Vec::new();
    for (placement, load) in record.cases() {
        for (subject, name) in record.names.iter().enumerate() {
            let share = record.spread(subject, &placement, &load, |outcome| {
                outcome.locality.and_then(crate::metrics::Locality::share)
            });
            if share.is_some() {
                let share = cell(share, Unit::Share);
                sentences.push(format!(
                    "{name} on {placement}: {share} of all enqueues and deliveries stayed on the shard they came in on."
                ));
            }
        }
    }
    sentences
}
