//! The consumers of a queue and whose turn it is.
//!
//! Consumers that can take a message wait in a ring per priority; the others are in no ring and
//! cost nothing. With a single active consumer the rings hold those that wait to become active.
//! The rings are linked through the members: no step takes time in the number of consumers, and
//! one in the number of priorities takes its logarithm.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_base::{ConnectionId, ShardId, Slab, slab_bytes};

use super::rings::{NONE, Rings};
use super::selectors::{ConsumerFilter, EVERYTHING, Number, SelectorBits, Selectors, bit, numbers};

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
    /// It only looks in, to take some messages elsewhere: what a queue does because it has consumers it does not do for
    /// this one.
    pub passing: bool,
    /// Argument `x-priority`; higher first.
    pub priority: i32,
    /// Which messages it wants; all without one.
    pub filter: Option<Arc<ConsumerFilter>>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscribeError {
    /// The queue does not take its filter: why, in words.
    Filter(Box<str>),
    /// There is an exclusive consumer, or an exclusive one wants to join others: 403
    /// `queue 'q' in vhost '/' in exclusive use`.
    InExclusiveUse,
}

#[derive(Debug)]
struct Member {
    consumer: Consumer,
    generation: u32,
    /// Its ring, in which it may be or not.
    ring: u32,
    next: u32,
    previous: u32,
    is_in_ring: bool,
    is_parked: bool,
    /// What it wants, where there are filters.
    selector: Number,
    /// Where there are filters: when it began to wait for its turn.
    since: u64,
}

/// What a queue has of its consumers' filters, if one of them has one.
#[derive(Debug)]
struct Filtered {
    selectors: Selectors,
    /// By selector but the one for everything.
    rings: Vec<Rings>,
    /// Counts turns.
    turns: u64,
}

impl Filtered {
    /// Allocated bytes, this value included.
    #[cold]
    fn memory_bytes(&self) -> usize {
        let rings = self.rings.iter().map(|rings| size_of::<Rings>() + rings.memory_bytes());
        size_of::<Filtered>() + rings.sum::<usize>() + self.selectors.memory_bytes()
    }
}

/// A consumer that came.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) handle: ConsumerHandle,
    /// Its selector, if it is new.
    pub(super) new_selector: Option<Number>,
    /// It does not only look in.
    pub(super) stays: bool,
}

/// The consumers of one queue; at least one.
#[derive(Debug)]
pub(super) struct Consumers {
    members: Slab<Member>,
    /// Of those without a filter.
    rings: Rings,
    filtered: Option<Box<Filtered>>,
    is_single_active: bool,
    /// Whether the only member is to stay the only one.
    is_exclusive: bool,
    /// Members that do not only look in.
    staying: u32,
    /// The single active consumer; [`NONE`] without that rule.
    active: u32,
}

/// The consumers of a queue that is gone, to be taken one after the other.
#[derive(Debug, Default)]
pub struct Orphans {
    members: Slab<Member>,
    /// The slot that is looked at next.
    next: usize,
}

impl Orphans {
    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Looks at the next slot, and takes the consumer that is there.
    pub fn step(&mut self) -> Option<Consumer> {
        let slot = self.next;
        self.next += 1;
        self.members.try_remove(slot).map(|member| member.consumer)
    }

    /// Allocated bytes of the list, without the value itself: they stay while it is used.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        slab_bytes(&self.members)
    }
}

impl Consumers {
    pub(super) fn new(is_single_active: bool) -> Consumers {
        Consumers {
            members: Slab::new(),
            rings: Rings::new(),
            filtered: None,
            is_single_active,
            is_exclusive: false,
            staying: 0,
            active: NONE,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.members.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether there are some of whom one does not only look in.
    pub(super) fn stay(consumers: &Option<Box<Consumers>>) -> bool {
        consumers.as_ref().is_some_and(|consumers| consumers.is_one_staying())
    }

    /// Whether one of them does not only look in.
    pub(super) fn is_one_staying(&self) -> bool {
        self.staying > 0
    }

    /// A consumer comes. `selects` says that consumers have selectors even without a filter.
    pub(super) fn join(
        &mut self,
        mut consumer: Consumer,
        generation: u32,
        selects: bool,
    ) -> Result<Joined, SubscribeError> {
        let is_taken = !self.members.is_empty() && (consumer.exclusive || self.is_exclusive);
        if is_taken || (consumer.exclusive && self.is_single_active) {
            return Err(SubscribeError::InExclusiveUse);
        }
        let (selector, is_new) = match selects || consumer.filter.is_some() || self.has_filters() {
            true => self.join_selector(&consumer).map_err(SubscribeError::Filter)?,
            false => (EVERYTHING, false),
        };
        // Equal ones are kept once.
        consumer.filter = self.selectors().and_then(|all| all.filter(selector)).cloned();
        self.is_exclusive = consumer.exclusive;
        let stays = !consumer.passing;
        self.staying += u32::from(stays);
        let ring = self.rings_of(selector).join(consumer.priority);
        let slot = self.members.insert(Member {
            consumer,
            generation,
            ring,
            next: NONE,
            previous: NONE,
            is_in_ring: false,
            is_parked: false,
            selector,
            since: 0,
        }) as u32;
        if self.is_single_active && self.active == NONE {
            self.active = slot;
        } else {
            self.enter_ring(slot);
        }
        let handle = ConsumerHandle { slot, generation };
        Ok(Joined { handle, new_selector: is_new.then_some(selector), stays })
    }

    /// The selector of a consumer that comes, and whether it is new.
    fn join_selector(&mut self, consumer: &Consumer) -> Result<(Number, bool), Box<str>> {
        let mut begun = None;
        let filtered = match &mut self.filtered {
            Some(filtered) => filtered,
            none => {
                let mut selectors = Selectors::new();
                if !self.members.is_empty() {
                    selectors.join(None, self.members.len() as u32)?;
                }
                let new = Box::new(Filtered { selectors, rings: Vec::new(), turns: 0 });
                begun = Some(());
                none.insert(new)
            }
        };
        let joined = filtered.selectors.join(consumer.filter.as_ref(), 1);
        match &joined {
            Ok((number, _)) => {
                let count = usize::from(*number).max(filtered.rings.len());
                filtered.rings.resize_with(count, Rings::new);
            }
            Err(_) if begun.is_some() => self.filtered = None,
            Err(_) => {}
        }
        joined
    }

    #[inline(always)]
    fn rings_of(&mut self, selector: Number) -> &mut Rings {
        match selector {
            EVERYTHING => &mut self.rings,
            _ => self.filtered_rings(selector),
        }
    }

    #[cold]
    fn filtered_rings(&mut self, selector: Number) -> &mut Rings {
        let Some(filtered) = &mut self.filtered else {
            invariant!("where somebody has a selector there are filters")
        };
        &mut filtered.rings[usize::from(selector) - 1]
    }

    /// Whether messages are given to consumers by their selectors.
    #[inline]
    pub(super) fn has_filters(&self) -> bool {
        self.filtered.is_some()
    }

    /// What the consumers want.
    pub(super) fn selectors(&self) -> Option<&Selectors> {
        self.filtered.as_ref().map(|filtered| &filtered.selectors)
    }

    /// Some selectors were found to be dear.
    pub(super) fn make_dear(&mut self, selectors: SelectorBits) {
        self.filtered.iter_mut().for_each(|filtered| filtered.selectors.make_dear(selectors));
    }

    /// Whether one of them has a filter.
    pub(super) fn are_any_filtered(&self) -> bool {
        self.selectors().is_some_and(Selectors::are_any_filtered)
    }

    /// The last filter is gone, and nothing is laid aside.
    pub(super) fn end_filters(&mut self) {
        self.filtered = None;
    }

    /// The selectors that have a say in what nobody wants: that of the single active consumer, or all.
    pub(super) fn counting_selectors(&self) -> SelectorBits {
        match self.is_single_active {
            false => SelectorBits::MAX,
            true => self.members.get(self.active as usize).map_or(0, |member| bit(member.selector)),
        }
    }

    /// The selectors of consumers that can take a message.
    pub(super) fn ready_selectors(&self) -> SelectorBits {
        let Some(filtered) = &self.filtered else { return 0 };
        if self.is_single_active {
            return self.active_ready().map_or(0, |slot| bit(self.members[slot as usize].selector));
        }
        numbers(filtered.selectors.present())
            .filter(|number| match usize::from(*number).checked_sub(1) {
                None => !self.rings.is_empty(),
                Some(place) => !filtered.rings[place].is_empty(),
            })
            .fold(0, |bits, number| bits | bit(number))
    }

    /// Whose turn it is among those of some selectors: the highest priority first, then who waits longest.
    pub(super) fn next_of(&self, selectors: SelectorBits) -> Option<u32> {
        let filtered = self.filtered.as_ref()?;
        if self.is_single_active {
            let slot = self.active_ready()?;
            let selector = self.members[slot as usize].selector;
            return (selectors & bit(selector) != 0).then_some(slot);
        }
        let firsts =
            numbers(selectors & filtered.selectors.present()).filter_map(
                |number| match usize::from(number).checked_sub(1) {
                    None => self.rings.first(),
                    Some(place) => filtered.rings[place].first(),
                },
            );
        firsts.min_by_key(|slot| {
            let member = &self.members[*slot as usize];
            (core::cmp::Reverse(member.consumer.priority), member.since)
        })
    }

    /// It waits for its turn behind the others of all selectors.
    #[cold]
    fn note_turn(&mut self, slot: u32) {
        if let Some(filtered) = &mut self.filtered {
            filtered.turns += 1;
            self.members[slot as usize].since = filtered.turns;
        }
    }

    /// A consumer leaves. With it goes its selector, if nobody else has that.
    pub(super) fn leave(&mut self, handle: ConsumerHandle) -> Option<(Consumer, Option<Number>)> {
        self.get(handle)?;
        self.leave_ring(handle.slot);
        let member = self.members.try_remove(handle.slot as usize)?;
        self.rings_of(member.selector).leave(member.ring);
        self.is_exclusive = false;
        self.staying -= u32::from(!member.consumer.passing);
        if self.active == handle.slot {
            let next = match &self.filtered {
                None => self.rings.first(),
                Some(_) => self.first_in_line(),
            };
            self.active = next.unwrap_or(NONE);
            if self.active != NONE {
                self.leave_ring(self.active);
            }
        }
        let is_last = match &mut self.filtered {
            Some(filtered) => filtered.selectors.leave(member.selector),
            None => false,
        };
        Some((member.consumer, is_last.then_some(member.selector)))
    }

    /// Who is to be the next single active consumer, where there are filters: by priority, then who came first.
    fn first_in_line(&self) -> Option<u32> {
        let filtered = self.filtered.as_ref()?;
        let all = core::iter::once(&self.rings).chain(&filtered.rings);
        all.filter_map(Rings::first).min_by_key(|slot| {
            let member = &self.members[*slot as usize];
            (core::cmp::Reverse(member.consumer.priority), member.generation)
        })
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

    /// What the consumer at a slot wants, where there are filters.
    pub(super) fn selector_of(&self, slot: u32) -> Number {
        self.members[slot as usize].selector
    }

    /// Whether some consumer can take a message.
    pub(super) fn is_some_ready(&self) -> bool {
        if self.has_filters() {
            return self.ready_selectors() != 0;
        }
        if self.is_single_active {
            return self.next().is_some();
        }
        !self.rings.is_empty()
    }

    /// Whose turn it is, whatever the message; nobody's where there are filters.
    #[inline]
    pub(super) fn next(&self) -> Option<u32> {
        if self.has_filters() {
            return None;
        }
        if self.is_single_active {
            return self.active_ready();
        }
        self.rings.first()
    }

    /// The single active consumer, if it can take a message.
    fn active_ready(&self) -> Option<u32> {
        let member = self.members.get(self.active as usize)?;
        let can_take = !member.is_parked && member.consumer.has_credit();
        can_take.then_some(self.active)
    }

    /// Whether the one whose turn it is acknowledges nothing.
    pub(super) fn is_no_ack_next(&self) -> bool {
        self.next().is_some_and(|slot| self.at(slot).1.no_ack)
    }

    /// It took a message: it goes behind the others, or out of the ring without more credit.
    #[inline]
    pub(super) fn delivered(&mut self, slot: u32) {
        let Some(member) = self.members.get_mut(slot as usize) else {
            invariant!("a consumer that was chosen is there")
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
        } else if self.has_filters() {
            self.note_turn(slot);
        }
    }

    /// One of its deliveries is settled.
    pub(super) fn settled(&mut self, handle: ConsumerHandle) {
        let Some(member) = self.members.get_mut(handle.slot as usize) else {
            return race!("the consumer was cancelled, or the message was fetched without one");
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
        self.members[slot as usize].is_parked = true;
        self.leave_ring(slot);
    }

    pub(super) fn resume(&mut self, handle: ConsumerHandle) {
        let Some(member) = self.members.get_mut(handle.slot as usize) else {
            return race!("the consumer was cancelled before it could go on");
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
            return race!("the consumer was cancelled while its connection moved", false);
        };
        (member.consumer.shard, member.consumer.connection_slot) = (shard, slot);
        true
    }

    /// The queue is on another shard now: nobody is parked, and those elsewhere have a limit.
    pub(super) fn arrive(&mut self, own: ShardId, prefetch_max: u32) {
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

    /// Those that take nothing before [`Consumers::resume`].
    pub(super) fn parked(&self) -> impl Iterator<Item = &Consumer> {
        let parked = self.members.iter().filter(|(_, member)| member.is_parked);
        parked.map(|(_, member)| &member.consumer)
    }

    pub(super) fn into_orphans(self) -> Orphans {
        Orphans { members: self.members, next: 0 }
    }

    /// Allocated bytes, this value included.
    pub(super) fn memory_bytes(&self) -> usize {
        let filtered = self.filtered.as_ref().map_or(0, |filtered| filtered.memory_bytes());
        size_of::<Consumers>() + slab_bytes(&self.members) + self.rings.memory_bytes() + filtered
    }

    fn enter_if_ready(&mut self, slot: u32) {
        let Some(member) = self.members.get(slot as usize) else {
            invariant!("a consumer that may get its turn is there")
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
        let (number, selector) = {
            let member = &self.members[slot as usize];
            (member.ring, member.selector)
        };
        let rings = self.rings_of(selector);
        let ring = rings.ring(number);
        let last = core::mem::replace(&mut ring.tail, slot);
        if last == NONE {
            ring.head = slot;
            rings.note(number);
        } else {
            self.members[last as usize].next = slot;
        }
        let member = &mut self.members[slot as usize];
        member.previous = last;
        member.next = NONE;
        member.is_in_ring = true;
        if self.has_filters() {
            self.note_turn(slot);
        }
    }

    fn leave_ring(&mut self, slot: u32) {
        let Some(member) = self.members.get_mut(slot as usize) else {
            invariant!("a consumer that leaves its ring is there")
        };
        if !member.is_in_ring {
            return;
        }
        member.is_in_ring = false;
        let (previous, next) = (member.previous, member.next);
        let (number, selector) = (member.ring, member.selector);
        let rings = self.rings_of(selector);
        let ring = rings.ring(number);
        if previous == NONE {
            ring.head = next;
        }
        if next == NONE {
            ring.tail = previous;
        }
        if previous == NONE && next == NONE {
            return rings.note(number);
        }
        if previous != NONE {
            self.members[previous as usize].next = next;
        }
        if next != NONE {
            self.members[next as usize].previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::{BTreeMap, VecDeque};

    use super::*;

    fn consumer(name: u32, priority: i32, prefetch: u32) -> Consumer {
        Consumer {
            key: ConsumerKey { connection: ConnectionId(1), channel: 1 << 16 | 1, consumer: name },
            shard: ShardId(0),
            connection_slot: 0,
            channel_number: 1,
            tag: "".into(),
            no_ack: false,
            exclusive: false,
            passing: false,
            priority,
            filter: None,
            prefetch,
            in_flight: 0,
        }
    }

    /// A consumer comes to a queue without filters.
    fn join(
        consumers: &mut Consumers,
        consumer: Consumer,
        generation: u32,
    ) -> Result<ConsumerHandle, SubscribeError> {
        consumers.join(consumer, generation, false).map(|joined| joined.handle)
    }

    /// Looks of the step that needs the most of them.
    fn most_looks(consumers: &mut Consumers, steps: impl Iterator<Item = Step>) -> usize {
        let mut most = 0;
        for step in steps {
            consumers.rings.looks = 0;
            step(consumers);
            most = most.max(consumers.rings.looks);
        }
        most
    }

    type Step = Box<dyn FnOnce(&mut Consumers)>;

    #[test]
    fn with_very_many_priorities_no_step_looks_at_all_of_them() {
        const COUNT: u32 = 10_000;
        for is_rising in [true, false] {
            let mut consumers = Consumers::new(false);
            let join = |name: u32| -> Step {
                let priority = if is_rising { name as i32 } else { -(name as i32) };
                Box::new(move |consumers| {
                    assert!(join(consumers, consumer(name, priority, 1), name).is_ok());
                })
            };
            let most = most_looks(&mut consumers, (0..COUNT).map(join));
            assert!(most <= 64, "{most} looks for one who joins");
            // All but the last one have their message.
            let most = most_looks(
                &mut consumers,
                (1..COUNT).map(|_| -> Step {
                    Box::new(|consumers| {
                        let slot = consumers.next().expect("some have credit");
                        consumers.delivered(slot);
                    })
                }),
            );
            assert!(most <= 64, "{most} looks for one delivery");
            let last = consumers.next().expect("the last one has credit");
            let name = consumers.at(last).1.key.consumer;
            assert_eq!(name, if is_rising { 0 } else { COUNT - 1 });
            let leave = |name: u32| -> Step {
                let handle = ConsumerHandle { slot: name, generation: name };
                Box::new(move |consumers| assert!(consumers.leave(handle).is_some()))
            };
            let most = most_looks(&mut consumers, (0..COUNT).map(leave));
            assert!(most <= 64, "{most} looks for one who leaves");
        }
    }

    #[test]
    fn an_exclusive_consumer_joins_only_where_nobody_is() {
        let mut consumers = Consumers::new(false);
        for name in 0..1_000 {
            assert!(join(&mut consumers, consumer(name, 0, 1), name).is_ok());
        }
        for name in 0..999 {
            assert!(consumers.leave(ConsumerHandle { slot: name, generation: name }).is_some());
        }
        let mut exclusive = consumer(1_000, 0, 1);
        exclusive.exclusive = true;
        assert!(join(&mut consumers, exclusive.clone(), 1_000).is_err());
        assert!(consumers.leave(ConsumerHandle { slot: 999, generation: 999 }).is_some());
        let handle = join(&mut consumers, exclusive, 1_001).expect("nobody is there");
        assert!(join(&mut consumers, consumer(1_002, 0, 1), 1_002).is_err());
        assert!(consumers.leave(handle).is_some());
        assert!(join(&mut consumers, consumer(1_003, 0, 1), 1_003).is_ok());
    }

    #[test]
    fn whose_turn_it_is_follows_from_priority_and_order() {
        let mut random = lepus_base::Rng::new(11);
        let mut consumers = Consumers::new(false);
        // What a reader expects: the names with credit by priority, in the order of their turns.
        let mut rings: BTreeMap<i32, VecDeque<u32>> = BTreeMap::new();
        let mut there: BTreeMap<u32, (ConsumerHandle, i32, bool)> = BTreeMap::new();
        for name in 0..20_000u32 {
            let chosen =
                there.keys().nth(random.below(there.len().max(1) as u64) as usize).copied();
            match random.below(5) {
                0 if there.len() < 60 => {
                    let priority = random.below(12) as i32 - 6;
                    let handle =
                        join(&mut consumers, consumer(name, priority, 1), name).expect("free");
                    there.insert(name, (handle, priority, true));
                    rings.entry(priority).or_default().push_back(name);
                }
                1 if let Some(gone) = chosen => {
                    let (handle, priority, _) = there.remove(&gone).expect("it is there");
                    assert!(consumers.leave(handle).is_some());
                    rings.entry(priority).or_default().retain(|&other| other != gone);
                }
                2 if let Some(settler) = chosen => {
                    let (handle, priority, is_ready) = there.get_mut(&settler).expect("there");
                    consumers.settled(*handle);
                    if !core::mem::replace(is_ready, true) {
                        rings.entry(*priority).or_default().push_back(settler);
                    }
                }
                _ => {
                    let next = rings.values_mut().rev().find(|ring| !ring.is_empty());
                    let expected = next.and_then(VecDeque::pop_front);
                    let slot = consumers.next();
                    assert_eq!(slot.map(|slot| consumers.at(slot).1.key.consumer), expected);
                    if let (Some(slot), Some(name)) = (slot, expected) {
                        consumers.delivered(slot);
                        there.get_mut(&name).expect("it is there").2 = false;
                    }
                }
            }
        }
    }
}
