//! Settlements that a transaction holds.

use alloc::collections::VecDeque;

use crate::channel::unacked::Unacked;
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
