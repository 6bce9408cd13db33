//! While the broker starts: who asks is answered, and a stop is heard.

use crate::running::{Scratch, Signal, lepus};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

/// An address that nobody uses now.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn who_asks_while_it_starts_is_answered_and_a_stop_is_heard() {
    let scratch = Scratch::new("starting");
    let data = scratch.path().join("data");
    // Reading it waits for a writer that never comes: the start gets no further.
    let endless = scratch.path().join("definitions.json");
    mknodat(CWD, &endless, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (amqp, metrics) = (free_address(), free_address());
    let mut command = lepus(&["serve", "--listen", &amqp.to_string()]);
    command.args(["--metrics-listen", &metrics.to_string(), "--management-listen", "none"]);
    command.arg("--definitions").arg(&endless).arg("--data-dir").arg(&data);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while TcpStream::connect(metrics).is_err() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    let health = get(metrics, "/health");
    assert!(health.starts_with("HTTP/1.1 200 ") && health.contains("starting for "), "{health}");
    for path in ["/ready", "/metrics"] {
        let answer = get(metrics, path);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.ends_with("it reads the definitions\n"), "{answer}");
    }
    let refused = TcpStream::connect(amqp).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // The control socket follows at once.
    while !data.join("control.sock").exists() {
        std::thread::yield_now();
    }
    let order = lepus(&["status", "--data-dir"]).arg(&data).output().unwrap();
    let text = String::from_utf8(order.stderr).unwrap();
    assert!(text.contains("it reads the definitions"), "{text}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(child.wait().unwrap().success(), "{log}");
    let told = "text=\"told to stop while it reads the definitions; nothing is lost\"";
    assert!(log.contains("event=stopped") && log.contains(told), "{log}");
    assert!(!data.join("control.sock").exists());
}
