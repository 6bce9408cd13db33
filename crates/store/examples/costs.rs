//! What the store costs: memory, bytes and time, on a disk in memory.
//!
//! `cargo run --release -p lepus-store --example costs -- CASE [COUNT]` with one of the cases
//! below. Nothing here passes or fails; the tests hold what must hold.

use std::time::{Duration, Instant};

use lepus_base::{Now, Position, QueueId, Rng};
use lepus_store::disk::{LogId, Operations};
use lepus_store::simulation::Plain;
use lepus_store::{Entry, Event, Fetch, Lane, LaneSlot, Lookup, Message, Place, Settings, Store};

const CASES: &str = "restart lane write fan-out calls survivors";

struct World {
    store: Store,
    disk: Plain,
    out: Operations,
    settings: Settings,
    millis: u64,
    /// Longest call of a flush, with whatever else the machine did meanwhile.
    longest: Duration,
}

impl World {
    fn new(settings: Settings, forgets_segments: bool) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut disk = Plain::default();
        disk.forgets_segments = forgets_segments;
        let longest = Duration::ZERO;
        let mut world = World { store, disk, out, settings, millis: 1, longest };
        world.cycle();
        world
    }

    /// One cycle of a shard, and the disk keeps up.
    fn cycle(&mut self) {
        self.millis += 1;
        let now = Now::from_millis(self.millis);
        let start = Instant::now();
        self.store.flush(now, &mut self.out);
        self.longest = self.longest.max(start.elapsed());
        self.disk.run(&mut self.store, now, &mut self.out);
    }

    fn work(&mut self) {
        let now = Now::from_millis(self.millis);
        self.store.work(now, &mut self.out);
        self.disk.run(&mut self.store, now, &mut self.out);
    }

    fn append(&mut self, body: &[u8], places: &[Place]) -> Position {
        let message =
            Message { exchange: b"", routing_key: b"queue", properties: &[0x18, 0, 2, 0], body };
        loop {
            if let Ok(position) = self.store.append(&message, places) {
                return position;
            }
            self.cycle();
        }
    }

    fn rest(&mut self) {
        for _ in 0..20 {
            self.store.want_durable();
            self.cycle();
            self.work();
        }
    }

    /// Opens the same files again. How long that took.
    fn reopen(&mut self) -> Duration {
        self.out = Operations::default();
        let (bytes, reads) = (self.disk.read_bytes, self.disk.reads);
        let start = cpu();
        self.store = Store::open(self.settings, &mut self.out);
        self.disk.run(&mut self.store, Now::from_millis(self.millis), &mut self.out);
        let taken = cpu() - start;
        assert!(self.store.is_running());
        let mut events = Vec::new();
        self.store.take_events(&mut events);
        let is_clean = events.contains(&Event::Ready { is_clean: true });
        println!(
            "  ready after {taken:?}, clean: {is_clean}, {} reads, {:.1} MB read, {:.1} MB memory",
            self.disk.reads - reads,
            (self.disk.read_bytes - bytes) as f64 / 1e6,
            self.store.figures().memory_bytes as f64 / 1e6,
        );
        taken
    }

    fn close(&mut self) {
        self.store.close();
        while !self.store.is_closed() {
            self.cycle();
            self.work();
        }
    }

    fn written(&self, name: &str, messages: u64, payload: u64) {
        let (log, index) = (self.disk.log_bytes, self.disk.index_bytes);
        println!(
            "  {name}: {:.4} bytes written per byte of payload; log {:.1} B, index and checkpoints \
             {:.2} B per message; {} checkpoints",
            (log + index) as f64 / payload as f64,
            log as f64 / messages as f64,
            index as f64 / messages as f64,
            self.store.figures().checkpoints,
        );
    }
}

/// Processor time of this thread: what else the machine does is not in it.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn place(lane: LaneSlot, seq: u64) -> Place {
    Place { lane, seq, deadline_millis: 0 }
}

/// Many queues, each with a hundred messages, in any order: start after a stop and after a kill.
fn restart(count: u64) {
    let queues = count / 100;
    let mut world = World::new(Settings::new(LogId(1)), false);
    let lanes: Vec<LaneSlot> =
        (0..queues).map(|queue| world.store.lane(Lane::of(QueueId(queue)))).collect();
    let mut next = vec![0u64; queues as usize];
    let mut rng = Rng::new(1);
    let body = [7; 16];
    for index in 0..count {
        let at = rng.below(queues) as usize;
        world.append(&body, &[place(lanes[at], next[at])]);
        next[at] += 1;
        if index % 256 == 0 {
            world.cycle();
        }
    }
    world.rest();
    println!("{queues} lanes, {count} messages of 16 B");
    println!("  longest flush {:?}", world.longest);
    world.written("written", count, count * 16);
    let figures = world.store.figures();
    println!("  memory {:.1} MB", figures.memory_bytes as f64 / 1e6);
    println!("killed:");
    world.reopen();
    world.longest = Duration::ZERO;
    let before = world.disk.index_bytes;
    world.store.request_checkpoint();
    let start = cpu();
    let mut cycles = 0;
    let mut events = Vec::new();
    while !events.iter().any(|event| matches!(event, Event::Checkpointed(_))) {
        world.cycle();
        world.store.take_events(&mut events);
        cycles += 1;
    }
    println!(
        "  checkpoint: {:.1} MB, {cycles} cycles, {:?} in all, longest flush {:?}",
        (world.disk.index_bytes - before) as f64 / 1e6,
        cpu() - start,
        world.longest
    );
    world.close();
    println!("stopped:");
    world.reopen();
    let bytes = world.store.figures().memory_bytes;
    println!("  {:.0} B memory per idle lane with 100 messages", bytes as f64 / queues as f64);
    idle(queues);
}

/// Many queues with one message each.
fn idle(queues: u64) {
    let mut world = World::new(Settings::new(LogId(1)), false);
    for queue in 0..queues {
        let lane = world.store.lane(Lane::of(QueueId(queue)));
        world.append(&[7; 16], &[place(lane, 0)]);
        world.cycle();
    }
    world.close();
    println!("{queues} lanes with one message:");
    world.reopen();
    let bytes = world.store.figures().memory_bytes;
    println!("  {:.0} B memory per idle lane", bytes as f64 / queues as f64);
}

/// One long queue of small messages: memory, and the index.
fn lane(count: u64) {
    let mut world = World::new(Settings::new(LogId(1)), true);
    let lane = world.store.lane(Lane::of(QueueId(1)));
    let body = [7; 16];
    let start = cpu();
    for seq in 0..count {
        world.append(&body, &[place(lane, seq)]);
        if seq % 64 == 0 {
            world.store.want_durable();
            world.cycle();
            world.work();
        }
    }
    world.rest();
    let figures = world.store.figures();
    println!("{count} messages of 16 B in one lane, batches of 64: {:?}", cpu() - start);
    println!("  memory {:.1} MB", figures.memory_bytes as f64 / 1e6);
    world.written("written", count, count * 16);
    world.close();
    println!("  files but segments: {:.1} MB", world.disk.bytes() as f64 / 1e6);
    world.reopen();
    let lane = world.store.lane(Lane::of(QueueId(1)));
    let start = cpu();
    let (mut seen, mut entries) = (0, Vec::new());
    while !world.store.is_fetched(lane) {
        entries.clear();
        if world.store.fetch(lane, 256, &mut entries, &mut world.out) == Fetch::Pending {
            world.cycle();
        }
        for entry in &entries {
            world.store.settle(lane, entry.seq, entry.position, entry.bytes);
        }
        seen += entries.len() as u64;
        world.cycle();
    }
    assert_eq!(seen, count);
    println!("  fetched and settled in {:?}", cpu() - start);
}

/// Bytes written for messages of 1 KiB that are delivered and settled.
fn write(count: u64) {
    for queues in [1u64, 100] {
        let mut world = World::new(Settings::new(LogId(1)), true);
        let body = [7; 1024];
        let mut held: Vec<(LaneSlot, u64, Position)> = Vec::new();
        for index in 0..count {
            let (queue, seq) = (index % queues, index / queues);
            let lane = world.store.lane(Lane::of(QueueId(queue)));
            let position = world.append(&body, &[place(lane, seq)]);
            world.store.skip_fetch(lane);
            held.push((lane, seq, position));
            if index % 64 == 0 {
                for (lane, seq, position) in held.drain(..) {
                    world.store.settle(lane, seq, position, 1024);
                }
                world.store.want_durable();
                world.cycle();
                world.work();
            }
        }
        world.rest();
        println!("{count} messages of 1 KiB in {queues} lanes, settled 64 later");
        world.written("written", count, count * 1024);
    }
}

/// One message in ten lanes.
fn fan_out(count: u64) {
    for bytes in [1024u32, 256] {
        let mut world = World::new(Settings::new(LogId(1)), true);
        let lanes: Vec<LaneSlot> =
            (0..10).map(|queue| world.store.lane(Lane::of(QueueId(queue)))).collect();
        let body = vec![7; bytes as usize];
        let mut held: Vec<(u64, Position)> = Vec::new();
        for seq in 0..count {
            let places: Vec<Place> = lanes.iter().map(|&lane| place(lane, seq)).collect();
            held.push((seq, world.append(&body, &places)));
            if seq % 64 == 0 {
                for (seq, position) in held.drain(..) {
                    for &lane in &lanes {
                        world.store.settle(lane, seq, position, bytes);
                    }
                }
                world.store.want_durable();
                world.cycle();
                world.work();
            }
        }
        world.rest();
        println!("{count} messages of {bytes} B, each in ten lanes, settled 64 later");
        world.written("written", count, count * u64::from(bytes));
    }
}

fn nanos(taken: Duration, count: u64) -> f64 {
    taken.as_nanos() as f64 / count as f64
}

/// Processor time per call, and beside it what copying and checksumming the same bytes takes.
fn calls(count: u64) {
    for bytes in [16usize, 1024] {
        let mut world = World::new(Settings::new(LogId(1)), true);
        let lane = world.store.lane(Lane::of(QueueId(1)));
        let body = vec![7; bytes];
        let mut append = Duration::ZERO;
        let mut settle = Duration::ZERO;
        let mut lookup = Duration::ZERO;
        let mut held: Vec<Entry> = Vec::new();
        let message = Message {
            exchange: b"",
            routing_key: b"queue",
            properties: &[0x18, 0, 2, 0],
            body: &body,
        };
        for round in 0..count / 256 {
            let start = cpu();
            for seq in round * 256..(round + 1) * 256 {
                let position = loop {
                    if let Ok(position) = world.store.append(&message, &[place(lane, seq)]) {
                        break position;
                    }
                    world.cycle();
                };
                world.store.skip_fetch(lane);
                held.push(Entry { seq, position, bytes: bytes as u32, deadline_millis: 0 });
            }
            append += cpu() - start;
            world.store.want_durable();
            world.cycle();
            let start = cpu();
            for entry in &held {
                let found = world.store.lookup_sized(entry.position, entry.bytes, &mut world.out);
                assert!(matches!(found, Lookup::Found(_)));
            }
            lookup += cpu() - start;
            let start = cpu();
            for entry in held.drain(..) {
                world.store.settle(lane, entry.seq, entry.position, entry.bytes);
            }
            settle += cpu() - start;
            world.cycle();
            world.work();
        }
        let mut copy = Vec::new();
        let start = cpu();
        let mut sum = 0;
        for index in 0..count {
            if index % 256 == 0 {
                copy.clear();
            }
            let at = copy.len();
            copy.extend_from_slice(&body);
            sum ^= crc32c::crc32c(&copy[at..]);
        }
        let copied = cpu() - start;
        println!(
            "{bytes} B: append {:.0} ns, lookup {:.0} ns, settle {:.0} ns; copy and checksum {:.0} \
             ns ({sum:x})",
            nanos(append, count),
            nanos(lookup, count),
            nanos(settle, count),
            nanos(copied, count),
        );
    }
}

/// One of a thousand messages stays.
fn survivors(count: u64) {
    let mut world = World::new(Settings::new(LogId(1)), false);
    let lane = world.store.lane(Lane::of(QueueId(1)));
    let body = [7; 256];
    let mut held: Vec<(u64, Position)> = Vec::new();
    let (mut disk_most, mut memory_most) = (0, 0);
    for seq in 0..count {
        let position = world.append(&body, &[place(lane, seq)]);
        world.store.skip_fetch(lane);
        if seq % 1000 != 0 {
            held.push((seq, position));
        }
        if seq % 64 == 0 {
            for (seq, position) in held.drain(..) {
                world.store.settle(lane, seq, position, 256);
            }
            world.store.want_durable();
            world.cycle();
            world.work();
        }
        if seq % 10_000 == 0 {
            disk_most = disk_most.max(world.disk.bytes());
            memory_most = memory_most.max(world.store.figures().memory_bytes);
        }
    }
    world.rest();
    let figures = world.store.figures();
    println!("{count} messages of 256 B, one of 1000 stays");
    println!(
        "  disk at most {:.1} MB, memory at most {:.1} MB; {} moved, {} relocated",
        disk_most as f64 / 1e6,
        memory_most as f64 / 1e6,
        figures.moved,
        figures.relocated,
    );
    world.written("written", count, count * 256);
}

fn main() {
    let mut words = std::env::args().skip(1);
    let case = words.next().unwrap_or_default();
    let count = words.next().and_then(|word| word.parse().ok());
    match case.as_str() {
        "restart" => restart(count.unwrap_or(10_000_000)),
        "lane" => lane(count.unwrap_or(10_000_000)),
        "write" => write(count.unwrap_or(1_000_000)),
        "fan-out" => fan_out(count.unwrap_or(1_000_000)),
        "calls" => calls(count.unwrap_or(1_000_000)),
        "survivors" => survivors(count.unwrap_or(10_000_000)),
        _ => println!("cases: {CASES}"),
    }
}
