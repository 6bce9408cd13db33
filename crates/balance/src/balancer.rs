//! The rules, and what is remembered from one interval to the next.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{ConnectionId, Instant, QueueId, ShardId};

use crate::distance::Distances;
use crate::estimate::Estimate;
use crate::load::{BusyQueue, Decision, Load, Move, QueueMove, Reason, Talker};

/// Connections remembered; beyond that those are forgotten that moved longest ago.
const MEMORY_MAX: usize = 10_000;

/// When connections and queues move. Shares of a shard's time are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// From here on a shard is saturated, if it stays so for `patience` intervals.
    pub saturated: u32,
    /// Up to here a shard idles, so that others may use its time.
    pub idle: u32,
    /// A shard that is made fuller by a move is not to be fuller than this afterwards.
    pub spread_to: u32,
    /// The same for connections that come to their queues.
    pub gather_to: u32,
    /// Intervals in a row in which a shard must have been saturated.
    pub patience: u32,
    /// Intervals in a row in which a connection must have published elsewhere.
    pub insistence: u32,
    /// The share of a connection's messages, in thousandths, that must go to the shard it is
    /// gathered to.
    pub share: u32,
    /// Messages per second below which a connection is left alone.
    pub messages_min: u64,
    /// Movable connections that publish to a saturated shard, below which none is spread.
    pub talkers_min: usize,
    /// Moves of connections in one interval.
    pub moves_max: usize,
    /// Moves of queues in one interval.
    pub queues_max: usize,
    /// How long a connection stays after a move, and a queue that was told to go.
    pub pause: Duration,
    /// The longest such pause of one that was spread and gathered again and again, or did not go.
    pub pause_max: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            saturated: 850,
            idle: 500,
            spread_to: 700,
            gather_to: 600,
            patience: 3,
            insistence: 2,
            share: 800,
            messages_min: 10,
            talkers_min: 4,
            moves_max: 8,
            queues_max: 4,
            pause: Duration::from_secs(10),
            pause_max: Duration::from_secs(600),
        }
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Where most of its messages go that its shard does not have, and for how many intervals now.
    elsewhere: Option<(ShardId, u32)>,
    /// Until then it stays where it is.
    until: Instant,
    /// How long it stays after its next move.
    pause: Duration,
    was_spread: bool,
    /// The shard that it was told to leave last.
    told_to_leave: Option<ShardId>,
}

/// Decides, and remembers what it has decided.
#[derive(Clone, Debug)]
pub struct Balancer {
    rules: Rules,
    distances: Distances,
    /// Intervals in a row in which each shard was saturated.
    saturated: Vec<u32>,
    known: BTreeMap<ConnectionId, Known>,
    /// Until when queues that were told to go are left alone.
    told: BTreeMap<QueueId, Instant>,
}

impl Balancer {
    /// One that remembers nothing, for shards that are all near one another.
    #[must_use]
    pub fn new(rules: Rules) -> Balancer {
        Balancer::over(rules, Distances::default())
    }

    /// One that remembers nothing, for shards that are so far from one another.
    #[must_use]
    pub fn over(rules: Rules, distances: Distances) -> Balancer {
        let (known, told) = (BTreeMap::new(), BTreeMap::new());
        Balancer { rules, distances, saturated: Vec::new(), known, told }
    }

    /// The moves that follow from the last interval's load, at most `moves_max` of connections and
    /// `queues_max` of queues, none of them to a saturated shard, none of what is tied to its shard
    /// or has moved lately.
    pub fn decide(&mut self, now: Instant, load: &Load) -> Decision {
        self.remember(now, load);
        let mut estimate = Estimate::new(load);
        let mut connections = Vec::new();
        self.gather(now, load, &mut estimate, &mut connections);
        let queues = self.relieve(now, load, &mut estimate);
        self.spread(now, load, &mut estimate, &mut connections);
        Decision { connections, queues }
    }

    fn remember(&mut self, now: Instant, load: &Load) {
        self.saturated.resize(load.shards.len(), 0);
        for (count, shard) in self.saturated.iter_mut().zip(&load.shards) {
            *count = if shard.busy >= self.rules.saturated { count.saturating_add(1) } else { 0 };
        }
        for talker in &load.talkers {
            let elsewhere = self.elsewhere(talker);
            let pause = self.rules.pause;
            let known = self.known.entry(talker.connection).or_insert(Known {
                elsewhere: None,
                until: Instant::default(),
                pause,
                was_spread: false,
                told_to_leave: None,
            });
            known.elsewhere = match (known.elsewhere, elsewhere) {
                (Some((before, count)), Some(home)) if before == home => {
                    Some((home, count.saturating_add(1)))
                }
                (_, Some(home)) => Some((home, 1)),
                (_, None) => None,
            };
        }
        if self.known.len() > MEMORY_MAX.max(2 * load.talkers.len()) {
            // Those that move still are kept; the others are known again when they publish.
            self.known.retain(|_, known| known.until > now);
        }
    }

    /// The other shard to which a connection publishes most.
    fn elsewhere(&self, talker: &Talker) -> Option<ShardId> {
        let (home, messages) = talker.favourite()?;
        let enough = u128::from(messages) * 1000
            >= u128::from(self.rules.share) * u128::from(talker.messages());
        (home != talker.shard && enough && messages >= self.rules.messages_min.max(1))
            .then_some(home)
    }

    fn may_move(&self, now: Instant, talker: &Talker) -> bool {
        let rests = self.known.get(&talker.connection).is_some_and(|known| known.until > now);
        talker.movable && !rests
    }

    fn gather(
        &mut self,
        now: Instant,
        load: &Load,
        estimate: &mut Estimate,
        moves: &mut Vec<Move>,
    ) {
        for talker in &load.talkers {
            if moves.len() >= self.rules.moves_max {
                return;
            }
            let known = self.known.get(&talker.connection);
            let Some((home, count)) = known.and_then(|known| known.elsewhere) else { continue };
            if count < self.rules.insistence
                || home.index() >= load.shards.len()
                || !self.may_move(now, talker)
            {
                continue;
            }
            let cost = estimate.cost(talker);
            let busy = estimate.busy(home);
            if busy + cost > self.rules.gather_to {
                continue;
            }
            let to_home = talker.favourite().map_or(0, |(_, messages)| messages);
            let share = u128::from(to_home) * 100 / u128::from(talker.messages().max(1));
            let reason = Reason::Gather { share: share as u32, busy: busy / 10 };
            estimate.shift(talker.shard, home, cost);
            self.note(now, talker, home, reason, moves);
        }
    }

    /// Sends queues off a saturated shard that has several busy ones: who uses them follows, so that
    /// messages stay on one shard, which spreading connections would end.
    fn relieve(&mut self, now: Instant, load: &Load, estimate: &mut Estimate) -> Vec<QueueMove> {
        self.told.retain(|_, until| *until > now);
        let mut moves = Vec::new();
        for place in 0..load.shards.len() {
            let hot = ShardId(place as u16);
            if self.saturated[place] < self.rules.patience {
                continue;
            }
            let is_busy = |queue: &&BusyQueue| {
                queue.shard == hot && queue.messages >= self.rules.messages_min.max(1)
            };
            let mut busy: Vec<&BusyQueue> = load.queues.iter().filter(is_busy).collect();
            if busy.len() < 2 {
                // Where it went, it would be as hot.
                continue;
            }
            busy.sort_by_key(|queue| (core::cmp::Reverse(queue.messages), queue.queue));
            let all: u128 = busy.iter().map(|queue| u128::from(queue.messages)).sum();
            let used = load.shards[place].busy.min(1000);
            let before = moves.len();
            for queue in busy {
                if moves.len() >= self.rules.queues_max || estimate.busy(hot) < self.rules.spread_to
                {
                    break;
                }
                let Some((idle, there)) = estimate.idlest(hot, &self.distances) else { break };
                let cost = (u128::from(used) * u128::from(queue.messages) / all) as u32;
                let was_idle = load.shards[idle.index()].busy <= self.rules.idle;
                let fits = was_idle && there + cost <= self.rules.spread_to;
                if !fits || !queue.movable || self.told.contains_key(&queue.queue) {
                    continue;
                }
                let idle_share = estimate.busy(idle) / 10;
                estimate.shift(hot, idle, cost);
                self.told.insert(queue.queue, now + self.rules.pause);
                let (busy, share) = (used / 10, cost * 100 / used.max(1));
                let reason = Reason::Relieve { busy, share, idle: idle_share };
                moves.push(QueueMove { queue: queue.queue, from: hot, to: idle, reason });
            }
            if moves.len() > before {
                // What they changed is to be seen before anything else goes.
                self.saturated[place] = 0;
            }
        }
        moves
    }

    fn spread(
        &mut self,
        now: Instant,
        load: &Load,
        estimate: &mut Estimate,
        moves: &mut Vec<Move>,
    ) {
        for place in 0..load.shards.len() {
            if self.saturated[place] < self.rules.patience {
                continue;
            }
            let hot = ShardId(place as u16);
            let mut talkers: Vec<&Talker> = load
                .talkers
                .iter()
                .filter(|talker| talker.shard == hot && talker.movable)
                .filter(|talker| talker.messages() >= self.rules.messages_min.max(1))
                .collect();
            if talkers.len() < self.rules.talkers_min {
                continue;
            }
            // Half of them stay whatever happens: they are the nearest to the queue.
            let movable = talkers.len() / 2;
            talkers.sort_by_key(|talker| core::cmp::Reverse(talker.messages()));
            let free: Vec<&Talker> =
                talkers.into_iter().filter(|talker| self.may_move(now, talker)).collect();
            let before = moves.len();
            for talker in free.into_iter().take(movable) {
                if moves.len() >= self.rules.moves_max || estimate.busy(hot) < self.rules.spread_to
                {
                    break;
                }
                let Some((idle, there)) = estimate.idlest(hot, &self.distances) else { break };
                let cost = estimate.cost(talker);
                let was_idle = load.shards[idle.index()].busy <= self.rules.idle;
                if !was_idle || there + cost > self.rules.spread_to {
                    continue;
                }
                let reason = Reason::Spread {
                    busy: load.shards[place].busy.min(1000) / 10,
                    idle: estimate.busy(idle) / 10,
                };
                estimate.shift(hot, idle, cost);
                self.note(now, talker, idle, reason, moves);
            }
            if moves.len() > before {
                // What they changed is to be seen before more of them go.
                self.saturated[place] = 0;
            }
        }
    }

    fn note(
        &mut self,
        now: Instant,
        talker: &Talker,
        to: ShardId,
        reason: Reason,
        moves: &mut Vec<Move>,
    ) {
        if let Some(known) = self.known.get_mut(&talker.connection) {
            let longer = (known.pause * 2).min(self.rules.pause_max);
            known.elsewhere = None;
            let did_not_go = known.told_to_leave == Some(talker.shard);
            known.told_to_leave = Some(talker.shard);
            known.until = now + if did_not_go { longer } else { known.pause };
            let is_spread = matches!(reason, Reason::Spread { .. });
            if did_not_go || (known.was_spread && !is_spread) {
                // Each try stops it for a while. There and back again: next time it stays longer.
                known.pause = longer;
            }
            known.was_spread = is_spread;
        }
        moves.push(Move { connection: talker.connection, from: talker.shard, to, reason });
    }
}
