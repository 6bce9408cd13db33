//! What the broker changes in a message's properties: death history, BCC, delivery counts.
//!
//! Properties travel as the bytes that came. A message that this broker dead-lettered carries a
//! mark in a bit of the property flags that the protocol leaves unused, so that a death history
//! made up by a publisher is never taken for the broker's own. The mark is taken off before the
//! bytes leave.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use lepus_amqp::properties::{Change, Edit, PropertiesRef};
use lepus_amqp::table::{Table, Value};

use crate::queue::Reason;

/// The unused flag bit that marks a genuine death history (in the second byte of the flags).
const DEATHS_MARK: u8 = 2;

/// Whether the death history in the headers was written by this broker.
#[must_use]
pub fn has_genuine_deaths(properties: &[u8]) -> bool {
    properties.get(1).is_some_and(|low| low & DEATHS_MARK != 0)
}

/// The properties as a client may see them, if the stored bytes are not that already.
#[must_use]
pub fn for_client(properties: &[u8], delivery_count: u32) -> Option<Vec<u8>> {
    if delivery_count == 0 && !has_genuine_deaths(properties) {
        return None;
    }
    let mut bytes = properties.to_vec();
    if let Some(low) = bytes.get_mut(1) {
        *low &= !DEATHS_MARK;
    }
    if delivery_count > 0 {
        let properties = PropertiesRef(&bytes);
        let mut headers = owned_headers(properties);
        headers.insert("x-delivery-count", i64::from(delivery_count));
        let edit = Edit { headers: Change::Set(&headers), ..Edit::default() };
        return properties.rewrite(&edit).ok();
    }
    Some(bytes)
}

/// The headers as an owned table; empty without any.
#[must_use]
pub fn owned_headers(properties: PropertiesRef<'_>) -> Table {
    properties.headers().map(|headers| headers.to_owned()).unwrap_or_default()
}

/// Where and why a message died.
pub struct Death<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// Why.
    pub reason: Reason,
    /// The exchange it was published to.
    pub exchange: &'a str,
    /// Its routing key.
    pub routing_key: &'a str,
    /// Wall time in seconds.
    pub time_seconds: u64,
    /// Whether the queue gives it another routing key: then `CC` counts no more.
    pub drops_cc: bool,
}

/// The properties of a message that dies, with the death written into its history.
///
/// Layout of `x-death` as RabbitMQ documents it: an array of tables, newest first, one per queue
/// and reason, with count, reason, queue, time, exchange, routing-keys and original-expiration.
#[must_use]
pub fn with_death(properties: &[u8], death: &Death<'_>) -> Option<Vec<u8>> {
    let genuine = has_genuine_deaths(properties);
    let view = PropertiesRef(properties);
    let mut headers = owned_headers(view);
    let deaths = match headers.remove("x-death") {
        Some(Value::Array(deaths)) if genuine => deaths,
        _ => Vec::new(),
    };
    let reason = death.reason.name();
    let (mut this, mut others): (Vec<_>, Vec<_>) =
        deaths.into_iter().partition(|entry| is_death(entry, death.queue, reason));
    let mut entry = match this.pop() {
        Some(Value::Table(entry)) => entry,
        _ => Table::new(),
    };
    let count = entry.get("count").and_then(Value::as_integer).unwrap_or(0) + 1;
    entry.insert("count", count);
    if count == 1 {
        entry.insert("reason", reason);
        entry.insert("queue", death.queue);
        entry.insert("time", Value::Timestamp(death.time_seconds));
        entry.insert("exchange", death.exchange);
        let mut keys = vec![Value::from(death.routing_key)];
        keys.extend(
            headers.get("CC").and_then(Value::as_array).unwrap_or_default().iter().cloned(),
        );
        entry.insert("routing-keys", keys);
        if let Some(expiration) = view.expiration() {
            let text = String::from_utf8_lossy(expiration);
            entry.insert("original-expiration", text.to_string());
        }
    }
    others.insert(0, Value::Table(entry));
    headers.insert("x-death", others);
    if !genuine {
        headers.insert("x-first-death-reason", reason);
        headers.insert("x-first-death-queue", death.queue);
        headers.insert("x-first-death-exchange", death.exchange);
    }
    headers.insert("x-last-death-reason", reason);
    headers.insert("x-last-death-queue", death.queue);
    headers.insert("x-last-death-exchange", death.exchange);
    if death.drops_cc {
        headers.remove("CC");
    }
    let edit =
        Edit { headers: Change::Set(&headers), expiration: Change::Remove, ..Edit::default() };
    let mut bytes = view.rewrite(&edit).ok()?;
    if let Some(low) = bytes.get_mut(1) {
        *low |= DEATHS_MARK;
    }
    Some(bytes)
}

fn is_death(entry: &Value, queue: &str, reason: &str) -> bool {
    let Some(entry) = entry.as_table() else { return false };
    let is = |name: &str, text: &str| entry.get(name).and_then(Value::as_text) == Some(text);
    is("queue", queue) && is("reason", reason)
}

/// Whether dead-lettering into `queue` would close a cycle without a rejection in it.
#[must_use]
pub fn closes_cycle(properties: &[u8], queue: &str) -> bool {
    if !has_genuine_deaths(properties) {
        return false;
    }
    let headers = owned_headers(PropertiesRef(properties));
    let Some(deaths) = headers.get("x-death").and_then(Value::as_array) else { return false };
    for death in deaths {
        let Some(death) = death.as_table() else { return false };
        if death.get("reason").and_then(Value::as_text) == Some(Reason::Rejected.name()) {
            return false;
        }
        if death.get("queue").and_then(Value::as_text) == Some(queue) {
            return true;
        }
    }
    false
}

/// The routing keys in the `CC` or `BCC` header; `Err` when it is not an array of strings.
pub fn copy_keys(headers: &Table, name: &str) -> Result<Vec<String>, ()> {
    match headers.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(keys)) => {
            keys.iter().map(|key| key.as_text().map(str::to_string).ok_or(())).collect()
        }
        Some(_) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::properties::Properties;

    fn death(queue: &'static str, reason: Reason) -> Death<'static> {
        Death { queue, reason, exchange: "", routing_key: "key", time_seconds: 5, drops_cc: false }
    }

    fn deaths(properties: &[u8]) -> Vec<(String, String, i64)> {
        let headers = owned_headers(PropertiesRef(properties));
        let entries = headers.get("x-death").and_then(Value::as_array).unwrap_or_default();
        let text = |entry: &Table, name: &str| {
            entry.get(name).and_then(Value::as_text).unwrap_or_default().to_string()
        };
        entries
            .iter()
            .filter_map(Value::as_table)
            .map(|entry| {
                let count = entry.get("count").and_then(Value::as_integer).unwrap_or(0);
                (text(entry, "queue"), text(entry, "reason"), count)
            })
            .collect()
    }

    #[test]
    fn a_repeated_death_counts_up_and_moves_to_the_front() {
        let mut properties = lepus_amqp::properties::EMPTY.to_vec();
        for queue in ["a", "b", "a"] {
            properties = with_death(&properties, &death(queue, Reason::Expired)).unwrap();
        }
        let expected = [("a", "expired", 2), ("b", "expired", 1)]
            .map(|(queue, reason, count)| (queue.to_string(), reason.to_string(), count));
        assert_eq!(deaths(&properties), expected);
    }

    #[test]
    fn a_death_history_made_up_by_a_publisher_is_not_taken_over() {
        let forged =
            Table::new().with("x-death", vec![Value::Table(Table::new().with("queue", "a"))]);
        let properties = Properties { headers: Some(forged), ..Properties::default() }.to_bytes();
        assert!(!closes_cycle(&properties, "a"));
        let died = with_death(&properties, &death("b", Reason::MaxLength)).unwrap();
        assert_eq!(deaths(&died).len(), 1);
        assert!(closes_cycle(&died, "b"));
        assert!(!closes_cycle(&died, "a"));
    }

    #[test]
    fn a_rejection_breaks_the_cycle() {
        let first = with_death(&lepus_amqp::properties::EMPTY, &death("a", Reason::Expired));
        let second = with_death(&first.unwrap(), &death("b", Reason::Rejected)).unwrap();
        assert!(!closes_cycle(&second, "a"));
    }

    #[test]
    fn the_client_sees_no_mark() {
        let died =
            with_death(&lepus_amqp::properties::EMPTY, &death("a", Reason::Expired)).unwrap();
        let seen = for_client(&died, 0).unwrap();
        assert!(PropertiesRef(&seen).validate().is_ok());
        assert_eq!(deaths(&seen).len(), 1);
        assert_eq!(for_client(&lepus_amqp::properties::EMPTY, 0), None);
    }
}
