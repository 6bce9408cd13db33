//! A store that waits for the disk asks for no cycle of its shard: it says when time alone changes
//! something, and that lies ahead.

use std::cell::Cell;
use std::time::Duration;

use lepus_base::{Now, QueueId};
use lepus_store::disk::{Action, File, LogId, Operation, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Lane, Message, Place, Settings, Space, Store};

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

/// Segments that come free end a shortage before a new file is tried again. Who needs more room than they
/// have is given it when the disk has some, without anybody's asking again.
#[test]
fn a_new_file_is_tried_again_also_when_a_freed_segment_ended_the_shortage() {
    let mut world = World::new(Settings { segment_bytes: 8192, ..Settings::new(LOG) });
    world.disk.bytes_max = world.disk.bytes() + 6 * 8192 + 8000;
    let lane = world.store.lane(Lane::of(QueueId(1)));
    let mut appended = Vec::new();
    for seq in 0..100 {
        let message =
            Message { exchange: b"e", routing_key: b"k", properties: &[], body: &[7; 1000] };
        let place = Place { lane, seq, deadline_millis: 0 };
        appended.extend(world.store.append(&message, &[place]).map(|at| (seq, at)));
        world.store.want_durable();
        world.run(|_| false);
    }
    world.pass(Duration::from_secs(60));
    world.run(|_| false);
    assert!(world.store.is_out_of_disk());
    for &(seq, at) in &appended {
        assert!(world.store.settle(lane, seq, at, 1000));
    }
    world.store.request_checkpoint();
    for _ in 0..3 {
        world.pass(Duration::from_millis(250));
        world.run(|_| false);
    }
    assert!(!world.store.is_out_of_disk());
    assert!(world.store.has_room(1000));
    assert!(!world.store.has_room(40_000));
    world.disk.bytes_max = u64::MAX;
    while !world.store.has_room(40_000) {
        let due = world.store.next_timeout();
        assert!(due < world.now.instant + Duration::from_secs(2), "{due:?}");
        world.now.instant = due.max(world.now.instant);
        world.run(|_| false);
    }
}

/// The shortage is there again when the segment that ended it is used up, and not only when the next try
/// for a new file says so.
#[test]
fn a_freed_segment_that_is_used_up_ends_no_shortage() {
    let mut world = World::new(Settings { segment_bytes: 8192, ..Settings::new(LOG) });
    world.disk.bytes_max = world.disk.bytes() + 6 * 8192 + 8000;
    let lane = world.store.lane(Lane::of(QueueId(1)));
    let fill = |world: &mut World, seqs: std::ops::Range<u64>| {
        let mut appended = Vec::new();
        for seq in seqs {
            let message =
                Message { exchange: b"e", routing_key: b"k", properties: &[], body: &[7; 1000] };
            let place = Place { lane, seq, deadline_millis: 0 };
            appended.extend(world.store.append(&message, &[place]).map(|at| (seq, at)));
            world.store.want_durable();
            world.run(|_| false);
        }
        appended
    };
    let appended = fill(&mut world, 0..100);
    world.pass(Duration::from_secs(60));
    world.run(|_| false);
    assert!(world.store.is_out_of_disk());
    for &(seq, at) in &appended {
        assert!(world.store.settle(lane, seq, at, 1000));
    }
    world.store.request_checkpoint();
    for _ in 0..3 {
        world.pass(Duration::from_millis(250));
        world.run(|_| false);
    }
    assert!(!world.store.is_out_of_disk());
    let more = fill(&mut world, 100..200);
    assert!((1..100).contains(&more.len()), "{} more", more.len());
    assert_eq!(world.store.space(), Space::Full);
    assert!(world.store.is_out_of_disk());
}

/// Messages that were moved once are found through the index when they are moved again: more of its
/// pages in one batch than are kept otherwise, and each is read once.
#[test]
fn a_batch_that_needs_many_index_pages_is_moved_with_each_of_them_read_once() {
    let settings = Settings {
        segment_bytes: 8 << 20,
        index_pages_max: 0,
        lanes_kept: 0,
        compaction_slack_bytes: 0,
        ..Settings::new(LOG)
    };
    let mut world = World::new(settings);
    let lane = world.store.lane(Lane::of(QueueId(1)));
    // Numbers and deadlines far apart make long entries, of which a page holds few.
    let (count, step) = (40_000, 1 << 40);
    for number in 0..count {
        let message = Message { exchange: b"", routing_key: b"k", properties: &[0, 0], body: b"x" };
        let deadline_millis = (number % 2) << 60;
        let place = Place { lane, seq: number * step, deadline_millis };
        world.store.append(&message, &[place]).expect("there is room");
        if number % 1000 == 0 {
            world.store.want_durable();
            world.run(|_| false);
        }
    }
    let kept: Vec<u64> = (0..count).step_by(100).map(|number| number * step).collect();
    world.store.purge(lane, count * step, &kept);
    let pages_read = Cell::new(0);
    let counted = |action: &Action| {
        let is_page = matches!(action, Action::Read { file: File::Index(_), .. });
        pages_read.set(pages_read.get() + u32::from(is_page));
        assert!(pages_read.get() < 2_000, "pages are read again and again");
        false
    };
    for life in 0..3 {
        for _ in 0..100 {
            world.pass(Duration::from_secs(1));
            world.run(counted);
        }
        let moved = world.store.figures().moved;
        match life {
            0 => assert_eq!(moved, 0, "they are in the segment that is written"),
            1 => assert_eq!(moved, kept.len() as u64),
            _ => {
                assert_eq!(moved, kept.len() as u64);
                assert!((150..kept.len() as u32).contains(&pages_read.get()), "{pages_read:?}");
            }
        }
        let lane = world.store.lane(Lane::of(QueueId(1)));
        assert_eq!(world.store.count(lane).0, kept.len() as u64);
        world.store.close();
        world.run(|_| false);
        assert!(world.store.is_closed());
        pages_read.set(0);
        world.store = Store::open(settings, &mut world.out);
        world.run(counted);
    }
}
