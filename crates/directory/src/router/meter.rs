//! What routing one message costs.

use core::cell::Cell;

/// Counts the steps of one message's routing and says when they are too many.
///
/// A step is about what it takes to copy one link, a few nanoseconds: what takes longer counts as
/// several.
#[derive(Debug)]
pub(crate) struct Meter {
    used: Cell<u32>,
    max: u32,
}

impl Meter {
    /// A meter that has counted `used` steps already.
    pub(crate) fn new(used: u32, max: u32) -> Meter {
        Meter { used: Cell::new(used), max }
    }

    /// Steps that were counted.
    pub(crate) fn used(&self) -> u32 {
        self.used.get()
    }

    /// Steps that the message may still take.
    pub(crate) fn left(&self) -> u32 {
        self.max.saturating_sub(self.used.get())
    }

    /// Counts steps. False when there are more than the message may take: then nothing of its
    /// routes is used.
    pub(crate) fn spend(&self, steps: u32) -> bool {
        let used = self.used.get().saturating_add(steps);
        self.used.set(used);
        !self.has_run_out()
    }

    /// Whether there are more steps than the message may take.
    pub(crate) fn has_run_out(&self) -> bool {
        self.used.get() > self.max
    }
}
