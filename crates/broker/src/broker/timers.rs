//! Queues at their home: commands from channels near and far, deliveries, timers, and the queues' end.

use crate::broker::Broker;
use crate::timers::Timer;

/// Timers that may be there for nothing before they are swept out.
pub(crate) const IDLE_TIMERS_MAX: usize = 4096;

impl Broker {
    /// Sweeps out the timers of connections and queues that are gone, when they are many.
    pub(crate) fn sweep_timers(&mut self) {
        let (connections, homes) = (&self.connections.all, &self.homes.queues);
        let awaited = connections.len() + homes.len();
        if self.shard.timers.len() <= 2 * awaited + IDLE_TIMERS_MAX {
            return;
        }
        self.shard.timers.sweep(|at, timer| match timer {
            Timer::Connection(slot, id) => connections
                .get(slot as usize)
                .is_some_and(|connection| connection.id == id && connection.armed == at),
            Timer::Queue(slot, id) => {
                homes.get(slot as usize).is_some_and(|home| home.id == id && home.is_armed_for(at))
            }
            Timer::Letters(_)
            | Timer::Looks
            | Timer::Oldest
            | Timer::UnreadReplies
            | Timer::Trim
            | Timer::Tables => true,
        });
    }
}
