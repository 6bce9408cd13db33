//! One run of one load against one broker, and what it cost.

use crate::counters::Counts;
use crate::json::Json;
use crate::procfs;
use crate::relay_load;
use crate::subject::{Kind, Subject};
use crate::workload::{Said, Workload};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The tester's side of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// The binary `lepus`, for its load tester.
    pub lepus: PathBuf,
    /// The directory of the reference tester.
    pub jars: PathBuf,
    /// The tester's core.
    pub core: usize,
    /// How long one run lasts.
    pub seconds: u64,
}

/// The figures of one run; what is per message is per delivered message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Messages received per second, as the tester says.
    pub rate: f64,
    /// Microseconds of the broker's CPU per message.
    pub cpu_micros: f64,
    /// Microseconds in which the broker's core was not idle, per message.
    pub core_micros: f64,
    /// Voluntary context switches of the broker per message.
    pub switches: f64,
    /// Resident megabytes of the broker after the run.
    pub resident_mb: f64,
    /// The tester's share of its core while the broker was loaded, 0 to 1.
    pub tester_share: f64,
    /// Median and 99th percentile of the latency in microseconds.
    pub latency: Option<(f64, f64)>,
    /// The largest difference between two counts of the same messages, 0 to 1.
    pub disagreement: f64,
}

impl Figures {
    /// The figures by name, for the machine-readable copy and for medians.
    pub fn fields(&self) -> [(&'static str, Option<f64>); 9] {
        [
            ("messages_per_second", Some(self.rate)),
            ("cpu_micros_per_message", Some(self.cpu_micros)),
            ("core_busy_micros_per_message", Some(self.core_micros)),
            ("voluntary_switches_per_message", Some(self.switches)),
            ("resident_mb", Some(self.resident_mb)),
            ("tester_cpu_share", Some(self.tester_share)),
            ("latency_median_micros", self.latency.map(|points| points.0)),
            ("latency_99th_micros", self.latency.map(|points| points.1)),
            ("counts_disagreement", Some(self.disagreement)),
        ]
    }

    /// The figures as a JSON object.
    pub fn json(&self) -> Json {
        let members = self.fields().map(|(name, value)| (name, Json::optional(value)));
        Json::object(members)
    }

    /// The median of every figure by itself.
    pub fn median(runs: &[Figures]) -> Figures {
        let of = |pick: fn(&Figures) -> f64| median(runs.iter().map(pick).collect());
        let latencies: Vec<(f64, f64)> = runs.iter().filter_map(|run| run.latency).collect();
        Figures {
            rate: of(|run| run.rate),
            cpu_micros: of(|run| run.cpu_micros),
            core_micros: of(|run| run.core_micros),
            switches: of(|run| run.switches),
            resident_mb: of(|run| run.resident_mb),
            tester_share: of(|run| run.tester_share),
            latency: (!latencies.is_empty()).then(|| {
                (
                    median(latencies.iter().map(|points| points.0).collect()),
                    median(latencies.iter().map(|points| points.1).collect()),
                )
            }),
            disagreement: of(|run| run.disagreement),
        }
    }
}

/// The median of the values; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// What the tester saw, and how long it ran.
struct Outcome {
    said: Said,
    /// Messages received, where the tester counts them itself.
    messages: f64,
    tester_cpu_seconds: f64,
    seconds: f64,
}

/// Runs the load once.
///
/// # Errors
/// When the tester fails, or a figure cannot be read.
pub fn run(
    workload: &Workload,
    kind: Kind,
    subject: &Subject,
    core: usize,
    load: &Load,
) -> io::Result<Figures> {
    let counts_before = subject.counts()?;
    let before = procfs::read(subject.pid())?;
    let busy_before = procfs::busy_seconds(core)?;
    let outcome = match (kind, workload.relay_bytes) {
        (Kind::NullRelay, Some(bytes)) => run_relay(subject.port(), bytes, load)?,
        _ => run_tester(workload, subject.port(), load)?,
    };
    let busy = procfs::busy_seconds(core)? - busy_before;
    let after = procfs::read(subject.pid())?;
    let counts = subject.counts()?.since(counts_before);
    let messages = match counts.delivered {
        0 => outcome.messages,
        delivered => delivered as f64,
    };
    let per_message = |value: f64| if messages > 0.0 { value / messages } else { 0.0 };
    let switches = after.switches_voluntary - before.switches_voluntary;
    let rate = outcome.said.receiving;
    // The tester's own start does not count as load: only the time in which messages flowed does.
    let flowing = load.seconds as f64;
    Ok(Figures {
        rate,
        cpu_micros: per_message((after.cpu_seconds - before.cpu_seconds) * 1e6),
        core_micros: per_message(busy * 1e6),
        switches: per_message(switches as f64),
        resident_mb: after.resident_bytes as f64 / 1e6,
        tester_share: outcome.tester_cpu_seconds / outcome.seconds.max(flowing),
        latency: outcome.said.latency,
        disagreement: disagreement(workload, outcome.messages, counts),
    })
}

/// How far the tester's count, the broker's and the settled ones are apart.
fn disagreement(workload: &Workload, seen: f64, counts: Counts) -> f64 {
    let mut all = vec![seen, counts.delivered as f64];
    if workload.acknowledges {
        all.push(counts.acknowledged as f64);
    }
    let largest = all.iter().copied().fold(0.0, f64::max);
    let smallest = all.iter().copied().fold(f64::INFINITY, f64::min);
    if largest > 0.0 { (largest - smallest) / largest } else { 1.0 }
}

fn run_tester(workload: &Workload, port: u16, load: &Load) -> io::Result<Outcome> {
    let tester = workload.command(port, load.seconds, &load.lepus, &load.jars);
    let mut command = Command::new("taskset");
    command
        .args(["-c", &load.core.to_string()])
        .arg(tester.get_program())
        .args(tester.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let children_before = procfs::children_seconds()?;
    let output = command.output()?;
    let tester_cpu_seconds = procfs::children_seconds()? - children_before;
    let seconds = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = Said::parse(&text).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!(
            "the tester printed no figures:\n{}{}",
            tail(&text),
            tail(&errors)
        ))
    })?;
    Ok(Outcome {
        said,
        messages: said.receiving * load.seconds as f64,
        tester_cpu_seconds,
        seconds,
    })
}

/// The last lines of what a tester printed.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(10);
    lines[from..].iter().map(|line| format!("{line}\n")).collect()
}

/// The relay's load runs in a process of its own, so that it can be pinned.
fn run_relay(port: u16, bytes: usize, load: &Load) -> io::Result<Outcome> {
    let mut command = Command::new("taskset");
    command
        .args(["-c", &load.core.to_string()])
        .arg(std::env::current_exe()?)
        .arg("relay-load")
        .args([port.to_string(), bytes.to_string(), load.seconds.to_string()]);
    let children_before = procfs::children_seconds()?;
    let output = command.stdin(Stdio::null()).output()?;
    let tester_cpu_seconds = procfs::children_seconds()? - children_before;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [messages, seconds] = figures[..] else {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("the relay's load failed: {errors}")));
    };
    let rate = messages / seconds;
    let said = Said { sending: rate, receiving: rate, latency: None };
    Ok(Outcome { said, messages, tester_cpu_seconds, seconds })
}

/// Loads the relay and prints messages and seconds, for [`run_relay`].
///
/// # Errors
/// When a connection fails.
pub fn relay_load(port: u16, bytes: usize, seconds: u64) -> io::Result<()> {
    let arrived = relay_load::run(port, bytes, Duration::from_secs(seconds))?;
    println!("{} {}", arrived.messages, arrived.seconds);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn counts_are_compared_where_they_mean_the_same() {
        let counts = Counts { received: 0, delivered: 100, acknowledged: 0 };
        let acknowledging =
            crate::workload::WORKLOADS.iter().find(|workload| workload.acknowledges).unwrap();
        assert_eq!(disagreement(acknowledging, 100.0, counts), 1.0);
        let other =
            crate::workload::WORKLOADS.iter().find(|workload| !workload.acknowledges).unwrap();
        assert_eq!(disagreement(other, 99.0, counts), 0.01);
        assert_eq!(disagreement(other, 0.0, Counts::default()), 1.0);
    }
}
