//! What is asked of how much was done in a turn, and what follows from it.

use alloc::format;

use lepus_base::Now;

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::outbox::{Outbox, Severity};

impl Broker {
    /// Whether so much was done for what was received in this turn that no more is to be read before
    /// [`Broker::flush`]: what came already waits, and is asked for again then.
    #[must_use]
    pub fn has_read_enough(&self) -> bool {
        self.shard.effort.has_read_before()
    }

    /// Whether so much was done for mail of other shards, before anything was read in this turn, that the rest
    /// is to wait for the next one.
    #[must_use]
    pub fn has_taken_enough_mail(&self) -> bool {
        self.shard.effort.is_used_up()
    }

    /// How many queues were looked at, so far, to find out what room in the logs a message needs that found none at
    /// first. In a turn there are few of them, however many messages wait.
    #[must_use]
    pub fn looked_for_room(&self) -> u64 {
        self.shard.effort.looked_for_room()
    }

    /// A turn ends: what came too late for it is read again.
    pub(super) fn end_turn(&mut self, out: &mut Outbox) {
        self.shard.effort.end_turn();
        let waiting = self.shard.backpressure.end_turn();
        self.sessions.resume_all(&mut self.shard, waiting, Cause::Turn, out);
    }

    /// A message that no client waits for goes nowhere, since its way is too long.
    pub(crate) fn tell_too_far(&mut self, now: Now, exchange: &str, out: &mut Outbox) {
        if !self.shard.effort.must_tell_too_far(now) {
            return;
        }
        let text = format!(
            "routing a message from exchange '{exchange}' takes more than limits.routing_steps_max \
             ({}), so that it reaches no queue; others may, too",
            self.shard.routes.steps_max()
        );
        out.log(Severity::Warning, "routing-too-long", text);
    }
}
