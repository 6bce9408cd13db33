//! A connection that publishes.

use crate::body::body;
use crate::court::Court;
use crate::link::{self, Link, Seen};
use crate::topology::{PUBLISHERS, Trade};
use lepus_amqp::client::encode_publish;
use lepus_amqp::method::{confirm, tx};
use lepus_amqp::{Method, Properties};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Messages that are sent at once.
const BURST: u64 = 32;
/// How many windows a large commit has.
const LARGE: u64 = 5;
const PAUSE: Duration = Duration::from_millis(2);

/// How a publisher behaves in a round.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Messages without their confirm, or of one commit, at most.
    pub window: u64,
    /// Messages per second at most.
    pub rate: u64,
}

/// Publishes until the connection ends.
///
/// # Errors
/// Always: how the connection ended.
pub fn run(publisher: usize, manner: Manner, port: u16, court: &Court) -> io::Result<()> {
    let mut link = link::open(port, 1)?;
    let trade = PUBLISHERS[publisher];
    if trade.is_transactional() {
        link.call(1, tx::Select::default(), "tx.select-ok")?;
        return commit(publisher, manner, &mut link, court);
    }
    link.call(1, confirm::Select::default(), "confirm.select-ok")?;
    let first = court.open().oracle.next(publisher);
    let mut waiting = BTreeSet::new();
    let (mut sent, start) = (0, Instant::now());
    loop {
        let due = start.elapsed().as_millis() as u64 * manner.rate / 1_000 + 1;
        let room = manner.window.saturating_sub(waiting.len() as u64);
        let count = due.saturating_sub(sent).min(room).min(BURST);
        court.open().oracle.publish(publisher, count);
        for _ in 0..count {
            encode(publisher, first + sent, &mut link);
            sent += 1;
            waiting.insert(sent);
        }
        link.flush()?;
        link::receive(&mut link, PAUSE, &mut |seen| {
            let (tag, multiple, ack) = match seen {
                Seen::Method(_, Method::BasicAck(ack)) => (ack.delivery_tag, ack.multiple, true),
                Seen::Method(_, Method::BasicNack(nack)) => {
                    (nack.delivery_tag, nack.multiple, false)
                }
                Seen::Returned => {
                    court.open().oracle.give_back(publisher);
                    return Ok(());
                }
                other => return Err(unexpected(&other)),
            };
            let bench = &mut *court.open();
            let lowest = if multiple { 0 } else { tag };
            while let Some(settled) = waiting.range(lowest..=tag).next().copied() {
                waiting.remove(&settled);
                let number = first + settled - 1;
                bench.forger.answer(&mut bench.oracle, publisher, number, ack);
            }
            Ok(())
        })?;
    }
}

/// Publishes in commits.
fn commit(publisher: usize, manner: Manner, link: &mut Link, court: &Court) -> io::Result<()> {
    let is_large = PUBLISHERS[publisher] == Trade::Batches;
    let size = if is_large { manner.window * LARGE } else { (manner.window / 4).max(1) };
    let pause = Duration::from_millis(1_000 * size / manner.rate.max(1));
    loop {
        let start = Instant::now();
        let first = court.open().oracle.next(publisher);
        court.open().oracle.publish(publisher, size);
        for number in first..first + size {
            encode(publisher, number, link);
        }
        let mut answered = false;
        link.send(1, tx::Commit::default());
        let sent = link.flush();
        while sent.is_ok() && !answered {
            let received = link::receive(link, PAUSE, &mut |seen| match seen {
                Seen::Method(_, Method::TxCommitOk(_)) => {
                    answered = true;
                    Ok(())
                }
                Seen::Returned => {
                    court.open().oracle.give_back(publisher);
                    Ok(())
                }
                other => Err(unexpected(&other)),
            });
            if let Err(error) = received {
                doubt(publisher, first..first + size, court);
                return Err(error);
            }
        }
        if let Err(error) = sent {
            doubt(publisher, first..first + size, court);
            return Err(error);
        }
        court.open().oracle.confirm(publisher, first..first + size);
        std::thread::sleep(pause.saturating_sub(start.elapsed()));
    }
}

/// A commit has no answer, and the broker is gone. One to several queues may be whole in one log and
/// missing in another.
fn doubt(publisher: usize, numbers: Range<u64>, court: &Court) {
    if PUBLISHERS[publisher].copies() == 1 {
        court.open().oracle.doubt(publisher, numbers);
    }
}

fn encode(publisher: usize, number: u64, link: &mut Link) {
    let trade = PUBLISHERS[publisher];
    let delivery_mode = if trade.is_persistent() { 2 } else { 1 };
    let headers = trade.headers(publisher, number);
    let properties =
        Properties { delivery_mode: Some(delivery_mode), headers, ..Properties::default() };
    let (exchange, key) = trade.address(publisher, number);
    let frame_max = link.frame_max();
    encode_publish(
        link.output(),
        1,
        frame_max,
        exchange,
        &key,
        true,
        &properties.to_bytes(),
        &body(publisher, number),
    );
}

fn unexpected(seen: &Seen<'_>) -> io::Error {
    match seen {
        Seen::Method(_, Method::ChannelClose(close)) => {
            io::Error::other(format!("channel closed: {} {}", close.reply_code, close.reply_text))
        }
        Seen::Method(_, method) => io::Error::other(format!("unexpected {}", method.name())),
        Seen::Message(..) | Seen::Returned => io::Error::other("unexpected message"),
    }
}
