//! How a move is carried out: slices of messages, each a transaction.

use super::arrivals::Taken;
use super::line::{LOOK, Line, SLICE_MAX, Sent, Trouble};
use super::origin::origin;
use super::{Chosen, Mirror, Order, Running, Target, now};
use crate::api::client::Account;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_broker::{Answer, Query};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is slower than so many slices a second moves less at a time.
const SLICES_PER_SECOND: u32 = 10;

const BY_REQUEST: &str = "it was told to";

/// How a move ended that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All that it was for is moved, or the queue is empty.
    Complete,
    /// Why not all is moved; what is not is in its queue.
    Stopped(String),
}

/// What a move needs.
pub(super) struct Course<'a> {
    order: &'a Order,
    account: &'a Account,
    broker: &'a dyn Running,
    mirror: &'a Mirror,
    stop: &'a AtomicBool,
    /// How often the filter would have taken too long for a message, as far as is known.
    given_up: Cell<u64>,
}

impl<'a> Course<'a> {
    pub(super) fn new(
        order: &'a Order,
        account: &'a Account,
        (broker, mirror): (&'a dyn Running, &'a Mirror),
        stop: &'a AtomicBool,
    ) -> Course<'a> {
        Course { order, account, broker, mirror, stop, given_up: Cell::new(0) }
    }

    /// Moves messages until all are moved, or it is to stop. `tell` hears how many more are, and how many there are to
    /// move once that is known.
    ///
    /// # Errors
    /// Why it does not go on.
    pub(super) fn run(&self, tell: &mut dyn FnMut(u64, Option<u64>)) -> Result<End, String> {
        let (mut due, mut left) = (Instant::now(), self.order.count);
        tell(0, left);
        let places = (self.order.vhost.as_str(), self.order.from.as_str());
        let many = self.slice_max().min(left.unwrap_or(u64::MAX));
        let (mut line, ready) = Line::open(self.broker, self.account, places, many, self.stop)?;
        if self.order.chosen.is_some() {
            // More cannot be chosen of those; how many it will be nobody knows.
            left = left.or(Some(ready));
        }
        // While one by one goes, and for how many.
        let mut singly: u64 = 0;
        while left != Some(0) {
            if self.is_to_stop() {
                return Ok(End::Stopped(BY_REQUEST.to_owned()));
            }
            let most = if singly > 0 { 1 } else { self.slice_max() };
            let slice = left.map_or(most, |left| left.min(most));
            let taken = match &self.order.chosen {
                Some(chosen) => {
                    line.choose(&self.order.from, chosen, slice, || self.is_through(chosen))
                }
                None => line.take(&self.order.from, slice, |in_queue| {
                    if left.is_none() {
                        left = Some(in_queue);
                        tell(0, left);
                    }
                }),
            };
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
                        left = left.map(|left| left - count);
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
                        return Ok(End::Stopped(self.left(&format!("{code} {text}"))));
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
            self.rest(&mut due, sent.len() as u64);
        }
        line.close();
        Ok(End::Complete)
    }

    /// Why it does not go on with a message.
    fn left(&self, why: &str) -> String {
        let queue = &self.order.from;
        match self.order.chosen {
            None => format!("a message is left at the head of {queue:?}: {why}"),
            Some(_) => format!("a message is left in {queue:?}: {why}"),
        }
    }

    /// How often the filter would have taken too long for a message, which stays; also for other consumers that have it.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up.get()
    }

    /// Whether those who consume by a filter have looked at all that is in the queue, and got what matches.
    fn is_through(&self, chosen: &Chosen) -> bool {
        self.mirror.catch_up();
        let found = {
            let directory = self.mirror.directory();
            let vhost = directory.vhost(&self.order.vhost);
            let queue = vhost.and_then(|vhost| directory.queue(vhost, &self.order.from));
            queue.map(|queue| (queue.id, queue.home))
        };
        // A queue that is gone, or on its way, tells so itself.
        let Some((id, home)) = found else { return false };
        let Ok(answer) = self.broker.ask(home, Query::Selectors(id)) else { return false };
        let Answer::Selectors(rows) = answer else {
            unreachable!("a question for selectors is answered with {answer:?}")
        };
        let (text, format) = (chosen.filter.normal(), chosen.format.name());
        let own =
            rows.iter().find(|row| row.filter.as_deref() == Some(text) && row.format == format);
        own.is_some_and(|row| {
            self.given_up.set(row.given_up);
            row.is_through
        })
    }

    fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Messages that are moved at once, at most.
    fn slice_max(&self) -> u64 {
        let rate = self.order.per_second.unwrap_or(u64::MAX);
        (rate / u64::from(SLICES_PER_SECOND)).clamp(1, SLICE_MAX)
    }

    /// So many messages were moved, which were `due` at that time: waits until the next ones are, unless it is to stop. Time in
    /// which none were moved is not made up for, but for that of a slice.
    fn rest(&self, due: &mut Instant, count: u64) {
        let Some(rate) = self.order.per_second else { return };
        let now = Instant::now();
        let earliest = now.checked_sub(Duration::from_secs(1) / SLICES_PER_SECOND).unwrap_or(now);
        *due = earliest.max(*due) + Duration::from_secs_f64(count as f64 / rate as f64);
        while let Some(left) = due.checked_duration_since(Instant::now())
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
                Err(what) => return (all, Some(self.left(what))),
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
