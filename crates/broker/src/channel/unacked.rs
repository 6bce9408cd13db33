//! Deliveries of one channel that wait for an acknowledgement, by delivery tag.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

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
    /// Those before them, while deliveries are put back.
    before: Option<Box<Before>>,
    live: usize,
    /// Of these, fetched with `basic.get`.
    fetched: usize,
    /// Room for entries at the last call of [`UnackedList::take_resized`].
    seen_capacity: usize,
}

/// Deliveries whose tags are below that of the one that was put back last: the place of that one was
/// swept, and they move behind it one by one. There is one, and the first is not settled.
#[derive(Debug, Default)]
struct Before(VecDeque<Unacked>);

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
        let before = self.before.as_ref().map_or(0, |before| before.0.capacity());
        (self.entries.capacity() + before) * size_of::<Unacked>()
    }

    /// Whether that changed since the last call.
    #[inline]
    pub fn take_resized(&mut self) -> bool {
        let capacity = self.entries.capacity();
        core::mem::replace(&mut self.seen_capacity, capacity) != capacity
    }

    /// Whether all that wait are of queues of one shard. Not looked at closely where they are very
    /// many, or on their way back.
    #[must_use]
    pub fn is_all_of(&self, home: ShardId) -> bool {
        let is_of = |one: &Unacked| one.home == home || one.home == SETTLED;
        let is_small = self.entries.len() <= LOOKED_AT_MAX && self.before.is_none();
        self.is_empty() || (is_small && self.entries.iter().all(is_of))
    }

    /// Adds a delivery; tags must rise.
    #[inline]
    pub fn push(&mut self, unacked: Unacked) {
        debug_assert!(self.entries.back().is_none_or(|last| last.tag < unacked.tag));
        debug_assert!(unacked.home != SETTLED);
        debug_assert!(unacked.consumer != NO_CONSUMER);
        self.entries.push_back(unacked);
        self.live += 1;
    }

    /// Adds a delivery that was fetched with `basic.get`; tags must rise.
    pub fn push_fetched(&mut self, unacked: Unacked) {
        debug_assert!(self.entries.back().is_none_or(|last| last.tag < unacked.tag));
        debug_assert!(unacked.home != SETTLED && unacked.consumer == NO_CONSUMER);
        self.entries.push_back(unacked);
        self.live += 1;
        self.fetched += 1;
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
        self.before.as_ref().map_or(&self.entries, |before| &before.0).front()
    }

    /// Takes the delivery with this tag, if it waits.
    pub fn take(&mut self, tag: u64) -> Option<Unacked> {
        self.take_if(tag, |_| true)
    }

    /// Takes the delivery with this tag, if it waits and is `wanted`.
    #[inline]
    pub fn take_if(&mut self, tag: u64, wanted: impl FnOnce(&Unacked) -> bool) -> Option<Unacked> {
        debug_assert!(self.before.is_none(), "what is put back comes to its end first");
        let first = self.entries.front()?;
        if first.tag == tag {
            // The first is not settled, and most clients settle in order.
            if !wanted(first) {
                return None;
            }
            let unacked = self.entries.pop_front()?;
            self.count_taken(&unacked);
            if self.entries.front().is_some_and(|first| first.home == SETTLED) {
                self.trim();
            }
            self.give_back();
            return Some(unacked);
        }
        self.take_behind_first(tag, wanted)
    }

    /// [`UnackedList::take_if`] of another one than the first.
    fn take_behind_first(
        &mut self,
        tag: u64,
        wanted: impl FnOnce(&Unacked) -> bool,
    ) -> Option<Unacked> {
        let place = self.place(tag)?;
        let found = self.entries.get_mut(place)?;
        if found.home == SETTLED || !wanted(found) {
            return None;
        }
        let unacked = *found;
        found.home = SETTLED;
        self.count_taken(&unacked);
        if self.entries.len() > 64 && self.live * 2 < self.entries.len() {
            self.entries.retain(|unacked| unacked.home != SETTLED);
            self.give_back();
        }
        Some(unacked)
    }

    #[inline]
    fn count_taken(&mut self, unacked: &Unacked) {
        self.live -= 1;
        if unacked.consumer == NO_CONSUMER {
            self.fetched -= 1;
        }
    }

    /// Whether the delivery with this tag waits.
    #[must_use]
    pub fn contains(&self, tag: u64) -> bool {
        self.get(tag).is_some()
    }

    /// Deliveries that a consumer got: all but those of `basic.get`.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.live - self.fetched
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

    /// Makes room for so many that are put back: while the list grew for them again and again, all
    /// that is there would move each time.
    pub fn reserve(&mut self, count: usize) {
        let places = self.entries.len() - self.live;
        self.entries.reserve(count.saturating_sub(places));
    }

    /// One step of putting back deliveries that were taken (a rolled back transaction), the highest
    /// tag first: `unacked` with `left` others of lower tags to come. False when another one had to
    /// move first: it is to be put back again. [`UnackedList::close_up`] follows the last. That costs
    /// what was taken, not what is there, unless places were swept meanwhile.
    pub fn put_back(&mut self, unacked: &Unacked, left: usize) -> bool {
        let tag = unacked.tag;
        if self.before.is_none() && self.entries.front().is_some_and(|first| first.tag < tag) {
            if let Some(place) = self.place(tag) {
                debug_assert!(self.entries[place].home == SETTLED);
                self.entries[place] = *unacked;
                self.count_back(unacked);
                return true;
            }
            let room = VecDeque::with_capacity(self.live + left + 1);
            let before = core::mem::replace(&mut self.entries, room);
            self.before = Some(Box::new(Before(before)));
            self.seen_capacity = usize::MAX;
        }
        if let Some(before) = &self.before
            && let Some(last) = before.0.back()
            && last.tag >= tag
        {
            let is_place = last.tag == tag;
            debug_assert!(!is_place || last.home == SETTLED);
            self.move_last();
            if !is_place {
                return false;
            }
        }
        debug_assert!(self.entries.front().is_none_or(|first| tag < first.tag));
        self.entries.push_front(*unacked);
        self.count_back(unacked);
        true
    }

    /// Counts one that is back.
    fn count_back(&mut self, unacked: &Unacked) {
        self.live += 1;
        self.fetched += usize::from(unacked.consumer == NO_CONSUMER);
    }

    /// One step after the last that was put back. Whether all stand where they stood.
    pub fn close_up(&mut self) -> bool {
        self.move_last();
        self.before.is_none()
    }

    /// Moves the last of those before the others to them, unless it is settled.
    fn move_last(&mut self) {
        let Some(before) = &mut self.before else { return };
        if let Some(last) = before.0.pop_back().filter(|last| last.home != SETTLED) {
            self.entries.push_front(last);
        }
        if before.0.is_empty() {
            self.before = None;
            self.seen_capacity = usize::MAX;
        }
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
    use alloc::vec::Vec;

    fn unacked(tag: u64) -> Unacked {
        Unacked {
            tag,
            queue: QueueId(1),
            queue_slot: 0,
            home: ShardId(0),
            consumer: if tag.is_multiple_of(3) { NO_CONSUMER } else { 0 },
            slot: tag as u32,
            sequence: tag,
        }
    }

    /// One delivery in three is fetched.
    fn add(list: &mut UnackedList, tag: u64) {
        let unacked = unacked(tag);
        if unacked.consumer == NO_CONSUMER {
            list.push_fetched(unacked);
        } else {
            list.push(unacked);
        }
    }

    /// Checks what the list counts against what is in it.
    fn check_counts(list: &UnackedList) {
        let before = list.before.iter().flat_map(|before| &before.0);
        let all = before.chain(&list.entries).filter(|unacked| unacked.home != SETTLED);
        let consumed = all.clone().filter(|unacked| unacked.consumer != NO_CONSUMER).count();
        assert_eq!((list.len(), list.consumed()), (all.count(), consumed));
    }

    #[test]
    fn a_tag_can_be_taken_once() {
        let mut list = UnackedList::default();
        for tag in 1..=5 {
            add(&mut list, tag);
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
            add(&mut list, tag);
        }
        list.take(1);
        let taken: Vec<_> = core::iter::from_fn(|| list.take_up_to(4)).map(|u| u.tag).collect();
        assert_eq!(taken, [2, 3, 4]);
        assert!(list.contains(5) && !list.contains(4) && !list.contains(6));
    }

    /// Puts deliveries back, and says in how many steps; so long as they take, more come.
    fn put_back(list: &mut UnackedList, mut taken: Vec<Unacked>, mut next: Option<u64>) -> usize {
        let mut steps = 0;
        taken.sort_by_key(|unacked| unacked.tag);
        list.reserve(taken.len());
        while let Some(last) = taken.last() {
            steps += 1;
            if list.put_back(last, taken.len() - 1) {
                taken.pop();
            }
            if let Some(next) = next.as_mut().filter(|_| steps % 50 == 0) {
                add(list, *next);
                *next += 1;
                check_counts(list);
            }
            assert!(list.is_empty() || list.oldest().is_some_and(|first| first.home != SETTLED));
        }
        while !list.close_up() {
            steps += 1;
        }
        check_counts(list);
        steps
    }

    #[test]
    fn putting_back_costs_what_was_taken_and_not_what_is_there() {
        let mut list = UnackedList::default();
        (1..=100_000).for_each(|tag| add(&mut list, tag));
        for round in 0..100 {
            assert_eq!(put_back(&mut list, Vec::new(), None), 0);
            let tags = [1, 2, 50_000 + round, 100_000, 3];
            let taken: Vec<_> = tags.iter().filter_map(|&tag| list.take(tag)).collect();
            assert_eq!((taken.len(), list.len()), (5, 99_995));
            assert_eq!(put_back(&mut list, taken, None), 5);
            assert_eq!((list.len(), list.oldest().map(|u| u.tag)), (100_000, Some(1)));
        }
        let all: Vec<_> = core::iter::from_fn(|| list.take_oldest()).collect();
        assert!(all.iter().map(|unacked| unacked.tag).eq(1..=100_000));
        assert_eq!(put_back(&mut list, all, None), 100_000);
        assert_eq!(list.len(), 100_000);
    }

    #[test]
    fn putting_back_into_swept_places_moves_each_of_the_others_once() {
        let mut list = UnackedList::default();
        (1..=100_000).for_each(|tag| add(&mut list, tag));
        let odd = (3..=100_000).step_by(2).chain([2, 100_000]);
        let taken: Vec<_> = odd.filter_map(|tag| list.take(tag)).collect();
        assert_eq!((taken.len(), list.len()), (50_001, 49_999));
        assert!(list.entries.len() < 50_100, "nothing was swept");
        let steps = put_back(&mut list, taken, None);
        assert!((99_000..=100_000).contains(&steps), "{steps} steps");
        let all = core::iter::from_fn(|| list.take_oldest()).map(|unacked| unacked.tag);
        assert!(all.eq(1..=100_000));
    }

    #[test]
    fn what_comes_back_stands_where_it_stood_whatever_was_settled_meanwhile() {
        for seed in 0..400_u64 {
            let mut random = lepus_base::Rng::new(seed);
            let mut list = UnackedList::default();
            (1..=300).for_each(|tag| add(&mut list, tag));
            let mut left: alloc::collections::BTreeSet<u64> = (1..=300).collect();
            for first in [301, 1_301] {
                let mut taken = Vec::new();
                for _ in 0..random.below(400) {
                    let tag = 1 + random.below(300);
                    let Some(found) = list.take(tag) else { continue };
                    assert!(left.remove(&tag));
                    check_counts(&list);
                    if random.below(2) == 0 {
                        taken.push(found);
                    }
                }
                left.extend(taken.iter().map(|unacked| unacked.tag));
                let most = taken.len() + list.entries.len();
                let steps = put_back(&mut list, taken, Some(first));
                assert!(steps <= most, "seed {seed}: {steps} steps");
                left.extend(first..first + steps as u64 / 50);
                left.retain(|&tag| list.contains(tag) || tag < first);
                assert_eq!(list.len(), left.len());
            }
            let found = core::iter::from_fn(|| list.take_oldest()).map(|unacked| unacked.tag);
            assert!(found.eq(left), "seed {seed}");
        }
    }

    #[test]
    fn one_old_delivery_does_not_keep_the_places_of_a_million() {
        let mut list = UnackedList::default();
        add(&mut list, 1);
        for tag in 2..1_000_000 {
            add(&mut list, tag);
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
            add(&mut list, tag);
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
            add(&mut list, tag);
        }
        let taken = [list.take(3), list.take(1)].into_iter().flatten().collect();
        put_back(&mut list, taken, None);
        let tags: Vec<_> = core::iter::from_fn(|| list.take_oldest()).map(|u| u.tag).collect();
        assert_eq!(tags, [1, 2, 3, 4]);
    }
}
