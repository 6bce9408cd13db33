//! `lepus profile`: where the running broker spends its CPU time.
//!
//! The broker samples itself for some seconds and answers with addresses and counts; functions are
//! named, and pictures drawn, by the process that asked.

mod broker;
mod kernel;

pub use broker::take;

use crate::config::Config;
use crate::control;
use crate::flags::BrokerFlags;
use clap::Args;
use kernel::Perf;
use lepus_console::to_stderr;
use lepus_flame::report::Report;
use lepus_flame::{Profile, Recording, Symbols};
use lepus_profile::RATE_MAX;
use serde_json::json;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a profile takes when nothing else is asked for.
const SECONDS_DEFAULT: u64 = 10;
/// The longest one.
const SECONDS_MAX: u64 = 300;
/// Samples per second of CPU time. A prime number: it does not fall in step with anything.
const RATE_DEFAULT: u32 = 199;

/// What stands behind the options in the help.
const EXAMPLES: &str = "\
Examples:
  lepus profile                                  ten seconds of the broker with data in ./data
  lepus profile --seconds 30 --out slow          longer; open slow/report.html in a browser
  lepus profile --data-dir /var/lib/lepus        the broker with its data there
  lepus perf throughput & lepus profile          while it works";

/// Shows where the running broker spends its CPU time
///
/// Flame graphs of each shard and of all of it, by accumulated and by own time, with the phases of the duty cycle (poll,
/// handle, flush, submit, write, spin, sleep), and the most expensive functions.
///
/// The broker samples its own threads by timers on their CPU clocks: that needs no root, no hardware counters and no
/// other program, and costs a few microseconds per sample. Where perf is installed and allowed to, it adds frames inside
/// the kernel. Threads that sleep are not seen; what was not seen is listed. One profile at a time.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Call {
    /// How long it takes, from 1 to 300
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, SECONDS_MAX), allow_negative_numbers = true, default_value_t = SECONDS_DEFAULT)]
    pub seconds: u64,
    /// Samples per second of CPU time, from 1 to 1000
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, RATE_MAX), allow_negative_numbers = true, default_value_t = RATE_DEFAULT)]
    pub rate: u32,
    /// Directory of the report; lepus-profile-TIME when left out
    #[arg(long, alias = "output", value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where the broker is found.
    #[command(flatten)]
    pub broker: BrokerFlags,
}

/// Has the profile taken and writes its report; the text for standard output.
///
/// # Errors
/// The text for standard error.
pub fn run(call: &Call, config: &Config) -> Result<String, String> {
    let command = format!("lepus profile --seconds {} --rate {}", call.seconds, call.rate);
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
        command: &command,
        kernel: kernel.as_ref().map_err(String::as_str),
    };
    report.write(&directory)?;
    let shown = directory.join("report.html");
    Ok(format!("{}\nreport in {}\n", report.text(), shown.display()))
}

/// A whole number from 1 to this.
fn whole<N: FromStr + PartialOrd + From<u8> + Copy + Display>(
    text: &str,
    most: N,
) -> Result<N, String> {
    let number = text.parse::<N>().ok().filter(|number| (N::from(1)..=most).contains(number));
    number.ok_or_else(|| format!("a whole number from 1 to {most} is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn read(words: &str) -> Result<Call, String> {
        let command = Call::augment_args(Command::new("profile").no_binary_name(true));
        let matches = command.try_get_matches_from(words.split_whitespace());
        let call = matches.and_then(|matches| Call::from_arg_matches(&matches));
        call.map_err(|error| error.to_string())
    }

    #[test]
    fn a_call_is_read() {
        let call = read("--seconds 3 --rate 500 --out x --data d").unwrap();
        assert_eq!((call.seconds, call.rate), (3, 500));
        assert_eq!(call.out, Some(PathBuf::from("x")));
        let settings = call.broker.settings();
        assert_eq!(settings.flags, [("--data-dir".to_owned(), "d".to_owned())]);
        let call = read("").unwrap();
        assert_eq!((call.seconds, call.rate), (SECONDS_DEFAULT, RATE_DEFAULT));
    }

    #[test]
    fn what_cannot_be_had_is_told() {
        assert!(read("--seconds 0").unwrap_err().contains("from 1 to 300"));
        assert!(read("--seconds 301").unwrap_err().contains("from 1 to 300"));
        assert!(read("--seconds -1").unwrap_err().contains("from 1 to 300"));
        assert!(read("--seconds x").unwrap_err().contains("--seconds <N>"));
        assert!(read("--rate 5000").unwrap_err().contains("from 1 to 1000"));
        assert!(read("--frequency 5").unwrap_err().contains("--frequency"));
        assert!(take(&json!({"seconds": 0})).unwrap_err().contains("1 to 300"));
        assert!(take(&json!({"seconds": 1, "rate": 1001})).unwrap_err().contains("1 to 1000"));
    }
}
