//! How far shards are from one another.

use alloc::vec::Vec;

use lepus_base::ShardId;

/// How far one shard is from another, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// On the same memory node, on different cores; or nothing is known.
    Near,
    /// On the same core: what one of them does slows the other.
    Sibling,
    /// On another memory node, at this distance as the system tells it: 10 is local, 20 twice as far.
    Far(u32),
}

impl Distance {
    /// What a shard at this distance has less room for than a near one that is as busy, in thousandths
    /// of its time.
    #[must_use]
    pub fn price(self) -> u32 {
        match self {
            Distance::Near => 0,
            // Two threads of a core do together little more than one alone.
            Distance::Sibling => 300,
            // Everything that crosses is fetched from there.
            Distance::Far(distance) => distance.saturating_mul(5).min(300),
        }
    }
}

/// The distances between all shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances {
    shards: usize,
    /// By shard from which, then by shard to which.
    all: Vec<Distance>,
}

impl Distances {
    /// Between so many shards, as `between` tells them.
    #[must_use]
    pub fn new(shards: u16, between: impl Fn(ShardId, ShardId) -> Distance) -> Distances {
        let ids = || (0..shards).map(ShardId);
        let all = ids().flat_map(|from| ids().map(move |to| (from, to)));
        let all = all.map(|(from, to)| between(from, to)).collect();
        Distances { shards: usize::from(shards), all }
    }

    /// The distance of two shards; near where nothing is known.
    #[must_use]
    pub fn between(&self, from: ShardId, to: ShardId) -> Distance {
        let is_known = from.index() < self.shards && to.index() < self.shards;
        match is_known {
            true => self.all[from.index() * self.shards + to.index()],
            false => Distance::Near,
        }
    }
}
