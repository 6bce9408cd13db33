//! Figures of queues, connections and channels one by one, as RabbitMQ's scrapers ask for them.

use crate::running::{Program, Scratch};
use crate::session::{Seen, connect};
use lepus_amqp::method::queue;
use std::io::{Read, Write};
use std::net::TcpStream;

/// What a path answers: the head, and the body with the sizes of its parts taken out.
fn get(program: &Program, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(program.metrics).unwrap();
    // Without parts that say how long they are.
    let request = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// What the metrics port answers to a path.
pub fn page(program: &Program, path: &str) -> String {
    let (head, body) = get(program, path);
    assert!(head.starts_with("HTTP/1.0 200"), "{path}: {head}\n{body}");
    body
}

fn assert_lines(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|found| found == *line), "{line} in {page}");
    }
}

#[test]
fn a_scraper_sees_every_queue_connection_and_channel() {
    let scratch = Scratch::new("metrics-objects");
    let program = Program::start(&scratch, &["--shards", "2"]);
    let mut session = connect(program.amqp);
    let name = "a \"b\" \\c";
    session.declare(name);
    for number in 0..300 {
        session.declare(&format!("q{number}"));
    }
    let bind =
        queue::Bind { queue: "q0", exchange: "amq.topic", routing_key: "#", ..Default::default() };
    assert_eq!(session.call(1, bind), Seen::Method("queue.bind-ok"));
    session.publish(1, name, b"hello");
    session.publish(1, name, b"again");
    session.consume(name, false);
    for _ in 0..2 {
        assert!(matches!(session.see(), Seen::Message { .. }));
    }
    let queue = r#"{vhost="/",queue="a \"b\" \\c"}"#;
    let page_of = |path: &str| page(&program, path);
    let objects = page_of("/metrics/per-object");
    assert_lines(
        &objects,
        &[
            &format!("rabbitmq_queue_messages_ready{queue} 0"),
            &format!("rabbitmq_queue_messages_unacked{queue} 2"),
            &format!("rabbitmq_queue_messages_bytes{queue} 10"),
            &format!("lepus_queue_messages_published_total{queue} 2"),
            "rabbitmq_queue_messages_ready{vhost=\"/\",queue=\"q299\"} 0",
            "rabbitmq_queue_info{vhost=\"/\",queue=\"q7\",queue_type=\"rabbit_classic_queue\",membership=\"leader\"} 1",
            "rabbitmq_queues 301",
        ],
    );
    assert_eq!(objects.matches("\nrabbitmq_queue_messages{").count(), 301);
    let own = session.stream().local_addr().unwrap();
    let channel = format!("{{channel=\"{own} -> {} (1)\"}}", program.amqp);
    assert_lines(&objects, &[&format!("rabbitmq_channel_messages_unacked{channel} 2")]);
    let detailed = page_of(
        "/metrics/detailed?family=queue_coarse_metrics&family=exchange_bindings&family=vhost_status&vhost=%2F",
    );
    assert_lines(
        &detailed,
        &[
            &format!("rabbitmq_detailed_queue_messages{queue} 2"),
            "rabbitmq_cluster_exchange_bindings{vhost=\"/\",exchange=\"amq.topic\",type=\"topic\"} 1",
            "rabbitmq_cluster_vhost_status{vhost=\"/\"} 1",
        ],
    );
    let other = page_of("/metrics/detailed?family=queue_coarse_metrics&vhost=other");
    assert!(!other.contains("queue=\""), "{other}");
    assert!(other.contains("rabbitmq_endpoint=\"detailed\""), "{other}");
    session.close();
}
