//! What the broker changes in a message's properties: death history, BCC, delivery counts.
//!
//! Properties travel as the bytes that came. Two bits of the property flags that clients may not set
//! carry marks of the broker, which are taken off before the bytes leave:
//! - A message that this broker dead-lettered has one, so that a death history made up by a
//!   publisher is never taken for the broker's own.
//! - A message whose further routing keys are other ones than those of its header `CC` has one. Then
//!   all of them stand in a header `BCC`, which no client sees and no exchange looks at.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use lepus_amqp::properties::{Change, Edit, PropertiesRef};
use lepus_amqp::table::{ArrayRef, FieldWriter, Table, TableRef, Value, ValueRef, ValueWriter};

use crate::queue::Reason;
pub use crate::routing_keys::{BCC, CC};

/// Deaths that a history keeps. Who died so often, each time elsewhere, is in no route that somebody meant.
pub const DEATHS_MAX: usize = 512;
/// Routing keys of all deaths above which older ones keep only their first.
const DEATH_KEYS_MAX: usize = 1024;
/// The flag bit that marks a genuine death history (in the second byte of the flags).
const DEATHS_MARK: u8 = 2;
/// The flag bit that marks further routing keys in the header [`BCC`] (in the same byte).
const KEYS_MARK: u8 = 1;

/// Whether the death history in the headers was written by this broker.
#[must_use]
pub fn has_genuine_deaths(properties: &[u8]) -> bool {
    marks(properties) & DEATHS_MARK != 0
}

fn marks(properties: &[u8]) -> u8 {
    properties.get(1).map_or(0, |low| low & (DEATHS_MARK | KEYS_MARK))
}

fn set_marks(properties: &mut [u8], marks: u8) {
    if let Some(low) = properties.get_mut(1) {
        *low = *low & !(DEATHS_MARK | KEYS_MARK) | marks;
    }
}

/// The keys beside the routing key that a message is routed by.
#[must_use]
pub fn further_keys(properties: &[u8]) -> Vec<String> {
    let name = if marks(properties) & KEYS_MARK == 0 { CC } else { BCC };
    let headers = PropertiesRef(properties).headers().unwrap_or_default();
    let keys = headers.get(name).map(|keys| keys.to_owned());
    // What is stored was checked when it was published.
    distinct(keys.and_then(|keys| key_list(&keys).ok()).unwrap_or_default())
}

/// A published message's keys beside the routing key, each once. They are those of its headers `CC` and `BCC`;
/// if there are any of the latter, `headers` becomes what is to be stored: see [`mark_keys`].
///
/// # Errors
/// The header's name where it is not an array of strings.
pub fn take_keys(headers: &mut Table) -> Result<Vec<String>, &'static str> {
    let list = |name| headers.get(name).map_or(Ok(Vec::new()), key_list).map_err(|()| name);
    let (mut keys, hidden) = (list(CC)?, list(BCC)?);
    // Of several with this name the first one counts. None is to be taken for one of the broker's.
    headers.0.retain(|(name, _)| name != BCC);
    if hidden.is_empty() {
        return Ok(distinct(keys));
    }
    keys.extend(hidden);
    let keys = distinct(keys);
    store_keys(headers, &keys);
    Ok(keys)
}

/// The keys without those that were there before: a message is routed by each of them once.
fn distinct(mut keys: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let is_new: Vec<bool> = keys.iter().map(|key| seen.insert(key.as_str())).collect();
    let mut is_new = is_new.into_iter();
    keys.retain(|_| is_new.next().unwrap_or(true));
    keys
}

/// Marks properties whose headers hold all further keys in [`BCC`].
pub fn mark_keys(properties: &mut [u8]) {
    set_marks(properties, marks(properties) | KEYS_MARK);
}

fn store_keys(headers: &mut Table, keys: &[String]) {
    headers.insert(BCC, keys.iter().map(|key| Value::from(key.as_str())).collect::<Vec<_>>());
}

fn key_list(keys: &Value) -> Result<Vec<String>, ()> {
    let keys = keys.as_array().ok_or(())?;
    keys.iter().map(|key| key.as_text().map(str::to_string).ok_or(())).collect()
}

/// The properties as a client may see them, if the stored bytes are not that already.
#[must_use]
pub fn for_client(properties: &[u8], delivery_count: u32) -> Option<Vec<u8>> {
    let marks = marks(properties);
    if delivery_count == 0 && marks == 0 {
        return None;
    }
    let hides_keys = marks & KEYS_MARK != 0;
    if delivery_count == 0 && !hides_keys {
        let mut bytes = properties.to_vec();
        set_marks(&mut bytes, 0);
        return Some(bytes);
    }
    let properties = PropertiesRef(properties);
    let mut headers = owned_headers(properties);
    if hides_keys {
        headers.remove(BCC);
    }
    if delivery_count > 0 {
        headers.insert("x-delivery-count", i64::from(delivery_count));
    }
    let headers = headers.to_bytes();
    let edit = Edit { headers: Change::Set(headers.as_ref()), ..Edit::default() };
    properties.rewrite(&edit).ok()
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
    /// Whether the queue gives it another routing key: then that is its only one.
    pub is_rerouted: bool,
}

/// Headers of a death history that change with each death; those of the first one stay.
const LAST_DEATH: [&str; 3] =
    ["x-last-death-reason", "x-last-death-queue", "x-last-death-exchange"];
const FIRST_DEATH: [&str; 3] =
    ["x-first-death-reason", "x-first-death-queue", "x-first-death-exchange"];

/// Writes deaths into histories, in memory that is used again.
#[derive(Debug, Default)]
pub struct DeathWriter {
    headers: Vec<u8>,
    properties: Vec<u8>,
}

impl DeathWriter {
    /// The properties of a message that dies, with the death written into its history: in the form of the wire, since
    /// nearly all of it stays as it is. `None` where they are not well-formed.
    ///
    /// Layout of `x-death` as RabbitMQ documents it: an array of tables, newest first, one per queue
    /// and reason, with count, reason, queue, time, exchange, routing-keys and original-expiration.
    pub fn write(&mut self, properties: &[u8], death: &Death<'_>) -> Option<&[u8]> {
        let DeathWriter { headers, properties: written } = self;
        headers.clear();
        written.clear();
        with_death(properties, death, headers, written)?;
        Some(written)
    }

    /// Allocated bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.headers.capacity() + self.properties.capacity()
    }

    /// Gives memory back that is more than so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        for buffer in [&mut self.headers, &mut self.properties] {
            if buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
    }
}

/// Appends the headers that a message has with a death to `bytes`, and its properties with these to `written`.
fn with_death(
    properties: &[u8],
    death: &Death<'_>,
    bytes: &mut Vec<u8>,
    written: &mut Vec<u8>,
) -> Option<()> {
    let genuine = has_genuine_deaths(properties);
    let view = PropertiesRef(properties);
    let headers = view.headers().unwrap_or_default();
    let mut marks = marks(properties) | DEATHS_MARK;
    // What is written for one death, about.
    bytes.reserve(headers.bytes().len() + 512);
    let mut fields = FieldWriter::new(bytes);
    let mut hidden_went = false;
    for (name, value) in headers.iter() {
        // Of several with this name the first one goes, as it counts.
        let is_hidden = name == BCC && death.is_rerouted && !hidden_went;
        hidden_went |= is_hidden;
        let is_first = FIRST_DEATH.contains(&name);
        let goes = name == "x-death" || LAST_DEATH.contains(&name) || (is_first && !genuine);
        if !goes && !is_hidden {
            fields.field(name, value);
        }
    }
    if death.is_rerouted {
        marks &= !KEYS_MARK;
        if headers.get(CC).is_some() {
            fields.array(BCC, |_| {});
            marks |= KEYS_MARK;
        }
    }
    fields.array("x-death", |deaths| write_deaths(properties, headers, death, deaths));
    let values = [death.reason.name(), death.queue, death.exchange];
    for (first, value) in FIRST_DEATH.into_iter().zip(values).filter(|_| !genuine) {
        fields.text(first, value);
    }
    for (last, value) in LAST_DEATH.into_iter().zip(values) {
        fields.text(last, value);
    }
    let headers = Change::Set(TableRef::trusted(bytes));
    let edit = Edit { headers, expiration: Change::Remove, ..Edit::default() };
    written.reserve(properties.len() + bytes.len() + 64);
    view.rewrite_into(&edit, written).ok()?;
    set_marks(written, marks);
    Some(())
}

/// Writes the history of a message that dies: this death first, which may have happened before, then the others.
///
/// Where all together have very many routing keys, older deaths keep only the first of theirs: a message with many keys
/// would grow by all of them with each death.
fn write_deaths(
    properties: &[u8],
    headers: TableRef<'_>,
    death: &Death<'_>,
    deaths: &mut ValueWriter<'_>,
) {
    let history = match headers.get("x-death") {
        Some(ValueRef::Array(history)) if has_genuine_deaths(properties) => history,
        _ => ArrayRef::default(),
    };
    let reason = death.reason.name();
    let is_same = |entry: &ValueRef<'_>| is_death(*entry, death.queue, reason);
    let before = history.iter().find(is_same).and_then(ValueRef::as_table);
    let mut keys = 0;
    deaths.table(|entry| match before {
        Some(before) => {
            keys = keys_of(before).map_or(0, |list| list.iter().count());
            let count = before.get("count").and_then(ValueRef::as_integer).unwrap_or(0);
            let count = ValueRef::I64(count.saturating_add(1));
            for (name, value) in before.iter() {
                entry.field(name, if name == "count" { count } else { value });
            }
        }
        None => {
            entry.field("count", ValueRef::I64(1));
            entry.text("reason", reason);
            entry.text("queue", death.queue);
            entry.field("time", ValueRef::Timestamp(death.time_seconds));
            entry.text("exchange", death.exchange);
            let further = seen_keys(properties, headers, death.routing_key);
            keys = 1 + further.len();
            entry.array("routing-keys", |list| {
                for key in
                    core::iter::once(death.routing_key).chain(further.iter().map(|key| &**key))
                {
                    list.value(ValueRef::LongString(key.as_bytes()));
                }
            });
            if let Some(expiration) = PropertiesRef(properties).expiration() {
                entry.text("original-expiration", &String::from_utf8_lossy(expiration));
            }
        }
    });
    for other in history.iter().filter(|entry| !is_same(entry)).take(DEATHS_MAX - 1) {
        let list = other.as_table().and_then(keys_of);
        let count = list.map_or(0, |list| list.iter().count());
        match other.as_table().zip(list) {
            Some((other, list)) if keys + count > DEATH_KEYS_MAX => {
                keys += count.min(1);
                deaths.table(|entry| {
                    for (name, value) in other.iter() {
                        if name == "routing-keys" {
                            entry.array(name, |keys| {
                                list.iter().take(1).for_each(|key| keys.value(key))
                            });
                        } else {
                            entry.field(name, value);
                        }
                    }
                });
            }
            _ => {
                keys += count;
                deaths.value(other);
            }
        }
    }
}

/// The routing keys of a death.
fn keys_of(death: TableRef<'_>) -> Option<ArrayRef<'_>> {
    match death.get("routing-keys") {
        Some(ValueRef::Array(keys)) => Some(keys),
        _ => None,
    }
}

/// The further keys of a message that everybody may see.
fn seen_keys(properties: &[u8], headers: TableRef<'_>, first: &str) -> Vec<String> {
    let hides = marks(properties) & KEYS_MARK != 0;
    let seen = headers.get(CC);
    if !hides && seen.is_none() {
        return Vec::new();
    }
    let mut keys = further_keys(properties);
    if hides {
        let seen = match seen {
            Some(ValueRef::Array(seen)) => seen,
            _ => ArrayRef::default(),
        };
        let seen: BTreeSet<&str> = seen.iter().filter_map(ValueRef::as_text).collect();
        keys.retain(|key| key == first || seen.contains(key.as_str()));
    }
    keys
}

fn is_death(entry: ValueRef<'_>, queue: &str, reason: &str) -> bool {
    let Some(entry) = entry.as_table() else { return false };
    let is = |name: &str, text: &str| entry.get(name).and_then(ValueRef::as_text) == Some(text);
    is("queue", queue) && is("reason", reason)
}

/// Whether the headers tell of a death of what was published to this exchange, whoever wrote that: one that is taken and
/// published again has lost the mark of a genuine history.
#[must_use]
pub fn tells_of_death(properties: &[u8], exchange: &str) -> bool {
    let headers = PropertiesRef(properties).headers().unwrap_or_default();
    let Some(ValueRef::Array(deaths)) = headers.get("x-death") else { return false };
    deaths
        .iter()
        .filter_map(|death| death.as_table()?.get("exchange")?.as_text())
        .any(|name| name == exchange)
}

/// Where a message that just died may not go: it would go round for ever, no client being asked.
#[derive(Debug, Default)]
pub struct Cycles<'a> {
    queues: BTreeSet<&'a str>,
    /// The queue of its only death, in place of those.
    only: Option<&'a str>,
    /// Whether it has died so often that it may go nowhere.
    pub is_too_long: bool,
}

impl<'a> Cycles<'a> {
    /// Reads a message's headers once, whatever the number of queues that it goes to.
    #[must_use]
    pub fn of(properties: &'a [u8]) -> Cycles<'a> {
        let mut cycles = Cycles::default();
        if !has_genuine_deaths(properties) {
            return cycles;
        }
        let headers = PropertiesRef(properties).headers().unwrap_or_default();
        let Some(ValueRef::Array(deaths)) = headers.get("x-death") else { return cycles };
        let mut count = 0;
        for death in deaths.iter().map_while(ValueRef::as_table) {
            let text = |name| death.get(name).and_then(ValueRef::as_text);
            if text("reason") == Some(Reason::Rejected.name()) {
                break;
            }
            count += 1;
            cycles.queues.extend(text("queue"));
        }
        cycles.is_too_long = count >= DEATHS_MAX;
        cycles
    }

    /// Those of a message that has died once, in this queue, without a client having rejected it.
    #[must_use]
    pub fn first(queue: &'a str) -> Cycles<'a> {
        Cycles { only: Some(queue), ..Cycles::default() }
    }

    /// Whether it may not go to this queue.
    #[must_use]
    pub fn end_in(&self, queue: &str) -> bool {
        self.is_too_long || self.only == Some(queue) || self.queues.contains(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use lepus_amqp::properties::Properties;

    fn death(queue: &'static str, reason: Reason) -> Death<'static> {
        Death {
            queue,
            reason,
            exchange: "",
            routing_key: "key",
            time_seconds: 5,
            is_rerouted: false,
        }
    }

    fn with_death(properties: &[u8], death: &Death<'_>) -> Option<Vec<u8>> {
        // What was written before leaves no trace.
        let mut writer = DeathWriter { headers: vec![1; 99], properties: vec![2; 99] };
        writer.write(properties, death).map(<[u8]>::to_vec)
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
        assert!(Cycles::of(&properties).queues.is_empty());
        let died = with_death(&properties, &death("b", Reason::MaxLength)).unwrap();
        assert_eq!(deaths(&died).len(), 1);
        assert_eq!(Vec::from_iter(Cycles::of(&died).queues), ["b"]);
    }

    #[test]
    fn a_rejection_breaks_the_cycle() {
        let first = with_death(&lepus_amqp::properties::EMPTY, &death("a", Reason::Expired));
        let second = with_death(&first.unwrap(), &death("b", Reason::Rejected));
        let second = second.unwrap();
        assert!(Cycles::of(&second).queues.is_empty());
        let third = with_death(&second, &death("c", Reason::Expired)).unwrap();
        assert_eq!(Vec::from_iter(Cycles::of(&third).queues), ["c"]);
    }

    #[test]
    fn a_message_with_many_keys_does_not_grow_by_all_of_them_with_each_death() {
        let keys: Vec<Value> = (0..1_000).map(|key| format!("key {key}").into()).collect();
        let headers = Some(Table::new().with(CC, keys));
        let mut properties = Properties { headers, ..Properties::default() }.to_bytes();
        let first = with_death(&properties, &death("first", Reason::Expired)).unwrap();
        for number in 0..100 {
            let queue = format!("q{number}");
            let death = Death { queue: &queue, ..death("", Reason::Expired) };
            properties = with_death(&properties, &death).unwrap();
        }
        assert!(properties.len() < first.len() + 100 * 150, "{} bytes", properties.len());
        let headers = owned_headers(PropertiesRef(&properties));
        let deaths = headers.get("x-death").and_then(Value::as_array).unwrap();
        let keys = |at: usize| deaths[at].as_table()?.get("routing-keys")?.as_array();
        assert_eq!(keys(0).map(<[Value]>::len), Some(1_001));
        assert_eq!(keys(1).map(<[Value]>::len), Some(1));
    }

    #[test]
    fn who_dies_very_often_without_a_client_goes_nowhere_any_more() {
        let mut properties = lepus_amqp::properties::EMPTY.to_vec();
        for number in 0..DEATHS_MAX {
            assert!(!Cycles::of(&properties).is_too_long);
            let queue = format!("q{number}");
            let death = Death { queue: &queue, ..death("", Reason::Expired) };
            properties = with_death(&properties, &death).unwrap();
        }
        assert!(Cycles::of(&properties).end_in("elsewhere"));
        let rejected = with_death(&properties, &death("q", Reason::Rejected)).unwrap();
        assert!(!Cycles::of(&rejected).end_in("elsewhere"));
        assert_eq!(deaths(&rejected).len(), DEATHS_MAX);
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

    /// The headers after a death, by tables that own what they hold.
    fn plainly(properties: &[u8], death: &Death<'_>) -> Table {
        let genuine = has_genuine_deaths(properties);
        let view = PropertiesRef(properties);
        let mut headers = owned_headers(view);
        let deaths = match headers.remove("x-death") {
            Some(Value::Array(deaths)) if genuine => deaths,
            _ => Vec::new(),
        };
        let reason = death.reason.name();
        let is_this = |entry: &Value| {
            let text = |name| entry.as_table().and_then(|entry| entry.get(name)?.as_text());
            text("queue") == Some(death.queue) && text("reason") == Some(reason)
        };
        let (mut this, mut others): (Vec<_>, Vec<_>) = deaths.into_iter().partition(is_this);
        let mut entry = match this.pop() {
            Some(Value::Table(entry)) => entry,
            _ => Table::new(),
        };
        let count = entry.get("count").and_then(Value::as_integer).unwrap_or(0) + 1;
        entry.insert("count", count);
        if count == 1 {
            let mut keys = vec![death.routing_key.to_string()];
            keys.extend(seen_keys(properties, headers.to_bytes().as_ref(), death.routing_key));
            entry.insert("reason", reason);
            entry.insert("queue", death.queue);
            entry.insert("time", Value::Timestamp(death.time_seconds));
            entry.insert("exchange", death.exchange);
            entry.insert("routing-keys", keys.into_iter().map(Value::from).collect::<Vec<_>>());
            if let Some(expiration) = view.expiration() {
                entry
                    .insert("original-expiration", String::from_utf8_lossy(expiration).to_string());
            }
        }
        others.insert(0, Value::Table(entry));
        others.truncate(DEATHS_MAX);
        headers.insert("x-death", others);
        let values = [reason, death.queue, death.exchange];
        for (name, value) in FIRST_DEATH.into_iter().zip(values).filter(|_| !genuine) {
            headers.insert(name, value);
        }
        for (name, value) in LAST_DEATH.into_iter().zip(values) {
            headers.insert(name, value);
        }
        if death.is_rerouted {
            headers.remove(BCC);
            if headers.get(CC).is_some() {
                store_keys(&mut headers, &[]);
            }
        }
        headers
    }

    #[test]
    fn deaths_written_in_the_form_of_the_wire_are_those_of_owned_tables() {
        fn by_name(mut table: Table) -> Table {
            table.0.sort_by(|(one, _), (other, _)| one.cmp(other));
            table
        }
        let mut random = lepus_base::Rng::new(5);
        for _ in 0..500 {
            let mut pick = |count: u32| random.below(u64::from(count)) as usize;
            let mut headers =
                Table::new().with("own", 5_i64).with("nested", Table::new().with("a", true));
            if pick(2) == 0 {
                headers.insert(CC, vec![Value::from("one"), Value::from("two")]);
            }
            if pick(4) == 0 {
                headers.insert("x-death", vec![Value::from("made up")]);
                headers.insert("x-first-death-queue", "made up");
            }
            let has_hidden = pick(3) == 0;
            if has_hidden {
                headers.insert(BCC, vec![Value::from("two"), Value::from("three")]);
            }
            let expiration = (pick(2) == 0).then(|| "60000".into());
            let properties =
                Properties { headers: Some(headers), expiration, ..Properties::default() };
            let mut properties = properties.to_bytes();
            if has_hidden {
                mark_keys(&mut properties);
            }
            for _ in 0..1 + pick(6) {
                let queue = ["a", "b", "c"][pick(3)];
                let reason = [Reason::Expired, Reason::Rejected, Reason::MaxLength][pick(3)];
                let death = Death { is_rerouted: pick(4) == 0, ..death(queue, reason) };
                let expected = plainly(&properties, &death);
                properties = with_death(&properties, &death).unwrap();
                assert!(PropertiesRef(&properties).expiration().is_none());
                let found = owned_headers(PropertiesRef(&properties));
                assert_eq!(by_name(found), by_name(expected));
            }
        }
    }
}
