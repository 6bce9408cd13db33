//! What a shard holds, counted in steps: however much that is, others are served between them.

use alloc::boxed::Box;

use lepus_base::{Position, QueueId, Slab};

use crate::connection::Connection;
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

/// A count of what a shard holds, complete once [`survey`](crate::Broker::survey) says so.
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

impl Survey {
    /// One step, through these connections and so many places of queues. Whether the survey is complete.
    pub(crate) fn step<'a>(
        &mut self,
        connections: &Slab<Box<Connection>>,
        places: usize,
        queue_at: impl Fn(usize) -> Option<(QueueId, &'a Queue)>,
    ) -> bool {
        let mut budget = LOOKS_MAX;
        while budget > 0 && self.place != Place::Done {
            self.place = match self.place {
                Place::Connection(slot) if slot >= connections.capacity() => Place::Queue(0),
                Place::Connection(slot) => {
                    budget -= 1;
                    self.look_at_connection(connections.get(slot).map(|it| &**it), &mut budget);
                    Place::Connection(slot + 1)
                }
                Place::Queue(slot) if slot >= places => Place::Done,
                Place::Queue(slot) => {
                    budget -= 1;
                    match self.look_at_queue(queue_at(slot)) {
                        true => Place::Delivery(slot, 0),
                        false => Place::Queue(slot + 1),
                    }
                }
                // It may be gone, or another one: then there is less to look at.
                Place::Delivery(slot, first) => {
                    match self.look_at_deliveries(queue_at(slot), first, &mut budget) {
                        Some(next) => Place::Delivery(slot, next),
                        None => Place::Queue(slot + 1),
                    }
                }
                Place::Done => Place::Done,
            };
        }
        self.place == Place::Done
    }

    fn look_at_connection(&mut self, connection: Option<&Connection>, budget: &mut usize) {
        let Some(connection) = connection else { return };
        let channels = connection.open_channels().count();
        self.channels += channels as u64;
        self.publishers += u64::from(connection.publishes);
        *budget = budget.saturating_sub(channels / SMALL_LOOKS);
    }

    /// Whether its deliveries are to be looked at, too.
    fn look_at_queue(&mut self, found: Option<(QueueId, &Queue)>) -> bool {
        let Some((_, queue)) = found else { return false };
        self.ready += queue.ready();
        self.unacked += queue.unacked();
        self.consumers += u64::from(queue.consumer_count());
        queue.unacked() > 0
    }

    /// Looks at deliveries of a queue from the `first` on. With which to go on, if there are more.
    fn look_at_deliveries(
        &mut self,
        found: Option<(QueueId, &Queue)>,
        first: usize,
        budget: &mut usize,
    ) -> Option<usize> {
        let (id, queue) = found?;
        let looks = *budget * SMALL_LOOKS;
        let (oldest, looked) = queue.oldest_unacked(first, looks);
        *budget = budget.saturating_sub(looked.div_ceil(SMALL_LOOKS));
        if let Some(position) = oldest
            && self.oldest.is_none_or(|(lowest, _)| position < lowest)
        {
            self.oldest = Some((position, id));
        }
        (looked >= looks).then_some(first + looked)
    }

    /// The lowest position in the log of a message that is delivered, and its queue.
    pub(crate) fn oldest(&self) -> Option<(Position, QueueId)> {
        self.oldest
    }
}
