//! Prefetch of a whole channel.

use lepus_sim::{Channel, Message};

use crate::stage::{Stage, everywhere};

fn publish(channel: &Channel, queue: &str, count: usize) {
    channel.publish_all(queue, (0..count).map(|index| format!("{queue} {index}")));
}

fn count(messages: &[Message], consumer: &str) -> usize {
    messages.iter().filter(|message| message.consumer == consumer).count()
}

#[test]
fn all_consumers_of_the_channel_share_the_limit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        far.declare("q2");
        publish(&near, "q1", 10);
        publish(&near, "q2", 10);
        let channel = far.client().channel();
        channel.qos_global(5);
        channel.consume("q1", "c1");
        channel.consume("q2", "c2");
        let messages = channel.deliveries();
        assert_eq!(messages.len(), 5);
        channel.ack_up_to(messages[1].tag);
        assert_eq!(channel.deliveries().len(), 2);
        // Another channel of the connection has its own.
        let other = far.client().channel();
        other.consume("q2", "c");
        assert!(other.deliveries().len() >= 5);
    });
}

#[test]
fn the_limit_may_be_changed_and_lifted_while_deliveries_are_out() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        publish(&near, "q", 20);
        far.qos_global(5);
        far.consume("q", "c");
        assert_eq!(far.deliveries().len(), 5);
        far.qos_global(3);
        far.expect_none();
        far.ack_up_to(2);
        far.expect_none();
        far.ack_up_to(3);
        assert_eq!(far.deliveries().len(), 1);
        far.qos_global(6);
        assert_eq!(far.deliveries().len(), 3);
        far.qos_global(0);
        assert_eq!(far.deliveries().len(), 11);
    });
}

#[test]
fn a_limit_set_while_deliveries_are_out_counts_them() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        publish(&near, "q", 4);
        far.consume("q", "c");
        assert_eq!(far.deliveries().len(), 4);
        far.qos_global(2);
        publish(&near, "q", 4);
        far.expect_none();
        far.ack_up_to(2);
        far.expect_none();
        far.ack_up_to(4);
        assert_eq!(far.deliveries().len(), 2);
    });
}

#[test]
fn fetched_messages_do_not_count() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        publish(&near, "q", 6);
        let fetched = far.get("q").unwrap();
        far.qos_global(1);
        far.consume("q", "c");
        let message = far.delivery();
        far.ack(fetched.tag);
        far.expect_none();
        far.ack(message.tag);
        let message = far.delivery();
        far.ack(message.tag);
        assert_eq!(far.deliveries().len(), 1);
    });
}

#[test]
fn no_ack_consumers_do_not_count() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        publish(&near, "q1", 5);
        publish(&near, "q2", 5);
        far.qos_global(2);
        far.consume_no_ack("q1", "free");
        far.consume("q2", "bound");
        let messages = far.deliveries();
        assert_eq!((count(&messages, "free"), count(&messages, "bound")), (5, 2));
    });
}

#[test]
fn both_limits_hold_together() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        publish(&near, "q1", 10);
        publish(&near, "q2", 10);
        far.qos_global(5);
        far.qos(3);
        far.consume("q1", "c1");
        assert_eq!(far.deliveries().len(), 3);
        far.consume("q2", "c2");
        assert_eq!(far.deliveries().len(), 2);
    });
}

#[test]
fn consumers_under_one_limit_take_turns() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let queues = ["q1", "q2", "q3"];
        for (index, queue) in queues.into_iter().enumerate() {
            (if index % 2 == 0 { &near } else { &far }).declare(queue);
            publish(&near, queue, 20);
        }
        let channel = far.client().channel();
        channel.qos_global(1);
        for queue in queues {
            channel.consume(queue, queue);
        }
        let mut seen = Vec::new();
        for _ in 0..30 {
            let message = channel.delivery();
            channel.expect_none();
            channel.ack(message.tag);
            seen.push(message);
        }
        let counts = queues.map(|queue| count(&seen, queue));
        assert!(counts.iter().all(|&count| count >= 7), "{counts:?}");
    });
}

#[test]
fn a_consumer_that_leaves_while_it_waits_does_not_take_credit_along() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        publish(&near, "q1", 5);
        publish(&near, "q2", 5);
        far.qos_global(1);
        far.consume("q1", "c1");
        let message = far.delivery();
        far.consume("q2", "c2");
        far.cancel("c2");
        far.ack(message.tag);
        for _ in 0..3 {
            let message = far.delivery();
            assert_eq!(message.consumer, "c1");
            far.ack(message.tag);
        }
        far.cancel("c1");
        far.consume("q2", "c2");
        // The last delivery of c1 still counts.
        let last = far.deliveries();
        assert_eq!(count(&last, "c1"), 1);
        far.ack(last[0].tag);
        assert_eq!(far.deliveries().len(), 1);
    });
}

#[test]
fn credit_returns_with_requeues_and_recover() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        publish(&near, "q", 3);
        far.qos_global(2);
        far.consume("q", "c");
        let messages = far.deliveries();
        assert_eq!(messages.len(), 2);
        far.nack(messages[1].tag, true, true);
        let again = far.bodies();
        assert_eq!(again, ["q 0", "q 1"]);
        far.recover();
        assert_eq!(far.bodies(), ["q 0", "q 1"]);
    });
}

#[test]
fn a_deleted_queues_deliveries_give_their_credit_back_when_settled() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        publish(&near, "q1", 2);
        publish(&near, "q2", 2);
        far.qos_global(1);
        far.consume("q1", "c1");
        let message = far.delivery();
        far.consume("q2", "c2");
        far.expect_none();
        near.delete("q1");
        far.ack(message.tag);
        assert_eq!(far.delivery().consumer, "c2");
    });
}

#[test]
fn deliveries_that_need_no_acknowledgement_wait_for_room_too() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        far.declare("q2");
        for queue in ["q1", "q2"] {
            for other in ["q1", "q2"].into_iter().filter(|other| *other != queue) {
                let channel = far.client().channel();
                channel.qos_global(1);
                channel.consume(queue, "acks");
                publish(&near, queue, 1);
                let held = channel.delivery();
                channel.consume_no_ack(other, "silent");
                publish(&near, other, 3);
                channel.expect_none();
                assert_eq!(stage.world.queue(other).ready, 3);
                channel.ack(held.tag);
                assert_eq!(count(&channel.deliveries(), "silent"), 3);
                // They take no room themselves.
                publish(&near, queue, 2);
                assert_eq!(count(&channel.deliveries(), "acks"), 1);
                publish(&near, other, 2);
                channel.expect_none();
                channel.qos_global(0);
                let messages = channel.deliveries();
                assert_eq!((count(&messages, "acks"), count(&messages, "silent")), (1, 2));
                channel.close();
                near.purge(queue);
            }
        }
    });
}

#[test]
fn a_limit_that_comes_later_holds_for_them() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        far.consume("q1", "acks");
        far.consume_no_ack("q2", "silent");
        publish(&near, "q1", 1);
        let held = far.delivery();
        publish(&near, "q2", 1);
        assert_eq!(far.deliveries().len(), 1);
        far.qos_global(1);
        publish(&near, "q2", 2);
        far.expect_none();
        far.ack(held.tag);
        assert_eq!(far.deliveries().len(), 2);
    });
}

/// Consumers of the channel that are elsewhere and know of no limit.
fn unlimited(stage: &Stage, channel: &Channel) -> usize {
    let shard = channel.client().shard().expect("a connected client");
    stage.world.broker(shard, |broker| {
        let connections = broker.connections.iter().map(|(_, connection)| connection);
        let channels = connections.filter_map(|connection| connection.channel(channel.number()));
        let subscriptions = channels.filter_map(|channel| channel.subscriptions.as_ref());
        subscriptions.map(|subscriptions| subscriptions.ungoverned.len()).sum()
    })
}

#[test]
fn switching_the_limit_on_and_off_tells_nobody_who_had_nothing_meanwhile() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        far.declare_exclusive("");
        for queue in 0..20 {
            near.declare(&format!("q{queue}"));
        }
        let channel = far.client().channel();
        for queue in 0..20 {
            channel.consume(&format!("q{queue}"), &format!("c{queue}"));
        }
        let elsewhere = unlimited(stage, &channel);
        channel.qos_global(3);
        assert_eq!(unlimited(stage, &channel), 0);
        channel.qos_global(0);
        assert_eq!(unlimited(stage, &channel), 0);
        // Those hear of it that have something.
        for queue in 0..5 {
            near.publish("", &format!("q{queue}"), "x");
            near.publish("", &format!("q{queue}"), "y");
        }
        assert_eq!(channel.deliveries().len(), 10);
        assert_eq!(unlimited(stage, &channel), elsewhere.min(5));
        channel.qos_global(12);
        assert_eq!(unlimited(stage, &channel), 0);
        for queue in 0..20 {
            near.publish("", &format!("q{queue}"), "z");
        }
        assert_eq!(channel.deliveries().len(), 2);
        channel.qos_global(0);
        assert_eq!(channel.deliveries().len(), 18);
        channel.cancel("c0");
        channel.qos_global(1);
        channel.qos_global(0);
        near.publish("", "q1", "end");
        assert_eq!(channel.bodies(), ["end"]);
    });
}

/// How often each of these consumers got a message.
fn turns(messages: &[Message], consumers: &[&str]) -> Vec<usize> {
    consumers.iter().map(|consumer| count(messages, consumer)).collect()
}

#[test]
fn who_gives_messages_back_leaves_the_credit_to_others() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for (client, name) in [(&near, "near"), (&far, "far")] {
            let [one, many] = ["one", "many"].map(|queue| format!("{name}-{queue}"));
            near.declare(&one);
            near.declare(&many);
            publish(&near, &one, 1);
            publish(&near, &many, 10);
            let channel = client.client().channel();
            channel.qos_global(1);
            channel.consume(&one, "one");
            channel.consume(&many, "many");
            let mut seen = Vec::new();
            for _ in 0..20 {
                let message = channel.delivery();
                channel.nack(message.tag, false, true);
                seen.push(message);
            }
            let turns = turns(&seen, &["one", "many"]);
            assert!(turns.iter().all(|&count| count >= 5), "{name}: {turns:?}");
        }
    });
}

#[test]
fn consumers_with_limits_of_their_own_take_turns_under_a_common_one() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for (client, name) in [(&near, "near"), (&far, "far")] {
            let consumers = ["a", "b", "c"];
            let channel = client.client().channel();
            for consumer in consumers {
                let queue = format!("{name}-{consumer}");
                near.declare(&queue);
                publish(&near, &queue, 20);
            }
            channel.qos(1);
            channel.qos_global(1);
            for consumer in consumers {
                channel.consume(&format!("{name}-{consumer}"), consumer);
            }
            let mut seen = Vec::new();
            for _ in 0..21 {
                let message = channel.delivery();
                channel.ack(message.tag);
                seen.push(message);
            }
            assert_eq!(turns(&seen, &consumers), [7, 7, 7], "{name}");
        }
    });
}
