//! From the files of a log to its state: root, checkpoint, then the log behind it.
//!
//! The log's tail is followed batch by batch: number and checksum of the batch before tie each
//! one to its place, also across segments. Where the chain breaks, everything that came later is
//! searched for a position known to have been synced. If there is one behind the break, the break
//! is damage: it is reported and what can be read is kept. Otherwise it is a torn tail: the log
//! ends there.

mod keys;
mod passes;
mod probe;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;
use lepus_base::Position;

use crate::checkpoint::{self, Valid};
use crate::disk::{Action, Completion, DiskError, File, OperationId, Operations};
use crate::keys::{KEYS_RECORD_BYTES, Keys};
use crate::lanes::LaneSlot;
use crate::log::{Chain, Resume, Segment};
use crate::place::{generation, offset, position};
use crate::record::KIND_OPAQUE;
use crate::replay::Replay;
use crate::root::{ROOT_RECORD_BYTES, ROOT_STRIDE_BYTES, Root};
use crate::scan::{FoundBatch, Image};
use crate::segment::{
    BATCH_HEADER_BYTES, BatchHeader, HeaderError, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES,
};
use crate::settings::Settings;
use crate::state::{Segments, State};

/// Something that should have been readable and was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// In which file.
    pub file: File,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes are affected; what could be read among them was kept.
    pub bytes: u64,
}

/// Why a log cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An operation failed. Nothing was changed.
    Disk(File, DiskError),
    /// The file was written by another version of the format.
    Version(File, u16),
    /// The file belongs to another log.
    Foreign(File),
}

/// A segment that belongs to the log behind the checkpoint.
#[derive(Clone, Copy, Debug)]
struct Tail {
    slot: u32,
    length: u64,
    /// First batch's number and the checksum before it, the first that is found where the header is damaged.
    number: u64,
    previous_crc: u32,
    synced: Position,
    /// The segment's header is damaged; a batch tells what it is.
    is_headless: bool,
}

/// A file of which only what the disk has may be believed.
#[derive(Clone, Copy, Debug)]
enum Fresh {
    Root,
    Tail,
    Evidence,
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    List,
    /// What memory holds of the file is being forgotten; then so many bytes of it are read.
    Reload(File, u64, Fresh),
    Read(File, Fresh),
    Checkpoint,
    Probe {
        slot: u32,
        length: u64,
        /// How much of it is being read.
        asked: usize,
    },
    Peek,
    /// A page of the index is written between two passes.
    Page(LaneSlot, u64, u32),
    CreateRoot,
    Directory,
    Unclean,
    Keys,
}

/// What recovery leaves to the running store.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub state: State,
    /// Pages of the index file that lanes have.
    pub used_pages: Vec<u32>,
    /// The length of the index file, if there is one.
    pub index_bytes: Option<u64>,
    /// Pages were written to it that are not synced.
    pub has_written_pages: bool,
    /// What it took to do without a checkpoint.
    pub rebuilt: crate::replay::Rebuilt,
    pub resume: Resume,
    pub opaque: Vec<(Position, Vec<u8>)>,
    /// Where reading began.
    pub start: Chain,
    /// The same if more may be appended to it; then it is not among the files that are not needed.
    pub valid: Option<Valid>,
    /// Number for the next checkpoint, and the root record it goes to.
    pub checkpoint_number: u64,
    /// The checkpoint that is valid, if there is one.
    pub checkpoint: Option<File>,
    pub root_index: usize,
    /// Files that are not needed when the next checkpoint is valid.
    pub obsolete: Vec<File>,
    pub damages: Vec<Damage>,
    pub is_clean: bool,
    pub log_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Recovery {
    settings: Settings,
    keys: Keys,
    /// Nothing was ever written where the file `root` has the keys.
    has_no_key: bool,
    /// Both copies of these keys are in the file `root`.
    are_keys_written: bool,
    waits: BTreeMap<OperationId, Wait>,
    files: Vec<(File, u64)>,
    root: Option<(usize, Root)>,
    was_clean: bool,
    /// One of the two root records cannot be read.
    is_root_damaged: bool,
    /// Bytes of the first section of the checkpoint, if more can be appended to it.
    base_bytes: Option<u64>,
    state: State,
    /// Pages of the index file that lanes have.
    used_pages: Vec<u32>,
    segments: Segments,
    replay: Replay,
    tails: BTreeMap<u32, Tail>,
    /// Segments of which only the first batch says what they are, and those of which that says nothing either:
    /// looked at when all headers are read.
    first_batches: Vec<(u32, Tail)>,
    /// Files without a header that is intact, with what was read of them: looked at when all headers are read, since
    /// these may have the key.
    undecided: Vec<(u32, u64, Vec<u8>)>,
    headless: VecDeque<(u32, u64)>,
    /// The highest number of a segment that is believed where only a batch claims it.
    believed_max: Option<u32>,
    /// Files that something was written to and that nothing in them explains, with their lengths.
    unexplained: BTreeMap<u32, u64>,
    known: BTreeMap<u32, u64>,
    start: Chain,
    chain: Chain,
    /// Where reading goes on: generation and offset.
    at: (u32, usize),
    image: Option<Vec<u8>>,
    /// Highest position that something later names as synced; gathered at a break.
    evidence: Position,
    is_gathered: bool,
    gathering: VecDeque<u32>,
    generation_max: u32,
    damages: Vec<Damage>,
    /// Segments with damage that no index knows of.
    kept: BTreeSet<u32>,
    log_bytes: u64,
    /// Batches of opaque records: the first of each, and what is before them.
    opaque_batches: Vec<(Position, Chain)>,
    passes: passes::Passes,
    /// Everything is read, and nothing is written yet.
    is_read: bool,
    result: Option<Result<(), Refusal>>,
}

/// All segments behind this one.
fn behind(generation: u32) -> (Bound<u32>, Bound<u32>) {
    (Bound::Excluded(generation), Bound::Unbounded)
}

impl Recovery {
    pub(crate) fn new(settings: Settings, out: &mut Operations) -> Recovery {
        let mut recovery = Recovery {
            settings,
            keys: Keys::none(settings.log),
            has_no_key: false,
            are_keys_written: false,
            waits: BTreeMap::new(),
            files: Vec::new(),
            root: None,
            was_clean: false,
            is_root_damaged: false,
            base_bytes: None,
            state: State::default(),
            used_pages: Vec::new(),
            segments: Segments::new(),
            replay: Replay::default(),
            tails: BTreeMap::new(),
            first_batches: Vec::new(),
            undecided: Vec::new(),
            headless: VecDeque::new(),
            believed_max: None,
            unexplained: BTreeMap::new(),
            known: BTreeMap::new(),
            start: Chain::default(),
            chain: Chain::default(),
            at: (1, SEGMENT_HEADER_BYTES),
            image: None,
            evidence: Position(0),
            is_gathered: false,
            gathering: VecDeque::new(),
            generation_max: 0,
            damages: Vec::new(),
            kept: BTreeSet::new(),
            log_bytes: 0,
            opaque_batches: Vec::new(),
            passes: passes::Passes::default(),
            is_read: false,
            result: None,
        };
        recovery.ask(Action::List(settings.log), Wait::List, out);
        recovery
    }

    fn ask(&mut self, action: Action, wait: Wait, out: &mut Operations) {
        let id = out.push(action);
        self.waits.insert(id, wait);
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.waits.clear();
        self.result = Some(Err(refusal));
    }

    fn segment_file(&self, slot: u32) -> File {
        File::Segment(self.settings.log, slot)
    }

    fn ask_fresh(&mut self, file: File, length: u64, what: Fresh, out: &mut Operations) {
        self.ask(Action::Reload(file), Wait::Reload(file, length, what), out);
    }

    fn ask_read(&mut self, file: File, length: u64, wait: Wait, out: &mut Operations) {
        // Nothing is behind that: a file that is longer is no segment's, or has something else behind it.
        let most = if matches!(file, File::Segment(..)) { SEGMENT_BYTES_MAX } else { u64::MAX };
        let length = usize::try_from(length.min(most)).unwrap_or(usize::MAX);
        self.ask(Action::Read { file, offset: 0, length }, wait, out);
    }

    /// Whether everything was read and the owner is to say whether the store goes on.
    pub(crate) fn asks(&self) -> bool {
        self.is_read && self.settings.asks_first
    }

    /// The keys of the log, as far as they are known.
    pub(crate) fn keys(&self) -> Keys {
        self.keys
    }

    /// What cannot be read.
    pub(crate) fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// Opaque records, in order, once everything was read.
    pub(crate) fn take_opaque(&mut self) -> Vec<(Position, Vec<u8>)> {
        core::mem::take(&mut self.replay.opaque)
    }

    /// The first opaque records of batches, in order, and what is before the batch of each.
    pub(crate) fn take_opaque_batches(&mut self) -> Vec<(Position, Chain)> {
        core::mem::take(&mut self.opaque_batches)
    }

    /// The end: what was found, or why the log cannot be used.
    pub(crate) fn result(&self) -> Option<Result<(), Refusal>> {
        self.result
    }

    pub(crate) fn complete(&mut self, completion: Completion, out: &mut Operations) {
        let Some(wait) = self.waits.remove(&completion.id) else { return };
        let log = self.settings.log;
        if let Wait::Page(lane, first, place) = wait {
            return self.page_written((lane, first, place), completion.result, out);
        }
        if let Err(error) = completion.result {
            let file = match wait {
                Wait::Checkpoint if error == DiskError::NotFound => {
                    return self.checkpoint_read(&[], out);
                }
                Wait::Checkpoint => {
                    File::Checkpoint(log, self.root.map_or(0, |(_, root)| root.number))
                }
                // The log is from before there were keys: none is looked for that could be missed.
                Wait::Probe { slot, .. } if self.has_no_key && self.is_explained(slot) => {
                    return self.probe_next(out);
                }
                Wait::Probe { slot, .. } => self.segment_file(slot),
                Wait::Peek => File::Segment(
                    log,
                    self.tails.get(&self.at.0).map_or(u32::MAX, |tail| tail.slot),
                ),
                Wait::Reload(file, ..) | Wait::Read(file, _) => file,
                _ => File::Root(log),
            };
            return self.refuse(Refusal::Disk(file, error));
        }
        match wait {
            Wait::List => self.listed(completion.files, out),
            Wait::Reload(file, length, what) => {
                self.ask_read(file, length, Wait::Read(file, what), out);
            }
            Wait::Read(_, Fresh::Root) => self.root_read(&completion.bytes, out),
            Wait::Checkpoint => self.checkpoint_read(&completion.bytes, out),
            Wait::Probe { slot, length, asked } => {
                self.probed((slot, length, asked), &completion.bytes, out);
            }
            Wait::Peek => self.peeked(&completion.bytes, out),
            Wait::Read(_, Fresh::Tail) => {
                self.log_bytes += completion.bytes.len() as u64;
                self.image = Some(completion.bytes);
                self.follow(out);
            }
            Wait::Read(_, Fresh::Evidence) => self.gather(&completion.bytes, out),
            Wait::Page(..) | Wait::Directory => self.finish(out),
            Wait::Unclean if completion.result != Ok(ROOT_RECORD_BYTES) => {
                self.refuse(Refusal::Disk(File::Root(log), DiskError::Failed));
            }
            Wait::Keys if completion.result != Ok(KEYS_RECORD_BYTES) => {
                self.refuse(Refusal::Disk(File::Root(log), DiskError::Failed));
            }
            Wait::Unclean | Wait::Keys => self.finish(out),
            Wait::CreateRoot => {
                self.write_keys(out);
                self.ask(Action::SyncDirectory(log), Wait::Directory, out);
            }
        }
    }

    fn listed(&mut self, files: Vec<(File, u64)>, out: &mut Operations) {
        self.files = files;
        self.files.sort_unstable();
        let file = File::Root(self.settings.log);
        if self.files.iter().any(|(found, _)| *found == file) {
            let length = (ROOT_STRIDE_BYTES * 2) as u64;
            self.ask_fresh(file, length, Fresh::Root, out);
        } else {
            self.probe(out);
        }
    }

    fn root_read(&mut self, bytes: &[u8], out: &mut Operations) {
        let file = File::Root(self.settings.log);
        if let Err(refusal) = self.read_keys(bytes) {
            return self.refuse(refusal);
        }
        let mut damaged = 0;
        for index in 0..2 {
            let start = index * ROOT_STRIDE_BYTES;
            let record = bytes.get(start..).unwrap_or_default();
            match Root::decode(record) {
                Ok(root) if root.log != self.settings.log => {
                    return self.refuse(Refusal::Foreign(file));
                }
                Ok(root) => {
                    if self.root.is_none_or(|(_, best)| best.rank() < root.rank()) {
                        self.root = Some((index, root));
                    }
                }
                Err(HeaderError::Version(version)) => {
                    return self.refuse(Refusal::Version(file, version));
                }
                Err(HeaderError::Invalid) => {
                    let record = &record[..record.len().min(ROOT_RECORD_BYTES)];
                    if record.iter().any(|byte| *byte != 0) {
                        damaged += 1;
                    }
                }
            }
        }
        self.is_root_damaged = damaged > 0;
        let Some((_, root)) = self.root else {
            // One that is torn may be the first ever, which did not become valid: then the log
            // is there from its beginning.
            if damaged > 1 {
                let bytes = ROOT_RECORD_BYTES as u64;
                self.damages.push(Damage { file, offset: 0, bytes });
                self.start_rebuild();
            }
            return self.probe(out);
        };
        let file = File::Checkpoint(self.settings.log, root.number);
        let listed = self.files.iter().find(|(found, _)| *found == file);
        let listed = listed.map_or(0, |(_, length)| *length);
        // Of a file that goes on, perhaps all of it counts. One that is shorter than the root says is damaged.
        let length = if self.is_root_damaged { listed } else { listed.min(root.length) };
        self.ask_read(file, length, Wait::Checkpoint, out);
    }

    fn checkpoint_read(&mut self, bytes: &[u8], out: &mut Operations) {
        let Some((_, root)) = &mut self.root else { return };
        // The damaged record was written when what it names was whole: it named that, or less.
        if self.is_root_damaged
            && let Some(more) = checkpoint::follower(root, bytes)
        {
            *root = more;
        }
        let root = *root;
        let file = File::Checkpoint(self.settings.log, root.number);
        let length = usize::try_from(root.length).unwrap_or(usize::MAX);
        let bytes = bytes.get(..length).unwrap_or_default();
        let is_right =
            bytes.last_chunk::<4>().is_some_and(|sum| u32::from_le_bytes(*sum) == root.crc);
        let loaded = if is_right { checkpoint::load(bytes) } else { Err(HeaderError::Invalid) };
        match loaded {
            Ok(found) => {
                self.base_bytes = found.base_bytes;
                self.used_pages = found.pages;
                self.state.lanes = found.lanes;
                self.chain = found.chain;
                self.at = (generation(found.chain.end), offset(found.chain.end) as usize);
                self.generation_max = found.generation;
                self.segments = found.segments;
                // Of messages everything was synced before the checkpoint was valid. What a log of
                // opaque records reads again from further up must be there.
                let ends = self.segments.iter().filter(|(_, found)| found.used_bytes > 0);
                let ends = ends.map(|(&generation, found)| position(generation, found.used_bytes));
                self.evidence = ends.max().unwrap_or_default();
                // What was dead may have been used again since.
                let current = self.at.0;
                self.segments.retain(|&generation, segment| {
                    generation >= current || segment.live > 0 || segment.pins > 0
                });
                self.known = self
                    .segments
                    .iter()
                    .filter_map(|(&generation, segment)| Some((segment.slot?, generation)))
                    .map(|(slot, generation)| (slot, u64::from(generation)))
                    .collect();
                self.state.tables = found.tables;
                let segments = &self.segments;
                self.state.tables.relocations.retain(|found| segments.contains_key(&found));
                self.start = found.chain;
                for slot in found.unaccounted {
                    self.state.list(slot.0);
                }
            }
            Err(HeaderError::Version(version)) => {
                return self.refuse(Refusal::Version(file, version));
            }
            Err(HeaderError::Invalid) => {
                self.damages.push(Damage { file, offset: 0, bytes: root.length });
                self.start_rebuild();
            }
        }
        self.probe(out);
    }

    /// All segments are known: reading starts.
    fn begin(&mut self, out: &mut Operations) {
        let first = self.tails.keys().next().copied();
        if self.has_no_root()
            && !self.tails.is_empty()
            && !self.tails.values().any(|tail| (tail.number, tail.previous_crc) == (0, 0))
        {
            self.lose_root();
        }
        if self.replay.is_rebuild() {
            self.at = (first.unwrap_or(1), SEGMENT_HEADER_BYTES);
        }
        self.passes.begin(self.chain, self.evidence);
        match self.tails.get(&self.at.0).copied() {
            None => self.follow(out),
            Some(tail) if self.seems_whole() => {
                let (file, offset) = (self.segment_file(tail.slot), self.at.1 as u64);
                let length = BATCH_HEADER_BYTES;
                self.ask(Action::Read { file, offset, length }, Wait::Peek, out);
            }
            Some(_) => self.read_tail(self.at.0, out),
        }
    }

    /// No root says where to begin, so reading begins with the first segment of all.
    fn has_no_root(&self) -> bool {
        self.root.is_none() && !self.replay.is_rebuild()
    }

    /// Whether segments are missing between this one and the next there is.
    fn are_missing_behind(&self, generation: u32) -> bool {
        let next = self.tails.range(behind(generation)).next();
        next.is_some_and(|(&next, _)| generation.checked_add(1) != Some(next))
    }

    /// Segments are missing that only a checkpoint can have let go: there was a root once.
    fn lose_root(&mut self) {
        let file = File::Root(self.settings.log);
        let is_there = self.files.iter().any(|(found, _)| *found == file);
        let bytes = if is_there { ROOT_RECORD_BYTES as u64 } else { 0 };
        self.damages.push(Damage { file, offset: 0, bytes });
        self.start_rebuild();
    }

    /// Segments are missing behind those that follow each other from the beginning of the log. Up to here that
    /// was taken for a log of which nothing was ever let go, where copies of messages do not count: it is read
    /// again as one whose checkpoint is lost.
    fn read_anew(&mut self, out: &mut Operations) {
        self.state = State::default();
        self.segments.clear();
        self.replay = Replay::default();
        self.kept.clear();
        self.damages.clear();
        self.opaque_batches.clear();
        self.log_bytes = 0;
        (self.chain, self.evidence) = (Chain::default(), Position(0));
        self.image = None;
        self.is_gathered = false;
        self.gathering.clear();
        self.lose_root();
        self.begin(out);
    }

    /// After an orderly stop a log of messages has nothing behind its checkpoint: then its last
    /// segment need not be read.
    fn seems_whole(&self) -> bool {
        let last = self.tails.keys().next_back().copied();
        self.ends_with_checkpoint() && last == Some(self.at.0)
    }

    /// Whether an orderly stop left everything to a checkpoint.
    fn ends_with_checkpoint(&self) -> bool {
        let here = position(self.at.0, self.at.1 as u32);
        self.root.is_some_and(|(_, root)| root.is_clean)
            && !self.replay.is_rebuild()
            && self.evidence == here
    }

    /// What stands behind the checkpoint, if anything does, was read.
    fn peeked(&mut self, bytes: &[u8], out: &mut Operations) {
        let (generation, at) = self.at;
        let found = {
            let seed = self.keys.seed(generation, at as u32);
            BatchHeader::decode(bytes, self.keys.of(generation), seed)
        };
        match found {
            Some((header, _)) if header.number == self.chain.number => {
                self.read_tail(generation, out);
            }
            _ => self.follow(out),
        }
    }

    fn read_tail(&mut self, generation: u32, out: &mut Operations) {
        let Some(tail) = self.tails.get(&generation).copied() else { return };
        if tail.is_headless {
            let bytes = SEGMENT_HEADER_BYTES as u64;
            self.damages.push(Damage { file: self.segment_file(tail.slot), offset: 0, bytes });
        }
        let segment = Segment {
            slot: Some(tail.slot),
            file_bytes: u32::try_from(tail.length).unwrap_or(u32::MAX),
            is_sealed: true,
            has_settles: true,
            ..Segment::default()
        };
        self.segments.entry(generation).or_insert(segment).slot = Some(tail.slot);
        let file = self.segment_file(tail.slot);
        self.ask_fresh(file, tail.length, Fresh::Tail, out);
    }

    fn apply(&mut self, image: &Image<'_>, batch: &FoundBatch) {
        if let Some(first) = image.records(batch).next().filter(|first| first.kind == KIND_OPAQUE) {
            self.opaque_batches.push((position(image.generation, first.offset), self.chain));
        }
        for record in image.records(batch) {
            self.replay.apply(image.generation, &record, &mut self.state, &mut self.segments);
        }
        self.after(image.generation, batch);
    }

    /// The chain behind a batch.
    fn after(&mut self, generation: u32, batch: &FoundBatch) {
        let end = batch.records().end;
        self.chain = Chain {
            end: position(generation, end as u32),
            crc: batch.crc,
            number: batch.header.number.wrapping_add(1),
        };
        self.at = (generation, end);
        if let Some(segment) = self.segments.get_mut(&generation) {
            segment.used_bytes = end as u32;
        }
    }

    /// Applies batches for as long as they follow each other.
    fn follow(&mut self, out: &mut Operations) {
        let bytes = self.image.take().unwrap_or_default();
        loop {
            let (generation, at) = self.at;
            let image = Image { keys: self.keys, generation, bytes: &bytes };
            let found = image.header(at).filter(|found| {
                self.replay.is_rebuild()
                    || (found.header.number == self.chain.number
                        && found.header.previous_crc == self.chain.crc)
            });
            match found {
                Some(batch) if image.is_whole(&batch) => {
                    self.evidence = self.evidence.max(batch.header.synced);
                    self.apply(&image, &batch);
                }
                _ if !self.save(&image, at) => break,
                _ => {}
            }
        }
        self.image = Some(bytes);
        self.advance(out);
    }

    /// At a break: keeps what can be read if the break is known to be damage and something
    /// follows in this segment. False if the segment has nothing more.
    fn save(&mut self, image: &Image<'_>, at: usize) -> bool {
        if at >= image.bytes.len() {
            return false;
        }
        let here = image.header(at);
        let next = image.next_header(at + 1);
        let mut later = next;
        while let Some(found) = later {
            self.evidence = self.evidence.max(found.header.synced);
            later = image.next_header(found.offset + 1);
        }
        let is_damage = self.goes_on(image, at, here.is_some())
            || self.evidence > position(image.generation, at as u32)
            || (self.replay.is_rebuild() && next.is_some());
        // A sealed segment ends somewhere before the end of its file, and one that an earlier start
        // cut goes on behind the cut with what counts no more: the next segment follows right here.
        if !is_damage || self.follower().is_some() {
            return false;
        }
        if here.is_none() && next.is_none() && self.is_lost_behind(image, at) {
            return false;
        }
        // Where that segment was used again nothing tells such a cut from damage.
        let is_known = self.evidence > position(image.generation, at as u32)
            || image.generation.checked_add(1).is_some_and(|next| self.tails.contains_key(&next));
        let is_doubted = self.replay.is_rebuild() && !is_known;
        if is_doubted {
            self.replay.doubt(image.generation);
        }
        let start = if here.is_some() { at } else { at.min(image.bytes.len()) };
        let end = match (&here, &next) {
            (Some(batch), _) => batch.records().end.min(image.bytes.len()),
            (None, Some(next)) => next.offset,
            // The rest of the segment, as far as it was synced.
            (None, None)
                if generation(self.evidence) == image.generation
                    && offset(self.evidence) as usize > start =>
            {
                offset(self.evidence) as usize
            }
            (None, None) => image.bytes.len(),
        };
        let slot = self.segments.get(&image.generation).and_then(|segment| segment.slot);
        let (state, segments, replay) = (&mut self.state, &mut self.segments, &mut self.replay);
        let mut saved = 0;
        if here.is_some_and(|batch| image.is_whole(&batch)) {
            // The batch is whole, only what came before it is missing.
            saved = end - start;
        }
        if saved == 0 && !is_doubted {
            replay.meet_damage();
        }
        if let Some(batch) = here {
            if saved > 0 {
                self.apply(image, &batch);
            } else {
                image.salvage(batch.records(), |record| {
                    replay.apply(image.generation, &record, state, segments);
                });
                self.after(image.generation, &batch);
            }
        } else {
            image.salvage(start + BATCH_HEADER_BYTES..end, |record| {
                replay.apply(image.generation, &record, state, segments);
            });
            self.at = (image.generation, end);
            self.chain.end = position(image.generation, end as u32);
            if let Some(next) = next {
                self.chain.crc = next.header.previous_crc;
                self.chain.number = next.header.number;
            } else {
                // What is written behind the damage must not seem to follow right in front of it: a
                // later start would take the break for one that an earlier start had cut.
                self.chain.number = self.chain.number.wrapping_add(1);
            }
            if let Some(segment) = self.segments.get_mut(&image.generation) {
                segment.used_bytes = end as u32;
            }
        }
        if saved == 0 && !is_doubted {
            self.replay.meet_damage();
            self.kept.insert(image.generation);
        }
        if saved == 0 {
            self.damages.push(Damage {
                file: self.segment_file(slot.unwrap_or(u32::MAX)),
                offset: start as u64,
                bytes: (end - start) as u64,
            });
        }
        next.is_some() || here.is_some()
    }

    /// Whether a segment that a rebuild reads goes on at `at`, where no whole batch is. What is behind
    /// the segment is not read yet, and may have been used again since.
    fn goes_on(&mut self, image: &Image<'_>, at: usize, has_header: bool) -> bool {
        let behind = self.tails.range(behind(image.generation)).next();
        let Some((_, behind)) = behind.filter(|_| self.replay.is_rebuild()) else { return false };
        if generation(behind.synced) == image.generation {
            self.evidence = self.evidence.max(behind.synced);
        }
        if self.follower().is_some() {
            return false;
        }
        if has_header {
            return true;
        }
        if generation(behind.synced) == image.generation {
            return self.evidence > position(image.generation, at as u32);
        }
        // Nothing says where it ended. It is damaged if there are records without a batch.
        let mut has_records = false;
        image.salvage(at + BATCH_HEADER_BYTES..image.bytes.len(), |_| has_records = true);
        has_records
    }

    /// The segment whose first batch follows the last one read.
    fn follower(&self) -> Option<u32> {
        let behind = self.tails.range(behind(self.at.0));
        let mut matching = behind.filter(|(_, tail)| {
            tail.number == self.chain.number && tail.previous_crc == self.chain.crc
        });
        matching.next().map(|(&generation, _)| generation)
    }

    /// The current segment has nothing more that follows.
    fn advance(&mut self, out: &mut Operations) {
        let next = if self.replay.is_rebuild() {
            self.tails.range(behind(self.at.0)).next().map(|(&generation, _)| generation)
        } else {
            self.follower()
        };
        if let Some(generation) = next {
            if self.replay.is_rebuild() {
                self.keep_unexplained(self.at.0 + 1..generation);
            }
            self.at = (generation, SEGMENT_HEADER_BYTES);
            return self.read_tail(generation, out);
        }
        if !self.is_gathered {
            self.is_gathered = true;
            for (&generation, tail) in self.tails.range(behind(self.at.0)) {
                self.evidence = self.evidence.max(tail.synced);
                self.gathering.push_back(generation);
            }
        }
        if let Some(tail) = self.gathering.front().and_then(|next| self.tails.get(next)) {
            let (file, length) = (self.segment_file(tail.slot), tail.length);
            return self.ask_fresh(file, length, Fresh::Evidence, out);
        }
        self.decide(out);
    }

    fn gather(&mut self, bytes: &[u8], out: &mut Operations) {
        if let Some(generation) = self.gathering.pop_front() {
            let image = Image { keys: self.keys, generation, bytes };
            let mut found = image.next_header(SEGMENT_HEADER_BYTES);
            while let Some(batch) = found {
                self.evidence = self.evidence.max(batch.header.synced);
                found = image.next_header(batch.offset + 1);
            }
        }
        self.advance(out);
    }

    /// Nothing follows the chain: damage, or the end of the log.
    fn decide(&mut self, out: &mut Operations) {
        let (current, at) = self.at;
        if self.evidence > self.chain.end && self.has_no_root() && self.are_missing_behind(current)
        {
            return self.read_anew(out);
        }
        if self.evidence > self.chain.end {
            let bytes = self.image.take().unwrap_or_default();
            let image = Image { keys: self.keys, generation: current, bytes: &bytes };
            let before = self.at;
            let more = self.save(&image, at);
            if more || self.at != before {
                self.image = Some(bytes);
                return self.follow(out);
            }
            // Whole segments are missing: go on with the next there is.
            let next =
                self.tails.range(behind(current)).next().map(|(&found, tail)| (found, *tail));
            if let Some((generation, tail)) = next {
                if !self.tails.contains_key(&current) {
                    self.replay.meet_damage();
                    self.keep_unread(current, at);
                }
                if generation > current + 1 {
                    self.replay.meet_damage();
                    self.keep_unexplained(current + 1..generation);
                    let file = self.segment_file(tail.slot);
                    self.damages.push(Damage { file, offset: 0, bytes: 0 });
                }
                self.chain.number = tail.number;
                self.chain.crc = tail.previous_crc;
                self.at = (generation, SEGMENT_HEADER_BYTES);
                return self.read_tail(generation, out);
            }
            self.lose_rest();
        }
        self.image = None;
        self.end_pass(out);
    }

    /// Everything was read: the owner is asked, or the log is this run's.
    fn end_reading(&mut self, out: &mut Operations) {
        self.is_read = true;
        if !self.settings.asks_first {
            self.take_over(out);
        }
    }

    /// The checkpoint names more than there is, in a segment of which nothing can be told any more.
    fn lose_rest(&mut self) {
        let last = generation(self.evidence);
        let Some(slot) = self.segments.get(&last).and_then(|segment| segment.slot) else { return };
        let begin = if last == generation(self.chain.end) { offset(self.chain.end) } else { 0 };
        self.kept.insert(last);
        self.damages.push(Damage {
            file: self.segment_file(slot),
            offset: begin.into(),
            bytes: offset(self.evidence).saturating_sub(begin).into(),
        });
        self.chain.end = self.evidence;
        self.chain.number = self.chain.number.wrapping_add(1);
    }

    fn finish(&mut self, _out: &mut Operations) {
        if self.waits.is_empty() {
            self.result = Some(Ok(()));
        }
    }

    /// Keeps segments with damage in what was read: no index knows what was lost there, and the bytes must
    /// not go with the last message beside them, nor the whole parts of a message that was cut. They are held as if a part of a message lay there.
    fn keep_damaged(&mut self) {
        let kept = self.kept.union(&self.replay.cut).filter(|_| !self.settings.asks_first);
        for generation in kept {
            if let Some(segment) = self.segments.get_mut(generation) {
                segment.pins = segment.pins.saturating_add(1);
            }
        }
    }

    /// What was found, once [`Recovery::result`] is good.
    pub(crate) fn into_recovered(mut self) -> Recovered {
        let is_clean = self.was_clean && self.replay.records == 0 && self.damages.is_empty();
        self.keep_damaged();
        let used: BTreeSet<u32> =
            self.segments.values().filter_map(|segment| segment.slot).collect();
        let mut spare = Vec::new();
        let (mut next_slot, mut checkpoint_number) = (0, 0);
        let mut obsolete = Vec::new();
        let valid = self.root.zip(self.base_bytes).map(|((_, root), base_bytes)| Valid {
            number: root.number,
            length: root.length,
            base_bytes,
            crc: root.crc,
        });
        for (file, length) in &self.files {
            match *file {
                File::Segment(_, slot) => {
                    next_slot = next_slot.max(slot + 1);
                    if used.contains(&slot) {
                    } else if *length == u64::from(self.settings.segment_bytes) {
                        spare.push(slot);
                    } else {
                        obsolete.push(*file);
                    }
                }
                File::Checkpoint(_, number) => {
                    checkpoint_number = checkpoint_number.max(number);
                    obsolete.push(*file);
                }
                _ => {}
            }
        }
        if !is_clean {
            self.state.lanes.forget_delivered();
        }
        let index = self.files.iter().find(|(file, _)| matches!(file, File::Index(_)));
        let index_bytes = index.map(|(_, length)| *length).max(self.passes.index_bytes());
        let root_index = self.root.map_or(0, |(index, _)| 1 - index);
        let number = self.root.map_or(0, |(_, root)| root.number);
        let resume = Resume {
            keys: self.keys,
            generation: self.next_generation(),
            chain: self.chain,
            segments: core::mem::take(&mut self.segments),
            spare,
            next_slot,
        };
        Recovered {
            state: self.state,
            used_pages: self.used_pages,
            index_bytes,
            has_written_pages: self.passes.index_bytes().is_some(),
            rebuilt: self.replay.rebuilt,
            resume,
            opaque: self.replay.opaque,
            start: self.start,
            valid,
            checkpoint_number: checkpoint_number.max(number) + 1,
            checkpoint: self.root.map(|(_, root)| File::Checkpoint(root.log, root.number)),
            root_index,
            obsolete,
            damages: self.damages,
            is_clean,
            log_bytes: self.log_bytes,
        }
    }
}
