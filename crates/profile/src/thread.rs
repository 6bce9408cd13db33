//! A thread that may be sampled, and what is known about it.

use std::ops::Range;

use crate::phase::Mark;

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// The shard of this number.
    Shard(u16),
    /// Files of shards.
    Files,
    /// Anything else.
    Service,
}

/// A thread that has enrolled.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) thread: u32,
    pub(crate) name: String,
    pub(crate) group: Group,
    pub(crate) mark: Mark,
    /// Addresses of its stack.
    pub(crate) stack: Range<u64>,
}
