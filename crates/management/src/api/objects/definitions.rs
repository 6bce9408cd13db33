//! Definitions: everything that is declared, as a file, and back.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::Reply;
use crate::definitions::{Importer, LIMITS, policy_value, table_value};
use lepus_base::VhostId;
use lepus_broker::directory::{
    DestinationRef, Directory, PolicyScope, QueueInfo, Request, VhostInfo, VhostRef,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What stands at the top of a file of the whole broker.
fn head(context: &Context<'_>, format: &str) -> Value {
    let node = context.api.broker.node();
    json!({
        "rabbit_version": node.told_version,
        "rabbitmq_version": node.told_version,
        "product_name": node.told_product,
        "product_version": node.told_version,
        "rabbitmq_definition_format": format,
        "original_cluster_name": node.cluster,
        "explanation": "Definitions of lepus in the format of RabbitMQ",
    })
}

fn metadata(vhost: &VhostInfo) -> Value {
    let metadata = &vhost.metadata;
    let mut value = json!({"description": metadata.description, "tags": metadata.tags});
    if let Some(kind) = metadata.default_queue_type {
        value["default_queue_type"] = json!(kind.name());
    }
    if metadata.protected {
        value["protected_from_deletion"] = json!(true);
    }
    value
}

/// A row as a file of one virtual host, or of all, has it.
fn in_file(mut row: Value, names_vhost: bool) -> Value {
    if !names_vhost && let Some(fields) = row.as_object_mut() {
        fields.remove("vhost");
    }
    row
}

fn policies_of(directory: &Directory, vhost: &VhostInfo, names_vhost: bool) -> Vec<Value> {
    let own = directory.policies(PolicyScope::User, Some(vhost.id));
    own.map(|(vhost, policy)| in_file(policy_value(&vhost.name, policy), names_vhost)).collect()
}

/// Parameters as files have them, operator policies among them. Limits stand with their virtual host.
fn parameters_of(directory: &Directory, vhost: &VhostInfo, names_vhost: bool) -> Vec<Value> {
    let rows = super::parameters::rows_of(directory, vhost).into_iter();
    rows.filter(|row| row["component"] != LIMITS).map(|row| in_file(row, names_vhost)).collect()
}

#[derive(Serialize)]
struct ExchangeItem<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    vhost: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'a str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Value,
}

#[derive(Serialize)]
struct QueueItem<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    vhost: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'a str,
    durable: bool,
    auto_delete: bool,
    arguments: Value,
}

#[derive(Serialize)]
struct BindingItem<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    vhost: Option<&'a str>,
    destination: &'a str,
    destination_type: &'a str,
    routing_key: &'a str,
    arguments: Value,
}

fn is_kept(queue: &QueueInfo) -> bool {
    queue.durable && queue.exclusive().is_none() && !queue.server_named
}

/// Adds a list of a file's objects to its text, of which a brace stands at the end.
fn add_list<T: Serialize>(text: &mut Vec<u8>, name: &str, items: impl Iterator<Item = T>) {
    let end = text.pop();
    assert_eq!(end, Some(b'}'), "the text is an object");
    text.extend_from_slice(format!(",\"{name}\":[").as_bytes());
    let mut is_first = true;
    for item in items {
        if !std::mem::take(&mut is_first) {
            text.push(b',');
        }
        // Text of a value goes into memory: neither can fail.
        serde_json::to_writer(&mut *text, &item).expect("an object is text");
    }
    text.extend_from_slice(b"]}");
}

/// The file: what is in `head`, and the exchanges, queues and bindings of virtual hosts, in the order of their names.
/// Written as text at once: there may be hundreds of thousands, and nothing else changes the directory meanwhile.
fn text(directory: &Directory, head: &Value, vhosts: &[&VhostInfo], names_vhost: bool) -> Vec<u8> {
    let mut text = head.to_string().into_bytes();
    let name_of = |vhost: &VhostInfo| names_vhost.then(|| vhost.name.to_string());
    let names: HashMap<VhostId, Option<String>> =
        vhosts.iter().map(|vhost| (vhost.id, name_of(vhost))).collect();
    let ids: Vec<VhostId> = vhosts.iter().map(|vhost| vhost.id).collect();
    let kept = directory.exchanges_of(&ids);
    let kept = kept.filter(|info| !info.is_predeclared() && !info.internal);
    let exchanges = kept.map(|info| ExchangeItem {
        name: &info.name,
        vhost: names[&info.vhost].as_deref(),
        kind: info.kind_name(),
        durable: info.durable,
        auto_delete: info.auto_delete,
        internal: info.internal,
        arguments: table_value(info.arguments.as_ref()),
    });
    add_list(&mut text, "exchanges", exchanges);
    let queues = directory.queues_of(&ids).filter(|info| is_kept(info)).map(|info| QueueItem {
        name: info.name(),
        vhost: names[&info.vhost].as_deref(),
        kind: info.kind.name(),
        durable: info.durable,
        auto_delete: info.auto_delete,
        arguments: table_value(info.arguments()),
    });
    add_list(&mut text, "queues", queues);
    let is_told = |vhost: VhostId, name: &str| {
        directory.exchange(vhost, name).is_some_and(|exchange| !exchange.internal)
    };
    let kept = directory.bindings_of(&ids).filter(|(vhost, info)| {
        let leads_on = || match info.destination {
            DestinationRef::Queue(name) => directory.queue(*vhost, name).is_some_and(is_kept),
            DestinationRef::Exchange(name) => is_told(*vhost, name),
        };
        !info.source.is_empty() && is_told(*vhost, info.source) && leads_on()
    });
    let bindings = kept.map(|(vhost, info)| BindingItem {
        source: info.source,
        vhost: names[&vhost].as_deref(),
        destination: info.destination.name(),
        destination_type: info.destination.kind(),
        routing_key: info.routing_key,
        arguments: table_value(info.arguments),
    });
    add_list(&mut text, "bindings", bindings);
    text
}

/// Gives a file's text where long answers go; without that, for an operator, it is read back as the value that he wants.
fn give(context: &Context<'_>, text: Vec<u8>, tag: String) -> Result<Reply, Failure> {
    let mut reply = match context.output {
        Some(output) => {
            output.write_whole(text);
            Reply::empty(200)
        }
        None => Reply::json(serde_json::from_slice(&text).expect("it was made from values")),
    };
    reply = reply.with("etag", tag);
    if let Some(name) = context.query.get("download").filter(|name| !name.is_empty()) {
        let name: String = name.chars().filter(|c| !c.is_control() && *c != '"').collect();
        reply = reply.with("content-disposition", format!("attachment; filename=\"{name}\""));
    }
    Ok(reply)
}

/// Waits for a place among the long answers where the file is going to be one.
fn admit(context: &Context<'_>) -> Result<(), Failure> {
    let objects = {
        let directory = context.directory();
        directory.object_count() + directory.binding_count()
    };
    context.admit(objects)
}

/// Whether the header `If-None-Match` names a tag, as a weak one or not: a shorter form of the same file has a weak one.
fn names(known: &str, tag: &str) -> bool {
    let mut tags = known.split(',').map(str::trim);
    tags.any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

/// The tag of what the directory is now; the answer if the caller has it already, or wants no body.
fn unchanged(context: &Context<'_>, tag: &str) -> Option<Reply> {
    let is_known = context.request.known_tag.as_deref().is_some_and(|known| names(known, tag));
    let status = match is_known {
        true => 304,
        false if context.request.method == "HEAD" => 200,
        false => return None,
    };
    Some(Reply::empty(status).with("etag", tag.to_owned()))
}

/// `GET /definitions`
pub(crate) fn all(context: &Context<'_>) -> Result<Reply, Failure> {
    admit(context)?;
    let directory = context.directory();
    let tag = format!("\"{}\"", directory.version());
    if let Some(reply) = unchanged(context, &tag) {
        return Ok(reply);
    }
    let accounts = directory.accounts();
    let users = accounts.users().map(|user| {
        json!({
            "name": user.name,
            "password_hash": user.password.to_base64(),
            "hashing_algorithm": user.password.algorithm().name(),
            "tags": user.tags,
            "limits": super::limits::of_user(user),
        })
    });
    let vhosts = accounts.vhosts().map(|vhost| {
        json!({
            "name": vhost.name,
            "metadata": metadata(vhost),
            "description": vhost.metadata.description,
            "tags": vhost.metadata.tags,
            "limits": super::limits::of_vhost(vhost),
        })
    });
    let mut body = head(context, "cluster");
    body["users"] = users.collect();
    body["vhosts"] = vhosts.collect();
    body["permissions"] = super::permissions::all(&directory).into();
    body["topic_permissions"] = super::permissions::all_topic(&directory).into();
    let parameters = accounts.vhosts().flat_map(|vhost| parameters_of(&directory, vhost, true));
    body["parameters"] = parameters.collect();
    let global = super::parameters::global_rows(context, &directory).into_iter();
    let is_told =
        |row: &Value| row["name"].as_str().is_some_and(|name| !name.starts_with("internal"));
    body["global_parameters"] = global.filter(is_told).collect();
    let policies = accounts.vhosts().flat_map(|vhost| policies_of(&directory, vhost, true));
    body["policies"] = policies.collect();
    let vhosts: Vec<&VhostInfo> = accounts.vhosts().collect();
    let text = text(&directory, &body, &vhosts, true);
    drop(directory);
    give(context, text, tag)
}

/// `GET /definitions/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    admit(context)?;
    let directory = context.directory();
    let id = context.vhost(&directory, context.name(0))?;
    let vhost = directory.vhost_info(id).ok_or_else(Failure::not_found)?;
    let tag = format!("\"{}\"", directory.version());
    if let Some(reply) = unchanged(context, &tag) {
        return Ok(reply);
    }
    let mut body = head(context, "single_virtual_host");
    body["original_vhost_name"] = json!(vhost.name);
    body["metadata"] = metadata(vhost);
    body["description"] = json!(vhost.metadata.description);
    body["default_queue_type"] =
        json!(vhost.metadata.default_queue_type.map_or("classic", |kind| kind.name()));
    body["limits"] = json!(super::limits::of_vhost(vhost));
    body["parameters"] = parameters_of(&directory, vhost, false).into();
    body["policies"] = policies_of(&directory, vhost, false).into();
    let text = text(&directory, &body, &[vhost], false);
    drop(directory);
    give(context, text, tag)
}

/// The file in a body: the body itself, or the part of a form that is called `file`.
fn file(body: &[u8]) -> Result<&str, Failure> {
    let text = Importer::text(body)
        .map_err(|error| Failure::bad_request(format!("the definitions are {error}")))?;
    let text = text.trim_start();
    if !text.starts_with("--") {
        return Ok(text);
    }
    // A form in parts: what stands between its braces is the only object in it.
    let (start, end) = (text.find("\r\n\r\n{"), text.rfind('}'));
    match (start, end) {
        (Some(start), Some(end)) if start + 4 < end => Ok(&text[start + 4..=end]),
        _ => Err(Failure::bad_request("the form has no part with definitions in JSON")),
    }
}

/// Whether the queue or exchange that a request declares exists: then it stays as it is.
fn is_declared(directory: &Directory, request: &Request) -> bool {
    let found = |vhost: &VhostRef| match vhost {
        VhostRef::Id(id) => Some(*id),
        VhostRef::Name(name) => directory.vhost(name),
    };
    match request {
        Request::DeclareQueue { vhost, name, .. } => {
            found(vhost).is_some_and(|vhost| directory.queue(vhost, name).is_some())
        }
        Request::DeclareExchange { vhost, name, .. } => {
            found(vhost).is_some_and(|vhost| directory.exchange(vhost, name).is_some())
        }
        _ => false,
    }
}

fn carry_out(context: &Context<'_>, vhost: Option<&str>) -> Result<Reply, Failure> {
    let importer = Importer {
        shards: context.api.broker.shards(),
        user: context.login.name().to_owned(),
        vhost: vhost.unwrap_or("/").to_owned(),
    };
    let read = match vhost {
        Some(_) => importer.read_for_vhost(file(&context.request.body)?),
        None => importer.read(file(&context.request.body)?),
    };
    let definitions = read.map_err(|error| Failure::bad_request(error.to_string()))?;
    let steps = {
        let directory = context.directory();
        let is_there = |request: &Request| is_declared(&directory, request);
        let steps = definitions.requests.into_iter().filter(|step| !is_there(&step.request));
        steps.map(|step| (step.path, step.request)).collect::<Vec<_>>()
    };
    let (paths, requests): (Vec<String>, Vec<Request>) = steps.into_iter().unzip();
    let results = context.api.broker.change_all(requests).map_err(Failure::unavailable)?;
    let mut refused: Vec<String> = paths
        .iter()
        .zip(results)
        .filter_map(|(path, result)| {
            result.err().map(|refusal| format!("{path}: {}", refusal.reply()))
        })
        .collect();
    context.catch_up();
    if refused.is_empty() {
        return Ok(Reply::done());
    }
    let more = refused.len().saturating_sub(20);
    refused.truncate(20);
    if more > 0 {
        refused.push(format!("and {more} more"));
    }
    Err(Failure::bad_request(format!("not everything could be applied: {}", refused.join("; "))))
}

/// `POST /definitions`
pub(crate) fn import(context: &Context<'_>) -> Result<Reply, Failure> {
    carry_out(context, None)
}

/// `POST /definitions/{v}`
pub(crate) fn import_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    if context.directory().vhost(context.name(0)).is_none() {
        return Err(Failure::vhost_not_found());
    }
    carry_out(context, Some(context.name(0)))
}
