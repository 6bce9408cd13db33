//! Which unacknowledged delivery lies furthest back in the logs of a shard.
//!
//! Deliveries are settled in any order, so a lowest position that is always known would cost every delivery
//! and every acknowledgement a step in a heap. It is told to find who keeps disk space from being freed, and
//! half a minute more does not matter for that. So a round through all queues looks for it twice a minute
//! while anything is unacknowledged, in slices between which others are served; who asks gets what the last
//! round found.

use core::time::Duration;

use lepus_base::{Now, Position, QueueId};

use crate::owner::{Conditions, Owner};
use crate::queue::Queue;
use crate::timers::{Timer, Timers};

/// Time between the end of a round and the next.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);
/// Queues that one slice looks at: those of a shard with a million lie far apart in memory, and one costs a
/// microsecond or less.
const LOOKS_MAX: usize = 1_024;
/// Deliveries that count as one queue: they lie side by side.
const SMALL_LOOKS: usize = 8;

/// The search.
#[derive(Debug, Default)]
pub(crate) struct OldestSearch {
    /// Whether the timer for the next round is armed, or a round is under way.
    goes: bool,
    /// Where the round goes on: a queue's place, and the first of its deliveries to look at.
    next: Option<(usize, usize)>,
    /// The lowest position that this round has met, and its queue.
    met: Option<(Position, QueueId)>,
    /// The same of the last round.
    found: Option<(Position, QueueId)>,
}

impl OldestSearch {
    /// Sees to it that there is a round before long.
    #[inline]
    pub(crate) fn arm(&mut self, now: Now, timers: &mut Timers) {
        if !self.goes {
            self.goes = true;
            timers.arm(now.instant + ROUND_INTERVAL, Timer::Oldest);
        }
    }

    /// It is time for a round.
    pub(crate) fn begin(&mut self) {
        self.next = Some((0, 0));
        self.met = None;
    }

    /// A slice of the round, if one is under way, through so many places of queues.
    pub(crate) fn work<'a>(
        &mut self,
        places: usize,
        queue_at: impl Fn(usize) -> Option<(QueueId, &'a Queue)>,
    ) {
        let Some((mut place, mut first)) = self.next else { return };
        let mut budget = LOOKS_MAX;
        while budget > 0 && place < places {
            budget -= 1;
            // It may be gone since the last slice, or another one: then there is less to look at.
            let found = queue_at(place).filter(|(_, queue)| queue.unacked() > 0);
            match found.and_then(|found| self.look(found, first, &mut budget)) {
                Some(next) => first = next,
                None => (place, first) = (place + 1, 0),
            }
        }
        self.next = (place < places).then_some((place, first));
        if self.next.is_none() {
            self.found = self.met.take();
            self.goes = false;
        }
    }

    /// Looks at deliveries of a queue from the `first` on. With which to go on, if there are more.
    fn look(
        &mut self,
        (id, queue): (QueueId, &Queue),
        first: usize,
        budget: &mut usize,
    ) -> Option<usize> {
        let looks = (*budget + 1) * SMALL_LOOKS;
        let (oldest, looked) = queue.oldest_unacked(first, looks);
        *budget = budget.saturating_sub(looked / SMALL_LOOKS);
        if let Some(position) = oldest
            && self.met.is_none_or(|(lowest, _)| position < lowest)
        {
            self.met = Some((position, id));
        }
        (looked >= looks).then_some(first + looked)
    }

    /// Nothing is unacknowledged: what was found or met is settled.
    pub(crate) fn forget(&mut self) {
        (self.found, self.met) = (None, None);
    }

    /// The lowest position of a delivery and its queue, as the last round found it.
    pub(crate) fn found(&self) -> Option<(Position, QueueId)> {
        self.found
    }
}

impl Owner for OldestSearch {
    /// Whether a round is under way.
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        self.next.is_some()
    }
}
