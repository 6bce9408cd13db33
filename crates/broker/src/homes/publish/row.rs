//! Publishes in a row that go the way of the one before: what their method frame says is known, so
//! that channel, route and queue are looked up once for all of them.
//!
//! Whatever is not as plain as that ends the row and goes the general way, which behaves the same.

use alloc::boxed::Box;

use crate::session::amqp::{Repeats, as_it_came};
use lepus_amqp::properties::PropertiesRef;
use lepus_base::Now;

use crate::channel::Target;
use crate::channel::confirm::Confirms;
use crate::channel::routes::Route;
use crate::delivery::{QueuePort, RowSink};
use crate::homes::HomeSide;
use crate::mail::Receipt;
use crate::message::{Incoming, Layout, MessageView};
use crate::outbox::Outbox;
use crate::publish::plain_priority;
use crate::queue::Enqueued;
use crate::queue::command;

/// What a row of publishes left.
#[derive(Default)]
pub(crate) struct Row {
    /// Bytes taken.
    pub consumed: usize,
    /// Messages taken.
    pub count: u64,
}

impl HomeSide<'_> {
    /// Puts publishes into a queue of this shard until one of them, or what it caused, needs more
    /// than that. The queue delivers then what it may.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn enqueue_row(
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
        let memory_max = self.shard.loan.limit;
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
                layout: Layout::Wire(wire),
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
            let QueuePort { shard, connections, out, .. } = &mut row_sink.sink;
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
                || connections.must_hold_back(shard, slot, out)
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
        self.shard.exchanges.count(route.record(), row.count, row.count);
        if row.count > 0 {
            self.dispatch_ready(now, target.slot, out);
        }
        row
    }
}
