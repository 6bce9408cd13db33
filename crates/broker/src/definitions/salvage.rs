//! What can be kept of a definitions log that is damaged: everything that some record says, also
//! where the snapshot that it belongs to is not whole.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use lepus_base::{HashState, Position, QueueId, VhostId};

use super::log::PART_BYTES;
use super::replay::{
    CHANGES, Read, Record, RecoveryError, SNAPSHOT_BEGIN, SNAPSHOT_END, SNAPSHOT_PART, VERSION,
    taken_apart,
};
use crate::binding::Destination;
use crate::directory::codec::{self, DecodeError};
use crate::directory::{Change, Directory, Extent};

/// What was kept of a log, and what is known of the rest.
#[derive(Debug)]
pub struct Salvaged {
    /// All that could be read.
    pub directory: Directory,
    /// Queues, exchanges, bindings and virtual hosts that stand in damaged records: they are in
    /// the directory, and somebody should look whether they are right. One sentence each.
    pub doubtful: Vec<String>,
    /// What is known to be missing, one sentence each.
    pub missing: Vec<String>,
}

/// Whether the records of a log make a directory, as a start reads them; `hash` keys its maps.
///
/// # Errors
/// Why they do not.
pub fn check(records: &[Record], hash: HashState, shards: u16) -> Result<Directory, RecoveryError> {
    Ok(Read::new(records, hash, shards)?.directory)
}

/// Takes what can be had from a log's records and from what is left of those that are not whole,
/// in the order of their positions. `hash` keys the maps of the directory, as at a start.
///
/// Users, permissions, policies and parameters are taken from whole records only: a wrong bit must not let anybody in,
/// nor have messages dropped.
///
/// # Errors
/// A record of another version.
pub fn salvage(
    records: &[Record],
    torn: &[Record],
    hash: HashState,
    shards: u16,
) -> Result<Salvaged, RecoveryError> {
    let mut all: Vec<(&Record, bool)> = records.iter().map(|record| (record, true)).collect();
    all.extend(torn.iter().map(|record| (record, false)));
    all.sort_by_key(|(record, _)| record.0);
    let mut work = Work::new(hash, shards);
    for ((at, record), is_whole) in all {
        if is_whole { work.whole(*at, record)? } else { work.torn(record) }
    }
    work.merge();
    Ok(work.finish())
}

/// The records of a snapshot that says what a directory has and survives a restart.
#[must_use]
pub fn snapshot(directory: &Directory) -> Vec<Vec<u8>> {
    let ids = Change::IdsUsed { vhosts: 0, queues: directory.next_queue() };
    let changes = directory.snapshot(Extent::Durable);
    let count = changes.len() as u64 + 1;
    let mut records = alloc::vec![alloc::vec![VERSION, SNAPSHOT_BEGIN]];
    let mut part = alloc::vec![VERSION, SNAPSHOT_PART];
    for change in core::iter::once(&ids).chain(&changes) {
        codec::encode(change, &mut part);
        if part.len() >= PART_BYTES {
            records.push(core::mem::replace(&mut part, alloc::vec![VERSION, SNAPSHOT_PART]));
        }
    }
    if part.len() > 2 {
        records.push(part);
    }
    let mut end = alloc::vec![VERSION, SNAPSHOT_END];
    end.extend_from_slice(&count.to_le_bytes());
    records.push(end);
    records
}

/// A directory on its way.
struct Work {
    hash: HashState,
    shards: u16,
    directory: Directory,
    /// A snapshot that has begun, and the number of its changes.
    open: Option<(Directory, u64)>,
    /// What damaged records seem to say.
    doubtful: Vec<Change>,
    deleted: BTreeSet<QueueId>,
    /// What whole changes refer to.
    named: BTreeSet<Named>,
}

impl Work {
    fn new(hash: HashState, shards: u16) -> Work {
        Work {
            hash,
            shards,
            directory: Directory::new(hash, shards),
            open: None,
            doubtful: Vec::new(),
            deleted: BTreeSet::new(),
            named: BTreeSet::new(),
        }
    }

    fn whole(&mut self, at: Position, record: &[u8]) -> Result<(), RecoveryError> {
        let (kind, payload) = taken_apart(record)?;
        let failed = |error: DecodeError| RecoveryError::Changes(at, error);
        match kind {
            CHANGES => {
                self.merge();
                for change in codec::decode_each(payload, self.shards) {
                    let change = change.map_err(failed)?;
                    if let Change::QueueDeleted { id } | Change::QueueMoved { id, .. } = change {
                        self.deleted.insert(id);
                    }
                    self.note(&change);
                    self.directory.replay(&change);
                }
            }
            SNAPSHOT_BEGIN => {
                self.merge();
                self.open = Some((Directory::new(self.hash, self.shards), 0));
            }
            SNAPSHOT_PART => {
                let fresh = || (Directory::new(self.hash, self.shards), 0);
                let (mut directory, mut count) = self.open.take().unwrap_or_else(fresh);
                for change in codec::decode_each(payload, self.shards) {
                    let change = change.map_err(failed)?;
                    self.note(&change);
                    directory.replay(&change);
                    count += 1;
                }
                self.open = Some((directory, count));
            }
            _ => match self.open.take() {
                Some((directory, count)) if count.to_le_bytes() == record[2..] => {
                    // All before it is said again.
                    self.directory = directory;
                    self.doubtful.clear();
                    self.named.clear();
                }
                open => {
                    self.open = open;
                    self.merge();
                }
            },
        }
        Ok(())
    }

    /// Whatever a change refers to was there then, unless it is said later that it went.
    fn note(&mut self, change: &Change) {
        match change {
            Change::QueueDeleted { id } => {
                let info = self.directory.queue_by_id(*id);
                let name = info.map(|info| Named::Queue(info.vhost, info.name().into()));
                name.map(|name| self.named.remove(&name));
            }
            Change::ExchangeDeleted { vhost, name } => {
                self.named.remove(&Named::Exchange(*vhost, name.to_string()));
            }
            Change::UserDeleted { name } => {
                self.named.remove(&Named::User(name.to_string()));
            }
            Change::VhostDeleted { id } => self.named.retain(|name| {
                !matches!(name, Named::Queue(vhost, _) | Named::Exchange(vhost, _) if vhost == id)
            }),
            _ => self.named.extend(Named::of(change)),
        }
    }

    /// What a snapshot has that is not known to be whole existed when it was begun.
    fn merge(&mut self) {
        let Some((directory, _)) = self.open.take() else { return };
        for change in directory.snapshot(Extent::Durable) {
            self.directory.replay(&change);
        }
        self.directory.replay(&Change::IdsUsed { vhosts: 0, queues: directory.next_queue() });
    }

    fn torn(&mut self, record: &[u8]) {
        let Some(payload) = record.get(2..) else { return };
        let changes = codec::decode_each(payload, self.shards).map_while(Result::ok);
        self.doubtful.extend(changes);
    }

    fn finish(self) -> Salvaged {
        let Work { mut directory, doubtful: found, deleted, named, .. } = self;
        let (mut doubtful, mut missing) = (Vec::new(), BTreeSet::new());
        for change in found {
            let is_gone = change.used_id().is_some_and(|id| deleted.contains(&id));
            let Some(text) = description(&directory, &change).filter(|_| !is_gone) else {
                continue;
            };
            let before = size(&directory);
            if !is_account(&change) {
                directory.replay(&change);
            }
            if size(&directory) > before {
                doubtful.push(text);
            } else if !has(&directory, &change) {
                missing.insert(text);
            }
        }
        let lost = named.into_iter().filter_map(|name| name.text_where_missing(&directory));
        missing.extend(lost);
        Salvaged { directory, doubtful, missing: missing.into_iter().collect() }
    }
}

/// What a change names beside what it makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Queue(VhostId, String),
    Exchange(VhostId, String),
    User(String),
}

impl Named {
    fn of(change: &Change) -> Vec<Named> {
        match change {
            Change::Bound(binding) => {
                let source = Named::Exchange(binding.vhost, binding.source.to_string());
                let destination = match &binding.destination {
                    Destination::Queue(name) => Named::Queue(binding.vhost, name.clone()),
                    Destination::Exchange(name) => Named::Exchange(binding.vhost, name.clone()),
                };
                alloc::vec![source, destination]
            }
            Change::PermissionSet { user, .. }
            | Change::TopicPermissionSet { user, .. }
            | Change::UserLimited { name: user, .. } => alloc::vec![Named::User(user.to_string())],
            _ => Vec::new(),
        }
    }

    fn is_in(&self, directory: &Directory) -> bool {
        match self {
            Named::Queue(vhost, name) => directory.queue(*vhost, name).is_some(),
            Named::Exchange(vhost, name) => directory.exchange(*vhost, name).is_some(),
            Named::User(name) => directory.user(name).is_some(),
        }
    }

    fn text_where_missing(&self, directory: &Directory) -> Option<String> {
        (!self.is_in(directory)).then(|| match self {
            Named::Queue(vhost, name) => object(directory, "queue", *vhost, name),
            Named::Exchange(vhost, name) => object(directory, "exchange", *vhost, name),
            Named::User(name) => format!("user '{name}'"),
        })
    }
}

/// How much is there: grows with every queue, exchange, binding and virtual host.
fn size(directory: &Directory) -> usize {
    let vhosts = directory.accounts().vhosts();
    vhosts.len() + directory.object_count() + directory.binding_count()
}

fn object(directory: &Directory, kind: &str, vhost: VhostId, name: &str) -> String {
    match directory.vhost_info(vhost) {
        Some(info) => format!("{kind} '{name}' in virtual host '{}'", info.name),
        None => format!("{kind} '{name}' in virtual host {}, whose name is lost", vhost.0),
    }
}

/// Whether a change is about users and what they may do, or about policies and parameters.
fn is_account(change: &Change) -> bool {
    !matches!(
        change,
        Change::QueueDeclared(_)
            | Change::ExchangeDeclared(_)
            | Change::VhostCreated { .. }
            | Change::Bound(_)
    )
}

/// What a change makes, in words; nothing for one that takes something away or only describes it.
fn description(directory: &Directory, change: &Change) -> Option<String> {
    Some(match change {
        Change::QueueDeclared(info) => object(directory, "queue", info.vhost, info.name()),
        Change::ExchangeDeclared(info) => object(directory, "exchange", info.vhost, &info.name),
        Change::VhostCreated { name, .. } => format!("virtual host '{name}'"),
        Change::Bound(binding) => {
            let (source, key) = (&binding.source, &binding.routing_key);
            let (kind, name) = match &binding.destination {
                Destination::Queue(name) => ("queue", name),
                Destination::Exchange(name) => ("exchange", name),
            };
            format!("binding from exchange '{source}' to {kind} '{name}' with key '{key}'")
        }
        Change::UserPut { name, .. } => format!("user '{name}'"),
        Change::PermissionSet { user, vhost, .. } => {
            format!("permission of user '{user}' in '{}'", directory.vhost_name(*vhost))
        }
        Change::TopicPermissionSet { user, vhost, .. } => {
            format!("topic permission of user '{user}' in '{}'", directory.vhost_name(*vhost))
        }
        Change::PolicySet { vhost, scope, policy } => {
            object(directory, scope.name(), *vhost, policy.name())
        }
        Change::ParameterSet { vhost, component, name, .. } => {
            object(directory, &format!("{component} parameter"), *vhost, name)
        }
        Change::GlobalParameterSet { name, .. } => format!("global parameter '{name}'"),
        _ => return None,
    })
}

/// Whether what a change makes is there.
fn has(directory: &Directory, change: &Change) -> bool {
    match change {
        Change::QueueDeclared(info) => directory.queue(info.vhost, info.name()).is_some(),
        Change::ExchangeDeclared(info) => directory.exchange(info.vhost, &info.name).is_some(),
        Change::VhostCreated { name, .. } => directory.vhost(name).is_some(),
        Change::UserPut { name, .. } => directory.user(name).is_some(),
        Change::PermissionSet { user, vhost, .. } => {
            directory.user(user).is_some_and(|user| user.permission(*vhost).is_some())
        }
        Change::TopicPermissionSet { user, vhost, exchange, .. } => {
            let user = directory.user(user);
            user.is_some_and(|user| user.topic_permission(*vhost, exchange).is_some())
        }
        Change::PolicySet { vhost, scope, policy } => {
            directory.policy(*vhost, *scope, policy.name()).is_some()
        }
        Change::ParameterSet { vhost, component, name, .. } => {
            directory.parameter(*vhost, component, name).is_some()
        }
        Change::GlobalParameterSet { name, .. } => directory.global_parameter(name).is_some(),
        // It was there before if its ends are: it was not added.
        _ => Named::of(change).iter().all(|name| name.is_in(directory)),
    }
}
