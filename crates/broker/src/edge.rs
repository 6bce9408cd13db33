//! A shard's side towards clients: its connections, bodies, timers and counters.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, HashMap, HashState, Now, Pool, QueueId, ShardId, Slab};

use crate::backpressure::{Backpressure, Cause, WaitingConnection, WaitingConsumer};
use crate::connection::Connection;
use crate::counters::Counters;
use crate::dead_letter::DeadLetters;
use crate::effort::Effort;
use crate::follow_ups::FollowUps;
use crate::held::Held;
use crate::loan::Loan;
use crate::mail::Shortage;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::queue::{ConsumerHandle, ConsumerKey};
use crate::reply_to::UnreadReplies;
use crate::session::{Answer, Capability, Done, State};
use crate::settings::Limits;
use crate::timers::{Timer, Timers};
use crate::user_channels::UserChannels;

/// Payload bytes that one queue keeps in memory before it spills to the log.
const QUEUE_POOL_BYTES_MAX: u64 = 32 << 20;

/// A consumer on another shard, as the home of its queue sees it.
#[derive(Debug)]
pub struct RemoteConsumer {
    /// Its queue.
    pub queue: QueueId,
    /// Its name within the queue.
    pub handle: ConsumerHandle,
    /// The shard of its connection.
    pub shard: ShardId,
    /// Whether a channel-wide prefetch limit governs it.
    pub governed: bool,
    /// Deliveries granted under that limit.
    pub credit: u32,
    /// Whether credit was asked for and not granted yet.
    pub wanted: bool,
    /// Its place among those who wait for room on a connection or for mail to be sent, if it does.
    pub place: Option<u64>,
}

/// Room for deliveries to a connection on another shard.
#[derive(Debug)]
pub struct RemoteWindow {
    /// Bytes that may still be sent to it.
    pub room: i64,
}

/// Everything of a shard but its queues and its directory.
#[derive(Debug)]
pub struct Edge {
    /// This shard.
    pub shard: ShardId,
    /// Whether each shard is on the memory node of this one.
    pub near: Vec<bool>,
    /// This cycle's time, as the driver last told it.
    pub now: Now,
    /// Limits on what peers can make grow.
    pub limits: Limits,
    /// What the shard may use of the memory budget.
    pub loan: Loan,
    /// Connections by slot.
    pub connections: Slab<Box<Connection>>,
    /// Slots by connection id.
    pub by_id: HashMap<ConnectionId, u32>,
    /// Bodies of this shard.
    pub pool: Pool,
    /// Timers of this shard.
    pub timers: Timers,
    /// Totals of this shard.
    pub counters: Counters,
    /// What its queues and connections hold.
    pub held: Held,
    /// Messages on their way to a dead-letter exchange.
    pub dead_letters: DeadLetters,
    /// Consumers on other shards of queues on this one.
    pub remote_consumers: HashMap<ConsumerKey, RemoteConsumer>,
    /// Room for deliveries to connections on other shards.
    pub remote_windows: HashMap<ConnectionId, RemoteWindow>,
    /// A commit is being published as a whole: nothing else goes to the log meanwhile.
    pub is_committing: bool,
    /// What was done in this turn.
    pub effort: Effort,
    /// Who waits for what.
    pub backpressure: Backpressure,
    /// What is left to be done for connections.
    pub follow_ups: FollowUps,
    /// Bytes that clients made their connections hold, see [`Connection::memory_bytes`].
    pub connection_bytes: usize,
    /// The same of those that have not opened a vhost: they block nobody, and have a limit of their
    /// own, see [`Limits::entering_bytes_max`].
    pub entering_bytes: usize,
    /// How many channels the users have.
    pub user_channels: UserChannels,
    /// Bytes that wait to be written to the log, and of what queues know of their logs.
    pub log_bytes: usize,
    /// Connections of other shards that are about to come here: their consumers get nothing.
    pub detached: Vec<ConnectionId>,
    /// Connections whose empty send buffers are given back before long.
    pub spacious: Vec<(u32, ConnectionId)>,
    /// Bytes of what waits for queues on their way to other shards.
    pub resting_bytes: usize,
    /// Bytes of the tables of this shard's queues, as far as they were counted.
    pub queue_bytes: usize,
    /// Queues whose tables are counted anew at the end of the cycle.
    pub unweighed: Vec<u32>,
    /// Direct replies that nobody reads.
    pub unread_replies: UnreadReplies,
    /// Bytes of what is done in slices.
    pub job_bytes: usize,
    /// Bytes of the shard's other tables, at the end of the last cycle.
    pub table_bytes: usize,
    /// Bytes of mail on its way to other shards, and of emptied batches on their way back.
    pub mail_bytes: usize,
}

impl Edge {
    /// The edge of one of so many shards, without connections.
    #[must_use]
    pub fn new(shard: ShardId, shards: u16, limits: Limits, hash: HashState) -> Edge {
        Edge {
            shard,
            near: Vec::new(),
            now: Now::default(),
            loan: Loan::new(&limits, shards),
            limits,
            connections: Slab::new(),
            by_id: HashMap::with_hasher(hash),
            pool: Pool::new(),
            timers: Timers::default(),
            counters: Counters::default(),
            held: Held::default(),
            dead_letters: DeadLetters::default(),
            remote_consumers: HashMap::with_hasher(hash),
            remote_windows: HashMap::with_hasher(hash),
            is_committing: false,
            effort: Effort::default(),
            backpressure: Backpressure::default(),
            follow_ups: FollowUps::default(),
            connection_bytes: 0,
            entering_bytes: 0,
            user_channels: UserChannels::new(hash),
            log_bytes: 0,
            detached: Vec::new(),
            spacious: Vec::new(),
            resting_bytes: 0,
            queue_bytes: 0,
            unweighed: Vec::new(),
            unread_replies: UnreadReplies::default(),
            job_bytes: 0,
            table_bytes: 0,
            mail_bytes: 0,
        }
    }

    /// A consumer on another shard waits until mail has room, behind those that do so, too.
    pub(crate) fn wait_for_mail(&mut self, (queue, key): WaitingConsumer) {
        self.end_wait(key);
        if let Some(remote) = self.remote_consumers.get_mut(&key) {
            remote.place = Some(self.backpressure.wait_for_mail((queue, key)));
        }
    }

    /// A consumer on another shard waits until its connection has room, behind those that do so, too.
    pub(crate) fn wait_for_connection(&mut self, (queue, key): WaitingConsumer) {
        self.end_wait(key);
        if let Some(remote) = self.remote_consumers.get_mut(&key) {
            remote.place = Some(self.backpressure.wait_for_connection((queue, key)));
        }
    }

    /// A consumer on another shard waits for nothing any more.
    pub(crate) fn end_wait(&mut self, key: ConsumerKey) {
        let remote = self.remote_consumers.get_mut(&key);
        if let Some(place) = remote.and_then(|remote| remote.place.take()) {
            self.backpressure.end_wait(key, place);
        }
    }

    /// The consumer that has waited longest for mail to have room. It waits no longer.
    pub(crate) fn take_first_behind_mail(&mut self) -> Option<WaitingConsumer> {
        let waiting = self.backpressure.first_behind_mail()?;
        self.end_wait(waiting.1);
        Some(waiting)
    }

    /// The same of those that wait for room on this connection of another shard.
    pub(crate) fn take_first_behind(
        &mut self,
        connection: ConnectionId,
    ) -> Option<WaitingConsumer> {
        let waiting = self.backpressure.first_behind(connection)?;
        self.end_wait(waiting.1);
        Some(waiting)
    }

    /// The connection with this id, if it lives here; `hint` is where it probably is.
    pub fn connection(&mut self, id: ConnectionId, hint: u32) -> Option<(u32, &mut Connection)> {
        let slot = match self.connections.get(hint as usize) {
            Some(connection) if connection.id == id => hint,
            _ => *self.by_id.get(&id)?,
        };
        self.connections.get_mut(slot as usize).map(|connection| (slot, &mut **connection))
    }

    /// The connection in this slot, if it is still the one with this id.
    pub fn connection_at(&mut self, slot: u32, id: ConnectionId) -> Option<&mut Connection> {
        self.connections
            .get_mut(slot as usize)
            .map(|connection| &mut **connection)
            .filter(|connection| connection.id == id)
    }

    /// Whether the client of a connection is gone, and something of it is still here.
    pub(crate) fn is_lost(&mut self, id: ConnectionId) -> bool {
        let connection = self.connection(id, u32::MAX);
        connection.is_some_and(|(_, connection)| {
            connection.end == Some(crate::connection::ConnectionEnd::Lost)
        })
    }

    /// Notes that a connection has bytes to send.
    pub fn mark_dirty(&mut self, slot: u32, out: &mut Outbox) {
        if let Some(connection) = self.connections.get_mut(slot as usize) {
            mark_dirty(connection, slot, out);
        }
    }

    /// Says something on a channel, or on channel 0 of the connection.
    pub fn answer(&mut self, slot: u32, channel: u16, answer: &Answer<'_>, out: &mut Outbox) {
        if let Some(connection) = self.connections.get_mut(slot as usize) {
            connection.answer(channel, answer);
            mark_dirty(connection, slot, out);
        }
    }

    /// Stops reading a connection, for this cause.
    pub fn pause(&mut self, slot: u32, cause: Cause, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let was_read = connection.paused.is_empty();
        if !connection.paused.add(cause) {
            return;
        }
        if was_read {
            connection.session.reading_paused(self.now.instant, true);
            out.resume.retain(|&resumed| resumed.0 != slot);
            out.pause.push(ConnectionSlot(slot));
        }
        self.backpressure.wait(cause, (slot, connection.id));
    }

    /// One cause for not reading a connection is over.
    pub fn resume(&mut self, slot: u32, cause: Cause, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.paused.remove(cause) && connection.paused.is_empty() {
            connection.session.reading_paused(self.now.instant, false);
            out.pause.retain(|&paused| paused.0 != slot);
            out.resume.push(ConnectionSlot(slot));
        }
    }

    /// The same for those that were listed for it, as far as they are still here.
    pub(crate) fn resume_all(
        &mut self,
        waiting: Vec<WaitingConnection>,
        cause: Cause,
        out: &mut Outbox,
    ) {
        for (slot, id) in waiting {
            if self.connection_at(slot, id).is_some() {
                self.resume(slot, cause, out);
            }
        }
    }

    /// Blocks a publishing connection while memory or the disk is short, and says so if the client
    /// can hear. It is read until it publishes again, so that a client that heeds can close.
    pub fn block(&mut self, slot: u32, shortage: Shortage, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.blocked || connection.end.is_some() {
            return;
        }
        connection.blocked = true;
        self.backpressure.block((slot, connection.id));
        if connection.session.understands(Capability::Blocked) {
            connection.answer(0, &Answer::Blocked(shortage.text()));
            mark_dirty(connection, slot, out);
        }
    }

    /// Reads publishers again that were blocked, if nothing is short any more.
    pub(crate) fn unblock_all(&mut self, out: &mut Outbox) {
        for (slot, id) in self.backpressure.end_shortage() {
            let Some(connection) = self.connection_at(slot, id) else { continue };
            connection.blocked = false;
            if connection.end.is_none() && connection.session.understands(Capability::Blocked) {
                connection.answer(0, &Answer::Done(Done::Unblocked));
                mark_dirty(connection, slot, out);
            }
            self.resume(slot, Cause::Shortage, out);
        }
    }

    /// Whether a connection must not be read any further: the client does not read its answers, or
    /// mail to some shard has no room.
    #[inline]
    pub(crate) fn must_press(&self, slot: u32, out: &Outbox) -> bool {
        let Some(connection) = self.connections.get(slot as usize) else { return true };
        connection.send.backlog() > self.limits.unread_bytes_max || self.is_mail_full(out)
    }

    /// Whether a connection has published to a shard whose log lags.
    pub(crate) fn feeds_lagging_shard(&self, slot: u32) -> bool {
        let Some(connection) = self.connections.get(slot as usize) else { return false };
        self.backpressure.is_log_late_among(&connection.touched)
    }

    /// Whether the mail to some shard has no room.
    #[inline]
    pub(crate) fn is_mail_full(&self, out: &Outbox) -> bool {
        let limit = self.limits.mail_batch_bytes_max;
        self.resting_bytes > limit || out.mail.iter().any(|batch| batch.weight() > limit)
    }

    /// Arms the connection's next timer if it is earlier than the armed one.
    pub fn arm(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.session.state() == State::Closed {
            return;
        }
        let next = connection.session.next_timeout();
        if next < connection.armed {
            connection.armed = next;
            self.timers.arm(next, Timer::Connection(slot, connection.id));
        }
    }

    /// Whether what comes into a transient queue with so many bytes in memory goes to the log, where
    /// there is one.
    #[inline]
    pub(crate) fn must_spill(&self, pooled_bytes: u64) -> bool {
        let is_much = pooled_bytes >= QUEUE_POOL_BYTES_MAX
            || self.pool.used() >= self.spilling_bytes()
            || self.backpressure.is_memory_short();
        is_much && !self.is_committing
    }

    /// Bytes of messages in memory above which transient ones go to the log, where there is one.
    #[inline]
    pub(crate) fn spilling_bytes(&self) -> usize {
        self.limits.spill_bytes.min(self.loan.obtainable / 2)
    }

    /// A direct reply to the connection in this slot is dropped.
    pub(crate) fn drop_unread_reply(&mut self, slot: u32, out: &mut Outbox) {
        if self.unread_replies.is_told_later() {
            return;
        }
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let name = connection_name(connection);
        self.unread_replies.tell_one(&name, self.now, &mut self.timers, out);
    }

    /// Whether the shard uses more than it has, and the answer to whether there is more is to come.
    #[inline]
    pub(crate) fn awaits_loan(&self) -> bool {
        self.memory() > self.loan.bytes && !self.loan.is_all()
    }

    /// Bytes that count against the shard's memory budget; those of connections that have not opened
    /// a vhost do not.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> usize {
        self.pool.used()
            + self.connection_bytes
            + self.queue_bytes
            + self.job_bytes
            + self.table_bytes
            + self.mail_bytes
            + self.log_bytes
    }
}

/// Notes that a connection has bytes to send, if it has any: the driver says nothing about a
/// connection that had none.
pub fn mark_dirty(connection: &mut Connection, slot: u32, out: &mut Outbox) {
    if connection.send.bytes.capacity() > connection.counted_capacity {
        note_growth(connection, slot, out);
    }
    if !connection.dirty && !connection.send.is_empty() {
        connection.dirty = true;
        out.dirty.push(ConnectionSlot(slot));
    }
}

/// Notes that a connection's send buffer takes more memory than is counted.
#[cold]
fn note_growth(connection: &mut Connection, slot: u32, out: &mut Outbox) {
    connection.counted_capacity = connection.send.bytes.capacity();
    out.grown.push(ConnectionSlot(slot));
}

/// How a connection is named in the log: `peer -> server`.
#[must_use]
pub fn connection_name(connection: &Connection) -> String {
    format!("{} -> {}", connection.peer.address, connection.peer.local_address)
}
