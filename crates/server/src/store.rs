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

pub use orphans::Deed;

use crate::config::nearest::nearest;
use lepus_perf::to_stderr;
use lepus_store::disk::{File, LogId};
use lepus_store::inspect;
use lexopt::prelude::{Long, Short, Value};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of a root that say something.
const ROOT_BYTES: u64 = 2 * inspect::ROOT_STRIDE_BYTES as u64;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Say what is there and what is damaged.
    Check,
    /// Print records.
    Dump,
    /// Cut damage out.
    Repair,
    /// List messages of queues that nobody knows, or do something with them.
    Orphans,
    /// List messages that cannot be read, or do something with them.
    Damaged,
}

/// One call of `lepus store`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What to do.
    pub action: Action,
    /// The data directory.
    pub directory: PathBuf,
    /// Only this log.
    pub log: Option<LogId>,
    /// Only this segment's file.
    pub segment: Option<u32>,
    /// Where the repaired copy goes.
    pub copy: Option<PathBuf>,
    /// What becomes of orphaned or damaged messages.
    pub deed: Deed,
}

const ACTIONS: [(&str, Action); 5] = [
    ("check", Action::Check),
    ("dump", Action::Dump),
    ("repair", Action::Repair),
    ("orphans", Action::Orphans),
    ("damaged", Action::Damaged),
];

/// The help of `lepus store`.
#[must_use]
pub fn help() -> String {
    "Looks after the files in which the broker keeps messages and definitions.

usage: lepus store check DIR [--log N]                  says what is there and what is damaged
       lepus store dump DIR [--log N] [--segment S]     prints every record, one a line
       lepus store repair DIR [--log N] [--to COPY]     cuts damage out, so that the broker starts
       lepus store orphans DIR [--log N] [--queue ID] [--export FILE] [--move-to VHOST/QUEUE | --drop]
                                                        lists messages whose queue is not defined
       lepus store damaged DIR [--log N] [--queue ID] [--export DIRECTORY] [--drop]
                                                        lists messages that cannot be read

DIR is the data directory. The definitions are log 0, the messages of shard n are in log n + 1.
`check` and `dump` only read; of a running broker they may see a write that is not complete yet.
`check` opens the logs as a start does and reads every message. It names what is damaged by file and
offset, says whether a start is refused, and ends with 1 if something is damaged.

`repair`, `orphans` and `damaged` work while no broker has the directory. With --to a repair leaves DIR as it is
and repairs a copy; without, what is damaged is gone afterwards. What the disk does not give may be whole
and is never dropped: then a repair without --to drops nothing of that log, `damaged --drop` only what is
damaged, and both end with 1. A copy has zeros there.

`orphans` lists messages of queues that the definitions do not have. --move-to puts them behind the
messages of a queue, without the moments at which they were to expire; --export writes them to a new
file, a JSON object a line, with properties (as in a content header) and body in base64; --drop drops
them, after the export if there is one, and then only what was exported.

`damaged` lists messages that are in a queue and cannot be read, each with its places in the files and
what is wrong there, and segments in which a start met damage that no queue knows of. A broker gives
such messages to nobody and keeps them, and those segments. --export writes the bytes of each place to
a file of its own in a directory, and damaged.jsonl beside them, a JSON object a line for each message
of a queue, and for each segment; no file is written over. --drop takes them out of their queues, and
lets go of the segments, after the export if there is one, so that their room comes free. With --queue
only messages of that queue are listed, exported or dropped.

Examples:
  lepus store check /var/lib/lepus
  lepus store dump /var/lib/lepus --log 1 --segment 3 | grep 'queue 17'
  lepus store repair /var/lib/lepus --to /var/tmp/repaired
  lepus store orphans /var/lib/lepus --queue 17 --move-to //orders
  lepus store damaged /var/lib/lepus --export /var/tmp/damaged --drop
"
    .to_owned()
}

/// Reads the words behind `lepus store`; `Ok(None)` asks for the help.
///
/// # Errors
/// The text for standard error.
pub fn parse(mut parser: lexopt::Parser) -> Result<Option<Call>, String> {
    let mut places: Vec<String> = Vec::new();
    let (mut log, mut segment, mut copy) = (None, None, None);
    let mut deed = Deed::default();
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("log") => log = Some(LogId(number(&mut parser, "--log")?)),
            Long("segment") => segment = Some(number(&mut parser, "--segment")?),
            Long("to") => copy = Some(PathBuf::from(word(&mut parser)?)),
            Long("queue") => deed.queue = Some(number(&mut parser, "--queue")?),
            Long("move-to") => deed.move_to = Some(word(&mut parser)?),
            Long("export") => deed.export = Some(PathBuf::from(word(&mut parser)?)),
            Long("drop") => deed.drop = true,
            Value(word) => {
                places.push(word.into_string().map_err(|_| "not valid text".to_owned())?);
            }
            other => return Err(format!("lepus store: {}", other.unexpected())),
        }
    }
    let names = ACTIONS.iter().map(|(name, _)| *name);
    let [action, directory] = places.as_slice() else {
        let wrong = places.first().filter(|first| names.clone().all(|name| name != first.as_str()));
        return Err(match wrong.and_then(|wrong| nearest(wrong, names)) {
            Some(hint) => format!("did you mean `lepus store {hint} DIR`?"),
            None => format!("which one, and where?\n\n{}", help()),
        });
    };
    let found = ACTIONS.iter().find(|(name, _)| name == action);
    let Some((_, action)) = found else {
        let hint = nearest(action, names).unwrap_or("check");
        return Err(format!(
            "there is no command `store {action}`; did you mean `lepus store {hint}`?"
        ));
    };
    if copy.is_some() && *action != Action::Repair {
        return Err("--to belongs to `lepus store repair`".to_owned());
    }
    if deed.move_to.is_some() && *action != Action::Orphans {
        return Err("--move-to belongs to `lepus store orphans`".to_owned());
    }
    if deed != Deed::default() && !matches!(action, Action::Orphans | Action::Damaged) {
        let text = "--queue, --export and --drop belong to `lepus store orphans` and `damaged`";
        return Err(text.to_owned());
    }
    if deed.move_to.is_some() && deed.drop {
        return Err("--move-to and --drop are two different things: give one".to_owned());
    }
    let directory = PathBuf::from(directory);
    Ok(Some(Call { action: *action, directory, log, segment, copy, deed }))
}

fn word(parser: &mut lexopt::Parser) -> Result<String, String> {
    let word = parser.value().map_err(|error| error.to_string())?;
    word.into_string().map_err(|_| "not valid text".to_owned())
}

fn number<T: std::str::FromStr>(parser: &mut lexopt::Parser, name: &str) -> Result<T, String> {
    word(parser)?.parse().map_err(|_| format!("{name} takes a number"))
}

/// Carries the call out. 1 if something is damaged or cannot be read.
#[must_use]
pub fn run(call: &Call) -> ExitCode {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let done = match call.action {
        Action::Check => check::check(call, &mut out),
        Action::Dump => dump::dump(call, &mut out),
        Action::Repair => repair::repair(call, &mut out),
        Action::Orphans => orphans::orphans(call, &mut out),
        Action::Damaged => damaged::damaged(call, &mut out),
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
