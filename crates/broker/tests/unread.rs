//! Clients that do not read, and what clients make the broker hold: all of it is bounded and
//! counted.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue};
use lepus_amqp::properties::Properties;
use lepus_sim::{Channel, Client, Limits, Options, World};

use crate::stage::{Stage, everywhere, everywhere_with};
use crate::wire;

const UNREAD_BYTES_MAX: usize = 256 * 1024;

fn impatient() -> Options {
    let limits = Limits { unread_bytes_max: UNREAD_BYTES_MAX, ..Limits::default() };
    Options { limits, ..Options::default() }
}

/// Bytes that all connections hold, as all shards count them.
fn held(world: &World, shards: u16) -> usize {
    (0..shards).map(|shard| world.broker(shard, |broker| broker.shard.connection_bytes)).sum()
}

fn shards(stage: &Stage) -> u16 {
    stage.world.broker(0, |broker| broker.shard.settings().shards)
}

/// Declares a queue with `count` messages of `size` bytes.
fn fill(channel: &Channel, queue: &str, count: usize, size: usize) {
    channel.declare(queue);
    channel.publish_all(queue, vec![vec![b'x'; size]; count]);
}

#[test]
fn answers_that_are_not_read_stop_the_reading_and_come_later() {
    everywhere_with(&impatient(), |stage| {
        let (near, far) = stage.pair();
        fill(&near, "q", 500, 10_000);
        far.client().stop_reading();
        for _ in 0..500 {
            far.send(basic::Get { queue: "q", no_ack: true });
        }
        stage.world.settle();
        let bytes = held(&stage.world, shards(stage));
        assert!(bytes < 2 * UNREAD_BYTES_MAX, "{bytes}");
        assert!(stage.world.queue("q").ready > 300);
        far.client().read_again();
        let answers = far.order().len();
        assert!(answers >= 500, "{answers}");
        assert_eq!(stage.world.queue("q").ready, 0);
        stage.world.advance(60_000);
        assert!(held(&stage.world, shards(stage)) < 50_000);
    });
}

/// What a client says behind a question that waits for its answer, and its end before that comes.
fn parked_and_ended(closes: bool, say: impl Fn(&Channel), count: usize) -> World {
    let world = World::with(Options { shards: 2, ..impatient() });
    let (near, far) = (world.channel(0), world.channel(1));
    // It stays on its shard.
    far.declare_exclusive("");
    fill(&near, "q", count, 10_000);
    world.quietly(|| {
        say(&far);
        (0..3).for_each(|_| world.round_without(&[0]));
        if closes { far.client().say_close() } else { far.client().reset() }
    });
    world.settle();
    world
}

#[test]
fn what_was_asked_for_by_a_client_that_is_gone_stays_for_others() {
    for closes in [false, true] {
        let gets = |far: &Channel| {
            for _ in 0..500 {
                far.send(basic::Get { queue: "q", no_ack: true });
            }
            far.publish("", "q", "said before the end");
        };
        let world = parked_and_ended(closes, gets, 500);
        let near = world.channel(0);
        let left: Vec<_> = core::iter::from_fn(|| near.get_no_ack("q")).collect();
        // A few were asked for before the end was seen.
        assert!(left.len() > 450, "{} messages are left", left.len());
        assert_eq!(left.last().unwrap().text(), "said before the end");
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn what_follows_the_questions_of_a_client_that_is_gone_is_done() {
    for closes in [false, true] {
        let say = |far: &Channel| {
            far.send(basic::Get { queue: "q", no_ack: false });
            far.send(basic::Get { queue: "q", no_ack: false });
            far.send(basic::Ack { delivery_tag: 2, multiple: true });
            far.send(queue::Declare { queue: "own", auto_delete: true, ..Default::default() });
            far.send(basic::Consume { queue: "own", ..Default::default() });
            let reply_to = "amq.rabbitmq.reply-to";
            far.send(basic::Consume { queue: reply_to, no_ack: true, ..Default::default() });
            let properties = Properties { reply_to: Some(reply_to.into()), ..Default::default() };
            far.publish_with("", "q", &properties, "question");
            far.publish("", "q", "last");
        };
        let world = parked_and_ended(closes, say, 5);
        assert_eq!(world.queue("q").ready, 5, "two were acknowledged, two came");
        // One that never had a consumer would stay for ever.
        let declare = queue::Declare { queue: "own", passive: true, ..Default::default() };
        assert_eq!(world.channel(0).refused(declare).code, ReplyCode::NOT_FOUND);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_message_for_each_of_very_many_channels_does_not_come_at_once() {
    everywhere_with(&impatient(), |stage| {
        let near = stage.near();
        fill(&near, "q", 300, 100_000);
        let client = stage.far_client();
        let channels: Vec<Channel> = (0..300).map(|_| client.channel()).collect();
        client.stop_reading();
        for channel in &channels {
            channel.send(basic::Get { queue: "q", no_ack: true });
        }
        stage.world.settle();
        let bytes = held(&stage.world, shards(stage));
        assert!(bytes < UNREAD_BYTES_MAX + 20 * 110_000, "{bytes}");
        client.read_again();
        for channel in &channels {
            assert_eq!(channel.order().len(), 2, "it was opened, and has its message");
        }
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn returned_messages_that_are_not_read_stop_the_publisher() {
    everywhere_with(&impatient(), |stage| {
        let far = stage.far();
        far.client().stop_reading();
        for _ in 0..200 {
            far.publish_mandatory("", "nobody", vec![b'x'; 10_000]);
        }
        let bytes = held(&stage.world, shards(stage));
        assert!(bytes < 2 * UNREAD_BYTES_MAX + 200_000, "{bytes}");
        far.client().read_again();
        assert_eq!(far.returns().len(), 200);
    });
}

/// Who answers, who has asked, and the address to which the answers go.
fn one_who_waits_for_replies(stage: &Stage) -> (Channel, Channel, String) {
    let (server, client) = stage.pair();
    server.declare("rpc");
    client.consume_no_ack("amq.rabbitmq.reply-to", "replies");
    let reply_to = Some("amq.rabbitmq.reply-to".into());
    let properties = Properties { reply_to, ..Properties::default() };
    client.publish_with("", "rpc", &properties, "question");
    let address = server.get_no_ack("rpc").unwrap().properties.reply_to.unwrap();
    (server, client, address)
}

#[test]
fn dropped_direct_replies_are_told_once_a_second_and_none_is_forgotten() {
    everywhere_with(&impatient(), |stage| {
        let (server, client, address) = one_who_waits_for_replies(stage);
        client.client().stop_reading();
        // These fill its buffers.
        server.publish_with("", &address, &Properties::default(), vec![b'x'; 3 * UNREAD_BYTES_MAX]);
        let dropped = || {
            let mut events = stage.world.events();
            events.retain(|event| event.kind == "reply-dropped");
            events.into_iter().map(|event| event.text).collect::<Vec<_>>()
        };
        assert_eq!(dropped(), [""; 0]);
        let answer = |count: usize| {
            server.client().together(|| (0..count).for_each(|_| server.publish("", &address, "")));
        };
        answer(5_000);
        let told = dropped();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].ends_with(": a direct reply is dropped, the client reads too slowly"));
        answer(300);
        assert_eq!(dropped(), [""; 0]);
        stage.world.advance(1_000);
        let more =
            |count| format!("{count} more direct replies are dropped, clients read too slowly");
        assert_eq!(dropped(), [more(5_299)]);
        answer(2);
        stage.world.advance(3_000);
        assert_eq!(dropped(), [more(2)]);
        answer(1);
        let told = dropped();
        assert!(told.len() == 1 && told[0].contains(": a direct reply is dropped"), "{told:?}");
        stage.world.advance(3_000);
        assert_eq!(dropped(), [""; 0]);
    });
}

#[test]
fn who_does_not_read_direct_replies_loses_them() {
    everywhere_with(&impatient(), |stage| {
        let (server, client, address) = one_who_waits_for_replies(stage);
        client.client().stop_reading();
        for _ in 0..200 {
            server.publish("", &address, vec![b'x'; 10_000]);
        }
        let bytes = held(&stage.world, shards(stage));
        assert!(bytes < 2 * UNREAD_BYTES_MAX, "{bytes}");
        client.client().read_again();
        let came = client.deliveries().len();
        assert!((20..200).contains(&came), "{came}");
        server.publish("", &address, "at last");
        assert_eq!(client.delivery().text(), "at last");
    });
}

/// Large messages in queues of `count` consumers that do not read.
fn slow_consumers(stage: &Stage, count: usize, body: &[u8]) -> Vec<Channel> {
    let near = stage.near();
    let consumers: Vec<Channel> = (0..count)
        .map(|number| {
            let queue = format!("q{number}");
            near.declare(&queue);
            near.bind(&queue, "amq.fanout", "");
            let channel = if number % 2 == 0 { stage.near() } else { stage.far() };
            if number % 4 < 2 {
                channel.consume(&queue, "c");
            } else {
                channel.consume_no_ack(&queue, "c");
            }
            channel.client().stop_reading();
            channel
        })
        .collect();
    near.publish("amq.fanout", "", body);
    near.publish("amq.fanout", "", "small");
    consumers
}

#[test]
fn a_large_message_is_not_encoded_for_each_of_its_consumers() {
    everywhere(|stage| {
        let body: Vec<u8> = (0..4_000_000).map(|place| (place / 997) as u8).collect();
        let consumers = slow_consumers(stage, 8, &body);
        let bytes = held(&stage.world, shards(stage));
        assert!(bytes < 8 * 600_000, "{bytes}");
        for channel in &consumers {
            channel.client().read_again();
            let deliveries = channel.deliveries();
            assert_eq!(deliveries.len(), 2, "{:?}", stage.world.leaks());
            assert!(deliveries[0].body == body);
            assert_eq!(deliveries[1].text(), "small");
        }
        for channel in consumers {
            channel.client().close();
        }
    });
}

#[test]
fn consumers_may_leave_in_the_middle_of_a_large_message() {
    everywhere(|stage| {
        let body = vec![b'x'; 2_000_000];
        let consumers = slow_consumers(stage, 8, &body);
        for (number, channel) in consumers.iter().enumerate() {
            let client: &Client = channel.client();
            match number {
                0 | 3 => client.reset(),
                1 | 2 => {
                    // Its close is answered at once: it need not read the rest.
                    client.say_close();
                    client.read_again();
                    assert!(client.closed().is_some());
                }
                4 | 7 => {
                    // The broker's close follows whole frames.
                    client.send(9, queue::Purge::default());
                    client.read_again();
                    assert!(client.closed().is_some());
                }
                _ => {
                    channel.send(queue::Declare { queue: "amq.not-allowed", ..Default::default() });
                    client.read_again();
                    assert!(!channel.is_open());
                    assert!(channel.deliveries()[0].body == body);
                }
            }
        }
    });
}

#[test]
fn a_large_message_is_fetched_from_anywhere() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let body: Vec<u8> = (0..1_000_000).map(|place| (place / 991) as u8).collect();
        fill(&near, "q", 0, 0);
        near.publish("", "q", &body);
        for _ in 0..2 {
            let message = far.get("q").unwrap();
            assert!(message.body == body);
            far.reject(message.tag, true);
        }
        assert!(near.get_no_ack("q").unwrap().body == body);
    });
}

#[test]
fn what_connections_hold_counts_as_memory_until_it_is_gone() {
    let world = World::new(1);
    let before = held(&world, 1);
    // Half a message.
    let half = world.channel(0);
    half.client().send_bytes(&wire::publish(1, "q"));
    half.client().send_bytes(&wire::header(1, 60, 0, 1_000_000));
    half.client().send_bytes(&wire::body(1, &vec![b'x'; 100_000]));
    assert!(held(&world, 1) >= before + 100_000);
    let memory = world.broker(0, |broker| broker.shard.memory());
    assert!(memory >= 100_000);
    half.client().reset();
    // A transaction, in messages and in acknowledgements.
    let tx = world.channel(0);
    tx.declare("q");
    tx.tx_select();
    tx.publish("", "q", vec![b'x'; 50_000]);
    assert!(held(&world, 1) >= 50_000);
    tx.tx_rollback();
    assert!(held(&world, 1) < 50_000);
    tx.publish("", "q", vec![b'x'; 50_000]);
    tx.tx_commit();
    assert!(held(&world, 1) < 50_000);
    tx.publish("", "q", vec![b'x'; 50_000]);
    tx.close();
    assert!(held(&world, 1) < 50_000);
    // Half a frame.
    let frame = world.channel(0);
    let publish = wire::method(1, queue::Purge { queue: &"q".repeat(255), no_wait: false });
    frame.client().send_bytes(&publish[..200]);
    assert!(held(&world, 1) >= 200);
    frame.client().reset();
    tx.client().close();
    assert_eq!(held(&world, 1), 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn frames_that_wait_for_an_answer_are_bounded_for_the_whole_connection() {
    let limits = Limits { parked_bytes_max: 100_000, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    everywhere_with(&options, |stage| {
        let client = stage.far_client();
        let channels: Vec<Channel> = (0..20).map(|_| client.channel()).collect();
        // All that is said at once: every channel asks for a queue and publishes behind it.
        client.together(|| {
            for (number, channel) in channels.iter().enumerate() {
                let queue = format!("q{number}");
                channel.send(queue::Declare { queue: &queue, ..Default::default() });
                for _ in 0..20 {
                    channel.publish("", &queue, vec![b'x'; 2_000]);
                }
            }
        });
        for number in 0..20 {
            assert_eq!(stage.world.queue(&format!("q{number}")).ready, 20);
        }
        client.close();
        assert_eq!(held(&stage.world, shards(stage)), 0);
    });
}

#[test]
fn half_messages_end_where_no_memory_is_left_for_them() {
    let limits = Limits { memory_bytes: 1_000_000, ..Limits::default() };
    let server =
        lepus_amqp::server::ServerOptions { body_bytes_max: 1_000_000, ..Default::default() };
    let world = World::with(Options { limits, server, ..Options::default() });
    let begin = || {
        let channel = world.channel(0);
        channel.client().send_bytes(&wire::publish(1, "q"));
        channel.client().send_bytes(&wire::header(1, 60, 0, 900_000));
        for _ in 0..8 {
            channel.client().send_bytes(&wire::body(1, &vec![b'x'; 100_000]));
        }
        channel
    };
    let begun: Vec<Channel> = (0..10).map(|_| begin()).collect();
    let alive = begun.iter().filter(|channel| channel.client().is_open()).count();
    assert!((2..=3).contains(&alive), "{alive}");
    let closed = begun.iter().find_map(|channel| channel.client().closed()).unwrap();
    assert_eq!(closed.code, lepus_amqp::code::ReplyCode::RESOURCE_ERROR);
    assert!(held(&world, 1) < 3_000_000);
    // Those that were there first can end what they began.
    for channel in begun.iter().filter(|channel| channel.client().is_open()) {
        channel.client().send_bytes(&wire::body(1, &vec![b'x'; 100_000]));
        channel.client().close();
    }
    assert_eq!(held(&world, 1), 0);
    assert_eq!(world.leaks(), [""; 0]);
}
