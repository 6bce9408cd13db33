//! The way of messages out of a queue: to consumers here and on other shards, to the dead letters, or to nowhere.

mod row;

use alloc::vec::Vec;

use lepus_base::{Body, Now, Pool, Position, QueueId, ShardId};
use lepus_store::LaneSlot;

use crate::channel::WaitsFor;
use crate::channel::unacked::Unacked;
use crate::connection::Connection;
use crate::connections::{Connections, mark_dirty};
use crate::counters::Counters;
use crate::dead_letter::DeadLetters;
use crate::dead_letter::Source;
use crate::journal::{Backlog, Found, Journal};
use crate::mail::Mail;
use crate::message::{Layout, MessageView};
use crate::outbox::Outbox;
use crate::properties;
use crate::queue::{
    Consumer, ConsumerKey, Content, Delivery, Entry, NO_SLOT, Reason, Selected, SelectorBits,
    Selectors, Sent, Sink,
};
use crate::remote::{Remote, RemoteWindow};
use crate::send_buffer::LARGE_BODY_BYTES_MIN;
use crate::session::{Delivered, Source as Origin};
use crate::shard::Shard;
use crate::tap::tap_delivery;
use crate::trace::Tracing;

pub(crate) use row::Noted;
pub(crate) use row::RowSink;

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
    let Some(channel) = connection
        .channels
        .get_mut(arrival.consumer.channel as u16)
        .filter(|channel| channel.key == arrival.consumer.channel)
    else {
        invariant!("a channel whose consumer takes a message is open")
    };
    channel.last_tag += 1;
    let tag = channel.last_tag;
    if delivery.redelivered {
        counters.redelivered += 1;
        channel.counts.redelivered += 1;
        connection.unsummed.counts().redelivered += 1;
    }
    if no_ack {
        counters.delivered_auto_ack += 1;
        channel.counts.delivered_auto_ack += 1;
        connection.unsummed.counts().delivered_auto_ack += 1;
    } else {
        counters.delivered_manual_ack += 1;
        channel.counts.delivered_manual_ack += 1;
        connection.unsummed.counts().delivered_manual_ack += 1;
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
            connection.account_channel(arrival.consumer.channel);
        }
    }
    let number = arrival.consumer.channel as u16;
    let redelivered = delivery.redelivered;
    if let Layout::Wire(wire) = &view.layout
        && delivery.delivery_count == 0
        && let Some(session) = connection.session.amqp()
        && session.deliver_frames(
            number,
            (arrival.tag, tag, redelivered),
            wire,
            view.body.len(),
            &mut connection.send.bytes,
        )
    {
        return false;
    }
    let rewritten = properties::for_client(view.properties, delivery.delivery_count);
    let delivered = Delivered {
        source: Origin::Consumer { tag: arrival.tag, number: tag, redelivered },
        exchange: view.exchange,
        routing_key: view.routing_key,
        properties: rewritten.as_deref().unwrap_or(view.properties),
        body: view.body,
    };
    if let Some((body, pool)) = stored
        && view.body.len() >= LARGE_BODY_BYTES_MIN
    {
        connection.session.deliver_head(number, &delivered, &mut connection.send.bytes);
        let next = pool.get(body).len() - view.body.len();
        connection.send.stream(body, next, number, pool);
        return true;
    }
    connection.session.deliver(number, &delivered, &mut connection.send.bytes);
    false
}

/// The rest of a shard, as one of its queues sees it.
pub struct QueuePort<'a> {
    /// Bodies, counters, limits.
    pub shard: &'a mut Shard,
    /// The connections.
    pub connections: &'a mut Connections,
    /// Consumers on other shards.
    pub remote: &'a mut Remote,
    /// Messages on their way to a dead-letter exchange.
    pub(crate) dead_letters: &'a mut DeadLetters,
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
struct DeliveryRoute<'a> {
    shard: ShardId,
    near: &'a [bool],
    connections: &'a mut Connections,
    counters: &'a mut Counters,
    tracing: &'a mut Tracing,
    remote: &'a mut Remote,
    out: &'a mut Outbox,
}

impl<'a> DeliveryRoute<'a> {
    #[inline(always)]
    fn new(
        shard: &'a mut Shard,
        connections: &'a mut Connections,
        remote: &'a mut Remote,
        out: &'a mut Outbox,
    ) -> (DeliveryRoute<'a>, &'a Pool) {
        let Shard { id, near, counters, tracing, pool, .. } = shard;
        (DeliveryRoute { shard: *id, near, connections, counters, tracing, remote, out }, pool)
    }

    /// [`DeliveryRoute::send`] where it is not the shortest path that counts.
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
            let Some(connection) = self.connections.get_mut(slot) else {
                invariant!("a connection whose consumer takes a message is there")
            };
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
            if self.tracing.is_on() {
                let to = consumer.key.channel;
                tap_delivery(self.tracing, (connection, to), queue, delivery, view, self.out);
            }
            mark_dirty(connection, slot, self.out);
            return streams;
        }
        let key = consumer.key;
        self.counters.delivered_remote += 1;
        self.counters.delivered_near += u64::from(is_near(self.near, consumer.shard));
        if let Some(remote) = self.remote.consumers.get_mut(&key)
            && remote.governed
        {
            remote.credit = remote.credit.saturating_sub(1);
        }
        let batch = &mut self.out.mail[consumer.shard.index()];
        let message = view.append_packed(&mut batch.bytes);
        let Some(window) = self.remote.windows.get_mut(&key.connection) else {
            invariant!("a connection on another shard has a window before it gets anything");
        };
        window.room -= i64::from(message.end - message.start);
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

impl QueuePort<'_> {
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
        let Some(log) = self.journal.log(self.log) else {
            invariant!("what is in a log is in one of this shard")
        };
        let view = match log.message(at, bytes, reader, &mut self.out.disk) {
            Ok(view) => view,
            Err(Found::Pending) => return Sent::Pending,
            Err(_) => return Sent::Lost,
        };
        if view.body.len() < LARGE_BODY_BYTES_MIN {
            let (mut ways, pool) =
                DeliveryRoute::new(self.shard, self.connections, self.remote, self.out);
            ways.send_apart(from, consumer, delivery, &view, None, pool);
            return Sent::Done;
        }
        // A large one is kept in the pool while the socket takes it.
        let body = view.pack(&mut self.shard.pool);
        let (mut ways, pool) =
            DeliveryRoute::new(self.shard, self.connections, self.remote, self.out);
        let view = MessageView::unpack(pool.get(body));
        if !ways.send_apart(from, consumer, delivery, &view, Some(body), pool) {
            self.shard.pool.release(body);
        }
        Sent::Done
    }

    #[inline(always)]
    fn may_deliver_local(&mut self, consumer: &Consumer) -> bool {
        let window = self.shard.limits.send_window_bytes;
        let unacked_max = self.shard.limits.unacked_per_channel_max as usize;
        let slot = consumer.connection_slot;
        let Some(connection) = self.connections.get_mut(slot) else {
            return race!("the connection closed before its consumers were cancelled", false);
        };
        if connection.id != consumer.key.connection || connection.gone || connection.end.is_some() {
            return false;
        }
        if connection.send.len() >= window {
            connection.stall(consumer.key);
            return false;
        }
        let Some(channel) = connection.incarnation(consumer.key.channel) else {
            return race!("the channel closed before its consumers were cancelled", false);
        };
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
        if !self.remote.detached.is_empty() && self.remote.detached.contains(&key.connection) {
            return false;
        }
        let Some(remote) = self.remote.consumers.get_mut(&key) else {
            invariant!("a consumer on another shard is known where its queue is")
        };
        if remote.governed && remote.credit == 0 {
            if !remote.wanted {
                remote.wanted = true;
                let want = Mail::WantCredit { to: key, queue: self.queue };
                self.out.mail[consumer.shard.index()].items.push(want);
            }
            return false;
        }
        let initial = self.shard.limits.send_window_bytes as i64;
        let window =
            self.remote.windows.entry(key.connection).or_insert(RemoteWindow { room: initial });
        if window.room <= 0 {
            self.remote.wait_for_connection(&mut self.shard.backpressure, (self.queue, key));
            return false;
        }
        let batch = self.out.mail[consumer.shard.index()].bytes.len() as i64;
        if batch > 16 * initial {
            self.remote.wait_for_mail(&mut self.shard.backpressure, (self.queue, key));
            return false;
        }
        true
    }
}

impl Sink for QueuePort<'_> {
    type Log<'a>
        = Backlog<'a>
    where
        Self: 'a;

    fn pool(&mut self) -> &mut Pool {
        &mut self.shard.pool
    }

    fn may_deliver(&mut self, consumer: &Consumer, _bytes: usize) -> bool {
        if consumer.shard == self.shard.id {
            self.may_deliver_local(consumer)
        } else {
            self.may_deliver_remote(consumer)
        }
    }

    fn select(&mut self, selectors: &Selectors, asked: SelectorBits, entry: &Entry) -> Selected {
        let scratch = &mut self.shard.selecting;
        let selected = match entry.place.position() {
            None => {
                let body = entry.place.body().map(|body| self.shard.pool.get(body));
                selectors.ask(asked, &MessageView::unpack(body.unwrap_or_default()), scratch)
            }
            Some(at) => {
                let reader = (self.queue_slot, self.queue);
                let Some(log) = self.journal.log(self.log) else {
                    invariant!("what is in a log is in one of this shard")
                };
                match log.message(at, entry.bytes, reader, &mut self.out.disk) {
                    Ok(view) => selectors.ask(asked, &view, scratch),
                    Err(Found::Pending) => Selected::Pending,
                    Err(_) => Selected::Lost,
                }
            }
        };
        self.shard.note_consumer_filters(self.queue);
        selected
    }

    fn deliver(&mut self, consumer: &Consumer, delivery: Delivery, content: Content<'_>) -> Sent {
        debug_assert!(consumer.no_ack == (delivery.slot == NO_SLOT));
        if let Content::Logged(position, bytes) = content {
            return self.deliver_logged(consumer, delivery, position, bytes);
        }
        let from = (self.queue, self.queue_slot);
        let (mut ways, pool) =
            DeliveryRoute::new(self.shard, self.connections, self.remote, self.out);
        let unpacked;
        let (view, stored) = match content {
            Content::Stored(body) => {
                unpacked = MessageView::unpack(pool.get(body));
                (&unpacked, Some(body))
            }
            Content::Incoming(view) => (view, None),
            Content::Logged(..) => invariant!("what is in a log was delivered from there"),
        };
        let streams = ways.send(from, consumer, delivery, view, stored, pool);
        if let Some(body) = stored.filter(|_| streams) {
            self.shard.pool.retain(body);
        }
        Sent::Done
    }

    fn may_dead_letter(&mut self) -> bool {
        // The shard that gets it may close before.
        !self.journal.closes() && self.dead_letters.may_push(self.queue)
    }

    fn waits_for_letters(&mut self) -> bool {
        let reader = (self.queue_slot, self.queue);
        if !self.dead_letters.wait_behind_lines(reader) {
            self.shard.backpressure.wait_behind_dead_letters(reader);
        }
        true
    }

    fn dead_letter(&mut self, entry: Entry, lane: Option<LaneSlot>, reason: Reason) {
        let (queue, log) = (self.queue, self.log);
        let was_delivered = reason == Reason::Rejected;
        let source = Source { queue, log, lane, entry, was_delivered };
        self.dead_letters.push(source, reason);
    }

    #[inline]
    fn discard(&mut self, entry: Entry) {
        if let Some(body) = entry.place.body() {
            self.shard.pool.release(body);
        }
    }

    #[inline]
    fn backlog(&mut self) -> Option<Backlog<'_>> {
        let reader = (self.queue_slot, self.queue);
        self.journal.backlog(self.now, self.log, reader, &mut self.out.disk)
    }

    #[inline]
    fn spills(&self, taken_bytes: u64) -> bool {
        self.journal.is_on()
            && (self.shard.must_spill(taken_bytes)
                || (self.shard.may_spill(taken_bytes) && self.journal.has_ample_room(self.log)))
    }

    fn letters(&self) -> Vec<(LaneSlot, u64)> {
        self.dead_letters.of_queue(self.queue, self.log)
    }
}
