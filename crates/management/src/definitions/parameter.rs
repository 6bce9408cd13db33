//! Parameters: JSON values of parts of the broker, checked as RabbitMQ checks them, and the policies and limits that
//! stand among them in files.

use super::item::OfVhost;
use super::policy::{Body, policy_request};
use super::{LIMITS, OPERATOR_POLICY, POLICY, ValueError};
use lepus_broker::directory::{PolicyScope, Request, VhostRef};
use serde_json::{Map, Value};

/// What a value of a parameter may be.
type Check = fn(&Value) -> bool;

/// Keys of an upstream of a federation, and of one in a set.
const UPSTREAM: [(&str, Check); 17] = [
    ("uri", is_uris),
    ("exchange", Value::is_string),
    ("queue", Value::is_string),
    ("consumer-tag", Value::is_string),
    ("prefetch-count", is_number),
    ("reconnect-delay", is_number),
    ("max-hops", is_number),
    ("expires", is_number),
    ("message-ttl", is_number),
    ("trust-user-id", is_flag),
    ("ack-mode", is_ack_mode),
    ("bind-nowait", is_flag),
    ("resource-cleanup-mode", Value::is_string),
    ("channel-use-mode", Value::is_string),
    ("ha-policy", Value::is_string),
    ("queue-type", Value::is_string),
    ("upstream", Value::is_string),
];

/// The key of a shovel under which stands who set it, unless that was an administrator. The API writes it, files have it.
pub const SHOVEL_SET_BY: &str = "lepus-set-by";

/// Keys of a shovel.
const SHOVEL: [(&str, Check); 39] = [
    ("src-protocol", is_protocol),
    ("src-uri", is_uris),
    ("src-queue", Value::is_string),
    ("src-queue-args", is_table),
    ("src-consumer-args", is_table),
    ("src-exchange", Value::is_string),
    ("src-exchange-key", Value::is_string),
    ("src-prefetch-count", is_number),
    ("src-delete-after", is_delete_after),
    ("src-predeclared", is_flag),
    ("src-address", Value::is_string),
    ("dest-protocol", is_protocol),
    ("dest-uri", is_uris),
    ("dest-queue", Value::is_string),
    ("dest-queue-args", is_table),
    ("dest-exchange", Value::is_string),
    ("dest-exchange-key", Value::is_string),
    ("dest-predeclared", is_flag),
    ("dest-publish-properties", is_table),
    ("dest-add-forward-headers", is_flag),
    ("dest-add-timestamp-header", is_flag),
    ("dest-address", Value::is_string),
    ("dest-properties", is_table),
    ("dest-application-properties", is_table),
    ("dest-message-annotations", is_table),
    ("dest-declare-queue", is_flag),
    ("src-declare-queue", is_flag),
    ("add-forward-headers", is_flag),
    ("add-timestamp-header", is_flag),
    ("publish-properties", is_table),
    ("prefetch-count", is_number),
    ("reconnect-delay", is_number),
    ("ack-mode", is_ack_mode),
    ("delete-after", is_delete_after),
    ("src-caps", is_anything),
    ("dest-caps", is_anything),
    ("src-name", Value::is_string),
    ("dest-name", Value::is_string),
    (SHOVEL_SET_BY, Value::is_string),
];

/// Whether a parameter may be set.
///
/// # Errors
/// A text as RabbitMQ has it, which begins with `Validation failed`.
pub fn check_parameter(component: &str, name: &str, value: &Value) -> Result<(), String> {
    let checked = match component {
        "shovel" => check_shovel(name, value),
        "federation-upstream" => check_upstream(name, value, "uri"),
        "federation-upstream-set" => check_set(name, value),
        _ if is_stored(component) => Ok(()),
        _ => Err(format!("component {component} not found")),
    };
    checked.map_err(|what| format!("Validation failed\n\n{what}\n"))
}

/// Whether a parameter of this component is kept, with whatever value: tools keep theirs so.
fn is_stored(component: &str) -> bool {
    component.starts_with("mqtt")
}

/// Whether there is such a component.
pub(super) fn is_known(component: &str) -> bool {
    let known = ["shovel", "federation-upstream", "federation-upstream-set"];
    known.contains(&component) || is_stored(component)
}

/// The request that sets a parameter. Policies, operator policies and limits of virtual hosts are parameters, too.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parameter_request(
    vhost: VhostRef,
    component: String,
    name: String,
    value: Value,
) -> Result<Request, ValueError> {
    let scope = match component.as_str() {
        LIMITS => return limits_request(vhost, value),
        POLICY => PolicyScope::User,
        OPERATOR_POLICY => PolicyScope::Operator,
        _ => {
            check_parameter(&component, &name, &value)?;
            return Ok(Request::SetParameter { vhost, component, name, value: value.to_string() });
        }
    };
    Ok(policy_request(vhost, scope, name, Body::read(value)?)?)
}

fn limits_request(vhost: VhostRef, value: Value) -> Result<Request, ValueError> {
    let limits = serde_path_to_error::deserialize(value);
    let limits: super::field::MaybeEmpty<OfVhost> =
        limits.map_err(|error| ValueError::of(&error))?;
    Ok(limits.0.request(vhost))
}

fn check_keys(
    name: &str,
    value: &Value,
    keys: &[(&str, Check)],
    required: &[&str],
) -> Result<(), String> {
    let Value::Object(fields) = value else {
        return Err(format!("{name} not a list: an object is expected"));
    };
    let is_set = |key: &str| fields.get(key).is_some_and(|value| !value.is_null());
    if let Some(key) = required.iter().find(|key| !is_set(key)) {
        return Err(format!("Key \"{key}\" not found in {name}"));
    }
    let unknown: Vec<String> = fields
        .keys()
        .filter(|key| !keys.iter().any(|(known, _)| known == key))
        .map(|key| format!("<<\"{key}\">>"))
        .collect();
    if !unknown.is_empty() {
        return Err(format!("Unrecognised terms [{}] in {name}", unknown.join(",")));
    }
    for (key, is_valid) in keys {
        if let Some(value) = fields.get(*key).filter(|value| !value.is_null())
            && !is_valid(value)
        {
            return Err(format!("{key} has a value that it cannot have: {value}"));
        }
    }
    Ok(())
}

fn check_shovel(name: &str, value: &Value) -> Result<(), String> {
    check_keys(name, value, &SHOVEL, &["src-uri", "dest-uri"])?;
    let Value::Object(fields) = value else { return Ok(()) };
    let is_set = |key: &str| fields.get(key).is_some_and(|value| !value.is_null());
    let is_amqp091 = |key: &str| fields.get(key).is_none_or(|value| value == "amqp091");
    if is_amqp091("src-protocol") {
        match (is_set("src-queue"), is_set("src-exchange")) {
            (false, false) => {
                return Err("Must specify 'src-exchange' or 'src-queue'".to_owned());
            }
            (true, true) => {
                return Err("Cannot specify 'src-exchange' and 'src-queue'".to_owned());
            }
            _ => {}
        }
    }
    if is_amqp091("dest-protocol") && is_set("dest-queue") && is_set("dest-exchange") {
        return Err("Cannot specify 'dest-exchange' and 'dest-queue'".to_owned());
    }
    Ok(())
}

fn check_upstream(name: &str, value: &Value, required: &str) -> Result<(), String> {
    check_keys(name, value, &UPSTREAM, &[required])
}

fn check_set(name: &str, value: &Value) -> Result<(), String> {
    let Value::Array(upstreams) = value else {
        return Err(format!("{name} should be a list of upstreams"));
    };
    upstreams.iter().try_for_each(|one| check_upstream(name, one, "upstream"))
}

fn is_uris(value: &Value) -> bool {
    let is_uri = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.starts_with("amqp://") || text.starts_with("amqps://"))
    };
    match value {
        Value::Array(uris) => !uris.is_empty() && uris.iter().all(is_uri),
        one => is_uri(one),
    }
}

fn is_anything(_: &Value) -> bool {
    true
}

fn is_number(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number >= 0.0)
}

fn is_flag(value: &Value) -> bool {
    value.is_boolean()
}

fn is_table(value: &Value) -> bool {
    value.is_object() || value.as_array().is_some_and(Vec::is_empty)
}

fn is_ack_mode(value: &Value) -> bool {
    matches!(value.as_str(), Some("no-ack" | "on-publish" | "on-confirm"))
}

fn is_protocol(value: &Value) -> bool {
    matches!(value.as_str(), Some("amqp091" | "amqp10" | "local"))
}

fn is_delete_after(value: &Value) -> bool {
    matches!(value.as_str(), Some("never" | "queue-length")) || value.as_u64().is_some()
}

/// An empty object, where a value is missing.
pub(super) fn empty() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(component: &str, value: Value) -> Option<String> {
        let text = check_parameter(component, "p", &value).err()?;
        let text = text.strip_prefix("Validation failed\n\n").expect("the usual start");
        Some(text.trim_end().to_owned())
    }

    #[test]
    fn a_shovel_has_two_ends_and_one_source() {
        let uri = "amqp://localhost";
        assert_eq!(
            refusal(
                "shovel",
                json!({"src-uri": uri, "src-queue": "a", "dest-uri": [uri], "dest-queue": "b", "ack-mode": "on-confirm"})
            ),
            None
        );
        let missing = refusal("shovel", json!({"src-uri": uri, "src-queue": "a"}));
        assert_eq!(missing.as_deref(), Some("Key \"dest-uri\" not found in p"));
        let none = refusal("shovel", json!({"src-uri": uri, "dest-uri": uri}));
        assert_eq!(none.as_deref(), Some("Must specify 'src-exchange' or 'src-queue'"));
        let both = json!({"src-uri": uri, "dest-uri": uri, "src-queue": "a", "src-exchange": "x"});
        assert!(refusal("shovel", both).is_some());
        let odd = json!({"src-uri": uri, "dest-uri": uri, "src-queue": "a", "odd": 1});
        assert_eq!(
            refusal("shovel", odd).as_deref(),
            Some("Unrecognised terms [<<\"odd\">>] in p")
        );
        let mode = json!({"src-uri": uri, "dest-uri": uri, "src-queue": "a", "ack-mode": "maybe"});
        assert!(refusal("shovel", mode).is_some());
        let other = json!({"src-uri": "http://localhost", "dest-uri": uri, "src-queue": "a"});
        assert!(refusal("shovel", other).is_some());
    }

    #[test]
    fn an_upstream_has_an_address_and_a_set_names_upstreams() {
        assert_eq!(refusal("federation-upstream", json!({"uri": "amqp://a", "max-hops": 2})), None);
        assert!(refusal("federation-upstream", json!({"max-hops": 2})).is_some());
        assert!(refusal("federation-upstream", json!({"uri": "amqp://a", "odd": 2})).is_some());
        assert!(refusal("federation-upstream", json!([])).is_some());
        assert_eq!(refusal("federation-upstream-set", json!([{"upstream": "u"}])), None);
        assert!(refusal("federation-upstream-set", json!([{"uri": "amqp://a"}])).is_some());
        assert!(refusal("federation-upstream-set", json!({"upstream": "u"})).is_some());
    }

    #[test]
    fn what_no_part_of_the_broker_knows_is_refused() {
        assert_eq!(refusal("odd", json!({})).as_deref(), Some("component odd not found"));
        assert_eq!(refusal("mqtt_default_vhosts", json!({})), None);
    }
}
