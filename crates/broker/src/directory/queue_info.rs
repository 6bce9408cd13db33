//! What the directory knows of a queue.

use crate::queue::{QueueKind, QueueSettings};
use alloc::boxed::Box;
use lepus_amqp::table::Table;
use lepus_base::{ConnectionId, QueueId, ShardId, VhostId};

/// Attributes of a queue, which all shards share: they do not change.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueInfo {
    /// Its identity, never used again.
    pub id: QueueId,
    /// The virtual host it belongs to.
    pub vhost: VhostId,
    /// Its name.
    pub name: Box<str>,
    /// The shard that keeps it.
    pub home: ShardId,
    /// The number of the log that it belongs to, for its whole life: its first home.
    pub log: u16,
    /// Whether it survives a restart; never for exclusive queues.
    pub durable: bool,
    /// Whether it goes with its last consumer.
    pub auto_delete: bool,
    /// The connection that it belongs to and goes with.
    pub exclusive: Option<ConnectionId>,
    /// Whether the broker gave it its name.
    pub server_named: bool,
    /// What kind of queue it is.
    pub kind: QueueKind,
    /// The arguments as declared, and the type where the virtual host's default gave one.
    pub arguments: Table,
    /// What the arguments mean; `None` where they ask for nothing, as with most queues.
    pub settings: Option<Box<QueueSettings>>,
    /// Who declared it.
    pub user: Box<str>,
}

impl QueueInfo {
    /// What the arguments mean.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        self.settings.as_deref().unwrap_or(&QueueSettings::PLAIN)
    }
}
