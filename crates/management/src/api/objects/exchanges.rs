//! Exchanges.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::samples::{OF_EXCHANGE, Range, of_exchange};
use super::super::sums::{self, ExchangeName};
use crate::definitions::table_value;
use lepus_broker::directory::{Directory, ExchangeInfo, Request};
use serde_json::{Map, Value, json};

fn attributes(directory: &Directory, info: &ExchangeInfo) -> Map<String, Value> {
    let mut row = super::fields(json!({
        "name": info.name,
        "vhost": directory.vhost_name(info.vhost),
        "type": info.kind_name(),
        "durable": info.durable,
        "auto_delete": info.auto_delete,
        "internal": info.internal,
        "arguments": table_value(info.arguments.as_ref()),
        "user_who_performed_action": "rmq-internal",
    }));
    if let Some(name) = directory.policy_of_exchange(info).policy_name() {
        row.insert("policy".to_owned(), json!(name));
    }
    row
}

/// Rows of exchanges with what was published to them; of those that are gone none.
fn rows(
    context: &Context<'_>,
    items: &[ExchangeName],
    is_single: bool,
) -> Result<Vec<Value>, Failure> {
    let mut found: Vec<(&ExchangeName, Map<String, Value>)> = {
        let directory = context.directory();
        let attributes = |item| {
            let (vhost, name): &ExchangeName = item;
            let info = directory.exchange(*vhost, name)?;
            Some((item, attributes(&directory, info)))
        };
        items.iter().filter_map(attributes).collect()
    };
    if !context.query.is_true("disable_stats") {
        let broker = &*context.api.broker;
        let sums = sums::of_exchanges(broker, items).map_err(Failure::unavailable)?;
        let range = Range::read(context, "msg_rates")?;
        let values = |item| sums.get(item).map_or([0; OF_EXCHANGE.len()], of_exchange);
        // Of those that nobody ever published to there is nothing to be sampled.
        let told = found.iter_mut().filter(|(item, _)| is_single || sums.contains_key(*item));
        let told: Vec<_> = told.collect();
        let shown = told.iter().map(|(item, _)| ((*item).clone(), values(item)));
        let details = context.api.samples.exchanges(shown, |series| {
            std::array::from_fn(|place| series.map(|series| series.details(place, range)))
        });
        for ((item, row), details) in told.into_iter().zip(details) {
            let details: [Option<Value>; OF_EXCHANGE.len()] = details;
            let mut stats = Map::new();
            super::add_values(&mut stats, &OF_EXCHANGE, &values(item), details);
            row.insert("message_stats".to_owned(), Value::Object(stats));
        }
    }
    Ok(found.into_iter().map(|(_, row)| Value::Object(row)).collect())
}

fn listed(context: &Context<'_>, vhost: Option<&str>) -> Result<Reply, Failure> {
    let items: Vec<ExchangeName> = {
        let directory = context.directory();
        let vhosts = context.vhost_ids(&directory, vhost)?;
        directory.exchanges_of(&vhosts).map(|info| (info.vhost, info.name.clone())).collect()
    };
    context.list(items, |(_, name)| name, |items| rows(context, items, false))
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
    let vhost = context.vhost(&context.directory(), context.name(0))?;
    let mut rows = rows(context, &[(vhost, context.exchange_name(1).into())], true)?;
    let mut row = rows.pop().ok_or_else(Failure::not_found)?;
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
