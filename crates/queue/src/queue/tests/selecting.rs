//! Consumers with filters: who gets what, and in which order, whatever else happens.

use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_base::{HashState, Rng};
use lepus_filter::{BodyFormat, Filter, Limits};

use super::*;

/// The filters of these tests look at the size of a message.
pub(super) fn filter(text: &str) -> Option<Arc<ConsumerFilter>> {
    let filter = Filter::parse(text, &Limits::default()).expect("it is a filter");
    let format = BodyFormat::None;
    Some(Arc::new(ConsumerFilter { filter, format, hash: HashState::default() }))
}

pub(super) fn with_filter(name: u32, text: &str) -> Consumer {
    Consumer { filter: filter(text), ..consumer(name) }
}

fn send(queue: &mut Queue, bytes: usize, shard: &mut Shard) {
    let message = Message { bytes, ..MESSAGE };
    assert_eq!(offer(queue, START, &message, shard), Enqueued::Accepted);
}

#[test]
fn a_message_goes_to_a_consumer_whose_filter_it_matches_and_stays_where_there_is_none() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    queue.subscribe(START, with_filter(1, "m.size = 1")).unwrap();
    queue.subscribe(START, with_filter(2, "m.size = 2")).unwrap();
    for bytes in [3, 2, 1, 3, 1, 2] {
        send(&mut queue, bytes, &mut shard);
    }
    dispatch(&mut queue, START, &mut shard);
    let mut delivered = shard.delivered();
    delivered.sort_unstable();
    assert_eq!(delivered, [(1, 2), (1, 4), (2, 1), (2, 5)]);
    assert_eq!((queue.ready(), queue.unacked(), queue.passed_over()), (2, 4, 2));
    // Whoever wants everything, or something else, finds what others passed, and basic.get as well.
    assert_eq!(get(&mut queue, START, &mut shard).unwrap().seq, 0);
    let three = queue.subscribe(START, with_filter(3, "m.size = 3")).unwrap();
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(3, 3)]);
    assert_eq!((queue.ready(), queue.passed_over()), (0, 0));
    assert!(queue.cancel(START, three).is_some());
}

#[test]
fn without_filters_a_queue_delivers_at_once_again() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    let filtered = queue.subscribe(START, with_filter(1, "m.size = 2")).unwrap();
    let plain = queue.subscribe(START, consumer(2)).unwrap();
    send(&mut queue, 1, &mut shard);
    assert!(shard.delivered().is_empty(), "filters are asked by a dispatch");
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(2, 0)]);
    assert!(queue.cancel(START, plain).is_some());
    send(&mut queue, 1, &mut shard);
    dispatch(&mut queue, START, &mut shard);
    assert!(queue.cancel(START, filtered).is_some());
    assert_eq!((queue.passed_over(), queue.consumer_count()), (1, 0));
    queue.subscribe(START, consumer(3)).unwrap();
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(3, 1)]);
    send(&mut queue, 1, &mut shard);
    assert_eq!(shard.delivered(), [(3, 2)]);
}

#[test]
fn what_comes_back_is_offered_again_at_its_place() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    queue.subscribe(START, Consumer { prefetch: 1, ..with_filter(1, "m.size = 1") }).unwrap();
    queue.subscribe(START, Consumer { prefetch: 1, ..with_filter(2, "m.size >= 1") }).unwrap();
    for bytes in [1, 1, 2, 1] {
        send(&mut queue, bytes, &mut shard);
    }
    dispatch(&mut queue, START, &mut shard);
    let first = shard.out.remove(0);
    assert_eq!((shard.delivered(), first.2), (vec![(1, 0), (2, 1)], 0));
    assert!(queue.settle(START, first.1, first.2, Outcome::Requeue, &mut shard));
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(1, 0)]);
    assert_eq!(queue.ready(), 2);
}

#[test]
fn a_selector_without_credit_is_behind_by_what_it_has_not_looked_at() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    queue.subscribe(START, Consumer { prefetch: 1, ..with_filter(1, "m.size = 1") }).unwrap();
    let behind = |queue: &Queue| {
        let found = queue.selectors().distances();
        found.map(|(_, distance)| (distance.behind, distance.waiting)).collect::<Vec<_>>()
    };
    let is_through = |queue: &Queue| queue.selectors().distances().all(|(_, at)| at.is_through);
    assert_eq!((behind(&queue), is_through(&queue)), (vec![(0, 0)], true));
    for _ in 0..5 {
        send(&mut queue, 1, &mut shard);
    }
    assert_eq!(behind(&queue), [(5, 0)]);
    dispatch(&mut queue, START, &mut shard);
    assert_eq!((behind(&queue), shard.delivered()), (vec![(4, 0)], vec![(1, 0)]));
    assert!(!is_through(&queue));
}

#[test]
fn a_selector_is_through_once_it_has_looked_at_every_level() {
    let settings = QueueSettings { max_priority: Some(30), ..QueueSettings::default() };
    let (mut queue, mut shard) = (queue(&settings), Shard::default());
    queue.subscribe(START, with_filter(1, "m.size = 1")).unwrap();
    for priority in 0..30 {
        let message = Message { priority, bytes: 2, ..MESSAGE };
        assert_eq!(offer(&mut queue, START, &message, &mut shard), Enqueued::Accepted);
    }
    dispatch(&mut queue, START, &mut shard);
    let through = |queue: &Queue, place| queue.selectors().distances().nth(place).unwrap().1;
    assert!(through(&queue, 0).is_through, "it has passed all of them over");
    queue.subscribe(START, with_filter(2, "m.size = 3")).unwrap();
    let mut steps = 0;
    while !through(&queue, 1).is_through {
        assert!(queue.wants_dispatch());
        let _ = queue.dispatch(START, 1, &mut shard);
        steps += 1;
    }
    assert!(steps > 16, "as many levels as there are are looked at: {steps}");
    assert_eq!(through(&queue, 1), Distance { behind: 0, waiting: 0, is_through: true });
}

#[test]
fn one_filter_too_many_is_refused_and_nothing_is_changed() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    for number in 0..63 {
        queue.subscribe(START, with_filter(number, &alloc::format!("m.size = {number}"))).unwrap();
    }
    let refused = queue.subscribe(START, with_filter(64, "m.size = 64"));
    assert!(matches!(refused, Err(SubscribeError::Filter(_))), "{refused:?}");
    queue.subscribe(START, with_filter(65, "m.size = 62")).unwrap();
    queue.subscribe(START, consumer(66)).unwrap();
    assert_eq!(queue.consumer_count(), 65);
    send(&mut queue, 64, &mut shard);
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(66, 0)]);
}

#[test]
fn no_selector_waits_for_another_and_what_each_remembers_is_bounded() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    // The first one has no credit any more; the second one goes on through many more than it remembers.
    queue.subscribe(START, Consumer { prefetch: 1, ..with_filter(1, "m.size = 1") }).unwrap();
    queue.subscribe(START, with_filter(2, "m.size = 2")).unwrap();
    let count = 40_000;
    for _ in 0..count {
        send(&mut queue, 1, &mut shard);
        dispatch(&mut queue, START, &mut shard);
    }
    send(&mut queue, 2, &mut shard);
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(1, 0), (2, count)]);
    for expected in 1..count {
        let (_, slot, seq) =
            shard.out.iter().position(|out| out.0 == 1).map(|at| shard.out.remove(at)).unwrap();
        assert!(queue.settle(START, slot, seq, Outcome::Ack, &mut shard));
        dispatch(&mut queue, START, &mut shard);
        assert_eq!(shard.delivered().last(), Some(&(1, expected)));
    }
    assert_eq!(queue.ready(), 0);
}

#[test]
fn those_who_come_one_after_the_other_go_through_a_backlog_together() {
    for dear in [0, SelectorBits::MAX] {
        go_together(dear);
    }
}

fn go_together(dear: SelectorBits) {
    let (mut queue, mut shard) = (plain(), Shard { dear, dear_steps: 5_000, ..Shard::default() });
    let (count, selectors) = (1_000, 20);
    for _ in 0..count {
        send(&mut queue, 1, &mut shard);
    }
    for number in 0..selectors {
        let filter = alloc::format!("m.size = {}", 100 + number);
        queue.subscribe(START, with_filter(number, &filter)).unwrap();
        // Each gets on for a while before the next one comes.
        for _ in 0..30 {
            let _ = queue.work(START, (3, 3), &mut shard);
        }
    }
    dispatch(&mut queue, START, &mut shard);
    let asked = shard.selected;
    // What each has looked at before the next one came, and the rest once or twice.
    assert!(asked < 4 * count, "filters were asked {asked} times about {count} messages");
    assert_eq!((queue.ready(), queue.passed_over()), (count as u64, count as u64));
    send(&mut queue, 119, &mut shard);
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(19, count as u64)]);
}

/// Whoever comes begins at the lowest message, again and again: others get on nevertheless.
#[test]
fn those_who_come_and_go_for_ever_hold_nobody_up() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    let count = 1_000;
    queue.subscribe(START, with_filter(1, "m.size = 100")).unwrap();
    for _ in 0..count {
        send(&mut queue, 1, &mut shard);
    }
    send(&mut queue, 200, &mut shard);
    dispatch(&mut queue, START, &mut shard);
    queue.subscribe(START, with_filter(2, "m.size = 200")).unwrap();
    let before = shard.selected;
    let (mut name, mut delivered) = (10, Vec::new());
    while delivered.is_empty() {
        let filter = alloc::format!("m.size = {}", 300 + name);
        let handle = queue.subscribe(START, with_filter(name, &filter)).unwrap();
        for _ in 0..30 {
            queue.dispatch(START, 3, &mut shard);
        }
        assert!(queue.cancel(START, handle).is_some());
        name += 1;
        delivered = shard.delivered();
        let asked = shard.selected - before;
        assert!(asked < 6 * count, "filters were asked {asked} times about {count} messages");
    }
    assert_eq!(delivered, [(2, count as u64)]);
}

/// Filters that take long share the time of those who catch up with the others, who do not ask them.
#[test]
fn those_with_dear_filters_take_half_of_the_time_of_those_who_catch_up() {
    let (mut queue, mut shard) = (plain(), Shard::default());
    let (count, newcomers) = (2_000, 20);
    queue.subscribe(START, with_filter(1, "m.size = 100")).unwrap();
    for _ in 0..count {
        send(&mut queue, 1, &mut shard);
    }
    send(&mut queue, 200, &mut shard);
    dispatch(&mut queue, START, &mut shard);
    // Those that come are dear, but for the last one.
    for number in 0..newcomers {
        let filter = alloc::format!("m.size = {}", 300 + number);
        queue.subscribe(START, with_filter(10 + number, &filter)).unwrap();
        shard.dear |= 1 << (2 + number);
    }
    shard.dear_steps = 20_000;
    queue.subscribe(START, with_filter(2, "m.size = 200")).unwrap();
    let before = shard.selected;
    while shard.out.is_empty() {
        let _ = queue.work(START, (3, 3), &mut shard);
    }
    assert_eq!(shard.delivered(), [(2, count)]);
    let cheap = shard.selected - before - shard.dear_selected;
    assert!(cheap as u64 <= count + 2, "{cheap}");
    // As much as the others, and what they may be ahead.
    let most = 1 + (cheap as u64 * 2 * 128 + (1 << 18)) / shard.dear_steps;
    assert!(shard.dear_selected as u64 <= most, "{} of {most}", shard.dear_selected);
    // What comes meanwhile does not ask them either, and they get it all the same.
    let asked = shard.dear_selected;
    for size in [5, 100] {
        send(&mut queue, size, &mut shard);
    }
    let dispatched = queue.dispatch(START, 100, &mut shard);
    assert!(dispatched.more && queue.wants_dispatch(), "the rest is for the queue's work");
    assert_eq!((shard.delivered(), shard.dear_selected), (vec![(1, count + 2)], asked));
    send(&mut queue, 319, &mut shard);
    dispatch(&mut queue, START, &mut shard);
    assert_eq!(shard.delivered(), [(10 + newcomers - 1, count + 3)]);
    assert_eq!(queue.passed_over(), count + 1);
}

pub(super) const FILTERS: [&str; 6] =
    ["m.size = 1", "m.size > 1", "m.size IN (0, 3)", "TRUE", "m.size < 3", "m.size = 9"];

pub(super) fn matches(filter: Option<usize>, bytes: u64) -> bool {
    match filter {
        None | Some(3) => true,
        Some(0) => bytes == 1,
        Some(1) => bytes > 1,
        Some(2) => bytes == 0 || bytes == 3,
        Some(4) => bytes < 3,
        _ => false,
    }
}

/// A message as the model knows it: it leaves in the order of the tuple's first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    level: u8,
    seq: u64,
    bytes: u64,
}

struct Customer {
    name: u32,
    filter: Option<usize>,
    handle: ConsumerHandle,
    priority: i32,
    prefetch: u32,
    no_ack: bool,
    in_flight: u32,
}

impl Customer {
    fn has_credit(&self) -> bool {
        self.no_ack || self.prefetch == 0 || self.in_flight < self.prefetch
    }
}

/// What a queue with filters promises, checked after each delivery.
struct Promise {
    queue: Queue,
    shard: Shard,
    ready: Vec<Waiting>,
    unacked: Vec<(u32, u32, Waiting)>,
    customers: Vec<Customer>,
    next_seq: u64,
    next_name: u32,
    has_priorities: bool,
    limit: Option<u64>,
    /// Filters of customers that have looked at all that was there when they came.
    caught_up: Vec<Option<usize>>,
}

impl Promise {
    fn publish(&mut self, rng: &mut Rng) {
        let message =
            Message { bytes: rng.below(5) as usize, priority: rng.below(4) as u8, ttl: None };
        assert_eq!(offer(&mut self.queue, START, &message, &mut self.shard), Enqueued::Accepted);
        let level = if self.has_priorities { 255 - message.priority } else { 255 };
        self.see_around(Waiting { level, seq: self.next_seq, bytes: message.bytes as u64 });
        self.next_seq += 1;
    }

    fn subscribe(&mut self, rng: &mut Rng) {
        self.next_name += 1;
        let (name, place) = (self.next_name, rng.chance(3, 4).then(|| rng.below(6) as usize));
        let own = Consumer {
            filter: place.and_then(|place| filter(FILTERS[place])),
            priority: rng.below(2) as i32,
            no_ack: rng.chance(1, 5),
            ..with_prefetch(name, rng.below(4) as u32)
        };
        let handle = self.queue.subscribe(START, own.clone()).unwrap();
        self.customers.push(Customer {
            name,
            filter: place,
            handle,
            priority: own.priority,
            prefetch: own.prefetch,
            no_ack: own.no_ack,
            in_flight: 0,
        });
    }

    fn cancel(&mut self, rng: &mut Rng) {
        if !self.customers.is_empty() {
            let place = rng.below(self.customers.len() as u64) as usize;
            let gone = self.customers.swap_remove(place);
            assert!(self.queue.cancel(START, gone.handle).is_some());
            let customers = &self.customers;
            let is_there = |filter: &Option<usize>| customers.iter().any(|c| c.filter == *filter);
            self.caught_up.retain(is_there);
        }
    }

    fn settle(&mut self, rng: &mut Rng) {
        if self.unacked.is_empty() {
            return;
        }
        let place = rng.below(self.unacked.len() as u64) as usize;
        let (name, slot, message) = self.unacked.swap_remove(place);
        let outcome = [Outcome::Ack, Outcome::Requeue, Outcome::Return][rng.below(3) as usize];
        if let Some(customer) = self.customers.iter_mut().find(|one| one.name == name) {
            customer.in_flight -= 1;
        }
        assert!(self.queue.settle(START, slot, message.seq, outcome, &mut self.shard));
        if outcome != Outcome::Ack {
            self.see_around(message);
        }
    }

    fn get(&mut self) {
        match get(&mut self.queue, START, &mut self.shard) {
            None => assert!(self.ready.is_empty()),
            Some(delivery) => {
                let message = self.ready.remove(0);
                assert_eq!(message.seq, delivery.seq, "the first one, whatever filters say");
                self.unacked.push((0, delivery.slot, message));
            }
        }
    }

    fn block(&mut self, rng: &mut Rng) {
        if self.customers.is_empty() {
            return;
        }
        let one = &self.customers[rng.below(self.customers.len() as u64) as usize];
        if self.shard.blocked.remove(&one.name) {
            self.queue.resume(one.handle);
        } else {
            self.shard.blocked.insert(one.name);
        }
    }

    /// The first message that a customer wants.
    fn first_of(&self, customer: &Customer) -> Option<Waiting> {
        let mut wanted = self.ready.iter().filter(|one| matches(customer.filter, one.bytes));
        wanted.next().copied()
    }

    fn see_delivery(&mut self, name: u32, seq: u64) {
        let place = self.customers.iter().position(|one| one.name == name).unwrap();
        let customer = &self.customers[place];
        let message = self.first_of(customer);
        let message = message.unwrap_or_else(|| panic!("{seq} is not what {name} wants"));
        assert_eq!(message.seq, seq, "{name} gets the first one that it wants");
        assert!(customer.has_credit() && !self.shard.blocked.contains(&name));
        // Nobody of a higher priority could have had it.
        for other in &self.customers {
            assert!(
                other.priority <= customer.priority
                    || !other.has_credit()
                    || !self.caught_up.contains(&other.filter)
                    || self.shard.blocked.contains(&other.name)
                    || self.first_of(other) != Some(message),
                "{} goes before {name}",
                other.name
            );
        }
        self.ready.retain(|one| one.seq != seq);
        let customer = &mut self.customers[place];
        if !customer.no_ack {
            customer.in_flight += 1;
            let out = self.shard.out.iter().position(|out| out.2 == seq).unwrap();
            let (_, slot, _) = self.shard.out.remove(out);
            self.unacked.push((name, slot, message));
        }
    }

    /// A message came: what was delivered before that made room for it, and what went then went for it.
    fn see_around(&mut self, message: Waiting) {
        let is_before =
            |event: &Event| matches!(event, Event::Delivered(_, seq, ..) if *seq != message.seq);
        let events = core::mem::take(&mut self.shard.log);
        let before = events.iter().take_while(|event| is_before(event)).count();
        self.shard.log = events[..before].to_vec();
        self.see();
        self.ready.push(message);
        self.ready.sort_unstable();
        self.shard.log = events[before..].to_vec();
        self.see();
    }

    fn see(&mut self) {
        for event in core::mem::take(&mut self.shard.log) {
            match event {
                Event::Delivered(name, seq, ..) => self.see_delivery(name, seq),
                Event::Gone(seq) if self.ready.first().is_some_and(|one| one.seq == seq) => {
                    assert!(self.limit.is_some(), "{seq} is dropped from the head");
                    self.ready.remove(0);
                }
                Event::Gone(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..40 => self.publish(rng),
            40..68 => self.settle(rng),
            68..72 => self.get(),
            72..80 => self.subscribe(rng),
            80..86 => self.cancel(rng),
            86..92 => self.block(rng),
            92 => {
                // What is unknown to the model is seen before.
                self.see();
                let count = self.ready.len() as u64;
                assert_eq!(self.queue.purge(&mut self.shard), count);
                self.ready.clear();
            }
            _ => {}
        }
        self.see();
        let budget = 1 + rng.below(6) as usize;
        if rng.chance(1, 3) {
            let _ = self.queue.work(START, (budget, budget), &mut self.shard);
            return self.see();
        }
        while self.queue.work(START, (budget, budget), &mut self.shard) {}
        self.see();
        assert!(!self.queue.has_work(START));
        let able = self.customers.iter().filter(|one| one.has_credit());
        let able = able.filter(|one| !self.shard.blocked.contains(&one.name));
        // Who can take nothing may come to want more than it remembers.
        self.caught_up = able.map(|one| one.filter).collect();
        for customer in &self.customers {
            assert!(
                !customer.has_credit()
                    || self.shard.blocked.contains(&customer.name)
                    || self.first_of(customer).is_none(),
                "{} could have {:?}",
                customer.name,
                self.first_of(customer)
            );
        }
        assert_eq!(self.queue.ready(), self.ready.len() as u64);
        assert_eq!(self.queue.ready_bytes(), self.ready.iter().map(|one| one.bytes).sum::<u64>());
        assert_eq!(self.queue.unacked(), self.unacked.len() as u64);
    }
}

#[test]
fn each_selector_gets_its_messages_in_order_and_none_is_left_that_somebody_wants() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let (has_priorities, limit) =
            (rng.chance(1, 3), rng.chance(1, 4).then(|| 2 + rng.below(9)));
        let settings = QueueSettings {
            max_priority: has_priorities.then_some(3),
            max_length: limit,
            ..QueueSettings::default()
        };
        let dear_steps = rng.below(100_000);
        let mut promise = Promise {
            queue: queue(&settings),
            // Whoever is found to be dear gets what it would get otherwise.
            shard: Shard { dear: rng.next_u64() & rng.next_u64(), dear_steps, ..Shard::default() },
            ready: Vec::new(),
            unacked: Vec::new(),
            customers: Vec::new(),
            next_seq: 0,
            next_name: 0,
            has_priorities,
            limit,
            caught_up: Vec::new(),
        };
        for _ in 0..120 {
            promise.step(&mut rng);
        }
        let _ = promise.queue.delete();
        work(&mut promise.queue, START, &mut promise.shard);
        assert!(promise.shard.pool.is_empty(), "seed {seed}");
    }
}
