//! The whole broker as a program: start-up, orders, metrics, AMQP and the end.

use crate::client::log_in;
use crate::running::{Program, Scratch, lepus};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_starts_serves_and_stops_in_order() {
    let scratch = Scratch::new("serve");
    let program = Program::start(&scratch, &["--shards", "2"]);
    let banner = program.banner.clone();
    assert!(banner.contains("is ready"), "{banner}");
    assert!(banner.contains("2 shards"), "{banner}");
    assert!(
        banner.contains("try: lepus perf throughput --uri amqp://guest:guest@127.0.0.1:"),
        "{banner}"
    );
    log_in(program.amqp, "guest", "guest", "/").unwrap();
    let refused = log_in(program.amqp, "guest", "wrong", "/").unwrap_err();
    assert!(refused.contains(" 403 "), "{refused}");
    let page = get(program.metrics, "/metrics");
    // As in the API: boards and monitors join the two.
    assert!(page.contains("rabbitmq_identity_info{rabbitmq_node=\"rabbit@"), "{page}");
    assert!(page.contains("lepus_shard_cycles_total{shard=\"1\"}"), "{page}");
    assert!(get(program.metrics, "/health").starts_with("HTTP/1.1 200 "));
    assert!(get(program.metrics, "/ready").starts_with("HTTP/1.1 200 "));
    let (status, log) = program.stop();
    assert!(status.success(), "{log}");
    assert!(log.contains("Server startup complete"), "{log}");
    assert!(log.contains("event=stopped"), "{log}");
    // Everything is free again.
    let program = Program::start(&scratch, &["--shards", "1"]);
    log_in(program.amqp, "guest", "guest", "/").unwrap();
}

#[test]
fn a_second_start_on_the_same_data_says_who_has_it() {
    let scratch = Scratch::new("twice");
    let program = Program::start(&scratch, &[]);
    let output = lepus(&["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(scratch.path().join("data"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8(output.stderr).unwrap();
    let pid = format!("process id {}", program.id());
    assert!(complaint.contains(&pid), "{complaint}");
}

#[test]
fn a_port_in_use_is_said_plainly() {
    let scratch = Scratch::new("port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--metrics-listen", "--management-listen"] {
        let mut command = lepus(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "none",
            "--management-listen",
            "none",
            "--data-dir",
        ]);
        let output = command.arg(scratch.path()).args([flag, &address]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let complaint = String::from_utf8(output.stderr).unwrap();
        let port = format!("port {} is in use", taken.local_addr().unwrap().port());
        assert!(complaint.contains(&port) && complaint.contains(flag), "{complaint}");
    }
}

#[test]
fn orders_change_users_vhosts_and_permissions() {
    let scratch = Scratch::new("orders");
    let program = Program::start(&scratch, &["--shards", "2"]);
    let refused = log_in(program.amqp, "shop", "pw", "work").unwrap_err();
    assert!(refused.contains(" 403 "), "{refused}");
    program
        .order(&["user", "add", "shop", "--password", "pw", "--tags", "monitoring,policymaker"])
        .unwrap();
    program.order(&["vhost", "add", "work", "--description", "for work"]).unwrap();
    let refused = log_in(program.amqp, "shop", "pw", "work").unwrap_err();
    assert!(refused.contains(" 530 "), "{refused}");
    program.order(&["permission", "set", "shop", "^a", "", ".*", "--vhost", "work"]).unwrap();
    log_in(program.amqp, "shop", "pw", "work").unwrap();
    let users = program.order(&["user", "list", "--json"]).unwrap();
    let users: serde_json::Value = serde_json::from_str(&users).unwrap();
    assert_eq!(users[1]["name"], "shop");
    assert_eq!(users[1]["tags"], "monitoring, policymaker");
    let permissions = program.order(&["permission", "list"]).unwrap();
    assert!(
        permissions.lines().any(|line| line.split_whitespace().eq(["shop", "work", "^a", ".*"])),
        "{permissions}"
    );
    program.order(&["user", "set-password", "shop", "--password", "other"]).unwrap();
    assert!(log_in(program.amqp, "shop", "pw", "work").is_err());
    log_in(program.amqp, "shop", "other", "work").unwrap();
    let twice = program.order(&["user", "add", "shop", "--password", "x"]).unwrap_err();
    assert!(twice.contains("exists already"), "{twice}");
    let wrong = program.order(&["permission", "set", "shop", "(", ".*", ".*"]).unwrap_err();
    assert!(wrong.contains("lepus: "), "{wrong}");
    program.order(&["permission", "delete", "shop", "--vhost", "work"]).unwrap();
    assert!(log_in(program.amqp, "shop", "other", "work").is_err());
    program.order(&["user", "delete", "shop"]).unwrap();
    program.order(&["vhost", "delete", "work"]).unwrap();
    let gone = program.order(&["vhost", "delete", "work"]).unwrap_err();
    assert!(gone.contains("no virtual host"), "{gone}");
}

#[test]
fn status_and_lists_show_what_there_is() {
    let scratch = Scratch::new("lists");
    let definitions = scratch.path().join("definitions.json");
    let content = r#"{
        "queues": [{"name": "orders", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}},
                   {"name": "mails", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {"x-max-length": 5}}],
        "exchanges": [{"name": "shop", "vhost": "/", "type": "topic", "durable": true, "auto_delete": false, "internal": false, "arguments": {}}],
        "bindings": [{"source": "shop", "vhost": "/", "destination": "orders", "destination_type": "queue", "routing_key": "o.#", "arguments": {}}],
        "policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {"ha-mode": "all"}}]}"#;
    std::fs::write(&definitions, content).unwrap();
    let program = Program::start(
        &scratch,
        &["--shards", "2", "--definitions", definitions.to_str().unwrap()],
    );
    let status = program.order(&["status", "--json"]).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["queues"], 2);
    assert_eq!(status["process_id"], program.id());
    let queues = program.order(&["list", "queues", "--json"]).unwrap();
    let queues: serde_json::Value = serde_json::from_str(&queues).unwrap();
    let names: Vec<&str> =
        queues.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mails", "orders"]);
    assert_eq!(queues[0]["ready"], 0);
    let exchanges = program.order(&["list", "exchanges"]).unwrap();
    assert!(exchanges.contains("shop"), "{exchanges}");
    assert!(exchanges.contains("amq.topic"), "{exchanges}");
    let bindings = program.order(&["list", "bindings"]).unwrap();
    assert_eq!(bindings.lines().count(), 2, "{bindings}");
    assert!(bindings.contains("o.#"), "{bindings}");
    let wrong = program.order(&["list", "queues", "--vhost", "none"]).unwrap_err();
    assert!(wrong.contains("no virtual host"), "{wrong}");
    let connections = program.order(&["list", "connections"]).unwrap();
    assert_eq!(connections.lines().count(), 1, "{connections}");
    let (_, log) = program.stop();
    assert!(log.contains("event=definition-skipped"), "{log}");
}

#[test]
fn a_definitions_file_with_an_error_stops_the_start() {
    let scratch = Scratch::new("definitions");
    let definitions = scratch.path().join("definitions.json");
    std::fs::write(&definitions, r#"{"queues": [{"name": "q", "vhost": "none"}]}"#).unwrap();
    let mut command = lepus(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--metrics-listen",
        "none",
        "--management-listen",
        "none",
    ]);
    command.arg("--data-dir").arg(scratch.path());
    let output = command.arg("--definitions").arg(&definitions).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("definitions.json: queues[0]: "), "{complaint}");
}
