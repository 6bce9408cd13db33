//! What the shard may use: memory that it borrows and lends, and what the log hears when something is short.

use lepus_base::Now;

use crate::alarm::Usage;
use crate::homes::HomeSide;
use crate::outbox::Outbox;

impl HomeSide<'_> {
    /// Tells the log when something became short, or has room again.
    pub(crate) fn tell_shortage(&mut self, now: Now, out: &mut Outbox) {
        let shortage = self.shard.backpressure.shortage();
        if !self.shard.alarm.must_tell(now, shortage) {
            return;
        }
        let store = self.shard.settings.store.as_ref();
        let usage = Usage {
            used: self.shard.memory(),
            limit: self.shard.loan.bytes,
            journal: &self.journal,
            segment_bytes: store.map_or(0, |store| store.template.segment_bytes as usize),
        };
        self.shard.alarm.tell(now, shortage, &usage, out);
    }
}
