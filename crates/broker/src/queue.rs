//! One queue at its home shard: what waits, what was delivered, and who consumes.
//!
//! A queue knows no connections and does no I/O: what it causes goes into a [`Sink`]. Its consumers
//! may live on other shards. A message keeps its sequence number for as long as it is in the queue,
//! so one that comes back returns to its place.
//!
//! Whatever can be long takes a budget and is continued by [`Queue::work`].

mod consumers;
mod dispatch;
mod entry;
mod limits;
mod ready;
mod rules;
mod settings;
#[cfg(test)]
mod tests;
mod trash;
mod unacked;

use alloc::boxed::Box;
use alloc::vec::Vec;
use lepus_base::{Instant, Now, Pool};

pub use consumers::{Consumer, ConsumerHandle, ConsumerKey, SubscribeError};
pub use entry::{Content, Delivery, Enqueued, Entry, Get, Got, NO_SLOT, Outcome, Reason};
pub use settings::{Overflow, QueueKind, QueueSettings};

use crate::message::Incoming;
use consumers::Consumers;
use ready::Ready;
use rules::Rules;
use trash::Trash;
use unacked::UnackedList;

/// Entries that a single operation drops at most before it leaves the rest to [`Queue::work`].
const DROPS_AT_ONCE_MAX: usize = 1024;

/// What a queue causes, implemented over the rest of the shard's state.
pub trait Sink {
    /// The shard's bodies.
    fn pool(&mut self) -> &mut Pool;

    /// Whether the consumer's connection takes a message with a payload of `bytes` now (window,
    /// prefetch of the channel). After `false` the consumer is parked until [`Queue::resume`].
    fn may_deliver(&mut self, consumer: &Consumer, bytes: usize) -> bool;

    /// Sends a message to a consumer. A stored body stays the queue's.
    fn deliver(&mut self, consumer: &Consumer, delivery: Delivery, content: Content<'_>);

    /// Whether an expired message can be dead-lettered now. After `false` expiry waits until the
    /// next call of [`Queue::work`].
    fn may_dead_letter(&mut self) -> bool {
        true
    }

    /// Takes a message that leaves for the dead-letter exchange, with its reference.
    fn dead_letter(&mut self, entry: Entry, reason: Reason);

    /// Takes a message that is settled or dropped, to release its reference.
    fn discard(&mut self, entry: Entry);
}

/// Totals since the queue was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages taken in.
    pub published: u64,
    /// Messages handed out, also by `basic.get`.
    pub delivered: u64,
    /// Of these, with the redelivered bit.
    pub redelivered: u64,
    /// Deliveries acknowledged by their consumer.
    pub acknowledged: u64,
}

/// What a deleted queue leaves.
#[derive(Debug)]
#[must_use]
pub struct Deleted {
    /// Messages that were ready, for `delete-ok`.
    pub ready: u64,
    /// Consumers to be told.
    pub consumers: Vec<Consumer>,
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    ready: Ready,
    unacked: UnackedList,
    /// `None` without consumers.
    consumers: Option<Box<Consumers>>,
    /// `None` for a queue without arguments that matter here.
    rules: Option<Box<Rules>>,
    trash: Option<Box<Trash>>,
    /// Sequence number of the next message.
    next_seq: u64,
    delivered: u64,
    redelivered: u64,
    acknowledged: u64,
    next_generation: u32,
    /// While above 0 nothing is delivered.
    holds: u32,
    auto_delete: bool,
    had_consumer: bool,
    /// More messages are to be dropped to satisfy the length limits.
    is_over_limit: bool,
}

const _: () = assert!(size_of::<Queue>() <= 200);

impl Queue {
    /// An empty queue with these settings.
    #[must_use]
    pub fn new(now: Now, settings: &QueueSettings, auto_delete: bool) -> Queue {
        Queue {
            ready: Ready::default(),
            unacked: UnackedList::default(),
            consumers: None,
            rules: Rules::of(settings, now.instant),
            trash: None,
            next_seq: 0,
            delivered: 0,
            redelivered: 0,
            acknowledged: 0,
            next_generation: 0,
            holds: 0,
            auto_delete,
            had_consumer: false,
            is_over_limit: false,
        }
    }

    /// Changes the settings. Deadlines of messages that are in the queue stay; limits are applied
    /// by the next [`Queue::work`].
    /// The lease starts anew.
    pub fn reconfigure(&mut self, now: Now, settings: &QueueSettings) {
        self.rules = Rules::of(settings, now.instant);
        self.is_over_limit = self.must_drop();
    }

    /// Offers a message: to a consumer at once where one is ready and nothing waits, else it is
    /// kept as the queue's rules say.
    pub fn enqueue(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        sink: &mut impl Sink,
    ) -> Enqueued {
        let bytes = u64::from(incoming.bytes());
        if self.exceeds(1, bytes) {
            self.clear_due(now, sink);
            if self.refuses(now, incoming, sink) {
                return Enqueued::Rejected;
            }
        }
        let consumer =
            if self.ready.is_empty() { self.choose_consumer(incoming.bytes(), sink) } else { None };
        if let Some(slot) = consumer {
            self.hand_over(now, slot, incoming, sink);
            return Enqueued::Accepted;
        }
        let entry = self.take_in(now, incoming, sink);
        let deadline = entry.deadline;
        self.ready.push(entry);
        if deadline <= now.instant {
            self.expire(now, &mut { DROPS_AT_ONCE_MAX }, sink);
        }
        self.drop_excess(sink);
        Enqueued::Accepted
    }

    /// Delivers up to `budget` ready messages; expired ones that it meets count too.
    ///
    /// Returns whether there is more to deliver.
    pub fn dispatch(&mut self, now: Now, budget: usize, sink: &mut impl Sink) -> bool {
        self.dispatch_within(now, &mut { budget }, sink)
    }

    /// Whether [`Queue::dispatch`] would deliver something.
    ///
    /// To be asked after everything that may set messages or consumers free: settle, subscribe,
    /// cancel, resume, unhold and an enqueue. None of them delivers what waits.
    #[must_use]
    pub fn wants_dispatch(&self) -> bool {
        !self.ready.is_empty()
            && self.holds == 0
            && (self.consumers.as_ref()).is_some_and(|consumers| consumers.is_some_ready())
    }

    /// Ends a delivery. Returns false for one that is not known (any more).
    pub fn settle(
        &mut self,
        now: Now,
        slot: u32,
        seq: u64,
        outcome: Outcome,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(unacked) = self.unacked.take(slot, seq) else {
            return false;
        };
        if outcome == Outcome::Requeue && self.exceeds(1, u64::from(unacked.entry.bytes)) {
            self.clear_due(now, sink);
        }
        if let Some(consumers) = &mut self.consumers {
            consumers.settled(unacked.consumer);
        }
        match outcome {
            Outcome::Ack => {
                self.acknowledged += 1;
                sink.discard(unacked.entry);
            }
            Outcome::Reject => self.drop_entry(unacked.entry, Reason::Rejected, sink),
            Outcome::Requeue => self.requeue(unacked.entry, sink),
        }
        true
    }

    /// Takes the head for `basic.get`. Renews the lease.
    pub fn get(&mut self, now: Now, no_ack: bool, sink: &mut impl Sink) -> Get {
        self.touch(now);
        if self.holds > 0 || self.expire(now, &mut { DROPS_AT_ONCE_MAX }, sink) {
            return Get::Again;
        }
        let Some(entry) = self.ready.pop() else {
            return Get::Empty;
        };
        self.count_delivery(entry.redelivered);
        let mut delivery = Delivery {
            slot: NO_SLOT,
            seq: entry.seq,
            redelivered: entry.redelivered,
            delivery_count: if self.counts_deliveries() { entry.delivery_count } else { 0 },
        };
        let body = entry.body;
        let taken = if no_ack {
            Some(entry)
        } else {
            delivery.slot = self.unacked.insert(entry, ConsumerHandle::NONE);
            None
        };
        Get::Message(Got { delivery, body, remaining: self.ready.len(), taken })
    }

    /// Removes all ready messages and returns their number. [`Queue::work`] releases them.
    pub fn purge(&mut self) -> u64 {
        self.is_over_limit = false;
        if self.ready.is_empty() {
            return 0;
        }
        let ready = core::mem::take(&mut self.ready);
        let count = ready.len();
        self.trash.get_or_insert_default().ready.push(ready);
        count
    }

    /// Stops deliveries until as many calls of [`Queue::unhold`] followed: while many messages
    /// come back in several slices, no newer one may overtake them.
    pub fn hold(&mut self) {
        self.holds += 1;
    }

    /// Takes one [`Queue::hold`] back.
    pub fn unhold(&mut self) {
        self.holds = self.holds.saturating_sub(1);
    }

    /// Whether deliveries are stopped.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds > 0
    }

    /// Does a slice of what is left to do: releases purged messages, drops expired ones from the
    /// head and those above the limits, delivers. `budget` counts messages.
    ///
    /// Returns whether another slice is needed now.
    pub fn work(&mut self, now: Now, budget: usize, sink: &mut impl Sink) -> bool {
        let budget = &mut { budget };
        if self.release_trash(budget, sink) {
            return true;
        }
        if self.is_over_limit && self.expire(now, budget, sink) {
            return *budget == 0;
        }
        while self.is_over_limit {
            if *budget == 0 {
                return true;
            }
            self.drop_one_above_limit(sink);
            *budget -= 1;
        }
        self.dispatch_within(now, budget, sink)
    }

    /// Whether [`Queue::work`] has something to do.
    #[must_use]
    pub fn has_work(&self, now: Now) -> bool {
        self.trash.is_some()
            || self.is_over_limit
            || self.head_deadline() <= now.instant
            || self.wants_dispatch()
    }

    /// Lets a consumer join.
    ///
    /// # Errors
    /// When the queue is or is to be in exclusive use.
    pub fn subscribe(&mut self, mut consumer: Consumer) -> Result<ConsumerHandle, SubscribeError> {
        consumer.in_flight = 0;
        let is_single_active = (self.rules.as_ref()).is_some_and(|rules| rules.single_active);
        let mut consumers = match self.consumers.take() {
            Some(consumers) => consumers,
            None => Box::new(Consumers::new(is_single_active)),
        };
        let result = consumers.join(consumer, self.next_generation);
        if !consumers.is_empty() {
            self.consumers = Some(consumers);
        }
        if result.is_ok() {
            self.next_generation = self.next_generation.wrapping_add(1);
            self.had_consumer = true;
        }
        result
    }

    /// Lets a consumer leave. What was delivered to it stays with its channel.
    pub fn cancel(&mut self, now: Now, handle: ConsumerHandle) -> Option<Consumer> {
        let consumers = self.consumers.as_mut()?;
        let consumer = consumers.leave(handle)?;
        if consumers.is_empty() {
            self.consumers = None;
            self.touch(now);
        }
        Some(consumer)
    }

    /// Lets a parked consumer try again; nothing happens to others.
    pub fn resume(&mut self, handle: ConsumerHandle) {
        if let Some(consumers) = &mut self.consumers {
            consumers.resume(handle);
        }
    }

    /// Looks a consumer up; takes time in the number of consumers.
    #[must_use]
    pub fn find(&self, key: &ConsumerKey) -> Option<ConsumerHandle> {
        let mut consumers = self.consumers();
        let (handle, ..) = consumers.find(|(_, consumer, _)| consumer.key == *key)?;
        Some(handle)
    }

    /// A consumer.
    #[must_use]
    pub fn consumer(&self, handle: ConsumerHandle) -> Option<&Consumer> {
        self.consumers.as_ref()?.get(handle)
    }

    /// All consumers, and whether each is active (it is not while another one is the single active
    /// consumer).
    pub fn consumers(&self) -> impl Iterator<Item = (ConsumerHandle, &Consumer, bool)> {
        (self.consumers.iter()).flat_map(|consumers| consumers.iter())
    }

    /// Whether an auto-delete queue has lost its last consumer.
    #[must_use]
    pub fn auto_delete_due(&self) -> bool {
        self.auto_delete && self.had_consumer && self.consumers.is_none()
    }

    /// When [`Queue::work`] and [`Queue::is_lease_over`] are to be asked again;
    /// [`Instant::NEVER`] if time changes nothing.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.head_deadline().min(self.lease_end())
    }

    /// Renews the lease (`x-expires`): declare, also passive.
    pub fn touch(&mut self, now: Now) {
        if let Some(rules) = &mut self.rules {
            rules.used_at = now.instant;
        }
    }

    /// Whether the queue was unused for as long as `x-expires` says.
    #[must_use]
    pub fn is_lease_over(&self, now: Now) -> bool {
        self.lease_end() <= now.instant
    }

    /// Empties the queue for good. [`Queue::work`] releases its messages; until it returns false
    /// the value must be kept.
    pub fn delete(&mut self) -> Deleted {
        let ready = self.purge();
        if self.unacked.len() > 0 {
            let unacked = core::mem::take(&mut self.unacked);
            self.trash.get_or_insert_default().unacked.push(unacked);
        }
        let consumers = self.consumers.take();
        Deleted {
            ready,
            consumers: consumers.map_or(Vec::new(), |consumers| consumers.into_list()),
        }
    }

    /// Messages that wait for a consumer.
    #[must_use]
    pub fn ready(&self) -> u64 {
        self.ready.len()
    }

    /// Payload bytes of the ready messages.
    #[must_use]
    pub fn ready_bytes(&self) -> u64 {
        self.ready.bytes()
    }

    /// Messages delivered and not settled.
    #[must_use]
    pub fn unacked(&self) -> u64 {
        self.unacked.len()
    }

    /// Payload bytes of the unsettled messages.
    #[must_use]
    pub fn unacked_bytes(&self) -> u64 {
        self.unacked.bytes()
    }

    /// Number of consumers.
    #[must_use]
    pub fn consumer_count(&self) -> u32 {
        (self.consumers.as_ref()).map_or(0, |consumers| consumers.len())
    }

    /// Whether no message is ready (`if-empty`).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether there is no consumer (`if-unused`).
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.consumers.is_none()
    }

    /// Totals since the queue was made.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            published: self.next_seq,
            delivered: self.delivered,
            redelivered: self.redelivered,
            acknowledged: self.acknowledged,
        }
    }

    /// Bytes of the queue's own state, without bodies.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Queue>()
            + self.ready.memory_bytes()
            + self.unacked.memory_bytes()
            + (self.consumers.as_ref()).map_or(0, |consumers| consumers.memory_bytes())
            + self.rules.as_ref().map_or(0, |_| size_of::<Rules>())
            + (self.trash.as_ref()).map_or(0, |trash| trash.memory_bytes())
    }

    /// Gives spare capacity back; for queues that are idle.
    pub fn trim(&mut self) {
        self.ready.trim();
        self.unacked.trim();
    }

    fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    fn count_delivery(&mut self, redelivered: bool) {
        self.delivered += 1;
        self.redelivered += u64::from(redelivered);
    }

    fn requeue(&mut self, mut entry: Entry, sink: &mut impl Sink) {
        entry.redelivered = true;
        entry.delivery_count = entry.delivery_count.saturating_add(1);
        let limit = self.rules.as_ref().and_then(|rules| rules.delivery_limit);
        if limit.is_some_and(|limit| entry.delivery_count > limit) {
            self.drop_entry(entry, Reason::DeliveryLimit, sink);
            return;
        }
        self.ready.put_back(entry);
        self.drop_excess(sink);
    }

    /// Gets rid of a message that leaves unconsumed.
    fn drop_entry(&mut self, entry: Entry, reason: Reason, sink: &mut impl Sink) {
        if self.dead_letters() {
            sink.dead_letter(entry, reason);
        } else {
            sink.discard(entry);
        }
    }

    /// Whether deliveries tell how often the message came back.
    fn counts_deliveries(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.counts_deliveries)
    }

    fn dead_letters(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.dead_letters)
    }

    fn head_deadline(&self) -> Instant {
        (self.ready.head()).map_or(Instant::NEVER, |head| head.deadline)
    }

    fn lease_end(&self) -> Instant {
        match (&self.rules, &self.consumers) {
            (Some(rules), None) => {
                (rules.expires).map_or(Instant::NEVER, |lease| rules.used_at + lease)
            }
            _ => Instant::NEVER,
        }
    }
}
