//! Where messages are taken that are copied for those who trace: at a publish, and at a delivery.

use alloc::vec::Vec;

use lepus_base::{QueueId, is_same};

use crate::connection::Connection;
use crate::connections::connection_name;
use crate::mail::Mail;
use crate::message::MessageView;
use crate::outbox::Outbox;
use crate::properties::tells_of_death;
use crate::queue::Delivery;
use crate::trace::{Occasion, Party, TRACE_EXCHANGE, Tracing};

/// A message is delivered to a connection's channel, by its incarnation.
#[cold]
#[inline(never)]
pub(crate) fn tap_delivery(
    tracing: &mut Tracing,
    to: (&Connection, u64),
    queue: QueueId,
    delivery: Delivery,
    view: &MessageView<'_>,
    out: &mut Outbox,
) {
    let Delivery { redelivered, delivery_count, .. } = delivery;
    let occasion = Occasion::Delivery { queue, redelivered, count: delivery_count };
    tap(tracing, to, occasion, view, out);
}

/// A message is published on a connection's channel to these queues.
#[cold]
#[inline(never)]
pub(crate) fn tap_publish(
    tracing: &mut Tracing,
    from: (&Connection, u64),
    queues: Vec<QueueId>,
    view: &MessageView<'_>,
    out: &mut Outbox,
) {
    tap(tracing, from, Occasion::Publish { queues }, view, out);
}

fn tap(
    tracing: &mut Tracing,
    (connection, channel): (&Connection, u64),
    occasion: Occasion,
    view: &MessageView<'_>,
    out: &mut Outbox,
) {
    let vhost = connection.vhost;
    if !tracing.is_traced(vhost) || is_copy(view) {
        return;
    }
    let party = Party {
        vhost,
        connection: connection.id,
        channel,
        name: connection_name(connection),
        user: connection.user.clone(),
    };
    if let Some(tapped) = tracing.tap(party, occasion, view) {
        out.own.push(Mail::Tapped(tapped));
    }
}

/// Whether a message is a copy itself, or was one before it died.
fn is_copy(view: &MessageView<'_>) -> bool {
    is_same(view.exchange, TRACE_EXCHANGE.as_bytes())
        || tells_of_death(view.properties, TRACE_EXCHANGE)
}
