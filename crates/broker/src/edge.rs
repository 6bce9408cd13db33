//! A shard's side towards clients: its connections, and what deliveries need from them.
//!
//! [`QueueSink`] is what a queue sees of the rest of its shard: where deliveries, dead letters
//! and dropped messages go.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_amqp::frame::OVERHEAD_BYTES;
use lepus_amqp::method::{Method, connection};
use lepus_amqp::server::{State, encode_delivery, encode_delivery_head, encode_delivery_of};
use lepus_base::{
    Body, ConnectionId, HashMap, HashState, Now, Pool, Position, QueueId, ShardId, Slab,
};
use lepus_store::LaneSlot;

use crate::backpressure::{Backpressure, Cause, WaitingConnection, WaitingConsumer};
use crate::channel::WaitsFor;
use crate::channel::unacked::Unacked;
use crate::connection::Connection;
use crate::counters::Counters;
use crate::dead_letter::{DeadLetters, Source};
use crate::effort::Effort;
use crate::follow_ups::FollowUps;
use crate::journal::{Backlog, Found, Journal};
use crate::loan::Loan;
use crate::mail::{Mail, Shortage};
use crate::message::MessageView;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::properties;
use crate::queue::{
    Consumer, ConsumerHandle, ConsumerKey, Content, Delivery, Entry, NO_SLOT, Reason, Sent, Sink,
};
use crate::reply_to::UnreadReplies;
use crate::send_buffer::LARGE_BODY_BYTES_MIN;
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

    /// Sends a method.
    pub fn send(&mut self, slot: u32, channel: u16, method: &Method<'_>, out: &mut Outbox) {
        if let Some(connection) = self.connections.get_mut(slot as usize) {
            method.encode_frame(channel, &mut connection.send.bytes);
            mark_dirty(connection, slot, out);
        }
    }

    /// Sends bytes that are frames already.
    pub fn send_bytes(&mut self, slot: u32, bytes: &[u8], out: &mut Outbox) {
        if let Some(connection) = self.connections.get_mut(slot as usize) {
            connection.send.bytes.extend_from_slice(bytes);
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
            connection.machine.reading_paused(self.now.instant, true);
            out.resume.retain(|&resumed| resumed.0 != slot);
            out.pause.push(ConnectionSlot(slot));
        }
        self.backpressure.wait(cause, (slot, connection.id));
    }

    /// One cause for not reading a connection is over.
    pub fn resume(&mut self, slot: u32, cause: Cause, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.paused.remove(cause) && connection.paused.is_empty() {
            connection.machine.reading_paused(self.now.instant, false);
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
        if connection.machine.has_client_capability("connection.blocked") {
            let reason = shortage.text();
            Method::ConnectionBlocked(connection::Blocked { reason })
                .encode_frame(0, &mut connection.send.bytes);
            mark_dirty(connection, slot, out);
        }
    }

    /// Reads publishers again that were blocked, if nothing is short any more.
    pub(crate) fn unblock_all(&mut self, out: &mut Outbox) {
        for (slot, id) in self.backpressure.end_shortage() {
            let Some(connection) = self.connection_at(slot, id) else { continue };
            connection.blocked = false;
            if connection.end.is_none()
                && connection.machine.has_client_capability("connection.blocked")
            {
                Method::ConnectionUnblocked(connection::Unblocked {})
                    .encode_frame(0, &mut connection.send.bytes);
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
        if connection.machine.state() == State::Closed {
            return;
        }
        let next = connection.machine.next_timeout();
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

/// Where a delivery comes from and which consumer gets it.
pub struct Arrival<'a> {
    /// The queue.
    pub queue: QueueId,
    /// The queue's place in its home's table, a hint.
    pub queue_slot: u32,
    /// The queue's home.
    pub home: ShardId,
    /// The consumer.
    pub consumer: ConsumerKey,
    /// Its tag.
    pub tag: &'a str,
}

/// Encodes a delivery into the connection's send buffer and remembers it on its channel. A large
/// one that lies in the pool, as `stored` says, is encoded as the socket takes it: then the result
/// is true, and the buffer has one reference to the body that the caller provides.
pub fn deliver(
    connection: &mut Connection,
    counters: &mut Counters,
    arrival: Arrival<'_>,
    no_ack: bool,
    delivery: Delivery,
    view: &MessageView<'_>,
    stored: Option<(Body, &Pool)>,
) -> bool {
    let frame_max = connection.machine.frame_max();
    let Some(channel) = connection
        .channels
        .get_mut(arrival.consumer.channel as u16)
        .filter(|channel| channel.key == arrival.consumer.channel)
    else {
        return false;
    };
    channel.last_tag += 1;
    let tag = channel.last_tag;
    if no_ack {
        counters.delivered_auto_ack += 1;
    } else {
        counters.delivered_manual_ack += 1;
        channel.unacked.push(Unacked {
            tag,
            queue: arrival.queue,
            queue_slot: arrival.queue_slot,
            home: arrival.home,
            consumer: arrival.consumer.consumer,
            slot: delivery.slot,
            sequence: delivery.seq,
        });
        if let Some(global) = &mut channel.global {
            global.in_flight += 1;
        }
        if channel.unacked.take_resized() {
            connection.weigh_channel(arrival.consumer.channel);
        }
    }
    counters.redelivered += u64::from(delivery.redelivered);
    let number = arrival.consumer.channel as u16;
    if let Some(wire) = &view.wire
        && view.body.len() + OVERHEAD_BYTES <= frame_max as usize
        && delivery.delivery_count == 0
    {
        let out = &mut connection.send.bytes;
        encode_delivery_of(out, number, arrival.tag, tag, delivery.redelivered, wire);
        return false;
    }
    let rewritten = properties::for_client(view.properties, delivery.delivery_count);
    if let Some((body, pool)) = stored
        && view.body.len() >= LARGE_BODY_BYTES_MIN
    {
        encode_delivery_head(
            &mut connection.send.bytes,
            number,
            arrival.tag,
            tag,
            delivery.redelivered,
            view.exchange,
            view.routing_key,
            rewritten.as_deref().unwrap_or(view.properties),
            view.body.len() as u64,
        );
        let next = pool.get(body).len() - view.body.len();
        connection.send.stream(body, next, number, frame_max, pool);
        return true;
    }
    encode_delivery(
        &mut connection.send.bytes,
        number,
        frame_max,
        arrival.tag,
        tag,
        delivery.redelivered,
        view.exchange,
        view.routing_key,
        rewritten.as_deref().unwrap_or(view.properties),
        view.body,
    );
    false
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

/// The rest of a shard, as one of its queues sees it.
pub struct QueueSink<'a> {
    /// Connections, bodies, counters.
    pub edge: &'a mut Edge,
    /// Where effects go.
    pub out: &'a mut Outbox,
    /// This cycle's time.
    pub now: Now,
    /// The queue.
    pub queue: QueueId,
    /// Its place in the shard's table.
    pub queue_slot: u32,
    /// The shard's logs.
    pub journal: &'a mut Journal,
    /// The queue's among them.
    pub log: u16,
}

/// The ways out of a shard, beside the pool from which a message may come.
struct Ways<'a> {
    shard: ShardId,
    near: &'a [bool],
    connections: &'a mut Slab<Box<Connection>>,
    counters: &'a mut Counters,
    remote_consumers: &'a mut HashMap<ConsumerKey, RemoteConsumer>,
    remote_windows: &'a mut HashMap<ConnectionId, RemoteWindow>,
    out: &'a mut Outbox,
}

impl<'a> Ways<'a> {
    fn new(edge: &'a mut Edge, out: &'a mut Outbox) -> (Ways<'a>, &'a Pool) {
        let Edge {
            shard, near, connections, counters, remote_consumers, remote_windows, pool, ..
        } = edge;
        let shard = *shard;
        let ways =
            Ways { shard, near, connections, counters, remote_consumers, remote_windows, out };
        (ways, pool)
    }

    /// [`Ways::send`] where it is not the shortest path that counts.
    #[inline(never)]
    fn send_apart(
        &mut self,
        from: (QueueId, u32),
        consumer: &Consumer,
        delivery: Delivery,
        view: &MessageView<'_>,
        stored: Option<Body>,
        pool: &Pool,
    ) -> bool {
        self.send(from, consumer, delivery, view, stored, pool)
    }

    /// Sends a message to a consumer. True when its connection has one more reference to the
    /// stored body.
    #[inline(always)]
    fn send(
        &mut self,
        (queue, queue_slot): (QueueId, u32),
        consumer: &Consumer,
        delivery: Delivery,
        view: &MessageView<'_>,
        stored: Option<Body>,
        pool: &Pool,
    ) -> bool {
        if consumer.shard == self.shard {
            self.counters.delivered_local += 1;
            let slot = consumer.connection_slot;
            let Some(connection) = self.connections.get_mut(slot as usize) else { return false };
            let arrival = Arrival {
                queue,
                queue_slot,
                home: self.shard,
                consumer: consumer.key,
                tag: &consumer.tag,
            };
            let stored = stored.map(|body| (body, pool));
            let no_ack = consumer.no_ack;
            let streams =
                deliver(connection, self.counters, arrival, no_ack, delivery, view, stored);
            mark_dirty(connection, slot, self.out);
            return streams;
        }
        let key = consumer.key;
        self.counters.delivered_remote += 1;
        self.counters.delivered_near += u64::from(is_near(self.near, consumer.shard));
        if let Some(remote) = self.remote_consumers.get_mut(&key)
            && remote.governed
        {
            remote.credit = remote.credit.saturating_sub(1);
        }
        let batch = &mut self.out.mail[consumer.shard.index()];
        let message = view.append_packed(&mut batch.bytes);
        if let Some(window) = self.remote_windows.get_mut(&key.connection) {
            window.room -= i64::from(message.end - message.start);
        }
        batch.items.push(Mail::Deliver {
            to: key,
            hint: consumer.connection_slot,
            queue,
            slot: delivery.slot,
            sequence: delivery.seq,
            redelivered: delivery.redelivered,
            delivery_count: delivery.delivery_count,
            message,
        });
        false
    }
}

/// Whether a shard is on the memory node of this one.
#[must_use]
pub fn is_near(near: &[bool], shard: ShardId) -> bool {
    near.get(shard.index()).copied().unwrap_or(true)
}

impl QueueSink<'_> {
    /// Sends a message straight from the log's memory.
    fn deliver_logged(
        &mut self,
        consumer: &Consumer,
        delivery: Delivery,
        at: Position,
        bytes: u32,
    ) -> Sent {
        let from = (self.queue, self.queue_slot);
        let reader = (self.queue_slot, self.queue);
        let Some(log) = self.journal.log(self.log) else { return Sent::Lost };
        let view = match log.message(at, bytes, reader, &mut self.out.disk) {
            Ok(view) => view,
            Err(Found::Pending) => return Sent::Pending,
            Err(_) => return Sent::Lost,
        };
        if view.body.len() < LARGE_BODY_BYTES_MIN {
            let (mut ways, pool) = Ways::new(self.edge, self.out);
            ways.send_apart(from, consumer, delivery, &view, None, pool);
            return Sent::Done;
        }
        // A large one is kept in the pool while the socket takes it.
        let body = view.pack(&mut self.edge.pool);
        let (mut ways, pool) = Ways::new(self.edge, self.out);
        let view = MessageView::unpack(pool.get(body));
        if !ways.send_apart(from, consumer, delivery, &view, Some(body), pool) {
            self.edge.pool.release(body);
        }
        Sent::Done
    }

    #[inline(always)]
    fn may_deliver_local(&mut self, consumer: &Consumer) -> bool {
        let window = self.edge.limits.send_window_bytes;
        let unacked_max = self.edge.limits.unacked_per_channel_max as usize;
        let slot = consumer.connection_slot as usize;
        let Some(connection) = self.edge.connections.get_mut(slot) else { return false };
        if connection.id != consumer.key.connection || connection.gone || connection.end.is_some() {
            return false;
        }
        if connection.send.len() >= window {
            connection.stall(consumer.key);
            return false;
        }
        let Some(channel) = connection.incarnation(consumer.key.channel) else { return false };
        if channel.ending.is_some() {
            // Its other consumers may go first and make this one the next.
            return false;
        }
        // A delivery that needs no acknowledgement takes no room, but waits for it like the others.
        let full = !consumer.no_ack && channel.unacked.len() >= unacked_max;
        if let Some(global) = &channel.global
            && (full || !global.has_room())
        {
            if let Some(all) = &mut channel.subscriptions {
                all.wait(consumer.key.consumer, WaitsFor::Credit);
            }
            return false;
        }
        if full {
            connection.stall(consumer.key);
        }
        !full
    }

    #[inline(never)]
    fn may_deliver_remote(&mut self, consumer: &Consumer) -> bool {
        let key = consumer.key;
        if !self.edge.detached.is_empty() && self.edge.detached.contains(&key.connection) {
            return false;
        }
        let Some(remote) = self.edge.remote_consumers.get_mut(&key) else { return false };
        if remote.governed && remote.credit == 0 {
            if !remote.wanted {
                remote.wanted = true;
                let want = Mail::WantCredit { to: key, queue: self.queue };
                self.out.mail[consumer.shard.index()].items.push(want);
            }
            return false;
        }
        let initial = self.edge.limits.send_window_bytes as i64;
        let window = self
            .edge
            .remote_windows
            .entry(key.connection)
            .or_insert(RemoteWindow { room: initial });
        if window.room <= 0 {
            self.edge.wait_for_connection((self.queue, key));
            return false;
        }
        let batch = self.out.mail[consumer.shard.index()].bytes.len() as i64;
        if batch > 16 * initial {
            self.edge.wait_for_mail((self.queue, key));
            return false;
        }
        true
    }
}

impl Sink for QueueSink<'_> {
    type Log<'a>
        = Backlog<'a>
    where
        Self: 'a;

    fn pool(&mut self) -> &mut Pool {
        &mut self.edge.pool
    }

    fn may_deliver(&mut self, consumer: &Consumer, _bytes: usize) -> bool {
        if consumer.shard == self.edge.shard {
            self.may_deliver_local(consumer)
        } else {
            self.may_deliver_remote(consumer)
        }
    }

    fn deliver(&mut self, consumer: &Consumer, delivery: Delivery, content: Content<'_>) -> Sent {
        debug_assert!(consumer.no_ack == (delivery.slot == NO_SLOT));
        if let Content::Logged(position, bytes) = content {
            return self.deliver_logged(consumer, delivery, position, bytes);
        }
        let from = (self.queue, self.queue_slot);
        let (mut ways, pool) = Ways::new(self.edge, self.out);
        let unpacked;
        let (view, stored) = match content {
            Content::Stored(body) => {
                unpacked = MessageView::unpack(pool.get(body));
                (&unpacked, Some(body))
            }
            Content::Incoming(view) => (view, None),
            Content::Logged(..) => return Sent::Lost,
        };
        let streams = ways.send(from, consumer, delivery, view, stored, pool);
        if let Some(body) = stored.filter(|_| streams) {
            self.edge.pool.retain(body);
        }
        Sent::Done
    }

    fn may_dead_letter(&mut self) -> bool {
        // The shard that gets it may close before.
        !self.journal.closes() && self.edge.dead_letters.may_push(self.queue)
    }

    fn waits_for_letters(&mut self) -> bool {
        let reader = (self.queue_slot, self.queue);
        if !self.edge.dead_letters.wait_behind_lines(reader) {
            self.edge.backpressure.wait_behind_dead_letters(reader);
        }
        true
    }

    fn dead_letter(&mut self, entry: Entry, lane: Option<LaneSlot>, reason: Reason) {
        let (queue, log) = (self.queue, self.log);
        let was_delivered = reason == Reason::Rejected;
        let source = Source { queue, log, lane, entry, was_delivered };
        self.edge.dead_letters.push(source, reason);
    }

    #[inline]
    fn discard(&mut self, entry: Entry) {
        if let Some(body) = entry.place.body() {
            self.edge.pool.release(body);
        }
    }

    #[inline]
    fn backlog(&mut self) -> Option<Backlog<'_>> {
        let reader = (self.queue_slot, self.queue);
        self.journal.backlog(self.now, self.log, reader, &mut self.out.disk)
    }

    #[inline]
    fn spills(&self, pooled_bytes: u64) -> bool {
        self.journal.is_on() && self.edge.must_spill(pooled_bytes)
    }

    fn letters(&self) -> Vec<(LaneSlot, u64)> {
        self.edge.dead_letters.of_queue(self.queue, self.log)
    }
}
