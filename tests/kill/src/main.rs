//! Kills the broker under load again and again and shows that it keeps its promises: what was
//! confirmed is there, what was acknowledged stays away, what comes twice says so.
//!
//! It must not share a program with the broker: the broker is started as its users start it, and
//! killed with a signal that it cannot see.
#![forbid(unsafe_code)]

mod body;
mod broker;
mod consumer;
mod court;
mod declarer;
mod disk;
mod forger;
mod link;
mod oracle;
mod publisher;
mod run;
mod script;
mod topology;

use broker::Recipe;
use disk::{READ_RETRY_LIMIT, Watch};
use forger::{Forger, Forgery};
use oracle::Fault;
use run::{Outcome, Plan};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

const USAGE: &str = "\
lepus-kill: kills a broker under load again and again and checks what it promised

usage: lepus-kill [OPTIONS]

Each round starts publishers (confirms, fan-out, transactions, transient and expiring messages) and
consumers, then kills the broker with SIGKILL; every tenth round stops it in order instead, every
tenth empties all queues. After each start it looks for confirmed messages that are gone, messages
that are back although their ack was answered more than a second before, duplicates without the
mark redelivered, messages out of order, torn commits. It ends with 1 when it found any.

In some rounds the disk fails: calls of the broker that read, write, sync, make, name or remove
files end with an error once, for a time or until the broker is started anew. Then it may end by
itself where it must, and has to go on where it can.

options
  --rounds N       rounds (200)
  --seed N         what happens in them, though not when exactly (1)
  --shards N,...   numbers of shards, in turn from start to start (1)
  --lepus PATH     the broker (target/release/lepus)
  --flags 'WORDS'  more words for its command line
  --broker 'WORDS' another broker: a command in which {port} and {data} stand for port and directory
  --directory DIR  where data and the broker's output go; what is there goes (build/kill)
  --port N         where the broker listens (7800)
  --failing N      the disk fails in one of so many rounds, 0 for never (4; 0 for another broker)
  --copies         keep the data as the last kill left it, in DIR/data.before
  --keep-going     do not end at the first fault
  --no-expiring    for brokers that lose messages on their way to a dead-letter queue
  --prove          show that faults are found: forge one of each kind, in runs of three rounds, the
                   gravest ones also while the disk fails

example: lepus-kill --rounds 20 --shards 2,1,3
";
/// Without being told otherwise, the disk fails in one of so many rounds.
const FAILING_EVERY: u64 = 4;
const PROOF_LOAD: Duration = Duration::from_millis(1_600);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match read(&words) {
        Ok((plan, true)) => prove(&plan),
        Ok((plan, false)) => test(&plan),
        Err(text) => {
            eprintln!("{text}; `lepus-kill --help` shows what there is");
            ExitCode::from(2)
        }
    }
}

fn read(words: &[String]) -> Result<(Plan, bool), String> {
    let (mut rounds, mut seed, mut port) = (200, 1, 7_800);
    let mut shards = vec![1];
    let (mut lepus, mut flags) = ("target/release/lepus".to_owned(), String::new());
    let (mut broker, mut directory) = (None, "build/kill".to_owned());
    let (mut copies, mut keep_going, mut failing) = (false, false, None);
    let (mut no_expiring, mut prove) = (false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
        fn number(text: &str) -> Result<u64, String> {
            text.parse().map_err(|_| format!("`{text}` is no number"))
        }
        match word.as_str() {
            "--rounds" => rounds = number(&value()?)?,
            "--seed" => seed = number(&value()?)?,
            "--shards" => {
                shards = value()?.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
            }
            "--port" => port = u16::try_from(number(&value()?)?).map_err(|_| "no such port")?,
            "--failing" => failing = Some(number(&value()?)?),
            "--lepus" => lepus = value()?,
            "--flags" => flags = value()?,
            "--broker" => broker = Some(value()?),
            "--directory" => directory = value()?,
            "--copies" => copies = true,
            "--keep-going" => keep_going = true,
            "--no-expiring" => no_expiring = true,
            "--prove" => prove = true,
            other => return Err(format!("there is no option {other}")),
        }
    }
    let directory = std::path::absolute(directory).map_err(|error| error.to_string())?;
    let data = directory.join("data");
    let failing = failing.unwrap_or(if broker.is_none() { FAILING_EVERY } else { 0 });
    let limit = READ_RETRY_LIMIT.as_secs();
    let command = broker.unwrap_or_else(|| {
        format!(
            "{lepus} serve --data-dir {{data}} --listen 127.0.0.1:{{port}} --metrics-listen none --management-listen none \
             --stop-timeout 2 --store-read-retry-limit {limit} --shards {{shards}} {flags}"
        )
    });
    let data_text = data.display().to_string();
    let fill = |word: &str| word.replace("{port}", &port.to_string()).replace("{data}", &data_text);
    let words = command.split_whitespace().map(fill).collect();
    let watch = Some(Watch::new(&directory, &data));
    let log = directory.join("broker.log");
    let plan = Plan {
        rounds,
        seed,
        recipe: Recipe { words, shards, port, log, watch },
        data,
        failing,
        copies,
        keep_going,
        patience: Duration::from_secs(15),
        load: None,
        no_expiring,
        quiet: false,
    };
    Ok((plan, prove))
}

/// Makes the directory anew.
fn clear(plan: &Plan) -> io::Result<()> {
    plan.recipe.check()?;
    let directory: PathBuf = plan.data.parent().map(PathBuf::from).unwrap_or_default();
    for old in [plan.data.clone(), plan.data.with_extension("before")] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    fs::create_dir_all(&directory)?;
    if let Some(watch) = plan.recipe.watch.as_ref().filter(|_| plan.failing > 0) {
        watch.prepare()?;
    }
    fs::write(&plan.recipe.log, "")
}

fn test(plan: &Plan) -> ExitCode {
    println!("seed {}: {}", plan.seed, script::describe());
    println!("{}", plan.recipe.words.join(" "));
    match clear(plan).and_then(|()| run::run(plan, Forger::new(None))) {
        Ok(outcome) => {
            show(&outcome);
            show_failures(plan);
            if outcome.oracle.faults.total() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}; the broker's output is in {}", plan.recipe.log.display());
            ExitCode::FAILURE
        }
    }
}

fn show(outcome: &Outcome) {
    let tally = outcome.oracle.tally;
    let [kills, second, stops, gave_up] = outcome.ends;
    let start = |share: f64| {
        let last = outcome.starts.len().saturating_sub(1) as f64;
        outcome.starts.get((last * share) as usize).copied().unwrap_or(0.0)
    };
    println!();
    for (about, count) in [
        ("rounds", outcome.rounds),
        ("kills under load", kills),
        ("kills while starting", second),
        ("orderly stops under load", stops),
        ("ends by itself, the disk failed", gave_up),
        ("messages published", tally.published),
        ("  confirmed or committed", tally.confirmed),
        ("  refused", tally.refused),
        ("deliveries", tally.delivered),
        ("  of them duplicates", tally.duplicates),
        ("acks that must hold", tally.gone),
        ("commits without an answer", tally.commits_in_doubt),
    ] {
        println!("{about:48} {count:>12}");
    }
    let starts = format!("{:.0} / {:.0} ms", start(0.5), start(1.0));
    println!("{:48} {starts:>12}", "from start to a login, median / longest");
    for (fault, about) in Fault::ALL {
        println!("{about:48} {:>12}", outcome.oracle.faults.count(fault));
    }
    println!("{} faults", outcome.oracle.faults.total());
}

/// Says how often the disk failed.
fn show_failures(plan: &Plan) {
    if plan.failing == 0 {
        return;
    }
    let tally = plan.recipe.watch.as_ref().and_then(|watch| watch.tally().ok()).unwrap_or_default();
    let calls: Vec<String> =
        tally.iter().map(|(about, count)| format!("{count} {about}")).collect();
    println!("failed: {}", calls.join(", "));
}

/// Forges one fault of each kind and looks whether it is found.
fn prove(plan: &Plan) -> ExitCode {
    let plan = Plan {
        rounds: 3,
        patience: Duration::from_secs(2),
        load: Some(PROOF_LOAD),
        quiet: true,
        keep_going: true,
        ..plan.clone()
    };
    let mut missed = 0;
    let nothing = (None, None);
    let forgeries = Forgery::ALL.map(|(forgery, fault)| (Some(forgery), Some(fault)));
    let well = [nothing].into_iter().chain(forgeries).map(|case| (0, case));
    let grave = [Some(Forgery::Withhold), Some(Forgery::Return)];
    let is_grave = |(forgery, _): &(Option<Forgery>, _)| grave.contains(forgery);
    let failing = forgeries.into_iter().filter(is_grave).map(|case| (1, case));
    for (failing, (forgery, fault)) in well.chain(failing) {
        let what = forgery.map_or("nothing".to_owned(), |forgery| format!("{forgery:?}"));
        println!("forging: {what}{}", if failing > 0 { ", with a failing disk" } else { "" });
        let plan = Plan { failing, ..plan.clone() };
        let forger = Forger::new(forgery);
        let outcome = match clear(&plan).and_then(|()| run::run(&plan, forger)) {
            Ok(outcome) => outcome,
            Err(error) => {
                eprintln!("{error}; the broker's output is in {}", plan.recipe.log.display());
                return ExitCode::FAILURE;
            }
        };
        let faults = &outcome.oracle.faults;
        let found = match fault {
            Some(fault) => faults.count(fault) > 0,
            None => faults.total() == 0,
        };
        println!("  {}", if found { "as it should be" } else { "NOT FOUND, or more than that" });
        missed += u64::from(!found);
    }
    println!("{missed} faults");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
