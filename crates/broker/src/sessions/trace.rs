//! Copies of messages go to the exchange for those who trace.

use lepus_amqp::properties::PropertiesRef;
use lepus_base::Now;

use crate::channel::At;
use crate::directory::Message;
use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::mail::{ChannelRef, Terms};
use crate::message::{Incoming, Layout, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::publish::{Checked, resolve, view_of};
use crate::routing_keys::RoutingKeys;
use crate::session::Publish;
use crate::sessions::SessionSide;
use crate::tap::tap_publish;
use crate::trace::{TRACE_EXCHANGE, Tapped};

/// Queues that the copy of a publish can tell of: names of more would not fit into its headers.
const TOLD_QUEUES_MAX: usize = 11 << 10;

impl SessionSide<'_> {
    /// A message is published that goes the way that was found last.
    #[cold]
    pub(crate) fn tap_publish(
        &mut self,
        at: At,
        publish: &Publish<'_>,
        checked: &Checked<'_>,
        out: &mut Outbox,
    ) {
        let routes = self.shard.routes.as_slice().iter().take(TOLD_QUEUES_MAX);
        let queues = routes.map(|route| route.queue).collect();
        let view = view_of(publish, &checked.properties);
        let from = (&self.connections[at.slot], at.channel.channel);
        tap_publish(&mut self.shard.tracing, from, queues, &view, out);
    }

    /// A copy goes to the queues that want it, as any message does, but that nobody hears what became of it. Publishers
    /// wait for what is short where their copies go; deliveries do not, and what finds no room is lost.
    pub(crate) fn publish_copy(&mut self, now: Now, tapped: &Tapped, out: &mut Outbox) {
        self.shard.tracing.take(tapped);
        let (vhost, connection) = (tapped.party.vhost, tapped.party.connection);
        let from = ChannelRef { shard: self.shard.id, connection, channel: tapped.party.channel };
        let settings = &self.shard.settings;
        let copy = tapped.copy(self.directory, &settings.node, settings.server.frame_max);
        let Some(copy) = copy else {
            return race!("the queue was deleted before its delivery came");
        };
        let keys = RoutingKeys { first: &copy.routing_key, further: &[] };
        let message = Message {
            exchange: TRACE_EXCHANGE,
            keys,
            properties: PropertiesRef(&copy.properties),
            body: copy.body,
            millis: now.wall_millis,
        };
        let (routes, rng) = (&mut self.shard.routes, &mut self.shard.rng);
        routes.clear();
        // The exchange is internal; each virtual host has it.
        self.directory.route_dead_letter(vhost, message, rng, routes);
        self.shard.effort.spend(routes.steps());
        self.shard.note_filters(TRACE_EXCHANGE);
        if self.shard.routes.are_too_far() {
            return self.shard.tell_too_far(now, TRACE_EXCHANGE, out);
        }
        let routes = self.shard.routes.as_slice();
        if routes.is_empty() {
            return;
        }
        let own = self.shard.id;
        let backpressure = &self.shard.backpressure;
        let is_short = tapped.is_delivery()
            && (backpressure.is_memory_short()
                || !self.shard.conditions(self.journal, out).may_pass_on()
                || routes.iter().any(|route| backpressure.shortage_among(&[route.home]).is_some()));
        if is_short || routes.len() > TARGETS_AT_ONCE_MAX {
            self.shard.tracing.lose();
            return self.tell_lost_copies(now, out);
        }
        let mut targets = core::mem::take(&mut self.shard.targets);
        targets.clear();
        resolve(&self.shard.routes, &mut targets);
        if let Some((_, connection)) = self.connections.connection(connection, u32::MAX)
            && !tapped.is_delivery()
        {
            let far = targets.iter().filter(|target| target.home != own);
            far.for_each(|target| connection.note_shard(target.home));
        }
        self.shard.effort.spend_on_queues(1);
        self.shard.effort.spend_on_bytes(copy.body.len());
        let view = MessageView {
            exchange: TRACE_EXCHANGE.as_bytes(),
            routing_key: copy.routing_key.as_bytes(),
            properties: &copy.properties,
            body: copy.body,
            layout: Layout::Parts,
        };
        let mut incoming = Incoming::new(view);
        let terms = Terms { persistent: false, priority: 0, expiration: None, from, number: None };
        self.home().enqueue_all(now, &mut incoming, &targets, terms, out);
        incoming.finish(&mut self.shard.pool);
        self.shard.targets = targets;
        self.tell_lost_copies(now, out);
    }

    fn tell_lost_copies(&mut self, now: Now, out: &mut Outbox) {
        if let Some(text) = self.shard.tracing.take_lost(now) {
            out.log(Severity::Warning, "trace-copies-dropped", text);
        }
    }
}
