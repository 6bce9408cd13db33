//! Much that does nothing.

use super::churn::{OUTPUT, format};
use super::{PLACE, Shape, count, id, seconds, uris};
use crate::idle::IdlePlan;
use crate::job::Job;
use crate::option::{Choice, Group, OptionError, Options};
use std::time::Duration;

pub(super) const SHAPE: Shape = Shape {
    name: "idle",
    summary: "what connections, channels and queues cost that do nothing",
    lesson: "\
Opens connections, then channels on each, then queues on each channel, then waits for --time seconds.
Tells how long each kind took to open and, where the broker runs on this host and --pid names its
process, the CPU time and the resident memory that it took for one of each kind, and the CPU time that
it uses while nothing happens. Connections ask for no heartbeats. Queues are exclusive: they go with
their connections.

  lepus perf idle --connections 1000 --channels 10 --queues 1 --pid $(pidof lepus) -z 10",
    groups: &[PLACE, LOAD, OUTPUT],
    foreign: &[],
    plan,
};

const LOAD: Group = Group {
    title: "Load",
    choices: &[
        Choice::value("x", "connections", "N", "connections; default 100"),
        Choice::value("X", "channels", "N", "channels on each connection; default 1"),
        Choice::value("", "queues", "N", "queues on each channel; default 0"),
        Choice::value("", "pid", "PID", "the broker's process on this host"),
    ],
};

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    Ok(vec![Job::Idle(IdlePlan {
        id: id(options),
        uris: uris(options)?,
        connections: count(options, "connections", 100, 1..=1_000_000)?,
        channels: count(options, "channels", 1, 0..=65_535)? as u16,
        queues: count(options, "queues", 0, 0..=1_000_000)?,
        pid: options.number("pid")?,
        time: seconds(options, "time")?.unwrap_or(Duration::from_secs(5)),
        format: format(options)?,
    })])
}
