//! Dead letters that must arrive (`x-dead-letter-strategy: at-least-once`) and could not yet: they
//! wait with their source, which counts them, and are tried again after a pause that grows.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{Now, QueueId};

use super::attempts::Attempts;
use super::{DeadLetter, DeadLetters, Source, cost_of, sure_letters_of, terms_of};
use crate::broker::Broker;
use crate::channel::Target;
use crate::directory::QueueInfo;
use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::journal::{LogSet, Need, Room};
use crate::mail::{Receipt, Terms};
use crate::message::{Incoming, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::timers::Timer;

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
enum Posted {
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
        let Some(held) = self.by_queue.get_mut(&queue) else { return };
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
}

impl Broker {
    /// Sends a letter that must arrive to the queues that have yet to get it, each by itself: so it is
    /// known which of them has it. What that cost, in queues.
    pub(super) fn send_surely(
        &mut self,
        now: Now,
        mut letter: DeadLetter,
        out: &mut Outbox,
    ) -> usize {
        let is_new = letter.progress.as_ref().is_none_or(|progress| progress.is_new());
        if is_new && self.edge.dead_letters.ledger.shelf.holds_back(letter.source.queue) {
            let mut progress = letter.progress.take().unwrap_or_default();
            progress.is_behind = true;
            self.hold_letter(now, letter, progress, out);
            return 0;
        }
        let is_addressed = letter.is_under_way();
        let Some((packed, targets)) = self.route_dead_letter(now, &letter, !is_addressed, out)
        else {
            self.let_go(&mut letter);
            self.settle_source(letter.source);
            return 1;
        };
        let mut progress = letter.progress.take().unwrap_or_default();
        let cost = cost_of(&packed, targets.len());
        if !is_addressed {
            let queues = targets.iter().rev().map(|target| target.queue);
            progress.rest = queues.filter(|queue| !progress.done.contains(queue)).collect();
            if progress.rest.len() > TARGETS_AT_ONCE_MAX {
                let lines = &mut self.edge.dead_letters.lines;
                if !lines.may_pass() {
                    progress.rest = Vec::new();
                    letter.progress = Some(progress);
                    lines.wait_for_turn(letter);
                    return cost;
                }
                lines.pass(letter.source.queue);
                progress.is_wide = true;
            }
            progress.attempt = self.edge.dead_letters.ledger.next_number();
        }
        let attempt = progress.attempt;
        let mut asked = 0;
        while let Some(queue) = progress.rest.pop() {
            let is_slice = asked == TARGETS_AT_ONCE_MAX || !self.conditions(out).may_pass_on();
            if is_slice || self.edge.dead_letters.ledger.shelf.attempts.is_crowded(attempt) {
                progress.rest.push(queue);
                break;
            }
            asked += 1;
            match self.post(now, &letter, &packed, queue, out) {
                Posted::Done => {
                    progress.done.insert(queue);
                }
                Posted::Refused => progress.is_refused = true,
                Posted::TooLarge(bytes) => {
                    progress.is_refused = true;
                    if !core::mem::replace(&mut progress.is_told_too_large, true) {
                        self.tell_too_large(letter.source.queue, bytes, out);
                    }
                }
                Posted::NeedsRoom(need) if progress.is_wide => {
                    progress.rest = Vec::new();
                    progress.lacks = Some((need, queue));
                }
                Posted::NeedsRoom(need) => {
                    progress.rest.push(queue);
                    letter.progress = Some(progress);
                    let target = self.directory.id_now(queue);
                    self.let_letter_wait(letter, need, vec![target]);
                    return cost + asked;
                }
                Posted::Waits(number) => {
                    self.edge.dead_letters.ledger.shelf.attempts.ask(attempt, number, queue)
                }
            }
        }
        let has_rest = progress.has_rest();
        letter.progress = Some(progress);
        if has_rest && !self.edge.dead_letters.ledger.shelf.attempts.is_crowded(attempt) {
            self.edge.dead_letters.next.push_front(letter);
            // More than fits into a slice: that ends it.
            return cost + TARGETS_AT_ONCE_MAX;
        }
        if letter.progress.as_ref().is_some_and(|progress| progress.is_wide) {
            // It only waits for reports.
            let max = self.waiting_bytes_max();
            let bytes = letter.progress.as_ref().map_or(0, |progress| progress.list_bytes());
            let bytes = bytes + letter.source.entry.bytes as usize;
            self.edge.dead_letters.lines.give_turn_away(letter.source.queue, bytes, max);
        }
        if let Some(letter) = self.edge.dead_letters.ledger.shelf.attempts.wait(attempt, letter) {
            self.end_attempt(now, letter, out);
        }
        cost + asked
    }

    /// Puts a letter into one queue.
    fn post(
        &mut self,
        now: Now,
        letter: &DeadLetter,
        packed: &[u8],
        queue: QueueId,
        out: &mut Outbox,
    ) -> Posted {
        let source = &letter.source;
        let id = self.directory.id_now(queue);
        let Some(home) = self.directory.queue_by_id(id).map(|info| info.home) else {
            // Deleted meanwhile: another attempt finds out where the letter goes now.
            return Posted::Refused;
        };
        let target = Target { queue: id, home, slot: u32::MAX };
        let own = self.edge.shard;
        let waits = self.is_far(&target) || self.journal.len() > 1;
        let number = waits.then(|| self.edge.dead_letters.ledger.next_number());
        let terms =
            Terms { number, ..terms_of(source, packed, sure_letters_of(own, source.queue)) };
        let mut incoming = Incoming::new(MessageView::unpack(packed));
        if let Some(need) = self.room_behind_others(letter, &incoming, terms.persistent, &[target])
        {
            return Posted::NeedsRoom(need);
        }
        let room = self.room_to_pass_on(&incoming, terms.persistent, &[target], source.occupied());
        match room {
            Room::Now => {}
            Room::Later(need) => return Posted::NeedsRoom(need),
            Room::Never(bytes) => return Posted::TooLarge(bytes),
        }
        let routed = self.enqueue_all(now, &mut incoming, &[target], terms, out);
        incoming.finish(&mut self.edge.pool);
        match number {
            Some(number) if routed.remote + routed.logs > 0 => Posted::Waits(number),
            _ if routed.receipt != Receipt::Taken => Posted::Refused,
            _ => Posted::Done,
        }
    }

    /// A queue has reported about a letter that must arrive.
    pub(super) fn reported_surely(&mut self, number: u64, refused: bool) {
        if let Some(letter) = self.edge.dead_letters.ledger.shelf.attempts.report(number, refused) {
            // It goes on, or ends, with those that are on their way.
            self.edge.dead_letters.next.push_front(letter);
        }
    }

    /// All queues have said what they do with a letter: it has arrived, or waits for another attempt.
    pub(super) fn end_attempt(&mut self, now: Now, mut letter: DeadLetter, out: &mut Outbox) {
        self.leave(&mut letter);
        let mut progress = letter.progress.take().unwrap_or_default();
        if let Some((need, queue)) = progress.lacks.take() {
            // It has given its turn back: others may find room where they go.
            (progress.attempt, progress.is_refused) = (0, false);
            letter.progress = Some(progress);
            return self.wait_anew(letter, need, queue);
        }
        if progress.is_refused || progress.done.is_empty() {
            return self.hold_letter(now, letter, progress, out);
        }
        if let Some(held) =
            self.edge.dead_letters.ledger.shelf.by_queue.get_mut(&letter.source.queue)
        {
            held.pause = PAUSE_MIN;
        }
        letter.progress = Some(progress);
        self.edge.dead_letters.ledger.shelf.let_go(&mut letter);
        self.settle_source(letter.source);
    }

    /// A letter waits for room for a queue, which may be gone or in another log since it was asked for.
    fn wait_anew(&mut self, letter: DeadLetter, need: Need, queue: QueueId) {
        let target = self.directory.id_now(queue);
        if self.directory.queue_by_id(target).is_none() {
            return self.edge.dead_letters.lines.look_anew(letter);
        }
        let mut logs = LogSet::default();
        self.log_of(target).into_iter().for_each(|log| logs.add(log));
        let home = self.home_slot(target, u32::MAX).map(|slot| &self.homes[slot as usize]);
        if home.is_some_and(|home| !home.queue.is_durable()) {
            // There may be memory for it since it was asked for.
            self.spilling.insert(target);
        }
        self.let_letter_wait(letter, Need { logs, ..need }, vec![target]);
    }

    /// A letter is not on its way to its queues any more: what waited for that goes on.
    pub(super) fn leave(&mut self, letter: &mut DeadLetter) {
        let Some(progress) = &mut letter.progress else { return };
        self.edge.dead_letters.ledger.shelf.attempts.forget(progress.attempt);
        if core::mem::take(&mut progress.is_wide) {
            self.edge.dead_letters.lines.passed(letter.source.queue);
        }
    }

    /// A letter has arrived or leaves for good: what waited for that goes on.
    pub(super) fn let_go(&mut self, letter: &mut DeadLetter) {
        self.leave(letter);
        self.edge.dead_letters.ledger.shelf.let_go(letter);
    }

    fn hold_letter(
        &mut self,
        now: Now,
        letter: DeadLetter,
        progress: Box<Progress>,
        out: &mut Outbox,
    ) {
        let queue = letter.source.queue;
        let why =
            if progress.is_refused { "a queue does not take them" } else { "no queue gets them" };
        if self.edge.dead_letters.ledger.shelf.put(letter, progress) {
            self.edge.timers.arm(now.instant + PAUSE_MIN, Timer::Letters(queue));
            let text = format!(
                "dead letters of {} wait there: {why}; they are tried again",
                self.describe_queue(queue)
            );
            out.log(Severity::Warning, "dead-letters-wait", text);
        }
    }

    fn tell_too_large(&self, queue: QueueId, bytes: usize, out: &mut Outbox) {
        let text = format!(
            "a dead letter of {} takes {bytes} bytes in the log, more than may ever be stored while \
             it holds the message itself: it stays there and holds up those behind it until the \
             queue is deleted, its dead-letter exchange leads elsewhere, or store.bytes_max is \
             raised",
            self.describe_queue(queue)
        );
        out.log(Severity::Warning, "dead-letter-too-large", text);
    }

    /// A queue has another id now: letters that have come there do not come again.
    pub(crate) fn redirect_letters(&mut self, old: QueueId, new: QueueId) {
        for letter in self.edge.dead_letters.next.iter_mut() {
            if let Some(progress) = &mut letter.progress {
                progress.redirect(old, new);
            }
        }
        self.edge.dead_letters.lines.redirect(old, new);
        self.edge.dead_letters.ledger.shelf.redirect(old, new);
    }

    /// Drops the letters of a queue that is gone.
    pub(crate) fn forget_letters(&mut self, queue: QueueId) {
        for letter in self.edge.dead_letters.ledger.shelf.forget(queue) {
            self.settle_source(letter.source);
        }
        self.edge.dead_letters.lines.forget(queue);
    }

    /// The pause of a queue's letters is over.
    pub(crate) fn letters_due(&mut self, now: Now, queue: QueueId) {
        let shelf = &mut self.edge.dead_letters.ledger.shelf;
        let Some(held) = shelf.by_queue.get_mut(&queue) else { return };
        if held.is_empty() {
            shelf.by_queue.remove(&queue);
            return;
        }
        let all = held.letters.first_key_value().zip(held.letters.last_key_value());
        let Some(((first, _), (last, _))) = all else {
            // Some of them are on their way, and may come back.
            self.edge.timers.arm(now.instant + held.pause, Timer::Letters(queue));
            return;
        };
        if held.trying.replace((*first, *last)).is_none() {
            shelf.trying.push_back(queue);
        }
        held.pause = (held.pause * 2).min(PAUSE_MAX);
        self.edge.timers.arm(now.instant + held.pause, Timer::Letters(queue));
    }

    /// A new queue may ask for what its other arguments rule out.
    pub(crate) fn tell_strategy(&self, info: &QueueInfo, out: &mut Outbox) {
        let asked =
            info.arguments().get("x-dead-letter-strategy").and_then(|value| value.as_text());
        if asked == Some("at-least-once") && !info.settings().at_least_once {
            let text = format!(
                "dead letters of {} are sent at most once: at-least-once needs a dead-letter \
                 exchange and x-overflow reject-publish",
                self.describe_queue(info.id)
            );
            out.log(Severity::Warning, "dead-letter-strategy", text);
        }
    }

    /// Tries some of the letters again whose pause is over.
    pub(crate) fn try_letters_again(&mut self) {
        if !self.edge.dead_letters.may_try_again() || self.journal.closes() {
            return;
        }
        let Some(queue) = self.edge.dead_letters.ledger.shelf.trying.pop_front() else { return };
        for _ in 0..TRIED_AT_ONCE {
            let Some(letter) = self.edge.dead_letters.ledger.shelf.take(queue) else { return };
            self.edge.dead_letters.next.push_back(letter);
        }
        if self.edge.dead_letters.ledger.shelf.is_trying(queue) {
            self.edge.dead_letters.ledger.shelf.trying.push_back(queue);
        }
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
