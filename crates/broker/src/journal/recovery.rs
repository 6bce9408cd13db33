//! The logs at the start and at the end of a run.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use lepus_base::{Now, QueueId};
use lepus_store::disk::LogId;
use lepus_store::{Lane, Outline, Refusal};

use super::{Journal, Log, Phase};
use crate::broker::Broker;
use crate::directory::{Directory, QueueInfo, Request};
use crate::mail::Origin;
use crate::outbox::{Outbox, Severity};

/// How far the recovery of a shard's logs is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Operations are under way.
    Pending,
    /// Queues can be served.
    Ready,
    /// A log cannot be used, and nothing was changed.
    Refused(Box<RefusedLog>),
}

/// A log that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLog {
    /// Which one.
    pub log: LogId,
    /// Why.
    pub refusal: Refusal,
}

impl fmt::Display for RefusedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.log, self.refusal)
    }
}

/// What the definitions say of a queue that has messages in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They have it there.
    Known,
    /// It was deleted, and its messages with it.
    Deleted,
    /// They do not have it there: nobody knows whose its messages are.
    Orphaned,
}

/// What becomes of the messages that a log has of a queue, or of what a delayed exchange holds back.
/// `deleted` are ids that were deleted, in growing order.
#[must_use]
pub fn standing(
    directory: &Directory,
    deleted: &[QueueId],
    log: LogId,
    queue: QueueId,
) -> Standing {
    let info = directory.queue_by_id(queue);
    if info.is_some_and(|info| info.durable && log_of(info) == log)
        || directory.holding(queue).is_some_and(|info| info.durable)
    {
        return Standing::Known;
    }
    match info.is_none() && deleted.binary_search(&queue).is_ok() {
        true => Standing::Deleted,
        false => Standing::Orphaned,
    }
}

impl Journal {
    fn recovery(&self) -> Recovery {
        for log in &self.logs {
            if let Phase::Refused(refusal) = log.phase {
                return Recovery::Refused(Box::new(RefusedLog { log: log.id, refusal }));
            }
        }
        let is_opening = self.logs.iter().any(|log| log.phase == Phase::Opening);
        if is_opening { Recovery::Pending } else { Recovery::Ready }
    }

    /// Logs beside the own one of the shard in which nothing lives, and that nobody names.
    fn empty(&self, is_named: impl Fn(LogId) -> bool) -> Vec<LogId> {
        let is_empty = |log: &&Log| {
            let lives = log.store.lanes().any(|(_, slot)| log.store.count(slot).0 > 0);
            let is_damaged = log.is_damaged || !log.store.damaged_segments().is_empty();
            let is_needed = lives || log.is_named || is_damaged || is_named(log.id);
            log.phase == Phase::Running && !is_needed
        };
        self.logs.iter().skip(1).filter(is_empty).map(|log| log.id).collect()
    }

    /// The next log that runs, and for which nobody waits any more.
    fn next_quiet(&self) -> Option<u16> {
        let is_quiet = |log: &Log| {
            log.phase == Phase::Running && (log.reports.is_empty() || log.stopped.is_some())
        };
        self.logs.iter().position(is_quiet).map(|place| place as u16)
    }

    /// Whether the end of every log is on the disk.
    pub(crate) fn is_closed(&self) -> bool {
        self.logs.iter().all(|log| match log.phase {
            Phase::Closing => log.store.is_closed(),
            Phase::Refused(_) | Phase::Removed => true,
            Phase::Opening | Phase::Running => false,
        })
    }
}

impl Broker {
    /// Begins to recover the logs that the settings name; to be called once, when the directory
    /// is complete. The operations are in `out.disk`; [`Broker::recovery`] tells when it is done.
    pub fn open_stores(&mut self, now: Now, out: &mut Outbox) {
        let Some(settings) = self.settings.store.clone() else { return };
        let unwritten_bytes_max = self.edge.limits.unwritten_bytes_max;
        self.journal.open(&settings, unwritten_bytes_max, &mut out.disk);
        for (_, home) in &mut self.homes {
            // A queue that was there before the logs were.
            if let Some(info) = self.directory.queue_by_id(home.id) {
                home.log = self.journal.place_of(log_of(info));
                if info.durable {
                    self.journal.name(home.log);
                }
            }
        }
        self.journal.flush(now, &mut out.disk);
    }

    /// Logs of shards that are gone, in which nothing is and which no queue names. All logs are recovered.
    #[must_use]
    pub fn empty_logs(&self) -> Vec<LogId> {
        let durable = self.directory.queues(None).filter(|info| info.durable);
        let mut named: Vec<LogId> = durable.map(log_of).collect();
        named.sort_unstable();
        self.journal.empty(|id| named.binary_search(&id).is_ok())
    }

    /// Before anybody is served: nothing is done with these logs any more, so that their files can be
    /// removed.
    pub fn give_up_logs(&mut self, logs: &[LogId]) {
        for log in self.journal.logs.iter_mut().filter(|log| logs.contains(&log.id)) {
            log.phase = Phase::Removed;
        }
    }

    /// How far the recovery of the logs is.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.journal.recovery()
    }

    /// A log is recovered: its queues get what they had.
    pub(super) fn log_opened(&mut self, now: Now, place: u16, is_clean: bool, out: &mut Outbox) {
        let (directory, store) = (&self.directory, &self.settings.store);
        let deleted = store.as_ref().map_or(&[][..], |store| &store.deleted);
        let Some(log) = self.journal.log(place) else { return };
        log.phase = Phase::Running;
        log.was_unclean = !is_clean;
        let (id, orphans) = (log.id, &mut log.orphans);
        log.store.retain_queues(|queue, messages| match standing(directory, deleted, id, queue) {
            Standing::Known => true,
            Standing::Deleted => false,
            Standing::Orphaned if messages == 0 => false,
            Standing::Orphaned => {
                orphans.add(queue, messages);
                true
            }
        });
        self.give_back(place);
        self.tell_orphans(now, place, out);
    }

    /// Messages of queues that nobody knows are named, and their ids are not given to others.
    fn tell_orphans(&mut self, now: Now, place: u16, out: &mut Outbox) {
        let Some(log) = self.journal.log(place) else { return };
        let Some(below) = log.orphans.ids_below() else { return };
        let text = log.orphans.text(log.id);
        out.log(Severity::Warning, "orphaned-messages", text);
        self.ask_directory(now, Origin::Start, Request::UseIds { below }, out);
    }

    /// The queues of a log get what they had.
    fn give_back(&mut self, place: u16) {
        let Some(log) = self.journal.log(place) else { return };
        let outlines = log.store().lanes().map(|(lane, slot)| (lane, log.store.outline(slot)));
        let own = outlines.filter(|(lane, _)| !log.orphans.has(lane.queue));
        let lanes: Vec<(Lane, Outline)> = own.collect();
        for of_queue in lanes.chunk_by(|(one, _), (other, _)| one.queue == other.queue) {
            let is_live =
                |(lane, found): &&(Lane, Outline)| found.count > 0 && !lane.is_transient();
            let mut live = of_queue.iter().filter(is_live).peekable();
            let Some((first, outline)) = live.peek() else { continue };
            if self.directory.holding(first.queue).is_some() {
                self.delayed.list(place, outline.slot, first.queue);
                continue;
            }
            let Some(home) = self.home_slot(first.queue, u32::MAX) else { continue };
            let state = &mut self.homes[home as usize];
            let next = of_queue.iter().map(|(_, found)| found.next_seq).max();
            state.queue.begin_at(next.unwrap_or(0));
            for (lane, found) in live {
                state.queue.recover(lane.level as u8, found.slot, found.count, found.bytes);
            }
            state.weigh(&mut self.edge);
            if state.queue.has_rules() {
                // What is expired or too much goes without being asked for.
                self.list_work(home);
            }
        }
    }

    /// Closes the logs once nothing is left that would change them.
    pub(crate) fn close_journal(&mut self) {
        self.journal.closes = true;
    }

    /// Goes on closing, at the end of a cycle.
    pub(crate) fn continue_close(&mut self, now: Now, out: &mut Outbox) {
        if !self.journal.closes || self.changes_logs() {
            return;
        }
        while let Some(place) = self.journal.next_quiet() {
            for (slot, home) in self.homes.iter().filter(|(_, home)| home.log == place) {
                let reader = (slot as u32, home.id);
                if let Some(mut log) = self.journal.backlog(now, place, reader, &mut out.disk) {
                    home.queue.mark_unacked(&mut log);
                }
            }
            if let Some(log) = self.journal.log(place) {
                for (source, lane) in self.edge.dead_letters.kept(place) {
                    if source.was_delivered && !source.entry.place.is_spilled() {
                        log.store.mark_delivered(lane, source.entry.seq);
                    }
                }
                log.store.close();
                log.phase = Phase::Closing;
            }
        }
    }
}

/// The log in which a queue's messages are.
#[must_use]
pub fn log_of(info: &QueueInfo) -> LogId {
    LogId(1 + u32::from(info.log))
}
