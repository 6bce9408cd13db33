//! Delayed messages come, and are published when they are due.

use alloc::format;
use alloc::vec::Vec;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Now, QueueId};
use lepus_store::AppendError;

use crate::channel::Target;
use crate::dead_letter::delayed_of;
use crate::delayed::{Due, Later, Wish};
use crate::directory::Message;
use crate::effort::{TARGETS_AT_ONCE_MAX, as_queues, first};
use crate::homes::HomeSide;
use crate::journal::{Found, LogSet, Occupied, Room};
use crate::mail::Terms;
use crate::message::{Incoming, MessageView};
use crate::outbox::{Outbox, Severity};
use crate::properties::further_keys;
use crate::publish::parse_expiration;
use crate::publish::resolve;
use crate::routing_keys::RoutingKeys;

/// Messages released in one slice before other work gets its turn.
pub(crate) const RELEASED_AT_ONCE_MAX: usize = 256;

/// Bytes of those messages, above which a slice ends.
pub(crate) const RELEASED_BYTES_MAX: usize = 256 << 10;

impl HomeSide<'_> {
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
        let survives = persistent && self.directory.holding(id).is_some_and(|info| info.durable);
        let where_to = (&mut *self.journal, &mut self.shard.pool);
        self.homes.delayed.hold_back(now, (id, later), view, survives, where_to, &mut out.disk)
    }

    /// An exchange is gone with what it held back.
    pub(crate) fn drop_holding(&mut self, id: QueueId) {
        self.homes.delayed.drop_holding(id);
        for log in 0..self.journal.len() as u16 {
            self.journal.drop_queue(log, id);
            self.queue_left(id, log);
        }
    }

    /// A slice of what delayed messages need.
    pub(crate) fn work_on_delayed(&mut self, now: Now, out: &mut Outbox) {
        self.homes.delayed.release_dropped(&mut self.shard.pool);
        self.homes.delayed.list_some(now, self.journal, &mut out.disk);
        self.release_delayed(now, out);
    }

    /// Publishes the delayed messages that are due, a slice of them.
    pub(crate) fn release_delayed(&mut self, now: Now, out: &mut Outbox) {
        let (mut bytes, mut targets) = (0, 0);
        let before = self.shard.effort.used();
        for _ in 0..RELEASED_AT_ONCE_MAX {
            let effort = as_queues(self.shard.effort.used() - before);
            let is_full = bytes > RELEASED_BYTES_MAX || targets.max(effort) > TARGETS_AT_ONCE_MAX;
            if is_full || !self.homes.delayed.can_release(&self.shard.conditions(self.journal, out))
            {
                return;
            }
            let Some(due) = self.homes.delayed.next_due(now) else { return };
            let id = due.exchange;
            if self.homes.postponed.has_from(delayed_of(self.shard.id, id)) {
                self.homes.delayed.let_first_wait_behind_set_aside();
                continue;
            }
            match self.homes.delayed.look_up(now, &due, self.journal, &mut out.disk) {
                Found::Ready => {}
                Found::Pending => return,
                Found::Lost => {
                    let Some(source) = self.homes.delayed.take_first() else {
                        invariant!("what is due is the first of all")
                    };
                    self.keep_source(now, &source);
                    continue;
                }
            }
            // It is copied, also if it waits.
            bytes += due.bytes as usize;
            let occupied = due.occupied;
            let routed = self.route_delayed(now, &due, out);
            if let Some((packed, targets, terms)) = &routed {
                if targets.len() > TARGETS_AT_ONCE_MAX && !self.homes.delayed.may_pass(id) {
                    self.homes.delayed.let_first_wait_for_turn();
                    continue;
                }
                let room = self.room_to_release(packed, targets, terms.persistent, occupied);
                let wish = match room {
                    Room::Now => self.wish_to_stay_behind(id, packed, targets, terms, occupied),
                    Room::Later(need) => self.homes.delayed.wish_of_first(need, occupied.frees()),
                    Room::Never(_) => None,
                };
                if let Some(wish) = wish {
                    let queues = first(targets).iter().map(|target| target.queue).collect();
                    let is_full = self.journal.is_full(wish.logs());
                    self.homes.delayed.let_first_wait(wish, queues, is_full);
                    continue;
                }
                if let Room::Never(bytes) = room
                    && due.place.position().is_some()
                {
                    self.tell_delayed_too_large(id, bytes, out);
                }
            }
            let Some(source) = self.homes.delayed.take_first() else {
                invariant!("what is due is the first of all")
            };
            match routed {
                Some((packed, found, terms)) if !found.is_empty() => {
                    targets += found.len();
                    if found.len() > TARGETS_AT_ONCE_MAX {
                        self.homes.delayed.pass(id);
                    }
                    self.journal.set_passing(occupied.frees(), true);
                    self.pass_on(now, source, &packed, &found, terms, out);
                    self.journal.set_passing(occupied.frees(), false);
                }
                _ => self.settle_source(now, source),
            }
        }
    }

    /// Whether the logs have room for a delayed message in the first of its queues, beside what it has
    /// `occupied` itself.
    pub(crate) fn room_to_release(
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
    pub(crate) fn wish_to_stay_behind(
        &mut self,
        id: QueueId,
        packed: &[u8],
        targets: &[Target],
        terms: &Terms,
        occupied: Occupied,
    ) -> Option<Wish> {
        if !self.homes.delayed.has_roomless(id) {
            return None;
        }
        let incoming = Incoming::new(MessageView::unpack(packed));
        let (mut spilling, targets) = (Vec::new(), first(targets));
        let need = self.need_to_pass_on(&incoming, terms.persistent, targets, &mut spilling)?;
        let wish = self.homes.delayed.wish_of_first(need, occupied.frees())?;
        if !self.homes.delayed.is_behind(id, wish) {
            return None;
        }
        self.homes.spilling.extend(spilling);
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
        let mut targets = core::mem::take(&mut self.shard.targets);
        targets.clear();
        resolve(&self.shard.routes, &mut targets);
        let incoming = Incoming::new(*view);
        let (queues, mut spilling) = (first(&targets).len(), Vec::new());
        let need = self.need_to_pass_on(&incoming, persistent, first(&targets), &mut spilling);
        self.shard.targets = targets;
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
    pub(crate) fn tell_delayed_too_large(&self, id: QueueId, bytes: usize, out: &mut Outbox) {
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

    /// Routes a delayed message: its bytes, packed, where it goes, and how; `None` if it is lost.
    pub(crate) fn route_delayed(
        &mut self,
        now: Now,
        due: &Due,
        out: &mut Outbox,
    ) -> Option<(Vec<u8>, Vec<Target>, Terms)> {
        let view = match (due.place.body(), due.place.position()) {
            (Some(body), _) => MessageView::unpack(self.shard.pool.get(body)),
            (None, at) => {
                let found = at.and_then(|at| self.journal.view(due.log, at));
                let Some(view) = found else { invariant!("what is due was found before it goes") };
                view
            }
        };
        let vhost = self.directory.holding(due.exchange)?.vhost;
        let properties = PropertiesRef(view.properties);
        let exchange = core::str::from_utf8(view.exchange).ok()?;
        let first = core::str::from_utf8(view.routing_key).ok()?;
        let further = further_keys(view.properties);
        let mut routes = core::mem::take(&mut self.shard.routes);
        routes.clear();
        let message = Message {
            exchange,
            keys: RoutingKeys { first, further: &further },
            properties,
            body: view.body,
            millis: now.wall_millis,
        };
        self.directory.route_dead_letter(vhost, message, &mut self.shard.rng, &mut routes);
        self.shard.effort.spend(routes.steps());
        let mut targets = Vec::new();
        resolve(&routes, &mut targets);
        let terms = Terms {
            persistent: properties.is_persistent(),
            priority: properties.priority().unwrap_or(0),
            expiration: properties.expiration().and_then(|text| parse_expiration(text).ok()),
            from: delayed_of(self.shard.id, due.exchange),
            number: None,
        };
        let mut packed = Vec::new();
        view.append_packed(&mut packed);
        self.shard.routes = routes;
        let exchange = core::str::from_utf8(MessageView::unpack(&packed).exchange).ok()?;
        self.shard.note_filters(exchange);
        if self.shard.routes.are_too_far() {
            self.shard.tell_too_far(now, exchange, out);
        }
        Some((packed, targets, terms))
    }

    /// Whether the logs take so many segments of what is held back for long.
    pub(crate) fn takes_long(&mut self, segments: u16) -> bool {
        self.homes.delayed.takes_long(segments, self.journal)
    }

    /// Which messages are due by now.
    pub(crate) fn look_at_delayed(&mut self, now: Now) {
        self.homes.delayed.look(now);
    }
}
