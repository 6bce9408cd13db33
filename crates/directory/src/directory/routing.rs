//! Which queues a message reaches.

use super::Directory;
use crate::router::{Message, Routes};
use crate::topology::{Unroutable, too_far};
use alloc::format;
use lepus_base::{Rng, VhostId};
use lepus_queue::refusal::{Refusal, RefusalKind};

impl Directory {
    /// Adds the queues that a client's message reaches to `routes`; clear these before. It is routed
    /// once with all its keys: every exchange on its way sees all of them, and one that sends it
    /// nowhere by any of them hands it to its alternate exchange. A queue is reached once, loops
    /// end.
    ///
    /// # Errors
    /// 404 where the exchange does not exist, 403 where it is internal, 406 where it would take more
    /// steps than a message may.
    pub fn route(
        &self,
        vhost: VhostId,
        message: Message<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> Result<(), Refusal> {
        let found = self.topology.route(vhost, message, rng, routes);
        found.map_err(|reason| self.refusal(vhost, message.exchange, reason, routes))
    }

    /// As [`Directory::route`] for messages that the broker publishes itself: internal exchanges
    /// take them. False where the exchange does not exist. There are no routes where it takes more
    /// steps than a message may, see [`Routes::are_too_far`].
    pub fn route_dead_letter(
        &self,
        vhost: VhostId,
        message: Message<'_>,
        rng: &mut Rng,
        routes: &mut Routes,
    ) -> bool {
        if message.exchange.is_empty() {
            self.topology.route_by_name(vhost, message.keys, routes);
            return self.accounts.has_vhost(vhost);
        }
        self.topology.route_through(vhost, message, rng, routes)
    }

    /// Tidies up what exchanges know of their bindings' filters, for about so many steps of some ten nanoseconds: what
    /// is found is the same before and after, but sooner.
    pub fn tidy_filters(&mut self, steps: usize) {
        self.topology.tidy_filters(steps);
    }

    /// Whether [`Directory::tidy_filters`] has something to do.
    #[must_use]
    pub fn has_untidy_filters(&self) -> bool {
        self.topology.has_untidy_filters()
    }

    #[cold]
    fn refusal(
        &self,
        vhost: VhostId,
        exchange: &str,
        reason: Unroutable,
        routes: &Routes,
    ) -> Refusal {
        match reason {
            Unroutable::NoExchange => self.look().no_exchange(vhost, exchange),
            Unroutable::Internal => {
                let vhost = self.vhost_name(vhost);
                Refusal::new(
                    RefusalKind::AccessRefused,
                    format!("cannot publish to internal exchange '{exchange}' in vhost '{vhost}'"),
                )
            }
            Unroutable::TooFar => too_far(exchange, routes.steps_max()),
        }
    }
}
