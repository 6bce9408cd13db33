//! Publishes and acknowledgements that come many in one piece, each of which counts by itself.

use lepus_amqp::client::ClientOptions;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, confirm};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_base::Rng;
use lepus_sim::{Channel, Limits, Options, World};

use crate::stage::everywhere;
use crate::wire;

fn drain(channel: &Channel, queue: &str) -> Vec<String> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).map(|message| message.text()).collect()
}

#[test]
fn each_publish_goes_where_its_own_key_says() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for queue in ["one", "two", "twos"] {
            near.declare(queue);
        }
        for channel in [&near, &far] {
            let keys = ["one", "one", "two", "one", "twos", "two", "two", "one", "missing", "one"];
            channel.client().together(|| {
                for (place, key) in keys.iter().enumerate() {
                    channel.publish("", key, place.to_string());
                }
            });
            assert_eq!(drain(&near, "one"), ["0", "1", "3", "7", "9"]);
            assert_eq!(drain(&near, "two"), ["2", "5", "6"]);
            assert_eq!(drain(&near, "twos"), ["4"]);
        }
    });
}

#[test]
fn publishes_reach_the_queue_that_has_the_name_now() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for round in 0..3 {
            near.declare("q");
            for channel in [&near, &far] {
                channel.publish_all("q", ["1", "2", "3"]);
                assert_eq!(drain(&near, "q"), ["1", "2", "3"], "{round}");
            }
            near.delete("q");
            far.publish_all("q", ["lost", "lost"]);
        }
    });
}

/// While one is published that its own channel gets, the channel may need more memory for what it has not acknowledged.
#[test]
fn what_a_channel_remembers_is_counted_whatever_comes_to_it_meanwhile() {
    let world = World::new(1);
    let channel = world.channel(0);
    let queues: Vec<String> = (0..40).map(|number| format!("q{number}")).collect();
    queues.iter().for_each(|queue| drop(channel.declare(queue)));
    channel.consume("q0", "c");
    for _ in 0..20 {
        queues.iter().for_each(|queue| channel.publish("", queue, "x"));
    }
    for _ in 0..100 {
        // The second is one of a row.
        channel.publish_all("q0", ["1", "2"]);
        let (memory, walked) =
            world.broker(0, |broker| (broker.shard.memory(), broker.view().memory_by_walk()));
        assert_eq!(memory, walked);
    }
}

#[test]
fn properties_of_each_publish_count() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-max-priority", 9));
        near.declare("copies");
        let priority = |priority| Properties { priority, ..Properties::default() };
        let with_header = |name: &str, value: Value, priority| Properties {
            headers: Some(Table::new().with("before", 1).with(name, value)),
            priority,
            ..Properties::default()
        };
        let keys = || Value::Array(vec![Value::from("copies")]);
        let copied = with_header("CC", keys(), None);
        let hidden = with_header("BCC", keys(), Some(3));
        let numbered = with_header("number", Value::from(7), Some(7));
        for channel in [&near, &far] {
            channel.client().together(|| {
                channel.publish("", "q", "plain");
                channel.publish_with("", "q", &priority(Some(5)), "5");
                channel.publish("", "q", "plain too");
                channel.publish_with("", "q", &priority(Some(9)), "9");
                channel.publish_with("", "q", &numbered, "7");
                channel.publish_with("", "q", &numbered, "7 too");
                channel.publish_with("", "q", &copied, "copied");
                channel.publish_with("", "q", &hidden, "hidden");
                channel.publish("", "q", "the last");
            });
            let rest = ["plain", "plain too", "copied", "the last"];
            assert_eq!(
                drain(&near, "q"),
                [&["9", "7", "7 too", "5", "hidden"][..], &rest].concat()
            );
            assert_eq!(drain(&near, "copies"), ["copied", "hidden"]);
        }
    });
}

#[test]
fn what_a_full_queue_refuses_is_refused_one_by_one() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let full = Table::new().with("x-max-length", 3).with("x-overflow", "reject-publish");
        near.declare_with("q", full);
        for channel in [&near, &far] {
            channel.confirm_select();
            channel.publish_all("q", ["1", "2", "3", "4", "5"]);
            assert_eq!(channel.confirmed(), (vec![1, 2, 3], vec![4, 5]));
            assert_eq!(near.purge("q"), 3);
            channel.publish_all("q", ["6", "7"]);
            assert_eq!(channel.confirmed(), (vec![6, 7], vec![]));
            assert_eq!(near.purge("q"), 2);
        }
    });
}

#[test]
fn confirms_of_two_channels_and_two_keys_are_counted_apart() {
    everywhere(|stage| {
        let client = stage.near_client();
        let (one, two) = (client.channel(), client.channel());
        one.declare("q");
        for channel in [&one, &two] {
            channel.confirm_select();
        }
        client.together(|| {
            for _ in 0..5 {
                one.publish("", "q", "x");
                two.publish("", "q", "x");
                two.publish("", "q", "x");
                two.publish("", "missing", "x");
            }
        });
        assert_eq!(one.confirmed(), ((1..=5).collect(), vec![]));
        assert_eq!(two.confirmed(), ((1..=15).collect(), vec![]));
        assert_eq!(stage.world.counters().received_confirm, 20);
        assert_eq!(stage.world.queue("q").ready, 15);
    });
}

#[test]
fn a_permission_that_is_taken_away_holds_for_the_next_publish() {
    let world = World::new(1);
    let guest = world.channel(0);
    guest.declare("q");
    world.add_user("ann", "secret");
    world.permit("ann", "/", "", ".*", "");
    let ann = world.connect_as(0, "ann", "secret").channel();
    ann.publish_all("q", ["1", "2"]);
    world.permit("ann", "/", "", "", "");
    ann.publish_all("q", ["3", "4"]);
    assert_eq!(ann.expect_refused().code, ReplyCode::ACCESS_REFUSED);
    assert_eq!(drain(&guest, "q"), ["1", "2"]);
}

#[test]
fn malformed_properties_close_the_connection_behind_what_came_before() {
    let publish = |flags: &[u8]| {
        let mut header = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        header.extend_from_slice(flags);
        [wire::publish(1, "q"), wire::frame(2, 1, &header), wire::body(1, b"x")].concat()
    };
    let header_without_end = [0x20, 0, 0, 0, 0, 3, 1, b'a', b't'];
    for malformed in [&[0, 1][..], &[0x10, 0], &[0, 0, 0], &[0x18, 0, 1], &header_without_end] {
        let world = World::new(1);
        let watcher = world.channel(0);
        watcher.declare("q");
        let raw = wire::opened(&world, 0, 131_072);
        let bytes = [publish(&[0, 0]), publish(&[0, 0]), publish(malformed), publish(&[0, 0])];
        raw.send_bytes(&bytes.concat());
        let (code, _, cause) = wire::close_in(&raw.take_bytes());
        assert_eq!((code, cause), (502, (60, 40)), "{malformed:?}");
        assert_eq!(world.queue("q").ready, 2);
    }
}

#[test]
fn a_row_may_come_in_any_pieces() {
    for piece in [1, 7, 26, 50, 64] {
        let world = World::new(1);
        let consumer = world.channel(0);
        consumer.declare("q");
        consumer.consume_no_ack("q", "c");
        let raw = wire::opened(&world, 0, 131_072);
        let bodies = ["a", "", "ccc", "d", "", "", "gggg"];
        let mut bytes = wire::method(1, confirm::Select { no_wait: true });
        for body in bodies {
            bytes.extend(wire::publish(1, "q"));
            bytes.extend(wire::header(1, 60, 0, body.len() as u64));
            if !body.is_empty() {
                bytes.extend(wire::body(1, body.as_bytes()));
            }
        }
        for part in bytes.chunks(piece) {
            raw.send_bytes(part);
        }
        assert_eq!(consumer.bodies(), bodies);
        let mut confirmed = 0;
        wire::each_method(&raw.take_bytes(), |_, method| {
            if let lepus_amqp::Method::BasicAck(ack) = method {
                confirmed = ack.delivery_tag;
            }
        });
        assert_eq!(confirmed, 7);
    }
}

#[test]
fn deliveries_carry_the_names_and_properties_of_each_message() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.bind("q", "amq.direct", "a key");
        far.consume_no_ack("q", "a longer consumer tag");
        let typed = Properties { content_type: Some("text/x".into()), ..Properties::default() };
        near.client().together(|| {
            for _ in 0..3 {
                near.publish("", "q", "x");
            }
            for _ in 0..3 {
                near.publish_with("amq.direct", "a key", &typed, "y");
            }
        });
        let told: Vec<_> = (far.deliveries().into_iter())
            .map(|m| {
                let text = m.text();
                (m.tag, m.exchange, m.key, m.properties.content_type, text)
            })
            .collect();
        assert_eq!(told.len(), 6);
        for (place, (tag, exchange, key, content_type, text)) in told.iter().enumerate() {
            assert_eq!(*tag, place as u64 + 1);
            let expected = match place {
                0..3 => ("", "q", None, "x"),
                _ => ("amq.direct", "a key", Some("text/x"), "y"),
            };
            let content_type = content_type.as_deref();
            assert_eq!((exchange.as_str(), key.as_str(), content_type, text.as_str()), expected);
        }
    });
}

#[test]
fn acks_of_several_queues_and_an_unknown_one_count_up_to_it() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("one");
        near.declare("two");
        far.consume("one", "c1");
        far.consume("two", "c2");
        near.publish_all("one", ["1", "2", "3"]);
        near.publish_all("two", ["4", "5", "6"]);
        let mut tags: Vec<u64> = far.deliveries().iter().map(|message| message.tag).collect();
        assert_eq!(tags.len(), 6);
        tags.swap(1, 3);
        far.client().together(|| {
            for &tag in &tags[..5] {
                far.ack(tag);
            }
            far.ack(99);
            far.ack(tags[5]);
        });
        let refused = far.expect_refused();
        assert_eq!(refused.text, "PRECONDITION_FAILED - unknown delivery tag 99");
        let left = stage.world.queue("one").ready + stage.world.queue("two").ready;
        assert_eq!(left, 1);
        assert_eq!(stage.world.counters().acknowledged, 5);
    });
}

#[test]
fn a_tag_twice_in_a_row_is_refused() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2", "3"]);
        far.consume("q", "c");
        assert_eq!(far.deliveries().len(), 3);
        far.client().together(|| [2, 1, 2, 3].map(|tag| far.ack(tag)));
        assert_eq!(far.expect_refused().text, "PRECONDITION_FAILED - unknown delivery tag 2");
        assert_eq!(stage.world.queue("q").ready, 1);
    });
}

#[test]
fn a_consumer_of_its_own_messages_gets_as_many_as_it_has_room_for() {
    everywhere(|stage| {
        let channel = stage.near();
        channel.declare("q");
        channel.confirm_select();
        channel.qos(3);
        channel.consume("q", "c");
        let bodies: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        channel.publish_all("q", &bodies);
        assert_eq!(channel.confirmed().0.len(), 200);
        let mut seen = Vec::new();
        while seen.len() < 200 {
            let deliveries = channel.deliveries();
            assert!((1..=3).contains(&deliveries.len()), "{}", deliveries.len());
            channel.client().together(|| {
                for message in &deliveries {
                    channel.ack(message.tag);
                }
            });
            seen.extend(deliveries.iter().map(lepus_sim::Message::text));
        }
        assert_eq!(seen, bodies);
        assert_eq!(stage.world.queue("q").unacked, 0);
    });
}

#[test]
fn immediate_is_refused_wherever_in_a_row() {
    let world = World::new(1);
    world.channel(0).declare("q");
    let raw = wire::opened(&world, 0, 131_072);
    let publish = |immediate| {
        let method = basic::Publish { routing_key: "q", immediate, ..basic::Publish::default() };
        [wire::method(1, method), wire::header(1, 60, 0, 1), wire::body(1, b"x")].concat()
    };
    raw.send_bytes(&[false, false, true, true, false].map(publish).concat());
    assert_eq!(wire::close_in(&raw.take_bytes()).0, 540);
    assert_eq!(world.queue("q").ready, 2);
}

/// What a consumer gets of 60 messages, `together` in one piece or each by itself; everything about them is chosen by
/// the seed.
fn delivered(seed: u64, together: bool) -> Vec<(u64, String, bool, String, usize)> {
    let mut rng = Rng::new(seed);
    let mut pick = |of: &[u64]| of[rng.below(of.len() as u64) as usize];
    let limits = Limits {
        send_window_bytes: pick(&[1, 500, 20_000, 262_144]) as usize,
        unread_bytes_max: pick(&[1, 4000, 4 << 20]) as usize,
        unacked_per_channel_max: pick(&[1, 3, 10, 1_000_000]) as u32,
        ..Limits::default()
    };
    let shards = pick(&[1, 1, 2]) as u16;
    let world = World::with(Options { shards, limits, ..Options::default() });
    let frame_max = pick(&[4096, 131_072]) as u32;
    let options = ClientOptions { frame_max, ..ClientOptions::default() };
    let client = world.connect_with(0, options.clone());
    let publisher = client.channel();
    let consumer = match pick(&[0, 1, 2]) {
        0 => client.channel(),
        1 => world.connect_with(0, options).channel(),
        _ => world.connect_with(shards - 1, options).channel(),
    };
    publisher.declare("q");
    publisher.declare("other");
    if pick(&[0, 1]) == 1 {
        publisher.confirm_select();
    }
    let prefetch = pick(&[0, 0, 1, 5]) as u16;
    let acks = pick(&[0, 1]) == 1;
    match pick(&[0, 1]) {
        0 => consumer.qos(prefetch),
        _ => consumer.qos_global(prefetch),
    }
    if acks {
        consumer.consume("q", "c");
    } else {
        consumer.consume_no_ack("q", "c");
    }
    let typed = Properties { content_type: Some("text/x".into()), ..Properties::default() };
    let messages: Vec<_> = (0..60)
        .map(|number| {
            let queue = if pick(&[0, 0, 0, 1]) == 0 { "q" } else { "other" };
            let size = pick(&[1, 16, 16, 16, 3000, 5000, 40_000]) as usize;
            (queue, pick(&[0, 0, 0, 1]) == 1, vec![number as u8; size])
        })
        .collect();
    let publish = |(queue, is_typed, body): &(&str, bool, Vec<u8>)| match is_typed {
        true => publisher.publish_with("", queue, &typed, body),
        false => publisher.publish("", queue, body),
    };
    match together {
        true => client.together(|| messages.iter().for_each(publish)),
        false => messages.iter().for_each(publish),
    }
    let mut all = Vec::new();
    loop {
        let came = consumer.deliveries();
        let Some(last) = came.last().map(|message| message.tag) else { break };
        if acks {
            consumer.ack_up_to(last);
        }
        all.extend(came.into_iter().map(|message| {
            let first = message.body[0];
            assert!(message.body.iter().all(|byte| *byte == first), "a body is of one message");
            let name = format!("{first} {:?}", message.properties.content_type);
            (message.tag, message.key, message.redelivered, name, message.body.len())
        }));
    }
    assert_eq!(all.len(), messages.iter().filter(|message| message.0 == "q").count());
    all
}

#[test]
fn what_comes_together_is_delivered_as_what_comes_one_by_one() {
    for seed in 0..150 {
        assert_eq!(delivered(seed, true), delivered(seed, false), "seed {seed}");
    }
}
