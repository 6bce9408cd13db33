//! Room for what is passed on within a log: it comes free only when it is written a second time.

use lepus_base::{Now, Position, QueueId, Rng};
use lepus_store::disk::{LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{AppendError, Lane, LaneSlot, Message, Place, Settings, Space, Store};

const LOG: LogId = LogId(1);
const SEGMENT_BYTES: usize = 64 << 10;
/// Of what others append.
const SHORT_BYTES: usize = 1_000;
/// What a message takes beside its body, at most.
const EXTRA_BYTES: usize = 100;

struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    millis: u64,
    lane: LaneSlot,
    next: u64,
}

impl World {
    fn new(segments_max: usize) -> World {
        World::with(Settings { segments_max, ..Settings::new(LOG) })
    }

    fn with(settings: Settings) -> World {
        let settings = Settings {
            segment_bytes: SEGMENT_BYTES as u32,
            batch_bytes_max: 16 << 10,
            checkpoint_log_bytes: 1 << 20,
            free_segments_max: 2,
            ..settings
        };
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let (disk, lane) = (Disk::new(3), LaneSlot(0));
        let mut world = World { store, disk, out, millis: 1, lane, next: 0 };
        world.pass(10);
        world.lane = world.store.lane(Lane::of(QueueId(1)));
        world
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.millis += 1;
            let now = Now::from_millis(self.millis);
            self.store.flush(now, &mut self.out);
            while self.store.work(now, &mut self.out) {}
            for operation in std::mem::take(&mut self.out.list) {
                self.disk.submit(&mut vec![operation]);
                let completion = self.disk.step().expect("it was submitted");
                self.store.complete(now, completion, &mut self.out);
            }
        }
    }

    fn try_append(&mut self, length: usize) -> Result<(u64, Position), AppendError> {
        let body = vec![7; length];
        let message = Message { body: &body, ..Message::default() };
        let place = Place { lane: self.lane, seq: self.next, deadline_millis: 0 };
        let position = self.store.append(&message, &[place])?;
        self.store.want_durable();
        self.next += 1;
        Ok((self.next - 1, position))
    }

    /// Whether there is room for a message as a whole, if it waits.
    fn has_room(&mut self, length: usize) -> bool {
        (0..5_000).any(|_| {
            let has_room = self.store.has_room(length + EXTRA_BYTES);
            if !has_room {
                self.pass(1);
            }
            has_room
        })
    }

    /// A message that waits for its room; `None` where there is none for a long time.
    fn append(&mut self, length: usize) -> Option<(u64, Position)> {
        let has_room = self.has_room(length);
        has_room.then(|| self.try_append(length).expect("there was room"))
    }

    /// Others append what they can.
    fn fill(&mut self) {
        while self.append(SHORT_BYTES).is_some() {
            self.pass(1);
        }
        assert_eq!(self.store.space(), Space::Full);
    }

    fn settle(&mut self, (seq, position): (u64, Position), length: usize) {
        assert!(self.store.settle(self.lane, seq, position, length as u32));
    }

    /// Passes a message on: the one that takes its place, if there is room for that.
    fn pass_on(&mut self, sent: (u64, Position), length: usize) -> Option<(u64, Position)> {
        self.store.set_passing(true);
        let next = self.append(length);
        self.store.set_passing(false);
        if next.is_some() {
            self.settle(sent, length);
        }
        next
    }
}

/// Others leave as much as it takes to write the longest message again, each time anew.
#[test]
fn what_is_long_is_passed_on_in_a_log_that_others_have_filled() {
    let mut world = World::new(24);
    let long = 4 * SEGMENT_BYTES;
    let mut sent = world.append(long).expect("room in an empty log");
    for _ in 0..5 {
        world.fill();
        sent = world.pass_on(sent, long).expect("the long one stays for ever");
    }
}

/// It has room itself only where that is left when it is there.
#[test]
fn what_is_long_and_comes_late_is_passed_on_as_well() {
    let long = 4 * SEGMENT_BYTES;
    for before in (0..1_400).step_by(100) {
        let mut world = World::new(24);
        for _ in 0..before {
            world.append(SHORT_BYTES);
        }
        let Some(sent) = world.append(long) else { continue };
        world.fill();
        assert!(world.pass_on(sent, long).is_some(), "behind {before} short ones");
    }
}

/// What takes up to about an eighth of what the log may take finds room whatever else is there, and what is
/// longer where little else is.
#[test]
fn what_is_long_finds_room_in_a_small_log_that_others_have_filled_or_left() {
    let (mut filled, mut left) = (0, 0);
    for segments_max in 6..=32 {
        for halves in [3, 4, 5, 6, 8] {
            let length = halves * SEGMENT_BYTES / 2;
            let mut world = World::new(segments_max);
            if !world.store.could_hold_beside(length + EXTRA_BYTES, length) {
                continue;
            }
            let sent = world.append(length).expect("room in an empty log");
            let segments = halves / 2 + 2;
            if 2 * segments + 5 <= segments_max / 4 * 3 {
                filled += 1;
                world.fill();
            } else {
                left += 1;
            }
            let told = format!("{length} bytes, {segments_max} segments");
            assert!(world.pass_on(sent, length).is_some(), "{told}");
        }
    }
    assert!(filled > 20 && left > 10, "{filled} {left}");
}

/// A disk does not say beforehand that it will be full.
#[test]
fn what_is_long_is_passed_on_on_a_disk_that_others_have_filled() {
    for long in [5_000, 3 * SEGMENT_BYTES / 2, 4 * SEGMENT_BYTES] {
        let mut world = World::new(usize::MAX);
        let sent = world.append(long).expect("room in an empty log");
        world.pass(1_000);
        world.disk.bytes_max = world.disk.bytes() + 16 * SEGMENT_BYTES as u64;
        world.fill();
        assert!(world.pass_on(sent, long).is_some(), "{long} bytes");
    }
}

/// Where the disk has room for little more than what is long and its like, others find some all the same.
#[test]
fn what_is_long_does_not_keep_others_from_a_small_disk() {
    let mut world = World::new(usize::MAX);
    world.disk.bytes_max = 20 * SEGMENT_BYTES as u64;
    world.append(15 * SEGMENT_BYTES / 2).expect("room on an empty disk");
    world.pass(5_000);
    for short in 0..100 {
        assert!(world.append(SHORT_BYTES).is_some(), "{short}");
        world.pass(100);
    }
}

/// Several messages that find room together, and are held, are all taken.
#[test]
fn what_is_held_finds_the_room_that_it_was_told() {
    let mut rng = Rng::new(5);
    let (mut held, mut refused) = (0, 0);
    for round in 0..40 {
        let mut world = World::new(8 + round % 12);
        let mut sent: Vec<((u64, Position), usize)> = Vec::new();
        for _ in 0..300 {
            match rng.below(10) {
                0..=3 => {
                    let length = 1 + rng.below(9_000) as usize;
                    match world.store.has_room(length + EXTRA_BYTES) {
                        true => sent.push((world.try_append(length).unwrap(), length)),
                        false => world.pass(30),
                    }
                }
                4..=5 if !sent.is_empty() => {
                    let at = rng.below(sent.len() as u64) as usize;
                    let (one, length) = sent.swap_remove(at);
                    world.settle(one, length);
                }
                6 => world.pass(1 + rng.below(400)),
                _ => {
                    let lengths: Vec<usize> =
                        (0..=rng.below(12)).map(|_| rng.below(8_000) as usize).collect();
                    let bytes = lengths.iter().map(|length| length + EXTRA_BYTES).sum();
                    if bytes > SEGMENT_BYTES - 200 || !world.store.has_room(bytes) {
                        refused += 1;
                        world.pass(5);
                        continue;
                    }
                    world.store.hold(bytes).expect("there is room");
                    held += 1;
                    for length in lengths {
                        let one = world.try_append(length).expect("it is held");
                        sent.push((one, length));
                    }
                    world.pass(rng.below(2));
                }
            }
        }
    }
    assert!(held > 500 && refused > 500, "{held} {refused}");
}
