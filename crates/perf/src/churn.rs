//! Makes and removes connections, channels, queues or bindings over and over, on one thread for each worker.

use crate::clock::{Clock, cpu_seconds};
use crate::engine::{Outcome, interruptible};
use crate::peer::Peer;
use crate::report::data::{Format, print};
use crate::report::{LATENCIES, Missing, Shown, Summary, TAIL, rate};
use crate::script::{QueueSpec, Step, bind};
use crate::statistics::{Interval, Statistics};
use crate::uri::Uri;
use lepus_amqp::method::{channel, queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// What is made and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Connection,
    Channel,
    Queue,
    Binding,
}

impl Thing {
    /// All of them, in the order in which they are measured.
    pub(crate) const ALL: [Thing; 4] =
        [Thing::Connection, Thing::Channel, Thing::Queue, Thing::Binding];

    /// Its name in options and figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Thing::Connection => "connections",
            Thing::Channel => "channels",
            Thing::Queue => "queues",
            Thing::Binding => "bindings",
        }
    }
}

/// One part of the shape.
#[derive(Clone, Debug)]
pub(crate) struct ChurnPlan {
    pub id: String,
    pub uris: Vec<Uri>,
    pub thing: Thing,
    pub workers: u32,
    pub durable: bool,
    pub time: Duration,
    pub interval: Duration,
    pub format: Format,
}

impl ChurnPlan {
    fn print_interval(&self, interval: &Interval) {
        match self.format {
            Format::Text => print(&self.interval_line(interval)),
            format => format.print_interval(&self.id, "churn", SHOWN, interval),
        }
    }

    fn print_summary(&self, summary: &Summary<'_>) {
        match self.format {
            Format::Text => print(&self.summary_lines(summary)),
            format => format.print_summary(summary),
        }
    }

    fn interval_line(&self, interval: &Interval) -> String {
        format!(
            "id: {}, time {:.3} s, {}: {} a second, {LATENCIES} latency: {}",
            self.id,
            interval.at_seconds,
            self.thing.name(),
            rate(interval.rate(interval.counters.confirmed)),
            SHOWN.latency(&interval.confirm_latency)
        )
    }

    fn summary_lines(&self, summary: &Summary<'_>) -> String {
        let (id, name) = (&self.id, self.thing.name());
        let per_second = rate(summary.per_second(summary.counters.confirmed));
        let latency = &summary.confirm_latency;
        let (points, tail) = (SHOWN.latency(latency), SHOWN.tail(latency));
        format!(
            "id: {id}, {name}: {per_second} a second on average ({})\n\
             id: {id}, {name}: latency {LATENCIES} {points}\n\
             id: {id}, {name}: latency {TAIL} {tail}",
            summary.stopped
        )
    }
}

/// What a worker tells.
enum News {
    /// It has made and removed one in so many nanoseconds.
    Done(u64),
    Failed(String),
}

const SHOWN: Shown =
    Shown { sent: true, received: false, returned: false, confirmed: true, millis: false };

/// Carries `plan` out and prints its figures.
///
/// # Errors
/// A text for the user: the broker refused something, or a connection broke.
pub(crate) fn run(plan: ChurnPlan) -> Result<Outcome, String> {
    let interrupted = interruptible()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, news) = mpsc::channel();
    let clock = Clock::new(false);
    let mut statistics = Statistics::new(clock.now());
    let cpu_begun = cpu_seconds();
    let workers: Vec<_> = (0..plan.workers)
        .map(|number| {
            let (plan, stop, sender) = (plan.clone(), Arc::clone(&stop), sender.clone());
            std::thread::spawn(move || {
                if let Err(error) = work(&plan, number, &stop, &sender) {
                    let _ = sender.send(News::Failed(error));
                }
            })
        })
        .collect();
    drop(sender);
    let end = Instant::now() + plan.time;
    let mut report = Instant::now() + plan.interval;
    let mut intervals = Vec::new();
    let mut errors = Vec::new();
    loop {
        let now = Instant::now();
        let is_over = now >= end || !errors.is_empty() || interrupted.load(Ordering::Relaxed);
        if is_over {
            break;
        }
        if now >= report {
            report += plan.interval;
            let interval = statistics.turn(clock.now());
            plan.print_interval(&interval);
            intervals.push(interval);
        }
        let patience =
            report.min(end).saturating_duration_since(now).min(Duration::from_millis(100));
        match news.recv_timeout(patience) {
            Ok(News::Done(nanos)) => {
                statistics.now.sent += 1;
                statistics.now.confirmed += 1;
                statistics.confirm_latency.record(nanos);
            }
            Ok(News::Failed(error)) => errors.push(error),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
    let ended = clock.now();
    stop.store(true, Ordering::Relaxed);
    let cpu_seconds = cpu_seconds() - cpu_begun;
    let last = statistics.turn(ended);
    if plan.format != Format::Text && last.counters.sent > 0 {
        plan.print_interval(&last);
    }
    let stopped = match (errors.is_empty(), interrupted.load(Ordering::Relaxed)) {
        (false, _) => "Connection lost",
        (true, true) => "Interrupted",
        (true, false) => "Reached time limit",
    };
    plan.print_summary(&Summary {
        id: &plan.id,
        shape: "churn",
        phase: plan.thing.name(),
        shown: SHOWN,
        seconds: statistics.seconds(ended),
        counters: statistics.total(),
        in_load: statistics.total(),
        missing: Missing::default(),
        consumer_latency: statistics.consumer_latency.total(),
        confirm_latency: statistics.confirm_latency.total(),
        curves: [Vec::new(), statistics.confirm_latency.curve()],
        buckets: [Vec::new(), statistics.confirm_latency.buckets()],
        cpu_seconds,
        ceiling: None,
        body_bytes: 0,
        check: None,
        stopped,
        errors: &errors,
        intervals: &intervals,
    });
    for worker in workers {
        let _ = worker.join();
    }
    match errors.into_iter().next() {
        Some(error) => Err(error),
        None if stopped == "Interrupted" => Ok(Outcome::Interrupted),
        None => Ok(Outcome::Good),
    }
}

/// Makes and removes until told to stop.
fn work(
    plan: &ChurnPlan,
    number: u32,
    stop: &AtomicBool,
    sender: &Sender<News>,
) -> Result<(), String> {
    let uri = &plan.uris[number as usize % plan.uris.len()];
    let name = format!("{} {} {number}", plan.id, plan.thing.name());
    let queue = QueueSpec {
        name: format!("lepus-churn-{}-{number}", plan.id),
        durable: plan.durable,
        auto_delete: false,
        ..QueueSpec::default()
    };
    let delete = || {
        let delete = queue::Delete { queue: &queue.name, ..Default::default() };
        Step::new(1, delete, &queue.name)
    };
    let open = Step::open(1);
    let close = Step::new(1, channel::Close { reply_code: 200, ..Default::default() }, "");
    let unbind = queue::Unbind {
        queue: &queue.name,
        exchange: "amq.direct",
        routing_key: &queue.name,
        ..Default::default()
    };
    let (before, cycle, after) = match plan.thing {
        Thing::Connection => (Vec::new(), Vec::new(), Vec::new()),
        Thing::Channel => (Vec::new(), vec![open, close], Vec::new()),
        Thing::Queue => {
            let mut cycle = queue.declare(1);
            cycle.push(delete());
            (vec![open], cycle, Vec::new())
        }
        Thing::Binding => {
            let mut before = vec![open];
            before.extend(queue.declare(1));
            let mut cycle = bind(1, &queue.name, "amq.direct", &queue.name);
            cycle.push(Step::new(1, unbind, &queue.name));
            (before, cycle, vec![delete()])
        }
    };
    let mut peer = match plan.thing {
        Thing::Connection => None,
        _ => Some(Peer::open(uri, &name)?),
    };
    if let Some(peer) = &mut peer {
        peer.carry_out(&before)?;
    }
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match &mut peer {
            None => Peer::open(uri, &name)?.close()?,
            Some(peer) => {
                for step in &cycle {
                    peer.carry_out(std::slice::from_ref(step))?;
                }
            }
        }
        if sender.send(News::Done(begun.elapsed().as_nanos() as u64)).is_err() {
            break;
        }
    }
    if let Some(mut peer) = peer {
        peer.carry_out(&after)?;
        peer.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_operations_not_messages() {
        let plan = ChurnPlan {
            id: "me".to_owned(),
            uris: Vec::new(),
            thing: Thing::Queue,
            workers: 1,
            durable: false,
            time: Duration::ZERO,
            interval: Duration::ZERO,
            format: Format::Text,
        };
        let mut statistics = Statistics::new(lepus_base::Instant(0));
        for _ in 0..300 {
            statistics.now.confirmed += 1;
            statistics.confirm_latency.record(5_000);
        }
        let interval = statistics.turn(lepus_base::Instant::from_millis(2_000));
        assert_eq!(
            plan.interval_line(&interval),
            "id: me, time 2.000 s, queues: 150 a second, min/median/75th/95th/99th latency: 5/5/5/5/5 µs"
        );
    }
}
