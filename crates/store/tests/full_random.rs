//! Random work on logs that are full, small, and killed now and then: whatever happened, what is appended is written
//! in the end, and an empty log has room.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Lane, LaneSlot, Message, Place, Settings, Store};

const QUEUES: u64 = 4;
const SEEDS: u64 = 60;

struct Rng(u64);

impl Rng {
    fn of(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..10).for_each(|_| _ = rng.below(2));
        rng
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A message of a queue: its number, its place, its bytes.
type Sent = (u64, Position, u32);

struct World {
    settings: Settings,
    store: Store,
    disk: Disk,
    out: Operations,
    millis: u64,
    alive: Vec<Vec<Sent>>,
}

impl World {
    fn new(settings: Settings, seed: u64) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let alive = vec![Vec::new(); QUEUES as usize];
        let mut world = World { settings, store, disk: Disk::new(seed), out, millis: 1, alive };
        world.pass(100);
        world
    }

    /// A turn, of which the disk does no more than `most` operations. Whether there is more to do.
    fn turn(&mut self, most: u64) -> bool {
        let now = Now::from_millis(self.millis);
        let has_more = self.store.work(now, &mut self.out);
        self.store.flush(now, &mut self.out);
        self.disk.submit(&mut self.out.list);
        for _ in 0..most {
            let Some(completion) = self.disk.step() else { break };
            self.store.complete(now, completion, &mut self.out);
            self.disk.submit(&mut self.out.list);
        }
        has_more
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..=millis / 10 {
            self.millis += 10;
            for _ in 0..1_000 {
                if !self.turn(u64::MAX) {
                    break;
                }
            }
        }
    }

    fn lane(&mut self, queue: u64) -> LaneSlot {
        self.store.lane(Lane::of(QueueId(queue)))
    }

    fn append(&mut self, queue: u64, bytes: u32) -> bool {
        let lane = self.lane(queue);
        let seq = self.store.next_seq(lane);
        let body = vec![7; bytes as usize];
        let message =
            Message { routing_key: b"q", properties: &[0, 0], body: &body, ..Message::default() };
        let appended = self.store.append(&message, &[Place { lane, seq, deadline_millis: 0 }]);
        self.store.want_durable();
        if let Ok(position) = appended {
            self.alive[queue as usize].push((seq, position, bytes));
        }
        appended.is_ok()
    }

    fn purge(&mut self, queue: u64) {
        let lane = self.lane(queue);
        let end = self.store.next_seq(lane);
        self.store.purge(lane, end, &[]);
        self.alive[queue as usize].clear();
    }

    fn kill(&mut self) {
        self.disk.kill();
        self.out = Operations::default();
        self.store = Store::open(self.settings, &mut self.out);
        self.pass(1_000);
        assert!(self.store.is_running());
        self.alive.iter_mut().for_each(Vec::clear);
    }

    /// Something at random; queues are purged up to `purges` times in a row.
    fn act(&mut self, rng: &mut Rng, purges: u64) {
        let queue = rng.below(QUEUES);
        match rng.below(9) {
            0..3 => {
                for _ in 0..rng.below(60) {
                    self.append(queue, rng.below(900) as u32);
                    if rng.below(4) == 0 {
                        self.turn(u64::MAX);
                    }
                }
            }
            3 => {
                for _ in 0..rng.below(purges) {
                    self.purge(queue);
                    if rng.below(300) == 0 {
                        self.turn(1 + rng.below(4));
                    }
                }
            }
            4 => {
                let lane = self.lane(queue);
                for sent in std::mem::take(&mut self.alive[queue as usize]) {
                    if rng.below(3) > 0 {
                        self.store.settle(lane, sent.0, sent.1, sent.2);
                    } else {
                        self.alive[queue as usize].push(sent);
                    }
                }
            }
            5 => self.store.request_checkpoint(),
            6 => self.pass(rng.below(3_000)),
            7 => _ = self.turn(1 + rng.below(3)),
            _ if rng.below(6) == 0 => self.kill(),
            _ => self.pass(20),
        }
    }
}

fn run(seed: u64, purges: u64, is_kept_ready: bool) {
    let mut rng = Rng::of(seed);
    let is_disk_small = rng.below(2) == 0;
    let settings = Settings {
        segment_bytes: 8192,
        batch_bytes_max: 4096,
        segments_max: if is_disk_small { usize::MAX } else { 8 + rng.below(6) as usize },
        is_kept_ready,
        ..Settings::new(LogId(1))
    };
    let mut world = World::new(settings, seed);
    if is_disk_small {
        world.disk.bytes_max = world.disk.bytes() + 60_000 + rng.below(60_000);
    }
    (0..150).for_each(|_| world.act(&mut rng, purges));
    world.pass(2_000);
    (0..QUEUES).for_each(|queue| world.purge(queue));
    world.store.want_synced();
    world.pass(120_000);
    let case = format!("seed {seed} purges {purges} ready {is_kept_ready}");
    let figures = |world: &World| format!("{case}: {:?}", world.store.figures());
    assert_eq!(world.store.unwritten_bytes(), 0, "{}", figures(&world));
    assert_eq!(world.store.synced(), world.store.end(), "{}", figures(&world));
    let has_room = (0..100).any(|_| {
        world.pass(1_000);
        world.append(1, 500)
    });
    assert!(has_room, "{}", figures(&world));
    world.pass(2_000);
    assert_eq!(world.store.unwritten_bytes(), 0, "{}", figures(&world));
}

#[test]
fn an_empty_log_has_room_whatever_was_before() {
    for seed in 0..SEEDS {
        for is_kept_ready in [true, false] {
            run(seed, 2, is_kept_ready);
        }
    }
}

#[test]
fn what_purges_say_on_a_full_log_is_written() {
    for seed in 0..SEEDS {
        for is_kept_ready in [true, false] {
            run(seed, 3_000, is_kept_ready);
        }
    }
}
