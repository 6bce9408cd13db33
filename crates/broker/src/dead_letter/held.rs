//! Dead letters that must arrive (`x-dead-letter-strategy: at-least-once`) and could not yet: they
//! wait with their source, which counts them, and are tried again after a pause that grows.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::QueueId;

use super::attempts::Attempts;
use super::{DeadLetter, DeadLetters, Destination, Source};
use crate::channel::Target;
use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::journal::Need;

/// The first pause before the letters of a queue are tried again.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Each pause is twice as long as the one before, up to this.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Letters tried again in one go before other work gets its turn.
const TRIED_AT_ONCE: usize = 64;
/// Letters of all queues on their way above which none is tried again.
const ON_THEIR_WAY_MAX: usize = 256;

/// How far a letter that must arrive has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Its place among those that wait; 0 if it has not waited yet.
    ticket: u64,
    /// The number of this attempt; 0 until the queues are known that get it.
    attempt: u64,
    /// Whether others of its queue wait while it goes to very many queues.
    is_wide: bool,
    /// Queues that were not asked yet, in this attempt.
    rest: Vec<QueueId>,
    /// Queues that have it.
    done: BTreeSet<QueueId>,
    /// Whether a queue did not take it.
    is_refused: bool,
    /// Whether it waits only because earlier ones of its queue did, or were being tried again.
    is_behind: bool,
    /// Whether it was taken from the shelf to be tried again, and has neither come back nor left for good.
    is_tried_again: bool,
    /// What it found no room for on its way to very many queues, and for which of them: it is to wait for that
    /// when all that were asked have reported, and to begin anew with the others.
    lacks: Option<(Need, QueueId)>,
    /// Whether the log was told that it is too large.
    is_told_too_large: bool,
    /// Bytes of its lists of queues that were counted where it waits.
    counted_bytes: usize,
}

/// What a queue costs in the set of those that have a letter, about, in bytes.
const DONE_BYTES: usize = 16;

impl Progress {
    /// Bytes of its lists of queues.
    fn list_bytes(&self) -> usize {
        self.rest.capacity() * size_of::<QueueId>() + self.done.len() * DONE_BYTES
    }

    /// Counts its lists, where it is to wait from now on: their bytes.
    pub(super) fn count(&mut self) -> usize {
        self.counted_bytes = self.list_bytes();
        self.counted_bytes
    }

    /// It waits there no longer: the bytes that were counted.
    pub(super) fn discount(&mut self) -> usize {
        core::mem::take(&mut self.counted_bytes)
    }

    /// Whether the queues that get it are known, in this attempt.
    pub(super) fn is_addressed(&self) -> bool {
        self.attempt != 0
    }

    /// Whether there are queues that were not asked yet, in this attempt.
    pub(super) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether it was taken from the shelf to be tried again, and has neither come back nor left for good.
    pub(super) fn is_tried_again(&self) -> bool {
        self.is_tried_again
    }

    /// Whether it has neither waited for another attempt nor begun one.
    fn is_new(&self) -> bool {
        self.ticket == 0 && !self.is_addressed()
    }

    /// What queues have reported.
    pub(super) fn learn(&mut self, done: Vec<QueueId>, is_refused: bool) {
        self.done.extend(done);
        self.is_refused |= is_refused;
    }

    /// What many queues have.
    #[cfg(test)]
    pub(super) fn after(queues: u64) -> Progress {
        let done = (0..queues).map(QueueId).collect();
        Progress { done, is_refused: true, ..Progress::default() }
    }

    /// A queue has another id now.
    pub(super) fn redirect(&mut self, old: QueueId, new: QueueId) {
        if self.done.remove(&old) {
            self.done.insert(new);
        }
        for queue in self.rest.iter_mut().filter(|queue| **queue == old) {
            *queue = new;
        }
    }
}

/// What became of a letter at one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Posted {
    /// It has it.
    Done,
    /// It, or its log, did not take it.
    Refused,
    /// No log ever has room for so many bytes.
    TooLarge(usize),
    /// It reports under this number.
    Waits(u64),
    /// Nothing yet: it waits until a log has room for so many bytes.
    NeedsRoom(Need),
}

/// What follows from that.
#[must_use]
pub(crate) enum Then {
    /// Others are asked.
    GoesOn,
    /// So do they, but the log is to hear that the letter takes so many bytes.
    IsTooLarge(usize),
    /// The letter waits until there is room for it in that queue.
    Waits(Need),
}

/// How it goes on with a letter some of whose queues were asked.
#[must_use]
pub(crate) enum Slice {
    /// Others are asked next.
    More,
    /// It waits for reports.
    Waits,
    /// All have said what they do with it.
    Over(DeadLetter),
}

/// What becomes of a letter when all queues have said what they do with it.
#[must_use]
pub(crate) enum End {
    /// It needs room for this queue, and begins anew then.
    Lacks(DeadLetter, Need, QueueId),
    /// It waits for another attempt.
    Held(Option<FirstHeld>),
    /// All have it.
    Arrived(Source),
}

/// The first letter of a queue that waits for another attempt.
#[must_use]
pub(crate) struct FirstHeld {
    pub queue: QueueId,
    /// Why it waits.
    pub why: &'static str,
    /// The pause before it is tried again.
    pub pause: Duration,
}

/// The letters of one queue that wait for another attempt.
#[derive(Debug)]
struct Held {
    /// In the order in which they became dead letters.
    letters: BTreeMap<u64, DeadLetter>,
    /// Those that a queue did not take.
    refused: usize,
    /// Those that wait only because earlier ones do, or were being tried again.
    behind: usize,
    /// The ticket of the first of them, or one before it.
    first_behind: u64,
    /// Those that were taken out to be tried again, and have neither come back nor left for good.
    tried: usize,
    /// The pause before the next attempt.
    pause: Duration,
    /// The tickets that have yet to be tried again, both ends included.
    trying: Option<(u64, u64)>,
    /// Where the letters go, if those of the queue that come next need not arrive.
    before: Option<Arc<Destination>>,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.letters.is_empty() && self.tried == 0
    }

    /// Whether later letters must not overtake one of these.
    fn holds_back(&self) -> bool {
        self.refused + self.behind + self.tried > 0
    }
}

/// All letters that must arrive and are not on their way from their queue.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    by_queue: BTreeMap<QueueId, Held>,
    /// Queues whose letters are being tried again.
    trying: VecDeque<QueueId>,
    /// Those about which queues have yet to report.
    attempts: Attempts,
    held: usize,
    /// Bytes of the lists of queues of all letters.
    list_bytes: usize,
    last_ticket: u64,
}

impl Shelf {
    /// Where those are that wait for another attempt.
    pub(super) fn held(&self) -> impl Iterator<Item = &Source> {
        self.by_queue.values().flat_map(|held| held.letters.values()).map(|letter| &letter.source)
    }

    /// Where all are.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.attempts.sources().chain(self.held())
    }

    /// Where the letter is about which a report under this number is missing, while it waits for that.
    pub(super) fn asked_of(&self, number: u64) -> Option<&Source> {
        self.attempts.asked_of(number)
    }

    /// Whether a report is missing.
    pub(super) fn has_asked(&self) -> bool {
        self.attempts.missing() > 0
    }

    pub(super) fn has_of(&self, queue: QueueId) -> bool {
        self.by_queue.contains_key(&queue)
            || self.attempts.sources().any(|source| source.queue == queue)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.held * (size_of::<(u64, DeadLetter)>() + size_of::<Progress>())
            + self.attempts.memory_bytes()
            + self.list_bytes
    }

    fn count(&mut self, progress: &mut Progress) {
        self.list_bytes += progress.count();
    }

    fn discount(&mut self, progress: &mut Progress) {
        self.list_bytes -= progress.discount();
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_queue.is_empty() && self.attempts.is_empty()
    }

    /// The letters of a queue go where they were to go before a change. How many were looked at. Those that wait for
    /// another attempt do so where they had to arrive last.
    pub(super) fn keep_destination(
        &mut self,
        queue: QueueId,
        before: &Arc<Destination>,
        had_to_arrive: bool,
    ) -> usize {
        if had_to_arrive && let Some(held) = self.by_queue.get_mut(&queue) {
            held.before = Some(before.clone());
        }
        self.attempts.keep_destination(queue, before)
    }

    fn redirect(&mut self, old: QueueId, new: QueueId) {
        self.attempts.redirect(old, new);
        let held = self.by_queue.values_mut().flat_map(|held| held.letters.values_mut());
        for progress in held.filter_map(|letter| letter.progress.as_mut()) {
            progress.redirect(old, new);
        }
    }

    /// Whether a new letter of this queue would overtake one.
    fn holds_back(&self, queue: QueueId) -> bool {
        self.by_queue.get(&queue).is_some_and(Held::holds_back)
    }

    /// Keeps a letter. True if it is the first of its queue.
    fn put(&mut self, mut letter: DeadLetter, mut progress: Box<Progress>) -> bool {
        if progress.ticket == 0 {
            self.last_ticket += 1;
            progress.ticket = self.last_ticket;
        }
        self.count(&mut progress);
        let is_first = !self.by_queue.contains_key(&letter.source.queue);
        let held = self.by_queue.entry(letter.source.queue).or_insert_with(|| Held {
            letters: BTreeMap::new(),
            refused: 0,
            behind: 0,
            first_behind: 0,
            tried: 0,
            pause: PAUSE_MIN,
            trying: None,
            before: None,
        });
        held.refused += usize::from(progress.is_refused);
        let ticket = progress.ticket;
        if progress.is_behind {
            assert!(ticket == self.last_ticket, "only a new letter stands behind others");
            if held.behind == 0 {
                held.first_behind = ticket;
            }
            held.behind += 1;
        }
        let (queue, was_tried) = (letter.source.queue, progress.is_tried_again);
        progress.is_tried_again = false;
        letter.progress = Some(progress);
        held.letters.insert(ticket, letter);
        self.held += 1;
        if was_tried {
            self.end_try(queue);
        }
        is_first
    }

    /// A letter is not kept any more: it has arrived, or leaves for good.
    fn let_go(&mut self, letter: &mut DeadLetter) {
        if let Some(progress) = &mut letter.progress
            && core::mem::take(&mut progress.is_tried_again)
        {
            self.end_try(letter.source.queue);
        }
    }

    /// A letter that was tried again has come back or left. Behind the last one those follow at once that only
    /// waited for that.
    fn end_try(&mut self, queue: QueueId) {
        // What is left of a queue that is gone is not counted.
        let Some(held) = self.by_queue.get_mut(&queue) else {
            return race!("the queue was deleted before its dead letter came back");
        };
        assert!(held.tried > 0, "a letter is tried again and was not counted");
        held.tried -= 1;
        if held.tried > 0 || held.refused > 0 || held.behind == 0 {
            return;
        }
        let Some((&last, _)) = held.letters.last_key_value() else { return };
        let first =
            held.trying.map_or(held.first_behind, |(first, _)| first.min(held.first_behind));
        if held.trying.replace((first, last)).is_none() {
            self.trying.push_back(queue);
        }
    }

    /// Whether letters of a queue have yet to be tried again.
    fn is_trying(&self, queue: QueueId) -> bool {
        self.by_queue.get(&queue).is_some_and(|held| held.trying.is_some())
    }

    /// Takes the next letter of a queue that is to be tried again.
    fn take(&mut self, queue: QueueId) -> Option<DeadLetter> {
        let held = self.by_queue.get_mut(&queue)?;
        let (first, last) = held.trying?;
        let ticket = held.letters.range(first..=last).next().map(|(ticket, _)| *ticket);
        held.trying = ticket.filter(|ticket| *ticket < last).map(|ticket| (ticket + 1, last));
        let mut letter = held.letters.remove(&ticket?)?;
        self.held -= 1;
        if let Some(before) = &held.before {
            letter.before = Some(before.clone());
        }
        if let Some(progress) = &mut letter.progress {
            self.list_bytes -= progress.discount();
            held.refused -= usize::from(progress.is_refused);
            held.behind -= usize::from(progress.is_behind);
            held.tried += 1;
            (progress.attempt, progress.is_refused, progress.is_behind) = (0, false, false);
            progress.is_tried_again = true;
        }
        Some(letter)
    }

    /// Takes all letters of a queue that is gone.
    fn forget(&mut self, queue: QueueId) -> Vec<DeadLetter> {
        let Some(held) = self.by_queue.remove(&queue) else { return Vec::new() };
        self.held -= held.letters.len();
        let mut letters: Vec<DeadLetter> = held.letters.into_values().collect();
        for progress in letters.iter_mut().filter_map(|letter| letter.progress.as_mut()) {
            self.discount(progress);
        }
        letters
    }
}

impl DeadLetters {
    /// Whether some of those that must arrive are to be tried again now.
    pub(super) fn may_try_again(&self) -> bool {
        !self.ledger.shelf.trying.is_empty() && self.next.len() < ON_THEIR_WAY_MAX
    }

    /// Tries some of the letters again whose pause is over.
    pub(crate) fn try_again(&mut self) {
        if !self.may_try_again() {
            return;
        }
        let shelf = &mut self.ledger.shelf;
        let Some(queue) = shelf.trying.pop_front() else {
            invariant!("some dead letters are to be tried again")
        };
        for _ in 0..TRIED_AT_ONCE {
            let Some(letter) = shelf.take(queue) else { return };
            self.next.push_back(letter);
        }
        if shelf.is_trying(queue) {
            shelf.trying.push_back(queue);
        }
    }

    /// The pause of a queue's letters is over. The next one, if some are left.
    pub(crate) fn pause_over(&mut self, queue: QueueId) -> Option<Duration> {
        let shelf = &mut self.ledger.shelf;
        let held = shelf.by_queue.get_mut(&queue)?;
        if held.is_empty() {
            shelf.by_queue.remove(&queue);
            return None;
        }
        let all = held.letters.first_key_value().zip(held.letters.last_key_value());
        let Some(((first, _), (last, _))) = all else {
            // Some of them are on their way, and may come back.
            return Some(held.pause);
        };
        if held.trying.replace((*first, *last)).is_none() {
            shelf.trying.push_back(queue);
        }
        held.pause = (held.pause * 2).min(PAUSE_MAX);
        Some(held.pause)
    }

    /// Whether a letter that must arrive is new, and would overtake one of its queue.
    pub(crate) fn is_held_back(&self, letter: &DeadLetter) -> bool {
        let is_new = letter.progress.as_ref().is_none_or(|progress| progress.is_new());
        is_new && self.ledger.shelf.holds_back(letter.source.queue)
    }

    /// Keeps a letter until those of its queue are gone that it would overtake.
    pub(crate) fn hold_behind(&mut self, mut letter: DeadLetter) -> Option<FirstHeld> {
        let mut progress = letter.progress.take().unwrap_or_default();
        progress.is_behind = true;
        self.hold(letter, progress)
    }

    /// Keeps a letter for another attempt. Says so of the first one of its queue.
    fn hold(&mut self, letter: DeadLetter, progress: Box<Progress>) -> Option<FirstHeld> {
        let queue = letter.source.queue;
        let why =
            if progress.is_refused { "a queue does not take them" } else { "no queue gets them" };
        let is_first = self.ledger.shelf.put(letter, progress);
        is_first.then_some(FirstHeld { queue, why, pause: PAUSE_MIN })
    }

    /// An attempt begins to bring a letter to these queues, as far as they do not have it. Where they are very many it
    /// may have to wait for its turn.
    pub(crate) fn begin_attempt(
        &mut self,
        mut letter: DeadLetter,
        targets: &[Target],
    ) -> Option<DeadLetter> {
        let mut progress = letter.progress.take().unwrap_or_default();
        let queues = targets.iter().rev().map(|target| target.queue);
        progress.rest = queues.filter(|queue| !progress.done.contains(queue)).collect();
        if progress.rest.len() > TARGETS_AT_ONCE_MAX {
            if !self.lines.may_pass() {
                progress.rest = Vec::new();
                letter.progress = Some(progress);
                self.lines.wait_for_turn(letter);
                return None;
            }
            self.lines.pass(letter.source.queue);
            progress.is_wide = true;
        }
        progress.attempt = self.ledger.next_number();
        letter.progress = Some(progress);
        Some(letter)
    }

    /// The queue that is asked next, in a letter's attempt; `None` if all were, or too many have yet to report.
    pub(crate) fn next_to_ask(&self, letter: &mut DeadLetter) -> Option<QueueId> {
        let progress = letter.progress.as_mut()?;
        let is_crowded = self.ledger.shelf.attempts.is_crowded(progress.attempt);
        if is_crowded { None } else { progress.rest.pop() }
    }

    /// A queue was asked, and this became of the letter.
    pub(crate) fn asked(
        &mut self,
        letter: &mut DeadLetter,
        queue: QueueId,
        posted: Posted,
    ) -> Then {
        let progress = letter.progress.as_mut().expect("who is asked about has begun an attempt");
        match posted {
            Posted::Done => _ = progress.done.insert(queue),
            Posted::Refused => progress.is_refused = true,
            Posted::TooLarge(bytes) => {
                progress.is_refused = true;
                if !core::mem::replace(&mut progress.is_told_too_large, true) {
                    return Then::IsTooLarge(bytes);
                }
            }
            Posted::NeedsRoom(need) if progress.is_wide => {
                progress.rest = Vec::new();
                progress.lacks = Some((need, queue));
            }
            Posted::NeedsRoom(need) => {
                progress.rest.push(queue);
                return Then::Waits(need);
            }
            Posted::Waits(number) => {
                self.ledger.shelf.attempts.ask(progress.attempt, number, queue);
            }
        }
        Then::GoesOn
    }

    /// No more queues of a letter are asked for now. One that goes to very many and only waits gives its turn away, as
    /// long as these take no more than so many bytes.
    pub(crate) fn end_slice(&mut self, letter: DeadLetter, waiting_bytes_max: usize) -> Slice {
        let progress = letter.progress.as_ref().expect("who was asked about has begun an attempt");
        let attempt = progress.attempt;
        if progress.has_rest() && !self.ledger.shelf.attempts.is_crowded(attempt) {
            self.next.push_front(letter);
            return Slice::More;
        }
        if progress.is_wide {
            let bytes = progress.list_bytes() + letter.source.entry.bytes as usize;
            self.lines.give_turn_away(letter.source.queue, bytes, waiting_bytes_max);
        }
        match self.ledger.shelf.attempts.wait(attempt, letter) {
            Some(letter) => Slice::Over(letter),
            None => Slice::Waits,
        }
    }

    /// A queue has reported about a letter that must arrive.
    pub(super) fn report_surely(&mut self, number: u64, is_refused: bool) {
        if let Some(letter) = self.ledger.shelf.attempts.report(number, is_refused) {
            // It goes on, or ends, with those that are on their way.
            self.next.push_front(letter);
        }
    }

    /// All queues have said what they do with a letter.
    pub(crate) fn end_attempt(&mut self, mut letter: DeadLetter) -> End {
        self.leave(&mut letter);
        let mut progress = letter.progress.take().unwrap_or_default();
        if let Some((need, queue)) = progress.lacks.take() {
            // It has given its turn back: others may find room where they go.
            (progress.attempt, progress.is_refused) = (0, false);
            letter.progress = Some(progress);
            return End::Lacks(letter, need, queue);
        }
        if progress.is_refused || progress.done.is_empty() {
            return End::Held(self.hold(letter, progress));
        }
        if let Some(held) = self.ledger.shelf.by_queue.get_mut(&letter.source.queue) {
            held.pause = PAUSE_MIN;
        }
        letter.progress = Some(progress);
        self.ledger.shelf.let_go(&mut letter);
        End::Arrived(letter.source)
    }

    /// A letter is not on its way to its queues any more: what waited for that goes on.
    fn leave(&mut self, letter: &mut DeadLetter) {
        let Some(progress) = &mut letter.progress else { return };
        self.ledger.shelf.attempts.forget(progress.attempt);
        if core::mem::take(&mut progress.is_wide) {
            self.lines.passed(letter.source.queue);
        }
    }

    /// A letter has arrived or leaves for good: what waited for that goes on.
    pub(crate) fn let_go(&mut self, letter: &mut DeadLetter) {
        self.leave(letter);
        self.ledger.shelf.let_go(letter);
    }

    /// A queue has another id now: letters that have come there do not come again.
    pub(crate) fn redirect(&mut self, old: QueueId, new: QueueId) {
        for letter in self.next.iter_mut() {
            if let Some(progress) = &mut letter.progress {
                progress.redirect(old, new);
            }
        }
        self.lines.redirect(old, new);
        self.ledger.shelf.redirect(old, new);
    }

    /// A queue is gone: what waits of it for room goes on, to its end. Where those are that waited for another attempt
    /// and get none.
    pub(crate) fn forget(&mut self, queue: QueueId) -> Vec<Source> {
        let letters = self.ledger.shelf.forget(queue);
        self.lines.forget(queue);
        letters.into_iter().map(|letter| letter.source).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::letter_of;
    use super::*;

    fn letter(seq: u64) -> DeadLetter {
        letter_of(1, seq)
    }

    fn after(queues: u64) -> Box<Progress> {
        Box::new(Progress::after(queues))
    }

    #[test]
    fn the_queues_that_have_a_letter_are_counted_as_long_as_they_are_remembered() {
        let mut shelf = Shelf::default();
        shelf.put(letter(1), after(0));
        let one = shelf.memory_bytes();
        shelf.put(letter(2), after(1_000));
        let mut waiting = letter(3);
        waiting.progress = Some(after(1_000));
        shelf.attempts.ask(6, 7, QueueId(5));
        assert!(shelf.attempts.wait(6, waiting).is_none());
        assert!(shelf.memory_bytes() > 32_000, "{}", shelf.memory_bytes());
        assert!(shelf.attempts.report(7, false).is_some());
        if let Some(held) = shelf.by_queue.get_mut(&QueueId(1)) {
            held.trying = Some((1, 2));
        }
        assert!(shelf.take(QueueId(1)).is_some() && shelf.take(QueueId(1)).is_some());
        assert_eq!(shelf.memory_bytes(), 0);
        shelf.put(letter(1), after(0));
        assert_eq!(shelf.memory_bytes(), one);
        shelf.put(letter(2), after(1_000));
        assert_eq!(shelf.forget(QueueId(1)).len(), 2);
        assert_eq!(shelf.memory_bytes(), 0);
    }

    #[test]
    fn later_ones_wait_until_those_that_are_tried_again_are_back_or_gone_and_then_follow_at_once() {
        let mut shelf = Shelf::default();
        let queue = QueueId(1);
        let behind = || Box::new(Progress { is_behind: true, ..Progress::default() });
        assert!(!shelf.holds_back(queue));
        shelf.put(letter(1), after(0));
        shelf.put(letter(2), after(0));
        if let Some(held) = shelf.by_queue.get_mut(&queue) {
            held.trying = Some((1, 2));
        }
        let mut first = shelf.take(queue).expect("the first is tried again");
        let mut second = shelf.take(queue).expect("so is the second");
        assert!(shelf.holds_back(queue) && !shelf.is_trying(queue));
        shelf.put(letter(3), behind());
        shelf.let_go(&mut first);
        shelf.let_go(&mut first);
        assert!(!shelf.is_trying(queue));
        let mut progress = second.progress.take().expect("it was tried");
        progress.is_refused = true;
        shelf.put(second, progress);
        assert!(!shelf.is_trying(queue), "one was refused again");
        if let Some(held) = shelf.by_queue.get_mut(&queue) {
            held.trying = Some((2, 2));
        }
        let mut second = shelf.take(queue).expect("the second is tried once more");
        shelf.let_go(&mut second);
        assert!(shelf.is_trying(queue) && shelf.holds_back(queue));
        let mut third = shelf.take(queue).expect("the third follows at once");
        assert_eq!(third.source.entry.seq, 3);
        assert!(shelf.holds_back(queue));
        shelf.let_go(&mut third);
        assert!(!shelf.holds_back(queue) && !shelf.is_trying(queue));
    }
}
