//! Routing through exchanges that are bound to exchanges, and to alternate exchanges.

use super::Directory;
use crate::refusal::Refusal;
use crate::router::{Message, Routes};
use alloc::format;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Rng, VhostId};

impl Directory {
    /// Adds the queues that a client's message reaches to `routes`; clear these before the first
    /// key, and call again for each further key. A queue is reached once, loops end. An exchange
    /// that sends the message nowhere hands it to its alternate exchange.
    ///
    /// `properties` are the raw ones; only headers and hashing exchanges look at them.
    ///
    /// # Errors
    /// 404 where the exchange does not exist, 403 where it is internal.
    pub fn route(
        &self,
        vhost: VhostId,
        exchange: &str,
        routing_key: &str,
        properties: PropertiesRef<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> Result<(), Refusal> {
        if exchange.is_empty() {
            self.route_by_name(vhost, routing_key, routes);
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
        let message = Message { routing_key, properties };
        self.walk(start, message, rng, routes);
        Ok(())
    }

    /// As [`Directory::route`] for messages that the broker publishes itself: internal exchanges
    /// take them. False where the exchange does not exist.
    pub fn route_dead_letter(
        &self,
        vhost: VhostId,
        exchange: &str,
        routing_key: &str,
        properties: PropertiesRef<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> bool {
        if exchange.is_empty() {
            self.route_by_name(vhost, routing_key, routes);
            return self.vhosts.contains_key(&vhost);
        }
        let Some(start) = self.exchange_place(vhost, exchange) else {
            return false;
        };
        let message = Message { routing_key, properties };
        self.walk(start, message, rng, routes);
        true
    }

    /// The default exchange: the routing key is the queue's name.
    fn route_by_name(&self, vhost: VhostId, routing_key: &str, routes: &mut Routes) {
        if let Some(place) = self.queue_place(vhost, routing_key) {
            routes.push(self.routes[place as usize]);
            routes.settle();
        }
    }

    fn walk(&self, start: u32, message: Message<'_>, rng: &mut Rng, routes: &mut Routes) {
        routes.begin(start, self.exchanges.capacity());
        while let Some(place) = routes.next_exchange() {
            let slot = &self.exchanges[place as usize];
            if slot.info.delayed {
                routes.vary();
            }
            let found = routes.select(&slot.router, &self.bindings, message, rng, &self.routes);
            if !found
                && let Some(alternate) = &slot.info.alternate
                && let Some(other) = self.exchange_place(slot.info.vhost, alternate)
            {
                if alternate.is_empty() {
                    self.route_by_name(slot.info.vhost, message.routing_key, routes);
                } else {
                    routes.visit(other);
                }
            }
        }
        routes.settle();
    }
}
