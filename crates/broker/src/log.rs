//! The seam to the shard's commit log.
//!
//! Appending gives a position at once; durability comes later as a watermark. What waits for
//! durability (confirms, commits) compares its position with [`Log::durable`]. This log keeps
//! nothing: messages live in memory, so what is appended counts as durable.

use lepus_base::Position;

/// A log whose records need no disk.
#[derive(Debug, Default)]
pub struct Log {
    appended: Position,
}

impl Log {
    /// Appends a record of `length` bytes and says where it ends.
    pub fn append(&mut self, length: usize) -> Position {
        self.appended.0 += length as u64;
        self.appended
    }

    /// Everything appended up to here survives what the log promises to survive.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.appended
    }
}
