//! Messages that live only for a time.

use lapin::BasicProperties;
use lapin::options::*;

use crate::session::{Session, number, table, until};

fn living_for(milliseconds: &str) -> BasicProperties {
    BasicProperties::default().with_expiration(milliseconds.into())
}

#[tokio::test]
async fn a_queue_forgets_messages_after_its_time() {
    let session = Session::open().await;
    let queue = session.queue_with(table([("x-message-ttl", number(50))])).await;
    session.send(&queue, &["a", "b"]).await;
    until("an empty queue", async || (session.counts(&queue).await.0 == 0).then_some(())).await;
    assert!(session.take(&queue).await.is_none());
}

#[tokio::test]
async fn the_shorter_time_counts() {
    let session = Session::open().await;
    let long = session.queue_with(table([("x-message-ttl", number(600_000))])).await;
    session.publish("", &long, b"x", living_for("50")).await;
    until("an empty queue", async || (session.counts(&long).await.0 == 0).then_some(())).await;
    let short = session.queue_with(table([("x-message-ttl", number(50))])).await;
    session.publish("", &short, b"x", living_for("600000")).await;
    until("an empty queue", async || (session.counts(&short).await.0 == 0).then_some(())).await;
}

#[tokio::test]
async fn no_time_at_all_is_enough_for_a_waiting_consumer() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.publish("", &queue, b"too early", living_for("0")).await;
    assert_eq!(session.counts(&queue).await.0, 0);
    let mut inbox = session.inbox(&queue).await;
    session.publish("", &queue, b"in time", living_for("0")).await;
    assert_eq!(inbox.bodies(1).await, ["in time"]);
}

#[tokio::test]
async fn a_requeued_message_keeps_its_deadline() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.publish("", &queue, b"x", living_for("2000")).await;
    let held = session.hold(&queue).await;
    tokio::time::sleep(std::time::Duration::from_millis(2400)).await;
    held.nack(BasicNackOptions { requeue: true, multiple: false }).await.expect("nack");
    assert!(session.take(&queue).await.is_none());
}
