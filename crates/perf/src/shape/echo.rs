//! Many channels, each with a queue of its own that it both feeds and empties.

use super::{CONNECTION, OUTPUT, Shape, body_bytes, count, id, persistent, plan_of, setup};
use crate::body::Layout;
use crate::check::Check;
use crate::job::Job;
use crate::option::{Choice, Group, OptionError, Options, wrong};
use crate::plan::{LinkPlan, Plan, RoleSpec, Stage};
use crate::report::Shown;
use crate::roundtrip::RoundtripSpec;
use crate::script::{ExchangeSpec, QueueSpec, Step, bind, consume};
use crate::template::Message;
use lepus_amqp::{Properties, Table};
use std::time::Duration;

pub(super) const SHAPE: Shape = Shape {
    name: "loop",
    summary: "many channels, each sending itself one message after the other",
    lesson: "\
Every channel has a queue of its own, which goes when the channel does, bound to a direct exchange
that all share. It publishes one message to it, and each time a message arrives it publishes the
next. Nothing is ever queued, so that the figure shows what it costs to carry one message from
socket to socket, and how that grows with the number of connections, channels and queues.

  lepus perf loop -z 60                                 9 connections with 500 channels each
  lepus perf loop --connections 1 --channels 1 -z 10    the latency of an idle broker
  lepus perf loop --in-flight 10 --acks --check -z 10",
    groups: &[CONNECTION, LOAD, OUTPUT],
    foreign: &[],
    plan,
};

const LOAD: Group = Group {
    title: "Load",
    choices: &[
        Choice::value("x", "connections", "N", "connections; default 9"),
        Choice::value("X", "channels", "N", "channels on each connection; default 500"),
        Choice::value("", "in-flight", "N", "messages under way on each channel; default 1"),
        Choice::value("s", "size", "BYTES", "size of a body; default 11"),
        Choice::value("f", "flag", "FLAG", "persistent: durable queues and persistent messages"),
        Choice::switch("", "acks", "acknowledge each message; without it the broker expects none"),
        Choice::value("e", "exchange", "NAME", "the exchange that all share; default lepus-loop"),
    ],
};

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    let connections = count(options, "connections", 9, 1..=100_000)? as u32;
    let channels = count(options, "channels", 500, 1..=65_535)? as u16;
    let in_flight = count(options, "in-flight", 1, 1..=1_000_000)? as u32;
    let persistent = persistent(options)?;
    let layout = Layout::new(body_bytes(options, 11)?, options.has("check"));
    let mut check = options.has("check").then(|| Check::new(layout));
    let mut expected = Vec::new();
    let exchange = ExchangeSpec {
        name: options.text("exchange").unwrap_or("lepus-loop").to_owned(),
        kind: "direct".to_owned(),
        auto_delete: true,
        predeclared: false,
    };
    if exchange.name.is_empty() {
        return wrong("--exchange needs a name: queues are bound to it");
    }
    let id = id(options);
    let acks = options.has("acks");
    let properties = Properties { delivery_mode: persistent.then_some(2), ..Properties::default() };
    let queue = QueueSpec { durable: persistent, auto_delete: true, ..QueueSpec::default() };
    let mut made = vec![Step::open(1)];
    made.extend(exchange.declare(1));
    let mut links = vec![setup(&id, made)];
    for connection in 0..connections {
        let mut script = Vec::new();
        let mut roles = Vec::new();
        for channel in 1..=channels {
            let number = connection * u32::from(channels) + u32::from(channel) - 1;
            let routing_key = format!("{id}-{number}");
            script.push(Step::open(channel));
            script.extend(queue.declare(channel));
            script.extend(bind(channel, "", &exchange.name, &routing_key));
            script.push(consume(channel, "", "0", !acks, &Table::new()));
            let lane = check.as_mut().map(|check| {
                let queue = check.add_queue(routing_key.clone());
                expected.push((queue, number));
                check.add_lane(queue)
            });
            roles.push(RoleSpec::Roundtrip(RoundtripSpec {
                channel,
                number,
                message: Message {
                    exchange: exchange.name.clone(),
                    routing_key,
                    mandatory: false,
                    immediate: false,
                    properties: properties.to_bytes(),
                    body: layout.body(number),
                    layout: Some(layout),
                },
                in_flight,
                acks,
                lane,
            }));
        }
        links.push(LinkPlan {
            stage: Stage::Produce,
            delay: Duration::ZERO,
            name: format!("{id} loop {connection}"),
            script,
            roles,
        });
    }
    Ok(vec![Job::from(Plan {
        check,
        expected,
        // Each round trip knows its own: no copies.
        shown: Shown { sent: true, received: true, ..Shown::default() },
        ..plan_of(options, SHAPE.name, id, links, layout)?
    })])
}
