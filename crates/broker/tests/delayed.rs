//! Exchanges that hold messages back.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::exchange;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::stage::everywhere;

fn declare(channel: &Channel, name: &str, kind: &str) {
    channel.exchange_with(name, "x-delayed-message", Table::new().with("x-delayed-type", kind));
}

fn delayed(value: impl Into<Value>) -> Properties {
    Properties { headers: Some(Table::new().with("x-delay", value)), ..Properties::default() }
}

#[test]
fn a_message_arrives_after_its_delay() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "direct");
        near.declare("q");
        near.bind("q", "x", "k");
        far.publish_with("x", "k", &delayed(5_000), "later");
        far.publish_with("x", "k", &delayed(1_000), "soon");
        far.publish("x", "k", "now");
        far.publish_with("x", "k", &delayed(0), "now too");
        assert_eq!(stage.world.queue("q").ready, 2);
        stage.world.advance(999);
        assert_eq!(stage.world.queue("q").ready, 2);
        stage.world.advance(1);
        assert_eq!(stage.world.queue("q").ready, 3);
        stage.world.advance(3_999);
        assert_eq!(stage.world.queue("q").ready, 3);
        stage.world.advance(1);
        let texts: Vec<String> =
            core::iter::from_fn(|| near.get_no_ack("q")).map(|message| message.text()).collect();
        assert_eq!(texts, ["now", "now too", "soon", "later"]);
    });
}

#[test]
fn it_is_routed_as_the_inner_type_says_when_its_time_has_come() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "topic");
        far.publish_with("x", "a.b", &delayed(1_000), "1");
        near.declare("q");
        near.bind("q", "x", "a.*");
        stage.world.advance(1_000);
        let message = near.get_no_ack("q").unwrap();
        assert_eq!((message.exchange.as_str(), message.key.as_str()), ("x", "a.b"));
        near.unbind("q", "x", "a.*");
        far.publish_with("x", "a.b", &delayed(10), "2");
        stage.world.advance(10);
        assert_eq!(near.get_no_ack("q"), None);
    });
}

#[test]
fn messages_due_at_the_same_moment_keep_their_order() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "fanout");
        near.declare("q");
        near.bind("q", "x", "");
        far.client().together(|| {
            for index in 0..1_000 {
                far.publish_with("x", "", &delayed(500), index.to_string());
            }
        });
        stage.world.advance(500);
        near.consume_no_ack("q", "c");
        assert_eq!(near.bodies(), (0..1_000).map(|index| index.to_string()).collect::<Vec<_>>());
    });
}

#[test]
fn a_delayed_message_is_confirmed_when_it_is_taken() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "fanout");
        far.confirm_select();
        far.publish_with("x", "", &delayed(60_000), "x");
        assert_eq!(far.confirmed().0, [1]);
        stage.world.advance(60_000);
    });
}

#[test]
fn the_delay_may_be_any_integer_or_a_number_in_text_but_nothing_else() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "fanout");
        near.declare("q");
        near.bind("q", "x", "");
        for value in [Value::I64(100), Value::U8(100), Value::U16(100), Value::from("100")] {
            far.publish_with("x", "", &delayed(value), "x");
        }
        assert_eq!(stage.world.queue("q").ready, 0);
        stage.world.advance(100);
        assert_eq!(near.purge("q"), 4);
        far.publish_with("x", "", &delayed(-5), "x");
        assert_eq!(near.purge("q"), 1);
        far.publish_with("x", "", &delayed("soon"), "x");
        assert_eq!(far.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
    });
}

#[test]
fn the_inner_type_must_be_named_and_known_and_agree() {
    let world = World::new(1);
    let alice = world.channel(0);
    let refused = |arguments: Table| {
        let arguments = arguments.to_bytes();
        let refused = alice.client().channel().refused(exchange::Declare {
            exchange: "x",
            r#type: "x-delayed-message",
            arguments: arguments.as_ref(),
            ..Default::default()
        });
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
    };
    let kind = |kind: &str| Table::new().with("x-delayed-type", kind);
    refused(Table::new());
    refused(kind("no-such-type"));
    declare(&alice, "x", "direct");
    declare(&alice, "x", "direct");
    refused(kind("fanout"));
}

#[test]
fn a_deleted_exchange_takes_its_delayed_messages_along() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "fanout");
        near.declare("q");
        near.bind("q", "x", "");
        far.publish_with("x", "", &delayed(1_000), "x");
        near.delete_exchange("x");
        stage.world.advance(1_000);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn the_publisher_may_be_gone_when_the_time_comes() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "fanout");
        near.declare("q");
        near.bind("q", "x", "");
        far.publish_with("x", "", &delayed(1_000), "x");
        far.client().close();
        stage.world.advance(1_000);
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn copies_are_delayed_as_well() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "direct");
        near.declare("q1");
        near.declare("q2");
        near.bind("q1", "x", "k");
        near.bind("q2", "x", "copy");
        let headers = Table::new().with("x-delay", 1_000).with("CC", vec![Value::from("copy")]);
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        far.publish_with("x", "k", &properties, "x");
        stage.world.advance(1_000);
        assert_eq!((near.purge("q1"), near.purge("q2")), (1, 1));
    });
}

#[test]
fn a_message_ttl_starts_when_the_delay_is_over() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "fanout");
        near.declare("q");
        near.bind("q", "x", "");
        let properties = Properties { expiration: Some("500".into()), ..delayed(1_000) };
        far.publish_with("x", "", &properties, "x");
        stage.world.advance(1_400);
        assert_eq!(stage.world.queue("q").ready, 1);
        stage.world.advance(100);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn the_number_of_timers_does_not_grow_with_delayed_messages() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "x", "fanout");
        near.declare("q");
        near.bind("q", "x", "");
        let timers = || -> usize {
            (0..stage.world.shards())
                .map(|shard| stage.world.broker(shard, |broker| broker.shard.timers.len()))
                .sum()
        };
        let before = timers();
        for round in 0..20 {
            far.client().together(|| {
                for index in 0..20 {
                    let millis = if round % 2 == 0 { 40 - index } else { 20 + index };
                    far.publish_with("x", "", &delayed(millis * 100), "x");
                }
            });
            stage.world.advance(100);
            let now = timers();
            assert!(now <= before + 20, "{now} timers instead of {before}");
        }
        stage.world.advance(10_000);
        assert_eq!(near.purge("q"), 400);
    });
}

#[test]
fn what_is_due_at_one_moment_is_released_in_slices() {
    let world = World::new(1);
    let alice = world.channel(0);
    declare(&alice, "x", "fanout");
    alice.declare("q");
    alice.bind("q", "x", "");
    for (count, bytes, slice) in [(1_000, 1, 256), (64, 64 << 10, 5)] {
        alice.client().together(|| {
            for _ in 0..count {
                alice.publish_with("x", "", &delayed(500), vec![b'x'; bytes]);
            }
        });
        world.skip(500);
        let mut ready = 0;
        while ready < count {
            assert!(world.round(), "{ready} of {count} are released");
            let now = world.queue("q").ready;
            assert!(now <= ready + slice, "{} at once", now - ready);
            ready = now;
        }
        assert_eq!(u64::from(alice.purge("q")), count);
    }
}
