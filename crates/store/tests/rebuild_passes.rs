//! A start without a valid checkpoint, in as much memory as there is.

use std::collections::BTreeMap;

use lepus_base::{Now, QueueId, Rng};
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Entry, Event, Fetch, Figures, Lane, LaneSlot, Message, Place, SegmentCounts};
use lepus_store::{Settings, Store};

const LOG: LogId = LogId(1);
const QUEUES: u64 = 6;

struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    events: Vec<Event>,
    millis: u64,
}

/// What a start makes of a log.
#[derive(Debug, PartialEq)]
struct Made {
    lanes: BTreeMap<Lane, (u64, u64, u64, Vec<Entry>)>,
    counts: Vec<(u32, SegmentCounts)>,
    events: Vec<Event>,
}

fn settings(rebuild_entries_max: usize) -> Settings {
    Settings {
        segment_bytes: 16 << 10,
        batch_bytes_max: 4 << 10,
        index_pages_max: 2,
        free_segments_max: 4,
        checkpoint_log_bytes: 200 << 10,
        compaction_slack_bytes: 0,
        compaction_rate: 1 << 30,
        rebuild_entries_max,
        ..Settings::new(LOG)
    }
}

impl World {
    fn open(settings: Settings, disk: Disk) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut world = World { store, disk, out, events: Vec::new(), millis: 1 };
        world.run();
        assert!(world.store.is_running());
        world.store.take_events(&mut world.events);
        world
    }

    fn run(&mut self) {
        self.disk.submit(&mut self.out.list);
        while let Some(completion) = self.disk.step() {
            self.store.complete(Now::from_millis(self.millis), completion, &mut self.out);
            self.disk.submit(&mut self.out.list);
        }
    }

    fn turn(&mut self) {
        let now = Now::from_millis(self.millis);
        self.millis += 20;
        self.store.work(now, &mut self.out);
        self.store.flush(now, &mut self.out);
        self.run();
    }

    fn sync(&mut self) {
        self.store.want_synced();
        while self.store.synced() < self.store.end() {
            self.turn();
        }
    }

    fn lane(&mut self, rng: &mut Rng) -> LaneSlot {
        let queue = QueueId(1 + rng.below(QUEUES));
        self.store.lane(Lane { queue, level: rng.below(2) as u16 })
    }

    fn publish(&mut self, rng: &mut Rng) {
        let mut lanes: Vec<LaneSlot> = (0..=rng.below(3)).map(|_| self.lane(rng)).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let length = if rng.chance(1, 60) { rng.below(50_000) } else { rng.below(300) };
        let body = vec![rng.below(256) as u8; length as usize];
        let message =
            Message { exchange: b"e", routing_key: b"k", properties: &[0, 0], body: &body };
        let store = &self.store;
        let place = |&lane: &LaneSlot| {
            let deadline_millis = if lane.0.is_multiple_of(2) { 7 } else { 0 };
            Place { lane, seq: store.next_seq(lane), deadline_millis }
        };
        let places: Vec<Place> = lanes.iter().map(place).collect();
        while self.store.append(&message, &places).is_err() {
            self.turn();
        }
    }

    fn entries(&mut self, lane: LaneSlot) -> Vec<Entry> {
        let mut found = Vec::new();
        self.store.rewind(lane, 0);
        while !self.store.is_fetched(lane) {
            if self.store.fetch(lane, 1_000, &mut found, &mut self.out) == Fetch::Pending {
                self.run();
            }
        }
        found
    }

    /// Settles about that many of a hundred, and what of a queue was to be dropped.
    fn settle(&mut self, percent: u64, rng: &mut Rng) {
        let lane = self.lane(rng);
        for entry in self.entries(lane) {
            if rng.chance(percent, 100) {
                self.store.settle(lane, entry.seq, entry.position, entry.bytes);
            }
        }
    }

    fn made(&mut self) -> Made {
        for _ in 0..50 {
            self.turn();
        }
        let mut lanes = BTreeMap::new();
        let all: Vec<_> = self.store.lanes().collect();
        for (lane, slot) in all {
            let (count, bytes) = self.store.count(slot);
            lanes.insert(lane, (count, bytes, self.store.next_seq(slot), self.entries(slot)));
        }
        let is_damage = |event: &&Event| matches!(event, Event::Damaged(_) | Event::Missing(..));
        let events = self.events.iter().filter(is_damage).copied().collect();
        Made { lanes, counts: self.store.segment_counts().collect(), events }
    }

    fn figures(&self) -> Figures {
        self.store.figures()
    }
}

/// A log with some life behind it, without its roots; where `is_damaged`, with bits turned over.
fn broken_log(seed: u64, is_damaged: bool) -> Vec<(File, Vec<u8>)> {
    let mut rng = Rng::new(seed);
    let mut world = World::open(settings(usize::MAX), Disk::new(seed));
    for _ in 0..40 {
        for _ in 0..rng.below(60) {
            world.publish(&mut rng);
        }
        world.turn();
        let percent = [0, 30, 95, 100][rng.below(4) as usize];
        world.settle(percent, &mut rng);
        if rng.chance(1, 20) {
            world.store.drop_queue(QueueId(1 + rng.below(QUEUES)));
        }
        world.turn();
    }
    world.sync();
    let files: Vec<File> = world.disk.files().map(|(file, _)| file).collect();
    let mut log = Vec::new();
    for file in files {
        let mut bytes = world.disk.data(file).unwrap_or_default().to_vec();
        if file == File::Root(LOG) {
            bytes[20] ^= 1;
            bytes[4096 + 20] ^= 1;
        }
        if is_damaged && matches!(file, File::Segment(..)) && rng.chance(1, 3) {
            let at = 64 + rng.below(bytes.len() as u64 - 64) as usize;
            bytes[at] ^= 1;
        }
        log.push((file, bytes));
    }
    log
}

fn start(log: &[(File, Vec<u8>)], rebuild_entries_max: usize) -> World {
    let mut disk = Disk::new(1);
    for (file, bytes) in log {
        disk.put(*file, bytes.clone());
    }
    World::open(Settings { index_pages_max: 0, ..settings(rebuild_entries_max) }, disk)
}

/// Rebuilds are compared without compaction and checkpoints coming in between.
#[test]
fn many_passes_over_a_log_make_of_it_what_one_makes_and_hold_no_more_than_they_may() {
    let mut passes = 0;
    for seed in 1..=40 {
        let log = broken_log(seed, seed % 3 == 0);
        let mut whole = start(&log, usize::MAX);
        let figures = whole.figures();
        assert_eq!(figures.rebuild_passes, 1);
        let expected = whole.made();
        let limit = 20 + (seed as usize * 37) % 200;
        let mut parted = start(&log, limit);
        let parts = parted.figures();
        assert!(parts.rebuild_entries <= limit, "{} of {limit}", parts.rebuild_entries);
        assert!(
            parts.rebuild_passes > 1 || figures.rebuild_entries <= limit,
            "{figures:?} {parts:?}"
        );
        passes += parts.rebuild_passes;
        let made = parted.made();
        assert!(made == expected, "seed {seed}: {made:?}\ninstead of {expected:?}");
    }
    assert!(passes > 200, "{passes}");
}

#[test]
fn what_one_pass_makes_leaves_memory_before_the_next() {
    let mut world = World::open(settings(usize::MAX), Disk::new(5));
    let lane = world.store.lane(Lane::of(QueueId(1)));
    for seq in 0..40_000u64 {
        let body = [1; 100];
        let body = &body[..(seq * 7919 % 100) as usize];
        let message = Message { exchange: b"e", routing_key: b"k", properties: &[], body };
        while world.store.append(&message, &[Place { lane, seq, deadline_millis: 0 }]).is_err() {
            world.turn();
        }
    }
    world.sync();
    let kept = world.entries(lane);
    world.turn();
    let mut log = Vec::new();
    for (file, _) in world.disk.files() {
        let bytes = world.disk.data(file).unwrap_or_default().to_vec();
        log.push((file, if file == File::Root(LOG) { vec![1; 8192] } else { bytes }));
    }
    let memory = |world: &World| world.store.index_memory_bytes();
    let (whole, mut parted) = (start(&log, usize::MAX), start(&log, 2_000));
    assert!(parted.figures().rebuild_passes >= 20);
    assert!(memory(&parted) < memory(&whole) / 4, "{} {}", memory(&parted), memory(&whole));
    let lane = parted.store.lane(Lane::of(QueueId(1)));
    assert!(parted.entries(lane) == kept);
    // They are in the file that the next start finds.
    parted.store.request_checkpoint();
    for _ in 0..20 {
        parted.turn();
    }
    parted.disk.crash();
    let mut again = World::open(settings(usize::MAX), parted.disk);
    assert_eq!(again.figures().rebuild_passes, 0);
    let lane = again.store.lane(Lane::of(QueueId(1)));
    assert!(again.entries(lane) == kept);
}
