//! From the queue to its consumers.

use lepus_base::{Instant, Now};

use super::consumers::Consumers;
use super::delivering::{Delivering, Stepped};
use super::{Queue, Sink};
use crate::entry::{Reason, Sent, Ticket};
use crate::message::Incoming;

impl Queue {
    /// Number, deadline and priority of a new message.
    #[inline(always)]
    pub(super) fn ticket(
        &mut self,
        now: Now,
        incoming: &Incoming<'_>,
        sink: &mut impl Sink,
    ) -> Ticket {
        let (ttl, priority) = match &self.rules {
            Some(rules) => rules.terms(incoming),
            None => (incoming.expiration, 0),
        };
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

    pub(super) fn dispatch_within(
        &mut self,
        now: Now,
        (budget, dear_too): (&mut usize, bool),
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
            if self.has_filters() {
                *budget -= 1;
                let after = self.rules.as_ref().and_then(|rules| rules.unmatched_after);
                match self.delivering().step(now, after, (budget, dear_too), sink) {
                    Stepped::Done => self.end_filters(),
                    Stepped::Waits { has_more } => return has_more,
                    Stepped::Expired(key) => {
                        if self.must_wait_with_letter(sink) {
                            return *budget == 0;
                        }
                        let entry = self.delivering().take(key, sink);
                        self.drop_entry(entry, Reason::Expired, sink);
                    }
                }
                continue;
            }
            let Some(head) = self.messages.as_ref().and_then(|messages| messages.ready.head())
            else {
                return race!("a damaged index has fewer messages than were counted", false);
            };
            let Some(slot) = self.choose_consumer(head.bytes, sink) else {
                return false;
            };
            *budget -= 1;
            match self.delivering().give_head(slot, sink) {
                Sent::Done => {}
                Sent::Lost => self.step_over(sink),
                Sent::Pending => {
                    self.wait();
                    return false;
                }
            }
        }
    }

    /// A message and who gets it.
    #[inline(always)]
    pub(super) fn delivering(&mut self) -> Delivering<'_> {
        let counts = self.counts_deliveries();
        let (Some(consumers), Some(messages)) = (&mut self.consumers, &mut self.messages) else {
            invariant!("a message and who gets it were chosen")
        };
        Delivering { consumers, messages, counts }
    }

    /// Whether messages are given to consumers by their filters.
    #[inline]
    #[must_use]
    pub fn has_filters(&self) -> bool {
        self.consumers.as_ref().is_some_and(|consumers| consumers.has_filters())
    }

    /// Once no filter is left, and nothing is laid aside, messages are delivered as in other queues again.
    pub(super) fn end_filters(&mut self) {
        let has_some = |consumers: &Consumers| consumers.are_any_filtered();
        if !self.consumers.as_deref().is_some_and(has_some)
            && self.messages.as_mut().is_none_or(|messages| messages.ready.end_aside())
            && let Some(consumers) = &mut self.consumers
        {
            consumers.end_filters();
        }
    }
}
