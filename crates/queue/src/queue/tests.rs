//! What a queue does, in sentences; and random operations against a naive model.

mod model;
mod selecting;
mod slices;
mod unmatched;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::{ConnectionId, Instant, Now, Pool, ShardId};
use lepus_store::LaneSlot;

use super::*;
use crate::Overflow;
use crate::entry::NO_SLOT;
use crate::message::MessageView;

/// What the sink saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Consumer (0 for `basic.get`), message, redelivered, delivery count.
    Delivered(u32, u64, bool, u32),
    Dead(u64, Reason),
    Gone(u64),
}

#[derive(Default)]
struct Shard {
    pool: Pool,
    log: Vec<Event>,
    /// Unsettled deliveries: consumer, slot, message.
    out: Vec<(u32, u32, u64)>,
    blocked: BTreeSet<u32>,
    asked: usize,
    no_dead_letters: bool,
    scratch: SelectScratch,
    /// How often filters were asked.
    selected: usize,
    /// Selectors that are dear: how often they were asked, and what that takes.
    dear: SelectorBits,
    dear_selected: usize,
    dear_steps: u64,
}

impl Sink for Shard {
    type Log<'a> = NoLog;

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn may_deliver(&mut self, consumer: &Consumer, _bytes: usize) -> bool {
        self.asked += 1;
        !self.blocked.contains(&consumer.key.consumer)
    }

    fn select(&mut self, selectors: &Selectors, asked: SelectorBits, entry: &Entry) -> Selected {
        self.selected += 1;
        let body = entry.place.body().expect("there is no log");
        let view = MessageView::unpack(self.pool.get(body));
        let mut selected = selectors.ask(asked, &view, &mut self.scratch);
        let found = asked & self.dear;
        if let Selected::Matches { steps, dear, .. } = &mut selected
            && found != 0
        {
            self.dear_selected += 1;
            (*steps, *dear) = (self.dear_steps, found);
        }
        selected
    }

    fn deliver(&mut self, consumer: &Consumer, delivery: Delivery, content: Content<'_>) -> Sent {
        let body = match content {
            Content::Stored(body) => MessageView::unpack(self.pool.get(body)).body,
            Content::Incoming(view) => view.body,
            Content::Logged(..) => panic!("there is no log"),
        };
        assert!(body.iter().all(|&byte| byte == b'x'));
        let name = consumer.key.consumer;
        let (seq, count) = (delivery.seq, delivery.delivery_count);
        let event = Event::Delivered(name, seq, delivery.redelivered, count);
        self.log.push(event);
        if delivery.slot == NO_SLOT {
            assert!(consumer.no_ack);
        } else {
            self.out.push((name, delivery.slot, delivery.seq));
        }
        Sent::Done
    }

    fn may_dead_letter(&mut self) -> bool {
        !self.no_dead_letters
    }

    fn dead_letter(&mut self, entry: Entry, _: Option<LaneSlot>, reason: Reason) {
        self.log.push(Event::Dead(entry.seq, reason));
        self.pool.release(entry.place.body().unwrap());
    }

    fn discard(&mut self, entry: Entry) {
        // After a delivery without acknowledgement it says nothing new.
        if !matches!(self.log.last(), Some(Event::Delivered(_, seq, ..)) if *seq == entry.seq) {
            self.log.push(Event::Gone(entry.seq));
        }
        self.pool.release(entry.place.body().unwrap());
    }
}

impl Shard {
    /// Deliveries since the last call: consumer and message.
    fn delivered(&mut self) -> Vec<(u32, u64)> {
        let log = core::mem::take(&mut self.log);
        log.into_iter()
            .filter_map(|event| match event {
                Event::Delivered(consumer, seq, ..) => Some((consumer, seq)),
                _ => None,
            })
            .collect()
    }

    fn dead(&mut self) -> Vec<(u64, Reason)> {
        let log = core::mem::take(&mut self.log);
        log.into_iter()
            .filter_map(|event| match event {
                Event::Dead(seq, reason) => Some((seq, reason)),
                _ => None,
            })
            .collect()
    }
}

const START: Now = Now::from_millis(1000);

fn at(millis: u64) -> Now {
    Now::from_millis(1000 + millis)
}

fn queue(settings: &QueueSettings) -> Queue {
    Queue::new(START, settings, false, false)
}

fn plain() -> Queue {
    queue(&QueueSettings::default())
}

fn with_dead_letters() -> QueueSettings {
    QueueSettings { dead_letter_exchange: Some("dlx".into()), ..QueueSettings::default() }
}

fn consumer(name: u32) -> Consumer {
    Consumer {
        key: ConsumerKey { connection: ConnectionId(1), channel: 1, consumer: name },
        shard: ShardId(0),
        connection_slot: 0,
        channel_number: 1,
        tag: Box::from("tag"),
        no_ack: false,
        exclusive: false,
        passing: false,
        priority: 0,
        filter: None,
        prefetch: 0,
        in_flight: 0,
    }
}

fn with_prefetch(name: u32, prefetch: u32) -> Consumer {
    Consumer { prefetch, ..consumer(name) }
}

struct Message {
    bytes: usize,
    priority: u8,
    ttl: Option<u64>,
}

const MESSAGE: Message = Message { bytes: 1, priority: 0, ttl: None };

fn offer(queue: &mut Queue, now: Now, message: &Message, shard: &mut Shard) -> Enqueued {
    let payload = vec![b'x'; message.bytes];
    let mut incoming = Incoming::new(MessageView { body: &payload, ..MessageView::default() });
    incoming.priority = message.priority;
    incoming.expiration = message.ttl.map(Duration::from_millis);
    incoming.last = true;
    let result = queue.enqueue(now, &mut incoming, shard);
    incoming.finish(&mut shard.pool);
    result
}

fn publish(queue: &mut Queue, count: usize, shard: &mut Shard) {
    for _ in 0..count {
        assert_eq!(offer(queue, START, &MESSAGE, shard), Enqueued::Accepted);
    }
}

fn dispatch(queue: &mut Queue, now: Now, shard: &mut Shard) {
    while queue.dispatch(now, 3, shard).more {
        // Dear filters catch up by work alone.
        if shard.dear != 0 {
            let _ = queue.work(now, (3, 3), shard);
        }
    }
    assert!(!queue.wants_dispatch());
}

fn work(queue: &mut Queue, now: Now, shard: &mut Shard) {
    while queue.work(now, (3, 3), shard) {}
}

/// Takes the head and settles nothing; `None` on an empty queue.
fn get(queue: &mut Queue, now: Now, shard: &mut Shard) -> Option<Delivery> {
    loop {
        match queue.get(now, false, shard) {
            Get::Message(got) => return Some(got.delivery),
            Get::Empty => return None,
            Get::Again => {}
        }
    }
}

fn get_all(queue: &mut Queue, shard: &mut Shard) -> Vec<Delivery> {
    core::iter::from_fn(|| get(queue, START, shard)).collect()
}

fn settle(queue: &mut Queue, delivery: Delivery, outcome: Outcome, shard: &mut Shard) {
    assert!(queue.settle(START, delivery.slot, delivery.seq, outcome, shard));
}

fn seqs(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.seq).collect()
}

#[test]
fn a_message_goes_straight_to_a_consumer_that_is_ready() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    queue.subscribe(START, consumer(1)).unwrap();
    publish(&mut queue, 2, &mut shard);
    assert_eq!(shard.delivered(), [(1, 0), (1, 1)]);
    assert_eq!((queue.ready(), queue.unacked()), (0, 2));
    for (_, slot, seq) in core::mem::take(&mut shard.out) {
        assert!(queue.settle(START, slot, seq, Outcome::Ack, &mut shard));
        assert!(!queue.settle(START, slot, seq, Outcome::Ack, &mut shard));
    }
    assert!(shard.pool.is_empty());
    assert_eq!(queue.totals().acknowledged, 2);
}

#[test]
fn a_delivery_without_acknowledgement_stores_nothing() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    let no_ack = Consumer { no_ack: true, prefetch: 1, ..consumer(1) };
    queue.subscribe(START, no_ack).unwrap();
    publish(&mut queue, 5, &mut shard);
    assert_eq!(shard.delivered().len(), 5);
    assert!(shard.pool.is_empty());
    assert_eq!(queue.unacked(), 0);
}

#[test]
fn what_is_handed_out_is_counted_by_its_kind() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    assert!(get(&mut queue, START, &mut shard).is_none());
    assert_eq!(queue.totals(), Totals { got_empty: 1, ..Totals::default() });
    publish(&mut queue, 4, &mut shard);
    let taken = get(&mut queue, START, &mut shard).unwrap();
    assert!(matches!(queue.get(START, true, &mut shard), Get::Message(_)));
    settle(&mut queue, taken, Outcome::Requeue, &mut shard);
    // The one that came back, another one that waited, and one that comes.
    queue.subscribe(START, consumer(1)).unwrap();
    dispatch(&mut queue, START, &mut shard);
    publish(&mut queue, 1, &mut shard);
    let no_ack = Consumer { no_ack: true, priority: 1, ..consumer(2) };
    queue.subscribe(START, no_ack).unwrap();
    publish(&mut queue, 5, &mut shard);
    for _ in 0..2 {
        assert!(get(&mut queue, START, &mut shard).is_none());
    }
    let totals = queue.totals();
    let expected = Totals {
        published: 10,
        delivered_manual_ack: 4,
        delivered_auto_ack: 5,
        got_manual_ack: 1,
        got_auto_ack: 1,
        got_empty: 3,
        redelivered: 1,
        acknowledged: 0,
    };
    assert_eq!(totals, expected);
    assert_eq!(totals.handed_out(), 11);
}

#[test]
fn requeued_messages_return_to_their_places() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    publish(&mut queue, 6, &mut shard);
    let mut taken: Vec<Delivery> =
        (0..4).map(|_| get(&mut queue, START, &mut shard).unwrap()).collect();
    for index in [2, 0, 1, 0] {
        let delivery = taken.remove(index);
        assert!(!delivery.redelivered);
        settle(&mut queue, delivery, Outcome::Requeue, &mut shard);
    }
    let again = get_all(&mut queue, &mut shard);
    assert_eq!(seqs(&again), [0, 1, 2, 3, 4, 5]);
    let redelivered: Vec<bool> = again.iter().map(|delivery| delivery.redelivered).collect();
    assert_eq!(redelivered, [true, true, true, true, false, false]);
    // Only queues that count returns tell how often a message came back.
    assert_eq!(again[0].delivery_count, 0);
}

#[test]
fn while_the_queue_is_held_nothing_overtakes_what_comes_back() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    publish(&mut queue, 4, &mut shard);
    let taken: Vec<Delivery> =
        (0..3).map(|_| get(&mut queue, START, &mut shard).unwrap()).collect();
    queue.subscribe(START, consumer(1)).unwrap();
    queue.hold();
    for &delivery in taken.iter().rev() {
        settle(&mut queue, delivery, Outcome::Requeue, &mut shard);
        work(&mut queue, START, &mut shard);
        assert!(matches!(queue.get(START, false, &mut shard), Get::Again));
    }
    publish(&mut queue, 1, &mut shard);
    assert_eq!(shard.delivered(), []);
    queue.unhold();
    dispatch(&mut queue, START, &mut shard);
    let expected: Vec<(u32, u64)> = (0..5).map(|seq| (1, seq)).collect();
    assert_eq!(shard.delivered(), expected);
}

#[test]
fn a_held_queue_keeps_new_messages_also_when_it_was_empty() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    queue.subscribe(START, consumer(1)).unwrap();
    queue.hold();
    queue.hold();
    publish(&mut queue, 1, &mut shard);
    queue.unhold();
    assert!(queue.is_held() && !queue.wants_dispatch());
    assert_eq!((queue.ready(), shard.log.len()), (1, 0));
    queue.unhold();
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(1, 0)]);
}

#[test]
fn a_stale_settle_does_not_touch_the_next_message_in_its_slot() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    publish(&mut queue, 2, &mut shard);
    let first = get(&mut queue, START, &mut shard).unwrap();
    settle(&mut queue, first, Outcome::Ack, &mut shard);
    let second = get(&mut queue, START, &mut shard).unwrap();
    assert_eq!(first.slot, second.slot);
    assert!(!queue.settle(START, first.slot, first.seq, Outcome::Ack, &mut shard));
    assert!(!queue.settle(START, NO_SLOT, 1, Outcome::Ack, &mut shard));
    assert_eq!(queue.unacked(), 1);
}

#[test]
fn consumers_take_turns() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    for name in 1..=3 {
        queue.subscribe(START, with_prefetch(name, 2)).unwrap();
    }
    publish(&mut queue, 8, &mut shard);
    let order: Vec<u32> = shard.delivered().iter().map(|pair| pair.0).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 3]);
    assert_eq!(queue.ready(), 2);
    let (_, slot, seq) = shard.out.remove(1);
    assert!(queue.settle(START, slot, seq, Outcome::Ack, &mut shard));
    assert!(queue.wants_dispatch());
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(2, 6)]);
}

#[test]
fn a_nack_gives_credit_back() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    queue.subscribe(START, with_prefetch(1, 1)).unwrap();
    publish(&mut queue, 2, &mut shard);
    let (_, slot, seq) = shard.out.remove(0);
    assert!(queue.settle(START, slot, seq, Outcome::Requeue, &mut shard));
    dispatch(&mut queue, START, &mut shard);
    let (_, slot, seq) = shard.out.remove(0);
    assert!(queue.settle(START, slot, seq, Outcome::Reject, &mut shard));
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(1, 0), (1, 0), (1, 1)]);
}

#[test]
fn a_higher_priority_consumer_is_served_while_it_has_credit() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    queue.subscribe(START, consumer(1)).unwrap();
    let high = Consumer { priority: 10, ..with_prefetch(2, 2) };
    queue.subscribe(START, high).unwrap();
    publish(&mut queue, 4, &mut shard);
    assert_eq!(shard.delivered(), [(2, 0), (2, 1), (1, 2), (1, 3)]);
}

#[test]
fn a_consumer_that_cannot_take_is_parked_until_resumed() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    let first = queue.subscribe(START, consumer(1)).unwrap();
    queue.subscribe(START, consumer(2)).unwrap();
    shard.blocked.insert(1);
    publish(&mut queue, 50, &mut shard);
    assert!(shard.delivered().iter().all(|pair| pair.0 == 2));
    assert_eq!(shard.asked, 51);
    shard.blocked.insert(2);
    publish(&mut queue, 2, &mut shard);
    assert!(!queue.wants_dispatch());
    shard.blocked.remove(&1);
    queue.resume(first);
    assert!(queue.wants_dispatch());
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(1, 50), (1, 51)]);
}

#[test]
fn a_cancelled_consumer_keeps_what_it_has() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    let handle = queue.subscribe(START, consumer(1)).unwrap();
    publish(&mut queue, 1, &mut shard);
    let gone = queue.cancel(START, handle).unwrap();
    assert_eq!(gone.in_flight, 1);
    assert!(queue.cancel(START, handle).is_none());
    assert_eq!((queue.ready(), queue.unacked()), (0, 1));
    // A new consumer in the same place is not credited with the old one's deliveries.
    let next = queue.subscribe(START, with_prefetch(2, 1)).unwrap();
    assert_eq!(next.slot, handle.slot);
    publish(&mut queue, 2, &mut shard);
    assert_eq!(shard.delivered(), [(1, 0), (2, 1)]);
    let (_, slot, seq) = shard.out[0];
    assert!(queue.settle(START, slot, seq, Outcome::Ack, &mut shard));
    assert!(!queue.wants_dispatch());
}

#[test]
fn an_exclusive_consumer_is_alone() {
    let exclusive = |name| Consumer { exclusive: true, ..consumer(name) };
    let mut queue = plain();
    let handle = queue.subscribe(START, exclusive(1)).unwrap();
    let refused = Err(SubscribeError::InExclusiveUse);
    assert_eq!(queue.subscribe(START, consumer(2)), refused);
    assert_eq!(queue.subscribe(START, exclusive(2)), refused);
    queue.cancel(START, handle).unwrap();
    queue.subscribe(START, consumer(2)).unwrap();
    assert_eq!(queue.subscribe(START, exclusive(3)), refused);
    assert_eq!(queue.consumer_count(), 1);
}

#[test]
fn with_a_single_active_consumer_the_next_one_takes_over() {
    let settings = QueueSettings { single_active_consumer: true, ..QueueSettings::default() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    let first = queue.subscribe(START, with_prefetch(1, 1)).unwrap();
    let waiting = queue.subscribe(START, consumer(2)).unwrap();
    let high = Consumer { priority: 5, ..consumer(3) };
    let high = queue.subscribe(START, high).unwrap();
    publish(&mut queue, 2, &mut shard);
    assert_eq!(shard.delivered(), [(1, 0)]);
    queue.cancel(START, first).unwrap();
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(3, 1)]);
    let active: Vec<(u32, bool)> =
        (queue.consumers()).map(|(_, consumer, active)| (consumer.key.consumer, active)).collect();
    assert!(active.contains(&(2, false)) && active.contains(&(3, true)));
    queue.cancel(START, high).unwrap();
    publish(&mut queue, 1, &mut shard);
    assert_eq!(shard.delivered(), [(2, 2)]);
    queue.cancel(START, waiting).unwrap();
    assert!(queue.is_unused());
    let exclusive = Consumer { exclusive: true, ..consumer(4) };
    assert!(queue.subscribe(START, exclusive).is_err());
    assert!(queue.is_unused());
}

#[test]
fn a_message_expires_when_it_is_at_the_head() {
    let (mut queue, mut shard) = (queue(&with_dead_letters()), Shard::default());
    let short = Message { ttl: Some(10), ..MESSAGE };
    let long = Message { ttl: Some(50), ..MESSAGE };
    for message in [&long, &short] {
        assert_eq!(offer(&mut queue, START, message, &mut shard), Enqueued::Accepted);
    }
    assert_eq!(queue.next_timeout(), at(50).instant);
    work(&mut queue, at(49), &mut shard);
    assert_eq!(queue.ready(), 2);
    work(&mut queue, at(50), &mut shard);
    assert_eq!(shard.dead(), [(0, Reason::Expired), (1, Reason::Expired)]);
    assert_eq!(queue.next_timeout(), Instant::NEVER);
}

#[test]
fn the_shorter_of_two_ttls_counts_and_a_requeue_keeps_the_deadline() {
    let settings =
        QueueSettings { message_ttl: Some(Duration::from_millis(20)), ..with_dead_letters() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    for ttl in [None, Some(5), Some(1000)] {
        let message = Message { ttl, ..MESSAGE };
        let _ = offer(&mut queue, START, &message, &mut shard);
    }
    assert_eq!(queue.next_timeout(), at(20).instant);
    let delivery = get(&mut queue, START, &mut shard).unwrap();
    assert_eq!(queue.next_timeout(), at(5).instant);
    settle(&mut queue, delivery, Outcome::Requeue, &mut shard);
    assert_eq!(queue.next_timeout(), at(20).instant);
    assert!(get(&mut queue, at(20), &mut shard).is_none());
    assert_eq!(shard.dead().len(), 3);
}

#[test]
fn a_ttl_of_zero_lets_through_only_what_is_delivered_at_once() {
    let settings = QueueSettings { message_ttl: Some(Duration::ZERO), ..with_dead_letters() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    publish(&mut queue, 1, &mut shard);
    assert_eq!(shard.dead(), [(0, Reason::Expired)]);
    queue.subscribe(START, with_prefetch(1, 1)).unwrap();
    publish(&mut queue, 2, &mut shard);
    let expected = [Event::Delivered(1, 1, false, 0), Event::Dead(2, Reason::Expired)];
    assert_eq!(shard.log, expected);
}

#[test]
fn expiry_waits_while_dead_letters_find_no_room() {
    let (mut queue, mut shard) = (queue(&with_dead_letters()), Shard::default());
    let message = Message { ttl: Some(1), ..MESSAGE };
    let _ = offer(&mut queue, START, &message, &mut shard);
    shard.no_dead_letters = true;
    assert!(!queue.work(at(1), (10, 10), &mut shard));
    assert!(queue.has_work(at(1)));
    assert!(matches!(queue.get(at(1), true, &mut shard), Get::Again));
    shard.no_dead_letters = false;
    work(&mut queue, at(1), &mut shard);
    assert_eq!(shard.dead(), [(0, Reason::Expired)]);
}

#[test]
fn a_full_queue_drops_its_oldest_ready_messages_in_order() {
    let settings = QueueSettings { max_length: Some(2), ..with_dead_letters() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    publish(&mut queue, 1, &mut shard);
    get(&mut queue, START, &mut shard).unwrap();
    publish(&mut queue, 4, &mut shard);
    assert_eq!(shard.dead(), [(1, Reason::MaxLength), (2, Reason::MaxLength)]);
    assert_eq!((queue.ready(), queue.unacked()), (2, 1));
}

#[test]
fn bytes_are_limited_too_and_zero_is_a_limit() {
    let settings = QueueSettings { max_length_bytes: Some(10), ..QueueSettings::default() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    for bytes in [4, 4, 4, 11] {
        let message = Message { bytes, ..MESSAGE };
        let _ = offer(&mut queue, START, &message, &mut shard);
    }
    assert_eq!((queue.ready(), queue.ready_bytes()), (0, 0));
    assert!(shard.pool.is_empty());
    queue.reconfigure(START, &QueueSettings { max_length: Some(0), ..QueueSettings::default() });
    publish(&mut queue, 1, &mut shard);
    assert!(queue.is_empty());
    queue.subscribe(START, consumer(1)).unwrap();
    publish(&mut queue, 1, &mut shard);
    assert_eq!(shard.delivered(), [(1, 5)]);
}

#[test]
fn a_large_message_pushes_a_long_backlog_out_in_slices() {
    let settings = QueueSettings { max_length_bytes: Some(5000), ..QueueSettings::default() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    publish(&mut queue, 5000, &mut shard);
    let message = Message { bytes: 5000, ..MESSAGE };
    let _ = offer(&mut queue, START, &message, &mut shard);
    assert!(shard.log.len() <= DROPS_AT_ONCE_MAX);
    work(&mut queue, START, &mut shard);
    assert_eq!((queue.ready(), queue.ready_bytes()), (1, 5000));
}

#[test]
fn a_full_queue_may_refuse_instead_of_dropping() {
    let mut settings = QueueSettings {
        max_length: Some(1),
        overflow: Overflow::RejectPublish,
        ..with_dead_letters()
    };
    for overflow in [Overflow::RejectPublish, Overflow::RejectPublishDlx] {
        settings.overflow = overflow;
        let (mut queue, mut shard) = (queue(&settings), Shard::default());
        publish(&mut queue, 1, &mut shard);
        let result = offer(&mut queue, START, &MESSAGE, &mut shard);
        assert_eq!(result, Enqueued::Rejected);
        assert_eq!(queue.ready(), 1);
        let dead_lettered = overflow == Overflow::RejectPublishDlx;
        assert_eq!(shard.dead().len(), usize::from(dead_lettered));
        assert_eq!(shard.pool.len(), 1);
        // A requeue is never refused and drops nothing.
        let delivery = get(&mut queue, START, &mut shard).unwrap();
        publish(&mut queue, 1, &mut shard);
        settle(&mut queue, delivery, Outcome::Requeue, &mut shard);
        assert_eq!(queue.ready(), 2);
    }
}

#[test]
fn what_is_about_to_be_delivered_takes_no_room() {
    let settings = QueueSettings { max_length: Some(1), ..QueueSettings::default() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    publish(&mut queue, 1, &mut shard);
    queue.subscribe(START, consumer(1)).unwrap();
    publish(&mut queue, 1, &mut shard);
    assert_eq!(shard.delivered(), [(1, 0), (1, 1)]);
}

#[test]
fn a_lowered_limit_is_applied_by_the_next_slice() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    publish(&mut queue, 10, &mut shard);
    queue.reconfigure(START, &QueueSettings { max_length: Some(4), ..with_dead_letters() });
    assert!(queue.has_work(START));
    work(&mut queue, START, &mut shard);
    assert_eq!(queue.ready(), 4);
    assert_eq!(shard.dead().first(), Some(&(0, Reason::MaxLength)));
}

#[test]
fn higher_priorities_leave_first_and_are_capped() {
    let settings = QueueSettings { max_priority: Some(5), ..QueueSettings::default() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    for priority in [0, 5, 3, 200, 5] {
        let message = Message { priority, ..MESSAGE };
        let _ = offer(&mut queue, START, &message, &mut shard);
    }
    let taken = get_all(&mut queue, &mut shard);
    assert_eq!(seqs(&taken), [1, 3, 4, 2, 0]);
    for delivery in taken {
        settle(&mut queue, delivery, Outcome::Requeue, &mut shard);
    }
    assert_eq!(seqs(&get_all(&mut queue, &mut shard)), [1, 3, 4, 2, 0]);
}

#[test]
fn a_queue_without_priorities_ignores_them() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    for priority in [0, 9] {
        let message = Message { priority, ..MESSAGE };
        let _ = offer(&mut queue, START, &message, &mut shard);
    }
    assert_eq!(seqs(&get_all(&mut queue, &mut shard)), [0, 1]);
}

#[test]
fn a_message_that_came_back_too_often_is_dead_lettered() {
    let settings = QueueSettings { delivery_limit: Some(1), ..with_dead_letters() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    publish(&mut queue, 1, &mut shard);
    for count in 0..2 {
        let delivery = get(&mut queue, START, &mut shard).unwrap();
        assert_eq!(delivery.delivery_count, count);
        settle(&mut queue, delivery, Outcome::Requeue, &mut shard);
    }
    assert_eq!(shard.dead(), [(0, Reason::DeliveryLimit)]);
    assert!(queue.is_empty());
}

#[test]
fn a_rejected_message_is_dead_lettered_or_dropped() {
    for (settings, expected) in [
        (with_dead_letters(), Event::Dead(0, Reason::Rejected)),
        (QueueSettings::default(), Event::Gone(0)),
    ] {
        let (mut queue, mut shard) = (queue(&settings), Shard::default());
        publish(&mut queue, 1, &mut shard);
        let delivery = get(&mut queue, START, &mut shard).unwrap();
        settle(&mut queue, delivery, Outcome::Reject, &mut shard);
        assert_eq!(shard.log, [expected]);
        assert!(shard.pool.is_empty());
    }
}

#[test]
fn purge_counts_and_drops_only_what_is_ready() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    publish(&mut queue, 100, &mut shard);
    let delivery = get(&mut queue, START, &mut shard).unwrap();
    assert_eq!(queue.purge(&mut shard), 99);
    assert_eq!((queue.ready(), queue.unacked()), (0, 1));
    assert_eq!(shard.pool.len(), 100);
    assert!(queue.work(START, (10, 10), &mut shard));
    assert_eq!(shard.pool.len(), 90);
    publish(&mut queue, 1, &mut shard);
    work(&mut queue, START, &mut shard);
    assert!(!queue.has_work(START));
    assert_eq!(shard.pool.len(), 2);
    settle(&mut queue, delivery, Outcome::Requeue, &mut shard);
    assert_eq!(seqs(&get_all(&mut queue, &mut shard)), [0, 100]);
    assert_eq!(queue.purge(&mut shard), 0);
}

#[test]
fn an_unused_queue_expires_and_use_renews_its_lease() {
    let settings =
        QueueSettings { expires: Some(Duration::from_millis(100)), ..QueueSettings::default() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    assert_eq!(queue.next_timeout(), at(100).instant);
    publish(&mut queue, 1, &mut shard);
    queue.touch(at(50));
    assert_eq!(queue.next_timeout(), at(150).instant);
    get(&mut queue, at(80), &mut shard).unwrap();
    assert!(!queue.is_lease_over(at(179)));
    let handle = queue.subscribe(START, consumer(1)).unwrap();
    assert!(!queue.is_lease_over(at(5000)));
    assert_eq!(queue.next_timeout(), Instant::NEVER);
    queue.cancel(at(5000), handle).unwrap();
    assert!(!queue.is_lease_over(at(5099)));
    assert!(queue.is_lease_over(at(5100)));
}

#[test]
fn an_auto_delete_queue_is_due_only_after_it_had_a_consumer() {
    let mut queue = Queue::new(START, &QueueSettings::default(), true, false);
    assert!(!queue.auto_delete_due());
    let first = queue.subscribe(START, consumer(1)).unwrap();
    let second = queue.subscribe(START, consumer(2)).unwrap();
    queue.cancel(START, first).unwrap();
    assert!(!queue.auto_delete_due());
    queue.cancel(START, second).unwrap();
    assert!(queue.auto_delete_due());
}

#[test]
fn a_get_without_acknowledgement_hands_the_entry_over() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    publish(&mut queue, 3, &mut shard);
    let Get::Message(got) = queue.get(START, true, &mut shard) else {
        panic!("three messages are ready");
    };
    assert_eq!((got.delivery.slot, got.remaining), (NO_SLOT, 2));
    shard.discard(got.taken.unwrap());
    assert_eq!((queue.unacked(), shard.pool.len()), (0, 2));
}

#[test]
fn a_deleted_queue_names_its_consumers_and_releases_everything() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    queue.subscribe(START, with_prefetch(1, 7)).unwrap();
    publish(&mut queue, 20, &mut shard);
    let mut deleted = queue.delete();
    assert_eq!(deleted.ready, 13);
    assert_eq!(deleted.consumers.step().map(|consumer| consumer.key.consumer), Some(1));
    assert!(deleted.consumers.is_empty());
    work(&mut queue, START, &mut shard);
    assert!(shard.pool.is_empty());
    let (_, slot, seq) = shard.out[0];
    assert!(!queue.settle(START, slot, seq, Outcome::Ack, &mut shard));
}

#[test]
fn an_idle_queue_is_small_also_after_a_backlog() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    assert!(queue.memory_bytes() <= 48);
    publish(&mut queue, 50_000, &mut shard);
    let handle = queue.subscribe(START, consumer(1)).unwrap();
    dispatch(&mut queue, START, &mut shard);
    for (_, slot, seq) in core::mem::take(&mut shard.out) {
        assert!(queue.settle(START, slot, seq, Outcome::Ack, &mut shard));
    }
    queue.cancel(START, handle).unwrap();
    assert!(queue.memory_bytes() < 64 * 1024);
    queue.trim();
    assert!(queue.memory_bytes() <= 296);
}

/// While the last slot of a long table is in use nothing behind it can be given back, and attempts get rare.
#[test]
fn an_idle_queue_gives_back_what_the_last_delivery_held() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    publish(&mut queue, 50_000, &mut shard);
    queue.subscribe(START, consumer(1)).unwrap();
    dispatch(&mut queue, START, &mut shard);
    let mut out = core::mem::take(&mut shard.out);
    let last = out.pop().unwrap();
    let next = out.pop().unwrap();
    for &(_, slot, seq) in &out[9..] {
        assert!(queue.settle(START, slot, seq, Outcome::Ack, &mut shard));
    }
    assert!(queue.settle(START, last.1, last.2, Outcome::Ack, &mut shard));
    assert!(queue.memory_bytes() > 1_000_000);
    queue.trim();
    assert!(queue.settle(START, next.1, next.2, Outcome::Ack, &mut shard));
    assert!(queue.memory_bytes() < 64 * 1024, "{} bytes", queue.memory_bytes());
}

#[test]
fn find_knows_a_consumer_by_its_key() {
    let mut queue = plain();
    let handle = queue.subscribe(START, consumer(1)).unwrap();
    assert_eq!(queue.find(&consumer(1).key), Some(handle));
    assert_eq!(queue.find(&consumer(2).key), None);
    assert_eq!(&*queue.consumer(handle).unwrap().tag, "tag");
}
