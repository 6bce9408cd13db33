//! Deliveries that are settled in slices: what is left to be settled, and what becomes of it.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use lepus_base::{QueueId, ShardId};

use crate::channel::At;
use crate::channel::settles::{Falling, Settles};
use crate::channel::unacked::Unacked;
use crate::owner::{Conditions, Owner};
use crate::queue::Outcome;

/// Memory that a queue on hold takes, about.
const HOLD_BYTES: usize = 24;

/// Deliveries of a channel that are settled in slices. What is not settled yet stays where it is.
#[derive(Debug)]
pub(crate) struct Settling {
    at: At,
    /// What a transaction that nobody commits was to settle; it comes first.
    held: Settles,
    /// Behind that, what the channel has up to this tag.
    up_to: u64,
    what: What,
    /// Bytes that the shard's sum has of it.
    counted_bytes: usize,
}

/// What becomes of deliveries.
#[derive(Debug)]
pub(crate) enum What {
    /// They are settled.
    Settle(Outcome),
    /// They are to be settled by the commit of the channel's transaction.
    Hold(Outcome),
    /// They go back into their queues.
    Requeue(Rests),
    /// What a transaction was to settle is unacknowledged again.
    PutBack(Box<Falling>),
}

/// Queues that rest while deliveries come back.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    queues: BTreeSet<(ShardId, QueueId)>,
    /// The one that was met last.
    last: Option<(ShardId, QueueId)>,
    /// Shards among their homes.
    homes: Vec<ShardId>,
}

impl Rests {
    /// A delivery comes back to this queue. Whether it is the first one, so that the queue is to rest.
    pub(crate) fn meet(&mut self, home: ShardId, queue: QueueId) -> bool {
        self.last.replace((home, queue)) != Some((home, queue)) && self.queues.insert((home, queue))
    }

    /// A queue with this home holds. Whether it is the first one.
    pub(crate) fn is_new_home(&mut self, home: ShardId) -> bool {
        let is_new = !self.homes.contains(&home);
        if is_new {
            self.homes.push(home);
        }
        is_new
    }

    /// The next queue that is to go on, and whether it is the last one with this home.
    pub(crate) fn next(&mut self) -> Option<(ShardId, QueueId, bool)> {
        let (home, queue) = self.queues.pop_first()?;
        let is_last = self.queues.first().is_none_or(|&(next, _)| next != home);
        Some((home, queue, is_last))
    }
}

impl Settling {
    /// What the channel has up to this tag, and what becomes of it.
    pub(crate) fn new(at: At, up_to: u64, what: What) -> Settling {
        Settling { at, held: Settles::default(), up_to, what, counted_bytes: 0 }
    }

    /// The same, behind what a transaction that nobody commits was to settle.
    pub(crate) fn behind(self, held: Settles) -> Settling {
        Settling { held, ..self }
    }

    /// The channel.
    #[inline]
    pub(crate) fn at(&self) -> At {
        self.at
    }

    /// Up to which tag it goes.
    #[inline]
    pub(crate) fn up_to(&self) -> u64 {
        self.up_to
    }

    /// What becomes of the deliveries.
    #[inline]
    pub(crate) fn what(&mut self) -> &mut What {
        &mut self.what
    }

    /// What a transaction was to settle comes first: the next of that.
    #[inline]
    pub(crate) fn next_held(&mut self) -> Option<Unacked> {
        self.held.pop().map(|(unacked, _)| unacked)
    }

    /// Whether it is said to the channel when all is done, however little it is: what comes back is there by then.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.what, What::Requeue(_) | What::PutBack(_))
    }

    /// Brings the shard's sum up to date with what is left of it.
    pub(crate) fn account_memory(&mut self, is_done: bool, sum: &mut usize) {
        let bytes = if is_done { 0 } else { self.memory_bytes() };
        *sum = *sum + bytes - self.counted_bytes;
        self.counted_bytes = bytes;
    }

    /// Allocated bytes of its lists.
    fn memory_bytes(&self) -> usize {
        let others = match &self.what {
            What::Requeue(holds) => holds.queues.len() * HOLD_BYTES,
            What::PutBack(left) => left.memory_bytes(),
            What::Settle(_) | What::Hold(_) => 0,
        };
        self.held.memory_bytes() + others
    }
}

impl Owner for VecDeque<Settling> {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        !self.is_empty()
    }
}
