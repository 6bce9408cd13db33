//! Messages that match no consumer's filter, and that have been passed over for too long.

use lepus_base::{Instant, Now};

use super::Sink;
use super::aside::{Aside, Item, Key};
use super::messages::Messages;
use super::selecting::REREAD;
use crate::entry::Entry;

impl Messages {
    /// The next one that is to be dropped. `None` also where that has to be read first, and at the end of the budget.
    pub(super) fn next_unmatched(
        &mut self,
        now: Now,
        budget: &mut usize,
        sink: &mut impl Sink,
    ) -> Option<Key> {
        while *budget > 0 {
            let due = self.ready.aside()?.due(now.instant)?;
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
                Some(Item::Known(key)) if !self.ready.aside()?.is_kept(key) => return Some(key),
                Some(Item::Known(key)) => self.ready.aside_mut()?.due_is_done(key.next()),
            }
        }
        None
    }

    /// Takes one that is to be dropped.
    pub(super) fn take_unmatched(&mut self, key: Key, sink: &mut impl Sink) -> Entry {
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
        self.ready.aside().map_or(Instant::NEVER, Aside::next_due)
    }
}
