//! Producers and consumers on shared queues: the reference tester's load, with its options.

mod body;
mod choice;
mod topology;

use super::{Shape, body_bytes, confirms, count, id, plan_of, seconds, setup, with_ceiling};
use crate::body::{BODY_BYTES_DEFAULT, Layout};
use crate::check::Check;
use crate::consumer::{ConsumerSpec, Settling};
use crate::job::Job;
use crate::option::{OptionError, Options, wrong};
use crate::pairs;
use crate::plan::{LinkPlan, Plan, RoleSpec, Stage};
use crate::producer::ProducerSpec;
use crate::report::Shown;
use crate::schedule::{Cycle, Schedule, Stretch, parse_part, parse_stretch};
use crate::script::{Step, consume, qos, select_confirms, select_transactions};
use crate::template::Message;
use lepus_base::Rng;
use std::time::Duration;
use topology::Topology;

pub(super) const SHAPE: Shape = Shape {
    name: "throughput",
    summary: "producers and consumers on queues, with the options of RabbitMQ's PerfTest",
    lesson: "\
Producers publish as fast as they can, or at a rate, consumers take what comes, and a line each
second tells the rates and how long messages were under way. Options, their short names and the
wording of the output are those of RabbitMQ's load tester, so that command lines and scripts that
read its output work here. One thread serves all connections.

  lepus perf throughput -a -s 16 -z 10                one producer, one consumer, no acks
  lepus perf throughput -x 1 -y 2 -u jobs -q 100 -f persistent -ad false -c 1000
  lepus perf throughput -x 150 -y 300 --queue-pattern 'perf-test-%d' \\
       --queue-pattern-from 1 --queue-pattern-to 100 -f mandatory -q 300 -c 100 -z 60
  lepus perf throughput -r 20000 -a -z 30             latency at a rate that does not saturate
  lepus perf throughput -y 0 -u backlog -ad false -f persistent -C 1000000     fill a queue,
  lepus perf throughput -x 0 -u backlog -ad false -f persistent -a -ew idle    then drain it

A rate is a plan made in advance: a message that the broker holds up is sent late, and its latency
counts from the time it was planned for.",
    groups: choice::GROUPS,
    foreign: choice::FOREIGN,
    plan,
};

/// What `--flag` asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    persistent: bool,
    mandatory: bool,
    immediate: bool,
}

impl Flags {
    fn read(options: &Options) -> Result<Flags, OptionError> {
        let mut flags = Flags::default();
        for flag in options.list("flag") {
            match flag {
                "persistent" => flags.persistent = true,
                "mandatory" => flags.mandatory = true,
                "immediate" => flags.immediate = true,
                other => {
                    return wrong(format!(
                        "--flag knows persistent, mandatory and immediate, not '{other}'"
                    ));
                }
            }
        }
        Ok(flags)
    }
}

/// Numbers of connections and of channels on each.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    producers: u32,
    consumers: u32,
    producer_channels: u16,
    consumer_channels: u16,
}

impl Sizes {
    fn read(options: &Options) -> Result<Sizes, OptionError> {
        Ok(Sizes {
            producers: count(options, "producers", 1, 0..=100_000)? as u32,
            consumers: count(options, "consumers", 1, 0..=100_000)? as u32,
            producer_channels: count(options, "producer-channel-count", 1, 1..=65_535)? as u16,
            consumer_channels: count(options, "consumer-channel-count", 1, 1..=65_535)? as u16,
        })
    }

    /// Channels that publish.
    fn publishing(&self) -> u32 {
        self.producers * u32::from(self.producer_channels)
    }
}

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    with_ceiling(options, one_plan)
}

fn one_plan(options: &Options) -> Result<Plan, OptionError> {
    let id = id(options);
    let sizes = Sizes::read(options)?;
    let flags = Flags::read(options)?;
    let mut rng = Rng::new(crate::clock::seed());
    let bodies = body::read(options, &mut rng)?;
    let sizes_by_time = body::sizes_by_time(options)?;
    let checked = options.has("check");
    if checked && (bodies.is_some() || sizes_by_time.is_some() || options.has("random-routing-key"))
    {
        return wrong(
            "--check needs to know every body and its queue: not with --body, --json-body, --variable-size or --random-routing-key",
        );
    }
    let layout = match &bodies {
        Some(bodies) => Layout::new(bodies[0].len(), false),
        None => Layout::new(body_bytes(options, BODY_BYTES_DEFAULT)?, checked),
    };
    let mut check = checked.then(|| Check::new(layout));
    let mut topology = Topology::read(options, flags, sizes, &mut rng)?;
    let mut links = vec![setup(&id, topology.setup())];
    consumer_links(options, &id, sizes, &mut topology, check.as_mut(), &mut links)?;
    let expected = topology.expected(sizes.publishing());
    let copies = foreseeable(options, bodies.is_some() || layout.has_time())
        .then(|| copies(&expected, sizes.publishing()))
        .filter(|copies| copies.iter().any(|copies| copies[0] > 0));
    let confirms = confirms(options, None)?;
    let load = ProducerLoad {
        flags,
        confirms,
        layout,
        bodies,
        sizes_by_time,
        properties: body::properties(options, flags)?,
        transaction: positive(options, "ptxsize")?,
    };
    load.links(options, &id, sizes, &topology, &mut rng, &mut links)?;
    Ok(Plan {
        time_in_header: load.bodies.is_some(),
        check,
        expected: if checked { expected } else { Vec::new() },
        copies,
        shown: Shown {
            sent: sizes.producers > 0,
            received: sizes.consumers > 0,
            returned: flags.mandatory || flags.immediate,
            confirmed: confirms.is_some(),
            millis: options.has("use-millis"),
        },
        ..plan_of(options, SHAPE.name, id, links, layout)?
    })
}

/// Whether each message that is sent comes once to each queue that it belongs into: nothing is requeued,
/// dropped or left over, keys are not random, and messages tell when they were sent.
fn foreseeable(options: &Options, has_time: bool) -> bool {
    let others = [
        "nack",
        "max-length-bytes",
        "queue-args",
        "cmessages",
        "random-routing-key",
        "routing-key-cache-size",
        "variable-size",
        "predeclared",
    ];
    has_time && others.iter().all(|name| !options.has(name))
}

/// Deliveries that each message of a producer leads to, by the producer's number.
fn copies(expected: &[(usize, u32)], producers: u32) -> Vec<Vec<u64>> {
    let mut copies = vec![vec![0]; producers as usize];
    for (_, producer) in expected {
        copies[*producer as usize][0] += 1;
    }
    copies
}

/// A number above 0; `None` where it is 0 or absent, which stands for "without".
fn positive(options: &Options, long: &str) -> Result<Option<u64>, OptionError> {
    Ok(options.number(long)?.filter(|number| *number > 0))
}

fn consumer_links(
    options: &Options,
    id: &str,
    sizes: Sizes,
    topology: &mut Topology,
    mut check: Option<&mut Check>,
    links: &mut Vec<LinkPlan>,
) -> Result<(), OptionError> {
    let auto = options.has("autoack");
    let prefetch: u16 = options.number("qos")?.unwrap_or(0);
    let prefetch_channel: u16 = options.number("global-qos")?.unwrap_or(0);
    let settling = match (auto, positive(options, "multi-ack-every")?) {
        (true, _) => Settling::Auto,
        (false, None) => Settling::Each,
        (false, Some(every)) => {
            let limits = [prefetch, prefetch_channel].map(u64::from);
            if limits.iter().any(|limit| *limit > 0 && *limit < every) {
                return wrong(format!(
                    "--multi-ack-every {every} is more than the prefetch: the broker would wait for ever"
                ));
            }
            Settling::Every(every)
        }
    };
    let nack_requeue = options.has("nack").then(|| options.truth("requeue", true)).transpose()?;
    if auto && nack_requeue.is_some() {
        return wrong("--nack needs acknowledgements, which --autoack switches off");
    }
    let kept_every = positive(options, "keep-unacked")?;
    if kept_every.is_some() && settling != Settling::Each {
        return wrong("--keep-unacked needs each message acknowledged by itself");
    }
    let transaction = positive(options, "ctxsize")?;
    let arguments = pairs::table("consumer-args", &options.list("consumer-args"))?;
    let service = service(options)?;
    let polling = polling_interval(options)?;
    let schedule =
        options.rate("consumer-rate")?.filter(|rate| *rate > 0.0).map(Schedule::constant);
    let received_max = positive(options, "cmessages")?;
    let start = seconds(options, "consumer-start-delay")?.filter(|delay| !delay.is_zero());
    let step = Duration::from_secs(u64::from(options.has("slow-start")));
    for connection in 0..sizes.consumers {
        let mut script = Vec::new();
        let mut roles = Vec::new();
        for channel in 1..=sizes.consumer_channels {
            let number = connection * u32::from(sizes.consumer_channels) + u32::from(channel) - 1;
            script.push(Step::open(channel));
            let queues = topology.consumed_by(number, channel, &mut script);
            if prefetch_channel > 0 {
                script.push(qos(channel, prefetch_channel, true));
            }
            if prefetch > 0 {
                script.push(qos(channel, prefetch, false));
            }
            if transaction.is_some() && !auto {
                script.push(select_transactions(channel));
            }
            let mut lanes = Vec::new();
            let mut deferred = Vec::new();
            let names: Vec<String> = queues.iter().map(|queue| queue.name.clone()).collect();
            for (tag, queue) in queues.into_iter().enumerate() {
                let tag = tag.to_string();
                let step = consume(channel, &queue.name, &tag, auto, &arguments);
                match (polling, start) {
                    (Some(_), _) => {}
                    (None, None) => script.push(step),
                    (None, Some(_)) => deferred.extend_from_slice(&step.frame),
                }
                match check.as_deref_mut() {
                    Some(check) => lanes.push(topology.lane(check, &queue)),
                    None => topology.note(&queue),
                }
            }
            roles.push(RoleSpec::Consumer(ConsumerSpec {
                channel,
                settling,
                nack_requeue,
                kept_every,
                received_max,
                transaction,
                schedule: schedule.clone(),
                service: service.clone(),
                polling: polling.map(|interval| (names, interval)),
                deferred: start.map(|delay| (delay, deferred)),
                lanes,
            }));
        }
        links.push(LinkPlan {
            stage: Stage::Consume,
            delay: step * connection,
            name: format!("{id} consumer {connection}"),
            script,
            roles,
        });
    }
    Ok(())
}

/// The time that a message takes a consumer.
fn service(options: &Options) -> Result<Option<Cycle<Duration>>, OptionError> {
    let mut parts = Vec::new();
    for text in options.list("variable-latency") {
        let (micros, duration) = parse_part(text).map_err(OptionError)?;
        parts.push((Duration::from_micros(micros), duration));
    }
    if let Some(micros) = positive(options, "consumer-latency")? {
        if !parts.is_empty() {
            return wrong("only one of --consumer-latency and --variable-latency is possible");
        }
        parts.push((Duration::from_micros(micros), Duration::from_secs(3_600)));
    }
    Ok((!parts.is_empty()).then(|| Cycle::new(parts)))
}

/// The time between an answer and the next question of consumers that ask; `None` where they are sent what comes.
fn polling_interval(options: &Options) -> Result<Option<Duration>, OptionError> {
    let interval = options.number("polling-interval")?;
    match (options.has("polling"), interval) {
        (false, None) => Ok(None),
        (_, interval) => Ok(Some(Duration::from_millis(interval.unwrap_or(0)))),
    }
}

/// What all producers have in common.
struct ProducerLoad {
    flags: Flags,
    confirms: Option<u64>,
    layout: Layout,
    bodies: Option<Vec<Vec<u8>>>,
    sizes_by_time: Option<Cycle<usize>>,
    properties: Vec<u8>,
    transaction: Option<u64>,
}

impl ProducerLoad {
    fn links(
        &self,
        options: &Options,
        id: &str,
        sizes: Sizes,
        topology: &Topology,
        rng: &mut Rng,
        links: &mut Vec<LinkPlan>,
    ) -> Result<(), OptionError> {
        if self.confirms.is_some() && self.transaction.is_some() {
            return wrong("a channel has either confirms (--confirm) or transactions (--ptxsize)");
        }
        let pace = Pace::read(options)?;
        let from_sending = match options.text("latency-from") {
            None | Some("plan") => false,
            Some("send") => true,
            Some(other) => {
                return wrong(format!("--latency-from knows plan and send, not '{other}'"));
            }
        };
        let sent_max = positive(options, "pmessages")?;
        let random_keys_max: usize = options.number("routing-key-cache-size")?.unwrap_or(0);
        if random_keys_max > 1_000_000 {
            return wrong("--routing-key-cache-size needs a number up to 1000000");
        }
        let random_key = options.has("random-routing-key") || random_keys_max > 0;
        let random_delay = seconds(options, "producer-random-start-delay")?.unwrap_or_default();
        for connection in 0..sizes.producers {
            let mut script = Vec::new();
            let mut roles = Vec::new();
            let random_delay = random_delay.mul_f64(rng.below(1_000) as f64 / 1_000.0);
            for channel in 1..=sizes.producer_channels {
                let number =
                    connection * u32::from(sizes.producer_channels) + u32::from(channel) - 1;
                script.push(Step::open(channel));
                if self.confirms.is_some() {
                    script.push(select_confirms(channel));
                }
                if self.transaction.is_some() {
                    script.push(select_transactions(channel));
                }
                let routing_key = if random_key {
                    "0".repeat(crate::template::KEY_BYTES)
                } else {
                    topology.routing_key(number).to_owned()
                };
                roles.push(RoleSpec::Producer(ProducerSpec {
                    channel,
                    number,
                    messages: self.messages(number, topology.exchange(), &routing_key),
                    random_key,
                    random_keys_max,
                    sent_max,
                    schedule: pace.schedule.clone(),
                    from_sending,
                    turns: self.turns(),
                    start_delay: random_delay + pace.offset(number, sizes.publishing()),
                    confirms: self.confirms,
                    transaction: self.transaction,
                    seed: rng.next_u64(),
                }));
            }
            links.push(LinkPlan {
                stage: Stage::Produce,
                delay: Duration::ZERO,
                name: format!("{id} producer {connection}"),
                script,
                roles,
            });
        }
        Ok(())
    }

    fn messages(&self, number: u32, exchange: &str, routing_key: &str) -> Vec<Message> {
        let message = |body, layout| Message {
            exchange: exchange.to_owned(),
            routing_key: routing_key.to_owned(),
            mandatory: self.flags.mandatory,
            immediate: self.flags.immediate,
            properties: self.properties.clone(),
            body,
            layout,
        };
        match (&self.bodies, &self.sizes_by_time) {
            (Some(bodies), _) => bodies.iter().map(|body| message(body.clone(), None)).collect(),
            (None, Some(sizes)) => {
                let layouts = sizes.values().map(|size| Layout::new(size, false));
                layouts.map(|layout| message(layout.body(number), Some(layout))).collect()
            }
            (None, None) => vec![message(self.layout.body(number), Some(self.layout))],
        }
    }

    /// Which of the messages holds when, for sizes that change with time.
    fn turns(&self) -> Option<Cycle<usize>> {
        self.sizes_by_time.as_ref().map(Cycle::places)
    }
}

/// How fast each producer is.
struct Pace {
    schedule: Option<Schedule>,
    /// Time between two messages of one producer.
    gap: Duration,
}

impl Pace {
    fn read(options: &Options) -> Result<Pace, OptionError> {
        let constant = options.rate("rate")?.filter(|rate| *rate > 0.0);
        let interval = options.rate("publishing-interval")?.filter(|gap| *gap > 0.0);
        let stretches: Vec<Stretch> = options
            .list("variable-rate")
            .into_iter()
            .map(|text| parse_stretch(text).map_err(OptionError))
            .collect::<Result<_, _>>()?;
        let rate = match (constant, interval, stretches.is_empty()) {
            (None, None, false) => {
                return Ok(Pace {
                    schedule: Some(Schedule::variable(stretches)),
                    gap: Duration::ZERO,
                });
            }
            (Some(rate), None, true) => rate,
            (None, Some(gap), true) => 1.0 / gap,
            (None, None, true) => {
                return Ok(Pace { schedule: None, gap: Duration::ZERO });
            }
            _ => {
                return wrong(
                    "only one of --rate, --variable-rate and --publishing-interval is possible",
                );
            }
        };
        Ok(Pace {
            schedule: Some(Schedule::constant(rate)),
            gap: Duration::from_secs_f64((1.0 / rate).min(31_536_000.0)),
        })
    }

    /// Producers of the same rate start one after the other within one gap, so that messages are spread evenly.
    fn offset(&self, number: u32, producers: u32) -> Duration {
        self.gap.mul_f64(f64::from(number) / f64::from(producers.max(1)))
    }
}

#[cfg(test)]
mod tests;
