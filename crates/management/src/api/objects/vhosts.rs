//! Virtual hosts.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::samples::{LEVELS, OF_CHANNEL, OF_CONNECTION, OF_VHOST, Range, of_vhost};
use super::super::sums;
use lepus_base::VhostId;
use lepus_broker::directory::{Directory, Request, VhostInfo, VhostMetadata};
use lepus_broker::queue::QueueKind;
use serde_json::{Map, Value, json};

fn attributes(context: &Context<'_>, vhost: &VhostInfo) -> Map<String, Value> {
    let metadata = &vhost.metadata;
    let kind = metadata.default_queue_type.unwrap_or(QueueKind::Classic).name();
    let node = context.api.node_name();
    super::fields(json!({
        "name": vhost.name,
        "description": metadata.description,
        "tags": metadata.tags,
        "default_queue_type": kind,
        "metadata": {
            "description": metadata.description,
            "tags": metadata.tags,
            "default_queue_type": kind,
        },
        "tracing": metadata.tracing,
        "protected_from_deletion": metadata.protected,
        "cluster_state": {node: "running"},
    }))
}

/// Rows of virtual hosts with what was done in them and what is there; of those that are gone none.
fn rows(
    context: &Context<'_>,
    items: &[(VhostId, String)],
    is_single: bool,
) -> Result<Vec<Value>, Failure> {
    let (mut ids, mut rows) = (Vec::new(), Vec::new());
    {
        let directory = context.directory();
        for vhost in items.iter().filter_map(|(id, _)| directory.vhost_info(*id)) {
            ids.push(vhost.id);
            rows.push(attributes(context, vhost));
        }
    }
    if !context.query.is_true("disable_stats") {
        let sums = sums::of_vhosts(&*context.api.broker, &ids).map_err(Failure::unavailable)?;
        let messages = Range::read(context, "msg_rates")?;
        let octets = Range::read(context, "data_rates")?;
        let lengths = Range::read(context, "lengths")?;
        let values = |id: &VhostId| sums.get(id).map_or([0; OF_VHOST], of_vhost);
        let shown = ids.iter().map(|id| (*id, values(id)));
        let details = context.api.samples.vhosts(shown, |series| {
            std::array::from_fn::<_, OF_VHOST, _>(|place| {
                let range = match place {
                    _ if place < OF_CHANNEL.len() => messages,
                    _ if place < OF_CHANNEL.len() + OF_CONNECTION.len() => octets,
                    _ => lengths,
                };
                series.map(|series| series.details(place, range))
            })
        });
        for ((row, id), details) in rows.iter_mut().zip(&ids).zip(details) {
            add_figures(row, &values(id), details, is_single);
        }
    }
    Ok(rows.into_iter().map(Value::Object).collect())
}

/// Adds what was done and what is there; in lists `message_stats` only where messages passed.
fn add_figures(
    row: &mut Map<String, Value>,
    values: &[u64; OF_VHOST],
    details: [Option<Value>; OF_VHOST],
    is_single: bool,
) {
    let (messages, others) = values.split_at(OF_CHANNEL.len());
    let (octets, levels) = others.split_at(OF_CONNECTION.len());
    let mut details = details.into_iter();
    let mut stats = Map::new();
    super::add_values(&mut stats, &OF_CHANNEL, messages, details.by_ref().take(OF_CHANNEL.len()));
    super::add_values(row, &OF_CONNECTION, octets, details.by_ref().take(OF_CONNECTION.len()));
    super::add_values(row, &LEVELS, levels, details);
    if is_single || messages.iter().any(|value| *value > 0) {
        row.insert("message_stats".to_owned(), Value::Object(stats));
    }
}

/// Whether the user who asks is told of it.
fn is_visible(context: &Context<'_>, directory: &Directory, vhost: &VhostInfo) -> bool {
    context.login.is_monitor() || context.login.may_enter(directory.accounts(), vhost.id)
}

/// `GET /vhosts`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let items: Vec<(VhostId, String)> = {
        let directory = context.directory();
        let all = directory.accounts().vhosts();
        let seen = all.filter(|vhost| is_visible(context, &directory, vhost));
        seen.map(|vhost| (vhost.id, vhost.name.to_string())).collect()
    };
    context.list(items, |(_, name)| name, |items| rows(context, items, false))
}

/// `GET /vhosts/{v}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let item = {
        let directory = context.directory();
        let vhost = directory.vhost(context.name(0)).and_then(|id| directory.vhost_info(id));
        let vhost = vhost.filter(|vhost| is_visible(context, &directory, vhost));
        let vhost = vhost.ok_or_else(Failure::not_found)?;
        (vhost.id, vhost.name.to_string())
    };
    let row = rows(context, &[item], true)?.pop();
    Ok(context.object(row.ok_or_else(Failure::not_found)?))
}

fn found(context: &Context<'_>) -> Result<VhostMetadata, Failure> {
    let directory = context.directory();
    let vhost = directory.vhost(context.name(0)).and_then(|id| directory.vhost_info(id));
    vhost.map(|vhost| vhost.metadata.clone()).ok_or_else(Failure::not_found)
}

/// `PUT /vhosts/{v}`. Who makes one may do everything in it.
pub(crate) fn put(context: &Context<'_>) -> Result<Reply, Failure> {
    let name = context.name(0).to_owned();
    let fields = context.fields()?;
    let before = found(context).ok();
    let is_new = before.is_none();
    let before = before.unwrap_or_default();
    let kind = match fields.text("default_queue_type")?.or(fields.text("defaultqueuetype")?) {
        None => before.default_queue_type,
        Some(word) => match QueueKind::from_name(&word) {
            Some(kind) => Some(kind),
            None => {
                let text = format!("default_queue_type is {word:?}, which is no type of queues");
                return Err(Failure::bad_request(text));
            }
        },
    };
    let metadata = VhostMetadata {
        description: fields.text("description")?.unwrap_or_default().into(),
        tags: fields.words("tags")?.unwrap_or_default(),
        default_queue_type: kind,
        ..before
    };
    context.administer(Request::CreateVhost { name: name.clone(), metadata })?;
    if fields.get("tracing").is_some() {
        let on = fields.flag("tracing", false)?;
        context.administer(Request::SetTracing { vhost: name.as_str().into(), on })?;
    }
    if is_new && let Some(user) = &context.login.user {
        let all = || ".*".to_owned();
        context.administer(Request::SetPermission {
            user: user.clone(),
            vhost: name.as_str().into(),
            configure: all(),
            write: all(),
            read: all(),
        })?;
    }
    Ok(Reply::put(is_new))
}

/// `DELETE /vhosts/{v}`
pub(crate) fn delete(context: &Context<'_>) -> Result<Reply, Failure> {
    if found(context)?.protected {
        let text = format!(
            "Refusing to delete virtual host '{}' because it is protected from deletion",
            context.name(0)
        );
        return Err(Failure::new(412, "precondition_failed", text));
    }
    context.administer(Request::DeleteVhost { name: context.name(0).to_owned() })?;
    Ok(Reply::done())
}

/// `POST /vhosts/{v}/start/{n}`: it runs.
pub(crate) fn start(context: &Context<'_>) -> Result<Reply, Failure> {
    found(context)?;
    Ok(Reply::done())
}

fn set_protected(context: &Context<'_>, protected: bool) -> Result<Reply, Failure> {
    let metadata = VhostMetadata { protected, ..found(context)? };
    context.administer(Request::CreateVhost { name: context.name(0).to_owned(), metadata })?;
    Ok(Reply::done())
}

/// `POST /vhosts/{v}/deletion/protection`
pub(crate) fn protect(context: &Context<'_>) -> Result<Reply, Failure> {
    set_protected(context, true)
}

/// `DELETE /vhosts/{v}/deletion/protection`
pub(crate) fn unprotect(context: &Context<'_>) -> Result<Reply, Failure> {
    set_protected(context, false)
}
