//! Writes down what happens to a queue; not part of builds that are not for tests.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Debug;

use lepus_base::{Now, Pool, Position};
use lepus_store::{AppendError, Fetch, LaneSlot};

use crate::code::{Digest, Encode};
use crate::command::{Command, Owned};
use crate::entry::{Content, Delivery, Entry, Reason, Sent, Ticket};
use crate::log::{Found, QueueLog};
use crate::message::MessageView;
use crate::queue::{Consumer, Queue, Selected, SelectorBits, Selectors, Sink};
use crate::record::{self, body, question};

/// Carries a command out and writes it down.
#[inline(never)]
pub(crate) fn recorded<C: Command>(
    queue: &mut Queue,
    now: Now,
    command: C,
    sink: &mut impl Sink,
) -> C::Effects {
    let tape = Tape::begin(now, &command.owned(sink));
    let effects = command.carry_out(queue, now, &mut Recording::new(sink, &tape));
    let line = tape.end(&effects);
    if let Some((recorder, name)) = queue.tap.open() {
        recorder.applied(name, &line);
    }
    effects
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some((recorder, name)) = self.tap.open() {
            recorder.end(name, self.digest());
        }
    }
}

/// A line that is being written.
#[derive(Debug)]
pub(crate) struct Tape(RefCell<Vec<u8>>);

impl Tape {
    /// Begins with the command.
    pub(crate) fn begin(now: Now, command: &Owned) -> Tape {
        let mut line = Vec::new();
        (now, command).put(&mut line);
        Tape(RefCell::new(line))
    }

    /// Notes what was asked, and the answer.
    fn note<A: Encode>(&self, question: u8, asked: impl Encode, answer: A) -> A {
        let mut line = self.0.borrow_mut();
        line.push(question);
        asked.put(&mut line);
        answer.put(&mut line);
        answer
    }

    /// Ends with what the command had for effects.
    pub(crate) fn end(self, effects: &dyn Debug) -> Vec<u8> {
        self.note(question::EFFECTS, Digest::of(effects).0, ());
        self.0.into_inner()
    }
}

/// A sink that notes what goes through it.
#[derive(Debug)]
pub(crate) struct Recording<'r, S> {
    sink: &'r mut S,
    tape: &'r Tape,
}

impl<'r, S: Sink> Recording<'r, S> {
    pub(crate) fn new(sink: &'r mut S, tape: &'r Tape) -> Recording<'r, S> {
        Recording { sink, tape }
    }
}

impl<S: Sink> Sink for Recording<'_, S> {
    type Log<'a>
        = RecordingLog<'a, S::Log<'a>>
    where
        Self: 'a;

    fn pool(&mut self) -> &mut Pool {
        self.sink.pool()
    }

    fn may_deliver(&mut self, consumer: &Consumer, bytes: usize) -> bool {
        let answer = self.sink.may_deliver(consumer, bytes);
        self.tape.note(question::MAY_DELIVER, (consumer, bytes), answer)
    }

    fn select(&mut self, selectors: &Selectors, asked: SelectorBits, entry: &Entry) -> Selected {
        let answer = self.sink.select(selectors, asked, entry);
        self.tape.note(question::SELECT, (asked, entry), answer)
    }

    fn deliver(&mut self, consumer: &Consumer, delivery: Delivery, content: Content<'_>) -> Sent {
        let seen = record::content(content, self.sink.pool());
        let answer = self.sink.deliver(consumer, delivery, content);
        self.tape.note(question::DELIVER, (consumer, delivery, seen), answer)
    }

    fn may_dead_letter(&mut self) -> bool {
        let answer = self.sink.may_dead_letter();
        self.tape.note(question::MAY_DEAD_LETTER, (), answer)
    }

    fn waits_for_letters(&mut self) -> bool {
        let answer = self.sink.waits_for_letters();
        self.tape.note(question::WAITS_FOR_LETTERS, (), answer)
    }

    fn dead_letter(&mut self, entry: Entry, lane: Option<LaneSlot>, reason: Reason) {
        let seen = body(&entry, self.sink.pool());
        self.tape.note(question::DEAD_LETTER, (&entry, lane, reason, seen), ());
        self.sink.dead_letter(entry, lane, reason);
    }

    fn discard(&mut self, entry: Entry) {
        let seen = body(&entry, self.sink.pool());
        self.tape.note(question::DISCARD, (&entry, seen), ());
        self.sink.discard(entry);
    }

    fn backlog(&mut self) -> Option<Self::Log<'_>> {
        let log = self.sink.backlog();
        self.tape.note(question::BACKLOG, (), log.is_some());
        Some(RecordingLog { log: log?, tape: self.tape })
    }

    fn spills(&self, taken_bytes: u64) -> bool {
        let answer = self.sink.spills(taken_bytes);
        self.tape.note(question::SPILLS, taken_bytes, answer)
    }

    fn letters(&self) -> Vec<(LaneSlot, u64)> {
        let answer = self.sink.letters();
        self.tape.note(question::LETTERS, (), answer)
    }
}

/// The same for the log.
#[derive(Debug)]
pub(crate) struct RecordingLog<'r, L> {
    log: L,
    tape: &'r Tape,
}

/// Entries that are written already.
struct Written {
    count: usize,
    bytes: Vec<u8>,
}

impl Encode for Written {
    fn put(&self, out: &mut Vec<u8>) {
        self.count.put(out);
        out.extend_from_slice(&self.bytes);
    }
}

impl<L: QueueLog> QueueLog for RecordingLog<'_, L> {
    fn lane(&mut self, priority: u8, spilled: bool) -> LaneSlot {
        let answer = self.log.lane(priority, spilled);
        self.tape.note(question::LANE, (priority, spilled), answer)
    }

    fn next_seq(&self) -> u64 {
        self.tape.note(question::NEXT_SEQ, (), self.log.next_seq())
    }

    fn has_window_room(&self) -> bool {
        self.tape.note(question::HAS_WINDOW_ROOM, (), self.log.has_window_room())
    }

    fn window(&mut self, lane: LaneSlot) {
        self.log.window(lane);
        self.tape.note(question::WINDOW, lane, ());
    }

    fn pass(&mut self, lane: LaneSlot) {
        self.log.pass(lane);
        self.tape.note(question::PASS, lane, ());
    }

    fn add_to_windows(&mut self, count: usize) {
        self.log.add_to_windows(count);
        self.tape.note(question::ADD_TO_WINDOWS, count, ());
    }

    fn forget(&mut self, count: usize) {
        self.log.forget(count);
        self.tape.note(question::FORGET, count, ());
    }

    fn fetch(
        &mut self,
        of: (u8, bool),
        lane: LaneSlot,
        mut each: impl FnMut(Entry),
    ) -> (usize, Fetch, bool) {
        let mut written = Written { count: 0, bytes: Vec::new() };
        let answer = self.log.fetch(of, lane, |entry| {
            written.count += 1;
            entry.put(&mut written.bytes);
            each(entry);
        });
        self.tape.note(question::FETCH, (of, lane), (written, answer)).1
    }

    fn fetch_at(
        &mut self,
        of: (u8, bool),
        lane: LaneSlot,
        from: u64,
        count: usize,
        mut each: impl FnMut(Entry),
    ) -> (usize, Fetch, u64) {
        let mut written = Written { count: 0, bytes: Vec::new() };
        let answer = self.log.fetch_at(of, lane, from, count, |entry| {
            written.count += 1;
            entry.put(&mut written.bytes);
            each(entry);
        });
        self.tape.note(question::FETCH_AT, (of, lane, from, count), (written, answer)).1
    }

    fn announce<'e>(&mut self, entries: impl Iterator<Item = &'e Entry>) -> usize {
        let entries: Vec<&Entry> = entries.collect();
        let answer = self.log.announce(entries.iter().copied());
        self.tape.note(question::ANNOUNCE, entries, answer)
    }

    fn lookup(&mut self, at: Position, bytes: u32) -> Found {
        let answer = self.log.lookup(at, bytes);
        self.tape.note(question::LOOKUP, (at, bytes), answer)
    }

    fn settle(&mut self, lane: LaneSlot, entry: &Entry) {
        self.log.settle(lane, entry);
        self.tape.note(question::SETTLE, (lane, entry), ());
    }

    fn set_aside(&mut self, lane: LaneSlot, entry: &Entry) {
        self.log.set_aside(lane, entry);
        self.tape.note(question::SET_ASIDE, (lane, entry), ());
    }

    fn mark_delivered(&mut self, lane: LaneSlot, seq: u64) {
        self.log.mark_delivered(lane, seq);
        self.tape.note(question::MARK_DELIVERED, (lane, seq), ());
    }

    fn purge(&mut self, lane: LaneSlot, end: u64, kept: &[u64]) {
        self.log.purge(lane, end, kept);
        self.tape.note(question::PURGE, (lane, end, kept), ());
    }

    fn purge_unfetched(&mut self, lane: LaneSlot, end: u64) -> bool {
        let answer = self.log.purge_unfetched(lane, end);
        self.tape.note(question::PURGE_UNFETCHED, (lane, end), answer)
    }

    fn append(
        &mut self,
        view: &MessageView<'_>,
        lane: LaneSlot,
        ticket: &Ticket,
    ) -> Result<Position, AppendError> {
        let answer = self.log.append(view, lane, ticket);
        self.tape.note(question::APPEND, (Digest::of_message(view).0, lane, ticket), answer)
    }
}
