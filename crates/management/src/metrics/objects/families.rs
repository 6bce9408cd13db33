//! The families that are told one by one, by RabbitMQ's groups.

use super::rows::{ConnectionLine, ExchangeLine};
use crate::exposition::Kind;
use crate::snapshot::Snapshot;
use lepus_broker::ExchangeCounts;
use lepus_broker::query::{ChannelRow, QueueFigures};

/// What has a value, and how it is found.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Node(fn(&Snapshot) -> u64),
    Queue(fn(&QueueFigures) -> u64),
    /// Of queues whose consumers have filters, or had some that passed over what is still there.
    FilteredQueue(fn(&QueueFigures) -> u64),
    Connection(fn(&ConnectionLine) -> u64),
    Channel(fn(&ChannelRow) -> u64),
    Exchange(fn(&ExchangeLine) -> u64),
    /// Of exchanges to which something was published.
    Published(fn(&ExchangeCounts) -> u64),
    /// A virtual host that there is runs.
    Vhost,
}

/// A family.
pub(super) struct Family {
    /// The group by which it is asked for.
    pub(super) group: &'static str,
    /// Its name without what all names begin with, which `lepus_…` do not.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) value: Value,
}

const fn gauge(
    group: &'static str,
    name: &'static str,
    help: &'static str,
    value: Value,
) -> Family {
    Family { group, name, kind: Kind::Gauge, help, value }
}

const fn counter(
    group: &'static str,
    name: &'static str,
    help: &'static str,
    value: Value,
) -> Family {
    Family { group, name, kind: Kind::Counter, help, value }
}

const CHURN: &str = "connection_churn_metrics";
const COARSE: &str = "node_coarse_metrics";
const NODE: &str = "node_metrics";
const DISK: &str = "node_persister_metrics";
const DEPTH: &str = "queue_coarse_metrics";
const QUEUE: &str = "queue_metrics";
const DELIVERY: &str = "queue_delivery_metrics";
const LOGINS: &str = "auth_attempt_metrics";
const CONNECTION: &str = "connection_metrics";
const OCTETS: &str = "connection_coarse_metrics";
const CHANNEL: &str = "channel_metrics";
/// What a channel published, and what it was handed: RabbitMQ has them by exchange and queue, too.
pub(super) const PUBLISHING: &str = "channel_exchange_metrics";
pub(super) const CONSUMING: &str = "channel_queue_metrics";
const EXCHANGE: &str = "exchange_metrics";

/// All of them. Groups of RabbitMQ's that are not here are empty.
#[rustfmt::skip]
pub(super) const FAMILIES: &[Family] = &[
    counter(CHURN, "connections_opened_total", "Connections opened.", Value::Node(|s| s.counted(|c| c.connections_opened))),
    counter(CHURN, "connections_closed_total", "Connections closed.", Value::Node(|s| s.counted(|c| c.connections_closed))),
    counter(CHURN, "channels_opened_total", "Channels opened.", Value::Node(|s| s.counted(|c| c.channels_opened))),
    counter(CHURN, "channels_closed_total", "Channels closed.", Value::Node(|s| s.counted(|c| c.channels_closed))),
    counter(CHURN, "queues_declared_total", "Queue declarations answered.", Value::Node(|s| s.counted(|c| c.queues_declared))),
    counter(CHURN, "queues_created_total", "Queues created.", Value::Node(|s| s.counted(|c| c.queues_created))),
    counter(CHURN, "queues_deleted_total", "Queues deleted.", Value::Node(|s| s.counted(|c| c.queues_deleted))),
    gauge(COARSE, "process_open_fds", "Open file descriptors.", Value::Node(|s| s.own.open_files)),
    gauge(COARSE, "process_resident_memory_bytes", "Bytes of memory held.", Value::Node(|s| s.own.resident_bytes)),
    gauge(COARSE, "disk_space_available_bytes", "Bytes free on the disk of the data directory.", Value::Node(|s| s.own.disk_free_bytes)),
    gauge(NODE, "process_max_fds", "Most file descriptors that may be open.", Value::Node(|s| s.own.open_files_max)),
    gauge(NODE, "resident_memory_limit_bytes", "Bytes above which publishers are held back.", Value::Node(|s| s.node.memory_budget_bytes)),
    gauge(NODE, "disk_space_available_limit_bytes", "Free bytes below which publishers are held back.", Value::Node(|s| s.node.disk_free_bytes_min)),
    gauge(NODE, "erlang_uptime_seconds", "Seconds since the start.", Value::Node(|s| s.uptime_seconds)),
    counter(DISK, "io_write_bytes_total", "Bytes written to logs and indexes.", Value::Node(|s| s.shards.iter().map(|shard| shard.figures.logs.log_bytes + shard.figures.logs.index_bytes).sum())),
    counter(DISK, "io_read_bytes_total", "Bytes of messages read from disk.", Value::Node(|s| s.shards.iter().map(|shard| shard.figures.logs.read_bytes).sum())),
    counter(DISK, "io_sync_ops_total", "Syncs of logs.", Value::Node(|s| s.shards.iter().map(|shard| shard.figures.logs.syncs).sum())),
    counter(LOGINS, "auth_attempts_total", "Logins, let in and refused.", Value::Node(|s| s.counted(|c| c.logins_accepted + c.logins_refused))),
    counter(LOGINS, "auth_attempts_succeeded_total", "Logins that were let in.", Value::Node(|s| s.counted(|c| c.logins_accepted))),
    counter(LOGINS, "auth_attempts_failed_total", "Logins refused.", Value::Node(|s| s.counted(|c| c.logins_refused))),
    gauge(DEPTH, "queue_messages_ready", "Messages ready to be delivered.", Value::Queue(|f| f.ready)),
    gauge(DEPTH, "queue_messages_unacked", "Messages delivered and not acknowledged.", Value::Queue(|f| f.unacked)),
    gauge(DEPTH, "queue_messages", "Messages, ready and unacknowledged.", Value::Queue(|f| f.ready + f.unacked)),
    gauge(DEPTH, "lepus_queue_messages_passed_over", "Ready messages that consumers' filters have looked at and that nobody has.", Value::FilteredQueue(|f| f.passed_over)),
    gauge("queue_consumer_count", "queue_consumers", "Consumers of a queue.", Value::Queue(|f| u64::from(f.consumers))),
    gauge(QUEUE, "queue_consumers", "Consumers of a queue.", Value::Queue(|f| u64::from(f.consumers))),
    gauge(QUEUE, "queue_consumer_capacity", "1 for a queue with consumers.", Value::Queue(|f| u64::from(f.consumers > 0))),
    gauge(QUEUE, "queue_consumer_utilisation", "The same as the capacity.", Value::Queue(|f| u64::from(f.consumers > 0))),
    gauge(QUEUE, "queue_process_memory_bytes", "Bytes of a queue's own state, without bodies.", Value::Queue(|f| f.memory_bytes)),
    gauge(QUEUE, "queue_messages_bytes", "Bytes of bodies, ready and unacknowledged.", Value::Queue(|f| f.ready_bytes + f.unacked_bytes)),
    gauge(QUEUE, "queue_messages_ready_bytes", "Bytes of bodies that are ready.", Value::Queue(|f| f.ready_bytes)),
    gauge(QUEUE, "queue_messages_unacked_bytes", "Bytes of bodies that are unacknowledged.", Value::Queue(|f| f.unacked_bytes)),
    counter(DELIVERY, "queue_get_ack_total", "Messages fetched by basic.get, to be acknowledged.", Value::Queue(|f| f.totals.got_manual_ack)),
    counter(DELIVERY, "queue_get_total", "Messages fetched by basic.get, not to be acknowledged.", Value::Queue(|f| f.totals.got_auto_ack)),
    counter(DELIVERY, "queue_get_empty_total", "basic.get that found no message.", Value::Queue(|f| f.totals.got_empty)),
    counter(DELIVERY, "queue_messages_delivered_ack_total", "Messages delivered to consumers that acknowledge.", Value::Queue(|f| f.totals.delivered_manual_ack)),
    counter(DELIVERY, "queue_messages_delivered_total", "Messages delivered to consumers that do not acknowledge.", Value::Queue(|f| f.totals.delivered_auto_ack)),
    counter(DELIVERY, "queue_messages_redelivered_total", "Messages delivered again.", Value::Queue(|f| f.totals.redelivered)),
    counter(DELIVERY, "queue_messages_acked_total", "Messages acknowledged.", Value::Queue(|f| f.totals.acknowledged)),
    counter(DELIVERY, "lepus_queue_messages_published_total", "Messages taken in.", Value::Queue(|f| f.totals.published)),
    counter(DELIVERY, "lepus_queue_messages_delivered_total", "Messages handed out, in whatever way.", Value::Queue(|f| f.totals.handed_out())),
    counter(OCTETS, "connection_incoming_bytes_total", "Bytes that came over a connection.", Value::Connection(|row| row.octets.received)),
    counter(OCTETS, "connection_outgoing_bytes_total", "Bytes that were sent over a connection.", Value::Connection(|row| row.octets.sent)),
    counter(CONNECTION, "connection_incoming_packets_total", "How often bytes came over a connection.", Value::Connection(|row| row.octets.reads)),
    counter(CONNECTION, "connection_outgoing_packets_total", "How often bytes were sent over a connection.", Value::Connection(|row| row.octets.writes)),
    gauge(CONNECTION, "connection_channels", "Channels of a connection.", Value::Connection(|row| row.channels)),
    gauge(CHANNEL, "channel_consumers", "Consumers of a channel.", Value::Channel(|row| row.consumers as u64)),
    gauge(CHANNEL, "channel_messages_unacked", "Messages delivered and not acknowledged.", Value::Channel(|row| row.unacked as u64)),
    gauge(CHANNEL, "channel_messages_unconfirmed", "Messages published and not confirmed.", Value::Channel(|row| row.unconfirmed)),
    gauge(CHANNEL, "channel_messages_uncommitted", "Messages that an open transaction holds.", Value::Channel(|row| row.uncommitted as u64)),
    gauge(CHANNEL, "channel_acks_uncommitted", "Acknowledgements that an open transaction holds.", Value::Channel(|row| row.acks_uncommitted as u64)),
    gauge(CHANNEL, "consumer_prefetch", "The limit of unacknowledged messages of each new consumer.", Value::Channel(|row| u64::from(row.prefetch))),
    gauge(CHANNEL, "channel_prefetch", "The limit for all consumers of a channel together.", Value::Channel(|row| u64::from(row.global_prefetch))),
    counter(PUBLISHING, "channel_messages_published_total", "Messages published on a channel.", Value::Channel(|row| row.counts.published)),
    counter(PUBLISHING, "channel_messages_confirmed_total", "Messages confirmed on a channel.", Value::Channel(|row| row.counts.confirmed)),
    counter(PUBLISHING, "channel_messages_unroutable_returned_total", "Messages without a queue that were returned.", Value::Channel(|row| row.counts.returned)),
    counter(PUBLISHING, "channel_messages_unroutable_dropped_total", "Messages without a queue that were dropped.", Value::Channel(|row| row.counts.dropped)),
    counter(CONSUMING, "channel_get_ack_total", "Messages fetched by basic.get, to be acknowledged.", Value::Channel(|row| row.counts.got_manual_ack)),
    counter(CONSUMING, "channel_get_total", "Messages fetched by basic.get, not to be acknowledged.", Value::Channel(|row| row.counts.got_auto_ack)),
    counter(CONSUMING, "channel_get_empty_total", "basic.get that found no message.", Value::Channel(|row| row.counts.got_empty)),
    counter(CONSUMING, "channel_messages_delivered_ack_total", "Messages delivered to consumers that acknowledge.", Value::Channel(|row| row.counts.delivered_manual_ack)),
    counter(CONSUMING, "channel_messages_delivered_total", "Messages delivered to consumers that do not acknowledge.", Value::Channel(|row| row.counts.delivered_auto_ack)),
    counter(CONSUMING, "channel_messages_redelivered_total", "Messages delivered again.", Value::Channel(|row| row.counts.redelivered)),
    counter(CONSUMING, "channel_messages_acked_total", "Messages acknowledged.", Value::Channel(|row| row.counts.acknowledged)),
    counter(EXCHANGE, "exchange_messages_published_total", "Messages published to an exchange.", Value::Published(|counts| counts.published)),
    counter(EXCHANGE, "exchange_messages_unroutable_returned_total", "Messages of an exchange without a queue that were returned.", Value::Published(|counts| counts.returned)),
    counter(EXCHANGE, "exchange_messages_unroutable_dropped_total", "Messages of an exchange without a queue that were dropped.", Value::Published(|counts| counts.dropped)),
    counter(EXCHANGE, "lepus_exchange_messages_routed_total", "Queues that the messages published to an exchange reached.", Value::Published(|counts| counts.routed)),
    gauge("vhost_status", "vhost_status", "1 for a virtual host that runs.", Value::Vhost),
    gauge("exchange_bindings", "exchange_bindings", "Bindings of an exchange as a source.", Value::Exchange(|row| row.bindings)),
    gauge("exchange_names", "exchange_name", "The exchanges that there are.", Value::Exchange(|_| 1)),
];
