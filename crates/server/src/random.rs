//! Random bytes of the operating system, for seeds, salts and tokens.

use std::fs::File;
use std::io::Read;

/// `N` bytes that nobody can guess.
///
/// # Errors
/// When the system's generator cannot be read.
pub fn bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
