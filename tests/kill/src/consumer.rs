//! A connection that consumes, with a channel for each of its queues.

use crate::body;
use crate::court::Court;
use crate::link::{self, Link, Seen};
use crate::oracle::{Delivery, Item, Order};
use crate::topology;
use lepus_amqp::Method;
use lepus_amqp::client::encode_ack;
use lepus_amqp::method::{basic, queue, tx};
use std::io;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// How one queue is consumed in a round.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// The queue.
    pub queue: usize,
    /// Unacknowledged messages at most.
    pub prefetch: u16,
    /// Messages that are acknowledged together, at most as many as the prefetch.
    pub every: usize,
    /// By one ack for all of them, not by one for each.
    pub multiple: bool,
    /// In transactions.
    pub transactional: bool,
    /// Leaves a rest unacknowledged.
    pub hoarding: bool,
}

struct Lane {
    channel: u16,
    manner: Manner,
    order: Order,
    unacked: Vec<(u64, Option<Item>)>,
    /// Items whose acks were sent without a question behind them yet.
    acked: Vec<Item>,
    /// Whether any acks were.
    unasked: bool,
    /// Items before the question that is open.
    asked: Option<Vec<Item>>,
    cancelled: bool,
}

/// Consumes until the connection ends, or until the round finishes and all is acknowledged.
///
/// # Errors
/// When the connection ends.
pub fn run(manners: &[Manner], port: u16, court: &Court) -> io::Result<()> {
    let mut link = link::open(port, manners.len() as u16)?;
    let mut lanes = Vec::new();
    for (at, manner) in manners.iter().enumerate() {
        let channel = at as u16 + 1;
        let qos = basic::Qos { prefetch_count: manner.prefetch, ..Default::default() };
        link.call(channel, qos, "basic.qos-ok")?;
        if manner.transactional {
            link.call(channel, tx::Select::default(), "tx.select-ok")?;
        }
        lanes.push(Lane {
            channel,
            manner: *manner,
            order: Order::default(),
            unacked: Vec::new(),
            acked: Vec::new(),
            unasked: false,
            asked: None,
            cancelled: false,
        });
    }
    for lane in &lanes {
        let queue = topology::name(lane.manner.queue);
        link.send(
            lane.channel,
            basic::Consume { queue: &queue, consumer_tag: "c", ..Default::default() },
        );
    }
    link.flush()?;
    let mut finishing = false;
    loop {
        let came = link::receive(&mut link, PAUSE, &mut |seen| take(seen, &mut lanes, court))?;
        if court.is_finishing() && !finishing {
            finishing = true;
            for lane in &lanes {
                let cancel = basic::Cancel { consumer_tag: "c", ..Default::default() };
                link.send(lane.channel, cancel);
            }
        }
        for lane in &mut lanes {
            lane.settle(&mut link, came, court);
        }
        link.flush()?;
        if finishing && lanes.iter().all(Lane::is_over) {
            return Ok(());
        }
    }
}

fn take(seen: Seen<'_>, lanes: &mut [Lane], court: &Court) -> io::Result<()> {
    match seen {
        Seen::Message(channel, deliver, bytes) => {
            let lane = find(lanes, channel)?;
            let delivery = Delivery {
                queue: lane.manner.queue,
                message: body::read(bytes),
                redelivered: deliver.redelivered,
            };
            let bench = &mut *court.open();
            let item = bench.forger.deliver(&mut bench.oracle, delivery, &mut lane.order);
            lane.unacked.push((deliver.delivery_tag, item));
            Ok(())
        }
        Seen::Method(channel, Method::QueueDeclareOk(_) | Method::TxCommitOk(_)) => {
            let asked = find(lanes, channel)?.asked.take().unwrap_or_default();
            court.open().oracle.answer(asked.into_iter(), Instant::now());
            Ok(())
        }
        Seen::Method(channel, Method::BasicCancelOk(_)) => {
            find(lanes, channel)?.cancelled = true;
            Ok(())
        }
        Seen::Method(_, Method::BasicConsumeOk(_)) => Ok(()),
        Seen::Method(_, Method::ChannelClose(close)) => Err(io::Error::other(format!(
            "channel closed: {} {}",
            close.reply_code, close.reply_text
        ))),
        Seen::Method(_, method) => Err(io::Error::other(format!("unexpected {}", method.name()))),
        Seen::Returned => Err(io::Error::other("a message given back to a consumer")),
    }
}

fn find(lanes: &mut [Lane], channel: u16) -> io::Result<&mut Lane> {
    let lane = lanes.get_mut(usize::from(channel).wrapping_sub(1));
    lane.ok_or_else(|| io::Error::other("a channel that was never opened"))
}

impl Lane {
    fn is_over(&self) -> bool {
        self.cancelled && self.unacked.is_empty() && !self.unasked && self.asked.is_none()
    }

    /// Acknowledges what is due; `busy` while messages come.
    fn settle(&mut self, link: &mut Link, busy: bool, court: &Court) {
        let every = self.manner.every;
        let due = match busy || self.manner.hoarding {
            true => self.unacked.len() - self.unacked.len() % every,
            false => self.unacked.len(),
        };
        if due > 0 {
            let settled: Vec<_> = self.unacked.drain(..due).collect();
            let items: Vec<Item> = settled.iter().filter_map(|(_, item)| *item).collect();
            court.open().oracle.acknowledge(&items);
            self.acked.extend(items);
            self.unasked = true;
            match (self.manner.multiple, settled.last()) {
                (true, Some((tag, _))) => encode_ack(link.output(), self.channel, *tag, true),
                _ => {
                    for (tag, _) in settled {
                        encode_ack(link.output(), self.channel, tag, false);
                    }
                }
            }
        }
        if self.unasked && self.asked.is_none() {
            self.unasked = false;
            self.asked = Some(std::mem::take(&mut self.acked));
            if self.manner.transactional {
                link.send(self.channel, tx::Commit::default());
            } else {
                let queue = topology::name(self.manner.queue);
                let passive = queue::Declare { queue: &queue, passive: true, ..Default::default() };
                link.send(self.channel, passive);
            }
        }
    }
}
