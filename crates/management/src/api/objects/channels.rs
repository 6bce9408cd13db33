//! Channels.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::connections::{Connections, name_of};
use lepus_base::ShardId;
use lepus_broker::query::{ChannelRow, ConnectionRow, Nested};
use lepus_broker::{Answer, Query};
use serde_json::{Value, json};

fn row(context: &Context<'_>, connection: &ConnectionRow, row: &ChannelRow) -> Value {
    json!({
        "name": format!("{} ({})", name_of(connection), row.number),
        "number": row.number,
        "node": context.api.node_name(),
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": connection.vhost,
        "state": "running",
        "consumer_count": row.consumers,
        "prefetch_count": row.prefetch,
        "global_prefetch_count": row.global_prefetch,
        "messages_unacknowledged": row.unacked,
        "messages_unconfirmed": row.unconfirmed,
        "messages_uncommitted": row.uncommitted,
        "acks_uncommitted": row.acks_uncommitted,
        "pending_raft_commands": 0,
        "confirm": row.confirms,
        "transactional": row.transactional,
        "connection_details": Connections::details(connection),
        "garbage_collection": {},
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
    })
}

/// The rows of all channels that the user who asks may see, of the connections that are wanted.
fn rows(
    context: &Context<'_>,
    is_wanted: impl Fn(&ConnectionRow) -> bool,
) -> Result<Vec<Value>, Failure> {
    let connections = Connections::ask(context)?;
    let sees_all = context.login.is_monitor();
    let mut rows = Vec::new();
    for shard in 0..context.api.broker.shards() {
        let mut from = Some(Nested::default());
        while let Some(next) = from {
            match context.ask(ShardId(shard), Query::Channels(next))? {
                Answer::Channels(part) => {
                    rows.extend(part.rows.iter().filter_map(|found| {
                        let connection = connections.get(found.connection)?;
                        let is_seen = sees_all || connection.user == context.login.name();
                        (is_seen && is_wanted(connection)).then(|| row(context, connection, found))
                    }));
                    from = part.next;
                }
                other => unreachable!("a question for channels is answered with {other:?}"),
            }
        }
    }
    Ok(rows)
}

/// `GET /channels`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.request.vhost.as_deref().filter(|name| !name.is_empty());
    context.list_rows(rows(context, |row| vhost.is_none_or(|vhost| row.vhost == vhost))?)
}

/// `GET /vhosts/{v}/channels`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    let directory = context.directory();
    context.vhost(&directory, context.name(0))?;
    drop(directory);
    context.list_rows(rows(context, |row| row.vhost == context.name(0))?)
}

/// `GET /connections/{c}/channels`
pub(crate) fn of_connection(context: &Context<'_>) -> Result<Reply, Failure> {
    context.list_rows(rows(context, |row| name_of(row) == context.name(0))?)
}

/// `GET /channels/{c}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let mut rows = rows(context, |row| context.name(0).starts_with(&name_of(row)))?;
    rows.retain(|row| row["name"] == context.name(0));
    let mut row = rows.pop().ok_or_else(Failure::not_found)?;
    for list in ["consumer_details", "deliveries", "publishes"] {
        row[list] = Value::Array(Vec::new());
    }
    Ok(context.object(row))
}
