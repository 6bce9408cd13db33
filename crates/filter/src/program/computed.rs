//! Numbers that are computed of fields once for a message, and then compared by order as fields are.

use super::{NodeId, Program};
use crate::paths::Slot;
use crate::tree::Expr;

/// Of a set at most; more of them are evaluated where they stand.
const COMPUTED_MAX: usize = 64;

/// A part with a slot for its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Computed {
    pub(crate) node: NodeId,
    pub(crate) slot: Slot,
    users: u32,
}

impl Program {
    /// What is computed for each message.
    #[inline]
    pub(crate) fn computed(&self) -> &[Computed] {
        &self.computed
    }

    /// The slot of what an expression computes, used once more; none where there are too many.
    pub(crate) fn acquire_computed(&mut self, expr: &Expr) -> Option<Slot> {
        let node = self.acquire(expr);
        if let Some(known) = self.computed.iter_mut().find(|known| known.node == node) {
            known.users += 1;
            let slot = known.slot;
            self.release(node);
            return Some(slot);
        }
        if self.computed.len() == COMPUTED_MAX {
            self.release(node);
            return None;
        }
        let slot = self.paths.reserve();
        self.computed.push(Computed { node, slot, users: 1 });
        Some(slot)
    }

    /// Whether a slot is that of something computed.
    pub(crate) fn is_computed(&self, slot: Slot) -> bool {
        self.computed.iter().any(|known| known.slot == slot)
    }

    /// One use of a slot ends, of a field or of something computed.
    pub(crate) fn release_slot(&mut self, slot: Slot) {
        let Some(place) = self.computed.iter().position(|known| known.slot == slot) else {
            return self.paths.release(slot);
        };
        self.computed[place].users -= 1;
        if self.computed[place].users == 0 {
            let Computed { node, .. } = self.computed.swap_remove(place);
            self.paths.free(slot);
            self.release(node);
        }
    }
}
