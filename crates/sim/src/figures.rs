//! Looking into a simulated process: queues, counters, and what is out of place.

use lepus_base::ConnectionId;
use lepus_broker::Broker;
use lepus_broker::backpressure::Cause;
use lepus_broker::connection::Connection;
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
        let counters = &broker.shard.counters;
        add!(counters, received received_confirm routed confirmed unroutable_dropped
            unroutable_returned delivered_manual_ack delivered_auto_ack got_manual_ack
            got_auto_ack got_empty redelivered acknowledged dead_lettered_rejected
            dead_lettered_expired dead_lettered_maxlen dead_lettered_delivery_limit
            dead_lettered_unmatched
            connections_opened connections_closed channels_opened channels_closed
            queues_declared queues_created queues_deleted logins_refused logins_accepted enqueued_local
            enqueued_remote delivered_local delivered_remote handed_over moved queues_moved moves_given_up
            body_bytes_received unlogged filter_bodies_unreadable);
    }
    sum
}

/// What is out of place when everything is quiet and only the `living` connections are there.
pub(crate) fn leaks(shards: &Shards, living: &[ConnectionId]) -> Vec<String> {
    let mut found: Vec<String> = shards.miscounted().collect();
    let mut unacked_on_channels = 0;
    let mut unacked_in_queues = 0;
    for broker in shards.brokers() {
        let shard = broker.shard.id;
        let (state, connections, homes) = (&broker.shard, &broker.connections, &broker.homes);
        for (_, connection) in connections.iter() {
            if !living.contains(&connection.id) {
                found.push(format!("shard {shard}: not gone: {}", describe(connection)));
            }
            if connection.paused.has(Cause::Move) {
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
            connections.iter().map(|(_, connection)| connection.counted_bytes).sum();
        if state.connection_bytes != counted {
            let sum = state.connection_bytes;
            found.push(format!("shard {shard}: {sum} bytes of connections are {counted}"));
        }
        let (memory, walked) = (state.memory(), broker.view().memory_by_walk());
        if memory != walked {
            found.push(format!("shard {shard}: {memory} bytes are counted, there are {walked}"));
        }
        let mut messages = 0;
        for (id, queue) in broker.homes.queues() {
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
        messages += broker.homes.delayed_in_memory() as u64;
        let bodies = state.pool.len() as u64;
        if bodies > messages {
            found.push(format!("shard {shard}: {bodies} bodies for {messages} messages"));
        }
        if !homes.dead_letters().is_empty() {
            let count = homes.dead_letters().count();
            found.push(format!("shard {shard}: {count} dead letters wait"));
        }
        if broker.homes.has_migrations() || state.parked_mail_bytes != 0 {
            let bytes = state.parked_mail_bytes;
            found.push(format!("shard {shard}: queues are on their way, {bytes} bytes wait"));
        }
        if broker.definitions.has_deletions() || broker.homes.has_leaving() {
            found.push(format!("shard {shard}: somebody waits for a deletion"));
        }
        if living.is_empty() && !homes.remote().consumers.is_empty() {
            let count = homes.remote().consumers.len();
            found.push(format!("shard {shard}: {count} consumers of other shards are kept"));
        }
        if living.is_empty() && !homes.remote().windows.is_empty() {
            let count = homes.remote().windows.len();
            found.push(format!("shard {shard}: {count} windows of other shards are kept"));
        }
    }
    found.extend(wrong_loans(shards));
    found.extend(idle_memory(shards));
    if unacked_on_channels != unacked_in_queues {
        found.push(format!(
            "{unacked_on_channels} unacknowledged on channels, {unacked_in_queues} in queues"
        ));
    }
    found
}

/// Memory that nobody uses while somebody waits for it, or that is on its way to nobody.
fn idle_memory(shards: &Shards) -> Option<String> {
    let lender = shards.broker(0).shard.lender()?;
    let waits = |broker: &&Broker| broker.shard.loan.is_all();
    if let Some(waiting) = shards.brokers().find(waits).filter(|_| lender.free() > 0) {
        let (shard, free) = (waiting.shard.id, lender.free());
        return Some(format!("shard {shard} waits for memory while {free} bytes are free"));
    }
    let lost = |broker: &&Broker| broker.shard.loan.bytes != lender.lent(broker.shard.id);
    let shard = shards.brokers().find(lost)?.shard.id;
    Some(format!("shard {shard} has not what was lent to it"))
}

/// Memory that a shard may keep for reuse, in bytes: empty chunks of its pool, and tables.
const KEPT_BYTES_MAX: usize = 18 * (256 << 10) + (1 << 20);
/// How often the bytes of what lives may be counted, for chunks that are used in part.
const SHARE_OF_LIVE: usize = 5;
/// What a queue is and keeps for its next messages until it was idle for a while, in bytes.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 10;
/// What it keeps then.
pub(crate) const IDLE_QUEUE_BYTES_MAX: usize = 2 << 10;
/// What a message costs beside its bytes at most, and an entry of a queue in memory.
const MESSAGE_BYTES_MAX: usize = 512;
/// Timers for each time that a connection or queue has come to a shard: the one it waits for, and
/// those that an earlier moment has made idle.
const TIMERS_MAX: u64 = 4;

/// More timers than all that has ever come to a shard of this process explains, in words: what is
/// armed once more for each word or message is seen by that. Whoever comes from another shard
/// arms its timer anew, also if it then leaves at once.
fn excess_timers(shards: &Shards) -> Option<String> {
    let counters = counters(shards);
    let moves = counters.handed_over + counters.queues_moved + counters.moves_given_up;
    let gone = counters.queues_deleted;
    let living: u64 = shards
        .brokers()
        .map(|broker| (broker.connections.len() + broker.homes.queues().count()) as u64)
        .sum();
    let come = shards.connections_taken() + moves + gone + living + shards.len() as u64;
    let timers: u64 = shards.brokers().map(|broker| broker.shard.timers.len() as u64).sum();
    let most = TIMERS_MAX * come;
    (timers > most).then(|| format!("the shards have {timers} timers, {most} are enough"))
}

/// What is wrong with what shards got of the memory budget: all of it together is the budget, none
/// believes to have more than it got, and none has less than its floor.
fn wrong_loans(shards: &Shards) -> Option<String> {
    let lender = shards.broker(0).shard.lender()?;
    let limits = &shards.broker(0).shard.settings().limits;
    let share = limits.memory_bytes;
    let least = (share / 8).max(limits.memory_floor_bytes).min(share);
    let all: usize = shards.brokers().map(|broker| lender.lent(broker.shard.id)).sum();
    if all + lender.free() != share * shards.len() {
        let free = lender.free();
        return Some(format!(
            "{all} bytes of memory are lent and {free} free of {share} per shard"
        ));
    }
    for broker in shards.brokers() {
        let (shard, bytes) = (broker.shard.id, broker.shard.loan.bytes);
        let (lent, floor) = (lender.lent(shard), broker.shard.loan.floor());
        if bytes > lent || bytes < floor || floor != least {
            return Some(format!(
                "shard {shard} may use {bytes} bytes, {lent} lent, floor {floor}"
            ));
        }
    }
    None
}

/// What there is too much of, counted by what lives: memory of a shard, timers of all; and what is
/// wrong with the memory that they may use.
pub(crate) fn excess(shards: &Shards, queue_bytes_max: usize) -> Option<String> {
    if let Some(text) = wrong_loans(shards) {
        return Some(text);
    }
    for broker in shards.brokers() {
        let (shard, state, connections) = (broker.shard.id, &broker.shard, &broker.connections);
        let messages: u64 =
            broker.homes.queues().map(|(_, queue)| queue.ready() + queue.unacked()).sum();
        let of_connections: usize =
            connections.iter().map(|(_, connection)| connection.memory_bytes()).sum();
        let figures = broker.journal.figures();
        let windows = figures.window_entries * MESSAGE_BYTES_MAX;
        let of_bodies = match state.pool.is_sparse() && !state.must_compact() {
            // Chunks that few bodies keep are left alone while so little of the budget is used.
            true => state.pool.used(),
            false => state.pool.live() * SHARE_OF_LIVE,
        };
        let living = of_bodies
            + (state.pool.len() + messages as usize) * MESSAGE_BYTES_MAX
            + of_connections
            + broker.homes.queues().count() * queue_bytes_max
            + broker.directory.bytes()
            + figures.unwritten_bytes
            + windows;
        let memory = state.memory();
        if memory > living + KEPT_BYTES_MAX {
            return Some(format!(
                "shard {shard} counts {memory} bytes of memory, {} bytes of {} bodies, {messages} \
                 messages, {of_connections} bytes of connections, {} unwritten and {} entries live",
                state.pool.live(),
                state.pool.len(),
                figures.unwritten_bytes,
                figures.window_entries
            ));
        }
        if messages == 0 && figures.window_entries > 0 {
            let entries = figures.window_entries;
            return Some(format!("shard {shard} counts {entries} entries of no message"));
        }
    }
    excess_timers(shards)
}

/// A connection's state in few words.
pub(crate) fn describe(connection: &Connection) -> String {
    let mut text = format!(
        "connection {}: paused {:?}, end {:?}, {} to clean, gone {}, {} bytes to send, {} channels stalled",
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
            "; channel {} ending {:?}, pending {:?}, commit {:?}, {} bytes parked, {} unacked",
            channel.number(),
            channel.ending,
            channel.pending,
            channel.committing,
            channel.parked.len(),
            channel.unacked.len()
        );
    }
    text
}
