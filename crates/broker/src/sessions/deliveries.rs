//! What homes on other shards send to consumers of this one, and direct replies; credit under a prefetch limit of a
//! channel.

use crate::channel::{Late, WaitsFor};
use crate::connections::mark_dirty;
use crate::delivery::{Arrival, deliver};
use crate::mail::{ChannelRef, Mail, Reply};
use crate::message::MessageView;
use crate::message::packed;
use crate::outbox::Outbox;
use crate::properties::for_client;
use crate::queue::{ConsumerKey, Delivery, NO_SLOT, Outcome};
use crate::send_buffer::LARGE_BODY_BYTES_MIN;
use crate::session::{Answer, Capability};
use crate::session::{Delivered, Source};
use crate::sessions::SessionSide;
use crate::tap::tap_delivery;
use lepus_base::{ConnectionId, Now, QueueId, ShardId};

/// Gives a delivery that nobody is sent back to the queue, and the window what it took of it.
pub(crate) fn return_late(connection: ConnectionId, late: Late, out: &mut Outbox) {
    let Late { home, queue, slot, sequence, bytes } = late;
    let items = &mut out.mail[home.index()].items;
    items.push(Mail::Window { connection, bytes });
    if slot != NO_SLOT {
        items.push(Mail::Settle { queue, slot, sequence, outcome: Outcome::Return });
    }
}

impl SessionSide<'_> {
    pub(crate) fn on_mailed_reply(
        &mut self,
        now: Now,
        from: ShardId,
        to: ChannelRef,
        queue: QueueId,
        reply: Reply,
        bytes: &[u8],
        out: &mut Outbox,
    ) {
        let Reply::Got { slot, sequence, redelivered, delivery_count, remaining, message } = reply
        else {
            return self.on_reply(now, to, queue, reply, out);
        };
        let view = packed(bytes, message);
        let delivery = Delivery { slot, seq: sequence, redelivered, delivery_count };
        let is_large = view.body.len() >= LARGE_BODY_BYTES_MIN;
        let mut pool = core::mem::take(&mut self.shard.pool);
        let body = is_large.then(|| view.pack(&mut pool));
        let stored = body.map(|body| (body, &pool));
        let streams = self.connections.got(
            self.shard,
            to,
            (queue, u32::MAX, from),
            (delivery, remaining),
            &view,
            stored,
            out,
        );
        if let Some(body) = body.filter(|_| !streams) {
            pool.release(body);
        }
        self.shard.pool = pool;
        if let Some(at) = self.find_channel(to) {
            self.go_on(now, at, out);
        }
    }

    /// A delivery from a queue on another shard.
    pub(crate) fn on_delivery(
        &mut self,
        now: Now,
        from: ShardId,
        mail: &Mail,
        bytes: &[u8],
        out: &mut Outbox,
    ) {
        let Mail::Deliver { to, hint, queue, slot, sequence, redelivered, delivery_count, message } =
            mail
        else {
            invariant!("only a delivery is taken for one")
        };
        let size = u64::from(message.end - message.start);
        let counters = &mut self.shard.counters;
        let found = self.connections.connection(to.connection, *hint);
        let Some((connection_slot, connection)) = found else {
            if *slot != NO_SLOT {
                out.mail[from.index()].items.push(Mail::Settle {
                    queue: *queue,
                    slot: *slot,
                    sequence: *sequence,
                    outcome: Outcome::Return,
                });
            }
            return;
        };
        connection.traffic.count(from);
        let is_ending = connection.end.is_some();
        let mut channel = connection.incarnation(to.channel);
        let mut is_governed = false;
        let tag = channel.as_mut().and_then(|channel| {
            if let Some(global) = &mut channel.global {
                is_governed = true;
                global.granted = global.granted.saturating_sub(1);
            }
            let subscription = channel.subscription(to.consumer)?;
            (channel.ending.is_none() && !is_ending).then(|| subscription.tag.clone())
        });
        let Some(tag) = tag else {
            let (queue, slot, sequence) = (*queue, *slot, *sequence);
            let late = Late { home: from, queue, slot, sequence, bytes: size };
            let ending = channel.filter(|channel| channel.subscription(to.consumer).is_some());
            match ending.and_then(|channel| channel.subscriptions.as_mut()) {
                // Its home does not know yet that the consumer ends, and would send it again.
                Some(subscriptions) => subscriptions.late.push(late),
                None => return_late(to.connection, late, out),
            }
            return;
        };
        match connection.debts.iter_mut().find(|(home, _)| *home == from) {
            Some((_, bytes)) => *bytes += size,
            None => connection.debts.push((from, size)),
        }
        let arrival =
            Arrival { queue: *queue, queue_slot: u32::MAX, home: from, consumer: *to, tag: &tag };
        let delivery = Delivery {
            slot: *slot,
            seq: *sequence,
            redelivered: *redelivered,
            delivery_count: *delivery_count,
        };
        let view = packed(bytes, message.clone());
        // A large one is kept here while the socket takes it.
        let is_large = view.body.len() >= LARGE_BODY_BYTES_MIN;
        let body = is_large.then(|| view.pack(&mut self.shard.pool));
        let stored = body.map(|body| (body, &self.shard.pool));
        let no_ack = *slot == NO_SLOT;
        let streams = deliver(connection, counters, arrival, no_ack, delivery, &view, stored);
        let tracing = &mut self.shard.tracing;
        if tracing.is_on() {
            tap_delivery(tracing, (connection, to.channel), *queue, delivery, &view, out);
        }
        mark_dirty(connection, connection_slot, out);
        if let Some(body) = body.filter(|_| !streams) {
            self.shard.pool.release(body);
        }
        if is_governed && no_ack {
            // Its credit is free again at once.
            let shard = self.shard.id;
            let at = ChannelRef { shard, connection: to.connection, channel: to.channel };
            self.grant_credit(now, connection_slot, at, out);
        }
    }

    /// The server cancels a consumer because its queue is gone.
    pub(crate) fn consumer_cancelled(
        &mut self,
        key: ConsumerKey,
        queue: QueueId,
        out: &mut Outbox,
    ) {
        let Some((slot, connection)) = self.connections.connection(key.connection, u32::MAX) else {
            return race!("the connection closed before it heard that a queue is gone");
        };
        let tells =
            connection.session.understands(Capability::ConsumerCancelled) && !connection.is_silent;
        let Some(channel) = connection.incarnation(key.channel) else {
            return race!("the channel closed before it heard that a queue is gone");
        };
        let Some(subscription) = channel.subscription(key.consumer) else {
            return race!("the consumer was cancelled before it heard that its queue is gone");
        };
        if subscription.queue != queue || subscription.cancelling {
            return;
        }
        let tag = subscription.tag.clone();
        let number = channel.number();
        let silent = channel.ending.is_some();
        if let Some(subscriptions) = &mut channel.subscriptions {
            subscriptions.remove(key.consumer);
        }
        connection.account_channel(key.channel);
        self.connections.recount(self.shard, slot);
        if tells && !silent {
            self.connections.answer(slot, number, &Answer::ConsumerLost(&tag), out);
        }
    }

    /// A home has messages for a consumer under a channel-wide prefetch limit.
    pub(crate) fn credit_wanted(
        &mut self,
        now: Now,
        key: ConsumerKey,
        queue: QueueId,
        home: ShardId,
        out: &mut Outbox,
    ) {
        let shard = self.shard.id;
        let Some((slot, connection)) = self.connections.connection(key.connection, u32::MAX) else {
            return race!("the connection closed before its consumer wanted credit");
        };
        let Some(channel) = connection.incarnation(key.channel) else {
            return race!("the channel closed before its consumer wanted credit");
        };
        let Some(subscription) = channel.subscription(key.consumer) else {
            return race!("the consumer was cancelled before it wanted credit");
        };
        let is_meant = (subscription.queue, subscription.home) == (queue, home);
        if channel.global.is_none() || !is_meant {
            return;
        }
        if let Some(all) = &mut channel.subscriptions {
            all.wait(key.consumer, WaitsFor::Credit);
        }
        let to = ChannelRef { shard, connection: key.connection, channel: key.channel };
        self.grant_credit(now, slot, to, out);
    }

    /// A home had no use for a grant.
    pub(crate) fn credit_returned(&mut self, now: Now, key: ConsumerKey, out: &mut Outbox) {
        let shard = self.shard.id;
        let Some((slot, connection)) = self.connections.connection(key.connection, u32::MAX) else {
            return race!("the connection closed before its credit came back");
        };
        let Some(channel) = connection.incarnation(key.channel) else {
            return race!("the channel closed before its credit came back");
        };
        let Some(global) = &mut channel.global else {
            return race!("the channel's limit was lifted before its credit came back");
        };
        global.granted = global.granted.saturating_sub(1);
        let to = ChannelRef { shard, connection: key.connection, channel: key.channel };
        self.grant_credit(now, slot, to, out);
    }

    /// A direct reply arrives at its channel. False when nobody listens there.
    pub(crate) fn deliver_reply(
        &mut self,
        to: ChannelRef,
        view: &MessageView<'_>,
        out: &mut Outbox,
    ) -> bool {
        let limit = self.shard.limits.unread_bytes_max;
        let Some((slot, connection)) = self.connections.connection(to.connection, u32::MAX) else {
            return race!("the connection closed before the reply came", false);
        };
        if connection.send.backlog() > limit {
            // Replies wait nowhere: who does not read them loses them.
            self.drop_unread_reply(slot, out);
            return false;
        }
        let is_silent = connection.is_silent;
        let Some(channel) = connection.incarnation(to.channel) else {
            return race!("the channel closed before the reply came", false);
        };
        let Some(tag) = channel.reply_consumer.as_ref().filter(|_| !is_silent) else {
            return race!("the consumer of replies was cancelled before the reply came", false);
        };
        channel.last_tag += 1;
        channel.counts.delivered_auto_ack += 1;
        let (tag, delivery_tag) = (tag.clone(), channel.last_tag);
        let shown = for_client(view.properties, 0);
        let delivered = Delivered {
            source: Source::Consumer { tag: &tag, number: delivery_tag, redelivered: false },
            exchange: view.exchange,
            routing_key: view.routing_key,
            properties: shown.as_deref().unwrap_or(view.properties),
            body: view.body,
        };
        connection.session.deliver(to.number(), &delivered, &mut connection.send.bytes);
        connection.unsummed.counts().delivered_auto_ack += 1;
        mark_dirty(connection, slot, out);
        self.shard.counters.delivered_auto_ack += 1;
        self.shard.effort.spend_on_bytes(view.body.len());
        true
    }
}
