//! Filters of exchanges' bindings: as operators see them, and what is done for them beside changes.

use super::Topology;
use super::exchanges::{ExchangeSlot, Exchanges};
use super::in_order::InOrder;
use crate::exchange::ExchangeInfo;
use crate::router::{DearFilter, Dearest, FilterCost, FilterFigures};
use crate::size::Size;
use crate::topology::BindingInfo;
use alloc::vec::Vec;
use lepus_base::{ShardId, VhostId};

/// The exchanges whose bindings have filters.
pub(crate) struct Filtered<'a> {
    topology: &'a Topology,
}

impl<'a> Filtered<'a> {
    pub(crate) fn of(topology: &'a Topology) -> Filtered<'a> {
        Filtered { topology }
    }

    /// Those of some virtual hosts, in the order of these; then by name.
    pub(crate) fn in_vhosts(
        self,
        vhosts: InOrder,
    ) -> impl ExactSizeIterator<Item = &'a ExchangeInfo> {
        let is_one = |slot: &&ExchangeSlot| !slot.is_gone && slot.outlet.filter_count() > 0;
        let with_place = |slot: &'a ExchangeSlot| {
            let info = &slot.info;
            Some((vhosts.place(info.vhost)?, info))
        };
        let found = self.topology.exchanges.iter().filter(is_one).filter_map(with_place);
        let mut found: Vec<(usize, &ExchangeInfo)> = found.collect();
        found.sort_unstable_by_key(|(place, info)| (*place, &info.name));
        found.into_iter().map(|(_, info)| info)
    }

    /// Whether [`FilterWork::tidy`] has something to do.
    pub(crate) fn are_untidy(&self) -> bool {
        self.topology.exchanges.is_untidy()
    }

    /// How many filters one of them has.
    pub(crate) fn figures(self, vhost: VhostId, exchange: &str) -> Option<FilterFigures> {
        self.topology.outlet(vhost, exchange)?.filter_figures()
    }

    /// The dearest filters of one of them among those at some places, see
    /// [`Directory::dearest_filters`](crate::Directory::dearest_filters).
    pub(crate) fn dearest(
        self,
        vhost: VhostId,
        exchange: &str,
        from: usize,
        places: usize,
        count: usize,
    ) -> (Vec<(DearFilter, BindingInfo<'a>)>, Option<usize>) {
        let outlet = self.topology.outlet(vhost, exchange);
        let found = outlet.and_then(|it| it.dearest_filters(from, places, count));
        let Some(Dearest { filters, next }) = found else { return (Vec::new(), None) };
        let with_binding = |filter: DearFilter| {
            let oldest = self.topology.binding_info(filter.oldest);
            (filter, oldest)
        };
        (filters.into_iter().map(with_binding).collect(), next)
    }
}

/// What is done for filters beside changes: what is found is the same before and after.
pub(crate) struct FilterWork<'a> {
    exchanges: &'a mut Exchanges,
    size: &'a mut Size,
}

impl<'a> FilterWork<'a> {
    pub(crate) fn of(topology: &'a mut Topology) -> FilterWork<'a> {
        let Topology { exchanges, size, .. } = topology;
        FilterWork { exchanges, size }
    }

    /// Tidies up, see [`Exchanges::tidy`].
    pub(crate) fn tidy(self, steps: usize) {
        let grown = self.exchanges.tidy(steps);
        self.size.change(grown.before, grown.after);
    }

    /// A shard says what an exchange's filters take of a message there, if that is much.
    pub(crate) fn note_cost(
        self,
        vhost: VhostId,
        exchange: &str,
        shard: ShardId,
        cost: Option<FilterCost>,
    ) {
        if let Some(place) = self.exchanges.place(vhost, exchange) {
            self.exchanges.at_mut(place).outlet.note_filter_cost(shard, cost);
        }
    }

    /// Forgets what filters say, see [`Directory::without_filters`](crate::Directory::without_filters).
    pub(crate) fn forget(self) {
        let bytes = self.exchanges.forget_filters();
        self.size.change(bytes, 0);
    }
}
