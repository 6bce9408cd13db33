//! `lepus store orphans`: messages whose queue nobody knows are listed, moved, exported and dropped.

use crate::check::{Running, define};
use crate::running::{Scratch, lepus};
use lepus_base::QueueId;
use lepus_store::{Entry, Fetch, Lane, Lookup};
use std::path::{Path, PathBuf};
use std::process::Output;

/// Nobody has this id.
const UNKNOWN: QueueId = QueueId(4711);

/// A directory in which the queue q has messages 0 to 9, and an unknown one has 0 to 299.
fn prepared(scratch: &Scratch) -> PathBuf {
    let directory = scratch.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    let [queue, ..] = define(&directory);
    let mut running = Running::open(&directory);
    running.fill(queue, 0..10);
    running.fill(UNKNOWN, 0..300);
    running.close();
    directory
}

fn orphans(directory: &Path, words: &[&str]) -> Output {
    let directory = directory.to_str().unwrap();
    lepus(&["store", "orphans", directory]).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Bodies of a queue's messages, in order; `None` for what cannot be read.
fn bodies(directory: &Path, queue: QueueId) -> Vec<Option<String>> {
    let mut running = Running::open(directory);
    let mut entries: Vec<Entry> = Vec::new();
    let lane = running.store.lane(Lane::of(queue));
    while !running.store.is_fetched(lane) {
        if running.store.fetch(lane, 100, &mut entries, &mut running.out) == Fetch::Pending {
            running.carry_out();
        }
    }
    let mut bodies = Vec::new();
    for entry in entries {
        bodies.push(loop {
            let found = running.store.lookup(entry.position, &mut running.out);
            match found {
                Lookup::Found(found) => {
                    break Some(String::from_utf8(found.body.to_vec()).unwrap());
                }
                Lookup::Lost => break None,
                Lookup::Pending => running.carry_out(),
            }
        });
    }
    bodies
}

fn number(body: &Option<String>) -> u64 {
    body.as_ref().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Turns a bit over behind these bytes of a message's body, wherever it lies.
fn turn_over(directory: &Path, body: &[u8]) {
    for entry in std::fs::read_dir(directory.join("log-00000001")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(body.len()).position(|window| window == body) {
            bytes[at + body.len()] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn orphans_are_listed_and_moved_behind_the_messages_of_a_queue() {
    let scratch = Scratch::new("orphans-moved");
    let directory = prepared(&scratch);
    let list = said(&orphans(&directory, &[]));
    assert!(list.starts_with("log-00000001 queue 4711: 300 messages, "), "{list}");
    let check = lepus(&["store", "check", directory.to_str().unwrap()]).output().unwrap();
    let check = said(&check);
    assert!(check.contains("note: 300 messages are of queues that the def"), "{check}");
    assert!(check.ends_with("no damage\n"), "{check}");
    let wrong = orphans(&directory, &["--move-to", "v/none"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("there is no queue v/none"));

    let moved = said(&orphans(&directory, &["--move-to", "v/q"]));
    assert!(moved.contains("300 messages moved to queue 'q'"), "{moved}");
    let numbers = |directory: &Path, queue| -> Vec<u64> {
        bodies(directory, queue).iter().map(number).collect()
    };
    let queue = lepus_server::definitions::Definitions::open(&directory, 1).unwrap();
    let found = queue.directory();
    let id = found.queue(found.vhost("v").unwrap(), "q").unwrap().id;
    let wanted: Vec<u64> = (0..10).chain(0..300).collect();
    assert_eq!(numbers(&directory, id), wanted);
    assert_eq!(bodies(&directory, UNKNOWN).len(), 0);
    assert_eq!(said(&orphans(&directory, &[])), "no orphaned messages\n");
}

#[test]
fn orphans_are_exported_and_dropped_and_others_stay() {
    let scratch = Scratch::new("orphans-dropped");
    let directory = prepared(&scratch);
    let file = scratch.path().join("export.json");
    let export = ["--export", file.to_str().unwrap()];
    let other = said(&orphans(&directory, &["--queue", "9", "--drop"]));
    assert_eq!(other, "no orphaned messages\n");
    let done = said(&orphans(&directory, &[&export[..], &["--drop"]].concat()));
    assert!(
        done.contains("300 messages exported") && done.contains("300 messages dropped"),
        "{done}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 300);
    let first = text.lines().next().unwrap();
    // The body is "body 000000 " in base64.
    for part in [r#""body":"Ym9keSAwMDAwMDAg""#, r#""queue":4711"#, r#""number":0"#] {
        assert!(first.contains(part), "{first}");
    }
    assert_eq!(said(&orphans(&directory, &[])), "no orphaned messages\n");
    let check = lepus(&["store", "check", directory.to_str().unwrap()]).output().unwrap();
    assert!(said(&check).contains("  10 messages can be read"));
    // What is exported is not written over.
    assert_eq!(orphans(&directory, &export).status.code(), Some(1));
}

#[test]
fn an_orphan_that_cannot_be_read_stays_until_it_is_dropped() {
    let scratch = Scratch::new("orphans-damaged");
    let directory = prepared(&scratch);
    turn_over(&directory, b"body 000123 ");
    let moved = said(&orphans(&directory, &["--move-to", "v/r"]));
    assert!(moved.contains("299 messages moved"), "{moved}");
    assert!(moved.contains("1 cannot be read and stay"), "{moved}");
    assert!(said(&orphans(&directory, &[])).contains("queue 4711: 1 messages"));
    assert!(said(&orphans(&directory, &["--drop"])).contains("1 messages dropped"));
    assert_eq!(said(&orphans(&directory, &[])), "no orphaned messages\n");
}

#[test]
fn an_orphan_that_cannot_be_exported_stays_when_the_others_are_dropped() {
    let scratch = Scratch::new("orphans-unread");
    let directory = prepared(&scratch);
    turn_over(&directory, b"body 000123 ");
    let file = scratch.path().join("export.json");
    let words = ["--export", file.to_str().unwrap(), "--drop"];
    let done = said(&orphans(&directory, &words));
    assert!(done.contains("299 messages exported; 1 cannot be read"), "{done}");
    assert!(done.contains("299 messages dropped; 1 could not be exported and stay"), "{done}");
    // It may be readable another time.
    turn_over(&directory, b"body 000123 ");
    assert_eq!(number(&bodies(&directory, UNKNOWN)[0]), 123);
    assert!(said(&orphans(&directory, &["--drop"])).contains("1 messages dropped"));
}
