//! Bodies, properties, confirms and returns.

use lapin::options::*;
use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable};
use lapin::{BasicProperties, Confirmation, ExchangeKind};

use crate::session::{Inbox, Session, body, number, patiently, table, text, unique};

#[tokio::test]
async fn a_message_keeps_all_its_properties() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let properties = BasicProperties::default()
        .with_content_type("text/plain".into())
        .with_content_encoding("gzip".into())
        .with_headers(table([("own", number(1))]))
        .with_delivery_mode(2)
        .with_priority(7)
        .with_correlation_id("correlation".into())
        .with_reply_to("answers".into())
        .with_expiration("60000".into())
        .with_message_id("message".into())
        .with_timestamp(1_700_000_000)
        .with_type("kind".into())
        .with_user_id("guest".into())
        .with_app_id("app".into())
        .with_cluster_id("cluster".into());
    session.publish("", &queue, b"hello", properties.clone()).await;
    let message = session.hold(&queue).await;
    assert_eq!(message.properties, properties);
    assert_eq!(
        (message.data.as_slice(), message.redelivered, message.message_count),
        (&b"hello"[..], false, 0)
    );
    assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), ("", queue.as_str()));
}

#[tokio::test]
async fn headers_of_every_type_come_back_as_sent() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let headers = table([
        ("bool", AMQPValue::Boolean(true)),
        ("i8", AMQPValue::ShortShortInt(-8)),
        ("u8", AMQPValue::ShortShortUInt(200)),
        ("i16", AMQPValue::ShortInt(-1600)),
        ("u16", AMQPValue::ShortUInt(60_000)),
        ("i32", AMQPValue::LongInt(i32::MIN)),
        ("u32", AMQPValue::LongUInt(u32::MAX)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("f32", AMQPValue::Float(1.5)),
        ("f64", AMQPValue::Double(-0.125)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 314 })),
        ("text", text("grüße")),
        ("time", AMQPValue::Timestamp(1_700_000_000)),
        ("bytes", AMQPValue::ByteArray(vec![0, 255, 206].into())),
        ("void", AMQPValue::Void),
        (
            "list",
            AMQPValue::FieldArray(FieldArray::from(vec![number(1), text("two"), AMQPValue::Void])),
        ),
        (
            "table",
            AMQPValue::FieldTable(table([(
                "inner",
                AMQPValue::FieldTable(table([("deep", number(3))])),
            )])),
        ),
    ]);
    session
        .publish("", &queue, b"", BasicProperties::default().with_headers(headers.clone()))
        .await;
    let message = session.arrived(&queue).await;
    assert_eq!(message.properties.headers(), &Some(headers));
    assert_eq!(message.data, b"");
}

#[tokio::test]
async fn bodies_of_any_size_come_back_whole() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let mut inbox = session.inbox(&queue).await;
    let frame_max = session.connection.configuration().frame_max() as usize;
    for size in [0, 1, frame_max - 9, frame_max - 8, frame_max - 7, 2 * (frame_max - 8), 6_000_001]
    {
        let sent: Vec<u8> = (0..size).map(|at| (at * 31 + at / 251) as u8).collect();
        session.publish("", &queue, &sent, BasicProperties::default()).await;
        let delivery = inbox.next().await;
        assert!(delivery.data == sent, "{} bytes of {size}, or others", delivery.data.len());
        delivery.ack(BasicAckOptions::default()).await.expect("ack");
    }
}

#[tokio::test]
async fn a_small_frame_size_holds_for_both_sides() {
    let mut uri = crate::session::uri();
    uri.query.frame_max = Some(4096);
    let session = Session::open_to(uri, Default::default()).await;
    assert_eq!(session.connection.configuration().frame_max(), 4096);
    let queue = session.queue().await;
    let sent = vec![206; 100_000];
    session.publish("", &queue, &sent, BasicProperties::default()).await;
    assert!(session.arrived(&queue).await.data == sent);
}

#[tokio::test]
async fn every_publish_is_confirmed() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let bodies: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    session.send(&queue, &bodies).await;
    assert_eq!(session.counts(&queue).await.0, 1000);
    assert_eq!(session.bodies(&queue).await, bodies);
}

#[tokio::test]
async fn persistent_messages_of_a_durable_queue_are_confirmed() {
    let session = Session::open().await;
    let queue = unique("durable");
    let declared = session.channel.queue_declare(
        queue.as_str().into(),
        QueueDeclareOptions::durable(),
        table([("x-expires", number(60_000))]),
    );
    declared.await.expect("queue");
    let persistent = BasicProperties::default().with_delivery_mode(2);
    assert_eq!(session.publish("", &queue, b"kept", persistent).await, Confirmation::Ack(None));
    assert_eq!(session.bodies(&queue).await, ["kept"]);
    session
        .channel
        .queue_delete(queue.as_str().into(), QueueDeleteOptions::default())
        .await
        .expect("delete");
}

#[tokio::test]
async fn without_confirm_mode_nothing_is_confirmed() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let channel = session.plain_channel().await;
    let options = BasicPublishOptions::default();
    let sent = channel
        .basic_publish("".into(), queue.as_str().into(), options, b"x", BasicProperties::default())
        .await;
    assert_eq!(sent.expect("publish").await.expect("outcome"), Confirmation::NotRequested);
    assert_eq!(body(&session.arrived(&queue).await), "x");
}

#[tokio::test]
async fn an_unroutable_mandatory_message_returns_before_its_confirm() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Direct).await;
    let properties = BasicProperties::default()
        .with_message_id("m".into())
        .with_headers(table([("own", number(1))]));
    // The client gives the return together with the confirm only if it came first.
    let confirmation = session.publish(&exchange, "nowhere", b"back", properties.clone()).await;
    let Confirmation::Ack(Some(returned)) = confirmation else { panic!("{confirmation:?}") };
    assert_eq!((returned.reply_code, returned.reply_text.as_str()), (312, "NO_ROUTE"));
    assert_eq!(
        (returned.exchange.as_str(), returned.routing_key.as_str()),
        (exchange.as_str(), "nowhere")
    );
    assert_eq!((&returned.properties, returned.data.as_slice()), (&properties, &b"back"[..]));
    session
        .channel
        .exchange_delete(exchange.as_str().into(), Default::default())
        .await
        .expect("delete");
}

#[tokio::test]
async fn an_unroutable_message_that_is_not_mandatory_is_only_confirmed() {
    let session = Session::open().await;
    let options = BasicPublishOptions::default();
    let missing = unique("missing");
    let sent = session.channel.basic_publish(
        "".into(),
        missing.as_str().into(),
        options,
        b"",
        Default::default(),
    );
    let confirmation = patiently("confirm", sent.await.expect("publish")).await.expect("confirm");
    assert_eq!(confirmation, Confirmation::Ack(None));
}

#[tokio::test]
async fn a_full_queue_that_rejects_refuses_the_confirm() {
    let session = Session::open().await;
    let queue = session
        .queue_with(table([("x-max-length", number(1)), ("x-overflow", text("reject-publish"))]))
        .await;
    let properties = BasicProperties::default;
    assert_eq!(session.publish("", &queue, b"first", properties()).await, Confirmation::Ack(None));
    assert_eq!(
        session.publish("", &queue, b"second", properties()).await,
        Confirmation::Nack(None)
    );
    assert_eq!(session.bodies(&queue).await, ["first"]);
    assert_eq!(session.publish("", &queue, b"third", properties()).await, Confirmation::Ack(None));
}

#[tokio::test]
async fn carbon_copies_add_routes_and_blind_ones_stay_hidden() {
    let session = Session::open().await;
    let (to, cc, bcc) = (session.queue().await, session.queue().await, session.queue().await);
    let keys = |queue: &str| AMQPValue::FieldArray(FieldArray::from(vec![text(queue), text(&to)]));
    let headers = table([("CC", keys(&cc)), ("BCC", keys(&bcc))]);
    session.publish("", &to, b"copy", BasicProperties::default().with_headers(headers)).await;
    for queue in [&to, &cc, &bcc] {
        let message = session.arrived(queue).await;
        assert_eq!(message.properties.headers(), &Some(table([("CC", keys(&cc))])));
        assert!(session.take(queue).await.is_none());
    }
}

#[tokio::test]
async fn a_request_gets_its_answer_by_direct_reply() {
    let session = Session::open().await;
    let requests = session.queue().await;
    let options = BasicConsumeOptions { no_ack: true, ..Default::default() };
    let mut answers =
        Inbox::open(&session.channel, "amq.rabbitmq.reply-to", options, FieldTable::default())
            .await;
    let asking = BasicProperties::default().with_reply_to("amq.rabbitmq.reply-to".into());
    session.publish("", &requests, b"question", asking).await;

    let request = session.arrived(&requests).await;
    let address = request.properties.reply_to().clone().expect("an address");
    let other = Session::open().await;
    assert!(other.route("", address.as_str(), "answer").await);
    assert_eq!(body(&answers.next().await), "answer");
}
