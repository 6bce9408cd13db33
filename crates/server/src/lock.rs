//! A file that one process at a time holds.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A lock file while this process holds it. The file holds the number of the process, where the disk has
/// room for it, and stays.
#[derive(Debug)]
pub struct FileLock {
    /// Unlocked by the system when it is closed, also after a crash.
    _file: File,
}

/// Why a lock cannot be had.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it; its number where it could be read.
    InUse(Option<u32>),
    /// The file cannot be created or locked.
    Io(io::Error),
}

impl FileLock {
    /// Takes hold of the lock file, which is created for its owner only where it is missing. It is not
    /// reached through a symbolic link.
    ///
    /// # Errors
    /// When another process holds it, or the file system refuses.
    pub fn take(path: &Path) -> Result<FileLock, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(LockError::Io)?;
        // What has another name may be somebody else's, and is not to be written to.
        let is_own = file.metadata().map(|found| found.is_file() && found.nlink() == 1);
        if !is_own.map_err(LockError::Io)? {
            let text = "it is no plain file, or has another name; remove it if no lepus uses it";
            return Err(LockError::Io(io::Error::other(text)));
        }
        FileLock::lock(file)
    }

    fn lock(mut file: File) -> Result<FileLock, LockError> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = (&mut file).take(32).read_to_string(&mut text);
                let holder = read.ok().and_then(|_| text.trim().parse().ok());
                return Err(LockError::InUse(holder));
            }
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        let mut note = || {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        // It is held in any case: a disk without room for the number is no reason not to start.
        let _ = note();
        Ok(FileLock { _file: file })
    }

    /// Whether some process holds the lock file. A file that cannot be read counts as held by none.
    #[must_use]
    pub fn is_taken(path: &Path) -> bool {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path);
        let tried = file.map(|file| file.try_lock_shared());
        matches!(tried, Ok(Err(TryLockError::WouldBlock)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    #[test]
    fn a_lock_is_held_though_its_file_takes_no_number() {
        let path = Path::new("/dev/full");
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let lock = FileLock::lock(file).unwrap();
        assert!(FileLock::is_taken(path));
        drop(lock);
    }

    #[test]
    fn a_file_with_another_name_is_not_written_to() {
        let root = Scratch::new("lock-names");
        let (victim, lock) = (root.path().join("victim"), root.path().join("lock"));
        std::fs::write(&victim, "precious").unwrap();
        std::fs::hard_link(&victim, &lock).unwrap();
        let error = FileLock::take(&lock).unwrap_err();
        assert!(matches!(error, LockError::Io(_)), "{error:?}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        std::fs::remove_file(&lock).unwrap();
        drop(FileLock::take(&lock).unwrap());
        assert!(FileLock::take(&lock).is_ok(), "again");
    }
}
