//! What a store costs: bytes that go to the disk and come from it, segments that are kept, and
//! times at which it wants to be called.

use lepus_base::{Instant, Now, QueueId};
use lepus_store::disk::{Action, File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Entry, Event, Lane, LaneSlot, Message, Place, Settings, Store};
use std::collections::VecDeque;

const LOG: LogId = LogId(1);
const PAGE_BYTES: u64 = 4096;
/// How long an operation takes.
const DISK_MICROS: u64 = 200;

struct World {
    store: Store,
    disk: Disk,
    out: Operations,
    settings: Settings,
    micros: u64,
    /// When the operations under way end.
    ends: Option<u64>,
    lane: LaneSlot,
    next: u64,
    /// Bytes of pages of segments that writes touched, and how many these were.
    paged: u64,
    writes: u64,
    /// Bytes of segments that were read.
    read: u64,
}

impl World {
    fn new(settings: Settings) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut world = World {
            store,
            disk: Disk::new(7),
            out,
            settings,
            micros: 1_000,
            ends: None,
            lane: LaneSlot(0),
            next: 0,
            paged: 0,
            writes: 0,
            read: 0,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.settle_down();
        self.lane = self.store.lane(Lane::of(QueueId(1)));
        self.next = self.store.next_seq(self.lane);
    }

    fn now(&self) -> Now {
        Now { instant: Instant(self.micros * 1_000), wall_millis: self.micros / 1_000 }
    }

    fn submit(&mut self) {
        for operation in &self.out.list {
            match &operation.action {
                Action::Write { file: File::Segment(..), offset, bytes, start, .. } => {
                    let end = offset + (bytes.len() - start) as u64;
                    let first = offset / PAGE_BYTES;
                    self.paged += (end.div_ceil(PAGE_BYTES) - first) * PAGE_BYTES;
                    self.writes += 1;
                }
                Action::Read { file: File::Segment(..), length, .. } => self.read += *length as u64,
                _ => {}
            }
        }
        if !self.out.list.is_empty() {
            self.disk.submit(&mut self.out.list);
            self.ends.get_or_insert(self.micros + DISK_MICROS);
        }
    }

    /// A turn of the shard. True if it has more to do at once.
    fn turn(&mut self) -> bool {
        let now = self.now();
        if self.ends.is_some_and(|end| end <= self.micros) {
            self.ends = None;
            for _ in 0..self.disk.pending() {
                let Some(completion) = self.disk.step() else { break };
                self.store.complete(now, completion, &mut self.out);
            }
        }
        let more = self.store.work(now, &mut self.out);
        self.store.flush(now, &mut self.out);
        self.submit();
        let mut events = Vec::new();
        self.store.take_events(&mut events);
        assert!(!events.iter().any(|event| matches!(event, Event::Damaged(_))), "{events:?}");
        more
    }

    /// Turns for as long as the store wants to be called, at the times when it does; how many.
    fn settle_down(&mut self) -> usize {
        for turns in 0..100_000 {
            let more = self.turn();
            let due = self.store.next_timeout().0.div_ceil(1_000);
            let due = due.min(self.ends.unwrap_or(u64::MAX));
            match (more, due) {
                (true, _) => {}
                (false, due) if due > u64::MAX / 2_000 => return turns,
                (false, due) => self.micros = self.micros.max(due),
            }
        }
        panic!("the store never rests: {:?}", self.store.figures());
    }

    fn append(&mut self, bytes: usize) -> Entry {
        let body = vec![b'x'; bytes];
        let message = Message {
            exchange: b"",
            routing_key: b"queue",
            properties: &[0x10, 0, 2],
            body: &body,
        };
        loop {
            let place = Place { lane: self.lane, seq: self.next, deadline_millis: 0 };
            if let Ok(position) = self.store.append(&message, &[place]) {
                self.store.skip_fetch(self.lane);
                self.next += 1;
                let (seq, bytes) = (place.seq, bytes as u32);
                return Entry { seq, position, bytes, deadline_millis: 0 };
            }
            self.turn();
            self.micros += DISK_MICROS;
        }
    }

    fn settle(&mut self, entry: Entry) {
        assert!(self.store.settle(self.lane, entry.seq, entry.position, entry.bytes));
    }

    fn close(&mut self) {
        self.settle_down();
        self.store.close();
        self.settle_down();
        assert!(self.store.is_closed());
    }

    fn reopen(&mut self) {
        self.out = Operations::default();
        self.read = 0;
        self.store = Store::open(self.settings, &mut self.out);
        self.begin();
    }
}

/// Messages that come one by one and fast, each to be confirmed: pages written again, headers and
/// the ends of batches are a small part of what is written, and nobody waits long for that.
#[test]
fn a_fast_stream_fills_the_pages_it_writes() {
    let mut world = World::new(Settings::new(LOG));
    let (bytes, count) = (1_024, 20_000);
    let mut waiting = VecDeque::new();
    let mut slowest = 0;
    for _ in 0..count {
        world.micros += 15;
        world.append(bytes);
        world.store.want_durable();
        waiting.push_back((world.store.end(), world.micros));
        world.turn();
        while let Some(&(end, since)) = waiting.front()
            && end <= world.store.durable()
        {
            waiting.pop_front();
            slowest = slowest.max(world.micros - since);
        }
    }
    let payload = (bytes * count) as u64;
    assert!(world.paged * 100 <= payload * 110, "{} of {payload}", world.paged);
    assert!(slowest <= 3_000, "{slowest} microseconds");
}

/// One message at a time, each sent when the one before is confirmed.
#[test]
fn who_waits_for_each_confirm_waits_for_the_disk_alone() {
    let mut world = World::new(Settings::new(LOG));
    let (begun, writes) = (world.micros, world.writes);
    for _ in 0..2_000 {
        world.append(1_024);
        world.store.want_durable();
        world.turn();
        let end = world.store.end();
        while world.store.durable() < end {
            world.micros = world.ends.expect("a write is under way");
            world.turn();
        }
    }
    assert!(world.writes - writes <= 2_020);
    assert!(world.micros - begun <= 2_020 * DISK_MICROS, "{}", world.micros - begun);
}

fn small_segments() -> Settings {
    Settings {
        segment_bytes: 256 << 10,
        compaction_slack_bytes: 1 << 20,
        checkpoint_log_bytes: 1 << 20,
        free_segments_max: 4,
        ..Settings::new(LOG)
    }
}

/// What is delivered in order leaves the segments by itself.
#[test]
fn a_drain_moves_no_message_and_writes_next_to_nothing() {
    let mut world = World::new(small_segments());
    let entries: Vec<Entry> = (0..20_000).map(|_| world.append(1_000)).collect();
    world.settle_down();
    let before = world.store.figures();
    for some in entries.chunks(100) {
        for entry in some {
            world.settle(*entry);
        }
        world.micros += 5_000;
        world.turn();
    }
    world.settle_down();
    let after = world.store.figures();
    assert_eq!(after.moved, 0);
    let written = after.log_bytes + after.index_bytes - before.log_bytes - before.index_bytes;
    assert!(written <= 20_000_000 / 100, "{written}");
    assert!(after.segments <= 2, "{after:?}");
}

/// Acknowledges all but one message in a hundred, `lag` messages behind.
fn leave_some(world: &mut World, count: u64) -> Vec<Entry> {
    let mut under_way = VecDeque::new();
    let mut kept = Vec::new();
    for _ in 0..count {
        under_way.push_back(world.append(1_000));
        world.micros += 10;
        if under_way.len() > 50
            && let Some(entry) = under_way.pop_front()
        {
            match entry.seq % 100 {
                0 => kept.push(entry),
                _ => world.settle(entry),
            }
        }
        if world.next.is_multiple_of(16) {
            world.store.want_durable();
            world.turn();
        }
    }
    kept.extend(under_way);
    kept
}

/// Messages that nobody acknowledges pin no segments: the space of those around them comes back as
/// fast as others come, though compaction by itself may read next to nothing.
#[test]
fn compaction_keeps_up_with_a_stream_that_leaves_some_behind() {
    let mut world = World::new(Settings { compaction_rate: 1, ..small_segments() });
    let mut most = 0;
    for _ in 0..10 {
        leave_some(&mut world, 3_000);
        most = most.max(world.store.figures().segments);
    }
    // 300 messages, a megabyte of slack, one until the next checkpoint, and what it takes to get
    // there: of 120 segments.
    assert!(most <= 24, "{most} segments");
    let figures = world.store.figures();
    assert!(figures.moved > 0, "{figures:?}");
    assert!(world.paged <= 45_000_000, "{} bytes of 30,000,000", world.paged);
}

/// The same when nothing comes any more: the store asks to be called until it is done, and then not
/// any more.
#[test]
fn compaction_goes_on_while_nothing_happens_and_comes_to_an_end() {
    let mut world = World::new(Settings { compaction_slack_bytes: 0, ..small_segments() });
    for _ in 0..20_000 {
        world.append(1_000);
    }
    world.settle_down();
    assert!(world.store.figures().segments >= 70);
    let kept: Vec<u64> = (0..20_000).step_by(100).collect();
    world.store.purge(world.lane, 20_000, &kept);
    let turns = world.settle_down();
    let figures = world.store.figures();
    assert!(figures.segments <= 4, "{}", figures.segments);
    assert!(figures.moved >= 150, "{figures:?}");
    assert!(turns <= 5_000, "{turns}");
    assert_eq!(world.store.count(world.lane).0, 200);
    assert_eq!(world.store.next_timeout(), Instant::NEVER);
}

/// Small bodies with long properties: most of a segment lives, though its bodies are few bytes.
#[test]
fn messages_that_are_mostly_properties_are_not_moved_for_ever() {
    let mut world = World::new(Settings { compaction_slack_bytes: 0, ..small_segments() });
    let properties = [7; 900];
    for seq in 0..5_000 {
        let message = Message {
            exchange: b"",
            routing_key: b"queue",
            properties: &properties,
            body: b"tiny",
        };
        let place = Place { lane: world.lane, seq, deadline_millis: 0 };
        while world.store.append(&message, &[place]).is_err() {
            world.turn();
            world.micros += DISK_MICROS;
        }
    }
    world.next = 5_000;
    world.settle_down();
    let figures = world.store.figures();
    assert!(figures.moved <= 1_000, "{figures:?}");
    assert_eq!(world.store.next_timeout(), Instant::NEVER);
}

/// Where nothing dies nothing is gained, however little of a segment is bodies and however badly they fit.
#[test]
fn segments_in_which_nothing_died_are_not_moved_for_ever() {
    for bytes in [300, 1_500, 2_500, 3_000, 5_000] {
        let settings = Settings { segment_bytes: 8192, compaction_percent: 75, ..small_segments() };
        let mut world = World::new(Settings { compaction_slack_bytes: 0, ..settings });
        for _ in 0..60 {
            world.append(bytes);
            world.store.want_durable();
            world.settle_down();
        }
        let figures = world.store.figures();
        assert!(figures.moved <= 60, "{bytes} bytes: {figures:?}");
        assert_eq!(world.store.next_timeout(), Instant::NEVER);
    }
}

/// Acknowledgements in no order take a record each: a segment that is full of them holds no few messages for ever.
#[test]
fn segments_full_of_acknowledgements_are_given_back() {
    let settings = Settings { segment_bytes: 64 << 10, ..small_segments() };
    let mut world = World::new(Settings { compaction_slack_bytes: 0, ..settings });
    let count = 60_000;
    for _ in 0..6 {
        let entries: Vec<Entry> = (0..count).map(|_| world.append(20)).collect();
        world.settle_down();
        let mut at = 0;
        for number in 0..count {
            at = (at + 38_197) % count;
            world.settle(entries[at]);
            if number % 100 == 0 {
                world.micros += 500;
                world.turn();
            }
            if number % 2_000 == 0 {
                world.append(100);
            }
        }
        world.micros += 50_000_000;
        world.settle_down();
    }
    let figures = world.store.figures();
    assert_eq!(world.store.count(world.lane).0, 180);
    assert!(figures.segments <= 4, "{}", figures.segments);
}

/// After an orderly end there is nothing to be read but what the segments are.
#[test]
fn an_orderly_end_leaves_nothing_to_read() {
    let mut world = World::new(small_segments());
    for _ in 0..5_000 {
        world.append(1_000);
    }
    world.close();
    let segments = world.store.figures().segments as u64;
    world.reopen();
    assert_eq!(world.store.count(world.lane).0, 5_000);
    assert!(world.read <= (segments + 8) * 112, "{} bytes", world.read);
    // What comes now is found after a stop that is not orderly, beside what was there.
    for _ in 0..100 {
        world.append(1_000);
    }
    world.store.want_durable();
    world.settle_down();
    world.disk.kill();
    world.reopen();
    assert_eq!(world.store.count(world.lane).0, 5_100);
    assert!(world.read > 100_000);
}
