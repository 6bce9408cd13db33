//! Where messages are that compaction moved, by the place where each was written first.
//!
//! A checkpoint shows the table as it was at one moment, without stopping for it: rows are shown in
//! slices, and one that changes before its turn is kept as it was.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lepus_base::Position;

use crate::place::{generation, position};

/// Where a copied message lies now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relocation {
    pub to: Position,
    pub references: u32,
    /// Of a spilled message, which no checkpoint knows.
    pub is_transient: bool,
}

/// The rows that are not shown yet, as they were when the table was frozen.
#[derive(Debug, Default)]
struct Frozen {
    /// Rows below were shown.
    next: Position,
    /// Rows that changed since; `None` where there was none.
    before: BTreeMap<Position, Option<Relocation>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Relocations {
    rows: BTreeMap<Position, Relocation>,
    frozen: Option<Frozen>,
    /// Where rows may be left out to which nobody refers: the next place, and the last one.
    forgotten: Vec<(Position, Position)>,
}

impl Relocations {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn get(&self, origin: &Position) -> Option<&Relocation> {
        self.rows.get(origin)
    }

    /// Where the message is that was first written at `origin`.
    pub(crate) fn place(&self, origin: Position) -> Position {
        if self.rows.is_empty() {
            return origin;
        }
        self.rows.get(&origin).map_or(origin, |row| row.to)
    }

    /// A row is about to change.
    fn keep(&mut self, origin: Position) {
        if let Some(frozen) = &mut self.frozen
            && origin >= frozen.next
        {
            let row = self.rows.get(&origin).copied();
            frozen.before.entry(origin).or_insert(row);
        }
    }

    pub(crate) fn insert(&mut self, origin: Position, row: Relocation) {
        self.keep(origin);
        self.rows.insert(origin, row);
    }

    pub(crate) fn remove(&mut self, origin: Position) {
        self.keep(origin);
        self.rows.remove(&origin);
    }

    /// One entry fewer finds its message by the row at `origin`; the row then.
    pub(crate) fn release(&mut self, origin: Position) -> Option<Relocation> {
        self.keep(origin);
        let row = self.rows.get_mut(&origin)?;
        row.references = row.references.saturating_sub(1);
        Some(*row)
    }

    /// `references` more entries whose message was first at `origin` find it at `to`.
    pub(crate) fn add(&mut self, origin: Position, to: Position, references: u32) {
        let before = self.rows.get(&origin).map_or(0, |row| row.references);
        let references = before + references;
        self.insert(origin, Relocation { to, references, is_transient: false });
    }

    /// A segment is gone: nothing that nobody refers to needs to be known of it. [`Relocations::sweep`] leaves it
    /// out.
    pub(crate) fn forget(&mut self, generation: u32) {
        if !self.rows.is_empty() {
            self.forgotten.push((position(generation, 0), position(generation, u32::MAX)));
        }
    }

    /// Looks at up to `count` rows of segments that are gone. True if more are left.
    pub(crate) fn sweep(&mut self, count: usize) -> bool {
        let mut left = count;
        while left > 0
            && let Some((next, last)) = self.forgotten.pop()
        {
            let seen: Vec<_> = self
                .rows
                .range(next..=last)
                .take(left)
                .map(|(&at, row)| (at, row.references))
                .collect();
            if let Some((end, _)) = seen.last().filter(|_| seen.len() == left) {
                self.forgotten.push((Position(end.0 + 1), last));
            }
            left -= seen.len();
            for (origin, _) in seen.iter().filter(|(_, references)| *references == 0) {
                self.remove(*origin);
            }
        }
        !self.forgotten.is_empty()
    }

    /// Leaves out what nobody refers to of segments for which `is_used` says no.
    pub(crate) fn retain(&mut self, is_used: impl Fn(u32) -> bool) {
        assert!(self.frozen.is_none(), "nothing is shown while a log is recovered");
        self.rows.retain(|&origin, row| row.references > 0 || is_used(generation(origin)));
    }

    /// From here on [`Relocations::show`] shows the table as it is now.
    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(Frozen::default());
    }

    /// Shows up to `count` further rows as they were when the table was frozen, in order. True when
    /// all were shown.
    pub(crate) fn show(
        &mut self,
        count: usize,
        mut each: impl FnMut(Position, &Relocation),
    ) -> bool {
        let Some(frozen) = &mut self.frozen else { return true };
        let mut rows = self.rows.range(frozen.next..).peekable();
        for _ in 0..count {
            let now = rows.peek().map(|(origin, _)| **origin);
            let before = frozen.before.first_key_value().map(|(&origin, _)| origin);
            let Some(origin) = [now, before].into_iter().flatten().min() else {
                self.frozen = None;
                return true;
            };
            let kept = frozen.before.remove(&origin);
            let row = if now == Some(origin) { rows.next().map(|(_, row)| *row) } else { None };
            if let Some(row) = kept.unwrap_or(row) {
                each(origin, &row);
            }
            frozen.next = Position(origin.0.saturating_add(1));
        }
        false
    }

    /// The rest is not to be shown.
    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// Memory of the table, in bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let kept = self.frozen.as_ref().map_or(0, |frozen| frozen.before.len());
        (self.rows.len() + kept) * ROW_BYTES
    }
}

/// What a row takes in its tree, about.
const ROW_BYTES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_base::Rng;

    #[test]
    fn what_nobody_refers_to_of_a_segment_that_is_gone_goes_in_slices() {
        let mut table = Relocations::default();
        for (generation, offset) in (2..5).flat_map(|number| (0..1_000).map(move |at| (number, at)))
        {
            let references = u32::from(offset % 10 == 0);
            let row = Relocation { to: Position(1), references, is_transient: false };
            table.insert(position(generation, offset), row);
        }
        table.forget(3);
        table.forget(4);
        loop {
            let before = table.len();
            let has_more = table.sweep(300);
            assert!(before - table.len() <= 300);
            if !has_more {
                break;
            }
        }
        assert_eq!(table.len(), 1_000 + 2 * 100);
        assert!(table.rows.iter().all(|(&at, row)| generation(at) == 2 || row.references == 1));
    }

    #[test]
    fn what_is_shown_is_the_table_as_it_was_when_it_was_frozen() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut table = Relocations::default();
            let row = |to| Relocation { to: Position(to), references: 2, is_transient: false };
            for _ in 0..rng.below(40) {
                table.insert(Position(rng.below(60)), row(rng.below(1000)));
            }
            let expected: Vec<_> = table.rows.iter().map(|(&at, &row)| (at, row)).collect();
            table.freeze();
            let mut shown = Vec::new();
            while !table.show(1 + rng.below(4) as usize, |at, row| shown.push((at, *row))) {
                for _ in 0..rng.below(6) {
                    let at = Position(rng.below(60));
                    match rng.below(3) {
                        0 => table.insert(at, row(rng.below(1000))),
                        1 => table.remove(at),
                        _ => drop(table.release(at)),
                    }
                }
            }
            assert_eq!(shown, expected, "seed {seed}");
            assert_eq!(table.memory_bytes(), table.len() * ROW_BYTES);
        }
    }
}
