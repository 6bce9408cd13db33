//! `lepus store` on directories that were damaged.

use crate::running::{Program, Scratch, lepus};
use crate::session::{Seen, connect};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lepus_amqp::method::{confirm, queue};
use lepus_base::{Now, QueueId};
use lepus_reactor::files::Blocking;
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::inspect::{self, Content, Part};
use lepus_store::{Keys, Lane, Message, Place, Settings, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MESSAGES: u64 = 50;
/// Bytes of a page of the index before its runs.
const PAGE_HEADER_BYTES: usize = 48;

/// A log with messages in one queue, stopped in order, beside definitions that do not have it.
fn filled(directory: &Path) {
    crate::check::define(directory);
    let mut out = Operations::default();
    let settings = Settings { segment_bytes: 1 << 16, ..Settings::new(LogId(1)) };
    let mut files = Blocking::new(directory);
    let mut store = Store::open(settings, &mut out);
    let mut millis = 1;
    let mut run = |store: &mut Store, out: &mut Operations| {
        millis += 100;
        loop {
            store.flush(Now::from_millis(millis), out);
            if out.list.is_empty() {
                return;
            }
            for operation in std::mem::take(&mut out.list) {
                store.complete(Now::from_millis(millis), files.run(operation), out);
            }
        }
    };
    run(&mut store, &mut out);
    let lane = store.lane(Lane::of(QueueId(17)));
    for seq in 0..MESSAGES {
        let body = format!("the body of message {seq:04}");
        let message = Message {
            exchange: b"amq.topic",
            routing_key: b"a.b",
            properties: &[0, 0],
            body: body.as_bytes(),
        };
        let place = Place { lane, seq, deadline_millis: 0 };
        while store.append(&message, &[place]).is_err() {
            run(&mut store, &mut out);
        }
        store.want_durable();
        run(&mut store, &mut out);
    }
    store.close();
    while !store.is_closed() {
        run(&mut store, &mut out);
    }
}

fn store(words: &[&str]) -> Output {
    lepus(&[&["store"], words].concat()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Turns a bit of a message's body over. The file, and where.
fn damage(directory: &Path) -> (PathBuf, usize) {
    let wanted = b"the body of message 0020";
    for entry in std::fs::read_dir(directory.join("log-00000001")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
            bytes[at + 4] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            return (path, at);
        }
    }
    panic!("the message is nowhere");
}

#[test]
fn a_whole_store_is_checked_and_dumped() {
    let scratch = Scratch::new("store-whole");
    let directory = scratch.path().to_str().unwrap();
    filled(scratch.path());
    let check = store(&["check", directory]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
    let said = text(&check.stdout);
    assert!(said.contains("50 messages in 1 lanes"), "{said}");
    assert!(said.contains("after an orderly stop"), "{said}");
    assert!(said.ends_with("no damage\n"), "{said}");
    let dump = text(&store(&["dump", directory, "--log", "1"]).stdout);
    let line = dump.lines().find(|line| line.contains("message 0020")).unwrap();
    assert!(line.contains("queue 17 number 20"), "{line}");
    assert!(line.contains("exchange \"amq.topic\", key \"a.b\""), "{line}");
    let messages = dump.lines().filter(|line| line.contains("the body of"));
    assert_eq!(messages.count() as u64, MESSAGES);
    let none = store(&["check", directory, "--log", "9"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("there is no log-00000009"));
}

#[test]
fn damage_is_named_with_file_and_offset_and_a_copy_is_repaired() {
    let scratch = Scratch::new("store-damaged");
    let directory = scratch.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    filled(&directory);
    let (path, at) = damage(&directory);
    let check = store(&["check", directory.to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(1));
    let said = text(&check.stdout);
    let name = path.file_name().unwrap().to_str().unwrap();
    let line = said.lines().find(|line| line.contains("damaged: ")).unwrap();
    assert!(line.contains(name), "{line}");
    let number = |word: &str| -> usize {
        let rest = &line[line.find(word).unwrap() + word.len()..];
        rest.trim().split([',', ' ']).next().unwrap().parse().unwrap()
    };
    let (start, length) = (number(" at "), number(", "));
    assert!((start..start + length).contains(&at), "{line}, {at}");
    let whole = std::fs::read(&path).unwrap();

    let copy = scratch.path().join("copy");
    let words = ["repair", directory.to_str().unwrap(), "--to", copy.to_str().unwrap()];
    let repair = store(&words);
    assert_eq!(repair.status.code(), Some(0), "{}", text(&repair.stderr));
    let said = text(&repair.stdout);
    assert!(said.contains("49 messages can be read"), "{said}");
    assert!(said.contains("lost: 1 messages of queue 17"), "{said}");
    // The directory itself is as it was, and a copy is not written over.
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    assert_eq!(store(&words).status.code(), Some(1));
    let again = store(&["check", copy.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stdout));
    assert!(text(&again.stdout).contains("49 messages"), "{}", text(&again.stdout));
}

#[test]
fn a_directory_that_a_broker_holds_is_not_repaired() {
    let scratch = Scratch::new("store-held");
    filled(scratch.path());
    let held = lepus_server::data_dir::DataDir::open(scratch.path()).unwrap();
    let repair = store(&["repair", scratch.path().to_str().unwrap()]);
    assert_eq!(repair.status.code(), Some(1));
    assert!(text(&repair.stderr).contains("in use"), "{}", text(&repair.stderr));
    assert!(!text(&repair.stderr).contains("--data-dir"), "{}", text(&repair.stderr));
    drop(held);
    let repair = store(&["repair", scratch.path().to_str().unwrap()]);
    assert_eq!(repair.status.code(), Some(0), "{}", text(&repair.stderr));
    assert!(text(&repair.stderr).contains("--to COPY"), "{}", text(&repair.stderr));
    assert!(text(&repair.stdout).contains("nothing was changed"), "{}", text(&repair.stdout));
}

/// The checksum of headers.
fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_behind(0, bytes)
}

/// The same where other bytes, with the checksum `sum`, stand before.
fn crc32c_behind(sum: u32, bytes: &[u8]) -> u32 {
    let bit = |sum: u32, _| (sum >> 1) ^ (0x82F6_3B78 * (sum & 1));
    !bytes.iter().fold(!sum, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), bit))
}

/// All files of the log, by name.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(directory.join("log-00000001")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

/// Changes the records of a root, whose checksums are right afterwards.
fn change_root(path: &Path, change: impl Fn(&mut [u8; inspect::ROOT_RECORD_BYTES])) {
    let mut root = std::fs::read(path).unwrap();
    for record in root.chunks_mut(inspect::ROOT_STRIDE_BYTES) {
        let Some(record) = record.first_chunk_mut() else { continue };
        change(record);
        let sum = crc32c(&record[..60]);
        record[60..].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(path, root).unwrap();
}

/// They are whole, for who knows that version.
#[test]
fn files_of_a_newer_version_are_not_repaired_and_stay_as_they_are() {
    let scratch = Scratch::new("store-newer");
    filled(scratch.path());
    let path = scratch.path().join("log-00000001/root");
    change_root(&path, |record| record[8] += 1);
    let before = files(scratch.path());
    let repair = store(&["repair", scratch.path().to_str().unwrap()]);
    assert_eq!(repair.status.code(), Some(1), "{}", text(&repair.stdout));
    let said = text(&repair.stderr);
    assert!(said.contains("root is of format version 3"), "{said}");
    assert!(files(scratch.path()) == before, "files were changed");
    assert!(!scratch.path().join("removed").exists());
}

/// Its messages are found in the log, and nobody goes through the others one by one.
#[test]
fn a_page_with_more_entries_than_it_should_have_is_damaged() {
    let scratch = Scratch::new("store-entries");
    let directory = scratch.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    crate::check::filled(&directory, true);
    let path = directory.join("log-00000001/index");
    let mut index = std::fs::read(&path).unwrap();
    let page = &mut index[..inspect::PAGE_BYTES];
    let length = usize::from(u16::from_le_bytes([page[4], page[5]]));
    // A run of 2^60 messages in one place: its count with three flags, where it begins, and no distance.
    let run = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0, 0];
    let (header, runs) = page.split_at_mut(PAGE_HEADER_BYTES);
    runs[..run.len()].copy_from_slice(&run);
    let sum = crc32c_behind(0, &[&header[4..], &runs[..length]].concat());
    header[..4].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, index).unwrap();
    let program = lepus(&["store", "check", directory.to_str().unwrap()]);
    let mut command = Command::new("timeout");
    command.arg("20").arg(program.get_program()).args(program.get_args());
    let output = command.output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("index at 0, 4096 bytes: page 0 of the index"), "{said}");
    assert!(said.contains("  3000 messages can be read\n"), "{said}");
}

/// Nobody has memory for so much.
#[test]
fn a_checkpoint_that_is_shorter_than_its_root_says_is_damaged() {
    for length in [1 << 44, u64::MAX] {
        let scratch = Scratch::new("store-length");
        filled(scratch.path());
        let path = scratch.path().join("log-00000001/root");
        change_root(&path, |record| record[24..32].copy_from_slice(&u64::to_le_bytes(length)));
        let directory = scratch.path().to_str().unwrap();
        let check = store(&["check", directory]);
        let said = text(&check.stdout);
        assert_eq!(check.status.code(), Some(1), "{said}{}", text(&check.stderr));
        assert!(said.contains("  50 messages can be read\n"), "{said}");
        assert!(said.contains("the checkpoint is missing or damaged"), "{said}");
        let repair = store(&["repair", directory]);
        assert_eq!(repair.status.code(), Some(0), "{}", text(&repair.stderr));
        let check = store(&["check", directory]);
        assert_eq!(check.status.code(), Some(0), "{}", text(&check.stdout));
    }
}

/// Every few bytes of what the log of definitions says, in each form in which a program may show bytes.
fn shown_definitions(data: &Path) -> BTreeSet<String> {
    const BYTES: usize = 6;
    let records = definitions(data).into_iter().map(|(_, _, record)| record);
    let mut shown = BTreeSet::new();
    for record in records {
        for part in record.windows(BYTES) {
            shown.insert(part.escape_ascii().to_string());
            shown.insert(part.iter().map(|byte| format!("{byte:02x}")).collect());
            shown.insert(STANDARD.encode(part));
        }
    }
    shown
}

/// Salts and digests of passwords are among them.
#[test]
fn a_dump_shows_nothing_of_what_definitions_say() {
    let scratch = Scratch::new("store-secrets");
    assert!(Program::start(&scratch, &["--shards", "1"]).stop().0.success());
    let data = scratch.path().join("data");
    let dump = text(&store(&["dump", data.to_str().unwrap()]).stdout);
    assert!(dump.contains("definition of "), "{dump}");
    for part in shown_definitions(&data) {
        assert!(!dump.contains(&part), "{part} in {dump}");
    }
}

#[test]
fn a_wrong_call_says_what_would_be_right() {
    for (words, hint) in [
        (&["chekc", "data"][..], "a similar subcommand exists: 'check'"),
        (&["check"], "Usage: lepus store check <DIR>"),
        (&["dump", "data", "--log", "x"], "invalid value 'x' for '--log <N>'"),
        (&["check", "data", "--to", "b"], "unexpected argument '--to'"),
        (&["check", "data", "--drop"], "unexpected argument '--drop'"),
        (&["damaged", "data", "--move-to", "v/q"], "unexpected argument '--move-to'"),
        (&["orphans", "data", "--drop", "--move-to", "v/q"], "cannot be used with"),
    ] {
        let output = store(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(hint), "{}", text(&output.stderr));
    }
}

/// Declares durable queues, each with one confirmed message.
fn declare(program: &Program, names: &[String]) {
    let mut session = connect(program.amqp);
    assert_eq!(session.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    for name in names {
        session.declare(name);
        session.publish_persistent(1, name, b"x");
        session.flush();
        assert!(matches!(session.see(), Seen::Ack { .. }));
    }
    session.close();
}

/// The opaque records of the definitions log: file, offset of the last byte, and what it says, of which the
/// second byte is the kind.
fn definitions(data: &Path) -> Vec<(PathBuf, usize, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data.join("log-00000000")).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("log-00000000/{}", path.file_name().unwrap().to_str().unwrap());
        let Ok(File::Segment(log, _)) = name.parse() else { continue };
        let bytes = std::fs::read(&path).unwrap();
        let mut records = Vec::new();
        let report = inspect::segment(Keys::none(log), &bytes, |part| {
            if let Part::Record(offset, Content::Opaque(record)) = part {
                records.push((offset as usize + 8 + record.len() - 1, record.to_vec()));
            }
        });
        for (at, record) in records {
            found.push((report.generation, path.clone(), at, record));
        }
    }
    found.sort();
    found.into_iter().map(|(_, path, at, record)| (path, at, record)).collect()
}

/// Ends with all that was confirmed, whichever record of the definitions is hit.
#[test]
fn damaged_definitions_are_repaired_and_no_message_is_lost() {
    const CHANGES: u8 = 1;
    let scratch = Scratch::new("store-definitions");
    let names: Vec<String> = (0..30).map(|number| format!("queue-{number:02}")).collect();
    let words = ["--shards", "1"];
    let program = Program::start(&scratch, &words);
    declare(&program, &names);
    assert!(program.stop().0.success());
    let data = scratch.path().join("data");
    // Enough starts that write something, and a snapshot is made.
    for start in 0.. {
        let program = Program::start(&scratch, &words);
        let mut session = connect(program.amqp);
        session.declare(&format!("empty-{start}"));
        session.close();
        assert!(program.stop().0.success());
        let kinds: Vec<u8> = definitions(&data).iter().map(|(_, _, record)| record[1]).collect();
        if kinds.contains(&4) {
            break;
        }
        assert!(start < 20, "{kinds:?}");
    }
    let program = Program::start(&scratch, &words);
    declare(&program, &["later".to_owned()]);
    assert!(program.stop().0.success());
    for kind in CHANGES..=4 {
        let copy = Scratch::new("store-definitions-copy");
        copy_files(&data, &copy.path().join("data"));
        let data = copy.path().join("data");
        let all = definitions(&data);
        let (path, at, _) = all.iter().rfind(|(_, _, record)| record[1] == kind).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        bytes[*at] ^= 1;
        std::fs::write(path, bytes).unwrap();
        let directory = data.to_str().unwrap();
        let serve = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "none",
            "--management-listen",
            "none",
        ];
        for _ in 0..2 {
            let refused = lepus(&serve).args(["--data-dir", directory]).output().unwrap();
            assert_eq!(refused.status.code(), Some(1), "kind {kind}");
            let said = text(&refused.stderr);
            let file = path.file_name().unwrap().to_str().unwrap();
            assert!(said.contains(file) && said.contains(" bytes at offset "), "{said}");
        }
        let repair = store(&["repair", directory]);
        assert_eq!(repair.status.code(), Some(0), "{}", text(&repair.stderr));
        let said = text(&repair.stdout);
        assert!(said.contains("log-00000000: repaired"), "{said}");
        let is_doubtful = said.contains("whether it is right: queue 'later' in virtual host '/'");
        assert_eq!(is_doubtful, kind == CHANGES, "{said}");
        let program = Program::start(&copy, &words);
        let line = program.wait_for_log("event=recovered");
        assert!(line.contains("with 31 messages found"), "kind {kind}: {line}\n{said}");
        let mut session = connect(program.amqp);
        for name in names.iter().map(String::as_str).chain(["later"]) {
            let passive = queue::Declare { queue: name, passive: true, ..Default::default() };
            assert_eq!(session.call(1, passive), Seen::Method("queue.declare-ok"), "{name}");
        }
        session.close();
        assert!(program.stop().0.success());
        let again = text(&store(&["repair", directory]).stdout);
        assert!(again.contains("log-00000000: no damage"), "{again}");
        let check = store(&["check", directory]);
        let said = text(&check.stdout);
        assert_eq!(check.status.code(), Some(0), "kind {kind}: {said}{}", text(&check.stderr));
        assert!(said.ends_with("no damage\n"), "kind {kind}: {said}");
    }
}

/// Nothing of the definitions is in it, and nothing is lost; the next start must not meet it again.
#[test]
fn a_damaged_header_in_the_definitions_is_gone_after_one_repair() {
    let scratch = Scratch::new("store-definitions-header");
    let words = ["--shards", "1"];
    let program = Program::start(&scratch, &words);
    declare(&program, &["q".to_owned()]);
    assert!(program.stop().0.success());
    let data = scratch.path().join("data");
    let (path, ..) = definitions(&data).pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let directory = data.to_str().unwrap();
    assert_eq!(store(&["check", directory]).status.code(), Some(1));
    let repair = store(&["repair", directory]);
    assert_eq!(repair.status.code(), Some(0), "{}", text(&repair.stderr));
    assert!(text(&repair.stdout).contains("log-00000000: repaired"), "{}", text(&repair.stdout));
    let check = store(&["check", directory]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stdout));
    // With the definitions, also when they were written to again.
    for name in ["later", "and later"] {
        let program = Program::start(&scratch, &words);
        let line = program.wait_for_log("event=recovered");
        assert!(line.contains(" with 1 message found"), "{line}");
        let mut session = connect(program.amqp);
        let passive = queue::Declare { queue: "q", passive: true, ..Default::default() };
        assert_eq!(session.call(1, passive), Seen::Method("queue.declare-ok"));
        session.declare(name);
        session.close();
        assert!(program.stop().0.success());
    }
    assert_eq!(store(&["check", directory]).status.code(), Some(0));
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_files(&path, &target);
        } else if path.is_file() {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn a_repair_of_what_is_whole_changes_no_file() {
    let scratch = Scratch::new("store-repaired-whole");
    filled(scratch.path());
    let image = || {
        let mut files = crate::check::image(scratch.path());
        files.remove(Path::new("lepus.lock"));
        files
    };
    let before = image();
    let repair = store(&["repair", scratch.path().to_str().unwrap()]);
    assert_eq!(repair.status.code(), Some(0), "{}", text(&repair.stderr));
    let said = text(&repair.stdout);
    assert!(said.contains("no damage, 50 messages; nothing was changed"), "{said}");
    assert!(image() == before, "the next start would not see that the last run ended in order");
}

/// Where the system has no means for an operation, a call waits a little and ends.
#[test]
fn a_check_without_file_descriptors_ends_and_says_so() {
    let scratch = Scratch::new("store-few-files");
    let directory = scratch.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    crate::check::filled(&directory, true);
    let program = lepus(&["store", "check", directory.to_str().unwrap()]);
    for files in (4..20).step_by(2) {
        // What it inherits does not count: with four, the loader needs the one behind the usual three.
        let free = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";
        let limited = format!("{free}; ulimit -n {files}; exec timeout 20 \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limited]).arg(program.get_program()).args(program.get_args());
        let output = command.output().unwrap();
        assert_ne!(output.status.code(), Some(124), "{files} descriptors: it never ends");
        let is_told = text(&output.stderr).contains("Too many open files");
        assert!(output.status.success() || is_told, "{files} descriptors: {output:?}");
    }
}
