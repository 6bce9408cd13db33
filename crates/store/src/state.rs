//! What lives: lanes, and how many of their messages each segment holds.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lepus_base::{Position, QueueId};

use crate::lane::LaneIndex;
use crate::lanes::{LaneSlot, Lanes};
use crate::log::Segment;
use crate::page::Entry;
use crate::place::generation;
use crate::record::{Lane, Reference};
use crate::relocations::{Relocation, Relocations};
use crate::spans::{Span, Spans};

/// Bytes counted for a message beside its body.
pub(crate) const OVERHEAD_BYTES: u64 = 48;

/// Entries accounted for at once: a page may have millions.
const ACCOUNT_ENTRIES: usize = 1024;

/// Segments by generation.
pub(crate) type Segments = BTreeMap<u32, Segment>;

/// What recovery rebuilds and a checkpoint holds, without the log's own state.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub relocations: Relocations,
    pub spans: Spans,
}

impl Tables {
    /// Where the message is that was first written at `origin`.
    pub(crate) fn place(&self, origin: Position) -> Position {
        self.relocations.place(origin)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub lanes: Lanes,
    pub tables: Tables,
    /// Lanes with settles to account for.
    pub unaccounted: Vec<u32>,
    /// Index slots that no lane uses any more.
    pub freed_pages: Vec<u32>,
    /// Segments that died since this was looked at last.
    pub died: usize,
}

impl State {
    pub(crate) fn find(&self, lane: Lane) -> Option<LaneSlot> {
        self.lanes.find(lane)
    }

    pub(crate) fn slot(&mut self, lane: Lane) -> LaneSlot {
        match self.find(lane) {
            Some(slot) => slot,
            None => self.lanes.insert(LaneIndex::new(lane)),
        }
    }

    pub(crate) fn lane_mut(&mut self, slot: LaneSlot) -> Option<&mut LaneIndex> {
        self.lanes.get_mut(slot)
    }

    /// Slots of all lanes of a queue.
    pub(crate) fn lanes_of(&self, queue: QueueId) -> Vec<LaneSlot> {
        self.lanes.of(queue)
    }

    /// Memory of the index, in bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lanes.memory_bytes() + self.tables.relocations.memory_bytes()
    }

    pub(crate) fn list(&mut self, slot: u32) {
        if let Some(lane) = self.lanes.get_mut(LaneSlot(slot))
            && !lane.is_listed
        {
            lane.is_listed = true;
            self.unaccounted.push(slot);
        }
    }

    /// Counts a message with `references` references that begins at `start` and ends in the
    /// segment `generation_last`.
    pub(crate) fn count(
        &mut self,
        segments: &mut Segments,
        start: Position,
        generation_last: u32,
        references: u32,
        bytes: u32,
        is_transient: bool,
    ) {
        let first = generation(start);
        let segment = segments.entry(first).or_default();
        let counted = (u64::from(bytes) + OVERHEAD_BYTES) * u64::from(references);
        segment.gain(references.into(), counted, is_transient);
        segment.message_bytes += u64::from(bytes) + OVERHEAD_BYTES;
        segment.named_bytes += counted;
        if generation_last > first {
            self.tables.spans.insert(start, Span { generation_last, references, is_transient });
            for generation in first..=generation_last {
                let segment = segments.entry(generation).or_default();
                if is_transient {
                    segment.live_transient += 1;
                } else {
                    segment.pins += 1;
                }
            }
        }
    }

    /// One reference to the message first written at `position` is gone.
    pub(crate) fn discount(
        &mut self,
        segments: &mut Segments,
        position: Position,
        bytes: u32,
        is_transient: bool,
    ) {
        let mut place = position;
        if !self.tables.relocations.is_empty()
            && let Some(relocation) = self.tables.relocations.release(position)
        {
            place = relocation.to;
            if relocation.references == 0 {
                self.tables.relocations.remove(position);
            }
        }
        let Some(segment) = segments.get_mut(&generation(place)) else { return };
        segment.lose(1, u64::from(bytes) + OVERHEAD_BYTES, is_transient);
        self.died += usize::from(segment.is_dead());
        if self.tables.spans.is_empty() {
            return;
        }
        if let Some(span) = self.tables.spans.release(place) {
            self.unpin(segments, place, span);
        }
    }

    /// A message was copied from `from` to `to` (where it begins, and the segment in which it ends).
    /// Moves the counts of the references that live; `known` counts them by the position that the
    /// index has.
    pub(crate) fn relocate(
        &mut self,
        segments: &mut Segments,
        from: Position,
        (to, generation_last): (Position, u32),
        known: &BTreeMap<Position, u32>,
        bytes: u32,
        is_transient: bool,
    ) {
        let references: u32 = known.values().sum();
        let moved = (u64::from(bytes) + OVERHEAD_BYTES) * u64::from(references);
        if let Some(segment) = segments.get_mut(&generation(from)) {
            segment.lose(references.into(), moved, is_transient);
            self.died += usize::from(segment.is_dead());
        }
        if let Some(span) = self.tables.spans.remove(from) {
            self.unpin(segments, from, span);
        }
        self.count(segments, to, generation_last, references, bytes, is_transient);
        for (&position, &references) in known {
            let relocation = Relocation { to, references, is_transient };
            self.tables.relocations.insert(position, relocation);
        }
    }

    /// A message in several segments is gone from them.
    fn unpin(&mut self, segments: &mut Segments, start: Position, span: Span) {
        for generation in generation(start)..=span.generation_last {
            let Some(segment) = segments.get_mut(&generation) else { continue };
            if span.is_transient {
                segment.live_transient = segment.live_transient.saturating_sub(1);
            } else {
                segment.pins = segment.pins.saturating_sub(1);
            }
            self.died += usize::from(segment.is_dead());
        }
    }

    /// Goes through one page of one lane with settles to account for. The lane's slot, and the
    /// page to read first, if any; `None` when there is nothing left.
    pub(crate) fn account(&mut self, segments: &mut Segments) -> Option<(LaneSlot, Option<u64>)> {
        let slot = *self.unaccounted.last()?;
        let page = self.account_lane(LaneSlot(slot), segments);
        let is_listed = self.lanes.get_mut(LaneSlot(slot)).is_some_and(|lane| lane.is_listed);
        if page.is_some() {
            // Others may go on meanwhile.
            self.unaccounted.rotate_right(1);
        } else if !is_listed {
            self.unaccounted.pop();
        }
        Some((LaneSlot(slot), page))
    }

    /// Goes through one page of a lane, or a part of it. The page to read first, if any. The lane is not marked as
    /// listed any more when nothing is left; one that was dropped is gone then.
    pub(crate) fn account_lane(&mut self, slot: LaneSlot, segments: &mut Segments) -> Option<u64> {
        let State { lanes, freed_pages, .. } = self;
        let lane = lanes.get_mut(slot)?;
        let is_transient = lane.lane.is_transient();
        let mut settled: Vec<Entry> = Vec::new();
        let stop = lane.account(ACCOUNT_ENTRIES, freed_pages, |entry| settled.push(*entry));
        let is_done = !lane.has_unaccounted();
        lane.is_listed &= !is_done;
        let is_gone = is_done && lane.is_dropped;
        for entry in settled {
            self.discount(segments, entry.position, entry.bytes, is_transient);
        }
        if is_gone {
            self.lanes.remove(slot);
        }
        match stop {
            crate::lane::Stop::Page(first) => Some(first),
            crate::lane::Stop::Done => None,
        }
    }

    /// Appends a reference to its lane, unless the lane has it.
    pub(crate) fn refer(
        &mut self,
        slot: LaneSlot,
        reference: &Reference,
        position: Position,
        bytes: u32,
    ) -> bool {
        let Some(lane) = self.lane_mut(slot) else { return false };
        if reference.seq < lane.next() || lane.is_dropped {
            return false;
        }
        lane.append(Entry {
            seq: reference.seq,
            position,
            bytes,
            deadline_millis: reference.deadline_millis,
        });
        true
    }

    pub(crate) fn is_live(&mut self, reference: &Reference) -> bool {
        self.find(reference.lane)
            .and_then(|slot| self.lanes.get_mut(slot))
            .is_some_and(|lane| lane.is_live(reference.seq))
    }
}
