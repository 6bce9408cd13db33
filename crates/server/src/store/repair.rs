//! `lepus store repair`: a log recovered as far as it can be, and written anew without what cannot
//! be read.

mod definitions;

use super::{Call, Failure, logs};
use crate::data_dir::DataDir;
use lepus_base::{Now, QueueId};
use lepus_broker::definitions::{DefinitionsLog, LOG};
use lepus_reactor::files::Blocking;
use lepus_store::disk::{File, LogId, Operations};
use lepus_store::{Damage, Event, Fetch, LaneSlot, Lookup, Refusal, Settings, Store};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Entries looked at in one go.
const WINDOW: usize = 256;
/// Cycles after which nothing more is to be moved.
const IDLE_CYCLES: usize = 50;
/// Below the data directory: files that could not be used.
const REMOVED: &str = "removed";

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
            eprintln!(
                "lepus: what cannot be read in {} is gone after this; with --to COPY a copy is \
                 repaired instead",
                call.directory.display()
            );
            (call.directory.as_path(), (held, None))
        }
    };
    for log in found {
        if log.id == LOG {
            Repair::new(directory, log.id).definitions(out)?;
            continue;
        }
        let losses = Repair::new(directory, log.id).run()?;
        report(log.id, &losses, out)?;
    }
    Ok(true)
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
    directory: PathBuf,
    settings: Settings,
    files: Blocking,
    out: Operations,
    events: Vec<Event>,
    millis: u64,
    losses: Losses,
}

impl Repair {
    fn new(directory: &Path, log: LogId) -> Repair {
        Repair {
            directory: directory.to_owned(),
            // Nobody waits here: what cannot be read counts as damaged.
            settings: Settings {
                read_retry_limit: Duration::ZERO,
                ..match log {
                    LOG => Settings { asks_first: true, ..DefinitionsLog::settings() },
                    _ => Settings { compaction_rate: u64::MAX, ..Settings::new(log) },
                }
            },
            files: Blocking::new(directory),
            out: Operations::default(),
            events: Vec::new(),
            millis: 1,
            losses: Losses::default(),
        }
    }

    fn run(mut self) -> Result<Losses, Failure> {
        let mut store = self.open()?;
        for slot in store.lanes().map(|(_, slot)| slot).collect::<Vec<_>>() {
            self.read_lane(&mut store, slot)?;
        }
        let is_whole = self.losses.damages.is_empty() && self.losses.removed.is_empty();
        if is_whole {
            return Ok(self.losses);
        }
        // What is whole around the damage moves; the files are free then.
        for damage in &self.losses.damages {
            store.empty_segment(damage.file);
        }
        // The second checkpoint shows what the first made free.
        for _ in 0..2 {
            self.rest(&mut store)?;
        }
        Ok(self.losses)
    }

    /// Opens the log; files that keep it from being opened are moved away.
    fn open(&mut self) -> Result<Store, Failure> {
        loop {
            self.out = Operations::default();
            let mut store = Store::open(self.settings, &mut self.out);
            self.carry_out(&mut store)?;
            let refusal = self.events.iter().find_map(|event| match event {
                Event::Refused(refusal) => Some(*refusal),
                _ => None,
            });
            match refusal {
                None if store.is_running() || self.events.contains(&Event::Found) => {
                    return Ok(store);
                }
                None => return Err(Failure::Text("the log does not open".to_owned())),
                Some(Refusal::Version(file, version)) => {
                    let path = self.directory.join(file.to_string());
                    return Err(Failure::Text(format!(
                        "{} is of format version {version}, which this lepus cannot read; nothing \
                         was changed in its log: repair it with the version that wrote it",
                        path.display()
                    )));
                }
                Some(Refusal::Foreign(file)) => self.remove(file)?,
                Some(Refusal::Disk(file, error)) => {
                    let path = self.directory.join(file.to_string());
                    return Err(Failure::Text(format!("{}: {error:?}", path.display())));
                }
            }
            self.events.clear();
        }
    }

    fn remove(&mut self, file: File) -> Result<(), Failure> {
        let from = self.directory.join(file.to_string());
        let to = self.directory.join(REMOVED).join(file.to_string());
        let moved = || {
            std::fs::create_dir_all(to.parent().unwrap_or(&self.directory))?;
            std::fs::rename(&from, &to)
        };
        moved()
            .map_err(|error| Failure::Text(format!("cannot move {}: {error}", from.display())))?;
        self.losses.removed.push(file);
        Ok(())
    }

    /// Carries operations out until there are none, and takes what happened.
    fn carry_out(&mut self, store: &mut Store) -> Result<(), Failure> {
        while !self.out.list.is_empty() {
            for operation in core::mem::take(&mut self.out.list) {
                let completion = self.files.run(operation);
                store.complete(Now::from_millis(self.millis), completion, &mut self.out);
            }
        }
        let begin = self.events.len();
        store.take_events(&mut self.events);
        for event in &self.events[begin..] {
            match event {
                Event::Damaged(damage) if !self.losses.damages.contains(damage) => {
                    self.losses.damages.push(*damage);
                }
                Event::Stopped(file, error) => {
                    let path = self.directory.join(file.to_string());
                    let text = format!("cannot write {}: {error:?}", path.display());
                    return Err(Failure::Text(text));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn cycle(&mut self, store: &mut Store) -> Result<bool, Failure> {
        self.millis += 100;
        let now = Now::from_millis(self.millis);
        store.flush(now, &mut self.out);
        let more = store.work(now, &mut self.out);
        self.carry_out(store)?;
        Ok(more)
    }

    /// Looks every message of a lane up; those that cannot be read are settled.
    fn read_lane(&mut self, store: &mut Store, slot: LaneSlot) -> Result<(), Failure> {
        let queue = store.lanes().find(|(_, found)| *found == slot).map(|(lane, _)| lane.queue);
        let before = store.count(slot).0;
        let (mut kept, mut lost) = (0, 0);
        let mut entries = Vec::new();
        while !store.is_fetched(slot) {
            entries.clear();
            if store.fetch(slot, WINDOW, &mut entries, &mut self.out) == Fetch::Pending {
                self.carry_out(store)?;
            }
            store.prefetch(&entries, &mut self.out);
            for entry in &entries {
                let is_there = loop {
                    match store.lookup_sized(entry.position, entry.bytes, &mut self.out) {
                        Lookup::Found(_) => break true,
                        Lookup::Lost => break false,
                        Lookup::Pending => self.carry_out(store)?,
                    }
                };
                if is_there {
                    kept += 1;
                } else {
                    lost += 1;
                    store.settle(slot, entry.seq, entry.position, entry.bytes);
                }
            }
            self.carry_out(store)?;
        }
        // Entries of a page of the index that is damaged are not even known.
        lost += before.saturating_sub(kept + lost);
        self.losses.kept += kept;
        if lost > 0 {
            *self.losses.messages.entry(queue.unwrap_or_default()).or_default() += lost;
        }
        Ok(())
    }

    /// Writes a checkpoint of what is left. The next start still counts as one after a crash.
    fn rest(&mut self, store: &mut Store) -> Result<(), Failure> {
        for _ in 0..IDLE_CYCLES {
            while self.cycle(store)? {}
        }
        store.want_synced();
        store.request_checkpoint();
        self.events.clear();
        loop {
            let more = self.cycle(store)?;
            let is_valid = self.events.iter().any(|event| matches!(event, Event::Checkpointed(_)));
            if is_valid && !more && store.synced() >= store.end() {
                return Ok(());
            }
        }
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
            std::fs::copy(entry.path(), &target).map_err(failed)?;
        }
    }
    Ok(())
}
