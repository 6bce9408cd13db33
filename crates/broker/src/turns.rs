//! Turns of messages on their way to very many queues: few of them go there at once, so that few bodies are in
//! memory for that. One that can only wait, for room in a log or for other shards, gives its turn to the next.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use lepus_base::QueueId;

/// Messages that have a turn at once, each of another queue or delayed exchange.
const TURNS_MAX: usize = 8;

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It goes on.
    Goes,
    /// It can only wait, and keeps its turn: too many bytes wait.
    Waits(usize),
    /// It can only wait, and has given its turn away.
    Gave(usize),
}

/// Who has a turn, and who waits for one. Each is named by the queue or the delayed exchange whose message it
/// is; that has one of them on its way at a time.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Whose message is on its way.
    under_way: BTreeMap<QueueId, Way>,
    /// How many have given their turn away, and their bytes.
    given_away: usize,
    given_away_bytes: usize,
    /// Up to how many bytes give it away.
    bytes_max: usize,
    /// Those that wait and keep their turn.
    keeping: BTreeSet<QueueId>,
    /// Those that wait for a turn, in that order.
    waiting: VecDeque<QueueId>,
    /// Those that waited and may use a turn now.
    called: BTreeSet<QueueId>,
}

impl Turns {
    /// Whether there is a turn for one more, beside those that may use one now.
    pub(crate) fn has_free(&self) -> bool {
        self.under_way.len() - self.given_away + self.called.len() < TURNS_MAX
    }

    /// Whether somebody waits for a turn that is there.
    pub(crate) fn can_call(&self) -> bool {
        !self.waiting.is_empty() && self.has_free()
    }

    /// Takes out who waits for a turn that is there.
    pub(crate) fn pop(&mut self) -> Option<QueueId> {
        if self.has_free() { self.waiting.pop_front() } else { None }
    }

    /// It may use a turn now.
    pub(crate) fn call(&mut self, whose: QueueId) {
        self.called.insert(whose);
    }

    /// Whether it may use a turn now since it was called.
    pub(crate) fn is_called(&self, whose: QueueId) -> bool {
        self.called.contains(&whose)
    }

    /// It was called, and uses its turn or does not need it. Whether it was.
    pub(crate) fn answer(&mut self, whose: QueueId) -> bool {
        self.called.remove(&whose)
    }

    /// It waits for a turn.
    pub(crate) fn wait(&mut self, whose: QueueId) {
        self.waiting.push_back(whose);
    }

    /// It waits for no turn any more.
    pub(crate) fn stop_waiting(&mut self, whose: QueueId) {
        self.waiting.retain(|other| *other != whose);
    }

    /// A message goes on its way.
    pub(crate) fn begin(&mut self, whose: QueueId) {
        let other = self.under_way.insert(whose, Way::Goes);
        assert!(other.is_none(), "messages of one queue go to very many one after the other");
    }

    /// A message that is on its way, and takes so many bytes, can only wait: another one has its turn, unless more
    /// than `max` bytes would wait that way. Then it gives its turn away when others of them are done.
    pub(crate) fn give_away(&mut self, whose: QueueId, bytes: usize, max: usize) {
        self.bytes_max = max;
        let way = self.under_way.get_mut(&whose).expect("who gives a turn away is under way");
        if !matches!(way, Way::Gave(_)) {
            *way = Way::Waits(bytes);
            self.let_give_away(whose);
        }
    }

    fn let_give_away(&mut self, whose: QueueId) {
        if let Some(way) = self.under_way.get_mut(&whose)
            && let Way::Waits(bytes) = *way
            && self.given_away_bytes + bytes <= self.bytes_max
        {
            *way = Way::Gave(bytes);
            self.given_away += 1;
            self.given_away_bytes += bytes;
            self.keeping.remove(&whose);
        } else {
            self.keeping.insert(whose);
        }
    }

    /// A message is where it goes.
    pub(crate) fn end(&mut self, whose: QueueId) {
        let way = self.under_way.remove(&whose).expect("a message is in all of its queues once");
        self.keeping.remove(&whose);
        if let Way::Gave(bytes) = way {
            self.given_away -= 1;
            self.given_away_bytes -= bytes;
            for keeps in self.keeping.clone() {
                self.let_give_away(keeps);
            }
        }
    }

    /// Bytes that they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.under_way.len() * size_of::<(QueueId, Way)>()
            + (self.waiting.capacity() + self.called.len() + self.keeping.len())
                * size_of::<QueueId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_can_only_wait_gives_its_turn_away_as_long_as_not_too_much_waits() {
        let mut turns = Turns::default();
        (0..8).for_each(|queue| turns.begin(QueueId(queue)));
        turns.wait(QueueId(20));
        assert!(!turns.has_free() && !turns.can_call());
        turns.give_away(QueueId(0), 100, 100);
        turns.give_away(QueueId(0), 100, 100);
        turns.give_away(QueueId(1), 1, 100);
        assert_eq!(turns.pop(), Some(QueueId(20)));
        turns.call(QueueId(20));
        assert!(!turns.has_free() && turns.is_called(QueueId(20)));
        assert!(turns.answer(QueueId(20)) && !turns.answer(QueueId(20)));
        turns.begin(QueueId(20));
        turns.end(QueueId(0));
        assert!(turns.has_free(), "of those that wait one more gives its turn away");
        turns.begin(QueueId(21));
        assert!(!turns.has_free());
        turns.end(QueueId(1));
        assert!(!turns.has_free(), "whose turn was given away gives none back");
        (2..8).chain([20, 21]).for_each(|queue| turns.end(QueueId(queue)));
        assert_eq!((turns.given_away, turns.given_away_bytes), (0, 0));
        assert_eq!(turns.memory_bytes(), turns.waiting.capacity() * size_of::<QueueId>());
    }
}
