//! What a shovel's parameter says.

use crate::definitions::SHOVEL_SET_BY;
use lepus_amqp::table::Table;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// When deliveries are acknowledged at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckMode {
    /// When the destination has confirmed them.
    OnConfirm,
    /// When they are sent to the destination.
    OnPublish,
    /// When they are sent by the source.
    None,
}

/// When a shovel ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeleteAfter {
    Never,
    /// After as many messages as were in the queue at its start.
    QueueLength,
    /// After so many messages.
    Count(u64),
}

/// Where messages come from or go to.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// Where the brokers are, one of which is tried after the other.
    pub(super) uris: Vec<String>,
    pub(super) queue: Option<String>,
    /// Arguments with which the queue is declared where it is missing.
    pub(super) queue_arguments: Table,
    pub(super) exchange: Option<String>,
    pub(super) exchange_key: Option<String>,
    /// The queue is there; it is an error if it is not.
    pub(super) is_predeclared: bool,
}

/// A shovel.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) source: End,
    pub(super) destination: End,
    pub(super) ack_mode: AckMode,
    pub(super) delete_after: DeleteAfter,
    pub(super) prefetch: u16,
    pub(super) reconnect_delay: Option<Duration>,
    /// Properties that every message gets.
    pub(super) properties: Map<String, Value>,
    pub(super) adds_forward_headers: bool,
    pub(super) adds_timestamp_header: bool,
    /// The user who set it, unless that was an administrator or the operator.
    pub(super) set_by: Option<String>,
}

impl Definition {
    /// Reads a parameter's value, which was checked when it was set.
    ///
    /// # Errors
    /// In words, for what this version cannot do.
    pub(super) fn read(value: &str) -> Result<Definition, String> {
        let value: Value = serde_json::from_str(value).map_err(|error| error.to_string())?;
        for protocol in ["src-protocol", "dest-protocol"] {
            if value[protocol].as_str().is_some_and(|name| !["amqp091", "local"].contains(&name)) {
                return Err(format!("{protocol} {} is not carried out yet", value[protocol]));
            }
        }
        let end = |side: &str| -> Result<End, String> {
            let text = |key: &str| {
                let found = value[format!("{side}-{key}")].as_str();
                found.filter(|text| !text.is_empty()).map(str::to_owned)
            };
            let uris = match &value[format!("{side}-uri")] {
                Value::Array(all) => all.iter().filter_map(|one| one.as_str()).collect(),
                one => one.as_str().into_iter().collect::<Vec<_>>(),
            };
            let arguments = value[format!("{side}-queue-args")].clone();
            Ok(End {
                uris: uris.into_iter().map(str::to_owned).collect(),
                queue: text("queue"),
                queue_arguments: crate::definitions::table_of(arguments)?,
                exchange: value[format!("{side}-exchange")].as_str().map(str::to_owned),
                exchange_key: text("exchange-key"),
                is_predeclared: value[format!("{side}-predeclared")] == true,
            })
        };
        let either = |one: &str, other: &str| match &value[one] {
            Value::Null => value[other].clone(),
            found => found.clone(),
        };
        let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
        let delete_after = either("src-delete-after", "delete-after");
        Ok(Definition {
            source: end("src")?,
            destination: end("dest")?,
            ack_mode: match value["ack-mode"].as_str() {
                Some("on-publish") => AckMode::OnPublish,
                Some("no-ack") => AckMode::None,
                _ => AckMode::OnConfirm,
            },
            delete_after: match delete_after.as_str() {
                Some("queue-length") => DeleteAfter::QueueLength,
                _ => number(&delete_after).map_or(DeleteAfter::Never, DeleteAfter::Count),
            },
            prefetch: number(&either("src-prefetch-count", "prefetch-count"))
                .and_then(|count| u16::try_from(count).ok())
                .filter(|count| *count > 0)
                .unwrap_or(1_000),
            // Not at once: it would do nothing else.
            reconnect_delay: number(&value["reconnect-delay"])
                .map(|seconds| Duration::from_secs(seconds.max(1))),
            properties: either("dest-publish-properties", "publish-properties")
                .as_object()
                .cloned()
                .unwrap_or_default(),
            adds_forward_headers: either("dest-add-forward-headers", "add-forward-headers") == true,
            adds_timestamp_header: either("dest-add-timestamp-header", "add-timestamp-header")
                == true,
            set_by: value[SHOVEL_SET_BY].as_str().map(str::to_owned),
        })
    }

    /// Whether it would take messages that it does not carry: the source sends more than are wanted, and keeps none.
    pub(super) fn would_lose(&self) -> bool {
        self.ack_mode == AckMode::None && self.delete_after != DeleteAfter::Never
    }

    /// Adds what a status shows of it; no passwords.
    pub(super) fn describe(&self, row: &mut Value) {
        for (side, end) in [("src", &self.source), ("dest", &self.destination)] {
            let mut add = |key: &str, value: Option<String>| {
                if let Some(value) = value {
                    row[format!("{side}_{key}")] = json!(value);
                }
            };
            add("protocol", Some("amqp091".to_owned()));
            add("uri", end.uris.first().map(|uri| without_password(uri)));
            add("queue", end.queue.clone());
            add("exchange", end.exchange.clone());
            add("exchange_key", end.exchange_key.clone());
        }
    }
}

/// An address without user and password.
pub(super) fn without_password(uri: &str) -> String {
    match uri.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let host = rest[..end].rsplit_once('@').map_or(&rest[..end], |(_, host)| host);
            format!("{scheme}://{host}{}", &rest[end..])
        }
        None => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tools_write_is_read() {
        let text = r#"{"src-uri": ["amqp://a:b@host/v", "amqp://"], "src-queue": "q", "dest-uri": "amqp:///v",
            "dest-exchange": "", "dest-exchange-key": "k", "src-delete-after": "5", "ack-mode": "on-publish",
            "src-prefetch-count": 20, "reconnect-delay": 2, "add-forward-headers": true}"#;
        let definition = Definition::read(text).unwrap();
        assert_eq!(definition.source.uris, ["amqp://a:b@host/v", "amqp://"]);
        assert_eq!(definition.destination.exchange.as_deref(), Some(""));
        assert_eq!(definition.delete_after, DeleteAfter::Count(5));
        assert_eq!((definition.ack_mode, definition.prefetch), (AckMode::OnPublish, 20));
        assert!(definition.adds_forward_headers && !definition.adds_timestamp_header);
        let mut row = json!({});
        definition.describe(&mut row);
        assert_eq!(row["src_uri"], "amqp://host/v");
        assert!(Definition::read(r#"{"src-protocol": "amqp10"}"#).is_err());
    }

    #[test]
    fn a_password_with_signs_is_not_shown() {
        assert_eq!(without_password("amqp://a:p@ss@host:5672/%2f?x=1"), "amqp://host:5672/%2f?x=1");
        assert_eq!(without_password("amqp://"), "amqp://");
    }
}
