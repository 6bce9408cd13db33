//! Copies of messages for those who trace, switched on over the API.

use crate::management::{User, started};
use serde_json::{Value, json};

/// The copies that are in the queue `trace`, without their bodies.
fn copies(guest: &User) -> Vec<Value> {
    let body = json!({"ackmode": "ack_requeue_false", "count": 100, "encoding": "auto"});
    let answer = guest.send("POST", "/queues/%2F/trace/get", "", &body.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.as_array().unwrap().clone()
}

#[test]
fn a_publish_and_its_delivery_are_seen_while_the_virtual_host_is_traced() {
    let (_scratch, program) = started("firehose");
    let guest = User::guest(&program);
    for queue in ["q", "trace"] {
        guest.put(&format!("/queues/%2F/{queue}"), json!({}));
    }
    let path = "/bindings/%2F/e/amq.rabbitmq.trace/q/trace";
    assert_eq!(guest.code("POST", path, &json!({"routing_key": "#"})).0, 201);
    guest.publish("q", "before");
    guest.put("/vhosts/%2F", json!({"tracing": true}));
    assert_eq!(guest.get("/vhosts/%2F")["tracing"], true);
    guest.publish("q", "traced");
    assert_eq!(guest.take("q", 2), ["before", "traced"]);
    let found = copies(&guest);
    let seen = |copy: &Value| {
        let of = |key: &str| copy[key].as_str().unwrap().to_owned();
        [of("exchange"), of("routing_key"), of("payload")]
    };
    let mut all: Vec<[String; 3]> = found.iter().map(seen).collect();
    all.sort();
    let copy = |key: &str, body: &str| ["amq.rabbitmq.trace", key, body].map(str::to_owned);
    assert_eq!(
        all,
        [copy("deliver.q", "before"), copy("deliver.q", "traced"), copy("publish.", "traced")]
    );
    let node = guest.get("/overview")["node"].clone();
    for copy in &found {
        let headers = &copy["properties"]["headers"];
        assert_eq!(headers["exchange_name"], "");
        assert_eq!(headers["routing_keys"], json!(["q"]));
        assert_eq!((&headers["node"], &headers["vhost"]), (&node, &json!("/")));
        assert_eq!((&headers["user"], &headers["channel"]), (&json!("guest"), &json!(1)));
        assert!(headers["connection"].as_str().unwrap().contains(" -> "));
        let is_publish = copy["routing_key"] == "publish.";
        let queues = if is_publish { json!(["q"]) } else { Value::Null };
        let redelivered = if is_publish { Value::Null } else { json!(0) };
        assert_eq!((&headers["routed_queues"], &headers["redelivered"]), (&queues, &redelivered));
    }
    guest.put("/vhosts/%2F", json!({"tracing": false}));
    guest.publish("q", "after");
    assert_eq!(guest.take("q", 1), ["after"]);
    assert_eq!(copies(&guest), [Value::Null; 0]);
}
