//! What RabbitMQ lets one switch on and off, of which everything is on here; and lists that are always empty.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use serde_json::{Value, json};

/// The names of RabbitMQ's feature flags, all of which its clients may rely on.
const FLAGS: [&str; 22] = [
    "classic_mirrored_queue_version",
    "classic_queue_type_delivery_support",
    "detailed_queues_endpoint",
    "direct_exchange_routing_v2",
    "drop_unroutable_metric",
    "empty_basic_get_metric",
    "feature_flags_v2",
    "implicit_default_bindings",
    "listener_records_in_ets",
    "maintenance_mode_status",
    "message_containers",
    "message_containers_deaths_v2",
    "quorum_queue",
    "quorum_queue_non_voters",
    "rabbitmq_4.0.0",
    "rabbitmq_4.1.0",
    "rabbitmq_4.2.0",
    "stream_filtering",
    "stream_queue",
    "tracking_records_in_ets",
    "user_limits",
    "virtual_host_metadata",
];

/// `GET /feature-flags`
pub(crate) fn flags(context: &Context<'_>) -> Result<Reply, Failure> {
    let row = |name: &&str| {
        json!({
            "name": name,
            "state": "enabled",
            "stability": "stable",
            "desc": "Always on in lepus.",
            "doc_url": "",
            "provided_by": "rabbit",
        })
    };
    context.list_rows(FLAGS.iter().map(row).collect())
}

/// `PUT /feature-flags/{f}/enable`
pub(crate) fn enable(context: &Context<'_>) -> Result<Reply, Failure> {
    let name = context.name(0);
    match FLAGS.contains(&name) {
        true => Ok(Reply::done()),
        false => Err(Failure::bad_request(format!("there is no feature flag {name:?}"))),
    }
}

fn deprecated_row(name: &str) -> Value {
    json!({
        "name": name,
        "state": "permitted",
        "deprecation_phase": "permitted_by_default",
        "desc": "Stays in lepus.",
        "doc_url": "",
        "provided_by": "rabbit",
    })
}

/// Transient queues of no connection.
const TRANSIENT: &str = "transient_nonexcl_queues";

/// `GET /deprecated-features`
pub(crate) fn deprecated(context: &Context<'_>) -> Result<Reply, Failure> {
    let names = ["global_qos", TRANSIENT, "management_metrics_collection"];
    context.list_rows(names.into_iter().map(deprecated_row).collect())
}

/// `GET /deprecated-features/used`
pub(crate) fn deprecated_used(context: &Context<'_>) -> Result<Reply, Failure> {
    let has_transient = {
        let directory = context.directory();
        let mut all = (0..directory.queue_places()).filter_map(|place| directory.queue_at(place));
        all.any(|info| !info.durable && info.exclusive().is_none())
    };
    context.list_rows(has_transient.then(|| deprecated_row(TRANSIENT)).into_iter().collect())
}

/// A list in which there is nothing.
pub(crate) fn none(_: &Context<'_>) -> Result<Reply, Failure> {
    Ok(Reply::json(Value::Array(Vec::new())))
}

/// `GET /auth`: how a page would log in.
pub(crate) fn auth(_: &Context<'_>) -> Result<Reply, Failure> {
    Ok(Reply::json(json!({"oauth_enabled": false})))
}
