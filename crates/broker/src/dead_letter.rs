//! Messages on their way from a queue to its dead-letter exchange.
//!
//! A message in the log stays there, unsettled, until every queue that gets it has it: in the same
//! log the order of records sees to that, elsewhere the ledger waits for reports. A crash in
//! between leaves it in both places, never in none. Those of a queue whose letters must arrive wait
//! there, too, until a queue takes them (`held.rs`).

mod attempts;
mod cycles;
mod destination;
mod held;
mod ledger;
mod roomless;
mod sender;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

pub(crate) use cycles::{Deaths, end_cycles};
use destination::Destination;
pub(crate) use destination::DestinationRef;
use held::Progress;
pub(crate) use held::{End, FirstHeld, Posted, Slice, Then};
use ledger::{Ledger, Waiting};
use lepus_base::QueueId;
use lepus_store::LaneSlot;
use roomless::Roomless;
pub(crate) use sender::{
    Sender, delayed_of, letters_of, loose_letters_of, must_arrive, sender_of, sure_letters_of,
};

use crate::channel::Target;
use crate::journal::{Journal, Need, Occupied, Reader};
use crate::mail::{ChannelRef, Receipt};
use crate::owner::{Conditions, Owner};
use crate::properties::DeathWriter;
use crate::queue::{Entry, Reason};

/// Dead letters that may wait before queues stop producing more.
const WAITING_MAX: usize = 1024;
/// Room for so many dead letters is kept for the next ones.
const SPARE_LETTERS_MAX: usize = 4096;

/// A message where it is until every queue that gets it has it. It owns what its entry owns.
#[derive(Debug)]
pub struct Source {
    /// The queue that it leaves, or what stands for a delayed exchange.
    pub queue: QueueId,
    /// The log that it is in, if it has a lane.
    pub log: u16,
    /// Where it is to be settled, if it is in the log.
    pub lane: Option<LaneSlot>,
    /// The message.
    pub entry: Entry,
    /// Whether a client had it there, which is to be known if it stays.
    pub was_delivered: bool,
}

impl Source {
    /// Whether the next run finds it there again, as long as it is not settled.
    pub(crate) fn is_kept(&self) -> bool {
        self.lane.is_some() && !self.entry.place.is_spilled()
    }

    /// What it takes in a log as long as it is not settled.
    pub(crate) fn occupied(&self) -> Occupied {
        let bytes = if self.lane.is_some() { self.entry.bytes as usize } else { 0 };
        Occupied { log: self.log, bytes }
    }
}

/// A message that left a queue otherwise than by acknowledgement.
#[derive(Debug)]
pub struct DeadLetter {
    /// Where it is.
    pub source: Source,
    /// Why it left.
    pub reason: Reason,
    /// How far it has come, if it must arrive and was sent before.
    pub(crate) progress: Option<Box<Progress>>,
    /// Its place among those that have waited for room in a log; 0 if it has not.
    pub(crate) turn: u64,
    /// Where it goes, if those of its queue that come next go elsewhere.
    before: Option<Arc<Destination>>,
}

impl DeadLetter {
    /// Whether some of its queues were asked in this attempt: it goes on before others begin.
    pub(crate) fn is_under_way(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.is_addressed())
    }

    /// Whether it had to wait for another attempt, which has begun.
    fn is_tried_again(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.is_tried_again())
    }

    /// Whether all its queues were asked and have reported.
    pub(crate) fn is_over(&self) -> bool {
        self.progress.as_ref().is_some_and(|it| it.is_addressed() && !it.has_rest())
    }
}

/// A letter whose turn it is.
#[derive(Debug)]
pub(crate) struct Taken {
    pub letter: DeadLetter,
    /// Whether it comes from the front of its queue's line.
    pub is_of_line: bool,
    /// Queues whose expiry waited for fewer letters, and goes on.
    pub woken: Vec<Reader>,
}

/// Bytes of memory that is kept for the next letter, and queues.
const KEPT_BYTES_MAX: usize = 16 << 10;
const KEPT_TARGETS_MAX: usize = 256;

/// What a letter is written with.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub writer: DeathWriter,
    /// The exchange that it goes to.
    pub exchange: String,
    /// The routing key that its queue gives it, if it gives one.
    pub own_key: Option<String>,
}

impl Buffers {
    /// Notes where a letter goes.
    pub(crate) fn address(&mut self, exchange: &str, own_key: Option<&str>) {
        self.exchange.clear();
        self.exchange.push_str(exchange);
        match (own_key, &mut self.own_key) {
            (Some(key), Some(kept)) => {
                kept.clear();
                kept.push_str(key);
            }
            (key, kept) => *kept = key.map(String::from),
        }
    }
}

/// A letter as it goes on.
#[derive(Debug, Default)]
pub(crate) struct Routed {
    /// As it is to be from now on, packed; empty where it goes nowhere.
    pub packed: Vec<u8>,
    /// Where to.
    pub targets: Vec<Target>,
}

/// All dead letters of a shard's queues that have not arrived.
#[derive(Debug, Default)]
pub struct DeadLetters {
    /// Those that are sent next.
    next: VecDeque<DeadLetter>,
    /// Whether the first of them has to be read from the log before, or the last one is on its way to very many
    /// queues.
    is_waiting: bool,
    /// Those that wait for room in a log, and what waits behind them.
    lines: Roomless,
    /// Those that are settled when others have reported, or kept.
    ledger: Ledger,
    /// Memory that is used again for each letter.
    buffers: Buffers,
    routed: Routed,
}

impl DeadLetters {
    /// Memory for the next letter, empty.
    pub(crate) fn take_buffers(&mut self) -> (Buffers, Routed) {
        (mem::take(&mut self.buffers), mem::take(&mut self.routed))
    }

    /// A letter is written: the memory for that is for the next one.
    pub(crate) fn keep_buffers(&mut self, mut buffers: Buffers) {
        buffers.writer.shrink_to(KEPT_BYTES_MAX);
        self.buffers = buffers;
    }

    /// A letter has gone on: its memory is for the next one, unless it is large.
    pub(crate) fn use_again(&mut self, mut routed: Routed) {
        if routed.packed.capacity() <= KEPT_BYTES_MAX
            && routed.targets.capacity() <= KEPT_TARGETS_MAX
        {
            routed.packed.clear();
            routed.targets.clear();
            self.routed = routed;
        }
    }

    /// A message leaves a queue otherwise than by acknowledgement.
    pub(crate) fn push(&mut self, source: Source, reason: Reason) {
        self.next.push_back(DeadLetter { source, reason, progress: None, turn: 0, before: None });
    }

    /// Takes the letter that is next.
    pub(crate) fn take_next(&mut self) -> Option<Taken> {
        let first = self.next.front();
        if !first.is_some_and(DeadLetter::is_under_way)
            && self.lines.is_next(first.is_some())
            && let Some((letter, woken)) = self.lines.take()
        {
            return Some(Taken { letter, is_of_line: true, woken });
        }
        let letter = self.next.pop_front()?;
        Some(Taken { letter, is_of_line: false, woken: Vec::new() })
    }

    /// Puts a letter behind those of its queue that wait, if there are some and it does not come from there.
    pub(crate) fn line_up(&mut self, letter: DeadLetter, is_of_line: bool) -> Option<DeadLetter> {
        let waits = !is_of_line && !letter.is_under_way() && self.lines.has_of(letter.source.queue);
        if !waits {
            return Some(letter);
        }
        self.lines.push(letter);
        None
    }

    /// Puts a letter back that has to be read before it is sent: it is the next one.
    pub(crate) fn wait_for_read(&mut self, letter: DeadLetter, is_of_line: bool) {
        match is_of_line {
            true => self.lines.put_back(letter),
            false => self.next.push_front(letter),
        }
        self.is_waiting = true;
    }

    /// Has a letter, and those behind it, wait until one of its queue that was set aside has come into its queues.
    pub(crate) fn wait_behind_set_aside(&mut self, letter: DeadLetter) {
        self.lines.wait_behind_set_aside(letter);
    }

    /// What was set aside of a queue has come into its queues: those behind it go on.
    pub(crate) fn set_aside_over(&mut self, queue: QueueId) {
        self.lines.set_aside_over(queue);
    }

    /// Has a letter wait for room in logs, which these queues need.
    pub(crate) fn wait_for_room(
        &mut self,
        letter: DeadLetter,
        need: Need,
        queues: Vec<QueueId>,
        journal: &Journal,
    ) {
        self.lines.wait(letter, need, queues, journal.is_full(need.logs));
    }

    /// A letter finds out anew what room it needs, before others of its queue.
    pub(crate) fn look_anew(&mut self, letter: DeadLetter) {
        self.lines.look_anew(letter);
    }

    /// Lets those go on that waited for room in a log, as far as there is some.
    pub(crate) fn give_room(&mut self, journal: &mut Journal) {
        self.lines.let_some_look_anew();
        self.lines.give_room(|need, frees| !journal.must_wait_to_pass_on(need, frees));
        self.lines.let_pass(|logs| journal.is_full(logs));
    }

    /// Whether some of this queue wait for room.
    pub(crate) fn has_roomless_of(&self, queue: QueueId) -> bool {
        self.lines.has_roomless_of(queue)
    }

    /// Whether one of the letter's queue that came before waits for no more than this, in the same logs.
    pub(crate) fn is_behind(&self, letter: &DeadLetter, need: Need) -> bool {
        self.lines.is_behind(&letter.source, letter.turn, need)
    }

    /// Whether one more may be on its way to very many queues.
    pub(crate) fn may_pass(&self) -> bool {
        self.lines.may_pass()
    }

    /// Has a letter wait until it may be on its way to very many queues.
    pub(crate) fn wait_for_turn(&mut self, letter: DeadLetter) {
        self.lines.wait_for_turn(letter);
    }

    /// A letter of the queue goes to very many queues: the next ones wait until it is in all of them.
    pub(crate) fn pass(&mut self, queue: QueueId) {
        self.lines.pass(queue);
    }

    /// A letter on its way to very many queues, which takes so many bytes, can only wait: those of other queues
    /// need not do so for it, up to so many bytes.
    pub(crate) fn give_turn_away(&mut self, queue: QueueId, bytes: usize, max: usize) {
        self.lines.give_turn_away(queue, bytes, max);
    }

    /// The letter is in all of its very many queues: those behind it go on.
    pub(crate) fn passed(&mut self, queue: QueueId) {
        self.lines.passed(queue);
    }

    /// The number under which a queue elsewhere, or a log, is to report.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.ledger.next_number()
    }

    /// A message stays where it is until so many have reported under this number, and then, too, if `is_kept`.
    pub(crate) fn await_reports(
        &mut self,
        number: u64,
        source: Source,
        missing: u32,
        is_kept: bool,
    ) {
        self.ledger.waiting.insert(number, Waiting { source, missing, is_kept });
    }

    /// A message stays where it is for the next run.
    pub(crate) fn keep(&mut self, source: Source) {
        self.ledger.kept.push(source);
    }

    /// What a message takes in the log that it is in, of which a report to this sender is missing.
    pub(crate) fn occupied(&self, to: ChannelRef, number: u64) -> Occupied {
        self.ledger.occupied(to, number)
    }

    /// So many queues elsewhere say what became of a message. Where it was, if it is to be settled there. Of those that
    /// need not arrive, one that no log takes is kept by its source for the next run; one that a queue refuses is gone.
    pub(crate) fn report(
        &mut self,
        to: ChannelRef,
        number: u64,
        queues: u32,
        receipt: Receipt,
    ) -> Option<Source> {
        if must_arrive(to) {
            self.report_surely(number, receipt != Receipt::Taken);
            return None;
        }
        self.ledger.report(number, queues, receipt == Receipt::Unlogged)
    }

    /// Whether some are to be sent that do not wait for room.
    #[inline]
    pub(crate) fn has_any_to_send(&self) -> bool {
        !self.next.is_empty() || self.lines.goes_on()
    }

    /// Whether the first of them has to be read before it is sent.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether a queue's expiry waits until its line is shorter, or all lines are.
    pub(crate) fn is_behind_lines(&self, queue: QueueId) -> bool {
        self.lines.is_behind_line(queue)
    }

    /// The queues whose letters wait until some that were set aside have come into their queues.
    pub(crate) fn behind_set_aside(&self) -> impl Iterator<Item = QueueId> {
        self.lines.behind_set_aside()
    }

    /// Whether none is to be sent, now or later.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next.is_empty() && self.lines.is_empty()
    }

    /// How many are to be sent, now or later.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sources().count()
    }

    /// Where all are that are to be sent.
    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.next.iter().map(|letter| &letter.source).chain(self.lines.sources())
    }

    /// The lanes and numbers of all that left this queue and are in this log.
    pub(crate) fn of_queue(&self, queue: QueueId, log: u16) -> Vec<(LaneSlot, u64)> {
        let all = self.sources().chain(self.ledger.sources());
        let own = all.filter(|source| source.queue == queue && source.log == log);
        own.filter_map(|source| Some((source.lane?, source.entry.seq))).collect()
    }

    /// Whether a queue may make one more by expiry.
    pub(crate) fn may_push(&self, queue: QueueId) -> bool {
        self.next.len() < WAITING_MAX && !self.lines.holds_back(queue)
    }

    /// A queue's expiry waits. Whether it does so because of those that wait for room: then it is woken with them.
    pub(crate) fn wait_behind_lines(&mut self, queue: Reader) -> bool {
        self.lines.wait_behind(queue)
    }

    /// A queue is gone, deleted or on its way to another shard, to which some may be sent.
    pub(crate) fn target_left(&mut self, target: QueueId) {
        self.lines.target_left(target);
    }

    /// Those that stay where they are, in queues of one log, with their lanes.
    pub(crate) fn kept(&self, log: u16) -> impl Iterator<Item = (&Source, LaneSlot)> {
        self.ledger.kept(log)
    }

    /// So many more reports of one are to come.
    pub(crate) fn expect(&mut self, number: u64, more: u32) {
        self.ledger.expect(number, more);
    }

    /// The first one was read, or the last one is in all of its queues: the next may be sent. The memory of a long
    /// list is given back when all its letters are gone.
    pub(crate) fn go_on(&mut self) {
        self.is_waiting = false;
        if self.next.is_empty() && self.next.capacity() > SPARE_LETTERS_MAX {
            self.next = VecDeque::new();
        }
    }

    /// Memory of those that are to be sent, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.next.capacity() * size_of::<DeadLetter>()
            + self.lines.memory_bytes()
            + self.buffers.writer.memory_bytes()
            + self.routed.packed.capacity()
            + self.routed.targets.capacity() * size_of::<Target>()
    }

    /// Memory of the others, in bytes.
    pub(crate) fn ledger_bytes(&self) -> usize {
        self.ledger.memory_bytes()
    }
}

impl Owner for DeadLetters {
    fn has_work(&self, conditions: &Conditions<'_>) -> bool {
        let journal = conditions.journal;
        (self.has_any_to_send() && !self.is_waiting && conditions.may_pass_on())
            || self.lines.has_anew()
            || self.lines.can_let_pass(|logs| journal.is_full(logs))
            || (self.may_try_again() && !journal.closes())
    }

    fn owes(&self) -> bool {
        self.sources().any(|source| !source.is_kept())
    }

    fn changes_logs(&self) -> bool {
        !self.is_empty() || !self.ledger.is_empty()
    }

    fn waits_for_room(&self) -> bool {
        self.lines.waits()
    }

    fn has_of(&self, queue: QueueId) -> bool {
        self.next.iter().any(|letter| letter.source.queue == queue)
            || self.lines.has_of(queue)
            || self.ledger.has_of(queue)
    }
}

#[cfg(test)]
mod tests {
    use lepus_base::{Instant, Position};

    use super::*;
    use crate::queue::Place;

    /// A message of a queue that has expired there.
    pub(super) fn letter_of(queue: u64, seq: u64) -> DeadLetter {
        let entry = Entry {
            seq,
            deadline: Instant::NEVER,
            place: Place::logged(Position(0), false),
            bytes: 1,
            delivery_count: 0,
            priority: 0,
            redelivered: false,
        };
        let queue = QueueId(queue);
        let source = Source { queue, log: 0, lane: None, entry, was_delivered: false };
        DeadLetter { source, reason: Reason::Expired, progress: None, turn: 0, before: None }
    }
}
