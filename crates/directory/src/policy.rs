//! Policies: what an operator says of all queues and exchanges whose names match a pattern.
//!
//! Two of them count for a queue: of its virtual host's policies the first that matches, and the first of the operator
//! policies, which set limits to what others may say. An exchange has one.

pub mod definition;

use crate::exchange::ExchangeInfo;
use crate::permission::Pattern;
use crate::queue_info::QueueInfo;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use lepus_amqp::table::{Table, TableBytes, TableRef};
use lepus_queue::{PolicySettings, QueueKind};

/// Longest name of a policy in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Who sets a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyScope {
    /// Who may set policies in the virtual host.
    User,
    /// The operator of the broker, as a limit to what those set.
    Operator,
}

impl PolicyScope {
    /// Both.
    pub const ALL: [PolicyScope; 2] = [PolicyScope::User, PolicyScope::Operator];

    /// How one is called in texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyScope::User => "policy",
            PolicyScope::Operator => "operator policy",
        }
    }
}

/// What a policy may be for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ApplyTo {
    /// Queues and exchanges.
    #[default]
    All,
    /// Queues of all kinds.
    Queues,
    /// Classic queues.
    ClassicQueues,
    /// Quorum queues.
    QuorumQueues,
    /// Streams, of which there are none.
    Streams,
    /// Exchanges.
    Exchanges,
}

impl ApplyTo {
    /// All values.
    pub const ALL: [ApplyTo; 6] = [
        ApplyTo::All,
        ApplyTo::Queues,
        ApplyTo::ClassicQueues,
        ApplyTo::QuorumQueues,
        ApplyTo::Streams,
        ApplyTo::Exchanges,
    ];

    /// The word in definitions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ApplyTo::All => "all",
            ApplyTo::Queues => "queues",
            ApplyTo::ClassicQueues => "classic_queues",
            ApplyTo::QuorumQueues => "quorum_queues",
            ApplyTo::Streams => "streams",
            ApplyTo::Exchanges => "exchanges",
        }
    }

    /// The value with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ApplyTo> {
        ApplyTo::ALL.into_iter().find(|value| value.name() == name)
    }

    fn has_queues(self, kind: QueueKind) -> bool {
        match self {
            ApplyTo::All | ApplyTo::Queues => true,
            ApplyTo::ClassicQueues => kind == QueueKind::Classic,
            ApplyTo::QuorumQueues => kind == QueueKind::Quorum,
            ApplyTo::Streams | ApplyTo::Exchanges => false,
        }
    }

    fn has_exchanges(self) -> bool {
        matches!(self, ApplyTo::All | ApplyTo::Exchanges)
    }
}

/// A policy as it was set. It does not change: another takes its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    name: Box<str>,
    pattern: Pattern,
    apply_to: ApplyTo,
    priority: i64,
    definition: TableBytes,
    /// Kinds of queues that do not know one of its keys.
    unfit: Vec<QueueKind>,
}

impl Policy {
    /// A policy whose definition was checked.
    ///
    /// # Errors
    /// What is wrong with the pattern, in words.
    pub(crate) fn new(
        name: &str,
        pattern: &str,
        apply_to: ApplyTo,
        priority: i64,
        definition: TableBytes,
    ) -> Result<Policy, String> {
        let pattern = Pattern::new(pattern)?;
        Ok(Policy::of(name, pattern, apply_to, priority, definition))
    }

    /// As [`Policy::new`]; with a pattern that does not compile it is for nothing.
    pub(crate) fn recovered(
        name: &str,
        pattern: &str,
        apply_to: ApplyTo,
        priority: i64,
        definition: TableBytes,
    ) -> Policy {
        let pattern = Pattern::new(pattern).unwrap_or_else(|_| Pattern::nothing(pattern));
        Policy::of(name, pattern, apply_to, priority, definition)
    }

    fn of(
        name: &str,
        pattern: Pattern,
        apply_to: ApplyTo,
        priority: i64,
        definition: TableBytes,
    ) -> Policy {
        let knows_all = |kind: &QueueKind| {
            definition.as_ref().iter().all(|(key, _)| kind.knows_policy_key(key))
        };
        let unfit = QueueKind::all().filter(|kind| !knows_all(kind)).collect();
        Policy { name: name.into(), pattern, apply_to, priority, definition, unfit }
    }

    /// The same with another priority.
    pub(crate) fn with_priority(self, priority: i64) -> Policy {
        Policy { priority, ..self }
    }

    /// Its name, of which each virtual host has one per scope.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pattern that is searched for in names, as it was given. The empty one is found in every name.
    #[must_use]
    pub fn pattern(&self) -> &str {
        self.pattern.text()
    }

    /// What it may be for.
    #[must_use]
    pub fn apply_to(&self) -> ApplyTo {
        self.apply_to
    }

    /// Of those that match the one with the highest priority counts.
    #[must_use]
    pub fn priority(&self) -> i64 {
        self.priority
    }

    /// What it says: integers as 64-bit ones, in the order in which it was given.
    #[must_use]
    pub fn definition(&self) -> TableRef<'_> {
        self.definition.as_ref()
    }

    /// Whether it is for a queue, if no other that counts more is.
    #[must_use]
    pub fn is_for_queue(&self, queue: &QueueInfo) -> bool {
        self.takes_queue(queue, &mut 0)
    }

    /// As [`Policy::is_for_queue`]; adds what that cost, in comparisons of names, about.
    pub(crate) fn takes_queue(&self, queue: &QueueInfo, cost: &mut usize) -> bool {
        *cost += 1;
        self.apply_to.has_queues(queue.kind)
            && !self.unfit.contains(&queue.kind)
            && self.is_for_name(queue.name(), cost)
    }

    /// Whether it is for an exchange, if no other that counts more is. The default exchange has none.
    #[must_use]
    pub fn is_for_exchange(&self, exchange: &ExchangeInfo) -> bool {
        self.takes_exchange(exchange, &mut 0)
    }

    /// As [`Policy::is_for_exchange`]; adds what that cost, in comparisons of names, about.
    pub(crate) fn takes_exchange(&self, exchange: &ExchangeInfo, cost: &mut usize) -> bool {
        *cost += 1;
        self.apply_to.has_exchanges()
            && !exchange.name.is_empty()
            && self.is_for_name(&exchange.name, cost)
    }

    fn is_for_name(&self, name: &str, cost: &mut usize) -> bool {
        self.pattern.text().is_empty() || self.pattern.find(name, cost)
    }

    /// The order in which policies count: the lowest first.
    pub(crate) fn rank(&self) -> (Reverse<i64>, &str) {
        (Reverse(self.priority), &self.name)
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Policy>() + self.name.len() + self.pattern.bytes() + self.definition.len()
    }
}

/// Whether a policy may be set, wherever that is.
///
/// # Errors
/// A text as RabbitMQ has it, which begins with `Validation failed`.
pub fn check(
    name: &str,
    pattern: &str,
    apply_to: &str,
    definition: &Table,
    scope: PolicyScope,
) -> Result<(), String> {
    checked(name, pattern, apply_to, definition, scope).map(drop)
}

/// A policy that may be set, of priority 0.
pub(crate) fn checked(
    name: &str,
    pattern: &str,
    apply_to: &str,
    definition: &Table,
    scope: PolicyScope,
) -> Result<Policy, String> {
    let shown = |text: &str| text.chars().take(100).collect::<String>();
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let text = format!("name has to have 1 to {NAME_BYTES_MAX} bytes");
        return Err(definition::failed(&text));
    }
    let Some(apply_to) = ApplyTo::from_name(apply_to) else {
        let text = format!(
            "apply-to '{}' unrecognised; should be one of: 'queues', 'classic_queues', \
             'quorum_queues', 'streams', 'exchanges', or 'all'",
            shown(apply_to)
        );
        return Err(definition::failed(&text));
    };
    definition::check(definition, scope)?;
    Policy::new(name, pattern, apply_to, 0, definition.to_bytes()).map_err(|why| {
        let shown = shown(pattern);
        let text = format!("pattern should be regular expression but is invalid: '{shown}': {why}");
        definition::failed(&text)
    })
}

/// The policies that count for a queue or an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicyMatch<'a> {
    /// The first of the policies that are for it.
    pub policy: Option<&'a Policy>,
    /// The first of the operator policies that are for it; none for an exchange.
    pub operator: Option<&'a Policy>,
}

impl<'a> PolicyMatch<'a> {
    /// Whether none is for it.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.policy.is_none() && self.operator.is_none()
    }

    /// The policy's name.
    #[must_use]
    pub fn policy_name(&self) -> Option<&'a str> {
        self.policy.map(Policy::name)
    }

    /// The operator policy's name.
    #[must_use]
    pub fn operator_name(&self) -> Option<&'a str> {
        self.operator.map(Policy::name)
    }

    /// The effective definition: what both say, merged key by key; empty where there is none.
    #[must_use]
    pub fn definition(&self) -> Table {
        let of = |policy: Option<&Policy>| {
            policy.map_or_else(Table::new, |policy| policy.definition().to_owned())
        };
        definition::merged(of(self.policy), of(self.operator))
    }

    /// What they mean for a queue.
    #[must_use]
    pub fn settings(&self) -> PolicySettings {
        match (self.policy, self.operator) {
            (None, None) => PolicySettings::default(),
            (Some(one), None) | (None, Some(one)) => PolicySettings::read(one.definition()),
            _ => PolicySettings::read(self.definition().to_bytes().as_ref()),
        }
    }

    /// Where an exchange's unroutable messages go by its policy.
    #[must_use]
    pub fn alternate_exchange(&self) -> Option<&'a str> {
        let value = self.policy?.definition().get(crate::exchange::ALTERNATE_EXCHANGE)?;
        value.as_text().filter(|name| name.len() <= 255)
    }
}
