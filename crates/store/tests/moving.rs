//! Messages that go from one queue to another in one log: a start finds all of a unit where it went, or all where it was.

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::simulation::Disk;
use lepus_store::{Lane, LaneSlot, Message, Place, Settings, Store};

const LOG: LogId = LogId(1);
const BODY: &[u8] = &[7; 100];
/// Messages that are there before, and those of them that go.
const MESSAGES: u64 = 20;
const MOVED: u64 = 8;
/// Messages of another queue, and those of them that were settled before: too much to have room in what is held.
const OTHERS: u64 = 2_000;
const OTHERS_SETTLED: u64 = 999;

fn run(store: &mut Store, disk: &mut Disk, out: &mut Operations, millis: u64) {
    loop {
        disk.submit(&mut out.list);
        let Some(completion) = disk.step() else { return };
        store.complete(Now::from_millis(millis), completion, out);
        store.flush(Now::from_millis(millis), out);
    }
}

fn open(disk: &mut Disk) -> (Store, Operations) {
    let mut out = Operations::default();
    let settings =
        Settings { segment_bytes: 1 << 17, batch_bytes_max: 1 << 10, ..Settings::new(LOG) };
    let mut store = Store::open(settings, &mut out);
    run(&mut store, disk, &mut out, 1);
    while !store.has_room(8192) {
        store.flush(Now::from_millis(1), &mut out);
        run(&mut store, disk, &mut out, 1);
    }
    (store, out)
}

fn message(body: &[u8]) -> Message<'_> {
    Message { exchange: b"", routing_key: b"q", properties: &[0, 0], body }
}

fn append(store: &mut Store, lane: LaneSlot, body: &[u8]) -> (u64, Position) {
    let seq = store.next_seq(lane);
    let place = Place { lane, seq, deadline_millis: 0 };
    (seq, store.append(&message(body), &[place]).expect("there is room"))
}

fn settle(store: &mut Store, lane: LaneSlot, (seq, position): (u64, Position), body: &[u8]) {
    assert!(store.settle(lane, seq, position, body.len() as u32));
}

/// What is in queues 1 to 3.
fn counts(store: &mut Store) -> [u64; 3] {
    [1, 2, 3].map(|queue| {
        let lane = store.lane(Lane::of(QueueId(queue)));
        store.count(lane).0
    })
}

/// A store in which some messages of queue 1 have just gone to queue 2, every second of them, while others of queue 3
/// were settled before and behind.
fn moved(seed: u64) -> (Store, Disk, Operations) {
    let mut disk = Disk::new(seed);
    let (mut store, mut out) = open(&mut disk);
    let [other, from, to] = [3, 1, 2].map(|queue| store.lane(Lane::of(QueueId(queue))));
    let here: Vec<_> = (0..MESSAGES).map(|_| append(&mut store, from, BODY)).collect();
    let others: Vec<_> = (0..OTHERS).map(|_| append(&mut store, other, b"")).collect();
    store.want_synced();
    store.flush(Now::from_millis(2), &mut out);
    run(&mut store, &mut disk, &mut out, 2);
    for &place in others.iter().step_by(2).take(OTHERS_SETTLED as usize) {
        settle(&mut store, other, place, b"");
    }
    let bytes = Store::record_bytes_max(&message(BODY), 1) + Store::SETTLE_BYTES_MAX;
    store.hold(bytes * MOVED as usize).expect("there is room");
    for _ in 0..MOVED {
        append(&mut store, to, BODY);
    }
    store.begin_held_settles();
    for &place in here.iter().step_by(2).take(MOVED as usize) {
        settle(&mut store, from, place, BODY);
    }
    store.end_held_settles();
    assert!(store.has_unwritten_settles(), "what was settled before waits for its time");
    settle(&mut store, other, others[OTHERS as usize - 1], b"");
    (store, disk, out)
}

#[test]
fn whatever_of_it_is_on_the_disk_all_went_or_none() {
    let (mut store, mut disk, mut out) = moved(1);
    store.want_durable();
    let data = |disk: &Disk, file| disk.data(file).expect("the file").to_vec();
    let is_segment = |file: &File| matches!(file, File::Segment(..));
    let segments: Vec<File> = disk.files().map(|(file, _)| file).filter(is_segment).collect();
    let all_before: Vec<_> = segments.iter().map(|&file| data(&disk, file)).collect();
    store.flush(Now::from_millis(3), &mut out);
    run(&mut store, &mut disk, &mut out, 3);
    let changed = |at: &usize| data(&disk, segments[*at]) != all_before[*at];
    let changed: Vec<usize> = (0..segments.len()).filter(changed).collect();
    let [at] = changed[..] else { panic!("{changed:?}") };
    let (segment, before) = (segments[at], &all_before[at]);
    let after = data(&disk, segment);
    let first = before.iter().zip(&after).position(|(old, new)| old != new).expect("a write");
    let last = before.iter().zip(&after).rposition(|(old, new)| old != new).expect("a write");
    let files: Vec<_> = disk.files().map(|(file, _)| (file, data(&disk, file))).collect();
    let (mut went, mut stayed) = (0, 0);
    // What of it is last are settles of others.
    for cut in (first..first + 1_000).chain((first + 1_000..last).step_by(50)).chain([last + 1]) {
        let mut torn = after[..cut].to_vec();
        torn.extend_from_slice(&before[cut..]);
        let mut disk = Disk::new(cut as u64);
        files.iter().for_each(|(file, bytes)| disk.put(*file, bytes.clone()));
        disk.put(segment, torn);
        let (mut store, _) = open(&mut disk);
        match counts(&mut store) {
            [MESSAGES, 0, _] => stayed += 1,
            [left, MOVED, _] if left + MOVED == MESSAGES => went += 1,
            other => panic!("cut at {cut} of {first} to {last}: {other:?}"),
        }
    }
    assert!(went > 0 && stayed > MOVED * BODY.len() as u64, "{went} and {stayed}");
}

#[test]
fn a_loss_of_power_at_any_moment_leaves_all_there_or_here() {
    let (mut went, mut stayed) = (0, 0);
    for seed in 0..200 {
        let (mut store, mut disk, mut out) = moved(seed);
        store.want_synced();
        store.flush(Now::from_millis(3), &mut out);
        disk.submit(&mut out.list);
        for _ in 0..seed % 3 {
            let Some(completion) = disk.step() else { break };
            store.complete(Now::from_millis(4), completion, &mut out);
            store.flush(Now::from_millis(4), &mut out);
            disk.submit(&mut out.list);
        }
        disk.crash();
        let (mut store, _) = open(&mut disk);
        match counts(&mut store) {
            [MESSAGES, 0, _] => stayed += 1,
            [left, MOVED, _] if left + MOVED == MESSAGES => went += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(went > 20 && stayed > 20, "{went} and {stayed}");
}

#[test]
fn settles_for_which_nothing_was_held_are_written_in_their_time() {
    let (mut store, mut disk, mut out) = moved(1);
    for millis in [3, 300, 1_500, 3_000] {
        store.flush(Now::from_millis(millis), &mut out);
        run(&mut store, &mut disk, &mut out, millis);
    }
    disk.crash();
    let (mut store, _) = open(&mut disk);
    assert_eq!(counts(&mut store), [MESSAGES - MOVED, MOVED, OTHERS - OTHERS_SETTLED - 1]);
}
