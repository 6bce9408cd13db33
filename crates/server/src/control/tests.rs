use super::*;
use crate::audit::Audit;
use crate::log::{Format, Level, Log};
use lepus_probe::Scratch;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn handler() -> Arc<Handler> {
    Arc::new(|request: &Value| match request["order"].as_str() {
        Some("echo") => Ok(request["text"].clone()),
        Some("count") => {
            let from = request["from"].as_u64().unwrap_or(0);
            let rows: Vec<Value> = (from..from + 10).map(|n| json!([n])).collect();
            let next = (from < 20).then_some(from + 10);
            Ok(json!({"columns": ["n"], "rows": rows, "next": next}))
        }
        Some("unsorted") => {
            let from = request["from"].as_u64().unwrap_or(0);
            let rows = json!([["b", from], ["a", 9 - from], ["c", 0]]);
            Ok(json!({"columns": ["name", "n"], "rows": rows, "next": (from == 0).then_some(1),
                "sorted_by": 2}))
        }
        // `b` is met twice, as when it moves to a shard that is listed later.
        Some("moving") => {
            let from = request["from"].as_u64().unwrap_or(0);
            let rows = [json!([["b", 0], ["a", 0]]), json!([["c", 1], ["b", 1]])];
            Ok(json!({"columns": ["name", "shard"], "rows": rows[from as usize],
                "next": (from == 0).then_some(1), "sorted_by": 1, "named_by": 1}))
        }
        // The same, with numbers instead of names.
        Some("numbered") => {
            let from = request["from"].as_u64().unwrap_or(0);
            let (rows, order) = [
                (json!([["seven", 0], ["nine", 0]]), json!([7, 9])),
                (json!([["nine", 1], ["eight", 1]]), json!([9, 8])),
            ][from as usize]
                .clone();
            Ok(json!({"columns": ["name", "shard"], "rows": rows, "order": order,
                "next": (from == 0).then_some(1)}))
        }
        _ => Err("no such order".to_owned()),
    })
}

fn audit() -> Audit {
    Audit::in_log(&Log::start(Level::Error, Format::Text, std::io::sink()).unwrap())
}

#[test]
fn an_order_goes_and_its_answer_comes_back() {
    let root = Scratch::new("control");
    let path = root.path().join("control.sock");
    let server = ControlServer::start(&path, handler(), &audit()).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = "line\nbreaks and ö";
    let answer = ask(&path, &json!({"order": "echo", "text": text})).unwrap();
    assert_eq!(answer, json!(text));
    let error = ask(&path, &json!({"order": "what"})).unwrap_err();
    assert_eq!(error.to_string(), "no such order");
    drop(server);
    assert!(!path.exists());
    let error = ask(&path, &json!({"order": "echo"})).unwrap_err();
    assert!(matches!(error, ControlError::NotRunning(..)), "{error}");
}

#[test]
fn a_long_table_comes_in_parts() {
    let root = Scratch::new("control-table");
    let path = root.path().join("control.sock");
    let _server = ControlServer::start(&path, handler(), &audit()).unwrap();
    let table = ask_table(&path, &json!({"order": "count"})).unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 30);
    assert_eq!(table["rows"][29], json!([29]));
    assert_eq!(table.get("next"), None);
}

#[test]
fn rows_whose_order_is_open_are_sorted_when_all_are_there() {
    let root = Scratch::new("control-sorted");
    let path = root.path().join("control.sock");
    let _server = ControlServer::start(&path, handler(), &audit()).unwrap();
    let table = ask_table(&path, &json!({"order": "unsorted"})).unwrap();
    let rows = json!([["a", 8], ["a", 9], ["b", 0], ["b", 1], ["c", 0], ["c", 0]]);
    assert_eq!(table, json!({"columns": ["name", "n"], "rows": rows}));
}

#[test]
fn what_moves_while_it_is_listed_is_told_once_where_it_was_met_last() {
    let root = Scratch::new("control-moving");
    let path = root.path().join("control.sock");
    let _server = ControlServer::start(&path, handler(), &audit()).unwrap();
    let table = ask_table(&path, &json!({"order": "moving"})).unwrap();
    let rows = json!([["a", 0], ["b", 1], ["c", 1]]);
    assert_eq!(table, json!({"columns": ["name", "shard"], "rows": rows}));
    let table = ask_table(&path, &json!({"order": "numbered"})).unwrap();
    assert_eq!(table["rows"], json!([["seven", 0], ["eight", 1], ["nine", 1]]));
}

#[test]
fn many_connections_one_after_another_and_a_left_over_socket() {
    let root = Scratch::new("control-many");
    let path = root.path().join("control.sock");
    // Nobody listens at it any more.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let _server = ControlServer::start(&path, handler(), &audit()).unwrap();
    for n in 0..4 * CONNECTIONS_MAX {
        let answer = ask(&path, &json!({"order": "echo", "text": n})).unwrap();
        assert_eq!(answer, json!(n));
    }
}

#[test]
fn the_socket_of_another_broker_is_neither_taken_nor_removed() {
    let root = Scratch::new("control-two");
    let path = root.path().join("control.sock");
    let first = ControlServer::start(&path, handler(), &audit()).unwrap();
    let text = ControlServer::start(&path, handler(), &audit()).unwrap_err();
    let pid = format!("process id {}", std::process::id());
    assert!(text.contains(&pid) && text.contains("--control-socket"), "{text}");
    assert_eq!(ask(&path, &json!({"order": "echo", "text": 1})).unwrap(), json!(1));
    // Somebody has put another one there.
    std::fs::remove_file(&path).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(first);
    assert!(path.exists());
    // It answers, and its owner takes no lock.
    let text = ControlServer::start(&path, handler(), &audit()).unwrap_err();
    assert!(text.contains("another program"), "{text}");
    drop(other);
    drop(ControlServer::start(&path, handler(), &audit()).unwrap());
    assert!(!path.exists());
}

#[test]
fn every_order_is_told_to_the_log() {
    #[derive(Clone, Default)]
    struct Memory(Arc<std::sync::Mutex<Vec<u8>>>);
    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let root = Scratch::new("control-audit");
    let path = root.path().join("control.sock");
    let memory = Memory::default();
    let log = Log::start(Level::Info, Format::Text, memory.clone()).unwrap();
    let _server = ControlServer::start(&path, handler(), &Audit::in_log(&log)).unwrap();
    ask(&path, &json!({"order": "echo", "text": "a", "password_hash": "c2VjcmV0"})).unwrap();
    ask(&path, &json!({"order": "user delete", "name": "eve"})).unwrap_err();
    // One that only looks, below the level of this log.
    ask(&path, &json!({"order": "user list"})).unwrap_err();
    log.flush(std::time::Duration::from_secs(60));
    let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let uid = rustix::process::getuid().as_raw();
    let who = format!("event=order uid={uid} pid={} ", std::process::id());
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines.iter().all(|line| line.contains(&who)), "{text}");
    assert!(lines[0].ends_with(r#"order=echo text="text=\"a\": done""#), "{text}");
    let refused = r#"order="user delete" text="name=\"eve\": refused: no such order""#;
    assert!(lines[1].ends_with(refused), "{text}");
}

#[test]
fn what_is_no_request_is_answered_and_a_long_line_ends_the_connection() {
    let root = Scratch::new("control-bad");
    let path = root.path().join("control.sock");
    let _server = ControlServer::start(&path, handler(), &audit()).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"{\"order\": }\n").unwrap();
    let long = vec![b'x'; REQUEST_BYTES_MAX as usize];
    stream.write_all(&long).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("not a JSON object"), "{text}");
    assert!(lines[1].contains("at most"), "{text}");
}

#[test]
fn a_path_that_is_too_long_names_the_way_out() {
    let root = Scratch::new("control-long");
    let path = root.path().join("x".repeat(120));
    let text = ControlServer::start(&path, handler(), &audit()).unwrap_err();
    assert!(text.contains("--control-socket"), "{text}");
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced() {
    let root = Scratch::new("control-file");
    for name in ["notes", "other.sock.new"] {
        let file = root.path().join(name);
        std::fs::write(&file, "kept").unwrap();
        let path = root.path().join(name.trim_end_matches(".new"));
        let error = ControlServer::start(&path, handler(), &audit()).unwrap_err();
        assert!(error.contains("which is no socket"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    }
}
