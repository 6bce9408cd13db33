//! The naive evaluator: what a filter means, written to be read, without regard to speed. It walks the tree once per
//! filter and message, and shares nothing with the engine but the tree and the message.

mod fields;
mod text;
mod value;

use fields::{elements, field};
use lepus_filter::Message;
use lepus_filter::tree::{Comparison, Expr, Function, IsKind, Literal, Quantifier, Test};
use value::{Number, Value, arithmetic, compare, numeric};

/// TRUE, FALSE or unknown.
pub type Truth = Option<bool>;

/// What a filter says about a message.
pub fn verdict(filter: &Expr, message: &Message<'_>) -> Truth {
    truth(&eval(filter, message))
}

/// A value as a condition: what is no boolean is unknown.
fn truth(value: &Value) -> Truth {
    match value {
        Value::Bool(value) => Some(*value),
        _ => None,
    }
}

fn of_truth(truth: Truth) -> Value {
    truth.map_or(Value::Null, Value::Bool)
}

pub fn and(list: impl IntoIterator<Item = Truth>) -> Truth {
    let list: Vec<Truth> = list.into_iter().collect();
    if list.contains(&Some(false)) {
        Some(false)
    } else if list.contains(&None) {
        None
    } else {
        Some(true)
    }
}

pub fn not(truth: Truth) -> Truth {
    truth.map(|value| !value)
}

pub fn or(list: impl IntoIterator<Item = Truth>) -> Truth {
    not(and(list.into_iter().map(not)))
}

fn eval(expr: &Expr, message: &Message<'_>) -> Value {
    let eval = |expr: &Expr| eval(expr, message);
    match expr {
        Expr::Literal(literal) => of_literal(literal),
        Expr::Path(path) => field(path, message),
        Expr::Not(inner) => of_truth(not(truth(&eval(inner)))),
        Expr::And(list) => of_truth(and(list.iter().map(|expr| truth(&eval(expr))))),
        Expr::Or(list) => of_truth(or(list.iter().map(|expr| truth(&eval(expr))))),
        Expr::Compare(comparison, left, right) => {
            of_truth(compare(*comparison, &eval(left), &eval(right)))
        }
        Expr::Arithmetic(operator, left, right) => {
            match (numeric(&eval(left)), numeric(&eval(right))) {
                (Some(left), Some(right)) => of_number(arithmetic(*operator, left, right)),
                _ => Value::Null,
            }
        }
        Expr::Negate(inner) => of_number(numeric(&eval(inner)).and_then(|number| match number {
            Number::Int(value) => Number::int(-value),
            Number::Float(value) => Some(Number::Float(-value)),
        })),
        Expr::Plus(inner) => of_number(numeric(&eval(inner))),
        Expr::Test(value, test) => of_truth(passes(&eval(value), test, message)),
        Expr::Quantified(quantifier, path, test) => {
            let Some(elements) = elements(path, message) else { return Value::Null };
            let verdicts = elements.iter().map(|element| passes(element, test, message));
            of_truth(match quantifier {
                Quantifier::Any => or(verdicts),
                Quantifier::All => and(verdicts),
            })
        }
        Expr::Is { value, kind, negated } => {
            let value = eval(value);
            let holds = match kind {
                IsKind::Null => matches!(value, Value::Null | Value::Missing),
                IsKind::Missing => matches!(value, Value::Missing),
                IsKind::True => matches!(value, Value::Bool(true)),
                IsKind::False => matches!(value, Value::Bool(false)),
            };
            Value::Bool(holds != *negated)
        }
        Expr::Call(function, arguments) => {
            let arguments: Vec<Value> = arguments.iter().map(eval).collect();
            call(*function, &arguments, message)
        }
    }
}

fn of_literal(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Number(number) => Value::Number(match number.wide() {
            Some(value) => Number::Int(value),
            None => Number::Float(number.to_float()),
        }),
        Literal::Date(milliseconds) => Value::Number(Number::Int((*milliseconds).into())),
        Literal::Text(text) => Value::Text(text.as_bytes().to_vec()),
    }
}

fn of_number(number: Option<Number>) -> Value {
    number.map_or(Value::Null, Value::Number)
}

fn passes(value: &Value, test: &Test, message: &Message<'_>) -> Truth {
    let against = |comparison, expr: &Expr| compare(comparison, value, &eval(expr, message));
    match test {
        Test::Compare(comparison, right) => against(*comparison, right),
        Test::Between { low, high, negated: false } => {
            and([against(Comparison::GreaterOrEqual, low), against(Comparison::LessOrEqual, high)])
        }
        Test::Between { low, high, negated: true } => {
            or([against(Comparison::Less, low), against(Comparison::Greater, high)])
        }
        Test::In { list, negated: false } => {
            or(list.iter().map(|expr| against(Comparison::Equal, expr)))
        }
        // As those of its type have it; of another type than all of them, it is no more among them than outside.
        Test::In { list, negated: true } => {
            let found = not(or(list.iter().map(|expr| against(Comparison::Equal, expr))));
            let is_like = |expr: &Expr| against(Comparison::NotEqual, expr) == Some(true);
            found.map(|is_outside| is_outside && list.iter().any(is_like))
        }
        Test::Like { pattern, escape, folded, negated } => {
            of_string(value, *negated, |text| text::like(text, pattern, *escape, *folded))
        }
        Test::Regexp { regexp, negated } => {
            let compiled =
                regex::bytes::Regex::new(regexp.pattern()).expect("the parser compiled it");
            of_string(value, *negated, |text| compiled.is_match(text))
        }
    }
}

/// Null is unknown, what is no string is FALSE with NOT and without.
fn of_string(value: &Value, negated: bool, matches: impl Fn(&[u8]) -> bool) -> Truth {
    match value {
        Value::Null | Value::Missing => None,
        Value::Text(text) | Value::Untyped(text) => Some(matches(text) != negated),
        _ => Some(false),
    }
}

fn call(function: Function, arguments: &[Value], message: &Message<'_>) -> Value {
    let string = |index: usize| match arguments.get(index) {
        Some(Value::Text(text) | Value::Untyped(text)) => Some(text.as_slice()),
        _ => None,
    };
    let number = |index: usize| arguments.get(index).and_then(numeric);
    let integer = |index: usize| match number(index) {
        Some(Number::Int(value)) => Some(value),
        _ => None,
    };
    let both = |holds: fn(&[u8], &[u8]) -> bool| Some(Value::Bool(holds(string(0)?, string(1)?)));
    let found = match function {
        Function::Lower => string(0).map(|text| Value::Text(text::lower(text))),
        Function::Upper => string(0).map(|text| Value::Text(text::upper(text))),
        Function::Length => match &arguments[0] {
            Value::Binary(bytes) => Some(Value::of_count(bytes.len())),
            _ => string(0).map(|text| Value::of_count(text::units(text).len())),
        },
        Function::Left => string(0).zip(integer(1)).and_then(|(text, count)| {
            (count >= 0).then(|| Value::Text(text::part(text, 1, Some(count))))
        }),
        Function::Right => string(0).zip(integer(1)).and_then(|(text, count)| {
            let length = text::units(text).len() as i128;
            (count >= 0).then(|| Value::Text(text::part(text, length - count + 1, None)))
        }),
        Function::Substring => string(0).zip(integer(1)).and_then(|(text, from)| {
            if arguments.len() == 2 {
                return Some(Value::Text(text::part(text, from, None)));
            }
            let count = integer(2).filter(|count| *count >= 0)?;
            Some(Value::Text(text::part(text, from, Some(count))))
        }),
        Function::StartsWith => both(|text, part| text.starts_with(part)),
        Function::EndsWith => both(|text, part| text.ends_with(part)),
        Function::Contains => both(|text, part| {
            part.is_empty() || text.windows(part.len()).any(|window| window == part)
        }),
        Function::Abs => number(0).and_then(|number| match number {
            Number::Int(value) => Number::int(value.abs()).map(Value::Number),
            Number::Float(value) => Some(Value::Number(Number::Float(value.abs()))),
        }),
        Function::Round => number(0).map(|number| {
            Value::Number(match number {
                Number::Int(_) => number,
                Number::Float(value) => Number::Float(value.round()),
            })
        }),
        Function::Floor => number(0).map(|number| {
            Value::Number(match number {
                Number::Int(_) => number,
                Number::Float(value) => Number::Float(value.floor()),
            })
        }),
        Function::Coalesce => {
            arguments.iter().find(|value| !matches!(value, Value::Null | Value::Missing)).cloned()
        }
        Function::Num => match &arguments[0] {
            Value::Text(text) | Value::Untyped(text) => value::parse(text).map(Value::Number),
            value => numeric(value).map(Value::Number),
        },
        Function::Str => match &arguments[0] {
            Value::Text(text) | Value::Untyped(text) => Some(Value::Text(text.clone())),
            Value::Bool(value) => Some(Value::Text(value.to_string().into_bytes())),
            Value::Number(Number::Int(value)) => Some(Value::Text(value.to_string().into_bytes())),
            Value::Number(Number::Float(value)) => {
                Some(Value::Text(format!("{value:?}").into_bytes()))
            }
            _ => None,
        },
        Function::Size => match &arguments[0] {
            Value::Array(list) => Some(Value::of_count(list.len())),
            Value::Object(members) => Some(Value::of_count(members.len())),
            _ => None,
        },
        // The parser makes `IS NOT MISSING` or `IS NOT NULL` of it.
        Function::Exists => None,
        Function::Now => message.meta.time.map(|time| Value::Number(Number::Int(time.into()))),
    };
    found.unwrap_or(Value::Null)
}
