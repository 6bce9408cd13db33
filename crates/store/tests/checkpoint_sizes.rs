//! What a checkpoint writes, and the room that is kept for it, follow what the lanes take.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{AppendError, Lane, LaneSlot, Message, Place, Settings, Store};

struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    millis: u64,
    /// Bytes that the disk had in use at most.
    peak: u64,
}

impl World {
    fn new(settings: Settings) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut world = World { store, disk: Disk::new(3), out, millis: 1, peak: 0 };
        world.pass(100);
        world
    }

    fn turn(&mut self) -> bool {
        let now = Now::from_millis(self.millis);
        let has_more = self.store.work(now, &mut self.out);
        self.store.flush(now, &mut self.out);
        self.disk.submit(&mut self.out.list);
        while let Some(completion) = self.disk.step() {
            self.store.complete(now, completion, &mut self.out);
            self.disk.submit(&mut self.out.list);
        }
        self.peak = self.peak.max(self.disk.bytes());
        has_more
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..=millis / 100 {
            self.millis += 100;
            while self.turn() {}
        }
    }

    fn lane(&mut self, queue: u64) -> LaneSlot {
        self.store.lane(Lane::of(QueueId(queue)))
    }

    fn try_append(&mut self, queue: u64, bytes: usize) -> Result<(u64, Position), AppendError> {
        let lane = self.lane(queue);
        let seq = self.store.next_seq(lane);
        let body = vec![7; bytes];
        let message =
            Message { routing_key: b"q", properties: &[0, 0], body: &body, ..Message::default() };
        let position = self.store.append(&message, &[Place { lane, seq, deadline_millis: 0 }])?;
        Ok((seq, position))
    }

    fn append(&mut self, queue: u64, bytes: usize) -> (u64, Position) {
        loop {
            match self.try_append(queue, bytes) {
                Ok(sent) => return sent,
                Err(_) => _ = self.turn(),
            }
        }
    }

    fn settle(&mut self, queue: u64, sent: &[(u64, Position)], bytes: u32) {
        let lane = self.lane(queue);
        for (seq, position) in sent {
            assert!(self.store.settle(lane, *seq, *position, bytes));
        }
    }

    /// Bytes of a checkpoint that is asked for now.
    fn checkpoint(&mut self) -> u64 {
        let before = self.store.figures().index_bytes;
        self.store.request_checkpoint();
        self.pass(1_000);
        self.store.figures().index_bytes - before
    }
}

fn settings() -> Settings {
    Settings { segment_bytes: 1 << 20, is_kept_ready: false, ..Settings::new(LogId(1)) }
}

#[test]
fn few_changes_cost_little_however_wide_other_lanes_are() {
    let mut world = World::new(settings());
    let sent: Vec<_> = (0..100_000).map(|_| world.append(1, 1)).collect();
    (100..20_100).for_each(|queue| _ = world.append(queue, 1));
    world.checkpoint();
    // Every other one is settled: what is said of this lane alone takes 100,000 bytes.
    let odd: Vec<_> = sent.into_iter().step_by(2).collect();
    let (most, rest) = odd.split_at(odd.len() - 10);
    world.settle(1, most, 1);
    assert!(world.checkpoint() > 90_000);
    for (round, one) in rest.iter().enumerate() {
        world.settle(1, &[*one], 1);
        assert!(world.checkpoint() > 90_000);
        (0..10).for_each(|queue| _ = world.append(100 + 10 * round as u64 + queue, 1));
        let few = world.checkpoint();
        assert!(few < 2_000, "{few} bytes for ten lanes");
    }
}

#[test]
fn what_has_died_comes_free_soon_though_some_lane_was_wide() {
    let mut world = World::new(settings());
    let sent: Vec<_> = (0..100_000).map(|_| world.append(1, 1)).collect();
    (100..5_100).for_each(|queue| _ = world.append(queue, 1));
    world.checkpoint();
    world.settle(1, &sent.into_iter().step_by(2).collect::<Vec<_>>(), 1);
    world.checkpoint();
    // Small ones change, and a backlog of 30 MB comes and goes.
    (100..5_100).for_each(|queue| _ = world.append(queue, 1));
    let backlog: Vec<_> = (0..300).map(|_| world.append(2, 100_000)).collect();
    world.pass(1_000);
    let segments = world.store.figures().segments;
    world.settle(2, &backlog, 100_000);
    // Nothing comes any more, which makes it wait longest.
    world.pass(30_000);
    let left = world.store.figures().segments;
    assert!(left + 25 < segments, "{left} of {segments}");
}

#[test]
fn a_full_disk_comes_free_though_many_lanes_are_in_no_checkpoint_yet() {
    let mut world = World::new(Settings {
        segment_bytes: 64 << 10,
        batch_bytes_max: 4096,
        checkpoint_log_bytes: 4 << 20,
        checkpoint_messages: 1 << 15,
        ..Settings::new(LogId(1))
    });
    (10..30_010).for_each(|queue| _ = world.append(queue, 0));
    world.disk.bytes_max = world.disk.bytes() + 2_000_000;
    let mut sent = Vec::new();
    let mut refused = 0;
    while refused < 30 {
        match world.try_append(1, 500) {
            Ok(one) => (refused, _) = (0, sent.push(one)),
            Err(_) => refused += 1,
        }
        world.store.want_durable();
        world.pass(if refused > 0 { 100 } else { 0 });
    }
    // Somebody else takes what is left.
    world.disk.bytes_max = world.disk.bytes();
    world.settle(1, &sent, 500);
    world.pass(60_000);
    let figures = world.store.figures();
    assert!(figures.dead_segments <= 2, "{figures:?}");
    assert!(world.try_append(1, 500).is_ok());
}

#[test]
fn many_lanes_stay_within_what_the_log_may_take() {
    const BYTES_MAX: u64 = 16 << 20;
    for lanes in [1, 1_000, 100_000] {
        let mut world = World::new(Settings { bytes_max: BYTES_MAX, ..settings() });
        let (mut sent, mut refused) = (0, 0);
        while refused < 30 {
            if world.try_append(1 + sent % lanes, 1).is_ok() {
                (sent, refused) = (sent + 1, 0);
            } else {
                refused += 1;
            }
            if refused > 0 || sent % 10_000 == 0 {
                world.pass(100);
            }
        }
        world.pass(20_000);
        assert!(sent > lanes, "{lanes} lanes have {sent} messages");
        assert!(world.peak <= BYTES_MAX, "{} bytes for {lanes} lanes", world.peak);
    }
}
