//! The figures of a running broker as values: what metrics and `lepus status` are made of.

use crate::machine::OwnFigures;
use lepus_broker::counters::Counters;
use lepus_broker::query::{Figures, Holdings};

/// What is known about the node for as long as it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `rabbit@host`, as in the API and the metrics.
    pub name: String,
    /// Name of the cluster.
    pub cluster: String,
    /// The version that clients are told.
    pub told_version: String,
    /// The product that clients are told.
    pub told_product: String,
    /// The version of lepus.
    pub version: String,
    /// Bytes that messages and connections may take.
    pub memory_budget_bytes: u64,
    /// Bytes of the disk that are to stay free.
    pub disk_free_bytes_min: u64,
}

/// What one shard's loop has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopFigures {
    /// Turns of the loop.
    pub cycles: u64,
    /// Nanoseconds in which there was work.
    pub busy_nanos: u64,
    /// Nanoseconds of the longest turn so far.
    pub turn_nanos_max: u64,
    /// Turns of 20 ms or longer.
    pub long_turns: u64,
    /// Nanoseconds of looking around for work.
    pub spin_nanos: u64,
    /// Nanoseconds asleep.
    pub sleep_nanos: u64,
    /// Times it fell asleep.
    pub sleeps: u64,
    /// Times it let something gather before the next turn.
    pub naps: u64,
    /// Sleeping peers it woke.
    pub wakes_sent: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Read calls on sockets.
    pub reads: u64,
    /// Write calls on sockets.
    pub writes: u64,
    /// Batches of mail received from other shards.
    pub mail_in: u64,
    /// Batches of mail sent to other shards.
    pub mail_out: u64,
    /// The CPU that the shard is bound to.
    pub cpu: Option<u64>,
    /// The node that its memory is bound to.
    pub memory_node: Option<u64>,
    /// 1 if it is not where it was planned to be.
    pub misplaced: u64,
}

/// Everything one shard told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// What the broker there told.
    pub figures: Figures,
    /// The loop's own figures.
    pub turns: LoopFigures,
}

/// All figures of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Who tells.
    pub node: Node,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Every shard in order.
    pub shards: Vec<Shard>,
    /// Those who have not logged in.
    pub waiting: Waiting,
    /// Entries that are not in the audit file, though there is one: too many waited for it, or it could not be written.
    pub audit_left_out: u64,
    /// What the operating system says.
    pub own: OwnFigures,
}

/// Connections before their login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Those that have said nothing yet.
    pub silent: u64,
    /// Those on their way to a login.
    pub entering: u64,
    /// Those that were closed because they said nothing for too long, since the start.
    pub expired: u64,
    /// Those that gave way to new ones, since the start.
    pub gave_way: u64,
}

impl Snapshot {
    /// The sum of what all shards have counted.
    pub(crate) fn counted(&self, total: fn(&Counters) -> u64) -> u64 {
        self.shards.iter().map(|shard| total(&shard.figures.counters)).sum()
    }

    /// The sum of what all shards hold.
    pub(crate) fn held(&self, part: fn(&Holdings) -> u64) -> u64 {
        self.shards.iter().map(|shard| part(&shard.figures.holdings)).sum()
    }

    /// Whether any shard holds publishers back.
    #[must_use]
    pub fn memory_alarm(&self) -> bool {
        self.shards.iter().any(|shard| shard.figures.holdings.memory_alarm)
    }

    /// Whether any shard holds publishers back for lack of room on the disk.
    #[must_use]
    pub fn disk_alarm(&self) -> bool {
        self.shards.iter().any(|shard| shard.figures.logs.is_low)
    }
}
