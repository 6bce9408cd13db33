//! The world itself: handshake, a message's way on one shard and between shards, time.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::queue;
use lepus_amqp::table::Table;
use lepus_sim::{Confirm, World};

#[test]
fn a_message_goes_from_one_client_to_another() {
    for shards in 1..=3 {
        let world = World::new(shards);
        let alice = world.channel(0);
        let bob = world.channel(shards - 1);
        alice.declare("letters");
        alice.confirm_select();
        alice.publish("", "letters", "hello");
        assert_eq!(alice.confirms(), [Confirm::Ack { tag: 1, multiple: false }]);
        bob.consume("letters", "c");
        let message = bob.delivery();
        assert_eq!((message.text().as_str(), message.redelivered), ("hello", false));
        assert_eq!(world.queue("letters").unacked, 1);
        bob.ack(message.tag);
        assert_eq!(world.queue("letters").unacked, 0);
        alice.client().close();
        bob.client().close();
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_refusal_is_seen_with_its_code_and_text() {
    let world = World::new(2);
    let alice = world.channel(1);
    let refused =
        alice.refused(queue::Declare { queue: "missing", passive: true, ..Default::default() });
    assert_eq!(refused.code, ReplyCode::NOT_FOUND);
    assert!(refused.text.contains("missing"), "{}", refused.text);
    assert!(!refused.hard && !alice.is_open());
    alice.client().channel().declare("present");
}

#[test]
fn time_passes_only_when_it_is_let() {
    let world = World::new(2);
    let alice = world.channel(1);
    alice.declare_with("brief", Table::new().with("x-message-ttl", 100));
    alice.publish("", "brief", "soon gone");
    world.settle();
    assert_eq!(world.queue("brief").ready, 1);
    world.advance(99);
    assert_eq!(world.queue("brief").ready, 1);
    world.advance(1);
    assert_eq!(world.queue("brief").ready, 0);
}

#[test]
fn raw_bytes_are_answered_in_raw_bytes() {
    let world = World::new(1);
    let stranger = world.dial(0);
    stranger.send_bytes(b"AMQP\x01\x00\x00\x0a");
    assert_eq!(stranger.take_bytes(), b"AMQP\x00\x00\x09\x01");
    assert!(stranger.is_ended());
}

#[test]
fn what_a_client_leaves_behind_is_cleaned_up() {
    let world = World::new(3);
    let alice = world.channel(1);
    let bob = world.channel(2);
    alice.declare("shared");
    alice.publish_all("shared", (0..100).map(|n| n.to_string()));
    bob.consume("shared", "c");
    assert_eq!(bob.deliveries().len(), 100);
    bob.client().reset();
    assert_eq!(world.queue("shared").ready, 100);
    alice.client().hang_up();
    assert_eq!(world.leaks(), [""; 0]);
    let carol = world.channel(0);
    carol.consume("shared", "c");
    let numbers: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let messages = carol.deliveries();
    assert_eq!(messages.iter().map(|m| m.text()).collect::<Vec<_>>(), numbers);
    assert!(messages.iter().all(|m| m.redelivered));
}

#[test]
fn a_client_without_a_password_is_not_let_in() {
    let world = World::new(1);
    let client = world.connect_with(0, World::login("guest", "wrong", "/"));
    assert!(!client.is_open());
    client.expect_closed(ReplyCode::ACCESS_REFUSED);
}
