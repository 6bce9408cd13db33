//! `lepus-bench`: measures `lepus` beside other brokers and beside the floor that any broker stands on.

mod agree;
mod backlog;
mod callgrind;
mod core_drive;
mod costs;
mod counters;
mod curves;
mod filters;
mod idle;
mod instructions;
mod large;
mod management;
mod measure;
mod nats_load;
mod null_broker;
mod null_relay;
mod numa_model;
mod place;
mod relay_load;
mod run;
mod sheet;
mod table;
mod tls_churn;
mod words;
mod workload;

use crate::call::absolute;
use crate::subject::Kind;
use crate::terminal::{say, say_line};
use clap::Parser;
use core_drive::DRIVES;
use lepus_perf::to_stderr;
use place::Place;
use run::Plan;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Instant;
use words::{Command, Words};

/// Runs `lepus-bench WORDS`. Standard output gets the tables, standard error the progress.
///
/// 0: what was asked for was measured; 1: it could not be, a limit was passed, or the words cannot be meant.
#[must_use]
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let outcome = match Words::try_parse_from(words) {
        Ok(words) => carry_out(words.command),
        Err(error) if !error.use_stderr() => {
            say(&format!("{error}"));
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            to_stderr(format_args!("{}", text.trim_end()));
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> Result<(), String> {
    let done: io::Result<()> = match command {
        Command::Run { rounds, workloads, brokers, places } => {
            let (place, load) = places.prepare()?;
            let (workloads, brokers) = (workloads.0, brokers.0);
            run::run(&Plan { rounds, workloads, brokers, place, load })
        }
        Command::Backlog { list: Some(_), .. } => {
            backlog::list();
            Ok(())
        }
        Command::Backlog { words, places, .. } => {
            backlog::run(&backlog::Plan::new(words, places.prepare()?)?)
        }
        Command::Curves { list: Some(_), .. } => {
            curves::list();
            Ok(())
        }
        Command::Curves { words, places, .. } => {
            curves::run(&curves::Plan::new(words, places.prepare()?)?)
        }
        Command::Filters { words, places } => {
            filters::run(&filters::Plan::new(words, places.prepare()?)?)
        }
        Command::Endurance { words, places } => {
            backlog::endure(&backlog::EndurancePlan::new(words, places.prepare()?)?)
        }
        Command::Agree { rounds, broker, places } => {
            let (place, load) = places.prepare()?;
            let fits = agree::run(&agree::Plan { rounds, broker, place, load });
            return hold(fits, "the testers are more than a tenth apart");
        }
        Command::Costs { counting, places } => {
            let (place, load) = places.prepare()?;
            costs::run(&costs::Plan { place, load, counting: absolute(counting)? })
        }
        Command::Instructions { record, file, scratch } => {
            return hold(
                instructions::run(&file, &scratch, record == "yes"),
                "a ceiling was passed",
            );
        }
        Command::Idle { crowd, places } => idle::run(crowd, &places.prepare()?.0),
        Command::Large { message, places } => large::run(message, &places.prepare()?.0),
        Command::Management { objects, places } => {
            let (place, load) = places.prepare()?;
            management::run(objects, &place, &load)
        }
        Command::TlsChurn { churn, places } => tls_churn::run(churn, &places.prepare()?.0),
        Command::Drive { load, messages } => return drive(&load, messages),
        Command::NumaModel { results } => {
            let place = Place::without_brokers(&absolute(results)?);
            place.and_then(|place| numa_model::run(&place))
        }
        Command::List => {
            list();
            Ok(())
        }
        Command::NullBroker { port, metrics_port } => null_broker::run(port, metrics_port),
        Command::NullRelay { port, metrics_port } => null_relay::run(port, metrics_port),
        Command::Append { file, count } => backlog::append(&file, count),
        Command::NullPersister { port, file, count } => backlog::null_persister(port, &file, count),
        Command::Echo { port, count } => backlog::echo(port, count),
        Command::Seed { port, queues, messages } => backlog::seed(port, queues, messages),
        Command::RelayLoad { port, body_bytes, seconds } => {
            relay_load::run(port, usize::from(body_bytes), u64::from(seconds))
        }
        Command::NatsLoad { port, body_bytes, subscribers, seconds } => {
            nats_load::run(port, body_bytes.into(), subscribers.into(), seconds.into())
        }
    };
    done.map_err(|error| error.to_string())
}

/// What was measured and has to hold, or why it does not.
fn hold(outcome: io::Result<bool>, otherwise: &str) -> Result<(), String> {
    match outcome {
        Ok(true) => Ok(()),
        Ok(false) => Err(otherwise.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn drive(name: &str, messages: u64) -> Result<(), String> {
    let Some(drive) = core_drive::find(name) else {
        return Err(format!("there are the loads {}", DRIVES.map(|drive| drive.name).join(", ")));
    };
    let start = Instant::now();
    let driven = core_drive::run(drive, messages)?;
    let nanos = start.elapsed().as_nanos() as f64 / driven.messages as f64;
    say_line(format_args!(
        "{} messages, {nanos:.0} ns each, {} mails in {} batches of {} bytes",
        driven.messages, driven.mails, driven.batches, driven.mail_bytes
    ));
    Ok(())
}

fn list() {
    for workload in &workload::WORKLOADS {
        say_line(format_args!("{:14} {}", workload.name, workload.title));
    }
    say_line(format_args!("{}", Kind::ALL.map(Kind::name).join(" ")));
}
