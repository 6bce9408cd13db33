//! The log's records applied to the state, in recovery.

mod rebuild;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use lepus_base::{HashMap, Position, QueueId};

use crate::lanes::LaneSlot;
use crate::place::position;
use crate::record::{
    KIND_FILLER, KIND_FRAGMENT, KIND_MESSAGE, KIND_OPAQUE, KIND_QUEUE_DROPPED, KIND_SETTLES, Lane,
    MessageRecord, Reference, each_settle,
};
use crate::scan::FoundRecord;
use crate::state::{Segments, State};
use crate::varint::Reader;
use rebuild::Rebuild;

/// A message whose fragments are still to come.
#[derive(Debug)]
struct Open {
    start: Position,
    origin: Option<Position>,
    references: Vec<Reference>,
    bytes: u32,
    missing: u32,
    /// The segment of the last part that was found.
    generation_last: u32,
}

/// What it took to do without a checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rebuilt {
    /// Passes over the log.
    pub passes: u64,
    /// Entries, settled runs and dropped queues gathered at once, at most.
    pub gathered: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    open: Option<Open>,
    /// Lanes seen so far.
    slots: HashMap<Lane, LaneSlot>,
    rebuild: Option<Rebuild>,
    /// What the rest of this segment says of what is gone does not count.
    doubted: Option<u32>,
    /// There is damage between the record before and the next one.
    is_damaged: bool,
    /// Segments with parts of messages of which damage took another part.
    pub cut: BTreeSet<u32>,
    /// What it took.
    pub rebuilt: Rebuilt,
    /// Opaque records, in order.
    pub opaque: Vec<(Position, Vec<u8>)>,
    /// Records applied.
    pub records: u64,
}

impl Replay {
    /// From here on the records of all segments count, whether or not they follow each other.
    /// No more than `gathered_max` entries and the like are gathered at once, in as many passes as that takes.
    pub(crate) fn start_rebuild(&mut self, gathered_max: usize) {
        self.rebuild = Some(Rebuild::new(gathered_max));
    }

    pub(crate) fn is_rebuild(&self) -> bool {
        self.rebuild.is_some()
    }

    /// From here on it is not known whether the rest of this segment counts: messages in it are kept, but
    /// nothing that it settles, as an earlier start may have cut that off and given numbers again.
    pub(crate) fn doubt(&mut self, generation: u32) {
        self.doubted = Some(generation);
    }

    /// Something was lost in front of what is applied next.
    pub(crate) fn meet_damage(&mut self) {
        self.is_damaged = true;
    }

    pub(crate) fn apply(
        &mut self,
        generation: u32,
        record: &FoundRecord<'_>,
        state: &mut State,
        segments: &mut Segments,
    ) {
        self.records += 1;
        if record.kind == KIND_FILLER {
            return;
        }
        let at = position(generation, record.offset);
        let is_joined = self.open.as_ref().is_none_or(|open| {
            // A rebuild comes by segments between which others were used again.
            self.rebuild.is_none() || generation == open.generation_last + 1
        });
        if record.kind != KIND_FRAGMENT || !is_joined {
            self.abandon(state);
        }
        if record.kind != KIND_FRAGMENT {
            self.is_damaged = false;
        }
        match record.kind {
            KIND_MESSAGE => {
                let Some(message) = MessageRecord::decode(record.payload) else { return };
                self.message(at, &message, state, segments);
            }
            KIND_FRAGMENT => {
                let Some(open) = &mut self.open else {
                    if self.is_damaged {
                        self.cut.insert(generation);
                    }
                    return;
                };
                open.generation_last = generation;
                open.missing = open.missing.saturating_sub(record.payload.len() as u32);
                if open.missing == 0
                    && let Some(open) = self.open.take()
                {
                    self.land(open, generation, state, segments);
                }
            }
            KIND_SETTLES | KIND_QUEUE_DROPPED if self.doubted == Some(generation) => {}
            KIND_SETTLES => {
                each_settle(record.payload, |lane, first, end| {
                    self.settle(lane, first, end, state);
                });
            }
            KIND_QUEUE_DROPPED => {
                let Some(queue) = Reader(record.payload).varint().map(QueueId) else { return };
                match &mut self.rebuild {
                    Some(rebuild) => rebuild.drop_queue(queue),
                    None => drop_queue(queue, state),
                }
            }
            // Further passes find them again.
            KIND_OPAQUE if self.rebuilt.passes == 0 => {
                self.opaque.push((at, record.payload.to_vec()));
            }
            _ => {}
        }
    }

    /// The rest of a message is missing, or something between. Its numbers are not given again: its
    /// first part stays in the log.
    fn abandon(&mut self, state: &mut State) {
        let Some(open) = self.open.take() else { return };
        if self.is_damaged {
            self.cut.extend(crate::place::generation(open.start)..=open.generation_last);
        }
        for reference in open.references {
            let Reference { lane, seq, .. } = reference;
            if let Some(rebuild) = &mut self.rebuild {
                rebuild.abandon(lane, seq);
                continue;
            }
            let slot = state.slot(lane);
            if let Some(lane) = state.lane_mut(slot) {
                lane.skip_to(seq + 1);
            }
        }
    }

    fn message(
        &mut self,
        start: Position,
        message: &MessageRecord<'_>,
        state: &mut State,
        segments: &mut Segments,
    ) {
        if message.is_transient() {
            return;
        }
        if !message.is_fragmented() && self.rebuild.is_none() {
            let references = message.references();
            let first = (start, message.origin, crate::place::generation(start));
            return self.refer(references, first, message.body_bytes, state, segments);
        }
        let open = Open {
            start,
            origin: message.origin,
            references: message.references().collect(),
            bytes: message.body_bytes,
            missing: message.body_bytes - message.body.len() as u32,
            generation_last: crate::place::generation(start),
        };
        if message.is_fragmented() {
            self.open = Some(open);
        } else {
            self.land(open, crate::place::generation(start), state, segments);
        }
    }

    /// All of a message is there.
    fn land(
        &mut self,
        open: Open,
        generation_last: u32,
        state: &mut State,
        segments: &mut Segments,
    ) {
        let Open { start, origin, references, bytes, .. } = open;
        // Entries keep the place where a message was written first.
        let position = origin.unwrap_or(start);
        if let Some(rebuild) = &mut self.rebuild {
            let is_doubted = self.doubted == Some(generation_last);
            let found = (position, start, generation_last);
            rebuild.message(&references, found, bytes, is_doubted);
            return;
        }
        let first = (start, origin, generation_last);
        self.refer(references.into_iter(), first, bytes, state, segments);
    }

    /// Appends references to their lanes, unless they have them.
    ///
    /// A copy made by compaction does not count: its original is still there, because what was
    /// emptied is used again only when a checkpoint behind the copies is valid. Only if the original
    /// record was lost to damage, its numbers are above all that is known, and the copy takes its
    /// place.
    fn refer(
        &mut self,
        references: impl Iterator<Item = Reference>,
        (start, origin, generation_last): (Position, Option<Position>, u32),
        bytes: u32,
        state: &mut State,
        segments: &mut Segments,
    ) {
        let mut added = 0;
        for reference in references {
            let slot = match self.slots.get(&reference.lane) {
                Some(slot) => *slot,
                None if origin.is_some() && state.find(reference.lane).is_none() => continue,
                None => {
                    let slot = state.slot(reference.lane);
                    self.slots.insert(reference.lane, slot);
                    slot
                }
            };
            added += u32::from(state.refer(slot, &reference, start, bytes));
        }
        if added > 0 {
            state.count(segments, start, generation_last, added, bytes, false);
        }
    }

    fn settle(&mut self, lane: Lane, first: u64, end: u64, state: &mut State) {
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.settle(lane, first, end);
            return;
        }
        let Some(slot) = state.find(lane) else { return };
        if let Some(found) = state.lane_mut(slot) {
            found.settle_range(first, end);
        }
        state.list(slot.0);
    }

    /// The end of the log: what a rebuild gathered becomes lanes, which are named in `lanes`. Whether the
    /// log is to be read once more, for the rest.
    pub(crate) fn end_pass(
        &mut self,
        state: &mut State,
        segments: &mut Segments,
        lanes: &mut Vec<LaneSlot>,
    ) -> bool {
        self.abandon(state);
        self.doubted = None;
        let Some(rebuild) = &mut self.rebuild else { return false };
        let goes_on = rebuild.end_pass(state, segments, lanes);
        self.rebuilt = Rebuilt { passes: rebuild.passes, gathered: rebuild.gathered };
        if !goes_on {
            self.rebuild = None;
        }
        goes_on
    }
}

/// Everything of a queue goes; its lanes are removed when it is accounted for.
pub(crate) fn drop_queue(queue: QueueId, state: &mut State) {
    for slot in state.lanes_of(queue) {
        if let Some(lane) = state.lane_mut(slot) {
            lane.drop_all();
        }
        state.list(slot.0);
    }
}
