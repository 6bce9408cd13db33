//! What a channel asks of a queue on another shard, while a message that it published waits there
//! for room on the disk.

use lepus_amqp::method::{Method, basic, channel, queue};
use lepus_sim::{Channel, World};

use crate::restart::{durable, persistent};

/// A full disk and a durable queue `q` on shard 1 with one message, `old`, that needs none.
fn full_disk() -> World {
    let world = World::on_disk(2);
    let home = world.channel(1);
    durable(&home, "q");
    home.publish("", "q", "old");
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    world
}

/// A channel on shard 0 that stays there.
fn far(world: &World) -> Channel {
    let client = world.connect(0);
    client.channel().declare_exclusive("");
    client.channel()
}

/// Publishes what has no room, without confirms, and asks in the same breath.
fn publish_and_ask<'a>(channel: &Channel, question: impl Into<Method<'a>>) {
    channel.client().together(|| {
        channel.publish_with("", "q", &persistent(), vec![b'n'; 400_000]);
        channel.send(question);
    });
    channel.client().world().advance(1_000);
    assert_eq!(channel.answer(), None, "before what it published has room");
}

fn make_room(world: &World) {
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(10_000);
}

#[test]
fn it_waits_for_the_message_and_another_channel_does_not() {
    let questions: [(Method<'_>, &str); 5] = [
        (basic::Get { queue: "q", no_ack: true }.into(), "basic.get-ok"),
        (queue::Purge { queue: "q", no_wait: false }.into(), "queue.purge-ok"),
        (
            queue::Declare { queue: "q", passive: true, ..Default::default() }.into(),
            "queue.declare-ok",
        ),
        (queue::Delete { queue: "q", ..Default::default() }.into(), "queue.delete-ok"),
        (
            basic::Consume { queue: "q", consumer_tag: "c", no_ack: true, ..Default::default() }
                .into(),
            "basic.consume-ok",
        ),
    ];
    for (question, answer) in questions {
        let world = full_disk();
        let (channel, other) = (far(&world), far(&world));
        publish_and_ask(&channel, question);
        assert_eq!(other.passive("q").messages, 1);
        assert_eq!(other.get_no_ack("q").expect("a message").text(), "old");
        make_room(&world);
        let answer = channel.expect(answer);
        match answer.method() {
            Method::BasicGetOk(ok) => assert_eq!(ok.message_count, 0),
            Method::QueuePurgeOk(ok) => assert_eq!(ok.message_count, 1),
            Method::QueueDeclareOk(ok) => assert_eq!(ok.message_count, 1),
            Method::QueueDeleteOk(ok) => assert_eq!(ok.message_count, 1),
            _ => assert_eq!(channel.delivery().body.len(), 400_000),
        }
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn the_end_of_its_connection_waits_for_no_room() {
    let world = full_disk();
    let channel = far(&world);
    channel.get("q").expect("a message");
    publish_and_ask(&channel, queue::Purge { queue: "q", no_wait: false });
    channel.client().reset();
    world.advance(1_000);
    let found = world.queue("q");
    assert_eq!((found.ready, found.unacked), (1, 0));
    make_room(&world);
    assert_eq!(world.queue("q").ready, 2);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn its_channel_closes_behind_it() {
    let world = full_disk();
    let channel = far(&world);
    publish_and_ask(&channel, basic::Get { queue: "q", no_ack: false });
    channel.send(channel::Close { reply_code: 200, reply_text: "", class_id: 0, method_id: 0 });
    make_room(&world);
    assert_eq!(channel.order()[1..], ["basic.get-ok", "channel.close-ok"]);
    let found = world.queue("q");
    assert_eq!((found.ready, found.unacked), (2, 0));
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn the_broker_stops_when_the_message_has_room() {
    let world = full_disk();
    let channel = far(&world);
    publish_and_ask(&channel, queue::Purge { queue: "q", no_wait: false });
    world.shut_down();
    world.advance(1_000);
    make_room(&world);
    world.stop();
    world.start_again(2);
    assert_eq!(world.queue("q").ready, 1);
}
