//! Values, and how they are compared.

use super::Truth;
use lepus_filter::tree::{Arithmetic, Comparison};
use std::cmp::Ordering;

#[derive(Clone, Debug)]
pub enum Value {
    Missing,
    Null,
    Bool(bool),
    Number(Number),
    Text(Vec<u8>),
    /// Of FIX: text that may be meant as a number.
    Untyped(Vec<u8>),
    Binary(Vec<u8>),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

#[derive(Clone, Copy, Debug)]
pub enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// An integer, if it lies in -2^63 … 2^64 - 1.
    pub fn int(value: i128) -> Option<Number> {
        (-(1 << 63)..1 << 64).contains(&value).then_some(Number::Int(value))
    }

    fn float(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

impl Value {
    pub fn of_count(count: usize) -> Value {
        Value::Number(Number::Int(count as i128))
    }
}

/// A number, or text of FIX that is one.
pub fn numeric(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Untyped(text) => parse(text),
        _ => None,
    }
}

/// An optional sign, digits, an optional fraction and an optional exponent.
pub fn parse(text: &[u8]) -> Option<Number> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit())
        && let Some(int) = text.parse().ok().and_then(Number::int)
    {
        return Some(int);
    }
    text.parse().ok().map(Number::Float)
}

pub fn arithmetic(operator: Arithmetic, left: Number, right: Number) -> Option<Number> {
    if let (Number::Int(left), Number::Int(right)) = (left, right) {
        return match operator {
            Arithmetic::Add => Number::int(left + right),
            Arithmetic::Subtract => Number::int(left - right),
            Arithmetic::Multiply => left.checked_mul(right).and_then(Number::int),
            Arithmetic::Divide | Arithmetic::Remainder if right == 0 => None,
            Arithmetic::Remainder => Number::int(left % right),
            Arithmetic::Divide if left % right == 0 => Number::int(left / right),
            Arithmetic::Divide => Some(Number::Float(left as f64 / right as f64)),
        };
    }
    let (left, right) = (left.float(), right.float());
    let result = match operator {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide if right == 0.0 => return None,
        Arithmetic::Divide => left / right,
        Arithmetic::Remainder => return None,
    };
    result.is_finite().then_some(Number::Float(result))
}

/// Unknown with null; FALSE for values of unlike types and for arrays and objects.
pub fn compare(comparison: Comparison, left: &Value, right: &Value) -> Truth {
    use Value::{Binary, Bool, Missing, Null, Text, Untyped};
    let by_order = |order: Option<Ordering>| {
        Some(match comparison {
            Comparison::Equal => order == Some(Ordering::Equal),
            // Of NaN as well.
            Comparison::NotEqual => order != Some(Ordering::Equal),
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => {
                matches!(order, Some(Ordering::Greater | Ordering::Equal))
            }
        })
    };
    match (left, right) {
        (Null | Missing, _) | (_, Null | Missing) => None,
        (Bool(left), Bool(right)) => match comparison {
            Comparison::Equal => Some(left == right),
            Comparison::NotEqual => Some(left != right),
            _ => Some(false),
        },
        (Untyped(one), Untyped(two)) if parse(one).is_none() || parse(two).is_none() => {
            by_order(Some(one.cmp(two)))
        }
        (Text(one), Text(two) | Untyped(two)) | (Untyped(one), Text(two)) => {
            by_order(Some(one.cmp(two)))
        }
        (Binary(one), Binary(two)) => by_order(Some(one.cmp(two))),
        _ => match (numeric(left), numeric(right)) {
            (Some(left), Some(right)) => by_order(order(left, right)),
            _ => Some(false),
        },
    }
}

fn order(left: Number, right: Number) -> Option<Ordering> {
    match (left, right) {
        (Number::Int(left), Number::Int(right)) => Some(left.cmp(&right)),
        (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right),
        (Number::Float(_), Number::Int(_)) => order(right, left).map(Ordering::reverse),
        (Number::Int(left), Number::Float(right)) if right.is_nan() => {
            let _ = left;
            None
        }
        // Far beyond every integer of the domain its sign decides.
        (Number::Int(_), Number::Float(right)) if right.abs() > 1e30 => 0.0.partial_cmp(&right),
        (Number::Int(left), Number::Float(right)) => {
            let whole = left.cmp(&(right.trunc() as i128));
            if whole == Ordering::Equal { 0.0.partial_cmp(&right.fract()) } else { Some(whole) }
        }
    }
}
