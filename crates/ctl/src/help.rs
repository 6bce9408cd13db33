//! Help, made of the table of commands.

use crate::command::{Command, GROUPS};
use crate::options::Follows;
use crate::output::bold;
use crate::program::Program;

const GENERAL: &str = "\
The following options are accepted by most or all commands.

short            | long          | description
-----------------|---------------|--------------------------------
-?               | --help        | displays command help
-n <node>        | --node <node> | connect to node <node>
-l               | --longnames   | use long host names
-t               | --timeout <n> | for commands that support it, operation timeout in seconds
-q               | --quiet       | suppress informational messages
-s               | --silent      | suppress informational messages
                                 | and table header row
-p               | --vhost       | for commands that are scoped to a virtual host,
                 |               | virtual host to use
                 | --formatter   | alternative result formatter to use
                                 | if supported: json, pretty_table, table, csv, erlang
                                   not all commands support all (or any) alternative formatters.
";

/// The commands that a program has.
pub fn commands_of(
    table: &[&'static Command],
    program: Program,
) -> impl Iterator<Item = &'static Command> {
    table.iter().copied().filter(move |command| command.programs.contains(&program))
}

/// All commands of a program, by group.
#[must_use]
pub fn overview(table: &[&'static Command], program: Program) -> String {
    let mut text = format!(
        "\n{}\n\n{} [--node <node>] [--timeout <timeout>] [--longnames] [--quiet] <command> [<command \
         options>]\n\nAvailable commands:\n",
        bold("Usage"),
        program.name()
    );
    let width = commands_of(table, program).map(|command| command.name.len()).max().unwrap_or(0);
    for (group, name) in GROUPS {
        let mut commands: Vec<&Command> =
            commands_of(table, program).filter(|command| command.group == group).collect();
        if commands.is_empty() {
            continue;
        }
        commands.sort_by_key(|command| command.name);
        text.push_str(&format!("\n{}:\n\n", bold(name)));
        for command in commands {
            text.push_str(&format!("   {:width$}  {}\n", command.name, command.about));
        }
    }
    let name = program.name();
    text.push_str(&format!(
        "\nUse '{name} help <command>' to learn more about a specific command\n"
    ));
    text
}

/// The help of one command.
#[must_use]
pub fn of(command: &Command, program: Program) -> String {
    let about = command.about.trim_end_matches('.');
    let mut text =
        format!("\n{}\n\n{}\n\n{about}.\n\n", bold("Usage"), command.usage_line(program));
    let mut options: Vec<(String, String)> = Vec::new();
    if command.words.1 == crate::command::MANY && !command.columns.is_empty() {
        let mut names: Vec<&str> = command.columns.iter().map(|column| column.name).collect();
        names.sort_unstable();
        options.push(("<column>".to_owned(), format!("must be one of {}", names.join(", "))));
    }
    for flag in command.flags {
        let value = if flag.value == Follows::Switch { "" } else { " <value>" };
        options.push((format!("--{}{value}", flag.name), flag.about.to_owned()));
    }
    if !options.is_empty() {
        text.push_str(&format!("\n{}\n\n", bold("Arguments and Options")));
        for (name, about) in options {
            text.push_str(&format!("{name}\n\t{about}\n\n"));
        }
    }
    text.push_str(&format!("\n{}\n\n{GENERAL}", bold("General Options")));
    text
}
