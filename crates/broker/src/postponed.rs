//! Mail for queues of this shard that waits for room in the log, or behind such mail.
//!
//! Messages wait in one line, whoever sent them. A question waits in it only behind what its own
//! channel sent, so that a full disk can be drained by everybody else.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::{Body, HashMap, HashState, QueueId};

use crate::channel::Target;
use crate::fanout::Fanout;
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
    /// Bytes of the transaction that begins with it, or 0.
    pub commit_bytes: usize,
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

    /// Whether it is for this queue.
    fn is_for(&self, id: QueueId) -> bool {
        match self {
            Postponed::Few(few) => few.targets.iter().any(|target| target.queue == id),
            Postponed::Many(fanout) => fanout.is_mailed_for(id),
            Postponed::Command { queue, .. } => *queue == id,
        }
    }
}

/// All that wait, oldest first.
#[derive(Debug)]
pub(crate) struct Line {
    waiting: VecDeque<Postponed>,
    /// How many of them each channel sent.
    by_channel: HashMap<ChannelRef, u32>,
}

impl Line {
    pub(crate) fn new(hash: HashState) -> Line {
        Line { waiting: VecDeque::new(), by_channel: HashMap::with_hasher(hash) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether something that this channel sent waits.
    #[inline]
    pub(crate) fn has_from(&self, channel: ChannelRef) -> bool {
        !self.waiting.is_empty() && self.by_channel.contains_key(&channel)
    }

    /// Whether something for this queue waits.
    pub(crate) fn has_for(&self, queue: QueueId) -> bool {
        self.waiting.iter().any(|postponed| postponed.is_for(queue))
    }

    pub(crate) fn push(&mut self, postponed: Postponed) {
        *self.by_channel.entry(postponed.from()).or_default() += 1;
        self.waiting.push_back(postponed);
    }

    /// Puts the one back that was first.
    pub(crate) fn put_back(&mut self, first: Postponed) {
        *self.by_channel.entry(first.from()).or_default() += 1;
        self.waiting.push_front(first);
    }

    pub(crate) fn pop(&mut self) -> Option<Postponed> {
        let first = self.waiting.pop_front()?;
        self.discount(first.from());
        Some(first)
    }

    /// Takes out the question of a channel, if it waits. The queue that it is about.
    pub(crate) fn give_up(&mut self, channel: ChannelRef) -> Option<QueueId> {
        if !self.has_from(channel) {
            return None;
        }
        // A channel has one question at a time.
        let place = self.waiting.iter().position(
            |postponed| matches!(postponed, Postponed::Command { from, .. } if *from == channel),
        )?;
        let Postponed::Command { queue, .. } = self.waiting.remove(place)? else { return None };
        self.discount(channel);
        Some(queue)
    }

    /// Bytes that it takes, beside bodies.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.waiting.len() * size_of::<Postponed>() + self.by_channel.allocation_size()
    }

    fn discount(&mut self, channel: ChannelRef) {
        let count = self.by_channel.get_mut(&channel).expect("who waits is counted");
        *count -= 1;
        if *count == 0 {
            self.by_channel.remove(&channel);
        }
    }
}
