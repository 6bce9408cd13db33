//! Routing through exchanges that are bound to exchanges, and to alternate exchanges.

use super::Topology;
use crate::router::{Message, Outlet, Routes};
use crate::routing_keys::RoutingKeys;
use alloc::format;
use lepus_base::{Rng, VhostId};
use lepus_queue::refusal::{Refusal, RefusalKind};

/// Why a client's message goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unroutable {
    /// The exchange does not exist.
    NoExchange,
    /// Clients may not publish to it.
    Internal,
    /// It takes more steps than a message may.
    TooFar,
}

impl Topology {
    /// Adds the queues that a client's message reaches, see [`Directory::route`].
    ///
    /// [`Directory::route`]: crate::Directory::route
    #[inline]
    pub(crate) fn route(
        &self,
        vhost: VhostId,
        message: Message<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> Result<(), Unroutable> {
        if message.exchange.is_empty() {
            self.route_by_name(vhost, message.keys, routes);
            return Ok(());
        }
        let start = self.exchanges.place(vhost, message.exchange);
        let start = start.ok_or(Unroutable::NoExchange)?;
        if self.exchanges.at(start).info.internal {
            return Err(Unroutable::Internal);
        }
        self.walk(start, message, rng, routes);
        if routes.are_too_far() { Err(Unroutable::TooFar) } else { Ok(()) }
    }

    /// Adds the queues that a message of the broker's reaches. False where the exchange, which has a name, does not
    /// exist.
    pub(crate) fn route_through(
        &self,
        vhost: VhostId,
        message: Message<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> bool {
        let Some(start) = self.exchanges.place(vhost, message.exchange) else {
            return false;
        };
        self.walk(start, message, rng, routes);
        true
    }

    /// The default exchange: each routing key is a queue's name.
    pub(crate) fn route_by_name(&self, vhost: VhostId, keys: RoutingKeys<'_>, routes: &mut Routes) {
        routes.count_keys(1 + keys.further.len());
        for key in keys.iter() {
            if let Some(place) = self.queues.place(vhost, key) {
                routes.push(self.queues.routes()[place as usize]);
            }
        }
        routes.settle();
    }

    fn walk(&self, start: u32, message: Message<'_>, rng: &mut Rng, routes: &mut Routes) {
        debug_assert!(self.exchanges.has_filters(), "no message comes to a copy without filters");
        routes.begin(start, self.exchanges.places());
        while let Some(place) = routes.next_exchange() {
            let slot = self.exchanges.at(place);
            if slot.info.delayed {
                routes.vary();
            }
            let (outlet, bindings, places) = (&slot.outlet, &self.bindings, self.queues.routes());
            let found = if self.dead.is_empty() {
                routes.select(outlet, bindings, message, rng, places, |_| true)
            } else {
                self.select_living(outlet, message, rng, routes)
            };
            if !found
                && let Some(alternate) = slot.info.alternate.as_ref().or(slot.by_policy.as_ref())
                && let Some(other) = self.exchanges.place(slot.info.vhost, alternate)
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

    /// What an exchange finds among the bindings to what is still there.
    #[cold]
    fn select_living(
        &self,
        outlet: &Outlet,
        message: Message<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> bool {
        let is_living = |target| !self.dead.contains(&target);
        let places = self.queues.routes();
        routes.select(outlet, &self.bindings, message, rng, places, is_living)
    }
}

/// What a publisher is told whose message takes more steps than it may.
#[must_use]
pub fn too_far(exchange: &str, steps_max: u32) -> Refusal {
    let text = format!(
        "routing a message from exchange '{exchange}' takes more than {steps_max} steps: there are \
         too many exchanges, bindings, filters, headers or routing keys on its way"
    );
    Refusal::new(RefusalKind::PreconditionFailed, text)
}
