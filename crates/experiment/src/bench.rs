//! `lepus-bench`: measures `lepus` beside other brokers and beside the floor that any broker stands on.

mod agree;
mod arguments;
mod backlog;
mod callgrind;
mod core_drive;
mod costs;
mod counters;
mod curves;
mod idle;
mod instructions;
mod large;
mod measure;
mod null_broker;
mod null_relay;
mod numa_model;
mod place;
mod relay_load;
mod run;
mod sheet;
mod table;
mod tls_churn;
mod workload;

use crate::stop::Stop;
use crate::subject::{Kind, Site};
use arguments::Arguments;
use core_drive::DRIVES;
use measure::{Load, SECONDS_MIN};
use place::Place;
use run::Plan;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use workload::Testers;

const USAGE: &str = "\
lepus-bench run [--rounds 5] [--seconds 10] [--workloads NAME,…] [--brokers NAME,…]
                [--core 0] [--load-core 1] [--lepus target/release/lepus] [--lepus-flags '…']
                [--lavinmq PATH, or the variable LAVINMQ: its binary, measured where it is named,
                with lavinmqperf as a tester where that lies beside it]
                [--jars build/reference-tester] [--results build/bench]
lepus-bench backlog [--rows NAME,…] [--scale 1.0] [--patience 900] and those of `run`
                but --rounds and --workloads; `lepus-bench backlog list` names the rows
lepus-bench curves [--curves NAME,…] [--brokers NAME,…] [--largest 100000] [--rounds 3] and of `run` from
                --core on: µs of CPU of an operation by the size of things; `lepus-bench curves list` names them
lepus-bench endurance [--endure 600] [--backlog-mb 5000] [--budget 512MiB] [--rate 30000]
                [--broker lepus] and the same of `run`
lepus-bench agree [--rounds 3] [--broker lepus] and those of `run` from --seconds on:
                whether `lepus perf` and the reference tester measure the same
lepus-bench costs [--counting target/counting/release/lepus] and those of `run` from --seconds on
lepus-bench instructions [--record yes] [--file bench/instructions.txt]
lepus-bench idle [--connections 1000] [--channels 10] [--queues 10000] [--idle 30]
                and of `run` --core, --lepus, --lepus-flags
lepus-bench large [--consumers 8] [--mib 128] and the same of `run`
lepus-bench tls-churn [--connects 2000] [--clients 4] [--staying 500] and the same of `run`
lepus-bench drive LOAD MESSAGES                  sends messages through the core, without sockets
lepus-bench numa-model                           what locality is worth on the machines of experiment E1
lepus-bench list                                 the loads and brokers by name
lepus-bench null-broker PORT METRICS_PORT        the broker that does next to nothing
lepus-bench null-relay PORT METRICS_PORT         copies frames from PORT to PORT + 1
lepus-bench append FILE COUNT                    64 KiB appends with fdatasync
lepus-bench null-persister PORT FILE COUNT       writes and syncs 1 KiB for each answer
lepus-bench echo PORT COUNT                      loads the null persister
lepus-bench seed PORT QUEUES MESSAGES            durable queues with so many messages each
lepus-bench relay-load PORT BODY_BYTES SECONDS   loads the relay
";

/// Runs `lepus-bench WORDS`. Standard output gets the tables, standard error the progress.
///
/// 0: what was asked for was measured; 1: it could not be, a limit was passed, or the words cannot be meant.
#[must_use]
pub fn run(words: &[String]) -> ExitCode {
    if words.iter().any(|word| ["--help", "-h", "help"].contains(&word.as_str())) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let command = words.first().map_or("", String::as_str);
    let rest = words.get(1..).unwrap_or(&[]);
    let outcome = match command {
        "run" => measure_messages(rest),
        "backlog" => measure_backlog(rest),
        "curves" => measure_curves(rest),
        "endurance" => endure(rest),
        "append" | "null-persister" | "echo" | "seed" => carry(command, rest),
        "agree" => compare_testers(rest),
        "costs" => count_costs(rest),
        "instructions" => count_instructions(rest),
        "drive" => drive(rest),
        "numa-model" => model_nodes(rest),
        "idle" => measure_idle(rest),
        "large" => measure_large(rest),
        "tls-churn" => measure_tls_churn(rest),
        "list" => {
            list();
            Ok(())
        }
        "null-broker" => numbers(rest).and_then(|[port, metrics]| {
            null_broker::run(port, metrics).map_err(|error| error.to_string())
        }),
        "null-relay" => numbers(rest).and_then(|[port, metrics]| {
            null_relay::run(port, metrics).map_err(|error| error.to_string())
        }),
        "relay-load" => numbers(rest).and_then(|[port, bytes, seconds]| {
            relay_load::run(port, usize::from(bytes), u64::from(seconds))
                .map_err(|error| error.to_string())
        }),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{}", text.trim_end());
            ExitCode::FAILURE
        }
    }
}

fn measure_messages(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let (place, load, results) = places(&mut arguments)?;
    let plan = Plan {
        rounds: arguments.take("rounds", 5)?,
        workloads: arguments.take_list("workloads")?,
        brokers: arguments.take_list("brokers")?,
        place,
        load,
        results,
    };
    arguments.finish()?;
    run::run(&plan).map_err(|error| error.to_string())
}

fn measure_backlog(words: &[String]) -> Result<(), String> {
    if words == ["list"] {
        backlog::list();
        return Ok(());
    }
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let places = places(&mut arguments)?;
    let plan = backlog::Plan::read(&mut arguments, places)?;
    arguments.finish()?;
    backlog::run(&plan).map_err(|error| error.to_string())
}

fn measure_curves(words: &[String]) -> Result<(), String> {
    if words == ["list"] {
        curves::list();
        return Ok(());
    }
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let (place, load, results) = places(&mut arguments)?;
    let plan = curves::Plan::read(&mut arguments, place, load.core, results)?;
    arguments.finish()?;
    curves::run(&plan).map_err(|error| error.to_string())
}

fn endure(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let places = places(&mut arguments)?;
    let plan = backlog::EndurancePlan::read(&mut arguments, places)?;
    arguments.finish()?;
    backlog::endure(&plan).map_err(|error| error.to_string())
}

fn compare_testers(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let (place, load, _) = places(&mut arguments)?;
    let plan = agree::Plan {
        rounds: arguments.take("rounds", 3)?,
        broker: arguments.take("broker", "lepus".to_owned())?,
        place,
        load,
    };
    arguments.finish()?;
    match agree::run(&plan) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the testers are more than a tenth apart".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The parts of the backlog's rows that are programs of their own.
fn carry(command: &str, words: &[String]) -> Result<(), String> {
    let number = |at: usize| -> Result<u64, String> {
        words.get(at).and_then(|word| word.parse().ok()).ok_or(USAGE.to_owned())
    };
    let port = || u16::try_from(number(0)?).map_err(|_| USAGE.to_owned());
    let path = |at: usize| words.get(at).map(PathBuf::from).ok_or(USAGE.to_owned());
    let outcome = match command {
        "append" => backlog::append(&path(0)?, number(1)? as usize),
        "null-persister" => backlog::null_persister(port()?, &path(1)?, number(2)?),
        "echo" => backlog::echo(port()?, number(1)?),
        _ => backlog::seed(port()?, number(1)? as usize, number(2)?),
    };
    outcome.map_err(|error| error.to_string())
}

fn count_costs(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let (place, load, _) = places(&mut arguments)?;
    let counting = take_path(&mut arguments, "counting", "target/counting/release/lepus")?;
    arguments.finish()?;
    let plan = costs::Plan { place, load, counting };
    costs::run(&plan).map_err(|error| error.to_string())
}

/// What all commands that start a broker are told: the broker's side, the tester's, and where
/// results go.
fn places(arguments: &mut Arguments) -> Result<(Place, Load, PathBuf), String> {
    let lepus = take_path(arguments, "lepus", "target/release/lepus")?;
    let results = take_path(arguments, "results", "build/bench")?;
    let mut site = Site::new(lepus.clone());
    site.bench = std::env::current_exe().map_err(|error| error.to_string())?;
    let lavinmq: String = arguments.take("lavinmq", String::new())?;
    if !lavinmq.is_empty() {
        site.lavinmq = Some(std::path::absolute(lavinmq).map_err(|error| error.to_string())?);
    }
    site.flags = arguments.take_list("lepus-flags")?;
    site.scratch = results.join("scratch");
    let beside = site.lavinmq.as_ref().map(|path| path.with_file_name("lavinmqperf"));
    let stop = Stop::on_signals().map_err(|error| error.to_string())?;
    let place = Place { site, core: arguments.take("core", 0)?, stop };
    let testers = Testers {
        lepus,
        jars: arguments.take("jars", "build/reference-tester".into())?,
        lavinmqperf: beside.filter(|path| path.exists()),
    };
    let load = Load {
        testers,
        core: arguments.take("load-core", 1)?,
        seconds: arguments.take("seconds", 10)?.max(SECONDS_MIN),
        errors: results.join("tester.log"),
    };
    Ok((place, load, results))
}

/// A path, made absolute: what is started may have another working directory.
fn take_path(arguments: &mut Arguments, name: &str, preset: &str) -> Result<PathBuf, String> {
    let path: PathBuf = arguments.take(name, preset.into())?;
    std::path::absolute(path).map_err(|error| error.to_string())
}

fn count_instructions(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let record: String = arguments.take("record", "no".to_owned())?;
    let file: PathBuf = arguments.take("file", "bench/instructions.txt".into())?;
    let scratch: PathBuf = arguments.take("scratch", "build/bench/scratch".into())?;
    arguments.finish()?;
    match instructions::run(&file, &scratch, record == "yes") {
        Ok(true) => Ok(()),
        Ok(false) => Err("a ceiling was passed".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn model_nodes(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let scratch: PathBuf = arguments.take("scratch", "build/bench/scratch".into())?;
    arguments.finish()?;
    numa_model::run(&scratch).map_err(|error| error.to_string())
}

fn measure_idle(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let (place, _, _) = places(&mut arguments)?;
    let plan = idle::Crowd::read(&mut arguments)?;
    arguments.finish()?;
    idle::run(plan, &place).map_err(|error| error.to_string())
}

fn measure_large(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let (place, _, _) = places(&mut arguments)?;
    let plan = large::LargeMessage::read(&mut arguments)?;
    arguments.finish()?;
    large::run(plan, &place).map_err(|error| error.to_string())
}

fn measure_tls_churn(words: &[String]) -> Result<(), String> {
    let mut arguments = Arguments::read(words.iter().cloned())?;
    let (place, _, _) = places(&mut arguments)?;
    let plan = tls_churn::Churn::read(&mut arguments)?;
    arguments.finish()?;
    tls_churn::run(plan, &place).map_err(|error| error.to_string())
}

fn drive(words: &[String]) -> Result<(), String> {
    let [name, messages] = words else {
        return Err(USAGE.to_owned());
    };
    let (Some(drive), Ok(messages)) = (core_drive::find(name), messages.parse()) else {
        let names = DRIVES.map(|drive| drive.name).join(", ");
        return Err(format!("there are the loads {names}, and a number of messages"));
    };
    let start = Instant::now();
    let driven = core_drive::run(drive, messages)?;
    let nanos = start.elapsed().as_nanos() as f64 / driven.messages as f64;
    println!(
        "{} messages, {nanos:.0} ns each, {} mails in {} batches of {} bytes",
        driven.messages, driven.mails, driven.batches, driven.mail_bytes
    );
    Ok(())
}

fn list() {
    for workload in &workload::WORKLOADS {
        println!("{:14} {}", workload.name, workload.title);
    }
    println!("{}", Kind::ALL.map(Kind::name).join(" "));
}

fn numbers<const N: usize>(words: &[String]) -> Result<[u16; N], String> {
    let numbers: Vec<u16> = words.iter().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| USAGE.to_owned())
}
