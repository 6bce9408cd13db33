//! Checkpoints: the whole state of a store at one position of its log, in one file, and the root
//! that names the valid one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lepus_base::Position;

use crate::checksum::crc;
use crate::disk::LogId;
use crate::lane::{Summary, skip_runs};
use crate::log::{Chain, Segment};
use crate::place::position;
use crate::segment::{FORMAT_VERSION, HeaderError};
use crate::varint::{Reader, put};

/// First bytes of a checkpoint.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"LEPUSCKP";
/// The version of a checkpoint's format that is written.
pub const CHECKPOINT_VERSION: u16 = 2;
/// The oldest one that is read: it does not say what was delivered.
const CHECKPOINT_VERSION_MIN: u16 = 1;
/// First bytes of a root record.
pub const ROOT_MAGIC: [u8; 8] = *b"LEPUSROT";
/// Bytes of a checkpoint before its body.
const HEADER_BYTES: usize = 64;
/// Bytes of one root record.
pub const ROOT_RECORD_BYTES: usize = 64;
/// Distance of the two root records in their file.
pub const ROOT_STRIDE_BYTES: usize = 4096;

/// Where a copied message lies now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relocation {
    pub to: Position,
    pub references: u32,
    /// Of a spilled message, which no checkpoint knows.
    pub is_transient: bool,
}

/// A message in several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub generation_last: u32,
    pub references: u32,
    pub is_transient: bool,
}

/// What recovery rebuilds and a checkpoint holds, without the log's own state.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub relocations: BTreeMap<Position, Relocation>,
    pub spans: BTreeMap<Position, Span>,
}

impl Tables {
    /// `references` more entries whose message was first at `origin` find it at `to`.
    pub(crate) fn add_relocation(&mut self, origin: Position, to: Position, references: u32) {
        let empty = Relocation { to, references: 0, is_transient: false };
        let relocation = self.relocations.entry(origin).or_insert(empty);
        relocation.to = to;
        relocation.references += references;
    }

    /// A segment is gone: nothing that nobody refers to needs to be known of it.
    pub(crate) fn forget(&mut self, generation: u32) {
        let range = position(generation, 0)..=position(generation, u32::MAX);
        let rows = self.relocations.range(range).filter(|(_, row)| row.references == 0);
        for origin in rows.map(|(&origin, _)| origin).collect::<Vec<_>>() {
            self.relocations.remove(&origin);
        }
    }

    /// Where the message is that was first written at `origin`.
    pub(crate) fn place(&self, origin: Position) -> Position {
        if self.relocations.is_empty() {
            return origin;
        }
        self.relocations.get(&origin).map_or(origin, |relocation| relocation.to)
    }
}

/// The root record.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | magic `LEPUSROT` |
/// | 8 | 2 | format version |
/// | 10 | 2 | 1 after a clean stop, otherwise 0 |
/// | 12 | 4 | log id |
/// | 16 | 8 | number of the checkpoint |
/// | 24 | 8 | length of its file |
/// | 32 | 4 | CRC32C of its file |
/// | 36 | 24 | zero |
/// | 60 | 4 | CRC32C of bytes 0 to 59 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The log.
    pub log: LogId,
    /// Which checkpoint is valid.
    pub number: u64,
    /// Length of its file in bytes.
    pub length: u64,
    /// Checksum of its file.
    pub crc: u32,
    /// Whether nothing was appended behind it.
    pub is_clean: bool,
}

impl Root {
    /// The record as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROOT_RECORD_BYTES);
        bytes.extend_from_slice(&ROOT_MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&u16::from(self.is_clean).to_le_bytes());
        bytes.extend_from_slice(&self.log.0.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&self.crc.to_le_bytes());
        bytes.resize(ROOT_RECORD_BYTES - 4, 0);
        let sum = crc(0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// As for a segment's header.
    pub fn decode(bytes: &[u8]) -> Result<Root, HeaderError> {
        Self::fields(bytes).unwrap_or(Err(HeaderError::Invalid))
    }

    fn fields(bytes: &[u8]) -> Option<Result<Root, HeaderError>> {
        let bytes = bytes.get(..ROOT_RECORD_BYTES)?;
        let mut reader = Reader(bytes);
        let sum = Reader(&bytes[60..]).u32()?;
        if reader.bytes(8)? != ROOT_MAGIC || sum != crc(0, &bytes[..60]) {
            return None;
        }
        let word = reader.u32()?;
        let version = word as u16;
        if version != FORMAT_VERSION {
            return Some(Err(HeaderError::Version(version)));
        }
        Some(Ok(Root {
            is_clean: word >> 16 != 0,
            log: LogId(reader.u32()?),
            number: reader.u64()?,
            length: reader.u64()?,
            crc: reader.u32()?,
        }))
    }
}

/// A checkpoint taken apart.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    version: u16,
    pub chain: Chain,
    /// The generation new batches went to.
    pub generation: u32,
    pub segments: BTreeMap<u32, Segment>,
    pub tables: Tables,
    /// Lanes, not taken apart: where the first is in the file, and how many there are.
    pub lanes: (usize, u64),
}

/// Writes a checkpoint up to its lanes. Transient messages are left out.
pub(crate) fn encode(
    (log, number, chain, generation): (LogId, u64, Chain, u32),
    segments: &BTreeMap<u32, Segment>,
    tables: &Tables,
    lanes: usize,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&CHECKPOINT_MAGIC);
    out.extend_from_slice(&u32::from(CHECKPOINT_VERSION).to_le_bytes());
    out.extend_from_slice(&log.0.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&chain.end.0.to_le_bytes());
    out.extend_from_slice(&chain.crc.to_le_bytes());
    out.extend_from_slice(&generation.to_le_bytes());
    out.extend_from_slice(&chain.number.to_le_bytes());
    out.resize(HEADER_BYTES, 0);
    put(&mut out, segments.len() as u64);
    for (&generation, segment) in segments {
        put(&mut out, generation.into());
        put(&mut out, segment.slot.map_or(0, |slot| u64::from(slot) + 1));
        put(&mut out, segment.live);
        put(&mut out, segment.live_bytes);
        put(&mut out, segment.file_bytes.into());
        put(&mut out, segment.used_bytes.into());
        put(&mut out, segment.pins.into());
    }
    let relocations = tables.relocations.iter().filter(|(_, row)| !row.is_transient);
    put(&mut out, relocations.clone().count() as u64);
    for (origin, relocation) in relocations {
        put(&mut out, origin.0);
        put(&mut out, relocation.to.0);
        put(&mut out, relocation.references.into());
    }
    let spans = tables.spans.iter().filter(|(_, span)| !span.is_transient);
    put(&mut out, spans.clone().count() as u64);
    for (start, span) in spans {
        put(&mut out, start.0);
        put(&mut out, span.generation_last.into());
        put(&mut out, span.references.into());
    }
    put(&mut out, lanes as u64);
    out
}

/// Reads a checkpoint.
///
/// # Errors
/// As for a segment's header.
pub(crate) fn decode(bytes: &[u8]) -> Result<Checkpoint, HeaderError> {
    let Some((covered, sum)) = bytes.split_last_chunk::<4>() else {
        return Err(HeaderError::Invalid);
    };
    if crc(0, covered) != u32::from_le_bytes(*sum) || covered.len() < HEADER_BYTES {
        return Err(HeaderError::Invalid);
    }
    fields(covered).unwrap_or(Err(HeaderError::Invalid))
}

fn fields(bytes: &[u8]) -> Option<Result<Checkpoint, HeaderError>> {
    let mut reader = Reader(bytes);
    if reader.bytes(8)? != CHECKPOINT_MAGIC {
        return None;
    }
    let version = reader.u32()? as u16;
    if !(CHECKPOINT_VERSION_MIN..=CHECKPOINT_VERSION).contains(&version) {
        return Some(Err(HeaderError::Version(version)));
    }
    let (_log, _number) = (reader.u32()?, reader.u64()?);
    let (end, crc) = (Position(reader.u64()?), reader.u32()?);
    let generation = reader.u32()?;
    let chain = Chain { end, crc, number: reader.u64()? };
    let body = bytes.get(HEADER_BYTES..)?;
    let mut reader = Reader(body);
    let mut segments = BTreeMap::new();
    for _ in 0..reader.varint()? {
        let generation = reader.varint32()?;
        let slot = reader.varint32()?;
        let segment = Segment {
            slot: slot.checked_sub(1),
            live: reader.varint()?,
            live_bytes: reader.varint()?,
            file_bytes: reader.varint32()?,
            used_bytes: reader.varint32()?,
            pins: reader.varint32()?,
            live_transient: 0,
            live_transient_bytes: 0,
            is_sealed: true,
        };
        segments.insert(generation, segment);
    }
    let mut tables = Tables::default();
    for _ in 0..reader.varint()? {
        let origin = Position(reader.varint()?);
        let (to, references) = (Position(reader.varint()?), reader.varint32()?);
        tables.relocations.insert(origin, Relocation { to, references, is_transient: false });
    }
    for _ in 0..reader.varint()? {
        let start = Position(reader.varint()?);
        let (generation_last, references) = (reader.varint32()?, reader.varint32()?);
        tables.spans.insert(start, Span { generation_last, references, is_transient: false });
    }
    let count = reader.varint()?;
    let lanes = (bytes.len() - reader.0.len(), count);
    Some(Ok(Checkpoint { version, chain, generation, segments, tables, lanes }))
}

impl Checkpoint {
    /// Goes through the lanes of the checkpoint in `bytes`: what each amounts to, and its bytes as
    /// [`crate::lane::LaneIndex::decode`] reads them.
    /// Notes all pages of the index file that are in use. `None` where the bytes are no lanes.
    pub(crate) fn each_lane(
        &self,
        bytes: &[u8],
        slots: &mut Vec<u32>,
        mut each: impl FnMut(&Summary, &[u8]) -> Option<()>,
    ) -> Option<()> {
        let (start, count) = self.lanes;
        let mut unmarked = Vec::new();
        let mut reader = Reader(bytes.get(start..bytes.len().checked_sub(4)?)?);
        for _ in 0..count {
            let all = reader.0;
            let mut summary = Summary::skip(&mut reader, slots)?;
            if self.version == 1 {
                // It does not say what was delivered: anything may have been.
                summary.delivered_below = summary.next;
                unmarked.clear();
                unmarked.extend_from_slice(&all[..all.len() - reader.0.len()]);
                unmarked.push(0);
                each(&summary, &unmarked)?;
                continue;
            }
            skip_runs(&mut reader)?;
            let lane = &all[..all.len() - reader.0.len()];
            summary.delivered_below = reader.varint()?;
            each(&summary, lane)?;
        }
        reader.is_empty().then_some(())
    }
}
