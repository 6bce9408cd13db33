//! For commands that cause nothing outside of their queue.

use lepus_base::{Pool, Position};
use lepus_store::{AppendError, Fetch, LaneSlot};

use super::{Consumer, Selected, SelectorBits, Selectors, Sink};
use crate::entry::{Content, Delivery, Entry, Reason, Sent, Ticket};
use crate::log::{Found, QueueLog};
use crate::message::MessageView;

/// Why nothing of it is asked.
const ALONE: &str = "this command causes nothing outside of its queue";

/// Nothing but the queue: it goes with commands that touch no message.
///
/// Whatever a queue asks it for, but for a log, of which there is none, panics: the command needs a real one.
#[derive(Clone, Copy, Debug)]
pub struct NoSink;

impl Sink for NoSink {
    type Log<'a> = NoLog;

    fn pool(&mut self) -> &mut Pool {
        unreachable!("{ALONE}")
    }

    fn may_deliver(&mut self, _: &Consumer, _: usize) -> bool {
        unreachable!("{ALONE}")
    }

    fn select(&mut self, _: &Selectors, _: SelectorBits, _: &Entry) -> Selected {
        unreachable!("{ALONE}")
    }

    fn deliver(&mut self, _: &Consumer, _: Delivery, _: Content<'_>) -> Sent {
        unreachable!("{ALONE}")
    }

    fn dead_letter(&mut self, _: Entry, _: Option<LaneSlot>, _: Reason) {
        unreachable!("{ALONE}")
    }

    fn discard(&mut self, _: Entry) {
        unreachable!("{ALONE}")
    }
}

/// The log of a queue that has none.
#[derive(Debug)]
pub enum NoLog {}

impl QueueLog for NoLog {
    fn lane(&mut self, _: u8, _: bool) -> LaneSlot {
        match *self {}
    }

    fn next_seq(&self) -> u64 {
        match *self {}
    }

    fn has_window_room(&self) -> bool {
        match *self {}
    }

    fn window(&mut self, _: LaneSlot) {}

    fn pass(&mut self, _: LaneSlot) {}

    fn add_to_windows(&mut self, _: usize) {}

    fn forget(&mut self, _: usize) {}

    fn fetch(&mut self, _: (u8, bool), _: LaneSlot, _: impl FnMut(Entry)) -> (usize, Fetch, bool) {
        match *self {}
    }

    fn fetch_at(
        &mut self,
        _: (u8, bool),
        _: LaneSlot,
        _: u64,
        _: usize,
        _: impl FnMut(Entry),
    ) -> (usize, Fetch, u64) {
        match *self {}
    }

    fn announce<'e>(&mut self, _: impl Iterator<Item = &'e Entry>) -> usize {
        match *self {}
    }

    fn lookup(&mut self, _: Position, _: u32) -> Found {
        match *self {}
    }

    fn settle(&mut self, _: LaneSlot, _: &Entry) {}

    fn set_aside(&mut self, _: LaneSlot, _: &Entry) {}

    fn mark_delivered(&mut self, _: LaneSlot, _: u64) {}

    fn purge(&mut self, _: LaneSlot, _: u64, _: &[u64]) {}

    fn purge_unfetched(&mut self, _: LaneSlot, _: u64) -> bool {
        match *self {}
    }

    fn append(
        &mut self,
        _: &MessageView<'_>,
        _: LaneSlot,
        _: &Ticket,
    ) -> Result<Position, AppendError> {
        match *self {}
    }
}
