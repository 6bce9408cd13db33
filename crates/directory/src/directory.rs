//! What exists: virtual hosts, exchanges, queues and their homes, bindings, users, permissions.
//!
//! Every shard keeps a full copy. One shard orders the changes: it checks a [`Request`] against its
//! own copy, applies the [`Change`] that follows from it and sends it to all others. Applying
//! cannot fail and gives the same result everywhere, so that consequences (bindings of a deleted
//! queue, exchanges that delete themselves) are computed and not sent.
//!
//! [`Request`]: crate::Request

mod authorize;
mod changes;
mod policies;
mod routing;
mod snapshot;
#[cfg(test)]
mod tests;

use crate::accounts::{Accounts, Anonymous};
use crate::capacity::{Budget, Capacity};
use crate::change::Change;
use crate::check::Check;
use crate::exchange::ExchangeInfo;
use crate::parameters::Parameters;
use crate::policies::Policies;
use crate::queue_info::QueueInfo;
use crate::topology::{BindingInfo, DestinationRef, OfMany, Topology};
use crate::user::{HashingAlgorithm, PasswordHash, User};
use crate::vhost::{VhostInfo, VhostMetadata};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use lepus_base::{ConnectionId, HashState, QueueId, VhostId};
use lepus_queue::refusal::Refusal;
pub use snapshot::{Extent, Snapshot};

/// The directory: who may do what, what exists, and how much more may come.
#[derive(Clone, Debug)]
pub struct Directory {
    version: u64,
    hash: HashState,
    accounts: Accounts,
    topology: Topology,
    policies: Policies,
    parameters: Parameters,
    budget: Budget,
    /// The next change of a log is one whose consequences stand in records of their own.
    is_in_parts: bool,
    /// Durable exchanges that delete themselves by what a log says, unless it says more of them.
    left_behind: BTreeSet<(VhostId, Box<str>)>,
}

impl Directory {
    /// An empty directory, without any virtual host. `shards` is their number, at least one.
    #[must_use]
    pub fn new(hash: HashState, shards: u16) -> Directory {
        Directory {
            version: 0,
            hash,
            accounts: Accounts::new(),
            topology: Topology::new(hash, shards),
            policies: Policies::default(),
            parameters: Parameters::default(),
            budget: Budget::default(),
            is_in_parts: false,
            left_behind: BTreeSet::new(),
        }
    }

    /// Virtual hosts, users, and what these may do.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The same, to say how clients may log in.
    pub fn accounts_mut(&mut self) -> &mut Accounts {
        &mut self.accounts
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn hash(&self) -> HashState {
        self.hash
    }

    fn look(&self) -> Check<'_> {
        Check::new(&self.accounts, &self.topology)
    }

    /// Sets how much may be declared. It matters on the shard that orders the changes.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        self.budget.set_capacity(capacity);
    }

    /// Sets how many bindings go in one step at most, at least one. The same on all shards, before
    /// anything else.
    pub fn set_slice(&mut self, bindings: usize) {
        self.topology.set_slice(bindings);
    }

    /// The lowest queue id that was never used.
    #[must_use]
    pub fn next_queue(&self) -> u64 {
        self.topology.queues().next_id().0
    }

    /// Makes what a start has read the directory of a shard: from here on settings and limits are those of the shard.
    ///
    /// # Panics
    /// When something that was deleted is still on its way out.
    pub fn settle(&mut self, capacity: Capacity, bindings_at_once: usize) {
        self.topology.settle();
        self.set_capacity(capacity);
        self.set_slice(bindings_at_once);
        // What a log says of policies it may say after the exchanges.
        self.renew_exchanges(0, usize::MAX, |_| true, &mut 0);
    }

    /// Makes the tables as large as about `count` queues need, unless there are some already: a start
    /// knows how many come.
    pub fn prepare(&mut self, count: usize) {
        self.topology.prepare(count);
    }

    /// What a new broker starts with: a virtual host, and an administrator who may do everything
    /// in it.
    #[must_use]
    pub fn preset(user: &str, password: &[u8], salt: [u8; 4], vhost: &str) -> Vec<Change> {
        let id = VhostId(1);
        let all = || Box::from(".*");
        let metadata = VhostMetadata {
            description: "Default virtual host".into(),
            ..VhostMetadata::default()
        };
        vec![
            Change::VhostCreated { id, name: vhost.into(), metadata },
            Change::UserPut {
                name: user.into(),
                password: PasswordHash::new(HashingAlgorithm::Sha256, password, salt),
                tags: vec!["administrator".into()],
            },
            Change::PermissionSet {
                user: user.into(),
                vhost: id,
                configure: all(),
                write: all(),
                read: all(),
            },
        ]
    }

    /// Grows by one with every applied change: what was found before it may not hold any more.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The virtual host of that name.
    #[must_use]
    pub fn vhost(&self, name: &str) -> Option<VhostId> {
        self.accounts.vhost(name)
    }

    /// Everything about a virtual host.
    #[must_use]
    pub fn vhost_info(&self, vhost: VhostId) -> Option<&VhostInfo> {
        self.accounts.vhost_info(vhost)
    }

    /// A queue as messages name it: `queue 'q' in vhost '/'`, or by its number once it is gone.
    #[must_use]
    pub fn describe_queue(&self, queue: QueueId) -> String {
        match self.queue_by_id(queue) {
            Some(info) => {
                format!("queue '{}' in vhost '{}'", info.name(), self.vhost_name(info.vhost))
            }
            None => format!("queue {}", queue.0),
        }
    }

    /// The virtual host's name; empty for one that is gone.
    #[must_use]
    pub fn vhost_name(&self, vhost: VhostId) -> &str {
        self.accounts.vhost_name(vhost)
    }

    /// The user of that name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.accounts.user(name)
    }

    /// Whom clients log in as that give no name, if they are let in.
    #[must_use]
    pub fn anonymous(&self) -> Option<&Anonymous> {
        self.accounts.anonymous()
    }

    /// The queue of that name.
    #[must_use]
    pub fn queue(&self, vhost: VhostId, name: &str) -> Option<&QueueInfo> {
        self.topology.queues().find(vhost, name)
    }

    /// The queue with that id, unless it was deleted.
    #[must_use]
    pub fn queue_by_id(&self, id: QueueId) -> Option<&QueueInfo> {
        self.topology.queues().by_id(id)
    }

    /// The id of a queue that may have moved lately.
    #[must_use]
    pub fn id_now(&self, id: QueueId) -> QueueId {
        self.topology.queues().id_now(id)
    }

    /// Places of queues, free ones included.
    #[must_use]
    pub fn queue_places(&self) -> usize {
        self.topology.queues().places()
    }

    /// The queue at a place that may be free.
    #[must_use]
    pub fn queue_at(&self, place: usize) -> Option<&QueueInfo> {
        self.topology.queues().living_at(place).map(|info| &**info)
    }

    /// Notes where this shard has the queue at a place.
    pub fn note_slot(&mut self, place: usize, slot: u32) {
        self.topology.queues_mut().note_slot(place, slot);
    }

    /// The place of the queue with that id.
    #[must_use]
    pub fn queue_place_by_id(&self, id: QueueId) -> Option<u32> {
        self.topology.queues().place_by_id(id)
    }

    /// The queue that a connection names in passive declare, consume, get, purge or delete.
    ///
    /// # Errors
    /// 404 where there is none, 405 where another connection holds it exclusively.
    pub fn find_queue(
        &self,
        vhost: VhostId,
        name: &str,
        connection: ConnectionId,
    ) -> Result<&QueueInfo, Refusal> {
        self.look().find_queue(vhost, name, connection)
    }

    /// The exclusive queues of a connection, in the order of their declaration.
    pub fn exclusive_queues(&self, connection: ConnectionId) -> impl Iterator<Item = QueueId> {
        self.topology.queues().exclusive_of(connection)
    }

    /// Number of queues in a virtual host.
    #[must_use]
    pub fn queue_count(&self, vhost: VhostId) -> u64 {
        self.topology.queues().count(vhost)
    }

    /// The queues of one virtual host, or of all by age of their virtual hosts; then by name.
    pub fn queues(&self, vhost: Option<VhostId>) -> impl ExactSizeIterator<Item = &QueueInfo> {
        self.topology.queues().list(vhost).into_iter()
    }

    /// The queues of some virtual hosts, in the order of these; then by name. All queues are gone through once.
    pub fn queues_of(
        &self,
        vhosts: &[VhostId],
    ) -> impl ExactSizeIterator<Item = &QueueInfo> + use<'_> {
        OfMany::new(&self.topology, vhosts).queues()
    }

    /// Numbers of the logs that durable queues name, and of how many queues each is named.
    #[must_use]
    pub fn logs(&self) -> BTreeMap<u16, u64> {
        self.topology.queues().logs()
    }

    /// The exchange of that name; the empty name is the default exchange.
    #[must_use]
    pub fn exchange(&self, vhost: VhostId, name: &str) -> Option<&ExchangeInfo> {
        self.topology.exchange(vhost, name)
    }

    /// The place of the exchange of that name, which it has as long as it exists; the empty name is the default exchange.
    #[must_use]
    pub fn exchange_place(&self, vhost: VhostId, name: &str) -> Option<u32> {
        self.topology.exchange_place(vhost, name)
    }

    /// The exchange at a place, see [`Directory::renew_exchanges`]; `None` where the place is free.
    #[must_use]
    pub fn exchange_at(&self, place: usize) -> Option<&ExchangeInfo> {
        self.topology.exchange_at(place)
    }

    /// Whether messages of the exchange may go anywhere: it has bindings, those on their way out included, or an alternate
    /// exchange by its arguments or its policy.
    #[must_use]
    pub fn leads_somewhere(&self, vhost: VhostId, exchange: &str) -> bool {
        self.topology.leads_somewhere(vhost, exchange)
    }

    /// The exchange that a client names.
    ///
    /// # Errors
    /// 404 where there is none.
    pub fn find_exchange(&self, vhost: VhostId, name: &str) -> Result<&ExchangeInfo, Refusal> {
        self.look().find_exchange(vhost, name)
    }

    /// The delayed exchange whose messages are held back under this id.
    #[must_use]
    pub fn holding(&self, id: QueueId) -> Option<&ExchangeInfo> {
        self.topology.holding(id)
    }

    /// The change that gives an id to what a delayed exchange of an earlier version holds back;
    /// `None` when all have one.
    #[must_use]
    pub fn next_holding(&self) -> Option<Change> {
        let info = self.topology.without_holding()?;
        let holding = Some(self.topology.queues().next_id());
        Some(Change::ExchangeDeclared(Box::new(ExchangeInfo { holding, ..info.clone() })))
    }

    /// The exchanges of one virtual host, or of all by age of their virtual hosts; then by name.
    pub fn exchanges(
        &self,
        vhost: Option<VhostId>,
    ) -> impl ExactSizeIterator<Item = &ExchangeInfo> {
        self.topology.exchanges(vhost)
    }

    /// The exchanges of some virtual hosts, in the order of these; then by name. All exchanges are gone through once.
    pub fn exchanges_of(
        &self,
        vhosts: &[VhostId],
    ) -> impl ExactSizeIterator<Item = &ExchangeInfo> + use<'_> {
        OfMany::new(&self.topology, vhosts).exchanges()
    }

    /// The exchanges of a virtual host among those at so many places from `first` on, in no particular
    /// order; `None` when there are no places there. A list made in parts has each once.
    pub fn exchanges_in(
        &self,
        vhost: VhostId,
        first: usize,
        places: usize,
    ) -> Option<impl Iterator<Item = &ExchangeInfo>> {
        self.topology.exchanges_in(vhost, first, places)
    }

    /// All bindings of a virtual host by source, destination and key. The default exchange comes
    /// first with each queue under its name.
    pub fn bindings(&self, vhost: VhostId) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        self.topology.bindings(vhost)
    }

    /// All bindings of some virtual hosts, each with its own, in the order of these; then as [`Directory::bindings`] has
    /// them. All queues and exchanges are gone through once.
    pub fn bindings_of(
        &self,
        vhosts: &[VhostId],
    ) -> impl ExactSizeIterator<Item = (VhostId, BindingInfo<'_>)> + use<'_> {
        OfMany::new(&self.topology, vhosts).bindings()
    }

    /// As [`Directory::exchanges_in`] for bindings, without those of the default exchange.
    pub fn bindings_in(
        &self,
        vhost: VhostId,
        first: usize,
        places: usize,
    ) -> Option<impl Iterator<Item = BindingInfo<'_>>> {
        self.topology.bindings_in(vhost, first, places)
    }

    /// The bindings that have the exchange as their source, by destination and key.
    pub fn bindings_from(
        &self,
        vhost: VhostId,
        exchange: &str,
    ) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        self.topology.bindings_from(vhost, exchange)
    }

    /// The bindings that lead to a queue or exchange, by source and key; a queue's default binding
    /// comes first.
    pub fn bindings_to(
        &self,
        vhost: VhostId,
        destination: DestinationRef<'_>,
    ) -> impl ExactSizeIterator<Item = BindingInfo<'_>> {
        self.topology.bindings_to(vhost, destination)
    }

    /// Number of queues and exchanges in all virtual hosts, those on their way out included.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.topology.object_count()
    }

    /// Number of bindings in all virtual hosts, those on their way out included, those to the default
    /// exchange not counted.
    #[must_use]
    pub fn binding_count(&self) -> usize {
        self.topology.binding_count()
    }

    /// About how many bytes exchanges, queues, bindings, policies and parameters take on this shard. What all shards share
    /// counts with this shard's part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let shards = self.topology.queues().shards();
        self.topology.size().bytes() + self.policies.bytes(shards) + self.parameters.bytes(shards)
    }
}
