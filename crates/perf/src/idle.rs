//! Opens connections, channels and queues that do nothing, and tells what they cost the broker.

use crate::engine::{Outcome, interruptible};
use crate::peer::Peer;
use crate::report::data::{Format, print};
use crate::report::json::Json;
use crate::script::{QueueSpec, Step};
use crate::to_stderr;
use crate::uri::Uri;
use lepus_probe::procfs::{self, Reading};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps that are sent before their answers are awaited.
const BATCH: usize = 100;
/// Opening that takes longer than this tells how far it is, each time it has passed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// The shape as asked for.
#[derive(Clone, Debug)]
pub(crate) struct IdlePlan {
    pub id: String,
    pub uris: Vec<Uri>,
    pub connections: u64,
    /// On each connection.
    pub channels: u16,
    /// On each channel.
    pub queues: u64,
    /// The broker's process.
    pub pid: Option<u32>,
    pub time: Duration,
    pub format: Format,
}

/// What opening things of one kind took.
#[derive(Clone, Debug, PartialEq)]
struct Opening {
    kind: &'static str,
    count: u64,
    seconds: f64,
    /// The broker's, before and after.
    readings: Option<(Reading, Reading)>,
}

impl Opening {
    fn per_item(&self, amount: f64) -> f64 {
        if self.count == 0 { 0.0 } else { amount / self.count as f64 }
    }

    /// CPU microseconds and resident bytes that one took the broker.
    fn cost(&self) -> Option<(f64, f64)> {
        let (before, after) = self.readings?;
        let cpu = (after.cpu_seconds - before.cpu_seconds) * 1e6;
        let bytes = after.resident_bytes as f64 - before.resident_bytes as f64;
        Some((self.per_item(cpu), self.per_item(bytes)))
    }

    fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.count as f64 / self.seconds } else { 0.0 }
    }

    fn text(&self, id: &str) -> String {
        let mut text = format!(
            "id: {id}, {} {} opened in {:.3} s, {:.0} a second",
            self.count,
            self.kind,
            self.seconds,
            self.per_second()
        );
        if let Some((micros, bytes)) = self.cost() {
            text.push_str(&format!("; broker: {micros:.1} µs CPU and {bytes:.0} bytes for each"));
        }
        text
    }

    fn json(&self) -> String {
        let mut json = Json::default();
        json.open(None, '{');
        json.text("kind", "opened");
        json.text("what", self.kind);
        json.number("count", self.count);
        json.float("seconds", self.seconds);
        json.float("per_s", self.per_second());
        match self.cost() {
            Some((micros, bytes)) => {
                json.float("broker_cpu_us_each", micros);
                json.float("broker_bytes_each", bytes);
            }
            None => {
                json.raw("broker_cpu_us_each", "null");
                json.raw("broker_bytes_each", "null");
            }
        }
        json.close('}');
        json.text
    }
}

/// Carries `plan` out and prints its figures.
///
/// # Errors
/// A text for the user: the broker refused something, a connection broke, or `--pid` names no process.
pub(crate) fn run(plan: IdlePlan) -> Result<Outcome, String> {
    let interrupted = interruptible()?;
    let mut peers = Vec::new();
    let connections = measure(&plan, "connections", plan.connections, || {
        let mut progress = Progress::new("connections", plan.connections);
        while (peers.len() as u64) < plan.connections && !interrupted.load(Ordering::Relaxed) {
            let uri = &plan.uris[peers.len() % plan.uris.len()];
            peers.push(Peer::open(uri, &format!("{} idle {}", plan.id, peers.len()))?);
            progress.tell(peers.len() as u64);
        }
        Ok(())
    })?;
    tell(&plan, &connections);
    if let Some(peer) = peers.first()
        && peer.channels_max() < plan.channels
    {
        return Err(format!(
            "the broker allows {} channels on a connection, fewer than --channels",
            peer.channels_max()
        ));
    }
    let count = plan.connections * u64::from(plan.channels);
    let channels = measure(&plan, "channels", count, || {
        let steps: Vec<Step> = (1..=plan.channels).map(Step::open).collect();
        on_each(&mut peers, "channels", &steps, &interrupted)
    })?;
    tell(&plan, &channels);
    let queues = measure(&plan, "queues", count * plan.queues, || {
        // Without names of their own, which the broker makes up.
        let queue = QueueSpec { exclusive: true, ..QueueSpec::default() };
        let on_channel = |channel| (0..plan.queues).flat_map(move |_| [channel]);
        let steps: Vec<Step> = (1..=plan.channels)
            .flat_map(on_channel)
            .flat_map(|channel| queue.declare(channel))
            .collect();
        on_each(&mut peers, "queues", &steps, &interrupted)
    })?;
    tell(&plan, &queues);
    let waited = wait(&plan, &interrupted)?;
    tell_waiting(&plan, &waited);
    for peer in peers {
        // The broker may have gone meanwhile; there is nothing left to measure.
        let _ = peer.close();
    }
    Ok(match interrupted.load(Ordering::Relaxed) {
        true => Outcome::Interrupted,
        false => Outcome::Good,
    })
}

/// Runs `open`, which opens `count` things.
fn measure(
    plan: &IdlePlan,
    kind: &'static str,
    count: u64,
    open: impl FnOnce() -> Result<(), String>,
) -> Result<Opening, String> {
    let before = plan.pid.map(read).transpose()?;
    let begun = Instant::now();
    if count > 0 {
        open()?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let after = plan.pid.map(read).transpose()?;
    Ok(Opening { kind, count, seconds, readings: before.zip(after) })
}

/// Takes `steps` on each connection, in batches.
fn on_each(
    peers: &mut [Peer],
    kind: &'static str,
    steps: &[Step],
    interrupted: &AtomicBool,
) -> Result<(), String> {
    let mut progress = Progress::new(kind, (peers.len() * steps.len()) as u64);
    for (number, peer) in peers.iter_mut().enumerate() {
        for batch in steps.chunks(BATCH) {
            if interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            peer.carry_out(batch)?;
        }
        progress.tell(((number + 1) * steps.len()) as u64);
    }
    Ok(())
}

/// Waits while nothing happens.
fn wait(plan: &IdlePlan, interrupted: &AtomicBool) -> Result<Opening, String> {
    measure(plan, "idle", 1, || {
        let end = Instant::now() + plan.time;
        while Instant::now() < end && !interrupted.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        Ok(())
    })
}

fn tell(plan: &IdlePlan, opening: &Opening) {
    if opening.count == 0 {
        return;
    }
    match plan.format {
        Format::Text => print(&opening.text(&plan.id)),
        Format::JsonLines => print(&opening.json()),
        Format::Csv => {
            let (micros, bytes) = opening.cost().unwrap_or_default();
            let (kind, count) = (opening.kind, opening.count);
            let cost = match opening.readings {
                Some(_) => format!("{micros:.3},{bytes:.0}"),
                None => ",".to_owned(),
            };
            print(&format!("opened,{kind},{count},{:.6},{cost}", opening.seconds));
        }
    }
}

/// The head of the CSV, which differs from that of shapes with messages.
pub(crate) const CSV_HEAD: &str = "kind,what,count,seconds,broker_cpu_us_each,broker_bytes_each";

fn tell_waiting(plan: &IdlePlan, waited: &Opening) {
    let cpu = waited.cost().map(|(micros, _)| micros);
    let share = cpu.map(|micros| micros / 1e4 / waited.seconds.max(1e-9));
    let resident = waited.readings.map(|(_, after)| after.resident_bytes);
    match plan.format {
        Format::Text => {
            let mut text = format!("id: {}, idle for {:.1} s", plan.id, waited.seconds);
            if let (Some(share), Some(resident)) = (share, resident) {
                text.push_str(&format!(
                    "; broker: {share:.3} % of a core, {resident} bytes resident"
                ));
            }
            print(&text);
        }
        Format::JsonLines => {
            let mut json = Json::default();
            json.open(None, '{');
            json.text("kind", "summary");
            json.text("shape", "idle");
            json.text("id", &plan.id);
            json.float("seconds", waited.seconds);
            json.number("connections", plan.connections);
            json.number("channels", plan.connections * u64::from(plan.channels));
            json.number("queues", plan.connections * u64::from(plan.channels) * plan.queues);
            match share {
                Some(share) => json.float("broker_cpu_percent", share),
                None => json.raw("broker_cpu_percent", "null"),
            }
            json.optional("broker_resident_bytes", resident);
            json.texts("errors", &[]);
            json.close('}');
            print(&json.text);
        }
        Format::Csv => {
            let cost = cpu.map_or_else(String::new, |micros| format!("{micros:.3}"));
            let resident = resident.map_or_else(String::new, |bytes| bytes.to_string());
            print(&format!("idle,,1,{:.6},{cost},{resident}", waited.seconds));
        }
    }
}

/// Tells on standard error how far a long opening is.
struct Progress {
    kind: &'static str,
    all: u64,
    told: Instant,
}

impl Progress {
    fn new(kind: &'static str, all: u64) -> Progress {
        Progress { kind, all, told: Instant::now() }
    }

    fn tell(&mut self, done: u64) {
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            to_stderr(format_args!("{done} of {} {} are open", self.all, self.kind));
        }
    }
}

/// Reads process `pid` of this host.
///
/// # Errors
/// A text for the user: no such process, or a system without `/proc`.
fn read(pid: u32) -> Result<Reading, String> {
    let reading =
        procfs::read(pid).map_err(|error| format!("cannot read process {pid} (--pid): {error}"))?;
    match reading.resident_bytes {
        // What has ended and is not asked for its outcome yet has no memory any more.
        0 => Err(format!("process {pid} (--pid) has ended")),
        _ => Ok(reading),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_process_0_is_none() {
        assert!(read(std::process::id()).unwrap().resident_bytes > 0);
        assert!(read(0).unwrap_err().contains("--pid"));
    }

    fn opening(readings: Option<(Reading, Reading)>) -> Opening {
        Opening { kind: "channels", count: 1_000, seconds: 0.5, readings }
    }

    #[test]
    fn costs_are_what_grew_divided_by_the_number() {
        let before = Reading { cpu_seconds: 1.0, resident_bytes: 10_000, ..Reading::default() };
        let after = Reading { cpu_seconds: 1.5, resident_bytes: 510_000, ..Reading::default() };
        let opening = opening(Some((before, after)));
        assert_eq!(opening.cost(), Some((500.0, 500.0)));
        assert_eq!(
            opening.text("me"),
            "id: me, 1000 channels opened in 0.500 s, 2000 a second; broker: 500.0 µs CPU and 500 bytes for each"
        );
        assert!(opening.json().contains(r#""what":"channels","count":1000,"#));
        assert!(opening.json().ends_with(r#""broker_bytes_each":500.000000}"#));
    }

    #[test]
    fn without_a_process_there_is_no_cost() {
        let opening = opening(None);
        assert_eq!(opening.text("me"), "id: me, 1000 channels opened in 0.500 s, 2000 a second");
        assert!(opening.json().contains(r#""broker_cpu_us_each":null"#));
    }
}
