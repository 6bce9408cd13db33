//! Index pages written anew, in the background, with the places to which compaction moved their messages:
//! nobody has to remember the old ones then.

use alloc::vec::Vec;
use lepus_base::Position;

use super::Store;
use crate::disk::Operations;
use crate::lane::{Folded, Part};
use crate::lanes::LaneSlot;
use crate::place::generation;

/// Parts of lanes looked at in one call.
const PARTS: usize = 8;
/// Lanes looked at in one call.
const LANES: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Rewriting {
    /// The lane and the number to go on with.
    folding: Option<(u32, u64)>,
    /// How many moved messages there have to be before the next round.
    next_at: usize,
}

impl Store {
    /// Writes some index pages anew. True if more can be done at once.
    pub(super) fn fold(&mut self, out: &mut Operations) -> bool {
        let moved = self.state.tables.relocations.len();
        if self.log.stopped().is_some() {
            return false;
        }
        if self.rewriting.folding.is_none() {
            if moved <= self.settings.relocations_kept.max(self.rewriting.next_at) {
                return false;
            }
            self.rewriting.folding = Some((0, 0));
        }
        let mut parts = 0;
        for _ in 0..LANES {
            let Some((lane, seq)) = self.rewriting.folding else { return false };
            if lane as usize >= self.state.lanes.places() {
                self.rewriting.folding = None;
                self.rewriting.next_at = 2 * self.state.tables.relocations.len();
                return false;
            }
            let slot = LaneSlot(lane);
            let part = self.unseen_part(slot, seq);
            let Some((part, end)) = part else {
                self.rewriting.folding = Some((lane + 1, 0));
                continue;
            };
            if !self.fold_part(slot, part, out) {
                return false;
            }
            self.rewriting.folding = Some((lane, end));
            parts += 1;
            if parts == PARTS {
                break;
            }
        }
        true
    }

    fn unseen_part(&mut self, slot: LaneSlot, seq: u64) -> Option<(Part, u64)> {
        let lane = self.state.lane_mut(slot).filter(|lane| !lane.is_dropped)?;
        let part = lane.unseen_part(seq)?;
        Some((part, lane.part_end(part)))
    }

    /// False if the part has to be read first.
    fn fold_part(&mut self, slot: LaneSlot, part: Part, out: &mut Operations) -> bool {
        let crate::state::State { lanes, tables, freed_pages, .. } = &mut self.state;
        let Some(lane) = lanes.get_mut(slot) else { return true };
        let mut left: Vec<Position> = Vec::new();
        let moves = core::cell::RefCell::new(&mut tables.relocations);
        let folded = lane.fold(
            part,
            freed_pages,
            |at| moves.borrow().get(&at).is_some_and(|row| row.references > 0),
            |at| {
                let mut moves = moves.borrow_mut();
                let is_moved = moves.get(&at).is_some_and(|row| row.references > 0);
                match moves.release(at).filter(|_| is_moved) {
                    Some(row) => {
                        if row.references == 0 {
                            left.push(at);
                        }
                        row.to
                    }
                    None => at,
                }
            },
        );
        // For as long as the message is still in its first place too, it must be known that it
        // does not live there.
        for at in left {
            if !self.log.segments.contains_key(&generation(at)) {
                self.state.tables.relocations.remove(at);
            }
        }
        match folded {
            Folded::Same => true,
            Folded::Unread => {
                if let Part::Page(first) = part {
                    self.read_page(slot, first, out);
                }
                false
            }
            Folded::Pages(firsts) => {
                self.state.lanes.weigh(slot);
                self.closed_pages.extend(firsts.into_iter().map(|first| (slot, first)));
                true
            }
        }
    }
}
