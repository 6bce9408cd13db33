//! How much memory the directory takes on a shard, and how much of it are arguments: running sums.

use crate::change::Change;
use alloc::collections::BTreeMap;
use lepus_base::VhostId;

/// What is counted by virtual host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Queue,
    Exchange,
    Binding,
    /// A binding that has a filter, once more.
    Filter,
}

/// The sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Size {
    bytes: usize,
    /// Queues, exchanges, bindings and filters by virtual host, what is decided and not applied yet
    /// included.
    holdings: BTreeMap<VhostId, [u64; 4]>,
    /// Bytes of arguments by virtual host, what is decided and not applied yet included.
    arguments: BTreeMap<VhostId, u64>,
}

impl Size {
    /// About how many bytes all of it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts something of a kind that comes, or that goes.
    pub(crate) fn count(
        &mut self,
        vhost: VhostId,
        kind: Kind,
        bytes: usize,
        arguments: usize,
        comes: bool,
    ) {
        self.hold(vhost, kind, comes);
        if comes {
            self.add(vhost, bytes, arguments);
        } else {
            self.take(vhost, bytes, arguments);
        }
    }

    fn add(&mut self, vhost: VhostId, bytes: usize, arguments: usize) {
        self.bytes += bytes;
        self.reserve(vhost, arguments);
    }

    fn take(&mut self, vhost: VhostId, bytes: usize, arguments: usize) {
        self.bytes -= bytes;
        self.release(vhost, arguments);
    }

    /// Counts what takes another number of bytes now.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        self.bytes = self.bytes + after - before;
    }

    /// Counts arguments that are about to come.
    pub(crate) fn reserve(&mut self, vhost: VhostId, arguments: usize) {
        if arguments > 0 {
            *self.arguments.entry(vhost).or_default() += arguments as u64;
        }
    }

    /// The opposite.
    pub(crate) fn release(&mut self, vhost: VhostId, arguments: usize) {
        if let Some(sum) = self.arguments.get_mut(&vhost) {
            *sum -= arguments as u64;
            if *sum == 0 {
                self.arguments.remove(&vhost);
            }
        }
    }

    /// Counts one more of a kind in a virtual host, or one less.
    pub(crate) fn hold(&mut self, vhost: VhostId, kind: Kind, comes: bool) {
        let counts = self.holdings.entry(vhost).or_default();
        let count = &mut counts[kind as usize];
        if comes {
            *count += 1;
        } else {
            *count -= 1;
            if *counts == [0; 4] {
                self.holdings.remove(&vhost);
            }
        }
    }

    /// How many of a kind there are in a virtual host.
    pub(crate) fn holding(&self, vhost: VhostId, kind: Kind) -> u64 {
        self.holdings.get(&vhost).map_or(0, |counts| counts[kind as usize])
    }

    /// Bytes of all arguments in a virtual host.
    pub(crate) fn arguments(&self, vhost: VhostId) -> u64 {
        self.arguments.get(&vhost).copied().unwrap_or(0)
    }
}

/// Of what kind and in which virtual host it is what a change adds.
pub(crate) fn kind_of(change: &Change) -> Option<(VhostId, Kind)> {
    match change {
        Change::ExchangeDeclared(info) => Some((info.vhost, Kind::Exchange)),
        Change::QueueDeclared(info) => Some((info.vhost, Kind::Queue)),
        Change::Bound(binding) => Some((binding.vhost, Kind::Binding)),
        _ => None,
    }
}

/// The virtual host and the arguments' bytes of what a change adds.
pub(crate) fn arguments_of(change: &Change) -> Option<(VhostId, usize)> {
    match change {
        Change::ExchangeDeclared(info) => Some((info.vhost, info.arguments.len())),
        Change::QueueDeclared(info) => Some((info.vhost, info.arguments().bytes().len())),
        Change::Bound(binding) => Some((binding.vhost, binding.arguments.len())),
        _ => None,
    }
}
