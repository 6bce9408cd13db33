//! Conditions of comparisons with constants that are no mere AND: how the ends of a branch hang together.
//!
//! Whether a comparison is unknown hangs on the message alone, since no constant is null: so for one message each of them
//! says TRUE, FALSE or unknown for all branches of a shape, or its end decides. A condition is turned so that only TRUE
//! counts: `NOT` goes down to the comparisons, whose ends turn around. What is left is AND and OR of ends.

use crate::atom::{self, Constant, Limit};
use crate::bound::{Bound, SIDES_MAX};
use crate::number::Number;
use crate::path::Path;
use crate::paths::Slot;
use crate::steps::{self, Steps};
use crate::tree::{Comparison, Expr, IsKind, Literal, Test};
use crate::value::{Sources, Value};
use alloc::vec::Vec;

/// Folding a form, beside its parts: it lies apart from others, and has a stack.
const FOLD_STEPS: u64 = 24;
/// Parts of a form at most.
pub(crate) const PARTS_MAX: usize = 32;

/// How the ends of a branch hang together. Parts stand behind what they are made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Form(Vec<Part>);

/// A part of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Whether the value lies behind this end, by its place in the shape; and what is said of a value of an unlike type, and
    /// of what is no number. Of null it is not TRUE.
    End { side: u8, if_unlike: bool, if_nan: bool },
    /// Whether a field is, or is not, what the kind says.
    Is { slot: Slot, kind: Is, wanted: bool },
    /// Whether all of the last so many hold.
    All(u8),
    /// Whether one of the last so many holds.
    One(u8),
}

/// What is asked of a field without a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Is {
    Null,
    Missing,
    True,
    False,
}

impl Is {
    fn holds(self, value: Value) -> bool {
        match self {
            Is::Null => value.is_null(),
            Is::Missing => matches!(value, Value::Missing),
            Is::True => matches!(value, Value::Bool(true)),
            Is::False => matches!(value, Value::Bool(false)),
        }
    }
}

/// A value as a comparison with constants sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Null,
    Unlike,
    Nan,
    /// Its place among the constants decides.
    Comparable,
}

impl State {
    /// That of a value against constants of a type; unless `steps` runs out over the reading of a number.
    #[inline]
    pub(crate) fn read(
        is_text: bool,
        value: Value,
        sources: Sources<'_>,
        steps: &mut Steps,
    ) -> Option<State> {
        if let (false, Value::Untyped(span)) = (is_text, value)
            && !steps.spend(steps::of_number(span.length as usize))
        {
            return None;
        }
        Some(State::of(is_text, value, sources))
    }

    #[inline]
    fn of(is_text: bool, value: Value, sources: Sources<'_>) -> State {
        let of_number = |number: Number| match number.compare(number) {
            Some(_) => State::Comparable,
            None => State::Nan,
        };
        match (is_text, value) {
            (_, Value::Null | Value::Missing) => State::Null,
            (false, Value::Number(number)) => of_number(number),
            (false, Value::Untyped(_)) => value.number(sources).map_or(State::Unlike, of_number),
            (true, Value::Text(_) | Value::Untyped(_)) => State::Comparable,
            _ => State::Unlike,
        }
    }
}

/// A condition that was turned: its ends, the fields that it asks for, and what it says of them.
#[derive(Default)]
pub(crate) struct Turned<'e> {
    /// Ends in the order in which the condition names them.
    pub(crate) ends: Vec<(&'e Path, Limit, Constant)>,
    /// Fields that are asked for without a constant.
    pub(crate) fields: Vec<&'e Path>,
    parts: Vec<Part>,
}

impl<'e> Turned<'e> {
    /// All of these conditions; none where one of them is something else than comparisons of fields with constants, where
    /// there are more of them than a shape may have, and where there is no constant.
    pub(crate) fn new(conditions: &[&'e Expr]) -> Option<Turned<'e>> {
        let mut turned = Turned::default();
        for condition in conditions {
            turned.condition(condition, true)?;
        }
        turned.group(conditions.len(), true)?;
        (!turned.ends.is_empty()).then_some(turned)
    }

    /// What makes a condition TRUE, or FALSE where that is wanted. As deep as the condition.
    fn condition(&mut self, expr: &'e Expr, wanted: bool) -> Option<()> {
        match expr {
            Expr::Not(inner) => self.condition(inner, !wanted),
            Expr::And(list) | Expr::Or(list) => {
                for part in list {
                    self.condition(part, wanted)?;
                }
                self.group(list.len(), matches!(expr, Expr::And(_)) == wanted)
            }
            Expr::Compare(comparison, left, right) => match (&**left, &**right) {
                (Expr::Path(path), Expr::Literal(literal)) => {
                    self.comparison(path, *comparison, literal, wanted)
                }
                (Expr::Literal(literal), Expr::Path(path)) => {
                    self.comparison(path, atom::mirrored(*comparison), literal, wanted)
                }
                _ => None,
            },
            Expr::Test(value, Test::Between { low, high, negated }) => {
                let (Expr::Path(path), Expr::Literal(low), Expr::Literal(high)) =
                    (&**value, &**low, &**high)
                else {
                    return None;
                };
                let (above, below) = match negated {
                    false => (Comparison::GreaterOrEqual, Comparison::LessOrEqual),
                    true => (Comparison::Less, Comparison::Greater),
                };
                self.comparison(path, above, low, wanted)?;
                self.comparison(path, below, high, wanted)?;
                self.group(2, *negated != wanted)
            }
            Expr::Is { value, kind, negated } => {
                let Expr::Path(path) = &**value else { return None };
                let kind = match kind {
                    IsKind::Null => Is::Null,
                    IsKind::Missing => Is::Missing,
                    IsKind::True => Is::True,
                    IsKind::False => Is::False,
                };
                self.ask(path, kind, wanted != *negated)
            }
            Expr::Path(path) => self.ask(path, if wanted { Is::True } else { Is::False }, true),
            _ => None,
        }
    }

    fn ask(&mut self, path: &'e Path, kind: Is, wanted: bool) -> Option<()> {
        // Its place among the fields, until there are slots.
        let slot = self.fields.len() as Slot;
        self.fields.push(path);
        self.part(Part::Is { slot, kind, wanted })
    }

    fn part(&mut self, part: Part) -> Option<()> {
        self.parts.push(part);
        (self.parts.len() <= PARTS_MAX && self.ends.len() <= SIDES_MAX).then_some(())
    }

    /// So many parts as one.
    fn group(&mut self, count: usize, is_all: bool) -> Option<()> {
        let number = u8::try_from(count).ok()?;
        match (number, is_all) {
            (1, _) => Some(()),
            (_, true) => self.part(Part::All(number)),
            (_, false) => self.part(Part::One(number)),
        }
    }

    fn end(
        &mut self,
        path: &'e Path,
        limit: Limit,
        constant: Constant,
        says: (bool, bool),
    ) -> Option<()> {
        let (if_unlike, if_nan) = says;
        // Its place among the ends, until they are sorted.
        let side = self.ends.len() as u8;
        self.ends.push((path, limit, constant));
        self.part(Part::End { side, if_unlike, if_nan })
    }

    fn comparison(
        &mut self,
        path: &'e Path,
        comparison: Comparison,
        literal: &Literal,
        wanted: bool,
    ) -> Option<()> {
        let constant = atom::constant(literal)?;
        // A comparison of unlike types is FALSE, and one with what is no number as well, but for `<>`.
        let is_not_equal = comparison == Comparison::NotEqual;
        let says = (!wanted, is_not_equal == wanted);
        let limit = match (comparison, wanted) {
            (Comparison::Less, true) | (Comparison::GreaterOrEqual, false) => Limit::Below,
            (Comparison::LessOrEqual, true) | (Comparison::Greater, false) => Limit::UpTo,
            (Comparison::Greater, true) | (Comparison::LessOrEqual, false) => Limit::Above,
            (Comparison::GreaterOrEqual, true) | (Comparison::Less, false) => Limit::From,
            (Comparison::Equal, true) | (Comparison::NotEqual, false) => {
                self.end(path, Limit::From, constant.clone(), says)?;
                self.end(path, Limit::UpTo, constant, says)?;
                return self.group(2, true);
            }
            (Comparison::NotEqual, true) | (Comparison::Equal, false) => {
                self.end(path, Limit::Below, constant.clone(), says)?;
                self.end(path, Limit::Above, constant, says)?;
                return self.group(2, false);
            }
        };
        self.end(path, limit, constant, says)
    }

    /// The form and the bounds sorted by their sides, where `slots` has those of the ends and then those of the fields.
    pub(crate) fn finish(self, slots: &[Slot]) -> (Form, Vec<Bound>) {
        let Turned { ends, mut parts, .. } = self;
        let (of_ends, of_fields) = slots.split_at(ends.len());
        let bound = |((_, limit, constant), slot): ((&Path, Limit, Constant), &Slot)| Bound {
            slot: *slot,
            limit,
            constant,
        };
        let mut bounds: Vec<(usize, Bound)> =
            ends.into_iter().zip(of_ends).map(bound).enumerate().collect();
        // Stable, so that it hangs on the condition alone what stands where.
        bounds.sort_by_key(|(_, bound)| bound.side());
        for part in &mut parts {
            match part {
                Part::End { side, .. } => {
                    let place = bounds.iter().position(|(end, _)| *end == usize::from(*side));
                    *side = place.unwrap_or(0) as u8;
                }
                Part::Is { slot, .. } => *slot = of_fields[*slot as usize],
                Part::All(_) | Part::One(_) => {}
            }
        }
        (Form(parts), bounds.into_iter().map(|(_, bound)| bound).collect())
    }
}

/// A form for one message: where only ends are left, or nothing hangs on them.
pub(crate) enum Folded {
    /// It says the same of all branches.
    Same(bool),
    /// These things are done one after the other.
    Ends(Ends),
}

/// What is done to find out whether a form holds, with a stack of verdicts.
pub(crate) struct Ends {
    steps: [Step; PARTS_MAX],
    len: usize,
}

/// One of these things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Whether an end holds goes onto the stack.
    Push(u8),
    /// The uppermost verdict counts only where an end holds, too.
    And(u8),
    /// Or where only an end holds.
    Or(u8),
    /// Two verdicts become one.
    AndBoth,
    OrBoth,
}

impl Ends {
    /// What is to be done.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps[..self.len]
    }

    /// Whether it holds where `end` says which ends do.
    #[inline]
    pub(crate) fn holds(&self, mut end: impl FnMut(u8) -> bool) -> bool {
        // The uppermost one is the lowest bit.
        let mut stack = 0_u32;
        for step in self.steps() {
            stack = match *step {
                Step::Push(side) => stack << 1 | u32::from(end(side)),
                Step::And(side) => stack & !u32::from(!end(side)),
                Step::Or(side) => stack | u32::from(end(side)),
                Step::AndBoth => stack >> 1 & !(!stack & 1),
                Step::OrBoth => stack >> 1 | stack & 1,
            };
        }
        stack & 1 == 1
    }

    fn push(&mut self, step: Step) {
        if let Some(place) = self.steps.get_mut(self.len) {
            *place = step;
            self.len += 1;
        }
    }

    /// Verdicts become one, whose steps stand one behind the other and begin at `starts`.
    fn join(&mut self, starts: &[usize], is_all: bool) {
        let (before, end) = (self.steps, self.len);
        self.len = starts[0];
        for (index, start) in starts.iter().enumerate() {
            let own = &before[*start..starts.get(index + 1).copied().unwrap_or(end)];
            match own {
                [Step::Push(side)] if index > 0 => {
                    self.push(if is_all { Step::And(*side) } else { Step::Or(*side) });
                }
                _ => {
                    own.iter().for_each(|step| self.push(*step));
                    if index > 0 {
                        self.push(if is_all { Step::AndBoth } else { Step::OrBoth });
                    }
                }
            }
        }
    }
}

impl Form {
    /// What is left of it for a message: `state` tells that of a side's value.
    pub(crate) fn fold(&self, slots: &[Value], state: impl Fn(usize) -> State) -> Folded {
        let mut ends = Ends { steps: [Step::AndBoth; PARTS_MAX], len: 0 };
        // What is known of each, or where its steps begin.
        let mut stack: [Result<bool, usize>; PARTS_MAX] = [Ok(false); PARTS_MAX];
        let mut height = 0;
        for part in &self.0 {
            let said = match *part {
                Part::End { side, if_unlike, if_nan } => match state(usize::from(side)) {
                    State::Null => Ok(false),
                    State::Unlike => Ok(if_unlike),
                    State::Nan => Ok(if_nan),
                    State::Comparable => {
                        ends.push(Step::Push(side));
                        Err(ends.len - 1)
                    }
                },
                Part::Is { slot, kind, wanted } => {
                    let value = slots.get(slot as usize).copied().unwrap_or(Value::Missing);
                    Ok(kind.holds(value) == wanted)
                }
                Part::All(count) | Part::One(count) => {
                    let is_all = matches!(part, Part::All(_));
                    let first = height - usize::from(count);
                    let said = join(&mut ends, &stack[first..height], is_all);
                    height = first;
                    said
                }
            };
            stack[height] = said;
            height += 1;
        }
        match stack[0] {
            Ok(same) => Folded::Same(same),
            Err(_) => Folded::Ends(ends),
        }
    }

    /// What it takes to fold it, beside the reading of numbers.
    #[inline]
    pub(crate) fn steps(&self) -> u64 {
        FOLD_STEPS + self.0.len() as u64
    }

    /// Bytes that it takes beside its place.
    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Part>()
    }
}

/// What some parts say together.
fn join(ends: &mut Ends, parts: &[Result<bool, usize>], is_all: bool) -> Result<bool, usize> {
    let mut starts = [0; PARTS_MAX];
    let mut count = 0;
    for start in parts.iter().filter_map(|part| part.err()) {
        starts[count] = start;
        count += 1;
    }
    if parts.contains(&Ok(!is_all)) || count == 0 {
        // One of them decides, whatever the ends say, or all say the same.
        if count > 0 {
            ends.len = starts[0];
        }
        return Ok(parts.contains(&Ok(!is_all)) != is_all);
    }
    ends.join(&starts[..count], is_all);
    Err(starts[0])
}
