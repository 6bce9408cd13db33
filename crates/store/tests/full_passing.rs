//! Random work on logs that are full and small, from which messages are passed on from queue to queue, on disks that
//! refuse room for a while: what is confirmed survives a kill, what is appended is written in the end, who was told that
//! there is room finds it, and an empty log has room.

use std::collections::BTreeMap;

use lepus_base::{Now, Position, QueueId, Rng};
use lepus_store::disk::{DiskError, LogId, Operations};
use lepus_store::simulation::{Disk, Outage};
use lepus_store::{AppendError, Event, Fetch, Lane, LaneSlot, Message, Place, Settings, Store};

const QUEUES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Sent {
    position: Position,
    bytes: u32,
    /// Where the log ended behind it.
    end: Position,
    is_confirmed: bool,
}

struct World {
    seed: u64,
    rng: Rng,
    settings: Settings,
    store: Store,
    disk: Disk,
    out: Operations,
    millis: u64,
    /// The ids of the queues: one that is deleted gets another.
    ids: [u64; QUEUES],
    alive: [BTreeMap<u64, Sent>; QUEUES],
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let kind = rng.below(3);
        let settings = Settings {
            segment_bytes: 8192,
            batch_bytes_max: 4096,
            fill_bytes_min: 3000,
            segments_max: if kind == 0 { 8 + rng.below(12) as usize } else { usize::MAX },
            bytes_max: if kind == 1 { 120_000 + rng.below(120_000) } else { u64::MAX },
            index_pages_max: rng.below(3) as usize,
            checkpoint_delta_bytes_min: [0, 3000, 1 << 20][rng.below(3) as usize],
            checkpoint_slice_bytes: [1, 100, 16 << 10][rng.below(3) as usize],
            relocations_kept: rng.below(20) as usize,
            lanes_kept: rng.below(4) as usize,
            compaction_rate: 1 << 30,
            compaction_slack_bytes: 0,
            is_kept_ready: rng.chance(1, 2),
            ..Settings::new(LogId(1))
        };
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let ids = [0, 1, 2, 3];
        let (disk, alive) = (Disk::new(seed), Default::default());
        let mut world = World { seed, rng, settings, store, disk, out, millis: 1, ids, alive };
        world.pass(100);
        if kind == 2 {
            world.disk.bytes_max = world.disk.bytes() + 60_000 + world.rng.below(120_000);
        }
        world
    }

    /// A turn, of which the disk does no more than `most` operations. Whether there is more to do.
    fn turn(&mut self, most: u64) -> bool {
        let now = Now::from_millis(self.millis);
        let has_more = self.store.work(now, &mut self.out);
        self.store.forget_wishes();
        self.store.flush(now, &mut self.out);
        self.disk.submit(&mut self.out.list);
        for _ in 0..most {
            let Some(completion) = self.disk.step() else { break };
            self.store.complete(now, completion, &mut self.out);
            self.disk.submit(&mut self.out.list);
        }
        let mut events = Vec::new();
        self.store.take_events(&mut events);
        for event in events {
            let is_bad =
                matches!(event, Event::Damaged(_) | Event::Refused(_) | Event::Stopped(..));
            assert!(!is_bad, "seed {}: {event:?}", self.seed);
        }
        let durable = self.store.durable();
        for sent in self.alive.iter_mut().flat_map(BTreeMap::values_mut) {
            sent.is_confirmed |= durable >= sent.end;
        }
        has_more
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..=millis / 10 {
            self.millis += 10;
            let rests = (0..1_000).any(|_| !self.turn(u64::MAX));
            assert!(rests, "seed {}: it never rests", self.seed);
        }
    }

    fn lane(&mut self, queue: usize) -> LaneSlot {
        self.store.lane(Lane::of(QueueId(self.ids[queue])))
    }

    /// Everything in a queue that was not fetched before, as its owner does before it uses the positions.
    fn fetch(&mut self, lane: LaneSlot) -> BTreeMap<u64, Sent> {
        let mut entries = Vec::new();
        while !self.store.is_fetched(lane) {
            if self.store.fetch(lane, 100, &mut entries, &mut self.out) == Fetch::Pending {
                self.turn(u64::MAX);
            }
        }
        let sent = |position, bytes| Sent { position, bytes, end: Position(0), is_confirmed: true };
        entries.iter().map(|entry| (entry.seq, sent(entry.position, entry.bytes))).collect()
    }

    /// Whether the message was appended.
    fn append(&mut self, queues: &[usize], bytes: u32, asks: bool) -> bool {
        let mut places = Vec::new();
        for &queue in queues {
            let lane = self.lane(queue);
            places.push(Place { lane, seq: self.store.next_seq(lane), deadline_millis: 0 });
        }
        let body = vec![7; bytes as usize];
        let message = Message { properties: &[0, 0], body: &body, ..Message::default() };
        let need = self.store.message_bytes_max(&message, places.len());
        if asks && !self.store.has_room(need) {
            return false;
        }
        let position = match self.store.append(&message, &places) {
            Ok(position) => position,
            Err(error) => {
                assert!(!asks && error == AppendError::Full, "seed {}: {error:?}", self.seed);
                return false;
            }
        };
        self.store.want_durable();
        let end = self.store.end();
        for (queue, place) in queues.iter().zip(&places) {
            self.store.skip_fetch(place.lane);
            let sent = Sent { position, bytes, end, is_confirmed: false };
            self.alive[*queue].insert(place.seq, sent);
        }
        true
    }

    fn settle(&mut self, queue: usize, seq: u64) {
        let lane = self.lane(queue);
        let Some(sent) = self.alive[queue].remove(&seq) else { return };
        assert!(self.store.settle(lane, seq, sent.position, sent.bytes), "seed {}", self.seed);
    }

    fn purge(&mut self, queue: usize, kept: &[u64]) {
        let lane = self.lane(queue);
        let end = self.store.next_seq(lane);
        self.store.purge(lane, end, kept);
        self.alive[queue].retain(|seq, _| kept.contains(seq));
    }

    fn kill(&mut self) {
        self.disk.outage = Outage::default();
        self.disk.kill();
        self.out = Operations::default();
        self.store = Store::open(self.settings, &mut self.out);
        while !self.store.is_running() {
            self.turn(u64::MAX);
        }
        let ids = self.ids;
        self.store.retain_queues(|queue, _| ids.contains(&queue.0));
        for queue in 0..QUEUES {
            let lane = self.lane(queue);
            let found = self.fetch(lane);
            for (seq, sent) in &self.alive[queue] {
                let is_there = !sent.is_confirmed || found.contains_key(seq);
                assert!(is_there, "seed {}: {seq} of {queue} is lost: {sent:?}", self.seed);
            }
            self.alive[queue] = found;
        }
        self.pass(500);
    }

    fn size(&mut self) -> u32 {
        let most = match self.rng.below(20) {
            0 => 30_000,
            1..4 => 6_000,
            _ => 900,
        };
        self.rng.below(most) as u32
    }

    fn some_turns(&mut self, one_of: u64) {
        if self.rng.chance(1, one_of) {
            let most = 1 + self.rng.below(4);
            self.turn(most);
        }
    }

    /// Something at random; queues are purged up to `purges` times in a row.
    fn act(&mut self, purges: u64) {
        let queue = self.rng.below(QUEUES as u64) as usize;
        match self.rng.below(13) {
            0..3 => {
                for _ in 0..self.rng.below(60) {
                    let (bytes, asks) = (self.size(), self.rng.chance(3, 4));
                    let queues = if self.rng.chance(1, 6) { vec![0, 1, 2, 3] } else { vec![queue] };
                    self.append(&queues, bytes, asks);
                    self.some_turns(4);
                }
            }
            3 => {
                for _ in 0..self.rng.below(purges) {
                    let keeps = self.rng.chance(1, 3);
                    let kept = self.alive[queue].keys().filter(|seq| keeps && *seq % 2 == 0);
                    let kept: Vec<u64> = kept.copied().collect();
                    self.purge(queue, &kept);
                    self.some_turns(300);
                }
            }
            4..6 => {
                let seqs: Vec<u64> = self.alive[queue].keys().copied().collect();
                for seq in seqs {
                    if self.rng.chance(2, 3) {
                        self.settle(queue, seq);
                    }
                    self.some_turns(50);
                }
            }
            6 => self.store.request_checkpoint(),
            7 => {
                let millis = self.rng.below(3_000);
                self.pass(millis);
            }
            8 => self.some_turns(1),
            9 | 10 => {
                let count = self.rng.below(100) as usize;
                let sent = self.alive[queue].iter().take(count);
                let sent: Vec<_> = sent.map(|(&seq, sent)| (seq, sent.bytes)).collect();
                for (seq, bytes) in sent {
                    self.store.set_passing(true);
                    let is_there = self.append(&[(queue + 1) % QUEUES], bytes, true);
                    self.store.set_passing(false);
                    if is_there {
                        self.settle(queue, seq);
                    }
                    self.some_turns(4);
                }
            }
            11 if self.rng.chance(1, 8) => {
                self.store.drop_queue(QueueId(self.ids[queue]));
                self.ids[queue] = self.ids.iter().max().map_or(0, |last| last + 1);
                self.alive[queue].clear();
            }
            12 if self.rng.chance(1, 3) => {
                let (writes, is_full) = (self.rng.chance(1, 6), self.rng.chance(1, 2));
                let error = Some(if is_full { DiskError::Full } else { DiskError::Busy });
                self.disk.outage = Outage { creates: true, writes, error, ..Outage::default() };
            }
            12 => self.disk.outage = Outage::default(),
            _ if self.rng.chance(1, 6) => self.kill(),
            _ => self.pass(20),
        }
    }

    /// Everything goes; what there is to say of that is written, and there is room again.
    fn drain(&mut self) {
        self.disk.outage = Outage::default();
        self.pass(2_000);
        for queue in 0..QUEUES {
            self.purge(queue, &[]);
        }
        self.store.want_synced();
        self.pass(60_000);
        let has_room = (0..100).any(|_| {
            self.pass(1_000);
            self.append(&[1], 500, true)
        });
        self.pass(2_000);
        let case = format!("seed {}: {:?}", self.seed, self.store.figures());
        assert!(has_room, "{case}");
        assert_eq!(self.store.synced(), self.store.end(), "{case}");
        assert_eq!(self.store.unwritten_bytes(), 0, "{case}");
    }
}

fn run(purges: u64, seeds: u64) {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = read("SEED").unwrap_or(0);
    for seed in first..first + read("SEEDS").unwrap_or(seeds) {
        let mut world = World::new(seed);
        (0..150).for_each(|_| world.act(purges));
        world.drain();
    }
}

#[test]
fn what_is_passed_on_in_a_full_log_is_written_and_the_log_empties() {
    run(2, 60);
}

#[test]
fn the_same_beside_very_many_purges() {
    run(1_500, 20);
}
