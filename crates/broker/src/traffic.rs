//! Who talks to whom: what connections publish, by the shard of the queue, and what they get from
//! other shards.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, Instant, QueueId, ShardId};

/// What passed a connection's socket since it was accepted, without what TLS adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Octets {
    /// Bytes that came, as far as they were taken in.
    pub received: u64,
    /// How often bytes came.
    pub reads: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// How often bytes were sent.
    pub writes: u64,
}

/// Messages that a connection has published since it was looked at last, each counted for every
/// queue that got it, and those that it got from other shards.
#[derive(Debug, Default)]
pub struct Traffic {
    /// To queues of its own shard.
    pub here: u64,
    /// To queues of other shards, and from them.
    pub there: Vec<(ShardId, u64)>,
    /// When it was looked at last.
    since: Instant,
}

impl Traffic {
    /// One message for a queue of another shard, or from it.
    pub fn count(&mut self, home: ShardId) {
        match self.there.iter_mut().find(|(shard, _)| *shard == home) {
            Some((_, count)) => *count += 1,
            None => self.there.push((home, 1)),
        }
    }

    /// Messages per second since the last look, by shard; nothing at the first look.
    pub(crate) fn take(&mut self, now: Instant, own: ShardId) -> Vec<(ShardId, u64)> {
        let nanos = now.since(self.since).as_nanos().max(1);
        let is_first = self.since == Instant::default();
        self.since = now;
        let here = core::mem::take(&mut self.here);
        if is_first || (here == 0 && self.there.is_empty()) {
            self.there.clear();
            return Vec::new();
        }
        let rate = |count: u64| {
            let rate = u128::from(count) * 1_000_000_000 / nanos;
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let mut rates: Vec<(ShardId, u64)> = Vec::with_capacity(self.there.len() + 1);
        rates.push((own, rate(here)));
        rates.extend(self.there.drain(..).map(|(shard, count)| (shard, rate(count))));
        rates
    }
}

/// A connection that published, or got something from another shard, since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionTraffic {
    /// The connection.
    pub connection: ConnectionId,
    /// Whether it could go to another shard once it is quiet, see [`Query::MoveConnection`](crate::Query::MoveConnection): to
    /// the one that it talks to most, or if that is its own, to any.
    pub movable: bool,
    /// Messages per second by the shard of the queue.
    pub to: Vec<(ShardId, u64)>,
}

/// A queue that got messages since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTraffic {
    /// The queue.
    pub queue: QueueId,
    /// Whether it could go to another shard now, see [`Query::MoveQueue`](crate::Query::MoveQueue).
    pub movable: bool,
    /// Messages per second that were published to it.
    pub messages: u64,
}

/// Queues of which something is remembered although they are idle: there may be very many.
const SEEN_MAX: usize = 16_384;

/// What was seen of queues at the last look.
#[derive(Debug, Default)]
pub(crate) struct QueueLooks {
    /// By place: which queue, how many messages it had got by then, and when that was.
    seen: BTreeMap<usize, (QueueId, u64, Instant)>,
    /// The place that was looked at last.
    place: usize,
}

impl QueueLooks {
    /// The next of so many places to look at.
    pub(crate) fn next_place(&mut self, places: usize) -> usize {
        self.place = if self.place + 1 < places { self.place + 1 } else { 0 };
        self.place
    }

    /// No queue is there.
    pub(crate) fn forget(&mut self, place: usize) {
        self.seen.remove(&place);
    }

    /// Looks at the queue there, to which so many messages were published in all. Those per second since the last
    /// look; none if there was no such look, or no message, unless it is told `with_idle`.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        place: usize,
        (id, total): (QueueId, u64),
        with_idle: bool,
    ) -> Option<u64> {
        let before = self.seen.insert(place, (id, total, now));
        let before = before.filter(|(seen, ..)| *seen == id);
        if before.is_none() && !with_idle {
            return None;
        }
        let (_, old, since) = before.unwrap_or((id, total, now));
        let nanos = now.since(since).as_nanos().max(1);
        let count = total.saturating_sub(old);
        if count == 0 && !with_idle {
            if self.seen.len() > SEEN_MAX {
                self.seen.remove(&place);
            }
            return None;
        }
        let messages = u128::from(count) * 1_000_000_000 / nanos;
        Some(u64::try_from(messages).unwrap_or(u64::MAX))
    }
}
