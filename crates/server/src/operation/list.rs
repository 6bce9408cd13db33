//! Orders that list what the broker holds.
//!
//! A list is made in parts, and each part in steps by place, not by name: so that a step costs what it
//! looks at, no shard works on one for long, and no index by name is needed. Whoever asks puts the rows
//! in order.

use crate::figures::Figures;
use lepus_base::ShardId;
use lepus_broker::Broker;
use lepus_broker::connection::Connection;
use lepus_broker::directory::{BindingInfo, Directory, ExchangeInfo};
use serde_json::{Value, json};

/// Rows after which an answer ends.
const ROWS_MAX: usize = 2_000;
/// Places that a shard looks at in one step.
const STEP: usize = 256;
/// Steps after which an answer ends, however few rows it has: the shard may hold much of others.
const STEPS_MAX: usize = 256;

/// One part of a list: rows from where `request` says to go on, and where the next part begins.
/// `step` gives the rows at some places of a shard, `None` behind the last one.
fn part(
    figures: &Figures,
    request: &Value,
    shards: u16,
    columns: &[&str],
    step: impl Fn(&mut Broker, usize) -> Option<Result<Vec<Value>, String>> + Clone + Send + 'static,
) -> Result<Value, String> {
    let from = |key: &str| request["from"][key].as_u64().unwrap_or(0);
    let mut shard = u16::try_from(from("shard")).unwrap_or(shards);
    let mut place = usize::try_from(from("place")).unwrap_or(usize::MAX);
    let mut rows: Vec<Value> = Vec::new();
    for _ in 0..STEPS_MAX {
        if shard >= shards || rows.len() >= ROWS_MAX {
            break;
        }
        let step = step.clone();
        match figures.ask_one(ShardId(shard), move |broker| step(broker, place))? {
            Some(found) => {
                rows.append(&mut found?);
                place = place.saturating_add(STEP);
            }
            None => (shard, place) = (shard + 1, 0),
        }
    }
    let next = (shard < shards).then(|| json!({"shard": shard, "place": place}));
    // The first columns tell the rows apart and are their order.
    Ok(json!({"columns": columns, "rows": rows, "next": next, "sorted_by": columns.len().min(4)}))
}

/// Queues of a virtual host with their messages and consumers.
pub fn queues(figures: &Figures, request: &Value) -> Result<Value, String> {
    let vhost = super::vhost_name(request);
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
    let shards = figures.commands.shards();
    part(figures, request, shards, &columns, move |broker, place| queues_of(broker, &vhost, place))
}

fn queues_of(broker: &Broker, vhost: &str, place: usize) -> Option<Result<Vec<Value>, String>> {
    let directory = &broker.directory;
    let vhost = match find_vhost(directory, vhost) {
        Ok(vhost) => vhost,
        Err(text) => return Some(Err(text)),
    };
    let rows = broker.queues_in(place, STEP)?.filter_map(|(id, queue)| {
        let info = directory.queue_by_id(id).filter(|info| info.vhost == vhost)?;
        Some(json!([
            info.name(),
            info.kind.name(),
            info.durable,
            info.auto_delete,
            info.exclusive().is_some(),
            queue.ready(),
            queue.unacked(),
            queue.consumer_count(),
            broker.shard().0,
        ]))
    });
    Some(Ok(rows.collect()))
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
    let mut connections: Vec<&Connection> = broker
        .edge
        .connections
        .iter()
        .map(|(_, connection)| &**connection)
        .filter(|connection| from.is_none_or(|from| connection.id.0 > from))
        .collect();
    if connections.len() > ROWS_MAX {
        connections.select_nth_unstable_by_key(ROWS_MAX, |connection| connection.id);
        connections.truncate(ROWS_MAX + 1);
    }
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
pub fn exchanges(figures: &Figures, request: &Value) -> Result<Value, String> {
    let vhost = super::vhost_name(request);
    let columns = ["name", "type", "durable", "auto_delete", "internal"];
    part(figures, request, 1, &columns, move |broker, place| {
        let directory = &broker.directory;
        let vhost = match find_vhost(directory, &vhost) {
            Ok(vhost) => vhost,
            Err(text) => return Some(Err(text)),
        };
        let row = |exchange: &ExchangeInfo| {
            json!([
                exchange.name,
                exchange.kind_name(),
                exchange.durable,
                exchange.auto_delete,
                exchange.internal,
            ])
        };
        Some(Ok(directory.exchanges_in(vhost, place, STEP)?.map(row).collect()))
    })
}

/// Bindings of a virtual host without those of the default exchange.
pub fn bindings(figures: &Figures, request: &Value) -> Result<Value, String> {
    let vhost = super::vhost_name(request);
    let columns = ["source", "destination_type", "destination", "routing_key"];
    part(figures, request, 1, &columns, move |broker, place| {
        let directory = &broker.directory;
        let vhost = match find_vhost(directory, &vhost) {
            Ok(vhost) => vhost,
            Err(text) => return Some(Err(text)),
        };
        let row = |binding: BindingInfo<'_>| {
            let destination = binding.destination;
            json!([binding.source, destination.kind(), destination.name(), binding.routing_key])
        };
        Some(Ok(directory.bindings_in(vhost, place, STEP)?.map(row).collect()))
    })
}

fn find_vhost(directory: &Directory, name: &str) -> Result<lepus_base::VhostId, String> {
    directory.vhost(name).ok_or_else(|| format!("there is no virtual host {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::table::Table;
    use lepus_base::{HashState, Now};
    use lepus_broker::Outbox;
    use lepus_broker::directory::{Checked, Request};
    use lepus_broker::settings::{Limits, Settings};
    use std::collections::BTreeSet;

    /// A broker with so many queues in `/`.
    fn broker_with(queues: usize) -> Broker {
        let mut broker = Broker::new(Settings {
            shard: ShardId(0),
            shards: 1,
            nodes: Vec::new(),
            hash: HashState::new(1),
            secret: [1; 32],
            server: Default::default(),
            limits: Limits::default(),
            store: None,
        });
        let (now, mut out) = (Now::from_millis(1), Outbox::new(1));
        broker.preset(now, &Directory::preset("guest", b"guest", [1; 4], "/"), &mut out);
        for number in 0..queues {
            let request = Request::DeclareQueue {
                vhost: "/".into(),
                name: format!("q{number}"),
                server_named: false,
                durable: true,
                exclusive: None,
                auto_delete: false,
                arguments: Table::new(),
                declared_on: ShardId(0),
                user: "guest".into(),
            };
            let Ok(Checked::Change(change)) = broker.directory.check(&request) else {
                panic!("q{number} cannot be declared");
            };
            broker.preset(now, &[change], &mut out);
        }
        broker
    }

    #[test]
    fn a_step_lists_few_queues_and_all_steps_list_each_once() {
        let broker = broker_with(1_000);
        let (mut names, mut steps) = (Vec::new(), 0);
        while let Some(rows) = queues_of(&broker, "/", steps * STEP) {
            let rows = rows.unwrap();
            assert!(rows.len() <= STEP, "{} rows in a step", rows.len());
            names.extend(rows.iter().map(|row| row[0].to_string()));
            steps += 1;
        }
        assert_eq!((names.len(), names.iter().collect::<BTreeSet<_>>().len()), (1_000, 1_000));
        assert!(steps >= 1_000 / STEP, "{steps} steps");
    }
}
