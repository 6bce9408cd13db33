//! Acknowledging, rejecting, and tags that are not known.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::basic;
use lepus_amqp::table::Table;
use lepus_sim::Channel;

use crate::stage::everywhere;

/// A far channel that consumes five messages of `q`, and their tags.
fn with_five(near: &Channel, far: &Channel) -> Vec<u64> {
    near.declare("q");
    near.publish_all("q", ["1", "2", "3", "4", "5"]);
    far.consume("q", "c");
    far.deliveries().iter().map(|message| message.tag).collect()
}

#[test]
fn one_ack_settles_one_delivery_and_multiple_all_before_it() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let tags = with_five(&near, &far);
        assert_eq!(tags, [1, 2, 3, 4, 5]);
        let unacked = || stage.world.queue("q").unacked;
        far.ack(4);
        assert_eq!(unacked(), 4);
        far.ack_up_to(2);
        assert_eq!(unacked(), 2);
        far.ack_up_to(0);
        assert_eq!(unacked(), 0);
        far.ack_up_to(0);
        assert!(far.is_open(), "all of none is fine");
    });
}

#[test]
fn an_unknown_or_repeated_tag_is_refused() {
    everywhere(|stage| {
        let near = stage.near();
        near.declare("q");
        let ack = |delivery_tag, multiple| basic::Ack { delivery_tag, multiple };
        for method in [ack(1, false), ack(0, false), ack(7, false), ack(7, true), ack(1, true)] {
            near.publish("", "q", "x");
            let far = stage.far();
            let message = far.get("q").unwrap();
            far.ack(message.tag);
            let refused = far.refused(method);
            assert_eq!(
                (refused.code, refused.method),
                (ReplyCode::PRECONDITION_FAILED, (60, 80)),
                "{method:?}"
            );
            let tag = method.delivery_tag;
            assert_eq!(refused.text, format!("PRECONDITION_FAILED - unknown delivery tag {tag}"));
        }
    });
}

#[test]
fn a_repeated_nack_or_reject_is_refused_too() {
    for kind in ["classic", "quorum"] {
        everywhere(|stage| {
            let near = stage.near();
            let arguments = Table::new().with("x-queue-type", kind).to_bytes();
            near.declare_method(lepus_amqp::method::queue::Declare {
                queue: "q",
                durable: true,
                arguments: arguments.as_ref(),
                ..Default::default()
            });
            for requeue in [true, false] {
                near.publish_all("q", ["x", "y"]);
                let far = stage.far();
                let message = far.get("q").unwrap();
                let tag = message.tag;
                far.nack(tag, false, requeue);
                let refused =
                    far.refused(basic::Nack { delivery_tag: tag, multiple: false, requeue });
                assert_eq!(
                    (refused.code, refused.method),
                    (ReplyCode::PRECONDITION_FAILED, (60, 120))
                );
                let far = stage.far();
                let message = far.get("q").unwrap();
                far.reject(message.tag, requeue);
                let refused = far.refused(basic::Reject { delivery_tag: message.tag, requeue });
                assert_eq!(
                    (refused.code, refused.method),
                    (ReplyCode::PRECONDITION_FAILED, (60, 90))
                );
                near.purge("q");
            }
        });
    }
}

#[test]
fn tags_belong_to_their_channel() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["x", "y"]);
        let client = far.client();
        let other = client.channel();
        let message = far.get("q").unwrap();
        let refused = other.refused(basic::Ack { delivery_tag: message.tag, multiple: false });
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
        assert_eq!(stage.world.queue("q").unacked, 1);
        far.ack(message.tag);
        assert_eq!(stage.world.queue("q").unacked, 0);
    });
}

#[test]
fn a_rejected_message_is_dropped_or_comes_back() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        let message = far.get("q").unwrap();
        far.reject(message.tag, false);
        let message = far.get("q").unwrap();
        assert_eq!((message.text().as_str(), message.redelivered), ("2", false));
        far.reject(message.tag, true);
        let message = far.get("q").unwrap();
        assert_eq!((message.text().as_str(), message.redelivered), ("2", true));
        far.ack(message.tag);
        assert_eq!(far.get("q"), None);
    });
}

#[test]
fn a_nack_may_settle_many_and_tag_0_means_all() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let tags = with_five(&near, &far);
        far.cancel("c");
        far.nack(tags[2], true, false);
        let figures = stage.world.queue("q");
        assert_eq!((figures.ready, figures.unacked), (0, 2));
        far.nack(0, true, true);
        let figures = stage.world.queue("q");
        assert_eq!((figures.ready, figures.unacked), (2, 0));
        far.nack(0, true, true);
        assert!(far.is_open());
        let again: Vec<_> = core::iter::from_fn(|| near.get_no_ack("q")).collect();
        assert_eq!(again.iter().map(|message| message.text()).collect::<Vec<_>>(), ["4", "5"]);
        assert!(again.iter().all(|message| message.redelivered));
    });
}

#[test]
fn a_multiple_ack_must_name_a_delivery_that_is_out() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let tags = with_five(&near, &far);
        far.ack(tags[2]);
        let refused = far.refused(basic::Ack { delivery_tag: tags[2], multiple: true });
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
        assert_eq!(stage.world.queue("q").ready, 4);
    });
}
