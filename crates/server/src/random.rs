//! Random bytes of the operating system, for seeds, salts and tokens.

use std::fs::File;
use std::io::Read;

use lepus_base::HashState;
use lepus_store::Key;

/// `N` bytes that nobody can guess.
///
/// # Errors
/// When the system's generator cannot be read.
pub fn bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What keys hash maps, so that nobody can choose names that collide. It keeps some bytes for good.
///
/// # Errors
/// In words, when the system's generator cannot be read.
pub fn hash_state() -> Result<HashState, String> {
    let number = || bytes().map(u64::from_ne_bytes).map_err(unavailable);
    Ok(HashState::secret(number()?, number()?))
}

/// A key for a log that has none.
///
/// # Errors
/// In words, when the system's generator cannot be read.
pub fn log_key() -> Result<Key, String> {
    bytes().map(u64::from_ne_bytes).map(Key::new).map_err(unavailable)
}

/// In words, that the system's generator cannot be read.
#[must_use]
pub fn unavailable(error: std::io::Error) -> String {
    format!("no random numbers: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher, Hasher};

    /// Names of 16 bytes that end with this have one hash wherever only the seed is secret.
    const WORD: u64 = 0x3F84_D5B5_B547_0917;

    fn hashes(state: HashState) -> BTreeSet<u64> {
        let hash = |number: u64| {
            let mut hasher = state.build_hasher();
            hasher.write(&[number.to_ne_bytes(), WORD.to_ne_bytes()].concat());
            hasher.finish()
        };
        (0..100).map(hash).collect()
    }

    #[test]
    fn names_that_are_made_to_collide_do_not_and_nobody_knows_their_hashes() {
        let (first, second) = (hash_state().unwrap(), hash_state().unwrap());
        assert_eq!(hashes(HashState::new(first.seed())).len(), 1);
        let (first, second) = (hashes(first), hashes(second));
        assert_eq!((first.len(), second.len()), (100, 100));
        assert!(first.is_disjoint(&second));
    }
}
