//! A message read once for all filters of a set: the fields that they name, as typed values in slots.

use crate::fix;
use crate::headers;
use crate::json::{self, Scan};
use crate::message::{BodyKind, Message};
use crate::number::Number;
use crate::path::{Field, Path, Step};
use crate::steps::{self, Steps};
use crate::trie::Trie;
use crate::value::{Source, Span, Value};
use alloc::vec::Vec;
use lepus_amqp::PropertiesRef;
use lepus_amqp::properties::Property;

/// Which fields to read, and into which slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extraction {
    body: Trie,
    headers: Trie,
    fields: Vec<(Field, u32)>,
}

/// What was read of a message, in memory that is used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct Extracted {
    /// By slot.
    pub(crate) slots: Vec<Value>,
    /// Strings that had to be made: with escapes decoded, or by functions.
    pub(crate) made: Vec<u8>,
    /// How the body is read, or that it is malformed; none where nothing of it is wanted.
    pub(crate) kind: Option<BodyKind>,
    scan: Scan,
    met: headers::Met,
}

impl Extraction {
    /// Has a field read into a slot; it is not read yet. As much work as it has steps.
    pub(crate) fn insert(&mut self, path: &Path, slot: u32) {
        match path {
            Path::Body(steps) => self.body.insert(steps, slot),
            Path::Header(steps) => self.headers.insert(steps, slot),
            Path::Field(field) => self.fields.push((*field, slot)),
        }
    }

    /// The opposite.
    pub(crate) fn remove(&mut self, path: &Path, slot: u32) {
        match path {
            Path::Body(steps) => self.body.remove(steps),
            Path::Header(steps) => self.headers.remove(steps),
            // There are few of them.
            Path::Field(_) => self.fields.retain(|(_, known)| *known != slot),
        }
    }

    /// Whether a field of the body is wanted.
    pub(crate) fn reads_bodies(&self) -> bool {
        !self.body.is_empty()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.body.bytes()
            + self.headers.bytes()
            + self.fields.capacity() * size_of::<(Field, u32)>()
    }

    /// Places that were looked at to change it.
    #[cfg(test)]
    pub(crate) fn touched(&self) -> usize {
        self.body.touched() + self.headers.touched()
    }

    /// What reading a message takes, in steps: what [`Extraction::extract`] counts in any case.
    pub(crate) fn steps(&self, message: &Message<'_>, slots: usize, body_bytes_max: usize) -> u64 {
        let mut steps = (slots / SLOTS_PER_STEP) as u64;
        if !self.headers.is_empty()
            && let Some(table) = message.properties.headers()
        {
            steps += steps::of_headers(table.bytes().len());
        }
        if !self.body.is_empty() {
            steps += match message.body_kind(body_bytes_max) {
                BodyKind::Json => steps::of_json(message.body.len()),
                BodyKind::Fix | BodyKind::Nvfix => steps::of_fields(message.body.len()),
                BodyKind::Opaque | BodyKind::Unreadable => 0,
            };
        }
        steps
    }

    /// Reads a message whose body is looked into up to so many bytes. Returns whether the body was to be read and
    /// could not be. Reading it is counted, and done in any case: it is in proportion to the message. Numbers and escapes of
    /// strings that take long are asked for; what it holds means nothing where `steps` has run out.
    pub(crate) fn extract(
        &self,
        message: &Message<'_>,
        slots: usize,
        body_bytes_max: usize,
        into: &mut Extracted,
        steps: &mut Steps,
    ) -> bool {
        into.made.clear();
        into.slots.clear();
        into.kind = None;
        steps.allow((slots / SLOTS_PER_STEP) as u64);
        into.slots.resize(slots, Value::Missing);
        for (field, slot) in &self.fields {
            into.slots[*slot as usize] = field_value(*field, message);
        }
        if !self.headers.is_empty()
            && let Some(table) = message.properties.headers()
        {
            steps.allow(steps::of_headers(table.bytes().len()));
            let Extracted { slots, met, .. } = into;
            headers::scan(message.properties.0, table, &self.headers, slots, met, steps);
        }
        if self.body.is_empty() {
            return false;
        }
        let (body, kind) = (message.body, message.body_kind(body_bytes_max));
        into.kind = Some(kind);
        match kind {
            BodyKind::Json => {
                steps.allow(steps::of_json(body.len()));
                let Extracted { slots, made, scan, .. } = into;
                if json::scan(body, &self.body, slots, made, scan, steps).is_err() {
                    into.kind = Some(BodyKind::Unreadable);
                    self.forget_body(&mut into.slots);
                    return !steps.has_run_out();
                }
            }
            BodyKind::Fix | BodyKind::Nvfix => {
                steps.allow(steps::of_fields(body.len()));
                fix::scan(body, fix::separator(kind, body), &self.body, &mut into.slots, steps);
            }
            BodyKind::Opaque => {}
            BodyKind::Unreadable => return true,
        }
        false
    }

    fn forget_body(&self, slots: &mut [Value]) {
        for slot in (0..self.body.len() as u32).filter_map(|node| self.body.slot(node)) {
            slots[slot] = Value::Missing;
        }
    }
}

/// Slots that are made ready in one step.
pub(crate) const SLOTS_PER_STEP: usize = 64;

/// Appends the elements that a quantifier looks at: `list` is the slot of the array. Returns whether there is an array
/// to look at; where `steps` has run out, this means nothing.
pub(crate) fn elements(
    message: &Message<'_>,
    list_path: &Path,
    element: &[Step],
    list: Value,
    extracted: &mut Extracted,
    out: &mut Vec<Value>,
    steps: &mut Steps,
) -> bool {
    if let (Path::Body(names), Some(kind @ (BodyKind::Fix | BodyKind::Nvfix))) =
        (list_path, extracted.kind)
    {
        let ([Step::Name(tag)], []) = (&names[..], element) else { return false };
        if !steps.spend(steps::of_fields(message.body.len())) {
            return false;
        }
        let before = out.len();
        fix::all(message.body, fix::separator(kind, message.body), tag.as_bytes(), out);
        return out.len() > before;
    }
    match list {
        Value::Missing | Value::Null => return false,
        Value::Array(span) | Value::Object(span) if span.source == Source::Body => {
            // Each step goes through what it finds, and to its end again.
            let passes = 2 + 2 * element.len();
            if steps.spend(steps::of_walk(span.length as usize, passes)) {
                json::elements(message.body, span, element, &mut extracted.made, out, steps);
            }
            return true;
        }
        Value::Array(span) | Value::Object(span) => {
            let passes = 1 + element.len() as u64;
            if steps.spend(steps::of_headers(span.length as usize) * passes) {
                headers::elements(message.properties.0, list, element, out, steps);
            }
            return true;
        }
        _ => {}
    }
    // It is its only element, and has no parts.
    let has_parts = element.iter().any(|step| *step != Step::Every);
    out.push(if has_parts { Value::Missing } else { list });
    true
}

/// Elements of an array or members of an object; `None` for anything else, and where `steps` has run out.
pub(crate) fn size(message: &Message<'_>, value: Value, steps: &mut Steps) -> Option<usize> {
    match value {
        Value::Array(span) | Value::Object(span) if span.source == Source::Body => {
            let is_object = matches!(value, Value::Object(_));
            // Names are decoded and sorted.
            let passes = if is_object { 32 } else { 8 };
            let may_look = steps.spend(steps::of_walk(span.length as usize, passes));
            may_look.then(|| json::size(message.body, span))
        }
        Value::Array(span) | Value::Object(span) => {
            let may_look = steps.spend(steps::of_headers(span.length as usize));
            may_look.then(|| headers::size(message.properties.0, value))
        }
        _ => None,
    }
}

fn field_value(field: Field, message: &Message<'_>) -> Value {
    let properties = message.properties;
    let unsigned = |value: u64| Value::Number(Number::from_unsigned(value));
    let known = |source: Source, bytes: Option<&[u8]>| {
        bytes.and_then(|bytes| Span::new(source, 0, bytes.len())).map(Value::Text)
    };
    let found = match field {
        Field::MessageId => text(properties, Property::MessageId),
        Field::CorrelationId => text(properties, Property::CorrelationId),
        Field::ContentType => text(properties, Property::ContentType),
        Field::ContentEncoding => text(properties, Property::ContentEncoding),
        Field::ReplyTo => text(properties, Property::ReplyTo),
        Field::UserId => text(properties, Property::UserId),
        Field::Type => text(properties, Property::Type),
        Field::AppId => text(properties, Property::AppId),
        Field::Expiration => text(properties, Property::Expiration),
        Field::Timestamp => properties.timestamp().map(unsigned),
        Field::Priority => Some(unsigned(properties.priority().unwrap_or(DEFAULT_PRIORITY).into())),
        Field::Durable => Some(Value::Bool(properties.is_persistent())),
        Field::Ttl => properties.expiration().and_then(milliseconds).map(unsigned),
        Field::Exchange => known(Source::Exchange, message.meta.exchange),
        Field::RoutingKey => known(Source::RoutingKey, message.meta.routing_key),
        Field::Size => Some(Value::of_count(message.body.len())),
        Field::Time => message.meta.time.map(unsigned),
        Field::Offset => message.meta.offset.map(unsigned),
        Field::Sequence => message.meta.sequence.map(unsigned),
        Field::Key => known(Source::Key, message.meta.key),
        Field::JmsTimestamp => {
            properties.timestamp().and_then(|seconds| seconds.checked_mul(1000)).map(unsigned)
        }
        // Its text is the first constant of every program.
        Field::JmsDeliveryMode => {
            let (start, end) = if properties.is_persistent() { (4, 14) } else { (0, 14) };
            Span::new(Source::Constant, start, end).map(Value::Text)
        }
    };
    found.unwrap_or(Value::Null)
}

/// The priority of a message without one, as AMQP 1.0 and JMS have it.
const DEFAULT_PRIORITY: u8 = 4;

/// What the constants of every set begin with: both delivery modes of JMS, the second is an end of the first.
pub(crate) const DELIVERY_MODES: &[u8] = b"NON_PERSISTENT";

fn text(properties: PropertiesRef<'_>, property: Property) -> Option<Value> {
    let bytes = properties.field(property)?;
    Span::within(Source::Properties, properties.0, bytes).map(Value::Text)
}

/// The number of an expiration; `None` where it is none.
fn milliseconds(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    core::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}
