//! What an operator decides about a store.

use core::time::Duration;

use crate::disk::LogId;
use crate::key::Key;
use crate::record::RECORD_HEADER_BYTES;
use crate::segment::{BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES};

/// When appended records are synced, and what a confirm promises with that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// A confirm waits for a sync that covers its message: it survives loss of power.
    #[default]
    Always,
    /// A confirm waits for the write: it survives the end of the broker; loss of power takes at
    /// most what was written since the last sync, one [`Settings::sync_interval`] or less.
    Interval,
    /// As `Interval`, but only full segments and checkpoints are synced.
    Never,
}

/// Settings of one store. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The log it writes.
    pub log: LogId,
    /// The key that it gets if it has none: random, else clients can make what looks like its records.
    pub key: Key,
    /// The log has opaque records, and nothing is written before the owner has looked at those that
    /// recovery found: [`crate::Event::Found`] says when, [`crate::Store::go_on`] goes on.
    pub asks_first: bool,
    /// When it syncs.
    pub sync: SyncMode,
    /// Length of new segments, 4 KiB to 256 MiB. The segments of a log may differ.
    pub segment_bytes: u32,
    /// A batch is closed when it has grown to this.
    pub batch_bytes_max: usize,
    /// A batch of at least this size is filled up to the end of its last page (4 KiB): the next write
    /// would change that page once more, which the system counts and writes as a whole.
    pub fill_bytes_min: usize,
    /// What no one waits for is written when this much has gathered.
    pub write_bytes_min: usize,
    /// While messages come fast, a write waits until as much has gathered, even if somebody waits
    /// for it.
    pub gather_bytes: usize,
    /// It waits no longer than this after the end of the last one.
    pub gather_interval: Duration,
    /// What no one waits for is written after this time.
    pub write_interval: Duration,
    /// What is written is synced after this time.
    pub sync_interval: Duration,
    /// How long to wait before an operation that found the disk full is tried again.
    pub retry_interval: Duration,
    /// How long a read that fails is made again before it is given up. If other reads worked meanwhile,
    /// what it was to bring counts as damaged; otherwise the store stops. With zero it is not made
    /// again and counts as damaged at once.
    pub read_retry_limit: Duration,
    /// Segments are prepared ahead of need from the start. Without that none are before a message comes, or
    /// [`crate::Store::keep_ready`] says that some will; and after messages none are any more when none
    /// came for ten seconds.
    pub is_kept_ready: bool,
    /// Segments prepared ahead of need.
    pub spare_segments: usize,
    /// Prepared segments that messages may not use: settles, checkpoints and copies go on in them
    /// when the disk is full.
    pub reserve_segments: usize,
    /// Further ones that only messages may use that are [passed on](crate::Store::set_passing), once no
    /// more can be made: a disk that is full of what is to be passed on comes free that way alone. They are
    /// more while a message lives that lies in several segments; with zero there are none.
    pub passing_segments: usize,
    /// Segment files at most, whatever the disk has; the log counts as full then.
    pub segments_max: usize,
    /// Bytes of all files of the log, whatever the disk has; the log counts as full then.
    /// [`crate::Store::set_bytes_max`] may say that others leave less.
    pub bytes_max: u64,
    /// Empty segments kept for use again at most; what is above is deleted. Fewer are kept when fewer were
    /// begun since the last checkpoint.
    pub free_segments_max: usize,
    /// Closed index pages (4 KiB) kept in memory before the oldest go to disk.
    pub index_pages_max: usize,
    /// Memory for what was written or read: write buffers and read-ahead.
    pub cache_bytes: usize,
    /// Bytes read at once when a backlog is read.
    pub read_ahead_bytes: usize,
    /// A checkpoint is written when the log behind the last one is longer than this, and than
    /// [`Settings::checkpoint_factor`] times the checkpoint, or longer than
    /// [`Settings::checkpoint_log_bytes_max`].
    pub checkpoint_log_bytes: u64,
    /// How many times the checkpoint's own length the log may grow before the next.
    pub checkpoint_factor: u64,
    /// However long the checkpoint is: this much log is at most read at a start.
    pub checkpoint_log_bytes_max: u64,
    /// A checkpoint is written, too, when so many messages were appended behind the last one; 64
    /// further references of one message count as another.
    pub checkpoint_messages: u64,
    /// A checkpoint is written anew as a whole when what was appended to it is as long as its first
    /// section, but not before it is as long as this.
    pub checkpoint_delta_bytes_min: u64,
    /// Bytes of a checkpoint encoded in one cycle, about.
    pub checkpoint_slice_bytes: usize,
    /// A start without a valid checkpoint gathers no more entries of queues than this at once, about 128
    /// bytes each, and reads the log once more for the rest of them.
    pub rebuild_entries_max: usize,
    /// Lanes kept ready for use even if they are idle; others take little memory.
    pub lanes_kept: usize,
    /// A segment is emptied by copying when fewer than this many percent of it live.
    pub compaction_percent: u32,
    /// So many bytes of dead messages in such segments are let be.
    pub compaction_slack_bytes: u64,
    /// Bytes per second that compaction may read; more only while half as much is appended.
    pub compaction_rate: u64,
    /// Copied messages whose old places are remembered at most.
    pub relocations_max: usize,
    /// Copied messages whose old places are remembered before index pages are written anew.
    pub relocations_kept: usize,
}

impl Settings {
    /// The defaults for a log.
    #[must_use]
    pub fn new(log: LogId) -> Settings {
        Settings {
            log,
            key: Key::NONE,
            asks_first: false,
            sync: SyncMode::Always,
            segment_bytes: 16 << 20,
            batch_bytes_max: 1 << 20,
            fill_bytes_min: 16 << 10,
            write_bytes_min: 256 << 10,
            gather_bytes: 96 << 10,
            gather_interval: Duration::from_millis(2),
            write_interval: Duration::from_millis(200),
            sync_interval: Duration::from_millis(1000),
            retry_interval: Duration::from_millis(1000),
            read_retry_limit: Duration::from_secs(60),
            is_kept_ready: true,
            spare_segments: 2,
            reserve_segments: 2,
            passing_segments: 1,
            segments_max: usize::MAX,
            bytes_max: u64::MAX,
            free_segments_max: 64,
            index_pages_max: 512,
            cache_bytes: 16 << 20,
            read_ahead_bytes: 256 << 10,
            checkpoint_log_bytes: 64 << 20,
            checkpoint_factor: 16,
            checkpoint_log_bytes_max: 512 << 20,
            checkpoint_messages: 1 << 19,
            checkpoint_delta_bytes_min: 1 << 20,
            checkpoint_slice_bytes: 16 << 10,
            rebuild_entries_max: usize::MAX,
            lanes_kept: 1024,
            compaction_percent: 20,
            compaction_slack_bytes: 64 << 20,
            compaction_rate: 32 << 20,
            relocations_max: 1 << 22,
            relocations_kept: 4096,
        }
    }

    /// Bytes of a record's payload, or of what [`crate::Store::hold`] keeps together, that fit into a
    /// segment.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        let headers = SEGMENT_HEADER_BYTES + BATCH_HEADER_BYTES + RECORD_HEADER_BYTES;
        (self.segment_bytes as usize).saturating_sub(headers)
    }
}
