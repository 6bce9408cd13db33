//! Mail for queues of this shard that waits for room in the log, or behind such mail; also what came
//! from a channel of this shard while its queue was on its way.
//!
//! What a channel sent waits in a line of its own, and a question waits only behind what its own
//! channel sent: so a large message keeps no smaller ones of others waiting, and a full disk can be
//! drained by everybody else.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use lepus_base::{Body, HashMap, HashState, QueueId};

use crate::channel::Target;
use crate::fanout::Fanout;
use crate::journal::{LogSet, Need};
use crate::mail::{ChannelRef, Command};
use crate::publish::Terms;

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

    /// What the transaction needs that begins with it, or nothing.
    fn begun(&self) -> Need {
        match self {
            Postponed::Few(few) => few.part.begun(),
            Postponed::Many(_) | Postponed::Command { .. } => Need::default(),
        }
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

/// All that wait.
#[derive(Debug)]
pub(crate) struct Line {
    /// What each channel sent, oldest first; never empty.
    by_channel: HashMap<ChannelRef, VecDeque<Postponed>>,
    /// The channels, by turns.
    turns: VecDeque<ChannelRef>,
    /// Channels with transactions that wait for room, and how many of them.
    firsts: BTreeMap<ChannelRef, usize>,
    len: usize,
}

impl Line {
    pub(crate) fn new(hash: HashState) -> Line {
        Line {
            by_channel: HashMap::with_hasher(hash),
            turns: VecDeque::new(),
            firsts: BTreeMap::new(),
            len: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Channels of which something waits.
    pub(crate) fn channels(&self) -> usize {
        self.by_channel.len()
    }

    /// Whether something that this channel sent waits.
    #[inline]
    pub(crate) fn has_from(&self, channel: ChannelRef) -> bool {
        !self.is_empty() && self.by_channel.contains_key(&channel)
    }

    /// Whether something for this queue waits.
    pub(crate) fn has_for(&self, queue: QueueId) -> bool {
        self.by_channel.values().flatten().any(|postponed| postponed.is_for(queue))
    }

    pub(crate) fn push(&mut self, postponed: Postponed) {
        self.insert(usize::MAX, postponed);
    }

    /// Puts something behind the first `before` of its channel.
    pub(crate) fn insert(&mut self, before: usize, postponed: Postponed) {
        let channel = postponed.from();
        self.count_first(channel, &postponed);
        let line = self.by_channel.entry(channel).or_default();
        if line.is_empty() {
            self.turns.push_back(channel);
        }
        line.insert(before.min(line.len()), postponed);
        self.len += 1;
    }

    /// A transaction that waits for one of these logs waits for those alone from now on that `logs_of` finds
    /// for its messages.
    pub(crate) fn renew_needs(&mut self, left: LogSet, logs_of: impl Fn(&Few) -> LogSet) {
        for channel in self.firsts.keys() {
            let line = self.by_channel.get_mut(channel).expect("a transaction of it waits");
            if !line.iter().any(|postponed| postponed.begun().logs.meets(left)) {
                continue;
            }
            let mut logs = LogSet::default();
            // From the end: what follows the first message of a transaction belongs to it.
            for postponed in line.iter_mut().rev() {
                let Postponed::Few(few) = postponed else { continue };
                logs.unite(logs_of(few));
                if let Part::First(need) = &mut few.part
                    && need.logs.meets(left)
                {
                    need.logs = logs;
                }
                if few.part != Part::Next {
                    logs = LogSet::default();
                }
            }
        }
    }

    /// The channel whose turn it is. It has no other one before something of it is put back.
    pub(crate) fn take_turn(&mut self) -> Option<ChannelRef> {
        self.turns.pop_front()
    }

    /// The oldest of a channel.
    pub(crate) fn pop(&mut self, channel: ChannelRef) -> Option<Postponed> {
        let line = self.by_channel.get_mut(&channel)?;
        let first = line.pop_front()?;
        if line.is_empty() {
            self.by_channel.remove(&channel);
        }
        self.len -= 1;
        if first.is_first_part()
            && let Some(count) = self.firsts.get_mut(&channel)
        {
            *count -= 1;
            if *count == 0 {
                self.firsts.remove(&channel);
            }
        }
        Some(first)
    }

    fn count_first(&mut self, channel: ChannelRef, postponed: &Postponed) {
        if postponed.is_first_part() {
            *self.firsts.entry(channel).or_default() += 1;
        }
    }

    /// Puts the one back that was the oldest of its channel, which has its turn again after all
    /// others.
    pub(crate) fn put_back(&mut self, channel: ChannelRef, first: Postponed) {
        self.count_first(channel, &first);
        self.by_channel.entry(channel).or_default().push_front(first);
        self.turns.push_back(channel);
        self.len += 1;
    }

    /// Takes out the question of a channel, if it waits. The queue that it is about.
    pub(crate) fn give_up(&mut self, channel: ChannelRef) -> Option<QueueId> {
        let line = self.by_channel.get_mut(&channel)?;
        // A channel has one question at a time.
        let is_question = |postponed: &Postponed| matches!(postponed, Postponed::Command { .. });
        let place = line.iter().position(is_question)?;
        let Postponed::Command { queue, .. } = line.remove(place)? else { return None };
        if line.is_empty() {
            self.by_channel.remove(&channel);
            self.turns.retain(|other| *other != channel);
        }
        self.len -= 1;
        Some(queue)
    }

    /// Bytes that it takes, beside bodies.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.len * size_of::<Postponed>()
            + self.turns.capacity() * size_of::<ChannelRef>()
            + self.by_channel.allocation_size()
            + self.firsts.len() * size_of::<(ChannelRef, usize)>()
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use lepus_base::{ConnectionId, Pool, ShardId};

    use super::*;

    fn message(pool: &mut Pool, channel: u64, part: Part) -> Postponed {
        let from = ChannelRef { shard: ShardId(0), connection: ConnectionId(1), channel };
        let terms = Terms { persistent: true, priority: 0, expiration: None, from, number: None };
        let body = pool.insert(&[b"body"]);
        Postponed::Few(Few { body, bytes: 4, targets: Vec::new(), terms, part })
    }

    /// What does not wait for the room of a transaction is not looked at when a queue is deleted.
    #[test]
    fn only_channels_with_transactions_find_out_anew_what_they_need() {
        let mut pool = Pool::new();
        let mut line = Line::new(HashState::new(1));
        for channel in 1..=50 {
            line.push(message(&mut pool, channel, Part::Alone));
        }
        let looks = Cell::new(0);
        let renew = |line: &mut Line| {
            line.renew_needs(LogSet::ALL, |_| {
                looks.set(looks.get() + 1);
                LogSet::OWN
            });
            looks.take()
        };
        assert_eq!(renew(&mut line), 0);
        let from = ChannelRef { shard: ShardId(0), connection: ConnectionId(1), channel: 60 };
        let need = Need { logs: LogSet::ALL, bytes: 9 };
        line.push(message(&mut pool, 60, Part::First(need)));
        line.push(message(&mut pool, 60, Part::Next));
        assert_eq!(renew(&mut line), 2);
        let first = line.pop(from).expect("it was put there");
        let Postponed::Few(few) = &first else { panic!("it is a message") };
        assert_eq!(few.part, Part::First(Need { logs: LogSet::OWN, bytes: 9 }));
        assert_eq!(renew(&mut line), 0);
        line.put_back(from, first);
        assert_eq!(renew(&mut line), 2);
    }

    #[test]
    fn what_came_first_is_put_in_front_in_its_order() {
        let mut pool = Pool::new();
        let mut line = Line::new(HashState::new(1));
        let need = |bytes| Part::First(Need { logs: LogSet::OWN, bytes });
        let from = message(&mut pool, 1, Part::Alone).from();
        line.push(message(&mut pool, 1, need(3)));
        line.insert(0, message(&mut pool, 1, need(1)));
        line.insert(1, message(&mut pool, 1, need(2)));
        let order = core::iter::from_fn(|| line.pop(from)).map(|found| found.begun().bytes);
        assert_eq!(order.collect::<Vec<_>>(), [1, 2, 3]);
        assert!(line.is_empty() && line.firsts.is_empty());
    }
}
