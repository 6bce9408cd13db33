//! The start of a process from its disk, as the server does it: definitions first, then each
//! shard's logs.

use std::sync::Arc;

use lepus_base::{HashState, Now, QueueId};
use lepus_broker::definitions::{self, DefinitionsLog, Draft};
use lepus_broker::directory::{Change, Directory};
use lepus_broker::{Broker, Outbox, Recovery};
use lepus_store::Settings;
use lepus_store::disk::LogId;

use crate::disk::SimDisk;

/// What the log of definitions says.
pub(crate) struct Definitions {
    pub(crate) log: DefinitionsLog,
    pub(crate) directory: Directory,
    /// What was deleted.
    pub(crate) deleted: Arc<[QueueId]>,
    /// Logs that queues name.
    pub(crate) named: Vec<LogId>,
}

/// Recovers the log of definitions; what it says. `first` goes into an empty one.
pub(crate) fn definitions(
    disk: &mut SimDisk,
    template: Settings,
    (hash, shards): (HashState, u16),
    now: Now,
    first: &[Change],
) -> Result<Definitions, String> {
    // The limit is for messages.
    let settings = Settings { log: definitions::LOG, segments_max: usize::MAX, ..template };
    let mut run = |operation| disk.run(operation);
    let mut draft =
        Draft::open(settings, now, hash, shards, &mut run).map_err(|error| error.to_string())?;
    if draft.is_new() {
        for change in first {
            let applied = draft.apply(now, change, &mut run).map_err(|error| error.to_string())?;
            applied.map_err(|refusal| refusal.text.to_string())?;
        }
    }
    let deleted = draft.deleted().into();
    let named = draft.directory.logs().into_keys().map(|log| LogId(1 + u32::from(log))).collect();
    let (directory, log) = draft.finish(now, &mut run).map_err(|error| error.to_string())?;
    Ok(Definitions { log, directory, deleted, named })
}

/// The logs that shard `index` of `count` drives: its own first, then those of shards that are no
/// more.
pub(crate) fn logs(disk: &SimDisk, named: &[LogId], index: usize, count: usize) -> Vec<LogId> {
    let own = LogId(1 + index as u32);
    let mut found: Vec<LogId> = disk.disk.files().map(|(file, _)| file.log()).collect();
    // A directory outlives the names in it.
    found.extend(named);
    found.retain(|log| {
        let place = log.0.wrapping_sub(1) as usize;
        *log != definitions::LOG && *log != own && place % count == index
    });
    found.sort_unstable();
    found.dedup();
    found.insert(0, own);
    found
}

/// Opens the logs of a broker and waits until they are recovered.
pub(crate) fn open_stores(
    disk: &mut SimDisk,
    broker: &mut Broker,
    now: Now,
    out: &mut Outbox,
) -> Result<(), String> {
    broker.open_stores(now, out);
    while !out.disk.list.is_empty() {
        for operation in std::mem::take(&mut out.disk.list) {
            let log = operation.log();
            let completion = disk.run(operation);
            broker.disk_done(now, log, completion, out);
        }
    }
    match broker.recovery() {
        Recovery::Ready => Ok(()),
        other => Err(format!("shard {}: {other:?}", broker.shard())),
    }
}
