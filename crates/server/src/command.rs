//! The command line: words in, one [`Command`] out, or a text that says what would be right.

mod orders;
mod pages;

pub use orders::OrderCall;
pub use pages::{completions, page, write_pages};

use crate::flags::Settings;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;

/// Columns of the help at most.
const WIDTH: usize = 100;

/// The help of `lepus` alone: how to start it comes before what else there is.
const TOP: &str = "\
lepus {version}: {about}

Start it and try it:
  lepus serve                                 starts the broker on port 5672, data in ./data
  lepus perf throughput                       measures it from a second terminal
  lepus user add shop                         adds a user; the password is asked for
  lepus permission set shop '.*' '.*' '.*'    and lets it do everything in virtual host /

{usage-heading} {usage}

{all-args}

status, user, vhost, permission and list are orders to the running broker, found by its data directory
(--data-dir). `lepus help COMMAND` tells more.
";

const SERVE: &str = "\
Examples:
  lepus serve                                            data in ./data, AMQP on 5672, metrics on 15692
  lepus serve --data-dir /var/lib/lepus --shards 4       another directory, four shards
  lepus serve --listen 127.0.0.1:5672                    only for clients on this machine
  lepus serve --tls-certificate s.pem --tls-key s.key    AMQP over TLS on 5671 as well
  lepus serve --placement nodes=!0                       no shard on memory node 0
  lepus serve --config lepus.toml                        settings from a file
  LEPUS_SHARDS=2 lepus serve                             or from the environment";

const CONFIG: &str = "\
Examples:
  lepus config > lepus.toml                   a file with every key to start from
  lepus config --config lepus.toml            says what is wrong with a file, or what it means";

const COMPLETIONS: &str = "\
Examples:
  lepus completions bash > ~/.local/share/bash-completion/completions/lepus
  lepus completions zsh > \"${fpath[1]}/_lepus\"
  lepus completions fish > ~/.config/fish/completions/lepus.fish";

const MAN: &str = "\
Examples:
  lepus man | man -l -                        reads the page of lepus
  lepus man user add | man -l -               that of one command
  lepus man --all /usr/local/share/man/man1   installs all of them";

/// a message broker for AMQP 0-9-1 that fits itself to the machine it runs on.
#[derive(Debug, Parser)]
#[command(
    name = "lepus",
    version,
    verbatim_doc_comment,
    help_template = TOP,
    max_term_width = WIDTH,
    args_override_self = true
)]
struct Words {
    #[command(subcommand)]
    command: Command,
}

/// What the command line asks for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Starts the broker and runs it until it is told to stop
    ///
    /// SIGTERM or Ctrl-C stops, also while the broker starts: clients are told and get time to leave (--stop-timeout); a second
    /// one stops at once. SIGHUP reads the TLS certificate again.
    ///
    /// A setting stands in the file under its key, in the environment as LEPUS_ and the key in capitals (limits.frame_max:
    /// LEPUS_LIMITS_FRAME_MAX), or here as a flag. Flags win over the environment, the environment over the file.
    #[command(after_help = SERVE, next_line_help = true)]
    Serve(Settings),
    /// Checks the configuration and prints what is in force, as a file
    #[command(after_help = CONFIG, next_line_help = true, args_conflicts_with_subcommands = true)]
    Config {
        /// Instead of that.
        #[command(subcommand)]
        instead: Option<ConfigCommand>,
        /// As of `lepus serve`.
        #[command(flatten)]
        settings: Settings,
    },
    /// Measures brokers: lepus itself or any other for AMQP 0-9-1
    #[command(disable_help_flag = true)]
    Perf {
        /// See `lepus perf --help`
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Speaks the language of rabbitmqctl and its like
    ///
    /// `lepus ctl list_queues` is `rabbitmqctl list_queues`; a first word such as rabbitmq-diagnostics names another tool.
    /// Under the name of such a tool, by a link to it, the binary is that tool.
    #[command(disable_help_flag = true)]
    Ctl {
        /// See `lepus ctl help`
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<OsString>,
    },
    // A comment for the documentation would stand in the help instead of what the type says.
    #[expect(missing_docs)]
    Experiment(Box<lepus_experiment::Words>),
    #[expect(missing_docs)]
    Tune(Box<lepus_experiment::tune::Words>),
    /// Prints a password's hash for a definitions file
    ///
    /// The hash (salted SHA-256, base64) is for `password_hash` in a definitions file, where `hashing_algorithm` is
    /// rabbit_password_hashing_sha256.
    HashPassword {
        /// Read from standard input when left out, so that it does not end up in the shell's history
        password: Option<String>,
    },
    #[expect(missing_docs)]
    Topology(Box<crate::topology::Call>),
    #[expect(missing_docs)]
    Profile(Box<crate::profile::Call>),
    /// Checks, prints and repairs the files of a data directory
    #[command(subcommand)]
    Store(crate::store::Call),
    /// Prints what a shell needs to complete these commands
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Prints a page for man
    #[command(after_help = MAN)]
    Man {
        /// Of this command; of lepus when left out
        command: Vec<String>,
        /// Writes the pages of all commands into this directory
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        all: Option<PathBuf>,
    },
    /// Prints the version
    Version,
    /// An order to the running broker
    #[command(flatten)]
    Order(OrderCall),
}

/// What `lepus config` does instead.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Prints the table of all settings as Markdown
    Document,
}

/// Reads the words behind the program's name.
///
/// # Errors
/// What is wrong, or the help where that is asked for.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    match words.first().and_then(|word| word.to_str()) {
        None if words.is_empty() => words.push("--help".into()),
        // Its options are those of another program, which are read elsewhere.
        Some("perf") => {
            return Ok(Command::Perf { words: texts(&words, words[1..].iter())? });
        }
        Some("ctl") => return Ok(Command::Ctl { words: words.split_off(1) }),
        Some("help") if words.get(1).is_some_and(|word| word == "ctl") => {
            words.remove(1);
            return Ok(Command::Ctl { words });
        }
        Some("help") if words.get(1).is_some_and(|word| word == "perf") => {
            words.remove(1);
            return Ok(Command::Perf { words: texts(&words, words.iter())? });
        }
        _ => {}
    }
    let spoken = words.iter().skip(1).map(text).collect();
    let name = std::iter::once(OsString::from("lepus"));
    let parsed = Words::try_parse_from(name.chain(words.iter().cloned()));
    let mut command = parsed.map_err(|error| sensible(named(error, &words), &words))?.command;
    match &mut command {
        Command::Experiment(words) => words.spoken = spoken,
        Command::Tune(words) => words.spoken = spoken,
        _ => {}
    }
    Ok(command)
}

/// Some of `words`, which have to be text.
fn texts<'a>(
    words: &[OsString],
    some: impl Iterator<Item = &'a OsString>,
) -> Result<Vec<String>, clap::Error> {
    let texts: Option<_> = some.map(|word| word.to_str().map(str::to_owned)).collect();
    texts.ok_or_else(|| no_text(words))
}

/// The same with the argument that is no text.
fn named(error: clap::Error, words: &[OsString]) -> clap::Error {
    if error.kind() == ErrorKind::InvalidUtf8 { no_text(words) } else { error }
}

fn no_text(words: &[OsString]) -> clap::Error {
    let at = words.iter().position(|word| word.to_str().is_none()).unwrap_or_default();
    let word = words.get(at).cloned().unwrap_or_default();
    let before = at.checked_sub(1).and_then(|at| words.get(at));
    let place = before.map(|before| format!(" behind {before:?}")).unwrap_or_default();
    clap::Error::raw(ErrorKind::InvalidUtf8, format!("the argument {word:?}{place} is not UTF-8\n"))
}

/// The same without suggestions that only share some letters with what was said.
fn sensible(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    for (said, suggested) in [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ] {
        let Some(ContextValue::String(word)) = error.get(said).cloned() else { continue };
        let far = |name: &String| lepus_console::distance(&word, name);
        match error.remove(suggested) {
            Some(ContextValue::String(name)) if far(&name).is_some() => {
                error.insert(suggested, ContextValue::String(name));
            }
            Some(ContextValue::Strings(mut names)) => {
                names.retain(|name| far(name).is_some());
                names.sort_by_key(far);
                if !names.is_empty() {
                    error.insert(suggested, ContextValue::Strings(names));
                }
            }
            _ => {}
        }
    }
    // Behind `--` the word would be an argument by place, not the value of the option before it.
    let is_value = error.get(ContextKind::InvalidArg).is_some_and(|said| {
        words.windows(2).any(|pair| {
            let is_option = pair[0].to_str().is_some_and(|word| word.starts_with('-'));
            is_option && pair[1].to_str() == Some(&said.to_string())
        })
    });
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !(is_value && tip.to_string().contains("as a value, use")));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

#[cfg(test)]
mod tests;
