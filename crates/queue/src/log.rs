//! What a queue asks of its log.

use lepus_base::Position;
use lepus_store::{AppendError, Fetch, LaneSlot};

use crate::entry::{Entry, Ticket};
use crate::message::MessageView;

/// A message looked up, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Found {
    /// It is in memory.
    Ready,
    /// It is being read; its queue is woken then.
    Pending,
    /// It is damaged.
    Lost,
}

/// One queue's part of its log. Whoever implements it remembers which queue waits for the disk, and wakes it.
pub trait QueueLog {
    /// The lane for messages of a priority.
    fn lane(&mut self, priority: u8, spilled: bool) -> LaneSlot;

    /// The lowest sequence number that the queue never used.
    fn next_seq(&self) -> u64;

    /// Whether windows may grow by messages that nobody asked for.
    fn has_window_room(&self) -> bool;

    /// An entry that was just appended goes straight into its window.
    fn window(&mut self, lane: LaneSlot);

    /// The entry that was just appended is known, as is everything before it: it is not fetched.
    fn pass(&mut self, lane: LaneSlot);

    /// Entries came back to a window without a fetch.
    fn add_to_windows(&mut self, count: usize);

    /// Entries left a window.
    fn forget(&mut self, count: usize);

    /// Gives some of the next entries of the lane for a priority, spilled or not, to `each`, in order. How many they
    /// were, whether an index page has to be read before there is any more, and whether the lane is fetched as a whole.
    fn fetch(
        &mut self,
        of: (u8, bool),
        lane: LaneSlot,
        each: impl FnMut(Entry),
    ) -> (usize, Fetch, bool);

    /// Gives `each` the entries of a lane for a priority, spilled or not, that live from a number on, so many at most, as
    /// they were fetched before; what is fetched next stays. How many they were, whether an index page has to be read
    /// before there are more, and the number up to which all that live were given.
    fn fetch_at(
        &mut self,
        of: (u8, bool),
        lane: LaneSlot,
        from: u64,
        count: usize,
        each: impl FnMut(Entry),
    ) -> (usize, Fetch, u64);

    /// Says which messages are delivered next. How many of them will be in memory then.
    fn announce<'e>(&mut self, entries: impl Iterator<Item = &'e Entry>) -> usize;

    /// Whether a message is in memory. If not it is read, and the queue is woken.
    fn lookup(&mut self, at: Position, bytes: u32) -> Found;

    /// A message of the queue is done with.
    fn settle(&mut self, lane: LaneSlot, entry: &Entry);

    /// A message of the queue is damaged: it stays in the log, and nobody is given it.
    fn set_aside(&mut self, lane: LaneSlot, entry: &Entry);

    /// A message of the queue was delivered, and is not settled.
    fn mark_delivered(&mut self, lane: LaneSlot, seq: u64);

    /// Everything in a lane below `end` is done with, except `kept`.
    fn purge(&mut self, lane: LaneSlot, end: u64, kept: &[u64]);

    /// Everything in a lane below `end` that was not fetched is done with. False if the whole lane has to be
    /// purged instead.
    fn purge_unfetched(&mut self, lane: LaneSlot, end: u64) -> bool;

    /// Appends a message to one lane. It is durable when the log says so; in a lane for transient
    /// ones it is there only to spare memory.
    ///
    /// # Errors
    /// When the log does not take it.
    fn append(
        &mut self,
        view: &MessageView<'_>,
        lane: LaneSlot,
        ticket: &Ticket,
    ) -> Result<Position, AppendError>;
}
