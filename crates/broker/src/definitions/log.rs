//! The definitions log: records of changes, and snapshots that replace all before them.

use alloc::format;
use alloc::vec::Vec;

use lepus_base::{HashState, Now, Position, QueueId};
use lepus_store::disk::{Completion, DiskError, File, Operations};
use lepus_store::{AppendError, Event, Refusal as StoreRefusal, Settings, Store};

use super::LOG;
use super::replay::{
    CHANGES, Read, RecoveryError, SNAPSHOT_BEGIN, SNAPSHOT_END, SNAPSHOT_PART, VERSION,
};
use crate::directory::codec;
use crate::directory::{Change, Directory, Extent, Snapshot};
use crate::refusal::{Refusal, RefusalKind};

/// Queue ids that are marked as used at once: so many declarations of queues that leave nothing
/// in the log go without a record.
const IDS_STEP: u64 = 1 << 16;
/// A snapshot is worth while when the log has grown by more than this, and by more than the last
/// snapshot: a start reads twice what there is at most.
const SNAPSHOT_BYTES_MIN: u64 = 1 << 20;
/// Every start takes a new segment: a snapshot is also worth while when the log lies in more than
/// these, and than twice those that a snapshot fills.
const SEGMENTS_MAX: u64 = 4;
/// A record of a snapshot ends when it has grown to this.
pub(super) const PART_BYTES: usize = 32 << 10;
/// Bytes of a snapshot that wait for the disk at most.
const UNWRITTEN_BYTES_MAX: usize = 1 << 20;

/// What became of a change that was to be recorded.
#[derive(Debug)]
pub enum Recorded {
    /// Nothing durable changes: there is nothing to wait for.
    Nothing,
    /// It is durable when the log is synced up to [`DefinitionsLog::end`].
    Logged,
    /// There is no room now.
    Full,
    /// It cannot be recorded.
    Refused(Refusal),
}

/// A walk that is being recorded.
#[derive(Debug)]
struct Recording {
    walk: Snapshot,
    changes: u64,
    bytes: u64,
    queue: Vec<Change>,
}

/// How far a slice of a snapshot came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// There is more.
    More,
    /// The disk has to take what was recorded first.
    Blocked,
    /// There is no room.
    Full,
    /// It is complete, or was given up.
    Done,
}

/// The log with what is known of its length.
#[derive(Debug)]
pub struct DefinitionsLog {
    store: Store,
    /// Bytes of all records that would be read now.
    bytes: u64,
    /// Those of the last snapshot.
    snapshot_bytes: u64,
    /// No snapshot before the log is longer than this.
    snapshot_above: u64,
    /// It lies in many segments, mostly empty.
    is_scattered: bool,
    /// Queue ids below are marked as used.
    ids_below: u64,
    recording: Option<Recording>,
    record: Vec<u8>,
    events: Vec<Event>,
    failure: Option<(File, DiskError)>,
    refusal: Option<StoreRefusal>,
    is_closing: bool,
}

impl DefinitionsLog {
    /// What its store is opened with.
    #[must_use]
    pub fn settings() -> Settings {
        Settings {
            segment_bytes: 4 << 20,
            spare_segments: 2,
            reserve_segments: 1,
            passing_segments: 0,
            free_segments_max: 4,
            cache_bytes: 64 << 10,
            index_pages_max: 0,
            ..Settings::new(LOG)
        }
    }

    /// Reads what a store has found and makes the directory of it. The store waits for
    /// [`DefinitionsLog::go_on`] then.
    ///
    /// # Errors
    /// [`RecoveryError`]; the log is as it was.
    pub(super) fn recover(
        mut store: Store,
        settings: Settings,
        hash: HashState,
        shards: u16,
    ) -> Result<(DefinitionsLog, Directory, Vec<QueueId>), RecoveryError> {
        let read = Read::new(&store.take_opaque(), hash, shards)?;
        if let Some(at) = read.snapshot {
            store.snapshot_found(at);
        }
        let filled = read.snapshot_bytes / u64::from(settings.segment_bytes);
        let log = DefinitionsLog {
            store,
            is_scattered: read.segments > SEGMENTS_MAX + 2 * filled,
            bytes: read.bytes,
            snapshot_bytes: read.snapshot_bytes,
            snapshot_above: SNAPSHOT_BYTES_MIN,
            ids_below: read.directory.next_queue(),
            recording: None,
            record: Vec::new(),
            events: Vec::new(),
            failure: None,
            refusal: None,
            is_closing: false,
        };
        Ok((log, read.directory, read.deleted))
    }

    /// What was read is used: the log is written to from here on.
    pub(crate) fn go_on(&mut self, now: Now, out: &mut Operations) {
        self.store.go_on(now, out);
    }

    /// Why the log cannot be used, if its first writes failed.
    pub(crate) fn refusal(&self) -> Option<StoreRefusal> {
        self.refusal
    }

    /// Records what is durable of a change that `directory` has checked and not yet applied.
    pub fn record(&mut self, directory: &Directory, change: &Change) -> Recorded {
        let mut part = directory.durable_part(change);
        if let Some(id) = change.used_id()
            && id.0 >= self.ids_below
        {
            part.push(Change::IdsUsed { vhosts: 0, queues: id.0.saturating_add(IDS_STEP) });
        }
        if part.is_empty() {
            return Recorded::Nothing;
        }
        self.start_record(CHANGES);
        part.iter().for_each(|change| codec::encode(change, &mut self.record));
        // What cannot be read again must not get into the log.
        if let Err(error) =
            codec::decode_each(&self.record[2..], 1).try_for_each(|one| one.map(drop))
        {
            let text = format!("this cannot be made durable: {error}");
            return Recorded::Refused(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        match self.append() {
            Ok(()) => {
                for change in part {
                    if let Change::IdsUsed { queues, .. } = change {
                        self.ids_below = queues;
                    }
                }
                Recorded::Logged
            }
            Err(AppendError::Full) => Recorded::Full,
            Err(AppendError::TooLarge) => {
                let text = "this is too large to be made durable";
                Recorded::Refused(Refusal::new(RefusalKind::PreconditionFailed, text))
            }
            Err(AppendError::Stopped) => Recorded::Refused(stopped()),
        }
    }

    fn start_record(&mut self, kind: u8) {
        self.record.clear();
        self.record.extend_from_slice(&[VERSION, kind]);
    }

    fn append(&mut self) -> Result<(), AppendError> {
        if self.failure.is_some() || self.is_closing {
            return Err(AppendError::Stopped);
        }
        self.store.append_opaque(&self.record)?;
        self.bytes += self.record.len() as u64;
        Ok(())
    }

    /// Whether it holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where the log ends now.
    #[must_use]
    pub fn end(&self) -> Position {
        self.store.end()
    }

    /// Whether everything before a position survives a loss of power.
    #[must_use]
    pub fn is_synced(&self, end: Position) -> bool {
        self.store.synced() >= end
    }

    /// The next [`DefinitionsLog::flush`] has all records synced.
    pub fn want_synced(&mut self) {
        self.store.want_synced();
    }

    /// Hands out disk operations that are due.
    pub fn flush(&mut self, now: Now, out: &mut Operations) {
        self.store.flush(now, out);
        self.look();
    }

    /// A disk operation ended.
    pub fn complete(&mut self, now: Now, completion: Completion, out: &mut Operations) {
        self.store.complete(now, completion, out);
        self.look();
    }

    fn look(&mut self) {
        self.store.take_events(&mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Stopped(file, error) => self.failure = Some((file, error)),
                Event::Refused(refusal) => self.refusal = Some(refusal),
                _ => {}
            }
        }
    }

    /// The file that could not be written or synced: nothing is recorded any more.
    #[must_use]
    pub fn failure(&self) -> Option<(File, DiskError)> {
        self.failure
    }

    /// When [`DefinitionsLog::flush`] has something to do without anything happening.
    pub(crate) fn next_timeout(&self) -> lepus_base::Instant {
        self.store.next_timeout()
    }

    /// Begins a snapshot if the log has grown enough for one.
    pub(crate) fn begin_snapshot(&mut self) {
        let grown = self.bytes.saturating_sub(self.snapshot_bytes);
        let bound = self.snapshot_above.max(self.snapshot_bytes);
        let is_worth_it = grown > bound || self.is_scattered;
        if !is_worth_it || self.recording.is_some() || self.is_closing || self.failure.is_some() {
            return;
        }
        let ids = Change::IdsUsed { vhosts: 0, queues: self.ids_below };
        let walk = Snapshot::new(Extent::Durable);
        self.recording = Some(Recording { walk, changes: 0, bytes: 0, queue: alloc::vec![ids] });
        self.store.begin_snapshot();
        self.start_record(SNAPSHOT_BEGIN);
        if self.append().is_err() {
            self.give_up();
        }
    }

    /// Whether a snapshot is being recorded: the directory must not change meanwhile.
    pub(crate) fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Whether the snapshot waits for the disk.
    pub(crate) fn is_blocked(&self) -> bool {
        self.store.unwritten_bytes() > UNWRITTEN_BYTES_MAX
    }

    /// The snapshot is not to be had now. What was recorded of it does not count.
    pub(crate) fn give_up(&mut self) {
        self.recording = None;
        self.snapshot_above = self.bytes + SNAPSHOT_BYTES_MIN;
        self.is_scattered = false;
    }

    /// Records a slice of the snapshot.
    pub(crate) fn record_slice(&mut self, directory: &Directory) -> Slice {
        let Some(mut recording) = self.recording.take() else { return Slice::Done };
        if self.is_blocked() {
            self.recording = Some(recording);
            return Slice::Blocked;
        }
        let more = recording.walk.next(directory, 512, &mut recording.queue);
        let mut taken = 0;
        while taken < recording.queue.len() {
            self.start_record(SNAPSHOT_PART);
            let mut count = 0;
            for change in &recording.queue[taken..] {
                codec::encode(change, &mut self.record);
                count += 1;
                if self.record.len() >= PART_BYTES {
                    break;
                }
            }
            if let Err(error) = self.append() {
                recording.queue.drain(..taken);
                return self.stumble(recording, error);
            }
            taken += count;
            recording.changes += count as u64;
            recording.bytes += self.record.len() as u64;
        }
        recording.queue.clear();
        if more {
            self.recording = Some(recording);
            return Slice::More;
        }
        self.start_record(SNAPSHOT_END);
        self.record.extend_from_slice(&recording.changes.to_le_bytes());
        if let Err(error) = self.append() {
            return self.stumble(recording, error);
        }
        // Should this one be damaged, the last and what follows it say the same.
        self.store.end_snapshot(true);
        self.snapshot_bytes = recording.bytes;
        self.bytes = recording.bytes;
        self.snapshot_above = SNAPSHOT_BYTES_MIN;
        self.is_scattered = false;
        Slice::Done
    }

    fn stumble(&mut self, recording: Recording, error: AppendError) -> Slice {
        if error == AppendError::Full {
            self.recording = Some(recording);
            return Slice::Full;
        }
        self.give_up();
        Slice::Done
    }

    /// The last checkpoint: nothing is recorded any more.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.store.close();
    }

    /// Whether the log can be left: its last checkpoint is on the disk, or cannot come there.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.failure.is_some() || (self.is_closing && self.store.is_closed())
    }
}

/// The refusal of a durable change after the log has failed.
pub(crate) fn stopped() -> Refusal {
    let text = "definitions cannot be made durable any more: the server's log has the reason";
    Refusal::new(RefusalKind::Internal, text)
}
