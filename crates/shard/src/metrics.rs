//! What a shard counts about itself. Written by the shard alone, read by anyone.

use std::sync::atomic::{AtomicU64, Ordering};

/// Turns from this length on are counted apart, in nanoseconds: whoever waited for one noticed.
const LONG_TURN_NS: u64 = 20_000_000;

/// A number with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without a locked instruction: there is no other writer.
    pub(crate) fn add(&self, count: u64) {
        if count > 0 {
            self.set(self.get().wrapping_add(count));
        }
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ShardMetrics {
    /// A turn ended that took so many nanoseconds.
    pub(crate) fn turned(&self, nanos: u64) {
        self.busy_ns.add(nanos);
        if nanos > self.turn_ns_max.get() {
            self.turn_ns_max.set(nanos);
        }
        self.long_turns.add(u64::from(nanos >= LONG_TURN_NS));
    }
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one shard, on cache lines of their own. They only grow, but for
        /// `connections`, `entering` and those of its place (`cpu`, `memory_node`, `misplaced`, `thread`).
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct ShardMetrics {
            $(pub(crate) $name: Counter,)*
        }

        /// The values of [`ShardMetrics`], each read once, not all at the same moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct MetricsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl ShardMetrics {
            /// Notes that the shard's thread, which has taken its place, was let go from its CPU.
            pub fn let_go(&self) {
                self.cpu.set(0);
                self.misplaced.set(1);
            }

            /// The values as they are now.
            #[must_use]
            pub fn snapshot(&self) -> MetricsSnapshot {
                MetricsSnapshot { $($name: self.$name.get(),)* }
            }
        }

        impl MetricsSnapshot {
            /// Names and values, in a fixed order.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

metrics! {
    /// Turns of the duty cycle.
    cycles,
    /// Nanoseconds spent in turns and in polls that did not wait.
    busy_ns,
    /// Nanoseconds of the longest turn so far, with the look around that follows it.
    turn_ns_max,
    /// Turns of 20 ms or longer.
    long_turns,
    /// Nanoseconds spent spinning before a sleep.
    spin_ns,
    /// Nanoseconds asleep.
    sleep_ns,
    /// Times it went to sleep.
    sleeps,
    /// Times it waited for a moment after a turn, so that there was more to do in the next.
    naps,
    /// Sleeping peers that it woke.
    wakes_sent,
    /// Bytes read from sockets.
    bytes_in,
    /// Bytes written to sockets.
    bytes_out,
    /// Read calls.
    reads,
    /// Write calls.
    writes,
    /// Connections open now, those being closed included.
    connections,
    /// Connections that have not logged in yet.
    entering,
    /// Connections that gave way to new ones before they had logged in.
    gave_way,
    /// Connections taken from the acceptor.
    accepted,
    /// Connections from the acceptor that could not be taken.
    dropped,
    /// Connections that ended here.
    closed,
    /// Connections given to another shard.
    handed_over,
    /// Connections taken from another shard.
    adopted,
    /// Mail batches received.
    mail_in,
    /// Mail batches sent.
    mail_out,
    /// Times that mail had to wait because a ring was full.
    ring_full,
    /// Operations on files that ended.
    disk_operations,
    /// The CPU that the shard is bound to, plus 1; 0 when it is not bound.
    cpu,
    /// The node that its memory is bound to, plus 1; 0 when it is not bound.
    memory_node,
    /// 1 if it is not where it was planned to be.
    misplaced,
    /// The system's number of its thread; 0 where the system does not tell.
    thread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_is_kept_and_long_ones_are_counted() {
        let metrics = ShardMetrics::default();
        for nanos in [1_000, 30_000_000, LONG_TURN_NS - 1, LONG_TURN_NS] {
            metrics.turned(nanos);
        }
        let found = metrics.snapshot();
        assert_eq!((found.turn_ns_max, found.long_turns), (30_000_000, 2));
        assert_eq!(found.busy_ns, 1_000 + 30_000_000 + 2 * LONG_TURN_NS - 1);
    }
}
