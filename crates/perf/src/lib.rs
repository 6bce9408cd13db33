//! The load tester behind `lepus perf`: works against any AMQP 0-9-1 broker.
//!
//! A *shape* ([`SUBCOMMANDS`]) turns options into a plan of connections, scripts and roles; the engine carries the plan
//! out on one thread with one poll, prints a line a second and a summary. Publishes are copies of a template with
//! number and time patched in, reads and writes are batched, so that one process on one core saturates a broker.
//! Shapes without messages (`churn`, `idle`) call and wait instead, `churn` on a thread for each worker.

#![forbid(unsafe_code)]

mod alarm;
mod body;
mod calibration;
mod ceiling;
mod check;
mod churn;
mod clock;
mod confirm;
mod consumer;
mod engine;
mod filters;
mod idle;
mod job;
mod link;
mod opening;
mod option;
mod outstanding;
mod pairs;
mod pattern;
mod peer;
mod plan;
mod producer;
mod report;
mod roundtrip;
mod scene;
mod schedule;
mod script;
mod shape;
mod sink;
mod statistics;
mod template;
mod transaction;
mod uri;

use engine::Outcome;
pub use filters::workload as filter_load;
use job::Job;
use lepus_console::nearest;
pub use lepus_console::to_stderr;
use option::{Options, Takes, describe};
use shape::{SHAPES, Shape};
use std::process::ExitCode;
pub use uri::Uri;

/// Names of the subcommands of `lepus perf` with a line about each.
pub const SUBCOMMANDS: &[(&str, &str)] = &{
    let mut list = [("", ""); SHAPES.len()];
    let mut at = 0;
    while at < SHAPES.len() {
        list[at] = (SHAPES[at].name, SHAPES[at].summary);
        at += 1;
    }
    list
};

/// An option of a subcommand, as far as another program may want to describe it.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its long name, without dashes.
    pub long: &'static str,
    /// Its name of one letter, where it has one; those of several letters are left out.
    pub short: Option<char>,
    /// What stands for its value in the help, where it takes one.
    pub value: Option<&'static str>,
    /// What it is for.
    pub help: &'static str,
}

/// The options of a subcommand of `lepus perf`; none where there is no such one.
pub fn options_of(subcommand: &str) -> impl Iterator<Item = Described> {
    let shape = SHAPES.iter().find(|shape| shape.name == subcommand);
    let groups = shape.map_or(&[][..], |shape| shape.groups);
    groups.iter().flat_map(|group| group.choices).filter(|choice| !choice.long.is_empty()).map(
        |choice| {
            let mut letters = choice.short.chars();
            let value = match choice.takes {
                Takes::Nothing => None,
                Takes::Value(name) | Takes::Optional(name) | Takes::Words(name) => Some(name),
            };
            Described {
                long: choice.long,
                short: letters.next().filter(|_| letters.next().is_none()),
                value,
                help: choice.help,
            }
        },
    )
}

/// Exit code for a run that could not begin, broke off, or whose check found faults.
const FAILED: u8 = 1;
/// Exit code for a command line that cannot be meant.
const MISUSED: u8 = 2;

/// Runs `lepus perf ARGUMENTS`, where `arguments` are the words after `perf`. Figures go to standard output, complaints
/// to standard error. Without a subcommand, options mean `throughput`.
///
/// SIGINT and SIGTERM end the run with its summary, a second one ends the process.
///
/// The result is 0 for a run that did what was asked, 1 where it could not or where `--check` found faults, and 2 for
/// wrong arguments.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = arguments.collect();
    let (shape, rest) = match words.split_first() {
        None => return help(None),
        Some((word, [])) if matches!(word.as_str(), "--version" | "-v") => {
            lepus_console::say(concat!("lepus perf ", env!("CARGO_PKG_VERSION")));
            return well();
        }
        Some((word, [])) if is_help(word) || word == "help" => return help(None),
        Some((word, rest)) if word == "help" => match find_shape(&rest[0]) {
            Ok(shape) => return help(Some(shape)),
            Err(text) => return misused(&text),
        },
        Some((word, _)) if word.starts_with('-') => (&SHAPES[0], &words[..]),
        Some((word, rest)) => match find_shape(word) {
            Ok(shape) => (shape, rest),
            Err(text) => return misused(&text),
        },
    };
    if rest.iter().any(|word| is_help(word)) {
        return help(Some(shape));
    }
    let jobs = Options::parse(shape.groups, shape.foreign, rest)
        .and_then(|options| (shape.plan)(&options));
    match jobs {
        Ok(jobs) => carry_out(shape, jobs),
        Err(error) => misused(&format!("{}: {error}", shape.name)),
    }
}

/// Carries jobs out one after the other, up to the first that does not end well.
fn carry_out(shape: &Shape, jobs: Vec<Job>) -> ExitCode {
    if let Some(job) = jobs.first() {
        job.print_head();
    }
    let mut known = None;
    for job in jobs {
        let outcome = match job {
            Job::Run(mut plan) => {
                plan.ceiling = known;
                engine::run(*plan)
            }
            Job::Ceiling(producing, consuming) => {
                calibration::measure(*producing, *consuming).map(|ceiling| {
                    known = Some(ceiling);
                    Outcome::Good
                })
            }
            Job::Sink { port, body_bytes } => serve_sink(port, body_bytes),
            Job::Churn(plan) => churn::run(plan),
            Job::Idle(plan) => idle::run(plan),
            Job::Filters(plan, load) => filters::run(*plan, *load),
        };
        match outcome {
            Ok(Outcome::Good) => {}
            Ok(Outcome::Interrupted) => return well(),
            Ok(Outcome::Faulty) => return ExitCode::from(FAILED),
            Err(text) => {
                to_stderr(format_args!("lepus perf {}: {text}", shape.name));
                return ExitCode::from(FAILED);
            }
        }
    }
    well()
}

/// Is a sink until the process is ended.
fn serve_sink(port: u16, body_bytes: usize) -> Result<Outcome, String> {
    let interrupted = engine::interruptible()?;
    let port = sink::start(port, body_bytes)
        .map_err(|error| format!("cannot listen on port {port}: {error}"))?;
    to_stderr(format_args!(
        "amqp://localhost:{port} takes and feeds as fast as it can; Ctrl-C ends it"
    ));
    while !interrupted.load(std::sync::atomic::Ordering::Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Ok(Outcome::Good)
}

fn is_help(word: &str) -> bool {
    matches!(word, "--help" | "-?" | "-help")
}

fn find_shape(word: &str) -> Result<&'static Shape, String> {
    if let Some(shape) = SHAPES.iter().find(|shape| shape.name == word) {
        return Ok(shape);
    }
    let names = SHAPES.iter().map(|shape| shape.name);
    Err(match nearest(word, names) {
        Some(near) => format!("unknown subcommand '{word}'; the nearest is {near}"),
        None => format!("unknown subcommand '{word}' (lepus perf --help lists them)"),
    })
}

fn misused(text: &str) -> ExitCode {
    to_stderr(format_args!("lepus perf: {text}"));
    ExitCode::from(MISUSED)
}

fn help(shape: Option<&Shape>) -> ExitCode {
    let text = match shape {
        Some(shape) => format!(
            "lepus perf {}: {}\n\n{}\n{}",
            shape.name,
            shape.summary,
            shape.lesson,
            describe(shape.groups)
        ),
        None => {
            let mut text = "lepus perf SUBCOMMAND OPTIONS: puts load on an AMQP 0-9-1 broker and measures it\n\n".to_owned();
            for shape in SHAPES {
                text.push_str(&format!("  {:<12}{}\n", shape.name, shape.summary));
            }
            text.push_str(
                "\nlepus perf SUBCOMMAND --help explains one of them. Options without a subcommand mean throughput:\n",
            );
            text.push_str(&describe(SHAPES[0].groups));
            text
        }
    };
    lepus_console::print(text);
    well()
}

/// The end of a run that did what was asked: a failure where its figures could not be written.
fn well() -> ExitCode {
    match lepus_console::outcome() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            to_stderr(format_args!("lepus perf: {text}"));
            ExitCode::from(FAILED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_the_shapes() {
        let names: Vec<&str> = SUBCOMMANDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["throughput", "loop", "fanout", "feed", "backlog", "filters", "churn", "idle", "sink"]
        );
    }

    #[test]
    fn a_mistyped_subcommand_is_answered_with_the_nearest() {
        let error = find_shape("troughput").err().unwrap();
        assert!(error.contains("nearest is throughput"), "{error}");
        assert!(find_shape("loop").is_ok());
    }
}
