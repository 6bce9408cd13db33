//! A log's store, driven by one thread: what a start does, for who looks after the files.

use super::{Failure, LogFiles};
use lepus_base::{Now, QueueId};
use lepus_reactor::files::{Blocking, Failure as DiskFailure};
use lepus_store::disk::{Action, Completion, DiskError, File, LogId, Operation, Operations};
use lepus_store::{
    Damage, Entry, Event, Fetch, Lane, LaneSlot, Lookup, Message, Refusal, Settings, Store,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Entries looked at in one go.
const WINDOW: usize = 256;
/// Cycles after which nothing more is to be done.
const IDLE_CYCLES: usize = 50;
/// Cycles in which a disk that has room takes what is appended.
pub(super) const CYCLES_MAX: usize = 1000;
/// Entries that are gathered at once where a log has no checkpoint: about 256 MiB.
const REBUILD_ENTRIES_MAX: usize = 1 << 21;
/// What the system lacks the means for is tried again so often, after a pause each time.
const LACKS_MAX: usize = 20;
const LACK_PAUSE: Duration = Duration::from_millis(100);
/// Reads that fail are made again so often in all, after the same pause, and so often anew once that helped:
/// for some seconds, also where a disk gives nothing any more.
const READS_AGAIN_MAX: usize = 30;

/// What to do about messages that the disk does not give.
pub(super) const SEE_TO_DISK: &str =
    "see to the disk, or repair a copy with `lepus store repair --to COPY`";

/// What the look for a message brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look<T> {
    /// It is whole.
    Whole(T),
    /// What lies in its place is wrong, or nothing does.
    Damaged,
    /// The disk did not give what lies in its place. It may be whole.
    Unread,
}

/// Is told of an entry, and what was found of its message.
pub(super) type Each<'a> = &'a mut dyn FnMut(&Entry, Look<&Message<'_>>) -> Result<(), Failure>;

/// Files that are only looked at: what a store would write is forgotten, and it is told that all went
/// well. It does not read again what it wrote itself in so short a life.
#[derive(Debug)]
pub(super) struct View {
    files: Blocking,
    listed: Vec<(File, u64)>,
}

impl View {
    /// Of a log, if it is there at all.
    pub(super) fn new(directory: &Path, log: Option<&LogFiles>) -> View {
        let listed = log.map_or(&[][..], |log| &log.files).to_vec();
        View { files: Blocking::new(directory), listed }
    }

    /// Carries the operation out, as far as it only reads.
    pub(super) fn run(&mut self, operation: Operation) -> Completion {
        let id = operation.id;
        match operation.action {
            Action::List(_) => Completion { files: self.listed.clone(), ..Completion::done(id, 0) },
            Action::Read { .. } => self.files.run(operation),
            // It would be read again from there.
            Action::Write { file: File::Index(_), .. } => Completion::failed(id, DiskError::Full),
            Action::Write { bytes, start, .. } => Completion::done(id, bytes.len() - start),
            Action::Create { .. }
            | Action::Reserve { .. }
            | Action::Sync(_)
            | Action::Reload(_)
            | Action::Truncate { .. }
            | Action::Delete(_)
            | Action::SyncDirectory(_) => Completion::done(id, 0),
        }
    }

    /// What the system said, and to what.
    pub(super) fn disk(&self) -> &Blocking {
        &self.files
    }
}

#[derive(Debug)]
enum Files {
    Disk(Blocking),
    View(View),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Drive {
    pub(super) directory: PathBuf,
    settings: Settings,
    files: Files,
    pub(super) out: Operations,
    events: Vec<Event>,
    millis: u64,
    /// What cannot be read, without doubles.
    pub(super) damages: Vec<Damage>,
    told: BTreeSet<Damage>,
    /// Messages that a damaged page of the index named and that were not found, per queue.
    pub(super) missing: BTreeMap<QueueId, u64>,
    /// How often a read that fails is still made again.
    reads_again: usize,
    /// Where reads of segments began that were given up.
    unread: BTreeSet<(File, u64)>,
    /// Operations that fail; only tests say which.
    pub(super) faults: Faults,
}

/// How many messages of a lane can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) kept: u64,
    /// Those that cannot, and those that are not even known any more.
    pub(super) lost: u64,
    /// Those that the disk does not give.
    pub(super) unread: u64,
}

impl Drive {
    /// For a log below `directory`, which may be written to.
    pub(super) fn new(directory: &Path, settings: Settings) -> Drive {
        Drive::with(directory, settings, Files::Disk(Blocking::new(directory)))
    }

    /// For a log that is only looked at.
    pub(super) fn looking(directory: &Path, settings: Settings, log: &LogFiles) -> Drive {
        Drive::with(directory, settings, Files::View(View::new(directory, Some(log))))
    }

    fn with(directory: &Path, settings: Settings, files: Files) -> Drive {
        // Nobody waits here: reads that fail are made again below.
        let settings = Settings {
            read_retry_limit: Duration::ZERO,
            rebuild_entries_max: REBUILD_ENTRIES_MAX,
            ..settings
        };
        Drive {
            directory: directory.to_owned(),
            settings,
            files,
            out: Operations::default(),
            events: Vec::new(),
            millis: 1,
            damages: Vec::new(),
            told: BTreeSet::new(),
            missing: BTreeMap::new(),
            reads_again: READS_AGAIN_MAX,
            unread: BTreeSet::new(),
            faults: Faults::default(),
        }
    }

    pub(super) fn log(&self) -> LogId {
        self.settings.log
    }

    /// A moment that has not been before.
    pub(super) fn now(&self) -> Now {
        Now::from_millis(self.millis)
    }

    pub(super) fn disk(&self) -> &Blocking {
        match &self.files {
            Files::Disk(files) => files,
            Files::View(view) => view.disk(),
        }
    }

    /// What the system said about operations that failed.
    pub(super) fn failures(&self) -> &[DiskFailure] {
        self.disk().failures()
    }

    /// Opens the log, or says why it is refused.
    pub(super) fn open(&mut self) -> Result<Result<Store, Refusal>, Failure> {
        self.out = Operations::default();
        self.events.clear();
        let mut store = Store::open(self.settings, &mut self.out);
        self.carry_out(&mut store)?;
        let refusal = self.events.iter().find_map(|event| match event {
            Event::Refused(refusal) => Some(*refusal),
            _ => None,
        });
        match refusal {
            Some(refusal) => Ok(Err(refusal)),
            None if store.is_running() || self.events.contains(&Event::Found) => Ok(Ok(store)),
            None => Err(Failure::Text(format!("{} does not open", self.log()))),
        }
    }

    /// Carries operations out until there are none, and takes what happened.
    pub(super) fn carry_out(&mut self, store: &mut Store) -> Result<(), Failure> {
        while !self.out.list.is_empty() {
            for operation in core::mem::take(&mut self.out.list) {
                let completion = self.run(&operation)?;
                store.complete(Now::from_millis(self.millis), completion, &mut self.out);
            }
        }
        self.take_events(store)
    }

    /// Takes what happened.
    fn take_events(&mut self, store: &mut Store) -> Result<(), Failure> {
        let begin = self.events.len();
        store.take_events(&mut self.events);
        for event in &self.events[begin..] {
            match event {
                Event::Damaged(damage) if self.told.insert(*damage) => {
                    self.damages.push(*damage);
                }
                // They would be gone from their queue though they may be whole.
                Event::Missing(..) if self.writes() && !self.unread.is_empty() => {
                    return Err(self.unreadable());
                }
                Event::Missing(lane, count) => {
                    *self.missing.entry(lane.queue).or_default() += count;
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

    /// Carries an operation out. What the system has no means for now, or the disk does not give, it may in a
    /// moment; nobody would wake a store that waits for that here.
    fn run(&mut self, operation: &Operation) -> Result<Completion, Failure> {
        let (mut lacks, mut has_failed) = (0, false);
        let is_read = matches!(operation.action, Action::Read { .. });
        loop {
            let completion = self.run_once(operation);
            match completion.result {
                Err(DiskError::Busy) if lacks + 1 < LACKS_MAX => lacks += 1,
                Err(DiskError::Busy) => return Err(self.lack()),
                Err(DiskError::Failed) if is_read && self.reads_again > 0 => {
                    self.reads_again -= 1;
                    has_failed = true;
                }
                result => {
                    if has_failed && result.is_ok() {
                        self.reads_again = READS_AGAIN_MAX;
                    }
                    self.remember(&operation.action, result.err());
                    return Ok(completion);
                }
            }
            std::thread::sleep(LACK_PAUSE);
        }
    }

    fn run_once(&mut self, operation: &Operation) -> Completion {
        if self.faults.has(&operation.action) {
            return Completion::failed(operation.id, DiskError::Failed);
        }
        match &mut self.files {
            Files::Disk(files) => files.run(operation.clone()),
            Files::View(view) => view.run(operation.clone()),
        }
    }

    /// A read of a segment ended. Of a record that cannot be read alone, its read begins where it lies.
    fn remember(&mut self, action: &Action, error: Option<DiskError>) {
        let Action::Read { file: file @ File::Segment(..), offset, .. } = *action else { return };
        match error {
            Some(DiskError::Failed) => self.unread.insert((file, offset)),
            _ => self.unread.remove(&(file, offset)),
        };
    }

    fn writes(&self) -> bool {
        matches!(self.files, Files::Disk(_))
    }

    fn lack(&self) -> Failure {
        let said = self.failures().last().map(ToString::to_string).unwrap_or_default();
        Failure::Text(format!("{said}; call again when the system has what that takes"))
    }

    /// The disk does not give what would have to be known to change anything.
    fn unreadable(&self) -> Failure {
        let said = self.failures().last().map(ToString::to_string).unwrap_or_default();
        let log = self.log();
        Failure::Text(format!("{log}: {said}; {SEE_TO_DISK}"))
    }

    /// The disk does not take what it is to take.
    pub(super) fn no_room(&self) -> Failure {
        let log = self.log();
        Failure::Text(format!("{log} takes no more; see to the disk and its room, and call again"))
    }

    /// Time goes on by a write interval or so. Whether there is more to do.
    pub(super) fn cycle(&mut self, store: &mut Store) -> Result<bool, Failure> {
        self.millis += 100;
        let now = self.now();
        store.flush(now, &mut self.out);
        let more = store.work(now, &mut self.out);
        self.carry_out(store)?;
        Ok(more)
    }

    /// Lanes, with their queues.
    pub(super) fn lanes(store: &Store) -> Vec<(Lane, LaneSlot)> {
        store.lanes().collect()
    }

    /// Looks every message of a lane up; `each` is told of it.
    pub(super) fn read_lane(
        &mut self,
        store: &mut Store,
        slot: LaneSlot,
        each: Each<'_>,
    ) -> Result<Tally, Failure> {
        let before = store.count(slot).0;
        let mut tally = Tally::default();
        let mut entries = Vec::new();
        while self.next_entries(store, slot, &mut entries)? {
            for entry in &entries {
                let mut told = Ok(());
                let look = self.read(store, entry, &mut |message| {
                    told = each(entry, Look::Whole(message));
                })?;
                match look {
                    Look::Whole(()) => tally.kept += 1,
                    Look::Damaged => {
                        told = each(entry, Look::Damaged);
                        tally.lost += 1;
                    }
                    Look::Unread => {
                        told = each(entry, Look::Unread);
                        tally.unread += 1;
                    }
                }
                told?;
            }
            self.carry_out(store)?;
        }
        // Entries of a page of the index that is damaged are not even known.
        let unknown = before.saturating_sub(tally.kept + tally.lost + tally.unread);
        match self.unread.is_empty() {
            true => tally.lost += unknown,
            false => tally.unread += unknown,
        }
        Ok(tally)
    }

    /// Fetches the next entries of a lane, and has their messages read. False when there are no more.
    pub(super) fn next_entries(
        &mut self,
        store: &mut Store,
        slot: LaneSlot,
        entries: &mut Vec<Entry>,
    ) -> Result<bool, Failure> {
        entries.clear();
        while entries.is_empty() && !store.is_fetched(slot) {
            if store.fetch(slot, WINDOW, entries, &mut self.out) == Fetch::Pending {
                if self.out.list.is_empty() {
                    return Err(self.stuck("a page of the index"));
                }
                self.carry_out(store)?;
            }
        }
        store.prefetch(entries, &mut self.out);
        Ok(!entries.is_empty())
    }

    /// What `take` makes of an entry's message, if that is whole.
    pub(super) fn read<T>(
        &mut self,
        store: &mut Store,
        entry: &Entry,
        take: &mut dyn FnMut(&Message<'_>) -> T,
    ) -> Result<Look<T>, Failure> {
        let mut is_ended = false;
        loop {
            match store.lookup_sized(entry.position, entry.bytes, &mut self.out) {
                Lookup::Found(message) => return Ok(Look::Whole(take(&message))),
                Lookup::Lost => return self.look_lost(store),
                Lookup::Pending => {}
            }
            if self.out.list.is_empty() {
                if core::mem::replace(&mut is_ended, true) {
                    return Err(self.stuck("a message"));
                }
                // It waits for the room of long messages that were read before it.
                store.end_lookups();
            }
            self.carry_out(store)?;
        }
    }

    /// Why the message just looked up is lost: the store said where the record lies that it misses.
    fn look_lost<T>(&mut self, store: &mut Store) -> Result<Look<T>, Failure> {
        let begin = self.events.len();
        self.take_events(store)?;
        let is_unread = |event: &Event| match event {
            Event::Damaged(damage) => self.unread.contains(&(damage.file, damage.offset)),
            _ => false,
        };
        let is_unread = self.events[begin..].iter().any(is_unread);
        Ok(if is_unread { Look::Unread } else { Look::Damaged })
    }

    /// Something is waited for, and nothing is under way that would bring it.
    fn stuck(&self, what: &str) -> Failure {
        let log = self.log();
        Failure::Text(format!("{log}: the read of {what} does not go on; this is a fault of lepus"))
    }

    /// Writes a checkpoint of what is left. The next start still counts as one after a crash.
    pub(super) fn rest(&mut self, store: &mut Store) -> Result<(), Failure> {
        for _ in 0..IDLE_CYCLES {
            while self.cycle(store)? {}
        }
        store.want_synced();
        store.request_checkpoint();
        self.events.clear();
        let mut idle = 0;
        while idle < CYCLES_MAX {
            let more = self.cycle(store)?;
            let is_valid = self.events.iter().any(|event| matches!(event, Event::Checkpointed(_)));
            if is_valid && !more && store.synced() >= store.end() {
                return Ok(());
            }
            idle += usize::from(!more);
        }
        Err(self.no_room())
    }
}

/// Says which operations fail.
type Which = Box<dyn FnMut(&Action) -> bool>;

/// Which operations of a disk fail, if there are any.
#[derive(Default)]
pub(super) struct Faults(pub(super) Option<Which>);

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faults({})", self.0.is_some())
    }
}

impl Faults {
    fn has(&mut self, action: &Action) -> bool {
        self.0.as_mut().is_some_and(|fails| fails(action))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;
    use lepus_store::Place;

    /// Whoever reads here would wait for ever.
    #[test]
    fn a_read_that_nothing_brings_is_an_error() {
        let scratch = Scratch::new("drive-stuck");
        let settings = Settings { index_pages_max: 0, ..Settings::new(LogId(1)) };
        let mut drive = Drive::new(scratch.path(), settings);
        let mut store = drive.open().unwrap().unwrap();
        let slot = store.lane(Lane::of(QueueId(1)));
        for seq in 0..3000 {
            let message = Message {
                exchange: b"",
                routing_key: b"q",
                properties: &[0, 0],
                // Each is a run of its own in the index, which has pages then.
                body: &[7; 100][..seq as usize * 7 % 61],
            };
            let place = Place { lane: slot, seq, deadline_millis: 0 };
            while store.append(&message, &[place]).is_err() {
                drive.cycle(&mut store).unwrap();
            }
        }
        drive.rest(&mut store).unwrap();
        let said = |failure: Failure| match failure {
            Failure::Text(text) => text,
            Failure::Output(error) => error.to_string(),
        };

        let mut store = drive.open().unwrap().unwrap();
        let slot = Drive::lanes(&store)[0].1;
        let mut entries = Vec::new();
        assert_eq!(store.fetch(slot, WINDOW, &mut entries, &mut drive.out), Fetch::Pending);
        drive.out.list.clear();
        let failure = drive.next_entries(&mut store, slot, &mut entries).unwrap_err();
        assert!(said(failure).contains("the read of a page of the index does not go on"));

        let mut store = drive.open().unwrap().unwrap();
        let slot = Drive::lanes(&store)[0].1;
        assert!(drive.next_entries(&mut store, slot, &mut entries).unwrap());
        drive.out.list.clear();
        let failure = drive.read(&mut store, &entries[0], &mut |_| ()).unwrap_err();
        assert!(said(failure).contains("the read of a message does not go on"));
    }
}
