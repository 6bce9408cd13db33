//! One operation, carried out.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lepus_store::disk::{Action, Completion, DiskError, File, Fill, LogId, Operation, OperationId};
use rustix::io::Errno;

use super::open::OpenFiles;
use super::space::{allocate, fill, has_room};

/// Files of a kind kept open at once.
const OPEN_MAX: usize = 64;

/// What the system said about an operation that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was tried, with the path: "write 4096 bytes at 8192 of /data/log-00000001/index".
    pub attempt: String,
    /// What the system said.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.attempt, self.reason)
    }
}

/// How much of a disk is to stay free, in bytes; clones share it, and it may change.
#[derive(Clone, Debug, Default)]
pub struct FreeLimit(Arc<AtomicU64>);

impl FreeLimit {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> FreeLimit {
        FreeLimit(Arc::new(AtomicU64::new(bytes)))
    }

    /// What it is now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// From the next segment on it is this.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

impl PartialEq for FreeLimit {
    fn eq(&self, other: &FreeLimit) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for FreeLimit {}

/// The log files below one directory. Usable from several threads; none waits for another's I/O.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    free_bytes_min: FreeLimit,
    open: OpenFiles,
}

/// What an operation brought.
#[derive(Default)]
struct Yield {
    count: usize,
    bytes: Vec<u8>,
    files: Vec<(File, u64)>,
    fill: Option<Fill>,
}

impl Files {
    /// Files below `directory`, which exists. A new segment is refused as on a full disk when it
    /// would leave less than `free_bytes_min` bytes of the disk free.
    #[must_use]
    pub fn new(directory: &Path, free_bytes_min: u64) -> Files {
        let open = OpenFiles::new(OPEN_MAX);
        let free_bytes_min = FreeLimit::new(free_bytes_min);
        Files { directory: directory.to_owned(), free_bytes_min, open }
    }

    /// Leaves as much of the disk free as the limit is at that moment.
    #[must_use]
    pub fn with_free_limit(self, limit: &FreeLimit) -> Files {
        Files { free_bytes_min: limit.clone(), ..self }
    }

    /// Keeps no more than `count` files open that are written, and as many that are only read; without
    /// this it is 64 of each.
    #[must_use]
    pub fn with_open_max(self, count: usize) -> Files {
        Files { open: OpenFiles::new(count.min(OPEN_MAX)), ..self }
    }

    /// Carries the operation out. A failure comes with what the system said, unless it is an
    /// ordinary one: a full disk, a missing file.
    pub fn carry_out(&self, operation: Operation) -> (Completion, Option<Failure>) {
        let Operation { id, action } = operation;
        let result = match &action {
            Action::List(log) => self.list(*log),
            Action::Create { file, length } => self.create(*file, *length),
            Action::Reserve { from, file, length } => self.reserve(*from, *file, *length),
            Action::Write { file, offset, bytes, start, sync } => {
                self.write(*file, *offset, bytes.get(*start..).unwrap_or(&[]), *sync)
            }
            Action::Sync(file) => self.sync(*file),
            Action::Reload(file) => self.reload(*file),
            Action::Read { file, offset, length } => self.read(*file, *offset, *length),
            Action::Truncate { file, length } => self.truncate(*file, *length),
            Action::Delete(file) => self.delete(*file),
            Action::SyncDirectory(log) => {
                let directory = self.log_directory(*log);
                let synced = self.with_descriptor(|| sync_directory(&directory));
                synced.map(|()| Yield { fill: self.fill(), ..Yield::default() })
            }
        };
        match result {
            Ok(gain) => (completion(id, gain), None),
            Err(error) => {
                let kind = kind_of(&error, &action);
                let failure = matches!(kind, DiskError::Failed | DiskError::Busy)
                    .then(|| Failure { attempt: self.attempt(&action), reason: error.to_string() });
                (Completion::failed(id, kind), failure)
            }
        }
    }

    fn log_directory(&self, log: LogId) -> PathBuf {
        self.directory.join(log.to_string())
    }

    fn path(&self, file: File) -> PathBuf {
        self.directory.join(file.to_string())
    }

    /// The operation in words.
    fn attempt(&self, action: &Action) -> String {
        let path = |file: &File| self.path(*file).display().to_string();
        match action {
            Action::List(log) => format!("list {}", self.log_directory(*log).display()),
            Action::Create { file, length } => {
                format!("create {} with {length} bytes", path(file))
            }
            Action::Reserve { file, length, .. } => {
                format!("take room of {length} bytes for {}", path(file))
            }
            Action::Write { file, offset, bytes, start, sync } => {
                let count = bytes.len().saturating_sub(*start);
                let and_sync = if *sync { " and sync it" } else { "" };
                format!("write {count} bytes at {offset} of {}{and_sync}", path(file))
            }
            Action::Sync(file) | Action::Reload(file) => format!("sync {}", path(file)),
            Action::Read { file, offset, length } => {
                format!("read {length} bytes at {offset} of {}", path(file))
            }
            Action::Truncate { file, length } => {
                format!("cut {} to {length} bytes", path(file))
            }
            Action::Delete(file) => format!("remove {}", path(file)),
            Action::SyncDirectory(log) => {
                format!("sync the directory {}", self.log_directory(*log).display())
            }
        }
    }

    /// The open file; opened if need be, and with `writes` made.
    fn get(&self, name: File, writes: bool) -> io::Result<Arc<fs::File>> {
        let missing = match self.open.find(name, writes) {
            Ok(file) => return Ok(file),
            Err(missing) => missing,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(writes).mode(0o600);
        let path = self.path(name);
        let file = match self.with_descriptor(|| options.open(&path)) {
            // A disk that takes no writes any more can be read all the same.
            Err(error) if !writes && forbids_writes(&error) => {
                return Ok(Arc::new(self.with_descriptor(|| fs::File::open(&path))?));
            }
            opened => Arc::new(opened?),
        };
        self.open.keep(name, missing, &file, writes);
        Ok(file)
    }

    /// Opens something. Where there is no file descriptor left, files that are only read are closed for it: they
    /// can be opened again, and must not keep each other waiting for as long as others hold the rest.
    fn with_descriptor<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                Err(error) if is_out_of_descriptors(&error) && self.open.close_one() => {}
                result => return result,
            }
        }
    }

    fn list(&self, log: LogId) -> io::Result<Yield> {
        let directory = self.log_directory(log);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        self.with_descriptor(|| sync_directory(&self.directory))?;
        let mut files = Vec::new();
        for entry in self.with_descriptor(|| fs::read_dir(&directory))? {
            let entry = entry?;
            let name = format!("{log}/{}", entry.file_name().to_string_lossy());
            // Other files are none of the store's.
            if let Ok(file) = name.parse() {
                files.push((file, entry.metadata()?.len()));
            }
        }
        Ok(Yield { files, ..Yield::default() })
    }

    fn create(&self, name: File, length: u64) -> io::Result<Yield> {
        let is_segment = matches!(name, File::Segment(..));
        if is_segment && !has_room(&self.directory, length, self.free_bytes_min.bytes()) {
            return Err(ErrorKind::StorageFull.into());
        }
        let file = self.get(name, true)?;
        let filled = file
            .set_len(0)
            .and_then(|()| allocate(&file, length))
            .and_then(|()| uninterrupted(|| file.sync_all()));
        if let Err(error) = filled {
            // Half a file would take the room that something else may need.
            let _ = self.delete(name);
            return Err(error);
        }
        Ok(Yield { fill: self.fill(), ..Yield::default() })
    }

    fn fill(&self) -> Option<Fill> {
        fill(&self.directory, self.free_bytes_min.bytes())
    }

    fn reserve(&self, from: Option<File>, name: File, length: u64) -> io::Result<Yield> {
        if let Some(from) = from {
            let renamed = fs::rename(self.path(from), self.path(name));
            self.open.removed(from);
            self.open.removed(name);
            if let Err(error) = renamed
                && error.kind() != ErrorKind::NotFound
            {
                return Err(error);
            }
        }
        let file = self.get(name, true)?;
        allocate(&file, length)?;
        Ok(Yield::default())
    }

    fn write(&self, name: File, offset: u64, bytes: &[u8], sync: bool) -> io::Result<Yield> {
        let file = self.get(name, true)?;
        if offset == 0 && matches!(name, File::Segment(..)) {
            forget_pages(&file);
        }
        let count = uninterrupted(|| file.write_at(bytes, offset))?;
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        if sync && count == bytes.len() {
            sync_data(&file)?;
        }
        Ok(Yield { count, ..Yield::default() })
    }

    fn sync(&self, name: File) -> io::Result<Yield> {
        sync_data(&*self.get(name, false)?)?;
        Ok(Yield::default())
    }

    fn reload(&self, name: File) -> io::Result<Yield> {
        let file = self.get(name, false)?;
        sync_data(&file)?;
        forget_pages(&file);
        Ok(Yield::default())
    }

    fn read(&self, name: File, offset: u64, length: usize) -> io::Result<Yield> {
        let file = self.get(name, false)?;
        let mut bytes = Vec::new();
        // A file may seem to be longer than memory.
        bytes.try_reserve_exact(length).map_err(|_| ErrorKind::OutOfMemory)?;
        while bytes.len() < length {
            let at = offset + bytes.len() as u64;
            // The capacity may be larger than what was asked for; a file goes on.
            match rustix::io::pread(&file, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(length);
        Ok(Yield { count: bytes.len(), bytes, ..Yield::default() })
    }

    fn truncate(&self, name: File, length: u64) -> io::Result<Yield> {
        match self.get(name, false) {
            Ok(file) if file.metadata()?.len() > length => file.set_len(length)?,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Yield::default())
    }

    fn delete(&self, name: File) -> io::Result<Yield> {
        let removed = fs::remove_file(self.path(name));
        self.open.removed(name);
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(Yield::default()),
        }
    }
}

fn completion(id: OperationId, gain: Yield) -> Completion {
    Completion { id, result: Ok(gain.count), bytes: gain.bytes, files: gain.files, fill: gain.fill }
}

/// Whether a file cannot be had to be written to, and perhaps to be read.
fn forbids_writes(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
}

/// Repeats a call that a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Drops what the system still holds in memory of a file, but for what is to be written. Of a segment
/// that is about to be used again: where it was read in long pieces, each small write would otherwise
/// mark a whole piece as changed.
fn forget_pages(file: &fs::File) {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Advice, fadvise};
        // Only advice: without it more is written than needed.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// A sync that failed, for whatever reason, is no ordinary failure: what it was to keep may be lost.
fn sync_data(file: &fs::File) -> io::Result<()> {
    uninterrupted(|| file.sync_data()).map_err(|error| io::Error::other(error.to_string()))
}

/// Makes created and removed names of a directory durable.
///
/// # Errors
/// The system's. A file system that keeps names in order by itself and refuses to be told is none.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = fs::File::open(path)?;
    match uninterrupted(|| directory.sync_all()) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
        result => result,
    }
}

fn kind_of(error: &io::Error, action: &Action) -> DiskError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DiskError::Full,
        ErrorKind::NotFound
            if matches!(action, Action::Read { .. } | Action::Sync(_) | Action::Reload(_)) =>
        {
            DiskError::NotFound
        }
        _ if is_lack(error) => DiskError::Busy,
        _ => DiskError::Failed,
    }
}

/// Whether neither the process nor the system has a file descriptor left.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE];
    error.raw_os_error().is_some_and(|code| lacks.iter().any(|lack| lack.raw_os_error() == code))
}

/// Whether the system lacked what it takes, and did nothing.
fn is_lack(error: &io::Error) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    error.raw_os_error().is_some_and(|code| lacks.iter().any(|lack| lack.raw_os_error() == code))
}
