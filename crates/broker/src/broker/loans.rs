//! What the shard may use: memory that it borrows and lends, and what the log hears when something is short.

use crate::broker::Broker;
use crate::loan::Lender;

impl Broker {
    /// Who lends memory; on shard 0 where there are several.
    #[must_use]
    pub fn lender(&self) -> Option<&Lender> {
        self.shard.lender.as_ref()
    }
}
