//! What the shard may use: memory that it borrows and lends, and what the log hears when something is short.

use crate::backpressure::Cause;
use crate::outbox::Outbox;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// A publisher's shard uses more than it has. True where there is more, or where the answer to
    /// that is to come: until then the publisher is not read.
    #[cold]
    pub(crate) fn waits_for_loan(&mut self, slot: u32, out: &mut Outbox) -> bool {
        self.shard.adjust_loan(out);
        if self.shard.loan.is_all() {
            return false;
        }
        if self.shard.awaits_loan() {
            self.connections.pause(&mut self.shard, slot, Cause::Mail, out);
        }
        true
    }
}
