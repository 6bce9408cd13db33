//! A disk in memory that does what it is asked to, in order, and counts.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use lepus_base::Now;

use crate::Store;
use crate::disk::{Action, Completion, DiskError, File, Operation, Operations};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    files: BTreeMap<File, Vec<u8>>,
    pending: VecDeque<Operation>,
    /// Segments have a length and no bytes: for runs that are longer than memory.
    pub forgets_segments: bool,
    /// Bytes written to segments.
    pub log_bytes: u64,
    /// Bytes written to anything else.
    pub index_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads.
    pub reads: u64,
}

impl Plain {
    /// Takes operations over.
    pub fn submit(&mut self, operations: &mut Vec<Operation>) {
        self.pending.extend(operations.drain(..));
    }

    /// Carries the oldest operation out.
    pub fn step(&mut self) -> Option<Completion> {
        let operation = self.pending.pop_front()?;
        Some(self.carry_out(operation))
    }

    /// Carries operations out until there are none left.
    pub fn run(&mut self, store: &mut Store, now: Now, out: &mut Operations) {
        self.submit(&mut out.list);
        while let Some(completion) = self.step() {
            store.complete(now, completion, out);
            self.submit(&mut out.list);
        }
    }

    /// The length of a file; 0 if there is none.
    #[must_use]
    pub fn length(&self, file: File) -> u64 {
        self.files.get(&file).map_or(0, |bytes| bytes.len() as u64)
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|bytes| bytes.len() as u64).sum()
    }

    fn carry_out(&mut self, operation: Operation) -> Completion {
        let id = operation.id;
        match operation.action {
            Action::List(log) => {
                let files = self.files.iter().filter(|(file, _)| file.log() == log);
                let files = files.map(|(&file, bytes)| (file, bytes.len() as u64)).collect();
                Completion { files, ..Completion::done(id, 0) }
            }
            Action::Create { file, length } => {
                let is_forgotten = self.forgets_segments && matches!(file, File::Segment(..));
                let length = if is_forgotten { 0 } else { length as usize };
                self.files.insert(file, vec![0; length]);
                Completion::done(id, 0)
            }
            Action::Reserve { from, file, length } => {
                let mut bytes = from.and_then(|from| self.files.remove(&from)).unwrap_or_default();
                bytes.resize(length as usize, 0);
                self.files.insert(file, bytes);
                Completion::done(id, 0)
            }
            Action::Write { file, offset, bytes, start, .. } => {
                let part = &bytes[start..];
                let is_segment = matches!(file, File::Segment(..));
                let count = if is_segment { &mut self.log_bytes } else { &mut self.index_bytes };
                *count += part.len() as u64;
                if !(is_segment && self.forgets_segments) {
                    let data = self.files.entry(file).or_default();
                    let end = offset as usize + part.len();
                    if data.len() < end {
                        data.resize(end, 0);
                    }
                    data[offset as usize..end].copy_from_slice(part);
                }
                Completion::done(id, part.len())
            }
            Action::Read { file, offset, length } => {
                let Some(data) = self.files.get(&file) else {
                    return Completion::failed(id, DiskError::NotFound);
                };
                let start = (offset as usize).min(data.len());
                let end = start.saturating_add(length).min(data.len());
                self.reads += 1;
                self.read_bytes += (end - start) as u64;
                Completion::read(id, data[start..end].to_vec())
            }
            Action::Truncate { file, length } => {
                if let Some(data) = self.files.get_mut(&file) {
                    data.truncate(length as usize);
                }
                Completion::done(id, 0)
            }
            Action::Delete(file) => {
                self.files.remove(&file);
                Completion::done(id, 0)
            }
            Action::Sync(_) | Action::Reload(_) | Action::SyncDirectory(_) => {
                Completion::done(id, 0)
            }
        }
    }
}
