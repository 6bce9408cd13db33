//! Acknowledgements in a row, of deliveries of one queue: the channel is looked up once for all of them.

use crate::outbox::Outbox;
use crate::session::amqp::Repeats;
use crate::sessions::SessionSide;
use lepus_base::Now;

impl SessionSide<'_> {
    /// Takes the acknowledgements at the start of `bytes` that settle one delivery each, of the same
    /// channel and the same queue of this shard. Returns the bytes they took; whatever is not as
    /// plain as that goes the general way.
    pub(crate) fn ack_row(&mut self, now: Now, slot: u32, bytes: &[u8], out: &mut Outbox) -> usize {
        let Some((number, first, _)) = Repeats::ack(bytes) else { return 0 };
        let Some(connection) = self.connections.get_mut(slot) else {
            invariant!("bytes come from a connection that is there")
        };
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
        let Some(home) = self.homes.slot_of(queue, hint) else {
            return race!("the queue was deleted before its delivery was settled", 0);
        };
        // Out of the way while the queue reaches for the rest of the shard.
        let Some(channel) = self.connections[slot].channel_mut(number) else {
            invariant!("a channel that was just found is there")
        };
        let mut unacked = core::mem::take(&mut channel.unacked);
        let row = self.home().settle_row(now, home, number, bytes, &mut unacked, out);
        let connection = &mut self.connections[slot];
        let Some(channel) = connection.channel_mut(number) else {
            invariant!("a channel stays while a row comes")
        };
        channel.unacked = unacked;
        channel.counts.acknowledged += row.count;
        if channel.unacked.take_resized() {
            let key = channel.key;
            connection.account_channel(key);
        }
        connection.unsummed.counts().acknowledged += row.count;
        if row.was_full && !connection.stalled.is_empty() {
            self.connections.follow_ups().resume(slot);
        }
        self.home().dispatch_ready(now, home, out);
        row.consumed
    }
}
