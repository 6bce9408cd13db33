//! Queues with one active consumer at a time.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::basic;
use lepus_amqp::table::Table;
use lepus_sim::Channel;

use crate::stage::everywhere;

fn declare(channel: &Channel) {
    channel.declare_with("q", Table::new().with("x-single-active-consumer", true));
}

#[test]
fn one_consumer_gets_everything_until_it_leaves() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near);
        let (one, two, three) = (stage.far(), stage.near(), stage.far());
        for (channel, tag) in [(&one, "1"), (&two, "2"), (&three, "3")] {
            channel.consume_no_ack("q", tag);
        }
        far.publish_all("q", ["a", "b"]);
        assert_eq!(one.bodies(), ["a", "b"]);
        one.cancel("1");
        far.publish("", "q", "c");
        assert_eq!(two.bodies(), ["c"]);
        two.client().reset();
        far.publish("", "q", "d");
        assert_eq!(three.bodies(), ["d"]);
        one.expect_none();
    });
}

#[test]
fn without_credit_the_active_consumer_stays_active() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near);
        let (one, two) = (stage.far(), stage.near());
        one.qos(1);
        one.consume("q", "1");
        two.consume("q", "2");
        far.publish_all("q", ["a", "b"]);
        let message = one.delivery();
        two.expect_none();
        one.ack(message.tag);
        assert_eq!(one.bodies(), ["b"]);
    });
}

#[test]
fn the_next_one_gets_what_the_lost_one_held() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near);
        let (one, two) = (stage.far(), stage.far());
        one.consume("q", "1");
        two.consume("q", "2");
        far.publish_all("q", ["a", "b"]);
        assert_eq!(one.bodies(), ["a", "b"]);
        one.client().reset();
        let messages = two.deliveries();
        assert!(messages.iter().all(|message| message.redelivered));
        assert_eq!(messages.iter().map(|message| message.text()).collect::<Vec<_>>(), ["a", "b"]);
    });
}

#[test]
fn the_next_one_is_that_of_the_highest_priority() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near);
        let (one, low, high) = (stage.near(), stage.far(), stage.far());
        one.consume_no_ack("q", "c");
        let with = |priority: i32| Table::new().with("x-priority", priority);
        low.consume_with("q", "low", with(1));
        high.consume_with("q", "high", with(2));
        one.cancel("c");
        far.publish("", "q", "a");
        assert_eq!(high.bodies(), ["a"]);
        low.expect_none();
    });
}

#[test]
fn an_exclusive_consumer_is_refused() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near);
        let exclusive = basic::Consume { queue: "q", exclusive: true, ..Default::default() };
        assert_eq!(far.refused(exclusive).code, ReplyCode::ACCESS_REFUSED);
    });
}

#[test]
fn a_classic_queue_can_still_be_fetched_from() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near);
        far.publish("", "q", "a");
        assert_eq!(far.get_no_ack("q").unwrap().text(), "a");
    });
}
