//! Names, owners, lifetimes, limits and priorities of queues.

use lapin::BasicProperties;
use lapin::options::*;
use lapin::types::FieldTable;

use crate::session::{Inbox, Session, body, number, table, unique, until};

/// Does a queue of this name exist?
async fn exists(session: &Session, queue: &str) -> bool {
    let channel = session.plain_channel().await;
    let options = QueueDeclareOptions::default().passive();
    match channel.queue_declare(queue.into(), options, FieldTable::default()).await {
        Ok(_) => {
            channel.close(200, "".into()).await.expect("close");
            true
        }
        Err(error) => {
            assert_eq!(crate::session::refusal(&error).0, 404);
            false
        }
    }
}

#[tokio::test]
async fn the_broker_names_a_queue_without_a_name() {
    let session = Session::open().await;
    let options = QueueDeclareOptions::exclusive();
    let queue = session
        .channel
        .queue_declare("".into(), options, FieldTable::default())
        .await
        .expect("queue");
    assert!(queue.name().as_str().starts_with("amq.gen-"), "{}", queue.name());
    session.send(queue.name().as_str(), &["x"]).await;
    // An empty name stands for the queue declared last on the channel.
    assert_eq!(body(&session.arrived("").await), "x");
}

#[tokio::test]
async fn declare_tells_messages_and_consumers_and_delete_tells_messages() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b", "c"]).await;
    session.hold(&queue).await;
    assert_eq!(session.counts(&queue).await, (2, 0));
    let deleted =
        session.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await;
    assert_eq!(deleted.expect("delete"), 2);
    let again =
        session.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await;
    assert_eq!(again.expect("delete"), 0);
}

#[tokio::test]
async fn an_exclusive_queue_is_locked_and_goes_with_its_connection() {
    let owner = Session::open().await;
    let stranger = Session::open().await;
    let queue = owner.queue().await;
    let name = || queue.as_str().into();
    let none = FieldTable::default;
    let locked = |(code, text): (u16, String)| {
        assert_eq!(code, 405);
        assert!(text.starts_with("RESOURCE_LOCKED"), "{text}");
        assert!(text.contains(&queue), "{text}");
    };
    locked(
        stranger
            .refused(async |ch| {
                ch.queue_declare(name(), QueueDeclareOptions::exclusive(), none()).await
            })
            .await,
    );
    let passive = QueueDeclareOptions::default().passive();
    locked(stranger.refused(async |ch| ch.queue_declare(name(), passive, none()).await).await);
    let bind = QueueBindOptions::default();
    locked(
        stranger
            .refused(async |ch| {
                ch.queue_bind(name(), "amq.direct".into(), "k".into(), bind, none()).await
            })
            .await,
    );
    locked(stranger.refused(async |ch| ch.queue_purge(name(), Default::default()).await).await);
    locked(stranger.refused(async |ch| ch.queue_delete(name(), Default::default()).await).await);
    locked(stranger.refused(async |ch| ch.basic_get(name(), Default::default()).await).await);
    locked(
        stranger
            .refused(async |ch| {
                ch.basic_consume(name(), "".into(), Default::default(), none()).await
            })
            .await,
    );
    assert!(exists(&owner, &queue).await);
    owner.connection.close(200, "".into()).await.expect("close");
    assert!(!exists(&stranger, &queue).await);
}

#[tokio::test]
async fn an_auto_delete_queue_goes_with_its_last_consumer() {
    let session = Session::open().await;
    let queue = unique("queue");
    let options = QueueDeclareOptions::default().auto_delete();
    session
        .channel
        .queue_declare(queue.as_str().into(), options, FieldTable::default())
        .await
        .expect("queue");
    session.send(&queue, &["x"]).await;
    let one = session.inbox(&queue).await;
    let two = session.inbox(&queue).await;
    session.channel.basic_cancel(one.0.tag(), BasicCancelOptions::default()).await.expect("cancel");
    assert!(exists(&session, &queue).await);
    session.channel.basic_cancel(two.0.tag(), BasicCancelOptions::default()).await.expect("cancel");
    assert!(!exists(&session, &queue).await);
}

#[tokio::test]
async fn a_full_queue_drops_its_oldest() {
    let session = Session::open().await;
    let by_count = session.queue_with(table([("x-max-length", number(2))])).await;
    session.send(&by_count, &["a", "b", "c"]).await;
    assert_eq!(session.bodies(&by_count).await, ["b", "c"]);
    let by_size = session.queue_with(table([("x-max-length-bytes", number(10))])).await;
    session.send(&by_size, &["1234", "5678", "90ab"]).await;
    assert_eq!(session.bodies(&by_size).await, ["5678", "90ab"]);
}

#[tokio::test]
async fn messages_of_higher_priority_come_first() {
    let session = Session::open().await;
    let queue = session.queue_with(table([("x-max-priority", number(5))])).await;
    for (priority, body) in
        [(0, "0a"), (3, "3a"), (9, "9 counts as 5"), (3, "3b"), (5, "5"), (0, "0b")]
    {
        let properties = BasicProperties::default().with_priority(priority);
        session.publish("", &queue, body.as_bytes(), properties).await;
    }
    session.send(&queue, &["none counts as 0"]).await;
    let expected = ["9 counts as 5", "5", "3a", "3b", "0a", "0b", "none counts as 0"];
    let channel = session.plain_channel().await;
    let mut inbox = Inbox::open(&channel, &queue, Default::default(), FieldTable::default()).await;
    assert_eq!(inbox.bodies(7).await, expected);
    channel.close(200, "".into()).await.expect("close");
    assert_eq!(session.bodies(&queue).await, expected);
}

#[tokio::test]
async fn an_unused_queue_expires() {
    let session = Session::open().await;
    // Long enough to be bound before that, however slow the machine is.
    let queue = session.queue_with(table([("x-expires", number(2000))])).await;
    let source = session.exchange(lapin::ExchangeKind::Fanout).await;
    session.bind(&queue, &source, "", FieldTable::default()).await;
    // Asking for the queue itself would renew its lease: the exchange goes with the queue's binding.
    until("the queue's end", async || {
        let channel = session.plain_channel().await;
        let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
        let kind = lapin::ExchangeKind::Fanout;
        channel
            .exchange_declare(source.as_str().into(), kind, options, FieldTable::default())
            .await
            .err()
            .map(drop)
    })
    .await;
    assert!(!exists(&session, &queue).await);
}
