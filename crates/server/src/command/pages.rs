//! The command line described for other programs: completion for shells, pages for man.

use super::Words;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::Path;
use std::{fs, io};

/// What `shell` reads to complete the commands of `lepus`.
#[must_use]
pub fn completions(shell: Shell) -> String {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Words::command(), "lepus", &mut out);
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
    let mut top = without_help(Words::command());
    top.build();
    top
}

/// The same without the commands `help` that are made up for each that has others: pages are help already.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// `lepus-user-add`
fn full_name(command: &Command) -> String {
    command.get_display_name().unwrap_or("lepus").to_owned()
}

fn render(command: &Command) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let man = Man::new(command.clone().name(full_name(command)));
    man.source(concat!("lepus ", env!("CARGO_PKG_VERSION"))).render(&mut out)?;
    Ok(out)
}
