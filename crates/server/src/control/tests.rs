use super::*;
use crate::scratch::Scratch;
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
        _ => Err("no such order".to_owned()),
    })
}

#[test]
fn an_order_goes_and_its_answer_comes_back() {
    let root = Scratch::new("control");
    let path = root.path().join("control.sock");
    let server = ControlServer::start(&path, handler()).unwrap();
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
    let _server = ControlServer::start(&path, handler()).unwrap();
    let table = ask_table(&path, &json!({"order": "count"})).unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 30);
    assert_eq!(table["rows"][29], json!([29]));
    assert_eq!(table.get("next"), None);
}

#[test]
fn rows_whose_order_is_open_are_sorted_when_all_are_there() {
    let root = Scratch::new("control-sorted");
    let path = root.path().join("control.sock");
    let _server = ControlServer::start(&path, handler()).unwrap();
    let table = ask_table(&path, &json!({"order": "unsorted"})).unwrap();
    let rows = json!([["a", 8], ["a", 9], ["b", 0], ["b", 1], ["c", 0], ["c", 0]]);
    assert_eq!(table, json!({"columns": ["name", "n"], "rows": rows}));
}

#[test]
fn many_connections_one_after_another_and_a_left_over_socket() {
    let root = Scratch::new("control-many");
    let path = root.path().join("control.sock");
    std::mem::forget(ControlServer::start(&path, handler()).unwrap());
    let _server = ControlServer::start(&path, handler()).unwrap();
    for n in 0..4 * CONNECTIONS_MAX {
        let answer = ask(&path, &json!({"order": "echo", "text": n})).unwrap();
        assert_eq!(answer, json!(n));
    }
}

#[test]
fn what_is_no_request_is_answered_and_a_long_line_ends_the_connection() {
    let root = Scratch::new("control-bad");
    let path = root.path().join("control.sock");
    let _server = ControlServer::start(&path, handler()).unwrap();
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
    let text = ControlServer::start(&path, handler()).unwrap_err();
    assert!(text.contains("--control-socket"), "{text}");
}
