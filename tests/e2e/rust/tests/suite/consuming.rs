//! Deliveries to consumers: credit, fairness, priority, cancellation.

use futures_lite::StreamExt;
use lapin::options::*;
use lapin::types::FieldTable;

use crate::session::{Inbox, Session, body, number, patiently, table, until};

#[tokio::test]
async fn deliveries_come_in_order_with_tags_from_one() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b"]).await;
    let mut inbox = session.inbox(&queue).await;
    assert!(inbox.0.tag().as_str().starts_with("amq.ctag-"), "{}", inbox.0.tag());
    session.send(&queue, &["c"]).await;
    for (tag, expected) in [(1, "a"), (2, "b"), (3, "c")] {
        let delivery = inbox.next().await;
        assert_eq!(
            (delivery.delivery_tag, body(&delivery).as_str(), delivery.redelivered),
            (tag, expected, false)
        );
        delivery.ack(BasicAckOptions::default()).await.expect("ack");
    }
    assert_eq!(session.counts(&queue).await, (0, 1));
}

#[tokio::test]
async fn prefetch_bounds_what_a_consumer_owes() {
    let session = Session::open().await;
    let channel = session.plain_channel().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b", "c"]).await;
    channel.basic_qos(2, BasicQosOptions::default()).await.expect("qos");
    let mut inbox = Inbox::open(&channel, &queue, Default::default(), FieldTable::default()).await;
    let first = inbox.next().await;
    assert_eq!(body(&inbox.next().await), "b");
    assert_eq!(session.counts(&queue).await.0, 1);
    assert!(inbox.is_empty_after_round_trip(&channel).await);
    first.ack(BasicAckOptions::default()).await.expect("ack");
    assert_eq!(body(&inbox.next().await), "c");
}

#[tokio::test]
async fn a_global_prefetch_bounds_the_channel() {
    let session = Session::open().await;
    let channel = session.plain_channel().await;
    let queues = [session.queue().await, session.queue().await];
    channel.basic_qos(3, BasicQosOptions { global: true }).await.expect("qos");
    let mut left =
        Inbox::open(&channel, &queues[0], Default::default(), FieldTable::default()).await;
    let mut right =
        Inbox::open(&channel, &queues[1], Default::default(), FieldTable::default()).await;
    session.send(&queues[0], &["a", "b"]).await;
    assert_eq!(left.bodies(2).await, ["a", "b"]);
    session.send(&queues[1], &["c", "d"]).await;
    let last = right.next().await;
    assert_eq!(body(&last), "c");
    assert!(right.is_empty_after_round_trip(&channel).await);
    last.ack(BasicAckOptions::default()).await.expect("ack");
    assert_eq!(body(&right.next().await), "d");
}

#[tokio::test]
async fn a_consumer_without_answers_ignores_prefetch() {
    let session = Session::open().await;
    let channel = session.plain_channel().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b", "c"]).await;
    channel.basic_qos(1, BasicQosOptions::default()).await.expect("qos");
    let options = BasicConsumeOptions { no_ack: true, ..Default::default() };
    let mut inbox = Inbox::open(&channel, &queue, options, FieldTable::default()).await;
    assert_eq!(inbox.bodies(3).await, ["a", "b", "c"]);
    channel.close(200, "".into()).await.expect("close");
    assert_eq!(session.counts(&queue).await, (0, 0));
}

#[tokio::test]
async fn consumers_of_a_queue_take_turns() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let mut left = session.inbox(&queue).await;
    let mut right = session.inbox(&queue).await;
    session.send(&queue, &["1", "2", "3", "4"]).await;
    let mut all = left.bodies(2).await;
    all.extend(right.bodies(2).await);
    all.sort();
    assert_eq!(all, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_consumer_of_higher_priority_is_served_first() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let channel = session.plain_channel().await;
    channel.basic_qos(1, BasicQosOptions::default()).await.expect("qos");
    let mut low =
        Inbox::open(&channel, &queue, Default::default(), table([("x-priority", number(-1))]))
            .await;
    let mut high =
        Inbox::open(&channel, &queue, Default::default(), table([("x-priority", number(5))])).await;
    session.send(&queue, &["first", "second"]).await;
    assert_eq!(body(&high.next().await), "first");
    assert_eq!(body(&low.next().await), "second");
}

#[tokio::test]
async fn a_cancelled_consumer_keeps_what_it_owes() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["owed"]).await;
    let mut inbox = session.inbox(&queue).await;
    let owed = inbox.next().await;
    session
        .channel
        .basic_cancel(inbox.0.tag(), BasicCancelOptions::default())
        .await
        .expect("cancel");
    assert_eq!(session.counts(&queue).await, (0, 0));
    session.send(&queue, &["later"]).await;
    owed.ack(BasicAckOptions::default()).await.expect("ack");
    assert_eq!(session.bodies(&queue).await, ["later"]);
}

#[tokio::test]
async fn the_broker_cancels_the_consumers_of_a_deleted_queue() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let mut inbox = session.inbox(&queue).await;
    let channel = session.plain_channel().await;
    channel
        .queue_delete(queue.as_str().into(), QueueDeleteOptions::default())
        .await
        .expect("delete");
    assert!(
        patiently("cancel", inbox.0.next()).await.is_none(),
        "the stream ends without an error"
    );
    session.queue().await;
}

#[tokio::test]
async fn an_exclusive_consumer_is_alone() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let options = BasicConsumeOptions { exclusive: true, ..Default::default() };
    let _alone = Inbox::open(&session.channel, &queue, options, FieldTable::default()).await;
    let (code, text) = session
        .refused(async |channel| {
            let options = BasicConsumeOptions::default();
            channel
                .basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default())
                .await
        })
        .await;
    assert_eq!(code, 403);
    assert!(text.starts_with("ACCESS_REFUSED") && text.contains("exclusive"), "{text}");
}

#[tokio::test]
async fn a_single_active_consumer_is_followed_by_the_next() {
    let session = Session::open().await;
    let queue = session
        .queue_with(table([("x-single-active-consumer", lapin::types::AMQPValue::Boolean(true))]))
        .await;
    let (one, two) = (session.plain_channel().await, session.plain_channel().await);
    let mut active = Inbox::open(&one, &queue, Default::default(), FieldTable::default()).await;
    let mut waiting = Inbox::open(&two, &queue, Default::default(), FieldTable::default()).await;
    session.send(&queue, &["a", "b"]).await;
    assert_eq!(active.bodies(2).await, ["a", "b"]);
    assert!(waiting.is_empty_after_round_trip(&two).await);
    one.close(200, "".into()).await.expect("close");
    assert_eq!(waiting.bodies(2).await, ["a", "b"]);
}

#[tokio::test]
async fn a_dropped_consumer_no_longer_counts() {
    let session = Session::open().await;
    let queue = session.queue().await;
    drop(session.inbox(&queue).await);
    until("no consumer", async || (session.counts(&queue).await.1 == 0).then_some(())).await;
}
