//! Fetching single messages.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::basic;

use crate::stage::everywhere;

#[test]
fn get_ok_tells_how_many_are_left_and_whether_it_was_delivered_before() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2", "3"]);
        let message = far.get("q").unwrap();
        assert_eq!((message.text().as_str(), message.tag), ("1", 1));
        assert_eq!((message.remaining, message.redelivered), (Some(2), false));
        assert_eq!((message.exchange.as_str(), message.key.as_str()), ("", "q"));
        far.reject(message.tag, true);
        let message = far.get("q").unwrap();
        assert_eq!((message.tag, message.remaining, message.redelivered), (2, Some(2), true));
        assert_eq!(message.text(), "1");
        far.ack(message.tag);
    });
}

#[test]
fn an_empty_queue_says_so() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        assert_eq!(far.call(basic::Get { queue: "q", no_ack: false }).name(), "basic.get-empty");
    });
}

#[test]
fn with_no_ack_the_message_is_gone_at_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish("", "q", "x");
        let message = far.get_no_ack("q").unwrap();
        let queue = stage.world.queue("q");
        assert_eq!((queue.ready, queue.unacked), (0, 0));
        let refused = far.refused(basic::Ack { delivery_tag: message.tag, multiple: false });
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
    });
}

#[test]
fn a_missing_queue_is_not_found() {
    everywhere(|stage| {
        let far = stage.far();
        let refused = far.refused(basic::Get { queue: "missing", no_ack: true });
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (60, 70)));
        assert_eq!(refused.text, "NOT_FOUND - no queue 'missing' in vhost '/'");
    });
}

#[test]
fn tags_are_shared_with_consumers() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        near.publish("", "q1", "fetched");
        near.publish("", "q2", "delivered");
        assert_eq!(far.get("q1").unwrap().tag, 1);
        far.consume("q2", "c");
        assert_eq!(far.delivery().tag, 2);
        far.ack_up_to(2);
        assert_eq!(stage.world.queue("q1").unacked + stage.world.queue("q2").unacked, 0);
    });
}

#[test]
fn many_gets_in_one_piece_are_answered_in_order() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", (0..50).map(|index| index.to_string()));
        far.client().together(|| {
            for _ in 0..60 {
                far.send(basic::Get { queue: "q", no_ack: true });
            }
        });
        let mut names = Vec::new();
        while let Some(answer) = far.answer() {
            names.push(answer.name());
        }
        assert_eq!(names[..50], ["basic.get-ok"; 50]);
        assert_eq!(names[50..], ["basic.get-empty"; 10]);
    });
}

#[test]
fn a_message_that_expires_meanwhile_is_not_fetched() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", lepus_amqp::Table::new().with("x-message-ttl", 10));
        near.publish("", "q", "x");
        stage.world.advance(10);
        assert_eq!(far.get("q"), None);
    });
}
