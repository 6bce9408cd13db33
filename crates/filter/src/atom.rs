//! What a filter is made of, sorted by how it can be looked up.
//!
//! A filter is TRUE when one of its branches is, and a branch when all of its atoms are. Nothing is turned around on the
//! way: `NOT x < 5` stays what it is.

use crate::like::LikePattern;
use crate::limits::PLACES_MAX;
use crate::number::Number;
use crate::path::Path;
use crate::tree::{Comparison, Expr, Function, Literal, Test};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Parts of a top-level `OR` that are branches of their own; more of them are one.
const BRANCHES_MAX: usize = 8;
/// Values of an `IN` that a branch is filed under at most.
const VALUES_MAX: usize = 64;

/// A constant that values are looked up by. Equal values have one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Bool(bool),
    /// An integer wherever it is one.
    Number(Number),
    Text(Box<[u8]>),
}

/// A constant that values are compared with by order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    Number(Number),
    Text(Box<[u8]>),
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Above,
    From,
    UpTo,
    Below,
}

impl Limit {
    /// Whether it is a lower end.
    pub(crate) fn is_lower(self) -> bool {
        matches!(self, Limit::Above | Limit::From)
    }
}

/// A condition of a branch.
pub(crate) struct Atom<'e> {
    /// How it can be looked up.
    pub(crate) kind: Kind<'e>,
    /// The condition itself.
    pub(crate) expr: &'e Expr,
}

/// How a condition can be looked up.
pub(crate) enum Kind<'e> {
    /// The field is one of these, at least one.
    Equal(&'e Path, Vec<Key>),
    /// The field lies behind this end, and behind a second one.
    Range(&'e Path, (Limit, Constant), Option<(Limit, Constant)>),
    /// What is computed of numbers lies behind this end, and behind a second one.
    Computed(&'e Expr, (Limit, Constant), Option<(Limit, Constant)>),
    /// The field begins so, and the condition says more.
    Prefix(&'e Path, Box<[u8]>),
    /// Anything else.
    Other,
}

/// The branches of a filter.
pub(crate) fn branches(filter: &Expr) -> Vec<Vec<Atom<'_>>> {
    match filter {
        Expr::Or(list) if list.len() <= BRANCHES_MAX => list.iter().map(atoms).collect(),
        _ => Vec::from([atoms(filter)]),
    }
}

/// Whether all branches of a filter can be found by values, or by what these begin with, at so many places as there may be.
pub(crate) fn are_looked_up(branches: &[Vec<Atom<'_>>]) -> bool {
    let places = |atoms: &Vec<Atom<'_>>| {
        // Under which of several equalities it is filed hangs on others.
        let of = |atom: &Atom<'_>| match &atom.kind {
            Kind::Equal(_, keys) => Some(keys.len()),
            Kind::Prefix(..) => Some(1),
            _ => None,
        };
        atoms.iter().filter_map(of).max()
    };
    let all: Option<Vec<usize>> = branches.iter().map(places).collect();
    all.is_some_and(|places| places.iter().sum::<usize>() <= PLACES_MAX)
}

fn atoms(branch: &Expr) -> Vec<Atom<'_>> {
    match branch {
        Expr::And(list) => list.iter().map(atom).collect(),
        one => Vec::from([atom(one)]),
    }
}

fn atom(expr: &Expr) -> Atom<'_> {
    let found = match expr {
        // A field alone is TRUE when it is the boolean TRUE.
        Expr::Path(path) => Some(Kind::Equal(path, Vec::from([Key::Bool(true)]))),
        Expr::Compare(comparison, left, right) => match (&**left, &**right) {
            (Expr::Path(path), Expr::Literal(literal)) => against(path, *comparison, literal),
            (Expr::Literal(literal), Expr::Path(path)) => {
                against(path, mirrored(*comparison), literal)
            }
            (expr, Expr::Literal(literal)) => computed_against(expr, *comparison, literal),
            (Expr::Literal(literal), expr) => {
                computed_against(expr, mirrored(*comparison), literal)
            }
            _ => None,
        },
        Expr::Test(value, test) => match &**value {
            Expr::Path(path) => tested(path, test),
            expr => computed_between(expr, test),
        },
        _ => None,
    };
    Atom { kind: found.unwrap_or(Kind::Other), expr }
}

/// The comparison with its sides exchanged.
pub(crate) fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        same => same,
    }
}

fn against<'e>(path: &'e Path, comparison: Comparison, literal: &Literal) -> Option<Kind<'e>> {
    let limit = match comparison {
        Comparison::Equal => return Some(Kind::Equal(path, Vec::from([key(literal)?]))),
        Comparison::NotEqual => return None,
        Comparison::Less => Limit::Below,
        Comparison::LessOrEqual => Limit::UpTo,
        Comparison::Greater => Limit::Above,
        Comparison::GreaterOrEqual => Limit::From,
    };
    Some(Kind::Range(path, (limit, constant(literal)?), None))
}

fn computed_against<'e>(
    expr: &'e Expr,
    comparison: Comparison,
    literal: &Literal,
) -> Option<Kind<'e>> {
    let limit = |limit| Some((limit, numeric(literal)?));
    let (first, second) = match comparison {
        Comparison::Equal => (limit(Limit::From)?, limit(Limit::UpTo)),
        Comparison::NotEqual => return None,
        Comparison::Less => (limit(Limit::Below)?, None),
        Comparison::LessOrEqual => (limit(Limit::UpTo)?, None),
        Comparison::Greater => (limit(Limit::Above)?, None),
        Comparison::GreaterOrEqual => (limit(Limit::From)?, None),
    };
    is_computed(expr).then_some(Kind::Computed(expr, first, second))
}

fn computed_between<'e>(expr: &'e Expr, test: &Test) -> Option<Kind<'e>> {
    let Test::Between { low, high, negated: false } = test else { return None };
    let (Expr::Literal(low), Expr::Literal(high)) = (&**low, &**high) else { return None };
    let (low, high) = ((Limit::From, numeric(low)?), (Limit::UpTo, numeric(high)?));
    is_computed(expr).then_some(Kind::Computed(expr, low, Some(high)))
}

fn numeric(literal: &Literal) -> Option<Constant> {
    constant(literal).filter(|constant| matches!(constant, Constant::Number(_)))
}

/// Whether an expression is arithmetic of fields and numbers, which is a number or null. As deep as the expression.
fn is_computed(expr: &Expr) -> bool {
    let is_part = |part: &Expr| match part {
        Expr::Path(_) | Expr::Literal(Literal::Number(_)) => true,
        other => is_computed(other),
    };
    match expr {
        Expr::Arithmetic(_, left, right) => is_part(left) && is_part(right),
        Expr::Negate(inner) | Expr::Plus(inner) => is_part(inner),
        Expr::Call(Function::Abs | Function::Round | Function::Floor, arguments) => {
            arguments.iter().all(is_part)
        }
        _ => false,
    }
}

fn tested<'e>(path: &'e Path, test: &'e Test) -> Option<Kind<'e>> {
    match test {
        Test::Between { low, high, negated: false } => match (&**low, &**high) {
            (Expr::Literal(low), Expr::Literal(high)) => {
                let upper = (Limit::UpTo, constant(high)?);
                Some(Kind::Range(path, (Limit::From, constant(low)?), Some(upper)))
            }
            _ => None,
        },
        Test::In { list, negated: false } if list.len() <= VALUES_MAX => {
            let mut keys = Vec::new();
            for expr in list {
                match expr {
                    // With it a filter is unknown, never TRUE.
                    Expr::Literal(Literal::Null) => {}
                    Expr::Literal(literal) => keys.push(key(literal)?),
                    _ => return None,
                }
            }
            if keys.is_empty() {
                return None;
            }
            keys.sort_unstable_by(Key::order);
            keys.dedup();
            Some(Kind::Equal(path, keys))
        }
        Test::Like { pattern, escape, folded: false, negated: false } => {
            let prefix: Box<[u8]> = LikePattern::new(pattern, *escape, false).ok()?.prefix().into();
            (!prefix.is_empty()).then_some(Kind::Prefix(path, prefix))
        }
        _ => None,
    }
}

fn key(literal: &Literal) -> Option<Key> {
    Some(match literal {
        Literal::Null => return None,
        Literal::Bool(value) => Key::Bool(*value),
        Literal::Number(number) => Key::Number(number.canonical()),
        Literal::Date(milliseconds) => Key::Number(Number::Signed(*milliseconds)),
        Literal::Text(text) => Key::Text(text.as_bytes().into()),
    })
}

/// The constant of a literal that has an order.
pub(crate) fn constant(literal: &Literal) -> Option<Constant> {
    Some(match literal {
        // Booleans have no order, and nothing is above or below null.
        Literal::Null | Literal::Bool(_) => return None,
        Literal::Number(number) => Constant::Number(*number),
        Literal::Date(milliseconds) => Constant::Number(Number::Signed(*milliseconds)),
        Literal::Text(text) => Constant::Text(text.as_bytes().into()),
    })
}

impl Key {
    /// Any order in which equal ones lie side by side.
    fn order(&self, other: &Key) -> Ordering {
        match (self, other) {
            (Key::Bool(one), Key::Bool(two)) => one.cmp(two),
            // Literals are never NaN.
            (Key::Number(one), Key::Number(two)) => one.compare(*two).unwrap_or(Ordering::Equal),
            (Key::Text(one), Key::Text(two)) => one.cmp(two),
            (Key::Bool(_), _) | (_, Key::Text(_)) => Ordering::Less,
            (Key::Text(_), _) | (_, Key::Bool(_)) => Ordering::Greater,
        }
    }

    /// The range that has this value alone; `None` for booleans, which have no order.
    pub(crate) fn constant(&self) -> Option<Constant> {
        match self {
            Key::Bool(_) => None,
            Key::Number(number) => Some(Constant::Number(*number)),
            Key::Text(text) => Some(Constant::Text(text.clone())),
        }
    }
}
