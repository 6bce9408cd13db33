//! What the queues and connections of a shard hold, in sums that are kept as it changes.
//!
//! Whoever asks for figures walks over nothing. A queue is counted anew at the end of a cycle in which it
//! was used, with its tables (`Home::account_memory`); a connection with its bytes (`Connections::recount`). Between the
//! cycles the sums are exact; in the middle of one they are those of its beginning.

use alloc::collections::BTreeMap;

use lepus_base::VhostId;

use crate::queue::Queue;

/// The sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Open channels.
    pub channels: u64,
    /// Connections that have published.
    pub publishers: u64,
    /// Messages that are ready in queues.
    pub ready: u64,
    /// Messages that are delivered and not settled.
    pub unacked: u64,
    /// Of the ready ones, those that consumers' filters have looked at and that nobody has.
    pub passed_over: u64,
    /// Consumers of queues, wherever they are connected.
    pub consumers: u64,
}

/// The messages of a virtual host's queues: ready, and delivered and not settled.
pub(crate) type OfVhost = (u64, u64);

/// The sums of messages by virtual host.
#[derive(Debug, Default)]
pub(crate) struct HeldOfVhosts(BTreeMap<VhostId, OfVhost>);

/// Bytes of an entry of them, about.
const OF_VHOST_BYTES: usize = size_of::<(VhostId, OfVhost)>() + 16;

/// What the sums have of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfQueue {
    ready: u64,
    passed_over: u64,
    unacked: u32,
    consumers: u32,
}

impl OfQueue {
    /// What a queue holds now. Its deliveries have places of 32 bits: they are fewer than 2³².
    pub(crate) fn of(queue: &Queue) -> OfQueue {
        OfQueue {
            ready: queue.ready(),
            passed_over: queue.passed_over(),
            unacked: queue.unacked() as u32,
            consumers: queue.consumer_count(),
        }
    }
}

impl HeldOfVhosts {
    /// A queue of the virtual host that had `before` has `after`.
    #[inline]
    pub(crate) fn adjust(&mut self, vhost: VhostId, before: OfQueue, after: OfQueue) {
        if (before.ready, before.unacked) != (after.ready, after.unacked) {
            let (ready, unacked) = self.0.entry(vhost).or_default();
            *ready = *ready + after.ready - before.ready;
            *unacked = *unacked + u64::from(after.unacked) - u64::from(before.unacked);
        }
    }

    /// A queue of the virtual host goes: it may have been the last with messages.
    pub(crate) fn sweep(&mut self, vhost: VhostId) {
        if self.0.get(&vhost) == Some(&(0, 0)) {
            self.0.remove(&vhost);
        }
    }

    /// What the queues of a virtual host hold.
    pub(crate) fn of(&self, vhost: VhostId) -> OfVhost {
        self.0.get(&vhost).copied().unwrap_or_default()
    }

    /// Virtual hosts with messages, and what their queues hold.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (VhostId, OfVhost)> {
        self.0.iter().map(|(vhost, held)| (*vhost, *held)).filter(|(_, held)| *held != (0, 0))
    }

    /// Allocated bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.len() * OF_VHOST_BYTES
    }
}

impl Held {
    /// A queue that had `before` has `after`.
    #[inline]
    pub(crate) fn adjust(&mut self, before: OfQueue, after: OfQueue) {
        // Sums are never below what one queue has: it is in them.
        self.ready = self.ready + after.ready - before.ready;
        self.unacked = self.unacked + u64::from(after.unacked) - u64::from(before.unacked);
        self.passed_over = self.passed_over + after.passed_over - before.passed_over;
        self.consumers = self.consumers + u64::from(after.consumers) - u64::from(before.consumers);
    }
}
