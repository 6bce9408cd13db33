//! A store that waits for the disk asks for no cycle of its shard: it says when time alone changes
//! something, and that lies ahead.

use std::time::Duration;

use lepus_base::{Now, QueueId};
use lepus_store::disk::{Action, LogId, Operation, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Lane, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);
/// Cycles that may follow at one moment until the store rests.
const CYCLES_MAX: usize = 500;

/// A store, its disk, and what the disk is not asked yet.
struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    waiting: Vec<Operation>,
    now: Now,
}

impl World {
    fn new(settings: Settings) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let (disk, now) = (Disk::new(3), Now::from_millis(1));
        let mut world = World { store, disk, out, waiting: Vec::new(), now };
        world.run(|_| false);
        world
    }

    /// Lets the disk do everything that it is asked for, but what is `held`.
    fn run(&mut self, held: impl Fn(&Action) -> bool) {
        loop {
            self.rest();
            self.waiting.append(&mut self.out.list);
            let (held, mut free): (Vec<_>, Vec<_>) =
                self.waiting.drain(..).partition(|operation| held(&operation.action));
            self.waiting = held;
            self.disk.submit(&mut free);
            let Some(completion) = self.disk.step() else { return };
            self.store.complete(self.now, completion, &mut self.out);
            while let Some(completion) = self.disk.step() {
                self.store.complete(self.now, completion, &mut self.out);
            }
        }
    }

    /// Cycles until the store rests.
    fn rest(&mut self) -> usize {
        for cycle in 1..=CYCLES_MAX {
            self.store.flush(self.now, &mut self.out);
            let more = self.store.work(self.now, &mut self.out);
            if !more && self.store.next_timeout() > self.now.instant {
                return cycle;
            }
        }
        panic!("after {CYCLES_MAX} cycles the store still has something to do at once");
    }

    fn pass(&mut self, time: Duration) {
        self.now = Now { instant: self.now.instant + time, ..self.now };
    }
}

fn is_new_file(action: &Action) -> bool {
    matches!(action, Action::Create { .. })
}

#[test]
fn a_shard_rests_while_what_is_to_be_written_waits_for_a_segment() {
    let settings = Settings {
        segment_bytes: 8192,
        batch_bytes_max: 4096,
        spare_segments: 1,
        ..Settings::new(LOG)
    };
    let mut world = World::new(settings);
    for queue in 0..4000 {
        world.store.lane(Lane::of(QueueId(queue)));
    }
    // Records that are no messages are always taken: more than the segments there are hold.
    for queue in 0..4000 {
        world.store.drop_queue(QueueId(queue));
    }
    world.store.want_durable();
    world.run(is_new_file);
    assert!(world.store.unwritten_bytes() > 8192, "no segment is there for the rest");
    for _ in 0..50 {
        world.pass(Duration::from_millis(72));
        world.rest();
    }
    world.run(|_| false);
    assert_eq!(world.store.unwritten_bytes(), 0);
    assert_eq!(world.store.durable(), world.store.end());
}

#[test]
fn a_shard_rests_while_the_store_may_not_grow() {
    let settings = Settings { segment_bytes: 8192, segments_max: 4, ..Settings::new(LOG) };
    let mut world = World::new(settings);
    let lane = world.store.lane(Lane::of(QueueId(1)));
    let mut refused = 0;
    for seq in 0..100 {
        let message =
            Message { exchange: b"e", routing_key: b"k", properties: &[], body: &[7; 1000] };
        let place = Place { lane, seq, deadline_millis: 0 };
        refused += u32::from(world.store.append(&message, &[place]).is_err());
        world.store.want_durable();
        world.run(|_| false);
    }
    assert!(refused > 0 && world.store.is_out_of_disk());
    world.pass(Duration::from_secs(3600));
    world.run(|_| false);
}

#[test]
fn a_shard_rests_while_a_new_file_is_tried_again() {
    let mut world = World::new(Settings { segment_bytes: 8192, ..Settings::new(LOG) });
    world.disk.bytes_max = world.disk.bytes();
    let lane = world.store.lane(Lane::of(QueueId(1)));
    for seq in 0..100 {
        let message =
            Message { exchange: b"e", routing_key: b"k", properties: &[], body: &[7; 1000] };
        let place = Place { lane, seq, deadline_millis: 0 };
        let _ = world.store.append(&message, &[place]);
        world.store.want_durable();
        world.run(|_| false);
    }
    assert!(world.store.is_out_of_disk());
    for _ in 0..50 {
        world.pass(Duration::from_secs(60));
        world.run(is_new_file);
    }
    world.disk.bytes_max = u64::MAX;
    world.run(|_| false);
    assert!(!world.store.is_out_of_disk());
}
