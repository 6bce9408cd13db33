//! Messages go to consumers of which some have filters.
//!
//! Each selector goes through the messages in their order, by steps of its own, and all in turn: none waits for another.
//! See [`super::aside`] for what lies where.

use core::time::Duration;

use lepus_base::Now;

use super::Sink;
use super::aside::{Item, Key, Step};
use super::consumers::Consumers;
use super::delivering::{Delivering, Stepped, outgoing};
use super::messages::Handing;
use super::selectors::{Number, STEPS_PER_MESSAGE, Selected, SelectorBits, Selectors, bit};
use crate::entry::{Entry, NO_SLOT, Sent};
use crate::log::QueueLog;

/// What it counts to read entries again, beside the one that each step counts.
pub(super) const REREAD: usize = 15;

impl Delivering<'_> {
    /// Lets the selector whose turn it is do one thing. What nobody wants is dropped `after` a time. Dear ones catch up only where
    /// `dear_too` says so: whoever publishes does not wait for that.
    #[inline(never)]
    pub(super) fn step(
        mut self,
        now: Now,
        after: Option<Duration>,
        (budget, dear_too): (&mut usize, bool),
        sink: &mut impl Sink,
    ) -> Stepped {
        if self.messages.ready.aside().is_none() {
            self.begin_aside(now, after);
        }
        let dear = self.consumers.selectors().map_or(0, Selectors::dear);
        let mut steps = STEPS_PER_MESSAGE;
        let mut by_dear = false;
        let ready = self.consumers.ready_selectors();
        let stepped = match self.messages.ready.next_step(ready, (dear, dear_too)) {
            Some((_, Step::Look)) => self.look_at_front(dear, now, &mut steps, sink),
            Some((number, Step::CatchUp(from))) => {
                by_dear = dear & bit(number) != 0;
                let asked = self.who_looks_too(from, by_dear, dear);
                self.catch_up((number, asked), from, &mut steps, sink);
                Stepped::Done
            }
            Some((_, Step::Take(key))) if self.known(key).deadline <= now.instant => {
                return Stepped::Expired(key);
            }
            Some((number, Step::Take(key))) => {
                self.give_aside(number, key, sink);
                Stepped::Done
            }
            None if !dear_too && dear & ready != 0 => return Stepped::Waits { has_more: true },
            None => {
                return race!(
                    "a damaged index has fewer messages than were counted",
                    Stepped::Waits { has_more: false }
                );
            }
        };
        let messages = usize::try_from(steps / STEPS_PER_MESSAGE - 1).unwrap_or(usize::MAX);
        *budget = budget.saturating_sub(messages);
        if dear != 0
            && let Some(aside) = self.messages.ready.aside_mut()
        {
            aside.charge(by_dear, steps);
        }
        stepped
    }

    /// What filters look at is laid aside; what nobody wants is dropped `after` a time.
    #[cold]
    fn begin_aside(&mut self, now: Now, after: Option<Duration>) {
        let Some(selectors) = self.consumers.selectors() else {
            invariant!("a queue with filters has selectors")
        };
        let selectors = (selectors.present(), self.consumers.counting_selectors());
        let after = (after, self.consumers.is_one_staying());
        self.messages.ready.begin_aside(selectors, after, now.instant);
    }

    /// All selectors at the front look at the message there, which is laid aside for those that match it. `dear` ones are not
    /// asked while none of them is at the front.
    fn look_at_front(
        &mut self,
        dear: SelectorBits,
        now: Now,
        steps: &mut u64,
        sink: &mut impl Sink,
    ) -> Stepped {
        let Some(front) = self.messages.ready.front() else {
            invariant!("who looks at the front knows it")
        };
        let aside = self.messages.ready.aside().filter(|_| dear != 0);
        let asked = aside.map_or(SelectorBits::MAX, |aside| aside.at_front(Key::of(front)));
        match ask(self.consumers, asked, front, steps, sink) {
            Selected::Pending => {
                self.messages.waits = true;
                return Stepped::Waits { has_more: false };
            }
            Selected::Matches { selectors, .. } => {
                let laid = self.messages.ready.lay_aside(selectors, asked, now.instant);
                let Some((left, more)) = laid else { invariant!("the front was looked at") };
                self.messages.laid(left, more, sink);
            }
            Selected::Lost => {
                let Some((entry, left)) = self.messages.ready.take_front() else {
                    invariant!("the front was found to be lost")
                };
                self.messages.left_window(left, true, sink);
                self.messages.set_aside(&entry, sink);
            }
        }
        Stepped::Done
    }

    /// The selectors that look at something together at a cursor: of dear ones and others the ones or the others.
    fn who_looks_too(&self, from: Key, by_dear: bool, dear: SelectorBits) -> SelectorBits {
        let Some(aside) = self.messages.ready.aside().filter(|_| dear != 0) else {
            return SelectorBits::MAX;
        };
        aside.at_cursor(from) & if by_dear { dear } else { !dear }
    }

    /// A selector looks at what its cursor comes to, and with it those that are `asked`, whose cursors are there.
    fn catch_up(
        &mut self,
        (number, asked): (Number, SelectorBits),
        from: Key,
        steps: &mut u64,
        sink: &mut impl Sink,
    ) {
        let key = match self.messages.ready.item(from) {
            None => {
                if let Some(aside) = self.messages.ready.aside_mut() {
                    aside.catch_up(number, from);
                }
                return;
            }
            Some(Item::Left(key, spilled)) => {
                let Some(mut backlog) = sink.backlog() else {
                    invariant!("what was logged is in a log");
                };
                *steps += REREAD as u64 * STEPS_PER_MESSAGE;
                if !self.messages.ready.reread((key, spilled), &mut backlog) {
                    self.let_wait(number);
                }
                return;
            }
            Some(Item::Known(key)) => key,
        };
        let Some(entry) = self.messages.ready.aside().and_then(|aside| aside.get(key)) else {
            invariant!("what a selector comes to was laid aside")
        };
        match ask(self.consumers, asked, entry, steps, sink) {
            Selected::Pending => self.let_wait(number),
            Selected::Matches { selectors, .. } => {
                let aside = self.messages.ready.aside_mut();
                if aside.is_some_and(|aside| aside.looked((from, asked), key, selectors))
                    && let Some(mut backlog) = sink.backlog()
                {
                    backlog.forget(1);
                }
            }
            Selected::Lost => self.lose(key, sink),
        }
    }

    fn known(&self, key: Key) -> &Entry {
        let Some(entry) = self.messages.ready.aside().and_then(|aside| aside.get(key)) else {
            invariant!("what a selector comes to was laid aside")
        };
        entry
    }

    fn let_wait(&mut self, number: Number) {
        if let Some(aside) = self.messages.ready.aside_mut() {
            aside.wait(number);
        }
    }

    /// A message that was laid aside is damaged.
    fn lose(&mut self, key: Key, sink: &mut impl Sink) {
        let entry = self.take(key, sink);
        self.messages.set_aside(&entry, sink);
    }

    pub(super) fn take(&mut self, key: Key, sink: &mut impl Sink) -> Entry {
        let Some((entry, left)) = self.messages.ready.take_aside(key) else {
            invariant!("what a selector comes to was laid aside")
        };
        self.messages.left_window(left, false, sink);
        entry
    }

    /// Gives a message that was laid aside to a consumer of those selectors that come to it now: of `number`, which
    /// does, or another one.
    fn give_aside(&mut self, number: Number, key: Key, sink: &mut impl Sink) {
        let takers = self.messages.ready.takers(self.consumers.ready_selectors(), key);
        let bytes = self.known(key).bytes as usize;
        let slot = loop {
            let Some(slot) = self.consumers.next_of(takers) else { return };
            if sink.may_deliver(self.consumers.at(slot).1, bytes) {
                break slot;
            }
            self.consumers.park(slot);
        };
        let (handle, consumer) = self.consumers.at(slot);
        let no_ack = consumer.no_ack;
        let free = if no_ack { NO_SLOT } else { self.messages.unacked.next_slot() };
        let (delivery, content) = outgoing(self.known(key), free, self.counts);
        match sink.deliver(consumer, delivery, content) {
            Sent::Done => {}
            Sent::Pending => return self.let_wait(number),
            Sent::Lost => return self.lose(key, sink),
        }
        let taker = self.consumers.selector_of(slot);
        self.consumers.delivered(slot);
        self.messages.count_handed_out(Handing::Delivered(no_ack), delivery.redelivered);
        if let Some(aside) = self.messages.ready.aside_mut() {
            aside.note_given(taker);
        }
        let entry = self.take(key, sink);
        if no_ack {
            self.messages.release(entry, sink);
        } else {
            self.messages.unacked.insert(entry, handle);
        }
    }
}

/// Asks those selectors about a message that are `asked`, and counts the steps.
fn ask(
    consumers: &mut Consumers,
    asked: SelectorBits,
    entry: &Entry,
    steps: &mut u64,
    sink: &mut impl Sink,
) -> Selected {
    let Some(selectors) = consumers.selectors() else {
        invariant!("a queue with filters has selectors")
    };
    let selected = sink.select(selectors, asked, entry);
    if let Selected::Matches { steps: taken, dear, .. } = selected {
        *steps = steps.saturating_add(taken);
        if dear != 0 {
            consumers.make_dear(dear);
        }
    }
    selected
}
