//! The same queue, written as naively as possible, and random operations against both.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use lepus_base::Rng;

use super::*;
use crate::QueueKind;

struct Waiting {
    seq: u64,
    deadline: u64,
    bytes: u64,
    priority: u8,
    count: u32,
    was_out: bool,
}

#[derive(Default)]
struct Model {
    settings: QueueSettings,
    now: u64,
    next_seq: u64,
    /// In the order in which they leave.
    ready: Vec<Waiting>,
    /// With the name of the consumer, 0 for `basic.get`.
    unacked: Vec<(u32, Waiting)>,
    consumers: Vec<Consumer>,
    /// Consumers whose turn may come, and those that were refused by the sink.
    turns: Vec<u32>,
    parked: BTreeSet<u32>,
    blocked: BTreeSet<u32>,
    active: Option<u32>,
    log: Vec<Event>,
}

impl Model {
    fn consumer(&mut self, name: u32) -> Option<&mut Consumer> {
        self.consumers.iter_mut().find(|c| c.key.consumer == name)
    }
    fn is_able(&mut self, name: u32) -> bool {
        let parked = self.parked.contains(&name);
        self.consumer(name).is_some_and(|c| !parked && c.has_room())
    }
    /// Keeps `turns` to those that are able; with a single active consumer to those that wait.
    fn refresh(&mut self, name: u32) {
        let should = match self.settings.single_active_consumer {
            true => self.active != Some(name) && self.consumer(name).is_some(),
            false => self.is_able(name),
        };
        match (should, self.turns.contains(&name)) {
            (true, false) => self.turns.push(name),
            (false, true) => self.turns.retain(|&other| other != name),
            _ => {}
        }
    }
    fn first(&mut self) -> Option<u32> {
        let names = self.turns.clone();
        let priorities = names.iter().map(|&name| self.consumer(name).unwrap().priority);
        let priorities: Vec<i32> = priorities.collect();
        let best = *priorities.iter().max()?;
        Some(names[priorities.iter().position(|&p| p == best)?])
    }
    fn pick(&mut self) -> Option<u32> {
        loop {
            let name = match self.settings.single_active_consumer {
                true => self.active.filter(|&name| self.is_able(name))?,
                false => self.first()?,
            };
            if !self.blocked.contains(&name) {
                return Some(name);
            }
            self.parked.insert(name);
            self.refresh(name);
        }
    }
    fn deliver(&mut self, name: u32, message: Waiting) {
        let (seq, count, was_out) = (message.seq, message.count, message.was_out);
        self.log.push(Event::Delivered(name, seq, was_out, count));
        let consumer = self.consumer(name).unwrap();
        if !consumer.no_ack {
            consumer.in_flight += 1;
            self.unacked.push((name, message));
        }
        if self.active != Some(name) {
            self.turns.retain(|&other| other != name);
            self.refresh(name);
        }
    }
    fn lose(&mut self, message: &Waiting, reason: Reason) {
        self.log.push(match self.settings.dead_letter_exchange {
            Some(_) => Event::Dead(message.seq, reason),
            None => Event::Gone(message.seq),
        });
    }
    fn insert(&mut self, message: Waiting) {
        let order = |m: &Waiting| (255 - m.priority, m.seq);
        let place = self.ready.partition_point(|m| order(m) < order(&message));
        self.ready.insert(place, message);
    }
    fn is_over(&self, count: usize, bytes: u64) -> bool {
        let sum: u64 = self.ready.iter().map(|m| m.bytes).sum();
        let (length, size) = (self.settings.max_length, self.settings.max_length_bytes);
        length.is_some_and(|max| (self.ready.len() + count) as u64 > max)
            || size.is_some_and(|max| sum + bytes > max)
    }
    fn expire(&mut self) {
        while self.ready.first().is_some_and(|m| m.deadline <= self.now) {
            let message = self.ready.remove(0);
            self.lose(&message, Reason::Expired);
        }
    }
    fn drop_excess(&mut self) {
        while self.settings.overflow == Overflow::DropHead && self.is_over(0, 0) {
            let message = self.ready.remove(0);
            self.lose(&message, Reason::MaxLength);
        }
    }
    fn work(&mut self) {
        loop {
            self.expire();
            if self.ready.is_empty() {
                return;
            }
            let Some(name) = self.pick() else { return };
            let message = self.ready.remove(0);
            self.deliver(name, message);
        }
    }
    fn enqueue(&mut self, bytes: u64, priority: u8, ttl: Option<u64>) -> Enqueued {
        let queue_ttl = self.settings.message_ttl.map(|ttl| ttl.as_millis() as u64);
        let ttl = [queue_ttl, ttl].into_iter().flatten().min();
        let reject = self.settings.overflow != Overflow::DropHead && self.is_over(1, bytes);
        let silent = reject && self.settings.overflow == Overflow::RejectPublish;
        if silent || (reject && self.settings.dead_letter_exchange.is_none()) {
            return Enqueued::Rejected;
        }
        let message = Waiting {
            seq: self.next_seq,
            deadline: ttl.map_or(u64::MAX, |ttl| self.now + ttl),
            bytes,
            priority: priority.min(self.settings.max_priority.unwrap_or(0)),
            count: 0,
            was_out: false,
        };
        self.next_seq += 1;
        if reject {
            self.lose(&message, Reason::MaxLength);
            return Enqueued::Rejected;
        }
        let name = if self.ready.is_empty() { self.pick() } else { None };
        match name {
            Some(name) => self.deliver(name, message),
            None => {
                self.insert(message);
                self.expire();
                self.drop_excess();
            }
        }
        Enqueued::Accepted
    }
    fn settle(&mut self, index: usize, outcome: Outcome) {
        let (name, mut message) = self.unacked.remove(index);
        if let Some(consumer) = self.consumer(name) {
            consumer.in_flight -= 1;
            self.refresh(name);
        }
        message.was_out = true;
        message.count += u32::from(outcome != Outcome::Return);
        let limit = self.settings.delivery_limit.unwrap_or(u32::MAX);
        match outcome {
            Outcome::Ack => self.log.push(Event::Gone(message.seq)),
            Outcome::Reject => self.lose(&message, Reason::Rejected),
            Outcome::Requeue if message.count > limit => self.lose(&message, Reason::DeliveryLimit),
            Outcome::Requeue | Outcome::Return => self.insert(message),
        }
        self.drop_excess();
    }
    fn leave(&mut self, name: u32) {
        self.consumers.retain(|c| c.key.consumer != name);
        self.turns.retain(|&other| other != name);
        self.parked.remove(&name);
        if self.active == Some(name) {
            self.active = self.first();
            self.turns.retain(|&other| Some(other) != self.active);
        }
    }
}

impl Consumer {
    fn has_room(&self) -> bool {
        self.no_ack || self.prefetch == 0 || self.in_flight < self.prefetch
    }
}

fn random_settings(rng: &mut Rng) -> QueueSettings {
    let overflows = [
        Overflow::DropHead,
        Overflow::DropHead,
        Overflow::RejectPublish,
        Overflow::RejectPublishDlx,
    ];
    QueueSettings {
        message_ttl: (rng.chance(1, 4)).then(|| Duration::from_millis(rng.below(20))),
        max_length: rng.chance(1, 4).then(|| rng.below(6)),
        max_length_bytes: rng.chance(1, 4).then(|| rng.below(20)),
        overflow: overflows[rng.below(4) as usize],
        dead_letter_exchange: rng.chance(1, 2).then(|| "dlx".into()),
        max_priority: rng.chance(1, 3).then(|| rng.below(70) as u8),
        single_active_consumer: rng.chance(1, 4),
        delivery_limit: rng.chance(1, 4).then(|| rng.below(3) as u32),
        kind: QueueKind::Quorum,
        ..QueueSettings::default()
    }
}

/// Both sides, and the means to let one operation happen to both.
struct Pair {
    model: Model,
    queue: Queue,
    shard: Shard,
    /// Unsettled deliveries, oldest first: consumer, slot, message.
    out: Vec<(u32, u32, u64)>,
    handles: Vec<(u32, ConsumerHandle)>,
    next_name: u32,
}

impl Pair {
    fn now(&self) -> Now {
        at(self.model.now)
    }

    fn publish(&mut self, rng: &mut Rng) {
        let message = Message {
            bytes: rng.below(5) as usize,
            priority: rng.below(100) as u8,
            ttl: rng.chance(1, 5).then(|| rng.below(10)),
        };
        let expected = (self.model).enqueue(message.bytes as u64, message.priority, message.ttl);
        let now = self.now();
        let result = offer(&mut self.queue, now, &message, &mut self.shard);
        assert_eq!(result, expected);
    }

    fn settle(&mut self, rng: &mut Rng) {
        if self.out.is_empty() {
            return;
        }
        let index = rng.below(self.out.len() as u64) as usize;
        let outcome = match rng.below(6) {
            0 | 1 => Outcome::Ack,
            2 => Outcome::Reject,
            3 => Outcome::Return,
            _ => Outcome::Requeue,
        };
        let (_, slot, seq) = self.out.remove(index);
        let place = (self.model.unacked.iter().position(|(_, m)| m.seq == seq)).unwrap();
        self.model.settle(place, outcome);
        let now = self.now();
        assert!((self.queue).settle(now, slot, seq, outcome, &mut self.shard));
        assert!(!(self.queue).settle(now, slot, seq, outcome, &mut self.shard));
    }

    fn get(&mut self, rng: &mut Rng) {
        let no_ack = rng.chance(1, 2);
        let now = self.now();
        let Get::Message(got) = self.queue.get(now, no_ack, &mut self.shard) else {
            assert!(self.model.ready.is_empty());
            return;
        };
        let message = self.model.ready.remove(0);
        assert_eq!(got.delivery.seq, message.seq);
        assert_eq!(got.remaining, self.model.ready.len() as u64);
        if let Some(entry) = got.taken {
            self.model.log.push(Event::Gone(entry.seq));
            self.shard.discard(entry);
        } else {
            self.model.unacked.push((0, message));
            self.out.push((0, got.delivery.slot, got.delivery.seq));
        }
    }

    fn join(&mut self, rng: &mut Rng) {
        self.next_name += 1;
        let name = self.next_name;
        let consumer = Consumer {
            no_ack: rng.chance(1, 4),
            priority: rng.below(3) as i32 - 1,
            ..with_prefetch(name, rng.below(4) as u32)
        };
        let handle = self.queue.subscribe(START, consumer.clone()).unwrap();
        self.handles.push((name, handle));
        self.model.consumers.push(consumer);
        if self.model.settings.single_active_consumer && self.model.active.is_none() {
            self.model.active = Some(name);
        }
        self.model.refresh(name);
    }

    fn leave(&mut self, rng: &mut Rng) {
        if self.handles.is_empty() {
            return;
        }
        let index = rng.below(self.handles.len() as u64) as usize;
        let (name, handle) = self.handles.remove(index);
        self.model.leave(name);
        self.model.blocked.remove(&name);
        let now = self.now();
        assert!(self.queue.cancel(now, handle).is_some());
        assert!(self.queue.cancel(now, handle).is_none());
    }

    fn block_or_resume(&mut self, rng: &mut Rng) {
        if self.handles.is_empty() {
            return;
        }
        let (name, handle) = self.handles[rng.below(self.handles.len() as u64) as usize];
        if self.model.blocked.remove(&name) {
            self.queue.resume(handle);
            if self.model.parked.remove(&name) {
                self.model.refresh(name);
            }
        } else {
            self.model.blocked.insert(name);
        }
    }

    fn purge(&mut self) {
        let count = self.model.ready.len() as u64;
        self.model.ready.clear();
        assert_eq!(self.queue.purge(&mut self.shard), count);
        let seen = self.shard.log.len();
        let now = self.now();
        work(&mut self.queue, now, &mut self.shard);
        assert_eq!((self.shard.log.len() - seen) as u64, count);
        self.shard.log.truncate(seen);
    }

    fn step(&mut self, rng: &mut Rng) {
        self.shard.blocked.clone_from(&self.model.blocked);
        match rng.below(100) {
            0..40 => self.publish(rng),
            40..65 => self.settle(rng),
            65..75 => self.get(rng),
            75..80 => self.join(rng),
            80..84 => self.leave(rng),
            84..91 => self.block_or_resume(rng),
            91..92 => self.purge(),
            _ => self.model.now += rng.below(8),
        }
        self.shard.blocked.clone_from(&self.model.blocked);
        self.model.work();
        let (now, budget) = (self.now(), 1 + rng.below(4) as usize);
        while self.queue.work(now, (budget, budget), &mut self.shard) {}
        self.out.append(&mut self.shard.out);
        self.compare();
    }

    fn compare(&mut self) {
        assert_eq!(self.shard.log, self.model.log);
        self.shard.log.clear();
        self.model.log.clear();
        let (queue, model) = (&self.queue, &self.model);
        assert_eq!(queue.ready(), model.ready.len() as u64);
        assert_eq!(queue.unacked(), model.unacked.len() as u64);
        let bytes: u64 = model.ready.iter().map(|m| m.bytes).sum();
        assert_eq!(queue.ready_bytes(), bytes);
        let bytes: u64 = model.unacked.iter().map(|(_, m)| m.bytes).sum();
        assert_eq!(queue.unacked_bytes(), bytes);
        assert_eq!(queue.consumer_count() as usize, model.consumers.len());
        let deadline = model.ready.first().map_or(u64::MAX, |m| m.deadline);
        let deadline = if deadline == u64::MAX { Instant::NEVER } else { at(deadline).instant };
        assert_eq!(queue.next_timeout(), deadline);
        assert!(!queue.has_work(self.now()));
        assert_eq!(self.shard.pool.len() as u64, queue.ready() + queue.unacked());
    }
}

#[test]
fn a_queue_behaves_like_its_model_whatever_happens() {
    for seed in 0..4000 {
        let mut rng = Rng::new(seed);
        let settings = random_settings(&mut rng);
        let mut pair = Pair {
            queue: queue(&settings),
            model: Model { settings, ..Model::default() },
            shard: Shard::default(),
            out: Vec::new(),
            handles: Vec::new(),
            next_name: 0,
        };
        for _ in 0..100 {
            pair.step(&mut rng);
        }
        let _ = pair.queue.delete();
        let now = pair.now();
        work(&mut pair.queue, now, &mut pair.shard);
        assert!(pair.shard.pool.is_empty(), "seed {seed}");
    }
}
