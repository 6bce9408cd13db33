//! The store's operations on real files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lepus_probe::Scratch;
use lepus_reactor::files::{Blocking, Disk, FilePort, Files};
use lepus_store::disk::{Action, Completion, DiskError, File, LogId, Operation, OperationId};

const LOG: LogId = LogId(3);
const SEGMENT: File = File::Segment(LOG, 7);
const INDEX: File = File::Index(LOG);
const PATIENCE: Duration = Duration::from_secs(60);

fn file_of(scratch: &Scratch, file: File) -> PathBuf {
    scratch.path().join(file.to_string())
}

/// Carries operations out and counts their ids.
struct Caller {
    files: Blocking,
    next: u64,
}

impl Caller {
    /// With the log's directory made.
    fn new(directory: &Path) -> Caller {
        let mut caller = Caller { files: Blocking::new(directory), next: 0 };
        assert_eq!(caller.run(Action::List(LOG)).result, Ok(0));
        caller
    }

    fn run(&mut self, action: Action) -> Completion {
        self.next += 1;
        let id = OperationId(self.next);
        let completion = self.files.run(Operation { id, action });
        assert_eq!(completion.id, id);
        completion
    }

    fn last_failure(&self) -> String {
        self.files.failures().last().unwrap().to_string()
    }
}

fn write(file: File, offset: u64, bytes: &[u8], sync: bool) -> Action {
    Action::Write { file, offset, bytes: Arc::new(bytes.to_vec()), start: 0, sync }
}

fn read(file: File, offset: u64, length: usize) -> Action {
    Action::Read { file, offset, length }
}

#[test]
fn files_are_listed_with_their_lengths_and_are_the_owners_alone() {
    let scratch = Scratch::new("files");
    let mut caller = Caller::new(scratch.path());
    assert_eq!(caller.run(Action::Create { file: SEGMENT, length: 70_000 }).result, Ok(0));
    assert_eq!(caller.run(write(INDEX, 4096, &[1; 4096], true)).result, Ok(4096));
    fs::write(scratch.path().join("log-00000003/notes.txt"), "not ours").unwrap();
    fs::write(scratch.path().join("lepus.lock"), "").unwrap();
    let mut listed = caller.run(Action::List(LOG)).files;
    listed.sort();
    assert_eq!(listed, [(SEGMENT, 70_000), (INDEX, 8192)]);
    assert!(caller.run(Action::List(LogId(4))).files.is_empty());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file_of(&scratch, SEGMENT)), 0o600);
    assert_eq!(mode(&file_of(&scratch, INDEX)), 0o600);
    assert_eq!(mode(&scratch.path().join("log-00000003")), 0o700);
}

#[test]
fn a_created_file_is_zeros_with_blocks_of_its_own_whatever_was_there() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new("files");
    let mut caller = Caller::new(scratch.path());
    caller.run(write(SEGMENT, 0, &[9; 200_000], false));
    assert_eq!(caller.run(Action::Create { file: SEGMENT, length: 100_000 }).result, Ok(0));
    let found = fs::read(file_of(&scratch, SEGMENT)).unwrap();
    assert!(found.len() == 100_000 && found.iter().all(|byte| *byte == 0));
    let blocks = fs::metadata(file_of(&scratch, SEGMENT)).unwrap().blocks();
    assert!(blocks * 512 >= 100_000, "{blocks} blocks");
}

#[test]
fn what_is_written_is_read_at_its_place() {
    let scratch = Scratch::new("files");
    let mut caller = Caller::new(scratch.path());
    let bytes = Arc::new(b"..hello".to_vec());
    let action = Action::Write { file: INDEX, offset: 10, bytes, start: 2, sync: false };
    assert_eq!(caller.run(action).result, Ok(5));
    assert_eq!(caller.run(Action::Sync(INDEX)).result, Ok(0));
    assert_eq!(caller.run(Action::Reload(INDEX)).result, Ok(0));
    let found = caller.run(read(INDEX, 9, 4));
    assert_eq!((found.result, found.bytes.as_slice()), (Ok(4), &b"\0hel"[..]));
    let short = caller.run(read(INDEX, 12, 100));
    assert_eq!((short.result, short.bytes.as_slice()), (Ok(3), &b"llo"[..]));
    assert_eq!(caller.run(read(INDEX, 500, 10)).result, Ok(0));
    assert_eq!(caller.run(Action::SyncDirectory(LOG)).result, Ok(0));
}

#[test]
fn a_file_is_cut_and_never_made_longer() {
    let scratch = Scratch::new("files");
    let mut caller = Caller::new(scratch.path());
    let cut = |length| Action::Truncate { file: INDEX, length };
    assert_eq!(caller.run(cut(3)).result, Ok(0), "it is no error if it is missing");
    assert_eq!(caller.run(read(INDEX, 0, 9)).result, Err(DiskError::NotFound));
    caller.run(write(INDEX, 0, b"index", false));
    for (length, left) in [(9, &b"index"[..]), (3, &b"ind"[..])] {
        assert_eq!(caller.run(cut(length)).result, Ok(0));
        assert_eq!(caller.run(read(INDEX, 0, 9)).bytes.as_slice(), left);
    }
}

#[test]
fn a_removed_file_is_gone_also_where_it_was_open() {
    let scratch = Scratch::new("files");
    let mut caller = Caller::new(scratch.path());
    caller.run(write(SEGMENT, 0, b"old", true));
    assert_eq!(caller.run(Action::Delete(SEGMENT)).result, Ok(0));
    assert_eq!(
        caller.run(Action::Delete(SEGMENT)).result,
        Ok(0),
        "it is no error if it is missing"
    );
    assert_eq!(caller.run(read(SEGMENT, 0, 3)).result, Err(DiskError::NotFound));
    assert_eq!(caller.run(Action::Sync(SEGMENT)).result, Err(DiskError::NotFound));
    assert_eq!(caller.run(Action::Reload(SEGMENT)).result, Err(DiskError::NotFound));
    assert!(caller.files.failures().is_empty(), "ordinary for a store");
    caller.run(write(SEGMENT, 0, b"new", true));
    assert_eq!(fs::read(file_of(&scratch, SEGMENT)).unwrap(), b"new");
}

#[test]
fn a_full_disk_is_told_apart() {
    let scratch = Scratch::new("files");
    let mut caller = Caller::new(scratch.path());
    symlink("/dev/full", file_of(&scratch, INDEX)).unwrap();
    assert_eq!(caller.run(write(INDEX, 0, b"x", true)).result, Err(DiskError::Full));
    assert!(caller.files.failures().is_empty());
}

#[test]
fn a_new_segment_leaves_the_rest_of_the_disk_free() {
    let scratch = Scratch::new("files");
    Caller::new(scratch.path());
    let files = Arc::new(Files::new(scratch.path(), u64::MAX / 2));
    let mut caller = Caller { files: Blocking::with(files), next: 0 };
    let create = Action::Create { file: SEGMENT, length: 4096 };
    assert_eq!(caller.run(create).result, Err(DiskError::Full));
    assert!(!file_of(&scratch, SEGMENT).exists());
    // What makes room again goes on.
    assert_eq!(caller.run(write(File::Checkpoint(LOG, 1), 0, b"x", true)).result, Ok(1));
}

#[test]
fn a_failure_names_the_file_and_what_the_system_said() {
    let scratch = Scratch::new("files");
    let mut caller = Caller::new(scratch.path());
    fs::create_dir(file_of(&scratch, SEGMENT)).unwrap();
    assert_eq!(caller.run(read(SEGMENT, 8192, 10)).result, Err(DiskError::Failed));
    let text = caller.last_failure();
    let path = file_of(&scratch, SEGMENT).display().to_string();
    assert!(text.contains("cannot read 10 bytes at 8192 of ") && text.contains(&path), "{text}");
    assert!(text.contains("directory"), "{text}");
    assert_eq!(caller.run(Action::Delete(SEGMENT)).result, Err(DiskError::Failed));
    let create = Action::Create { file: SEGMENT, length: 1 };
    assert_eq!(caller.run(create).result, Err(DiskError::Failed));
    assert!(caller.last_failure().contains("cannot create"), "{}", caller.last_failure());
}

#[test]
fn a_sync_that_fails_is_never_taken_for_a_full_disk() {
    let scratch = Scratch::new("files");
    let mut caller = Caller::new(scratch.path());
    // A device takes the bytes and cannot be synced.
    symlink("/dev/null", file_of(&scratch, INDEX)).unwrap();
    assert_eq!(caller.run(write(INDEX, 0, b"x", false)).result, Ok(1));
    assert_eq!(caller.run(write(INDEX, 0, b"x", true)).result, Err(DiskError::Failed));
    assert!(caller.last_failure().contains("and sync it"), "{}", caller.last_failure());
    assert_eq!(caller.run(Action::Sync(INDEX)).result, Err(DiskError::Failed));
    let missing = caller.run(Action::SyncDirectory(LogId(9)));
    assert_eq!(missing.result, Err(DiskError::Failed));
}

/// A port whose wakes arrive in a channel.
fn port(scratch: &Scratch) -> (FilePort, Receiver<()>) {
    Caller::new(scratch.path());
    let (wake, woken) = channel();
    let files = Arc::new(Files::new(scratch.path(), 0));
    let port = FilePort::start("test", &files, move || {
        // The test may have ended.
        let _ = wake.send(());
    });
    (port.unwrap(), woken)
}

/// Waits until `count` operations have ended.
fn gather(port: &mut FilePort, woken: &Receiver<()>, count: usize) -> Vec<(LogId, Completion)> {
    let mut done = Vec::new();
    while done.len() < count {
        woken.recv_timeout(PATIENCE).unwrap();
        port.take(&mut done);
    }
    done
}

#[test]
fn a_port_answers_every_operation_once_and_names_its_log() {
    let scratch = Scratch::new("files");
    let (mut port, woken) = port(&scratch);
    let mut next = 0;
    for round in 0..50 {
        let mut operations: Vec<Operation> = Vec::new();
        let mut ask = |action| {
            next += 1;
            operations.push(Operation { id: OperationId(next), action });
        };
        ask(write(SEGMENT, round * 100, &[round as u8; 100], round % 2 == 0));
        ask(read(INDEX, 0, 10));
        ask(write(File::Index(LogId(9)), 0, b"no directory", false));
        ask(Action::Create { file: File::Segment(LOG, 100 + round as u32), length: 5000 });
        ask(Action::List(LogId(9)));
        ask(Action::Delete(File::Checkpoint(LOG, round)));
        let first = next - 5;
        port.submit(&mut operations);
        assert!(operations.is_empty());
        assert_eq!(port.in_flight(), 6);
        let mut done = gather(&mut port, &woken, 6);
        assert_eq!(port.in_flight(), 0);
        done.sort_by_key(|(_, completion)| completion.id);
        let ids: Vec<u64> = done.iter().map(|(_, completion)| completion.id.0).collect();
        assert_eq!(ids, Vec::from_iter(first..first + 6));
        let logs: Vec<u32> = done.iter().map(|(log, _)| log.0).collect();
        assert_eq!(logs, [3, 3, 9, 3, 9, 3]);
        assert_eq!(done[0].1.result, Ok(100));
    }
    let found = fs::read(file_of(&scratch, SEGMENT)).unwrap();
    assert!(found.chunks(100).enumerate().all(|(round, part)| part == [round as u8; 100]));
    // The directory of log 9 was missing in the first round.
    let mut failures = Vec::new();
    port.take_failures(&mut failures);
    assert!(failures.iter().all(|failure| failure.attempt.contains("log-00000009")));
}

#[test]
fn one_wake_stands_for_all_that_ended_since_the_last_look() {
    let scratch = Scratch::new("files");
    Caller::new(scratch.path());
    let wakes = Arc::new(AtomicUsize::new(0));
    let files = Arc::new(Files::new(scratch.path(), 0));
    let counter = Arc::clone(&wakes);
    let started = FilePort::start("test", &files, move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let mut port = started.unwrap();
    let ask = |id| Operation { id: OperationId(id), action: read(SEGMENT, 0, 1) };
    port.submit(&mut (0..100).map(ask).collect());
    // Dropping waits for the threads; the answers nobody took caused one wake.
    drop(port);
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
}

#[test]
fn what_was_submitted_is_carried_out_before_a_port_ends() {
    let scratch = Scratch::new("files");
    let (mut port, _woken) = port(&scratch);
    let ask = |id: u64| Operation { id: OperationId(id), action: write(SEGMENT, id, b"x", true) };
    port.submit(&mut (0..20).map(ask).collect());
    drop(port);
    assert_eq!(fs::read(file_of(&scratch, SEGMENT)).unwrap(), [b'x'; 20]);
}
