//! Consumers' filters that are asked about very many messages for each that they let through.
//!
//! Such a consumer reads its queue over and over for little; a filter on a binding and a queue of its own would spare
//! that. Once a minute the queues with filters are looked at, and the log is told of those.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use lepus_base::{Now, QueueId};

use crate::queue::{ConsumerFilter, Queue};
use crate::timers::{Timer, Timers};

/// Time between two looks at a queue.
const INTERVAL: Duration = Duration::from_secs(60);
/// Queues that are looked at at once, and the pause before the next ones.
const LOOKS_MAX: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);
/// Messages that a filter may be asked about for each that it lets through.
const EVALUATIONS_MAX: u64 = 1000;
/// Queues that the log is told of in a round; there may be many alike.
const TOLD_MAX: usize = 5;

/// What a selector had done at the last look.
#[derive(Debug)]
struct Seen {
    filter: Arc<ConsumerFilter>,
    evaluations: u64,
    deliveries: u64,
}

/// A filter that was asked about too many messages since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Costly {
    /// The queue.
    pub(crate) queue: QueueId,
    /// Messages that it was asked about.
    pub(crate) evaluations: u64,
    /// Messages that its consumers got.
    pub(crate) deliveries: u64,
}

/// Looks at the filters of consumers.
#[derive(Debug, Default)]
pub(crate) struct SelectorWatch {
    queues: BTreeMap<QueueId, Vec<Seen>>,
    /// The queue that was looked at last in this round.
    last: Option<QueueId>,
    /// Whether the timer is armed.
    goes: bool,
    /// Queues that the log was told of in this round.
    told: usize,
}

impl SelectorWatch {
    /// A consumer with a filter came to a queue.
    pub(crate) fn note(&mut self, now: Now, queue: QueueId, timers: &mut Timers) {
        self.queues.entry(queue).or_default();
        if !self.goes {
            self.goes = true;
            timers.arm(now.instant + INTERVAL, Timer::Selectors);
        }
    }

    /// The queues that are watched behind one of them, by id.
    pub(crate) fn behind(&self, after: Option<QueueId>) -> impl Iterator<Item = QueueId> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.queues.range((after, Bound::Unbounded)).map(|(queue, _)| *queue)
    }

    /// Looks at the next queues, which `find` gives if they are here. Those whose filters cost much, of each queue the
    /// one that costs most.
    pub(crate) fn look<'a>(
        &mut self,
        now: Now,
        timers: &mut Timers,
        find: impl Fn(QueueId) -> Option<&'a Queue>,
    ) -> Vec<Costly> {
        let mut costly = Vec::new();
        for _ in 0..LOOKS_MAX {
            let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.queues.range_mut((after, Bound::Unbounded)).next();
            let Some((&queue, seen)) = next else {
                (self.last, self.told) = (None, 0);
                break;
            };
            self.last = Some(queue);
            match find(queue).filter(|queue| queue.has_filters()) {
                None => drop(self.queues.remove(&queue)),
                Some(home) => {
                    let found = look_at(queue, home, seen).filter(|_| self.told < TOLD_MAX);
                    self.told += usize::from(found.is_some());
                    costly.extend(found);
                }
            }
        }
        self.goes = !self.queues.is_empty();
        if self.goes {
            let pause = if self.last.is_some() { PAUSE } else { INTERVAL };
            timers.arm(now.instant + pause, Timer::Selectors);
        }
        costly
    }

    /// Allocated bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.queues.len() * size_of::<(QueueId, Vec<Seen>, [Seen; 2])>()
    }
}

/// Looks at the filters of a queue. The one that costs most, if that is too much.
fn look_at(queue: QueueId, home: &Queue, seen: &mut Vec<Seen>) -> Option<Costly> {
    let mut worst: Option<Costly> = None;
    let mut now_seen = Vec::with_capacity(seen.len());
    for selector in home.selectors().figures() {
        let Some(filter) = selector.filter else { continue };
        let (evaluations, deliveries) = (selector.evaluations, selector.deliveries);
        let before = seen.iter().find(|before| before.filter == filter);
        // One that came since is looked at next time.
        if let Some(before) = before {
            // It may have gone and come again meanwhile.
            let asked = evaluations.saturating_sub(before.evaluations);
            let given = deliveries.saturating_sub(before.deliveries);
            let is_worst = worst.is_none_or(|worst| asked > worst.evaluations);
            if asked > EVALUATIONS_MAX * given.max(1) && is_worst {
                worst = Some(Costly { queue, evaluations: asked, deliveries: given });
            }
        }
        now_seen.push(Seen { filter, evaluations, deliveries });
    }
    *seen = now_seen;
    worst
}
