//! Publisher confirms.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, confirm, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Confirm, Options, World};

use crate::stage::{everywhere, everywhere_with};

/// Publishes `count` messages in one piece and expects that all are acknowledged, each once.
fn all_confirmed(channel: &Channel, first: u64, count: u64, publish: impl Fn(u64)) {
    channel.client().together(|| (0..count).for_each(&publish));
    let (acked, nacked) = channel.confirmed();
    assert_eq!(acked, (first..first + count).collect::<Vec<_>>());
    assert_eq!(nacked, [0; 0]);
}

#[test]
fn publishes_are_counted_from_one_on_each_channel() {
    everywhere(|stage| {
        let client = stage.far_client();
        let (one, two) = (client.channel(), client.channel());
        one.declare("q");
        one.publish("", "q", "before confirms were selected");
        one.confirm_select();
        two.confirm_select();
        one.publish("", "q", "x");
        two.publish("", "q", "x");
        let first = [Confirm::Ack { tag: 1, multiple: false }];
        assert_eq!((one.confirms(), two.confirms()), (first.to_vec(), first.to_vec()));
        one.confirm_select();
        one.publish("", "q", "x");
        assert_eq!(one.confirms(), [Confirm::Ack { tag: 2, multiple: false }]);
    });
}

#[test]
fn every_way_that_a_message_may_go_is_confirmed() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let dead = || Table::new().with("x-dead-letter-exchange", "amq.fanout");
        near.declare("plain");
        near.declare_with("ttl 0", dead().with("x-message-ttl", 0));
        near.declare_with("length 0", dead().with("x-max-length", 0));
        near.declare_with("full", Table::new().with("x-max-length", 1));
        near.declare("graves");
        near.bind("graves", "amq.fanout", "");
        far.confirm_select();
        let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
        let mut next = 1;
        for queue in ["plain", "ttl 0", "length 0", "full", "missing"] {
            all_confirmed(&far, next, 10, |_| far.publish("", queue, "x"));
            all_confirmed(&far, next + 10, 10, |_| far.publish_with("", queue, &persistent, "x"));
            next += 20;
        }
        let expired = Properties { expiration: Some("0".into()), ..Properties::default() };
        all_confirmed(&far, next, 10, |_| far.publish_with("", "plain", &expired, "x"));
        // What expired behind others leaves when it comes to the head.
        assert_eq!(near.purge("plain"), 30);
        assert_eq!(near.purge("graves"), 40);
    });
}

#[test]
fn a_message_is_confirmed_whatever_becomes_of_it_meanwhile() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let consumer = stage.far();
        consumer.consume("q", "c");
        let no_ack = stage.near();
        no_ack.consume_no_ack("q", "c");
        far.confirm_select();
        all_confirmed(&far, 1, 100, |_| far.publish("", "q", "x"));
        consumer.recover();
        consumer.client().close();
        near.purge("q");
        all_confirmed(&far, 101, 10, |_| far.publish("", "q", "x"));
        far.client().together(|| {
            near.client().together(|| {
                far.publish("", "q", "x");
                near.send(lepus_amqp::method::queue::Delete { queue: "q", ..Default::default() });
                far.publish("", "q", "x");
            });
        });
        assert_eq!(far.confirmed().0, [111, 112]);
        assert_eq!(stage.world.find_queue("/", "q"), None);
    });
}

#[test]
fn a_message_to_queues_on_several_shards_is_confirmed_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for index in 0..6 {
            let queue = format!("q{index}");
            (if index % 2 == 0 { &near } else { &far }).declare(&queue);
            near.bind(&queue, "amq.fanout", "");
        }
        far.confirm_select();
        all_confirmed(&far, 1, 50, |_| far.publish("amq.fanout", "", "x"));
        for index in 0..6 {
            assert_eq!(near.purge(&format!("q{index}")), 50);
        }
    });
}

#[test]
fn a_full_queue_that_rejects_makes_it_a_nack() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let arguments = Table::new().with("x-max-length", 2).with("x-overflow", "reject-publish");
        near.declare_with("q", arguments);
        near.declare("other");
        near.bind("q", "amq.fanout", "");
        near.bind("other", "amq.fanout", "");
        far.confirm_select();
        far.client().together(|| (0..5).for_each(|_| far.publish("", "q", "x")));
        assert_eq!(far.confirmed(), (vec![1, 2], vec![3, 4, 5]));
        // One queue that refuses is enough.
        far.publish("amq.fanout", "", "x");
        assert_eq!(far.confirmed(), (vec![], vec![6]));
        assert_eq!(near.purge("other"), 1);
        near.purge("q");
        far.publish("", "q", "x");
        assert_eq!(far.confirmed(), (vec![7], vec![]));
    });
}

#[test]
fn many_publishes_are_confirmed_together() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.confirm_select();
    alice.publish_all("q", (0..100).map(|index| index.to_string()));
    let confirms = alice.confirms();
    assert!(confirms.len() < 20, "{confirms:?}");
    assert_eq!(confirms.last(), Some(&Confirm::Ack { tag: 100, multiple: true }));
}

#[test]
fn confirms_come_through_narrow_rings_too() {
    let options = Options { ring_capacity: 2, ..Options::default() };
    everywhere_with(&options, |stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        far.declare("q2");
        far.confirm_select();
        all_confirmed(&far, 1, 2_000, |index| {
            far.publish("", if index % 3 == 0 { "q1" } else { "q2" }, index.to_string());
        });
        assert_eq!(near.purge("q1") + near.purge("q2"), 2_000);
    });
}

#[test]
fn confirms_and_transactions_do_not_go_together() {
    everywhere(|stage| {
        let client = stage.far_client();
        let channel = client.channel();
        channel.confirm_select();
        let refused = channel.refused(tx::Select {});
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (90, 10)));
        let channel = client.channel();
        channel.tx_select();
        let refused = channel.refused(confirm::Select { no_wait: false });
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (85, 10)));
    });
}

#[test]
fn confirm_select_may_go_without_an_answer() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.send(confirm::Select { no_wait: true });
    alice.publish("", "nowhere", "x");
    assert_eq!(alice.answer(), None);
    assert_eq!(alice.confirmed().0, [1]);
}

#[test]
fn numbers_start_anew_on_a_channel_that_is_opened_again() {
    everywhere(|stage| {
        let client = stage.far_client();
        stage.near().declare("q");
        for _ in 0..3 {
            let channel = client.channel_number(4);
            channel.confirm_select();
            channel.client().together(|| {
                channel.publish("", "q", "x");
                channel.publish("", "q", "x");
            });
            assert_eq!(channel.confirmed().0, [1, 2]);
            channel.close();
        }
    });
}

#[test]
fn a_channel_may_publish_with_confirms_and_consume_at_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.confirm_select();
        far.consume("q", "c");
        for index in 1..=20u64 {
            far.publish("", "q", index.to_string());
            assert_eq!(far.confirmed().0, [index]);
            let message = far.delivery();
            assert_eq!(message.tag, index);
            far.send(basic::Ack { delivery_tag: index, multiple: false });
        }
        assert!(far.is_open());
    });
}
