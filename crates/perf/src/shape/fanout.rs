//! One producer, many queues that each get every message.

use super::{
    CONFIRM_TIMEOUT, CONNECTION, OUTPUT, Shape, body_bytes, confirms, count, id, persistent,
    plan_of, schedule, sent_max, setup, with_ceiling,
};
use crate::body::{BODY_BYTES_DEFAULT, Layout};
use crate::check::Check;
use crate::consumer::{ConsumerSpec, Settling};
use crate::job::Job;
use crate::option::{Choice, Group, OptionError, Options, wrong};
use crate::plan::{LinkPlan, Plan, RoleSpec, Stage};
use crate::producer::ProducerSpec;
use crate::report::Shown;
use crate::script::{ExchangeSpec, QueueSpec, Step, bind, consume, qos};
use crate::template::Message;
use lepus_amqp::{Properties, Table};
use std::time::Duration;

pub(super) const SHAPE: Shape = Shape {
    name: "fanout",
    summary: "one producer, N queues that each get every message",
    lesson: "\
One producer publishes to a fanout exchange with N queues; each queue has one consumer. Sent counts
messages, received counts copies: with 10 queues it should be 10 times as much.

  lepus perf fanout --queues 100 -z 30
  lepus perf fanout --queues 10 -s 1000 -r 5000 --check -z 10    latency at a steady rate",
    groups: &[CONNECTION, LOAD, OUTPUT],
    foreign: &[],
    plan,
};

const LOAD: Group = Group {
    title: "Load",
    choices: &[
        Choice::value("", "queues", "N", "queues; default 10"),
        Choice::value(
            "",
            "connections",
            "N",
            "connections that the consumers are spread over; default one for each queue",
        ),
        Choice::value("s", "size", "BYTES", "size of a body; default 12"),
        Choice::value("f", "flag", "FLAG", "persistent: durable queues and persistent messages"),
        Choice {
            alias: "producer-rate",
            ..Choice::value("r", "rate", "MSG/S", "messages a second; default as fast as possible")
        },
        Choice::value("c", "confirm", "N", "confirms, with at most N outstanding"),
        CONFIRM_TIMEOUT,
        Choice::value("C", "pmessages", "N", "stop after N messages"),
        Choice::switch("", "acks", "acknowledge each message; without it the broker expects none"),
        Choice::value("q", "qos", "N", "prefetch of each consumer, with --acks; default unlimited"),
        Choice::value("e", "exchange", "NAME", "name of the exchange; default lepus-fanout"),
        super::CEILING,
    ],
};

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    with_ceiling(options, one_plan)
}

fn one_plan(options: &Options) -> Result<Plan, OptionError> {
    let queues = count(options, "queues", 10, 1..=1_000_000)?;
    let layout = Layout::new(body_bytes(options, BODY_BYTES_DEFAULT)?, options.has("check"));
    let fanout = Fanout {
        shape: SHAPE.name,
        exchange: "lepus-fanout",
        producers: 1,
        queues,
        layout,
        checked: options.has("check"),
    };
    fanout.plan(options)
}

/// Producers whose messages all reach all queues, each of which has one consumer.
pub(super) struct Fanout {
    pub shape: &'static str,
    /// The exchange's name, unless the options say another.
    pub exchange: &'static str,
    pub producers: u32,
    pub queues: u64,
    pub layout: Layout,
    pub checked: bool,
}

impl Fanout {
    pub(super) fn plan(&self, options: &Options) -> Result<Plan, OptionError> {
        let (queues, layout) = (self.queues, self.layout);
        let connections = count(options, "connections", queues, 1..=100_000)?.min(queues);
        if queues.div_ceil(connections) > 65_535 {
            return wrong("a connection has at most 65535 channels; use more --connections");
        }
        let persistent = persistent(options)?;
        let mut check = self.checked.then(|| Check::new(layout));
        let exchange = ExchangeSpec {
            name: options.text("exchange").unwrap_or(self.exchange).to_owned(),
            kind: "fanout".to_owned(),
            auto_delete: true,
            predeclared: false,
        };
        if exchange.name.is_empty() {
            return wrong("--exchange needs a name: queues are bound to it");
        }
        let id = id(options);
        let mut made = vec![Step::open(1)];
        made.extend(exchange.declare(1));
        let mut links = vec![setup(&id, made)];
        let queue = QueueSpec { durable: persistent, auto_delete: true, ..QueueSpec::default() };
        let consumers = Consumers {
            queue,
            queues,
            connections,
            acks: options.has("acks"),
            prefetch: options.number("qos")?.unwrap_or(0),
        };
        links.extend(consumers.links(&id, &exchange.name, check.as_mut()));
        // Each queue gets all messages of all producers.
        let checked = if check.is_some() { queues as usize } else { 0 };
        let expected = (0..checked)
            .flat_map(|queue| (0..self.producers).map(move |producer| (queue, producer)))
            .collect();
        let confirms = confirms(options, None)?;
        for number in 0..self.producers {
            links.push(producer(options, &id, number, &exchange.name, layout, persistent)?);
        }
        Ok(Plan {
            check,
            expected,
            copies: layout.has_time().then(|| vec![vec![queues]; self.producers as usize]),
            shown: Shown {
                sent: true,
                received: true,
                confirmed: confirms.is_some(),
                ..Shown::default()
            },
            ..plan_of(options, self.shape, id, links, layout)?
        })
    }
}

/// The consuming side.
struct Consumers {
    queue: QueueSpec,
    queues: u64,
    connections: u64,
    acks: bool,
    prefetch: u16,
}

impl Consumers {
    /// Connections that take the queues in turn, each queue on a channel of its own.
    fn links(&self, id: &str, exchange: &str, check: Option<&mut Check>) -> Vec<LinkPlan> {
        let lanes: Vec<_> = match check {
            None => Vec::new(),
            Some(check) => (0..self.queues)
                .map(|number| {
                    let queue = check.add_queue(format!("queue {number}"));
                    check.add_lane(queue)
                })
                .collect(),
        };
        let link = |connection| {
            let mut script = Vec::new();
            let mut roles = Vec::new();
            let mine = (connection..self.queues).step_by(self.connections as usize);
            for (number, channel) in mine.zip(1u16..) {
                script.push(Step::open(channel));
                script.extend(self.queue.declare(channel));
                script.extend(bind(channel, "", exchange, ""));
                if self.acks && self.prefetch > 0 {
                    script.push(qos(channel, self.prefetch, false));
                }
                script.push(consume(channel, "", "0", !self.acks, &Table::new()));
                roles.push(RoleSpec::Consumer(ConsumerSpec {
                    channel,
                    settling: if self.acks { Settling::Each } else { Settling::Auto },
                    lanes: lanes.get(number as usize).copied().into_iter().collect(),
                    ..ConsumerSpec::default()
                }));
            }
            LinkPlan {
                stage: Stage::Consume,
                delay: Duration::ZERO,
                name: format!("{id} consumer {connection}"),
                script,
                roles,
            }
        };
        (0..self.connections).map(link).collect()
    }
}

/// The publishing side.
fn producer(
    options: &Options,
    id: &str,
    number: u32,
    exchange: &str,
    layout: Layout,
    persistent: bool,
) -> Result<LinkPlan, OptionError> {
    let properties = Properties { delivery_mode: persistent.then_some(2), ..Properties::default() };
    let message = Message {
        exchange: exchange.to_owned(),
        routing_key: String::new(),
        mandatory: false,
        immediate: false,
        properties: properties.to_bytes(),
        body: layout.body(number),
        layout: Some(layout),
    };
    let spec = ProducerSpec {
        number,
        messages: vec![message],
        sent_max: sent_max(options)?,
        schedule: schedule(options)?,
        confirms: confirms(options, None)?,
        ..ProducerSpec::default()
    };
    Ok(super::producer(id, spec))
}
