//! The shard's logs as its queues see them: messages in, places out, and what waits for the disk.
//!
//! Appending gives a position at once; durability comes later as a watermark. What waits for it
//! (confirms, commits, reports to other shards, dead letters) stands in one list per log, in the
//! order of positions, so that nobody is looked at before it is due. Queues that wait for
//! something to be read are named here too.
//!
//! Without logs everything stays in memory and nothing waits.

mod backlog;
mod completion;
mod figures;
mod need;
mod orphans;
mod recovery;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{Instant, Now, Position, QueueId};
use lepus_store::disk::{DiskError, File, LogId, Operations};
use lepus_store::place::generation;
use lepus_store::{AppendError, LaneSlot, Message, Place, Refusal, Settings, Store};

use crate::mail::ChannelRef;
use crate::message::MessageView;
use crate::settings::StoreSettings;
use orphans::Orphans;

pub(crate) use crate::queue::Found;
pub use backlog::Backlog;
pub(crate) use backlog::place_of;
pub use figures::{LogTroubles, OldestDelivery};
pub(crate) use need::{LogSet, Need, Refusals, Room};
pub use recovery::{Recovery, RefusedLog, Standing, log_of, standing};

/// Stands for the log of a queue that takes no persistent messages, because the next start might
/// not know what they belong to.
pub(crate) const NO_LOG: u16 = u16::MAX;

/// Queues that may have a read of the same log under way at once; each read takes part of the
/// memory for read-ahead.
const READERS_MAX: usize = 256;

/// Segments whose beginning is remembered.
const BEGUN_MAX: usize = 4096;
/// Room that a log has where what need not go there does: more than most messages take.
const AMPLE_BYTES: usize = 16 * 1024;

/// Something that waits until a log is durable up to `end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub end: Position,
    /// The publisher's channel.
    pub to: ChannelRef,
    /// Publish numbers, the last one included.
    pub first: u64,
    pub last: u64,
    /// For how many reports of each number this stands.
    pub count: u32,
}

/// How far a log is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Running,
    Refused(Refusal),
    /// Its last checkpoint is on its way.
    Closing,
    /// Nothing was in it that anybody needs: its files are gone, or go.
    Removed,
}

/// One log and who waits for it.
#[derive(Debug)]
pub struct Log {
    id: LogId,
    pub(crate) store: Store,
    payload_bytes_max: usize,
    phase: Phase,
    /// By position.
    reports: VecDeque<Report>,
    /// The last report is of this cycle: those that follow may join it.
    joins: bool,
    /// Something appended since the last flush is waited for.
    wants: bool,
    /// Who has a read under way, and who may begin one after them.
    readers: BTreeSet<(Position, Reader)>,
    waiting_readers: VecDeque<Reader>,
    /// Who waits for an index page.
    awaited: BTreeMap<LaneSlot, Reader>,
    has_work: bool,
    is_short: bool,
    /// When segments were begun, by generation; of this run.
    begun: VecDeque<(u32, Instant)>,
    stopped: Option<(File, DiskError)>,
    /// The run before did not end in order.
    was_unclean: bool,
    orphans: Orphans,
    /// New queues have their messages here.
    is_own: bool,
    /// A queue may get messages that go here.
    is_named: bool,
    /// Something in it cannot be read.
    is_damaged: bool,
}

/// A queue that waits: its slot and its id. [`LETTERS`] stands for dead letters; what a delayed exchange
/// holds back has an id of its own and no slot.
pub(crate) type Reader = (u32, QueueId);

/// What a message takes in a log that is settled only when it is somewhere else, too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Occupied {
    /// The log.
    pub log: u16,
    /// Bytes of its payload; 0 for nothing.
    pub bytes: usize,
}

impl Occupied {
    /// The log in which something comes free.
    pub(crate) fn frees(self) -> Option<u16> {
        (self.bytes > 0).then_some(self.log)
    }
}

/// Logs that queues have left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// Anybody may have waited for room there for these.
    pub all: LogSet,
    /// At least transactions may have.
    pub commits: LogSet,
}

/// Stands for the dead letters among readers.
pub(crate) const LETTERS: Reader = (u32::MAX, QueueId(u64::MAX));

/// The logs that a shard drives, its own first.
#[derive(Debug, Default)]
pub struct Journal {
    logs: Vec<Log>,
    /// Entries of all queues' windows.
    windows: usize,
    fetched: Vec<lepus_store::Entry>,
    events: Vec<lepus_store::Event>,
    /// The last message appended, by log; reused.
    pub(crate) places: Vec<Place>,
    unwritten_bytes: usize,
    /// See [`Limits::unwritten_bytes_max`](crate::Limits::unwritten_bytes_max).
    unwritten_bytes_max: usize,
    /// Of long messages that are being read.
    large_bytes: usize,
    /// Of the index.
    index_bytes: usize,
    /// What the files of all logs may take of the disk.
    bytes_max: u64,
    closes: bool,
    /// Logs that a queue has left since [`Journal::take_left`].
    left: Left,
}

impl Journal {
    /// Begins to recover the logs.
    pub(crate) fn open(
        &mut self,
        settings: &StoreSettings,
        unwritten_bytes_max: usize,
        out: &mut Operations,
    ) {
        self.unwritten_bytes_max = unwritten_bytes_max;
        self.bytes_max = settings.template.bytes_max;
        for (place, &id) in settings.logs.iter().enumerate() {
            let store = Store::open(Settings { log: id, ..settings.template }, out);
            self.logs.push(Log {
                id,
                store,
                payload_bytes_max: settings.template.payload_bytes_max(),
                phase: Phase::Opening,
                reports: VecDeque::new(),
                joins: false,
                wants: false,
                readers: BTreeSet::new(),
                waiting_readers: VecDeque::new(),
                awaited: BTreeMap::new(),
                has_work: true,
                is_short: false,
                begun: VecDeque::new(),
                stopped: None,
                was_unclean: false,
                orphans: Orphans::default(),
                is_own: place == 0,
                is_named: place == 0,
                is_damaged: false,
            });
        }
    }

    /// Whether there is a log at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.logs.is_empty()
    }

    /// Number of logs.
    pub(crate) fn len(&self) -> usize {
        self.logs.len()
    }

    /// The log at this place.
    pub(crate) fn log(&mut self, log: u16) -> Option<&mut Log> {
        self.logs.get_mut(usize::from(log))
    }

    /// The place of a log that a queue names; new queues are in the first.
    ///
    /// # Panics
    /// When the shard does not drive it: what is confirmed elsewhere is not found at the next start.
    pub(crate) fn place_of(&self, id: LogId) -> u16 {
        let place = self.logs.iter().position(|log| log.id == id);
        assert!(place.is_some(), "a queue names {id}, which its shard does not drive");
        place.unwrap_or_default() as u16
    }

    /// Whether something is read for this queue, or it waits until it may begin to.
    pub(crate) fn has_reader(&self, id: QueueId) -> bool {
        self.logs.iter().any(|log| {
            let reads = log.readers.iter().map(|(_, reader)| reader);
            reads
                .chain(&log.waiting_readers)
                .chain(log.awaited.values())
                .any(|reader| reader.1 == id)
        })
    }

    /// A message that a look-up just found.
    pub(crate) fn view(&self, log: u16, at: Position) -> Option<MessageView<'_>> {
        self.logs.get(usize::from(log))?.found(at)
    }

    /// What a queue does with its log.
    #[inline]
    pub(crate) fn backlog<'a>(
        &'a mut self,
        now: Now,
        log: u16,
        reader: Reader,
        operations: &'a mut Operations,
    ) -> Option<Backlog<'a>> {
        let log = self.logs.get_mut(usize::from(log))?;
        let (windows, fetched) = (&mut self.windows, &mut self.fetched);
        Some(Backlog { log, windows, fetched, operations, now, reader })
    }

    /// Appends a message once, with its places in the queues of one log.
    pub(crate) fn append(
        &mut self,
        log: u16,
        view: &MessageView<'_>,
        places: &[Place],
    ) -> Result<Position, AppendError> {
        let log = self.logs.get_mut(usize::from(log)).ok_or(AppendError::Stopped)?;
        log.append(view, places)
    }

    /// Lets a publish wait until what was just appended is durable.
    pub(crate) fn report_when_durable(&mut self, log: u16, to: ChannelRef, number: u64) {
        let Some(log) = self.logs.get_mut(usize::from(log)) else {
            invariant!("what took a message is one of the logs")
        };
        log.wants = true;
        let end = log.store.end();
        if log.joins
            && let Some(last) = log.reports.back_mut()
            && last.to == to
        {
            if last.last + 1 == number && last.count == 1 {
                last.last = number;
                last.end = end;
                return;
            }
            if last.first == number && last.last == number {
                last.count += 1;
                last.end = end;
                return;
            }
        }
        log.joins = true;
        log.reports.push_back(Report { end, to, first: number, last: number, count: 1 });
    }

    /// The next report that is due, of any log.
    pub(crate) fn pop_report(&mut self, log: u16) -> Option<Report> {
        let log = self.logs.get_mut(usize::from(log))?;
        let due = log.reports.front()?.end <= log.store.durable() && log.stopped.is_none();
        due.then(|| log.reports.pop_front()).flatten()
    }

    /// Makes what is appended next land in one batch of each of these logs, as far as it fits a segment.
    pub(crate) fn hold(&mut self, need: Need) {
        for (place, log) in self.logs.iter_mut().enumerate() {
            if log.is_named && need.logs.has(place as u16) {
                // A commit that is larger than a segment is not atomic over a crash.
                let _ = log.store.hold(need.bytes);
            }
        }
    }

    /// What is settled in a log from here on is to be in the batch of what was held.
    pub(crate) fn begin_held_settles(&mut self, log: u16) {
        if let Some(log) = self.logs.get_mut(usize::from(log)) {
            log.store.begin_held_settles();
        }
    }

    /// The end of that.
    pub(crate) fn end_held_settles(&mut self, log: u16) {
        if let Some(log) = self.logs.get_mut(usize::from(log)) {
            log.store.end_held_settles();
        }
    }

    /// Has everything appended to a log so far synced. Where it ends; `None` where nothing is logged.
    pub(crate) fn want_synced(&mut self, log: u16) -> Option<Position> {
        let log = self.logs.get_mut(usize::from(log))?;
        log.store.want_synced();
        Some(log.store.end())
    }

    /// Whether a log is synced so far.
    pub(crate) fn is_synced(&self, log: u16, end: Position) -> bool {
        self.logs.get(usize::from(log)).is_none_or(|log| log.store.synced() >= end)
    }

    /// A queue, or what stands for a delayed exchange, leaves a log with everything in it.
    pub(crate) fn drop_queue(&mut self, log: u16, queue: QueueId) {
        if let Some(log) = self.logs.get_mut(usize::from(log))
            && log.takes()
        {
            log.store.drop_queue(queue);
            log.has_work = true;
        }
    }

    /// A queue is gone, here or on another shard, for which room in this log may be waited for.
    pub(crate) fn note_left(&mut self, log: u16) {
        self.left.all.add(log);
        self.left.commits.add(log);
    }

    /// The same of one for which none but transactions wait for room: they ask for it whatever queues they go to.
    pub(crate) fn note_left_by_commits(&mut self, log: u16) {
        self.left.commits.add(log);
    }

    /// The logs that queues have left since the last call. Who waits for room there may have been on the
    /// way to such a queue, and need none any more.
    pub(crate) fn take_left(&mut self) -> Left {
        core::mem::take(&mut self.left)
    }

    /// Whether a log keeps damaged messages of a queue.
    pub(crate) fn keeps_damaged(&self, queue: QueueId) -> bool {
        self.logs.iter().any(|log| log.store.has_set_aside(queue))
    }

    /// Entries that were in windows are gone.
    pub(crate) fn forget_windows(&mut self, count: usize) {
        self.windows = self.windows.saturating_sub(count);
    }

    /// Whether publishers must be held back because a log takes no messages, or soon will not.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.logs.iter().any(|log| log.is_short)
    }

    /// Whether one of the logs gets no room but what comes free in it.
    pub(crate) fn is_full(&self, logs: LogSet) -> bool {
        self.named(logs).any(|log| log.phase == Phase::Running && log.store.makes_no_room())
    }

    /// Whether the log at this place has room for what need not go there.
    pub(crate) fn has_ample_room(&self, place: u16) -> bool {
        let log = self.logs.get(usize::from(place));
        log.is_some_and(|log| log.phase == Phase::Running && log.store.has_ample_room(AMPLE_BYTES))
    }

    /// A queue of this shard has its messages in the log at this place.
    pub(crate) fn name(&mut self, place: u16) {
        let Some(log) = self.logs.get_mut(usize::from(place)) else { return };
        log.is_named = true;
        if place == 0 {
            // One of another shard gets few messages, if any.
            log.store.keep_ready();
        }
    }

    /// Whether messages of `bytes` in all find no room now, as [`Journal::must_wait_for`] says; but
    /// nothing is prepared for them.
    pub(crate) fn lacks_room(&self, bytes: usize) -> bool {
        !self.closes && self.has_no_room(Need { logs: LogSet::ALL, bytes })
    }

    /// The same of some logs alone, also while the logs close.
    pub(crate) fn has_no_room(&self, need: Need) -> bool {
        self.named(need.logs).any(|log| match log.phase {
            Phase::Opening => true,
            Phase::Running => !log.store.would_take(need.bytes),
            Phase::Refused(_) | Phase::Closing | Phase::Removed => false,
        })
    }

    /// As [`Journal::must_wait_for`], of messages that are passed on and come free in this log.
    pub(crate) fn must_wait_to_pass_on(&mut self, need: Need, frees: Option<u16>) -> bool {
        self.set_passing(frees, true);
        let waits = self.must_wait_for(need);
        self.set_passing(frees, false);
        waits
    }

    /// Whether what is asked for and appended next is passed on, and comes free in this log.
    pub(crate) fn set_passing(&mut self, frees: Option<u16>, is_passing: bool) {
        if let Some(log) = frees.and_then(|place| self.logs.get_mut(usize::from(place))) {
            log.store.set_passing(is_passing);
        }
    }

    /// Whether messages have to wait: one of their logs has no room for them yet, and it is being made. Nobody
    /// waits for a log that takes nothing any more, because it has stopped, or while the logs close:
    /// [`Journal::append`] says so, and what was meant for it is refused.
    pub(crate) fn must_wait_for(&mut self, need: Need) -> bool {
        !self.lacking(need).is_empty()
    }

    /// Those of the logs for which messages have to wait.
    pub(crate) fn lacking(&mut self, need: Need) -> LogSet {
        let closes = self.closes;
        let mut lacking = LogSet::default();
        // All of them are asked: each has room made for it then.
        for (place, log) in self.logs.iter_mut().enumerate() {
            if !log.is_named || !need.logs.has(place as u16) {
                continue;
            }
            let waits = match log.phase {
                Phase::Opening => true,
                Phase::Running => !closes && !log.store.has_room(need.bytes),
                Phase::Refused(_) | Phase::Closing | Phase::Removed => false,
            };
            if waits {
                lacking.add(place as u16);
            }
        }
        lacking
    }

    fn named(&self, logs: LogSet) -> impl Iterator<Item = &Log> {
        let logs = self.logs.iter().enumerate().filter(move |(place, _)| logs.has(*place as u16));
        logs.map(|(_, log)| log).filter(|log| log.is_named)
    }

    /// Who waits for room asks again now; nobody waits for what others asked for before.
    pub(crate) fn forget_wishes(&mut self) {
        for log in &mut self.logs {
            log.store.forget_wishes();
        }
    }

    /// Whether messages of `bytes` in all would be taken if the logs were empty.
    pub(crate) fn could_hold(&self, bytes: usize) -> bool {
        self.could_hold_beside(LogSet::ALL, bytes, Occupied::default())
    }

    /// The same of some logs if there were nothing in them but what is `occupied`.
    pub(crate) fn could_hold_beside(&self, logs: LogSet, bytes: usize, occupied: Occupied) -> bool {
        self.logs.iter().enumerate().all(|(place, log)| {
            if !log.is_named || !logs.has(place as u16) {
                return true;
            }
            let beside = if place == usize::from(occupied.log) { occupied.bytes } else { 0 };
            !log.takes() || log.store.could_hold_beside(bytes, beside)
        })
    }

    /// Whether a message in so many segments could be passed on in the shard's own log if all that is left lay in
    /// `others`, itself as well.
    pub(crate) fn could_pass_on_beside(&mut self, segments: u16, others: usize) -> bool {
        let bytes = |segments: usize| segments.saturating_mul(self.payload_bytes_max());
        let (bytes, occupied) = (bytes(segments.into()), Occupied { log: 0, bytes: bytes(others) });
        self.set_passing(occupied.frees(), true);
        let could = self.could_hold_beside(LogSet::OWN, bytes, occupied);
        self.set_passing(occupied.frees(), false);
        could
    }

    /// Segments that so many bytes take at least.
    pub(crate) fn segments_for(&self, bytes: usize) -> u16 {
        u16::try_from(bytes.div_ceil(self.payload_bytes_max())).unwrap_or(u16::MAX)
    }

    /// Bytes that a message takes in a log, with its places in so many queues, at most.
    pub(crate) fn message_bytes(&self, view: &MessageView<'_>, queues: usize) -> usize {
        let Some(log) = self.logs.first() else { return 0 };
        log.store.message_bytes_max(&message_of(view), queues)
    }

    /// The same at least.
    pub(crate) fn message_bytes_min(&self, view: &MessageView<'_>, queues: usize) -> usize {
        Store::message_bytes_min(&message_of(view), queues)
    }

    /// Bytes of messages that a log can be made to hold as a whole or not at all.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.logs.first().map_or(usize::MAX, |log| log.payload_bytes_max)
    }

    /// Whether so much waits to be written that publishers should be read more slowly.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.unwritten_bytes > self.unwritten_bytes_max
    }

    /// Whether publishers that were read too fast may be read again.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.unwritten_bytes <= self.unwritten_bytes_max / 2
    }

    /// Memory of what is not written yet, of long messages that are being read, and of the index, in
    /// bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.unwritten_bytes + self.large_bytes + self.index_bytes
    }

    /// The same, asked of each log now.
    pub(crate) fn memory_by_walk(&self) -> usize {
        let logs = self.logs.iter().filter(|log| log.phase != Phase::Removed);
        let bytes = logs.map(|log| {
            let store = &log.store;
            store.unwritten_bytes() + store.large_bytes() + store.index_memory_bytes()
        });
        bytes.sum()
    }

    /// End of a cycle: what is due goes to the disk.
    pub(crate) fn flush(&mut self, now: Now, out: &mut Operations) {
        let (mut unwritten, mut large, mut index) = (0, 0, 0);
        let is_shared = self.bytes_max != u64::MAX && self.logs.len() > 1;
        let logs = self.logs.iter().filter(|log| log.phase != Phase::Removed);
        let mut disk: u64 = logs.map(|log| log.store.disk_bytes()).sum();
        for log in self.logs.iter_mut().filter(|log| log.phase != Phase::Removed) {
            // What one log does not take of the disk is for the others.
            let own = log.store.disk_bytes();
            if is_shared {
                log.store.set_bytes_max(own + self.bytes_max.saturating_sub(disk));
            }
            log.joins = false;
            if core::mem::take(&mut log.wants) {
                log.store.want_durable();
            }
            log.store.flush(now, out);
            disk = disk + log.store.disk_bytes() - own;
            // Who waits for a log beside the own one that may not grow keeps no others waiting.
            log.is_short = (log.is_own && log.store.is_out_of_disk())
                || log.store.is_disk_full()
                || log.stopped.is_some();
            log.note_generation(now);
            unwritten += log.store.unwritten_bytes();
            large += log.store.large_bytes();
            index += log.store.index_memory_bytes();
        }
        (self.unwritten_bytes, self.large_bytes, self.index_bytes) = (unwritten, large, index);
    }

    /// Work that nobody waits for, a slice of it.
    pub(crate) fn work(&mut self, now: Now, out: &mut Operations) {
        for log in self.logs.iter_mut().filter(|log| log.phase == Phase::Running) {
            log.has_work = log.store.work(now, out);
        }
    }

    /// Whether the logs close as soon as nothing is left that would change them.
    #[inline]
    pub(crate) fn closes(&self) -> bool {
        self.closes
    }

    /// Whether [`Journal::work`] would get on with something now.
    pub(crate) fn has_work(&self) -> bool {
        let has_work = |log: &Log| log.has_work || log.store.is_warm();
        self.logs.iter().any(|log| log.phase == Phase::Running && has_work(log))
    }

    /// When [`Journal::flush`] has something to do by itself.
    pub(crate) fn next_timeout(&self) -> Instant {
        let logs = self.logs.iter().filter(|log| log.phase != Phase::Removed);
        logs.map(|log| log.store.next_timeout()).min().unwrap_or(Instant::NEVER)
    }
}

impl Log {
    /// Whether records may be appended: not while it is opened, and not any more once it closes.
    fn takes(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Remembers since when the log has written to its segment.
    fn note_generation(&mut self, now: Now) {
        let generation = generation(self.store.end());
        if self.begun.back().is_some_and(|last| last.0 == generation) {
            return;
        }
        self.begun.push_back((generation, now.instant));
        if self.begun.len() > BEGUN_MAX {
            self.begun.pop_front();
        }
    }

    /// How long ago a position was written at most, as far as this run knows.
    fn age(&self, now: Now, at: Position) -> Option<Duration> {
        let next = self.begun.partition_point(|begun| begun.0 <= generation(at));
        let begun = self.begun.get(next.checked_sub(1)?)?;
        Some(now.instant.since(begun.1))
    }

    fn append(
        &mut self,
        view: &MessageView<'_>,
        places: &[Place],
    ) -> Result<Position, AppendError> {
        if !self.takes() {
            return Err(AppendError::Stopped);
        }
        self.store.append(&message_of(view), places)
    }
}

fn message_of<'a>(view: &MessageView<'a>) -> Message<'a> {
    Message {
        exchange: view.exchange,
        routing_key: view.routing_key,
        properties: view.properties,
        body: view.body,
    }
}
