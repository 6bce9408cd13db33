//! Exchanges, queues, and the bindings between them.

mod clearing;
mod exchanges;
mod filtered;
mod in_order;
mod listing;
mod many;
mod queues;
mod removal;
mod routing;
mod wake;

use crate::binding::{Bindings, Chain, Destination, Target};
use crate::change::{Applied, BindingChange, Change};
use crate::exchange::{ExchangeInfo, PREDECLARED};
use crate::queue_info::QueueInfo;
use crate::router::{Outlet, Route, is_filtered};
use crate::size::{Kind, Size, arguments_of, kind_of};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use clearing::Clearing;
use core::hash::{BuildHasher, Hasher};
use exchanges::{ExchangeSlot, Exchanges};
pub(crate) use filtered::{FilterWork, Filtered};
pub(crate) use in_order::InOrder;
use lepus_amqp::table::TableBytes;
use lepus_base::{HashState, QueueId, VhostId};
use lepus_queue::QueueSettings;
pub use listing::{BindingInfo, DestinationRef};
pub(crate) use many::OfMany;
use queues::{QueueSlot, Queues};
pub(crate) use routing::Unroutable;
pub use routing::too_far;

/// Bytes of an entry in a table of names, with the room that a table keeps, about.
const ENTRY_BYTES: usize = 8;
/// As how many bindings one with a filter counts when it goes.
const FILTER_REMOVAL: usize = 16;
/// Bytes that an allocation takes beside what was asked for, about.
const ALLOCATION_BYTES: usize = 16;

/// Where messages go. What a change takes along is computed here, and the same on every shard.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    exchanges: Exchanges,
    queues: Queues,
    bindings: Bindings,
    size: Size,
    /// Changes come from a log: what follows from them is in it too.
    is_replaying: bool,
    /// What was deleted with very much in it, the first one's contents on their way out.
    clearing: VecDeque<Clearing>,
    /// Queues and exchanges among that to which bindings still lead: no message follows these.
    dead: BTreeSet<Target>,
    /// Bindings that go in one step at most.
    slice: usize,
}

impl Topology {
    /// An empty one. `shards` is the number of shards, at least one.
    pub(crate) fn new(hash: HashState, shards: u16) -> Topology {
        Topology {
            exchanges: Exchanges::new(hash),
            queues: Queues::new(hash, shards),
            bindings: Bindings::new(hash),
            size: Size::default(),
            is_replaying: false,
            clearing: VecDeque::new(),
            dead: BTreeSet::new(),
            slice: clearing::SLICE,
        }
    }

    /// The queues.
    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The same, to note what a shard knows of them.
    pub(crate) fn queues_mut(&mut self) -> &mut Queues {
        &mut self.queues
    }

    /// Running sums of what all of it takes.
    pub(crate) fn size(&self) -> &Size {
        &self.size
    }

    /// How many there are of what a change adds, those on their way out included; `None` if it adds nothing.
    pub(crate) fn count_of(&self, change: &Change) -> Option<usize> {
        match change {
            Change::QueueDeclared(_) => Some(self.queues.len()),
            Change::ExchangeDeclared(_) => Some(self.exchanges.len()),
            Change::Bound(_) => Some(self.bindings.len()),
            _ => None,
        }
    }

    /// Number of queues and exchanges, those on their way out included.
    pub(crate) fn object_count(&self) -> usize {
        self.queues.len() + self.exchanges.len()
    }

    /// Number of bindings, those on their way out included.
    pub(crate) fn binding_count(&self) -> usize {
        self.bindings.len()
    }

    /// The exchange of that name; the empty name is the default exchange.
    pub(crate) fn exchange(&self, vhost: VhostId, name: &str) -> Option<&ExchangeInfo> {
        self.exchanges.place(vhost, name).map(|place| &self.exchanges.at(place).info)
    }

    /// The place of the exchange of that name.
    pub(crate) fn exchange_place(&self, vhost: VhostId, name: &str) -> Option<u32> {
        self.exchanges.place(vhost, name)
    }

    /// Has the exchange at a place send what it routes nowhere to another by its policy, unless its arguments say
    /// where. Whether that is otherwise than before.
    pub(crate) fn set_policy_alternate(&mut self, place: u32, alternate: Option<Box<str>>) -> bool {
        let slot = self.exchanges.at_mut(place);
        if slot.by_policy == alternate {
            return false;
        }
        let bytes =
            |name: &Option<Box<str>>| name.as_ref().map_or(0, |name| name.len() + ALLOCATION_BYTES);
        let after = bytes(&alternate);
        let before = bytes(&core::mem::replace(&mut slot.by_policy, alternate));
        self.size.change(before, after);
        true
    }

    /// How many bindings have the exchange as their source.
    pub(crate) fn bindings_of(&self, vhost: VhostId, exchange: &str) -> Option<u32> {
        self.exchanges.place(vhost, exchange).map(|place| self.exchanges.at(place).bindings)
    }

    /// Whether the exchange has bindings or an alternate exchange.
    pub(crate) fn leads_somewhere(&self, vhost: VhostId, exchange: &str) -> bool {
        let slot = self.exchanges.place(vhost, exchange).map(|place| self.exchanges.at(place));
        slot.is_some_and(|slot| {
            slot.bindings > 0 || slot.info.alternate.is_some() || slot.by_policy.is_some()
        })
    }

    /// The exchange whose messages are held back under this id.
    pub(crate) fn holding(&self, id: QueueId) -> Option<&ExchangeInfo> {
        self.exchanges.holding(id)
    }

    /// A delayed exchange that has no id for what it holds back.
    pub(crate) fn without_holding(&self) -> Option<&ExchangeInfo> {
        self.exchanges.living().find(|info| info.delayed && info.holding.is_none())
    }

    /// Places of exchanges, free ones included.
    pub(crate) fn exchange_places(&self) -> usize {
        self.exchanges.places()
    }

    /// The exchange at a place that may be free, if somebody finds it.
    pub(crate) fn exchange_at(&self, place: usize) -> Option<&ExchangeInfo> {
        self.exchanges.get(place).filter(|slot| !slot.is_gone).map(|slot| &slot.info)
    }

    /// The bindings that have the exchange at a place as their source, by place.
    pub(crate) fn bindings_at(&self, place: usize) -> impl Iterator<Item = u32> {
        let head = self.exchanges.get(place).map(|slot| slot.as_source);
        head.into_iter().flat_map(|head| self.bindings.chain(Chain::Source, head))
    }

    /// Whether most places of queues, exchanges or bindings are those of what is gone: they do not go by themselves.
    pub(crate) fn is_sparse(&self) -> bool {
        let is_sparse = |places: usize, len: usize| places > 4096 && places > 2 * len;
        is_sparse(self.queues.places(), self.queues.len())
            || is_sparse(self.exchanges.places(), self.exchanges.len())
            || is_sparse(self.bindings.places(), self.bindings.len())
    }

    /// Where a destination lies.
    pub(crate) fn target(&self, vhost: VhostId, destination: &Destination) -> Option<Target> {
        match destination {
            Destination::Queue(name) => self.queues.place(vhost, name).map(Target::queue),
            Destination::Exchange(name) => self.exchanges.place(vhost, name).map(Target::exchange),
        }
    }

    /// The binding that a change names, by place.
    pub(crate) fn find_binding(&self, change: &BindingChange) -> Option<u32> {
        let source = self.exchanges.place(change.vhost, &change.source)?;
        let target = self.target(change.vhost, &change.destination)?;
        self.bindings.find(source, target, &change.routing_key, change.arguments.as_ref())
    }

    /// Counts what is decided and not applied yet.
    pub(crate) fn reserve(&mut self, change: &Change) {
        if let Some((vhost, bytes)) = arguments_of(change) {
            self.size.reserve(vhost, bytes);
        }
        if let Some((vhost, kind)) = kind_of(change) {
            self.size.hold(vhost, kind, true);
        }
        self.hold_filter(change, true);
        if let Some(id) = change.used_id() {
            self.queues.use_id(id);
        }
        if let Change::QueueDeclared(info) = change {
            self.queues.reserve(info);
        }
    }

    /// The opposite, right before the change is applied or given up.
    pub(crate) fn release(&mut self, change: &Change) {
        if let Some((vhost, bytes)) = arguments_of(change) {
            self.size.release(vhost, bytes);
        }
        if let Some((vhost, kind)) = kind_of(change) {
            self.size.hold(vhost, kind, false);
        }
        self.hold_filter(change, false);
        if let Change::QueueDeclared(info) = change {
            self.queues.release(info);
        }
    }

    fn hold_filter(&mut self, change: &Change, comes: bool) {
        if let Change::Bound(binding) = change
            && is_filtered(binding.arguments.as_ref())
        {
            self.size.hold(binding.vhost, Kind::Filter, comes);
        }
    }

    /// Whether exchanges do not delete themselves, because a log says what follows from its changes.
    pub(crate) fn set_replaying(&mut self, is_replaying: bool) {
        self.is_replaying = is_replaying;
    }

    /// What was read is whole: nobody asks for an id of an earlier run.
    pub(crate) fn settle(&mut self) {
        assert!(self.clearing.is_empty() && self.dead.is_empty(), "what is gone is out of it");
        self.queues.forget_moves();
    }

    /// Makes the tables as large as about `count` queues need, unless there are some already.
    pub(crate) fn prepare(&mut self, count: usize) {
        self.queues.prepare(count);
    }

    /// Applies a change of exchanges, queues and bindings; their virtual host is there.
    pub(crate) fn apply(&mut self, change: &Change, applied: &mut Applied) {
        match change {
            Change::ExchangeDeclared(info) => self.add_exchange((**info).clone()),
            Change::ExchangeDeleted { vhost, name } => {
                if let Some(place) = self.exchanges.place(*vhost, name) {
                    let is_small = self.is_small(change);
                    self.delete_exchange(place, is_small, applied);
                }
            }
            Change::QueueDeclared(info) => self.add_queue(Arc::clone(info)),
            Change::QueueDeleted { id } => {
                if let Some(place) = self.queues.place_by_id(*id) {
                    let is_small = self.is_small(change);
                    self.delete_queue(place, is_small, applied);
                }
            }
            Change::QueueMoved { id, new_id, log } => {
                self.queues.use_id(*new_id);
                if let Some(place) = self.queues.place_by_id(*id) {
                    let old = self.queues.relocate(place, *new_id, *log);
                    applied.queue_moved = Some((old, *new_id));
                }
            }
            Change::Bound(binding) => self.add_binding(binding),
            Change::Unbound(binding) => {
                let is_small = self.is_small(change);
                if let Some(place) = self.find_binding(binding) {
                    let mut left = Vec::new();
                    self.remove_binding(place, &mut left);
                    self.delete_left(left, is_small, applied);
                }
            }
            _ => {}
        }
    }

    /// A virtual host comes, with the exchanges that each has.
    pub(crate) fn add_vhost(&mut self, vhost: VhostId) {
        self.queues.add_vhost(vhost);
        for (name, kind, internal) in PREDECLARED {
            self.add_exchange(ExchangeInfo {
                vhost,
                name: name.into(),
                kind,
                delayed: false,
                holding: None,
                durable: true,
                auto_delete: false,
                internal,
                alternate: None,
                arguments: TableBytes::default(),
            });
        }
    }

    fn add_exchange(&mut self, info: ExchangeInfo) {
        let holding = info.holding;
        match self.exchanges.place(info.vhost, &info.name) {
            Some(place) if self.exchanges.at(place).info.holding.is_none() => {
                self.exchanges.give_holding(place, holding);
            }
            Some(_) => return,
            None => {
                self.count_exchange(&info, true);
                self.exchanges.insert(info);
            }
        }
        if let Some(id) = holding {
            self.queues.use_id(id);
        }
    }

    fn add_queue(&mut self, info: Arc<QueueInfo>) {
        if self.queues.place(info.vhost, info.name()).is_some() {
            return;
        }
        self.count_queue(&info, true);
        self.queues.insert(info);
    }

    fn add_binding(&mut self, change: &BindingChange) {
        let BindingChange { routing_key, arguments, .. } = change;
        let Some(source) = self.exchanges.place(change.vhost, &change.source) else {
            return race!("the exchange was deleted before something was bound to it");
        };
        let Some(target) = self.target(change.vhost, &change.destination) else {
            return race!("what was to be bound was deleted before");
        };
        if self.bindings.find(source, target, routing_key, arguments.as_ref()).is_some() {
            return;
        }
        let bindings = &mut self.bindings;
        let place = bindings.insert(source, target, routing_key, arguments);
        let exchange = self.exchanges.at_mut(source);
        bindings.link(Chain::Source, &mut exchange.as_source, place);
        exchange.bindings += 1;
        let grown = self.exchanges.bind(source, bindings, place, change);
        self.size.change(grown.before, grown.after);
        let head = match target.split() {
            Ok(queue) => &mut self.queues.at_mut(queue).as_target,
            Err(exchange) => &mut self.exchanges.at_mut(exchange).as_target,
        };
        bindings.link(Chain::Target, head, place);
        self.count_binding(place, true);
    }

    fn count_exchange(&mut self, info: &ExchangeInfo, comes: bool) {
        let names = info.name.len() + info.alternate.as_ref().map_or(0, |name| name.len());
        let bytes = size_of::<ExchangeSlot>()
            + names
            + info.arguments.len()
            + ENTRY_BYTES
            + 2 * ALLOCATION_BYTES;
        self.size.count(info.vhost, Kind::Exchange, bytes, info.arguments.len(), comes);
    }

    fn count_queue(&mut self, info: &QueueInfo, comes: bool) {
        let arguments = info.arguments().bytes().len();
        let mut shared = size_of::<QueueInfo>() + info.name().len() + info.user().len();
        shared += 2 * ALLOCATION_BYTES;
        if arguments > 0 || *info.settings() != QueueSettings::PLAIN {
            shared += size_of::<QueueSettings>() + arguments + 2 * ALLOCATION_BYTES;
        }
        let own = size_of::<QueueSlot>() + size_of::<Route>() + 3 * ENTRY_BYTES;
        let bytes = own + shared / self.queues.shards();
        self.size.count(info.vhost, Kind::Queue, bytes, arguments, comes);
    }

    /// Counts a binding that stands among the others.
    fn count_binding(&mut self, place: u32, comes: bool) {
        let binding = self.bindings.get(place);
        let exchange = self.exchanges.at(binding.source);
        let (vhost, arguments) = (exchange.info.vhost, binding.arguments().bytes().len());
        let has_filter = is_filtered(binding.arguments());
        let bytes = Bindings::BINDING_BYTES
            + ENTRY_BYTES
            + binding.routing_key.bytes()
            + exchange.outlet.bytes_of(binding);
        self.size.count(vhost, Kind::Binding, bytes, arguments, comes);
        if has_filter {
            self.size.hold(vhost, Kind::Filter, comes);
        }
    }

    /// What the exchange of that name has of its bindings.
    pub(crate) fn outlet(&self, vhost: VhostId, exchange: &str) -> Option<&Outlet> {
        self.exchanges.place(vhost, exchange).map(|place| &self.exchanges.at(place).outlet)
    }

    /// As how many bindings one counts that goes: a filter is taken apart.
    fn removal(&self, binding: u32) -> usize {
        let is_filtered = is_filtered(self.bindings.get(binding).arguments());
        if is_filtered { FILTER_REMOVAL } else { 1 }
    }
}

#[cfg(test)]
impl Topology {
    /// Everything that is counted, as text.
    pub(crate) fn sums(&self) -> alloc::string::String {
        let (exchanges, bindings) = (self.exchanges.sums(), self.bindings.len());
        alloc::format!("{:?} {} {exchanges:?} {bindings}", self.size, self.queues.sums())
    }

    /// How often all exchanges were gone through.
    pub(crate) fn gone_through(&self) -> usize {
        self.exchanges.gone_through()
    }

    /// Allocated bytes of all bindings, and of the router of an exchange.
    pub(crate) fn memory_of_bindings(&self, vhost: VhostId, exchange: &str) -> usize {
        let place = self.exchanges.place(vhost, exchange).expect("the exchange is there");
        self.bindings.memory_bytes() + self.exchanges.at(place).outlet.memory_bytes()
    }
}

/// The hash of a name in a virtual host.
fn name_hash(state: HashState, vhost: VhostId, name: &str) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write_u32(vhost.0);
    hasher.write(name.as_bytes());
    hasher.finish()
}
