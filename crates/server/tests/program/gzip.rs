//! Answers that are shorter for clients that read gzip.

use crate::management::{User, started};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

const GZIP: &str = "Accept-Encoding: gzip\r\n";

/// An answer: the head, and the body without the sizes of its parts.
fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    let login = STANDARD.encode("guest:guest");
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Basic {login}\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let body = answer.split_off(end + 4);
    (String::from_utf8(answer).unwrap().to_ascii_lowercase(), body)
}

fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut text).unwrap();
    text
}

#[test]
fn an_answer_is_gzip_where_the_client_reads_that_and_it_is_not_a_small_one() {
    let (_scratch, program) = started("api-gzip");
    let guest = User::guest(&program);
    let queues: Vec<Value> = (0..6_000)
        .map(|number| json!({"name": format!("a queue {number}"), "vhost": "/", "durable": true}))
        .collect();
    assert_eq!(guest.code("POST", "/definitions", &json!({"queues": queues})).0, 204);
    let is_gzip = |head: &str| head.contains("content-encoding: gzip\r\n");
    // A list of 6,000 is a long one, that of a page comes as a whole, and a file has a tag.
    for path in
        ["/api/queues?columns=name", "/api/queues", "/api/queues?page=1", "/api/definitions"]
    {
        let (plain_head, plain) = ask(program.management, "GET", path, "");
        let (head, body) = ask(program.management, "GET", path, GZIP);
        assert!(!is_gzip(&plain_head) && is_gzip(&head), "{path}: {plain_head}{head}");
        for head in [&plain_head, &head] {
            assert!(head.starts_with("http/1.0 200 "), "{path}: {head}");
            assert!(head.contains("vary: accept-encoding, origin\r\n"), "{path}: {head}");
        }
        assert!(body.len() * 4 < plain.len(), "{path}: {} of {}", body.len(), plain.len());
        let rows = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
        let (found, expected) = (rows(&unzipped(&body)), rows(&plain));
        if path == "/api/queues?columns=name" || path == "/api/definitions" {
            assert!(found == expected, "{path}");
        }
        let length = |rows: &Value| rows.as_array().map(Vec::len);
        assert_eq!(length(&found), length(&expected), "{path}");
    }
    let (head, _) = ask(program.management, "GET", "/api/whoami", GZIP);
    assert!(!is_gzip(&head), "{head}");
    let (head, _) =
        ask(program.management, "GET", "/api/queues", "Accept-Encoding: gzip;q=0, br\r\n");
    assert!(!is_gzip(&head), "{head}");
    // The tag of either form says that nothing has changed.
    for headers in ["", GZIP] {
        let (head, _) = ask(program.management, "GET", "/api/definitions", headers);
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
        assert_eq!(tag.starts_with("w/"), !headers.is_empty());
        let known = format!("{headers}If-None-Match: {}\r\n", tag.to_ascii_uppercase());
        let (head, body) = ask(program.management, "GET", "/api/definitions", &known);
        assert!(head.starts_with("http/1.0 304 ") && !is_gzip(&head), "{head}");
        assert_eq!(body, b"");
    }
    for path in ["/api/queues", "/api/definitions"] {
        let (head, body) = ask(program.management, "HEAD", path, GZIP);
        assert!(head.starts_with("http/1.0 200 ") && body.is_empty(), "{path}: {head}");
    }
}

#[test]
fn pages_of_figures_are_gzip_for_scrapers_that_read_that() {
    let (_scratch, program) = started("metrics-gzip");
    for path in ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics"]
    {
        let (plain_head, plain) = ask(program.metrics, "GET", path, "");
        let (head, body) = ask(program.metrics, "GET", path, GZIP);
        assert!(!plain_head.contains("content-encoding"), "{path}: {plain_head}");
        assert!(head.contains("vary: accept-encoding\r\n"), "{path}: {head}");
        let text = match head.contains("content-encoding: gzip\r\n") {
            true => unzipped(&body),
            false => panic!("{path}: {head}"),
        };
        let names = |text: &[u8]| -> Vec<String> {
            let lines = String::from_utf8(text.to_vec()).unwrap();
            lines.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect()
        };
        assert_eq!(names(&text), names(&plain), "{path}");
        assert!(!names(&text).is_empty(), "{path}");
    }
    let (head, _) = ask(program.metrics, "GET", "/health", GZIP);
    assert!(!head.contains("content-encoding"), "{head}");
}
