//! From `basic.publish` to the queues: checks, routing, enqueueing, returns, confirms.

mod check;
mod held;
mod logged;
mod replies;
mod row;

use alloc::vec::Vec;
use core::time::Duration;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Now, Pool, QueueId, VhostId};
use lepus_store::AppendError;

use replies::Addressed;

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::channel::{At, Target};
use crate::delayed::Later;
use crate::delivery::is_near;
use crate::directory::Routes;
use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::journal::Room;
use crate::mail::{COMMIT_NUMBER, ChannelRef, Receipt, Shortage, Terms};
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::properties::for_client;
use crate::publish::{Checked, Routed, Served, plain_priority};
use crate::queue::Enqueued;
use crate::queue::command;
use crate::refusal::{Refusal, RefusalKind};
use crate::reply_to::is_reply_address;
use crate::router::Route;
use crate::routing_keys::RoutingKeys;
use crate::send_buffer::LARGE_BODY_BYTES_MIN;
use crate::session::{Delivered, Publish, Source};
use crate::sessions::mark_dirty;

impl Broker {
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
        let connection = &mut self.sessions.connections[at.slot as usize];
        connection.uncounted |= !connection.publishes;
        connection.publishes = true;
        let Some(channel) = connection.incarnation(at.channel.channel) else { return Ok(()) };
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
                self.publish_to(now, at, &publish, &checked, route.targets(), out)
            });
            routes.is_known = served.is_some();
            let connection = &mut self.sessions.connections[at.slot as usize];
            if let Some(channel) = connection.incarnation(at.channel.channel) {
                channel.routes = Some(routes);
                if channel.counted_bytes != counted_bytes {
                    // It was weighed without them.
                    connection.weigh_channel(at.channel.channel);
                }
            }
            if let Some(served) = served {
                self.press_back(at.slot, out);
                return served.check(publish.exchange);
            }
        }
        let checked = self.check_publish(at, &publish, flags)?;
        if holds {
            return self.hold_publish(at, &publish, checked, out);
        }
        let (served, _) = self.route_and_publish(now, at, &publish, checked, out);
        self.press_back(at.slot, out);
        served.check(publish.exchange)
    }

    /// Publishes a checked message. How far it is, and how many queues get it.
    fn route_and_publish(
        &mut self,
        now: Now,
        at: At,
        publish: &Publish<'_>,
        checked: Checked<'_>,
        out: &mut Outbox,
    ) -> (Served, usize) {
        let keys = RoutingKeys { first: publish.routing_key, further: &checked.extra_keys };
        let mut replies = Addressed::default();
        if publish.exchange.is_empty() {
            if keys.further.is_empty() && is_reply_address(keys.first) {
                self.publish_reply(at, publish, &checked, out);
                return (Served::Now, 1);
            }
            replies = self.copy_to_replies(publish, &checked, keys, out);
        }
        if let Some(delay) = checked.delay
            && let Some(info) = self.directory.exchange(at.vhost, publish.exchange)
            && let Some(id) = info.holding
        {
            // Nobody hears of it when it is due.
            if !self.find_routes(at.vhost, publish.exchange, keys, &checked.properties) {
                return (Served::TooFar(self.shard.routes.steps_max()), 0);
            }
            return (self.publish_later(now, at, publish, &checked, (id, delay), out), 1);
        }
        if !self.find_routes(at.vhost, publish.exchange, keys, &checked.properties) {
            return (Served::TooFar(self.shard.routes.steps_max()), 0);
        }
        let cacheable = self.shard.routes.is_cacheable() && checked.extra_keys.is_empty();
        let queues = self.shard.routes.len();
        if queues > TARGETS_AT_ONCE_MAX {
            self.copy_to_far_replies(at, publish, &checked, &replies, true, out);
            return (self.publish_to_many(now, at, publish, &checked, out), queues);
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
        let connection = &mut self.sessions.connections[at.slot as usize];
        let may_grow = connection.may_remember_routes();
        if cacheable && let Some(channel) = connection.incarnation(at.channel.channel) {
            let names = (publish.exchange, publish.routing_key);
            let routes = channel.routes.get_or_insert_default();
            routes.learn(self.directory.version(), names, &targets, may_grow);
            connection.weigh_channel(at.channel.channel);
        }
        self.shard.targets = targets;
        (served, queues)
    }

    /// Publishes a checked message to more queues than get it at once. They are looked for when it is their turn,
    /// and what held them is given back: it may be megabytes.
    fn publish_to_many(
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

    /// Finds the queues that a message reaches. An exchange that vanished since it was checked
    /// reaches none. False where the way to them is too long.
    pub(crate) fn find_routes(
        &mut self,
        vhost: VhostId,
        exchange: &str,
        keys: RoutingKeys<'_>,
        properties: &[u8],
    ) -> bool {
        self.shard.routes.clear();
        let properties = PropertiesRef(properties);
        let (routes, rng) = (&mut self.shard.routes, &mut self.shard.rng);
        let _ = self.directory.route(vhost, exchange, keys, properties, rng, routes);
        self.shard.effort.spend(routes.steps());
        !routes.are_too_far()
    }

    /// A message that its exchange holds back under an id for so long.
    fn publish_later(
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
            match self.room_for(&Incoming::new(view), checked.persistent, &[target]) {
                Room::Now => {}
                Room::Later(_) => waits = true,
                Room::Never(bytes) => return Served::Never(bytes),
            }
            match self.segments_to_hold_back(id, &view, checked.persistent) {
                Ok(segments) => later.segments = segments,
                Err(bytes) => return Served::NeverReleased(bytes),
            }
            waits |= !self.homes.delayed.takes_long(later.segments, &mut self.journal);
        }
        let number = self.next_number(at);
        let terms = checked.terms(at.channel, number);
        if waits {
            self.open_number(at, number, 1, Receipt::Taken);
            self.start_fanout(at, &view, terms, &[target], Some(later));
            return Served::Later;
        }
        let held = self.delay_one(now, (id, later), &view, &terms, out);
        self.open_number(at, number, held.logs, held.receipt);
        Served::Now
    }

    /// Has a delayed exchange hold a message back.
    pub(crate) fn delay_one(
        &mut self,
        now: Now,
        (id, later): (QueueId, Later),
        view: &MessageView<'_>,
        terms: &Terms,
        out: &mut Outbox,
    ) -> Routed {
        // While the logs close nobody waits.
        let held = match self.homes.delayed.takes_long(later.segments, &mut self.journal) {
            true => self.delay(now, id, later, view, terms.persistent, out),
            false => Err(AppendError::Full),
        };
        let Ok(log) = held else {
            self.shard.counters.unlogged += 1;
            return Routed { receipt: Receipt::Unlogged, ..Routed::default() };
        };
        let Some((log, (to, number))) = log.zip(terms.confirm()) else { return Routed::default() };
        self.journal.report_when_durable(log, to, number);
        Routed { logs: 1, ..Routed::default() }
    }

    fn publish_to(
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
            match self.room_for(&incoming, checked.persistent, first) {
                Room::Now => {}
                Room::Later(_) => is_job = true,
                Room::Never(bytes) => return Served::Never(bytes),
            }
        }
        self.shard.counters.routed += 1;
        let own = self.shard.id;
        // What is on its way to another shard must not be overtaken by way of a third one.
        let connection = &mut self.sessions.connections[at.slot as usize];
        for target in targets {
            connection.count(target.home, own);
        }
        let number = self.next_number(at);
        let terms = checked.terms(at.channel, number);
        if is_job {
            self.tie(at);
            self.open_number(at, number, 1, Receipt::Taken);
            self.start_fanout(at, &view, terms, targets, None);
            return Served::Later;
        }
        let routed = self.enqueue_all(now, &mut incoming, targets, terms, out);
        incoming.finish(&mut self.shard.pool);
        if routed.remote > 0 {
            self.tie(at);
        }
        self.open_number(at, number, routed.remote + routed.logs, routed.receipt);
        Served::Now
    }

    /// Keeps a connection on this shard: what it publishes from another one could overtake what
    /// is on its way from here.
    fn tie(&mut self, at: At) {
        let own = self.shard.id;
        self.sessions.connections[at.slot as usize].touch(own);
    }

    /// Puts a message into queues near and far. For those on their way to another shard it waits,
    /// and they report as those on other shards do.
    pub(crate) fn enqueue_all(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        out: &mut Outbox,
    ) -> Routed {
        if self.homes.migrations.is_idle() {
            return self.enqueue_here(now, incoming, targets, terms, out);
        }
        let others = self.set_aside(incoming, targets, terms, |_| true);
        let aside = (targets.len() - others.len()) as u32;
        let is_aside = |target: &&Target| self.homes.migrations.rests(target.queue).is_some();
        for target in targets.iter().filter(is_aside) {
            let counters = &mut self.shard.counters;
            if target.home == self.shard.id {
                counters.enqueued_local += 1;
            } else {
                counters.enqueued_remote += 1;
                counters.enqueued_near += u64::from(is_near(&self.shard.near, target.home));
            }
        }
        let routed = self.enqueue_here(now, incoming, &others, terms, out);
        Routed { remote: routed.remote + aside, ..routed }
    }

    /// Puts a message into queues near and far, none of which is on its way.
    pub(crate) fn enqueue_here(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        out: &mut Outbox,
    ) -> Routed {
        incoming.persistent = terms.persistent;
        incoming.priority = terms.priority;
        incoming.expiration = terms.expiration;
        if targets.len() > 1 {
            self.shard.effort.spend_on_queues(targets.len());
            let bytes = incoming.bytes() as usize;
            if bytes < LARGE_BODY_BYTES_MIN {
                // Consumers may wait at all of them.
                self.shard.effort.spend_on_bytes(targets.len() * bytes);
            }
        }
        let own = self.shard.id;
        let mut remote = 0;
        // One copy for each shard.
        self.homes.packed.clear();
        let mut last_local = None;
        for (place, target) in targets.iter().enumerate() {
            if target.home == own {
                last_local = Some(place);
                continue;
            }
            remote += 1;
            self.shard.counters.enqueued_remote += 1;
            self.shard.counters.enqueued_near += u64::from(is_near(&self.shard.near, target.home));
            let batch = &mut out.mail[target.home.index()];
            let message = match self.homes.packed.iter().find(|(shard, _)| *shard == target.home) {
                Some((_, range)) => range.clone(),
                None => {
                    let range = append(incoming, &self.shard.pool, &mut batch.bytes);
                    self.homes.packed.push((target.home, range.clone()));
                    range
                }
            };
            batch.items.push(terms.mail(target.queue, message));
        }
        let Some(last) = last_local else { return Routed { remote, ..Routed::default() } };
        if terms.persistent && self.journal.is_on() {
            let routed = self.enqueue_logged(now, incoming, targets, terms.confirm(), out);
            return Routed { remote, ..routed };
        }
        let mut receipt = Receipt::Taken;
        for (place, target) in targets.iter().enumerate() {
            if target.home != own {
                continue;
            }
            incoming.last = place == last;
            receipt = receipt.max(self.enqueue(now, target, incoming, out));
        }
        Routed { remote, logs: 0, receipt }
    }

    /// Puts a message that is not logged into one queue of this shard.
    pub(crate) fn enqueue(
        &mut self,
        now: Now,
        target: &Target,
        incoming: &mut Incoming<'_>,
        out: &mut Outbox,
    ) -> Receipt {
        let Some(slot) = self.home_slot(target.queue, target.slot) else { return Receipt::Taken };
        self.shard.counters.enqueued_local += 1;
        let enqueued = self.with_queue(now, slot, out, |queue, sink| {
            queue.apply(now, command::Publish { incoming }, sink)
        });
        self.pump(now, slot, out);
        match enqueued {
            Enqueued::Accepted => Receipt::Taken,
            Enqueued::Rejected => Receipt::Refused,
        }
    }

    fn unroutable(&mut self, at: At, publish: &Publish<'_>, properties: &[u8], out: &mut Outbox) {
        if !publish.mandatory {
            self.shard.counters.unroutable_dropped += 1;
            return;
        }
        self.shard.counters.unroutable_returned += 1;
        let shown = for_client(properties, 0);
        let connection = &mut self.sessions.connections[at.slot as usize];
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

    /// Takes the next publish number of a channel that confirms; a commit has one for all.
    fn next_number(&mut self, at: At) -> Option<u64> {
        let connection = &mut self.sessions.connections[at.slot as usize];
        let channel = connection.incarnation(at.channel.channel)?;
        if channel.committing.is_some() {
            return Some(COMMIT_NUMBER);
        }
        Some(channel.confirms.as_mut()?.take_number())
    }

    /// A publish that needs a number and waits for nobody.
    fn account(&mut self, at: At) {
        let number = self.next_number(at);
        self.open_number(at, number, 0, Receipt::Taken);
    }

    fn open_number(&mut self, at: At, number: Option<u64>, missing: u32, receipt: Receipt) {
        let Some(number) = number else { return };
        let slot = at.slot;
        let connection = &mut self.sessions.connections[slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        if let Some(committing) = &mut channel.committing {
            committing.expect(number, missing);
            committing.report(number, number, 0, receipt);
            return;
        }
        let Some(confirms) = &mut channel.confirms else { return };
        self.shard.counters.received_confirm += 1;
        confirms.open(number, missing, receipt);
        if !confirms.listed {
            confirms.listed = true;
            self.sessions.follow_ups.confirm(slot, channel.key);
        }
    }

    /// Slows a publisher down when its shard's memory or a mail batch is full.
    fn press_back(&mut self, slot: u32, out: &mut Outbox) {
        let is_over = self.shard.memory() > self.shard.loan.bytes;
        let is_full = is_over && !self.waits_for_loan(slot, out);
        if is_full {
            self.shard.backpressure.note_memory_full();
            self.sessions.block(&mut self.shard, slot, Shortage::Memory, out);
        } else if self.journal.is_short() {
            self.sessions.block(&mut self.shard, slot, Shortage::Disk, out);
        } else if self.shard.backpressure.is_short_elsewhere()
            && let Some(shortage) = self.feeds_short_shard(slot)
        {
            self.sessions.block(&mut self.shard, slot, shortage, out);
        }
        if self.journal.is_behind() || self.sessions.feeds_lagging_shard(&self.shard, slot) {
            self.sessions.pause(&mut self.shard, slot, Cause::Log, out);
        }
        self.press_mail(slot, out);
    }

    /// What a shard is short of to which a connection has published.
    fn feeds_short_shard(&self, slot: u32) -> Option<Shortage> {
        let touched = &self.sessions.connections.get(slot as usize)?.touched;
        self.shard.backpressure.shortage_among(touched)
    }

    /// Queues on other shards, the last slice of a fan-out, or a log report publishes.
    pub(crate) fn publish_reported(
        &mut self,
        to: ChannelRef,
        (first, last): (u64, u64),
        queues: u32,
        receipt: Receipt,
    ) {
        let Some((slot, connection)) = self.sessions.connection(to.connection, u32::MAX) else {
            return;
        };
        let Some(channel) = connection.incarnation(to.channel) else { return };
        if let Some(committing) = &mut channel.committing {
            committing.report(first, last, queues, receipt);
        } else if let Some(confirms) = &mut channel.confirms {
            confirms.report(first, last, queues, receipt);
            if confirms.listed {
                return;
            }
            confirms.listed = true;
        } else {
            return;
        }
        let key = channel.key;
        self.sessions.follow_ups.confirm(slot, key);
    }
}

/// Adds the queues at the ends of `routes` to the `targets`.
#[inline]
pub(super) fn resolve(routes: &Routes, targets: &mut Vec<Target>) {
    targets.extend(routes.as_slice().iter().map(target_of));
}

fn target_of(route: &Route) -> Target {
    Target { queue: route.queue, home: route.home, slot: route.slot }
}

/// The view of a publish with possibly rewritten properties.
fn view_of<'a>(publish: &Publish<'a>, properties: &'a [u8]) -> MessageView<'a> {
    MessageView {
        exchange: publish.exchange.as_bytes(),
        routing_key: publish.routing_key.as_bytes(),
        properties,
        body: publish.body,
        wire: None,
    }
}

/// Appends a message in its packed form.
fn append(incoming: &Incoming<'_>, pool: &Pool, out: &mut Vec<u8>) -> core::ops::Range<u32> {
    if let Some(view) = incoming.view() {
        return view.append_packed(out);
    }
    let start = out.len() as u32;
    if let Some(body) = incoming.stored() {
        out.extend_from_slice(pool.get(body));
    }
    start..out.len() as u32
}
