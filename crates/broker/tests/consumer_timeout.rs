//! Deliveries that wait too long for their acknowledgement.

use core::time::Duration;

use lepus_amqp::code::ReplyCode;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Limits, Options, World};

use crate::stage::{everywhere, everywhere_with};

const HALF_AN_HOUR: u64 = 30 * 60_000;
/// A timeout is noticed within it.
const A_MINUTE: u64 = 60_000;

#[test]
fn after_half_an_hour_the_channel_is_closed_and_what_it_held_comes_back() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        far.consume("q", "slow");
        assert_eq!(far.deliveries().len(), 2);
        stage.world.advance(HALF_AN_HOUR - 1);
        assert!(far.is_open());
        let _ = stage.world.events();
        stage.world.advance(A_MINUTE);
        let refused = far.expect_refused();
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (0, 0)));
        assert_eq!(
            refused.text,
            format!(
                "PRECONDITION_FAILED - delivery acknowledgement on channel {} timed out. Timeout value \
                 used: 1800000 ms. This timeout value can be configured, see consumers doc guide to \
                 learn more",
                far.number()
            )
        );
        let events = stage.world.events();
        let told = events.iter().find(|event| event.kind == "consumer-timeout").unwrap();
        for part in ["consumer 'slow'", "queue 'q' in vhost '/'", "delivery 1", "1800000 ms"] {
            assert!(told.text.contains(part), "{}", told.text);
        }
        assert_eq!((stage.world.queue("q").ready, stage.world.queue("q").unacked), (2, 0));
        assert_eq!(stage.world.queue("q").consumers, 0);
        // The connection and its other channels go on.
        let message = far.client().channel().get("q").unwrap();
        assert!(message.redelivered);
    });
}

#[test]
fn each_delivery_counts_by_its_own_age() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume("q", "c");
        near.publish("", "q", "1");
        let first = far.delivery();
        stage.world.advance(20 * A_MINUTE);
        near.publish("", "q", "2");
        assert_eq!(far.deliveries().len(), 1);
        stage.world.advance(5 * A_MINUTE);
        far.ack(first.tag);
        stage.world.advance(24 * A_MINUTE);
        assert!(far.is_open());
        stage.world.advance(2 * A_MINUTE);
        assert_eq!(far.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
    });
}

#[test]
fn a_message_that_was_fetched_waits_no_longer() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish("", "q", "x");
        assert!(far.get("q").is_some());
        stage.world.advance(HALF_AN_HOUR + A_MINUTE);
        assert_eq!(far.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
        assert_eq!(stage.world.queue("q").ready, 1);
    });
}

#[test]
fn who_acknowledges_in_time_or_never_has_to_is_left_alone() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.declare("silent");
        far.consume("q", "c");
        far.consume_no_ack("silent", "n");
        near.publish("", "silent", "x");
        for _ in 0..4 {
            near.publish("", "q", "x");
            let messages = far.deliveries();
            stage.world.advance(HALF_AN_HOUR - 2 * A_MINUTE);
            far.ack(messages.last().unwrap().tag);
        }
        assert!(far.is_open());
    });
}

#[test]
fn a_queue_may_have_a_timeout_of_its_own_or_none() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("short", Table::new().with("x-consumer-timeout", 1_000));
        near.declare_with("long", Table::new().with("x-consumer-timeout", Value::I64(7_200_000)));
        near.declare_with("none", Table::new().with("x-consumer-timeout", 0));
        let channels = ["short", "long", "none"].map(|queue| {
            near.publish("", queue, "x");
            let channel = far.client().channel();
            channel.consume(queue, "c");
            assert_eq!(channel.deliveries().len(), 1);
            channel
        });
        stage.world.advance(A_MINUTE);
        let refused = channels[0].expect_refused();
        assert!(refused.text.contains("Timeout value used: 1000 ms."), "{}", refused.text);
        stage.world.advance(119 * A_MINUTE);
        assert!(channels[1].is_open());
        stage.world.advance(2 * A_MINUTE);
        assert!(!channels[1].is_open());
        stage.world.advance(24 * 60 * A_MINUTE);
        assert!(channels[2].is_open());
    });
}

#[test]
fn the_timeout_can_be_switched_off() {
    let limits = Limits { consumer_timeout: Duration::ZERO, ..Limits::default() };
    everywhere_with(&Options { limits, ..Options::default() }, |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish("", "q", "x");
        far.consume("q", "c");
        stage.world.advance(24 * 60 * A_MINUTE);
        assert!(far.is_open());
    });
}

#[test]
fn what_a_transaction_settles_does_not_wait_and_the_rest_does() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        far.tx_select();
        far.consume("q", "c");
        let messages = far.deliveries();
        far.ack(messages[0].tag);
        far.ack(messages[1].tag);
        stage.world.advance(HALF_AN_HOUR + A_MINUTE);
        assert!(far.is_open());
        far.tx_rollback();
        stage.world.advance(HALF_AN_HOUR + 2 * A_MINUTE);
        assert_eq!(far.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
        assert_eq!(stage.world.queue("q").ready, 2);
    });
}

#[test]
fn a_move_of_the_connection_does_not_begin_the_time_anew() {
    let world = World::new(2);
    let (alice, bob) = (world.channel(0), world.connect(1));
    alice.declare("q");
    let channel = bob.channel();
    channel.consume("q", "c");
    alice.publish("", "q", "x");
    assert_eq!(channel.deliveries().len(), 1);
    world.advance(HALF_AN_HOUR / 2);
    bob.send_to(0);
    assert_eq!(bob.shard(), Some(0));
    world.advance(HALF_AN_HOUR / 2 + A_MINUTE);
    assert_eq!(channel.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
    assert_eq!(world.queue("q").ready, 1);
}
