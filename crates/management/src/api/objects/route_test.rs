//! Where a message would go.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::messages::{message_body, message_properties};
use lepus_base::ShardId;
use lepus_broker::query::TestMessage;
use lepus_broker::{Answer, Query};
use serde_json::{Value, json};

/// `POST /lepus/route-test`
pub(crate) fn test(context: &Context<'_>) -> Result<Reply, Failure> {
    let fields = context.fields()?;
    let vhost_name = fields.required_text("vhost")?;
    let vhost = context.vhost(&context.directory(), &vhost_name)?;
    let exchange = match fields.required_text("exchange")? {
        name if name == "amq.default" => String::new(),
        name => name,
    };
    if context.directory().exchange(vhost, &exchange).is_none() {
        return Err(Failure::missing("exchange_not_found"));
    }
    let routing_key = fields.text("routing_key")?.unwrap_or_default();
    if routing_key.len() > 255 {
        return Err(Failure::bad_request("routing_key is longer than 255 bytes"));
    }
    let properties = match fields.get("properties") {
        None => Vec::new(),
        Some(value) => message_properties(value)?.to_bytes(),
    };
    let encoding = fields.text("payload_encoding")?.unwrap_or_else(|| "string".to_owned());
    let nothing = Value::String(String::new());
    let body = message_body(fields.get("payload").unwrap_or(&nothing), &encoding)?;
    let test = TestMessage { vhost, exchange, routing_key, properties, body };
    let reached = match context.ask(ShardId(0), Query::Route(Box::new(test)))? {
        Answer::Routed(reached) => reached?,
        other => unreachable!("a question for a route is answered with {other:?}"),
    };
    context.catch_up();
    let directory = context.directory();
    let named = reached.queues.into_iter().filter_map(|id| {
        let info = directory.queue_by_id(directory.id_now(id))?;
        Some(json!({ "name": info.name(), "vhost": vhost_name, "type": info.kind.name() }))
    });
    let queues: Vec<Value> = named.collect();
    Ok(Reply::json(json!({
        "routed": reached.total > 0,
        "queue_count": reached.total,
        "filters_given_up": reached.given_up > 0,
        "queues": queues,
    })))
}
