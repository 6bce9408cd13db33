//! The balancer's thread: once a second it asks the shards what they did, and orders the moves that
//! follow from it; or, for tests of clients, has everything move at random.

use super::lifecycle::Lifecycle;
use super::plan::Plan;
use crate::config::Config;
use crate::figures::Figures;
use crate::log::Log;
use lepus_balance::{
    Balancer, BusyQueue, Decision, Distance, Distances, Load, Move, QueueMove, Restless, Rules,
    ShardLoad, Talker,
};
use lepus_base::{Instant, ShardId};
use lepus_broker::{Answer, Query};
use lepus_shard::{Clock, MetricsSnapshot, Stopped};
use lepus_topology::{Machine, Place};
use std::sync::Arc;
use std::time::Duration;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same while everything moves at random.
const RESTLESS_INTERVAL: Duration = Duration::from_millis(10);
/// How long a shard may take to tell; then nothing is decided this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections of one shard that are looked at in one interval; those beyond have their turn later.
const SLOTS_MAX: usize = 4096;
/// Queues of one shard that are looked at in one interval.
const PLACES_MAX: usize = 16_384;
/// From this share of its time on, in thousandths, a shard is asked for its queues, too.
const QUEUES_BUSY_MIN: u32 = 700;
/// Below this share of its time, in thousandths, a shard is not asked: what it does is not worth
/// waking it.
const BUSY_MIN: u32 = 5;

/// Starts the thread, where there is something to balance. It ends with the shards.
///
/// # Errors
/// When the system has no thread.
pub(super) fn start(
    config: &Config,
    plan: &Plan,
    figures: &Arc<Figures>,
    lifecycle: &Arc<Lifecycle>,
    clock: Clock,
    log: &Log,
) -> Result<(), String> {
    if !config.balancer_enabled || figures.commands.shards() < 2 {
        return Ok(());
    }
    let (figures, lifecycle) = (Arc::clone(figures), Arc::clone(lifecycle));
    let log = log.clone();
    let judge = match config.balancer_restless {
        true => Judge::Random(Restless::new(u64::from(std::process::id()))),
        false => {
            let distances = distances(&plan.machine, &plan.placement.places, plan.shards);
            Judge::Load(Balancer::over(Rules::default(), distances))
        }
    };
    let started = std::thread::Builder::new()
        .name("balancer".into())
        .spawn(move || balance(&figures, &lifecycle, clock, &log, judge));
    started.map(drop).map_err(|error| format!("cannot start the balancer's thread: {error}"))
}

/// How far shards at these places are from one another; near where they have none.
fn distances(machine: &Machine, places: &[Place], shards: u16) -> Distances {
    Distances::new(shards, |from, to| {
        let (Some(from), Some(to)) = (places.get(from.index()), places.get(to.index())) else {
            return Distance::Near;
        };
        if from.cpu.node != to.cpu.node {
            return Distance::Far(machine.distance(from.cpu.node, to.cpu.node));
        }
        // A shard that may run on several CPUs of its node is beside no other one.
        let is_bound = from.cpus.len() == 1 && to.cpus.len() == 1;
        match is_bound && from.cpu.core == to.cpu.core {
            true => Distance::Sibling,
            false => Distance::Near,
        }
    })
}

/// Why a shard told nothing.
enum Silence {
    /// The broker has stopped.
    Stopped,
    /// It takes long.
    Late(ShardId),
}

/// Who decides.
enum Judge {
    Load(Balancer),
    Random(Restless),
}

impl Judge {
    /// How often it wants to know the load.
    fn interval(&self) -> Duration {
        match self {
            Judge::Load(_) => INTERVAL,
            Judge::Random(_) => RESTLESS_INTERVAL,
        }
    }

    fn decide(&mut self, now: Instant, load: &Load) -> Decision {
        match self {
            Judge::Load(balancer) => balancer.decide(now, load),
            Judge::Random(restless) => restless.decide(load),
        }
    }
}

/// Watches and orders until the shards have stopped.
fn balance(figures: &Figures, lifecycle: &Lifecycle, clock: Clock, log: &Log, mut judge: Judge) {
    let looks_at_all = matches!(judge, Judge::Random(_));
    let (before, looked_at) = (figures.turns(), clock.instant());
    let mut watch = Watch { figures, clock, before, looked_at, looks_at_all };
    loop {
        std::thread::sleep(judge.interval());
        let load = match watch.look() {
            Ok(Some(load)) => load,
            Ok(None) => continue,
            Err(Silence::Stopped) => return,
            Err(Silence::Late(_)) if lifecycle.stops() => return,
            Err(Silence::Late(shard)) => {
                log.warning("balancer-late", format!("shard {shard} does not answer"));
                continue;
            }
        };
        let decision = judge.decide(clock.instant(), &load);
        if order(figures, decision).is_err() {
            return;
        }
    }
}

/// Tells the shards what goes. `Err` when they have stopped.
fn order(figures: &Figures, decision: Decision) -> Result<(), Stopped> {
    let commands = &figures.commands;
    for QueueMove { queue, from, to, reason } in decision.queues {
        commands.send(from, Query::MoveQueue { queue, to, why: reason.to_string() })?;
    }
    for Move { connection, from, to, reason } in decision.connections {
        commands.send(from, Query::MoveConnection { connection, to, why: reason.to_string() })?;
    }
    Ok(())
}

/// What the shards did since the last look.
struct Watch<'a> {
    figures: &'a Figures,
    clock: Clock,
    before: Vec<MetricsSnapshot>,
    looked_at: Instant,
    /// Shards with little work are asked, too, and all for their queues.
    looks_at_all: bool,
}

impl Watch<'_> {
    /// The load since the last look; none while all shards rest.
    fn look(&mut self) -> Result<Option<Load>, Silence> {
        let turns = self.figures.turns();
        let now = self.clock.instant();
        let nanos = now.since(self.looked_at).as_nanos().max(1);
        let busy = |(now, before): (&MetricsSnapshot, &MetricsSnapshot)| {
            let busy = u128::from(now.busy_ns.saturating_sub(before.busy_ns)) * 1000 / nanos;
            ShardLoad { busy: u32::try_from(busy).unwrap_or(1000).min(1000) }
        };
        let shards: Vec<ShardLoad> = turns.iter().zip(&self.before).map(busy).collect();
        self.before = turns;
        self.looked_at = now;
        if !self.looks_at_all && shards.iter().all(|shard| shard.busy < BUSY_MIN) {
            return Ok(None);
        }
        let (talkers, queues) = self.traffic(&shards)?;
        Ok(Some(Load { shards, talkers, queues }))
    }

    /// Asks the shards that did something, all at the same time; for their queues only those that
    /// may have to give some away.
    fn traffic(&self, shards: &[ShardLoad]) -> Result<(Vec<Talker>, Vec<BusyQueue>), Silence> {
        let mut answers = Vec::new();
        let all = self.looks_at_all;
        let places = shards.iter().enumerate().filter(|(_, load)| all || load.busy >= BUSY_MIN);
        for (place, load) in places {
            let shard = ShardId(place as u16);
            let wants_queues = all || load.busy >= QUEUES_BUSY_MIN;
            let query = Query::Traffic {
                connections_max: SLOTS_MAX,
                queues_max: if wants_queues { PLACES_MAX } else { 0 },
                with_idle: all,
            };
            let answer = self.figures.commands.begin(shard, query);
            answers.push((shard, answer.map_err(|_| Silence::Stopped)?));
        }
        let (mut talkers, mut queues) = (Vec::new(), Vec::new());
        for (shard, answer) in answers {
            let answer = answer.recv_timeout(ANSWER_TIMEOUT).map_err(|_| Silence::Late(shard))?;
            let Answer::Traffic { connections: talks, queues: traffic } = answer else {
                unreachable!("a question for traffic is answered with {answer:?}");
            };
            talkers.extend(talks.into_iter().map(|talk| Talker {
                connection: talk.connection,
                shard,
                movable: talk.movable,
                to: talk.to,
            }));
            queues.extend(traffic.into_iter().map(|one| BusyQueue {
                queue: one.queue,
                shard,
                movable: one.movable,
                messages: one.messages,
            }));
        }
        Ok((talkers, queues))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_topology::{Wishes, description, plan};

    const MACHINE: &str = r#"
        [[cores]]
        package = 0
        node = 0
        cpus = ["0,4", "1,5"]
        [[cores]]
        package = 1
        node = 1
        cpus = ["2,6", "3,7"]
        [[node]]
        id = 0
        memory = "2GiB"
        distances = [10, 32]
        [[node]]
        id = 1
        memory = "2GiB"
        distances = [32, 10]
    "#;

    #[test]
    fn distances_are_those_of_the_places_of_shards() {
        let machine = description::read(MACHINE).unwrap();
        let wishes = Wishes { shards: Some(8), ..Wishes::default() };
        let placement = plan(&machine, &wishes).unwrap();
        let places = &placement.places;
        assert_eq!(places.len(), 8);
        let distances = distances(&machine, places, 8);
        let mut counts = [0; 3];
        for (from, to) in (0..8).flat_map(|from| (0..8).map(move |to| (from, to))) {
            let (one, other) = (places[from].cpu, places[to].cpu);
            let distance = distances.between(ShardId(from as u16), ShardId(to as u16));
            let expected = match (one.node == other.node, one.core == other.core) {
                (false, _) => Distance::Far(32),
                (true, true) => Distance::Sibling,
                (true, false) => Distance::Near,
            };
            assert_eq!(distance, expected, "{one:?} {other:?}");
            counts[match distance {
                Distance::Near => 0,
                Distance::Sibling => 1,
                Distance::Far(_) => 2,
            }] += 1;
        }
        assert_eq!(counts, [16, 16, 32]);
    }

    #[test]
    fn shards_without_places_are_near_one_another() {
        let machine = description::read(MACHINE).unwrap();
        let distances = distances(&machine, &[], 8);
        assert_eq!(distances.between(ShardId(0), ShardId(7)), Distance::Near);
    }
}
