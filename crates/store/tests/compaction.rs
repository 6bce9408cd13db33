//! Which segments are emptied, and how full the disk is then.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{Action, File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Lane, LaneSlot, Message, Place, Settings, Space, Store};

const LOG: LogId = LogId(1);
const SEGMENT_BYTES: u32 = 64 << 10;
/// Of most messages.
const BODY_BYTES: usize = 1_000;

/// A message in the lanes of a store.
struct Sent {
    seq: u64,
    position: Position,
    lanes: Vec<usize>,
}

struct World {
    settings: Settings,
    store: Store,
    disk: Disk,
    out: Operations,
    millis: u64,
    lanes: Vec<LaneSlot>,
    next: u64,
    /// Segments that were read as a whole.
    read: u64,
    /// Bytes of a segment that were read at once, at most.
    longest_read: usize,
    body_bytes: usize,
    properties_bytes: usize,
}

impl World {
    fn new(lanes: u64, segments_max: usize) -> World {
        World::with(lanes, segments_max, SEGMENT_BYTES)
    }

    fn with(lanes: u64, segments_max: usize, segment_bytes: u32) -> World {
        let settings = Settings {
            segment_bytes,
            batch_bytes_max: 16 << 10,
            checkpoint_log_bytes: 1 << 20,
            free_segments_max: 2,
            segments_max,
            ..Settings::new(LOG)
        };
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let mut world = World {
            settings,
            store,
            disk: Disk::new(3),
            out,
            millis: 1,
            lanes: Vec::new(),
            next: 0,
            read: 0,
            longest_read: 0,
            body_bytes: BODY_BYTES,
            properties_bytes: 0,
        };
        world.pass(10);
        let lanes = (0..lanes).map(|queue| world.store.lane(Lane::of(QueueId(queue))));
        world.lanes = lanes.collect();
        world
    }

    /// The process ends; another one opens what is on the disk.
    fn start_again(&mut self) {
        self.out = Operations::default();
        self.store = Store::open(self.settings, &mut self.out);
        self.pass(10);
        let queues = 0..self.lanes.len() as u64;
        self.lanes = queues.map(|queue| self.store.lane(Lane::of(QueueId(queue)))).collect();
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.millis += 1;
            let now = Now::from_millis(self.millis);
            self.store.flush(now, &mut self.out);
            while self.store.work(now, &mut self.out) {}
            for operation in std::mem::take(&mut self.out.list) {
                let is_whole = matches!(operation.action,
                    Action::Read { file: File::Segment(..), offset: 0, length } if length > 4096);
                self.read += u64::from(is_whole);
                if let Action::Read { file: File::Segment(..), length, .. } = operation.action {
                    self.longest_read = self.longest_read.max(length);
                }
                self.disk.submit(&mut vec![operation]);
                let completion = self.disk.step().expect("it was submitted");
                self.store.complete(now, completion, &mut self.out);
            }
        }
    }

    /// A message for some lanes; `None` where there is no room for a long time.
    fn append(&mut self, lanes: Vec<usize>) -> Option<Sent> {
        let (body, properties) = (vec![7; self.body_bytes], vec![7; self.properties_bytes]);
        let message = Message { body: &body, properties: &properties, ..Message::default() };
        let seq = self.next;
        let place = |lane: &usize| Place { lane: self.lanes[*lane], seq, deadline_millis: 0 };
        let places: Vec<Place> = lanes.iter().map(place).collect();
        for _ in 0..5_000 {
            if let Ok(position) = self.store.append(&message, &places) {
                self.next += 1;
                self.store.want_durable();
                return Some(Sent { seq, position, lanes });
            }
            self.pass(1);
        }
        None
    }

    fn settle(&mut self, sent: &Sent, lane: usize) {
        let lane = self.lanes[lane];
        assert!(self.store.settle(lane, sent.seq, sent.position, self.body_bytes as u32));
    }

    fn segments(&self) -> usize {
        self.store.figures().segments
    }
}

/// One message in a hundred stays, in all queues: that is little, however many queues there are.
#[test]
fn what_is_dead_comes_free_whatever_the_number_of_queues_that_had_it() {
    for (queues, messages) in [(1, 20_000), (100, 8_000)] {
        let mut world = World::new(queues, usize::MAX);
        let all: Vec<usize> = (0..queues as usize).collect();
        for index in 0..messages {
            let sent = world.append(all.clone()).unwrap();
            if index % 100 != 0 {
                for &lane in &sent.lanes {
                    world.settle(&sent, lane);
                }
            }
            if index % 100 == 99 {
                world.pass(1);
            }
        }
        world.pass(60_000);
        let live = messages / 100 * BODY_BYTES;
        let used = world.segments() * SEGMENT_BYTES as usize;
        assert!(used < 5 * live, "{queues} queues: {used} bytes for {live}");
    }
}

/// Who waits for a message waits for a part of a segment at most.
#[test]
fn a_long_segment_is_read_in_pieces() {
    let mut world = World::with(1, usize::MAX, 4 << 20);
    for index in 0..20_000 {
        let sent = world.append(vec![0]).unwrap();
        if index % 20 != 0 {
            world.settle(&sent, 0);
        }
        if index % 100 == 99 {
            world.pass(1);
        }
    }
    world.pass(60_000);
    assert!(world.store.figures().moved > 0);
    assert_eq!(world.longest_read, 256 << 10);
}

/// One of many queues keeps what the others had: all of it lives.
#[test]
fn what_one_of_many_queues_keeps_is_read_once_and_not_moved() {
    let mut world = World::new(50, usize::MAX);
    let all: Vec<usize> = (0..50).collect();
    let sent: Vec<Sent> = (0..2_000).map(|_| world.append(all.clone()).unwrap()).collect();
    let segments = world.segments() as u64;
    for sent in &sent {
        for &lane in &sent.lanes[1..] {
            world.settle(sent, lane);
        }
    }
    world.pass(120_000);
    let figures = world.store.figures();
    assert_eq!(figures.moved, 0);
    assert!(world.read <= segments, "{} reads of {segments} segments", world.read);
    for sent in &sent {
        world.settle(sent, 0);
    }
    world.pass(60_000);
    assert!(world.segments() <= 2, "{} segments", world.segments());
}

/// Two queues share a log that may not grow any more; one is drained, the other keeps more of each
/// segment than compaction usually copies.
#[test]
fn room_that_is_mostly_dead_comes_back_when_there_is_no_more() {
    for kept_of_ten in [3, 5, 7] {
        let mut world = World::new(2, 40);
        let mut sent = Vec::new();
        while let Some(next) = world.append(vec![usize::from(sent.len() % 10 < kept_of_ten)]) {
            sent.push(next);
        }
        assert_eq!(world.store.space(), Space::Full);
        for sent in sent.iter().filter(|sent| sent.lanes[0] == 0) {
            world.settle(sent, 0);
        }
        world.pass(60_000);
        let dead = sent.len() * (10 - kept_of_ten) / 10;
        let more = (0..sent.len()).take_while(|_| world.append(vec![0]).is_some()).count();
        assert!(more >= dead / 2, "{kept_of_ten} of 10 stay: {more} of {dead}");
        let live = world.store.count(world.lanes[1]).0 as usize;
        assert_eq!(live, sent.iter().filter(|sent| sent.lanes[0] == 1).count());
    }
}

/// Three quarters of the room are in use: what half lives is emptied before it is all.
#[test]
fn a_log_that_is_nearly_full_holds_little_more_than_twice_what_lives() {
    for kept_of_ten in [2, 4, 6] {
        let mut world = World::new(2, 40);
        let mut sent = Vec::new();
        while world.segments() < 36 {
            let lane = usize::from(sent.len() % 10 < kept_of_ten);
            sent.push(world.append(vec![lane]).expect("there is room"));
        }
        for sent in sent.iter().filter(|sent| sent.lanes[0] == 0) {
            world.settle(sent, 0);
        }
        world.pass(60_000);
        let live = world.store.count(world.lanes[1]).0 as usize * BODY_BYTES;
        let used = world.segments() * SEGMENT_BYTES as usize;
        // Below three quarters nothing more is done.
        assert!(world.segments() <= 30 || used * 10 < live * 25, "{used} bytes for {live}");
        assert!(world.store.figures().moved > 0 || kept_of_ten == 6);
    }
}

/// Two messages in a segment leave a third of it free. Moving them would not.
#[test]
fn what_has_nothing_dead_in_it_is_not_moved_when_there_is_no_room() {
    let mut world = World::new(1, 20);
    world.body_bytes = 22_000;
    let mut sent = Vec::new();
    while let Some(next) = world.append(vec![0]) {
        sent.push(next);
    }
    assert_eq!(world.store.space(), Space::Full);
    world.pass(60_000);
    assert_eq!(world.store.figures().moved, 0);
    for sent in sent.iter().step_by(2) {
        world.settle(sent, 0);
    }
    world.pass(60_000);
    let moved = world.store.figures().moved;
    assert!(moved > 0 && moved <= sent.len() as u64, "{moved} of {}", sent.len());
    assert!(world.append(vec![0]).is_some());
}

/// Each start begins a segment.
#[test]
fn segments_that_ended_early_are_put_together_when_there_is_no_room() {
    let mut world = World::new(1, 40);
    for _ in 0..30 {
        assert!(world.append(vec![0]).is_some());
        world.pass(20);
        world.start_again();
    }
    assert!(world.segments() >= 30, "{} segments", world.segments());
    let mut more = 0;
    while world.append(vec![0]).is_some() {
        more += 1;
    }
    let fit = SEGMENT_BYTES as usize / BODY_BYTES;
    assert!(more > 25 * fit * 3 / 4, "{more} more, {fit} in a segment");
}

/// What messages have beside their bodies is not counted while they live.
#[test]
fn messages_with_long_properties_do_not_keep_the_room_of_others() {
    let mut world = World::new(2, 40);
    (world.body_bytes, world.properties_bytes) = (100, 6_000);
    let mut sent = Vec::new();
    let fill = |world: &mut World, sent: &mut Vec<Sent>| {
        let before = sent.len();
        while let Some(next) = world.append(vec![usize::from(sent.len() % 10 < 3)]) {
            sent.push(next);
        }
        sent.len() - before
    };
    fill(&mut world, &mut sent);
    for sent in sent.iter().filter(|sent| sent.lanes[0] == 0) {
        world.settle(sent, 0);
    }
    world.pass(10_000);
    assert!(world.store.figures().moved > 0);
    let live: Vec<Sent> = sent.drain(..).filter(|sent| sent.lanes[0] == 1).collect();
    for sent in &live {
        world.settle(sent, 1);
    }
    world.properties_bytes = 0;
    let first = fill(&mut world, &mut sent);
    for sent in sent.iter().filter(|sent| sent.lanes[0] == 0) {
        world.settle(sent, 0);
    }
    world.pass(60_000);
    let more = fill(&mut world, &mut sent);
    assert!(more >= first / 2, "{more} of {first}");
}

/// A segment was read when nearly all of it lived. What is settled then takes its properties with it.
#[test]
fn what_was_counted_while_it_lived_comes_free_with_its_properties() {
    for properties_bytes in [1_000, 4_000] {
        let mut world = World::new(1, 20);
        (world.body_bytes, world.properties_bytes) = (4, properties_bytes);
        let mut sent = Vec::new();
        while let Some(next) = world.append(vec![0]) {
            sent.push(next);
        }
        let in_segment = SEGMENT_BYTES as usize / (properties_bytes + 60);
        for sent in sent.iter().skip(1).step_by(in_segment) {
            world.settle(sent, 0);
        }
        world.pass(60_000);
        let is_first = |at: usize| at % in_segment == 1;
        for (at, sent) in sent.iter().enumerate().filter(|(at, _)| at % 10 > 0) {
            if !is_first(at) {
                world.settle(sent, 0);
            }
        }
        world.pass(60_000);
        let more = std::iter::from_fn(|| world.append(vec![0])).count();
        assert!(more > sent.len() / 4 * 3, "{more} of {}, {properties_bytes}", sent.len());
    }
}

/// Messages that only seem to be few, since their properties are not counted.
#[test]
fn what_is_long_beside_its_body_is_not_moved_again_and_again() {
    let mut world = World::new(1, 20);
    (world.body_bytes, world.properties_bytes) = (100, 6_000);
    let mut sent = Vec::new();
    while let Some(next) = world.append(vec![0]) {
        sent.push(next);
    }
    for sent in sent.iter().step_by(20) {
        world.settle(sent, 0);
    }
    world.pass(60_000);
    let moved = world.store.figures().moved;
    assert!(moved < 2 * sent.len() as u64, "{moved} of {}", sent.len());
    world.pass(60_000);
    assert_eq!(world.store.figures().moved, moved);
}

/// A start leaves off the last segment of the life before, and its first checkpoint says so. Where nothing
/// in that segment lives, it comes free once the log has gone on.
#[test]
fn the_last_segment_of_an_earlier_life_is_no_loss_of_room() {
    let room = |lives: usize, is_orderly: bool| {
        let mut world = World::new(1, 12);
        for _ in 0..lives {
            let sent = world.append(vec![0]).unwrap();
            world.pass(10);
            world.settle(&sent, 0);
            world.pass(3_000);
            if is_orderly {
                world.store.close();
                world.pass(100);
            }
            world.start_again();
        }
        std::iter::from_fn(|| world.append(vec![0])).count()
    };
    let fresh = room(0, false);
    for (lives, is_orderly) in [(1, false), (2, false), (3, false), (1, true), (3, true)] {
        let of = if is_orderly { "that ended in order" } else { "that were killed" };
        assert_eq!(room(lives, is_orderly), fresh, "after {lives} earlier lives {of}");
    }
}

/// What the references of a message take is known before it is written. By an upper bound each of these
/// would need a segment of its own, of which most stays empty, and would be moved to another such one for
/// ever.
#[test]
fn messages_in_very_many_queues_share_a_segment() {
    let mut world = World::new(1_900, 100);
    let all: Vec<usize> = (0..world.lanes.len()).collect();
    for _ in 0..20 {
        world.append(all.clone()).unwrap();
    }
    world.pass(10);
    let segments = world.segments();
    assert!(segments <= 5, "20 messages in {segments} segments");
    world.pass(60_000);
    let moved = world.store.figures().moved;
    assert!(moved <= 20, "{moved} times one was moved");
}

/// A message that just fits into a segment with two references fits with one as well.
#[test]
fn the_longest_message_of_two_queues_is_moved_when_one_has_settled_it() {
    for less in 20..140 {
        let mut world = World::new(2, 20);
        (world.body_bytes, world.properties_bytes) = (1, SEGMENT_BYTES as usize - 60 - less);
        let Some(sent) = world.append(vec![0, 1]) else { continue };
        world.pass(10);
        world.settle(&sent, 0);
        (world.body_bytes, world.properties_bytes) = (BODY_BYTES, 0);
        world.append(vec![0]).unwrap();
        world.pass(10);
        let segment = world.disk.files().map(|(file, _)| file).find(|file| {
            let data = world.disk.data(*file).unwrap_or_default();
            matches!(file, File::Segment(..)) && data.windows(5_000).any(|part| part == [7; 5_000])
        });
        world.store.empty_segment(segment.expect("it was written"));
        world.pass(20_000);
        assert!(world.store.figures().moved > 0, "{less} bytes less");
    }
}
