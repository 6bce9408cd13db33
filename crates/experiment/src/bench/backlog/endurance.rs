//! Publishing and consuming for a long time above a standing backlog.

use super::Plan as BacklogPlan;
use super::row::tester;
use super::visit::{Loaded, Visit};
use crate::bench::measure::Load;
use crate::bench::place::Place;
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::words::{SECONDS_MAX, from_one};
use crate::bench::workload::{Said, Tester};
use crate::plot::{Axis, LinePlot, Look, Series, Unit};
use crate::report::{Block, Table, plot};
use crate::subject::Kind;
use clap::Args;
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::time::Duration;

const QUEUE: &str = "backlog";
const BODY_BYTES: u64 = 1_024;

const BACKLOG_MB_MAX: u64 = 100_000_000;
const RATE_MAX: u64 = 100_000_000;

/// What the command line says.
#[derive(Clone, Debug, Args)]
pub struct Words {
    /// Seconds that it goes on
    #[arg(long, default_value_t = 600, value_parser = from_one::<u64>(SECONDS_MAX))]
    endure: u64,
    /// Megabytes of messages that lie there all the time
    #[arg(long, default_value_t = 5_000, value_parser = from_one::<u64>(BACKLOG_MB_MAX))]
    backlog_mb: u64,
    /// Memory that lepus may use
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    budget: String,
    /// Messages per second
    #[arg(long, default_value_t = 30_000, value_parser = from_one::<u64>(RATE_MAX))]
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
    pub fn new(words: Words, (place, load): (Place, Load)) -> Result<Plan, String> {
        let seconds = words.endure;
        Ok(Plan {
            seconds,
            backlog_mb: words.backlog_mb,
            budget: words.budget,
            rate: words.rate,
            kind: Kind::find_for_amqp(&words.broker).ok_or("there is no such broker")?,
            backlog: BacklogPlan {
                rows: Vec::new(),
                brokers: Vec::new(),
                scale: 1.0,
                patience: Duration::from_secs(seconds + 1_800),
                place,
                load,
            },
        })
    }
}

const TITLE: &str = "A long time above a standing backlog";
const ASKS: &str =
    "Do publishing and consuming above a backlog on disk stay as fast and as small as they begin?";
const LEGEND: [&str; 1] = [
    "received/s: messages that the tester received, the mean of each whole minute. MB: the broker's resident memory, and the \
     bytes of its data directory. CPU: user and system time of the broker for each message received, of the whole load.",
];

/// Fills the backlog, then publishes and consumes at the rate, and reports each minute.
///
/// # Errors
/// When the report cannot be written, or nothing was measured.
pub fn run(plan: &Plan) -> io::Result<()> {
    let place = &plan.backlog.place;
    let size = format!("{} s at {}/s above {} MB", plan.seconds, plan.rate, plan.backlog_mb);
    let cover = Cover { name: "endurance", title: TITLE, asks: ASKS, size: ("size", size) };
    let mut sheet = Sheet::new(cover, place)?;
    match endure(plan) {
        Ok(endured) => {
            sheet.add(endured.blocks(plan.kind), Some(endured.json(plan.kind)))?;
            endured.sentences().into_iter().for_each(|sentence| sheet.tell(sentence));
            sheet.finish(&LEGEND, true)
        }
        Err(error) => {
            sheet.fault(format!("{}: {error}", plan.kind.name()));
            sheet.finish(&LEGEND, false)
        }
    }
}

/// What was seen.
#[derive(Clone, Debug)]
struct Endured {
    /// Messages of the backlog.
    messages: u64,
    filled: Loaded,
    endured: Loaded,
    course: Course,
}

/// How it went on, as the tester says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Course {
    /// Messages received per second in each whole minute.
    minutes: Vec<f64>,
    /// Messages received in all, those after the last whole minute as well.
    received: f64,
}

fn endure(plan: &Plan) -> io::Result<Endured> {
    let messages = plan.backlog_mb * 1_000_000 / BODY_BYTES;
    let flags = ["--memory-budget", &plan.budget];
    let flags: &[&str] = if plan.kind == Kind::Lepus { &flags } else { &[] };
    let visit = Visit::start(&plan.backlog, plan.kind, flags, true)?;
    let (number, size) = (messages.to_string(), BODY_BYTES.to_string());
    let words = ["-x", "1", "-y", "0", "-u", QUEUE, "-s", &size, "-c", "5000", "-C", &number];
    let filled =
        visit.load(&plan.backlog, tester(&plan.backlog, Tester::Own, visit.port(), &words))?;
    let rate = messages as f64 / filled.seconds;
    to_stderr(format_args!(
        "{messages} messages of backlog at {rate:.0}/s, {:.0} MB resident",
        mb(filled.peak)
    ));
    let (rate, seconds) = (plan.rate.to_string(), plan.seconds.to_string());
    let words = [
        "-x", "1", "-y", "1", "-u", QUEUE, "-s", &size, "-c", "5000", "-q", "500", "-A", "50",
        "-r", &rate, "-R", &rate, "-z", &seconds,
    ];
    // Whoever ends it early gets what there was until then.
    let endured = visit.load_while_wanted(
        &plan.backlog,
        tester(&plan.backlog, Tester::Own, visit.port(), &words),
    )?;
    let output = fs::read_to_string(plan.backlog.tester_output())?;
    Ok(Endured { messages, filled, endured, course: course(&output) })
}

impl Endured {
    fn blocks(&self, kind: Kind) -> Vec<Block> {
        let mut table = Table::new(["minute", "received/s"]);
        for (at, rate) in self.course.minutes.iter().enumerate() {
            table.rows.push(vec![(at + 1).to_string(), format!("{rate:.0}")]);
        }
        let numbers = self.course.minutes.iter().enumerate();
        let points = numbers.map(|(at, rate)| ((at + 1) as f64, *rate)).collect();
        let title = "Messages received, by minute".to_owned();
        let line = LinePlot {
            title: title.clone(),
            x: Axis::new("minute", Unit::Number),
            y: Axis::new("messages per second", Unit::Number),
            series: vec![Series { name: kind.name().to_owned(), look: Look::nth(0), points }],
        };
        // A line needs two points.
        let plot = (self.course.minutes.len() > 1).then(|| plot(line.render()));
        let mut blocks = vec![Block::Heading(title), Block::Table(table)];
        blocks.extend(plot);
        blocks
    }

    fn cpu_micros(&self) -> Option<f64> {
        let received = self.course.received;
        (received > 0.0).then(|| self.endured.cpu_seconds * 1e6 / received)
    }

    /// Of two minutes the last is the second itself.
    fn last_by_second(&self) -> Option<f64> {
        let [_, second, .., last] = self.course.minutes[..] else { return None };
        (second > 0.0).then(|| last / second)
    }

    fn sentences(&self) -> Vec<String> {
        let rate = self.messages as f64 / self.filled.seconds;
        let peak = mb(self.filled.peak);
        let (peak_later, end) = (mb(self.endured.peak), mb(self.endured.end));
        let (disk, disk_end) = (mb(self.endured.disk.0), mb(self.endured.disk.1));
        let mut out = vec![
            format!("{} messages of backlog at {rate:.0}/s, {peak:.0} MB resident.", self.messages),
            format!("Resident above it: {peak_later:.0} MB at most, {end:.0} MB at the end."),
            format!("On disk: {disk:.0} MB at most, {disk_end:.0} MB at the end."),
        ];
        if let Some(share) = self.last_by_second() {
            out.push(format!("The last minute by the second: {share:.3}."));
        }
        if self.course.minutes.is_empty() {
            out.push("It was over before the first minute was: no rate is told.".to_owned());
        }
        out.extend(self.cpu_micros().map(|cpu| format!("CPU: {cpu:.2} µs per message.")));
        out
    }

    fn json(&self, kind: Kind) -> Value {
        json!({
            "broker": kind.name(),
            "backlog_messages": self.messages,
            "fill_messages_per_second": self.messages as f64 / self.filled.seconds,
            "fill_resident_peak_mb": mb(self.filled.peak),
            "messages_per_second_by_minute": self.course.minutes,
            "messages_received": self.course.received,
            "last_minute_by_second": self.last_by_second(),
            "resident_peak_mb": mb(self.endured.peak),
            "resident_end_mb": mb(self.endured.end),
            "disk_peak_mb": mb(self.endured.disk.0),
            "disk_end_mb": mb(self.endured.disk.1),
            "cpu_micros_per_message": self.cpu_micros(),
        })
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn course(output: &str) -> Course {
    let mut said = Said::default();
    let (mut course, mut received, mut seconds) = (Course::default(), 0.0, 0.0);
    for interval in output.lines().filter_map(|line| said.hear(line)) {
        received += interval.received * interval.seconds;
        course.received += interval.received * interval.seconds;
        seconds += interval.seconds;
        if seconds >= 60.0 {
            course.minutes.push(received / seconds);
            (received, seconds) = (0.0, 0.0);
        }
    }
    course
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn what_was_over_before_a_minute_has_no_rate() {
        let loaded = Loaded { seconds: 2.0, cpu_seconds: 1.2, ..Loaded::default() };
        let course = Course { minutes: Vec::new(), received: 1_200.0 };
        let mut endured = Endured { messages: 10, filled: loaded, endured: loaded, course };
        assert!(endured.sentences().iter().any(|text| text.contains("no rate is told")));
        assert_eq!(endured.json(Kind::Lepus)["cpu_micros_per_message"], 1_000.0);
        endured.course.received = 0.0;
        assert_eq!(endured.json(Kind::Lepus)["cpu_micros_per_message"], Value::Null);
        endured.course.minutes = vec![10.0, 5.0];
        assert_eq!(endured.last_by_second(), None);
        endured.course.minutes.push(4.0);
        assert_eq!(endured.last_by_second(), Some(0.8));
        let is_plot = |block: &Block| matches!(block, Block::Plot(_));
        assert!(endured.blocks(Kind::Lepus).iter().any(is_plot));
    }

    #[test]
    fn seconds_are_gathered_to_minutes() {
        let mut text = String::new();
        for second in 1..=130 {
            let rate = if second <= 60 { 10 } else { 20 };
            let _ = writeln!(text, "id: x, time {second}.000 s, received: {rate} msg/s");
        }
        let course = course(&text);
        assert_eq!(course.minutes, [10.0, 20.0]);
        // The ten seconds behind the last whole minute cost CPU as well.
        assert_eq!(course.received.round(), 2_000.0);
    }
}
