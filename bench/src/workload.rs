//! The loads that are measured, each a command of a tester.

use std::path::Path;
use std::process::Command;

/// Who makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tester {
    /// The reference load tester, a Java program.
    Reference,
    /// `lepus perf`.
    Own,
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
    /// The body for which the null relay shows the floor, where the load is one stream.
    pub relay_bytes: Option<usize>,
    /// Whether consumers acknowledge, so that acknowledgements can be compared with deliveries.
    pub acknowledges: bool,
}

/// Experiment E4's single queue: 12-byte mandatory publishes, 100 unconfirmed, prefetch 300.
const SINGLE: [&str; 12] =
    ["-x", "1", "-y", "1", "-q", "300", "-c", "100", "-s", "12", "-f", "mandatory"];

/// All loads, in the order of the table.
pub const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "e4-single",
        title: "E4 single queue: 12 B mandatory, confirm window 100, prefetch 300 (reference tester)",
        tester: Tester::Reference,
        words: &SINGLE,
        relay_bytes: None,
        acknowledges: true,
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
        relay_bytes: None,
        acknowledges: true,
    },
    Workload {
        name: "e4-single-own",
        title: "E4 single queue (lepus perf)",
        tester: Tester::Own,
        words: &SINGLE,
        relay_bytes: None,
        acknowledges: true,
    },
    Workload {
        name: "stream-16",
        title: "one queue, 16 B, auto-ack, no confirms, saturating (lepus perf)",
        tester: Tester::Own,
        words: &["-x", "1", "-y", "1", "-a", "-s", "16"],
        relay_bytes: Some(16),
        acknowledges: false,
    },
    Workload {
        name: "stream-1024",
        title: "one queue, 1 KiB, auto-ack, no confirms, saturating (lepus perf)",
        tester: Tester::Own,
        words: &["-x", "1", "-y", "1", "-a", "-s", "1024"],
        relay_bytes: Some(1024),
        acknowledges: false,
    },
    Workload {
        name: "e1-loop",
        title: "E1 loop: 3 connections x 500 channels, 11 B (lepus perf)",
        tester: Tester::Own,
        words: &["loop", "--connections", "3", "--channels", "500", "-s", "11"],
        relay_bytes: None,
        acknowledges: false,
    },
    Workload {
        name: "fan-out",
        title: "fan-out to 10 queues, 100 B per delivery (lepus perf)",
        tester: Tester::Own,
        words: &["fanout", "-y", "10", "-a", "-s", "100"],
        relay_bytes: None,
        acknowledges: false,
    },
];

impl Workload {
    /// The tester's command against the broker on `port`; `lepus` is the binary, `jars` the
    /// directory of the reference tester.
    pub fn command(&self, port: u16, seconds: u64, lepus: &Path, jars: &Path) -> Command {
        let uri = format!("amqp://guest:guest@localhost:{port}");
        let seconds = seconds.to_string();
        let mut command = match self.tester {
            Tester::Reference => {
                let mut command = Command::new("java");
                command.arg("-cp").arg(jars.join("*")).arg("com.rabbitmq.perf.PerfTest");
                command
            }
            Tester::Own => {
                let mut command = Command::new(lepus);
                command.arg("perf");
                command
            }
        };
        command.args(self.words).args(["-h", &uri, "-z", &seconds]);
        command
    }
}

/// What a tester printed at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Said {
    /// Messages sent per second.
    pub sending: f64,
    /// Messages received per second.
    pub receiving: f64,
    /// The median and the 99th percentile of the consumers' latency in microseconds.
    pub latency: Option<(f64, f64)>,
}

impl Said {
    /// Reads the last lines of either tester; `None` where they are missing.
    pub fn parse(output: &str) -> Option<Said> {
        let sending = rate(output, "sending rate avg: ")?;
        let receiving = rate(output, "receiving rate avg: ")?;
        Some(Said { sending, receiving, latency: latency(output) })
    }
}

fn rate(output: &str, label: &str) -> Option<f64> {
    let at = output.rfind(label)? + label.len();
    output[at..].split_whitespace().next()?.parse().ok()
}

fn latency(output: &str) -> Option<(f64, f64)> {
    const LABEL: &str = "consumer latency min/median/75th/95th/99th ";
    let at = output.rfind(LABEL)? + LABEL.len();
    let mut words = output[at..].split_whitespace();
    let points: Vec<f64> =
        words.next()?.split('/').filter_map(|point| point.parse().ok()).collect();
    let scale = if words.next()? == "ms" { 1000.0 } else { 1.0 };
    Some((points.get(1)? * scale, points.get(4)? * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_testers_are_understood() {
        let output = "id: x, time 8.001 s, sent: 9 msg/s, received: 8 msg/s, \
                      min/median/75th/95th/99th consumer latency: 4/5/6/7/8 µs\n\
                      test stopped (Reached time limit)\n\
                      id: x, sending rate avg: 104271 msg/s\n\
                      id: x, receiving rate avg: 104270 msg/s\n\
                      id: x, consumer latency min/median/75th/95th/99th 41/2194/3488/6998/12747 µs\n";
        let said = Said::parse(output).unwrap();
        assert_eq!((said.sending, said.receiving), (104_271.0, 104_270.0));
        assert_eq!(said.latency, Some((2194.0, 12747.0)));
        assert_eq!(Said::parse("no figures"), None);
    }

    #[test]
    fn loads_have_names_of_their_own() {
        for (at, workload) in WORKLOADS.iter().enumerate() {
            assert!(WORKLOADS[..at].iter().all(|other| other.name != workload.name));
        }
    }
}
