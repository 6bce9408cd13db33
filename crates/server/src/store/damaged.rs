//! `lepus store damaged`: messages that are known and cannot be read are listed, and on the operator's
//! word exported as the bytes that lie in their places, and dropped.

mod place;

use super::drive::{Drive, Look, SEE_TO_DISK};
use super::known::Known;
use super::open::{Open, create, parent};
use super::{Deed, Failure, Files, logs};
use crate::data_dir::DataDir;
use lepus_base::Position;
use lepus_broker::definitions::LOG;
use lepus_broker::journal::Standing;
use lepus_reactor::files::sync_directory;
use lepus_store::disk::{File as LogFile, LogId};
use lepus_store::place::{generation, offset};
use lepus_store::{Entry, Lane};
use place::{Part, Places, in_words};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// In the directory of an export: a JSON object for each message.
const INDEX: &str = "damaged.jsonl";

/// One message of a queue.
#[derive(Clone, Copy, Debug)]
struct Damaged {
    lane: Lane,
    entry: Entry,
    /// The disk does not give it; it may be whole.
    is_unread: bool,
}

/// What is damaged of one log.
#[derive(Debug)]
struct Found {
    log: LogId,
    damaged: Vec<Damaged>,
    /// Segments that are kept for damage: which of the log, the file, and how much of it was written.
    segments: Vec<(u32, LogFile, u32)>,
    /// Further ones that the disk does not give as a whole.
    unread_segments: usize,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.damaged.is_empty() && self.segments.is_empty()
    }

    /// Messages and segments that the disk does not give.
    fn unread(&self) -> usize {
        let messages = self.damaged.iter().filter(|found| found.is_unread).count();
        messages + self.unread_segments
    }
}

/// Lists the damaged messages of a directory, and does with them what the call says.
pub(super) fn damaged(files: &Files, deed: &Deed, out: &mut impl Write) -> Result<bool, Failure> {
    let wanted = logs(&files.directory, files.log)?;
    let _held =
        DataDir::open(&files.directory).map_err(|error| Failure::Text(error.to_string()))?;
    let known = Known::look(&files.directory)?;
    let mut export = deed.export.as_deref().map(Export::create).transpose()?;
    let (mut found, mut kept) = (Vec::new(), 0);
    for log in wanted.iter().filter(|log| log.id != LOG) {
        let mut look = Open::look(&files.directory, log)?;
        let damaged = all(&mut look, &known, deed)?;
        let mut places = Places::new(&files.directory, look.store.keys());
        for message in &damaged {
            let parts = places.of(&look.store, &message.entry)?;
            list(log.id, &known, message, &parts, out)?;
            if let Some(export) = &mut export {
                export.message(log.id, &known, message, &parts)?;
            }
        }
        let mut segments = Vec::new();
        // Whose the messages in them were cannot be told for certain.
        if deed.queue.is_none() {
            segments = look.store.damaged_segments();
        }
        let starts: BTreeSet<Position> = damaged
            .iter()
            .filter_map(|found| Some(look.store.record_place(found.entry.position)?.0))
            .collect();
        let (count, mut unread) = (segments.len(), BTreeSet::new());
        for &(number, file, end) in &segments {
            let parts = places.of_segment(number, (file, end), &starts)?;
            if places.is_unread() {
                unread.insert(number);
            }
            list_segment(file, &parts, out)?;
            if let Some(export) = &mut export {
                export.segment(log.id, &parts)?;
            }
        }
        kept += count;
        segments.retain(|(number, ..)| !unread.contains(number));
        found.push(Found { log: log.id, damaged, segments, unread_segments: unread.len() });
    }
    let count: usize = found.iter().map(|of_log| of_log.damaged.len()).sum();
    match count {
        0 => writeln!(out, "no queue has damaged messages")?,
        1 => writeln!(out, "1 message of a queue is damaged")?,
        _ => writeln!(out, "{count} messages of queues are damaged")?,
    }
    if kept > 0 {
        writeln!(out, "{kept} segments are kept for damage that no queue knows of")?;
    }
    if let Some(export) = export {
        let directory = export.directory.clone();
        // What is dropped below is on the disk by then.
        export.finish()?;
        writeln!(out, "exported to {}", directory.display())?;
    }
    match deed.drop {
        true => drop_found(&files.directory, &found, out),
        false => Ok(true),
    }
}

/// Drops what was found, and says so. Whether that was all of it.
fn drop_found(directory: &Path, found: &[Found], out: &mut impl Write) -> Result<bool, Failure> {
    let mut unread = 0;
    for of_log in found {
        unread += of_log.unread();
        if of_log.is_empty() {
            continue;
        }
        let (dropped, failed) = drop_all(directory, of_log)?;
        unread += failed;
        let segments = of_log.segments.len();
        write!(out, "{}: {dropped} messages dropped", of_log.log)?;
        match segments {
            0 => writeln!(out)?,
            _ => writeln!(out, ", and what was damaged in {segments} segments")?,
        }
    }
    if unread > 0 {
        writeln!(
            out,
            "{unread} of the messages and segments are kept: the disk does not give them, and they may be whole; \
             {SEE_TO_DISK}"
        )?;
    }
    Ok(unread == 0)
}

/// The damaged messages of a log, by their places.
fn all(look: &mut Open, known: &Known, deed: &Deed) -> Result<Vec<Damaged>, Failure> {
    let mut damaged = Vec::new();
    let log = look.drive.log();
    for (lane, slot) in Drive::lanes(&look.store) {
        let is_wanted = deed.queue.is_none_or(|wanted| wanted == lane.queue.0);
        if !is_wanted || known.standing(log, lane.queue) == Some(Standing::Deleted) {
            continue;
        }
        look.drive.read_lane(&mut look.store, slot, &mut |entry, message| {
            match message {
                Look::Whole(_) => {}
                Look::Damaged => damaged.push(Damaged { lane, entry: *entry, is_unread: false }),
                Look::Unread => damaged.push(Damaged { lane, entry: *entry, is_unread: true }),
            }
            Ok(())
        })?;
    }
    let place = |entry: &Entry| look.store.record_place(entry.position).map(|(at, ..)| at);
    damaged.sort_by_key(|found| (place(&found.entry), found.lane, found.entry.seq));
    Ok(damaged)
}

fn list(
    log: LogId,
    known: &Known,
    message: &Damaged,
    parts: &[Part],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let Damaged { lane, entry, .. } = message;
    let id = lane.queue.0;
    writeln!(out, "{log} queue {id} number {}: {}", entry.seq, known.name(lane.queue))?;
    for part in parts {
        writeln!(out, "  {}", in_words(part))?;
    }
    Ok(())
}

/// Tells of a segment that is kept.
fn list_segment(file: LogFile, parts: &[Part], out: &mut impl Write) -> Result<(), Failure> {
    writeln!(
        out,
        "{file}: a start met damage in it, or in the rest of a message of it, and no queue knows what was lost"
    )?;
    if parts.is_empty() {
        writeln!(out, "  it can be read now, but for what is listed above")?;
    }
    for part in parts {
        writeln!(out, "  {}", in_words(part))?;
    }
    Ok(())
}

/// Drops those that were found, as far as they are still damaged. How many, and how many more the disk does not
/// give now.
fn drop_all(directory: &Path, found: &Found) -> Result<(usize, usize), Failure> {
    let mut from = Open::write(directory, found.log)?;
    let known = found.damaged.iter().filter(|found| !found.is_unread);
    let doomed: BTreeSet<_> = known.map(|found| (found.lane, found.entry.seq)).collect();
    let lanes: BTreeSet<Lane> = doomed.iter().map(|(lane, _)| *lane).collect();
    let (mut dropped, mut unread) = (0, 0);
    for (lane, slot) in Drive::lanes(&from.store) {
        if !lanes.contains(&lane) {
            continue;
        }
        let mut entries = Vec::new();
        while from.drive.next_entries(&mut from.store, slot, &mut entries)? {
            for entry in entries.iter().filter(|entry| doomed.contains(&(lane, entry.seq))) {
                match from.drive.read(&mut from.store, entry, &mut |_| ())? {
                    Look::Whole(()) => {}
                    Look::Unread => unread += 1,
                    Look::Damaged => {
                        let Entry { seq, position, bytes, .. } = *entry;
                        dropped += usize::from(from.store.settle(slot, seq, position, bytes));
                    }
                }
            }
        }
    }
    for (number, ..) in &found.segments {
        from.store.release_damage(*number);
    }
    from.close()?;
    Ok((dropped, unread))
}

/// An export being written.
struct Export {
    directory: PathBuf,
    index: BufWriter<File>,
    /// Positions of the bytes that were written, with their number and the file's name.
    written: BTreeMap<u64, (usize, String)>,
    /// The log that these are of.
    log: Option<LogId>,
}

impl Export {
    /// In `directory`, which is made if it is not there.
    fn create(directory: &Path) -> Result<Export, Failure> {
        let failed = |error| failed(directory, &error);
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let index = create(&new_file(directory, INDEX)?)?;
        Ok(Export { directory: directory.to_owned(), index, written: BTreeMap::new(), log: None })
    }

    fn message(
        &mut self,
        log: LogId,
        known: &Known,
        message: &Damaged,
        parts: &[Part],
    ) -> Result<(), Failure> {
        let records = self.records(log, parts)?;
        let Damaged { lane, entry, .. } = message;
        let line = json!({
            "log": log.0,
            "queue": lane.queue.0,
            "name": known.name(lane.queue),
            "priority": lane.level,
            "number": entry.seq,
            "deadline_millis": entry.deadline_millis,
            "body_bytes": entry.bytes,
            "records": records,
        });
        self.line(&line)
    }

    /// What lies in a segment that is kept.
    fn segment(&mut self, log: LogId, parts: &[Part]) -> Result<(), Failure> {
        let records = self.records(log, parts)?;
        self.line(&json!({ "log": log.0, "records": records }))
    }

    /// Writes the bytes of some records; what the index says of them.
    fn records(&mut self, log: LogId, parts: &[Part]) -> Result<Vec<Value>, Failure> {
        if self.log.replace(log) != Some(log) {
            self.written.clear();
        }
        let mut records = Vec::new();
        for part in parts {
            let (raw, raw_offset) = self.raw(log, part)?.unzip();
            records.push(json!({
                "file": part.file.map(|file| file.to_string()),
                "position": in_log(part),
                "offset": offset(part.position),
                "bytes": part.length,
                "wrong": part.wrong,
                "raw": raw,
                "raw_offset": raw_offset,
                "queues": part.queues,
                "exchange": part.names.as_ref().map(|(exchange, _)| exchange),
                "routing_key": part.names.as_ref().map(|(_, key)| key),
                "body_offset": part.body.as_ref().map(|body| body.start),
                "body_bytes": part.body.as_ref().map(|body| body.len()),
            }));
        }
        Ok(records)
    }

    fn line(&mut self, line: &Value) -> Result<(), Failure> {
        let failed = |error| failed(&self.directory, &error);
        serde_json::to_writer(&mut self.index, line).map_err(|error| failed(error.into()))?;
        self.index.write_all(b"\n").map_err(failed)
    }

    /// Writes the bytes of a place, unless they are in a file already: its name, and where in it.
    fn raw(&mut self, log: LogId, part: &Part) -> Result<Option<(String, usize)>, Failure> {
        let Some(raw) = &part.raw else { return Ok(None) };
        let before = self.written.range(..=part.position.0).next_back();
        if let Some((start, (length, name))) = before {
            let from = (part.position.0 - start) as usize;
            if from + part.length <= *length {
                return Ok(Some((name.clone(), from)));
            }
        }
        let (segment, at) = (generation(part.position), offset(part.position));
        let name = format!("{log}-{segment}-{at}.record");
        let path = new_file(&self.directory, &name)?;
        let mut file = create(&path)?;
        let written = file.write_all(raw.bytes()).and_then(|()| file.flush());
        written.and_then(|()| file.get_ref().sync_all()).map_err(|error| failed(&path, &error))?;
        self.written.insert(part.position.0, (raw.bytes().len(), name.clone()));
        Ok(Some((name, 0)))
    }

    /// Has all of it on the disk.
    fn finish(mut self) -> Result<(), Failure> {
        let parent = parent(&self.directory);
        let flushed = self.index.flush().and_then(|()| self.index.get_ref().sync_all());
        let synced = flushed.and_then(|()| sync_directory(&self.directory));
        synced
            .and_then(|()| sync_directory(parent))
            .map_err(|error| failed(&self.directory, &error))
    }
}

/// The path of a file that is not there yet.
fn new_file(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = directory.join(name);
    match path.exists() {
        false => Ok(path),
        true => Err(Failure::Text(format!(
            "{} is there already, and an export writes over nothing: name another directory. Nothing \
             is dropped",
            path.display()
        ))),
    }
}

fn in_log(part: &Part) -> String {
    format!("{}:{}", generation(part.position), offset(part.position))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Text(format!(
        "the export to {} failed, and nothing is dropped: {error}",
        path.display()
    ))
}
