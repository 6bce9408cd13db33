//! What nobody wants is dropped after a time, and never something that somebody may want.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::Rng;

use super::selecting::{FILTERS, filter, matches, with_filter};
use super::*;

const AFTER: u64 = 100;

fn dropping(dead_letters: bool) -> Queue {
    queue(&QueueSettings {
        unmatched_after: Some(Duration::from_millis(AFTER)),
        dead_letter_exchange: dead_letters.then(|| "dead".into()),
        ..QueueSettings::default()
    })
}

fn send(queue: &mut Queue, now: Now, bytes: usize, shard: &mut Shard) {
    let message = Message { bytes, ..MESSAGE };
    assert_eq!(offer(queue, now, &message, shard), Enqueued::Accepted);
}

#[test]
fn a_message_that_no_filter_matches_becomes_a_dead_letter_while_others_wait_for_their_consumers() {
    let (mut queue, mut shard) = (dropping(true), Shard::default());
    let one = Consumer { prefetch: 1, ..with_filter(1, "m.size = 1") };
    queue.subscribe(START, one).unwrap();
    // Who has no credit looks at nothing; this one looks for both.
    queue.subscribe(START, with_filter(2, "m.size = 9")).unwrap();
    for bytes in [2, 1, 1, 3] {
        send(&mut queue, START, bytes, &mut shard);
    }
    work(&mut queue, START, &mut shard);
    assert_eq!(queue.next_timeout(), at(AFTER).instant);
    assert!(!queue.has_work(at(AFTER - 1)) && queue.has_work(at(AFTER)));
    work(&mut queue, at(AFTER), &mut shard);
    assert_eq!(shard.dead(), [(0, Reason::Unmatched), (3, Reason::Unmatched)]);
    assert_eq!((queue.ready(), queue.unacked()), (1, 1));
    assert_eq!(queue.next_timeout(), Instant::NEVER);
}

#[test]
fn time_without_consumers_does_not_count_and_whoever_comes_looks_before_a_message_goes() {
    let (mut queue, mut shard) = (dropping(false), Shard::default());
    let one = queue.subscribe(START, with_filter(1, "m.size = 1")).unwrap();
    send(&mut queue, START, 2, &mut shard);
    work(&mut queue, START, &mut shard);
    assert!(queue.cancel(at(60), one).is_some());
    assert_eq!(queue.next_timeout(), Instant::NEVER);
    work(&mut queue, at(5000), &mut shard);
    assert_eq!(queue.ready(), 1);
    queue.subscribe(at(5000), with_filter(2, "m.size = 2 AND m.size = 3")).unwrap();
    work(&mut queue, at(5039), &mut shard);
    assert_eq!((queue.ready(), queue.next_timeout()), (1, at(5040).instant));
    // One that wants it comes in the last moment.
    queue.subscribe(at(5040), with_filter(3, "m.size = 2")).unwrap();
    work(&mut queue, at(5040), &mut shard);
    assert_eq!(shard.delivered(), [(3, 0)]);
}

#[test]
fn without_dead_letters_it_is_gone_and_a_rule_that_ends_drops_nothing() {
    let (mut queue, mut shard) = (dropping(false), Shard::default());
    queue.subscribe(START, with_filter(1, "m.size = 1")).unwrap();
    send(&mut queue, START, 2, &mut shard);
    work(&mut queue, START, &mut shard);
    queue.reconfigure(at(50), &QueueSettings::default());
    work(&mut queue, at(1000), &mut shard);
    assert_eq!((queue.ready(), queue.next_timeout()), (1, Instant::NEVER));
    let settings =
        QueueSettings { unmatched_after: Some(Duration::ZERO), ..QueueSettings::default() };
    queue.reconfigure(at(1000), &settings);
    work(&mut queue, at(1000), &mut shard);
    assert_eq!((queue.ready(), shard.log), (0, vec![Event::Gone(0)]));
}

struct Waiting {
    seq: u64,
    bytes: u64,
    /// With consumers: when it came, or somebody was there that wants it.
    since: u64,
}

struct Model {
    queue: Queue,
    shard: Shard,
    now: u64,
    attended: u64,
    ready: Vec<Waiting>,
    unacked: Vec<(u32, Waiting)>,
    /// Name, filter, handle.
    customers: Vec<(u32, Option<usize>, ConsumerHandle)>,
    next_seq: u64,
    next_name: u32,
}

impl Model {
    fn wants(&self, bytes: u64) -> bool {
        self.customers.iter().any(|(_, filter, _)| matches(*filter, bytes))
    }

    fn pass_time(&mut self, millis: u64) {
        self.now += millis;
        if !self.customers.is_empty() {
            self.attended += millis;
        }
        for place in 0..self.ready.len() {
            if self.wants(self.ready[place].bytes) {
                self.ready[place].since = self.attended;
            }
        }
    }

    fn take(&mut self, seq: u64) -> Waiting {
        let place = self.ready.iter().position(|one| one.seq == seq).expect("it waits");
        self.ready.remove(place)
    }

    fn see(&mut self) {
        for event in core::mem::take(&mut self.shard.log) {
            match event {
                Event::Delivered(name, seq, ..) => {
                    let message = self.take(seq);
                    let out = self.shard.out.iter().position(|out| out.2 == seq).unwrap();
                    let (_, slot, _) = self.shard.out.remove(out);
                    assert!(self.customers.iter().any(|one| one.0 == name));
                    self.unacked.push((slot, message));
                }
                Event::Dead(seq, Reason::Unmatched) => {
                    let gone = self.take(seq);
                    assert!(!self.wants(gone.bytes) && !self.customers.is_empty());
                    assert!(gone.since + AFTER <= self.attended, "{seq} goes too early");
                }
                // An acknowledged one.
                Event::Gone(seq) => assert!(self.ready.iter().all(|one| one.seq != seq)),
                Event::Dead(..) => panic!("{event:?}"),
            }
        }
    }

    fn settle(&mut self, place: usize, outcome: Outcome) {
        let (slot, mut message) = self.unacked.swap_remove(place);
        let now = at(self.now);
        assert!(self.queue.settle(now, slot, message.seq, outcome, &mut self.shard));
        if outcome == Outcome::Requeue {
            message.since = self.attended;
            self.ready.push(message);
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..40 => {
                let bytes = rng.below(5);
                let (seq, since) = (self.next_seq, self.attended);
                self.next_seq += 1;
                self.ready.push(Waiting { seq, bytes, since });
                send(&mut self.queue, at(self.now), bytes as usize, &mut self.shard);
            }
            40..65 if !self.unacked.is_empty() => {
                let place = rng.below(self.unacked.len() as u64) as usize;
                let outcome = if rng.chance(1, 2) { Outcome::Ack } else { Outcome::Requeue };
                self.settle(place, outcome);
            }
            65..72 => {
                self.next_name += 1;
                let place = rng.below(6) as usize;
                let place = Some(place).filter(|place| *place != 3 || rng.chance(1, 4));
                let own = Consumer {
                    filter: place.and_then(|place| filter(FILTERS[place])),
                    ..with_prefetch(self.next_name, rng.below(4) as u32)
                };
                let handle = self.queue.subscribe(at(self.now), own).unwrap();
                self.customers.push((self.next_name, place, handle));
            }
            72..80 if !self.customers.is_empty() => {
                let place = rng.below(self.customers.len() as u64) as usize;
                let (_, _, handle) = self.customers.swap_remove(place);
                assert!(self.queue.cancel(at(self.now), handle).is_some());
            }
            80.. => self.pass_time(rng.below(30)),
            _ => {}
        }
        self.work(1 + rng.below(6) as usize);
    }

    fn work(&mut self, budget: usize) {
        self.see();
        while self.queue.work(at(self.now), (budget, budget), &mut self.shard) {
            self.see();
        }
        self.see();
        assert!(!self.queue.has_work(at(self.now)));
        assert_eq!(self.queue.ready(), self.ready.len() as u64);
        assert!(self.queue.next_timeout() > at(self.now).instant);
    }
}

#[test]
fn nothing_goes_too_early_and_in_the_end_all_that_nobody_wants_is_gone() {
    let mut ends = 0;
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let dear_steps = rng.below(100_000);
        let mut model = Model {
            queue: dropping(true),
            // Some look later than others, since they are dear.
            shard: Shard { dear: rng.next_u64() & rng.next_u64(), dear_steps, ..Shard::default() },
            now: 0,
            attended: 0,
            ready: Vec::new(),
            unacked: Vec::new(),
            customers: Vec::new(),
            next_seq: 0,
            next_name: 0,
        };
        for _ in 0..150 {
            model.step(&mut rng);
        }
        if model.customers.iter().all(|(_, filter, _)| filter.is_none()) {
            continue;
        }
        while !model.unacked.is_empty() {
            model.settle(0, Outcome::Ack);
            model.work(9);
        }
        model.pass_time(AFTER + AFTER / 16);
        model.work(9);
        assert!(model.ready.is_empty(), "seed {seed}: {} are left", model.ready.len());
        ends += 1;
    }
    assert!(ends > 1000, "{ends}");
}

#[test]
fn with_a_single_active_consumer_its_filter_alone_keeps_messages() {
    let mut queue = queue(&QueueSettings {
        unmatched_after: Some(Duration::from_millis(AFTER)),
        single_active_consumer: true,
        ..QueueSettings::default()
    });
    let mut shard = Shard::default();
    let active = queue.subscribe(START, with_filter(1, "m.size = 1")).unwrap();
    send(&mut queue, START, 3, &mut shard);
    work(&mut queue, START, &mut shard);
    queue.subscribe(START, with_filter(2, "m.size = 2")).unwrap();
    for bytes in [2, 3, 2] {
        send(&mut queue, START, bytes, &mut shard);
    }
    work(&mut queue, at(AFTER - 1), &mut shard);
    assert_eq!(queue.ready(), 4);
    // The next one is active before the time of the others is over, which begins anew then.
    assert!(queue.cancel(at(AFTER - 1), active).is_some());
    work(&mut queue, at(2 * AFTER - 2), &mut shard);
    assert_eq!((queue.ready(), queue.unacked()), (2, 2));
    work(&mut queue, at(2 * AFTER - 1), &mut shard);
    assert_eq!(queue.ready(), 0);
    // Nobody but the active one is asked what is to stay.
    queue.subscribe(at(2 * AFTER), with_filter(3, "m.size = 3")).unwrap();
    send(&mut queue, at(2 * AFTER), 3, &mut shard);
    work(&mut queue, at(2 * AFTER), &mut shard);
    work(&mut queue, at(3 * AFTER), &mut shard);
    assert_eq!(queue.ready(), 0);
}

#[test]
fn what_has_no_time_left_goes_while_filters_may_look_at_little() {
    let (mut queue, mut shard) = (dropping(false), Shard::default());
    queue.subscribe(START, with_filter(1, "m.size = 1")).unwrap();
    for _ in 0..500 {
        send(&mut queue, START, 2, &mut shard);
    }
    while queue.work(START, (1, 1), &mut shard) {}
    let message = Message { bytes: 2, ttl: Some(AFTER), ..MESSAGE };
    let (mut brief, mut other) = (plain(), Shard::default());
    brief.subscribe(START, with_filter(1, "m.size = 1")).unwrap();
    for _ in 0..500 {
        assert_eq!(offer(&mut brief, START, &message, &mut other), Enqueued::Accepted);
    }
    for _ in 0..2 {
        let _ = queue.work(at(AFTER), (500, 1), &mut shard);
        let _ = brief.work(at(AFTER), (500, 1), &mut other);
    }
    assert_eq!((queue.ready(), brief.ready()), (0, 0));
    // A drained level keeps room for some; no marks are left.
    assert!(queue.memory_bytes() < 16_000, "{}", queue.memory_bytes());
}
