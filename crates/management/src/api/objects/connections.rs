//! Connections.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::samples::{OF_CONNECTION, Range};
use crate::definitions::table_value;
use lepus_base::{ConnectionId, ShardId};
use lepus_broker::query::{ConnectionRow, PLACES_MAX, Page};
use lepus_broker::{Answer, Query};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Open connections, by id.
pub(crate) struct Connections(BTreeMap<ConnectionId, ConnectionRow>);

/// Address and port of an end of a connection.
fn split(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    (host.trim_start_matches('[').trim_end_matches(']'), port.parse().unwrap_or(0))
}

/// The name of a connection: its ends.
pub(crate) fn name_of(row: &ConnectionRow) -> String {
    format!("{} -> {}", row.peer, row.local_address)
}

impl Connections {
    /// Asks the shards for all, in the order in which they came. Those that have not opened a virtual host are not told.
    ///
    /// # Errors
    /// 503 where a shard does not answer.
    pub(crate) fn ask(context: &Context<'_>) -> Result<Connections, Failure> {
        let mut all = BTreeMap::new();
        for shard in 0..context.api.broker.shards() {
            let mut from = Some(0);
            while let Some(place) = from {
                let page = Page { from: place, limit: PLACES_MAX };
                match context.ask(ShardId(shard), Query::Connections(page))? {
                    Answer::Connections(part) => {
                        let open = part.rows.into_iter().filter(|row| !row.vhost.is_empty());
                        all.extend(open.map(|row| (row.id, row)));
                        from = part.next;
                    }
                    other => unreachable!("a question for connections is answered with {other:?}"),
                }
            }
        }
        Ok(Connections(all))
    }

    /// Asks the shards for these only, wherever they are.
    ///
    /// # Errors
    /// 503 where a shard does not answer.
    pub(crate) fn of(
        context: &Context<'_>,
        ids: impl Iterator<Item = ConnectionId>,
    ) -> Result<Connections, Failure> {
        let mut wanted: Vec<ConnectionId> = ids.collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut all = BTreeMap::new();
        for ids in wanted.chunks(PLACES_MAX) {
            for shard in 0..context.api.broker.shards() {
                match context.ask(ShardId(shard), Query::ConnectionsById(ids.to_vec()))? {
                    Answer::Connections(part) => {
                        all.extend(part.rows.into_iter().map(|row| (row.id, row)));
                    }
                    other => unreachable!("a question for connections is answered with {other:?}"),
                }
            }
        }
        Ok(Connections(all))
    }

    /// All of them in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ConnectionRow> {
        self.0.values()
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&ConnectionRow> {
        self.0.get(&id)
    }

    /// Those that the user who asks may see.
    fn visible<'a>(&'a self, context: &Context<'_>) -> Vec<&'a ConnectionRow> {
        let sees_all = context.login.is_monitor();
        let name = context.login.name();
        self.0.values().filter(|row| sees_all || row.user == name).collect()
    }

    /// What the row of a consumer says about its channel.
    pub(crate) fn channel_details(
        &self,
        context: &Context<'_>,
        connection: ConnectionId,
        number: u16,
    ) -> Value {
        let Some(row) = self.get(connection) else { return json!({}) };
        let name = name_of(row);
        let (host, port) = split(&row.peer);
        json!({
            "name": format!("{name} ({number})"),
            "number": number,
            "connection_name": name,
            "node": context.api.node_name(),
            "peer_host": host,
            "peer_port": port,
            "user": row.user,
        })
    }

    /// What the row of a channel says about its connection.
    pub(crate) fn details(row: &ConnectionRow) -> Value {
        let (host, port) = split(&row.peer);
        json!({"name": name_of(row), "peer_host": host, "peer_port": port})
    }
}

fn row(
    context: &Context<'_>,
    row: &ConnectionRow,
    details: [Option<Value>; OF_CONNECTION.len()],
) -> Value {
    let (peer_host, peer_port) = split(&row.peer);
    let (host, port) = split(&row.local_address);
    let mut fields = super::fields(json!({
        "name": name_of(row),
        "node": context.api.node_name(),
        "user": row.user,
        "user_who_performed_action": row.user,
        "vhost": row.vhost,
        "protocol": row.protocol,
        "type": "network",
        "state": if row.blocked { "blocking" } else { "running" },
        "connected_at": row.accepted_millis,
        "client_properties": table_value(row.client_properties.as_ref()),
        "host": host,
        "port": port,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "channel_max": row.channel_max,
        "channels": row.channels,
        "frame_max": row.frame_max,
        "timeout": row.heartbeat_seconds,
        "auth_mechanism": row.mechanism,
        "ssl": row.tls.is_some(),
        "recv_cnt": row.octets.reads,
        "send_cnt": row.octets.writes,
        "send_pend": 0,
        "garbage_collection": {},
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
        "lepus": {"shard": row.shard.0},
    }));
    let octets = [row.octets.received, row.octets.sent];
    super::add_values(&mut fields, &OF_CONNECTION, &octets, details);
    if let Some(tls) = &row.tls {
        let (version, cipher) = tls.split_once(' ').unwrap_or((tls, ""));
        fields.insert("ssl_protocol".to_owned(), json!(version));
        fields.insert("ssl_cipher".to_owned(), json!(cipher));
    }
    if let Some(given) = fields["client_properties"].get("connection_name").cloned() {
        fields.insert("user_provided_name".to_owned(), given);
    }
    Value::Object(fields)
}

/// Rows of connections with the rates of their octets.
fn rows<'a>(
    context: &Context<'_>,
    shown: impl Iterator<Item = &'a ConnectionRow> + Clone,
) -> Result<Vec<Value>, Failure> {
    let range = Range::read(context, "data_rates")?;
    let octets = shown.clone().map(|row| (row.id, row.octets));
    let details = context.api.samples.connections(octets, |series| {
        std::array::from_fn(|place| series.map(|series| series.details(place, range)))
    });
    Ok(shown.zip(details).map(|(found, details)| row(context, found, details)).collect())
}

fn listed(
    context: &Context<'_>,
    is_wanted: impl Fn(&ConnectionRow) -> bool,
) -> Result<Reply, Failure> {
    let connections = Connections::ask(context)?;
    let visible = connections.visible(context).into_iter().filter(|row| is_wanted(row));
    let items: Vec<(String, &ConnectionRow)> = visible.map(|row| (name_of(row), row)).collect();
    let rows =
        |items: &[(String, &ConnectionRow)]| rows(context, items.iter().map(|(_, found)| *found));
    context.list(items, |(name, _)| name, rows)
}

/// `GET /connections`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.request.vhost.as_deref().filter(|name| !name.is_empty());
    listed(context, |row| vhost.is_none_or(|vhost| row.vhost == vhost))
}

/// `GET /vhosts/{v}/connections`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    let directory = context.directory();
    context.vhost(&directory, context.name(0))?;
    drop(directory);
    listed(context, |row| row.vhost == context.name(0))
}

/// Whether the user who asks may see another one's connections.
fn check_user(context: &Context<'_>, user: &str) -> Result<(), Failure> {
    let login = &context.login;
    if login.is_administrator() || login.name() == user {
        return Ok(());
    }
    Err(Failure::not_authorised("User not authorised to access object"))
}

/// `GET /connections/username/{u}`
pub(crate) fn of_user(context: &Context<'_>) -> Result<Reply, Failure> {
    check_user(context, context.name(0))?;
    listed(context, |row| row.user == context.name(0))
}

/// The connection that the path names, if the user who asks may see it.
fn find(context: &Context<'_>) -> Result<ConnectionRow, Failure> {
    let connections = Connections::ask(context)?;
    let mut all = connections.0.into_values();
    let found = all.find(|row| name_of(row) == context.name(0)).ok_or_else(Failure::not_found)?;
    if !context.login.is_monitor() {
        check_user(context, &found.user)?;
    }
    Ok(found)
}

/// `GET /connections/{c}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let found = find(context)?;
    let mut rows = rows(context, std::iter::once(&found))?;
    Ok(context.object(rows.swap_remove(0)))
}

fn close_one(context: &Context<'_>, id: ConnectionId) -> Result<(), Failure> {
    let why = context.request.reason.as_deref().filter(|reason| !reason.is_empty());
    let why = why.unwrap_or("Closed via management plugin").to_owned();
    let query = Query::CloseConnection { connection: id, why };
    context.api.broker.ask_all(&query).map(drop).map_err(Failure::unavailable)
}

/// `DELETE /connections/{c}`
pub(crate) fn close(context: &Context<'_>) -> Result<Reply, Failure> {
    let found = find(context)?;
    check_user(context, &found.user)?;
    close_one(context, found.id)?;
    Ok(Reply::done())
}

/// `DELETE /connections/username/{u}`
pub(crate) fn close_of_user(context: &Context<'_>) -> Result<Reply, Failure> {
    check_user(context, context.name(0))?;
    let connections = Connections::ask(context)?;
    for row in connections.0.values().filter(|row| row.user == context.name(0)) {
        close_one(context, row.id)?;
    }
    Ok(Reply::done())
}
