//! From the queue to its consumers.

use lepus_base::{Instant, Now, Position};

use super::messages::Handing;
use super::{Queue, Sink};
use crate::entry::{Content, Delivery, NO_SLOT, Place, Sent, Ticket};
use crate::message::{COPIED_BYTES_MAX, Incoming, LARGE_BODY_BYTES_MIN};

impl Queue {
    /// Number, deadline and priority of a new message.
    #[inline(always)]
    pub(super) fn ticket(
        &mut self,
        now: Now,
        incoming: &Incoming<'_>,
        sink: &mut impl Sink,
    ) -> Ticket {
        let mut ttl = incoming.expiration;
        let mut priority = 0;
        if let Some(rules) = &self.rules {
            ttl = match (rules.message_ttl, ttl) {
                (Some(queue), Some(message)) => Some(queue.min(message)),
                (queue, message) => queue.or(message),
            };
            priority = incoming.priority.min(rules.priority_max);
        }
        let deadline = ttl.map_or(Instant::NEVER, |ttl| now.instant + ttl);
        let seq = match &mut self.messages {
            Some(messages) => messages.take_seq(),
            None => self.open(sink).take_seq(),
        };
        Ticket { seq, deadline, priority }
    }

    /// The consumer whose turn it is; parks those on the way whose connection takes nothing.
    #[inline(always)]
    pub(super) fn choose_consumer(&mut self, bytes: u32, sink: &mut impl Sink) -> Option<u32> {
        if self.holds > 0 {
            return None;
        }
        let consumers = self.consumers.as_mut()?;
        loop {
            let slot = consumers.next()?;
            if sink.may_deliver(consumers.at(slot).1, bytes as usize) {
                return Some(slot);
            }
            consumers.park(slot);
        }
    }

    pub(super) fn is_no_ack(&self, slot: u32) -> bool {
        self.consumers.as_ref().is_some_and(|consumers| consumers.at(slot).1.no_ack)
    }

    /// Delivers a new message, past the ready ones of which there are none. `logged` is its ticket
    /// and its position in the log, if the log took it.
    pub(super) fn hand_over(
        &mut self,
        now: Now,
        slot: u32,
        incoming: &mut Incoming<'_>,
        logged: Option<(Ticket, Position)>,
        sink: &mut impl Sink,
    ) {
        let (ticket, position) = match logged {
            Some((ticket, position)) => (ticket, Some(position)),
            None => (self.ticket(now, incoming, sink), None),
        };
        let (Some(consumers), Some(messages)) = (&mut self.consumers, &mut self.messages) else {
            invariant!("who is handed a message was chosen, and the message has a ticket")
        };
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
            self.release(ticket.entry(place, incoming.bytes()), sink);
        }
    }

    pub(super) fn dispatch_within(
        &mut self,
        now: Now,
        budget: &mut usize,
        sink: &mut impl Sink,
    ) -> bool {
        loop {
            if !self.prepare(sink) {
                return false;
            }
            if self.expire(now, budget, sink) {
                return *budget == 0;
            }
            if !self.wants_dispatch() {
                return false;
            }
            if *budget == 0 {
                return true;
            }
            let Some(head) = self.messages.as_ref().and_then(|messages| messages.ready.head())
            else {
                return race!("a damaged index has fewer messages than were counted", false);
            };
            let Some(slot) = self.choose_consumer(head.bytes, sink) else {
                return false;
            };
            *budget -= 1;
            match self.deliver_head(slot, sink) {
                Sent::Done => {}
                Sent::Lost => self.step_over(sink),
                Sent::Pending => {
                    self.wait();
                    return false;
                }
            }
        }
    }

    fn deliver_head(&mut self, slot: u32, sink: &mut impl Sink) -> Sent {
        let counts = self.counts_deliveries();
        let (Some(consumers), Some(messages)) = (&mut self.consumers, &mut self.messages) else {
            invariant!("a head and who gets it were chosen")
        };
        let Some(head) = messages.ready.head() else {
            invariant!("the head that is delivered was looked at before")
        };
        let (handle, consumer) = consumers.at(slot);
        let content = match (head.place.body(), head.place.position()) {
            (Some(body), _) => Content::Stored(body),
            (None, Some(position)) => Content::Logged(position, head.bytes),
            (None, None) => invariant!("a message lies in memory or in a log"),
        };
        let no_ack = consumer.no_ack;
        let delivery = Delivery {
            slot: if no_ack { NO_SLOT } else { messages.unacked.next_slot() },
            seq: head.seq,
            redelivered: head.redelivered,
            delivery_count: if counts { head.delivery_count } else { 0 },
        };
        let sent = sink.deliver(consumer, delivery, content);
        if sent != Sent::Done {
            return sent;
        }
        consumers.delivered(slot);
        messages.count_handed_out(Handing::Delivered(no_ack), delivery.redelivered);
        let Some(entry) = self.pop(sink) else { invariant!("what was delivered is the head") };
        if no_ack {
            self.release(entry, sink);
            return Sent::Done;
        }
        self.opened().unacked.insert(entry, handle);
        Sent::Done
    }
}
