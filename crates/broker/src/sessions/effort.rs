//! What is asked of how much was done in a turn, and what follows from it.

use crate::backpressure::Cause;
use crate::outbox::Outbox;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// A turn ends: what came too late for it is read again.
    pub(crate) fn end_turn(&mut self, out: &mut Outbox) {
        self.shard.effort.end_turn();
        let waiting = self.shard.backpressure.end_turn();
        self.connections.resume_all(&mut self.shard, waiting, Cause::Turn, out);
    }
}
