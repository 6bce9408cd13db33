//! Publishes in a row that go the way of the one before: what their method frame says is known, so
//! that channel, route and queue are looked up once for all of them.
//!
//! Whatever is not as plain as that ends the row and goes the general way, which behaves the same.

use crate::channel::Target;
use crate::outbox::Outbox;
use crate::session::Publish;
use crate::session::amqp::Repeats;
use crate::sessions::SessionSide;
use lepus_amqp::properties::PropertiesRef;
use lepus_base::Now;

impl SessionSide<'_> {
    /// Remembers the frame of a publish that went the way its channel remembers. `bytes` begin with
    /// it. What is to be logged goes in no row, and those behind it are not tried as one.
    pub(crate) fn learn_publish(&mut self, slot: u32, bytes: &[u8], publish: &Publish<'_>) {
        let is_exact = |(_, frame): &(u16, &[u8])| Repeats::ends_with_arguments(frame);
        let found = Repeats::publish_frame(bytes).filter(is_exact);
        let Some((number, frame)) = found else { return };
        let is_logged = self.journal.is_on() && PropertiesRef(publish.properties).is_persistent();
        let Some(connection) = self.connections.get_mut(slot) else {
            invariant!("bytes come from a connection that is there")
        };
        let Some(channel) = connection.channel_mut(number) else {
            return race!("the channel closed over the publish");
        };
        let Some(routes) = &mut channel.routes else { return };
        routes.may_be_row = routes.is_known && !is_logged;
        if !routes.may_be_row {
            return;
        }
        let names = (publish.exchange, publish.routing_key);
        if !publish.immediate && routes.learn_frame(self.directory.version(), names, frame) {
            let key = channel.key;
            connection.account_channel(key);
        }
    }

    /// Takes the publishes at the start of `bytes` that go the way of the channel's last one to a
    /// queue of this shard. Returns the bytes they took.
    pub(crate) fn publish_row(
        &mut self,
        now: Now,
        slot: u32,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> usize {
        let Some((number, frame)) = Repeats::publish_frame(bytes) else { return 0 };
        if !self.homes.is_none_moving() || self.shard.is_short_of_anything(self.journal) {
            return 0;
        }
        let Some(connection) = self.connections.get_mut(slot) else {
            invariant!("bytes come from a connection that is there")
        };
        if !connection.publishes || connection.blocked || connection.end.is_some() {
            return 0;
        }
        let channel = connection.channels.get_mut(number);
        let Some(channel) = channel.filter(|channel| channel.is_plain()) else { return 0 };
        let Some(routes) = channel.routes.as_ref().filter(|routes| routes.may_be_row) else {
            return 0;
        };
        let Some(names) = Repeats::publish_names(frame) else { return 0 };
        let version = self.directory.version();
        let Some(place) = routes.find_frame(version, names, frame) else { return 0 };
        let &[target] = routes.at(place).targets() else { return 0 };
        if target.home != self.shard.id {
            return 0;
        }
        let repeats = connection.session.amqp().and_then(|amqp| amqp.repeats(now.instant, number));
        let Some(repeats) = repeats else { return 0 };
        let Some(home) = self.homes.slot_of(target.queue, target.slot) else {
            return race!("the queue left before the publish came", 0);
        };
        // Out of the way while queues reach for connections.
        let connection = &mut self.connections[slot];
        let Some(channel) = connection.channel_mut(number) else {
            invariant!("a channel that was just found is there")
        };
        let (key, counted_bytes) = (channel.key, channel.counted_bytes);
        let Some(routes) = channel.routes.take() else {
            invariant!("routes that were just found are there")
        };
        let mut confirms = channel.confirms.take();
        let target = Target { slot: home, ..target };
        let route = routes.at(place);
        let row =
            self.home().enqueue_row(now, slot, repeats, bytes, route, target, &mut confirms, out);
        let mut begins_confirming = false;
        if let Some(confirms) = &mut confirms
            && row.count > 0
        {
            begins_confirming = !confirms.listed;
            confirms.listed = true;
            self.shard.counters.received_confirm += row.count;
        }
        let connection = &mut self.connections[slot];
        connection.traffic.here += row.count;
        connection.unsummed.counts().published += row.count;
        let Some(channel) = connection.channel_mut(number) else {
            invariant!("a channel stays while a row comes")
        };
        channel.counts.published += row.count;
        channel.routes = Some(routes);
        channel.confirms = confirms;
        if channel.counted_bytes != counted_bytes {
            // It was weighed without them.
            connection.account_channel(key);
        }
        if begins_confirming {
            self.connections.follow_ups().confirm(slot, key);
        }
        if row.count > 0 {
            self.apply_backpressure(slot, out);
        }
        row.consumed
    }
}
