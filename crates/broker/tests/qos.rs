//! Prefetch per consumer.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::basic;
use lepus_sim::{Channel, World};

use crate::stage::everywhere;

fn texts(channel: &Channel) -> Vec<String> {
    channel.bodies()
}

#[test]
fn a_consumer_holds_no_more_than_its_prefetch() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2", "3", "4", "5"]);
        far.qos(2);
        far.consume("q", "c");
        let messages = far.deliveries();
        assert_eq!(messages.len(), 2);
        far.ack(messages[0].tag);
        assert_eq!(texts(&far), ["3"]);
        far.ack_up_to(3);
        assert_eq!(texts(&far), ["4", "5"]);
    });
}

#[test]
fn the_limit_is_that_of_each_consumer_and_holds_for_those_that_come() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        near.declare("q3");
        for queue in ["q1", "q2", "q3"] {
            near.publish_all(queue, (0..20).map(|index| index.to_string()));
        }
        far.qos(3);
        far.consume("q1", "three");
        far.qos(5);
        far.consume("q2", "five");
        far.qos(0);
        far.consume("q3", "all");
        let messages = far.deliveries();
        let count = |tag: &str| messages.iter().filter(|message| message.consumer == tag).count();
        assert_eq!((count("three"), count("five"), count("all")), (3, 5, 20));
    });
}

#[test]
fn nack_reject_and_recover_give_credit_back() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2", "3", "4"]);
        far.qos(1);
        far.consume("q", "c");
        let message = far.delivery();
        far.nack(message.tag, false, false);
        let message = far.delivery();
        assert_eq!(message.text(), "2");
        far.reject(message.tag, false);
        let message = far.delivery();
        assert_eq!(message.text(), "3");
        far.reject(message.tag, true);
        let message = far.delivery();
        assert_eq!((message.text().as_str(), message.redelivered), ("3", true));
        far.recover();
        let message = far.delivery();
        assert_eq!((message.text().as_str(), message.redelivered), ("3", true));
        far.ack(message.tag);
        assert_eq!(texts(&far), ["4"]);
    });
}

#[test]
fn a_cancelled_consumers_deliveries_do_not_count_for_the_next_one() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2", "3"]);
        far.qos(1);
        far.consume("q", "first");
        assert_eq!(texts(&far), ["1"]);
        far.cancel("first");
        far.consume("q", "second");
        assert_eq!(texts(&far), ["2"]);
        // The first one's delivery is settled and gives nobody credit.
        far.ack(1);
        far.expect_none();
        far.ack(2);
        assert_eq!(texts(&far), ["3"]);
    });
}

#[test]
fn fetched_messages_do_not_count() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2", "3"]);
        far.qos(1);
        assert!(far.get("q").is_some());
        far.consume("q", "c");
        assert_eq!(texts(&far), ["2"]);
        far.ack(1);
        far.expect_none();
    });
}

#[test]
fn messages_go_to_the_consumer_that_has_credit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let (busy, idle) = (stage.far(), stage.near());
        busy.qos(1);
        idle.qos(1);
        busy.consume("q", "c");
        idle.consume("q", "c");
        for round in 0..5 {
            far.publish("", "q", round.to_string());
            if round == 0 {
                assert_eq!(texts(&busy), ["0"]);
            } else {
                let message = idle.delivery();
                assert_eq!(message.text(), round.to_string());
                idle.ack(message.tag);
            }
        }
    });
}

#[test]
fn a_prefetch_size_is_not_implemented() {
    let world = World::new(1);
    let alice = world.channel(0);
    let method = basic::Qos { prefetch_size: 1, prefetch_count: 0, global: false };
    let refused = alice.refused(method);
    assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_IMPLEMENTED, true));
}

#[test]
fn the_largest_prefetch_is_65535() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.publish_all("q", (0..65_540).map(|_| "x"));
    alice.qos(u16::MAX);
    alice.consume("q", "c");
    assert_eq!(alice.deliveries().len(), 65_535);
    alice.ack_up_to(10);
    assert_eq!(alice.deliveries().len(), 5);
}

#[test]
fn a_client_that_does_not_read_gets_no_more_than_its_window() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume_no_ack("q", "c");
        far.client().stop_reading();
        let body = vec![b'x'; 10_000];
        for _ in 0..20 {
            near.client().together(|| (0..10).for_each(|_| near.publish("", "q", &body)));
        }
        // 2 MB were published; the socket and the window hold a part of them.
        let ready = stage.world.queue("q").ready;
        assert!(ready > 100, "{ready} of 200 are left in the queue");
        far.client().read_again();
        assert_eq!(far.deliveries().len(), 200);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn a_client_that_does_not_read_does_not_hold_up_others() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let other = stage.near();
        far.consume_no_ack("q", "deaf");
        far.client().stop_reading();
        other.consume_no_ack("q", "good");
        let body = vec![b'x'; 10_000];
        for _ in 0..20 {
            near.client().together(|| (0..10).for_each(|_| near.publish("", "q", &body)));
        }
        assert_eq!(stage.world.queue("q").ready, 0);
        let taken = other.deliveries().len();
        assert!(taken > 100, "{taken}");
        far.client().read_again();
        assert_eq!(taken + far.deliveries().len(), 200);
    });
}

#[test]
fn unacknowledged_deliveries_of_a_channel_are_bounded() {
    let limits = lepus_sim::Limits { unacked_per_channel_max: 5, ..Default::default() };
    let options = lepus_sim::Options { limits, ..Default::default() };
    crate::stage::everywhere_with(&options, |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", (0..20).map(|index| index.to_string()));
        far.consume("q", "c");
        let mut seen = far.deliveries();
        assert!((1..=5).contains(&seen.len()), "{}", seen.len());
        while seen.len() < 20 {
            let last = seen.last().unwrap().tag;
            far.ack_up_to(last);
            let more = far.deliveries();
            assert!((1..=5).contains(&more.len()), "{} after {}", more.len(), seen.len());
            seen.extend(more);
        }
        far.ack_up_to(0);
    });
}

#[test]
fn a_consumer_of_a_queue_on_another_shard_has_the_limit_for_itself() {
    let limits = lepus_sim::Limits { unacked_per_channel_max: 5, ..Default::default() };
    let options = lepus_sim::Options { limits, ..Default::default() };
    crate::stage::everywhere_with(&options, |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", (0..40).map(|index| index.to_string()));
        for _ in 0..5 {
            assert!(far.get("q").is_some());
        }
        far.consume("q", "c");
        far.consume("q", "d");
        let is_elsewhere = far.client().shard() != near.client().shard();
        assert_eq!(far.deliveries().len(), if is_elsewhere { 10 } else { 0 });
    });
}

#[test]
fn a_full_channel_goes_on_however_it_gets_room() {
    let limits = lepus_sim::Limits { unacked_per_channel_max: 5, ..Default::default() };
    let options = lepus_sim::Options { limits, ..Default::default() };
    type Way = fn(&Channel);
    let ways: [(&str, Way); 4] = [
        ("ack", |channel| channel.ack_up_to(0)),
        ("requeue", |channel| channel.nack(0, true, true)),
        ("drop", |channel| channel.nack(0, true, false)),
        ("recover", Channel::recover),
    ];
    for (name, make_room) in ways {
        for (channel_wide, gets) in [(0, 0), (0, 5), (100, 0), (100, 5)] {
            crate::stage::everywhere_with(&options, |stage| {
                let (near, far) = stage.pair();
                near.declare("q");
                near.publish_all("q", (0..20).map(|index| index.to_string()));
                far.qos_global(channel_wide);
                for _ in 0..gets {
                    assert!(far.get("q").is_some());
                }
                far.consume("q", "c");
                assert!(far.deliveries().len() <= 5);
                make_room(&far);
                assert!(!far.deliveries().is_empty(), "{name}, {channel_wide}, {gets} gets");
                assert!(far.is_open());
            });
        }
    }
}
