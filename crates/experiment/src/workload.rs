//! A run of the load tester as a program of its own, and what came of it.

use crate::affinity::spawn_on;
use crate::metrics::{self, Locality};
use crate::sample::{INTERVAL, Sample, Sampler};
use crate::stop::Stop;
use crate::subject::{Placement, Subject, signal};
use lepus_probe::procfs::{self, Reading};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a load that counts its messages is expected to take.
const COUNTED_SECONDS: f64 = 5.0;
/// How often a wish to stop is looked for.
const LOOK: Duration = Duration::from_millis(200);
/// How long a tester may take to leave when it is told to.
const LEAVING: Duration = Duration::from_secs(5);

/// What the tester is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// What it is called in figures.
    pub name: String,
    /// The words of `lepus perf`, apart from address, output and length.
    pub words: Vec<String>,
    /// Bytes of a body.
    pub body_bytes: u64,
    /// How long it runs; none where it counts its messages.
    pub seconds: Option<f64>,
    /// How long it may take at all.
    pub patience: Duration,
    /// Time between two samples of the broker.
    pub sample_every: Duration,
    /// How long the broker is sampled after the tester's end.
    pub linger: Duration,
    /// Whether the broker was started for this load, so that its counters count from its start.
    pub is_from_start: bool,
}

impl Load {
    /// A load that runs for so many seconds, on a broker that runs already.
    #[must_use]
    pub fn timed(name: &str, words: &[&str], body_bytes: u64, seconds: f64) -> Load {
        Load {
            name: name.to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            body_bytes,
            seconds: Some(seconds),
            patience: Duration::from_secs_f64(seconds + 120.0),
            sample_every: INTERVAL,
            linger: Duration::ZERO,
            is_from_start: false,
        }
    }

    /// How long it will take, for telling the time left.
    #[must_use]
    pub fn seconds_expected(&self) -> f64 {
        self.seconds.unwrap_or(COUNTED_SECONDS) + self.linger.as_secs_f64()
    }
}

/// What a tester says of latencies, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// How many were measured.
    pub count: f64,
    /// The shortest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The mean of the slowest 5 %.
    pub mean_slowest_5: f64,
    /// The median.
    pub p50: f64,
    /// The 75th percentile.
    pub p75: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Quantiles from 0 to 1 with their latencies, ascending.
    pub curve: Vec<(f64, f64)>,
    /// The distribution itself: latencies with how many had them, ascending; empty where it is not told.
    pub buckets: Vec<(f64, f64)>,
}

impl Latency {
    /// The figures of a distribution; none of an empty one.
    #[must_use]
    pub fn of(buckets: Vec<(f64, f64)>) -> Option<Latency> {
        let count: f64 = buckets.iter().map(|bucket| bucket.1).sum();
        let (first, last) = (buckets.first()?.0, buckets.last()?.0);
        let quantile = |share: f64| {
            let mut seen = 0.0;
            let reaches = |bucket: &&(f64, f64)| {
                seen += bucket.1;
                seen >= share * count
            };
            buckets.iter().find(reaches).map_or(last, |bucket| bucket.0)
        };
        // The slowest 5 %, at least one.
        let mut left = (count / 20.0).ceil();
        let (wanted, mut slow) = (left, 0.0);
        for (micros, count) in buckets.iter().rev() {
            slow += micros * count.min(left);
            left -= count.min(left);
        }
        let sum: f64 = buckets.iter().map(|(micros, count)| micros * count).sum();
        let [p50, p75, p95, p99] = [0.5, 0.75, 0.95, 0.99].map(quantile);
        Some(Latency {
            count,
            min: first,
            mean: sum / count,
            mean_slowest_5: slow / wanted,
            p50,
            p75,
            p95,
            p99,
            max: last,
            curve: Vec::new(),
            buckets,
        })
    }
}

/// One line of a tester's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Seconds since the load began.
    pub at_seconds: f64,
    /// Length.
    pub seconds: f64,
    /// Messages sent in it.
    pub sent: f64,
    /// Messages received in it.
    pub received: f64,
    /// Publishes confirmed in it.
    pub confirmed: f64,
    /// From publish to delivery.
    pub consumer_latency: Option<Latency>,
    /// From publish to confirm.
    pub confirm_latency: Option<Latency>,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The whole run as if it were one interval.
    pub total: Interval,
    /// Messages per second while there was load, where the tester tells: what came after it is in the
    /// total, and in no rate.
    pub told_rate: Option<f64>,
    /// Messages that were sent and never came, or were due and never sent.
    pub missing: f64,
    /// The tester's lines.
    pub intervals: Vec<Interval>,
    /// Microseconds of the tester's CPU per message.
    pub tester_micros: f64,
    /// The share of a core that the tester used.
    pub tester_share: f64,
    /// Whether the tester says that it was near its own limit.
    pub is_tester_limit: bool,
    /// Bytes of a body.
    pub body_bytes: u64,
    /// Whether the broker's counters are to be taken from its start.
    pub is_from_start: bool,
    /// What a check of content and order found wrong first.
    pub gap: Option<String>,
    /// What went wrong otherwise.
    pub errors: Vec<String>,
    /// Whether somebody wanted it to end before its time: what was on its way then is not missing.
    pub is_cut_short: bool,
    /// The broker's process; empty when it runs elsewhere.
    pub samples: Vec<Sample>,
    /// Microseconds of the broker's CPU per message, between the first and the last line.
    pub broker_micros: Option<f64>,
    /// Context switches of the broker per message, voluntary and not, in the same time.
    pub switches: Option<(f64, f64)>,
    /// How many messages stayed on their shard, where the broker tells.
    pub locality: Option<Locality>,
}

impl Outcome {
    /// Messages per second: received ones, or sent ones where nobody consumes.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if let Some(rate) = self.told_rate {
            return rate;
        }
        if self.total.seconds > 0.0 { handled(&self.total) / self.total.seconds } else { 0.0 }
    }

    /// Whether its figures are those of a load that went well.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.gap.is_none() && self.errors.is_empty()
    }

    /// How many of the messages that were sent came, each to one consumer.
    #[must_use]
    pub fn arrived(&self) -> f64 {
        match self.is_cut_short {
            true => self.total.sent,
            false => self.total.received.min(self.total.sent - self.missing).max(0.0),
        }
    }

    /// By how many seconds of the offered load the backlog at the end of the load was longer than that in
    /// its middle: what was due by then and had not come.
    #[must_use]
    pub fn backlog_growth(&self, offered_per_second: f64) -> f64 {
        let received: Vec<f64> = self.intervals.iter().map(|interval| interval.received).collect();
        let backlog = |count: usize| {
            let Some(last) = count.checked_sub(1) else { return 0.0 };
            let due = offered_per_second * self.intervals[last].at_seconds;
            due - received[..count].iter().sum::<f64>()
        };
        (backlog(received.len()) - backlog(received.len() / 2).max(0.0)) / offered_per_second
    }

    /// Bytes of the bodies that went through; none where there were none.
    #[must_use]
    pub fn payload(&self) -> Option<f64> {
        let bytes = self.body_bytes as f64 * handled(&self.total);
        (bytes > 0.0).then_some(bytes)
    }

    /// The highest resident bytes of the broker.
    #[must_use]
    pub fn resident_bytes_max(&self) -> Option<u64> {
        self.samples.iter().map(|sample| sample.resident_bytes).max()
    }

    /// The run for the machine-readable result.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "messages_per_second": self.rate(),
            "never_came": self.missing,
            "total": interval_json(&self.total),
            "intervals": self.intervals.iter().map(interval_json).collect::<Vec<_>>(),
            "body_bytes": self.body_bytes,
            "samples_count_from_start_of_process": self.is_from_start,
            "tester_cpu_us_per_message": self.tester_micros,
            "tester_cpu_share": self.tester_share,
            "tester_near_ceiling": self.is_tester_limit,
            "broker_cpu_us_per_message": self.broker_micros,
            "switches_voluntary_per_message": self.switches.map(|pair| pair.0),
            "switches_involuntary_per_message": self.switches.map(|pair| pair.1),
            "share_stayed_on_shard": self.locality.and_then(Locality::share),
            "gap": self.gap,
            "errors": self.errors,
            "samples": self.samples.iter().map(Sample::json).collect::<Vec<_>>(),
        })
    }
}

/// Runs the load against the broker. Ends early, with what there is, when that is wished.
///
/// # Errors
/// When the tester cannot be started, takes too long or fails, with what it said.
pub fn run(
    lepus: &Path,
    load: &Load,
    subject: &Subject,
    placement: &Placement,
    stop: &Stop,
) -> io::Result<Outcome> {
    let page = || subject.metrics.and_then(|port| metrics::fetch(("127.0.0.1", port)).ok());
    let before = page().map(|page| Locality::of(&page));
    let sampler = subject.target().map(|target| Sampler::start(target, load.sample_every));
    let mut command = Command::new(lepus);
    command.arg("perf").args(&load.words).args(["--uri", &subject.uri, "--output", "jsonl"]);
    if let Some(seconds) = load.seconds {
        command.args(["--time", &seconds.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = spawn_on(&placement.load, &mut command)?;
    let heard = listen(&mut child, subject.pid, load.patience, stop);
    rest(load.linger, stop);
    let samples = sampler.map(Sampler::finish).unwrap_or_default();
    let (lines, status) = heard?;
    let (said, complaints) = (lines.said, lines.complaints);
    let mut outcome = Outcome {
        samples,
        body_bytes: load.body_bytes,
        is_from_start: load.is_from_start,
        ..said.outcome
    };
    outcome.locality = before.zip(page()).map(|(before, after)| Locality::of(&after).since(before));
    cost(&mut outcome, &said.readings);
    if outcome.total == Interval::default() {
        let text = complaints.lines().last().unwrap_or("it said nothing");
        return Err(io::Error::other(format!(
            "the load ended without a summary ({status}): {text}"
        )));
    }
    outcome.is_cut_short = stop.is_wanted();
    if !status.success() && outcome.gap.is_none() && !outcome.is_cut_short {
        outcome.errors.push(format!("{status}: {}", complaints.lines().last().unwrap_or("")));
    }
    Ok(outcome)
}

struct Heard {
    said: Said,
    complaints: String,
}

/// Listens until the tester has ended.
fn listen(
    child: &mut Child,
    broker: Option<u32>,
    patience: Duration,
    stop: &Stop,
) -> io::Result<(Heard, std::process::ExitStatus)> {
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let complaints = std::thread::spawn(move || {
        let mut text = Vec::new();
        // A tester that is gone has said what it had to say.
        let _ = errors.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let start = Instant::now();
    let mut said = Said::default();
    let mut told = None;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => said.hear(&line, broker),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let late = start.elapsed() > patience;
        if told.is_none() && (late || stop.is_wanted()) {
            // The first signal asks for the summary.
            let _ = signal(child.id(), Signal::INT);
            told = Some(Instant::now());
        }
        if told.is_some_and(|told| told.elapsed() > LEAVING) {
            child.kill()?;
        }
    }
    let status = child.wait()?;
    let _ = reader.join();
    let complaints = complaints.join().unwrap_or_default();
    if told.is_some() && !stop.is_wanted() {
        let seconds = patience.as_secs();
        return Err(io::Error::other(format!("the load was given up after {seconds} s")));
    }
    Ok((Heard { said, complaints }, status))
}

/// What a tester has said so far, and how the broker stood when it said so.
#[derive(Default)]
struct Said {
    outcome: Outcome,
    readings: Vec<Option<Reading>>,
}

impl Said {
    fn hear(&mut self, line: &str, broker: Option<u32>) {
        let Ok(value) = serde_json::from_str::<Value>(line) else { return };
        match value["kind"].as_str() {
            Some("interval") => {
                self.outcome.intervals.push(interval(&value));
                self.readings.push(broker.and_then(|pid| procfs::read(pid).ok()));
            }
            Some("summary") => {
                let outcome = &mut self.outcome;
                outcome.total = interval(&value);
                outcome.total.at_seconds = outcome.total.seconds;
                let told = |name: &str| value[name].as_f64().filter(|number| *number > 0.0);
                outcome.told_rate = told("received_per_s").or(told("sent_per_s"));
                outcome.missing =
                    told("outstanding").unwrap_or(0.0) + told("unsent").unwrap_or(0.0);
                outcome.tester_share = value["tester_cpu_share"].as_f64().unwrap_or(0.0);
                outcome.is_tester_limit = value["near_ceiling"].as_bool().unwrap_or(false);
                outcome.tester_micros = value["tester_cpu_us_per_message"].as_f64().unwrap_or(0.0);
                outcome.gap =
                    Some(&value["gap"]).filter(|gap| !gap.is_null()).map(Value::to_string);
                let errors = value["errors"].as_array().into_iter().flatten();
                outcome.errors = errors.map(text_of).collect();
            }
            _ => {}
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Costs per message between the first and the last line, so that neither start nor end count.
fn cost(outcome: &mut Outcome, readings: &[Option<Reading>]) {
    let messages: f64 = outcome.intervals.iter().skip(1).map(handled).sum();
    let ends = readings.first().zip(readings.last());
    if let Some((Some(first), Some(last))) = ends
        && messages > 0.0
    {
        outcome.broker_micros = Some((last.cpu_seconds - first.cpu_seconds) * 1e6 / messages);
        let switches =
            |of: fn(&Reading) -> u64| of(last).saturating_sub(of(first)) as f64 / messages;
        outcome.switches = Some((
            switches(|reading| reading.switches_voluntary),
            switches(|reading| reading.switches_involuntary),
        ));
        return;
    }
    // Too short for two lines: the whole run, its start included.
    let (Some(first), Some(last)) = (outcome.samples.first(), outcome.samples.last()) else {
        return;
    };
    let messages = handled(&outcome.total);
    if messages > 0.0 {
        outcome.broker_micros = Some((last.cpu_seconds() - first.cpu_seconds()) * 1e6 / messages);
        let switches =
            |of: fn(&Sample) -> u64| of(last).saturating_sub(of(first)) as f64 / messages;
        outcome.switches = Some((
            switches(|sample| sample.switches_voluntary),
            switches(|sample| sample.switches_involuntary),
        ));
    }
}

fn handled(interval: &Interval) -> f64 {
    if interval.received > 0.0 { interval.received } else { interval.sent }
}

fn interval(value: &Value) -> Interval {
    let number = |name: &str| value[name].as_f64().unwrap_or(0.0);
    Interval {
        at_seconds: number("at_s"),
        seconds: number("seconds"),
        sent: number("sent"),
        received: number("received"),
        confirmed: number("confirmed"),
        consumer_latency: latency(&value["consumer_latency_us"]),
        confirm_latency: latency(&value["confirm_latency_us"]),
    }
}

fn latency(value: &Value) -> Option<Latency> {
    let number = |name: &str| value[name].as_f64().unwrap_or(0.0);
    let pairs = |name: &str| -> Vec<(f64, f64)> {
        let pairs = value[name].as_array().into_iter().flatten();
        pairs.filter_map(|pair| Some((pair[0].as_f64()?, pair[1].as_f64()?))).collect()
    };
    value.is_object().then(|| Latency {
        count: number("count"),
        min: number("min"),
        mean: number("mean"),
        mean_slowest_5: number("mean_slowest_5"),
        p50: number("p50"),
        p75: number("p75"),
        p95: number("p95"),
        p99: number("p99"),
        max: number("max"),
        curve: pairs("curve"),
        buckets: pairs("buckets"),
    })
}

fn interval_json(interval: &Interval) -> Value {
    json!({
        "at_s": interval.at_seconds,
        "seconds": interval.seconds,
        "sent": interval.sent,
        "received": interval.received,
        "confirmed": interval.confirmed,
        "consumer_latency_us": interval.consumer_latency.as_ref().map(latency_json),
        "confirm_latency_us": interval.confirm_latency.as_ref().map(latency_json),
    })
}

fn latency_json(latency: &Latency) -> Value {
    json!({
        "count": latency.count,
        "min": latency.min,
        "mean": latency.mean,
        "mean_slowest_5": latency.mean_slowest_5,
        "p50": latency.p50,
        "p75": latency.p75,
        "p95": latency.p95,
        "p99": latency.p99,
        "max": latency.max,
        "curve": latency.curve.iter().map(|(q, us)| json!([q, us])).collect::<Vec<_>>(),
    })
}

/// Waits, unless somebody wants to stop.
pub fn rest(time: Duration, stop: &Stop) {
    let start = Instant::now();
    while start.elapsed() < time && !stop.is_wanted() {
        sleep(LOOK.min(time.saturating_sub(start.elapsed())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: &str = r#"{"kind":"interval","at_s":1.0,"seconds":1.0,"sent":100,"received":90,
        "confirmed":80,"nacked":0,"returned":0,"consumer_latency_us":{"count":90,"min":1,"mean":2.5,
        "mean_slowest_5":9,"p50":2,"p75":3,"p95":4,"p99":5,"max":10,"curve":[[0.5,2],[1.0,10]]},
        "confirm_latency_us":null}"#;

    fn reading(cpu_seconds: f64, switches: u64) -> Option<Reading> {
        Some(Reading { cpu_seconds, switches_voluntary: switches, ..Reading::default() })
    }

    #[test]
    fn lines_of_the_tester_are_understood_and_others_passed_over() {
        let mut said = Said::default();
        for line in [INTERVAL, "warming up", "{\"kind\":\"other\"}", INTERVAL] {
            said.hear(&line.replace('\n', ""), None);
        }
        said.hear(
            r#"{"kind":"summary","seconds":2.0,"sent":200,"received":180,"consumer_latency_us":null,
               "sent_per_s":100.0,"received_per_s":85.0,"outstanding":6,"unsent":1,
               "confirm_latency_us":null,"tester_cpu_us_per_message":0.5,"tester_cpu_share":0.9,"near_ceiling":true,"errors":["lost"],
               "gap":{"queue":"q","expected":5}}"#,
            None,
        );
        let outcome = said.outcome;
        assert_eq!(outcome.intervals.len(), 2);
        assert_eq!(outcome.intervals[0].consumer_latency.as_ref().unwrap().curve[1], (1.0, 10.0));
        // 180 came, 10 of them after the load.
        assert_eq!((outcome.rate(), outcome.missing), (85.0, 7.0));
        assert_eq!(
            (outcome.tester_micros, outcome.errors.as_slice()),
            (0.5, &["lost".to_owned()][..])
        );
        assert!(outcome.is_tester_limit && outcome.tester_share == 0.9);
        assert!(outcome.gap.unwrap().contains("\"expected\":5"));
    }

    #[test]
    fn a_backlog_that_grows_in_the_second_half_is_found() {
        let run = |received: [f64; 4]| Outcome {
            intervals: received
                .iter()
                .enumerate()
                .map(|(at, received)| Interval {
                    at_seconds: at as f64 + 1.0,
                    seconds: 1.0,
                    received: *received,
                    ..Interval::default()
                })
                .collect(),
            ..Outcome::default()
        };
        assert_eq!(run([100.0; 4]).backlog_growth(100.0), 0.0);
        // It lags behind by 5 messages from the first second on, and no further.
        assert_eq!(run([95.0, 100.0, 100.0, 100.0]).backlog_growth(100.0), 0.0);
        // 5 % less than offered all the time.
        assert_eq!(run([95.0; 4]).backlog_growth(100.0), 0.1);
        assert_eq!(run([100.0, 100.0, 0.0, 0.0]).backlog_growth(100.0), 2.0);
        assert_eq!(Outcome::default().backlog_growth(100.0), 0.0);
    }

    #[test]
    fn costs_are_taken_between_lines_and_over_all_where_there_are_too_few() {
        let interval = Interval { received: 1_000.0, seconds: 1.0, ..Interval::default() };
        let mut outcome = Outcome { intervals: vec![interval; 3], ..Outcome::default() };
        cost(&mut outcome, &[reading(1.0, 10), reading(9.0, 99), reading(1.02, 30)]);
        let micros = outcome.broker_micros.unwrap();
        assert!((micros - 10.0).abs() < 1e-6, "{micros}");
        assert_eq!(outcome.switches, Some((0.01, 0.0)));
        let sample = |user_seconds| Sample { user_seconds, ..Sample::default() };
        let total = Interval { sent: 500.0, ..Interval::default() };
        let samples = vec![sample(1.0), sample(1.5)];
        let mut outcome = Outcome { total, samples, ..Outcome::default() };
        cost(&mut outcome, &[]);
        assert_eq!(outcome.broker_micros, Some(1_000.0));
    }

    #[test]
    fn a_load_that_says_nothing_is_an_error_that_quotes_it() {
        let subject = Subject::elsewhere("amqp://127.0.0.1:1");
        let load = Load {
            name: "x".to_owned(),
            words: Vec::new(),
            body_bytes: 1,
            seconds: None,
            patience: Duration::from_secs(60),
            sample_every: Duration::from_secs(1),
            linger: Duration::ZERO,
            is_from_start: false,
        };
        let placement = Placement::halves(&lepus_topology::usable_cpus().ids);
        let missing = Path::new("/no/such/program");
        assert!(run(missing, &load, &subject, &placement, &Stop::default()).is_err());
        // `ls perf --uri …` complains about its options.
        let error = run(Path::new("ls"), &load, &subject, &placement, &Stop::default());
        let text = error.unwrap_err().to_string();
        assert!(text.contains("without a summary"), "{text}");
    }
}
