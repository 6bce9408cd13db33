//! The command line of `lepus tune`.

use super::variant::{Cores, Sweep};
use crate::call::absolute;
use crate::subject::Site;
use clap::{Args, ValueEnum};
use lepus_topology::{Machine, POLICIES_ACCEPTED, Policy, source};
use std::path::PathBuf;

const ROUNDS_MAX: usize = 10_000;
const SECONDS_MAX: f64 = 86_400.0;
const CORES_MAX: usize = 8_192;
const SHARDS_MAX: usize = 256;

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// Messages per second, the more the better
    Throughput,
    /// The mean latency of the slowest 5 %, the less the better
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

/// What stands behind the options in the help.
fn examples() -> String {
    format!(
        "PLACEMENT is a value of the setting `placement`: {POLICIES_ACCEPTED}

Examples:
  lepus tune --plan                                 what would be tried here, and for how long
  lepus tune --plan --from artemis                  on another machine
  lepus tune --load 'throughput -x 20 -y 20 -u jobs -c 100 -f persistent' --write lepus.toml
  lepus tune --cores 1,2 --rounds 20 --keep         is it slower on two cores than on one?
  lepus tune --goal latency --load 'throughput -r 20000 -a' --variant spread:4
Ctrl-C ends it early: what was measured is reported, and the configuration file stays as it was."
    )
}

/// Finds by experiment with how many shards, and where, lepus is best on this machine for a load
///
/// It starts a broker for each setting in turn (1, 2, … all cores; on machines with several memory nodes each node and
/// all but the network card's), loads it, and does so again, round by round. Settings are compared by the ratios of
/// runs of one round, which are neighbours in time, each with its 95 % interval. Clear losers are given up early. At the end
/// there is a table, a report with curves over the number of cores, and a recommendation; the default stays
/// unless something is shown to be better.
///
/// Other work on the machine disturbs it. Broker and load share the machine; where there are too few CPUs for both, it
/// says so.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples())]
pub struct Words {
    /// The load, as words for `lepus perf`; loop is 9 connections with 500 channels and queues each, so that there is
    /// work for every shard. Take one that is like yours
    #[arg(long, value_name = "WORDS", value_parser = load, default_value = "loop", allow_hyphen_values = true)]
    load: String,
    /// What counts. Latency needs a load with a rate that the broker can keep
    #[arg(long, value_enum, default_value = "throughput")]
    goal: Goal,
    /// How often each setting has its turn
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, ROUNDS_MAX), allow_negative_numbers = true, default_value = "10")]
    rounds: usize,
    /// Length of a run
    #[arg(long, value_name = "N", value_parser = |text: &str| seconds(text, 1.0), allow_negative_numbers = true, default_value = "5")]
    seconds: f64,
    /// Seconds of load before each run that do not count: by then the balancer has seen what goes on, and has moved what it
    /// moves
    #[arg(long, value_name = "N", value_parser = |text: &str| seconds(text, 0.0), allow_negative_numbers = true, default_value = "15")]
    warm_up: f64,
    /// Numbers of shards, such as 1,2,4, or every; when left out all up to 8, then 12, 16, 24 and so on. All CPUs are always
    /// tried
    #[arg(long, value_name = "LIST", value_parser = cores)]
    cores: Option<Cores>,
    /// Leaves out each node, and all but the network card's
    #[arg(long, value_name = "WHICH", value_parser = ["none"])]
    node_sets: Option<String>,
    /// Another placement, with so many shards; may be given several times
    #[arg(long, value_name = "PLACEMENT[:SHARDS]", value_parser = further)]
    variant: Vec<(Policy, Option<usize>)>,
    /// Load testers, each with a CPU of its own; a quarter of the CPUs when left out
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, CORES_MAX))]
    testers: Option<usize>,
    /// Measures clear losers to the end too; otherwise they are given up after 4 rounds or more
    #[arg(long)]
    keep: bool,
    /// Only prints what would be tried, and how long it would take
    #[arg(long)]
    plan: bool,
    /// With --plan: for another machine, as `lepus topology --from` reads it
    #[arg(long, value_name = "MACHINE", requires = "plan")]
    from: Option<String>,
    /// Sets shards and placement in this configuration file as recommended; everything else in it stays
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Directory of the report; build/tune/TIME when left out
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Directory for the brokers' data; in the report's when left out, and emptied afterwards
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Further settings for the brokers, such as --economy
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    broker_flags: Option<String>,
    /// Another build of lepus to tune; this one when left out
    #[arg(long, value_name = "FILE")]
    lepus: Option<PathBuf>,
    /// The words as they were given.
    #[arg(skip)]
    pub spoken: Vec<String>,
}

impl Words {
    /// What is to be done. `lepus` is the program to start brokers and loads with, `now` the time for the name of the
    /// output directory.
    ///
    /// # Errors
    /// When the other machine is not known.
    pub(crate) fn plan(self, lepus: PathBuf, now: &str) -> Result<Plan, String> {
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
        let output = absolute(self.output.unwrap_or_else(|| format!("build/tune/{now}").into()))?;
        let mut site = Site::new(lepus);
        site.lepus = absolute(self.lepus.unwrap_or(site.lepus))?;
        site.flags = words(self.broker_flags.unwrap_or_default());
        // A name that nobody has used: what is in it is deleted afterwards.
        let own = format!("lepus-tune-{now}-{}", std::process::id());
        site.scratch = absolute(self.data_dir.unwrap_or_else(|| output.clone()))?.join(own);
        Ok(Plan {
            machine: self
                .from
                .map_or_else(|| Ok(source::running().0), |from| source::from_file(&from))?,
            only_plans: self.plan,
            sweep: Sweep {
                cores: self.cores.unwrap_or_default(),
                without_nodes: self.node_sets.is_some(),
                further: self.variant,
                testers: self.testers,
            },
            load: words(self.load),
            seconds: self.seconds,
            warm_up: self.warm_up,
            rounds: self.rounds,
            goal: self.goal,
            keeps_losers: self.keep,
            write: self.write,
            output,
            site,
            command: spoken(&self.spoken),
        })
    }
}

fn load(text: &str) -> Result<String, String> {
    match text.trim_start() {
        "" => Err("it begins with a shape of `lepus perf`, such as loop or throughput".to_owned()),
        words if words.starts_with('-') => load(""),
        _ => Ok(text.to_owned()),
    }
}

fn seconds(text: &str, least: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (least..=SECONDS_MAX).contains(number));
    number.ok_or_else(|| format!("a number from {least} to {SECONDS_MAX} is needed"))
}

fn whole(text: &str, most: usize) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0 && *number <= most);
    number.ok_or_else(|| format!("a whole number from 1 to {most} is needed"))
}

fn cores(text: &str) -> Result<Cores, String> {
    if text == "every" {
        return Ok(Cores::Every);
    }
    let counts: Result<_, _> =
        text.split(',').map(|count| whole(count.trim(), CORES_MAX)).collect();
    counts.map(Cores::These)
}

/// `PLACEMENT` or `PLACEMENT:SHARDS`.
fn further(text: &str) -> Result<(Policy, Option<usize>), String> {
    match text.split_once(':') {
        None => Ok((text.parse()?, None)),
        Some((policy, shards)) => Ok((policy.parse()?, Some(whole(shards, SHARDS_MAX)?))),
    }
}

fn spoken(words: &[String]) -> String {
    let word = |word: &String| match word.contains(char::is_whitespace) {
        true => format!("'{word}'"),
        false => word.clone(),
    };
    let words: Vec<String> = words.iter().map(word).collect();
    format!("lepus tune {}", words.join(" ")).trim_end().to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn command() -> Command {
        Words::augment_args(Command::new("tune").no_binary_name(true).max_term_width(100))
    }

    pub(in super::super) fn read_words(words: &[&str]) -> Result<Plan, String> {
        let matches = command().try_get_matches_from(words).map_err(|error| error.to_string())?;
        let read = Words::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        let spoken = words.iter().map(|word| (*word).to_owned()).collect();
        Words { spoken, ..read }.plan(PathBuf::from("/bin/lepus"), "now")
    }

    fn plan(words: &[&str]) -> Plan {
        read_words(words).unwrap()
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
            (&["--rounds", "x"], "--rounds <N>"),
            (&["--goal", "speed"], "latency"),
            (&["--variant", "dense"], "compact"),
            (&["--variant", "spread:no"], "whole number"),
            (&["--load", "-x 2"], "shape"),
            (&["--node-sets", "all"], "none"),
            (&["--from", "artemis"], "--plan"),
            (&["--plan", "--from", "no-such"], "no-such"),
            (&["--core", "1"], "--cores"),
            (&["now"], "unexpected argument 'now'"),
            (&["--write"], "write"),
        ] {
            let text = read_words(words).unwrap_err();
            assert!(text.contains(part), "{words:?}: {text}");
        }
    }

    #[test]
    fn help_teaches_by_example() {
        let text = command().render_long_help().to_string();
        assert!(text.contains("lepus tune --plan --from artemis"), "{text}");
        assert!(text.contains("one-per-core"), "{text}");
    }
}
