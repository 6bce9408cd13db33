//! Files that commands read and write.

use std::io::{self, Read, Write};
use std::path::Path;

/// Bytes of a file at most.
const BYTES_MAX: u64 = 200 << 20;

/// Writes a file that only its owner may read: definitions hold password hashes.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(bytes)
}

/// Reads a file.
///
/// # Errors
/// When it cannot be read, or is longer than 200 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    match (bytes.len() as u64) < BYTES_MAX {
        true => Ok(bytes),
        false => Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 200 MiB")),
    }
}
