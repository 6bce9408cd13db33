//! Operations on their way to a thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use lepus_store::disk::Operation;

/// A queue with one reader, which sleeps while it is empty.
#[derive(Debug, Default)]
pub(super) struct Lane {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    operations: Vec<Operation>,
    is_closed: bool,
    is_asleep: bool,
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
        if waiting.operations.is_empty() {
            std::mem::swap(&mut waiting.operations, operations);
        } else {
            waiting.operations.append(operations);
        }
        let wakes = std::mem::take(&mut waiting.is_asleep);
        drop(waiting);
        if wakes {
            self.more.notify_one();
        }
    }

    /// Takes all that wait into the empty `into`; sleeps until there are some. False when the lane
    /// is closed and empty.
    pub(super) fn take(&self, into: &mut Vec<Operation>) -> bool {
        let mut waiting = self.waiting();
        loop {
            if !waiting.operations.is_empty() {
                std::mem::swap(&mut waiting.operations, into);
                return true;
            }
            if waiting.is_closed {
                return false;
            }
            waiting.is_asleep = true;
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing will be put in any more.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.more.notify_all();
    }
}
