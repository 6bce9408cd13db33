//! What the management API and the metrics tell of messages, by exchange, channel and virtual host.

use crate::management::User;
use crate::metrics::page;
use crate::running::{Program, Scratch};
use crate::session::{Seen, Session, connect};
use lepus_amqp::client::encode_publish;
use lepus_amqp::method::basic;
use serde_json::{Value, json};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn started(name: &str) -> (Scratch, Program) {
    let scratch = Scratch::new(name);
    let program = Program::start(&scratch, &["--shards", "2"]);
    (scratch, program)
}

fn publish(session: &mut Session<TcpStream>, exchange: &str, key: &str, count: usize) {
    let mut frames = Vec::new();
    for _ in 0..count {
        encode_publish(&mut frames, 1, 131_072, exchange, key, false, &[0, 0], b"body");
    }
    session.send_raw(&frames);
    session.flush();
}

/// The row of a list with this name.
fn row(list: &Value, name: &str) -> Value {
    let mut rows = list.as_array().expect("a list").iter();
    rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}")).clone()
}

/// A name as it stands in a path.
fn escaped(name: &Value) -> String {
    name.as_str().unwrap().replace(' ', "%20").replace('>', "%3E")
}

/// Asks for a path until what it tells is as wanted.
fn wait_for(
    guest: &User,
    path: &str,
    is_wanted: impl Fn(&Value) -> bool,
    mut meanwhile: impl FnMut(),
) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let told = guest.get(path);
        if is_wanted(&told) {
            return told;
        }
        assert!(Instant::now() < deadline, "{path} tells {told}");
        meanwhile();
        std::thread::yield_now();
    }
}

/// A rate by its way through a row.
fn rate(row: &Value, pointer: &str) -> f64 {
    let found = row.pointer(&format!("{pointer}_details/rate"));
    found.and_then(Value::as_f64).unwrap_or_else(|| panic!("no rate of {pointer} in {row}"))
}

#[test]
fn an_exchange_tells_its_messages_and_their_rates() {
    let (_scratch, program) = started("counts-exchange");
    let guest = User::guest(&program);
    let mut session = connect(program.amqp);
    for queue in ["a", "b"] {
        session.declare(queue);
        let path = format!("/bindings/%2F/e/amq.fanout/q/{queue}");
        assert_eq!(guest.code("POST", &path, &json!({"routing_key": ""})).0, 201);
    }
    assert_eq!(row(&guest.get("/exchanges"), "amq.fanout").get("message_stats"), None);
    let idle = guest.get("/exchanges/%2F/amq.fanout?msg_rates_age=60&msg_rates_incr=5");
    let stats = &idle["message_stats"];
    assert_eq!((&stats["publish_in"], &stats["publish_out"]), (&json!(0), &json!(0)));
    assert_eq!(stats["publish_in_details"]["samples"].as_array().map(Vec::len), Some(13));
    publish(&mut session, "amq.fanout", "", 10);
    publish(&mut session, "amq.direct", "nowhere", 3);
    guest.publish("a", "by HTTP");
    let path = "/exchanges/%2F/amq.fanout";
    wait_for(&guest, path, |row| row["message_stats"]["publish_out"] == 20, || ());
    let listed = guest.get("/exchanges/%2F");
    let stats = |name: &str| row(&listed, name)["message_stats"].clone();
    let in_and_out =
        |name: &str| (stats(name)["publish_in"].clone(), stats(name)["publish_out"].clone());
    assert_eq!(in_and_out("amq.fanout"), (json!(10), json!(20)));
    assert_eq!(in_and_out("amq.direct"), (json!(3), json!(0)));
    assert_eq!(in_and_out(""), (json!(1), json!(1)));
    assert_eq!(stats("amq.topic"), Value::Null);
    let rates = |is_wanted: fn(f64) -> bool| {
        move |row: &Value| {
            ["/message_stats/publish_in", "/message_stats/publish_out"]
                .iter()
                .all(|way| is_wanted(rate(row, way)))
        }
    };
    let more = || publish(&mut session, "amq.fanout", "", 1);
    wait_for(&guest, path, rates(|rate| rate > 0.0), more);
    wait_for(&guest, path, rates(|rate| rate == 0.0), || ());
    let metrics = page(&program, "/metrics/detailed?family=exchange_metrics");
    let line = "rabbitmq_detailed_exchange_messages_unroutable_dropped_total{vhost=\"/\",exchange=\"amq.direct\"} 3";
    assert!(metrics.contains(line), "{metrics}");
    // Another one of that name begins at nothing.
    guest.put("/exchanges/%2F/mine", json!({"type": "fanout"}));
    publish(&mut session, "mine", "", 2);
    let path = "/exchanges/%2F/mine";
    wait_for(&guest, path, |row| row["message_stats"]["publish_in"] == 2, || ());
    assert_eq!(guest.delete(path), 204);
    guest.put(path, json!({"type": "fanout"}));
    assert_eq!(guest.get(path)["message_stats"]["publish_in"], 0);
    session.close();
}

#[test]
fn a_channel_tells_its_messages_their_rates_and_its_consumers() {
    let (_scratch, program) = started("counts-channel");
    let guest = User::guest(&program);
    let mut session = connect(program.amqp);
    session.declare("q");
    let own = || guest.get("/channels").as_array().unwrap()[0].clone();
    assert_eq!(own().get("message_stats"), None);
    let path = format!("/channels/{}", escaped(&own()["name"]));
    let idle = guest.get(&path);
    let keys = idle["message_stats"].as_object().expect("counts of a single channel").len();
    assert_eq!((keys, &idle["consumer_details"]), (24, &json!([])));
    publish(&mut session, "", "q", 5);
    publish(&mut session, "", "nowhere", 2);
    assert_eq!(
        session.call(1, basic::Get { queue: "q", no_ack: false }),
        Seen::Method("basic.get-ok")
    );
    assert_eq!(
        session.call(1, basic::Get { queue: "q", no_ack: true }),
        Seen::Method("basic.get-ok")
    );
    session.consume("q", true);
    for tag in 3..6 {
        assert_eq!(session.see(), Seen::Message { tag, body: b"body".to_vec() });
    }
    session.send(1, basic::Ack { delivery_tag: 1, multiple: false });
    session.flush();
    let told = wait_for(&guest, &path, |row| row["message_stats"]["ack"] == 1, || ());
    for (name, count) in [
        ("publish", 7),
        ("confirm", 0),
        ("return_unroutable", 0),
        ("drop_unroutable", 2),
        ("get", 1),
        ("get_no_ack", 1),
        ("get_empty", 0),
        ("deliver", 0),
        ("deliver_no_ack", 3),
        ("deliver_get", 5),
        ("redeliver", 0),
    ] {
        assert_eq!(told["message_stats"][name], count, "{name} of {told}");
    }
    let consumers = told["consumer_details"].as_array().expect("a list");
    assert_eq!(consumers.len(), 1, "{told}");
    assert_eq!(consumers[0]["queue"], json!({"name": "q", "vhost": "/"}));
    assert_eq!(own()["message_stats"]["publish"], 7);
    let more = || publish(&mut session, "", "nowhere", 1);
    wait_for(&guest, &path, |row| rate(row, "/message_stats/publish") > 0.0, more);
    let metrics = page(&program, "/metrics/detailed?family=channel_queue_metrics");
    let line = format!(
        "rabbitmq_detailed_channel_messages_acked_total{{channel=\"{}\"}} 1",
        own()["name"].as_str().unwrap()
    );
    assert!(metrics.contains(&line), "{line} in {metrics}");
    session.close();
}

#[test]
fn a_virtual_host_tells_its_messages_octets_and_lengths() {
    let (_scratch, program) = started("counts-vhost");
    let guest = User::guest(&program);
    guest.put("/vhosts/idle", Value::Null);
    let mut session = connect(program.amqp);
    session.declare("q");
    publish(&mut session, "", "q", 5);
    let path = "/vhosts/%2F?lengths_age=60&lengths_incr=5&data_rates_age=60&data_rates_incr=10";
    let told = wait_for(&guest, path, |row| row["message_stats"]["publish"] == 5, || ());
    assert_eq!(told["messages_details"]["samples"].as_array().map(Vec::len), Some(13));
    assert_eq!(told["recv_oct_details"]["samples"].as_array().map(Vec::len), Some(7));
    assert_eq!(
        session.call(1, basic::Get { queue: "q", no_ack: false }),
        Seen::Method("basic.get-ok")
    );
    let told = wait_for(&guest, path, |row| row["messages_unacknowledged"] == 1, || ());
    assert_eq!((&told["messages"], &told["messages_ready"]), (&json!(5), &json!(4)));
    assert_eq!(told["message_stats"]["get"], 1);
    let all = guest.get("/vhosts");
    assert_eq!(row(&all, "/")["message_stats"]["deliver_get"], 1);
    let idle = row(&all, "idle");
    assert_eq!(
        (&idle["messages"], &idle["recv_oct"], idle.get("message_stats")),
        (&json!(0), &json!(0), None)
    );
    assert_eq!(guest.get("/vhosts/idle")["message_stats"]["publish"], 0);
    let ways = ["/message_stats/publish", "/recv_oct", "/messages_ready"];
    let grows = |row: &Value| ways.iter().all(|way| rate(row, way) > 0.0);
    wait_for(&guest, path, grows, || publish(&mut session, "", "q", 1));
    let octets = guest.get(path)["recv_oct"].as_u64().expect("octets");
    session.close();
    // What a connection did stays, also when it is gone.
    wait_for(&guest, "/connections", |list| list == &json!([]), || ());
    assert!(guest.get(path)["recv_oct"].as_u64().expect("octets") >= octets);
    assert!(guest.get(path)["message_stats"]["publish"].as_u64() >= Some(5));
}
