//! What one shard has counted since its start. Plain numbers: only the shard's thread touches
//! them, and readers get a copy.

use crate::queue::Reason;

/// Totals of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received from publishers.
    pub received: u64,
    /// Messages received on channels in confirm mode.
    pub received_confirm: u64,
    /// Messages that reached at least one queue.
    pub routed: u64,
    /// Exchanges whose filters took too much for a message, so that none of their bindings with a filter took it, and filters
    /// of queues' consumers that did, so that they did not get it.
    pub filters_given_up: u64,
    /// Times that the filters of an exchange or of a queue's consumers asked for a body that could not be read.
    pub filter_bodies_unreadable: u64,
    /// Publishes confirmed (acked or nacked).
    pub confirmed: u64,
    /// Messages without a queue that were dropped.
    pub unroutable_dropped: u64,
    /// Messages without a queue that were returned.
    pub unroutable_returned: u64,
    /// Deliveries to consumers that acknowledge.
    pub delivered_manual_ack: u64,
    /// Deliveries to consumers that do not acknowledge.
    pub delivered_auto_ack: u64,
    /// `basic.get` answers to be acknowledged.
    pub got_manual_ack: u64,
    /// `basic.get` answers not to be acknowledged.
    pub got_auto_ack: u64,
    /// Messages that a log did not take, once for each durable queue that lacks one for that.
    pub unlogged: u64,
    /// `basic.get` on an empty queue.
    pub got_empty: u64,
    /// Deliveries of messages that were delivered before.
    pub redelivered: u64,
    /// Acknowledgements by clients.
    pub acknowledged: u64,
    /// Dead-lettered because rejected.
    pub dead_lettered_rejected: u64,
    /// Dead-lettered because expired.
    pub dead_lettered_expired: u64,
    /// Dead-lettered because of a length limit.
    pub dead_lettered_maxlen: u64,
    /// Dead-lettered because of the delivery limit.
    pub dead_lettered_delivery_limit: u64,
    /// Dead-lettered because no consumer's filter matched.
    pub dead_lettered_unmatched: u64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Connections closed.
    pub connections_closed: u64,
    /// Channels opened.
    pub channels_opened: u64,
    /// Channels closed.
    pub channels_closed: u64,
    /// `queue.declare` methods answered.
    pub queues_declared: u64,
    /// Queues created with this shard as home.
    pub queues_created: u64,
    /// Queues deleted that had this shard as home.
    pub queues_deleted: u64,
    /// Logins refused.
    pub logins_refused: u64,
    /// Logins that were let in, those of other parts of the process left out.
    pub logins_accepted: u64,
    /// Messages enqueued by a publisher on the queue's own shard.
    pub enqueued_local: u64,
    /// Messages sent to a queue on another shard.
    pub enqueued_remote: u64,
    /// Those of them to a shard of the same memory node.
    pub enqueued_near: u64,
    /// Deliveries to a consumer on the queue's own shard.
    pub delivered_local: u64,
    /// Deliveries to a consumer on another shard.
    pub delivered_remote: u64,
    /// Those of them to a shard of the same memory node.
    pub delivered_near: u64,
    /// Connections handed to another shard.
    pub handed_over: u64,
    /// Connections that the balancer moved to another shard.
    pub moved: u64,
    /// Moves of connections and queues that were given up.
    pub moves_given_up: u64,
    /// Queues that the balancer moved to another shard.
    pub queues_moved: u64,
    /// Body bytes received from publishers.
    pub body_bytes_received: u64,
    /// Messages by body size: up to 100 B, 1 kB, 10 kB, 100 kB, 1 MB, 10 MB, 50 MB, 100 MB, more.
    pub sizes: [u64; 9],
}

/// Upper bounds in bytes of the size classes of [`Counters::sizes`] but the last.
pub const SIZE_BOUNDS: [u64; 8] =
    [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000];

impl Counters {
    /// Counts a message that leaves a queue as a dead letter.
    pub fn count_dead_letter(&mut self, reason: Reason) {
        *match reason {
            Reason::Rejected => &mut self.dead_lettered_rejected,
            Reason::Expired => &mut self.dead_lettered_expired,
            Reason::MaxLength => &mut self.dead_lettered_maxlen,
            Reason::DeliveryLimit => &mut self.dead_lettered_delivery_limit,
            Reason::Unmatched => &mut self.dead_lettered_unmatched,
        } += 1;
    }

    /// Counts a received message of this size.
    pub fn count_size(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.body_bytes_received += bytes;
        let class = SIZE_BOUNDS.iter().position(|&bound| bytes <= bound).unwrap_or(8);
        self.sizes[class] += 1;
    }
}
