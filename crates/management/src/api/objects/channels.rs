//! Channels.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::samples::{OF_CHANNEL, Range, of_channel};
use super::connections::{Connections, name_of};
use super::consumers;
use lepus_base::ShardId;
use lepus_broker::query::{ChannelRow, ConnectionRow, Nested};
use lepus_broker::{Answer, Query};
use serde_json::{Map, Value, json};

/// A channel of a list.
struct Item<'a> {
    name: String,
    connection: &'a ConnectionRow,
    channel: ChannelRow,
}

fn attributes(context: &Context<'_>, item: &Item<'_>) -> Map<String, Value> {
    let Item { name, connection, channel } = item;
    super::fields(json!({
        "name": name,
        "number": channel.number,
        "node": context.api.node_name(),
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": connection.vhost,
        "state": "running",
        "consumer_count": channel.consumers,
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.global_prefetch,
        "messages_unacknowledged": channel.unacked,
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": channel.uncommitted,
        "acks_uncommitted": channel.acks_uncommitted,
        "pending_raft_commands": 0,
        "confirm": channel.confirms,
        "transactional": channel.transactional,
        "connection_details": Connections::details(connection),
        "garbage_collection": {},
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
    }))
}

/// Rows of channels with the messages that passed them; in lists those without any have no `message_stats`.
fn rows(context: &Context<'_>, items: &[Item<'_>], is_single: bool) -> Result<Vec<Value>, Failure> {
    let range = Range::read(context, "msg_rates")?;
    let shown = items.iter().map(|Item { channel, .. }| {
        ((channel.connection, channel.number), of_channel(&channel.counts))
    });
    let details: Vec<[Option<Value>; OF_CHANNEL.len()]> =
        context.api.samples.channels(shown, |series| {
            std::array::from_fn(|place| series.map(|series| series.details(place, range)))
        });
    let rows = items.iter().zip(details).map(|(item, details)| {
        let mut row = attributes(context, item);
        let values = of_channel(&item.channel.counts);
        if is_single || values.iter().any(|value| *value > 0) {
            let mut stats = Map::new();
            super::add_values(&mut stats, &OF_CHANNEL, &values, details);
            row.insert("message_stats".to_owned(), Value::Object(stats));
        }
        Value::Object(row)
    });
    Ok(rows.collect())
}

/// All channels that the user who asks may see, of the connections that are wanted.
fn items<'a>(
    context: &Context<'_>,
    connections: &'a Connections,
    is_wanted: impl Fn(&ConnectionRow) -> bool,
) -> Result<Vec<Item<'a>>, Failure> {
    let sees_all = context.login.is_monitor();
    let mut items = Vec::new();
    for shard in 0..context.api.broker.shards() {
        let mut from = Some(Nested::default());
        while let Some(next) = from {
            match context.ask(ShardId(shard), Query::Channels(next))? {
                Answer::Channels(part) => {
                    items.extend(part.rows.into_iter().filter_map(|channel| {
                        let connection = connections.get(channel.connection)?;
                        let is_seen = sees_all || connection.user == context.login.name();
                        if !is_seen || !is_wanted(connection) {
                            return None;
                        }
                        let name = format!("{} ({})", name_of(connection), channel.number);
                        Some(Item { name, connection, channel })
                    }));
                    from = part.next;
                }
                other => unreachable!("a question for channels is answered with {other:?}"),
            }
        }
    }
    Ok(items)
}

fn listed(
    context: &Context<'_>,
    is_wanted: impl Fn(&ConnectionRow) -> bool,
) -> Result<Reply, Failure> {
    let connections = Connections::ask(context)?;
    let items = items(context, &connections, is_wanted)?;
    context.list(items, |item| &item.name, |items| rows(context, items, false))
}

/// `GET /channels`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.request.vhost.as_deref().filter(|name| !name.is_empty());
    listed(context, |row| vhost.is_none_or(|vhost| row.vhost == vhost))
}

/// `GET /vhosts/{v}/channels`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    let directory = context.directory();
    context.vhost(&directory, context.name(0))?;
    drop(directory);
    listed(context, |row| row.vhost == context.name(0))
}

/// `GET /connections/{c}/channels`
pub(crate) fn of_connection(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, |row| name_of(row) == context.name(0))
}

/// `GET /channels/{c}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let connections = Connections::ask(context)?;
    let is_wanted = |row: &ConnectionRow| context.name(0).starts_with(&name_of(row));
    let mut items = items(context, &connections, is_wanted)?;
    items.retain(|item| item.name == context.name(0));
    let item = items.pop().ok_or_else(Failure::not_found)?;
    let mut row = rows(context, std::slice::from_ref(&item), true)?.swap_remove(0);
    let channel = &item.channel;
    row["consumer_details"] = Value::Array(match channel.consumers {
        0 => Vec::new(),
        _ => consumers::of_channel(context, &connections, channel)?,
    });
    for list in ["deliveries", "publishes"] {
        row[list] = Value::Array(Vec::new());
    }
    Ok(context.object(row))
}
