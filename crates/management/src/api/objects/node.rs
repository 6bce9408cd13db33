//! The node: its process, its memory, its listeners.

use super::super::Api;
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use crate::snapshot::{Node, Snapshot};
use lepus_broker::directory::ExchangeKind;
use serde_json::{Map, Value, json};

/// Tools want to know it and parse it; there is no Erlang.
pub(crate) const VERSION_OF_ERLANG: &str = "27.0";
/// The most connections, channels and queues together, as tools show it.
const PROCESSES_MAX: u64 = 1_048_576;
/// Numbers that tools ask of a node's memory and that mean nothing here.
const MEMORY_PARTS: [&str; 24] = [
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "metadata_store",
    "other_proc",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "metadata_store_ets",
    "other_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
];

impl Api {
    /// The node's name, the same as in the metrics.
    pub(crate) fn node_name(&self) -> String {
        self.broker.node().name.clone()
    }
}

/// What stands where RabbitMQ tells of its virtual machine.
pub(crate) fn full_version(node: &Node) -> String {
    format!("lepus {} (no Erlang)", node.version)
}

/// The types of exchanges.
pub(crate) fn exchange_types() -> Vec<Value> {
    let kinds = ExchangeKind::all().map(ExchangeKind::name).chain(["x-delayed-message"]);
    let row = |name| json!({"name": name, "description": format!("exchanges of type {name}"), "enabled": true});
    kinds.map(row).collect()
}

/// The ways to log in.
fn auth_mechanisms() -> Vec<Value> {
    let row = |name| json!({"name": name, "description": format!("SASL {name}"), "enabled": true});
    ["PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS"].map(row).to_vec()
}

/// The listeners.
pub(crate) fn listeners(context: &Context<'_>) -> Vec<Value> {
    let node = context.api.node_name();
    let row = |listener: crate::api::Listener| {
        json!({
            "node": node,
            "protocol": listener.protocol,
            "ip_address": listener.address.ip().to_string(),
            "port": listener.address.port(),
            "tls": listener.protocol.ends_with("ssl") || listener.protocol == "https",
            "socket_opts": {},
        })
    };
    context.api.broker.listeners().into_iter().map(row).collect()
}

/// What is served over HTTP.
pub(crate) fn contexts(context: &Context<'_>) -> Vec<Value> {
    let node = context.api.node_name();
    let http = context.api.broker.listeners().into_iter();
    let http = http.filter(|listener| listener.protocol.starts_with("http"));
    let row = |listener: crate::api::Listener| {
        let is_management = !listener.protocol.ends_with("prometheus");
        json!({
            "node": node,
            "description": if is_management { "RabbitMQ Management" } else { "RabbitMQ Prometheus" },
            "path": "/",
            "port": listener.address.port().to_string(),
            "ip": listener.address.ip().to_string(),
        })
    };
    http.map(row).collect()
}

/// Everything about the node.
pub(crate) fn row(context: &Context<'_>, snapshot: &Snapshot) -> Value {
    let held = |part| snapshot.held(part);
    let node = &snapshot.node;
    let files_max = match snapshot.own.open_files_max {
        0 => u64::from(u32::MAX),
        some => some.min(u64::from(u32::MAX)),
    };
    let used = held(|h| h.connections) + held(|h| h.channels) + held(|h| h.queues);
    let mut row = super::fields(json!({
        "name": context.api.node_name(),
        "type": "disc",
        "running": true,
        "os_pid": std::process::id().to_string(),
        "uptime": snapshot.uptime_seconds.saturating_mul(1_000),
        "run_queue": 0,
        "processors": snapshot.shards.len(),
        "fd_used": snapshot.own.open_files.min(files_max),
        "fd_total": files_max,
        "sockets_used": held(|h| h.connections).min(files_max),
        "sockets_total": files_max,
        "proc_used": used.min(PROCESSES_MAX),
        "proc_total": PROCESSES_MAX,
        "mem_used": snapshot.own.resident_bytes,
        "mem_limit": snapshot.node.memory_budget_bytes.max(snapshot.own.resident_bytes),
        "mem_alarm": snapshot.memory_alarm(),
        "mem_calculation_strategy": "rss",
        "disk_free": snapshot.own.disk_free_bytes,
        "disk_free_limit": node.disk_free_bytes_min,
        "disk_free_alarm": snapshot.disk_alarm(),
        "rates_mode": "basic",
        "being_drained": context.api.broker.service().is_drained,
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus", "rabbitmq_shovel", "rabbitmq_shovel_management", "rabbitmq_consistent_hash_exchange", "rabbitmq_delayed_message_exchange"],
        "applications": [
            {"name": "rabbit", "description": node.told_product, "version": node.told_version},
            {"name": "lepus", "description": "lepus", "version": node.version},
        ],
        "rabbitmq_version": node.told_version,
        "erlang_version": VERSION_OF_ERLANG,
        "erlang_full_version": full_version(node),
        "crypto_lib_version": "",
    }));
    let more = super::fields(json!({
        "exchange_types": exchange_types(),
        "auth_mechanisms": auth_mechanisms(),
        "log_files": ["stderr"],
        "db_dir": context.api.broker.data_dir(),
        "config_files": [],
        "net_ticktime": 60,
        "partitions": [],
        "cluster_links": [],
        "contexts": contexts(context),
        "metrics_gc_queue_length": {},
        "ra_open_file_metrics": {},
        "gc_num": 0,
        "gc_num_details": {"rate": 0.0},
        "gc_bytes_reclaimed": 0,
        "gc_bytes_reclaimed_details": {"rate": 0.0},
        "context_switches": 0,
        "context_switches_details": {"rate": 0.0},
        "mem_used_details": {"rate": 0.0},
        "fd_used_details": {"rate": 0.0},
        "sockets_used_details": {"rate": 0.0},
        "proc_used_details": {"rate": 0.0},
        "disk_free_details": {"rate": 0.0},
        "run_queue_details": {"rate": 0.0},
    }));
    row.extend(more);
    add_counted(snapshot, &mut row);
    Value::Object(row)
}

/// Adds what is counted since the start; rates of these are not told.
fn add_counted(snapshot: &Snapshot, row: &mut Map<String, Value>) {
    let logs = |part: fn(&lepus_broker::query::LogFigures) -> u64| -> u64 {
        snapshot.shards.iter().map(|shard| part(&shard.figures.logs)).sum()
    };
    let counted = [
        ("io_read_count", 0),
        ("io_read_bytes", logs(|l| l.read_bytes)),
        ("io_write_count", logs(|l| l.syncs)),
        ("io_write_bytes", logs(|l| l.log_bytes)),
        ("io_sync_count", logs(|l| l.syncs)),
        ("io_seek_count", 0),
        ("io_reopen_count", 0),
        ("mnesia_ram_tx_count", 0),
        ("mnesia_disk_tx_count", 0),
        ("msg_store_read_count", 0),
        ("msg_store_write_count", 0),
        ("queue_index_read_count", 0),
        ("queue_index_write_count", 0),
        ("connection_created", snapshot.counted(|c| c.connections_opened)),
        ("connection_closed", snapshot.counted(|c| c.connections_closed)),
        ("channel_created", snapshot.counted(|c| c.channels_opened)),
        ("channel_closed", snapshot.counted(|c| c.channels_closed)),
        ("queue_declared", snapshot.counted(|c| c.queues_declared)),
        ("queue_created", snapshot.counted(|c| c.queues_created)),
        ("queue_deleted", snapshot.counted(|c| c.queues_deleted)),
    ];
    for (name, value) in counted {
        row.insert(name.to_owned(), json!(value));
        row.insert(format!("{name}_details"), json!({"rate": 0.0}));
    }
    for name in ["io_read_avg_time", "io_write_avg_time", "io_sync_avg_time", "io_seek_avg_time"] {
        row.insert(name.to_owned(), json!(0.0));
        row.insert(format!("{name}_details"), json!({"rate": 0.0}));
    }
}

/// `GET /nodes`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let snapshot = context.api.broker.snapshot().map_err(Failure::unavailable)?;
    context.list_rows(vec![row(context, &snapshot)])
}

/// The figures of the node that the path names.
fn named(context: &Context<'_>) -> Result<Snapshot, Failure> {
    if context.name(0) != context.api.node_name() {
        return Err(Failure::not_found());
    }
    context.api.broker.snapshot().map_err(Failure::unavailable)
}

/// `GET /nodes/{n}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let snapshot = named(context)?;
    Ok(context.object(row(context, &snapshot)))
}

/// `GET /nodes/{n}/memory`
pub(crate) fn memory(context: &Context<'_>) -> Result<Reply, Failure> {
    let snapshot = named(context)?;
    let resident = snapshot.own.resident_bytes;
    let counted = snapshot.held(|h| h.memory_bytes);
    let mut parts: Map<String, Value> =
        MEMORY_PARTS.iter().map(|name| ((*name).to_owned(), json!(0))).collect();
    // What the budget counts, the API's copy of the definitions, the program's code; the rest is stacks and what the
    // allocator keeps.
    let definitions = context.directory().bytes() as u64;
    let code = snapshot.own.code_bytes;
    parts.insert("queue_procs".to_owned(), json!(counted));
    parts.insert("metadata_store".to_owned(), json!(definitions));
    parts.insert("code".to_owned(), json!(code));
    let known = counted.saturating_add(definitions).saturating_add(code);
    parts.insert("other_system".to_owned(), json!(resident.saturating_sub(known)));
    parts.insert("allocated_unused".to_owned(), json!(0));
    parts.insert("reserved_unallocated".to_owned(), json!(0));
    parts.insert("strategy".to_owned(), json!("rss"));
    parts.insert(
        "total".to_owned(),
        json!({"rss": resident, "allocated": resident, "erlang": resident}),
    );
    Ok(context.object(json!({ "memory": parts })))
}

/// `GET /nodes/{n}/memory/relative`
pub(crate) fn memory_relative(context: &Context<'_>) -> Result<Reply, Failure> {
    let snapshot = named(context)?;
    let resident = snapshot.own.resident_bytes.max(1);
    let counted = (snapshot.held(|h| h.memory_bytes).saturating_mul(100) / resident).min(100);
    let mut parts: Map<String, Value> =
        MEMORY_PARTS.iter().map(|name| ((*name).to_owned(), json!(0))).collect();
    parts.insert("queue_procs".to_owned(), json!(counted));
    parts.insert("other_system".to_owned(), json!(100 - counted));
    parts.insert("allocated_unused".to_owned(), json!(0));
    parts.insert("reserved_unallocated".to_owned(), json!(0));
    parts.insert("total".to_owned(), json!(100));
    Ok(context.object(json!({ "memory": parts })))
}

/// `GET /config/effective`
pub(crate) fn settings(context: &Context<'_>) -> Result<Reply, Failure> {
    let settings = context.api.broker.settings().into_iter();
    let fields: Map<String, Value> = settings.map(|(key, value)| (key, json!(value))).collect();
    Ok(Reply::json(Value::Object(fields)))
}

/// `POST /rebalance/queues`
pub(crate) fn rebalance(_: &Context<'_>) -> Result<Reply, Failure> {
    // The balancer looks several times a second by itself, and moves what is worth it.
    Ok(Reply::done())
}

/// `DELETE /reset`
pub(crate) fn reset(context: &Context<'_>) -> Result<Reply, Failure> {
    context.api.samples.reset();
    Ok(Reply::done())
}
