//! What a queue needs to know of its settings, at hand.

use alloc::boxed::Box;
use core::time::Duration;
use lepus_base::Instant;

use crate::message::Incoming;
use crate::settings::{Overflow, QueueSettings};

/// The settings in the form the queue asks for them.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) message_ttl: Option<Duration>,
    pub(super) expires: Option<Duration>,
    /// Last use of the queue.
    pub(super) used_at: Instant,
    /// Ready messages; `u64::MAX` is unlimited.
    pub(super) length_max: u64,
    /// Payload bytes of the ready messages; `u64::MAX` is unlimited.
    pub(super) bytes_max: u64,
    pub(super) delivery_limit: Option<u32>,
    pub(super) counts_deliveries: bool,
    pub(super) overflow: Overflow,
    /// How long messages that match no consumer's filter stay.
    pub(super) unmatched_after: Option<Duration>,
    /// The highest priority; 0 for a queue without priorities.
    pub(super) priority_max: u8,
    pub(super) dead_letters: bool,
    /// Whether dead letters count until they have arrived.
    pub(super) at_least_once: bool,
    /// Those that have not, and their payload bytes.
    pub(super) letters: u64,
    pub(super) letter_bytes: u64,
    pub(super) single_active: bool,
}

impl Rules {
    /// `None` for default settings, which most queues have.
    pub(super) fn of(settings: &QueueSettings, used_at: Instant) -> Option<Box<Rules>> {
        // How long deliveries may wait is their channels' concern.
        if (QueueSettings { consumer_timeout: None, ..settings.clone() }) == QueueSettings::PLAIN {
            return None;
        }
        Some(Box::new(Rules {
            message_ttl: settings.message_ttl,
            expires: settings.expires,
            used_at,
            length_max: settings.max_length.unwrap_or(u64::MAX),
            bytes_max: settings.max_length_bytes.unwrap_or(u64::MAX),
            delivery_limit: settings.delivery_limit,
            counts_deliveries: settings.kind.counts_deliveries()
                || settings.delivery_limit.is_some(),
            overflow: settings.overflow,
            unmatched_after: settings.unmatched_after,
            priority_max: settings.max_priority.unwrap_or(0),
            dead_letters: settings.dead_letter_exchange.is_some(),
            at_least_once: settings.at_least_once,
            letters: 0,
            letter_bytes: 0,
            single_active: settings.single_active_consumer,
        }))
    }

    /// How long a new message may wait, and its priority.
    #[inline(always)]
    pub(super) fn terms(&self, incoming: &Incoming<'_>) -> (Option<Duration>, u8) {
        let ttl = match (self.message_ttl, incoming.expiration) {
            (Some(queue), Some(message)) => Some(queue.min(message)),
            (queue, message) => queue.or(message),
        };
        (ttl, incoming.priority.min(self.priority_max))
    }

    /// Those of other settings, which hold instead of those `before` from now on.
    pub(super) fn behind(
        before: Option<Box<Rules>>,
        settings: &QueueSettings,
        now: Instant,
    ) -> Option<Box<Rules>> {
        let mut rules = Rules::of(settings, now)?;
        if let Some(before) = before {
            // Letters that count no more are not told of when they arrive.
            if rules.at_least_once {
                (rules.letters, rules.letter_bytes) = (before.letters, before.letter_bytes);
            }
            if rules.expires == before.expires {
                rules.used_at = before.used_at;
            }
        }
        Some(rules)
    }
}
