//! Routing through exchanges that are bound to exchanges, and to alternate exchanges.

use super::Directory;
use crate::router::{Message, Router, Routes};
use crate::routing_keys::RoutingKeys;
use alloc::format;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Rng, VhostId};
use lepus_queue::refusal::Refusal;

impl Directory {
    /// Adds the queues that a client's message reaches to `routes`; clear these before. It is routed
    /// once with all its keys: every exchange on its way sees all of them, and one that sends it
    /// nowhere by any of them hands it to its alternate exchange. A queue is reached once, loops
    /// end.
    ///
    /// `properties` are the raw ones; only headers and hashing exchanges look at them.
    ///
    /// # Errors
    /// 404 where the exchange does not exist, 403 where it is internal, 406 where it would take more
    /// steps than a message may.
    pub fn route(
        &self,
        vhost: VhostId,
        exchange: &str,
        keys: RoutingKeys<'_>,
        properties: PropertiesRef<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> Result<(), Refusal> {
        if exchange.is_empty() {
            self.route_by_name(vhost, keys, routes);
            return Ok(());
        }
        let Some(start) = self.exchange_place(vhost, exchange) else {
            return Err(self.no_exchange(vhost, exchange));
        };
        if self.exchanges[start as usize].info.internal {
            let vhost = self.vhost_name(vhost);
            return Err(Refusal::new(
                ReplyCode::ACCESS_REFUSED,
                format!("cannot publish to internal exchange '{exchange}' in vhost '{vhost}'"),
            ));
        }
        let message = Message { keys, properties };
        self.walk(start, message, rng, routes);
        if routes.are_too_far() {
            return Err(too_far(exchange, routes.steps_max()));
        }
        Ok(())
    }

    /// As [`Directory::route`] for messages that the broker publishes itself: internal exchanges
    /// take them. False where the exchange does not exist. There are no routes where it takes more
    /// steps than a message may, see [`Routes::are_too_far`].
    pub fn route_dead_letter(
        &self,
        vhost: VhostId,
        exchange: &str,
        keys: RoutingKeys<'_>,
        properties: PropertiesRef<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> bool {
        if exchange.is_empty() {
            self.route_by_name(vhost, keys, routes);
            return self.vhosts.contains_key(&vhost);
        }
        let Some(start) = self.exchange_place(vhost, exchange) else {
            return false;
        };
        let message = Message { keys, properties };
        self.walk(start, message, rng, routes);
        true
    }

    /// The default exchange: each routing key is a queue's name.
    fn route_by_name(&self, vhost: VhostId, keys: RoutingKeys<'_>, routes: &mut Routes) {
        routes.count_keys(1 + keys.further.len());
        for key in keys.iter() {
            if let Some(place) = self.queue_place(vhost, key) {
                routes.push(self.routes[place as usize]);
            }
        }
        routes.settle();
    }

    fn walk(&self, start: u32, message: Message<'_>, rng: &mut Rng, routes: &mut Routes) {
        routes.begin(start, self.exchanges.places());
        while let Some(place) = routes.next_exchange() {
            let slot = &self.exchanges[place as usize];
            if slot.info.delayed {
                routes.vary();
            }
            let (router, bindings, places) = (&slot.router, &self.bindings, &self.routes);
            let found = if self.dead.is_empty() {
                routes.select(router, bindings, message, rng, places, |_| true)
            } else {
                self.select_living(router, message, rng, routes)
            };
            if !found
                && let Some(alternate) = &slot.info.alternate
                && let Some(other) = self.exchange_place(slot.info.vhost, alternate)
            {
                if alternate.is_empty() {
                    self.route_by_name(slot.info.vhost, message.keys, routes);
                } else {
                    routes.visit(other);
                }
            }
        }
        if !routes.give_up() {
            routes.settle();
        }
    }

    /// What a router finds among the bindings to what is still there.
    #[cold]
    fn select_living(
        &self,
        router: &Router,
        message: Message<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> bool {
        let is_living = |target| !self.dead.contains(&target);
        routes.select(router, &self.bindings, message, rng, &self.routes, is_living)
    }
}

/// What a publisher is told whose message takes more steps than it may.
#[must_use]
pub fn too_far(exchange: &str, steps_max: u32) -> Refusal {
    let text = format!(
        "routing a message from exchange '{exchange}' takes more than {steps_max} steps: there are \
         too many exchanges, bindings, headers or routing keys on its way"
    );
    Refusal::new(ReplyCode::PRECONDITION_FAILED, text)
}
