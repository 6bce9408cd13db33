//! Why messages leave a queue, where they go, and the history they carry.

use lapin::message::Delivery;
use lapin::options::*;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, ExchangeKind};

use crate::session::{Session, body, number, table, text, unique};

fn headers(message: &Delivery) -> &FieldTable {
    message.properties.headers().as_ref().expect("headers")
}

/// The entries of the x-death header.
fn history(message: &Delivery) -> Vec<FieldTable> {
    let Some(AMQPValue::FieldArray(entries)) = headers(message).inner().get("x-death") else {
        panic!("no x-death in {:?}", headers(message));
    };
    let mut tables = Vec::new();
    for entry in entries.as_slice() {
        let AMQPValue::FieldTable(entry) = entry else { panic!("no table: {entry:?}") };
        tables.push(entry.clone());
    }
    tables
}

/// One entry of the history, its time left out after a look at its type.
fn entry(message: &Delivery, at: usize) -> Vec<(String, AMQPValue)> {
    let entry = history(message).swap_remove(at);
    assert!(
        matches!(entry.inner().get("time"), Some(AMQPValue::Timestamp(1_600_000_000..))),
        "{entry:?}"
    );
    let others = entry.inner().iter().filter(|(name, _)| name.as_str() != "time");
    others.map(|(name, value)| (name.to_string(), value.clone())).collect()
}

/// What an entry should say, sorted by name as the client's tables are.
fn death(
    count: i64,
    exchange: &str,
    queue: &str,
    reason: &str,
    key: &str,
) -> Vec<(String, AMQPValue)> {
    vec![
        ("count".into(), AMQPValue::LongLongInt(count)),
        ("exchange".into(), text(exchange)),
        ("queue".into(), text(queue)),
        ("reason".into(), text(reason)),
        ("routing-keys".into(), AMQPValue::FieldArray(vec![text(key)].into())),
    ]
}

#[tokio::test]
async fn a_dead_letter_carries_its_history() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Fanout).await;
    let grave = session.bound(&exchange, "").await;
    for (reason, limit) in [
        ("rejected", ("x-max-priority", number(1))),
        ("expired", ("x-message-ttl", number(50))),
        ("maxlen", ("x-max-length", number(1))),
    ] {
        let queue = session
            .queue_with(table([("x-dead-letter-exchange", text(exchange.as_str())), limit]))
            .await;
        let own = BasicProperties::default()
            .with_message_id("m".into())
            .with_headers(table([("own", number(1))]));
        session.publish("", &queue, b"victim", own).await;
        match reason {
            "rejected" => drop(
                session
                    .hold(&queue)
                    .await
                    .reject(BasicRejectOptions::default())
                    .await
                    .expect("reject"),
            ),
            "maxlen" => session.send(&queue, &["survivor"]).await,
            _ => {}
        }
        let message = session.arrived(&grave).await;
        assert_eq!(
            (body(&message).as_str(), message.exchange.as_str()),
            ("victim", exchange.as_str())
        );
        assert_eq!(message.routing_key.as_str(), queue);
        assert_eq!(entry(&message, 0), death(1, "", &queue, reason, &queue));
        assert_eq!(history(&message).len(), 1);
        for which in ["first", "last"] {
            for (what, value) in [("reason", reason), ("queue", queue.as_str()), ("exchange", "")] {
                let name = format!("x-{which}-death-{what}");
                assert_eq!(
                    headers(&message).inner().get(name.as_str()),
                    Some(&text(value)),
                    "{name}"
                );
            }
        }
        assert_eq!(headers(&message).inner().get("own"), Some(&number(1)));
        assert_eq!(message.properties.message_id().as_ref().map(|id| id.as_str()), Some("m"));
    }
}

#[tokio::test]
async fn the_routing_key_can_be_replaced_and_the_expiration_moves_into_the_history() {
    let session = Session::open().await;
    let grave = session.queue().await;
    let arguments = table([
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(grave.as_str())),
    ]);
    let queue = session.queue_with(arguments).await;
    session
        .publish("", &queue, b"x", BasicProperties::default().with_expiration("20".into()))
        .await;
    let message = session.arrived(&grave).await;
    assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), ("", grave.as_str()));
    assert_eq!(message.properties.expiration(), &None);
    let mut expected = death(1, "", &queue, "expired", &queue);
    expected.insert(2, ("original-expiration".into(), text("20")));
    assert_eq!(entry(&message, 0), expected);
}

#[tokio::test]
async fn a_message_may_go_round_by_rejection_and_is_counted() {
    let session = Session::open().await;
    let back = session.exchange(ExchangeKind::Direct).await;
    let waiting = session
        .queue_with(table([
            ("x-dead-letter-exchange", text(back.as_str())),
            ("x-message-ttl", number(10)),
        ]))
        .await;
    let retry = session.exchange(ExchangeKind::Direct).await;
    let work = session.queue_with(table([("x-dead-letter-exchange", text(retry.as_str()))])).await;
    session.bind(&work, &back, "job", FieldTable::default()).await;
    session.bind(&waiting, &retry, "job", FieldTable::default()).await;
    assert!(session.route(&back, "job", "x").await);
    let mut inbox = session.inbox(&work).await;
    for _ in 0..3 {
        inbox.next().await.reject(BasicRejectOptions::default()).await.expect("reject");
    }
    let last = inbox.next().await;
    session
        .channel
        .basic_cancel(inbox.0.tag(), BasicCancelOptions::default())
        .await
        .expect("cancel");
    last.nack(BasicNackOptions { requeue: true, multiple: false }).await.expect("nack");
    let message = session.arrived(&work).await;
    assert_eq!(history(&message).len(), 2);
    assert_eq!(entry(&message, 0), death(3, &retry, &waiting, "expired", "job"));
    assert_eq!(entry(&message, 1), death(3, &back, &work, "rejected", "job"));
}

#[tokio::test]
async fn expired_messages_do_not_go_round_for_ever() {
    let session = Session::open().await;
    let name = unique("queue");
    let arguments = table([
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(name.as_str())),
        ("x-message-ttl", number(10)),
    ]);
    let options = QueueDeclareOptions::exclusive();
    session.channel.queue_declare(name.as_str().into(), options, arguments).await.expect("queue");
    session.send(&name, &["x"]).await;
    crate::session::until("the end", async || (session.counts(&name).await.0 == 0).then_some(()))
        .await;
    assert!(session.take(&name).await.is_none());
}

#[tokio::test]
async fn rejecting_several_sends_them_in_order() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Fanout).await;
    let grave = session.bound(&exchange, "").await;
    let queue =
        session.queue_with(table([("x-dead-letter-exchange", text(exchange.as_str()))])).await;
    session.send(&queue, &["a", "b", "c"]).await;
    session.hold(&queue).await;
    session.hold(&queue).await;
    let last = session.hold(&queue).await;
    last.nack(BasicNackOptions { multiple: true, requeue: false }).await.expect("nack");
    let mut bodies = Vec::new();
    for _ in 0..3 {
        bodies.push(body(&session.arrived(&grave).await));
    }
    assert_eq!(bodies, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_missing_exchange_swallows_dead_letters() {
    let session = Session::open().await;
    let queue =
        session.queue_with(table([("x-dead-letter-exchange", text(&unique("missing")))])).await;
    session.send(&queue, &["x", "y"]).await;
    session.hold(&queue).await.reject(BasicRejectOptions::default()).await.expect("reject");
    assert_eq!(session.bodies(&queue).await, ["y"]);
}
