//! Timers of one shard: a heap of moments, each naming what to look at then.
//!
//! A timer is never cancelled. Its target is looked at when it fires, and armed anew for the
//! moment that then counts; so traffic that moves a deadline costs nothing. One whose target was armed
//! for an earlier moment since is for nothing. Targets may go long before their timers would fire:
//! when timers are many more than targets, those are swept out.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use lepus_base::{ConnectionId, Instant, QueueId};

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Heartbeats and handshake of a connection.
    Connection(u32, ConnectionId),
    /// Expiry or lease of a queue.
    Queue(u32, QueueId),
    /// Deliveries that wait for their acknowledgement.
    Looks,
    /// Deliveries that keep the logs' oldest segments.
    Oldest,
    /// Dead letters of a queue that are to be tried again.
    Letters(QueueId),
    /// Direct replies that were dropped and not told in the log.
    UnreadReplies,
    /// Send buffers that may have been idle since the last look.
    Trim,
    /// Tables of queues that may have been idle since the last look.
    Tables,
    /// Filters of consumers that may cost much.
    Selectors,
    /// What other shards know of the filters of bindings.
    FilterCosts,
}

/// The timers of one shard.
#[derive(Debug, Default)]
pub struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    /// Arms a timer.
    pub fn arm(&mut self, at: Instant, timer: Timer) {
        if at != Instant::NEVER {
            self.0.push(Reverse((at, timer)));
        }
    }

    /// The earliest moment at which something is due.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.0.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Allocated bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Reverse<(Instant, Timer)>>()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the timers that nobody waits for.
    pub fn sweep(&mut self, mut is_awaited: impl FnMut(Instant, Timer) -> bool) {
        self.0.retain(|Reverse((at, timer))| is_awaited(*at, *timer));
        self.0.shrink_to_fit();
    }

    /// Takes the next timer that is due, and for when it was armed.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        if self.next() > now {
            return None;
        }
        self.0.pop().map(|Reverse(found)| found)
    }
}
