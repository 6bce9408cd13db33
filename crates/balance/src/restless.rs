//! Moves without a reason, for tests.

use lepus_base::{Rng, ShardId};

use crate::load::{Decision, Load, Move, QueueMove, Reason};

/// Of so many connections that may move, one does in one interval.
const CONNECTIONS_PER_MOVE: u64 = 4;
/// The same for queues.
const QUEUES_PER_MOVE: u64 = 2;

/// Decides at random, so that what clients see can be tested while everything moves.
#[derive(Clone, Debug)]
pub struct Restless {
    rng: Rng,
}

impl Restless {
    /// One whose moves follow from `seed` and what it is told.
    #[must_use]
    pub fn new(seed: u64) -> Restless {
        Restless { rng: Rng::new(seed) }
    }

    /// Moves of some of the connections and queues that may move: connections that talk mostly to
    /// queues of another shard go there, all else goes anywhere else. None where there is one shard.
    pub fn decide(&mut self, load: &Load) -> Decision {
        let shards = load.shards.len() as u64;
        let mut decision = Decision::default();
        if shards < 2 {
            return decision;
        }
        let reason = Reason::Restless;
        for talker in load.talkers.iter().filter(|talker| talker.movable) {
            let from = talker.shard;
            let other = self.other(from, shards);
            let favourite = talker.favourite().map(|(home, _)| home);
            let to = favourite.filter(|&home| home != from).unwrap_or(other);
            if self.rng.below(CONNECTIONS_PER_MOVE) == 0 {
                let connection = talker.connection;
                decision.connections.push(Move { connection, from, to, reason });
            }
        }
        for queue in load.queues.iter().filter(|queue| queue.movable) {
            let from = queue.shard;
            let to = self.other(from, shards);
            if self.rng.below(QUEUES_PER_MOVE) == 0 {
                decision.queues.push(QueueMove { queue: queue.queue, from, to, reason });
            }
        }
        decision
    }

    /// Any shard but this one.
    fn other(&mut self, shard: ShardId, shards: u64) -> ShardId {
        let step = 1 + self.rng.below(shards - 1);
        ShardId(((u64::from(shard.0) + step) % shards) as u16)
    }
}
