//! `lepus store`: the files of the logs looked at, listed and repaired, while no broker needs to
//! run.

mod check;
mod damaged;
mod drive;
mod dump;
mod known;
mod open;
mod orphans;
mod repair;

use clap::{Args, Subcommand};
use lepus_console::to_stderr;
use lepus_store::disk::{File, LogId};
use lepus_store::inspect;
use std::io::{BufWriter, Read, Write};
use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of a root that say something.
const ROOT_BYTES: u64 = 2 * inspect::ROOT_STRIDE_BYTES as u64;

/// Which files a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Files {
    /// The data directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Only this log: 0 has the definitions, n + 1 the messages of shard n
    #[arg(long, value_name = "N", value_parser = log)]
    pub log: Option<LogId>,
}

fn log(text: &str) -> Result<LogId, ParseIntError> {
    text.parse().map(LogId)
}

/// What becomes of orphaned or damaged messages, beside that they are listed.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Deed {
    /// Only messages of the queue that has, or had, this id
    #[arg(long, value_name = "ID")]
    pub queue: Option<u64>,
    /// Writes them to a new file, or damaged ones into a directory
    #[arg(long, value_name = "PATH")]
    pub export: Option<PathBuf>,
    /// Drops them; after the export, if there is one
    #[arg(long)]
    pub drop: bool,
}

const EXAMPLES: &str = "\
Examples:
  lepus store check /var/lib/lepus
  lepus store dump /var/lib/lepus --log 1 --segment 3 | grep 'queue 17'
  lepus store repair /var/lib/lepus --to /var/tmp/repaired
  lepus store orphans /var/lib/lepus --queue 17 --move-to //orders
  lepus store damaged /var/lib/lepus --export /var/tmp/damaged --drop";

/// One call of `lepus store`.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Call {
    /// Says what is there and what is damaged
    ///
    /// It only reads; of a running broker it may see a write that is not complete yet. It opens the logs as a start does
    /// and reads every message, names what is damaged by file and offset, says whether a start is refused, and ends
    /// with 1 if something is damaged.
    Check {
        /// Which.
        #[command(flatten)]
        files: Files,
    },
    /// Prints every record, one a line
    ///
    /// It only reads; of a running broker it may see a write that is not complete yet.
    Dump {
        /// Which.
        #[command(flatten)]
        files: Files,
        /// Only this segment's file
        #[arg(long, value_name = "S")]
        segment: Option<u32>,
    },
    /// Cuts damage out, so that the broker starts
    ///
    /// It works while no broker has the directory. What is damaged is gone afterwards. What the disk does not give may be
    /// whole and is never dropped: then a repair without --to drops nothing of that log and ends with 1. A copy has
    /// zeros there.
    Repair {
        /// Which.
        #[command(flatten)]
        files: Files,
        /// Leaves DIR as it is and repairs a copy here
        #[arg(long = "to", value_name = "COPY")]
        copy: Option<PathBuf>,
    },
    /// Lists messages whose queue is not defined
    ///
    /// It works while no broker has the directory. --export writes a JSON object a line, with properties (as in a content
    /// header) and body in base64; --drop after it drops only what was exported.
    Orphans {
        /// Which.
        #[command(flatten)]
        files: Files,
        /// What becomes of them.
        #[command(flatten)]
        deed: Deed,
        /// Puts them behind the messages of this queue, without the moments at which they were to expire
        #[arg(long, value_name = "VHOST/QUEUE", conflicts_with = "drop")]
        move_to: Option<String>,
    },
    /// Lists messages that cannot be read
    ///
    /// It works while no broker has the directory. Listed are messages that are in a queue, each with its places in the
    /// files and what is wrong there, and segments in which a start met damage that no queue knows of. A broker gives such
    /// messages to nobody and keeps them, and those segments.
    ///
    /// --export writes the bytes of each place to a file of its own, and damaged.jsonl beside them, a JSON object a
    /// line for each message of a queue, and for each segment; no file is written over. --drop takes them out of their
    /// queues, and lets go of the segments, so that their room comes free; what only the disk does not give stays, and it
    /// ends with 1.
    Damaged {
        /// Which.
        #[command(flatten)]
        files: Files,
        /// What becomes of them.
        #[command(flatten)]
        deed: Deed,
    },
}

/// Carries the call out. 1 if something is damaged or cannot be read.
#[must_use]
pub fn run(call: &Call) -> ExitCode {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let done = match call {
        Call::Check { files } => check::check(files, &mut out),
        Call::Dump { files, segment } => dump::dump(files, *segment, &mut out),
        Call::Repair { files, copy } => repair::repair(files, copy.as_deref(), &mut out),
        Call::Orphans { files, deed, move_to } => {
            orphans::orphans(files, deed, move_to.as_deref(), &mut out)
        }
        Call::Damaged { files, deed } => damaged::damaged(files, deed, &mut out),
    };
    let done = done.and_then(|is_good| out.flush().map(|()| is_good).map_err(Failure::Output));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        // A reader that went away is no failure.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Ok(false) => ExitCode::FAILURE,
        Err(Failure::Output(error)) => {
            to_stderr(format_args!("lepus: cannot write to standard output: {error}"));
            ExitCode::FAILURE
        }
        Err(Failure::Text(text)) => {
            to_stderr(format_args!("lepus: {text}"));
            ExitCode::FAILURE
        }
    }
}

/// Why a call ended early.
#[derive(Debug)]
enum Failure {
    /// Standard output does not take more.
    Output(std::io::Error),
    /// Text for the operator.
    Text(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Output(error)
    }
}

/// The files of one log.
#[derive(Debug)]
struct LogFiles {
    id: LogId,
    /// With their lengths, sorted.
    files: Vec<(File, u64)>,
}

impl LogFiles {
    /// Whether the log has this file.
    fn has(&self, file: File) -> bool {
        self.files.iter().any(|(found, _)| *found == file)
    }

    /// Slots of segments.
    fn segments(&self) -> impl Iterator<Item = u32> {
        self.files.iter().filter_map(|(file, _)| match file {
            File::Segment(_, slot) => Some(*slot),
            _ => None,
        })
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Text(format!("cannot read {}: {error}", path.display()))
}

/// The logs below a directory that the call is about, at least one.
fn logs(directory: &Path, only: Option<LogId>) -> Result<Vec<LogFiles>, Failure> {
    let logs = logs_below(directory, only)?;
    if logs.is_empty() {
        let text = match only {
            Some(only) => format!("there is no {only} in {}", directory.display()),
            None => format!("there is no log in {}", directory.display()),
        };
        return Err(Failure::Text(text));
    }
    Ok(logs)
}

/// The logs below a directory, or the one with this id.
fn logs_below(directory: &Path, only: Option<LogId>) -> Result<Vec<LogFiles>, Failure> {
    let failed = |error| unreadable(directory, &error);
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // Any file's path tells whether the directory is a log's.
        let name = name.to_string_lossy();
        let Ok(File::Root(id)) = format!("{name}/root").parse() else { continue };
        if only.is_some_and(|only| only != id) {
            continue;
        }
        let path = directory.join(&*name);
        let failed = |error| unreadable(&path, &error);
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let file = format!("{name}/{}", entry.file_name().to_string_lossy());
            if let Ok(file) = file.parse() {
                files.push((file, entry.metadata().map_err(failed)?.len()));
            }
        }
        files.sort_unstable();
        logs.push(LogFiles { id, files });
    }
    logs.sort_by_key(|log| log.id);
    Ok(logs)
}

/// The bytes of a file, `most` of them.
fn read(directory: &Path, file: File, most: u64) -> Result<Vec<u8>, Failure> {
    read_if_there(directory, file, most)
        .map_err(|error| unreadable(&directory.join(file.to_string()), &error))
}

fn read_if_there(directory: &Path, file: File, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(directory.join(file.to_string()))?;
    opened.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    /// What stands in the place of a file may be as long as the disk.
    #[test]
    fn no_more_of_a_file_is_read_than_says_something() {
        let scratch = Scratch::new("store-long");
        let log = LogId(1);
        std::fs::create_dir(scratch.path().join(log.to_string())).unwrap();
        let path = scratch.path().join(File::Root(log).to_string());
        std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
        let bytes = read(scratch.path(), File::Root(log), ROOT_BYTES).unwrap();
        assert_eq!(bytes.len(), 8192);
        assert!(bytes.capacity() < 1 << 16, "{}", bytes.capacity());
    }
}
