//! What happens in each round, from a seed.

use crate::disk::Failure;
use crate::topology::{self, EXPIRING, PUBLISHERS, QUEUES, Trade};
use crate::{consumer, publisher};
use lepus_base::Rng;
use std::time::Duration;

/// Connections that consume.
const CONSUMERS: usize = 4;
/// Each so many rounds the queues are emptied and everything is counted.
const EMPTY_EVERY: u64 = 10;

/// In each of these tens the broker is stopped in order once, in this round.
const STOP_AT: u64 = 9;

/// What is drawn for a failing disk is drawn apart from the rest, which stays as it is without one.
const DISK: u64 = 0x6469_736b;

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `kill -9` under load.
    Kill,
    /// An orderly stop under load.
    Stop,
    /// The queues are emptied, then `kill -9`.
    Empty,
}

/// One round.
#[derive(Clone, Debug)]
pub struct Round {
    /// How it ends.
    pub end: End,
    /// How long it has load.
    pub load: Duration,
    /// Who publishes, and how.
    pub publishers: Vec<(usize, publisher::Manner)>,
    /// What each connection consumes.
    pub consumers: Vec<Vec<consumer::Manner>>,
    /// The broker is killed once more, so long after it was started again.
    pub second_kill: Option<Duration>,
    /// The disk fails after the load, which goes on.
    pub failure: Option<Failure>,
    /// How long the load goes on when the disk is well again, if the broker has outlived it.
    pub after: Duration,
    /// The disk fails in that further start, from so long after it on.
    pub start_failure: Option<(Failure, Duration)>,
}

impl Round {
    /// The round with this number, from 1, of so many. In one of `failing` the disk fails; 0 for none.
    pub fn new(seed: u64, number: u64, rounds: u64, failing: u64) -> Round {
        let mut rng = Rng::new(seed ^ number << 32);
        let end = match number % EMPTY_EVERY {
            _ if number == rounds => End::Empty,
            0 => End::Empty,
            STOP_AT => End::Stop,
            _ => End::Kill,
        };
        let second_kill =
            rng.chance(1, 4).then(|| Duration::from_micros(1_000 + rng.below(150_000)));
        let load = Duration::from_millis(200 + rng.below(1_800));
        let publishers = match end {
            End::Empty => Vec::new(),
            _ => publishers(&mut rng),
        };
        let mut round = Round {
            end,
            load,
            publishers,
            consumers: consumers(&mut rng, end),
            second_kill,
            failure: None,
            after: Duration::ZERO,
            start_failure: None,
        };
        if failing > 0 && number.is_multiple_of(failing) {
            round.fail(&mut Rng::new(seed ^ number << 32 ^ DISK));
        }
        round
    }

    /// Lets the disk fail. While queues are emptied it is so that the broker can go on.
    fn fail(&mut self, rng: &mut Rng) {
        self.failure = Some(match self.end {
            End::Empty => Failure::passing(rng),
            End::Kill | End::Stop => Failure::any(rng),
        });
        self.load = Duration::from_millis(200 + rng.below(600));
        self.after = Duration::from_millis(rng.below(1_500));
        if rng.chance(1, 3) {
            let from = Duration::from_millis([0, 0, rng.below(300)][rng.below(3) as usize]);
            self.start_failure = Some((Failure::any(rng), from));
            self.second_kill = Some(Duration::from_millis(rng.below(1_500)));
        }
    }
}

fn publishers(rng: &mut Rng) -> Vec<(usize, publisher::Manner)> {
    let mut active = Vec::new();
    for (publisher, trade) in PUBLISHERS.iter().enumerate() {
        let window = [1, 10, 50, 200][rng.below(4) as usize];
        let rate = [200, 1_000, 3_000][rng.below(3) as usize];
        // What comes to hundreds of queues has hundreds of copies.
        let is_wide = *trade == Trade::Wide;
        let (window, rate) = if is_wide { (window.min(4), 10) } else { (window, rate) };
        if rng.chance(9, 10) {
            active.push((publisher, publisher::Manner { window, rate }));
        }
    }
    active
}

/// Each queue has a consumer most of the time, some have two.
fn consumers(rng: &mut Rng, end: End) -> Vec<Vec<consumer::Manner>> {
    let mut connections = vec![Vec::new(); CONSUMERS];
    for queue in (0..QUEUES).filter(|queue| *queue != EXPIRING) {
        for turn in 0..2 {
            let chance = if turn == 0 { 8 } else { 2 };
            let prefetch = 1 + rng.below(400) as u16;
            let manner = consumer::Manner {
                queue,
                prefetch,
                every: 1 + rng.below(u64::from(prefetch).min(60)) as usize,
                multiple: rng.chance(1, 2),
                transactional: rng.chance(1, 5),
                hoarding: rng.chance(1, 3) && end != End::Empty,
            };
            if rng.chance(chance, 10) || (end == End::Empty && turn == 0) {
                connections[(queue + turn) % CONSUMERS].push(manner);
            }
        }
    }
    connections.retain(|manners| !manners.is_empty());
    connections
}

/// A line about what the rounds are made of.
pub fn describe() -> String {
    format!(
        "{} publishers (confirms, fan-outs, topic, headers, transactions, transient, expiring), {} queues, \
         {CONSUMERS} consuming connections, queues emptied every {EMPTY_EVERY} rounds",
        PUBLISHERS.len(),
        topology::QUEUES
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_round_empties_every_queue() {
        let round = Round::new(1, 8, 8, 1);
        assert_eq!((round.end, round.publishers.len()), (End::Empty, 0));
        for queue in (0..QUEUES).filter(|queue| *queue != EXPIRING) {
            let consumed = round.consumers.iter().flatten().any(|manner| manner.queue == queue);
            assert!(consumed, "{queue}");
        }
    }

    #[test]
    fn a_failing_disk_changes_nothing_in_rounds_without_it() {
        for number in 1..40 {
            let round = |failing| Round::new(3, number, 200, failing);
            let (without, with) = (round(0), round(4));
            assert_eq!(with.failure.is_some(), number % 4 == 0);
            if with.failure.is_none() {
                assert_eq!(format!("{with:?}"), format!("{without:?}"));
            }
        }
    }

    #[test]
    fn a_consumer_never_waits_for_more_than_its_prefetch() {
        for number in 1..200 {
            for manner in Round::new(7, number, 200, 0).consumers.iter().flatten() {
                assert!(manner.every <= usize::from(manner.prefetch));
            }
        }
    }
}
