//! Fields of a message: the body by `serde_json`, the headers by an owned table.

use super::value::{Number, Value};
use lepus_amqp::Value as HeaderValue;
use lepus_filter::path::{Field, ListPath, Path, Step};
use lepus_filter::{BodyFormat, Message};
use serde_json::Value as Json;

/// Bytes of a body that is read.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What is at a path.
pub fn field(path: &Path, message: &Message<'_>) -> Value {
    match path {
        Path::Field(field) => known(*field, message),
        Path::Header(steps) => match headers(message) {
            Some(table) => walk(&table, steps),
            None => Value::Missing,
        },
        Path::Body(steps) => body(message, steps),
    }
}

/// What `ANY` and `ALL` look at; `None` where the array is missing or null. What is no array is its only element.
pub fn elements(path: &ListPath, message: &Message<'_>) -> Option<Vec<Value>> {
    if let (Path::Body(steps), Some(fields)) = (&path.list, fix(message)) {
        // All fields of that tag.
        let tag = match &steps[..] {
            [Step::Name(tag)] if path.element.is_empty() => tag,
            _ => return None,
        };
        let same = fields.into_iter().filter(|(name, _)| *name == tag.as_bytes());
        let found: Vec<Value> = same.map(|(_, value)| Value::Untyped(value)).collect();
        return (!found.is_empty()).then_some(found);
    }
    expand(field(&path.list, message), &path.element)
}

fn expand(list: Value, steps: &[Step]) -> Option<Vec<Value>> {
    let list = match list {
        Value::Missing | Value::Null => return None,
        Value::Array(list) => list,
        one => vec![one],
    };
    let Some(star) = steps.iter().position(|step| *step == Step::Every) else {
        return Some(list.iter().map(|element| walk(element, steps)).collect());
    };
    let mut all = Vec::new();
    for element in &list {
        match expand(walk(element, &steps[..star]), &steps[star + 1..]) {
            Some(inner) => all.extend(inner),
            // An array that is not there has one element that is not there.
            None => all.push(Value::Missing),
        }
    }
    Some(all)
}

fn walk(value: &Value, steps: &[Step]) -> Value {
    let Some((step, rest)) = steps.split_first() else { return value.clone() };
    let found = match (step, value) {
        (Step::Name(name), Value::Object(members)) => {
            members.iter().find(|(key, _)| **key == **name).map(|(_, value)| value)
        }
        (Step::Index(index), Value::Array(list)) => list.get(*index as usize),
        _ => None,
    };
    found.map_or(Value::Missing, |found| walk(found, rest))
}

fn headers(message: &Message<'_>) -> Option<Value> {
    let table = message.properties.headers()?.to_owned();
    Some(of_header(HeaderValue::Table(table)))
}

fn of_header(value: HeaderValue) -> Value {
    let int = |value: i128| Value::Number(Number::Int(value));
    match value {
        HeaderValue::Bool(value) => Value::Bool(value),
        HeaderValue::I8(value) => int(value.into()),
        HeaderValue::U8(value) => int(value.into()),
        HeaderValue::I16(value) => int(value.into()),
        HeaderValue::U16(value) => int(value.into()),
        HeaderValue::I32(value) => int(value.into()),
        HeaderValue::U32(value) => int(value.into()),
        HeaderValue::I64(value) => int(value.into()),
        HeaderValue::U64(value) => int(value.into()),
        HeaderValue::Timestamp(seconds) => int(seconds.into()),
        HeaderValue::F32(value) => Value::Number(Number::Float(value.into())),
        HeaderValue::F64(value) => Value::Number(Number::Float(value)),
        HeaderValue::Decimal { scale, value } => {
            let text = format!("{value}e-{scale}");
            Value::Number(Number::Float(text.parse().expect("a float")))
        }
        HeaderValue::LongString(text) => Value::Text(text.to_vec()),
        HeaderValue::Binary(bytes) => Value::Binary(bytes.to_vec()),
        HeaderValue::Array(list) => Value::Array(list.into_iter().map(of_header).collect()),
        HeaderValue::Table(table) => Value::Object(
            table.0.into_iter().map(|(name, value)| (name, of_header(value))).collect(),
        ),
        HeaderValue::Void => Value::Null,
    }
}

fn known(field: Field, message: &Message<'_>) -> Value {
    let properties = message.properties;
    let int = |value: u64| Value::Number(Number::Int(value.into()));
    let text = |text: &[u8]| Value::Text(text.to_vec());
    let found = match field {
        Field::MessageId => properties.message_id().map(text),
        Field::CorrelationId => properties.correlation_id().map(text),
        Field::ContentType => properties.content_type().map(text),
        Field::ContentEncoding => properties.content_encoding().map(text),
        Field::ReplyTo => properties.reply_to().map(text),
        Field::UserId => properties.user_id().map(text),
        Field::Type => properties.message_type().map(text),
        Field::AppId => properties.app_id().map(text),
        Field::Expiration => properties.expiration().map(text),
        Field::Timestamp => properties.timestamp().map(int),
        Field::Priority => Some(int(properties.priority().unwrap_or(4).into())),
        Field::Durable => Some(Value::Bool(properties.is_persistent())),
        Field::Ttl => properties.expiration().and_then(|text| {
            let digits = std::str::from_utf8(text).ok()?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().ok().map(int)).flatten()
        }),
        Field::Exchange => message.meta.exchange.map(text),
        Field::RoutingKey => message.meta.routing_key.map(text),
        Field::Size => Some(int(message.body.len() as u64)),
        Field::Time => message.meta.time.map(int),
        Field::Offset => message.meta.offset.map(int),
        Field::Sequence => message.meta.sequence.map(int),
        Field::Key => message.meta.key.map(text),
        Field::JmsTimestamp => {
            properties.timestamp().and_then(|seconds| seconds.checked_mul(1000)).map(int)
        }
        Field::JmsDeliveryMode if properties.is_persistent() => Some(text(b"PERSISTENT")),
        Field::JmsDeliveryMode => Some(text(b"NON_PERSISTENT")),
    };
    found.unwrap_or(Value::Null)
}

/// What a body is read as; `None` where it is not.
fn format(message: &Message<'_>) -> Option<BodyFormat> {
    let encoding = message.properties.content_encoding().unwrap_or_default().to_ascii_lowercase();
    let plain = ["", "utf-8", "utf8", "identity", "us-ascii"];
    if message.body.len() > BODY_BYTES_MAX
        || !plain.iter().any(|plain| plain.as_bytes() == encoding)
    {
        return None;
    }
    if message.format != BodyFormat::Auto {
        return Some(message.format);
    }
    let content_type = message.properties.content_type().unwrap_or_default();
    let content_type = String::from_utf8_lossy(content_type).to_ascii_lowercase();
    if content_type.is_empty() {
        return match message.body {
            [b'{' | b'[', ..] => Some(BodyFormat::Json),
            body if body.starts_with(b"8=FIX") => Some(BodyFormat::Fix),
            _ => None,
        };
    }
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/json" => Some(BodyFormat::Json),
        "application/fix" => Some(BodyFormat::Fix),
        "application/nvfix" => Some(BodyFormat::Nvfix),
        name if name.ends_with("+json") => Some(BodyFormat::Json),
        _ => None,
    }
}

fn body(message: &Message<'_>, steps: &[Step]) -> Value {
    if let Some(fields) = fix(message) {
        let [Step::Name(tag)] = steps else { return Value::Missing };
        let mut same = fields.into_iter().filter(|(name, _)| *name == tag.as_bytes());
        return same.next().map_or(Value::Missing, |(_, value)| Value::Untyped(value));
    }
    match format(message) {
        Some(BodyFormat::Json) => match serde_json::from_slice::<Json>(message.body) {
            Ok(json) => walk(&of_json(&json), steps),
            Err(_) => Value::Missing,
        },
        _ => Value::Missing,
    }
}

fn of_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => Value::Number(match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Number::Int(value.into()),
            (_, Some(value)) => Number::Int(value.into()),
            _ => Number::Float(number.as_f64().expect("a float")),
        }),
        Json::String(text) => Value::Text(text.clone().into_bytes()),
        Json::Array(list) => Value::Array(list.iter().map(of_json).collect()),
        Json::Object(members) => Value::Object(
            members.iter().map(|(key, value)| (key.clone(), of_json(value))).collect(),
        ),
    }
}

/// Fields of a FIX or NVFIX body; `None` if it is neither. What has no `=` is no field.
fn fix(message: &Message<'_>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let separator = match format(message)? {
        BodyFormat::Nvfix if !message.body.contains(&1) => b'|',
        BodyFormat::Fix | BodyFormat::Nvfix => 1,
        _ => return None,
    };
    let fields = message.body.split(|byte| *byte == separator).filter_map(|field| {
        let at = field.iter().position(|byte| *byte == b'=')?;
        Some((field[..at].to_vec(), field[at + 1..].to_vec()))
    });
    Some(fields.collect())
}
