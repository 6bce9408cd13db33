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
    /// Later than that by as long as nothing was read since.
    received: Instant,
    /// Since when nothing is read, so that nothing is expected.
    paused: Option<Instant>,
}

impl Heartbeat {
    /// A watch that is off.
    pub fn new(now: Instant) -> Heartbeat {
        Heartbeat { interval: Duration::ZERO, sent: now, received: now, paused: None }
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
        if is_paused {
            self.paused.get_or_insert(now);
        } else if let Some(since) = self.paused.take() {
            // Silence from before counts on: a peer is not alive because it was not listened to.
            self.received = self.received + now.since(since.max(self.received));
        }
    }

    fn send_due(&self) -> Instant {
        self.sent + self.interval / 2
    }

    fn death_due(&self) -> Instant {
        if self.paused.is_some() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn silence_counts_only_while_somebody_listens() {
        let mut heartbeat = Heartbeat::new(at(0));
        heartbeat.start(at(0), 10);
        assert_eq!(heartbeat.death_due(), at(25_000));
        heartbeat.pause(at(5_000), true);
        heartbeat.pause(at(6_000), true);
        assert_eq!(heartbeat.death_due(), Instant::NEVER);
        heartbeat.pause(at(105_000), false);
        heartbeat.pause(at(106_000), false);
        assert_eq!(heartbeat.death_due(), at(125_000), "twenty seconds were left");
        // Again and again, as short as may be.
        for round in 0..19 {
            let now = 106_000 + round * 1_000;
            heartbeat.pause(at(now), true);
            heartbeat.pause(at(now), false);
        }
        assert!(heartbeat.on_timeout(at(124_999), &mut Vec::new()));
        assert!(!heartbeat.on_timeout(at(125_000), &mut Vec::new()));
    }

    #[test]
    fn what_was_under_way_when_reading_paused_counts_once() {
        let mut heartbeat = Heartbeat::new(at(0));
        heartbeat.start(at(0), 10);
        heartbeat.pause(at(5_000), true);
        heartbeat.received(at(7_000));
        heartbeat.pause(at(9_000), false);
        assert_eq!(heartbeat.death_due(), at(34_000));
    }
}
