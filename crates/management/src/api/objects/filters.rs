//! Content filters: where there are some, how many of which kind, what they take of messages, and the dearest.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::sums::{self, ExchangeName, FilterSums};
use lepus_base::{QueueId, ShardId, VhostId};
use lepus_broker::directory::{Capacity, ExchangeInfo};
use lepus_broker::query::{DEAR_MAX, DearFilterRow, PLACES_MAX, SelectorRow};
use lepus_broker::{Answer, Query};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::Rc;

/// Characters of a consumer's filter that are shown, as of a binding's.
const TEXT_CHARS_MAX: usize = 200;
/// Parts of an exchange's filters that are looked at for the dearest: more than an exchange may have by default.
const PARTS_MAX: usize = 256;

/// What has filters.
struct Item {
    vhost: VhostId,
    vhost_name: Rc<str>,
    name: Box<str>,
    /// The queue whose consumers have them, and its home; of an exchange none.
    queue: Option<(QueueId, ShardId)>,
}

impl Item {
    fn exchange(&self) -> Option<ExchangeName> {
        self.queue.is_none().then(|| (self.vhost, self.name.clone()))
    }
}

/// Exchanges whose bindings have filters, by name, then queues whose consumers have, in the virtual hosts that the user
/// may enter.
fn items(context: &Context<'_>, vhost: Option<&str>) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    let vhosts: HashMap<VhostId, Rc<str>> = {
        let directory = context.directory();
        let found = context.vhosts(&directory, vhost)?;
        let ids: Vec<VhostId> = found.iter().map(|info| info.id).collect();
        let vhosts: HashMap<VhostId, Rc<str>> =
            found.into_iter().map(|info| (info.id, (*info.name).into())).collect();
        let item = |info: &ExchangeInfo| Item {
            vhost: info.vhost,
            vhost_name: Rc::clone(&vhosts[&info.vhost]),
            name: info.name.clone(),
            queue: None,
        };
        items.extend(directory.filtered_exchanges(&ids).map(item));
        vhosts
    };
    let mut queues = Vec::new();
    for shard in 0..context.api.broker.shards() {
        let mut next = Some(None);
        while let Some(after) = next.take() {
            match context.ask(ShardId(shard), Query::FilteredQueues { after })? {
                Answer::FilteredQueues(part) => {
                    queues.extend(part.rows);
                    next = part.next.map(Some);
                }
                other => unreachable!("a question for queues is answered with {other:?}"),
            }
        }
    }
    let directory = context.directory();
    let found = queues.into_iter().filter_map(|id| {
        let info = directory.queue_by_id(directory.id_now(id))?;
        let vhost_name = Rc::clone(vhosts.get(&info.vhost)?);
        let queue = Some((info.id, info.home));
        Some(Item { vhost: info.vhost, vhost_name, name: info.name().into(), queue })
    });
    let mut found: Vec<Item> = found.collect();
    found.sort_by(|a, b| (a.vhost, &a.name).cmp(&(b.vhost, &b.name)));
    // One that moved meanwhile may have been told twice.
    found.dedup_by(|a, b| (a.vhost, &a.name) == (b.vhost, &b.name));
    items.extend(found);
    Ok(items)
}

/// The rows of items, of those that still have filters.
fn rows(
    context: &Context<'_>,
    items: &[Item],
    with_dearest: bool,
) -> Result<Vec<Option<Value>>, Failure> {
    let names: Vec<ExchangeName> = items.iter().filter_map(Item::exchange).collect();
    let sums = sums::of_filters(&*context.api.broker, &names).map_err(Failure::unavailable)?;
    let mut rows = Vec::with_capacity(items.len());
    for item in items {
        let row = match item.queue {
            Some((id, home)) => queue_row(context, item, id, home)?,
            None => match sums.get(&(item.vhost, item.name.clone())) {
                Some(found) => Some(exchange_row(context, item, found, with_dearest)?),
                None => None,
            },
        };
        rows.push(row);
    }
    Ok(rows)
}

fn exchange_row(
    context: &Context<'_>,
    item: &Item,
    found: &FilterSums,
    with_dearest: bool,
) -> Result<Value, Failure> {
    let figures = &found.figures;
    let micros = |steps: f64| {
        (found.samples > 0).then(|| steps / f64::from(Capacity::FILTER_STEPS_PER_MICRO))
    };
    let mut row = json!({
        "kind": "exchange",
        "vhost": &*item.vhost_name,
        "name": item.name,
        "bindings": figures.bindings,
        "filters": figures.looked_up + figures.compared + figures.evaluated,
        "looked_up": figures.looked_up,
        "compared": figures.compared,
        "evaluated": figures.evaluated,
        "fields": figures.fields,
        "memory": figures.bytes,
        "sampled_messages": found.samples,
        "microseconds": micros(found.matching_steps),
        "microseconds_reading": micros(found.reading_steps),
        "takes_looked_up_only": figures.refuses,
    });
    if with_dearest {
        let dearest = dearest(context, item)?;
        row["dearest"] = dearest.iter().map(dear_binding).collect();
    }
    Ok(row)
}

/// The dearest filters of an exchange's bindings.
fn dearest(context: &Context<'_>, item: &Item) -> Result<Vec<DearFilterRow>, Failure> {
    let mut found: Vec<DearFilterRow> = Vec::new();
    let mut next = Some(0);
    for _ in 0..PARTS_MAX {
        let Some(from) = next.take() else { break };
        let query = Query::DearFilters { vhost: item.vhost, exchange: item.name.clone(), from };
        match context.ask(ShardId(0), query)? {
            Answer::DearFilters(part) => {
                found.extend(part.rows);
                next = part.next;
            }
            other => unreachable!("a question for filters is answered with {other:?}"),
        }
        // Those of a part come in their order, which is kept among equals.
        found.sort_by_key(|row| Reverse((rank(row.way), row.cost, row.bindings)));
        found.truncate(DEAR_MAX);
    }
    Ok(found)
}

/// What is paid for each message comes first.
fn rank(way: &str) -> u8 {
    match way {
        "evaluated" => 2,
        "compared" => 1,
        _ => 0,
    }
}

fn dear_binding(row: &DearFilterRow) -> Value {
    json!({
        "filter": row.text,
        "format": row.format,
        "way": row.way,
        "cost": row.cost,
        "bindings": row.bindings,
        "destination": row.destination,
        "destination_type": row.destination_kind,
        "routing_key": row.routing_key,
    })
}

fn queue_row(
    context: &Context<'_>,
    item: &Item,
    id: QueueId,
    home: ShardId,
) -> Result<Option<Value>, Failure> {
    let mut selectors = match context.ask(home, Query::Selectors(id))? {
        Answer::Selectors(selectors) => selectors,
        other => unreachable!("a question for selectors is answered with {other:?}"),
    };
    selectors.retain(|row| row.filter.is_some());
    if selectors.is_empty() {
        return Ok(None);
    }
    let count = |way: &str| selectors.iter().filter(|row| row.way == way).count();
    let sum = |of: fn(&SelectorRow) -> u64| selectors.iter().map(of).sum::<u64>();
    let (evaluations, deliveries) = (sum(|row| row.evaluations), sum(|row| row.deliveries));
    let mut row = json!({
        "kind": "queue",
        "vhost": &*item.vhost_name,
        "name": item.name,
        "consumers": sum(|row| row.consumers.into()),
        "filters": selectors.len(),
        "looked_up": count("looked_up"),
        "compared": count("compared"),
        "evaluated": count("evaluated"),
        "evaluations": evaluations,
        "deliveries": deliveries,
        "evaluations_per_delivery": per_delivery(evaluations, deliveries),
    });
    // Whoever is asked about most messages for each that it lets through.
    selectors.sort_by(|a, b| {
        let wasted = |row: &SelectorRow| row.evaluations as f64 / row.deliveries.max(1) as f64;
        wasted(b).total_cmp(&wasted(a))
    });
    selectors.truncate(DEAR_MAX);
    row["dearest"] = selectors.iter().map(dear_selector).collect();
    Ok(Some(row))
}

fn dear_selector(row: &SelectorRow) -> Value {
    let filter = row.filter.as_deref().unwrap_or_default();
    let mut text: String = filter.chars().take(TEXT_CHARS_MAX).collect();
    if text.len() < filter.len() {
        text.push('…');
    }
    json!({
        "filter": text,
        "format": row.format,
        "way": row.way,
        "cost": row.cost,
        "consumers": row.consumers,
        "evaluations": row.evaluations,
        "deliveries": row.deliveries,
        "evaluations_per_delivery": per_delivery(row.evaluations, row.deliveries),
    })
}

fn per_delivery(evaluations: u64, deliveries: u64) -> Option<f64> {
    (deliveries > 0).then(|| evaluations as f64 / deliveries as f64)
}

fn listed(context: &Context<'_>, vhost: Option<&str>) -> Result<Reply, Failure> {
    let whole = |items: &[Item]| {
        let rows = rows(context, items, true)?;
        Ok(rows.into_iter().flatten().collect())
    };
    let keys = |items: &[Item], key: &str| {
        let mut keys = Vec::with_capacity(items.len());
        for items in items.chunks(PLACES_MAX) {
            let rows = rows(context, items, false)?;
            keys.extend(rows.into_iter().map(|row| row?.get_mut(key).map(Value::take)));
        }
        Ok(Some(keys))
    };
    let items = items(context, vhost)?;
    context.list_with_keys(items, |item| &item.name, whole, keys)
}

/// `GET /lepus/filters`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, None)
}

/// `GET /lepus/filters/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, Some(context.name(0)))
}
