//! What queues keep in their tables for their next messages is given back once they have been idle for a while.

use alloc::collections::VecDeque;
use core::time::Duration;

use lepus_base::{Now, QueueId, Slab};

use crate::edge::Edge;
use crate::home::Home;
use crate::timers::Timer;

/// A queue that is not used for so long gives spare room back, after twice as long at the latest.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);
/// How soon the next ones are looked at, while some are left.
const SLICE_INTERVAL: Duration = Duration::from_millis(1);
/// Queues looked at in one go.
const LOOKED_AT_ONCE: usize = 256;
/// Tables of fewer bytes are left alone.
const WORTH_BYTES: usize = 512;

/// Queues whose tables may have spare room.
#[derive(Debug, Default)]
pub(crate) struct IdleTables {
    queues: VecDeque<(u32, QueueId)>,
    /// How many of them, from the front, are still looked at before the next interval begins.
    left: usize,
}

impl IdleTables {
    /// Brings the shard's sum up to date with the tables of the queues that were used in this cycle.
    pub(crate) fn weigh(&mut self, now: Now, homes: &mut Slab<Home>, edge: &mut Edge) {
        let mut unweighed = core::mem::take(&mut edge.unweighed);
        for slot in unweighed.drain(..) {
            let Some(home) = homes.get_mut(slot as usize) else { continue };
            home.weigh(edge);
            if home.note_spare(WORTH_BYTES) {
                if self.queues.is_empty() {
                    edge.timers.arm(now.instant + IDLE_INTERVAL, Timer::Tables);
                }
                self.queues.push_back((slot, home.id));
            }
        }
        edge.unweighed = unweighed;
    }

    /// It is time to look, or to look on.
    pub(crate) fn look(&mut self, now: Now, homes: &mut Slab<Home>, edge: &mut Edge) {
        if self.left == 0 {
            self.left = self.queues.len();
        }
        let count = self.left.min(LOOKED_AT_ONCE);
        self.left -= count;
        for (slot, id) in self.queues.drain(..count).collect::<VecDeque<_>>() {
            let home = homes.get_mut(slot as usize).filter(|home| home.id == id);
            if home.is_some_and(|home| !home.give_spare(edge)) {
                self.queues.push_back((slot, id));
            }
        }
        if self.queues.is_empty() {
            self.queues = VecDeque::new();
            return;
        }
        let pause = if self.left > 0 { SLICE_INTERVAL } else { IDLE_INTERVAL };
        edge.timers.arm(now.instant + pause, Timer::Tables);
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.queues.capacity() * size_of::<(u32, QueueId)>()
    }
}
