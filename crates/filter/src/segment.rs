//! Many branches of one shape that do not change: their constants sorted, their ends as ranks in columns.

use crate::atom::Limit;
use crate::bound::{Bound, Constants, SIDES_MAX, Side, order};
use crate::columns::{Compared, Ranks, Zones, scan, scan_ends};
use crate::form::{Folded, Form, State};
use crate::steps::Steps;
use crate::value::{Sources, Value};
use crate::{atom::Constant, paths::Slot};
use alloc::vec::Vec;

/// A branch, by its place in the set.
pub(crate) type BranchId = u32;

/// Branches of one shape, sorted by one of their ends: those that lie near each other stand together.
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
    /// The column that entries are sorted by.
    lead: usize,
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
    zones: Zones,
}

impl Column {
    /// Appends the rank of an entry.
    pub(crate) fn push(&mut self, rank: u32) {
        self.ranks.push(rank);
        self.zones.push(rank, self.is_lower);
    }

    /// The column and what it is compared with, by the ranks of a message's values in the dictionaries.
    fn compared(&self, ranks: &[u32; SIDES_MAX]) -> Compared<'_> {
        let rank = ranks[self.dictionary];
        Compared { ranks: &self.ranks, zones: &self.zones, is_lower: self.is_lower, rank }
    }
}

/// Ends that hang together by a form and are compared in one step.
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
                let zones = Zones::with_capacity(count);
                Column { dictionary, is_lower: side.is_lower, ranks, zones }
            })
            .collect();
        let branches = Vec::with_capacity(count);
        Segment { born, branches, dictionaries, columns, lead: lead(shape) }
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
        let rank = |side: usize, bound: &Bound| {
            let constants = &segment.dictionaries[segment.columns[side].dictionary].constants;
            rank_of(bound.limit, constants.place(&bound.constant))
        };
        // One entry after the other.
        let mut ranks = Vec::with_capacity(entries.len() * shape.len());
        for (_, bounds) in entries {
            ranks.extend(bounds.iter().enumerate().map(|(side, bound)| rank(side, bound)));
        }
        let lead = lead(shape);
        let mut order: Vec<(u32, usize)> = (0..entries.len())
            .map(|entry| (ranks.get(entry * shape.len() + lead).copied().unwrap_or(0), entry))
            .collect();
        order.sort_unstable();
        for (_, entry) in order {
            segment.branches.push(entries[entry].0);
            let own = &ranks[entry * shape.len()..(entry + 1) * shape.len()];
            segment.columns.iter_mut().zip(own).for_each(|(column, rank)| column.push(*rank));
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
        let mut hit = |entry: usize| hit(self.branches[entry]);
        match &self.columns[..] {
            [] => scan(&[], count, steps, &mut hit),
            [one] => scan(&[one.compared(&ranks)], count, steps, &mut hit),
            [one, two] => {
                scan(&[one.compared(&ranks), two.compared(&ranks)], count, steps, &mut hit);
            }
            [one, others @ ..] => {
                let mut columns = [one.compared(&ranks); SIDES_MAX];
                for (place, column) in columns[1..].iter_mut().zip(others) {
                    *place = column.compared(&ranks);
                }
                let columns = &mut columns[..self.columns.len()];
                // The ends that entries are sorted by, and their opposites, leave fewest.
                columns.rotate_left(self.lead);
                scan(columns, count, steps, &mut hit);
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
        let of_column = |column: &Column| column.ranks.bytes() + column.zones.bytes();
        let ranks: usize = self.columns.iter().map(of_column).sum();
        size_of::<Segment>() + self.branches.capacity() * size_of::<BranchId>() + constants + ranks
    }
}

/// The side that entries are sorted by: mostly a range with two ends is narrower than one with one.
pub(crate) fn lead(shape: &[Side]) -> usize {
    shape.windows(2).position(|pair| pair[0].is_of_same(pair[1])).unwrap_or(0)
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
