//! Dead letters that wait for room in a log, and those that come behind one of their queue that is on its way
//! to very many queues.
//!
//! While a log can still get a further segment, all those of a queue that are behind one that waits for room
//! wait with it. In a full log who waits for room waits alone: those of its queue that need less pass it. Those
//! that need as much of the same logs, or more, keep their order behind it. So a long one is not kept out for
//! ever by short ones behind it that fill the log. The queue itself goes on, up to a length of its line: what its consumers take may be
//! the room that the letter waits for.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use lepus_base::QueueId;

use super::{DeadLetter, Destination, Source};
use crate::awaited::Awaited;
use crate::journal::{LogSet, Need, Reader};
use crate::turns::Turns;

/// Letters in all lines from which on no queue produces more by expiry.
const LETTERS_MAX: usize = 64 << 10;
/// The same for letters of one queue, in its line.
const LINE_MAX: usize = 16 << 10;
/// Letters of one queue that wait for room at once. With so many the next ones of the queue are not looked at. A
/// log that holds so many has room for the shortest of them: it keeps some for what is passed on.
const ROOMLESS_MAX: usize = 64;
/// Letters that are let go on in one go, and lines before some of them have.
const GOING_ON_MAX: usize = 256;

/// For what room a letter waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    /// The log in which it comes free when it is sent.
    frees: Option<u16>,
    /// What it needs.
    need: Need,
    /// Its place among those that need as much.
    turn: u64,
}

impl Wish {
    /// Before all of those that come free in the same log and go to the same ones.
    fn least(self) -> Wish {
        Wish { need: Need { bytes: 0, ..self.need }, turn: 0, ..self }
    }

    /// Behind all of them.
    fn most(self) -> Wish {
        Wish { need: Need { bytes: usize::MAX, ..self.need }, turn: u64::MAX, ..self }
    }
}

/// A letter that is looked at before all others of its queue.
#[derive(Debug)]
struct Ready {
    /// What it waited for, if it goes on because there may be room for that.
    wish: Option<Wish>,
    letter: DeadLetter,
}

/// What a line waits for, but for those of its letters that wait for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    Nothing,
    /// One of those that are on their way to very many queues is in all of them.
    Turn,
    /// Its letter before is in all of its very many queues.
    Pass,
    /// A letter before that was set aside has come into its queues.
    SetAside,
}

/// What waits of one queue; empty only while one of its letters goes to very many queues.
#[derive(Debug, Default)]
struct Line {
    /// In the order in which they are to be sent, without the others.
    letters: VecDeque<DeadLetter>,
    /// Those that wait for room.
    roomless: BTreeMap<Wish, DeadLetter>,
    /// The logs that one waits for which has kept all behind it waiting since then: they can still get more room.
    keeps: Option<LogSet>,
    /// Those that waited for it and go on, in this order.
    ready: VecDeque<Ready>,
    waits: Waits,
    /// Whether the queue is among those that go on.
    is_listed: bool,
    /// The queue itself, if its expiry waits until the line is shorter.
    behind: Option<Reader>,
}

impl Line {
    fn slots_bytes(&self) -> usize {
        self.letters.capacity() * size_of::<DeadLetter>()
            + self.roomless.len() * size_of::<(Wish, DeadLetter)>()
            + self.ready.capacity() * size_of::<Ready>()
    }

    fn len(&self) -> usize {
        self.letters.len() + self.roomless.len() + self.ready.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_long(&self) -> bool {
        self.len() >= LINE_MAX
    }

    /// Whether one of its letters may be looked at.
    fn goes_on(&self) -> bool {
        match self.waits {
            Waits::Nothing => !self.ready.is_empty() || self.may_take_next(),
            // Those that are ready need no turn, or wait for one then.
            Waits::Turn => !self.ready.is_empty(),
            Waits::Pass | Waits::SetAside => false,
        }
    }

    /// Whether the next one may be looked at that has not waited for room, if nothing else is in its way.
    fn may_take_next(&self) -> bool {
        !self.letters.is_empty() && self.keeps.is_none() && self.roomless.len() < ROOMLESS_MAX
    }

    fn letters(&self) -> impl Iterator<Item = &DeadLetter> {
        let ready = self.ready.iter().map(|ready| &ready.letter);
        self.roomless.values().chain(ready).chain(&self.letters)
    }

    fn letters_mut(&mut self) -> impl Iterator<Item = &mut DeadLetter> {
        let ready = self.ready.iter_mut().map(|ready| &mut ready.letter);
        self.roomless.values_mut().chain(ready).chain(&mut self.letters)
    }
}

/// All lines.
#[derive(Debug, Default)]
pub struct Roomless {
    by_queue: BTreeMap<QueueId, Line>,
    /// Queues whose lines go on. One of them may wait again.
    going_on: VecDeque<QueueId>,
    /// What the letters wait for that wait for room, and their queues.
    roomless: BTreeSet<(Wish, QueueId)>,
    /// Lines in which nothing passes those that wait for room, by the logs of these.
    keeping: BTreeSet<(LogSet, QueueId)>,
    /// For which queues they do.
    awaited: Awaited<(Wish, QueueId)>,
    /// Those that are yet to look anew, since such a queue is gone.
    anew: VecDeque<(Wish, QueueId)>,
    /// Whose letter goes to very many queues, and who waits for that.
    turns: Turns,
    /// Whose letter was taken last, if it was called for its turn.
    taken_in_turn: Option<QueueId>,
    /// Whether the letter that was taken last was ready.
    was_ready: bool,
    /// Whether one of a line was taken last, and not one that is in none.
    was_taken_last: bool,
    /// Number of the last letter that began to wait for room.
    last: u64,
    /// Queues whose expiry waits because all lines together are long.
    behind: Vec<Reader>,
    len: usize,
    /// Bytes of the slots of all lines, and of what their letters own.
    bytes: usize,
}

impl Roomless {
    /// Whether no letter is in a line.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a letter waits for room.
    pub(crate) fn waits(&self) -> bool {
        !self.roomless.is_empty()
    }

    /// Whether a letter may be sent.
    pub(crate) fn goes_on(&self) -> bool {
        !self.going_on.is_empty() || self.turns.can_call()
    }

    /// Whether letters of this queue are in a line, or would have to be.
    #[inline]
    pub(crate) fn has_of(&self, queue: QueueId) -> bool {
        !self.by_queue.is_empty() && self.by_queue.contains_key(&queue)
    }

    /// Whether a queue is to produce no more letters by expiry.
    #[inline]
    pub(crate) fn holds_back(&self, queue: QueueId) -> bool {
        self.len >= LETTERS_MAX
            || (!self.by_queue.is_empty() && self.by_queue.get(&queue).is_some_and(Line::is_long))
    }

    /// Notes that a queue's expiry waits, if it does so because of the lines. It is woken when what
    /// it waits for is gone.
    pub(crate) fn wait_behind(&mut self, reader: Reader) -> bool {
        if let Some(line) = self.by_queue.get_mut(&reader.1).filter(|line| line.is_long()) {
            line.behind = Some(reader);
            return true;
        }
        let is_long = self.len >= LETTERS_MAX;
        if is_long {
            self.behind.push(reader);
        }
        is_long
    }

    /// Whether a queue's expiry waits until its line is shorter, or all lines are.
    pub(super) fn is_behind_line(&self, queue: QueueId) -> bool {
        let line = self.by_queue.get(&queue);
        line.is_some_and(|line| line.behind.is_some())
            || self.behind.iter().any(|reader| reader.1 == queue)
    }

    /// The queues whose line waits until a letter that was set aside has come into its queues.
    pub(super) fn behind_set_aside(&self) -> impl Iterator<Item = QueueId> {
        let waiting = self.by_queue.iter().filter(|(_, line)| line.waits == Waits::SetAside);
        waiting.map(|(queue, _)| *queue)
    }

    /// Where all are.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.by_queue.values().flat_map(Line::letters).map(|letter| &letter.source)
    }

    /// Puts a letter behind those of its queue.
    pub(super) fn push(&mut self, letter: DeadLetter) {
        self.put(letter, |line, letter| line.letters.push_back(letter));
    }

    /// Has a letter wait until its logs have room, or one of these queues is gone, for which it needs that. Those
    /// of its queue that were let go on with it wait again: what there was of room is used. Those behind it wait,
    /// too, unless one of its logs `is_full`.
    pub(super) fn wait(
        &mut self,
        mut letter: DeadLetter,
        need: Need,
        targets: Vec<QueueId>,
        is_full: bool,
    ) {
        let queue = letter.source.queue;
        if letter.turn == 0 {
            self.last += 1;
            letter.turn = self.last;
        }
        let wish = Wish { frees: letter.source.occupied().frees(), need, turn: letter.turn };
        let mut again = Vec::new();
        let mut keeps = false;
        self.put(letter, |line, letter| {
            if line.roomless.is_empty() && !is_full {
                assert!(line.keeps.is_none(), "a letter that does not wait keeps others waiting");
                (line.keeps, keeps) = (Some(need.logs), true);
            }
            for ready in core::mem::take(&mut line.ready) {
                match ready.wish {
                    Some(wish) => {
                        line.roomless.insert(wish, ready.letter);
                        again.push(wish);
                    }
                    None => line.ready.push_back(ready),
                }
            }
            let other = line.roomless.insert(wish, letter);
            assert!(other.is_none(), "two letters wait in one place");
        });
        if keeps {
            self.keeping.insert((need.logs, queue));
        }
        again.push(wish);
        self.roomless.extend(again.into_iter().map(|wish| (wish, queue)));
        self.awaited.wait((wish, queue), targets);
    }

    /// Whether letters of this queue wait for room, behind which others may have to wait.
    pub(super) fn has_roomless_of(&self, queue: QueueId) -> bool {
        self.by_queue.get(&queue).is_some_and(|line| !line.roomless.is_empty())
    }

    /// Whether one of the letter's queue waits for no more than what it needs, in the same logs, and came before.
    pub(super) fn is_behind(&self, source: &Source, turn: u64, need: Need) -> bool {
        let turn = if turn == 0 { u64::MAX } else { turn };
        let wish = Wish { frees: source.occupied().frees(), need, turn };
        let line = self.by_queue.get(&source.queue);
        line.is_some_and(|line| line.roomless.range(wish.least()..wish).next().is_some())
    }

    /// A queue is gone, deleted or on its way to another shard: letters that need room for it find out anew
    /// what they need.
    pub(crate) fn target_left(&mut self, target: QueueId) {
        self.anew.extend(self.awaited.waiters_for(target));
        self.let_some_look_anew();
    }

    /// Whether letters are yet to look anew.
    pub(crate) fn has_anew(&self) -> bool {
        !self.anew.is_empty()
    }

    /// Lets some of the letters look anew that are yet to do so: first those of a queue that need least.
    pub(super) fn let_some_look_anew(&mut self) {
        for _ in 0..GOING_ON_MAX {
            let Some((wish, queue)) = self.anew.pop_front() else { break };
            self.let_look_anew(wish, queue);
        }
        if self.anew.is_empty() {
            self.anew = VecDeque::new();
        }
    }

    /// Lets a letter go on that waits for room, behind those of its queue that do so, too. One that goes on already
    /// does not wait for the same again.
    fn let_look_anew(&mut self, wish: Wish, queue: QueueId) {
        let Some(line) = self.by_queue.get_mut(&queue) else {
            return race!("the dead letters of the queue left before they looked anew");
        };
        self.bytes -= line.slots_bytes();
        self.awaited.end((wish, queue));
        if let Some(letter) = line.roomless.remove(&wish) {
            self.roomless.remove(&(wish, queue));
            line.ready.push_back(Ready { wish: None, letter });
        } else if let Some(ready) = line.ready.iter_mut().find(|ready| ready.wish == Some(wish)) {
            ready.wish = None;
        }
        self.bytes += line.slots_bytes();
        self.keep_no_more(queue, false);
        self.arrange(queue);
    }

    /// Puts a letter in front of those of its queue: it finds out anew what it needs.
    pub(super) fn look_anew(&mut self, letter: DeadLetter) {
        self.put(letter, |line, letter| line.ready.push_front(Ready { wish: None, letter }));
    }

    /// Whether the next letter is one of a line, where there are others: they take turns.
    pub(super) fn is_next(&mut self, has_others: bool) -> bool {
        self.was_taken_last = self.goes_on() && !(has_others && self.was_taken_last);
        self.was_taken_last
    }

    /// Whether one more letter may be on its way to very many queues, beside those whose turn it is.
    pub(super) fn may_pass(&self) -> bool {
        self.turns.has_free()
    }

    /// Lets those go on whose turn it is. One that does not use it, since it goes to few queues now, leaves
    /// it to the next.
    fn give_turns(&mut self) {
        while let Some(queue) = self.turns.pop() {
            self.change(queue, Waits::Nothing);
            self.turns.call(queue);
        }
    }

    /// Puts a letter in front of those of its queue, where it waits until it may be on its way to very
    /// many queues.
    pub(super) fn wait_for_turn(&mut self, letter: DeadLetter) {
        self.wait_for(letter, Waits::Turn);
    }

    fn wait_for(&mut self, letter: DeadLetter, waits: Waits) {
        let queue = letter.source.queue;
        self.put(letter, |line, letter| line.letters.push_front(letter));
        self.change(queue, waits);
    }

    /// Puts a letter in front of those of its queue, where it waits until one that was set aside has come into
    /// its queues.
    pub(super) fn wait_behind_set_aside(&mut self, letter: DeadLetter) {
        self.wait_for(letter, Waits::SetAside);
    }

    /// What was set aside of a queue has come into its queues: those behind it go on.
    pub(super) fn set_aside_over(&mut self, queue: QueueId) {
        if self.by_queue.get(&queue).is_some_and(|line| line.waits == Waits::SetAside) {
            self.change(queue, Waits::Nothing);
        }
    }

    /// A letter of the queue goes to very many queues: the next ones wait until it is in all of them.
    pub(super) fn pass(&mut self, queue: QueueId) {
        self.turns.begin(queue);
        self.by_queue.entry(queue).or_default();
        self.change(queue, Waits::Pass);
    }

    /// A letter on its way to very many queues, which takes so many bytes, can only wait: those of other queues
    /// need not do so for it.
    pub(super) fn give_turn_away(&mut self, queue: QueueId, bytes: usize, max: usize) {
        self.turns.give_away(queue, bytes, max);
    }

    /// The letter is in all of its very many queues: those behind it go on.
    pub(super) fn passed(&mut self, queue: QueueId) {
        self.turns.end(queue);
        let line = self.by_queue.get(&queue).filter(|line| line.waits == Waits::Pass);
        match line.map(Line::is_empty) {
            Some(true) => self.remove(queue),
            Some(false) => self.change(queue, Waits::Nothing),
            None => {}
        }
    }

    /// Removes the line of a queue, which is empty.
    fn remove(&mut self, queue: QueueId) {
        if let Some(line) = self.by_queue.remove(&queue) {
            assert!(line.is_empty() && line.behind.is_none(), "a line is forgotten");
            assert!(line.keeps.is_none(), "a line without letters keeps some waiting");
            self.bytes -= line.slots_bytes();
        }
    }

    /// Has a queue's line wait for this and nothing else.
    fn change(&mut self, queue: QueueId, waits: Waits) {
        let Some(line) = self.by_queue.get_mut(&queue) else {
            invariant!("a queue whose dead letters wait has a line of them")
        };
        self.turns.answer(queue);
        if core::mem::replace(&mut line.waits, waits) == Waits::Turn {
            self.turns.stop_waiting(queue);
        }
        if waits == Waits::Turn {
            self.turns.wait(queue);
        }
        self.arrange(queue);
    }

    /// Has a queue be among those that go on if its line does.
    fn arrange(&mut self, queue: QueueId) {
        let Some(line) = self.by_queue.get_mut(&queue) else {
            return race!("the last dead letter of the queue left its line");
        };
        if !line.goes_on() {
            self.unlist_first(queue);
        } else if !core::mem::replace(&mut line.is_listed, true) {
            self.going_on.push_back(queue);
        }
    }

    /// Puts the letter back that [`Roomless::take`] gave: it is the next one.
    pub(super) fn put_back(&mut self, letter: DeadLetter) {
        let queue = letter.source.queue;
        if self.taken_in_turn == Some(queue) {
            self.turns.call(queue);
        }
        let was_ready = self.was_ready;
        let line = self.by_queue.entry(queue).or_default();
        if !core::mem::replace(&mut line.is_listed, true) {
            self.going_on.push_front(queue);
        }
        self.put(letter, |line, letter| match was_ready {
            true => line.ready.push_front(Ready { wish: None, letter }),
            false => line.letters.push_front(letter),
        });
    }

    /// Takes the next letter that may be sent, and whose expiry waited for fewer of them and goes on.
    pub(super) fn take(&mut self) -> Option<(DeadLetter, Vec<Reader>)> {
        self.give_turns();
        while let Some(&queue) = self.going_on.front() {
            let Some(line) = self.by_queue.get_mut(&queue).filter(|line| line.goes_on()) else {
                self.unlist_first(queue);
                continue;
            };
            self.bytes -= line.slots_bytes();
            let ready = line.ready.pop_front();
            if line.ready.is_empty() {
                line.ready = VecDeque::new();
            }
            self.was_ready = ready.is_some();
            let mut letter = match ready {
                Some(Ready { wish, letter }) => {
                    wish.into_iter().for_each(|wish| self.awaited.end((wish, queue)));
                    letter
                }
                None => line.letters.pop_front().expect("a line that goes on has a letter"),
            };
            self.bytes += line.slots_bytes();
            // One that waited for room leaves the turn to the one that was called for it.
            let is_in_turn = !self.was_ready && self.turns.answer(queue);
            self.taken_in_turn = is_in_turn.then_some(queue);
            self.len -= 1;
            self.bytes -= letter.progress.as_mut().map_or(0, |progress| progress.discount());
            let mut woken = Vec::new();
            if line.len() < LINE_MAX / 2 {
                woken.extend(line.behind.take());
            }
            if line.is_empty() {
                self.remove(queue);
                self.unlist_first(queue);
            } else {
                self.arrange(queue);
            }
            if self.len < LETTERS_MAX / 2 {
                woken.append(&mut self.behind);
            }
            return Some((letter, woken));
        }
        None
    }

    /// Lets letters go on as far as there is room, as `has_room` says of what one needs that comes
    /// free in a log: those first that need least, so that one that needs more than there is keeps none
    /// waiting.
    pub(super) fn give_room(&mut self, mut has_room: impl FnMut(Need, Option<u16>) -> bool) {
        let mut next = self.roomless.first().copied();
        let mut looks = 0;
        while looks < GOING_ON_MAX
            && self.going_on.len() < GOING_ON_MAX
            && let Some((wish, queue)) = next
        {
            looks += 1;
            let mut from = (wish, queue);
            if has_room(wish.need, wish.frees) {
                self.let_go_on(wish, queue);
            } else {
                // Those that come free in the same log and go to the same ones need as much at least.
                from.0 = wish.most();
            }
            let rest = (Bound::Excluded(from), Bound::Unbounded);
            next = self.roomless.range(rest).next().copied();
        }
    }

    /// Lets a letter go on behind those of its queue that do so, too.
    fn let_go_on(&mut self, wish: Wish, queue: QueueId) {
        self.roomless.remove(&(wish, queue));
        let line = self.by_queue.get_mut(&queue).expect("who waits for room has a line");
        self.bytes -= line.slots_bytes();
        let letter = line.roomless.remove(&wish).expect("who waits for room is in its line");
        line.ready.push_back(Ready { wish: Some(wish), letter });
        self.bytes += line.slots_bytes();
        self.keep_no_more(queue, false);
        self.arrange(queue);
    }

    /// Has those of a line that wait for room keep no others waiting, if there are none or in any case.
    fn keep_no_more(&mut self, queue: QueueId, in_any_case: bool) {
        if let Some(line) = self.by_queue.get_mut(&queue)
            && (in_any_case || line.roomless.is_empty())
            && let Some(logs) = line.keeps.take()
        {
            self.keeping.remove(&(logs, queue));
        }
    }

    /// Whether [`Roomless::let_pass`] would let a line go on.
    pub(crate) fn can_let_pass(&self, mut is_full: impl FnMut(LogSet) -> bool) -> bool {
        self.first_to_let_pass(&mut is_full).is_some()
    }

    /// The first line whose logs are full in which nothing passes those that wait for room.
    fn first_to_let_pass(&self, is_full: &mut impl FnMut(LogSet) -> bool) -> Option<QueueId> {
        let mut next = self.keeping.first();
        while let Some(&(logs, queue)) = next {
            if is_full(logs) {
                return Some(queue);
            }
            let rest = (Bound::Excluded((logs, QueueId(u64::MAX))), Bound::Unbounded);
            next = self.keeping.range(rest).next();
        }
        None
    }

    /// Has those that need less pass those of their queue that wait for room in a log that `is_full`: there is none
    /// before something comes free, and what holds it may be behind them.
    pub(super) fn let_pass(&mut self, mut is_full: impl FnMut(LogSet) -> bool) {
        for _ in 0..GOING_ON_MAX {
            let Some(queue) = self.first_to_let_pass(&mut is_full) else { return };
            self.keep_no_more(queue, true);
            self.arrange(queue);
        }
    }

    /// What waits of a queue that is gone needs no room any more: it goes on, to its end.
    pub(super) fn forget(&mut self, queue: QueueId) {
        let Some(line) = self.by_queue.get(&queue) else { return };
        if line.is_empty() {
            return self.remove(queue);
        }
        let wishes: Vec<Wish> = line.roomless.keys().copied().collect();
        wishes.into_iter().for_each(|wish| self.let_look_anew(wish, queue));
        self.change(queue, Waits::Nothing);
    }

    /// A queue has another id now: letters that have come there do not come again.
    pub(super) fn redirect(&mut self, old: QueueId, new: QueueId) {
        let letters = self.by_queue.values_mut().flat_map(Line::letters_mut);
        for progress in letters.filter_map(|letter| letter.progress.as_mut()) {
            progress.redirect(old, new);
        }
    }

    /// Those of a queue go where they were to go before a change. How many there are.
    pub(super) fn keep_destination(&mut self, queue: QueueId, before: &Arc<Destination>) -> usize {
        let Some(line) = self.by_queue.get_mut(&queue) else { return 0 };
        line.letters_mut().for_each(|letter| letter.keep_destination(before));
        line.len()
    }

    /// The letters of a queue.
    #[cfg(test)]
    pub(super) fn letters_of(&self, queue: QueueId) -> impl Iterator<Item = &DeadLetter> {
        self.by_queue.get(&queue).into_iter().flat_map(Line::letters)
    }

    /// Bytes that it takes, beside bodies.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.by_queue.len() * size_of::<(QueueId, Line)>()
            + self.going_on.capacity() * size_of::<QueueId>()
            + self.behind.capacity() * size_of::<Reader>()
            + self.roomless.len() * size_of::<(Wish, QueueId)>()
            + self.keeping.len() * size_of::<(LogSet, QueueId)>()
            + self.anew.capacity() * size_of::<(Wish, QueueId)>()
            + self.awaited.memory_bytes()
            + self.turns.memory_bytes()
    }

    /// Puts a letter into its queue's line, at a place of it.
    fn put(&mut self, mut letter: DeadLetter, place: impl FnOnce(&mut Line, DeadLetter)) {
        self.len += 1;
        self.bytes += letter.progress.as_mut().map_or(0, |progress| progress.count());
        let queue = letter.source.queue;
        let line = self.by_queue.entry(queue).or_default();
        self.bytes -= line.slots_bytes();
        place(line, letter);
        self.bytes += line.slots_bytes();
        self.arrange(queue);
    }

    /// Takes a queue off the list if it is the first there.
    fn unlist_first(&mut self, queue: QueueId) {
        if self.going_on.front() == Some(&queue) {
            self.going_on.pop_front();
            if let Some(line) = self.by_queue.get_mut(&queue) {
                line.is_listed = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::super::held::Progress;
    use super::super::tests::letter_of;
    use super::*;

    /// So many bytes in the shard's own log.
    fn own(bytes: usize) -> Need {
        Need { logs: LogSet::OWN, bytes }
    }

    fn next(lines: &mut Roomless) -> Option<(u64, u64)> {
        let (letter, _) = lines.take()?;
        Some((letter.source.queue.0, letter.source.entry.seq))
    }

    #[test]
    fn who_waits_for_room_waits_alone_and_goes_on_when_there_is_room() {
        let mut lines = Roomless::default();
        lines.wait(letter_of(1, 10), own(1_000), Vec::new(), true);
        lines.wait(letter_of(2, 20), own(10), Vec::new(), true);
        assert!(lines.waits() && !lines.goes_on());
        lines.push(letter_of(1, 11));
        assert_eq!(next(&mut lines), Some((1, 11)));
        assert_eq!(next(&mut lines), None);
        lines.push(letter_of(2, 21));
        lines.give_room(|need, _| need.bytes <= 10);
        assert_eq!(next(&mut lines), Some((2, 20)));
        assert_eq!(next(&mut lines), Some((2, 21)));
        assert_eq!(next(&mut lines), None);
        assert!(!lines.has_of(QueueId(2)) && lines.has_of(QueueId(1)) && !lines.goes_on());
        lines.push(letter_of(1, 12));
        lines.give_room(|_, _| true);
        let (first, _) = lines.take().expect("the large one");
        lines.put_back(first);
        assert_eq!(next(&mut lines), Some((1, 10)));
        let (last, _) = lines.take().expect("the one behind");
        lines.wait(last, own(5), Vec::new(), true);
        assert!(lines.waits() && !lines.goes_on());
        lines.forget(QueueId(1));
        assert_eq!(next(&mut lines), Some((1, 12)));
        assert!(lines.is_empty() && !lines.goes_on() && lines.bytes == 0);
    }

    #[test]
    fn nothing_passes_one_that_waits_for_room_while_its_log_can_get_more() {
        let mut lines = Roomless::default();
        lines.wait(letter_of(1, 10), own(100), Vec::new(), false);
        lines.push(letter_of(1, 11));
        lines.wait(letter_of(2, 20), own(100), Vec::new(), false);
        lines.push(letter_of(2, 21));
        assert!(!lines.goes_on() && !lines.can_let_pass(|_| false));
        let mut is_first = true;
        lines.give_room(|_, _| core::mem::take(&mut is_first));
        assert_eq!(next(&mut lines), Some((1, 10)));
        assert_eq!(next(&mut lines), Some((1, 11)));
        assert_eq!(next(&mut lines), None);
        lines.let_pass(|_| false);
        assert!(!lines.goes_on() && lines.can_let_pass(|logs| logs == LogSet::OWN));
        lines.let_pass(|logs| logs == LogSet::OWN);
        assert!(!lines.can_let_pass(|_| true));
        assert_eq!(next(&mut lines), Some((2, 21)));
        assert_eq!(next(&mut lines), None);
        // Once none waits any more it is as before.
        lines.give_room(|_, _| true);
        let (long, _) = lines.take().expect("the long one");
        lines.wait(long, own(100), Vec::new(), false);
        lines.push(letter_of(2, 22));
        assert!(!lines.goes_on());
        lines.forget(QueueId(2));
        assert_eq!(next(&mut lines), Some((2, 20)));
        assert_eq!(next(&mut lines), Some((2, 22)));
        assert!(lines.is_empty() && lines.keeping.is_empty() && lines.bytes == 0);
    }

    #[test]
    fn who_needs_as_much_as_one_that_waits_or_more_is_behind_it_and_nobody_else() {
        let mut lines = Roomless::default();
        let mut other_log = LogSet::default();
        other_log.add(1);
        lines.wait(letter_of(1, 10), own(100), Vec::new(), true);
        let later = letter_of(1, 11).source;
        assert!(lines.has_roomless_of(QueueId(1)) && !lines.has_roomless_of(QueueId(2)));
        assert!(!lines.is_behind(&later, 0, own(99)));
        assert!(lines.is_behind(&later, 0, own(100)) && lines.is_behind(&later, 0, own(101)));
        assert!(!lines.is_behind(&later, 0, Need { logs: other_log, bytes: 101 }));
        assert!(!lines.is_behind(&letter_of(2, 20).source, 0, own(101)));
        lines.wait(letter_of(1, 11), own(100), Vec::new(), true);
        lines.wait(letter_of(1, 12), own(50), Vec::new(), true);
        lines.give_room(|_, _| true);
        assert_eq!(next(&mut lines), Some((1, 12)));
        // There is no room for it: those that were to follow wait again, in their order.
        let (first, _) = lines.take().expect("the first goes on before the second");
        assert_eq!((first.source.entry.seq, first.turn), (10, 1));
        assert!(!lines.is_behind(&first.source, first.turn, own(100)));
        lines.wait(first, own(100), Vec::new(), true);
        assert!(!lines.goes_on());
        lines.give_room(|_, _| true);
        assert_eq!(next(&mut lines), Some((1, 10)));
        assert_eq!(next(&mut lines), Some((1, 11)));
        assert!(lines.is_empty() && lines.bytes == 0 && lines.awaited.memory_bytes() == 0);
    }

    #[test]
    fn behind_very_many_that_wait_for_room_no_more_of_their_queue_are_looked_at() {
        let mut lines = Roomless::default();
        for seq in 0..ROOMLESS_MAX as u64 {
            assert!(!lines.goes_on());
            lines.wait(letter_of(1, seq), own(10), Vec::new(), true);
        }
        lines.push(letter_of(1, 100));
        lines.push(letter_of(2, 0));
        assert_eq!(next(&mut lines), Some((2, 0)));
        assert_eq!(next(&mut lines), None);
        let mut is_first = true;
        lines.give_room(|_, _| core::mem::take(&mut is_first));
        assert_eq!(next(&mut lines), Some((1, 0)));
        assert_eq!(next(&mut lines), Some((1, 100)), "one less waits");
        assert_eq!(next(&mut lines), None);
        lines.forget(QueueId(1));
        let seqs: Vec<_> = core::iter::from_fn(|| next(&mut lines)).map(|(_, seq)| seq).collect();
        assert_eq!(seqs, (1..ROOMLESS_MAX as u64).collect::<Vec<_>>());
        assert!(lines.is_empty() && lines.bytes == 0);
    }

    #[test]
    fn what_has_room_needs_no_turn_and_takes_none_away() {
        let mut lines = Roomless::default();
        (0..8).for_each(|queue| lines.pass(QueueId(queue)));
        lines.wait(letter_of(20, 1), own(10), Vec::new(), true);
        lines.wait_for_turn(letter_of(20, 2));
        assert!(!lines.goes_on());
        lines.give_room(|_, _| true);
        assert_eq!(next(&mut lines), Some((20, 1)));
        assert_eq!(next(&mut lines), None);
        lines.wait(letter_of(20, 3), own(10), Vec::new(), true);
        lines.give_room(|_, _| true);
        lines.passed(QueueId(0));
        assert_eq!(next(&mut lines), Some((20, 3)));
        assert!(!lines.may_pass(), "the turn is for the one that was called");
        assert_eq!(next(&mut lines), Some((20, 2)));
        lines.pass(QueueId(20));
        // Behind one that goes to very many queues nothing does, whatever it waited for.
        lines.wait(letter_of(20, 4), own(10), Vec::new(), true);
        lines.give_room(|_, _| true);
        assert_eq!(next(&mut lines), None);
        lines.passed(QueueId(20));
        assert_eq!(next(&mut lines), Some((20, 4)));
        assert!(lines.is_empty() && !lines.has_of(QueueId(20)));
    }

    #[test]
    fn who_needs_room_for_a_queue_that_is_gone_looks_anew_and_nobody_else() {
        let mut lines = Roomless::default();
        let targets = |queues: &[u64]| queues.iter().map(|&queue| QueueId(queue)).collect();
        lines.wait(letter_of(1, 10), own(1_000), targets(&[7, 8]), true);
        lines.wait(letter_of(2, 20), own(1_000), targets(&[8, 9]), true);
        lines.target_left(QueueId(5));
        assert!(!lines.goes_on());
        lines.target_left(QueueId(7));
        assert_eq!(next(&mut lines), Some((1, 10)));
        assert_eq!(next(&mut lines), None);
        lines.wait(letter_of(1, 11), own(1_000), targets(&[8]), true);
        lines.target_left(QueueId(7));
        assert!(!lines.goes_on());
        lines.target_left(QueueId(8));
        assert_eq!(next(&mut lines), Some((2, 20)));
        assert_eq!(next(&mut lines), Some((1, 11)));
        assert!(lines.is_empty() && lines.awaited.memory_bytes() == 0);
    }

    #[test]
    fn who_was_let_go_on_needs_no_room_for_a_queue_that_is_gone_meanwhile() {
        let mut lines = Roomless::default();
        for (seq, target) in [(10, 7), (11, 8)] {
            lines.wait(letter_of(1, seq), own(100), Vec::from([QueueId(target)]), true);
        }
        lines.give_room(|_, _| true);
        lines.target_left(QueueId(8));
        // The room is used meanwhile.
        let (first, _) = lines.take().expect("the first goes on");
        lines.wait(first, own(100), Vec::from([QueueId(7)]), true);
        assert_eq!(next(&mut lines), Some((1, 11)));
        assert_eq!(next(&mut lines), None);
        lines.target_left(QueueId(7));
        assert_eq!(next(&mut lines), Some((1, 10)));
        assert!(lines.is_empty() && lines.bytes == 0 && lines.awaited.memory_bytes() == 0);
    }

    #[test]
    fn of_very_many_some_look_anew_at_once_and_those_of_a_queue_in_their_order() {
        let mut lines = Roomless::default();
        for seq in 0..ROOMLESS_MAX as u64 {
            let target = || Vec::from([QueueId(100)]);
            (0..10).for_each(|queue| lines.wait(letter_of(queue, seq), own(10), target(), true));
        }
        lines.target_left(QueueId(100));
        let (mut seen, mut rounds) = ([0; 10], 0);
        loop {
            let mut count = 0;
            while let Some((queue, seq)) = next(&mut lines) {
                assert_eq!(core::mem::replace(&mut seen[queue as usize], seq + 1), seq);
                count += 1;
            }
            assert!(0 < count && count <= GOING_ON_MAX, "{count} at once");
            rounds += 1;
            if !lines.has_anew() {
                break;
            }
            lines.let_some_look_anew();
        }
        assert_eq!((seen, rounds), ([ROOMLESS_MAX as u64; 10], 3));
        assert!(lines.is_empty() && lines.awaited.memory_bytes() == 0);
    }

    #[test]
    fn letters_of_lines_and_others_take_turns() {
        let mut lines = Roomless::default();
        (1..4).for_each(|queue| lines.wait(letter_of(queue, 0), own(1), Vec::new(), true));
        assert!(!lines.is_next(true));
        lines.give_room(|_, _| true);
        assert!(lines.is_next(true) && next(&mut lines).is_some());
        assert!(!lines.is_next(true));
        assert!(lines.is_next(true) && next(&mut lines).is_some());
        assert!(lines.is_next(false) && next(&mut lines).is_some());
        assert!(!lines.is_next(false));
    }

    #[test]
    fn a_queue_waits_for_its_own_line_alone_and_only_if_that_is_long() {
        let mut lines = Roomless::default();
        lines.wait(letter_of(1, 0), own(7), Vec::new(), true);
        let last = LINE_MAX as u64 - 1;
        for seq in 1..=last {
            assert!(!lines.holds_back(QueueId(1)));
            lines.push(letter_of(1, seq));
        }
        assert!(lines.holds_back(QueueId(1)) && !lines.holds_back(QueueId(2)));
        assert!(lines.wait_behind((5, QueueId(1))) && !lines.wait_behind((6, QueueId(2))));
        lines.give_room(|_, _| true);
        let woken: Vec<_> = core::iter::from_fn(|| lines.take())
            .filter_map(|(letter, woken)| Some((letter.source.entry.seq, *woken.first()?)))
            .collect();
        assert_eq!(woken, [(LINE_MAX as u64 / 2, (5, QueueId(1)))]);
        assert!(!lines.has_of(QueueId(1)) && lines.is_empty());
    }

    #[test]
    fn one_that_goes_to_very_many_queues_keeps_only_those_of_its_own_queue_waiting() {
        let mut lines = Roomless::default();
        lines.pass(QueueId(1));
        assert!(lines.has_of(QueueId(1)) && !lines.has_of(QueueId(2)) && lines.is_empty());
        lines.push(letter_of(1, 11));
        lines.wait(letter_of(2, 20), own(10), Vec::new(), true);
        lines.give_room(|_, _| true);
        assert_eq!(next(&mut lines), Some((2, 20)));
        assert_eq!(next(&mut lines), None);
        lines.passed(QueueId(1));
        assert_eq!(next(&mut lines), Some((1, 11)));
        assert!(!lines.has_of(QueueId(1)) && lines.bytes == 0);

        lines.pass(QueueId(1));
        assert!(!lines.holds_back(QueueId(1)));
        lines.passed(QueueId(1));
        assert!(!lines.has_of(QueueId(1)) && lines.bytes == 0);
    }

    #[test]
    fn few_go_to_very_many_queues_at_once_and_the_others_follow() {
        let mut lines = Roomless::default();
        (0..8).for_each(|queue| lines.pass(QueueId(queue)));
        assert!(!lines.may_pass());
        lines.wait_for_turn(letter_of(20, 1));
        lines.wait_for_turn(letter_of(21, 1));
        lines.wait_for_turn(letter_of(22, 1));
        lines.wait_for_turn(letter_of(23, 1));
        lines.give_room(|_, _| true);
        assert_eq!(next(&mut lines), None);
        lines.forget(QueueId(20));
        assert_eq!(next(&mut lines), Some((20, 1)));
        assert_eq!(next(&mut lines), None);
        // What was forgotten takes no turn away.
        lines.forget(QueueId(0));
        assert!(!lines.goes_on());
        lines.passed(QueueId(0));
        assert!(lines.may_pass() && lines.goes_on());
        // It is read first, and keeps its turn meanwhile.
        let (letter, _) = lines.take().expect("one has its turn");
        lines.put_back(letter);
        assert!(!lines.may_pass());
        assert_eq!(next(&mut lines), Some((21, 1)));
        lines.pass(QueueId(21));
        assert_eq!(next(&mut lines), None);
        lines.passed(QueueId(1));
        assert_eq!(next(&mut lines), Some((22, 1)));
        // It goes to few queues now.
        assert_eq!(next(&mut lines), Some((23, 1)));
        assert!(!lines.goes_on());
        lines.passed(QueueId(21));
        assert!(lines.is_empty() && !lines.has_of(QueueId(21)));
    }

    #[test]
    fn among_those_that_need_as_much_room_each_has_its_turn() {
        let mut lines = Roomless::default();
        for seq in 0..3 {
            lines.wait(letter_of(9, seq), own(10), Vec::new(), true);
            lines.wait(letter_of(1, seq), own(10), Vec::new(), true);
            for queue in [9, 1] {
                let mut is_first = true;
                lines.give_room(|_, _| core::mem::take(&mut is_first));
                assert_eq!(next(&mut lines), Some((queue, seq)));
                assert_eq!(next(&mut lines), None);
            }
        }
    }

    #[test]
    fn what_the_lines_take_is_counted_until_they_are_gone() {
        let mut lines = Roomless::default();
        for seq in 0..100 {
            let mut letter = letter_of(1, seq);
            letter.progress = Some(Box::new(Progress::after(1_000)));
            lines.push(letter);
        }
        assert!(lines.memory_bytes() > 1_600_000, "{}", lines.memory_bytes());
        lines.forget(QueueId(1));
        while lines.take().is_some() {}
        assert_eq!(lines.bytes, 0);
        assert!(lines.memory_bytes() < 100, "{}", lines.memory_bytes());
    }
}
