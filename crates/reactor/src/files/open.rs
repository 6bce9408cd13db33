//! Open files, so that a write does not begin with a search for its file.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lepus_store::disk::File;

/// Files kept open at once.
const OPEN_MAX: usize = 64;

/// Open files by name, those used longest ago closed first.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<File, Used>,
    /// Grows with each use.
    clock: u64,
    /// Names removed so far.
    removals: u64,
}

#[derive(Debug)]
struct Used {
    file: Arc<fs::File>,
    at: u64,
}

/// What [`OpenFiles::find`] says about a file that is not open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    removals: u64,
}

impl OpenFiles {
    fn table(&self) -> MutexGuard<'_, Table> {
        // A table that a panic left behind is as good as any: its entries are whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, if it is open.
    pub(super) fn find(&self, name: File) -> Result<Arc<fs::File>, Missing> {
        let mut table = self.table();
        table.clock += 1;
        let (at, removals) = (table.clock, table.removals);
        match table.files.get_mut(&name) {
            Some(used) => {
                used.at = at;
                Ok(Arc::clone(&used.file))
            }
            None => Err(Missing { removals }),
        }
    }

    /// Keeps a file that was opened after `missing` was said. Not if a name was removed meanwhile:
    /// it could be this one's.
    pub(super) fn keep(&self, name: File, missing: Missing, file: &Arc<fs::File>) {
        let mut table = self.table();
        if table.removals != missing.removals {
            return;
        }
        if table.files.len() >= OPEN_MAX {
            let oldest = table.files.iter().min_by_key(|(_, used)| used.at);
            if let Some(oldest) = oldest.map(|(name, _)| *name) {
                table.files.remove(&oldest);
            }
        }
        table.clock += 1;
        let at = table.clock;
        table.files.insert(name, Used { file: Arc::clone(file), at });
    }

    /// The name was removed from the disk.
    pub(super) fn removed(&self, name: File) {
        let mut table = self.table();
        table.removals += 1;
        table.files.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_store::disk::LogId;

    fn any_file() -> Arc<fs::File> {
        Arc::new(fs::File::open("/dev/null").unwrap())
    }

    fn name(slot: u32) -> File {
        File::Segment(LogId(1), slot)
    }

    fn keep(files: &OpenFiles, slot: u32) {
        let missing = files.find(name(slot)).unwrap_err();
        files.keep(name(slot), missing, &any_file());
    }

    #[test]
    fn the_file_used_longest_ago_is_closed_first() {
        let files = OpenFiles::default();
        let count = OPEN_MAX as u32;
        (0..count).for_each(|slot| keep(&files, slot));
        assert!(files.find(name(0)).is_ok());
        keep(&files, count);
        assert!(files.find(name(0)).is_ok());
        assert!(files.find(name(1)).is_err());
        assert_eq!(files.table().files.len(), OPEN_MAX);
    }

    #[test]
    fn a_file_opened_before_its_name_was_removed_is_not_kept() {
        let files = OpenFiles::default();
        let missing = files.find(name(1)).unwrap_err();
        files.removed(name(1));
        files.keep(name(1), missing, &any_file());
        assert!(files.find(name(1)).is_err());
    }
}
