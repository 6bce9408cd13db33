//! Lists of what is in many virtual hosts: all of it is gone through once, however many they are.

use super::Topology;
use super::in_order::InOrder;
use super::listing::{BindingInfo, default_binding};
use crate::binding::Chain;
use crate::exchange::ExchangeInfo;
use crate::queue_info::QueueInfo;
use alloc::vec::Vec;
use lepus_base::VhostId;

/// What is in some virtual hosts, listed in the order of these.
pub(crate) struct OfMany<'a> {
    topology: &'a Topology,
    vhosts: InOrder,
}

impl<'a> OfMany<'a> {
    pub(crate) fn new(topology: &'a Topology, vhosts: &[VhostId]) -> OfMany<'a> {
        OfMany { topology, vhosts: InOrder::of(vhosts) }
    }

    /// The exchanges, of each virtual host by name.
    pub(crate) fn exchanges(self) -> impl ExactSizeIterator<Item = &'a ExchangeInfo> {
        let found = self.topology.exchanges.living();
        let found = found.filter_map(|info| Some((self.vhosts.place(info.vhost)?, info)));
        let mut list: Vec<(usize, &ExchangeInfo)> = found.collect();
        list.sort_unstable_by_key(|(place, info)| (*place, &info.name));
        list.into_iter().map(|(_, info)| info)
    }

    /// The queues, of each virtual host by name.
    pub(crate) fn queues(self) -> impl ExactSizeIterator<Item = &'a QueueInfo> {
        let list = self.topology.queues.list_of(&self.vhosts);
        list.into_iter().map(|(_, info)| info)
    }

    /// All bindings, each with its virtual host, as [`Topology::bindings`] has those of one.
    pub(crate) fn bindings(self) -> impl ExactSizeIterator<Item = (VhostId, BindingInfo<'a>)> {
        let OfMany { topology, vhosts } = self;
        let mut list: Vec<(usize, VhostId, BindingInfo<'_>)> = Vec::new();
        for (place, info) in topology.queues.list_of(&vhosts) {
            list.push((place, info.vhost, default_binding(info)));
        }
        for slot in topology.exchanges.iter() {
            let vhost = slot.info.vhost;
            if let Some(place) = vhosts.place(vhost) {
                let chain = topology.bindings.chain(Chain::Source, slot.as_source);
                let chain = chain.filter(|binding| !topology.is_going(*binding));
                list.extend(chain.map(|binding| (place, vhost, topology.binding_info(binding))));
            }
        }
        // The source of the default ones comes before any other.
        list.sort_by_key(|(place, _, info)| {
            (*place, info.source, info.destination, info.routing_key)
        });
        list.into_iter().map(|(_, vhost, info)| (vhost, info))
    }
}
