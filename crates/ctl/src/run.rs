//! From a command line to what is printed.

use crate::admin;
use crate::api::{Api, path};
use crate::command::{Call, Command, MANY, Needs, check_columns};
use crate::failure::{Failure, TIMEOUT, USAGE};
use crate::families;
use crate::help;
use crate::options::Options;
use crate::output::{bold, write};
use crate::own;
use crate::program::Program;
use crate::term::safe;
use serde_json::Value;
use std::io::{BufRead, Write};
use std::time::Duration;

/// Carries out a command line, given without the program's name, and gives the exit code.
pub fn run(
    program: Program,
    arguments: &[String],
    api: &mut dyn Api,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> u8 {
    if program == Program::Admin {
        return admin::run(arguments, api, input, out, errors);
    }
    let (code, text) = match carry_out(program, arguments, api, input, out) {
        Ok(()) => return 0,
        Err(failure) => (failure.code, failure.text),
    };
    // Nobody is left to be told when standard error is closed.
    let _ = writeln!(errors, "{}", with_headings(&text));
    code
}

/// The text without control characters, but with headings in bold.
fn with_headings(text: &str) -> String {
    let (start, end) = ("\u{1b}[1m", "\u{1b}[0m");
    let parts =
        text.split(start).map(|part| part.split(end).map(safe).collect::<Vec<_>>().join(end));
    parts.collect::<Vec<_>>().join(start)
}

fn carry_out(
    program: Program,
    arguments: &[String],
    api: &mut dyn Api,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let table = families::all();
    let first = Options::read(arguments, &[]);
    if first.has("version") && first.words.is_empty() {
        return print(out, concat!(env!("CARGO_PKG_VERSION"), "\n"));
    }
    let command = find(&table, program, arguments)?;
    let mut options = Options::read(arguments, command.flags);
    if !options.words.is_empty() {
        options.words.remove(0);
    }
    if options.has("help") {
        return print(out, &help::of(command, program));
    }
    let with_usage = |failure: Failure| usage(failure, command, program, arguments);
    check(command, &options).map_err(with_usage)?;
    let words = std::mem::take(&mut options.words);
    let mut call = Call {
        program,
        command,
        table: &table,
        words,
        node: options.get("node").map_or_else(node_name, str::to_owned),
        options,
        state: Value::Null,
        api,
        input,
        out,
    };
    let text = one(&mut call).map_err(with_usage)?;
    print(call.out, &text)
}

/// What the command prints at last.
fn one(call: &mut Call<'_>) -> Result<String, Failure> {
    if call.options.get("timeout") == Some("0") {
        return Err(call.timed_out(0));
    }
    if let Some(seconds) = call.options.timeout() {
        call.api.set_patience(Duration::from_secs(seconds));
    }
    check_columns(call)?;
    prepare(call)?;
    if !call.command.banner.is_empty() {
        let banner = call.fill(call.command.banner);
        call.say(&banner);
    }
    let output = (call.command.run)(call)?;
    let options = &call.options;
    let formatter = options.formatter().unwrap_or(crate::output::Formatter::Table);
    let headers = !options.has("silent") && !options.has("no-table-headers");
    Ok(write(&output, formatter, headers, options.is_quiet(), &call.node))
}

/// Sees that the broker is in the state that the command needs, and learns the node's name.
fn prepare(call: &mut Call<'_>) -> Result<(), Failure> {
    if call.command.needs == Needs::Nothing {
        return Ok(());
    }
    let reply = call.api.call("GET", &path(own::STATE), None);
    let reply = reply.map_err(|error| call.unreachable(&error))?;
    if !reply.is_success() {
        // Whoever does not tell its state is asked all the same.
        return Ok(());
    }
    if call.options.get("node").is_none()
        && let Some(node) = reply.body["node"].as_str()
    {
        call.node = node.to_owned();
    }
    let runs = reply.body["running"] != false;
    call.state = reply.body;
    match call.command.needs == Needs::Running && !runs {
        true => Err(call.stopped()),
        false => Ok(()),
    }
}

/// The name of the node where the broker does not tell it.
fn node_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().split('.').next().unwrap_or("").to_owned();
    format!("rabbit@{}", if host.is_empty() { "localhost" } else { &host })
}

/// The command that is meant by the first word which is no flag's value.
fn find(
    table: &[&'static Command],
    program: Program,
    arguments: &[String],
) -> Result<&'static Command, Failure> {
    let options = Options::read(arguments, &[]);
    let Some(name) = options.words.first() else {
        let text = help::overview(table, program);
        return match options.has("help") {
            true => families_help(table),
            false => Err(Failure::plain(USAGE, text.trim_end())),
        };
    };
    let found = help::commands_of(table, program).find(|command| command.name == name);
    found.ok_or_else(|| {
        let names = help::commands_of(table, program).map(|command| command.name);
        let text = match lepus_console::nearest(name, names) {
            Some(near) => format!("\nCommand '{name}' not found. \nDid you mean '{near}'? \n"),
            None => {
                let overview = help::overview(table, program);
                format!("\nCommand '{name}' not found. \n{}", overview.trim_end())
            }
        };
        Failure::plain(USAGE, text)
    })
}

/// The command that shows the overview.
fn families_help(table: &[&'static Command]) -> Result<&'static Command, Failure> {
    let found = table.iter().copied().find(|command| command.name == "help");
    found.ok_or_else(|| Failure::plain(USAGE, "no help"))
}

fn check(command: &Command, options: &Options) -> Result<(), Failure> {
    if !options.wrong.is_empty() {
        let lines: Vec<String> =
            options.wrong.iter().map(|(flag, value)| format!("{flag} : {value}")).collect();
        let text = format!("Invalid options for this command:\n{}", lines.join("\n"));
        return Err(Failure::argument(USAGE, text));
    }
    if options.formatter().is_none() {
        let name = options.get("formatter").unwrap_or_default();
        let text = format!("Bad argument: formatter {name} is not known");
        return Err(Failure::argument(USAGE, text));
    }
    let count = options.words.len();
    let (least, most) = command.words;
    if count < least {
        Err(Failure::argument(USAGE, "not enough arguments."))
    } else if count > most && most != MANY {
        Err(Failure::argument(USAGE, "too many arguments."))
    } else {
        Ok(())
    }
}

/// Adds the arguments and the usage to a failure that asks for them. Passwords are not repeated.
fn usage(failure: Failure, command: &Command, program: Program, arguments: &[String]) -> Failure {
    if !failure.with_usage || failure.code == TIMEOUT {
        return failure;
    }
    let kept = match command.name {
        "add_user" | "authenticate_user" | "change_password" => 2,
        "hash_password" => 1,
        _ => usize::MAX,
    };
    // What stands behind the user's name may be a password.
    let behind = arguments.iter().position(|word| word == command.name).unwrap_or(0);
    let kept = behind.saturating_add(kept).min(arguments.len());
    let mut shown = arguments[..kept].join(" ");
    if kept < arguments.len() {
        shown.push_str(" ...");
    }
    let text = format!(
        "{}\nArguments given:\n\t{shown}\n\n{}\n\n{}",
        failure.text,
        bold("Usage"),
        command.usage_line(program)
    );
    Failure { text, ..failure }
}

/// Prints; a reader that went away is no failure.
fn print(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let text = format!("cannot write to standard output: {error}");
            Err(Failure::new(crate::failure::SOFTWARE, text))
        }
        _ => Ok(()),
    }
}
