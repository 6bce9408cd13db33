//! Messages that an `x-delayed-message` exchange holds back.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Body, Instant, Now, Pool, VhostId};

use crate::broker::Broker;
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::{Terms, logged_bytes};
use crate::routing_keys::RoutingKeys;

/// Messages released in one slice before other work gets its turn.
const RELEASED_AT_ONCE_MAX: usize = 256;
/// Bytes of those messages, above which a slice ends.
const RELEASED_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
struct Held {
    vhost: VhostId,
    body: Body,
    /// Routing keys of its `CC` and `BCC` headers.
    extra_keys: Vec<String>,
    persistent: bool,
    priority: u8,
    expiration: Option<core::time::Duration>,
}

/// The delayed messages of one shard by the moment they are due.
#[derive(Debug, Default)]
pub struct Delayed {
    held: BTreeMap<(Instant, u64), Held>,
    count: u64,
    /// The first may be due: it is looked at in every slice of work.
    is_due: bool,
    /// Bytes for which the first waits until the log has room for them, or 0.
    room_bytes: usize,
}

impl Delayed {
    /// When the first is due; [`Instant::NEVER`] where there is none, and while that is known.
    pub(crate) fn next_timeout(&self) -> Instant {
        let first = self.held.first_key_value().filter(|_| !self.is_due);
        first.map_or(Instant::NEVER, |((due, _), _)| *due)
    }

    /// Its time has come, perhaps.
    pub(crate) fn look(&mut self, now: Now) {
        self.is_due |= self.next_timeout() <= now.instant;
    }

    /// Whether one that is due waits for nothing.
    pub(crate) fn has_work(&self) -> bool {
        self.is_due && self.room_bytes == 0
    }

    /// Lets those go on that wait for room in the log, if it has that.
    pub(crate) fn give_room(&mut self, has_room: impl FnOnce(usize) -> bool) {
        if self.room_bytes > 0 && has_room(self.room_bytes) {
            self.room_bytes = 0;
        }
    }

    /// Holds a message back until `due`.
    pub(crate) fn add(
        &mut self,
        due: Instant,
        vhost: VhostId,
        view: &MessageView<'_>,
        extra_keys: Vec<String>,
        terms: &Terms,
        pool: &mut Pool,
    ) {
        self.count += 1;
        let held = Held {
            vhost,
            body: view.pack(pool),
            extra_keys,
            persistent: terms.persistent,
            priority: terms.priority,
            expiration: terms.expiration,
        };
        self.held.insert((due, self.count), held);
    }
}

impl Broker {
    /// Whether [`Broker::release_delayed`] would get on with something.
    pub(crate) fn can_release(&self, out: &Outbox) -> bool {
        self.delayed.has_work() && !self.stopping && self.has_room_for_letters(out)
    }

    /// Publishes the delayed messages that are due, a slice of them.
    pub(crate) fn release_delayed(&mut self, now: Now, out: &mut Outbox) {
        let mut bytes = 0;
        for _ in 0..RELEASED_AT_ONCE_MAX {
            if bytes > RELEASED_BYTES_MAX || !self.can_release(out) {
                return;
            }
            let first = self.delayed.held.first_entry();
            let Some(first) = first.filter(|first| first.key().0 <= now.instant) else {
                self.delayed.is_due = false;
                return;
            };
            let length = self.edge.pool.get(first.get().body).len();
            let room = logged_bytes(&[], length);
            if self.journal.must_wait(room) {
                self.delayed.room_bytes = room;
                return;
            }
            let held = first.remove();
            bytes += length;
            self.publish_delayed(now, held, out);
        }
    }

    /// Publishes a delayed message.
    fn publish_delayed(&mut self, now: Now, held: Held, out: &mut Outbox) {
        let packed = self.edge.pool.get(held.body).to_vec();
        self.edge.pool.release(held.body);
        let view = MessageView::unpack(&packed);
        let (Ok(exchange), Ok(key)) =
            (core::str::from_utf8(view.exchange), core::str::from_utf8(view.routing_key))
        else {
            return;
        };
        let mut routes = core::mem::take(&mut self.routes);
        routes.clear();
        self.directory.route_dead_letter(
            held.vhost,
            exchange,
            RoutingKeys { first: key, further: &held.extra_keys },
            PropertiesRef(view.properties),
            &mut self.rng,
            &mut routes,
        );
        let mut targets = Vec::new();
        self.resolve(&routes, &mut targets);
        self.routes = routes;
        let mut incoming = Incoming::new(view);
        let terms = Terms {
            persistent: held.persistent,
            priority: held.priority,
            expiration: held.expiration,
            confirm: None,
        };
        self.enqueue_all(now, &mut incoming, &targets, terms, out);
        incoming.finish(&mut self.edge.pool);
    }
}
