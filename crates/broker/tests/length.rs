//! Queues that hold no more than so much.

use lepus_amqp::table::Table;
use lepus_sim::Channel;

use crate::stage::everywhere;

fn drain(channel: &Channel, queue: &str) -> Vec<String> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).map(|message| message.text()).collect()
}

#[test]
fn the_oldest_messages_are_dropped_above_the_length() {
    everywhere(|stage| {
        for length in 0..=3usize {
            let (near, far) = stage.pair();
            near.declare_with("q", Table::new().with("x-max-length", length as i32));
            far.publish_all("q", ["1", "2", "3", "4", "5"]);
            let kept = drain(&near, "q");
            assert_eq!(kept, ["1", "2", "3", "4", "5"][5 - length..]);
            near.delete("q");
        }
    });
}

#[test]
fn the_oldest_messages_are_dropped_above_the_bytes() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-max-length-bytes", 10));
        far.publish_all("q", ["aaaa", "bbbb", "cccc"]);
        assert_eq!(stage.world.queue("q").ready_bytes, 8);
        assert_eq!(drain(&near, "q"), ["bbbb", "cccc"]);
        far.publish_all("q", ["a", "", "this one is too large"]);
        assert_eq!(drain(&near, "q"), [""; 0]);
    });
}

#[test]
fn both_limits_hold_together() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let arguments = Table::new().with("x-max-length", 3).with("x-max-length-bytes", 10);
        near.declare_with("q", arguments);
        far.publish_all("q", ["a", "b", "c", "d"]);
        assert_eq!(drain(&near, "q"), ["b", "c", "d"]);
        far.publish_all("q", ["aaaaaaaa", "bbbbbbbb"]);
        assert_eq!(drain(&near, "q"), ["bbbbbbbb"]);
    });
}

#[test]
fn only_ready_messages_count() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-max-length", 1));
        far.publish("", "q", "1");
        let held = near.get("q").unwrap();
        far.publish("", "q", "2");
        let figures = stage.world.queue("q");
        assert_eq!((figures.ready, figures.unacked), (1, 1));
        // When it comes back there are two, and the oldest goes.
        near.reject(held.tag, true);
        assert_eq!(drain(&near, "q"), ["2"]);
    });
}

#[test]
fn consumers_with_credit_come_before_the_limit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-max-length", 0));
        near.consume_no_ack("q", "c");
        far.publish_all("q", ["1", "2", "3"]);
        assert_eq!(near.bodies(), ["1", "2", "3"]);
    });
}

#[test]
fn dropped_messages_are_dead_lettered_in_order() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let arguments = Table::new()
            .with("x-max-length", 2)
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "graves");
        near.declare_with("q", arguments);
        near.declare("graves");
        far.publish_all("q", (0..100).map(|index| index.to_string()));
        let expected: Vec<String> = (0..98).map(|index| index.to_string()).collect();
        assert_eq!(drain(&near, "graves"), expected);
        assert_eq!(drain(&near, "q"), ["98", "99"]);
        assert_eq!(stage.world.counters().dead_lettered_maxlen, 98);
    });
}

#[test]
fn a_queue_that_rejects_keeps_the_old_messages() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let arguments = Table::new().with("x-max-length", 2).with("x-overflow", "reject-publish");
        near.declare_with("q", arguments);
        far.publish_all("q", ["1", "2", "3"]);
        assert_eq!(drain(&near, "q"), ["1", "2"]);
        far.publish("", "q", "4");
        assert_eq!(drain(&near, "q"), ["4"]);
    });
}

#[test]
fn a_rejected_publish_may_be_dead_lettered() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let arguments = Table::new()
            .with("x-max-length", 1)
            .with("x-overflow", "reject-publish-dlx")
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "graves");
        near.declare_with("q", arguments);
        near.declare("graves");
        far.confirm_select();
        far.publish_all("q", ["1", "2"]);
        assert_eq!(far.confirmed(), (vec![1], vec![2]));
        assert_eq!(drain(&near, "graves"), ["2"]);
        assert_eq!(drain(&near, "q"), ["1"]);
    });
}
