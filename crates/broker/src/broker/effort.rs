//! What is asked of how much was done in a turn, and what follows from it.

use crate::broker::Broker;

impl Broker {
    /// Whether so much was done for what was received in this turn that no more is to be read before
    /// [`Broker::flush`]: what came already waits, and is asked for again then.
    #[must_use]
    pub fn has_read_enough(&self) -> bool {
        self.shard.effort.has_read_before()
    }

    /// Whether so much was done for mail of other shards, before anything was read in this turn, that the rest
    /// is to wait for the next one.
    #[must_use]
    pub fn has_taken_enough_mail(&self) -> bool {
        self.shard.effort.is_used_up()
    }

    /// How many queues were looked at, so far, to find out what room in the logs a message needs that found none at
    /// first. In a turn there are few of them, however many messages wait.
    #[must_use]
    pub fn looked_for_room(&self) -> u64 {
        self.shard.effort.looked_for_room()
    }
}
