//! What the threads of a run share.

use crate::forger::Forger;
use crate::oracle::Oracle;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known of a queue that was declared while the disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// A question about it has no answer.
    Unknown,
    /// The broker has it.
    There,
    /// The broker has deleted it.
    Gone,
}

/// The oracle with the forger before it, and what the round wants from its threads.
pub struct Court {
    inner: Mutex<Bench>,
    ending: AtomicBool,
    finishing: AtomicBool,
}

/// What one thread at a time may use.
pub struct Bench {
    /// The oracle.
    pub oracle: Oracle,
    /// What may be forged.
    pub forger: Forger,
    /// Queues of this round beside the others, by number.
    pub declared: Vec<Declared>,
}

impl Court {
    /// A court without a case.
    pub fn new(forger: Forger) -> Court {
        Court {
            inner: Mutex::new(Bench { oracle: Oracle::new(), forger, declared: Vec::new() }),
            ending: AtomicBool::new(false),
            finishing: AtomicBool::new(false),
        }
    }

    /// Waits for its turn.
    pub fn open(&self) -> MutexGuard<'_, Bench> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on connections may end.
    pub fn set_ending(&self, ending: bool) {
        self.ending.store(ending, Ordering::SeqCst);
    }

    /// Whether connections may end.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Consumers shall acknowledge everything and leave.
    pub fn set_finishing(&self, finishing: bool) {
        self.finishing.store(finishing, Ordering::SeqCst);
    }

    /// Whether consumers shall leave.
    pub fn is_finishing(&self) -> bool {
        self.finishing.load(Ordering::SeqCst)
    }
}
