//! The duty cycle of a shard's thread: poll, turn, and sleep only when there is nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

use lepus_base::{Instant, Now};
use lepus_mesh::Signal;
use lepus_profile::Phase;
use lepus_reactor::Reactor;
use lepus_topology::Contention;

use crate::clock::{Clock, Ticker};
use crate::core::Core;
use crate::distributor::Census;
use crate::idle::{Counted, Idle, IdlePreset, Rivals};
use crate::pace::{NAP, Pace};
use crate::shard::Shard;

/// How often a stopping shard looks whether the others have finished.
const STOP_CHECK: Duration = Duration::from_millis(5);
/// What bringing everything to the disk may take at the end, however short the stop is to be.
const CLOSE_MIN: Duration = Duration::from_secs(5);

/// How a shard's thread behaves.
pub(crate) struct Duty {
    pub(crate) clock: Clock,
    pub(crate) idle: IdlePreset,
    /// Whether it may nap after its turns: also where it may not spin, that is the operator's choice.
    pub(crate) may_nap: bool,
    pub(crate) stop_timeout: Duration,
    pub(crate) census: Census,
    /// Shards that may still send mail while the server stops, but answers.
    pub(crate) talking: Talking,
    /// Shards that are not closed, and may yet need an answer from another one.
    pub(crate) closing: Talking,
}

/// Counts the shards that the others wait for while the server stops.
#[derive(Clone, Debug)]
pub(crate) struct Talking(Arc<AtomicIsize>);

impl Talking {
    pub(crate) fn new(shards: usize) -> Talking {
        Talking(Arc::new(AtomicIsize::new(shards as isize)))
    }

    /// One shard less is waited for.
    pub(crate) fn fall_silent(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Nobody is waited for any more.
    pub(crate) fn give_up(&self) {
        self.0.store(0, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) <= 0
    }
}

/// How a shard ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// Connections that did not end in order.
    pub(crate) cut: usize,
    /// Whether the core has brought everything to the disk.
    pub(crate) is_closed: bool,
}

/// How far a shard is on its way to the end.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Serving,
    /// Connections may leave until then.
    Leaving(Instant),
    /// The last mail is on its way; everything has to be over then.
    Talking(Instant),
    /// This shard has sent its last mail and waits for that of the others.
    Listening(Instant),
    /// The core closes.
    Closing(Instant),
    /// It is closed; what comes late from others is answered until they are, too.
    Answering(Instant),
}

/// What a shard knows about its pauses.
struct Rest {
    idle: Idle,
    rivals: Rivals,
    /// Where the system counts it.
    contention: Option<Contention>,
}

impl Rest {
    /// Never while a thread of the shard's own works on its files: it would be that one's CPU.
    fn should_spin(&mut self, now: Instant, awaits_disk: bool) -> bool {
        let contention = &self.contention;
        let count = || {
            let contention = contention.as_ref()?;
            Some(Counted { waited: contention.waited()?, stops: contention.stops() })
        };
        self.idle.should_spin() && !awaits_disk && !self.rivals.want_cpu(now, count)
    }
}

/// Runs a shard until it is told to stop, the last connection has ended or the time is over, and
/// its core is closed.
///
/// # Panics
/// When the reactor fails: a shard that cannot wait for its sockets cannot go on.
pub(crate) fn run<C: Core, R: Reactor>(mut shard: Shard<C, R>, duty: &Duty) -> End {
    let metrics = std::sync::Arc::clone(shard.metrics());
    let mut ticker = Ticker::new(duty.clock);
    let mut rest = Rest {
        idle: Idle::new(duty.idle),
        rivals: Rivals::default(),
        contention: Contention::of_current_thread().filter(|_| duty.idle != IdlePreset::Economy),
    };
    let mut pace = Pace::new(duty.may_nap);
    wake_in_time();
    let mut now = ticker.now();
    let mut stage = Stage::Serving;
    let mut end = End::default();
    let mut more = true;
    loop {
        let mut limit = shard.next_timeout();
        if !matches!(stage, Stage::Serving) {
            limit = limit.min(now.instant + STOP_CHECK);
        }
        if more || limit <= now.instant {
            shard.mark().set(Phase::Poll);
            poll(&mut shard, Some(Duration::ZERO));
            let before = now.instant;
            now = ticker.now();
            metrics.turned(nanos(now.instant.since(before)));
        } else {
            let before = now.instant;
            now = ticker.now();
            metrics.turned(nanos(now.instant.since(before)));
            let naps = limit > now.instant + NAP
                && pace.naps(now.instant, metrics.bytes_in.get(), shard.samples());
            let is_found = naps && nap(&mut shard, &mut ticker, &mut now);
            if !is_found {
                let before = now.instant;
                now = pause(&mut shard, &mut ticker, &mut rest, now, limit, pace.is_napping());
                pace.paused(now.instant.since(before));
            }
        }
        if shard.bell().take(Signal::Stop) && matches!(stage, Stage::Serving) {
            stage = Stage::Leaving(now.instant + duty.stop_timeout);
            shard.shut_down(now);
        }
        // Before the turn: what others have sent until then is taken in it.
        let is_quiet = duty.talking.is_over();
        more = shard.turn(now).more;
        let close_by = || now.instant + duty.stop_timeout.max(CLOSE_MIN);
        match stage {
            Stage::Serving => {}
            Stage::Leaving(deadline) => {
                if shard.connections() == 0 && duty.census.connections() == 0 {
                    stage = Stage::Talking(close_by());
                } else if deadline <= now.instant {
                    shard.cut_all(now);
                    stage = Stage::Talking(close_by());
                    more = true;
                }
            }
            Stage::Talking(deadline) => {
                if (!more && shard.has_said_all()) || deadline <= now.instant {
                    duty.talking.fall_silent();
                    stage = Stage::Listening(deadline);
                }
            }
            Stage::Listening(deadline) => {
                if (is_quiet && shard.has_heard_all()) || deadline <= now.instant {
                    // One may have been on its way here when the others were cut.
                    shard.cut_all(now);
                    end.cut = shard.cut();
                    shard.close(now);
                    // Who had to wait for others has all the time that it takes itself.
                    stage = Stage::Closing(close_by());
                    more = true;
                }
            }
            Stage::Closing(deadline) => {
                end.is_closed = shard.core().is_closed();
                if end.is_closed {
                    duty.closing.fall_silent();
                    stage = Stage::Answering(deadline);
                    more = true;
                } else if deadline <= now.instant {
                    duty.closing.fall_silent();
                    // Its disk does not answer: waiting for the threads there would not end.
                    std::mem::forget(shard);
                    return end;
                }
            }
            Stage::Answering(deadline) => {
                if duty.closing.is_over() || deadline <= now.instant {
                    return end;
                }
            }
        }
    }
}

/// Lets something gather. Whether there is something then; `now` becomes the time after it.
fn nap<C: Core, R: Reactor>(shard: &mut Shard<C, R>, ticker: &mut Ticker, now: &mut Now) -> bool {
    let metrics = std::sync::Arc::clone(shard.metrics());
    let start = *now;
    shard.mark().set(Phase::Sleep);
    std::thread::sleep(NAP);
    let is_found = poll(shard, Some(Duration::ZERO)) || shard.bell().is_posted();
    *now = ticker.now();
    metrics.naps.add(1);
    metrics.sleep_ns.add(nanos(now.instant.since(start.instant)));
    is_found
}

/// The system lets a thread sleep up to 50 µs longer than it wants, unless it says otherwise.
fn wake_in_time() {
    #[cfg(target_os = "linux")]
    {
        // Where it cannot be said naps are longer, which a trial tells whether it pays.
        let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1000));
    }
}

/// Nothing is to be done: spins for a moment where that pays, then sleeps until an event, the bell
/// or `limit`, from `start` on. Returns the time after it. A shard that naps has waited by then, and does not spin.
fn pause<C: Core, R: Reactor>(
    shard: &mut Shard<C, R>,
    ticker: &mut Ticker,
    rest: &mut Rest,
    mut start: Now,
    limit: Instant,
    is_napping: bool,
) -> Now {
    let metrics = std::sync::Arc::clone(shard.metrics());
    if !is_napping && rest.should_spin(start.instant, shard.awaits_disk()) {
        shard.mark().set(Phase::Spin);
        let spin_end = limit.min(start.instant + rest.idle.spin_max());
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
    shard.mark().set(Phase::Sleep);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_does_not_spin_while_its_own_threads_work_on_files() {
        let mut idle = Idle::new(IdlePreset::Adaptive);
        for _ in 0..100 {
            idle.slept(Duration::from_micros(1));
        }
        let mut rest = Rest { idle, rivals: Rivals::default(), contention: None };
        let now = Instant::from_millis(1);
        assert!(rest.should_spin(now, false));
        assert!(!rest.should_spin(now, true));
    }

    #[test]
    fn the_last_shard_to_fall_silent_ends_the_talk() {
        let talking = Talking::new(2);
        talking.fall_silent();
        assert!(!talking.is_over());
        talking.fall_silent();
        assert!(talking.is_over());
        let talking = Talking::new(3);
        talking.give_up();
        talking.fall_silent();
        assert!(talking.is_over());
    }
}
