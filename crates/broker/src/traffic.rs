//! Who talks to whom: what connections publish, by the shard of the queue.

use alloc::vec::Vec;

use lepus_base::{ConnectionId, Instant, Now, ShardId};

use crate::broker::Broker;

/// Messages that a connection has published since it was looked at last, each counted for every
/// queue that got it.
#[derive(Debug, Default)]
pub struct Traffic {
    /// To queues of its own shard.
    pub here: u64,
    /// To queues of other shards.
    pub there: Vec<(ShardId, u64)>,
    /// When it was looked at last.
    since: Instant,
}

impl Traffic {
    /// One message for a queue of another shard.
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

/// A connection that published since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Talk {
    /// The connection.
    pub connection: ConnectionId,
    /// Whether it could go to another shard once it is quiet, see [`Broker::move_connection`].
    pub movable: bool,
    /// Messages per second by the shard of the queue that got them.
    pub to: Vec<(ShardId, u64)>,
}

impl Broker {
    /// What connections published since they were looked at last: looks at up to `slots_max`, those
    /// next that were not looked at this time.
    pub fn talks(&mut self, now: Now, slots_max: usize) -> Vec<Talk> {
        let own = self.edge.shard;
        let slots = self.edge.connections.capacity();
        let mut talks = Vec::new();
        for _ in 0..slots_max.min(slots) {
            self.looked_at = if self.looked_at + 1 < slots { self.looked_at + 1 } else { 0 };
            let Some(connection) = self.edge.connections.get_mut(self.looked_at) else { continue };
            let to = connection.traffic.take(now.instant, own);
            if !to.is_empty() {
                let movable = connection.may_leave();
                talks.push(Talk { connection: connection.id, movable, to });
            }
        }
        talks
    }
}
