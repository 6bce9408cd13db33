//! The duty cycle of a shard's thread: poll, turn, and sleep only when there is nothing to do.

use std::time::Duration;

use lepus_base::{Instant, Now};
use lepus_mesh::Signal;
use lepus_reactor::Reactor;
use lepus_topology::RunDelay;

use crate::clock::{Clock, Ticker};
use crate::core::Core;
use crate::distributor::Census;
use crate::idle::{Idle, Rivals, SPIN_MAX};
use crate::shard::Shard;

/// How often a stopping shard looks whether the others have finished.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// How a shard's thread behaves.
pub(crate) struct Duty {
    pub(crate) clock: Clock,
    pub(crate) may_spin: bool,
    pub(crate) stop_timeout: Duration,
    pub(crate) census: Census,
}

/// What a shard knows about its pauses.
struct Rest {
    idle: Idle,
    rivals: Rivals,
    /// Where the system counts it.
    delay: Option<RunDelay>,
}

impl Rest {
    fn should_spin(&mut self, now: Instant) -> bool {
        let delay = &self.delay;
        self.idle.should_spin()
            && !self.rivals.want_cpu(now, || delay.as_ref().and_then(RunDelay::nanos))
    }
}

/// Runs a shard until it is told to stop and the last connection has ended or the time is over.
/// Returns the number of connections that were cut.
///
/// # Panics
/// When the reactor fails: a shard that cannot wait for its sockets cannot go on.
pub(crate) fn run<C: Core, R: Reactor>(mut shard: Shard<C, R>, duty: &Duty) -> usize {
    let metrics = std::sync::Arc::clone(shard.metrics());
    let mut ticker = Ticker::new(duty.clock);
    let mut rest = Rest {
        idle: Idle::new(duty.may_spin),
        rivals: Rivals::default(),
        delay: RunDelay::of_current_thread().filter(|_| duty.may_spin),
    };
    let mut now = ticker.now();
    let mut stop_at = None;
    let mut more = true;
    loop {
        let mut limit = shard.next_timeout();
        if stop_at.is_some() {
            limit = limit.min(now.instant + STOP_CHECK);
        }
        if more || limit <= now.instant {
            poll(&mut shard, Some(Duration::ZERO));
            let before = now.instant;
            now = ticker.now();
            metrics.busy_ns.add(nanos(now.instant.since(before)));
        } else {
            now = pause(&mut shard, &mut ticker, &mut rest, now, limit);
        }
        if shard.bell().take(Signal::Stop) && stop_at.is_none() {
            stop_at = Some(now.instant + duty.stop_timeout);
            shard.shut_down(now);
        }
        more = shard.turn(now).more;
        if let Some(deadline) = stop_at {
            if shard.connections() == 0 && duty.census.connections() == 0 {
                return 0;
            }
            if deadline <= now.instant {
                return shard.cut_all(now);
            }
        }
    }
}

/// Nothing is to be done: spins for a moment where that pays, then sleeps until an event, the bell
/// or `limit`. Returns the time after it.
fn pause<C: Core, R: Reactor>(
    shard: &mut Shard<C, R>,
    ticker: &mut Ticker,
    rest: &mut Rest,
    before: Now,
    limit: Instant,
) -> Now {
    let metrics = std::sync::Arc::clone(shard.metrics());
    let mut start = ticker.now();
    metrics.busy_ns.add(nanos(start.instant.since(before.instant)));
    if rest.should_spin(start.instant) {
        let spin_end = limit.min(start.instant + SPIN_MAX);
        loop {
            let found = shard.bell().is_posted() || poll(shard, Some(Duration::ZERO));
            let now = ticker.now();
            if found || now.instant >= spin_end {
                metrics.spin_ns.add(nanos(now.instant.since(start.instant)));
                rest.idle.spun(found);
                if found || now.instant >= limit {
                    return now;
                }
                start = now;
                break;
            }
            std::hint::spin_loop();
        }
    }
    if !shard.bell().fall_asleep() {
        poll(shard, Some(Duration::ZERO));
        return ticker.now();
    }
    let timeout = (limit != Instant::NEVER).then(|| limit.since(start.instant));
    poll(shard, timeout);
    shard.bell().wake_up();
    let now = ticker.now();
    let slept = now.instant.since(start.instant);
    rest.idle.slept(slept);
    metrics.sleeps.add(1);
    metrics.sleep_ns.add(nanos(slept));
    now
}

fn poll<C: Core, R: Reactor>(shard: &mut Shard<C, R>, timeout: Option<Duration>) -> bool {
    match shard.poll(timeout) {
        Ok(found) => found,
        Err(error) => panic!("the readiness queue of a shard fails: {error}"),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
