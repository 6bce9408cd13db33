//! The kinds of queues: what one knows that another does not.
//!
//! A kind is a file below, with one value of [`Kind`]; [`QueueKind`] names it. Who needs to know in what kinds differ asks
//! here and compares no names.

mod classic;
mod quorum;

use alloc::format;

use lepus_amqp::table::Table;

use super::{Arguments, Overflow, QueueSettings};
use crate::refusal::{Refusal, RefusalKind};

/// The kind of a queue, argument `x-queue-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueKind {
    /// The default.
    #[default]
    Classic,
    /// Durable, with a delivery count; one replica.
    Quorum,
}

/// In what a kind differs from others.
pub(super) struct Kind {
    /// The word in `x-queue-type`.
    name: &'static str,
    /// What RabbitMQ calls it where an argument is refused.
    module: &'static str,
    /// Known arguments of other kinds, without meaning for this one.
    pub(super) foreign_arguments: &'static [&'static str],
    /// Keys of policies that it does not know: a policy with one of them is not for queues of this kind.
    foreign_policy_keys: &'static [&'static str],
    /// Checks the values of arguments that only this kind has and that settings do not keep.
    check_own_arguments: fn(&Arguments<'_>) -> Result<(), Refusal>,
    /// The first property of a declaration that it may not have.
    forbidden: fn(Declared) -> Option<&'static str>,
    /// What becomes of a rule for what is too much.
    overflow: fn(Overflow) -> Overflow,
    /// Whether what a policy says of what is too much counts more than the argument.
    policy_rules_overflow: bool,
    /// Whether messages may have priorities.
    has_priorities: bool,
    /// Whether dead letters may wait until a queue takes them.
    has_sure_dead_letters: bool,
    /// Whether consumers are told how often a message came back.
    counts_deliveries: bool,
    /// Whether consumers of a channel may share a prefetch limit.
    shares_prefetch: bool,
    /// Whether `queue.delete` may depend on messages and consumers.
    deletes_on_condition: bool,
    /// Whether `basic.get` may pass the single active consumer by.
    serves_get_beside_active: bool,
}

/// The properties of a declaration.
#[derive(Clone, Copy)]
struct Declared {
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
}

impl QueueKind {
    const ALL: [QueueKind; 2] = [QueueKind::Classic, QueueKind::Quorum];

    /// All kinds.
    pub fn all() -> impl Iterator<Item = QueueKind> {
        QueueKind::ALL.into_iter()
    }

    /// What the kind is like.
    pub(super) fn traits(self) -> &'static Kind {
        match self {
            QueueKind::Classic => &classic::KIND,
            QueueKind::Quorum => &quorum::KIND,
        }
    }

    /// The word in `x-queue-type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.traits().name
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<QueueKind> {
        QueueKind::all().find(|kind| kind.name() == name)
    }

    /// The kind that the arguments ask for, `default` where they say nothing.
    ///
    /// # Errors
    /// 406 for a value that is no known kind. Streams do not exist: to consume one like a queue
    /// would destroy its data.
    pub fn of(
        arguments: &Table,
        default: QueueKind,
        queue: &str,
        vhost: &str,
    ) -> Result<QueueKind, Refusal> {
        let arguments = Arguments { table: arguments, queue, vhost };
        let Some(name) = arguments.text("x-queue-type")? else {
            return Ok(default);
        };
        if name == "stream" {
            let text = "\"queue type 'stream' is not supported by this server\"";
            return Err(arguments.invalid("x-queue-type", text));
        }
        QueueKind::from_name(name).ok_or_else(|| {
            let text = format!("\"unsupported queue type '{name}'\"");
            arguments.invalid("x-queue-type", text)
        })
    }

    /// Whether a queue of this kind may have these properties.
    ///
    /// # Errors
    /// 406 for a property that the kind does not have: a quorum queue is durable, not exclusive, and does not delete
    /// itself.
    pub fn check_properties(
        self,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        queue: &str,
        vhost: &str,
    ) -> Result<(), Refusal> {
        match (self.traits().forbidden)(Declared { durable, exclusive, auto_delete }) {
            None => Ok(()),
            Some(property) => Err(Refusal::new(
                RefusalKind::PreconditionFailed,
                format!("invalid property '{property}' for queue '{queue}' in vhost '{vhost}'"),
            )),
        }
    }

    /// Whether consumers are told how often a message came back.
    #[must_use]
    pub fn counts_deliveries(self) -> bool {
        self.traits().counts_deliveries
    }

    /// Whether consumers of a channel with a prefetch limit for all of them together may consume from it.
    #[must_use]
    pub fn shares_prefetch(self) -> bool {
        self.traits().shares_prefetch
    }

    /// Whether `queue.delete` may depend on whether the queue is used or empty.
    #[must_use]
    pub fn deletes_on_condition(self) -> bool {
        self.traits().deletes_on_condition
    }

    /// Whether a policy with this key may be for queues of this kind.
    #[must_use]
    pub fn knows_policy_key(self, key: &str) -> bool {
        !self.traits().foreign_policy_keys.contains(&key)
    }

    /// Whether a queue with these settings answers `basic.get`.
    #[must_use]
    pub fn serves_get(self, settings: &QueueSettings) -> bool {
        self.traits().serves_get_beside_active || !settings.single_active_consumer
    }
}

impl Kind {
    /// The rule for what is too much, as this kind knows it.
    pub(super) fn overflow(&self, asked: Overflow) -> Overflow {
        (self.overflow)(asked)
    }

    /// Whether what a policy says of what is too much counts more than the argument.
    pub(super) fn policy_rules_overflow(&self) -> bool {
        self.policy_rules_overflow
    }

    /// Whether messages may have priorities.
    pub(super) fn has_priorities(&self) -> bool {
        self.has_priorities
    }

    /// Whether dead letters wait until a queue takes them, should that be asked for. What is too much must be refused
    /// then: a queue cannot wait for itself to have room.
    pub(super) fn may_wait_for_dead_letters(&self, overflow: Overflow) -> bool {
        self.has_sure_dead_letters && overflow == Overflow::RejectPublish
    }

    /// Checks the arguments that only this kind has.
    ///
    /// # Errors
    /// 406 for a value that means nothing.
    pub(super) fn check_arguments(&self, arguments: &Arguments<'_>) -> Result<(), Refusal> {
        (self.check_own_arguments)(arguments)
    }

    /// Refuses arguments of another kind.
    ///
    /// # Errors
    /// 406 for the first of them.
    pub(super) fn check_foreign(&self, arguments: &Arguments<'_>) -> Result<(), Refusal> {
        let Arguments { table, queue, vhost } = arguments;
        let mut names = table.0.iter().map(|(name, _)| name);
        let found = names.find(|name| self.foreign_arguments.contains(&&***name));
        found.map_or(Ok(()), |name| {
            Err(Refusal::new(
                RefusalKind::PreconditionFailed,
                format!(
                    "invalid arg '{name}' for queue '{queue}' in vhost '{vhost}' of queue type {}",
                    self.module
                ),
            ))
        })
    }
}
