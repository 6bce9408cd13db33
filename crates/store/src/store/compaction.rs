//! Emptying segments in which little lives, by writing that again at the end of the log.
//!
//! The index is left as it is: a table says where a message is that was first written elsewhere,
//! until the message is settled. The emptied segment is free when the next checkpoint is valid.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::{Instant, Now};

use super::append::write_message;
use super::{Event, Purpose, Store};
use crate::disk::{Action, Completion, File, Operations};
use crate::place::position;
use crate::record::{KIND_MESSAGE, Message, MessageRecord, Names, Reference};
use crate::recovery::Damage;
use crate::scan::{FoundRecord, Image};
use crate::segment::SEGMENT_HEADER_BYTES;

/// Bytes of a segment looked at in one call.
const STEP_BYTES: usize = 1 << 20;
/// How often the segments are looked through for one that is worth it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    reading: Option<u32>,
    /// Generation, bytes of the segment, offset of the next batch.
    running: Option<(u32, Vec<u8>, usize)>,
    look_at: Instant,
    /// Segments with damage in them, which are left alone.
    skipped: BTreeSet<u32>,
    pub moved: u64,
}

impl Store {
    /// One step; true if there is more to do at once.
    pub(super) fn compact(&mut self, now: Now, out: &mut Operations) -> bool {
        // What is settled but not yet counted must not be moved as if it lived.
        if !self.state.unaccounted.is_empty()
            || self.log.stopped().is_some()
            || self.log.spare_segments() == 0
        {
            return false;
        }
        if self.compaction.running.is_some() {
            return self.copy_step();
        }
        if self.compaction.reading.is_some() || now.instant < self.compaction.look_at {
            return false;
        }
        self.compaction.look_at = now.instant + LOOK_INTERVAL;
        let Some((generation, slot, length)) = self.candidate() else { return false };
        // The rate: so long as this takes, no other segment is begun.
        let nanos = u64::from(length) * 1_000_000_000 / self.settings.compaction_rate.max(1);
        self.compaction.look_at = now.instant + Duration::from_nanos(nanos);
        self.compaction.reading = Some(generation);
        let file = File::Segment(self.settings.log, slot);
        let action = Action::Read { file, offset: 0, length: length as usize };
        self.ask(action, Purpose::Compaction { generation }, out);
        false
    }

    /// The segment with the least that lives, if that is little enough.
    fn candidate(&self) -> Option<(u32, u32, u32)> {
        let synced = self.log.synced();
        let room =
            self.settings.relocations_max.saturating_sub(self.state.tables.relocations.len());
        let worth = self.log.segments.iter().filter(|(generation, segment)| {
            segment.live > 0
                && segment.live <= room as u64
                && segment.live_transient == 0
                && segment.pins == 0
                && segment.live_bytes * 100
                    < u64::from(segment.file_bytes) * u64::from(self.settings.compaction_percent)
                && **generation < self.log.generation()
                && position(**generation, segment.used_bytes) <= synced
                && !self.compaction.skipped.contains(generation)
        });
        let (&generation, segment) = worth.min_by_key(|(_, segment)| segment.live_bytes)?;
        Some((generation, segment.slot?, segment.used_bytes))
    }

    pub(super) fn compaction_read(&mut self, generation: u32, completion: Completion) {
        self.compaction.reading = None;
        if completion.result.is_err() {
            self.compaction.skipped.insert(generation);
            return;
        }
        self.cache.bytes_read += completion.bytes.len() as u64;
        self.compaction.running = Some((generation, completion.bytes, SEGMENT_HEADER_BYTES));
    }

    fn copy_step(&mut self) -> bool {
        let Some((generation, bytes, start)) = self.compaction.running.take() else {
            return false;
        };
        let image = Image { log: self.settings.log, generation, bytes: &bytes };
        let mut at = start;
        while at < start + STEP_BYTES {
            let Some(segment) = self.log.segments.get(&generation) else { return false };
            if segment.live == 0 || at >= segment.used_bytes as usize {
                return false;
            }
            let slot = segment.slot;
            let found = image.header(at).filter(|batch| image.is_whole(batch));
            let Some(batch) = found else {
                self.compaction.skipped.insert(generation);
                self.events.push(Event::Damaged(Damage {
                    file: File::Segment(self.settings.log, slot.unwrap_or(u32::MAX)),
                    offset: at as u64,
                    bytes: 0,
                }));
                return false;
            };
            for found in image.records(&batch) {
                if found.kind == KIND_MESSAGE && self.copy(&image, &found).is_none() {
                    self.compaction.skipped.insert(generation);
                    return false;
                }
            }
            at = batch.records().end;
        }
        self.compaction.running = Some((generation, bytes, at));
        true
    }

    /// Writes a message again if something of it lives here. `None` if that cannot be done.
    fn copy(&mut self, image: &Image<'_>, found: &FoundRecord<'_>) -> Option<()> {
        let here = position(image.generation, found.offset);
        let message = MessageRecord::decode(found.payload)?;
        let origin = message.origin.unwrap_or(here);
        if message.is_transient() || self.state.tables.place(origin) != here {
            return Some(());
        }
        let live = message.references().filter(|reference| self.state.is_live(reference));
        let live: Vec<Reference> = live.collect();
        if live.is_empty() {
            return Some(());
        }
        if message.is_fragmented() {
            return None;
        }
        let (exchange, routing_key) = match message.names {
            Names::Here(exchange, routing_key) => (exchange, routing_key),
            Names::At(lender) => image.names(lender)?,
        };
        let copy =
            Message { exchange, routing_key, properties: message.properties, body: message.body };
        let bytes = message.body_bytes;
        self.log.make_room(Store::record_bytes_max(&copy, live.len()), false).ok()?;
        let (start, _) = write_message(
            &mut self.log,
            &mut self.names,
            &copy,
            live.iter().copied(),
            (false, Some(origin), false),
        )
        .ok()?;
        let count = live.len() as u32;
        self.state.relocate(&mut self.log.segments, origin, start, count, bytes);
        self.compaction.moved += 1;
        Some(())
    }
}
