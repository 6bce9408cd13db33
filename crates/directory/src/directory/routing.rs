//! Which queues a message reaches.

use super::Directory;
use crate::exchange::ExchangeInfo;
use crate::router::{DearFilter, FilterCost, FilterFigures, Message, Routes};
use crate::topology::{BindingInfo, FilterWork, Filtered, InOrder, Unroutable, too_far};
use alloc::format;
use alloc::vec::Vec;
use lepus_base::{Rng, ShardId, VhostId};
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

    /// The same directory for one who routes no messages: what filters of bindings say is not kept, which may be very much;
    /// their texts stand among the arguments. How many there are is known.
    #[must_use]
    pub fn without_filters(mut self) -> Directory {
        FilterWork::of(&mut self.topology).forget();
        self
    }

    /// Tidies up what exchanges know of their bindings' filters, for about so many steps of some ten nanoseconds: what
    /// is found is the same before and after, but sooner.
    pub fn tidy_filters(&mut self, steps: usize) {
        FilterWork::of(&mut self.topology).tidy(steps);
    }

    /// Whether [`Directory::tidy_filters`] has something to do.
    #[must_use]
    pub fn has_untidy_filters(&self) -> bool {
        Filtered::of(&self.topology).are_untidy()
    }

    /// A shard says what the filters of an exchange's bindings take of a message there, where that is much, or that it is
    /// not: see [`Capacity::exchange_filter_steps_max`](crate::Capacity::exchange_filter_steps_max). It is forgotten with
    /// the last of these filters.
    pub fn note_filter_cost(
        &mut self,
        vhost: VhostId,
        exchange: &str,
        shard: ShardId,
        cost: Option<FilterCost>,
    ) {
        FilterWork::of(&mut self.topology).note_cost(vhost, exchange, shard, cost);
    }

    /// The exchanges of some virtual hosts whose bindings have filters, in the order of these; then by name. All exchanges are
    /// gone through once.
    pub fn filtered_exchanges(
        &self,
        vhosts: &[VhostId],
    ) -> impl ExactSizeIterator<Item = &ExchangeInfo> + use<'_> {
        Filtered::of(&self.topology).in_vhosts(InOrder::of(vhosts))
    }

    /// How many filters an exchange's bindings have; `None` where there are none.
    #[must_use]
    pub fn filter_figures(&self, vhost: VhostId, exchange: &str) -> Option<FilterFigures> {
        let mut figures = Filtered::of(&self.topology).figures(vhost, exchange)?;
        figures.refuses &= self.budget.is_too_much(figures.told_steps);
        Some(figures)
    }

    /// The dearest filters of an exchange's bindings, so many at most, among those at so many places from `from` on, each
    /// with the oldest binding that has it; and where to go on. What is evaluated for each message is dearer than what is compared, and that
    /// dearer than what is looked up.
    #[must_use]
    pub fn dearest_filters(
        &self,
        vhost: VhostId,
        exchange: &str,
        from: usize,
        places: usize,
        count: usize,
    ) -> (Vec<(DearFilter, BindingInfo<'_>)>, Option<usize>) {
        Filtered::of(&self.topology).dearest(vhost, exchange, from, places, count)
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
