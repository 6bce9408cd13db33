//! Acknowledgements in a row at their queue, which delivers what it has room for after the last.

use crate::session::amqp::Repeats;
use lepus_base::Now;

use crate::channel::unacked::{Unacked, UnackedList};
use crate::homes::HomeSide;
use crate::outbox::Outbox;
use crate::queue::command::Settle;
use crate::queue::{NO_SLOT, Outcome};

/// Acknowledgements after which the queue delivers again.
pub(crate) const ROW_MAX: usize = 64;

/// What a row of acknowledgements left.
#[derive(Default)]
pub(crate) struct Row {
    /// Bytes taken.
    pub consumed: usize,
    /// Acknowledgements taken.
    pub count: u64,
    /// Whether the channel had as many deliveries unsettled as it may.
    pub was_full: bool,
}

impl HomeSide<'_> {
    pub(crate) fn settle_row(
        &mut self,
        now: Now,
        home: u32,
        number: u16,
        bytes: &[u8],
        unacked: &mut UnackedList,
        out: &mut Outbox,
    ) -> Row {
        let limit = self.shard.limits.unacked_per_channel_max as usize;
        let own = self.shard.id;
        let mut row = Row::default();
        let (queue, mut sink) = self.queue_and_sink(now, home, out);
        for _ in 0..ROW_MAX {
            let rest = &bytes[row.consumed..];
            let Some((channel, ack, length)) = Repeats::ack(rest) else { break };
            if channel != number || ack.multiple {
                break;
            }
            let is_of_row =
                |delivery: &Unacked| delivery.queue == sink.queue && delivery.home == own;
            let Some(delivery) = unacked.take_if(ack.delivery_tag, is_of_row) else { break };
            row.was_full |= unacked.len() + 1 == limit;
            row.consumed += length;
            row.count += 1;
            if delivery.slot != NO_SLOT {
                let (slot, seq) = (delivery.slot, delivery.sequence);
                queue.apply(now, Settle { slot, seq, outcome: Outcome::Ack }, &mut sink);
            }
        }
        sink.shard.counters.acknowledged += row.count;
        row
    }
}
