//! Sorted lists for tools.

use super::{ExchangeSlot, Topology};
use crate::binding::{Chain, Destination};
use crate::change::BindingChange;
use crate::exchange::ExchangeInfo;
use crate::queue_info::QueueInfo;
use crate::router::Prepared;
use alloc::vec::Vec;
use lepus_amqp::table::TableRef;
use lepus_base::VhostId;

/// What a binding leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DestinationRef<'a> {
    /// An exchange.
    Exchange(&'a str),
    /// A queue.
    Queue(&'a str),
}

impl<'a> DestinationRef<'a> {
    /// The name.
    #[must_use]
    pub fn name(self) -> &'a str {
        match self {
            DestinationRef::Queue(name) | DestinationRef::Exchange(name) => name,
        }
    }

    /// `queue` or `exchange`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            DestinationRef::Queue(_) => "queue",
            DestinationRef::Exchange(_) => "exchange",
        }
    }
}

/// A binding as tools show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BindingInfo<'a> {
    /// The exchange that messages come from; empty for the default exchange.
    pub source: &'a str,
    /// What they go to.
    pub destination: DestinationRef<'a>,
    /// The key, pattern or weight.
    pub routing_key: &'a str,
    /// The arguments, sorted by name; empty where there are none.
    pub arguments: TableRef<'a>,
}

impl Topology {
    /// The exchanges of one virtual host, or of all by age of their virtual hosts; then by name.
    pub(crate) fn exchanges(
        &self,
        vhost: Option<VhostId>,
    ) -> impl ExactSizeIterator<Item = &ExchangeInfo> {
        let wanted = |info: &&ExchangeInfo| vhost.is_none_or(|vhost| vhost == info.vhost);
        let mut list: Vec<&ExchangeInfo> = self.exchanges.living().filter(wanted).collect();
        list.sort_unstable_by_key(|info| (info.vhost, &info.name));
        list.into_iter()
    }

    /// The exchanges of a virtual host among those at so many places from `first` on, in no particular
    /// order; `None` when there are no places there. A list made in parts has each once.
    pub(crate) fn exchanges_in(
        &self,
        vhost: VhostId,
        first: usize,
        places: usize,
    ) -> Option<impl Iterator<Item = &ExchangeInfo>> {
        let end = self.exchanges.places().min(first.saturating_add(places));
        let is_own = move |slot: &&ExchangeSlot| slot.info.vhost == vhost && !slot.is_gone;
        let found =
            (first < end).then(|| (first..end).filter_map(|place| self.exchanges.get(place)));
        found.map(|found| found.filter(is_own).map(|slot| &slot.info))
    }

    /// The same for bindings, without those of the default exchange.
    pub(crate) fn bindings_in(
        &self,
        vhost: VhostId,
        first: usize,
        places: usize,
    ) -> Option<impl Iterator<Item = BindingInfo<'_>>> {
        let end = self.bindings.places().min(first.saturating_add(places));
        let is_own = move |place: &u32| {
            let source = self.bindings.try_get(*place).map(|binding| binding.source);
            source.is_some_and(|source| self.exchanges.at(source).info.vhost == vhost)
                && !self.is_going(*place)
        };
        let found = (first < end).then(|| (first as u32..end as u32).filter(is_own));
        found.map(|found| found.map(|place| self.binding_info(place)))
    }

    /// All bindings of a virtual host by source, destination and key. The default exchange comes
    /// first with each queue under its name.
    pub(crate) fn bindings(
        &self,
        vhost: VhostId,
    ) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        let defaults = self.queues.list(Some(vhost)).into_iter().map(default_binding);
        let mut list: Vec<BindingInfo<'_>> = defaults.collect();
        let start = list.len();
        for slot in self.exchanges.iter() {
            if slot.info.vhost == vhost {
                let chain = self.bindings.chain(Chain::Source, slot.as_source);
                let chain = chain.filter(|place| !self.is_going(*place));
                list.extend(chain.map(|place| self.binding_info(place)));
            }
        }
        list[start..].sort_by_key(|info| (info.source, info.destination, info.routing_key));
        list.into_iter()
    }

    /// The bindings that have the exchange as their source, by destination and key.
    pub(crate) fn bindings_from(
        &self,
        vhost: VhostId,
        exchange: &str,
    ) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        let mut list = Vec::new();
        if exchange.is_empty() {
            list.extend(self.queues.list(Some(vhost)).into_iter().map(default_binding));
        } else if let Some(place) = self.exchanges.place(vhost, exchange) {
            let chain = self.bindings_at(place as usize);
            let chain = chain.filter(|place| !self.is_going(*place));
            list.extend(chain.map(|place| self.binding_info(place)));
            list.sort_by_key(|info| (info.destination, info.routing_key));
        }
        list.into_iter()
    }

    /// The bindings that lead to a queue or exchange, by source and key; a queue's default binding
    /// comes first.
    pub(crate) fn bindings_to(
        &self,
        vhost: VhostId,
        destination: DestinationRef<'_>,
    ) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        let mut list = Vec::new();
        let head = match destination {
            DestinationRef::Queue(name) => self.queues.place(vhost, name).map(|place| {
                let slot = self.queues.at(place);
                list.push(default_binding(&slot.info));
                slot.as_target
            }),
            DestinationRef::Exchange(name) => {
                self.exchanges.place(vhost, name).map(|place| self.exchanges.at(place).as_target)
            }
        };
        if let Some(head) = head {
            let chain = self.bindings.chain(Chain::Target, head);
            let chain = chain.filter(|place| !self.is_going(*place));
            list.extend(chain.map(|place| self.binding_info(place)));
            list.sort_by_key(|info| (info.source, info.routing_key));
        }
        list.into_iter()
    }

    /// The change that makes the binding at a place.
    pub(crate) fn binding_change(&self, place: u32) -> BindingChange {
        let binding = self.bindings.get(place);
        let source = &self.exchanges.at(binding.source).info;
        let destination = match binding.target.split() {
            Ok(queue) => Destination::Queue(self.queues.at(queue).info.name().into()),
            Err(exchange) => {
                Destination::Exchange(self.exchanges.at(exchange).info.name.clone().into())
            }
        };
        BindingChange {
            vhost: source.vhost,
            source: source.name.clone(),
            destination,
            routing_key: binding.routing_key.as_str().into(),
            arguments: binding.arguments().to_bytes(),
            filter: Prepared::default(),
        }
    }

    pub(super) fn binding_info(&self, place: u32) -> BindingInfo<'_> {
        let binding = self.bindings.get(place);
        let destination = match binding.target.split() {
            Ok(queue) => DestinationRef::Queue(self.queues.at(queue).info.name()),
            Err(exchange) => DestinationRef::Exchange(&self.exchanges.at(exchange).info.name),
        };
        BindingInfo {
            source: &self.exchanges.at(binding.source).info.name,
            destination,
            routing_key: binding.routing_key.as_str(),
            arguments: binding.arguments(),
        }
    }
}

pub(super) fn default_binding(queue: &QueueInfo) -> BindingInfo<'_> {
    BindingInfo {
        source: "",
        destination: DestinationRef::Queue(queue.name()),
        routing_key: queue.name(),
        arguments: TableRef::default(),
    }
}
