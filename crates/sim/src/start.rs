//! What the start of a process, which is the program's own, needs of the simulated disk.

use std::sync::Arc;

use lepus_base::{HashState, Now, QueueId};
use lepus_broker::definitions::{self, DefinitionsLog, Draft};
use lepus_broker::directory::{Change, Directory};
use lepus_broker::start::StartDisk;
use lepus_store::Settings;
use lepus_store::disk::{Completion, LogId, Operation};

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
            applied.map_err(|refusal| refusal.into_reply())?;
        }
    }
    let deleted = draft.deleted().into();
    let named = draft.directory.logs().into_keys().map(|log| LogId(1 + u32::from(log))).collect();
    let (directory, log) = draft.finish(now, &mut run).map_err(|error| error.to_string())?;
    Ok(Definitions { log, directory, deleted, named })
}

/// The logs that are there, or that definitions name: a directory outlives the names in it.
pub(crate) fn found_logs(disk: &SimDisk, named: &[LogId]) -> Vec<LogId> {
    disk.disk.files().map(|(file, _)| file.log()).chain(named.iter().copied()).collect()
}

/// The disk while a process starts.
pub(crate) struct StartingDisk<'a> {
    pub(crate) disk: &'a mut SimDisk,
    pub(crate) now: Now,
}

impl StartDisk for StartingDisk<'_> {
    fn run(&mut self, operation: Operation) -> Completion {
        self.disk.run(operation)
    }

    fn remove(&mut self, log: LogId) {
        self.disk.disk.remove_log(log);
    }

    fn now(&self) -> Now {
        self.now
    }
}
