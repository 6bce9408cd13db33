//! The consumers of a queue and whose turn it is.
//!
//! Consumers that can take a message wait in a ring per priority; the others are in no ring and
//! cost nothing. With a single active consumer the rings hold those that wait to become active.
//! The rings are linked through the members, so every step is O(1) (in the number of consumers).

use alloc::boxed::Box;
use alloc::vec::Vec;
use lepus_base::{ConnectionId, ShardId, Slab, slab_bytes};

/// Stands for no slot.
const NONE: u32 = u32::MAX;

/// Names a consumer in the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    /// The connection.
    pub connection: ConnectionId,
    /// Incarnation of the channel.
    pub channel: u64,
    /// Number of the consumer, unique in the channel's incarnation.
    pub consumer: u32,
}

/// Names a consumer within its queue; never reused, so a stale one is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerHandle {
    /// Place in the queue's list.
    pub slot: u32,
    /// Guards the slot.
    pub generation: u32,
}

impl ConsumerHandle {
    /// No consumer.
    pub(super) const NONE: ConsumerHandle = ConsumerHandle { slot: NONE, generation: 0 };
}

/// A consumer as its queue knows it. It may live on another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Who it is.
    pub key: ConsumerKey,
    /// Where its connection lives.
    pub shard: ShardId,
    /// Place of the connection on that shard; opaque to the queue.
    pub connection_slot: u32,
    /// Number of the channel in the connection; opaque to the queue.
    pub channel_number: u16,
    /// Consumer tag.
    pub tag: Box<str>,
    /// Deliveries are settled by being sent.
    pub no_ack: bool,
    /// No other consumer may join.
    pub exclusive: bool,
    /// Argument `x-priority`; higher first.
    pub priority: i32,
    /// Deliveries that may be unsettled; 0 is unlimited. Means nothing with `no_ack`.
    pub prefetch: u32,
    /// Unsettled deliveries; kept by the queue, starts with 0.
    pub in_flight: u32,
}

impl Consumer {
    fn has_credit(&self) -> bool {
        self.no_ack || self.prefetch == 0 || self.in_flight < self.prefetch
    }
}

/// Why a consumer may not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscribeError {
    /// There is an exclusive consumer, or an exclusive one wants to join others: 403
    /// `queue 'q' in vhost '/' in exclusive use`.
    InExclusiveUse,
}

#[derive(Debug)]
struct Member {
    consumer: Consumer,
    generation: u32,
    next: u32,
    previous: u32,
    is_in_ring: bool,
    is_parked: bool,
}

/// Members of one priority that wait for their turn.
#[derive(Debug)]
struct Ring {
    priority: i32,
    head: u32,
    tail: u32,
    /// Consumers of this priority, in the ring or not.
    members: u32,
}

/// The consumers of one queue; at least one.
#[derive(Debug)]
pub(super) struct Consumers {
    members: Slab<Member>,
    /// Highest priority first.
    rings: Vec<Ring>,
    in_rings: u32,
    is_single_active: bool,
    /// The single active consumer; [`NONE`] without that rule.
    active: u32,
}

impl Consumers {
    pub(super) fn new(is_single_active: bool) -> Consumers {
        Consumers {
            members: Slab::new(),
            rings: Vec::new(),
            in_rings: 0,
            is_single_active,
            active: NONE,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.members.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn join(
        &mut self,
        consumer: Consumer,
        generation: u32,
    ) -> Result<ConsumerHandle, SubscribeError> {
        let is_taken = self
            .members
            .iter()
            .next()
            .is_some_and(|(_, member)| consumer.exclusive || member.consumer.exclusive);
        if is_taken || (consumer.exclusive && self.is_single_active) {
            return Err(SubscribeError::InExclusiveUse);
        }
        let priority = consumer.priority;
        match self.ring_index(priority) {
            Ok(index) => self.rings[index].members += 1,
            Err(index) => {
                self.rings.insert(index, Ring { priority, head: NONE, tail: NONE, members: 1 })
            }
        }
        let slot = self.members.insert(Member {
            consumer,
            generation,
            next: NONE,
            previous: NONE,
            is_in_ring: false,
            is_parked: false,
        }) as u32;
        if self.is_single_active && self.active == NONE {
            self.active = slot;
        } else {
            self.enter_ring(slot);
        }
        Ok(ConsumerHandle { slot, generation })
    }

    pub(super) fn leave(&mut self, handle: ConsumerHandle) -> Option<Consumer> {
        self.get(handle)?;
        self.leave_ring(handle.slot);
        let member = self.members.try_remove(handle.slot as usize)?;
        if let Ok(index) = self.ring_index(member.consumer.priority) {
            self.rings[index].members -= 1;
            if self.rings[index].members == 0 {
                self.rings.remove(index);
            }
        }
        if self.active == handle.slot {
            self.active = self.first_in_rings().unwrap_or(NONE);
            if self.active != NONE {
                self.leave_ring(self.active);
            }
        }
        Some(member.consumer)
    }

    pub(super) fn get(&self, handle: ConsumerHandle) -> Option<&Consumer> {
        let member = self.members.get(handle.slot as usize)?;
        (member.generation == handle.generation).then_some(&member.consumer)
    }

    /// The consumer at a slot that [`Consumers::next`] gave, and its handle.
    pub(super) fn at(&self, slot: u32) -> (ConsumerHandle, &Consumer) {
        let member = &self.members[slot as usize];
        let generation = member.generation;
        (ConsumerHandle { slot, generation }, &member.consumer)
    }

    /// Whether some consumer can take a message.
    pub(super) fn is_some_ready(&self) -> bool {
        if self.is_single_active {
            return self.next().is_some();
        }
        self.in_rings > 0
    }

    /// Whose turn it is.
    pub(super) fn next(&self) -> Option<u32> {
        if self.is_single_active {
            let member = self.members.get(self.active as usize)?;
            let can_take = !member.is_parked && member.consumer.has_credit();
            return can_take.then_some(self.active);
        }
        if self.in_rings == 0 {
            return None;
        }
        self.first_in_rings()
    }

    /// Whether the one whose turn it is acknowledges nothing.
    pub(super) fn is_no_ack_next(&self) -> bool {
        self.next().is_some_and(|slot| self.at(slot).1.no_ack)
    }

    /// It took a message: it goes behind the others, or out of the ring without more credit.
    pub(super) fn delivered(&mut self, slot: u32) {
        let Some(member) = self.members.get_mut(slot as usize) else {
            return;
        };
        if !member.consumer.no_ack {
            member.consumer.in_flight += 1;
        }
        if !member.is_in_ring {
            return;
        }
        if !member.consumer.has_credit() {
            self.leave_ring(slot);
        } else if member.next != NONE {
            self.leave_ring(slot);
            self.enter_ring(slot);
        }
    }

    /// One of its deliveries is settled.
    pub(super) fn settled(&mut self, handle: ConsumerHandle) {
        let Some(member) = self.members.get_mut(handle.slot as usize) else {
            return;
        };
        if member.generation != handle.generation {
            return;
        }
        member.consumer.in_flight = member.consumer.in_flight.saturating_sub(1);
        if !member.is_in_ring {
            self.enter_if_ready(handle.slot);
        }
    }

    /// It cannot take anything before [`Consumers::resume`].
    pub(super) fn park(&mut self, slot: u32) {
        if let Some(member) = self.members.get_mut(slot as usize) {
            member.is_parked = true;
        }
        self.leave_ring(slot);
    }

    pub(super) fn resume(&mut self, handle: ConsumerHandle) {
        let Some(member) = self.members.get_mut(handle.slot as usize) else {
            return;
        };
        if member.generation == handle.generation && member.is_parked {
            member.is_parked = false;
            self.enter_if_ready(handle.slot);
        }
    }

    /// A consumer's connection is elsewhere now. False if there is none of that name.
    pub(super) fn relocate(&mut self, handle: ConsumerHandle, shard: ShardId, slot: u32) -> bool {
        let found = self.members.get_mut(handle.slot as usize);
        let Some(member) = found.filter(|member| member.generation == handle.generation) else {
            return false;
        };
        (member.consumer.shard, member.consumer.connection_slot) = (shard, slot);
        true
    }

    /// The queue is on another shard now: nobody is parked, and those elsewhere have a limit.
    pub(super) fn settle_in(&mut self, own: ShardId, prefetch_max: u32) {
        let slots: Vec<u32> = self.members.iter().map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            let member = &mut self.members[slot as usize];
            member.is_parked = false;
            let consumer = &mut member.consumer;
            if consumer.shard != own {
                consumer.prefetch = match consumer.prefetch {
                    0 => prefetch_max,
                    limit => limit.min(prefetch_max),
                };
            }
            self.enter_if_ready(slot);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConsumerHandle, &Consumer, bool)> {
        self.members.iter().map(|(slot, member)| {
            let handle = ConsumerHandle { slot: slot as u32, generation: member.generation };
            let is_active = !self.is_single_active || self.active == handle.slot;
            (handle, &member.consumer, is_active)
        })
    }

    pub(super) fn into_list(self) -> Vec<Consumer> {
        self.members.into_iter().map(|(_, member)| member.consumer).collect()
    }

    /// Allocated bytes, this value included.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Consumers>()
            + slab_bytes(&self.members)
            + self.rings.capacity() * size_of::<Ring>()
    }

    fn ring_index(&self, priority: i32) -> Result<usize, usize> {
        self.rings.binary_search_by(|ring| priority.cmp(&ring.priority))
    }

    fn first_in_rings(&self) -> Option<u32> {
        let ring = self.rings.iter().find(|ring| ring.head != NONE)?;
        Some(ring.head)
    }

    fn enter_if_ready(&mut self, slot: u32) {
        let Some(member) = self.members.get(slot as usize) else {
            return;
        };
        // With a single active consumer everybody else waits in a ring all the time.
        if self.is_single_active || member.is_in_ring || member.is_parked {
            return;
        }
        if member.consumer.has_credit() {
            self.enter_ring(slot);
        }
    }

    fn enter_ring(&mut self, slot: u32) {
        let Ok(index) = self.ring_index(self.members[slot as usize].consumer.priority) else {
            return;
        };
        let ring = &mut self.rings[index];
        let last = ring.tail;
        ring.tail = slot;
        if last == NONE {
            ring.head = slot;
        } else {
            self.members[last as usize].next = slot;
        }
        let member = &mut self.members[slot as usize];
        member.previous = last;
        member.next = NONE;
        member.is_in_ring = true;
        self.in_rings += 1;
    }

    fn leave_ring(&mut self, slot: u32) {
        let Some(member) = self.members.get_mut(slot as usize) else {
            return;
        };
        if !member.is_in_ring {
            return;
        }
        member.is_in_ring = false;
        let (previous, next) = (member.previous, member.next);
        let priority = member.consumer.priority;
        self.in_rings -= 1;
        let Ok(index) = self.ring_index(priority) else {
            return;
        };
        if previous == NONE {
            self.rings[index].head = next;
        } else {
            self.members[previous as usize].next = next;
        }
        if next == NONE {
            self.rings[index].tail = previous;
        } else {
            self.members[next as usize].previous = previous;
        }
    }
}
