//! One run of one load against one broker, and what it cost.

use crate::affinity::spawn_on;
use crate::bench::place::goes_on;
use crate::bench::workload::{Said, Testers, Workload};
use crate::metrics::Counts;
use crate::statistics::median;
use crate::stop::Stop;
use crate::subject::Subject;
use lepus_probe::procfs::{self, Reading};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the tester has told of messages when measuring starts; its lines come about a second
/// apart, not to the millisecond.
const WARMING: Duration = Duration::from_millis(1900);
/// How long before the tester's last line measuring ends: its last lines may tell of a time in which
/// it was stopping already.
const COOLING: Duration = Duration::from_millis(900);
/// The shortest time between two looks at the broker: a busy tester's lines come several at once.
const LOOKING: Duration = Duration::from_millis(900);
/// How long a broker may go on after the tester has ended, before its counts are read.
const SETTLING: Duration = Duration::from_secs(1);
/// How often a wish to stop is looked for.
const STOP_LOOK: Duration = Duration::from_millis(200);
/// Seconds that a run needs at least: the tester's start, warming, one that is measured, cooling.
pub const SECONDS_MIN: u64 = 6;

/// The tester's side of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// The programs.
    pub testers: Testers,
    /// The tester's core.
    pub core: usize,
    /// How long one run lasts, at least [`SECONDS_MIN`].
    pub seconds: u64,
    /// Where the tester's complaints go.
    pub errors: PathBuf,
    /// Whether somebody wants the whole to end: then the load ends, and nothing is said of it.
    pub stop: Stop,
}

/// The figures of one run; what is per message is per message that consumers received.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Messages received per second, as the tester says.
    pub rate: f64,
    /// Microseconds of the broker's CPU per message.
    pub cpu_micros: f64,
    /// Microseconds of it in which the broker looked around without work, where it tells; taken over
    /// the whole run.
    pub spin_micros: f64,
    /// Microseconds in which the broker's core was not idle, per message.
    pub core_micros: f64,
    /// Voluntary context switches of the broker per message.
    pub switches: f64,
    /// System calls of the broker per message, counted in a run of their own, where the machine lets them be
    /// counted.
    pub calls: Option<f64>,
    /// Resident megabytes of the broker after the run.
    pub resident_mb: f64,
    /// The tester's share of its core while the broker was loaded, 0 to 1.
    pub tester_share: f64,
    /// Median and 99th percentile of the latency in microseconds.
    pub latency: Option<(f64, f64)>,
    /// The largest difference between two counts of the same messages, 0 to 1; none where the
    /// tester does not tell its own to the end.
    pub disagreement: Option<f64>,
}

impl Figures {
    /// The figures by name, for the machine-readable copy and for medians.
    pub fn fields(&self) -> [(&'static str, Option<f64>); 11] {
        [
            ("messages_per_second", Some(self.rate)),
            ("cpu_micros_per_message", Some(self.cpu_micros)),
            ("spin_micros_per_message", Some(self.spin_micros)),
            ("core_busy_micros_per_message", Some(self.core_micros)),
            ("voluntary_switches_per_message", Some(self.switches)),
            ("system_calls_per_message", self.calls),
            ("resident_mb", Some(self.resident_mb)),
            ("tester_cpu_share", Some(self.tester_share)),
            ("latency_median_micros", self.latency.map(|points| points.0)),
            ("latency_99th_micros", self.latency.map(|points| points.1)),
            ("counts_disagreement", self.disagreement),
        ]
    }

    /// The figures as a JSON object.
    pub fn json(&self) -> Value {
        self.fields().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
    }

    /// The median of every figure by itself; of disagreements the largest.
    pub fn median(runs: &[Figures]) -> Figures {
        let of = |pick: fn(&Figures) -> f64| median(runs.iter().map(pick));
        let latencies: Vec<(f64, f64)> = runs.iter().filter_map(|run| run.latency).collect();
        Figures {
            rate: of(|run| run.rate),
            cpu_micros: of(|run| run.cpu_micros),
            spin_micros: of(|run| run.spin_micros),
            core_micros: of(|run| run.core_micros),
            switches: of(|run| run.switches),
            calls: runs.iter().find_map(|run| run.calls),
            resident_mb: of(|run| run.resident_mb),
            tester_share: of(|run| run.tester_share),
            latency: (!latencies.is_empty()).then(|| {
                (
                    median(latencies.iter().map(|points| points.0)),
                    median(latencies.iter().map(|points| points.1)),
                )
            }),
            disagreement: highest(runs.iter().filter_map(|run| run.disagreement)),
        }
    }
}

fn highest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max)
}

/// What is known at one moment of a run.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    broker: Reading,
    tester: Reading,
    busy_seconds: f64,
    /// Messages received until then, by the tester's lines.
    seen: f64,
    /// Messages delivered until then, by the broker's own count, where reading it disturbs nothing:
    /// a busy tester's lines come late and several at once.
    delivered: Option<u64>,
    at: Instant,
}

impl Snapshot {
    fn take(subject: &Subject, core: usize, tester: u32, seen: f64) -> io::Result<Snapshot> {
        let delivered = match subject.counts_cheaply() {
            true => Some(subject.counts()?.delivered),
            false => None,
        };
        Ok(Snapshot {
            at: Instant::now(),
            broker: subject.read()?,
            tester: procfs::read(tester)?,
            busy_seconds: procfs::busy_seconds(core)?,
            seen,
            delivered,
        })
    }

    /// Messages received since `earlier`.
    fn messages_since(&self, earlier: &Snapshot) -> f64 {
        match (self.delivered, earlier.delivered) {
            (Some(now), Some(before)) => now.saturating_sub(before) as f64,
            _ => self.seen - earlier.seen,
        }
    }
}

/// The moments of a run, of which two are chosen.
#[derive(Debug)]
struct Moments<T> {
    /// When the tester first told of messages, and when it last did.
    told: Option<(Instant, Instant)>,
    taken: Vec<(Instant, T)>,
}

impl<T> Moments<T> {
    fn new() -> Moments<T> {
        Moments { told: None, taken: Vec::new() }
    }

    /// Takes note of a line with messages that came `now`, and looks at the broker where it is time.
    fn told(&mut self, now: Instant, look: impl FnOnce() -> io::Result<T>) -> io::Result<()> {
        let (begin, _) = *self.told.insert((self.told.map_or(now, |(begin, _)| begin), now));
        let long_ago = |then: Instant, least| now.duration_since(then) >= least;
        if long_ago(begin, WARMING)
            && self.taken.last().is_none_or(|(then, _)| long_ago(*then, LOOKING))
        {
            self.taken.push((now, look()?));
        }
        Ok(())
    }

    /// The first one and the last one that counts, where they are apart.
    fn window(&self) -> Option<(&T, &T)> {
        let (_, end) = self.told?;
        let early_enough = |then: Instant| end.duration_since(then) >= COOLING;
        let first = self.taken.first()?;
        let last = self.taken.iter().rfind(|(then, _)| early_enough(*then))?;
        (last.0 > first.0).then_some((&first.1, &last.1))
    }
}

/// Runs the load once. Costs are taken between two lines of the tester, so that neither its start
/// and its warming up nor its end count; counts are compared over the whole run, while nothing moves.
///
/// # Errors
/// When the tester fails, or a figure cannot be read.
pub fn run(
    workload: &Workload,
    subject: &Subject,
    core: usize,
    load: &Load,
) -> io::Result<Figures> {
    let mut tester = workload.command(subject, load.seconds, &load.testers)?;
    let counts_before = subject.counts()?;
    let mut child = pinned(&mut tester, load)?;
    let tester = child.id();
    let mut said = Said::default();
    let mut moments = Moments::new();
    let mut seen = 0.0;
    let status = listen(&mut child, &load.stop, |line| {
        let Some(interval) = said.hear(line) else { return Ok(()) };
        seen += interval.received * interval.seconds;
        match interval.received > 0.0 {
            true => moments.told(Instant::now(), || Snapshot::take(subject, core, tester, seen)),
            false => Ok(()),
        }
    })?;
    let Some((first, last)) = moments.window() else {
        let log = load.errors.display();
        return Err(io::Error::other(format!(
            "the tester told of messages for too short a time, and ended with {status}: see {log}"
        )));
    };
    let messages = last.messages_since(first);
    if messages <= 0.0 {
        return Err(io::Error::other(told_nothing_new(&last.at.duration_since(first.at))));
    }
    sleep(SETTLING);
    let counts = subject.counts()?.since(counts_before);
    Ok(Figures {
        latency: said.latency,
        spin_micros: if seen > 0.0 { counts.spin_micros as f64 / seen } else { 0.0 },
        disagreement: match workload.counted {
            None if subject.keeps_counts() => Some(disagreement(workload, seen, counts)),
            _ => None,
        },
        ..costs(first, last, messages)
    })
}

/// Why a run whose looks at the broker are all the same counts for nothing: a rate of 0 would be a wrong figure.
fn told_nothing_new(apart: &Duration) -> String {
    format!(
        "the broker told the same number of messages twice, {:.1} s apart: it was too busy to count, or the run too short",
        apart.as_secs_f64()
    )
}

/// Runs the load with a known number of messages, and says how far the counts are apart. `None` for
/// loads whose tester tells its count in every run, and for brokers whose counts do not stand.
///
/// # Errors
/// When the tester cannot be started, or the broker does not tell its counts.
pub fn check_counts(
    workload: &Workload,
    subject: &Subject,
    load: &Load,
) -> io::Result<Option<f64>> {
    let Some((producers, messages)) = workload.counted.filter(|_| subject.keeps_counts()) else {
        return Ok(None);
    };
    let counts_before = subject.counts()?;
    let mut tester = workload.command(subject, load.seconds, &load.testers)?;
    tester.args(["-C", &messages.to_string()]);
    let mut child = pinned(&mut tester, load)?;
    let status = listen(&mut child, &load.stop, |_| Ok(()))?;
    if !status.success() {
        return Err(io::Error::other(format!("the tester ended with {status}")));
    }
    sleep(SETTLING);
    let counts = subject.counts()?.since(counts_before);
    let sent = (producers * messages) as f64;
    Ok(Some(disagreement(workload, sent, counts)))
}

/// Hands over each line that a tester prints, until it ends. A wish to stop ends it, and so does a line that cannot be taken.
///
/// # Errors
/// When somebody wanted it to end, its output cannot be read, or `hear` fails.
pub fn listen(
    child: &mut Child,
    stop: &Stop,
    mut hear: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<ExitStatus> {
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (sender, lines) = mpsc::channel();
    // It ends with the output, which ends with the tester.
    std::thread::spawn(move || {
        BufReader::new(output).lines().try_for_each(|line| sender.send(line).map_err(drop))
    });
    let outcome = loop {
        let heard = match lines.recv_timeout(STOP_LOOK) {
            Ok(line) => line.and_then(|line| hear(&line)),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        };
        // A wish to stop reaches the tester, too, where a terminal sends it to all: what it did is not a whole run.
        if let Err(error) = heard.and_then(|()| goes_on(stop)) {
            break Err(error);
        }
    };
    if outcome.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    outcome.and_then(|()| goes_on(stop)).map(|()| status)
}

/// What so many messages cost between two moments.
fn costs(first: &Snapshot, last: &Snapshot, messages: f64) -> Figures {
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    let per_message = |value: f64| if messages > 0.0 { value / messages } else { 0.0 };
    let cpu = last.broker.cpu_seconds - first.broker.cpu_seconds;
    let switches = last.broker.switches_voluntary - first.broker.switches_voluntary;
    Figures {
        rate: messages / seconds,
        cpu_micros: per_message(cpu * 1e6),
        core_micros: per_message((last.busy_seconds - first.busy_seconds) * 1e6),
        switches: per_message(switches as f64),
        resident_mb: last.broker.resident_bytes as f64 / 1e6,
        tester_share: (last.tester.cpu_seconds - first.tester.cpu_seconds) / seconds,
        ..Figures::default()
    }
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

/// Starts the tester on its core.
///
/// # Errors
/// When it cannot be started.
pub fn pinned(tester: &mut Command, load: &Load) -> io::Result<Child> {
    // What an earlier one complained of stays.
    let errors = File::options().create(true).append(true).open(&load.errors)?;
    tester.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    spawn_on(&[load.core], tester)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talker(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_tester_is_heard_to_its_end() {
        let mut heard = Vec::new();
        let status = listen(&mut talker("echo a; echo b; exit 3"), &Stop::default(), |line| {
            heard.push(line.to_owned());
            Ok(())
        });
        assert_eq!(
            (status.unwrap().code(), heard),
            (Some(3), vec!["a".to_owned(), "b".to_owned()])
        );
    }

    #[test]
    fn a_wish_to_stop_ends_a_tester_that_says_nothing_more() {
        let stop = Stop::default();
        let mut child = talker("echo a; exec sleep 1000");
        let outcome = listen(&mut child, &stop, |_| {
            stop.wish();
            Ok(())
        });
        assert!(outcome.unwrap_err().to_string().contains("ended early"));
        // Whoever is waited for has ended; otherwise this would not return.
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_run_during_which_somebody_wants_to_stop_is_none() {
        let stop = Stop::default();
        stop.wish();
        assert!(listen(&mut talker("true"), &stop, |_| Ok(())).is_err());
    }

    #[test]
    fn a_tester_whose_lines_cannot_be_taken_is_ended() {
        let mut child = talker("echo a; exec sleep 1000");
        let outcome = listen(&mut child, &Stop::default(), |_| Err(io::Error::other("no")));
        assert_eq!(outcome.unwrap_err().to_string(), "no");
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn lines_that_come_at_once_do_not_make_a_window() {
        let start = Instant::now();
        let mut moments = Moments::new();
        assert_eq!(moments.window(), None);
        for milliseconds in [0, 1, 1_899, 2_500, 2_501, 2_502, 3_600, 7_000, 8_100, 9_050, 9_060] {
            let now = start + Duration::from_millis(milliseconds);
            moments.told(now, || Ok(milliseconds)).unwrap();
        }
        let taken: Vec<u64> = moments.taken.iter().map(|(_, moment)| *moment).collect();
        assert_eq!(taken, [2_500, 3_600, 7_000, 8_100, 9_050]);
        assert_eq!(moments.window(), Some((&2_500, &8_100)));
    }

    #[test]
    fn messages_are_the_brokers_count_where_it_tells() {
        let moment = |seen, delivered| Snapshot {
            broker: Reading::default(),
            tester: Reading::default(),
            busy_seconds: 0.0,
            seen,
            delivered,
            at: Instant::now(),
        };
        assert_eq!(moment(10.0, Some(90)).messages_since(&moment(5.0, Some(40))), 50.0);
        assert_eq!(moment(10.0, None).messages_since(&moment(5.0, None)), 5.0);
    }

    #[test]
    fn counts_are_compared_where_they_mean_the_same() {
        let counts = Counts { received: 0, delivered: 100, acknowledged: 0, spin_micros: 0 };
        let acknowledging = crate::bench::workload::WORKLOADS
            .iter()
            .find(|workload| workload.acknowledges)
            .unwrap();
        assert_eq!(disagreement(acknowledging, 100.0, counts), 1.0);
        let other = crate::bench::workload::WORKLOADS
            .iter()
            .find(|workload| !workload.acknowledges)
            .unwrap();
        assert_eq!(disagreement(other, 99.0, counts), 0.01);
        assert_eq!(disagreement(other, 0.0, Counts::default()), 1.0);
    }
}
