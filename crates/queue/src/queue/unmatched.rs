//! Messages that match no consumer's filter, and that have been passed over for too long; consumers that come and go.

use lepus_base::{Instant, Now};

use super::Sink;
use super::aside::{Aside, Item, Key};
use super::consumers::Consumers;
use super::messages::Messages;
use super::selecting::REREAD;
use super::selectors::Number;
use crate::entry::Entry;

impl Messages {
    /// Takes the next one that is to be dropped, into a dead letter if `has_letters`. `None` also where it has to be read
    /// first, where letters have no room, and at the end of the budget.
    pub(super) fn next_unmatched(
        &mut self,
        now: Now,
        has_letters: bool,
        budget: &mut usize,
        sink: &mut impl Sink,
    ) -> Option<Entry> {
        while *budget > 0 {
            let due = self.ready.aside()?.due(now.instant)?;
            if has_letters && !sink.may_dead_letter() {
                // Others are delivered meanwhile: what they take may be the room.
                if sink.waits_for_letters() {
                    self.ready.aside_mut()?.let_dropping_wait();
                }
                return None;
            }
            *budget -= 1;
            match self.ready.aside_mut().and_then(|aside| aside.due_item(due)) {
                None => {}
                Some(Item::Left(key, spilled)) => {
                    let Some(mut backlog) = sink.backlog() else {
                        invariant!("what was logged is in a log");
                    };
                    *budget = budget.saturating_sub(REREAD);
                    if !self.ready.reread((key, spilled), &mut backlog) {
                        self.ready.aside_mut()?.let_dropping_wait();
                        return None;
                    }
                }
                Some(Item::Known(key)) if !self.ready.aside()?.is_kept(key) => {
                    return Some(self.take_unmatched(key, sink));
                }
                Some(Item::Known(key)) => self.ready.aside_mut()?.due_is_done(key.next()),
            }
        }
        None
    }

    /// Takes one that is to be dropped.
    fn take_unmatched(&mut self, key: Key, sink: &mut impl Sink) -> Entry {
        let Some((entry, left)) = self.ready.take_aside(key) else {
            invariant!("what is due was laid aside")
        };
        self.left_window(left, false, sink);
        if let Some(aside) = self.ready.aside_mut() {
            aside.due_is_done(key.next());
        }
        entry
    }

    /// Whether one may have to be dropped.
    pub(super) fn is_unmatched_due(&self, now: Now) -> bool {
        self.ready.aside().is_some_and(|aside| aside.due(now.instant).is_some())
    }

    /// When one may have to be.
    pub(super) fn next_unmatched_at(&self) -> Instant {
        let aside = self.ready.aside().filter(|_| !self.waits);
        aside.map_or(Instant::NEVER, Aside::next_due)
    }

    /// A consumer came, with a selector that nobody had before, if one is given.
    pub(super) fn joined(&mut self, consumers: &Consumers, selector: Option<Number>, now: Now) {
        let Some(aside) = self.ready.aside_mut() else { return };
        if consumers.is_one_staying() {
            aside.attend(now.instant);
        }
        // Where nothing was laid aside, it begins at the front as all do.
        selector.into_iter().for_each(|number| aside.join(number));
        aside.count_only(consumers.counting_selectors(), now.instant);
    }

    /// A consumer went, and with it a selector, if one is given; others may be left.
    pub(super) fn left(&mut self, others: Option<&Consumers>, selector: Option<Number>, now: Now) {
        let Some(aside) = self.ready.aside_mut() else { return };
        selector.into_iter().for_each(|number| aside.leave(number, now.instant));
        if let Some(consumers) = others {
            aside.count_only(consumers.counting_selectors(), now.instant);
        }
        if !others.is_some_and(Consumers::is_one_staying) {
            aside.abandon(now.instant);
        }
    }
}
