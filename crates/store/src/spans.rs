//! Messages that lie in several segments.

use alloc::collections::{BTreeMap, btree_map};

use lepus_base::Position;

use crate::place::generation;

/// A message in several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The segment in which it ends.
    pub generation_last: u32,
    /// Its references that live, one at least.
    pub references: u32,
    pub is_transient: bool,
}

impl Span {
    /// In how many segments it lies.
    fn segments(&self, start: Position) -> u32 {
        self.generation_last.saturating_sub(generation(start)).saturating_add(1)
    }
}

/// All that live, by where they begin.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    by_start: BTreeMap<Position, Span>,
    /// How many persistent ones lie in so many segments.
    by_length: BTreeMap<u32, usize>,
}

impl Spans {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub(crate) fn contains(&self, start: Position) -> bool {
        self.by_start.contains_key(&start)
    }

    /// In how many segments the longest persistent one lies; 0 if there is none.
    pub(crate) fn longest(&self) -> usize {
        self.by_length.last_key_value().map_or(0, |(&length, _)| length as usize)
    }

    /// All of them, in the order in which they begin.
    pub(crate) fn iter(&self) -> btree_map::Iter<'_, Position, Span> {
        self.by_start.iter()
    }

    /// Those that begin before a position.
    pub(crate) fn before(&self, end: Position) -> btree_map::Range<'_, Position, Span> {
        self.by_start.range(..end)
    }

    pub(crate) fn insert(&mut self, start: Position, span: Span) {
        self.remove(start);
        if !span.is_transient {
            *self.by_length.entry(span.segments(start)).or_default() += 1;
        }
        self.by_start.insert(start, span);
    }

    pub(crate) fn remove(&mut self, start: Position) -> Option<Span> {
        let span = self.by_start.remove(&start)?;
        if !span.is_transient
            && let btree_map::Entry::Occupied(mut found) =
                self.by_length.entry(span.segments(start))
        {
            *found.get_mut() -= 1;
            if *found.get() == 0 {
                found.remove();
            }
        }
        Some(span)
    }

    /// One more reference to the message that begins there lives.
    pub(crate) fn refer(&mut self, start: Position) {
        if let Some(span) = self.by_start.get_mut(&start) {
            span.references += 1;
        }
    }

    /// A reference to the message that begins there is gone: the message, if it was the last.
    pub(crate) fn release(&mut self, start: Position) -> Option<Span> {
        let span = self.by_start.get_mut(&start)?;
        span.references = span.references.saturating_sub(1);
        match span.references {
            0 => self.remove(start),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::position;

    #[test]
    fn the_longest_is_known_whatever_comes_and_goes() {
        let mut spans = Spans::default();
        assert_eq!(spans.longest(), 0);
        let span =
            |generation_last, references| Span { generation_last, references, is_transient: false };
        spans.insert(position(5, 100), span(6, 1));
        spans.insert(position(6, 100), span(9, 2));
        spans.insert(position(9, 100), span(12, 1));
        assert_eq!(spans.longest(), 4);
        assert_eq!(spans.release(position(9, 100)), Some(span(12, 0)));
        assert_eq!(spans.longest(), 4);
        assert_eq!(spans.release(position(6, 100)), None);
        spans.refer(position(6, 100));
        assert_eq!(spans.remove(position(6, 100)), Some(span(9, 2)));
        assert_eq!(spans.longest(), 2);
        spans.insert(position(5, 100), span(7, 1));
        assert_eq!((spans.longest(), spans.iter().count()), (3, 1));
        spans.remove(position(5, 100));
        assert!(spans.longest() == 0 && spans.is_empty());
    }
}
