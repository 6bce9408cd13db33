//! The plain way: a walk over the syntax tree of a filter for each message.

use lepus_filter::path::{Path, Step};
use lepus_filter::tree::{Comparison, Expr, Literal};
use serde_json::Value;
use std::cmp::Ordering;

/// What a comparison compares.
enum Operand<'a> {
    Number(f64),
    Text(&'a str),
}

/// Whether the filter matches a body; nothing where that is unknown. What the filters of the load do not contain is
/// unknown as well.
pub(super) fn holds(filter: &Expr, body: &Value) -> Option<bool> {
    match filter {
        Expr::And(parts) => {
            let mut all = Some(true);
            for part in parts {
                match holds(part, body) {
                    Some(true) => {}
                    Some(false) => return Some(false),
                    None => all = None,
                }
            }
            all
        }
        Expr::Compare(comparison, left, right) => {
            let order = match (operand(left, body)?, operand(right, body)?) {
                (Operand::Number(left), Operand::Number(right)) => left.partial_cmp(&right)?,
                (Operand::Text(left), Operand::Text(right)) => left.cmp(right),
                _ => return Some(false),
            };
            Some(match comparison {
                Comparison::Equal => order == Ordering::Equal,
                Comparison::NotEqual => order != Ordering::Equal,
                Comparison::Less => order == Ordering::Less,
                Comparison::LessOrEqual => order != Ordering::Greater,
                Comparison::Greater => order == Ordering::Greater,
                Comparison::GreaterOrEqual => order != Ordering::Less,
            })
        }
        _ => None,
    }
}

fn operand<'a>(expr: &'a Expr, body: &'a Value) -> Option<Operand<'a>> {
    match expr {
        Expr::Literal(Literal::Number(number)) => Some(Operand::Number(number.to_float())),
        Expr::Literal(Literal::Text(text)) => Some(Operand::Text(text)),
        Expr::Path(Path::Body(steps)) => {
            let mut value = body;
            for step in steps {
                value = match step {
                    Step::Name(name) => value.get(&**name)?,
                    Step::Index(index) => value.get(*index as usize)?,
                    Step::Every => return None,
                };
            }
            match value {
                Value::Number(number) => number.as_f64().map(Operand::Number),
                Value::String(text) => Some(Operand::Text(text)),
                _ => None,
            }
        }
        _ => None,
    }
}
