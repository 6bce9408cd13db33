//! What one large message costs when many consumers get it and read slowly: the broker's memory at
//! its peak, and what stays of it.

use crate::bench::place::Place;
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::words::from_one;
use crate::cast::OWN_CLIENT;
use crate::report::{Block, Table};
use crate::subject::{Kind, Subject};
use crate::workload::rest;
use clap::Args;
use lepus_amqp::client::{ClientOptions, encode_publish};
use lepus_amqp::method::{basic, confirm, queue};
use lepus_amqp::properties::EMPTY;
use lepus_perf::to_stderr;
use lepus_probe::Client;
use lepus_probe::procfs;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Bytes that a slow consumer reads at once, and its rest after that.
const SIP_BYTES: usize = 1024 * 1024;
const REST: Duration = Duration::from_millis(5);

/// How long after the last one has read.
const LATER: Duration = Duration::from_secs(8);

/// The longest message.
const MIB_MAX: u64 = 1024;
/// Each is a thread with the whole message.
const CONSUMERS_MAX: u64 = 1000;

/// How much of it.
#[derive(Clone, Copy, Debug, Args)]
pub struct LargeMessage {
    /// Consumers, each of which gets it
    #[arg(long, default_value_t = 8, value_parser = from_one::<usize>(CONSUMERS_MAX))]
    consumers: usize,
    /// Its length
    #[arg(long, default_value_t = 128, value_parser = from_one::<usize>(MIB_MAX))]
    mib: usize,
}

const TITLE: &str = "What one large message costs when many read it slowly";
const ASKS: &str = "How much memory does the broker take at the peak, and what stays of it?";
const LEGEND: [&str; 1] = [
    "MB: the broker's resident memory above what it had before the message; at the peak: the most that the system saw.",
];

/// Measures and reports.
///
/// # Errors
/// When the broker does not start or ends a connection, or the report cannot be written.
pub fn run(plan: LargeMessage, place: &Place) -> io::Result<()> {
    let size = ("message", format!("{} MiB to {} consumers", plan.mib, plan.consumers));
    let mut sheet = Sheet::new(Cover { name: "large", title: TITLE, asks: ASKS, size }, place)?;
    place.cast.load("large", || OWN_CLIENT.to_owned());
    let mut found = Found::default();
    if let Err(error) = measure(plan, place, &mut found) {
        sheet.fault(error.to_string());
    }
    sheet.add(found.blocks(), Some(found.json()))?;
    if let Some(seconds) = found.seconds {
        sheet.tell(format!("All had read it after {seconds:.1} s."));
    }
    let was_measured = found.seconds.is_some();
    sheet.finish(&LEGEND, was_measured)
}

fn measure(plan: LargeMessage, place: &Place, found: &mut Found) -> io::Result<()> {
    let subject = place.start(Kind::Lepus)?;
    let mut publisher = subject.peer()?;
    let mut consumers = Vec::new();
    for number in 0..plan.consumers {
        consumers.push(consumer(&subject, number)?);
    }
    publisher.send(1, confirm::Select::default());
    publisher.expect("confirm.select-ok")?;
    let resident = || subject.read().map(|reading| reading.resident_bytes);
    found.before = resident()?;
    let body = vec![b'x'; plan.mib << 20];
    encode_publish(publisher.output(), 1, 131_072, "amq.fanout", "", false, &EMPTY, &body);
    publisher.expect("basic.ack")?;
    found.saw("published, nobody reads", resident()?);
    place.goes_on()?;
    let start = Instant::now();
    let readers: Vec<_> =
        consumers.into_iter().map(|peer| thread::spawn(move || take_one(peer))).collect();
    let mut connections = Vec::new();
    for reader in readers {
        let taken = reader.join().map_err(|_| io::Error::other("a consumer failed"))?;
        connections.push(taken?);
    }
    found.seconds = Some(start.elapsed().as_secs_f64());
    found.saw("at the peak", procfs::peak_bytes(subject.seen_pid()?)?);
    rest(LATER, &place.stop);
    place.goes_on()?;
    found.saw("a little later", resident()?);
    drop(connections);
    sleep(Duration::from_secs(1));
    found.saw("without clients", resident()?);
    Ok(())
}

/// What was found until now.
#[derive(Debug, Default)]
struct Found {
    /// Resident bytes before the message.
    before: u64,
    /// Moments with the megabytes above that.
    moments: Vec<(&'static str, f64)>,
    /// Seconds until all had read.
    seconds: Option<f64>,
}

impl Found {
    fn saw(&mut self, when: &'static str, bytes: u64) {
        let mb = bytes.saturating_sub(self.before) as f64 / 1e6;
        to_stderr(format_args!("{when}: {mb:.1} MB"));
        self.moments.push((when, mb));
    }

    fn blocks(&self) -> Vec<Block> {
        let mut table = Table::new(["when", "MB"]);
        for (when, mb) in &self.moments {
            table.rows.push(vec![(*when).to_owned(), format!("{mb:.1}")]);
        }
        vec![Block::Heading("Memory of the broker".to_owned()), Block::Table(table)]
    }

    fn json(&self) -> Value {
        let moment = |(when, mb): &(&str, f64)| json!({"when": when, "mb_above_before": mb});
        json!({
            "resident_before_mb": self.before as f64 / 1e6,
            "moments": self.moments.iter().map(moment).collect::<Vec<_>>(),
            "seconds_until_all_had_read": self.seconds,
        })
    }
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
    peer.expect_message()?;
    Ok(peer)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::text;

    #[test]
    fn memory_is_told_above_what_there_was_before() {
        let mut found = Found { before: 5_000_000, ..Found::default() };
        found.saw("at the peak", 9_500_000);
        // What shrank is not negative.
        found.saw("later", 4_000_000);
        assert_eq!(found.moments, [("at the peak", 4.5), ("later", 0.0)]);
        assert!(text(&found.blocks()).contains("4.5"));
        assert_eq!(found.json()["moments"][0]["mb_above_before"], 4.5);
    }
}
