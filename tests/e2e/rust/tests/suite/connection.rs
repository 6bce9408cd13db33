//! Opening, keeping, losing and regaining a connection.

use std::time::Duration;

use futures_lite::StreamExt;
use lapin::options::*;
use lapin::types::FieldTable;
use lapin::{BasicProperties, Connection, ConnectionProperties, ErrorKind};

use crate::relay::Relay;
use crate::session::{Inbox, Session, body, patiently, refusal, unique, until, uri};

#[tokio::test]
async fn a_wrong_password_is_refused_by_name() {
    let mut uri = uri();
    uri.authority.userinfo.password = "wrong".into();
    let error =
        Connection::connect_uri(uri, ConnectionProperties::default()).await.expect_err("a refusal");
    let (code, text) = refusal(&error);
    assert_eq!(code, 403);
    assert!(
        text.starts_with("ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN"),
        "{text}"
    );
}

#[tokio::test]
async fn an_unknown_vhost_is_refused_by_name() {
    let mut uri = uri();
    uri.vhost = unique("vhost");
    let vhost = uri.vhost.clone();
    let error =
        Connection::connect_uri(uri, ConnectionProperties::default()).await.expect_err("a refusal");
    let (code, text) = refusal(&error);
    assert_eq!(code, 530);
    assert!(text.starts_with("NOT_ALLOWED - ") && text.contains(&vhost), "{text}");
}

#[tokio::test]
async fn limits_are_negotiated() {
    let mut uri = uri();
    uri.query.channel_max = Some(3);
    uri.query.frame_max = Some(70_000);
    uri.query.heartbeat = Some(7);
    let session = Session::open_to(uri, ConnectionProperties::default()).await;
    let agreed = session.connection.configuration();
    assert_eq!((agreed.channel_max(), agreed.frame_max(), agreed.heartbeat()), (3, 70_000, 7));
    let second = session.plain_channel().await;
    let _third = session.plain_channel().await;
    let error = session.connection.create_channel().await.expect_err("no fourth channel");
    assert!(matches!(error.kind(), ErrorKind::ChannelsLimitReached), "{error}");
    second.close(200, "".into()).await.expect("close");
    // The client notes a free number only some time after close-ok.
    until("the number of the second", async || session.connection.create_channel().await.ok())
        .await;
}

#[tokio::test]
async fn channels_open_and_close_in_a_tight_loop() {
    let session = Session::open().await;
    for _ in 0..500 {
        let channel = session.plain_channel().await;
        channel.close(200, "".into()).await.expect("close");
    }
    session.queue().await;
}

#[tokio::test]
async fn heartbeats_keep_a_quiet_connection_open() {
    let mut uri = uri();
    uri.query.heartbeat = Some(1);
    let session = Session::open_to(uri, ConnectionProperties::default()).await;
    assert_eq!(session.connection.configuration().heartbeat(), 1);
    // Both sides give up on a peer that is silent for two intervals.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(session.connection.status().connected());
    let queue = session.queue().await;
    session.send(&queue, &["still here"]).await;
}

#[tokio::test]
async fn a_secret_can_be_renewed() {
    let session = Session::open().await;
    patiently(
        "update-secret-ok",
        session.connection.update_secret("secret".into(), "renewed".into()),
    )
    .await
    .expect("update-secret-ok");
    session.queue().await;
}

/// A queue that outlives connections; deleted at the end by the caller.
async fn shared_queue(session: &Session) -> String {
    let queue = unique("shared");
    let options = QueueDeclareOptions::durable();
    session
        .channel
        .queue_declare(queue.as_str().into(), options, FieldTable::default())
        .await
        .expect("queue");
    queue
}

async fn delete(session: &Session, queue: &str) {
    session
        .channel
        .queue_delete(queue.into(), QueueDeleteOptions::default())
        .await
        .expect("delete");
}

#[tokio::test]
async fn after_a_cut_the_next_connection_gets_what_was_owed() {
    let relay = Relay::open().await;
    let direct = Session::open().await;
    let queue = shared_queue(&direct).await;
    direct.send(&queue, &["a", "b", "c"]).await;
    let session = Session::open_to(relay.uri(), ConnectionProperties::default()).await;
    let own = session.queue().await;
    let mut inbox = session.inbox(&queue).await;
    let first = inbox.next().await;
    first.ack(BasicAckOptions::default()).await.expect("ack");
    inbox.bodies(2).await;
    // The relay has passed the ack on once the answer to a later question is there.
    session.counts(&queue).await;
    relay.cut();
    let error = inbox.error().await;
    assert!(error.is_io_error(), "{error}");

    until("both messages", async || (direct.counts(&queue).await.0 == 2).then_some(())).await;
    let again = Session::open_to(relay.uri(), ConnectionProperties::default()).await;
    let mut inbox = again.inbox(&queue).await;
    for expected in ["b", "c"] {
        let delivery = inbox.next().await;
        assert_eq!((body(&delivery).as_str(), delivery.redelivered), (expected, true));
    }
    let (code, _) = direct
        .refused(async |channel| {
            channel
                .queue_declare(
                    own.as_str().into(),
                    QueueDeclareOptions::exclusive().passive(),
                    Default::default(),
                )
                .await
        })
        .await;
    assert_eq!(code, 404, "the exclusive queue went with its connection");
    delete(&direct, &queue).await;
}

#[tokio::test]
async fn a_recovering_client_finds_its_queues_and_consumers_again() {
    let relay = Relay::open().await;
    let direct = Session::open().await;
    let queue = shared_queue(&direct).await;
    let properties =
        ConnectionProperties::default().enable_auto_recover().configure_backoff(|backoff| {
            backoff.with_min_delay(Duration::from_millis(20)).with_max_times(20)
        });
    let session = Session::open_to(relay.uri(), properties).await;
    let mut inbox =
        Inbox::open(&session.channel, &queue, Default::default(), FieldTable::default()).await;
    direct.send(&queue, &["before"]).await;
    inbox.next().await.ack(BasicAckOptions::default()).await.expect("ack");
    session.counts(&queue).await;
    relay.cut();
    direct.send(&queue, &["after"]).await;
    let delivery = patiently("a delivery", async {
        loop {
            match inbox.0.next().await.expect("a consumer") {
                Ok(delivery) => return delivery,
                Err(error) => session.channel.wait_for_recovery(error).await.expect("recovery"),
            }
        }
    })
    .await;
    assert_eq!(body(&delivery), "after");
    delivery.ack(BasicAckOptions::default()).await.expect("ack");
    let confirmation = session.publish("", &queue, b"again", BasicProperties::default()).await;
    assert!(confirmation.is_ack());
    assert_eq!(body(&inbox.next().await), "again");
    delete(&direct, &queue).await;
}
