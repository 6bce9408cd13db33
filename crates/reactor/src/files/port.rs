//! The threads that carry a running shard's operations out.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use lepus_store::disk::{Action, Completion, File, LogId, Operation};

use super::Disk;
use super::carry::{Failure, Files};
use super::lane::Lane;

/// Failures kept for the log; further ones say nothing new.
const FAILURES_MAX: usize = 16;

/// What a thread is for. A read never waits for a sync, the log never for files to come, and a new
/// segment never for a long checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// Writes and syncs of segments: what confirms wait for.
    Log,
    /// Reads.
    Read,
    /// Checkpoints: what they write, and what they wait for to be synced.
    Checkpoint,
    /// The rest: new and removed segments, index pages, the directory.
    Upkeep,
}

/// Reads under way at once. One at a time asks less of a disk than it has: docs/decisions/readers.md.
const READERS: usize = 4;

/// What threads are for, what they are called, and how many they are. What changes files has one, which
/// keeps the order of what is asked for.
const DUTIES: [(Duty, &str, usize); 4] = [
    (Duty::Log, "log", 1),
    (Duty::Read, "read", READERS),
    (Duty::Checkpoint, "checkpoint", 1),
    (Duty::Upkeep, "upkeep", 1),
];

impl Duty {
    fn of(action: &Action) -> Duty {
        match action {
            Action::Write { file: File::Segment(..), .. } | Action::Sync(File::Segment(..)) => {
                Duty::Log
            }
            Action::Read { .. } => Duty::Read,
            Action::Write { file: File::Checkpoint(..) | File::Root(_), .. }
            | Action::Reserve { file: File::Checkpoint(..), .. }
            | Action::Delete(File::Checkpoint(..))
            | Action::Sync(File::Checkpoint(..) | File::Root(_) | File::Index(_)) => {
                Duty::Checkpoint
            }
            _ => Duty::Upkeep,
        }
    }
}

/// Threads that serve one shard. They end, after what was submitted, when it is dropped.
#[derive(Debug)]
pub struct FilePort {
    lanes: Vec<Arc<Lane>>,
    /// Operations being sorted, by lane.
    sorted: Vec<Vec<Operation>>,
    done: Arc<Done>,
    in_flight: usize,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads give back.
struct Done {
    ended: Mutex<Ended>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Ended {
    completions: Vec<(LogId, Completion)>,
    failures: Vec<Failure>,
}

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Done").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Done {
    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the shard for the first of what it has not taken yet.
    fn put(&self, log: LogId, completion: Completion, failure: Option<Failure>) {
        let mut ended = self.ended();
        let is_first = ended.completions.is_empty();
        ended.completions.push((log, completion));
        if ended.failures.len() < FAILURES_MAX {
            ended.failures.extend(failure);
        }
        drop(ended);
        if is_first {
            (self.wake)();
        }
    }
}

impl FilePort {
    /// Starts the threads, named after `name`. `wake` is called from them when something ended
    /// that [`Disk::take`] gives.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        name: &str,
        files: &Arc<Files>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<FilePort> {
        let done = Arc::new(Done { ended: Mutex::default(), wake: Box::new(wake) });
        let mut port = FilePort {
            lanes: Vec::new(),
            sorted: Vec::new(),
            done,
            in_flight: 0,
            threads: Vec::new(),
        };
        for (_, purpose, count) in DUTIES {
            let lane = Arc::new(Lane::default());
            port.lanes.push(Arc::clone(&lane));
            port.sorted.push(Vec::new());
            // What one of several has taken waits for it alone.
            let most = if count > 1 { 1 } else { usize::MAX };
            for _ in 0..count {
                let (lane, files) = (Arc::clone(&lane), Arc::clone(files));
                let done = Arc::clone(&port.done);
                let thread = Builder::new().name(format!("{name}-{purpose}"));
                port.threads.push(thread.spawn(move || serve(&lane, most, &files, &done))?);
            }
        }
        Ok(port)
    }
}

/// Ends the process when its thread panics: the shard would wait for ever.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn serve(lane: &Lane, most: usize, files: &Files, done: &Done) {
    let _abort = Abort;
    let _enrolled = lepus_profile::enroll(lepus_profile::Group::Files);
    let mut operations = VecDeque::new();
    while lane.take(&mut operations, most) {
        for operation in operations.drain(..) {
            let log = operation.log();
            let (completion, failure) = files.carry_out(operation);
            done.put(log, completion, failure);
        }
    }
}

impl Disk for FilePort {
    fn submit(&mut self, operations: &mut Vec<Operation>) {
        self.in_flight += operations.len();
        for operation in operations.drain(..) {
            self.sorted[Duty::of(&operation.action) as usize].push(operation);
        }
        for (lane, sorted) in self.lanes.iter().zip(&mut self.sorted) {
            lane.put(sorted);
        }
    }

    fn take(&mut self, into: &mut Vec<(LogId, Completion)>) {
        let mut ended = self.done.ended();
        self.in_flight -= ended.completions.len();
        if into.is_empty() {
            std::mem::swap(&mut ended.completions, into);
        } else {
            into.append(&mut ended.completions);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn take_failures(&mut self, into: &mut Vec<Failure>) {
        into.append(&mut self.done.ended().failures);
    }
}

impl Drop for FilePort {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.close();
        }
        for thread in self.threads.drain(..) {
            // A panic would have ended the process.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_have_several_threads() {
        for (duty, name, count) in DUTIES {
            assert_eq!(count > 1, duty == Duty::Read, "{name}");
        }
    }

    #[test]
    fn no_part_of_a_checkpoint_stands_before_a_new_segment_or_a_read() {
        let log = LogId(1);
        let checkpoint = File::Checkpoint(log, 1);
        let write =
            |file| Action::Write { file, offset: 0, bytes: Arc::default(), start: 0, sync: true };
        let of_checkpoints = [
            write(checkpoint),
            write(File::Root(log)),
            Action::Sync(checkpoint),
            Action::Sync(File::Index(log)),
            Action::Delete(checkpoint),
            Action::Reserve { from: None, file: checkpoint, length: 1 },
        ];
        for action in of_checkpoints {
            assert_eq!(Duty::of(&action), Duty::Checkpoint, "{action:?}");
        }
        let segment = File::Segment(log, 1);
        assert_eq!(Duty::of(&Action::Create { file: segment, length: 1 }), Duty::Upkeep);
        assert_eq!(Duty::of(&Action::SyncDirectory(log)), Duty::Upkeep);
        assert_eq!(Duty::of(&Action::Read { file: segment, offset: 0, length: 1 }), Duty::Read);
        assert_eq!(Duty::of(&write(segment)), Duty::Log);
    }
}
