//! Opens connections, channels and queues that do nothing, and tells what they cost the broker.

use crate::engine::{Outcome, interruptible};
use crate::opening::{Opening, Progress, measure};
use crate::peer::Peer;
use crate::report::data::{Format, print};
use crate::report::json::Json;
use crate::script::{QueueSpec, Step};
use crate::uri::Uri;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps that are sent before their answers are awaited.
const BATCH: usize = 100;

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

/// Carries `plan` out and prints its figures.
///
/// # Errors
/// A text for the user: the broker refused something, a connection broke, or `--pid` names no process.
pub(crate) fn run(plan: IdlePlan) -> Result<Outcome, String> {
    let interrupted = interruptible()?;
    let mut peers = Vec::new();
    let connections = measure(plan.pid, "connections", plan.connections, || {
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
    let channels = measure(plan.pid, "channels", count, || {
        let steps: Vec<Step> = (1..=plan.channels).map(Step::open).collect();
        on_each(&mut peers, "channels", &steps, &interrupted)
    })?;
    tell(&plan, &channels);
    let queues = measure(plan.pid, "queues", count * plan.queues, || {
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
    measure(plan.pid, "idle", 1, || {
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
        Format::Text => print(&opening.text(&plan.id, "opened")),
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
