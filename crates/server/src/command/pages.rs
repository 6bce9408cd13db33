//! The command line described for other programs: completion for shells, pages for man.

use super::Words;
use crate::config::{Kind, SETTINGS};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::Path;
use std::{fs, io};

/// What `shell` reads to complete the commands of `lepus`.
#[must_use]
pub fn completions(shell: Shell) -> String {
    let mut out = Vec::new();
    let mut command = with_values(with_loads(Words::command()));
    clap_complete::generate(shell, &mut command, "lepus", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The page for man of the command with these words.
///
/// # Errors
/// When there is no such command.
pub fn page(words: &[String]) -> Result<String, String> {
    let top = described();
    let mut command = &top;
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            format!("there is no command `{}`; `lepus --help` lists what there is", words.join(" "))
        })?;
    }
    let page = render(command).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Writes the pages of all commands into `directory`: `lepus.1`, `lepus-user-add.1` and so on.
///
/// # Errors
/// When one cannot be written.
pub fn write_pages(directory: &Path) -> io::Result<()> {
    write_below(&described(), directory)
}

fn write_below(command: &Command, directory: &Path) -> io::Result<()> {
    fs::write(directory.join(format!("{}.1", full_name(command))), render(command)?)?;
    command.get_subcommands().try_for_each(|below| write_below(below, directory))
}

/// All commands, each with its name from the top.
fn described() -> Command {
    let mut top = without_help(with_loads(Words::command()));
    top.build();
    top
}

/// The same with the loads of `lepus perf` and their options, which are read elsewhere.
fn with_loads(command: Command) -> Command {
    command.mut_subcommand("perf", |perf| {
        lepus_perf::SUBCOMMANDS.iter().fold(perf, |perf, (name, about)| {
            let load = Command::new(*name).about(*about);
            perf.subcommand(lepus_perf::options_of(name).fold(load, |load, option| {
                let arg = Arg::new(option.long).long(option.long).help(option.help);
                let arg = option.short.into_iter().fold(arg, Arg::short);
                load.arg(match option.value {
                    Some(value) => arg.value_name(value),
                    None => arg.action(ArgAction::SetTrue),
                })
            }))
        })
    })
}

/// The same with the words that settings and `man` take. They are for completion alone: what is wrong with a value is said
/// where it is read.
fn with_values(command: Command) -> Command {
    let commands: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = command.mut_subcommand("man", |man| {
        man.mut_arg("command", |arg| arg.value_parser(PossibleValuesParser::new(commands)))
    });
    ["serve", "config"].into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |command| {
            SETTINGS.iter().fold(command, |command, setting| {
                let words: &[&str] = match setting.kind {
                    Kind::Choice(words) => words,
                    Kind::Switch => &["true", "false"],
                    _ => return command,
                };
                setting.flags().fold(command, |command, flag| {
                    let name = flag.trim_start_matches('-').to_owned();
                    let values = PossibleValuesParser::new(words.iter().copied());
                    command.mut_arg(name, |arg| arg.value_parser(values))
                })
            })
        })
    })
}

/// The same without the commands `help` that are made up for each that has others: pages are help already.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// `lepus-user-add`
fn full_name(command: &Command) -> String {
    command.get_display_name().unwrap_or("lepus").to_owned()
}

/// What stands behind the name at the top of a page: part of a sentence, as `apropos` shows it.
fn summary(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let first = command.get_subcommands().next().map(Command::get_name);
    // Groups of orders are described by what is in them.
    if first.is_some_and(|first| about.starts_with(&format!("{first}, "))) {
        return format!("orders to the running broker: {about}");
    }
    let mut letters = about.trim_end_matches('.').chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn render(command: &Command) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    // The description below it is a sentence of its own.
    let long = command.get_long_about().or(command.get_about()).cloned().unwrap_or_default();
    let about = summary(command);
    let man = Man::new(command.clone().name(full_name(command)).about(about).long_about(long));
    man.source(concat!("lepus ", env!("CARGO_PKG_VERSION"))).render(&mut out)?;
    Ok(out)
}
