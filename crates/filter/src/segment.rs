//! Many branches of one shape that do not change: their constants sorted, their ends as ranks in columns.

use crate::atom::Limit;
use crate::bound::{Bound, Constants, SIDES_MAX, Side, order};
use crate::columns::{Compared, Ranks, scan, scan_ends};
use crate::form::{Folded, Form, State};
use crate::steps::Steps;
use crate::value::{Sources, Value};
use crate::{atom::Constant, paths::Slot};
use alloc::vec::Vec;

/// A branch, by its place in the set.
pub(crate) type BranchId = u32;

/// Branches of one shape.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Tells segments apart, and which is older.
    pub(crate) born: u64,
    /// By entry.
    pub(crate) branches: Vec<BranchId>,
    /// The sorted constants of each field that the shape names.
    pub(crate) dictionaries: Vec<Dictionary>,
    /// By side of the shape.
    pub(crate) columns: Vec<Column>,
}

/// The constants that a field is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Dictionary {
    pub(crate) slot: Slot,
    pub(crate) is_text: bool,
    pub(crate) constants: Constants,
}

/// The ends of one side.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) dictionary: usize,
    pub(crate) is_lower: bool,
    pub(crate) ranks: Ranks,
}

impl Column {
    /// The column and what it is compared with, by the ranks of a message's values in the dictionaries.
    fn compared(&self, ranks: &[u32; SIDES_MAX]) -> Compared<'_> {
        let rank = ranks[self.dictionary];
        Compared { ranks: &self.ranks, is_lower: self.is_lower, rank }
    }
}

/// Entries that are compared in one step.
const ENTRIES_PER_STEP: usize = 16;

/// The same, by ends that hang together by a form.
const ENDS_PER_STEP: usize = 32;

/// The rank that stands in a column for an end at the constant with this index.
pub(crate) fn rank_of(limit: Limit, index: usize) -> u32 {
    let rank = 2 * index as u32 + 1;
    match limit {
        Limit::Above | Limit::Below => rank,
        // Equal values are on the right side, too.
        Limit::From => rank - 1,
        Limit::UpTo => rank + 1,
    }
}

/// The index of the constant that a rank of a column stands for.
pub(crate) fn index_of(rank: u32, is_lower: bool) -> usize {
    match (rank % 2, is_lower) {
        (1, _) => (rank / 2) as usize,
        (_, true) => (rank / 2) as usize,
        (_, false) => (rank / 2) as usize - 1,
    }
}

/// The rank with the same meaning at another index.
pub(crate) fn moved(rank: u32, is_lower: bool, index: usize) -> u32 {
    match (rank % 2, is_lower) {
        (1, _) => 2 * index as u32 + 1,
        (_, true) => 2 * index as u32,
        (_, false) => 2 * index as u32 + 2,
    }
}

impl Segment {
    /// A segment without entries, with room for so many.
    pub(crate) fn empty(
        born: u64,
        shape: &[Side],
        dictionaries: Vec<Constants>,
        count: usize,
    ) -> Segment {
        let keys = fields(shape);
        let dictionaries: Vec<Dictionary> = keys
            .iter()
            .zip(dictionaries)
            .map(|((slot, is_text), constants)| Dictionary {
                slot: *slot,
                is_text: *is_text,
                constants,
            })
            .collect();
        let columns = shape
            .iter()
            .map(|side| {
                let dictionary = place(&keys, side);
                let constants = dictionaries[dictionary].constants.len();
                let ranks = Ranks::with_capacity(constants, count);
                Column { dictionary, is_lower: side.is_lower, ranks }
            })
            .collect();
        Segment { born, branches: Vec::with_capacity(count), dictionaries, columns }
    }

    /// A segment of entries whose bounds are in the order of the shape.
    pub(crate) fn new(born: u64, shape: &[Side], entries: &[(BranchId, Vec<Bound>)]) -> Segment {
        let keys = fields(shape);
        let mut dictionaries = Vec::with_capacity(keys.len());
        for key in &keys {
            let bounds = entries.iter().flat_map(|(_, bounds)| bounds);
            let mut constants: Vec<&Constant> = bounds
                .filter(|bound| (bound.slot, bound.side().is_text) == *key)
                .map(|bound| &bound.constant)
                .collect();
            constants.sort_unstable_by(|one, two| compare(one, two));
            constants.dedup_by(|one, two| compare(one, two).is_eq());
            let mut sorted = Constants::with_capacity(key.1, constants.len());
            constants.into_iter().for_each(|constant| sorted.push(constant));
            dictionaries.push(sorted);
        }
        let mut segment = Segment::empty(born, shape, dictionaries, entries.len());
        for (branch, bounds) in entries {
            segment.branches.push(*branch);
            for (column, bound) in segment.columns.iter_mut().zip(bounds) {
                let constants = &segment.dictionaries[column.dictionary].constants;
                column.ranks.push(rank_of(bound.limit, constants.place(&bound.constant)));
            }
        }
        segment
    }

    /// Whether entries have an end on this side that compares with a dictionary.
    fn has_side(&self, dictionary: usize, is_lower: bool) -> bool {
        let is_it =
            |column: &Column| column.dictionary == dictionary && column.is_lower == is_lower;
        self.columns.iter().any(is_it)
    }

    /// Number of entries, dead ones included.
    pub(crate) fn len(&self) -> usize {
        self.branches.len()
    }

    /// Calls `hit` with the branches whose ends all hold, unless `steps` runs out.
    #[inline(never)]
    pub(crate) fn search(
        &self,
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        let mut ranks = [0; SIDES_MAX];
        for (index, dictionary) in self.dictionaries.iter().enumerate() {
            let value = slots.get(dictionary.slot as usize).copied().unwrap_or(Value::Missing);
            if !steps.spend(dictionary.constants.steps(value)) {
                return;
            }
            // Null and unlike types are on no side: none of the entries holds.
            let Some(rank) = dictionary.constants.rank(value, sources) else { return };
            // What lies below all lower ends, or above all upper ones, is on no side of any.
            let is_outside = match rank {
                0 => self.has_side(index, true),
                _ if rank as usize == 2 * dictionary.constants.len() => self.has_side(index, false),
                _ => false,
            };
            if is_outside {
                return;
            }
            ranks[index] = rank;
        }
        let count = self.branches.len();
        if !steps.spend((count / ENTRIES_PER_STEP) as u64) {
            return;
        }
        let mut hit = |entry: usize| hit(self.branches[entry]);
        match &self.columns[..] {
            [] => scan(&[], count, &mut hit),
            [one] => scan(&[one.compared(&ranks)], count, &mut hit),
            [one, two] => {
                scan(&[one.compared(&ranks), two.compared(&ranks)], count, &mut hit);
            }
            [one, others @ ..] => {
                let mut columns = [one.compared(&ranks); SIDES_MAX];
                for (place, column) in columns[1..].iter_mut().zip(others) {
                    *place = column.compared(&ranks);
                }
                scan(&columns[..self.columns.len()], count, &mut hit);
            }
        }
    }

    /// The same where the ends hang together by a form: `sides` are those of the shape.
    #[inline(never)]
    pub(crate) fn search_form(
        &self,
        (sides, form): (&[Side], &Form),
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        if !steps.spend(form.steps()) {
            return;
        }
        let mut ranks = [0; SIDES_MAX];
        let mut states = [State::Null; SIDES_MAX];
        for (index, dictionary) in self.dictionaries.iter().enumerate() {
            let value = slots.get(dictionary.slot as usize).copied().unwrap_or(Value::Missing);
            if !steps.spend(dictionary.constants.steps(value)) {
                return;
            }
            let Some(state) = State::read(dictionary.is_text, value, sources, steps) else {
                return;
            };
            states[index] = state;
            ranks[index] = dictionary.constants.rank(value, sources).unwrap_or(0);
        }
        let mut hit = |entry: usize| hit(self.branches[entry]);
        let ends = match form.fold(slots, |side| states[self.columns[side].dictionary]) {
            Folded::Same(false) => return,
            Folded::Same(true) => return (0..self.branches.len()).for_each(hit),
            Folded::Ends(ends) => ends,
        };
        let count = self.branches.len();
        if !steps.spend((count * ends.steps().len() / ENDS_PER_STEP) as u64) {
            return;
        }
        let Some(first) = self.columns.first() else { return };
        let mut columns = [first.compared(&ranks); SIDES_MAX];
        for (place, column) in columns.iter_mut().zip(&self.columns) {
            *place = column.compared(&ranks);
        }
        scan_ends(&columns[..sides.len()], &ends, count, &mut hit);
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let constants: usize =
            self.dictionaries.iter().map(|dictionary| dictionary.constants.bytes()).sum();
        let ranks: usize = self.columns.iter().map(|column| column.ranks.bytes()).sum();
        size_of::<Segment>() + self.branches.capacity() * size_of::<BranchId>() + constants + ranks
    }
}

/// The fields of a shape, each with its type.
fn fields(shape: &[Side]) -> Vec<(Slot, bool)> {
    let mut fields: Vec<(Slot, bool)> =
        shape.iter().map(|side| (side.slot, side.is_text)).collect();
    fields.dedup();
    fields
}

fn place(fields: &[(Slot, bool)], side: &Side) -> usize {
    fields.iter().position(|field| *field == (side.slot, side.is_text)).unwrap_or(0)
}

fn compare(one: &Constant, two: &Constant) -> core::cmp::Ordering {
    match (one, two) {
        (Constant::Number(one), Constant::Number(two)) => order(*one, *two),
        (Constant::Text(one), Constant::Text(two)) => one.cmp(two),
        _ => core::cmp::Ordering::Equal,
    }
}
