//! Which arguments a new queue may have: those of its kind, with values that mean something. What
//! is declared already, or comes from a log, is not asked again.

use super::{Arguments, QueueKind, QueueSettings};
use crate::refusal::Refusal;
use lepus_amqp::table::Table;

/// Where the leader of a queue may be put; one process is all these places.
const LEADER_LOCATORS: [&str; 5] =
    ["client-local", "balanced", "random", "least-leaders", "min-masters"];

impl QueueSettings {
    /// Whether a new queue of this kind may have these arguments; unknown ones do not matter.
    /// [`QueueSettings::parse`] checks those that it reads.
    ///
    /// # Errors
    /// 406 for an argument of another kind of queue, and for a value that means nothing.
    pub fn check(
        arguments: &Table,
        kind: QueueKind,
        queue: &str,
        vhost: &str,
    ) -> Result<(), Refusal> {
        if arguments.0.is_empty() {
            return Ok(());
        }
        let arguments = Arguments { table: arguments, queue, vhost };
        kind.traits().check_arguments(&arguments)?;
        arguments.check_leader_locator()?;
        kind.traits().check_foreign(&arguments)
    }
}

impl Arguments<'_> {
    fn check_leader_locator(&self) -> Result<(), Refusal> {
        let name = "x-queue-leader-locator";
        match self.text(name)? {
            Some(place) if !LEADER_LOCATORS.contains(&place) => {
                Err(self.invalid(name, "invalid_queue_locator_arg"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::RefusalKind;
    use alloc::format;
    use alloc::string::String;
    use lepus_amqp::table::Value;

    fn check(kind: QueueKind, name: &str, value: impl Into<Value>) -> Option<String> {
        let table = Table::new().with(name, value);
        let refusal = QueueSettings::check(&table, kind, "q", "/").err()?;
        assert_eq!(refusal.kind, RefusalKind::PreconditionFailed);
        let start = format!("invalid arg '{name}' for queue 'q' in vhost '/'");
        Some(refusal.reply().strip_prefix(&start).expect("the usual start").into())
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        let classic = |name, value: Value| check(QueueKind::Classic, name, value).unwrap();
        assert_eq!(classic("x-queue-mode", "odd".into()), ": \"unsupported queue mode 'odd'\"");
        assert_eq!(classic("x-queue-mode", 1.into()), ": {unacceptable_type,signedint}");
        assert_eq!(classic("x-queue-version", 3.into()), ": \"unsupported queue version '3'\"");
        assert_eq!(classic("x-queue-version", (-1).into()), ": {value_negative,-1}");
        let locator = "x-queue-leader-locator";
        assert_eq!(classic(locator, "odd".into()), ": invalid_queue_locator_arg");
        assert_eq!(classic(locator, 1.into()), ": {unacceptable_type,signedint}");
        let quorum = |name, value: Value| check(QueueKind::Quorum, name, value).unwrap();
        assert_eq!(quorum("x-quorum-initial-group-size", 0.into()), ": {value_zero,0}");
        assert_eq!(quorum("x-max-in-memory-length", (-1).into()), ": {value_negative,-1}");
    }

    #[test]
    fn arguments_of_another_kind_are_refused() {
        let classic = " of queue type rabbit_classic_queue";
        for name in QueueKind::Classic.traits().foreign_arguments {
            assert_eq!(check(QueueKind::Classic, name, 1).as_deref(), Some(classic));
        }
        let quorum = " of queue type rabbit_quorum_queue";
        for name in QueueKind::Quorum.traits().foreign_arguments {
            assert_eq!(check(QueueKind::Quorum, name, 1).as_deref(), Some(quorum));
        }
    }

    #[test]
    fn what_either_kind_knows_is_taken() {
        for kind in [QueueKind::Classic, QueueKind::Quorum] {
            for place in LEADER_LOCATORS {
                assert_eq!(check(kind, "x-queue-leader-locator", place), None);
            }
            assert_eq!(check(kind, "x-anything", "odd"), None);
            assert_eq!(check(kind, "x-consumer-timeout", 1000), None);
        }
        for mode in ["default", "lazy"] {
            assert_eq!(check(QueueKind::Classic, "x-queue-mode", mode), None);
        }
        for version in [1, 2] {
            assert_eq!(check(QueueKind::Classic, "x-queue-version", version), None);
        }
        assert_eq!(check(QueueKind::Quorum, "x-delivery-limit", 3), None);
        assert_eq!(check(QueueKind::Quorum, "x-quorum-initial-group-size", 3), None);
    }
}
