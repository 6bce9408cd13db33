//! Open files, so that a write does not begin with a search for its file.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lepus_store::disk::File;

/// Open files by name, those used longest ago closed first. Those that are written are apart: a long
/// backlog that is read must not close them, since opening them again may find no file descriptor.
#[derive(Debug)]
pub(super) struct OpenFiles {
    table: Mutex<Table>,
    /// Files kept open at once that are written, and as many that are only read.
    max: usize,
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
    is_written: bool,
}

/// What [`OpenFiles::find`] says about a file that is not open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    removals: u64,
}

impl OpenFiles {
    /// Keeps `max` files open that are written, and as many others.
    pub(super) fn new(max: usize) -> OpenFiles {
        OpenFiles { table: Mutex::default(), max: max.max(1) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A table that a panic left behind is as good as any: its entries are whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, if it is open; with `writes` it is to be written.
    pub(super) fn find(&self, name: File, writes: bool) -> Result<Arc<fs::File>, Missing> {
        let mut table = self.table();
        table.clock += 1;
        let (at, removals) = (table.clock, table.removals);
        match table.files.get_mut(&name) {
            Some(used) => {
                used.at = at;
                used.is_written |= writes;
                Ok(Arc::clone(&used.file))
            }
            None => Err(Missing { removals }),
        }
    }

    /// Keeps a file that was opened after `missing` was said. Not if a name was removed meanwhile:
    /// it could be this one's.
    pub(super) fn keep(&self, name: File, missing: Missing, file: &Arc<fs::File>, writes: bool) {
        let mut table = self.table();
        if table.removals != missing.removals {
            return;
        }
        let alike = table.files.iter().filter(|(_, used)| used.is_written == writes);
        if alike.clone().count() >= self.max {
            let oldest = alike.min_by_key(|(_, used)| used.at);
            if let Some(oldest) = oldest.map(|(name, _)| *name) {
                table.files.remove(&oldest);
            }
        }
        table.clock += 1;
        let at = table.clock;
        table.files.insert(name, Used { file: Arc::clone(file), at, is_written: writes });
    }

    /// Closes the file used longest ago of those that are only read; whether there was one.
    pub(super) fn close_one(&self) -> bool {
        let mut table = self.table();
        let read = table.files.iter().filter(|(_, used)| !used.is_written);
        let oldest = read.min_by_key(|(_, used)| used.at).map(|(name, _)| *name);
        oldest.and_then(|name| table.files.remove(&name)).is_some()
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

    fn keep(files: &OpenFiles, slot: u32, writes: bool) {
        let missing = files.find(name(slot), writes).unwrap_err();
        files.keep(name(slot), missing, &any_file(), writes);
    }

    #[test]
    fn the_file_used_longest_ago_is_closed_first() {
        let files = OpenFiles::new(8);
        (0..8).for_each(|slot| keep(&files, slot, false));
        assert!(files.find(name(0), false).is_ok());
        keep(&files, 8, false);
        assert!(files.find(name(0), false).is_ok());
        assert!(files.find(name(1), false).is_err());
        assert_eq!(files.table().files.len(), 8);
    }

    #[test]
    fn files_that_are_read_close_none_that_is_written() {
        let files = OpenFiles::new(8);
        (0..4).for_each(|slot| keep(&files, slot, true));
        // Written after it was read.
        keep(&files, 4, false);
        assert!(files.find(name(4), true).is_ok());
        (10..100).for_each(|slot| keep(&files, slot, false));
        assert!((0..5).all(|slot| files.find(name(slot), true).is_ok()));
        assert_eq!(files.table().files.len(), 5 + 8);
    }

    #[test]
    fn files_that_are_read_can_be_closed_one_by_one() {
        let files = OpenFiles::new(8);
        keep(&files, 0, true);
        (1..3).for_each(|slot| keep(&files, slot, false));
        assert!(files.find(name(1), false).is_ok());
        assert!(files.close_one());
        assert!(files.find(name(1), false).is_ok() && files.find(name(2), false).is_err());
        assert!(files.close_one() && !files.close_one());
        assert!(files.find(name(0), true).is_ok());
    }

    #[test]
    fn a_file_opened_before_its_name_was_removed_is_not_kept() {
        let files = OpenFiles::new(8);
        let missing = files.find(name(1), false).unwrap_err();
        files.removed(name(1));
        files.keep(name(1), missing, &any_file(), false);
        assert!(files.find(name(1), false).is_err());
    }
}
