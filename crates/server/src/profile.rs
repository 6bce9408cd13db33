//! `lepus profile`: where the running broker spends its CPU time.
//!
//! The broker samples itself for some seconds and answers with addresses and counts; functions are
//! named, and pictures drawn, by the process that asked.

mod broker;
mod kernel;

pub use broker::take;

use crate::control;
use crate::flags::{Settings, setting, value};
use kernel::Perf;
use lepus_flame::report::Report;
use lepus_flame::{Profile, Recording, Symbols};
use lepus_perf::to_stderr;
use lepus_profile::RATE_MAX;
use lexopt::prelude::{Long, Short};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a profile takes when nothing else is asked for.
const SECONDS_DEFAULT: u64 = 10;
/// The longest one.
const SECONDS_MAX: u64 = 300;
/// Samples per second of CPU time. A prime number: it does not fall in step with anything.
const RATE_DEFAULT: u32 = 199;

/// One call of `lepus profile`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// How long it is to take.
    pub seconds: u64,
    /// Samples per second of a thread's CPU time.
    pub rate: u32,
    /// Where the report goes.
    pub out: Option<PathBuf>,
    /// For finding the control socket.
    pub settings: Settings,
    /// The call, as it was written.
    pub command: String,
}

/// The help of `lepus profile`.
#[must_use]
pub fn help() -> String {
    format!(
        "Shows where the running broker spends its CPU time: flame graphs of each shard and of all of it,
by accumulated and by own time, with the phases of the duty cycle (poll, handle, flush, submit,
write, spin, sleep), and the most expensive functions.

usage: lepus profile [--seconds N] [--rate N] [--out DIR]

  --seconds N    how long, 1 to {SECONDS_MAX}; {SECONDS_DEFAULT} when left out
  --rate N       samples per second of CPU time, 1 to {RATE_MAX}; {RATE_DEFAULT} when left out
  --out DIR      directory of the report; lepus-profile-TIME when left out

The broker is found by --data-dir, --control-socket or --config. It samples its own threads by timers
on their CPU clocks: that needs no root, no hardware counters and no other program, and costs a few
microseconds per sample. Where perf is installed and allowed to, it adds frames inside the kernel.
Threads that sleep are not seen; what was not seen is listed. One profile at a time.

Examples:
  lepus profile                                  ten seconds of the broker with data in ./data
  lepus profile --seconds 30 --out slow          longer; open slow/report.html in a browser
  lepus profile --data-dir /var/lib/lepus        the broker with its data there
  lepus perf throughput & lepus profile          while it works
"
    )
}

/// Reads the words behind `lepus profile`; `Ok(None)` asks for the help.
///
/// # Errors
/// The text for standard error.
pub fn parse(mut parser: lexopt::Parser) -> Result<Option<Call>, String> {
    const SETTINGS: [&str; 3] = ["data-dir", "data", "control-socket"];
    let mut call = Call {
        seconds: SECONDS_DEFAULT,
        rate: RATE_DEFAULT,
        out: None,
        settings: Settings::default(),
        command: "lepus profile".to_owned(),
    };
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("seconds") => {
                call.seconds = number("--seconds", &value(&mut parser)?)?;
                check_seconds(call.seconds)?;
            }
            Long("rate") => {
                let rate = number("--rate", &value(&mut parser)?)?;
                let rate = u32::try_from(rate).ok().filter(|rate| (1..=RATE_MAX).contains(rate));
                call.rate = rate.ok_or_else(|| format!("--rate: 1 to {RATE_MAX} can be had"))?;
            }
            Long("out" | "output") => call.out = Some(value(&mut parser)?.into()),
            Short('c') | Long("config") => call.settings.config = Some(value(&mut parser)?),
            Long(name) if SETTINGS.contains(&name) => {
                let flag = format!("--{name}");
                setting(flag, &mut parser, &mut call.settings)?;
            }
            other => return Err(format!("lepus profile: {}\n\n{}", other.unexpected(), help())),
        }
    }
    call.command.push_str(&format!(" --seconds {} --rate {}", call.seconds, call.rate));
    Ok(Some(call))
}

fn number(flag: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{flag}: `{text}` is no whole number"))
}

fn check_seconds(seconds: u64) -> Result<(), String> {
    if (1..=SECONDS_MAX).contains(&seconds) {
        return Ok(());
    }
    Err(format!("a profile takes 1 to {SECONDS_MAX} seconds, not {seconds}"))
}

/// Has the profile taken and writes its report; the text for standard output.
///
/// # Errors
/// The text for standard error.
pub fn run(call: &Call) -> Result<String, String> {
    let config = call.settings.clone().load()?;
    let socket = config.control_socket();
    let status = control::ask(&socket, &json!({"order": "status"}));
    let process = status.map_err(|error| error.to_string())?["process_id"].as_u64();
    let directory = call.out.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        PathBuf::from(format!("lepus-profile-{now}"))
    });
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let perf = process.ok_or_else(|| "The process is not known.".to_owned());
    let perf = perf.and_then(|process| Perf::start(&directory, process, call.seconds, call.rate));
    let request = json!({"order": "profile", "seconds": call.seconds, "rate": call.rate});
    let patience = Duration::from_secs(call.seconds + control::PATIENCE_SECONDS);
    to_stderr(format_args!("profiling for {} s", call.seconds));
    let answer = control::ask_within(&socket, &request, patience);
    let recording = Recording::from_json(&answer.map_err(|error| error.to_string())?)?;
    let kernel = perf.and_then(Perf::finish);
    let mut symbols = Symbols::new(recording.process, &recording.modules);
    let mut profile = Profile::new(&recording, |address| symbols.names(address));
    profile.nameless = symbols.nameless();
    let report = Report {
        recording: &recording,
        profile: &profile,
        command: &call.command,
        kernel: kernel.as_ref().map_err(String::as_str),
    };
    report.write(&directory)?;
    let shown = directory.join("report.html");
    Ok(format!("{}\nreport in {}\n", report.text(), shown.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Option<Call>, String> {
        parse(lexopt::Parser::from_args(words.split_whitespace()))
    }

    #[test]
    fn a_call_is_read() {
        let call = read("--seconds 3 --rate 500 --out x --data-dir d").unwrap().unwrap();
        assert_eq!((call.seconds, call.rate), (3, 500));
        assert_eq!(call.out, Some(PathBuf::from("x")));
        assert_eq!(call.settings.flags, [("--data-dir".to_owned(), "d".to_owned())]);
        assert_eq!(call.command, "lepus profile --seconds 3 --rate 500");
        let call = read("").unwrap().unwrap();
        assert_eq!((call.seconds, call.rate), (SECONDS_DEFAULT, RATE_DEFAULT));
        assert_eq!(read("--help").unwrap(), None);
        assert!(help().contains("--seconds N"));
    }

    #[test]
    fn what_cannot_be_had_is_told() {
        assert!(read("--seconds 0").unwrap_err().contains("1 to 300"));
        assert!(read("--seconds 301").unwrap_err().contains("1 to 300"));
        assert!(read("--seconds x").unwrap_err().contains("no whole number"));
        assert!(read("--rate 5000").unwrap_err().contains("1 to 1000"));
        assert!(read("--frequency 5").unwrap_err().contains("--frequency"));
        assert!(take(&json!({"seconds": 0})).unwrap_err().contains("1 to 300"));
        assert!(take(&json!({"seconds": 1, "rate": 1001})).unwrap_err().contains("1 to 1000"));
    }
}
