//! The format, byte by byte: files written once and kept beside this test. Those of the newest
//! version must be written the same way again, and those of each must be read. A change of format
//! gets a new version and new files; these stay, to be read.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use lepus_base::{Now, QueueId};
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::inspect;
use lepus_store::place::{generation, offset};
use lepus_store::segment::SEGMENT_VERSION;
use lepus_store::simulation::Disk;
use lepus_store::{
    CHECKPOINT_VERSION, Event, Fetch, Key, Keys, Lane, Lookup, Message, Place, Root, Settings,
    Store,
};

const LOG: LogId = LogId(3);

fn settings() -> Settings {
    let key = Key::new(0x0123_4567_89AB_CDEF);
    Settings { key, segment_bytes: 8192, index_pages_max: 0, ..Settings::new(LOG) }
}

fn run(store: &mut Store, disk: &mut Disk, out: &mut Operations) {
    store.flush(Now::from_millis(5), out);
    loop {
        disk.submit(&mut out.list);
        let Some(completion) = disk.step() else { return };
        store.complete(Now::from_millis(5), completion, out);
        store.flush(Now::from_millis(5), out);
    }
}

fn message(body: &[u8]) -> Message<'_> {
    Message { exchange: b"amq.topic", routing_key: b"a.b", properties: &[0x10, 0, 2], body }
}

/// The set of versions that is written, as its files are called; earlier ones are read.
const VERSION: u16 = 5;
const _: () = assert!(CHECKPOINT_VERSION == 4 && SEGMENT_VERSION == 3, "a new set");

/// Every kind of record, in files of one store.
fn written() -> Disk {
    let mut disk = Disk::new(0);
    let mut out = Operations::default();
    let mut store = Store::open(settings(), &mut out);
    run(&mut store, &mut disk, &mut out);
    let plain = store.lane(Lane::of(QueueId(5)));
    let dropped = store.lane(Lane::of(QueueId(6)));
    let urgent = store.lane(Lane { queue: QueueId(300), level: 9 });
    let place = |lane, seq| Place { lane, seq, deadline_millis: 0 };
    let first = store.append(&message(b"one queue"), &[place(plain, 0)]).expect("room");
    let late = Place { deadline_millis: 1_700_000_000_000, ..place(urgent, 7) };
    store.append(&message(b"two queues"), &[place(plain, 1), late]).expect("room");
    store.append(&message(b"gone"), &[place(dropped, 0)]).expect("room");
    store.mark_delivered(plain, 1);
    store.want_durable();
    run(&mut store, &mut disk, &mut out);
    store.request_checkpoint();
    run(&mut store, &mut disk, &mut out);
    assert!(store.settle(plain, 0, first, 9));
    store.drop_queue(QueueId(6));
    store.want_durable();
    run(&mut store, &mut disk, &mut out);
    store.request_checkpoint();
    run(&mut store, &mut disk, &mut out);
    store.append(&message(b"behind the checkpoint"), &[place(plain, 2)]).expect("room");
    store.want_durable();
    run(&mut store, &mut disk, &mut out);
    disk
}

fn path(version: u16, file: File) -> PathBuf {
    let name = file.to_string().replace('/', "-");
    let directory = format!("tests/golden/version-{version}");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).join(name + ".hex")
}

/// Sixteen bytes to a line with their offset; a run of zeros to the end is left out.
fn dump(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut text = format!("length {}\n", bytes.len());
    for (index, line) in bytes[..end].chunks(16).enumerate() {
        let _ = write!(text, "{:06x}", index * 16);
        line.iter().for_each(|byte| write!(text, " {byte:02x}").expect("a string"));
        text.push('\n');
    }
    text
}

fn load(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let length = lines.next().and_then(|line| line.strip_prefix("length "));
    let mut bytes = vec![0; length.expect("a length").parse().expect("a number")];
    for line in lines {
        let (offset, rest) = line.split_at(6);
        let offset = usize::from_str_radix(offset, 16).expect("an offset");
        for (index, byte) in rest.split_whitespace().enumerate() {
            bytes[offset + index] = u8::from_str_radix(byte, 16).expect("a byte");
        }
    }
    bytes
}

#[test]
fn files_are_written_as_they_were_when_the_format_was_fixed() {
    let disk = written();
    let files: Vec<(File, u64)> = disk.files().collect();
    let root = valid_root(&disk);
    for (file, _) in files {
        let mut bytes = disk.data(file).expect("a listed file");
        match file {
            // What follows is room that was not needed; another one is room for the next.
            File::Checkpoint(_, number) if number == root.number => {
                bytes = &bytes[..root.length as usize];
            }
            File::Checkpoint(..) => continue,
            _ => {}
        }
        let text = dump(bytes);
        let path = path(VERSION, file);
        if std::env::var_os("WRITE_GOLDEN").is_some() {
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(&path, &text).expect("a file");
        }
        let golden = std::fs::read_to_string(&path);
        let golden = golden.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text == golden, "{file} differs from {}", path.display());
    }
}

/// The files of a version.
fn golden(version: u16) -> Disk {
    let mut disk = Disk::new(0);
    let directory = path(version, File::Root(LOG)).parent().expect("a directory").to_path_buf();
    for entry in std::fs::read_dir(directory).expect("golden files") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let (log, name) = name.split_at("log-00000003".len());
        let file: File = format!("{log}/{}", &name[1..]).parse().expect("a file of the log");
        disk.put(file, load(&std::fs::read_to_string(path).expect("text")));
    }
    disk
}

#[test]
fn files_of_each_fixed_format_are_read() {
    for version in 1..=VERSION {
        are_read(&mut golden(version));
    }
}

/// What is appended to files of an earlier version is tied to what they hold.
#[test]
fn files_of_each_fixed_format_are_gone_on_with() {
    for version in 1..=VERSION {
        let mut disk = golden(version);
        for seq in 3..6 {
            let mut out = Operations::default();
            let mut store = Store::open(settings(), &mut out);
            run(&mut store, &mut disk, &mut out);
            let lane = store.lane(Lane::of(QueueId(5)));
            let place = Place { lane, seq, deadline_millis: 0 };
            store.append(&message(b"later"), &[place]).expect("room");
            store.want_durable();
            run(&mut store, &mut disk, &mut out);
            assert_eq!(store.count(lane).0, seq, "version {version}");
            let mut events = Vec::new();
            store.take_events(&mut events);
            assert!(!events.iter().any(|event| matches!(event, Event::Damaged(_))), "{events:?}");
        }
    }
}

/// As soon as a log has a key no version that does not know it goes on with the log, even if no segment has it yet.
#[test]
fn a_log_that_has_got_a_key_is_refused_by_versions_that_know_none() {
    for version in 1..=4 {
        let mut disk = golden(version);
        let versions = |disk: &Disk| {
            let roots = disk.data(File::Root(LOG)).expect("a root");
            [0, 4096].map(|at| u16::from_le_bytes([roots[at + 8], roots[at + 9]]))
        };
        assert!(!versions(&disk).contains(&2), "version {version}");
        let mut out = Operations::default();
        let mut store = Store::open(settings(), &mut out);
        run(&mut store, &mut disk, &mut out);
        assert_ne!(store.keys(), Keys::none(LOG));
        assert!(versions(&disk).contains(&2), "version {version}");
        disk.kill();
        are_read(&mut disk);
    }
}

fn valid_root(disk: &Disk) -> Root {
    let roots = disk.data(File::Root(LOG)).expect("a root");
    let records = [0, 4096].map(|at| Root::decode(&roots[at..]).ok());
    records.into_iter().flatten().max_by_key(|root| (root.number, root.length)).expect("a root")
}

/// As if the files had been left in order right behind the checkpoint.
fn left_in_order(disk: &mut Disk) {
    let root = Root { is_clean: true, ..valid_root(disk) };
    let mut bytes = vec![0; 8192];
    bytes[..64].copy_from_slice(&root.encode());
    disk.put(File::Root(LOG), bytes);
    let checkpoint = disk.data(File::Checkpoint(LOG, root.number)).expect("a checkpoint");
    let report = inspect::checkpoint(checkpoint, &root).expect("it is whole");
    let at = report.position;
    for (file, _) in disk.files().collect::<Vec<_>>() {
        let File::Segment(_, slot) = file else { continue };
        let row = report.segments.iter().find(|row| row.slot == Some(slot));
        let keeps = match row.map(|row| row.generation) {
            Some(found) if found == generation(at) => offset(at) as usize,
            Some(found) if found < generation(at) => usize::MAX,
            _ => 0,
        };
        let mut bytes = disk.data(file).expect("a segment").to_vec();
        bytes.iter_mut().skip(keeps).for_each(|byte| *byte = 0);
        disk.put(file, bytes);
    }
}

#[test]
fn files_that_do_not_say_what_was_delivered_leave_everything_marked() {
    for version in 1..=VERSION {
        let mut disk = golden(version);
        left_in_order(&mut disk);
        let mut out = Operations::default();
        let mut store = Store::open(settings(), &mut out);
        run(&mut store, &mut disk, &mut out);
        let mut events = Vec::new();
        store.take_events(&mut events);
        assert!(events.contains(&Event::Ready { is_clean: true }), "{events:?}");
        let plain = store.lane(Lane::of(QueueId(5)));
        let marks = [0, 1].map(|seq| store.is_redelivered(plain, seq));
        assert_eq!(marks, [version == 1, true], "version {version}");
    }
}

fn are_read(disk: &mut Disk) {
    let mut out = Operations::default();
    let mut store = Store::open(settings(), &mut out);
    run(&mut store, disk, &mut out);
    while store.work(Now::from_millis(5), &mut out) {}
    let mut events = Vec::new();
    store.take_events(&mut events);
    assert!(events.contains(&Event::Ready { is_clean: false }), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Damaged(_))), "{events:?}");
    let mut found = Vec::new();
    let lanes: Vec<_> = store.lanes().collect();
    for (lane, slot) in lanes {
        let mut entries = Vec::new();
        assert_eq!(store.fetch(slot, 10, &mut entries, &mut out), Fetch::Done);
        for entry in entries {
            while store.lookup(entry.position, &mut out) == Lookup::Pending {
                run(&mut store, disk, &mut out);
            }
            assert!(store.is_redelivered(slot, entry.seq), "nobody stopped it in order");
            let message = store.message(entry.position).expect("just looked up");
            assert_eq!((message.exchange, message.routing_key), (&b"amq.topic"[..], &b"a.b"[..]));
            assert_eq!(message.properties, [0x10, 0, 2]);
            let body = String::from_utf8(message.body.to_vec()).expect("text");
            found.push((lane.queue.0, lane.level, entry.seq, entry.deadline_millis, body));
        }
    }
    let expected = [
        (5, 0, 1, 0, "two queues"),
        (5, 0, 2, 0, "behind the checkpoint"),
        (300, 9, 7, 1_700_000_000_000, "two queues"),
    ];
    let expected =
        expected.map(|(queue, level, seq, at, body)| (queue, level, seq, at, body.to_string()));
    assert_eq!(found, expected);
}
