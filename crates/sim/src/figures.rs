//! Looking into a simulated process: queues, counters, and what is out of place.

use lepus_base::ConnectionId;
use lepus_broker::connection::{Connection, PauseReason};
use lepus_broker::counters::Counters;

use crate::shards::Shards;

/// A queue as its home sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFigures {
    /// The shard that is its home.
    pub home: u16,
    /// Messages ready for delivery.
    pub ready: u64,
    /// Messages delivered and not settled.
    pub unacked: u64,
    /// Consumers.
    pub consumers: u32,
    /// Payload bytes of the ready messages.
    pub ready_bytes: u64,
}

pub(crate) fn find_queue(shards: &Shards, vhost: &str, name: &str) -> Option<QueueFigures> {
    let directory = &shards.broker(0).directory;
    let info = directory.queue(directory.vhost(vhost)?, name)?;
    let queue = shards.broker(info.home.index()).queue(info.id)?;
    Some(QueueFigures {
        home: info.home.0,
        ready: queue.ready(),
        unacked: queue.unacked(),
        consumers: queue.consumer_count(),
        ready_bytes: queue.ready_bytes(),
    })
}

pub(crate) fn counters(shards: &Shards) -> Counters {
    let mut sum = Counters::default();
    macro_rules! add {
        ($counters:expr, $($name:ident)*) => { $(sum.$name += $counters.$name;)* };
    }
    for broker in shards.brokers() {
        let counters = &broker.edge.counters;
        add!(counters, received received_confirm routed confirmed unroutable_dropped
            unroutable_returned delivered_manual_ack delivered_auto_ack got_manual_ack
            got_auto_ack got_empty redelivered acknowledged dead_lettered_rejected
            dead_lettered_expired dead_lettered_maxlen dead_lettered_delivery_limit
            connections_opened connections_closed channels_opened channels_closed
            queues_declared queues_created queues_deleted logins_refused enqueued_local
            enqueued_remote delivered_local delivered_remote handed_over moved queues_moved moves_given_up
            body_bytes_received);
    }
    sum
}

/// What is out of place when everything is quiet and only the `living` connections are there.
pub(crate) fn leaks(shards: &Shards, living: &[ConnectionId]) -> Vec<String> {
    let mut found = Vec::new();
    let mut unacked_on_channels = 0;
    let mut unacked_in_queues = 0;
    for broker in shards.brokers() {
        let shard = broker.shard();
        let edge = &broker.edge;
        for (_, connection) in &edge.connections {
            if !living.contains(&connection.id) {
                found.push(format!("shard {shard}: not gone: {}", describe(connection)));
            }
            if connection.paused & PauseReason::Move as u8 != 0 {
                found.push(format!("shard {shard}: does not go: {}", describe(connection)));
            }
            for channel in connection.open_channels().chain(connection.retired()) {
                unacked_on_channels += channel.unacked.len() as u64;
                unacked_on_channels += channel.tx.as_ref().map_or(0, |tx| tx.settles.len() as u64);
                if let Some(pending) = &channel.pending {
                    found.push(format!(
                        "shard {shard}: connection {} channel {} waits: {pending:?}",
                        connection.id.0,
                        channel.number()
                    ));
                }
                if !channel.parked.is_empty() {
                    found.push(format!("shard {shard}: frames are parked"));
                }
            }
            let held = connection
                .open_channels()
                .chain(connection.retired())
                .filter_map(|channel| channel.tx.as_ref())
                .map(|tx| tx.bytes)
                .sum::<usize>();
            if (connection.parked_bytes, connection.tx_bytes) != (0, held) {
                let (parked, tx) = (connection.parked_bytes, connection.tx_bytes);
                found.push(format!("shard {shard}: {parked} bytes parked, {tx} in transactions"));
            }
        }
        let counted: usize =
            edge.connections.iter().map(|(_, connection)| connection.counted_bytes).sum();
        if edge.connection_bytes != counted {
            let sum = edge.connection_bytes;
            found.push(format!("shard {shard}: {sum} bytes of connections are {counted}"));
        }
        let mut messages = 0;
        for (id, queue) in broker.queues() {
            messages += queue.ready() + queue.unacked();
            unacked_in_queues += queue.unacked();
            if queue.is_held() {
                found.push(format!("shard {shard}: queue {} is held", id.0));
            }
            for (_, consumer, _) in queue.consumers() {
                if !living.contains(&consumer.key.connection) {
                    let tag = &consumer.tag;
                    found.push(format!("shard {shard}: queue {} keeps consumer {tag}", id.0));
                }
            }
        }
        let bodies = edge.pool.len() as u64;
        if bodies > messages {
            found.push(format!("shard {shard}: {bodies} bodies for {messages} messages"));
        }
        if !edge.dead_letters.is_empty() {
            let count = edge.dead_letters.len();
            found.push(format!("shard {shard}: {count} dead letters wait"));
        }
        if broker.has_migrations() || edge.resting_bytes != 0 {
            let bytes = edge.resting_bytes;
            found.push(format!("shard {shard}: queues are on their way, {bytes} bytes wait"));
        }
        if living.is_empty() && !edge.remote_consumers.is_empty() {
            let count = edge.remote_consumers.len();
            found.push(format!("shard {shard}: {count} consumers of other shards are kept"));
        }
        if living.is_empty() && !edge.remote_windows.is_empty() {
            let count = edge.remote_windows.len();
            found.push(format!("shard {shard}: {count} windows of other shards are kept"));
        }
    }
    if unacked_on_channels != unacked_in_queues {
        found.push(format!(
            "{unacked_on_channels} unacknowledged on channels, {unacked_in_queues} in queues"
        ));
    }
    found
}

/// A connection's state in few words.
pub(crate) fn describe(connection: &Connection) -> String {
    let mut text = format!(
        "connection {}: paused {:#b}, end {:?}, {} to clean, gone {}, {} bytes to send, {} stalled",
        connection.id.0,
        connection.paused,
        connection.end,
        connection.cleaning,
        connection.gone,
        connection.send.len(),
        connection.stalled.len()
    );
    for channel in connection.open_channels().chain(connection.retired()) {
        text += &format!(
            "; channel {} ending {:?}, pending {:?}, {} bytes parked, {} unacked",
            channel.number(),
            channel.ending,
            channel.pending,
            channel.parked.len(),
            channel.unacked.len()
        );
    }
    text
}
