//! Messages that are large.

use lepus_amqp::server::ServerOptions;
use lepus_sim::{Options, World};

use crate::stage::everywhere;
use crate::wire;

/// Bytes that tell where they stand.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn a_message_of_some_megabytes_comes_through_whole() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let body = pattern(3_000_001);
        far.confirm_select();
        far.publish("", "q", &body);
        assert_eq!(far.confirmed().0, [1]);
        assert!(near.get_no_ack("q").unwrap().body == body);
        near.consume("q", "c");
        far.publish("", "q", &body);
        let message = near.delivery();
        assert!(message.body == body);
        near.reject(message.tag, true);
        assert!(near.delivery().body == body);
    });
}

#[test]
fn bodies_around_the_size_of_a_frame_come_through_whole() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    let frame = 131_072;
    for length in [frame - 9, frame - 8, frame - 7, frame, 2 * (frame - 8), 2 * (frame - 8) + 1] {
        let body = pattern(length);
        alice.publish("", "q", &body);
        assert!(alice.get_no_ack("q").unwrap().body == body, "{length}");
    }
}

#[test]
fn the_largest_message_has_128_mib() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    let body = vec![b'x'; 128 * 1024 * 1024];
    alice.publish("", "q", &body);
    assert!(alice.get_no_ack("q").unwrap().body == body);
    alice.client().send_bytes(&wire::publish(1, "q"));
    alice.client().send_bytes(&wire::header(1, 60, 0, body.len() as u64 + 1));
    let refused = alice.expect_refused();
    assert_eq!(
        refused.text,
        "PRECONDITION_FAILED - message size 134217729 is larger than configured max size 134217728"
    );
    assert_eq!(world.queue("q").ready, 0);
}

#[test]
fn the_limit_is_the_operators() {
    let server = ServerOptions { body_bytes_max: 10, ..ServerOptions::default() };
    let world = World::with(Options { server, ..Options::default() });
    let alice = world.channel(0);
    alice.declare("q");
    alice.publish("", "q", "0123456789");
    alice.publish("", "q", "0123456789!");
    assert!(!alice.is_open());
    assert_eq!(world.queue("q").ready, 1);
}
