//! Orders that list what the broker holds.
//!
//! A list is made in parts of at most [`ROWS_MAX`] rows, so that no shard works on one for long.

use crate::figures::Figures;
use lepus_broker::Broker;
use lepus_broker::connection::Connection;
use lepus_broker::directory::{DestinationRef, Directory};
use serde_json::{Value, json};

/// Rows of one answer.
const ROWS_MAX: usize = 2_000;

/// Queues of a virtual host with their messages and consumers.
pub fn queues(figures: &Figures, request: &Value) -> Result<Value, String> {
    let vhost = super::vhost_name(request);
    let from = request["from"].as_str().unwrap_or("").to_owned();
    let first = from.is_empty();
    let parts = figures.ask_all(move |broker| queues_of(broker, &vhost, &from, first))?;
    let mut rows: Vec<(String, Value)> = Vec::new();
    for part in parts {
        rows.extend(part?);
    }
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let next = (rows.len() > ROWS_MAX).then(|| {
        rows.truncate(ROWS_MAX);
        rows[ROWS_MAX - 1].0.clone()
    });
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    let columns = [
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
    Ok(json!({"columns": columns, "rows": rows, "next": next}))
}

/// The first queues of this shard behind `from` by name, one more than fit into an answer.
fn queues_of(
    broker: &Broker,
    vhost: &str,
    from: &str,
    first: bool,
) -> Result<Vec<(String, Value)>, String> {
    let directory = &broker.directory;
    let vhost = find_vhost(directory, vhost)?;
    let shard = broker.shard();
    let rows = directory
        .queues(Some(vhost))
        .filter(|info| info.home == shard && (first || info.name() > from))
        .take(ROWS_MAX + 1)
        .map(|info| {
            let (ready, unacked, consumers) = broker.queue(info.id).map_or((0, 0, 0), |queue| {
                (queue.ready(), queue.unacked(), queue.consumer_count())
            });
            let row = json!([
                info.name(),
                info.kind.name(),
                info.durable,
                info.auto_delete,
                info.exclusive().is_some(),
                ready,
                unacked,
                consumers,
                shard.0,
            ]);
            (info.name().to_string(), row)
        });
    Ok(rows.collect())
}

/// Connections of all shards in the order in which they were opened.
pub fn connections(figures: &Figures, request: &Value) -> Result<Value, String> {
    let from = request["from"].as_u64();
    let parts = figures.ask_all(move |broker| connections_of(broker, from))?;
    let mut rows: Vec<(u64, Value)> = parts.into_iter().flatten().collect();
    rows.sort_by_key(|(id, _)| *id);
    let next = (rows.len() > ROWS_MAX).then(|| {
        rows.truncate(ROWS_MAX);
        rows[ROWS_MAX - 1].0
    });
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    let columns = ["peer", "user", "vhost", "channels", "tls", "blocked", "shard"];
    Ok(json!({"columns": columns, "rows": rows, "next": next}))
}

fn connections_of(broker: &Broker, from: Option<u64>) -> Vec<(u64, Value)> {
    let shard = broker.shard();
    let mut connections: Vec<_> = broker
        .edge
        .connections
        .iter()
        .map(|(_, connection)| &**connection)
        .filter(|connection| from.is_none_or(|from| connection.id.0 > from))
        .collect();
    connections.sort_by_key(|connection| connection.id);
    connections.truncate(ROWS_MAX + 1);
    let row = |connection: &&Connection| {
        let row = json!([
            connection.peer.address,
            connection.user,
            connection.vhost_name,
            connection.open_channels().count(),
            connection.peer.tls.is_some(),
            connection.blocked,
            shard.0,
        ]);
        (connection.id.0, row)
    };
    connections.iter().map(row).collect()
}

/// Exchanges of a virtual host.
pub fn exchanges(directory: &Directory, vhost: &str) -> Result<Value, String> {
    let vhost = find_vhost(directory, vhost)?;
    let rows: Vec<Value> = directory
        .exchanges(Some(vhost))
        .map(|exchange| {
            json!([
                exchange.name,
                exchange.kind_name(),
                exchange.durable,
                exchange.auto_delete,
                exchange.internal,
            ])
        })
        .collect();
    let columns = ["name", "type", "durable", "auto_delete", "internal"];
    Ok(json!({"columns": columns, "rows": rows}))
}

/// Bindings of a virtual host without those of the default exchange.
pub fn bindings(directory: &Directory, vhost: &str) -> Result<Value, String> {
    let vhost = find_vhost(directory, vhost)?;
    let rows: Vec<Value> = directory
        .bindings(vhost)
        .filter(|binding| !binding.source.is_empty())
        .map(|binding| {
            let (kind, name) = match binding.destination {
                DestinationRef::Queue(name) => ("queue", name),
                DestinationRef::Exchange(name) => ("exchange", name),
            };
            json!([binding.source, kind, name, binding.routing_key])
        })
        .collect();
    let columns = ["source", "destination_type", "destination", "routing_key"];
    Ok(json!({"columns": columns, "rows": rows}))
}

fn find_vhost(directory: &Directory, name: &str) -> Result<lepus_base::VhostId, String> {
    directory.vhost(name).ok_or_else(|| format!("there is no virtual host {name:?}"))
}
