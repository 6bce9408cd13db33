//! What the directory has as JSON values, in the form of a definitions file.

use lepus_amqp::table::{TableRef, ValueRef};
use lepus_broker::directory::{ParameterInfo, Policy, UserLimits, VhostLimits};
use serde_json::{Map, Value, json};

/// A table, such as arguments or the definition of a policy. Bytes that are no text are shown as such, with marks where
/// they are not.
#[must_use]
pub fn table_value(table: TableRef<'_>) -> Value {
    let fields = table.iter().map(|(name, value)| (name.to_owned(), field_value(value)));
    Value::Object(fields.collect())
}

fn field_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Void => Value::Null,
        ValueRef::Bool(value) => json!(value),
        ValueRef::F32(value) => json!(value),
        ValueRef::F64(value) => json!(value),
        ValueRef::U64(value) | ValueRef::Timestamp(value) => json!(value),
        ValueRef::Decimal { scale, value } => {
            json!(f64::from(value) / 10_f64.powi(i32::from(scale)))
        }
        ValueRef::LongString(bytes) | ValueRef::Binary(bytes) => {
            json!(String::from_utf8_lossy(bytes))
        }
        ValueRef::Array(items) => Value::Array(items.iter().map(field_value).collect()),
        ValueRef::Table(table) => table_value(table),
        other => json!(other.as_integer()),
    }
}

/// A policy or an operator policy as lists have it.
#[must_use]
pub fn policy_value(vhost: &str, policy: &Policy) -> Value {
    let mut fields = body(policy);
    fields.insert("vhost".to_owned(), vhost.into());
    fields.insert("name".to_owned(), policy.name().into());
    Value::Object(fields)
}

/// An operator policy as a parameter, which it is in definitions files.
#[must_use]
pub fn operator_policy_parameter(vhost: &str, policy: &Policy) -> Value {
    json!({
        "component": super::OPERATOR_POLICY,
        "vhost": vhost,
        "name": policy.name(),
        "value": Value::Object(body(policy)),
    })
}

fn body(policy: &Policy) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("pattern".to_owned(), policy.pattern().into());
    fields.insert("apply-to".to_owned(), policy.apply_to().name().into());
    fields.insert("priority".to_owned(), policy.priority().into());
    fields.insert("definition".to_owned(), table_value(policy.definition()));
    fields
}

/// A parameter of a part of the broker.
#[must_use]
pub fn parameter_value(vhost: &str, parameter: &ParameterInfo<'_>) -> Value {
    json!({
        "component": parameter.component,
        "vhost": vhost,
        "name": parameter.name,
        "value": stored(parameter.value),
    })
}

/// A parameter of the whole broker.
#[must_use]
pub fn global_parameter_value(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": stored(value) })
}

/// What was set as JSON. It was JSON when it was set, so that it is no text in quotes only where a log was damaged.
fn stored(value: &str) -> Value {
    serde_json::from_str(value).unwrap_or_else(|_| value.into())
}

/// Limits of a virtual host as they were set.
#[must_use]
pub fn vhost_limits_value(limits: &VhostLimits) -> Value {
    limits_value([("max-connections", limits.connections_max), ("max-queues", limits.queues_max)])
}

/// Limits of a user as they were set.
#[must_use]
pub fn user_limits_value(limits: &UserLimits) -> Value {
    let channels = ("max-channels", limits.channels_max);
    limits_value([("max-connections", limits.connections_max), channels])
}

fn limits_value(limits: [(&str, Option<i64>); 2]) -> Value {
    let set = limits.into_iter().filter_map(|(name, limit)| Some((name.to_owned(), limit?.into())));
    Value::Object(set.collect())
}
