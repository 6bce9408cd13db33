//! What is sampled of each kind of thing: names in the API, in an order, and where the values come from.

use crate::snapshot::Snapshot;
use lepus_broker::counters::Counters;
use lepus_broker::query::{QueueFigures, VhostFigures};
use lepus_broker::{ExchangeCounts, MessageCounts};

/// A counter's name in the API, and where it is counted.
pub(crate) type Counter = (&'static str, fn(&Counters) -> u64);

/// What is counted of messages, for all virtual hosts.
pub(crate) const MESSAGES: [Counter; 12] = [
    ("publish", |c| c.received),
    ("confirm", |c| c.confirmed),
    ("return_unroutable", |c| c.unroutable_returned),
    ("drop_unroutable", |c| c.unroutable_dropped),
    ("get", |c| c.got_manual_ack),
    ("get_no_ack", |c| c.got_auto_ack),
    ("get_empty", |c| c.got_empty),
    ("deliver", |c| c.delivered_manual_ack),
    ("deliver_no_ack", |c| c.delivered_auto_ack),
    ("redeliver", |c| c.redelivered),
    ("ack", |c| c.acknowledged),
    ("deliver_get", |c| {
        c.got_manual_ack + c.got_auto_ack + c.delivered_manual_ack + c.delivered_auto_ack
    }),
];
/// What comes and goes.
pub(crate) const CHURN: [Counter; 7] = [
    ("connection_created", |c| c.connections_opened),
    ("connection_closed", |c| c.connections_closed),
    ("channel_created", |c| c.channels_opened),
    ("channel_closed", |c| c.channels_closed),
    ("queue_declared", |c| c.queues_declared),
    ("queue_created", |c| c.queues_created),
    ("queue_deleted", |c| c.queues_deleted),
];
/// Levels of the whole broker.
pub(crate) const LEVELS: [&str; 3] = ["messages", "messages_ready", "messages_unacknowledged"];
pub(super) const ALL: usize = MESSAGES.len() + CHURN.len() + LEVELS.len();
/// What is sampled of a queue: counters, then levels.
pub(crate) const OF_QUEUE: [&str; 12] = [
    "publish",
    "get",
    "get_no_ack",
    "get_empty",
    "deliver",
    "deliver_no_ack",
    "deliver_get",
    "redeliver",
    "ack",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
];
/// How many of them are counters.
pub(crate) const OF_QUEUE_COUNTED: usize = 9;

/// The values of a queue in the order of [`OF_QUEUE`].
pub(crate) fn of_queue(figures: &QueueFigures) -> [u64; OF_QUEUE.len()] {
    let totals = figures.totals;
    [
        totals.published,
        totals.got_manual_ack,
        totals.got_auto_ack,
        totals.got_empty,
        totals.delivered_manual_ack,
        totals.delivered_auto_ack,
        totals.handed_out(),
        totals.redelivered,
        totals.acknowledged,
        figures.ready + figures.unacked,
        figures.ready,
        figures.unacked,
    ]
}

/// The values of a connection: bytes that came, bytes that were sent.
pub(crate) const OF_CONNECTION: [&str; 2] = ["recv_oct", "send_oct"];

/// The values of an exchange, all of them counters.
pub(crate) const OF_EXCHANGE: [&str; 2] = ["publish_in", "publish_out"];

/// The values of an exchange in the order of [`OF_EXCHANGE`].
pub(crate) fn of_exchange(counts: &ExchangeCounts) -> [u64; OF_EXCHANGE.len()] {
    [counts.published, counts.routed]
}

/// The values of a channel, all of them counters.
pub(crate) const OF_CHANNEL: [&str; 12] = [
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "get",
    "get_no_ack",
    "get_empty",
    "deliver",
    "deliver_no_ack",
    "deliver_get",
    "redeliver",
    "ack",
];

/// The values of a channel in the order of [`OF_CHANNEL`].
pub(crate) fn of_channel(counts: &MessageCounts) -> [u64; OF_CHANNEL.len()] {
    [
        counts.published,
        counts.confirmed,
        counts.returned,
        counts.dropped,
        counts.got_manual_ack,
        counts.got_auto_ack,
        counts.got_empty,
        counts.delivered_manual_ack,
        counts.delivered_auto_ack,
        counts.handed_out(),
        counts.redelivered,
        counts.acknowledged,
    ]
}

/// The values of a virtual host: those of its channels, of its connections, and [`LEVELS`].
pub(crate) const OF_VHOST: usize = OF_CHANNEL.len() + OF_CONNECTION.len() + LEVELS.len();
/// How many of them are counters.
pub(super) const OF_VHOST_COUNTED: usize = OF_CHANNEL.len() + OF_CONNECTION.len();

/// The values of a virtual host in that order.
pub(crate) fn of_vhost(figures: &VhostFigures) -> [u64; OF_VHOST] {
    let mut values = [0; OF_VHOST];
    let (messages, rest) = values.split_at_mut(OF_CHANNEL.len());
    messages.copy_from_slice(&of_channel(&figures.counts));
    let (ready, unacked) = (figures.ready, figures.unacked);
    let octets = [figures.received_bytes, figures.sent_bytes];
    rest[..OF_CONNECTION.len()].copy_from_slice(&octets);
    rest[OF_CONNECTION.len()..].copy_from_slice(&[ready + unacked, ready, unacked]);
    values
}

/// The values of the whole broker: [`MESSAGES`], [`CHURN`], [`LEVELS`].
pub(super) fn of_all(snapshot: &Snapshot) -> [u64; ALL] {
    let mut values = [0; ALL];
    let counters = MESSAGES.iter().chain(&CHURN);
    for (value, (_, counter)) in values.iter_mut().zip(counters) {
        *value = snapshot.counted(*counter);
    }
    let (ready, unacked) = (snapshot.held(|h| h.ready), snapshot.held(|h| h.unacked));
    values[ALL - LEVELS.len()..].copy_from_slice(&[ready + unacked, ready, unacked]);
    values
}
