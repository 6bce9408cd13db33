//! The connection of a move: messages are taken, one after the other or by a filter, and passed on.

use super::arrivals::{Arrivals, Taken};
use super::{Chosen, Running};
use crate::api::client::{Account, WHOLE_TRANSACTIONS, connect};
use lepus_amqp::client::{ClientEvent, encode_publish};
use lepus_amqp::method::{Method, basic, channel, queue, tx};
use lepus_amqp::table::Table;
use lepus_broker::router::{FILTER, FORMAT};
use lepus_client::Client;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The only channel that is used.
const CHANNEL: u16 = 1;
/// The consumer that chooses messages by a filter.
const TAG: &str = "move";
/// Messages of one transaction.
pub(super) const SLICE_MAX: u64 = 256;
/// Bytes of messages of one transaction, about: what is more in a log of small segments is refused, and goes one by one.
pub(super) const SLICE_BYTES: usize = 1 << 20;
/// Messages that are asked for at once.
const ASKED_MAX: u64 = 32;
/// Messages that a filter chooses before the first of them are passed on; fewer where they are large.
const PREFETCH_MAX: u16 = 128;
/// How long a read or write waits before it is looked whether the move is to stop.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// How long messages that a filter chose wait for more of them.
const GATHER: Duration = Duration::from_millis(100);
/// How often it is asked at most whether all messages were looked at.
const ASK_PAUSE: Duration = Duration::from_millis(20);
/// How long the broker may take for an answer, unless it says that publishers are held back.
const PATIENCE: Duration = Duration::from_secs(60);
/// The end of a transaction is waited for so long once the move is to stop.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Why a step did not succeed.
pub(super) enum Trouble {
    /// The broker closed the channel.
    Refused(u16, String),
    /// It is to stop, and nothing of the step was done.
    Stop,
    /// It is to stop, and did not hear what became of the step.
    Unheard,
    /// The connection is of no use any more.
    Lost(String),
}

/// Where a message goes, and with which properties.
pub(super) struct Sent {
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) properties: Vec<u8>,
}

/// How far the consumer is that chooses messages by a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consumer {
    /// It is to begin.
    Absent,
    Present,
    /// It came to the end of the queue, and has ended.
    Through,
    /// The broker has ended it.
    Cancelled,
}

/// A connection with an open transaction.
pub(super) struct Line<'a> {
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
    consumer: Consumer,
    /// What it was given.
    arrivals: Arrivals,
    /// How many messages it has at most.
    prefetch: u16,
    /// When it was asked last whether it is through.
    asked: Instant,
    /// When something came last.
    heard: Instant,
}

/// Whether nothing came in the time that a read or write waits.
fn is_quiet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl<'a> Line<'a> {
    /// Connects as a user, to take messages out of a queue, at most so `many` at a time; gives also how many are ready in it.
    ///
    /// # Errors
    /// In words, what the broker refuses.
    pub(super) fn open(
        broker: &dyn Running,
        account: &Account,
        (vhost, queue): (&str, &str),
        many: u64,
        stop: &'a AtomicBool,
    ) -> Result<(Line<'a>, u64), String> {
        let text = |error: io::Error| error.to_string();
        let client = connect(broker, account, vhost, "move", &[WHOLE_TRANSACTIONS]);
        let client = client.map_err(text)?;
        let mut line = Line {
            client,
            stop,
            is_blocked: false,
            largest: 0,
            asked_max: 1,
            surplus: 0,
            consumer: Consumer::Absent,
            arrivals: Arrivals::default(),
            prefetch: u16::try_from(many).unwrap_or(u16::MAX).min(PREFETCH_MAX),
            asked: Instant::now(),
            heard: Instant::now(),
        };
        line.client.stream().set_write_timeout(Some(LOOK)).map_err(text)?;
        line.client.open_channel(CHANNEL).map_err(text)?;
        // Who has no transaction yet goes to the home of the queue that it names first.
        let none = Table::new().to_bytes();
        let passive = queue::Declare {
            queue,
            passive: true,
            durable: false,
            exclusive: false,
            auto_delete: false,
            no_wait: false,
            arguments: none.as_ref(),
        };
        let ready = line.client.count(CHANNEL, passive).map_err(text)?;
        line.begin()?;
        Ok((line, ready))
    }

    /// Has the broker take back what came and was too much, if anything did.
    fn give_back(&mut self) -> Result<(), Trouble> {
        match std::mem::take(&mut self.surplus) {
            0 => Ok(()),
            _ => self.put_back(),
        }
    }

    /// Has the broker take back all that is unacknowledged.
    fn put_back(&mut self) -> Result<(), Trouble> {
        self.client.send(CHANNEL, basic::Recover { requeue: true });
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::BasicRecoverOk(_), .. } => Some(()),
            _ => None,
        })
    }

    /// Opens the channel anew that the broker has closed. What was taken is in its queue again before anything is taken.
    ///
    /// # Errors
    /// In words, what the broker refuses.
    pub(super) fn open_again(&mut self) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        self.client.stream().set_read_timeout(Some(PATIENCE)).map_err(text)?;
        self.surplus = 0;
        self.arrivals = Arrivals::default();
        self.consumer = Consumer::Absent;
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

    /// Waits for what `look` finds, for a moment; what a consumer is given meanwhile is noted. `None` where it was quiet.
    fn listen<T>(
        &mut self,
        mut look: impl FnMut(&ClientEvent<'_>) -> Option<T>,
    ) -> Result<Option<T>, Trouble> {
        let (arrivals, consumer) = (&mut self.arrivals, &mut self.consumer);
        let (is_blocked, mut has_come) = (&mut self.is_blocked, false);
        let found = self.client.wait(|event| {
            match event {
                ClientEvent::Method { method: Method::ChannelClose(close), .. } => {
                    return Some(Err((close.reply_code, close.reply_text.to_owned())));
                }
                ClientEvent::Method { method: Method::BasicCancel(_), .. } => {
                    *consumer = Consumer::Cancelled;
                }
                ClientEvent::Content {
                    method: Method::BasicDeliver(deliver),
                    properties,
                    body,
                    ..
                } => {
                    has_come = true;
                    arrivals.note(deliver, properties, body);
                }
                ClientEvent::Blocked(_) => *is_blocked = true,
                ClientEvent::Unblocked => *is_blocked = false,
                _ => {}
            }
            look(event).map(Ok)
        });
        if has_come {
            self.heard = Instant::now();
        }
        match found {
            Ok(Ok(found)) => Ok(Some(found)),
            Ok(Err((code, text))) => Err(Trouble::Refused(code, text)),
            Err(error) if is_quiet(&error) => Ok(None),
            Err(error) => Err(Trouble::Lost(error.to_string())),
        }
    }

    /// Sends everything and waits for what `look` finds.
    fn wait<T>(
        &mut self,
        mut look: impl FnMut(&ClientEvent<'_>) -> Option<T>,
    ) -> Result<T, Trouble> {
        self.send()?;
        let begun = Instant::now();
        loop {
            if let Some(found) = self.listen(&mut look)? {
                return Ok(found);
            }
            let is_to_stop = self.stop.load(Ordering::Relaxed);
            if is_to_stop && (self.is_blocked || begun.elapsed() > LAST_PATIENCE) {
                return Err(Trouble::Unheard);
            }
            // Answers come behind what is on its way.
            if !self.is_blocked && begun.max(self.heard).elapsed() > PATIENCE {
                let text = format!("the broker did not answer within {} s", PATIENCE.as_secs());
                return Err(Trouble::Lost(text));
            }
        }
    }

    /// Takes messages that a filter chooses, in the order of their queue: some, at most so many; none once all were looked at.
    /// `is_through` tells whether the consumers with this filter have what matches it.
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) fn choose(
        &mut self,
        queue: &str,
        chosen: &Chosen,
        most: u64,
        is_through: impl Fn() -> bool,
    ) -> Result<Vec<Taken>, Trouble> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        loop {
            if self.arrivals.is_empty() && self.arrivals.has_surplus() {
                self.end_consumer()?;
                self.put_back()?;
                self.prefetch = self.arrivals.fewer(self.prefetch);
                self.arrivals = Arrivals::default();
                self.consumer = Consumer::Absent;
            }
            let is_enough = self.arrivals.len() >= most.min(self.prefetch.into())
                || self.arrivals.has_surplus()
                || self.arrivals.age() > GATHER;
            if self.consumer == Consumer::Present && self.asked.elapsed() > ASK_PAUSE {
                self.asked = Instant::now();
                // Also while messages come: whoever publishes what matches does not keep it from its end.
                if is_through() {
                    self.end_consumer()?;
                    self.consumer = Consumer::Through;
                }
            }
            match self.consumer {
                Consumer::Absent => self.begin_consumer(queue, chosen)?,
                Consumer::Present if !is_enough => {}
                Consumer::Cancelled if self.arrivals.is_empty() => {
                    let text = format!("the queue {queue:?} is gone, or went to another place");
                    return Err(Trouble::Lost(text));
                }
                _ => return Ok(self.arrivals.take(most)),
            }
            let arrived = |event: &ClientEvent<'_>| {
                matches!(
                    event,
                    ClientEvent::Content { .. }
                        | ClientEvent::Method { method: Method::BasicCancel(_), .. }
                )
                .then_some(())
            };
            self.listen(arrived)?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(Trouble::Stop);
            }
        }
    }

    /// Has a consumer choose messages.
    fn begin_consumer(&mut self, queue: &str, chosen: &Chosen) -> Result<(), Trouble> {
        let prefetch_count = self.prefetch;
        self.client.send(CHANNEL, basic::Qos { prefetch_size: 0, prefetch_count, global: false });
        let arguments = Table::new()
            .with(FILTER, chosen.text.as_str())
            .with(FORMAT, chosen.format.name())
            .to_bytes();
        let arguments = arguments.as_ref();
        self.client.send(
            CHANNEL,
            basic::Consume { queue, consumer_tag: TAG, arguments, ..basic::Consume::default() },
        );
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::BasicConsumeOk(_), .. } => Some(()),
            _ => None,
        })?;
        self.consumer = Consumer::Present;
        let quiet = self.client.stream().set_read_timeout(Some(ASK_PAUSE));
        quiet.map_err(|error| Trouble::Lost(error.to_string()))
    }

    /// Ends the consumer, if there is one. What was on its way to it has come then.
    fn end_consumer(&mut self) -> Result<(), Trouble> {
        if self.consumer != Consumer::Present {
            return Ok(());
        }
        self.client.send(CHANNEL, basic::Cancel { consumer_tag: TAG, no_wait: false });
        self.wait(|event| match event {
            ClientEvent::Method { method: Method::BasicCancelOk(_), .. } => Some(()),
            _ => None,
        })
    }

    /// Takes messages, at most so many, and of not much more than [`SLICE_BYTES`], or one. What came beyond that is not
    /// kept: [`Line::give_back`] is for it. `tell` hears how many there were in
    /// the queue.
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) fn take(
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
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) fn pass_on(&mut self, taken: Vec<Taken>, sent: &[Sent]) -> Result<(), Trouble> {
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

    /// Closes the connection in order.
    pub(super) fn close(self) {
        // Nothing depends on it: all that was committed is done.
        let _ = self.client.close();
    }
}
