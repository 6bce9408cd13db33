//! What passed a channel, a connection or the connections of a virtual host, as their clients saw it.

/// Messages counted by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Messages published; those of a transaction when it is committed.
    pub published: u64,
    /// Publishes that were acknowledged to their publisher.
    pub confirmed: u64,
    /// Messages without a queue that were returned.
    pub returned: u64,
    /// Messages without a queue that were dropped.
    pub dropped: u64,
    /// Deliveries to consumers that acknowledge.
    pub delivered_manual_ack: u64,
    /// Deliveries to consumers that do not acknowledge.
    pub delivered_auto_ack: u64,
    /// `basic.get` answers to be acknowledged.
    pub got_manual_ack: u64,
    /// `basic.get` answers not to be acknowledged.
    pub got_auto_ack: u64,
    /// `basic.get` that found no message.
    pub got_empty: u64,
    /// Messages handed out, in whatever way, that were before.
    pub redelivered: u64,
    /// Deliveries acknowledged; those of a transaction when it is committed.
    pub acknowledged: u64,
}

impl MessageCounts {
    /// Messages handed out, to consumers and by `basic.get`.
    #[must_use]
    pub fn handed_out(&self) -> u64 {
        self.delivered_manual_ack
            + self.delivered_auto_ack
            + self.got_manual_ack
            + self.got_auto_ack
    }

    /// Counts these, too.
    pub fn add(&mut self, more: &MessageCounts) {
        let MessageCounts {
            published,
            confirmed,
            returned,
            dropped,
            delivered_manual_ack,
            delivered_auto_ack,
            got_manual_ack,
            got_auto_ack,
            got_empty,
            redelivered,
            acknowledged,
        } = more;
        self.published += published;
        self.confirmed += confirmed;
        self.returned += returned;
        self.dropped += dropped;
        self.delivered_manual_ack += delivered_manual_ack;
        self.delivered_auto_ack += delivered_auto_ack;
        self.got_manual_ack += got_manual_ack;
        self.got_auto_ack += got_auto_ack;
        self.got_empty += got_empty;
        self.redelivered += redelivered;
        self.acknowledged += acknowledged;
    }
}
