//! Durable changes as bytes, for the definitions log. `docs/definitions.md` has the format byte by
//! byte.
//!
//! Decoding trusts nothing: every length is checked against what is there before anything is
//! allocated, and what the encoder would not write is refused.

mod reader;
mod settings;
#[cfg(test)]
mod tests;

use crate::binding::Destination;
use crate::change::{BindingChange, Change};
use crate::exchange::{ExchangeInfo, Wanted};
use crate::queue_info::{Declared, QueueInfo};
use crate::router::Prepared;
use crate::user::{PasswordHash, UserLimits};
use crate::vhost::{VhostLimits, VhostMetadata};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use lepus_base::{QueueId, ShardId, VhostId};
use lepus_queue::{QueueKind, QueueSettings};
use reader::Reader;

const IDS_USED: u8 = 1;
const VHOST_CREATED: u8 = 2;
const VHOST_DESCRIBED: u8 = 3;
const VHOST_LIMITED: u8 = 4;
const VHOST_DELETED: u8 = 5;
const USER_PUT: u8 = 6;
const USER_DELETED: u8 = 7;
const USER_LIMITED: u8 = 8;
const PERMISSION_SET: u8 = 9;
const PERMISSION_CLEARED: u8 = 10;
const TOPIC_PERMISSION_SET: u8 = 11;
const TOPIC_PERMISSION_CLEARED: u8 = 12;
const EXCHANGE_DECLARED: u8 = 13;
const EXCHANGE_DELETED: u8 = 14;
const QUEUE_DECLARED: u8 = 15;
const QUEUE_DELETED: u8 = 16;
const BOUND: u8 = 17;
const UNBOUND: u8 = 18;
const QUEUE_MOVED: u8 = 19;
const DELAYED_EXCHANGE_DECLARED: u8 = 20;
const IN_PARTS: u8 = 21;
const POLICY_SET: u8 = 22;
const POLICY_CLEARED: u8 = 23;
const PARAMETER_SET: u8 = 24;
const PARAMETER_CLEARED: u8 = 25;
const GLOBAL_PARAMETER_SET: u8 = 26;
const GLOBAL_PARAMETER_CLEARED: u8 = 27;

const PROTECTED: u8 = 1;
const HAS_QUEUE_TYPE: u8 = 2;
const TRACING: u8 = 4;
const AUTO_DELETE: u8 = 1;
const INTERNAL: u8 = 2;
const SERVER_NAMED: u8 = 2;
const TO_EXCHANGE: u8 = 1;

/// Why bytes are no changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A change of a kind that this version does not know.
    Tag(u8),
    /// They end inside a change.
    Short,
    /// A text is not UTF-8, a table is malformed, or a field has a value that it cannot have.
    Field(&'static str),
    /// This version refuses the arguments, in words.
    Refused(Box<str>),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Tag(tag) => write!(f, "a change of the unknown kind {tag}"),
            DecodeError::Short => f.write_str("a change that is cut off"),
            DecodeError::Field(field) => write!(f, "a change with an impossible {field}"),
            DecodeError::Refused(text) => write!(f, "a change that is refused: {text}"),
        }
    }
}

/// Appends a change. Exchanges, queues and the ends of bindings are taken to be durable.
pub fn encode(change: &Change, out: &mut Vec<u8>) {
    match change {
        Change::IdsUsed { vhosts, queues } => {
            out.push(IDS_USED);
            out.extend_from_slice(&vhosts.to_le_bytes());
            out.extend_from_slice(&queues.to_le_bytes());
        }
        Change::ExchangeDeclared(info) => {
            match info.holding {
                Some(id) => {
                    out.push(DELAYED_EXCHANGE_DECLARED);
                    out.extend_from_slice(&id.0.to_le_bytes());
                }
                None => out.push(EXCHANGE_DECLARED),
            }
            put_vhost(out, info.vhost);
            put_name(out, &info.name);
            put_name(out, info.kind_name());
            out.push(flag(info.auto_delete, AUTO_DELETE) | flag(info.internal, INTERNAL));
            info.arguments.as_ref().encode(out);
        }
        Change::ExchangeDeleted { vhost, name } => {
            out.push(EXCHANGE_DELETED);
            put_vhost(out, *vhost);
            put_name(out, name);
        }
        Change::QueueDeclared(info) => {
            out.push(QUEUE_DECLARED);
            out.extend_from_slice(&info.id.0.to_le_bytes());
            put_vhost(out, info.vhost);
            put_name(out, info.name());
            out.extend_from_slice(&info.log.to_le_bytes());
            out.push(flag(info.auto_delete, AUTO_DELETE) | flag(info.server_named, SERVER_NAMED));
            info.arguments().encode(out);
            put_name(out, info.user());
        }
        Change::QueueDeleted { id } => {
            out.push(QUEUE_DELETED);
            out.extend_from_slice(&id.0.to_le_bytes());
        }
        Change::QueueMoved { id, new_id, log } => {
            out.push(QUEUE_MOVED);
            out.extend_from_slice(&id.0.to_le_bytes());
            out.extend_from_slice(&new_id.0.to_le_bytes());
            out.extend_from_slice(&log.to_le_bytes());
        }
        Change::Bound(binding) => put_binding(out, BOUND, binding),
        Change::Unbound(binding) => put_binding(out, UNBOUND, binding),
        Change::VhostCreated { id, name, metadata } => {
            out.push(VHOST_CREATED);
            put_vhost(out, *id);
            put_name(out, name);
            put_metadata(out, metadata);
        }
        Change::VhostDescribed { id, metadata } => {
            out.push(VHOST_DESCRIBED);
            put_vhost(out, *id);
            put_metadata(out, metadata);
        }
        Change::VhostLimited { id, limits } => {
            out.push(VHOST_LIMITED);
            put_vhost(out, *id);
            put_optional(out, limits.connections_max);
            put_optional(out, limits.queues_max);
        }
        Change::VhostDeleted { id } => {
            out.push(VHOST_DELETED);
            put_vhost(out, *id);
        }
        Change::InParts => out.push(IN_PARTS),
        Change::Cleared => unreachable!("no log has a part of what is in it as a whole"),
        Change::PolicySet { .. }
        | Change::PolicyCleared { .. }
        | Change::ParameterSet { .. }
        | Change::ParameterCleared { .. }
        | Change::GlobalParameterSet { .. }
        | Change::GlobalParameterCleared { .. } => settings::encode(change, out),
        _ => encode_account(change, out),
    }
}

fn encode_account(change: &Change, out: &mut Vec<u8>) {
    match change {
        Change::UserPut { name, password, tags } => {
            out.push(USER_PUT);
            put_name(out, name);
            out.push(password.algorithm().number());
            out.push(password.bytes().len() as u8);
            out.extend_from_slice(password.bytes());
            put_texts(out, tags);
        }
        Change::UserDeleted { name } => {
            out.push(USER_DELETED);
            put_name(out, name);
        }
        Change::UserLimited { name, limits } => {
            out.push(USER_LIMITED);
            put_name(out, name);
            put_optional(out, limits.connections_max);
            put_optional(out, limits.channels_max);
        }
        Change::PermissionSet { user, vhost, configure, write, read } => {
            out.push(PERMISSION_SET);
            put_name(out, user);
            put_vhost(out, *vhost);
            for pattern in [configure, write, read] {
                put_text(out, pattern);
            }
        }
        Change::PermissionCleared { user, vhost } => {
            out.push(PERMISSION_CLEARED);
            put_name(out, user);
            put_vhost(out, *vhost);
        }
        Change::TopicPermissionSet { user, vhost, exchange, write, read } => {
            out.push(TOPIC_PERMISSION_SET);
            put_name(out, user);
            put_vhost(out, *vhost);
            for text in [exchange, write, read] {
                put_text(out, text);
            }
        }
        Change::TopicPermissionCleared { user, vhost, exchange } => {
            out.push(TOPIC_PERMISSION_CLEARED);
            put_name(out, user);
            put_vhost(out, *vhost);
            out.push(u8::from(exchange.is_some()));
            if let Some(exchange) = exchange {
                put_text(out, exchange);
            }
        }
        _ => {}
    }
}

/// Reads changes until `bytes` are used up. Queues get the home that belongs to their log where
/// there are `shards` shards. Behind [`DecodeError`], for the first change that is none, nothing
/// follows that makes sense.
pub fn decode_each(
    bytes: &[u8],
    shards: u16,
) -> impl Iterator<Item = Result<Change, DecodeError>> + use<'_> {
    let mut reader = Reader(bytes);
    core::iter::from_fn(move || {
        let is_over = reader.is_empty();
        (!is_over).then(|| decode_one(&mut reader, shards))
    })
}

/// About how many queues changes declare: as many as there would be if all were as long as the first.
pub fn queues_about(bytes: &[u8]) -> usize {
    let mut reader = Reader(bytes);
    if !begins_with_queue(bytes) || decode_one(&mut reader, 1).is_err() {
        return 0;
    }
    bytes.len() / (bytes.len() - reader.0.len()).max(1)
}

/// Whether the first change declares a queue.
pub fn begins_with_queue(bytes: &[u8]) -> bool {
    bytes.first() == Some(&QUEUE_DECLARED)
}

fn decode_one(reader: &mut Reader<'_>, shards: u16) -> Result<Change, DecodeError> {
    Ok(match reader.u8()? {
        IDS_USED => Change::IdsUsed { vhosts: reader.u32()?, queues: reader.u64()? },
        VHOST_CREATED => {
            let (id, name) = (reader.vhost()?, reader.name()?.into());
            Change::VhostCreated { id, name, metadata: metadata(reader)? }
        }
        VHOST_DESCRIBED => {
            Change::VhostDescribed { id: reader.vhost()?, metadata: metadata(reader)? }
        }
        VHOST_LIMITED => {
            let id = reader.vhost()?;
            let connections_max = reader.optional()?;
            let limits = VhostLimits { connections_max, queues_max: reader.optional()? };
            Change::VhostLimited { id, limits }
        }
        VHOST_DELETED => Change::VhostDeleted { id: reader.vhost()? },
        EXCHANGE_DECLARED => Change::ExchangeDeclared(Box::new(exchange(reader)?)),
        DELAYED_EXCHANGE_DECLARED => {
            let holding = Some(QueueId(reader.u64()?));
            let info = exchange(reader)?;
            if !info.delayed {
                return Err(DecodeError::Field("exchange type"));
            }
            Change::ExchangeDeclared(Box::new(ExchangeInfo { holding, ..info }))
        }
        EXCHANGE_DELETED => {
            Change::ExchangeDeleted { vhost: reader.vhost()?, name: reader.name()?.into() }
        }
        QUEUE_DECLARED => Change::QueueDeclared(Arc::new(queue(reader, shards)?)),
        QUEUE_DELETED => Change::QueueDeleted { id: QueueId(reader.u64()?) },
        QUEUE_MOVED => Change::QueueMoved {
            id: QueueId(reader.u64()?),
            new_id: QueueId(reader.u64()?),
            log: reader.u16()?,
        },
        IN_PARTS => Change::InParts,
        BOUND => Change::Bound(Box::new(binding(reader)?)),
        UNBOUND => Change::Unbound(Box::new(binding(reader)?)),
        tag @ POLICY_SET..=GLOBAL_PARAMETER_CLEARED => return settings::decode(tag, reader),
        tag => return account(tag, reader),
    })
}

fn account(tag: u8, reader: &mut Reader<'_>) -> Result<Change, DecodeError> {
    if !(USER_PUT..=TOPIC_PERMISSION_CLEARED).contains(&tag) {
        return Err(DecodeError::Tag(tag));
    }
    let name: Box<str> = reader.name()?.into();
    Ok(match tag {
        USER_PUT => Change::UserPut { name, password: password(reader)?, tags: reader.texts()? },
        USER_DELETED => Change::UserDeleted { name },
        USER_LIMITED => {
            let connections_max = reader.optional()?;
            let limits = UserLimits { connections_max, channels_max: reader.optional()? };
            Change::UserLimited { name, limits }
        }
        PERMISSION_SET => Change::PermissionSet {
            user: name,
            vhost: reader.vhost()?,
            configure: reader.text()?.into(),
            write: reader.text()?.into(),
            read: reader.text()?.into(),
        },
        PERMISSION_CLEARED => Change::PermissionCleared { user: name, vhost: reader.vhost()? },
        TOPIC_PERMISSION_SET => Change::TopicPermissionSet {
            user: name,
            vhost: reader.vhost()?,
            exchange: reader.text()?.into(),
            write: reader.text()?.into(),
            read: reader.text()?.into(),
        },
        _ => {
            let vhost = reader.vhost()?;
            let exchange = match reader.flags(1, "flag")? {
                0 => None,
                _ => Some(reader.text()?.into()),
            };
            Change::TopicPermissionCleared { user: name, vhost, exchange }
        }
    })
}

fn metadata(reader: &mut Reader<'_>) -> Result<VhostMetadata, DecodeError> {
    let flags = reader.flags(PROTECTED | HAS_QUEUE_TYPE | TRACING, "flag")?;
    let description = reader.text()?.into();
    let tags = reader.texts()?;
    let default_queue_type = if flags & HAS_QUEUE_TYPE != 0 {
        let kind = QueueKind::from_name(reader.name()?);
        Some(kind.ok_or(DecodeError::Field("queue type"))?)
    } else {
        None
    };
    let (protected, tracing) = (flags & PROTECTED != 0, flags & TRACING != 0);
    Ok(VhostMetadata { description, tags, default_queue_type, protected, tracing })
}

fn exchange(reader: &mut Reader<'_>) -> Result<ExchangeInfo, DecodeError> {
    let (vhost, name, kind) = (reader.vhost()?, reader.name()?, reader.name()?);
    let flags = reader.flags(AUTO_DELETE | INTERNAL, "flag")?;
    let arguments = reader.table()?;
    let wanted = Wanted {
        name,
        kind,
        durable: true,
        auto_delete: flags & AUTO_DELETE != 0,
        internal: flags & INTERNAL != 0,
        arguments: &arguments,
    };
    ExchangeInfo::parse(wanted, vhost, "").map_err(|refusal| refused(refusal.reply()))
}

fn queue(reader: &mut Reader<'_>, shards: u16) -> Result<QueueInfo, DecodeError> {
    let id = QueueId(reader.u64()?);
    let (vhost, name, log) = (reader.vhost()?, reader.name()?, reader.u16()?);
    let flags = reader.flags(AUTO_DELETE | SERVER_NAMED, "flag")?;
    let arguments = reader.table()?;
    let user = reader.name()?;
    let kind = QueueKind::of(&arguments, QueueKind::Classic, name, "")
        .map_err(|refusal| refused(refusal.reply()))?;
    let settings = QueueSettings::parse(&arguments, kind, name, "")
        .map_err(|refusal| refused(refusal.reply()))?;
    Ok(QueueInfo::new(Declared {
        id,
        vhost,
        name,
        home: ShardId(log % shards.max(1)),
        log,
        durable: true,
        auto_delete: flags & AUTO_DELETE != 0,
        exclusive: None,
        server_named: flags & SERVER_NAMED != 0,
        kind,
        arguments: &arguments,
        settings,
        user,
    }))
}

fn binding(reader: &mut Reader<'_>) -> Result<BindingChange, DecodeError> {
    let (vhost, source) = (reader.vhost()?, reader.name()?.into());
    let to_exchange = reader.flags(TO_EXCHANGE, "flag")? != 0;
    let name = reader.name()?.into();
    let destination =
        if to_exchange { Destination::Exchange(name) } else { Destination::Queue(name) };
    let routing_key = reader.name()?.into();
    let arguments = reader.table()?;
    if !arguments.0.is_sorted_by(|(one, _), (two, _)| one <= two) {
        return Err(DecodeError::Field("order of arguments"));
    }
    let arguments = arguments.to_bytes();
    let filter = Prepared::default();
    Ok(BindingChange { vhost, source, destination, routing_key, arguments, filter })
}

fn password(reader: &mut Reader<'_>) -> Result<PasswordHash, DecodeError> {
    let (algorithm, length) = (reader.u8()?, reader.u8()?);
    let bytes = reader.take(usize::from(length))?;
    PasswordHash::from_bytes(algorithm, bytes).ok_or(DecodeError::Field("password hash"))
}

fn refused(text: &str) -> DecodeError {
    DecodeError::Refused(text.into())
}

fn flag(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

fn put_vhost(out: &mut Vec<u8>, vhost: VhostId) {
    out.extend_from_slice(&vhost.0.to_le_bytes());
}

/// A text of at most 255 bytes, as the checks see to it.
fn put_name(out: &mut Vec<u8>, name: &str) {
    let end = name.floor_char_boundary(255);
    out.push(end as u8);
    out.extend_from_slice(&name.as_bytes()[..end]);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_texts(out: &mut Vec<u8>, texts: &[Box<str>]) {
    out.extend_from_slice(&(texts.len() as u32).to_le_bytes());
    texts.iter().for_each(|text| put_text(out, text));
}

fn put_optional(out: &mut Vec<u8>, value: Option<i64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn put_metadata(out: &mut Vec<u8>, metadata: &VhostMetadata) {
    let kind = metadata.default_queue_type;
    out.push(
        flag(metadata.protected, PROTECTED)
            | flag(kind.is_some(), HAS_QUEUE_TYPE)
            | flag(metadata.tracing, TRACING),
    );
    put_text(out, &metadata.description);
    put_texts(out, &metadata.tags);
    if let Some(kind) = kind {
        put_name(out, kind.name());
    }
}

fn put_binding(out: &mut Vec<u8>, tag: u8, binding: &BindingChange) {
    out.push(tag);
    put_vhost(out, binding.vhost);
    put_name(out, &binding.source);
    let (bit, name) = match &binding.destination {
        Destination::Queue(name) => (0, name),
        Destination::Exchange(name) => (TO_EXCHANGE, name),
    };
    out.push(bit);
    put_name(out, name);
    put_name(out, &binding.routing_key);
    binding.arguments.as_ref().encode(out);
}
