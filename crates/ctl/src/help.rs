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

/// The name among those that is most like the one given, if one is like it at all.
#[must_use]
pub fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &str| distance(given, name);
    let found = names.map(|name| (likeness(name), name)).min()?;
    let allowed = (given.chars().count() / 2).clamp(1, 10);
    (found.0 <= allowed).then_some(found.1)
}

/// How many letters must be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    const LETTERS_MAX: usize = 64;
    let one: Vec<char> = one.chars().take(LETTERS_MAX).collect();
    let other: Vec<char> = other.chars().take(LETTERS_MAX).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, theirs) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != theirs);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}
