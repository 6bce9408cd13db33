//! A restart with very many queues.

use super::Plan;
use super::figures::{Figures, Line};
use super::visit::Visit;
use crate::cast::OWN_CLIENT;
use crate::subject::Kind;
use crate::terminal::say_line;
use lepus_amqp::Method;
use lepus_amqp::client::{ClientEvent, ClientOptions, encode_publish};
use lepus_amqp::method::{basic, confirm, queue};
use lepus_base::Rng;
use lepus_probe::Client;
use lepus_probe::procfs;
use std::io;
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

const EACH: u64 = 100;
const BODY_BYTES: usize = 16;
/// Channels that declare.
const CHANNELS: u16 = 100;
/// Answers awaited together.
const BATCH: usize = 500;
const WINDOW: u64 = 10_000;
const OUTPUT_BYTES: usize = 64 * 1024;
/// Queues that are asked for a message.
const PROBES: usize = 20;
const FRAME_MAX: u32 = 131_072;
/// Persistent, as encoded: the flag of the delivery mode, then 2.
const PERSISTENT: [u8; 3] = [0x10, 0, 2];

fn name(number: usize) -> String {
    format!("many-{number}")
}

/// Declares durable queues and puts as many messages into each.
///
/// # Errors
/// When the broker refuses or ends the connection.
pub fn seed(port: u16, queues: usize, each: u64) -> io::Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    let mut peer = Client::open(stream, ClientOptions::default())?;
    // On one channel each declaration waits for the one before to be on the disk.
    for channel in 1..=CHANNELS {
        peer.open_channel(channel)?;
    }
    let start = Instant::now();
    for first in (0..queues).step_by(BATCH) {
        let end = queues.min(first + BATCH);
        for number in first..end {
            let name = name(number);
            let declare = queue::Declare { queue: &name, durable: true, ..Default::default() };
            peer.send(1 + (number % usize::from(CHANNELS)) as u16, declare);
        }
        for _ in first..end {
            peer.expect("queue.declare-ok")?;
        }
    }
    say_line(format_args!("declare {:.0}", queues as f64 / start.elapsed().as_secs_f64()));
    peer.send(1, confirm::Select::default());
    peer.expect("confirm.select-ok")?;
    let (mut sent, mut confirmed) = (0, 0);
    let body = [0x33; BODY_BYTES];
    let names: Vec<String> = (0..queues).map(name).collect();
    let start = Instant::now();
    for _ in 0..each {
        for name in &names {
            let output = peer.output();
            encode_publish(output, 1, FRAME_MAX, "", name, false, &PERSISTENT, &body);
            sent += 1;
            if output.len() > OUTPUT_BYTES {
                peer.flush()?;
            }
            while sent - confirmed >= WINDOW {
                confirmed = await_confirm(&mut peer)?.max(confirmed);
            }
        }
    }
    while confirmed < sent {
        confirmed = await_confirm(&mut peer)?.max(confirmed);
    }
    say_line(format_args!("publish {:.0}", sent as f64 / start.elapsed().as_secs_f64()));
    Ok(())
}

/// Confirms of one connection and channel come in order where all queues are alike; the highest tag
/// is as good as a count.
fn await_confirm(peer: &mut Client<TcpStream>) -> io::Result<u64> {
    peer.flush()?;
    let tag = peer.wait(|event| match event {
        ClientEvent::Method { method: Method::BasicAck(ack), .. } => Some(Ok(ack.delivery_tag)),
        ClientEvent::Method { method, .. } => Some(Err(method.name())),
        _ => None,
    })?;
    tag.map_err(|name| io::Error::other(format!("expected a confirm, got {name}")))
}

/// How many queues there are in a run, and messages in all of them.
pub fn counts(plan: &Plan) -> (u64, u64) {
    let queues = plan.scaled(100_000);
    (queues, queues * EACH)
}

/// Measures the row.
///
/// # Errors
/// When the broker fails.
pub fn measure(plan: &Plan, kind: Option<Kind>) -> io::Result<Vec<Line>> {
    let kind = kind.ok_or_else(|| io::Error::other("this row needs a broker"))?;
    let (queues, messages) = counts(plan);
    let visit = Visit::start(plan, kind, &[], true)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["seed", &visit.port().to_string(), &queues.to_string(), &EACH.to_string()]);
    plan.place.cast.load("seed", || OWN_CLIENT.to_owned());
    let loaded = visit.load(plan, command)?;
    let figures = visit.end(&loaded, messages, messages * BODY_BYTES as u64)?;
    let mut lines = vec![Line::new(kind.name(), format!("{queues} queues"), figures)];
    for phase in ["stopped", "killed"] {
        if phase == "killed" {
            Visit::start(plan, kind, &[], false)?.kill()?;
        }
        let visit = Visit::start(plan, kind, &[], false)?;
        let (first, slowest) = first_deliveries(&visit, queues as usize)?;
        let resident = procfs::read(visit.pid()?)?.resident_bytes;
        let end_mb = resident as f64 / 1e6;
        let peak_mb = procfs::peak_bytes(visit.pid()?)? as f64 / 1e6;
        let figures = Figures { messages, end_mb, peak_mb, ..Figures::default() };
        let line = Line::new(kind.name(), phase, figures).with("start ms", visit.start_millis);
        lines.push(line.with("first get ms", first).with("slowest get ms", slowest));
        drop(visit);
    }
    Ok(lines)
}

/// Milliseconds until some queues gave a message: the first one, and the slowest.
fn first_deliveries(visit: &Visit, queues: usize) -> io::Result<(f64, f64)> {
    let mut rng = Rng::new(3);
    let mut peer = visit.peer()?;
    let (mut first, mut slowest) = (0.0, 0.0_f64);
    for probe in 0..PROBES {
        let name = name(rng.below(queues as u64) as usize);
        let start = Instant::now();
        peer.send(1, basic::Get { queue: &name, no_ack: false });
        peer.flush()?;
        let found = peer.wait(|event| match event {
            ClientEvent::Content { .. } => Some(true),
            ClientEvent::Method { .. } => Some(false),
            _ => None,
        })?;
        if !found {
            return Err(io::Error::other(format!("{name} has lost its messages")));
        }
        let millis = start.elapsed().as_secs_f64() * 1e3;
        if probe == 0 {
            first = millis;
        }
        slowest = slowest.max(millis);
    }
    Ok((first, slowest))
}
