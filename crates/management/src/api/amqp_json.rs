//! Properties of messages as JSON, and back.

use super::body::Fields;
use super::failure::Failure;
use crate::definitions::table_value;
use lepus_amqp::properties::Properties;
use serde_json::{Map, Value, json};

/// A message's properties as an object, of those that are there.
pub(crate) fn properties(properties: &Properties) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    let text = |value: &Option<String>| value.as_ref().map(|text| json!(text));
    add("content_type", text(&properties.content_type));
    add("content_encoding", text(&properties.content_encoding));
    let headers = properties.headers.as_ref();
    add("headers", headers.map(|headers| table_value(headers.to_bytes().as_ref())));
    add("delivery_mode", properties.delivery_mode.map(|mode| json!(mode)));
    add("priority", properties.priority.map(|priority| json!(priority)));
    add("correlation_id", text(&properties.correlation_id));
    add("reply_to", text(&properties.reply_to));
    add("expiration", text(&properties.expiration));
    add("message_id", text(&properties.message_id));
    add("timestamp", properties.timestamp.map(|timestamp| json!(timestamp)));
    add("type", text(&properties.message_type));
    add("user_id", text(&properties.user_id));
    add("app_id", text(&properties.app_id));
    add("cluster_id", text(&properties.cluster_id));
    Value::Object(fields)
}

/// The properties that a body names.
///
/// # Errors
/// 400 for values of the wrong type.
pub(crate) fn read_properties(fields: &Fields) -> Result<Properties, Failure> {
    let short = |key: &str| match fields.text(key)? {
        Some(text) if text.len() > 255 => {
            Err(Failure::bad_request(format!("{key} is longer than 255 bytes")))
        }
        text => Ok(text),
    };
    let small = |key: &str| match fields.integer(key)?.map(u8::try_from) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Failure::bad_request(format!("{key} is to be from 0 to 255"))),
    };
    let timestamp = match fields.integer("timestamp")?.map(u64::try_from) {
        None => None,
        Some(Ok(seconds)) => Some(seconds),
        Some(Err(_)) => return Err(Failure::bad_request("timestamp is to be 0 or more")),
    };
    let headers = fields.get("headers").is_some().then(|| fields.table("headers")).transpose()?;
    Ok(Properties {
        content_type: short("content_type")?,
        content_encoding: short("content_encoding")?,
        headers,
        delivery_mode: small("delivery_mode")?,
        priority: small("priority")?,
        correlation_id: short("correlation_id")?,
        reply_to: short("reply_to")?,
        expiration: short("expiration")?,
        message_id: short("message_id")?,
        timestamp,
        message_type: short("type")?,
        user_id: short("user_id")?,
        app_id: short("app_id")?,
        cluster_id: short("cluster_id")?,
    })
}
