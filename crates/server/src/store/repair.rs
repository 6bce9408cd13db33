//! `lepus store repair`: a log recovered as far as it can be, and written anew without what cannot
//! be read.

mod definitions;

use super::drive::Drive;
use super::{Call, Failure, LogFiles, logs};
use crate::data_dir::DataDir;
use crate::random;
use lepus_base::QueueId;
use lepus_broker::definitions::{DefinitionsLog, LOG};
use lepus_perf::to_stderr;
use lepus_store::disk::{File, LogId};
use lepus_store::{Damage, Entry, LaneSlot, Refusal, Settings, Store};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Below the data directory: files that could not be used.
const REMOVED: &str = "removed";
/// What is copied at once, and what of it where not all of it can be read.
const COPY_BYTES: usize = 1 << 20;
const SECTOR_BYTES: usize = 4096;

/// What a repair found and did in one log.
#[derive(Debug, Default)]
struct Losses {
    damages: Vec<Damage>,
    removed: Vec<File>,
    /// Messages that could not be read, per queue.
    messages: BTreeMap<QueueId, u64>,
    /// Those that could.
    kept: u64,
}

/// Repairs the logs of a directory, or a copy.
pub(super) fn repair(call: &Call, out: &mut impl Write) -> Result<bool, Failure> {
    // Says no before anything is made.
    let found = logs(&call.directory, call.log)?;
    let held = DataDir::open(&call.directory).map_err(|error| Failure::Text(error.to_string()))?;
    let (directory, _held) = match &call.copy {
        Some(copy) => {
            copy_all(&call.directory, copy)?;
            let other = DataDir::open(copy).map_err(|error| Failure::Text(error.to_string()))?;
            (copy.as_path(), (held, Some(other)))
        }
        None => {
            to_stderr(format_args!(
                "lepus: what cannot be read in {} is gone after this; with --to COPY a copy is \
                 repaired instead",
                call.directory.display()
            ));
            (call.directory.as_path(), (held, None))
        }
    };
    for log in found {
        if log.id == LOG {
            Repair::new(directory, log.id)?.definitions(out)?;
            continue;
        }
        // A log that is opened to be written to does not look orderly any more.
        let losses = match whole(directory, &log)? {
            Some(kept) => Losses { kept, ..Losses::default() },
            None => Repair::new(directory, log.id)?.run()?,
        };
        report(log.id, &losses, out)?;
    }
    Ok(true)
}

/// How many messages a log has of which all can be read; `None` where something is to be repaired.
fn whole(directory: &Path, log: &LogFiles) -> Result<Option<u64>, Failure> {
    let mut drive = Drive::looking(directory, Settings::new(log.id), log);
    let Ok(mut store) = drive.open()? else { return Ok(None) };
    let (mut kept, mut lost) = (0, 0);
    for (_, slot) in Drive::lanes(&store) {
        let tally = drive.read_lane(&mut store, slot, &mut |_, _| Ok(()))?;
        kept += tally.kept;
        lost += tally.lost;
    }
    let is_whole = drive.damages.is_empty() && lost == 0 && store.damaged_segments().is_empty();
    Ok(is_whole.then_some(kept))
}

fn report(log: LogId, losses: &Losses, out: &mut impl Write) -> Result<(), Failure> {
    let is_whole = losses.damages.is_empty() && losses.removed.is_empty();
    if is_whole && losses.messages.is_empty() {
        writeln!(out, "{log}: no damage, {} messages; nothing was changed", losses.kept)?;
        return Ok(());
    }
    writeln!(out, "{log}: repaired; {} messages can be read", losses.kept)?;
    for Damage { file, offset, bytes } in &losses.damages {
        writeln!(out, "  damaged: {file} at {offset}, {bytes} bytes")?;
    }
    for file in &losses.removed {
        writeln!(out, "  moved to {REMOVED}/{file}: it cannot be used")?;
    }
    for (queue, count) in &losses.messages {
        writeln!(out, "  lost: {count} messages of queue {}", queue.0)?;
    }
    if losses.messages.is_empty() {
        writeln!(out, "  no message that the index knows is lost")?;
    }
    Ok(())
}

/// One log being repaired.
struct Repair {
    drive: Drive,
    losses: Losses,
}

impl Repair {
    fn new(directory: &Path, log: LogId) -> Result<Repair, Failure> {
        let key = random::log_key().map_err(Failure::Text)?;
        let settings = match log {
            LOG => Settings { asks_first: true, key, ..DefinitionsLog::settings() },
            _ => Settings { compaction_rate: u64::MAX, key, ..Settings::new(log) },
        };
        Ok(Repair { drive: Drive::new(directory, settings), losses: Losses::default() })
    }

    fn run(mut self) -> Result<Losses, Failure> {
        let mut store = self.open()?;
        for (lane, slot) in Drive::lanes(&store) {
            self.read_lane(&mut store, lane.queue, slot)?;
        }
        for (number, file, bytes) in store.damaged_segments() {
            let is_told = self.drive.damages.iter().any(|damage| damage.file == file);
            if !is_told {
                self.drive.damages.push(Damage { file, offset: 0, bytes: bytes.into() });
            }
            store.release_damage(number);
        }
        let is_whole = self.drive.damages.is_empty() && self.losses.removed.is_empty();
        if !is_whole {
            // What is whole around the damage moves; the files are free then.
            for damage in &self.drive.damages {
                store.empty_segment(damage.file);
            }
            // The second checkpoint shows what the first made free.
            for _ in 0..2 {
                self.drive.rest(&mut store)?;
            }
        }
        self.losses.damages = self.drive.damages;
        Ok(self.losses)
    }

    /// Opens the log; files that keep it from being opened are moved away.
    fn open(&mut self) -> Result<Store, Failure> {
        loop {
            let opened = self.drive.open()?;
            let path = |file: File| self.drive.directory.join(file.to_string());
            match opened {
                Ok(store) => return Ok(store),
                Err(Refusal::Version(file, version)) => {
                    return Err(Failure::Text(format!(
                        "{} is of format version {version}, which this lepus cannot read; nothing \
                         was changed in its log: repair it with the version that wrote it",
                        path(file).display()
                    )));
                }
                Err(Refusal::Foreign(file)) => self.remove(file)?,
                Err(Refusal::Disk(file, error)) => {
                    return Err(Failure::Text(format!("{}: {error:?}", path(file).display())));
                }
            }
        }
    }

    fn remove(&mut self, file: File) -> Result<(), Failure> {
        let directory = &self.drive.directory;
        let from = directory.join(file.to_string());
        let to = directory.join(REMOVED).join(file.to_string());
        let moved = || {
            std::fs::create_dir_all(to.parent().unwrap_or(directory))?;
            std::fs::rename(&from, &to)
        };
        moved()
            .map_err(|error| Failure::Text(format!("cannot move {}: {error}", from.display())))?;
        self.losses.removed.push(file);
        Ok(())
    }

    /// Looks every message of a lane up; those that cannot be read are settled.
    fn read_lane(
        &mut self,
        store: &mut Store,
        queue: QueueId,
        slot: LaneSlot,
    ) -> Result<(), Failure> {
        let mut unreadable: Vec<Entry> = Vec::new();
        let tally = self.drive.read_lane(store, slot, &mut |entry, message| {
            if message.is_none() {
                unreadable.push(*entry);
            }
            Ok(())
        })?;
        for entry in unreadable {
            store.settle(slot, entry.seq, entry.position, entry.bytes);
        }
        self.losses.kept += tally.kept;
        if tally.lost > 0 {
            *self.losses.messages.entry(queue).or_default() += tally.lost;
        }
        Ok(())
    }
}

/// Copies the logs and everything else below a directory; `to` must not exist.
fn copy_all(from: &Path, to: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::Text(format!("cannot copy to {}: {error}", to.display()));
    std::fs::create_dir(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else if kind.is_file() && entry.file_name() != "lepus.lock" {
            copy_file(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Copies a file. Zeros stand for what the disk does not give of it, as for other damage.
fn copy_file(from: &Path, to: &Path) -> Result<(), Failure> {
    let unread = |error| Failure::Text(format!("cannot read {}: {error}", from.display()));
    let failed = |error| Failure::Text(format!("cannot copy to {}: {error}", to.display()));
    let source = fs::File::open(from).map_err(unread)?;
    let found = source.metadata().map_err(unread)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(found.mode() & 0o777);
    let target = options.open(to).map_err(failed)?;
    target.set_len(found.len()).map_err(failed)?;
    let (mut at, mut length, mut missing) = (0, COPY_BYTES, 0);
    let mut piece = vec![0; COPY_BYTES];
    while at < found.len() {
        match source.read_at(&mut piece[..length], at) {
            Ok(0) => break,
            Ok(count) => {
                target.write_all_at(&piece[..count], at).map_err(failed)?;
                at += count as u64;
                if at.is_multiple_of(COPY_BYTES as u64) {
                    length = COPY_BYTES;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() != Some(Errno::IO.raw_os_error()) => {
                return Err(unread(error));
            }
            // One sector of it may be all that cannot be read.
            Err(_) if length > SECTOR_BYTES => length = SECTOR_BYTES,
            Err(_) => {
                missing += (found.len() - at).min(SECTOR_BYTES as u64);
                at += SECTOR_BYTES as u64;
            }
        }
    }
    if missing > 0 {
        eprintln!(
            "lepus: {missing} bytes of {} cannot be read; the copy has zeros there",
            from.display()
        );
    }
    Ok(())
}
