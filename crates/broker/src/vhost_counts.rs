//! What the connections of each virtual host did, those that are gone included.
//!
//! A connection counts for itself. The sums are brought up to date when somebody asks, with the connections that did
//! something since; idle ones are not looked at.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lepus_base::VhostId;

use crate::message_counts::MessageCounts;

/// Bytes of an entry of the table, about.
const SUM_BYTES: usize = size_of::<(VhostId, VhostSum)>() + 16;

/// What the connections of a virtual host did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostSum {
    /// Messages.
    pub counts: MessageCounts,
    /// Bytes that came.
    pub received: u64,
    /// Bytes that were sent.
    pub sent: u64,
}

/// What a connection did that no sum has yet.
#[derive(Debug)]
pub(crate) struct Unsummed {
    /// Messages.
    counts: MessageCounts,
    /// Bytes that came and were sent, as far as a sum has them.
    summed: (u64, u64),
    /// Its place in the list of those that did something; [`UNLISTED`] if it is not in it.
    place: u32,
}

/// Not in the list.
const UNLISTED: u32 = u32::MAX;

impl Default for Unsummed {
    fn default() -> Unsummed {
        Unsummed { counts: MessageCounts::default(), summed: (0, 0), place: UNLISTED }
    }
}

impl Unsummed {
    /// Where messages are counted.
    #[inline]
    pub(crate) fn counts(&mut self) -> &mut MessageCounts {
        &mut self.counts
    }
}

/// The sums, and whose counts they lack.
#[derive(Debug, Default)]
pub(crate) struct VhostCounts {
    sums: BTreeMap<VhostId, VhostSum>,
    /// Slots of connections that did something since they were summed up last.
    listed: Vec<u32>,
}

impl VhostCounts {
    /// A connection in this slot did something.
    #[inline]
    pub(crate) fn note(&mut self, slot: u32, connection: &mut Unsummed) {
        if connection.place == UNLISTED {
            connection.place = self.listed.len() as u32;
            self.listed.push(slot);
        }
    }

    /// A connection of this virtual host came.
    pub(crate) fn enter(&mut self, vhost: VhostId) {
        self.sums.entry(vhost).or_default();
    }

    /// The virtual host is gone.
    pub(crate) fn forget(&mut self, vhost: VhostId) {
        self.sums.remove(&vhost);
    }

    /// The slot of one that is to be summed up.
    pub(crate) fn next(&self) -> Option<u32> {
        self.listed.last().copied()
    }

    /// Sums up what a connection did whose socket had so many bytes in all, and takes it off the list. The slot of the
    /// one that has its place there now, with that place.
    pub(crate) fn sum_up(
        &mut self,
        vhost: VhostId,
        connection: &mut Unsummed,
        (received, sent): (u64, u64),
    ) -> Option<(u32, u32)> {
        if let Some(sum) = self.sums.get_mut(&vhost) {
            sum.counts.add(&core::mem::take(&mut connection.counts));
            let (had_received, had_sent) =
                core::mem::replace(&mut connection.summed, (received, sent));
            sum.received += received - had_received;
            sum.sent += sent - had_sent;
        }
        let place = core::mem::replace(&mut connection.place, UNLISTED);
        if place == UNLISTED {
            return None;
        }
        self.listed.swap_remove(place as usize);
        self.listed.get(place as usize).map(|&slot| (slot, place))
    }

    /// What the connections of a virtual host did; `None` where none ever came.
    pub(crate) fn sum(&self, vhost: VhostId) -> Option<VhostSum> {
        self.sums.get(&vhost).copied()
    }

    /// Allocated bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.sums.len() * SUM_BYTES + self.listed.capacity() * size_of::<u32>()
    }
}

impl Unsummed {
    /// Another connection left the list: this one is at its place.
    pub(crate) fn moved_to(&mut self, place: u32) {
        self.place = place;
    }
}
