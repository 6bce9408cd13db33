//! Consumers: tags, cancelling from both sides, exclusiveness, priorities.

use lepus_amqp::Method;
use lepus_amqp::client::ClientOptions;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue};
use lepus_amqp::table::{Table, Value};
use lepus_sim::World;

use crate::stage::everywhere;

#[test]
fn consume_ok_comes_before_the_first_delivery() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        let _ = far.order();
        far.consume_no_ack("q", "c");
        assert_eq!(far.order(), ["basic.consume-ok", "basic.deliver", "basic.deliver"]);
        let messages = far.deliveries();
        assert_eq!(messages[0].consumer, "c");
        assert_eq!((messages[0].tag, messages[1].tag), (1, 2));
        assert_eq!((messages[0].exchange.as_str(), messages[0].key.as_str()), ("", "q"));
        near.publish("", "q", "3");
        assert_eq!(far.bodies(), ["3"]);
    });
}

#[test]
fn a_consumer_without_a_tag_gets_one() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let method = basic::Consume { queue: "q", ..Default::default() };
        let tags = [far.consume_method(method), far.consume_method(method)];
        assert!(tags.iter().all(|tag| tag.starts_with("amq.ctag-") && tag.len() > 20));
        assert!(tags[0] != tags[1]);
        far.cancel(&tags[0]);
    });
}

#[test]
fn a_tag_is_used_once_per_channel() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume("q", "c");
        // Another channel has tags of its own.
        let other = far.client().channel();
        other.consume("q", "c");
        far.cancel("c");
        far.consume("q", "c");
        let refused =
            far.refused(basic::Consume { queue: "q", consumer_tag: "c", ..Default::default() });
        assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_ALLOWED, true));
        assert_eq!(stage.world.queue("q").consumers, 0);
    });
}

#[test]
fn a_missing_queue_is_not_found() {
    everywhere(|stage| {
        let alice = stage.far();
        let refused = alice.refused(basic::Consume { queue: "missing", ..Default::default() });
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (60, 20)));
        assert_eq!(refused.text, "NOT_FOUND - no queue 'missing' in vhost '/'");
    });
}

#[test]
fn no_ack_settles_by_sending_and_ignores_prefetch() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.qos(1);
        far.consume_no_ack("q", "c");
        near.publish_all("q", ["1", "2", "3"]);
        assert_eq!(far.bodies(), ["1", "2", "3"]);
        let queue = stage.world.queue("q");
        assert_eq!((queue.ready, queue.unacked), (0, 0));
        let refused = far.refused(basic::Ack { delivery_tag: 1, multiple: false });
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
    });
}

#[test]
fn cancelling_an_unknown_tag_is_answered() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.cancel("never there");
        alice.cancel("");
    });
}

#[test]
fn a_cancel_leaves_what_was_delivered_to_its_channel() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        far.qos(1);
        far.consume("q", "c");
        let message = far.delivery();
        far.cancel("c");
        near.publish("", "q", "3");
        far.expect_none();
        let queue = stage.world.queue("q");
        assert_eq!((queue.ready, queue.unacked, queue.consumers), (2, 1, 0));
        far.ack(message.tag);
        assert_eq!(stage.world.queue("q").unacked, 0);
        assert!(far.is_open());
    });
}

#[test]
fn nothing_is_delivered_after_cancel_ok() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume_no_ack("q", "c");
        let client = near.client();
        for _ in 0..20 {
            client.together(|| (0..10).for_each(|_| near.publish("", "q", "x")));
        }
        far.cancel("c");
        let order = far.order();
        let cancelled = order.iter().position(|&name| name == "basic.cancel-ok").unwrap();
        assert_eq!(cancelled, order.len() - 1);
        assert_eq!(far.deliveries().len(), 200);
    });
}

#[test]
fn cancel_may_go_without_an_answer() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.send(basic::Consume {
            queue: "q",
            consumer_tag: "c",
            no_wait: true,
            ..Default::default()
        });
        assert_eq!(stage.world.queue("q").consumers, 1);
        far.send(basic::Cancel { consumer_tag: "c", no_wait: true });
        assert_eq!(stage.world.queue("q").consumers, 0);
        assert_eq!(far.answer(), None);
        far.consume("q", "c");
    });
}

#[test]
fn the_server_cancels_consumers_of_a_deleted_queue() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume("q", "first");
        far.consume("q", "second");
        near.consume("q", "own");
        near.delete("q");
        let mut cancelled = far.cancelled();
        cancelled.sort();
        assert_eq!(cancelled, ["first", "second"]);
        assert_eq!(near.cancelled(), ["own"]);
        // The tags are free again.
        near.declare("q");
        far.consume("q", "first");
        near.publish("", "q", "x");
        let message = far.delivery();
        far.ack(message.tag);
    });
}

#[test]
fn the_server_cancels_consumers_of_an_expired_queue_never_for_it_has_none() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-expires", 1_000));
        far.consume("q", "c");
        stage.world.advance(5_000);
        assert!(far.cancelled().is_empty());
    });
}

#[test]
fn only_capable_clients_are_told_of_a_cancelled_consumer() {
    let world = World::new(2);
    let near = world.channel(0);
    near.declare("q");
    for shard in 0..2 {
        let options =
            ClientOptions { properties: Table::new(), heartbeat: 0, ..Default::default() };
        let incapable = world.connect_with(shard, options).channel();
        incapable.declare("q");
        incapable.consume("q", "c");
        let capable = world.channel(shard);
        capable.consume("q", "c");
        near.delete("q");
        assert!(incapable.cancelled().is_empty());
        assert_eq!(capable.cancelled(), ["c"]);
        near.declare("q");
        incapable.consume("q", "c");
        incapable.cancel("c");
    }
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn deliveries_of_a_deleted_queue_may_still_be_settled() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        far.consume("q", "c");
        let tags: Vec<u64> = far.deliveries().iter().map(|message| message.tag).collect();
        near.delete("q");
        far.ack(tags[0]);
        far.reject(tags[1], true);
        assert!(far.is_open());
    });
}

#[test]
fn an_exclusive_consumer_is_alone() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let exclusive = basic::Consume { queue: "q", exclusive: true, ..Default::default() };
        near.consume("q", "c");
        let refused = far.client().channel().refused(exclusive);
        assert_eq!((refused.code, refused.method), (ReplyCode::ACCESS_REFUSED, (60, 20)));
        assert_eq!(refused.text, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use");
        near.cancel("c");
        let tag = far.consume_method(exclusive);
        let plain = basic::Consume { queue: "q", ..Default::default() };
        for method in [plain, exclusive] {
            let refused = near.client().channel().refused(method);
            assert_eq!(refused.code, ReplyCode::ACCESS_REFUSED);
        }
        // It is alone among consumers only.
        near.publish("", "q", "x");
        let message = far.delivery();
        far.reject(message.tag, true);
        let message = far.delivery();
        far.ack(message.tag);
        far.cancel(&tag);
        near.consume("q", "c");
    });
}

#[test]
fn an_exclusive_consumer_leaves_with_its_connection() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let exclusive = basic::Consume { queue: "q", exclusive: true, ..Default::default() };
        far.consume_method(exclusive);
        far.client().reset();
        near.consume_method(exclusive);
    });
}

#[test]
fn consumers_of_higher_priority_come_first_while_they_have_credit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let priority = |value: i32| Table::new().with("x-priority", value);
        let (low, middle, high) = (stage.near(), stage.far(), stage.far());
        for channel in [&low, &middle, &high] {
            channel.qos(2);
        }
        low.consume_with("q", "low", priority(-5));
        high.consume_with("q", "high", priority(10));
        middle.consume("q", "middle");
        far.publish_all("q", ["1", "2", "3", "4", "5", "6", "7"]);
        let taken = high.deliveries();
        let texts = |messages: &[lepus_sim::Message]| -> Vec<String> {
            messages.iter().map(|message| message.text()).collect()
        };
        assert_eq!(texts(&taken), ["1", "2"]);
        assert_eq!(middle.bodies(), ["3", "4"]);
        assert_eq!(low.bodies(), ["5", "6"]);
        high.ack(taken[0].tag);
        assert_eq!(high.bodies(), ["7"]);
        low.expect_none();
    });
}

#[test]
fn a_priority_must_be_an_integer() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        for value in [Value::from("high"), Value::F64(1.0), Value::Void] {
            let arguments = Table::new().with("x-priority", value).to_bytes();
            let method =
                basic::Consume { queue: "q", arguments: arguments.as_ref(), ..Default::default() };
            let refused = far.client().channel().refused(method);
            assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (60, 20)));
        }
        assert_eq!(stage.world.queue("q").consumers, 0);
    });
}

#[test]
fn equal_consumers_take_turns() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let consumers = [stage.near(), stage.far(), stage.near()];
        for consumer in &consumers {
            consumer.consume_no_ack("q", "c");
        }
        far.publish_all("q", (0..30).map(|index| index.to_string()));
        for consumer in &consumers {
            assert_eq!(consumer.deliveries().len(), 10);
        }
    });
}

#[test]
fn no_local_is_ignored() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.consume_method(basic::Consume {
        queue: "q",
        no_local: true,
        no_ack: true,
        ..Default::default()
    });
    alice.publish("", "q", "from the same connection");
    assert_eq!(alice.bodies(), ["from the same connection"]);
}

#[test]
fn a_consumer_may_start_and_stop_while_messages_flow() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let mut seen = Vec::new();
        for round in 0..10 {
            near.client().together(|| {
                far.client().together(|| {
                    near.publish("", "q", format!("{round} a"));
                    far.send(basic::Consume {
                        queue: "q",
                        consumer_tag: "c",
                        no_ack: true,
                        ..Default::default()
                    });
                    near.publish("", "q", format!("{round} b"));
                    far.send(basic::Cancel { consumer_tag: "c", no_wait: false });
                });
            });
            far.expect("basic.consume-ok");
            far.expect("basic.cancel-ok");
            seen.extend(far.bodies());
        }
        seen.extend(core::iter::from_fn(|| near.get_no_ack("q")).map(|message| message.text()));
        let expected: Vec<String> =
            (0..10).flat_map(|round| [format!("{round} a"), format!("{round} b")]).collect();
        assert_eq!(seen, expected);
    });
}

#[test]
fn a_consume_and_a_delete_at_once_come_to_a_good_end() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for _ in 0..5 {
            near.declare("q");
            near.client().together(|| {
                far.client().together(|| {
                    near.send(queue::Delete { queue: "q", ..Default::default() });
                    far.send(basic::Consume {
                        queue: "q",
                        consumer_tag: "c",
                        ..Default::default()
                    });
                });
            });
            near.expect("queue.delete-ok");
            if far.is_open() {
                far.expect("basic.consume-ok");
                assert_eq!(far.cancelled(), ["c"]);
            } else {
                assert_eq!(far.expect_refused().code, ReplyCode::NOT_FOUND);
                break;
            }
        }
    });
}

#[test]
fn consumers_of_one_channel_are_limited() {
    let limits = lepus_sim::Limits { consumers_per_channel_max: 3, ..Default::default() };
    let world = World::with(lepus_sim::Options { limits, ..Default::default() });
    let alice = world.channel(0);
    alice.declare("q");
    for tag in ["1", "2", "3"] {
        alice.consume("q", tag);
    }
    let refused = alice.refused(basic::Consume { queue: "q", ..Default::default() });
    assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_ALLOWED, true));
}

#[test]
fn a_client_that_answers_a_cancellation_is_not_refused() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.consume("q", "c");
    world.channel(0).delete("q");
    alice.send(Method::BasicCancelOk(basic::CancelOk { consumer_tag: "c" }));
    alice.declare("q");
}
