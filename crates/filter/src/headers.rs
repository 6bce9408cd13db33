//! The headers table and the arrays and tables in it, read as they lie on the wire.

use crate::number::{Number, POWERS};
use crate::path::Step;
use crate::steps::{self, Steps};
use crate::trie::{NodeId, Trie, print};
use crate::value::{Source, Span, Value};
use alloc::format;
use alloc::vec::Vec;
use lepus_amqp::table::ArrayRef;
use lepus_amqp::{TableRef, ValueRef};

/// Wanted names of a table up to which looking for one of them takes little.
const FEW_NAMES: usize = 8;

/// Writes the wanted fields of a table, which lies in `properties`, into their slots. Of equal names the first counts.
pub(crate) fn scan(
    properties: &[u8],
    table: TableRef<'_>,
    trie: &Trie,
    slots: &mut [Value],
    met: &mut Met,
    steps: &mut Steps,
) {
    // There may be very many that are not met.
    if !met.nodes.is_empty() {
        for node in met.nodes.drain(..) {
            met.flags[node as usize] = false;
        }
    }
    Headers { properties, trie, slots, met, steps }.table(table, 0);
}

/// Which tables and arrays were there, in memory that is used again for the next message.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// By node, whether a field of that name was there; of other tries there is none.
    flags: Vec<bool>,
    nodes: Vec<NodeId>,
}

struct Headers<'h> {
    properties: &'h [u8],
    trie: &'h Trie,
    slots: &'h mut [Value],
    met: &'h mut Met,
    /// What is read is counted, and read in any case: it is in proportion to the message.
    steps: &'h mut Steps,
}

impl Headers<'_> {
    /// As deep as the longest path.
    fn table(&mut self, table: TableRef<'_>, node: NodeId) {
        let names = self.trie.names(node);
        let mut left = names.len();
        let of_field = if left > FEW_NAMES { steps::NAME_AMONG_MANY } else { steps::NAME };
        let bytes = table.bytes();
        for field in table.fields() {
            if left == 0 {
                break;
            }
            self.steps.allow(of_field);
            let (start, end) = field.name;
            let found = names.find(print(bytes, start, end), bytes, start, end);
            let Some(found) = found else { continue };
            match self.trie.leaf_slot(found) {
                Some(slot) => {
                    // Nothing that is there is missing.
                    if !matches!(self.slots[slot], Value::Missing) {
                        continue;
                    }
                    let Some(value) = field.value() else { break };
                    self.steps.allow(steps::MET_WITH_OTHERS + of_decimal(value));
                    self.slots[slot] = of(value, self.properties);
                    left -= 1;
                }
                None => {
                    if self.meet(found) {
                        let Some(value) = field.value() else { break };
                        self.value(value, found);
                        left -= 1;
                    }
                }
            }
        }
    }

    /// Whether it is the first one of its name.
    fn meet(&mut self, node: NodeId) -> bool {
        if self.met.flags.len() <= node as usize {
            self.met.flags.resize(self.trie.len(), false);
        }
        let was_met = core::mem::replace(&mut self.met.flags[node as usize], true);
        if !was_met {
            self.met.nodes.push(node);
        }
        !was_met
    }

    fn array(&mut self, array: ArrayRef<'_>, node: NodeId) {
        let end = self.trie.index_end(node);
        for (index, value) in array.iter().take(end).enumerate() {
            if let Some(found) = self.trie.index(node, index as u32) {
                self.value(value, found);
            }
        }
    }

    fn value(&mut self, value: ValueRef<'_>, node: NodeId) {
        self.steps.allow(steps::MET_WITH_OTHERS + of_decimal(value));
        if let Some(slot) = self.trie.slot(node) {
            self.slots[slot] = of(value, self.properties);
        }
        match value {
            ValueRef::Table(table) => self.table(table, node),
            ValueRef::Array(array) => self.array(array, node),
            _ => {}
        }
    }
}

/// A field's value; `properties` is what it lies in.
#[inline(always)]
pub(crate) fn of(value: ValueRef<'_>, properties: &[u8]) -> Value {
    let signed = |value: i64| Value::Number(Number::Signed(value));
    let span = |bytes: &[u8], make: fn(Span) -> Value| {
        Span::within(Source::Properties, properties, bytes).map_or(Value::Missing, make)
    };
    match value {
        ValueRef::Bool(value) => Value::Bool(value),
        ValueRef::I8(value) => signed(value.into()),
        ValueRef::U8(value) => signed(value.into()),
        ValueRef::I16(value) => signed(value.into()),
        ValueRef::U16(value) => signed(value.into()),
        ValueRef::I32(value) => signed(value.into()),
        ValueRef::U32(value) => signed(value.into()),
        ValueRef::I64(value) => signed(value),
        ValueRef::U64(value) | ValueRef::Timestamp(value) => {
            Value::Number(Number::from_unsigned(value))
        }
        ValueRef::F32(value) => Value::Number(Number::Float(value.into())),
        ValueRef::F64(value) => Value::Number(Number::Float(value)),
        ValueRef::Decimal { scale, value } => Value::Number(Number::Float(decimal(scale, value))),
        ValueRef::LongString(text) => span(text, Value::Text),
        ValueRef::Binary(bytes) => span(bytes, Value::Binary),
        ValueRef::Array(array) => span(array.bytes(), Value::Array),
        ValueRef::Table(table) => span(table.bytes(), Value::Object),
        ValueRef::Void => Value::Null,
    }
}

/// The float nearest to a decimal. Up to a scale of 22 both parts are floats as they are, and their quotient is rounded
/// once; above it would be twice.
#[inline(never)]
fn decimal(scale: u8, value: u32) -> f64 {
    match POWERS.get(usize::from(scale)) {
        Some(power) => f64::from(value) / power,
        None => format!("{value}e-{scale}").parse().unwrap_or(f64::NAN),
    }
}

/// A value that [`of`] gave, looked into.
fn inside<'h>(properties: &'h [u8], value: Value) -> Option<ValueRef<'h>> {
    let bytes = |span: Span| {
        let start = span.start as usize;
        properties.get(start..start + span.length as usize).unwrap_or_default()
    };
    match value {
        Value::Array(span) => Some(ValueRef::Array(ArrayRef::trusted(bytes(span)))),
        Value::Object(span) => Some(ValueRef::Table(TableRef::trusted(bytes(span)))),
        _ => None,
    }
}

/// Appends the elements that a quantifier looks at, as [`crate::json::elements`] does. As deep as there are `[*]` in
/// the path.
pub(crate) fn elements(
    properties: &[u8],
    list: Value,
    steps: &[Step],
    out: &mut Vec<Value>,
    room: &mut Steps,
) {
    match inside(properties, list) {
        Some(ValueRef::Array(array)) => {
            for value in array.iter() {
                if !room.spend(steps::ELEMENT + of_decimal(value)) {
                    return;
                }
                follow(properties, of(value, properties), steps, out, room);
            }
        }
        _ => follow(properties, list, steps, out, room),
    }
}

/// What a value takes beside others, in steps.
#[inline]
pub(crate) fn of_decimal(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Decimal { scale, .. } if usize::from(scale) >= POWERS.len() => {
            steps::DECIMAL_LONG
        }
        _ => 0,
    }
}

fn follow(
    properties: &[u8],
    mut value: Value,
    steps: &[Step],
    out: &mut Vec<Value>,
    room: &mut Steps,
) {
    for (index, step) in steps.iter().enumerate() {
        let found = match (step, inside(properties, value)) {
            (Step::Every, _) if value.is_null() => None,
            (Step::Every, _) => {
                return elements(properties, value, &steps[index + 1..], out, room);
            }
            (Step::Name(name), Some(ValueRef::Table(table))) => table.get(name),
            (Step::Index(wanted), Some(ValueRef::Array(array))) => {
                array.iter().nth(*wanted as usize)
            }
            _ => None,
        };
        if found.is_some_and(|found| !room.spend(of_decimal(found))) {
            return;
        }
        value = found.map_or(Value::Missing, |found| of(found, properties));
    }
    out.push(value);
}

/// Elements of an array or fields of a table.
pub(crate) fn size(properties: &[u8], value: Value) -> usize {
    match inside(properties, value) {
        Some(ValueRef::Array(array)) => array.iter().count(),
        Some(ValueRef::Table(table)) => table.iter().count(),
        _ => 0,
    }
}
