//! What a shard holds, counted in steps: however much that is, others are served between them.

use lepus_base::{Now, Position, QueueId};

use crate::broker::Broker;
use crate::journal::OldestDelivery;
use crate::queue::Queue;

/// Connections and queues that one step looks at: those of a shard with a million lie far apart in memory,
/// and one costs a microsecond or less.
const LOOKS_MAX: usize = 1_024;
/// Channels and deliveries that count as one of them: they lie side by side.
const SMALL_LOOKS: usize = 8;

/// Where the next step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At a connection's slot.
    Connection(usize),
    /// At a queue's slot.
    Queue(usize),
    /// At a delivery of a queue, and at the queue's slot.
    Delivery(usize, usize),
    Done,
}

/// A count of what a shard holds, complete once [`Broker::survey`] says so.
///
/// It takes steps, so it is of no single moment: what moves meanwhile may be in it twice or not at
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    place: Place,
    /// Open channels.
    pub channels: u64,
    /// Connections that have published.
    pub publishers: u64,
    /// Messages that are ready in queues.
    pub ready: u64,
    /// Messages that are delivered and not settled.
    pub unacked: u64,
    /// Consumers of queues.
    pub consumers: u64,
    /// The lowest position in the log of a message that is delivered, and its queue.
    oldest: Option<(Position, QueueId)>,
}

impl Default for Survey {
    fn default() -> Survey {
        Survey {
            place: Place::Connection(0),
            channels: 0,
            publishers: 0,
            ready: 0,
            unacked: 0,
            consumers: 0,
            oldest: None,
        }
    }
}

impl Broker {
    /// One step of a survey. Whether it is complete.
    pub fn survey(&self, survey: &mut Survey) -> bool {
        let mut budget = LOOKS_MAX;
        while budget > 0 && survey.place != Place::Done {
            survey.place = match survey.place {
                Place::Connection(slot) => self.survey_connection(slot, survey, &mut budget),
                Place::Queue(slot) => self.survey_queue(slot, survey, &mut budget),
                Place::Delivery(slot, first) => {
                    self.survey_deliveries(slot, first, survey, &mut budget)
                }
                Place::Done => Place::Done,
            };
        }
        survey.place == Place::Done
    }

    fn survey_connection(&self, slot: usize, survey: &mut Survey, budget: &mut usize) -> Place {
        let connections = &self.edge.connections;
        if slot >= connections.capacity() {
            return Place::Queue(0);
        }
        *budget -= 1;
        if let Some(connection) = connections.get(slot) {
            let channels = connection.open_channels().count();
            survey.channels += channels as u64;
            survey.publishers += u64::from(connection.publishes);
            *budget = budget.saturating_sub(channels / SMALL_LOOKS);
        }
        Place::Connection(slot + 1)
    }

    fn survey_queue(&self, slot: usize, survey: &mut Survey, budget: &mut usize) -> Place {
        if slot >= self.homes.capacity() {
            return Place::Done;
        }
        *budget -= 1;
        let Some(home) = self.homes.get(slot) else { return Place::Queue(slot + 1) };
        survey.ready += home.queue.ready();
        survey.unacked += home.queue.unacked();
        survey.consumers += u64::from(home.queue.consumer_count());
        if home.queue.unacked() > 0 { Place::Delivery(slot, 0) } else { Place::Queue(slot + 1) }
    }

    fn survey_deliveries(
        &self,
        slot: usize,
        first: usize,
        survey: &mut Survey,
        budget: &mut usize,
    ) -> Place {
        // It may be gone, or another one: then there is less to look at.
        let Some(home) = self.homes.get(slot) else { return Place::Queue(slot + 1) };
        let looks = *budget * SMALL_LOOKS;
        let (oldest, looked) = home.queue.oldest_unacked(first, looks);
        *budget = budget.saturating_sub(looked.div_ceil(SMALL_LOOKS));
        if let Some(position) = oldest
            && survey.oldest.is_none_or(|(lowest, _)| position < lowest)
        {
            survey.oldest = Some((position, home.id));
        }
        if looked < looks { Place::Queue(slot + 1) } else { Place::Delivery(slot, first + looked) }
    }

    /// The unacknowledged delivery that pins the oldest segment, as a survey found it.
    #[must_use]
    pub fn oldest_delivery(&self, now: Now, survey: &Survey) -> Option<OldestDelivery> {
        let (position, queue) = survey.oldest?;
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
