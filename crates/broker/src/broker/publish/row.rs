//! Publishes in a row that go the way of the one before: what their method frame says is known, so
//! that channel, route and queue are looked up once for all of them.
//!
//! Whatever is not as plain as that ends the row and goes the general way, which behaves the same.

use alloc::boxed::Box;

use crate::session::amqp::{Repeats, as_it_came};
use lepus_amqp::properties::PropertiesRef;
use lepus_base::Now;

use crate::broker::Broker;
use crate::channel::Target;
use crate::channel::confirm::Confirms;
use crate::channel::routes::Route;
use crate::delivery::{QueueSink, RowSink};
use crate::mail::Receipt;
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::plain_priority;
use crate::queue::Enqueued;
use crate::queue::command;
use crate::session::Publish;

/// What a row of publishes left.
#[derive(Default)]
struct Row {
    /// Bytes taken.
    consumed: usize,
    /// Messages taken.
    count: u64,
}

impl Broker {
    /// Remembers the frame of a publish that went the way its channel remembers. `bytes` begin with
    /// it. What is to be logged goes in no row, and those behind it are not tried as one.
    pub(crate) fn learn_publish(&mut self, slot: u32, bytes: &[u8], publish: &Publish<'_>) {
        let Some((number, frame)) = Repeats::publish_frame(bytes) else { return };
        let is_logged = self.journal.is_on() && PropertiesRef(publish.properties).is_persistent();
        let Some(connection) = self.sessions.connections.get_mut(slot as usize) else { return };
        let Some(channel) = connection.channel_mut(number) else { return };
        let Some(routes) = &mut channel.routes else { return };
        routes.may_be_row = routes.is_known && !is_logged;
        if !routes.may_be_row {
            return;
        }
        let names = (publish.exchange, publish.routing_key);
        if !publish.immediate && routes.learn_frame(self.directory.version(), names, frame) {
            let key = channel.key;
            connection.weigh_channel(key);
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
        if !self.homes.migrations.is_idle() || self.is_short_of_anything() {
            return 0;
        }
        let Some(connection) = self.sessions.connections.get_mut(slot as usize) else { return 0 };
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
        let known = routes.find_frame(version, names, frame);
        let Some(&[target]) = known.map(Route::targets) else { return 0 };
        if target.home != self.shard.id {
            return 0;
        }
        let repeats = connection.session.amqp().and_then(|amqp| amqp.repeats(now.instant, number));
        let Some(repeats) = repeats else { return 0 };
        let Some(home) = self.home_slot(target.queue, target.slot) else { return 0 };
        // Out of the way while queues reach for connections.
        let connection = &mut self.sessions.connections[slot as usize];
        let Some(channel) = connection.channel_mut(number) else { return 0 };
        let (key, counted_bytes) = (channel.key, channel.counted_bytes);
        let Some(routes) = channel.routes.take() else { return 0 };
        let mut confirms = channel.confirms.take();
        let target = Target { slot: home, ..target };
        let route = routes.find_frame(version, names, frame).expect("it was found before");
        let row = self.enqueue_row(now, slot, repeats, bytes, route, target, &mut confirms, out);
        let mut begins_confirming = false;
        if let Some(confirms) = &mut confirms
            && row.count > 0
        {
            begins_confirming = !confirms.listed;
            confirms.listed = true;
            self.shard.counters.received_confirm += row.count;
        }
        let connection = &mut self.sessions.connections[slot as usize];
        connection.traffic.here += row.count;
        if let Some(channel) = connection.channel_mut(number) {
            channel.routes = Some(routes);
            channel.confirms = confirms;
            if channel.counted_bytes != counted_bytes {
                // It was weighed without them.
                connection.weigh_channel(key);
            }
        }
        if begins_confirming {
            self.sessions.follow_ups.confirm(slot, key);
        }
        if row.count > 0 {
            self.pump(now, home, out);
            self.press_back(slot, out);
        }
        row.consumed
    }

    /// Whether publishers are held back for something that no publish of a row changes.
    fn is_short_of_anything(&self) -> bool {
        self.journal.is_short()
            || self.journal.is_behind()
            || self.shard.backpressure.is_short_elsewhere()
    }

    /// Puts publishes into a queue of this shard until one of them, or what it caused, needs more
    /// than that.
    #[allow(clippy::too_many_arguments)]
    fn enqueue_row(
        &mut self,
        now: Now,
        slot: u32,
        repeats: Repeats,
        bytes: &[u8],
        route: &Route,
        target: Target,
        confirms: &mut Option<Box<Confirms>>,
        out: &mut Outbox,
    ) -> Row {
        let mut row = Row::default();
        let mut known: &[u8] = &[];
        let (mut persistent, mut priority) = (false, 0);
        let memory_max = self.shard.loan.bytes;
        let is_logging = self.journal.is_on();
        let mut noted = core::mem::take(&mut self.homes.noted);
        let (queue, sink) = self.queue_and_sink(now, target.slot, out);
        let mut row_sink = RowSink::new(sink, queue.consumer_count(), bytes, &mut noted);
        let (exchange, routing_key) = route.names();
        while let Some(next) = repeats.publish(route.frame(), &bytes[row.consumed..]) {
            if next.properties != known {
                let properties = PropertiesRef(next.properties);
                persistent = properties.is_persistent();
                if (persistent && is_logging) || properties.validate().is_err() {
                    break;
                }
                let Some(plain) = plain_priority(properties) else { break };
                (known, priority) = (next.properties, plain);
            }
            let wire = as_it_came(next.wire);
            let view = MessageView {
                exchange: exchange.as_bytes(),
                routing_key: routing_key.as_bytes(),
                properties: next.properties,
                body: next.body,
                wire: Some(wire),
            };
            let mut incoming = Incoming::new(view);
            incoming.persistent = persistent;
            incoming.priority = priority;
            incoming.last = true;
            // The first may be the only one: nothing is gained by noting it.
            let enqueued = if row.count == 0 {
                queue.apply(now, command::Publish { incoming: &mut incoming }, &mut row_sink.sink)
            } else {
                row_sink.begin(&wire, row.consumed + next.consumed);
                queue.apply(now, command::Publish { incoming: &mut incoming }, &mut row_sink)
            };
            let QueueSink { shard, sessions, out, .. } = &mut row_sink.sink;
            incoming.finish(&mut shard.pool);
            shard.counters.count_size(next.body.len());
            row.consumed += next.consumed;
            row.count += 1;
            if let Some(confirms) = confirms {
                let number = confirms.take_number();
                if enqueued == Enqueued::Rejected {
                    confirms.open(number, 0, Receipt::Refused);
                }
            }
            if queue.wants_dispatch()
                || shard.memory() > memory_max
                || sessions.must_press(shard, slot, out)
            {
                break;
            }
        }
        row_sink.flush();
        self.homes.noted = noted;
        let counters = &mut self.shard.counters;
        counters.received += row.count;
        counters.routed += row.count;
        counters.enqueued_local += row.count;
        row
    }
}
