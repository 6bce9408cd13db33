//! Delayed messages come, are found again after a restart, and are published when they are due.

use alloc::format;
use alloc::vec::Vec;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Instant, Now, QueueId};
use lepus_store::{AppendError, Fetch};

use super::{Held, Moment, Wait, Wish};
use crate::broker::Broker;
use crate::channel::Target;
use crate::dead_letter::{Source, delayed_of};
use crate::effort::{TARGETS_AT_ONCE_MAX, as_queues, first};
use crate::journal::{Found, LogSet, Occupied, Room};
use crate::mail::Terms;
use crate::message::{Incoming, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::properties::further_keys;
use crate::publish::parse_expiration;
use crate::queue::{Place, QueueLog, Ticket};
use crate::routing_keys::RoutingKeys;

/// Messages released in one slice before other work gets its turn.
const RELEASED_AT_ONCE_MAX: usize = 256;
/// Bytes of those messages, above which a slice ends.
const RELEASED_BYTES_MAX: usize = 256 << 10;
/// Messages that are read ahead when one that is due has to be read.
const READ_AHEAD: usize = 64;
/// Entries of the log's index that are listed in one slice, about.
const LISTED_AT_ONCE: usize = 4096;
/// What a message takes in a log beside its payload, about.
const BESIDE_PAYLOAD_BYTES: usize = 512;

/// How long a message is held back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later {
    /// Until then.
    pub due: Instant,
    /// Segments of the shard's own log that it takes, when it is held back or when it is passed on; one or none
    /// where it needs none, or that does not matter.
    pub segments: u16,
}

impl Broker {
    /// How many messages delayed exchanges hold back in memory on this shard.
    #[must_use]
    pub fn delayed_in_memory(&self) -> usize {
        self.delayed.pooled()
    }

    /// Holds a message back. The log that was given it, if it has to be durable.
    ///
    /// # Errors
    /// [`AppendError`] where it has to be logged and the log did not take it: it is gone.
    pub(crate) fn delay(
        &mut self,
        now: Now,
        id: QueueId,
        later: Later,
        view: &MessageView<'_>,
        persistent: bool,
        out: &mut Outbox,
    ) -> Result<Option<u16>, AppendError> {
        let Later { due, segments } = later;
        let bytes = view.body.len() as u32;
        let survives = persistent && self.directory.holding(id).is_some_and(|info| info.durable);
        // New ones go to the shard's own log.
        let log = 0;
        let reader = (u32::MAX, id);
        if survives && let Some(mut backlog) = self.journal.backlog(now, log, reader, &mut out.disk)
        {
            let lane = backlog.lane(0, false);
            let is_listed = backlog.is_fetched(lane);
            let ticket = Ticket { seq: backlog.next_seq(), deadline: due, priority: 0 };
            let at = backlog.append(view, lane, &ticket)?;
            if is_listed {
                backlog.pass(lane);
                let place = Place::logged(at, false);
                self.delayed.insert(
                    due.into(),
                    id,
                    Held { seq: ticket.seq, place, bytes, log, segments },
                );
                self.delayed.know_lane(log, lane, id);
            } else {
                self.delayed.list(log, lane, id);
            }
            return Ok(Some(log));
        }
        let place = Place::pooled(view.pack(&mut self.edge.pool));
        self.delayed.insert(due.into(), id, Held { seq: 0, place, bytes, log, segments: 0 });
        Ok(None)
    }

    /// An exchange is gone with what it held back.
    pub(crate) fn drop_holding(&mut self, id: QueueId) {
        self.delayed.drop_holding(id);
        for log in 0..self.journal.len() as u16 {
            self.journal.drop_queue(log, id);
            self.queue_left(id, log);
        }
    }

    /// A slice of what delayed messages need.
    pub(crate) fn work_on_delayed(&mut self, now: Now, out: &mut Outbox) {
        self.delayed.release_dropped(&mut self.edge.pool);
        self.list_delayed(now, out);
        self.release_delayed(now, out);
    }

    /// Lists what recovery found in the logs, a slice of it.
    fn list_delayed(&mut self, now: Now, out: &mut Outbox) {
        let mut listed = 0;
        while self.delayed.can_list()
            && listed < LISTED_AT_ONCE
            && let Some(&(log, lane, id)) = self.delayed.listing.front()
        {
            let reader = (u32::MAX, id);
            let (mut is_over, mut waits) = (true, false);
            let segment = self.journal.payload_bytes_max();
            let segments_for = |bytes: u32| {
                let segments = (bytes as usize + BESIDE_PAYLOAD_BYTES).div_ceil(segment);
                u16::try_from(segments).unwrap_or(u16::MAX)
            };
            if let Some(mut backlog) = self.journal.backlog(now, log, reader, &mut out.disk) {
                let delayed = &mut self.delayed;
                let (count, fetch, is_fetched) = backlog.list(lane, |entry| {
                    let held = Held {
                        seq: entry.seq,
                        place: Place::logged(entry.position, false),
                        bytes: entry.bytes,
                        log,
                        segments: segments_for(entry.bytes),
                    };
                    delayed.insert(Moment::of_wall(now, entry.deadline_millis), id, held);
                });
                listed += count;
                waits = count == 0 && fetch == Fetch::Pending;
                is_over = is_fetched || (count == 0 && !waits);
            }
            self.delayed.listing_waits = waits;
            if is_over {
                self.delayed.listing.pop_front();
            }
        }
    }

    /// Publishes the delayed messages that are due, a slice of them.
    fn release_delayed(&mut self, now: Now, out: &mut Outbox) {
        let (mut bytes, mut targets) = (0, 0);
        let before = self.edge.effort.used();
        for _ in 0..RELEASED_AT_ONCE_MAX {
            let effort = as_queues(self.edge.effort.used() - before);
            let is_full = bytes > RELEASED_BYTES_MAX || targets.max(effort) > TARGETS_AT_ONCE_MAX;
            if is_full || !self.delayed.can_release(&self.conditions(out)) {
                return;
            }
            self.delayed.give_turns();
            let Some((id, held)) = self.delayed.first_due(now) else {
                self.delayed.is_due = false;
                return;
            };
            if self.postponed.has_from(delayed_of(self.edge.shard, id)) {
                self.delayed.let_first_wait_behind_set_aside();
                continue;
            }
            let (log, size, place) = (held.log, held.bytes, held.place);
            let found = match place.position() {
                None => Found::Ready,
                Some(at) => {
                    let reader = (u32::MAX, id);
                    let backlog = self.journal.backlog(now, log, reader, &mut out.disk);
                    backlog.map_or(Found::Lost, |mut backlog| backlog.lookup(at, size))
                }
            };
            if found == Found::Pending {
                self.delayed.wait = Wait::Read;
                return self.read_delayed_ahead(now, id, log, out);
            }
            if found == Found::Lost {
                let Some((id, held, lane)) = self.delayed.take_first() else { return };
                let entry = held.entry();
                self.keep_source(&Source { queue: id, log, lane, entry, was_delivered: false });
                continue;
            }
            // It is copied, also if it waits.
            bytes += size as usize;
            let occupied =
                Occupied { log, bytes: if place.position().is_some() { size as usize } else { 0 } };
            let routed = self.route_delayed(now, id, log, place, out);
            if let Some((packed, targets, terms)) = &routed {
                if targets.len() > TARGETS_AT_ONCE_MAX && !self.delayed.may_pass(id) {
                    self.delayed.let_first_wait_for_turn();
                    continue;
                }
                let room = self.room_to_release(packed, targets, terms.persistent, occupied);
                let wish = match room {
                    Room::Now => self.wish_to_stay_behind(id, packed, targets, terms, occupied),
                    Room::Later(need) => self.delayed.wish_of_first(need, occupied.frees()),
                    Room::Never(_) => None,
                };
                if let Some(wish) = wish {
                    let queues = first(targets).iter().map(|target| target.queue).collect();
                    let is_full = self.journal.is_full(wish.need.logs);
                    self.delayed.let_first_wait(wish, queues, is_full);
                    continue;
                }
                if let Room::Never(bytes) = room
                    && place.position().is_some()
                {
                    self.tell_delayed_too_large(id, bytes, out);
                }
            }
            let Some((id, held, lane)) = self.delayed.take_first() else { return };
            let source = Source { queue: id, log, lane, entry: held.entry(), was_delivered: false };
            match routed {
                Some((packed, found, terms)) if !found.is_empty() => {
                    targets += found.len();
                    if found.len() > TARGETS_AT_ONCE_MAX {
                        self.delayed.pass(id);
                    }
                    self.journal.set_passing(occupied.frees(), true);
                    self.pass_on(now, source, &packed, &found, terms, out);
                    self.journal.set_passing(occupied.frees(), false);
                }
                _ => self.settle_source(source),
            }
        }
    }

    /// Whether the logs have room for a delayed message in the first of its queues, beside what it has
    /// `occupied` itself.
    fn room_to_release(
        &mut self,
        packed: &[u8],
        targets: &[Target],
        persistent: bool,
        occupied: Occupied,
    ) -> Room {
        let incoming = Incoming::new(MessageView::unpack(packed));
        self.journal.set_passing(occupied.frees(), true);
        let room = self.room_to_pass_on(&incoming, persistent, first(targets), occupied);
        self.journal.set_passing(occupied.frees(), false);
        room
    }

    /// What the first delayed message of all waits for though there is room for it: another one of its exchange
    /// does that it would pass, and that needs no more.
    fn wish_to_stay_behind(
        &mut self,
        id: QueueId,
        packed: &[u8],
        targets: &[Target],
        terms: &Terms,
        occupied: Occupied,
    ) -> Option<Wish> {
        if !self.delayed.has_roomless(id) {
            return None;
        }
        let incoming = Incoming::new(MessageView::unpack(packed));
        let (mut spilling, targets) = (Vec::new(), first(targets));
        let need = self.need_to_pass_on(&incoming, terms.persistent, targets, &mut spilling)?;
        let wish = self.delayed.wish_of_first(need, occupied.frees())?;
        if !self.delayed.is_behind(id, wish) {
            return None;
        }
        self.spilling.extend(spilling);
        Some(wish)
    }

    /// Segments of the shard's own log that a message takes, which was routed last, when this exchange holds it back
    /// or when it is passed on to the queues that get it now, whichever are more. None where it needs none then.
    ///
    /// # Errors
    /// Bytes that it takes when it is passed on, if no log ever has room for that beside itself.
    pub(crate) fn segments_to_hold_back(
        &mut self,
        id: QueueId,
        view: &MessageView<'_>,
        persistent: bool,
    ) -> Result<u16, usize> {
        let is_durable = self.directory.holding(id).is_some_and(|info| info.durable);
        if !persistent || !is_durable || !self.journal.is_on() {
            return Ok(0);
        }
        let mut targets = core::mem::take(&mut self.targets);
        targets.clear();
        self.resolve(&self.routes, &mut targets);
        let incoming = Incoming::new(*view);
        let (queues, mut spilling) = (first(&targets).len(), Vec::new());
        let need = self.need_to_pass_on(&incoming, persistent, first(&targets), &mut spilling);
        self.targets = targets;
        if need.is_none() {
            return Ok(0);
        }
        let bytes = self.bytes_in_log(&incoming, queues);
        let segments = self.journal.segments_for(bytes.max(self.bytes_in_log(&incoming, 1)));
        let could_pass = match segments {
            0 | 1 => {
                // It is in one segment, and what is written to may be that one.
                let beside = Occupied { log: 0, bytes: view.body.len() };
                self.journal.could_hold_beside(LogSet::OWN, bytes, beside)
            }
            _ => self.journal.could_pass_on_beside(segments, usize::from(segments) + 1),
        };
        if could_pass { Ok(segments) } else { Err(bytes) }
    }

    /// A message that an exchange held back is kept in the log, since it has no room beside itself. It is
    /// not tried again in this run.
    fn tell_delayed_too_large(&self, id: QueueId, bytes: usize, out: &mut Outbox) {
        let info = self.directory.holding(id).expect("whose message was routed is known");
        let text = format!(
            "a delayed message of exchange '{}' in vhost '{}' takes {bytes} bytes in the log, more \
             than may be stored while it holds the message itself: it stays there and is sent after \
             the next start, if store.bytes_max is raised until then",
            info.name,
            self.directory.vhost_name(info.vhost)
        );
        out.log(Severity::Warning, "delayed-too-large", text);
    }

    /// Has those read that are due next and lie in the same log.
    fn read_delayed_ahead(&mut self, now: Now, id: QueueId, log: u16, out: &mut Outbox) {
        let Some(holding) = self.delayed.holdings.get(&id) else { return };
        let due = holding.held.range(..=(now.instant.into(), u64::MAX)).map(|(_, held)| held);
        let next = due.take(READ_AHEAD).filter(|held| held.log == log);
        let entries: Vec<_> = next.map(Held::entry).collect();
        if let Some(mut backlog) = self.journal.backlog(now, log, (u32::MAX, id), &mut out.disk) {
            backlog.announce(entries.iter());
        }
    }

    /// Routes a delayed message: its bytes, packed, where it goes, and how; `None` if it is lost.
    fn route_delayed(
        &mut self,
        now: Now,
        id: QueueId,
        log: u16,
        place: Place,
        out: &mut Outbox,
    ) -> Option<(Vec<u8>, Vec<Target>, Terms)> {
        let view = match (place.body(), place.position()) {
            (Some(body), _) => MessageView::unpack(self.edge.pool.get(body)),
            (None, at) => self.journal.view(log, at?)?,
        };
        let vhost = self.directory.holding(id)?.vhost;
        let properties = PropertiesRef(view.properties);
        let exchange = core::str::from_utf8(view.exchange).ok()?;
        let first = core::str::from_utf8(view.routing_key).ok()?;
        let further = further_keys(view.properties);
        let mut routes = core::mem::take(&mut self.routes);
        routes.clear();
        self.directory.route_dead_letter(
            vhost,
            exchange,
            RoutingKeys { first, further: &further },
            properties,
            &mut self.rng,
            &mut routes,
        );
        self.edge.effort.spend(routes.steps());
        let mut targets = Vec::new();
        self.resolve(&routes, &mut targets);
        let terms = Terms {
            persistent: properties.is_persistent(),
            priority: properties.priority().unwrap_or(0),
            expiration: properties.expiration().and_then(|text| parse_expiration(text).ok()),
            from: delayed_of(self.edge.shard, id),
            number: None,
        };
        let mut packed = Vec::new();
        view.append_packed(&mut packed);
        self.routes = routes;
        if self.routes.are_too_far()
            && let Ok(exchange) = core::str::from_utf8(MessageView::unpack(&packed).exchange)
        {
            self.tell_too_far(now, exchange, out);
        }
        Some((packed, targets, terms))
    }
}
