//! The broker as a whole, and who asks.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::samples::{CHURN, LEVELS, MESSAGES, Range, level_place};
use super::node::{self, VERSION_OF_ERLANG};
use super::parameters;
use lepus_base::VhostId;
use serde_json::{Map, Value, json};

/// `GET /overview`
pub(crate) fn overview(context: &Context<'_>) -> Result<Reply, Failure> {
    let snapshot = context.api.broker.snapshot().map_err(Failure::unavailable)?;
    let series = context.api.samples.all(&snapshot);
    let lengths = Range::read(context, "lengths")?;
    let messages = Range::read(context, "msg_rates")?;
    let details = |name: &str| format!("{name}_details");
    let mut stats = Map::new();
    for (place, (name, counter)) in MESSAGES.iter().enumerate() {
        stats.insert((*name).to_owned(), json!(snapshot.counted(*counter)));
        stats.insert(details(name), series.details(place, messages));
    }
    for name in ["disk_reads", "disk_writes"] {
        stats.insert(name.to_owned(), json!(0));
        stats.insert(details(name), json!({"rate": 0.0}));
    }
    let mut churn = Map::new();
    for (place, (name, counter)) in CHURN.iter().enumerate() {
        churn.insert((*name).to_owned(), json!(snapshot.counted(*counter)));
        churn.insert(details(name), series.details(MESSAGES.len() + place, None));
    }
    let (ready, unacked) = (snapshot.held(|h| h.ready), snapshot.held(|h| h.unacked));
    let mut totals = Map::new();
    for (place, (name, value)) in LEVELS.iter().zip([ready + unacked, ready, unacked]).enumerate() {
        totals.insert((*name).to_owned(), json!(value));
        totals.insert(details(name), series.details(level_place(place), lengths));
    }
    let directory = context.directory();
    let queues: u64 = directory.accounts().vhosts().map(|v| directory.queue_count(v.id)).sum();
    let exchanges = (directory.object_count() as u64).saturating_sub(queues);
    drop(directory);
    let node = &snapshot.node;
    let mut overview = super::fields(json!({
        "management_version": node.told_version,
        "rates_mode": "basic",
        "sample_retention_policies": {
            "global": [600, 3600, 28800, 86400], "basic": [600, 3600], "detailed": [600],
        },
        "exchange_types": node::exchange_types(),
        "product_version": node.told_version,
        "product_name": node.told_product,
        "rabbitmq_version": node.told_version,
        "cluster_name": parameters::cluster_name(context),
        "erlang_version": VERSION_OF_ERLANG,
        "erlang_full_version": node::full_version(node),
        "crypto_lib_version": "",
        "release_series_support_status": "supported",
        "disable_stats": false,
        "enable_queue_totals": false,
        "default_queue_type": "classic",
        "is_op_policy_updating_enabled": true,
        "statistics_level": "fine",
        "statistics_db_event_queue": 0,
        "cluster_tags": parameters::global(context, "cluster_tags").unwrap_or_else(|| json!({})),
        "node_tags": {},
        "message_stats": stats,
        "churn_rates": churn,
        "queue_totals": totals,
        "object_totals": {
            "channels": snapshot.held(|h| h.channels),
            "consumers": snapshot.held(|h| h.consumers),
            "exchanges": exchanges,
            "queues": queues,
            "connections": snapshot.held(|h| h.connections),
        },
        "lepus": {"version": node.version, "shards": snapshot.shards.len()},
    }));
    if context.login.is_monitor() {
        let name = context.api.node_name();
        let more = super::fields(json!({
            "node": name,
            "statistics_db_node": name,
            "listeners": node::listeners(context),
            "contexts": node::contexts(context),
        }));
        overview.extend(more);
    }
    if !context.login.is_monitor() {
        // What others do is not told, but what there is where the user may enter.
        for key in ["message_stats", "churn_rates", "queue_totals"] {
            overview.remove(key);
        }
        let directory = context.directory();
        let vhosts = context.vhosts(&directory, None)?;
        let queues: u64 = vhosts.iter().map(|vhost| directory.queue_count(vhost.id)).sum();
        let ids: Vec<VhostId> = vhosts.iter().map(|vhost| vhost.id).collect();
        let exchanges = directory.exchanges_of(&ids).len();
        let totals = json!({"queues": queues, "exchanges": exchanges});
        overview.insert("object_totals".to_owned(), totals);
    }
    Ok(context.object(Value::Object(overview)))
}

/// `GET /whoami`
pub(crate) fn who_am_i(context: &Context<'_>) -> Result<Reply, Failure> {
    Ok(context.object(json!({
        "name": context.login.name(),
        "tags": context.login.tags,
        "is_internal_user": true,
        "auth_backend": "rabbit_auth_backend_internal",
    })))
}

/// `GET /version`
pub(crate) fn version(context: &Context<'_>) -> Result<Reply, Failure> {
    Ok(Reply::json(json!(context.api.broker.node().told_version)))
}

/// `GET /extensions`
pub(crate) fn extensions(_: &Context<'_>) -> Result<Reply, Failure> {
    Ok(Reply::json(json!([{"javascript": "dispatcher.js"}])))
}
