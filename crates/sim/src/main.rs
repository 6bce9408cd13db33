//! `lepus-sim`: runs seeds of the simulator until one fails.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HELP: &str = "\
Runs seeds of the simulator: one seed decides everything that happens.

    lepus-sim [--seeds N] [--seed FIRST] [--seconds T] [--trace] [--keep-going] [--record FILE] [--races]
    lepus-sim --replay FILE

    --seeds N      run N seeds (default 1000)
    --seed FIRST   start with this seed; alone: run only this one
    --seconds T    run new seeds for T seconds, starting from the time of day
    --trace        print everything that happens
    --keep-going   name seeds that fail and go on
    --record FILE  write down what happens to each queue (builds for tests and with --features record)
    --races        say how often each thing was met that legally was not there any more (builds for tests and with
                   --features races)
    --replay FILE  make the queues of such a file again, and compare how they end

Every second seed from 1000000 on is under strain: logs with few segments, clients that read in a
trickle, a disk that fails for a while, bits that flip in its files while no process runs.";

struct Orders {
    first: u64,
    seeds: u64,
    until: Option<Instant>,
    prints: bool,
    keeps_going: bool,
    tells_races: bool,
    record: Option<String>,
    replay: Option<String>,
}

fn orders() -> Result<Option<Orders>, String> {
    let (mut seeds, mut first, mut seconds) = (None, None, None);
    let (mut prints, mut keeps_going, mut tells_races) = (false, false, false);
    let (mut record, mut replay) = (None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if let "--record" | "--replay" = word.as_str() {
            let file = words.next().ok_or(format!("{word} needs a file"))?;
            *(if word == "--record" { &mut record } else { &mut replay }) = Some(file);
            continue;
        }
        let mut number = || -> Result<Option<u64>, String> {
            let text = words.next().ok_or(format!("{word} needs a number"))?;
            text.parse().map(Some).map_err(|_| format!("{word} needs a number, not '{text}'"))
        };
        match word.as_str() {
            "--seeds" => seeds = number()?,
            "--seed" => first = number()?,
            "--seconds" => seconds = number()?,
            "--trace" => prints = true,
            "--keep-going" => keeps_going = true,
            "--races" => tells_races = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown word '{other}'; --help tells what is known")),
        }
    }
    let clock = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let first = match (first, seconds) {
        (Some(first), _) => Some(first),
        (None, Some(_)) => Some(clock >> 8 << 8),
        (None, None) => None,
    };
    let default = match (first, seconds) {
        (_, Some(_)) => u64::MAX,
        (Some(_), None) => 1,
        (None, None) => 1000,
    };
    Ok(Some(Orders {
        first: first.unwrap_or(0),
        seeds: seeds.unwrap_or(default),
        until: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        prints,
        keeps_going,
        tells_races,
        record,
        replay,
    }))
}

fn report(seed: u64, what: &str, lines: &[String]) {
    eprintln!("\nWhat happened last:");
    for line in lines {
        eprintln!("  {line}");
    }
    eprintln!("\nSeed {seed} fails: {what}");
    eprintln!("Again, with everything that happens:");
    eprintln!("    cargo run --release --package lepus-sim -- --seed {seed} --trace");
}

/// A record of what happens to queues.
type Record = lepus_sim::QueueRecord<BufWriter<File>>;

fn begin_record(file: &str) -> Result<Arc<Record>, String> {
    if !lepus_queue::CAN_RECORD {
        return Err("this build cannot record: build it with --features record".into());
    }
    let made = File::create(file).map_err(|error| format!("{file}: {error}"))?;
    Ok(Arc::new(lepus_sim::QueueRecord::new(BufWriter::new(made))))
}

/// Prints each race that was met, those met most first.
fn tell_races() {
    let mut races = lepus_base::races();
    races.sort_by_key(|race| std::cmp::Reverse(race.times));
    for race in &races {
        println!("{:>12}  {}:{}  {}", race.times, race.file, race.line, race.text);
    }
    println!("{} races met", races.len());
}

fn play(file: &str) -> ExitCode {
    let opened = File::open(file).map_err(|error| error.to_string());
    match opened.and_then(|opened| lepus_sim::replay(BufReader::new(opened))) {
        Ok(played) => {
            println!(
                "{} queues are as they were after {} commands",
                played.queues, played.commands
            );
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("lepus-sim: {file}: {text}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let orders = match orders() {
        Ok(Some(orders)) => orders,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(text) => {
            eprintln!("lepus-sim: {text}");
            return ExitCode::from(2);
        }
    };
    if let Some(file) = &orders.replay {
        return play(file);
    }
    if orders.tells_races && !lepus_base::COUNTS_RACES {
        eprintln!("lepus-sim: this build does not count races: build it with --features races");
        return ExitCode::from(2);
    }
    let record = match orders.record.as_deref().map(begin_record).transpose() {
        Ok(record) => record,
        Err(text) => {
            eprintln!("lepus-sim: {text}");
            return ExitCode::from(2);
        }
    };
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        let (seed, lines) = lepus_sim::last_words();
        report(seed, &panic.to_string(), &lines);
    }));
    let start = Instant::now();
    let mut next_report = start + Duration::from_secs(2);
    let mut sum = lepus_sim::Figures::default();
    let (mut done, mut failed) = (0, 0);
    for seed in (0..orders.seeds).map(|index| orders.first.wrapping_add(index)) {
        if orders.until.is_some_and(|until| until <= Instant::now()) {
            break;
        }
        let result = match &record {
            Some(record) => lepus_sim::run_recorded(seed, orders.prints, record.clone()),
            None => lepus_sim::run(seed, orders.prints),
        };
        match result {
            Ok(figures) => sum.add(figures),
            Err(text) if orders.keeps_going => {
                eprintln!("Seed {seed} fails: {text}");
                failed += 1;
            }
            Err(text) => {
                report(seed, &text, &lepus_sim::last_words().1);
                return ExitCode::FAILURE;
            }
        }
        done += 1;
        if next_report <= Instant::now() {
            next_report += Duration::from_secs(2);
            eprintln!("{done} seeds, {} messages", sum.published);
        }
    }
    if let Some(Err(error)) = record.map(|record| record.finish()) {
        eprintln!("lepus-sim: the record is not whole: {error}");
        failed += 1;
    }
    if orders.tells_races {
        tell_races();
    }
    println!(
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
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
