//! What the balancer looks at and what it says.

use alloc::vec::Vec;
use core::fmt;

use lepus_base::{ConnectionId, QueueId, ShardId};

/// What all shards did in the last interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// By shard.
    pub shards: Vec<ShardLoad>,
    /// Connections that published, or got something from another shard.
    pub talkers: Vec<Talker>,
    /// Queues that got messages, of shards that are all but saturated.
    pub queues: Vec<BusyQueue>,
}

/// What one shard did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardLoad {
    /// The share of its time in which it had work, in thousandths.
    pub busy: u32,
}

/// A connection that published, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Talker {
    /// The connection.
    pub connection: ConnectionId,
    /// Where it is.
    pub shard: ShardId,
    /// Whether nothing but what it publishes ties it to its shard.
    pub movable: bool,
    /// Messages per second by the shard of the queue that got them, each shard at most once, its own
    /// among them.
    pub to: Vec<(ShardId, u64)>,
}

impl Talker {
    /// Messages per second.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.to.iter().map(|(_, messages)| messages).sum()
    }

    /// The shard that gets most of its messages, and how many; the lowest of equals.
    #[must_use]
    pub fn favourite(&self) -> Option<(ShardId, u64)> {
        let rank = |&&(shard, messages): &&(ShardId, u64)| (messages, core::cmp::Reverse(shard));
        self.to.iter().max_by_key(rank).copied()
    }
}

/// A queue that got messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyQueue {
    /// The queue.
    pub queue: QueueId,
    /// Its home.
    pub shard: ShardId,
    /// Whether it may go: it is nearly empty, belongs to no connection and did not come just now.
    pub movable: bool,
    /// Messages per second.
    pub messages: u64,
}

/// What is to move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Connections.
    pub connections: Vec<Move>,
    /// Queues; who uses them follows later.
    pub queues: Vec<QueueMove>,
}

/// One queue is to go to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueMove {
    /// The queue.
    pub queue: QueueId,
    /// Its home.
    pub from: ShardId,
    /// Its next one.
    pub to: ShardId,
    /// Why.
    pub reason: Reason,
}

/// One connection is to go to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The connection.
    pub connection: ConnectionId,
    /// Where it is.
    pub from: ShardId,
    /// Where it is to go.
    pub to: ShardId,
    /// Why.
    pub reason: Reason,
}

/// Why a connection moves. Shares are in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It publishes to queues of another shard, which has room.
    Gather {
        /// The share of its messages that goes there.
        share: u32,
        /// How busy that shard is.
        busy: u32,
    },
    /// Its shard has no room for all its queues, and another one idles.
    Relieve {
        /// How busy its shard is.
        busy: u32,
        /// How much of that is for the queue.
        share: u32,
        /// How busy the other one is.
        idle: u32,
    },
    /// Its shard has no room, and another one idles.
    Spread {
        /// How busy its shard is.
        busy: u32,
        /// How busy the other one is.
        idle: u32,
    },
    /// None: everything moves, see [`crate::Restless`].
    Restless,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Gather { share, busy } => {
                write!(f, "gather: {share} % of its messages go there, where {busy} % are used")
            }
            Reason::Relieve { busy, share, idle } => {
                write!(
                    f,
                    "relieve: {busy} % of its shard are used, {share} % for it, {idle} % there"
                )
            }
            Reason::Spread { busy, idle } => {
                write!(f, "spread: {busy} % of its shard are used, {idle} % there")
            }
            Reason::Restless => f.write_str("restless"),
        }
    }
}
