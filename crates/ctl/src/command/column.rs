//! Columns of tables: their names, where their values stand in the API's answers, and what those mean.

use crate::term::Term;
use serde_json::Value;

/// How the value of a column is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As it came.
    Plain,
    /// A word such as `running`.
    Atom,
    /// A list of words.
    Tags,
    /// A field table.
    Table,
    /// JSON as text.
    Json,
    /// An identifier like that of an Erlang process, made of the node and the name of a thing.
    Pid,
    /// `AMQP 0-9-1` as `{0,9,1}`.
    Protocol,
    /// The fixed word in `at`.
    Word,
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// The keys to its value, joined by points.
    pub at: &'static str,
    /// What the value means.
    pub kind: Kind,
}

/// A value of its own name.
#[must_use]
pub const fn plain(name: &'static str) -> Column {
    Column { name, at: name, kind: Kind::Plain }
}

/// A word of its own name.
#[must_use]
pub const fn atom(name: &'static str) -> Column {
    Column { name, at: name, kind: Kind::Atom }
}

/// A field table of its own name.
#[must_use]
pub const fn table(name: &'static str) -> Column {
    Column { name, at: name, kind: Kind::Table }
}

/// Words of its own name.
#[must_use]
pub const fn tags(name: &'static str) -> Column {
    Column { name, at: name, kind: Kind::Tags }
}

/// JSON of its own name.
#[must_use]
pub const fn json(name: &'static str) -> Column {
    Column { name, at: name, kind: Kind::Json }
}

impl Column {
    /// With a value that stands elsewhere.
    #[must_use]
    pub const fn at(self, at: &'static str) -> Column {
        Column { at, ..self }
    }

    /// With a meaning.
    #[must_use]
    pub const fn is(self, kind: Kind) -> Column {
        Column { kind, ..self }
    }

    /// The value in an object of the API.
    #[must_use]
    pub fn of(&self, item: &Value) -> Term {
        let empty = Value::Null;
        let value = find(item, self.at).unwrap_or(&empty);
        match (self.kind, value) {
            (Kind::Word, _) => Term::Atom(self.at.to_owned()),
            (Kind::Json, Value::Null) => Term::Nothing,
            (Kind::Json, value) => Term::Json(value.clone()),
            (Kind::Table, Value::Null) => Term::Table(serde_json::Map::new()),
            (Kind::Table, Value::Array(items)) if items.is_empty() => {
                Term::Table(serde_json::Map::new())
            }
            (Kind::Tags, Value::Null) => Term::Atoms(Vec::new()),
            (Kind::Tags, Value::String(words)) => {
                let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
                Term::Atoms(words.map(str::to_owned).collect())
            }
            (Kind::Atom, Value::String(word)) => Term::Atom(word.clone()),
            (Kind::Pid, Value::String(name)) => Term::Text(pid(item, self.at, name)),
            (Kind::Protocol, Value::String(name)) => Term::Text(protocol(name)),
            (_, value) => Term::of(value),
        }
    }
}

/// The value behind keys that are joined by points.
fn find<'a>(item: &'a Value, at: &str) -> Option<&'a Value> {
    at.split('.').try_fold(item, |value, key| value.get(key))
}

fn protocol(name: &str) -> String {
    match name {
        "AMQP 0-9-1" => "{0,9,1}".to_owned(),
        "AMQP 1-0" | "AMQP 1.0" => "{1,0}".to_owned(),
        other => other.to_owned(),
    }
}

/// An identifier that looks like an Erlang process's, is the same at every call and differs from that of other things:
/// 80 bits made of the name, and of the virtual host for queues.
fn pid(item: &Value, at: &str, name: &str) -> String {
    let text = |key: &str| find(item, key).and_then(Value::as_str);
    let inner = at.rsplit_once('.').map(|(outer, _)| format!("{outer}.node"));
    let node =
        text("node").or_else(|| inner.as_deref().and_then(text)).unwrap_or("rabbit@localhost");
    let scope = if at == "name" && item.get("arguments").is_some() { text("vhost") } else { None };
    pid_of(node, scope.unwrap_or(""), name)
}

/// The identifier of something on a node.
fn pid_of(node: &str, scope: &str, name: &str) -> String {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in scope.bytes().chain([0]).chain(name.bytes()) {
        hash ^= u128::from(byte);
        hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let part = |shift: u32, bits: u32| (hash >> shift) & ((1 << bits) - 1);
    format!("<{node}.{}.{}.{}>", part(96, 31), part(64, 28), part(40, 13))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_identifier_names_one_thing_only() {
        let connection = json!({"node": "rabbit@h", "name": "127.0.0.1:1 -> 127.0.0.1:2"});
        let pid = plain("pid").at("name").is(Kind::Pid);
        let first = pid.of(&connection).field();
        assert!(first.starts_with("<rabbit@h.") && first.ends_with('>'), "{first}");
        assert_eq!(first, pid.of(&connection).field());
        let of_queue = |vhost: &str| {
            pid.of(&json!({"node": "rabbit@h", "vhost": vhost, "name": "q", "arguments": {}}))
                .field()
        };
        assert_ne!(of_queue("/"), of_queue("v"));
        // A channel's connection is the one that the list of connections shows.
        let channel = json!({"node": "rabbit@h", "name": "x (1)", "connection_details": {"name": "127.0.0.1:1 -> 127.0.0.1:2"}});
        let owner = plain("connection").at("connection_details.name").is(Kind::Pid);
        assert_eq!(owner.of(&channel).field(), first);
    }

    #[test]
    fn values_are_what_their_column_says() {
        let item = json!({"tags": "a, b", "arguments": [], "definition": {"max-length": 5}, "a": {"b": 7}});
        assert_eq!(tags("tags").of(&item).field(), "[a, b]");
        assert_eq!(table("arguments").of(&item).field(), "[]");
        assert_eq!(json("definition").of(&item).field(), "{\"max-length\":5}");
        assert_eq!(plain("x").at("a.b").of(&item).field(), "7");
        assert_eq!(plain("missing").of(&item).field(), "");
        let item = json!({"protocol": "AMQP 0-9-1"});
        assert_eq!(plain("protocol").is(Kind::Protocol).of(&item).field(), "{0,9,1}");
    }
}
