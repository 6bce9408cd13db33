//! Parameters of parts of the broker, and of the whole.

use super::super::access::Right;
use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use super::super::shovel::{COMPONENT, check};
use super::policies;
use crate::definitions::{
    LIMITS, OPERATOR_POLICY, SHOVEL_SET_BY, parameter_request, vhost_limits_value,
};
use crate::definitions::{global_parameter_value, operator_policy_parameter, parameter_value};
use crate::json::read;
use lepus_broker::directory::{Directory, PolicyScope, Request, VhostInfo, VhostLimits};
use serde_json::{Value, json};

/// The parameter that names the cluster.
const CLUSTER_NAME: &str = "cluster_name";

/// All parameters of a virtual host but its policies.
pub(crate) fn rows_of(directory: &Directory, vhost: &VhostInfo) -> Vec<Value> {
    let own = directory.parameters(Some(vhost.id));
    let mut rows: Vec<Value> =
        own.map(|(vhost, parameter)| parameter_value(&vhost.name, &parameter)).collect();
    if vhost.limits != VhostLimits::default() {
        rows.push(json!({
            "component": LIMITS,
            "vhost": vhost.name,
            "name": "limits",
            "value": vhost_limits_value(&vhost.limits),
        }));
    }
    let operator = directory.policies(PolicyScope::Operator, Some(vhost.id));
    rows.extend(operator.map(|(vhost, policy)| operator_policy_parameter(&vhost.name, policy)));
    rows
}

fn listed(
    context: &Context<'_>,
    component: Option<&str>,
    vhost: Option<&str>,
) -> Result<Reply, Failure> {
    let mut rows = {
        let directory = context.directory();
        let vhosts = context.vhosts(&directory, vhost)?;
        vhosts.into_iter().flat_map(|vhost| rows_of(&directory, vhost)).collect::<Vec<_>>()
    };
    rows.retain(|row| component.is_none_or(|component| row["component"] == component));
    context.list_rows(rows.into_iter().map(shown).collect())
}

/// `GET /parameters`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, None, None)
}

/// `GET /parameters/{c}`
pub(crate) fn of_component(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, Some(context.name(0)), None)
}

/// `GET /parameters/{c}/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, Some(context.name(0)), Some(context.name(1)))
}

fn find(context: &Context<'_>) -> Option<Value> {
    let directory = context.directory();
    let vhost = directory.vhost(context.name(1)).and_then(|id| directory.vhost_info(id))?;
    let mut rows = rows_of(&directory, vhost).into_iter();
    rows.find(|row| row["component"] == context.name(0) && row["name"] == context.name(2))
}

/// Whether there is the parameter of the path.
fn is_there(context: &Context<'_>) -> bool {
    let directory = context.directory();
    let (component, name) = (context.name(0), context.name(2));
    let Some(vhost) = directory.vhost(context.name(1)) else { return false };
    match component {
        OPERATOR_POLICY => directory.policy(vhost, PolicyScope::Operator, name).is_some(),
        LIMITS => {
            let limits = directory.vhost_info(vhost).map(|info| info.limits);
            limits.is_some_and(|limits| limits != VhostLimits::default())
        }
        _ => directory.parameter(vhost, component, name).is_some(),
    }
}

/// `GET /parameters/{c}/{v}/{n}`
pub(crate) fn one(context: &Context<'_>) -> Result<Reply, Failure> {
    {
        let directory = context.directory();
        context.vhost(&directory, context.name(1))?;
    }
    find(context).map(|row| context.object(shown(row))).ok_or_else(Failure::not_found)
}

/// Whether the user may be whom a shovel is on this broker, where it `is_inside`: its thread is at no place from which only
/// some may log in.
fn check_place(context: &Context<'_>, is_inside: bool) -> Result<(), Failure> {
    let directory = context.directory();
    let found = directory.accounts().authenticate_external(context.login.name(), false);
    match is_inside && found.is_err() {
        true => {
            let text = "a user that may log in from this machine only needs the tag administrator";
            Err(Failure::not_authorised(text))
        }
        false => Ok(()),
    }
}

/// A row as it is shown: who set a shovel stands in files alone, so that what tools have set is what they find.
fn shown(mut row: Value) -> Value {
    if row["component"] == COMPONENT
        && let Some(value) = row["value"].as_object_mut()
    {
        value.remove(SHOVEL_SET_BY);
    }
    row
}

/// `PUT /parameters/{c}/{v}/{n}`
pub(crate) fn set(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(1))?;
    let (component, name) = (context.name(0), context.name(2));
    if [OPERATOR_POLICY, LIMITS].contains(&component) {
        context.login.check(Right::Administrator)?;
    }
    let fields = context.fields()?;
    let mut value = match fields.require("value")? {
        // Scripts send JSON as a text.
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            match read(text.as_bytes()) {
                Err(error) if error.is_data() => {
                    return Err(Failure::bad_request(format!("value has {error}")));
                }
                read => read.unwrap_or_else(|_| json!(text)),
            }
        }
        value => value.clone(),
    };
    if component == COMPONENT {
        let refused = |text| Failure::bad_request(format!("Validation failed\n\n{text}\n"));
        let listeners = context.api.broker.listeners();
        let needs = check(&value.to_string(), context.name(1), &listeners).map_err(refused)?;
        for inside in &needs.vhosts {
            context.vhost_to_change(inside)?;
        }
        if !context.login.is_administrator() {
            if let Some(why) = needs.administrator {
                return Err(Failure::not_authorised(why));
            }
            check_place(context, !needs.vhosts.is_empty())?;
            // A name may lead elsewhere later: what it does then, it does as this user.
            if let Some(value) = value.as_object_mut() {
                value.insert(SHOVEL_SET_BY.to_owned(), json!(context.login.name()));
            }
        }
    }
    let is_new = !is_there(context);
    let request = parameter_request(vhost.into(), component.to_owned(), name.to_owned(), value)
        .map_err(|error| Failure::bad_request(error.to_string()))?;
    let pending = policies::change(context, request)?;
    context.api.links_changed();
    Ok(policies::reply(Reply::put(is_new), pending))
}

/// `DELETE /parameters/{c}/{v}/{n}`
pub(crate) fn clear(context: &Context<'_>) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(1))?;
    let (component, name) = (context.name(0).to_owned(), context.name(2).to_owned());
    let request = match component.as_str() {
        OPERATOR_POLICY => {
            context.login.check(Right::Administrator)?;
            Request::ClearPolicy { vhost: vhost.into(), scope: PolicyScope::Operator, name }
        }
        LIMITS => {
            context.login.check(Right::Administrator)?;
            if !is_there(context) {
                return Err(Failure::not_found());
            }
            let limits = VhostLimits::default();
            Request::SetVhostLimits { vhost: vhost.into(), limits }
        }
        _ => Request::ClearParameter { vhost: vhost.into(), component, name },
    };
    let pending = policies::change(context, request)?;
    context.api.links_changed();
    Ok(policies::reply(Reply::done(), pending))
}

/// All parameters of the whole broker, those included that are there without having been set.
pub(crate) fn global_rows(context: &Context<'_>, directory: &Directory) -> Vec<Value> {
    let mut rows: Vec<Value> = directory
        .global_parameters()
        .map(|(name, value)| global_parameter_value(name, value))
        .collect();
    let node = context.api.broker.node();
    let id = format!("lepus-cluster-id-{}", node.name);
    for (name, value) in [(CLUSTER_NAME, json!(node.cluster)), ("internal_cluster_id", json!(id))] {
        if rows.iter().all(|row| row["name"] != name) {
            rows.push(json!({"name": name, "value": value}));
        }
    }
    rows.sort_by_cached_key(|row| row["name"].as_str().unwrap_or_default().to_owned());
    rows
}

/// The value of a parameter of the whole broker.
pub(crate) fn global(context: &Context<'_>, name: &str) -> Option<Value> {
    let rows = global_rows(context, &context.directory());
    rows.into_iter().find(|row| row["name"] == name).map(|mut row| row["value"].take())
}

/// `GET /global-parameters`
pub(crate) fn global_list(context: &Context<'_>) -> Result<Reply, Failure> {
    let rows = global_rows(context, &context.directory());
    context.list_rows(rows)
}

/// `GET /global-parameters/{n}`
pub(crate) fn global_one(context: &Context<'_>) -> Result<Reply, Failure> {
    let value = global(context, context.name(0)).ok_or_else(Failure::not_found)?;
    Ok(context.object(json!({"name": context.name(0), "value": value})))
}

fn set_global(context: &Context<'_>, name: &str, value: &Value) -> Result<(), Failure> {
    context
        .administer(Request::SetGlobalParameter { name: name.to_owned(), value: value.to_string() })
}

/// `PUT /global-parameters/{n}`
pub(crate) fn global_set(context: &Context<'_>) -> Result<Reply, Failure> {
    let name = context.name(0);
    let is_new = global(context, name).is_none();
    set_global(context, name, context.fields()?.require("value")?)?;
    Ok(Reply::put(is_new))
}

/// `DELETE /global-parameters/{n}`
pub(crate) fn global_clear(context: &Context<'_>) -> Result<Reply, Failure> {
    context.administer(Request::ClearGlobalParameter { name: context.name(0).to_owned() })?;
    Ok(Reply::done())
}

/// The cluster's name.
pub(crate) fn cluster_name(context: &Context<'_>) -> String {
    let set = global(context, CLUSTER_NAME);
    set.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// `GET /cluster-name`
pub(crate) fn get_cluster_name(context: &Context<'_>) -> Result<Reply, Failure> {
    Ok(Reply::json(json!({"name": cluster_name(context)})))
}

/// `PUT /cluster-name`
pub(crate) fn put_cluster_name(context: &Context<'_>) -> Result<Reply, Failure> {
    let name = context.fields()?.required_text("name")?;
    set_global(context, CLUSTER_NAME, &json!(name))?;
    Ok(Reply::done())
}
