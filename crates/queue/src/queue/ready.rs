//! The messages of a queue that wait for a consumer, in the order in which they leave.
//!
//! A level (one per priority in use) has sorted parts: the fresh ones in a deque, where new messages
//! are appended, those that came back to a place in the middle in a heap, and the windows of its
//! lanes in the log. The head is the oldest of their heads, so that a requeue of any size and order
//! costs O(log n) per message. A lane has more messages than its window: while its window is empty
//! the head is not known, and [`Ready::prepare`] fetches.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

use lepus_base::Instant;
use lepus_store::{Fetch, LaneSlot};

use super::aside::{Aside, Item, Key, Reread, Step};
use super::selectors::{Number, SelectorBits};
use crate::entry::Entry;
use crate::log::QueueLog;

/// Entries a drained level keeps room for.
const SPARE_ENTRIES_MAX: usize = 256;
/// Lists of more are not made shorter than their entries need for the time being.
const TRIMMED_ENTRIES_MAX: usize = 4 * SPARE_ENTRIES_MAX;
/// What a message in memory takes beside its payload: its entry, of which there is room for more, and what the message
/// begins with.
const BESIDE_PAYLOAD_BYTES: u64 = 96;
/// Entries in a window above which new messages are left to be fetched.
const WINDOW_ENTRIES_MAX: usize = 1024;

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

/// Announced messages below which more are announced, looked at every so many deliveries, and how
/// many at once.
const ANNOUNCED_MIN: u32 = 64;
const ANNOUNCE_INTERVAL: u32 = 16;
const ANNOUNCED_AT_ONCE: usize = 128;
/// Entries of a list that is still made of small memory: the last power of two below 1,032 bytes, up
/// to which glibc keeps freed memory with the thread that freed it.
const MIXED_ENTRIES_MAX: usize = 16;

/// What is known of a lane in the log.
#[derive(Debug)]
struct Window {
    slot: LaneSlot,
    /// Sorted by sequence number; behind them are those not fetched.
    entries: VecDeque<Entry>,
    unfetched: u64,
    /// Of the entries, those whose messages were announced to the log.
    announced: u32,
}

impl Window {
    fn new(slot: LaneSlot) -> Window {
        Window { slot, entries: VecDeque::new(), unfetched: 0, announced: 0 }
    }

    /// Whether more should be announced, now and then.
    fn runs_low(&self) -> bool {
        self.announced < ANNOUNCED_MIN
            && self.announced.is_multiple_of(ANNOUNCE_INTERVAL)
            && self.entries.len() > self.announced as usize
    }

    /// Announces what is delivered next, so that it is read before its turn comes.
    fn announce(&mut self, backlog: &mut impl QueueLog) {
        let first = self.announced as usize;
        let entries = self.entries.iter().skip(first).take(ANNOUNCED_AT_ONCE);
        self.announced += backlog.announce(entries) as u32;
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.unfetched == 0
    }

    /// Whether its first message is not known.
    fn is_unknown(&self) -> bool {
        self.entries.is_empty() && self.unfetched > 0
    }
}

/// The lanes of a level: messages that survive a restart, and those spilled to spare memory.
#[derive(Debug, Default)]
struct Lanes {
    kept: Option<Window>,
    spilled: Option<Window>,
}

impl Lanes {
    fn windows(&self) -> impl Iterator<Item = &Window> {
        [&self.kept, &self.spilled].into_iter().flatten()
    }

    fn window(&mut self, spilled: bool) -> &mut Option<Window> {
        if spilled { &mut self.spilled } else { &mut self.kept }
    }

    fn entries(&self) -> usize {
        self.windows().map(|window| window.entries.len()).sum()
    }
}

/// Where the head of a level is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Fresh,
    Returned,
    Kept,
    Spilled,
}

/// Where the head was that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Not in a window.
    Memory,
    /// In a window.
    Window,
    /// In a window of which more should be announced.
    LowWindow,
}

/// The ready messages of one priority.
#[derive(Debug, Default)]
struct Level {
    /// In memory, sorted by sequence number.
    fresh: VecDeque<Entry>,
    returned: BinaryHeap<Returned>,
    /// Once something was logged.
    lanes: Option<Box<Lanes>>,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.fresh.is_empty()
            && self.returned.is_empty()
            && self.lanes.as_ref().is_none_or(|lanes| lanes.windows().all(Window::is_empty))
    }

    /// Whether a lane has to be fetched before the head is known.
    fn is_unknown(&self) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.windows().any(Window::is_unknown))
    }

    /// Which part has the head; `None` for an empty level or one whose head is not known.
    fn first(&self) -> Option<Part> {
        let fresh = self.fresh.front().map_or(u64::MAX, |entry| entry.seq);
        let returned = self.returned.peek().map_or(u64::MAX, |top| top.0.seq);
        let (mut seq, mut part) =
            if returned < fresh { (returned, Part::Returned) } else { (fresh, Part::Fresh) };
        if let Some(lanes) = &self.lanes {
            for (window, of) in [(&lanes.kept, Part::Kept), (&lanes.spilled, Part::Spilled)] {
                let Some(window) = window else { continue };
                match window.entries.front() {
                    Some(entry) if entry.seq < seq => (seq, part) = (entry.seq, of),
                    None if window.unfetched > 0 => return None,
                    _ => {}
                }
            }
        }
        (seq < u64::MAX).then_some(part)
    }

    fn head(&self) -> Option<&Entry> {
        match self.first()? {
            Part::Fresh => self.fresh.front(),
            Part::Returned => self.returned.peek().map(|top| &top.0),
            Part::Kept => self.lanes.as_ref()?.kept.as_ref()?.entries.front(),
            Part::Spilled => self.lanes.as_ref()?.spilled.as_ref()?.entries.front(),
        }
    }

    /// Takes the head, and says whether and how it left a window.
    fn pop(&mut self) -> Option<(Entry, Left)> {
        match self.first()? {
            Part::Fresh => Some((pop_front(&mut self.fresh)?, Left::Memory)),
            Part::Returned => {
                let entry = self.returned.pop()?;
                let (len, capacity) = (self.returned.len(), self.returned.capacity());
                if capacity > SPARE_ENTRIES_MAX && len < capacity / 8 {
                    self.returned.shrink_to(len * 2);
                }
                Some((entry.0, Left::Memory))
            }
            part => {
                let window = self.lanes.as_mut()?.window(part == Part::Spilled).as_mut()?;
                let entry = pop_front(&mut window.entries)?;
                window.announced = window.announced.saturating_sub(1);
                let left = if window.runs_low() { Left::LowWindow } else { Left::Window };
                Some((entry, left))
            }
        }
    }

    /// Announces what is delivered next of all lanes.
    fn announce(&mut self, backlog: &mut impl QueueLog) {
        let Some(lanes) = &mut self.lanes else { return };
        for window in [&mut lanes.kept, &mut lanes.spilled].into_iter().flatten() {
            if window.runs_low() {
                window.announce(backlog);
            }
        }
    }

    /// Puts an entry back, and says how many entries came to a window.
    fn put_back(&mut self, entry: Entry) -> usize {
        let (list, is_whole, counts) = match (&mut self.lanes, entry.place.body()) {
            (Some(lanes), None) => match lanes.window(entry.place.is_spilled()) {
                // What is fetched is older than what is not.
                Some(window) => (&mut window.entries, window.unfetched == 0, 1),
                None => (&mut self.fresh, true, 0),
            },
            _ => (&mut self.fresh, true, 0),
        };
        if list.front().is_none_or(|first| entry.seq < first.seq) {
            list.push_front(entry);
        } else if is_whole && list.back().is_some_and(|last| last.seq < entry.seq) {
            list.push_back(entry);
        } else {
            self.returned.push(Returned(entry));
            return 0;
        }
        counts
    }

    fn window(&mut self, spilled: bool, slot: LaneSlot) -> &mut Window {
        let lanes = self.lanes.get_or_insert_default();
        lanes.window(spilled).get_or_insert_with(|| Window::new(slot))
    }

    fn lane(&self, spilled: bool) -> Option<LaneSlot> {
        let lanes = self.lanes.as_ref()?;
        let window = if spilled { &lanes.spilled } else { &lanes.kept };
        window.as_ref().map(|window| window.slot)
    }

    /// Leaves the lanes here, empty.
    fn split_lanes(&mut self) -> Option<Box<Lanes>> {
        let mut lanes = self.lanes.take()?;
        for window in [&mut lanes.kept, &mut lanes.spilled].into_iter().flatten() {
            *window = Window::new(window.slot);
        }
        Some(lanes)
    }

    fn memory_bytes(&self) -> usize {
        let mut entries = self.fresh.capacity() + self.returned.capacity();
        let mut bytes = 0;
        if let Some(lanes) = &self.lanes {
            bytes = size_of::<Lanes>();
            entries += lanes.windows().map(|window| window.entries.capacity()).sum::<usize>();
        }
        entries * size_of::<Entry>() + bytes
    }

    fn trim(&mut self) {
        trim(&mut self.fresh);
        if self.returned.capacity() <= TRIMMED_ENTRIES_MAX {
            self.returned.shrink_to_fit();
        }
        if let Some(lanes) = &mut self.lanes {
            for window in [&mut lanes.kept, &mut lanes.spilled].into_iter().flatten() {
                trim(&mut window.entries);
            }
        }
    }
}

/// Gives the spare room of a short list back: of a long one it is in proportion to what lies there, which may
/// have to be copied.
fn trim(list: &mut VecDeque<Entry>) {
    if list.capacity() <= TRIMMED_ENTRIES_MAX {
        list.shrink_to_fit();
    }
}

/// Appends an entry. A list that outgrows what allocators reuse whichever thread's memory it was is
/// made anew, so that a long one lies where this thread's memory is.
#[inline]
fn push_back(list: &mut VecDeque<Entry>, entry: Entry) {
    if list.len() == MIXED_ENTRIES_MAX && list.capacity() == MIXED_ENTRIES_MAX {
        let mut own = VecDeque::with_capacity(2 * MIXED_ENTRIES_MAX);
        own.append(list);
        *list = own;
    }
    list.push_back(entry);
}

fn pop_front(list: &mut VecDeque<Entry>) -> Option<Entry> {
    let entry = list.pop_front();
    let (len, capacity) = (list.len(), list.capacity());
    if capacity > SPARE_ENTRIES_MAX && len < capacity / 8 {
        list.shrink_to(len * 2);
    }
    entry
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
    /// What those in memory take there, about.
    taken_bytes: u64,
    /// Those that consumers' filters have looked at; they count above.
    aside: Option<Box<Aside>>,
}

impl Ready {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Sum of the payloads.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What those in memory take there, about.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn count(&mut self, entry: &Entry) {
        self.len += 1;
        self.bytes += u64::from(entry.bytes);
        if entry.place.body().is_some() {
            self.taken_bytes += u64::from(entry.bytes) + BESIDE_PAYLOAD_BYTES;
        }
    }

    fn discount(&mut self, entry: &Entry) {
        // What recovery counted may not be what there is.
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(entry.bytes.into());
        if entry.place.body().is_some() {
            self.taken_bytes -= u64::from(entry.bytes) + BESIDE_PAYLOAD_BYTES;
        }
        self.correct();
    }

    fn correct(&mut self) {
        if self.len == 0 {
            self.bytes = 0;
        }
    }

    /// The level of a priority, to put something there.
    fn used_level(&mut self, priority: u8) -> &mut Level {
        if priority == 0 {
            return &mut self.base;
        }
        let levels = self.levels.get_or_insert_default();
        levels.set_used(priority, true);
        levels.level(priority)
    }

    /// Appends a new entry in memory, whose sequence number is above all others.
    pub(super) fn push(&mut self, entry: Entry) {
        self.len += 1;
        self.bytes += u64::from(entry.bytes);
        self.taken_bytes += u64::from(entry.bytes) + BESIDE_PAYLOAD_BYTES;
        push_back(&mut self.used_level(entry.priority).fresh, entry);
    }

    /// Appends a new entry that was just logged in the lane.
    pub(super) fn push_logged(
        &mut self,
        entry: Entry,
        lane: LaneSlot,
        backlog: &mut impl QueueLog,
    ) {
        self.count(&entry);
        let level = self.used_level(entry.priority);
        let window = level.window(entry.place.is_spilled(), lane);
        if window.unfetched == 0
            && window.entries.len() < WINDOW_ENTRIES_MAX
            && backlog.has_window_room()
        {
            backlog.window(lane);
            push_back(&mut window.entries, entry);
        } else {
            window.unfetched += 1;
        }
    }

    /// A lane has messages from an earlier run.
    pub(super) fn recover(&mut self, priority: u8, lane: LaneSlot, count: u64, bytes: u64) {
        self.len += count;
        self.bytes += bytes;
        self.used_level(priority).window(false, lane).unfetched += count;
    }

    /// Puts an entry back to its place, and says how many came to a window.
    pub(super) fn put_back(&mut self, entry: Entry) -> usize {
        self.count(&entry);
        self.used_level(entry.priority).put_back(entry)
    }

    fn highest(&self) -> Option<u8> {
        self.levels.as_ref().and_then(|levels| levels.highest())
    }

    /// Whether the head is in the log and not known yet.
    pub(super) fn is_unknown(&self) -> bool {
        self.is_front_unknown() || self.unknown_aside().is_some()
    }

    /// The head, if it was laid aside and its entry has to be read again.
    #[inline]
    fn unknown_aside(&self) -> Option<(Key, bool)> {
        let (key, spilled) = self.aside.as_ref()?.unknown_head()?;
        let is_first = self.front().is_none_or(|front| key < Key::of(front));
        is_first.then_some((key, spilled))
    }

    /// The same of what was not laid aside.
    fn is_front_unknown(&self) -> bool {
        match self.highest() {
            None => self.base.is_unknown(),
            Some(priority) => self
                .levels
                .as_ref()
                .and_then(|levels| levels.levels.get(usize::from(priority) - 1))
                .is_some_and(Level::is_unknown),
        }
    }

    /// Makes the head known. False when an index page has to be read for that: the queue is woken.
    pub(super) fn prepare(&mut self, backlog: &mut impl QueueLog) -> bool {
        while self.is_front_unknown() {
            let priority = self.highest().unwrap_or(0);
            let (mut missing, mut surplus) = (0, 0);
            let level = self.used_level(priority);
            let Some(lanes) = &mut level.lanes else {
                invariant!("a level whose head is not known has lanes")
            };
            for spilled in [false, true] {
                let Some(window) = lanes.window(spilled).as_mut().filter(|w| w.is_unknown()) else {
                    continue;
                };
                let entries = &mut window.entries;
                let (found, result, is_whole) =
                    backlog.fetch((priority, spilled), window.slot, |entry| {
                        entries.push_back(entry);
                    });
                let found = found as u64;
                surplus += found.saturating_sub(window.unfetched);
                if result == Fetch::Pending {
                    window.unfetched = window.unfetched.saturating_sub(found).max(1);
                    if found == 0 {
                        return false;
                    }
                } else if is_whole {
                    // Less than was counted: a page of the index was damaged.
                    missing += window.unfetched.saturating_sub(found);
                    window.unfetched = 0;
                } else {
                    window.unfetched = window.unfetched.saturating_sub(found).max(1);
                }
            }
            let is_empty = level.is_empty();
            if let Some(levels) = self.levels.as_mut().filter(|_| priority > 0) {
                levels.set_used(priority, !is_empty);
            }
            self.len = self.len.saturating_sub(missing) + surplus;
            self.correct();
        }
        while let Some(head) = self.unknown_aside() {
            if !self.reread(head, backlog) {
                return false;
            }
        }
        true
    }

    /// Reads entries again that were laid aside and forgotten. False when an index page has to be read for that.
    pub(super) fn reread(
        &mut self,
        (from, spilled): (Key, bool),
        backlog: &mut impl QueueLog,
    ) -> bool {
        let lane = self.lane(from.priority(), spilled);
        let (Some(aside), Some(lane)) = (&mut self.aside, lane) else {
            invariant!("what was laid aside and forgotten is in a lane")
        };
        match aside.reread((from, spilled), lane, backlog) {
            Reread::Pending => return false,
            Reread::Done(missing) => self.len = self.len.saturating_sub(missing),
        }
        self.correct();
        true
    }

    /// Whether it never had anything in a log, nor priorities.
    pub(super) fn is_plain(&self) -> bool {
        self.base.lanes.is_none() && self.levels.is_none()
    }

    /// The entry that leaves next, if it is known.
    #[inline]
    pub(super) fn head(&self) -> Option<&Entry> {
        match &self.aside {
            None => self.front(),
            Some(aside) => self.head_beside(aside),
        }
    }

    #[inline(never)]
    fn head_beside<'a>(&'a self, aside: &'a Aside) -> Option<&'a Entry> {
        if self.is_unknown() {
            return None;
        }
        match (self.front(), aside.head()) {
            (Some(front), Some(head)) if Key::of(front) < Key::of(head) => Some(front),
            (front, head) => head.or(front),
        }
    }

    /// The first one that was not laid aside, if it is known.
    pub(super) fn front(&self) -> Option<&Entry> {
        if let Some(levels) = &self.levels
            && let Some(priority) = levels.highest()
        {
            return levels.levels.get(usize::from(priority) - 1)?.head();
        }
        self.base.head()
    }

    /// Announces what is delivered next.
    pub(super) fn announce(&mut self, backlog: &mut impl QueueLog) {
        let priority = self.highest().unwrap_or(0);
        self.used_level(priority).announce(backlog);
    }

    /// Takes the head, if it is known, and says whether and how it left a window.
    pub(super) fn pop(&mut self) -> Option<(Entry, Left)> {
        if self.aside.is_some() {
            let key = Key::of(self.head()?);
            if let Some(popped) = self.take_aside(key) {
                return Some(popped);
            }
        }
        let popped = self.pop_front()?;
        self.discount(&popped.0);
        Some(popped)
    }

    /// Takes the front, which still counts.
    fn pop_front(&mut self) -> Option<(Entry, Left)> {
        Some(match self.highest() {
            None => self.base.pop()?,
            Some(priority) => {
                let levels = self.levels.as_mut()?;
                let level = levels.level(priority);
                let popped = level.pop()?;
                if level.is_empty() {
                    levels.set_used(priority, false);
                }
                popped
            }
        })
    }

    /// Lays the front aside, which is known and which these selectors want. Where it left, and how many entries of
    /// messages in the log are laid aside more than before.
    pub(super) fn lay_aside(
        &mut self,
        selectors: SelectorBits,
        asked: SelectorBits,
        now: Instant,
    ) -> Option<(Left, isize)> {
        let (entry, left) = self.pop_front()?;
        let Some(aside) = &mut self.aside else { invariant!("there is where it is laid") };
        Some((left, aside.lay(entry, (selectors, asked), now)))
    }

    /// Takes the front, whose message is damaged.
    pub(super) fn take_front(&mut self) -> Option<(Entry, Left)> {
        let popped = self.pop_front()?;
        self.discount(&popped.0);
        Some(popped)
    }

    /// Takes a message that was laid aside, if it is there.
    pub(super) fn take_aside(&mut self, key: Key) -> Option<(Entry, Left)> {
        let entry = self.aside.as_mut()?.take(key)?;
        let left = if entry.place.body().is_some() { Left::Memory } else { Left::Window };
        self.discount(&entry);
        Some((entry, left))
    }

    /// What was laid aside.
    pub(super) fn aside(&self) -> Option<&Aside> {
        self.aside.as_deref()
    }

    /// The same, to change how far selectors are.
    pub(super) fn aside_mut(&mut self) -> Option<&mut Aside> {
        self.aside.as_deref_mut()
    }

    /// From now on messages are laid aside; these selectors are at the front, and some of them count for what
    /// nobody wants, which is dropped `after` a time while the queue is attended.
    #[cold]
    pub(super) fn begin_aside(
        &mut self,
        (selectors, counting): (SelectorBits, SelectorBits),
        (after, is_attended): (Option<Duration>, bool),
        now: Instant,
    ) {
        let mut aside = Aside::new(selectors, counting);
        aside.drop_after(after, now, is_attended);
        self.aside = Some(aside);
    }

    /// Nothing is laid aside any more, if nothing is there. Whether that is so.
    pub(super) fn end_aside(&mut self) -> bool {
        if self.aside.as_ref().is_some_and(|aside| aside.len() > 0) {
            return false;
        }
        self.aside = None;
        true
    }

    /// Whether one of these selectors can do something.
    #[inline(never)]
    pub(super) fn has_step(&self, selectors: SelectorBits) -> bool {
        match &self.aside {
            None => selectors != 0 && self.len > 0,
            Some(aside) => aside.has_step(selectors, self.len > aside.len()),
        }
    }

    /// What one of these selectors does next, of which some are dear, and may catch up or not.
    pub(super) fn next_step(
        &mut self,
        selectors: SelectorBits,
        dear: (SelectorBits, bool),
    ) -> Option<(Number, Step)> {
        let front = self.front().map(Key::of);
        self.aside.as_mut()?.next_step(selectors, dear, front)
    }

    /// Which of these selectors take a message that was laid aside next.
    pub(super) fn takers(&self, selectors: SelectorBits, key: Key) -> SelectorBits {
        let front = self.front().map(Key::of);
        self.aside.as_ref().map_or(0, |aside| aside.takers(selectors, key, front))
    }

    /// What a cursor comes to next.
    pub(super) fn item(&self, from: Key) -> Option<Item> {
        self.aside.as_ref()?.item(from)
    }

    /// As [`Ready::default`], for selectors that stay.
    pub(super) fn begin_anew(&mut self) {
        let mut aside = self.aside.take();
        if let Some(aside) = &mut aside {
            assert!(aside.len() == 0, "nothing waits in a queue that is still");
            let _ = aside.take_all();
        }
        *self = Ready { aside, ..Ready::default() };
    }

    /// The lane for messages of a priority, if there was one before.
    pub(super) fn lane(&self, priority: u8, spilled: bool) -> Option<LaneSlot> {
        match priority {
            0 => self.base.lane(spilled),
            priority => {
                let levels = self.levels.as_ref()?;
                levels.levels.get(usize::from(priority) - 1)?.lane(spilled)
            }
        }
    }

    /// Remembers a lane.
    pub(super) fn add_lane(&mut self, priority: u8, spilled: bool, slot: LaneSlot) {
        let is_used = match (&self.levels, priority) {
            (Some(levels), 1..) => {
                let word = levels.used[usize::from(priority / 64)];
                word & 1 << (priority % 64) != 0
            }
            _ => false,
        };
        self.used_level(priority).window(spilled, slot);
        if let Some(levels) = self.levels.as_mut().filter(|_| priority > 0) {
            levels.set_used(priority, is_used);
        }
    }

    /// All lanes with their priorities.
    pub(super) fn lanes(&self) -> Vec<(u8, bool, LaneSlot)> {
        let mut found = Vec::new();
        let levels = self.levels.iter().flat_map(|levels| &levels.levels);
        for (priority, level) in core::iter::once(&self.base).chain(levels).enumerate() {
            for spilled in [false, true] {
                found.extend(level.lane(spilled).map(|slot| (priority as u8, spilled, slot)));
            }
        }
        found
    }

    /// Whether all messages are known, those in the log as well.
    pub(super) fn is_fetched(&self) -> bool {
        let levels = self.levels.iter().flat_map(|levels| &levels.levels);
        let mut lanes =
            core::iter::once(&self.base).chain(levels).filter_map(|level| level.lanes.as_ref());
        lanes.all(|lanes| lanes.windows().all(|window| window.unfetched == 0))
            && !self.has_forgotten()
    }

    /// Whether messages in the log were laid aside and forgotten.
    pub(super) fn has_forgotten(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.left_len() > 0)
    }

    /// Entries in windows.
    pub(super) fn windowed(&self) -> usize {
        let levels = self.levels.iter().flat_map(|levels| &levels.levels);
        let levels = core::iter::once(&self.base).chain(levels);
        let lanes = levels.filter_map(|level| level.lanes.as_ref());
        let aside = self.aside.as_ref().map_or(0, |aside| aside.logged());
        lanes.map(|lanes| lanes.entries()).sum::<usize>() + aside
    }

    /// Those that are known and may be in the log: most are.
    pub(super) fn known_logged(&self) -> impl Iterator<Item = &Entry> {
        let levels = self.levels.iter().flat_map(|levels| &levels.levels);
        let levels = core::iter::once(&self.base).chain(levels).flat_map(|level| {
            let windows = level.lanes.iter().flat_map(|lanes| lanes.windows());
            let returned = level.returned.iter().map(|returned| &returned.0);
            windows.flat_map(|window| &window.entries).chain(returned)
        });
        levels.chain(self.aside.iter().flat_map(|aside| aside.entries()))
    }

    /// Takes everything out. What is in memory is in the result; of what is in the log nothing is
    /// left but the lanes.
    pub(super) fn take_all(&mut self) -> Ready {
        let mut gone = core::mem::take(self);
        self.aside = gone.aside.take();
        gone.aside = self.aside.as_mut().and_then(|aside| aside.take_all());
        self.base.lanes = gone.base.split_lanes();
        let mut len = gone.base.fresh.len() + gone.base.returned.len();
        len += gone.aside.as_ref().map_or(0, |aside| aside.len() as usize);
        if let Some(levels) = &mut gone.levels {
            for (index, level) in levels.levels.iter_mut().enumerate() {
                len += level.fresh.len() + level.returned.len();
                if let Some(lanes) = level.split_lanes() {
                    let kept = self.levels.get_or_insert_default();
                    kept.level(index as u8 + 1).lanes = Some(lanes);
                }
            }
            for priority in 1..=levels.levels.len() as u8 {
                let is_empty = levels.level(priority).is_empty();
                levels.set_used(priority, !is_empty);
            }
        }
        gone.len = len as u64;
        gone
    }

    /// Gives spare capacity back.
    pub(super) fn trim(&mut self) {
        if self.is_empty() && self.lanes().is_empty() && self.aside.is_none() {
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
        let aside = self.aside.as_ref().map_or(0, |aside| aside.memory_bytes());
        self.base.memory_bytes() + levels + aside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Place;
    use lepus_base::{Pool, Rng};

    fn entry(pool: &mut Pool, seq: u64, priority: u8) -> Entry {
        Entry {
            seq,
            deadline: Instant::NEVER,
            place: Place::pooled(pool.insert(&[])),
            bytes: 1,
            delivery_count: 0,
            priority,
            redelivered: false,
        }
    }

    fn drain(ready: &mut Ready) -> Vec<u64> {
        core::iter::from_fn(|| {
            let head = ready.head().map(|entry| entry.seq);
            let popped = ready.pop().map(|(entry, _)| entry.seq);
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
            let mut out: Vec<Entry> =
                core::iter::from_fn(|| Some(ready.pop()?.0)).take(40).collect();
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
            let old = core::mem::replace(&mut back.place, Place::pooled(body));
            old.body().into_iter().for_each(|old| pool.release(old));
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
