//! Messages: published, taken and purged by hand.

use super::super::amqp_json;
use super::super::body::Fields;
use super::super::client::{Got, Published, Session, WHOLE_TRANSACTIONS};
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::filter::Wanted;
use super::super::request::Reply;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lepus_amqp::properties::Properties;
use lepus_base::VhostId;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Bytes of messages that one answer has at most.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Messages that one answer has at most; who wants more asks again.
const ROWS_MAX: usize = 10_000;
/// What a row takes beside the message, in bytes.
const ROW_BYTES: usize = 1_024;
/// Bytes of messages that are held against a filter for one answer.
const LOOKED_AT_BYTES_MAX: usize = 256 << 20;
/// How many messages were held against a filter.
const LOOKED_AT_HEADER: &str = "x-lepus-looked-at";
/// For how many of them the filter would have taken too long, which do not match then.
const GIVEN_UP_HEADER: &str = "x-lepus-given-up";
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
    let properties = message_properties(fields.require("properties")?)?;
    let body =
        message_body(fields.require("payload")?, &fields.required_text("payload_encoding")?)?;
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

/// The properties that a body has for a message.
///
/// # Errors
/// 400 for what is no object, and for values of the wrong type.
pub(super) fn message_properties(value: &Value) -> Result<Properties, Failure> {
    let fields = match value {
        Value::Object(_) => Fields::of(value),
        Value::Array(items) if items.is_empty() => Fields::default(),
        _ => return Err(Failure::bad_request("properties is to be an object")),
    };
    amqp_json::read_properties(&fields)
}

/// A message's body from a `payload`, `string` or `base64`.
///
/// # Errors
/// 400 for what is no text, and for what is not encoded so.
pub(super) fn message_body(payload: &Value, encoding: &str) -> Result<Vec<u8>, Failure> {
    let Value::String(payload) = payload else {
        return Err(Failure::bad_request("payload_not_string"));
    };
    match encoding {
        "string" => Ok(payload.clone().into_bytes()),
        "base64" => STANDARD
            .decode(payload)
            .map_err(|error| Failure::bad_request(format!("payload is no base64: {error}"))),
        other => {
            let text = format!("payload_encoding is {other:?} and neither string nor base64");
            Err(Failure::bad_request(text))
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
    let count = usize::try_from(count).unwrap_or(0).min(ROWS_MAX);
    let shown = Shown { encoding, truncate };
    if let Some(wanted) = Wanted::of(&fields)? {
        return get_wanted(context, vhost, wanted, &mode, count, &shown);
    }
    let mut session = Session::open(context, context.name(0))?;
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    let begun = Instant::now();
    while rows.len() < count && bytes < ANSWER_BYTES_MAX && begun.elapsed() < GET_TIMEOUT {
        let Some(got) = session.get(queue, mode.no_ack)? else { break };
        bytes += ROW_BYTES + got.bytes();
        rows.push(shown.row(&got));
    }
    if !mode.no_ack && !rows.is_empty() {
        session.give_back(mode.requeue);
    }
    session.close();
    Ok(Reply::json(Value::Array(rows)))
}

/// The same with a filter: messages are taken one after the other, and all but those that match it are put back to
/// their places when the answer is there. Nobody else gets them meanwhile; it counts as no attempt at them. A header tells
/// how many were looked at, which are not all where the queue has very many.
fn get_wanted(
    context: &Context<'_>,
    vhost: VhostId,
    mut wanted: Wanted,
    mode: &Mode,
    count: usize,
    shown: &Shown,
) -> Result<Reply, Failure> {
    let user = context.login.name();
    let _look = context.api.looks.begin(user, vhost, context.name(1), Instant::now())?;
    let mut session = Session::open_with(context, context.name(0), &[WHOLE_TRANSACTIONS])?;
    let (mut rows, mut matching) = (Vec::new(), Vec::new());
    let (mut looked_at, mut bytes, mut bytes_read) = (0_usize, 0_usize, 0_usize);
    let begun = Instant::now();
    while rows.len() < count
        && looked_at < ROWS_MAX
        && bytes < ANSWER_BYTES_MAX
        && bytes_read < LOOKED_AT_BYTES_MAX
        && begun.elapsed() < GET_TIMEOUT
    {
        let Some(got) = session.get(context.name(1), false)? else { break };
        looked_at += 1;
        bytes_read += got.bytes();
        if wanted.matches(&got) {
            bytes += ROW_BYTES + got.bytes();
            rows.push(shown.row(&got));
            matching.push(got.tag);
        }
    }
    if mode.no_ack || !mode.requeue {
        // Not before all of them are here: until then none is lost with the connection.
        matching.into_iter().for_each(|tag| session.end(tag, mode.no_ack));
    }
    session.put_back()?;
    session.close();
    let reply = Reply::json(Value::Array(rows));
    let reply = reply.with(LOOKED_AT_HEADER, looked_at.to_string());
    Ok(match wanted.given_up {
        0 => reply,
        given_up => reply.with(GIVEN_UP_HEADER, given_up.to_string()),
    })
}

/// How messages are shown.
struct Shown {
    encoding: String,
    /// Bytes of a body at most.
    truncate: Option<usize>,
}

impl Shown {
    fn row(&self, got: &Got) -> Value {
        let most = self.truncate.unwrap_or(usize::MAX);
        let shown = &got.body[..most.min(got.body.len())];
        let (payload, encoding) = match std::str::from_utf8(shown) {
            Ok(text) if self.encoding == "auto" => (text.to_owned(), "string"),
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
