//! What a log takes of the disk: nothing without messages, never more than it may, and little beside what
//! it holds.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{Action, File, LogId, Operation, Operations};
use lepus_store::simulation::Plain;
use lepus_store::{AppendError, Lane, LaneSlot, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);
const SEGMENT_BYTES: u32 = 64 << 10;

struct World {
    store: Store,
    disk: Plain,
    out: Operations,
    millis: u64,
    /// The most that the disk had.
    peak: u64,
    /// Segments that were made.
    made: usize,
    /// Where the last message is.
    last: Position,
}

impl World {
    fn open(settings: Settings, disk: Plain) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let last = Position(0);
        let mut world = World { store, disk, out, millis: 1, peak: 0, made: 0, last };
        world.pass(100);
        assert!(world.store.is_running());
        world
    }

    fn turn(&mut self) -> bool {
        let now = Now::from_millis(self.millis);
        let mut more = self.store.work(now, &mut self.out);
        self.store.flush(now, &mut self.out);
        self.submit();
        while let Some(completion) = self.disk.step() {
            // What is done makes another turn.
            more = true;
            self.peak = self.peak.max(self.disk.bytes());
            self.store.complete(now, completion, &mut self.out);
            self.submit();
        }
        more
    }

    fn submit(&mut self) {
        let is_segment = |operation: &&Operation| {
            matches!(operation.action, Action::Create { file: File::Segment(..), .. })
        };
        self.made += self.out.list.iter().filter(is_segment).count();
        self.disk.submit(&mut self.out.list);
    }

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

    fn lane(&mut self) -> LaneSlot {
        self.store.lane(Lane::of(QueueId(1)))
    }

    fn try_append(&mut self, length: usize) -> Result<Position, AppendError> {
        let lane = self.lane();
        let places = [Place { lane, seq: self.store.next_seq(lane), deadline_millis: 0 }];
        let body = vec![7; length];
        let message =
            Message { exchange: b"", routing_key: b"q", properties: &[0, 0], body: &body };
        self.store.append(&message, &places)
    }

    /// Appends as soon as there is room; how many turns that took.
    fn append(&mut self, length: usize) -> usize {
        for turns in 0..10 {
            match self.try_append(length) {
                Ok(position) => {
                    self.last = position;
                    return turns;
                }
                Err(error) => assert_eq!(error, AppendError::Full),
            }
            self.turn();
        }
        panic!("no room");
    }

    fn purge(&mut self) {
        let lane = self.lane();
        let end = self.store.next_seq(lane);
        self.store.purge(lane, end, &[]);
    }

    /// Messages come and go for a while; how many segments there are then.
    fn keep_busy(&mut self) -> u64 {
        for sent in 0..3_000 {
            self.append(2_000);
            if sent % 20 == 0 {
                self.purge();
            }
            self.pass(5);
        }
        let busy = self.segments();
        assert!(busy > 15, "{busy}");
        busy
    }

    fn segments(&self) -> u64 {
        self.disk.bytes() / u64::from(SEGMENT_BYTES)
    }
}

fn settings() -> Settings {
    Settings { segment_bytes: SEGMENT_BYTES, ..Settings::new(LOG) }
}

/// A checkpoint every sixteen segments.
fn frequent() -> Settings {
    Settings { checkpoint_log_bytes: 16 * u64::from(SEGMENT_BYTES), ..settings() }
}

#[test]
fn a_log_that_is_not_kept_ready_has_segments_while_messages_come_and_for_ten_seconds_more() {
    let settings = Settings { is_kept_ready: false, ..settings() };
    let mut world = World::open(settings, Plain::default());
    world.pass(60_000);
    assert_eq!(world.segments(), 0);
    assert!(!world.store.is_out_of_disk());
    assert!(world.append(100) <= 3);
    world.pass(9_000);
    assert_eq!(world.segments(), 5, "one in use, two to spare and two in reserve");
    world.pass(60_000);
    assert_eq!(world.segments(), 1);
    // Settles have room without that.
    world.purge();
    world.pass(60_000);
    let mut world = World::open(settings, world.disk);
    let lane = world.lane();
    assert_eq!(world.store.count(lane).0, 0);
    world.store.keep_ready();
    world.pass(60_000);
    assert!(world.segments() >= 4);
    // What a start finds and nobody needs goes.
    let mut world = World::open(settings, world.disk);
    world.store.request_checkpoint();
    world.pass(1_000);
    assert!(world.segments() <= 1, "{}", world.segments());
}

#[test]
fn settles_of_a_log_that_rests_get_a_segment_when_they_are_written() {
    let settings = Settings { is_kept_ready: false, ..settings() };
    let mut world = World::open(settings, Plain::default());
    world.append(100);
    world.pass(60_000);
    let mut world = World::open(settings, world.disk);
    let lane = world.lane();
    assert_eq!(world.store.count(lane).0, 1);
    world.purge();
    world.store.want_synced();
    world.pass(2_000);
    assert_eq!(world.store.synced(), world.store.end());
}

#[test]
fn all_files_of_a_log_together_stay_within_what_it_may_take() {
    for length in [10, 300, 20_000] {
        let bytes_max = 24 * u64::from(SEGMENT_BYTES);
        let settings = Settings { bytes_max, index_pages_max: 4, ..settings() };
        let mut world = World::open(settings, Plain::default());
        for round in 0..3 {
            let mut sent = 0;
            loop {
                if world.try_append(length).is_ok() {
                    sent += 1;
                    continue;
                }
                world.pass(2_000);
                if world.try_append(length).is_err() {
                    break;
                }
                sent += 1;
            }
            world.pass(5_000);
            let held = sent * length as u64;
            assert!(world.peak <= bytes_max, "{} of {bytes_max}", world.peak);
            assert!(round > 0 || held > bytes_max / 8, "{length}: {held} of {bytes_max}");
            assert!(world.store.is_out_of_disk());
            world.purge();
            world.pass(30_000);
            assert!(!world.store.is_out_of_disk());
        }
    }
}

#[test]
fn empty_segments_are_kept_as_many_as_are_begun_between_two_checkpoints() {
    let mut world = World::open(settings(), Plain::default());
    for _ in 0..2_000 {
        world.append(2_000);
        world.pass(5);
    }
    world.pass(30_000);
    assert!(world.segments() > 50);
    world.purge();
    world.pass(60_000);
    assert!(world.segments() < 12, "{}", world.segments());
}

#[test]
fn segments_are_used_again_while_messages_come_and_go() {
    let mut world = World::open(frequent(), Plain::default());
    for sent in 0..30_000 {
        world.append(2_000);
        if sent % 20 == 0 {
            world.purge();
        }
        world.pass(5);
    }
    // Without use they would be 900.
    assert!(world.made <= 40, "{} made", world.made);
    let busy = world.segments();
    world.purge();
    world.pass(60_000);
    assert!(world.segments() < busy && world.segments() < 12, "{} of {busy}", world.segments());
}

#[test]
fn segments_that_are_not_needed_yet_are_given_to_others_who_are_short() {
    let settings = Settings { bytes_max: 1 << 30, ..frequent() };
    let mut world = World::open(settings, Plain::default());
    let busy = world.keep_busy();
    world.purge();
    world.store.set_bytes_max(world.store.disk_bytes() / 2);
    world.store.request_checkpoint();
    // Messages may still come: without others' need they would be kept.
    world.pass(4_000);
    assert!(world.segments() < 12, "{} of {busy}", world.segments());
    assert!(world.try_append(2_000).is_ok());
}

#[test]
fn surplus_that_an_earlier_run_left_is_given_back_too() {
    let mut world = World::open(frequent(), Plain::default());
    let busy = world.keep_busy();
    // As after a kill: the next run finds the files.
    world.purge();
    world.store.request_checkpoint();
    world.pass(100);
    assert!(world.segments() > 15, "{} at the kill", world.segments());
    let mut world = World::open(frequent(), world.disk);
    world.store.keep_ready();
    world.append(2_000);
    world.pass(60_000);
    let quiet = world.segments();
    assert!(quiet < 12, "{quiet} of {busy}");
}

#[test]
fn surplus_of_a_waiter_that_left_is_given_back_too() {
    let mut world = World::open(frequent(), Plain::default());
    let busy = world.keep_busy();
    // Something long asks once, and is gone.
    assert!(!world.store.has_room(40 * SEGMENT_BYTES as usize));
    world.pass(60_000);
    let quiet = world.segments();
    assert!(quiet < 12, "{quiet} of {busy}");
}

/// No messages come any more, and most of those that are there are settled here and there.
#[test]
fn a_log_that_rests_is_emptied_of_what_is_dead_as_others_are() {
    let settings = Settings { is_kept_ready: false, ..settings() };
    let mut world = World::open(settings, Plain::default());
    let sent: Vec<_> = (0..10_000)
        .map(|_| {
            world.append(1_000);
            world.last
        })
        .collect();
    world.pass(60_000);
    let before = world.segments();
    let lane = world.lane();
    for (seq, position) in sent.into_iter().enumerate() {
        assert!(seq % 20 == 0 || world.store.settle(lane, seq as u64, position, 1_000));
    }
    world.pass(300_000);
    let after = world.segments();
    assert!(before > 150 && after < 50, "{after} of {before}");
}
