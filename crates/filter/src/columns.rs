//! Columns of ranks: the ends of many branches of one shape, compared with a message's ranks by loops that the compiler
//! turns into vector instructions.

use alloc::vec::Vec;

/// Entries that are compared together, and as many of the last ones.
const BLOCK: usize = 128;
const SMALL_BLOCK: usize = 16;

/// A rank as it stands in a column: shifted, so that a comparison with a sign compares it.
pub(crate) trait Lane: Copy + Ord {
    /// The rank, shifted.
    fn of(rank: u32) -> Self;
    /// The rank that it was made of.
    fn rank(self) -> u32;
    /// 1 for TRUE, 0 for FALSE.
    fn mask(holds: bool) -> Self;
    /// The bits that are in both.
    fn and(self, other: Self) -> Self;
    /// The bits that are in either.
    fn or(self, other: Self) -> Self;
    /// No bits.
    const ZERO: Self;
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
            #[inline]
            fn mask(holds: bool) -> $lane {
                <$lane>::from(holds)
            }
            #[inline]
            fn and(self, other: $lane) -> $lane {
                self & other
            }
            #[inline]
            fn or(self, other: $lane) -> $lane {
                self | other
            }
            const ZERO: $lane = 0;
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

/// A column and what it is compared with.
#[derive(Clone, Copy)]
pub(crate) struct Compared<'c> {
    pub(crate) ranks: &'c Ranks,
    /// Whether the column holds lower ends: the message's rank must be above. Otherwise it must be below.
    pub(crate) is_lower: bool,
    /// The message's rank.
    pub(crate) rank: u32,
}

/// Calls `hit` with each entry for which all comparisons hold, in their order.
pub(crate) fn scan(columns: &[Compared<'_>], count: usize, hit: &mut impl FnMut(usize)) {
    let mut at = 0;
    while at < count {
        let (size, any) = match count - at {
            BLOCK.. => (BLOCK, block::<BLOCK>(columns, at)),
            SMALL_BLOCK.. => (SMALL_BLOCK, block::<SMALL_BLOCK>(columns, at)),
            rest => (rest, true),
        };
        if any {
            // Few blocks have a hit.
            find(columns, at, at + size, hit);
        }
        at += size;
    }
}

/// Calls `hit` with the entries of a block that hold.
fn find(columns: &[Compared<'_>], mut at: usize, end: usize, hit: &mut impl FnMut(usize)) {
    while at < end {
        let size = SMALL_BLOCK.min(end - at);
        if size < SMALL_BLOCK || block::<SMALL_BLOCK>(columns, at) {
            for entry in at..at + size {
                if columns.iter().all(|column| holds(column, entry)) {
                    hit(entry);
                }
            }
        }
        at += size;
    }
}

#[inline]
fn holds(column: &Compared<'_>, entry: usize) -> bool {
    let rank = column.ranks.rank(entry);
    if column.is_lower { column.rank > rank } else { column.rank < rank }
}

/// Whether any entry of a block may hold: the first two columns are looked at.
#[inline]
fn block<const N: usize>(columns: &[Compared<'_>], at: usize) -> bool {
    match columns {
        [] => true,
        [one] => single::<N>(one, at),
        [one, two, ..] => pair::<N>(one, two, at),
    }
}

#[inline]
fn single<const N: usize>(column: &Compared<'_>, at: usize) -> bool {
    match column.ranks {
        Ranks::Narrow(ranks) => any_single::<i16, N>(ranks, column, at),
        Ranks::Wide(ranks) => any_single::<i32, N>(ranks, column, at),
    }
}

/// An array of its own length is what the compiler makes vector instructions of.
#[inline]
fn chunk<L, const N: usize>(ranks: &[L], at: usize) -> Option<&[L; N]> {
    ranks.get(at..)?.first_chunk()
}

#[inline]
fn any_single<L: Lane, const N: usize>(ranks: &[L], column: &Compared<'_>, at: usize) -> bool {
    let Some(ranks) = chunk::<L, N>(ranks, at) else { return true };
    let rank = L::of(column.rank);
    let mut any = L::ZERO;
    if column.is_lower {
        for known in ranks {
            any = any.or(L::mask(rank > *known));
        }
    } else {
        for known in ranks {
            any = any.or(L::mask(rank < *known));
        }
    }
    any != L::ZERO
}

#[inline]
fn pair<const N: usize>(one: &Compared<'_>, two: &Compared<'_>, at: usize) -> bool {
    match (one.ranks, two.ranks) {
        (Ranks::Narrow(first), Ranks::Narrow(second)) => {
            any_pair::<i16, N>(first, second, one, two, at)
        }
        (Ranks::Wide(first), Ranks::Wide(second)) => {
            any_pair::<i32, N>(first, second, one, two, at)
        }
        // Different widths: each alone.
        _ => single::<N>(one, at) && single::<N>(two, at),
    }
}

/// Whether any entry of a block holds in both columns.
#[inline]
fn any_pair<L: Lane, const N: usize>(
    first: &[L],
    second: &[L],
    one: &Compared<'_>,
    two: &Compared<'_>,
    at: usize,
) -> bool {
    let (Some(first), Some(second)) = (chunk::<L, N>(first, at), chunk::<L, N>(second, at)) else {
        return true;
    };
    let (rank_one, rank_two) = (L::of(one.rank), L::of(two.rank));
    let mut any = L::ZERO;
    // Four loops without a branch inside.
    match (one.is_lower, two.is_lower) {
        (true, true) => {
            for (first, second) in first.iter().zip(second) {
                any = any.or(L::mask(rank_one > *first).and(L::mask(rank_two > *second)));
            }
        }
        (true, false) => {
            for (first, second) in first.iter().zip(second) {
                any = any.or(L::mask(rank_one > *first).and(L::mask(rank_two < *second)));
            }
        }
        (false, true) => {
            for (first, second) in first.iter().zip(second) {
                any = any.or(L::mask(rank_one < *first).and(L::mask(rank_two > *second)));
            }
        }
        (false, false) => {
            for (first, second) in first.iter().zip(second) {
                any = any.or(L::mask(rank_one < *first).and(L::mask(rank_two < *second)));
            }
        }
    }
    any != L::ZERO
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
            let columns: Vec<(Vec<u32>, Ranks, bool, u32)> = (0..round % 5)
                .map(|index| {
                    let constants = if index == 0 { width } else { mixed };
                    let ranks: Vec<u32> =
                        (0..count).map(|_| rng.below(2 * constants) as u32).collect();
                    let mut column = Ranks::with_capacity(constants as usize, count);
                    ranks.iter().for_each(|rank| column.push(*rank));
                    (ranks, column, rng.chance(1, 2), rng.below(2 * constants + 1) as u32)
                })
                .collect();
            let compared: Vec<Compared<'_>> = columns
                .iter()
                .map(|(_, ranks, is_lower, rank)| Compared {
                    ranks,
                    is_lower: *is_lower,
                    rank: *rank,
                })
                .collect();
            let mut found = Vec::new();
            scan(&compared, count, &mut |entry| found.push(entry));
            let expected: Vec<usize> = (0..count)
                .filter(|entry| {
                    columns.iter().all(|(ranks, _, is_lower, rank)| {
                        if *is_lower { *rank > ranks[*entry] } else { *rank < ranks[*entry] }
                    })
                })
                .collect();
            assert_eq!(found, expected);
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
