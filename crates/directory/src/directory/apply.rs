//! Applying decided changes. The same changes give the same directory on every shard.

use super::change::{Applied, BindingChange, Change};
use super::{Directory, ExchangeInfo, ExchangeSlot, MOVED_MAX, QueueInfo, QueueSlot, name_hash};
use crate::binding::{Chain, NONE};
use crate::exchange::PREDECLARED;
use crate::permission::{Permission, TopicPermission};
use crate::router::{Route, Router};
use crate::user::{PasswordHash, User};
use crate::vhost::{VhostInfo, VhostLimits, VhostMetadata};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_amqp::table::TableBytes;
use lepus_base::{QueueId, ShardId, VhostId};

impl Directory {
    /// Applies a change and tells what followed from it.
    pub fn apply(&mut self, change: &Change) -> Applied {
        self.version += 1;
        let mut applied = Applied::default();
        match change {
            Change::IdsUsed { vhosts, queues } => {
                self.next_vhost = self.next_vhost.max(*vhosts);
                self.next_queue = self.next_queue.max(*queues);
            }
            Change::ExchangeDeclared(info) => self.add_exchange((**info).clone()),
            Change::ExchangeDeleted { vhost, name } => {
                if self.is_replaying {
                    self.left_behind.remove(&(*vhost, name.clone()));
                }
                if let Some(place) = self.exchange_place(*vhost, name) {
                    let is_small = self.wake(change).is_whole;
                    self.delete_exchange(place, is_small, &mut applied);
                }
            }
            Change::QueueDeclared(info) => {
                self.add_queue(Arc::clone(info));
                applied.queues_created.push(info.id);
            }
            Change::QueueDeleted { id } => {
                if let Some(place) = self.queue_place_by_id(*id) {
                    let is_small = self.wake(change).is_whole;
                    self.delete_queue(place, is_small, &mut applied);
                }
            }
            Change::QueueMoved { id, new_id, log } => {
                self.next_queue = self.next_queue.max(new_id.0.saturating_add(1));
                if let Some(place) = self.queue_place_by_id(*id) {
                    applied.queue_moved = Some((self.move_queue(place, *new_id, *log), *new_id));
                }
            }
            Change::Bound(binding) => self.add_binding(binding),
            Change::Unbound(binding) => {
                let is_small = self.wake(change).is_whole;
                self.unbind(binding, is_small, &mut applied);
            }
            Change::VhostCreated { id, name, metadata } => self.add_vhost(*id, name, metadata),
            Change::VhostDescribed { id, metadata } => {
                if let Some(info) = self.vhosts.get_mut(id) {
                    info.metadata = metadata.clone();
                }
            }
            Change::VhostLimited { id, limits } => {
                if let Some(info) = self.vhosts.get_mut(id) {
                    info.limits = *limits;
                }
            }
            Change::VhostDeleted { id } => self.delete_vhost(*id, &mut applied),
            Change::Cleared => self.clear_slice(&mut applied),
            Change::InParts => self.is_in_parts = true,
            _ => self.apply_account(change, &mut applied),
        }
        applied
    }

    fn apply_account(&mut self, change: &Change, applied: &mut Applied) {
        applied.permissions_changed = true;
        match change {
            Change::UserPut { name, password, tags } => self.put_user(name, password, tags),
            Change::UserDeleted { name } => {
                applied.user_deleted = self.users.remove(name).map(|user| user.name);
            }
            Change::UserLimited { name, limits } => {
                if let Some(user) = self.users.get_mut(name) {
                    user.limits = *limits;
                }
            }
            Change::PermissionSet { user, vhost, configure, write, read } => {
                if let Some(user) = self.users.get_mut(user)
                    && self.vhosts.contains_key(vhost)
                {
                    let permission = Permission::recovered(configure, write, read);
                    user.permissions.insert(*vhost, permission);
                }
            }
            Change::PermissionCleared { user, vhost } => {
                if let Some(user) = self.users.get_mut(user) {
                    user.permissions.remove(vhost);
                }
            }
            Change::TopicPermissionSet { user, vhost, exchange, write, read } => {
                if let Some(user) = self.users.get_mut(user)
                    && let Some(info) = self.vhosts.get(vhost)
                {
                    let (user_name, vhost_name) = (&user.name, &info.name);
                    let permission = TopicPermission::recovered(write, read, user_name, vhost_name);
                    let key = (*vhost, exchange.clone());
                    user.topic_permissions.insert(key, permission);
                }
            }
            Change::TopicPermissionCleared { user, vhost, exchange } => {
                if let Some(user) = self.users.get_mut(user) {
                    user.topic_permissions.retain(|(other, name), _| {
                        other != vhost || exchange.as_ref().is_some_and(|meant| meant != name)
                    });
                }
            }
            _ => {}
        }
    }

    fn put_user(&mut self, name: &str, password: &PasswordHash, tags: &[Box<str>]) {
        if let Some(user) = self.users.get_mut(name) {
            user.password = password.clone();
            user.tags = tags.to_vec();
        } else {
            let user = User::new(name, password.clone(), tags.to_vec());
            self.users.insert(name.into(), user);
        }
    }

    fn add_vhost(&mut self, id: VhostId, name: &str, metadata: &VhostMetadata) {
        if self.vhosts_by_name.contains_key(name) {
            return;
        }
        self.next_vhost = self.next_vhost.max(id.0.saturating_add(1));
        self.vhosts_by_name.insert(name.into(), id);
        let info = VhostInfo {
            id,
            name: name.into(),
            metadata: metadata.clone(),
            limits: VhostLimits::default(),
        };
        self.vhosts.insert(id, info);
        self.queue_counts.insert(id, 0);
        for (name, kind, internal) in PREDECLARED {
            self.add_exchange(ExchangeInfo {
                vhost: id,
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
        if !self.vhosts.contains_key(&info.vhost) {
            return;
        }
        if let Some(place) = self.exchange_place(info.vhost, &info.name) {
            if self.exchanges[place as usize].info.holding.is_none() {
                self.give_holding(place, info.holding);
            }
            return;
        }
        self.count_exchange(&info, true);
        let hash = name_hash(self.hash, info.vhost, &info.name);
        let holding = info.holding;
        let router = Router::new(info.kind, info.arguments.as_ref(), self.hash);
        let place = self.exchanges.insert(ExchangeSlot {
            info,
            router,
            as_source: NONE,
            bindings: 0,
            as_target: NONE,
            is_gone: false,
        }) as u32;
        let (exchanges, state) = (&self.exchanges, self.hash);
        self.exchanges_by_name.insert_unique(hash, place, |&place| {
            let info = &exchanges[place as usize].info;
            name_hash(state, info.vhost, &info.name)
        });
        self.give_holding(place, holding);
    }

    fn give_holding(&mut self, place: u32, holding: Option<QueueId>) {
        let Some(id) = holding else { return };
        self.next_queue = self.next_queue.max(id.0.saturating_add(1));
        self.exchanges[place as usize].info.holding = holding;
        self.holdings.insert(id, place);
    }

    fn add_queue(&mut self, info: Arc<QueueInfo>) {
        if !self.vhosts.contains_key(&info.vhost)
            || self.queue_place(info.vhost, info.name()).is_some()
        {
            return;
        }
        self.count_queue(&info, true);
        self.next_queue = self.next_queue.max(info.id.0.saturating_add(1));
        let hash = name_hash(self.hash, info.vhost, info.name());
        let route = Route { queue: info.id, home: info.home, slot: u32::MAX };
        *self.queue_counts.entry(info.vhost).or_default() += 1;
        match info.exclusive() {
            Some(owner) => {
                self.exclusive.entry(owner).or_default().insert(info.id);
            }
            None => {
                if let Some(held) = self.held.get_mut(info.home.index()) {
                    *held += 1;
                }
            }
        }
        let place = self.queues.insert(QueueSlot { info, as_target: NONE, is_gone: false });
        if self.routes.len() <= place {
            self.routes.resize(place + 1, Route::default());
        }
        self.routes[place] = route;
        let routes = &self.routes;
        self.queues_by_id.insert(route.queue, place as u32, |place| routes[place as usize].queue);
        let (queues, state) = (&self.queues, self.hash);
        self.queues_by_name.insert_unique(hash, place as u32, |&place| {
            let info = &queues[place as usize].info;
            name_hash(state, info.vhost, info.name())
        });
    }

    /// Gives a queue another id and home; how it was.
    fn move_queue(&mut self, place: u32, id: QueueId, log: u16) -> Arc<QueueInfo> {
        let home = ShardId(log % self.held.len() as u16);
        let old = Arc::clone(&self.queues[place as usize].info);
        self.queues[place as usize].info = Arc::new(old.moved(id, home, log));
        let routes = &self.routes;
        self.queues_by_id.remove(old.id, |place| routes[place as usize].queue);
        self.routes[place as usize] = Route { queue: id, home, slot: u32::MAX };
        let routes = &self.routes;
        self.queues_by_id.insert(id, place, |place| routes[place as usize].queue);
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

    fn add_binding(&mut self, change: &BindingChange) {
        let BindingChange { routing_key, arguments, .. } = change;
        let Some(source) = self.exchange_place(change.vhost, &change.source) else {
            return;
        };
        let Some(target) = self.target(change.vhost, &change.destination) else {
            return;
        };
        if self.bindings.find(source, target, routing_key, arguments.as_ref()).is_some() {
            return;
        }
        let bindings = &mut self.bindings;
        let place = bindings.insert(source, target, routing_key, arguments);
        let exchange = &mut self.exchanges[source as usize];
        bindings.link(Chain::Source, &mut exchange.as_source, place);
        exchange.bindings += 1;
        exchange.router.insert(bindings, place, &change.destination);
        let head = match target.split() {
            Ok(queue) => &mut self.queues[queue as usize].as_target,
            Err(exchange) => &mut self.exchanges[exchange as usize].as_target,
        };
        bindings.link(Chain::Target, head, place);
        self.count_binding(place, true);
    }

    fn unbind(&mut self, change: &BindingChange, is_small: bool, applied: &mut Applied) {
        let Some(source) = self.exchange_place(change.vhost, &change.source) else {
            return;
        };
        let Some(target) = self.target(change.vhost, &change.destination) else {
            return;
        };
        let (key, arguments) = (&change.routing_key, change.arguments.as_ref());
        if let Some(place) = self.bindings.find(source, target, key, arguments) {
            let mut left = Vec::new();
            self.remove_binding(place, &mut left);
            self.delete_left(left, is_small, applied);
        }
    }
}
