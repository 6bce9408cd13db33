//! Delayed messages come, and are published when they are due.

use crate::broker::Broker;

impl Broker {
    /// How many messages delayed exchanges hold back in memory on this shard.
    #[must_use]
    pub fn delayed_in_memory(&self) -> usize {
        self.homes.delayed.pooled()
    }
}
