//! What an idle broker costs: CPU while nothing happens, and memory per connection, channel, queue
//! and binding.
//!
//! Memory is the growth of the resident set over many objects of one kind, divided by their number;
//! it holds whatever the allocator and the tables add.

use crate::bench::place::Place;
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::words::{SECONDS_MAX, from_one};
use crate::cast::OWN_CLIENT;
use crate::report::{Block, Table};
use crate::subject::{Kind, Subject};
use clap::Args;
use lepus_amqp::method::{exchange, queue};
use lepus_perf::to_stderr;
use lepus_probe::Client;
use lepus_probe::procfs::Reading;
use serde_json::{Value, json};
use std::io;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Answers awaited together.
const BATCH: usize = 100;

/// The most connections, and queues.
const MANY: u64 = 10_000_000;
/// The most channels of a connection that a broker may allow.
const CHANNELS_MAX: u64 = 65_535;

/// How many of each there are.
#[derive(Clone, Copy, Debug, Args)]
pub struct Crowd {
    /// Connections
    #[arg(long, default_value_t = 1000, value_parser = from_one::<usize>(MANY))]
    connections: usize,
    /// Channels of a connection
    #[arg(long, default_value_t = 10, value_parser = from_one::<u16>(CHANNELS_MAX))]
    channels: u16,
    /// Queues, and bindings
    #[arg(long, default_value_t = 10_000, value_parser = from_one::<usize>(MANY))]
    queues: usize,
    /// Seconds without a word
    #[arg(long, default_value_t = 30, value_parser = from_one::<u64>(SECONDS_MAX))]
    idle: u64,
}

const TITLE: &str = "What an idle broker costs";
const ASKS: &str = "How much CPU goes while nothing happens, and how much memory do connections, channels, queues and bindings take?";
const LEGEND: [&str; 1] = [
    "bytes each: the growth of the broker's resident memory over all objects of a kind, by their number. idle: while only \
     heartbeats are sent.",
];

/// Measures and reports.
///
/// # Errors
/// When the broker does not start or ends a connection, or the report cannot be written.
pub fn run(plan: Crowd, place: &Place) -> io::Result<()> {
    let size = format!(
        "{} connections with {} channels each, {} queues, {} s idle",
        plan.connections, plan.channels, plan.queues, plan.idle
    );
    let mut sheet =
        Sheet::new(Cover { name: "idle", title: TITLE, asks: ASKS, size: ("size", size) }, place)?;
    let mut found = Found::default();
    place.cast.load("idle", || OWN_CLIENT.to_owned());
    // What was measured until something failed is worth as much as before.
    if let Err(error) = measure(plan, place, &mut found) {
        sheet.fault(error.to_string());
    }
    found.sentences().into_iter().for_each(|sentence| sheet.see(sentence));
    let was_measured = !found.objects.is_empty() || !found.rests.is_empty();
    sheet.add(found.blocks(), Some(found.json()))?;
    sheet.finish(&LEGEND, was_measured)
}

fn measure(plan: Crowd, place: &Place, found: &mut Found) -> io::Result<()> {
    let subject = place.start(Kind::Lepus)?;
    let mut probe = Probe { subject: &subject, place, last: 0 };
    // Tables, threads and code are there after the first of each kind.
    let mut first = subject.connect()?;
    first.open_channel(1)?;
    declare(&mut first, "first", 1)?;
    bind(&mut first, "amq.direct", "first", 1)?;
    bind(&mut first, "amq.topic", "first", 1)?;
    found.rests.push(("without clients", idle(&subject, &mut [], 5, place)?));
    probe.start()?;

    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        connections.push(subject.connect()?);
    }
    let objects = &mut found.objects;
    objects.push(probe.take("connection", plan.connections)?);
    for connection in &mut connections {
        for number in 1..=plan.channels {
            connection.open_channel(number)?;
        }
    }
    objects.push(probe.take("channel", plan.connections * usize::from(plan.channels))?);
    declare(&mut first, "idle", plan.queues)?;
    objects.push(probe.take("queue", plan.queues)?);
    bind(&mut first, "amq.direct", "idle", plan.queues)?;
    objects.push(probe.take("binding to a direct exchange", plan.queues)?);
    bind(&mut first, "amq.topic", "idle", plan.queues)?;
    objects.push(probe.take("binding to a topic exchange", plan.queues)?);
    connections.push(first);
    found.rests.push(("with all that", idle(&subject, &mut connections, plan.idle, place)?));
    Ok(())
}

/// What was found until now.
#[derive(Debug, Default)]
struct Found {
    objects: Vec<Object>,
    rests: Vec<(&'static str, Rest)>,
}

/// What many objects of a kind took.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Object {
    name: &'static str,
    count: usize,
    bytes_each: f64,
}

/// What the broker did while nobody asked anything of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rest {
    /// Percent of a core.
    core_percent: f64,
    /// How often it went to sleep in a second.
    sleeps: f64,
    /// Resident megabytes.
    resident_mb: f64,
}

impl Found {
    fn blocks(&self) -> Vec<Block> {
        let mut objects = Table::new(["what", "count", "bytes each"]);
        for Object { name, count, bytes_each } in &self.objects {
            let row = vec![(*name).to_owned(), count.to_string(), format!("{bytes_each:.0}")];
            objects.rows.push(row);
        }
        let mut rests = Table::new(["idle", "% of a core", "sleeps/s", "resident MB"]);
        for (when, rest) in &self.rests {
            rests.rows.push(vec![
                (*when).to_owned(),
                format!("{:.2}", rest.core_percent),
                format!("{:.0}", rest.sleeps),
                format!("{:.1}", rest.resident_mb),
            ]);
        }
        let heading = |text: &str| Block::Heading(text.to_owned());
        vec![
            heading("Memory by object"),
            Block::Table(objects),
            heading("While nothing happens"),
            Block::Table(rests),
        ]
    }

    fn sentences(&self) -> Vec<String> {
        let sentence = |(when, rest): &(&str, Rest)| {
            format!(
                "Idle {when}: {:.2} % of a core, {:.1} MB.",
                rest.core_percent, rest.resident_mb
            )
        };
        self.rests.iter().map(sentence).collect()
    }

    fn json(&self) -> Value {
        let object = |one: &Object| json!({"what": one.name, "count": one.count, "bytes_each": one.bytes_each});
        let rest = |(when, rest): &(&str, Rest)| {
            json!({
                "idle": when,
                "core_percent": rest.core_percent,
                "sleeps_per_second": rest.sleeps,
                "resident_mb": rest.resident_mb,
            })
        };
        json!({
            "objects": self.objects.iter().map(object).collect::<Vec<_>>(),
            "idle": self.rests.iter().map(rest).collect::<Vec<_>>(),
        })
    }
}

/// Takes the growth of the resident set from one step to the next.
struct Probe<'a> {
    subject: &'a Subject,
    place: &'a Place,
    last: u64,
}

impl Probe<'_> {
    fn start(&mut self) -> io::Result<()> {
        self.last = self.subject.settled_bytes(&self.place.stop)?;
        Ok(())
    }

    fn take(&mut self, name: &'static str, count: usize) -> io::Result<Object> {
        self.place.goes_on()?;
        let now = self.subject.settled_bytes(&self.place.stop)?;
        let bytes_each = now.saturating_sub(self.last) as f64 / count as f64;
        to_stderr(format_args!("{name}: {bytes_each:.0} bytes each"));
        self.last = now;
        Ok(Object { name, count, bytes_each })
    }
}

fn declare(peer: &mut Client<TcpStream>, prefix: &str, count: usize) -> io::Result<()> {
    for start in (0..count).step_by(BATCH) {
        let end = count.min(start + BATCH);
        for number in start..end {
            let name = format!("{prefix}-{number}");
            peer.send(1, queue::Declare { queue: &name, durable: true, ..Default::default() });
        }
        for _ in start..end {
            peer.expect("queue.declare-ok")?;
        }
    }
    Ok(())
}

fn bind(
    peer: &mut Client<TcpStream>,
    exchange: &str,
    prefix: &str,
    count: usize,
) -> io::Result<()> {
    let declare = exchange::Declare { exchange, passive: true, ..Default::default() };
    peer.send(1, declare);
    peer.expect("exchange.declare-ok")?;
    for start in (0..count).step_by(BATCH) {
        let end = count.min(start + BATCH);
        for number in start..end {
            let name = format!("{prefix}-{number}");
            let routing_key = format!("key.{number}");
            peer.send(
                1,
                queue::Bind {
                    queue: &name,
                    exchange,
                    routing_key: &routing_key,
                    ..Default::default()
                },
            );
        }
        for _ in start..end {
            peer.expect("queue.bind-ok")?;
        }
    }
    Ok(())
}

/// Watches the broker for some seconds in which only heartbeats are sent.
fn idle(
    subject: &Subject,
    connections: &mut [Client<TcpStream>],
    seconds: u64,
    place: &Place,
) -> io::Result<Rest> {
    for connection in connections.iter() {
        connection.stream().set_nonblocking(true)?;
    }
    let start = Instant::now();
    let before = subject.read()?;
    while start.elapsed() < Duration::from_secs(seconds) {
        place.goes_on()?;
        for connection in connections.iter_mut() {
            connection.keep_alive()?;
        }
        sleep(Duration::from_millis(500));
    }
    let after = subject.read()?;
    Ok(rest(before, after, start.elapsed().as_secs_f64()))
}

fn rest(before: Reading, after: Reading, seconds: f64) -> Rest {
    Rest {
        core_percent: (after.cpu_seconds - before.cpu_seconds) / seconds * 100.0,
        sleeps: (after.switches_voluntary - before.switches_voluntary) as f64 / seconds,
        resident_mb: after.resident_bytes as f64 / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::text;

    #[test]
    fn what_is_used_at_rest_is_by_second() {
        let before = Reading { cpu_seconds: 1.0, switches_voluntary: 5, ..Reading::default() };
        let after = Reading {
            cpu_seconds: 1.5,
            switches_voluntary: 45,
            resident_bytes: 2_000_000,
            ..before
        };
        let found = rest(before, after, 10.0);
        assert_eq!(found, Rest { core_percent: 5.0, sleeps: 4.0, resident_mb: 2.0 });
        let object = Object { name: "queue", count: 10, bytes_each: 512.4 };
        let found = Found { objects: vec![object], rests: vec![("alone", found)] };
        let text = text(&found.blocks());
        assert!(text.contains("512") && text.contains("5.00"), "{text}");
        assert_eq!(found.json()["objects"][0]["bytes_each"], 512.4);
    }
}
