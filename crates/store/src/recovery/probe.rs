//! What the files of segments are that the checkpoint does not explain.

use alloc::vec::Vec;

use super::{Damage, Recovery, Refusal, Tail, Wait};
use crate::disk::{Action, File, Operations};
use crate::key::Key;
use crate::scan::{self, FoundBatch, Image};
use crate::segment::{
    BATCH_HEADER_BYTES, HeaderError, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, SegmentHeader,
};

/// Bytes read of each segment to learn what it is: its header, and that of its first batch.
const PROBE_BYTES: usize = SEGMENT_HEADER_BYTES + BATCH_HEADER_BYTES;
/// Bytes read where those say nothing: only zeros are in a file that was prepared and never written to.
const MORE_BYTES: usize = 64 << 10;

/// What a batch tells of a segment whose header is damaged.
fn headless(slot: u32, length: u64, batch: &FoundBatch) -> Tail {
    Tail {
        slot,
        length,
        number: batch.header.number,
        previous_crc: batch.header.previous_crc,
        synced: batch.header.synced,
        is_headless: true,
    }
}

impl Recovery {
    /// Asks every segment that the checkpoint does not explain what it is, and others for the key if that is not
    /// known.
    pub(super) fn probe(&mut self, out: &mut Operations) {
        let log = self.settings.log;
        for index in 0..self.files.len() {
            let (File::Segment(_, slot), length) = self.files[index] else { continue };
            if self.keys.key.is_none() || !self.is_explained(slot) {
                self.ask_probe(slot, length, PROBE_BYTES, out);
            }
        }
        let missing: Vec<u32> = self
            .known
            .iter()
            .filter(|(slot, _)| {
                !self.files.iter().any(|(file, _)| *file == File::Segment(log, **slot))
            })
            .map(|(&slot, _)| slot)
            .collect();
        for slot in missing {
            let file = File::Segment(log, slot);
            self.damages.push(Damage { file, offset: 0, bytes: 0 });
        }
        self.probe_next(out);
    }

    /// Whether the checkpoint says all of this segment.
    pub(super) fn is_explained(&self, slot: u32) -> bool {
        self.known.get(&slot).is_some_and(|&found| found < u64::from(self.at.0))
    }

    fn ask_probe(&mut self, slot: u32, length: u64, asked: usize, out: &mut Operations) {
        let file = self.segment_file(slot);
        let wait = Wait::Probe { slot, length, asked };
        self.ask(Action::Read { file, offset: 0, length: asked }, wait, out);
    }

    pub(super) fn probed(
        &mut self,
        (slot, length, asked): (u32, u64, usize),
        bytes: &[u8],
        out: &mut Operations,
    ) {
        let log = self.settings.log;
        match SegmentHeader::decode(bytes) {
            Ok(header) if header.log == log => {
                self.learn_key(header.generation, header.key);
                let tail = Tail {
                    slot,
                    length,
                    number: header.batch_number,
                    previous_crc: header.previous_crc,
                    // It was not written to before all of the segment before it was synced.
                    synced: header.synced.max(header.previous_end),
                    is_headless: false,
                };
                self.found(header.generation, tail);
            }
            Ok(_) => return self.refuse(Refusal::Foreign(File::Segment(log, slot))),
            Err(HeaderError::Version(version)) => {
                return self.refuse(Refusal::Version(File::Segment(log, slot), version));
            }
            Err(HeaderError::Invalid) if asked == PROBE_BYTES => {
                self.undecided.push((slot, length, bytes.to_vec()));
            }
            Err(HeaderError::Invalid) => self.probed_headless((slot, length, asked), bytes, out),
        }
        self.probe_next(out);
    }

    /// The file `root` may not name the key yet, or not any more.
    fn learn_key(&mut self, generation: u32, key: Key) {
        let before = self.keys;
        self.keys.learn(generation, key);
        self.are_keys_written &= self.keys == before;
    }

    /// Of a segment whose header is damaged its first batch says what it is, if that is whole.
    fn probed_headless(
        &mut self,
        (slot, length, asked): (u32, u64, usize),
        bytes: &[u8],
        out: &mut Operations,
    ) {
        if asked > MORE_BYTES {
            self.search(slot, length, bytes);
        } else if let Some(life) = scan::first_batch(self.keys, bytes) {
            self.first_batches.push((life.generation, headless(slot, length, &life.batch)));
        } else if self.ends_with_checkpoint() && !self.is_root_damaged {
            // It says where everything is.
        } else if asked < MORE_BYTES {
            self.ask_probe(slot, length, MORE_BYTES, out);
        } else if bytes.iter().any(|byte| *byte != 0) {
            self.headless.push_back((slot, length));
        }
    }

    /// When the headers of all segments are read, those that neither a header nor a first batch names are
    /// read as a whole, one at a time.
    pub(super) fn probe_next(&mut self, out: &mut Operations) {
        if !self.waits.is_empty() {
            return;
        }
        let undecided = core::mem::take(&mut self.undecided);
        for (_, _, bytes) in &undecided {
            if let Some(life) = scan::first_batch(self.keys, bytes) {
                self.learn_key(life.generation, life.key);
            }
        }
        for (slot, length, bytes) in undecided {
            if !self.is_explained(slot) {
                self.probed_headless((slot, length, PROBE_BYTES), &bytes, out);
            }
        }
        if !self.waits.is_empty() {
            return;
        }
        for (generation, tail) in core::mem::take(&mut self.first_batches) {
            self.found(generation, tail);
        }
        // Each of the segments behind those that are known has a file.
        let files = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let generation_max = self.generation_max.saturating_add(files);
        self.believed_max.get_or_insert(generation_max);
        let Some((slot, length)) = self.headless.pop_front() else { return self.begin(out) };
        let all = length.min(SEGMENT_BYTES_MAX) as usize;
        self.ask_probe(slot, length, all.max(MORE_BYTES + 1), out);
    }

    /// A segment whose header and first batch are damaged is told by the first batch that is found.
    fn search(&mut self, slot: u32, length: u64, bytes: &[u8]) {
        let max = self.believed_max.unwrap_or_default();
        let is_possible = |generation| generation <= max && !self.is_elsewhere(generation, slot);
        let found = scan::latest_life(self.keys, bytes, is_possible);
        // What a life before the checkpoint left says nothing of what is in front of it.
        let is_used_since = |life: &scan::Life| {
            let is_old = life.generation < self.at.0 && !self.replay.is_rebuild();
            is_old && bytes[..life.batch.offset].iter().any(|byte| *byte != 0)
        };
        match found.filter(|found| !is_used_since(found)) {
            Some(life) => {
                self.learn_key(life.generation, life.key);
                self.found(life.generation, headless(slot, length, &life.batch));
            }
            None => {
                self.unexplained.insert(slot, length);
            }
        }
    }

    /// Whether another file is known to be this segment.
    fn is_elsewhere(&self, generation: u32, slot: u32) -> bool {
        let known = self.segments.get(&generation).and_then(|segment| segment.slot);
        self.tails.contains_key(&generation) || known.is_some_and(|known| known != slot)
    }

    fn found(&mut self, generation: u32, tail: Tail) {
        if tail.is_headless && self.is_elsewhere(generation, tail.slot) {
            self.unexplained.insert(tail.slot, tail.length);
            return;
        }
        self.generation_max = self.generation_max.max(generation);
        if let Some(segment) = self.segments.get_mut(&generation)
            && segment.slot.is_none()
        {
            // It had no file yet when the checkpoint was made.
            segment.slot = Some(tail.slot);
        }
        if generation >= self.at.0 || self.replay.is_rebuild() {
            self.tails.insert(generation, tail);
        }
    }

    /// These segments are missing where others that follow them were written, so something was lost. Files
    /// that nothing explains are taken for them, so that they are not used again.
    pub(super) fn keep_unexplained(&mut self, missing: core::ops::Range<u32>) {
        for generation in missing {
            if self.unexplained.is_empty() {
                break;
            }
            if self.tails.contains_key(&generation) {
                continue;
            }
            let known = self.segments.get(&generation).and_then(|segment| segment.slot);
            let slot = known.or_else(|| self.unexplained.keys().next().copied());
            let Some((slot, length)) = slot.and_then(|slot| self.unexplained.remove_entry(&slot))
            else {
                continue;
            };
            self.keep_lost(generation, (slot, length), 0);
        }
    }

    /// Reading ends in this segment and goes on in a later one, though more was written to it, and no file
    /// says that it is this one. The checkpoint knows which is.
    pub(super) fn keep_unread(&mut self, generation: u32, begin: usize) {
        let known = self.segments.get(&generation).and_then(|segment| segment.slot);
        let file = known.map(|slot| self.segment_file(slot));
        let listed = self.files.iter().find(|(found, _)| Some(*found) == file);
        if let (Some(slot), Some(&(_, length))) = (known, listed) {
            self.unexplained.remove(&slot);
            self.keep_lost(generation, (slot, length), begin as u64);
        } else if known.is_none() {
            self.keep_unexplained(generation..generation + 1);
        }
    }

    /// Nothing can be read of this segment from `begin` on.
    fn keep_lost(&mut self, generation: u32, (slot, length): (u32, u64), begin: u64) {
        self.generation_max = self.generation_max.max(generation);
        let file_bytes = u32::try_from(length).unwrap_or(u32::MAX);
        let segment = self.segments.entry(generation).or_default();
        (segment.slot, segment.is_sealed) = (Some(slot), true);
        (segment.file_bytes, segment.used_bytes) = (file_bytes, file_bytes);
        self.kept.insert(generation);
        self.damages.push(Damage {
            file: self.segment_file(slot),
            offset: begin,
            bytes: length.saturating_sub(begin),
        });
    }

    /// Whether what follows the end of a segment that may be whole is lost in front of the next one: the
    /// first batches of that are missing, or all of it, and here is nothing but zeros.
    pub(super) fn is_lost_behind(&self, image: &Image<'_>, at: usize) -> bool {
        let mut later = self.tails.range(super::behind(image.generation));
        let is_lost = later.next().is_some_and(|(&next, tail)| {
            tail.is_headless || image.generation.checked_add(1) != Some(next)
        });
        is_lost && image.bytes[at..].iter().all(|byte| *byte == 0)
    }
}
