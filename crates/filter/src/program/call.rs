//! Functions.

use super::{Evaluation, NodeId};
use crate::extract;
use crate::number::Number;
use crate::steps;
use crate::text;
use crate::tree::Function;
use crate::value::{Source, Span, Value};
use core::fmt::Write;

/// Bytes of a string that is changed at most: one that is longer becomes null, so that a body is not copied by each of
/// many functions.
pub(super) const CHANGED_BYTES_MAX: usize = 64 * 1024;

impl Evaluation<'_> {
    /// The value of a function; null where an argument is null or not of its type.
    pub(super) fn call(&mut self, function: Function, arguments: &[NodeId]) -> Value {
        if function == Function::Coalesce {
            for id in arguments {
                let value = self.value(*id);
                if !value.is_null() || self.room.steps.has_run_out() {
                    return value;
                }
            }
            return Value::Null;
        }
        // No function takes more.
        let mut values = [Value::Null; 3];
        for (value, id) in values.iter_mut().zip(arguments) {
            *value = self.value(*id);
        }
        if self.room.steps.has_run_out() {
            return Value::Null;
        }
        let count = arguments.len();
        self.compute_call(function, values, count).unwrap_or(Value::Null)
    }

    fn compute_call(
        &mut self,
        function: Function,
        values: [Value; 3],
        count: usize,
    ) -> Option<Value> {
        let [first, second, third] = values;
        match function {
            Function::Lower => self.change_case(first, false),
            Function::Upper => self.change_case(first, true),
            Function::Length => match first {
                Value::Binary(span) => Some(Value::of_count(span.length as usize)),
                _ => {
                    let span = first.string()?;
                    self.may(steps::of_code_points(span.length as usize))?;
                    Some(Value::of_count(text::count(self.sources().bytes(span))))
                }
            },
            Function::Left => {
                let count = self.integer(second).filter(|count| *count >= 0)?;
                self.part(first, 1, Some(count))
            }
            Function::Right => {
                let count = self.integer(second).filter(|count| *count >= 0)?;
                let span = first.string()?;
                self.may(steps::of_code_points(span.length as usize))?;
                let length = text::count(self.sources().bytes(span)) as i128;
                self.part(first, length - count + 1, None)
            }
            Function::Substring if count == 2 => {
                let from = self.integer(second)?;
                self.part(first, from, None)
            }
            Function::Substring => {
                let from = self.integer(second)?;
                let count = self.integer(third).filter(|count| *count >= 0)?;
                self.part(first, from, Some(count))
            }
            Function::StartsWith => self.ends(first, second, |text, part| text.starts_with(part)),
            Function::EndsWith => self.ends(first, second, |text, part| text.ends_with(part)),
            Function::Contains => self.contains(first, second),
            Function::Abs => Some(Value::Number(self.number(first)?.absolute())),
            Function::Round => Some(Value::Number(self.number(first)?.round())),
            Function::Floor => Some(Value::Number(self.number(first)?.floor())),
            Function::Num => match first {
                Value::Number(_) => Some(first),
                _ => {
                    let span = first.string()?;
                    self.may(steps::of_number(span.length as usize))?;
                    Some(Value::of_number(Number::parse(self.sources().bytes(span))))
                }
            },
            Function::Str => self.text_of(first),
            Function::Size => {
                let size = extract::size(self.message, first, &mut self.room.steps);
                size.map(Value::of_count)
            }
            Function::Coalesce | Function::Exists | Function::Now => None,
        }
    }

    /// Asks to do something; `None` where it must not be done.
    fn may(&mut self, steps: u64) -> Option<()> {
        self.spend(steps).then_some(())
    }

    fn integer(&mut self, value: Value) -> Option<i128> {
        self.number(value)?.wide()
    }

    fn ends(&mut self, one: Value, two: Value, holds: fn(&[u8], &[u8]) -> bool) -> Option<Value> {
        let (one, two) = (one.string()?, two.string()?);
        self.may(steps::of_bytes(one.length.min(two.length) as usize))?;
        Some(Value::Bool(holds(self.sources().bytes(one), self.sources().bytes(two))))
    }

    fn contains(&mut self, text: Value, part: Value) -> Option<Value> {
        let (text, part) = (text.string()?, part.string()?);
        if part.length > text.length {
            return Some(Value::Bool(false));
        }
        self.may(steps::of_find(text.length as usize, part.length as usize))?;
        let mut failures = core::mem::take(&mut self.room.failures);
        let (text, part) = (self.sources().bytes(text), self.sources().bytes(part));
        text::write_failures(part, &mut failures);
        let is_found = text::find(text, part, &failures).is_some();
        self.room.failures = failures;
        self.room.failures.shrink_to(CHANGED_BYTES_MAX);
        Some(Value::Bool(is_found))
    }

    fn change_case(&mut self, value: Value, upper: bool) -> Option<Value> {
        let span = value.string()?;
        if span.length as usize > CHANGED_BYTES_MAX {
            return None;
        }
        self.may(steps::of_letters(span.length as usize))?;
        let mut changed = core::mem::take(&mut self.room.changed);
        changed.clear();
        text::change_case(self.sources().bytes(span), upper, &mut changed);
        let begin = self.extracted.made.len();
        self.extracted.made.extend_from_slice(&changed);
        self.room.changed = changed;
        Span::new(Source::Made, begin, self.extracted.made.len()).map(Value::Text)
    }

    /// The code points from a place (from 1) on, those before `from + count`.
    fn part(&mut self, value: Value, from: i128, count: Option<i128>) -> Option<Value> {
        let span = value.string()?;
        // Code points up to the end of the part, of four bytes each.
        let end = count.map_or(from, |count| from.saturating_add(count)).max(0);
        let end = usize::try_from(end.saturating_mul(4)).unwrap_or(usize::MAX);
        self.may(2 * steps::of_code_points(end.min(span.length as usize)))?;
        let bytes = self.sources().bytes(span);
        let place = |number: i128| {
            // Code points before the first one wanted.
            let before = usize::try_from((number - 1).max(0)).unwrap_or(usize::MAX);
            text::place(bytes, before)
        };
        let begin = place(from);
        let end = count.map_or(bytes.len(), |count| place(from + count));
        Some(Value::Text(span.part(begin, end.max(begin))))
    }

    fn text_of(&mut self, value: Value) -> Option<Value> {
        self.may(steps::NUMBER_WRITTEN)?;
        let begin = self.extracted.made.len();
        let mut out = Made(&mut self.extracted.made);
        match value {
            Value::Text(span) | Value::Untyped(span) => return Some(Value::Text(span)),
            Value::Bool(value) => write!(out, "{value}").ok()?,
            Value::Number(number) => write!(out, "{number}").ok()?,
            _ => return None,
        }
        Span::new(Source::Made, begin, self.extracted.made.len()).map(Value::Text)
    }
}

struct Made<'m>(&'m mut alloc::vec::Vec<u8>);

impl Write for Made<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
