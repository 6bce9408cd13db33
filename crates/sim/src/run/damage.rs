//! Bits of files flip while no process runs, and what a start may make of that.
//!
//! A start that refuses finds the bit as it was the next time, as from a copy of the file, and then nothing
//! is excused. One that accepts may lack what was hit, and nothing else: a message whose record was damaged
//! or lies in a segment whose header was; with a log that is put together again from its segments, what was
//! settled in it may come back.

use std::collections::{BTreeMap, BTreeSet};

use lepus_base::Rng;
use lepus_store::Keys;
use lepus_store::disk::{File, LogId};
use lepus_store::inspect::{self, Content, Part};
use lepus_store::simulation::Disk;

use super::{Run, trace};
use crate::actor::Verdict;
use crate::oracle::{Gone, Message, MessageId, body_of};

/// Messages that are looked for when a bit is to flip.
const FLIP_TRIES: usize = 5;
/// Places that are tried for another kind of damage.
const DAMAGE_TRIES: usize = 20;
/// Bytes of a segment's header, and of the part of an index page that is surely used.
const HEADER_BYTES: u64 = 64;
const PAGE_USED_BYTES: u64 = 60;

/// The log of definitions.
const DEFINITIONS: LogId = LogId(0);

/// A bit that was turned over.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) file: File,
    offset: usize,
    bit: u8,
    /// What the byte was before.
    before: u8,
    /// Messages whose records are in what was hit.
    messages: Vec<MessageId>,
    /// Whether its log may be put together again from its segments, or lacks what settles say.
    forgets: bool,
}

impl Damage {
    /// What a report of it has in it. A log that is put together again from its segments tells what earlier
    /// crashes left behind at the ends of any of them, too: it cannot know that nobody relied on that.
    fn told_as(&self) -> String {
        match self.file {
            File::Segment(..) | File::Index(_) => self.file.to_string(),
            File::Root(log) | File::Checkpoint(log, _) => format!("{log}/"),
        }
    }
}

impl Run {
    /// Turns a bit over in anything but a message, if the plan has that.
    pub(super) fn damage(&mut self) -> Option<Damage> {
        let is_planned = self.plan.disk.as_ref().is_some_and(|disk| disk.damages);
        if !is_planned || !self.strain.chance(1, 2) {
            return None;
        }
        let disk = &mut self.shards.disk.as_mut()?.disk;
        let damage = (0..DAMAGE_TRIES).find_map(|_| choose(disk, &mut self.strain))?;
        trace(format!("a bit flips: {damage:?}"));
        disk.flip(damage.file, damage.offset, damage.bit);
        self.lives.damaged_files.insert(damage.told_as());
        Some(damage)
    }

    /// A start was refused: what was damaged is as it was before, and must not have been touched.
    pub(super) fn mend(&mut self, damage: &Damage, reason: &str) -> Verdict {
        trace(format!("it does not start: {reason}"));
        self.shards.end(false);
        let Some(disk) = &mut self.shards.disk else { return Ok(()) };
        let found = disk.disk.data(damage.file).and_then(|data| data.get(damage.offset)).copied();
        if found != Some(damage.before ^ 1 << damage.bit) {
            return Err(format!("a start that was refused has changed {}: {reason}", damage.file));
        }
        disk.disk.flip(damage.file, damage.offset, damage.bit);
        self.lives.damaged_files.remove(&damage.told_as());
        Ok(())
    }

    /// A start has accepted the damage. `logs` says which queue was in which log.
    pub(super) fn excuse(&mut self, damage: &Damage, logs: &BTreeMap<usize, u32>) {
        self.oracle.damaged.extend(&damage.messages);
        if !damage.forgets {
            return;
        }
        let log = damage.file.log().0.wrapping_sub(1);
        self.oracle.forgetful.insert(log);
        self.oracle.has_forgotten = true;
        let is_in = |queue: usize| logs.get(&queue) == Some(&log);
        for message in &mut self.oracle.messages {
            for copy in message.copies.iter_mut().filter(|copy| !copy.out_of_root) {
                let letters = self.plan.queues.iter().position(|queue| {
                    queue.kind == crate::plan::Kind::Dead && queue.root == copy.root
                });
                let came_from = is_in(copy.root) || message.delayed;
                if !came_from && !letters.is_some_and(is_in) {
                    continue;
                }
                if copy.gone == Gone::Sure {
                    copy.gone = Gone::Maybe;
                    copy.gone_for_good = false;
                }
                // It may be in its queue again, and in that of dead letters still.
                copy.split |= came_from && (letters.is_some() || message.delayed);
            }
        }
    }

    /// Turns a bit of a message's body over, in a segment that is not the last of its log.
    pub(super) fn flip(&mut self) {
        let is_planned = self.plan.disk.as_ref().is_some_and(|disk| disk.flips);
        if !is_planned || !self.rng.chance(1, 2) || self.oracle.messages.is_empty() {
            return;
        }
        let Some(disk) = &mut self.shards.disk else { return };
        for _ in 0..FLIP_TRIES {
            let message = self.rng.below(self.oracle.messages.len() as u64) as usize;
            let record = &self.oracle.messages[message];
            let is_there = record.copies.iter().any(|copy| copy.gone == Gone::No);
            if record.body_bytes < 24 || !is_there {
                continue;
            }
            let body = body_of(message, record.body_bytes.min(64));
            let Some((file, offset)) = find(&disk.disk, &body) else { continue };
            let offset = offset + self.rng.below(body.len() as u64) as usize;
            trace(format!("a bit of message {message} flips: {file:?} at {offset}"));
            disk.disk.flip(file, offset, self.rng.below(8) as u8);
            self.lives.damaged_files.insert(file.to_string());
            // What others borrow from a damaged record is gone with it: exchange and key, and those of
            // the queue of dead letters that both came to.
            let names = (&record.exchange, &record.key);
            let queues = &self.plan.queues;
            let letters = |of: &Message| -> BTreeSet<usize> {
                let roots = of.copies.iter().map(|copy| copy.root);
                roots.filter(|&root| queues[root].dead_letters()).collect()
            };
            let own = letters(record);
            let borrows = |other: &Message| {
                (&other.exchange, &other.key) == names || !own.is_disjoint(&letters(other))
            };
            let others = self.oracle.messages.iter().enumerate();
            let damaged = others.filter(|(_, other)| borrows(other)).map(|(place, _)| place);
            self.oracle.damaged.extend(damaged);
            return;
        }
    }
}

/// What is hit: a header, a root, a checkpoint, a page of the index, a part of the definitions.
fn choose(disk: &Disk, rng: &mut Rng) -> Option<Damage> {
    let is_of_definitions = rng.chance(1, 4);
    let kind = rng.below(5);
    let files: Vec<File> = disk
        .files()
        .map(|(file, _)| file)
        .filter(|file| (file.log() == DEFINITIONS) == is_of_definitions)
        .filter(|file| match kind {
            0 => matches!(file, File::Index(_)),
            1 => matches!(file, File::Root(_)),
            2 => matches!(file, File::Checkpoint(..)),
            _ => matches!(file, File::Segment(..)) && holds_batches(disk, *file),
        })
        .collect();
    let file = *files.get(rng.below(files.len().max(1) as u64) as usize)?;
    let bytes = disk.data(file)?;
    let mut messages = Vec::new();
    let (start, length) = match file {
        File::Index(_) => {
            let pages = (bytes.len() / inspect::PAGE_BYTES) as u64;
            (rng.below(pages.max(1)) * inspect::PAGE_BYTES as u64, PAGE_USED_BYTES)
        }
        File::Root(_) => {
            let (offset, length) = root_records()[rng.below(4) as usize];
            (offset as u64, length as u64)
        }
        File::Checkpoint(_, number) => {
            let valid = inspect::root(disk.data(File::Root(file.log()))?).valid?;
            (0, valid.length * u64::from(valid.number == number))
        }
        File::Segment(..) if kind == 3 || !is_of_definitions => {
            messages = in_segment(disk, file, bytes)?;
            (0, HEADER_BYTES)
        }
        File::Segment(..) => (HEADER_BYTES, certain_bytes(disk, file)?),
    };
    if length == 0 {
        return None;
    }
    let offset = (start + rng.below(length)) as usize;
    let before = *bytes.get(offset)?;
    let forgets = !matches!(file, File::Index(_));
    Some(Damage { file, offset, bit: rng.below(8) as u8, before, messages, forgets })
}

/// Where the records of a file `root` are, and their lengths: of checkpoints, and of keys.
fn root_records() -> [(usize, usize); 4] {
    let [first, second] = inspect::KEYS_OFFSETS.map(|at| (at, inspect::KEYS_RECORD_BYTES));
    let roots = [0, inspect::ROOT_STRIDE_BYTES].map(|at| (at, inspect::ROOT_RECORD_BYTES));
    [roots[0], roots[1], first, second]
}

/// The keys of the log that a file belongs to.
fn keys(disk: &Disk, file: File) -> Keys {
    Keys::of_root(file.log(), disk.data(File::Root(file.log())).unwrap_or_default())
}

fn holds_batches(disk: &Disk, file: File) -> bool {
    let report = disk.data(file).map(|bytes| inspect::segment(keys(disk, file), bytes, |_| ()));
    report.is_some_and(|report| report.header.is_ok() && report.batches > 0)
}

/// The messages that have their records in a segment. `None` if a part of one lies in another segment.
fn in_segment(disk: &Disk, file: File, bytes: &[u8]) -> Option<Vec<MessageId>> {
    let mut messages = Vec::new();
    let mut is_cut = false;
    inspect::segment(keys(disk, file), bytes, |part| match part {
        Part::Record(_, Content::Message(message)) => {
            is_cut |= message.body_bytes as usize > message.body.len();
            let number = message.body.first_chunk::<8>();
            messages.extend(number.map(|number| u64::from_be_bytes(*number) as usize));
        }
        Part::Record(_, Content::Fragment(_)) => is_cut = true,
        _ => {}
    });
    (!is_cut).then_some(messages)
}

/// Bytes behind the header of a segment that later ones, or later batches, know of: the last batch before
/// the end of a process looks torn when it is damaged.
fn certain_bytes(disk: &Disk, file: File) -> Option<u64> {
    let generation =
        |file: File| inspect::segment(keys(disk, file), disk.data(file)?, |_| ()).generation;
    let own = generation(file)?;
    let others = disk
        .files()
        .map(|(other, _)| other)
        .filter(|other| matches!(other, File::Segment(..)) && other.log() == file.log());
    let is_last = others.filter_map(generation).all(|other| other <= own);
    let mut last = HEADER_BYTES;
    let report = inspect::segment(keys(disk, file), disk.data(file)?, |part| {
        if let Part::Batch(batch) = part {
            last = u64::from(batch.offset);
        }
    });
    let end = if is_last { last } else { u64::from(report.end) };
    Some(end.saturating_sub(HEADER_BYTES))
}

/// Where these bytes are in a segment that is not the last of its log.
fn find(disk: &Disk, bytes: &[u8]) -> Option<(File, usize)> {
    let generation = |file: File| {
        let header = disk.data(file).and_then(|data| data.get(16..20))?;
        Some(u32::from_le_bytes(header.try_into().ok()?))
    };
    let segments: Vec<File> = disk
        .files()
        .map(|(file, _)| file)
        .filter(|file| matches!(file, File::Segment(..)))
        .collect();
    for &file in &segments {
        let is_last = segments
            .iter()
            .filter(|other| other.log() == file.log())
            .all(|&other| generation(other) <= generation(file));
        let data = disk.data(file).unwrap_or_default();
        let found = data.windows(bytes.len()).position(|window| window == bytes);
        if let Some(offset) = found.filter(|_| !is_last) {
            return Some((file, offset));
        }
    }
    None
}
