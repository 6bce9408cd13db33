//! The disk as values: operations out, completions in.
//!
//! A driver carries operations out in any order and on any thread. Each is answered exactly once,
//! also when it fails. All files of one log lie in one directory; a driver turns a [`File`] into a
//! path by its `Display`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A log's own number, in every header; it stays when another shard adopts the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u32);

/// A file of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum File {
    /// A segment; the slot stays when the file is used again for another generation.
    Segment(LogId, u32),
    /// One checkpoint.
    Checkpoint(LogId, u64),
    /// The record that names the valid checkpoint.
    Root(LogId),
    /// Index pages of all queues.
    Index(LogId),
}

impl File {
    /// The log whose file it is.
    #[must_use]
    pub fn log(self) -> LogId {
        match self {
            File::Segment(log, _)
            | File::Checkpoint(log, _)
            | File::Root(log)
            | File::Index(log) => log,
        }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log-{:08}", self.0)
    }
}

/// The path below the broker's data directory.
impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            File::Segment(log, slot) => write!(f, "{log}/segment-{slot:08}"),
            File::Checkpoint(log, number) => write!(f, "{log}/checkpoint-{number:016}"),
            File::Root(log) => write!(f, "{log}/root"),
            File::Index(log) => write!(f, "{log}/index"),
        }
    }
}

/// Reads what `Display` writes; other paths are no files of a log.
impl FromStr for File {
    type Err = ();
    fn from_str(path: &str) -> Result<File, ()> {
        let (log, name) = path.split_once('/').ok_or(())?;
        let log = LogId(log.strip_prefix("log-").ok_or(())?.parse().map_err(|_| ())?);
        let file = match name.split_once('-') {
            None if name == "root" => File::Root(log),
            None if name == "index" => File::Index(log),
            Some(("segment", slot)) => File::Segment(log, slot.parse().map_err(|_| ())?),
            Some(("checkpoint", number)) => File::Checkpoint(log, number.parse().map_err(|_| ())?),
            _ => return Err(()),
        };
        Ok(file)
    }
}

/// Names an operation until its completion; never reused by one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// What a driver has to carry out.
#[derive(Clone, Debug)]
pub struct Operation {
    /// For the completion.
    pub id: OperationId,
    /// What to do.
    pub action: Action,
}

impl Operation {
    /// The log whose files it concerns.
    #[must_use]
    pub fn log(&self) -> LogId {
        self.action.log()
    }
}

/// One thing to do with a file or directory.
#[derive(Clone, Debug)]
pub enum Action {
    /// Make the log's directory if it is missing, sync its parent, and list the log's files with
    /// their lengths.
    List(LogId),
    /// Create the file with `length` bytes of zeros and their blocks allocated, so that writing
    /// them cannot run out of space, and sync it; a file of this name is cut to nothing first.
    Create {
        /// Which file.
        file: File,
        /// Its length in bytes.
        length: u64,
    },
    /// Give `from`, if there is such a file, the name `file`, also when the rest fails; then make `file`
    /// `length` bytes long, with their blocks allocated. What it holds is of no matter.
    Reserve {
        /// A file whose blocks are used.
        from: Option<File>,
        /// Its name afterwards.
        file: File,
        /// Its length in bytes.
        length: u64,
    },
    /// Write `bytes[start..]` at `offset`, then sync the file's data if `sync`.
    Write {
        /// Which file; it is created if it is missing.
        file: File,
        /// Where in the file `bytes[start]` goes.
        offset: u64,
        /// Shared with the store, which serves reads from it. To be dropped before the completion
        /// is handed in.
        bytes: Arc<Vec<u8>>,
        /// The first byte to write.
        start: usize,
        /// Whether the file's data must be on the disk before the completion says so.
        sync: bool,
    },
    /// Sync the file's data, whoever wrote it.
    Sync(File),
    /// Sync the file's data and let later reads bring what the disk has. After a failed sync a system may
    /// go on showing bytes that it will never write, also to another process, whose own sync then
    /// succeeds.
    Reload(File),
    /// Read up to `length` bytes at `offset`; fewer where the file ends.
    Read {
        /// Which file.
        file: File,
        /// Where to begin.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// Cut the file to its first `length` bytes if it is longer; it is no error if it is missing. That a
    /// loss of power undoes it is of no matter.
    Truncate {
        /// Which file.
        file: File,
        /// Its length in bytes, at most.
        length: u64,
    },
    /// Remove the file; it is no error if it is missing.
    Delete(File),
    /// Make created and removed names of the log's directory durable.
    SyncDirectory(LogId),
}

impl Action {
    /// The log whose files it concerns.
    #[must_use]
    pub fn log(&self) -> LogId {
        match self {
            Action::List(log) | Action::SyncDirectory(log) => *log,
            Action::Sync(file) | Action::Reload(file) | Action::Delete(file) => file.log(),
            Action::Create { file, .. }
            | Action::Reserve { file, .. }
            | Action::Write { file, .. }
            | Action::Truncate { file, .. }
            | Action::Read { file, .. } => file.log(),
        }
    }

    /// The file that it uses; `None` where it is for the whole directory.
    #[must_use]
    pub fn file(&self) -> Option<File> {
        match self {
            Action::List(_) | Action::SyncDirectory(_) => None,
            Action::Sync(file) | Action::Reload(file) | Action::Delete(file) => Some(*file),
            Action::Create { file, .. }
            | Action::Reserve { file, .. }
            | Action::Write { file, .. }
            | Action::Truncate { file, .. }
            | Action::Read { file, .. } => Some(*file),
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// No space is left.
    Full,
    /// The file does not exist.
    NotFound,
    /// The system lacks what it takes, such as a file descriptor or memory; nothing was done to the
    /// file, and it may be done later.
    Busy,
    /// Anything else; what a failed write or sync left behind is not known.
    Failed,
}

impl DiskError {
    /// Whether nothing is wrong with the file, and the same operation may work later.
    #[must_use]
    pub fn is_lack(self) -> bool {
        matches!(self, DiskError::Full | DiskError::Busy)
    }
}

/// How much of the disk is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Less than three quarters of what may be used.
    Ample,
    /// At least so much.
    Nearly,
}

/// What became of an operation.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Which one.
    pub id: OperationId,
    /// Bytes written or read, 0 for others. A write may be short: the rest is then submitted
    /// again. With `sync`, a write that took all bytes was synced too.
    pub result: Result<usize, DiskError>,
    /// What was read.
    pub bytes: Vec<u8>,
    /// What was listed, in any order.
    pub files: Vec<(File, u64)>,
    /// How full the disk is, as creating a file and syncing a directory tell where the system does.
    pub fill: Option<Fill>,
}

impl Completion {
    /// A success that moved `count` bytes.
    #[must_use]
    pub fn done(id: OperationId, count: usize) -> Completion {
        Completion { id, result: Ok(count), bytes: Vec::new(), files: Vec::new(), fill: None }
    }

    /// A successful read.
    #[must_use]
    pub fn read(id: OperationId, bytes: Vec<u8>) -> Completion {
        Completion { id, result: Ok(bytes.len()), bytes, files: Vec::new(), fill: None }
    }

    /// A failure.
    #[must_use]
    pub fn failed(id: OperationId, error: DiskError) -> Completion {
        Completion { id, result: Err(error), bytes: Vec::new(), files: Vec::new(), fill: None }
    }
}

/// Operations that wait for the driver, in the order in which they were asked for.
#[derive(Debug, Default)]
pub struct Operations {
    /// To be drained by the driver.
    pub list: Vec<Operation>,
    next: u64,
}

impl Operations {
    pub(crate) fn push(&mut self, action: Action) -> OperationId {
        let id = OperationId(self.next);
        self.next += 1;
        self.list.push(Operation { id, action });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_file_is_found_again_by_its_path() {
        let log = LogId(12);
        for file in [
            File::Segment(log, 7),
            File::Checkpoint(log, u64::MAX),
            File::Root(log),
            File::Index(log),
        ] {
            assert_eq!(file.to_string().parse(), Ok(file));
        }
        for path in ["root", "log-x/root", "log-1/segment-", "log-1/other", "log-1/a-1"] {
            assert_eq!(path.parse::<File>(), Err(()));
        }
    }
}
