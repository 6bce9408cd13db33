//! The messages of one publisher.

/// The publisher knows that the broker has it.
pub const CONFIRMED: u8 = 1;
/// A consumer has seen it.
pub const DELIVERED: u8 = 2;
/// Its ack may have been sent.
pub const ACKED: u8 = 4;
/// Its ack holds.
pub const GONE: u8 = 8;
/// A consumer has seen it after a restart.
pub const RECOVERED: u8 = 16;
/// A consumer has seen it without the mark.
pub const PLAIN: u8 = 32;
/// A consumer has seen it in this round.
pub const RECENT: u8 = 64;
/// The publisher knows that the broker does not have it.
pub const REFUSED: u8 = 128;

/// One copy of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Who published it.
    pub publisher: usize,
    /// Its number.
    pub number: u64,
    /// Which of its queues.
    pub copy: usize,
}

/// The messages of one publisher that are not over.
pub struct Ledger {
    copies: usize,
    /// Number of the first message that is kept; those before are over.
    base: u64,
    states: Vec<u8>,
    /// First message of this round.
    round: u64,
}

impl Ledger {
    /// Messages with so many copies each.
    pub fn new(copies: usize) -> Ledger {
        Ledger { copies, base: 0, states: Vec::new(), round: 0 }
    }

    /// Copies of each message.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Number behind the last message.
    pub fn end(&self) -> u64 {
        self.base + (self.states.len() / self.copies) as u64
    }

    /// Adds messages.
    pub fn extend(&mut self, count: u64) {
        self.states.resize(self.states.len() + count as usize * self.copies, 0);
    }

    fn at(&self, item: Item) -> Option<usize> {
        let number = item.number.checked_sub(self.base)?;
        Some(number as usize * self.copies + item.copy)
    }

    /// The state of a copy; what is over is gone.
    pub fn get(&self, item: Item) -> u8 {
        match self.at(item) {
            Some(at) => self.states.get(at).copied().unwrap_or(0),
            None => CONFIRMED | DELIVERED | ACKED | GONE,
        }
    }

    /// Adds to the state of a copy.
    pub fn set(&mut self, item: Item, state: u8) {
        if let Some(at) = self.at(item)
            && let Some(found) = self.states.get_mut(at)
        {
            *found |= state;
        }
    }

    /// Shows number, copy and state of all that is kept.
    pub fn each(&self, mut look: impl FnMut(u64, usize, u8)) {
        for (at, state) in self.states.iter().enumerate() {
            look(self.base + (at / self.copies) as u64, at % self.copies, *state);
        }
    }

    /// What is published from now on belongs to a new round.
    pub fn begin_round(&mut self) {
        self.round = self.end();
        for state in &mut self.states {
            *state &= !RECENT;
        }
    }

    /// Whether a message was published in this round.
    pub fn is_of_this_round(&self, number: u64) -> bool {
        number >= self.round
    }

    /// Everything is over.
    pub fn forget(&mut self) {
        self.base = self.end();
        self.states.clear();
    }
}
