//! Frames that do not belong where they are, and bodies in pieces.

use lepus_amqp::Method;
use lepus_amqp::method::{basic, channel, queue};
use lepus_sim::World;

use crate::wire;

/// What the connection is closed with after these bytes: code, class and method.
fn close_after(bytes: &[u8]) -> (u16, (u16, u16)) {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    raw.send_bytes(bytes);
    let (code, _, cause) = wire::close_in(&raw.take_bytes());
    // Nothing but close-ok counts from here on.
    raw.send_bytes(&wire::method(1, queue::Declare { queue: "late", ..Default::default() }));
    assert_eq!(raw.take_bytes(), b"");
    raw.send_bytes(&wire::method(0, lepus_amqp::method::connection::CloseOk {}));
    assert!(raw.is_ended());
    assert_eq!(world.leaks(), [""; 0]);
    (code, cause)
}

#[test]
fn an_unknown_frame_type_is_a_frame_error() {
    assert_eq!(close_after(&wire::frame(4, 1, b"abc")).0, 501);
}

#[test]
fn a_wrong_end_octet_is_a_frame_error() {
    let mut bytes = wire::method(1, queue::Declare { queue: "q", ..Default::default() });
    *bytes.last_mut().unwrap() = 0xCD;
    assert_eq!(close_after(&bytes).0, 501);
}

#[test]
fn a_heartbeat_on_a_channel_is_unexpected() {
    assert_eq!(close_after(&wire::frame(8, 1, b"")).0, 505);
}

#[test]
fn a_header_or_body_without_a_publish_is_unexpected() {
    assert_eq!(close_after(&wire::header(1, 60, 0, 5)).0, 505);
    assert_eq!(close_after(&wire::body(1, b"hello")).0, 505);
}

#[test]
fn a_body_without_a_header_is_unexpected() {
    let bytes = [wire::publish(1, "q"), wire::body(1, b"hello")].concat();
    assert_eq!(close_after(&bytes), (505, (60, 40)));
}

#[test]
fn a_method_inside_a_content_is_unexpected() {
    let method = wire::method(1, basic::Get { queue: "q", no_ack: true });
    let before_header = [wire::publish(1, "q"), method.clone()].concat();
    assert_eq!(close_after(&before_header).0, 505);
    let before_body = [wire::publish(1, "q"), wire::header(1, 60, 0, 5), method].concat();
    assert_eq!(close_after(&before_body).0, 505);
}

#[test]
fn a_header_of_another_class_is_unexpected() {
    let bytes = [wire::publish(1, "q"), wire::header(1, 50, 0, 5)].concat();
    assert_eq!(close_after(&bytes).0, 505);
}

#[test]
fn a_header_with_a_weight_is_refused() {
    let bytes = [wire::publish(1, "q"), wire::header(1, 60, 1, 5)].concat();
    assert!(matches!(close_after(&bytes).0, 501 | 505));
}

#[test]
fn a_body_longer_than_announced_is_refused() {
    let bytes =
        [wire::publish(1, "q"), wire::header(1, 60, 0, 4), wire::body(1, b"hello")].concat();
    assert!(matches!(close_after(&bytes).0, 501 | 505));
}

#[test]
fn a_channel_method_on_channel_0_is_unexpected() {
    let bytes = wire::method(0, queue::Declare { queue: "q", ..Default::default() });
    assert!(matches!(close_after(&bytes).0, 503 | 505));
}

#[test]
fn an_unknown_method_is_not_implemented() {
    assert_eq!(close_after(&wire::frame(1, 1, &[0, 60, 0, 99])).0, 540);
    assert_eq!(close_after(&wire::frame(1, 1, &[0, 77, 0, 10])).0, 540);
}

#[test]
fn a_method_that_only_servers_send_is_refused() {
    let ok = queue::DeclareOk { queue: "q", message_count: 0, consumer_count: 0 };
    assert_eq!(close_after(&wire::method(1, ok)).0, 503);
}

#[test]
fn arguments_that_end_early_are_a_syntax_error() {
    assert_eq!(close_after(&wire::frame(1, 1, &[0, 60, 0, 70, 0, 0, 9, b'q'])).0, 502);
}

#[test]
fn a_table_with_an_unknown_field_type_is_a_syntax_error() {
    let mut payload = vec![0, 50, 0, 10, 0, 0, 1, b'q', 0];
    payload.extend_from_slice(&[0, 0, 0, 3, 1, b'a', b'?']);
    assert_eq!(close_after(&wire::frame(1, 1, &payload)).0, 502);
}

#[test]
fn a_body_may_come_in_frames_of_one_byte() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    world.channel(0).declare("q");
    raw.send_bytes(&wire::publish(1, "q"));
    raw.send_bytes(&wire::header(1, 60, 0, 26));
    for letter in b'a'..=b'z' {
        raw.send_bytes(&wire::body(1, &[letter]));
    }
    let message = world.channel(0).get("q").unwrap();
    assert_eq!(message.text(), "abcdefghijklmnopqrstuvwxyz");
}

#[test]
fn a_body_without_bytes_has_no_body_frame() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    world.channel(0).declare("q");
    raw.send_bytes(&[wire::publish(1, "q"), wire::header(1, 60, 0, 0)].concat());
    raw.send_bytes(&wire::method(1, basic::Get { queue: "q", no_ack: true }));
    let bytes = raw.take_bytes();
    assert_eq!(wire::names(&bytes), ["basic.get-ok"]);
    let (_, used) = lepus_amqp::frame::decode(&bytes, u32::MAX).unwrap().unwrap();
    let (_, rest) = lepus_amqp::frame::decode(&bytes[used..], u32::MAX).unwrap().unwrap();
    assert_eq!(used + rest, bytes.len());
}

#[test]
fn contents_of_two_channels_may_alternate_frame_by_frame() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    raw.send_bytes(&wire::method(2, channel::Open {}));
    let alice = world.channel(0);
    alice.declare("q");
    let pieces = [
        wire::publish(1, "q"),
        wire::publish(2, "q"),
        wire::header(2, 60, 0, 4),
        wire::header(1, 60, 0, 4),
        wire::body(1, b"on"),
        wire::body(2, b"tw"),
        wire::body(2, b"o2"),
        wire::body(1, b"e1"),
    ];
    for piece in pieces {
        raw.send_bytes(&piece);
    }
    assert_eq!(alice.get_no_ack("q").unwrap().text(), "two2");
    assert_eq!(alice.get_no_ack("q").unwrap().text(), "one1");
}

#[test]
fn a_whole_conversation_may_come_byte_by_byte() {
    let world = World::new(2);
    let raw = wire::opened(&world, 1, 131_072);
    let talk = [
        wire::method(1, queue::Declare { queue: "q", ..Default::default() }),
        wire::publish(1, "q"),
        wire::header(1, 60, 0, 5),
        wire::body(1, b"hello"),
        wire::method(1, basic::Get { queue: "q", no_ack: false }),
        wire::method(1, basic::Ack { delivery_tag: 1, multiple: false }),
        wire::method(1, queue::Delete { queue: "q", ..Default::default() }),
    ]
    .concat();
    raw.send_bytewise(&talk);
    let bytes = raw.take_bytes();
    assert_eq!(wire::names(&bytes), ["queue.declare-ok", "basic.get-ok", "queue.delete-ok"]);
    wire::each_method(&bytes, |_, method| {
        if let Method::QueueDeleteOk(ok) = method {
            assert_eq!(ok.message_count, 0);
        }
    });
}
