//! Deliveries of one channel that wait for an acknowledgement, by delivery tag.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::{QueueId, ShardId};

/// Stands for "no consumer": the message was fetched with `basic.get`.
pub const NO_CONSUMER: u32 = u32::MAX;

/// Entries that a look over all of them is worth.
const LOOKED_AT_MAX: usize = 65_536;
/// Entries that a list keeps room for, in use or not.
const SPARE_ENTRIES_MAX: usize = 256;

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

/// The home of a delivery that is settled and still in the list.
const SETTLED: ShardId = ShardId(u16::MAX);

/// Unacknowledged deliveries in tag order. Settling the oldest or any other costs no search
/// worth naming and no allocation; places of settled ones are swept when they outnumber the rest.
#[derive(Debug, Default)]
pub struct UnackedList {
    /// The first is not settled.
    entries: VecDeque<Unacked>,
    live: usize,
    /// Room for entries at the last call of [`UnackedList::take_resized`].
    seen_capacity: usize,
    /// How often everything was gone through to put something back.
    #[cfg(test)]
    merges: usize,
}

impl UnackedList {
    /// Deliveries that wait.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Allocated bytes, without the value itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Unacked>()
    }

    /// Whether that changed since the last call.
    #[inline]
    pub fn take_resized(&mut self) -> bool {
        let capacity = self.entries.capacity();
        core::mem::replace(&mut self.seen_capacity, capacity) != capacity
    }

    /// Whether all that wait are of queues of one shard. Not looked at closely where they are very
    /// many.
    #[must_use]
    pub fn is_all_of(&self, home: ShardId) -> bool {
        let is_of = |one: &Unacked| one.home == home || one.home == SETTLED;
        self.is_empty() || (self.entries.len() <= LOOKED_AT_MAX && self.entries.iter().all(is_of))
    }

    /// Adds a delivery; tags must rise.
    #[inline]
    pub fn push(&mut self, unacked: Unacked) {
        debug_assert!(self.entries.back().is_none_or(|last| last.tag < unacked.tag));
        debug_assert!(unacked.home != SETTLED);
        self.entries.push_back(unacked);
        self.live += 1;
    }

    /// The delivery with this tag, if it waits.
    #[inline]
    #[must_use]
    pub fn get(&self, tag: u64) -> Option<&Unacked> {
        self.entries.get(self.place(tag)?).filter(|found| found.home != SETTLED)
    }

    /// The delivery that has waited longest.
    #[must_use]
    pub fn oldest(&self) -> Option<&Unacked> {
        self.entries.front()
    }

    /// Takes the delivery with this tag, if it waits.
    pub fn take(&mut self, tag: u64) -> Option<Unacked> {
        self.take_if(tag, |_| true)
    }

    /// Takes the delivery with this tag, if it waits and is `wanted`.
    #[inline]
    pub fn take_if(&mut self, tag: u64, wanted: impl FnOnce(&Unacked) -> bool) -> Option<Unacked> {
        let place = self.place(tag)?;
        let found = self.entries.get_mut(place)?;
        if found.home == SETTLED || !wanted(found) {
            return None;
        }
        let unacked = *found;
        self.live -= 1;
        if place == 0 {
            self.entries.pop_front();
            if self.entries.front().is_some_and(|first| first.home == SETTLED) {
                self.trim();
            }
            self.give_back();
        } else {
            found.home = SETTLED;
            if self.entries.len() > 64 && self.live * 2 < self.entries.len() {
                self.entries.retain(|unacked| unacked.home != SETTLED);
                self.give_back();
            }
        }
        Some(unacked)
    }

    /// Whether the delivery with this tag waits.
    #[must_use]
    pub fn contains(&self, tag: u64) -> bool {
        self.get(tag).is_some()
    }

    /// Deliveries that a consumer got: all but those of `basic.get`.
    #[must_use]
    pub fn consumed(&self) -> usize {
        let waits = |unacked: &&Unacked| unacked.home != SETTLED && unacked.consumer != NO_CONSUMER;
        self.entries.iter().filter(waits).count()
    }

    /// Takes the oldest delivery if its tag is not above `tag`.
    pub fn take_up_to(&mut self, tag: u64) -> Option<Unacked> {
        let oldest = self.entries.front()?.tag;
        if oldest > tag { None } else { self.take(oldest) }
    }

    /// Takes the oldest delivery.
    pub fn take_oldest(&mut self) -> Option<Unacked> {
        self.take_up_to(u64::MAX)
    }

    /// Puts deliveries back that were taken (a rolled back transaction). That costs what was taken, not
    /// what is there, unless their places were swept meanwhile.
    pub fn put_back(&mut self, mut taken: Vec<Unacked>) {
        taken.sort_unstable_by_key(|unacked| unacked.tag);
        let mut swept = Vec::new();
        for unacked in taken.into_iter().rev() {
            if self.entries.front().is_none_or(|first| unacked.tag < first.tag) {
                self.entries.push_front(unacked);
                self.live += 1;
                continue;
            }
            match self.place(unacked.tag) {
                Some(place) => {
                    debug_assert!(self.entries[place].home == SETTLED);
                    self.entries[place] = unacked;
                    self.live += 1;
                }
                None => swept.push(unacked),
            }
        }
        if !swept.is_empty() {
            self.merge(swept);
        }
    }

    /// Puts deliveries among all others.
    #[cold]
    fn merge(&mut self, mut taken: Vec<Unacked>) {
        #[cfg(test)]
        {
            self.merges += 1;
        }
        taken.extend(self.entries.drain(..).filter(|unacked| unacked.home != SETTLED));
        taken.sort_unstable_by_key(|unacked| unacked.tag);
        self.live = taken.len();
        self.entries.extend(taken);
    }

    /// Where the delivery with this tag is, settled or not.
    #[inline]
    fn place(&self, tag: u64) -> Option<usize> {
        let first = self.entries.front()?.tag;
        // Tags are mostly dense, so the distance from the first is nearly always the place.
        let guess = usize::try_from(tag.checked_sub(first)?).ok()?;
        match self.entries.get(guess) {
            Some(found) if found.tag == tag => Some(guess),
            _ => self.entries.binary_search_by_key(&tag, |unacked| unacked.tag).ok(),
        }
    }

    /// Gives memory back when most of it is not needed any more.
    #[inline]
    fn give_back(&mut self) {
        let capacity = self.entries.capacity();
        if capacity > SPARE_ENTRIES_MAX && self.entries.len() < capacity / 4 {
            self.entries.shrink_to(capacity / 2);
        }
    }

    #[cold]
    fn trim(&mut self) {
        while self.entries.front().is_some_and(|first| first.home == SETTLED) {
            self.entries.pop_front();
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
    fn putting_back_costs_what_was_taken_and_not_what_is_there() {
        let mut list = UnackedList::default();
        (1..=100_000).for_each(|tag| list.push(unacked(tag)));
        for round in 0..100 {
            list.put_back(Vec::new());
            let tags = [1, 2, 50_000 + round, 100_000, 3];
            let taken: Vec<_> = tags.iter().filter_map(|&tag| list.take(tag)).collect();
            assert_eq!((taken.len(), list.len()), (5, 99_995));
            list.put_back(taken);
            assert_eq!((list.len(), list.oldest().map(|u| u.tag)), (100_000, Some(1)));
        }
        assert_eq!(list.merges, 0);
        let all: Vec<_> = core::iter::from_fn(|| list.take_oldest()).collect();
        assert!(all.iter().map(|unacked| unacked.tag).eq(1..=100_000));
        list.put_back(all);
        assert_eq!((list.len(), list.merges), (100_000, 0));
    }

    #[test]
    fn what_comes_back_stands_where_it_stood_whatever_was_settled_meanwhile() {
        for seed in 0..200_u64 {
            let mut random = lepus_base::Rng::new(seed);
            let mut list = UnackedList::default();
            (1..=300).for_each(|tag| list.push(unacked(tag)));
            let mut left: alloc::collections::BTreeSet<u64> = (1..=300).collect();
            let mut taken = Vec::new();
            for _ in 0..random.below(400) {
                let tag = 1 + random.below(300);
                let Some(found) = list.take(tag) else { continue };
                assert!(left.remove(&tag));
                if random.below(2) == 0 {
                    taken.push(found);
                }
            }
            left.extend(taken.iter().map(|unacked| unacked.tag));
            list.put_back(taken);
            assert_eq!(list.len(), left.len());
            let found = core::iter::from_fn(|| list.take_oldest()).map(|unacked| unacked.tag);
            assert!(found.eq(left), "seed {seed}");
        }
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
        assert!(list.memory_bytes() <= 2 * SPARE_ENTRIES_MAX * size_of::<Unacked>());
        assert_eq!(list.take(1).map(|u| u.tag), Some(1));
    }

    #[test]
    fn a_list_gives_its_memory_back_after_a_peak() {
        let mut list = UnackedList::default();
        for tag in 1..100_000 {
            list.push(unacked(tag));
        }
        let peak = list.memory_bytes();
        assert!(list.take_resized() && !list.take_resized());
        while list.len() > 1000 {
            list.take_oldest();
        }
        assert!(list.take_resized());
        assert!(list.memory_bytes() * 16 < peak);
        while list.take_oldest().is_some() {}
        assert!(list.memory_bytes() <= SPARE_ENTRIES_MAX * size_of::<Unacked>());
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
