//! Values of a message's fields, and three-valued comparison.

use crate::message::Message;
use crate::number::Number;
use crate::tree::Comparison;
use alloc::boxed::Box;
use core::cmp::Ordering;

/// A value. What is long is not in it but where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// Not there.
    Missing,
    /// There without a value, or unknown.
    Null,
    Bool(bool),
    Number(Number),
    Text(Span),
    /// Text of FIX: a number against numbers, a string against strings.
    Untyped(Span),
    Binary(Span),
    /// Of a body in JSON with its brackets; of headers as on the wire.
    Array(Span),
    Object(Span),
}

/// Bytes of a message or of a filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) length: u32,
    /// Which of the filters' constants it is part of.
    pub(crate) owner: u32,
    pub(crate) source: Source,
}

/// Where bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Body,
    Properties,
    Exchange,
    RoutingKey,
    Key,
    /// Made from others for this message.
    Made,
    /// Of the filters.
    Constant,
}

/// All places where bytes of values lie.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'s> {
    pub(crate) message: &'s Message<'s>,
    pub(crate) made: &'s [u8],
    pub(crate) constants: &'s [Box<[u8]>],
}

impl Span {
    /// A span of a place; `None` above 4 GiB, where no message is.
    pub(crate) fn new(source: Source, start: usize, end: usize) -> Option<Span> {
        let length = u32::try_from(end.checked_sub(start)?).ok()?;
        Some(Span { start: u32::try_from(start).ok()?, length, owner: 0, source })
    }

    /// The span of `part`, which lies inside `whole`.
    pub(crate) fn within(source: Source, whole: &[u8], part: &[u8]) -> Option<Span> {
        let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
        Span::new(source, start, start.checked_add(part.len())?)
    }

    /// A part of it, from one byte to another.
    pub(crate) fn part(self, from: usize, to: usize) -> Span {
        let to = to.min(self.length as usize);
        let from = from.min(to);
        Span { start: self.start + from as u32, length: (to - from) as u32, ..self }
    }
}

impl<'s> Sources<'s> {
    /// The bytes of a span; none where it is not one of these places.
    #[inline]
    pub(crate) fn bytes(self, span: Span) -> &'s [u8] {
        let whole = match span.source {
            Source::Body => self.message.body,
            Source::Properties => self.message.properties.0,
            Source::Exchange => self.message.meta.exchange.unwrap_or_default(),
            Source::RoutingKey => self.message.meta.routing_key.unwrap_or_default(),
            Source::Key => self.message.meta.key.unwrap_or_default(),
            Source::Made => self.made,
            Source::Constant => {
                self.constants.get(span.owner as usize).map_or(&[][..], |text| &text[..])
            }
        };
        let start = span.start as usize;
        whole.get(start..start + span.length as usize).unwrap_or_default()
    }
}

/// TRUE, FALSE or unknown.
pub(crate) type Truth = Option<bool>;

impl Value {
    pub(crate) fn of_truth(truth: Truth) -> Value {
        truth.map_or(Value::Null, Value::Bool)
    }

    pub(crate) fn of_number(number: Option<Number>) -> Value {
        number.map_or(Value::Null, Value::Number)
    }

    pub(crate) fn of_count(count: usize) -> Value {
        Value::Number(Number::from_unsigned(count as u64))
    }

    /// The value as a condition: what is no boolean is unknown.
    pub(crate) fn truth(self) -> Truth {
        match self {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn is_null(self) -> bool {
        matches!(self, Value::Null | Value::Missing)
    }

    /// The number, also of text of FIX that is one.
    pub(crate) fn number(self, sources: Sources<'_>) -> Option<Number> {
        match self {
            Value::Number(number) => Some(number),
            Value::Untyped(span) => Number::parse(sources.bytes(span)),
            _ => None,
        }
    }

    /// Where the string is, if it is one.
    pub(crate) fn string(self) -> Option<Span> {
        match self {
            Value::Text(span) | Value::Untyped(span) => Some(span),
            _ => None,
        }
    }
}

/// Whether an order is what a comparison asks for; `None` stands for NaN.
#[inline]
pub(crate) fn holds(comparison: Comparison, order: Option<Ordering>) -> bool {
    match (comparison, order) {
        (Comparison::NotEqual, order) => order != Some(Ordering::Equal),
        (_, None) => false,
        (Comparison::Equal, Some(order)) => order.is_eq(),
        (Comparison::Less, Some(order)) => order.is_lt(),
        (Comparison::LessOrEqual, Some(order)) => order.is_le(),
        (Comparison::Greater, Some(order)) => order.is_gt(),
        (Comparison::GreaterOrEqual, Some(order)) => order.is_ge(),
    }
}

/// Compares two values: unknown with null, FALSE for values of unlike types, for arrays and for objects.
#[inline]
pub(crate) fn compare(
    comparison: Comparison,
    left: Value,
    right: Value,
    sources: Sources<'_>,
) -> Truth {
    let bytes = |one: Span, two: Span| Some(sources.bytes(one).cmp(sources.bytes(two)));
    let order = match (left, right) {
        (Value::Null | Value::Missing, _) | (_, Value::Null | Value::Missing) => {
            return None;
        }
        (Value::Number(one), Value::Number(two)) => one.compare(two),
        (Value::Text(one), Value::Text(two) | Value::Untyped(two))
        | (Value::Untyped(one), Value::Text(two))
        | (Value::Binary(one), Value::Binary(two)) => bytes(one, two),
        (Value::Bool(one), Value::Bool(two)) => {
            // They have no order.
            return match comparison {
                Comparison::Equal => Some(one == two),
                Comparison::NotEqual => Some(one != two),
                _ => Some(false),
            };
        }
        (Value::Untyped(one), Value::Untyped(two)) => {
            match (left.number(sources), right.number(sources)) {
                (Some(one), Some(two)) => one.compare(two),
                _ => bytes(one, two),
            }
        }
        (Value::Untyped(_), Value::Number(_)) | (Value::Number(_), Value::Untyped(_)) => {
            match (left.number(sources), right.number(sources)) {
                (Some(one), Some(two)) => one.compare(two),
                _ => return Some(false),
            }
        }
        _ => return Some(false),
    };
    Some(holds(comparison, order))
}
