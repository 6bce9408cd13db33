//! The start from what is on disk, the same for the program and for the simulator: the definitions are read first, by a
//! [`Draft`](crate::definitions::Draft); the logs of messages are shared out to the shards; then each shard's broker
//! takes over what exists and reads its logs. Nobody is served before all of them are ready.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{Now, ShardId};
use lepus_store::disk::{Completion, LogId, Operation};

use crate::broker::Broker;
use crate::definitions::{DefinitionsLog, LOG};
use crate::directory::Directory;
use crate::journal::{Recovery, RefusedLog};
use crate::outbox::Outbox;

/// Cycles for what is prepared before the first connection is served.
const PREPARING_CYCLES_MAX: usize = 64;

/// What a start needs of a disk. Its calls block: nobody is kept waiting.
pub trait StartDisk {
    /// Carries an operation out.
    fn run(&mut self, operation: Operation) -> Completion;

    /// Removes the files of a log that nobody needs. One that stays is found at the next start, as it is now.
    fn remove(&mut self, log: LogId);

    /// The time.
    fn now(&self) -> Now;
}

/// What a shard found in its logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Queues whose home it is.
    pub queues: u64,
    /// Messages in them.
    pub messages: u64,
    /// Logs that were not closed in order.
    pub unclean: usize,
}

impl Found {
    /// Adds what another shard found.
    pub fn add(&mut self, other: Found) {
        self.queues += other.queues;
        self.messages += other.messages;
        self.unclean += other.unclean;
    }
}

/// Why a shard's logs cannot be used.
#[derive(Debug)]
pub enum StartError {
    /// One of them cannot. Nothing was changed.
    Refused(Box<RefusedLog>),
    /// They were not read to their end.
    Unfinished,
}

/// The log of a shard's own, to which its new queues go. The first of all logs is that of the definitions.
#[must_use]
pub fn own_log(shard: ShardId) -> LogId {
    LogId(1 + u32::from(shard.0))
}

/// The logs of messages by shard, its own first. A log belongs to the shard whose number remains when its own is divided
/// by the number of shards: where there are fewer than in an earlier run, a shard drives several. `found` are those that
/// are there.
#[must_use]
pub fn share_logs(found: impl IntoIterator<Item = LogId>, shards: u16) -> Vec<Vec<LogId>> {
    let mut found: Vec<LogId> = found.into_iter().filter(|log| *log != LOG).collect();
    found.sort_unstable();
    let mut logs: Vec<Vec<LogId>> =
        (0..shards).map(|shard| Vec::from([own_log(ShardId(shard))])).collect();
    for log in found {
        let of_shard = &mut logs[((log.0 - 1) % u32::from(shards)) as usize];
        if !of_shard.contains(&log) {
            of_shard.push(log);
        }
    }
    logs
}

/// Gives a new broker everything that exists, and, where there is a disk, has it read its logs, which may take a while. Shard 0 gets the log of the definitions. `out` has what is to be told and done afterwards. Who may log in
/// and how is set later.
///
/// # Errors
/// When a log cannot be used.
pub fn start(
    broker: &mut Broker,
    directory: Directory,
    definitions: Option<DefinitionsLog>,
    now: Now,
    disk: Option<&mut impl StartDisk>,
    out: &mut Outbox,
) -> Result<Found, StartError> {
    let shards = broker.shard.settings().shards;
    // Nobody is connected: what it causes concerns this shard alone.
    assert!(broker.directory.object_count() == 0, "nothing was declared before");
    let limits = &broker.shard.settings().limits;
    broker.directory = directory;
    broker.directory.settle(limits.capacity, limits.bindings_at_once);
    broker.shard.tracing.follow_all(&broker.directory);
    broker.home().make_homes(now, &mut Outbox::new(shards));
    if let Some(log) = definitions {
        broker.definitions.take_log(log);
    }
    if let Some(disk) = disk {
        read_logs(broker, disk, out)?;
    }
    let mut found = Found { unclean: broker.journal.figures().unclean, ..Found::default() };
    for (_, queue) in broker.homes.queues() {
        found.queues += 1;
        found.messages += queue.ready();
    }
    Ok(found)
}

/// Opens the logs and waits until they can be used. A log of a shard that is gone is removed if nobody needs it.
fn read_logs(
    broker: &mut Broker,
    disk: &mut impl StartDisk,
    out: &mut Outbox,
) -> Result<(), StartError> {
    broker.home().open_stores(disk.now(), out);
    let mut cycles = 0;
    while !out.disk.list.is_empty() {
        while !out.disk.list.is_empty() {
            for operation in core::mem::take(&mut out.disk.list) {
                let log = operation.log();
                let completion = disk.run(operation);
                broker.disk_done(disk.now(), log, completion, out);
            }
            if let Recovery::Refused(refused) = broker.journal.recovery() {
                return Err(StartError::Refused(refused));
            }
        }
        // The first message shall find room: segments are prepared one after the other.
        if cycles < PREPARING_CYCLES_MAX {
            cycles += 1;
            broker.flush(disk.now(), out);
        }
    }
    if broker.journal.recovery() != Recovery::Ready {
        return Err(StartError::Unfinished);
    }
    let empty = broker.view().empty_logs();
    broker.journal.give_up(&empty);
    for log in empty {
        disk.remove(log);
    }
    Ok(())
}

impl StartError {
    /// In words, for whoever knows no more of the disk.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            StartError::Refused(refused) => format!("{refused:?}"),
            StartError::Unfinished => "the logs are not read to their end".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(found: &[u32], shards: u16) -> Vec<Vec<u32>> {
        let logs = share_logs(found.iter().map(|number| LogId(*number)), shards);
        logs.iter().map(|of_shard| of_shard.iter().map(|log| log.0).collect()).collect()
    }

    #[test]
    fn logs_of_shards_that_are_gone_are_driven_by_those_that_are_left() {
        assert_eq!(numbers(&[], 2), [[1], [2]]);
        assert_eq!(numbers(&[0, 5, 1, 3], 2), [&[1, 3, 5][..], &[2]]);
        assert_eq!(numbers(&[0, 5, 1, 3], 1), [[1, 3, 5]]);
        assert_eq!(numbers(&[0, 1, 3, 5], 3), [&[1][..], &[2, 5], &[3]]);
    }
}
