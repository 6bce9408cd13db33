//! Segments made into one, a little at a time: dead branches and constants that nobody uses stay behind.

use crate::bound::Constants;
use crate::segment::{BranchId, Segment, index_of, lead, moved};
use crate::shape::Shape;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// A merge under way. Its segments stay where they are until it is done.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    shape: Shape,
    inputs: Vec<Arc<Segment>>,
    stage: Stage,
    /// Where the stage is: an input, and an entry or constant of it.
    input: usize,
    at: usize,
    /// Entries that stay, those of an input behind those of the one before.
    kept: Vec<u32>,
    /// By input, those that are not written yet.
    heads: Vec<Head>,
    /// Branches that do not.
    dropped: Vec<BranchId>,
    /// By input and dictionary, what becomes of each constant: its new index.
    moves: Vec<Vec<Vec<u32>>>,
    /// By dictionary, the constants of the new segment.
    constants: Vec<Constants>,
    /// By input, the next constant of the dictionary that is merged.
    next: Vec<usize>,
    output: Option<Segment>,
}

/// What is left of an input.
#[derive(Clone, Debug)]
struct Head {
    /// Places among the entries that stay.
    left: Range<usize>,
    /// By which the first of them is sorted.
    rank: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Entries are looked at: who stays, and which constants they use.
    Select,
    /// The constants of this dictionary are merged.
    Dictionary(usize),
    /// Entries are written.
    Write,
    Done,
}

/// No entry uses a constant: zero, so that the memory comes with the marks.
const UNUSED: u32 = 0;
/// Some entry does. Above it is the new index, from this on.
const USED: u32 = 1;
const MOVED: u32 = 2;

impl Merge {
    /// A merge of segments of one shape.
    pub(crate) fn new(shape: Shape, inputs: Vec<Arc<Segment>>) -> Merge {
        let marks = |segment: &Arc<Segment>| -> Vec<Vec<u32>> {
            let of = |constants: &Constants| alloc::vec![UNUSED; constants.len()];
            segment.dictionaries.iter().map(|dictionary| of(&dictionary.constants)).collect()
        };
        let moves = inputs.iter().map(marks).collect();
        let count = inputs.iter().map(|segment| segment.len()).sum();
        let next = alloc::vec![0; inputs.len()];
        Merge {
            shape,
            stage: Stage::Select,
            input: 0,
            at: 0,
            kept: Vec::with_capacity(count),
            heads: Vec::with_capacity(inputs.len()),
            dropped: Vec::new(),
            moves,
            constants: Vec::new(),
            next,
            output: None,
            inputs,
        }
    }

    /// The shape of its segments.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The segments that are merged.
    pub(crate) fn inputs(&self) -> &[Arc<Segment>] {
        &self.inputs
    }

    /// Goes on for at most so many steps, one for each end of an entry and for a constant; returns how many are left. It is
    /// done when [`Merge::output`] has something.
    pub(crate) fn work(&mut self, mut steps: usize, is_alive: impl Fn(BranchId) -> bool) -> usize {
        while steps > 0 && self.stage != Stage::Done {
            match self.stage {
                Stage::Select => self.select(&mut steps, &is_alive),
                Stage::Dictionary(dictionary) => self.dictionary(dictionary, &mut steps),
                Stage::Write => self.write(&mut steps),
                Stage::Done => {}
            }
        }
        steps
    }

    /// Whether its result is there.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The new segment, born so late, and the branches that are not in it any more; `None` before the end.
    pub(crate) fn output(&mut self, born: u64) -> Option<(Segment, Vec<BranchId>)> {
        if self.stage != Stage::Done {
            return None;
        }
        let mut segment = self.output.take()?;
        segment.born = born;
        Some((segment, core::mem::take(&mut self.dropped)))
    }

    /// What an entry takes.
    fn width(&self) -> usize {
        self.shape.len().max(1)
    }

    fn select(&mut self, steps: &mut usize, is_alive: &impl Fn(BranchId) -> bool) {
        let Some(input) = self.inputs.get(self.input) else {
            return self.begin_dictionary(0);
        };
        let end = input.len().min(self.at + (*steps).div_ceil(self.width()));
        *steps = steps.saturating_sub((end - self.at) * self.width());
        for entry in self.at..end {
            let branch = input.branches[entry];
            if !is_alive(branch) {
                self.dropped.push(branch);
                continue;
            }
            self.kept.push(entry as u32);
            for column in &input.columns {
                let index = index_of(column.ranks.rank(entry), column.is_lower);
                self.moves[self.input][column.dictionary][index] = USED;
            }
        }
        self.at = end;
        if end == input.len() {
            let start = self.heads.last().map_or(0, |head| head.left.end);
            self.heads.push(Head { left: start..self.kept.len(), rank: 0 });
            (self.input, self.at) = (self.input + 1, 0);
            // An empty one is a step as well.
            *steps = steps.saturating_sub(1);
        }
    }

    fn begin_dictionary(&mut self, dictionary: usize) {
        self.next.fill(0);
        let first = self.inputs.first().and_then(|input| input.dictionaries.get(dictionary));
        let Some(first) = first else {
            let constants = core::mem::take(&mut self.constants);
            // The number of the old one stays until the new one is there.
            self.output = Some(Segment::empty(0, &self.shape.sides, constants, self.kept.len()));
            self.stage = Stage::Write;
            for input in 0..self.inputs.len() {
                self.heads[input].rank = self.head_rank(input);
            }
            return;
        };
        let count =
            self.inputs.iter().map(|input| input.dictionaries[dictionary].constants.len()).sum();
        self.constants.push(Constants::with_capacity(first.is_text, count));
        self.stage = Stage::Dictionary(dictionary);
    }

    fn dictionary(&mut self, dictionary: usize, steps: &mut usize) {
        let of = |input: usize| &self.inputs[input].dictionaries[dictionary].constants;
        let Some(merged) = self.constants.last_mut() else { return };
        while *steps > 0 {
            *steps -= 1;
            // The least of the next constants.
            let mut least: Option<usize> = None;
            for input in 0..self.inputs.len() {
                let marks = &self.moves[input][dictionary];
                let next = &mut self.next[input];
                while marks.get(*next) == Some(&UNUSED) {
                    *next += 1;
                    *steps = steps.saturating_sub(1);
                    if *steps == 0 {
                        return;
                    }
                }
                if *next == marks.len() {
                    continue;
                }
                let is_less = least.is_none_or(|least| {
                    of(input).compare(self.next[input], of(least), self.next[least])
                        == Ordering::Less
                });
                if is_less {
                    least = Some(input);
                }
            }
            let Some(least) = least else {
                return self.begin_dictionary(dictionary + 1);
            };
            let (new, index) = (merged.len() as u32, self.next[least]);
            merged.push_from(of(least), index);
            // All that are equal to it.
            for input in 0..self.inputs.len() {
                let next = self.next[input];
                if self.moves[input][dictionary].get(next) == Some(&USED)
                    && (input == least
                        || of(input).compare(next, of(least), index) == Ordering::Equal)
                {
                    self.moves[input][dictionary][next] = MOVED + new;
                    self.next[input] += 1;
                }
            }
        }
    }

    /// The rank that an entry has in the new segment.
    #[inline]
    fn new_rank(&self, input: usize, entry: usize, column: usize) -> u32 {
        let column = &self.inputs[input].columns[column];
        let rank = column.ranks.rank(entry);
        let index = index_of(rank, column.is_lower);
        let index = self.moves[input][column.dictionary][index] - MOVED;
        moved(rank, column.is_lower, index as usize)
    }

    /// What the first entry that is left of an input is sorted by.
    fn head_rank(&self, input: usize) -> u32 {
        let Some(entry) = self.kept[self.heads[input].left.clone()].first() else { return 0 };
        match self.inputs[input].columns.is_empty() {
            true => 0,
            false => self.new_rank(input, *entry as usize, lead(&self.shape.sides)),
        }
    }

    fn write(&mut self, steps: &mut usize) {
        let width = self.width();
        let Some(mut output) = self.output.take() else { return };
        let count = (*steps).div_ceil(width);
        for _ in 0..count {
            // Of equal ones the first input comes first.
            let left = self.heads.iter().enumerate().filter(|(_, head)| !head.left.is_empty());
            let Some((input, _)) = left.min_by_key(|(_, head)| head.rank) else {
                self.stage = Stage::Done;
                break;
            };
            let entry = self.kept[self.heads[input].left.start] as usize;
            output.branches.push(self.inputs[input].branches[entry]);
            for (side, column) in output.columns.iter_mut().enumerate() {
                column.push(self.new_rank(input, entry, side));
            }
            self.heads[input].left.start += 1;
            self.heads[input].rank = self.head_rank(input);
            *steps = steps.saturating_sub(width);
        }
        if self.heads.iter().all(|head| head.left.is_empty()) {
            self.stage = Stage::Done;
        }
        self.output = Some(output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::{Constant, Limit};
    use crate::bound::Bound;
    use crate::number::Number;
    use lepus_base::Rng;

    fn bound(limit: Limit, value: i64) -> Bound {
        // Some of them are no floats.
        let value = if value == 19 { i64::MAX } else { value };
        Bound { slot: 3, limit, constant: Constant::Number(Number::Signed(value)) }
    }

    /// Entries of a segment as (branch, lower rank's constant, upper rank's constant).
    fn entries(segment: &Segment) -> Vec<(BranchId, alloc::string::String)> {
        let show = |entry: usize| {
            let parts = segment.columns.iter().map(|column| {
                let rank = column.ranks.rank(entry);
                let index = index_of(rank, column.is_lower);
                let number = segment.dictionaries[column.dictionary].constants.number(index);
                alloc::format!("{}{number:?} ", rank % 2)
            });
            parts.collect()
        };
        segment.branches.iter().enumerate().map(|(entry, branch)| (*branch, show(entry))).collect()
    }

    #[test]
    fn any_steps_give_the_same_segment() {
        let mut rng = Rng::new(1);
        for round in 0..200 {
            let shape = Shape::all(&[bound(Limit::UpTo, 0).side(), bound(Limit::From, 0).side()]);
            let lower = [Limit::Above, Limit::From];
            let upper = [Limit::Below, Limit::UpTo];
            let mut next = 0;
            let inputs: Vec<Arc<Segment>> = (0..1 + rng.below(4))
                .map(|born| {
                    let entries: Vec<(BranchId, Vec<Bound>)> = (0..rng.below(40))
                        .map(|_| {
                            next += 1;
                            let high = bound(upper[rng.below(2) as usize], rng.below(20) as i64);
                            let low = bound(lower[rng.below(2) as usize], rng.below(20) as i64);
                            (next, Vec::from([high, low]))
                        })
                        .collect();
                    Arc::new(Segment::new(born, &shape.sides, &entries))
                })
                .collect();
            let is_alive = |branch: BranchId| !branch.is_multiple_of(3);
            let mut merge = Merge::new(shape, inputs.clone());
            let output = loop {
                let given = 1 + rng.below(1 + round) as usize;
                assert!(merge.work(given, is_alive) <= given);
                if let Some(output) = merge.output(9) {
                    break output;
                }
            };
            let expected: Vec<_> = inputs.iter().flat_map(|segment| entries(segment)).collect();
            let (mut alive, dead): (Vec<_>, Vec<_>) =
                expected.into_iter().partition(|(branch, _)| is_alive(*branch));
            // They are sorted by their first end; those with the same one come as they came.
            let ranks: Vec<u32> =
                (0..output.0.len()).map(|entry| output.0.columns[0].ranks.rank(entry)).collect();
            assert!(ranks.is_sorted(), "{ranks:?}");
            let mut written = entries(&output.0);
            let first = |entry: &(BranchId, alloc::string::String)| {
                inputs.iter().position(|input| input.branches.contains(&entry.0))
            };
            for (pair, ranks) in written.windows(2).zip(ranks.windows(2)) {
                assert!(ranks[0] < ranks[1] || first(&pair[0]) <= first(&pair[1]));
            }
            written.sort();
            alive.sort();
            assert_eq!(written, alive);
            assert_eq!(output.1, dead.iter().map(|(branch, _)| *branch).collect::<Vec<_>>());
            for dictionary in &output.0.dictionaries {
                let constants = &dictionary.constants;
                let is_less =
                    |index: usize| constants.compare(index - 1, constants, index) == Ordering::Less;
                assert!((1..constants.len()).all(is_less));
            }
        }
    }
}
