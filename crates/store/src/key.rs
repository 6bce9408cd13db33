//! The key of a log: what tells bytes that the store wrote from those that clients sent.
//!
//! Clients choose the bodies of messages, and a file that is used again holds those of its earlier lives behind
//! what was written since. Whoever knew how checksums begin could send what looks like a batch of records; so
//! batches carry, and checksums begin with, a number that only the broker and its disk know.

use core::fmt;

/// The key of a log. Nothing shows it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// None: as in segments of version 2.
    pub const NONE: Key = Key(0);

    /// A key from 64 bits that nobody can guess.
    #[must_use]
    pub fn new(random: u64) -> Key {
        // A batch does not begin with a zero, which there are many of.
        Key(random | 1)
    }

    pub(crate) fn from_stored(number: u64) -> Key {
        Key(number)
    }

    pub(crate) fn stored(self) -> u64 {
        self.0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Key::NONE
    }

    /// Its first half: what a batch begins with.
    pub(crate) fn first_half(self) -> u32 {
        self.0 as u32
    }

    /// Its second half: what is added to the generation in a batch's header, bit by bit.
    pub(crate) fn second_half(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// What checksums begin with, beside their place; 0 without a key.
    pub(crate) fn seed(self) -> u32 {
        let mixed = (self.0 ^ self.0 >> 31).wrapping_mul(0x9E6C_63D0_876A_68F5);
        ((mixed ^ mixed >> 29).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32) as u32
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_none() { "Key(none)" } else { "Key(..)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_half_of_a_key_counts() {
        assert_eq!(Key::NONE.seed(), 0);
        let key = Key::new(0x1234_5678_9ABC_DEF1);
        for bit in 1..64 {
            let other = Key(key.0 ^ 1 << bit);
            assert_ne!(key.seed(), other.seed(), "bit {bit}");
            let halves = |key: Key| (key.first_half(), key.second_half());
            assert_ne!(halves(key), halves(other), "bit {bit}");
        }
    }
}
