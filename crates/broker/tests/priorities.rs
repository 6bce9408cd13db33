//! Priority queues.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::queue;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::restart::{durable_with, persistent};
use crate::stage::everywhere;

fn declare(channel: &Channel, name: &str, levels: i32) {
    channel.declare_with(name, Table::new().with("x-max-priority", levels));
}

fn publish(channel: &Channel, queue: &str, priority: Option<u8>, body: &str) {
    let properties = Properties { priority, ..Properties::default() };
    channel.publish_with("", queue, &properties, body);
}

fn drain(channel: &Channel, queue: &str) -> Vec<String> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).map(|message| message.text()).collect()
}

#[test]
fn higher_priorities_come_first_and_equals_in_order() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q", 5);
        for (priority, body) in [
            (Some(1), "1 a"),
            (Some(5), "5 a"),
            (None, "0 a"),
            (Some(1), "1 b"),
            (Some(0), "0 b"),
            (Some(5), "5 b"),
        ] {
            publish(&far, "q", priority, body);
        }
        assert_eq!(drain(&near, "q"), ["5 a", "5 b", "1 a", "1 b", "0 a", "0 b"]);
    });
}

#[test]
fn priorities_above_the_highest_count_as_the_highest() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q", 3);
        for (priority, body) in [(3, "3"), (200, "200"), (4, "4"), (2, "2")] {
            publish(&far, "q", Some(priority), body);
        }
        assert_eq!(drain(&near, "q"), ["3", "200", "4", "2"]);
    });
}

#[test]
fn without_the_argument_priorities_mean_nothing() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        declare(&near, "zero", 0);
        for queue in ["q", "zero"] {
            for priority in [1, 9, 5] {
                publish(&far, queue, Some(priority), &priority.to_string());
            }
            assert_eq!(drain(&near, queue), ["1", "9", "5"]);
        }
    });
}

#[test]
fn there_may_be_255_levels_and_no_more() {
    let world = World::new(1);
    let alice = world.channel(0);
    declare(&alice, "q", 255);
    for priority in [0, 255, 100, 254] {
        publish(&alice, "q", Some(priority), &priority.to_string());
    }
    assert_eq!(drain(&alice, "q"), ["255", "254", "100", "0"]);
    for value in [Value::from(-1), Value::from(256), Value::from(65_536)] {
        let arguments = Table::new().with("x-max-priority", value).to_bytes();
        let method =
            queue::Declare { queue: "p", arguments: arguments.as_ref(), ..Default::default() };
        let refused = alice.client().channel().refused(method);
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
    }
}

#[test]
fn a_requeued_message_keeps_its_level_and_place() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q", 5);
        for (priority, body) in [(2, "2 a"), (2, "2 b"), (4, "4 a")] {
            publish(&far, "q", Some(priority), body);
        }
        let messages: Vec<_> = (0..3).map(|_| near.get("q").unwrap()).collect();
        publish(&far, "q", Some(2), "2 c");
        publish(&far, "q", Some(4), "4 b");
        near.nack(messages[2].tag, true, true);
        assert_eq!(drain(&near, "q"), ["4 a", "4 b", "2 a", "2 b", "2 c"]);
    });
}

#[test]
fn a_message_of_high_priority_overtakes_what_waits_for_credit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q", 5);
        near.qos(1);
        near.consume("q", "c");
        for (priority, body) in [(0, "first"), (0, "last"), (5, "urgent")] {
            publish(&far, "q", Some(priority), body);
        }
        for expected in ["first", "urgent", "last"] {
            let message = near.delivery();
            assert_eq!(message.text(), expected);
            near.ack(message.tag);
        }
    });
}

#[test]
fn the_priority_is_still_on_the_message() {
    let world = World::new(1);
    let alice = world.channel(0);
    declare(&alice, "q", 3);
    publish(&alice, "q", Some(200), "x");
    assert_eq!(alice.get_no_ack("q").unwrap().properties.priority, Some(200));
}

#[test]
fn a_purge_leaves_what_is_unacknowledged_of_each_priority() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable_with(&channel, "q", Table::new().with("x-max-priority", 3));
    let mut kept = Vec::new();
    for round in 0..3 {
        for priority in 0..4 {
            let properties = Properties { priority: Some(priority), ..persistent() };
            channel.publish_with("", "q", &properties, format!("{round} {priority}"));
            if round == 1 {
                kept.push(channel.get("q").expect("a message").text());
            }
        }
    }
    assert_eq!(channel.purge("q"), 8);
    world.stop();
    world.start_again(1);
    assert_eq!(world.queue("q").ready, 4);
    let channel = world.channel(0);
    let mut found: Vec<String> =
        core::iter::from_fn(|| channel.get_no_ack("q")).map(|found| found.text()).collect();
    kept.sort();
    found.sort();
    assert_eq!(found, kept);
}
