//! What one large message costs when many consumers get it and read slowly: the broker's memory at
//! its peak, and what stays of it.

use crate::bench::place::Place;
use crate::subject::{Kind, Subject};
use clap::Args;
use lepus_amqp::client::{ClientOptions, encode_publish};
use lepus_amqp::method::{basic, confirm, queue};
use lepus_amqp::properties::EMPTY;
use lepus_probe::client::{Client, Seen};
use lepus_probe::procfs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Bytes that a slow consumer reads at once, and its rest after that.
const SIP_BYTES: usize = 1024 * 1024;
const REST: Duration = Duration::from_millis(5);

/// How much of it.
#[derive(Clone, Copy, Debug, Args)]
pub struct LargeMessage {
    /// Consumers, each of which gets it
    #[arg(long, default_value_t = 8)]
    consumers: usize,
    /// Its length
    #[arg(long, default_value_t = 128)]
    mib: usize,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start or ends a connection.
pub fn run(plan: LargeMessage, place: &Place) -> io::Result<()> {
    let subject = place.start(Kind::Lepus)?;
    let mut publisher = subject.peer()?;
    let mut consumers = Vec::new();
    for number in 0..plan.consumers {
        consumers.push(consumer(&subject, number)?);
    }
    publisher.send(1, confirm::Select::default());
    publisher.expect("confirm.select-ok")?;
    let resident = || subject.read().map(|reading| reading.resident_bytes);
    let before = resident()?;
    show("before", before, 0);
    let body = vec![b'x'; plan.mib << 20];
    encode_publish(publisher.output(), 1, 131_072, "amq.fanout", "", false, &EMPTY, &body);
    publisher.expect("basic.ack")?;
    show("published, nobody reads", resident()?, before);
    let start = Instant::now();
    let readers: Vec<_> =
        consumers.into_iter().map(|peer| thread::spawn(move || take_one(peer))).collect();
    let mut connections = Vec::new();
    for reader in readers {
        let taken = reader.join().map_err(|_| io::Error::other("a consumer failed"))?;
        connections.push(taken?);
    }
    println!("all read after {:.1} s", start.elapsed().as_secs_f64());
    show("at the peak", procfs::peak_bytes(subject.seen_pid()?)?, before);
    sleep(Duration::from_secs(8));
    show("a little later", resident()?, before);
    drop(connections);
    sleep(Duration::from_secs(1));
    show("without clients", resident()?, before);
    Ok(())
}

fn show(when: &str, bytes: u64, before: u64) {
    println!("{when:26} {:>8.1} MB", (bytes - before.min(bytes)) as f64 / 1e6);
}

fn consumer(subject: &Subject, number: usize) -> io::Result<Client<Sipping>> {
    let stream = TcpStream::connect(("127.0.0.1", subject.port()))?;
    stream.set_nodelay(true)?;
    let mut peer = Client::open(Sipping(stream), ClientOptions::default())?;
    peer.open_channel(1)?;
    let queue = format!("large-{number}");
    peer.send(1, queue::Declare { queue: &queue, exclusive: true, ..Default::default() });
    peer.expect("queue.declare-ok")?;
    peer.send(1, queue::Bind { queue: &queue, exchange: "amq.fanout", ..Default::default() });
    peer.expect("queue.bind-ok")?;
    let no_ack = number.is_multiple_of(2);
    peer.send(1, basic::Consume { queue: &queue, no_ack, ..Default::default() });
    peer.expect("basic.consume-ok")?;
    Ok(peer)
}

fn take_one(mut peer: Client<Sipping>) -> io::Result<Client<Sipping>> {
    match peer.see()? {
        Seen::Message => Ok(peer),
        Seen::Method(name) => Err(io::Error::other(format!("unexpected {name}"))),
    }
}

/// A stream that is read slowly once much comes.
struct Sipping(TcpStream);

impl Read for Sipping {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let limit = bytes.len().min(SIP_BYTES);
        let count = self.0.read(&mut bytes[..limit])?;
        if count > SIP_BYTES / 32 {
            sleep(REST);
        }
        Ok(count)
    }
}

impl Write for Sipping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
