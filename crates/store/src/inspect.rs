//! Files of a log looked at from outside, for `lepus store`: what they hold and what of them is
//! damaged. Pure, over bytes; nothing here panics, whatever the bytes are.

use alloc::vec::Vec;
use lepus_base::{Position, QueueId};

pub use crate::keys::{KEYS_OFFSETS, KEYS_RECORD_BYTES};
pub use crate::lane::PAGE_BYTES;
pub use crate::root::{ROOT_RECORD_BYTES, ROOT_STRIDE_BYTES};
pub use crate::segment::{HeaderError, SEGMENT_BYTES_MAX, SegmentHeader};

use crate::checkpoint;
use crate::keys::Keys;
use crate::place::position;
use crate::record::{
    self, KIND_FILLER, KIND_FRAGMENT, KIND_MESSAGE, KIND_OPAQUE, KIND_QUEUE_DROPPED, KIND_SETTLES,
    Lane, MessageRecord, Names, RECORD_HEADER_BYTES, Reference, each_settle,
};
use crate::root::Root;
use crate::scan;
use crate::scan::{FoundBatch, FoundRecord, Image};
use crate::segment::{BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES, batch_magic};
use crate::varint::Reader;

/// What a segment is made of.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// The header of a batch; its records follow.
    Batch(Batch),
    /// A record: its offset, and what it says.
    Record(u32, Content<'a>),
    /// Bytes that can be neither.
    Gap(Gap),
}

/// The records of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where it begins.
    pub offset: u32,
    /// Its number in the log.
    pub number: u64,
    /// Number of its records.
    pub records: u32,
    /// Bytes of its records.
    pub bytes: u32,
    /// What was known to be synced when it was handed to the disk.
    pub synced: Position,
}

/// Bytes of a segment that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where they begin.
    pub offset: u32,
    /// How many there are.
    pub bytes: u32,
}

/// A message's record.
#[derive(Clone, Debug)]
pub struct MessagePart<'a> {
    /// The queues it is in.
    pub references: Vec<Reference>,
    /// Exchange and routing key, where they are found.
    pub names: Option<(&'a [u8], &'a [u8])>,
    /// Properties as they came.
    pub properties: &'a [u8],
    /// The body, as far as it is in this record.
    pub body: &'a [u8],
    /// Length of the whole body.
    pub body_bytes: u32,
    /// It does not outlive the broker's run.
    pub is_transient: bool,
    /// Where it was first, if compaction copied it.
    pub origin: Option<Position>,
}

/// What a record says.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// A message, or its first part.
    Message(MessagePart<'a>),
    /// A further part of the message before.
    Fragment(&'a [u8]),
    /// Messages that are done with: lane, first number, end.
    Settles(Vec<(Lane, u64, u64)>),
    /// A queue was deleted.
    QueueDropped(QueueId),
    /// Something that means nothing to the store: a change of definitions.
    Opaque(&'a [u8]),
    /// So many bytes up to the end of a page.
    Filler(usize),
    /// A checksum that is right, and nothing that this version knows.
    Unknown(u8),
}

/// What a segment's bytes amount to.
#[derive(Clone, Debug)]
pub struct SegmentReport {
    /// Its header, if that is intact.
    pub header: Result<SegmentHeader, HeaderError>,
    /// Which segment of the log it is; `None` if it was never used.
    pub generation: Option<u32>,
    /// Number of its first batch and the checksum of the batch before, as the first batch says.
    pub first: Option<(u64, u32)>,
    /// The same for the batch that would follow.
    pub next: (u64, u32),
    /// Where the last batch ends.
    pub end: u32,
    /// Batches that are whole.
    pub batches: u64,
    /// Records found.
    pub records: u64,
    /// The highest position that it names as synced.
    pub synced: Position,
    /// What could not be read between batches that could, and damaged batches.
    pub gaps: Vec<Gap>,
}

/// Goes through a segment and tells `each` what is in it. Of its log's `keys` only those count that its
/// header does not say, if it is damaged.
pub fn segment<'a>(
    mut keys: Keys,
    bytes: &'a [u8],
    mut each: impl FnMut(Part<'a>),
) -> SegmentReport {
    let header = SegmentHeader::decode(bytes);
    let generation = match &header {
        Ok(header) => {
            keys.learn(header.generation, header.key);
            Some(header.generation)
        }
        Err(HeaderError::Version(_)) => None,
        Err(HeaderError::Invalid) => {
            let life = scan::first_batch(keys, bytes);
            life.map(|life| {
                keys.learn(life.generation, life.key);
                life.generation
            })
        }
    };
    let mut report = SegmentReport::new(header, generation);
    let Some(generation) = generation else { return report };
    if let Ok(header) = &report.header {
        report.next = (header.batch_number, header.previous_crc);
    } else {
        report.gaps.push(Gap { offset: 0, bytes: SEGMENT_HEADER_BYTES as u32 });
    }
    report.batches(&Image { keys, generation, bytes }, &mut each);
    report
}

/// What cannot be read of the segment that is known to be `generation`. `bytes` are all that was written
/// of it, so that also what is damaged behind the last batch that can be found is told.
#[must_use]
pub fn damage(keys: Keys, generation: u32, bytes: &[u8]) -> Vec<Gap> {
    let mut report = SegmentReport::new(SegmentHeader::decode(bytes), Some(generation));
    if !matches!(&report.header, Ok(header) if header.generation == generation) {
        let length = bytes.len().min(SEGMENT_HEADER_BYTES);
        report.gaps.push(Gap { offset: 0, bytes: length as u32 });
    }
    report.batches(&Image { keys, generation, bytes }, &mut |_| ());
    let rest = bytes.get(report.end as usize..).unwrap_or_default();
    // Zeros are what was prepared and not written: damage that left no batch behind it is taken to go on
    // up to the end of the file.
    if rest.iter().any(|byte| *byte != 0) {
        report.gaps.push(Gap { offset: report.end, bytes: rest.len() as u32 });
    }
    report.gaps
}

impl SegmentReport {
    fn new(header: Result<SegmentHeader, HeaderError>, generation: Option<u32>) -> SegmentReport {
        SegmentReport {
            generation,
            first: None,
            next: (0, 0),
            end: SEGMENT_HEADER_BYTES as u32,
            batches: 0,
            records: 0,
            synced: header.as_ref().map_or(Position(0), |header| header.synced),
            gaps: Vec::new(),
            header,
        }
    }

    /// All batches, and what is between them.
    fn batches<'a>(&mut self, image: &Image<'a>, each: &mut impl FnMut(Part<'a>)) {
        let mut at = SEGMENT_HEADER_BYTES;
        while let Some(batch) = image.header(at).or_else(|| image.next_header(at)) {
            if batch.offset > at {
                self.gap(image, at, batch.offset, each);
            }
            at = batch.records().end.min(image.bytes.len());
            self.batch(image, &batch, at, each);
        }
    }

    fn batch<'a>(
        &mut self,
        image: &Image<'a>,
        batch: &FoundBatch,
        end: usize,
        each: &mut impl FnMut(Part<'a>),
    ) {
        let header = &batch.header;
        self.first.get_or_insert((header.number, header.previous_crc));
        self.next = (header.number.saturating_add(1), batch.crc);
        self.synced = self.synced.max(header.synced);
        self.end = end as u32;
        each(Part::Batch(Batch {
            offset: batch.offset as u32,
            number: header.number,
            records: header.records,
            bytes: header.length,
            synced: header.synced,
        }));
        if !image.is_whole(batch) {
            return self.gap(image, batch.offset, end, each);
        }
        self.batches += 1;
        for record in image.records(batch) {
            self.records += 1;
            each(Part::Record(record.offset, content(image, &record)));
        }
    }

    /// Bytes that are no batch, or a damaged one: some of its records may be whole.
    fn gap<'a>(
        &mut self,
        image: &Image<'a>,
        offset: usize,
        end: usize,
        each: &mut impl FnMut(Part<'a>),
    ) {
        let gap = Gap { offset: offset as u32, bytes: end.saturating_sub(offset) as u32 };
        self.gaps.push(gap);
        each(Part::Gap(gap));
        image.salvage(offset + BATCH_HEADER_BYTES..end, |record| {
            self.records += 1;
            each(Part::Record(record.offset, content(image, &record)));
        });
    }
}

/// Where the whole records begin that are parts of messages in several segments. `bytes` are as for
/// [`damage`].
#[must_use]
pub fn message_parts(keys: Keys, generation: u32, bytes: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    let mut report = SegmentReport::new(SegmentHeader::decode(bytes), Some(generation));
    report.batches(&Image { keys, generation, bytes }, &mut |part| match part {
        Part::Record(at, Content::Fragment(_)) => found.push(at),
        Part::Record(at, Content::Message(message))
            if (message.body_bytes as usize) > message.body.len() =>
        {
            found.push(at);
        }
        _ => {}
    });
    found
}

/// Opaque records within damaged bytes, each with its offset, as far as their lengths tell where they
/// are: some may be whole, others say what nobody can vouch for.
#[must_use]
pub fn torn_records(
    keys: Keys,
    generation: u32,
    bytes: &[u8],
    damage: core::ops::Range<usize>,
) -> Vec<(u32, &[u8])> {
    let bytes = bytes.get(..damage.end.min(bytes.len())).unwrap_or_default();
    let mut at = behind_header(keys, generation, bytes, damage.start);
    let mut found = Vec::new();
    while let Some((kind, length)) = bytes.get(at..).and_then(record::peek)
        && let Some(payload) = bytes.get(at + RECORD_HEADER_BYTES..at + length)
    {
        if kind == KIND_OPAQUE {
            found.push((at as u32, payload));
        }
        at += length;
    }
    found
}

/// Where records may begin that are damaged from `at` on: behind what begins as a batch does.
fn behind_header(keys: Keys, generation: u32, bytes: &[u8], at: usize) -> usize {
    let magic = batch_magic(keys.of(generation));
    let is_batch = bytes.get(at..).is_some_and(|rest| rest.starts_with(&magic));
    if is_batch { at + BATCH_HEADER_BYTES } else { at }
}

fn content<'a>(image: &Image<'a>, record: &FoundRecord<'a>) -> Content<'a> {
    let known = match record.kind {
        KIND_MESSAGE => message(image, record.payload).map(Content::Message),
        KIND_FRAGMENT => Some(Content::Fragment(record.payload)),
        KIND_SETTLES => {
            let mut runs = Vec::new();
            each_settle(record.payload, |lane, first, end| runs.push((lane, first, end)))
                .then_some(Content::Settles(runs))
        }
        KIND_QUEUE_DROPPED => {
            Reader(record.payload).varint().map(|queue| Content::QueueDropped(QueueId(queue)))
        }
        KIND_OPAQUE => Some(Content::Opaque(record.payload)),
        KIND_FILLER => Some(Content::Filler(record.payload.len())),
        _ => None,
    };
    known.unwrap_or(Content::Unknown(record.kind))
}

fn message<'a>(image: &Image<'a>, payload: &'a [u8]) -> Option<MessagePart<'a>> {
    let record = MessageRecord::decode(payload)?;
    let names = match record.names {
        Names::Here(exchange, routing_key) => Some((exchange, routing_key)),
        Names::At(lender) => image.names(lender),
    };
    Some(MessagePart {
        references: record.references().collect(),
        names,
        properties: record.properties,
        body: record.body,
        body_bytes: record.body_bytes,
        is_transient: record.is_transient(),
        origin: record.origin,
    })
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was written there.
    Missing,
    /// Its checksum or its length is wrong: nothing whole follows where it should end.
    Length,
    /// The checksum does not fit what it covers.
    Checksum,
    /// It is whole, but another kind of record, or one that cannot be understood.
    Kind,
}

/// The record that is looked for at some place of a segment.
#[derive(Clone, Debug)]
pub struct RecordReport<'a> {
    /// All of its place: up to the next record that is whole where its own length cannot be right.
    pub bytes: &'a [u8],
    /// What is wrong with it.
    pub fault: Option<Fault>,
    /// What it says as a message. Nobody vouches for that where it has a fault.
    pub message: Option<MessagePart<'a>>,
    /// Where the record is that has its exchange and routing key, if they are not in this one.
    pub lender: Option<u32>,
    /// What it says as a further part of a message. Nobody vouches for that where it has a fault.
    pub fragment: Option<&'a [u8]>,
}

/// Looks at the record of a message, or of a part of one, at `offset` of a segment. `bytes` are the
/// segment's up to where it was written.
#[must_use]
pub fn record_at(keys: Keys, generation: u32, bytes: &[u8], offset: u32) -> RecordReport<'_> {
    let image = Image { keys, generation, bytes };
    let at = (offset as usize).min(bytes.len());
    let rest = &bytes[at..];
    let (length, mut fault) = match record::peek(rest) {
        _ if rest.is_empty() => (0, Some(Fault::Missing)),
        Some((_, length)) if image.is_record(at) => (length, None),
        Some((_, length)) if image.is_boundary(at + length) => (length, Some(Fault::Checksum)),
        _ => (image.next_boundary(at) - at, Some(Fault::Length)),
    };
    let bytes = rest.get(..length).unwrap_or(rest);
    let kind = record::peek(bytes).map(|(kind, _)| kind).filter(|_| fault != Some(Fault::Length));
    let payload = bytes.get(RECORD_HEADER_BYTES..).unwrap_or_default();
    let is_message = kind == Some(KIND_MESSAGE);
    let decoded = is_message.then(|| MessageRecord::decode(payload)).flatten();
    let fragment = (kind == Some(KIND_FRAGMENT)).then_some(payload);
    if fault.is_none() && decoded.is_none() && fragment.is_none() {
        fault = Some(Fault::Kind);
    }
    let lender = decoded.as_ref().and_then(|record| match record.names {
        Names::At(lender) => Some(lender),
        Names::Here(..) => None,
    });
    let message = decoded.is_some().then(|| message(&image, payload)).flatten();
    RecordReport { bytes, fault, message, lender, fragment }
}

/// Where the records begin that are damaged within a gap of a segment, as far as the lengths of those
/// before them tell; the gap's own begin if nothing does. `bytes` are as for [`record_at`].
#[must_use]
pub fn damaged_records(keys: Keys, generation: u32, bytes: &[u8], gap: Gap) -> Vec<u32> {
    let end = (gap.offset as usize).saturating_add(gap.bytes as usize).min(bytes.len());
    let bytes = &bytes[..end];
    let mut at = behind_header(keys, generation, bytes, gap.offset as usize);
    let image = Image { keys, generation, bytes };
    let mut found = Vec::new();
    while at < end {
        let report = record_at(keys, generation, bytes, at as u32);
        if !image.is_record(at) {
            found.push(at as u32);
        }
        at += report.bytes.len().max(1);
    }
    found
}

/// What the file `root` says.
#[derive(Clone, Debug, Default)]
pub struct RootReport {
    /// The record that is valid.
    pub valid: Option<Root>,
    /// Offsets of records that are damaged. One may be torn by a loss of power.
    pub damaged: Vec<u64>,
    /// The version of a record that this program cannot read.
    pub version: Option<u16>,
}

/// Reads the file `root`.
#[must_use]
pub fn root(bytes: &[u8]) -> RootReport {
    let mut report = RootReport::default();
    for offset in [0, ROOT_STRIDE_BYTES] {
        let record = bytes.get(offset..).unwrap_or_default();
        match Root::decode(record) {
            Ok(root) if report.valid.is_none_or(|best| best.rank() < root.rank()) => {
                report.valid = Some(root);
            }
            Ok(_) => {}
            Err(HeaderError::Version(version)) => report.version = Some(version),
            Err(HeaderError::Invalid) => {
                let record = &record[..record.len().min(ROOT_RECORD_BYTES)];
                if record.iter().any(|byte| *byte != 0) {
                    report.damaged.push(offset as u64);
                }
            }
        }
    }
    report
}

/// A segment as a checkpoint has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// Which segment of the log.
    pub generation: u32,
    /// The number in its file's name, if it had one.
    pub slot: Option<u32>,
    /// References to messages in it that are not settled.
    pub live: u64,
    /// Bytes used.
    pub used_bytes: u32,
    /// Whether messages of it live, or parts of them.
    pub is_alive: bool,
}

/// What a checkpoint says.
#[derive(Clone, Debug, Default)]
pub struct CheckpointReport {
    /// Where the log goes on behind it.
    pub position: Position,
    /// The segments of the log.
    pub segments: Vec<SegmentRow>,
    /// Lanes, with the number of messages in each.
    pub lanes: Vec<(Lane, u64)>,
    /// Pages of the index file in use.
    pub pages: Vec<u32>,
}

/// Reads a checkpoint; `root` is the record that names it.
///
/// # Errors
/// Another version, or damage.
pub fn checkpoint(bytes: &[u8], root: &Root) -> Result<CheckpointReport, HeaderError> {
    // The file may be longer: what is behind did not become valid.
    let length = usize::try_from(root.length).map_err(|_| HeaderError::Invalid)?;
    let (bytes, _) = bytes.split_at_checked(length).ok_or(HeaderError::Invalid)?;
    if bytes.last_chunk::<4>().map(|sum| u32::from_le_bytes(*sum)) != Some(root.crc) {
        return Err(HeaderError::Invalid);
    }
    let found = checkpoint::load(bytes)?;
    let mut report = CheckpointReport {
        position: found.chain.end,
        pages: found.pages,
        ..CheckpointReport::default()
    };
    for (lane, slot) in found.lanes.all() {
        let live = found.lanes.summary(slot).map_or(0, |summary| summary.live);
        report.lanes.push((lane, live));
    }
    for (&generation, segment) in &found.segments {
        report.segments.push(SegmentRow {
            generation,
            slot: segment.slot,
            live: segment.live,
            used_bytes: segment.used_bytes,
            is_alive: segment.live > 0 || segment.pins > 0,
        });
    }
    Ok(report)
}

impl CheckpointReport {
    /// The highest position that the checkpoint knows of.
    #[must_use]
    pub fn end(&self) -> Position {
        let ends = self.segments.iter().map(|row| position(row.generation, row.used_bytes));
        ends.max().unwrap_or_default().max(self.position)
    }
}

/// Whether the page `number` of the index file is intact.
#[must_use]
pub fn is_page_whole(number: u32, bytes: &[u8]) -> bool {
    crate::lane::page_runs(number, bytes).is_some()
}
