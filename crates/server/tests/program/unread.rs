//! Messages that the disk does not give are no damaged ones: `lepus store` drops none of them.
#![cfg(target_os = "linux")]

use crate::check::{MESSAGES, filled};
use crate::running::{Scratch, lepus};
use std::path::{Path, PathBuf};
use std::process::Output;

/// Reads of it fail as those of a broken disk do.
const BROKEN: &str = "/proc/self/mem";

fn store(action: &str, data: &Path, words: &[&str]) -> Output {
    lepus(&["store", action, data.to_str().unwrap()]).args(words).output().unwrap()
}

/// The output of a call that ends with this.
fn said(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}{errors}");
    text
}

/// The segment with this message, and where in it.
fn place(data: &Path, seq: u64) -> (PathBuf, usize) {
    let wanted = format!("body {seq:06} ").into_bytes();
    for entry in std::fs::read_dir(data.join("log-00000001")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
            return (path, at);
        }
    }
    panic!("the message is nowhere");
}

/// A data directory with one damaged message, of which a segment cannot be read: that, and where it is now.
fn prepared(scratch: &Scratch) -> (PathBuf, PathBuf, PathBuf) {
    let data = scratch.path().join("data");
    std::fs::create_dir(&data).unwrap();
    filled(&data, true);
    let (path, at) = place(&data, 2000);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (unread, _) = place(&data, 1000);
    assert!(unread != path);
    let kept = scratch.path().join("kept");
    std::fs::rename(&unread, &kept).unwrap();
    std::os::unix::fs::symlink(BROKEN, &unread).unwrap();
    (data, unread, kept)
}

/// The disk gives the segment again: so many messages are there, and all are whole.
fn mended(data: &Path, unread: &Path, kept: &Path) -> String {
    std::fs::remove_file(unread).unwrap();
    std::fs::rename(kept, unread).unwrap();
    String::from_utf8(store("check", data, &[]).stdout).unwrap()
}

#[test]
fn a_repair_in_place_drops_nothing_while_the_disk_does_not_give_all() {
    let scratch = Scratch::new("unread-repair");
    let (data, unread, kept) = prepared(&scratch);
    let refused = said(&store("repair", &data, &[]), 1);
    assert!(refused.contains("log-00000001: not repaired; "), "{refused}");
    assert!(refused.contains("  the disk does not give "), "{refused}");
    assert!(refused.contains("see to the disk, or repair a copy with"), "{refused}");
    let check = mended(&data, &unread, &kept);
    assert!(check.contains(&format!("  {} messages can be read\n", MESSAGES - 1)), "{check}");
    assert!(check.contains("damaged: 1 messages of queue 'q'"), "{check}");
    let repaired = said(&store("repair", &data, &[]), 0);
    assert!(repaired.contains("  lost: 1 messages of queue "), "{repaired}");
    said(&store("check", &data, &[]), 0);
}

#[test]
fn only_what_is_damaged_is_dropped_and_what_the_disk_does_not_give_stays() {
    let scratch = Scratch::new("unread-drop");
    let (data, unread, kept) = prepared(&scratch);
    let dropped = said(&store("damaged", &data, &["--drop"]), 1);
    assert!(dropped.contains("log-00000001: 1 messages dropped\n"), "{dropped}");
    assert!(dropped.contains(" are kept: the disk does not give them"), "{dropped}");
    let check = mended(&data, &unread, &kept);
    assert!(check.contains(&format!("  {} messages can be read\n", MESSAGES - 1)), "{check}");
    assert!(check.ends_with("no damage\n"), "{check}");
}
