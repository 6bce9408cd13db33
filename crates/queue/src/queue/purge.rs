//! All ready messages go at once.

use alloc::vec::Vec;
use core::cmp::Ordering;

use lepus_store::LaneSlot;

use super::Sink;
use super::messages::Messages;
use crate::log::QueueLog;

/// Ready messages that a purge takes one by one. More go as a whole, which costs a look at all that are
/// unacknowledged unless these are more than that, too.
const PURGED_SINGLY_MAX: u64 = 1024;
/// Ready messages in the log that are known, up to which a purge goes without that look.
const KNOWN_PURGED_MAX: usize = 4096;

impl Messages {
    /// Takes all ready messages out, those in memory to be released later. How many they were. `is_wanted` as in
    /// [`Messages::pop`].
    pub(super) fn purge(&mut self, is_wanted: bool, sink: &mut impl Sink) -> u64 {
        self.is_over_limit = false;
        if self.ready.is_empty() {
            return 0;
        }
        let (count, lanes) = (self.ready.len(), self.ready.lanes());
        if !lanes.is_empty() && count <= PURGED_SINGLY_MAX && self.ready.is_fetched() {
            // However many are unacknowledged: nobody needs to look at those.
            while let Some(entry) = self.pop(is_wanted, sink) {
                self.release(entry, sink);
            }
            return count;
        }
        if !lanes.is_empty() && !self.purge_apart(&lanes, sink) {
            // Both are many, and so are the lanes: each is gone through once.
            let unacked = self.unacked.logged();
            let mut letters = sink.letters();
            letters.sort_unstable();
            for &(priority, spilled, lane) in &lanes {
                let of_lane = part(&unacked, |found| (found.0, found.1).cmp(&(priority, spilled)));
                let mut kept: Vec<u64> = of_lane.iter().map(|found| found.2).collect();
                let of_lane = part(&letters, |found| found.0.cmp(&lane));
                kept.extend(of_lane.iter().map(|found| found.1));
                kept.sort_unstable();
                let Some(mut backlog) = sink.backlog() else {
                    invariant!("a queue with lanes has a log");
                };
                backlog.purge(lane, self.next_seq, &kept);
            }
        }
        if let Some(mut backlog) = sink.backlog().filter(|_| !lanes.is_empty()) {
            backlog.forget(self.ready.windowed());
        }
        self.empty()
    }

    /// Purges the lanes without a look at what is unacknowledged, where that is much: by settling the
    /// ready messages that are known one by one, and all that were not fetched together. False where too
    /// many are known, or a lane has lost some; then all lanes are to be purged as a whole.
    fn purge_apart(&self, lanes: &[(u8, bool, LaneSlot)], sink: &mut impl Sink) -> bool {
        if self.unacked.len() <= PURGED_SINGLY_MAX
            || self.ready.has_forgotten()
            || self.ready.known_logged().nth(KNOWN_PURGED_MAX).is_some()
        {
            return false;
        }
        let Some(mut backlog) = sink.backlog() else { invariant!("a queue with lanes has a log") };
        if !lanes.iter().all(|&(_, _, lane)| backlog.purge_unfetched(lane, self.next_seq)) {
            return false;
        }
        for entry in self.ready.known_logged() {
            let lane = self.lane_of(entry).filter(|_| entry.place.position().is_some());
            if let Some(lane) = lane {
                backlog.settle(lane, entry);
            }
        }
        true
    }
}

/// Those of a sorted list that are equal to what `compare` compares with.
fn part<T>(sorted: &[T], compare: impl Fn(&T) -> Ordering) -> &[T] {
    let start = sorted.partition_point(|found| compare(found).is_lt());
    let end = sorted.partition_point(|found| compare(found).is_le());
    &sorted[start..end]
}
