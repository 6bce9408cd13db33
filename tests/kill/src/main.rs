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
use clap::{ArgAction, Parser, value_parser};
use disk::{READ_RETRY_LIMIT, Watch};
use forger::{Forger, Forgery};
use lepus_console::{outcome, print, say, to_stderr};
use oracle::Fault;
use run::{Outcome, Plan};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

/// Kills a broker under load again and again and checks what it promised
///
/// Each round starts publishers (confirms, fan-out, transactions, transient and expiring messages) and
/// consumers, then kills the broker with SIGKILL; every tenth round stops it in order instead, every
/// tenth empties all queues. After each start it looks for confirmed messages that are gone, messages
/// that are back although their ack was answered more than a second before, duplicates without the
/// mark redelivered, messages out of order, torn commits. It ends with 1 when it found any.
///
/// In some rounds the disk fails: calls of the broker that read, write, sync, make, name or remove
/// files end with an error once, for a time or until the broker is started anew. Then it may end by
/// itself where it must, and has to go on where it can.
#[derive(Debug, Parser)]
#[command(
    name = "lepus-kill",
    version,
    verbatim_doc_comment,
    max_term_width = 100,
    args_override_self = true,
    after_help = "Example: lepus-kill --rounds 20 --shards 2,1,3"
)]
struct Words {
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u64).range(1..))]
    rounds: u64,
    /// What happens in them, though not when exactly
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Numbers of shards, in turn from start to start
    #[arg(
        long,
        value_name = "N,...",
        default_value = "1",
        value_delimiter = ',',
        action = ArgAction::Set,
        value_parser = value_parser!(u64).range(1..=SHARDS_MAX)
    )]
    shards: Vec<u64>,
    /// The broker
    #[arg(long, value_name = "PATH", default_value = "target/release/lepus")]
    lepus: String,
    /// More words for its command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true,
        hide_default_value = true
    )]
    flags: String,
    /// Another broker: a command in which {port} and {data} stand for port and directory
    #[arg(long, value_name = "WORDS")]
    broker: Option<String>,
    /// Where data and the broker's output go; what is there goes
    #[arg(long, value_name = "DIR", default_value = "build/kill")]
    directory: PathBuf,
    /// Where the broker listens
    #[arg(long, value_name = "N", default_value_t = 7_800, value_parser = value_parser!(u16).range(1..))]
    port: u16,
    /// The disk fails in one of so many rounds, 0 for never [default: 4; 0 for another broker]
    #[arg(long, value_name = "N")]
    failing: Option<u64>,
    /// Keeps the data as the last kill left it, in DIR/data.before
    #[arg(long)]
    copies: bool,
    /// Does not end at the first fault
    #[arg(long)]
    keep_going: bool,
    /// For brokers that lose messages on their way to a dead-letter queue
    #[arg(long)]
    no_expiring: bool,
    /// Shows that faults are found: forges one of each kind, in runs of three rounds, the gravest ones also while the disk
    /// fails
    #[arg(long)]
    prove: bool,
}

/// More shards than this a broker does not take.
const SHARDS_MAX: u64 = 256;
/// Without being told otherwise, the disk fails in one of so many rounds.
const FAILING_EVERY: u64 = 4;
const PROOF_LOAD: Duration = Duration::from_millis(1_600);

fn main() -> ExitCode {
    let found = match Words::try_parse() {
        Ok(words) => act(words),
        Err(error) if error.use_stderr() => {
            to_stderr(error.to_string().trim_end());
            return ExitCode::from(2);
        }
        Err(help) => {
            print(help);
            Ok(0)
        }
    };
    match found.and_then(|faults| outcome().map(|()| faults)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(text) => {
            to_stderr(format_args!("lepus-kill: {text}"));
            ExitCode::FAILURE
        }
    }
}

/// Does what the words say. The number of faults that were found.
fn act(words: Words) -> Result<u64, String> {
    let proves = words.prove;
    let plan = plan(words).map_err(|error| error.to_string())?;
    if proves { prove(&plan) } else { test(&plan) }
}

fn plan(words: Words) -> io::Result<Plan> {
    let directory = std::path::absolute(&words.directory)?;
    let data = directory.join("data");
    let failing = words.failing.unwrap_or(if words.broker.is_none() { FAILING_EVERY } else { 0 });
    let limit = READ_RETRY_LIMIT.as_secs();
    let (lepus, flags, port) = (words.lepus, words.flags, words.port);
    let command = words.broker.unwrap_or_else(|| {
        format!(
            "{lepus} serve --data-dir {{data}} --listen 127.0.0.1:{{port}} --metrics-listen none --management-listen none \
             --stop-timeout 2 --store-read-retry-limit {limit} --shards {{shards}} {flags}"
        )
    });
    let data_text = data.display().to_string();
    let fill = |word: &str| word.replace("{port}", &port.to_string()).replace("{data}", &data_text);
    let filled = command.split_whitespace().map(fill).collect();
    let watch = Some(Watch::new(&directory, &data));
    let log = directory.join("broker.log");
    Ok(Plan {
        rounds: words.rounds,
        seed: words.seed,
        recipe: Recipe { words: filled, shards: words.shards, port, log, watch },
        data,
        failing,
        copies: words.copies,
        keep_going: words.keep_going,
        patience: Duration::from_secs(15),
        load: None,
        no_expiring: words.no_expiring,
        quiet: false,
    })
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

/// Runs the rounds in a directory made anew.
fn run_anew(plan: &Plan, forger: Forger) -> Result<Outcome, String> {
    clear(plan).map_err(|error| error.to_string())?;
    run::run(plan, forger).map_err(|error| {
        format!("{error}; the broker's output is in {}", plan.recipe.log.display())
    })
}

fn test(plan: &Plan) -> Result<u64, String> {
    say(format_args!("seed {}: {}", plan.seed, script::describe()));
    say(plan.recipe.words(0).join(" "));
    if let [first, others @ ..] = &plan.recipe.shards[..]
        && !others.is_empty()
    {
        let others: Vec<String> = others.iter().map(u64::to_string).collect();
        say(format_args!("shards, in turn from start to start: {first}, {}", others.join(", ")));
    }
    let outcome = run_anew(plan, Forger::new(None))?;
    show(&outcome);
    show_failures(plan);
    Ok(outcome.oracle.faults.total())
}

fn show(outcome: &Outcome) {
    let tally = outcome.oracle.tally;
    let [kills, second, stops, gave_up] = outcome.ends;
    let start = |share: f64| {
        let last = outcome.starts.len().saturating_sub(1) as f64;
        outcome.starts.get((last * share) as usize).copied().unwrap_or(0.0)
    };
    say("");
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
        say(format_args!("{about:48} {count:>12}"));
    }
    let starts = format!("{:.0} / {:.0} ms", start(0.5), start(1.0));
    say(format_args!("{:48} {starts:>12}", "from start to a login, median / longest"));
    for (fault, about) in Fault::ALL {
        say(format_args!("{about:48} {:>12}", outcome.oracle.faults.count(fault)));
    }
    say(format_args!("{} faults", outcome.oracle.faults.total()));
}

/// Says how often the disk failed.
fn show_failures(plan: &Plan) {
    if plan.failing == 0 {
        return;
    }
    let tally = plan.recipe.watch.as_ref().and_then(|watch| watch.tally().ok()).unwrap_or_default();
    let calls: Vec<String> =
        tally.iter().map(|(about, count)| format!("{count} {about}")).collect();
    say(format_args!("failed: {}", calls.join(", ")));
}

/// Forges one fault of each kind and looks whether it is found. The number of those that are not.
fn prove(plan: &Plan) -> Result<u64, String> {
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
        say(format_args!(
            "forging: {what}{}",
            if failing > 0 { ", with a failing disk" } else { "" }
        ));
        let plan = Plan { failing, ..plan.clone() };
        let outcome = run_anew(&plan, Forger::new(forgery))?;
        let faults = &outcome.oracle.faults;
        let found = match fault {
            Some(fault) => faults.count(fault) > 0,
            None => faults.total() == 0,
        };
        say(format_args!(
            "  {}",
            if found { "as it should be" } else { "NOT FOUND, or more than that" }
        ));
        missed += u64::from(!found);
    }
    say(format_args!("{missed} faults"));
    Ok(missed)
}
