//! tx.select, commit and rollback.

use lapin::options::*;
use lapin::{BasicProperties, Channel};

use crate::session::Session;

async fn transactional(session: &Session) -> Channel {
    let channel = session.plain_channel().await;
    channel.tx_select().await.expect("select");
    channel
}

async fn publish(channel: &Channel, queue: &str, body: &str) {
    let options = BasicPublishOptions::default();
    let properties = BasicProperties::default();
    channel
        .basic_publish("".into(), queue.into(), options, body.as_bytes(), properties)
        .await
        .expect("publish");
}

#[tokio::test]
async fn publishes_show_with_the_commit() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let channel = transactional(&session).await;
    publish(&channel, &queue, "a").await;
    publish(&channel, &queue, "b").await;
    // A get on the same channel is answered after the publishes were read.
    assert!(
        channel.basic_get(queue.as_str().into(), Default::default()).await.expect("get").is_none()
    );
    channel.tx_commit().await.expect("commit");
    assert_eq!(session.bodies(&queue).await, ["a", "b"]);
}

#[tokio::test]
async fn a_rollback_forgets_publishes_and_answers() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["owed"]).await;
    let channel = transactional(&session).await;
    let owed = channel
        .basic_get(queue.as_str().into(), Default::default())
        .await
        .expect("get")
        .expect("a message");
    channel.basic_ack(owed.delivery_tag, Default::default()).await.expect("ack");
    publish(&channel, &queue, "never").await;
    channel.tx_rollback().await.expect("rollback");
    assert_eq!(session.counts(&queue).await.0, 0);
    channel.basic_ack(owed.delivery_tag, Default::default()).await.expect("ack");
    channel.tx_commit().await.expect("commit");
    channel.close(200, "".into()).await.expect("close");
    assert_eq!(session.counts(&queue).await.0, 0);
}

#[tokio::test]
async fn answers_count_with_the_commit() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["a", "b"]).await;
    let channel = transactional(&session).await;
    for _ in 0..2 {
        channel
            .basic_get(queue.as_str().into(), Default::default())
            .await
            .expect("get")
            .expect("a message");
    }
    channel.basic_ack(1, Default::default()).await.expect("ack");
    channel.tx_commit().await.expect("commit");
    channel.basic_ack(2, Default::default()).await.expect("ack");
    channel.close(200, "".into()).await.expect("close");
    assert_eq!(session.bodies(&queue).await, ["b"]);
}

#[tokio::test]
async fn a_channel_is_in_one_mode() {
    let session = Session::open().await;
    for (code, text) in [
        session.refused(async |channel| channel.tx_commit().await).await,
        session.refused(async |channel| channel.tx_rollback().await).await,
        session
            .refused(async |channel| {
                channel.tx_select().await?;
                channel.confirm_select(ConfirmSelectOptions::default()).await
            })
            .await,
        session
            .refused(async |channel| {
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
                channel.tx_select().await
            })
            .await,
    ] {
        assert_eq!(code, 406);
        assert!(text.starts_with("PRECONDITION_FAILED - "), "{text}");
    }
}
