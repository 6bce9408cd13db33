//! A log opened to change messages in it, and what such commands have in common.

use super::drive::{CYCLES_MAX, Drive};
use super::{Failure, LogFiles};
use crate::random;
use lepus_store::disk::LogId;
use lepus_store::{Settings, Store};
use std::fs::{File, OpenOptions};
use std::io::BufWriter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A log that is open.
pub(super) struct Open {
    pub(super) drive: Drive,
    pub(super) store: Store,
}

impl Open {
    /// One that is only looked at.
    pub(super) fn look(directory: &Path, log: &LogFiles) -> Result<Open, Failure> {
        Open::with(Drive::looking(directory, Settings::new(log.id), log))
    }

    /// One that is written to; the directory's lock is held.
    pub(super) fn write(directory: &Path, log: LogId) -> Result<Open, Failure> {
        let key = random::log_key().map_err(Failure::Text)?;
        Open::with(Drive::new(directory, Settings { key, ..Settings::new(log) }))
    }

    fn with(mut drive: Drive) -> Result<Open, Failure> {
        match drive.open()? {
            Ok(store) => Ok(Open { drive, store }),
            Err(refusal) => {
                let text = format!(
                    "{} cannot be opened ({refusal:?}); `lepus store check` says why",
                    drive.log()
                );
                Err(Failure::Text(text))
            }
        }
    }

    /// Has what was appended and settled so far on the disk.
    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        self.store.want_synced();
        for _ in 0..CYCLES_MAX {
            self.drive.cycle(&mut self.store)?;
            if self.store.synced() >= self.store.end() {
                return Ok(());
            }
        }
        Err(self.no_room())
    }

    /// The disk does not take what it is to take.
    pub(super) fn no_room(&self) -> Failure {
        Failure::Text(format!(
            "{} takes no more; see to the disk and its room, and call again: what was moved already \
             is not moved twice, but for the last few messages",
            self.drive.log()
        ))
    }

    /// Ends as a broker does: the next start finds an orderly stop.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.sync()?;
        self.store.close();
        for _ in 0..CYCLES_MAX {
            self.drive.cycle(&mut self.store)?;
            if self.store.is_closed() {
                return Ok(());
            }
        }
        Err(self.no_room())
    }
}

/// Makes a file that is not there yet.
pub(super) fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map(BufWriter::new)
        .map_err(|error| Failure::Text(format!("cannot make {}: {error}", path.display())))
}

/// The directory that a file is in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// How many could not be read, to be put behind what was done.
pub(super) fn unreadable(count: u64) -> String {
    match count {
        0 => String::new(),
        count => format!("; {count} cannot be read"),
    }
}
