//! The logs at the start and at the end of a run.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use lepus_base::QueueId;
use lepus_store::disk::LogId;
use lepus_store::{Lane, LaneSlot, Outline, Refusal};

use super::{Journal, Log, Phase};
use crate::directory::{Directory, QueueInfo};

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
    /// How far the recovery is.
    pub(crate) fn recovery(&self) -> Recovery {
        for log in &self.logs {
            if let Phase::Refused(refusal) = log.phase {
                return Recovery::Refused(Box::new(RefusedLog { log: log.id, refusal }));
            }
        }
        let is_opening = self.logs.iter().any(|log| log.phase == Phase::Opening);
        if is_opening { Recovery::Pending } else { Recovery::Ready }
    }

    /// Logs beside the own one of the shard in which nothing lives, and that nobody names.
    pub(crate) fn empty(&self, is_named: impl Fn(LogId) -> bool) -> Vec<LogId> {
        let is_empty = |log: &&Log| {
            let lives = log.store.lanes().any(|(_, slot)| log.store.count(slot).0 > 0);
            let is_damaged = log.is_damaged || !log.store.damaged_segments().is_empty();
            let is_needed = lives || log.is_named || is_damaged || is_named(log.id);
            log.phase == Phase::Running && !is_needed
        };
        self.logs.iter().skip(1).filter(is_empty).map(|log| log.id).collect()
    }

    /// Nothing is done with these logs any more, so that their files can be removed.
    pub(crate) fn give_up(&mut self, logs: &[LogId]) {
        for log in self.logs.iter_mut().filter(|log| logs.contains(&log.id)) {
            log.phase = Phase::Removed;
        }
    }

    /// A log is recovered: from now on it takes messages, and has only those that are still somebody's or may be.
    pub(crate) fn opened(
        &mut self,
        place: u16,
        is_clean: bool,
        directory: &Directory,
        deleted: &[QueueId],
    ) {
        let Some(log) = self.log(place) else {
            invariant!("what was recovered is one of the logs")
        };
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
    }

    /// Messages of queues that nobody knows: the first id above those of the queues, and what is to be told.
    pub(crate) fn orphans(&mut self, place: u16) -> Option<(u64, String)> {
        let log = self.log(place)?;
        Some((log.orphans.ids_below()?, log.orphans.text(log.id)))
    }

    /// What a log has of queues that are known.
    pub(crate) fn lanes_of_queues(&mut self, place: u16) -> Vec<(Lane, Outline)> {
        let Some(log) = self.log(place) else {
            invariant!("what was recovered is one of the logs")
        };
        let outlines = log.store().lanes().map(|(lane, slot)| (lane, log.store.outline(slot)));
        outlines.filter(|(lane, _)| !log.orphans.has(lane.queue)).collect()
    }

    /// The logs close once nothing is left that would change them.
    pub(crate) fn close(&mut self) {
        self.closes = true;
    }

    /// A log gets its last checkpoint, in which these messages were delivered.
    pub(crate) fn close_log(
        &mut self,
        place: u16,
        delivered: impl Iterator<Item = (LaneSlot, u64)>,
    ) {
        let Some(log) = self.log(place) else { invariant!("what closes is one of the logs") };
        for (lane, seq) in delivered {
            log.store.mark_delivered(lane, seq);
        }
        log.store.close();
        log.phase = Phase::Closing;
    }

    /// The next log that runs, and for which nobody waits any more.
    pub(crate) fn next_quiet(&self) -> Option<u16> {
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

/// The log in which a queue's messages are.
#[must_use]
pub fn log_of(info: &QueueInfo) -> LogId {
    LogId(1 + u32::from(info.log))
}
