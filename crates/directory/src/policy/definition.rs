//! Definitions of policies: which keys there are, which values they take, and how two are merged.

use alloc::format;
use alloc::string::{String, ToString};
use core::cmp::Ordering;
use lepus_amqp::table::{Table, Value};
use lepus_queue::{Overflow, TIMER_MILLIS_MAX};

use super::PolicyScope;
use crate::permission::Pattern;

/// Names travel as short strings.
const NAME_BYTES_MAX: usize = 255;

/// What comes of a key that policy and operator policy both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    /// The lower number.
    Lower,
    /// The greater number.
    Greater,
    /// The lower number, of which a negative one is none.
    Stricter,
    /// What the operator says.
    Operator,
    /// Operator policies do not have it.
    Never,
}

/// A key that a definition may have.
struct Key {
    name: &'static str,
    /// What a value is called that is none: `5 is not a valid …`.
    what: &'static str,
    is_valid: fn(&Value) -> bool,
    merge: Merge,
    /// Taken and kept, without any effect.
    is_old: bool,
}

const fn key(
    name: &'static str,
    what: &'static str,
    is_valid: fn(&Value) -> bool,
    merge: Merge,
) -> Key {
    Key { name, what, is_valid, merge, is_old: false }
}

const fn old(
    name: &'static str,
    what: &'static str,
    is_valid: fn(&Value) -> bool,
    merge: Merge,
) -> Key {
    Key { name, what, is_valid, merge, is_old: true }
}

static KEYS: [Key; 37] = [
    key("message-ttl", "message TTL", is_time, Merge::Lower),
    key("expires", "queue expiry", is_lease, Merge::Lower),
    key("max-length", "maximum length", is_natural, Merge::Lower),
    key("max-length-bytes", "maximum length in bytes", is_natural, Merge::Lower),
    key("overflow", "overflow value", is_overflow, Merge::Operator),
    key("dead-letter-exchange", "dead letter exchange name", is_name, Merge::Never),
    key("dead-letter-routing-key", "dead letter routing key", is_name, Merge::Never),
    key("dead-letter-strategy", "dead letter strategy", is_strategy, Merge::Never),
    key("delivery-limit", "delivery limit", is_integer, Merge::Stricter),
    key("unmatched-after", "time for unmatched messages", is_time, Merge::Lower),
    key("alternate-exchange", "alternate exchange name", is_name, Merge::Never),
    key("max-age", "max age", is_age, Merge::Never),
    key("stream-max-segment-size-bytes", "segment size", is_natural, Merge::Never),
    key("stream-filter-size-bytes", "filter size", is_filter_size, Merge::Never),
    key("queue-leader-locator", "queue leader locator value", is_locator, Merge::Never),
    key("initial-cluster-size", "cluster size", is_natural, Merge::Never),
    key("target-group-size", "target group size", is_positive, Merge::Greater),
    key("member-placement-tag", "member placement tag", is_text, Merge::Operator),
    key("consumer-timeout", "consumer timeout", is_time, Merge::Never),
    key("consumer-disconnected-timeout", "consumer disconnected timeout", is_time, Merge::Never),
    key("delayed-retry-type", "delayed retry type", is_text, Merge::Operator),
    key("delayed-retry-min", "delayed retry minimum", is_natural, Merge::Greater),
    key("delayed-retry-max", "delayed retry maximum", is_natural, Merge::Lower),
    key("federation-upstream", "federation upstream name", is_text, Merge::Never),
    key("federation-upstream-set", "federation upstream set name", is_text, Merge::Never),
    key("federation-upstream-pattern", "federation upstream pattern", is_pattern, Merge::Never),
    old("ha-mode", "ha-mode", is_text, Merge::Never),
    old("ha-params", "ha-params", is_anything, Merge::Never),
    old("ha-sync-mode", "ha-sync-mode", is_text, Merge::Never),
    old("ha-sync-batch-size", "ha-sync-batch-size", is_natural, Merge::Never),
    old("ha-promote-on-shutdown", "ha-promote-on-shutdown", is_text, Merge::Never),
    old("ha-promote-on-failure", "ha-promote-on-failure", is_text, Merge::Never),
    old("queue-mode", "queue-mode value", is_mode, Merge::Never),
    old("queue-version", "queue version", is_version, Merge::Operator),
    old("queue-master-locator", "queue master locator", is_text, Merge::Operator),
    old("max-in-memory-length", "maximum length in memory", is_natural, Merge::Lower),
    old("max-in-memory-bytes", "maximum length in memory in bytes", is_natural, Merge::Lower),
];

fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The keys of a definition that are taken and kept, and that change nothing.
pub fn old_keys(definition: &Table) -> impl Iterator<Item = &'static str> {
    definition
        .iter()
        .filter_map(|(name, _)| find(name))
        .filter(|key| key.is_old)
        .map(|key| key.name)
}

/// Whether a definition may be set.
///
/// # Errors
/// A text as RabbitMQ has it, which begins with `Validation failed`.
pub fn check(definition: &Table, scope: PolicyScope) -> Result<(), String> {
    if definition.is_empty() {
        return Err(failed("no policy provided"));
    }
    let is_known = |name: &str| {
        find(name).is_some_and(|key| scope == PolicyScope::User || key.merge != Merge::Never)
    };
    let mut unknown = String::new();
    for (name, _) in definition.iter().filter(|(name, _)| !is_known(name)) {
        let comma = if unknown.is_empty() { "" } else { "," };
        unknown += &format!("{comma}<<\"{}\">>", shown(name));
    }
    if !unknown.is_empty() {
        let what = match scope {
            PolicyScope::User => "policy",
            PolicyScope::Operator => "operator policy",
        };
        return Err(failed(&format!("[{unknown}] are not recognised {what} settings")));
    }
    for (name, value) in definition.iter() {
        if let Some(key) = find(name)
            && !(key.is_valid)(value)
        {
            return Err(failed(&format!("{} is not a valid {}", describe(value), key.what)));
        }
    }
    Ok(())
}

/// What policy and operator policy say together. In the order of the policy, then of the operator policy.
#[must_use]
pub fn merged(policy: Table, operator: Table) -> Table {
    let mut all = policy;
    for (name, theirs) in operator.0 {
        let value = match all.get(&name) {
            Some(own) => {
                let is_own = !is_operators(
                    find(&name).map_or(Merge::Operator, |key| key.merge),
                    own,
                    &theirs,
                );
                if is_own { own.clone() } else { theirs }
            }
            None => theirs,
        };
        all.insert(name, value);
    }
    all
}

/// Whether of two values that of the operator policy counts.
fn is_operators(merge: Merge, own: &Value, theirs: &Value) -> bool {
    let (Some(own), Some(theirs)) = (integer(own), integer(theirs)) else { return true };
    match (merge, theirs.cmp(&own)) {
        (Merge::Lower, order) => order != Ordering::Greater,
        (Merge::Greater, order) => order != Ordering::Less,
        (Merge::Stricter, _) if theirs < 0 || own < 0 => own < 0,
        (Merge::Stricter, order) => order != Ordering::Greater,
        (Merge::Operator | Merge::Never, _) => true,
    }
}

/// The text of a refusal.
pub(crate) fn failed(what: &str) -> String {
    format!("Validation failed\n\n{what}\n")
}

/// A text that is given back, cut where it is long.
fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

/// A value as a refusal shows it.
fn describe(value: &Value) -> String {
    match (value, integer(value)) {
        (_, Some(number)) => number.to_string(),
        (Value::Bool(flag), _) => flag.to_string(),
        (Value::LongString(_), _) => format!("<<\"{}\">>", shown(value.as_text().unwrap_or("…"))),
        (Value::F64(number), _) => number.to_string(),
        (Value::Void, _) => "null".into(),
        _ => format!("a value of type {}", value.type_name()),
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::U64(number) => Some(i128::from(*number)),
        _ => value.as_integer().map(i128::from),
    }
}

fn is_anything(_: &Value) -> bool {
    true
}

fn is_integer(value: &Value) -> bool {
    integer(value).is_some()
}

fn is_natural(value: &Value) -> bool {
    integer(value).is_some_and(|number| number >= 0)
}

fn is_positive(value: &Value) -> bool {
    integer(value).is_some_and(|number| number > 0)
}

fn is_time(value: &Value) -> bool {
    integer(value).is_some_and(|number| (0..=i128::from(TIMER_MILLIS_MAX)).contains(&number))
}

fn is_lease(value: &Value) -> bool {
    is_time(value) && is_positive(value)
}

fn is_text(value: &Value) -> bool {
    value.as_text().is_some()
}

fn is_name(value: &Value) -> bool {
    value.as_text().is_some_and(|text| text.len() <= NAME_BYTES_MAX)
}

fn is_pattern(value: &Value) -> bool {
    value.as_text().is_some_and(|text| Pattern::new(text).is_ok())
}

fn is_overflow(value: &Value) -> bool {
    value.as_text().and_then(Overflow::from_name).is_some()
}

fn is_strategy(value: &Value) -> bool {
    matches!(value.as_text(), Some("at-most-once" | "at-least-once"))
}

fn is_mode(value: &Value) -> bool {
    matches!(value.as_text(), Some("default" | "lazy"))
}

fn is_version(value: &Value) -> bool {
    matches!(integer(value), Some(1 | 2))
}

fn is_locator(value: &Value) -> bool {
    let words = ["client-local", "balanced", "random", "least-leaders", "min-masters"];
    value.as_text().is_some_and(|word| words.contains(&word))
}

fn is_filter_size(value: &Value) -> bool {
    integer(value).is_some_and(|number| (16..=255).contains(&number))
}

/// A number and a unit: years, months, days, hours, minutes, seconds.
fn is_age(value: &Value) -> bool {
    let number = value.as_text().and_then(|text| text.strip_suffix(['Y', 'M', 'D', 'h', 'm', 's']));
    number.is_some_and(|number| {
        !number.is_empty() && number.len() <= 18 && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, value: impl Into<Value>) -> Option<String> {
        let text = check(&Table::new().with(name, value), PolicyScope::User).err()?;
        let text = text.strip_prefix("Validation failed\n\n").expect("the usual start");
        Some(text.strip_suffix('\n').expect("a line").into())
    }

    #[test]
    fn values_are_checked_by_type_and_range() {
        let taken: [(&str, Value); 17] = [
            ("message-ttl", 0.into()),
            ("expires", 1.into()),
            ("max-length", Value::U64(u64::MAX)),
            ("overflow", "reject-publish-dlx".into()),
            ("delivery-limit", (-1).into()),
            ("max-age", "7D".into()),
            ("stream-filter-size-bytes", 16.into()),
            ("queue-leader-locator", "balanced".into()),
            ("dead-letter-exchange", "".into()),
            ("dead-letter-strategy", "at-least-once".into()),
            ("alternate-exchange", "ae".into()),
            ("federation-upstream-set", "all".into()),
            ("consumer-timeout", 1000.into()),
            ("ha-mode", "exactly".into()),
            ("ha-params", 2.into()),
            ("queue-mode", "lazy".into()),
            ("max-in-memory-length", 5.into()),
        ];
        for (name, value) in taken {
            assert_eq!(refusal(name, value), None, "{name}");
        }
        let refused: [(&str, Value, &str); 12] = [
            ("message-ttl", (-1).into(), "-1 is not a valid message TTL"),
            ("message-ttl", Value::I64(315_360_000_001), "315360000001 is not a valid message TTL"),
            ("expires", 0.into(), "0 is not a valid queue expiry"),
            ("max-length", "5".into(), "<<\"5\">> is not a valid maximum length"),
            ("max-length-bytes", 1.5.into(), "1.5 is not a valid maximum length in bytes"),
            ("overflow", "odd".into(), "<<\"odd\">> is not a valid overflow value"),
            ("dead-letter-exchange", 1.into(), "1 is not a valid dead letter exchange name"),
            ("max-age", "7".into(), "<<\"7\">> is not a valid max age"),
            ("stream-filter-size-bytes", 15.into(), "15 is not a valid filter size"),
            ("delivery-limit", true.into(), "true is not a valid delivery limit"),
            (
                "federation-upstream-pattern",
                "(".into(),
                "<<\"(\">> is not a valid federation upstream pattern",
            ),
            ("odd", 1.into(), "[<<\"odd\">>] are not recognised policy settings"),
        ];
        for (name, value, text) in refused {
            assert_eq!(refusal(name, value).as_deref(), Some(text));
        }
    }

    #[test]
    fn an_empty_definition_is_refused_and_so_is_what_operators_cannot_say() {
        assert!(
            check(&Table::new(), PolicyScope::User).unwrap_err().starts_with("Validation failed")
        );
        let table = Table::new()
            .with("max-length", 1)
            .with("dead-letter-exchange", "x")
            .with("ha-mode", "all");
        assert_eq!(check(&table, PolicyScope::User), Ok(()));
        assert_eq!(
            check(&table, PolicyScope::Operator).unwrap_err(),
            "Validation failed\n\n[<<\"dead-letter-exchange\">>,<<\"ha-mode\">>] are not recognised operator policy settings\n"
        );
        assert_eq!(old_keys(&table).collect::<alloc::vec::Vec<_>>(), ["ha-mode"]);
    }

    #[test]
    fn policy_and_operator_policy_are_merged_key_by_key() {
        let merge = |name: &str, own: Value, theirs: Value| {
            let all = merged(Table::new().with(name, own), Table::new().with(name, theirs));
            assert_eq!(all.len(), 1);
            all.get(name).cloned().unwrap()
        };
        assert_eq!(merge("max-length", 10.into(), 5.into()), 5.into());
        assert_eq!(merge("max-length", 3.into(), 5.into()), 3.into());
        assert_eq!(merge("delivery-limit", (-1).into(), 5.into()), 5.into());
        assert_eq!(merge("delivery-limit", 5.into(), (-1).into()), 5.into());
        assert_eq!(merge("delivery-limit", 4.into(), 5.into()), 4.into());
        assert_eq!(merge("target-group-size", 3.into(), 5.into()), 5.into());
        assert_eq!(merge("delayed-retry-min", 9.into(), 5.into()), 9.into());
        assert_eq!(merge("delayed-retry-max", 9.into(), 5.into()), 5.into());
        assert_eq!(
            merge("overflow", "drop-head".into(), "reject-publish".into()),
            "reject-publish".into()
        );
        let both = merged(Table::new().with("max-length", 10), Table::new().with("expires", 5));
        assert_eq!(both, Table::new().with("max-length", 10).with("expires", 5));
    }
}
