//! Mail for queues of this shard that waits for room in the log, or behind such mail; also what came
//! from a channel of this shard while its queue was on its way.
//!
//! What a channel sent waits in a line of its own, and a question waits only behind what its own
//! channel sent: so a large message keeps no smaller ones of others waiting, and a full disk can be
//! drained by everybody else.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

use lepus_base::{Body, HashMap, HashState, QueueId, ShardId};

use crate::channel::Target;
use crate::dead_letter::letters_of;
use crate::jobs::Fanout;
use crate::journal::{LogSet, Need};
use crate::mail::{ChannelRef, Command, LETTERS_CONNECTION, Terms};
use crate::owner::{Conditions, Owner};

/// One that waits.
#[derive(Debug)]
pub(crate) enum Postponed {
    /// A message for few queues.
    Few(Few),
    /// A message for very many queues: it waits for room by itself, once it is its turn.
    Many(Fanout),
    /// A question about a queue.
    Command { from: ChannelRef, queue: QueueId, command: Command },
}

/// A message for few queues.
#[derive(Debug)]
pub(crate) struct Few {
    /// One reference to the packed message.
    pub body: Body,
    /// Size of the payload.
    pub bytes: u32,
    pub targets: Vec<Target>,
    pub terms: Terms,
    pub part: Part,
}

/// What a message is to the part of a transaction that goes to one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It belongs to none.
    Alone,
    /// The first one: for all of it there is to be room.
    First(Need),
    /// One that follows: there was room for all.
    Next,
}

impl Part {
    /// What the transaction needs that begins with it, or nothing.
    pub(crate) fn begun(self) -> Need {
        match self {
            Part::First(need) => need,
            Part::Alone | Part::Next => Need::default(),
        }
    }
}

impl Postponed {
    /// The channel that sent it.
    fn from(&self) -> ChannelRef {
        match self {
            Postponed::Few(few) => few.terms.from,
            Postponed::Many(fanout) => fanout.channel(),
            Postponed::Command { from, .. } => *from,
        }
    }

    /// Whether it is the first message of a transaction that waits for room for all of it.
    fn is_first_part(&self) -> bool {
        matches!(self, Postponed::Few(few) if matches!(few.part, Part::First(_)))
    }

    /// Whether it is for this queue.
    fn is_for(&self, id: QueueId) -> bool {
        match self {
            Postponed::Few(few) => few.targets.iter().any(|target| target.queue == id),
            Postponed::Many(fanout) => fanout.is_mailed_for(id),
            Postponed::Command { queue, .. } => *queue == id,
        }
    }
}

/// For what room the first of a channel waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wish {
    /// The log in which something comes free when it has room.
    pub frees: Option<u16>,
    /// What it needs.
    pub need: Need,
    /// Which of those it is that need as much.
    number: u64,
}

/// What the first of a channel waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    /// To be looked at: what it needs is not known, or not any more.
    #[default]
    Turn,
    /// Room in logs.
    Room(Wish),
    /// All queues that are on their way to this shard are here.
    Arrivals,
}

impl Waits {
    /// Waits for this room, and something comes free in the log `frees` then.
    pub(crate) fn for_room(need: Need, frees: Option<u16>) -> Waits {
        Waits::Room(Wish { frees, need, number: 0 })
    }
}

/// What one channel sent.
#[derive(Debug, Default)]
struct OfChannel {
    /// Oldest first; never empty.
    line: VecDeque<Postponed>,
    /// What the oldest waits for.
    waits: Waits,
}

/// All that wait. What a channel's oldest needs is known, so that its queues are looked at again only where
/// there is room for it, or where it may need less.
#[derive(Debug)]
pub(crate) struct Line {
    by_channel: HashMap<ChannelRef, OfChannel>,
    /// Channels that are to be looked at, by turns.
    turns: VecDeque<ChannelRef>,
    /// Those that wait for room: who needs least of the same logs comes first.
    roomless: BTreeSet<(Wish, ChannelRef)>,
    /// Those that wait until queues are here.
    arrivals: BTreeSet<ChannelRef>,
    /// Those of clients of this shard.
    near: BTreeSet<ChannelRef>,
    own: ShardId,
    /// Number of the last that began to wait for room.
    last: u64,
    /// There may be room for some that were not asked.
    is_cut: bool,
    len: usize,
}

impl Line {
    pub(crate) fn new(hash: HashState, own: ShardId) -> Line {
        Line {
            by_channel: HashMap::with_hasher(hash),
            turns: VecDeque::new(),
            roomless: BTreeSet::new(),
            arrivals: BTreeSet::new(),
            near: BTreeSet::new(),
            own,
            last: 0,
            is_cut: false,
            len: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Notes whether there may be room for some that were not asked.
    pub(crate) fn cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// Channels that are to be looked at.
    pub(crate) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Whether something that this channel sent waits.
    #[inline]
    pub(crate) fn has_from(&self, channel: ChannelRef) -> bool {
        !self.is_empty() && self.by_channel.contains_key(&channel)
    }

    /// Whether some can go on, or are to be looked at.
    fn can_go_on(&self) -> bool {
        !self.turns.is_empty() || self.is_cut
    }

    /// Whether something for this queue waits.
    fn has_for(&self, queue: QueueId) -> bool {
        let all = self.by_channel.values().flat_map(|channel| &channel.line);
        all.into_iter().any(|postponed| postponed.is_for(queue))
    }

    /// Whether some wait until all queues that are on their way to this shard are here.
    pub(crate) fn awaits_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Channels of clients of this shard of which something waits.
    pub(crate) fn near(&self) -> impl Iterator<Item = ChannelRef> {
        self.near.iter().copied()
    }

    /// Puts something behind all of its channel. `waits` says what it waits for if it is the oldest.
    pub(crate) fn push(&mut self, postponed: Postponed, waits: Waits) {
        self.insert(usize::MAX, postponed, waits);
    }

    /// Puts something behind the first `before` of its channel. `waits` says what it waits for if it is the oldest
    /// then.
    pub(crate) fn insert(&mut self, before: usize, postponed: Postponed, waits: Waits) {
        let channel = postponed.from();
        let found = self.by_channel.entry(channel).or_default();
        let is_new = found.line.is_empty();
        found.line.insert(before.min(found.line.len()), postponed);
        self.len += 1;
        if is_new {
            self.begin(channel);
            self.wait(channel, waits);
        } else if before == 0 {
            self.forget(channel);
            self.wait(channel, waits);
        }
    }

    /// Puts the one back that was the oldest of its channel, and waits for this now. With
    /// [`Waits::Turn`] it is looked at before all others if it `is_next`, and after them if not.
    pub(crate) fn put_back(&mut self, first: Postponed, waits: Waits, is_next: bool) {
        let channel = first.from();
        let found = self.by_channel.entry(channel).or_default();
        let is_new = found.line.is_empty();
        found.line.push_front(first);
        self.len += 1;
        if is_new {
            self.begin(channel);
        }
        match waits {
            Waits::Turn if is_next => self.turns.push_front(channel),
            waits => self.wait(channel, waits),
        }
    }

    /// The first of a channel waits.
    fn begin(&mut self, channel: ChannelRef) {
        if channel.shard == self.own && channel.connection != LETTERS_CONNECTION {
            self.near.insert(channel);
        }
    }

    /// A channel's oldest, which waits for nothing and is in no list, waits for this.
    fn wait(&mut self, channel: ChannelRef, waits: Waits) {
        let Some(found) = self.by_channel.get_mut(&channel) else {
            invariant!("a channel whose mail waits is known")
        };
        assert_eq!(found.waits, Waits::Turn, "who waits for something waits for nothing else");
        found.waits = match waits {
            Waits::Turn => {
                self.turns.push_back(channel);
                waits
            }
            Waits::Room(wish) => {
                self.last += 1;
                let wish = Wish { number: self.last, ..wish };
                self.roomless.insert((wish, channel));
                Waits::Room(wish)
            }
            Waits::Arrivals => {
                self.arrivals.insert(channel);
                waits
            }
        };
    }

    /// A channel waits for nothing and is in no list any more.
    fn forget(&mut self, channel: ChannelRef) {
        let Some(found) = self.by_channel.get_mut(&channel) else {
            invariant!("a channel whose mail waits is known")
        };
        let was_listed = match core::mem::take(&mut found.waits) {
            // One that is looked at now is in no list.
            Waits::Turn => {
                self.turns.retain(|other| *other != channel);
                true
            }
            Waits::Room(wish) => self.roomless.remove(&(wish, channel)),
            Waits::Arrivals => self.arrivals.remove(&channel),
        };
        assert!(was_listed, "what a channel waits for is listed");
    }

    /// Who waits for one of these logs, from which queues have gone, is looked at: it may need less. Where `commits`
    /// says so, transactions are that wait for one of those.
    pub(crate) fn look_anew(&mut self, left: LogSet, commits: LogSet) {
        let may_need_less = |(wish, channel): &(Wish, ChannelRef)| {
            let logs = wish.need.logs;
            let first = || self.by_channel.get(channel).and_then(|found| found.line.front());
            logs.meets(left)
                || (logs.meets(commits) && first().is_some_and(Postponed::is_first_part))
        };
        let found = self.roomless.iter().copied().filter(may_need_less);
        for (_, channel) in found.collect::<Vec<_>>() {
            self.forget(channel);
            self.wait(channel, Waits::Turn);
        }
    }

    /// All queues are here that were on their way.
    pub(crate) fn end_arrivals(&mut self) {
        while let Some(&channel) = self.arrivals.first() {
            self.forget(channel);
            self.wait(channel, Waits::Turn);
        }
    }

    /// The channel whose turn it is. It has no other one before something of it is put back.
    pub(crate) fn take_turn(&mut self) -> Option<ChannelRef> {
        loop {
            let channel = self.turns.pop_front()?;
            // What came and went while its channel was looked at left its place here.
            if self.by_channel.get(&channel).is_some_and(|found| found.waits == Waits::Turn) {
                return Some(channel);
            }
        }
    }

    /// The next channel that waits for room: behind this one, or the first. After what was refused nobody comes who
    /// needs as much of the same logs.
    pub(crate) fn next_roomless(&self, after: Option<Asked>) -> Option<(Wish, ChannelRef)> {
        let from = match after {
            None => Bound::Unbounded,
            Some(Asked::Taken(wish, channel)) => Bound::Excluded((wish, channel)),
            Some(Asked::Refused(wish, channel)) => {
                let need = Need { bytes: usize::MAX, ..wish.need };
                Bound::Excluded((Wish { need, number: u64::MAX, ..wish }, channel))
            }
        };
        self.roomless.range((from, Bound::Unbounded)).next().copied()
    }

    /// A channel that waited for room is looked at now.
    pub(crate) fn take_roomless(&mut self, channel: ChannelRef) {
        self.forget(channel);
    }

    /// The oldest of a channel that was taken.
    pub(crate) fn pop(&mut self, channel: ChannelRef) -> Option<Postponed> {
        if self.by_channel.get(&channel)?.waits != Waits::Turn {
            // Something was put in front since it was taken.
            self.forget(channel);
        }
        let found = self.by_channel.get_mut(&channel)?;
        let first = found.line.pop_front()?;
        if found.line.is_empty() {
            self.by_channel.remove(&channel);
            self.near.remove(&channel);
        }
        self.len -= 1;
        Some(first)
    }

    /// What follows the first message of a transaction, which was taken out, and belongs to it.
    pub(crate) fn rest_of_commit(&self, channel: ChannelRef) -> impl Iterator<Item = &Few> {
        let line = self.by_channel.get(&channel).into_iter().flat_map(|found| &found.line);
        line.map_while(|postponed| match postponed {
            Postponed::Few(few) if few.part == Part::Next => Some(few),
            _ => None,
        })
    }

    /// Takes out the question of a channel, if it waits. The queue that it is about.
    pub(crate) fn give_up(&mut self, channel: ChannelRef) -> Option<QueueId> {
        let found = self.by_channel.get_mut(&channel)?;
        // A channel has one question at a time.
        let is_question = |postponed: &Postponed| matches!(postponed, Postponed::Command { .. });
        let place = found.line.iter().position(is_question)?;
        let Postponed::Command { queue, .. } = found.line.remove(place)? else {
            invariant!("what was found in the line is a question")
        };
        if found.line.is_empty() {
            self.forget(channel);
            self.by_channel.remove(&channel);
            self.near.remove(&channel);
        }
        self.len -= 1;
        Some(queue)
    }

    /// Bytes that it takes, beside bodies.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.len * size_of::<Postponed>()
            + self.turns.capacity() * size_of::<ChannelRef>()
            + self.by_channel.allocation_size()
            + self.roomless.len() * size_of::<(Wish, ChannelRef)>()
            + (self.arrivals.len() + self.near.len()) * size_of::<ChannelRef>()
    }
}

impl Owner for Line {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        self.can_go_on()
    }

    fn owes(&self) -> bool {
        !self.is_empty()
    }

    fn holds_mail(&self) -> bool {
        !self.is_empty()
    }

    fn waits_for_room(&self) -> bool {
        !self.is_empty()
    }

    fn has_of(&self, queue: QueueId) -> bool {
        self.has_for(queue) || letters_of(self.own, queue).iter().any(|from| self.has_from(*from))
    }
}

/// One that waited for room and was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// There was room.
    Taken(Wish, ChannelRef),
    /// There was none.
    Refused(Wish, ChannelRef),
}

#[cfg(test)]
mod tests {
    use lepus_base::{ConnectionId, Pool};

    use super::*;

    fn of(channel: u64) -> ChannelRef {
        ChannelRef { shard: ShardId(0), connection: ConnectionId(1), channel }
    }

    fn message(pool: &mut Pool, channel: u64, part: Part) -> Postponed {
        let from = of(channel);
        let terms = Terms { persistent: true, priority: 0, expiration: None, from, number: None };
        let body = pool.insert(&[b"body"]);
        Postponed::Few(Few { body, bytes: 4, targets: Vec::new(), terms, part })
    }

    fn line() -> Line {
        Line::new(HashState::new(1), ShardId(1))
    }

    fn own(bytes: usize) -> Waits {
        Waits::for_room(Need { logs: LogSet::OWN, bytes }, None)
    }

    #[test]
    fn who_waits_for_room_is_looked_at_when_a_queue_left_its_log() {
        let mut pool = Pool::new();
        let mut line = line();
        let mut other = LogSet::default();
        other.add(5);
        let begun = Part::First(Need { logs: LogSet::OWN, bytes: 9 });
        line.push(message(&mut pool, 1, Part::Alone), own(7));
        line.push(message(&mut pool, 2, begun), own(9));
        line.push(message(&mut pool, 3, Part::Alone), Waits::Arrivals);
        assert!(!line.can_go_on() && line.take_turn().is_none());
        line.look_anew(other, other);
        assert!(!line.can_go_on());
        line.look_anew(other, LogSet::OWN);
        assert_eq!((line.take_turn(), line.take_turn()), (Some(of(2)), None));
        line.look_anew(LogSet::OWN, LogSet::OWN);
        assert_eq!((line.take_turn(), line.take_turn()), (Some(of(1)), None));
        line.end_arrivals();
        assert_eq!((line.take_turn(), line.take_turn()), (Some(of(3)), None));
    }

    #[test]
    fn who_needs_least_is_asked_first_and_nobody_who_needs_more_than_was_refused() {
        let mut pool = Pool::new();
        let mut line = line();
        for (channel, bytes) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            line.push(message(&mut pool, channel, Part::Alone), own(bytes));
        }
        let free = Waits::for_room(Need { logs: LogSet::OWN, bytes: 50 }, Some(0));
        line.push(message(&mut pool, 5, Part::Alone), free);
        let (mut asked, mut after) = (Vec::new(), None);
        while let Some((wish, channel)) = line.next_roomless(after) {
            asked.push(channel.channel);
            after = Some(match wish.need.bytes {
                ..20 => Asked::Taken(wish, channel),
                _ => Asked::Refused(wish, channel),
            });
        }
        assert_eq!(asked, [2, 4, 3, 5]);
    }

    #[test]
    fn who_was_not_looked_at_comes_first() {
        let mut pool = Pool::new();
        let mut line = line();
        for channel in 1..4 {
            line.push(message(&mut pool, channel, Part::Alone), Waits::Turn);
        }
        assert_eq!(line.take_turn(), Some(of(1)));
        let first = line.pop(of(1)).expect("it was put there");
        line.put_back(first, Waits::Turn, true);
        assert_eq!(line.take_turn(), Some(of(1)));
        let first = line.pop(of(1)).expect("it was put back");
        line.put_back(first, Waits::Turn, false);
        let order = core::iter::from_fn(|| line.take_turn()).map(|channel| channel.channel);
        assert_eq!(order.collect::<Vec<_>>(), [2, 3, 1]);
    }

    #[test]
    fn what_came_first_is_put_in_front_in_its_order() {
        let mut pool = Pool::new();
        let mut line = line();
        let need = |bytes| Part::First(Need { logs: LogSet::OWN, bytes });
        line.push(message(&mut pool, 1, need(3)), own(3));
        line.insert(0, message(&mut pool, 1, need(1)), Waits::Turn);
        line.insert(1, message(&mut pool, 1, need(2)), own(2));
        assert_eq!(line.take_turn(), Some(of(1)));
        let order = core::iter::from_fn(|| line.pop(of(1))).map(|found| match found {
            Postponed::Few(few) => few.part.begun().bytes,
            _ => 0,
        });
        assert_eq!(order.collect::<Vec<_>>(), [1, 2, 3]);
        assert!(line.is_empty() && line.roomless.is_empty() && !line.can_go_on());
    }
}
