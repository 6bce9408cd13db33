//! Messages on their way from a queue to its dead-letter exchange.
//!
//! A message in the log stays there, unsettled, until every queue that gets it has it: in the same
//! log the order of records sees to that, elsewhere the ledger waits for reports. A crash in
//! between leaves it in both places, never in none. Those of a queue whose letters must arrive wait
//! there, too, until a queue takes them (`held.rs`).

mod attempts;
mod held;
mod roomless;
mod sender;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use held::{Progress, Shelf};
use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Now, QueueId};
use lepus_store::LaneSlot;
pub(crate) use roomless::Roomless;
use sender::{Sender, letters_of, sender_of, sure_letters_of};
pub(crate) use sender::{delayed_of, must_arrive};

use crate::broker::Broker;
use crate::channel::Target;
use crate::effort::{MESSAGE_BYTES, TARGETS_AT_ONCE_MAX, first};
use crate::journal::{Found, LETTERS, Need, Occupied, Room};
use crate::mail::{ChannelRef, LETTERS_CONNECTION, Receipt, Terms};
use crate::message::{Incoming, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::properties::{Cycles, DEATHS_MAX, Death, further_keys, with_death};
use crate::queue::{Entry, Reason};
use crate::routing_keys::RoutingKeys;

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

/// Messages whose queues elsewhere have yet to report: only then are they settled where they were.
#[derive(Debug, Default)]
pub struct Ledger {
    waiting: BTreeMap<u64, Waiting>,
    /// Those that a log did not take: they stay where they are for the next run.
    kept: Vec<Source>,
    /// Dead letters that must arrive and have not yet.
    shelf: Shelf,
    last: u64,
}

/// A message under way.
#[derive(Debug)]
struct Waiting {
    source: Source,
    /// Reports that are still missing.
    missing: u32,
    /// A log did not take it.
    is_kept: bool,
}

impl Ledger {
    /// Whether none waits for a report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.shelf.has_asked()
    }

    /// How many wait for a report.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Those that stay where they are, in queues of one log, with their lanes.
    pub(crate) fn kept(&self, log: u16) -> impl Iterator<Item = (&Source, LaneSlot)> {
        let stays = self.kept.iter().chain(self.shelf.held());
        let kept = stays.filter(move |source| source.log == log);
        kept.filter_map(|source| Some((source, source.lane?)))
    }

    /// Whether one of this queue waits for a report, or stays.
    pub(crate) fn has_of(&self, queue: QueueId) -> bool {
        self.shelf.has_of(queue) || self.loose().any(|source| source.queue == queue)
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.waiting.len() + self.kept.len()) * size_of::<Waiting>() + self.shelf.memory_bytes()
    }

    /// Where all are.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.loose().chain(self.shelf.sources())
    }

    /// Those that need not arrive.
    fn loose(&self) -> impl Iterator<Item = &Source> {
        self.waiting.values().map(|waiting| &waiting.source).chain(&self.kept)
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// What a message takes in the log that it is in, of which a report under this number is missing.
    fn occupied(&self, to: ChannelRef, number: u64) -> Occupied {
        let source = match must_arrive(to) {
            true => self.shelf.asked_of(number),
            false => self.waiting.get(&number).map(|waiting| &waiting.source),
        };
        source.map_or(Occupied::default(), Source::occupied)
    }

    /// So many more reports of a message are to come.
    pub(crate) fn expect(&mut self, number: u64, more: u32) {
        if let Some(waiting) = self.waiting.get_mut(&number) {
            waiting.missing += more;
        }
    }

    /// So many reports have come; the source, if they were the last and all have it.
    fn report(&mut self, number: u64, reports: u32, is_kept: bool) -> Option<Source> {
        let waiting = self.waiting.get_mut(&number)?;
        waiting.missing -= reports;
        waiting.is_kept |= is_kept;
        if waiting.missing > 0 {
            return None;
        }
        let Waiting { source, is_kept, .. } = self.waiting.remove(&number)?;
        if is_kept {
            self.kept.push(source);
            return None;
        }
        Some(source)
    }
}

impl Broker {
    /// Routes some of the waiting dead letters. True when more wait and can go on.
    pub(crate) fn route_dead_letters(&mut self, now: Now, out: &mut Outbox) -> bool {
        // This is asked after every call.
        if !self.edge.has_letters_to_send() && self.edge.behind_letters.is_empty() {
            return false;
        }
        let mut queues = 0;
        for _ in 0..DEAD_LETTERS_AT_ONCE_MAX {
            if self.edge.letters_wait {
                return false;
            }
            if queues > TARGETS_AT_ONCE_MAX || self.edge.effort.is_used_up() {
                break;
            }
            if !self.has_room_for_letters(out) {
                // The letters stay where they are until the mail has gone.
                break;
            }
            let Some((mut letter, is_of_line)) = self.next_letter() else { break };
            if !is_of_line
                && !letter.is_under_way()
                && self.edge.roomless_letters.has_of(letter.source.queue)
            {
                self.edge.roomless_letters.push(letter);
                continue;
            }
            if letter.is_over() {
                self.end_letter(now, letter, out);
                continue;
            }
            if self.is_behind_set_aside(&letter) {
                self.edge.roomless_letters.wait_behind_set_aside(letter);
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
                        true => self.edge.roomless_letters.put_back(letter),
                        false => self.edge.dead_letters.push_front(letter),
                    }
                    self.edge.letters_wait = true;
                    return false;
                }
                Found::Lost => {
                    self.let_go(&mut letter);
                    self.keep_source(&letter.source);
                }
            }
        }
        // Whatever ended the loop: behind the last letter nobody comes by for those who wait.
        if !self.edge.has_letters_to_send() && !self.edge.letters_wait {
            self.letters_go_on(now, out);
        }
        self.edge.has_letters_to_send()
    }

    /// Gives the memory of a long list back when all its letters are gone.
    pub(crate) fn trim_letters(&mut self) {
        let letters = &mut self.edge.dead_letters;
        if letters.is_empty() && letters.capacity() > SPARE_LETTERS_MAX {
            *letters = VecDeque::new();
        }
    }

    /// Takes the letter that is next, and says whether it comes from the front of its queue's line.
    fn next_letter(&mut self) -> Option<(DeadLetter, bool)> {
        let edge = &mut self.edge;
        let first = edge.dead_letters.front();
        if !first.is_some_and(DeadLetter::is_under_way)
            && edge.roomless_letters.is_next(first.is_some())
            && let Some((letter, mut woken)) = edge.roomless_letters.take()
        {
            edge.behind_letters.append(&mut woken);
            return Some((letter, true));
        }
        edge.dead_letters.pop_front().map(|letter| (letter, false))
    }

    /// Lets those letters go on that waited for room in a log, as far as there is some.
    pub(crate) fn give_letters_room(&mut self) {
        self.edge.roomless_letters.let_some_look_anew();
        let journal = &mut self.journal;
        let has_room = |need, frees| !journal.must_wait_to_pass_on(need, frees);
        self.edge.roomless_letters.give_room(has_room);
        let journal = &self.journal;
        self.edge.roomless_letters.let_pass(|logs| journal.is_full(logs));
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
            if is_wide && !self.edge.roomless_letters.may_pass() {
                self.edge.roomless_letters.wait_for_turn(letter);
                return cost;
            }
            let from = letters_of(self.edge.shard, letter.source.queue);
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
                    self.edge.roomless_letters.pass(letter.source.queue);
                }
                let from = letters_of(self.edge.shard, letter.source.queue);
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
        self.edge.roomless_letters.wait(letter, need, queues, is_full);
    }

    /// Whether letters wait behind one that waits for room, and may pass it by now.
    pub(crate) fn may_letters_pass(&self) -> bool {
        self.edge.roomless_letters.can_let_pass(|logs| self.journal.is_full(logs))
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
        let (lines, source) = (&self.edge.roomless_letters, &letter.source);
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

    /// Whether so little mail waits that dead letters may be sent.
    pub(crate) fn has_room_for_letters(&self, out: &Outbox) -> bool {
        let limit = 2 * self.edge.limits.mail_batch_bytes_max;
        out.mail.iter().all(|batch| batch.weight() <= limit)
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
        let number = waits.then(|| self.ledger.next_number());
        let terms = Terms { number, ..terms };
        let mut incoming = Incoming::new(MessageView::unpack(packed));
        let routed = self.enqueue_all(now, &mut incoming, targets, terms, out);
        incoming.finish(&mut self.edge.pool);
        let missing = routed.remote + routed.logs;
        // The log has stopped, or closes: the source keeps it for the next run.
        let is_kept = routed.receipt == Receipt::Unlogged && source.lane.is_some();
        match number {
            Some(number) if missing > 0 => {
                self.ledger.waiting.insert(number, Waiting { source, missing, is_kept });
            }
            _ if is_kept => self.ledger.kept.push(source),
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
            return self.start_passing_on(packed, terms, targets, None);
        }
        // One report is that of the job itself.
        let (number, frees) = (self.ledger.next_number(), source.occupied().frees());
        self.ledger.waiting.insert(number, Waiting { source, missing: 1, is_kept: false });
        self.start_passing_on(packed, Terms { number: Some(number), ..terms }, targets, frees);
    }

    /// What those who sent it pass on to very many queues takes so many bytes and can only wait: it gives its turn
    /// to the next.
    pub(crate) fn give_turn_away(&mut self, from: ChannelRef, bytes: usize) {
        let max = self.waiting_bytes_max();
        match sender_of(from) {
            Sender::Exchange(id) => self.delayed.give_turn_away(id, bytes, max),
            Sender::Queue(queue) => self.edge.roomless_letters.give_turn_away(queue, bytes, max),
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
            Sender::Queue(queue) => self.edge.roomless_letters.passed(queue),
        }
    }

    /// What was set aside of a queue's dead letters, or of a delayed exchange's messages, and had no room
    /// then, is in its queues: the next ones may follow.
    pub(crate) fn set_aside_over(&mut self, from: ChannelRef) {
        match sender_of(from) {
            Sender::Exchange(id) => self.delayed.set_aside_over(id),
            Sender::Queue(queue) => self.edge.roomless_letters.set_aside_over(queue),
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
        let shard = self.edge.shard;
        self.postponed.has_from(letters_of(shard, queue))
            || self.postponed.has_from(sure_letters_of(shard, queue))
    }

    /// What a message takes in the log that it is passed on from by this shard, until its queues have it.
    pub(crate) fn occupied_by(&self, terms: &Terms) -> Occupied {
        match terms.number {
            Some(number)
                if terms.from.connection == LETTERS_CONNECTION
                    && terms.from.shard == self.edge.shard =>
            {
                self.ledger.occupied(terms.from, number)
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
            } else if let Some(source) = self.ledger.report(number, queues, is_kept) {
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
