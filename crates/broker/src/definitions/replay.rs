//! The records of the definitions log on their way into a directory.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use lepus_base::{HashState, Position, QueueId};
use lepus_store::place::generation;

use crate::directory::codec::{self, DecodeError};
use crate::directory::{Change, Directory};

/// Version of the records.
pub(super) const VERSION: u8 = 1;
pub(super) const CHANGES: u8 = 1;
pub(super) const SNAPSHOT_BEGIN: u8 = 2;
pub(super) const SNAPSHOT_PART: u8 = 3;
pub(super) const SNAPSHOT_END: u8 = 4;

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryError {
    /// A record was written by a later version.
    Version(u8),
    /// A record is of a kind that this version does not know, or has no kind.
    Kind,
    /// A record's changes cannot be read.
    Changes(Position, DecodeError),
    /// A snapshot has another number of changes than its end says.
    Snapshot,
    /// A pattern of a permission does not compile any more.
    Pattern(String),
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::Version(version) => {
                write!(f, "it has records of version {version}; this program knows {VERSION}")
            }
            RecoveryError::Kind => f.write_str("it has a record of an unknown kind"),
            RecoveryError::Changes(at, error) => {
                write!(f, "the record at position {:#x} has {error}", at.0)
            }
            RecoveryError::Snapshot => f.write_str("a snapshot in it is not whole"),
            RecoveryError::Pattern(user) => {
                write!(f, "a permission of user '{user}' is no pattern that this program takes")
            }
        }
    }
}

/// A record: where it is and what it says.
pub type Record = (Position, Vec<u8>);

/// What the records of a log amount to.
pub(super) struct Read {
    pub(super) directory: Directory,
    /// Ids that the log has and that nothing has any more, in growing order.
    pub(super) deleted: Vec<QueueId>,
    /// Where the last whole snapshot begins.
    pub(super) snapshot: Option<Position>,
    /// Bytes of its parts.
    pub(super) snapshot_bytes: u64,
    /// Bytes of all records from there on.
    pub(super) bytes: u64,
    /// Segments in which these are.
    pub(super) segments: u64,
}

impl Read {
    /// # Errors
    /// Records that no log has.
    pub(super) fn new(
        records: &[Record],
        hash: HashState,
        shards: u16,
    ) -> Result<Read, RecoveryError> {
        let snapshot = last_snapshot(records);
        let (before, behind) = records.split_at(snapshot.unwrap_or(0));
        let mut ids = Vec::new();
        for (at, record) in before {
            for change in codec::decode_each(taken_apart(record)?.1, shards) {
                let change = change.map_err(|error| RecoveryError::Changes(*at, error))?;
                note_ids(&change, &mut ids);
            }
        }
        let begins_with_snapshot =
            behind.first().is_some_and(|(_, record)| kind(record) == Some(SNAPSHOT_BEGIN));
        let queues = behind.iter().map(|(_, record)| queues_about(record)).sum();
        let mut replay = Replay {
            directory: Directory::new(hash, shards),
            hash,
            queues,
            shards,
            has_base: !begins_with_snapshot,
            snapshot: None,
            snapshot_bytes: 0,
            ids,
        };
        if replay.has_base {
            replay.directory.prepare(queues);
        }
        let (mut bytes, mut segments, mut last) = (0, 0, None);
        for (at, record) in behind {
            bytes += record.len() as u64;
            segments += u64::from(last.replace(generation(*at)) != Some(generation(*at)));
            replay.record(*at, record)?;
        }
        replay.end()?;
        let Replay { directory, snapshot_bytes, mut ids, .. } = replay;
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|&id| directory.queue_by_id(id).is_none() && directory.holding(id).is_none());
        let snapshot = snapshot.map(|index| records[index].0);
        Ok(Read { directory, deleted: ids, snapshot, snapshot_bytes, bytes, segments })
    }
}

/// The kind of a record that this version knows.
fn kind(record: &[u8]) -> Option<u8> {
    taken_apart(record).ok().map(|(kind, _)| kind)
}

/// A record's kind and the changes in it; none in the beginning and the end of a snapshot.
pub(super) fn taken_apart(record: &[u8]) -> Result<(u8, &[u8]), RecoveryError> {
    match record {
        [VERSION, kind @ (CHANGES | SNAPSHOT_PART), payload @ ..] => Ok((*kind, payload)),
        [VERSION, kind @ (SNAPSHOT_BEGIN | SNAPSHOT_END), ..] => Ok((*kind, &[])),
        [VERSION, ..] | [_] | [] => Err(RecoveryError::Kind),
        [version, ..] => Err(RecoveryError::Version(*version)),
    }
}

/// About how many queues a record declares.
fn queues_about(record: &[u8]) -> usize {
    match taken_apart(record) {
        // It has one decision, with what that entails.
        Ok((CHANGES, changes)) => usize::from(codec::begins_with_queue(changes)),
        Ok((_, changes)) => codec::queues_about(changes),
        Err(_) => 0,
    }
}

/// The index of the record with which the last snapshot begins that has ended.
fn last_snapshot(records: &[Record]) -> Option<usize> {
    let (mut begun, mut whole) = (None, None);
    for (index, (_, record)) in records.iter().enumerate() {
        match kind(record) {
            Some(SNAPSHOT_BEGIN) => begun = Some(index),
            Some(SNAPSHOT_PART) => {}
            Some(SNAPSHOT_END) => whole = begun.take().or(whole),
            _ => begun = None,
        }
    }
    whole
}

/// The ids that a change gives or takes.
fn note_ids(change: &Change, ids: &mut Vec<QueueId>) {
    ids.extend(change.used_id());
    if let Change::QueueDeleted { id } | Change::QueueMoved { id, .. } = change {
        ids.push(*id);
    }
}

struct Replay {
    directory: Directory,
    hash: HashState,
    shards: u16,
    /// About how many queues the records declare.
    queues: usize,
    /// What the records make is all there is: reading began with the log, or a snapshot has ended.
    has_base: bool,
    /// A snapshot that is not complete yet, with the number and bytes of its changes.
    snapshot: Option<(Directory, u64, u64)>,
    snapshot_bytes: u64,
    /// Every id that a change names.
    ids: Vec<QueueId>,
}

impl Replay {
    fn record(&mut self, at: Position, record: &[u8]) -> Result<(), RecoveryError> {
        let (kind, payload) = taken_apart(record)?;
        match kind {
            CHANGES => {
                // The snapshot was given up: it would have ended otherwise.
                self.end()?;
                for change in codec::decode_each(payload, self.shards) {
                    replay(&mut self.directory, at, change, &mut self.ids)?;
                }
            }
            SNAPSHOT_BEGIN => {
                let mut directory = Directory::new(self.hash, self.shards);
                directory.prepare(self.queues);
                self.snapshot = Some((directory, 0, 0));
            }
            SNAPSHOT_PART => {
                let Some((directory, count, bytes)) = &mut self.snapshot else {
                    return Err(RecoveryError::Snapshot);
                };
                *bytes += record.len() as u64;
                for change in codec::decode_each(payload, self.shards) {
                    replay(directory, at, change, &mut self.ids)?;
                    *count += 1;
                }
            }
            _ => match self.snapshot.take() {
                Some((directory, count, bytes)) if count.to_le_bytes() == record[2..] => {
                    self.directory = directory;
                    self.snapshot_bytes = bytes;
                    self.has_base = true;
                }
                _ => return Err(RecoveryError::Snapshot),
            },
        }
        Ok(())
    }

    /// No record of a snapshot follows. One that has not ended does not count, unless there is nothing
    /// else.
    fn end(&mut self) -> Result<(), RecoveryError> {
        self.snapshot = None;
        if self.has_base { Ok(()) } else { Err(RecoveryError::Snapshot) }
    }
}

fn replay(
    directory: &mut Directory,
    at: Position,
    change: Result<Change, DecodeError>,
    ids: &mut Vec<QueueId>,
) -> Result<(), RecoveryError> {
    let change = &change.map_err(|error| RecoveryError::Changes(at, error))?;
    note_ids(change, ids);
    directory.replay(change);
    let is_there = match change {
        Change::PermissionSet { user, vhost, .. } => {
            directory.user(user).is_none_or(|user| user.permission(*vhost).is_some())
        }
        Change::TopicPermissionSet { user, vhost, exchange, .. } => {
            let user = directory.user(user);
            user.is_none_or(|user| user.topic_permission(*vhost, exchange).is_some())
        }
        _ => true,
    };
    match change {
        Change::PermissionSet { user, .. } | Change::TopicPermissionSet { user, .. }
            if !is_there =>
        {
            Err(RecoveryError::Pattern((**user).into()))
        }
        _ => Ok(()),
    }
}
