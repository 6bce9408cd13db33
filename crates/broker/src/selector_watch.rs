//! Consumers' filters that are asked about very many messages for each that they let through.
//!
//! Such a consumer reads its queue over and over for little; a filter on a binding and a queue of its own would spare
//! that. Once a second the queues with filters are looked at, and the log is told of those of which it was so for a minute.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use lepus_base::{Instant, Now, QueueId};

use crate::queue::{ConsumerFilter, Queue};
use crate::timers::{Timer, Timers};

/// Time between two looks at a queue, where there are few: what a filter does late is seen that soon.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a filter costs too much before it is told of; and the time between two tellings of a queue.
const MINUTE: Duration = Duration::from_secs(60);
/// Filters that are looked at at once, about, and the pause before the next ones.
const LOOKS_MAX: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);
/// Messages that a filter may be asked about for each that it lets through.
const EVALUATIONS_MAX: u64 = 1000;
/// Queues that the log is told of in a minute; there may be many alike.
const TOLD_MAX: usize = 5;

/// What a selector has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    evaluations: u64,
    deliveries: u64,
}

/// A selector, and what it does.
#[derive(Clone, Debug)]
struct Seen {
    filter: Arc<ConsumerFilter>,
    /// From when on it was asked about too many messages at every look, as far as can be said.
    since: Instant,
    /// What it had done then.
    from: Counts,
    /// What it had done at the last look.
    until: Counts,
}

impl Seen {
    /// Messages that it was asked about since, and those that its consumers got.
    fn done(&self) -> Counts {
        Counts {
            evaluations: self.until.evaluations - self.from.evaluations,
            deliveries: self.until.deliveries - self.from.deliveries,
        }
    }

    /// What it does counts from now on.
    fn begin(&mut self, now: Instant) {
        (self.since, self.from) = (now, self.until);
    }

    /// Takes in what it has done up to now. Where it cost little since, what it does counts from now on. So does it after a
    /// minute in which it was hardly asked.
    fn look(&mut self, now: Instant, until: Counts) {
        self.until = until;
        let Counts { evaluations, deliveries } = self.done();
        let is_much = evaluations > EVALUATIONS_MAX * deliveries;
        if !is_much || (self.is_old(now) && evaluations <= EVALUATIONS_MAX) {
            self.begin(now);
        }
    }

    fn is_old(&self, now: Instant) -> bool {
        now.since(self.since) >= MINUTE
    }
}

/// A queue with filters.
#[derive(Debug, Default)]
struct Watched {
    selectors: Vec<Seen>,
    /// When the log was told of it last.
    told: Option<Instant>,
}

impl Watched {
    /// Looks at the filters of the queue.
    fn look(&mut self, now: Instant, home: &Queue) {
        let mut selectors = Vec::with_capacity(self.selectors.len());
        for selector in home.selectors().figures() {
            let Some(filter) = selector.filter else { continue };
            let (evaluations, deliveries) = (selector.evaluations, selector.deliveries);
            let until = Counts { evaluations, deliveries };
            let is_it = |seen: &&Seen| seen.filter == filter;
            // Their order stays, unless one goes.
            let near = self.selectors.get(selectors.len()).filter(is_it);
            let found = near.or_else(|| self.selectors.iter().find(is_it));
            // It may have gone and come again meanwhile.
            let found = found.filter(|seen| {
                seen.until.evaluations <= evaluations && seen.until.deliveries <= deliveries
            });
            let (since, from) = found.map_or((now, until), |seen| (seen.since, seen.from));
            let mut seen = Seen { filter, since, from, until };
            match selector.is_counting {
                true => seen.look(now, until),
                // That nobody gets anything by it is not the filter's doing.
                false => seen.begin(now),
            }
            selectors.push(seen);
        }
        self.selectors = selectors;
    }

    /// Whether one of its filters cost too much for a minute, and the log was not told within a minute.
    fn is_due(&self, now: Instant) -> bool {
        self.told.is_none_or(|told| now.since(told) >= MINUTE)
            && self.selectors.iter().any(|seen| seen.is_old(now))
    }

    /// The filter that costs most of those that cost too much for a minute. What they do counts from now on.
    fn tell(&mut self, now: Instant, queue: QueueId) -> Option<Costly> {
        let due = self.selectors.iter().filter(|seen| seen.is_old(now));
        let worst = due.max_by_key(|seen| seen.done().evaluations)?;
        let (Counts { evaluations, deliveries }, since) = (worst.done(), worst.since);
        self.told = Some(now);
        for seen in self.selectors.iter_mut().filter(|seen| seen.is_old(now)) {
            seen.begin(now);
        }
        Some(Costly { queue, evaluations, deliveries, seconds: now.since(since).as_secs() })
    }
}

/// A filter that was asked about too many messages for a minute or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Costly {
    /// The queue.
    pub(crate) queue: QueueId,
    /// Messages that it was asked about.
    pub(crate) evaluations: u64,
    /// Messages that its consumers got.
    pub(crate) deliveries: u64,
    /// How long that took.
    pub(crate) seconds: u64,
}

/// Looks at the filters of consumers.
#[derive(Debug, Default)]
pub(crate) struct SelectorWatch {
    queues: BTreeMap<QueueId, Watched>,
    /// The queue that was looked at last in this round.
    last: Option<QueueId>,
    /// Whether the timer is armed.
    goes: bool,
    /// Queues that the log was told of since then.
    told: (Option<Instant>, usize),
    /// Those of this round of which it is to be told, and when it was told of them last.
    due: Vec<(Option<Instant>, QueueId)>,
    /// Filters of all queues at the last looks.
    filters: usize,
}

impl SelectorWatch {
    /// A consumer with a filter came to a queue, or the queue came with some: what they do counts from now on.
    pub(crate) fn note(&mut self, now: Now, queue: QueueId, home: &Queue, timers: &mut Timers) {
        let watched = self.queues.entry(queue).or_default();
        self.filters -= watched.selectors.len();
        watched.look(now.instant, home);
        self.filters += watched.selectors.len();
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
        let now = now.instant;
        if self.told.0.is_none_or(|began| now.since(began) >= MINUTE) {
            self.told = (None, 0);
        }
        let mut costly = Vec::new();
        let mut looks = 0;
        while looks < LOOKS_MAX {
            let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.queues.range_mut((after, Bound::Unbounded)).next();
            let Some((&queue, watched)) = next else {
                self.last = None;
                costly = self.tell(now);
                break;
            };
            self.last = Some(queue);
            looks += 1 + watched.selectors.len();
            self.filters -= watched.selectors.len();
            match find(queue).filter(|queue| queue.has_filters()) {
                None => drop(self.queues.remove(&queue)),
                Some(home) => {
                    watched.look(now, home);
                    self.filters += watched.selectors.len();
                    if watched.is_due(now) {
                        self.due.push((watched.told, queue));
                    }
                }
            }
        }
        self.goes = !self.queues.is_empty();
        if self.goes {
            let pause = if self.last.is_some() { PAUSE } else { INTERVAL };
            timers.arm(now + pause, Timer::Selectors);
        }
        costly
    }

    /// Those of a round that the log is told of: as many as it may be told of, and those first that have waited longest.
    fn tell(&mut self, now: Instant) -> Vec<Costly> {
        let mut due = core::mem::take(&mut self.due);
        due.sort_unstable();
        let mut costly = Vec::new();
        for (_, queue) in due.into_iter().take(TOLD_MAX - self.told.1) {
            costly.extend(self.queues.get_mut(&queue).and_then(|watched| watched.tell(now, queue)));
        }
        if !costly.is_empty() {
            self.told = (self.told.0.or(Some(now)), self.told.1 + costly.len());
        }
        costly
    }

    /// Allocated bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.queues.len() * size_of::<(QueueId, Watched)>() + self.filters * size_of::<Seen>()
    }
}
