//! Things that are made and taken away again, as fast as the broker does it.

use super::{PLACE, Shape, count, id, seconds, uris};
use crate::churn::{ChurnPlan, Thing};
use crate::job::Job;
use crate::option::{Choice, Group, OptionError, Options, wrong};
use crate::report::data::Format;
use std::time::Duration;

pub(super) const SHAPE: Shape = Shape {
    name: "churn",
    summary: "connections, channels, queues and bindings made and removed, per second",
    lesson: "\
Workers make one thing and remove it again, each waiting for the broker's answers, for --time seconds:
a connection with its login; a channel; a queue; a binding of a queue to a direct exchange. `sent`
counts what was begun, `confirmed` what was done, and the confirm latency is the time that making and
removing took together. Each kind is a phase with its own figures.

  lepus perf churn -x 8 -z 10
  lepus perf churn --of connections,queues",
    groups: &[PLACE, LOAD, OUTPUT],
    foreign: &[],
    plan,
};

const LOAD: Group = Group {
    title: "Load",
    choices: &[
        Choice::value(
            "x",
            "workers",
            "N",
            "workers, each with a connection and a thread; default 4",
        ),
        Choice::value(
            "",
            "of",
            "KIND,…",
            "connections, channels, queues, bindings; default all, one after the other",
        ),
        Choice::switch("", "durable", "durable queues and bindings; default transient"),
    ],
};

/// When to stop and what to tell, for shapes without messages.
pub(super) const OUTPUT: Group = Group {
    title: "Length and output",
    choices: &[
        Choice::value("z", "time", "SECONDS", "time of each part; default 5"),
        Choice::value("i", "interval", "SECONDS", "time between two lines; default 1"),
        Choice::value("d", "id", "TEXT", "name of the run, at the start of each line"),
        Choice::value(
            "",
            "output",
            "text|jsonl|csv",
            "what standard output carries: lines for people (default), or the same figures as JSON Lines or CSV for programs",
        ),
    ],
};

/// What `--output` asks for.
pub(super) fn format(options: &Options) -> Result<Format, OptionError> {
    match options.text("output") {
        None => Ok(Format::Text),
        Some(text) => match Format::parse(text) {
            Some(format) => Ok(format),
            None => wrong(format!("--output knows text, jsonl and csv, not '{text}'")),
        },
    }
}

fn plan(options: &Options) -> Result<Vec<Job>, OptionError> {
    let mut things = Vec::new();
    for name in options.list("of") {
        match Thing::ALL.iter().find(|thing| thing.name() == name) {
            Some(thing) => things.push(*thing),
            None => {
                return wrong(format!(
                    "--of knows connections, channels, queues and bindings, not '{name}'"
                ));
            }
        }
    }
    if things.is_empty() {
        things.extend(Thing::ALL);
    }
    let id = id(options);
    let interval = seconds(options, "interval")?.unwrap_or(Duration::from_secs(1));
    let mut jobs = Vec::new();
    for thing in things {
        jobs.push(Job::Churn(ChurnPlan {
            id: id.clone(),
            uris: uris(options)?,
            thing,
            workers: count(options, "workers", 4, 1..=1_000)? as u32,
            durable: options.has("durable"),
            time: seconds(options, "time")?.unwrap_or(Duration::from_secs(5)),
            interval: interval.max(Duration::from_millis(10)),
            format: format(options)?,
        }));
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn things(line: &str) -> Result<Vec<&'static str>, OptionError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let jobs = plan(&Options::parse(SHAPE.groups, SHAPE.foreign, &words)?)?;
        let name = |job: &Job| match job {
            Job::Churn(plan) => plan.thing.name(),
            other => panic!("{other:?}"),
        };
        Ok(jobs.iter().map(name).collect())
    }

    #[test]
    fn kinds_are_chosen_by_name() {
        assert_eq!(things("").unwrap(), ["connections", "channels", "queues", "bindings"]);
        assert_eq!(things("--of queues,channels").unwrap(), ["queues", "channels"]);
        assert!(things("--of users").unwrap_err().0.contains("'users'"));
        assert!(things("-x 0").is_err());
    }
}
