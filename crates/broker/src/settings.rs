//! What the operator decides about a shard, and the limits that keep every peer's share bounded.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::session::AmqpOptions;
use lepus_base::{HashState, QueueId, ShardId};
use lepus_store::disk::LogId;

use crate::directory::Capacity;

/// Of a shard's memory, one part in so many is for connections that have not opened a vhost.
const ENTERING_PART: usize = 20;
/// The least that they have, in bytes.
const ENTERING_BYTES_MIN: usize = 256 * 1024;

/// Everything a [`crate::Broker`] needs to know at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The shard this broker runs on.
    pub shard: ShardId,
    /// Number of shards in the process.
    pub shards: u16,
    /// The node's name, as copies of traced messages tell it: `rabbit@host`.
    pub node: Arc<str>,
    /// The memory node of each shard, by shard; empty where all are on the same.
    pub nodes: Vec<u32>,
    /// Keys the hash maps; secret in production, fixed in the simulator. The same on every shard.
    pub hash: HashState,
    /// Seeds the generator of names and tokens; 32 random bytes in production, the same on
    /// every shard (each shard derives its own stream), since reply-to tokens made on one shard
    /// are checked on others.
    pub secret: [u8; 32],
    /// The handshake's offer and the protocol's limits.
    pub server: AmqpOptions,
    /// Limits on what peers can make grow.
    pub limits: Limits,
    /// Where messages are kept on disk; `None` keeps everything in memory.
    pub store: Option<StoreSettings>,
}

/// The logs that a shard drives.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Settings of each of them, but for the log's number.
    pub template: lepus_store::Settings,
    /// The logs: first the shard's own, to which new queues go. Every log is there whose number a
    /// queue of the shard names.
    pub logs: Vec<LogId>,
    /// Ids of queues, and of what delayed exchanges held back, that were deleted, in growing order: what
    /// logs still have of these goes. What they have of others that nobody knows is kept.
    pub deleted: Arc<[QueueId]>,
}

/// Limits on what peers can make grow.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Consumers on one channel.
    pub consumers_per_channel_max: u32,
    /// Consumers with a filter on one connection.
    pub connection_filters_max: usize,
    /// Unacknowledged deliveries on one channel; deliveries stop there. A consumer of a queue on another
    /// shard has the limit for itself.
    pub unacked_per_channel_max: u32,
    /// Bytes waiting in a connection's send buffer before deliveries stop.
    pub send_window_bytes: usize,
    /// Bytes of answers that a client has not read before it is not read any further.
    pub unread_bytes_max: usize,
    /// Bytes of frames parked behind the pending questions of a connection before reading pauses.
    pub parked_bytes_max: usize,
    /// Different keys of a message beside its routing key.
    pub copy_keys_max: usize,
    /// Steps that routing one message may take, see
    /// [`Routes::steps`](crate::directory::Routes::steps); one that takes more is refused.
    pub routing_steps_max: u32,
    /// Bytes buffered by a transaction on one channel.
    pub tx_bytes_max: usize,
    /// Bytes appended to a shard's logs and not written above which those are not read that publish to it, until
    /// half of them is written.
    pub unwritten_bytes_max: usize,
    /// Bytes of mail for one shard in one batch before publishers pause.
    pub mail_batch_bytes_max: usize,
    /// The shard's equal share of the memory for messages and queues of all shards. A shard may use
    /// more where others use less, see [`crate::loan`]; where there is no more, publishers are blocked.
    pub memory_bytes: usize,
    /// The least of it that a shard keeps for itself whatever others need; never less than an eighth.
    pub memory_floor_bytes: usize,
    /// Memory of messages above which transient ones go to the log, where there is one; never more
    /// than half of what the shard could have.
    pub spill_bytes: usize,
    /// What may be declared.
    pub capacity: Capacity,
    /// Bindings that go in one step when what they belong to is deleted: more go in slices. The same on
    /// all shards.
    pub bindings_at_once: usize,
    /// How long a delivery may wait for its acknowledgement before its channel is closed, where its
    /// queue does not say; zero is for ever.
    pub consumer_timeout: Duration,
    /// Time a connection may take to close before its socket is dropped.
    pub close_timeout: Duration,
}

impl Limits {
    /// Bytes that connections which have not opened a vhost may hold together. They come on top of
    /// `memory_bytes`.
    #[must_use]
    pub fn entering_bytes_max(&self) -> usize {
        (self.memory_bytes / ENTERING_PART).max(ENTERING_BYTES_MIN)
    }

    /// The prefetch limit of a consumer whose queue is on another shard: there nobody knows how much
    /// its whole channel holds.
    #[must_use]
    pub fn prefetch_elsewhere(&self, prefetch: u32) -> u32 {
        match prefetch {
            0 => self.unacked_per_channel_max,
            prefetch => prefetch.min(self.unacked_per_channel_max),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            consumers_per_channel_max: 65_536,
            connection_filters_max: 1000,
            unacked_per_channel_max: 1_000_000,
            send_window_bytes: 256 * 1024,
            unread_bytes_max: 16 * 1024 * 1024,
            parked_bytes_max: 1024 * 1024,
            copy_keys_max: 1000,
            routing_steps_max: 2_000_000,
            tx_bytes_max: 256 * 1024 * 1024,
            unwritten_bytes_max: 32 << 20,
            mail_batch_bytes_max: 512 * 1024,
            memory_bytes: 1 << 30,
            memory_floor_bytes: 1 << 20,
            spill_bytes: usize::MAX,
            capacity: Capacity::default(),
            bindings_at_once: 64,
            consumer_timeout: Duration::from_secs(30 * 60),
            close_timeout: Duration::from_secs(10),
        }
    }
}
