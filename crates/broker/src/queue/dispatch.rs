//! From the queue to its consumers.

use lepus_base::{Instant, Now};

use super::entry::{Content, Delivery, Entry, NO_SLOT};
use super::{Queue, Sink};
use crate::message::Incoming;
use crate::send_buffer::LARGE_BODY_BYTES_MIN;

impl Queue {
    /// The entry of a new message, with a reference to its body.
    pub(super) fn take_in(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        sink: &mut impl Sink,
    ) -> Entry {
        let mut ttl = incoming.expiration;
        let mut priority = 0;
        if let Some(rules) = &self.rules {
            ttl = match (rules.message_ttl, ttl) {
                (Some(queue), Some(message)) => Some(queue.min(message)),
                (queue, message) => queue.or(message),
            };
            priority = incoming.priority.min(rules.priority_max);
        }
        Entry {
            seq: self.take_seq(),
            deadline: ttl.map_or(Instant::NEVER, |ttl| now.instant + ttl),
            position: incoming.position,
            body: incoming.keep(sink.pool()),
            bytes: incoming.bytes(),
            delivery_count: 0,
            priority,
            persistent: incoming.persistent,
            redelivered: false,
        }
    }

    /// The consumer whose turn it is; parks those on the way whose connection takes nothing.
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

    /// Delivers a new message, past the ready ones of which there are none.
    pub(super) fn hand_over(
        &mut self,
        now: Now,
        slot: u32,
        incoming: &mut Incoming<'_>,
        sink: &mut impl Sink,
    ) {
        let Some(mut consumers) = self.consumers.take() else {
            return;
        };
        let (handle, consumer) = consumers.at(slot);
        let mut delivery =
            Delivery { slot: NO_SLOT, seq: self.next_seq, redelivered: false, delivery_count: 0 };
        // A large body is sent from where it is stored.
        let is_large = incoming.bytes() as usize >= LARGE_BODY_BYTES_MIN;
        let mut stored = incoming.stored();
        let mut kept = None;
        if !consumer.no_ack {
            let entry = self.take_in(now, incoming, sink);
            stored = Some(entry.body);
            delivery.slot = self.unacked.insert(entry, handle);
        } else {
            self.take_seq();
            if is_large {
                kept = Some(incoming.keep(sink.pool()));
                stored = kept;
            }
        }
        match (incoming.view(), stored) {
            (Some(view), _) if !is_large => {
                sink.deliver(consumer, delivery, Content::Incoming(view));
            }
            (_, Some(body)) => sink.deliver(consumer, delivery, Content::Stored(body)),
            _ => {}
        }
        if let Some(body) = kept {
            sink.pool().release(body);
        }
        consumers.delivered(slot);
        self.consumers = Some(consumers);
        self.count_delivery(false);
    }

    pub(super) fn dispatch_within(
        &mut self,
        now: Now,
        budget: &mut usize,
        sink: &mut impl Sink,
    ) -> bool {
        loop {
            if self.expire(now, budget, sink) {
                return *budget == 0;
            }
            if !self.wants_dispatch() {
                return false;
            }
            if *budget == 0 {
                return true;
            }
            let Some(head) = self.ready.head() else {
                return false;
            };
            let Some(slot) = self.choose_consumer(head.bytes, sink) else {
                return false;
            };
            *budget -= 1;
            self.deliver_head(slot, sink);
        }
    }

    pub(super) fn deliver_head(&mut self, slot: u32, sink: &mut impl Sink) {
        let counts = self.counts_deliveries();
        let Some(consumers) = &mut self.consumers else {
            return;
        };
        let Some(entry) = self.ready.pop() else {
            return;
        };
        let (handle, consumer) = consumers.at(slot);
        let mut delivery = Delivery {
            slot: NO_SLOT,
            seq: entry.seq,
            redelivered: entry.redelivered,
            delivery_count: if counts { entry.delivery_count } else { 0 },
        };
        let content = Content::Stored(entry.body);
        if consumer.no_ack {
            sink.deliver(consumer, delivery, content);
            sink.discard(entry);
        } else {
            delivery.slot = self.unacked.insert(entry, handle);
            sink.deliver(consumer, delivery, content);
        }
        consumers.delivered(slot);
        self.count_delivery(delivery.redelivered);
    }
}
