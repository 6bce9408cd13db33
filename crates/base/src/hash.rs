//! Hash maps keyed from the start.
//!
//! What keys them is an input (secret in production, fixed in the simulator), so that a run can be
//! repeated and a peer cannot choose colliding keys. Maps are never iterated for effects.

use alloc::boxed::Box;
use core::hash::BuildHasher;
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// Builds hashers from numbers given at the start.
#[derive(Clone, Copy)]
pub struct HashState {
    seed: u64,
    words: &'static SharedSeed,
}

impl core::fmt::Debug for HashState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashState")
    }
}

impl HashState {
    /// A state decided by `seed`, for what no peer may attack: words that stand in its program are
    /// mixed with those of a name, and a name made for them collides with others whatever the seed.
    #[must_use]
    pub fn new(seed: u64) -> HashState {
        HashState { seed, words: SharedSeed::global_fixed() }
    }

    /// A state decided by two numbers that nobody can guess, for names that peers choose. It keeps 48
    /// bytes for good, so a process makes few. No file and no message depends on it.
    #[must_use]
    pub fn secret(seed: u64, words: u64) -> HashState {
        HashState { seed, words: Box::leak(Box::new(SharedSeed::from_u64(words))) }
    }

    /// The number that seeds it; the words cannot be told from it.
    #[must_use]
    pub fn seed(self) -> u64 {
        self.seed
    }
}

impl Default for HashState {
    fn default() -> HashState {
        HashState::new(0)
    }
}

impl BuildHasher for HashState {
    type Hasher = <SeedableRandomState as BuildHasher>::Hasher;
    fn build_hasher(&self) -> Self::Hasher {
        SeedableRandomState::with_seed(self.seed, self.words).build_hasher()
    }
}

/// A map with the start's hash state; make one with `HashMap::with_hasher(state)`.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, HashState>;
/// A set with the start's hash state.
pub type HashSet<K> = hashbrown::HashSet<K, HashState>;

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::Hasher;

    /// Of names of 16 bytes the last eight are mixed with this word unless words are secret.
    const WORD: u64 = 0x3F84_D5B5_B547_0917;

    fn hash(state: HashState, number: u64) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write(&[number.to_ne_bytes(), WORD.to_ne_bytes()].concat());
        hasher.finish()
    }

    #[test]
    fn names_that_are_made_to_collide_do_so_only_where_words_are_known() {
        for seed in [0, 1, 0x5EED_5EED_5EED_5EED] {
            let known = HashState::new(seed);
            assert!((0..100).all(|number| hash(known, number) == hash(known, 100)));
            let secret = HashState::secret(seed, 7);
            let mut found: alloc::vec::Vec<u64> =
                (0..100).map(|number| hash(secret, number)).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), 100);
        }
    }
}
