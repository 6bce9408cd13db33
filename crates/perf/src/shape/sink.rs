//! The other end of a measurement of the tester itself.

use super::{BODY_BYTES_MAX, Shape, count};
use crate::job::Job;
use crate::option::{Choice, Group, OptionError, Options};

pub(super) const SHAPE: Shape = Shape {
    name: "sink",
    summary: "no load: a peer for measuring the tester, which takes and feeds as fast as it can",
    lesson: "\
Listens on this host, agrees to everything, throws publishes away, confirms them, and sends every consumer
an endless stream of made-up messages, whatever its prefetch. What a tester reaches against it is the
tester's own ceiling. `throughput --ceiling` and `fanout --ceiling` do this by themselves.

  lepus perf sink --port 5679 &
  lepus perf throughput -y 0 -c 100 -z 5 -h amqp://localhost:5679",
    groups: &[LOAD],
    foreign: &[],
    plan,
};

const LOAD: Group = Group {
    title: "Sink",
    choices: &[
        Choice::value("", "port", "PORT", "TCP port; default 5679"),
        Choice::value("s", "size", "BYTES", "size of the bodies that it sends; default 12"),
    ],
};

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    Ok(vec![Job::Sink {
        port: count(options, "port", 5_679, 1..=65_535)? as u16,
        body_bytes: count(options, "size", 12, 0..=BODY_BYTES_MAX)? as usize,
    }])
}
