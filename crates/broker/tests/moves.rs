//! Connections that the balancer sends to another shard.

use lepus_amqp::client::encode_publish;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, exchange, queue};
use lepus_amqp::properties::Properties;
use lepus_broker::directory::Request;
use lepus_sim::{Channel, Client, World};

pub fn texts(channel: &Channel, queue: &str) -> Vec<String> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).map(|message| message.text()).collect()
}

pub fn numbers(range: core::ops::Range<u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// All that a consumer gets, acknowledged as it comes if `acks`.
pub fn consumed(consumer: &Channel, acks: bool) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let messages = consumer.deliveries();
        let Some(last) = messages.last() else { return texts };
        if acks {
            consumer.ack_up_to(last.tag);
        }
        texts.extend(messages.iter().map(|message| message.text()));
    }
}

/// The kinds of the log's lines since the last look.
fn kinds(world: &World) -> Vec<&'static str> {
    let is_about_moves =
        |kind: &&str| kind.starts_with("connection-moved") || kind.ends_with("stays");
    world.events().iter().map(|event| event.kind).filter(is_about_moves).collect()
}

#[test]
fn a_publisher_goes_where_it_is_sent_and_publishes_from_there() {
    let world = World::new(2);
    let publisher = world.channel(0);
    publisher.declare("q");
    publisher.publish("", "q", "0");
    publisher.client().send_to(1);
    assert_eq!(publisher.client().shard(), Some(1));
    publisher.publish("", "q", "1");
    let counters = world.counters();
    assert_eq!((counters.moved, counters.enqueued_local, counters.enqueued_remote), (1, 1, 1));
    let lines = world.events();
    let line = lines.iter().find(|event| event.kind == "connection-moved").unwrap();
    assert!(line.text.ends_with("from shard 0 to 1; the simulator wants it"), "{}", line.text);
    world.advance(1_000);
    publisher.client().send_to(0);
    assert_eq!(publisher.client().shard(), Some(0));
    publisher.publish("", "q", "2");
    assert_eq!(texts(&publisher, "q"), numbers(0..3));
    publisher.client().close();
    assert_eq!(world.leaks(), [""; 0]);
}

/// Publishes while the connection goes from shard to shard, with what was said on its way.
fn publish_on_the_move(world: &World, persistent: bool) {
    let near = world.channel(0);
    near.declare("q");
    near.declare("other");
    near.bind("q", "amq.fanout", "");
    near.bind("other", "amq.fanout", "");
    let publisher = world.channel(0);
    publisher.confirm_select();
    let delivery_mode = persistent.then_some(2);
    let properties = Properties { delivery_mode, ..Properties::default() };
    let mut number = 0;
    for round in 0..40_u16 {
        world.quietly(|| {
            for _ in 0..10 {
                let (exchange, key) = if number % 3 == 0 { ("amq.fanout", "") } else { ("", "q") };
                publisher.publish_with(exchange, key, &properties, number.to_string());
                number += 1;
            }
            if round % 2 == 0 {
                for _ in 0..round % 5 {
                    world.round();
                }
            }
            publisher.client().send_to(round % world.shards());
        });
        for _ in 0..round % 7 {
            world.round();
        }
        publisher.publish_with("", "q", &properties, number.to_string());
        number += 1;
        world.advance(1_100);
        assert_eq!(publisher.client().shard(), Some(round % world.shards()));
    }
    assert_eq!(publisher.confirmed().0, (1..=number).collect::<Vec<u64>>());
    assert_eq!(texts(&near, "q"), numbers(0..number));
    assert!(world.counters().moved > 20, "{}", world.counters().moved);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn order_and_confirms_hold_whatever_moves() {
    publish_on_the_move(&World::new(3), false);
    publish_on_the_move(&World::new(8), true);
    publish_on_the_move(&World::on_disk(3), true);
    publish_on_the_move(&World::on_disk(4), false);
}

#[test]
fn a_connection_waits_for_its_confirms_before_it_goes() {
    let world = World::on_disk(2);
    let publisher = world.channel(0);
    publisher.declare_method(lepus_amqp::method::queue::Declare {
        queue: "q",
        durable: true,
        ..Default::default()
    });
    publisher.confirm_select();
    let properties = Properties { delivery_mode: Some(2), ..Properties::default() };
    world.quietly(|| {
        publisher.publish_with("", "q", &properties, "x");
        world.round();
        world.turn(0);
        publisher.client().send_to(1);
        // The disk is asked and has not answered.
        world.turn(0);
        assert_eq!(publisher.client().shard(), Some(0));
    });
    world.settle();
    assert_eq!(publisher.client().shard(), Some(1));
    assert_eq!(publisher.confirmed().0, [1]);
}

#[test]
fn what_ties_a_connection_keeps_it() {
    type Tie = fn(&Channel);
    let ties: [(&str, Tie); 5] = [
        ("consumer", |channel| channel.consume("q", "c")),
        ("unacked", |channel| {
            channel.publish("", "q", "x");
            assert!(channel.get("q").is_some());
        }),
        ("transaction", |channel| channel.tx_select()),
        ("exclusive queue", |channel| {
            channel.declare_exclusive("");
        }),
        ("reply consumer", |channel| channel.consume_no_ack("amq.rabbitmq.reply-to", "r")),
    ];
    for (what, tie) in ties {
        let world = World::new(2);
        world.channel(0).declare("q");
        let channel = world.channel(0);
        tie(&channel);
        channel.client().send_to(1);
        assert_eq!(channel.client().shard(), Some(0), "{what}");
        assert_eq!(world.counters().moved, 0, "{what}");
        let other = channel.client().channel();
        other.publish("", "q", "it is read");
        assert_eq!(world.counters().moves_given_up, 0, "{what}");
        assert_eq!(world.leaks(), [""; 0], "{what}");
    }
}

#[test]
fn nowhere_is_no_place_to_go_to() {
    let world = World::new(3);
    let publisher = world.channel(0);
    publisher.declare("q");
    for nowhere in [0, 3, u16::MAX] {
        publisher.client().send_to(nowhere);
        assert_eq!(publisher.client().shard(), Some(0));
    }
    publisher.publish("", "q", "it is read");
    assert_eq!(world.counters().moves_given_up, 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_connection_stays_a_second_where_it_was_sent_whatever_it_names() {
    let world = World::new(2);
    let publisher = world.channel(0);
    publisher.declare("q");
    publisher.client().send_to(1);
    publisher.declare("q");
    assert_eq!(publisher.client().shard(), Some(1));
}

#[test]
fn half_a_message_goes_along() {
    let world = World::new(2);
    let publisher = world.channel(0);
    publisher.declare("q");
    let body: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
    let mut bytes = Vec::new();
    let number = publisher.number();
    encode_publish(&mut bytes, number, 4096, "", "q", false, &[0, 0], &body);
    let mut next = 0;
    for (cut, shard) in [(30, 1), (8_000, 0), (100_001, 1), (200_000, 0)] {
        publisher.client().send_bytes(&bytes[next..cut]);
        next = cut;
        publisher.client().send_to(shard);
        assert_eq!(publisher.client().shard(), Some(shard));
        world.advance(1_000);
    }
    publisher.client().send_bytes(&bytes[next..]);
    publisher.publish("", "q", "after");
    assert!(publisher.get_no_ack("q").unwrap().body == body);
    assert_eq!(publisher.get_no_ack("q").unwrap().text(), "after");
    assert_eq!(world.leaks(), [""; 0]);
}

/// A connection that cannot go because its client does not take what it asked for, on its way to
/// shard 1.
fn stuck(world: &World) -> Client {
    let client = world.connect(0);
    let channel = client.channel();
    channel.declare("q");
    channel.declare("large");
    channel.publish("", "large", vec![7; 2_000_000]);
    client.stop_reading();
    channel.send(basic::Get { queue: "large", no_ack: true });
    client.send_to(1);
    assert_eq!(client.shard(), Some(0));
    channel.publish("", "q", "not read yet");
    assert_eq!(world.queue("q").ready, 0);
    client
}

#[test]
fn a_closing_channel_is_answered_where_it_is() {
    // The client's word that the channel is closed comes only if the connection is read.
    let world = World::new(2);
    let client = world.connect(0);
    let (one, two) = (client.channel_number(1), client.channel_number(2));
    two.declare("q");
    client.stop_reading();
    one.publish("missing", "", "x");
    client.send_to(1);
    two.publish("", "q", "read at once");
    assert_eq!(world.queue("q").ready, 1);
    assert_eq!((client.shard(), world.counters().moves_given_up), (Some(0), 0));
    client.read_again();
    client.send_to(1);
    assert_eq!(client.shard(), Some(1));

    // One that is about to go is read again when a channel fails.
    let world = World::new(2);
    let client = world.connect(0);
    let (one, two) = (client.channel_number(1), client.channel_number(2));
    two.declare("q");
    client.stop_reading();
    world.quietly(|| {
        one.send(basic::Get { queue: "missing", ..Default::default() });
        two.publish("", "q", "read soon");
        world.turn(0);
        client.send_to(1);
    });
    world.settle();
    assert_eq!(world.queue("q").ready, 1);
    client.read_again();
    client.close();
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_move_that_takes_too_long_is_given_up() {
    let world = World::new(2);
    let client = stuck(&world);
    world.advance(2_000);
    assert_eq!(client.shard(), Some(0));
    assert_eq!(world.queue("q").ready, 1, "it is read again");
    assert_eq!(world.counters().moves_given_up, 1);
    assert_eq!(kinds(&world), ["connection-stays"]);
    client.read_again();
    client.send_to(1);
    assert_eq!(client.shard(), Some(1));
    client.close();
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_connection_may_end_on_its_way() {
    let world = World::new(2);
    let client = stuck(&world);
    client.reset();
    assert_eq!(client.shard(), None);
    world.advance(5_000);
    assert_eq!(world.leaks(), [""; 0]);
    assert_eq!(world.counters().moves_given_up, 0);

    let world = World::new(2);
    let client = stuck(&world);
    world.shut_down();
    client.read_again();
    world.advance(5_000);
    client.expect_closed(ReplyCode::CONNECTION_FORCED);
}

/// A connection between shard 1 and shard 0.
fn between(world: &World) -> Client {
    world.add_vhost("v");
    world.permit("guest", "v", ".*", ".*", ".*");
    let client = world.connect_with(1, World::login("guest", "guest", "v")).open();
    client.channel().declare("q");
    world.quietly(|| client.send_to(0));
    world.turn(1);
    assert_eq!(client.shard(), None);
    client
}

#[test]
fn what_ends_a_connection_finds_it_between_two_shards() {
    let world = World::new(2);
    let client = between(&world);
    world.request(Request::DeleteVhost { name: "v".into() }).unwrap();
    assert_eq!(
        client.expect_closed(ReplyCode::CONNECTION_FORCED),
        "CONNECTION_FORCED - vhost is deleted"
    );

    let world = World::new(2);
    let client = between(&world);
    world.request(Request::DeleteUser { name: "guest".into() }).unwrap();
    assert_eq!(
        client.expect_closed(ReplyCode::CONNECTION_FORCED),
        "CONNECTION_FORCED - user is deleted"
    );

    let world = World::new(2);
    let client = between(&world);
    world.shut_down();
    client.expect_closed(ReplyCode::CONNECTION_FORCED);

    let world = World::new(2);
    let client = between(&world);
    client.expel();
    let text = client.expect_closed(ReplyCode::CONNECTION_FORCED);
    assert_eq!(text, "CONNECTION_FORCED - an operator wants it");
}

#[test]
fn a_mandatory_direct_reply_returns_to_a_publisher_that_is_on_its_way() {
    let world = World::new(3);
    let asker = world.channel(2);
    asker.consume_no_ack("amq.rabbitmq.reply-to", "r");
    let server = world.channel(1);
    server.declare("questions");
    let properties =
        Properties { reply_to: Some("amq.rabbitmq.reply-to".into()), ..Properties::default() };
    asker.publish_with("", "questions", &properties, "?");
    let question = server.get_no_ack("questions").unwrap();
    let to = question.properties.reply_to.clone().unwrap();
    asker.cancel("r");
    world.quietly(|| {
        server.publish_mandatory("", &to, "!");
        world.round();
        server.client().send_to(0);
    });
    world.settle();
    assert_eq!(server.client().shard(), Some(0));
    assert_eq!(server.returns().len(), 1);
}

#[test]
fn what_was_agreed_on_goes_along() {
    let world = World::new(2);
    let client = world.connect(0);
    let (one, two) = (client.channel_number(1), client.channel_number(9));
    one.declare("q");
    one.qos(1);
    two.confirm_select();
    two.publish("", "q", "a");
    two.publish("", "q", "b");
    client.send_to(1);
    assert_eq!(client.shard(), Some(1));
    two.publish("", "q", "c");
    assert_eq!(two.confirmed().0, [1, 2, 3]);
    one.exchange_method(exchange::Declare {
        exchange: "x",
        r#type: "fanout",
        ..Default::default()
    });
    // Its first consumer takes it back to the queue.
    world.advance(1_000);
    one.send(basic::Consume { queue: "q", consumer_tag: "c", ..Default::default() });
    one.expect("basic.consume-ok");
    for body in ["a", "b", "c"] {
        let message = one.delivery();
        one.expect_none();
        assert_eq!(message.text(), body);
        one.ack(message.tag);
    }
    client.close();
    assert_eq!(world.leaks(), [""; 0]);
}

/// A connection that lives on a shard because something it declared there is its own.
fn consumer_of(world: &World, shard: u16, queue: &str) -> Channel {
    let client = world.connect(shard);
    client.channel().declare_exclusive("anchor");
    let channel = client.channel();
    channel.qos(5);
    channel.consume(queue, "c");
    client.channel().delete("anchor");
    channel
}

#[test]
fn consumers_go_to_their_queue_with_what_they_have_unacknowledged() {
    for world in [World::new(3), World::on_disk(3)] {
        let near = world.channel(0);
        near.declare("q");
        let consumer = consumer_of(&world, 2, "q");
        assert_eq!((world.queue("q").home, consumer.client().shard()), (0, Some(2)));
        near.publish_all("q", numbers(0..20));
        let first = consumer.deliveries();
        assert_eq!(first.len(), 5);
        consumer.client().send_to(0);
        assert_eq!(consumer.client().shard(), Some(0));
        assert_eq!(world.counters().moved, 1);
        consumer.expect_none();
        consumer.ack_up_to(first[2].tag);
        consumer.reject(first[4].tag, true);
        consumer.ack(first[3].tag);
        let mut received = consumed(&consumer, true);
        received.sort_by_key(|text| text.parse::<u64>().unwrap());
        assert_eq!(received, numbers(4..20));
        assert_eq!(world.counters().delivered_remote, 5);
        near.publish("", "q", "x");
        assert_eq!(consumer.bodies(), ["x"]);
        assert_eq!(world.counters().delivered_remote, 5);
        consumer.client().close();
        assert_eq!(texts(&near, "q"), ["x"]);
        near.client().close();
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn consumers_go_in_the_middle_of_a_stream_and_its_order_holds() {
    for no_ack in [false, true] {
        let world = World::new(4);
        let near = world.channel(0);
        near.declare("q");
        let client = world.connect(3);
        client.channel().declare_exclusive("anchor");
        let consumer = client.channel();
        consumer.qos(9);
        match no_ack {
            true => consumer.consume_no_ack("q", "c"),
            false => consumer.consume("q", "c"),
        }
        client.channel().delete("anchor");
        let mut received = vec![];
        let mut next = 0;
        for round in 0..30 {
            world.quietly(|| {
                for _ in 0..7 {
                    near.publish("", "q", next.to_string());
                    next += 1;
                }
                if round % 5 == 0 {
                    client.send_to(0);
                }
                for _ in 0..round % 4 {
                    world.round();
                }
            });
            world.settle();
            received.extend(consumed(&consumer, !no_ack));
        }
        assert_eq!(client.shard(), Some(0));
        assert_eq!(received, numbers(0..next));
    }
}

#[test]
fn a_consumer_goes_nowhere_but_to_its_queues_and_gets_on_where_it_stays() {
    let world = World::new(4);
    let (near, far) = (world.channel(0), world.channel(1));
    near.declare("q");
    far.declare("r");
    let consumer = consumer_of(&world, 3, "q");
    consumer.client().send_to(2);
    assert_eq!(consumer.client().shard(), Some(3));
    // The client does not read: what it was sent keeps it.
    consumer.client().stop_reading();
    near.publish_all("q", (0..5).map(|_| vec![b'x'; 100_000]));
    consumer.client().send_to(0);
    world.advance(2_000);
    assert_eq!((consumer.client().shard(), kinds(&world)), (Some(3), vec!["connection-stays"]));
    consumer.client().read_again();
    assert_eq!(consumer.deliveries().len(), 5);
    near.publish("", "q", "late");
    consumer.nack(0, true, true);
    assert_eq!(consumer.deliveries().len(), 5);
    // Queues on two shards.
    let other = consumer.client().channel();
    other.consume("r", "r");
    consumer.client().send_to(0);
    world.advance(2_000);
    assert_eq!(consumer.client().shard(), Some(3));
}

#[test]
fn a_queue_deleted_while_its_consumer_comes_cancels_it() {
    for rounds in 0..10 {
        let world = World::new(3);
        let near = world.channel(0);
        near.declare("q");
        let consumer = consumer_of(&world, 2, "q");
        world.quietly(|| {
            consumer.client().send_to(0);
            for _ in 0..rounds {
                world.round();
            }
            near.send(lepus_amqp::method::queue::Delete { queue: "q", ..Default::default() });
        });
        world.settle();
        world.advance(2_000);
        assert_eq!(consumer.cancelled(), ["c"], "after {rounds} rounds");
        consumer.client().close();
        near.client().close();
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_queue_and_its_consumer_may_set_out_at_once() {
    for rounds in 0..10 {
        let world = World::new(3);
        let near = world.channel(0);
        near.declare("q");
        let consumer = consumer_of(&world, 2, "q");
        world.quietly(|| {
            world.move_queue("q", 1);
            for _ in 0..rounds {
                world.round();
            }
            consumer.client().send_to(0);
            near.publish("", "q", "x");
        });
        world.settle();
        world.advance(2_000);
        let message = consumer.delivery();
        assert!(!message.redelivered);
        consumer.ack(message.tag);
        near.publish("", "q", "y");
        assert_eq!(consumer.bodies(), ["y"], "after {rounds} rounds");
    }
}

/// The consumer asks for its queue while the connection has begun to go there, which it gives up because of that.
#[test]
fn a_consumer_that_comes_while_its_connection_wants_to_go_gets_messages() {
    for rounds in 0..6 {
        let world = World::new(2);
        let consumer = world.channel(0);
        for queue in ["here", "there"] {
            consumer.declare(queue);
        }
        consumer.consume("here", "a");
        for queue in ["here", "there"] {
            world.move_queue(queue, 1);
            assert_eq!(world.queue(queue).home, 1);
        }
        consumer.publish("", "there", "x");
        world.quietly(|| {
            let passive = queue::Declare { queue: "here", passive: true, ..Default::default() };
            consumer.send(passive);
            let consume =
                basic::Consume { queue: "there", consumer_tag: "b", ..Default::default() };
            consumer.send(consume);
        });
        for _ in 0..rounds {
            world.round();
        }
        world.quietly(|| consumer.client().send_to(1));
        world.settle();
        let got: Vec<_> = consumer.deliveries().into_iter().map(|m| m.consumer).collect();
        assert_eq!(got, ["b"], "after {rounds} rounds");
    }
}
