//! `lepus store repair`: a log recovered as far as it can be, and written anew without what cannot
//! be read.

mod definitions;

use super::drive::{Drive, Look, SEE_TO_DISK, Tally};
use super::{Failure, Files, LogFiles, logs};
use crate::data_dir::DataDir;
use crate::random;
use lepus_base::QueueId;
use lepus_broker::definitions::{DefinitionsLog, LOG};
use lepus_console::to_stderr;
use lepus_store::disk::{File, LogId};
use lepus_store::{Damage, Refusal, Settings, Store};
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
    /// Messages that the disk did not give, per queue: with any, nothing is dropped.
    unread: BTreeMap<QueueId, u64>,
    /// Those that could be read.
    kept: u64,
}

impl Losses {
    fn add(&mut self, queue: QueueId, tally: Tally) {
        self.kept += tally.kept;
        if tally.lost > 0 {
            *self.messages.entry(queue).or_default() += tally.lost;
        }
        if tally.unread > 0 {
            *self.unread.entry(queue).or_default() += tally.unread;
        }
    }
}

/// Repairs the logs of a directory, or a copy.
pub(super) fn repair(
    files: &Files,
    copy: Option<&Path>,
    out: &mut impl Write,
) -> Result<bool, Failure> {
    // Says no before anything is made.
    let found = logs(&files.directory, files.log)?;
    let held = DataDir::open(&files.directory).map_err(|error| Failure::Text(error.to_string()))?;
    let (directory, _held) = match copy {
        Some(copy) => {
            copy_all(&files.directory, copy)?;
            let other = DataDir::open(copy).map_err(|error| Failure::Text(error.to_string()))?;
            (copy, (held, Some(other)))
        }
        None => {
            to_stderr(format_args!(
                "lepus: what is damaged in {} is gone after this; with --to COPY a copy is \
                 repaired instead",
                files.directory.display()
            ));
            (files.directory.as_path(), (held, None))
        }
    };
    let mut is_done = true;
    for log in found {
        if log.id == LOG {
            Repair::new(directory, log.id)?.definitions(out)?;
            continue;
        }
        // A log that is opened to be written to does not look orderly any more.
        let losses = match look(directory, &log)? {
            Some(losses) => losses,
            None => Repair::new(directory, log.id)?.run()?,
        };
        is_done &= losses.unread.is_empty();
        report(log.id, &losses, out)?;
    }
    Ok(is_done)
}

/// What can be said of a log without a repair: that it is whole, or that the disk does not give all of it. `None`
/// where something is to be repaired.
fn look(directory: &Path, log: &LogFiles) -> Result<Option<Losses>, Failure> {
    let mut drive = Drive::looking(directory, Settings::new(log.id), log);
    let Ok(mut store) = drive.open()? else { return Ok(None) };
    let mut losses = Losses::default();
    for (lane, slot) in Drive::lanes(&store) {
        let tally = drive.read_lane(&mut store, slot, &mut |_, _| Ok(()))?;
        losses.add(lane.queue, tally);
    }
    let is_whole = drive.damages.is_empty()
        && losses.messages.is_empty()
        && store.damaged_segments().is_empty();
    Ok((is_whole || !losses.unread.is_empty()).then_some(losses))
}

/// Names what the disk does not give: nothing of the log is repaired then.
fn report_unread(log: LogId, losses: &Losses, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "{log}: not repaired; {} messages can be read", losses.kept)?;
    for (queue, count) in &losses.unread {
        writeln!(out, "  the disk does not give {count} messages of queue {}", queue.0)?;
    }
    for (queue, count) in &losses.messages {
        writeln!(out, "  damaged: {count} messages of queue {}", queue.0)?;
    }
    writeln!(
        out,
        "  what the disk does not give may be whole, so nothing was dropped; {SEE_TO_DISK}"
    )?;
    Ok(())
}

fn report(log: LogId, losses: &Losses, out: &mut impl Write) -> Result<(), Failure> {
    if !losses.unread.is_empty() {
        return report_unread(log, losses, out);
    }
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

    /// Settles what is damaged and moves what is whole out of damaged segments, if the disk gives all there is.
    fn run(mut self) -> Result<Losses, Failure> {
        let mut store = self.open()?;
        let mut damaged = Vec::new();
        for (lane, slot) in Drive::lanes(&store) {
            let tally = self.drive.read_lane(&mut store, slot, &mut |entry, message| {
                if message == Look::Damaged {
                    damaged.push((slot, *entry));
                }
                Ok(())
            })?;
            self.losses.add(lane.queue, tally);
        }
        if !self.losses.unread.is_empty() {
            return Ok(self.losses);
        }
        for (slot, entry) in damaged {
            store.settle(slot, entry.seq, entry.position, entry.bytes);
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
        to_stderr(format_args!(
            "lepus: {missing} bytes of {} cannot be read; the copy has zeros there",
            from.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;
    use lepus_store::disk::Action;
    use lepus_store::{Lane, Message, Place};

    const LOG: LogId = LogId(1);
    const QUEUE: QueueId = QueueId(1);
    const MESSAGES: u64 = 200;

    /// A log with messages of which one is damaged.
    fn filled(directory: &Path) {
        let mut drive = Drive::new(directory, Settings::new(LOG));
        let mut store = drive.open().unwrap().unwrap();
        let lane = store.lane(Lane::of(QUEUE));
        for seq in 0..MESSAGES {
            let body = format!("the body of message {seq:04}{}", "x".repeat(5000));
            let message = Message {
                exchange: b"",
                routing_key: b"q",
                properties: &[0, 0],
                body: body.as_bytes(),
            };
            while store.append(&message, &[Place { lane, seq, deadline_millis: 0 }]).is_err() {
                drive.cycle(&mut store).unwrap();
            }
        }
        drive.rest(&mut store).unwrap();
        let wanted = b"the body of message 0100";
        for slot in 0..16 {
            let path = directory.join(File::Segment(LOG, slot).to_string());
            let Ok(mut bytes) = fs::read(&path) else { continue };
            if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
                bytes[at] ^= 1;
                return fs::write(&path, bytes).unwrap();
            }
        }
        panic!("the message is nowhere");
    }

    /// A repair on a disk where so many reads of messages fail.
    fn repaired(directory: &Path, count: usize) -> Losses {
        let mut repair = Repair::new(directory, LOG).unwrap();
        let mut reads: usize = 0;
        repair.drive.faults.0 = Some(Box::new(move |action| {
            // The start reads whole segments, from their beginning.
            let is_message =
                |file: File, offset: u64| matches!(file, File::Segment(..)) && offset > 0;
            let fails =
                matches!(*action, Action::Read { file, offset, .. } if is_message(file, offset));
            reads += usize::from(fails);
            fails && reads <= count
        }));
        repair.run().unwrap()
    }

    #[test]
    fn reads_that_fail_for_a_moment_are_made_again() {
        let scratch = Scratch::new("repair-moment");
        filled(scratch.path());
        let losses = repaired(scratch.path(), 5);
        assert_eq!((losses.kept, losses.unread.len()), (MESSAGES - 1, 0));
        assert_eq!(losses.messages, BTreeMap::from([(QUEUE, 1)]));
    }

    #[test]
    fn nothing_is_settled_where_reads_fail() {
        let scratch = Scratch::new("repair-unread");
        filled(scratch.path());
        let losses = repaired(scratch.path(), usize::MAX);
        assert_eq!((losses.kept, losses.messages.len()), (0, 0));
        assert_eq!(losses.unread, BTreeMap::from([(QUEUE, MESSAGES)]));
        let losses = repaired(scratch.path(), 0);
        assert_eq!((losses.kept, losses.unread.len()), (MESSAGES - 1, 0));
        assert_eq!(losses.messages, BTreeMap::from([(QUEUE, 1)]));
    }
}
