//! The constants of a long `IN`.

use crate::number::Number;
use crate::steps;
use crate::tree::{Expr, Literal};
use crate::value::{Sources, Truth, Value};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Constants, sorted to be looked up.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(crate) struct Values {
    numbers: Vec<Number>,
    texts: Vec<Box<[u8]>>,
    has_true: bool,
    has_false: bool,
    has_null: bool,
    /// Bytes of the longest text.
    longest: usize,
}

impl Values {
    /// The constants of a list; `None` if something else is in it.
    pub(super) fn new(list: &[Expr]) -> Option<Values> {
        let mut values = Values::default();
        for expr in list {
            match expr {
                Expr::Literal(Literal::Null) => values.has_null = true,
                Expr::Literal(Literal::Bool(true)) => values.has_true = true,
                Expr::Literal(Literal::Bool(false)) => values.has_false = true,
                Expr::Literal(Literal::Number(number)) => values.numbers.push(*number),
                Expr::Literal(Literal::Date(date)) => values.numbers.push(Number::Signed(*date)),
                Expr::Literal(Literal::Text(text)) => values.texts.push(text.as_bytes().into()),
                _ => return None,
            }
        }
        // They stay as they are.
        values.numbers.shrink_to_fit();
        values.texts.shrink_to_fit();
        // Literals are never NaN.
        values.numbers.sort_unstable_by(|one, two| one.compare(*two).unwrap_or(Ordering::Equal));
        values.texts.sort_unstable();
        values.longest = values.texts.iter().map(|text| text.len()).max().unwrap_or(0);
        Some(values)
    }

    /// Bytes that they take beside their place.
    pub(super) fn bytes(&self) -> usize {
        let texts: usize = self.texts.iter().map(|text| text.len()).sum();
        size_of::<Values>()
            + self.numbers.capacity() * size_of::<Number>()
            + self.texts.capacity() * size_of::<Box<[u8]>>()
            + texts
    }

    /// What looking a value up takes, in steps.
    pub(super) fn steps(&self, value: Value) -> u64 {
        let of_number = if self.numbers.is_empty() { 0 } else { 12 };
        match value {
            Value::Text(span) => steps::of_search(self.longest.min(span.length as usize)),
            Value::Untyped(span) => {
                let length = span.length as usize;
                let of_text = steps::of_search(self.longest.min(length));
                of_text + steps::of_number(length) + of_number
            }
            _ => of_number,
        }
    }

    fn has_number(&self, number: Number) -> bool {
        let order = |known: &Number| known.compare(number).unwrap_or(Ordering::Less);
        self.numbers.binary_search_by(order).is_ok()
    }

    fn has_text(&self, text: &[u8]) -> bool {
        self.texts.binary_search_by(|known| (**known).cmp(text)).is_ok()
    }

    /// Whether a value is one of them, or none of them: as comparing it with those of its type has it. Of another type than all of
    /// them it is FALSE, with NOT and without.
    pub(super) fn test(&self, value: Value, negated: bool, sources: Sources<'_>) -> Truth {
        let has_bools = self.has_true || self.has_false;
        let (has_numbers, has_texts) = (!self.numbers.is_empty(), !self.texts.is_empty());
        // Whether one is equal, and whether one is of its type.
        let (is_equal, is_like) = match value {
            Value::Missing | Value::Null => return None,
            Value::Number(number) => (self.has_number(number), has_numbers),
            Value::Text(span) => (self.has_text(sources.bytes(span)), has_texts),
            Value::Untyped(span) => {
                let text = sources.bytes(span);
                match Number::parse(text) {
                    Some(number) => {
                        (self.has_text(text) || self.has_number(number), has_texts || has_numbers)
                    }
                    None => (self.has_text(text), has_texts),
                }
            }
            Value::Bool(true) => (self.has_true, has_bools),
            Value::Bool(false) => (self.has_false, has_bools),
            Value::Binary(_) | Value::Array(_) | Value::Object(_) => (false, false),
        };
        match negated {
            _ if is_equal => Some(!negated),
            _ if self.has_null => None,
            _ => Some(negated && is_like),
        }
    }
}
