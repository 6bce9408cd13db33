//! Delayed messages are found again after a restart.

use lepus_base::Now;
use lepus_store::Fetch;
use lepus_store::disk::Operations;

use super::{Delayed, Held, Moment};
use crate::journal::Journal;
use crate::queue::Place;

/// Entries of the log's index that are listed in one slice, about.
const LISTED_AT_ONCE: usize = 4096;
/// What a message takes in a log beside its payload, about.
const BESIDE_PAYLOAD_BYTES: usize = 512;

impl Delayed {
    /// Lists what recovery found in the logs, a slice of it.
    pub(crate) fn list_some(&mut self, now: Now, journal: &mut Journal, disk: &mut Operations) {
        let mut listed = 0;
        while self.can_list()
            && listed < LISTED_AT_ONCE
            && let Some(&(log, lane, id)) = self.listing.front()
        {
            let reader = (u32::MAX, id);
            let (mut is_over, mut waits) = (true, false);
            let segment = journal.payload_bytes_max();
            let segments_for = |bytes: u32| {
                let segments = (bytes as usize + BESIDE_PAYLOAD_BYTES).div_ceil(segment);
                u16::try_from(segments).unwrap_or(u16::MAX)
            };
            if let Some(mut backlog) = journal.backlog(now, log, reader, disk) {
                let (count, fetch, is_fetched) = backlog.list(lane, |entry| {
                    let held = Held {
                        seq: entry.seq,
                        place: Place::logged(entry.position, false),
                        bytes: entry.bytes,
                        log,
                        segments: segments_for(entry.bytes),
                    };
                    self.insert(Moment::of_wall(now, entry.deadline_millis), id, held);
                });
                listed += count;
                waits = count == 0 && fetch == Fetch::Pending;
                is_over = is_fetched || (count == 0 && !waits);
            }
            self.listing_waits = waits;
            if is_over {
                self.listing.pop_front();
            }
        }
    }
}
