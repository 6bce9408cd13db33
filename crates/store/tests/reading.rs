//! Backlogs far beyond memory: how much is read to deliver them, and how often one waits for it.

use std::collections::VecDeque;

use lepus_base::{Now, QueueId};
use lepus_store::disk::{LogId, Operations};
use lepus_store::simulation::Plain;
use lepus_store::{
    Entry, Event, Fetch, Figures, Lane, LaneSlot, Lookup, Message, Place, Settings, Store,
};

const BODY_BYTES: usize = 1024;
/// Entries of a lane in memory, and announced to the disk.
const WINDOW: usize = 64;

struct World {
    store: Store,
    disk: Plain,
    out: Operations,
    millis: u64,
    /// Where these bytes are read, the first of them is another one.
    damaged: Vec<u8>,
}

/// A lane being drained.
struct Reader {
    lane: LaneSlot,
    window: VecDeque<Entry>,
    /// Announced at last, and not yet delivered of that.
    announced: usize,
    ahead: usize,
    delivered: u64,
}

fn settings() -> Settings {
    Settings {
        segment_bytes: 1 << 20,
        cache_bytes: 2 << 20,
        spare_segments: 4,
        checkpoint_log_bytes: u64::MAX,
        index_pages_max: 4,
        ..Settings::new(LogId(1))
    }
}

fn body(queue: u64, seq: u64) -> Vec<u8> {
    vec![(queue * 31 + seq) as u8; BODY_BYTES]
}

impl World {
    /// `count` messages for each of `queues` queues, in turn.
    fn filled(queues: u64, count: u64) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings(), &mut out);
        let mut world =
            World { store, disk: Plain::default(), out, millis: 1, damaged: Vec::new() };
        world.rest();
        for seq in 0..count {
            for queue in 0..queues {
                let body = body(queue, seq);
                let key = format!("queue-{queue}");
                let message = Message {
                    exchange: b"",
                    routing_key: key.as_bytes(),
                    properties: &[0x10, 0, 2],
                    body: &body,
                };
                let lane = world.store.lane(Lane::of(QueueId(queue)));
                let place = Place { lane, seq, deadline_millis: 0 };
                while world.store.append(&message, &[place]).is_err() {
                    world.rest();
                }
            }
            if seq % 8 == 0 {
                world.store.want_durable();
                world.rest();
            }
        }
        world.store.want_durable();
        world.rest();
        world.restart();
        world
    }

    /// The write buffers are gone after that.
    fn restart(&mut self) {
        self.restart_with(settings());
    }

    fn restart_with(&mut self, settings: Settings) {
        self.store.close();
        while !self.store.is_closed() {
            self.millis += 1000;
            self.rest();
        }
        self.store = Store::open(settings, &mut self.out);
        self.rest();
        assert!(self.store.is_running());
    }

    fn step(&mut self) -> bool {
        self.disk.submit(&mut self.out.list);
        let Some(mut completion) = self.disk.step() else { return false };
        if !self.damaged.is_empty() {
            let mut parts = completion.bytes.windows(self.damaged.len());
            if let Some(at) = parts.position(|part| part == self.damaged) {
                completion.bytes[at] ^= 1;
            }
        }
        let now = Now::from_millis(self.millis);
        self.store.complete(now, completion, &mut self.out);
        true
    }

    fn rest(&mut self) {
        self.store.flush(Now::from_millis(self.millis), &mut self.out);
        while self.step() {
            self.store.flush(Now::from_millis(self.millis), &mut self.out);
        }
    }

    fn readers(&mut self, queues: std::ops::Range<u64>) -> Vec<Reader> {
        let readers = queues.map(|queue| Reader {
            lane: self.store.lane(Lane::of(QueueId(queue))),
            window: VecDeque::new(),
            announced: 0,
            ahead: 0,
            delivered: 0,
        });
        readers.collect()
    }

    /// Delivers the next message of a lane, if it is there.
    fn deliver(&mut self, queue: u64, reader: &mut Reader, announces: bool) -> bool {
        if reader.window.len() < WINDOW / 2 && !self.store.is_fetched(reader.lane) {
            let mut more = Vec::new();
            let fetch = self.store.fetch(reader.lane, WINDOW, &mut more, &mut self.out);
            reader.window.extend(more);
            if fetch == Fetch::Pending && reader.window.is_empty() {
                return false;
            }
        }
        if announces && reader.ahead <= reader.announced / 2 {
            let entries = reader.window.make_contiguous();
            reader.announced = self.store.prefetch(entries, &mut self.out);
            reader.ahead = reader.announced;
        }
        let Some(entry) = reader.window.front().copied() else { return false };
        match self.store.lookup_sized(entry.position, entry.bytes, &mut self.out) {
            Lookup::Found(message) => {
                assert_eq!(entry.seq, reader.delivered);
                assert!(message.body == body(queue, entry.seq), "{queue} {}", entry.seq);
                let key = format!("queue-{queue}");
                assert_eq!(message.routing_key, key.as_bytes());
            }
            Lookup::Pending => return false,
            Lookup::Lost => panic!("lost {entry:?}"),
        }
        reader.window.pop_front();
        reader.ahead = reader.ahead.saturating_sub(1);
        reader.delivered += 1;
        assert!(self.store.settle(reader.lane, entry.seq, entry.position, entry.bytes));
        true
    }

    /// Drains the lanes in turn. The disk carries one operation out while one message of each lane
    /// is delivered. How often nobody had anything to deliver, and the figures of the time.
    fn drain(
        &mut self,
        queues: std::ops::Range<u64>,
        count: u64,
        announces: bool,
    ) -> (u64, Figures) {
        let first = queues.start;
        let before = self.store.figures();
        let mut readers = self.readers(queues);
        let (mut waits, mut idle) = (0, 0);
        while readers.iter().any(|reader| reader.delivered < count) {
            let mut delivered = 0;
            for (index, reader) in readers.iter_mut().enumerate() {
                let queue = first + index as u64;
                delivered += u64::from(self.deliver(queue, reader, announces));
                if index % 8 == 0 {
                    self.step();
                }
            }
            idle = if delivered == 0 { idle + 1 } else { 0 };
            waits += u64::from(delivered == 0);
            assert!(idle < 100, "everybody waits for nothing");
        }
        let mut figures = self.store.figures();
        figures.read_bytes -= before.read_bytes;
        figures.reads -= before.reads;
        (waits, figures)
    }
}

fn ratio(figures: &Figures, messages: u64) -> f64 {
    figures.read_bytes as f64 / (messages * BODY_BYTES as u64) as f64
}

#[test]
fn interleaved_queues_are_read_once_whether_alone_or_together() {
    let (queues, count) = (100, 200);
    let mut world = World::filled(queues, count);
    let (waits, alone) = world.drain(0..1, count, true);
    println!("alone: {} bytes, {} reads, {waits} waits", alone.read_bytes, alone.reads);
    assert!(ratio(&alone, count) <= 1.3, "{}", ratio(&alone, count));
    assert!(waits < count / 8, "{waits}");
    let (waits, rest) = world.drain(1..queues, count, true);
    println!("together: {} bytes, {} reads, {waits} waits", rest.read_bytes, rest.reads);
    let both = Figures { read_bytes: alone.read_bytes + rest.read_bytes, ..rest };
    assert!(ratio(&both, queues * count) <= 1.3, "{}", ratio(&both, queues * count));
    // Side by side they share reads.
    assert!(rest.reads < queues * count * 2 / 5, "{}", rest.reads);
    assert!(rest.memory_bytes < 4 << 20, "{}", rest.memory_bytes);
}

#[test]
fn a_queue_alone_in_its_log_is_read_in_long_pieces_before_it_needs_them() {
    let count = 10_000;
    let mut world = World::filled(1, count);
    let (waits, figures) = world.drain(0..1, count, true);
    println!("announced: {} reads, {waits} waits", figures.reads);
    assert!(ratio(&figures, count) <= 1.1, "{}", ratio(&figures, count));
    assert!(figures.reads < count / 50, "{}", figures.reads);
    assert!(waits < 40, "{waits}");
}

/// What lies between them is in pages that are read in any case. So are messages of one priority among those of others.
#[test]
fn messages_that_lie_within_a_page_of_each_other_are_read_together() {
    let (queues, count) = (3, 3_000);
    let mut world = World::filled(queues, count);
    let (waits, alone) = world.drain(0..1, count, true);
    println!("alone: {} bytes, {} reads, {waits} waits", alone.read_bytes, alone.reads);
    assert!(ratio(&alone, count) <= queues as f64 * 1.2, "{}", ratio(&alone, count));
    assert!(alone.reads < count / 10, "{}", alone.reads);
    assert!(waits < 100, "{waits}");
}

#[test]
fn a_queue_that_announces_nothing_is_read_ahead_all_the_same() {
    let count = 10_000;
    let mut world = World::filled(1, count);
    let (waits, figures) = world.drain(0..1, count, false);
    println!("not announced: {} reads, {waits} waits", figures.reads);
    assert!(ratio(&figures, count) <= 1.1, "{}", ratio(&figures, count));
    assert!(waits < 100, "{waits}");
}

/// One event for each position that was looked up in vain, and none for what was only announced.
#[test]
fn whoever_waits_is_told_by_the_position_asked_for() {
    let mut world = World::filled(1, 20);
    let lane = world.store.lane(Lane::of(QueueId(0)));
    let mut entries = Vec::new();
    assert_eq!(world.store.fetch(lane, 20, &mut entries, &mut world.out), Fetch::Done);
    assert_eq!(world.store.prefetch(&entries, &mut world.out), 20);
    let asked = [entries[3].position, entries[9].position];
    for at in asked {
        assert_eq!(world.store.lookup(at, &mut world.out), Lookup::Pending);
    }
    world.rest();
    let mut events = Vec::new();
    world.store.take_events(&mut events);
    events.retain(|event| matches!(event, Event::MessageReady(_)));
    assert_eq!(events, asked.map(Event::MessageReady));
}

/// Each needs its record and another one that lends it its names, and what is read for one takes
/// the place of what was read for the others.
#[test]
fn readers_with_hardly_any_memory_between_them_get_their_messages_in_the_end() {
    let (queues, seq) = (6, 15);
    let mut world = World::filled(queues, 20);
    world.restart_with(Settings { cache_bytes: 4 << 10, ..settings() });
    let mut waiting = Vec::new();
    for queue in 0..queues {
        let lane = world.store.lane(Lane::of(QueueId(queue)));
        let mut entries = Vec::new();
        while world.store.fetch(lane, 20, &mut entries, &mut world.out) == Fetch::Pending {
            world.rest();
        }
        waiting.push((queue, entries[seq]));
    }
    let mut rounds = 0;
    while !waiting.is_empty() {
        waiting.retain(|(queue, entry)| {
            match world.store.lookup_sized(entry.position, entry.bytes, &mut world.out) {
                Lookup::Found(message) => {
                    assert_eq!(message.routing_key, format!("queue-{queue}").as_bytes());
                    assert!(message.body == body(*queue, seq as u64));
                    false
                }
                Lookup::Pending => true,
                Lookup::Lost => panic!("lost {entry:?}"),
            }
        });
        world.rest();
        rounds += 1;
        assert!(rounds < 10 * queues, "{} read the same again and again", waiting.len());
    }
}

#[test]
fn a_message_in_several_segments_is_counted_while_it_is_read_and_forgotten_when_it_was_given() {
    let mut world = World::filled(1, 4);
    let lane = world.store.lane(Lane::of(QueueId(0)));
    let long = vec![7; 3 << 20];
    for seq in 4..12 {
        let message = Message { routing_key: b"queue-0", body: &long, ..Message::default() };
        let place = Place { lane, seq, deadline_millis: 0 };
        while world.store.append(&message, &[place]).is_err() {
            world.rest();
        }
        world.store.want_durable();
        world.rest();
    }
    world.restart();
    let lane = world.store.lane(Lane::of(QueueId(0)));
    let mut entries = Vec::new();
    while world.store.fetch(lane, 12, &mut entries, &mut world.out) == Fetch::Pending {
        world.rest();
    }
    let before = world.store.figures().memory_bytes;
    for entry in &entries[4..] {
        let mut most = 0;
        while world.store.lookup_sized(entry.position, entry.bytes, &mut world.out)
            == Lookup::Pending
        {
            world.rest();
            most = most.max(world.store.large_bytes());
        }
        assert!(most > 1 << 20, "{most} bytes are counted");
        let found = world.store.message(entry.position).map(|message| message.body.len());
        assert_eq!(found, Some(long.len()));
        world.rest();
        assert_eq!(world.store.large_bytes(), 0);
    }
    let after = world.store.figures().memory_bytes;
    assert!(after <= before + settings().cache_bytes, "{before} bytes before, {after} after");
}

/// A message in several segments does not stay in memory while the record that lends it its names is read: that
/// this one is damaged is remembered, or both would be read without end.
#[test]
fn a_long_message_whose_names_are_damaged_is_lost_and_not_read_again_and_again() {
    let mut world = World::filled(1, 4);
    let lane = world.store.lane(Lane::of(QueueId(0)));
    let (short, long) = (vec![0x5A; 300], vec![7; 3 << 20]);
    for (seq, body) in [(4, &short), (5, &long)] {
        let message = Message { routing_key: b"lent", body, ..Message::default() };
        let place = Place { lane, seq, deadline_millis: 0 };
        while world.store.append(&message, &[place]).is_err() {
            world.rest();
        }
    }
    world.store.want_durable();
    world.rest();
    world.restart_with(Settings { cache_bytes: 4 << 10, ..settings() });
    let lane = world.store.lane(Lane::of(QueueId(0)));
    let mut entries = Vec::new();
    while world.store.fetch(lane, 6, &mut entries, &mut world.out) == Fetch::Pending {
        world.rest();
    }
    let whole = entries[5];
    let find = |world: &mut World| {
        for _ in 0..50 {
            match world.store.lookup_sized(whole.position, whole.bytes, &mut world.out) {
                Lookup::Found(message) => return Some(message.routing_key == b"lent"),
                Lookup::Lost => return Some(false),
                Lookup::Pending => world.rest(),
            }
        }
        None
    };
    assert_eq!(find(&mut world), Some(true), "it is there, and borrows its names");
    world.restart_with(Settings { cache_bytes: 4 << 10, ..settings() });
    let mut events = Vec::new();
    world.store.take_events(&mut events);
    world.damaged = short;
    assert_eq!(find(&mut world), Some(false), "read again and again, or found");
    world.store.take_events(&mut events);
    let is_damage = |event: &&Event| matches!(event, Event::Damaged(_));
    assert_eq!(events.iter().filter(is_damage).count(), 1);
}

/// Each of two readers looks only after what the other one asked for has been read, and the cache has room for
/// less than all of it.
#[test]
fn readers_that_look_in_turn_do_not_push_each_other_out_for_ever() {
    let mut world = World::filled(1, 200);
    world.restart_with(Settings { cache_bytes: 2 * BODY_BYTES, ..settings() });
    let lane = world.store.lane(Lane::of(QueueId(0)));
    let mut entries = Vec::new();
    while world.store.fetch(lane, 200, &mut entries, &mut world.out) == Fetch::Pending {
        world.rest();
    }
    let mut wanted = [[10, 60], [110, 160]].map(|of_one| of_one.map(|seq| entries[seq]).to_vec());
    for _ in 0..16 {
        for of_one in &mut wanted {
            of_one.retain(|entry| {
                match world.store.lookup_sized(entry.position, entry.bytes, &mut world.out) {
                    Lookup::Found(message) => {
                        assert!(message.body == body(0, entry.seq));
                        false
                    }
                    Lookup::Pending => true,
                    Lookup::Lost => panic!("lost {entry:?}"),
                }
            });
            world.rest();
        }
    }
    assert_eq!(wanted, [[], []], "they were read, and out of the cache when somebody looked");
}
