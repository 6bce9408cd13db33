//! Which logs somebody waits for, and how much room is asked of them.

use super::Journal;

/// Places of logs that are told apart.
const PLACES: usize = 64;

/// Logs of a shard, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogSet(u64);

impl LogSet {
    /// All of them.
    pub const ALL: LogSet = LogSet(u64::MAX);
    /// The shard's own.
    pub const OWN: LogSet = LogSet(1);

    /// Places from here on are one.
    const LAST: u16 = PLACES as u16 - 1;

    pub fn add(&mut self, place: u16) {
        self.0 |= 1 << place.min(LogSet::LAST);
    }

    pub(super) fn has(self, place: u16) -> bool {
        self.0 & 1 << place.min(LogSet::LAST) != 0
    }

    pub fn unite(&mut self, others: LogSet) {
        self.0 |= others.0;
    }

    /// Whether one of them is among the others.
    pub fn meets(self, others: LogSet) -> bool {
        self.0 & others.0 != 0
    }

    /// The only one of so many logs that there are, if it is one.
    pub fn only(self, logs: usize) -> Option<u16> {
        let place = match logs {
            1 => 0,
            _ if self.0.count_ones() == 1 => self.0.trailing_zeros() as u16,
            _ => return None,
        };
        (place < LogSet::LAST).then_some(place)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn places(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let place = left.trailing_zeros() as usize;
            left &= left.checked_sub(1)?;
            Some(place)
        })
    }
}

/// Room that somebody waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    /// The logs of the queues that are to get something: no other has to have room.
    pub logs: LogSet,
    /// Bytes for which each of them has to have room.
    pub bytes: usize,
}

/// What was asked for in vain: who needs as much of the same log, or more, need not ask, and no room is
/// made for that. It may be more than there ever is.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// The least that each log had no room for.
    least: [usize; PLACES],
}

impl Refusals {
    pub fn new() -> Refusals {
        Refusals { least: [usize::MAX; PLACES] }
    }

    /// Whether who needs this has to wait, as [`Journal::must_wait_for`] says; it is asked if that is not
    /// known.
    pub fn must_wait(&mut self, need: Need, journal: &mut Journal) -> bool {
        if self.cover(need) {
            return true;
        }
        let lacking = journal.lacking(need);
        self.add(lacking, need.bytes);
        !lacking.is_empty()
    }

    /// Whether one of its logs had no room for as much.
    fn cover(&self, need: Need) -> bool {
        need.logs.places().any(|place| need.bytes >= self.least[place])
    }

    /// These logs have no room for so many bytes.
    fn add(&mut self, logs: LogSet, bytes: usize) {
        for place in logs.places() {
            self.least[place] = self.least[place].min(bytes);
        }
    }
}

/// Whether a message may go into its queues on this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Room {
    /// A log that has to take it does, or none has to.
    Now,
    /// When there is room for it.
    Later(Need),
    /// No log ever has room for so many bytes.
    Never(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_log_refused_says_nothing_about_others() {
        let logs_of = |places: &[u16]| {
            let mut logs = LogSet::default();
            places.iter().for_each(|&place| logs.add(place));
            logs
        };
        let mut refusals = Refusals::new();
        refusals.add(logs_of(&[1, 70]), 100);
        let cover = |places: &[u16], bytes| refusals.cover(Need { logs: logs_of(places), bytes });
        assert!(cover(&[1], 100) && cover(&[0, 1], 200) && cover(&[70], 100));
        assert!(!cover(&[0], 200) && !cover(&[1], 99) && !cover(&[], 200));
    }
}
