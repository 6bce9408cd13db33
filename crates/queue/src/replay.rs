//! The record of a queue, played to an empty one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt::Debug;

use lepus_base::{Now, Pool, Position};
use lepus_store::{AppendError, Fetch, LaneSlot};

use crate::code::{Decode, Digest, Encode};
use crate::command::{Admit, Message, Owned, OwnedPut, Publish, Put, Release};
use crate::entry::{Content, Delivery, Entry, Get, Reason, Sent, Ticket};
use crate::log::{Found, QueueLog};
use crate::message::{Incoming, MessageView};
use crate::queue::{Consumer, Queue, Selected, SelectorBits, Selectors, Sink};
use crate::record::{self, question};

/// A queue to which its record is played.
#[derive(Debug)]
pub struct Replay {
    queue: Queue,
    pool: Pool,
    /// Messages that `basic.get` took and that are yet to be released, by number.
    taken: BTreeMap<u64, Entry>,
}

impl Replay {
    /// The queue as it began; `None` where the line does not say that.
    #[must_use]
    pub fn begin(mut line: &[u8]) -> Option<Replay> {
        let (now, settings, auto_delete, durable) = Decode::take(&mut line)?;
        line.is_empty().then(|| Replay {
            queue: Queue::new(now, &settings, auto_delete, durable),
            pool: Pool::new(),
            taken: BTreeMap::new(),
        })
    }

    /// Carries out the command of a line. The queue has to ask the same, and is answered the same.
    ///
    /// # Errors
    /// When the line has no command.
    ///
    /// # Panics
    /// When the queue asks something else, or the command has other effects.
    pub fn apply(&mut self, mut line: &[u8]) -> Result<(), &'static str> {
        let Some((now, command)) = <(Now, Owned)>::take(&mut line) else {
            return Err("no command of a queue");
        };
        let script = Script(Cell::new(line));
        let mut sink = Playing { script: &script, pool: &mut self.pool };
        let queue = &mut self.queue;
        let see = |effects: &dyn Debug| script.check(question::EFFECTS, Digest::of(effects).0);
        match command {
            Owned::Publish(message) => offer(&mut sink, &message, |incoming, sink| {
                see(&queue.apply(now, Publish { incoming }, sink));
            }),
            Owned::Admit(message) => offer(&mut sink, &message, |incoming, sink| {
                see(&queue.apply(now, Admit { incoming }, sink));
            }),
            Owned::Put(OwnedPut { ticket, position, message }) => {
                offer(&mut sink, &message, |incoming, sink| {
                    see(&queue.apply(now, Put { ticket, position, incoming }, sink));
                });
            }
            Owned::Release(seq) => {
                let entry = self.taken.remove(&seq).ok_or("a release of what was not taken")?;
                see(&queue.apply(now, Release { entry }, &mut sink));
            }
            Owned::TakeHead(command) => {
                let effects = queue.apply(now, command, &mut sink);
                see(&effects);
                if let Get::Message(got) = effects {
                    self.taken.extend(got.taken.map(|entry| (entry.seq, entry)));
                }
            }
            other => {
                let rest = other.apply_plain(queue, now, &mut sink, see);
                assert!(rest.is_none(), "commands that bring a message are above");
            }
        }
        assert!(script.0.get().is_empty(), "the queue asks less than it did");
        Ok(())
    }

    /// As [`Queue::digest`].
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.queue.digest()
    }

    /// The queue, to look at.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }
}

fn offer(
    sink: &mut Playing<'_, '_>,
    message: &Message,
    offer: impl FnOnce(&mut Incoming<'_>, &mut Playing<'_, '_>),
) {
    let mut incoming = message.incoming(sink.pool);
    offer(&mut incoming, sink);
    incoming.finish(sink.pool);
}

/// What is left of a line: questions and answers.
#[derive(Debug)]
struct Script<'s>(Cell<&'s [u8]>);

impl Script<'_> {
    /// The queue asks what it asked then.
    fn check(&self, question: u8, asked: impl Encode) {
        let mut found = Vec::new();
        found.push(question);
        asked.put(&mut found);
        let left = self.0.get();
        let (then, rest) = left.split_at(found.len().min(left.len()));
        assert!(
            then == found,
            "the queue asks '{}' {found:?}, and asked '{}' {then:?} then",
            char::from(question),
            then.first().map_or('\0', |question| char::from(*question))
        );
        self.0.set(rest);
    }

    /// The same, and is answered the same.
    fn answer<A: Decode>(&self, question: u8, asked: impl Encode) -> A {
        self.check(question, asked);
        let mut rest = self.0.get();
        let answer = A::take(&mut rest).expect("an answer stands behind its question");
        self.0.set(rest);
        answer
    }
}

/// The shard as the record has it.
struct Playing<'p, 's> {
    script: &'p Script<'s>,
    pool: &'p mut Pool,
}

impl Playing<'_, '_> {
    fn let_go(&mut self, entry: &Entry) {
        if let Some(body) = entry.place.body() {
            self.pool.release(body);
        }
    }
}

impl<'s> Sink for Playing<'_, 's> {
    type Log<'a>
        = PlayingLog<'a, 's>
    where
        Self: 'a;

    fn pool(&mut self) -> &mut Pool {
        self.pool
    }

    fn may_deliver(&mut self, consumer: &Consumer, bytes: usize) -> bool {
        self.script.answer(question::MAY_DELIVER, (consumer, bytes))
    }

    fn select(&mut self, _: &Selectors, asked: SelectorBits, entry: &Entry) -> Selected {
        self.script.answer(question::SELECT, (asked, entry))
    }

    fn deliver(&mut self, consumer: &Consumer, delivery: Delivery, content: Content<'_>) -> Sent {
        let seen = record::content(content, self.pool);
        self.script.answer(question::DELIVER, (consumer, delivery, seen))
    }

    fn may_dead_letter(&mut self) -> bool {
        self.script.answer(question::MAY_DEAD_LETTER, ())
    }

    fn waits_for_letters(&mut self) -> bool {
        self.script.answer(question::WAITS_FOR_LETTERS, ())
    }

    fn dead_letter(&mut self, entry: Entry, lane: Option<LaneSlot>, reason: Reason) {
        let seen = record::body(&entry, self.pool);
        self.script.check(question::DEAD_LETTER, (&entry, lane, reason, seen));
        self.let_go(&entry);
    }

    fn discard(&mut self, entry: Entry) {
        let seen = record::body(&entry, self.pool);
        self.script.check(question::DISCARD, (&entry, seen));
        self.let_go(&entry);
    }

    fn backlog(&mut self) -> Option<PlayingLog<'_, 's>> {
        let has_log: bool = self.script.answer(question::BACKLOG, ());
        has_log.then_some(PlayingLog(self.script))
    }

    fn spills(&self, taken_bytes: u64) -> bool {
        self.script.answer(question::SPILLS, taken_bytes)
    }

    fn letters(&self) -> Vec<(LaneSlot, u64)> {
        self.script.answer(question::LETTERS, ())
    }
}

/// The log as the record has it.
struct PlayingLog<'p, 's>(&'p Script<'s>);

impl QueueLog for PlayingLog<'_, '_> {
    fn lane(&mut self, priority: u8, spilled: bool) -> LaneSlot {
        self.0.answer(question::LANE, (priority, spilled))
    }

    fn next_seq(&self) -> u64 {
        self.0.answer(question::NEXT_SEQ, ())
    }

    fn has_window_room(&self) -> bool {
        self.0.answer(question::HAS_WINDOW_ROOM, ())
    }

    fn window(&mut self, lane: LaneSlot) {
        self.0.check(question::WINDOW, lane);
    }

    fn pass(&mut self, lane: LaneSlot) {
        self.0.check(question::PASS, lane);
    }

    fn add_to_windows(&mut self, count: usize) {
        self.0.check(question::ADD_TO_WINDOWS, count);
    }

    fn forget(&mut self, count: usize) {
        self.0.check(question::FORGET, count);
    }

    fn fetch(
        &mut self,
        of: (u8, bool),
        lane: LaneSlot,
        each: impl FnMut(Entry),
    ) -> (usize, Fetch, bool) {
        let (entries, answer): (Vec<Entry>, _) = self.0.answer(question::FETCH, (of, lane));
        entries.into_iter().for_each(each);
        answer
    }

    fn fetch_at(
        &mut self,
        of: (u8, bool),
        lane: LaneSlot,
        from: u64,
        count: usize,
        each: impl FnMut(Entry),
    ) -> (usize, Fetch, u64) {
        let asked = (of, lane, from, count);
        let (entries, answer): (Vec<Entry>, _) = self.0.answer(question::FETCH_AT, asked);
        entries.into_iter().for_each(each);
        answer
    }

    fn announce<'e>(&mut self, entries: impl Iterator<Item = &'e Entry>) -> usize {
        let entries: Vec<&Entry> = entries.collect();
        self.0.answer(question::ANNOUNCE, entries)
    }

    fn lookup(&mut self, at: Position, bytes: u32) -> Found {
        self.0.answer(question::LOOKUP, (at, bytes))
    }

    fn settle(&mut self, lane: LaneSlot, entry: &Entry) {
        self.0.check(question::SETTLE, (lane, entry));
    }

    fn set_aside(&mut self, lane: LaneSlot, entry: &Entry) {
        self.0.check(question::SET_ASIDE, (lane, entry));
    }

    fn mark_delivered(&mut self, lane: LaneSlot, seq: u64) {
        self.0.check(question::MARK_DELIVERED, (lane, seq));
    }

    fn purge(&mut self, lane: LaneSlot, end: u64, kept: &[u64]) {
        self.0.check(question::PURGE, (lane, end, kept));
    }

    fn purge_unfetched(&mut self, lane: LaneSlot, end: u64) -> bool {
        self.0.answer(question::PURGE_UNFETCHED, (lane, end))
    }

    fn append(
        &mut self,
        view: &MessageView<'_>,
        lane: LaneSlot,
        ticket: &Ticket,
    ) -> Result<Position, AppendError> {
        self.0.answer(question::APPEND, (Digest::of_message(view).0, lane, ticket))
    }
}
