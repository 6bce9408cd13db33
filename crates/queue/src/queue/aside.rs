//! Messages of a queue with filtered consumers that were looked at, and that nobody has yet.
//!
//! A queue with filters has *selectors*: the distinct filters of its consumers. What no selector with credit has looked
//! at is in order among the other ready messages; its head is the *front*. What was looked at and stayed is here. A
//! selector that wants it and had no credit remembers it among what it wants. A message in the log that nobody wants is
//! remembered by its number alone, and read again by a selector that comes later, or that could not remember it. Such a
//! selector has a *cursor*: what lies behind it, it has to look at yet.

mod seq_set;
mod times;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::Instant;
use lepus_store::{Fetch, LaneSlot};

use super::selector_list::Distance;
use super::selectors::{Number, SelectorBits, numbers};
use crate::entry::Entry;
use crate::log::QueueLog;
use seq_set::SeqSet;
pub(super) use times::Due;
use times::PassedTimes;

/// Messages that a selector remembers to want; of more it has a cursor.
const WANTED_MAX: usize = if cfg!(test) { 6 } else { 16 * 1024 };
/// The same where the next one lies in the log, whose entry is in memory only for that.
const LOGGED_MAX: usize = if cfg!(test) { 3 } else { 1024 };
/// Entries that are read again at once.
const FETCH_ENTRIES: usize = 128;
/// The same while windows are kept short.
const SHORT_FETCH_ENTRIES: usize = 16;
/// How far a selector is from the end is told exactly up to so many entries in memory, and in so many levels; where there
/// are more it is at least that.
const DISTANCE_ENTRIES: usize = 1000;
const DISTANCE_LEVELS: usize = 16;
/// What an entry here takes, about, in bytes.
const KNOWN_BYTES: usize = (size_of::<Entry>() + size_of::<Key>()) * 2;
/// Steps that dear selectors, or the others, may be ahead by, of some ten nanoseconds each: what nobody used is not saved up.
const AHEAD_MAX: i64 = 1 << 17;
/// What takes a place in what a selector wants, about, in bytes.
const WANTED_BYTES: usize = size_of::<Key>() + 8;

/// Where a message is in the order of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// 255 less its priority: what is lower leaves first.
    level: u8,
    seq: u64,
}

impl Key {
    pub(super) fn of(entry: &Entry) -> Key {
        Key { level: 255 - entry.priority, seq: entry.seq }
    }

    pub(super) fn priority(self) -> u8 {
        255 - self.level
    }

    /// The place behind it.
    pub(super) fn next(self) -> Key {
        Key { seq: self.seq + 1, ..self }
    }
}

/// How far a selector got.
#[derive(Debug, Default)]
struct Course {
    /// Messages here that it matches.
    wanted: BTreeSet<Key>,
    /// Cursors by level: what lies here from that number on was not looked at.
    cursors: BTreeMap<u8, u64>,
    /// It cannot go on before something is read.
    waits: bool,
    /// Messages that it was asked about behind its cursors, and those of the front before it came.
    looks: u64,
    looks_before: u64,
    /// Messages that its consumers got.
    given: u64,
}

impl Course {
    /// Where there may be messages that it matches, or has not looked at, by level.
    fn unfinished(&self) -> impl Iterator<Item = Key> {
        let cursors = self.cursors.iter().map(|(&level, &seq)| Key { level, seq });
        self.wanted.iter().copied().chain(cursors)
    }

    /// It matches a message, and remembers that. Where it remembers so many already, what lies behind the last one it
    /// remembers is looked at again.
    ///
    /// Gives the level where it has to look again.
    fn want(&mut self, key: Key, most: usize) -> Option<u8> {
        if self.wanted.len() < most {
            self.wanted.insert(key);
            return None;
        }
        let mut out = key;
        if let Some(last) = self.wanted.last().copied().filter(|last| key < *last) {
            self.wanted.remove(&last);
            self.wanted.insert(key);
            out = last;
        }
        let cursor = self.cursors.entry(out.level).or_insert(out.seq);
        *cursor = out.seq.min(*cursor);
        Some(out.level)
    }
}

/// What a selector does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It takes this message, which it matches.
    Take(Key),
    /// It looks at what lies here from this place on.
    CatchUp(Key),
    /// It looks at the front.
    Look,
}

/// What a cursor comes to next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A message whose entry is here.
    Known(Key),
    /// One whose entry has to be read again, spilled or not.
    Left(Key, bool),
}

/// The first message, and where it is.
#[derive(Clone, Copy, Debug)]
struct Head {
    key: Key,
    /// Whether its entry has to be read again, and if so, whether it is a spilled one.
    left: Option<bool>,
}

impl Item {
    fn key(self) -> Key {
        match self {
            Item::Known(key) | Item::Left(key, _) => key,
        }
    }
}

/// What became of reading entries again.
#[derive(Debug)]
#[must_use]
pub(super) enum Reread {
    /// Some are here now; so many that were remembered are no more.
    Done(u64),
    /// The queue is woken when they can be read.
    Pending,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Aside {
    known: BTreeMap<Key, Entry>,
    /// Of these, those in the log.
    logged: usize,
    /// Messages in the log whose entries were forgotten, spilled ones apart, by level.
    left: BTreeMap<u8, [SeqSet; 2]>,
    left_len: u64,
    /// The first message, which is asked for at each step.
    head: Option<Head>,
    /// By selector.
    courses: Vec<Option<Box<Course>>>,
    /// The selector that took a step last.
    turn: Number,
    /// Whether the next that catches up is the one that is farthest behind, and not the one in turn.
    is_hindmost_next: bool,
    /// Steps that the dear ones took more to catch up than all others took for whatever they did: they have a half of the time,
    /// however many they are.
    dear_ahead: i64,
    /// Messages of the front that selectors were asked about.
    looks: u64,
    /// Where messages that nobody wants are dropped after a time.
    times: Option<Box<PassedTimes>>,
    /// The selectors that have a say in that: with a single active consumer its own alone.
    counting: SelectorBits,
    /// Dropping them cannot go on before something is read.
    dropping_waits: bool,
}

impl Aside {
    /// Nothing is here, and these selectors look at the front.
    pub(super) fn new(selectors: SelectorBits, counting: SelectorBits) -> Box<Aside> {
        let mut aside = Box::new(Aside { counting, ..Aside::default() });
        numbers(selectors).for_each(|number| aside.join(number));
        aside
    }

    /// Messages that are here.
    pub(super) fn len(&self) -> u64 {
        self.known.len() as u64 + self.left_len
    }

    /// Entries of messages in the log that are here.
    pub(super) fn logged(&self) -> usize {
        self.logged
    }

    /// Messages that are remembered by their numbers alone.
    pub(super) fn left_len(&self) -> u64 {
        self.left_len
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.known.values()
    }

    fn course(&mut self, number: Number) -> Option<&mut Course> {
        self.courses.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// A selector appears: it begins at the lowest message.
    pub(super) fn join(&mut self, number: Number) {
        let place = usize::from(number);
        if self.courses.len() <= place {
            self.courses.resize_with(place + 1, || None);
        }
        let mut course = Box::<Course>::default();
        course.cursors.extend(self.levels().into_iter().map(|level| (level, 0)));
        course.looks_before = self.looks;
        self.courses[place] = Some(course);
        self.all_cursors_moved();
    }

    /// Levels that have something here.
    fn levels(&self) -> BTreeSet<u8> {
        let mut levels: BTreeSet<u8> = self.left.keys().copied().collect();
        let mut next = self.known.first_key_value();
        while let Some((key, _)) = next {
            levels.insert(key.level);
            let Some(level) = key.level.checked_add(1) else { break };
            next = self.known.range(Key { level, seq: 0 }..).next();
        }
        levels
    }

    /// The number behind the last message of a level.
    fn end(&self, level: u8) -> u64 {
        let all = Key { level, seq: 0 }..=Key { level, seq: u64::MAX };
        let known = self.known.range(all).next_back().map(|(key, _)| key.seq);
        let left = self.left.get(&level).into_iter().flatten().filter_map(SeqSet::last);
        left.chain(known).max().map_or(0, |last| last + 1)
    }

    /// Messages that a selector was asked about, and those that its consumers got.
    pub(super) fn counts(&self, number: Number) -> (u64, u64) {
        let course = self.courses.get(usize::from(number)).and_then(Option::as_deref);
        course.map_or((0, 0), |course| {
            (course.looks + (self.looks - course.looks_before), course.given)
        })
    }

    /// How far a selector is from the end of what is here.
    pub(super) fn distance(&self, number: Number) -> Distance {
        let course = self.courses.get(usize::from(number)).and_then(Option::as_deref);
        let Some(course) = course else { return Distance::NONE };
        let behind = course.cursors.iter().take(DISTANCE_LEVELS).map(|(&level, &seq)| {
            let known = self.known.range(Key { level, seq }..=Key { level, seq: u64::MAX });
            let left = self.left.get(&level).into_iter().flatten();
            known.take(DISTANCE_ENTRIES).count() as u64
                + left.map(|set| set.count_from(seq)).sum::<u64>()
        });
        Distance {
            behind: behind.sum(),
            waiting: course.wanted.len() as u64,
            is_through: self.len() == 0 || (course.cursors.is_empty() && course.wanted.is_empty()),
        }
    }

    /// A consumer of a selector got a message.
    pub(super) fn note_given(&mut self, number: Number) {
        if let Some(course) = self.course(number) {
            course.given += 1;
        }
    }

    /// Messages that nobody wants are due after this time from now on; never for `None`. `attended` says whether the
    /// queue has consumers.
    pub(super) fn drop_after(&mut self, after: Option<Duration>, now: Instant, attended: bool) {
        match (after, &mut self.times) {
            (None, times) => *times = None,
            (Some(after), Some(times)) => times.set_after(after),
            (Some(after), None) => {
                self.times = Some(Box::new(PassedTimes::new(after, attended.then_some(now))));
                self.begin_times(now);
            }
        }
    }

    /// Everything here is passed over from now on.
    fn begin_times(&mut self, now: Instant) {
        for level in self.levels() {
            self.pass(level, (0, self.end(level)), now);
        }
    }

    fn pass(&mut self, level: u8, range: (u64, u64), now: Instant) {
        let cursor = if self.times.is_some() { self.cursor(level) } else { 0 };
        if let Some(times) = &mut self.times {
            times.pass(level, range, now, cursor);
        }
    }

    /// A selector has more or less to look at in a level.
    fn cursor_moved(&mut self, level: u8) {
        if self.times.is_some() {
            let cursor = self.cursor(level);
            self.times.iter_mut().for_each(|times| times.moved(level, cursor));
        }
    }

    fn all_cursors_moved(&mut self) {
        let levels: Vec<u8> = self.times.iter().flat_map(|times| times.levels()).collect();
        levels.into_iter().for_each(|level| self.cursor_moved(level));
    }

    /// These selectors have a say in what nobody wants. Where they are other ones than before time begins anew: they may want
    /// what those passed over.
    pub(super) fn count_only(&mut self, counting: SelectorBits, now: Instant) {
        if counting != self.counting {
            self.counting = counting;
            self.begin_times(now);
        }
    }

    fn counting(&self) -> impl Iterator<Item = &Course> {
        let all = self.courses.iter().enumerate();
        all.filter(|(number, _)| self.counting & 1 << number != 0)
            .filter_map(|(_, course)| course.as_deref())
    }

    /// The queue has a consumer.
    pub(super) fn attend(&mut self, now: Instant) {
        if let Some(times) = &mut self.times {
            times.resume(now);
        }
    }

    /// The queue has no consumers any more.
    pub(super) fn abandon(&mut self, now: Instant) {
        if let Some(times) = &mut self.times {
            times.pause(now);
        }
    }

    /// The lowest number of a level that a selector has yet to look at.
    fn cursor(&self, level: u8) -> u64 {
        let cursors = self.counting().filter_map(|course| course.cursors.get(&level));
        cursors.min().copied().unwrap_or(u64::MAX)
    }

    /// Messages that have been passed over for too long, if there are some.
    pub(super) fn due(&self, now: Instant) -> Option<Due> {
        let times = self.times.as_ref().filter(|_| !self.dropping_waits)?;
        times.due(now, |level| self.cursor(level))
    }

    /// When the next ones will have been.
    pub(super) fn next_due(&self) -> Instant {
        let times = self.times.as_ref().filter(|_| !self.dropping_waits);
        times.map_or(Instant::NEVER, |times| times.next())
    }

    /// The first one that is here of those that are due. Without one they are done.
    pub(super) fn due_item(&mut self, due: Due) -> Option<Item> {
        let item = self.item(Key { level: due.level, seq: due.from });
        let item = item.filter(|item| item.key().seq < due.end);
        if item.is_none() {
            self.due_is_done(Key { level: due.level, seq: due.end });
        }
        item
    }

    /// What was due before this place is gone, or wanted.
    pub(super) fn due_is_done(&mut self, to: Key) {
        let cursor = self.cursor(to.level);
        if let Some(times) = &mut self.times {
            times.done(to.level, to.seq, cursor);
        }
    }

    /// Whether a selector that has a say wants a message.
    pub(super) fn is_kept(&self, key: Key) -> bool {
        self.counting().any(|course| course.wanted.contains(&key))
    }

    /// Whether a selector wants a message.
    fn is_wanted(&self, key: Key) -> bool {
        self.courses.iter().flatten().any(|course| course.wanted.contains(&key))
    }

    /// Dropping what is due has to wait for something to be read, or for room for dead letters.
    pub(super) fn let_dropping_wait(&mut self) {
        self.dropping_waits = true;
    }

    /// A selector that nobody uses any more goes. What it wanted, or had yet to look at, is passed over from now on.
    pub(super) fn leave(&mut self, number: Number, now: Instant) {
        let Some(course) = self.courses.get_mut(usize::from(number)).and_then(Option::take) else {
            return;
        };
        if self.times.is_some() {
            let mut firsts = BTreeMap::new();
            for key in course.unfinished() {
                let first = firsts.entry(key.level).or_insert(key.seq);
                *first = key.seq.min(*first);
            }
            for (level, first) in firsts {
                self.pass(level, (first, self.end(level)), now);
            }
            self.all_cursors_moved();
        }
    }

    /// Something was read.
    pub(super) fn wake(&mut self) {
        self.dropping_waits = false;
        self.courses.iter_mut().flatten().for_each(|course| course.waits = false);
    }

    /// A selector has to wait for something to be read.
    pub(super) fn wait(&mut self, number: Number) {
        if let Some(course) = self.course(number) {
            course.waits = true;
        }
    }

    /// Whether a selector waits for something to be read; and whether dropping what is due does, or waits for room for
    /// dead letters.
    pub(super) fn who_waits(&self) -> (bool, bool) {
        (self.courses.iter().flatten().any(|course| course.waits), self.dropping_waits)
    }

    /// What a selector does next; `front` is the place of the front, if something is there.
    fn step(&self, number: Number, front: Option<Key>) -> Option<Step> {
        let course = self.courses.get(usize::from(number))?.as_deref()?;
        let wanted = course.wanted.first().map(|key| (*key, Step::Take(*key)));
        let cursor = course.cursors.first_key_value().map(|(&level, &seq)| {
            let key = Key { level, seq };
            (key, Step::CatchUp(key))
        });
        let look = front.map(|key| (key, Step::Look));
        let steps = [cursor, wanted, look].into_iter().flatten();
        steps.min_by_key(|(key, _)| *key).map(|(_, step)| step)
    }

    /// Whether one of these selectors can do something; `has_front` says whether there is a front.
    pub(super) fn has_step(&self, selectors: SelectorBits, has_front: bool) -> bool {
        numbers(selectors).any(|number| {
            let course = self.courses.get(usize::from(number)).and_then(Option::as_deref);
            course.is_some_and(|course| {
                let has_own = !course.wanted.is_empty() || !course.cursors.is_empty();
                !course.waits && (has_own || has_front)
            })
        })
    }

    /// The next of these selectors that can do something, each in turn, and what. Those that are `dear` catch up, if they may at all,
    /// as long as they took less than the others, or nobody else can do anything.
    pub(super) fn next_step(
        &mut self,
        selectors: SelectorBits,
        (dear, dear_too): (SelectorBits, bool),
        front: Option<Key>,
    ) -> Option<(Number, Step)> {
        let held = if self.dear_ahead > 0 || !dear_too { selectors & dear } else { 0 };
        match self.next_of(selectors, held, front) {
            None if held != 0 && dear_too => self.next_of(selectors, 0, front),
            found => found,
        }
    }

    /// The same, where some are `held` from catching up.
    fn next_of(
        &mut self,
        selectors: SelectorBits,
        held: SelectorBits,
        front: Option<Key>,
    ) -> Option<(Number, Step)> {
        let is_free = |number: Number, step: &Step| {
            held & 1 << number == 0 || !matches!(step, Step::CatchUp(_))
        };
        let above = selectors & (u64::MAX << self.turn) & !(1 << self.turn);
        let found = numbers(above).chain(numbers(selectors & !above)).find_map(|number| {
            let step = self.free_step(number, front).filter(|step| is_free(number, step))?;
            Some((number, step))
        });
        if matches!(found, Some((_, Step::CatchUp(_)))) {
            // Every second time, which is nobody's turn: others go on, too, however many come one after the other.
            self.is_hindmost_next = !self.is_hindmost_next;
            if self.is_hindmost_next {
                return self.hindmost(selectors & !held, front).or(found);
            }
        }
        self.turn = found.map_or(self.turn, |(number, _)| number);
        found
    }

    /// What a selector does next that does not wait for anything.
    fn free_step(&self, number: Number, front: Option<Key>) -> Option<Step> {
        let course = self.courses.get(usize::from(number))?.as_deref()?;
        self.step(number, front).filter(|_| !course.waits)
    }

    /// So many steps were taken, by dear ones that catch up or by others.
    pub(super) fn charge(&mut self, by_dear: bool, steps: u64) {
        let steps = i64::try_from(steps).unwrap_or(i64::MAX).min(AHEAD_MAX);
        let ahead = if by_dear { self.dear_ahead + steps } else { self.dear_ahead - steps };
        self.dear_ahead = ahead.clamp(-AHEAD_MAX, AHEAD_MAX);
    }

    /// The selector that is farthest behind of those whose cursors go on. What is looked at is looked at for all whose cursors are
    /// there, so that those who came one after the other soon go together.
    fn hindmost(&self, selectors: SelectorBits, front: Option<Key>) -> Option<(Number, Step)> {
        let place = |number: Number| match self.free_step(number, front)? {
            Step::CatchUp(key) => Some((key, number)),
            Step::Look | Step::Take(_) => None,
        };
        let (key, number) = numbers(selectors).filter_map(place).min()?;
        Some((number, Step::CatchUp(key)))
    }

    /// The selectors whose cursors are at a place.
    pub(super) fn at_cursor(&self, from: Key) -> SelectorBits {
        let all = self.courses.iter().enumerate();
        let there = all.filter(|(_, course)| {
            let cursor = course.as_deref().and_then(|course| course.cursors.get(&from.level));
            cursor == Some(&from.seq)
        });
        there.fold(0, |bits, (number, _)| bits | 1 << number)
    }

    /// The selectors that have looked at all that lies here before a message of the front, or would not look at it where it is
    /// now.
    pub(super) fn at_front(&self, key: Key) -> SelectorBits {
        if self.len() == 0 {
            return SelectorBits::MAX;
        }
        let all = self.courses.iter().enumerate();
        let at_front = all.filter(|(_, course)| {
            let cursor = course.as_deref().and_then(|course| course.cursors.get(&key.level));
            cursor.is_none_or(|cursor| *cursor > key.seq)
        });
        at_front.fold(0, |bits, (number, _)| bits | 1 << number)
    }

    /// Which of these selectors take this message next.
    pub(super) fn takers(
        &self,
        selectors: SelectorBits,
        key: Key,
        front: Option<Key>,
    ) -> SelectorBits {
        let is_next = |number: &Number| self.step(*number, front) == Some(Step::Take(key));
        numbers(selectors).filter(is_next).fold(0, |bits, number| bits | 1 << number)
    }

    /// Looks for the first message, where that is not the one it was.
    fn find_head(&mut self) {
        let left = self.left.first_key_value();
        let left = left.and_then(|(&level, sets)| next_left(level, sets, 0));
        let left = left.map(|(key, spilled)| Head { key, left: Some(spilled) });
        let known = self.known.first_key_value().map(|(&key, _)| Head { key, left: None });
        self.head = [left, known].into_iter().flatten().min_by_key(|head| head.key);
    }

    /// The first message here, if its entry is.
    pub(super) fn head(&self) -> Option<&Entry> {
        let head = self.head?;
        if head.left.is_some() {
            return None;
        }
        self.known.get(&head.key)
    }

    /// The first message, if its entry has to be read again.
    pub(super) fn unknown_head(&self) -> Option<(Key, bool)> {
        let head = self.head?;
        head.left.map(|spilled| (head.key, spilled))
    }

    pub(super) fn get(&self, key: Key) -> Option<&Entry> {
        self.known.get(&key)
    }

    /// Takes a message out.
    pub(super) fn take(&mut self, key: Key) -> Option<Entry> {
        let entry = self.known.remove(&key)?;
        self.logged -= usize::from(entry.place.position().is_some());
        for course in self.courses.iter_mut().flatten() {
            course.wanted.remove(&key);
        }
        if self.head.is_some_and(|head| head.key == key) {
            self.find_head();
        }
        Some(entry)
    }

    /// Lays a message of the front aside; of the selectors that were asked some want it. How many entries of messages in the
    /// log are here more than before.
    pub(super) fn lay(
        &mut self,
        entry: Entry,
        (selectors, asked): (SelectorBits, SelectorBits),
        now: Instant,
    ) -> isize {
        let key = Key::of(&entry);
        let logged_before = self.logged as isize;
        if asked != SelectorBits::MAX {
            let all = self.courses.iter_mut().enumerate();
            let others = all.filter(|(number, _)| asked & 1 << number == 0);
            others.flat_map(|(_, course)| course).for_each(|course| course.looks_before += 1);
        }
        self.lay_entry(key, entry, selectors);
        if selectors & self.counting == 0 {
            self.pass(key.level, (key.seq, key.seq + 1), now);
        }
        self.logged as isize - logged_before
    }

    fn lay_entry(&mut self, key: Key, entry: Entry, selectors: SelectorBits) {
        self.looks += 1;
        let is_logged = entry.place.position().is_some();
        let most = if is_logged { LOGGED_MAX } else { WANTED_MAX };
        if self.len() == 0 {
            // Whoever had yet to look at what was here finds nothing of it.
            self.courses.iter_mut().flatten().for_each(|course| course.cursors.clear());
            self.all_cursors_moved();
        }
        for number in numbers(selectors) {
            let Some(course) = self.course(number) else { continue };
            if course.cursors.get(&key.level).is_some_and(|cursor| *cursor <= key.seq) {
                continue;
            }
            if let Some(level) = course.want(key, most) {
                self.cursor_moved(level);
            }
        }
        let displaced = match self.head {
            Some(head) if head.key < key => {
                if selectors == 0 && can_be_read_again(&entry) {
                    self.leave_number(key, entry.place.is_spilled());
                    return;
                }
                None
            }
            head => {
                self.head = Some(Head { key, left: None });
                head
            }
        };
        self.logged += usize::from(is_logged);
        self.known.insert(key, entry);
        self.forget(key);
        // That is looked at no more all the time.
        if let Some(head) = displaced {
            self.forget(head.key);
        }
    }

    /// A message in the log is remembered by its number alone.
    fn leave_number(&mut self, key: Key, spilled: bool) {
        let sets = self.left.entry(key.level).or_default();
        let is_new = sets[usize::from(spilled)].insert(key.seq);
        assert!(is_new, "a message is here once");
        self.left_len += 1;
    }

    /// Forgets the entry of a message in the log that nobody wants; its number stays. Not of the first one: its deadline
    /// is looked at all the time. Whether it was forgotten.
    fn forget(&mut self, key: Key) -> bool {
        let Some(entry) = self.known.get(&key) else { return false };
        if !can_be_read_again(entry)
            || self.head.is_some_and(|head| head.key == key)
            || self.is_wanted(key)
        {
            return false;
        }
        let spilled = entry.place.is_spilled();
        self.known.remove(&key);
        self.logged -= 1;
        self.leave_number(key, spilled);
        true
    }

    /// What a cursor comes to next.
    pub(super) fn item(&self, from: Key) -> Option<Item> {
        let end = Key { level: from.level, seq: u64::MAX };
        let known = self.known.range(from..=end).next().map(|(key, _)| *key);
        let left =
            self.left.get(&from.level).and_then(|sets| next_left(from.level, sets, from.seq));
        match (known, left) {
            (Some(known), Some((left, spilled))) if left < known => Some(Item::Left(left, spilled)),
            (Some(known), _) => Some(Item::Known(known)),
            (None, Some((left, spilled))) => Some(Item::Left(left, spilled)),
            (None, None) => None,
        }
    }

    /// Nothing lies behind a cursor: the selector is at the front of that level again.
    pub(super) fn catch_up(&mut self, number: Number, from: Key) {
        if let Some(course) = self.course(number) {
            course.cursors.remove(&from.level);
        }
        self.cursor_moved(from.level);
    }

    /// A message behind the cursors at `from` was looked at by those who were asked: these selectors match it. Whether only its
    /// number is kept.
    pub(super) fn looked(
        &mut self,
        (from, asked): (Key, SelectorBits),
        key: Key,
        selectors: SelectorBits,
    ) -> bool {
        let is_logged = self.known.get(&key).is_some_and(|entry| entry.place.position().is_some());
        let most = if is_logged { LOGGED_MAX } else { WANTED_MAX };
        let mut moved = Vec::new();
        for (number, course) in self.courses.iter_mut().enumerate() {
            let Some(course) = course.as_deref_mut() else { continue };
            if asked & 1 << number == 0 || course.cursors.get(&from.level) != Some(&from.seq) {
                continue;
            }
            course.cursors.insert(key.level, key.seq + 1);
            course.looks += 1;
            if selectors & 1 << number != 0 {
                moved.extend(course.want(key, most).filter(|level| *level != key.level));
            }
        }
        self.cursor_moved(key.level);
        moved.into_iter().for_each(|level| self.cursor_moved(level));
        self.forget(key)
    }

    /// Reads entries again from a number on, which is remembered, and announces their messages.
    pub(super) fn reread<L: QueueLog>(
        &mut self,
        (from, spilled): (Key, bool),
        lane: LaneSlot,
        backlog: &mut L,
    ) -> Reread {
        let count = if backlog.has_window_room() { FETCH_ENTRIES } else { SHORT_FETCH_ENTRIES };
        let Aside { known, logged, left, left_len, .. } = self;
        let Some(sets) = left.get_mut(&from.level) else {
            invariant!("what is read again is remembered")
        };
        let set = &mut sets[usize::from(spilled)];
        let mut kept = 0;
        let priority = 255 - from.level;
        let (found, result, end) =
            backlog.fetch_at((priority, spilled), lane, from.seq, count, |entry| {
                if set.remove(entry.seq) {
                    kept += 1;
                    known.insert(Key::of(&entry), entry);
                }
            });
        // The others have been delivered, or are here already.
        backlog.forget(found - kept);
        *logged += kept;
        if found == 0 && result == Fetch::Pending {
            return Reread::Pending;
        }
        // The log does not have them: they are damaged.
        let missing = set.remove_range(from.seq, end);
        *left_len -= kept as u64 + missing;
        if sets.iter().all(SeqSet::is_empty) {
            left.remove(&from.level);
        }
        self.find_head();
        let end = Key { level: from.level, seq: u64::MAX };
        backlog.announce(self.known.range(from..=end).map(|(_, entry)| entry).take(kept));
        Reread::Done(missing)
    }

    /// Takes everything out; selectors stay, at the front. The result has what has an entry.
    pub(super) fn take_all(&mut self) -> Option<Box<Aside>> {
        let mut gone = Box::new(core::mem::take(self));
        self.turn = gone.turn;
        self.courses = core::mem::take(&mut gone.courses);
        self.looks = gone.looks;
        self.times = gone.times.take();
        self.counting = gone.counting;
        for course in self.courses.iter_mut().flatten() {
            (course.wanted, course.cursors) = (BTreeSet::new(), BTreeMap::new());
            course.waits = false;
        }
        if let Some(times) = &mut self.times {
            times.clear();
        }
        gone.left = BTreeMap::new();
        gone.left_len = 0;
        gone.find_head();
        (!gone.known.is_empty()).then_some(gone)
    }

    /// Allocated bytes, this value included, about.
    #[cold]
    pub(super) fn memory_bytes(&self) -> usize {
        let courses = self.courses.iter().flatten().map(|course| {
            size_of::<Course>() + course.wanted.len() * WANTED_BYTES + course.cursors.len() * 16
        });
        let sets = self.left.values().flatten().map(SeqSet::memory_bytes);
        size_of::<Aside>()
            + self.known.len() * KNOWN_BYTES
            + self.courses.capacity() * size_of::<Option<Box<Course>>>()
            + courses.sum::<usize>()
            + self.left.len() * (size_of::<[SeqSet; 2]>() + 8)
            + sets.sum::<usize>()
            + self.times.as_ref().map_or(0, |times| times.memory_bytes())
    }
}

/// Whether the log gives the entry of a message as it is: of those that survive a restart it knows whether they were
/// delivered.
fn can_be_read_again(entry: &Entry) -> bool {
    let is_as_read = entry.delivery_count == 0 && !(entry.redelivered && entry.place.is_spilled());
    entry.place.position().is_some() && is_as_read
}

/// The first number at or above one that a level remembers, and whether it is a spilled one.
fn next_left(level: u8, sets: &[SeqSet; 2], from: u64) -> Option<(Key, bool)> {
    let [kept, spilled] = [&sets[0], &sets[1]].map(|set| set.next(from));
    match (kept, spilled) {
        (Some(kept), Some(spilled)) if spilled < kept => Some((Key { level, seq: spilled }, true)),
        (Some(kept), _) => Some((Key { level, seq: kept }, false)),
        (None, Some(spilled)) => Some((Key { level, seq: spilled }, true)),
        (None, None) => None,
    }
}
