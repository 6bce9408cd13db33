//! `lepus store orphans`: messages whose queue the definitions do not have are listed, and on the
//! operator's word moved to a queue, exported or dropped.

use super::drive::{CYCLES_MAX, Drive, Look};
use super::known::Known;
use super::open::{Open, create, parent, unreadable};
use super::{Deed, Failure, Files, logs};
use crate::data_dir::DataDir;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lepus_base::QueueId;
use lepus_broker::definitions::LOG;
use lepus_broker::directory::{Directory, QueueInfo};
use lepus_broker::journal::{Standing, log_of, standing};
use lepus_reactor::files::sync_directory;
use lepus_store::disk::LogId;
use lepus_store::{AppendError, Entry, Lane, LaneSlot, Message, Place};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Bytes that are copied before those that were copied are dropped where they were.
const STEP_BYTES: usize = 4 << 20;
/// The same in messages.
const STEP_MESSAGES: usize = 4096;

/// The orphans of a log: lanes, ordered by queue.
type Orphans = Vec<(Lane, LaneSlot)>;

/// Where messages are moved to.
#[derive(Clone, Copy, Debug)]
struct Target<'a> {
    info: &'a QueueInfo,
    log: LogId,
}

/// Lists the orphans of a directory, and does with them what the call says.
pub(super) fn orphans(
    files: &Files,
    deed: &Deed,
    move_to: Option<&str>,
    out: &mut impl Write,
) -> Result<bool, Failure> {
    let wanted = logs(&files.directory, files.log)?;
    let _held =
        DataDir::open(&files.directory).map_err(|error| Failure::Text(error.to_string()))?;
    let known = Known::look(&files.directory)?;
    let (directory, deleted) = match &known {
        Known::Read { directory, deleted } => (directory, deleted),
        Known::Unreadable { text, .. } => {
            return Err(Failure::Text(format!("whose the messages are cannot be said: {text}")));
        }
    };
    let target = move_to.map(|place| target(directory, place)).transpose()?;
    let mut export = deed.export.as_deref().map(create).transpose()?;
    let mut found = 0;
    for log in wanted.iter().filter(|log| log.id != LOG) {
        let is_wanted = |queue: QueueId| {
            standing(directory, deleted, log.id, queue) == Standing::Orphaned
                && deed.queue.is_none_or(|wanted| wanted == queue.0)
        };
        let mut look = Open::look(&files.directory, log)?;
        let orphans: Orphans = Drive::lanes(&look.store);
        let orphans: Orphans = orphans
            .into_iter()
            .filter(|(lane, slot)| is_wanted(lane.queue) && look.store.count(*slot).0 > 0)
            .collect();
        found += orphans.len();
        for of_queue in orphans.chunk_by(|(one, _), (other, _)| one.queue == other.queue) {
            let counts = of_queue.iter().map(|(_, slot)| look.store.count(*slot));
            let (count, bytes) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let queue = of_queue[0].0.queue.0;
            writeln!(out, "{} queue {queue}: {count} messages, {bytes} bytes", log.id)?;
        }
        if orphans.is_empty() {
            continue;
        }
        let mut kept = BTreeSet::new();
        if let (Some(export), Some(path)) = (&mut export, deed.export.as_deref()) {
            kept = look.export(&orphans, (export, path), out)?;
        }
        drop(look);
        if let Some(target) = target {
            move_all(&files.directory, log.id, &is_wanted, target, out)?;
        } else if deed.drop {
            drop_all(&files.directory, log.id, &is_wanted, &kept, out)?;
        }
    }
    if found == 0 {
        writeln!(out, "no orphaned messages")?;
    }
    Ok(true)
}

/// The queue that a word names. Names of both may have slashes in them: what exists counts.
fn target<'a>(directory: &'a Directory, place: &str) -> Result<Target<'a>, Failure> {
    let slashes = place.char_indices().filter(|(_, found)| *found == '/');
    let mut matching = slashes.filter_map(|(at, _)| {
        let vhost = directory.vhost(&place[..at])?;
        directory.queue(vhost, &place[at + 1..])
    });
    let Some(info) = matching.next() else {
        return Err(Failure::Text(format!(
            "there is no queue {place}; --move-to takes VHOST/QUEUE, such as //orders for the queue \
             orders in the virtual host /. Start the broker and declare it first"
        )));
    };
    if !info.durable || info.exclusive().is_some() {
        return Err(Failure::Text(format!(
            "{place} is not durable: what is moved there would not outlive the next start"
        )));
    }
    Ok(Target { info, log: log_of(info) })
}

impl Open {
    /// Writes all that can be read as lines of JSON to a file, and has it on the disk. What cannot be read.
    fn export(
        &mut self,
        orphans: &Orphans,
        (into, path): (&mut BufWriter<File>, &Path),
        out: &mut impl Write,
    ) -> Result<BTreeSet<(Lane, u64)>, Failure> {
        let (log, mut done, mut lost) = (self.drive.log(), 0, 0);
        let mut unread = BTreeSet::new();
        let failed = |error: std::io::Error| Failure::Text(format!("the export failed: {error}"));
        for (lane, slot) in orphans {
            let tally = self.drive.read_lane(&mut self.store, *slot, &mut |entry, message| {
                let Look::Whole(message) = message else {
                    unread.insert((*lane, entry.seq));
                    return Ok(());
                };
                serde_json::to_writer(&mut *into, &line(log, *lane, entry, message))
                    .map_err(|error| failed(error.into()))?;
                into.write_all(b"\n").map_err(failed)
            })?;
            done += tally.kept;
            lost += tally.lost + tally.unread;
        }
        let flushed = into.flush().and_then(|()| into.get_ref().sync_all());
        flushed.and_then(|()| sync_directory(parent(path))).map_err(failed)?;
        writeln!(out, "{log}: {done} messages exported{}", unreadable(lost))?;
        Ok(unread)
    }

    fn append(&mut self, message: &Message<'_>, place: Place) -> Result<(), Failure> {
        for _ in 0..CYCLES_MAX {
            match self.store.append(message, &[place]) {
                Ok(_) => return Ok(()),
                Err(AppendError::Full) => drop(self.drive.cycle(&mut self.store)?),
                Err(error) => return Err(Failure::Text(format!("a message: {error:?}"))),
            }
        }
        Err(self.no_room())
    }
}

fn line(log: LogId, lane: Lane, entry: &Entry, message: &Message<'_>) -> serde_json::Value {
    json!({
        "log": log.0,
        "queue": lane.queue.0,
        "priority": lane.level,
        "number": entry.seq,
        "deadline_millis": entry.deadline_millis,
        "exchange": String::from_utf8_lossy(message.exchange),
        "routing_key": String::from_utf8_lossy(message.routing_key),
        "properties": STANDARD.encode(message.properties),
        "body": STANDARD.encode(message.body),
    })
}

/// A message in memory of its own, so that its store can be changed.
struct Copy {
    exchange: Vec<u8>,
    routing_key: Vec<u8>,
    properties: Vec<u8>,
    body: Vec<u8>,
}

impl Copy {
    fn of(message: &Message<'_>) -> Copy {
        Copy {
            exchange: message.exchange.to_vec(),
            routing_key: message.routing_key.to_vec(),
            properties: message.properties.to_vec(),
            body: message.body.to_vec(),
        }
    }

    fn message(&self) -> Message<'_> {
        Message {
            exchange: &self.exchange,
            routing_key: &self.routing_key,
            properties: &self.properties,
            body: &self.body,
        }
    }
}

/// Moves the orphans of a log behind what the target has. They go where they were when they are on
/// the disk there: whatever happens, each is in one of the two places.
fn move_all(
    directory: &Path,
    log: LogId,
    is_wanted: &dyn Fn(QueueId) -> bool,
    target: Target<'_>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut from = Open::write(directory, log)?;
    let mut other = match target.log == log {
        true => None,
        false => Some(Open::write(directory, target.log)?),
    };
    let id = target.info.id;
    let into = other.as_ref().unwrap_or(&from);
    let lanes = into.store.lanes_of(id).into_iter();
    let mut next_seq = lanes.map(|slot| into.store.next_seq(slot)).max().unwrap_or(0);
    let priority_max = target.info.settings().max_priority.unwrap_or(0);
    let (mut moved, mut lost) = (0, 0);
    let lanes = Drive::lanes(&from.store).into_iter();
    for (lane, slot) in lanes.filter(|(lane, _)| is_wanted(lane.queue)).collect::<Orphans>() {
        let level = lane.level.min(priority_max.into());
        let mut entries = Vec::new();
        while from.drive.next_entries(&mut from.store, slot, &mut entries)? {
            let (mut step, mut bytes): (Vec<Entry>, usize) = (Vec::new(), 0);
            for (index, entry) in entries.iter().enumerate() {
                let copy = from.drive.read(&mut from.store, entry, &mut |found| Copy::of(found))?;
                if let Look::Whole(copy) = copy {
                    let into = other.as_mut().unwrap_or(&mut from);
                    let lane = into.store.lane(Lane { queue: id, level });
                    let place = Place { lane, seq: next_seq, deadline_millis: 0 };
                    into.append(&copy.message(), place)?;
                    next_seq += 1;
                    bytes += copy.body.len();
                    step.push(*entry);
                } else {
                    lost += 1;
                }
                let is_last = index + 1 == entries.len();
                if is_last || bytes >= STEP_BYTES || step.len() >= STEP_MESSAGES {
                    other.as_mut().unwrap_or(&mut from).sync()?;
                    moved += step.len();
                    for entry in step.drain(..) {
                        from.store.settle(slot, entry.seq, entry.position, entry.bytes);
                    }
                    bytes = 0;
                }
            }
        }
    }
    from.close()?;
    if let Some(other) = other {
        other.close()?;
    }
    writeln!(
        out,
        "{log}: {moved} messages moved to queue '{}'{}",
        target.info.name(),
        match lost {
            0 => String::new(),
            _ => format!("; {lost} cannot be read and stay: --drop drops them"),
        }
    )?;
    Ok(())
}

/// Drops the orphans of a log, but for those that an export could not read.
fn drop_all(
    directory: &Path,
    log: LogId,
    is_wanted: &dyn Fn(QueueId) -> bool,
    kept: &BTreeSet<(Lane, u64)>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut from = Open::write(directory, log)?;
    let orphans: Orphans = Drive::lanes(&from.store);
    let orphans: Orphans = orphans.into_iter().filter(|(lane, _)| is_wanted(lane.queue)).collect();
    let mut dropped: u64 = 0;
    for of_queue in orphans.chunk_by(|(one, _), (other, _)| one.queue == other.queue) {
        let queue = of_queue[0].0.queue;
        if kept.iter().all(|(lane, _)| lane.queue != queue) {
            dropped += of_queue.iter().map(|(_, slot)| from.store.count(*slot).0).sum::<u64>();
            from.store.drop_queue(queue);
            continue;
        }
        for &(lane, slot) in of_queue {
            let mut entries = Vec::new();
            while from.drive.next_entries(&mut from.store, slot, &mut entries)? {
                for entry in entries.iter().filter(|entry| !kept.contains(&(lane, entry.seq))) {
                    let is_done = from.store.settle(slot, entry.seq, entry.position, entry.bytes);
                    dropped += u64::from(is_done);
                }
            }
        }
    }
    from.close()?;
    let rest = match kept.len() {
        0 => String::new(),
        count => format!("; {count} could not be exported and stay: --drop alone drops them"),
    };
    writeln!(out, "{log}: {dropped} messages dropped{rest}")?;
    Ok(())
}
