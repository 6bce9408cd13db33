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
}

/// How much a virtual host may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostLimits {
    /// Connections at a time.
    pub connections_max: Option<u64>,
    /// Queues.
    pub queues_max: Option<u64>,
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
