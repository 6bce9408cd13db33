//! Messages that an `x-delayed-message` exchange holds back, each shard those published on it.
//!
//! What is persistent lies in the log as a queue's messages do: in a lane that the exchange's id
//! names, with the moment when it is due in place of a deadline. In memory is only its place. It is
//! settled when every queue that gets it has it. What is transient, or of an exchange that goes with
//! the run, is in the pool.

mod listing;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

use lepus_base::{Instant, Now, Pool, QueueId};
use lepus_store::disk::Operations;
use lepus_store::{AppendError, LaneSlot};

use crate::awaited::Awaited;
use crate::dead_letter::Source;
use crate::journal::{Found, Journal, LogSet, Need, Occupied};
use crate::message::MessageView;
use crate::owner::{Conditions, Owner};
use crate::queue::{Entry, Place, QueueLog, Ticket};
use crate::turns::Turns;

/// Messages of a deleted exchange that are released in one slice of work.
const DROPPED_AT_ONCE: usize = 512;
/// Memory of one that is held back beside its body, about, in bytes.
const HELD_BYTES: usize = 64;
/// What it takes more while it waits for room, about, in bytes.
const ROOMLESS_BYTES: usize = 3 * size_of::<(Wish, QueueId)>();
/// Messages of one exchange that wait for room at once. With so many the next ones of the exchange are not looked at.
/// A log that holds so many has room for the shortest of them: it keeps some for what is passed on.
const ROOMLESS_MAX: usize = 64;
/// Messages that are looked at in one go when there may be room for them.
const GOING_ON_MAX: usize = 256;
/// Messages that are read ahead when one that is due has to be read.
const READ_AHEAD: usize = 64;

/// How long a message is held back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later {
    /// Until then.
    pub due: Instant,
    /// Segments of the shard's own log that it takes, when it is held back or when it is passed on; one or none
    /// where it needs none, or that does not matter.
    pub segments: u16,
}

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
    /// Segments of its log that it takes, as far as is known.
    segments: u16,
}

impl Held {
    /// Whether it is long: it takes several segments of the shard's own log.
    fn is_long(&self) -> bool {
        self.segments > 1 && self.log == 0 && self.place.position().is_some()
    }

    /// What it takes in a log as long as it is not settled.
    fn occupied(&self) -> Occupied {
        let bytes = if self.place.position().is_some() { self.bytes as usize } else { 0 };
        Occupied { log: self.log, bytes }
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

/// How many messages are long, by the segments that each takes.
#[derive(Debug, Default)]
struct Long(BTreeMap<u16, usize>);

impl Long {
    fn add(&mut self, segments: u16) {
        *self.0.entry(segments).or_default() += 1;
    }

    fn remove(&mut self, segments: u16, count: usize) {
        let left = self.0.get_mut(&segments).expect("what is long is counted");
        *left = left.checked_sub(count).expect("what is long is counted");
        if *left == 0 {
            self.0.remove(&segments);
        }
    }

    /// Segments in which they lie at most. Each begins and ends somewhere in one.
    fn segments(&self) -> usize {
        self.0.iter().map(|(segments, count)| (usize::from(*segments) + 1) * count).sum()
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

/// What a message waits for that is due and has no room, and its place among those of its exchange. Those that
/// need least come first, and of those that need as much the one that was due first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wish {
    /// The log in which it comes free when it is passed on.
    frees: Option<u16>,
    need: Need,
    due: Moment,
    /// Its number among those that came.
    count: u64,
}

impl Wish {
    /// The logs that are to have room.
    pub(crate) fn logs(self) -> LogSet {
        self.need.logs
    }

    /// Before all of those that come free in the same log and go to the same ones.
    fn least(self) -> Wish {
        Wish { need: Need { bytes: 0, ..self.need }, due: Moment(0), count: 0, ..self }
    }

    /// Behind all of them.
    fn most(self) -> Wish {
        let need = Need { bytes: usize::MAX, ..self.need };
        Wish { need, due: Moment(u64::MAX), count: u64::MAX, ..self }
    }
}

/// What one exchange holds back.
#[derive(Debug, Default)]
struct Holding {
    /// All but those that wait for room, which keep back none of these that need less.
    held: ByMoment,
    /// Those that wait for room.
    roomless: BTreeMap<Wish, Held>,
    /// Its lanes by log.
    lanes: BTreeMap<u16, LaneSlot>,
    /// Those that are long, until they are settled.
    long: Long,
    waits: Waits,
}

/// What the messages of one exchange wait for that are not among those that wait for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    Nothing,
    /// As many as may wait for room do.
    Crowd,
    /// One waits for room in these logs, and they are not full: what it needs may be made at any moment, and until
    /// then the order is kept.
    Order(LogSet),
    /// The first one until fewer are on their way to very many queues.
    Turn,
    /// The one before goes to very many queues.
    Pass,
    /// One before that was set aside has yet to come into its queues.
    SetAside,
}

/// The first message that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// What stands for the exchange that holds it back.
    pub exchange: QueueId,
    /// Its log's place in the journal; of no meaning in the pool.
    pub log: u16,
    /// Size of its payload.
    pub bytes: u32,
    pub place: Place,
    /// What it takes in the log.
    pub occupied: Occupied,
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
    /// Those that are long, of all exchanges, until they are settled.
    long: Long,
    /// Of these, those that are on their way into their queues and lie in the log until they are there: the
    /// segments that each takes, by its exchange and its number in the lane.
    long_under_way: BTreeMap<(QueueId, u64), u16>,
    /// The first may be due: it is looked at in every slice of work.
    is_due: bool,
    wait: Wait,
    /// Exchanges in which nothing passes those that wait for room, by the logs of these.
    keeping: BTreeSet<(LogSet, QueueId)>,
    /// The messages that wait for room, and their exchanges.
    roomless: BTreeSet<(Wish, QueueId)>,
    /// The same by their numbers.
    wishes: BTreeMap<u64, (Wish, QueueId)>,
    /// For which queues they do, by their numbers.
    awaited: Awaited<u64>,
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

    /// Whether one more may be held back that takes so many segments of the shard's own log, when it is held back or
    /// when it is passed on. Those that take several would wait for the room of each other for ever if the shortest of
    /// them could not be passed on beside them when nothing else is left. It says nothing of the room that there is now.
    pub(crate) fn takes_long(&self, segments: u16, journal: &mut Journal) -> bool {
        if segments <= 1 {
            return true;
        }
        let least =
            self.long.0.first_key_value().map_or(segments, |(least, _)| segments.min(*least));
        let all = self.long.segments() + usize::from(segments) + 1;
        journal.could_pass_on_beside(least, all)
    }

    /// Memory of what is known of them, without their bodies, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let dropped: usize = self.dropped.iter().map(BTreeMap::len).sum();
        (self.len + dropped) * HELD_BYTES
            + self.roomless.len() * ROOMLESS_BYTES
            + self.keeping.len() * size_of::<(LogSet, QueueId)>()
            + self.awaited.memory_bytes()
            + self.turns.memory_bytes()
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

    /// Whether one that is due may be released now.
    pub(crate) fn can_release(&self, conditions: &Conditions<'_>) -> bool {
        self.can_go_on() && !conditions.is_stopping && conditions.may_pass_on()
    }

    /// What the first of all waits for, if it needs this.
    pub(crate) fn wish_of_first(&self, need: Need, frees: Option<u16>) -> Option<Wish> {
        self.firsts.first().map(|&(due, count, _)| Wish { frees, need, due, count })
    }

    /// Whether messages of this exchange wait for room.
    pub(crate) fn has_roomless(&self, id: QueueId) -> bool {
        self.holdings.get(&id).is_some_and(|holding| !holding.roomless.is_empty())
    }

    /// Whether another message of the exchange waits for room that is not to be passed by one with this wish:
    /// it needs less, or as much and was due before.
    pub(crate) fn is_behind(&self, id: QueueId, wish: Wish) -> bool {
        let Some(holding) = self.holdings.get(&id) else {
            return race!("the exchange was deleted before", false);
        };
        holding.roomless.range(wish.least()..wish).next().is_some()
    }

    /// The first of all waits until its logs have room, or one of these queues is gone, for which it needs that.
    /// Those of its exchange go on that need less, once the logs are full.
    pub(crate) fn let_first_wait(&mut self, wish: Wish, targets: Vec<QueueId>, is_full: bool) {
        let (id, held) = self.pop_first().expect("the first of all waits");
        let holding = self.holdings.get_mut(&id).expect("whose messages wait is known");
        let other = holding.roomless.insert(wish, held);
        assert!(other.is_none(), "each message waits for room once");
        let is_crowd = holding.roomless.len() >= ROOMLESS_MAX;
        self.roomless.insert((wish, id));
        self.wishes.insert(wish.count, (wish, id));
        self.awaited.wait(wish.count, targets);
        if is_crowd || !is_full {
            let logs = wish.need.logs;
            self.unlist_first(id);
            self.change(id, if is_crowd { Waits::Crowd } else { Waits::Order(logs) });
        }
    }

    /// Whether [`Delayed::let_pass`] would let an exchange go on.
    pub(crate) fn can_let_pass(&self, is_full: impl Fn(LogSet) -> bool) -> bool {
        self.first_to_let_pass(is_full).is_some()
    }

    /// The first exchange whose logs are full in which nothing passes those that wait for room.
    fn first_to_let_pass(&self, is_full: impl Fn(LogSet) -> bool) -> Option<QueueId> {
        let mut next = self.keeping.first();
        while let Some(&(logs, id)) = next {
            if is_full(logs) {
                return Some(id);
            }
            let rest = (Bound::Excluded((logs, QueueId(u64::MAX))), Bound::Unbounded);
            next = self.keeping.range(rest).next();
        }
        None
    }

    /// Has those that need less pass those of their exchange that wait for room in a log that `is_full`: there is
    /// none before something comes free, and what holds it may be behind them.
    pub(crate) fn let_pass(&mut self, is_full: impl Fn(LogSet) -> bool) {
        for _ in 0..GOING_ON_MAX {
            let Some(id) = self.first_to_let_pass(&is_full) else { return };
            self.change(id, Waits::Nothing);
        }
    }

    /// A message that waits for room is looked at anew: it is where it was among those of its exchange.
    fn look_anew(&mut self, wish: Wish, id: QueueId) {
        let is_known = self.forget_wish(wish, id);
        let holding = self.holdings.get_mut(&id).filter(|_| is_known);
        let holding = holding.expect("who waits for room is known");
        let held = holding.roomless.remove(&wish).expect("who waits for room is known");
        let first = holding.held.first_key_value().map(|(key, _)| *key);
        holding.held.insert((wish.due, wish.count), held);
        match holding.waits {
            Waits::Nothing if first.is_none_or(|first| (wish.due, wish.count) < first) => {
                if let Some((due, count)) = first {
                    self.firsts.remove(&(due, count, id));
                }
                self.firsts.insert((wish.due, wish.count, id));
            }
            Waits::Crowd | Waits::Order(_) => self.change(id, Waits::Nothing),
            Waits::Nothing | Waits::Turn | Waits::Pass | Waits::SetAside => {}
        }
        self.is_due = true;
    }

    /// A message waits for room no more. Whether it did.
    fn forget_wish(&mut self, wish: Wish, id: QueueId) -> bool {
        self.wishes.remove(&wish.count);
        self.awaited.end(wish.count);
        self.roomless.remove(&(wish, id))
    }

    /// The first message of an exchange is not looked at.
    fn unlist_first(&mut self, id: QueueId) {
        let first = self.holdings.get(&id).and_then(|holding| holding.held.first_key_value());
        if let Some((&(due, count), _)) = first {
            self.firsts.remove(&(due, count, id));
        }
    }

    /// A queue is gone, deleted or on its way to another shard: those that need room for it find out anew what
    /// they need.
    pub(crate) fn target_left(&mut self, target: QueueId) {
        for number in self.awaited.waiters_for(target) {
            let (wish, id) = self.wishes[&number];
            self.look_anew(wish, id);
        }
    }

    /// Whether a message of this exchange may be on its way to very many queues.
    pub(crate) fn may_pass(&self, id: QueueId) -> bool {
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
    pub(crate) fn let_first_wait_for_turn(&mut self) {
        let Some((_, _, id)) = self.firsts.pop_first() else {
            invariant!("the first of all has a place among the first")
        };
        self.change(id, Waits::Turn);
    }

    /// Lets those go on that wait for room in their logs, as far as these have that: those first that
    /// need least.
    pub(crate) fn give_room(&mut self, mut has_room: impl FnMut(Need, Option<u16>) -> bool) {
        let mut next = self.roomless.first().copied();
        let mut going_on = 0;
        while going_on < GOING_ON_MAX
            && let Some((wish, id)) = next
        {
            let mut from = (wish, id);
            if has_room(wish.need, wish.frees) {
                self.look_anew(wish, id);
                going_on += 1;
            } else {
                // Those that come free in the same log and go to the same ones need as much at least.
                from = (wish.most(), QueueId(u64::MAX));
            }
            let rest = (Bound::Excluded(from), Bound::Unbounded);
            next = self.roomless.range(rest).next().copied();
        }
    }

    /// A message of an exchange goes to very many queues: the next ones from there wait until it is in
    /// all of them.
    pub(crate) fn pass(&mut self, id: QueueId) {
        self.turns.begin(id);
        self.unlist_first(id);
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
    pub(crate) fn let_first_wait_behind_set_aside(&mut self) {
        let Some((_, _, id)) = self.firsts.pop_first() else {
            invariant!("the first of all has a place among the first")
        };
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
            Waits::Turn => self.turns.stop_waiting(id),
            Waits::Order(logs) => _ = self.keeping.remove(&(logs, id)),
            Waits::Nothing | Waits::Crowd | Waits::Pass | Waits::SetAside => {}
        }
        match waits {
            Waits::Nothing => {
                if let Some((&(due, count), _)) = holding.held.first_key_value() {
                    self.firsts.insert((due, count, id));
                }
                self.is_due = true;
            }
            Waits::Turn => self.turns.wait(id),
            Waits::Order(logs) => _ = self.keeping.insert((logs, id)),
            Waits::Crowd | Waits::Pass | Waits::SetAside => {}
        }
    }

    /// Holds a message of an exchange back. In the log of this shard it `survives`. The log that was given it, if it
    /// has to be durable.
    ///
    /// # Errors
    /// [`AppendError`] where it has to be logged and the log did not take it: it is gone.
    pub(crate) fn hold_back(
        &mut self,
        now: Now,
        (id, later): (QueueId, Later),
        view: &MessageView<'_>,
        survives: bool,
        (journal, pool): (&mut Journal, &mut Pool),
        disk: &mut Operations,
    ) -> Result<Option<u16>, AppendError> {
        let Later { due, segments } = later;
        let bytes = view.body.len() as u32;
        // New ones go to the shard's own log.
        let log = 0;
        let reader = (u32::MAX, id);
        if survives && let Some(mut backlog) = journal.backlog(now, log, reader, disk) {
            let lane = backlog.lane(0, false);
            let is_listed = backlog.is_fetched(lane);
            let ticket = Ticket { seq: backlog.next_seq(), deadline: due, priority: 0 };
            let at = backlog.append(view, lane, &ticket)?;
            if is_listed {
                backlog.pass(lane);
                let place = Place::logged(at, false);
                self.insert(due.into(), id, Held { seq: ticket.seq, place, bytes, log, segments });
                self.know_lane(log, lane, id);
            } else {
                self.list(log, lane, id);
            }
            return Ok(Some(log));
        }
        let place = Place::pooled(view.pack(pool));
        self.insert(due.into(), id, Held { seq: 0, place, bytes, log, segments: 0 });
        Ok(None)
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
            self.long.add(held.segments);
            holding.long.add(held.segments);
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

    /// The first of all, if one is due and its turn has come.
    pub(crate) fn next_due(&mut self, now: Now) -> Option<Due> {
        self.give_turns();
        let found = self.first_due(now).map(|(id, held)| Due {
            exchange: id,
            log: held.log,
            bytes: held.bytes,
            place: held.place,
            occupied: held.occupied(),
        });
        self.is_due &= found.is_some();
        found
    }

    /// Whether the first one, which is due, is in memory. If not it is read together with those that are due next and
    /// lie in the same log.
    pub(crate) fn look_up(
        &mut self,
        now: Now,
        due: &Due,
        journal: &mut Journal,
        disk: &mut Operations,
    ) -> Found {
        let Some(at) = due.place.position() else { return Found::Ready };
        let reader = (u32::MAX, due.exchange);
        let Some(mut backlog) = journal.backlog(now, due.log, reader, disk) else {
            invariant!("what is in a log is in one of this shard")
        };
        let found = backlog.lookup(at, due.bytes);
        if found == Found::Pending {
            self.wait = Wait::Read;
            if let Some(holding) = self.holdings.get(&due.exchange) {
                let all = holding.held.range(..=(now.instant.into(), u64::MAX));
                let next = all.map(|(_, held)| held).take(READ_AHEAD);
                let entries = next.filter(|held| held.log == due.log).map(Held::entry);
                backlog.announce(entries.collect::<Vec<_>>().iter());
            }
        }
        found
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

    /// Takes the first of all out of its line.
    fn pop_first(&mut self) -> Option<(QueueId, Held)> {
        let (_, _, id) = self.firsts.pop_first()?;
        self.turns.answer(id);
        let holding = self.holdings.get_mut(&id).expect("the first of each holding is known");
        let (_, held) = holding.held.pop_first().expect("the first of each holding is known");
        if let Some((&(due, count), _)) = holding.held.first_key_value() {
            self.firsts.insert((due, count, id));
        }
        Some((id, held))
    }

    /// Takes the first of all, which is not held back any more: where it is until its queues have it.
    pub(crate) fn take_first(&mut self) -> Option<Source> {
        let (id, held) = self.pop_first()?;
        self.len -= 1;
        self.pooled -= usize::from(held.place.body().is_some());
        if held.is_long() {
            let other = self.long_under_way.insert((id, held.seq), held.segments);
            assert!(other.is_none(), "each number of a lane is given once");
        }
        let lanes = self.holdings.get(&id).map(|holding| &holding.lanes);
        let lane = held.place.position().and_then(|_| lanes?.get(&held.log).copied());
        let entry = held.entry();
        Some(Source { queue: id, log: held.log, lane, entry, was_delivered: false })
    }

    /// A message of this log that was on its way lies there no more for its exchange, or is damaged and stays.
    pub(crate) fn settled(&mut self, id: QueueId, log: u16, seq: u64) {
        // With its exchange it was counted out.
        if log == 0
            && let Some(segments) = self.long_under_way.remove(&(id, seq))
        {
            let holding =
                self.holdings.get_mut(&id).expect("whose messages go on their way is known");
            holding.long.remove(segments, 1);
            self.long.remove(segments, 1);
        }
    }

    /// An exchange is gone with what it held back.
    pub(crate) fn drop_holding(&mut self, id: QueueId) {
        self.listing.retain(|(_, _, other)| *other != id);
        // Whoever waited may have been one of them; the others may need less room, or none.
        self.listing_waits = false;
        self.wait = Wait::Nothing;
        self.turns.answer(id);
        self.unlist_first(id);
        let Some(mut holding) = self.holdings.remove(&id) else { return };
        match holding.waits {
            Waits::Turn => self.turns.stop_waiting(id),
            Waits::Order(logs) => _ = self.keeping.remove(&(logs, id)),
            Waits::Nothing | Waits::Crowd | Waits::Pass | Waits::SetAside => {}
        }
        for (wish, held) in holding.roomless {
            assert!(self.forget_wish(wish, id), "who waits for room is known");
            holding.held.insert((wish.due, wish.count), held);
        }
        for (segments, count) in holding.long.0 {
            self.long.remove(segments, count);
        }
        self.long_under_way.retain(|(other, _), _| *other != id);
        self.len -= holding.held.len();
        self.dropped.push(holding.held);
    }

    /// Gives back a slice of what deleted exchanges held.
    pub(crate) fn release_dropped(&mut self, pool: &mut Pool) {
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

impl Owner for Delayed {
    fn has_work(&self, conditions: &Conditions<'_>) -> bool {
        let journal = conditions.journal;
        self.can_let_pass(|logs| journal.is_full(logs))
            || !self.dropped.is_empty()
            || self.can_list()
            || self.can_release(conditions)
    }

    fn waits_for_room(&self) -> bool {
        !self.roomless.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_base::Position;

    fn hold_back(delayed: &mut Delayed, exchange: u64, due_millis: u64, seq: u64) {
        let place = Place::logged(Position(seq), false);
        let held = Held { seq, place, bytes: 10, log: 0, segments: 1 };
        let due = Now::from_millis(due_millis).instant.into();
        delayed.insert(due, QueueId(exchange), held);
    }

    /// The number of the first that is due, which is taken.
    fn next(delayed: &mut Delayed) -> Option<u64> {
        delayed.first_due(Now::from_millis(1_000))?;
        delayed.take_first().map(|source| source.entry.seq)
    }

    /// The first that is due waits for room.
    fn wait(delayed: &mut Delayed, bytes: usize, is_full: bool) {
        let need = Need { logs: LogSet::OWN, bytes };
        let wish = delayed.wish_of_first(need, Some(0)).expect("one is due");
        delayed.let_first_wait(wish, Vec::new(), is_full);
    }

    #[test]
    fn nothing_passes_one_that_waits_for_room_while_its_log_can_get_more() {
        let mut delayed = Delayed::default();
        for exchange in [1, 2] {
            for seq in 0..3 {
                hold_back(&mut delayed, exchange, 10 * exchange + seq, 10 * exchange + seq);
            }
        }
        wait(&mut delayed, 100, false);
        wait(&mut delayed, 100, false);
        assert_eq!(next(&mut delayed), None);
        assert!(!delayed.can_let_pass(|_| false) && delayed.can_let_pass(|_| true));
        // There is room for one of them: its exchange goes on, in order.
        let mut is_first = true;
        delayed.give_room(|_, _| core::mem::take(&mut is_first));
        let gone: Vec<_> = core::iter::from_fn(|| next(&mut delayed)).collect();
        assert_eq!(gone, [10, 11, 12]);
        // The log of the other one is full.
        delayed.let_pass(|logs| logs == LogSet::OWN);
        assert!(!delayed.can_let_pass(|_| true));
        assert_eq!(next(&mut delayed), Some(21));
        delayed.give_room(|_, _| true);
        assert_eq!(next(&mut delayed), Some(20));
        // What goes with its exchange waits no more.
        wait(&mut delayed, 100, false);
        delayed.drop_holding(QueueId(2));
        assert!(delayed.keeping.is_empty() && !delayed.waits_for_room());
        assert_eq!(delayed.len(), 0);
    }
}
