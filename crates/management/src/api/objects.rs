//! What the paths of the API answer, by kind of object.

pub(crate) mod bindings;
pub(crate) mod channels;
pub(crate) mod connections;
pub(crate) mod consumers;
pub(crate) mod definitions;
pub(crate) mod exchanges;
pub(crate) mod features;
pub(crate) mod health;
pub(crate) mod limits;
pub(crate) mod messages;
pub(crate) mod node;
pub(crate) mod overview;
pub(crate) mod permissions;
pub(crate) mod queues;
pub(crate) mod users;
pub(crate) mod vhosts;

use serde_json::{Map, Value};

/// The fields of an object that is built.
fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => unreachable!("{other} is no object"),
    }
}
