//! Limits of virtual hosts and users.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use crate::definitions::{user_limits_value, vhost_limits_value};
use lepus_broker::directory::{Request, User, UserLimits, VhostInfo, VhostLimits};
use serde_json::{Value, json};

/// The limits of a virtual host that are set.
pub(crate) fn of_vhost(vhost: &VhostInfo) -> Value {
    vhost_limits_value(&vhost.limits)
}

/// The limits of a user that are set.
pub(crate) fn of_user(user: &User) -> Value {
    user_limits_value(&user.limits)
}

fn is_empty(limits: &Value) -> bool {
    limits.as_object().is_none_or(serde_json::Map::is_empty)
}

/// `GET /vhost-limits`
pub(crate) fn vhosts(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = {
        let directory = context.directory();
        let accounts = directory.accounts();
        let login = &context.login;
        let is_seen = |id| login.is_administrator() || login.may_enter(accounts, id);
        let all = accounts.vhosts().filter(|vhost| is_seen(vhost.id));
        let all = all.map(|vhost| (vhost, of_vhost(vhost)));
        let set = all.filter(|(_, limits)| !is_empty(limits));
        set.map(|(vhost, limits)| json!({"vhost": vhost.name, "value": limits})).collect()
    };
    context.list_rows(rows)
}

fn find_vhost(context: &Context<'_>) -> Result<VhostInfo, Failure> {
    let directory = context.directory();
    let vhost = directory.vhost(context.name(0)).and_then(|id| directory.vhost_info(id));
    vhost.cloned().ok_or_else(Failure::not_found)
}

/// `GET /vhost-limits/{v}`
pub(crate) fn vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = find_vhost(context)?;
    let limits = of_vhost(&vhost);
    let rows = match is_empty(&limits) {
        true => Vec::new(),
        false => vec![json!({"vhost": vhost.name, "value": limits})],
    };
    context.list_rows(rows)
}

/// The limit that a body sets; a negative one is none, and kept as it is.
fn value(context: &Context<'_>) -> Result<i64, Failure> {
    context.fields()?.integer("value")?.ok_or_else(|| Failure::key_missing("value"))
}

/// There is no such limit: RabbitMQ names it in Erlang's words.
fn unknown(name: &str, limit: Option<i64>, place: &str) -> Failure {
    let value = limit.map_or_else(|| "undefined".to_owned(), |limit| limit.to_string());
    Failure::bad_request(format!("Unrecognised terms [{{<<\"{name}\">>,{value}}}] in {place}"))
}

fn set_vhost(context: &Context<'_>, limit: Option<i64>) -> Result<Reply, Failure> {
    let vhost = find_vhost(context).map_err(|_| Failure::vhost_not_found())?;
    let limits = match context.name(1) {
        "max-connections" => VhostLimits { connections_max: limit, ..vhost.limits },
        "max-queues" => VhostLimits { queues_max: limit, ..vhost.limits },
        other => {
            let Failure { reason, .. } = unknown(other, limit, "limits");
            return Err(Failure::bad_request(format!("Validation failed\n\n{reason}\n")));
        }
    };
    context.administer(Request::SetVhostLimits { vhost: context.name(0).into(), limits })?;
    Ok(Reply::done())
}

/// `PUT /vhost-limits/{v}/{l}`
pub(crate) fn put_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    set_vhost(context, Some(value(context)?))
}

/// `DELETE /vhost-limits/{v}/{l}`
pub(crate) fn delete_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    set_vhost(context, None)
}

/// `GET /user-limits`
pub(crate) fn users(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = {
        let directory = context.directory();
        let all = directory.accounts().users().map(|user| (user, of_user(user)));
        let set = all.filter(|(_, limits)| !is_empty(limits));
        set.map(|(user, limits)| json!({"user": user.name, "value": limits})).collect()
    };
    context.list_rows(rows)
}

fn find_user(context: &Context<'_>) -> Result<User, Failure> {
    context.directory().user(context.name(0)).cloned().ok_or_else(Failure::not_found)
}

/// `GET /user-limits/{u}`
pub(crate) fn user(context: &Context<'_>) -> Result<Reply, Failure> {
    let user = find_user(context)?;
    let limits = of_user(&user);
    let rows = match is_empty(&limits) {
        true => Vec::new(),
        false => vec![json!({"user": user.name, "value": limits})],
    };
    context.list_rows(rows)
}

fn set_user(context: &Context<'_>, limit: Option<i64>) -> Result<Reply, Failure> {
    let user = find_user(context)?;
    let limits = match context.name(1) {
        "max-connections" => UserLimits { connections_max: limit, ..user.limits },
        "max-channels" => UserLimits { channels_max: limit, ..user.limits },
        other => return Err(unknown(other, limit, "user-limits")),
    };
    context.administer(Request::SetUserLimits { name: context.name(0).to_owned(), limits })?;
    Ok(Reply::done())
}

/// `PUT /user-limits/{u}/{l}`
pub(crate) fn put_user(context: &Context<'_>) -> Result<Reply, Failure> {
    set_user(context, Some(value(context)?))
}

/// `DELETE /user-limits/{u}/{l}`
pub(crate) fn delete_user(context: &Context<'_>) -> Result<Reply, Failure> {
    set_user(context, None)
}
