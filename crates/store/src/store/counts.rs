//! What a store has counted of each segment, for whoever counts again.

use lepus_base::Position;

use super::Store;
use crate::lanes::LaneSlot;
use crate::page::Entry;
use crate::place::generation;
use crate::state::OVERHEAD_BYTES;

/// What a store believes to live in one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// References to messages that begin in it: persistent ones, transient ones.
    pub references: [u64; 2],
    /// Bytes of the bodies that these name; a shared one counts as often as it is named.
    pub bytes: [u64; 2],
    /// Fragments in it of persistent messages that lie in several segments, as they were counted
    /// when they were written and when they died.
    pub pins: u64,
    /// The same, by the table of such messages.
    pub spans: u64,
}

impl Store {
    /// What is counted of each segment in use, by generation. Costs a look at all of them.
    pub fn segment_counts(&self) -> impl Iterator<Item = (u32, SegmentCounts)> {
        self.log.segments.iter().map(|(&number, segment)| {
            let mut spans = [0; 2];
            for (&start, span) in self.state.tables.spans.iter() {
                let is_here = generation(start) <= number && number <= span.generation_last;
                spans[usize::from(span.is_transient)] += u64::from(is_here);
            }
            // A fragment of a transient message counts as a reference.
            let transient = segment.live_transient.saturating_sub(spans[1]);
            let counts = SegmentCounts {
                references: [segment.live, transient],
                bytes: [
                    segment.live_bytes - OVERHEAD_BYTES * segment.live,
                    segment.live_transient_bytes - OVERHEAD_BYTES * transient,
                ],
                pins: u64::from(segment.pins),
                spans: spans[0],
            };
            (number, counts)
        })
    }

    /// Whether all that was settled is taken out of the counts. What is purged or deleted in one go
    /// is taken out by [`Store::work`], bit by bit.
    #[must_use]
    pub fn is_accounted(&self) -> bool {
        self.state.unaccounted.is_empty()
    }

    /// Shows the entries of a lane that are in memory, those settled too: where the index has
    /// their messages now. It is written anew after messages were moved.
    pub fn each_in_memory(&self, slot: LaneSlot, look: impl FnMut(Entry)) {
        self.state.lanes.look(slot, |lane| lane.each_in_memory(look));
    }

    /// The segment in which the message begins now that the index has at `position`.
    #[must_use]
    pub fn segment_of(&self, position: Position) -> u32 {
        let moved = self.state.tables.relocations.get(&position);
        generation(moved.map_or(position, |relocation| relocation.to))
    }
}
