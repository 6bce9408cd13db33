//! What goes, and what goes with it.

use super::change::Applied;
use super::clearing::Clearing;
use super::{Directory, name_hash};
use crate::binding::{Bindings, Chain};
use alloc::vec::Vec;
use lepus_base::VhostId;

impl Directory {
    /// Removes one binding and notes its source in `left` where that deletes itself now.
    pub(super) fn remove_binding(&mut self, place: u32, left: &mut Vec<u32>) {
        self.count_binding(place, false);
        let bindings = &mut self.bindings;
        let (source, target) = {
            let binding = bindings.get(place);
            (binding.source, binding.target)
        };
        let exchange = &mut self.exchanges[source as usize];
        exchange.router.remove(bindings, place);
        bindings.unlink(Chain::Source, &mut exchange.as_source, place);
        exchange.bindings -= 1;
        if exchange.bindings == 0 && exchange.info.auto_delete {
            left.push(source);
        }
        let head = match target.split() {
            Ok(queue) => &mut self.queues[queue as usize].as_target,
            Err(exchange) => &mut self.exchanges[exchange as usize].as_target,
        };
        bindings.unlink(Chain::Target, head, place);
        bindings.remove(place);
    }

    pub(super) fn delete_exchange(&mut self, place: u32, applied: &mut Applied) {
        let mut left = Vec::new();
        self.remove_exchange(place, applied, &mut left);
        self.delete_left(left, applied);
    }

    pub(super) fn delete_queue(&mut self, place: u32, applied: &mut Applied) {
        let mut left = Vec::new();
        self.remove_queue(place, applied, &mut left);
        self.delete_left(left, applied);
    }

    /// Deletes the exchanges that lost their last binding, and those that lose theirs by that.
    pub(super) fn delete_left(&mut self, mut left: Vec<u32>, applied: &mut Applied) {
        if self.is_replaying {
            return;
        }
        while let Some(place) = left.pop() {
            // A loop of exchanges may name one twice. No place is used again meanwhile.
            if self.exchanges.contains(place as usize) {
                self.remove_exchange(place, applied, &mut left);
            }
        }
    }

    /// Nobody finds the virtual host any more. What is in it goes in slices.
    pub(super) fn delete_vhost(&mut self, id: VhostId, applied: &mut Applied) {
        let Some(info) = self.vhosts.remove(&id) else {
            return;
        };
        self.vhosts_by_name.remove(&info.name);
        self.queue_counts.remove(&id);
        for user in self.users.values_mut() {
            user.permissions.remove(&id);
            user.topic_permissions.retain(|(vhost, _), _| *vhost != id);
        }
        self.clearing.push_back(Clearing::new(id));
        applied.vhost_deleted = Some(id);
        applied.permissions_changed = true;
    }

    pub(super) fn remove_exchange(
        &mut self,
        place: u32,
        applied: &mut Applied,
        left: &mut Vec<u32>,
    ) {
        let slot = &self.exchanges[place as usize];
        let heads = [(Chain::Source, slot.as_source), (Chain::Target, slot.as_target)];
        let own = chains(&self.bindings, &heads);
        let hash = name_hash(self.hash, slot.info.vhost, &slot.info.name);
        for binding in own {
            self.remove_binding(binding, left);
        }
        // It goes now, for whatever reason, so it need not delete itself.
        left.retain(|&other| other != place);
        let info = self.exchanges.remove(place as usize).info;
        self.exchanges_by_name.remove(hash, |&other| other == place);
        self.count_exchange(&info, false);
        if let Some(id) = info.holding {
            self.holdings.remove(&id);
            applied.holdings_dropped.push(id);
        }
        applied.exchanges_deleted.push((info.vhost, info.name));
    }

    pub(super) fn remove_queue(&mut self, place: u32, applied: &mut Applied, left: &mut Vec<u32>) {
        let slot = &self.queues[place as usize];
        let own = chains(&self.bindings, &[(Chain::Target, slot.as_target)]);
        let hash = name_hash(self.hash, slot.info.vhost, slot.info.name());
        for binding in own {
            self.remove_binding(binding, left);
        }
        let info = self.queues.remove(place as usize).info;
        self.queues_by_name.remove(hash, |&other| other == place);
        self.count_queue(&info, false);
        let routes = &self.routes;
        self.queues_by_id.remove(info.id, |place| routes[place as usize].queue);
        if let Some(count) = self.queue_counts.get_mut(&info.vhost) {
            *count -= 1;
        }
        match info.exclusive() {
            Some(owner) => {
                if let Some(owned) = self.exclusive.get_mut(&owner) {
                    owned.remove(&info.id);
                    if owned.is_empty() {
                        self.exclusive.remove(&owner);
                    }
                }
            }
            None => {
                if let Some(held) = self.held.get_mut(info.home.index()) {
                    *held -= 1;
                }
            }
        }
        applied.queues_deleted.push(info);
    }
}

/// The bindings of some chains, each once: one from an exchange to itself stands in two.
fn chains(bindings: &Bindings, heads: &[(Chain, u32)]) -> Vec<u32> {
    let mut places: Vec<u32> =
        heads.iter().flat_map(|(chain, head)| bindings.chain(*chain, *head)).collect();
    places.sort_unstable();
    places.dedup();
    places
}
