//! The disk of a simulated process: what its shards ask for is carried out in virtual time.
//!
//! How the disk fails is said where it is made, in [`lepus_store::simulation`]. Here is decided
//! when an operation is carried out: at once, after some time, or not before it is let go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lepus_base::{Instant, Rng};
use lepus_mesh::{Bell, Signal};
use lepus_reactor::files::{self, Failure};
use lepus_store::disk::{Action, Completion, DiskError, LogId, Operation};
use lepus_store::simulation::{Disk, Outage};

/// What a disk was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Operations of any kind.
    pub operations: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Syncs of files, those that belong to a write included.
    pub syncs: u64,
}

impl DiskFigures {
    fn add(&mut self, other: DiskFigures) {
        self.operations += other.operations;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.syncs += other.syncs;
    }
}

/// What lies between a shard and the disk.
#[derive(Debug, Default)]
struct Counter {
    asked: Vec<Operation>,
    ended: Vec<(LogId, Completion)>,
    in_flight: usize,
}

/// A shard's way to the disk. Clones are the same way.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimPort(Arc<Mutex<Counter>>);

impl SimPort {
    fn lock(&self) -> MutexGuard<'_, Counter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl files::Disk for SimPort {
    fn submit(&mut self, operations: &mut Vec<Operation>) {
        let mut counter = self.lock();
        counter.in_flight += operations.len();
        counter.asked.append(operations);
    }

    fn take(&mut self, into: &mut Vec<(LogId, Completion)>) {
        let mut counter = self.lock();
        counter.in_flight -= counter.ended.len();
        into.append(&mut counter.ended);
    }

    fn in_flight(&self) -> usize {
        self.lock().in_flight
    }

    fn take_failures(&mut self, _: &mut Vec<Failure>) {}
}

/// An operation that was not carried out yet.
#[derive(Debug)]
struct Waiting {
    shard: usize,
    operation: Operation,
    due: Instant,
}

/// The disk of a process, and what waits for it.
#[derive(Debug)]
pub(crate) struct SimDisk {
    pub(crate) disk: Disk,
    rng: Rng,
    ports: Vec<(SimPort, Arc<Bell>)>,
    /// In the order in which they were asked for.
    waiting: Vec<Waiting>,
    /// The shortest and the longest time that an operation takes.
    pub(crate) takes: (Duration, Duration),
    /// Everything waits.
    pub(crate) held: bool,
    /// What these logs ask for waits.
    pub(crate) held_logs: BTreeSet<LogId>,
    figures: BTreeMap<LogId, DiskFigures>,
    /// Logs of which a write or sync has failed in the life of this process.
    pub(crate) failed: BTreeSet<LogId>,
    /// Logs for which a file could not be made, or names of files not be made durable, in the life
    /// of this process.
    pub(crate) hindered: BTreeSet<LogId>,
    /// An operation was refused for lack of space, and not all shards have got over that.
    pub(crate) was_full: bool,
    /// The same at any time in the life of this process: what needs much may wait for longer.
    pub(crate) has_been_full: bool,
    /// When a read of a log has failed first in the life of this process.
    unread: BTreeMap<LogId, Instant>,
    /// The time.
    now: Instant,
    /// When the outage began that lasts, and when it ends; both of the last one otherwise.
    pub(crate) outage_time: Option<(Instant, Instant)>,
}

/// The longest time until what failed in an outage is made again.
const RETRY_MAX: Duration = Duration::from_millis(2500);

impl SimDisk {
    /// An empty disk.
    pub(crate) fn new(seed: u64) -> SimDisk {
        SimDisk {
            disk: Disk::new(seed),
            rng: Rng::new(!seed),
            ports: Vec::new(),
            waiting: Vec::new(),
            takes: (Duration::ZERO, Duration::ZERO),
            held: false,
            held_logs: BTreeSet::new(),
            figures: BTreeMap::new(),
            failed: BTreeSet::new(),
            hindered: BTreeSet::new(),
            was_full: false,
            has_been_full: false,
            unread: BTreeMap::new(),
            now: Instant(0),
            outage_time: None,
        }
    }

    /// A way to the disk for each shard of a new process.
    pub(crate) fn connect(&mut self, bells: &[Arc<Bell>]) -> Vec<SimPort> {
        self.ports = bells.iter().map(|bell| (SimPort::default(), Arc::clone(bell))).collect();
        self.ports.iter().map(|(port, _)| port.clone()).collect()
    }

    /// What a log asked for; all logs together without one.
    pub(crate) fn figures(&self, log: Option<LogId>) -> DiskFigures {
        let mut sum = DiskFigures::default();
        for (&found, &figures) in &self.figures {
            if log.is_none_or(|log| log == found) {
                sum.add(figures);
            }
        }
        sum
    }

    /// Operations not carried out.
    pub(crate) fn waiting(&self) -> usize {
        let asked: usize = self.ports.iter().map(|(port, _)| port.lock().asked.len()).sum();
        asked + self.waiting.len()
    }

    /// Carries an operation out, whatever is held: for the start of a process.
    pub(crate) fn run(&mut self, operation: Operation) -> Completion {
        let log = operation.log();
        let mut done = DiskFigures { operations: 1, ..DiskFigures::default() };
        let makes_files = matches!(
            operation.action,
            Action::Create { .. } | Action::Reserve { .. } | Action::SyncDirectory(_)
        );
        match &operation.action {
            Action::Write { sync, .. } => {
                done.writes = 1;
                done.syncs = u64::from(*sync);
            }
            Action::Read { .. } => done.reads = 1,
            Action::Sync(_) | Action::Reload(_) => done.syncs = 1,
            Action::List(_)
            | Action::Create { .. }
            | Action::Reserve { .. }
            | Action::Truncate { .. }
            | Action::Delete(_)
            | Action::SyncDirectory(_) => {}
        }
        self.disk.submit(&mut vec![operation]);
        let completion = self.disk.step().expect("an operation that was submitted ends");
        if done.writes + done.syncs > 0 && completion.result == Err(DiskError::Failed) {
            self.failed.insert(log);
        }
        if makes_files && completion.result == Err(DiskError::Failed) {
            self.hindered.insert(log);
        }
        if done.reads > 0 && completion.result == Err(DiskError::Failed) {
            self.unread.entry(log).or_insert(self.now);
        }
        let is_full = completion.result == Err(DiskError::Full);
        self.was_full |= is_full;
        self.has_been_full |= is_full;
        let bytes = completion.result.unwrap_or(0) as u64;
        done.written_bytes = bytes * done.writes;
        done.read_bytes = bytes * done.reads;
        self.figures.entry(log).or_default().add(done);
        completion
    }

    /// Takes over what shards have asked for.
    fn collect(&mut self, now: Instant) {
        let (least, most) = self.takes;
        let spread = (most.saturating_sub(least)).as_nanos() as u64 + 1;
        for (shard, (port, _)) in self.ports.iter().enumerate() {
            for operation in port.lock().asked.drain(..) {
                let time = least + Duration::from_nanos(self.rng.below(spread));
                self.waiting.push(Waiting { shard, operation, due: now + time });
            }
        }
    }

    fn is_held(&self, waiting: &Waiting) -> bool {
        self.held || self.held_logs.contains(&waiting.operation.log())
    }

    /// When the next operation ends.
    pub(crate) fn next_due(&self) -> Instant {
        let free = self.waiting.iter().filter(|waiting| !self.is_held(waiting));
        free.map(|waiting| waiting.due).min().unwrap_or(Instant::NEVER)
    }

    /// What was asked for so far is due now.
    pub(crate) fn hurry(&mut self) {
        self.waiting.iter_mut().for_each(|waiting| waiting.due = Instant(0));
    }

    /// Carries out what is due, in the order in which it was asked for. Whether anything was.
    pub(crate) fn carry_out(&mut self, now: Instant) -> bool {
        self.now = now;
        self.collect(now);
        let is_due =
            |disk: &SimDisk, waiting: &Waiting| waiting.due <= now && !disk.is_held(waiting);
        let mut busy = false;
        let mut place = 0;
        while place < self.waiting.len() {
            if is_due(self, &self.waiting[place]) {
                self.end(place);
                busy = true;
            } else {
                place += 1;
            }
        }
        busy
    }

    /// Carries out any one operation that is due, if there is one.
    pub(crate) fn carry_out_one(&mut self, now: Instant) -> bool {
        self.now = now;
        self.collect(now);
        let due: Vec<usize> = (0..self.waiting.len())
            .filter(|&place| self.waiting[place].due <= now && !self.is_held(&self.waiting[place]))
            .collect();
        if due.is_empty() {
            return false;
        }
        let place = due[self.rng.below(due.len() as u64) as usize];
        self.end(place);
        true
    }

    fn end(&mut self, place: usize) {
        let Waiting { shard, operation, .. } = self.waiting.remove(place);
        let log = operation.log();
        let completion = self.run(operation);
        let (port, bell) = &self.ports[shard];
        port.lock().ended.push((log, completion));
        bell.post(Signal::Disk);
        bell.ring();
    }

    /// The process is gone. What was under way has happened or not; what was written and not
    /// synced is kept unless the power fails.
    pub(crate) fn disconnect(&mut self, power_fails: bool) {
        self.collect(Instant(0));
        let mut under_way = self.waiting.drain(..).map(|waiting| waiting.operation).collect();
        self.disk.submit(&mut under_way);
        if power_fails {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        self.ports.clear();
        self.held = false;
        self.held_logs.clear();
        self.failed.clear();
        self.hindered.clear();
        self.was_full = false;
        self.has_been_full = false;
        self.unread.clear();
        self.now = Instant(0);
        self.outage_time = None;
    }

    /// Operations of a kind fail, or have not all been made again since they did.
    pub(crate) fn has_outage(&self, now: Instant) -> bool {
        let is_recent =
            |(_, end): (Instant, Instant)| end == Instant::NEVER || now < end + RETRY_MAX;
        // Nobody may have looked since its time was over.
        self.disk.outage != Outage::default() || self.outage_time.is_some_and(is_recent)
    }

    /// All operations work again.
    pub(crate) fn end_outage(&mut self, now: Instant) {
        let was_out = std::mem::take(&mut self.disk.outage) != Outage::default();
        if let Some((_, end)) = self.outage_time.as_mut().filter(|_| was_out) {
            *end = now;
        }
    }

    /// Logs of which a read has failed so long ago: it may have done so ever since, although others have
    /// worked meanwhile.
    pub(crate) fn unread(&self, now: Instant, limit: Duration) -> impl Iterator<Item = &LogId> {
        let of_these = self.unread.iter();
        of_these.filter(move |(_, since)| now.since(**since) >= limit).map(|(log, _)| log)
    }

    /// Whether shards have still to hear how operations ended.
    pub(crate) fn has_news(&self) -> bool {
        self.ports.iter().any(|(port, _)| !port.lock().ended.is_empty())
    }
}
