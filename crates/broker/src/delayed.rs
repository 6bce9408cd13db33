//! Messages that an `x-delayed-message` exchange holds back.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Body, Instant, Now, Pool, VhostId};

use crate::broker::Broker;
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::{Terms, logged_bytes};
use crate::routing_keys::RoutingKeys;
use crate::timers::Timer;

/// Delayed messages published in one go before other work gets its turn.
const DELAYED_AT_ONCE_MAX: usize = 256;

/// How long a message that is due waits until the log is looked at again for room.
const ROOM_INTERVAL: Duration = Duration::from_millis(50);

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
}

impl Delayed {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
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
    /// Publishes the delayed messages that are due.
    pub(crate) fn publish_delayed(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..DELAYED_AT_ONCE_MAX {
            let Some(first) = self.delayed.held.first_entry() else { return };
            let due = first.key().0;
            if due > now.instant {
                self.edge.timers.arm(due, Timer::Delayed);
                return;
            }
            let bytes = self.edge.pool.get(first.get().body).len();
            if self.journal.is_on() && !self.journal.has_room(logged_bytes(&[], bytes)) {
                self.edge.timers.arm(now.instant + ROOM_INTERVAL, Timer::Delayed);
                return;
            }
            let held = first.remove();
            let packed = self.edge.pool.get(held.body).to_vec();
            self.edge.pool.release(held.body);
            let view = MessageView::unpack(&packed);
            let (Ok(exchange), Ok(key)) =
                (core::str::from_utf8(view.exchange), core::str::from_utf8(view.routing_key))
            else {
                continue;
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
            let mut targets = alloc::vec::Vec::new();
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
        self.edge.timers.arm(now.instant, Timer::Delayed);
    }
}
