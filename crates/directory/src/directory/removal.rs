//! What goes, and what goes with it.

use super::change::Applied;
use super::clearing::Clearing;
use super::{Directory, name_hash};
use crate::binding::{Bindings, Chain, NONE, Target};
use alloc::sync::Arc;
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
        if exchange.bindings == 0 && exchange.info.auto_delete && !exchange.is_gone {
            left.push(source);
        }
        let head = match target.split() {
            Ok(queue) => &mut self.queues[queue as usize].as_target,
            Err(exchange) => &mut self.exchanges[exchange as usize].as_target,
        };
        bindings.unlink(Chain::Target, head, place);
        bindings.remove(place);
    }

    /// Deletes an exchange: at once with all its bindings if it is small.
    pub(super) fn delete_exchange(&mut self, place: u32, is_small: bool, applied: &mut Applied) {
        if !is_small {
            return self.dismiss_exchange(place, applied);
        }
        let mut left = Vec::new();
        self.remove_exchange(place, applied, &mut left);
        self.delete_left(left, true, applied);
    }

    /// The same for a queue.
    pub(super) fn delete_queue(&mut self, place: u32, is_small: bool, applied: &mut Applied) {
        if !is_small {
            return self.dismiss_queue(place, applied);
        }
        let mut left = Vec::new();
        self.remove_queue(place, applied, &mut left);
        self.delete_left(left, true, applied);
    }

    /// Deletes the exchanges that lost their last binding, and those that lose theirs by that; or
    /// only names them, where that is too much at once or a log says what follows.
    pub(super) fn delete_left(
        &mut self,
        mut left: Vec<u32>,
        is_small: bool,
        applied: &mut Applied,
    ) {
        if self.is_replaying || !is_small {
            return self.name_left(left, applied);
        }
        while let Some(place) = left.pop() {
            // A loop of exchanges may name one twice. No place is used again meanwhile.
            if self.exchanges.contains(place as usize) {
                self.remove_exchange(place, applied, &mut left);
            }
        }
    }

    /// Names the exchanges that lost their last binding.
    pub(super) fn name_left(&self, left: Vec<u32>, applied: &mut Applied) {
        applied.exchanges_left.extend(left.into_iter().map(|place| {
            let info = &self.exchanges[place as usize].info;
            (info.vhost, info.name.clone())
        }));
    }

    /// Nobody finds the exchange any more. Its bindings go in slices.
    fn dismiss_exchange(&mut self, place: u32, applied: &mut Applied) {
        self.forget_exchange(place, applied);
        let slot = &mut self.exchanges[place as usize];
        slot.is_gone = true;
        if slot.as_target != NONE {
            self.dead.insert(Target::exchange(place));
        }
        self.clearing.push_back(Clearing::Exchange(place));
        applied.goes_in_slices = true;
    }

    /// Nobody finds the queue any more. Its bindings go in slices.
    fn dismiss_queue(&mut self, place: u32, applied: &mut Applied) {
        self.forget_queue(place, applied);
        self.queues[place as usize].is_gone = true;
        self.dead.insert(Target::queue(place));
        self.clearing.push_back(Clearing::Queue(place));
        applied.goes_in_slices = true;
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
        self.clearing.push_back(Clearing::vhost(id));
        applied.goes_in_slices = true;
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
        for binding in chains(&self.bindings, &heads) {
            self.remove_binding(binding, left);
        }
        // It goes now, for whatever reason, so it need not delete itself.
        left.retain(|&other| other != place);
        self.forget_exchange(place, applied);
        self.free_exchange(place);
    }

    /// Nobody finds the exchange any more.
    fn forget_exchange(&mut self, place: u32, applied: &mut Applied) {
        let info = &self.exchanges[place as usize].info;
        let hash = name_hash(self.hash, info.vhost, &info.name);
        self.exchanges_by_name.remove(hash, |&other| other == place);
        if let Some(id) = info.holding {
            self.holdings.remove(&id);
            applied.holdings_dropped.push(id);
        }
        applied.exchanges_deleted.push((info.vhost, info.name.clone()));
    }

    /// Takes out an exchange that has no bindings any more and that nobody finds.
    pub(super) fn free_exchange(&mut self, place: u32) {
        let info = self.exchanges.remove(place as usize).info;
        self.count_exchange(&info, false);
    }

    pub(super) fn remove_queue(&mut self, place: u32, applied: &mut Applied, left: &mut Vec<u32>) {
        let slot = &self.queues[place as usize];
        for binding in chains(&self.bindings, &[(Chain::Target, slot.as_target)]) {
            self.remove_binding(binding, left);
        }
        self.forget_queue(place, applied);
        self.free_queue(place);
    }

    /// Takes out a queue that has no bindings any more and that nobody finds.
    pub(super) fn free_queue(&mut self, place: u32) {
        let info = self.queues.remove(place as usize).info;
        self.count_queue(&info, false);
    }

    /// Nobody finds the queue any more.
    fn forget_queue(&mut self, place: u32, applied: &mut Applied) {
        let info = Arc::clone(&self.queues[place as usize].info);
        let hash = name_hash(self.hash, info.vhost, info.name());
        self.queues_by_name.remove(hash, |&other| other == place);
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
