//! Checks for probes: 200 when all is well, 503 with what is not.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::samples::now_millis;
use serde_json::{Value, json};

fn failed(mut body: Value, reason: impl Into<String>) -> Reply {
    body["status"] = json!("failed");
    body["reason"] = json!(reason.into());
    Reply { status: 503, headers: Vec::new(), body: Some(body) }
}

/// Nothing can be wrong here on a single node.
pub(crate) fn ok(_: &Context<'_>) -> Result<Reply, Failure> {
    Ok(Reply::json(json!({"status": "ok"})))
}

/// The same, and why.
pub(crate) fn single_node(_: &Context<'_>) -> Result<Reply, Failure> {
    Ok(Reply::json(json!({"status": "ok", "reason": "single node cluster"})))
}

/// `GET /aliveness-test/{v}`
pub(crate) fn aliveness(context: &Context<'_>) -> Result<Reply, Failure> {
    let directory = context.directory();
    context.vhost(&directory, context.name(0))?;
    drop(directory);
    node(context)
}

/// `GET /healthchecks/node`: every shard answers.
pub(crate) fn node(context: &Context<'_>) -> Result<Reply, Failure> {
    match context.api.broker.ask_all(&lepus_broker::Query::Alive) {
        Ok(_) => Ok(Reply::json(json!({"status": "ok"}))),
        Err(text) => Ok(failed(json!({}), text)),
    }
}

/// `GET /health/checks/alarms`
pub(crate) fn alarms(context: &Context<'_>) -> Result<Reply, Failure> {
    let snapshot = context.api.broker.snapshot().map_err(Failure::unavailable)?;
    let node = context.api.node_name();
    let raised = [("memory", snapshot.memory_alarm()), ("disk", snapshot.disk_alarm())];
    let raised = raised.into_iter().filter(|(_, is_raised)| *is_raised);
    let rows: Vec<Value> =
        raised.map(|(resource, _)| json!({"node": node, "resource": resource})).collect();
    match rows.is_empty() {
        true => Ok(Reply::json(json!({"status": "ok"}))),
        false => Ok(failed(json!({"alarms": rows}), "There are alarms in effect in the cluster")),
    }
}

/// `GET /health/checks/port-listener/{p}`
pub(crate) fn port(context: &Context<'_>) -> Result<Reply, Failure> {
    let wrong = |_| Failure::bad_request("Invalid port");
    let port: u16 = context.name(0).parse().map_err(wrong)?;
    let listeners = context.api.broker.listeners();
    let mut ports: Vec<u16> = listeners.iter().map(|one| one.address.port()).collect();
    if ports.contains(&port) {
        return Ok(Reply::json(json!({"status": "ok", "port": port})));
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(failed(json!({"missing": port, "ports": ports}), "No active listener"))
}

/// The names of a protocol that are one.
fn plain_name(protocol: &str) -> &str {
    match protocol {
        "amqp091" | "amqp0.9.1" | "amqp0-9-1" | "amqp-0-9-1" | "amqp1.0" | "amqp10" => "amqp",
        "amqps" | "amqp/ssl" => "amqp/ssl",
        "prometheus" => "http/prometheus",
        other => other,
    }
}

/// `GET /health/checks/protocol-listener/{a,b}`
pub(crate) fn protocol(context: &Context<'_>) -> Result<Reply, Failure> {
    let listeners = context.api.broker.listeners();
    let mut protocols: Vec<&str> = listeners.iter().map(|one| one.protocol).collect();
    protocols.sort_unstable();
    protocols.dedup();
    let wanted: Vec<String> = context.name(0).split(',').map(str::to_lowercase).collect();
    let is_missing = |name: &&String| !protocols.contains(&plain_name(name));
    let missing: Vec<&String> = wanted.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(Reply::json(json!({"status": "ok", "protocols": wanted})));
    }
    Ok(failed(json!({"missing": missing, "protocols": protocols}), "No active listener"))
}

/// `GET /health/checks/certificate-expiration/{n}/{unit}`
pub(crate) fn certificates(context: &Context<'_>) -> Result<Reply, Failure> {
    let wrong = |_| Failure::bad_request("Invalid expiration");
    let number: i64 = context.name(0).parse().map_err(wrong)?;
    let days = match context.name(1) {
        "days" => 1,
        "weeks" => 7,
        "months" => 30,
        "years" => 365,
        _ => {
            return Err(Failure::bad_request(
                "Time unit not recognised. Supported units: days, weeks, months, years.",
            ));
        }
    };
    let within = number.saturating_mul(days).saturating_mul(86_400);
    let now = i64::try_from(now_millis() / 1_000).unwrap_or(i64::MAX);
    let Some(ends) = context.api.broker.certificate_ends() else {
        return Ok(Reply::json(json!({"status": "ok"})));
    };
    if ends.saturating_sub(now) > within {
        return Ok(Reply::json(json!({"status": "ok"})));
    }
    let node = context.api.node_name();
    let ends = super::time_text(u64::try_from(ends).unwrap_or(0));
    let listeners = context.api.broker.listeners().into_iter();
    let secure = listeners.filter(|one| matches!(one.protocol, "amqp/ssl" | "https"));
    let rows: Vec<Value> = secure
        .map(|one| {
            json!({
                "node": node,
                "protocol": one.protocol,
                "interface": one.address.ip().to_string(),
                "port": one.address.port().to_string(),
                "certfile_expires_on": [ends],
            })
        })
        .collect();
    Ok(failed(json!({ "expired": rows }), "Certificates expiring"))
}

/// `GET /health/checks/is-in-service`
pub(crate) fn service(context: &Context<'_>) -> Result<Reply, Failure> {
    let service = context.api.broker.service();
    match service.accepts && !service.is_drained {
        true => ok(context),
        false => Ok(failed(json!({}), "the broker was taken out of service by an operator")),
    }
}

/// Whether one more connection is taken.
pub(crate) fn connections(context: &Context<'_>) -> Result<Reply, Failure> {
    let service = service(context)?;
    if service.status != 200 {
        return Ok(service);
    }
    let snapshot = context.api.broker.snapshot().map_err(Failure::unavailable)?;
    let (count, limit) = (snapshot.held(|h| h.connections), context.api.broker.connections_max());
    let body = json!({"connections": count, "limit": limit});
    if count < limit {
        let mut body = body;
        body["status"] = json!("ok");
        return Ok(Reply::json(body));
    }
    Ok(failed(body, format!("{count} connections are open, as many as are allowed")))
}
