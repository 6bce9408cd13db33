//! The queues and their homes, and how they are found.

use super::in_order::InOrder;
use super::name_hash;
use crate::binding::NONE;
use crate::queue_info::QueueInfo;
use crate::router::Route;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use lepus_base::{
    ChunkedSlab, ConnectionId, HashMap, HashState, LinearTable, Places, QueueId, ShardId, VhostId,
    is_same,
};

/// Queues that moved, of which the old ids are remembered.
const MOVED_MAX: usize = 256;
/// Queues that a shard may hold more than the one with the fewest before new ones go elsewhere.
const HOME_IMBALANCE_MAX: u32 = 16;

/// A queue with its bindings.
#[derive(Clone, Debug)]
pub(super) struct QueueSlot {
    pub(super) info: Arc<QueueInfo>,
    /// First of the bindings that lead to it.
    pub(super) as_target: u32,
    /// Nobody finds it any more; it stays until its bindings are gone.
    pub(super) is_gone: bool,
}

/// All queues by place, with those on their way out.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    hash: HashState,
    slots: ChunkedSlab<QueueSlot>,
    by_name: LinearTable<u32>,
    by_id: Places,
    /// The routes to all queues, by place.
    routes: Vec<Route>,
    /// The lowest id that was never used, for a queue or for what an exchange holds back.
    next_id: u64,
    /// Queues by virtual host.
    counts: BTreeMap<VhostId, u64>,
    /// Queues that are not exclusive, by home, what is decided and not applied yet included.
    held: Vec<u32>,
    exclusive: HashMap<ConnectionId, BTreeSet<QueueId>>,
    /// Old and new ids of the queues that moved last.
    moved: VecDeque<(QueueId, QueueId)>,
    /// How often all of them were gone through.
    #[cfg(test)]
    gone_through: core::cell::Cell<usize>,
}

impl Queues {
    /// None yet. `shards` is the number of shards, at least one.
    pub(super) fn new(hash: HashState, shards: u16) -> Queues {
        Queues {
            hash,
            slots: ChunkedSlab::new(),
            by_name: LinearTable::new(),
            by_id: Places::new(hash),
            routes: Vec::new(),
            next_id: 1,
            counts: BTreeMap::new(),
            held: vec![0; usize::from(shards.max(1))],
            exclusive: HashMap::with_hasher(hash),
            moved: VecDeque::new(),
            #[cfg(test)]
            gone_through: core::cell::Cell::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Places of queues, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.slots.places()
    }

    /// Number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.held.len()
    }

    /// The routes to all queues, by place.
    #[inline]
    pub(super) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The lowest id that was never used.
    pub(crate) fn next_id(&self) -> QueueId {
        QueueId(self.next_id)
    }

    /// Ids below this one were used.
    pub(crate) fn use_ids(&mut self, below: u64) {
        self.next_id = self.next_id.max(below);
    }

    /// This id was used.
    pub(super) fn use_id(&mut self, id: QueueId) {
        self.use_ids(id.0.saturating_add(1));
    }

    /// The place of the queue of that name.
    pub(super) fn place(&self, vhost: VhostId, name: &str) -> Option<u32> {
        let is_same = |&place: &u32| {
            let info = &self.slots[place as usize].info;
            info.vhost == vhost && is_same(info.name(), name)
        };
        self.by_name.find(name_hash(self.hash, vhost, name), is_same).copied()
    }

    /// The place of the queue with that id.
    pub(crate) fn place_by_id(&self, id: QueueId) -> Option<u32> {
        self.by_id.find(id, |place| self.routes[place as usize].queue)
    }

    /// The queue at a place that has one.
    pub(super) fn at(&self, place: u32) -> &QueueSlot {
        &self.slots[place as usize]
    }

    /// The same, to change it.
    pub(super) fn at_mut(&mut self, place: u32) -> &mut QueueSlot {
        &mut self.slots[place as usize]
    }

    /// The queue at a place that may be free.
    pub(super) fn get(&self, place: usize) -> Option<&QueueSlot> {
        self.slots.get(place)
    }

    /// The queue at a place that may be free, if somebody finds it.
    pub(crate) fn living_at(&self, place: usize) -> Option<&Arc<QueueInfo>> {
        self.slots.get(place).filter(|slot| !slot.is_gone).map(|slot| &slot.info)
    }

    /// Those that somebody finds.
    pub(super) fn living(&self) -> impl Iterator<Item = &QueueInfo> {
        #[cfg(test)]
        self.gone_through.set(self.gone_through.get() + 1);
        self.slots.iter().filter(|(_, slot)| !slot.is_gone).map(|(_, slot)| &*slot.info)
    }

    /// The queue of that name.
    pub(crate) fn find(&self, vhost: VhostId, name: &str) -> Option<&QueueInfo> {
        self.place(vhost, name).map(|place| &*self.at(place).info)
    }

    /// The queue with that id, unless it was deleted.
    pub(crate) fn by_id(&self, id: QueueId) -> Option<&QueueInfo> {
        self.place_by_id(id).map(|place| &*self.at(place).info)
    }

    /// The id of a queue that may have moved lately.
    pub(crate) fn id_now(&self, id: QueueId) -> QueueId {
        // Newer ones stand behind older ones.
        let step = |id, &(old, new): &(QueueId, QueueId)| if old == id { new } else { id };
        self.moved.iter().fold(id, step)
    }

    /// Forgets the old ids of queues that moved.
    pub(super) fn forget_moves(&mut self) {
        self.moved = VecDeque::new();
    }

    /// Notes where this shard has the queue at a place.
    pub(crate) fn note_slot(&mut self, place: usize, slot: u32) {
        self.routes[place].slot = slot;
    }

    /// The exclusive queues of a connection, in the order of their declaration.
    pub(crate) fn exclusive_of(&self, connection: ConnectionId) -> impl Iterator<Item = QueueId> {
        self.exclusive.get(&connection).into_iter().flatten().copied()
    }

    /// Number of queues in a virtual host.
    pub(crate) fn count(&self, vhost: VhostId) -> u64 {
        self.counts.get(&vhost).copied().unwrap_or(0)
    }

    /// A virtual host comes, without any.
    pub(super) fn add_vhost(&mut self, vhost: VhostId) {
        self.counts.insert(vhost, 0);
    }

    /// A virtual host goes; its queues follow.
    pub(super) fn delete_vhost(&mut self, vhost: VhostId) {
        self.counts.remove(&vhost);
    }

    /// Its home counts a queue that comes.
    pub(super) fn reserve(&mut self, info: &QueueInfo) {
        if info.exclusive().is_none()
            && let Some(held) = self.held.get_mut(info.home.index())
        {
            *held += 1;
        }
    }

    /// It counts it no more.
    pub(super) fn release(&mut self, info: &QueueInfo) {
        if info.exclusive().is_none()
            && let Some(held) = self.held.get_mut(info.home.index())
        {
            *held -= 1;
        }
    }

    /// Makes the tables as large as about `count` queues need, unless there are some already.
    pub(super) fn prepare(&mut self, count: usize) {
        self.by_name.prepare(count);
        self.by_id.prepare(count);
        if self.routes.is_empty() {
            self.routes.reserve_exact(count);
        }
    }

    /// Adds a queue whose name is not in use.
    pub(super) fn insert(&mut self, info: Arc<QueueInfo>) {
        self.use_id(info.id);
        self.reserve(&info);
        *self.counts.entry(info.vhost).or_default() += 1;
        if let Some(owner) = info.exclusive() {
            self.exclusive.entry(owner).or_default().insert(info.id);
        }
        let hash = name_hash(self.hash, info.vhost, info.name());
        let route = Route { queue: info.id, home: info.home, slot: u32::MAX };
        let place = self.slots.insert(QueueSlot { info, as_target: NONE, is_gone: false });
        if self.routes.len() <= place {
            self.routes.resize(place + 1, Route::default());
        }
        self.routes[place] = route;
        let routes = &self.routes;
        self.by_id.insert(route.queue, place as u32, |place| routes[place as usize].queue);
        let (slots, state) = (&self.slots, self.hash);
        self.by_name.insert_unique(hash, place as u32, |&place| {
            let info = &slots[place as usize].info;
            name_hash(state, info.vhost, info.name())
        });
    }

    /// Gives a queue another id and home; how it was.
    pub(super) fn relocate(&mut self, place: u32, id: QueueId, log: u16) -> Arc<QueueInfo> {
        let home = ShardId(log % self.held.len() as u16);
        let old = Arc::clone(&self.slots[place as usize].info);
        self.slots[place as usize].info = Arc::new(old.moved(id, home, log));
        let routes = &self.routes;
        self.by_id.remove(old.id, |place| routes[place as usize].queue);
        self.routes[place as usize] = Route { queue: id, home, slot: u32::MAX };
        let routes = &self.routes;
        self.by_id.insert(id, place, |place| routes[place as usize].queue);
        if old.exclusive().is_none() {
            for (shard, step) in [(old.home, -1), (home, 1)] {
                if let Some(held) = self.held.get_mut(shard.index()) {
                    *held = held.saturating_add_signed(step);
                }
            }
        }
        if self.moved.len() == MOVED_MAX {
            self.moved.pop_front();
        }
        self.moved.push_back((old.id, id));
        old
    }

    /// Lets nobody find the queue any more.
    pub(super) fn forget(&mut self, place: u32) -> Arc<QueueInfo> {
        let info = Arc::clone(&self.slots[place as usize].info);
        let hash = name_hash(self.hash, info.vhost, info.name());
        self.by_name.remove(hash, |&other| other == place);
        let routes = &self.routes;
        self.by_id.remove(info.id, |place| routes[place as usize].queue);
        self.release(&info);
        if let Some(count) = self.counts.get_mut(&info.vhost) {
            *count -= 1;
        }
        if let Some(owner) = info.exclusive()
            && let Some(owned) = self.exclusive.get_mut(&owner)
        {
            owned.remove(&info.id);
            if owned.is_empty() {
                self.exclusive.remove(&owner);
            }
        }
        info
    }

    /// Takes out a queue that has no bindings any more and that nobody finds.
    pub(super) fn free(&mut self, place: u32) -> Arc<QueueInfo> {
        self.slots.remove(place as usize).info
    }

    /// Where a new queue lives: where it is declared, unless that shard holds many more than
    /// another. One that only its declarer knows, because it is exclusive or the broker made up its
    /// name, stays with it.
    pub(crate) fn home_for(&self, declared_on: ShardId, is_personal: bool) -> ShardId {
        let wished = match self.held.get(declared_on.index()) {
            Some(_) => declared_on,
            None => ShardId(0),
        };
        let fewest = self.held.iter().enumerate().min_by_key(|(_, held)| **held);
        match fewest {
            Some((shard, fewest))
                if !is_personal && self.held[wished.index()] > fewest + HOME_IMBALANCE_MAX =>
            {
                ShardId(shard as u16)
            }
            _ => wished,
        }
    }

    /// Numbers of the logs that durable queues name, and of how many queues each is named.
    pub(crate) fn logs(&self) -> BTreeMap<u16, u64> {
        let mut logs = BTreeMap::new();
        for info in self.living().filter(|info| info.durable) {
            *logs.entry(info.log).or_default() += 1;
        }
        logs
    }

    /// Those of one virtual host, or of all by age of their virtual hosts; then by name.
    pub(crate) fn list(&self, vhost: Option<VhostId>) -> Vec<&QueueInfo> {
        let wanted = |info: &&QueueInfo| vhost.is_none_or(|vhost| vhost == info.vhost);
        let mut list: Vec<&QueueInfo> = self.living().filter(wanted).collect();
        list.sort_unstable_by(|a, b| (a.vhost, a.name()).cmp(&(b.vhost, b.name())));
        list
    }

    /// Those of some virtual hosts with the places of these, in their order; then by name.
    pub(crate) fn list_of(&self, vhosts: &InOrder) -> Vec<(usize, &QueueInfo)> {
        let found = self.living();
        let found = found.filter_map(|info| Some((vhosts.place(info.vhost)?, info)));
        let mut list: Vec<(usize, &QueueInfo)> = found.collect();
        list.sort_unstable_by(|(one, a), (two, b)| (one, a.name()).cmp(&(two, b.name())));
        list
    }
}

#[cfg(test)]
impl Queues {
    /// How often all of them were gone through.
    pub(crate) fn gone_through(&self) -> usize {
        self.gone_through.get()
    }

    /// Everything that is counted, as text.
    pub(super) fn sums(&self) -> alloc::string::String {
        let routes: BTreeMap<_, _> = self
            .slots
            .iter()
            .map(|(place, _)| (self.routes[place].queue, self.routes[place]))
            .collect();
        alloc::format!(
            "{} {:?} {:?} {:?} {} {routes:?} {}",
            self.next_id,
            self.counts,
            self.held,
            self.exclusive,
            self.slots.len(),
            self.by_name.len(),
        )
    }

    /// How many each virtual host and each shard has.
    pub(crate) fn spread(&self) -> (&BTreeMap<VhostId, u64>, &[u32]) {
        (&self.counts, &self.held)
    }

    /// How many routes there is room for.
    pub(crate) fn route_room(&self) -> usize {
        self.routes.capacity()
    }
}
