//! What shovels are at.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::shovel::COMPONENT;
use lepus_broker::directory::Request;
use serde_json::Value;

fn rows(context: &Context<'_>, vhost: Option<&str>) -> Result<Vec<Value>, Failure> {
    let visible = context.vhost_names(vhost)?;
    let node = context.api.node_name();
    let is_seen = |vhost: &str, _: &str| visible.contains(vhost);
    Ok(context.api.shovels.rows(&node, is_seen))
}

/// `GET /shovels`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    context.list_rows(rows(context, None)?)
}

/// `GET /shovels/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    context.list_rows(rows(context, Some(context.name(0)))?)
}

/// `GET /shovels/vhost/{v}/{n}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let mut rows = rows(context, Some(context.name(0)))?.into_iter();
    let row = rows.find(|row| row["name"] == context.name(1)).ok_or_else(Failure::not_found)?;
    Ok(context.object(row))
}

/// `DELETE /shovels/vhost/{v}/{n}`
pub(crate) fn delete(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    let (component, name) = (COMPONENT.to_owned(), context.name(1).to_owned());
    context.administer(Request::ClearParameter { vhost: vhost.into(), component, name })?;
    context.api.links_changed();
    Ok(Reply::done())
}

/// `DELETE /shovels/vhost/{v}/{n}/restart`
pub(crate) fn restart(context: &Context<'_>) -> Result<Reply, Failure> {
    context.vhost_to_change(context.name(0))?;
    match context.api.shovels.restart(context.name(0), context.name(1)) {
        true => Ok(Reply::done()),
        false => Err(Failure::not_found()),
    }
}
