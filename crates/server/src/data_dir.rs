//! The data directory, held by one process at a time.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lepus_reactor::files::sync_directory;

/// Name of the lock file; it holds the number of the process that has the directory.
const LOCK_FILE: &str = "lepus.lock";

/// The data directory while this process holds it.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Unlocked by the system when it is closed, also after a crash.
    _lock: File,
}

/// Why the directory cannot be had.
#[derive(Debug)]
pub enum DataDirError {
    /// Another process holds it; its number where it could be read.
    InUse(PathBuf, Option<u32>),
    /// It cannot be created, written or locked.
    Io(PathBuf, std::io::Error),
}

impl fmt::Display for DataDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataDirError::InUse(path, Some(pid)) => write!(
                f,
                "the data directory {} is in use by the running lepus with process id {pid}; \
                 stop that one, or choose another directory with --data-dir",
                path.display()
            ),
            DataDirError::InUse(path, None) => write!(
                f,
                "the data directory {} is in use by another lepus; \
                 stop that one, or choose another directory with --data-dir",
                path.display()
            ),
            DataDirError::Io(path, error) => {
                write!(f, "cannot use {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for DataDirError {}

impl DataDir {
    /// Creates the directory where it is missing (for its owner only) and takes hold of it.
    ///
    /// # Errors
    /// When another process holds it, or the file system refuses.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let failed = |error| DataDirError::Io(path.to_owned(), error);
        create(path, sync_directory).map_err(failed)?;
        let file = path.join(LOCK_FILE);
        let failed = |error| DataDirError::Io(file.clone(), error);
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&file)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = (&mut lock).take(32).read_to_string(&mut text);
                let pid = read.ok().and_then(|_| text.trim().parse().ok());
                return Err(DataDirError::InUse(path.to_owned(), pid));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut note = || {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())
        };
        note().map_err(failed)?;
        Ok(DataDir { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory and those above it, as far as they are missing, each for its owner only. The
/// name of each that was made is brought to the disk by `sync` of the one above it: otherwise all
/// could be gone after a loss of power, with everything that was synced inside.
fn create(path: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create(parent, &mut sync as &mut dyn FnMut(&Path) -> io::Result<()>)?;
    match DirBuilder::new().mode(0o700).create(path) {
        // Another process was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        result => result?,
    }
    sync(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_every_directory_that_is_made_is_synced_from_above() {
        let root = crate::scratch::Scratch::new("made");
        let path = root.path().join("a/b/c");
        let mut synced = Vec::new();
        let mut note = |parent: &Path| {
            let children: Vec<_> = std::fs::read_dir(parent)?.flatten().collect();
            assert_eq!(children.len(), 1, "the name is there before it is synced");
            synced.push(parent.to_owned());
            Ok(())
        };
        create(&path, &mut note).unwrap();
        create(&path, &mut note).unwrap();
        let above = ["", "a", "a/b"].map(|name| root.path().join(name));
        assert_eq!(synced, above.map(|path| path.components().collect::<PathBuf>()));
    }

    #[test]
    fn a_directory_whose_name_cannot_be_synced_is_not_used() {
        let root = crate::scratch::Scratch::new("unsynced");
        let broken = |_: &Path| Err(io::Error::other("no sync"));
        let error = create(&root.path().join("a"), broken).unwrap_err();
        assert_eq!(error.to_string(), "no sync");
    }

    #[test]
    fn a_second_holder_learns_the_process_id_of_the_first() {
        let root = crate::scratch::Scratch::new("lock");
        let path = root.path().join("a/b");
        let first = DataDir::open(&path).unwrap();
        let error = DataDir::open(&path).unwrap_err().to_string();
        let pid = format!("process id {}", std::process::id());
        assert!(error.contains(&pid), "{error}");
        assert!(error.contains(&path.display().to_string()), "{error}");
        drop(first);
        let again = DataDir::open(&path).unwrap();
        assert_eq!(again.path(), path);
    }

    #[test]
    fn a_path_that_is_a_file_is_named() {
        let root = crate::scratch::Scratch::new("lock-file");
        let path = root.path().join("plain");
        std::fs::write(&path, "").unwrap();
        let error = DataDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("plain"), "{error}");
    }
}
