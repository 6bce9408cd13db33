//! Messages that an `x-delayed-message` exchange holds back, each shard those published on it.
//!
//! What is persistent lies in the log as a queue's messages do: in a lane that the exchange's id
//! names, with the moment when it is due in place of a deadline. In memory is only its place. It is
//! settled when every queue that gets it has it. What is transient, or of an exchange that goes with
//! the run, is in the pool.

mod release;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

use lepus_base::{Instant, Now, Pool, QueueId};
use lepus_store::LaneSlot;

use crate::awaited::Awaited;
use crate::journal::Need;
use crate::queue::{Entry, Place};
use crate::turns::Turns;

/// Messages of a deleted exchange that are released in one slice of work.
const DROPPED_AT_ONCE: usize = 512;
/// What a message takes in a log beside its payload, about.
const BESIDE_PAYLOAD_BYTES: usize = 512;
/// Memory of one that is held back beside its body, about, in bytes.
const HELD_BYTES: usize = 64;

/// A message that is held back.
#[derive(Debug)]
struct Held {
    /// Its number in its lane; 0 in the pool.
    seq: u64,
    place: Place,
    /// Size of its payload.
    bytes: u32,
    /// Its log's place in the journal; of no meaning in the pool.
    log: u16,
}

impl Held {
    fn is_long(&self) -> bool {
        self.bytes >= LONG_BYTES && self.place.position().is_some()
    }

    /// As an entry of a queue.
    fn entry(&self) -> Entry {
        Entry {
            seq: self.seq,
            deadline: Instant::NEVER,
            place: self.place,
            bytes: self.bytes,
            delivery_count: 0,
            priority: 0,
            redelivered: false,
        }
    }
}

/// Payloads from here on are long, in bytes.
const LONG_BYTES: u32 = 4096;

/// How many messages there are of each size.
#[derive(Debug, Default)]
struct Sizes(BTreeMap<u32, usize>);

impl Sizes {
    fn add(&mut self, bytes: u32, count: usize) {
        *self.0.entry(bytes).or_default() += count;
    }

    fn remove(&mut self, bytes: u32, count: usize) {
        let left = self.0.get_mut(&bytes).expect("what is long is counted");
        *left -= count;
        if *left == 0 {
            self.0.remove(&bytes);
        }
    }
}

/// A moment in nanoseconds, which may lie before the beginning of this run's clock: that is at
/// [`CLOCK_ZERO`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u64);

/// Where [`Instant`] zero is among [`Moment`]s: 146 years from the first.
const CLOCK_ZERO: u64 = 1 << 62;

impl Moment {
    /// The moment that the log has by the wall clock, in milliseconds since 1970; 0 for never.
    fn of_wall(now: Now, millis: u64) -> Moment {
        let nanos = |millis: u64| millis.saturating_mul(1_000_000);
        let Moment(here) = Moment::from(now.instant);
        Moment(match millis.checked_sub(now.wall_millis) {
            _ if millis == 0 => u64::MAX,
            Some(left) => here.saturating_add(nanos(left)),
            None => here.saturating_sub(nanos(now.wall_millis - millis)),
        })
    }

    /// By this run's clock; its beginning for all that was before.
    fn instant(self) -> Instant {
        match self.0 {
            u64::MAX => Instant::NEVER,
            nanos => Instant(nanos.saturating_sub(CLOCK_ZERO)),
        }
    }
}

impl From<Instant> for Moment {
    fn from(instant: Instant) -> Moment {
        Moment(CLOCK_ZERO.saturating_add(instant.0))
    }
}

/// Messages by the moment when they are due, and the order in which they came.
type ByMoment = BTreeMap<(Moment, u64), Held>;

/// What one exchange holds back.
#[derive(Debug, Default)]
struct Holding {
    held: ByMoment,
    /// Its lanes by log.
    lanes: BTreeMap<u16, LaneSlot>,
    /// Sizes of those that are long and in a log.
    long: Sizes,
    waits: Waits,
}

/// What the messages of one exchange wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    Nothing,
    /// The first one for room: the log in which it comes free then, and what it needs.
    Room(Option<u16>, Need),
    /// The first one until fewer are on their way to very many queues.
    Turn,
    /// The one before goes to very many queues.
    Pass,
    /// One before that was set aside has yet to come into its queues.
    SetAside,
}

/// What the first message waits for that is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wait {
    #[default]
    Nothing,
    /// It is read from the log.
    Read,
}

/// The delayed messages of one shard.
#[derive(Debug, Default)]
pub struct Delayed {
    holdings: BTreeMap<QueueId, Holding>,
    /// The first message of each holding that waits for nothing.
    firsts: BTreeSet<(Moment, u64, QueueId)>,
    /// How many came so far.
    count: u64,
    /// How many are held back.
    len: usize,
    /// Those of them that are in the pool.
    pooled: usize,
    /// Sizes of those that are long and in a log.
    long: Sizes,
    /// The first may be due: it is looked at in every slice of work.
    is_due: bool,
    wait: Wait,
    /// Exchanges whose first message waits for room, by the log in which it comes free then and what it
    /// needs. It keeps back only those of its own exchange.
    roomless: BTreeSet<(Option<u16>, Need, QueueId)>,
    /// For which queues they do.
    awaited: Awaited,
    /// Exchanges one of whose messages goes to very many queues, and those that wait for that. Who is called for
    /// its turn answers when it is known what becomes of its next message.
    turns: Turns,
    /// Lanes that recovery found and whose messages are still to be listed. None is released
    /// meanwhile: an earlier one may be among them.
    listing: VecDeque<(u16, LaneSlot, QueueId)>,
    /// The index of the first of these lanes is read.
    listing_waits: bool,
    /// What deleted exchanges held back.
    dropped: Vec<ByMoment>,
}

impl Delayed {
    /// When the first is due; [`Instant::NEVER`] where there is none, and while that is known.
    pub(crate) fn next_timeout(&self) -> Instant {
        let first = self.firsts.first().filter(|_| !self.is_due);
        first.map_or(Instant::NEVER, |(due, _, _)| due.instant())
    }

    /// Its time has come, perhaps.
    pub(crate) fn look(&mut self, now: Now) {
        self.is_due |= self.next_timeout() <= now.instant;
    }

    /// How many are held back.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many are held back in the pool.
    pub(crate) fn pooled(&self) -> usize {
        self.pooled
    }

    /// Bytes of the longest that is held back in a log, about: with what a message has beside its payload.
    pub(crate) fn longest_bytes(&self) -> usize {
        let longest = self.long.0.last_key_value();
        longest.map_or(0, |(bytes, _)| *bytes as usize + BESIDE_PAYLOAD_BYTES)
    }

    /// Memory of what is known of them, without their bodies, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let dropped: usize = self.dropped.iter().map(BTreeMap::len).sum();
        (self.len + dropped) * HELD_BYTES + self.awaited.memory_bytes() + self.turns.memory_bytes()
    }

    /// Whether something is held back under this id, or was.
    pub(crate) fn holds(&self, id: QueueId) -> bool {
        self.holdings.contains_key(&id)
    }

    /// Whether one that is due waits for nothing, once all are listed.
    fn can_go_on(&self) -> bool {
        (self.is_due || self.turns.can_call())
            && self.wait == Wait::Nothing
            && self.listing.is_empty()
    }

    /// Whether lanes can be listed.
    fn can_list(&self) -> bool {
        !self.listing.is_empty() && !self.listing_waits
    }

    /// Whether some that are due wait for room in a log.
    pub(crate) fn waits_for_room(&self) -> bool {
        !self.roomless.is_empty()
    }

    /// The first of all waits until its logs have room, or one of these queues is gone, for which it needs that;
    /// and those of its exchange wait behind it.
    fn let_first_wait(&mut self, need: Need, frees: Option<u16>, targets: Vec<QueueId>) {
        let Some((_, _, id)) = self.firsts.pop_first() else { return };
        self.change(id, Waits::Room(frees, need));
        self.awaited.wait(id, targets);
    }

    /// A queue is gone, deleted or on its way to another shard: those that need room for it find out anew what
    /// they need.
    pub(crate) fn target_left(&mut self, target: QueueId) {
        for id in self.awaited.waiters_for(target) {
            self.change(id, Waits::Nothing);
        }
    }

    /// Whether a message of this exchange may be on its way to very many queues.
    fn may_pass(&self, id: QueueId) -> bool {
        self.turns.is_called(id) || self.turns.has_free()
    }

    /// Lets those go on whose turn it is. One that does not use it, since it goes to few queues now, leaves
    /// it to the next.
    fn give_turns(&mut self) {
        while let Some(id) = self.turns.pop() {
            self.change(id, Waits::Nothing);
            self.turns.call(id);
        }
    }

    /// The first of all waits until one more may be on its way to very many queues.
    fn let_first_wait_for_turn(&mut self) {
        let Some((_, _, id)) = self.firsts.pop_first() else { return };
        self.change(id, Waits::Turn);
    }

    /// Lets those go on that wait for room in their logs, as far as these have that: those first that
    /// need least.
    pub(crate) fn give_room(&mut self, mut has_room: impl FnMut(Need, Option<u16>) -> bool) {
        let mut next = self.roomless.first().copied();
        while let Some((frees, need, id)) = next {
            let mut rest = (Bound::Excluded((frees, need, id)), Bound::Unbounded);
            if has_room(need, frees) {
                self.change(id, Waits::Nothing);
            } else {
                // Those that come free in the same log and go to the same ones need as much at least.
                let most = Need { bytes: usize::MAX, ..need };
                rest.0 = Bound::Excluded((frees, most, QueueId(u64::MAX)));
            }
            next = self.roomless.range(rest).next().copied();
        }
    }

    /// A message of an exchange goes to very many queues: the next ones from there wait until it is in
    /// all of them.
    fn pass(&mut self, id: QueueId) {
        self.turns.begin(id);
        let holding = self.holdings.get(&id).expect("whose message is passed on is known");
        if let Some((&(due, count), _)) = holding.held.first_key_value() {
            self.firsts.remove(&(due, count, id));
        }
        self.change(id, Waits::Pass);
    }

    /// A message on its way to very many queues, which takes so many bytes, can only wait: those of other exchanges
    /// need not do so for it.
    pub(crate) fn give_turn_away(&mut self, id: QueueId, bytes: usize, max: usize) {
        self.turns.give_away(id, bytes, max);
    }

    /// The one that went to very many queues is in all of them.
    pub(crate) fn passed(&mut self, id: QueueId) {
        self.turns.end(id);
        // The exchange may be gone since.
        if self.holdings.contains_key(&id) {
            self.change(id, Waits::Nothing);
        }
    }

    /// The first of all waits until one of its exchange that was set aside has come into its queues.
    fn let_first_wait_behind_set_aside(&mut self) {
        let Some((_, _, id)) = self.firsts.pop_first() else { return };
        self.change(id, Waits::SetAside);
    }

    /// What was set aside of an exchange has come into its queues: the next ones go on.
    pub(crate) fn set_aside_over(&mut self, id: QueueId) {
        if self.holdings.get(&id).is_some_and(|holding| holding.waits == Waits::SetAside) {
            self.change(id, Waits::Nothing);
        }
    }

    /// Has the messages of an exchange wait for this and nothing else.
    fn change(&mut self, id: QueueId, waits: Waits) {
        let holding = self.holdings.get_mut(&id).expect("whose messages wait is known");
        self.turns.answer(id);
        match core::mem::replace(&mut holding.waits, waits) {
            Waits::Room(frees, need) => {
                self.roomless.remove(&(frees, need, id));
                self.awaited.end(id);
            }
            Waits::Turn => self.turns.stop_waiting(id),
            Waits::Nothing | Waits::Pass | Waits::SetAside => {}
        }
        match waits {
            Waits::Nothing => {
                if let Some((&(due, count), _)) = holding.held.first_key_value() {
                    self.firsts.insert((due, count, id));
                }
                self.is_due = true;
            }
            Waits::Room(frees, need) => {
                self.roomless.insert((frees, need, id));
            }
            Waits::Turn => self.turns.wait(id),
            Waits::Pass | Waits::SetAside => {}
        }
    }

    /// Something was read that is waited for, perhaps.
    pub(crate) fn wake(&mut self) {
        self.listing_waits = false;
        if self.wait == Wait::Read {
            self.wait = Wait::Nothing;
        }
    }

    /// A lane has messages that are not listed.
    pub(crate) fn list(&mut self, log: u16, lane: LaneSlot, id: QueueId) {
        self.know_lane(log, lane, id);
        if !self.listing.contains(&(log, lane, id)) {
            self.listing.push_back((log, lane, id));
        }
    }

    /// Where an exchange's messages are in a log.
    fn know_lane(&mut self, log: u16, lane: LaneSlot, id: QueueId) {
        self.holdings.entry(id).or_default().lanes.insert(log, lane);
    }

    /// Holds a message back until `due`.
    fn insert(&mut self, due: Moment, id: QueueId, held: Held) {
        self.count += 1;
        self.len += 1;
        self.pooled += usize::from(held.place.body().is_some());
        let holding = self.holdings.entry(id).or_default();
        if held.is_long() {
            self.long.add(held.bytes, 1);
            holding.long.add(held.bytes, 1);
        }
        let first = holding.held.first_key_value().map(|(key, _)| *key);
        holding.held.insert((due, self.count), held);
        let waits = holding.waits != Waits::Nothing;
        if !waits && first.is_none_or(|(earliest, _)| due < earliest) {
            if let Some((due, count)) = first {
                self.firsts.remove(&(due, count, id));
            }
            self.firsts.insert((due, self.count, id));
        }
    }

    /// The first of all, if it is due.
    fn first_due(&self, now: Now) -> Option<(QueueId, &Held)> {
        let &(due, _, id) = self.firsts.first()?;
        if due > Moment::from(now.instant) {
            return None;
        }
        let first = self.holdings.get(&id)?.held.first_key_value();
        let first = first.filter(|((moment, _), _)| *moment == due);
        Some((id, first.expect("the first of each holding is known").1))
    }

    /// Takes the first of all. Its lane, if it is in a log.
    fn take_first(&mut self) -> Option<(QueueId, Held, Option<LaneSlot>)> {
        let (_, _, id) = self.firsts.pop_first()?;
        self.turns.answer(id);
        let holding = self.holdings.get_mut(&id).expect("the first of each holding is known");
        let (_, held) = holding.held.pop_first().expect("the first of each holding is known");
        if let Some((&(due, count), _)) = holding.held.first_key_value() {
            self.firsts.insert((due, count, id));
        }
        self.len -= 1;
        self.pooled -= usize::from(held.place.body().is_some());
        if held.is_long() {
            self.long.remove(held.bytes, 1);
            holding.long.remove(held.bytes, 1);
        }
        let lane = held.place.position().and_then(|_| holding.lanes.get(&held.log).copied());
        Some((id, held, lane))
    }

    /// An exchange is gone with what it held back.
    fn drop_holding(&mut self, id: QueueId) {
        self.listing.retain(|(_, _, other)| *other != id);
        // Whoever waited may have been one of them; the others may need less room, or none.
        self.listing_waits = false;
        self.wait = Wait::Nothing;
        self.turns.answer(id);
        let Some(holding) = self.holdings.remove(&id) else { return };
        if let Some((&(due, count), _)) = holding.held.first_key_value() {
            self.firsts.remove(&(due, count, id));
        }
        match holding.waits {
            Waits::Room(frees, need) => {
                self.roomless.remove(&(frees, need, id));
                self.awaited.end(id);
            }
            Waits::Turn => self.turns.stop_waiting(id),
            Waits::Nothing | Waits::Pass | Waits::SetAside => {}
        }
        self.len -= holding.held.len();
        for (bytes, count) in holding.long.0 {
            self.long.remove(bytes, count);
        }
        self.dropped.push(holding.held);
    }

    /// Gives back a slice of what deleted exchanges held.
    fn release_dropped(&mut self, pool: &mut Pool) {
        for _ in 0..DROPPED_AT_ONCE {
            let Some(last) = self.dropped.last_mut() else { return };
            match last.pop_first() {
                Some((_, held)) => {
                    if let Some(body) = held.place.body() {
                        self.pooled -= 1;
                        pool.release(body);
                    }
                }
                None => {
                    self.dropped.pop();
                }
            }
        }
    }
}
