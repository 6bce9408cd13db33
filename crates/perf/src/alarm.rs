//! Waiting for a moment that lies less than a millisecond away, which a poll's timeout cannot express.

use lepus_base::Instant;
use mio::{Registry, Token};
use std::io;

/// A timer that makes the poll return.
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
    /// What the timer is set to.
    moment: Instant,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// A timer whose event has `token`.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Alarm> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let fd = timer.as_raw_fd();
        let mut source = mio::unix::SourceFd(&fd);
        registry.register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Alarm { timer, moment: Instant(0) })
    }

    /// Sets the timer to `moment`; whether it can (otherwise a poll's timeout must do).
    pub(crate) fn set(&mut self, moment: Instant) -> bool {
        if moment == self.moment {
            return true;
        }
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let it_value = Timespec {
            tv_sec: (moment.0 / 1_000_000_000) as i64,
            tv_nsec: (moment.0 % 1_000_000_000) as _,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let when = Itimerspec { it_interval, it_value };
        let is_set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &when).is_ok();
        self.moment = if is_set { moment } else { Instant(0) };
        is_set
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// No timer on this system.
    pub(crate) fn new(_registry: &Registry, _token: Token) -> io::Result<Alarm> {
        Ok(Alarm {})
    }

    /// Never set.
    pub(crate) fn set(&mut self, _moment: Instant) -> bool {
        false
    }
}
