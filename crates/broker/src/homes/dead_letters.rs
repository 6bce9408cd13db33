//! Dead letters go to the queues that get them, and messages of delayed exchanges with them: what is passed on.

pub(crate) mod sure;

use alloc::vec::Vec;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::Now;
use lepus_store::LaneSlot;

use crate::channel::Target;
use crate::dead_letter::{
    Buffers, DeadLetter, Deaths, DestinationRef, Routed, Sender, Source, end_cycles,
    loose_letters_of, sender_of,
};
use crate::directory::Message;
use crate::effort::{MESSAGE_BYTES, TARGETS_AT_ONCE_MAX, first};
use crate::homes::HomeSide;
use crate::journal::{Found, LETTERS, Log, Need, Occupied, Room};
use crate::mail::{ChannelRef, LETTERS_CONNECTION, Receipt, Terms};
use crate::message::{Incoming, Layout, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::properties::{Death, further_keys, has_genuine_deaths};
use crate::publish::resolve;
use crate::queue::{NoSink, command};
use crate::routing_keys::RoutingKeys;

/// Dead letters handled in one go before other work gets its turn.
pub(crate) const DEAD_LETTERS_AT_ONCE_MAX: usize = 256;

/// Bytes of properties that are as dear to read and write anew as a queue is to reach, about.
pub(crate) const PROPERTY_BYTES: usize = 128;

/// What it costs to write a dead letter anew and to pass it on to so many queues, in queues.
pub(crate) fn cost_of(packed: &[u8], queues: usize) -> usize {
    let properties = MessageView::unpack(packed).properties.len();
    1 + queues + properties / PROPERTY_BYTES + packed.len() / MESSAGE_BYTES
}

/// With what a packed dead letter is put into queues.
pub(crate) fn terms_of(source: &Source, packed: &[u8], from: ChannelRef) -> Terms {
    let properties = PropertiesRef(MessageView::unpack(packed).properties);
    Terms {
        persistent: properties.is_persistent(),
        priority: source.entry.priority,
        expiration: None,
        from,
        number: None,
    }
}

impl HomeSide<'_> {
    /// Routes some of the waiting dead letters. True when more wait and can go on.
    pub(crate) fn route_dead_letters(&mut self, now: Now, out: &mut Outbox) -> bool {
        // This is asked after every call.
        if !self.homes.dead_letters.has_any_to_send()
            && !self.shard.backpressure.waits_for_dead_letters()
        {
            return false;
        }
        let mut queues = 0;
        for _ in 0..DEAD_LETTERS_AT_ONCE_MAX {
            if self.homes.dead_letters.is_waiting() {
                return false;
            }
            if queues > TARGETS_AT_ONCE_MAX || self.shard.effort.is_used_up() {
                break;
            }
            if !self.shard.conditions(self.journal, out).may_pass_on() {
                // The letters stay where they are until the mail has gone.
                break;
            }
            let Some(taken) = self.homes.dead_letters.take_next() else { break };
            for queue in taken.woken {
                self.shard.backpressure.wait_behind_dead_letters(queue);
            }
            let is_of_line = taken.is_of_line;
            let lined_up = self.homes.dead_letters.line_up(taken.letter, is_of_line);
            let Some(mut letter) = lined_up else { continue };
            if letter.is_over() {
                self.end_letter(now, letter, out);
                continue;
            }
            if self.is_behind_set_aside(&letter) {
                self.homes.dead_letters.wait_behind_set_aside(letter);
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
                    self.homes.dead_letters.wait_for_read(letter, is_of_line);
                    return false;
                }
                Found::Lost => {
                    self.homes.dead_letters.let_go(&mut letter);
                    self.keep_source(now, &letter.source);
                }
            }
        }
        // Whatever ended the loop: behind the last letter nobody comes by for those who wait.
        if !self.homes.dead_letters.has_any_to_send() && !self.homes.dead_letters.is_waiting() {
            self.letters_go_on(now, out);
        }
        self.homes.dead_letters.has_any_to_send()
    }

    /// Sends a letter, or has it wait. What that cost, in queues.
    pub(crate) fn send_letter(&mut self, now: Now, letter: DeadLetter, out: &mut Outbox) -> usize {
        let frees = letter.source.occupied().frees();
        self.journal.set_passing(frees, true);
        let cost = self.pass_letter_on(now, letter, out);
        self.journal.set_passing(frees, false);
        cost
    }

    pub(crate) fn pass_letter_on(
        &mut self,
        now: Now,
        mut letter: DeadLetter,
        out: &mut Outbox,
    ) -> usize {
        if self.must_arrive(&letter) {
            if letter.progress.is_none() {
                self.shard.counters.count_dead_letter(letter.reason);
            }
            return self.send_surely(now, letter, out);
        }
        self.homes.dead_letters.let_go(&mut letter);
        let routed = self.route_dead_letter(now, &letter, true, out);
        let cost =
            routed.as_ref().map_or(1, |routed| cost_of(&routed.packed, routed.targets.len()));
        if let Some(Routed { packed, targets }) = &routed {
            let is_wide = targets.len() > TARGETS_AT_ONCE_MAX;
            if is_wide && !self.homes.dead_letters.may_pass() {
                self.homes.dead_letters.wait_for_turn(letter);
                return cost;
            }
            let from = loose_letters_of(self.shard.id, letter.source.queue);
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
                    self.homes.dead_letters.wait_for_room(letter, need, queues, self.journal);
                    return cost;
                }
                Room::Never(bytes) if letter.source.is_kept() => {
                    let text = alloc::format!(
                        "a dead letter of {} takes {bytes} bytes in the log, more than may be \
                         stored while it holds the message itself: it stays there and is sent \
                         after the next start, if store.bytes_max is raised until then",
                        self.directory.describe_queue(letter.source.queue)
                    );
                    out.log(Severity::Warning, "dead-letter-too-large", text);
                }
                _ => {}
            }
        }
        self.shard.counters.count_dead_letter(letter.reason);
        match routed {
            Some(routed) if !routed.targets.is_empty() => {
                let Routed { packed, targets } = &routed;
                if targets.len() > TARGETS_AT_ONCE_MAX {
                    self.homes.dead_letters.pass(letter.source.queue);
                }
                let from = loose_letters_of(self.shard.id, letter.source.queue);
                let terms = terms_of(&letter.source, packed, from);
                self.pass_on(now, letter.source, packed, targets, terms, out);
                self.homes.dead_letters.use_again(routed);
            }
            _ => self.settle_source(now, letter.source),
        }
        cost
    }

    /// What a letter needs, if it has to wait behind one of its queue that waits for no more than that in the same
    /// logs. One that needs less passes it.
    pub(crate) fn room_behind_others(
        &mut self,
        letter: &DeadLetter,
        incoming: &Incoming<'_>,
        persistent: bool,
        targets: &[Target],
    ) -> Option<Need> {
        let (letters, queue) = (&self.homes.dead_letters, letter.source.queue);
        // What is left of a queue that is gone goes nowhere.
        if !letters.has_roomless_of(queue) || self.directory.queue_by_id(queue).is_none() {
            return None;
        }
        let mut spilling = Vec::new();
        let need = self.need_to_pass_on(incoming, persistent, targets, &mut spilling)?;
        if !letters.is_behind(letter, need) {
            return None;
        }
        self.homes.spilling.extend(spilling);
        Some(need)
    }

    /// Whether a letter stays with its queue until all that get it have it.
    pub(crate) fn must_arrive(&self, letter: &DeadLetter) -> bool {
        self.destination_of(letter).is_some_and(|destination| destination.at_least_once)
    }

    /// Where a letter goes; `None` if its queue is gone.
    fn destination_of<'b>(&'b self, letter: &'b DeadLetter) -> Option<DestinationRef<'b>> {
        let settings = self.settings_of(letter.source.queue)?;
        Some(letter.destination(DestinationRef::of(settings)))
    }

    /// All queues of a letter that must arrive have reported.
    pub(crate) fn end_letter(&mut self, now: Now, mut letter: DeadLetter, out: &mut Outbox) {
        if self.must_arrive(&letter) {
            return self.end_attempt(now, letter, out);
        }
        // Its queue is gone.
        self.homes.dead_letters.let_go(&mut letter);
        self.settle_source(now, letter.source);
    }

    /// Puts a message into queues; its source keeps it until all of them have it. Where they are very
    /// many it becomes a job, and [`HomeSide::passed_on`] is called when that is done.
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
            return self.pass_on_in_slices(now, source, packed, targets, terms);
        }
        let goes_far = targets.iter().any(|target| self.is_far(target)) || self.journal.len() > 1;
        let waits = goes_far && source.is_kept();
        let number = waits.then(|| self.homes.dead_letters.next_number());
        let terms = Terms { number, ..terms };
        let mut incoming = Incoming::new(MessageView::unpack(packed));
        let routed = self.enqueue_all(now, &mut incoming, targets, terms, out);
        incoming.finish(&mut self.shard.pool);
        let missing = routed.remote + routed.logs;
        // The log has stopped, or closes: the source keeps it for the next run.
        let is_kept = routed.receipt == Receipt::Unlogged && source.lane.is_some();
        match number {
            Some(number) if missing > 0 => {
                self.homes.dead_letters.await_reports(number, source, missing, is_kept);
            }
            _ if is_kept => self.homes.dead_letters.keep(source),
            _ => self.settle_source(now, source),
        }
    }

    pub(crate) fn pass_on_in_slices(
        &mut self,
        now: Now,
        source: Source,
        packed: &[u8],
        targets: &[Target],
        terms: Terms,
    ) {
        if !source.is_kept() {
            self.settle_source(now, source);
            return self.shard.jobs.start_passing_on(
                &mut self.shard.pool,
                packed,
                terms,
                targets,
                None,
            );
        }
        // One report is that of the job itself.
        let (number, frees) = (self.homes.dead_letters.next_number(), source.occupied().frees());
        self.homes.dead_letters.await_reports(number, source, 1, false);
        self.shard.jobs.start_passing_on(
            &mut self.shard.pool,
            packed,
            Terms { number: Some(number), ..terms },
            targets,
            frees,
        );
    }

    /// What those who sent it pass on to very many queues takes so many bytes and can only wait: it gives its turn
    /// to the next.
    pub(crate) fn give_turn_away(&mut self, from: ChannelRef, bytes: usize) {
        let max = self.shard.waiting_bytes_max();
        match sender_of(from) {
            Sender::Exchange(id) => self.homes.delayed.give_turn_away(id, bytes, max),
            Sender::Queue(queue) => self.homes.dead_letters.give_turn_away(queue, bytes, max),
        }
    }

    /// Very many queues have what was passed on to them: the next message of those who sent it may
    /// follow.
    pub(crate) fn passed_on(&mut self, from: ChannelRef) {
        match sender_of(from) {
            Sender::Exchange(id) => self.homes.delayed.passed(id),
            Sender::Queue(queue) => self.homes.dead_letters.passed(queue),
        }
    }

    /// What was set aside of a queue's dead letters, or of a delayed exchange's messages, and had no room
    /// then, is in its queues: the next ones may follow.
    pub(crate) fn set_aside_over(&mut self, from: ChannelRef) {
        match sender_of(from) {
            Sender::Exchange(id) => self.homes.delayed.set_aside_over(id),
            Sender::Queue(queue) => self.homes.dead_letters.set_aside_over(queue),
        }
    }

    /// Whether an earlier letter of the same queue was set aside while one of its queues moved, and has had
    /// no room since: this one is not to overtake it.
    pub(crate) fn is_behind_set_aside(&self, letter: &DeadLetter) -> bool {
        if self.homes.postponed.is_empty() || letter.is_under_way() {
            return false;
        }
        let queue = letter.source.queue;
        // What is left of a queue that is gone goes nowhere.
        self.directory.queue_by_id(queue).is_some()
            && self.homes.has_postponed_letters_of(self.shard.id, queue)
    }

    /// What a message takes in the log that it is passed on from by this shard, until its queues have it.
    pub(crate) fn occupied_by(&self, terms: &Terms) -> Occupied {
        match terms.number {
            Some(number)
                if terms.from.connection == LETTERS_CONNECTION
                    && terms.from.shard == self.shard.id =>
            {
                self.homes.dead_letters.occupied(terms.from, number)
            }
            _ => Occupied::default(),
        }
    }

    /// The message is where it is to be, or nowhere: its source lets go of it.
    pub(crate) fn settle_source(&mut self, now: Now, source: Source) {
        let (body, left) = (source.entry.place.body(), self.leave_source(now, &source));
        if let Some(body) = body {
            self.shard.pool.release(body);
        } else if let Some((lane, log)) = left {
            log.settle(lane, &source.entry);
        }
    }

    /// A message that was to be passed on is damaged: it stays in the log it came from, and nobody is given
    /// it.
    pub(crate) fn keep_source(&mut self, now: Now, source: &Source) {
        if let Some((lane, log)) = self.leave_source(now, source) {
            log.set_aside(lane, &source.entry);
        }
    }

    /// A message is not on its way any more. Where it lies in a log, as long as its queue or exchange is there: with
    /// that the lane went, and its number may mean another one.
    pub(crate) fn leave_source(
        &mut self,
        now: Now,
        source: &Source,
    ) -> Option<(LaneSlot, &mut Log)> {
        self.homes.delayed.settled(source.queue, source.log, source.entry.seq);
        let home = self.homes.slot_of(source.queue, u32::MAX);
        if let Some(home) = home {
            let settled = command::LetterSettled { bytes: source.entry.bytes };
            self.homes.queues[home as usize].queue.apply(now, settled, &mut NoSink);
        }
        let is_here = home.is_some() || self.homes.delayed.holds(source.queue);
        let lane = source.lane.filter(|_| is_here)?;
        Some((lane, self.journal.log(source.log)?))
    }

    /// Whether a queue reports what it has: it is elsewhere, or on its way.
    pub(crate) fn is_far(&self, target: &Target) -> bool {
        target.home != self.shard.id || self.homes.migrations.parked_mail(target.queue).is_some()
    }

    /// So many queues elsewhere say what became of dead letters.
    pub(crate) fn letters_reported(
        &mut self,
        now: Now,
        to: ChannelRef,
        (first, last): (u64, u64),
        queues: u32,
        receipt: Receipt,
    ) {
        for number in first..=last {
            if let Some(source) = self.homes.dead_letters.report(to, number, queues, receipt) {
                self.settle_source(now, source);
            }
        }
    }

    /// Writes one dead letter as it is to be from now on, packed, and finds where it goes if that `is_asked`;
    /// `None` if its queue is gone or it cannot become a dead letter.
    pub(crate) fn route_dead_letter(
        &mut self,
        now: Now,
        letter: &DeadLetter,
        is_asked: bool,
        out: &mut Outbox,
    ) -> Option<Routed> {
        let (mut buffers, routed) = self.homes.dead_letters.take_buffers();
        let Routed { mut packed, mut targets } = routed;
        let destination = self.destination_of(letter)?;
        buffers.address(destination.exchange?, destination.routing_key);
        let Buffers { writer, exchange, own_key } = &mut buffers;
        let info = self.directory.queue_by_id(letter.source.queue)?;
        let vhost = info.vhost;
        let place = letter.source.entry.place;
        let view = match (place.body(), place.position()) {
            (Some(body), _) => MessageView::unpack(self.shard.pool.get(body)),
            (None, at) => {
                let found = at.and_then(|at| self.journal.view(letter.source.log, at));
                let Some(view) = found else {
                    invariant!("a dead letter was found before it goes")
                };
                view
            }
        };
        let old_exchange = core::str::from_utf8(view.exchange).ok()?;
        let old_key = core::str::from_utf8(view.routing_key).ok()?;
        let own_key = own_key.as_deref();
        let death = Death {
            queue: info.name(),
            reason: letter.reason,
            exchange: old_exchange,
            routing_key: old_key,
            time_seconds: now.wall_millis / 1000,
            is_rerouted: own_key.is_some(),
        };
        let properties = writer.write(view.properties, &death)?;
        let key = own_key.unwrap_or(old_key);
        let mut is_too_far = false;
        if is_asked {
            let routes = &mut self.shard.routes;
            routes.clear();
            // Another key is the only one.
            let copies = match own_key {
                Some(_) => Vec::new(),
                None => further_keys(view.properties),
            };
            let message = Message {
                exchange,
                keys: RoutingKeys { first: key, further: &copies },
                properties: PropertiesRef(properties),
                body: view.body,
                millis: now.wall_millis,
            };
            self.directory.route_dead_letter(vhost, message, &mut self.shard.rng, routes);
            self.shard.effort.spend(routes.steps());
            resolve(routes, &mut targets);
            is_too_far = routes.are_too_far();
        }
        let deaths = match has_genuine_deaths(view.properties) {
            true => Deaths::Several(properties),
            false => Deaths::First,
        };
        end_cycles(self.directory, letter, death.queue, deaths, &mut targets, out);
        let view = MessageView {
            exchange: exchange.as_bytes(),
            routing_key: key.as_bytes(),
            properties,
            body: view.body,
            layout: Layout::Parts,
        };
        // The bytes leave pool and log before these are written to.
        if !targets.is_empty() || !is_asked {
            view.append_packed(&mut packed);
        }
        self.shard.effort.spend_on_queues(cost_of(&packed, 0));
        self.shard.note_filters(exchange);
        if is_too_far {
            self.shard.tell_too_far(now, exchange, out);
        }
        self.homes.dead_letters.keep_buffers(buffers);
        Some(Routed { packed, targets })
    }

    /// Dead letters that could not go on try again, unless the logs are about to end.
    pub(crate) fn retry_dead_letters(&mut self) {
        if !self.journal.closes() {
            self.homes.dead_letters.try_again();
        }
    }
}
