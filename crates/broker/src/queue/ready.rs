//! The messages of a queue that wait for a consumer, in the order in which they leave.
//!
//! A level (one per priority in use) has two sorted parts: the fresh ones in a deque, where new
//! messages are appended, and those that came back to a place in the middle in a heap. The head is
//! the older of the two heads, so that a requeue of any size and order costs O(log n) per message.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::entry::Entry;

/// Entries a drained level keeps room for.
const SPARE_ENTRIES_MAX: usize = 256;

/// An entry in the heap: the lowest sequence number is the greatest.
#[derive(Debug)]
struct Returned(Entry);

impl PartialEq for Returned {
    fn eq(&self, other: &Returned) -> bool {
        self.0.seq == other.0.seq
    }
}

impl Eq for Returned {}

impl PartialOrd for Returned {
    fn partial_cmp(&self, other: &Returned) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Returned {
    fn cmp(&self, other: &Returned) -> Ordering {
        other.0.seq.cmp(&self.0.seq)
    }
}

/// The ready messages of one priority.
#[derive(Debug, Default)]
struct Level {
    /// Sorted by sequence number.
    fresh: VecDeque<Entry>,
    returned: BinaryHeap<Returned>,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.returned.is_empty()
    }

    fn is_returned_first(&self) -> bool {
        self.returned
            .peek()
            .is_some_and(|top| self.fresh.front().is_none_or(|fresh| top.0.seq < fresh.seq))
    }

    fn head(&self) -> Option<&Entry> {
        if self.is_returned_first() {
            return self.returned.peek().map(|top| &top.0);
        }
        self.fresh.front()
    }

    fn pop(&mut self) -> Option<Entry> {
        if self.is_returned_first() {
            let entry = self.returned.pop();
            let (len, capacity) = (self.returned.len(), self.returned.capacity());
            if capacity > SPARE_ENTRIES_MAX && len < capacity / 8 {
                self.returned.shrink_to(len * 2);
            }
            return entry.map(|top| top.0);
        }
        let entry = self.fresh.pop_front();
        let (len, capacity) = (self.fresh.len(), self.fresh.capacity());
        if capacity > SPARE_ENTRIES_MAX && len < capacity / 8 {
            self.fresh.shrink_to(len * 2);
        }
        entry
    }

    fn put_back(&mut self, entry: Entry) {
        if self.fresh.front().is_none_or(|first| entry.seq < first.seq) {
            self.fresh.push_front(entry);
        } else if self.fresh.back().is_some_and(|last| last.seq < entry.seq) {
            self.fresh.push_back(entry);
        } else {
            self.returned.push(Returned(entry));
        }
    }

    fn memory_bytes(&self) -> usize {
        let entries = self.fresh.capacity() + self.returned.capacity();
        entries * size_of::<Entry>()
    }

    fn trim(&mut self) {
        self.fresh.shrink_to_fit();
        self.returned.shrink_to_fit();
    }
}

/// Levels above priority 0; they exist once a message with a priority was kept.
#[derive(Debug, Default)]
struct Levels {
    /// Bit `p` of the 256 is set where the level of priority `p` has messages.
    used: [u64; 4],
    /// Index is the priority minus 1; as long as the highest priority seen.
    levels: Vec<Level>,
}

impl Levels {
    /// The highest priority above 0 that has messages.
    fn highest(&self) -> Option<u8> {
        let word = self.used.iter().rposition(|&word| word != 0)?;
        let bit = 63 - self.used[word].leading_zeros() as usize;
        Some((word * 64 + bit) as u8)
    }

    fn set_used(&mut self, priority: u8, is_used: bool) {
        let word = &mut self.used[usize::from(priority / 64)];
        let bit = 1 << (priority % 64);
        *word = if is_used { *word | bit } else { *word & !bit };
    }

    fn level(&mut self, priority: u8) -> &mut Level {
        let priority = usize::from(priority);
        if self.levels.len() < priority {
            self.levels.resize_with(priority, Level::default);
        }
        &mut self.levels[priority - 1]
    }
}

/// All ready messages of a queue.
#[derive(Debug, Default)]
pub(super) struct Ready {
    base: Level,
    levels: Option<Box<Levels>>,
    len: u64,
    bytes: u64,
}

impl Ready {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Sum of the payloads.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a new entry, whose sequence number is above all others.
    pub(super) fn push(&mut self, entry: Entry) {
        self.len += 1;
        self.bytes += u64::from(entry.bytes);
        if entry.priority == 0 {
            self.base.fresh.push_back(entry);
            return;
        }
        let levels = self.levels.get_or_insert_default();
        levels.set_used(entry.priority, true);
        levels.level(entry.priority).fresh.push_back(entry);
    }

    /// Puts an entry back to its place.
    pub(super) fn put_back(&mut self, entry: Entry) {
        self.len += 1;
        self.bytes += u64::from(entry.bytes);
        if entry.priority == 0 {
            self.base.put_back(entry);
            return;
        }
        let levels = self.levels.get_or_insert_default();
        levels.set_used(entry.priority, true);
        levels.level(entry.priority).put_back(entry);
    }

    /// The entry that leaves next.
    pub(super) fn head(&self) -> Option<&Entry> {
        if let Some(levels) = &self.levels
            && let Some(priority) = levels.highest()
        {
            return levels.levels.get(usize::from(priority) - 1)?.head();
        }
        self.base.head()
    }

    /// Takes the head.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = match self.levels.as_ref().and_then(|levels| levels.highest()) {
            None => self.base.pop()?,
            Some(priority) => {
                let levels = self.levels.as_mut()?;
                let level = levels.level(priority);
                let entry = level.pop()?;
                if level.is_empty() {
                    levels.set_used(priority, false);
                }
                entry
            }
        };
        self.len -= 1;
        self.bytes -= u64::from(entry.bytes);
        Some(entry)
    }

    /// Gives spare capacity back.
    pub(super) fn trim(&mut self) {
        if self.is_empty() {
            *self = Ready::default();
            return;
        }
        self.base.trim();
        for level in self.levels.iter_mut().flat_map(|levels| &mut levels.levels) {
            level.trim();
        }
    }

    /// Allocated bytes, without the bodies and without the value itself.
    pub(super) fn memory_bytes(&self) -> usize {
        let levels = self.levels.as_ref().map_or(0, |levels| {
            let lists: usize = levels.levels.iter().map(Level::memory_bytes).sum();
            size_of::<Levels>() + levels.levels.capacity() * size_of::<Level>() + lists
        });
        self.base.memory_bytes() + levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_base::{Instant, Pool, Position, Rng};

    fn entry(pool: &mut Pool, seq: u64, priority: u8) -> Entry {
        Entry {
            seq,
            deadline: Instant::NEVER,
            position: Position(0),
            body: pool.insert(&[]),
            bytes: 1,
            delivery_count: 0,
            priority,
            persistent: false,
            redelivered: false,
        }
    }

    fn drain(ready: &mut Ready) -> Vec<u64> {
        core::iter::from_fn(|| {
            let head = ready.head().map(|entry| entry.seq);
            let popped = ready.pop().map(|entry| entry.seq);
            assert_eq!(head, popped);
            popped
        })
        .collect()
    }

    #[test]
    fn entries_that_come_back_in_any_order_leave_in_their_first_order() {
        let mut pool = Pool::new();
        let mut rng = Rng::new(7);
        for _ in 0..100 {
            let mut ready = Ready::default();
            for seq in 0..50 {
                ready.push(entry(&mut pool, seq, 0));
            }
            let mut out: Vec<Entry> = core::iter::from_fn(|| ready.pop()).take(40).collect();
            while !out.is_empty() {
                let index = rng.below(out.len() as u64) as usize;
                ready.put_back(out.swap_remove(index));
            }
            ready.push(entry(&mut pool, 50, 0));
            assert_eq!(drain(&mut ready), (0..=50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn higher_priorities_leave_first_and_each_in_its_order() {
        let mut pool = Pool::new();
        let mut ready = Ready::default();
        for (seq, priority) in [(0, 0), (1, 255), (2, 64), (3, 255), (4, 1), (5, 64)] {
            ready.push(entry(&mut pool, seq, priority));
        }
        assert_eq!(ready.len(), 6);
        assert_eq!(drain(&mut ready), [1, 3, 2, 5, 4, 0]);
        assert_eq!((ready.len(), ready.bytes()), (0, 0));
    }

    #[test]
    fn a_million_requeued_entries_cost_no_quadratic_time() {
        let mut pool = Pool::new();
        let body = pool.insert(&[]);
        let mut ready = Ready::default();
        let count = 1_000_000;
        ready.push(entry(&mut pool, count, 0));
        for seq in 0..count {
            let mut back = entry(&mut pool, seq, 0);
            pool.release(core::mem::replace(&mut back.body, body));
            ready.put_back(back);
        }
        assert_eq!(ready.head().map(|entry| entry.seq), Some(0));
        assert_eq!(drain(&mut ready).len() as u64, count + 1);
    }

    #[test]
    fn a_drained_queue_gives_its_memory_back() {
        let mut pool = Pool::new();
        let mut ready = Ready::default();
        for seq in 0..100_000 {
            ready.push(entry(&mut pool, seq, 0));
        }
        let full = ready.memory_bytes();
        drain(&mut ready);
        assert!(ready.memory_bytes() <= 2 * SPARE_ENTRIES_MAX * size_of::<Entry>());
        assert!(full >= 4_000_000);
        ready.trim();
        assert_eq!(ready.memory_bytes(), 0);
    }
}
