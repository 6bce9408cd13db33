//! What is checked before a message is taken, and what comes through unchanged.

use lepus_amqp::Method;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, exchange};
use lepus_amqp::properties::Properties;
use lepus_amqp::server::ServerOptions;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Options, Refused, World};

use crate::stage::everywhere;
use crate::wire;

#[test]
fn a_missing_exchange_closes_the_channel_and_drops_what_follows() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let client = far.client();
        client.together(|| {
            far.publish("missing", "q", "1");
            far.publish("", "q", "2");
            far.publish("missing", "q", "3");
        });
        let refused = far.expect_refused();
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (60, 40)));
        assert_eq!(refused.text, "NOT_FOUND - no exchange 'missing' in vhost '/'");
        assert_eq!(stage.world.queue("q").ready, 0);
        let channel = client.channel_number(far.number());
        channel.publish("", "q", "4");
        assert_eq!(near.get_no_ack("q").unwrap().text(), "4");
    });
}

/// Publishes with everything wrong from some point of the order of checks on.
fn fault(wrong_from: usize) -> Refused {
    let options = Options {
        server: ServerOptions { body_bytes_max: 100, ..ServerOptions::default() },
        ..Options::default()
    };
    let world = World::with(options);
    world.add_user("ann", "secret");
    let write = if wrong_from <= 1 { "^$" } else { ".*" };
    world.permit("ann", "/", ".*", write, ".*");
    world.channel(0).exchange_method(exchange::Declare {
        exchange: "inner",
        r#type: "topic",
        internal: true,
        ..Default::default()
    });
    let exchange = match wrong_from {
        0..=2 => "missing",
        3 => "inner",
        _ => "amq.topic",
    };
    let headers = Table::new()
        .with("CC", if wrong_from <= 6 { Value::from(1) } else { Value::Array(vec![]) });
    let properties = Properties {
        reply_to: Some(if wrong_from <= 4 { "amq.rabbitmq.reply-to" } else { "x" }.into()),
        expiration: Some(if wrong_from <= 5 { "soon" } else { "10" }.into()),
        headers: Some(headers),
        user_id: Some(if wrong_from <= 8 { "bob" } else { "ann" }.into()),
        ..Properties::default()
    };
    if wrong_from <= 7 {
        let request = lepus_broker::directory::Request::SetTopicPermission {
            user: "ann".into(),
            vhost: "/".into(),
            exchange: "amq.topic".into(),
            write: "^allowed$".into(),
            read: ".*".into(),
        };
        world.request(request).unwrap();
    }
    let ann = world.connect_as(0, "ann", "secret").channel();
    let body = vec![0; if wrong_from == 0 { 101 } else { 100 }];
    ann.publish_with(exchange, "some.key", &properties, body);
    ann.expect_refused()
}

#[test]
fn the_first_check_that_fails_names_the_error() {
    let expected = [
        (406, "message size 101 is larger than configured max size 100"),
        (403, "write access to exchange 'missing'"),
        (404, "no exchange 'missing'"),
        (403, "internal exchange 'inner'"),
        (406, "fast reply consumer does not exist"),
        (406, "invalid expiration 'soon'"),
        (406, "CC"),
        (403, "topic 'some.key'"),
        (406, "user_id property set to 'bob' but authenticated user was 'ann'"),
    ];
    for (wrong_from, (code, part)) in expected.into_iter().enumerate() {
        let refused = fault(wrong_from);
        assert_eq!((refused.code.0, refused.method), (code, (60, 40)), "{}", refused.text);
        assert!(refused.text.contains(part), "{wrong_from}: {}", refused.text);
        assert!(!refused.hard);
    }
}

#[test]
fn a_message_that_is_too_large_is_refused_before_its_body_has_come() {
    let server = ServerOptions { body_bytes_max: 1_000, ..ServerOptions::default() };
    let world = World::with(Options { server, ..Options::default() });
    let raw = wire::opened(&world, 0, 131_072);
    raw.send_bytes(&wire::publish(1, "q"));
    raw.send_bytes(&wire::header(1, 60, 0, 1_001));
    assert_eq!(wire::names(&raw.take_bytes()), ["channel.close"]);
    raw.send_bytes(&wire::body(1, &[0; 501]));
    raw.send_bytes(&wire::body(1, &[0; 500]));
    raw.send_bytes(&wire::method(1, lepus_amqp::method::channel::CloseOk {}));
    raw.send_bytes(&wire::method(1, lepus_amqp::method::channel::Open {}));
    assert_eq!(wire::names(&raw.take_bytes()), ["channel.open-ok"]);
}

#[test]
fn a_message_that_is_too_large_on_an_unknown_channel_is_a_channel_error() {
    let server = ServerOptions { body_bytes_max: 1_000, ..ServerOptions::default() };
    let world = World::with(Options { server, ..Options::default() });
    let raw = wire::opened(&world, 0, 131_072);
    raw.send_bytes(&wire::publish(9, "q"));
    raw.send_bytes(&wire::header(9, 60, 0, 1_001));
    assert_eq!(wire::close_in(&raw.take_bytes()).0, 504);
}

#[test]
fn immediate_is_not_implemented() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare("q");
        let client = alice.client();
        client.together(|| {
            let publish =
                basic::Publish { routing_key: "q", immediate: true, ..Default::default() };
            alice.send(publish);
            client.send_bytes(&wire::header(alice.number(), 60, 0, 0));
        });
        client.expect_closed(ReplyCode::NOT_IMPLEMENTED);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

/// One of each kind of value that a table may hold.
fn all_values() -> Table {
    Table::new()
        .with("bool", true)
        .with("i8", Value::I8(-8))
        .with("u8", Value::U8(200))
        .with("i16", Value::I16(-16_000))
        .with("u16", Value::U16(60_000))
        .with("i32", Value::I32(-32_000_000))
        .with("u32", Value::U32(4_000_000_000))
        .with("i64", Value::I64(i64::MIN))
        .with("u64", Value::U64(u64::MAX))
        .with("f32", Value::F32(1.5))
        .with("f64", Value::F64(-2.25))
        .with("decimal", Value::Decimal { scale: 2, value: 314 })
        .with("text", "grüße")
        .with("bytes", Value::LongString(vec![0, 255, 1]))
        .with("timestamp", Value::Timestamp(1_767_225_600))
        .with("void", Value::Void)
        .with("binary", Value::Binary(vec![0, 1, 2, 255]))
        .with("array", vec![Value::from(1), Value::from("two"), Value::Array(vec![Value::Void])])
        .with("table", Table::new().with("inner", Table::new().with("deep", 1)))
        .with("empty table", Table::new())
        .with("", "an empty name")
}

#[test]
fn all_properties_and_all_kinds_of_headers_come_through() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let properties = Properties {
            content_type: Some("text/plain".into()),
            content_encoding: Some("gzip".into()),
            headers: Some(all_values()),
            delivery_mode: Some(2),
            priority: Some(9),
            correlation_id: Some("correlation".into()),
            reply_to: Some("reply".into()),
            expiration: Some("60000".into()),
            message_id: Some("message".into()),
            timestamp: Some(1_767_225_600),
            message_type: Some("type".into()),
            user_id: Some("guest".into()),
            app_id: Some("app".into()),
            cluster_id: Some("cluster".into()),
        };
        far.publish_with("", "q", &properties, "fetched");
        assert_eq!(near.get_no_ack("q").unwrap().properties, properties);
        far.publish_with("", "q", &properties, "delivered from the queue");
        near.consume_no_ack("q", "c");
        assert_eq!(near.delivery().properties, properties);
        far.publish_with("", "q", &properties, "delivered at once");
        assert_eq!(near.delivery().properties, properties);
    });
}

#[test]
fn bodies_of_any_bytes_and_no_bytes_come_through() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let every_byte: Vec<u8> = (0..=255).collect();
        for body in [&b""[..], b"\xCE", &every_byte, &every_byte.repeat(600)] {
            far.publish("", "q", body);
            assert_eq!(near.get_no_ack("q").unwrap().body, body);
        }
    });
}

#[test]
fn headers_that_are_not_well_formed_end_the_connection() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // The flag says headers, the table says more bytes than there are.
    payload.extend_from_slice(&[0x20, 0, 0, 0, 0, 9, 1, b'a', b't']);
    raw.send_bytes(&wire::publish(1, "q"));
    raw.send_bytes(&wire::frame(2, 1, &payload));
    assert!(matches!(wire::close_in(&raw.take_bytes()).0, 501 | 502));
}

#[test]
fn a_message_goes_to_each_queue_once_on_whatever_shard_it_is() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for index in 0..40 {
            let queue = format!("q{index}");
            (if index % 2 == 0 { &near } else { &far }).declare(&queue);
            near.bind(&queue, "amq.fanout", "");
        }
        far.confirm_select();
        far.publish("amq.fanout", "", "to all");
        assert_eq!(far.confirmed().0, [1]);
        for index in 0..40 {
            let message = near.get_no_ack(&format!("q{index}")).unwrap();
            assert_eq!(message.text(), "to all");
            assert_eq!(near.get_no_ack(&format!("q{index}")), None);
        }
    });
}

#[test]
fn a_message_to_very_many_queues_reaches_all_and_later_ones_wait_their_turn() {
    let world = World::new(2);
    let near = world.channel(0);
    let count = 3_000;
    for index in 0..count {
        let queue = format!("q{index}");
        near.declare(&queue);
        near.bind(&queue, "amq.fanout", "");
    }
    let far = world.channel(1);
    far.declare_exclusive("stay here");
    far.confirm_select();
    far.client().together(|| {
        far.publish("amq.fanout", "", "1");
        far.publish("", "q0", "2");
        far.publish("amq.fanout", "", "3");
    });
    assert_eq!(far.confirmed(), (vec![1, 2, 3], vec![]));
    for index in 1..count {
        assert_eq!(world.queue(&format!("q{index}")).ready, 2);
    }
    let bodies: Vec<String> =
        core::iter::from_fn(|| near.get_no_ack("q0")).map(|message| message.text()).collect();
    assert_eq!(bodies, ["1", "2", "3"]);
    for index in 0..count {
        near.purge(&format!("q{index}"));
    }
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn what_is_published_on_a_closed_connection_is_ignored() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    world.channel(0).declare("q");
    let close = lepus_amqp::method::connection::Close { reply_code: 200, ..Default::default() };
    let publish = [wire::publish(1, "q"), wire::header(1, 60, 0, 0)].concat();
    raw.send_bytes(&[wire::method(0, close), publish.clone()].concat());
    raw.send_bytes(&publish);
    let mut answered = false;
    wire::each_method(&raw.take_bytes(), |_, method| {
        answered |= matches!(method, Method::ConnectionCloseOk(_));
    });
    assert!(answered);
    assert_eq!(world.queue("q").ready, 0);
}
