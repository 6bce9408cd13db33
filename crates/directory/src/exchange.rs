//! Exchanges: their types, attributes and what their arguments mean.

use crate::hash_subject::HashSubject;
use alloc::boxed::Box;
use alloc::format;
use lepus_amqp::table::{Table, TableBytes, Value};
use lepus_base::{QueueId, VhostId};
use lepus_queue::refusal::{Refusal, RefusalKind};

/// The type name of exchanges that hold messages back for a time.
pub const DELAYED_TYPE: &str = "x-delayed-message";
/// The argument that names where unroutable messages go.
pub const ALTERNATE_EXCHANGE: &str = "alternate-exchange";
/// The argument that names how a delayed exchange routes.
pub const DELAYED_KIND: &str = "x-delayed-type";

/// How an exchange routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeKind {
    /// By the exact routing key.
    Direct,
    /// To everything that is bound.
    Fanout,
    /// By patterns of words.
    Topic,
    /// By the message's headers.
    Headers,
    /// To one binding by a hash that moves few keys when bindings change; weights as keys.
    ConsistentHash,
    /// To one binding by a hash of the routing key modulo their number.
    ModulusHash,
    /// To one random binding.
    Random,
    /// To one random binding; binding keys are empty.
    LocalRandom,
    /// By the filters of bindings alone, each of which has one.
    Filter,
}

impl ExchangeKind {
    /// The type's name in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ExchangeKind::Direct => "direct",
            ExchangeKind::Fanout => "fanout",
            ExchangeKind::Topic => "topic",
            ExchangeKind::Headers => "headers",
            ExchangeKind::ConsistentHash => "x-consistent-hash",
            ExchangeKind::ModulusHash => "x-modulus-hash",
            ExchangeKind::Random => "x-random",
            ExchangeKind::LocalRandom => "x-local-random",
            ExchangeKind::Filter => "x-filter",
        }
    }

    /// The type of that name; none for `x-delayed-message`, which is not a way of routing.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ExchangeKind> {
        ExchangeKind::all().find(|kind| kind.name() == name)
    }

    /// All types.
    pub fn all() -> impl Iterator<Item = ExchangeKind> {
        [
            ExchangeKind::Direct,
            ExchangeKind::Fanout,
            ExchangeKind::Topic,
            ExchangeKind::Headers,
            ExchangeKind::ConsistentHash,
            ExchangeKind::ModulusHash,
            ExchangeKind::Random,
            ExchangeKind::LocalRandom,
            ExchangeKind::Filter,
        ]
        .into_iter()
    }
}

/// Attributes of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeInfo {
    /// The virtual host it belongs to.
    pub vhost: VhostId,
    /// Its name; empty for the default exchange.
    pub name: Box<str>,
    /// How it routes.
    pub kind: ExchangeKind,
    /// Whether it holds messages back for the milliseconds in their `x-delay` header
    /// (type `x-delayed-message`; `kind` is the type in `x-delayed-type`).
    pub delayed: bool,
    /// Under which id the logs have what it holds back; no queue has the same. Only definitions of
    /// an earlier version lack it, until they are loaded.
    pub holding: Option<QueueId>,
    /// Whether it survives a restart.
    pub durable: bool,
    /// Whether it goes with its last binding as a source.
    pub auto_delete: bool,
    /// Whether clients may not publish to it.
    pub internal: bool,
    /// Where a message goes that it routes nowhere.
    pub alternate: Option<Box<str>>,
    /// The arguments as declared.
    pub arguments: TableBytes,
}

impl ExchangeInfo {
    /// The type's name as it was declared.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        if self.delayed { DELAYED_TYPE } else { self.kind.name() }
    }

    /// Whether every virtual host has it from the start; such an exchange is not exported.
    #[must_use]
    pub fn is_predeclared(&self) -> bool {
        self.name.is_empty() || self.name.starts_with("amq.")
    }

    /// An exchange as a client asks for it. `name` is clean, not empty and not checked further.
    ///
    /// # Errors
    /// 406 for an unknown type and for arguments that make no sense.
    pub(crate) fn parse(
        wanted: Wanted<'_>,
        vhost: VhostId,
        vhost_name: &str,
    ) -> Result<ExchangeInfo, Refusal> {
        let Wanted { name, kind: kind_name, arguments, .. } = wanted;
        let refuse = |text| Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        let delayed = kind_name == DELAYED_TYPE;
        let kind = if delayed {
            let inner = arguments.get(DELAYED_KIND).and_then(Value::as_text);
            let Some(kind) = inner.and_then(ExchangeKind::from_name) else {
                return refuse(format!(
                    "Invalid argument, '{DELAYED_KIND}' must be an existing exchange type"
                ));
            };
            kind
        } else {
            let Some(kind) = ExchangeKind::from_name(kind_name) else {
                return refuse(format!("unknown exchange type '{kind_name}'"));
            };
            kind
        };
        if kind == ExchangeKind::ConsistentHash {
            HashSubject::of(arguments)?;
        }
        let alternate = match arguments.get(ALTERNATE_EXCHANGE) {
            None => None,
            Some(value) => match value.as_text() {
                Some(text) => Some(text.into()),
                None => {
                    return refuse(format!(
                        "invalid type '{}' for arg '{ALTERNATE_EXCHANGE}' in exchange '{name}' in vhost '{vhost_name}'",
                        value.type_name()
                    ));
                }
            },
        };
        Ok(ExchangeInfo {
            vhost,
            name: name.into(),
            kind,
            delayed,
            holding: None,
            durable: wanted.durable,
            auto_delete: wanted.auto_delete,
            internal: wanted.internal,
            alternate,
            arguments: arguments.to_bytes(),
        })
    }

    /// The first attribute in which `wanted` differs, with the wanted and the present value. Of
    /// the arguments only those count that change how the exchange works.
    pub(crate) fn difference(&self, wanted: &Wanted<'_>) -> Option<Difference> {
        let quote = |text: &str| format!("'{text}'").into_boxed_str();
        if wanted.kind != self.kind_name() {
            return Some(Difference {
                name: "type",
                received: quote(wanted.kind),
                current: quote(self.kind_name()),
            });
        }
        let flags = [
            ("durable", wanted.durable, self.durable),
            ("auto_delete", wanted.auto_delete, self.auto_delete),
            ("internal", wanted.internal, self.internal),
        ];
        for (name, received, current) in flags {
            if received != current {
                return Some(Difference {
                    name,
                    received: quote(if received { "true" } else { "false" }),
                    current: quote(if current { "true" } else { "false" }),
                });
            }
        }
        let current = |name| self.arguments.as_ref().get(name).map(|value| value.to_owned());
        let names = [ALTERNATE_EXCHANGE, DELAYED_KIND];
        let compared = if self.delayed { &names[..] } else { &names[..1] };
        compared.iter().find_map(|name| {
            let (received, current) = (wanted.arguments.get(name), current(name));
            let is_same = match (received, &current) {
                (None, None) => true,
                (Some(one), Some(two)) => one.is_equivalent(two),
                _ => false,
            };
            (!is_same).then(|| Difference {
                name,
                received: describe(received),
                current: describe(current.as_ref()),
            })
        })
    }
}

/// The wanted attributes of an exchange, borrowed from a request.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) durable: bool,
    pub(crate) auto_delete: bool,
    pub(crate) internal: bool,
    pub(crate) arguments: &'a Table,
}

/// An attribute that differs, with both values in words.
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    pub(crate) received: Box<str>,
    pub(crate) current: Box<str>,
}

/// An argument's value as refusals word it.
fn describe(value: Option<&Value>) -> Box<str> {
    let Some(value) = value else {
        return "none".into();
    };
    let kind = value.type_name();
    let text = match (value.as_text(), value.as_integer()) {
        (Some(text), _) => format!("the value '{text}' of type '{kind}'"),
        (None, Some(number)) => format!("the value '{number}' of type '{kind}'"),
        (None, None) => format!("the value '{value:?}' of type '{kind}'"),
    };
    text.into_boxed_str()
}

/// The exchange of each virtual host that gets copies of what is published and delivered there, while it is traced.
pub const TRACE_EXCHANGE: &str = "amq.rabbitmq.trace";

/// The exchanges that every virtual host has from the start: name, type, internal.
pub(crate) const PREDECLARED: [(&str, ExchangeKind, bool); 7] = [
    ("", ExchangeKind::Direct, false),
    ("amq.direct", ExchangeKind::Direct, false),
    ("amq.fanout", ExchangeKind::Fanout, false),
    ("amq.headers", ExchangeKind::Headers, false),
    ("amq.match", ExchangeKind::Headers, false),
    (TRACE_EXCHANGE, ExchangeKind::Topic, true),
    ("amq.topic", ExchangeKind::Topic, false),
];
