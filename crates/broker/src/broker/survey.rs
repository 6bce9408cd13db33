//! What a shard holds, as the operator is told.

use lepus_base::{Now, QueueId};

use crate::broker::Broker;
use crate::journal::OldestDelivery;
use crate::queue::Queue;
use crate::survey::Survey;

impl Broker {
    /// One step of a survey. Whether it is complete.
    pub fn survey(&self, survey: &mut Survey) -> bool {
        let queue_at = |slot| self.homes.get(slot).map(|home| (home.id, &home.queue));
        survey.step(&self.edge.connections, self.homes.capacity(), queue_at)
    }

    /// The unacknowledged delivery that pins the oldest segment, as a survey found it.
    #[must_use]
    pub fn oldest_delivery(&self, now: Now, survey: &Survey) -> Option<OldestDelivery> {
        let (position, queue) = survey.oldest()?;
        self.delivery_at(now, position, queue)
    }

    /// Queues whose home is here.
    #[must_use]
    pub fn queue_count(&self) -> usize {
        self.homes.len()
    }

    /// The queues whose home is here, in so many slots from `first` on; `None` when there are no
    /// slots there. Where a queue was does not change, so a list made in parts has each queue once.
    pub fn queues_in(
        &self,
        first: usize,
        slots: usize,
    ) -> Option<impl Iterator<Item = (QueueId, &Queue)>> {
        let end = self.homes.capacity().min(first.saturating_add(slots));
        let homes = (first < end).then(|| (first..end).filter_map(|slot| self.homes.get(slot)));
        homes.map(|homes| homes.map(|home| (home.id, &home.queue)))
    }

    /// Messages that delayed exchanges hold back on this shard.
    #[must_use]
    pub fn delayed_count(&self) -> usize {
        self.delayed.len()
    }
}
