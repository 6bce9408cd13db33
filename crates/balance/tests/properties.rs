//! What holds for every load, and that a load that does not change comes to rest.

use lepus_balance::{Balancer, BusyQueue, Load, Move, Rules, ShardLoad, Talker};
use lepus_base::{ConnectionId, Instant, QueueId, Rng, ShardId};

/// A connection of the model: where it is and what it publishes per second.
#[derive(Clone, Debug)]
struct Publisher {
    shard: usize,
    to: Vec<(usize, u64)>,
}

/// A machine whose shards take so long for a message: at its connection, in its queue, and for
/// each side of a crossing.
#[derive(Clone, Copy, Debug)]
struct Costs {
    edge: f64,
    queue: f64,
    crossing: f64,
}

fn load(shards: usize, publishers: &[Publisher], costs: Costs) -> Load {
    let mut busy = vec![0.0; shards];
    for publisher in publishers {
        for &(home, messages) in &publisher.to {
            let messages = messages as f64;
            busy[publisher.shard] += messages * costs.edge;
            busy[home] += messages * costs.queue;
            if home != publisher.shard {
                busy[publisher.shard] += messages * costs.crossing;
                busy[home] += messages * costs.crossing;
            }
        }
    }
    let talkers = publishers.iter().enumerate().map(|(id, publisher)| Talker {
        connection: ConnectionId(id as u64),
        shard: ShardId(publisher.shard as u16),
        movable: true,
        to: publisher.to.iter().map(|&(home, count)| (ShardId(home as u16), count)).collect(),
    });
    Load {
        shards: busy
            .iter()
            .map(|&busy| ShardLoad { busy: (busy * 1000.0).min(1000.0) as u32 })
            .collect(),
        talkers: talkers.collect(),
        queues: Vec::new(),
    }
}

/// The seconds in which connections moved, while the load is what it is.
fn run(shards: usize, publishers: &mut [Publisher], costs: Costs, seconds: u64) -> Vec<u64> {
    let mut balancer = Balancer::new(Rules::default());
    let mut moved = Vec::new();
    for second in 0..seconds {
        let load = load(shards, publishers, costs);
        let moves = balancer.decide(Instant::from_millis(second * 1000), &load).connections;
        for one in &moves {
            publishers[one.connection.0 as usize].shard = one.to.index();
            moved.push(second);
        }
    }
    moved
}

const COSTS: Costs = Costs { edge: 0.6e-6, queue: 0.4e-6, crossing: 0.1e-6 };

#[test]
fn a_load_that_does_not_change_comes_to_rest() {
    let mut rng = Rng::new(1);
    for round in 0..100 {
        let shards = 2 + rng.below(7) as usize;
        let mut publishers: Vec<Publisher> = (0..1 + rng.below(40))
            .map(|_| Publisher {
                shard: rng.below(shards as u64) as usize,
                to: vec![(rng.below(shards as u64) as usize, 1 + rng.below(200_000))],
            })
            .collect();
        let start = publishers.clone();
        let moved = run(shards, &mut publishers, COSTS, 200);
        let late = moved.iter().filter(|&&second| second > 60).count();
        assert_eq!(late, 0, "round {round}: {moved:?} with {start:?}");
    }
}

#[test]
fn a_hot_queue_is_spread_and_gathered_again() {
    // Sixteen publishers that need 1.6 shards where the queue is.
    let mut publishers = vec![Publisher { shard: 0, to: vec![(0, 100_000)] }; 16];
    let moved = run(4, &mut publishers, COSTS, 100);
    assert!(!moved.is_empty() && *moved.last().unwrap() < 30, "{moved:?}");
    let there = publishers.iter().filter(|publisher| publisher.shard == 0).count();
    assert!((2..=8).contains(&there), "{there} of 16 stayed");
    // Now they need a sixteenth of it.
    for publisher in &mut publishers {
        publisher.to[0].1 = 6_000;
    }
    let moved = run(4, &mut publishers, COSTS, 100);
    assert_eq!(moved.len(), 16 - there);
    assert!(publishers.iter().all(|publisher| publisher.shard == 0));
}

fn check(load: &Load, moves: &[Move], rules: &Rules, last: &mut [Option<u64>], second: u64) {
    assert!(moves.len() <= rules.moves_max);
    for one in moves {
        let talker = &load.talkers[one.connection.0 as usize];
        assert!(talker.movable && talker.shard == one.from && one.from != one.to);
        assert!(load.shards[one.to.index()].busy < rules.saturated, "{one:?}");
        let last = &mut last[one.connection.0 as usize];
        assert!(last.is_none_or(|last| second - last >= rules.pause.as_secs()), "{one:?}");
        *last = Some(second);
    }
}

#[test]
fn never_more_than_the_limit_never_too_early_never_to_a_saturated_shard() {
    let mut rng = Rng::new(2);
    let mut moved = 0;
    for _ in 0..200 {
        let rules = Rules { moves_max: 1 + rng.below(10) as usize, ..Rules::default() };
        let shards = 1 + rng.below(8) as u16;
        let connections = 1 + rng.below(60);
        let mut balancer = Balancer::new(rules);
        let mut last = vec![None; connections as usize];
        let steady = rng.chance(1, 2);
        let mut talkers = Vec::new();
        let mut busy = Vec::new();
        for second in 0..60 {
            if !steady || second == 0 {
                talkers = (0..connections).map(|id| random_talker(&mut rng, id, shards)).collect();
                busy = (0..shards).map(|_| ShardLoad { busy: rng.below(1200) as u32 }).collect();
            }
            let load = Load { shards: busy.clone(), talkers: talkers.clone(), queues: Vec::new() };
            let moves = balancer.decide(Instant::from_millis(second * 1000), &load).connections;
            check(&load, &moves, &rules, &mut last, second);
            moved += moves.len();
        }
    }
    assert!(moved > 1000, "{moved} moves say little");
}

fn random_talker(rng: &mut Rng, id: u64, shards: u16) -> Talker {
    let home = || (0..shards).map(ShardId);
    let mut to: Vec<(ShardId, u64)> = home().map(|shard| (shard, rng.below(100))).collect();
    if rng.chance(3, 4) {
        let favourite = rng.below(u64::from(shards)) as usize;
        to[favourite].1 += 10_000;
    }
    Talker {
        connection: ConnectionId(id),
        shard: ShardId(rng.below(u64::from(shards)) as u16),
        movable: rng.chance(4, 5),
        to,
    }
}

/// Each publisher has a queue of its own. The seconds in which queues moved, while the load is what
/// it is, and how busy the shards are in the end.
fn run_with_queues(shards: usize, publishers: &mut [Publisher], seconds: u64) -> (Vec<u64>, Load) {
    let mut balancer = Balancer::new(Rules::default());
    let mut moved = Vec::new();
    let mut last = Load::default();
    for second in 0..seconds {
        last = load(shards, publishers, COSTS);
        last.queues = publishers
            .iter()
            .enumerate()
            .map(|(id, publisher)| BusyQueue {
                queue: QueueId(id as u64),
                shard: ShardId(publisher.to[0].0 as u16),
                movable: true,
                messages: publisher.to[0].1,
            })
            .collect();
        let decision = balancer.decide(Instant::from_millis(second * 1000), &last);
        assert!(decision.queues.len() <= Rules::default().queues_max);
        for one in &decision.queues {
            assert_eq!(publishers[one.queue.0 as usize].to[0].0, one.from.index());
            assert!(last.shards[one.to.index()].busy <= Rules::default().idle, "{one:?}");
            publishers[one.queue.0 as usize].to[0].0 = one.to.index();
            moved.push(second);
        }
        for one in &decision.connections {
            publishers[one.connection.0 as usize].shard = one.to.index();
        }
    }
    (moved, last)
}

#[test]
fn queues_that_were_all_declared_on_one_shard_find_places_and_stay() {
    // Together they need 1.6 shards.
    let mut publishers = vec![Publisher { shard: 0, to: vec![(0, 160_000)] }; 10];
    let (moved, end) = run_with_queues(4, &mut publishers, 100);
    assert!(!moved.is_empty() && *moved.last().unwrap() < 30, "{moved:?}");
    assert!(end.shards.iter().all(|shard| shard.busy < 850), "{:?}", end.shards);
    // Everybody is with the own queue again.
    assert!(publishers.iter().all(|publisher| publisher.shard == publisher.to[0].0));
}

#[test]
fn queues_come_to_rest_whatever_their_load() {
    let mut rng = Rng::new(3);
    for round in 0..100 {
        let shards = 2 + rng.below(7) as usize;
        let mut publishers: Vec<Publisher> = (0..2 + rng.below(40))
            .map(|_| {
                let shard = rng.below(2) as usize;
                Publisher { shard, to: vec![(shard, 1 + rng.below(200_000))] }
            })
            .collect();
        let start = publishers.clone();
        let (moved, _) = run_with_queues(shards, &mut publishers, 300);
        let late = moved.iter().filter(|&&second| second > 150).count();
        assert_eq!(late, 0, "round {round}: {moved:?} with {start:?}");
    }
}
