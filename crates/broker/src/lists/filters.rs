//! Content filters: of exchanges' bindings, and the queues whose consumers have some.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::vec::Vec;

use lepus_base::{QueueId, VhostId};

use super::Lists;
use crate::directory::{BindingInfo, DearFilter};
use crate::query::{DEAR_MAX, DearFilterRow, FILTERS_MAX, FilterFiguresRow, PLACES_MAX, Part};

impl Lists<'_> {
    /// What those of the exchanges have whose bindings have filters.
    pub(super) fn filter_figures(
        &self,
        exchanges: &[(VhostId, Box<str>)],
    ) -> Vec<FilterFiguresRow> {
        let row = |(vhost, name): &(VhostId, Box<str>)| {
            let figures = self.directory.filter_figures(*vhost, name)?;
            let place = self.directory.exchange_place(*vhost, name)?;
            let costs = self.filter_costs.costs(place).unwrap_or_default();
            Some(FilterFiguresRow {
                vhost: *vhost,
                name: name.clone(),
                figures,
                samples: costs.samples,
                reading_steps: costs.reading,
                matching_steps: costs.matching,
            })
        };
        exchanges.iter().take(PLACES_MAX).filter_map(row).collect()
    }

    /// The dearest filters of an exchange's bindings among those at some places.
    pub(super) fn dear_filters(
        &self,
        vhost: VhostId,
        exchange: &str,
        from: usize,
    ) -> Part<DearFilterRow, usize> {
        let found = self.directory.dearest_filters(vhost, exchange, from, FILTERS_MAX, DEAR_MAX);
        let (filters, next) = found;
        let row = |(filter, oldest): (DearFilter, BindingInfo<'_>)| DearFilterRow {
            text: filter.text,
            format: filter.format.name(),
            way: filter.way.name(),
            cost: filter.cost,
            bindings: filter.bindings,
            destination_kind: oldest.destination.kind(),
            destination: oldest.destination.name().to_owned(),
            routing_key: oldest.routing_key.to_owned(),
        };
        Part { rows: filters.into_iter().map(row).collect(), next }
    }

    /// Queues of this shard whose consumers have filters, behind one of them.
    pub(super) fn filtered_queues(&self, after: Option<QueueId>) -> Part<QueueId, QueueId> {
        let mut behind = self.homes.queues_with_selectors(after);
        let looked_at: Vec<QueueId> = behind.by_ref().take(PLACES_MAX).collect();
        let next = looked_at.last().copied().filter(|_| behind.next().is_some());
        let has = |id: &QueueId| {
            self.homes.find(*id).is_some_and(|home| home.queue.selectors().are_any_filtered())
        };
        Part { rows: looked_at.into_iter().filter(has).collect(), next }
    }
}
