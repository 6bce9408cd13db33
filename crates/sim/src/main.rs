//! `lepus-sim`: runs seeds of the simulator until one fails.
#![forbid(unsafe_code)]

use clap::{Parser, value_parser};
use lepus_console::{outcome, print, say, to_stderr};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs seeds of the simulator: one seed decides everything that happens
///
/// Every second seed from 1000000 on is under strain: logs with few segments, clients that read in a
/// trickle, a disk that fails for a while, bits that flip in its files while no process runs.
#[derive(Debug, Parser)]
#[command(
    name = "lepus-sim",
    version,
    verbatim_doc_comment,
    max_term_width = 100,
    args_override_self = true
)]
struct Words {
    /// Runs N seeds [default: 1000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Starts with this seed; alone: runs only this one
    #[arg(long, value_name = "FIRST")]
    seed: Option<u64>,
    /// Runs new seeds for T seconds, starting from the time of day
    #[arg(long, value_name = "T", value_parser = value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: Option<u64>,
    /// Prints everything that happens
    #[arg(long)]
    trace: bool,
    /// Names seeds that fail and goes on
    #[arg(long)]
    keep_going: bool,
    /// Writes down what happens to each queue (builds for tests and with --features record)
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Says how often each thing was met that legally was not there any more (builds for tests and with --features races)
    #[arg(long)]
    races: bool,
    /// Makes the queues of such a file again, and compares how they end
    #[arg(long, value_name = "FILE", exclusive = true)]
    replay: Option<PathBuf>,
}

/// A year.
const SECONDS_MAX: u64 = 365 * 24 * 3600;

/// Which seeds are run.
struct Seeds {
    first: u64,
    count: u64,
    until: Option<Instant>,
}

fn seeds(words: &Words) -> Seeds {
    let clock = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let first = words.seed.or(words.seconds.map(|_| clock >> 8 << 8));
    let default = match (first, words.seconds) {
        (_, Some(_)) => u64::MAX,
        (Some(_), None) => 1,
        (None, None) => 1000,
    };
    Seeds {
        first: first.unwrap_or(0),
        count: words.seeds.unwrap_or(default),
        until: words.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
    }
}

fn report(seed: u64, what: &str, lines: &[String]) {
    to_stderr("\nWhat happened last:");
    for line in lines {
        to_stderr(format_args!("  {line}"));
    }
    to_stderr(format_args!("\nSeed {seed} fails: {what}"));
    to_stderr("Again, with everything that happens:");
    to_stderr(format_args!("    cargo run --release --package lepus-sim -- --seed {seed} --trace"));
}

/// A record of what happens to queues.
type Record = lepus_sim::QueueRecord<BufWriter<File>>;

fn begin_record(file: &Path) -> Result<Arc<Record>, String> {
    if !lepus_queue::CAN_RECORD {
        return Err("this build cannot record: build it with --features record".into());
    }
    let made = File::create(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Arc::new(lepus_sim::QueueRecord::new(BufWriter::new(made))))
}

/// Prints each race that was met, those met most first.
fn tell_races() {
    let mut races = lepus_base::races();
    races.sort_by_key(|race| std::cmp::Reverse(race.times));
    for race in &races {
        say(format_args!("{:>12}  {}:{}  {}", race.times, race.file, race.line, race.text));
    }
    say(format_args!("{} races met", races.len()));
}

fn play(file: &Path) -> Result<(), String> {
    let opened = File::open(file).map_err(|error| error.to_string());
    let played = opened
        .and_then(|opened| lepus_sim::replay(BufReader::new(opened)))
        .map_err(|text| format!("{}: {text}", file.display()))?;
    say(format_args!(
        "{} queues are as they were after {} commands",
        played.queues, played.commands
    ));
    Ok(())
}

/// The exit code for words that are not accepted, or ask for what this build does not have.
const WRONG_CALL: u8 = 2;

fn main() -> ExitCode {
    let words = match Words::try_parse() {
        Ok(words) => words,
        Err(error) if error.use_stderr() => {
            to_stderr(error.to_string().trim_end());
            return ExitCode::from(WRONG_CALL);
        }
        Err(help) => {
            print(help);
            return ended(Ok(()));
        }
    };
    if let Some(file) = &words.replay {
        return ended(play(file));
    }
    let record = match prepared(&words) {
        Ok(record) => record,
        Err(text) => {
            to_stderr(format_args!("lepus-sim: {text}"));
            return ExitCode::from(WRONG_CALL);
        }
    };
    match run(&words, record) {
        Ok(true) => ended(Ok(())),
        Ok(false) => ExitCode::FAILURE,
        Err(text) => ended(Err(text)),
    }
}

/// The end, which is a failure too where what was printed could not be written.
fn ended(result: Result<(), String>) -> ExitCode {
    match result.and_then(|()| outcome()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            to_stderr(format_args!("lepus-sim: {text}"));
            ExitCode::FAILURE
        }
    }
}

/// What this build has to have for what the words ask for.
fn prepared(words: &Words) -> Result<Option<Arc<Record>>, String> {
    if words.races && !lepus_base::COUNTS_RACES {
        return Err("this build does not count races: build it with --features races".into());
    }
    words.record.as_deref().map(begin_record).transpose()
}

/// Runs the seeds. Whether all held.
fn run(words: &Words, record: Option<Arc<Record>>) -> Result<bool, String> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        let (seed, lines) = lepus_sim::last_words();
        report(seed, &panic.to_string(), &lines);
    }));
    let seeds = seeds(words);
    let start = Instant::now();
    let mut next_report = start + Duration::from_secs(2);
    let mut sum = lepus_sim::Figures::default();
    let (mut done, mut failed) = (0, 0);
    for seed in (0..seeds.count).map(|index| seeds.first.wrapping_add(index)) {
        if seeds.until.is_some_and(|until| until <= Instant::now()) {
            break;
        }
        let result = match &record {
            Some(record) => lepus_sim::run_recorded(seed, words.trace, record.clone()),
            None => lepus_sim::run(seed, words.trace),
        };
        match result {
            Ok(figures) => sum.add(figures),
            Err(text) if words.keep_going => {
                to_stderr(format_args!("Seed {seed} fails: {text}"));
                failed += 1;
            }
            Err(text) => {
                report(seed, &text, &lepus_sim::last_words().1);
                return Ok(false);
            }
        }
        done += 1;
        if next_report <= Instant::now() {
            next_report += Duration::from_secs(2);
            to_stderr(format_args!("{done} seeds, {} messages", sum.published));
        }
    }
    if let Some(Err(error)) = record.map(|record| record.finish()) {
        return Err(format!("the record is not whole: {error}"));
    }
    if words.races {
        tell_races();
    }
    say(format_args!(
        "{} seeds held ({} with disks), {failed} failed: {} messages published, {} delivered, \
         {} duty cycles, {} hand-overs, {} of them moves, {} queues moved, {} restarts, {} policies, in {:.1} s",
        done - failed,
        sum.disks,
        sum.published,
        sum.delivered,
        sum.turns,
        sum.handed_over,
        sum.moved,
        sum.queues_moved,
        sum.restarts,
        sum.policies,
        start.elapsed().as_secs_f64()
    ));
    Ok(failed == 0)
}
