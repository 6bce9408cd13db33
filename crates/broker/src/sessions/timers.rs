//! Queues at their home: commands from channels near and far, deliveries, timers, and the queues' end.

use crate::outbox::Outbox;
use crate::queue::ConsumerKey;
use crate::sessions::SessionSide;
use lepus_base::{Now, QueueId};

impl SessionSide<'_> {
    /// A consumer of this shard waited for room and may go on.
    pub(crate) fn resume_here(
        &mut self,
        now: Now,
        queue: QueueId,
        hint: u32,
        key: ConsumerKey,
        out: &mut Outbox,
    ) {
        let Some((_, connection)) = self.connections.connection(key.connection, u32::MAX) else {
            return;
        };
        if let Some(handle) = connection.subscription(key).and_then(|found| found.handle) {
            self.home().resume_consumer(now, (queue, hint), handle, out);
        }
    }
}
