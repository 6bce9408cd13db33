//! Whatever is left to do comes late and in small slices: nothing is lost or seen twice.

use lepus_base::Rng;

use super::*;

/// How often each message left the queue for good.
#[derive(Default)]
struct Fates {
    left: Vec<u32>,
    delivered: usize,
}

impl Fates {
    fn collect(&mut self, queue: &Queue, shard: &mut Shard) {
        self.left.resize(queue.totals().published as usize, 0);
        for event in shard.log.drain(..) {
            match event {
                Event::Gone(seq) | Event::Dead(seq, _) => self.left[seq as usize] += 1,
                Event::Delivered(..) => self.delivered += 1,
            }
        }
    }
}

#[test]
fn every_message_leaves_exactly_once_however_late_the_work_is() {
    for seed in 0..1000 {
        let mut rng = Rng::new(seed);
        let settings = QueueSettings {
            message_ttl: rng.chance(1, 2).then(|| Duration::from_millis(30)),
            max_length: rng.chance(1, 3).then_some(20),
            max_priority: rng.chance(1, 2).then_some(3),
            ..with_dead_letters()
        };
        let (mut queue, mut shard) = (queue(&settings), Shard::default());
        let (mut now, mut holds, mut fates) = (0, 0, Fates::default());
        let mut handles = Vec::new();
        for name in 1..4 {
            let consumer = with_prefetch(name, rng.below(4) as u32);
            handles.push(queue.subscribe(START, consumer).unwrap());
        }
        for _ in 0..300 {
            let message = Message { priority: rng.below(4) as u8, ..MESSAGE };
            match rng.below(20) {
                0..8 => drop(offer(&mut queue, at(now), &message, &mut shard)),
                8..12 if !shard.out.is_empty() => {
                    let index = rng.below(shard.out.len() as u64) as usize;
                    let (_, slot, seq) = shard.out.swap_remove(index);
                    let outcomes = [Outcome::Ack, Outcome::Reject, Outcome::Requeue];
                    let outcome = outcomes[rng.below(3) as usize];
                    assert!(queue.settle(at(now), slot, seq, outcome, &mut shard));
                }
                12 => {
                    queue.hold();
                    holds += 1;
                }
                13..15 if holds > 0 => {
                    queue.unhold();
                    holds -= 1;
                }
                15 => now += rng.below(20),
                16 if rng.chance(1, 8) => drop(queue.purge(&mut shard)),
                17 => shard.blocked = BTreeSet::from([1 + rng.below(3) as u32]),
                18 => handles.iter().for_each(|&handle| queue.resume(handle)),
                _ => drop(queue.work(at(now), (1 + rng.below(3) as usize, 1), &mut shard)),
            }
            fates.collect(&queue, &mut shard);
            assert_eq!(queue.unacked() as usize, shard.out.len());
        }
        let _ = queue.delete();
        work(&mut queue, at(now), &mut shard);
        fates.collect(&queue, &mut shard);
        assert!(fates.left.iter().all(|&count| count == 1), "seed {seed}");
        assert!(shard.pool.is_empty() && fates.delivered > 0, "seed {seed}");
    }
}
