//! What checkpoints cost: bytes written for the bytes that are published, counted.

use std::collections::VecDeque;

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{Action, File, LogId, Operation, Operations};
use lepus_store::simulation::Plain;
use lepus_store::{AppendError, Lane, LaneSlot, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);

/// A store whose disk keeps up, and a clock.
struct World {
    store: Store,
    disk: Plain,
    out: Operations,
    millis: u64,
    writes: Writes,
}

/// What was written of checkpoints.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    /// Bytes.
    bytes: usize,
    /// Of these, since the last one that is synced, and the most that this ever was.
    unsynced: usize,
    unsynced_max: usize,
    /// How many were synced.
    synced: usize,
    /// Bytes that one turn wrote, at most.
    turn_max: usize,
}

impl Writes {
    /// A turn asks the disk for this.
    fn add(&mut self, operations: &[Operation]) {
        let before = self.bytes;
        for operation in operations {
            let Action::Write { file: File::Checkpoint(..), bytes, start, sync, .. } =
                &operation.action
            else {
                continue;
            };
            self.bytes += bytes.len() - start;
            self.unsynced += bytes.len() - start;
            self.unsynced_max = self.unsynced_max.max(self.unsynced);
            if *sync {
                self.unsynced = 0;
                self.synced += 1;
            }
        }
        self.turn_max = self.turn_max.max(self.bytes - before);
    }
}

impl World {
    fn new(settings: Settings) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let writes = Writes::default();
        let mut world = World { store, disk: Plain::default(), out, millis: 1, writes };
        world.turn();
        assert!(world.store.is_running());
        world
    }

    /// A turn of the shard. True if it has more to do at once.
    fn turn(&mut self) -> bool {
        let now = Now::from_millis(self.millis);
        let more = self.store.work(now, &mut self.out);
        self.store.flush(now, &mut self.out);
        self.writes.add(&self.out.list);
        self.disk.run(&mut self.store, now, &mut self.out);
        more
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

    fn lanes(&mut self, count: u64) -> Vec<LaneSlot> {
        (1..=count).map(|queue| self.store.lane(Lane::of(QueueId(queue)))).collect()
    }

    /// Appends a message to the lanes under their next number.
    fn append(&mut self, body: &[u8], lanes: &[LaneSlot]) -> Position {
        let store = &self.store;
        let place = |&lane| Place { lane, seq: store.next_seq(lane), deadline_millis: 0 };
        let places: Vec<Place> = lanes.iter().map(place).collect();
        let message =
            Message { exchange: b"", routing_key: b"queue", properties: &[0x10, 0, 2], body };
        loop {
            match self.store.append(&message, &places) {
                Ok(position) => return position,
                Err(error) => assert_eq!(error, AppendError::Full),
            }
            self.turn();
        }
    }

    fn written(&self) -> u64 {
        self.disk.log_bytes + self.disk.index_bytes
    }
}

fn settings() -> Settings {
    Settings {
        segment_bytes: 256 << 10,
        checkpoint_log_bytes: 1 << 20,
        checkpoint_log_bytes_max: 64 << 20,
        checkpoint_messages: 10_000,
        ..Settings::new(LOG)
    }
}

/// Many queues keep what they have; messages come to another one and go.
#[test]
fn messages_of_a_busy_queue_cost_no_checkpoints_of_the_others() {
    let mut world = World::new(settings());
    let lanes = world.lanes(2_000);
    for round in 0..100_usize {
        // Of different lengths: each is a run of its own.
        world.append(&vec![7; round % 7], &lanes);
        world.pass(10);
    }
    world.pass(60_000);
    let busy = world.store.lane(Lane::of(QueueId(5_000)));
    let (before, body, count) = (world.written(), [7; 1_000], 20_000);
    let mut held = VecDeque::new();
    for seq in 0..count {
        held.push_back((seq, world.append(&body, &[busy])));
        if held.len() > 20
            && let Some((seq, position)) = held.pop_front()
        {
            assert!(world.store.settle(busy, seq, position, body.len() as u32));
        }
        // A hundred a second: a segment dies more often than each second.
        world.pass(10);
    }
    let (written, published) = (world.written() - before, count * body.len() as u64);
    assert!(written * 100 <= published * 115, "{written} for {published}");
    assert!(world.store.figures().segments <= 60, "{:?}", world.store.figures());
}

/// A message with very many references is one message: what a start would have to do for them counts,
/// but not as much as a message each.
#[test]
fn a_fan_out_to_many_queues_costs_no_checkpoint_every_few_publishes() {
    let mut world = World::new(settings());
    let lanes = world.lanes(2_000);
    world.pass(60_000);
    let before = world.store.figures().checkpoints;
    for _ in 0..100 {
        world.append(b"to all", &lanes);
        world.pass(10);
    }
    // The log has grown by two megabytes, which may be worth one each.
    let checkpoints = world.store.figures().checkpoints - before;
    assert!(checkpoints <= 2, "{checkpoints}");
}

/// What a start finds is the first section with everything that was appended to it: what changed, what
/// is new, and nothing of what is gone.
#[test]
fn a_checkpoint_says_what_has_changed_and_a_start_puts_it_together() {
    let mut world = World::new(settings());
    let lanes = world.lanes(1_000);
    for _ in 0..10 {
        world.append(&[7; 50], &lanes);
    }
    world.store.request_checkpoint();
    world.pass(100);
    let first = world.disk.index_bytes;
    let newer = world.store.lane(Lane::of(QueueId(2_000)));
    world.append(b"more", &[lanes[0], newer]);
    world.store.drop_queue(QueueId(2));
    world.pass(100);
    let before = world.disk.index_bytes;
    world.store.request_checkpoint();
    world.pass(100);
    let second = world.disk.index_bytes - before;
    assert!(second * 50 < first, "{second} after {first}");
    // Behind the checkpoints there is nothing to be read.
    let mut out = Operations::default();
    world.store = Store::open(settings(), &mut out);
    world.out = out;
    world.turn();
    assert!(world.store.is_running());
    let count = |queue| {
        let lanes = world.store.lanes_of(QueueId(queue));
        lanes.iter().map(|&lane| world.store.count(lane).0).sum::<u64>()
    };
    assert_eq!([1, 2, 3, 1_000, 2_000].map(count), [11, 0, 10, 10, 1]);
}

/// When nearly everything has changed a checkpoint says everything: as what changed, all would soon be written
/// once more.
#[test]
fn what_all_queues_got_is_written_once() {
    let mut world = World::new(settings());
    world.store.request_checkpoint();
    world.pass(60_000);
    let mut written = Vec::new();
    let lanes = world.lanes(10_000);
    for round in 0..3_usize {
        let lanes = if round == 0 { &lanes[..] } else { &lanes[..1] };
        for length in 0..20 {
            world.append(&vec![7; length % 7], lanes);
        }
        world.pass(100);
        let before = world.disk.index_bytes;
        world.store.request_checkpoint();
        world.pass(100);
        written.push(world.disk.index_bytes - before);
    }
    assert!(written[0] > 1 << 20, "{written:?}");
    assert!(written[1..].iter().all(|bytes| bytes * 50 < written[0]), "{written:?}");
}

/// What died waits for a checkpoint that writes more than it frees: not for ever, and not as if it cost
/// nothing.
#[test]
fn what_has_died_waits_longer_where_a_checkpoint_writes_more_than_it_frees() {
    let mut world = World::new(settings());
    let lanes = world.lanes(2_000);
    let mut shared = VecDeque::new();
    for round in 0..100_usize {
        shared.push_back(world.append(&vec![7; round % 7], &lanes));
        world.pass(10);
    }
    let busy = world.store.lane(Lane::of(QueueId(5_000)));
    let mut held = VecDeque::new();
    for seq in 0..5_000 {
        held.push_back((seq, world.append(&[7; 1_000], &[busy])));
    }
    world.pass(120_000);
    let before = world.store.figures();
    for round in 0..10 {
        // Every queue changes, and one segment dies.
        let position = shared.pop_front().unwrap();
        for &lane in &lanes {
            assert!(world.store.settle(lane, round, position, (round % 7) as u32));
        }
        for (seq, position) in held.drain(..270) {
            assert!(world.store.settle(busy, seq, position, 1_000));
        }
        world.pass(15_000);
    }
    let after = world.store.figures();
    let checkpoints = after.checkpoints - before.checkpoints;
    assert!((1..=5).contains(&checkpoints), "{checkpoints}");
    world.pass(300_000);
    let rest = world.store.figures();
    assert_eq!(rest.dead_segments, 0, "{rest:?}");
    assert!(rest.segments + 7 <= before.segments, "{rest:?} after {before:?}");
}

/// The more is not synced, the longer the next sync takes, and those of others wait for it.
#[test]
fn a_long_checkpoint_is_synced_in_pieces_while_it_is_written() {
    const LANES: u64 = 4_000;
    let mut world = World::new(settings());
    let lanes = world.lanes(LANES);
    for round in 0..300 {
        // Of changing deadlines: each is a run of its own, which is no short one.
        let deadline_millis = (1 << 40) + round * round * 1_000_000;
        let place = |&lane| Place { lane, seq: round, deadline_millis };
        let places: Vec<Place> = lanes.iter().map(place).collect();
        while world.store.append(&Message::default(), &places).is_err() {
            world.turn();
        }
    }
    world.pass(100);
    world.writes = Writes::default();
    world.store.request_checkpoint();
    world.pass(100);
    let writes = world.writes;
    assert!(writes.bytes > 10 << 20, "{writes:?}");
    // Pieces of a quarter of a megabyte, of which four may be under way.
    assert!(writes.unsynced_max <= 5 << 20, "{writes:?}");
    assert!(writes.synced >= 2, "{writes:?}");
}

/// However much there is to say, a turn says some slices of it.
#[test]
fn each_table_of_a_checkpoint_is_encoded_in_slices() {
    const SLICE_BYTES: usize = 1 << 10;
    const LANES: u64 = 40_000;
    let mut world = World::new(Settings {
        checkpoint_slice_bytes: SLICE_BYTES,
        compaction_percent: 90,
        compaction_slack_bytes: 0,
        compaction_rate: u64::MAX,
        relocations_kept: usize::MAX,
        lanes_kept: usize::MAX,
        ..settings()
    });
    let lanes = world.lanes(LANES);
    for lane in &lanes {
        world.append(&[7; 400], &[*lane]);
    }
    world.pass(1_000);
    world.writes = Writes::default();
    world.store.request_checkpoint();
    world.pass(1_000);
    // Half of the queues go, and what the others have is moved.
    for queue in (1..=LANES).step_by(2) {
        world.store.drop_queue(QueueId(queue));
    }
    world.pass(120_000);
    world.store.request_checkpoint();
    world.pass(1_000);
    let figures = world.store.figures();
    assert!(figures.relocated as u64 > LANES / 4, "{figures:?}");
    let writes = world.writes;
    assert!(writes.bytes > 1 << 20, "{writes:?}");
    // What is gathered for a write, and 5 slices: of 256 rows of 16 bytes.
    let most = 16 * SLICE_BYTES + 5 * 256 * 16;
    assert!(writes.turn_max <= most, "{writes:?}, {most} at most");
}
