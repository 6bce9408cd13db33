//! Deliveries that wait too long for their acknowledgement: their channel is closed.
//!
//! Nothing is done for it when messages move. Twice a minute all channels are looked at, some
//! connections per cycle.

use core::time::Duration;

use lepus_base::Now;

use crate::owner::{Conditions, Owner};
use crate::timers::{Timer, Timers};

/// Time between two looks at the same channel: a timeout is noticed later by twice as much at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Where the looks at deliveries are.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Whether the timer for the next is armed, or one is under way.
    goes: bool,
    /// The connection to go on with.
    next: Option<usize>,
}

impl Looks {
    /// Sees to it that connections are looked at before long.
    pub(crate) fn arm(&mut self, now: Now, timers: &mut Timers) {
        if !self.goes {
            self.goes = true;
            timers.arm(now.instant + LOOK_INTERVAL, Timer::Looks);
        }
    }

    /// It is time to look again.
    pub(crate) fn begin(&mut self) {
        self.next = Some(0);
    }

    /// The connection to go on with, while a look is under way.
    pub(crate) fn next(&self) -> Option<usize> {
        self.next
    }

    /// A slice ends: the look goes on there. `None` if it is over; another one has to be armed.
    pub(crate) fn end_slice(&mut self, next: Option<usize>) {
        self.next = next;
        self.goes = next.is_some();
    }
}

impl Owner for Looks {
    /// Whether a look is under way.
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        self.next.is_some()
    }
}
