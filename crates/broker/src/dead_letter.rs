//! Messages on their way from a queue to its dead-letter exchange.
//!
//! A message in the log stays there, unsettled, until every queue that gets it has it: in the same
//! log the order of records sees to that, elsewhere the ledger waits for reports. A crash in
//! between leaves it in both places, never in none. Those of a queue whose letters must arrive wait
//! there, too, until a queue takes them (`held.rs`).

mod attempts;
mod held;
mod ledger;
mod roomless;
mod sender;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use held::Progress;
use ledger::{Ledger, Waiting};
use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Now, QueueId};
use lepus_store::LaneSlot;
use roomless::Roomless;
use sender::{Sender, loose_letters_of, sender_of, sure_letters_of};
pub(crate) use sender::{delayed_of, letters_of, must_arrive};

use crate::broker::Broker;
use crate::channel::Target;
use crate::effort::{MESSAGE_BYTES, TARGETS_AT_ONCE_MAX, first};
use crate::journal::{Found, LETTERS, Need, Occupied, Reader, Room};
use crate::mail::{ChannelRef, LETTERS_CONNECTION, Receipt, Terms};
use crate::message::{Incoming, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::owner::{Conditions, Owner};
use crate::properties::{Cycles, DEATHS_MAX, Death, further_keys, with_death};
use crate::queue::{Entry, Reason};
use crate::routing_keys::RoutingKeys;

/// Dead letters that may wait before queues stop producing more.
const WAITING_MAX: usize = 1024;
/// Dead letters handled in one go before other work gets its turn.
const DEAD_LETTERS_AT_ONCE_MAX: usize = 256;
/// Room for so many dead letters is kept for the next ones.
const SPARE_LETTERS_MAX: usize = 4096;
/// Of the memory that there may be so big a part takes what is on its way to very many queues and waits.
const WAITING_PART: usize = 16;
/// Bytes of properties that are as dear to read and write anew as a queue is to reach, about.
const PROPERTY_BYTES: usize = 128;
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
}

impl DeadLetter {
    /// Whether some of its queues were asked in this attempt: it goes on before others begin.
    fn is_under_way(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.is_addressed())
    }

    /// Whether all its queues were asked and have reported.
    fn is_over(&self) -> bool {
        self.progress.as_ref().is_some_and(|it| it.is_addressed() && !it.has_rest())
    }
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
}

impl DeadLetters {
    /// A message leaves a queue otherwise than by acknowledgement.
    pub(crate) fn push(&mut self, source: Source, reason: Reason) {
        self.next.push_back(DeadLetter { source, reason, progress: None, turn: 0 });
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

    /// How many are sent next.
    #[must_use]
    pub fn len(&self) -> usize {
        self.next.len()
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
        self.next.capacity() * size_of::<DeadLetter>() + self.lines.memory_bytes()
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

impl Broker {
    /// Routes some of the waiting dead letters. True when more wait and can go on.
    pub(crate) fn route_dead_letters(&mut self, now: Now, out: &mut Outbox) -> bool {
        // This is asked after every call.
        if !self.edge.dead_letters.has_any_to_send()
            && !self.edge.backpressure.waits_for_dead_letters()
        {
            return false;
        }
        let mut queues = 0;
        for _ in 0..DEAD_LETTERS_AT_ONCE_MAX {
            if self.edge.dead_letters.is_waiting {
                return false;
            }
            if queues > TARGETS_AT_ONCE_MAX || self.edge.effort.is_used_up() {
                break;
            }
            if !self.conditions(out).may_pass_on() {
                // The letters stay where they are until the mail has gone.
                break;
            }
            let Some((mut letter, is_of_line)) = self.next_letter() else { break };
            if !is_of_line
                && !letter.is_under_way()
                && self.edge.dead_letters.lines.has_of(letter.source.queue)
            {
                self.edge.dead_letters.lines.push(letter);
                continue;
            }
            if letter.is_over() {
                self.end_letter(now, letter, out);
                continue;
            }
            if self.is_behind_set_aside(&letter) {
                self.edge.dead_letters.lines.wait_behind_set_aside(letter);
                continue;
            }
            let (place, size) = (letter.source.entry.place, letter.source.entry.bytes);
            let found = match place.position() {
                None => Found::Ready,
                Some(at) => self
                    .journal
                    .log(letter.source.log)
                    .map_or(Found::Lost, |log| log.lookup(at, size, LETTERS, &mut out.disk)),
            };
            match found {
                Found::Ready => queues += self.send_letter(now, letter, out),
                Found::Pending => {
                    match is_of_line {
                        true => self.edge.dead_letters.lines.put_back(letter),
                        false => self.edge.dead_letters.next.push_front(letter),
                    }
                    self.edge.dead_letters.is_waiting = true;
                    return false;
                }
                Found::Lost => {
                    self.let_go(&mut letter);
                    self.keep_source(&letter.source);
                }
            }
        }
        // Whatever ended the loop: behind the last letter nobody comes by for those who wait.
        if !self.edge.dead_letters.has_any_to_send() && !self.edge.dead_letters.is_waiting {
            self.letters_go_on(now, out);
        }
        self.edge.dead_letters.has_any_to_send()
    }

    /// Takes the letter that is next, and says whether it comes from the front of its queue's line.
    fn next_letter(&mut self) -> Option<(DeadLetter, bool)> {
        let edge = &mut self.edge;
        let first = edge.dead_letters.next.front();
        if !first.is_some_and(DeadLetter::is_under_way)
            && edge.dead_letters.lines.is_next(first.is_some())
            && let Some((letter, woken)) = edge.dead_letters.lines.take()
        {
            for queue in woken {
                edge.backpressure.wait_behind_dead_letters(queue);
            }
            return Some((letter, true));
        }
        edge.dead_letters.next.pop_front().map(|letter| (letter, false))
    }

    /// Lets those letters go on that waited for room in a log, as far as there is some.
    pub(crate) fn give_letters_room(&mut self) {
        self.edge.dead_letters.lines.let_some_look_anew();
        let journal = &mut self.journal;
        let has_room = |need, frees| !journal.must_wait_to_pass_on(need, frees);
        self.edge.dead_letters.lines.give_room(has_room);
        let journal = &self.journal;
        self.edge.dead_letters.lines.let_pass(|logs| journal.is_full(logs));
    }

    /// Sends a letter, or has it wait. What that cost, in queues.
    fn send_letter(&mut self, now: Now, letter: DeadLetter, out: &mut Outbox) -> usize {
        let frees = letter.source.occupied().frees();
        self.journal.set_passing(frees, true);
        let cost = self.pass_letter_on(now, letter, out);
        self.journal.set_passing(frees, false);
        cost
    }

    fn pass_letter_on(&mut self, now: Now, mut letter: DeadLetter, out: &mut Outbox) -> usize {
        if self.must_arrive(&letter) {
            if letter.progress.is_none() {
                self.edge.counters.count_dead_letter(letter.reason);
            }
            return self.send_surely(now, letter, out);
        }
        self.let_go(&mut letter);
        let routed = self.route_dead_letter(now, &letter, true, out);
        let cost = routed.as_ref().map_or(1, |(packed, targets)| cost_of(packed, targets.len()));
        if let Some((packed, targets)) = &routed {
            let is_wide = targets.len() > TARGETS_AT_ONCE_MAX;
            if is_wide && !self.edge.dead_letters.lines.may_pass() {
                self.edge.dead_letters.lines.wait_for_turn(letter);
                return cost;
            }
            let from = loose_letters_of(self.edge.shard, letter.source.queue);
            let terms = terms_of(&letter.source, packed, from);
            let incoming = Incoming::new(MessageView::unpack(packed));
            let occupied = letter.source.occupied();
            let first = first(targets);
            let room = match self.room_behind_others(&letter, &incoming, terms.persistent, first) {
                Some(need) => Room::Later(need),
                None => self.room_to_pass_on(&incoming, terms.persistent, first, occupied),
            };
            match room {
                Room::Later(need) => {
                    let queues = first.iter().map(|target| target.queue).collect();
                    self.let_letter_wait(letter, need, queues);
                    return cost;
                }
                Room::Never(bytes) if letter.source.is_kept() => {
                    let text = alloc::format!(
                        "a dead letter of {} takes {bytes} bytes in the log, more than may be \
                         stored while it holds the message itself: it stays there and is sent \
                         after the next start, if store.bytes_max is raised until then",
                        self.describe_queue(letter.source.queue)
                    );
                    out.log(Severity::Warning, "dead-letter-too-large", text);
                }
                _ => {}
            }
        }
        self.edge.counters.count_dead_letter(letter.reason);
        match routed {
            Some((packed, targets)) if !targets.is_empty() => {
                if targets.len() > TARGETS_AT_ONCE_MAX {
                    self.edge.dead_letters.lines.pass(letter.source.queue);
                }
                let from = loose_letters_of(self.edge.shard, letter.source.queue);
                let terms = terms_of(&letter.source, &packed, from);
                self.pass_on(now, letter.source, &packed, &targets, terms, out);
            }
            _ => self.settle_source(letter.source),
        }
        cost
    }

    /// Has a letter wait for room, which these queues need.
    fn let_letter_wait(&mut self, letter: DeadLetter, need: Need, queues: Vec<QueueId>) {
        let is_full = self.journal.is_full(need.logs);
        self.edge.dead_letters.lines.wait(letter, need, queues, is_full);
    }

    /// What a letter needs, if it has to wait behind one of its queue that waits for no more than that in the same
    /// logs. One that needs less passes it.
    fn room_behind_others(
        &mut self,
        letter: &DeadLetter,
        incoming: &Incoming<'_>,
        persistent: bool,
        targets: &[Target],
    ) -> Option<Need> {
        let (lines, source) = (&self.edge.dead_letters.lines, &letter.source);
        // What is left of a queue that is gone goes nowhere.
        if !lines.has_roomless_of(source.queue)
            || self.directory.queue_by_id(source.queue).is_none()
        {
            return None;
        }
        let mut spilling = Vec::new();
        let need = self.need_to_pass_on(incoming, persistent, targets, &mut spilling)?;
        if !lines.is_behind(source, letter.turn, need) {
            return None;
        }
        self.spilling.extend(spilling);
        Some(need)
    }

    /// Whether a letter stays with its queue until all that get it have it.
    fn must_arrive(&self, letter: &DeadLetter) -> bool {
        let info = self.directory.queue_by_id(letter.source.queue);
        info.is_some_and(|info| info.settings().at_least_once)
    }

    /// All queues of a letter that must arrive have reported.
    fn end_letter(&mut self, now: Now, mut letter: DeadLetter, out: &mut Outbox) {
        if self.must_arrive(&letter) {
            return self.end_attempt(now, letter, out);
        }
        // Its queue is gone.
        self.let_go(&mut letter);
        self.settle_source(letter.source);
    }

    /// Puts a message into queues; its source keeps it until all of them have it. Where they are very
    /// many it becomes a job, and [`Broker::passed_on`] is called when that is done.
    pub(crate) fn pass_on(
        &mut self,
        now: Now,
        source: Source,
        packed: &[u8],
        targets: &[Target],
        terms: Terms,
        out: &mut Outbox,
    ) {
        if targets.len() > TARGETS_AT_ONCE_MAX {
            return self.pass_on_in_slices(source, packed, targets, terms);
        }
        let goes_far = targets.iter().any(|target| self.is_far(target)) || self.journal.len() > 1;
        let waits = goes_far && source.is_kept();
        let number = waits.then(|| self.edge.dead_letters.ledger.next_number());
        let terms = Terms { number, ..terms };
        let mut incoming = Incoming::new(MessageView::unpack(packed));
        let routed = self.enqueue_all(now, &mut incoming, targets, terms, out);
        incoming.finish(&mut self.edge.pool);
        let missing = routed.remote + routed.logs;
        // The log has stopped, or closes: the source keeps it for the next run.
        let is_kept = routed.receipt == Receipt::Unlogged && source.lane.is_some();
        match number {
            Some(number) if missing > 0 => {
                self.edge
                    .dead_letters
                    .ledger
                    .waiting
                    .insert(number, Waiting { source, missing, is_kept });
            }
            _ if is_kept => self.edge.dead_letters.ledger.kept.push(source),
            _ => self.settle_source(source),
        }
    }

    fn pass_on_in_slices(
        &mut self,
        source: Source,
        packed: &[u8],
        targets: &[Target],
        terms: Terms,
    ) {
        if !source.is_kept() {
            self.settle_source(source);
            return self.jobs.start_passing_on(&mut self.edge.pool, packed, terms, targets, None);
        }
        // One report is that of the job itself.
        let (number, frees) =
            (self.edge.dead_letters.ledger.next_number(), source.occupied().frees());
        self.edge
            .dead_letters
            .ledger
            .waiting
            .insert(number, Waiting { source, missing: 1, is_kept: false });
        self.jobs.start_passing_on(
            &mut self.edge.pool,
            packed,
            Terms { number: Some(number), ..terms },
            targets,
            frees,
        );
    }

    /// What those who sent it pass on to very many queues takes so many bytes and can only wait: it gives its turn
    /// to the next.
    pub(crate) fn give_turn_away(&mut self, from: ChannelRef, bytes: usize) {
        let max = self.waiting_bytes_max();
        match sender_of(from) {
            Sender::Exchange(id) => self.delayed.give_turn_away(id, bytes, max),
            Sender::Queue(queue) => self.edge.dead_letters.lines.give_turn_away(queue, bytes, max),
        }
    }

    /// Bytes of messages on their way to very many queues that may wait, above which they keep their turns.
    pub(super) fn waiting_bytes_max(&self) -> usize {
        self.edge.loan.obtainable / WAITING_PART
    }

    /// Very many queues have what was passed on to them: the next message of those who sent it may
    /// follow.
    pub(crate) fn passed_on(&mut self, from: ChannelRef) {
        match sender_of(from) {
            Sender::Exchange(id) => self.delayed.passed(id),
            Sender::Queue(queue) => self.edge.dead_letters.lines.passed(queue),
        }
    }

    /// What was set aside of a queue's dead letters, or of a delayed exchange's messages, and had no room
    /// then, is in its queues: the next ones may follow.
    pub(crate) fn set_aside_over(&mut self, from: ChannelRef) {
        match sender_of(from) {
            Sender::Exchange(id) => self.delayed.set_aside_over(id),
            Sender::Queue(queue) => self.edge.dead_letters.lines.set_aside_over(queue),
        }
    }

    /// Whether an earlier letter of the same queue was set aside while one of its queues moved, and has had
    /// no room since: this one is not to overtake it.
    fn is_behind_set_aside(&self, letter: &DeadLetter) -> bool {
        if self.postponed.is_empty() || letter.is_under_way() {
            return false;
        }
        let queue = letter.source.queue;
        // What is left of a queue that is gone goes nowhere.
        self.directory.queue_by_id(queue).is_some() && self.has_postponed_letters_of(queue)
    }

    /// Whether dead letters of a queue of this shard that were set aside wait for room.
    pub(crate) fn has_postponed_letters_of(&self, queue: QueueId) -> bool {
        let mut senders = letters_of(self.edge.shard, queue).into_iter();
        senders.any(|sender| self.postponed.has_from(sender))
    }

    /// What a message takes in the log that it is passed on from by this shard, until its queues have it.
    pub(crate) fn occupied_by(&self, terms: &Terms) -> Occupied {
        match terms.number {
            Some(number)
                if terms.from.connection == LETTERS_CONNECTION
                    && terms.from.shard == self.edge.shard =>
            {
                self.edge.dead_letters.ledger.occupied(terms.from, number)
            }
            _ => Occupied::default(),
        }
    }

    /// The message is where it is to be, or nowhere: its source lets go of it.
    pub(crate) fn settle_source(&mut self, source: Source) {
        self.delayed.settled(source.queue, source.log, source.entry.seq);
        let home = self.home_slot(source.queue, u32::MAX);
        if let Some(home) = home {
            self.homes[home as usize].queue.letter_settled(&source.entry);
        }
        if let Some(body) = source.entry.place.body() {
            return self.edge.pool.release(body);
        }
        // With its queue or exchange the lane went, and its number may mean another one.
        if (home.is_some() || self.delayed.holds(source.queue))
            && let Some(lane) = source.lane
            && let Some(log) = self.journal.log(source.log)
        {
            log.settle(lane, &source.entry);
        }
    }

    /// A message that was to be passed on is damaged: it stays in the log it came from, and nobody is given
    /// it.
    pub(crate) fn keep_source(&mut self, source: &Source) {
        self.delayed.settled(source.queue, source.log, source.entry.seq);
        let home = self.home_slot(source.queue, u32::MAX);
        if let Some(home) = home {
            self.homes[home as usize].queue.letter_settled(&source.entry);
        }
        if (home.is_some() || self.delayed.holds(source.queue))
            && let Some(lane) = source.lane
            && let Some(log) = self.journal.log(source.log)
        {
            log.set_aside(lane, &source.entry);
        }
    }

    /// Whether a queue reports what it has: it is elsewhere, or on its way.
    fn is_far(&self, target: &Target) -> bool {
        target.home != self.edge.shard || self.migrations.rests(target.queue).is_some()
    }

    /// So many queues elsewhere say what became of dead letters. Of those that need not arrive, one
    /// that no log takes is kept by its source for the next run; one that a queue refuses is gone.
    pub(crate) fn letters_reported(
        &mut self,
        to: ChannelRef,
        (first, last): (u64, u64),
        queues: u32,
        receipt: Receipt,
    ) {
        let is_kept = receipt == Receipt::Unlogged;
        for number in first..=last {
            if must_arrive(to) {
                self.reported_surely(number, receipt != Receipt::Taken);
            } else if let Some(source) =
                self.edge.dead_letters.ledger.report(number, queues, is_kept)
            {
                self.settle_source(source);
            }
        }
    }

    /// Writes one dead letter as it is to be from now on, packed, and finds where it goes if that `is_asked`;
    /// `None` if its queue is gone or it cannot become a dead letter.
    fn route_dead_letter(
        &mut self,
        now: Now,
        letter: &DeadLetter,
        is_asked: bool,
        out: &mut Outbox,
    ) -> Option<(Vec<u8>, Vec<Target>)> {
        let info = self.directory.queue_by_id(letter.source.queue)?;
        let exchange = info.settings().dead_letter_exchange.clone()?;
        let vhost = info.vhost;
        let place = letter.source.entry.place;
        let view = match (place.body(), place.position()) {
            (Some(body), _) => MessageView::unpack(self.edge.pool.get(body)),
            (None, at) => self.journal.view(letter.source.log, at?)?,
        };
        let old_exchange = core::str::from_utf8(view.exchange).ok()?;
        let old_key = core::str::from_utf8(view.routing_key).ok()?;
        let own_key = info.settings().dead_letter_routing_key.as_deref();
        let death = Death {
            queue: info.name(),
            reason: letter.reason,
            exchange: old_exchange,
            routing_key: old_key,
            time_seconds: now.wall_millis / 1000,
            is_rerouted: own_key.is_some(),
        };
        let properties = with_death(view.properties, &death)?;
        let key = own_key.unwrap_or(old_key);
        let (mut targets, mut is_too_far) = (Vec::new(), false);
        if is_asked {
            let mut routes = core::mem::take(&mut self.routes);
            routes.clear();
            let copies = further_keys(&properties);
            self.directory.route_dead_letter(
                vhost,
                &exchange,
                RoutingKeys { first: key, further: &copies },
                PropertiesRef(&properties),
                &mut self.rng,
                &mut routes,
            );
            self.edge.effort.spend(routes.steps());
            self.resolve(&routes, &mut targets);
            is_too_far = routes.are_too_far();
            self.routes = routes;
        }
        if letter.reason != Reason::Rejected && !targets.is_empty() {
            let cycles = Cycles::of(&properties);
            let is_first_try = letter.progress.is_none();
            if cycles.is_too_long && is_first_try {
                let text = alloc::format!(
                    "message dropped in queue '{}': it was dead-lettered {DEATHS_MAX} times without a \
                     client having rejected it",
                    death.queue
                );
                out.log(Severity::Warning, "dead-letter-cycle", text);
            }
            targets.retain(|target| {
                let Some(info) = self.directory.queue_by_id(target.queue) else { return false };
                let closes = cycles.end_in(info.name());
                if closes && is_first_try && !cycles.is_too_long {
                    let text = alloc::format!(
                        "message dropped: dead-lettering it from queue '{}' into '{}' again would go round for ever",
                        death.queue, info.name()
                    );
                    out.log(Severity::Warning, "dead-letter-cycle", text);
                }
                !closes
            });
        }
        let view = MessageView {
            exchange: exchange.as_bytes(),
            routing_key: key.as_bytes(),
            properties: &properties,
            body: view.body,
            wire: None,
        };
        // The bytes leave pool and log before these are written to.
        let mut packed = Vec::new();
        if !targets.is_empty() || !is_asked {
            view.append_packed(&mut packed);
        }
        self.edge.effort.spend_on_queues(cost_of(&packed, 0));
        if is_too_far {
            self.tell_too_far(now, &exchange, out);
        }
        Some((packed, targets))
    }
}

/// What it costs to write a dead letter anew and to pass it on to so many queues, in queues.
fn cost_of(packed: &[u8], queues: usize) -> usize {
    let properties = MessageView::unpack(packed).properties.len();
    1 + queues + properties / PROPERTY_BYTES + packed.len() / MESSAGE_BYTES
}

/// With what a packed dead letter is put into queues.
fn terms_of(source: &Source, packed: &[u8], from: ChannelRef) -> Terms {
    let properties = PropertiesRef(MessageView::unpack(packed).properties);
    Terms {
        persistent: properties.is_persistent(),
        priority: source.entry.priority,
        expiration: None,
        from,
        number: None,
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
        DeadLetter { source, reason: Reason::Expired, progress: None, turn: 0 }
    }
}
