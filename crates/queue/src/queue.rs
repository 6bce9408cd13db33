//! One queue at its home shard: what waits, what was delivered, and who consumes.
//!
//! A queue knows no connections and does no I/O: what it causes goes into a [`Sink`]. Its consumers
//! may live on other shards. A message keeps its sequence number for as long as it is in the queue,
//! so one that comes back returns to its place.
//!
//! [`Queue::apply`] is the way in; what is carried out here is described with its command in
//! [`crate::command`]. Whatever can be long takes a budget and is continued by
//! [`Work`](crate::command::Work).

mod alone;
mod aside;
mod consumers;
mod delivering;
mod dispatch;
mod filter_sets;
mod limits;
mod messages;
mod purge;
mod ready;
mod rings;
mod rules;
mod selecting;
mod selector_list;
mod selectors;
mod tap;
#[cfg(test)]
mod tests;
mod trash;
mod unacked;
mod unmatched;

use alloc::boxed::Box;
use alloc::vec::Vec;

use lepus_base::{Instant, Now, Pool, Position, ShardId};
use lepus_store::LaneSlot;

pub use alone::{NoLog, NoSink};
pub use consumers::{Consumer, ConsumerHandle, ConsumerKey, Orphans, SubscribeError};
pub use selector_list::{Distance, SelectorList};
pub use selectors::{
    ConsumerFilter, SELECTORS_MAX, SelectScratch, Selected, SelectorBits, SelectorFigures,
    Selectors,
};
pub use tap::{CAN_RECORD, Recorder};

use crate::entry::{
    Admission, Content, Delivery, Dispatched, Enqueued, Entry, Get, Outcome, Place, Reason, Sent,
    Ticket,
};
use crate::log::{Found, QueueLog};
use crate::message::Incoming;
use crate::settings::QueueSettings;
use aside::Aside;
use consumers::Consumers;
use messages::Messages;
use rules::Rules;
use tap::Tap;
use unacked::UnackedList;

/// Entries that a single operation drops at most before it leaves the rest to [`Work`](crate::command::Work).
const DROPS_AT_ONCE_MAX: usize = 1024;
/// What a queue causes, implemented over the rest of the shard's state.
pub trait Sink {
    /// The queue's part of its log.
    type Log<'a>: QueueLog
    where
        Self: 'a;

    /// The shard's bodies.
    fn pool(&mut self) -> &mut Pool;

    /// Whether the consumer's connection takes a message with a payload of `bytes` now (window,
    /// prefetch of the channel). After `false` the consumer is parked until [`Resume`](crate::command::Resume).
    fn may_deliver(&mut self, consumer: &Consumer, bytes: usize) -> bool;

    /// Asks which of the selectors that are `asked` a message matches. Only one in the log may have to wait or be lost.
    fn select(&mut self, selectors: &Selectors, asked: SelectorBits, entry: &Entry) -> Selected;

    /// Sends a message to a consumer. A stored body stays the queue's. Only one in the log may
    /// have to wait or be lost.
    fn deliver(&mut self, consumer: &Consumer, delivery: Delivery, content: Content<'_>) -> Sent;

    /// Whether an expired message can be dead-lettered now. After `false` expiry waits until the
    /// next call of [`Work`](crate::command::Work).
    fn may_dead_letter(&mut self) -> bool {
        true
    }

    /// After a refusal by [`Sink::may_dead_letter`]: whether the queue is woken when there is room.
    fn waits_for_letters(&mut self) -> bool {
        false
    }

    /// Takes a message that leaves for the dead-letter exchange, with its reference, or with the
    /// lane in which it is settled then.
    fn dead_letter(&mut self, entry: Entry, lane: Option<LaneSlot>, reason: Reason);

    /// Takes a message in memory that is settled or dropped, to release its reference.
    fn discard(&mut self, entry: Entry);

    /// The queue's part of its log; `None` where everything stays in memory.
    fn backlog(&mut self) -> Option<Self::Log<'_>> {
        None
    }

    /// Whether a transient message goes to the log, where messages of the queue take so many bytes of memory.
    fn spills(&self, _taken_bytes: u64) -> bool {
        false
    }

    /// Lanes and numbers of the queue's dead letters that are still to be settled.
    fn letters(&self) -> Vec<(LaneSlot, u64)> {
        Vec::new()
    }
}

/// Totals since the queue was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages taken in.
    pub published: u64,
    /// Deliveries to consumers that acknowledge.
    pub delivered_manual_ack: u64,
    /// Deliveries to consumers that do not acknowledge.
    pub delivered_auto_ack: u64,
    /// `basic.get` answers to be acknowledged.
    pub got_manual_ack: u64,
    /// `basic.get` answers not to be acknowledged.
    pub got_auto_ack: u64,
    /// `basic.get` that found no message.
    pub got_empty: u64,
    /// Messages handed out, in whatever way, with the redelivered bit.
    pub redelivered: u64,
    /// Deliveries acknowledged by their consumer.
    pub acknowledged: u64,
}

impl Totals {
    /// Messages handed out, to consumers and by `basic.get`.
    #[must_use]
    pub fn handed_out(&self) -> u64 {
        self.delivered_manual_ack
            + self.delivered_auto_ack
            + self.got_manual_ack
            + self.got_auto_ack
    }
}

/// What a deleted queue leaves.
#[derive(Debug)]
#[must_use]
pub struct Deleted {
    /// Messages that were ready, for `delete-ok`.
    pub ready: u64,
    /// Consumers to be told.
    pub consumers: Orphans,
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    /// `None` until the first message.
    messages: Option<Box<Messages>>,
    /// `None` without consumers.
    consumers: Option<Box<Consumers>>,
    /// `None` for a queue without arguments that matter here.
    rules: Option<Box<Rules>>,
    next_generation: u32,
    /// While above 0 nothing is delivered.
    holds: u32,
    /// `basic.get` before the first message; so many at most. It lies where there would be nothing.
    got_unused: u32,
    auto_delete: bool,
    had_consumer: bool,
    /// Persistent messages are logged.
    is_durable: bool,
    /// Where commands are written down in builds for tests.
    pub(crate) tap: Tap,
}

const _: () = assert!(size_of::<Queue>() <= 40 + size_of::<Tap>());

impl Queue {
    /// An empty queue with these settings. The persistent messages of a durable one are logged.
    #[must_use]
    pub fn new(now: Now, settings: &QueueSettings, auto_delete: bool, is_durable: bool) -> Queue {
        Queue {
            messages: None,
            consumers: None,
            rules: Rules::of(settings, now.instant),
            next_generation: 0,
            holds: 0,
            got_unused: 0,
            auto_delete,
            had_consumer: false,
            is_durable,
            tap: Tap::default(),
        }
    }

    /// What its ready messages take in memory, about.
    #[inline]
    pub fn taken_bytes(&self) -> u64 {
        self.messages.as_ref().map_or(0, |messages| messages.ready.taken_bytes())
    }

    /// Whether its persistent messages are logged.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Whether it deletes itself when its last consumer has left.
    pub(crate) fn is_auto_delete(&self) -> bool {
        self.auto_delete
    }

    /// Whether it has arguments that may move messages by themselves.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    pub(crate) fn begin_at(&mut self, seq: u64) {
        self.messages.get_or_insert_with(|| Messages::beginning_at(seq));
    }

    pub(crate) fn recover(&mut self, priority: u8, lane: LaneSlot, count: u64, bytes: u64) {
        let messages = self.messages.get_or_insert_with(|| Messages::beginning_at(0));
        messages.ready.recover(priority, lane, count, bytes);
        self.set_over_limit();
    }

    pub(crate) fn reconfigure(&mut self, now: Now, settings: &QueueSettings) {
        self.rules = Rules::behind(self.rules.take(), settings, now.instant);
        self.set_over_limit();
        let is_attended = Consumers::stay(&self.consumers);
        if let Some(aside) = self.aside_mut() {
            aside.drop_after(settings.unmatched_after, now.instant, is_attended);
        }
    }

    /// Whether it holds nothing and waits for nothing, so that it may go to another shard.
    #[must_use]
    pub fn is_still(&self) -> bool {
        let nothing = |messages: &Messages| {
            messages.ready.is_empty()
                && messages.ready.aside().is_none_or(|aside| aside.len() == 0)
                && messages.unacked.len() == 0
                && messages.trash.is_none()
                && !messages.waits
        };
        self.holds == 0 && self.messages.as_deref().is_none_or(nothing)
    }

    pub(crate) fn detach_log(&mut self) {
        if let Some(messages) = &mut self.messages {
            messages.ready.begin_anew();
            messages.unacked = UnackedList::default();
        }
    }

    pub(crate) fn relocate(&mut self, handle: ConsumerHandle, shard: ShardId, slot: u32) -> bool {
        let consumers = self.consumers.as_mut();
        consumers.is_some_and(|consumers| consumers.relocate(handle, shard, slot))
    }

    pub(crate) fn arrive(&mut self, own: ShardId, prefetch_max: u32) {
        if let Some(consumers) = &mut self.consumers {
            consumers.arrive(own, prefetch_max);
        }
    }

    // Its place in a row of publishes is where most messages go.
    #[inline(always)]
    pub(crate) fn enqueue(
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
            if self.is_empty() { self.choose_consumer(incoming.bytes(), sink) } else { None };
        if let Some(slot) = consumer {
            let ticket = self.ticket(now, incoming, sink);
            self.delivering().hand_over(slot, incoming, ticket, None, sink);
            return Enqueued::Accepted;
        }
        let ticket = self.ticket(now, incoming, sink);
        self.keep(now, ticket, incoming, sink);
        Enqueued::Accepted
    }

    pub(crate) fn admit(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        sink: &mut impl Sink,
    ) -> Admission {
        let bytes = u64::from(incoming.bytes());
        if self.exceeds(1, bytes) {
            self.clear_due(now, sink);
            if self.refuses(now, incoming, sink) {
                return Admission::Rejected;
            }
        }
        if self.is_empty()
            && (self.consumers.as_ref()).is_some_and(|consumers| consumers.is_no_ack_next())
            && let Some(slot) = self.choose_consumer(incoming.bytes(), sink)
            && self.is_no_ack(slot)
        {
            let ticket = self.ticket(now, incoming, sink);
            self.delivering().hand_over(slot, incoming, ticket, None, sink);
            return Admission::Delivered;
        }
        let ticket = self.ticket(now, incoming, sink);
        let lane = (self.messages.as_mut())
            .and_then(|messages| messages.lane(ticket.priority, false, sink));
        match lane {
            Some(lane) => Admission::Wanted(ticket, lane),
            None => {
                self.keep(now, ticket, incoming, sink);
                Admission::Delivered
            }
        }
    }

    pub(crate) fn withdraw(&mut self, ticket: &Ticket) {
        let messages = self.opened();
        assert!(messages.next_seq == ticket.seq + 1, "nothing comes between admission and log");
        messages.next_seq = ticket.seq;
    }

    pub(crate) fn put(
        &mut self,
        now: Now,
        ticket: Ticket,
        position: Position,
        incoming: &mut Incoming<'_>,
        sink: &mut impl Sink,
    ) {
        let consumer =
            if self.is_empty() { self.choose_consumer(incoming.bytes(), sink) } else { None };
        if let Some(slot) = consumer {
            self.opened().pass(ticket, sink);
            let delivering = self.delivering();
            return delivering.hand_over(slot, incoming, ticket, Some(position), sink);
        }
        let place = Place::logged(position, false);
        self.opened().push_logged(ticket.entry(place, incoming.bytes()), sink);
        self.pushed(now, ticket.deadline, sink);
    }

    pub(crate) fn dispatch(&mut self, now: Now, budget: usize, sink: &mut impl Sink) -> Dispatched {
        let mut left = budget;
        let more = self.dispatch_within(now, (&mut left, false), sink);
        let is_some_left = self.rules.is_some() && self.drop_unmatched(now, &mut { budget }, sink);
        Dispatched { more: is_some_left || more, used: budget - left }
    }

    /// Whether [`Dispatch`](crate::command::Dispatch) would deliver something.
    ///
    /// To be asked after everything that may set messages or consumers free: settle, subscribe,
    /// cancel, resume, unhold and an enqueue. None of them delivers what waits.
    #[must_use]
    pub fn wants_dispatch(&self) -> bool {
        self.messages.as_ref().is_some_and(|messages| !messages.ready.is_empty() && !messages.waits)
            && self.holds == 0
            && (self.consumers.as_ref()).is_some_and(|consumers| match consumers.has_filters() {
                false => consumers.is_some_ready(),
                true => self
                    .messages
                    .as_ref()
                    .is_some_and(|messages| messages.ready.has_step(consumers.ready_selectors())),
            })
    }

    /// Whether something has to be read before the queue can go on.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.messages.as_ref().is_some_and(|messages| messages.waits)
    }

    pub(crate) fn wake(&mut self) {
        if let Some(messages) = &mut self.messages {
            messages.waits = false;
        }
        if let Some(aside) = self.aside_mut() {
            aside.wake();
        }
    }

    pub(crate) fn settle(
        &mut self,
        now: Now,
        slot: u32,
        seq: u64,
        outcome: Outcome,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(messages) = &mut self.messages else {
            return race!("nothing was ever delivered", false);
        };
        let Some(unacked) = messages.unacked.take(slot, seq) else {
            return race!("the delivery was settled before", false);
        };
        if outcome == Outcome::Ack {
            messages.acknowledged += 1;
        }
        if outcome.comes_back() && self.exceeds(1, u64::from(unacked.entry.bytes)) {
            self.clear_due(now, sink);
        }
        if let Some(consumers) = &mut self.consumers {
            consumers.settled(unacked.consumer);
        }
        match outcome {
            Outcome::Ack => self.release(unacked.entry, sink),
            Outcome::Reject => self.drop_entry(unacked.entry, Reason::Rejected, sink),
            Outcome::Requeue => self.requeue(unacked.entry, true, sink),
            Outcome::Return => self.requeue(unacked.entry, false, sink),
        }
        true
    }

    pub(crate) fn get(&mut self, now: Now, no_ack: bool, sink: &mut impl Sink) -> Get {
        self.touch(now);
        loop {
            if self.holds > 0
                || !self.prepare(sink)
                || self.expire(now, &mut { DROPS_AT_ONCE_MAX }, sink)
                || self.is_waiting()
            {
                return Get::Again;
            }
            let found = self.messages.as_ref().and_then(|messages| messages.look_up_head(sink));
            match found {
                None => {
                    Messages::count_got_empty(&mut self.messages, &mut self.got_unused);
                    return Get::Empty;
                }
                Some(Found::Ready) => break,
                Some(Found::Pending) => {
                    self.wait();
                    return Get::Again;
                }
                Some(Found::Lost) => self.step_over(sink),
            }
        }
        let counts = self.counts_deliveries();
        let Some(entry) = self.pop(sink) else { invariant!("the head is known and was found") };
        Get::Message(self.opened().hand_out(entry, no_ack, counts))
    }

    pub(crate) fn purge(&mut self, sink: &mut impl Sink) -> u64 {
        let is_wanted = self.consumers.is_some() || self.dead_letters();
        self.messages.as_mut().map_or(0, |messages| messages.purge(is_wanted, sink))
    }

    pub(crate) fn hold(&mut self) {
        self.holds += 1;
    }

    pub(crate) fn unhold(&mut self) {
        self.holds = self.holds.saturating_sub(1);
    }

    /// Whether deliveries are stopped.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds > 0
    }

    pub(crate) fn work(
        &mut self,
        now: Now,
        (budget, looks): (usize, usize),
        sink: &mut impl Sink,
    ) -> bool {
        let budget = &mut { budget };
        if let Some(messages) = &mut self.messages
            && let Some(trash) = &mut messages.trash
        {
            if trash.release(budget, sink) {
                return true;
            }
            messages.trash = None;
        }
        if self.is_waiting() {
            return false;
        }
        if self.is_over_limit() && self.prepare(sink) && self.expire(now, budget, sink) {
            return *budget == 0;
        }
        while self.is_over_limit() && self.prepare(sink) {
            if *budget == 0 {
                return true;
            }
            self.drop_one_above_limit(sink);
            *budget -= 1;
        }
        if !self.has_filters() {
            return self.dispatch_within(now, (budget, true), sink);
        }
        // What filters look at is little while others are served: what has no time left does not wait for that.
        if self.prepare(sink) && self.expire(now, budget, sink) {
            return *budget == 0;
        }
        let more = self.dispatch_within(now, (&mut { looks }, true), sink);
        self.rules.is_some() && self.drop_unmatched(now, budget, sink) || more
    }

    /// Whether [`Work`](crate::command::Work) has something to do.
    #[must_use]
    pub fn has_work(&self, now: Now) -> bool {
        let Some(messages) = &self.messages else { return false };
        if messages.trash.is_some() {
            return true;
        }
        if messages.ready.is_empty() {
            return messages.is_over_limit && !messages.waits;
        }
        !messages.waits
            && (messages.is_over_limit
                || self.head_deadline() <= now.instant
                || self.wants_dispatch()
                || (self.rules.is_some()
                    && (messages.ready.is_unknown() || messages.is_unmatched_due(now))))
    }

    pub(crate) fn subscribe(
        &mut self,
        now: Now,
        mut consumer: Consumer,
    ) -> Result<ConsumerHandle, SubscribeError> {
        consumer.in_flight = 0;
        let is_single_active = (self.rules.as_ref()).is_some_and(|rules| rules.single_active);
        let mut consumers = match self.consumers.take() {
            Some(consumers) => consumers,
            None => Box::new(Consumers::new(is_single_active)),
        };
        let selects = self.messages.as_ref().is_some_and(|all| all.ready.aside().is_some());
        let result = consumers.join(consumer, self.next_generation, selects);
        if !consumers.is_empty() {
            self.consumers = Some(consumers);
        }
        let joined = result?;
        self.next_generation = self.next_generation.wrapping_add(1);
        self.had_consumer |= joined.stays;
        if let (Some(consumers), Some(messages)) = (&self.consumers, &mut self.messages) {
            messages.joined(consumers, joined.new_selector, now);
        }
        Ok(joined.handle)
    }

    pub(crate) fn cancel(&mut self, now: Now, handle: ConsumerHandle) -> Option<Consumer> {
        let consumers = self.consumers.as_mut()?;
        let (consumer, selector_gone) = consumers.leave(handle)?;
        if consumers.is_empty() {
            self.consumers = None;
            self.touch(now);
        }
        if let Some(messages) = &mut self.messages {
            messages.left(self.consumers.as_deref(), selector_gone, now);
        }
        self.end_filters();
        Some(consumer)
    }

    pub(crate) fn resume(&mut self, handle: ConsumerHandle) {
        if let Some(consumers) = &mut self.consumers {
            consumers.resume(handle);
        }
    }

    fn aside(&self) -> Option<&Aside> {
        self.messages.as_ref()?.ready.aside()
    }

    fn aside_mut(&mut self) -> Option<&mut Aside> {
        self.messages.as_mut()?.ready.aside_mut()
    }

    /// Whether a consumer's filter waits for something to be read; and whether dropping what none matched does.
    #[must_use]
    pub fn filters_waiting(&self) -> (bool, bool) {
        self.aside().map_or((false, false), Aside::who_waits)
    }

    /// Messages that consumers' filters have looked at and that nobody has.
    #[must_use]
    pub fn passed_over(&self) -> u64 {
        self.aside().map_or(0, Aside::len)
    }

    /// The distinct filters of its consumers, where one has a filter.
    #[must_use]
    pub fn selectors(&self) -> SelectorList<'_> {
        let unseen = self.ready().saturating_sub(self.passed_over());
        SelectorList::of(self.consumers.as_deref(), self.aside(), unseen)
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

    /// Those that could take nothing when it was their turn, and take nothing before [`Resume`](crate::command::Resume).
    pub fn parked_consumers(&self) -> impl Iterator<Item = &Consumer> {
        (self.consumers.iter()).flat_map(|consumers| consumers.parked())
    }

    /// Whether an auto-delete queue has lost its last consumer.
    #[must_use]
    pub fn auto_delete_due(&self) -> bool {
        self.auto_delete && self.had_consumer && !Consumers::stay(&self.consumers)
    }

    /// When [`Work`](crate::command::Work) and [`Queue::is_lease_over`] are to be asked again;
    /// [`Instant::NEVER`] if time changes nothing. While the queue waits to be woken no message
    /// leaves, however old.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        let head = if self.is_waiting() { Instant::NEVER } else { self.head_deadline() };
        let lease = head.min(self.lease_end());
        let unmatched = self.messages.as_ref().filter(|_| self.rules.is_some());
        unmatched.map_or(lease, |messages| lease.min(messages.next_unmatched_at()))
    }

    pub(crate) fn touch(&mut self, now: Now) {
        if let Some(rules) = &mut self.rules {
            rules.used_at = now.instant;
        }
    }

    /// Whether the queue was unused for as long as `x-expires` says.
    #[must_use]
    pub fn is_lease_over(&self, now: Now) -> bool {
        self.lease_end() <= now.instant
    }

    pub(crate) fn delete(&mut self) -> Deleted {
        let mut ready = 0;
        if let Some(messages) = &mut self.messages {
            messages.waits = false;
            ready = messages.empty();
            if messages.unacked.len() > 0 {
                let unacked = core::mem::take(&mut messages.unacked);
                messages.trash.get_or_insert_default().unacked.push(unacked);
            }
        }
        let consumers = self.consumers.take();
        Deleted {
            ready,
            consumers: consumers.map(|consumers| consumers.into_orphans()).unwrap_or_default(),
        }
    }

    /// Messages that wait for a consumer.
    #[must_use]
    pub fn ready(&self) -> u64 {
        self.messages.as_ref().map_or(0, |messages| messages.ready.len())
    }

    /// Payload bytes of the ready messages.
    #[must_use]
    pub fn ready_bytes(&self) -> u64 {
        self.messages.as_ref().map_or(0, |messages| messages.ready.bytes())
    }

    /// Messages delivered and not settled.
    #[must_use]
    pub fn unacked(&self) -> u64 {
        self.messages.as_ref().map_or(0, |messages| messages.unacked.len())
    }

    /// Payload bytes of the unsettled messages.
    #[must_use]
    pub fn unacked_bytes(&self) -> u64 {
        self.messages.as_ref().map_or(0, |messages| messages.unacked.bytes())
    }

    pub(crate) fn mark_unacked(&self, sink: &mut impl Sink) {
        if let Some(messages) = &self.messages
            && let Some(mut backlog) = sink.backlog()
        {
            messages.mark_unacked(&mut backlog);
        }
    }

    /// The lowest position in the log of an unsettled message, among those in so many slots from
    /// `first` on; and how many slots there were.
    #[must_use]
    pub fn oldest_unacked(&self, first: usize, slots: usize) -> (Option<Position>, usize) {
        let Some(messages) = &self.messages else { return (None, 0) };
        messages.unacked.oldest(first, slots)
    }

    /// Entries of messages in the log that are in memory.
    #[must_use]
    pub fn windowed(&self) -> usize {
        self.messages.as_ref().map_or(0, |messages| messages.ready.windowed())
    }

    /// Number of consumers.
    #[must_use]
    pub fn consumer_count(&self) -> u32 {
        (self.consumers.as_ref()).map_or(0, |consumers| consumers.len())
    }

    /// Whether no message is ready (`if-empty`).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.as_ref().is_none_or(|messages| messages.ready.is_empty())
    }

    /// Whether there is no consumer (`if-unused`).
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.consumers.is_none()
    }

    /// Totals since the queue was made.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let found = self.messages.as_ref().map_or(Totals::default(), |messages| messages.totals());
        Totals { got_empty: found.got_empty + u64::from(self.got_unused), ..found }
    }

    /// Bytes of the queue's own state, without bodies.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Queue>()
            + (self.messages.as_ref()).map_or(0, |messages| messages.memory_bytes())
            + (self.consumers.as_ref()).map_or(0, |consumers| consumers.memory_bytes())
            + self.rules.as_ref().map_or(0, |_| size_of::<Rules>())
    }

    pub(crate) fn trim(&mut self) {
        if let Some(messages) = &mut self.messages {
            messages.ready.trim();
            messages.unacked.trim();
        }
    }

    /// Puts a delivery back to its place. One that failed counts against the limit.
    fn requeue(&mut self, mut entry: Entry, failed: bool, sink: &mut impl Sink) {
        if !core::mem::replace(&mut entry.redelivered, true)
            && let Some(messages) = &self.messages
        {
            messages.mark_delivered(&entry, sink);
        }
        entry.delivery_count = entry.delivery_count.saturating_add(u32::from(failed));
        let limit = self.rules.as_ref().and_then(|rules| rules.delivery_limit);
        if failed && limit.is_some_and(|limit| entry.delivery_count > limit) {
            self.drop_entry(entry, Reason::DeliveryLimit, sink);
            return;
        }
        self.opened().put_back(entry, sink);
        self.drop_excess(sink);
    }

    /// Gets rid of a message that leaves unconsumed.
    fn drop_entry(&mut self, entry: Entry, reason: Reason, sink: &mut impl Sink) {
        if self.dead_letters() {
            if let Some(rules) = self.rules.as_mut().filter(|rules| rules.at_least_once) {
                rules.letters += 1;
                rules.letter_bytes += u64::from(entry.bytes);
            }
            let messages = self.messages.as_ref().filter(|_| entry.place.body().is_none());
            let lane = messages.and_then(|messages| messages.lane_of(&entry));
            sink.dead_letter(entry, lane, reason);
        } else {
            self.release(entry, sink);
        }
    }

    pub(crate) fn letter_settled(&mut self, bytes: u32) {
        if let Some(rules) = self.rules.as_mut().filter(|rules| rules.at_least_once) {
            rules.letters = rules.letters.saturating_sub(1);
            rules.letter_bytes = rules.letter_bytes.saturating_sub(u64::from(bytes));
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
        self.messages.as_ref().map_or(Instant::NEVER, |messages| messages.head_deadline())
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
