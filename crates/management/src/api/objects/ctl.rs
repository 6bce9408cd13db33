//! What RabbitMQ's API has no path for and its command line tools need, for the operator alone.

use super::super::Service;
use super::super::change::Change;
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::connections::Connections;
use super::node;
use crate::definitions::policy_value;
use lepus_broker::Query;
use lepus_broker::directory::{Policy, PolicyScope, VhostInfo};
use lepus_broker::query::{AlarmSource, Shortage};
use serde_json::{Value, json};
use std::time::Duration;

/// Lines of the log that are shown where nobody says how many.
const LOG_LINES: u64 = 50;

/// Only who comes by the control socket.
fn check_operator(context: &Context<'_>) -> Result<(), Failure> {
    match context.login.is_operator() {
        true => Ok(()),
        false => Err(Failure::not_authorised("only the operator may, by the control socket")),
    }
}

/// `GET /lepus/ctl/state`
pub(crate) fn state(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    let state = context.api.broker.service();
    Ok(Reply::json(json!({
        "node": context.api.node_name(),
        "running": state.is_running,
        "booting": false,
        "maintenance": state.is_drained,
        "pid": std::process::id(),
    })))
}

/// `POST /lepus/ctl/lifecycle`
pub(crate) fn change_state(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    let broker = &context.api.broker;
    let change: fn(&mut Service) = match context.fields()?.required_text("action")?.as_str() {
        "stop_app" => |state| (state.is_running, state.accepts) = (false, false),
        "start_app" => |state| *state = Service::default(),
        "drain" => |state| (state.accepts, state.is_drained) = (false, true),
        "revive" => |state| (state.accepts, state.is_drained) = (true, false),
        "suspend_listeners" => |state| state.accepts = false,
        "resume_listeners" => |state| state.accepts = true,
        "stop" => {
            broker.stop();
            return Ok(Reply::done());
        }
        other => return Err(Failure::bad_request(format!("there is no action {other:?}"))),
    };
    let (state, heard) = broker.change_service(change);
    if !state.is_running || state.is_drained {
        let why = if state.is_drained {
            "node is drained"
        } else {
            "broker forced connection closure with reason 'shutdown'"
        };
        close(context, why, |_| true, usize::MAX, Duration::ZERO)?;
    }
    heard.map_err(|why| Failure::new(503, "listeners_closed", why))?;
    Ok(Reply::done())
}

/// Closes the connections that are wanted; how many.
fn close(
    context: &Context<'_>,
    why: &str,
    is_wanted: impl Fn(&lepus_broker::query::ConnectionRow) -> bool,
    limit: usize,
    delay: Duration,
) -> Result<usize, Failure> {
    let connections = Connections::ask(context)?;
    let mut closed = 0;
    for row in connections.iter().filter(|row| is_wanted(row)).take(limit) {
        if closed > 0 && !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let query = Query::CloseConnection { connection: row.id, why: why.to_owned() };
        context.api.broker.ask_all(&query).map_err(Failure::unavailable)?;
        closed += 1;
    }
    Ok(closed)
}

/// `POST /lepus/ctl/connections/close`
pub(crate) fn close_connections(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    let fields = context.fields()?;
    let (name, user, vhost) = (fields.text("name")?, fields.text("user")?, fields.text("vhost")?);
    let is =
        |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|one| one == found);
    let number = |key: &str| -> Result<Option<u64>, Failure> {
        Ok(fields.integer(key)?.and_then(|number| u64::try_from(number).ok()))
    };
    let limit =
        number("limit")?.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let delay = Duration::from_millis(number("delay")?.unwrap_or(0).min(1_000));
    let why = fields.text("reason")?.unwrap_or_default();
    let closed = close(
        context,
        &why,
        |row| {
            let own = super::connections::name_of(row);
            is(&name, &own) && is(&user, &row.user) && is(&vhost, &row.vhost)
        },
        limit,
        delay,
    )?;
    Ok(Reply::json(json!({ "closed": closed })))
}

/// `GET /lepus/ctl/status`
pub(crate) fn status(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    let snapshot = context.api.broker.snapshot().map_err(Failure::unavailable)?;
    let row = node::row(context, &snapshot);
    let name = context.api.node_name();
    let raised = [("memory", snapshot.memory_alarm()), ("disk", snapshot.disk_alarm())];
    let alarms = raised.into_iter().filter(|(_, is_raised)| *is_raised);
    let listeners = context.api.broker.listeners().into_iter().map(|listener| {
        let purpose = match listener.protocol {
            "amqp" => "AMQP 0-9-1",
            "amqp/ssl" => "AMQP 0-9-1 over TLS",
            "http/prometheus" => "metrics",
            _ => "HTTP API",
        };
        let ip = listener.address.ip();
        let interface = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        json!({
            "node": name,
            "protocol": listener.protocol,
            "interface": interface,
            "port": listener.address.port(),
            "purpose": purpose,
        })
    });
    let directory = context.directory();
    let vhosts = directory.accounts().vhosts().len();
    drop(directory);
    let uname = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let resident = snapshot.own.resident_bytes;
    Ok(Reply::json(json!({
        "os": uname,
        "pid": std::process::id(),
        "product_name": snapshot.node.told_product,
        "product_version": snapshot.node.told_version,
        "rabbitmq_version": snapshot.node.told_version,
        "erlang_version": row["erlang_full_version"],
        "crypto_lib_version": "",
        "net_ticktime": 60,
        "uptime": snapshot.uptime_seconds,
        "is_under_maintenance": context.api.broker.service().is_drained,
        "processes": {"limit": row["proc_total"], "used": row["proc_used"]},
        "run_queue": 0,
        "file_descriptors": {
            "total_used": row["fd_used"],
            "total_limit": row["fd_total"],
            "sockets_used": row["sockets_used"],
            "sockets_limit": row["sockets_total"],
        },
        "vm_memory_calculation_strategy": "rss",
        "vm_memory_high_watermark_limit": snapshot.node.memory_budget_bytes,
        "vm_memory_high_watermark_setting": context.api.broker.memory_budget().to_json(),
        "disk_free": snapshot.own.disk_free_bytes,
        "disk_free_limit": snapshot.node.disk_free_bytes_min,
        "alarms": alarms.map(|(resource, _)| json!({"resource": resource, "node": name})).collect::<Vec<_>>(),
        "tags": [],
        "listeners": listeners.collect::<Vec<_>>(),
        "memory": {
            "queue_procs": snapshot.held(|h| h.memory_bytes),
            "other_system": resident.saturating_sub(snapshot.held(|h| h.memory_bytes)),
            "strategy": "rss",
            "total": {"rss": resident, "allocated": resident, "erlang": resident},
        },
        "data_directory": context.api.broker.data_dir(),
        "raft_data_directory": context.api.broker.data_dir(),
        "enabled_plugin_file": "",
        "active_plugins": row["enabled_plugins"],
        "config_files": [],
        "log_files": ["stderr"],
        "totals": {
            "connection_count": snapshot.held(|h| h.connections),
            "queue_count": snapshot.held(|h| h.queues),
            "virtual_host_count": vhosts,
        },
    })))
}

fn set_alarm(context: &Context<'_>, is_on: bool) -> Result<Reply, Failure> {
    check_operator(context)?;
    let shortage = match context.name(0) {
        "memory" => Shortage::Memory,
        "disk" => Shortage::Disk,
        _ => return Err(Failure::not_found()),
    };
    let alarm = Query::Alarm { shortage, is_on, source: AlarmSource::Operator };
    context.api.broker.ask_all(&alarm).map_err(Failure::unavailable)?;
    Ok(Reply::done())
}

/// `PUT /lepus/ctl/alarms/{a}`
pub(crate) fn raise_alarm(context: &Context<'_>) -> Result<Reply, Failure> {
    set_alarm(context, true)
}

/// `DELETE /lepus/ctl/alarms/{a}`
pub(crate) fn clear_alarm(context: &Context<'_>) -> Result<Reply, Failure> {
    set_alarm(context, false)
}

/// `POST /lepus/ctl/authenticate`
pub(crate) fn authenticate(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    let fields = context.fields()?;
    let (name, password) = (fields.required_text("name")?, fields.required_text("password")?);
    let directory = context.directory();
    let outcome = directory.accounts().authenticate(&name, password.as_bytes(), true);
    Ok(Reply::json(json!({ "ok": outcome.is_ok() })))
}

/// `GET /lepus/ctl/policies/{v}/{kind}/{name}`
pub(crate) fn matching(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    let directory = context.directory();
    let vhost = context.vhost(&directory, context.name(0))?;
    let matches: Box<dyn Fn(&Policy) -> bool> = match context.name(1) {
        "queue" => {
            let info = directory.queue(vhost, context.name(2)).ok_or_else(Failure::not_found)?;
            Box::new(|policy| policy.is_for_queue(info))
        }
        "exchange" => {
            let info = directory.exchange(vhost, context.exchange_name(2));
            let info = info.ok_or_else(Failure::not_found)?;
            Box::new(|policy| policy.is_for_exchange(info))
        }
        _ => return Err(Failure::not_found()),
    };
    let all = directory.policies(PolicyScope::User, Some(vhost));
    let mut found: Vec<(&VhostInfo, &Policy)> = all.filter(|(_, policy)| matches(policy)).collect();
    // They come by name, which decides among equals.
    found.sort_by_key(|(_, policy)| std::cmp::Reverse(policy.priority()));
    let rows = found.into_iter().map(|(vhost, policy)| policy_value(&vhost.name, policy));
    Ok(Reply::json(Value::Array(rows.collect())))
}

/// `PUT /lepus/ctl/settings/{s}`
pub(crate) fn set(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    if context.name(0) == "auth_attempt_source_tracking" {
        // Attempts are always counted.
        return Ok(Reply::done());
    }
    let fields = context.fields()?;
    let change = Change::read(context.name(0), fields.require("value")?)?;
    context.api.broker.change(change).map_err(Failure::unavailable)?;
    Ok(Reply::done())
}

/// `GET /lepus/ctl/settings/{s}`
pub(crate) fn get(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    let broker = &context.api.broker;
    let value = match context.name(0) {
        "vm_memory_high_watermark" => broker.memory_budget().to_json(),
        "channel_max" => {
            let settings = broker.settings();
            let found = settings.iter().find(|(key, _)| key == "limits.channel_max");
            json!(found.and_then(|(_, value)| value.parse::<u16>().ok()))
        }
        "loopback_users" => json!(context.directory().accounts().loopback_users()),
        _ => return Err(Failure::not_found()),
    };
    Ok(Reply::json(json!({ "value": value })))
}

/// `GET /lepus/ctl/log`
pub(crate) fn log(context: &Context<'_>) -> Result<Reply, Failure> {
    check_operator(context)?;
    let number = |key: &str| match context.query.get(key) {
        Some(text) => {
            let number = text.parse::<u64>().map(Some);
            number.map_err(|_| Failure::bad_request(format!("{key} is to be a number")))
        }
        None => Ok(None),
    };
    let (after, count) = (number("after")?.unwrap_or(0), number("lines")?.unwrap_or(LOG_LINES));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (lines, end) = context.api.broker.log_lines(after, count);
    Ok(Reply::json(json!({ "lines": lines, "end": end })))
}
