//! What an exchange has of its bindings: a router that fits its type, and the filters that bindings have.

use super::Router;
use super::filters::{
    Dearest, FilterCost, FilterFigures, FilterLimits, Filters, Prepared, is_filtered,
};
use crate::binding::{Binding, Bindings, Destination, Link};
use crate::exchange::ExchangeKind;
use alloc::boxed::Box;
use lepus_amqp::table::TableRef;
use lepus_base::{HashState, ShardId};
use lepus_filter::SetFull;

/// The bindings of one exchange, as routing finds them.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(super) router: Router,
    /// Those of its bindings, if any has one.
    pub(super) filters: Option<Box<Filters>>,
    /// How many these are in a copy that does not keep them.
    counted: u32,
    hash: HashState,
}

impl Outlet {
    /// That of an exchange without bindings. `arguments` are the exchange's.
    pub(crate) fn new(kind: ExchangeKind, arguments: TableRef<'_>, hash: HashState) -> Outlet {
        Outlet { router: Router::new(kind, arguments, hash), filters: None, counted: 0, hash }
    }

    /// Forgets what the filters of its bindings say; how many there are is known. No message may come any more.
    pub(crate) fn forget_filters(&mut self) {
        self.counted = self.filter_count() as u32;
        self.filters = None;
    }

    /// Adds a binding that was checked with [`check_binding`](super::check_binding); `to` is its target by name. What its
    /// filter says is kept where `filter` is given. Whether it has one.
    pub(crate) fn insert(
        &mut self,
        bindings: &mut Bindings,
        place: u32,
        to: &Destination,
        filter: Option<&Prepared>,
    ) -> bool {
        let binding = bindings.get(place);
        let (is_filtered, source) = (is_filtered(binding.arguments()), binding.source);
        let link = Link { target: binding.target, binding: place };
        if is_filtered && filter.is_none() {
            self.counted += 1;
        } else if let Some(filter) = filter.filter(|_| is_filtered) {
            let new = || Box::new(Filters::new(self.hash, source));
            let filters = self.filters.get_or_insert_with(new);
            filter.with(bindings.get(place).arguments(), |parsed| filters.insert(link, parsed));
        }
        if !is_filtered || !self.router.takes_everything() {
            self.router.insert(bindings, place, to);
        }
        is_filtered
    }

    /// Whether there is room for the filter of one more binding.
    ///
    /// # Errors
    /// What there would be too much of.
    pub(crate) fn check_filter(
        &self,
        filter: &Prepared,
        limits: FilterLimits,
    ) -> Result<(), SetFull> {
        filter.check(self.filters.as_deref(), limits)
    }

    /// The steps that the filters take of a message, where that is more than so many and the filter of one more binding
    /// would make it more.
    pub(crate) fn refuses(&self, filter: &Prepared, steps_max: u32) -> Option<u32> {
        self.filters.as_ref()?.refuses(filter, steps_max)
    }

    /// A shard says what asking the filters takes there, if that is much.
    pub(crate) fn note_filter_cost(&mut self, shard: ShardId, cost: Option<FilterCost>) {
        if let Some(filters) = &mut self.filters {
            filters.note_cost(shard, cost);
        }
    }

    /// How many filters its bindings have, if any has one.
    pub(crate) fn filter_figures(&self) -> Option<FilterFigures> {
        self.filters.as_ref().map(|filters| filters.figures())
    }

    /// The dearest filters, so many at most, among those at so many places from `from` on.
    pub(crate) fn dearest_filters(
        &self,
        from: usize,
        places: usize,
        count: usize,
    ) -> Option<Dearest> {
        self.filters.as_ref().map(|filters| filters.dearest(from, places, count))
    }

    /// Bytes that its bindings' filters take.
    pub(crate) fn filter_bytes(&self) -> usize {
        self.filters.as_ref().map_or(0, |filters| filters.bytes())
    }

    /// Removes a binding. Whether it has a filter.
    pub(crate) fn remove(&mut self, bindings: &mut Bindings, place: u32) -> bool {
        let was_filtered = match &mut self.filters {
            Some(filters) => filters.remove(place),
            None => self.counted > 0 && is_filtered(bindings.get(place).arguments()),
        };
        if was_filtered && self.filters.is_none() {
            self.counted -= 1;
        } else if was_filtered && self.filter_count() == 0 {
            self.filters = None;
        }
        if !(was_filtered && self.router.takes_everything()) {
            self.router.remove(bindings, place);
        }
        was_filtered
    }

    /// How many of the bindings have a filter.
    pub(crate) fn filter_count(&self) -> usize {
        self.filters.as_ref().map_or(self.counted as usize, |filters| filters.len())
    }

    /// Tidies up what is known of filters, for about so many steps of some ten nanoseconds. Returns whether there is more
    /// to do.
    pub(crate) fn tidy(&mut self, steps: usize) -> bool {
        self.filters.as_mut().is_some_and(|filters| filters.tidy(steps))
    }

    /// About how many bytes a binding takes in here, but for its filter: see [`Outlet::filter_bytes`].
    pub(crate) fn bytes_of(&self, binding: &Binding) -> usize {
        self.router.bytes_of(binding)
    }

    /// Bytes of the router's tables.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.router.memory_bytes()
    }
}
