//! The server: configuration, start-up, the command line and the operator's orders.
//!
//! The binary `lepus` is [`run`]; everything else is here so that it can be tested.
#![forbid(unsafe_code)]

pub mod api;
pub mod audit;
pub mod changed;
pub mod command;
pub mod config;
pub mod control;
pub mod ctl;
pub mod data_dir;
pub mod definitions;
pub mod figures;
pub mod flags;
pub mod initial;
pub mod last_words;
pub mod lock;
pub mod log;
pub mod notice;
pub mod operation;
pub mod order;
pub mod password;
mod placement;
pub mod profile;
pub mod random;
pub mod secrets;
pub mod serve;
mod shard_logs;
pub mod show;
pub mod signal;
pub mod store;
pub mod topology;

use command::{Command, ConfigCommand, OrderCall};
use config::Config;
use flags::Settings;
use lepus_console::to_stderr;
use std::ffi::OsString;
use std::process::ExitCode;

/// The exit code for a command line or configuration that is not accepted.
const WRONG_CALL: u8 = 2;

/// Runs what the first word, the name it was started under, says: `lepus`, or one of RabbitMQ's tools.
#[must_use]
pub fn start(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut words = words.into_iter();
    let name = words.next().unwrap_or_default();
    let name = name.to_string_lossy();
    match lepus_ctl::Program::of(&name) {
        Some(program) => ctl::run(program, words.collect()),
        None if name.rsplit('/').next() == Some("rabbitmq-server") => {
            run(std::iter::once(OsString::from("serve")).chain(words))
        }
        None => run(words),
    }
}

/// Runs `lepus` with the words behind the program's name.
///
/// 0: it went well; 1: it failed, and standard error says why; 2: the call or the configuration is
/// not accepted. RabbitMQ's tools have codes of their own. Standard output that cannot be written is a failure, unless its
/// reader went away.
#[must_use]
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = match command::parse(words) {
        Ok(command) => command,
        Err(error) if error.use_stderr() => {
            to_stderr(format_args!("{}", error.to_string().trim_end()));
            return ExitCode::from(WRONG_CALL);
        }
        Err(help) => return print(&help.to_string()),
    };
    match command {
        Command::Perf { words } => lepus_perf::run(words.into_iter()),
        Command::Ctl { words } => ctl::run_words(words),
        Command::Experiment(words) => lepus_experiment::run(*words),
        Command::Tune(words) => lepus_experiment::tune::run(*words),
        Command::Completions { shell } => print(&command::completions(shell)),
        Command::Man { all: Some(directory), .. } => match command::write_pages(&directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                failed(&format!("cannot write pages to {}: {error}", directory.display()))
            }
        },
        Command::Man { command, .. } => match command::page(&command) {
            Ok(page) => print(&page),
            Err(text) => wrong(&text),
        },
        Command::Version => print(concat!("lepus ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Config { instead: Some(ConfigCommand::Document), .. } => {
            print(&config::document::markdown())
        }
        Command::HashPassword { password } => match password::hash(password) {
            Ok(hash) => print(&format!("{hash}\n")),
            Err(text) => failed(&text),
        },
        Command::Config { settings, .. } => configured(settings, |config| Ok(config.to_toml())),
        Command::Serve(settings) => match settings.load() {
            Ok(config) => match serve::serve(&config) {
                Ok(()) => ExitCode::SUCCESS,
                Err(text) => {
                    last_words::say(&format!("lepus: {text}"));
                    ExitCode::FAILURE
                }
            },
            Err(text) => wrong(&text),
        },
        Command::Store(call) => store::run(&call),
        Command::Topology(call) => {
            configured(call.settings(), |config| topology::run(&call, config))
        }
        Command::Profile(call) => {
            configured(call.broker.settings(), |config| profile::run(&call, config))
        }
        Command::Order(call) => configured(call.settings.clone(), |config| carry_out(call, config)),
    }
}

/// Prints what a command makes of a configuration that is accepted.
fn configured(settings: Settings, act: impl FnOnce(&Config) -> Result<String, String>) -> ExitCode {
    match settings.load() {
        Ok(config) => match act(&config) {
            Ok(text) => print(&text),
            Err(text) => failed(&text),
        },
        Err(text) => wrong(&text),
    }
}

/// Prints to standard output; a reader that went away is no failure.
fn print(text: &str) -> ExitCode {
    lepus_console::print(text);
    match lepus_console::outcome() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => failed(&text),
    }
}

fn failed(text: &str) -> ExitCode {
    to_stderr(format_args!("lepus: {text}"));
    ExitCode::FAILURE
}

fn wrong(text: &str) -> ExitCode {
    for line in text.lines() {
        to_stderr(format_args!("lepus: {line}"));
    }
    ExitCode::from(WRONG_CALL)
}

/// Sends an order to the running broker and gives its answer as text.
fn carry_out(call: OrderCall, config: &Config) -> Result<String, String> {
    let mut request = serde_json::Map::new();
    request.insert("order".to_owned(), call.order.words.into());
    let mut password = None;
    for (name, value) in call.values {
        if name == order::PASSWORD.name {
            password = Some(value);
        } else {
            request.insert(name.to_owned(), value.into());
        }
    }
    if call.order.password {
        if password.is_some() {
            to_stderr(format_args!(
                "lepus: other users of this machine can read a command line, and the password in \
                 it; without --password it is asked for, or read from standard input"
            ));
        }
        request.insert("password_hash".to_owned(), password::hash(password)?.into());
    }
    let answer = control::ask_table(&config.control_socket(), &request.into());
    let answer = answer.map_err(|error| error.to_string())?;
    Ok(if call.json { show::json(&answer) } else { show::text(&answer) })
}
