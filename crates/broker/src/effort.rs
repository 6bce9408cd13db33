//! How much a shard does for its clients in one turn.
//!
//! What most commands cost is in proportion to their bytes, and a turn is bounded by these. The
//! cost of others is up to the client: routing through many exchanges, bindings, headers and keys,
//! and whatever a few bytes can ask for. It is counted in steps, see
//! [`Routes::steps`](crate::directory::Routes::steps), and what comes when a turn has had its share
//! is for the next one.

use core::time::Duration;

use lepus_base::{Instant, Now};

use crate::channel::Target;

/// Queues that get a message in one slice; a publish to more is a job.
pub(crate) const TARGETS_AT_ONCE_MAX: usize = 512;
/// Bytes of a message that are as dear to copy as a queue is to reach, about.
pub(crate) const MESSAGE_BYTES: usize = 8192;
/// The share of a turn, about a millisecond. What begins within it is done as a whole.
const TURN_STEPS: u32 = 1 << 18;
/// What a method takes beside what is counted otherwise.
pub(crate) const METHOD_STEPS: u32 = 128;
/// What a login takes beside its digests' bytes.
pub(crate) const LOGIN_STEPS: u32 = 1024;
/// And each byte of them.
pub(crate) const DIGEST_BYTE_STEPS: u32 = 4;
/// What a routing key takes to check, beside looking it up.
pub(crate) const KEY_STEPS: u32 = 64;
/// Steps that take as long as putting a message into a queue.
const QUEUE_STEPS: u32 = 64;
/// Steps that take as long as a filter's unit of work, some two microseconds.
const FILTER_STEPS: u32 = 512;
/// Steps that take as long as a message that filters of consumers look at, about a microsecond.
const LOOK_STEPS: u32 = 256;
/// Bytes that are copied in a step.
const STEP_BYTES: usize = 16;
/// Messages whose routing, or whose filters, take too long are told in the log this often at most.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What was done in this turn, in steps.
#[derive(Debug, Default)]
pub struct Effort {
    /// In the current part of the turn.
    used: u32,
    /// While bytes were received, as far as these calls have ended.
    reading: u32,
    /// What was used when the current one of these calls began.
    begin: u32,
    /// Whether bytes were received at all in this turn: rows of publishes take no steps.
    has_served: bool,
    /// When the log was told last that a message's routing takes too long.
    told: Option<Instant>,
    /// The same of filters that take too long.
    told_filters: Option<Instant>,
    /// Queues that were looked at, so far, to find out what room a message needs.
    looked_for_room: u64,
}

impl Effort {
    /// Something took so many steps.
    pub(crate) fn spend(&mut self, steps: u32) {
        self.used = self.used.saturating_add(steps);
    }

    /// Something took as long as putting a message into so many queues.
    pub(crate) fn spend_on_queues(&mut self, queues: usize) {
        let queues = u32::try_from(queues).unwrap_or(u32::MAX);
        self.spend(queues.saturating_mul(QUEUE_STEPS));
    }

    /// A filter was read, or put among others, which is so much work by the measure of filters.
    pub(crate) fn spend_on_filter(&mut self, effort: usize) {
        self.spend(u32::try_from(effort).unwrap_or(u32::MAX).saturating_mul(FILTER_STEPS));
    }

    /// Filters of consumers looked at so many messages.
    pub(crate) fn spend_on_looks(&mut self, looks: usize) {
        let looks = u32::try_from(looks).unwrap_or(u32::MAX);
        self.spend(looks.saturating_mul(LOOK_STEPS));
    }

    /// So many bytes were copied for clients.
    pub(crate) fn spend_on_bytes(&mut self, bytes: usize) {
        self.spend(u32::try_from(bytes / STEP_BYTES).unwrap_or(u32::MAX));
    }

    /// So many queues were looked at to find out what room a message needs.
    pub(crate) fn look_for_room(&mut self, queues: usize) {
        self.looked_for_room += queues as u64;
    }

    /// How many were, so far.
    pub(crate) fn looked_for_room(&self) -> u64 {
        self.looked_for_room
    }

    /// What was used in the current part of the turn.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Whether the current part of the turn has had its share.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used >= TURN_STEPS
    }

    /// Another part of the turn begins, which gets on whatever was done before.
    pub(crate) fn renew(&mut self) {
        (self.used, self.begin) = (0, 0);
    }

    /// Bytes are received: they have a share of their own.
    pub(crate) fn begin_reading(&mut self) {
        self.begin = self.used;
    }

    /// Whether enough was done in this turn for bytes that were received.
    #[inline]
    pub(crate) fn has_read_enough(&self) -> bool {
        self.reading.saturating_add(self.used - self.begin) >= TURN_STEPS
    }

    /// They are, so far.
    pub(crate) fn end_reading(&mut self) {
        self.has_served = true;
        self.reading = self.reading.saturating_add(self.used - self.begin);
        self.begin = self.used;
    }

    /// Whether enough was done in this turn for bytes that were received before. What mail of other shards has taken is
    /// not for clients to pay.
    pub(crate) fn has_read_before(&self) -> bool {
        self.reading >= TURN_STEPS
    }

    /// Whether bytes were received in this turn.
    pub(crate) fn has_served(&self) -> bool {
        self.has_served
    }

    /// The turn ends.
    pub(crate) fn end_turn(&mut self) {
        self.renew();
        (self.reading, self.has_served) = (0, false);
    }

    /// Filters of an exchange take too long: whether the log is to be told.
    pub(crate) fn must_tell_filters(&mut self, now: Now) -> bool {
        if self.told_filters.is_some_and(|told| now.instant.since(told) < TELL_EVERY) {
            return false;
        }
        self.told_filters = Some(now.instant);
        true
    }

    /// The routing of a message takes too long: whether the log is to be told.
    pub(crate) fn must_tell_too_far(&mut self, now: Now) -> bool {
        if self.told.is_some_and(|told| now.instant.since(told) < TELL_EVERY) {
            return false;
        }
        self.told = Some(now.instant);
        true
    }
}

/// Steps as a number of messages that are put into queues.
pub(crate) fn as_queues(steps: u32) -> usize {
    (steps / QUEUE_STEPS) as usize
}

/// Those of a message's queues that get it first.
pub(crate) fn first(targets: &[Target]) -> &[Target] {
    &targets[..targets.len().min(TARGETS_AT_ONCE_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_what_takes_no_steps_is_served_too() {
        let mut effort = Effort::default();
        effort.spend_on_queues(1);
        assert!(!effort.has_served(), "that was for others");
        effort.begin_reading();
        effort.end_reading();
        assert!(effort.has_served());
        effort.end_turn();
        assert!(!effort.has_served());
    }

    #[test]
    fn what_mail_takes_keeps_no_client_from_being_read() {
        let mut effort = Effort::default();
        effort.spend_on_queues(5_000);
        assert!(effort.is_used_up() && effort.reading < TURN_STEPS);
        effort.begin_reading();
        assert!(!effort.has_read_enough());
        effort.spend_on_bytes(8 << 20);
        assert!(effort.has_read_enough());
        effort.end_reading();
        assert!(effort.reading >= TURN_STEPS);
    }
}
