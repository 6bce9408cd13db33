//! What is left of what was deleted with very much in it: nobody finds it any more, and it goes in
//! slices. That are virtual hosts, and queues and exchanges with very many bindings.
//!
//! A slice is a change like others, so all shards take the same out at the same point of their order.
//! Exchanges that lose their last binding by a slice are named in [`Applied::exchanges_left`]: the
//! shard that orders the changes has each deleted by a request, since its deletion may have to be in
//! the log and may be as much as the one that caused it.

use super::Topology;
use crate::binding::{NONE, Target};
use crate::change::Applied;
use alloc::vec::Vec;
use lepus_base::VhostId;

/// Bindings that go in one step at most, where nobody says how many.
pub(super) const SLICE: usize = 64;
/// A binding, queue or exchange that goes costs as much as so many looks at places.
const REMOVAL_LOOKS: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Bindings,
    Queues,
    Exchanges,
}

/// What was deleted, and how far its contents are gone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clearing {
    /// All that is in a virtual host.
    Vhost {
        vhost: VhostId,
        stage: Stage,
        /// The place to look at next.
        next: usize,
    },
    /// The bindings of the queue at a place, and the queue.
    Queue(u32),
    /// The bindings of the exchange at a place, and the exchange.
    Exchange(u32),
}

impl Clearing {
    pub(super) fn vhost(vhost: VhostId) -> Clearing {
        // Bindings go first, so that no queue or exchange takes many along.
        Clearing::Vhost { vhost, stage: Stage::Bindings, next: 0 }
    }
}

impl Topology {
    /// What was deleted and is not gone with all that was in it: each needs slices until
    /// this is one less. The oldest goes first.
    pub(crate) fn clearing(&self) -> usize {
        self.clearing.len()
    }

    /// Sets how many bindings go in one step at most, at least one.
    pub(crate) fn set_slice(&mut self, bindings: usize) {
        self.slice = bindings.max(1);
    }

    /// What a slice may cost, in looks at places.
    pub(crate) fn slice_looks(&self) -> usize {
        self.slice * REMOVAL_LOOKS
    }

    /// A slice of what was deleted first.
    pub(crate) fn clear_slice(&mut self, applied: &mut Applied) {
        let Some(mut clearing) = self.clearing.pop_front() else { return };
        let mut budget = self.slice_looks();
        let is_over = match &mut clearing {
            Clearing::Vhost { vhost, stage, next } => {
                self.clear_vhost(*vhost, stage, next, &mut budget, applied)
            }
            Clearing::Queue(place) => self.clear_queue(*place, &mut budget, applied),
            Clearing::Exchange(place) => self.clear_exchange(*place, &mut budget, applied),
        };
        if !is_over {
            self.clearing.push_front(clearing);
        }
        applied.looks = self.slice_looks() - budget;
    }

    /// Whether all of the bindings to a queue are gone, and the queue.
    fn clear_queue(&mut self, place: u32, budget: &mut usize, applied: &mut Applied) -> bool {
        while *budget > 0 {
            let binding = self.queues.at(place).as_target;
            if binding == NONE {
                spend(budget, REMOVAL_LOOKS);
                self.dead.remove(&Target::queue(place));
                self.free_queue(place);
                return true;
            }
            spend(budget, REMOVAL_LOOKS * self.removal(binding));
            self.clear_binding(binding, applied);
        }
        false
    }

    /// The same for an exchange; those that lead to it go first.
    fn clear_exchange(&mut self, place: u32, budget: &mut usize, applied: &mut Applied) -> bool {
        while *budget > 0 {
            let slot = self.exchanges.at(place);
            let (as_target, as_source) = (slot.as_target, slot.as_source);
            if as_target == NONE {
                self.dead.remove(&Target::exchange(place));
            }
            let binding = if as_target == NONE { as_source } else { as_target };
            if binding == NONE {
                spend(budget, REMOVAL_LOOKS);
                self.free_exchange(place, applied);
                return true;
            }
            spend(budget, REMOVAL_LOOKS * self.removal(binding));
            self.clear_binding(binding, applied);
        }
        false
    }

    fn clear_binding(&mut self, binding: u32, applied: &mut Applied) {
        let mut left = Vec::new();
        self.remove_binding(binding, &mut left);
        self.name_left(left, applied);
    }

    /// Whether all that was in the virtual host is gone.
    fn clear_vhost(
        &mut self,
        vhost: VhostId,
        stage: &mut Stage,
        next: &mut usize,
        budget: &mut usize,
        applied: &mut Applied,
    ) -> bool {
        while *budget > 0 {
            let end = match stage {
                Stage::Bindings => self.bindings.places(),
                Stage::Queues => self.queues.places(),
                Stage::Exchanges => self.exchanges.places(),
            };
            if *next >= end {
                *next = 0;
                *stage = match stage {
                    Stage::Bindings => Stage::Queues,
                    Stage::Queues => Stage::Exchanges,
                    Stage::Exchanges => return true,
                };
                continue;
            }
            let removal = match stage {
                Stage::Bindings if self.bindings.try_get(*next as u32).is_some() => {
                    self.removal(*next as u32)
                }
                _ => 1,
            };
            let is_gone = self.clear_place(vhost, *stage, *next, applied);
            spend(budget, if is_gone { REMOVAL_LOOKS * removal } else { 1 });
            *next += 1;
        }
        false
    }

    /// Takes out what is at the place, if it is of the virtual host. Whether it was.
    fn clear_place(
        &mut self,
        vhost: VhostId,
        stage: Stage,
        place: usize,
        applied: &mut Applied,
    ) -> bool {
        // Exchanges that lose their last binding go in any case.
        let mut left = Vec::new();
        let is_own = match stage {
            Stage::Bindings => {
                let source = self.bindings.try_get(place as u32).map(|binding| binding.source);
                source.is_some_and(|source| self.exchanges.at(source).info.vhost == vhost)
            }
            // What was deleted before, or meanwhile, goes by itself.
            Stage::Queues => {
                let slot = self.queues.get(place);
                slot.is_some_and(|slot| slot.info.vhost == vhost && !slot.is_gone)
            }
            Stage::Exchanges => {
                let slot = self.exchanges.get(place);
                slot.is_some_and(|slot| slot.info.vhost == vhost && !slot.is_gone)
            }
        };
        if is_own {
            match stage {
                Stage::Bindings => self.remove_binding(place as u32, &mut left),
                Stage::Queues => self.remove_queue(place as u32, applied, &mut left),
                Stage::Exchanges => self.remove_exchange(place as u32, applied, &mut left),
            }
        }
        is_own
    }

    /// Whether a binding, or what it leads to or from, is on its way out.
    pub(crate) fn is_going(&self, binding: u32) -> bool {
        let binding = self.bindings.get(binding);
        self.exchanges.at(binding.source).is_gone || self.dead.contains(&binding.target)
    }
}

fn spend(budget: &mut usize, looks: usize) {
    *budget = budget.saturating_sub(looks);
}
