//! What was published, confirmed, delivered and acknowledged, and what must therefore never happen.
//!
//! A message is known by its publisher and number. Each of its copies, one per queue, goes from
//! *published* to *delivered* to *acknowledged* (the ack may have been sent) to *gone* (the ack was
//! answered for long enough). Only the newest part is kept: once all queues have been empty,
//! everything before is over.

mod faults;
mod ledger;

pub use faults::{Fault, Faults};
pub use ledger::Item;
use ledger::{ACKED, CONFIRMED, DELIVERED, GONE, Ledger, PLAIN, RECENT, RECOVERED, REFUSED};

use crate::topology::{self, PUBLISHERS};
use std::ops::Range;
use std::time::{Duration, Instant};

/// An ack that was answered so long before a kill is for good.
pub const GRACE: Duration = Duration::from_secs(1);
/// The longest time until what failed is made again when the disk is well.
const RETRY: Duration = Duration::from_secs(2);

/// What was seen, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Messages published.
    pub published: u64,
    /// Of them confirmed or committed.
    pub confirmed: u64,
    /// Of them refused.
    pub refused: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Copies delivered once more.
    pub duplicates: u64,
    /// Copies acknowledged for good.
    pub gone: u64,
    /// Commits without their answer at a kill.
    pub commits_in_doubt: u64,
}

/// A delivery as a consumer saw it.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The queue that the consumer reads.
    pub queue: usize,
    /// Publisher and number; `None` for a body that nobody published.
    pub message: Option<(usize, u64)>,
    /// The mark.
    pub redelivered: bool,
}

/// Where a consumer stands in each publisher's messages.
pub type Order = [Option<u64>; PUBLISHERS.len()];

/// The oracle.
pub struct Oracle {
    ledgers: Vec<Ledger>,
    /// Acks of this round that were answered, with the time.
    answered: Vec<(Instant, Item)>,
    /// Commits that had no answer when the broker was killed.
    in_doubt: Vec<(usize, Range<u64>)>,
    /// The broker closes one connection after the other, so that others get their messages.
    stopping: bool,
    /// The disk fails since then.
    failing: Option<Instant>,
    /// It has been well again since then.
    mended: Option<Instant>,
    /// What went wrong.
    pub faults: Faults,
    /// What went on.
    pub tally: Tally,
}

impl Oracle {
    /// An oracle that knows of nothing.
    pub fn new() -> Oracle {
        Oracle {
            ledgers: PUBLISHERS.iter().map(|trade| Ledger::new(trade.copies())).collect(),
            answered: Vec::new(),
            in_doubt: Vec::new(),
            stopping: false,
            failing: None,
            mended: None,
            faults: Faults::default(),
            tally: Tally::default(),
        }
    }

    /// Number of the next message of this publisher.
    pub fn next(&self, publisher: usize) -> u64 {
        self.ledgers[publisher].end()
    }

    /// The publisher is about to send so many more messages.
    pub fn publish(&mut self, publisher: usize, count: u64) {
        self.ledgers[publisher].extend(count);
        self.tally.published += count;
    }

    /// The broker confirmed or committed these messages.
    pub fn confirm(&mut self, publisher: usize, numbers: Range<u64>) {
        let ledger = &mut self.ledgers[publisher];
        for number in numbers {
            for copy in 0..ledger.copies() {
                ledger.set(Item { publisher, number, copy }, CONFIRMED);
            }
            self.tally.confirmed += 1;
        }
    }

    /// The broker refused a message. Only a log that has stopped explains that.
    pub fn refuse(&mut self, publisher: usize, number: u64) {
        self.tally.refused += 1;
        if self.stopping && self.failing.is_some() {
            return self.ledgers[publisher].set(Item { publisher, number, copy: 0 }, REFUSED);
        }
        self.faults.note(Fault::Refused, || format!("publisher {publisher} number {number}"));
    }

    /// The broker gave a message back although it has a queue.
    pub fn give_back(&mut self, publisher: usize) {
        self.faults.note(Fault::Unroutable, || format!("publisher {publisher}"));
    }

    /// A commit of these messages has no answer yet, and the broker is gone.
    pub fn doubt(&mut self, publisher: usize, numbers: Range<u64>) {
        self.tally.commits_in_doubt += 1;
        self.in_doubt.push((publisher, numbers));
    }

    /// A consumer got a message. `Some` for one that can be acknowledged as an item.
    pub fn deliver(&mut self, delivery: Delivery, order: &mut Order) -> Option<Item> {
        self.tally.delivered += 1;
        let queue = topology::name(delivery.queue);
        let Some((publisher, number)) = delivery.message else {
            self.faults.note(Fault::Damaged, || format!("in {queue}"));
            return None;
        };
        let about = || format!("publisher {publisher} number {number} in {queue}");
        let ledger = self.ledgers.get_mut(publisher);
        let Some(ledger) = ledger.filter(|ledger| number < ledger.end()) else {
            self.faults.note(Fault::Invented, about);
            return None;
        };
        let trade = PUBLISHERS[publisher];
        let copy = (0..trade.copies())
            .find(|copy| trade.queue(publisher, number, *copy) == delivery.queue);
        let Some(copy) = copy else {
            self.faults.note(Fault::Stray, about);
            return None;
        };
        let item = Item { publisher, number, copy };
        let state = ledger.get(item);
        if !trade.is_moved() {
            let before = order[publisher].replace(number);
            let requeued = self.stopping && delivery.redelivered;
            if before.is_some_and(|before| before >= number) && !requeued {
                self.faults.note(Fault::Disordered, || {
                    format!("{}, after {}", about(), before.unwrap_or(0))
                });
            }
            if state & GONE != 0 {
                self.faults.note(Fault::Returned, about);
            } else if !trade.is_persistent() && !ledger.is_of_this_round(number) {
                self.faults.note(Fault::Revived, about);
            }
            // One of several queues may have it.
            let is_refused = state & REFUSED != 0 && ledger.copies() == 1;
            if is_refused && !ledger.is_of_this_round(number) {
                self.faults.note(Fault::Refused, || format!("{}, and yet it is there", about()));
            }
            // While the broker closes one connection after the other, the consumer that had the
            // message first may be the last to read what its socket holds.
            let is_read_late = self.stopping && state & (RECENT | PLAIN) == RECENT;
            if state & DELIVERED != 0 && !delivery.redelivered && !is_read_late {
                self.faults.note(Fault::Unmarked, about);
            }
        }
        if state & DELIVERED != 0 {
            self.tally.duplicates += 1;
        }
        ledger.set(item, DELIVERED | RECENT);
        if !delivery.redelivered {
            ledger.set(item, PLAIN);
        }
        if !ledger.is_of_this_round(number) {
            ledger.set(item, RECOVERED);
        }
        Some(item)
    }

    /// Acks of these items are about to be sent.
    pub fn acknowledge(&mut self, items: &[Item]) {
        for item in items {
            self.ledgers[item.publisher].set(*item, ACKED);
        }
    }

    /// The broker answered something that was sent behind the acks of these items.
    pub fn answer(&mut self, items: impl Iterator<Item = Item>, now: Instant) {
        self.answered.extend(items.map(|item| (now, item)));
    }

    /// The broker is about to be stopped in order.
    pub fn begin_stop(&mut self) {
        self.stopping = true;
    }

    /// The disk begins to fail, and acks of a second before may not be on it for good.
    pub fn begin_failing(&mut self, at: Instant) {
        self.failing = Some(at);
    }

    /// The disk is well again, and the broker goes on.
    pub fn end_failing(&mut self, at: Instant) {
        self.mended = Some(at);
    }

    /// Whether an ack that was answered at `answered` holds when the broker is killed at `at`.
    fn holds(&self, answered: Instant, at: Instant) -> bool {
        let held_before = answered + GRACE <= self.failing.unwrap_or(at);
        let holds_again = |mended: Instant| answered.max(mended + RETRY) + GRACE <= at;
        held_before || self.mended.is_some_and(holds_again)
    }

    /// The broker ended at `at`: by a kill, or (`clean`) by an orderly stop.
    pub fn end_round(&mut self, at: Instant, clean: bool) {
        self.stopping = false;
        for (answered, item) in std::mem::take(&mut self.answered) {
            if clean || self.holds(answered, at) {
                self.ledgers[item.publisher].set(item, GONE);
                self.tally.gone += 1;
            }
        }
        (self.failing, self.mended) = (None, None);
        for ledger in &mut self.ledgers {
            ledger.begin_round();
        }
    }

    /// Copies in each queue at least and at most, right after a restart.
    pub fn bounds(&self) -> Vec<(u64, u64)> {
        let mut bounds = vec![(0, 0); topology::QUEUES];
        for (publisher, trade) in PUBLISHERS.iter().enumerate() {
            if !trade.is_persistent() || trade.is_moved() {
                continue;
            }
            self.ledgers[publisher].each(|number, copy, state| {
                let (least, most) = &mut bounds[trade.queue(publisher, number, copy)];
                *least += u64::from(state & CONFIRMED != 0 && state & ACKED == 0);
                *most += u64::from(state & GONE == 0);
            });
        }
        bounds
    }

    /// Compares queues' counts right after a restart with what can be in them.
    pub fn check_counts(&mut self, counts: &[(usize, u64)]) {
        let bounds = self.bounds();
        for &(queue, count) in counts {
            // Messages expire whenever they like.
            if queue == topology::EXPIRING || queue == topology::DEAD {
                continue;
            }
            let (least, most) = bounds[queue];
            if count < least || count > most {
                self.faults.note(Fault::Miscounted, || {
                    format!("{}: {count}, not {least} to {most}", topology::name(queue))
                });
            }
        }
    }

    /// Confirmed copies whose acks were never sent.
    pub fn outstanding(&self) -> u64 {
        let mut count = 0;
        self.each_outstanding(|_, _, _| count += 1);
        count
    }

    fn each_outstanding(&self, mut look: impl FnMut(usize, u64, usize)) {
        for (publisher, trade) in PUBLISHERS.iter().enumerate() {
            let ledger = &self.ledgers[publisher];
            ledger.each(|number, copy, state| {
                let may_be_lost = !trade.is_persistent() && !ledger.is_of_this_round(number);
                if state & CONFIRMED != 0 && state & ACKED == 0 && !may_be_lost {
                    look(publisher, number, copy);
                }
            });
        }
    }

    /// All queues are empty: what was confirmed and has not come is lost, and the rest is over.
    pub fn empty(&mut self) {
        let mut lost = Vec::new();
        self.each_outstanding(|publisher, number, copy| lost.push((publisher, number, copy)));
        for (publisher, number, copy) in lost {
            let queue = topology::name(PUBLISHERS[publisher].queue(publisher, number, copy));
            self.faults
                .note(Fault::Lost, || format!("publisher {publisher} number {number} in {queue}"));
        }
        for (publisher, numbers) in std::mem::take(&mut self.in_doubt) {
            self.check_commit(publisher, numbers);
        }
        self.tally.gone += self.answered.len() as u64;
        self.answered.clear();
        for ledger in &mut self.ledgers {
            ledger.forget();
        }
    }

    /// A commit is there as a whole or not at all. What was acknowledged before the kill may be gone,
    /// and what was seen before it says nothing: messages are delivered before they are on disk.
    fn check_commit(&mut self, publisher: usize, numbers: Range<u64>) {
        let (mut there, mut missing) = (0, 0);
        for number in numbers.clone() {
            let state = self.ledgers[publisher].get(Item { publisher, number, copy: 0 });
            there += u64::from(state & RECOVERED != 0);
            missing += u64::from(state & (RECOVERED | ACKED) == 0);
        }
        if there > 0 && missing > 0 {
            self.faults.note(Fault::Torn, || {
                format!("publisher {publisher}: {missing} of the messages {numbers:?} are missing")
            });
        }
    }

    /// Some message that is gone for good, for a harness that proves itself.
    pub fn any_gone(&self, queue: usize) -> Option<(usize, u64)> {
        let mut found = None;
        for (publisher, trade) in PUBLISHERS.iter().enumerate() {
            self.ledgers[publisher].each(|number, copy, state| {
                if state & GONE != 0 && trade.queue(publisher, number, copy) == queue {
                    found = Some((publisher, number));
                }
            });
        }
        found
    }
}

#[cfg(test)]
mod tests;
