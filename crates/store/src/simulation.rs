//! A disk in memory that fails as real ones do.
//!
//! # Fault model
//! - What was written and not synced is in sectors of 512 bytes. At a crash each such sector is
//!   there or has its old bytes, one by one: writes are torn, reordered and lost. A sector itself
//!   is never torn. Operations under way at a crash have happened, wholly, in part or not at all.
//! - A sync makes everything durable that was written to the file before. A failed sync makes
//!   any part of it durable, and what is not is gone from then on: it will not be written by a
//!   later sync either. Who reads the file still sees it, this program and the next, until the
//!   system is told to forget it ([`Action::Reload`]) or the power fails.
//! - A created or removed name is certain after a sync of the directory; before, a crash may undo
//!   it. A file that grows by writing has its length and bytes after a sync.
//! - Operations take any time and end in any order.
//! - By chance, as [`Faults`] says: a write takes only some bytes; a read, write or sync fails.
//!   A full disk refuses to create or to grow files; bytes allocated before can be written.
//! - For a time, as [`Outage`] says: every operation of a kind fails, whatever it is for, or no file
//!   can be opened that the program has not open.
//! - Bits of what is synced flip only when [`Disk::flip`] is called.

mod plain;

pub use plain::Plain;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use lepus_base::Rng;

use crate::disk::{Action, Completion, DiskError, File, Fill, LogId, Operation, OperationId};

/// Bytes that are written whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Chances out of 1,000 per operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A write takes only some of its bytes.
    pub short_write: u64,
    /// A read fails.
    pub read_error: u64,
    /// A write fails.
    pub write_error: u64,
    /// A sync fails, also one that belongs to a write.
    pub sync_error: u64,
}

/// Operations that all fail for as long as this lasts, without having done anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    /// Reads.
    pub reads: bool,
    /// Files are not made, and get no blocks ahead of need.
    pub creates: bool,
    /// Files are not removed.
    pub deletes: bool,
    /// Names of files are not made durable.
    pub directory_syncs: bool,
    /// There are no descriptors ([`DiskError::Busy`]): only files that are open can be used.
    pub opens: bool,
    /// Writes, of which nothing is done.
    pub writes: bool,
    /// What operations of these kinds end with; `None` stands for [`DiskError::Failed`].
    pub error: Option<DiskError>,
}

impl Outage {
    /// What an operation ends with if it fails; `is_open` says whether the program has its file open.
    fn hits(&self, action: &Action, is_open: bool) -> Option<DiskError> {
        let of_its_kind = match action {
            Action::Read { .. } => self.reads,
            Action::Create { .. } | Action::Reserve { .. } => self.creates,
            Action::Delete(_) => self.deletes,
            Action::SyncDirectory(_) => self.directory_syncs,
            Action::Write { .. } | Action::Truncate { .. } => self.writes,
            Action::List(_) | Action::Sync(_) | Action::Reload(_) => false,
        };
        // A file is removed by its name.
        let opens = !is_open && !matches!(action, Action::Delete(_));
        match of_its_kind {
            true => Some(self.error.unwrap_or(DiskError::Failed)),
            false => (self.opens && opens).then_some(DiskError::Busy),
        }
    }
}

/// Files that a program has open at the same time, by default.
const OPEN_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
struct Content {
    /// As the running program sees it.
    data: Vec<u8>,
    /// As a crash leaves it, without luck.
    synced: Vec<u8>,
    /// Sectors that differ, perhaps.
    dirty: BTreeSet<usize>,
    /// The directory knows the name for certain.
    is_named: bool,
}

impl Content {
    fn sector(bytes: &[u8], sector: usize) -> &[u8] {
        let start = (sector * SECTOR_BYTES).min(bytes.len());
        &bytes[start..bytes.len().min(start + SECTOR_BYTES)]
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
    }

    fn sync(&mut self) {
        let dirty = core::mem::take(&mut self.dirty);
        self.synced.resize(self.data.len(), 0);
        for sector in dirty {
            let bytes = Content::sector(&self.data, sector);
            let start = sector * SECTOR_BYTES;
            self.synced[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Keeps each unsynced sector with a chance of `keep` in 100.
    fn settle(&mut self, keep: u64, rng: &mut Rng) {
        let dirty = core::mem::take(&mut self.dirty);
        let kept: Vec<usize> = dirty.into_iter().filter(|_| rng.chance(keep, 100)).collect();
        let end = kept.last().map_or(0, |last| (last + 1) * SECTOR_BYTES);
        let length = self.synced.len().max(end.min(self.data.len()));
        self.synced.resize(length, 0);
        for sector in kept {
            let bytes = Content::sector(&self.data, sector);
            let start = sector * SECTOR_BYTES;
            self.synced[start..start + bytes.len()].copy_from_slice(bytes);
        }
        self.data.clone_from(&self.synced);
    }
}

/// See the module.
#[derive(Debug)]
pub struct Disk {
    rng: Rng,
    files: BTreeMap<File, Content>,
    /// Removed, and the directory not synced since.
    removed: BTreeMap<File, Content>,
    pending: Vec<Operation>,
    /// What goes wrong by chance.
    pub faults: Faults,
    /// What fails now.
    pub outage: Outage,
    /// Files that the program has open, the one used last at the end.
    open: VecDeque<File>,
    /// How many of them at most; the one not used for longest is closed for another.
    pub open_max: usize,
    /// Bytes of all files at most.
    pub bytes_max: u64,
    /// Operations carried out so far.
    pub operations: u64,
}

impl Disk {
    /// An empty disk; the seed decides about time and chance.
    #[must_use]
    pub fn new(seed: u64) -> Disk {
        Disk {
            rng: Rng::new(seed),
            files: BTreeMap::new(),
            removed: BTreeMap::new(),
            pending: Vec::new(),
            faults: Faults::default(),
            outage: Outage::default(),
            open: VecDeque::new(),
            open_max: OPEN_MAX,
            bytes_max: u64::MAX,
            operations: 0,
        }
    }

    /// Takes operations over.
    pub fn submit(&mut self, operations: &mut Vec<Operation>) {
        self.pending.append(operations);
    }

    /// Operations under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Carries one of the operations out, any of them.
    pub fn step(&mut self) -> Option<Completion> {
        if self.pending.is_empty() {
            return None;
        }
        let index = self.rng.below(self.pending.len() as u64) as usize;
        let operation = self.pending.swap_remove(index);
        self.operations += 1;
        Some(self.carry_out(operation))
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|content| content.data.len() as u64).sum()
    }

    /// All files with their lengths.
    pub fn files(&self) -> impl Iterator<Item = (File, u64)> {
        self.files.iter().map(|(&file, content)| (file, content.data.len() as u64))
    }

    /// The bytes of a file as the running program sees them.
    #[must_use]
    pub fn data(&self, file: File) -> Option<&[u8]> {
        self.files.get(&file).map(|content| content.data.as_slice())
    }

    /// Puts a file there, durable.
    pub fn put(&mut self, file: File, bytes: Vec<u8>) {
        let content =
            Content { synced: bytes.clone(), data: bytes, dirty: BTreeSet::new(), is_named: true };
        self.files.insert(file, content);
    }

    /// Takes a file away, durable.
    pub fn remove(&mut self, file: File) {
        self.files.remove(&file);
    }

    /// Takes a log's directory away with all that was ever in it, durable.
    pub fn remove_log(&mut self, log: LogId) {
        self.files.retain(|file, _| file.log() != log);
        self.removed.retain(|file, _| file.log() != log);
    }

    /// Turns a bit of a file over, on the disk and for readers.
    pub fn flip(&mut self, file: File, offset: usize, bit: u8) {
        let Some(content) = self.files.get_mut(&file) else { return };
        for bytes in [&mut content.data, &mut content.synced] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// Power fails: what was not certain is decided by chance, and nothing is under way any more.
    pub fn crash(&mut self) {
        let keep = [0, 10, 50, 90, 100][self.rng.below(5) as usize];
        for operation in core::mem::take(&mut self.pending) {
            if self.rng.chance(1, 2) && !matches!(operation.action, Action::Read { .. }) {
                let _ = self.carry_out(operation);
            }
        }
        for (file, content) in core::mem::take(&mut self.removed) {
            if self.rng.chance(1, 2) {
                self.files.entry(file).or_insert(content);
            }
        }
        let rng = &mut self.rng;
        self.files.retain(|_, content| content.is_named || rng.chance(1, 2));
        for content in self.files.values_mut() {
            content.settle(keep, rng);
            content.is_named = true;
        }
        self.open.clear();
    }

    /// The program ends; the system goes on and keeps what was written.
    pub fn kill(&mut self) {
        for operation in core::mem::take(&mut self.pending) {
            if self.rng.chance(1, 2) && !matches!(operation.action, Action::Read { .. }) {
                let _ = self.carry_out(operation);
            }
        }
        self.open.clear();
    }

    fn fails(&mut self, chance: u64) -> bool {
        self.rng.chance(chance, 1000)
    }

    /// Opens the file that an action uses.
    fn open(&mut self, action: &Action) -> Result<(), DiskError> {
        let file = action.file();
        let is_open = file.is_some_and(|file| self.open.contains(&file));
        if let Some(error) = self.outage.hits(action, is_open) {
            return Err(error);
        }
        let Some(file) = file else { return Ok(()) };
        self.open.retain(|open| *open != file);
        if !matches!(action, Action::Delete(_)) {
            self.open.push_back(file);
        }
        if self.open.len() > self.open_max {
            self.open.pop_front();
        }
        Ok(())
    }

    fn carry_out(&mut self, operation: Operation) -> Completion {
        let id = operation.id;
        if let Err(error) = self.open(&operation.action) {
            return Completion::failed(id, error);
        }
        match operation.action {
            Action::List(log) => self.list(id, log),
            Action::Create { file, length } => {
                if self.bytes() + length > self.bytes_max {
                    return Completion::failed(id, DiskError::Full);
                }
                let bytes = vec![0; length as usize];
                let content = Content {
                    synced: bytes.clone(),
                    data: bytes,
                    dirty: BTreeSet::new(),
                    is_named: false,
                };
                self.files.insert(file, content);
                Completion { fill: self.fill(), ..Completion::done(id, 0) }
            }
            Action::Reserve { from, file, length } => self.reserve(id, from, file, length),
            Action::Write { file, offset, bytes, start, sync } => {
                self.write(id, file, offset as usize, &bytes[start..], sync)
            }
            Action::Sync(file) => match self.sync(file) {
                Ok(()) => Completion::done(id, 0),
                Err(error) => Completion::failed(id, error),
            },
            Action::Reload(file) => match self.sync(file) {
                Ok(()) => {
                    if let Some(content) = self.files.get_mut(&file) {
                        content.data.clone_from(&content.synced);
                    }
                    Completion::done(id, 0)
                }
                Err(error) => Completion::failed(id, error),
            },
            Action::Read { file, offset, length } => {
                if self.fails(self.faults.read_error) {
                    return Completion::failed(id, DiskError::Failed);
                }
                let Some(content) = self.files.get(&file) else {
                    return Completion::failed(id, DiskError::NotFound);
                };
                let start = (offset as usize).min(content.data.len());
                let end = start.saturating_add(length).min(content.data.len());
                Completion::read(id, content.data[start..end].to_vec())
            }
            Action::Truncate { file, length } => {
                // What is cut comes back if the power fails before the file is synced.
                if let Some(content) = self.files.get_mut(&file) {
                    content.data.truncate(length as usize);
                    content.dirty.retain(|sector| sector * SECTOR_BYTES < length as usize);
                }
                Completion::done(id, 0)
            }
            Action::Delete(file) => {
                if let Some(content) = self.files.remove(&file)
                    && content.is_named
                {
                    self.removed.insert(file, content);
                }
                Completion::done(id, 0)
            }
            Action::SyncDirectory(log) => {
                for (file, content) in &mut self.files {
                    content.is_named |= file.log() == log;
                }
                self.removed.retain(|file, _| file.log() != log);
                Completion { fill: self.fill(), ..Completion::done(id, 0) }
            }
        }
    }

    fn fill(&self) -> Option<Fill> {
        let is_nearly_full = self.bytes() >= self.bytes_max / 4 * 3;
        Some(if is_nearly_full { Fill::Nearly } else { Fill::Ample })
    }

    fn reserve(
        &mut self,
        id: OperationId,
        from: Option<File>,
        file: File,
        length: u64,
    ) -> Completion {
        if let Some(content) = from.and_then(|from| Some((from, self.files.remove(&from)?))) {
            let (from, content) = content;
            self.files.insert(file, Content { is_named: false, ..content.clone() });
            if content.is_named {
                self.removed.insert(from, content);
            }
        }
        let before = self.files.get(&file).map_or(0, |content| content.data.len() as u64);
        if self.bytes() + length.saturating_sub(before) > self.bytes_max {
            return Completion::failed(id, DiskError::Full);
        }
        let content = self.files.entry(file).or_default();
        content.data.resize(length as usize, 0);
        content.synced.resize(length as usize, 0);
        // What was longer is cut.
        content.dirty.retain(|sector| sector * SECTOR_BYTES < length as usize);
        Completion::done(id, 0)
    }

    fn list(&self, id: OperationId, log: LogId) -> Completion {
        let files = self.files().filter(|(file, _)| file.log() == log).collect();
        Completion { files, ..Completion::done(id, 0) }
    }

    fn write(
        &mut self,
        id: OperationId,
        file: File,
        offset: usize,
        bytes: &[u8],
        sync: bool,
    ) -> Completion {
        let length = self.files.get(&file).map_or(0, |content| content.data.len());
        let growth = (offset + bytes.len()).saturating_sub(length) as u64;
        if growth > 0 && self.bytes() + growth > self.bytes_max {
            return Completion::failed(id, DiskError::Full);
        }
        let is_failed = self.fails(self.faults.write_error);
        let is_short = self.fails(self.faults.short_write);
        let count = if is_failed || is_short {
            self.rng.below(bytes.len() as u64 + 1) as usize
        } else {
            bytes.len()
        };
        let content = self.files.entry(file).or_default();
        content.write(offset, &bytes[..count]);
        if is_failed {
            return Completion::failed(id, DiskError::Failed);
        }
        if is_short && count == 0 {
            // A call that takes nothing is repeated by the driver.
            return self.write(id, file, offset, bytes, sync);
        }
        if sync
            && count == bytes.len()
            && let Err(error) = self.sync(file)
        {
            return Completion::failed(id, error);
        }
        Completion::done(id, count)
    }

    fn sync(&mut self, file: File) -> Result<(), DiskError> {
        let is_failed = self.fails(self.faults.sync_error);
        let Some(content) = self.files.get_mut(&file) else { return Err(DiskError::NotFound) };
        if is_failed {
            // The running program still sees its bytes; they will never be written.
            let seen = content.data.clone();
            content.settle(50, &mut self.rng);
            content.data = seen;
            return Err(DiskError::Failed);
        }
        content.sync();
        Ok(())
    }
}
