//! What one call does is bounded, however many messages a page of the index or a segment has: whoever
//! drives the store serves others between two calls.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{LogId, Operations};
use lepus_store::simulation::Plain;
use lepus_store::{Lane, LaneSlot, Message, Place, Settings, Store};

/// Messages of which most are equally long: a page of the index has very many of them.
const MESSAGES: u64 = 300_000;
/// Messages that one call may go through.
const MOST: u64 = 20_000;

struct World {
    store: Store,
    disk: Plain,
    out: Operations,
    millis: u64,
    /// Most messages that one call took out of the counts of segments, and that it moved.
    settled: u64,
    moved: u64,
}

impl World {
    fn new(settings: Settings) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let disk = Plain::default();
        let mut world = World { store, disk, out, millis: 1, settled: 0, moved: 0 };
        world.pass(100);
        world
    }

    /// Calls the store, and notes what that did.
    fn call<T>(&mut self, call: impl FnOnce(&mut Store, Now, &mut Operations) -> T) -> T {
        let counts = |store: &Store| {
            let living: u64 = store.segment_counts().map(|(_, counts)| counts.references[0]).sum();
            (living, store.figures().moved)
        };
        let before = counts(&self.store);
        let result = call(&mut self.store, Now::from_millis(self.millis), &mut self.out);
        let after = counts(&self.store);
        self.settled = self.settled.max(before.0.saturating_sub(after.0));
        self.moved = self.moved.max(after.1 - before.1);
        result
    }

    fn turn(&mut self) -> bool {
        let more = self.call(Store::work);
        self.call(Store::flush);
        self.disk.submit(&mut self.out.list);
        while let Some(completion) = self.disk.step() {
            self.call(|store, now, out| store.complete(now, completion, out));
            self.disk.submit(&mut self.out.list);
        }
        more
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..=millis / 100 {
            self.millis += 100;
            while self.turn() {}
        }
    }

    fn lane(&mut self, queue: u64) -> LaneSlot {
        self.store.lane(Lane::of(QueueId(queue)))
    }

    fn append(&mut self, queue: u64) -> (u64, Position) {
        self.append_bytes(queue, 1)
    }

    fn append_bytes(&mut self, queue: u64, bytes: usize) -> (u64, Position) {
        let body = vec![7; bytes];
        let lane = self.lane(queue);
        let seq = self.store.next_seq(lane);
        let message = Message { routing_key: b"q", body: &body, ..Message::default() };
        loop {
            match self.store.append(&message, &[Place { lane, seq, deadline_millis: 0 }]) {
                Ok(position) => return (seq, position),
                Err(_) => _ = self.turn(),
            }
        }
    }
}

#[test]
fn a_queue_that_is_purged_or_deleted_is_counted_in_slices() {
    let mut world = World::new(Settings::new(LogId(1)));
    for is_purged in [true, false] {
        (0..MESSAGES).for_each(|_| _ = world.append(1));
        world.pass(1_000);
        let lane = world.lane(1);
        let end = world.store.next_seq(lane);
        if is_purged {
            world.store.purge(lane, end, &[]);
            assert_eq!(world.store.count(lane).0, 0);
        } else {
            world.store.drop_queue(QueueId(1));
        }
        world.settled = 0;
        world.pass(1_000);
        assert!(world.store.is_accounted());
        assert!((1..=MOST).contains(&world.settled), "{} at once", world.settled);
    }
}

#[test]
fn what_is_kept_of_a_purge_stays_whatever_is_counted_at_once() {
    let mut world = World::new(Settings::new(LogId(1)));
    (0..MESSAGES).for_each(|_| _ = world.append(1));
    world.pass(1_000);
    let lane = world.lane(1);
    let kept: Vec<u64> = (0..MESSAGES).step_by(1_000).collect();
    world.store.purge(lane, MESSAGES, &kept);
    assert_eq!(world.store.count(lane).0, kept.len() as u64);
    world.pass(1_000);
    assert!(world.settled <= MOST, "{} at once", world.settled);
    let mut entries = Vec::new();
    let _ = world.store.fetch(lane, 1_000, &mut entries, &mut world.out);
    world.pass(100);
    let _ = world.store.fetch(lane, 1_000, &mut entries, &mut world.out);
    assert!(entries.iter().map(|entry| entry.seq).eq(kept));
}

#[test]
fn messages_are_moved_in_slices() {
    let settings =
        Settings { segment_bytes: 4 << 20, compaction_percent: 95, ..Settings::new(LogId(1)) };
    let mut world = World::new(settings);
    let sent: Vec<_> = (0..80_000).map(|number| world.append_bytes(1 + number % 2, 100)).collect();
    world.pass(1_000);
    let lane = world.lane(1);
    for (seq, position) in sent.into_iter().step_by(2) {
        assert!(world.store.settle(lane, seq, position, 100));
    }
    world.pass(30_000);
    let figures = world.store.figures();
    assert!(figures.moved > 20_000, "{figures:?}");
    assert!(world.moved <= 2_048, "{} at once", world.moved);
}

#[test]
fn a_purge_beside_many_that_are_kept_is_written_in_few_bytes() {
    let mut world = World::new(Settings::new(LogId(1)));
    (0..100_000).for_each(|_| _ = world.append(1));
    world.pass(1_000);
    let (lane, before) = (world.lane(1), world.store.figures().log_bytes);
    let kept: Vec<u64> = (0..100_000).step_by(2).collect();
    world.store.purge(lane, 100_000, &kept);
    assert_eq!(world.store.count(lane).0, 50_000);
    world.pass(1_000);
    let bytes = world.store.figures().log_bytes - before;
    assert!(bytes < 3 * 50_000, "{bytes} bytes");
}
