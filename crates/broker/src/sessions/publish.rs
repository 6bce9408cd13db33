//! From `basic.publish` to the homes: routes, returns, and what becomes a job.

pub(crate) mod check;
pub(crate) mod counts;
pub(crate) mod held;
pub(crate) mod replies;
pub(crate) mod row;

use crate::channel::At;
use crate::channel::Target;
use crate::connections::mark_dirty;
use crate::delayed::Later;
use crate::directory::Message;
use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::journal::Room;
use crate::mail::Receipt;
use crate::message::Incoming;
use crate::outbox::Outbox;
use crate::properties::for_client;
use crate::publish::{Checked, Served, plain_priority};
use crate::publish::{resolve, target_of, view_of};
use crate::refusal::{Refusal, RefusalKind};
use crate::reply_to::is_reply_address;
use crate::routing_keys::RoutingKeys;
use crate::session::{Delivered, Publish, Source};
use crate::sessions::SessionSide;
use crate::sessions::publish::replies::Addressed;
use core::time::Duration;
use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Now, QueueId};

impl SessionSide<'_> {
    /// Keeps a connection on this shard: what it publishes from another one could overtake what
    /// is on its way from here.
    pub(crate) fn pin_to_shard(&mut self, at: At) {
        let own = self.shard.id;
        self.connections[at.slot].note_shard(own);
    }

    pub(crate) fn unroutable(
        &mut self,
        at: At,
        publish: &Publish<'_>,
        properties: &[u8],
        out: &mut Outbox,
    ) {
        self.count_unroutable(at, publish);
        if !publish.mandatory {
            return;
        }
        let shown = for_client(properties, 0);
        let connection = &mut self.connections[at.slot];
        let delivered = Delivered {
            source: Source::Unroutable,
            exchange: publish.exchange.as_bytes(),
            routing_key: publish.routing_key.as_bytes(),
            properties: shown.as_deref().unwrap_or(properties),
            body: publish.body,
        };
        let bytes = &mut connection.send.bytes;
        connection.session.deliver(at.channel.number(), &delivered, bytes);
        mark_dirty(connection, at.slot, out);
    }

    /// One published message, in the order of checks that clients rely on: size (checked before),
    /// write permission, exchange, internal, reply-to, expiration, CC and BCC, topic permission,
    /// user-id, route.
    pub(crate) fn publish(
        &mut self,
        now: Now,
        at: At,
        publish: Publish<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.shard.counters.received += 1;
        self.shard.counters.count_size(publish.body.len());
        if publish.immediate {
            let text = "immediate=true";
            return Err(Refusal::new(RefusalKind::NotImplemented, text));
        }
        let connection = &mut self.connections[at.slot];
        connection.uncounted |= !connection.publishes;
        connection.publishes = true;
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that publishes is there")
        };
        let flags = match publish.properties {
            [high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        };
        let holds = channel.tx.is_some();
        let counted_bytes = channel.counted_bytes;
        if !holds && let Some(mut routes) = channel.routes.take() {
            let version = self.directory.version();
            let known = routes.find(version, publish.exchange, publish.routing_key);
            let plain = known.and_then(|_| plain_priority(PropertiesRef(publish.properties)));
            let served = known.zip(plain).map(|(route, priority)| {
                let checked = Checked::plain(publish.properties, priority);
                let served = self.publish_to(now, at, &publish, &checked, route.targets(), out);
                if served.is_taken() {
                    self.shard.exchanges.count(route.record(), 1, route.targets().len() as u64);
                }
                served
            });
            routes.is_known = served.is_some();
            let published = u64::from(served.is_some_and(Served::is_taken));
            let connection = &mut self.connections[at.slot];
            connection.unsummed.counts().published += published;
            if let Some(channel) = connection.incarnation(at.channel.channel) {
                channel.counts.published += published;
                channel.routes = Some(routes);
                if channel.counted_bytes != counted_bytes {
                    // It was weighed without them.
                    connection.account_channel(at.channel.channel);
                }
            }
            if let Some(served) = served {
                self.apply_backpressure(at.slot, out);
                return served.check(publish.exchange);
            }
        }
        let checked = self.check_publish(at, &publish, flags)?;
        if holds {
            return self.hold_publish(at, &publish, checked, out);
        }
        let (served, _) = self.route_and_publish(now, at, &publish, checked, out);
        self.apply_backpressure(at.slot, out);
        served.check(publish.exchange)
    }

    /// Publishes a checked message. How far it is, and how many queues get it.
    pub(crate) fn route_and_publish(
        &mut self,
        now: Now,
        at: At,
        publish: &Publish<'_>,
        checked: Checked<'_>,
        out: &mut Outbox,
    ) -> (Served, usize) {
        let keys = RoutingKeys { first: publish.routing_key, further: &checked.extra_keys };
        let message = Message {
            exchange: publish.exchange,
            keys,
            properties: PropertiesRef(&checked.properties),
            body: publish.body,
            millis: now.wall_millis,
        };
        let mut replies = Addressed::default();
        let is_traced = self.shard.tracing.is_traced(at.vhost);
        if publish.exchange.is_empty() {
            if keys.further.is_empty() && is_reply_address(keys.first) {
                self.shard.routes.clear();
                if is_traced {
                    self.tap_publish(at, publish, &checked, out);
                }
                let record = self.exchange_record(at, publish.exchange);
                self.publish_reply(at, publish, &checked, out);
                self.count_publish(at, record, Served::Now, 0);
                return (Served::Now, 1);
            }
            replies = self.copy_to_replies(publish, &checked, keys, out);
        }
        if let Some(delay) = checked.delay
            && let Some(info) = self.directory.exchange(at.vhost, publish.exchange)
            && let Some(id) = info.holding
        {
            // Nobody hears of it when it is due.
            if !self.shard.find_routes(self.directory, at.vhost, message) {
                return (Served::TooFar(self.shard.routes.steps_max()), 0);
            }
            if is_traced {
                self.shard.routes.clear();
                self.tap_publish(at, publish, &checked, out);
            }
            let record = self.exchange_record(at, publish.exchange);
            let served = self.publish_later(now, at, publish, &checked, (id, delay), out);
            self.count_publish(at, record, served, 0);
            return (served, 1);
        }
        if !self.shard.find_routes(self.directory, at.vhost, message) {
            return (Served::TooFar(self.shard.routes.steps_max()), 0);
        }
        // What is traced comes by here each time: ways that are remembered know nothing of it.
        let cacheable =
            self.shard.routes.is_cacheable() && checked.extra_keys.is_empty() && !is_traced;
        if is_traced {
            self.tap_publish(at, publish, &checked, out);
        }
        let queues = self.shard.routes.len();
        let record = self.exchange_record(at, publish.exchange);
        if queues > TARGETS_AT_ONCE_MAX {
            self.copy_to_far_replies(at, publish, &checked, &replies, true, out);
            let served = self.publish_to_many(now, at, publish, &checked, out);
            self.count_publish(at, record, served, queues);
            return (served, queues);
        }
        let mut targets = core::mem::take(&mut self.shard.targets);
        targets.clear();
        resolve(&self.shard.routes, &mut targets);
        let is_reached = replies.is_answered || queues > 0;
        self.copy_to_far_replies(at, publish, &checked, &replies, is_reached, out);
        let served = if queues > 0 || !(replies.is_answered || replies.is_asked()) {
            self.publish_to(now, at, publish, &checked, &targets, out)
        } else {
            if replies.is_answered {
                self.account(at);
            }
            Served::Now
        };
        self.count_publish(at, record, served, queues);
        let connection = &mut self.connections[at.slot];
        let may_grow = connection.may_remember_routes();
        if cacheable
            && let Some(record) = record
            && let Some(channel) = connection.incarnation(at.channel.channel)
        {
            let names = (publish.exchange, publish.routing_key);
            let routes = channel.routes.get_or_insert_default();
            routes.learn(self.directory.version(), names, (record, &targets), may_grow);
            connection.account_channel(at.channel.channel);
        }
        self.shard.targets = targets;
        (served, queues)
    }

    /// Publishes a checked message to more queues than get it at once. They are looked for when it is their turn,
    /// and what held them is given back: it may be megabytes.
    pub(crate) fn publish_to_many(
        &mut self,
        now: Now,
        at: At,
        publish: &Publish<'_>,
        checked: &Checked<'_>,
        out: &mut Outbox,
    ) -> Served {
        let list = self.shard.jobs.list_from(self.shard.routes.as_slice().iter().map(target_of));
        self.shard.routes.give_back();
        let served = self.publish_to(now, at, publish, checked, &list, out);
        self.shard.jobs.drop_list(list);
        served
    }

    /// A message that its exchange holds back under an id for so long.
    pub(crate) fn publish_later(
        &mut self,
        now: Now,
        at: At,
        publish: &Publish<'_>,
        checked: &Checked<'_>,
        (id, delay): (QueueId, Duration),
        out: &mut Outbox,
    ) -> Served {
        let view = view_of(publish, &checked.properties);
        let target = Target { queue: id, home: self.shard.id, slot: u32::MAX };
        let mut later = Later { due: now.instant + delay, segments: 0 };
        let mut waits = false;
        if !checked.has_room {
            match self.home().room_for(&Incoming::new(view), checked.persistent, &[target]) {
                Room::Now => {}
                Room::Later(_) => waits = true,
                Room::Never(bytes) => return Served::Never(bytes),
            }
            match self.home().segments_to_hold_back(id, &view, checked.persistent) {
                Ok(segments) => later.segments = segments,
                Err(bytes) => return Served::NeverReleased(bytes),
            }
            waits |= !self.home().takes_long(later.segments);
        }
        let number = self.next_number(at);
        let terms = checked.terms(at.channel, number);
        if waits {
            self.open_number(at, number, 1, Receipt::Taken);
            self.start_fanout(at, &view, terms, &[target], Some(later));
            return Served::Later;
        }
        let held = self.home().delay_one(now, (id, later), &view, &terms, out);
        self.open_number(at, number, held.logs, held.receipt);
        Served::Now
    }

    pub(crate) fn publish_to(
        &mut self,
        now: Now,
        at: At,
        publish: &Publish<'_>,
        checked: &Checked<'_>,
        targets: &[Target],
        out: &mut Outbox,
    ) -> Served {
        if targets.is_empty() {
            self.unroutable(at, publish, &checked.properties, out);
            self.account(at);
            return Served::Now;
        }
        let view = view_of(publish, &checked.properties);
        let mut incoming = Incoming::new(view);
        let mut is_job = false;
        if !checked.has_room {
            let first = &targets[..targets.len().min(TARGETS_AT_ONCE_MAX)];
            is_job = first.len() < targets.len();
            match self.home().room_for(&incoming, checked.persistent, first) {
                Room::Now => {}
                Room::Later(_) => is_job = true,
                Room::Never(bytes) => return Served::Never(bytes),
            }
        }
        self.shard.counters.routed += 1;
        let own = self.shard.id;
        // What is on its way to another shard must not be overtaken by way of a third one.
        let connection = &mut self.connections[at.slot];
        for target in targets {
            connection.count(target.home, own);
        }
        let number = self.next_number(at);
        let terms = checked.terms(at.channel, number);
        if is_job {
            self.pin_to_shard(at);
            self.open_number(at, number, 1, Receipt::Taken);
            self.start_fanout(at, &view, terms, targets, None);
            return Served::Later;
        }
        let routed = self.home().enqueue_all(now, &mut incoming, targets, terms, out);
        incoming.finish(&mut self.shard.pool);
        if routed.remote > 0 {
            self.pin_to_shard(at);
        }
        self.open_number(at, number, routed.remote + routed.logs, routed.receipt);
        Served::Now
    }
}
