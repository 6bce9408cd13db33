//! A disk without room: what is dead comes free all the same.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{Action, Completion, DiskError, File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Event, Lane, LaneSlot, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);
/// Lanes with a message that stays: a checkpoint is longer than a segment.
const LANES: u64 = 1_000;
const BODY_BYTES: usize = 500;

struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    millis: u64,
    lane: LaneSlot,
    next: u64,
    /// Of the lane.
    alive: Vec<(u64, Position)>,
    created: u64,
    is_checkpoint_refused: bool,
}

impl World {
    /// A store with many lanes and two checkpoints.
    fn new() -> World {
        let settings =
            Settings { segment_bytes: 8192, batch_bytes_max: 4096, ..Settings::new(LOG) };
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut world = World {
            store,
            disk: Disk::new(3),
            out,
            millis: 1,
            lane: LaneSlot(0),
            next: 0,
            alive: Vec::new(),
            created: 0,
            is_checkpoint_refused: false,
        };
        world.pass(10);
        for queue in 0..LANES {
            let lane = world.store.lane(Lane::of(QueueId(queue)));
            let place = Place { lane, seq: 0, deadline_millis: 0 };
            while world.store.append(&Message::default(), &[place]).is_err() {
                world.pass(1);
            }
        }
        world.lane = world.store.lane(Lane::of(QueueId(LANES)));
        for _ in 0..2 {
            world.store.request_checkpoint();
            world.pass(100);
        }
        assert!(world.store.figures().checkpoints >= 2);
        world
    }

    fn now(&self) -> Now {
        Now::from_millis(self.millis)
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.millis += 1;
            let now = self.now();
            self.store.flush(now, &mut self.out);
            self.store.work(now, &mut self.out);
            for operation in std::mem::take(&mut self.out.list) {
                let is_refused = self.is_checkpoint_refused
                    && matches!(operation.action, Action::Write { file: File::Checkpoint(..), .. });
                self.created += u64::from(matches!(operation.action, Action::Create { .. }));
                let completion = if is_refused {
                    Completion::failed(operation.id, DiskError::Full)
                } else {
                    self.disk.submit(&mut vec![operation]);
                    self.disk.step().expect("it was submitted")
                };
                self.store.complete(now, completion, &mut self.out);
            }
        }
    }

    fn append(&mut self) -> bool {
        let message = Message { body: &[7; BODY_BYTES], ..Message::default() };
        let place = Place { lane: self.lane, seq: self.next, deadline_millis: 0 };
        let Ok(position) = self.store.append(&message, &[place]) else { return false };
        self.alive.push((self.next, position));
        self.next += 1;
        self.store.want_durable();
        true
    }

    /// Appends until there is no room; how many.
    fn fill(&mut self) -> usize {
        let before = self.alive.len();
        let mut refused = 0;
        while refused < 3_000 {
            let is_refused = !self.append();
            refused = if is_refused { refused + 1 } else { 0 };
            self.pass(1);
        }
        self.alive.len() - before
    }

    fn settle_all(&mut self) {
        for (seq, position) in std::mem::take(&mut self.alive) {
            assert!(self.store.settle(self.lane, seq, position, BODY_BYTES as u32));
        }
    }

    fn checkpoints(&self) -> usize {
        let is_checkpoint = |(file, _): &(File, u64)| matches!(file, File::Checkpoint(..));
        self.disk.files().filter(is_checkpoint).count()
    }
}

#[test]
fn a_checkpoint_finds_its_room_on_a_disk_that_others_have_filled() {
    let mut world = World::new();
    world.disk.bytes_max = world.disk.bytes() + 400_000;
    assert!(world.fill() > 400);
    // Somebody else takes what is left.
    world.disk.bytes_max = world.disk.bytes();
    world.settle_all();
    world.created = 0;
    world.pass(15_000);
    let figures = world.store.figures();
    assert!(figures.dead_segments <= 2, "{figures:?}");
    assert!(world.created <= 20, "{} segments are made", world.created);
    assert!(world.fill() > 300);
}

#[test]
fn checkpoints_that_are_given_up_leave_no_files() {
    let mut world = World::new();
    let before = world.store.figures().checkpoints;
    world.is_checkpoint_refused = true;
    world.store.request_checkpoint();
    world.pass(30_000);
    assert!(world.checkpoints() <= 2, "{} files", world.checkpoints());
    world.is_checkpoint_refused = false;
    world.pass(2_000);
    assert!(world.store.figures().checkpoints > before);
    let mut events = Vec::new();
    world.store.take_events(&mut events);
    let told = |which: fn(&Event) -> bool| events.iter().filter(|event| which(event)).count();
    assert_eq!(told(|event| matches!(event, Event::CheckpointWaits(bytes) if *bytes > 8192)), 1);
    assert_eq!(told(|event| matches!(event, Event::CheckpointGoesOn)), 1);
    assert!(world.checkpoints() <= 2, "{} files", world.checkpoints());
}
