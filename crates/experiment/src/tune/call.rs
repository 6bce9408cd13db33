//! The command line of `lepus tune`.

use super::variant::{Cores, Sweep};
use crate::subject::Site;
use lepus_topology::{Machine, POLICIES_ACCEPTED, Policy, source};
use lexopt::prelude::{Long, Short, Value};
use std::path::PathBuf;

const ROUNDS: usize = 10;
const ROUNDS_MAX: usize = 10_000;
const SECONDS: f64 = 5.0;
/// The balancer has seen what goes on for a while then, and has moved what it moves.
const WARM_UP: f64 = 15.0;
const SECONDS_MAX: f64 = 86_400.0;
const CORES_MAX: usize = 8_192;
/// The load when none is named: many queues, so that there is work for every shard.
const LOAD: &str = "loop";

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Messages per second, the more the better.
    Throughput,
    /// The mean latency of the slowest 5 %, the less the better.
    Latency,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The machine, or the one that is planned for.
    pub machine: Machine,
    /// Whether only to tell what would be tried.
    pub only_plans: bool,
    /// What is tried.
    pub sweep: Sweep,
    /// The words of `lepus perf`.
    pub load: Vec<String>,
    /// Seconds of a run that count.
    pub seconds: f64,
    /// Seconds of load before them.
    pub warm_up: f64,
    /// Runs of each setting.
    pub rounds: usize,
    /// What counts.
    pub goal: Goal,
    /// Whether clear losers are measured to the end.
    pub keeps_losers: bool,
    /// The configuration file for the recommendation.
    pub write: Option<PathBuf>,
    /// The directory of the report.
    pub output: PathBuf,
    /// Where programs and data are.
    pub site: Site,
    /// The command as it was given.
    pub command: String,
}

/// What the words ask for.
#[derive(Debug)]
pub enum Call {
    /// Print this text.
    Print(String),
    /// Tune.
    Run(Box<Plan>),
}

/// Options with the name of their value and what they do.
const OPTIONS: [(&str, &str, &str); 17] = [
    (
        "load",
        "WORDS",
        "the load, as words for `lepus perf`; default `loop`: 9 connections with 500 channels and queues each. Take \
         one that is like yours",
    ),
    (
        "goal",
        "GOAL",
        "throughput (the default) or latency: the mean of the slowest 5 %. Latency needs a load with a rate that the \
         broker can keep",
    ),
    ("rounds", "N", "how often each setting has its turn; default 10"),
    ("seconds", "N", "length of a run; default 5"),
    (
        "warm-up",
        "N",
        "seconds of load before each run that do not count, in which the balancer moves what it moves; default 15",
    ),
    (
        "cores",
        "LIST",
        "numbers of shards, such as 1,2,4, or every; default all up to 8, then 12, 16, 24 and so on; all CPUs \
         are always tried",
    ),
    ("node-sets", "WHICH", "none: leave out each node, and all but the network card's"),
    ("variant", "PLACEMENT", "another placement, or PLACEMENT:SHARDS; may be given several times"),
    ("testers", "N", "load testers, each with a CPU of its own; default a quarter of the CPUs"),
    (
        "keep",
        "",
        "measure clear losers to the end too; otherwise they are given up after 4 rounds or more",
    ),
    ("plan", "", "only print what would be tried, and how long it would take"),
    ("from", "MACHINE", "with --plan: for another machine, as `lepus topology --from` reads it"),
    (
        "write",
        "FILE",
        "set shards and placement in this configuration file as recommended; everything else in it stays",
    ),
    ("output", "DIR", "directory of the report; default build/tune/TIME"),
    (
        "data-dir",
        "DIR",
        "directory for the brokers' data; default in the report's, and emptied afterwards",
    ),
    ("broker-flags", "WORDS", "further settings for the brokers, such as --economy"),
    ("lepus", "FILE", "another build of lepus to tune; default this one"),
];

/// Reads the words behind `lepus tune`. `lepus` is the program to start brokers and loads with, `now` the time for the
/// name of the output directory.
///
/// # Errors
/// A text that says what would be right.
pub fn read(words: &[String], lepus: PathBuf, now: &str) -> Result<Call, String> {
    let mut plan = Plan {
        machine: Machine::default(),
        only_plans: false,
        sweep: Sweep::default(),
        load: vec![LOAD.to_owned()],
        seconds: SECONDS,
        warm_up: WARM_UP,
        rounds: ROUNDS,
        goal: Goal::Throughput,
        keeps_losers: false,
        write: None,
        output: PathBuf::from(format!("build/tune/{now}")),
        site: Site::new(lepus),
        command: spoken(words),
    };
    let (mut from, mut data) = (None, None);
    let mut parser = lexopt::Parser::from_args(words);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        let name = match argument {
            Short('h') | Long("help") => return Ok(Call::Print(help())),
            Long("plan") => {
                plan.only_plans = true;
                continue;
            }
            Long("keep") => {
                plan.keeps_losers = true;
                continue;
            }
            Long(name) => name.to_owned(),
            Short(name) => return Err(unknown(&format!("-{name}"))),
            Value(word) if word == "help" => return Ok(Call::Print(help())),
            Value(word) => {
                let word = word.display();
                return Err(format!("'{word}' belongs to no option; see `lepus tune --help`"));
            }
        };
        if !OPTIONS.iter().any(|option| option.0 == name) {
            return Err(unknown(&format!("--{name}")));
        }
        let value = parser.value().map_err(|error| error.to_string())?;
        let value = value.into_string().map_err(|_| format!("--{name} is not valid text"))?;
        match name.as_str() {
            "from" => from = Some(value),
            "data-dir" => data = Some(PathBuf::from(value)),
            _ => take(&mut plan, &name, value)?,
        }
    }
    plan.machine = match &from {
        Some(_) if !plan.only_plans => {
            return Err("--from plans for another machine: add --plan".to_owned());
        }
        Some(from) => source::from_file(from)?,
        None => source::running().0,
    };
    plan.output = absolute(plan.output)?;
    plan.site.lepus = absolute(plan.site.lepus)?;
    // A name that nobody has used: what is in it is deleted afterwards.
    let own = format!("lepus-tune-{now}-{}", std::process::id());
    plan.site.scratch = absolute(data.unwrap_or_else(|| plan.output.clone()))?.join(own);
    Ok(Call::Run(Box::new(plan)))
}

fn take(plan: &mut Plan, name: &str, value: String) -> Result<(), String> {
    let words = |value: &str| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    match name {
        "load" => {
            plan.load = words(&value);
            if plan.load.first().is_none_or(|word| word.starts_with('-')) {
                return Err(
                    "--load begins with a shape of `lepus perf`, such as loop or throughput"
                        .to_owned(),
                );
            }
        }
        "goal" => {
            plan.goal = match value.as_str() {
                "throughput" => Goal::Throughput,
                "latency" => Goal::Latency,
                _ => return Err(format!("--goal is throughput or latency, not '{value}'")),
            }
        }
        "rounds" => plan.rounds = whole(name, &value, ROUNDS_MAX)?,
        "seconds" => plan.seconds = seconds(&value)?,
        "warm-up" => plan.warm_up = warm_up(&value)?,
        "testers" => plan.sweep.testers = Some(whole(name, &value, CORES_MAX)?),
        "cores" => plan.sweep.cores = cores(&value)?,
        "node-sets" if value == "none" => plan.sweep.without_nodes = true,
        "node-sets" => return Err(format!("--node-sets can be none, not '{value}'")),
        "variant" => plan.sweep.further.push(further(&value)?),
        "write" => plan.write = Some(PathBuf::from(value)),
        "output" => plan.output = PathBuf::from(value),
        "lepus" => plan.site.lepus = PathBuf::from(value),
        _ => plan.site.flags = words(&value),
    }
    Ok(())
}

fn seconds(value: &str) -> Result<f64, String> {
    let number = value.parse::<f64>().ok().filter(|number| (1.0..=SECONDS_MAX).contains(number));
    number.ok_or_else(|| format!("--seconds needs a number from 1 to {SECONDS_MAX}, not '{value}'"))
}

fn warm_up(value: &str) -> Result<f64, String> {
    let number = value.parse::<f64>().ok().filter(|number| (0.0..=SECONDS_MAX).contains(number));
    number.ok_or_else(|| format!("--warm-up needs a number from 0 to {SECONDS_MAX}, not '{value}'"))
}

fn whole(name: &str, value: &str, most: usize) -> Result<usize, String> {
    let number = value.parse::<usize>().ok().filter(|number| *number > 0 && *number <= most);
    number.ok_or_else(|| format!("--{name} needs a whole number from 1 to {most}, not '{value}'"))
}

fn cores(value: &str) -> Result<Cores, String> {
    if value == "every" {
        return Ok(Cores::Every);
    }
    let counts: Result<Vec<usize>, _> =
        value.split(',').map(|count| whole("cores", count.trim(), CORES_MAX)).collect();
    counts.map(Cores::These)
}

/// `PLACEMENT` or `PLACEMENT:SHARDS`.
fn further(value: &str) -> Result<(Policy, Option<usize>), String> {
    match value.split_once(':') {
        None => Ok((value.parse()?, None)),
        Some((policy, shards)) => Ok((policy.parse()?, Some(whole("variant", shards, 256)?))),
    }
}

fn absolute(path: PathBuf) -> Result<PathBuf, String> {
    std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn spoken(words: &[String]) -> String {
    let word = |word: &String| match word.contains(char::is_whitespace) {
        true => format!("'{word}'"),
        false => word.clone(),
    };
    let words: Vec<String> = words.iter().map(word).collect();
    format!("lepus tune {}", words.join(" ")).trim_end().to_owned()
}

fn unknown(option: &str) -> String {
    let names: Vec<String> = OPTIONS.iter().map(|(name, ..)| format!("--{name}")).collect();
    format!("there is no option {option}; there are {}", names.join(", "))
}

/// The help.
#[must_use]
pub fn help() -> String {
    let mut out = String::from(
        "Finds by experiment with how many shards, and where, lepus is best on this machine for a load.

usage: lepus tune [options]

It starts a broker for each setting in turn (1, 2, … all cores; on machines with several memory nodes
each node and all but the network card's), loads it, and does so again, round by round. Settings are
compared by the ratios of runs of one round, which are neighbours in time, each with its 95 % interval.
Clear losers are given up early. At the end there is a table, a report with curves over the number of
cores, and a recommendation; the default stays unless something is shown to be better.

Other work on the machine disturbs it. Broker and load share the machine; where there are too few CPUs
for both, it says so.

Options:
",
    );
    for (name, value, text) in OPTIONS {
        let option = format!("--{name} {value}");
        wrap(&mut out, &format!("  {option:<22} "), text);
    }
    out.push('\n');
    let placements = format!("is a value of the setting `placement`: {POLICIES_ACCEPTED}");
    wrap(&mut out, &format!("  {:<22} ", "PLACEMENT"), &placements);
    out.push_str(
        "

Examples:
  lepus tune --plan                                 what would be tried here, and for how long
  lepus tune --plan --from artemis                  on another machine
  lepus tune --load 'throughput -x 20 -y 20 -u jobs -c 100 -f persistent' --write lepus.toml
  lepus tune --cores 1,2 --rounds 20 --keep         is it slower on two cores than on one?
  lepus tune --goal latency --load 'throughput -r 20000 -a' --variant spread:4
Ctrl-C ends it early: what was measured is reported, and the configuration file stays as it was.
",
    );
    out
}

/// A line that begins with `head`; what does not fit follows below its end.
fn wrap(out: &mut String, head: &str, text: &str) {
    let indent = head.chars().count();
    let mut line = head.to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() > 105 {
            out.push_str(line.trim_end());
            line = format!("\n{:indent$}", "");
        }
        line.push_str(word);
        line.push(' ');
    }
    out.push_str(line.trim_end_matches(' '));
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_words(words: &[&str]) -> Result<Call, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        read(&words, PathBuf::from("/bin/lepus"), "now")
    }

    fn plan(words: &[&str]) -> Plan {
        match read_words(words) {
            Ok(Call::Run(plan)) => *plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn words_become_a_plan() {
        let preset = plan(&[]);
        assert_eq!((preset.rounds, preset.load.as_slice()), (10, &["loop".to_owned()][..]));
        assert!(preset.site.scratch.starts_with(&preset.output) && !preset.machine.cpus.is_empty());
        // As long as the balancer needs to look and to move.
        assert_eq!((preset.warm_up, plan(&["--warm-up", "0"]).warm_up), (15.0, 0.0));
        let full = plan(&[
            "--load",
            "throughput -x 2",
            "--cores",
            "1,2",
            "--rounds=20",
            "--keep",
            "--variant",
            "nodes=!0:4",
            "--variant",
            "spread",
            "--node-sets",
            "none",
            "--goal",
            "latency",
            "--write",
            "f.toml",
            "--testers",
            "3",
            "--broker-flags",
            "--economy",
            "--data-dir",
            "/d",
        ]);
        assert_eq!(full.load, ["throughput", "-x", "2"]);
        assert_eq!(full.sweep.cores, Cores::These(vec![1, 2]));
        assert_eq!(full.sweep.further[0], ("nodes=!0".parse().unwrap(), Some(4)));
        assert_eq!(full.sweep.further[1], ("spread".parse().unwrap(), None));
        assert!(full.sweep.without_nodes && full.keeps_losers && full.goal == Goal::Latency);
        assert_eq!(
            (full.sweep.testers, full.site.flags.as_slice()),
            (Some(3), &["--economy".to_owned()][..])
        );
        assert!(
            full.site.scratch.starts_with("/d")
                && full.command.contains("--load 'throughput -x 2'")
        );
        let other = plan(&["--plan", "--from", "artemis"]);
        assert_eq!((other.machine.cpus.len(), other.only_plans), (24, true));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (words, part) in [
            (&["--cores", "0"][..], "from 1"),
            (&["--cores", "1;2"], "--cores"),
            (&["--seconds", "0.1"], "from 1"),
            (&["--rounds", "x"], "whole number"),
            (&["--goal", "speed"], "latency"),
            (&["--variant", "dense"], "compact"),
            (&["--variant", "spread:no"], "whole number"),
            (&["--load", "-x 2"], "shape"),
            (&["--node-sets", "all"], "none"),
            (&["--from", "artemis"], "--plan"),
            (&["--plan", "--from", "no-such"], "no-such"),
            (&["--core", "1"], "--cores"),
            (&["now"], "no option"),
            (&["--write"], "write"),
        ] {
            let text = read_words(words).unwrap_err();
            assert!(text.contains(part), "{words:?}: {text}");
        }
    }

    #[test]
    fn help_names_everything() {
        let Ok(Call::Print(text)) = read_words(&["--help"]) else { panic!() };
        for (name, ..) in OPTIONS {
            assert!(text.contains(&format!("--{name}")), "{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 106), "{text}");
    }
}
