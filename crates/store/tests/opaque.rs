//! Logs of opaque records, as definitions are kept in: their owner looks at what was found before
//! anything is written, and damage does not go away by itself.

use lepus_base::Now;
use lepus_store::disk::{Action, File, LogId, Operations};
use lepus_store::inspect::{self, Part};
use lepus_store::simulation::Disk;
use lepus_store::{Damage, Event, Keys, Settings, Store};

const LOG: LogId = LogId(0);

fn settings() -> Settings {
    Settings { segment_bytes: 16 << 10, asks_first: true, ..Settings::new(LOG) }
}

/// Carries everything out that the store wants. What it told.
fn run(store: &mut Store, disk: &mut Disk, out: &mut Operations) -> Vec<Event> {
    let mut events = Vec::new();
    let now = Now::from_millis(1);
    for _ in 0..10_000 {
        disk.submit(&mut out.list);
        let Some(completion) = disk.step() else {
            store.flush(now, out);
            if out.list.is_empty() {
                return events;
            }
            continue;
        };
        store.complete(now, completion, out);
        store.take_events(&mut events);
    }
    panic!("no end");
}

/// Reads a log and writes nothing.
fn look(disk: &mut Disk) -> (Store, Operations, Vec<Event>) {
    let mut out = Operations::default();
    let mut store = Store::open(settings(), &mut out);
    let events = run(&mut store, disk, &mut out);
    assert_eq!(events.last(), Some(&Event::Found), "{events:?}");
    (store, out, events)
}

fn take_over(disk: &mut Disk) -> (Store, Operations, Vec<Event>) {
    let (mut store, mut out, mut events) = look(disk);
    store.go_on(Now::from_millis(1), &mut out);
    events.extend(run(&mut store, disk, &mut out));
    assert!(store.is_running(), "{events:?}");
    (store, out, events)
}

fn append(store: &mut Store, disk: &mut Disk, out: &mut Operations, text: &str) {
    while store.append_opaque(text.as_bytes()).is_err() {
        run(store, disk, out);
    }
    store.want_synced();
    run(store, disk, out);
    assert_eq!(store.synced(), store.end());
}

fn texts(store: &mut Store) -> Vec<String> {
    let found = store.take_opaque().into_iter();
    found.map(|(_, bytes)| String::from_utf8(bytes).expect("text")).collect()
}

fn damages(events: &[Event]) -> Vec<Damage> {
    let damage = |event: &Event| match event {
        Event::Damaged(damage) => Some(*damage),
        _ => None,
    };
    events.iter().filter_map(damage).collect()
}

/// All bytes of all files.
fn image(disk: &Disk) -> Vec<(File, Vec<u8>)> {
    disk.files().map(|(file, _)| (file, disk.data(file).unwrap_or_default().to_vec())).collect()
}

const COUNT: usize = 9;

/// Five changes, closed in order. The file with the last of them, and where its batch lies.
fn filled(is_closed: bool) -> (Disk, File, std::ops::Range<usize>) {
    let mut disk = Disk::new(3);
    let (mut store, mut out, _) = take_over(&mut disk);
    for number in 0..COUNT {
        append(&mut store, &mut disk, &mut out, &format!("{number}: {}", "change ".repeat(120)));
    }
    if is_closed {
        store.close();
    } else {
        store.request_checkpoint();
    }
    run(&mut store, &mut disk, &mut out);
    disk.crash();
    let mut last = None;
    for (file, bytes) in image(&disk) {
        if !matches!(file, File::Segment(..)) {
            continue;
        }
        inspect::segment(Keys::none(LOG), &bytes, |part| {
            if let Part::Batch(batch) = part {
                let start = batch.offset as usize;
                last = last.take().max(Some((batch.number, file, start, batch.bytes as usize)));
            }
        });
    }
    let (_, file, start, bytes) = last.expect("a batch");
    (disk, file, start..start + 48 + bytes)
}

/// Ways to damage the last batch: the page that it ends in, its header, its last byte, its whole segment.
fn spoil(disk: &mut Disk, way: u8, file: File, batch: &std::ops::Range<usize>) {
    let mut bytes = disk.data(file).expect("a segment").to_vec();
    match way {
        0 => bytes[(batch.end - 1) / 4096 * 4096..][..4096].fill(0),
        1 => bytes[batch.start..][..48].fill(0),
        3 => bytes.fill(0),
        4 => bytes.clear(),
        _ => bytes[batch.end - 1] ^= 1,
    }
    disk.put(file, bytes);
}

/// Whoever is told of damage may try again and again, look with another program, or copy the files
/// away first.
#[test]
fn a_look_at_a_damaged_log_tells_the_damage_each_time_and_writes_nothing() {
    for (is_closed, way) in (0..10).map(|number| (number % 2 == 0, number / 2)) {
        let (mut disk, file, batch) = filled(is_closed);
        spoil(&mut disk, way, file, &batch);
        let before = image(&disk);
        for start in 0..3 {
            let (_, _, events) = look(&mut disk);
            let found = damages(&events);
            assert!(!found.is_empty(), "way {way}, start {start}: {events:?}");
            assert!(found.iter().all(|damage| damage.file == file), "{found:?}");
            assert_eq!(image(&disk), before, "way {way}, start {start}");
        }
    }
}

#[test]
fn a_look_at_a_new_log_makes_no_file() {
    let mut disk = Disk::new(1);
    let (mut store, _, events) = look(&mut disk);
    assert_eq!((texts(&mut store), damages(&events)), (Vec::new(), Vec::new()));
    assert_eq!(image(&disk), []);
}

/// No operation of a look writes, whatever a disk makes of it.
#[test]
fn a_look_asks_for_nothing_but_reading() {
    let (mut disk, ..) = filled(true);
    let mut out = Operations::default();
    let mut store = Store::open(settings(), &mut out);
    while !out.list.is_empty() {
        for operation in &out.list {
            let reads = matches!(
                operation.action,
                Action::List(_) | Action::Read { .. } | Action::Reload(_)
            );
            assert!(reads, "{operation:?}");
        }
        disk.submit(&mut out.list);
        while let Some(completion) = disk.step() {
            store.complete(Now::from_millis(1), completion, &mut out);
        }
    }
    store.flush(Now::from_millis(9), &mut out);
    assert!(out.list.is_empty() && !store.is_running());
    assert_eq!(texts(&mut store).len(), COUNT);
}

/// An owner who goes on without what is lost and writes no snapshot has it told again at every start,
/// and what is written behind the damage is found.
#[test]
fn damage_is_told_at_every_start_until_a_snapshot_replaces_what_is_there() {
    for way in 0..5 {
        let (mut disk, file, batch) = filled(way == 1);
        spoil(&mut disk, way, file, &batch);
        let (mut store, ..) = look(&mut disk);
        let mut expected = texts(&mut store);
        for start in 0..3 {
            let (mut store, mut out, events) = take_over(&mut disk);
            assert!(!damages(&events).is_empty(), "way {way}, start {start}: {events:?}");
            assert_eq!(texts(&mut store), expected, "way {way}, start {start}");
            expected.push(format!("behind {start}"));
            append(&mut store, &mut disk, &mut out, expected.last().expect("just pushed"));
            if start == 1 {
                store.request_checkpoint();
                run(&mut store, &mut disk, &mut out);
            }
            disk.crash();
        }
        let (mut store, mut out, _) = take_over(&mut disk);
        let kept = texts(&mut store);
        store.begin_snapshot();
        for text in &kept {
            append(&mut store, &mut disk, &mut out, text);
        }
        store.end_snapshot(false);
        run(&mut store, &mut disk, &mut out);
        disk.crash();
        let (mut store, _, events) = look(&mut disk);
        assert_eq!((damages(&events), texts(&mut store)), (Vec::new(), kept), "way {way}");
    }
}

/// Texts of a snapshot, appended as one.
fn snapshot(store: &mut Store, disk: &mut Disk, out: &mut Operations, name: &str) {
    store.begin_snapshot();
    for part in ["begins", "part", "ends"] {
        append(store, disk, out, &format!("{name} {part}"));
    }
    store.end_snapshot(true);
    run(store, disk, out);
}

#[test]
fn the_snapshot_before_the_last_stays_until_the_next_also_over_a_start() {
    for restarts in [false, true] {
        let mut disk = Disk::new(7);
        let (mut store, mut out, _) = take_over(&mut disk);
        append(&mut store, &mut disk, &mut out, "first");
        for number in 0..4 {
            if restarts {
                disk.crash();
                let (found, operations, _) = take_over(&mut disk);
                (store, out) = (found, operations);
                let last = format!("snapshot {} begins", number - 1);
                let texts: Vec<_> = store.take_opaque();
                let begin = texts.iter().find(|(_, bytes)| *bytes == last.as_bytes());
                assert_eq!(begin.is_some(), number > 0);
                begin.into_iter().for_each(|(at, _)| store.snapshot_found(*at));
            }
            snapshot(&mut store, &mut disk, &mut out, &format!("snapshot {number}"));
            append(&mut store, &mut disk, &mut out, &format!("behind {number}"));
        }
        disk.crash();
        let (mut store, _, _) = look(&mut disk);
        let expected = [
            "snapshot 2 begins",
            "snapshot 2 part",
            "snapshot 2 ends",
            "behind 2",
            "snapshot 3 begins",
            "snapshot 3 part",
            "snapshot 3 ends",
            "behind 3",
        ];
        assert_eq!(texts(&mut store), expected, "with restarts {restarts}");
    }
}
