//! How a move is carried out: slices of messages, each a transaction.

use super::origin::origin;
use super::{Order, Running, Target, now};
use crate::api::client::{Account, WHOLE_TRANSACTIONS, connect};
use lepus_amqp::client::{ClientEvent, encode_publish};
use lepus_amqp::method::{Method, basic, channel, queue, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_client::Client;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The only channel that is used.
const CHANNEL: u16 = 1;
/// Messages of one transaction.
const SLICE_MAX: u64 = 256;
/// Bytes of messages of one transaction, about: what is more in a log of small segments is refused, and goes one by one.
const SLICE_BYTES: usize = 1 << 20;
/// Messages that are asked for at once.
const ASKED_MAX: u64 = 32;
/// How long a read or write waits before it is looked whether the move is to stop.
const LOOK: Duration = Duration::from_millis(200);
/// How long the broker may take for an answer, unless it says that publishers are held back.
const PATIENCE: Duration = Duration::from_secs(60);
/// The end of a transaction is waited for so long once the move is to stop.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// What is slower than so many slices a second moves less at a time.
const SLICES_PER_SECOND: u64 = 10;

const BY_REQUEST: &str = "it was told to";

/// How a move ended that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All that it was for is moved, or the queue is empty.
    Complete,
    /// Why not all is moved; what is not is in its queue.
    Stopped(String),
}

/// Why a step did not succeed.
enum Trouble {
    /// The broker closed the channel.
    Refused(u16, String),
    /// It is to stop, and nothing of the step was done.
    Stop,
    /// It is to stop, and did not hear what became of the step.
    Unheard,
    /// The connection is of no use any more.
    Lost(String),
}

/// What a move needs.
pub(super) struct Course<'a> {
    order: &'a Order,
    account: &'a Account,
    broker: &'a dyn Running,
    stop: &'a AtomicBool,
}

/// A message that was taken from the queue.
struct Taken {
    tag: u64,
    exchange: String,
    routing_key: String,
    properties: Vec<u8>,
    body: Vec<u8>,
}

/// Where a message goes, and with which properties.
struct Sent {
    exchange: String,
    routing_key: String,
    properties: Vec<u8>,
}

/// A connection with an open transaction.
struct Line<'a> {
    client: Client<UnixStream>,
    stop: &'a AtomicBool,
    /// Publishers are held back.
    is_blocked: bool,
    /// Bytes of the largest message so far; 0 before the first.
    largest: usize,
    /// How many messages may be asked for at once: more, the longer none has been large.
    asked_max: u64,
    /// Messages that came and were too much: they are unacknowledged, and not kept here.
    surplus: u64,
}

/// Whether nothing came in the time that a read or write waits.
fn is_quiet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl<'a> Course<'a> {
    pub(super) fn new(
        order: &'a Order,
        account: &'a Account,
        broker: &'a dyn Running,
        stop: &'a AtomicBool,
    ) -> Course<'a> {
        Course { order, account, broker, stop }
    }

    /// Moves messages until all are moved, or it is to stop. `tell` hears how many more are, and how many there are to
    /// move once that is known.
    ///
    /// # Errors
    /// Why it does not go on.
    pub(super) fn run(&self, tell: &mut dyn FnMut(u64, Option<u64>)) -> Result<End, String> {
        let begun = Instant::now();
        let (mut moved, mut left) = (0, self.order.count);
        tell(0, left);
        let mut line = Line::open(self)?;
        // While one by one goes, and for how many.
        let mut singly: u64 = 0;
        while left != Some(0) {
            if self.is_to_stop() {
                return Ok(End::Stopped(BY_REQUEST.to_owned()));
            }
            let most = if singly > 0 { 1 } else { self.slice_max() };
            let slice = left.map_or(most, |left| left.min(most));
            let taken = line.take(&self.order.from, slice, |in_queue| {
                if left.is_none() {
                    left = Some(in_queue);
                    tell(0, left);
                }
            });
            let mut taken = match taken {
                Ok(taken) => taken,
                Err(Trouble::Refused(code, text)) => return Err(format!("{code} {text}")),
                Err(Trouble::Lost(reason)) => return Err(reason),
                Err(Trouble::Stop | Trouble::Unheard) => {
                    return Ok(End::Stopped(BY_REQUEST.to_owned()));
                }
            };
            if taken.is_empty() {
                break;
            }
            if let Some(left) = left {
                taken.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            }
            let (sent, reason) = self.address(&taken);
            if !sent.is_empty() {
                match line.pass_on(taken, &sent) {
                    Ok(()) => {
                        let count = sent.len() as u64;
                        (moved, left) = (moved + count, left.map(|left| left - count));
                        singly = singly.saturating_sub(1);
                        tell(count, None);
                    }
                    Err(Trouble::Refused(..)) if sent.len() > 1 => {
                        // Which one it was is found out one by one.
                        singly = SLICE_MAX;
                        line.open_again()?;
                        continue;
                    }
                    Err(Trouble::Refused(code, text)) => {
                        let queue = &self.order.from;
                        let text =
                            format!("a message is left at the head of {queue:?}: {code} {text}");
                        return Ok(End::Stopped(text));
                    }
                    Err(Trouble::Lost(reason)) => return Err(reason),
                    Err(Trouble::Stop) => return Ok(End::Stopped(BY_REQUEST.to_owned())),
                    Err(Trouble::Unheard) => {
                        let text = format!(
                            "{BY_REQUEST} while the broker took no messages: up to {} more may be moved",
                            sent.len()
                        );
                        return Ok(End::Stopped(text));
                    }
                }
            }
            if let Some(reason) = reason {
                return Ok(End::Stopped(reason));
            }
            self.rest(begun, moved);
        }
        // Nothing depends on it: all that was committed is done.
        let _ = line.client.close();
        Ok(End::Complete)
    }

    fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Messages that are moved at once, at most.
    fn slice_max(&self) -> u64 {
        let rate = self.order.per_second.unwrap_or(u64::MAX);
        (rate / SLICES_PER_SECOND).clamp(1, SLICE_MAX)
    }

    /// Waits until so many messages may be moved since the beginning, unless it is to stop.
    fn rest(&self, begun: Instant, moved: u64) {
        let Some(rate) = self.order.per_second else { return };
        let due = Duration::from_secs_f64(moved as f64 / rate as f64);
        while let Some(left) = due.checked_sub(begun.elapsed())
            && !left.is_zero()
            && !self.is_to_stop()
        {
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Where messages go, up to the first that goes nowhere, and why it does.
    fn address(&self, taken: &[Taken]) -> (Vec<Sent>, Option<String>) {
        let mut all = Vec::with_capacity(taken.len());
        for message in taken {
            match self.address_one(message) {
                Ok(sent) => all.push(sent),
                Err(what) => {
                    let queue = &self.order.from;
                    return (
                        all,
                        Some(format!("a message is left at the head of {queue:?}: {what}")),
                    );
                }
            }
        }
        (all, None)
    }

    fn address_one(&self, message: &Taken) -> Result<Sent, &'static str> {
        let mut own =
            Properties::decode(&message.properties).map_err(|_| "its properties cannot be read")?;
        let mut headers = own.headers.take().unwrap_or_default();
        let had_headers = !headers.is_empty();
        let mut is_changed = false;
        let (exchange, routing_key) = match &self.order.target {
            Target::Queue(queue) => {
                // They would bring it elsewhere, too.
                is_changed |= headers.remove("CC").is_some();
                (String::new(), queue.clone())
            }
            Target::Exchange { name, routing_key } => {
                (name.clone(), routing_key.clone().unwrap_or_else(|| message.routing_key.clone()))
            }
            Target::Origin(death) => {
                let (exchange, mut keys) = origin(&headers, *death)
                    .ok_or("its header x-death does not tell where it came from")?;
                let first = keys.remove(0);
                is_changed |= headers.remove("CC").is_some() || !keys.is_empty();
                if !keys.is_empty() {
                    let copies: Vec<Value> = keys.iter().map(|key| key.as_str().into()).collect();
                    headers.insert("CC", copies);
                }
                (exchange, first)
            }
        };
        if let Some(name) = &self.order.header {
            let told = Table::new()
                .with("queue", self.order.from.as_str())
                .with("exchange", message.exchange.as_str())
                .with("routing-key", message.routing_key.as_str())
                .with("user", self.account.user.as_str())
                .with("time", Value::Timestamp(now()));
            headers.insert(name.as_str(), Value::Table(told));
            is_changed = true;
        }
        let properties = if is_changed {
            own.headers = (had_headers || !headers.is_empty()).then_some(headers);
            own.to_bytes()
        } else {
            message.properties.clone()
        };
        Ok(Sent { exchange, routing_key, properties })
    }
}

impl<'a> Line<'a> {
    fn open(course: &Course<'a>) -> Result<Line<'a>, String> {
        let text = |error: io::Error| error.to_string();
        let (account, vhost) = (course.account, course.order.vhost.as_str());
        let client = connect(course.broker, account, vhost, "move", &[WHOLE_TRANSACTIONS]);
        let client = client.map_err(text)?;
        let mut line = Line {
            client,
            stop: course.stop,
            is_blocked: false,
            largest: 0,
            asked_max: 1,
            surplus: 0,
        };
        line.client.stream().set_write_timeout(Some(LOOK)).map_err(text)?;
        line.client.open_channel(CHANNEL).map_err(text)?;
        // Who has no transaction yet goes to the home of the queue that it names first.
        let none = Table::new().to_bytes();
        let passive = queue::Declare {
            queue: &course.order.from,
            passive: true,
            durable: false,
            exclusive: false,
            auto_delete: false,
            no_wait: false,
            arguments: none.as_ref(),
        };
        line.client.count(CHANNEL, passive).map_err(text)?;
        line.begin()?;
        Ok(line)
    }

    /// Has the broker take back what came and was too much, if anything did.
    fn give_back(&mut self) -> Result<(), Trouble> {
        if std::mem::take(&mut self.surplus) == 0 {
            return Ok(());
        }
        self.client.send(CHANNEL, basic::Recover { requeue: true });
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::BasicRecoverOk(_), .. } => Some(()),
            _ => None,
        })
    }

    /// Opens the channel anew that the broker has closed. What was taken is in its queue again before anything is taken.
    fn open_again(&mut self) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        self.client.stream().set_read_timeout(Some(PATIENCE)).map_err(text)?;
        self.surplus = 0;
        self.client.send(CHANNEL, channel::CloseOk {});
        self.client.open_channel(CHANNEL).map_err(text)?;
        self.begin()
    }

    /// Has all that is said on the channel be part of transactions.
    fn begin(&mut self) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        self.client.call(CHANNEL, tx::Select {}, "tx.select-ok").map_err(text)?;
        self.client.stream().set_read_timeout(Some(LOOK)).map_err(text)
    }

    /// Sends everything. While publishers are held back that may take long.
    fn send(&mut self) -> Result<(), Trouble> {
        let bytes = std::mem::take(self.client.output());
        let mut left = &bytes[..];
        while !left.is_empty() {
            let mut stream = self.client.stream();
            match stream.write(left) {
                Ok(0) => return Err(Trouble::Lost("the broker closed the socket".to_owned())),
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if !is_quiet(&error) => return Err(Trouble::Lost(error.to_string())),
                Err(_) if self.stop.load(Ordering::Relaxed) => return Err(Trouble::Stop),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends everything and waits for what `look` finds.
    fn wait<T>(
        &mut self,
        mut look: impl FnMut(&ClientEvent<'_>) -> Option<T>,
    ) -> Result<T, Trouble> {
        self.send()?;
        let lost = |error: io::Error| Trouble::Lost(error.to_string());
        let (begun, mut is_blocked) = (Instant::now(), self.is_blocked);
        loop {
            let found = self.client.wait(|event| match event {
                ClientEvent::Method { method: Method::ChannelClose(close), .. } => {
                    Some(Err((close.reply_code, close.reply_text.to_owned())))
                }
                ClientEvent::Blocked(_) => {
                    is_blocked = true;
                    None
                }
                ClientEvent::Unblocked => {
                    is_blocked = false;
                    None
                }
                event => look(event).map(Ok),
            });
            self.is_blocked = is_blocked;
            match found {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err((code, text))) => return Err(Trouble::Refused(code, text)),
                Err(error) if !is_quiet(&error) => return Err(lost(error)),
                Err(_) => {}
            }
            let is_to_stop = self.stop.load(Ordering::Relaxed);
            if is_to_stop && (is_blocked || begun.elapsed() > LAST_PATIENCE) {
                return Err(Trouble::Unheard);
            }
            if !is_blocked && begun.elapsed() > PATIENCE {
                let text = format!("the broker did not answer within {} s", PATIENCE.as_secs());
                return Err(Trouble::Lost(text));
            }
        }
    }

    /// Takes messages, at most so many, and of not much more than [`SLICE_BYTES`], or one. What came beyond that is not
    /// kept: [`Line::give_back`] is for it. `tell` hears how many there were in
    /// the queue.
    fn take(
        &mut self,
        queue: &str,
        most: u64,
        mut tell: impl FnMut(u64),
    ) -> Result<Vec<Taken>, Trouble> {
        let (mut taken, mut bytes): (Vec<Taken>, usize) = (Vec::new(), 0);
        loop {
            let room = SLICE_BYTES.saturating_sub(bytes) / self.largest.max(1);
            let left = most - taken.len() as u64;
            let asked = match self.largest {
                // Nobody knows how large they are.
                0 => left.min(1),
                _ if taken.is_empty() => left.min((room as u64).clamp(1, self.asked_max)),
                _ => left.min(room as u64).min(self.asked_max),
            };
            if asked == 0 || self.surplus > 0 {
                return Ok(taken);
            }
            for _ in 0..asked {
                self.client.send(CHANNEL, basic::Get { queue, no_ack: false });
            }
            let mut answers = 0;
            let (mut is_empty, mut largest, mut surplus) = (false, self.largest, 0);
            self.wait(|event| {
                match event {
                    ClientEvent::Method { method: Method::BasicGetEmpty(_), .. } => is_empty = true,
                    ClientEvent::Content {
                        method: Method::BasicGetOk(ok),
                        properties,
                        body,
                        ..
                    } => {
                        if taken.is_empty() {
                            tell(u64::from(ok.message_count) + 1);
                        }
                        let size = properties.len() + body.len() + ok.routing_key.len();
                        largest = largest.max(size);
                        // Behind one that is not kept none is: they go in their order.
                        if surplus > 0 || (!taken.is_empty() && bytes + size > SLICE_BYTES) {
                            surplus += 1;
                        } else {
                            bytes += size;
                            taken.push(Taken {
                                tag: ok.delivery_tag,
                                exchange: ok.exchange.to_owned(),
                                routing_key: ok.routing_key.to_owned(),
                                properties: properties.to_vec(),
                                body: body.to_vec(),
                            });
                        }
                    }
                    _ => return None,
                }
                answers += 1;
                (answers == asked).then_some(())
            })?;
            self.largest = largest.max(1);
            self.surplus = surplus;
            self.asked_max = if surplus > 0 { 1 } else { (self.asked_max * 2).min(ASKED_MAX) };
            if is_empty {
                return Ok(taken);
            }
        }
    }

    /// Publishes messages and acknowledges them where they were taken, in one transaction.
    fn pass_on(&mut self, taken: Vec<Taken>, sent: &[Sent]) -> Result<(), Trouble> {
        let frame_max = self.client.frame_max();
        for (message, sent) in taken.into_iter().zip(sent) {
            let Sent { exchange, routing_key, properties } = sent;
            let (out, body) = (self.client.output(), &message.body);
            encode_publish(out, CHANNEL, frame_max, exchange, routing_key, true, properties, body);
            self.client.send(CHANNEL, basic::Ack { delivery_tag: message.tag, multiple: false });
            if self.client.output().len() > SLICE_BYTES {
                // A long one is not kept three times.
                drop(message);
                self.send()?;
            }
        }
        self.client.send(CHANNEL, tx::Commit {});
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::TxCommitOk(_), .. } => Some(()),
            _ => None,
        })?;
        self.give_back()
    }
}
