//! The consumers of a channel, and those of them that wait.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use lepus_base::{HashMap, HashState, QueueId, ShardId, Slab, slab_bytes};

use crate::queue::ConsumerHandle;

/// Bytes of a number in [`Subscriptions::ungoverned`], about; counted for each consumer.
const UNGOVERNED_BYTES: usize = 8;
/// Stands for no consumer.
const NONE: u32 = u32::MAX;

/// A consumer as its channel sees it.
#[derive(Debug)]
pub struct Subscription {
    /// Consumer tag, unique on the channel.
    pub tag: Box<str>,
    /// The queue it consumes from.
    pub queue: QueueId,
    /// The queue's place in its home's table, a hint.
    pub queue_slot: u32,
    /// The queue's home.
    pub home: ShardId,
    /// Its name within the queue; known once the home has answered.
    pub handle: Option<ConsumerHandle>,
    /// Whether deliveries count as acknowledged at once.
    pub no_ack: bool,
    /// Whether `basic.cancel` is under way.
    pub cancelling: bool,
    /// Whether it has a filter.
    pub is_filtered: bool,
    /// Where it waits.
    link: Link,
}

impl Subscription {
    /// A consumer whose home has yet to answer, and that waits for nothing.
    #[must_use]
    pub fn new(tag: Box<str>, queue: (QueueId, u32), home: ShardId, no_ack: bool) -> Subscription {
        Subscription {
            tag,
            queue: queue.0,
            queue_slot: queue.1,
            home,
            handle: None,
            no_ack,
            cancelling: false,
            is_filtered: false,
            link: Link { waits: None, previous: NONE, next: NONE },
        }
    }
}

/// What a consumer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Credit under the prefetch limit of the channel.
    Credit,
    /// Room on the connection, or on the channel.
    Room,
}

/// A consumer's neighbours among those who wait for the same.
#[derive(Clone, Copy, Debug)]
struct Link {
    waits: Option<WaitsFor>,
    previous: u32,
    next: u32,
}

/// Those who wait for the same, in the order in which they came, linked through their entries: so a
/// consumer that goes leaves nothing behind.
#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain { first: NONE, last: NONE, len: 0 }
    }
}

/// The consumers of a channel.
#[derive(Debug)]
pub struct Subscriptions {
    /// By number.
    pub by_number: Slab<Subscription>,
    /// Numbers by tag.
    pub by_tag: HashMap<Box<str>, u32>,
    /// Consumers of queues on other shards that do not know of a channel-wide prefetch limit. When
    /// it is lifted the others are not told before they ask for credit, so that switching it on and
    /// off costs what was delivered meanwhile.
    pub ungoverned: BTreeSet<u32>,
    /// Deliveries that came when the channel already waited to end.
    pub late: Vec<Late>,
    /// Whether the channel is among those of its connection with consumers that wait for room.
    pub is_listed: bool,
    /// Bytes of the tags.
    tag_bytes: usize,
    /// Consumers with a filter.
    filtered: usize,
    credit: Chain,
    room: Chain,
}

/// A delivery from another shard that is not sent to the client.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// Where it came from.
    pub home: ShardId,
    /// The queue.
    pub queue: QueueId,
    /// Its place among the queue's unacked, if it is to be acknowledged.
    pub slot: u32,
    /// The sequence number that guards the slot.
    pub sequence: u64,
    /// Bytes of the connection's window.
    pub bytes: u64,
}

impl Subscriptions {
    /// None yet.
    #[must_use]
    pub fn new(hash: HashState) -> Subscriptions {
        Subscriptions {
            by_number: Slab::new(),
            by_tag: HashMap::with_hasher(hash),
            ungoverned: BTreeSet::new(),
            late: Vec::new(),
            is_listed: false,
            tag_bytes: 0,
            filtered: 0,
            credit: Chain::default(),
            room: Chain::default(),
        }
    }

    /// Adds a consumer and tells its number.
    pub fn insert(&mut self, subscription: Subscription) -> u32 {
        let tag = subscription.tag.clone();
        self.tag_bytes += 2 * tag.len();
        self.filtered += usize::from(subscription.is_filtered);
        let number = self.by_number.insert(subscription) as u32;
        self.by_tag.insert(tag, number);
        number
    }

    /// Consumers with a filter.
    #[must_use]
    pub fn filtered(&self) -> usize {
        self.filtered
    }

    /// Removes a consumer, which waits for nothing any more.
    pub fn remove(&mut self, number: u32) -> Option<Subscription> {
        self.end_wait(number);
        let subscription = self.by_number.try_remove(number as usize)?;
        self.filtered -= usize::from(subscription.is_filtered);
        self.by_tag.remove(&subscription.tag);
        self.ungoverned.remove(&number);
        self.tag_bytes -= 2 * subscription.tag.len();
        Some(subscription)
    }

    /// How many consumers wait for something.
    #[must_use]
    pub fn waiting(&self, what: WaitsFor) -> u32 {
        match what {
            WaitsFor::Credit => self.credit.len,
            WaitsFor::Room => self.room.len,
        }
    }

    /// Whether this one waits for something.
    #[must_use]
    pub fn is_waiting(&self, number: u32) -> bool {
        let one = self.by_number.get(number as usize);
        one.is_some_and(|one| one.link.waits.is_some())
    }

    /// A consumer begins to wait, behind all others; it waits for nothing else any more. False if
    /// there is none of this number.
    pub fn wait(&mut self, number: u32, what: WaitsFor) -> bool {
        if !self.by_number.contains(number as usize) {
            return false;
        }
        self.end_wait(number);
        let chain = self.chain(what);
        let previous = core::mem::replace(&mut chain.last, number);
        chain.len += 1;
        match previous {
            NONE => chain.first = number,
            _ => self.by_number[previous as usize].link.next = number,
        }
        self.by_number[number as usize].link = Link { waits: Some(what), previous, next: NONE };
        true
    }

    /// Takes the one who waits longest.
    pub fn next_waiting(&mut self, what: WaitsFor) -> Option<u32> {
        let number = self.chain(what).first;
        (number != NONE).then(|| {
            self.end_wait(number);
            number
        })
    }

    /// Nobody waits for anything.
    pub fn end_waits(&mut self) {
        for what in [WaitsFor::Credit, WaitsFor::Room] {
            while self.next_waiting(what).is_some() {}
        }
    }

    /// A consumer waits for nothing any more.
    fn end_wait(&mut self, number: u32) {
        let Some(waiter) = self.by_number.get_mut(number as usize) else {
            return race!("the consumer was cancelled before");
        };
        let Link { waits: Some(what), previous, next } = waiter.link else { return };
        waiter.link.waits = None;
        let chain = self.chain(what);
        chain.len -= 1;
        if previous == NONE {
            chain.first = next;
        }
        if next == NONE {
            chain.last = previous;
        }
        if previous != NONE {
            self.by_number[previous as usize].link.next = next;
        }
        if next != NONE {
            self.by_number[next as usize].link.previous = previous;
        }
    }

    /// The first consumer from this number on.
    pub(crate) fn next_from(&self, number: usize) -> Option<usize> {
        (number..self.by_number.capacity()).find(|&number| self.by_number.contains(number))
    }

    /// The consumer with this tag, and its queue.
    pub(crate) fn named(&self, tag: &str) -> Option<(u32, QueueId)> {
        let number = *self.by_tag.get(tag)?;
        Some((number, self.by_number.get(number as usize)?.queue))
    }

    /// All consumers, with their queues.
    pub(crate) fn with_queues(&self) -> impl Iterator<Item = (u32, QueueId)> {
        self.by_number.iter().map(|(number, one)| (number as u32, one.queue))
    }

    fn chain(&mut self, what: WaitsFor) -> &mut Chain {
        match what {
            WaitsFor::Credit => &mut self.credit,
            WaitsFor::Room => &mut self.room,
        }
    }

    /// Allocated bytes, this value included.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Subscriptions>()
            + self.tag_bytes
            + slab_bytes(&self.by_number)
            + self.by_tag.allocation_size()
            + self.by_number.len() * UNGOVERNED_BYTES
            + self.late.capacity() * size_of::<Late>()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::format;

    use super::*;

    #[test]
    fn those_who_wait_are_taken_in_their_order_and_who_goes_is_not() {
        let mut random = lepus_base::Rng::new(3);
        let mut all = Subscriptions::new(HashState::new(1));
        let mut there: Vec<u32> = Vec::new();
        let mut lines = [VecDeque::new(), VecDeque::new()];
        let kinds = [WaitsFor::Credit, WaitsFor::Room];
        for round in 0..20_000 {
            let place = random.below(there.len().max(1) as u64) as usize;
            let kind = random.below(2) as usize;
            match random.below(4) {
                0 if there.len() < 40 => {
                    let tag = format!("{round}").into();
                    let one = Subscription::new(tag, (QueueId(1), 0), ShardId(0), false);
                    there.push(all.insert(one));
                }
                1 if !there.is_empty() => {
                    let number = there.swap_remove(place);
                    assert!(all.remove(number).is_some());
                    lines.iter_mut().for_each(|line| line.retain(|&other| other != number));
                }
                2 if !there.is_empty() => {
                    let number = there[place];
                    assert!(all.wait(number, kinds[kind]));
                    lines.iter_mut().for_each(|line| line.retain(|&other| other != number));
                    lines[kind].push_back(number);
                }
                _ => assert_eq!(all.next_waiting(kinds[kind]), lines[kind].pop_front()),
            }
            assert_eq!(all.waiting(kinds[kind]) as usize, lines[kind].len());
        }
        assert!(!all.wait(1_000, WaitsFor::Room));
        all.end_waits();
        assert_eq!((all.waiting(WaitsFor::Credit), all.waiting(WaitsFor::Room)), (0, 0));
    }
}
