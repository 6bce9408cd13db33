//! Policies, of users and of operators.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use crate::definitions::policy_value;
use lepus_broker::directory::{PolicyScope, Request};
use lepus_broker::{Answer, Query};
use serde_json::Value;

/// What the answer says whose policy is not followed everywhere yet.
const PENDING: &str = "x-lepus-pending";

/// A change of policies or parameters; returns when all shards follow it, or when that takes long.
pub(crate) fn change(
    context: &Context<'_>,
    request: Request,
) -> Result<Option<&'static str>, Failure> {
    context.administer(request)?;
    let epoch = context.directory().policy_epoch();
    let followed = context.api.broker.ask_all(&Query::AwaitPolicies { epoch });
    let reaches = |answer: &Answer| matches!(answer, Answer::PoliciesApplied { epoch: up_to } if *up_to >= epoch);
    let is_done = followed.is_ok_and(|answers| answers.iter().all(reaches));
    Ok((!is_done).then_some("some queues do not follow it yet"))
}

/// The answer, with a word on what is not done yet.
pub(crate) fn reply(reply: Reply, pending: Option<&str>) -> Reply {
    match pending {
        Some(text) => reply.with(PENDING, text.to_owned()),
        None => reply,
    }
}

fn listed(
    context: &Context<'_>,
    scope: PolicyScope,
    vhost: Option<&str>,
) -> Result<Reply, Failure> {
    let rows: Vec<Value> = {
        let directory = context.directory();
        let mut rows = Vec::new();
        for vhost in context.vhosts(&directory, vhost)? {
            let own = directory.policies(scope, Some(vhost.id));
            rows.extend(own.map(|(vhost, policy)| policy_value(&vhost.name, policy)));
        }
        rows
    };
    context.list_rows(rows)
}

fn shown(context: &Context<'_>, scope: PolicyScope) -> Result<Reply, Failure> {
    let directory = context.directory();
    let vhost = context.vhost(&directory, context.name(0))?;
    let policy = directory.policy(vhost, scope, context.name(1)).ok_or_else(Failure::not_found)?;
    Ok(context.object(policy_value(context.name(0), policy)))
}

fn put(context: &Context<'_>, scope: PolicyScope) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    let name = context.name(1).to_owned();
    let is_new = context.directory().policy(vhost, scope, &name).is_none();
    let fields = context.fields()?;
    let pattern = fields.required_text("pattern")?;
    fields.require("definition")?;
    let request = Request::SetPolicy {
        vhost: vhost.into(),
        scope,
        name,
        pattern,
        apply_to: fields.text("apply-to")?.unwrap_or_else(|| "all".to_owned()),
        priority: fields.integer("priority")?.unwrap_or(0),
        definition: fields.table("definition")?,
    };
    let pending = change(context, request)?;
    Ok(reply(Reply::put(is_new), pending))
}

fn delete(context: &Context<'_>, scope: PolicyScope) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    let name = context.name(1).to_owned();
    let pending = change(context, Request::ClearPolicy { vhost: vhost.into(), scope, name })?;
    Ok(reply(Reply::done(), pending))
}

/// `GET /policies`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, PolicyScope::User, None)
}

/// `GET /policies/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, PolicyScope::User, Some(context.name(0)))
}

/// `GET /policies/{v}/{n}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    shown(context, PolicyScope::User)
}

/// `PUT /policies/{v}/{n}`
pub(crate) fn set(context: &Context<'_>) -> Result<Reply, Failure> {
    put(context, PolicyScope::User)
}

/// `DELETE /policies/{v}/{n}`
pub(crate) fn clear(context: &Context<'_>) -> Result<Reply, Failure> {
    delete(context, PolicyScope::User)
}

/// `GET /operator-policies`
pub(crate) fn operator_list(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, PolicyScope::Operator, None)
}

/// `GET /operator-policies/{v}`
pub(crate) fn operator_of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, PolicyScope::Operator, Some(context.name(0)))
}

/// `GET /operator-policies/{v}/{n}`
pub(crate) fn operator_one(context: &Context<'_>) -> Result<Reply, Failure> {
    shown(context, PolicyScope::Operator)
}

/// `PUT /operator-policies/{v}/{n}`
pub(crate) fn operator_set(context: &Context<'_>) -> Result<Reply, Failure> {
    put(context, PolicyScope::Operator)
}

/// `DELETE /operator-policies/{v}/{n}`
pub(crate) fn operator_clear(context: &Context<'_>) -> Result<Reply, Failure> {
    delete(context, PolicyScope::Operator)
}
