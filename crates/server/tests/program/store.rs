//! `lepus store` on directories that were damaged.

use crate::running::{Scratch, lepus};
use lepus_base::{Now, QueueId};
use lepus_reactor::files::Blocking;
use lepus_store::disk::{LogId, Operations};
use lepus_store::{Lane, Message, Place, Settings, Store};
use std::path::{Path, PathBuf};
use std::process::Output;

const MESSAGES: u64 = 50;

/// A log with messages in one queue, stopped in order.
fn filled(directory: &Path) {
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
    drop(held);
    let repair = store(&["repair", scratch.path().to_str().unwrap()]);
    assert_eq!(repair.status.code(), Some(0), "{}", text(&repair.stderr));
    assert!(text(&repair.stderr).contains("--to COPY"), "{}", text(&repair.stderr));
    assert!(text(&repair.stdout).contains("nothing was changed"), "{}", text(&repair.stdout));
}

#[test]
fn a_wrong_call_says_what_would_be_right() {
    for (words, hint) in [
        (&["chekc", "data"][..], "did you mean `lepus store check`?"),
        (&["check"], "usage: lepus store check DIR"),
        (&["dump", "data", "--log", "x"], "--log takes a number"),
        (&["check", "data", "--to", "b"], "--to belongs to `lepus store repair`"),
    ] {
        let output = store(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(hint), "{}", text(&output.stderr));
    }
}
