//! What becomes of the store's operations when the process has no file descriptor left. Alone in its
//! program, since the shortage is everybody's.

use std::fs;
use std::sync::Arc;

use lepus_probe::Scratch;
use lepus_reactor::files::{Blocking, Files};
use lepus_store::disk::{Action, Completion, DiskError, File, LogId, Operation, OperationId};

const LOG: LogId = LogId(3);

fn segment(slot: u32) -> File {
    File::Segment(LOG, slot)
}

fn write(slot: u32) -> Action {
    let bytes = Arc::new(vec![slot as u8; 100]);
    Action::Write { file: segment(slot), offset: 0, bytes, start: 0, sync: true }
}

fn read(slot: u32) -> Action {
    Action::Read { file: segment(slot), offset: 0, length: 100 }
}

#[test]
fn without_a_descriptor_nothing_fails_for_good_and_what_is_written_stays_open() {
    let scratch = Scratch::new("none-left");
    let directory = scratch.path().to_owned();
    let files = Files::new(&directory, 0).with_open_max(8);
    let mut files = Blocking::with(Arc::new(files));
    let mut next = 0;
    let mut run = |action: Action| -> Completion {
        next += 1;
        files.run(Operation { id: OperationId(next), action })
    };
    assert_eq!(run(Action::List(LOG)).result, Ok(0));
    for slot in 0..100 {
        assert_eq!(run(write(slot)).result, Ok(100));
    }
    // A backlog is read; the last ones are still written to.
    for slot in 0..90 {
        assert_eq!(run(read(slot)).result, Ok(100));
    }
    let mut taken = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        taken.push(file);
        if taken.len() == 1 {
            // Not all that the system allows has to be opened.
            let used = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
            let lower = rustix::process::Rlimit { current: Some(used + 10), ..limit };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, lower).unwrap();
        }
    }
    // Files that are only read make room for one another, and for others.
    for slot in 0..40 {
        assert_eq!(run(read(slot)).result, Ok(100), "{slot} finds a descriptor");
    }
    // Until others have taken what each of them gave up.
    for _ in 0..8 {
        assert_eq!(run(Action::SyncDirectory(LOG)).result, Ok(0));
        taken.push(fs::File::open("/dev/null").unwrap());
    }
    for action in [
        read(1),
        write(2),
        Action::Sync(segment(3)),
        Action::Create { file: segment(200), length: 4096 },
        Action::SyncDirectory(LOG),
    ] {
        let told = format!("{action:?}");
        assert_eq!(run(action).result, Err(DiskError::Busy), "{told}");
    }
    for slot in 93..100 {
        assert_eq!(run(write(slot)).result, Ok(100), "{slot} is open");
        assert_eq!(run(read(slot)).result, Ok(100), "{slot} is open");
    }
    drop(taken);
    for slot in 0..90 {
        assert_eq!(run(read(slot)).bytes, vec![slot as u8; 100]);
    }
    assert_eq!(run(Action::Create { file: segment(200), length: 4096 }).result, Ok(0));
}
