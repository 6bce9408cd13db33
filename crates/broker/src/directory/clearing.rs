//! What is left of virtual hosts that were deleted: nobody finds it any more, and it goes in slices.
//!
//! A slice is a change like others, so all shards take the same out at the same point of their order.

use alloc::vec::Vec;
use lepus_base::VhostId;

use super::Directory;
use super::change::{Applied, Change};

/// What a slice may cost: places that it looks at.
const LOOKS_MAX: usize = 4_096;
/// A binding, queue or exchange that goes costs as much as so many looks.
const REMOVAL_LOOKS: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Stage {
    Bindings,
    Queues,
    Exchanges,
}

/// A virtual host that was deleted, and how far its contents are gone.
#[derive(Debug)]
pub(super) struct Clearing {
    vhost: VhostId,
    stage: Stage,
    /// The place to look at next.
    next: usize,
}

impl Clearing {
    pub(super) fn new(vhost: VhostId) -> Clearing {
        // Bindings go first, so that no queue or exchange takes many along.
        Clearing { vhost, stage: Stage::Bindings, next: 0 }
    }
}

impl Directory {
    /// Virtual hosts that were deleted and whose contents are not all gone: each needs
    /// [`Change::VhostCleared`] until this is one less.
    #[must_use]
    pub fn clearing(&self) -> usize {
        self.clearing.len()
    }

    /// Takes out all that is left of virtual hosts that were deleted, however long that takes.
    pub(crate) fn clear_all(&mut self) {
        while self.clearing() > 0 {
            let _ = self.apply(&Change::VhostCleared);
        }
    }

    /// A slice for the virtual host that was deleted first.
    pub(super) fn clear_slice(&mut self, applied: &mut Applied) {
        let Some(mut clearing) = self.clearing.pop_front() else { return };
        let mut budget = LOOKS_MAX;
        while budget > 0 {
            let end = match clearing.stage {
                Stage::Bindings => self.bindings.places(),
                Stage::Queues => self.queues.places(),
                Stage::Exchanges => self.exchanges.places(),
            };
            if clearing.next >= end {
                clearing.next = 0;
                clearing.stage = match clearing.stage {
                    Stage::Bindings => Stage::Queues,
                    Stage::Queues => Stage::Exchanges,
                    Stage::Exchanges => return,
                };
                continue;
            }
            let is_gone = self.clear_place(&clearing, applied);
            let cost = if is_gone { REMOVAL_LOOKS } else { 1 };
            budget = budget.saturating_sub(cost);
            clearing.next += 1;
        }
        self.clearing.push_front(clearing);
    }

    /// Takes out what is at the place, if it is of the virtual host. Whether it was.
    fn clear_place(&mut self, clearing: &Clearing, applied: &mut Applied) -> bool {
        let (vhost, place) = (clearing.vhost, clearing.next);
        // Exchanges that lose their last binding go in any case.
        let mut left = Vec::new();
        let is_own = match clearing.stage {
            Stage::Bindings => {
                let source = self.bindings.try_get(place as u32).map(|binding| binding.source);
                source.is_some_and(|source| self.exchanges[source as usize].info.vhost == vhost)
            }
            Stage::Queues => self.queues.get(place).is_some_and(|slot| slot.info.vhost == vhost),
            Stage::Exchanges => {
                self.exchanges.get(place).is_some_and(|slot| slot.info.vhost == vhost)
            }
        };
        if is_own {
            match clearing.stage {
                Stage::Bindings => self.remove_binding(place as u32, &mut left),
                Stage::Queues => self.remove_queue(place as u32, applied, &mut left),
                Stage::Exchanges => self.remove_exchange(place as u32, applied, &mut left),
            }
        }
        is_own
    }
}
