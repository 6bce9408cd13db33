//! Numbered messages from producers to consumers that check every one.

use super::fanout::Fanout;
use super::{CONNECTION, OUTPUT, Shape, body_bytes_checked, count};
use crate::body::Layout;
use crate::job::Job;
use crate::option::{Choice, Group, OptionError, Options};

pub(super) const SHAPE: Shape = Shape {
    name: "feed",
    summary: "numbered messages; each consumer checks content and order of every producer",
    lesson: "\
Producers number their messages and publish them to an exchange that copies them to the queue of each
consumer. A consumer checks that from every producer every message comes once, in order and with the
bytes that were sent. The first fault is told when it is seen; at the end the run waits for what is
under way, names what is wrong (lost, twice, out of order, damaged) and ends with exit code 1.

  lepus perf feed -z 30                            one producer, one consumer, 100 bytes
  lepus perf feed -x 2 -y 4 -f persistent -c 500 -C 1000000
  lepus perf feed -r 50000 -z 60                   latency at a steady rate, checked",
    groups: &[CONNECTION, LOAD, OUTPUT],
    foreign: &[],
    plan,
};

const LOAD: Group = Group {
    title: "Load",
    choices: &[
        Choice::value("x", "producers", "N", "connections that publish; default 1"),
        Choice::value(
            "y",
            "consumers",
            "N",
            "consumers, each with a queue of its own that gets every message; default 1",
        ),
        Choice::value(
            "",
            "connections",
            "N",
            "connections that the consumers are spread over; default one for each",
        ),
        Choice::value("s", "size", "BYTES", "size of a body, at least 8; default 100"),
        Choice::value("f", "flag", "FLAG", "persistent: durable queues and persistent messages"),
        Choice {
            alias: "producer-rate",
            ..Choice::value(
                "r",
                "rate",
                "MSG/S",
                "messages a second of each producer; default as fast as possible",
            )
        },
        Choice::value(
            "c",
            "confirm",
            "N",
            "confirms, with at most N outstanding for each producer",
        ),
        Choice::value("ct", "confirm-timeout", "SECONDS", "longest wait for a confirm; default 30"),
        Choice::value("C", "pmessages", "N", "stop after N messages of each producer"),
        Choice::switch("", "acks", "acknowledge each message; without it the broker expects none"),
        Choice::value("q", "qos", "N", "prefetch of each consumer, with --acks; default unlimited"),
        Choice::value("e", "exchange", "NAME", "name of the exchange; default lepus-feed"),
    ],
};

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    let feed = Fanout {
        shape: SHAPE.name,
        exchange: "lepus-feed",
        producers: count(options, "producers", 1, 1..=10_000)? as u32,
        queues: count(options, "consumers", 1, 1..=100_000)?,
        layout: Layout::new(body_bytes_checked(options, 100)?, true),
        checked: true,
    };
    Ok(vec![feed.plan(options)?.into()])
}
