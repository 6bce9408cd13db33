//! Heartbeats in both directions.

use lepus_amqp::client::ClientOptions;
use lepus_amqp::frame;
use lepus_amqp::method::{basic, channel};
use lepus_sim::World;

use crate::wire;

#[test]
fn heartbeats_keep_a_quiet_connection_open() {
    let world = World::new(2);
    let options = || ClientOptions { heartbeat: 1, ..Default::default() };
    let clients = [world.connect_with(0, options()), world.connect_with(1, options())];
    for _ in 0..100 {
        world.advance(700);
    }
    for client in clients {
        let channel = client.channel();
        channel.declare("q");
        client.close();
    }
}

#[test]
fn a_mute_peer_is_dropped_after_two_and_a_half_intervals() {
    let world = World::new(1);
    let mute = wire::tuned(&world, 0);
    mute.send_bytes(&wire::tune_ok(10, 4096, 1));
    mute.send_bytes(&wire::open());
    world.advance(2_400);
    assert!(!mute.is_ended());
    world.advance(200);
    assert!(mute.is_ended());
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn the_server_sends_heartbeats_while_it_has_nothing_else_to_say() {
    let world = World::new(1);
    let client = wire::tuned(&world, 0);
    client.send_bytes(&wire::tune_ok(10, 4096, 2));
    client.send_bytes(&wire::open());
    let _ = client.take_bytes();
    for _ in 0..3 {
        world.advance(1_000);
        assert_eq!(client.take_bytes(), frame::HEARTBEAT);
        client.send_bytes(&frame::HEARTBEAT);
    }
}

#[test]
fn any_traffic_counts_as_a_sign_of_life() {
    let world = World::new(1);
    let client = wire::tuned(&world, 0);
    client.send_bytes(&wire::tune_ok(10, 4096, 1));
    client.send_bytes(&wire::open());
    client.send_bytes(&wire::method(1, channel::Open {}));
    for _ in 0..10 {
        world.advance(1_500);
        client.send_bytes(&wire::publish(1, "nowhere"));
        client.send_bytes(&wire::header(1, 60, 0, 0));
    }
    assert!(!client.is_ended());
}

#[test]
fn interval_zero_switches_heartbeats_off() {
    let world = World::new(1);
    let client = wire::opened(&world, 0, 4096);
    world.advance(24 * 3_600_000);
    assert_eq!(client.take_bytes(), b"");
    assert!(!client.is_ended());
}

#[test]
fn a_dropped_peer_leaves_its_messages_to_others() {
    let world = World::new(2);
    let alice = world.channel(0);
    alice.declare("q");
    alice.publish("", "q", "task");
    let mute = wire::tuned(&world, 1);
    mute.send_bytes(&wire::tune_ok(10, 4096, 1));
    mute.send_bytes(&wire::open());
    mute.send_bytes(&wire::method(1, channel::Open {}));
    mute.send_bytes(&wire::method(1, basic::Consume { queue: "q", ..Default::default() }));
    assert_eq!(world.queue("q").unacked, 1);
    world.advance(5_000);
    assert!(mute.is_ended());
    let message = alice.get("q").expect("the message is back");
    assert!(message.redelivered);
    assert_eq!(world.leaks(), [""; 0]);
}
