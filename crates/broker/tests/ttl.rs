//! Messages that expire.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::queue;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::stage::everywhere;

fn with_ttl(channel: &Channel, name: &str, millis: i32) {
    channel.declare_with(name, Table::new().with("x-message-ttl", millis));
}

fn expiring(text: &str) -> Properties {
    Properties { expiration: Some(text.into()), ..Properties::default() }
}

#[test]
fn a_message_lives_as_long_as_its_queue_says() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_ttl(&near, "q", 1_000);
        far.publish("", "q", "1");
        stage.world.advance(500);
        far.publish("", "q", "2");
        stage.world.advance(499);
        assert_eq!(stage.world.queue("q").ready, 2);
        stage.world.advance(1);
        assert_eq!(stage.world.queue("q").ready, 1);
        assert_eq!(near.get_no_ack("q").unwrap().text(), "2");
    });
}

#[test]
fn the_queues_ttl_may_be_an_integer_of_any_width() {
    let world = World::new(1);
    let alice = world.channel(0);
    for (index, value) in [Value::U8(100), Value::I16(100), Value::I64(100)].into_iter().enumerate()
    {
        let queue = format!("q{index}");
        alice.declare_with(&queue, Table::new().with("x-message-ttl", value));
        alice.publish("", &queue, "x");
        world.advance(99);
        assert_eq!(world.queue(&queue).ready, 1);
        world.advance(1);
        assert_eq!(world.queue(&queue).ready, 0);
    }
}

#[test]
fn a_message_may_name_its_own_expiration_in_digits() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish_with("", "q", &expiring("100"), "x");
        stage.world.advance(99);
        assert_eq!(stage.world.queue("q").ready, 1);
        stage.world.advance(1);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

const TEN_YEARS: i64 = 315_360_000_000;

#[test]
fn ten_years_are_the_longest_time() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let long = || Table::new().with("x-message-ttl", Value::I64(TEN_YEARS));
        near.declare_with("q", long().with("x-expires", Value::I64(TEN_YEARS)));
        far.publish("", "q", "x");
        far.publish_with("", "q", &expiring(&TEN_YEARS.to_string()), "y");
        stage.world.skip(TEN_YEARS as u64 - 1_000);
        assert_eq!(stage.world.queue("q").ready, 2);
        stage.world.skip(1_000);
        stage.world.settle();
        assert_eq!(stage.world.find_queue("/", "q"), None);
        near.declare_with("q", long());
        far.publish("", "q", "x");
        stage.world.skip(TEN_YEARS as u64);
        stage.world.settle();
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn longer_than_ten_years_is_refused() {
    everywhere(|stage| {
        let client = stage.far_client();
        for name in ["x-message-ttl", "x-expires"] {
            let arguments = Table::new().with(name, Value::I64(TEN_YEARS + 1)).to_bytes();
            let refused = client.channel().refused(queue::Declare {
                queue: "q",
                arguments: arguments.as_ref(),
                ..Default::default()
            });
            assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
            assert!(refused.text.ends_with("{value_too_large,315360000001}"), "{}", refused.text);
        }
        let channel = client.channel();
        channel.publish_with("", "q", &expiring("315360000001"), "x");
        assert_eq!(channel.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
    });
}

#[test]
fn an_expiration_that_is_not_a_number_is_refused() {
    everywhere(|stage| {
        let client = stage.far_client();
        for text in ["", "soon", "-1", "1.5", "10ms", " 10", "+10", "99999999999999999999"] {
            let channel = client.channel();
            channel.publish_with("", "q", &expiring(text), "x");
            let refused = channel.expect_refused();
            assert_eq!(
                (refused.code, refused.method),
                (ReplyCode::PRECONDITION_FAILED, (60, 40)),
                "'{text}'"
            );
            assert!(refused.text.contains("expiration"), "{}", refused.text);
        }
    });
}

#[test]
fn the_shorter_of_both_counts() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_ttl(&near, "q", 1_000);
        for (expiration, millis) in [("100", 100), ("5000", 1_000)] {
            far.publish_with("", "q", &expiring(expiration), "x");
            stage.world.advance(millis - 1);
            assert_eq!(stage.world.queue("q").ready, 1);
            stage.world.advance(1);
            assert_eq!(stage.world.queue("q").ready, 0);
        }
    });
}

#[test]
fn an_expired_message_leaves_only_at_the_head() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish_with("", "q", &expiring("1000"), "long");
        far.publish_with("", "q", &expiring("10"), "short");
        stage.world.advance(500);
        assert_eq!(stage.world.queue("q").ready, 2);
        assert_eq!(near.get_no_ack("q").unwrap().text(), "long");
        assert_eq!(near.get_no_ack("q"), None);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn zero_means_now_or_never() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_ttl(&near, "q", 0);
        far.publish("", "q", "nobody waits");
        assert_eq!(stage.world.queue("q").ready, 0);
        near.consume_no_ack("q", "c");
        far.publish("", "q", "somebody waits");
        assert_eq!(near.bodies(), ["somebody waits"]);
        near.cancel("c");
        near.declare("plain");
        far.publish_with("", "plain", &expiring("0"), "nobody waits");
        assert_eq!(stage.world.queue("plain").ready, 0);
        near.consume("plain", "c");
        far.publish_with("", "plain", &expiring("0"), "somebody waits");
        let message = near.delivery();
        assert_eq!(message.text(), "somebody waits");
        near.ack(message.tag);
    });
}

#[test]
fn a_message_that_came_back_keeps_its_deadline() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_ttl(&near, "q", 1_000);
        far.publish("", "q", "x");
        let message = near.get("q").unwrap();
        stage.world.advance(900);
        near.reject(message.tag, true);
        stage.world.advance(99);
        assert_eq!(stage.world.queue("q").ready, 1);
        stage.world.advance(1);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn a_message_that_is_held_does_not_expire_before_it_comes_back() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_ttl(&near, "q", 1_000);
        far.publish_all("q", ["1", "2"]);
        let message = near.get("q").unwrap();
        stage.world.advance(5_000);
        let figures = stage.world.queue("q");
        assert_eq!((figures.ready, figures.unacked), (0, 1));
        near.ack(message.tag);
        assert!(near.is_open());
        far.publish("", "q", "3");
        let message = near.get("q").unwrap();
        stage.world.advance(5_000);
        near.reject(message.tag, true);
        assert_eq!(near.get("q"), None);
    });
}

#[test]
fn consumers_never_get_an_expired_message() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_ttl(&near, "q", 100);
        far.publish_all("q", ["1", "2"]);
        stage.world.advance(50);
        far.publish("", "q", "3");
        stage.world.advance(50);
        near.consume("q", "c");
        let message = near.delivery();
        assert_eq!(message.text(), "3");
        near.expect_none();
    });
}

#[test]
fn the_expiration_is_still_on_the_message() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.publish_with("", "q", &expiring("60000"), "x");
    let message = alice.get_no_ack("q").unwrap();
    assert_eq!(message.properties.expiration.as_deref(), Some("60000"));
}

#[test]
fn a_backlog_that_expires_at_once_is_gone_at_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_ttl(&near, "q", 1_000);
        far.publish_all("q", (0..5_000).map(|_| "x"));
        stage.world.advance(1_000);
        assert_eq!(stage.world.queue("q").ready, 0);
        far.publish("", "q", "y");
        assert_eq!(near.get_no_ack("q").unwrap().text(), "y");
    });
}

#[test]
fn deadlines_that_come_before_the_last_leave_no_timers_behind() {
    let world = World::new(1);
    let channel = world.channel(0);
    channel.declare("q");
    let timers = || world.broker(0, |broker| broker.shard.timers.len());
    for number in 0..200 {
        channel.publish_with("", "q", &expiring(&(100_000 - 100 * number).to_string()), "x");
    }
    channel.publish_with("", "q", &expiring("1000000"), "last");
    for _ in 0..200 {
        assert!(channel.get("q").is_some());
    }
    world.advance(200_000);
    assert!(timers() < 10, "{} timers for one queue and one connection", timers());
    world.advance(900_000);
    assert_eq!(world.queue("q").ready, 0);
}
