//! Damaged pages of the index, put together again from the log's message records. One pass over the log
//! serves as many pages as are known to be damaged; for that the pages that follow a damaged one are read
//! before. A segment that cannot be read now is waited for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use lepus_base::{Instant, Now};

use super::failed_reads::What;
use super::{Event, Purpose, Store};
use crate::disk::{Completion, DiskError, File, OperationId, Operations};
use crate::lanes::LaneSlot;
use crate::page::Entry;
use crate::place::position;
use crate::record::{KIND_MESSAGE, Lane, MessageRecord};
use crate::scan::{FoundRecord, Image, SegmentRead};
use crate::segment::SEGMENT_HEADER_BYTES;

/// Pages put together in one pass, whose entries are in memory; and pages read to find them.
const PAGES_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Rebuilding {
    /// Damaged pages, for the next pass.
    damaged: Vec<(LaneSlot, u64)>,
    /// Pages being read to see whether they are damaged too.
    looked_at: BTreeSet<(LaneSlot, u64)>,
    pass: Option<Pass>,
}

/// A look through the log.
#[derive(Debug)]
struct Pass {
    /// By lane and first number.
    pages: BTreeMap<(Lane, u64), Damaged>,
    /// Segments still to be read.
    generations: Vec<u32>,
    reading: Option<SegmentRead>,
    /// Since when the piece cannot be read that is being read in short ones.
    unread_since: Instant,
}

/// A page being put together.
#[derive(Debug)]
struct Damaged {
    slot: LaneSlot,
    last: u64,
    /// By number, with how sure that is.
    found: BTreeMap<u64, (u8, Entry)>,
}

impl Rebuilding {
    /// Whether the log is being looked through.
    pub(super) fn is_under_way(&self) -> bool {
        self.pass.is_some() || !self.damaged.is_empty()
    }
}

impl Store {
    /// A page is damaged: its entries are looked for in the log.
    pub(super) fn rebuild_page(&mut self, slot: LaneSlot, first: u64, out: &mut Operations) {
        let Some(lane) = self.state.lane_mut(slot) else { return };
        if lane.begin_rebuild(first).is_none() {
            return;
        }
        let others = lane.pages_on_disk(first, PAGES_MAX);
        self.rebuilding.damaged.push((slot, first));
        if self.rebuilding.looked_at.contains(&(slot, first)) {
            return;
        }
        for other in others {
            if self.read_page(slot, other, out).is_some() {
                self.rebuilding.looked_at.insert((slot, other));
            }
        }
    }

    /// A page was read or cannot be: what waits to know how many are damaged goes on.
    pub(super) fn page_seen(&mut self, page: (LaneSlot, u64), out: &mut Operations) {
        self.rebuilding.looked_at.remove(&page);
        if self.rebuilding.looked_at.is_empty() {
            self.begin_pass(out);
        }
    }

    fn begin_pass(&mut self, out: &mut Operations) {
        if self.rebuilding.pass.is_some() || self.rebuilding.damaged.is_empty() {
            return;
        }
        let count = self.rebuilding.damaged.len().min(PAGES_MAX);
        let damaged: Vec<_> = self.rebuilding.damaged.drain(..count).collect();
        let mut pages = BTreeMap::new();
        for (slot, first) in damaged {
            let Some(lane) = self.state.lane_mut(slot) else { continue };
            let Some(last) = lane.page_last(first) else { continue };
            pages.insert((lane.lane, first), Damaged { slot, last, found: BTreeMap::new() });
        }
        let segments = self.log.segments.iter().filter(|(_, segment)| segment.live > 0);
        let generations = segments.map(|(&generation, _)| generation).collect();
        self.rebuilding.pass =
            Some(Pass { pages, generations, reading: None, unread_since: Instant(0) });
        self.next_segment_of_pass(out);
    }

    fn next_segment_of_pass(&mut self, out: &mut Operations) {
        while let Some(pass) = &mut self.rebuilding.pass {
            let Some(generation) = pass.generations.pop() else {
                self.end_pass();
                return self.begin_pass(out);
            };
            let Some(segment) = self.log.segments.get(&generation) else { continue };
            let length = segment.used_bytes.max(segment.file_bytes) as usize;
            // What has no file yet is in memory.
            let length = if segment.slot.is_some() { length } else { 0 };
            let slot = segment.slot.unwrap_or(u32::MAX);
            pass.reading = Some(SegmentRead::new(generation, slot, length));
            if self.read_piece(out).is_some() {
                return;
            }
            self.look_through();
        }
    }

    /// Reads on in the segment being looked through; `None` if that has been read.
    pub(super) fn read_piece(&mut self, out: &mut Operations) -> Option<OperationId> {
        let pass = self.rebuilding.pass.as_ref()?;
        let (reading, since) = (pass.reading.as_ref()?, pass.unread_since);
        let action = reading.next(self.settings.log)?;
        let (generation, is_narrow) = (reading.generation, reading.is_narrow());
        let id = self.begin(action, Purpose::Rebuild { generation }, out);
        if is_narrow {
            // Nobody waits for each of them as long as for the whole.
            self.failed_reads.began(id, since);
        }
        Some(id)
    }

    /// A piece of a segment was read, or cannot be.
    pub(super) fn piece_read(
        &mut self,
        now: Now,
        generation: u32,
        completion: Completion,
        out: &mut Operations,
    ) {
        let pass = self.rebuilding.pass.as_mut();
        let reading = pass.and_then(|pass| pass.reading.as_mut());
        let Some(reading) = reading.filter(|reading| reading.generation == generation) else {
            return;
        };
        let Completion { id, result, bytes, .. } = completion;
        let file = File::Segment(self.settings.log, reading.slot);
        match result {
            Ok(_) => {
                self.cache.bytes_read += bytes.len() as u64;
                reading.take(bytes);
                self.read_worked(now, id);
            }
            Err(DiskError::NotFound) => {
                reading.end();
                self.read_found_nothing(now, id);
            }
            Err(error) if self.refuses_for(file, error) => return,
            Err(error) => {
                let since = self.failed_reads.since(id).unwrap_or(now.instant);
                if !self.read_failed(now, (id, What::Piece), (file, error)) {
                    return;
                }
                if let Some(pass) = &mut self.rebuilding.pass
                    && let Some(reading) = &mut pass.reading
                {
                    reading.skip();
                    pass.unread_since = since;
                }
            }
        }
        if self.read_piece(out).is_none() {
            self.look_through();
            self.next_segment_of_pass(out);
        }
    }

    /// Looks for entries of the damaged pages in the segment that was read, and in what is not written of
    /// it.
    fn look_through(&mut self) {
        let Some(pass) = &mut self.rebuilding.pass else { return };
        let Some(reading) = pass.reading.take() else { return };
        let generation = reading.generation;
        let mut bytes = reading.bytes;
        let open = self.log.overlay(generation, &mut bytes);
        let image = Image { keys: self.log.keys, generation, bytes: &bytes };
        let relocations = &self.state.tables.relocations;
        let mut look = |record: FoundRecord<'_>| {
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
                let upto = (reference.lane, reference.seq);
                let page = pass.pages.range_mut(..=upto).next_back();
                let page = page.filter(|((lane, _), page)| {
                    *lane == reference.lane && reference.seq <= page.last
                });
                let Some((_, page)) = page.filter(|_| !message.is_transient()) else { continue };
                let known = page.found.get(&reference.seq);
                if known.is_some_and(|(known, entry)| (*known, entry.position) > (sure, here)) {
                    continue;
                }
                let entry = Entry {
                    seq: reference.seq,
                    position: here,
                    bytes: message.body_bytes,
                    deadline_millis: reference.deadline_millis,
                };
                page.found.insert(reference.seq, (sure, entry));
            }
        };
        let mut batch = image.next_header(SEGMENT_HEADER_BYTES);
        while let Some(found) = batch {
            image.salvage(found.records(), &mut look);
            batch = image.next_header(found.records().end);
        }
        image.salvage(open, &mut look);
    }

    fn end_pass(&mut self) {
        let Some(pass) = self.rebuilding.pass.take() else { return };
        let crate::state::State { lanes, freed_pages, .. } = &mut self.state;
        for ((lane, first), page) in pass.pages {
            let Some(index) = lanes.get_mut(page.slot).filter(|index| index.lane == lane) else {
                continue;
            };
            let found = page.found.into_values().map(|(_, entry)| (entry.seq, entry)).collect();
            let (firsts, missing) = index.rebuild(first, &found, freed_pages);
            self.closed_pages.extend(firsts.into_iter().map(|first| (page.slot, first)));
            if missing > 0 {
                self.events.push(Event::Missing(lane, missing));
            }
            self.events.push(Event::LaneReady(page.slot));
        }
    }
}
