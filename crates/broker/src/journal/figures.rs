//! Figures of a shard's logs, for metrics.

use core::time::Duration;

use lepus_base::{Now, Position, QueueId};
use lepus_store::place::generation;

use super::Journal;
use crate::query::LogFigures;

/// What a shard's logs are in trouble with, of all of them; nothing is walked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTroubles {
    /// An own one has no room.
    pub is_low: bool,
    /// One of an earlier run with more shards has no room.
    pub is_adopted_full: bool,
    /// One has stopped.
    pub is_stopped: bool,
    /// Reads wait to be made again.
    pub has_waiting_reads: bool,
    /// Writes or syncs wait to be made again.
    pub has_waiting_writes: bool,
}

/// The unacknowledged delivery whose message lies furthest back in the log: what is behind it
/// cannot be freed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestDelivery {
    /// The queue it belongs to.
    pub queue: QueueId,
    /// Segments from its own to the one that is written to.
    pub segments: u32,
    /// How long ago it was written at most; not known for what an earlier run wrote.
    pub age: Option<Duration>,
}

impl Journal {
    /// Sums over all logs.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        let LogTroubles { is_low, is_adopted_full, is_stopped, .. } = self.troubles();
        let mut sum = LogFigures {
            window_entries: self.windows,
            is_low,
            is_adopted_full,
            is_stopped,
            ..LogFigures::default()
        };
        for log in &self.logs {
            let figures = log.store.figures();
            sum.log_bytes += figures.log_bytes;
            sum.index_bytes += figures.index_bytes;
            sum.read_bytes += figures.read_bytes;
            sum.syncs += figures.syncs;
            sum.segments += figures.segments;
            sum.dead_segments += figures.dead_segments;
            sum.spare_segments += figures.spare_segments;
            sum.unwritten_bytes += log.store.unwritten_bytes();
            sum.memory_bytes += figures.memory_bytes;
            sum.moved += figures.moved;
            sum.checkpoints += figures.checkpoints;
            sum.waiting_reports += log.reports.len();
            sum.unclean += usize::from(log.was_unclean);
            sum.orphaned += log.orphans.messages();
            sum.failed_reads += figures.failed_reads;
            sum.waiting_reads += figures.waiting_reads;
            sum.damaged += figures.damaged;
            sum.damaged_segments += figures.damaged_segments;
        }
        sum
    }

    /// What all logs are in trouble with.
    #[must_use]
    pub fn troubles(&self) -> LogTroubles {
        let mut all = LogTroubles::default();
        for log in &self.logs {
            all.is_low |= log.is_short;
            all.is_adopted_full |= !log.is_own && log.store.is_out_of_disk();
            all.is_stopped |= log.stopped.is_some();
            all.has_waiting_reads |= log.store.has_waiting_reads();
            all.has_waiting_writes |= log.store.has_waiting_writes();
        }
        all
    }

    /// What is to be told of a delivery of a queue, whose message is at this position of a log.
    pub(crate) fn delivery_at(
        &self,
        now: Now,
        log: u16,
        position: Position,
        queue: QueueId,
    ) -> Option<OldestDelivery> {
        let log = self.logs.get(usize::from(log))?;
        let segments = generation(log.store.end()).saturating_sub(generation(position)) + 1;
        Some(OldestDelivery { queue, segments, age: log.age(now, position) })
    }
}
