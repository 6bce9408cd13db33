//! Messages: published, taken and purged by hand.

use super::super::amqp_json;
use super::super::body::Fields;
use super::super::client::{Got, Published, Session};
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Bytes of messages that one answer has at most.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Messages that one answer has at most; who wants more asks again.
const ROWS_MAX: usize = 10_000;
/// What a row takes beside the message, in bytes.
const ROW_BYTES: usize = 1_024;
/// How long messages are taken for one answer.
const GET_TIMEOUT: Duration = Duration::from_secs(5);

/// `POST /exchanges/{v}/{x}/publish`
pub(crate) fn publish(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    let exchange = context.exchange_name(1);
    if context.directory().exchange(vhost, exchange).is_none() {
        return Err(Failure::new(404, "not_found", "exchange_not_found"));
    }
    let fields = context.fields()?;
    let routing_key = fields.required_text("routing_key")?;
    if routing_key.len() > 255 {
        return Err(Failure::bad_request("routing_key is longer than 255 bytes"));
    }
    let properties = match fields.require("properties")? {
        Value::Object(_) => Fields::of(fields.require("properties")?),
        Value::Array(items) if items.is_empty() => Fields::default(),
        _ => return Err(Failure::bad_request("properties is to be an object")),
    };
    let properties = amqp_json::read_properties(&properties)?;
    let Value::String(payload) = fields.require("payload")? else {
        return Err(Failure::bad_request("payload_not_string"));
    };
    let body = match fields.required_text("payload_encoding")?.as_str() {
        "string" => payload.clone().into_bytes(),
        "base64" => STANDARD
            .decode(payload)
            .map_err(|error| Failure::bad_request(format!("payload is no base64: {error}")))?,
        other => {
            let text = format!("payload_encoding is {other:?} and neither string nor base64");
            return Err(Failure::bad_request(text));
        }
    };
    let mut session = Session::open(context, context.name(0))?;
    let published = session.publish(exchange, &routing_key, &properties, &body)?;
    session.close();
    match published {
        Published::Routed => Ok(Reply::json(json!({"routed": true}))),
        Published::Unroutable => Ok(Reply::json(json!({"routed": false}))),
        Published::Rejected => {
            Err(Failure::bad_request("rejected: a queue did not take the message"))
        }
    }
}

/// What becomes of messages once they were shown.
struct Mode {
    no_ack: bool,
    /// Whether those that are given back go to their place in the queue again.
    requeue: bool,
}

fn mode(word: &str) -> Option<Mode> {
    match word {
        "ack_requeue_true" | "reject_requeue_true" => Some(Mode { no_ack: false, requeue: true }),
        "ack_requeue_false" => Some(Mode { no_ack: true, requeue: false }),
        "reject_requeue_false" => Some(Mode { no_ack: false, requeue: false }),
        _ => None,
    }
}

/// `POST /queues/{v}/{q}/get`
pub(crate) fn get(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    let queue = context.name(1);
    if context.directory().queue(vhost, queue).is_none() {
        return Err(Failure::missing("queue_not_found"));
    }
    let fields = context.fields()?;
    let word = fields.required_text("ackmode")?;
    let mode = mode(&word).ok_or_else(|| {
        Failure::bad_request(format!(
            "ackmode is {word:?} and none of ack_requeue_true, ack_requeue_false, reject_requeue_true and \
             reject_requeue_false"
        ))
    })?;
    let count = fields.integer("count")?.ok_or_else(|| Failure::key_missing("count"))?;
    let encoding = fields.required_text("encoding")?;
    if !["auto", "base64"].contains(&encoding.as_str()) {
        let text = format!("encoding is {encoding:?} and neither auto nor base64");
        return Err(Failure::bad_request(text));
    }
    let truncate = fields.integer("truncate")?.and_then(|bytes| usize::try_from(bytes).ok());
    let mut session = Session::open(context, context.name(0))?;
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    let count = usize::try_from(count).unwrap_or(0).min(ROWS_MAX);
    let begun = Instant::now();
    while rows.len() < count && bytes < ANSWER_BYTES_MAX && begun.elapsed() < GET_TIMEOUT {
        let Some(got) = session.get(queue, mode.no_ack)? else { break };
        bytes += ROW_BYTES + got.bytes();
        rows.push(row(&got, &encoding, truncate));
    }
    if !mode.no_ack && !rows.is_empty() {
        session.give_back(mode.requeue);
    }
    session.close();
    Ok(Reply::json(Value::Array(rows)))
}

fn row(got: &Got, encoding: &str, truncate: Option<usize>) -> Value {
    let shown = &got.body[..truncate.map_or(got.body.len(), |most| most.min(got.body.len()))];
    let (payload, encoding) = match std::str::from_utf8(shown) {
        Ok(text) if encoding == "auto" => (text.to_owned(), "string"),
        _ => (STANDARD.encode(shown), "base64"),
    };
    json!({
        "payload_bytes": got.body.len(),
        "redelivered": got.redelivered,
        "exchange": got.exchange,
        "routing_key": got.routing_key,
        "message_count": got.message_count,
        "properties": amqp_json::properties(&got.properties),
        "payload": payload,
        "payload_encoding": encoding,
    })
}

/// `DELETE /queues/{v}/{q}/contents`
pub(crate) fn purge(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    if context.directory().queue(vhost, context.name(1)).is_none() {
        return Err(Failure::not_found());
    }
    let mut session = Session::open(context, context.name(0))?;
    session.purge(context.name(1))?;
    session.close();
    Ok(Reply::done())
}
