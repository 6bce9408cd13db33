//! Publishing and consuming for a long time above a standing backlog.

use super::Plan as BacklogPlan;
use super::row::tester;
use super::visit::Visit;
use crate::bench::measure::Load;
use crate::bench::place::Place;
use crate::bench::workload::{Said, Tester};
use crate::subject::Kind;
use clap::Args;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

const QUEUE: &str = "backlog";
const BODY_BYTES: u64 = 1_024;

/// What the command line says.
#[derive(Clone, Debug, Args)]
pub struct Words {
    /// Seconds that it goes on
    #[arg(long, default_value_t = 600)]
    endure: u64,
    /// Megabytes of messages that lie there all the time
    #[arg(long, default_value_t = 5_000)]
    backlog_mb: u64,
    /// Memory that lepus may use
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    budget: String,
    /// Messages per second
    #[arg(long, default_value_t = 30_000)]
    rate: u64,
    /// The broker
    #[arg(long, default_value = "lepus")]
    broker: String,
}

/// How long, and how much.
#[derive(Clone, Debug)]
pub struct Plan {
    seconds: u64,
    backlog_mb: u64,
    budget: String,
    rate: u64,
    kind: Kind,
    backlog: BacklogPlan,
}

impl Plan {
    /// What the command line says, to be measured there.
    ///
    /// # Errors
    /// When there is no such broker.
    pub fn new(
        words: Words,
        (place, load, results): (Place, Load, PathBuf),
    ) -> Result<Plan, String> {
        let seconds = words.endure;
        Ok(Plan {
            seconds,
            backlog_mb: words.backlog_mb,
            budget: words.budget,
            rate: words.rate,
            kind: Kind::find(&words.broker).ok_or("there is no such broker")?,
            backlog: BacklogPlan {
                rows: Vec::new(),
                brokers: Vec::new(),
                scale: 1.0,
                patience: Duration::from_secs(seconds + 1_800),
                place,
                load,
                results,
            },
        })
    }
}

/// Fills the backlog, then publishes and consumes at the rate, and prints each minute.
///
/// # Errors
/// When the broker or the tester fails.
pub fn run(plan: &Plan) -> io::Result<()> {
    fs::create_dir_all(&plan.backlog.results)?;
    let messages = plan.backlog_mb * 1_000_000 / BODY_BYTES;
    let flags = ["--memory-budget", &plan.budget];
    let flags: &[&str] = if plan.kind == Kind::Lepus { &flags } else { &[] };
    let visit = Visit::start(&plan.backlog, plan.kind, flags, true)?;
    let (number, size) = (messages.to_string(), BODY_BYTES.to_string());
    let words = ["-x", "1", "-y", "0", "-u", QUEUE, "-s", &size, "-c", "5000", "-C", &number];
    let filled =
        visit.load(&plan.backlog, tester(&plan.backlog, Tester::Own, visit.port(), &words))?;
    let rate = messages as f64 / filled.seconds;
    println!("{messages} messages of backlog at {rate:.0}/s, {:.0} MB resident", mb(filled.peak));
    let (rate, seconds) = (plan.rate.to_string(), plan.seconds.to_string());
    let words = [
        "-x", "1", "-y", "1", "-u", QUEUE, "-s", &size, "-c", "5000", "-q", "500", "-A", "50",
        "-r", &rate, "-R", &rate, "-z", &seconds,
    ];
    let endured =
        visit.load(&plan.backlog, tester(&plan.backlog, Tester::Own, visit.port(), &words))?;
    let output = fs::read_to_string(plan.backlog.results.join("tester-output.log"))?;
    let minutes = minutes(&output);
    for (at, rate) in minutes.iter().enumerate() {
        println!("minute {:>3}: {rate:>9.0} received/s", at + 1);
    }
    if let (Some(second), Some(last)) = (minutes.get(1), minutes.last()) {
        println!("the last minute by the second: {:.3}", last / second);
    }
    println!("resident: {:.0} MB at most, {:.0} MB at the end", mb(endured.peak), mb(endured.end));
    let (most, end) = endured.disk;
    println!("disk: {:.0} MB at most, {:.0} MB at the end", mb(most), mb(end));
    let cpu = endured.cpu_seconds * 1e6 / (minutes.iter().sum::<f64>() * 60.0).max(1.0);
    println!("CPU: {cpu:.2} µs per message");
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Messages received per second in each whole minute.
fn minutes(output: &str) -> Vec<f64> {
    let mut said = Said::default();
    let (mut minutes, mut received, mut seconds) = (Vec::new(), 0.0, 0.0);
    for interval in output.lines().filter_map(|line| said.hear(line)) {
        received += interval.received * interval.seconds;
        seconds += interval.seconds;
        if seconds >= 60.0 {
            minutes.push(received / seconds);
            (received, seconds) = (0.0, 0.0);
        }
    }
    minutes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn seconds_are_gathered_to_minutes() {
        let mut text = String::new();
        for second in 1..=130 {
            let rate = if second <= 60 { 10 } else { 20 };
            let _ = writeln!(text, "id: x, time {second}.000 s, received: {rate} msg/s");
        }
        assert_eq!(minutes(&text), [10.0, 20.0]);
    }
}
