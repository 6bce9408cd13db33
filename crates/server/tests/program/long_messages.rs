//! `lepus store` reads messages that lie in several segments, more of them than are put together at once.

use crate::check::{Running, define};
use crate::running::{Scratch, ended, lepus};
use lepus_base::QueueId;
use std::path::Path;

/// Nobody has this id.
const UNKNOWN: QueueId = QueueId(4711);
const MESSAGES: u64 = 20;
/// Segments of these tests have 64 KiB.
const LENGTH: usize = 150_000;

/// A directory in which the queue q and an unknown one have long messages.
fn prepared(directory: &Path) {
    std::fs::create_dir(directory).unwrap();
    let [queue, ..] = define(directory);
    let mut running = Running::open(directory);
    for queue in [queue, UNKNOWN] {
        running.fill_with(queue, 0..MESSAGES, |_| LENGTH);
    }
    running.close();
}

/// Turns a bit over in the first part of the first message with this number.
fn damage(directory: &Path, number: u64) {
    let start = format!("body {number:06} ").into_bytes();
    let mut paths: Vec<_> = std::fs::read_dir(directory.join("log-00000001"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(start.len()).position(|window| window == start) {
            bytes[at + start.len()] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("the message is nowhere");
}

/// What `lepus store` says, by the status that is wanted.
fn said(words: &[&str], status: i32) -> String {
    let output = ended(&mut lepus(&[&["store"], words].concat()));
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {text}{error}");
    text
}

#[test]
fn every_command_comes_to_the_end_of_many_long_messages() {
    let scratch = Scratch::new("long");
    let data = scratch.path().join("data");
    prepared(&data);
    let [data, copy, export] =
        ["data", "copy", "export"].map(|name| scratch.path().join(name).display().to_string());
    let (data, copy, export) = (data.as_str(), copy.as_str(), export.as_str());
    let check = said(&["check", data], 0);
    assert!(check.contains("  40 messages can be read"), "{check}");
    assert_eq!(said(&["damaged", data], 0), "no queue has damaged messages\n");
    let repair = said(&["repair", data, "--to", copy], 0);
    assert!(repair.contains("no damage, 40 messages; nothing was changed"), "{repair}");

    let exported = said(&["orphans", data, "--export", export], 0);
    assert!(exported.contains("20 messages exported\n"), "{exported}");
    let text = std::fs::read_to_string(export).unwrap();
    assert_eq!(text.lines().count() as u64, MESSAGES);
    assert!(text.lines().all(|line| line.len() > LENGTH / 3 * 4));
    let moved = said(&["orphans", data, "--move-to", "v/r"], 0);
    assert!(moved.contains("20 messages moved to queue 'r'\n"), "{moved}");
    let check = said(&["check", data], 0);
    assert!(check.contains("  40 messages can be read"), "{check}");
    assert!(check.ends_with("no damage\n"), "{check}");
}

#[test]
fn every_command_comes_to_the_end_of_long_messages_of_which_one_is_damaged() {
    let scratch = Scratch::new("long-damaged");
    let data = scratch.path().join("data");
    prepared(&data);
    damage(&data, MESSAGES / 2);
    let [data, copy] = ["data", "copy"].map(|name| scratch.path().join(name).display().to_string());
    let (data, copy) = (data.as_str(), copy.as_str());
    let check = said(&["check", data], 1);
    assert!(check.contains("  39 messages can be read"), "{check}");
    let repair = said(&["repair", data, "--to", copy], 0);
    assert!(repair.contains("repaired; 39 messages can be read"), "{repair}");
    let dropped = said(&["damaged", data, "--drop"], 0);
    assert!(dropped.contains("1 message of a queue is damaged\n"), "{dropped}");
    for directory in [data, copy] {
        let check = said(&["check", directory], 0);
        assert!(check.contains("  39 messages can be read"), "{check}");
    }
}
