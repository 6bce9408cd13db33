//! Time to live, length limits and the overflow rules.

use lepus_base::Now;

use super::{DROPS_AT_ONCE_MAX, Queue, Sink};
use crate::entry::{Place, Reason};
use crate::message::Incoming;
use crate::settings::Overflow;

impl Queue {
    /// Drops expired messages from the head, which is known. Returns whether expired ones are left
    /// there, because the budget ended or dead-lettering has to wait.
    pub(super) fn expire(&mut self, now: Now, budget: &mut usize, sink: &mut impl Sink) -> bool {
        while self.head_deadline() <= now.instant {
            if *budget == 0 {
                return true;
            }
            if self.must_wait_with_letter(sink) {
                return true;
            }
            *budget -= 1;
            if let Some(entry) = self.pop(sink) {
                self.drop_entry(entry, Reason::Expired, sink);
            }
            self.prepare(sink);
        }
        false
    }

    /// Drops messages that have been passed over for too long. Returns whether more are left.
    pub(super) fn drop_unmatched(
        &mut self,
        now: Now,
        budget: &mut usize,
        sink: &mut impl Sink,
    ) -> bool {
        let has_letters = self.dead_letters();
        while let Some(messages) = &mut self.messages
            && let Some(entry) = messages.next_unmatched(now, has_letters, budget, sink)
        {
            self.drop_entry(entry, Reason::Unmatched, sink);
        }
        *budget == 0
            && self.messages.as_ref().is_some_and(|messages| messages.is_unmatched_due(now))
    }

    /// Whether a message cannot leave for the dead-letter exchange now.
    pub(super) fn must_wait_with_letter(&mut self, sink: &mut impl Sink) -> bool {
        let must_wait = self.dead_letters() && !sink.may_dead_letter();
        if must_wait && sink.waits_for_letters() {
            self.wait();
        }
        must_wait
    }

    /// Whether the ready messages and `count` more of `bytes` in sum are above the limits.
    pub(super) fn exceeds(&self, count: u64, bytes: u64) -> bool {
        self.rules.as_ref().is_some_and(|rules| {
            self.ready() + rules.letters + count > rules.length_max
                || self.ready_bytes() + rules.letter_bytes + bytes > rules.bytes_max
        })
    }

    /// Whether the overflow rule may refuse one of `count` further messages of `bytes` in sum, should none leave before.
    #[must_use]
    pub fn may_refuse(&self, count: u64, bytes: u64) -> bool {
        let overflow = self.rules.as_ref().map(|rules| rules.overflow);
        overflow.is_some_and(|rule| rule != Overflow::DropHead) && self.exceeds(count, bytes)
    }

    /// Whether messages have to leave to satisfy the limits.
    pub(super) fn must_drop(&self) -> bool {
        self.exceeds(0, 0)
            && (self.rules.as_ref()).is_some_and(|rules| rules.overflow == Overflow::DropHead)
    }

    /// Before limits are applied: what is expired or may be delivered takes no room.
    pub(super) fn clear_due(&mut self, now: Now, sink: &mut impl Sink) {
        self.dispatch(now, DROPS_AT_ONCE_MAX, sink);
    }

    /// Whether the overflow rule refuses this message; it is dead-lettered where the rule says so.
    pub(super) fn refuses(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        sink: &mut impl Sink,
    ) -> bool {
        let overflow = (self.rules.as_ref()).map_or(Overflow::DropHead, |rules| rules.overflow);
        if overflow == Overflow::DropHead || !self.exceeds(1, u64::from(incoming.bytes())) {
            return false;
        }
        if overflow == Overflow::RejectPublishDlx && self.dead_letters() {
            let ticket = self.ticket(now, incoming, sink);
            let place = Place::pooled(incoming.keep(sink.pool()));
            sink.dead_letter(ticket.entry(place, incoming.bytes()), None, Reason::MaxLength);
        }
        true
    }

    /// Drops messages from the head until the limits hold; a long rest is left to `work`.
    pub(super) fn drop_excess(&mut self, sink: &mut impl Sink) {
        self.set_over_limit();
        for _ in 0..DROPS_AT_ONCE_MAX {
            if !self.is_over_limit() || !self.prepare(sink) {
                return;
            }
            self.drop_one_above_limit(sink);
        }
    }

    /// Whether more messages are to be dropped to satisfy the limits, which [`Work`](crate::command::Work) does.
    #[must_use]
    pub fn is_over_limit(&self) -> bool {
        self.messages.as_ref().is_some_and(|messages| messages.is_over_limit)
    }

    /// Looks at the limits anew.
    pub(super) fn set_over_limit(&mut self) {
        let is_over = self.must_drop();
        if let Some(messages) = &mut self.messages {
            messages.is_over_limit = is_over;
        }
    }

    pub(super) fn drop_one_above_limit(&mut self, sink: &mut impl Sink) {
        if self.must_drop()
            && let Some(entry) = self.pop(sink)
        {
            self.drop_entry(entry, Reason::MaxLength, sink);
        }
        self.set_over_limit();
    }
}
