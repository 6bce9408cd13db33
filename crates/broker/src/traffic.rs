//! Who talks to whom: what connections publish, by the shard of the queue, and what they get from
//! other shards.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use lepus_base::{ConnectionId, Instant, Now, QueueId, ShardId};

use crate::broker::Broker;

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
    fn take(&mut self, now: Instant, own: ShardId) -> Vec<(ShardId, u64)> {
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
pub struct Talk {
    /// The connection.
    pub connection: ConnectionId,
    /// Whether it could go to another shard once it is quiet, see [`Broker::move_connection`]: to
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
    /// Whether it could go to another shard now, see [`Broker::move_queue`].
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

impl Broker {
    /// Queues that got messages since they were looked at last: looks at up to `places_max`, those
    /// next that were not looked at this time. A queue is told from its second look on. If
    /// `with_idle`, all queues looked at are told.
    pub fn queue_traffic(
        &mut self,
        now: Now,
        places_max: usize,
        with_idle: bool,
    ) -> Vec<QueueTraffic> {
        let places = self.homes.capacity();
        let mut found = Vec::new();
        for _ in 0..places_max.min(places) {
            let looks = &mut self.queue_looks;
            looks.place = if looks.place + 1 < places { looks.place + 1 } else { 0 };
            let place = looks.place;
            let Some(home) = self.homes.get(place) else {
                looks.seen.remove(&place);
                continue;
            };
            let (id, total) = (home.id, home.queue.totals().published);
            let before = looks.seen.insert(place, (id, total, now.instant));
            let before = before.filter(|(seen, ..)| *seen == id);
            if before.is_none() && !with_idle {
                continue;
            }
            let (_, old, since) = before.unwrap_or((id, total, now.instant));
            let nanos = now.instant.since(since).as_nanos().max(1);
            let count = total.saturating_sub(old);
            if count == 0 && !with_idle {
                if self.queue_looks.seen.len() > SEEN_MAX {
                    self.queue_looks.seen.remove(&place);
                }
                continue;
            }
            let messages = u128::from(count) * 1_000_000_000 / nanos;
            let messages = u64::try_from(messages).unwrap_or(u64::MAX);
            found.push(QueueTraffic { queue: id, movable: self.may_move(now, id), messages });
        }
        found
    }

    /// What connections published since they were looked at last: looks at up to `slots_max`, those
    /// next that were not looked at this time. If `with_idle`, all connections looked at are told,
    /// and whether one may go is only known when it is sent.
    pub fn talks(&mut self, now: Now, slots_max: usize, with_idle: bool) -> Vec<Talk> {
        let own = self.edge.shard;
        let slots = self.edge.connections.capacity();
        let mut talks = Vec::new();
        for _ in 0..slots_max.min(slots) {
            self.looked_at = if self.looked_at + 1 < slots { self.looked_at + 1 } else { 0 };
            let Some(connection) = self.edge.connections.get_mut(self.looked_at) else { continue };
            let to = connection.traffic.take(now.instant, own);
            if with_idle || !to.is_empty() {
                let most = to.iter().max_by_key(|(shard, count)| (*count, Reverse(*shard)));
                let movable = match most {
                    Some(&(shard, _)) if shard != own => connection.may_leave_to(shard),
                    _ => connection.may_leave(),
                };
                let movable = movable || with_idle;
                talks.push(Talk { connection: connection.id, movable, to });
            }
        }
        talks
    }
}
