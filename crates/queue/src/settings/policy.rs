//! What policies say of a queue, and what comes of it together with the queue's arguments.

use alloc::boxed::Box;
use core::time::Duration;

use lepus_amqp::table::{TableRef, ValueRef};

use super::{Overflow, QueueSettings, SHORT_STRING_BYTES_MAX, TIMER_MILLIS_MAX};

/// What policies say of a queue: what the keys of their definition mean. `None` where they say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// `message-ttl`: how long a message may wait.
    pub message_ttl: Option<Duration>,
    /// `expires`: how long the queue may be unused.
    pub expires: Option<Duration>,
    /// `max-length`: ready messages at most.
    pub max_length: Option<u64>,
    /// `max-length-bytes`: payload bytes of ready messages at most.
    pub max_length_bytes: Option<u64>,
    /// `overflow`.
    pub overflow: Option<Overflow>,
    /// `dead-letter-exchange`; the empty name is the default exchange.
    pub dead_letter_exchange: Option<Box<str>>,
    /// `dead-letter-routing-key`.
    pub dead_letter_routing_key: Option<Box<str>>,
    /// `dead-letter-strategy`: whether it is `at-least-once`.
    pub at_least_once: Option<bool>,
    /// `delivery-limit`; `None` also for a negative one, which is none.
    pub delivery_limit: Option<u32>,
    /// `consumer-timeout`.
    pub consumer_timeout: Option<Duration>,
    /// `unmatched-after`: how long a message stays that matches no consumer's filter.
    pub unmatched_after: Option<Duration>,
}

impl PolicySettings {
    /// Reads a definition. Keys without a meaning for a queue are passed over, and so is a value that has none: what is
    /// set was checked, what an earlier version took may not be.
    #[must_use]
    pub fn read(definition: TableRef<'_>) -> PolicySettings {
        let mut found = PolicySettings::default();
        for (key, value) in definition.iter() {
            match key {
                "message-ttl" => found.message_ttl = millis(value),
                "expires" => found.expires = millis(value).filter(|time| *time > Duration::ZERO),
                "max-length" => found.max_length = count(value),
                "max-length-bytes" => found.max_length_bytes = count(value),
                "overflow" => found.overflow = value.as_text().and_then(Overflow::from_name),
                "dead-letter-exchange" => found.dead_letter_exchange = name(value),
                "dead-letter-routing-key" => found.dead_letter_routing_key = name(value),
                "dead-letter-strategy" => {
                    found.at_least_once = value.as_text().map(|text| text == "at-least-once");
                }
                "delivery-limit" => {
                    let limit = count(value);
                    found.delivery_limit =
                        limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
                }
                "consumer-timeout" => found.consumer_timeout = millis(value),
                "unmatched-after" => found.unmatched_after = millis(value),
                _ => {}
            }
        }
        found
    }
}

impl QueueSettings {
    /// What holds for a queue with these settings, which came of `arguments`, under policies. Of two limits the lower
    /// one holds; where a name or a word is asked for, the argument.
    #[must_use]
    pub fn under(&self, arguments: TableRef<'_>, policy: &PolicySettings) -> QueueSettings {
        let traits = self.kind.traits();
        let is_asked = |name| arguments.get(name).is_some();
        let overflow = match policy.overflow {
            Some(overflow) if traits.policy_rules_overflow() || !is_asked("x-overflow") => {
                traits.overflow(overflow)
            }
            _ => self.overflow,
        };
        let own_or = |own: &Option<Box<str>>, other: &Option<Box<str>>| {
            own.as_ref().or(other.as_ref()).cloned()
        };
        let dead_letter_exchange = own_or(&self.dead_letter_exchange, &policy.dead_letter_exchange);
        let strategy = arguments.get("x-dead-letter-strategy").and_then(ValueRef::as_text);
        let wants_certainty = match strategy {
            Some(strategy) => strategy == "at-least-once",
            None => policy.at_least_once.unwrap_or(false),
        };
        QueueSettings {
            message_ttl: lower(self.message_ttl, policy.message_ttl),
            expires: lower(self.expires, policy.expires),
            max_length: lower(self.max_length, policy.max_length),
            max_length_bytes: lower(self.max_length_bytes, policy.max_length_bytes),
            overflow,
            at_least_once: wants_certainty
                && dead_letter_exchange.is_some()
                && traits.may_wait_for_dead_letters(overflow),
            dead_letter_exchange,
            dead_letter_routing_key: own_or(
                &self.dead_letter_routing_key,
                &policy.dead_letter_routing_key,
            ),
            delivery_limit: lower(self.delivery_limit, policy.delivery_limit),
            consumer_timeout: shorter(self.consumer_timeout, policy.consumer_timeout),
            unmatched_after: lower(self.unmatched_after, policy.unmatched_after),
            max_priority: self.max_priority,
            single_active_consumer: self.single_active_consumer,
            kind: self.kind,
        }
    }
}

/// The lower of two limits that may be none.
fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The same of times of which zero is for ever.
fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(Duration::ZERO), Some(other)) => Some(other),
        (Some(one), Some(Duration::ZERO)) => Some(one),
        (one, other) => lower(one, other),
    }
}

fn count(value: ValueRef<'_>) -> Option<u64> {
    match value {
        ValueRef::U64(number) => Some(number),
        _ => value.as_integer().and_then(|number| u64::try_from(number).ok()),
    }
}

fn millis(value: ValueRef<'_>) -> Option<Duration> {
    count(value).filter(|millis| *millis <= TIMER_MILLIS_MAX).map(Duration::from_millis)
}

fn name(value: ValueRef<'_>) -> Option<Box<str>> {
    value.as_text().filter(|text| text.len() <= SHORT_STRING_BYTES_MAX).map(Box::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::QueueKind;
    use lepus_amqp::table::Table;

    fn under(kind: QueueKind, arguments: &Table, policy: &Table) -> QueueSettings {
        let settings = QueueSettings::parse(arguments, kind, "q", "/").unwrap();
        let (arguments, policy) = (arguments.to_bytes(), policy.to_bytes());
        settings.under(arguments.as_ref(), &PolicySettings::read(policy.as_ref()))
    }

    #[test]
    fn of_two_limits_the_lower_one_holds() {
        let arguments = Table::new()
            .with("x-max-length", 7)
            .with("x-message-ttl", 50)
            .with("x-delivery-limit", -1)
            .with("x-consumer-timeout", 0);
        let policy = Table::new()
            .with("max-length", 10)
            .with("message-ttl", 20)
            .with("expires", 9)
            .with("delivery-limit", 3)
            .with("consumer-timeout", 1000);
        let found = under(QueueKind::Classic, &arguments, &policy);
        assert_eq!((found.max_length, found.max_length_bytes), (Some(7), None));
        assert_eq!(found.message_ttl, Some(Duration::from_millis(20)));
        assert_eq!(found.expires, Some(Duration::from_millis(9)));
        assert_eq!(found.delivery_limit, Some(3), "a negative limit is none");
        assert_eq!(found.consumer_timeout, Some(Duration::from_secs(1)), "zero is for ever");
        let none = under(QueueKind::Classic, &arguments, &Table::new().with("delivery-limit", -1));
        assert_eq!(none.delivery_limit, None);
    }

    #[test]
    fn names_are_those_of_the_arguments_where_they_give_some() {
        let policy =
            Table::new().with("dead-letter-exchange", "p").with("dead-letter-routing-key", "k");
        let arguments = Table::new().with("x-dead-letter-exchange", "");
        let found = under(QueueKind::Classic, &arguments, &policy);
        assert_eq!(found.dead_letter_exchange.as_deref(), Some(""));
        assert_eq!(found.dead_letter_routing_key.as_deref(), Some("k"));
        let found = under(QueueKind::Classic, &Table::new(), &policy);
        assert_eq!(found.dead_letter_exchange.as_deref(), Some("p"));
    }

    #[test]
    fn whose_overflow_rule_holds_is_a_matter_of_the_kind() {
        let arguments = Table::new().with("x-overflow", "drop-head");
        let policy = Table::new().with("overflow", "reject-publish");
        let of = |kind| under(kind, &arguments, &policy).overflow;
        assert_eq!(of(QueueKind::Classic), Overflow::DropHead);
        assert_eq!(of(QueueKind::Quorum), Overflow::RejectPublish);
        let alone = under(QueueKind::Classic, &Table::new(), &policy);
        assert_eq!(alone.overflow, Overflow::RejectPublish);
        let dlx = Table::new().with("overflow", "reject-publish-dlx");
        let found = under(QueueKind::Quorum, &Table::new(), &dlx);
        assert_eq!(found.overflow, Overflow::DropHead, "a quorum queue does not know that rule");
    }

    #[test]
    fn dead_letters_wait_where_all_that_they_need_is_said_by_either() {
        let policy = Table::new()
            .with("dead-letter-strategy", "at-least-once")
            .with("overflow", "reject-publish");
        let arguments = Table::new().with("x-dead-letter-exchange", "x");
        assert!(under(QueueKind::Quorum, &arguments, &policy).at_least_once);
        assert!(!under(QueueKind::Quorum, &Table::new(), &policy).at_least_once);
        let once = arguments.with("x-dead-letter-strategy", "at-most-once");
        assert!(!under(QueueKind::Quorum, &once, &policy).at_least_once, "the argument counts");
    }

    #[test]
    fn what_a_policy_cannot_change_stays() {
        let arguments =
            Table::new().with("x-max-priority", 5).with("x-single-active-consumer", true);
        let policy = Table::new().with("max-length", 1).with("max-priority", 9);
        let found = under(QueueKind::Classic, &arguments, &policy);
        assert_eq!((found.max_priority, found.single_active_consumer), (Some(5), true));
    }

    #[test]
    fn values_without_a_meaning_say_nothing() {
        let policy = Table::new()
            .with("message-ttl", "odd")
            .with("expires", 0)
            .with("max-length", -1)
            .with("overflow", "odd")
            .with("ha-mode", "all");
        assert_eq!(under(QueueKind::Classic, &Table::new(), &policy), QueueSettings::PLAIN);
    }
}
