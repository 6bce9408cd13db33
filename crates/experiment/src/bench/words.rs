//! The command line of `lepus-bench`.

use super::backlog::{self, EnduranceWords};
use super::curves;
use super::filters;
use super::idle::Crowd;
use super::large::LargeMessage;
use super::management::ManyQueues;
use super::measure::{Load, SECONDS_MIN};
use super::place::Place;
use super::tls_churn::Churn;
use super::workload::Testers;
use crate::call::absolute;
use crate::cast::Cast;
use crate::ground::Ground;
use crate::stop::Stop;
use crate::subject::Site;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use lepus_perf::to_stderr;
use std::convert::Infallible;
use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Measures lepus beside other brokers and beside the floor that any broker stands on
#[derive(Debug, Parser)]
#[command(name = "lepus-bench", args_override_self = true, max_term_width = 100)]
pub struct Words {
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measures loads of messages, broker by broker
    Run {
        /// How often each broker has its turn
        #[arg(long, default_value_t = 5, value_parser = from_one::<usize>(ROUNDS_MAX))]
        rounds: usize,
        /// Loads; all when left out
        #[arg(long, value_name = "NAME,…", default_value = "", hide_default_value = true)]
        workloads: List,
        /// Brokers; those that are installed when left out
        #[arg(long, value_name = "NAME,…", default_value = "", hide_default_value = true)]
        brokers: List,
        #[command(flatten)]
        places: Places,
    },
    /// Fills, restarts and drains backlogs on disk
    #[command(args_conflicts_with_subcommands = true)]
    Backlog {
        #[command(subcommand)]
        list: Option<Names>,
        #[command(flatten)]
        words: backlog::Words,
        #[command(flatten)]
        places: Places,
    },
    /// Measures µs of CPU of an operation by the size of things
    #[command(args_conflicts_with_subcommands = true)]
    Curves {
        #[command(subcommand)]
        list: Option<Names>,
        #[command(flatten)]
        words: curves::Words,
        #[command(flatten)]
        places: Places,
    },
    /// Sets the same content filters at several brokers, compares their verdicts, and measures
    Filters {
        #[command(flatten)]
        words: filters::Words,
        #[command(flatten)]
        places: Places,
    },
    /// Publishes and consumes for a long time above a standing backlog
    Endurance {
        #[command(flatten)]
        words: EnduranceWords,
        #[command(flatten)]
        places: Places,
    },
    /// Tells whether `lepus perf` and the reference tester measure the same
    Agree {
        /// How often each tester has its turn
        #[arg(long, default_value_t = 3, value_parser = from_one::<usize>(ROUNDS_MAX))]
        rounds: usize,
        /// The broker that both load
        #[arg(long, default_value = "lepus")]
        broker: String,
        #[command(flatten)]
        places: Places,
    },
    /// Counts system calls and allocations of a message
    Costs {
        /// A lepus that counts allocations
        #[arg(long, value_name = "FILE", default_value = "target/counting/release/lepus")]
        counting: PathBuf,
        #[command(flatten)]
        places: Places,
    },
    /// Counts instructions of a message in the core, and holds them to their ceilings
    Instructions {
        /// yes: writes what was counted as the new ceilings
        #[arg(long, default_value = "no")]
        record: String,
        /// The ceilings
        #[arg(long, default_value = "bench/instructions.txt")]
        file: PathBuf,
        /// For what is counted
        #[arg(long, value_name = "DIR", default_value = "build/bench/scratch")]
        scratch: PathBuf,
    },
    /// Measures what an idle broker costs, by connection, channel, queue and binding
    Idle {
        #[command(flatten)]
        crowd: Crowd,
        #[command(flatten)]
        places: Places,
    },
    /// Measures what one large message costs when many consumers read it slowly
    Large {
        #[command(flatten)]
        message: LargeMessage,
        #[command(flatten)]
        places: Places,
    },
    /// Measures what the management API costs with many queues, and what messages lose beside it
    Management {
        #[command(flatten)]
        objects: ManyQueues,
        #[command(flatten)]
        places: Places,
    },
    /// Measures connections over TLS that come and go
    TlsChurn {
        #[command(flatten)]
        churn: Churn,
        #[command(flatten)]
        places: Places,
    },
    /// Sends messages through the core, without sockets
    Drive {
        /// One of the loads of the core
        load: String,
        /// How many
        messages: u64,
    },
    /// Tells what locality is worth on the machines of experiment E1
    NumaModel {
        /// Where the report goes
        #[arg(long, value_name = "DIR", default_value = "build/bench")]
        results: PathBuf,
    },
    /// Names the loads and brokers
    List,
    /// Is the broker that does next to nothing
    NullBroker {
        /// For AMQP
        port: u16,
        /// For metrics
        metrics_port: u16,
    },
    /// Copies frames from PORT to PORT + 1
    NullRelay {
        /// For AMQP
        port: u16,
        /// For metrics
        metrics_port: u16,
    },
    /// Appends 64 KiB with fdatasync, again and again
    Append {
        /// What is written
        file: PathBuf,
        /// How often
        count: usize,
    },
    /// Writes and syncs 1 KiB for each answer
    NullPersister {
        /// Where it listens
        port: u16,
        /// What is written
        file: PathBuf,
        /// How many answers
        count: u64,
    },
    /// Loads the null persister
    Echo {
        /// Where it listens
        port: u16,
        /// How many questions
        count: u64,
    },
    /// Declares durable queues and publishes so many messages to each
    Seed {
        /// Where the broker listens
        port: u16,
        /// How many queues
        queues: usize,
        /// How many messages in each
        messages: u64,
    },
    /// Loads the null relay
    RelayLoad {
        /// Where it listens
        port: u16,
        /// Bytes of a body
        body_bytes: u16,
        /// How long
        seconds: u16,
    },
    /// Loads a NATS server
    NatsLoad {
        /// Where it listens
        port: u16,
        /// Bytes of a body
        body_bytes: u16,
        /// How many connections get each message
        subscribers: u16,
        /// How long
        seconds: u16,
    },
}

/// Names, and nothing else.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Names {
    /// Names what there is
    List,
}

/// The longest time, in seconds: a day.
pub const SECONDS_MAX: u64 = 86_400;
/// The most rounds.
pub const ROUNDS_MAX: u64 = 1_000;

/// A number from 1 to `most`: of nothing there are no figures.
pub fn from_one<T: TryFrom<u64> + Clone + Send + Sync + 'static>(
    most: u64,
) -> RangedU64ValueParser<T>
where
    T::Error: Send + Sync + Error,
{
    RangedU64ValueParser::new().range(1..=most)
}

/// Words of one option, with commas or spaces between them.
#[derive(Clone, Debug, Default)]
pub struct List(pub Vec<String>);

impl FromStr for List {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<List, Infallible> {
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        Ok(List(words.map(str::to_owned).collect()))
    }
}

/// What all commands that start a broker are told: the broker's side, the tester's, and where results go.
#[derive(Clone, Debug, Args)]
pub struct Places {
    /// How long each load is measured, at least 6 seconds
    #[arg(long, default_value_t = 10, value_parser = from_one::<u64>(SECONDS_MAX), help_heading = "Place")]
    seconds: u64,
    /// The broker's core
    #[arg(long, default_value_t = 0, help_heading = "Place")]
    core: usize,
    /// The load's core
    #[arg(long, default_value_t = 1, help_heading = "Place")]
    load_core: usize,
    /// The build of lepus
    #[arg(
        long,
        value_name = "FILE",
        default_value = "target/release/lepus",
        help_heading = "Place"
    )]
    lepus: PathBuf,
    /// Further settings for it
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true,
        help_heading = "Place"
    )]
    lepus_flags: List,
    /// LavinMQ's binary, measured where it is named, here or in the variable LAVINMQ; with lavinmqperf as a tester where
    /// that lies beside it
    #[arg(long, value_name = "FILE", help_heading = "Place")]
    lavinmq: Option<String>,
    /// The NATS server of bench/nats-peer, measured where it was built
    #[arg(long, value_name = "FILE", default_value = "build/nats-peer", help_heading = "Place")]
    nats: PathBuf,
    /// Apache Qpid Broker-J of bench/qpid-peer, measured where it was built
    #[arg(long, value_name = "DIR", default_value = "build/qpid-peer", help_heading = "Place")]
    qpid: PathBuf,
    /// Apache Artemis of bench/artemis-peer, measured where it was built
    #[arg(long, value_name = "DIR", default_value = "build/artemis-peer", help_heading = "Place")]
    artemis: PathBuf,
    /// The reference tester
    #[arg(
        long,
        value_name = "DIR",
        default_value = "build/reference-tester",
        help_heading = "Place"
    )]
    jars: PathBuf,
    /// Where reports go
    #[arg(long, value_name = "DIR", default_value = "build/bench", help_heading = "Place")]
    results: PathBuf,
}

impl Places {
    /// The broker's side, with where results go, and the tester's.
    ///
    /// # Errors
    /// When there is no working directory, or signals cannot be had.
    pub fn prepare(self) -> Result<(Place, Load), String> {
        let lepus = absolute(self.lepus)?;
        let results = absolute(self.results)?;
        let mut site = Site::new(lepus.clone());
        site.bench = std::env::current_exe().map_err(|error| error.to_string())?;
        if let Some(path) = self.lavinmq.filter(|path| !path.is_empty()) {
            site.lavinmq = Some(absolute(path.into())?);
        }
        site.nats = absolute(self.nats)?;
        site.qpid = absolute(self.qpid)?;
        site.artemis = absolute(self.artemis)?;
        site.flags = self.lepus_flags.0;
        let ground = Arc::new(Ground::below(&results).map_err(|error| error.to_string())?);
        site.scratch = ground.path().to_owned();
        let beside = site.lavinmq.as_ref().map(|path| path.with_file_name("lavinmqperf"));
        let stop = Stop::on_signals().map_err(|error| error.to_string())?;
        let notes: Vec<String> = raised(self.seconds).into_iter().collect();
        for note in &notes {
            to_stderr(format_args!("{note}"));
        }
        let cast = Cast::default();
        let lavinmqperf = beside.filter(|path| path.exists());
        let testers = Testers { lepus, jars: self.jars, lavinmqperf, cast: cast.clone() };
        let errors = ground.path().join("tester.log");
        let core = self.core;
        let wish = stop.clone();
        let place = Place { site, core, stop, cast, ground, results, notes };
        let load = Load {
            testers,
            core: self.load_core,
            seconds: self.seconds.max(SECONDS_MIN),
            errors,
            stop: wish,
        };
        Ok((place, load))
    }
}

/// What is said to seconds that are too few.
fn raised(seconds: u64) -> Option<String> {
    (seconds < SECONDS_MIN).then(|| {
        format!(
            "Loads of {SECONDS_MIN} s, not of {seconds}: the tester starts, warms up and ends in them, and a second at \
             least is measured."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn read(line: &str) -> Result<Command, String> {
        let words = std::iter::once("lepus-bench").chain(line.split_whitespace());
        Words::try_parse_from(words).map(|words| words.command).map_err(|error| error.to_string())
    }

    #[test]
    fn words_become_a_command() {
        Words::command().debug_assert();
        let line = "run --rounds 3 --rounds 4 --brokers lepus,null-broker --lepus-flags --economy";
        let Command::Run { rounds, brokers, workloads, places } = read(line).unwrap() else {
            panic!("not a run")
        };
        assert_eq!((rounds, workloads.0.len()), (4, 0));
        assert_eq!(brokers.0, ["lepus", "null-broker"]);
        assert_eq!((places.seconds, places.lepus_flags.0), (10, vec!["--economy".to_owned()]));
        assert!(matches!(read("curves list"), Ok(Command::Curves { list: Some(_), .. })));
        assert!(matches!(read("seed 5672 1 2"), Ok(Command::Seed { port: 5672, .. })));
        let empty = Words::try_parse_from(["lepus-bench", "backlog", "--rows", "", "--scale", "2"]);
        assert!(matches!(empty.unwrap().command, Command::Backlog { list: None, .. }));
    }

    #[test]
    fn seconds_that_are_raised_are_told() {
        assert_eq!(raised(SECONDS_MIN), None);
        let note = raised(4).unwrap();
        assert!(note.contains("of 6 s, not of 4"), "{note}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, part) in [
            ("run rounds 3", "'rounds'"),
            ("run --rounds", "--rounds <ROUNDS>"),
            ("run --rounds x", "'x'"),
            ("run --other 1", "'--other'"),
            ("rum", "'run'"),
            ("run --rounds 0", "1..=1000"),
            ("run --seconds 0", "1..="),
            ("agree --rounds 0", "1..=1000"),
            ("curves --rounds 0", "1..=1000"),
            ("tls-churn --clients 0", "1..="),
            ("tls-churn --connects 0", "1..="),
            ("idle --queues 0", "1..="),
            ("management --queues 0", "1..="),
            ("large --mib 4096", "1..=1024"),
            ("endurance --rate 0", "1..="),
            ("filters --rounds 0", "1..=1000"),
            ("filters --consumer-rate 0", "1..="),
            ("filters --warm-up 0", "above 0"),
            ("backlog --scale 0", "above 0"),
            ("backlog --scale nan", "above 0"),
            ("backlog --scale -1", "above 0"),
            ("null-broker 70000 1", "70000"),
            ("", "instructions"),
        ] {
            let text = read(line).unwrap_err();
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
