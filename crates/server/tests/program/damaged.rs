//! Messages of which a byte was turned over on the disk: what the broker does with them, and what
//! `lepus store damaged` does on the operator's word.

use crate::check::image;
use crate::running::{Program, Scratch, lepus};
use crate::session::{Seen, Session, connect};
use lepus_amqp::client::encode_publish;
use lepus_amqp::method::{confirm, queue};
use lepus_amqp::properties::PERSISTENT;
use lepus_store::Keys;
use lepus_store::disk::{File, LogId};
use lepus_store::inspect;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Output;

const PROPERTIES: [u8; 3] = [0x10, 0x00, PERSISTENT];
/// Bodies of the messages that are damaged.
const ALONE: &str = "this one is in the queue q alone";
const SHARED: &str = "and this one is in both a and b";

/// Publishes a persistent message and waits for its confirm.
fn publish(session: &mut Session<TcpStream>, exchange: &str, key: &str, body: &str) {
    let mut frames = Vec::new();
    let body = body.as_bytes();
    encode_publish(&mut frames, 1, 131_072, exchange, key, false, &PROPERTIES, body);
    session.send_raw(&frames);
    session.flush();
    assert!(matches!(session.see(), Seen::Ack { .. }));
}

/// A directory with a good and a damaged message in q, and the same in a and b together.
fn prepared(scratch: &Scratch) -> PathBuf {
    let program = Program::start(scratch, &["--shards", "1"]);
    let mut session = connect(program.amqp);
    assert_eq!(session.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    for name in ["q", "a", "b"] {
        session.declare(name);
    }
    for queue in ["a", "b"] {
        let bind = queue::Bind { queue, exchange: "amq.fanout", ..Default::default() };
        assert_eq!(session.call(1, bind), Seen::Method("queue.bind-ok"));
    }
    // The first of each has the names of both in its record.
    for body in ["good", ALONE] {
        publish(&mut session, "", "q", body);
    }
    for body in ["good for both", SHARED] {
        publish(&mut session, "amq.fanout", "", body);
    }
    session.close();
    assert!(program.stop().0.success());
    let data = scratch.path().join("data");
    for body in [ALONE, SHARED] {
        turn_over(&data, body);
    }
    data
}

/// Turns a bit of a body over, or back.
fn turn_over(data: &Path, body: &str) {
    let rest = &body.as_bytes()[1..];
    let mut found = 0;
    let log = data.join("log-00000001");
    for (name, mut bytes) in image(&log) {
        if let Some(at) = bytes.windows(rest.len()).position(|window| window == rest) {
            bytes[at - 1] ^= 1;
            std::fs::write(log.join(name), bytes).unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1, "{body}");
}

fn store(action: &str, data: &Path, words: &[&str]) -> Output {
    lepus(&["store", action, data.to_str().unwrap()]).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Starts a broker; the queues give this, and it counts so many damaged messages, no more and no fewer, when it
/// has read them.
fn serves(scratch: &Scratch, wanted: &[(&str, &[&str])], damaged: u64) {
    let program = Program::start(scratch, &["--shards", "1"]);
    let mut session = connect(program.amqp);
    for (queue, bodies) in wanted {
        session.consume(queue, false);
        for body in *bodies {
            let Seen::Message { body: found, .. } = session.see() else { panic!("no message") };
            assert_eq!(String::from_utf8(found).unwrap(), *body, "{queue}");
        }
    }
    for (queue, _) in wanted {
        let passive = queue::Declare { queue, passive: true, ..Default::default() };
        assert_eq!(session.call(1, passive), Seen::Method("queue.declare-ok"));
    }
    let name = "lepus_store_damaged_messages{shard=\"0\"}";
    program.wait_until("as many damaged messages", |program| program.gauge(name) >= damaged);
    if damaged > 0 {
        program.wait_for_log("event=log-damaged");
    }
    session.close();
    assert_eq!(program.gauge(name), damaged);
    assert!(program.stop().0.success());
}

const GOOD: [(&str, &[&str]); 3] =
    [("q", &["good"]), ("a", &["good for both"]), ("b", &["good for both"])];

/// The raw file's bytes of a line of the index, where the body should be in it.
fn body(export: &Path, line: &serde_json::Value) -> String {
    let record = &line["records"][0];
    let number = |name: &str| usize::try_from(record[name].as_u64().unwrap()).unwrap();
    let raw = std::fs::read(export.join(record["raw"].as_str().unwrap())).unwrap();
    let from = number("raw_offset");
    let raw = &raw[from..from + number("bytes")];
    let start = number("body_offset");
    String::from_utf8(raw[start..start + number("body_bytes")].to_vec()).unwrap()
}

#[test]
fn damaged_messages_are_counted_listed_and_kept_and_those_beside_them_are_delivered() {
    let scratch = Scratch::new("damaged-kept");
    let data = prepared(&scratch);
    // One of q, one of a and one of b; each start meets them anew, since none was settled.
    for _ in 0..2 {
        serves(&scratch, &GOOD, 3);
    }
    let check = store("check", &data, &[]);
    assert_eq!(check.status.code(), Some(1));
    let text = String::from_utf8(check.stdout).unwrap();
    for queue in ["q", "a", "b"] {
        let line = format!("1 messages of queue '{queue}' in virtual host '/'; they are kept");
        assert!(text.contains(&line), "{text}");
    }
    let places =
        text.lines().filter(|line| line.contains("/segment-") && line.contains(" bytes: "));
    assert_eq!(places.count(), 2, "{text}");
    // A disk that was mended has all of it.
    for body in [ALONE, SHARED] {
        turn_over(&data, body);
    }
    let both: &[&str] = &["good for both", SHARED];
    serves(&scratch, &[("q", &["good", ALONE]), ("a", both), ("b", both)], 0);
}

#[test]
fn damaged_messages_are_listed_exported_and_dropped_on_the_operators_word() {
    let scratch = Scratch::new("damaged-dropped");
    let data = prepared(&scratch);
    let before = image(&data.join("log-00000001"));
    let list = said(&store("damaged", &data, &[]));
    assert!(list.ends_with("3 messages of queues are damaged\n"), "{list}");
    assert!(list.contains(" number 1: queue 'q' in virtual host '/'\n"), "{list}");
    assert_eq!(list.matches(" bytes: its checksum is wrong\n").count(), 3, "{list}");
    // That they have their names from is listed beside them.
    assert_eq!(list.matches(" bytes: whole\n").count(), 3, "{list}");
    let export = scratch.path().join("export");
    let words = ["--export", export.to_str().unwrap()];
    let done = said(&store("damaged", &data, &words));
    assert!(done.contains("\nexported to "), "{done}");
    assert!(image(&data.join("log-00000001")) == before, "nothing is written without --drop");

    let index = std::fs::read_to_string(export.join("damaged.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        index.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["q", "a", "b"].map(|name| format!("queue '{name}' in virtual host '/'")));
    // A bit of the first letter is turned over.
    assert_eq!(body(&export, &lines[0])[1..], ALONE[1..]);
    assert_eq!(body(&export, &lines[1])[1..], SHARED[1..]);
    assert_eq!(lines[1]["records"], lines[2]["records"], "it is one record for both queues");
    assert_eq!(lines[1]["records"][0]["exchange"], "amq.fanout");
    let file = lines[0]["records"][0]["file"].as_str().unwrap();
    let at = usize::try_from(lines[0]["records"][0]["offset"].as_u64().unwrap()).unwrap();
    let raw = std::fs::read(export.join(lines[0]["records"][0]["raw"].as_str().unwrap())).unwrap();
    assert_eq!(std::fs::read(data.join(file)).unwrap()[at..at + raw.len()], raw);

    // An export that fails drops nothing and writes over nothing.
    let other = scratch.path().join("other");
    let name = lines[1]["records"][0]["raw"].as_str().unwrap();
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join(name), "of somebody else").unwrap();
    for directory in [&export, &other] {
        let kept = image(&export);
        let words = ["--export", directory.to_str().unwrap(), "--drop"];
        let refused = store("damaged", &data, &words);
        assert_eq!(refused.status.code(), Some(1));
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(text.contains("name another directory"), "{text}");
        assert!(image(&export) == kept && image(&data.join("log-00000001")) == before);
    }
    assert_eq!(std::fs::read_to_string(other.join(name)).unwrap(), "of somebody else");
    let held = lepus_server::data_dir::DataDir::open(&data).unwrap();
    let refused = store("damaged", &data, &["--drop"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("in use"));
    drop(held);

    // Of one queue alone first: the others keep theirs.
    let id = lines[2]["queue"].to_string();
    let done = said(&store("damaged", &data, &["--queue", &id, "--drop"]));
    assert!(
        done.ends_with("1 message of a queue is damaged\nlog-00000001: 1 messages dropped\n"),
        "{done}"
    );
    assert!(said(&store("damaged", &data, &[])).ends_with("2 messages of queues are damaged\n"));
    let done = said(&store("damaged", &data, &["--drop"]));
    assert!(done.ends_with("log-00000001: 2 messages dropped\n"), "{done}");
    assert_eq!(said(&store("damaged", &data, &[])), "no queue has damaged messages\n");
    assert!(said(&store("check", &data, &[])).ends_with("no damage\n"));
    serves(&scratch, &GOOD, 0);
}

/// Messages of a log that nobody has settled, each as often as it is in a queue.
fn live(data: &Path) -> u64 {
    let read = |file: File| std::fs::read(data.join(file.to_string())).unwrap();
    let log = "log-00000001/root".parse().unwrap();
    let File::Root(id) = log else { panic!("a root") };
    let root = inspect::root(&read(log)).valid.unwrap();
    let checkpoint = inspect::checkpoint(&read(File::Checkpoint(id, root.number)), &root).unwrap();
    checkpoint.segments.iter().map(|segment| segment.live).sum()
}

#[test]
fn the_room_of_damaged_messages_comes_free_when_they_are_dropped_and_not_before() {
    let scratch = Scratch::new("damaged-room");
    let data = prepared(&scratch);
    let program = Program::start(&scratch, &["--shards", "1"]);
    let mut session = connect(program.amqp);
    for (queue, _) in GOOD {
        session.consume(queue, true);
        assert!(matches!(session.see(), Seen::Message { .. }));
    }
    session.close();
    assert!(program.stop().0.success());
    assert_eq!(live(&data), 3);
    said(&store("damaged", &data, &["--drop"]));
    assert_eq!(live(&data), 0);
}

#[test]
fn a_whole_message_that_has_its_names_from_a_damaged_one_is_exported_with_both_records() {
    let scratch = Scratch::new("damaged-names");
    let data = prepared(&scratch);
    for body in [ALONE, SHARED] {
        turn_over(&data, body);
    }
    turn_over(&data, "good for both");
    let list = said(&store("damaged", &data, &[]));
    assert!(list.ends_with("4 messages of queues are damaged\n"), "{list}");
    let export = scratch.path().join("export");
    let words = ["--export", export.to_str().unwrap(), "--drop"];
    let done = said(&store("damaged", &data, &words));
    assert!(done.ends_with("log-00000001: 4 messages dropped\n"), "{done}");
    let index = std::fs::read_to_string(export.join("damaged.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(index.lines().last().unwrap()).unwrap();
    assert_eq!(body(&export, &line), SHARED);
    assert_eq!(line["records"][0]["wrong"], serde_json::Value::Null);
    assert_eq!(line["records"][1]["wrong"], "its checksum is wrong");
    assert_eq!(line["records"][1]["exchange"], "amq.fanout");
    let both: &[&str] = &["good", ALONE];
    serves(&scratch, &[("q", both), ("a", &[]), ("b", &[])], 0);
}

/// Segments that are kept for damage, as a broker that runs counts them.
fn segments(program: &Program) -> u64 {
    program.gauge("lepus_store_damaged_segments{shard=\"0\"}")
}

#[test]
fn what_a_start_after_a_kill_cannot_read_any_more_is_kept_until_the_operator_drops_it() {
    let scratch = Scratch::new("damaged-replay");
    let program = Program::start(&scratch, &["--shards", "1"]);
    let mut session = connect(program.amqp);
    assert_eq!(session.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    session.declare("q");
    for body in ["good", ALONE, "good again", "and the last"] {
        publish(&mut session, "", "q", body);
    }
    drop(program);
    let data = scratch.path().join("data");
    turn_over(&data, ALONE);
    // No checkpoint knows the message, so no queue has it; what is in its place stays all the same, also
    // when the rest of its segment is settled and checkpoints follow.
    for start in 0..3 {
        let program = Program::start(&scratch, &["--shards", "1"]);
        let mut session = connect(program.amqp);
        if start == 0 {
            program.wait_for_log("event=log-damaged");
            session.consume("q", true);
            for body in ["good", "good again", "and the last"] {
                let Seen::Message { body: found, .. } = session.see() else { panic!("no message") };
                assert_eq!(String::from_utf8(found).unwrap(), body);
            }
        }
        assert_eq!(segments(&program), 1);
        session.close();
        assert!(program.stop().0.success());
        let check = store("check", &data, &[]);
        assert_eq!(check.status.code(), Some(1));
        let text = String::from_utf8(check.stdout).unwrap();
        assert!(text.contains("an earlier start met damage in it"), "{text}");
    }
    let export = scratch.path().join("export");
    let words = ["--export", export.to_str().unwrap()];
    let done = said(&store("damaged", &data, &words));
    assert!(done.contains("1 segments are kept for damage that no queue knows of"), "{done}");
    let index = std::fs::read_to_string(export.join("damaged.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(&index).unwrap();
    assert_eq!(body(&export, &line)[1..], ALONE[1..]);
    assert_eq!(line["records"][0]["queues"][0][1], 1, "its number in the queue: {line}");
    let done = said(&store("damaged", &data, &["--drop"]));
    assert!(done.ends_with("and what was damaged in 1 segments\n"), "{done}");
    assert!(said(&store("check", &data, &[])).ends_with("no damage\n"));
    let program = Program::start(&scratch, &["--shards", "1"]);
    assert_eq!(segments(&program), 0);
    assert!(program.stop().0.success());
}

#[test]
fn a_repair_lets_go_of_segments_that_were_kept_for_damage() {
    let scratch = Scratch::new("damaged-repair");
    let program = Program::start(&scratch, &["--shards", "1"]);
    let mut session = connect(program.amqp);
    assert_eq!(session.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    session.declare("q");
    for body in ["good", ALONE, "good again", "and the last"] {
        publish(&mut session, "", "q", body);
    }
    drop(program);
    let data = scratch.path().join("data");
    turn_over(&data, ALONE);
    assert!(Program::start(&scratch, &["--shards", "1"]).stop().0.success());
    assert_eq!(store("check", &data, &[]).status.code(), Some(1));
    let repaired = said(&store("repair", &data, &[]));
    assert!(repaired.contains("log-00000001: repaired; 3 messages can be read"), "{repaired}");
    assert!(said(&store("check", &data, &[])).ends_with("no damage\n"));
    let wanted: &[&str] = &["good", "good again", "and the last"];
    serves(&scratch, &[("q", wanted)], 0);
}

#[test]
fn damage_at_the_end_of_a_kept_segment_is_exported_before_it_is_dropped() {
    let scratch = Scratch::new("damaged-tail");
    let words = ["--shards", "1", "--segment-size", "1MiB"];
    let program = Program::start(&scratch, &words);
    let mut session = connect(program.amqp);
    assert_eq!(session.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    session.declare("q");
    let name = |number: usize| format!("<message number {number:03}>");
    for number in 0..30 {
        let body = format!("{}{}", name(number), "x".repeat(100_000 - 7 * number));
        publish(&mut session, "", "q", &body);
    }
    drop(program);
    let data = scratch.path().join("data");
    let log = data.join("log-00000001");
    // The last batch of a segment, with its message: its header is lost, and a byte of the body turned over.
    let (file, mut bytes, at) = image(&log)
        .into_iter()
        .find_map(|(file, bytes)| {
            let has = |number: &usize| {
                let wanted = name(*number).into_bytes();
                bytes.windows(wanted.len()).any(|window| window == wanted)
            };
            let number = (0..30).rev().find(has)?;
            let mut at = None;
            inspect::segment(Keys::none(LogId(1)), &bytes, |part| {
                if let inspect::Part::Batch(batch) = part {
                    at = Some(batch.offset as usize);
                }
            });
            let at = at?;
            (number < 20).then_some((file, bytes, at))
        })
        .unwrap();
    bytes[at..at + 48].fill(0);
    bytes[at + 300] ^= 1;
    let lost = bytes[at + 301..at + 1301].to_vec();
    std::fs::write(log.join(&file), &bytes).unwrap();
    let program = Program::start(&scratch, &words);
    program.wait_for_log("event=log-damaged");
    // The lost message goes on in the next segment.
    assert_eq!(segments(&program), 2);
    assert!(program.stop().0.success());
    let export = scratch.path().join("export");
    let words = ["--export", export.to_str().unwrap(), "--drop"];
    let done = said(&store("damaged", &data, &words));
    assert!(done.ends_with("and what was damaged in 2 segments\n"), "{done}");
    let holds = |bytes: &Vec<u8>| bytes.windows(lost.len()).any(|window| window == lost);
    assert!(image(&export).values().any(holds), "what was dropped is not in the export: {done}");
}

#[test]
fn of_a_kept_segment_that_can_be_read_again_all_is_exported() {
    let scratch = Scratch::new("damaged-again");
    let program = Program::start(&scratch, &["--shards", "1"]);
    let mut session = connect(program.amqp);
    assert_eq!(session.call(1, confirm::Select::default()), Seen::Method("confirm.select-ok"));
    session.declare("q");
    for body in ["good", ALONE, "good again"] {
        publish(&mut session, "", "q", body);
    }
    drop(program);
    let data = scratch.path().join("data");
    turn_over(&data, ALONE);
    assert!(Program::start(&scratch, &["--shards", "1"]).stop().0.success());
    turn_over(&data, ALONE);
    let export = scratch.path().join("export");
    let words = ["--export", export.to_str().unwrap(), "--drop"];
    let done = said(&store("damaged", &data, &words));
    assert!(done.contains("this is all of it"), "{done}");
    let holds =
        |bytes: &Vec<u8>| bytes.windows(ALONE.len()).any(|window| window == ALONE.as_bytes());
    assert!(image(&export).values().any(holds), "what was dropped is not in the export: {done}");
}

/// Clients that know the key of a log can send what looks like its records.
#[test]
fn each_data_directory_has_a_key_that_nobody_can_guess() {
    let keys = |name: &str| {
        let scratch = Scratch::new(name);
        let data = prepared(&scratch);
        [0, 1].map(|number| {
            let log = LogId(number);
            let root = std::fs::read(data.join(File::Root(log).to_string())).unwrap();
            let keys = Keys::of_root(log, &root);
            assert_ne!(keys, Keys::none(log));
            keys
        })
    };
    let (first, second) = (keys("keys-first"), keys("keys-second"));
    assert!(first[0] != second[0] && first[1] != second[1]);
}
