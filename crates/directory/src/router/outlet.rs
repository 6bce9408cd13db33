//! What an exchange has of its bindings: a router that fits its type, and the filters that bindings have.

use super::Router;
use super::filters::{FilterLimits, Filters, Prepared, is_filtered};
use crate::binding::{Binding, Bindings, Destination};
use crate::exchange::ExchangeKind;
use alloc::boxed::Box;
use lepus_amqp::table::TableRef;
use lepus_base::HashState;
use lepus_filter::SetFull;

/// The bindings of one exchange, as routing finds them.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(super) router: Router,
    /// Those of its bindings, if any has one.
    pub(super) filters: Option<Box<Filters>>,
    hash: HashState,
}

impl Outlet {
    /// That of an exchange without bindings. `arguments` are the exchange's.
    pub(crate) fn new(kind: ExchangeKind, arguments: TableRef<'_>, hash: HashState) -> Outlet {
        Outlet { router: Router::new(kind, arguments, hash), filters: None, hash }
    }

    /// Adds a binding that was checked with [`check_binding`](super::check_binding); `to` is its target by name. Whether
    /// it has a filter.
    pub(crate) fn insert(
        &mut self,
        bindings: &mut Bindings,
        place: u32,
        to: &Destination,
        filter: &Prepared,
    ) -> bool {
        let is_filtered = is_filtered(bindings.get(place).arguments());
        if is_filtered {
            let filters = self.filters.get_or_insert_with(|| Box::new(Filters::new(self.hash)));
            filter.with(bindings.get(place).arguments(), |parsed| filters.insert(place, parsed));
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

    /// Bytes that its bindings' filters take.
    pub(crate) fn filter_bytes(&self) -> usize {
        self.filters.as_ref().map_or(0, |filters| filters.bytes())
    }

    /// Removes a binding. Whether it has a filter.
    pub(crate) fn remove(&mut self, bindings: &mut Bindings, place: u32) -> bool {
        let was_filtered = self.filters.as_mut().is_some_and(|filters| filters.remove(place));
        if was_filtered && self.filter_count() == 0 {
            self.filters = None;
        }
        if !(was_filtered && self.router.takes_everything()) {
            self.router.remove(bindings, place);
        }
        was_filtered
    }

    /// How many of the bindings have a filter.
    pub(crate) fn filter_count(&self) -> usize {
        self.filters.as_ref().map_or(0, |filters| filters.len())
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
