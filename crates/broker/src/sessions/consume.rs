//! Consumers begin and end, and single messages are fetched.

use crate::backpressure::Cause;
use crate::channel::unacked::{NO_CONSUMER, Unacked};
use crate::channel::{At, Pending, Subscription, Subscriptions};
use crate::connection::GETS_MAX;
use crate::connections::Connections;
use crate::connections::mark_dirty;
use crate::directory::router::consumer_filter;
use crate::mail::consumer_key;
use crate::mail::{ChannelRef, Command, Mail};
use crate::message::MessageView;
use crate::outbox::Outbox;
use crate::properties::for_client;
use crate::queue::{Consumer, ConsumerFilter, Delivery, NO_SLOT, Outcome};
use crate::refusal::{Refusal, RefusalKind};
use crate::reply_to::REPLY_TO;
use crate::send_buffer::LARGE_BODY_BYTES_MIN;
use crate::session::{Answer, Capability, Consume, Delivered, Source};
use crate::sessions::SessionSide;
use crate::shard::Shard;
use crate::tap::tap_delivery;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use lepus_base::{Body, Pool, QueueId, ShardId};

impl Connections {
    /// A message fetched with `basic.get` arrives at its channel. True when it is large and goes
    /// out from the pool, where `stored` has it: then the connection's send buffer has one reference
    /// that the caller provides.
    pub(crate) fn got(
        &mut self,
        shard: &mut Shard,
        to: ChannelRef,
        (queue, queue_slot, home): (QueueId, u32, ShardId),
        (delivery, remaining): (Delivery, u64),
        view: &MessageView<'_>,
        stored: Option<(Body, &Pool)>,
        out: &mut Outbox,
    ) -> bool {
        let give_back = Mail::Settle {
            queue,
            slot: delivery.slot,
            sequence: delivery.seq,
            outcome: Outcome::Return,
        };
        let own = shard.id;
        let Some((slot, connection)) = self.connection(to.connection, u32::MAX) else {
            invariant!(home != own, "a channel stays while it waits for a message of its shard");
            out.mail[home.index()].items.push(give_back);
            return race!("the connection closed before the message came that it asked for", false);
        };
        connection.get_ended();
        let is_read = connection.end.is_none();
        let Some(channel) = connection.incarnation(to.channel) else {
            invariant!(home != own, "a channel stays while it waits for a message of its shard");
            out.mail[home.index()].items.push(give_back);
            return race!("the channel closed before the message came that it asked for", false);
        };
        channel.pending = None;
        channel.last_tag += 1;
        let tag = channel.last_tag;
        let no_ack = delivery.slot == NO_SLOT;
        if !no_ack {
            channel.unacked.push_fetched(Unacked {
                tag,
                queue,
                queue_slot,
                home,
                consumer: NO_CONSUMER,
                slot: delivery.slot,
                sequence: delivery.seq,
            });
            if channel.unacked.take_resized() {
                connection.account_channel(to.channel);
            }
        }
        let properties = for_client(view.properties, delivery.delivery_count);
        let properties = properties.as_deref().unwrap_or(view.properties);
        let redelivered = delivery.redelivered;
        let delivered = Delivered {
            source: Source::Get { number: tag, redelivered, remaining },
            exchange: view.exchange,
            routing_key: view.routing_key,
            properties,
            body: view.body,
        };
        let bytes = &mut connection.send.bytes;
        let large = stored.filter(|_| is_read && view.body.len() >= LARGE_BODY_BYTES_MIN);
        match large {
            // It would take memory until the connection is gone.
            None if !is_read => {}
            Some((body, pool)) => {
                connection.session.deliver_head(to.number(), &delivered, bytes);
                let next = pool.get(body).len() - view.body.len();
                connection.send.stream(body, next, to.number(), pool);
            }
            None => connection.session.deliver(to.number(), &delivered, bytes),
        }
        if shard.tracing.is_on() {
            let to = (&*connection, to.channel);
            tap_delivery(&mut shard.tracing, to, queue, delivery, view, out);
        }
        let (got, got_no_ack) = (u64::from(!no_ack), u64::from(no_ack));
        shard.counters.redelivered += u64::from(redelivered);
        shard.counters.got_manual_ack += got;
        shard.counters.got_auto_ack += got_no_ack;
        connection.count_messages(to.channel, |counts| {
            counts.redelivered += u64::from(redelivered);
            counts.got_manual_ack += got;
            counts.got_auto_ack += got_no_ack;
        });
        mark_dirty(connection, slot, out);
        if large.is_none() {
            shard.effort.spend_on_bytes(view.body.len());
        }
        self.unpark(slot, to);
        self.resume_unread(shard, slot, out);
        large.is_some()
    }
}

impl SessionSide<'_> {
    /// Whether a consumer of the connection may have a further filter.
    fn check_filters(&self, at: At) -> Result<(), Refusal> {
        let filters_max = self.shard.limits.connection_filters_max;
        if self.connections[at.slot].filtered_consumers() < filters_max {
            return Ok(());
        }
        let text = format!(
            "the consumers of a connection may have {filters_max} filters, which limits.connection_filters_max says"
        );
        Err(Refusal::new(RefusalKind::PreconditionFailed, text))
    }

    pub(crate) fn consume(
        &mut self,
        at: At,
        consume: &Consume<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let name = self.queue_name(at, consume.queue)?;
        let tag: String = if consume.tag.is_empty() {
            self.sessions.names.name("amq.ctag-")
        } else {
            consume.tag.into()
        };
        let hash = self.shard.hash;
        let own = self.shard.id;
        self.make_way(at, &tag, out);
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        let known = channel.subscriptions.as_ref().is_some_and(|s| s.by_tag.contains_key(&*tag))
            || channel.reply_consumer.as_deref() == Some(&*tag);
        if known {
            let text = format!("attempt to reuse consumer tag '{tag}'");
            return Err(Refusal::new(RefusalKind::NotAllowed, text));
        }
        if &*name == REPLY_TO {
            return self.consume_replies(at, consume, tag, out);
        }
        let count = channel.subscriptions.as_ref().map_or(0, |s| s.by_number.len());
        if count >= self.shard.limits.consumers_per_channel_max as usize {
            let text = format!(
                "reached the limit of {} consumers on a channel",
                self.shard.limits.consumers_per_channel_max
            );
            return Err(Refusal::new(RefusalKind::NotAllowed, text));
        }
        let priority = match consume.arguments.get("x-priority") {
            None => 0,
            Some(value) => {
                value.as_integer().and_then(|p| i32::try_from(p).ok()).ok_or_else(|| {
                    let text = "invalid arg 'x-priority': an integer is needed";
                    Refusal::new(RefusalKind::PreconditionFailed, text)
                })?
            }
        };
        let (filter, effort) = consumer_filter(consume.arguments);
        self.shard.effort.spend_on_filter(effort);
        let filter =
            filter?.map(|(filter, format)| Arc::new(ConsumerFilter { filter, format, hash }));
        let mut prefetch = channel.prefetch;
        let governed = channel.global.as_ref().is_some_and(|global| global.limit > 0);
        let (queue, home) = self.readable_queue(at, &name)?;
        if governed && self.directory.queue_by_id(queue).is_some_and(|q| !q.kind.shares_prefetch())
        {
            let text =
                format!("{} does not support global qos", self.directory.describe_queue(queue));
            return Err(Refusal::new(RefusalKind::NotImplemented, text));
        }
        if home != own {
            prefetch = self.shard.limits.prefetch_elsewhere(prefetch);
        }
        if filter.is_some() {
            self.check_filters(at)?;
        }
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        let subscriptions =
            channel.subscriptions.get_or_insert_with(|| Box::new(Subscriptions::new(hash)));
        let at_home = (queue, u32::MAX);
        let mut subscription =
            Subscription::new(tag.as_str().into(), at_home, home, consume.no_ack);
        subscription.is_filtered = filter.is_some();
        let number = subscriptions.insert(subscription);
        if home != own && !governed {
            subscriptions.ungoverned.insert(number);
        }
        let incarnation = channel.key;
        connection.account_channel(incarnation);
        let key = consumer_key(at.channel, incarnation, number);
        let consumer = Consumer {
            key,
            shard: own,
            connection_slot: at.slot,
            channel_number: at.channel.number(),
            tag: tag.into(),
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            passing: connection.session.understands(Capability::WholeTransactions),
            priority,
            filter,
            prefetch,
            in_flight: 0,
        };
        self.set_pending(at, Pending::Consume { consumer: number, name, no_wait: consume.no_wait });
        let command = Command::Subscribe { consumer: Box::new(consumer), governed };
        self.ask_home(at, queue, command, out);
        Ok(())
    }

    /// Consumers of deleted queues that have yet to hear of it keep neither their tags nor their
    /// places from others.
    pub(crate) fn make_way(&mut self, at: At, tag: &str, out: &mut Outbox) {
        let limit = self.shard.limits.consumers_per_channel_max as usize;
        let connection = &mut self.connections[at.slot];
        let channel = connection.incarnation(at.channel.channel);
        let Some(all) = channel.and_then(|channel| channel.subscriptions.as_ref()) else { return };
        let is_full = all.by_number.len() >= limit;
        if all.by_tag.contains_key(tag) {
            self.cancel_orphans(at, Some(tag), out);
        }
        if is_full {
            self.cancel_orphans(at, None, out);
        }
    }

    pub(crate) fn consume_replies(
        &mut self,
        at: At,
        consume: &Consume<'_>,
        tag: String,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        if channel.reply_consumer.is_some() {
            let text = "reply consumer already set";
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        if !consume.no_ack {
            let text = "reply consumer cannot acknowledge";
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        channel.reply_consumer = Some(tag.as_str().into());
        if !consume.no_wait {
            self.say(at, &Answer::Consuming(&tag), out);
        }
        Ok(())
    }

    pub(crate) fn cancel_consumer(&mut self, at: At, tag: &str, no_wait: bool, out: &mut Outbox) {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        let number = channel.subscriptions.as_ref().and_then(|s| s.by_tag.get(tag).copied());
        if number.is_none() {
            if channel.reply_consumer.as_deref() == Some(tag) {
                channel.reply_consumer = None;
            }
            if !no_wait {
                self.say(at, &Answer::Cancelled(tag), out);
            }
            return;
        }
        let Some(number) = number else { return };
        self.set_pending(at, Pending::Cancel { consumer: number, no_wait });
        self.ask_cancel(at, number, out);
    }

    /// Asks a consumer's home to remove it.
    pub(crate) fn ask_cancel(&mut self, at: At, number: u32, out: &mut Outbox) {
        let connection = &mut self.connections[at.slot];
        let Some(subscription) =
            connection.incarnation(at.channel.channel).and_then(|c| c.subscription_mut(number))
        else {
            invariant!("a consumer that is to be cancelled is there")
        };
        subscription.cancelling = true;
        let (queue, handle) = (subscription.queue, subscription.handle);
        let key = consumer_key(at.channel, at.channel.channel, number);
        let command = match handle {
            Some(handle) => Command::Cancel(key, handle),
            None => Command::Barrier,
        };
        self.ask_home(at, queue, command, out);
    }

    /// Fetches one message.
    pub(crate) fn fetch(
        &mut self,
        at: At,
        queue: &str,
        no_ack: bool,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let name = self.queue_name(at, queue)?;
        let (queue, _) = self.readable_queue(at, &name)?;
        if let Some(info) = self.directory.queue_by_id(queue)
            && !info.kind.serves_get(info.settings())
        {
            let text = format!(
                "cannot obtain access to locked {}. basic.get operations are not supported by \
                 quorum queues with single active consumer",
                self.directory.describe_queue(queue)
            );
            return Err(Refusal::new(RefusalKind::Locked, text));
        }
        self.set_pending(at, Pending::Get { name });
        let connection = &mut self.connections[at.slot];
        connection.gets_under_way += 1;
        if connection.gets_under_way >= GETS_MAX && connection.end.is_none() {
            self.connections.pause(self.shard, at.slot, Cause::Unread, out);
        }
        self.ask_home(at, queue, Command::Get { no_ack }, out);
        Ok(())
    }
}
