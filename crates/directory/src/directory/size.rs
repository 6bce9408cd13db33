//! How much memory the directory takes on a shard, and how much of it are arguments: running sums.

use super::change::Change;
use super::{Directory, ExchangeInfo, ExchangeSlot, QueueInfo, QueueSlot};
use crate::binding::Bindings;
use crate::router::Route;
use alloc::collections::BTreeMap;
use lepus_base::VhostId;
use lepus_queue::QueueSettings;

/// Bytes of an entry in a table of names, with the room that a table keeps, about.
const ENTRY_BYTES: usize = 8;
/// Bytes that an allocation takes beside what was asked for, about.
const ALLOCATION_BYTES: usize = 16;

/// What is counted by virtual host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Queue,
    Exchange,
    Binding,
}

/// The sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Size {
    bytes: usize,
    /// Queues, exchanges and bindings by virtual host, what is decided and not applied yet
    /// included.
    holdings: BTreeMap<VhostId, [u64; 3]>,
    /// Bytes of arguments by virtual host, what is decided and not applied yet included.
    arguments: BTreeMap<VhostId, u64>,
}

impl Size {
    pub(super) fn add(&mut self, vhost: VhostId, bytes: usize, arguments: usize) {
        self.bytes += bytes;
        self.reserve(vhost, arguments);
    }

    pub(super) fn take(&mut self, vhost: VhostId, bytes: usize, arguments: usize) {
        self.bytes -= bytes;
        self.release(vhost, arguments);
    }

    /// Counts arguments that are about to come.
    pub(super) fn reserve(&mut self, vhost: VhostId, arguments: usize) {
        if arguments > 0 {
            *self.arguments.entry(vhost).or_default() += arguments as u64;
        }
    }

    /// The opposite.
    pub(super) fn release(&mut self, vhost: VhostId, arguments: usize) {
        if let Some(sum) = self.arguments.get_mut(&vhost) {
            *sum -= arguments as u64;
            if *sum == 0 {
                self.arguments.remove(&vhost);
            }
        }
    }

    /// Counts one more of a kind in a virtual host, or one less.
    pub(super) fn hold(&mut self, vhost: VhostId, kind: Kind, comes: bool) {
        let counts = self.holdings.entry(vhost).or_default();
        let count = &mut counts[kind as usize];
        if comes {
            *count += 1;
        } else {
            *count -= 1;
            if *counts == [0; 3] {
                self.holdings.remove(&vhost);
            }
        }
    }

    /// How many of a kind there are in a virtual host.
    pub(super) fn holding(&self, vhost: VhostId, kind: Kind) -> u64 {
        self.holdings.get(&vhost).map_or(0, |counts| counts[kind as usize])
    }

    /// Bytes of all arguments in a virtual host.
    pub(super) fn arguments(&self, vhost: VhostId) -> u64 {
        self.arguments.get(&vhost).copied().unwrap_or(0)
    }
}

impl Directory {
    /// About how many bytes exchanges, queues and bindings take on this shard. What all shards share
    /// counts with this shard's part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.size.bytes
    }

    pub(super) fn count_exchange(&mut self, info: &ExchangeInfo, comes: bool) {
        let names = info.name.len() + info.alternate.as_ref().map_or(0, |name| name.len());
        let bytes = size_of::<ExchangeSlot>()
            + names
            + info.arguments.len()
            + ENTRY_BYTES
            + 2 * ALLOCATION_BYTES;
        self.count(info.vhost, Kind::Exchange, bytes, info.arguments.len(), comes);
    }

    pub(super) fn count_queue(&mut self, info: &QueueInfo, comes: bool) {
        let arguments = info.arguments().bytes().len();
        let mut shared = size_of::<QueueInfo>() + info.name().len() + info.user().len();
        shared += 2 * ALLOCATION_BYTES;
        if arguments > 0 || *info.settings() != QueueSettings::PLAIN {
            shared += size_of::<QueueSettings>() + arguments + 2 * ALLOCATION_BYTES;
        }
        let own = size_of::<QueueSlot>() + size_of::<Route>() + 3 * ENTRY_BYTES;
        let bytes = own + shared / self.held.len();
        self.count(info.vhost, Kind::Queue, bytes, arguments, comes);
    }

    /// Counts a binding that stands among the others.
    pub(super) fn count_binding(&mut self, place: u32, comes: bool) {
        let binding = self.bindings.get(place);
        let exchange = &self.exchanges[binding.source as usize];
        let bytes = Bindings::BINDING_BYTES
            + ENTRY_BYTES
            + binding.routing_key.bytes()
            + exchange.router.bytes_of(binding);
        let (vhost, arguments) = (exchange.info.vhost, binding.arguments().bytes().len());
        self.count(vhost, Kind::Binding, bytes, arguments, comes);
    }

    fn count(&mut self, vhost: VhostId, kind: Kind, bytes: usize, arguments: usize, comes: bool) {
        self.size.hold(vhost, kind, comes);
        if comes {
            self.size.add(vhost, bytes, arguments);
        } else {
            self.size.take(vhost, bytes, arguments);
        }
    }
}

/// Of what kind and in which virtual host it is what a change adds.
pub(super) fn kind_of(change: &Change) -> Option<(VhostId, Kind)> {
    match change {
        Change::ExchangeDeclared(info) => Some((info.vhost, Kind::Exchange)),
        Change::QueueDeclared(info) => Some((info.vhost, Kind::Queue)),
        Change::Bound(binding) => Some((binding.vhost, Kind::Binding)),
        _ => None,
    }
}

/// The virtual host and the arguments' bytes of what a change adds.
pub(super) fn arguments_of(change: &Change) -> Option<(VhostId, usize)> {
    match change {
        Change::ExchangeDeclared(info) => Some((info.vhost, info.arguments.len())),
        Change::QueueDeclared(info) => Some((info.vhost, info.arguments().bytes().len())),
        Change::Bound(binding) => Some((binding.vhost, binding.arguments.len())),
        _ => None,
    }
}
