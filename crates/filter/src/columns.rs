//! Columns of ranks: the ends of many branches of one shape, compared with a message's ranks by loops that the compiler
//! turns into vector instructions.

use crate::bound::SIDES_MAX;
use crate::form::{Ends, Step};
use crate::steps::Steps;
use alloc::vec::Vec;
use core::ops::Range;

/// Entries that are compared together, and as many where one of them holds, and of the last ones.
const BLOCK: usize = 128;
const SMALL_BLOCK: usize = 16;

/// A rank as it stands in a column: shifted, so that a comparison with a sign compares it.
pub(crate) trait Lane: Copy + Ord {
    /// The rank, shifted.
    fn of(rank: u32) -> Self;
    /// The rank that it was made of.
    fn rank(self) -> u32;
}

macro_rules! lane {
    ($lane:ty, $unsigned:ty) => {
        impl Lane for $lane {
            #[inline]
            fn of(rank: u32) -> $lane {
                ((rank as $unsigned) ^ (1 << (<$unsigned>::BITS - 1))).cast_signed()
            }
            #[inline]
            fn rank(self) -> u32 {
                u32::from(self.cast_unsigned() ^ (1 << (<$unsigned>::BITS - 1)))
            }
        }
    };
}

lane!(i16, u16);
lane!(i32, u32);

/// A column of one width.
#[derive(Clone, Debug)]
pub(crate) enum Ranks {
    Narrow(Vec<i16>),
    Wide(Vec<i32>),
}

/// Constants up to which ranks are narrow.
const NARROW_MAX: usize = 32_767;

impl Ranks {
    /// None yet, with room for so many, wide enough for so many constants.
    pub(crate) fn with_capacity(constants: usize, count: usize) -> Ranks {
        if constants <= NARROW_MAX {
            Ranks::Narrow(Vec::with_capacity(count))
        } else {
            Ranks::Wide(Vec::with_capacity(count))
        }
    }

    /// Appends a rank.
    pub(crate) fn push(&mut self, rank: u32) {
        match self {
            Ranks::Narrow(ranks) => ranks.push(Lane::of(rank)),
            Ranks::Wide(ranks) => ranks.push(Lane::of(rank)),
        }
    }

    /// The rank of an entry.
    pub(crate) fn rank(&self, entry: usize) -> u32 {
        match self {
            Ranks::Narrow(ranks) => ranks[entry].rank(),
            Ranks::Wide(ranks) => ranks[entry].rank(),
        }
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Ranks::Narrow(ranks) => ranks.capacity() * size_of::<i16>(),
            Ranks::Wide(ranks) => ranks.capacity() * size_of::<i32>(),
        }
    }
}

/// The outermost end of each block of a column: where a message's value does not lie behind it, none of the block's entries
/// holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones {
    outermost: Vec<i32>,
    /// Entries.
    count: usize,
}

impl Zones {
    /// None yet, with room for so many entries.
    pub(crate) fn with_capacity(count: usize) -> Zones {
        Zones { outermost: Vec::with_capacity(count.div_ceil(BLOCK)), count: 0 }
    }

    /// A column of such ends gets one more.
    pub(crate) fn push(&mut self, rank: u32, is_lower: bool) {
        let rank = i32::of(rank);
        match self.outermost.last_mut() {
            Some(last) if !self.count.is_multiple_of(BLOCK) => {
                *last = if is_lower { rank.min(*last) } else { rank.max(*last) };
            }
            _ => self.outermost.push(rank),
        }
        self.count += 1;
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.outermost.capacity() * size_of::<i32>()
    }
}

/// A column and what it is compared with.
#[derive(Clone, Copy)]
pub(crate) struct Compared<'c> {
    pub(crate) ranks: &'c Ranks,
    pub(crate) zones: &'c Zones,
    /// Whether the column holds lower ends: the message's rank must be above. Otherwise it must be below.
    pub(crate) is_lower: bool,
    /// The message's rank.
    pub(crate) rank: u32,
}

/// Entries that are compared in one step.
const ENTRIES_PER_STEP: usize = 16;
/// Blocks that are passed over in one step.
const BLOCKS_PER_STEP: usize = 16;

/// Calls `hit` with each entry for which all comparisons hold, in their order, unless `steps` runs out.
pub(crate) fn scan(
    columns: &[Compared<'_>],
    count: usize,
    steps: &mut Steps,
    hit: &mut impl FnMut(usize),
) {
    let [one, others @ ..] = columns else {
        if steps.spend((count / ENTRIES_PER_STEP) as u64) {
            (0..count).for_each(hit);
        }
        return;
    };
    if !steps.spend((count / (BLOCK * BLOCKS_PER_STEP)) as u64) {
        return;
    }
    // Blocks that lie beside each other are looked at together.
    let mut run = 0..0;
    let mut look = |blocks: Range<usize>| {
        let entries = blocks.start * BLOCK..count.min(blocks.end * BLOCK);
        if steps.spend((entries.len() / ENTRIES_PER_STEP) as u64) {
            scan_entries(columns, entries, hit);
        }
    };
    let mut block = |block: usize| {
        if block == run.end {
            run.end += 1;
        } else {
            look(core::mem::replace(&mut run, block..block + 1));
        }
    };
    match others {
        [] => single(one, &one.zones.outermost[..], 0, &mut block),
        [two, rest @ ..] => {
            let mut block = |at: usize| {
                if rest.iter().all(|column| column.may_hold(at)) {
                    block(at);
                }
            };
            let (first, second) = (&one.zones.outermost[..], &two.zones.outermost[..]);
            pair((one, first), (two, second), 0, &mut block);
        }
    }
    look(run);
}

impl Compared<'_> {
    /// Whether the comparison may hold for an entry of a block.
    fn may_hold(&self, block: usize) -> bool {
        let (rank, outermost) = (i32::of(self.rank), self.zones.outermost[block]);
        if self.is_lower { rank > outermost } else { rank < outermost }
    }
}

/// Calls `hit` with those of some entries for which all comparisons hold, in their order.
fn scan_entries(columns: &[Compared<'_>], entries: Range<usize>, hit: &mut impl FnMut(usize)) {
    let [one, others @ ..] = columns else { return };
    let at = entries.start;
    match (one.ranks, others) {
        (
            Ranks::Narrow(first),
            [two @ Compared { ranks: Ranks::Narrow(second), .. }, rest @ ..],
        ) => {
            let (first, second) = (&first[entries.clone()], &second[entries]);
            pair((one, first), (two, second), at, &mut checked(rest, hit));
        }
        (Ranks::Wide(first), [two @ Compared { ranks: Ranks::Wide(second), .. }, rest @ ..]) => {
            let (first, second) = (&first[entries.clone()], &second[entries]);
            pair((one, first), (two, second), at, &mut checked(rest, hit));
        }
        // Alone, or columns of different widths.
        (Ranks::Narrow(first), _) => single(one, &first[entries], at, &mut checked(others, hit)),
        (Ranks::Wide(first), _) => single(one, &first[entries], at, &mut checked(others, hit)),
    }
}

/// Calls `hit` with those entries for which the other columns hold as well.
#[inline]
fn checked(columns: &[Compared<'_>], hit: &mut impl FnMut(usize)) -> impl FnMut(usize) {
    move |entry| {
        if columns.iter().all(|column| holds(column, entry)) {
            hit(entry);
        }
    }
}

/// Calls `hit` with each entry for which the ends hold as they hang together; they name their columns.
pub(crate) fn scan_ends(
    columns: &[Compared<'_>],
    ends: &Ends,
    count: usize,
    hit: &mut impl FnMut(usize),
) {
    let mut stack = [[0_u8; BLOCK]; SIDES_MAX];
    let whole = count - count % BLOCK;
    // What is left behind the whole blocks is looked at with some of those before it.
    let rest = (BLOCK..count).contains(&whole).then(|| count - BLOCK);
    for at in (0..whole).step_by(BLOCK).chain(rest) {
        let mut height = 0;
        for step in ends.steps() {
            let (below, above) = stack.split_at_mut(height);
            match (*step, below) {
                (Step::Push(side), _) => {
                    mark(&columns[usize::from(side)], at, &mut above[0], |_, holds| holds);
                    height += 1;
                }
                (Step::And(side), [.., top]) => {
                    mark(&columns[usize::from(side)], at, top, |known, holds| known & holds);
                }
                (Step::Or(side), [.., top]) => {
                    mark(&columns[usize::from(side)], at, top, |known, holds| known | holds);
                }
                (Step::AndBoth, [.., one, two]) => {
                    one.iter_mut().zip(two).for_each(|(one, two)| *one &= *two);
                    height -= 1;
                }
                (Step::OrBoth, [.., one, two]) => {
                    one.iter_mut().zip(two).for_each(|(one, two)| *one |= *two);
                    height -= 1;
                }
                _ => {}
            }
        }
        if stack[0].iter().fold(0, |any, mark| any | mark) == 0 {
            continue;
        }
        for (entry, mark) in stack[0].iter().enumerate() {
            if *mark != 0 && (Some(at) != rest || at + entry >= whole) {
                hit(at + entry);
            }
        }
    }
    let looked_at = if rest.is_some() { count } else { whole };
    for entry in looked_at..count {
        if ends.holds(|side| holds(&columns[usize::from(side)], entry)) {
            hit(entry);
        }
    }
}

/// Marks the entries of a block for which a comparison holds, with what was known of them.
#[inline(always)]
fn mark(
    column: &Compared<'_>,
    at: usize,
    marks: &mut [u8; BLOCK],
    with: impl Fn(u8, u8) -> u8 + Copy,
) {
    match column.ranks {
        Ranks::Narrow(ranks) => mark_lanes(ranks, column, at, marks, with),
        Ranks::Wide(ranks) => mark_lanes(ranks, column, at, marks, with),
    }
}

#[inline(always)]
fn mark_lanes<L: Lane>(
    ranks: &[L],
    column: &Compared<'_>,
    at: usize,
    marks: &mut [u8; BLOCK],
    with: impl Fn(u8, u8) -> u8 + Copy,
) {
    let Some(block) = ranks.get(at..).and_then(|ranks| ranks.first_chunk::<BLOCK>()) else {
        return;
    };
    let rank = L::of(column.rank);
    if column.is_lower {
        for (mark, known) in marks.iter_mut().zip(block) {
            *mark = with(*mark, u8::from(rank > *known));
        }
    } else {
        for (mark, known) in marks.iter_mut().zip(block) {
            *mark = with(*mark, u8::from(rank < *known));
        }
    }
}

#[inline]
fn holds(column: &Compared<'_>, entry: usize) -> bool {
    let rank = column.ranks.rank(entry);
    if column.is_lower { column.rank > rank } else { column.rank < rank }
}

/// Calls `hit` with those for which a comparison holds of some ranks, which begin at one of the column.
fn single<L: Lane>(one: &Compared<'_>, first: &[L], at: usize, hit: &mut impl FnMut(usize)) {
    let rank = L::of(one.rank);
    match one.is_lower {
        true => search(first, first, at, |known, _| rank > known, hit),
        false => search(first, first, at, |known, _| rank < known, hit),
    }
}

/// The same of two columns.
fn pair<L: Lane>(
    (one, first): (&Compared<'_>, &[L]),
    (two, second): (&Compared<'_>, &[L]),
    at: usize,
    hit: &mut impl FnMut(usize),
) {
    let (a, b) = (L::of(one.rank), L::of(two.rank));
    match (one.is_lower, two.is_lower) {
        (true, true) => search(first, second, at, |one, two| (a > one) & (b > two), hit),
        (true, false) => search(first, second, at, |one, two| (a > one) & (b < two), hit),
        (false, true) => search(first, second, at, |one, two| (a < one) & (b > two), hit),
        (false, false) => search(first, second, at, |one, two| (a < one) & (b < two), hit),
    }
}

/// Calls `hit` with the entries of two columns of one length, which begin at one of them, for which `test` holds. Few do.
#[inline]
fn search<L: Lane>(
    first: &[L],
    second: &[L],
    mut at: usize,
    test: impl Fn(L, L) -> bool,
    hit: &mut impl FnMut(usize),
) {
    let (blocks, last) = first.as_chunks::<BLOCK>();
    let (others, other_last) = second.as_chunks::<BLOCK>();
    for (block, other) in blocks.iter().zip(others) {
        if any(block, other, &test) {
            find(block, other, at, &test, hit);
        }
        at += BLOCK;
    }
    find(last, other_last, at, &test, hit);
}

/// The same of a few entries, which begin at one of the columns.
fn find<L: Lane>(
    first: &[L],
    second: &[L],
    mut at: usize,
    test: &impl Fn(L, L) -> bool,
    hit: &mut impl FnMut(usize),
) {
    let (blocks, last) = first.as_chunks::<SMALL_BLOCK>();
    let (others, other_last) = second.as_chunks::<SMALL_BLOCK>();
    let mut each = |first: &[L], second: &[L], at: usize| {
        for (entry, (one, two)) in first.iter().zip(second).enumerate() {
            if test(*one, *two) {
                hit(at + entry);
            }
        }
    };
    for (block, other) in blocks.iter().zip(others) {
        if any(block, other, test) {
            each(block, other, at);
        }
        at += SMALL_BLOCK;
    }
    each(last, other_last, at);
}

/// Whether any entry of a block holds. An array of its own length, and no branch for an entry, is what the compiler makes
/// vector instructions of.
#[inline(always)]
fn any<L: Lane, const N: usize>(
    first: &[L; N],
    second: &[L; N],
    test: &impl Fn(L, L) -> bool,
) -> bool {
    first.iter().zip(second).fold(false, |any, (one, two)| any | test(*one, *two))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_base::Rng;

    #[test]
    fn hits_are_those_of_comparing_each_entry() {
        let mut rng = Rng::new(1);
        for round in 0..300 {
            let count = rng.below(300) as usize;
            let width = [100, 40_000][rng.below(2) as usize];
            let mixed = [100, 40_000][rng.below(2) as usize];
            let is_sorted = rng.chance(1, 2);
            let columns: Vec<(Vec<u32>, Ranks, Zones, bool, u32)> = (0..round % 5)
                .map(|index| {
                    let constants = if index == 0 { width } else { mixed };
                    let mut ranks: Vec<u32> =
                        (0..count).map(|_| rng.below(2 * constants) as u32).collect();
                    if index == 0 && is_sorted {
                        ranks.sort_unstable();
                    }
                    let is_lower = rng.chance(1, 2);
                    let mut column = Ranks::with_capacity(constants as usize, count);
                    let mut zones = Zones::with_capacity(count);
                    for rank in &ranks {
                        column.push(*rank);
                        zones.push(*rank, is_lower);
                    }
                    (ranks, column, zones, is_lower, rng.below(2 * constants + 1) as u32)
                })
                .collect();
            let compared: Vec<Compared<'_>> = columns
                .iter()
                .map(|(_, ranks, zones, is_lower, rank)| Compared {
                    ranks,
                    zones,
                    is_lower: *is_lower,
                    rank: *rank,
                })
                .collect();
            let mut found = Vec::new();
            let mut steps = Steps::new(u64::MAX);
            scan(&compared, count, &mut steps, &mut |entry| found.push(entry));
            let expected: Vec<usize> = (0..count)
                .filter(|entry| {
                    columns.iter().all(|(ranks, _, _, is_lower, rank)| {
                        if *is_lower { *rank > ranks[*entry] } else { *rank < ranks[*entry] }
                    })
                })
                .collect();
            assert_eq!(found, expected);
            // Few steps find a part of it, and no more than there are.
            let most = steps.used();
            assert!(most <= (count / ENTRIES_PER_STEP + 1) as u64, "{most} steps for {count}");
            let mut fewer = Vec::new();
            let mut steps = Steps::new(rng.below(most + 1));
            scan(&compared, count, &mut steps, &mut |entry| fewer.push(entry));
            assert!(expected.starts_with(&fewer));
            assert!(steps.has_run_out() || fewer == expected);
        }
    }

    /// Where entries are sorted by ranges that are narrow, most of them are passed over.
    #[test]
    fn blocks_that_a_value_lies_outside_of_are_not_looked_at() {
        let count = 100_000;
        let (mut lower, mut upper) = (Zones::with_capacity(count), Zones::with_capacity(count));
        let mut ranks = [Ranks::with_capacity(count, count), Ranks::with_capacity(count, count)];
        for entry in 0..count as u32 {
            lower.push(2 * entry, true);
            upper.push(2 * entry + 10, false);
            ranks[0].push(2 * entry);
            ranks[1].push(2 * entry + 10);
        }
        let compared = |rank| {
            [
                Compared { ranks: &ranks[1], zones: &upper, is_lower: false, rank },
                Compared { ranks: &ranks[0], zones: &lower, is_lower: true, rank },
            ]
        };
        for rank in [0, 1, 9, 50_001, 127_999, 128_001, 199_999, 200_007] {
            let mut found = Vec::new();
            let mut steps = Steps::new(u64::MAX);
            scan(&compared(rank), count, &mut steps, &mut |entry| found.push(entry));
            let holds = |entry: &usize| {
                let rank = rank as usize;
                2 * entry < rank && rank < 2 * entry + 10
            };
            assert_eq!(found, (0..count).filter(holds).collect::<Vec<_>>(), "{rank}");
            assert!(steps.used() < 80, "{} steps", steps.used());
        }
    }

    #[test]
    fn ranks_come_back() {
        for rank in [0, 1, 2 * NARROW_MAX as u32] {
            assert_eq!(i16::of(rank).rank(), rank);
            assert_eq!(i32::of(rank).rank(), rank);
        }
        assert_eq!(i32::of(4_000_000).rank(), 4_000_000);
    }
}
