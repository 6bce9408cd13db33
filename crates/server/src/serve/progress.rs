//! How far the start is.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What the start is at, in the order in which it comes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Users, exchanges, queues and the definitions file are read.
    Definitions,
    /// The shards read their logs.
    Logs,
    /// The listeners open.
    Listeners,
}

/// Told by those who start the broker, read by those who wait for it.
#[derive(Debug)]
pub struct Progress {
    step: AtomicU8,
    shards: u16,
    shards_ready: AtomicU64,
    operations: AtomicU64,
    bytes_read: AtomicU64,
}

impl Progress {
    /// The beginning of a start with so many shards.
    #[must_use]
    pub fn new(shards: u16) -> Progress {
        Progress {
            step: AtomicU8::new(Step::Definitions as u8),
            shards,
            shards_ready: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
        }
    }

    /// The next step begins.
    pub fn enter(&self, step: Step) {
        self.step.store(step as u8, Ordering::Relaxed);
    }

    /// An operation on a log's files has ended, which read so many bytes.
    pub fn count_operation(&self, bytes_read: usize) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes_read as u64, Ordering::Relaxed);
    }

    /// A shard has read its logs.
    pub fn count_shard(&self) {
        if self.shards_ready.fetch_add(1, Ordering::Relaxed) + 1 == u64::from(self.shards) {
            self.enter(Step::Listeners);
        }
    }

    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        let step = self.step.load(Ordering::Relaxed);
        if step == Step::Definitions as u8 {
            return "reads the definitions".to_owned();
        }
        if step == Step::Listeners as u8 {
            return "opens its listeners".to_owned();
        }
        format!(
            "reads the logs: {:.1} MiB in {} operations so far, {} of {} shards ready",
            self.bytes_read.load(Ordering::Relaxed) as f64 / f64::from(1 << 20),
            self.operations.load(Ordering::Relaxed),
            self.shards_ready.load(Ordering::Relaxed),
            self.shards
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_and_what_is_done_of_it_are_told() {
        let progress = Progress::new(2);
        assert_eq!(progress.text(), "reads the definitions");
        progress.enter(Step::Logs);
        progress.count_operation(3 << 19);
        progress.count_operation(0);
        progress.count_shard();
        let text = "reads the logs: 1.5 MiB in 2 operations so far, 1 of 2 shards ready";
        assert_eq!(progress.text(), text);
        progress.count_shard();
        assert_eq!(progress.text(), "opens its listeners");
    }
}
