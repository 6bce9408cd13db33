//! What an idle broker costs: CPU while nothing happens, and memory per connection, channel, queue
//! and binding.
//!
//! Memory is the growth of the resident set over many objects of one kind, divided by their number;
//! it holds whatever the allocator and the tables add.

use crate::bench::place::Place;
use crate::subject::{Kind, Subject};
use clap::Args;
use lepus_amqp::method::{exchange, queue};
use lepus_probe::Client;
use lepus_probe::procfs::Reading;
use std::io;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Answers awaited together.
const BATCH: usize = 100;

/// How many of each there are.
#[derive(Clone, Copy, Debug, Args)]
pub struct Crowd {
    /// Connections
    #[arg(long, default_value_t = 1000)]
    connections: usize,
    /// Channels of a connection
    #[arg(long, default_value_t = 10)]
    channels: u16,
    /// Queues, and bindings
    #[arg(long, default_value_t = 10_000)]
    queues: usize,
    /// Seconds without a word
    #[arg(long, default_value_t = 30)]
    idle: u64,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start or ends a connection.
pub fn run(plan: Crowd, place: &Place) -> io::Result<()> {
    let subject = place.start(Kind::Lepus)?;
    let mut probe = Probe { subject: &subject, last: 0 };
    // Tables, threads and code are there after the first of each kind.
    let mut first = subject.connect()?;
    first.open_channel(1)?;
    declare(&mut first, "first", 1)?;
    bind(&mut first, "amq.direct", "first", 1)?;
    bind(&mut first, "amq.topic", "first", 1)?;
    let alone = idle(&subject, &mut [], 5)?;
    probe.start()?;

    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        connections.push(subject.connect()?);
    }
    probe.take("connection", plan.connections)?;
    for connection in &mut connections {
        for number in 1..=plan.channels {
            connection.open_channel(number)?;
        }
    }
    probe.take("channel", plan.connections * usize::from(plan.channels))?;
    declare(&mut first, "idle", plan.queues)?;
    probe.take("queue", plan.queues)?;
    bind(&mut first, "amq.direct", "idle", plan.queues)?;
    probe.take("binding to a direct exchange", plan.queues)?;
    bind(&mut first, "amq.topic", "idle", plan.queues)?;
    probe.take("binding to a topic exchange", plan.queues)?;
    connections.push(first);
    let crowded = idle(&subject, &mut connections, plan.idle)?;
    println!("idle without clients: {alone}");
    println!("idle with all that:   {crowded}");
    Ok(())
}

/// Takes the growth of the resident set from one step to the next.
struct Probe<'a> {
    subject: &'a Subject,
    last: u64,
}

impl Probe<'_> {
    fn start(&mut self) -> io::Result<()> {
        self.last = self.subject.settled_bytes()?;
        Ok(())
    }

    fn take(&mut self, name: &str, count: usize) -> io::Result<()> {
        let now = self.subject.settled_bytes()?;
        let each = now.saturating_sub(self.last) as f64 / count.max(1) as f64;
        println!("{name:30} {count:>7} {each:>8.0} bytes each");
        self.last = now;
        Ok(())
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
) -> io::Result<String> {
    for connection in connections.iter() {
        connection.stream().set_nonblocking(true)?;
    }
    let start = Instant::now();
    let before = subject.read()?;
    while start.elapsed() < Duration::from_secs(seconds) {
        for connection in connections.iter_mut() {
            connection.keep_alive()?;
        }
        sleep(Duration::from_millis(500));
    }
    let after = subject.read()?;
    Ok(describe(before, after, start.elapsed().as_secs_f64()))
}

fn describe(before: Reading, after: Reading, seconds: f64) -> String {
    let share = (after.cpu_seconds - before.cpu_seconds) / seconds * 100.0;
    let switches = (after.switches_voluntary - before.switches_voluntary) as f64 / seconds;
    let resident = after.resident_bytes as f64 / 1e6;
    format!("{share:.2} % of a core, {switches:.0} sleeps a second, {resident:.1} MB resident")
}
