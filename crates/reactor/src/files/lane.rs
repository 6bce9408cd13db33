//! Operations on their way to threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use lepus_store::disk::Operation;

/// A queue for one thread or several, which sleep while it is empty.
#[derive(Debug, Default)]
pub(super) struct Lane {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    operations: VecDeque<Operation>,
    is_closed: bool,
    /// Threads that sleep and were not woken.
    asleep: usize,
}

impl Lane {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts operations in; `operations` is left empty, with room for the next ones.
    pub(super) fn put(&self, operations: &mut Vec<Operation>) {
        if operations.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        let wakes = waiting.asleep.min(operations.len());
        waiting.asleep -= wakes;
        waiting.operations.extend(operations.drain(..));
        drop(waiting);
        for _ in 0..wakes {
            self.more.notify_one();
        }
    }

    /// Takes those that wait into the empty `into`, but no more than `most`; sleeps until there are some.
    /// False when the lane is closed and empty.
    pub(super) fn take(&self, into: &mut VecDeque<Operation>, most: usize) -> bool {
        let mut waiting = self.waiting();
        loop {
            if !waiting.operations.is_empty() {
                if waiting.operations.len() <= most {
                    std::mem::swap(&mut waiting.operations, into);
                } else {
                    into.extend(waiting.operations.drain(..most));
                }
                return true;
            }
            if waiting.is_closed {
                return false;
            }
            waiting.asleep += 1;
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing will be put in any more.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_store::disk::{Action, LogId, OperationId};
    use std::sync::Arc;

    fn operations(count: u64) -> Vec<Operation> {
        let action = || Action::SyncDirectory(LogId(1));
        (0..count).map(|id| Operation { id: OperationId(id), action: action() }).collect()
    }

    fn taken(lane: &Lane, most: usize) -> Vec<u64> {
        let mut found = VecDeque::new();
        lane.take(&mut found, most).then(|| found.iter().map(|one| one.id.0).collect()).unwrap()
    }

    #[test]
    fn who_takes_one_leaves_the_others_to_the_next() {
        let lane = Lane::default();
        lane.put(&mut operations(3));
        assert_eq!(taken(&lane, 1), [0]);
        assert_eq!(taken(&lane, 1), [1]);
        lane.put(&mut operations(2));
        assert_eq!(taken(&lane, usize::MAX), [2, 0, 1]);
        lane.close();
        assert!(!lane.take(&mut VecDeque::new(), 1));
    }

    #[test]
    fn as_many_threads_are_woken_as_there_are_operations() {
        let (lane, count) = (Arc::new(Lane::default()), 4);
        // Each keeps what it took until all have something: one that was not woken would be missed.
        let all = Arc::new(std::sync::Barrier::new(count));
        let threads = (0..count).map(|_| {
            let (lane, all) = (Arc::clone(&lane), Arc::clone(&all));
            std::thread::spawn(move || {
                let mut found = VecDeque::new();
                assert!(lane.take(&mut found, 1));
                all.wait();
                found.len()
            })
        });
        let threads: Vec<_> = threads.collect();
        lane.put(&mut operations(count as u64));
        let found: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(found, count);
    }
}
