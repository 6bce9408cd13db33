//! Bindings.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::filter;
use super::super::path;
use super::super::request::Reply;
use crate::definitions::table_value;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lepus_amqp::table::{Table, TableBytes, TableRef};
use lepus_base::VhostId;
use lepus_broker::binding::Destination;
use lepus_broker::directory::{BindingInfo, DestinationRef, Directory, Request};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::rc::Rc;

/// The last part of the path of a binding: its key, and for one with arguments a text that stands for them.
pub(crate) fn properties_key(routing_key: &str, arguments: TableRef<'_>) -> String {
    // The escapes of forms: a space is a plus there.
    let key = path::encode(routing_key).replace("%20", "+");
    match (routing_key, arguments.is_empty()) {
        ("", true) => "~".to_owned(),
        (_, true) => key,
        (_, false) => {
            // The arguments are sorted by name, so that equal ones have equal bytes.
            let hash = hash_of(arguments.bytes());
            format!("{key}~{}", URL_SAFE_NO_PAD.encode(hash))
        }
    }
}

/// Tells tables apart; nothing secret is in it.
fn hash_of(bytes: &[u8]) -> [u8; 16] {
    // FNV-1a over two halves: stable from one version to the next, which a hash of the standard library is not.
    let fnv = |basis: u64| {
        bytes
            .iter()
            .fold(basis, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let mut out = [0; 16];
    out[..8].copy_from_slice(&fnv(0xcbf2_9ce4_8422_2325).to_be_bytes());
    out[8..].copy_from_slice(&fnv(0x9ae1_6a3b_2f90_404f).to_be_bytes());
    out
}

fn row(vhost: &str, info: &BindingInfo<'_>) -> Value {
    json!({
        "source": info.source,
        "vhost": vhost,
        "destination": info.destination.name(),
        "destination_type": info.destination.kind(),
        "routing_key": info.routing_key,
        "arguments": table_value(info.arguments),
        "properties_key": properties_key(info.routing_key, info.arguments),
    })
}

/// A binding of a long list: the directory is not held while rows are made of it and read by the client.
struct Item {
    vhost: Rc<str>,
    source: Box<str>,
    destination: Destination,
    routing_key: Box<str>,
    arguments: TableBytes,
}

impl Item {
    fn of(vhost: &Rc<str>, info: &BindingInfo<'_>) -> Item {
        Item {
            vhost: Rc::clone(vhost),
            source: info.source.into(),
            destination: match info.destination {
                DestinationRef::Queue(name) => Destination::Queue(name.into()),
                DestinationRef::Exchange(name) => Destination::Exchange(name.into()),
            },
            routing_key: info.routing_key.into(),
            arguments: info.arguments.to_owned().to_bytes(),
        }
    }

    fn row(&self) -> Value {
        let destination = match &self.destination {
            Destination::Queue(name) => DestinationRef::Queue(name),
            Destination::Exchange(name) => DestinationRef::Exchange(name),
        };
        let info = BindingInfo {
            source: &self.source,
            destination,
            routing_key: &self.routing_key,
            arguments: self.arguments.as_ref(),
        };
        row(&self.vhost, &info)
    }
}

fn listed(context: &Context<'_>, vhost: Option<&str>) -> Result<Reply, Failure> {
    let count = {
        let directory = context.directory();
        directory.binding_count() + directory.object_count()
    };
    // They are copied, also for a page: few may do so at a time.
    context.admit(count)?;
    let items = {
        let directory = context.directory();
        let found = context.vhosts(&directory, vhost)?;
        let ids: Vec<VhostId> = found.iter().map(|info| info.id).collect();
        let names: HashMap<VhostId, Rc<str>> =
            found.into_iter().map(|info| (info.id, (*info.name).into())).collect();
        let item = |(vhost, info): (VhostId, BindingInfo<'_>)| Item::of(&names[&vhost], &info);
        directory.bindings_of(&ids).map(item).collect()
    };
    // They have no name: a filter for names finds none, as with RabbitMQ.
    context.list(items, |_| "", |items| Ok(items.iter().map(Item::row).collect()))
}

/// `GET /bindings`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, None)
}

/// `GET /bindings/{v}`
pub(crate) fn of_vhost(context: &Context<'_>) -> Result<Reply, Failure> {
    listed(context, Some(context.name(0)))
}

/// The rows of the bindings that a function finds in the virtual host of the path. What is not there has none: tools that
/// take down what may be gone already read an empty list as the answer.
fn found(
    context: &Context<'_>,
    find: impl Fn(&Directory, VhostId) -> Vec<Value>,
) -> Result<Vec<Value>, Failure> {
    let directory = context.directory();
    let vhost = context.vhost(&directory, context.name(0))?;
    Ok(find(&directory, vhost))
}

/// `GET /exchanges/{v}/{x}/bindings/source`
pub(crate) fn from_exchange(context: &Context<'_>) -> Result<Reply, Failure> {
    let name = context.exchange_name(1);
    let rows = found(context, |directory, vhost| {
        let all = directory.bindings_from(vhost, name);
        all.map(|info| row(context.name(0), &info)).collect()
    })?;
    context.list_rows(rows)
}

fn to(context: &Context<'_>, destination: DestinationRef<'_>) -> Result<Reply, Failure> {
    let rows = found(context, |directory, vhost| {
        let all = directory.bindings_to(vhost, destination);
        all.map(|info| row(context.name(0), &info)).collect()
    })?;
    context.list_rows(rows)
}

fn check_destination(
    directory: &Directory,
    vhost: VhostId,
    destination: DestinationRef<'_>,
) -> Result<(), Failure> {
    let is_there = match destination {
        DestinationRef::Queue(name) => directory.queue(vhost, name).is_some(),
        DestinationRef::Exchange(name) => directory.exchange(vhost, name).is_some(),
    };
    if is_there { Ok(()) } else { Err(Failure::not_found()) }
}

/// `GET /exchanges/{v}/{x}/bindings/destination`
pub(crate) fn to_exchange(context: &Context<'_>) -> Result<Reply, Failure> {
    to(context, DestinationRef::Exchange(context.exchange_name(1)))
}

/// `GET /queues/{v}/{q}/bindings`
pub(crate) fn to_queue(context: &Context<'_>) -> Result<Reply, Failure> {
    to(context, DestinationRef::Queue(context.name(1)))
}

/// A binding as the directory has it.
struct Found {
    routing_key: String,
    arguments: Table,
    row: Value,
}

/// The bindings between an exchange and what it leads to.
fn between(context: &Context<'_>, destination: DestinationRef<'_>) -> Result<Vec<Found>, Failure> {
    let source = context.exchange_name(1);
    let directory = context.directory();
    let vhost = context.vhost(&directory, context.name(0))?;
    let all = directory.bindings_to(vhost, destination).filter(|info| info.source == source);
    Ok(all
        .map(|info| Found {
            routing_key: info.routing_key.to_owned(),
            arguments: info.arguments.to_owned(),
            row: row(context.name(0), &info),
        })
        .collect())
}

fn list_between(context: &Context<'_>, destination: DestinationRef<'_>) -> Result<Reply, Failure> {
    let rows = between(context, destination)?.into_iter().map(|found| found.row);
    context.list_rows(rows.collect())
}

/// `GET /bindings/{v}/e/{s}/q/{d}`
pub(crate) fn between_exchange_and_queue(context: &Context<'_>) -> Result<Reply, Failure> {
    list_between(context, DestinationRef::Queue(context.name(2)))
}

/// `GET /bindings/{v}/e/{s}/e/{d}`
pub(crate) fn between_exchanges(context: &Context<'_>) -> Result<Reply, Failure> {
    list_between(context, DestinationRef::Exchange(context.exchange_name(2)))
}

/// The binding of which the last part of the path is the key.
fn named(context: &Context<'_>, destination: DestinationRef<'_>) -> Result<Found, Failure> {
    let key = context.name(3);
    let is_named = |found: &Found| {
        let own = &found.row["properties_key"];
        // The path was decoded once, and the key may be escaped once more.
        let own = own.as_str().unwrap_or_default();
        own == key
            || path::decode(&own.replace('+', " ")).is_ok_and(|own| own == key)
            || (found.arguments.is_empty() && found.routing_key == key)
    };
    between(context, destination)?.into_iter().find(is_named).ok_or_else(Failure::not_found)
}

/// `GET /bindings/{v}/e/{s}/q/{d}/{p}`
pub(crate) fn one_to_queue(context: &Context<'_>) -> Result<Reply, Failure> {
    let found = named(context, DestinationRef::Queue(context.name(2)))?;
    Ok(context.object(found.row))
}

/// `GET /bindings/{v}/e/{s}/e/{d}/{p}`
pub(crate) fn one_to_exchange(context: &Context<'_>) -> Result<Reply, Failure> {
    let found = named(context, DestinationRef::Exchange(context.exchange_name(2)))?;
    Ok(context.object(found.row))
}

fn bind(context: &Context<'_>, destination: Destination) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    let source = context.exchange_name(1);
    {
        let directory = context.directory();
        let missing = |kind: &str, name: &str| {
            Failure::missing(format!("no {kind} '{name}' in vhost '{}'", context.name(0)))
        };
        directory.exchange(vhost, source).ok_or_else(|| missing("exchange", source))?;
        let (to, kind, name) = match &destination {
            Destination::Queue(name) => (DestinationRef::Queue(name), "queue", name),
            Destination::Exchange(name) => (DestinationRef::Exchange(name), "exchange", name),
        };
        check_destination(&directory, vhost, to).map_err(|_| missing(kind, name))?;
    }
    let fields = context.fields()?;
    let routing_key = fields.text("routing_key")?.unwrap_or_default();
    if routing_key.len() > 255 {
        return Err(Failure::bad_request("routing_key is longer than 255 bytes"));
    }
    let arguments = fields.table("arguments")?;
    let bound = context.change(Request::Bind {
        vhost: vhost.into(),
        source: source.to_owned(),
        destination,
        routing_key: routing_key.clone(),
        arguments: arguments.clone(),
        connection: None,
    });
    bound.map_err(|failure| filter::with_place(failure, &arguments))?;
    // As the directory keeps them.
    let mut sorted: Vec<_> = arguments.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(b.0));
    let sorted: Table = sorted.into_iter().map(|(name, value)| (name, value.clone())).collect();
    let key = properties_key(&routing_key, sorted.to_bytes().as_ref());
    let end = context.names.last().map_or("", String::as_str);
    // A tilde may stand in a path as it is; the percent signs of the key are escaped once more.
    let key = path::encode(&key).replace("%7E", "~");
    Ok(Reply::empty(201).with("location", format!("{}/{key}", path::encode(end))))
}

/// `POST /bindings/{v}/e/{s}/q/{d}`
pub(crate) fn bind_queue(context: &Context<'_>) -> Result<Reply, Failure> {
    bind(context, Destination::Queue(context.name(2).to_owned()))
}

/// `POST /bindings/{v}/e/{s}/e/{d}`
pub(crate) fn bind_exchange(context: &Context<'_>) -> Result<Reply, Failure> {
    bind(context, Destination::Exchange(context.exchange_name(2).to_owned()))
}

fn unbind(context: &Context<'_>, found: Found, destination: Destination) -> Result<Reply, Failure> {
    let vhost = context.vhost_to_change(context.name(0))?;
    context.change(Request::Unbind {
        vhost: vhost.into(),
        source: context.exchange_name(1).to_owned(),
        destination,
        routing_key: found.routing_key,
        arguments: found.arguments,
        connection: None,
    })?;
    Ok(Reply::done())
}

/// `DELETE /bindings/{v}/e/{s}/q/{d}/{p}`
pub(crate) fn unbind_queue(context: &Context<'_>) -> Result<Reply, Failure> {
    let found = named(context, DestinationRef::Queue(context.name(2)))?;
    unbind(context, found, Destination::Queue(context.name(2).to_owned()))
}

/// `DELETE /bindings/{v}/e/{s}/e/{d}/{p}`
pub(crate) fn unbind_exchange(context: &Context<'_>) -> Result<Reply, Failure> {
    let found = named(context, DestinationRef::Exchange(context.exchange_name(2)))?;
    unbind(context, found, Destination::Exchange(context.exchange_name(2).to_owned()))
}
