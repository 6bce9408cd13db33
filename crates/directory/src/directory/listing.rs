//! Sorted lists for tools.

use super::{Directory, ExchangeInfo, ExchangeSlot, QueueInfo};
use crate::binding::Chain;
use crate::permission::{Permission, TopicPermission};
use crate::user::User;
use crate::vhost::VhostInfo;
use alloc::vec::Vec;
use core::ops::Bound;
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

impl Directory {
    /// All virtual hosts by name.
    pub fn vhosts(&self) -> impl ExactSizeIterator<Item = &VhostInfo> {
        self.vhosts_by_name.values().map(|id| &self.vhosts[id])
    }

    /// All users by name.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &User> {
        self.users.values()
    }

    /// The users whose names come behind this one, by name; all without one.
    pub fn users_behind(&self, name: Option<&str>) -> impl Iterator<Item = &User> {
        let first = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.users.range::<str, _>((first, Bound::Unbounded)).map(|(_, user)| user)
    }

    /// The permissions of a user by age of the virtual host: virtual host, patterns.
    pub fn permissions_of<'a>(
        &'a self,
        user: &'a User,
    ) -> impl Iterator<Item = (&'a VhostInfo, &'a Permission)> {
        user.permissions.iter().map(|(vhost, permission)| (&self.vhosts[vhost], permission))
    }

    /// A user's restrictions of routing keys: virtual host, exchange, patterns.
    pub fn topic_permissions_of<'a>(
        &'a self,
        user: &'a User,
    ) -> impl Iterator<Item = (&'a VhostInfo, &'a str, &'a TopicPermission)> {
        let own = user.topic_permissions.iter();
        own.map(|((vhost, exchange), permission)| (&self.vhosts[vhost], &**exchange, permission))
    }

    /// All permissions by user, then by age of the virtual host: user, virtual host, patterns.
    pub fn permissions(&self) -> impl Iterator<Item = (&str, &VhostInfo, &Permission)> {
        self.users.values().flat_map(|user| {
            let own = self.permissions_of(user);
            own.map(|(vhost, permission)| (&*user.name, vhost, permission))
        })
    }

    /// All restrictions of routing keys by user: user, virtual host, exchange, patterns.
    pub fn topic_permissions(
        &self,
    ) -> impl Iterator<Item = (&str, &VhostInfo, &str, &TopicPermission)> {
        self.users.values().flat_map(|user| {
            let own = self.topic_permissions_of(user);
            own.map(|(vhost, exchange, permission)| (&*user.name, vhost, exchange, permission))
        })
    }

    /// The queues of one virtual host, or of all by age of their virtual hosts; then by name.
    pub fn queues(&self, vhost: Option<VhostId>) -> impl ExactSizeIterator<Item = &QueueInfo> {
        let wanted = |info: &&QueueInfo| vhost.is_none_or(|vhost| vhost == info.vhost);
        let all = self.queues.iter().filter(|(_, slot)| !slot.is_gone);
        let all = all.map(|(_, slot)| &*slot.info);
        let mut list: Vec<&QueueInfo> = all.filter(wanted).collect();
        list.sort_unstable_by(|a, b| (a.vhost, a.name()).cmp(&(b.vhost, b.name())));
        list.into_iter()
    }

    /// The exchanges of one virtual host, or of all by age of their virtual hosts; then by name.
    pub fn exchanges(
        &self,
        vhost: Option<VhostId>,
    ) -> impl ExactSizeIterator<Item = &ExchangeInfo> {
        let wanted = |info: &&ExchangeInfo| vhost.is_none_or(|vhost| vhost == info.vhost);
        let all = self.exchanges.iter().filter(|(_, slot)| !slot.is_gone);
        let all = all.map(|(_, slot)| &slot.info);
        let mut list: Vec<&ExchangeInfo> = all.filter(wanted).collect();
        list.sort_unstable_by_key(|info| (info.vhost, &info.name));
        list.into_iter()
    }

    /// The exchanges of a virtual host among those at so many places from `first` on, in no particular
    /// order; `None` when there are no places there. A list made in parts has each once.
    pub fn exchanges_in(
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
    pub fn bindings_in(
        &self,
        vhost: VhostId,
        first: usize,
        places: usize,
    ) -> Option<impl Iterator<Item = BindingInfo<'_>>> {
        let end = self.bindings.places().min(first.saturating_add(places));
        let is_own = move |place: &u32| {
            let source = self.bindings.try_get(*place).map(|binding| binding.source);
            source.is_some_and(|source| self.exchanges[source as usize].info.vhost == vhost)
                && !self.is_going(*place)
        };
        let found = (first < end).then(|| (first as u32..end as u32).filter(is_own));
        found.map(|found| found.map(|place| self.binding_info(place)))
    }

    /// All bindings of a virtual host by source, destination and key. The default exchange comes
    /// first with each queue under its name.
    pub fn bindings(&self, vhost: VhostId) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        let defaults = self.queues(Some(vhost)).map(default_binding);
        let mut list: Vec<BindingInfo<'_>> = defaults.collect();
        let start = list.len();
        for (_, slot) in self.exchanges.iter() {
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
    pub fn bindings_from(
        &self,
        vhost: VhostId,
        exchange: &str,
    ) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        let mut list = Vec::new();
        if exchange.is_empty() {
            list.extend(self.queues(Some(vhost)).map(default_binding));
        } else if let Some(place) = self.exchange_place(vhost, exchange) {
            let head = self.exchanges[place as usize].as_source;
            let chain = self.bindings.chain(Chain::Source, head);
            let chain = chain.filter(|place| !self.is_going(*place));
            list.extend(chain.map(|place| self.binding_info(place)));
            list.sort_by_key(|info| (info.destination, info.routing_key));
        }
        list.into_iter()
    }

    /// The bindings that lead to a queue or exchange, by source and key; a queue's default binding
    /// comes first.
    pub fn bindings_to(
        &self,
        vhost: VhostId,
        destination: DestinationRef<'_>,
    ) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        let mut list = Vec::new();
        let head = match destination {
            DestinationRef::Queue(name) => self.queue_place(vhost, name).map(|place| {
                let slot = &self.queues[place as usize];
                list.push(default_binding(&slot.info));
                slot.as_target
            }),
            DestinationRef::Exchange(name) => self
                .exchange_place(vhost, name)
                .map(|place| self.exchanges[place as usize].as_target),
        };
        if let Some(head) = head {
            let chain = self.bindings.chain(Chain::Target, head);
            let chain = chain.filter(|place| !self.is_going(*place));
            list.extend(chain.map(|place| self.binding_info(place)));
            list.sort_by_key(|info| (info.source, info.routing_key));
        }
        list.into_iter()
    }

    fn binding_info(&self, place: u32) -> BindingInfo<'_> {
        let binding = self.bindings.get(place);
        let destination = match binding.target.split() {
            Ok(queue) => DestinationRef::Queue(self.queues[queue as usize].info.name()),
            Err(exchange) => DestinationRef::Exchange(&self.exchanges[exchange as usize].info.name),
        };
        BindingInfo {
            source: &self.exchanges[binding.source as usize].info.name,
            destination,
            routing_key: binding.routing_key.as_str(),
            arguments: binding.arguments(),
        }
    }
}

fn default_binding(queue: &QueueInfo) -> BindingInfo<'_> {
    BindingInfo {
        source: "",
        destination: DestinationRef::Queue(queue.name()),
        routing_key: queue.name(),
        arguments: TableRef::default(),
    }
}
