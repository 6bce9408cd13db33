//! Declaring and deleting exchanges.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{exchange, queue};
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::stage::everywhere;

fn declare<'a>(exchange: &'a str, kind: &'a str) -> exchange::Declare<'a> {
    exchange::Declare { exchange, r#type: kind, ..Default::default() }
}

fn passive(exchange: &str) -> exchange::Declare<'_> {
    exchange::Declare { exchange, passive: true, ..Default::default() }
}

/// Whether an exchange exists.
fn exists(world: &World, name: &str) -> bool {
    world.broker(0, |broker| {
        let vhost = broker.directory.vhost("/").unwrap();
        broker.directory.exchange(vhost, name).is_some()
    })
}

/// The code and text with which a fresh channel is closed.
fn refusal(alice: &Channel, method: impl Into<lepus_amqp::Method<'static>>) -> (u16, String) {
    let refused = alice.client().channel().refused(method.into());
    assert!(!refused.hard, "{}", refused.text);
    (refused.code.0, refused.text)
}

#[test]
fn the_predeclared_exchanges_are_there_in_every_vhost() {
    let world = World::new(2);
    world.add_vhost("v");
    world.permit("guest", "v", ".*", ".*", ".*");
    for vhost in ["/", "v"] {
        let client = world.connect_with(1, World::login("guest", "guest", vhost));
        let alice = client.channel();
        for (name, kind) in [
            ("amq.direct", "direct"),
            ("amq.fanout", "fanout"),
            ("amq.topic", "topic"),
            ("amq.headers", "headers"),
            ("amq.match", "headers"),
        ] {
            alice.exchange_method(exchange::Declare { durable: true, ..declare(name, kind) });
            alice.exchange_method(passive(name));
        }
        alice.exchange_method(passive("amq.rabbitmq.trace"));
    }
}

#[test]
fn the_default_exchange_cannot_be_touched() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare("q");
        let forbidden = ReplyCode::ACCESS_REFUSED.0;
        assert_eq!(refusal(&alice, declare("", "direct")).0, forbidden);
        assert_eq!(refusal(&alice, passive("")).0, forbidden);
        assert_eq!(refusal(&alice, exchange::Delete::default()).0, forbidden);
        let bind = queue::Bind { queue: "q", routing_key: "k", ..Default::default() };
        assert_eq!(refusal(&alice, bind).0, forbidden);
        let unbind = queue::Unbind { queue: "q", routing_key: "q", ..Default::default() };
        assert_eq!(refusal(&alice, unbind).0, forbidden);
        let bind = exchange::Bind { destination: "amq.fanout", source: "", ..Default::default() };
        assert_eq!(refusal(&alice, bind).0, forbidden);
        let bind = exchange::Bind { destination: "", source: "amq.fanout", ..Default::default() };
        assert_eq!(refusal(&alice, bind).0, forbidden);
        alice.publish("", "q", "still routed by name");
        assert!(alice.get_no_ack("q").is_some());
    });
}

#[test]
fn every_queue_is_reached_by_its_name_through_the_default_exchange() {
    everywhere(|stage| {
        let (alice, bob) = (stage.near(), stage.far());
        alice.declare("a.queue");
        bob.publish("", "a.queue", "hello");
        let message = alice.get_no_ack("a.queue").unwrap();
        assert_eq!((message.exchange.as_str(), message.key.as_str()), ("", "a.queue"));
    });
}

#[test]
fn new_names_must_not_begin_with_amq() {
    everywhere(|stage| {
        let alice = stage.far();
        let (code, text) = refusal(&alice, declare("amq.mine", "direct"));
        assert_eq!(code, 403);
        assert!(text.contains("'amq.mine'") && text.contains("reserved prefix"), "{text}");
    });
}

#[test]
fn predeclared_exchanges_are_not_deleted() {
    let world = World::new(1);
    let alice = world.channel(0);
    for exchange in ["amq.direct", "amq.topic", "amq.rabbitmq.trace"] {
        let delete = exchange::Delete { exchange, ..Default::default() };
        assert_eq!(refusal(&alice, delete).0, 403);
    }
}

#[test]
fn a_redeclaration_must_agree_in_type_and_flags() {
    everywhere(|stage| {
        let (near, alice) = stage.pair();
        near.exchange("x", "direct");
        alice.exchange("x", "direct");
        let cases = [
            (declare("x", "fanout"), "'type'"),
            (exchange::Declare { durable: true, ..declare("x", "direct") }, "'durable'"),
            (exchange::Declare { auto_delete: true, ..declare("x", "direct") }, "'auto_delete'"),
            (exchange::Declare { internal: true, ..declare("x", "direct") }, "'internal'"),
        ];
        for (method, name) in cases {
            let (code, text) = refusal(&alice, method);
            assert_eq!(code, 406);
            let start = format!("PRECONDITION_FAILED - inequivalent arg {name} for exchange 'x'");
            assert!(text.starts_with(&start), "{text}");
        }
    });
}

#[test]
fn arguments_without_a_meaning_need_not_agree() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.exchange_with("x", "direct", Table::new().with("x-mine", 1));
    alice.exchange_with("x", "direct", Table::new().with("x-mine", "other"));
    alice.exchange("x", "direct");
}

#[test]
fn an_unknown_type_is_refused_on_the_channel() {
    let world = World::new(2);
    let alice = world.channel(1);
    let (code, text) = refusal(&alice, declare("x", "no-such-type"));
    assert_eq!(code, 406);
    assert!(text.contains("no-such-type"), "{text}");
    alice.exchange("x", "direct");
    assert_eq!(refusal(&alice, declare("x", "no-such-type")).0, 406);
}

#[test]
fn line_feeds_and_carriage_returns_are_stripped_from_names() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.exchange("na\r\nme\n", "fanout");
    alice.exchange_method(passive("name"));
    alice.exchange_method(passive("n\name"));
    alice.declare("\rqu\neue");
    assert_eq!(alice.passive("queue").queue, "queue");
    alice.bind("queue\n", "name\r", "");
    alice.publish("name", "", "x");
    assert_eq!(alice.purge("que\nue"), 1);
    alice.delete("q\rueue");
    alice.delete_exchange("name\n");
    assert!(!exists(&world, "name"));
    assert_eq!(world.find_queue("/", "queue"), None);
}

#[test]
fn a_passive_declare_looks_at_the_name_alone() {
    everywhere(|stage| {
        let (near, alice) = stage.pair();
        near.exchange("x", "direct");
        let other = exchange::Declare { durable: true, r#type: "no-such-type", ..passive("x") };
        alice.exchange_method(other);
        let (code, text) = refusal(&alice, passive("missing"));
        assert_eq!((code, text.as_str()), (404, "NOT_FOUND - no exchange 'missing' in vhost '/'"));
    });
}

#[test]
fn deleting_twice_is_fine() {
    everywhere(|stage| {
        let (near, alice) = stage.pair();
        near.exchange("x", "direct");
        alice.delete_exchange("x");
        alice.delete_exchange("x");
        near.delete_exchange("x");
        near.delete_exchange("never there");
        assert!(!exists(&stage.world, "x"));
    });
}

#[test]
fn if_unused_spares_an_exchange_with_bindings() {
    everywhere(|stage| {
        let (near, alice) = stage.pair();
        near.exchange("x", "direct");
        near.declare("q");
        near.bind("q", "x", "k");
        let unused = exchange::Delete { exchange: "x", if_unused: true, ..Default::default() };
        let (code, text) = refusal(&alice, unused);
        assert_eq!(
            (code, text.as_str()),
            (406, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use")
        );
        near.unbind("q", "x", "k");
        alice.call(unused);
        assert!(!exists(&stage.world, "x"));
    });
}

#[test]
fn an_auto_delete_exchange_goes_with_its_last_binding() {
    everywhere(|stage| {
        let (near, alice) = stage.pair();
        let auto = exchange::Declare { auto_delete: true, ..declare("x", "fanout") };
        near.exchange_method(auto);
        assert!(exists(&stage.world, "x"), "without a binding ever it stays");
        near.declare("q1");
        near.declare("q2");
        alice.bind("q1", "x", "");
        alice.bind("q2", "x", "");
        alice.unbind("q1", "x", "");
        assert!(exists(&stage.world, "x"));
        near.delete("q2");
        assert!(!exists(&stage.world, "x"));
    });
}

#[test]
fn clients_do_not_publish_to_an_internal_exchange() {
    everywhere(|stage| {
        let (near, alice) = stage.pair();
        near.exchange_method(exchange::Declare { internal: true, ..declare("inner", "fanout") });
        near.exchange("outer", "fanout");
        near.bind_exchange("inner", "outer", "");
        near.declare("q");
        near.bind("q", "inner", "");
        alice.publish("outer", "", "through the door");
        assert_eq!(near.get_no_ack("q").unwrap().text(), "through the door");
        let channel = alice.client().channel();
        channel.publish("inner", "", "through the wall");
        let refused = channel.expect_refused();
        assert_eq!((refused.code, refused.method), (ReplyCode::ACCESS_REFUSED, (60, 40)));
        assert_eq!(near.get_no_ack("q"), None);
    });
}

#[test]
fn nothing_is_answered_with_no_wait_but_errors_count() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.send(exchange::Declare { no_wait: true, ..declare("x", "fanout") });
        alice.declare("q");
        let bind = queue::Bind { queue: "q", exchange: "x", no_wait: true, ..Default::default() };
        alice.send(bind);
        alice.send(exchange::Bind {
            destination: "x",
            source: "amq.fanout",
            no_wait: true,
            ..Default::default()
        });
        alice.publish("amq.fanout", "", "hello");
        assert!(alice.get_no_ack("q").is_some());
        let delete = exchange::Delete { exchange: "x", no_wait: true, ..Default::default() };
        alice.send(delete);
        assert_eq!(alice.answer(), None);
        assert!(!exists(&stage.world, "x"));
        let (code, _) =
            refusal(&alice, exchange::Declare { no_wait: true, ..declare("x", "no-such-type") });
        assert_eq!(code, 406);
    });
}

#[test]
fn an_alternate_exchange_argument_must_agree_and_be_a_string() {
    let world = World::new(1);
    let alice = world.channel(0);
    let with = |name: &str| Table::new().with("alternate-exchange", name);
    alice.exchange_with("x", "direct", with("one"));
    alice.exchange_with("x", "direct", with("one"));
    for arguments in [with("two"), Table::new()] {
        let arguments = arguments.to_bytes();
        let channel = alice.client().channel();
        let method = exchange::Declare { arguments: arguments.as_ref(), ..declare("x", "direct") };
        let refused = channel.refused(method);
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
        assert!(refused.text.contains("'alternate-exchange'"), "{}", refused.text);
    }
    let arguments = Table::new().with("alternate-exchange", Value::I32(1)).to_bytes();
    let method = exchange::Declare { arguments: arguments.as_ref(), ..declare("y", "direct") };
    assert_eq!(alice.refused(method).code, ReplyCode::PRECONDITION_FAILED);
}
