//! Signs of life in both directions.

use crate::frame;
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::Instant;

/// Watches one connection. A heartbeat is sent after half an interval without other traffic; the
/// peer counts as dead after two and a half intervals of silence. RabbitMQ looks once per interval
/// and gives up at the second silent look, so between two and three; some clients (py-amqp) send
/// only every second interval and would be cut off at two.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    /// Zero: off.
    interval: Duration,
    sent: Instant,
    received: Instant,
    /// Nothing is read, so nothing is expected.
    is_paused: bool,
}

impl Heartbeat {
    /// A watch that is off.
    pub fn new(now: Instant) -> Heartbeat {
        Heartbeat { interval: Duration::ZERO, sent: now, received: now, is_paused: false }
    }

    pub fn start(&mut self, now: Instant, interval_seconds: u16) {
        self.interval = Duration::from_secs(interval_seconds.into());
        self.sent = now;
        self.received = now;
    }

    #[inline]
    pub fn received(&mut self, now: Instant) {
        self.received = now;
    }

    #[inline]
    pub fn sent(&mut self, now: Instant) {
        self.sent = now;
    }

    pub fn pause(&mut self, now: Instant, is_paused: bool) {
        self.is_paused = is_paused;
        self.received = now;
    }

    fn send_due(&self) -> Instant {
        self.sent + self.interval / 2
    }

    fn death_due(&self) -> Instant {
        if self.is_paused {
            return Instant::NEVER;
        }
        self.received + self.interval * 5 / 2
    }

    pub fn next_timeout(&self) -> Instant {
        if self.interval.is_zero() {
            return Instant::NEVER;
        }
        self.send_due().min(self.death_due())
    }

    /// Sends a heartbeat if one is due. False when the peer is dead.
    #[must_use]
    pub fn on_timeout(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.interval.is_zero() {
            return true;
        }
        if now >= self.death_due() {
            return false;
        }
        if now >= self.send_due() {
            frame::write_heartbeat(out);
            self.sent = now;
        }
        true
    }
}
