//! A message of a queue goes to one of its consumers.

use lepus_base::Position;

use super::Sink;
use super::aside::Key;
use super::consumers::Consumers;
use super::messages::{Handing, Messages};
use crate::entry::{Content, Delivery, Entry, NO_SLOT, Place, Sent, Ticket};
use crate::message::{COPIED_BYTES_MAX, Incoming, LARGE_BODY_BYTES_MIN};

/// What has to do with a delivery.
#[derive(Debug)]
pub(super) struct Delivering<'q> {
    pub(super) consumers: &'q mut Consumers,
    pub(super) messages: &'q mut Messages,
    /// Whether deliveries tell how often the message came back.
    pub(super) counts: bool,
}

/// What came of a step of a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    /// Others can go on.
    Done,
    /// The queue has to wait for something to be read; or what it has more is for its work alone.
    Waits { has_more: bool },
    /// It came to a message that it matches and that has no time left.
    Expired(Key),
}

impl Delivering<'_> {
    /// Delivers a new message, past the ready ones of which there are none. `position` says where it is in the log, if
    /// the log took it.
    #[inline]
    pub(super) fn hand_over(
        self,
        slot: u32,
        incoming: &mut Incoming<'_>,
        ticket: Ticket,
        position: Option<Position>,
        sink: &mut impl Sink,
    ) {
        let Delivering { consumers, messages, .. } = self;
        let (handle, consumer) = consumers.at(slot);
        let mut delivery =
            Delivery { slot: NO_SLOT, seq: ticket.seq, redelivered: false, delivery_count: 0 };
        // A large body is sent from where it is stored.
        let mut is_large = incoming.bytes() as usize >= LARGE_BODY_BYTES_MIN;
        let mut stored = incoming.stored();
        let mut kept = None;
        if !consumer.no_ack {
            let place = match position {
                Some(position) => Place::logged(position, false),
                None => {
                    let body = incoming.keep(sink.pool());
                    stored = Some(body);
                    Place::pooled(body)
                }
            };
            delivery.slot = messages.unacked.insert(ticket.entry(place, incoming.bytes()), handle);
        }
        if is_large && stored.is_none() {
            // One that nobody else gets is copied, unless it is very large: no more than was received.
            if incoming.last && (incoming.bytes() as usize) < COPIED_BYTES_MAX {
                is_large = false;
            } else {
                kept = Some(incoming.keep(sink.pool()));
                stored = kept;
            }
        }
        // Only what has to be read first can be late or lost.
        let _ = match (incoming.view(), stored) {
            (Some(view), _) if !is_large => {
                sink.deliver(consumer, delivery, Content::Incoming(view))
            }
            (_, Some(body)) => sink.deliver(consumer, delivery, Content::Stored(body)),
            _ => invariant!("a message lies in what came in, or in memory"),
        };
        if let Some(body) = kept {
            sink.pool().release(body);
        }
        let is_done = consumer.no_ack;
        consumers.delivered(slot);
        messages.count_handed_out(Handing::Delivered(is_done), false);
        if is_done && let Some(position) = position {
            let place = Place::logged(position, false);
            messages.release(ticket.entry(place, incoming.bytes()), sink);
        }
    }

    /// Delivers the head, which is known.
    #[inline]
    pub(super) fn give_head(self, slot: u32, sink: &mut impl Sink) -> Sent {
        let Delivering { consumers, messages, counts } = self;
        let Some(head) = messages.ready.head() else {
            invariant!("the head that is delivered was looked at before")
        };
        let (handle, consumer) = consumers.at(slot);
        let no_ack = consumer.no_ack;
        let free = if no_ack { NO_SLOT } else { messages.unacked.next_slot() };
        let (delivery, content) = outgoing(head, free, counts);
        let sent = sink.deliver(consumer, delivery, content);
        if sent != Sent::Done {
            return sent;
        }
        consumers.delivered(slot);
        messages.count_handed_out(Handing::Delivered(no_ack), delivery.redelivered);
        let Some(entry) = messages.pop(true, sink) else {
            invariant!("what was delivered is the head")
        };
        if no_ack {
            messages.release(entry, sink);
            return Sent::Done;
        }
        messages.unacked.insert(entry, handle);
        Sent::Done
    }
}

/// What a consumer gets of a message that waits, and where its bytes are.
#[inline(always)]
pub(super) fn outgoing(entry: &Entry, slot: u32, counts: bool) -> (Delivery, Content<'static>) {
    let content = match (entry.place.body(), entry.place.position()) {
        (Some(body), _) => Content::Stored(body),
        (None, Some(position)) => Content::Logged(position, entry.bytes),
        (None, None) => invariant!("a message lies in memory or in a log"),
    };
    let delivery = Delivery {
        slot,
        seq: entry.seq,
        redelivered: entry.redelivered,
        delivery_count: if counts { entry.delivery_count } else { 0 },
    };
    (delivery, content)
}
