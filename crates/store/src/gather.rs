//! Whether the next write waits a moment for more.
//!
//! Each write begins in a page that the last one wrote already, and each is synced: under a steady
//! stream of messages many small writes cost more than the messages. So while the stream is fast
//! enough to bring a good part of [`Gather::bytes`] within [`Gather::interval`], a write waits for
//! as much, or for that long, or until nothing comes any more. A stream that dries up meanwhile may
//! have been one that waits for its confirms: waiting for it was in vain, and is not tried again for a
//! while, which is longer each time.

use core::time::Duration;
use lepus_base::Instant;

/// Writes in a row between which the stream must have been fast.
const STEADY_WRITES: u32 = 2;
/// The part of [`Gather::bytes`] that a fast stream brings within the interval.
const FAST_PART: u64 = 4;
/// The part of the interval without anything new after which a stream has dried up.
const DRY_PART: u32 = 2;
/// Writes that do not wait after it was in vain; twice as many each time. A wait in vain costs half
/// the interval, about four writes.
const RESTS_MIN: u32 = 2;
const RESTS_MAX: u32 = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gather {
    interval: Duration,
    /// Bytes that are enough for a write.
    bytes: usize,
    /// When the last write ended, and what had been appended until then.
    ended_at: Instant,
    appended: u64,
    steady: u32,
    /// What was appended when it was looked at last, and since when it is as much.
    seen: u64,
    seen_at: Instant,
    /// Writes that still do not wait, and how many it will be next time.
    resting: u32,
    rests: u32,
}

impl Gather {
    pub(crate) fn new(interval: Duration, bytes: usize) -> Gather {
        Gather {
            interval,
            bytes,
            ended_at: Instant(0),
            appended: 0,
            steady: 0,
            seen: 0,
            seen_at: Instant(0),
            resting: 0,
            rests: RESTS_MIN,
        }
    }

    /// The end of a cycle, with `appended` bytes in all so far.
    pub(crate) fn look(&mut self, now: Instant, appended: u64) {
        if appended != self.seen {
            self.seen = appended;
            self.seen_at = now;
        }
    }

    /// Whether `waiting` bytes, for which somebody waits, wait for more.
    pub(crate) fn holds(&self, now: Instant, waiting: usize) -> bool {
        self.steady >= STEADY_WRITES
            && self.resting == 0
            && waiting < self.bytes
            && now < self.until()
    }

    /// How long a write waits unless something more comes.
    pub(crate) fn until(&self) -> Instant {
        (self.ended_at + self.interval).min(self.dry_at())
    }

    /// When the stream has dried up if nothing more comes.
    fn dry_at(&self) -> Instant {
        self.seen_at.max(self.ended_at) + self.interval / DRY_PART
    }

    /// A write begins.
    pub(crate) fn begins(&mut self, now: Instant) {
        if self.resting > 0 {
            self.resting -= 1;
        } else if self.steady < STEADY_WRITES {
            // It did not wait.
        } else if now >= self.dry_at() {
            self.resting = self.rests;
            self.rests = (self.rests * 2).min(RESTS_MAX);
        } else {
            self.rests = RESTS_MIN;
        }
    }

    /// A write ended, and `appended` bytes were appended in all so far.
    pub(crate) fn ends(&mut self, now: Instant, appended: u64) {
        let nanos = u64::try_from(now.since(self.ended_at).as_nanos()).unwrap_or(u64::MAX);
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let bytes = appended - self.appended;
        let brought = bytes.saturating_mul(interval) / nanos.max(1);
        let is_fast = nanos > 0 && brought >= self.bytes as u64 / FAST_PART;
        self.steady = match is_fast {
            true => (self.steady + 1).min(STEADY_WRITES),
            false => self.steady.saturating_sub(1),
        };
        self.ended_at = now;
        self.appended = appended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use alloc::vec::Vec;

    const MICROS: u64 = 1_000;

    /// Bytes of the writes of a stream of records with a kilobyte each, `gap` microseconds apart,
    /// of which at most `window` wait for their write. A write takes 200 µs.
    fn writes(gap: u64, window: u64, millis: u64) -> (Vec<u64>, u64) {
        writes_with_pauses(gap, window, millis, 0)
    }

    /// The same, and the stream rests for the last `pause` of every ten milliseconds.
    fn writes_with_pauses(gap: u64, window: u64, millis: u64, pause: u64) -> (Vec<u64>, u64) {
        let mut gather = Gather::new(Duration::from_millis(2), 96 << 10);
        let (mut appended, mut begun, mut ended) = (0, 0, 0);
        let mut flight: Option<u64> = None;
        let mut writes = Vec::new();
        for micros in 1..millis * 1_000 {
            let now = Instant(micros * MICROS);
            if flight.is_some_and(|end| end <= micros) {
                flight = None;
                ended = begun;
                gather.ends(now, appended);
            }
            let pauses = micros % 10_000 >= 10_000 - pause * 1_000;
            if micros % gap == 0 && appended - ended < window << 10 && !pauses {
                appended += 1 << 10;
            }
            gather.look(now, appended);
            let waiting = appended - begun;
            if flight.is_none() && waiting > 0 && !gather.holds(now, waiting as usize) {
                gather.begins(now);
                writes.push(waiting);
                begun = appended;
                flight = Some(micros + 200);
            }
        }
        (writes, appended)
    }

    #[test]
    fn a_fast_stream_is_written_in_large_pieces() {
        for gap in [12, 30] {
            let (sizes, all) = writes(gap, 500, 200);
            let pages = sizes.len() as u64 * 4096;
            assert!(pages * 100 <= all * 7, "{gap}: {} writes of {all} bytes", sizes.len());
            assert!(all >= (200_000 / gap - 500) << 10, "{gap}: {all}");
        }
    }

    #[test]
    fn a_stream_that_pauses_now_and_then_is_still_gathered() {
        for pause in [1, 3, 5] {
            let (sizes, all) = writes_with_pauses(25, 500, 1_000, pause);
            let pages = sizes.len() as u64 * 4096;
            assert!(pages * 100 <= all * 15, "{pause}: {} writes of {all} bytes", sizes.len());
        }
    }

    #[test]
    fn who_sends_one_by_one_never_waits() {
        let (sizes, all) = writes(20, 1, 200);
        assert_eq!(all, (sizes.len() as u64) << 10);
        assert!(sizes.len() >= 200_000 / 220 - 10, "{}", sizes.len());
    }

    #[test]
    fn a_stream_that_waits_for_its_confirms_is_soon_left_alone() {
        let gather_free = 2_000_000 / 200 * 20;
        let (_, all) = writes(5, 40, 2_000);
        assert!(all >> 10 >= gather_free * 9 / 10, "{}", all >> 10);
    }
}
