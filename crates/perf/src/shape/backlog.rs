//! A queue is filled run by run, then drained.

use super::{BODY_BYTES_MAX, CONNECTION, OUTPUT, Shape, confirms, count, id, plan_of, seconds};
use crate::body::Layout;
use crate::check::Check;
use crate::consumer::{ConsumerSpec, Settling};
use crate::job::Job;
use crate::option::{Choice, Group, OptionError, Options, wrong};
use crate::pairs;
use crate::plan::{LinkPlan, Plan, RoleSpec, Stage};
use crate::producer::ProducerSpec;
use crate::report::Shown;
use crate::schedule::Schedule;
use crate::script::{QueueSpec, Step, consume, qos, select_confirms};
use crate::template::Message;
use lepus_amqp::method::queue;
use lepus_amqp::{Properties, Table};
use std::time::Duration;

pub(super) const SHAPE: Shape = Shape {
    name: "backlog",
    summary: "fills a durable queue run by run, then drains and checks it",
    lesson: "\
One producer fills a durable queue with persistent, confirmed and numbered messages, in runs that do
not empty it in between; then one consumer drains it and checks that every message is there, in order
and intact. Each fill and the drain have their own figures: phases `fill 1`, `fill 2`, … and `drain`.
A consumer that nothing reaches for --confirm-timeout gives up. At the end the queue is deleted.

  lepus perf backlog -C 100000 -s 1024
  lepus perf backlog --runs 3 -C 1000000,100000 -s 1024,10240     3 runs of each size, then drain all
  lepus perf backlog --keep -u jobs                               leave it filled",
    groups: &[CONNECTION, LOAD, OUTPUT],
    foreign: &[],
    plan,
};

const LOAD: Group = Group {
    title: "Load",
    choices: &[
        Choice::value("s", "size", "BYTES,…", "sizes of bodies, at least 16; default 1024"),
        Choice::value(
            "C",
            "pmessages",
            "N,…",
            "messages of each run, for each size or for all; default 100000",
        ),
        Choice::value("", "runs", "N", "runs of each size; default 1"),
        Choice::value(
            "u",
            "queue",
            "NAME",
            "an empty or missing queue; default named like the run",
        ),
        Choice {
            takes: crate::option::Takes::Words("KEY=VALUE,…"),
            ..Choice::value("qa", "queue-args", "KEY=VALUE,…", "arguments of the queue")
        },
        Choice::value("f", "flag", "FLAG", "transient: messages are not persistent"),
        Choice {
            alias: "producer-rate",
            ..Choice::value("r", "rate", "MSG/S", "messages a second; default as fast as possible")
        },
        Choice::value(
            "c",
            "confirm",
            "N",
            "confirms, with at most N outstanding; default 1000, -1 for none",
        ),
        Choice::value(
            "ct",
            "confirm-timeout",
            "SECONDS",
            "longest wait for a confirm, and of the consumer for a message; default 30",
        ),
        Choice::value(
            "",
            "pause",
            "SECONDS",
            "time between the last fill and the drain; default 0",
        ),
        Choice::switch("", "acks", "acknowledge each message; without it the broker expects none"),
        Choice::value("q", "qos", "N", "prefetch of the consumer, with --acks; default unlimited"),
        Choice::switch("", "keep", "leave the queue filled: no drain, no deletion"),
    ],
};

/// One run of filling.
#[derive(Clone, Copy, Debug)]
struct Fill {
    size: usize,
    messages: u64,
}

/// What fills and drain have in common.
struct Backlog<'a> {
    options: &'a Options,
    id: String,
    queue: QueueSpec,
    persistent: bool,
    confirms: Option<u64>,
}

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    let fills = fills(options)?;
    let id = id(options);
    let persistent = match options.list("flag").as_slice() {
        [] | ["persistent"] => true,
        ["transient"] => false,
        _ => return wrong("--flag knows only persistent and transient here"),
    };
    let name = options.text("queue").map_or_else(|| format!("lepus-backlog-{id}"), str::to_owned);
    if name.is_empty() || name.len() > 255 {
        return wrong("--queue needs a name of 1 to 255 bytes");
    }
    let arguments = pairs::table("queue-args", &options.list("queue-args"))?;
    let confirms = confirms(options, Some(1_000))?;
    let backlog = Backlog {
        options,
        id,
        queue: QueueSpec { name, durable: true, arguments, ..QueueSpec::default() },
        persistent,
        confirms,
    };
    let mut jobs = Vec::new();
    for (number, fill) in fills.iter().enumerate() {
        jobs.push(backlog.fill(number as u32, *fill)?.into());
    }
    if !options.has("keep") {
        jobs.push(backlog.drain(&fills)?.into());
        jobs.push(backlog.deletion()?.into());
    }
    Ok(jobs)
}

fn fills(options: &Options) -> Result<Vec<Fill>, OptionError> {
    let numbers = |long: &str, default: u64| -> Result<Vec<u64>, OptionError> {
        let texts = options.list(long);
        if texts.is_empty() {
            return Ok(vec![default]);
        }
        let read = |text: &str| match text.parse::<u64>() {
            Ok(number) if number > 0 => Ok(number),
            _ => wrong(format!("--{long} needs numbers above 0, not '{text}'")),
        };
        texts.into_iter().map(read).collect()
    };
    let (sizes, counts) = (numbers("size", 1_024)?, numbers("pmessages", 100_000)?);
    if counts.len() != 1 && counts.len() != sizes.len() {
        return wrong("--pmessages needs one number, or one for each --size");
    }
    if sizes.iter().any(|size| !(16..=BODY_BYTES_MAX).contains(size)) {
        return wrong("--size needs at least 16 bytes, for the numbers that are checked");
    }
    if counts.iter().any(|count| *count > u64::from(u32::MAX)) {
        return wrong("--pmessages needs numbers below 4294967296");
    }
    let runs = count(options, "runs", 1, 1..=1_000)?;
    let mut fills = Vec::new();
    for (place, size) in sizes.iter().enumerate() {
        let messages = *counts.get(place).unwrap_or(&counts[0]);
        fills.extend((0..runs).map(|_| Fill { size: *size as usize, messages }));
    }
    Ok(fills)
}

impl Backlog<'_> {
    fn base(&self, phase: String, layout: Layout) -> Result<Plan, OptionError> {
        let plan = plan_of(self.options, SHAPE.name, self.id.clone(), Vec::new(), layout)?;
        Ok(Plan { phase, ..plan })
    }

    fn link(&self, stage: Stage, name: &str, script: Vec<Step>) -> LinkPlan {
        LinkPlan {
            stage,
            delay: Duration::ZERO,
            name: format!("{} {name}", self.id),
            script,
            roles: Vec::new(),
        }
    }

    /// Run `number` of filling, whose messages carry this as their producer.
    fn fill(&self, number: u32, fill: Fill) -> Result<Plan, OptionError> {
        let layout = Layout::new(fill.size, true);
        let mut plan = self.base(format!("fill {}", number + 1), layout)?;
        let mut setup = vec![Step::open(1)];
        setup.extend(self.queue.declare(1));
        plan.links.push(self.link(Stage::Setup, "setup", setup));
        let mut script = vec![Step::open(1)];
        if self.confirms.is_some() {
            script.push(select_confirms(1));
        }
        let delivery_mode = self.persistent.then_some(2);
        let properties = Properties { delivery_mode, ..Properties::default() };
        let message = Message {
            exchange: String::new(),
            routing_key: self.queue.name.clone(),
            mandatory: false,
            immediate: false,
            properties: properties.to_bytes(),
            body: layout.body(number),
            layout: Some(layout),
        };
        let rate = self.options.rate("rate")?.filter(|rate| *rate > 0.0);
        let mut link = self.link(Stage::Produce, "producer", script);
        link.roles.push(RoleSpec::Producer(ProducerSpec {
            channel: 1,
            number,
            messages: vec![message],
            sent_max: Some(fill.messages),
            schedule: rate.map(Schedule::constant),
            confirms: self.confirms,
            ..ProducerSpec::default()
        }));
        plan.links.push(link);
        plan.shown = Shown { sent: true, confirmed: self.confirms.is_some(), ..Shown::default() };
        Ok(plan)
    }

    /// Takes everything that `fills` put in.
    fn drain(&self, fills: &[Fill]) -> Result<Plan, OptionError> {
        let size = fills.iter().map(|fill| fill.size).max().unwrap_or_default();
        let layout = Layout::new(size, true);
        let mut plan = self.base("drain".to_owned(), layout)?;
        let sizes = fills.iter().map(|fill| fill.size).collect();
        let mut check = Check::with_sizes(layout, sizes);
        let queue = check.add_queue(self.queue.name.clone());
        for (number, fill) in fills.iter().enumerate() {
            check.expect(queue, number as u32, fill.messages);
        }
        let lane = check.add_lane(queue);
        plan.check = Some(check);
        let acks = self.options.has("acks");
        let mut script = vec![Step::open(1)];
        match self.options.number("qos")? {
            Some(prefetch) if acks && prefetch > 0 => script.push(qos(1, prefetch, false)),
            _ => {}
        }
        script.push(consume(1, &self.queue.name, "0", !acks, &Table::new()));
        let mut link = self.link(Stage::Consume, "consumer", script);
        link.delay = seconds(self.options, "pause")?.unwrap_or_default();
        link.roles.push(RoleSpec::Consumer(ConsumerSpec {
            channel: 1,
            settling: if acks { Settling::Each } else { Settling::Auto },
            received_max: Some(fills.iter().map(|fill| fill.messages).sum()),
            lanes: vec![lane],
            ..ConsumerSpec::default()
        }));
        plan.links.push(link);
        plan.run.idle_max = Some(plan.run.confirm_timeout);
        plan.shown = Shown { received: true, ..Shown::default() };
        Ok(plan)
    }

    /// Deletes the queue.
    fn deletion(&self) -> Result<Plan, OptionError> {
        let mut plan = self.base(String::new(), Layout::new(0, false))?;
        let delete = queue::Delete { queue: &self.queue.name, ..Default::default() };
        let script = vec![Step::open(1), Step::new(1, delete, &self.queue.name)];
        plan.links.push(self.link(Stage::Setup, "end", script));
        plan.quiet = true;
        plan.run.time_max = Some(Duration::ZERO);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Vec<Job>, OptionError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        plan(&Options::parse(SHAPE.groups, SHAPE.foreign, &words)?)
    }

    #[test]
    fn every_size_has_its_runs_and_one_drain_takes_all() {
        let jobs = read("--runs 2 -C 1000,100 -s 1024,10240 -d me").unwrap();
        let plans: Vec<&Plan> = jobs
            .iter()
            .map(|job| match job {
                Job::Run(plan) => &**plan,
                other => panic!("{other:?}"),
            })
            .collect();
        let phases: Vec<&str> = plans.iter().map(|plan| plan.phase.as_str()).collect();
        assert_eq!(phases, ["fill 1", "fill 2", "fill 3", "fill 4", "drain", ""]);
        let sizes: Vec<usize> = plans[..4].iter().map(|plan| plan.layout.size).collect();
        assert_eq!(sizes, [1_024, 1_024, 10_240, 10_240]);
        match &plans[4].links[0].roles[0] {
            RoleSpec::Consumer(consumer) => assert_eq!(consumer.received_max, Some(2_200)),
            other => panic!("{other:?}"),
        }
        assert!(plans[5].quiet);
        assert_eq!(read("--keep").unwrap().len(), 1);
    }

    #[test]
    fn contradictions_are_refused_in_words() {
        for (line, word) in [
            ("-s 15", "16 bytes"),
            ("-C 1,2,3 -s 16,17", "--size"),
            ("-C 0", "above 0"),
            ("-c 0", "--confirm"),
            ("-f sticky", "--flag"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.0.contains(word), "{line}: {error}");
        }
    }
}
