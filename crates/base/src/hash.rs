//! Hash maps keyed from a start seed.
//!
//! The seed is an input (random in production, fixed in the simulator), so that a run can be
//! repeated and a peer cannot choose colliding keys. Maps are never iterated for effects.

use core::hash::BuildHasher;
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// Builds hashers from the start seed.
#[derive(Clone, Copy)]
pub struct HashState(u64);

impl core::fmt::Debug for HashState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashState")
    }
}

impl HashState {
    /// A state decided by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> HashState {
        HashState(seed)
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
        SeedableRandomState::with_seed(self.0, SharedSeed::global_fixed()).build_hasher()
    }
}

/// A map with the start seed; make one with `HashMap::with_hasher(state)`.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, HashState>;
/// A set with the start seed.
pub type HashSet<K> = hashbrown::HashSet<K, HashState>;
