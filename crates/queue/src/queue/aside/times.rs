//! Since when messages have been passed over, in a queue that drops what nobody wants.
//!
//! Messages of a level are passed over in their order, but for those that come back. A level has *marks*: what lies
//! below the end of a mark, and not below the one before, was passed over by the mark's time. Where a message is passed
//! over anew, or somebody goes who wanted one, the time of that message begins anew, and with it that of those behind.
//! Time counts only while the queue has consumers.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use lepus_base::Instant;

/// Marks for a queue's time: a message is dropped this part of it too late, at most.
const MARKS_PER_TIME: u32 = 64;
/// Marks are no closer together.
const GRAIN_MIN: Duration = Duration::from_millis(1);
/// Marks of a level: where nobody lets them go the oldest ones become one.
const MARKS_MAX: usize = if cfg!(test) { 6 } else { 2 * MARKS_PER_TIME as usize };

/// What a place in the list of levels takes, about, in bytes.
const OPEN_BYTES: usize = 40;

/// Numbers below an end, and above that of the mark before.
#[derive(Debug)]
struct Mark {
    end: u64,
    /// When the first of them was passed over.
    begun: Duration,
    /// When the last of them was.
    at: Duration,
}

#[derive(Debug, Default)]
struct Level {
    marks: VecDeque<Mark>,
    /// What was due below is gone, or wanted.
    from: u64,
    /// The time by which it is among those that can be due.
    listed: Option<Duration>,
}

impl Level {
    fn end(&self) -> u64 {
        self.marks.back().map_or(self.from, |mark| mark.end)
    }

    /// Those from a number on are passed over now, up to an end. Times closer than `grain` are taken for the later one.
    fn pass(&mut self, first: u64, end: u64, at: Duration, grain: Duration) {
        let end = end.max(self.end());
        self.from = self.from.min(first);
        let place = self.marks.partition_point(|mark| mark.end <= first);
        if let Some(mark) = self.marks.get(place) {
            let begin = place.checked_sub(1).map_or(self.from, |before| self.marks[before].end);
            let (begun, at) = (mark.begun, mark.at);
            self.marks.truncate(place);
            if begin < first {
                self.marks.push_back(Mark { end: first, begun, at });
            }
        }
        match self.marks.back_mut() {
            Some(last) if at.saturating_sub(last.begun) < grain => (last.end, last.at) = (end, at),
            _ => self.marks.push_back(Mark { end, begun: at, at }),
        }
        if self.marks.len() > MARKS_MAX {
            // What it had has the next one's time, which is later.
            self.marks.pop_front();
        }
    }
}

/// Messages of a level that have been passed over for too long, if they lie here and nobody wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::queue) struct Due {
    pub(super) level: u8,
    pub(super) from: u64,
    pub(super) end: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct PassedTimes {
    /// How long messages may be passed over.
    after: Duration,
    /// How long there were consumers, without the time since they came last.
    attended: Duration,
    /// When they came; `None` while there are none.
    since: Option<Instant>,
    levels: BTreeMap<u8, Level>,
    /// Levels whose first mark comes due, by its time: all but those where somebody has to look first.
    open: BTreeSet<(Duration, u8)>,
}

impl PassedTimes {
    /// Nothing was passed over. `now` is when consumers came, if there are some.
    pub(super) fn new(after: Duration, now: Option<Instant>) -> PassedTimes {
        PassedTimes {
            after,
            attended: Duration::ZERO,
            since: now,
            levels: BTreeMap::new(),
            open: BTreeSet::new(),
        }
    }

    /// Another time holds from now on.
    pub(super) fn set_after(&mut self, after: Duration) {
        self.after = after;
    }

    fn attended(&self, now: Instant) -> Duration {
        self.attended + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// There are consumers.
    pub(super) fn resume(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// There are none any more.
    pub(super) fn pause(&mut self, now: Instant) {
        self.attended = self.attended(now);
        self.since = None;
    }

    /// All selectors that count pass over what lies here from `first` on, up to `end`. `cursor` is the lowest place of the
    /// level that one of them has yet to look at.
    pub(super) fn pass(&mut self, level: u8, (first, end): (u64, u64), now: Instant, cursor: u64) {
        let grain = (self.after / MARKS_PER_TIME).max(GRAIN_MIN);
        let at = self.attended(now);
        self.levels.entry(level).or_default().pass(first, end, at, grain);
        self.moved(level, cursor);
    }

    /// The lowest place of a level that somebody has yet to look at is another one.
    pub(super) fn moved(&mut self, level: u8, cursor: u64) {
        let PassedTimes { levels, open, .. } = self;
        let number = level;
        let Some(level) = levels.get_mut(&number) else { return };
        let first = level.marks.front().filter(|mark| level.from < mark.end.min(cursor));
        let at = first.map(|mark| mark.at);
        if at != level.listed {
            if let Some(listed) = level.listed {
                open.remove(&(listed, number));
            }
            open.extend(at.map(|at| (at, number)));
            level.listed = at;
        }
    }

    /// What is due now: what cursors have yet to come to, by level, is not.
    pub(super) fn due(&self, now: Instant, cursor: impl Fn(u8) -> u64) -> Option<Due> {
        self.since?;
        let &(at, number) = self.open.first()?;
        if at + self.after > self.attended(now) {
            return None;
        }
        let level = self.levels.get(&number)?;
        let end = level.marks.front()?.end.min(cursor(number));
        Some(Due { level: number, from: level.from, end })
    }

    /// When something is due; [`Instant::NEVER`] if time does not tell.
    pub(super) fn next(&self) -> Instant {
        match (self.since, self.open.first()) {
            (Some(since), Some((at, _))) => {
                since + (*at + self.after).saturating_sub(self.attended)
            }
            _ => Instant::NEVER,
        }
    }

    /// What was due in a level below a number is gone, or wanted.
    pub(super) fn done(&mut self, level: u8, to: u64, cursor: u64) {
        let number = level;
        let Some(level) = self.levels.get_mut(&number) else { return };
        level.from = level.from.max(to);
        while level.marks.front().is_some_and(|mark| mark.end <= level.from) {
            level.marks.pop_front();
        }
        if level.marks.is_empty() {
            level.marks = VecDeque::new();
        }
        self.moved(number, cursor);
    }

    /// Levels of which something is known.
    pub(super) fn levels(&self) -> impl Iterator<Item = u8> {
        self.levels.keys().copied()
    }

    /// Nothing lies here any more.
    pub(super) fn clear(&mut self) {
        self.levels.clear();
        self.open.clear();
    }

    /// Allocated bytes, this value included.
    pub(super) fn memory_bytes(&self) -> usize {
        let marks = self
            .levels
            .values()
            .map(|level| size_of::<(u8, Level)>() + level.marks.capacity() * size_of::<Mark>());
        size_of::<PassedTimes>() + marks.sum::<usize>() + self.open.len() * OPEN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use lepus_base::Rng;

    const AFTER: Duration = Duration::from_millis(640);
    /// Nobody has anything to look at.
    const ALL: u64 = u64::MAX;

    fn at(millis: u64) -> Instant {
        Instant::default() + Duration::from_millis(millis)
    }

    #[test]
    fn what_was_passed_over_is_due_in_its_order_and_only_time_with_consumers_counts() {
        let mut times = PassedTimes::new(AFTER, Some(at(0)));
        times.pass(3, (5, 6), at(0), ALL);
        times.pass(3, (9, 10), at(100), ALL);
        let due = |times: &PassedTimes, now| times.due(at(now), |_| u64::MAX);
        assert_eq!((due(&times, 639), times.next()), (None, at(640)));
        assert_eq!(due(&times, 640), Some(Due { level: 3, from: 0, end: 6 }));
        assert_eq!(times.due(at(640), |_| 2), Some(Due { level: 3, from: 0, end: 2 }));
        times.moved(3, 0);
        assert_eq!((due(&times, 640), times.next()), (None, Instant::NEVER));
        times.moved(3, ALL);
        times.done(3, 6, ALL);
        assert_eq!((due(&times, 739), times.next()), (None, at(740)));
        times.pause(at(700));
        assert_eq!((due(&times, 10_000), times.next()), (None, Instant::NEVER));
        times.resume(at(10_000));
        assert_eq!((due(&times, 10_039), times.next()), (None, at(10_040)));
        assert_eq!(due(&times, 10_040), Some(Due { level: 3, from: 6, end: 10 }));
    }

    #[test]
    fn times_begin_anew_from_a_message_on_that_is_passed_over_anew() {
        let mut times = PassedTimes::new(AFTER, Some(at(0)));
        times.pass(0, (0, 100), at(0), ALL);
        times.pass(0, (100, 200), at(300), ALL);
        times.pass(0, (50, 51), at(400), ALL);
        let due = |times: &PassedTimes, now| times.due(at(now), |_| u64::MAX);
        assert_eq!(due(&times, 640), Some(Due { level: 0, from: 0, end: 50 }));
        times.done(0, 50, ALL);
        assert_eq!(due(&times, 1039), None);
        assert_eq!(due(&times, 1040), Some(Due { level: 0, from: 50, end: 200 }));
    }

    #[test]
    fn nothing_is_due_too_early_and_everything_a_little_later_at_the_most() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut times = PassedTimes::new(AFTER, Some(at(0)));
            // By number: when it was passed over.
            let mut passed: Vec<u64> = Vec::new();
            let mut now = 0;
            for _ in 0..200 {
                now += rng.below(40);
                let len = passed.len() as u64;
                if len > 0 && rng.chance(1, 8) {
                    let first = rng.below(len);
                    times.pass(0, (first, first + 1), at(now), ALL);
                    passed[first as usize] = now;
                } else {
                    times.pass(0, (len, len + 1), at(now), ALL);
                    passed.push(now);
                }
                if let Some(due) = times.due(at(now), |_| u64::MAX) {
                    assert_eq!(due.level, 0);
                    for number in due.from..due.end {
                        assert!(passed[number as usize] + 640 <= now, "seed {seed}: {number}");
                    }
                    times.done(0, due.end, ALL);
                }
            }
            now += 640 + 20;
            while let Some(due) = times.due(at(now), |_| u64::MAX) {
                times.done(0, due.end, ALL);
            }
            let level = &times.levels[&0];
            assert_eq!((level.from, level.marks.len()), (passed.len() as u64, 0), "seed {seed}");
        }
    }

    #[test]
    fn marks_are_bounded_where_nobody_lets_them_go() {
        let mut times = PassedTimes::new(AFTER, Some(at(0)));
        for number in 0..1000 {
            times.pass(0, (number, number + 1), at(number * 20), ALL);
        }
        assert_eq!(times.levels[&0].marks.len(), MARKS_MAX);
    }
}
