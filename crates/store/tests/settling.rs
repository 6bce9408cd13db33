//! When settlements come to the disk.

use std::time::Duration;

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{Action, File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Lane, LaneSlot, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);

/// A store on a disk that does at once what it is asked for.
struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    now: Now,
}

impl World {
    fn new() -> World {
        let mut out = Operations::default();
        let store = Store::open(Settings::new(LOG), &mut out);
        let mut world = World { store, disk: Disk::new(3), out, now: Now::from_millis(1) };
        world.run();
        world
    }

    fn run(&mut self) {
        loop {
            self.store.flush(self.now, &mut self.out);
            let more = self.store.work(self.now, &mut self.out);
            self.disk.submit(&mut self.out.list);
            let completion = self.disk.step();
            if let Some(completion) = completion {
                self.store.complete(self.now, completion, &mut self.out);
            } else if !more {
                return;
            }
        }
    }

    /// Time passes, and everything happens when it is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now.instant + time;
        while self.store.next_timeout() <= end {
            self.now.instant = self.now.instant.max(self.store.next_timeout());
            self.run();
        }
        self.now.instant = end;
    }

    /// A message in the lane of a queue, on the disk.
    fn append(&mut self, lane: LaneSlot) -> (u64, Position) {
        let seq = self.store.next_seq(lane);
        let message = Message { exchange: b"", routing_key: b"q", properties: &[0, 0], body: b"b" };
        let place = Place { lane, seq, deadline_millis: 0 };
        let position = self.store.append(&message, &[place]).expect("there is room");
        self.store.want_durable();
        self.run();
        (seq, position)
    }
}

#[test]
fn a_settlement_is_on_the_disk_in_time_whatever_else_is_written_meanwhile() {
    let purge = |world: &mut World, other: LaneSlot| {
        let end = world.store.next_seq(other);
        world.store.purge(other, end, &[]);
    };
    let drop = |world: &mut World, _: LaneSlot| world.store.drop_queue(QueueId(2));
    let checkpoint = |world: &mut World, _: LaneSlot| world.store.request_checkpoint();
    let append = |world: &mut World, other: LaneSlot| {
        world.append(other);
    };
    let nothing = |_: &mut World, _: LaneSlot| ();
    let meanwhile: [fn(&mut World, LaneSlot); 5] = [purge, drop, checkpoint, append, nothing];
    for (place, act) in meanwhile.into_iter().enumerate() {
        let mut world = World::new();
        let lane = world.store.lane(Lane::of(QueueId(1)));
        let other = world.store.lane(Lane::of(QueueId(2)));
        world.append(other);
        let (seq, position) = world.append(lane);
        world.pass(Duration::from_secs(5));
        assert!(world.store.settle(lane, seq, position, 1));
        world.run();
        world.pass(Duration::from_millis(150));
        act(&mut world, other);
        world.run();
        let end = world.store.end();
        world.pass(Duration::from_millis(50));
        assert_eq!(world.store.unwritten_bytes(), 0, "after 200 ms with {place}");
        world.pass(Duration::from_millis(800));
        assert!(world.store.synced() >= end, "after 1 s with {place}");
        let mut disk = world.disk;
        disk.crash();
        let mut again =
            World { store: Store::open(Settings::new(LOG), &mut world.out), disk, ..world };
        again.run();
        let lane = again.store.lane(Lane::of(QueueId(1)));
        assert_eq!(again.store.count(lane).0, 0, "it came back with {place}");
    }
}

/// The root is as good as a promise that they are there.
#[test]
fn a_checkpoint_waits_for_the_settlements_before_it() {
    let mut world = World::new();
    let lane = world.store.lane(Lane::of(QueueId(1)));
    let sent: Vec<_> = (0..10).map(|_| world.append(lane)).collect();
    world.pass(Duration::from_secs(5));
    let before = world.store.figures().checkpoints;
    for (seq, position) in sent {
        assert!(world.store.settle(lane, seq, position, 1));
    }
    world.store.request_checkpoint();
    // The disk does everything but what concerns the log itself.
    let (mut held, mut checkpoint, mut roots) = (Vec::new(), 0, 0);
    for _ in 0..100 {
        world.store.flush(world.now, &mut world.out);
        world.store.work(world.now, &mut world.out);
        for operation in std::mem::take(&mut world.out.list) {
            match operation.action {
                Action::Write { file: File::Segment(..), .. } | Action::Sync(File::Segment(..)) => {
                    held.push(operation);
                    continue;
                }
                Action::Sync(File::Checkpoint(..)) => checkpoint += 1,
                Action::Write { file: File::Root(_), .. } => roots += 1,
                _ => {}
            }
            world.disk.submit(&mut vec![operation]);
            let completion = world.disk.step().expect("it was submitted");
            world.store.complete(world.now, completion, &mut world.out);
        }
    }
    assert_eq!((held.len(), checkpoint, roots), (1, 1, 0));
    world.disk.submit(&mut held);
    world.run();
    assert_eq!(world.store.figures().checkpoints, before + 1);
}
