//! Ack, nack, reject, recover, and what comes back in which order.

use lapin::options::*;
use lapin::types::FieldTable;

use crate::session::{Inbox, Session, body, until};

const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };

#[tokio::test]
async fn ack_multiple_settles_all_so_far() {
    let session = Session::open().await;
    let channel = session.plain_channel().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b", "c", "d"]).await;
    let mut inbox = Inbox::open(&channel, &queue, Default::default(), FieldTable::default()).await;
    inbox.bodies(4).await;
    channel.basic_ack(3, BasicAckOptions { multiple: true }).await.expect("ack");
    channel.close(200, "".into()).await.expect("close");
    assert_eq!(session.bodies(&queue).await, ["d"]);
}

#[tokio::test]
async fn a_requeued_message_returns_to_its_place() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b", "c", "d"]).await;
    let (a, b, c) =
        (session.hold(&queue).await, session.hold(&queue).await, session.hold(&queue).await);
    c.reject(BasicRejectOptions { requeue: true }).await.expect("reject");
    a.nack(REQUEUE).await.expect("nack");
    b.nack(REQUEUE).await.expect("nack");
    let mut seen = Vec::new();
    while let Some(message) = session.take(&queue).await {
        seen.push((body(&message), message.redelivered));
    }
    let seen: Vec<_> =
        seen.iter().map(|(body, redelivered)| (body.as_str(), *redelivered)).collect();
    assert_eq!(seen, [("a", true), ("b", true), ("c", true), ("d", false)]);
}

#[tokio::test]
async fn nack_multiple_requeues_in_order() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b", "c", "d"]).await;
    session.hold(&queue).await;
    session.hold(&queue).await;
    let last = session.hold(&queue).await;
    last.nack(BasicNackOptions { multiple: true, requeue: true }).await.expect("nack");
    assert_eq!(session.bodies(&queue).await, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn rejected_without_requeue_is_gone() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b", "c"]).await;
    session.hold(&queue).await.reject(BasicRejectOptions { requeue: false }).await.expect("reject");
    session.hold(&queue).await.nack(BasicNackOptions::default()).await.expect("nack");
    assert_eq!(session.bodies(&queue).await, ["c"]);
}

#[tokio::test]
async fn recover_brings_back_all_that_is_owed() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b"]).await;
    session.hold(&queue).await;
    session.hold(&queue).await;
    session.channel.basic_recover(BasicRecoverOptions { requeue: true }).await.expect("recover");
    let again = session.arrived(&queue).await;
    assert_eq!((body(&again).as_str(), again.redelivered), ("a", true));
    assert_eq!(session.bodies(&queue).await, ["b"]);
}

#[tokio::test]
async fn a_closed_channel_gives_back_in_order_before_newer_messages() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let numbers: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    session.send(&queue, &numbers[..1990]).await;
    let channel = session.plain_channel().await;
    let mut inbox = Inbox::open(&channel, &queue, Default::default(), FieldTable::default()).await;
    assert_eq!(inbox.bodies(1990).await, numbers[..1990]);
    channel.close(200, "".into()).await.expect("close");
    session.send(&queue, &numbers[1990..]).await;
    let mut again = session.inbox(&queue).await;
    for (at, expected) in numbers.iter().enumerate() {
        let delivery = again.next().await;
        assert_eq!((body(&delivery).as_str(), delivery.redelivered), (*expected, at < 1990));
    }
}

#[tokio::test]
async fn a_lost_connection_gives_back_what_it_owed() {
    let session = Session::open().await;
    let queue = crate::session::unique("shared");
    let options = QueueDeclareOptions::default();
    session
        .channel
        .queue_declare(queue.as_str().into(), options, FieldTable::default())
        .await
        .expect("queue");
    session.send(&queue, &["a", "b"]).await;
    let other = Session::open().await;
    other.hold(&queue).await;
    other.hold(&queue).await;
    assert!(session.take(&queue).await.is_none());
    other.connection.close(200, "".into()).await.expect("close");
    until("both messages", async || (session.counts(&queue).await.0 == 2).then_some(())).await;
    assert_eq!(session.bodies(&queue).await, ["a", "b"]);
    session
        .channel
        .queue_delete(queue.as_str().into(), QueueDeleteOptions::default())
        .await
        .expect("delete");
}

#[tokio::test]
async fn purge_leaves_what_is_owed() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["owed", "b", "c"]).await;
    let owed = session.hold(&queue).await;
    let purged = session
        .channel
        .queue_purge(queue.as_str().into(), QueuePurgeOptions::default())
        .await
        .expect("purge");
    assert_eq!(purged, 2);
    owed.nack(REQUEUE).await.expect("nack");
    assert_eq!(session.bodies(&queue).await, ["owed"]);
}
