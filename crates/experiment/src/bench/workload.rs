//! The loads that are measured, each a command of a tester.

use crate::artemis;
use crate::bench::nats_load::WINDOW_BYTES;
use crate::cast::Cast;
use crate::identity::{OWN_TESTER, own_tester, says};
use crate::subject::{Kind, Subject};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tester {
    /// The reference load tester, a Java program.
    Reference,
    /// `lepus perf`.
    Own,
    /// LavinMQ's, a native program.
    LavinMq,
}

impl Tester {
    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Tester::Reference => "reference tester (perf-test)",
            Tester::Own => OWN_TESTER,
            Tester::LavinMq => "lavinmqperf",
        }
    }
}

/// The version of the reference tester in the name of its archive.
fn archive_version(name: &str) -> Option<String> {
    let version = name.strip_prefix("perf-test-")?.strip_suffix(".jar")?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

/// Where the testers are.
#[derive(Clone, Debug)]
pub struct Testers {
    /// The binary `lepus`, for its own one.
    pub lepus: PathBuf,
    /// The directory of the reference tester.
    pub jars: PathBuf,
    /// The binary `lavinmqperf`, where one is named or lies beside the broker's.
    pub lavinmqperf: Option<PathBuf>,
    /// Where it is noted who made load.
    pub cast: Cast,
}

impl Testers {
    /// The command of one with its words, for the broker on `port`; it is noted among those who took part.
    pub fn against(&self, tester: Tester, port: u16, words: &[&str]) -> Command {
        self.cast.load(tester.name(), || self.identity(tester));
        let uri = format!("amqp://guest:guest@localhost:{port}");
        let mut command = match (tester, &self.lavinmqperf) {
            (Tester::Reference, _) => {
                let mut command = Command::new("java");
                command.arg("-cp").arg(self.jars.join("*")).arg("com.rabbitmq.perf.PerfTest");
                command
            }
            (Tester::Own, _) => {
                let mut command = Command::new(&self.lepus);
                command.arg("perf");
                command
            }
            (Tester::LavinMq, path) => {
                // A name alone is looked for where programs are.
                let mut command = match path {
                    Some(path) => Command::new(path),
                    None => Command::new("lavinmqperf"),
                };
                command.args(["throughput", "-l", &format!("--uri={uri}")]).args(words);
                return command;
            }
        };
        // The first of the words may be a subcommand.
        command.args(words).args(["-h", &uri]);
        command
    }

    /// A command of this program that makes a load; it is noted as well.
    fn by_itself(&self, name: &str, note: &str, numbers: &[usize]) -> io::Result<Command> {
        let version = env!("CARGO_PKG_VERSION");
        self.cast.load(name, || format!("lepus-bench {name} {version}{note}"));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(name).args(numbers.iter().map(usize::to_string));
        Ok(command)
    }

    /// The load of `bench/artemis-peer`, to which its words are still to be added; it is noted among those who took part.
    pub fn of_artemis(&self, built: &Path) -> Command {
        self.cast.load("ArtemisLoad", || {
            "ArtemisLoad of bench/artemis-peer, for Artemis alone".to_owned()
        });
        artemis::load(built)
    }

    /// What a tester calls itself. The reference tester's version stands in the name of its archive.
    fn identity(&self, tester: Tester) -> String {
        match tester {
            Tester::Own => own_tester(&self.lepus),
            Tester::LavinMq => {
                let path = self.lavinmqperf.clone().unwrap_or_else(|| tester.name().into());
                let version = says(Command::new(path).arg("--version")).unwrap_or_default();
                format!("{} {version}", tester.name()).trim_end().to_owned()
            }
            Tester::Reference => {
                let files = fs::read_dir(&self.jars).into_iter().flatten().flatten();
                let names = files.filter_map(|file| file.file_name().into_string().ok());
                let version = names.filter_map(|name| archive_version(&name)).max();
                format!("{} {}", tester.name(), version.unwrap_or_default()).trim_end().to_owned()
            }
        }
    }

    /// Why this one cannot make a load here, if so.
    pub fn missing(&self, tester: Tester) -> Option<String> {
        match (tester, &self.lavinmqperf) {
            (Tester::Reference, _) if !self.jars.exists() => {
                Some(format!("no reference tester in {}", self.jars.display()))
            }
            (Tester::LavinMq, None) => {
                Some("no lavinmqperf lies beside the binary that --lavinmq or LAVINMQ names".into())
            }
            _ => None,
        }
    }
}

/// Messages as fast as they may come, each to so many subscribers, without answers.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Bytes of a body.
    pub body_bytes: usize,
    /// How many get each message.
    pub subscribers: usize,
}

/// One load.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name on the command line and in the tables.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// Who makes it.
    pub tester: Tester,
    /// The tester's words, apart from the address and the duration.
    pub words: &'static [&'static str],
    /// What of it can be asked of brokers without AMQP: the null relay, which shows the floor, and NATS.
    pub stream: Option<Stream>,
    /// Whether consumers acknowledge, so that acknowledgements can be compared with deliveries.
    pub acknowledges: bool,
    /// Producers and messages of each, for a run by which counts are checked where the tester does
    /// not tell its own to the end.
    pub counted: Option<(u64, u64)>,
}

/// Experiment E4's single queue: 12-byte mandatory publishes, 100 unconfirmed, prefetch 300.
pub const SINGLE: [&str; 12] =
    ["-x", "1", "-y", "1", "-q", "300", "-c", "100", "-s", "12", "-f", "mandatory"];

/// All loads, in the order of the table.
pub const WORKLOADS: [Workload; 13] = [
    Workload {
        name: "e4-single",
        title: "E4 single queue: 12 B mandatory, confirm window 100, prefetch 300 (reference tester)",
        tester: Tester::Reference,
        words: &SINGLE,
        stream: None,
        acknowledges: true,
        counted: Some((1, 50_000)),
    },
    Workload {
        name: "e4-many",
        title: "E4 150 producers, 300 consumers, 100 queues (reference tester)",
        tester: Tester::Reference,
        words: &[
            "-x",
            "150",
            "-y",
            "300",
            "-q",
            "300",
            "-c",
            "100",
            "-s",
            "12",
            "-f",
            "mandatory",
            "--queue-pattern",
            "perf-test-%d",
            "--queue-pattern-from",
            "1",
            "--queue-pattern-to",
            "100",
        ],
        stream: None,
        acknowledges: true,
        counted: Some((150, 300)),
    },
    Workload {
        name: "java-12",
        title: "one queue, 12 B, auto-ack, no confirms (reference tester)",
        tester: Tester::Reference,
        words: &["-x", "1", "-y", "1", "-a", "-s", "12"],
        stream: None,
        acknowledges: false,
        counted: Some((1, 50_000)),
    },
    Workload {
        name: "java-1024",
        title: "one queue, 1 KiB, auto-ack, no confirms (reference tester)",
        tester: Tester::Reference,
        words: &["-x", "1", "-y", "1", "-a", "-s", "1024"],
        stream: None,
        acknowledges: false,
        counted: Some((1, 50_000)),
    },
    Workload {
        name: "java-fan-out",
        title: "fan-out to 5 queues of their own, 100 B, auto-ack (reference tester)",
        tester: Tester::Reference,
        words: &["-x", "1", "-y", "5", "-a", "-s", "100"],
        stream: None,
        acknowledges: false,
        counted: None,
    },
    Workload {
        name: "java-10k",
        title: "one queue, 12 B, auto-ack, 10,000 a second (reference tester)",
        tester: Tester::Reference,
        words: &["-x", "1", "-y", "1", "-a", "-s", "12", "--rate", "10000"],
        stream: None,
        acknowledges: false,
        counted: None,
    },
    Workload {
        name: "lavin-confirm",
        title: "one queue, 16 B, confirm window 100, each acknowledged, prefetch 300 (lavinmqperf)",
        tester: Tester::LavinMq,
        words: &["-c", "100", "-a", "1", "-P", "300"],
        stream: None,
        acknowledges: true,
        counted: Some((1, 20_000)),
    },
    Workload {
        name: "lavin-16",
        title: "one queue, 16 B, no acknowledgements, no confirms (lavinmqperf)",
        tester: Tester::LavinMq,
        words: &["-s", "16"],
        stream: None,
        acknowledges: false,
        counted: Some((1, 20_000)),
    },
    Workload {
        name: "e4-single-own",
        title: "E4 single queue (lepus perf)",
        tester: Tester::Own,
        words: &SINGLE,
        stream: None,
        acknowledges: true,
        counted: None,
    },
    Workload {
        name: "stream-16",
        title: "one queue, 16 B, auto-ack, no confirms, saturating (lepus perf)",
        tester: Tester::Own,
        words: &["-x", "1", "-y", "1", "-a", "-s", "16"],
        stream: Some(Stream { body_bytes: 16, subscribers: 1 }),
        acknowledges: false,
        counted: None,
    },
    Workload {
        name: "stream-1024",
        title: "one queue, 1 KiB, auto-ack, no confirms, saturating (lepus perf)",
        tester: Tester::Own,
        words: &["-x", "1", "-y", "1", "-a", "-s", "1024"],
        stream: Some(Stream { body_bytes: 1024, subscribers: 1 }),
        acknowledges: false,
        counted: None,
    },
    Workload {
        name: "e1-loop",
        title: "E1 loop: 3 connections x 500 channels, 11 B (lepus perf)",
        tester: Tester::Own,
        words: &["loop", "--connections", "3", "--channels", "500", "-s", "11"],
        stream: None,
        acknowledges: false,
        counted: None,
    },
    Workload {
        name: "fan-out",
        title: "fan-out to 10 queues, 100 B per delivery (lepus perf)",
        tester: Tester::Own,
        words: &["fanout", "--queues", "10", "-s", "100"],
        stream: Some(Stream { body_bytes: 100, subscribers: 10 }),
        acknowledges: false,
        counted: None,
    },
];

impl Workload {
    /// Whether a broker can be loaded with it.
    pub fn fits(&self, kind: Kind) -> bool {
        match kind {
            Kind::Nats => self.stream.is_some(),
            Kind::NullRelay => self.stream.is_some_and(|stream| stream.subscribers == 1),
            _ => true,
        }
    }

    /// The tester's command against a broker.
    ///
    /// # Errors
    /// When this program cannot be found, which loads brokers without AMQP.
    pub fn command(
        &self,
        subject: &Subject,
        seconds: u64,
        testers: &Testers,
    ) -> io::Result<Command> {
        let port = subject.port();
        match (subject.kind(), self.stream) {
            (Some(Kind::NullRelay), Some(stream)) => testers.by_itself(
                "relay-load",
                "",
                &[port.into(), stream.body_bytes, seconds as usize],
            ),
            (Some(Kind::Nats), Some(Stream { body_bytes, subscribers })) => {
                let note =
                    format!(", with at most {WINDOW_BYTES} bytes on their way to a subscriber");
                let numbers = [port.into(), body_bytes, subscribers, seconds as usize];
                testers.by_itself("nats-load", &note, &numbers)
            }
            _ => {
                let mut command = testers.against(self.tester, port, self.words);
                command.args(["-z", &seconds.to_string()]);
                Ok(command)
            }
        }
    }
}

/// What a tester has printed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Said {
    /// Median and 99th percentile of the consumers' latency over the whole run, in microseconds.
    pub latency: Option<(f64, f64)>,
    lines: u64,
    time: f64,
}

/// One interval, from a tester's line before to this one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Number of the line, from 1.
    pub number: u64,
    /// Length of the interval.
    pub seconds: f64,
    /// Messages received per second in it.
    pub received: f64,
}

impl Said {
    /// Takes a line; `Some` when it tells of an interval.
    pub fn hear(&mut self, line: &str) -> Option<Interval> {
        if let Some(found) = latency(line) {
            self.latency = Some(found);
        }
        self.hear_summary(line);
        if let Some(received) = number(line, " Consume rate: ") {
            // Its lines are a second apart, and do not say when.
            self.lines += 1;
            return Some(Interval { number: self.lines, seconds: 1.0, received });
        }
        let time = number(line, ", time ")?;
        // A tester with nothing to tell yet leaves the rate out.
        let received = number(line, ", received: ").unwrap_or(0.0);
        let seconds = time - self.time;
        self.time = time;
        self.lines += 1;
        Some(Interval { number: self.lines, seconds, received })
    }
}

impl Said {
    /// Takes a line of LavinMQ's summary at the end, whose latencies are in milliseconds.
    fn hear_summary(&mut self, line: &str) {
        let micros = |label| Some(number(line, label)? * 1000.0);
        if let Some(median) = micros("  median: ") {
            self.latency = Some((median, f64::NAN));
        }
        if let (Some((median, _)), Some(last)) = (self.latency, micros("  99th: ")) {
            self.latency = Some((median, last));
        }
    }
}

/// The number behind `label`.
fn number(line: &str, label: &str) -> Option<f64> {
    let at = line.find(label)? + label.len();
    line[at..].split_whitespace().next()?.parse().ok()
}

/// The latencies of a whole run, from one of the last lines.
fn latency(line: &str) -> Option<(f64, f64)> {
    points(line, "consumer latency min/median/75th/95th/99th ")
}

/// Median and 99th percentile of what a whole run's confirms took, in microseconds, from one of the last lines of the
/// project's tester.
pub fn confirm_latency(line: &str) -> Option<(f64, f64)> {
    points(line, "confirm latency min/median/75th/95th/99th ")
}

fn points(line: &str, label: &str) -> Option<(f64, f64)> {
    let at = line.find(label)? + label.len();
    let mut words = line[at..].split_whitespace();
    let points: Vec<f64> =
        words.next()?.split('/').filter_map(|point| point.parse().ok()).collect();
    let scale = if words.next()? == "ms" { 1000.0 } else { 1.0 };
    Some((points.get(1)? * scale, points.get(4)? * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_testers_are_understood() {
        let mut said = Said::default();
        assert_eq!(said.hear("id: x, starting consumer #0"), None);
        let line = "id: x, time 1.001 s, sent: 9 msg/s, received: 8.5 msg/s, \
                    min/median/75th/95th/99th consumer latency: 4/5/6/7/8 µs";
        let first = said.hear(line).unwrap();
        assert_eq!((first.number, first.seconds, first.received), (1, 1.001, 8.5));
        assert_eq!(said.latency, None);
        let second = said.hear("id: x, time 2.001 s, sent: 9 msg/s").unwrap();
        assert_eq!((second.number, second.seconds, second.received), (2, 1.0, 0.0));
        let line = "id: x, confirm latency min/median/75th/95th/99th 4/5/6/7/8.5 ms";
        assert_eq!(confirm_latency(line), Some((5_000.0, 8_500.0)));
        assert_eq!(said.hear(line), None);
        assert_eq!(said.latency, None);
        let line = "id: x, consumer latency min/median/75th/95th/99th 41/2194/3488/6998/12747 µs";
        assert_eq!(said.hear(line), None);
        assert_eq!(said.latency, Some((2194.0, 12747.0)));
    }

    #[test]
    fn lines_of_lavinmqperf_are_understood() {
        let mut said = Said::default();
        let line = "Publish rate: 178870 msgs/s Consume rate: 178724 msgs/s | Latency (ms) \
                    min/median/75th/95th/99th: 0.063/0.42/0.572/4.74/8.241";
        let interval = said.hear(line).unwrap();
        assert_eq!((interval.number, interval.seconds, interval.received), (1, 1.0, 178_724.0));
        for line in ["Average consume rate: 187979 msgs/s", "  median: 0.409", "  99th:   16.499"] {
            assert_eq!(said.hear(line), None);
        }
        assert_eq!(said.latency, Some((409.0, 16_499.0)));
    }

    #[test]
    fn the_reference_tester_is_known_by_its_archive() {
        assert_eq!(archive_version("perf-test-2.22.1.jar"), Some("2.22.1".to_owned()));
        assert_eq!(archive_version("perf-test-helpers.jar"), None);
        assert_eq!(archive_version("gson-2.11.0.jar"), None);
    }

    #[test]
    fn who_makes_a_load_is_noted() {
        let cast = Cast::default();
        let none = PathBuf::from("/no/such");
        let (lepus, jars) = (none.clone(), none.clone());
        let testers = Testers { lepus, jars, lavinmqperf: Some(none), cast: cast.clone() };
        for tester in [Tester::Own, Tester::LavinMq, Tester::Own] {
            let command = testers.against(tester, 1, &["loop"]);
            let subcommand = if tester == Tester::Own { 1 } else { 3 };
            assert_eq!(command.get_args().nth(subcommand).unwrap(), "loop");
        }
        assert_eq!(cast.loads(), ["lepus perf", "lavinmqperf"]);
    }

    #[test]
    fn loads_have_names_of_their_own() {
        for (at, workload) in WORKLOADS.iter().enumerate() {
            assert!(WORKLOADS[..at].iter().all(|other| other.name != workload.name));
        }
    }
}
