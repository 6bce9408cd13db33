//! What a start without a valid checkpoint makes of a log that has been compacted, cut and used again.

use std::collections::BTreeMap;

use lepus_base::{Now, Position, QueueId, Rng};
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Entry, Event, Fetch, Lane, LaneSlot, Lookup, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);

struct World {
    settings: Settings,
    store: Store,
    disk: Disk,
    out: Operations,
    events: Vec<Event>,
    millis: u64,
    lanes: Vec<LaneSlot>,
}

/// What the store was given and not told to settle, by lane and number.
type Living = BTreeMap<(usize, u64), Sent>;

#[derive(Clone, Copy, Debug)]
struct Sent {
    position: Position,
    length: usize,
    /// What its body is made of; 0 if it had been settled and came back.
    name: u32,
}

fn body(name: u32, length: usize) -> Vec<u8> {
    name.to_le_bytes().into_iter().cycle().take(length).collect()
}

impl World {
    fn new(settings: Settings, lanes: usize) -> World {
        let mut out = Operations::default();
        let store = Store::open(settings, &mut out);
        let (disk, events) = (Disk::new(3), Vec::new());
        let lanes = vec![LaneSlot(0); lanes];
        let mut world = World { settings, store, disk, out, events, millis: 1, lanes };
        world.start();
        world
    }

    fn start(&mut self) {
        self.events.clear();
        while !self.events.iter().any(|event| matches!(event, Event::Ready { .. })) {
            self.pass(1);
        }
        for (queue, lane) in self.lanes.iter_mut().enumerate() {
            *lane = self.store.lane(Lane::of(QueueId(queue as u64 + 1)));
        }
    }

    /// The process ends; the next one finds what is in the files.
    fn start_again(&mut self) {
        self.disk.kill();
        self.out = Operations::default();
        self.store = Store::open(self.settings, &mut self.out);
        self.start();
    }

    /// Nothing says where a checkpoint is.
    fn start_without_root(&mut self, root: Option<Vec<u8>>) {
        self.disk.kill();
        match root {
            Some(bytes) => self.disk.put(File::Root(LOG), bytes),
            None => self.disk.remove(File::Root(LOG)),
        }
        self.start_again();
    }

    fn start_without_checkpoint(&mut self) {
        self.disk.kill();
        self.disk.put(File::Root(LOG), vec![1; 8192]);
        self.start_again();
        assert!(self.store.figures().rebuild_passes > 0);
    }

    /// Time goes by while nobody waits for the disk.
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
            self.store.take_events(&mut self.events);
        }
    }

    fn sync(&mut self) {
        while self.store.synced() < self.store.end() {
            self.store.want_synced();
            self.pass(1);
        }
    }

    /// A message for some lanes: its place, and its number in each.
    fn append(&mut self, lanes: &[usize], body: &[u8]) -> (Position, Vec<u64>) {
        let message = Message { exchange: b"e", routing_key: b"k", properties: &[], body };
        let seqs: Vec<u64> =
            lanes.iter().map(|lane| self.store.next_seq(self.lanes[*lane])).collect();
        let place = |(lane, seq): (&usize, &u64)| Place {
            lane: self.lanes[*lane],
            seq: *seq,
            deadline_millis: 0,
        };
        let places: Vec<Place> = lanes.iter().zip(&seqs).map(place).collect();
        loop {
            if let Ok(position) = self.store.append(&message, &places) {
                return (position, seqs);
            }
            self.pass(1);
        }
    }

    fn settle(&mut self, lane: usize, seq: u64, (position, length): (Position, usize)) {
        let lane = self.lanes[lane];
        assert!(self.store.settle(lane, seq, position, length as u32), "it was settled before");
    }

    /// Appends and settles in the last lane until the log is in another segment.
    fn begin_segment(&mut self) {
        let (segment, lane) = (self.store.end().0 >> 32, self.lanes.len() - 1);
        while self.store.end().0 >> 32 == segment {
            let (position, seqs) = self.append(&[lane], &body(u32::MAX, 500));
            self.pass(1);
            self.settle(lane, seqs[0], (position, 500));
        }
    }

    fn entries(&mut self, lane: usize) -> Vec<Entry> {
        let (lane, mut found) = (self.lanes[lane], Vec::new());
        self.store.rewind(lane, 0);
        while !self.store.is_fetched(lane) {
            if self.store.fetch(lane, 1_000, &mut found, &mut self.out) == Fetch::Pending {
                self.pass(1);
            }
        }
        found
    }

    fn read(&mut self, position: Position) -> Option<Vec<u8>> {
        loop {
            match self.store.lookup(position, &mut self.out) {
                Lookup::Pending => {}
                Lookup::Found(message) => return Some(message.body.to_vec()),
                Lookup::Lost => return None,
            }
            self.pass(1);
        }
    }

    fn numbers(&mut self, lane: usize) -> Vec<u64> {
        self.entries(lane).iter().map(|entry| entry.seq).collect()
    }

    fn segments(&self) -> Vec<File> {
        let files = self.disk.files().map(|(file, _)| file);
        files.filter(|file| matches!(file, File::Segment(..))).collect()
    }

    /// The segments that have this text in them.
    fn segments_with(&self, text: &[u8]) -> Vec<File> {
        let mut segments = self.segments();
        segments.retain(|file| {
            let data = self.disk.data(*file).unwrap_or_default();
            data.windows(text.len()).any(|part| part == text)
        });
        segments
    }
}

/// Whatever a start finds is readable, and all is found that was not settled. What came back is kept as
/// living, too.
fn check(world: &mut World, living: &mut Living, told: &str) {
    let mut found = BTreeMap::new();
    for lane in 0..world.lanes.len() {
        for entry in world.entries(lane) {
            found.insert((lane, entry.seq), entry);
        }
    }
    for (place, sent) in living.iter() {
        assert!(found.contains_key(place), "{told}: {sent:?} at {place:?} is not found");
    }
    for (place, entry) in found {
        let length = entry.bytes as usize;
        let name = living.get(&place).map_or(0, |sent| sent.name);
        let sent = Sent { position: entry.position, length, name };
        living.insert(place, sent);
        read(world, place, sent, told);
    }
}

fn read(world: &mut World, place: (usize, u64), sent: Sent, told: &str) {
    let Some(bytes) = world.read(sent.position) else {
        panic!("{told}: {sent:?} at {place:?} cannot be read");
    };
    let name = bytes.first_chunk().map_or(0, |name| u32::from_le_bytes(*name));
    assert!(
        bytes == body(name, sent.length) && (sent.name == 0 || sent.name == name),
        "{told}: {sent:?} at {place:?} has the body of another"
    );
}

/// Messages in several queues, some in several segments; segments are emptied, come free and are used
/// again, and one checkpoint after the other is lost.
fn lose_checkpoints(seed: u64, settings: Settings, lanes: usize, has_long: bool) {
    let mut rng = Rng::new(seed);
    let mut world = World::new(settings, lanes);
    let (mut living, mut name) = (Living::new(), 0);
    for round in 0..6 {
        for _ in 0..rng.below(400) {
            match rng.below(20) {
                0..=8 => {
                    name += 1;
                    let is_long = has_long && rng.chance(1, 6);
                    let length =
                        if is_long { 6_000 + rng.below(9_000) } else { 4 + rng.below(600) };
                    let length = length as usize;
                    let mut to: Vec<usize> = (0..lanes).filter(|_| rng.chance(1, 2)).collect();
                    if to.is_empty() {
                        to.push(0);
                    }
                    let (position, seqs) = world.append(&to, &body(name, length));
                    for (lane, seq) in to.into_iter().zip(seqs) {
                        living.insert((lane, seq), Sent { position, length, name });
                    }
                }
                9..=17 => {
                    for _ in 0..2 {
                        let nth = rng.below(living.len().max(1) as u64) as usize;
                        let Some(place) = living.keys().nth(nth).copied() else { continue };
                        let sent = living.remove(&place).expect("it lives");
                        world.settle(place.0, place.1, (sent.position, sent.length));
                    }
                }
                18 => {
                    let segments = world.segments();
                    let nth = rng.below(segments.len().max(1) as u64) as usize;
                    if let Some(file) = segments.get(nth) {
                        world.store.empty_segment(*file);
                    }
                    world.pass(200);
                }
                _ => {
                    if rng.chance(1, 4) {
                        world.store.request_checkpoint();
                    }
                    world.pass(20 + rng.below(300));
                }
            }
            if rng.chance(1, 3) {
                world.sync();
            }
        }
        world.pass(1_500);
        world.sync();
        world.start_without_checkpoint();
        let told = format!("seed {seed}, start {round}");
        check(&mut world, &mut living, &told);
        // What came back goes, and segments with it.
        living.retain(|place, sent| {
            let stays = sent.name != 0 || rng.chance(1, 3);
            if !stays {
                world.settle(place.0, place.1, (sent.position, sent.length));
            }
            stays
        });
        for _ in 0..6 {
            for _ in 0..25 {
                let (position, seqs) = world.append(&[lanes - 1], &body(u32::MAX, 400));
                world.pass(1);
                world.settle(lanes - 1, seqs[0], (position, 400));
            }
            world.store.request_checkpoint();
            world.pass(100);
        }
        for (place, sent) in &living {
            read(&mut world, *place, *sent, &told);
        }
    }
    for (place, sent) in std::mem::take(&mut living) {
        world.settle(place.0, place.1, (sent.position, sent.length));
    }
    world.begin_segment();
    world.pass(40_000);
    let figures = world.store.figures();
    assert!(figures.segments <= 2 && figures.relocated == 0, "seed {seed}: {figures:?}");
}

fn settings(seed: u64) -> Settings {
    Settings {
        segment_bytes: 8192,
        rebuild_entries_max: [usize::MAX, 7, 40][seed as usize % 3],
        compaction_slack_bytes: 1,
        compaction_percent: 60,
        ..Settings::new(LOG)
    }
}

/// A copy names what lived of its message then. An older record that is still there names more.
#[test]
fn what_several_queues_had_survives_the_loss_of_checkpoints() {
    for seed in 1..=40 {
        lose_checkpoints(seed, settings(seed), 4, false);
    }
}

/// A segment that was used again leaves the beginnings of messages without their ends.
#[test]
fn what_lies_in_several_segments_survives_the_loss_of_checkpoints() {
    for seed in 1..=40 {
        lose_checkpoints(seed, settings(seed), 3, true);
    }
}

/// The first segment of all is still there, and those behind it were emptied and used again: what was copied
/// out of them is nowhere else.
#[test]
fn what_was_copied_survives_the_loss_of_the_root_while_the_first_segment_is_there() {
    for root in [None, Some(Vec::new()), Some(vec![0; 8192])] {
        let mut world = World::new(settings(0), 3);
        let mut living = Living::new();
        let mut keep = |world: &mut World, lane: usize, name: u32, length: usize| {
            let (position, seqs) = world.append(&[lane], &body(name, length));
            living.insert((lane, seqs[0]), Sent { position, length, name });
        };
        // All of the first segment lives.
        while (world.store.end().0 as u32) < 7_000 {
            keep(&mut world, 0, 1, 500);
        }
        for name in 2..12 {
            world.begin_segment();
            keep(&mut world, 1, name, 300);
            if name % 3 == 0 {
                keep(&mut world, 0, name, 300);
            }
        }
        world.begin_segment();
        world.sync();
        let first = world.segments_with(&body(1, 400));
        for file in world.segments() {
            if !first.contains(&file) {
                world.store.empty_segment(file);
            }
        }
        for _ in 0..3 {
            world.pass(1_000);
            world.store.request_checkpoint();
            world.begin_segment();
        }
        world.sync();
        assert!(world.store.figures().moved > 10, "{:?}", world.store.figures());
        world.start_without_root(root.clone());
        let is_told = world
            .events
            .iter()
            .any(|event| matches!(event, Event::Damaged(damage) if damage.file == File::Root(LOG)));
        let relocated = world.store.figures().relocated;
        check(&mut world, &mut living, &format!("root of {:?} bytes", root.map(|root| root.len())));
        assert!(is_told && relocated < 4, "{relocated} of segments that are gone are remembered");
        world.start_again();
        check(&mut world, &mut living, "the next start");
    }
}

/// A message that nobody waits for, and its settle behind it, which alone reaches the disk. The start
/// that follows cuts both off and gives the number of the message to another one.
fn cut(world: &mut World) -> (Position, u64) {
    world.append(&[1], &body(8, 30_000));
    world.sync();
    world.pass(2_000);
    let (position, seqs) = world.append(&[0], &body(1, 6_000));
    world.pass(250);
    world.settle(0, seqs[0], (position, 6_000));
    world.pass(250);
    assert!(world.store.synced() < position, "it was synced");
    let file = world.segments_with(&body(1, 6_000))[0];
    world.disk.kill();
    for byte in 100..5_000 {
        world.disk.flip(file, position.0 as u32 as usize + byte, 0);
    }
    world.start_again();
    let (again, found) = world.append(&[0], &body(2, 6_000));
    assert_eq!(found, seqs, "the number is not given again");
    world.sync();
    (again, seqs[0])
}

#[test]
fn settles_that_a_start_has_cut_off_do_not_count_in_a_rebuild() {
    let mut world = World::new(Settings { segment_bytes: 64 << 10, ..Settings::new(LOG) }, 3);
    let (_, seq) = cut(&mut world);
    world.start_without_checkpoint();
    assert_eq!((world.numbers(0), world.numbers(1)), (vec![seq], vec![0]));
    let is_told =
        |event: &Event| matches!(event, Event::Damaged(damage) if damage.file != File::Root(LOG));
    assert!(!world.events.iter().any(is_told), "{:?}", world.events);
}

/// What lives in a segment is moved, and its file is used for another one.
fn use_segment_again(world: &mut World, file: File) {
    let before = world.disk.data(file).map(<[u8]>::to_vec);
    world.begin_segment();
    world.store.empty_segment(file);
    world.pass(12_000);
    for _ in 0..9 {
        world.store.request_checkpoint();
        world.pass(1_000);
        world.begin_segment();
    }
    world.sync();
    assert!(world.disk.data(file).map(<[u8]>::to_vec) != before, "it is still there");
}

/// The segment that followed at the cut is not there any more.
#[test]
fn settles_behind_what_may_be_a_cut_do_not_count_in_a_rebuild() {
    let mut world = World::new(Settings { segment_bytes: 64 << 10, ..Settings::new(LOG) }, 3);
    cut(&mut world);
    let first = world.segments_with(&body(2, 6_000));
    use_segment_again(&mut world, first[0]);
    world.start_without_checkpoint();
    let entries = world.entries(0);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(world.read(entries[0].position), Some(body(2, 6_000)));
}

/// A copy that was cut off as well names less than lives: what it does not name has come back.
#[test]
fn a_copy_behind_what_may_be_a_cut_settles_nothing_in_a_rebuild() {
    let mut world = World::new(Settings { segment_bytes: 64 << 10, ..Settings::new(LOG) }, 3);
    let (shared, seqs) = world.append(&[0, 1], &body(7, 3_000));
    world.append(&[0], &body(9, 15_000));
    world.sync();
    world.store.request_checkpoint();
    world.pass(1_000);
    world.begin_segment();
    world.append(&[0], &body(8, 20_000));
    world.sync();
    world.pass(2_000);
    let (position, _) = world.append(&[0], &body(1, 6_000));
    world.pass(250);
    world.settle(1, seqs[1], (shared, 3_000));
    let from = world.segments_with(&body(7, 3_000))[0];
    world.store.empty_segment(from);
    world.pass(450);
    assert!(world.store.synced() < position, "it was synced");
    assert_eq!(world.segments_with(&body(7, 3_000)).len(), 2, "the copy is written");
    let file = world.segments_with(&body(1, 6_000))[0];
    world.disk.kill();
    for byte in 100..5_000 {
        world.disk.flip(file, position.0 as u32 as usize + byte, 0);
    }
    world.start_again();
    assert_eq!(world.numbers(1), [seqs[1]], "it came back");
    world.append(&[0], &body(2, 6_000));
    world.sync();
    let first = world.segments_with(&body(2, 6_000))[0];
    use_segment_again(&mut world, first);
    world.start_without_checkpoint();
    assert_eq!(world.numbers(1), [seqs[1]]);
}

/// A long message of which a part is missing takes nothing with it that was before it in its lane. Its
/// number is not given again: its first part is still in the log.
#[test]
fn a_message_that_is_incomplete_costs_nothing_before_it() {
    let mut world = World::new(Settings { segment_bytes: 8192, ..Settings::new(LOG) }, 1);
    for name in 1..=5 {
        world.append(&[0], &body(name, 300));
    }
    // It goes on in the next segment and ends in the one behind that.
    world.append(&[0], &[6; 20_000]);
    world.sync();
    let middle = world.segments_with(&[6; 7_900]);
    world.disk.kill();
    world.disk.flip(middle[0], 4_000, 3);
    world.start_without_checkpoint();
    let is_damage =
        |event: &Event| matches!(event, Event::Damaged(found) if found.file == middle[0]);
    assert!(world.events.iter().any(is_damage), "{:?}", world.events);
    assert_eq!(world.numbers(0), [0, 1, 2, 3, 4]);
    assert_eq!(world.store.next_seq(world.lanes[0]), 6);
}

/// The record of a message that was settled before is nothing that lives: compaction would move it, count
/// it, and let go of a segment in which another message still lies.
#[test]
fn what_was_settled_before_is_not_moved_as_if_it_lived() {
    for rebuild_entries_max in [usize::MAX, 3] {
        let settings = Settings { segment_bytes: 8192, rebuild_entries_max, ..Settings::new(LOG) };
        let mut world = World::new(settings, 1);
        let positions: Vec<Position> =
            (1..=10).map(|name| world.append(&[0], &body(name, 300)).0).collect();
        world.sync();
        // Between those that stay, and behind them: what comes later goes over that.
        for seq in [2, 3, 5, 8, 9] {
            world.settle(0, seq, (positions[seq as usize], 300));
        }
        world.pass(2_000);
        world.sync();
        world.start_without_checkpoint();
        world.append(&[0], &body(11, 300));
        world.sync();
        let first = world.segments_with(&body(1, 300))[0];
        world.store.empty_segment(first);
        world.pass(17_000);
        assert_eq!(world.store.figures().moved, 5, "at most {rebuild_entries_max} at once");
        assert_eq!(world.numbers(0), [0, 1, 4, 6, 7, 10], "at most {rebuild_entries_max}");
    }
}

/// Numbers that are settled in the log are not given again, also where nothing lives in their lane: at the
/// next start without a checkpoint, what had them would count as settled.
#[test]
fn numbers_that_are_settled_in_the_log_are_not_given_again() {
    let mut world = World::new(Settings { segment_bytes: 8192, ..Settings::new(LOG) }, 3);
    world.append(&[1], &body(1, 300));
    for lane in [0, 2] {
        let positions: Vec<Position> =
            (2..=4).map(|name| world.append(&[lane], &body(name, 300)).0).collect();
        world.sync();
        for (seq, position) in (0..).zip(positions) {
            world.settle(lane, seq, (position, 300));
        }
    }
    world.pass(1_000);
    world.store.drop_queue(QueueId(3));
    for _ in 0..3 {
        world.pass(1_000);
        world.sync();
        world.start_without_checkpoint();
        assert_eq!((world.numbers(0).len(), world.numbers(1).len()), (0, 1));
        assert_eq!(world.numbers(2).len(), 0, "its queue is gone");
        let (position, seqs) = world.append(&[0], &body(5, 300));
        assert!(seqs[0] >= 3, "{} is given again", seqs[0]);
        world.pass(1_000);
        world.sync();
        world.start_without_checkpoint();
        assert_eq!(world.numbers(0), seqs);
        world.settle(0, seqs[0], (position, 300));
    }
}
