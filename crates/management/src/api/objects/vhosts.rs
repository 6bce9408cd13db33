//! Virtual hosts.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use lepus_broker::directory::{Directory, Request, VhostInfo, VhostMetadata};
use lepus_broker::queue::QueueKind;
use serde_json::{Value, json};

fn row(context: &Context<'_>, vhost: &VhostInfo) -> Value {
    let metadata = &vhost.metadata;
    let kind = metadata.default_queue_type.unwrap_or(QueueKind::Classic).name();
    let node = context.api.node_name();
    json!({
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
    })
}

/// Whether the user who asks is told of it.
fn is_visible(context: &Context<'_>, directory: &Directory, vhost: &VhostInfo) -> bool {
    context.login.is_monitor() || context.login.may_enter(directory.accounts(), vhost.id)
}

/// `GET /vhosts`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = {
        let directory = context.directory();
        let all = directory.accounts().vhosts();
        let seen = all.filter(|vhost| is_visible(context, &directory, vhost));
        seen.map(|vhost| row(context, vhost)).collect()
    };
    context.list_rows(rows)
}

/// `GET /vhosts/{v}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    let directory = context.directory();
    let vhost = directory.vhost(context.name(0)).and_then(|id| directory.vhost_info(id));
    let vhost = vhost.filter(|vhost| is_visible(context, &directory, vhost));
    Ok(context.object(row(context, vhost.ok_or_else(Failure::not_found)?)))
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
