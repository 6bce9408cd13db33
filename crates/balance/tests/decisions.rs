//! Small loads and what is decided about them.

use lepus_balance::{
    Balancer, BusyQueue, Decision, Distance, Distances, Load, Move, QueueMove, Reason, Restless,
    Rules, ShardLoad, Talker,
};
use lepus_base::{ConnectionId, Instant, QueueId, ShardId};
use std::collections::BTreeSet;

/// Shards by how busy they are, in percent.
fn shards(busy: &[u32]) -> Vec<ShardLoad> {
    busy.iter().map(|busy| ShardLoad { busy: busy * 10 }).collect()
}

/// A movable connection on `shard` with messages per second by home.
fn talker(id: u64, shard: u16, to: &[(u16, u64)]) -> Talker {
    let to = to.iter().map(|&(home, messages)| (ShardId(home), messages)).collect();
    Talker { connection: ConnectionId(id), shard: ShardId(shard), movable: true, to }
}

/// What is decided about the same load in each of so many seconds.
fn decide(balancer: &mut Balancer, load: &Load, seconds: std::ops::Range<u64>) -> Vec<Vec<Move>> {
    let mut at = |second| balancer.decide(Instant::from_millis(second * 1000), load);
    seconds.map(|second| at(second).connections).collect()
}

/// The moves of the first ten seconds as (connection, to).
fn moves(load: &Load) -> Vec<(u64, u16)> {
    let decided = decide(&mut Balancer::new(Rules::default()), load, 0..10);
    decided.concat().iter().map(|one| (one.connection.0, one.to.0)).collect()
}

#[test]
fn who_publishes_elsewhere_goes_there() {
    let load = Load {
        shards: shards(&[20, 20]),
        talkers: vec![talker(1, 0, &[(1, 100)])],
        ..Load::default()
    };
    let mut balancer = Balancer::new(Rules::default());
    let decided = decide(&mut balancer, &load, 0..2);
    assert_eq!(decided[0], [], "once is no habit");
    let reason = Reason::Gather { share: 100, busy: 20 };
    let (from, to) = (ShardId(0), ShardId(1));
    assert_eq!(decided[1], [Move { connection: ConnectionId(1), from, to, reason }]);
    assert_eq!(reason.to_string(), "gather: 100 % of its messages go there, where 20 % are used");
}

#[test]
fn who_publishes_everywhere_stays() {
    for to in [&[(0, 100)][..], &[(0, 50), (1, 50)], &[(0, 30), (1, 70)], &[(1, 40), (2, 60)]] {
        let load = Load {
            shards: shards(&[20, 20, 20]),
            talkers: vec![talker(1, 0, to)],
            ..Load::default()
        };
        assert_eq!(moves(&load), [], "{to:?}");
    }
    let mostly = Load {
        shards: shards(&[20, 20, 20]),
        talkers: vec![talker(1, 0, &[(0, 10), (1, 5), (2, 85)])],
        ..Load::default()
    };
    assert_eq!(moves(&mostly), [(1, 2)]);
}

#[test]
fn who_hardly_publishes_stays() {
    let load =
        Load { shards: shards(&[1, 1]), talkers: vec![talker(1, 0, &[(1, 9)])], ..Load::default() };
    assert_eq!(moves(&load), []);
}

#[test]
fn who_is_tied_stays() {
    let tied = Talker { movable: false, ..talker(1, 0, &[(1, 100)]) };
    let load = Load { shards: shards(&[20, 20]), talkers: vec![tied], ..Load::default() };
    assert_eq!(moves(&load), []);
}

#[test]
fn nobody_is_gathered_where_there_is_no_room() {
    for busy in [55, 60, 84, 90, 100] {
        let load = Load {
            shards: shards(&[20, busy]),
            talkers: vec![talker(1, 0, &[(1, 100)])],
            ..Load::default()
        };
        assert_eq!(moves(&load), [], "{busy}");
    }
}

#[test]
fn several_who_come_count_together() {
    // Each costs 10 of 50 %, so that the shard with the queue has room for two.
    let talkers = (1..=5).map(|id| talker(id, 0, &[(1, 100)])).collect();
    let load = Load { shards: shards(&[50, 40]), talkers, ..Load::default() };
    let decided = decide(&mut Balancer::new(Rules::default()), &load, 0..2);
    assert_eq!(decided[1].len(), 2);
}

#[test]
fn publishers_of_a_hot_queue_are_spread() {
    let talkers: Vec<Talker> = (1..=16).map(|id| talker(id, 1, &[(1, 100)])).collect();
    let load = Load { shards: shards(&[10, 100, 30, 70]), talkers, ..Load::default() };
    let decided = decide(&mut Balancer::new(Rules::default()), &load, 0..3);
    assert_eq!((decided[0].len(), decided[1].len()), (0, 0), "a moment is no habit");
    assert_eq!(decided[2].len(), 8, "half of them stay");
    let gone_to = |shard| decided[2].iter().filter(|one| one.to == ShardId(shard)).count();
    // A message costs half on either side: 16 cost half of a shard, each of them 3 %. With seven of
    // them the idlest shard is busier than the next.
    assert_eq!((gone_to(0), gone_to(2), gone_to(3)), (7, 1, 0));
    assert!(matches!(decided[2][0].reason, Reason::Spread { busy: 100, idle: 10 }));
    assert_eq!(decided[2][0].reason.to_string(), "spread: 100 % of its shard are used, 10 % there");
}

#[test]
fn nobody_is_spread_where_nobody_idles() {
    for other in [51, 70, 100] {
        let talkers = (1..=16).map(|id| talker(id, 0, &[(0, 100)])).collect();
        let load = Load { shards: shards(&[100, other]), talkers, ..Load::default() };
        assert_eq!(moves(&load), [], "{other}");
    }
}

#[test]
fn a_few_publishers_stay_together() {
    let talkers = (1..=3).map(|id| talker(id, 0, &[(0, 1000)])).collect();
    let load = Load { shards: shards(&[100, 0]), talkers, ..Load::default() };
    assert_eq!(moves(&load), []);
}

#[test]
fn a_short_peak_spreads_nobody() {
    let talkers: Vec<Talker> = (1..=16).map(|id| talker(id, 0, &[(0, 100)])).collect();
    let mut balancer = Balancer::new(Rules::default());
    for second in 0..100 {
        let busy = if second % 3 == 0 { 60 } else { 100 };
        let load = Load { shards: shards(&[busy, 0]), talkers: talkers.clone(), ..Load::default() };
        let decision = balancer.decide(Instant::from_millis(second * 1000), &load);
        assert_eq!(decision, Decision::default());
    }
}

#[test]
fn who_does_not_go_is_asked_less_and_less_often() {
    // It is stopped for up to two seconds each time, and did not go for whatever reason.
    let load = Load {
        shards: shards(&[20, 20]),
        talkers: vec![talker(1, 0, &[(1, 100)])],
        ..Load::default()
    };
    let decided = decide(&mut Balancer::new(Rules::default()), &load, 0..400);
    let asked: Vec<_> = (0..400).filter(|&second| !decided[second].is_empty()).collect();
    assert_eq!(asked, [1, 11, 31, 71, 151, 311]);
}

#[test]
fn going_back_and_forth_takes_longer_each_time() {
    let mut balancer = Balancer::new(Rules::default());
    let mut place = [0_u16; 8];
    let mut times = Vec::new();
    for second in 0..400 {
        // Hot while all of the publishers are where the queue is, all but idle otherwise.
        let busy = if place.iter().all(|&shard| shard == 0) { 100 } else { 10 };
        let talkers =
            place.iter().enumerate().map(|(id, &shard)| talker(id as u64, shard, &[(0, 100)]));
        let load =
            Load { shards: shards(&[busy, 0]), talkers: talkers.collect(), ..Load::default() };
        for one in balancer.decide(Instant::from_millis(second * 1000), &load).connections {
            place[one.connection.0 as usize] = one.to.0;
            if one.connection.0 == 0 {
                times.push(second);
            }
        }
    }
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() > 4, "{times:?}");
    assert!(pauses.is_sorted(), "{times:?}");
    assert!(*pauses.last().unwrap() >= 40, "{times:?}");
}

#[test]
fn one_shard_alone_has_nothing_to_decide() {
    let talkers = (1..=16).map(|id| talker(id, 0, &[(0, 1000)])).collect();
    assert_eq!(moves(&Load { shards: shards(&[100]), talkers, ..Load::default() }), []);
    assert_eq!(moves(&Load::default()), []);
}

#[test]
fn a_shard_that_is_not_there_gets_nobody() {
    let load =
        Load { shards: shards(&[0]), talkers: vec![talker(1, 0, &[(9, 100)])], ..Load::default() };
    assert_eq!(moves(&load), []);
    let lost = Load {
        shards: shards(&[0, 0]),
        talkers: vec![talker(1, 7, &[(1, 100)])],
        ..Load::default()
    };
    assert_eq!(moves(&lost), [(1, 1)]);
}

/// Queues of shard 0 with so many messages per second, all of which may go.
fn queues(messages: &[u64]) -> Vec<BusyQueue> {
    let queue = |(id, &messages): (usize, &u64)| BusyQueue {
        queue: QueueId(id as u64 + 1),
        shard: ShardId(0),
        movable: true,
        messages,
    };
    messages.iter().enumerate().map(queue).collect()
}

/// The queues that go in the first so many seconds, as (second, queue, to).
fn queue_moves(load: &Load, seconds: u64) -> Vec<(u64, u64, u16)> {
    let mut balancer = Balancer::new(Rules::default());
    let mut moves = Vec::new();
    for second in 0..seconds {
        let decision = balancer.decide(Instant::from_millis(second * 1000), load);
        moves.extend(decision.queues.iter().map(|one| (second, one.queue.0, one.to.0)));
    }
    moves
}

#[test]
fn queues_of_a_saturated_shard_go_where_there_is_room() {
    let queues = queues(&[100; 10]);
    let load = Load { shards: shards(&[100, 0, 20]), queues, ..Load::default() };
    let mut balancer = Balancer::new(Rules::default());
    let mut at = |second: u64| balancer.decide(Instant::from_millis(second * 1000), &load).queues;
    assert_eq!((at(0), at(1)), (vec![], vec![]), "a moment is no habit");
    let decided = at(2);
    // Each costs a tenth; with the fourth gone the shard is below 70 %.
    let gone: Vec<(u64, u16)> = decided.iter().map(|one| (one.queue.0, one.to.0)).collect();
    assert_eq!(gone, [(1, 1), (2, 1), (3, 1), (4, 2)]);
    let reason = Reason::Relieve { busy: 100, share: 10, idle: 0 };
    let (from, to) = (ShardId(0), ShardId(1));
    assert_eq!(decided[0], QueueMove { queue: QueueId(1), from, to, reason });
    assert_eq!(reason.to_string(), "relieve: 100 % of its shard are used, 10 % for it, 0 % there");
    assert_eq!((at(3), at(4)), (vec![], vec![]), "what it changed is to be seen first");
}

#[test]
fn a_queue_that_is_the_whole_load_stays_and_its_publishers_are_spread() {
    let talkers: Vec<Talker> = (1..=16).map(|id| talker(id, 0, &[(0, 100)])).collect();
    let one = Load { shards: shards(&[100, 0]), talkers: talkers.clone(), queues: queues(&[1600]) };
    assert_eq!(queue_moves(&one, 10), []);
    let spread = |load: &Load| decide(&mut Balancer::new(Rules::default()), load, 0..3)[2].len();
    assert_eq!(spread(&one), 8);
    // Nearly: what is left is not worth a move, and the large one fits nowhere.
    let two = Load { queues: queues(&[1600, 5]), ..one };
    assert_eq!(queue_moves(&two, 10), []);
    // With two halves of the load one goes, and nobody is spread.
    let halves = Load { queues: queues(&[800, 800]), ..two };
    assert_eq!(queue_moves(&halves, 6), [(2, 1, 1), (5, 2, 1)]);
    assert_eq!(spread(&halves), 0);
}

#[test]
fn queues_stay_that_are_tied_or_were_told_or_find_no_room() {
    let mut tied = queues(&[100; 4]);
    tied.iter_mut().for_each(|queue| queue.movable = false);
    let load = Load { shards: shards(&[100, 0]), queues: tied, ..Load::default() };
    assert_eq!(queue_moves(&load, 10), []);
    for other in [51, 70, 100] {
        let load =
            Load { shards: shards(&[100, other]), queues: queues(&[100; 4]), ..load.clone() };
        assert_eq!(queue_moves(&load, 10), [], "{other}");
    }
    // Two of four go at once; none is told twice within ten seconds.
    let load = Load { queues: queues(&[100; 4]), ..load };
    let told = queue_moves(&load, 12);
    assert_eq!(told, [(2, 1, 1), (2, 2, 1), (5, 3, 1), (5, 4, 1)]);
}

#[test]
fn the_restless_move_all_that_may_move_and_nothing_else() {
    let tied = Talker { movable: false, ..talker(1, 0, &[(0, 5)]) };
    let talkers = vec![tied, talker(2, 0, &[(0, 5)]), talker(3, 1, &[(1, 1), (2, 9)])];
    let mut busy = queues(&[5, 5]);
    busy[0].movable = false;
    let load = Load { shards: shards(&[0, 0, 0]), talkers, queues: busy };
    let mut restless = Restless::new(7);
    let (mut connections, mut queues) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..200 {
        let decision = restless.decide(&load);
        connections.extend(decision.connections.iter().map(|one| (one.connection.0, one.to.0)));
        queues.extend(decision.queues.iter().map(|one| (one.queue.0, one.to.0)));
    }
    // Who talks to another shard goes there, everything else goes everywhere.
    assert_eq!(connections.into_iter().collect::<Vec<_>>(), [(2, 1), (2, 2), (3, 2)]);
    assert_eq!(queues.len(), 2);
    let alone = Load { shards: shards(&[0]), ..load };
    assert_eq!(restless.decide(&alone), Decision::default());
}

/// Four shards: 0 and 1 are threads of one core, 2 is on their node, 3 on another one.
fn distances() -> Distances {
    Distances::new(4, |from, to| match (from.0.min(to.0), from.0.max(to.0)) {
        (_, 3) if from != to => Distance::Far(21),
        (0, 1) => Distance::Sibling,
        _ => Distance::Near,
    })
}

/// Where the first connection of hot shard 0 goes, and where its first queue, with the shards so busy
/// in percent.
fn targets(busy: &[u32]) -> (Option<u16>, Option<u16>) {
    let talkers: Vec<Talker> = (1..=16).map(|id| talker(id, 0, &[(0, 100)])).collect();
    let queues = (1..=8).map(|id| BusyQueue {
        queue: QueueId(id),
        shard: ShardId(0),
        movable: true,
        messages: 100,
    });
    let one = Load { shards: shards(busy), talkers, queues: Vec::new() };
    let many = Load { talkers: Vec::new(), queues: queues.collect(), ..one.clone() };
    let decide = |load: &Load| {
        let mut balancer = Balancer::over(Rules::default(), distances());
        (0..3).map(|second| balancer.decide(Instant::from_millis(second * 1000), load)).last()
    };
    let connections = decide(&one).unwrap().connections;
    let queues = decide(&many).unwrap().queues;
    (connections.first().map(|one| one.to.0), queues.first().map(|one| one.to.0))
}

#[test]
fn of_shards_that_idle_alike_the_nearest_gets_what_a_hot_one_gives_away() {
    assert_eq!(targets(&[100, 20, 20, 20]), (Some(2), Some(2)));
    assert_eq!(targets(&[100, 20, 25, 20]), (Some(2), Some(2)));
    assert_eq!(targets(&[100, 20, 50, 40]), (Some(2), Some(2)), "with the price they are equal");
}

#[test]
fn a_sibling_of_the_hot_shard_and_one_on_another_node_must_be_idler() {
    assert_eq!(targets(&[100, 20, 45, 20]), (Some(3), Some(3)));
    assert_eq!(targets(&[100, 0, 45, 45]), (Some(1), Some(1)));
    assert_eq!(targets(&[100, 0, 90, 0]), (Some(3), Some(3)));
    assert_eq!(targets(&[100, 40, 90, 90]), (None, None), "the core has no room for that");
}
