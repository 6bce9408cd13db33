//! Virtual hosts: name spaces with their own exchanges, queues and permissions.

use alloc::boxed::Box;
use alloc::vec::Vec;
use lepus_base::VhostId;
use lepus_queue::QueueKind;

/// What an operator says about a virtual host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VhostMetadata {
    /// Text for people.
    pub description: Box<str>,
    /// Words for people and tools.
    pub tags: Vec<Box<str>>,
    /// The type of queues that are declared without one.
    pub default_queue_type: Option<QueueKind>,
    /// Whether the virtual host refuses to be deleted.
    pub protected: bool,
    /// Whether copies of its messages go to those who trace.
    pub tracing: bool,
}

/// How much a virtual host may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostLimits {
    /// Connections at a time, as it was set; a negative number is no limit.
    pub connections_max: Option<i64>,
    /// Queues, as it was set; a negative number is no limit.
    pub queues_max: Option<i64>,
}

impl VhostLimits {
    /// Connections at a time, where there is a limit.
    #[must_use]
    pub fn connections(&self) -> Option<u64> {
        self.connections_max.and_then(|limit| u64::try_from(limit).ok())
    }

    /// Queues, where there is a limit.
    #[must_use]
    pub fn queues(&self) -> Option<u64> {
        self.queues_max.and_then(|limit| u64::try_from(limit).ok())
    }
}

/// A virtual host.
#[derive(Clone, Debug, PartialEq)]
pub struct VhostInfo {
    /// Its identity, never used again.
    pub id: VhostId,
    /// Its name.
    pub name: Box<str>,
    /// What an operator says about it.
    pub metadata: VhostMetadata,
    /// How much it may hold.
    pub limits: VhostLimits,
}
