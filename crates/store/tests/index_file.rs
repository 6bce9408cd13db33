//! The index file gives back what it does not need any more.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::simulation::Plain;
use lepus_store::{AppendError, Entry, Fetch, Lane, LaneSlot, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);
const PAGE_BYTES: u64 = 4096;

/// A store that keeps few pages of its index in memory, and a clock.
struct World {
    store: Store,
    disk: Plain,
    out: Operations,
    millis: u64,
}

impl World {
    fn open(disk: Plain, millis: u64) -> World {
        let mut out = Operations::default();
        let settings =
            Settings { segment_bytes: 256 << 10, index_pages_max: 4, ..Settings::new(LOG) };
        let store = Store::open(settings, &mut out);
        let mut world = World { store, disk, out, millis };
        world.pass(1);
        assert!(world.store.is_running());
        world
    }

    fn turn(&mut self) -> bool {
        let now = Now::from_millis(self.millis);
        let more = self.store.work(now, &mut self.out);
        self.store.flush(now, &mut self.out);
        let asks = !self.out.list.is_empty();
        self.disk.run(&mut self.store, now, &mut self.out);
        more || asks
    }

    /// Time passes, with turns when the store wants them.
    fn pass(&mut self, millis: u64) {
        let end = self.millis + millis;
        loop {
            while self.turn() {}
            let due = self.store.next_timeout().0.div_ceil(1_000_000);
            if due > end {
                break;
            }
            self.millis = self.millis.max(due);
        }
        self.millis = end;
    }

    /// Restarts after an orderly end.
    fn restart(mut self) -> World {
        self.pass(1_000);
        self.store.close();
        self.pass(5_000);
        assert!(self.store.is_closed());
        World::open(self.disk, self.millis)
    }

    fn lanes(&mut self, count: u64) -> Vec<LaneSlot> {
        (1..=count).map(|queue| self.store.lane(Lane::of(QueueId(queue)))).collect()
    }

    fn append(&mut self, length: usize, lane: LaneSlot) -> Position {
        let places = [Place { lane, seq: self.store.next_seq(lane), deadline_millis: 0 }];
        let body = vec![7; length];
        let message =
            Message { exchange: b"", routing_key: b"q", properties: &[0, 0], body: &body };
        loop {
            match self.store.append(&message, &places) {
                Ok(position) => return position,
                Err(error) => assert_eq!(error, AppendError::Full),
            }
            self.turn();
        }
    }

    /// So many messages in each lane, in turns of the lanes: pages of all of them lie side by side.
    fn fill(&mut self, each: u64, lanes: &[LaneSlot]) {
        for number in 0..each {
            for &lane in lanes {
                self.append((number * 7919 % 200) as usize, lane);
            }
            self.turn();
        }
    }

    /// All that lives in a lane.
    fn entries(&mut self, lane: LaneSlot) -> Vec<Entry> {
        let mut found = Vec::new();
        self.store.rewind(lane, 0);
        loop {
            match self.store.fetch(lane, 1_000, &mut found, &mut self.out) {
                Fetch::Pending => {
                    self.turn();
                }
                Fetch::Done if self.store.is_fetched(lane) => return found,
                Fetch::Done => {}
            }
        }
    }

    fn index_pages(&self) -> u64 {
        self.disk.length(File::Index(LOG)) / PAGE_BYTES
    }

    fn checkpoint(&mut self) {
        self.store.request_checkpoint();
        self.pass(1_000);
    }
}

#[test]
fn the_index_file_is_short_again_when_its_messages_are_gone() {
    let mut world = World::open(Plain::default(), 1);
    let lanes = world.lanes(8);
    world.fill(8_000, &lanes);
    let peak = world.index_pages();
    assert!(peak > 40, "{peak}");
    for &lane in &lanes {
        let end = world.store.next_seq(lane);
        world.store.purge(lane, end, &[]);
    }
    // Nobody asks for a checkpoint.
    world.pass(60_000);
    assert!(world.index_pages() < 16, "{} of {peak}", world.index_pages());
    world.fill(8_000, &lanes);
    let again = world.index_pages();
    let entries: Vec<_> = lanes.iter().map(|lane| world.entries(*lane)).collect();
    assert!(again > 16 && entries.iter().all(|of_lane| of_lane.len() == 8_000));
    let mut world = world.restart();
    let lanes = world.lanes(8);
    let found: Vec<_> = lanes.iter().map(|lane| world.entries(*lane)).collect();
    assert!(found == entries);
}

#[test]
fn pages_at_the_end_of_an_index_file_that_is_mostly_free_move_down() {
    let mut world = World::open(Plain::default(), 1);
    let lanes = world.lanes(8);
    world.fill(8_000, &lanes[..6]);
    world.fill(8_000, &lanes[6..]);
    let peak = world.index_pages();
    let kept = world.entries(lanes[7]);
    for &lane in &lanes[..7] {
        let end = world.store.next_seq(lane);
        world.store.purge(lane, end, &[]);
    }
    world.pass(60_000);
    let left = world.index_pages();
    assert!(left < peak / 4, "{left} of {peak} pages");
    assert!(world.entries(lanes[7]) == kept);
    // Also what a start finds.
    let mut world = world.restart();
    let lanes = world.lanes(8);
    assert!(world.entries(lanes[7]) == kept);
    assert!(world.index_pages() < peak / 4);
}

#[test]
fn what_an_earlier_run_left_at_the_end_of_the_index_file_goes() {
    let mut world = World::open(Plain::default(), 1);
    let lanes = world.lanes(4);
    world.fill(8_000, &lanes);
    let peak = world.index_pages();
    for &lane in &lanes {
        let end = world.store.next_seq(lane);
        world.store.purge(lane, end, &[]);
    }
    // The end of this run has a checkpoint, and no time for more.
    let mut world = world.restart();
    world.checkpoint();
    assert!(world.index_pages() < 16, "{} of {peak}", world.index_pages());
}
