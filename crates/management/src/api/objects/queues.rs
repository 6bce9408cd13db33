//! Queues.

use super::super::client::Session;
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::samples::{OF_QUEUE, OF_QUEUE_COUNTED, Range, of_queue};
use super::consumers;
use crate::definitions::table_value;
use lepus_base::{QueueId, ShardId};
use lepus_broker::directory::{Directory, QueueInfo, Request};
use lepus_broker::query::{PLACES_MAX, QueueFigures, SelectorRow};
use lepus_broker::{Answer, Query};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// A queue of a list: what is needed to find and to sort it.
pub(crate) struct Item {
    id: QueueId,
    home: ShardId,
    name: String,
}

impl Context<'_> {
    /// What a queue is, whatever it holds.
    fn queue_attributes(&self, directory: &Directory, info: &QueueInfo) -> Map<String, Value> {
        let node = self.api.node_name();
        let policies = directory.policy_of_queue(info);
        let mut row = super::fields(json!({
            "name": info.name(),
            "vhost": directory.vhost_name(info.vhost),
            "type": info.kind.name(),
            "durable": info.durable,
            "auto_delete": info.auto_delete,
            "exclusive": info.exclusive().is_some(),
            "arguments": table_value(info.arguments()),
            "node": node,
            "state": "running",
            "effective_policy_definition": table_value(policies.definition().to_bytes().as_ref()),
            "lepus": {"shard": info.home.0},
        }));
        if let Some(name) = policies.policy_name() {
            row.insert("policy".to_owned(), json!(name));
        }
        if let Some(name) = policies.operator_name() {
            row.insert("operator_policy".to_owned(), json!(name));
        }
        row
    }

    /// Figures of queues, from their homes.
    fn queue_figures(&self, items: &[Item]) -> Result<HashMap<QueueId, QueueFigures>, Failure> {
        let mut by_home: BTreeMap<ShardId, Vec<QueueId>> = BTreeMap::new();
        for item in items {
            by_home.entry(item.home).or_default().push(item.id);
        }
        let mut found = HashMap::with_capacity(items.len());
        for (home, ids) in by_home {
            for ids in ids.chunks(PLACES_MAX) {
                match self.ask(home, Query::QueueFigures(ids.to_vec()))? {
                    Answer::QueueFigures(figures) => {
                        found.extend(figures.into_iter().map(|figures| (figures.id, figures)));
                    }
                    other => unreachable!("a question for figures is answered with {other:?}"),
                }
            }
        }
        Ok(found)
    }

    /// Rows of queues with their figures.
    fn queue_rows(&self, items: &[Item], is_single: bool) -> Result<Vec<Value>, Failure> {
        let mut rows: Vec<Option<Map<String, Value>>> = {
            let directory = self.directory();
            let attributes = |item: &Item| {
                let info = directory.queue_by_id(directory.id_now(item.id))?;
                Some(self.queue_attributes(&directory, info))
            };
            items.iter().map(attributes).collect()
        };
        let has_figures = !self.query.is_true("disable_stats");
        if has_figures || self.query.is_true("enable_queue_totals") {
            let figures = self.queue_figures(items)?;
            let lengths = Range::read(self, "lengths")?;
            let messages = Range::read(self, "msg_rates")?;
            let known = |id| figures.get(&id).copied().unwrap_or_default();
            let shown = items.iter().map(|item| (item.id, of_queue(&known(item.id))));
            let details = self.api.samples.queues(shown, |id, series| {
                let ranges = |place| if place < OF_QUEUE_COUNTED { messages } else { lengths };
                let details = |place| series.map(|series| series.details(place, ranges(place)));
                (id, std::array::from_fn(details))
            });
            for (row, (id, details)) in rows.iter_mut().zip(details) {
                let Some(row) = row else { continue };
                // One that has just been made, or moves, tells its figures next time: a 0 would be taken for one.
                let Some(figures) = figures.get(&id).copied() else { continue };
                match has_figures {
                    true => add_figures(row, &figures, details, is_single),
                    false => add_totals(row, &figures),
                }
            }
        }
        Ok(rows.into_iter().flatten().map(Value::Object).collect())
    }
}

/// A figure of each queue by the name of its column; `None` for columns that are none.
fn figures_at(
    context: &Context<'_>,
    items: &[Item],
    column: &str,
) -> Result<Option<Vec<Option<Value>>>, Failure> {
    let figure: fn(&QueueFigures) -> u64 = match column {
        "messages" => |figures| figures.ready + figures.unacked,
        "messages_ready" => |figures| figures.ready,
        "messages_unacknowledged" => |figures| figures.unacked,
        "consumers" => |figures| figures.consumers.into(),
        "messages_passed_over" => |figures| figures.passed_over,
        "message_bytes" => |figures| figures.ready_bytes + figures.unacked_bytes,
        "memory" => |figures| figures.memory_bytes,
        _ => return Ok(None),
    };
    let figures = context.queue_figures(items)?;
    let of = |item: &Item| figures.get(&item.id).map(|found| json!(figure(found)));
    Ok(Some(items.iter().map(of).collect()))
}

fn add_totals(row: &mut Map<String, Value>, figures: &QueueFigures) {
    row.insert("messages".to_owned(), json!(figures.ready + figures.unacked));
    row.insert("messages_ready".to_owned(), json!(figures.ready));
    row.insert("messages_unacknowledged".to_owned(), json!(figures.unacked));
}

fn add_figures(
    row: &mut Map<String, Value>,
    figures: &QueueFigures,
    details: [Option<Value>; OF_QUEUE.len()],
    is_single: bool,
) {
    add_totals(row, figures);
    let values = of_queue(figures);
    let mut stats = Map::new();
    for (place, (name, details)) in OF_QUEUE.iter().zip(details).enumerate() {
        let details = details.unwrap_or_else(|| json!({"rate": 0.0, "sampled": false}));
        let target = if place < OF_QUEUE_COUNTED { &mut stats } else { &mut *row };
        target.insert((*name).to_owned(), json!(values[place]));
        target.insert(format!("{name}_details"), details);
    }
    if is_single || values[..OF_QUEUE_COUNTED].iter().any(|value| *value > 0) {
        row.insert("message_stats".to_owned(), Value::Object(stats));
    }
    let capacity = if figures.consumers > 0 { 1.0 } else { 0.0 };
    let more = super::fields(json!({
        "consumers": figures.consumers,
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "message_bytes": figures.ready_bytes + figures.unacked_bytes,
        "message_bytes_ready": figures.ready_bytes,
        "message_bytes_unacknowledged": figures.unacked_bytes,
        "memory": figures.memory_bytes,
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
        "storage_version": 2,
    }));
    row.extend(more);
    if figures.has_filters || figures.passed_over > 0 {
        row.insert("messages_passed_over".to_owned(), json!(figures.passed_over));
    }
    if is_single {
        let more = super::fields(json!({
            "incoming": [],
            "deliveries": [],
            "garbage_collection": {},
            "backing_queue_status": {"len": figures.ready},
        }));
        row.extend(more);
    }
}

fn items(context: &Context<'_>, vhost: Option<&str>) -> Result<Vec<Item>, Failure> {
    let directory = context.directory();
    let vhosts = context.vhost_ids(&directory, vhost)?;
    Ok(directory.queues_of(&vhosts).map(item).collect())
}

fn item(info: &QueueInfo) -> Item {
    Item { id: info.id, home: info.home, name: info.name().to_owned() }
}

fn listed(context: &Context<'_>, items: Vec<Item>) -> Result<Reply, Failure> {
    let rows = |items: &[Item]| context.queue_rows(items, false);
    context.list_with_keys(
        items,
        |item| &item.name,
        rows,
        |items, key| figures_at(context, items, key),
    )
}

/// `GET /queues`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, items(context, None)?)
}

/// `GET /queues/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, items(context, Some(context.name(0)))?)
}

/// `GET /users/{u}/queues`: those that the user has declared.
pub(crate) fn of_user(context: &Context<'_>) -> Result<Reply, Failure> {
    let items = {
        let directory = context.directory();
        let user = context.name(0);
        directory.user(user).ok_or_else(Failure::not_found)?;
        directory.queues(None).filter(|info| info.user() == user).map(item).collect()
    };
    listed(context, items)
}

/// The queue that the path names.
fn find(context: &Context<'_>) -> Result<Item, Failure> {
    let directory = context.directory();
    let vhost = context.vhost(&directory, context.name(0))?;
    directory.queue(vhost, context.name(1)).map(item).ok_or_else(Failure::not_found)
}

/// `GET /queues/{v}/{q}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let item = find(context)?;
    let (id, home) = (item.id, item.home);
    let mut rows = context.queue_rows(&[item], true)?;
    let mut row = rows.pop().ok_or_else(Failure::not_found)?;
    let consumers = consumers::of_queue(context, id, home)?;
    let tag = |key: &str| {
        let mut found = consumers.iter().filter(|row| row[key] == true);
        found.next().map(|row| row["consumer_tag"].clone())
    };
    if let Some(tag) = tag("exclusive") {
        row["exclusive_consumer_tag"] = tag;
    }
    if row["arguments"]["x-single-active-consumer"] == true
        && let Some(tag) = tag("active")
    {
        row["single_active_consumer_tag"] = tag;
    }
    row["consumer_details"] = Value::Array(consumers);
    if let Answer::Selectors(selectors) = context.ask(home, Query::Selectors(id))?
        && !selectors.is_empty()
    {
        row["selectors"] = selectors.iter().map(selector).collect();
    }
    Ok(context.object(row))
}

/// A distinct filter of a queue's consumers; `null` is that of those who want everything.
fn selector(row: &SelectorRow) -> Value {
    let deliveries = Some(row.deliveries).filter(|count| *count > 0);
    let per_delivery = deliveries.map(|count| row.evaluations as f64 / count as f64);
    json!({
        "filter": row.filter,
        "filter_format": row.filter.as_ref().map(|_| row.format),
        "consumers": row.consumers,
        "evaluations": row.evaluations,
        "deliveries": row.deliveries,
        "given_up": row.given_up,
        "dear": row.is_dear,
        "evaluations_per_delivery": per_delivery,
        "messages_behind": row.behind,
        "messages_waiting": row.waiting,
    })
}

/// `PUT /queues/{v}/{q}`
pub(crate) fn declare(context: &Context<'_>) -> Result<Reply, Failure> {
    let name = context.name(1);
    if name.len() > 255 {
        return Err(Failure::bad_request(format!(
            "the name has {} bytes, 255 are allowed",
            name.len()
        )));
    }
    let vhost = context.vhost_to_change(context.name(0))?;
    let fields = context.fields()?;
    let is_new = {
        let directory = context.directory();
        let found = directory.queue(vhost, name);
        if found.is_some_and(|info| info.exclusive().is_some()) {
            return Err(locked(context));
        }
        found.is_none()
    };
    let mut arguments = fields.table("arguments")?;
    if let Some(kind) = fields.text("queue_type")? {
        arguments.insert("x-queue-type", kind.as_str());
    }
    // By turns, as nobody is connected to any of them.
    let shards = u64::from(context.api.broker.shards().max(1));
    let declared_on = ShardId((super::super::samples::now_millis() % shards) as u16);
    context.change(Request::DeclareQueue {
        vhost: vhost.into(),
        name: name.to_owned(),
        server_named: false,
        durable: fields.flag("durable", false)?,
        exclusive: None,
        auto_delete: fields.flag("auto_delete", false)?,
        arguments,
        declared_on,
        user: context.login.name().to_owned(),
    })?;
    Ok(Reply::put(is_new))
}

fn locked(context: &Context<'_>) -> Failure {
    Failure::bad_request(format!(
        "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '{}'",
        context.name(1),
        context.name(0)
    ))
}

/// `DELETE /queues/{v}/{q}`
pub(crate) fn delete(context: &Context<'_>) -> Result<Reply, Failure> {
    let item = find(context)?;
    if context.directory().queue_by_id(item.id).is_some_and(|info| info.exclusive().is_some()) {
        return Err(locked(context));
    }
    let (if_unused, if_empty) =
        (context.query.is_true("if-unused"), context.query.is_true("if-empty"));
    if if_unused || if_empty {
        let mut session = Session::open(context, context.name(0))?;
        session.delete_queue(context.name(1), if_unused, if_empty)?;
        session.close();
        context.catch_up();
    } else {
        context.change(Request::DeleteQueue { id: item.id })?;
    }
    Ok(Reply::done())
}

/// `POST /queues/{v}/{q}/actions`: there is nothing to be mirrored.
pub(crate) fn act(context: &Context<'_>) -> Result<Reply, Failure> {
    find(context)?;
    match context.fields()?.required_text("action")?.as_str() {
        "sync" | "cancel_sync" => Ok(Reply::done()),
        other => Err(Failure::bad_request(format!(
            "there is no action {other:?}, but sync and cancel_sync"
        ))),
    }
}

/// `GET /queues/quorum/{v}/{q}/status`: the only member that there is.
pub(crate) fn members(context: &Context<'_>) -> Result<Reply, Failure> {
    find(context)?;
    let node = context.api.node_name();
    Ok(Reply::json(json!([{"Node Name": node, "Raft State": "leader", "Membership": "voter"}])))
}
