//! The one way to change a queue.

use alloc::sync::Arc;
use alloc::vec::Vec;

use lepus_base::Now;

use crate::code::Digest;
use crate::command::Command;
use crate::queue::{Queue, Recorder, Sink};
use crate::record;
use crate::settings::QueueSettings;

impl Queue {
    /// Carries a command out. What it causes goes into the sink, and what follows from it for its giver is the result.
    ///
    /// The same commands at the same times, with the same answers of the sink, make the same queue of an empty one.
    #[inline(always)]
    pub fn apply<C: Command>(&mut self, now: Now, command: C, sink: &mut impl Sink) -> C::Effects {
        #[cfg(any(debug_assertions, feature = "record"))]
        if self.tap.open().is_some() {
            return crate::recording::recorded(self, now, command, sink);
        }
        command.carry_out(self, now, sink)
    }

    /// Has whatever happens to it from now on written down; to be called when it was just made, with the settings it was
    /// made with. Does nothing in builds that cannot record: [`crate::CAN_RECORD`].
    pub fn record_to(&mut self, now: Now, settings: &QueueSettings, recorder: &Arc<dyn Recorder>) {
        let mut line = Vec::new();
        record::put_beginning(now, settings, self, &mut line);
        self.tap.begin(recorder, &line);
    }

    /// A number for the whole state: entries and their order, what is unacknowledged, consumers and whose turn it is,
    /// limits, counts. Spare room and where a body lies in the pool are no part of it.
    #[must_use]
    pub fn digest(&self) -> u64 {
        Digest::of(self).0
    }
}
