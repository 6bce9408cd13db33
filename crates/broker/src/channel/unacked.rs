//! Deliveries of one channel that wait for an acknowledgement, by delivery tag.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::{QueueId, ShardId};

/// Stands for "no consumer": the message was fetched with `basic.get`.
pub const NO_CONSUMER: u32 = u32::MAX;

/// One delivery that the client has yet to settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unacked {
    /// Delivery tag on the channel.
    pub tag: u64,
    /// The queue.
    pub queue: QueueId,
    /// Where the queue lives in its home's table, a hint.
    pub queue_slot: u32,
    /// The queue's home.
    pub home: ShardId,
    /// The consumer's number on the channel, or [`NO_CONSUMER`].
    pub consumer: u32,
    /// Place among the queue's unacknowledged messages.
    pub slot: u32,
    /// Sequence number in the queue.
    pub sequence: u64,
}

/// Unacknowledged deliveries in tag order. Settling the oldest or any other costs no search
/// worth naming and no allocation; places of settled ones are swept when they outnumber the rest.
#[derive(Debug, Default)]
pub struct UnackedList {
    entries: VecDeque<Option<Unacked>>,
    /// Tags beside the entries, so that a settled place can still be searched over.
    tags: VecDeque<u64>,
    live: usize,
}

impl UnackedList {
    /// Deliveries that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Adds a delivery; tags must rise.
    pub fn push(&mut self, unacked: Unacked) {
        debug_assert!(self.tags.back().is_none_or(|&last| last < unacked.tag));
        self.tags.push_back(unacked.tag);
        self.entries.push_back(Some(unacked));
        self.live += 1;
    }

    /// Takes the delivery with this tag, if it waits.
    pub fn take(&mut self, tag: u64) -> Option<Unacked> {
        let place = match self.tags.front() {
            Some(&front) if front == tag => 0,
            // Tags are mostly dense, so the distance from the front is nearly always the place.
            Some(&front) => {
                let guess = usize::try_from(tag.checked_sub(front)?).ok()?;
                match self.tags.get(guess) {
                    Some(&found) if found == tag => guess,
                    _ => self.tags.binary_search(&tag).ok()?,
                }
            }
            None => return None,
        };
        let unacked = self.entries[place].take()?;
        self.live -= 1;
        self.trim();
        Some(unacked)
    }

    /// Whether the delivery with this tag waits.
    #[must_use]
    pub fn contains(&self, tag: u64) -> bool {
        let place = self.tags.binary_search(&tag);
        place.is_ok_and(|place| self.entries[place].is_some())
    }

    /// Deliveries that a consumer got: all but those of `basic.get`.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.entries.iter().flatten().filter(|unacked| unacked.consumer != NO_CONSUMER).count()
    }

    /// Takes the oldest delivery if its tag is not above `tag`.
    pub fn take_up_to(&mut self, tag: u64) -> Option<Unacked> {
        self.trim();
        if *self.tags.front()? > tag {
            return None;
        }
        let unacked = self.entries.front_mut()?.take()?;
        self.live -= 1;
        self.trim();
        Some(unacked)
    }

    /// Takes the oldest delivery.
    pub fn take_oldest(&mut self) -> Option<Unacked> {
        self.take_up_to(u64::MAX)
    }

    /// Puts deliveries back that were taken (a rolled back transaction).
    pub fn put_back(&mut self, mut taken: Vec<Unacked>) {
        taken.extend(self.entries.drain(..).flatten());
        self.tags.clear();
        taken.sort_unstable_by_key(|unacked| unacked.tag);
        self.live = 0;
        for unacked in taken {
            self.push(unacked);
        }
    }

    fn trim(&mut self) {
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.tags.pop_front();
        }
        if self.entries.len() > 64 && self.live * 2 < self.entries.len() {
            let kept = |entries: &VecDeque<Option<Unacked>>| {
                entries.iter().flatten().copied().collect::<VecDeque<_>>()
            };
            let live = kept(&self.entries);
            self.tags = live.iter().map(|unacked| unacked.tag).collect();
            self.entries = live.into_iter().map(Some).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unacked(tag: u64) -> Unacked {
        Unacked {
            tag,
            queue: QueueId(1),
            queue_slot: 0,
            home: ShardId(0),
            consumer: 0,
            slot: tag as u32,
            sequence: tag,
        }
    }

    #[test]
    fn a_tag_can_be_taken_once() {
        let mut list = UnackedList::default();
        for tag in 1..=5 {
            list.push(unacked(tag));
        }
        assert_eq!(list.take(3).map(|u| u.tag), Some(3));
        assert_eq!(list.take(3), None);
        assert_eq!(list.take(9), None);
        assert_eq!(list.take(0), None);
        assert_eq!(list.len(), 4);
    }

    #[test]
    fn multiple_takes_the_oldest_up_to_the_tag() {
        let mut list = UnackedList::default();
        for tag in 1..=5 {
            list.push(unacked(tag));
        }
        list.take(1);
        let taken: Vec<_> = core::iter::from_fn(|| list.take_up_to(4)).map(|u| u.tag).collect();
        assert_eq!(taken, [2, 3, 4]);
        assert!(list.contains(5) && !list.contains(4) && !list.contains(6));
    }

    #[test]
    fn one_old_delivery_does_not_keep_the_places_of_a_million() {
        let mut list = UnackedList::default();
        list.push(unacked(1));
        for tag in 2..1_000_000 {
            list.push(unacked(tag));
            assert!(list.take(tag).is_some());
        }
        assert!(list.entries.len() <= 66);
        assert_eq!(list.take(1).map(|u| u.tag), Some(1));
    }

    #[test]
    fn rolled_back_deliveries_stand_in_tag_order_again() {
        let mut list = UnackedList::default();
        for tag in 1..=4 {
            list.push(unacked(tag));
        }
        let taken = [list.take(3), list.take(1)].into_iter().flatten().collect();
        list.put_back(taken);
        let tags: Vec<_> = core::iter::from_fn(|| list.take_oldest()).map(|u| u.tag).collect();
        assert_eq!(tags, [1, 2, 3, 4]);
    }
}
