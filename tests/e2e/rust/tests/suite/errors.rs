//! What the broker refuses: code, wording, and whether the channel or the connection goes.

use lapin::options::*;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, ExchangeKind};

use crate::session::{Inbox, Session, number, patiently, refusal, table, text, unique};

/// Checks one refusal: the code, and words of the text.
fn says((code, text): (u16, String), expected: u16, words: &[&str]) {
    assert_eq!(code, expected, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

fn none() -> FieldTable {
    FieldTable::default()
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let missing = unique("missing");
    let name = || missing.as_str().into();
    let no_queue = ["NOT_FOUND - ", &format!("no queue '{missing}' in vhost '/'")];
    let no_exchange = ["NOT_FOUND - ", &format!("no exchange '{missing}' in vhost '/'")];

    let passive = QueueDeclareOptions::default().passive();
    says(
        session.refused(async |ch| ch.queue_declare(name(), passive, none()).await).await,
        404,
        &no_queue,
    );
    says(
        session.refused(async |ch| ch.queue_purge(name(), Default::default()).await).await,
        404,
        &no_queue,
    );
    says(
        session.refused(async |ch| ch.basic_get(name(), Default::default()).await).await,
        404,
        &no_queue,
    );
    let consume =
        async |ch: &Channel| ch.basic_consume(name(), "".into(), Default::default(), none()).await;
    says(session.refused(consume).await, 404, &no_queue);
    let bind = async |ch: &Channel| {
        ch.queue_bind(name(), "amq.direct".into(), "".into(), Default::default(), none()).await
    };
    says(session.refused(bind).await, 404, &no_queue);

    let passive = ExchangeDeclareOptions { passive: true, ..Default::default() };
    let declare = async |ch: &Channel| {
        ch.exchange_declare(name(), ExchangeKind::Direct, passive, none()).await
    };
    says(session.refused(declare).await, 404, &no_exchange);
    let bind = async |ch: &Channel| {
        ch.queue_bind(queue.as_str().into(), name(), "".into(), Default::default(), none()).await
    };
    says(session.refused(bind).await, 404, &no_exchange);
    let publish = async |ch: &Channel| {
        ch.basic_publish(name(), "".into(), Default::default(), b"", BasicProperties::default())
            .await
    };
    says(session.refused(publish).await, 404, &no_exchange);
    assert!(session.connection.status().connected());
}

#[tokio::test]
async fn a_redeclaration_must_be_equivalent() {
    let session = Session::open().await;
    let queue = session.queue_with(table([("x-message-ttl", number(60_000))])).await;
    let name = || queue.as_str().into();
    let exclusive = QueueDeclareOptions::exclusive();
    let again = table([
        ("x-message-ttl", AMQPValue::LongLongInt(60_000)),
        ("unknown-argument", text("ignored")),
    ]);
    session.channel.queue_declare(name(), exclusive, again).await.expect("the same queue");

    let ttl = async |ch: &Channel| {
        ch.queue_declare(name(), exclusive, table([("x-message-ttl", number(5))])).await
    };
    says(
        session.refused(ttl).await,
        406,
        &["PRECONDITION_FAILED - inequivalent arg 'x-message-ttl'", &queue],
    );
    let auto = async |ch: &Channel| ch.queue_declare(name(), exclusive.auto_delete(), none()).await;
    says(session.refused(auto).await, 406, &["inequivalent arg 'auto_delete'"]);

    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let direct = || "amq.direct".into();
    let kind = async |ch: &Channel| {
        ch.exchange_declare(direct(), ExchangeKind::Fanout, durable, none()).await
    };
    says(
        session.refused(kind).await,
        406,
        &["inequivalent arg 'type' for exchange 'amq.direct' in vhost '/'"],
    );
    let transient = ExchangeDeclareOptions::default();
    let kept = async |ch: &Channel| {
        ch.exchange_declare(direct(), ExchangeKind::Direct, transient, none()).await
    };
    says(session.refused(kept).await, 406, &["inequivalent arg 'durable'"]);
}

#[tokio::test]
async fn arguments_are_checked() {
    let session = Session::open().await;
    for (argument, value) in [
        ("x-message-ttl", number(-1)),
        ("x-message-ttl", text("soon")),
        ("x-expires", number(0)),
        ("x-max-length", text("many")),
        ("x-max-priority", number(256)),
        ("x-overflow", text("explode")),
        ("x-dead-letter-exchange", number(1)),
        ("x-dead-letter-routing-key", text("without an exchange")),
    ] {
        let declared = session
            .refused(async |ch| {
                ch.queue_declare(
                    "".into(),
                    QueueDeclareOptions::exclusive(),
                    table([(argument, value)]),
                )
                .await
            })
            .await;
        says(declared, 406, &["PRECONDITION_FAILED", argument]);
    }
    let queue = session.queue().await;
    let consume = async |ch: &Channel| {
        let arguments = table([("x-priority", text("high"))]);
        ch.basic_consume(queue.as_str().into(), "".into(), Default::default(), arguments).await
    };
    says(session.refused(consume).await, 406, &["x-priority"]);
    let kind = ExchangeKind::Custom("x-no-such-type".into());
    let name = unique("exchange");
    let declare = async |ch: &Channel| {
        ch.exchange_declare(name.as_str().into(), kind, Default::default(), none()).await
    };
    says(session.refused(declare).await, 406, &["x-no-such-type"]);
}

#[tokio::test]
async fn reserved_names_are_refused() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let reserved = format!("amq.{}", unique("own"));
    let name = || reserved.as_str().into();
    let declare = async |ch: &Channel| {
        ch.queue_declare(name(), QueueDeclareOptions::exclusive(), none()).await
    };
    says(session.refused(declare).await, 403, &["ACCESS_REFUSED - ", &reserved, "amq."]);
    let declare = async |ch: &Channel| {
        ch.exchange_declare(name(), ExchangeKind::Direct, Default::default(), none()).await
    };
    says(session.refused(declare).await, 403, &["ACCESS_REFUSED - ", &reserved, "amq."]);
    let delete =
        async |ch: &Channel| ch.exchange_delete("amq.topic".into(), Default::default()).await;
    says(session.refused(delete).await, 403, &["amq.topic"]);
    let delete = async |ch: &Channel| ch.exchange_delete("".into(), Default::default()).await;
    says(session.refused(delete).await, 403, &["default exchange"]);
    let bind = async |ch: &Channel| {
        ch.queue_bind(queue.as_str().into(), "".into(), "k".into(), Default::default(), none())
            .await
    };
    says(session.refused(bind).await, 403, &["default exchange"]);
}

#[tokio::test]
async fn what_is_in_use_is_not_deleted_on_condition() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Direct).await;
    let queue = session.bound(&exchange, "k").await;
    session.send(&queue, &["x"]).await;
    let name = || queue.as_str().into();
    let if_empty = QueueDeleteOptions { if_empty: true, ..Default::default() };
    says(
        session.refused(async |ch| ch.queue_delete(name(), if_empty).await).await,
        406,
        &["not empty"],
    );
    let _inbox = session.inbox(&queue).await;
    let if_unused = QueueDeleteOptions { if_unused: true, ..Default::default() };
    says(
        session.refused(async |ch| ch.queue_delete(name(), if_unused).await).await,
        406,
        &["in use"],
    );
    let if_unused = ExchangeDeleteOptions { if_unused: true, ..Default::default() };
    let delete = async |ch: &Channel| ch.exchange_delete(exchange.as_str().into(), if_unused).await;
    says(session.refused(delete).await, 406, &["in use"]);
}

#[tokio::test]
async fn a_delivery_tag_settles_once() {
    let session = Session::open().await;
    let queue = session.queue().await;
    session.send(&queue, &["x"]).await;
    says(
        session.refused(async |ch| ch.basic_ack(7, Default::default()).await).await,
        406,
        &["unknown delivery tag 7"],
    );
    let reject = BasicRejectOptions { requeue: true };
    says(
        session.refused(async |ch| ch.basic_reject(7, reject).await).await,
        406,
        &["unknown delivery tag 7"],
    );
    says(
        session.refused(async |ch| ch.basic_nack(7, Default::default()).await).await,
        406,
        &["unknown delivery tag 7"],
    );
    let twice = async |ch: &Channel| {
        ch.basic_get(queue.as_str().into(), Default::default()).await?.expect("a message");
        ch.basic_ack(1, Default::default()).await?;
        ch.basic_ack(1, Default::default()).await
    };
    says(session.refused(twice).await, 406, &["PRECONDITION_FAILED - unknown delivery tag 1"]);
}

#[tokio::test]
async fn publishes_are_checked() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let publish = async |properties: BasicProperties| {
        session
            .refused(async |ch| {
                ch.basic_publish(
                    "".into(),
                    queue.as_str().into(),
                    Default::default(),
                    b"x",
                    properties,
                )
                .await
            })
            .await
    };
    says(
        publish(BasicProperties::default().with_expiration("soon".into())).await,
        406,
        &["expiration"],
    );
    says(publish(BasicProperties::default().with_user_id("other".into())).await, 406, &["user_id"]);
    says(
        publish(BasicProperties::default().with_headers(table([("CC", text("x"))]))).await,
        406,
        &["CC"],
    );
    assert_eq!(session.counts(&queue).await.0, 0);
}

/// Does something that makes the broker close a connection of its own: code and text of the close.
async fn fatal<T>(action: impl AsyncFnOnce(&Channel, &str) -> lapin::Result<T>) -> (u16, String) {
    let session = Session::open().await;
    let queue = session.queue().await;
    let mut inbox =
        Inbox::open(&session.channel, &session.queue().await, Default::default(), none()).await;
    let _ = patiently("an answer", action(&session.channel, &queue)).await;
    let told = refusal(&inbox.error().await);
    assert!(!session.connection.status().connected());
    told
}

#[tokio::test]
async fn some_errors_end_the_connection() {
    let immediate = BasicPublishOptions { immediate: true, ..Default::default() };
    let publish = async |ch: &Channel, queue: &str| {
        ch.basic_publish("".into(), queue.into(), immediate, b"", BasicProperties::default()).await
    };
    says(fatal(publish).await, 540, &["NOT_IMPLEMENTED"]);
    let recover = async |ch: &Channel, _: &str| {
        ch.basic_recover(BasicRecoverOptions { requeue: false }).await
    };
    says(fatal(recover).await, 540, &["NOT_IMPLEMENTED"]);
    let twice = async |ch: &Channel, queue: &str| {
        let _first =
            ch.basic_consume(queue.into(), "twice".into(), Default::default(), none()).await?;
        ch.basic_consume(queue.into(), "twice".into(), Default::default(), none()).await
    };
    says(fatal(twice).await, 530, &["NOT_ALLOWED"]);
}
