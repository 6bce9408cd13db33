//! What moves would change, so that several in one interval do not all run to the same place.

use alloc::vec;
use alloc::vec::Vec;

use lepus_base::ShardId;

use crate::distance::Distances;
use crate::load::{Load, Talker};

/// How busy shards are, with what the moves decided so far would change. A message costs its shard
/// two parts: one for reading, checking and routing, which goes with the connection, and one for
/// the queue, which stays with the queue's home.
pub(crate) struct Estimate {
    /// Thousandths by shard.
    busy: Vec<u32>,
    /// Thousandths that one part costs, by shard, as a numerator over `parts`.
    measured: Vec<u32>,
    /// Parts per second by shard.
    parts: Vec<u64>,
}

impl Estimate {
    pub(crate) fn new(load: &Load) -> Estimate {
        let busy: Vec<u32> = load.shards.iter().map(|shard| shard.busy.min(1000)).collect();
        let mut parts = vec![0_u64; busy.len()];
        for talker in &load.talkers {
            add(&mut parts, talker.shard, talker.messages());
            for &(home, messages) in &talker.to {
                add(&mut parts, home, messages);
            }
        }
        Estimate { measured: busy.clone(), busy, parts }
    }

    pub(crate) fn busy(&self, shard: ShardId) -> u32 {
        self.busy.get(shard.index()).copied().unwrap_or(1000)
    }

    /// Thousandths that a connection costs where it is, without its queues.
    pub(crate) fn cost(&self, talker: &Talker) -> u32 {
        let place = talker.shard.index();
        let (Some(&busy), Some(&parts)) = (self.measured.get(place), self.parts.get(place)) else {
            return 0;
        };
        let cost = u128::from(busy) * u128::from(talker.messages()) / u128::from(parts.max(1));
        u32::try_from(cost).unwrap_or(1000).min(1000)
    }

    /// The shard with the most room for what another one gives away, the nearest and then the lowest
    /// of equals; and how busy it is for that, in thousandths, with the price of the distance.
    pub(crate) fn idlest(&self, from: ShardId, distances: &Distances) -> Option<(ShardId, u32)> {
        let all = (0..self.busy.len()).map(|place| ShardId(place as u16));
        let others = all.filter(|&shard| shard != from).map(|shard| {
            let distance = distances.between(from, shard);
            (self.busy(shard) + distance.price(), distance, shard)
        });
        others.min().map(|(busy, _, shard)| (shard, busy))
    }

    pub(crate) fn shift(&mut self, from: ShardId, to: ShardId, cost: u32) {
        if let Some(busy) = self.busy.get_mut(from.index()) {
            *busy = busy.saturating_sub(cost);
        }
        if let Some(busy) = self.busy.get_mut(to.index()) {
            *busy = busy.saturating_add(cost);
        }
    }
}

fn add(parts: &mut [u64], shard: ShardId, count: u64) {
    if let Some(parts) = parts.get_mut(shard.index()) {
        *parts = parts.saturating_add(count);
    }
}
