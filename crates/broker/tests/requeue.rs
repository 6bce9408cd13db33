//! Messages that come back keep their order and come before newer ones.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, channel};
use lepus_sim::{Channel, Message};

use crate::stage::everywhere;

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::text).collect()
}

fn numbers(range: core::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// All of a queue's messages, settled.
fn drain(channel: &Channel, queue: &str) -> Vec<Message> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).collect()
}

/// Lets `end` happen to a channel that holds 2,000 of 2,100 messages; all are back in order.
fn comes_back(end: impl Fn(&Channel)) {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", numbers(0..2_100));
        far.qos(2_000);
        far.consume("q", "c");
        assert_eq!(far.deliveries().len(), 2_000);
        end(&far);
        let messages = drain(&near, "q");
        assert_eq!(texts(&messages), numbers(0..2_100));
        assert!(messages[..2_000].iter().all(|message| message.redelivered));
        assert!(messages[2_000..].iter().all(|message| !message.redelivered));
    });
}

#[test]
fn two_thousand_come_back_in_order_when_the_channel_closes() {
    comes_back(Channel::close);
}

#[test]
fn two_thousand_come_back_in_order_when_the_connection_closes() {
    comes_back(|channel| channel.client().close());
}

#[test]
fn two_thousand_come_back_in_order_when_the_connection_is_lost() {
    comes_back(|channel| channel.client().reset());
}

#[test]
fn two_thousand_come_back_in_order_when_the_channel_is_refused() {
    comes_back(|channel| {
        channel.refused(basic::Ack { delivery_tag: 99_999, multiple: false });
    });
}

#[test]
fn two_thousand_come_back_in_order_by_one_nack() {
    comes_back(|channel| {
        channel.cancel("c");
        channel.nack(2_000, true, true);
    });
}

#[test]
fn two_thousand_come_back_in_order_by_single_nacks_backwards() {
    comes_back(|channel| {
        channel.cancel("c");
        channel.client().together(|| {
            (1..=2_000).rev().for_each(|tag| channel.nack(tag, false, true));
        });
    });
}

#[test]
fn two_thousand_come_back_in_order_by_recover() {
    comes_back(|channel| {
        channel.cancel("c");
        channel.recover();
    });
}

#[test]
fn another_consumer_gets_what_comes_back_in_order_before_newer_messages() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", numbers(0..1_000));
        far.consume("q", "c");
        let other = stage.near();
        assert_eq!(far.deliveries().len(), 1_000);
        far.cancel("c");
        other.consume("q", "c");
        let publisher = stage.far();
        far.client().together(|| {
            publisher.client().together(|| {
                far.send(channel::Close { reply_code: 200, ..Default::default() });
                publisher.publish_all("q", numbers(1_000..1_010));
            });
        });
        let messages = other.deliveries();
        let (back, new): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| message.redelivered);
        assert_eq!(texts(&back), numbers(0..1_000));
        assert_eq!(texts(&new), numbers(1_000..1_010));
    });
}

#[test]
fn one_that_comes_back_takes_its_old_place() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", numbers(0..5));
        let messages: Vec<_> = (0..3).map(|_| far.get("q").unwrap()).collect();
        far.reject(messages[1].tag, true);
        near.publish("", "q", "5");
        far.reject(messages[0].tag, true);
        far.reject(messages[2].tag, true);
        let again = drain(&near, "q");
        assert_eq!(texts(&again), numbers(0..6));
        let flags: Vec<bool> = again.iter().map(|message| message.redelivered).collect();
        assert_eq!(flags, [true, true, true, false, false, false]);
    });
}

#[test]
fn the_same_consumer_gets_a_requeued_message_again() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish("", "q", "x");
        far.consume("q", "c");
        for tag in 1..=10u64 {
            let message = far.delivery();
            assert_eq!((message.tag, message.redelivered), (tag, tag > 1));
            assert_eq!(message.header("x-delivery-count"), None);
            far.reject(tag, true);
        }
        far.ack(11);
        assert_eq!(stage.world.queue("q").unacked, 0);
    });
}

#[test]
fn nack_many_keeps_the_order_for_the_same_consumer() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", numbers(0..10));
        far.qos(10);
        far.consume("q", "c");
        let messages = far.deliveries();
        far.nack(messages[6].tag, true, true);
        let again = far.deliveries();
        assert_eq!(texts(&again), numbers(0..7));
        assert!(again.iter().all(|message| message.redelivered));
    });
}

#[test]
fn recover_gives_back_everything_and_is_answered() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        near.publish_all("q1", numbers(0..5));
        near.publish_all("q2", numbers(5..8));
        far.consume("q1", "c");
        let first = far.deliveries();
        assert_eq!(first.len(), 5);
        assert!(far.get("q2").is_some());
        far.recover();
        let again = far.deliveries();
        assert_eq!(texts(&again), numbers(0..5));
        assert!(again.iter().all(|message| message.redelivered));
        assert_eq!(stage.world.queue("q2").unacked, 0);
        far.recover();
        assert_eq!(far.deliveries().len(), 5);
    });
}

#[test]
fn recover_is_answered_before_anything_comes_again() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume("q", "c");
        near.publish_all("q", numbers(0..2));
        assert_eq!(far.deliveries().len(), 2);
        let _ = far.order();
        far.recover();
        assert_eq!(far.order(), ["basic.recover-ok", "basic.deliver", "basic.deliver"]);
    });
}

#[test]
fn recover_without_requeue_is_not_implemented() {
    everywhere(|stage| {
        let far = stage.far();
        let refused = far.refused(basic::Recover { requeue: false });
        assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_IMPLEMENTED, true));
    });
}

#[test]
fn recover_async_is_not_answered() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish("", "q", "x");
        assert!(far.get("q").is_some());
        far.send(basic::RecoverAsync { requeue: true });
        assert_eq!(far.answer(), None);
        assert_eq!(stage.world.queue("q").ready, 1);
    });
}

#[test]
fn what_two_connections_held_is_back_in_order() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", numbers(0..100));
        for (index, channel) in (0..100).zip([&near, &far].into_iter().cycle()) {
            assert_eq!(channel.get("q").unwrap().text(), index.to_string());
        }
        let third = stage.far();
        near.client().reset();
        far.client().close();
        assert_eq!(texts(&drain(&third, "q")), numbers(0..100));
    });
}

#[test]
fn what_was_delivered_out_of_order_comes_back_in_order() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", numbers(0..5));
        far.consume("q", "c");
        let messages = far.deliveries();
        // The oldest gets the youngest tags, backwards.
        far.reject(messages[1].tag, true);
        far.reject(messages[0].tag, true);
        assert_eq!(far.bodies(), ["1", "0"]);
        far.cancel("c");
        let other = stage.near();
        other.consume("q", "c");
        far.close();
        assert_eq!(other.bodies(), numbers(0..5));
    });
}
