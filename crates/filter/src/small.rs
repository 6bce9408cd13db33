//! A few branches of one shape: their constants stand row by row, and are gone through.

use crate::atom::{Constant, Limit};
use crate::bound::{Bound, SIDES_MAX, Side};
use crate::form::{Folded, Form, State};
use crate::number::Number;
use crate::paths::Slot;
use crate::segment::BranchId;
use crate::steps::{self, Steps};
use crate::value::{Sources, Value};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Branches of one shape. They are given and found with the sides of the shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Small {
    /// Branches whose constants are floats as they are. One bit for each side tells whether a value that equals the
    /// constant is on the right side, too.
    branches: Vec<(BranchId, u8)>,
    /// By such a branch and side, the constant; below zero where it was above, and the other way around, for upper ends.
    /// Where equal values are on the right side it is the next lower float. So each end holds where the value, turned
    /// like it, is larger.
    rows: Vec<f64>,
    /// All others.
    others: Vec<(BranchId, Box<[Bound]>)>,
    /// Bytes of what these have beside their place.
    other_bytes: usize,
}

impl Small {
    /// Number of branches, dead ones included.
    pub(crate) fn len(&self) -> usize {
        self.branches.len() + self.others.len()
    }

    /// Adds a branch whose ends hang together by a form; its bounds are in the order of the shape.
    pub(crate) fn push_formed(&mut self, branch: BranchId, bounds: Vec<Bound>) {
        self.other_bytes += bytes_of(&bounds);
        self.others.push((branch, bounds.into()));
    }

    /// Adds a branch all of whose ends must hold; its bounds are in the order of the shape.
    pub(crate) fn push(&mut self, branch: BranchId, bounds: Vec<Bound>) {
        let before = self.rows.len();
        let mut equal = 0;
        for (side, bound) in bounds.iter().enumerate() {
            let Some(constant) = exact(&bound.constant) else {
                self.rows.truncate(before);
                return self.push_formed(branch, bounds);
            };
            let is_equal = matches!(bound.limit, Limit::From | Limit::UpTo);
            equal |= u8::from(is_equal) << side;
            let turned = turned(bound.limit.is_lower(), constant);
            self.rows.push(if is_equal { turned.next_down() } else { turned });
        }
        self.branches.push((branch, equal));
    }

    /// The branches.
    pub(crate) fn branches(&self) -> impl Iterator<Item = BranchId> {
        let of_rows = self.branches.iter().map(|(branch, _)| *branch);
        of_rows.chain(self.others.iter().map(|(branch, _)| *branch))
    }

    /// Takes out so many branches at most, with their bounds.
    pub(crate) fn take(&mut self, sides: &[Side], count: usize) -> Vec<(BranchId, Vec<Bound>)> {
        let first_other = self.others.len() - count.min(self.others.len());
        let mut taken: Vec<(BranchId, Vec<Bound>)> = Vec::with_capacity(count.min(self.len()));
        for (branch, bounds) in self.others.drain(first_other..) {
            self.other_bytes -= bytes_of(&bounds);
            taken.push((branch, bounds.into()));
        }
        let first = self.branches.len() - (count - taken.len()).min(self.branches.len());
        for index in first..self.branches.len() {
            taken.push((self.branches[index].0, self.bounds(sides, index).collect()));
        }
        self.branches.truncate(first);
        self.rows.truncate(first * sides.len());
        self.shrink();
        taken
    }

    /// Takes out those that are dead, as many as there may be; `dropped` gets them.
    pub(crate) fn sweep(
        &mut self,
        width: usize,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
    ) {
        let mut kept = 0;
        for index in 0..self.branches.len() {
            let branch = self.branches[index];
            if !is_alive(branch.0) {
                dropped.push(branch.0);
                continue;
            }
            self.branches[kept] = branch;
            self.rows.copy_within(index * width..(index + 1) * width, kept * width);
            kept += 1;
        }
        self.branches.truncate(kept);
        self.rows.truncate(kept * width);
        let bytes = &mut self.other_bytes;
        self.others.retain(|(branch, bounds)| {
            let stays = is_alive(*branch);
            if !stays {
                dropped.push(*branch);
                *bytes -= bytes_of(bounds);
            }
            stays
        });
        self.shrink();
    }

    /// Gives back room for very many more branches than there are.
    fn shrink(&mut self) {
        if self.branches.len() * 4 < self.branches.capacity() {
            self.branches.shrink_to(2 * self.branches.len());
            self.rows.shrink_to(2 * self.rows.len());
        }
        if self.others.len() * 4 < self.others.capacity() {
            self.others.shrink_to(2 * self.others.len());
        }
    }

    /// The bounds of a branch whose constants are floats.
    fn bounds(&self, sides: &[Side], index: usize) -> impl Iterator<Item = Bound> {
        let equal = self.branches[index].1;
        let row = &self.rows[index * sides.len()..(index + 1) * sides.len()];
        sides.iter().zip(row).enumerate().map(move |(place, (side, turned_constant))| {
            let is_equal = equal >> place & 1 == 1;
            let constant = if is_equal { turned_constant.next_up() } else { *turned_constant };
            let limit = match (side.is_lower, is_equal) {
                (true, true) => Limit::From,
                (true, false) => Limit::Above,
                (false, true) => Limit::UpTo,
                (false, false) => Limit::Below,
            };
            let constant = Constant::Number(Number::Float(turned(side.is_lower, constant)));
            Bound { slot: side.slot, limit, constant }
        })
    }

    /// Calls `hit` with the branches whose ends all hold, dead ones among them, unless `steps` runs out.
    #[inline]
    pub(crate) fn search(
        &self,
        sides: &[Side],
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        // One for the shape.
        if !steps.spend(1 + self.len() as u64) {
            return;
        }
        if !self.branches.is_empty() {
            self.search_rows(sides, slots, sources, steps, hit);
        }
        if !self.others.is_empty() {
            self.search_others(slots, sources, steps, hit);
        }
    }

    #[inline(never)]
    fn search_others(
        &self,
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        for (branch, bounds) in &self.others {
            if all_hold(bounds.iter(), slots, sources, steps) {
                hit(*branch);
            }
        }
    }

    /// The same where the ends hang together by a form.
    #[inline(never)]
    pub(crate) fn search_form(
        &self,
        (sides, form): (&[Side], &Form),
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        if self.others.is_empty() || !steps.spend(form.steps()) {
            return;
        }
        let mut states = [State::Null; SIDES_MAX];
        for (place, side) in sides.iter().enumerate() {
            // Sides of a field stand beside each other: its number is read once.
            let before = place.checked_sub(1).map(|before| (sides[before], states[before]));
            states[place] = match before {
                Some((other, state)) if other.is_of_same(*side) => state,
                _ => match State::read(side.is_text, value_of(slots, side.slot), sources, steps) {
                    Some(state) => state,
                    None => return,
                },
            };
        }
        let ends = match form.fold(slots, |side| states[side]) {
            Folded::Same(false) => return,
            Folded::Same(true) if steps.spend(self.others.len() as u64) => {
                return self.branches().for_each(hit);
            }
            Folded::Same(true) => return,
            Folded::Ends(ends) => ends,
        };
        if !steps.spend((ends.steps().len() * self.others.len()) as u64) {
            return;
        }
        for (branch, bounds) in &self.others {
            let holds = ends.holds(|side| {
                let bound = &bounds[usize::from(side)];
                let value = value_of(slots, bound.slot);
                let more = bound.steps(value);
                (more == 0 || steps.spend(more)) && bound.holds(value, sources)
            });
            if holds {
                hit(*branch);
            }
        }
    }

    #[inline]
    fn search_rows(
        &self,
        sides: &[Side],
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        let found = match sides {
            [] => {
                self.each([], hit);
                Ok(())
            }
            [one] => value(*one, slots, sources, steps).map(|one| self.each([one], hit)),
            [one, two] => value(*one, slots, sources, steps).and_then(|one| {
                let two = value(*two, slots, sources, steps)?;
                self.each([one, two], hit);
                Ok(())
            }),
            _ => self.search_wide(sides, slots, sources, steps, hit),
        };
        if let Err(Unfit::Large) = found {
            self.search_slowly(sides, slots, sources, steps, hit);
        }
    }

    /// The same of more than two ends.
    #[inline(never)]
    fn search_wide(
        &self,
        sides: &[Side],
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) -> Result<(), Unfit> {
        let mut values = [0.0; SIDES_MAX];
        for (place, side) in values.iter_mut().zip(sides) {
            *place = value(*side, slots, sources, steps)?;
        }
        for (row, (branch, _)) in self.rows.chunks_exact(sides.len()).zip(&self.branches) {
            if row.iter().zip(values).all(|(row, value)| value > *row) {
                hit(*branch);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn each<const N: usize>(&self, values: [f64; N], hit: &mut impl FnMut(BranchId)) {
        if N == 0 {
            return self.branches.iter().for_each(|(branch, _)| hit(*branch));
        }
        let rows = self.rows.chunks_exact(N.max(1));
        for (row, (branch, _)) in rows.zip(&self.branches) {
            if row.iter().zip(values).all(|(row, value)| value > *row) {
                hit(*branch);
            }
        }
    }

    /// The same where a value is an integer that no float is.
    #[cold]
    fn search_slowly(
        &self,
        sides: &[Side],
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        for (index, (branch, _)) in self.branches.iter().enumerate() {
            if all_hold(self.bounds(sides, index), slots, sources, steps) {
                hit(*branch);
            }
        }
    }

    /// Bytes that it takes beside its place.
    pub(crate) fn bytes(&self) -> usize {
        self.branches.capacity() * size_of::<(BranchId, u8)>()
            + self.rows.capacity() * size_of::<f64>()
            + self.others.capacity() * size_of::<(BranchId, Box<[Bound]>)>()
            + self.other_bytes
    }
}

/// Why no branch is found by rows.
enum Unfit {
    /// A value is on no side of anything, or the steps have run out.
    NoSide,
    /// A value is an integer that no float is.
    Large,
}

/// What the rows of a side are compared with.
#[inline(always)]
fn value(
    side: Side,
    slots: &[Value],
    sources: Sources<'_>,
    steps: &mut Steps,
) -> Result<f64, Unfit> {
    let number = match slots.get(side.slot as usize) {
        Some(Value::Number(number)) => *number,
        Some(value @ Value::Untyped(span)) => {
            if !steps.spend(steps::of_number(span.length as usize)) {
                return Err(Unfit::NoSide);
            }
            value.number(sources).ok_or(Unfit::NoSide)?
        }
        // Null and unlike types are on no side.
        _ => return Err(Unfit::NoSide),
    };
    number.exact().map(|value| turned(side.is_lower, value)).ok_or(Unfit::Large)
}

/// Whether all ends hold; unless `steps` runs out.
fn all_hold<B: core::borrow::Borrow<Bound>>(
    mut bounds: impl Iterator<Item = B>,
    slots: &[Value],
    sources: Sources<'_>,
    steps: &mut Steps,
) -> bool {
    bounds.all(|bound| {
        let bound = bound.borrow();
        let value = value_of(slots, bound.slot);
        let more = bound.steps(value);
        (more == 0 || steps.spend(more)) && bound.holds(value, sources)
    })
}

#[inline]
fn value_of(slots: &[Value], slot: Slot) -> Value {
    slots.get(slot as usize).copied().unwrap_or(Value::Missing)
}

fn exact(constant: &Constant) -> Option<f64> {
    match constant {
        Constant::Number(number) => number.exact(),
        Constant::Text(_) => None,
    }
}

fn bytes_of(bounds: &[Bound]) -> usize {
    size_of_val(bounds) + bounds.iter().map(Bound::text_bytes).sum::<usize>()
}

/// Upper ends, and the values that are compared with them, are turned into lower ones.
#[inline]
fn turned(is_lower: bool, number: f64) -> f64 {
    if is_lower { number } else { -number }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (mut of_rows, mut of_others) = (0, 0);
        for constant in numbers().into_iter().filter(|number| number.to_float().is_finite()) {
            for limit in limits {
                let bound = |slot| Bound { slot, limit, constant: Constant::Number(constant) };
                for width in 1..=3 {
                    let bounds: Vec<Bound> = (0..width).map(bound).collect();
                    let sides: Vec<Side> = bounds.iter().map(Bound::side).collect();
                    let mut small = Small::default();
                    small.push(7, bounds.clone());
                    of_rows += small.branches.len();
                    of_others += small.others.len();
                    for number in numbers() {
                        let slots = [Value::Number(number); 3];
                        let mut found = Vec::new();
                        let mut steps = Steps::new(u64::MAX);
                        let hit = &mut |branch| found.push(branch);
                        small.search(&sides, &slots, sources, &mut steps, hit);
                        let holds = bounds[0].holds(slots[0], sources);
                        assert_eq!(!found.is_empty(), holds, "{number:?} {limit:?} {constant:?}");
                    }
                    // What comes out is what went in.
                    let taken = small.take(&sides, 5);
                    assert_eq!((taken.len(), taken[0].0, small.len()), (1, 7, 0));
                    for (one, two) in taken[0].1.iter().zip(&bounds) {
                        assert_eq!((one.slot, one.limit), (two.slot, two.limit));
                        let (Constant::Number(one), Constant::Number(two)) =
                            (&one.constant, &two.constant)
                        else {
                            panic!("numbers")
                        };
                        assert_eq!(one.compare(*two), Some(core::cmp::Ordering::Equal));
                    }
                }
            }
        }
        assert!(of_rows > 200 && of_others > 20, "{of_rows} {of_others}");
    }

    #[test]
    fn those_that_live_stay_with_their_constants() {
        let bound = |constant| Bound { slot: 0, limit: Limit::From, constant };
        let mut small = Small::default();
        for branch in 0..40 {
            let constant = match branch % 3 {
                0 => Constant::Number(Number::Signed(i64::MAX - i64::from(branch))),
                _ => Constant::Number(Number::Signed(branch.into())),
            };
            small.push(branch, Vec::from([bound(constant)]));
        }
        let mut dropped = Vec::new();
        small.sweep(1, |branch| branch % 4 == 1, &mut dropped);
        assert_eq!((small.len(), dropped.len()), (10, 30));
        let side = bound(Constant::Number(Number::Signed(0))).side();
        let mut taken = small.take(&[side], 4);
        assert_eq!(small.len(), 6);
        taken.extend(small.take(&[side], 20));
        taken.sort_by_key(|(branch, _)| *branch);
        for (branch, bounds) in &taken {
            let expected = match branch % 3 {
                0 => i64::MAX - i64::from(*branch),
                _ => (*branch).into(),
            };
            let Constant::Number(number) = &bounds[0].constant else { panic!("a number") };
            assert_eq!(number.canonical(), Number::Signed(expected));
        }
        assert_eq!(taken.len(), 10);
        assert_eq!(small.bytes(), 0);
    }
}
