//! Sets many filters at a broker, checks its verdicts, and measures how fast messages go through them.

pub(crate) mod scheme;
mod verdicts;
pub mod workload;

use crate::confirm::ConfirmWindow;
use crate::engine::{Outcome, Tally, interruptible, run_counted};
use crate::opening::{Opening, Progress, measure};
use crate::peer::Peer;
use crate::plan::Plan;
use crate::report::data::{Format, print};
use crate::report::json::Json;
use crate::report::rate;
use crate::script::{Step, select_confirms};
use crate::to_stderr;
use crate::uri::Uri;
use lepus_amqp::client::ClientEvent;
use lepus_amqp::{Method, PropertiesRef};
use scheme::{END, Place, Scheme};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use verdicts::{Found, Verdicts};

/// Steps that are sent before their answers are awaited.
const BATCH: u32 = 500;
/// Messages of the check that may wait for their confirm: few enough that nobody's buffers fill up.
const CHECK_WINDOW: u64 = 50;
/// How long one connection of the check is listened to before the next.
const TURN: Duration = Duration::from_millis(5);
/// How long the check waits for the next message or confirm.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

/// The shape as asked for.
#[derive(Debug)]
pub(crate) struct FiltersPlan {
    pub id: String,
    pub uris: Vec<Uri>,
    pub scheme: Scheme,
    pub anchored: f64,
    pub symbols: u32,
    /// Connections of consumers.
    pub connections: u32,
    /// Messages of the check; 0 for none.
    pub sample: u32,
    /// The broker's process.
    pub pid: Option<u32>,
    pub format: Format,
}

/// What was measured beside the load.
#[derive(Debug)]
struct Ends {
    set: Opening,
    /// `None` where that was interrupted.
    removed: Option<Opening>,
}

/// Carries `plan` out and prints its figures; `load` is what measures the speed.
///
/// # Errors
/// A text for the user: the broker refused something, a connection broke, or `--pid` names no process.
pub(crate) fn run(plan: FiltersPlan, load: Plan) -> Result<Outcome, String> {
    let interrupted = interruptible()?;
    let outcome = measure_all(&plan, load, &interrupted);
    if let Err(error) = clean(&plan) {
        // The first failure is worth more than that of the cleaning after it.
        to_stderr(format_args!("what was made is still there: {error}"));
    }
    outcome
}

fn measure_all(
    plan: &FiltersPlan,
    load: Plan,
    interrupted: &AtomicBool,
) -> Result<Outcome, String> {
    let scheme = &plan.scheme;
    let mut peers = Vec::new();
    for number in 0..plan.connections {
        let uri = &plan.uris[number as usize % plan.uris.len()];
        let mut peer = Peer::open(uri, &format!("{} check {number}", plan.id))?;
        peer.carry_out(&[Step::open(1)])?;
        peers.push(peer);
    }
    let declared = scheme.declare(1);
    for batch in declared.chunks(BATCH as usize) {
        peers[0].carry_out(batch)?;
    }
    let set = measure(plan.pid, "filters", u64::from(scheme.count()), || {
        each_filter(
            plan,
            &mut peers,
            "filters",
            &|number| match scheme.place {
                Place::Binding => scheme.bind(1, number),
                Place::Consumer => scheme.consume(1, number),
            },
            interrupted,
        )
    })?;
    if interrupted.load(Ordering::Relaxed) {
        return Ok(Outcome::Interrupted);
    }
    tell(plan, &set, "set");
    if plan.sample > 0 {
        let found = check(plan, &mut peers, interrupted)?;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Outcome::Interrupted);
        }
        tell_check(plan, &found);
        if let Some(first) = &found.first {
            to_stderr(format_args!(
                "lepus perf filters: the broker's verdicts are wrong, so that no speed was measured; first: {first}"
            ));
            return Ok(Outcome::Faulty);
        }
    }
    // Consumers of the load take the place of those of the check.
    let removed = match scheme.place {
        Place::Binding => None,
        Place::Consumer => remove(plan, &mut peers, interrupted)?,
    };
    let (outcome, tally) = run_counted(load)?;
    let removed = match scheme.place {
        Place::Binding => remove(plan, &mut peers, interrupted)?,
        Place::Consumer => removed,
    };
    tell_all(plan, &tally, &Ends { set, removed });
    for peer in peers {
        // The broker may have gone meanwhile; there is nothing left to measure.
        let _ = peer.close();
    }
    if outcome != Outcome::Good {
        return Ok(outcome);
    }
    let missing = tally.outstanding.unwrap_or(0);
    if missing + tally.strays > 0 {
        to_stderr(format_args!(
            "lepus perf filters: under load {missing} deliveries did not come, and {} came that should not have",
            tally.strays
        ));
        return Ok(Outcome::Faulty);
    }
    Ok(Outcome::Good)
}

/// Does something with each filter, each at the connection that its consumer has.
fn each_filter(
    plan: &FiltersPlan,
    peers: &mut [Peer],
    kind: &'static str,
    step: &dyn Fn(u32) -> Step,
    interrupted: &AtomicBool,
) -> Result<(), String> {
    let used = match plan.scheme.place {
        Place::Binding => 1,
        Place::Consumer => peers.len(),
    };
    each(&mut peers[..used], 0..plan.scheme.count(), kind, step, interrupted)
}

/// Takes the step of each number, in batches, at the connections in turn.
fn each(
    peers: &mut [Peer],
    numbers: Range<u32>,
    kind: &'static str,
    step: &dyn Fn(u32) -> Step,
    interrupted: &AtomicBool,
) -> Result<(), String> {
    let mut progress = Progress::new(kind, numbers.len() as u64);
    let (mut begun, count) = (numbers.start, peers.len());
    while begun < numbers.end && !interrupted.load(Ordering::Relaxed) {
        let end = numbers.end.min(begun.saturating_add(BATCH));
        for (at, peer) in peers.iter_mut().enumerate() {
            let mine = (begun..end).filter(|number| *number as usize % count == at);
            let steps: Vec<Step> = mine.map(step).collect();
            peer.carry_out(&steps)?;
        }
        begun = end;
        progress.tell(u64::from(begun - numbers.start));
    }
    Ok(())
}

/// Takes all filters away; how fast that went, unless it was interrupted.
fn remove(
    plan: &FiltersPlan,
    peers: &mut [Peer],
    interrupted: &AtomicBool,
) -> Result<Option<Opening>, String> {
    let scheme = &plan.scheme;
    let removed = measure(plan.pid, "filters", u64::from(scheme.count()), || {
        each_filter(
            plan,
            peers,
            "removals",
            &|number| match scheme.place {
                Place::Binding => scheme.unbind(1, number),
                Place::Consumer => scheme.cancel(1, number),
            },
            interrupted,
        )
    })?;
    if scheme.place == Place::Consumer {
        let last = scheme.count()..scheme.consumers();
        each(peers, last, "consumers", &|number| scheme.cancel(1, number), interrupted)?;
    }
    Ok((!interrupted.load(Ordering::Relaxed)).then_some(removed))
}

/// Publishes the sample and holds what comes against what should.
fn check(
    plan: &FiltersPlan,
    peers: &mut [Peer],
    interrupted: &AtomicBool,
) -> Result<Found, String> {
    let scheme = &plan.scheme;
    let first = match scheme.place {
        Place::Binding => 0,
        Place::Consumer => scheme.count(),
    };
    let consumers = first..scheme.consumers();
    let consume = |number| scheme.consume(1, number);
    each(peers, consumers.clone(), "consumers", &consume, interrupted)?;
    peers[0].carry_out(&[Step::open(2), select_confirms(2)])?;
    let mut check = Checking {
        verdicts: Verdicts::new(scheme, plan.sample),
        window: ConfirmWindow::new(CHECK_WINDOW),
        refused: 0,
        ended: 0,
        news: 0,
    };
    for number in 0..plan.sample {
        while check.window.room() == 0 {
            check.listen(peers, &|check| check.window.room() > 0)?;
        }
        peers[0].publish(2, &scheme.numbered(number))?;
        check.window.published(0);
    }
    check.listen(peers, &|check| check.window.outstanding() == 0)?;
    if check.window.outstanding() > 0 {
        return Err("no confirm for messages of the check within 10 s".to_owned());
    }
    match scheme.place {
        // A queue is in order: what comes before this came before it.
        Place::Binding => {
            for queue in 0..scheme.queues {
                peers[0].publish(2, &scheme.end(queue))?;
                check.window.published(0);
                check.listen(peers, &|check| check.window.room() > 0)?;
            }
            check.listen(peers, &|check| check.ended == scheme.queues)?;
        }
        // Each message goes to one consumer.
        Place::Consumer => {
            let expected = check.verdicts.expected();
            check.listen(peers, &|check| check.verdicts.received() >= expected)?;
        }
    }
    if check.refused > 0 {
        return Err(format!("the broker refused {} messages of the check", check.refused));
    }
    if scheme.place == Place::Binding {
        let cancel = |number| scheme.cancel(1, number);
        each(peers, consumers, "consumers", &cancel, interrupted)?;
    }
    Ok(check.verdicts.finish())
}

/// The check under way.
struct Checking<'a> {
    verdicts: Verdicts<'a>,
    window: ConfirmWindow,
    /// Messages that the broker did not take.
    refused: u64,
    /// Queues of which everything has come.
    ended: u32,
    /// Counts whatever comes.
    news: u64,
}

impl Checking<'_> {
    /// Takes what comes on all connections until `is_over`, or until nothing has come for too long.
    fn listen(
        &mut self,
        peers: &mut [Peer],
        is_over: &dyn Fn(&Checking<'_>) -> bool,
    ) -> Result<(), String> {
        let (mut last, mut news) = (Instant::now(), self.news);
        while !is_over(self) && last.elapsed() < CHECK_PATIENCE {
            for peer in peers.iter_mut() {
                peer.listen(TURN, &mut |event| self.take(event))?;
            }
            if self.news > news {
                (last, news) = (Instant::now(), self.news);
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &ClientEvent<'_>) {
        match event {
            ClientEvent::Method { method: Method::BasicAck(ack), .. } => {
                self.window.settle(ack.delivery_tag, ack.multiple, |_| {});
            }
            ClientEvent::Method { method: Method::BasicNack(nack), .. } => {
                self.refused += self.window.settle(nack.delivery_tag, nack.multiple, |_| {});
            }
            ClientEvent::Content { method: Method::BasicDeliver(deliver), properties, .. } => {
                let id = PropertiesRef(properties).message_id().unwrap_or_default();
                if id == END.as_bytes() {
                    self.ended += 1;
                } else {
                    let number = str::from_utf8(id).ok().and_then(|id| id.parse().ok());
                    let consumer = deliver.consumer_tag.parse().unwrap_or(u32::MAX);
                    self.verdicts.receive(consumer, number.unwrap_or(u32::MAX));
                }
            }
            _ => return,
        }
        self.news += 1;
    }
}

/// Deletes what was made, on a connection of its own: another may be closed for a refusal.
fn clean(plan: &FiltersPlan) -> Result<(), String> {
    let mut peer = Peer::open(&plan.uris[0], &format!("{} removal", plan.id))?;
    peer.carry_out(&[Step::open(1)])?;
    for batch in plan.scheme.delete(1).chunks(BATCH as usize) {
        peer.carry_out(batch)?;
    }
    peer.close()
}

fn tell(plan: &FiltersPlan, opening: &Opening, done: &str) {
    match plan.format {
        Format::Text => print(&opening.text(&plan.id, done)),
        Format::JsonLines => print(&opening.json()),
        Format::Csv => {}
    }
}

fn tell_check(plan: &FiltersPlan, found: &Found) {
    match plan.format {
        Format::Text => {
            let id = &plan.id;
            let text = match found.is_good() {
                true => format!(
                    "id: {id}, check: {} messages, {} deliveries, all as the filters say",
                    plan.sample, found.good
                ),
                false => format!(
                    "id: {id}, check FAILED: missing: {}, unexpected: {}, twice: {}",
                    found.missing, found.unexpected, found.repeated
                ),
            };
            print(&text);
        }
        Format::JsonLines => {
            let mut json = Json::default();
            json.open(None, '{');
            json.text("kind", "checked");
            json.number("messages", u64::from(plan.sample));
            json.number("good", found.good);
            json.number("missing", found.missing);
            json.number("unexpected", found.unexpected);
            json.number("repeated", found.repeated);
            match &found.first {
                Some(first) => json.text("first", first),
                None => json.raw("first", "null"),
            }
            json.close('}');
            print(&json.text);
        }
        Format::Csv => {}
    }
}

/// What the broker needed for a message of the load, in microseconds of CPU.
fn cpu_micros(tally: &Tally) -> Option<f64> {
    let (before, after) = tally.readings?;
    let sent = tally.in_load.sent;
    (sent > 0).then(|| (after.cpu_seconds - before.cpu_seconds) * 1e6 / sent as f64)
}

fn tell_all(plan: &FiltersPlan, tally: &Tally, ends: &Ends) {
    let (scheme, id) = (&plan.scheme, &plan.id);
    let messages = plan.scheme.workload.trades.len() as u32;
    let foreseen: u64 = (0..messages).map(|message| scheme.deliveries(message)).sum();
    let foreseen = foreseen as f64 / f64::from(messages.max(1));
    let matches = scheme.workload.matches_mean();
    let delivered = tally.total.received as f64 / tally.total.sent.max(1) as f64;
    let per_second =
        |count: u64| if tally.seconds > 0.0 { count as f64 / tally.seconds } else { 0.0 };
    let resident = tally.readings.map(|(_, after)| after.resident_bytes);
    match plan.format {
        Format::Text => {
            let mut text = format!(
                "id: {id}, {} filters at {}s, {} queues: {} msg/s in, {} msg/s out; {matches:.2} filters match a message, \
                 {foreseen:.2} deliveries each, {delivered:.2} seen",
                scheme.count(),
                scheme.place.name(),
                scheme.queues,
                rate(per_second(tally.in_load.sent)),
                rate(per_second(tally.in_load.received)),
            );
            if let (Some(micros), Some(resident)) = (cpu_micros(tally), resident) {
                text.push_str(&format!(
                    "; broker: {micros:.2} µs CPU a message, {resident} bytes resident"
                ));
            }
            print(&text);
            if let Some(removed) = &ends.removed {
                print(&removed.text(id, "removed"));
            }
        }
        Format::JsonLines => {
            let mut json = Json::default();
            json.open(None, '{');
            json.text("kind", "filters");
            json.text("id", id);
            json.text("at", scheme.place.name());
            json.text("argument", scheme.dialect.name());
            json.text("look_at", scheme.look_at.name());
            json.number("count", u64::from(scheme.count()));
            json.float("anchored", plan.anchored);
            json.number("symbols", u64::from(plan.symbols));
            json.number("queues", u64::from(scheme.queues));
            json.number("body_bytes", scheme.body_bytes as u64);
            json.float("set_per_s", ends.set.per_second());
            match &ends.removed {
                Some(removed) => json.float("removed_per_s", removed.per_second()),
                None => json.raw("removed_per_s", "null"),
            }
            json.float("matches_per_message", matches);
            json.float("deliveries_per_message", foreseen);
            json.float("delivered_per_published", delivered);
            json.float("sent_per_s", per_second(tally.in_load.sent));
            json.float("received_per_s", per_second(tally.in_load.received));
            match cpu_micros(tally) {
                Some(micros) => json.float("broker_cpu_us_per_message", micros),
                None => json.raw("broker_cpu_us_per_message", "null"),
            }
            json.optional("broker_resident_bytes", resident);
            json.optional("outstanding", tally.outstanding);
            json.number("unexpected", tally.strays);
            json.close('}');
            print(&json.text);
        }
        Format::Csv => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Counters;
    use lepus_probe::procfs::Reading;

    #[test]
    fn the_broker_s_time_is_divided_by_what_was_published() {
        let reading = |cpu_seconds| Reading { cpu_seconds, ..Reading::default() };
        let mut tally = Tally {
            in_load: Counters { sent: 1_000_000, received: 3, ..Counters::default() },
            readings: Some((reading(1.0), reading(3.5))),
            ..Tally::default()
        };
        assert_eq!(cpu_micros(&tally), Some(2.5));
        tally.in_load.sent = 0;
        assert_eq!(cpu_micros(&tally), None);
        assert_eq!(cpu_micros(&Tally::default()), None);
    }
}
