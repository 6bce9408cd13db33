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
