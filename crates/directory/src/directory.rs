//! What exists: virtual hosts, exchanges, queues and their homes, bindings, users, permissions.
//!
//! Every shard keeps a full copy. One shard orders the changes: it checks a [`Request`] against its
//! own copy, applies the [`Change`] that follows from it and sends it to all others. Applying
//! cannot fail and gives the same result everywhere, so that consequences (bindings of a deleted
//! queue, exchanges that delete themselves) are computed and not sent.

mod access;
mod account;
mod apply;
mod bind;
mod capacity;
mod change;
mod clearing;
pub mod codec;
mod declaration;
mod durable;
mod footprint;
mod listing;
mod queue_info;
mod removal;
mod request;
mod routing;
mod size;
mod snapshot;
#[cfg(test)]
mod tests;

pub use access::Anonymous;
pub use capacity::Capacity;
use capacity::Reserved;
pub use change::{Applied, Change, Checked};
pub use declaration::check_not_default;
pub use footprint::Footprint;
pub use listing::{BindingInfo, DestinationRef};
pub use queue_info::{Declared, QueueInfo};
pub use request::{Request, VhostRef, clean_name};
pub use routing::too_far;
pub use snapshot::{Extent, Snapshot};

use crate::binding::{Bindings, Target};
use crate::exchange::{ExchangeInfo, ExchangeKind};
use crate::router::{Route, Router};
use crate::user::{HashingAlgorithm, PasswordHash, User};
use crate::vhost::{VhostInfo, VhostMetadata};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use lepus_amqp::code::ReplyCode;
use lepus_base::{
    ChunkedSlab, ConnectionId, HashMap, HashState, LinearTable, Places, QueueId, VhostId, is_same,
};
use lepus_queue::refusal::Refusal;

/// Queues that moved, of which the old ids are remembered.
const MOVED_MAX: usize = 256;
/// Queues that a shard may hold more than the one with the fewest before new ones go elsewhere.
const HOME_IMBALANCE_MAX: u32 = 16;

/// An exchange with what routing needs.
#[derive(Clone, Debug)]
struct ExchangeSlot {
    info: ExchangeInfo,
    router: Router,
    /// First of the bindings that have it as their source.
    as_source: u32,
    /// How many these are.
    bindings: u32,
    /// First of the bindings that lead to it.
    as_target: u32,
    /// Nobody finds it any more; it stays until its bindings are gone.
    is_gone: bool,
}

/// A queue with its bindings.
#[derive(Clone, Debug)]
struct QueueSlot {
    info: Arc<QueueInfo>,
    /// First of the bindings that lead to it.
    as_target: u32,
    /// Nobody finds it any more; it stays until its bindings are gone.
    is_gone: bool,
}

/// The directory.
#[derive(Clone, Debug)]
pub struct Directory {
    version: u64,
    hash: HashState,
    vhosts: BTreeMap<VhostId, VhostInfo>,
    vhosts_by_name: BTreeMap<Box<str>, VhostId>,
    next_vhost: u32,
    exchanges: ChunkedSlab<ExchangeSlot>,
    exchanges_by_name: LinearTable<u32>,
    /// Exchanges by the id of what they hold back.
    holdings: BTreeMap<QueueId, u32>,
    queues: ChunkedSlab<QueueSlot>,
    queues_by_name: LinearTable<u32>,
    queues_by_id: Places,
    /// The routes to all queues, by place.
    routes: Vec<Route>,
    next_queue: u64,
    /// Queues by virtual host.
    queue_counts: BTreeMap<VhostId, u64>,
    /// Queues that are not exclusive, by home.
    held: Vec<u32>,
    exclusive: HashMap<ConnectionId, BTreeSet<QueueId>>,
    bindings: Bindings,
    users: BTreeMap<Box<str>, User>,
    loopback_users: Vec<Box<str>>,
    /// Whether clients may come from other machines.
    is_reachable: bool,
    /// Whom clients log in as that give no name.
    anonymous: Option<Anonymous>,
    capacity: Capacity,
    size: size::Size,
    reserved: Reserved,
    /// Changes come from a log: what follows from them is in it too.
    is_replaying: bool,
    /// Old and new ids of the queues that moved last.
    moved: VecDeque<(QueueId, QueueId)>,
    /// What was deleted with very much in it, the first one's contents on their way out.
    clearing: VecDeque<clearing::Clearing>,
    /// Queues and exchanges among that to which bindings still lead: no message follows these.
    dead: BTreeSet<Target>,
    /// Bindings that go in one step at most.
    slice: usize,
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
            vhosts: BTreeMap::new(),
            vhosts_by_name: BTreeMap::new(),
            next_vhost: 1,
            exchanges: ChunkedSlab::new(),
            exchanges_by_name: LinearTable::new(),
            holdings: BTreeMap::new(),
            queues: ChunkedSlab::new(),
            queues_by_name: LinearTable::new(),
            queues_by_id: Places::new(hash),
            routes: Vec::new(),
            next_queue: 1,
            queue_counts: BTreeMap::new(),
            held: vec![0; usize::from(shards.max(1))],
            exclusive: HashMap::with_hasher(hash),
            bindings: Bindings::new(hash),
            users: BTreeMap::new(),
            loopback_users: vec!["guest".into()],
            is_reachable: false,
            anonymous: Some(Anonymous::new("guest", "guest")),
            capacity: Capacity::default(),
            size: size::Size::default(),
            reserved: Reserved::default(),
            is_replaying: false,
            moved: VecDeque::new(),
            clearing: VecDeque::new(),
            dead: BTreeSet::new(),
            slice: clearing::SLICE,
            is_in_parts: false,
            left_behind: BTreeSet::new(),
        }
    }

    /// Sets who may log in from this machine only; `guest` unless said otherwise. The same on all
    /// shards, before anything else.
    pub fn set_loopback_users(&mut self, names: Vec<Box<str>>) {
        self.loopback_users = names;
    }

    /// Sets whether clients may come from other machines: then [`Directory::open_door`] has something
    /// to tell.
    pub fn set_reachable(&mut self, is_reachable: bool) {
        self.is_reachable = is_reachable;
    }

    /// Replaces whom clients log in as that give no name; with `None` they are not let in.
    pub fn set_anonymous(&mut self, anonymous: Option<Anonymous>) {
        self.anonymous = anonymous;
    }

    /// Sets the first queue id, so that ids of an earlier run are not used again. The same on all
    /// shards, before anything else.
    pub fn start_ids_at(&mut self, first: u64) {
        self.next_queue = self.next_queue.max(first);
    }

    /// The lowest queue id that was never used.
    #[must_use]
    pub fn next_queue(&self) -> u64 {
        self.next_queue
    }

    /// Counts what was checked and is to be applied later, so that limits hold and further queues
    /// get other ids and homes.
    pub fn reserve(&mut self, change: &Change) {
        if let Some(count) = self.reserved.of(change) {
            *count += 1;
        }
        if let Some((vhost, bytes)) = size::arguments_of(change) {
            self.size.reserve(vhost, bytes);
        }
        if let Some((vhost, kind)) = size::kind_of(change) {
            self.size.hold(vhost, kind, true);
        }
        if let Some(id) = change.used_id() {
            self.next_queue = self.next_queue.max(id.0.saturating_add(1));
        }
        let Change::QueueDeclared(info) = change else { return };
        *self.queue_counts.entry(info.vhost).or_default() += 1;
        if info.exclusive().is_none()
            && let Some(held) = self.held.get_mut(info.home.index())
        {
            *held += 1;
        }
    }

    /// The opposite, right before the change is applied or given up.
    pub fn release(&mut self, change: &Change) {
        if let Some(count) = self.reserved.of(change) {
            *count = count.saturating_sub(1);
        }
        if let Some((vhost, bytes)) = size::arguments_of(change) {
            self.size.release(vhost, bytes);
        }
        if let Some((vhost, kind)) = size::kind_of(change) {
            self.size.hold(vhost, kind, false);
        }
        let Change::QueueDeclared(info) = change else { return };
        if let Some(count) = self.queue_counts.get_mut(&info.vhost) {
            *count -= 1;
        }
        if info.exclusive().is_none()
            && let Some(held) = self.held.get_mut(info.home.index())
        {
            *held -= 1;
        }
    }

    /// Makes what a start has read the directory of a shard: from here on settings and limits are those of the shard.
    pub fn settle(&mut self, capacity: Capacity, bindings_at_once: usize) {
        assert!(self.clearing.is_empty() && self.dead.is_empty(), "what is gone is out of it");
        self.set_capacity(capacity);
        self.set_slice(bindings_at_once);
        // Nobody asks for an id of an earlier run.
        self.moved = VecDeque::new();
    }

    /// Makes the tables as large as about `count` queues need, unless there are some already: a start
    /// knows how many come.
    pub fn prepare(&mut self, count: usize) {
        self.queues_by_name.prepare(count);
        self.queues_by_id.prepare(count);
        if self.routes.is_empty() {
            self.routes.reserve_exact(count);
        }
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
        self.vhosts_by_name.get(name).copied()
    }

    /// Everything about a virtual host.
    #[must_use]
    pub fn vhost_info(&self, vhost: VhostId) -> Option<&VhostInfo> {
        self.vhosts.get(&vhost)
    }

    /// The virtual host's name; empty for one that is gone.
    #[must_use]
    pub fn vhost_name(&self, vhost: VhostId) -> &str {
        self.vhosts.get(&vhost).map_or("", |info| &info.name)
    }

    /// The queue of that name.
    #[must_use]
    pub fn queue(&self, vhost: VhostId, name: &str) -> Option<&QueueInfo> {
        let place = self.queue_place(vhost, name)?;
        Some(&self.queues[place as usize].info)
    }

    /// The queue with that id, unless it was deleted.
    #[must_use]
    pub fn queue_by_id(&self, id: QueueId) -> Option<&QueueInfo> {
        let place = self.queue_place_by_id(id)?;
        Some(&self.queues[place as usize].info)
    }

    /// The id of a queue that may have moved lately.
    #[must_use]
    pub fn id_now(&self, id: QueueId) -> QueueId {
        // Newer ones stand behind older ones.
        let step = |id, &(old, new): &(QueueId, QueueId)| if old == id { new } else { id };
        self.moved.iter().fold(id, step)
    }

    /// Places of queues, free ones included.
    pub fn queue_places(&self) -> usize {
        self.queues.places()
    }

    /// The queue at a place that may be free.
    pub fn queue_at(&self, place: usize) -> Option<&QueueInfo> {
        self.queues.get(place).filter(|slot| !slot.is_gone).map(|slot| &*slot.info)
    }

    /// Notes where this shard has the queue at a place.
    pub fn note_slot(&mut self, place: usize, slot: u32) {
        self.routes[place].slot = slot;
    }

    /// The place of the queue with that id.
    #[must_use]
    pub fn queue_place_by_id(&self, id: QueueId) -> Option<u32> {
        self.queues_by_id.find(id, |place| self.routes[place as usize].queue)
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
        let Some(info) = self.queue(vhost, name) else {
            return Err(self.no_queue(vhost, name));
        };
        if info.exclusive().is_some_and(|owner| owner != connection) {
            return Err(self.locked(info));
        }
        Ok(info)
    }

    /// The exchange of that name; the empty name is the default exchange.
    #[must_use]
    pub fn exchange(&self, vhost: VhostId, name: &str) -> Option<&ExchangeInfo> {
        let place = self.exchange_place(vhost, name)?;
        Some(&self.exchanges[place as usize].info)
    }

    /// The delayed exchange whose messages are held back under this id.
    #[must_use]
    pub fn holding(&self, id: QueueId) -> Option<&ExchangeInfo> {
        let place = *self.holdings.get(&id)?;
        Some(&self.exchanges[place as usize].info)
    }

    /// The change that gives an id to what a delayed exchange of an earlier version holds back;
    /// `None` when all have one.
    pub fn next_holding(&self) -> Option<Change> {
        let lacks = |info: &&ExchangeInfo| info.delayed && info.holding.is_none();
        let there = self.exchanges.iter().filter(|(_, slot)| !slot.is_gone);
        let info = there.map(|(_, slot)| &slot.info).find(lacks)?;
        let holding = Some(QueueId(self.next_queue));
        Some(Change::ExchangeDeclared(Box::new(ExchangeInfo { holding, ..info.clone() })))
    }

    /// The exchange that a client names.
    ///
    /// # Errors
    /// 404 where there is none.
    pub fn find_exchange(&self, vhost: VhostId, name: &str) -> Result<&ExchangeInfo, Refusal> {
        self.exchange(vhost, name).ok_or_else(|| self.no_exchange(vhost, name))
    }

    /// The exclusive queues of a connection, in the order of their declaration.
    pub fn exclusive_queues(&self, connection: ConnectionId) -> impl Iterator<Item = QueueId> {
        self.exclusive.get(&connection).into_iter().flatten().copied()
    }

    /// The user of that name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// Number of queues in a virtual host.
    #[must_use]
    pub fn queue_count(&self, vhost: VhostId) -> u64 {
        self.queue_counts.get(&vhost).copied().unwrap_or(0)
    }

    /// Number of queues and exchanges in all virtual hosts, those on their way out included.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.queues.len() + self.exchanges.len()
    }

    /// Number of bindings in all virtual hosts, those on their way out included, those to the default
    /// exchange not counted.
    #[must_use]
    pub fn binding_count(&self) -> usize {
        self.bindings.len()
    }

    fn exchange_place(&self, vhost: VhostId, name: &str) -> Option<u32> {
        let is_same = |&place: &u32| {
            let info = &self.exchanges[place as usize].info;
            info.vhost == vhost && is_same(&*info.name, name)
        };
        let hash = name_hash(self.hash, vhost, name);
        self.exchanges_by_name.find(hash, is_same).copied()
    }

    fn queue_place(&self, vhost: VhostId, name: &str) -> Option<u32> {
        let is_same = |&place: &u32| {
            let info = &self.queues[place as usize].info;
            info.vhost == vhost && is_same(info.name(), name)
        };
        let hash = name_hash(self.hash, vhost, name);
        self.queues_by_name.find(hash, is_same).copied()
    }

    fn no_queue(&self, vhost: VhostId, name: &str) -> Refusal {
        let vhost = self.vhost_name(vhost);
        let text = format!("no queue '{name}' in vhost '{vhost}'");
        Refusal::new(ReplyCode::NOT_FOUND, text)
    }

    fn no_exchange(&self, vhost: VhostId, name: &str) -> Refusal {
        let vhost = self.vhost_name(vhost);
        let text = format!("no exchange '{name}' in vhost '{vhost}'");
        Refusal::new(ReplyCode::NOT_FOUND, text)
    }

    fn locked(&self, queue: &QueueInfo) -> Refusal {
        let vhost = self.vhost_name(queue.vhost);
        let text = format!(
            "cannot obtain exclusive access to locked queue '{}' in vhost '{vhost}'. It could be \
             originally declared on another connection or the exclusive property value does not \
             match that of the original declaration.",
            queue.name()
        );
        Refusal::new(ReplyCode::RESOURCE_LOCKED, text)
    }
}

/// The hash of a name in a virtual host.
fn name_hash(state: HashState, vhost: VhostId, name: &str) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write_u32(vhost.0);
    hasher.write(name.as_bytes());
    hasher.finish()
}
