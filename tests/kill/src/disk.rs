//! The disk fails: which calls of the broker for its files end with which error, and for how long.
//!
//! A program in C stands between the broker and the kernel while that is wanted (`failing-disk.c`,
//! which says how). It is compiled where it is needed.

use lepus_base::Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

const SOURCE: &str = include_str!("../failing-disk.c");

/// How long the broker is told to try reads that fail. It must be a second at least.
pub const READ_RETRY_LIMIT: Duration = Duration::from_secs(3);
/// A broker that has ended by itself may have begun with it so long before that limit.
const MARGIN: Duration = Duration::from_millis(500);

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// What the program in C calls them, and what they are.
const CALLS: [(char, &str); 8] = [
    ('r', "reads"),
    ('w', "writes"),
    ('s', "syncs"),
    ('c', "new files and blocks"),
    ('d', "removals"),
    ('D', "syncs of directories"),
    ('n', "renames"),
    ('o', "opened files"),
];

/// Calls that fail together, with errors that they can end with.
const CASES: [(&str, &[i32]); 12] = [
    ("r", &[EIO, ENOMEM]),
    ("ro", &[EIO, ENOMEM]),
    ("w", &[EIO, ENOSPC, ENOMEM]),
    ("s", &[EIO, ENOSPC, ENOMEM]),
    ("c", &[EIO, ENOSPC, EMFILE, ENOMEM]),
    ("d", &[EIO, ENOMEM]),
    ("D", &[EIO, ENOMEM]),
    ("n", &[EIO, ENOSPC, ENOMEM]),
    ("oc", &[EMFILE, ENFILE, ENOMEM]),
    ("wcn", &[ENOSPC]),
    ("cdDn", &[EIO, ENOMEM]),
    ("rwscdDno", &[EIO, ENOMEM]),
];

/// Files for which calls fail: a part of the path, or all of them.
const FILES: [&str; 10] =
    ["*", "*", "*", "*", "segment", "index", "checkpoint", "root", "log-00000000", "log-00000001"];

/// How long the disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// For one call.
    Once,
    /// For a time.
    For(Duration),
    /// Until the broker is started anew.
    Forever,
}

/// A disk that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    calls: &'static str,
    files: &'static str,
    error: i32,
    /// How long.
    pub span: Span,
}

impl Failure {
    /// Any that a broker can meet.
    pub fn any(rng: &mut Rng) -> Failure {
        let (calls, errors) = CASES[rng.below(CASES.len() as u64) as usize];
        let error = errors[rng.below(errors.len() as u64) as usize];
        let files = FILES[rng.below(FILES.len() as u64) as usize];
        let span = match rng.below(5) {
            0 => Span::Once,
            1 => Span::Forever,
            2 => Span::For(Duration::from_millis(1_000 + rng.below(4_000))),
            _ => Span::For(Duration::from_millis(100 + rng.below(900))),
        };
        Failure { calls, files, error, span }
    }

    /// One that a broker has to outlive.
    pub fn passing(rng: &mut Rng) -> Failure {
        loop {
            let failure = Failure::any(rng);
            let is_short = match failure.span {
                Span::Once => true,
                Span::For(time) => time < READ_RETRY_LIMIT / 2,
                Span::Forever => false,
            };
            if is_short && !failure.may_end_it() {
                return failure;
            }
        }
    }

    fn has(&self, calls: &str) -> bool {
        self.calls.chars().any(|call| calls.contains(call))
    }

    /// Whether the broker may end by itself: nobody knows what became of a write or a sync that
    /// failed, a segment cannot be opened for one, what is beside the log fails five times, or
    /// nothing can be read for too long. Where the system lacked the means, or the disk was full,
    /// nothing was done and it is tried again.
    pub fn may_end_it(&self) -> bool {
        let lasts = self.span != Span::Once;
        let reads_in_vain = match self.span {
            Span::Once => false,
            Span::For(time) => time + MARGIN >= READ_RETRY_LIMIT,
            Span::Forever => true,
        };
        self.has("s")
            || self.error == EIO
                && (self.has("wo") || self.has("cdDn") && lasts || self.has("r") && reads_in_vain)
    }
}

impl fmt::Display for Failure {
    /// The line for the program in C.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = match self.span {
            Span::Once => 0,
            Span::For(time) => time.as_millis() as i64,
            Span::Forever => -1,
        };
        write!(f, "fail {} {} {} {millis}", self.calls, self.files, self.error)
    }
}

/// What stands between a broker and its disk.
#[derive(Clone, Debug)]
pub struct Watch {
    program: PathBuf,
    data: PathBuf,
    /// Calls that failed are lines of it.
    pub log: PathBuf,
}

impl Watch {
    /// For the files below `data`; the program and its log are made in `directory`.
    pub fn new(directory: &Path, data: &Path) -> Watch {
        let [program, log] = ["failing-disk", "failing-disk.log"].map(|name| directory.join(name));
        Watch { program, data: data.to_owned(), log }
    }

    /// Compiles the program and begins a new log.
    ///
    /// # Errors
    /// When there is no compiler, or it is not content.
    pub fn prepare(&self) -> io::Result<()> {
        let source = self.program.with_extension("c");
        fs::write(&source, SOURCE)?;
        fs::write(&self.log, "")?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&self.program).arg(&source);
        match compiler.status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other("cannot compile the program before a failing disk")),
        }
    }

    /// Words that go before the broker's own.
    pub fn words(&self) -> Vec<String> {
        let paths = [&self.program, &self.data, &self.log];
        paths.map(|path| path.display().to_string()).to_vec()
    }

    /// Calls that failed, by what they were.
    ///
    /// # Errors
    /// When there is no log.
    pub fn tally(&self) -> io::Result<BTreeMap<&'static str, u64>> {
        let mut tally = BTreeMap::new();
        for line in fs::read_to_string(&self.log)?.lines() {
            let known = CALLS.iter().find(|(call, _)| line.starts_with(*call));
            *tally.entry(known.map_or("others", |(_, about)| about)).or_default() += 1;
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(calls: &'static str, error: i32, span: Span) -> Failure {
        Failure { calls, files: "*", error, span }
    }

    #[test]
    fn a_broker_outlives_what_the_system_lacked_and_what_it_can_do_again() {
        let (short, long) = (Duration::from_millis(400), Duration::from_secs(3));
        for (calls, error, span, may_end) in [
            ("w", EIO, Span::Once, true),
            ("s", ENOSPC, Span::Once, true),
            ("w", ENOSPC, Span::Forever, false),
            ("oc", EMFILE, Span::Forever, false),
            ("c", EIO, Span::Once, false),
            ("ro", EIO, Span::Once, true),
            ("c", EIO, Span::For(short), true),
            ("r", EIO, Span::For(short), false),
            ("r", EIO, Span::For(long), true),
            ("r", ENOMEM, Span::For(long), false),
        ] {
            assert_eq!(failure(calls, error, span).may_end_it(), may_end, "{calls} {error}");
        }
    }

    #[test]
    fn every_call_that_can_fail_has_a_name() {
        for call in CASES.iter().flat_map(|(calls, _)| calls.chars()) {
            assert!(CALLS.iter().any(|(known, _)| *known == call), "{call}");
        }
    }

    #[test]
    fn a_line_says_what_fails_and_how_long() {
        let line = failure("w", EIO, Span::For(Duration::from_millis(250))).to_string();
        assert_eq!(line, "fail w * 5 250");
        assert_eq!(failure("r", ENOMEM, Span::Forever).to_string(), "fail r * 12 -1");
    }
}
