//! Consumers.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::connections::Connections;
use lepus_base::{QueueId, ShardId};
use lepus_broker::directory::router::{FILTER, FORMAT};
use lepus_broker::query::{ChannelRow, ConsumerRow, Nested};
use lepus_broker::{Answer, Query};
use serde_json::{Map, Value, json};

/// All consumers of a queue, or of all queues of a shard.
fn ask(
    context: &Context<'_>,
    home: ShardId,
    queue: Option<QueueId>,
) -> Result<Vec<ConsumerRow>, Failure> {
    let (mut rows, mut from) = (Vec::new(), Some(Nested::default()));
    while let Some(next) = from {
        match context.ask(home, Query::Consumers { queue, from: next })? {
            Answer::Consumers(part) => {
                rows.extend(part.rows);
                from = part.next;
            }
            other => unreachable!("a question for consumers is answered with {other:?}"),
        }
    }
    Ok(rows)
}

fn row(context: &Context<'_>, connections: &Connections, row: &ConsumerRow) -> Option<Value> {
    let directory = context.directory();
    let info = directory.queue_by_id(directory.id_now(row.queue))?;
    let queue = json!({"name": info.name(), "vhost": directory.vhost_name(info.vhost)});
    let filter = row.filter.iter().map(|filter| (FILTER.to_owned(), json!(filter)));
    // What is not said is `auto`.
    let format = (row.format != "auto").then(|| (FORMAT.to_owned(), json!(row.format)));
    let arguments: Map<String, Value> = filter.chain(format).collect();
    Some(json!({
        "consumer_tag": row.tag,
        "active": row.active,
        "activity_status": if row.active { "up" } else { "waiting" },
        "ack_required": !row.no_ack,
        "exclusive": row.exclusive,
        "prefetch_count": row.prefetch,
        "priority": row.priority,
        "arguments": arguments,
        "consumer_timeout": 0,
        "queue": queue,
        "channel_details": connections.channel_details(context, row.connection, row.channel),
    }))
}

/// The rows of a queue's consumers.
pub(crate) fn of_queue(
    context: &Context<'_>,
    queue: QueueId,
    home: ShardId,
) -> Result<Vec<Value>, Failure> {
    let found = ask(context, home, Some(queue))?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let connections = Connections::of(context, found.iter().map(|found| found.connection))?;
    Ok(found.iter().filter_map(|found| row(context, &connections, found)).collect())
}

/// The rows of a channel's consumers, by a look at those of all queues.
pub(crate) fn of_channel(
    context: &Context<'_>,
    connections: &Connections,
    channel: &ChannelRow,
) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    for shard in 0..context.api.broker.shards() {
        let found = ask(context, ShardId(shard), None)?;
        let own = found.iter().filter(|found| {
            (found.connection, found.channel) == (channel.connection, channel.number)
        });
        rows.extend(own.filter_map(|found| row(context, connections, found)));
    }
    Ok(rows)
}

fn listed(context: &Context<'_>, vhost: Option<&str>) -> Result<Reply, Failure> {
    let visible = context.vhost_names(vhost)?;
    let connections = Connections::ask(context)?;
    let mut rows = Vec::new();
    for shard in 0..context.api.broker.shards() {
        let found = ask(context, ShardId(shard), None)?;
        rows.extend(found.iter().filter_map(|found| row(context, &connections, found)));
    }
    let (sees_all, name) = (context.login.is_monitor(), context.login.name());
    rows.retain(|row| {
        if !sees_all && row["channel_details"]["user"] != name {
            return false;
        }
        visible.contains(row["queue"]["vhost"].as_str().unwrap_or_default())
    });
    let key = |row: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&row["queue"]["vhost"]), text(&row["queue"]["name"]), text(&row["consumer_tag"]))
    };
    rows.sort_by_cached_key(key);
    context.list_rows(rows)
}

/// `GET /consumers`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, None)
}

/// `GET /consumers/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, Some(context.name(0)))
}
