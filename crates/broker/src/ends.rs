//! Ends that take long: of a channel with very many consumers, of a connection with very many
//! channels or exclusive queues, of a queue with very many consumers. Each is a job with a cursor.
//!
//! All of them together take a number of steps per turn, some when they begin and some later, by
//! turns. To clients each is atomic: what ends is asked for nothing any more and gets nothing, and
//! who waits for an end is answered after the last step.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};

use lepus_base::{ConnectionId, QueueId};

use crate::channel::At;
use crate::channels::Channels;
use crate::owner::{Conditions, Owner};

/// Steps of all ends in one go before other work gets its turn: a channel, a consumer, a queue, a
/// delivery.
const STEPS_AT_ONCE_MAX: usize = 1024;
/// Those of one end before another one's turn.
const STEPS_IN_TURN_MAX: usize = 64;
/// Something of a client that ends. At a home, the end of a queue is that its consumers are told.
#[derive(Debug)]
pub(crate) enum End {
    /// A channel cancels its consumers.
    Channel {
        at: At,
        /// The consumer to go on with.
        next: usize,
    },
    /// The channels and exclusive queues of a connection go.
    Connection(Box<Parting>),
}

/// A connection that ends.
#[derive(Debug)]
pub(crate) struct Parting {
    slot: u32,
    id: ConnectionId,
    /// The channel to go on with.
    next: Option<u16>,
    /// Exclusive queues that are left.
    queues: BTreeSet<QueueId>,
}

impl Parting {
    /// The end of the connection in this slot, with these exclusive queues.
    pub(crate) fn new(slot: u32, id: ConnectionId, queues: BTreeSet<QueueId>) -> Parting {
        Parting { slot, id, next: Some(0), queues }
    }

    /// The connection, and where it is.
    pub(crate) fn connection(&self) -> (u32, ConnectionId) {
        (self.slot, self.id)
    }

    /// The next of its channels to be ended.
    pub(crate) fn next_channel(&mut self, channels: &Channels) -> Option<u64> {
        let channel = self.next.and_then(|next| channels.from(next));
        let key = channel.map(|channel| channel.key);
        self.next = key.and_then(|key| (key as u16).checked_add(1));
        key
    }

    /// The next of its exclusive queues to be deleted.
    pub(crate) fn next_queue(&mut self) -> Option<QueueId> {
        self.queues.pop_first()
    }
}

/// All ends of one sort that are under way on a shard.
#[derive(Debug)]
pub(crate) struct Ends<E> {
    list: VecDeque<E>,
    /// Steps that may still be taken before other work gets its turn.
    steps: usize,
}

impl<E> Default for Ends<E> {
    fn default() -> Ends<E> {
        Ends { list: VecDeque::new(), steps: STEPS_AT_ONCE_MAX }
    }
}

impl<E> Ends<E> {
    /// Steps may be taken again as at the beginning of a turn.
    pub(crate) fn renew(&mut self) {
        self.steps = STEPS_AT_ONCE_MAX;
    }

    /// The end whose turn it is, if there are steps left.
    pub(crate) fn next(&mut self) -> Option<E> {
        if self.steps == 0 {
            return None;
        }
        self.list.pop_front()
    }

    /// An end has its turn: with so many steps left, it is over.
    pub(crate) fn begin_slice(&self) -> usize {
        self.steps.saturating_sub(STEPS_IN_TURN_MAX)
    }

    /// Takes one step, unless only `enough` are left.
    pub(crate) fn take_step(&mut self, enough: usize) -> bool {
        let has_more = self.steps > enough;
        self.steps -= usize::from(has_more);
        has_more
    }

    /// The turn of one is over, and it is not.
    pub(crate) fn put_off(&mut self, end: E) {
        self.list.push_back(end);
    }

    /// Steps that are left.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// So many were taken beside the turns.
    pub(crate) fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }
}

impl<E: core::fmt::Debug> Owner for Ends<E> {
    /// Whether some are under way.
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        !self.list.is_empty()
    }
}
