//! Content filters on bindings and on consumers.

use lapin::options::*;
use lapin::types::FieldTable;
use lapin::{BasicProperties, ExchangeKind};

use crate::session::{Inbox, Session, table, text};

/// A filter that names a field of the body; the same text stands on bindings and on consumers.
const DEAR: &str = "b.total > 50 AND land = 'UK'";
const REFUSAL: &str = "invalid x-filter at character 10: expected a value after '>'";

fn filter(filter: &str) -> FieldTable {
    table([("x-filter", text(filter))])
}

/// Publishes a JSON body with the header `land`; whether it reached a queue.
async fn order(session: &Session, exchange: &str, key: &str, land: &str, total: u32) -> bool {
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_headers(table([("land", text(land))]));
    let body = format!("{{\"total\":{total}}}");
    let confirmation = session.publish(exchange, key, body.as_bytes(), properties).await;
    assert!(confirmation.is_ack());
    confirmation.take_message().is_none()
}

#[tokio::test]
async fn a_queue_gets_what_the_filter_of_its_binding_matches() {
    let session = Session::open().await;
    let exchange = session.exchange(ExchangeKind::Topic).await;
    let (matching, rest) = (session.queue().await, session.queue().await);
    session.bind(&matching, &exchange, "order.#", filter(DEAR)).await;
    session.bind(&rest, &exchange, "order.#", filter("land <> 'UK'")).await;
    assert!(order(&session, &exchange, "order.1", "UK", 51).await);
    assert!(!order(&session, &exchange, "order.1", "UK", 50).await);
    assert!(order(&session, &exchange, "order.1", "FR", 52).await);
    assert!(!order(&session, &exchange, "offer.1", "UK", 53).await);
    assert_eq!(session.bodies(&matching).await, [r#"{"total":51}"#]);
    assert_eq!(session.bodies(&rest).await, [r#"{"total":52}"#]);
}

#[tokio::test]
async fn a_consumer_gets_what_its_filter_matches_and_the_rest_goes_to_another() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let channel = session.plain_channel().await;
    let options = BasicConsumeOptions { no_ack: true, ..Default::default() };
    let mut matching = Inbox::open(&channel, &queue, options, filter(DEAR)).await;
    for (land, total) in [("UK", 50), ("UK", 51), ("FR", 52), ("UK", 53)] {
        assert!(order(&session, "", &queue, land, total).await);
    }
    assert_eq!(matching.bodies(2).await, [r#"{"total":51}"#, r#"{"total":53}"#]);
    assert!(matching.is_empty_after_round_trip(&channel).await);
    assert_eq!(session.counts(&queue).await, (2, 1));
    let mut rest = Inbox::open(&channel, &queue, options, FieldTable::default()).await;
    assert_eq!(rest.bodies(2).await, [r#"{"total":50}"#, r#"{"total":52}"#]);
}

#[tokio::test]
async fn a_filter_that_is_none_says_where() {
    let session = Session::open().await;
    let queue = session.queue().await;
    let broken = || filter("b.total >");
    let binding = session.refused(async |channel| {
        let options = QueueBindOptions::default();
        channel
            .queue_bind(queue.as_str().into(), "amq.fanout".into(), "".into(), options, broken())
            .await
    });
    let (code, words) = binding.await;
    assert!(code == 406 && words.contains(REFUSAL), "{code} {words}");
    let consuming = session.refused(async |channel| {
        let options = BasicConsumeOptions::default();
        channel.basic_consume(queue.as_str().into(), "".into(), options, broken()).await
    });
    let (code, words) = consuming.await;
    assert!(code == 406 && words.contains(REFUSAL), "{code} {words}");
}
