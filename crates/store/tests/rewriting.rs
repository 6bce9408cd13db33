//! What is written anew in the background: segments in which little lives, index pages that name
//! places that were left, and pages that were damaged.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{
    Entry, Event, Fetch, LEVEL_TRANSIENT, Lane, LaneSlot, Lookup, Message, Place, Settings, Store,
};

const LOG: LogId = LogId(1);
const SLOW: QueueId = QueueId(1);
const FAST: QueueId = QueueId(2);

struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    settings: Settings,
    millis: u64,
    events: Vec<Event>,
}

fn settings() -> Settings {
    Settings {
        segment_bytes: 64 << 10,
        index_pages_max: 0,
        cache_bytes: 256 << 10,
        checkpoint_log_bytes: 200_000,
        compaction_rate: u64::MAX,
        compaction_slack_bytes: 0,
        relocations_kept: 50,
        lanes_kept: 0,
        ..Settings::new(LOG)
    }
}

fn body(queue: QueueId, seq: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|index| (queue.0 * 7 + seq * 31 + index) as u8).collect()
}

impl World {
    fn new(settings: Settings) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let disk = Disk::new(3);
        let mut world = World { store, disk, out, settings, millis: 1, events: Vec::new() };
        world.rest();
        world
    }

    fn rest(&mut self) {
        for _ in 0..10_000 {
            self.millis += 10;
            let now = Now::from_millis(self.millis);
            self.store.flush(now, &mut self.out);
            let more = self.store.work(now, &mut self.out);
            self.disk.submit(&mut self.out.list);
            let mut is_idle = !more;
            while let Some(completion) = self.disk.step() {
                is_idle = false;
                self.store.complete(now, completion, &mut self.out);
                self.disk.submit(&mut self.out.list);
            }
            self.store.take_events(&mut self.events);
            if is_idle {
                return;
            }
        }
        panic!("there is no end of work: {:?}", self.store.figures());
    }

    fn idle(&mut self, times: u32) {
        for _ in 0..times {
            self.millis += 300;
            self.rest();
        }
    }

    fn lane(&mut self, queue: QueueId) -> LaneSlot {
        self.store.lane(Lane::of(queue))
    }

    fn append(&mut self, queue: QueueId, seq: u64, bytes: usize) -> Position {
        let lane = self.lane(queue);
        self.append_to(lane, queue, seq, bytes)
    }

    fn append_to(&mut self, lane: LaneSlot, queue: QueueId, seq: u64, bytes: usize) -> Position {
        let body = body(queue, seq, bytes);
        let message =
            Message { exchange: b"x", routing_key: b"k", properties: &[0, 0], body: &body };
        loop {
            let place = Place { lane, seq, deadline_millis: 0 };
            if let Ok(position) = self.store.append(&message, &[place]) {
                return position;
            }
            self.rest();
        }
    }

    fn fetch_all(&mut self, queue: QueueId) -> Vec<Entry> {
        let lane = self.lane(queue);
        self.fetch_lane(lane)
    }

    fn fetch_lane(&mut self, lane: LaneSlot) -> Vec<Entry> {
        let mut entries = Vec::new();
        for _ in 0..1000 {
            if self.store.is_fetched(lane) {
                return entries;
            }
            if self.store.fetch(lane, 100, &mut entries, &mut self.out) == Fetch::Pending {
                self.rest();
            }
        }
        panic!("there is no end of entries");
    }

    fn check(&mut self, queue: QueueId, entry: Entry) {
        for _ in 0..100 {
            match self.store.lookup_sized(entry.position, entry.bytes, &mut self.out) {
                Lookup::Found(message) => {
                    assert!(message.body == body(queue, entry.seq, entry.bytes as usize));
                    return;
                }
                Lookup::Pending => self.rest(),
                Lookup::Lost => panic!("{queue:?} {entry:?} is lost"),
            }
        }
        panic!("{queue:?} {entry:?} never comes");
    }

    fn restart(&mut self) {
        self.disk.crash();
        self.out = Operations::default();
        self.store = Store::open(self.settings, &mut self.out);
        self.rest();
    }

    fn checkpoint(&mut self) {
        self.store.want_synced();
        self.store.request_checkpoint();
        self.idle(2);
    }
}

/// A queue that nobody reads, in the segments of one that is drained: its messages are moved, the
/// disk is free again, and nothing has to remember the old places.
#[test]
fn a_backlog_among_dead_messages_is_moved_without_a_table_that_grows() {
    let mut world = World::new(settings());
    let count = 1500;
    for seq in 0..count {
        world.append(SLOW, seq, 100);
        for part in 0..5 {
            let position = world.append(FAST, seq * 5 + part, 400);
            let lane = world.lane(FAST);
            world.store.skip_fetch(lane);
            assert!(world.store.settle(lane, seq * 5 + part, position, 400));
        }
        if seq % 50 == 0 {
            world.store.want_durable();
            world.idle(3);
        }
    }
    world.checkpoint();
    world.idle(20);
    world.checkpoint();
    let figures = world.store.figures();
    assert!(figures.moved >= count / 2, "{figures:?}");
    assert!(figures.relocated <= 150, "{figures:?}");
    assert!(figures.segments <= 20, "{figures:?}");
    for round in 0..2 {
        let entries = world.fetch_all(SLOW);
        assert_eq!(entries.len() as u64, count, "round {round}");
        for (seq, entry) in entries.iter().enumerate() {
            assert_eq!(entry.seq, seq as u64);
            world.check(SLOW, *entry);
        }
        if round == 0 {
            world.restart();
        }
    }
    // Those that were fetched before keep working while they are moved again.
    let lane = world.lane(SLOW);
    let entries: Vec<Entry> = {
        world.store.rewind(lane, 0);
        world.fetch_all(SLOW)
    };
    for entry in entries.iter().filter(|entry| entry.seq % 10 != 0) {
        assert!(world.store.settle(lane, entry.seq, entry.position, entry.bytes));
    }
    world.checkpoint();
    world.idle(30);
    for entry in entries.iter().filter(|entry| entry.seq % 10 == 0) {
        world.check(SLOW, *entry);
        assert!(world.store.settle(lane, entry.seq, entry.position, entry.bytes));
    }
    world.checkpoint();
    world.checkpoint();
    let figures = world.store.figures();
    assert_eq!(world.store.count(lane), (0, 0));
    assert_eq!(figures.relocated, 0, "{figures:?}");
    assert!(figures.segments <= 3, "{figures:?}");
    assert!(!world.events.iter().any(|event| matches!(event, Event::Damaged(_))));
}

/// Spilled messages are moved as others are. No restart finds them, and what is left of them in segments
/// that others hold is not taken for the messages that have their numbers then.
#[test]
fn spilled_messages_are_moved_out_of_dead_segments() {
    let mut world = World::new(settings());
    let count = 1500;
    let spilled = Lane { queue: SLOW, level: LEVEL_TRANSIENT };
    for round in 0..2 {
        let (lane, fast) = (world.store.lane(spilled), world.lane(FAST));
        for seq in 0..count {
            world.append_to(lane, SLOW, seq, 100 + round * 7);
            // Of others a few stay, so that the segments outlive the restart.
            for part in 0..5 {
                let seq = (round as u64 * count + seq) * 5 + part;
                let position = world.append(FAST, seq, 400);
                world.store.skip_fetch(fast);
                let is_done =
                    seq.is_multiple_of(100) || world.store.settle(fast, seq, position, 400);
                assert!(is_done);
            }
            if seq % 50 == 0 {
                world.store.want_durable();
                world.idle(3);
            }
        }
        world.checkpoint();
        world.idle(20);
        world.checkpoint();
        let figures = world.store.figures();
        assert!(figures.moved >= count / 2, "round {round}: {figures:?}");
        assert!(figures.segments <= 20, "round {round}: {figures:?}");
        let found = world.fetch_lane(lane);
        assert_eq!(found.len() as u64, count, "round {round}");
        for entry in &found {
            assert_eq!(entry.bytes as usize, 100 + round * 7);
            world.check(SLOW, *entry);
        }
        if round == 0 {
            world.restart();
            assert!(world.store.lanes().all(|(lane, _)| !lane.is_transient()));
            continue;
        }
        // Those that were fetched keep working while they are moved again.
        let (kept, done): (Vec<&Entry>, Vec<&Entry>) =
            found.iter().partition(|entry| entry.seq % 10 == 0);
        for entry in done {
            assert!(world.store.settle(lane, entry.seq, entry.position, entry.bytes));
        }
        world.checkpoint();
        world.idle(30);
        assert!(world.store.figures().moved > figures.moved);
        for entry in kept {
            world.check(SLOW, *entry);
            assert!(world.store.settle(lane, entry.seq, entry.position, entry.bytes));
        }
        assert_eq!(world.store.count(lane), (0, 0));
    }
    let lane = world.lane(FAST);
    world.store.rewind(lane, 0);
    let found = world.fetch_lane(lane);
    assert_eq!(found.len(), 150);
    for entry in found {
        world.check(FAST, entry);
        assert!(world.store.settle(lane, entry.seq, entry.position, entry.bytes));
    }
    world.checkpoint();
    world.checkpoint();
    let figures = world.store.figures();
    assert!(figures.segments <= 3 && figures.relocated == 0, "{figures:?}");
    assert!(!world.events.iter().any(|event| matches!(event, Event::Damaged(_))));
}

/// Messages that cross from one segment into the next hold neither for ever.
#[test]
fn fragmented_messages_are_moved_out_of_dead_segments() {
    let mut world = World::new(Settings { segment_bytes: 512 << 10, ..settings() });
    let big = 70_000;
    let lane = world.lane(SLOW);
    world.store.skip_fetch(lane);
    let mut kept = Vec::new();
    for seq in 0..80 {
        let position = world.append(SLOW, seq, big);
        world.store.skip_fetch(lane);
        if seq % 10 == 6 {
            kept.push(Entry { seq, position, bytes: big as u32, deadline_millis: 0 });
        } else {
            assert!(world.store.settle(lane, seq, position, big as u32));
        }
        world.store.want_durable();
        world.rest();
    }
    world.checkpoint();
    world.idle(40);
    world.checkpoint();
    let figures = world.store.figures();
    assert!(figures.moved > 0, "{figures:?}");
    assert!(figures.segments <= 5, "{figures:?}");
    for entry in &kept {
        world.check(SLOW, *entry);
    }
    world.restart();
    let found = world.fetch_all(SLOW);
    let numbers = |entries: &[Entry]| entries.iter().map(|entry| entry.seq).collect::<Vec<_>>();
    assert_eq!(numbers(&found), numbers(&kept));
    for entry in found {
        world.check(SLOW, entry);
    }
}

/// The log has everything that an index page says.
#[test]
fn a_damaged_page_of_the_index_is_put_together_from_the_log() {
    for is_settled in [false, true] {
        let mut world = World::new(settings());
        let count = 4000u64;
        for seq in 0..count {
            // Sizes that do not repeat make runs of one.
            world.append(SLOW, seq, 20 + (seq % 7) as usize);
            if seq % 100 == 0 {
                world.store.want_durable();
                world.rest();
            }
        }
        let lane = world.lane(SLOW);
        if is_settled {
            for entry in world.fetch_all(SLOW) {
                if entry.seq % 3 == 1 {
                    assert!(world.store.settle(lane, entry.seq, entry.position, entry.bytes));
                }
            }
        }
        world.checkpoint();
        world.disk.flip(File::Index(LOG), 4096 + 300, 2);
        world.restart();
        world.events.clear();
        let entries = world.fetch_all(SLOW);
        world.store.take_events(&mut world.events);
        let damaged = world.events.iter().any(
            |event| matches!(event, Event::Damaged(damage) if damage.file == File::Index(LOG)),
        );
        assert!(damaged, "the damage is reported");
        let expected = (0..count).filter(|seq| !is_settled || seq % 3 != 1);
        assert!(entries.iter().map(|entry| entry.seq).eq(expected));
        for entry in &entries {
            world.check(SLOW, *entry);
        }
        let lane = world.lane(SLOW);
        assert_eq!(world.store.count(lane).0, entries.len() as u64);
        // It is written again, and whole.
        world.checkpoint();
        world.restart();
        world.events.clear();
        assert_eq!(world.fetch_all(SLOW).len(), entries.len());
        assert!(!world.events.iter().any(|event| matches!(event, Event::Damaged(_))));
    }
}
