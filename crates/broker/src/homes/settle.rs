//! How deliveries end: ack, nack, reject, recover, and requeueing of many in slices; and how the end
//! that a transaction meant for them does not come.

use lepus_base::{Now, QueueId};

use crate::homes::HomeSide;
use crate::outbox::Outbox;
use crate::queue::{NoSink, command};

impl HomeSide<'_> {
    /// Lets a queue of this shard rest or go on.
    pub(crate) fn hold_home(&mut self, now: Now, queue: QueueId, on: bool, out: &mut Outbox) {
        let Some(slot) = self.homes.slot_of(queue, u32::MAX) else { return };
        let state = &mut self.homes.queues[slot as usize].queue;
        if on {
            state.apply(now, command::Hold {}, &mut NoSink);
        } else {
            state.apply(now, command::Unhold {}, &mut NoSink);
            self.pump(now, slot, out);
        }
    }
}
