use crate::driver::{Seen, Server, frame, header, method};
use lepus_amqp::frame::FrameKind;
use lepus_amqp::method::{basic, connection, queue};
use lepus_amqp::properties::EMPTY;
use lepus_amqp::server::{ServerOptions, State, TimeoutOutcome};
use lepus_amqp::{ProtocolError, ReplyCode};
use std::time::Duration;

fn server() -> Server {
    Server::running(&ServerOptions::default(), 4096)
}

fn close() -> Vec<u8> {
    method(0, connection::Close { reply_code: 200, reply_text: "bye", class_id: 0, method_id: 0 })
}

fn close_ok() -> Vec<u8> {
    method(0, connection::CloseOk {})
}

#[test]
fn a_clients_close_is_answered_when_the_broker_is_ready() {
    let mut server = server();
    let mut bytes = close();
    bytes.extend(method(1, queue::Purge::default()));
    assert_eq!(server.feed(&bytes), [Seen::Close(200, "bye".into())]);
    assert!(server.out.is_empty());
    assert!(server.rest.is_empty());
    server.machine.close_ok(server.now, &mut server.out);
    server.machine.close_ok(server.now, &mut server.out);
    assert_eq!(server.written(), ["connection.close-ok"]);
    assert_eq!(server.machine.state(), State::Leaving);
    assert_eq!(server.feed(&method(1, queue::Purge::default())), []);
    let before = server.now + Duration::from_secs(9);
    assert_eq!(server.machine.on_timeout(before, &mut server.out), TimeoutOutcome::Nothing);
    let after = server.now + Duration::from_secs(10);
    assert_eq!(server.machine.next_timeout(), after);
    assert_eq!(server.machine.on_timeout(after, &mut server.out), TimeoutOutcome::Disconnect);
    assert_eq!(server.machine.state(), State::Closed);
}

#[test]
fn after_our_close_everything_but_the_answer_is_ignored() {
    let mut traffic = method(1, queue::Purge::default());
    traffic.extend(method(2, basic::Publish::default()));
    traffic.extend(header(2, 60, 0, 100_000, &EMPTY));
    traffic.extend(frame(FrameKind::Body, 2, &[0xce; 4000]));
    traffic.extend(frame(FrameKind::Heartbeat, 0, b""));
    traffic.extend(frame(FrameKind::Method, 0, &[0, 99, 0, 99]));
    traffic.extend(method(0, connection::UpdateSecret { new_secret: b"x", reason: "" }));
    traffic.extend(close_ok());
    for size in [1, 5, 1000, traffic.len()] {
        let mut server = server();
        let error = ProtocolError::new(ReplyCode::CONNECTION_FORCED, "shutdown");
        server.machine.close(server.now, &error, &mut server.out);
        server.machine.close(server.now, &error, &mut server.out);
        assert_eq!(server.written(), ["connection.close"]);
        let mut seen = Vec::new();
        for piece in traffic.chunks(size) {
            seen.extend(server.feed(piece));
        }
        assert_eq!(seen, [Seen::CloseOk], "pieces of {size}");
        assert!(server.out.is_empty());
    }
}

#[test]
fn a_close_in_the_middle_of_a_body_frame_finds_its_end() {
    let mut server = server();
    server.feed(&method(2, basic::Publish::default()));
    server.feed(&header(2, 60, 0, 4000, &EMPTY));
    let body = frame(FrameKind::Body, 2, &[0xce; 4000]);
    server.feed(&body[..2000]);
    let error = ProtocolError::new(ReplyCode::CONNECTION_FORCED, "shutdown");
    server.machine.close(server.now, &error, &mut server.out);
    assert_eq!(server.feed(&body[2000..]), []);
    assert_eq!(server.feed(&close_ok()), [Seen::CloseOk]);
}

#[test]
fn a_body_frame_at_fault_is_skipped_behind_the_error() {
    let mut server = server();
    let mut bytes = frame(FrameKind::Body, 2, &[0xce; 4000]);
    let end = bytes.split_off(3000);
    let error = server.fails(&bytes);
    assert_eq!(error.code, ReplyCode::UNEXPECTED_FRAME);
    assert_eq!(server.feed(&end), []);
    assert_eq!(server.feed(&close_ok()), [Seen::CloseOk]);
}

#[test]
fn the_answer_is_found_behind_a_malformed_frame() {
    let mut server = server();
    let mut too_large = vec![3, 0, 1, 0, 1, 0, 0];
    too_large.extend_from_slice(&[0; 65_536]);
    let error = server.fails(&too_large);
    assert_eq!(error.code, ReplyCode::FRAME_ERROR);
    assert_eq!(server.feed(b"\xce"), []);
    assert_eq!(server.feed(&close_ok()), [Seen::CloseOk]);
}

#[test]
fn closes_that_cross_are_both_answered() {
    let mut server = server();
    let error = ProtocolError::new(ReplyCode::CONNECTION_FORCED, "shutdown");
    server.machine.close(server.now, &error, &mut server.out);
    assert_eq!(server.feed(&close()), []);
    assert_eq!(server.written(), ["connection.close", "connection.close-ok"]);
    assert_eq!(server.feed(&close_ok()), [Seen::CloseOk]);
}

#[test]
fn a_client_that_does_not_answer_is_dropped() {
    let mut server = server();
    let error = ProtocolError::new(ReplyCode::CONNECTION_FORCED, "shutdown");
    server.machine.close(server.now, &error, &mut server.out);
    let due = server.machine.next_timeout();
    assert_eq!(due, server.now + Duration::from_secs(10));
    server.out.clear();
    let early = server.machine.on_timeout(server.now, &mut server.out);
    assert_eq!(early, TimeoutOutcome::Nothing);
    let late = server.machine.on_timeout(due, &mut server.out);
    assert_eq!(late, TimeoutOutcome::Disconnect);
    assert!(server.out.is_empty());
}

#[test]
fn a_client_that_was_silent_for_long_has_as_much_time_for_its_answer() {
    let mut server = server();
    server.now = server.now + Duration::from_secs(3600);
    let error = ProtocolError::new(ReplyCode::CONNECTION_FORCED, "an operator");
    server.machine.close(server.now, &error, &mut server.out);
    assert_eq!(server.machine.next_timeout(), server.now + Duration::from_secs(10));
    assert_eq!(server.feed(&close_ok()), [Seen::CloseOk]);
}

#[test]
fn an_answer_that_took_long_leaves_the_client_as_much_time_to_end() {
    let mut server = server();
    assert_eq!(server.feed(&close()), [Seen::Close(200, "bye".into())]);
    server.now = server.now + Duration::from_secs(3600);
    server.machine.close_ok(server.now, &mut server.out);
    assert_eq!(server.machine.next_timeout(), server.now + Duration::from_secs(10));
}

#[test]
fn a_connection_that_said_nothing_yet_is_closed_without_words() {
    let mut server = Server::new(&ServerOptions::default());
    let error = ProtocolError::new(ReplyCode::CONNECTION_FORCED, "shutdown");
    server.machine.close(server.now, &error, &mut server.out);
    assert!(server.out.is_empty());
    let outcome = server.machine.on_timeout(server.machine.next_timeout(), &mut server.out);
    assert_eq!(outcome, TimeoutOutcome::Disconnect);
}

#[test]
fn an_error_is_told_with_the_method_to_blame() {
    let mut server = server();
    server.fails(&frame(FrameKind::Method, 3, &[0, 50, 0, 10, 0]));
    let (frame, _) = lepus_amqp::frame::decode(&server.out, 4096).unwrap().unwrap();
    let Ok(lepus_amqp::Method::ConnectionClose(close)) = lepus_amqp::Method::decode(frame.payload)
    else {
        panic!("no connection.close");
    };
    assert_eq!(close.reply_code, 502);
    assert_eq!((close.class_id, close.method_id), (50, 10));
    assert!(close.reply_text.starts_with("SYNTAX_ERROR - "));
}
