//! Settlements that a transaction holds.

use alloc::collections::VecDeque;
use alloc::collections::binary_heap::{BinaryHeap, PeekMut};

use crate::channel::unacked::{Unacked, UnackedList};
use crate::queue::Outcome;

/// Settlements in one piece.
const PIECE_ENTRIES: usize = 1024;

/// Settlements in order. They lie in pieces, so that very many more never move those that are there.
#[derive(Debug, Default)]
pub struct Settles {
    /// None of them is empty.
    pieces: VecDeque<VecDeque<(Unacked, Outcome)>>,
    len: usize,
}

impl Settles {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Allocated bytes, about, without the value itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.len * size_of::<(Unacked, Outcome)>()
    }

    /// Adds one behind the others.
    pub fn push(&mut self, unacked: Unacked, outcome: Outcome) {
        self.len += 1;
        match self.pieces.back_mut() {
            Some(last) if last.len() < PIECE_ENTRIES => last.push_back((unacked, outcome)),
            _ => self.pieces.push_back([(unacked, outcome)].into()),
        }
    }

    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = &(Unacked, Outcome)> {
        self.pieces.iter().flatten()
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<(Unacked, Outcome)> {
        let first = self.pieces.front_mut()?;
        let settle = first.pop_front();
        if first.is_empty() {
            self.pieces.pop_front();
        }
        self.len -= 1;
        settle
    }
}

impl Iterator for Settles {
    type Item = (Unacked, Outcome);

    fn next(&mut self) -> Option<(Unacked, Outcome)> {
        self.pop()
    }
}

/// Settlements by tag, the highest first, whatever their order was. They are sorted piece by piece, and
/// each piece is freed when it is empty.
#[derive(Debug)]
pub struct Falling {
    settles: Settles,
    /// Pieces that are sorted by tag.
    sorted: usize,
    /// The highest tag of each of these, and its number.
    tops: BinaryHeap<(u64, usize)>,
}

impl Falling {
    /// Not sorted yet.
    #[must_use]
    pub fn new(settles: Settles) -> Falling {
        let tops = BinaryHeap::with_capacity(settles.pieces.len());
        Falling { settles, sorted: 0, tops }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.settles.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.settles.is_empty()
    }

    /// Allocated bytes, about, without the value itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.settles.memory_bytes() + self.tops.capacity() * size_of::<(u64, usize)>()
    }

    /// Sorts the next piece, and says how many it has; `None` if all are sorted.
    pub fn sort(&mut self) -> Option<usize> {
        let piece = self.settles.pieces.get_mut(self.sorted)?.make_contiguous();
        piece.sort_unstable_by_key(|(unacked, _)| unacked.tag);
        if let Some((highest, _)) = piece.last() {
            self.tops.push((highest.tag, self.sorted));
        }
        self.sorted += 1;
        Some(piece.len())
    }

    /// The one with the highest tag; all pieces must be sorted.
    #[must_use]
    pub fn highest(&self) -> Option<&Unacked> {
        let (_, piece) = self.tops.peek()?;
        self.settles.pieces[*piece].back().map(|(unacked, _)| unacked)
    }

    /// Takes the one with the highest tag; all pieces must be sorted.
    pub fn pop(&mut self) -> Option<Unacked> {
        let mut top = self.tops.peek_mut()?;
        let piece = &mut self.settles.pieces[top.1];
        let (unacked, _) = piece.pop_back()?;
        self.settles.len -= 1;
        match piece.back() {
            Some((next, _)) => top.0 = next.tag,
            None => {
                *piece = VecDeque::new();
                PeekMut::pop(top);
            }
        }
        Some(unacked)
    }

    /// Makes them unacknowledged again, the highest tag first, as far as the budget goes. Whether all are.
    pub(crate) fn put_back(&mut self, unacked: &mut UnackedList, budget: &mut usize) -> bool {
        while *budget > 0
            && let Some(sorted) = self.sort()
        {
            *budget = budget.saturating_sub(sorted);
        }
        while *budget > 0 {
            *budget -= 1;
            let Some(highest) = self.highest() else {
                if unacked.close_up() {
                    return true;
                }
                continue;
            };
            if unacked.put_back(highest, self.len() - 1) {
                self.pop();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use lepus_base::{QueueId, Rng, ShardId};

    #[test]
    fn settlements_of_any_order_come_by_falling_tags() {
        for seed in 0..20 {
            let mut random = Rng::new(seed);
            let mut tags: Vec<u64> = (0..random.below(5_000)).collect();
            (1..tags.len())
                .for_each(|last| tags.swap(last, random.below(last as u64 + 1) as usize));
            let mut settles = Settles::default();
            for &tag in &tags {
                let (queue, home) = (QueueId(1), ShardId(0));
                let (queue_slot, consumer, slot, sequence) = (0, 0, 0, tag);
                let one = Unacked { tag, queue, queue_slot, home, consumer, slot, sequence };
                settles.push(one, Outcome::Ack);
            }
            let mut falling = Falling::new(settles);
            let sorted: Vec<usize> = core::iter::from_fn(|| falling.sort()).collect();
            assert!(sorted.iter().all(|&piece| piece <= PIECE_ENTRIES));
            assert_eq!(sorted.iter().sum::<usize>(), tags.len());
            let mut left = tags.len() as u64;
            while let Some(highest) = falling.highest().copied() {
                left -= 1;
                assert_eq!((highest.tag, falling.pop()), (left, Some(highest)));
                assert_eq!(falling.len() as u64, left);
            }
            assert!(left == 0 && falling.is_empty() && falling.pop().is_none());
        }
    }
}
