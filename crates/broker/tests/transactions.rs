//! Transactions: publishes and settlements of one channel, together or not at all.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::{Limits, Options, World};

use crate::stage::everywhere;

#[test]
fn nobody_sees_a_publish_before_its_commit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.tx_select();
        far.publish_all("q", ["1", "2"]);
        assert_eq!(near.get("q"), None);
        assert_eq!(near.passive("q").messages, 0);
        far.tx_commit();
        assert_eq!(near.get_no_ack("q").unwrap().text(), "1");
        assert_eq!(near.get_no_ack("q").unwrap().text(), "2");
        far.publish("", "q", "the next transaction");
        assert_eq!(near.get("q"), None);
        far.tx_commit();
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn a_rollback_forgets_the_publishes() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.tx_select();
        far.publish("", "q", "no");
        far.tx_rollback();
        far.tx_commit();
        assert_eq!(near.get("q"), None);
        far.publish("", "q", "yes");
        far.tx_commit();
        assert_eq!(near.get_no_ack("q").unwrap().text(), "yes");
    });
}

#[test]
fn commit_and_rollback_need_a_transaction() {
    everywhere(|stage| {
        let client = stage.far_client();
        let refused = client.channel().refused(tx::Commit {});
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (90, 20)));
        assert_eq!(refused.text, "PRECONDITION_FAILED - channel is not transactional");
        let refused = client.channel().refused(tx::Rollback {});
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (90, 30)));
    });
}

#[test]
fn tx_select_may_be_repeated() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.tx_select();
    alice.publish("", "q", "x");
    alice.tx_select();
    alice.tx_commit();
    assert_eq!(world.queue("q").ready, 1);
}

#[test]
fn acknowledgements_wait_for_the_commit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2", "3"]);
        far.tx_select();
        far.consume("q", "c");
        let tags: Vec<u64> = far.deliveries().iter().map(|message| message.tag).collect();
        far.ack_up_to(tags[1]);
        assert_eq!(stage.world.queue("q").unacked, 3);
        far.tx_commit();
        assert_eq!(stage.world.queue("q").unacked, 1);
        far.ack(tags[2]);
        far.tx_commit();
        assert_eq!(stage.world.queue("q").unacked, 0);
    });
}

#[test]
fn a_rollback_leaves_deliveries_unacknowledged_and_acknowledgeable() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        far.tx_select();
        far.consume("q", "c");
        let tags: Vec<u64> = far.deliveries().iter().map(|message| message.tag).collect();
        far.ack(tags[0]);
        far.tx_rollback();
        far.expect_none();
        far.ack(tags[0]);
        far.ack(tags[1]);
        far.tx_commit();
        assert!(far.is_open());
        let queue = stage.world.queue("q");
        assert_eq!((queue.ready, queue.unacked), (0, 0));
    });
}

#[test]
fn rejections_wait_for_the_commit_too() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let arguments = Table::new()
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "graves");
        near.declare_with("q", arguments);
        near.declare("graves");
        near.publish_all("q", ["1", "2", "3"]);
        far.tx_select();
        let tags: Vec<u64> = (0..3).map(|_| far.get("q").unwrap().tag).collect();
        far.reject(tags[0], false);
        far.reject(tags[1], true);
        far.nack(tags[2], false, true);
        let queue = stage.world.queue("q");
        assert_eq!((queue.ready, queue.unacked), (0, 3));
        far.tx_commit();
        let queue = stage.world.queue("q");
        assert_eq!((queue.ready, queue.unacked), (2, 0));
        assert_eq!(near.get_no_ack("graves").unwrap().text(), "1");
    });
}

#[test]
fn an_unknown_tag_is_refused_at_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish("", "q", "x");
        far.tx_select();
        let message = far.get("q").unwrap();
        far.ack(message.tag);
        let ack = basic::Ack { delivery_tag: message.tag, multiple: false };
        let refused = far.refused(ack);
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (60, 80)));
        // The transaction ended with its channel, so the acknowledgement did not happen.
        let again = near.get("q").unwrap();
        assert!(again.redelivered);
    });
}

#[test]
fn a_channel_that_closes_forgets_its_transaction() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish("", "q", "kept");
        far.tx_select();
        let message = far.get("q").unwrap();
        far.ack(message.tag);
        far.publish("", "q", "forgotten");
        far.close();
        assert_eq!(near.get_no_ack("q").unwrap().text(), "kept");
        assert_eq!(near.get_no_ack("q"), None);
    });
}

#[test]
fn a_publish_is_checked_when_it_is_made() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.tx_select();
        alice.publish("missing", "k", "x");
        let refused = alice.expect_refused();
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (60, 40)));
    });
}

#[test]
fn returns_come_before_commit_ok() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.tx_select();
        far.publish_mandatory("", "nowhere", "1");
        far.publish("", "q", "2");
        assert_eq!(far.returns(), []);
        let _ = far.order();
        far.tx_commit();
        assert_eq!(far.order(), ["basic.return", "tx.commit-ok"]);
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn ttl_counts_from_the_commit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.tx_select();
        let brief = Properties { expiration: Some("1000".into()), ..Properties::default() };
        far.publish_with("", "q", &brief, "x");
        stage.world.advance(900);
        far.tx_commit();
        stage.world.advance(900);
        assert_eq!(stage.world.queue("q").ready, 1);
        stage.world.advance(100);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn a_commit_covers_queues_on_several_shards_and_the_channel_waits_for_it() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        far.declare("q2");
        near.bind("q1", "amq.fanout", "");
        near.bind("q2", "amq.fanout", "");
        far.tx_select();
        far.client().together(|| {
            (0..200).for_each(|_| far.publish("amq.fanout", "", "x"));
            far.send(tx::Commit {});
            far.send(basic::Get { queue: "q1", no_ack: true });
        });
        far.expect("tx.commit-ok");
        far.expect("basic.get-ok");
        assert_eq!((near.purge("q1"), near.purge("q2")), (199, 200));
    });
}

#[test]
fn acknowledgements_do_not_give_credit_before_the_commit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        far.tx_select();
        far.qos(1);
        far.consume("q", "c");
        let message = far.delivery();
        far.ack(message.tag);
        far.expect_none();
        far.tx_commit();
        let message = far.delivery();
        assert_eq!(message.text(), "2");
        far.ack(message.tag);
        far.tx_commit();
    });
}

#[test]
fn recover_leaves_what_the_transaction_settled() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish_all("q", ["1", "2"]);
        far.tx_select();
        let first = far.get("q").unwrap();
        let _second = far.get("q").unwrap();
        far.ack(first.tag);
        far.recover();
        far.tx_commit();
        let message = near.get_no_ack("q").unwrap();
        assert_eq!((message.text().as_str(), message.redelivered), ("2", true));
        assert_eq!(near.get_no_ack("q"), None);
    });
}

#[test]
fn a_transaction_that_grows_too_large_is_refused() {
    let limits = Limits { tx_bytes_max: 10_000, ..Limits::default() };
    let world = World::with(Options { limits, ..Options::default() });
    let alice = world.channel(0);
    alice.declare("q");
    alice.tx_select();
    alice.publish("", "q", vec![0; 9_000]);
    alice.tx_commit();
    alice.publish("", "q", vec![0; 9_000]);
    alice.publish("", "q", vec![0; 9_000]);
    assert_eq!(alice.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
    assert_eq!(world.queue("q").ready, 1);
}
