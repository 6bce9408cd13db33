//! What connections and queues did in virtual hosts, for those who ask.

use alloc::vec::Vec;

use lepus_base::VhostId;

use crate::query::{Answer, PLACES_MAX, VhostFigures};
use crate::sessions::SessionSide;

/// Connections that are summed up for one question at most.
pub(crate) const SUMMED_UP_MAX: usize = 1_024;

impl SessionSide<'_> {
    /// Figures of those of the virtual hosts in which there is something, or was.
    pub(crate) fn vhost_figures(&mut self, vhosts: &[VhostId]) -> Answer {
        let is_whole = self.connections.sum_up_vhosts(SUMMED_UP_MAX);
        let figures = |&vhost: &VhostId| {
            let sum = self.connections.vhost_sum(vhost);
            let (ready, unacked) = self.shard.held_of_vhosts.of(vhost);
            if sum.is_none() && (ready, unacked) == (0, 0) {
                return None;
            }
            let sum = sum.unwrap_or_default();
            Some(VhostFigures {
                vhost,
                counts: sum.counts,
                received_bytes: sum.received,
                sent_bytes: sum.sent,
                ready,
                unacked,
            })
        };
        let rows: Vec<VhostFigures> = vhosts.iter().take(PLACES_MAX).filter_map(figures).collect();
        Answer::VhostFigures { rows, is_whole }
    }
}
