//! Dead letters that wait for room in a log, and those that come behind one of their queue that waits, or
//! that is on its way to very many queues.
//!
//! Each queue has a line of its own: one that needs much room, or waits for ever, keeps back only the
//! letters of its own queue. The queue itself goes on, up to a length of its line: what its consumers
//! take may be the room that the letter waits for.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

use lepus_base::QueueId;

use super::{DeadLetter, Source};
use crate::awaited::Awaited;
use crate::journal::{Need, Reader};
use crate::turns::Turns;

/// Letters in all lines from which on no queue produces more by expiry.
const LETTERS_MAX: usize = 64 << 10;
/// The same for letters of one queue, in its line.
const LINE_MAX: usize = 16 << 10;
/// Lines that are let go on before some of them have.
const GOING_ON_MAX: usize = 256;

/// For what room a line waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    /// The log in which its first letter comes free when it is sent.
    frees: Option<u16>,
    /// What it needs.
    need: Need,
    /// Which of those it is that wait for as many.
    turn: u64,
}

/// What a line waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    Nothing,
    /// Room in logs.
    Room(Wish),
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
    /// In the order in which they are to be sent.
    letters: VecDeque<DeadLetter>,
    waits: Waits,
    /// Whether the queue is among those that go on.
    is_listed: bool,
    /// The queue itself, if its expiry waits until the line is shorter.
    behind: Option<Reader>,
}

impl Line {
    fn slots_bytes(&self) -> usize {
        self.letters.capacity() * size_of::<DeadLetter>()
    }

    fn is_long(&self) -> bool {
        self.letters.len() >= LINE_MAX
    }
}

/// All lines.
#[derive(Debug, Default)]
pub struct Roomless {
    by_queue: BTreeMap<QueueId, Line>,
    /// Queues whose lines go on. One of them may wait again.
    going_on: VecDeque<QueueId>,
    /// Those that wait for room.
    roomless: BTreeSet<(Wish, QueueId)>,
    /// For which queues they do.
    awaited: Awaited<QueueId>,
    /// Whose letter goes to very many queues, and who waits for that.
    turns: Turns,
    /// Whose letter was taken last, if it was called for its turn.
    taken_in_turn: Option<QueueId>,
    /// Whether one of a line was taken last, and not one that is in none.
    was_taken_last: bool,
    /// Number of the last that began to wait for room.
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

    /// Where all are.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.by_queue.values().flat_map(|line| &line.letters).map(|letter| &letter.source)
    }

    /// Puts a letter behind those of its queue.
    pub(super) fn push(&mut self, letter: DeadLetter) {
        self.put(letter, VecDeque::push_back);
    }

    /// Puts a letter in front of those of its queue, where it waits until its logs have room, or one of these
    /// queues is gone, for which it needs that.
    pub(super) fn wait(&mut self, letter: DeadLetter, need: Need, targets: Vec<QueueId>) {
        self.last += 1;
        let (queue, frees) = (letter.source.queue, letter.source.occupied().frees());
        self.wait_for(letter, Waits::Room(Wish { frees, need, turn: self.last }));
        self.awaited.wait(queue, targets);
    }

    /// A queue is gone, deleted or on its way to another shard: letters that need room for it find out anew
    /// what they need.
    pub(crate) fn target_left(&mut self, target: QueueId) {
        for queue in self.awaited.waiters_for(target) {
            self.change(queue, Waits::Nothing);
        }
    }

    /// Puts a letter in front of those of its queue: it finds out anew what it needs.
    pub(super) fn look_anew(&mut self, letter: DeadLetter) {
        self.wait_for(letter, Waits::Nothing);
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
        self.put(letter, VecDeque::push_front);
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
        match line.map(|line| line.letters.is_empty()) {
            Some(true) => self.remove(queue),
            Some(false) => self.change(queue, Waits::Nothing),
            None => {}
        }
    }

    /// Removes the line of a queue, which is empty.
    fn remove(&mut self, queue: QueueId) {
        if let Some(line) = self.by_queue.remove(&queue) {
            assert!(line.letters.is_empty() && line.behind.is_none(), "a line is forgotten");
            self.bytes -= line.slots_bytes();
        }
    }

    /// Has a queue's line wait for this and nothing else.
    fn change(&mut self, queue: QueueId, waits: Waits) {
        let Some(line) = self.by_queue.get_mut(&queue) else { return };
        self.turns.answer(queue);
        match core::mem::replace(&mut line.waits, waits) {
            Waits::Room(wish) => {
                self.roomless.remove(&(wish, queue));
                self.awaited.end(queue);
            }
            Waits::Turn => self.turns.stop_waiting(queue),
            Waits::Nothing | Waits::Pass | Waits::SetAside => {}
        }
        match waits {
            Waits::Nothing => {
                if !core::mem::replace(&mut line.is_listed, true) {
                    self.going_on.push_back(queue);
                }
                return;
            }
            Waits::Room(wish) => {
                self.roomless.insert((wish, queue));
            }
            Waits::Turn => self.turns.wait(queue),
            Waits::Pass | Waits::SetAside => {}
        }
        self.unlist_first(queue);
    }

    /// Puts the letter back that [`Roomless::take`] gave: it is the next one.
    pub(super) fn put_back(&mut self, letter: DeadLetter) {
        let queue = letter.source.queue;
        if self.taken_in_turn == Some(queue) {
            self.turns.call(queue);
        }
        let line = self.put(letter, VecDeque::push_front);
        if !core::mem::replace(&mut line.is_listed, true) {
            self.going_on.push_front(queue);
        }
    }

    /// Takes the next letter that may be sent, and whose expiry waited for fewer of them and goes on.
    pub(super) fn take(&mut self) -> Option<(DeadLetter, Vec<Reader>)> {
        self.give_turns();
        while let Some(&queue) = self.going_on.front() {
            let Some(line) =
                self.by_queue.get_mut(&queue).filter(|line| line.waits == Waits::Nothing)
            else {
                self.unlist_first(queue);
                continue;
            };
            let mut letter = line.letters.pop_front()?;
            self.taken_in_turn = self.turns.answer(queue).then_some(queue);
            self.len -= 1;
            self.bytes -= letter.progress.as_mut().map_or(0, |progress| progress.discount());
            let mut woken = Vec::new();
            if line.letters.len() < LINE_MAX / 2 {
                woken.extend(line.behind.take());
            }
            if line.letters.is_empty() {
                self.remove(queue);
                self.unlist_first(queue);
            }
            if self.len < LETTERS_MAX / 2 {
                woken.append(&mut self.behind);
            }
            return Some((letter, woken));
        }
        None
    }

    /// Lets lines go on as far as there is room, as `has_room` says of what a letter needs that comes
    /// free in a log: those first that need least, so that one that needs more than there is keeps none
    /// waiting.
    pub(super) fn give_room(&mut self, mut has_room: impl FnMut(Need, Option<u16>) -> bool) {
        let mut next = self.roomless.first().copied();
        while self.going_on.len() < GOING_ON_MAX
            && let Some((wish, queue)) = next
        {
            let mut from = (wish, queue);
            if has_room(wish.need, wish.frees) {
                self.change(queue, Waits::Nothing);
            } else {
                // Those that come free in the same log and go to the same ones need as much at least.
                let need = Need { bytes: usize::MAX, ..wish.need };
                from.0 = Wish { need, turn: u64::MAX, ..wish };
            }
            let rest = (Bound::Excluded(from), Bound::Unbounded);
            next = self.roomless.range(rest).next().copied();
        }
    }

    /// What waits of a queue that is gone needs no room any more: it goes on, to its end.
    pub(super) fn forget(&mut self, queue: QueueId) {
        match self.by_queue.get(&queue).map(|line| line.letters.is_empty()) {
            Some(true) => self.remove(queue),
            Some(false) => self.change(queue, Waits::Nothing),
            None => {}
        }
    }

    /// A queue has another id now: letters that have come there do not come again.
    pub(super) fn redirect(&mut self, old: QueueId, new: QueueId) {
        let letters = self.by_queue.values_mut().flat_map(|line| &mut line.letters);
        for progress in letters.filter_map(|letter| letter.progress.as_mut()) {
            progress.redirect(old, new);
        }
    }

    /// Bytes that it takes, beside bodies.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.by_queue.len() * size_of::<(QueueId, Line)>()
            + self.going_on.capacity() * size_of::<QueueId>()
            + self.behind.capacity() * size_of::<Reader>()
            + self.roomless.len() * size_of::<(Wish, QueueId)>()
            + self.awaited.memory_bytes()
            + self.turns.memory_bytes()
    }

    /// Puts a letter at an end of its queue's line.
    fn put(
        &mut self,
        mut letter: DeadLetter,
        end: impl FnOnce(&mut VecDeque<DeadLetter>, DeadLetter),
    ) -> &mut Line {
        self.len += 1;
        self.bytes += letter.progress.as_mut().map_or(0, |progress| progress.count());
        let line = self.by_queue.entry(letter.source.queue).or_default();
        self.bytes -= line.slots_bytes();
        end(&mut line.letters, letter);
        self.bytes += line.slots_bytes();
        line
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
    use crate::journal::LogSet;

    /// So many bytes in the shard's own log.
    fn own(bytes: usize) -> Need {
        Need { logs: LogSet::OWN, bytes }
    }

    fn next(lines: &mut Roomless) -> Option<(u64, u64)> {
        let (letter, _) = lines.take()?;
        Some((letter.source.queue.0, letter.source.entry.seq))
    }

    #[test]
    fn each_line_goes_on_when_there_is_room_for_its_first_and_in_order() {
        let mut lines = Roomless::default();
        lines.wait(letter_of(1, 10), own(1_000), Vec::new());
        lines.push(letter_of(1, 11));
        lines.wait(letter_of(2, 20), own(10), Vec::new());
        lines.push(letter_of(2, 21));
        assert!(lines.waits() && !lines.goes_on());
        lines.give_room(|need, _| need.bytes <= 10);
        assert_eq!(next(&mut lines), Some((2, 20)));
        assert_eq!(next(&mut lines), Some((2, 21)));
        assert_eq!(next(&mut lines), None);
        assert!(!lines.has_of(QueueId(2)) && lines.has_of(QueueId(1)) && !lines.goes_on());
        lines.give_room(|_, _| true);
        let (first, _) = lines.take().expect("the large one");
        lines.put_back(first);
        assert_eq!(next(&mut lines), Some((1, 10)));
        let (last, _) = lines.take().expect("the one behind");
        lines.wait(last, own(5), Vec::new());
        assert!(lines.waits() && !lines.goes_on());
        lines.forget(QueueId(1));
        assert_eq!(next(&mut lines), Some((1, 11)));
        assert!(lines.is_empty() && !lines.goes_on());
    }

    #[test]
    fn who_needs_room_for_a_queue_that_is_gone_looks_anew_and_nobody_else() {
        let mut lines = Roomless::default();
        let targets = |queues: &[u64]| queues.iter().map(|&queue| QueueId(queue)).collect();
        lines.wait(letter_of(1, 10), own(1_000), targets(&[7, 8]));
        lines.wait(letter_of(2, 20), own(1_000), targets(&[8, 9]));
        lines.target_left(QueueId(5));
        assert!(!lines.goes_on());
        lines.target_left(QueueId(7));
        assert_eq!(next(&mut lines), Some((1, 10)));
        assert_eq!(next(&mut lines), None);
        lines.wait(letter_of(1, 11), own(1_000), targets(&[8]));
        lines.target_left(QueueId(7));
        assert!(!lines.goes_on());
        lines.target_left(QueueId(8));
        assert_eq!(next(&mut lines), Some((1, 11)));
        assert_eq!(next(&mut lines), Some((2, 20)));
        assert!(lines.is_empty() && lines.awaited.memory_bytes() == 0);
    }

    #[test]
    fn letters_of_lines_and_others_take_turns() {
        let mut lines = Roomless::default();
        (1..4).for_each(|queue| lines.wait(letter_of(queue, 0), own(1), Vec::new()));
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
        lines.wait(letter_of(1, 0), own(7), Vec::new());
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
        lines.wait(letter_of(2, 20), own(10), Vec::new());
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
            lines.wait(letter_of(9, seq), own(10), Vec::new());
            lines.wait(letter_of(1, seq), own(10), Vec::new());
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
