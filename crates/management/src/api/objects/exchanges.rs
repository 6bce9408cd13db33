//! Exchanges.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use crate::definitions::table_value;
use lepus_base::VhostId;
use lepus_broker::directory::{Directory, ExchangeInfo, Request};
use serde_json::{Value, json};

fn row(directory: &Directory, info: &ExchangeInfo) -> Value {
    let mut row = json!({
        "name": info.name,
        "vhost": directory.vhost_name(info.vhost),
        "type": info.kind_name(),
        "durable": info.durable,
        "auto_delete": info.auto_delete,
        "internal": info.internal,
        "arguments": table_value(info.arguments.as_ref()),
        "user_who_performed_action": "rmq-internal",
    });
    if let Some(name) = directory.policy_of_exchange(info).policy_name() {
        row["policy"] = json!(name);
    }
    row
}

fn listed(context: &Context<'_>, vhost: Option<&str>) -> Result<Reply, Failure> {
    let items: Vec<(String, VhostId)> = {
        let directory = context.directory();
        let mut items = Vec::new();
        for vhost in context.vhosts(&directory, vhost)? {
            let all = directory.exchanges(Some(vhost.id));
            items.extend(all.map(|info| (info.name.to_string(), vhost.id)));
        }
        items
    };
    let rows = |items: &[(String, VhostId)]| {
        let directory = context.directory();
        let found = items.iter().filter_map(|(name, vhost)| directory.exchange(*vhost, name));
        Ok(found.map(|info| row(&directory, info)).collect())
    };
    context.list(items, |(name, _)| name, rows)
}

/// `GET /exchanges`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, None)
}

/// `GET /exchanges/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, Some(context.name(0)))
}

/// `GET /exchanges/{v}/{x}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let directory = context.directory();
    let vhost = context.vhost(&directory, context.name(0))?;
    let info =
        directory.exchange(vhost, context.exchange_name(1)).ok_or_else(Failure::not_found)?;
    let mut row = row(&directory, info);
    for list in ["incoming", "outgoing"] {
        row[list] = Value::Array(Vec::new());
    }
    Ok(context.object(row))
}

/// `PUT /exchanges/{v}/{x}`
pub(crate) fn declare(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    let name = context.exchange_name(1).to_owned();
    if name.len() > 255 {
        return Err(Failure::bad_request(format!(
            "the name has {} bytes, 255 are allowed",
            name.len()
        )));
    }
    let is_new = context.directory().exchange(vhost, &name).is_none();
    let fields = context.fields()?;
    context.change(Request::DeclareExchange {
        vhost: vhost.into(),
        name,
        kind: fields.text("type")?.unwrap_or_else(|| "direct".to_owned()),
        durable: fields.flag("durable", false)?,
        auto_delete: fields.flag("auto_delete", false)?,
        internal: fields.flag("internal", false)?,
        arguments: fields.table("arguments")?,
    })?;
    Ok(Reply::put(is_new))
}

/// `DELETE /exchanges/{v}/{x}`
pub(crate) fn delete(context: &Context<'_>) -> Result<Reply, Failure> {
    let (vhost, name) = {
        let directory = context.directory();
        let vhost = context.vhost(&directory, context.name(0))?;
        let name = context.exchange_name(1);
        directory.exchange(vhost, name).ok_or_else(Failure::not_found)?;
        (vhost, name.to_owned())
    };
    let if_unused = context.query.is_true("if-unused");
    context.change(Request::DeleteExchange { vhost: vhost.into(), name, if_unused })?;
    Ok(Reply::done())
}
