//! Totals of a shard.

use alloc::string::String;

use crate::counters::Counters;

/// What one shard holds at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Open connections.
    pub connections: u64,
    /// Open channels.
    pub channels: u64,
    /// Consumers of queues whose home this shard is.
    pub consumers: u64,
    /// Open connections that have published, if only what was refused; each once, whatever its channels do.
    pub publishers: u64,
    /// Queues whose home this shard is.
    pub queues: u64,
    /// Messages ready in them.
    pub ready: u64,
    /// Messages of theirs that are delivered and not acknowledged.
    pub unacked: u64,
    /// Of the ready ones, those that consumers' filters have looked at and that nobody has.
    pub passed_over: u64,
    /// Messages that delayed exchanges hold back.
    pub delayed: u64,
    /// Bytes that count against the budget.
    pub memory_bytes: u64,
    /// Bytes of the budget that the shard may use now.
    pub memory_lent_bytes: u64,
    /// Whether publishers are held back because the memory is used up.
    pub memory_alarm: bool,
}

/// The unacknowledged delivery that keeps the oldest segment of a shard's logs, as it was found within the
/// last half minute or so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oldest {
    /// Name of the virtual host.
    pub vhost: String,
    /// Name of the queue.
    pub queue: String,
    /// Segments from the message's own to the end of the log.
    pub segments: u32,
}

/// The totals of one shard. All of them are kept as they change: to tell them costs the same however much
/// the shard holds, but for a sum over its logs and their segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Totals since the start.
    pub counters: Counters,
    /// The state at the moment.
    pub holdings: Holdings,
    /// Its logs.
    pub logs: LogFigures,
    /// Which delivery keeps the oldest segment of them.
    pub oldest: Option<Oldest>,
}

/// Sums over the logs that a shard drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Bytes written to segments, by this run.
    pub log_bytes: u64,
    /// Bytes written to index and checkpoints.
    pub index_bytes: u64,
    /// Bytes read from segments.
    pub read_bytes: u64,
    /// Syncs of segments.
    pub syncs: u64,
    /// Segments that hold something.
    pub segments: usize,
    /// Of these, segments whose messages are all gone; the next checkpoint frees them.
    pub dead_segments: usize,
    /// Segments ready for use.
    pub spare_segments: usize,
    /// Bytes appended and not written yet.
    pub unwritten_bytes: usize,
    /// Memory of buffers, index and caches.
    pub memory_bytes: usize,
    /// Entries that queues hold in memory.
    pub window_entries: usize,
    /// Messages that compaction moved.
    pub moved: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Publishes that wait for the disk.
    pub waiting_reports: usize,
    /// Whether publishers are held back for lack of room.
    pub is_low: bool,
    /// Whether a log beside the shard's own may not grow and is full: who waits for it waits alone.
    pub is_adopted_full: bool,
    /// Whether a write or sync failed.
    pub is_stopped: bool,
    /// Logs that the run before did not close in order.
    pub unclean: usize,
    /// Messages of queues that the definitions do not have in these logs.
    pub orphaned: u64,
    /// Reads that failed in this run.
    pub failed_reads: u64,
    /// Reads that failed, have not worked since and are made again.
    pub waiting_reads: usize,
    /// Damaged messages that are kept, as far as this run has met them.
    pub damaged: u64,
    /// Segments that are kept for damage that a start met in them.
    pub damaged_segments: usize,
}
