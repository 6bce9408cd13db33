//! Index pages written anew, in the background: with the places to which compaction moved their
//! messages, so that nobody has to remember the old ones; and damaged ones, from the log.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use lepus_base::Position;

use super::{Event, Purpose, Store};
use crate::disk::{Action, Completion, File, Operations};
use crate::lane::{Folded, Part};
use crate::page::Entry;
use crate::place::{generation, position};
use crate::record::{KIND_MESSAGE, Lane, MessageRecord};
use crate::scan::Image;
use crate::segment::SEGMENT_HEADER_BYTES;
use crate::state::LaneSlot;

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
    rebuilds: VecDeque<Rebuild>,
}

/// A damaged page being put together.
#[derive(Debug)]
struct Rebuild {
    slot: LaneSlot,
    lane: Lane,
    first: u64,
    last: u64,
    /// Segments still to be read.
    generations: Vec<u32>,
    is_reading: bool,
    /// By number, with how sure that is.
    found: BTreeMap<u64, (u8, Entry)>,
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
                self.closed_pages.extend(firsts.into_iter().map(|first| (slot, first)));
                true
            }
        }
    }

    /// A page is damaged: its entries are looked for in the log.
    pub(super) fn rebuild_page(&mut self, slot: LaneSlot, first: u64, out: &mut Operations) {
        let Some(lane) = self.state.lane_mut(slot) else { return };
        let Some(last) = lane.begin_rebuild(first) else { return };
        let lane = lane.lane;
        let segments = self.log.segments.iter().filter(|(_, segment)| segment.live > 0);
        let generations = segments.map(|(&generation, _)| generation).collect();
        let found = BTreeMap::new();
        let rebuild = Rebuild { slot, lane, first, last, generations, is_reading: false, found };
        self.rewriting.rebuilds.push_back(rebuild);
        self.rebuild_next(out);
    }

    /// Reads the next segment for the page being put together.
    fn rebuild_next(&mut self, out: &mut Operations) {
        while let Some(rebuild) = self.rewriting.rebuilds.front_mut() {
            if rebuild.is_reading {
                return;
            }
            let Some(generation) = rebuild.generations.pop() else {
                self.end_rebuild();
                continue;
            };
            let Some(segment) = self.log.segments.get(&generation) else { continue };
            let Some(slot) = segment.slot else { continue };
            rebuild.is_reading = true;
            let length = segment.used_bytes.max(segment.file_bytes) as usize;
            let action =
                Action::Read { file: File::Segment(self.settings.log, slot), offset: 0, length };
            return self.ask(action, Purpose::Rebuild { generation }, out);
        }
    }

    pub(super) fn rebuild_read(
        &mut self,
        generation: u32,
        completion: Completion,
        out: &mut Operations,
    ) {
        let Some(rebuild) = self.rewriting.rebuilds.front_mut() else { return };
        rebuild.is_reading = false;
        self.cache.bytes_read += completion.bytes.len() as u64;
        let image = Image { log: self.settings.log, generation, bytes: &completion.bytes };
        let relocations = &self.state.tables.relocations;
        let mut batch = image.next_header(SEGMENT_HEADER_BYTES);
        while let Some(found) = batch {
            image.salvage(found.records(), |record| {
                if record.kind != KIND_MESSAGE {
                    return;
                }
                let Some(message) = MessageRecord::decode(record.payload) else { return };
                let here = position(generation, record.offset);
                // Where it is now. A copy that no table names is valid if the index named it, or
                // it was left behind by a crash: then the first place is found too, and counts.
                let row = relocations.get(&message.origin.unwrap_or(here));
                let sure = match (message.origin, row) {
                    (None, None) => 2,
                    (Some(_), Some(row)) if row.to == here => 2,
                    (Some(_), None) => 1,
                    _ => return,
                };
                for reference in message.references() {
                    let is_wanted = reference.lane == rebuild.lane
                        && (rebuild.first..=rebuild.last).contains(&reference.seq);
                    let known = rebuild.found.get(&reference.seq);
                    if message.is_transient()
                        || !is_wanted
                        || known
                            .is_some_and(|(known, entry)| (*known, entry.position) > (sure, here))
                    {
                        continue;
                    }
                    let entry = Entry {
                        seq: reference.seq,
                        position: here,
                        bytes: message.body_bytes,
                        deadline_millis: reference.deadline_millis,
                    };
                    rebuild.found.insert(reference.seq, (sure, entry));
                }
            });
            batch = image.next_header(found.records().end);
        }
        self.rebuild_next(out);
    }

    fn end_rebuild(&mut self) {
        let Some(rebuild) = self.rewriting.rebuilds.pop_front() else { return };
        let found = rebuild.found.into_values().map(|(_, entry)| (entry.seq, entry)).collect();
        let crate::state::State { lanes, freed_pages, .. } = &mut self.state;
        let Some(lane) = lanes.get_mut(rebuild.slot) else { return };
        let firsts = lane.rebuild(rebuild.first, &found, freed_pages);
        self.closed_pages.extend(firsts.into_iter().map(|first| (rebuild.slot, first)));
        self.events.push(Event::LaneReady(rebuild.slot));
    }
}
