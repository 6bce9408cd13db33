//! What goes, and what goes with it.

use super::Topology;
use super::clearing::Clearing;
use crate::binding::{Bindings, Chain, NONE, Target};
use crate::change::Applied;
use alloc::vec::Vec;
use lepus_base::VhostId;

impl Topology {
    /// Removes one binding and notes its source in `left` where that deletes itself now.
    pub(super) fn remove_binding(&mut self, place: u32, left: &mut Vec<u32>) {
        self.count_binding(place, false);
        let bindings = &mut self.bindings;
        let (source, target) = {
            let binding = bindings.get(place);
            (binding.source, binding.target)
        };
        let grown = self.exchanges.unbind(source, bindings, place);
        self.size.change(grown.before, grown.after);
        let exchange = self.exchanges.at_mut(source);
        bindings.unlink(Chain::Source, &mut exchange.as_source, place);
        exchange.bindings -= 1;
        if exchange.bindings == 0 && exchange.info.auto_delete && !exchange.is_gone {
            left.push(source);
        }
        let head = match target.split() {
            Ok(queue) => &mut self.queues.at_mut(queue).as_target,
            Err(exchange) => &mut self.exchanges.at_mut(exchange).as_target,
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
            if self.exchanges.contains(place) {
                self.remove_exchange(place, applied, &mut left);
            }
        }
    }

    /// Names the exchanges that lost their last binding.
    pub(super) fn name_left(&self, left: Vec<u32>, applied: &mut Applied) {
        applied.exchanges_left.extend(self.exchanges.names_of(left));
    }

    /// Nobody finds the exchange any more. Its bindings go in slices.
    fn dismiss_exchange(&mut self, place: u32, applied: &mut Applied) {
        self.forget_exchange(place, applied);
        let slot = self.exchanges.at_mut(place);
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
        self.queues.at_mut(place).is_gone = true;
        self.dead.insert(Target::queue(place));
        self.clearing.push_back(Clearing::Queue(place));
        applied.goes_in_slices = true;
    }

    /// A virtual host is gone. What is in it goes in slices.
    pub(crate) fn delete_vhost(&mut self, id: VhostId) {
        self.queues.delete_vhost(id);
        self.clearing.push_back(Clearing::vhost(id));
    }

    pub(super) fn remove_exchange(
        &mut self,
        place: u32,
        applied: &mut Applied,
        left: &mut Vec<u32>,
    ) {
        let slot = self.exchanges.at(place);
        let heads = [(Chain::Source, slot.as_source), (Chain::Target, slot.as_target)];
        for binding in chains(&self.bindings, &heads) {
            self.remove_binding(binding, left);
        }
        // It goes now, for whatever reason, so it need not delete itself.
        left.retain(|&other| other != place);
        self.forget_exchange(place, applied);
        self.free_exchange(place, applied);
    }

    /// Nobody finds the exchange any more.
    fn forget_exchange(&mut self, place: u32, applied: &mut Applied) {
        let info = self.exchanges.forget(place);
        applied.holdings_dropped.extend(info.holding);
        applied.exchanges_deleted.push((info.vhost, info.name.clone()));
    }

    /// Takes out an exchange that has no bindings any more and that nobody finds.
    pub(super) fn free_exchange(&mut self, place: u32, applied: &mut Applied) {
        self.set_policy_alternate(place, None);
        applied.exchange_places_freed.push(place);
        let info = self.exchanges.free(place);
        self.count_exchange(&info, false);
    }

    pub(super) fn remove_queue(&mut self, place: u32, applied: &mut Applied, left: &mut Vec<u32>) {
        let slot = self.queues.at(place);
        for binding in chains(&self.bindings, &[(Chain::Target, slot.as_target)]) {
            self.remove_binding(binding, left);
        }
        self.forget_queue(place, applied);
        self.free_queue(place);
    }

    /// Takes out a queue that has no bindings any more and that nobody finds.
    pub(super) fn free_queue(&mut self, place: u32) {
        let info = self.queues.free(place);
        self.count_queue(&info, false);
    }

    /// Nobody finds the queue any more.
    fn forget_queue(&mut self, place: u32, applied: &mut Applied) {
        applied.queues_deleted.push(self.queues.forget(place));
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
