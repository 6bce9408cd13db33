//! Emptying segments in which little lives, by writing that again at the end of the log.
//!
//! The index is left as it is: a table says where a message is that was first written elsewhere,
//! until the message is settled or its page of the index is written anew. The emptied segment is
//! free when the next checkpoint is valid.
//!
//! What counts is the bytes of messages of which something lives. Those of bodies with one reference
//! are known. Where messages are shared by several queues they are guessed, as if all of them had
//! lost equally many references; and what messages have beside their bodies is not known. Where that
//! may matter it is counted when the segment is read, before anything is copied. Until more references
//! are gone than make up the difference, it is not read again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::{Instant, Now, Position};

use super::append::{record_bytes_max, write_message};
use super::read::Found;
use super::{Event, Purpose, Store};
use crate::disk::{Completion, File, Operations};
use crate::lane::Located;
use crate::lanes::LaneSlot;
use crate::log::Segment;
use crate::place::{generation, position};
use crate::record::{KIND_MESSAGE, Message, MessageRecord, Names, Reference, references_bytes_max};
use crate::recovery::Damage;
use crate::scan::{FoundBatch, FoundRecord, Image, SegmentRead};
use crate::segment::{BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::state::OVERHEAD_BYTES;

/// Bytes of a segment looked at in one call.
const STEP_BYTES: usize = 1 << 20;
/// References of messages looked at in one call, about: small messages are many, and may have many each.
const STEP_REFERENCES: usize = 2048;
/// Index pages kept in memory to see where messages are, those of one batch not counted.
const PAGES_MAX: usize = 128;
/// The same where messages are counted.
const COUNT_STEP_BYTES: usize = 128 << 10;
/// A segment is emptied when fewer than this many percent of it live, once three quarters of the
/// room are in use.
const NEARLY_FULL_PERCENT: u64 = 50;
/// The same when there is none left.
const FULL_PERCENT: u64 = 75;
/// The same when there is none for what is to be passed on: nobody takes that away before.
const PASSING_PERCENT: u64 = 90;
/// A single segment of which little lives is emptied, too, when nothing of it dies for so long.
const STANDING_INTERVAL: Duration = Duration::from_secs(10);
/// What messages may have beside their bodies counts where it is more than this part of a segment.
const DOUBT_DIVISOR: u64 = 16;
/// How often the segments are looked through for one that is worth it, unless the log has grown by
/// half a segment meanwhile, copies not counted.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// After what time a segment that could not be read is tried again.
const UNREADABLE_INTERVAL: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    reading: Option<SegmentRead>,
    running: Option<Run>,
    look_at: Instant,
    /// Bytes that the log had written at the last look, and those of copies made since then.
    log_bytes: u64,
    /// Messages copied since the last look, and their bytes beside their bodies.
    copied: u64,
    copied_extra: u64,
    /// What a message has beside its body, as copying has shown.
    extra: u64,
    /// Something may be worth it that nobody has looked at yet.
    has_news: bool,
    /// Segments with damage in them, which are left alone, and those that could not be read, until they are
    /// tried again.
    skipped: BTreeMap<u32, Instant>,
    /// Segments to be emptied as far as they can be read, however much lives in them.
    wanted: BTreeSet<u32>,
    /// What lived of segments when they were counted.
    counted: BTreeMap<u32, Counted>,
    /// The one with the least that lives when it was not worth it: with how many references, and
    /// since when.
    standing: Option<(u32, u64, Instant)>,
    /// Index pages that were read for this.
    pages: Vec<(LaneSlot, u64)>,
    pub moved: u64,
}

/// What lived of a segment when it was read.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Bytes of the records of messages of which something lived.
    bytes: u64,
    /// Bytes of the same messages as references name them.
    weight: u64,
    /// Bytes that all living references named.
    named: u64,
}

impl Counted {
    /// What may still live of it, in bytes, now that living references name so many: each reference that
    /// is gone took at most its own message with it, and these were about alike.
    fn bytes_left(&self, named: u64) -> u64 {
        let left = self.weight.saturating_sub(self.named.saturating_sub(named));
        let bytes = u128::from(self.bytes) * u128::from(left);
        bytes.checked_div(u128::from(self.weight)).unwrap_or(0) as u64
    }
}

/// A segment being emptied.
#[derive(Debug)]
struct Run {
    generation: u32,
    bytes: Vec<u8>,
    /// Offset of the next batch.
    at: usize,
    /// How many of its records are done with.
    done: usize,
    /// What lives before it, while that is only counted.
    counting: Option<Counted>,
    /// Messages that began in the segment before and end in this one.
    ending: Vec<Position>,
}

/// What became of a message that was to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    /// It is copied, or nothing of it lives here.
    Done,
    /// Something is read first.
    Pending,
    /// It cannot be.
    Failed,
    /// There is no room for it.
    NoRoom,
    /// Those before it are, and that is enough for one call.
    Enough,
}

impl Compaction {
    /// Takes over what was seen of messages since the last look.
    fn learn(&mut self) {
        let (copied, extra) = (core::mem::take(&mut self.copied), &mut self.copied_extra);
        let seen = core::mem::take(extra).checked_div(copied);
        if let Some(seen) = seen {
            self.extra = seen.max(self.extra - self.extra / 8);
        }
    }
}

impl Store {
    /// Asks for a segment's file to be emptied, with what can be read of damaged batches. What
    /// cannot be read should be settled before.
    pub fn empty_segment(&mut self, file: File) {
        let File::Segment(_, slot) = file else { return };
        let mut segments = self.log.segments.iter();
        if let Some((&generation, _)) = segments.find(|(_, segment)| segment.slot == Some(slot)) {
            self.compaction.skipped.remove(&generation);
            self.compaction.wanted.insert(generation);
        }
    }

    /// One step; true if there is more to do at once.
    pub(super) fn compact(&mut self, now: Now, out: &mut Operations) -> bool {
        // What is settled but not yet counted must not be moved as if it lived.
        if !self.state.unaccounted.is_empty()
            || self.log.stopped().is_some()
            // What moves meanwhile might not be found.
            || self.rebuilding.is_under_way()
            || (self.log.spare_segments() == 0 && !self.may_prepare())
        {
            self.compaction.has_news = false;
            return false;
        }
        self.compaction.has_news = true;
        if let Some(run) = self.compaction.running.take() {
            return match run.counting {
                Some(_) => self.count_step(run),
                None => self.copy_step(run, out),
            };
        }
        let grown = self.log.bytes_written.saturating_sub(self.compaction.log_bytes);
        let is_time = now.instant >= self.compaction.look_at
            || grown >= u64::from(self.settings.segment_bytes / 2);
        if self.compaction.reading.is_some() || !is_time {
            return false;
        }
        self.compaction.look_at = now.instant + LOOK_INTERVAL;
        self.compaction.log_bytes = self.log.bytes_written;
        self.compaction.learn();
        let Some((generation, slot, length)) = self.candidate(now) else {
            // One that stands is looked at again then.
            self.compaction.has_news = self.compaction.standing.is_some();
            if let Some((_, _, since)) = self.compaction.standing {
                self.compaction.look_at = since + STANDING_INTERVAL;
            }
            return false;
        };
        if self.log.spare_segments() == 0 {
            // Nothing comes, so that none is ready: they are made.
            self.log.ask();
            return false;
        }
        // The rate: so long as this takes, no other segment is begun, unless half as much was appended.
        let nanos = u64::from(length) * 1_000_000_000 / self.settings.compaction_rate.max(1);
        self.compaction.look_at = now.instant + Duration::from_nanos(nanos);
        self.compaction.reading = Some(SegmentRead::new(generation, slot, length as usize));
        self.read_candidate(out);
        false
    }

    /// Whether a segment can be made for copies where none is ready because no messages come.
    fn may_prepare(&self) -> bool {
        self.compaction.running.is_none() && !self.log.is_ready() && self.log.may_grow()
    }

    /// Reads on in the segment to be emptied. False when it has been read.
    fn read_candidate(&mut self, out: &mut Operations) -> bool {
        let reading = self.compaction.reading.as_ref();
        let Some(reading) = reading else { return false };
        let Some(action) = reading.next(self.settings.log) else { return false };
        let generation = reading.generation;
        self.ask(action, Purpose::Compaction { generation }, out);
        true
    }

    /// When [`Store::work`] has to be called to look for a segment that is worth it.
    pub(super) fn compaction_due(&self) -> Instant {
        let compaction = &self.compaction;
        let is_busy = compaction.reading.is_some() || compaction.running.is_some();
        if compaction.has_news && !is_busy && !self.publication.is_closing() {
            compaction.look_at
        } else {
            Instant::NEVER
        }
    }

    /// Below how many percent of living bytes a segment is worth it.
    fn percent(&self) -> u64 {
        let usual = u64::from(self.settings.compaction_percent);
        if self.log.lacks_room_to_pass_on() {
            usual.max(PASSING_PERCENT)
        } else if self.log.lacks_room() {
            usual.max(FULL_PERCENT)
        } else if self.log.is_nearly_full() {
            usual.max(NEARLY_FULL_PERCENT)
        } else {
            usual
        }
    }

    /// Bytes of messages that live in a segment, about.
    fn living_bytes(&self, generation: u32, segment: &Segment) -> u64 {
        let named = segment.named_alive();
        let counted = self.compaction.counted.get(&generation);
        segment.share(named).max(counted.map_or(0, |counted| counted.bytes_left(named)))
    }

    /// Whether more may live in a segment than is known: moving messages that only seem to be few would
    /// never end.
    fn is_in_doubt(&self, segment: &Segment) -> bool {
        let extra = self.compaction.extra.saturating_sub(OVERHEAD_BYTES);
        let messages = segment.share(segment.references());
        let extra = messages.saturating_mul(extra);
        segment.is_shared() || extra > u64::from(segment.file_bytes) / DOUBT_DIVISOR
    }

    /// The segment with the least that lives, if that is little enough, and if there are so many of
    /// them that it pays: one whose messages are being delivered is soon empty without that.
    fn candidate(&mut self, now: Now) -> Option<(u32, u32, u32)> {
        let segments = &self.log.segments;
        self.compaction.counted.retain(|generation, _| segments.contains_key(generation));
        let standing = self.compaction.standing.take();
        let synced = self.log.synced();
        let room =
            self.settings.relocations_max.saturating_sub(self.state.tables.relocations.len());
        let ending = self.ending_weights();
        // Where nothing lives there would be nothing to move, again and again.
        let kept = self.parts_unknown();
        let compaction = &self.compaction;
        let weight = |generation: u32, segment: &Segment| {
            let living = self.living_bytes(generation, segment);
            living.saturating_add(ending.get(&generation).copied().unwrap_or(0))
        };
        let percent = self.percent();
        let is_urgent = percent > u64::from(self.settings.compaction_percent);
        let copies_max = match self.may_prepare() {
            true => u64::MAX,
            false => self.log.room_for_copies(usize::from(is_urgent)),
        };
        let worth = segments.iter().filter(|(generation, segment)| {
            let weight = weight(**generation, segment);
            // Where nothing died there is nothing to gain, unless it ended early, as at a start, or is
            // full of settles: copies would be copied again and again when few messages fit into a
            // segment.
            let ended_early = segment.used_bytes < segment.file_bytes / 2;
            let has_gain = segment.has_dead() || ended_early;
            let is_gain = match is_urgent {
                true => has_gain && weight.saturating_add(weight / 8) <= copies_max,
                false => has_gain || segment.has_settles,
            };
            let is_sparse =
                is_gain && weight.saturating_mul(100) < u64::from(segment.file_bytes) * percent;
            !segment.is_empty()
                && segment.references() <= room as u64
                && (is_sparse || compaction.wanted.contains(generation))
                && **generation < self.log.generation()
                && position(**generation, segment.used_bytes) <= synced
                && (!kept.contains_key(generation) || compaction.wanted.contains(generation))
                && compaction.skipped.get(generation).is_none_or(|until| *until <= now.instant)
        });
        let dead_bytes = |(generation, segment): (&u32, &Segment)| {
            u64::from(segment.file_bytes).saturating_sub(self.living_bytes(*generation, segment))
        };
        let gain: u64 = worth.clone().map(dead_bytes).sum();
        let least = worth.min_by_key(|(generation, segment)| {
            (!compaction.wanted.contains(generation), weight(**generation, segment))
        });
        let (&generation, segment) = least?;
        let all =
            segments.iter().map(|(generation, segment)| self.living_bytes(*generation, segment));
        let let_be = all.sum::<u64>().max(self.settings.segment_bytes.into());
        let slack = self.settings.compaction_slack_bytes.min(let_be);
        let (slot, length) = (segment.slot?, segment.used_bytes);
        let mut pays = is_urgent || compaction.wanted.contains(&generation) || gain > slack;
        if !pays {
            let references = segment.references();
            let same = standing.filter(|found| (found.0, found.1) == (generation, references));
            let since = same.map_or(now.instant, |found| found.2);
            pays = now.instant >= since + STANDING_INTERVAL;
            self.compaction.standing = (!pays).then_some((generation, references, since));
        }
        pays.then_some((generation, slot, length))
    }

    /// What moving messages that lie in several segments weighs for each of these: all that lives
    /// where the message began. Longer ones than two segments are not moved.
    fn ending_weights(&self) -> BTreeMap<u32, u64> {
        let mut weights = BTreeMap::new();
        for (&start, span) in self.state.tables.spans.iter() {
            let first = generation(start);
            let is_short = span.generation_last == first + 1 && !span.is_transient;
            let began = self.log.segments.get(&first).map_or(0, |segment| segment.live_bytes);
            for generation in first..=span.generation_last {
                let weight: &mut u64 = weights.entry(generation).or_default();
                match (is_short, generation == first) {
                    (false, _) => *weight = u64::MAX,
                    (true, true) => {}
                    (true, false) => *weight = weight.saturating_add(began),
                }
            }
        }
        weights
    }

    pub(super) fn compaction_read(
        &mut self,
        now: Now,
        generation: u32,
        completion: Completion,
        out: &mut Operations,
    ) {
        if completion.result.is_err() {
            self.compaction.reading = None;
            // Nobody waits for it, so it is tried again much later.
            self.compaction.skipped.insert(generation, now.instant + UNREADABLE_INTERVAL);
            return;
        }
        self.read_worked(now, completion.id);
        self.cache.bytes_read += completion.bytes.len() as u64;
        let Some(reading) = &mut self.compaction.reading else { return };
        reading.take(completion.bytes);
        if self.read_candidate(out) {
            return;
        }
        let Some(reading) = self.compaction.reading.take() else { return };
        let spans = self.state.tables.spans.before(position(generation, 0));
        let ending = spans.filter(|(_, span)| span.generation_last == generation);
        let ending = ending.map(|(&start, _)| start).collect();
        self.unload_pages();
        let (bytes, at) = (reading.bytes, SEGMENT_HEADER_BYTES);
        let segment = self.log.segments.get(&generation);
        let is_in_doubt = segment.is_some_and(|segment| self.is_in_doubt(segment));
        let counts = is_in_doubt && !self.compaction.wanted.contains(&generation);
        let counting = counts.then(Counted::default);
        self.compaction.running = Some(Run { generation, bytes, at, done: 0, counting, ending });
    }

    fn skip_segment(&mut self, generation: u32) -> bool {
        self.compaction.wanted.remove(&generation);
        self.compaction.skipped.insert(generation, Instant::NEVER);
        false
    }

    /// What is left of a segment needs more room than there is now.
    fn let_segment_wait(&mut self, generation: u32) -> bool {
        let until = self.compaction.look_at + STANDING_INTERVAL;
        self.compaction.skipped.insert(generation, until);
        false
    }

    /// Counts what lives of a segment in doubt, which is left alone if that is too much.
    fn count_step(&mut self, mut run: Run) -> bool {
        let generation = run.generation;
        let Some(segment) = self.log.segments.get(&generation) else { return false };
        let (used, file_bytes) = (segment.used_bytes as usize, u64::from(segment.file_bytes));
        let named = segment.named_alive();
        let image = Image { keys: self.log.keys, generation, bytes: &run.bytes };
        let (start, mut counted) = (run.at, run.counting.unwrap_or_default());
        let mut left = STEP_REFERENCES;
        while left > 0 && run.at < used && run.at < start + COUNT_STEP_BYTES {
            let batch = image.header(run.at).filter(|batch| run.done > 0 || image.is_whole(batch));
            // Damage is found again, and told, when what is whole is copied.
            let Some(batch) = batch else {
                run.at = used;
                break;
            };
            let mut records = image.records(&batch).skip(run.done);
            while left > 0
                && let Some(found) = records.next()
            {
                run.done += 1;
                let message = (found.kind == KIND_MESSAGE).then_some(found.payload);
                let Some(record) = message.and_then(MessageRecord::decode) else { continue };
                left = left.saturating_sub(record.reference_count().max(1));
                if record.references().any(|reference| self.state.is_live(&reference)) {
                    counted.bytes += found.payload.len() as u64;
                    counted.weight += u64::from(record.body_bytes) + OVERHEAD_BYTES;
                }
            }
            if left > 0 {
                (run.at, run.done) = (batch.records().end, 0);
            }
        }
        run.counting = Some(counted);
        if run.at >= used {
            counted.named = named;
            self.compaction.counted.insert(generation, counted);
            if counted.bytes.saturating_mul(100) >= file_bytes * self.percent() {
                return false;
            }
            (run.at, run.done, run.counting) = (SEGMENT_HEADER_BYTES, 0, None);
        }
        self.compaction.running = Some(run);
        true
    }

    fn copy_step(&mut self, mut run: Run, out: &mut Operations) -> bool {
        let generation = run.generation;
        while let Some(&start) = run.ending.last() {
            match self.copy_whole(start, out) {
                Copied::Done | Copied::Enough => run.ending.pop(),
                Copied::Pending => {
                    self.compaction.running = Some(run);
                    return false;
                }
                Copied::Failed => return self.skip_segment(generation),
                Copied::NoRoom => return self.let_segment_wait(generation),
            };
        }
        let (start, mut left) = (run.at, STEP_REFERENCES);
        while run.at < start + STEP_BYTES {
            let Some(segment) = self.log.segments.get(&generation) else { return false };
            let is_empty = segment.is_empty();
            if is_empty || run.at >= segment.used_bytes as usize {
                self.compaction.wanted.remove(&generation);
                if !is_empty {
                    // Something is counted that is not there; reading it again would not help.
                    self.compaction.skipped.insert(generation, Instant::NEVER);
                }
                return false;
            }
            let (slot, used) = (segment.slot, segment.used_bytes as usize);
            let image = Image { keys: self.log.keys, generation, bytes: &run.bytes };
            let here = image.header(run.at);
            let is_whole = |batch: &FoundBatch| run.done > 0 || image.is_whole(batch);
            let (end, copied) = match here.filter(is_whole) {
                Some(batch) => {
                    let records = image.records(&batch);
                    let step = (&mut run.done, &mut left);
                    (batch.records().end, self.copy_all(&image, records, step, out))
                }
                None if !self.compaction.wanted.contains(&generation) => {
                    let file = File::Segment(self.settings.log, slot.unwrap_or(u32::MAX));
                    let damage = Damage { file, offset: run.at as u64, bytes: 0 };
                    self.events.push(Event::Damaged(damage));
                    return self.skip_segment(generation);
                }
                None => {
                    let next = image.next_header(run.at + 1).map_or(used, |next| next.offset);
                    let mut whole = Vec::new();
                    let records = run.at + BATCH_HEADER_BYTES..next;
                    image.salvage(records, |record| whole.push(record));
                    let step = (&mut run.done, &mut left);
                    (next, self.copy_all(&image, whole.into_iter(), step, out))
                }
            };
            match copied {
                Copied::Done | Copied::Enough => {
                    if copied == Copied::Done {
                        (run.at, run.done) = (end, 0);
                    }
                    // Not while a message waits for its pages: it needs all of them at once.
                    if self.compaction.pages.len() >= PAGES_MAX {
                        self.unload_pages();
                    }
                    if left == 0 {
                        break;
                    }
                }
                Copied::Pending => {
                    self.compaction.running = Some(run);
                    return false;
                }
                Copied::Failed => return self.skip_segment(generation),
                Copied::NoRoom => return self.let_segment_wait(generation),
            }
        }
        self.compaction.running = Some(run);
        true
    }

    /// Copies the records of a batch that are not done with, as long as some references are left to be looked at.
    fn copy_all<'a>(
        &mut self,
        image: &Image<'a>,
        records: impl Iterator<Item = FoundRecord<'a>>,
        (done, left): (&mut usize, &mut usize),
        out: &mut Operations,
    ) -> Copied {
        let is_wanted = self.compaction.wanted.contains(&image.generation);
        for found in records.skip(*done) {
            if found.kind == KIND_MESSAGE {
                if *left == 0 {
                    return Copied::Enough;
                }
                match self.copy(image, &found, left, out) {
                    Copied::Done => {}
                    // It was damaged; the rest need not be lost for that.
                    Copied::Failed if is_wanted => {}
                    stopped => return stopped,
                }
            }
            *done += 1;
        }
        Copied::Done
    }

    /// Writes a message again if something of it lives here.
    fn copy(
        &mut self,
        image: &Image<'_>,
        found: &FoundRecord<'_>,
        left: &mut usize,
        out: &mut Operations,
    ) -> Copied {
        let here = position(image.generation, found.offset);
        let Some(record) = MessageRecord::decode(found.payload) else { return Copied::Failed };
        *left = left.saturating_sub(record.reference_count().max(1));
        let is_transient = record.is_transient();
        let live = match self.living(here, (record.origin, is_transient), record.references(), out)
        {
            Ok(live) => live,
            Err(copied) => return copied,
        };
        if record.is_fragmented() {
            return self.copy_whole(here, out);
        }
        let names = match record.names {
            Names::Here(exchange, routing_key) => Some((exchange, routing_key)),
            Names::At(lender) => image.names(lender),
        };
        let Some((exchange, routing_key)) = names else { return Copied::Failed };
        let (properties, body) = (record.properties, record.body);
        let message = Message { exchange, routing_key, properties, body };
        self.write_copy(&message, here, &live, is_transient)
    }

    /// Writes a message again that lies in several segments and begins at `here`.
    fn copy_whole(&mut self, here: Position, out: &mut Operations) -> Copied {
        if !self.state.tables.spans.contains(here) {
            // It was settled meanwhile.
            return Copied::Done;
        }
        match self.ready_whole(here, out) {
            Found::Ready => {}
            Found::Pending => return Copied::Pending,
            Found::Lost => return Copied::Failed,
        }
        let Some(record) = self.record(here) else { return Copied::Failed };
        let (origin, is_transient) = (record.origin, record.is_transient());
        let references: Vec<Reference> = record.references().collect();
        let live = match self.living(here, (origin, is_transient), references.into_iter(), out) {
            Ok(live) => live,
            Err(copied) => return copied,
        };
        let Some(message) = self.message(here) else { return Copied::Failed };
        let [exchange, routing_key, properties, body] =
            [message.exchange, message.routing_key, message.properties, message.body]
                .map(<[u8]>::to_vec);
        let message = Message {
            exchange: &exchange,
            routing_key: &routing_key,
            properties: &properties,
            body: &body,
        };
        self.write_copy(&message, here, &live, is_transient)
    }

    /// The references of the record at `here` that live and find their message here, with the
    /// position that the index has for them.
    fn living(
        &mut self,
        here: Position,
        (origin, is_transient): (Option<Position>, bool),
        references: impl Iterator<Item = Reference>,
        out: &mut Operations,
    ) -> Result<Living, Copied> {
        let mut live = Living { origin: origin.unwrap_or(here), references: Vec::new() };
        for reference in references {
            if !self.state.is_live(&reference) {
                continue;
            }
            let known = match origin {
                // Nobody can know it by another.
                None if !is_transient => here,
                // A number of a spilled message of an earlier run may have been given again.
                _ => {
                    let Some(slot) = self.state.find(reference.lane) else { continue };
                    let located = self.state.lane_mut(slot).map(|lane| lane.locate(reference.seq));
                    match located {
                        Some(Located::At(known)) => known,
                        Some(Located::Page(first)) => {
                            self.compaction.pages.push((slot, first));
                            self.read_page(slot, first, out);
                            return Err(Copied::Pending);
                        }
                        _ => continue,
                    }
                }
            };
            if self.state.tables.place(known) == here {
                live.references.push((reference, known));
            }
        }
        if live.references.is_empty() { Err(Copied::Done) } else { Ok(live) }
    }

    fn unload_pages(&mut self) {
        for (slot, first) in core::mem::take(&mut self.compaction.pages) {
            if let Some(lane) = self.state.lane_mut(slot) {
                lane.unload_page(first);
            }
        }
    }

    fn write_copy(
        &mut self,
        message: &Message<'_>,
        here: Position,
        live: &Living,
        is_transient: bool,
    ) -> Copied {
        let references = live.references.iter().map(|(reference, _)| *reference);
        let origin = Some(live.origin);
        let bound = record_bytes_max(message, references_bytes_max(references.clone()));
        if !self.log.has_room_for_copy(bound) {
            return Copied::NoRoom;
        }
        let (log, names) = (&mut self.log, &mut self.names);
        let before = log.appended_bytes();
        let Ok((start, generation_last)) =
            write_message(log, names, message, references, (is_transient, origin, false))
        else {
            return Copied::Failed;
        };
        // Where it begins a segment, or goes on in the next one, their headers are part of it.
        let grown = self.log.appended_bytes() - before;
        self.compaction.copied += 1;
        self.compaction.copied_extra += grown.saturating_sub(message.body.len() as u64);
        self.compaction.log_bytes += grown;
        let mut known: BTreeMap<Position, u32> = BTreeMap::new();
        for (_, position) in &live.references {
            *known.entry(*position).or_default() += 1;
        }
        let to = (start, generation_last);
        let bytes = message.body.len() as u32;
        self.state.relocate(&mut self.log.segments, here, to, &known, bytes, is_transient);
        self.compaction.moved += 1;
        Copied::Done
    }
}

/// What lives of a message.
#[derive(Debug)]
struct Living {
    /// Where it was written first.
    origin: Position,
    /// With the positions that the index has.
    references: Vec<(Reference, Position)>,
}
