//! The publisher confirms that one channel waits for.

use std::collections::VecDeque;

/// Messages published and not yet confirmed, at most a fixed number of them.
#[derive(Debug)]
pub(crate) struct ConfirmWindow {
    /// Delivery tag of the first entry of `slots`.
    first: u64,
    /// Times of publishing in tag order; [`SETTLED`] where the answer came before that of an older message.
    slots: VecDeque<u64>,
    outstanding: u64,
    outstanding_max: u64,
}

/// Stands for the time of a message that is answered.
const SETTLED: u64 = u64::MAX;

impl ConfirmWindow {
    /// A window of `outstanding_max` messages; the channel's first publish has tag 1.
    pub(crate) fn new(outstanding_max: u64) -> ConfirmWindow {
        ConfirmWindow { first: 1, slots: VecDeque::new(), outstanding: 0, outstanding_max }
    }

    /// How many more may be published now.
    pub(crate) fn room(&self) -> u64 {
        self.outstanding_max - self.outstanding
    }

    /// How many wait for their answer.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Time of publishing of the oldest message without an answer.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.slots.front().copied()
    }

    /// Calls `each` with the time of publishing of every message that waits for its answer.
    pub(crate) fn each_outstanding(&self, each: impl FnMut(u64)) {
        self.slots.iter().copied().filter(|time| *time != SETTLED).for_each(each);
    }

    /// Notes a publish at `time` (nanoseconds).
    pub(crate) fn published(&mut self, time: u64) {
        self.slots.push_back(time.min(SETTLED - 1));
        self.outstanding += 1;
    }

    /// Notes the answer for `tag`, and with `multiple` for all before it (tag 0: for all). Calls `each` with the time of
    /// publishing of every message that it settles, and returns their number. Unknown tags settle nothing.
    pub(crate) fn settle(&mut self, tag: u64, multiple: bool, mut each: impl FnMut(u64)) -> u64 {
        let mut settled = 0;
        if multiple {
            let upto = if tag == 0 {
                self.slots.len() as u64
            } else {
                tag.saturating_add(1).saturating_sub(self.first).min(self.slots.len() as u64)
            };
            for time in self.slots.drain(..upto as usize) {
                if time != SETTLED {
                    each(time);
                    settled += 1;
                }
            }
            self.first += upto;
        } else if let Some(slot) =
            tag.checked_sub(self.first).and_then(|at| self.slots.get_mut(usize::try_from(at).ok()?))
            && *slot != SETTLED
        {
            each(*slot);
            *slot = SETTLED;
            settled = 1;
        }
        while self.slots.front() == Some(&SETTLED) {
            self.slots.pop_front();
            self.first += 1;
        }
        self.outstanding -= settled;
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(published: u64) -> ConfirmWindow {
        let mut window = ConfirmWindow::new(10);
        for time in 1..=published {
            window.published(time * 100);
        }
        window
    }

    fn settle(window: &mut ConfirmWindow, tag: u64, multiple: bool) -> Vec<u64> {
        let mut times = Vec::new();
        let count = window.settle(tag, multiple, |time| times.push(time));
        assert_eq!(count as usize, times.len());
        times
    }

    #[test]
    fn a_multiple_settles_everything_up_to_its_tag() {
        let mut window = window(5);
        assert_eq!(window.room(), 5);
        assert_eq!(settle(&mut window, 3, true), [100, 200, 300]);
        assert_eq!(window.outstanding(), 2);
        assert_eq!(window.oldest(), Some(400));
        assert_eq!(settle(&mut window, 0, true), [400, 500]);
        assert_eq!(window.room(), 10);
        assert_eq!(window.oldest(), None);
    }

    #[test]
    fn single_answers_come_in_any_order_and_count_once() {
        let mut window = window(4);
        assert_eq!(settle(&mut window, 3, false), [300]);
        assert_eq!(settle(&mut window, 3, false), [] as [u64; 0]);
        assert_eq!(settle(&mut window, 1, false), [100]);
        assert_eq!(window.oldest(), Some(200));
        assert_eq!(settle(&mut window, 4, true), [200, 400]);
        assert_eq!(window.outstanding(), 0);
    }

    #[test]
    fn unknown_tags_settle_nothing() {
        let mut window = window(2);
        assert_eq!(settle(&mut window, 3, false), [] as [u64; 0]);
        assert_eq!(settle(&mut window, u64::MAX, false), [] as [u64; 0]);
        assert_eq!(settle(&mut window, 2, true), [100, 200]);
        assert_eq!(settle(&mut window, 1, true), [] as [u64; 0]);
        assert_eq!(settle(&mut window, 1, false), [] as [u64; 0]);
        assert_eq!(window.outstanding(), 0);
    }
}
