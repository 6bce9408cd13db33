//! Acknowledgements in a row, of deliveries of one queue: channel and queue are looked up once for
//! all of them, and the queue delivers what it has room for after the last.

use crate::session::amqp::Repeats;
use lepus_base::Now;

use crate::broker::Broker;
use crate::channel::unacked::{Unacked, UnackedList};
use crate::outbox::Outbox;
use crate::queue::command::Settle;
use crate::queue::{NO_SLOT, Outcome};

/// Acknowledgements after which the queue delivers again.
const ROW_MAX: usize = 64;

/// What a row of acknowledgements left.
#[derive(Default)]
struct Row {
    /// Bytes taken.
    consumed: usize,
    /// Whether the channel had as many deliveries unsettled as it may.
    was_full: bool,
}

impl Broker {
    /// Takes the acknowledgements at the start of `bytes` that settle one delivery each, of the same
    /// channel and the same queue of this shard. Returns the bytes they took; whatever is not as
    /// plain as that goes the general way.
    pub(crate) fn ack_row(&mut self, now: Now, slot: u32, bytes: &[u8], out: &mut Outbox) -> usize {
        let Some((number, first, _)) = Repeats::ack(bytes) else { return 0 };
        let Some(connection) = self.sessions.connections.get_mut(slot as usize) else { return 0 };
        if connection.end.is_some() {
            return 0;
        }
        let repeats = connection.session.amqp().and_then(|amqp| amqp.repeats(now.instant, number));
        if repeats.is_none() {
            return 0;
        }
        let Some(channel) = connection.channel_mut(number) else { return 0 };
        if first.multiple || !channel.is_plain() || channel.global.is_some() {
            return 0;
        }
        let Some(delivery) = channel.unacked.get(first.delivery_tag) else { return 0 };
        let (queue, hint) = (delivery.queue, delivery.queue_slot);
        if delivery.home != self.shard.id {
            return 0;
        }
        let Some(home) = self.home_slot(queue, hint) else { return 0 };
        // Out of the way while the queue reaches for the rest of the shard.
        let Some(channel) = self.sessions.connections[slot as usize].channel_mut(number) else {
            return 0;
        };
        let mut unacked = core::mem::take(&mut channel.unacked);
        let row = self.settle_row(now, home, number, bytes, &mut unacked, out);
        let connection = &mut self.sessions.connections[slot as usize];
        if let Some(channel) = connection.channel_mut(number) {
            channel.unacked = unacked;
            if channel.unacked.take_resized() {
                let key = channel.key;
                connection.weigh_channel(key);
            }
        }
        if row.was_full && !connection.stalled.is_empty() {
            self.sessions.follow_ups.resume(slot);
        }
        self.pump(now, home, out);
        row.consumed
    }

    fn settle_row(
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
            sink.shard.counters.acknowledged += 1;
            if delivery.slot != NO_SLOT {
                let (slot, seq) = (delivery.slot, delivery.sequence);
                queue.apply(now, Settle { slot, seq, outcome: Outcome::Ack }, &mut sink);
            }
        }
        row
    }
}
