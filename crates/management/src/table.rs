//! Lists as JSON tables.

use crate::definitions::table_value;
use lepus_amqp::table::{TableRef, ValueRef};
use lepus_broker::query::{
    BindingRow, ConnectionRow, ExchangeRow, PermissionRow, QueueRow, TopicPermissionRow, UserRow,
    VhostRow,
};
use serde_json::{Value, json};

/// In which order the rows of a table belong, which come in parts and in no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they come.
    Given,
    /// By so many of the first columns, which tell rows apart.
    Columns(usize),
    /// By a number that each row has beside its columns. Two rows of one number are the same, met twice.
    Number,
}

/// A row of a table.
pub trait Row {
    /// Names of the columns.
    const COLUMNS: &'static [&'static str];
    /// Where the rows belong.
    const ORDER: Order;
    /// So many of the first columns are of one row only at any time; 0 where any two rows may be the same. Two rows that
    /// have them in common are one, met twice: what it is of moved while it was listed.
    const NAMED_BY: usize = 0;

    /// The row's values, one for each column.
    fn values(&self) -> Value;

    /// The row's number, where [`Order::Number`] counts.
    fn number(&self) -> u64 {
        0
    }
}

/// A part of a table, which goes on at `next` unless that is null: `columns`, `rows`, `next`, `sorted_by` or `order`
/// where whoever puts the parts together has to put the rows in order, and `named_by` where the later of two rows counts
/// that have so many columns in common.
#[must_use]
pub fn part<R: Row>(rows: &[R], next: &Value) -> Value {
    let values: Vec<Value> = rows.iter().map(Row::values).collect();
    let mut part = json!({"columns": R::COLUMNS, "rows": values, "next": next});
    if R::NAMED_BY > 0 {
        part["named_by"] = json!(R::NAMED_BY);
    }
    match R::ORDER {
        Order::Given => {}
        Order::Columns(count) => part["sorted_by"] = json!(count),
        Order::Number => {
            part["order"] = rows.iter().map(Row::number).collect::<Vec<u64>>().into();
        }
    }
    part
}

impl Row for QueueRow {
    const COLUMNS: &'static [&'static str] = &[
        "name",
        "type",
        "durable",
        "auto_delete",
        "exclusive",
        "ready",
        "unacked",
        "consumers",
        "shard",
    ];
    const ORDER: Order = Order::Columns(4);
    const NAMED_BY: usize = 1;

    fn values(&self) -> Value {
        json!([
            self.name,
            self.kind,
            self.durable,
            self.auto_delete,
            self.exclusive,
            self.ready,
            self.unacked,
            self.consumers,
            self.shard.0,
        ])
    }
}

/// In the order in which they were opened.
impl Row for ConnectionRow {
    const COLUMNS: &'static [&'static str] =
        &["peer", "user", "vhost", "channels", "tls", "blocked", "shard"];
    const ORDER: Order = Order::Number;

    fn values(&self) -> Value {
        json!([
            self.peer,
            self.user,
            self.vhost,
            self.channels,
            self.tls.is_some(),
            self.blocked,
            self.shard.0,
        ])
    }

    fn number(&self) -> u64 {
        self.id.0
    }
}

impl Row for ExchangeRow {
    const COLUMNS: &'static [&'static str] =
        &["name", "type", "durable", "auto_delete", "internal"];
    const ORDER: Order = Order::Columns(4);
    const NAMED_BY: usize = 1;

    fn values(&self) -> Value {
        json!([self.name, self.kind, self.durable, self.auto_delete, self.internal])
    }
}

/// Values of a binding's arguments that a list tells. As JSON each takes hundred times what it takes in the table.
const ARGUMENTS_MAX: usize = 128;

/// Arguments in a list: of very many values, how long they are.
fn arguments_value(arguments: TableRef<'_>) -> Value {
    let mut left = ARGUMENTS_MAX;
    match arguments.iter().all(|(_, value)| takes(value, &mut left)) {
        true => table_value(arguments),
        false => {
            json!(format!("{} bytes, more than {ARGUMENTS_MAX} values", arguments.bytes().len()))
        }
    }
}

/// Counts a value and what is in it. Whether so many are left.
fn takes(value: ValueRef<'_>, left: &mut usize) -> bool {
    let Some(less) = left.checked_sub(1) else { return false };
    *left = less;
    match value {
        ValueRef::Array(items) => items.iter().all(|item| takes(item, left)),
        ValueRef::Table(table) => table.iter().all(|(_, value)| takes(value, left)),
        _ => true,
    }
}

impl Row for BindingRow {
    const COLUMNS: &'static [&'static str] =
        &["source", "destination_type", "destination", "routing_key", "arguments"];
    const ORDER: Order = Order::Columns(5);

    fn values(&self) -> Value {
        let arguments = arguments_value(self.arguments.as_ref());
        json!([self.source, self.destination_kind, self.destination, self.routing_key, arguments])
    }
}

impl Row for VhostRow {
    const COLUMNS: &'static [&'static str] = &["name", "queues", "description"];
    const ORDER: Order = Order::Given;

    fn values(&self) -> Value {
        json!([self.name, self.queues, self.description])
    }
}

impl Row for UserRow {
    const COLUMNS: &'static [&'static str] = &["name", "tags", "password"];
    const ORDER: Order = Order::Given;

    fn values(&self) -> Value {
        json!([self.name, self.tags.join(", "), self.has_password])
    }
}

impl Row for PermissionRow {
    const COLUMNS: &'static [&'static str] = &["user", "vhost", "configure", "write", "read"];
    const ORDER: Order = Order::Given;

    fn values(&self) -> Value {
        json!([self.user, self.vhost, self.configure, self.write, self.read])
    }
}

impl Row for TopicPermissionRow {
    const COLUMNS: &'static [&'static str] = &["user", "vhost", "exchange", "write", "read"];
    const ORDER: Order = Order::Given;

    fn values(&self) -> Value {
        json!([self.user, self.vhost, self.exchange, self.write, self.read])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::table::{Table, TableBytes, Value as Field};
    use lepus_base::{ConnectionId, ShardId};
    use lepus_broker::Octets;

    #[test]
    fn a_part_says_in_which_order_its_rows_belong() {
        let connection = |id| ConnectionRow {
            id: ConnectionId(id),
            peer: format!("10.0.0.1:{id}"),
            local_address: "10.0.0.2:5672".to_owned(),
            accepted_millis: 1,
            client_properties: TableBytes::default(),
            protocol: "AMQP 0-9-1",
            mechanism: "PLAIN".to_owned(),
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat_seconds: 60,
            user: "guest".to_owned(),
            vhost: "/".to_owned(),
            channels: 2,
            tls: None,
            blocked: true,
            octets: Octets::default(),
            shard: ShardId(1),
        };
        let table = part(&[connection(9), connection(4)], &json!({"shard": 1, "place": 256}));
        assert_eq!(table["order"], json!([9, 4]));
        assert_eq!(table["next"]["place"], 256);
        let row = json!(["10.0.0.1:9", "guest", "/", 2, false, true, 1]);
        assert_eq!(table["rows"][0], row);
        let vhost = VhostRow { name: "v".to_owned(), queues: 3, description: String::new() };
        let table = part(&[vhost], &Value::Null);
        assert_eq!(table["rows"], json!([["v", 3, ""]]));
        assert!(table.get("order").is_none() && table.get("sorted_by").is_none());
    }

    /// Columns and values belong together.
    #[test]
    fn every_column_has_a_value() {
        fn check<R: Row>(row: &R) {
            assert_eq!(row.values().as_array().map(Vec::len), Some(R::COLUMNS.len()));
            if let Order::Columns(count) = R::ORDER {
                assert!(count <= R::COLUMNS.len());
            }
            let named_by = (R::NAMED_BY > 0).then_some(R::NAMED_BY);
            assert_eq!(
                part::<R>(&[], &Value::Null).get("named_by"),
                named_by.map(|n| json!(n)).as_ref()
            );
            assert!(R::NAMED_BY <= R::COLUMNS.len());
        }
        let text = String::new;
        check(&BindingRow {
            source: text(),
            destination_kind: "queue",
            destination: text(),
            routing_key: text(),
            arguments: TableBytes::default(),
        });
        check(&ExchangeRow {
            name: text(),
            kind: "direct",
            durable: true,
            auto_delete: false,
            internal: false,
        });
        check(&UserRow { name: text(), tags: vec![text()], has_password: true });
        check(&QueueRow {
            id: lepus_base::QueueId(1),
            name: text(),
            kind: "classic",
            durable: true,
            auto_delete: false,
            exclusive: false,
            ready: 1,
            unacked: 2,
            consumers: 3,
            shard: ShardId(0),
        });
    }

    #[test]
    fn arguments_of_very_many_values_are_told_by_their_length() {
        let of = |count: usize| {
            let items = vec![Field::Table(Table::new().with("", Field::Void)); count];
            arguments_value(Table::new().with("x", Field::Array(items)).to_bytes().as_ref())
        };
        assert_eq!(of(63)["x"].as_array().map(Vec::len), Some(63));
        assert_eq!(of(64), json!("455 bytes, more than 128 values"));
        let many = (0..129).fold(Table::new(), |table, name| table.with(&*name.to_string(), 1));
        assert!(arguments_value(many.to_bytes().as_ref()).is_string());
    }
}
