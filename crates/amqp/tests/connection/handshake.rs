use crate::driver::{HEADER, Seen, Server, frame, open, start_ok, tune_ok};
use lepus_amqp::frame::FrameKind;
use lepus_amqp::method::{channel, connection};
use lepus_amqp::server::{AuthenticationFailure, ServerOptions, State, TimeoutOutcome};
use lepus_amqp::table::Value;
use lepus_amqp::{Method, ProtocolError, ReplyCode, Table};
use std::time::Duration;

fn capable() -> Table {
    Table::new().with("authentication_failure_close", true)
}

/// A server that waits for tune-ok.
fn tuning() -> Server {
    let mut server = Server::new(&ServerOptions::default());
    server.feed(HEADER);
    server.feed(&start_ok(&capable(), "PLAIN"));
    server.machine.authenticated(server.now, Ok(()), &mut server.out);
    assert_eq!(server.written(), ["connection.start", "connection.tune"]);
    server
}

#[test]
fn a_client_comes_in() {
    let mut server = Server::new(&ServerOptions::default());
    assert_eq!(server.feed(HEADER), []);
    let seen = server.feed(&start_ok(&capable(), "AMQPLAIN"));
    let response = lepus_amqp::sasl::response("AMQPLAIN", "guest", "secret");
    assert_eq!(seen, [Seen::Authenticate("AMQPLAIN".into(), response)]);
    server.machine.authenticated(server.now, Ok(()), &mut server.out);
    assert_eq!(server.feed(&tune_ok(100, 70_000, 10)), []);
    assert_eq!(server.feed(&open("/")), [Seen::Open("/".into())]);
    server.machine.opened(server.now, Ok(()), &mut server.out);
    assert_eq!(server.written(), ["connection.start", "connection.tune", "connection.open-ok"]);
    let machine = &server.machine;
    assert_eq!(machine.state(), State::Running);
    assert_eq!(machine.channel_max(), 100);
    assert_eq!(machine.frame_max(), 70_000);
    assert_eq!(machine.heartbeat(), 10);
    assert_eq!(machine.mechanism(), "AMQPLAIN");
    assert!(machine.has_client_capability("authentication_failure_close"));
    assert!(!machine.has_client_capability("basic.nack"));
}

#[test]
fn the_greeting_names_the_server_and_its_capabilities() {
    let options = ServerOptions {
        properties: Table::new().with("lepus", "0.1.0").with("version", "4.2.9"),
        mechanisms: "PLAIN EXTERNAL".into(),
        ..ServerOptions::default()
    };
    let mut server = Server::new(&options);
    server.feed(HEADER);
    let (frame, _) = lepus_amqp::frame::decode(&server.out, 8192).unwrap().unwrap();
    let Ok(Method::ConnectionStart(start)) = Method::decode(frame.payload) else {
        panic!("no connection.start");
    };
    assert_eq!((start.version_major, start.version_minor), (0, 9));
    assert_eq!(start.mechanisms, b"PLAIN EXTERNAL");
    assert_eq!(start.locales, b"en_US");
    let properties = start.server_properties.to_owned();
    let text = |name: &str| properties.get(name).and_then(Value::as_text);
    assert_eq!(text("product"), Some("RabbitMQ"));
    assert_eq!(text("version"), Some("4.2.9"));
    assert_eq!(text("lepus"), Some("0.1.0"));
    let capabilities = properties.get("capabilities").and_then(Value::as_table).unwrap();
    assert_eq!(capabilities.len(), 9);
    assert!(capabilities.iter().all(|(_, value)| *value == true.into()));
}

#[test]
fn the_old_header_for_the_same_protocol_is_taken() {
    let mut server = Server::new(&ServerOptions::default());
    server.feed(b"AMQP\x01\x01\0\x09");
    assert_eq!(server.written(), ["connection.start"]);
}

#[test]
fn a_wrong_header_is_answered_with_the_right_one() {
    for bytes in [
        &b"AMQP\0\x01\0\0"[..],
        b"AMQP\x03\x01\0\0",
        b"AMQP\0\0\x09\x02",
        b"AMQP\x01\x01\x08\0",
        b"X",
        b"GEX ",
        b"\x16\x02",
    ] {
        let mut server = Server::new(&ServerOptions::default());
        assert_eq!(server.feed(bytes), [Seen::Disconnect], "{bytes:?}");
        assert_eq!(server.out, HEADER);
        assert_eq!(server.machine.state(), State::Closed);
        assert_ne!(server.machine.disconnect_reason(), "");
    }
}

#[test]
fn strangers_are_dropped_without_an_answer() {
    for (bytes, word) in [(&b"GET / HTTP/1.1\r\n"[..], "HTTP"), (b"\x16\x03\x01\x02\0\x01", "TLS")]
    {
        let mut server = Server::new(&ServerOptions::default());
        assert_eq!(server.feed(&bytes[..1]), []);
        assert_eq!(server.feed(&bytes[1..]), [Seen::Disconnect]);
        assert_eq!(server.out, b"");
        assert!(server.machine.disconnect_reason().contains(word));
    }
}

#[test]
fn a_mechanism_that_was_not_offered_is_refused() {
    for name in ["EXTERNAL", "", "PLAIN AMQPLAIN", "plain"] {
        let mut server = Server::new(&ServerOptions::default());
        server.feed(HEADER);
        let error = server.fails(&start_ok(&capable(), name));
        assert_eq!(error.code, ReplyCode::COMMAND_INVALID);
        assert_eq!((error.class_id, error.method_id), (10, 11));
        assert_eq!(server.written(), ["connection.start", "connection.close"]);
    }
}

#[test]
fn a_refused_login_is_told_to_a_client_that_understands() {
    let mut server = Server::new(&ServerOptions::default());
    server.feed(HEADER);
    server.feed(&start_ok(&capable(), "PLAIN"));
    server.out.clear();
    let failure = AuthenticationFailure::default();
    server.machine.authenticated(server.now, Err(failure), &mut server.out);
    let (frame, _) = lepus_amqp::frame::decode(&server.out, 8192).unwrap().unwrap();
    let Ok(Method::ConnectionClose(close)) = Method::decode(frame.payload) else {
        panic!("no connection.close");
    };
    assert_eq!(close.reply_code, 403);
    assert!(
        close.reply_text.starts_with(
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
        )
    );
    let close_ok = crate::driver::method(0, connection::CloseOk {});
    assert_eq!(server.feed(&close_ok), [Seen::CloseOk]);
}

#[test]
fn a_refused_login_is_dropped_late_when_the_client_would_not_understand() {
    let mut server = Server::new(&ServerOptions::default());
    server.feed(HEADER);
    server.feed(&start_ok(&Table::new(), "PLAIN"));
    server.out.clear();
    let failure = AuthenticationFailure::default();
    server.machine.authenticated(server.now, Err(failure), &mut server.out);
    assert_eq!(server.feed(b"more"), []);
    let due = server.machine.next_timeout();
    assert_eq!(due, server.now + Duration::from_secs(1));
    let mut out = Vec::new();
    let early = server.machine.on_timeout(server.now, &mut out);
    assert_eq!(early, TimeoutOutcome::Nothing);
    let late = server.machine.on_timeout(due, &mut out);
    assert_eq!(late, TimeoutOutcome::Disconnect);
    assert!(server.out.is_empty() && out.is_empty());
}

#[test]
fn tune_ok_may_lower_the_limits_and_not_raise_them() {
    let offer = ServerOptions::default();
    for (channel_max, frame_max, word) in [
        (100, 4095, "frame_max"),
        (100, 100, "frame_max"),
        (100, offer.frame_max + 1, "frame_max"),
        (100, 0, "frame_max"),
        (0, 4096, "channel_max"),
        (offer.channel_max + 1, 4096, "channel_max"),
    ] {
        let mut server = tuning();
        let error = server.fails(&tune_ok(channel_max, frame_max, 0));
        assert_eq!(error.code, ReplyCode::NOT_ALLOWED, "{}", error.text);
        assert!(error.text.contains(word), "{}", error.text);
        assert_eq!((error.class_id, error.method_id), (10, 31));
        assert_eq!(server.written(), ["connection.close"]);
    }
    for (channel_max, frame_max) in [(1, 4096), (2047, 131_072)] {
        let mut server = tuning();
        assert_eq!(server.feed(&tune_ok(channel_max, frame_max, 0)), []);
        assert_eq!(server.machine.state(), State::Open);
        assert_eq!(server.machine.frame_max(), frame_max);
    }
}

#[test]
fn a_server_without_limits_takes_none() {
    let options = ServerOptions { channel_max: 0, frame_max: 0, ..ServerOptions::default() };
    let server = Server::running(&options, 0);
    assert_eq!(server.machine.channel_max(), u16::MAX);
    assert_eq!(server.machine.frame_max(), u32::MAX);
}

#[test]
fn large_frames_are_refused_before_the_limits_are_agreed() {
    let mut server = Server::new(&ServerOptions::default());
    server.feed(HEADER);
    // The head of the frame is enough.
    let error = server.fails(b"\x01\0\0\0\0\x20\x01");
    assert_eq!(error.code, ReplyCode::FRAME_ERROR);
    let mut server = tuning();
    let error = server.fails(&frame(FrameKind::Method, 0, &[0; 8193]));
    assert_eq!(error.code, ReplyCode::FRAME_ERROR);
}

#[test]
fn large_frames_are_refused_until_a_virtual_host_is_open() {
    for options in
        [ServerOptions::default(), ServerOptions { frame_max: 0, ..ServerOptions::default() }]
    {
        let mut server = Server::new(&options);
        server.feed(HEADER);
        server.feed(&start_ok(&capable(), "PLAIN"));
        server.machine.authenticated(server.now, Ok(()), &mut server.out);
        assert_eq!(server.feed(&tune_ok(2047, options.frame_max, 0)), []);
        assert_eq!(server.machine.state(), State::Open);
        // The head of the frame is enough.
        let error = server.fails(b"\x01\0\0\xff\xff\xff\xf0");
        assert_eq!(error.code, ReplyCode::FRAME_ERROR);
    }
}

#[test]
fn frames_out_of_order_are_refused_during_the_handshake() {
    let wrong = [
        (tune_ok(1, 4096, 0), ReplyCode::COMMAND_INVALID),
        (open("/"), ReplyCode::COMMAND_INVALID),
        (crate::driver::method(1, channel::Open {}), ReplyCode::UNEXPECTED_FRAME),
        (frame(FrameKind::Heartbeat, 0, b""), ReplyCode::UNEXPECTED_FRAME),
        (frame(FrameKind::Body, 0, b"x"), ReplyCode::UNEXPECTED_FRAME),
        (frame(FrameKind::Method, 0, &[0, 10, 0, 99]), ReplyCode::NOT_IMPLEMENTED),
        (frame(FrameKind::Method, 0, &[0, 10, 0, 11]), ReplyCode::SYNTAX_ERROR),
    ];
    for (bytes, code) in wrong {
        let mut server = Server::new(&ServerOptions::default());
        server.feed(HEADER);
        assert_eq!(server.fails(&bytes).code, code);
    }
}

#[test]
fn a_vhost_that_cannot_be_opened_closes_the_connection() {
    let mut server = tuning();
    server.feed(&tune_ok(10, 4096, 0));
    assert_eq!(server.feed(&open("nope")), [Seen::Open("nope".into())]);
    let error = ProtocolError::new(ReplyCode::NOT_ALLOWED, "vhost nope not found");
    server.machine.opened(server.now, Err(error), &mut server.out);
    let (frame, _) = lepus_amqp::frame::decode(&server.out, 8192).unwrap().unwrap();
    let Ok(Method::ConnectionClose(close)) = Method::decode(frame.payload) else {
        panic!("no connection.close");
    };
    assert_eq!(close.reply_code, 530);
    assert_eq!(close.reply_text, "NOT_ALLOWED - vhost nope not found");
    assert_eq!((close.class_id, close.method_id), (10, 40));
}

#[test]
fn the_client_may_close_during_the_handshake() {
    let close = crate::driver::method(
        0,
        connection::Close { reply_code: 200, reply_text: "never mind", class_id: 0, method_id: 0 },
    );
    let mut server = tuning();
    let seen = server.feed(&close);
    assert_eq!(seen, [Seen::Close(200, "never mind".into())]);
    server.machine.close_ok(server.now, &mut server.out);
    assert_eq!(server.written(), ["connection.close-ok"]);
    assert_eq!(server.machine.state(), State::Leaving);
}

#[test]
fn a_handshake_that_takes_too_long_expires() {
    // The protocol header has less time than all of it.
    let steps: [(&[u8], u64); 3] = [(b"", 3), (b"AMQP", 3), (HEADER, 10)];
    for (bytes, seconds) in steps {
        let mut server = Server::new(&ServerOptions::default());
        let begin = server.now;
        assert_eq!(server.machine.next_timeout(), begin + Duration::from_secs(3));
        server.now = begin + Duration::from_secs(2);
        server.feed(bytes);
        let due = server.machine.next_timeout();
        assert_eq!(due, begin + Duration::from_secs(seconds));
        server.out.clear();
        let before = server.machine.on_timeout(server.now, &mut server.out);
        assert_eq!(before, TimeoutOutcome::Nothing);
        let outcome = server.machine.on_timeout(due, &mut server.out);
        assert_eq!(outcome, TimeoutOutcome::HandshakeExpired);
        assert!(server.out.is_empty());
    }
}

#[test]
fn pipelined_steps_wait_for_the_brokers_decisions() {
    let mut server = Server::new(&ServerOptions::default());
    let mut bytes = HEADER.to_vec();
    bytes.extend(start_ok(&capable(), "PLAIN"));
    bytes.extend(tune_ok(10, 4096, 0));
    bytes.extend(frame(FrameKind::Heartbeat, 0, b""));
    bytes.extend(open("/"));
    bytes.extend(crate::driver::method(1, channel::Open {}));
    assert_eq!(server.feed(&bytes).len(), 1);
    server.machine.authenticated(server.now, Ok(()), &mut server.out);
    assert_eq!(server.feed(b""), [Seen::Open("/".into())]);
    server.machine.opened(server.now, Ok(()), &mut server.out);
    assert_eq!(server.feed(b""), [Seen::Method(1, "channel.open".into())]);
}
