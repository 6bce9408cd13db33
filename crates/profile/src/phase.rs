//! What a thread is at, as far as it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A part of the duty cycle of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// No phase is told: the thread has no duty cycle, or it has not begun.
    #[default]
    None = 0,
    /// Asking which sockets are ready, without waiting.
    Poll = 1,
    /// Mail, directory changes, commands, completions, bytes of clients, timers, long jobs.
    Handle = 2,
    /// Confirms and batches at the end of a cycle, mail to other shards.
    Flush = 3,
    /// Handing operations to the threads of the files.
    Submit = 4,
    /// Writing to sockets, and what that frees.
    Write = 5,
    /// Looking around for work before sleeping.
    Spin = 6,
    /// Falling asleep and waking up: a thread that sleeps costs nothing and is not seen.
    Sleep = 7,
}

impl Phase {
    /// All of them, in the order of their numbers.
    pub const ALL: [Phase; 8] = [
        Phase::None,
        Phase::Poll,
        Phase::Handle,
        Phase::Flush,
        Phase::Submit,
        Phase::Write,
        Phase::Spin,
        Phase::Sleep,
    ];

    /// Its name in graphs and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::None => "none",
            Phase::Poll => "poll",
            Phase::Handle => "handle",
            Phase::Flush => "flush",
            Phase::Submit => "submit",
            Phase::Write => "write",
            Phase::Spin => "spin",
            Phase::Sleep => "sleep",
        }
    }

    pub(crate) fn from_number(number: u8) -> Phase {
        Phase::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// Where a thread notes its phase. Cheap to clone; clones share the note.
#[derive(Clone, Debug, Default)]
pub struct Mark(Arc<AtomicU8>);

impl Mark {
    /// The thread is in this phase from now on: one plain store.
    #[inline]
    pub fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    /// The phase that was noted last.
    #[must_use]
    pub fn get(&self) -> Phase {
        Phase::from_number(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_have_their_numbers_and_names_of_their_own() {
        for (number, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, number);
            assert_eq!(Phase::from_number(number as u8), phase);
            let alike = Phase::ALL.iter().filter(|other| other.name() == phase.name());
            assert_eq!(alike.count(), 1);
        }
        assert_eq!(Phase::from_number(200), Phase::None);
        let mark = Mark::default();
        mark.clone().set(Phase::Flush);
        assert_eq!(mark.get(), Phase::Flush);
    }
}
