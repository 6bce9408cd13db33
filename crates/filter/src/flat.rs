//! A few branches of one shape that compare numbers with numbers: their constants stand row by row, and are gone through.

use crate::atom::{Constant, Limit};
use crate::bound::{Bound, SIDES_MAX};
use crate::number::Number;
use crate::paths::Slot;
use crate::segment::BranchId;
use crate::steps::{self, Steps};
use crate::value::{Sources, Value};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Branches with the same ends, whose constants are floats as they are.
#[derive(Clone, Debug)]
pub(crate) struct Flat {
    sides: Box<[(Slot, Limit)]>,
    branches: Vec<BranchId>,
    /// By branch and side, the constant; below zero where it was above, and the other way around, for upper ends. So each end
    /// holds where the value, turned like it, is larger.
    rows: Vec<f64>,
}

impl Flat {
    /// The ends of a branch alone, without it; none unless all of its constants are floats as they are.
    pub(crate) fn new(bounds: &[Bound]) -> Option<Flat> {
        let is_exact = |bound: &Bound| exact(&bound.constant).is_some();
        bounds.iter().all(is_exact).then(|| Flat {
            sides: bounds.iter().map(|bound| (bound.slot, bound.limit)).collect(),
            branches: Vec::new(),
            rows: Vec::new(),
        })
    }

    /// Adds a branch if it has the same ends and fits.
    pub(crate) fn push(&mut self, branch: BranchId, bounds: &[Bound]) -> bool {
        let is_same = |(bound, side): (&Bound, &(Slot, Limit))| (bound.slot, bound.limit) == *side;
        if bounds.len() != self.sides.len() || !bounds.iter().zip(&self.sides).all(is_same) {
            return false;
        }
        let before = self.rows.len();
        for bound in bounds {
            let Some(constant) = exact(&bound.constant) else {
                self.rows.truncate(before);
                return false;
            };
            self.rows.push(turned(bound.limit, constant));
        }
        self.branches.push(branch);
        true
    }

    /// Its branches.
    pub(crate) fn branches(&self) -> &[BranchId] {
        &self.branches
    }

    /// Its branches, each with its ends.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (BranchId, Vec<Bound>)> {
        let bound = |(side, constant): (&(Slot, Limit), &f64)| {
            let (slot, limit) = *side;
            let constant = Constant::Number(Number::Float(turned(limit, *constant)));
            Bound { slot, limit, constant }
        };
        self.branches.iter().enumerate().map(move |(index, branch)| {
            (*branch, self.sides.iter().zip(self.row(index)).map(bound).collect())
        })
    }

    fn row(&self, index: usize) -> &[f64] {
        let width = self.sides.len();
        &self.rows[index * width..(index + 1) * width]
    }

    /// Calls `hit` with the branches whose ends all hold, unless `steps` runs out.
    #[inline]
    pub(crate) fn search(
        &self,
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        if !steps.spend(self.branches.len() as u64) {
            return;
        }
        let mut values = [0.0; SIDES_MAX];
        for (place, (slot, limit)) in values.iter_mut().zip(&self.sides) {
            let number = match slots.get(*slot as usize) {
                Some(Value::Number(number)) => *number,
                Some(value @ Value::Untyped(span)) => {
                    if !steps.spend(steps::of_number(span.length as usize)) {
                        return;
                    }
                    let Some(number) = value.number(sources) else { return };
                    number
                }
                // Null and unlike types are on no side.
                _ => return,
            };
            let Some(value) = number.exact() else {
                return self.search_slowly(slots, sources, steps, hit);
            };
            *place = beyond(*limit, value);
        }
        match values {
            [one, two, ..] if self.sides.len() == 2 => self.rows([one, two], hit),
            [one, ..] if self.sides.len() == 1 => self.rows([one], hit),
            _ => {
                for (index, branch) in self.branches.iter().enumerate() {
                    if self.row(index).iter().zip(values).all(|(row, value)| value > *row) {
                        hit(*branch);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn rows<const N: usize>(&self, values: [f64; N], hit: &mut impl FnMut(BranchId)) {
        let (rows, _) = self.rows.as_chunks::<N>();
        for (row, branch) in rows.iter().zip(&self.branches) {
            if row.iter().zip(values).all(|(row, value)| value > *row) {
                hit(*branch);
            }
        }
    }

    /// The same where a value is an integer that no float is.
    #[cold]
    fn search_slowly(
        &self,
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        for (branch, bounds) in self.entries() {
            let holds = bounds.iter().all(|bound| {
                let value = slots.get(bound.slot as usize).copied().unwrap_or(Value::Missing);
                let more = bound.steps(value);
                (more == 0 || steps.spend(more)) && bound.holds(value, sources)
            });
            if holds {
                hit(branch);
            }
        }
    }

    /// Bytes that it takes beside its place.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.sides)
            + self.branches.capacity() * size_of::<BranchId>()
            + self.rows.capacity() * size_of::<f64>()
    }
}

fn exact(constant: &Constant) -> Option<f64> {
    match constant {
        Constant::Number(number) => number.exact(),
        Constant::Text(_) => None,
    }
}

/// Upper ends are turned into lower ones.
fn turned(limit: Limit, number: f64) -> f64 {
    if limit.is_lower() { number } else { -number }
}

/// What is larger than a turned constant exactly where the end holds.
#[inline]
fn beyond(limit: Limit, value: f64) -> f64 {
    match limit {
        Limit::Above => value,
        Limit::From => value.next_up(),
        Limit::UpTo => (-value).next_up(),
        Limit::Below => -value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Bound;

    /// Numbers that lie close together where floats are dense, where they are not, and at the ends.
    fn numbers() -> Vec<Number> {
        let floats = [0.0, -0.0, 1.0, -1.5, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 9.007e15, 1e300];
        let around = |float: f64| [float.next_down(), float, float.next_up()];
        let wide = [1_i64 << 53, i64::MAX, i64::MIN, 3];
        let near = |signed: i64| [signed.saturating_sub(1), signed, signed.saturating_add(1)];
        let mut all: Vec<Number> = floats.into_iter().flat_map(around).map(Number::Float).collect();
        all.extend(wide.into_iter().flat_map(near).map(Number::Signed));
        all.extend([Number::Unsigned(u64::MAX), Number::Unsigned(1 << 63)]);
        all.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Number::Float));
        all
    }

    #[test]
    fn rows_say_what_each_end_says() {
        let limits = [Limit::Above, Limit::From, Limit::UpTo, Limit::Below];
        let properties = lepus_amqp::PropertiesRef(&[]);
        let message = crate::message::Message {
            properties,
            body: &[],
            format: crate::message::BodyFormat::None,
            meta: crate::message::Meta::default(),
        };
        let sources = Sources { message: &message, made: &[], constants: &[] };
        let (mut kept, mut left) = (0, 0);
        for constant in numbers() {
            for limit in limits {
                let bound = |slot| Bound { slot, limit, constant: Constant::Number(constant) };
                for width in 1..=3 {
                    let bounds: Vec<Bound> = (0..width).map(bound).collect();
                    let is_finite = constant.to_float().is_finite();
                    let Some(mut flat) = Flat::new(&bounds).filter(|_| is_finite) else {
                        left += 1;
                        continue;
                    };
                    kept += 1;
                    assert!(flat.push(7, &bounds) && !flat.push(8, &bounds[1..]));
                    for number in numbers() {
                        let slots = [Value::Number(number); 3];
                        let mut found = Vec::new();
                        let mut steps = Steps::new(u64::MAX);
                        flat.search(&slots, sources, &mut steps, &mut |branch| found.push(branch));
                        let holds = bounds[0].holds(slots[0], sources);
                        let ends = flat.entries().next().is_some_and(|(_, ends)| {
                            ends.iter().all(|end| end.holds(slots[0], sources))
                        });
                        assert_eq!(!found.is_empty(), holds, "{number:?} {limit:?} {constant:?}");
                        assert_eq!(ends, holds, "{number:?} {limit:?} {constant:?}");
                    }
                }
            }
        }
        assert!(kept > 200 && left > 20, "{kept} {left}");
    }
}
