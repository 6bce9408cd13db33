//! Which virtual hosts a list has, and in which order.

use alloc::collections::BTreeMap;
use lepus_base::VhostId;

/// Virtual hosts in the order in which a list has them: what is in them is gone through once, however many they are.
pub(crate) struct InOrder(BTreeMap<VhostId, usize>);

impl InOrder {
    /// Of two that are the same the last counts.
    pub(crate) fn of(vhosts: &[VhostId]) -> InOrder {
        InOrder(vhosts.iter().copied().zip(0..).collect())
    }

    /// The place of one of them.
    pub(super) fn place(&self, vhost: VhostId) -> Option<usize> {
        self.0.get(&vhost).copied()
    }
}
