//! The server stops, and operators close connections.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{connection, queue};
use lepus_sim::World;

use crate::stage::everywhere;
use crate::wire;

#[test]
fn every_client_is_told_that_the_server_stops() {
    everywhere(|stage| {
        let clients = [stage.near_client(), stage.far_client(), stage.near_client()];
        let consumer = clients[0].channel();
        consumer.declare("q");
        consumer.consume("q", "c");
        stage.world.shut_down();
        for client in &clients {
            let text = client.expect_closed(ReplyCode::CONNECTION_FORCED);
            assert!(text.starts_with("CONNECTION_FORCED - "), "{text}");
            assert!(text.contains("shutdown"), "{text}");
        }
        for shard in 0..stage.world.broker(0, |broker| broker.shard.settings().shards) {
            let connections = stage.world.broker(shard, |broker| broker.connections.len());
            assert_eq!(connections, 0);
        }
    });
}

#[test]
fn a_client_that_does_not_answer_is_dropped() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    let early = world.dial(0);
    world.shut_down();
    assert_eq!(wire::close_in(&raw.take_bytes()).0, 320);
    assert!(early.is_ended());
    assert!(!raw.is_ended());
    world.advance(11_000);
    assert!(raw.is_ended());
    assert_eq!(world.leaks(), [""; 0]);
    // It did not end in order; whoever had not logged in had nothing to answer.
    assert_eq!(world.cut(0), 1);
}

#[test]
fn who_ends_its_side_behind_its_close_is_answered() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        let raw = wire::opened(&world, shards - 1, 131_072);
        // The queue has to be on the disk first; the close stands behind it.
        let queue = queue::Declare { queue: "q", durable: true, ..Default::default() };
        let close = connection::Close { reply_code: 200, ..Default::default() };
        let mut bytes = wire::method(1, queue);
        bytes.extend(wire::publish(1, "q"));
        bytes.extend(wire::header(1, 60, 0, 4));
        bytes.extend(wire::body(1, b"last"));
        bytes.extend(wire::method(0, close));
        raw.send_last(&bytes);
        let names = wire::names(&raw.take_bytes());
        assert_eq!(names.last().copied(), Some("connection.close-ok"), "{names:?}");
        assert!(raw.is_ended());
        assert_eq!(world.queue("q").ready, 1);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_close_from_both_sides_at_once_ends_well() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    world.shut_down();
    let close = connection::Close { reply_code: 200, ..Default::default() };
    raw.send_bytes(&wire::method(0, close));
    let names = wire::names(&raw.take_bytes());
    assert_eq!(names, ["connection.close", "connection.close-ok"]);
    raw.send_bytes(&wire::method(0, connection::CloseOk {}));
    assert!(raw.is_ended());
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_client_that_keeps_its_socket_after_close_ok_is_dropped_after_a_while() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    let close = connection::Close { reply_code: 200, ..Default::default() };
    raw.send_bytes(&wire::method(0, close));
    assert_eq!(wire::names(&raw.take_bytes()), ["connection.close-ok"]);
    world.advance(60_000);
    assert!(raw.is_ended());
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn nobody_is_let_in_any_more() {
    let world = World::new(2);
    world.shut_down();
    let late = world.connect_with(1, World::login("guest", "guest", "/"));
    assert!(!late.is_open());
    assert!(late.is_ended());
}
