//! Queue arguments (`x-…` of `queue.declare`): meaning, validation and equivalence.

mod check;
mod kind;
mod policy;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Display;
use core::time::Duration;
use lepus_amqp::table::{Table, Value};

use crate::refusal::{Refusal, RefusalKind};

pub use kind::QueueKind;
pub use policy::PolicySettings;

/// The longest time that a timer argument or a message's `expiration` may name, in milliseconds: ten
/// years.
pub const TIMER_MILLIS_MAX: u64 = 315_360_000_000;
/// The protocol's limit for names and routing keys in bytes.
const SHORT_STRING_BYTES_MAX: usize = 255;

/// The arguments that a redeclaration has to repeat.
const COMPARED: [&str; 12] = [
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-single-active-consumer",
    "x-delivery-limit",
    "x-unmatched-after",
];

/// What happens to a message that a full queue cannot hold, argument `x-overflow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest ready message is dropped.
    #[default]
    DropHead,
    /// The new message is refused.
    RejectPublish,
    /// The new message is refused and dead-lettered.
    RejectPublishDlx,
}

/// The meaning of a queue's arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// `x-message-ttl`: how long a message may wait.
    pub message_ttl: Option<Duration>,
    /// `x-expires`: how long the queue may be unused.
    pub expires: Option<Duration>,
    /// `x-max-length`: ready messages at most.
    pub max_length: Option<u64>,
    /// `x-max-length-bytes`: payload bytes of ready messages at most.
    pub max_length_bytes: Option<u64>,
    /// `x-overflow`.
    pub overflow: Overflow,
    /// `x-dead-letter-exchange`; the empty name is the default exchange.
    pub dead_letter_exchange: Option<Box<str>>,
    /// Whether dead letters wait until a queue takes them: `x-dead-letter-strategy` says
    /// `at-least-once`, on a quorum queue that refuses what is too much.
    pub at_least_once: bool,
    /// `x-dead-letter-routing-key`; without it messages keep their keys.
    pub dead_letter_routing_key: Option<Box<str>>,
    /// `x-max-priority`: the highest priority that the queue tells apart.
    pub max_priority: Option<u8>,
    /// `x-single-active-consumer`.
    pub single_active_consumer: bool,
    /// `x-delivery-limit`: how often a message may come back.
    pub delivery_limit: Option<u32>,
    /// `x-consumer-timeout`: how long a delivery may wait for its acknowledgement; zero is for ever.
    pub consumer_timeout: Option<Duration>,
    /// `x-unmatched-after`: how long a message stays that matches no consumer's filter, while there are consumers.
    pub unmatched_after: Option<Duration>,
    /// `x-queue-type`.
    pub kind: QueueKind,
}

impl Overflow {
    /// The word in `x-overflow`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Overflow::DropHead => "drop-head",
            Overflow::RejectPublish => "reject-publish",
            Overflow::RejectPublishDlx => "reject-publish-dlx",
        }
    }

    /// The rule with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Overflow> {
        match name {
            "drop-head" => Some(Overflow::DropHead),
            "reject-publish" => Some(Overflow::RejectPublish),
            "reject-publish-dlx" => Some(Overflow::RejectPublishDlx),
            _ => None,
        }
    }
}

impl QueueSettings {
    /// Those of a queue without arguments.
    pub const PLAIN: QueueSettings = QueueSettings {
        message_ttl: None,
        expires: None,
        max_length: None,
        max_length_bytes: None,
        overflow: Overflow::DropHead,
        dead_letter_exchange: None,
        at_least_once: false,
        dead_letter_routing_key: None,
        max_priority: None,
        single_active_consumer: false,
        delivery_limit: None,
        consumer_timeout: None,
        unmatched_after: None,
        kind: QueueKind::Classic,
    };

    /// Reads the arguments that have a meaning; others are ignored.
    ///
    /// # Errors
    /// 406 for a value of the wrong type or out of range.
    pub fn parse(
        arguments: &Table,
        kind: QueueKind,
        queue: &str,
        vhost: &str,
    ) -> Result<QueueSettings, Refusal> {
        if arguments.0.is_empty() {
            return Ok(QueueSettings { kind, ..QueueSettings::PLAIN });
        }
        let arguments = Arguments { table: arguments, queue, vhost };
        let expires = arguments.millis("x-expires")?;
        if expires == Some(Duration::ZERO) {
            return Err(arguments.invalid("x-expires", "{value_zero,0}"));
        }
        let dead_letter_exchange = arguments.short_text("x-dead-letter-exchange")?;
        let dead_letter_routing_key = arguments.short_text("x-dead-letter-routing-key")?;
        if dead_letter_routing_key.is_some() && dead_letter_exchange.is_none() {
            let name = "x-dead-letter-routing-key";
            return Err(arguments.invalid(name, "routing_key_but_no_dlx_defined"));
        }
        let overflow = arguments.overflow(kind)?;
        let at_least_once = arguments.is_at_least_once()?
            && kind.traits().may_wait_for_dead_letters(overflow)
            && dead_letter_exchange.is_some();
        Ok(QueueSettings {
            message_ttl: arguments.millis("x-message-ttl")?,
            expires,
            max_length: arguments.count("x-max-length")?,
            max_length_bytes: arguments.count("x-max-length-bytes")?,
            overflow,
            at_least_once,
            dead_letter_exchange,
            dead_letter_routing_key,
            max_priority: arguments.max_priority(kind)?,
            single_active_consumer: arguments.flag("x-single-active-consumer")?,
            delivery_limit: arguments.delivery_limit()?,
            consumer_timeout: arguments.count("x-consumer-timeout")?.map(Duration::from_millis),
            unmatched_after: arguments.millis("x-unmatched-after")?,
            kind,
        })
    }

    /// Compares the arguments of a redeclaration with those of the queue, one known argument after
    /// the other. Unknown ones do not matter, nor does the width of an integer. `default` is the
    /// kind that no `x-queue-type` means.
    #[must_use]
    pub fn inequivalent(
        current: &Table,
        received: &Table,
        default: QueueKind,
        queue: &str,
        vhost: &str,
    ) -> Option<Refusal> {
        let default = Value::LongString(default.name().as_bytes().to_vec());
        let kinds = [current, received].map(|table| table.get("x-queue-type").unwrap_or(&default));
        let kinds = ("x-queue-type", Some(kinds[0]), Some(kinds[1]));
        let others = COMPARED.map(|name| (name, current.get(name), received.get(name)));
        let (name, current, received) =
            core::iter::once(kinds).chain(others).find(|(_, current, received)| {
                match (current, received) {
                    (None, None) => false,
                    (Some(current), Some(received)) => !current.is_equivalent(received),
                    _ => true,
                }
            })?;
        Some(Refusal::new(
            RefusalKind::PreconditionFailed,
            format!(
                "inequivalent arg '{name}' for queue '{queue}' in vhost '{vhost}': received {} \
                 but current is {}",
                describe(received),
                describe(current)
            ),
        ))
    }
}

/// A value as RabbitMQ describes it in an error text.
fn describe(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "none".to_string();
    };
    let text = match (integer(value), value) {
        (Some(number), _) => number.to_string(),
        (_, Value::Bool(flag)) => flag.to_string(),
        (_, Value::LongString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        (_, Value::F32(number)) => number.to_string(),
        (_, Value::F64(number)) => number.to_string(),
        (_, Value::Timestamp(seconds)) => seconds.to_string(),
        _ => "...".to_string(),
    };
    format!("the value '{text}' of type '{}'", value.type_name())
}

/// The number of an integer of any width.
fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::U64(number) => Some(i128::from(*number)),
        _ => value.as_integer().map(i128::from),
    }
}

/// The arguments of one declaration, and whose they are.
#[derive(Clone, Copy)]
struct Arguments<'a> {
    table: &'a Table,
    queue: &'a str,
    vhost: &'a str,
}

impl<'a> Arguments<'a> {
    fn invalid(&self, name: &str, problem: impl Display) -> Refusal {
        let Arguments { queue, vhost, .. } = self;
        Refusal::new(
            RefusalKind::PreconditionFailed,
            format!("invalid arg '{name}' for queue '{queue}' in vhost '{vhost}': {problem}"),
        )
    }

    fn wrong_type(&self, name: &str, value: &Value) -> Refusal {
        self.invalid(name, format!("{{unacceptable_type,{}}}", value.type_name()))
    }

    fn integer(&self, name: &str) -> Result<Option<i128>, Refusal> {
        let Some(value) = self.table.get(name) else {
            return Ok(None);
        };
        integer(value).map(Some).ok_or_else(|| self.wrong_type(name, value))
    }

    fn natural(&self, name: &str) -> Result<Option<i128>, Refusal> {
        match self.integer(name)? {
            Some(number) if number < 0 => {
                Err(self.invalid(name, format!("{{value_negative,{number}}}")))
            }
            number => Ok(number),
        }
    }

    fn count(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let count = self.natural(name)?;
        Ok(count.map(|count| u64::try_from(count).unwrap_or(u64::MAX)))
    }

    fn millis(&self, name: &str) -> Result<Option<Duration>, Refusal> {
        match self.natural(name)? {
            Some(millis) if millis > i128::from(TIMER_MILLIS_MAX) => {
                Err(self.invalid(name, format!("{{value_too_large,{millis}}}")))
            }
            millis => Ok(millis.map(|millis| Duration::from_millis(millis as u64))),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Refusal> {
        let Some(value) = self.table.get(name) else {
            return Ok(None);
        };
        match value {
            Value::LongString(_) => match value.as_text() {
                Some(text) => Ok(Some(text)),
                None => Err(self.invalid(name, "not_utf8")),
            },
            _ => Err(self.wrong_type(name, value)),
        }
    }

    /// A text that has to fit into a short string later.
    fn short_text(&self, name: &str) -> Result<Option<Box<str>>, Refusal> {
        match self.text(name)? {
            Some(text) if text.len() > SHORT_STRING_BYTES_MAX => {
                Err(self.invalid(name, format!("{{value_too_long,{}}}", text.len())))
            }
            text => Ok(text.map(Box::from)),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.table.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(self.wrong_type(name, value)),
        }
    }

    fn overflow(&self, kind: QueueKind) -> Result<Overflow, Refusal> {
        let Some(name) = self.text("x-overflow")? else {
            return Ok(Overflow::DropHead);
        };
        match Overflow::from_name(name) {
            None => Err(self.invalid("x-overflow", "invalid_overflow")),
            Some(overflow) => Ok(kind.traits().overflow(overflow)),
        }
    }

    /// `None` also for a kind that has none.
    fn max_priority(&self, kind: QueueKind) -> Result<Option<u8>, Refusal> {
        let name = "x-max-priority";
        match self.natural(name)? {
            Some(priority) if kind.traits().has_priorities() => match u8::try_from(priority) {
                Ok(priority) => Ok(Some(priority)),
                Err(_) => Err(self.invalid(name, format!("{{max_value_exceeded,{priority}}}"))),
            },
            _ => Ok(None),
        }
    }

    /// A negative limit means none.
    fn delivery_limit(&self) -> Result<Option<u32>, Refusal> {
        Ok(match self.integer("x-delivery-limit")? {
            Some(limit) if limit >= 0 => Some(u32::try_from(limit).unwrap_or(u32::MAX)),
            _ => None,
        })
    }

    fn is_at_least_once(&self) -> Result<bool, Refusal> {
        let name = "x-dead-letter-strategy";
        match self.text(name)? {
            None | Some("at-most-once") => Ok(false),
            Some("at-least-once") => Ok(true),
            Some(_) => Err(self.invalid(name, "invalid_dlx_strategy")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn parse(name: &str, value: impl Into<Value>) -> Result<QueueSettings, String> {
        let table = Table::new().with(name, value);
        QueueSettings::parse(&table, QueueKind::Classic, "q", "/").map_err(|refusal| {
            assert_eq!(refusal.kind, RefusalKind::PreconditionFailed);
            refusal.into_reply()
        })
    }

    fn refusal(name: &str, value: impl Into<Value>) -> String {
        let text = parse(name, value).unwrap_err();
        let start = format!("invalid arg '{name}' for queue 'q' in vhost '/': ");
        text.strip_prefix(&start).expect("the usual start").into()
    }

    #[test]
    fn a_ttl_may_be_an_integer_of_any_width() {
        for value in [
            Value::I8(5),
            Value::U8(5),
            Value::I16(5),
            Value::U16(5),
            Value::I32(5),
            Value::U32(5),
            Value::I64(5),
            Value::U64(5),
        ] {
            let settings = parse("x-message-ttl", value).unwrap();
            assert_eq!(settings.message_ttl, Some(Duration::from_millis(5)));
        }
        let settings = parse("x-message-ttl", 0).unwrap();
        assert_eq!(settings.message_ttl, Some(Duration::ZERO));
    }

    #[test]
    fn wrong_types_are_refused_by_name() {
        assert_eq!(refusal("x-message-ttl", 1.0), "{unacceptable_type,double}");
        assert_eq!(refusal("x-expires", "1"), "{unacceptable_type,longstr}");
        assert_eq!(refusal("x-max-length", true), "{unacceptable_type,bool}");
        let exchange = "x-dead-letter-exchange";
        assert_eq!(refusal(exchange, 1), "{unacceptable_type,signedint}");
        let single = "x-single-active-consumer";
        assert_eq!(refusal(single, "true"), "{unacceptable_type,longstr}");
        assert_eq!(refusal("x-overflow", 1), "{unacceptable_type,signedint}");
        assert_eq!(refusal("x-expires", Value::Void), "{unacceptable_type,void}");
    }

    #[test]
    fn values_out_of_range_are_refused() {
        assert_eq!(refusal("x-message-ttl", -1), "{value_negative,-1}");
        for name in ["x-message-ttl", "x-expires"] {
            assert_eq!(
                refusal(name, Value::I64(315_360_000_001)),
                "{value_too_large,315360000001}"
            );
            assert!(parse(name, Value::I64(315_360_000_000)).is_ok());
        }
        let big = Value::U64(u64::MAX);
        assert_eq!(refusal("x-message-ttl", big.clone()), "{value_too_large,18446744073709551615}");
        assert_eq!(refusal("x-expires", 0), "{value_zero,0}");
        assert_eq!(refusal("x-expires", -1), "{value_negative,-1}");
        assert_eq!(refusal("x-max-length-bytes", -7), "{value_negative,-7}");
        assert_eq!(refusal("x-max-priority", 256), "{max_value_exceeded,256}");
        assert_eq!(refusal("x-max-priority", -1), "{value_negative,-1}");
        assert_eq!(refusal("x-overflow", "drop-tail"), "invalid_overflow");
        assert_eq!(parse("x-max-priority", 255).unwrap().max_priority, Some(255));
        let long = vec![b'x'; 256];
        let exchange = "x-dead-letter-exchange";
        assert_eq!(refusal(exchange, Value::LongString(long)), "{value_too_long,256}");
        let settings = parse("x-max-length", big).unwrap();
        assert_eq!(settings.max_length, Some(u64::MAX));
    }

    #[test]
    fn a_dead_letter_key_needs_an_exchange() {
        let key = "x-dead-letter-routing-key";
        assert_eq!(refusal(key, "k"), "routing_key_but_no_dlx_defined");
        let table = Table::new().with(key, "k").with("x-dead-letter-exchange", "");
        let settings = QueueSettings::parse(&table, QueueKind::Classic, "q", "/").unwrap();
        assert_eq!(settings.dead_letter_exchange.as_deref(), Some(""));
        assert_eq!(settings.dead_letter_routing_key.as_deref(), Some("k"));
    }

    #[test]
    fn arguments_without_a_meaning_here_are_ignored() {
        for name in [
            "x-queue-mode",
            "x-max-in-memory-length",
            "x-quorum-initial-group-size",
            "x-queue-leader-locator",
            "x-anything",
        ] {
            assert_eq!(parse(name, "lazy").unwrap(), QueueSettings::default());
        }
    }

    #[test]
    fn a_negative_delivery_limit_means_none() {
        assert_eq!(parse("x-delivery-limit", -1).unwrap().delivery_limit, None);
        let settings = parse("x-delivery-limit", 3).unwrap();
        assert_eq!(settings.delivery_limit, Some(3));
    }

    #[test]
    fn the_kind_is_classic_or_quorum_and_streams_are_refused() {
        let kind = |value: &str| {
            let table = Table::new().with("x-queue-type", value);
            QueueKind::of(&table, QueueKind::Classic, "q", "/").map_err(Refusal::into_reply)
        };
        assert_eq!(kind("quorum"), Ok(QueueKind::Quorum));
        assert_eq!(kind("classic"), Ok(QueueKind::Classic));
        assert!(kind("stream").unwrap_err().contains("not supported"));
        assert!(kind("x").unwrap_err().contains("unsupported queue type 'x'"));
        let default = QueueKind::of(&Table::new(), QueueKind::Quorum, "q", "/");
        assert_eq!(default, Ok(QueueKind::Quorum));
    }

    #[test]
    fn a_quorum_queue_is_durable_and_shared_and_has_no_levels() {
        let check = |durable, exclusive, auto_delete| {
            let kind = QueueKind::Quorum;
            kind.check_properties(durable, exclusive, auto_delete, "q", "/")
                .map_err(Refusal::into_reply)
        };
        assert_eq!(check(true, false, false), Ok(()));
        assert_eq!(
            check(false, false, false).unwrap_err(),
            "invalid property 'non-durable' for queue 'q' in vhost '/'"
        );
        assert!(check(true, true, false).unwrap_err().contains("exclusive"));
        assert!(check(true, false, true).unwrap_err().contains("auto-delete"));
        let table = Table::new().with("x-max-priority", 5);
        let settings = QueueSettings::parse(&table, QueueKind::Quorum, "q", "/").unwrap();
        assert_eq!(settings.max_priority, None);
    }

    #[test]
    fn a_redeclaration_is_compared_argument_by_argument() {
        let compare = |current: &Table, received: &Table| {
            QueueSettings::inequivalent(current, received, QueueKind::Classic, "q", "/")
                .map(Refusal::into_reply)
        };
        let five = Table::new().with("x-max-length", 5);
        let wide = Table::new()
            .with("x-max-length", Value::I64(5))
            .with("x-unknown", 1)
            .with("x-queue-type", "classic");
        assert_eq!(compare(&five, &wide), None);
        assert_eq!(
            compare(&five, &Table::new()).as_deref(),
            Some(
                "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but \
                 current is the value '5' of type 'signedint'"
            )
        );
        let float = Table::new().with("x-max-length", 5.0);
        assert!(compare(&five, &float).is_some());
        let quorum = Table::new().with("x-queue-type", "quorum");
        assert_eq!(
            compare(&Table::new(), &quorum).as_deref(),
            Some(
                "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value \
                 'quorum' of type 'longstr' but current is the value 'classic' of type 'longstr'"
            )
        );
    }
}
