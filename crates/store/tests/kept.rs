//! Segments in which a start met damage that no index knows of: they stay until somebody lets go of them.

use lepus_base::{Now, QueueId};
use lepus_store::disk::{Action, Completion, DiskError, File, LogId, Operations};
use lepus_store::segment::BATCH_MAGIC;
use lepus_store::simulation::Disk;
use lepus_store::{
    Entry, Event, Fetch, Key, Keys, Lane, LaneSlot, Message, Place, Settings, Store, inspect,
};

const LOG: LogId = LogId(1);
const MESSAGES: u64 = 60;

struct World {
    disk: Disk,
    store: Store,
    out: Operations,
    millis: u64,
    events: Vec<Event>,
}

impl World {
    fn open(disk: Disk) -> World {
        World::with_key(Key::NONE, disk)
    }

    /// One whose log gets this key if it has none.
    fn with_key(key: Key, mut disk: Disk) -> World {
        let mut out = Operations::default();
        let settings = Settings { segment_bytes: 8192, key, ..Settings::new(LOG) };
        let store = Store::open(settings, &mut out);
        disk.submit(&mut out.list);
        let mut world = World { disk, store, out, millis: 1, events: Vec::new() };
        world.carry_out();
        world
    }

    fn carry_out(&mut self) {
        loop {
            self.disk.submit(&mut self.out.list);
            let Some(completion) = self.disk.step() else { break };
            self.store.complete(Now::from_millis(self.millis), completion, &mut self.out);
        }
        self.store.take_events(&mut self.events);
    }

    fn cycle(&mut self) {
        self.millis += 100;
        let now = Now::from_millis(self.millis);
        self.store.flush(now, &mut self.out);
        self.store.work(now, &mut self.out);
        self.carry_out();
    }

    fn lane(&mut self) -> LaneSlot {
        self.store.lane(Lane::of(QueueId(1)))
    }

    fn append(&mut self, seqs: core::ops::Range<u64>) {
        let lane = self.lane();
        for seq in seqs {
            let body = format!("message {seq:04} {}", "x".repeat(300));
            self.append_to(lane, seq, body.as_bytes());
        }
    }

    /// Has a message on the disk.
    fn append_to(&mut self, lane: LaneSlot, seq: u64, body: &[u8]) {
        let message = Message { exchange: b"e", routing_key: b"k", properties: &[], body };
        let place = Place { lane, seq, deadline_millis: 0 };
        while self.store.append(&message, &[place]).is_err() {
            self.cycle();
        }
        self.store.want_durable();
        self.cycle();
    }

    fn fetch_all(&mut self, lane: LaneSlot) -> Vec<Entry> {
        let mut entries = Vec::new();
        while !self.store.is_fetched(lane) {
            if self.store.fetch(lane, 100, &mut entries, &mut self.out) == Fetch::Pending {
                self.carry_out();
            }
        }
        entries
    }

    /// Settles all that can be fetched; how many.
    fn settle_all(&mut self) -> usize {
        let lane = self.lane();
        let entries = self.fetch_all(lane);
        for entry in &entries {
            self.store.settle(lane, entry.seq, entry.position, entry.bytes);
        }
        entries.len()
    }

    fn close(mut self) -> Disk {
        self.store.close();
        while !self.store.is_closed() {
            self.cycle();
        }
        self.disk
    }

    /// The files of segments that are kept.
    fn kept(&self) -> Vec<File> {
        self.store.damaged_segments().into_iter().map(|(_, file, _)| file).collect()
    }

    fn damages(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Damaged(_))).count()
    }
}

/// Turns a bit of a message's body over; the file.
fn flip(disk: &mut Disk, seq: u64) -> File {
    let wanted = format!("message {seq:04}");
    let files: Vec<File> = disk.files().map(|(file, _)| file).collect();
    let place = files.into_iter().find_map(|file| {
        let mut windows = disk.data(file)?.windows(wanted.len());
        Some((file, windows.position(|window| window == wanted.as_bytes())?))
    });
    let (file, at) = place.expect("the message is on the disk");
    disk.flip(file, at, 1);
    file
}

#[test]
fn what_no_checkpoint_knows_and_a_start_cannot_read_stays_on_the_disk_until_it_is_let_go() {
    let mut world = World::open(Disk::new(0));
    world.append(0..MESSAGES);
    let mut disk = world.disk;
    disk.kill();
    let file = flip(&mut disk, 5);
    let mut world = World::open(disk);
    assert_eq!((world.damages(), world.kept()), (1, vec![file]));
    // All that is known is settled, and the segments of that come free with checkpoints.
    assert_eq!(world.settle_all() as u64, MESSAGES - 1);
    for _ in 0..3 {
        world.store.request_checkpoint();
        (0..20).for_each(|_| world.cycle());
    }
    assert_eq!(world.kept(), [file]);
    // Much time goes by, and much is written: it is neither used again nor read over and over.
    world.append(MESSAGES..4 * MESSAGES);
    let reads = world.store.figures().reads;
    (0..2_000).for_each(|_| world.cycle());
    assert!(world.store.figures().reads < reads + 10);
    assert_eq!((world.damages(), world.kept()), (1, vec![file]));
    let disk = world.close();
    let mut world = World::open(disk);
    // Of an earlier start's damage this one is not told, but it keeps the segment.
    assert_eq!((world.damages(), world.kept()), (0, vec![file]));
    let wanted = b"essage 0005";
    let data = world.disk.data(file).expect("the file is there");
    assert!(data.windows(wanted.len()).any(|window| window == wanted));

    let [(number, ..)] = world.store.damaged_segments()[..] else { panic!("one segment") };
    let is_in_use = |store: &Store| store.segment_counts().any(|(found, _)| found == number);
    world.store.release_damage(number);
    assert_eq!(world.kept(), []);
    assert!(is_in_use(&world.store));
    let world = World::open(world.close());
    assert_eq!(world.kept(), []);
    assert!(!is_in_use(&world.store), "its file can be used again");
}

#[test]
fn a_start_that_meets_nothing_keeps_nothing() {
    let mut world = World::open(Disk::new(0));
    world.append(0..MESSAGES);
    // Longer than a segment, so that parts of it are counted in several.
    let lane = world.lane();
    let body = vec![7; 20_000];
    let message = Message { exchange: b"e", routing_key: b"k", properties: &[], body: &body };
    let place = Place { lane, seq: MESSAGES, deadline_millis: 0 };
    while world.store.append(&message, &[place]).is_err() {
        world.cycle();
    }
    world.store.want_durable();
    (0..10).for_each(|_| world.cycle());
    assert_eq!(world.kept(), []);
    let mut disk = world.disk;
    disk.kill();
    let world = World::open(disk);
    assert_eq!((world.damages(), world.kept()), (0, Vec::new()));
    let world = World::open(world.close());
    assert_eq!(world.kept(), []);
}

/// Where the bytes are on the disk.
fn place(disk: &Disk, wanted: &[u8]) -> Option<(File, usize)> {
    let files: Vec<File> = disk.files().map(|(file, _)| file).collect();
    files.into_iter().find_map(|file| {
        let mut windows = disk.data(file)?.windows(wanted.len());
        Some((file, windows.position(|window| window == wanted)?))
    })
}

/// Where a message's body is.
fn holder(disk: &Disk, seq: u64) -> Option<(File, usize)> {
    place(disk, format!("message {seq:04}").as_bytes())
}

#[test]
fn damage_at_the_end_of_a_segment_is_listed() {
    let mut world = World::open(Disk::new(0));
    world.append(0..MESSAGES);
    let mut disk = world.disk;
    disk.kill();
    // The last message of a segment that others follow.
    let (file, at) = (10..MESSAGES)
        .find_map(|seq| {
            let (file, at) = holder(&disk, seq)?;
            (holder(&disk, seq + 1)?.0 != file).then_some((file, at))
        })
        .expect("there are several segments");
    let bytes = disk.data(file).expect("the file is there");
    let start = bytes[..at].windows(4).rposition(|four| four == BATCH_MAGIC).expect("a batch");
    disk.flip(file, start, 0);
    disk.flip(file, at, 0);
    let world = World::open(disk);
    assert_eq!(world.kept(), [file]);
    let [(number, _, end)] = world.store.damaged_segments()[..] else { panic!("one segment") };
    let bytes = &world.disk.data(file).expect("the file is there")[..end as usize];
    let gaps = inspect::damage(Keys::none(LOG), number, bytes);
    let records: Vec<u32> = gaps
        .iter()
        .flat_map(|gap| inspect::damaged_records(Keys::none(LOG), number, bytes, *gap))
        .collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert!(gaps[0].offset as usize <= start && records.contains(&gaps[0].offset), "{records:?}");
    // Later its header and its first batch are lost, too.
    let mut bytes = bytes.to_vec();
    bytes[..200].fill(0xAA);
    assert_eq!(inspect::segment(Keys::none(LOG), &bytes, |_| ()).generation, None);
    let more = inspect::damage(Keys::none(LOG), number, &bytes);
    assert_eq!(more[0], inspect::Gap { offset: 0, bytes: 64 });
    assert_eq!((more[1].offset, more.last()), (64, gaps.last()));
}

/// Loses so much of a file from its begin on, and each batch's magic in it if that is wished.
fn lose(disk: &mut Disk, file: File, length: usize, batches: bool) {
    let mut bytes = disk.data(file).expect("the file is there").to_vec();
    bytes[..length].fill(0);
    while batches && let Some(at) = bytes.windows(4).position(|four| four == BATCH_MAGIC) {
        bytes[at] = 0;
    }
    disk.put(file, bytes);
}

/// A disk after a kill, and a message in the second half of a segment that others follow.
fn killed() -> (Disk, u64, File) {
    let mut world = World::open(Disk::new(0));
    world.append(0..MESSAGES);
    let mut disk = world.disk;
    disk.kill();
    let found = (10..MESSAGES).find_map(|seq| {
        let (file, at) = holder(&disk, seq)?;
        let is_followed = holder(&disk, seq + 6)?.0 != file;
        (at > 4500 && at < 7500 && is_followed).then_some((seq, file))
    });
    let (seq, file) = found.expect("there are several segments");
    (disk, seq, file)
}

#[test]
fn a_segment_whose_first_page_is_lost_is_read_and_kept() {
    let (mut disk, seq, file) = killed();
    let lost = (0..MESSAGES)
        .filter(|&seq| holder(&disk, seq).is_some_and(|(found, at)| found == file && at < 4096));
    let lost = lost.count() as u64;
    lose(&mut disk, file, 4096, false);
    let mut world = World::open(disk);
    assert!(world.damages() > 0);
    assert_eq!(world.kept(), [file], "{:?}", world.events);
    let served = world.settle_all() as u64;
    assert!(served >= MESSAGES - lost - 1, "{served}, {lost} lost");
    for _ in 0..3 {
        world.store.request_checkpoint();
        (0..120).for_each(|_| world.cycle());
    }
    assert_eq!(world.kept(), [file]);
    assert!(holder(&world.disk, seq).is_some_and(|(found, _)| found == file));
}

#[test]
fn a_segment_that_nothing_names_any_more_is_kept_where_one_is_missing() {
    let (mut disk, seq, file) = killed();
    lose(&mut disk, file, 4096, true);
    let mut world = World::open(disk);
    assert!(world.kept().contains(&file), "{:?}", world.events);
    let is_told = |event: &Event| matches!(event, Event::Damaged(damage) if damage.file == file);
    assert!(world.events.iter().any(is_told), "{:?}", world.events);
    world.settle_all();
    (0..120).for_each(|_| world.cycle());
    let mut world = World::open(world.close());
    (0..120).for_each(|_| world.cycle());
    assert!(world.kept().contains(&file));
    assert!(holder(&world.disk, seq).is_some_and(|(found, _)| found == file));
    // A rebuild finds the same.
    let mut disk = world.close();
    damage_checkpoints(&mut disk);
    let world = World::open(disk);
    assert!(world.kept().contains(&file), "{:?}", world.events);
}

#[test]
fn the_last_segment_whose_first_page_is_lost_is_told() {
    let mut world = World::open(Disk::new(0));
    world.append(0..MESSAGES - 3);
    let mut disk = world.disk;
    disk.kill();
    let (file, _) = holder(&disk, MESSAGES - 4).expect("it is on the disk");
    lose(&mut disk, file, 4096, false);
    let world = World::open(disk);
    assert!(world.damages() > 0);
    assert_eq!(world.kept(), [file], "{:?}", world.events);
}

#[test]
fn what_an_earlier_life_of_a_spare_file_left_is_no_damage() {
    let mut world = World::open(Disk::new(0));
    for seqs in [0..MESSAGES, MESSAGES..MESSAGES + 8] {
        world.append(seqs);
        world.settle_all();
        for _ in 0..3 {
            world.store.request_checkpoint();
            (0..20).for_each(|_| world.cycle());
        }
    }
    let new = MESSAGES + 8..MESSAGES + 13;
    world.append(new.clone());
    let mut disk = world.disk;
    disk.kill();
    let is_used = |file| new.clone().any(|seq| holder(&disk, seq).is_some_and(|at| at.0 == file));
    let mut old = (0..new.start).filter_map(|seq| holder(&disk, seq));
    let spare = old.find(|&(file, at)| !is_used(file) && at > 4200);
    let (spare, _) = spare.expect("a file with an earlier life");
    for batches in [false, true] {
        lose(&mut disk, spare, 4096, batches);
        let mut world = World::open(disk);
        assert_eq!((world.damages(), world.kept()), (0, vec![]), "{:?}", world.events);
        assert_eq!(world.settle_all(), 5);
        disk = world.disk;
        disk.kill();
    }
}

/// Makes the next start do without a checkpoint.
fn damage_checkpoints(disk: &mut Disk) {
    let files: Vec<File> = disk.files().map(|(file, _)| file).collect();
    for file in files.into_iter().filter(|file| matches!(file, File::Checkpoint(..))) {
        disk.flip(file, 20, 0);
    }
}

/// Appends a message for which several segments are needed, with these words at its begin, in its middle
/// and at its end.
fn append_long(world: &mut World, seq: u64, [begin, middle, end]: [&[u8]; 3]) {
    let lane = world.lane();
    let (first, second) = ([0x80; 14_000], [0x81; 14_000]);
    let body = [begin, &first, middle, &second, end].concat();
    let message = Message { exchange: b"e", routing_key: b"k", properties: &[], body: &body };
    let place = Place { lane, seq, deadline_millis: 0 };
    while world.store.append(&message, &[place]).is_err() {
        world.cycle();
    }
    world.store.want_durable();
    (0..10).for_each(|_| world.cycle());
}

#[test]
fn the_whole_parts_of_a_message_in_several_segments_are_kept_with_the_damaged_one() {
    let words: [&[u8]; 3] = [b"the begin of the long one", b"its middle", b"the end of it"];
    for rebuild in [false, true] {
        for damaged in 0..3 {
            let mut world = World::open(Disk::new(0));
            world.append(0..12);
            append_long(&mut world, 12, words);
            world.append(13..MESSAGES);
            let mut disk = world.disk;
            disk.kill();
            let places = words.map(|word| place(&disk, word).expect("it is on the disk"));
            let files = places.map(|(file, _)| file);
            assert!(files[0] != files[1] && files[1] != files[2] && files[0] != files[2]);
            disk.flip(places[damaged].0, places[damaged].1, 0);
            if rebuild {
                damage_checkpoints(&mut disk);
            }
            let mut world = World::open(disk);
            assert_eq!(world.settle_all() as u64, MESSAGES - 1);
            for _ in 0..3 {
                world.store.request_checkpoint();
                (0..120).for_each(|_| world.cycle());
            }
            let kept = world.kept();
            assert!(files.iter().all(|file| kept.contains(file)), "{damaged}: {kept:?}, {files:?}");
            for (number, file, end) in world.store.damaged_segments() {
                let bytes = &world.disk.data(file).expect("the file is there")[..end as usize];
                let parts = inspect::message_parts(Keys::none(LOG), number, bytes).len();
                assert!(parts > 0 || file == files[damaged], "a whole part is listed");
            }
            let is_there = |(word, at)| place(&world.disk, word) == Some(at);
            let mut rest = words.into_iter().zip(places).enumerate();
            assert!(rest.all(|(part, place)| part == damaged || is_there(place)), "{damaged}");
        }
    }
}

#[test]
fn a_message_in_several_segments_that_was_not_written_to_its_end_keeps_nothing() {
    let words: [&[u8]; 3] = [b"the begin of the long one", b"its middle", b"the end of it"];
    let mut world = World::open(Disk::new(0));
    world.append(0..12);
    append_long(&mut world, 12, words);
    let mut disk = world.disk;
    disk.kill();
    // All that follows the middle, and so that nothing names it.
    let (file, _) = place(&disk, words[2]).expect("it is on the disk");
    let length = disk.data(file).expect("the file is there").len();
    lose(&mut disk, file, length, false);
    let mut world = World::open(disk);
    world.append(13..MESSAGES);
    let mut disk = world.close();
    assert!(place(&disk, words[0]).is_some());
    damage_checkpoints(&mut disk);
    let world = World::open(disk);
    assert_eq!(world.kept(), [], "{:?}", world.events);
}

/// A write that did not end is cut off by a start; much later the checkpoint is lost.
#[test]
fn what_a_start_cut_off_is_not_kept_by_a_rebuild() {
    let mut world = World::open(Disk::new(0));
    world.append(0..12);
    let mut disk = world.disk;
    disk.kill();
    flip(&mut disk, 11);
    let mut world = World::open(disk);
    // The very last write: nobody takes it for damage.
    assert_eq!((world.damages(), world.kept()), (0, vec![]));
    // The first eleven live; all others go, and what they were in is used again.
    for round in 0..12 {
        let first = 12 + round * 40;
        world.append(first..first + 40);
        let (lane, mut entries) = (world.lane(), Vec::new());
        while !world.store.is_fetched(lane) {
            if world.store.fetch(lane, 100, &mut entries, &mut world.out) == Fetch::Pending {
                world.carry_out();
            }
        }
        for entry in entries.iter().filter(|entry| entry.seq > 11) {
            world.store.settle(lane, entry.seq, entry.position, entry.bytes);
        }
        world.store.request_checkpoint();
        (0..20).for_each(|_| world.cycle());
    }
    let mut disk = world.close();
    damage_checkpoints(&mut disk);
    let mut world = World::open(disk);
    assert_eq!(world.kept(), [], "{:?}", world.events);
    assert!(world.settle_all() >= 11);
}

/// What checksums begin with at a place.
fn seed(offset: usize, generation: u32) -> u32 {
    generation.wrapping_mul(0x9E37_79B1)
        ^ (offset as u32).wrapping_mul(0x85EB_CA6B).rotate_left(13)
        ^ LOG.0.wrapping_mul(0xC2B2_AE35)
}

/// What looks like a batch of this segment at this offset; no secret is needed to make one.
fn forged(offset: usize, generation: u32) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[..4].copy_from_slice(&BATCH_MAGIC);
    bytes[8..16].fill(0xFF);
    bytes[16..20].copy_from_slice(&generation.to_le_bytes());
    let sum = crc32c::crc32c_append(seed(offset, generation), &bytes[..44]);
    bytes[44..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn what_looks_like_a_batch_in_a_message_is_no_segment() {
    // The first is no segment's number, the others are those of segments before and behind the lost page.
    for generation in [u32::MAX, u32::MAX - 1, 3, 5] {
        let mut world = World::open(Disk::new(0));
        for seq in 0..6 {
            let lane = world.lane();
            let mut body = format!("message {seq:04} {}", "y".repeat(7000)).into_bytes();
            // Where the body begins in its segment is not the same in all.
            for (index, start) in (128..131).enumerate() {
                let offset = 5000 + index * 200;
                body[offset - start..][..48].copy_from_slice(&forged(offset, generation));
            }
            world.append_to(lane, seq, &body);
        }
        let mut disk = world.disk;
        disk.kill();
        let (file, _) = holder(&disk, 2).expect("it is on the disk");
        let image = disk.data(file).expect("the file is there");
        let own = inspect::segment(Keys::none(LOG), image, |_| ()).generation;
        assert_eq!(own, Some(4));
        lose(&mut disk, file, 4096, false);
        let mut world = World::open(disk);
        assert!(world.kept().contains(&file), "{generation}: {:?}", world.events);
        world.append(6..20);
        assert_eq!(world.settle_all(), 19);
    }
}

/// The segment that the checkpoint ends in: with its first page the only batch that would name it is lost.
#[test]
fn the_segment_that_the_checkpoint_ends_in_is_kept_where_nothing_names_it() {
    let words: [&[u8]; 3] = [b"the begin of the long one", b"its middle", b"the end of it"];
    let mut world = World::open(Disk::new(0));
    world.append(0..3);
    world.store.request_checkpoint();
    (0..20).for_each(|_| world.cycle());
    append_long(&mut world, 3, words);
    world.append(4..MESSAGES);
    let mut disk = world.disk;
    disk.kill();
    let files = words.map(|word| place(&disk, word).expect("it is on the disk").0);
    assert_eq!(holder(&disk, 2).map(|(file, _)| file), Some(files[0]));
    lose(&mut disk, files[0], 4096, false);
    let mut world = World::open(disk);
    assert!(world.damages() > 0);
    assert!(files.iter().all(|file| world.kept().contains(file)), "{:?}", world.events);
    world.settle_all();
    for _ in 0..3 {
        world.store.request_checkpoint();
        (0..120).for_each(|_| world.cycle());
    }
    let world = World::open(world.close());
    assert!(files.iter().all(|file| world.kept().contains(file)), "{:?}", world.events);
}

/// A segment in which little more than its first page was written, in a file that was used before.
#[test]
fn a_missing_segment_in_a_file_that_was_used_before_is_kept() {
    let mut world = World::open(Disk::new(0));
    for round in 0..6 {
        world.append(round * MESSAGES..(round + 1) * MESSAGES);
        world.settle_all();
        for _ in 0..3 {
            world.store.request_checkpoint();
            (0..12).for_each(|_| world.cycle());
        }
    }
    let first = 6 * MESSAGES;
    // The last batch that a file of an earlier life has.
    let (old, start) = (0..first)
        .find_map(|seq| {
            let (file, at) = holder(&world.disk, seq)?;
            let bytes = world.disk.data(file)?;
            let start = bytes[..at].windows(4).rposition(|four| four == BATCH_MAGIC)?;
            (start > 7200).then(|| (bytes.to_vec(), start))
        })
        .expect("an old file");
    for seq in first..first + 6 {
        let lane = world.lane();
        let body = format!("message {seq:04} {}", "y".repeat(7000));
        world.append_to(lane, seq, body.as_bytes());
    }
    let mut disk = world.disk;
    disk.kill();
    for seq in first..first + 5 {
        let (file, _) = holder(&disk, seq).expect("it is on the disk");
        let before = disk.data(file).expect("the file is there").to_vec();
        let mut bytes = before.clone();
        bytes[start..].copy_from_slice(&old[start..]);
        disk.put(file, bytes);
        lose(&mut disk, file, 4096, false);
        let world = World::open(disk);
        assert!(world.kept().contains(&file), "{seq} {file:?}: {:?}", world.events);
        disk = world.disk;
        disk.kill();
        disk.put(file, before);
    }
}

/// What is written of the segment in front of it is whole, and nothing but zeros is behind that.
#[test]
fn the_segment_in_front_of_a_missing_one_is_not_told() {
    let mut world = World::open(Disk::new(0));
    for seq in 0..6 {
        let lane = world.lane();
        let body = format!("message {seq:04} {}", "y".repeat(7000));
        world.append_to(lane, seq, body.as_bytes());
    }
    let mut disk = world.disk;
    disk.kill();
    let (file, _) = holder(&disk, 2).expect("it is on the disk");
    lose(&mut disk, file, 4096, false);
    let mut world = World::open(disk);
    assert_eq!(world.kept(), [file], "{:?}", world.events);
    assert_eq!(world.settle_all(), 5);
    // A rebuild finds the same.
    let mut disk = world.close();
    damage_checkpoints(&mut disk);
    let world = World::open(disk);
    assert_eq!(world.kept(), [file], "{:?}", world.events);
}

/// What looks like a segment's first batch stands within a whole batch of another one.
#[test]
fn within_a_whole_batch_no_other_is_looked_for() {
    let mut forgery = None;
    loop {
        let mut world = World::open(Disk::new(0));
        for seq in 0..12 {
            let lane = world.lane();
            let mut body = format!("message {seq:04} {}", "y".repeat(3000)).into_bytes();
            if let Some((offset, generation)) = forgery.filter(|_| seq == 5) {
                let header = forged(offset, generation);
                // A whole record behind it: this kind, and four bytes.
                let mut record = [0, 0, 0, 0, 0x41, 0, 0, 0, 1, 2, 3, 4];
                let sum = crc32c::crc32c_append(seed(offset + 48, generation), &record[4..]);
                record[..4].copy_from_slice(&sum.to_le_bytes());
                body[1000..1060].copy_from_slice(&[&header[..], &record].concat());
            }
            world.append_to(lane, seq, &body);
        }
        let mut disk = world.disk;
        disk.kill();
        let (file, at) = holder(&disk, 5).expect("it is on the disk");
        assert!(at > 3000 && holder(&disk, 4).is_some_and(|found| found.0 == file));
        if forgery.is_none() {
            let last =
                holder(&disk, 11).and_then(|(file, _)| disk.data(file)).expect("on the disk");
            let last = inspect::segment(Keys::none(LOG), last, |_| ())
                .generation
                .expect("it has a header");
            forgery = Some((at + 1000, last + 1));
            continue;
        }
        lose(&mut disk, file, 1000, false);
        let mut world = World::open(disk);
        assert_eq!(world.kept(), [file], "{:?}", world.events);
        assert_eq!(world.settle_all(), 11);
        return;
    }
}

/// What looks like a batch of this segment at this offset, with a record that says that a queue was deleted. It
/// names itself as synced, as if all in front of it were damaged.
fn forged_deletion(offset: usize, generation: u32, queue: u8) -> Vec<u8> {
    let mut record = vec![0, 0, 0, 0, 0x14, 0, 0, 0, queue];
    let sum = crc32c::crc32c_append(seed(offset + 48, generation), &record[4..]);
    record[..4].copy_from_slice(&sum.to_le_bytes());
    let mut header = [0; 48];
    header[..4].copy_from_slice(&BATCH_MAGIC);
    header[4] = record.len() as u8;
    header[8] = 7;
    header[16..20].copy_from_slice(&generation.to_le_bytes());
    header[20] = 1;
    header[24..28].copy_from_slice(&(offset as u32).to_le_bytes());
    header[28..32].copy_from_slice(&generation.to_le_bytes());
    let sums = crc32c::crc32c_append(0, &sum.to_le_bytes());
    header[36..40].copy_from_slice(&sums.to_le_bytes());
    let sum = crc32c::crc32c_append(seed(offset, generation), &header[..44]);
    header[44..].copy_from_slice(&sum.to_le_bytes());
    [&header[..], &record].concat()
}

/// A disk after a kill, on which messages of a second queue lie behind the end of the log, in a file that was used
/// before: of each the number, the file and the place. `body` makes them.
fn used_again(key: Key, body: impl Fn(u64) -> Vec<u8>) -> (Disk, Vec<(u64, File, usize)>) {
    let mut world = World::with_key(key, Disk::new(0));
    let victims = world.store.lane(Lane::of(QueueId(2)));
    (0..3).for_each(|seq| world.append_to(victims, seq, b"precious"));
    let lane = world.lane();
    for round in 0..6 {
        (round * 20..round * 20 + 20).for_each(|seq| world.append_to(lane, seq, &body(seq)));
        world.settle_all();
        for _ in 0..3 {
            world.store.request_checkpoint();
            (0..12).for_each(|_| world.cycle());
        }
    }
    let old = (0..120).filter_map(|seq| Some((seq, holder(&world.disk, seq)?)));
    let old = old.map(|(seq, (file, at))| (seq, file, at)).collect();
    world.append(120..125);
    let mut disk = world.disk;
    disk.kill();
    (disk, old)
}

/// Files that are used again hold, behind the end of the log, what clients sent in their earlier lives.
#[test]
fn what_a_client_sent_that_looks_like_a_batch_is_no_part_of_the_log() {
    const INSIDE: usize = 2900;
    let key = Key::new(0x0123_4567_89AB_CDEF);
    let plain = |seq: u64| format!("message {seq:04} {}", "y".repeat(3000)).into_bytes();
    let (disk, old) = used_again(key, plain);
    let (file, at) = holder(&disk, 124).expect("it is on the disk");
    let image = disk.data(file).expect("the file is there");
    let generation = inspect::segment(Keys::none(LOG), image, |_| ()).generation.expect("a header");
    let is_behind = |(_, found, start): &&(u64, File, usize)| {
        *found == file && start + INSIDE > (at + 400).next_multiple_of(4096)
    };
    let &(forger, _, start) = old.iter().find(is_behind).expect("one of an earlier life");
    let (disk, _) = used_again(key, |seq| {
        let mut body = plain(seq);
        if seq == forger {
            let forged = forged_deletion(start + INSIDE, generation, 2);
            body[INSIDE..INSIDE + forged.len()].copy_from_slice(&forged);
        }
        body
    });
    let image = disk.data(file).expect("the file is there");
    assert!(image[start + INSIDE..].starts_with(&BATCH_MAGIC), "it is behind the end");
    let mut world = World::with_key(key, disk);
    assert_eq!((world.damages(), world.kept()), (0, vec![]), "{:?}", world.events);
    let victims = world.store.lane(Lane::of(QueueId(2)));
    assert_eq!(world.fetch_all(victims).len(), 3);
}

/// The key of a segment without a header is found in the root file, or in the headers of others.
#[test]
fn the_key_is_found_where_a_segment_has_lost_it() {
    let cases = [(false, false), (false, true), (true, true)];
    // That of the first segment tells also from when on segments have the key.
    for ((loses_root, loses_second), seq) in
        cases.into_iter().flat_map(|case| [(case, 0), (case, 30)])
    {
        let key = Key::new(0x0F1E_2D3C_4B5A_6978);
        let mut world = World::with_key(key, Disk::new(0));
        world.append(0..MESSAGES);
        let keys = world.store.keys();
        let mut disk = world.disk;
        disk.kill();
        let root = File::Root(LOG);
        let mut bytes = disk.data(root).expect("a root").to_vec();
        assert_eq!(Keys::of_root(LOG, &bytes), keys);
        let [first, second] = inspect::KEYS_OFFSETS;
        bytes[first] ^= 1;
        bytes[second] ^= u8::from(loses_second);
        let found = if loses_second { Keys::none(LOG) } else { keys };
        assert_eq!(Keys::of_root(LOG, &bytes), found);
        if loses_root {
            bytes.clear();
        }
        disk.put(root, bytes);
        let (file, _) = holder(&disk, seq).expect("it is on the disk");
        lose(&mut disk, file, 64, false);
        // Another key is of no use to a log that has one.
        let mut world = World::with_key(Key::new(1), disk);
        assert_eq!((world.damages(), world.kept()), (1, vec![]), "{:?}", world.events);
        assert_eq!(world.settle_all() as u64, MESSAGES);
        assert_eq!(world.store.keys(), keys);
        let bytes = world.disk.data(root).expect("a root");
        assert_eq!(Keys::of_root(LOG, bytes), keys, "it is written again");
    }
}

/// Who cannot be asked for the key may be the first that has it: what it says must not be taken for what is without.
#[test]
fn a_key_that_cannot_be_looked_for_everywhere_stops_the_start() {
    let mut world = World::with_key(Key::new(0x0F1E_2D3C_4B5A_6978), Disk::new(0));
    world.append(0..MESSAGES);
    let mut disk = world.close();
    let root = File::Root(LOG);
    let mut bytes = disk.data(root).expect("a root").to_vec();
    inspect::KEYS_OFFSETS.iter().for_each(|at| bytes[*at] ^= 1);
    disk.put(root, bytes.clone());
    let (first, _) = holder(&disk, 0).expect("it is on the disk");
    let mut out = Operations::default();
    let settings = Settings { segment_bytes: 8192, key: Key::new(77), ..Settings::new(LOG) };
    let mut store = Store::open(settings, &mut out);
    loop {
        let (mut list, mut failing) = (core::mem::take(&mut out.list), Vec::new());
        list.retain(|operation| {
            let is_header = |length| length < 200;
            let fails = matches!(operation.action, Action::Read { file, offset: 0, length } if file == first && is_header(length));
            failing.extend(fails.then_some(operation.id));
            !fails
        });
        disk.submit(&mut list);
        failing.iter().for_each(|id| {
            let failed = Completion::failed(*id, DiskError::Failed);
            store.complete(Now::from_millis(1), failed, &mut out);
        });
        match disk.step() {
            Some(completion) => store.complete(Now::from_millis(1), completion, &mut out),
            None if out.list.is_empty() => break,
            None => {}
        }
    }
    let mut events = Vec::new();
    store.take_events(&mut events);
    assert!(!events.iter().any(|event| matches!(event, Event::Ready { .. })), "{events:?}");
    assert_eq!(disk.data(root), Some(&bytes[..]), "nothing was written");
    let mut world = World::with_key(Key::new(77), disk);
    assert_eq!((world.damages(), world.settle_all() as u64), (0, MESSAGES));
}
