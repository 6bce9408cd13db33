//! Help.

use crate::command::{Call, Command, Group, Needs};
use crate::failure::{Failure, USAGE};
use crate::help;
use crate::output::Output;
use crate::program::Program;

const MOST: &[Program] = &[
    Program::Ctl,
    Program::Diagnostics,
    Program::Plugins,
    Program::Queues,
    Program::Upgrade,
    Program::Streams,
];

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("autocomplete", Group::Help, (0, crate::command::MANY), complete)
        .told("<command prefix>", "Provides command name autocomplete variants")
        .of(MOST)
        .needs(Needs::Nothing),
    Command::new("help", Group::Help, (0, 1), show)
        .told("<command>", "Displays usage information for a command")
        .of(MOST)
        .needs(Needs::Nothing),
    Command::new("version", Group::Help, (0, 0), version)
        .told("", "Displays CLI tools version")
        .of(MOST)
        .needs(Needs::Nothing),
];

fn complete(call: &mut Call<'_>) -> Result<Output, Failure> {
    let prefix = call.words.last().cloned().unwrap_or_default();
    let mut names: Vec<&str> = help::commands_of(call.table, call.program)
        .map(|command| command.name)
        .filter(|name| name.starts_with(&prefix))
        .collect();
    names.sort_unstable();
    Ok(Output::Raw(names.iter().map(|name| format!("{name}\n")).collect()))
}

fn show(call: &mut Call<'_>) -> Result<Output, Failure> {
    let Some(name) = call.words.first() else {
        return Ok(Output::Raw(help::overview(call.table, call.program)));
    };
    let found = help::commands_of(call.table, call.program).find(|known| known.name == name);
    match found {
        Some(command) => Ok(Output::Raw(help::of(command, call.program))),
        None => {
            let text = format!("\nCommand '{name}' not found.");
            Err(Failure::new(USAGE, text))
        }
    }
}

fn version(_: &mut Call<'_>) -> Result<Output, Failure> {
    Ok(Output::Text(env!("CARGO_PKG_VERSION").to_owned()))
}
