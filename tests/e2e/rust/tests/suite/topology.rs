//! Exchanges of all types, bindings between them, alternates.

use lapin::BasicProperties;
use lapin::ExchangeKind;
use lapin::options::*;
use lapin::types::{AMQPValue, FieldTable};

use crate::session::{Session, number, table, text};

#[tokio::test]
async fn a_direct_exchange_compares_keys() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Direct).await;
    let (one, two) = (session.bound(&exchange, "one").await, session.bound(&exchange, "two").await);
    session.bind(&two, &exchange, "one", FieldTable::default()).await;
    assert!(session.route(&exchange, "one", "1").await);
    assert!(session.route(&exchange, "two", "2").await);
    assert!(!session.route(&exchange, "three", "3").await);
    assert_eq!(session.bodies(&one).await, ["1"]);
    assert_eq!(session.bodies(&two).await, ["1", "2"]);
}

#[tokio::test]
async fn a_fanout_exchange_ignores_keys() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Fanout).await;
    let queues = [session.bound(&exchange, "a").await, session.bound(&exchange, "").await];
    session.bind(&queues[0], &exchange, "again", FieldTable::default()).await;
    assert!(session.route(&exchange, "any", "x").await);
    for queue in &queues {
        assert_eq!(session.bodies(queue).await, ["x"]);
    }
}

#[tokio::test]
async fn a_topic_exchange_knows_words() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Topic).await;
    let patterns = ["#", "*", "a.*.c", "a.#", "#.c", "a..c", "*.*"];
    let mut queues = Vec::new();
    for pattern in patterns {
        queues.push(session.bound(&exchange, pattern).await);
    }
    let routes: [(&str, &[&str]); 6] = [
        ("a", &["#", "*", "a.#"]),
        ("a.b.c", &["#", "a.*.c", "a.#", "#.c"]),
        ("a..c", &["#", "a.*.c", "a.#", "#.c", "a..c"]),
        ("a.b", &["#", "a.#", "*.*"]),
        // An empty key has no words.
        ("", &["#"]),
        ("b.c.c.c", &["#", "#.c"]),
    ];
    for (key, expected) in routes {
        assert!(session.route(&exchange, key, key).await);
        let mut reached = Vec::new();
        for (pattern, queue) in patterns.iter().zip(&queues) {
            if !session.bodies(queue).await.is_empty() {
                reached.push(*pattern);
            }
        }
        assert_eq!(reached, expected, "key {key:?}");
    }
}

#[tokio::test]
async fn a_headers_exchange_compares_values() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Headers).await;
    let mut queues = Vec::new();
    for rule in ["all", "any"] {
        let queue = session.queue().await;
        let arguments =
            table([("x-match", text(rule)), ("colour", text("red")), ("size", number(3))]);
        session.bind(&queue, &exchange, "", arguments).await;
        queues.push(queue);
    }
    let present = session.queue().await;
    session.bind(&present, &exchange, "", table([("colour", AMQPValue::Void)])).await;
    queues.push(present);
    let cases = [
        ("both", table([("colour", text("red")), ("size", number(3))]), [true, true, true]),
        ("one", table([("size", number(3))]), [false, true, false]),
        ("other value", table([("colour", text("blue"))]), [false, false, true]),
        ("other type", table([("size", text("3"))]), [false, false, false]),
        (
            "more",
            table([("colour", text("red")), ("size", number(3)), ("more", number(1))]),
            [true, true, true],
        ),
    ];
    for (name, headers, expected) in cases {
        session
            .publish(&exchange, "", b"x", BasicProperties::default().with_headers(headers))
            .await;
        let mut reached = [false; 3];
        for (at, queue) in queues.iter().enumerate() {
            reached[at] = !session.bodies(queue).await.is_empty();
        }
        assert_eq!(reached, expected, "{name}");
    }
}

#[tokio::test]
async fn a_consistent_hash_sends_a_key_always_to_the_same_queue() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Custom("x-consistent-hash".into())).await;
    let queues = [session.bound(&exchange, "1").await, session.bound(&exchange, "1").await];
    for round in 0..2 {
        for key in 0..100 {
            assert!(
                session.route(&exchange, &format!("key{key}"), &format!("{key}")).await,
                "round {round}"
            );
        }
    }
    let mut total = 0;
    for queue in &queues {
        let bodies = session.bodies(queue).await;
        let (first, second) = bodies.split_at(bodies.len() / 2);
        assert_eq!(first, second);
        assert!(!first.is_empty());
        total += bodies.len();
    }
    assert_eq!(total, 200);
}

#[tokio::test]
async fn the_predeclared_exchanges_are_there() {
    let session = Session::open().await;
    let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
    for (name, kind) in [
        ("amq.direct", ExchangeKind::Direct),
        ("amq.fanout", ExchangeKind::Fanout),
        ("amq.topic", ExchangeKind::Topic),
        ("amq.headers", ExchangeKind::Headers),
        ("amq.match", ExchangeKind::Headers),
    ] {
        session
            .channel
            .exchange_declare(name.into(), kind, options, FieldTable::default())
            .await
            .expect(name);
    }
}

#[tokio::test]
async fn exchanges_bind_to_exchanges_in_loops_without_duplicates() {
    let session = Session::open().await;
    let source = session.exchange(ExchangeKind::Topic).await;
    let middle = session.exchange(ExchangeKind::Fanout).await;
    let queue = session.bound(&middle, "").await;
    session.bind(&queue, &source, "a.b", FieldTable::default()).await;
    session.bind_exchange(&middle, &source, "a.#").await;
    session.bind_exchange(&source, &middle, "#").await;
    assert!(session.route(&source, "a.b", "1").await);
    assert!(session.route(&source, "a.c", "2").await);
    assert!(!session.route(&source, "b", "3").await);
    assert_eq!(session.bodies(&queue).await, ["1", "2"]);

    let options = ExchangeUnbindOptions::default();
    let (to, from) = (middle.as_str().into(), source.as_str().into());
    session
        .channel
        .exchange_unbind(to, from, "a.#".into(), options, FieldTable::default())
        .await
        .expect("unbind");
    assert!(!session.route(&source, "a.c", "4").await);
    assert!(session.route(&source, "a.b", "5").await);
    assert_eq!(session.bodies(&queue).await, ["5"]);
}

#[tokio::test]
async fn an_alternate_exchange_takes_what_finds_no_way() {
    let session = Session::open().await;
    let last = session.exchange(ExchangeKind::Direct).await;
    let middle = session
        .exchange_with(ExchangeKind::Direct, table([("alternate-exchange", text(last.as_str()))]))
        .await;
    let first = session
        .exchange_with(ExchangeKind::Direct, table([("alternate-exchange", text(middle.as_str()))]))
        .await;
    let (own, other) = (session.bound(&first, "own").await, session.bound(&last, "other").await);
    let _keeps_the_middle = session.bound(&middle, "middle").await;
    assert!(session.route(&first, "own", "1").await);
    assert!(session.route(&first, "other", "2").await);
    assert!(!session.route(&first, "neither", "3").await);
    assert_eq!(session.bodies(&own).await, ["1"]);
    assert_eq!(session.bodies(&other).await, ["2"]);
}

#[tokio::test]
async fn an_internal_exchange_is_fed_by_others_only() {
    let session = Session::open().await;
    let name = crate::session::unique("exchange");
    let options =
        ExchangeDeclareOptions { internal: true, auto_delete: true, ..Default::default() };
    let declared = session.channel.exchange_declare(
        name.as_str().into(),
        ExchangeKind::Fanout,
        options,
        FieldTable::default(),
    );
    declared.await.expect("exchange");
    let queue = session.bound(&name, "").await;
    let outer = session.exchange(ExchangeKind::Fanout).await;
    session.bind_exchange(&name, &outer, "").await;
    assert!(session.route(&outer, "", "x").await);
    assert_eq!(session.bodies(&queue).await, ["x"]);
    let options = BasicPublishOptions::default();
    let (code, text) = session
        .refused(async |channel| {
            channel
                .basic_publish(
                    name.as_str().into(),
                    "".into(),
                    options,
                    b"",
                    BasicProperties::default(),
                )
                .await
        })
        .await;
    assert_eq!(code, 403);
    assert!(text.contains("internal"), "{text}");
}

#[tokio::test]
async fn an_auto_delete_exchange_goes_with_its_last_binding() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Direct).await;
    let queue = session.bound(&exchange, "a").await;
    session.bind(&queue, &exchange, "b", FieldTable::default()).await;
    let unbind = async |key: &str| {
        let (queue, exchange) = (queue.as_str().into(), exchange.as_str().into());
        session
            .channel
            .queue_unbind(queue, exchange, key.into(), FieldTable::default())
            .await
            .expect("unbind");
    };
    unbind("a").await;
    unbind("never bound").await;
    assert!(session.route(&exchange, "b", "x").await);
    unbind("b").await;
    let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
    let (code, _) = session
        .refused(async |channel| {
            let name = exchange.as_str().into();
            channel
                .exchange_declare(name, ExchangeKind::Direct, options, FieldTable::default())
                .await
        })
        .await;
    assert_eq!(code, 404);
}
