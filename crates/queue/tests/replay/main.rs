//! What a record of commands makes of an empty queue is the queue that was recorded, whatever happened to it.

mod shard;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lepus_base::{ConnectionId, HashState, Now, Rng, ShardId};
use lepus_filter::{BodyFormat, Filter, Limits};
use lepus_queue::command::{self, Command};
use lepus_queue::message::{Incoming, MessageView};
use lepus_queue::{
    Admission, Consumer, ConsumerFilter, ConsumerHandle, ConsumerKey, Get, NoSink, Outcome,
    Overflow, Queue, QueueKind, QueueSettings, Recorder, Replay,
};

use shard::Shard;

/// Lines of one queue: how it began, and then its commands.
#[derive(Debug, Default)]
struct Lines {
    lines: Mutex<Vec<Vec<u8>>>,
    last_digest: Mutex<Option<u64>>,
}

impl Recorder for Lines {
    fn begin(&self, line: &[u8]) -> u64 {
        self.lines.lock().unwrap().push(line.to_vec());
        7
    }

    fn applied(&self, queue: u64, line: &[u8]) {
        assert_eq!(queue, 7);
        self.lines.lock().unwrap().push(line.to_vec());
    }

    fn end(&self, queue: u64, digest: u64) {
        assert_eq!(queue, 7);
        *self.last_digest.lock().unwrap() = Some(digest);
    }
}

/// A queue to which anything may happen.
struct Life {
    queue: Queue,
    shard: Shard,
    rng: Rng,
    now: Now,
    /// Its state after each command, where that is looked at.
    digests: Option<Vec<u64>>,
    handles: Vec<ConsumerHandle>,
    holds: u32,
}

fn random_settings(rng: &mut Rng) -> QueueSettings {
    let overflows = [Overflow::DropHead, Overflow::RejectPublish, Overflow::RejectPublishDlx];
    QueueSettings {
        message_ttl: rng.chance(1, 4).then(|| Duration::from_millis(rng.below(20))),
        expires: rng.chance(1, 4).then(|| Duration::from_millis(1 + rng.below(20))),
        max_length: rng.chance(1, 4).then(|| rng.below(8)),
        max_length_bytes: rng.chance(1, 4).then(|| rng.below(40)),
        overflow: overflows[rng.below(3) as usize],
        dead_letter_exchange: rng.chance(1, 2).then(|| "dlx".into()),
        at_least_once: rng.chance(1, 4),
        max_priority: rng.chance(1, 3).then(|| rng.below(70) as u8),
        single_active_consumer: rng.chance(1, 4),
        delivery_limit: rng.chance(1, 4).then(|| rng.below(3) as u32),
        kind: if rng.chance(1, 2) { QueueKind::Quorum } else { QueueKind::Classic },
        ..QueueSettings::default()
    }
}

fn random_filter(rng: &mut Rng) -> ConsumerFilter {
    let text = ["p.type = 'a'", "p.type = 'b'", "m.size > 3"][rng.below(3) as usize];
    let format = if rng.chance(1, 4) { BodyFormat::None } else { BodyFormat::Auto };
    let filter = Filter::parse(text, &Limits::default()).expect("it is a filter");
    ConsumerFilter { filter, format, hash: HashState::default() }
}

impl Life {
    fn begin(seed: u64, recorder: &Arc<dyn Recorder>, is_watched: bool) -> Life {
        let mut rng = Rng::new(seed);
        let settings =
            if rng.chance(1, 4) { QueueSettings::default() } else { random_settings(&mut rng) };
        let (now, durable) = (Now::from_millis(1000), rng.chance(1, 2));
        let mut queue = Queue::new(now, &settings, rng.chance(1, 4), durable);
        queue.record_to(now, &settings, recorder);
        let digests = is_watched.then(Vec::new);
        let shard = Shard::new(rng.next_u64(), durable || rng.chance(1, 2));
        let mut life = Life { queue, shard, rng, now, digests, handles: Vec::new(), holds: 0 };
        if durable && life.rng.chance(1, 3) {
            life.recover();
        }
        life
    }

    fn apply<C: Command>(&mut self, command: C) -> C::Effects {
        let effects = self.queue.apply(self.now, command, &mut self.shard);
        self.look();
        effects
    }

    fn look(&mut self) {
        if let Some(digests) = &mut self.digests {
            digests.push(self.queue.digest());
        }
    }

    /// An earlier run left messages in some lanes.
    fn recover(&mut self) {
        let next = 1 + self.rng.below(40);
        self.apply(command::BeginAt { seq: next });
        for priority in 0..=self.rng.below(3) as u8 {
            let (lane, count, bytes) = self.shard.fill(priority, next);
            if count > 0 {
                self.apply(command::Recover { priority, lane, count, bytes });
            }
        }
    }

    fn publish(&mut self) {
        let body = vec![b'x'; self.rng.below(12) as usize];
        let key = [b'k', self.rng.below(200) as u8];
        let view = MessageView {
            exchange: b"e",
            routing_key: &key,
            body: &body,
            ..MessageView::default()
        };
        // Some come packed, some are for other queues as well.
        let mut incoming = match self.rng.chance(1, 2) {
            true => Incoming::new(view),
            false => Incoming::from_body(view.pack(&mut self.shard.pool), body.len() as u32),
        };
        incoming.persistent = self.rng.chance(1, 2);
        incoming.priority = self.rng.below(90) as u8;
        incoming.expiration =
            self.rng.chance(1, 4).then(|| Duration::from_millis(self.rng.below(30)));
        incoming.last = self.rng.chance(1, 2);
        let (now, queue, shard) = (self.now, &mut self.queue, &mut self.shard);
        if !(incoming.persistent && queue.is_durable()) {
            let publish = command::Publish { incoming: &mut incoming };
            let _ = queue.apply(now, publish, shard);
            self.look();
        } else {
            let admission = queue.apply(now, command::Admit { incoming: &mut incoming }, shard);
            self.look();
            if let Admission::Wanted(ticket, lane) = admission {
                match self.shard.log(lane, &ticket, incoming.bytes()) {
                    Some(position) => {
                        let put = command::Put { ticket, position, incoming: &mut incoming };
                        self.queue.apply(now, put, &mut self.shard);
                    }
                    None => self.queue.apply(now, command::Withdraw { ticket }, &mut NoSink),
                }
                self.look();
            }
        }
        incoming.finish(&mut self.shard.pool);
    }

    fn settle(&mut self) {
        let outcome = [Outcome::Ack, Outcome::Reject, Outcome::Requeue][self.rng.below(3) as usize];
        let (slot, seq) = match self.rng.below(10) {
            0 => (self.rng.below(4) as u32, self.rng.below(40)),
            _ if self.shard.out.is_empty() => return,
            _ => {
                let count = self.shard.out.len() as u64;
                self.shard.out.swap_remove(self.rng.below(count) as usize)
            }
        };
        self.apply(command::Settle { slot, seq, outcome });
    }

    fn take_head(&mut self) {
        let no_ack = self.rng.chance(1, 2);
        if let Get::Message(got) = self.apply(command::TakeHead { no_ack }) {
            match got.taken {
                Some(entry) => self.apply(command::Release { entry }),
                None => self.shard.out.push((got.delivery.slot, got.delivery.seq)),
            }
        }
    }

    fn subscribe(&mut self) {
        let consumer = Consumer {
            key: ConsumerKey {
                connection: ConnectionId(self.rng.below(5)),
                channel: 1,
                consumer: self.rng.below(1000) as u32,
            },
            shard: ShardId(self.rng.below(3) as u16),
            connection_slot: self.rng.below(5) as u32,
            channel_number: 1,
            tag: "tag".into(),
            no_ack: self.rng.chance(1, 4),
            exclusive: self.rng.chance(1, 10),
            passing: self.rng.chance(1, 10),
            priority: self.rng.below(3) as i32 - 1,
            filter: self.rng.chance(1, 3).then(|| Arc::new(random_filter(&mut self.rng))),
            prefetch: self.rng.below(4) as u32,
            in_flight: 0,
        };
        let result = self.apply(command::Subscribe { consumer });
        self.handles.extend(result);
    }

    fn with_consumer(&mut self, act: impl FnOnce(&mut Life, ConsumerHandle)) {
        if !self.handles.is_empty() {
            let count = self.handles.len() as u64;
            let handle = self.handles[self.rng.below(count) as usize];
            act(self, handle);
        }
    }

    fn cancel(&mut self) {
        self.with_consumer(|life, handle| {
            life.apply(command::Cancel { handle });
            // Now and then one that left is named again.
            if life.rng.chance(7, 8) {
                life.handles.retain(|other| *other != handle);
            }
        });
    }

    fn relocate(&mut self) {
        self.with_consumer(|life, handle| {
            let (shard, slot) = (ShardId(life.rng.below(3) as u16), life.rng.below(9) as u32);
            life.apply(command::Relocate { handle, shard, slot });
        });
    }

    /// Goes to another shard, where it goes on in the same record.
    fn go_elsewhere(&mut self) {
        if self.queue.is_still() {
            self.apply(command::DetachLog {});
            self.shard.forget_log();
            let own = ShardId(self.rng.below(3) as u16);
            self.apply(command::Arrive { own, prefetch_max: 5 });
        }
    }

    fn step(&mut self) {
        let budget = 1 + self.rng.below(5) as usize;
        match self.rng.below(100) {
            0..34 => self.publish(),
            34..48 => self.settle(),
            48..54 => self.take_head(),
            54..60 => drop(self.apply(command::Dispatch { budget })),
            60..68 => drop(self.apply(command::Work { budget, looks: budget })),
            68..73 => self.apply(command::Wake {}),
            73..78 => self.subscribe(),
            78..80 => self.cancel(),
            80..83 => self.with_consumer(|life, handle| life.apply(command::Resume { handle })),
            83 => self.relocate(),
            84 => drop(self.apply(command::Purge {})),
            85 => {
                self.holds += 1;
                self.apply(command::Hold {});
            }
            86..89 if self.holds > 0 => {
                self.holds -= 1;
                self.apply(command::Unhold {});
            }
            89 => self.apply(command::Touch {}),
            90 => {
                let settings = random_settings(&mut self.rng);
                self.apply(command::Reconfigure { settings });
            }
            91 => self.apply(command::MarkUnacked {}),
            92 => self.apply(command::Trim {}),
            93 => self.apply(command::LetterSettled { bytes: budget as u32 }),
            94 => self.go_elsewhere(),
            _ => self.now = Now::from_millis(self.now.wall_millis + self.rng.below(8)),
        }
    }

    /// All that is left in the end leaves, too, and with that every message is compared.
    fn end(mut self) {
        for _ in 0..self.rng.below(30) {
            self.take_head();
        }
        let _ = self.apply(command::Delete {});
        while self.apply(command::Work { budget: 3, looks: 3 }) {}
    }
}

/// Lives a life and plays its record. How many commands there were.
fn compare(seed: u64, is_watched: bool) -> usize {
    let lines = Arc::new(Lines::default());
    let recorder: Arc<dyn Recorder> = lines.clone();
    let mut life = Life::begin(seed, &recorder, is_watched);
    for _ in 0..80 {
        life.step();
    }
    let digests = life.digests.take();
    let count = lines.lines.lock().unwrap().len() - 1;
    assert!(digests.as_ref().is_none_or(|digests| digests.len() == count), "each has its line");
    life.end();

    let record = lines.lines.lock().unwrap();
    let mut replay = Replay::begin(&record[0]).expect("it says how it began");
    for (index, line) in record[1..].iter().enumerate() {
        replay.apply(line).unwrap_or_else(|problem| panic!("seed {seed}, line {index}: {problem}"));
        if let Some(digest) = digests.as_ref().and_then(|digests| digests.get(index)) {
            assert_eq!(replay.digest(), *digest, "seed {seed}, line {index}");
        }
    }
    assert_eq!(Some(replay.digest()), *lines.last_digest.lock().unwrap(), "seed {seed}");
    record.len() - 1
}

#[test]
fn a_record_makes_the_same_queue_of_an_empty_one_step_by_step() {
    for seed in 0..60 {
        compare(seed, true);
    }
}

#[test]
fn a_record_makes_the_same_queue_of_an_empty_one_in_the_end() {
    let commands: usize = (1000..5000).map(|seed| compare(seed, false)).sum();
    assert!(commands > 200_000, "{commands} commands say little");
}

#[test]
fn lines_that_say_nothing_are_refused() {
    assert!(Replay::begin(b"").is_none());
    assert!(Replay::begin(&[7; 30]).is_none());
    let lines = Arc::new(Lines::default());
    let recorder: Arc<dyn Recorder> = lines.clone();
    drop(Life::begin(1, &recorder, false));
    let record = lines.lines.lock().unwrap();
    let mut replay = Replay::begin(&record[0]).expect("it says how it began");
    assert!(replay.apply(b"").is_err());
    assert!(replay.apply(&[0xFF; 40]).is_err());
}

#[test]
#[should_panic(expected = "the queue asks")]
fn a_line_that_is_left_out_is_noticed() {
    let lines = Arc::new(Lines::default());
    let recorder: Arc<dyn Recorder> = lines.clone();
    let mut life = Life::begin(3, &recorder, false);
    life.holds = 1;
    for _ in 0..5 {
        life.publish();
    }
    life.end();
    let record = lines.lines.lock().unwrap();
    let mut replay = Replay::begin(&record[0]).expect("it says how it began");
    for (_, line) in record[1..].iter().enumerate().filter(|(index, _)| *index != 1) {
        replay.apply(line).expect("a line");
    }
}
