//! What the index takes in memory: it is told at any time, and idle lanes take little of it.

use lepus_base::{Now, QueueId};
use lepus_store::disk::{LogId, Operations};
use lepus_store::simulation::Plain;
use lepus_store::{Event, Lane, LaneSlot, Lookup, Message, Place, Settings, Store};

/// A store whose disk keeps up.
struct World {
    store: Store,
    disk: Plain,
    out: Operations,
    now: Now,
}

impl World {
    fn new(settings: Settings) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut world = World { store, disk: Plain::default(), out, now: Now::from_millis(1) };
        world.flush();
        assert!(world.store.is_running());
        world
    }

    fn flush(&mut self) {
        self.store.flush(self.now, &mut self.out);
        self.disk.run(&mut self.store, self.now, &mut self.out);
    }

    /// Turns until nothing is left to do. How many.
    fn rest(&mut self) -> usize {
        let mut turns = 0;
        loop {
            let more = self.store.work(self.now, &mut self.out) || self.store.is_warm();
            self.flush();
            turns += 1;
            if !more {
                return turns;
            }
        }
    }

    fn lanes(&mut self, count: u64) -> Vec<LaneSlot> {
        (1..=count).map(|queue| self.store.lane(Lane::of(QueueId(queue)))).collect()
    }

    fn append(&mut self, lane: LaneSlot, body: &[u8]) {
        let place = Place { lane, seq: self.store.next_seq(lane), deadline_millis: 0 };
        let message = Message { exchange: b"", routing_key: b"q", properties: &[0, 0], body };
        while self.store.append(&message, &[place]).is_err() {
            self.flush();
        }
    }
}

#[test]
fn lanes_that_are_idle_take_little_memory_without_anything_that_happens() {
    const COUNT: usize = 5_000;
    let mut world = World::new(Settings { lanes_kept: 16, ..Settings::new(LogId(1)) });
    let lanes = world.lanes(COUNT as u64);
    for &lane in &lanes {
        world.append(lane, b"body");
    }
    let used = world.store.index_memory_bytes();
    world.rest();
    let idle = world.store.index_memory_bytes();
    assert!(used > 500 * COUNT, "{used} bytes");
    assert!(idle < 250 * COUNT, "{idle} bytes");
    assert!(!world.store.is_warm());
}

/// As a lane is that somebody reads: it has to stay as it is.
#[test]
fn lanes_that_cannot_be_made_smaller_are_looked_at_once_and_then_let_be() {
    const COUNT: u64 = 1_000;
    let mut world = World::new(Settings { lanes_kept: 16, ..Settings::new(LogId(1)) });
    let lanes = world.lanes(COUNT);
    for &lane in &lanes {
        world.append(lane, b"body");
        world.store.set_aside(lane, 0, 4);
    }
    let turns = world.rest();
    assert!(turns < 200, "{turns} turns");
    assert!(!world.store.is_warm());
    let used = world.store.index_memory_bytes();
    assert!(used > 400 * COUNT as usize, "{used} bytes");
    assert_eq!(world.store.figures().damaged, COUNT);
}

#[test]
fn pages_in_memory_and_what_is_settled_out_of_order_count() {
    let settings = Settings { index_pages_max: 8, ..Settings::new(LogId(1)) };
    let mut world = World::new(settings);
    let lane = world.lanes(1)[0];
    let empty = world.store.index_memory_bytes();
    for number in 0..20_000_usize {
        // Of different lengths: each is a run of its own.
        world.append(lane, &vec![7; number % 7]);
    }
    let with_pages = world.store.index_memory_bytes() - empty;
    assert!(with_pages > 40_000, "{with_pages} bytes");
    world.rest();
    let on_disk = world.store.index_memory_bytes() - empty;
    assert!(on_disk < with_pages / 2 + 8 * 4096, "{on_disk} bytes of {with_pages}");
    let mut entries = Vec::new();
    while entries.len() < 20_000 {
        let _ = world.store.fetch(lane, 20_000, &mut entries, &mut world.out);
        world.flush();
    }
    for entry in entries.iter().filter(|entry| entry.seq % 2 == 1) {
        assert!(world.store.settle(lane, entry.seq, entry.position, entry.bytes));
    }
    // From the next checkpoint on.
    world.store.request_checkpoint();
    world.rest();
    world.append(lane, b"one more");
    let with_gaps = world.store.index_memory_bytes() - empty;
    assert!(with_gaps > on_disk + 200_000, "{with_gaps} bytes");
}

/// As many as wait for long messages at once wait for their turn: nobody begins anew because of others.
#[test]
fn long_messages_are_put_together_in_bounded_memory_each_once() {
    const COUNT: u8 = 20;
    const LENGTH: usize = 300 << 10;
    for caches in [1, 10] {
        let settings = Settings {
            segment_bytes: 64 << 10,
            cache_bytes: caches << 16,
            ..Settings::new(LogId(1))
        };
        let mut world = World::new(settings);
        let lane = world.lanes(1)[0];
        for number in 0..COUNT {
            world.append(lane, &vec![number; LENGTH]);
        }
        world.store.want_synced();
        while world.store.synced() < world.store.end() {
            world.flush();
        }
        let disk = core::mem::take(&mut world.disk);
        let mut world = World { disk, ..World::new(settings) };
        world.out = lepus_store::disk::Operations::default();
        world.store = Store::open(settings, &mut world.out);
        world.flush();
        let lane = world.lanes(1)[0];
        let mut entries = Vec::new();
        while entries.len() < usize::from(COUNT) {
            let _ = world.store.fetch(lane, 100, &mut entries, &mut world.out);
            world.flush();
        }
        let read_before = world.disk.read_bytes;
        let mut asked: Vec<_> = entries.iter().map(|entry| entry.position).collect();
        let (mut found, mut peak, mut events) = (Vec::new(), 0, Vec::new());
        for _ in 0..2_000 {
            for at in core::mem::take(&mut asked) {
                match world.store.lookup(at, &mut world.out) {
                    Lookup::Found(message) => {
                        assert_eq!(message.body.len(), LENGTH);
                        assert!(message.body.iter().all(|byte| *byte == message.body[0]));
                        found.push(message.body[0]);
                    }
                    Lookup::Pending => {}
                    Lookup::Lost => panic!("a message is lost"),
                }
            }
            peak = peak.max(world.store.large_bytes());
            world.flush();
            world.store.take_events(&mut events);
            asked.extend(events.drain(..).filter_map(|event| match event {
                Event::MessageReady(at) => Some(at),
                _ => None,
            }));
        }
        found.sort_unstable();
        assert_eq!(found, (0..COUNT).collect::<Vec<_>>());
        let limit = (4 * settings.cache_bytes).max(LENGTH);
        // The first record of each is there beside what is put together.
        assert!(peak <= limit + limit / 4 + (64 << 10), "{peak} of {limit}");
        let read = world.disk.read_bytes - read_before;
        assert!(read < 2 * LENGTH as u64 * u64::from(COUNT), "{read}");
    }
}
