//! From the protocol header to `connection.start`, and ends in between.

use lepus_amqp::client::ClientOptions;
use lepus_amqp::method::connection;
use lepus_amqp::{Method, sasl};
use lepus_sim::World;

use crate::wire;

#[test]
fn an_unknown_protocol_header_is_answered_with_the_right_one_and_the_socket_is_closed() {
    for header in [b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"XXXX\x00\x00\x09\x01"] {
        let world = World::new(1);
        let stranger = world.dial(0);
        stranger.send_bytes(header);
        assert_eq!(stranger.take_bytes(), wire::HEADER);
        assert!(stranger.is_ended());
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn other_protocols_are_dropped_without_an_answer() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01"] {
        let world = World::new(1);
        let stranger = world.dial(0);
        stranger.send_bytes(bytes);
        assert_eq!(stranger.take_bytes(), b"");
        assert!(stranger.is_ended());
    }
}

#[test]
fn the_server_starts_with_version_0_9_its_properties_and_plain() {
    let world = World::new(1);
    let client = world.dial(0);
    client.send_bytes(wire::HEADER);
    let bytes = client.take_bytes();
    let mut seen = false;
    wire::each_method(&bytes, |channel, method| {
        let Method::ConnectionStart(start) = method else { panic!("{method:?}") };
        assert_eq!((channel, start.version_major, start.version_minor), (0, 0, 9));
        let mechanisms = core::str::from_utf8(start.mechanisms).unwrap();
        assert!(mechanisms.split(' ').any(|name| name == "PLAIN"), "{mechanisms}");
        assert!(mechanisms.split(' ').any(|name| name == "AMQPLAIN"), "{mechanisms}");
        assert!(start.locales.split(|&byte| byte == b' ').any(|name| name == b"en_US"));
        seen = true;
    });
    assert!(seen);
}

#[test]
fn the_server_says_who_it_is_and_what_it_can_do() {
    let world = World::new(1);
    let properties = world.connect(0).server_properties();
    assert_eq!(properties.get("product").and_then(|value| value.as_text()), Some("RabbitMQ"));
    let version = properties.get("version").and_then(|value| value.as_text()).unwrap();
    let numbers: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 3);
    let capabilities = properties.get("capabilities").and_then(|value| value.as_table()).unwrap();
    for name in [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ] {
        assert_eq!(capabilities.get(name).and_then(|value| value.as_bool()), Some(true), "{name}");
    }
}

#[test]
fn the_handshake_may_come_byte_by_byte() {
    let world = World::new(1);
    let client = world.dial(0);
    let response = sasl::response("PLAIN", "guest", "guest");
    client.send_bytewise(wire::HEADER);
    client.send_bytewise(&wire::start_ok("PLAIN", &response, &[]));
    client.send_bytewise(&wire::tune_ok(10, 4096, 0));
    client.send_bytewise(&wire::open());
    let answers = ["connection.start", "connection.tune", "connection.open-ok"];
    assert_eq!(wire::names(&client.take_bytes()), answers);
}

#[test]
fn a_client_with_another_locale_is_let_in() {
    let world = World::new(1);
    let options = ClientOptions { locale: "de_DE".into(), heartbeat: 0, ..Default::default() };
    assert!(world.connect_with(0, options).is_open());
}

#[test]
fn a_client_that_leaves_during_the_handshake_leaves_nothing_behind() {
    let world = World::new(2);
    let steps: [&dyn Fn() -> Vec<u8>; 4] = [
        &|| wire::HEADER.to_vec(),
        &|| wire::start_ok("PLAIN", &sasl::response("PLAIN", "guest", "guest"), &[]),
        &|| wire::tune_ok(10, 4096, 0),
        &wire::open,
    ];
    for count in 0..=steps.len() {
        for resets in [true, false] {
            let client = world.dial(1);
            for step in &steps[..count] {
                client.send_bytes(&step());
            }
            if resets {
                client.reset();
            } else {
                client.hang_up();
            }
            world.advance(30_000);
            assert!(client.is_ended(), "after {count} steps");
        }
    }
    assert_eq!(world.leaks(), [""; 0]);
    assert_eq!(world.broker(1, |broker| broker.connections.len()), 0);
}

#[test]
fn a_client_may_close_before_the_vhost_is_open() {
    let world = World::new(1);
    let client = wire::tuned(&world, 0);
    client.send_bytes(&wire::method(
        0,
        connection::Close { reply_code: 200, reply_text: "", class_id: 0, method_id: 0 },
    ));
    assert_eq!(wire::names(&client.take_bytes()), ["connection.close-ok"]);
    client.hang_up();
    assert!(client.is_ended());
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_client_that_does_not_go_on_is_dropped_after_a_while() {
    let world = World::new(1);
    let silent = world.dial(0);
    let started = world.dial(0);
    started.send_bytes(wire::HEADER);
    world.advance(2_000);
    assert!(!silent.is_ended());
    // The protocol header has less time than the login.
    world.advance(2_000);
    assert!(silent.is_ended());
    world.advance(5_000);
    assert!(!started.is_ended());
    world.advance(2_000);
    assert!(started.is_ended());
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn methods_out_of_turn_end_the_handshake() {
    let world = World::new(1);
    let client = wire::tuned(&world, 0);
    client.send_bytes(&wire::open());
    let (code, ..) = wire::close_in(&client.take_bytes());
    assert_eq!(code, 503);
}
