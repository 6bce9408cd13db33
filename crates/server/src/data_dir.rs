//! The data directory, held by one process at a time.

use crate::lock::{FileLock, LockError};
use std::fmt;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use lepus_reactor::files::sync_directory;
use rustix::process::geteuid;

/// Name of the lock file; it holds the number of the process that has the directory.
const LOCK_FILE: &str = "lepus.lock";

/// The data directory while this process holds it.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    cautions: Vec<String>,
    _lock: FileLock,
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
                 stop that one, or choose another directory",
                path.display()
            ),
            DataDirError::InUse(path, None) => write!(
                f,
                "the data directory {} is in use by another lepus; \
                 stop that one, or choose another directory",
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
        let mut cautions = who_else(path).map_err(failed)?;
        cautions.extend(remove_foreign(&file).map_err(failed)?);
        let lock = FileLock::take(&file).map_err(|error| match error {
            LockError::InUse(holder) => DataDirError::InUse(path.to_owned(), holder),
            LockError::Io(error) => failed(error),
        })?;
        Ok(DataDir { path: path.to_owned(), cautions, _lock: lock })
    }

    /// Whether a process holds the directory. Nothing is made or written.
    #[must_use]
    pub fn is_held(path: &Path) -> bool {
        FileLock::is_taken(&path.join(LOCK_FILE))
    }

    /// What an operator should know about who else may come at the directory, a sentence each.
    #[must_use]
    pub fn cautions(&self) -> &[String] {
        &self.cautions
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Who else may put files into the directory, as sentences.
fn who_else(path: &Path) -> io::Result<Vec<String>> {
    let found = path.metadata()?;
    let (mode, owner, own) = (found.mode() & 0o7777, found.uid(), geteuid().as_raw());
    let mut cautions = Vec::new();
    if mode & 0o022 != 0 {
        cautions.push(format!(
            "other users may write to the data directory {} (mode {mode:04o}): they can replace \
             messages, users and the control socket; chmod go-w takes that away",
            path.display()
        ));
    }
    if owner != own && owner != 0 {
        cautions.push(format!(
            "the data directory {} belongs to user {owner}, and lepus runs as user {own}: that user \
             can replace messages, users and the control socket; chown gives it to lepus",
            path.display()
        ));
    }
    Ok(cautions)
}

/// Removes a lock that is a link, has another name somewhere or is no plain file: writing to it would
/// write to something else. What it leads to stays as it is.
fn remove_foreign(file: &Path) -> io::Result<Option<String>> {
    let found = match file.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if found.is_file() && found.nlink() == 1 {
        return Ok(None);
    }
    std::fs::remove_file(file)?;
    Ok(Some(format!(
        "{} was a link or no plain file and was removed; somebody else may have put it there",
        file.display()
    )))
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
        let root = lepus_probe::Scratch::new("made");
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
        let root = lepus_probe::Scratch::new("unsynced");
        let broken = |_: &Path| Err(io::Error::other("no sync"));
        let error = create(&root.path().join("a"), broken).unwrap_err();
        assert_eq!(error.to_string(), "no sync");
    }

    #[test]
    fn a_second_holder_learns_the_process_id_of_the_first() {
        let root = lepus_probe::Scratch::new("lock");
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
    fn nothing_is_written_through_a_lock_that_leads_elsewhere() {
        let root = lepus_probe::Scratch::new("lock-link");
        let (path, victim) = (root.path().join("data"), root.path().join("victim"));
        drop(DataDir::open(&path).unwrap());
        assert_eq!(DataDir::open(&path).unwrap().cautions(), [""; 0]);
        let lock = path.join(LOCK_FILE);
        let precious = "not to be written to\n".repeat(100);
        std::fs::write(&victim, &precious).unwrap();
        for is_symbolic in [true, false] {
            std::fs::remove_file(&lock).unwrap();
            match is_symbolic {
                true => std::os::unix::fs::symlink(&victim, &lock).unwrap(),
                false => std::fs::hard_link(&victim, &lock).unwrap(),
            }
            let held = DataDir::open(&path).unwrap();
            assert!(held.cautions()[0].contains("lepus.lock was a link"), "{:?}", held.cautions());
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), precious);
            assert!(lock.symlink_metadata().unwrap().is_file());
        }
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_told() {
        use std::os::unix::fs::PermissionsExt;
        let root = lepus_probe::Scratch::new("open-directory");
        let path = root.path().join("data");
        std::fs::create_dir(&path).unwrap();
        for (mode, is_told) in [(0o777, true), (0o770, true), (0o755, false), (0o700, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let held = DataDir::open(&path).unwrap();
            assert_eq!(held.cautions().len(), usize::from(is_told), "{mode:o}");
        }
    }

    #[test]
    fn a_path_that_is_a_file_is_named() {
        let root = lepus_probe::Scratch::new("lock-file");
        let path = root.path().join("plain");
        std::fs::write(&path, "").unwrap();
        let error = DataDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("plain"), "{error}");
    }
}
