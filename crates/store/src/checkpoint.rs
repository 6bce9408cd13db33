//! Checkpoints: the state of a store at one position of its log, in one file.
//!
//! The file is a row of sections. The first says everything; each further one says what changed since
//! the one before: the lanes that did, in the place of what was said of them before, and the small
//! tables as a whole. The root names how much of the file counts.

mod older;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lepus_base::{Position, QueueId};

use crate::checksum::crc;
use crate::disk::LogId;
use crate::lanes::{LaneSlot, Lanes};
use crate::log::{Chain, Segment};
use crate::record::Lane;
use crate::relocations::{Relocation, Relocations};
use crate::root::Root;
use crate::segment::HeaderError;
use crate::spans::{Span, Spans};
use crate::state::Tables;
use crate::varint::{Reader, put};

/// First bytes of each section of a checkpoint.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"LEPUSCKP";
/// The version of a checkpoint's format that is written.
pub const CHECKPOINT_VERSION: u16 = 4;
/// The version whose table of segments does not say how much all messages' references named.
const VERSION_WITHOUT_SHARES: u16 = 3;
/// Bytes of a section before its tables.
const HEADER_BYTES: usize = 64;
/// Bytes of the checksum behind each section.
const SUM_BYTES: usize = 4;

/// What is said before holds where this section says nothing else.
const FLAG_DELTA: u32 = 1;
/// What sections before say of deliveries does not count: everything may have been delivered.
const FLAG_DELIVERED: u32 = 2;

/// The checkpoint that is valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Valid {
    pub number: u64,
    /// How many bytes of its file count.
    pub length: u64,
    /// How many of them its first section has.
    pub base_bytes: u64,
    /// The checksum of the last section.
    pub crc: u32,
}

/// What a section begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    pub log: LogId,
    pub number: u64,
    pub chain: Chain,
    /// The generation new batches go to.
    pub generation: u32,
    /// The checksum of the section before, if this one says only what changed since.
    pub previous: Option<u32>,
    /// What sections before say of deliveries does not count.
    pub is_delivered: bool,
}

/// Begins a section: its header, and the tables that are short. Transient messages are left out.
/// [`put_block`]s of removed lanes, of moved messages and of lanes follow, then [`end_section`].
pub(crate) fn begin_section(
    head: &Head,
    segments: &BTreeMap<u32, Segment>,
    spans: &Spans,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut flags = if head.previous.is_some() { FLAG_DELTA } else { 0 };
    flags |= if head.is_delivered { FLAG_DELIVERED } else { 0 };
    out.extend_from_slice(&CHECKPOINT_MAGIC);
    out.extend_from_slice(&u32::from(CHECKPOINT_VERSION).to_le_bytes());
    out.extend_from_slice(&head.log.0.to_le_bytes());
    out.extend_from_slice(&head.number.to_le_bytes());
    out.extend_from_slice(&head.chain.end.0.to_le_bytes());
    out.extend_from_slice(&head.chain.crc.to_le_bytes());
    out.extend_from_slice(&head.generation.to_le_bytes());
    out.extend_from_slice(&head.chain.number.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&head.previous.unwrap_or(0).to_le_bytes());
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
        put(&mut out, segment.message_bytes);
        put(&mut out, segment.named_bytes);
    }
    let spans = spans.iter().filter(|(_, span)| !span.is_transient);
    put(&mut out, spans.clone().count() as u64);
    for (start, span) in spans {
        put(&mut out, start.0);
        put(&mut out, span.generation_last.into());
        put(&mut out, span.references.into());
    }
    out
}

/// Appends some rows of a table, if there are any; [`end_table`] says that there are no more.
pub(crate) fn put_block(out: &mut Vec<u8>, rows: u64, bytes: &[u8]) {
    if rows > 0 {
        put(out, rows);
        out.extend_from_slice(bytes);
    }
}

/// All rows of a table are there.
pub(crate) fn end_table(out: &mut Vec<u8>) {
    put(out, 0);
}

/// Appends a row of the table of removed lanes.
pub(crate) fn put_removed(out: &mut Vec<u8>, lane: Lane) {
    put(out, lane.queue.0);
    put(out, lane.level.into());
}

/// Appends a row of the table of moved messages.
pub(crate) fn put_relocation(out: &mut Vec<u8>, origin: Position, row: &Relocation) {
    put(out, origin.0);
    put(out, row.to.0);
    put(out, row.references.into());
}

/// The checksum of a file that goes on behind the checksum `sum`.
pub(crate) fn crc_behind(sum: u32) -> u32 {
    crc(sum, &sum.to_le_bytes())
}

/// The root of a checkpoint with one section more than `root` names, if a whole one follows in the
/// file.
pub(crate) fn follower(root: &Root, file: &[u8]) -> Option<Root> {
    let behind = file.get(usize::try_from(root.length).ok()?..)?;
    let mut reader = Reader(behind);
    Checkpoint::default().section(&mut reader, Some(root.crc))?;
    let section = behind.len() - reader.0.len();
    let sum = reader.u32()?;
    let length = root.length + (section + SUM_BYTES) as u64;
    let is_whole = crc(crc_behind(root.crc), &behind[..section]) == sum;
    is_whole.then_some(Root { length, crc: sum, is_clean: false, ..*root })
}

/// What a checkpoint says.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    pub chain: Chain,
    /// The generation new batches went to.
    pub generation: u32,
    pub segments: BTreeMap<u32, Segment>,
    pub tables: Tables,
    pub lanes: Lanes,
    /// Lanes with something to account for.
    pub unaccounted: Vec<LaneSlot>,
    /// Pages of the index file in use.
    pub pages: Vec<u32>,
    /// Bytes of the first section; `None` of an older version, to which nothing can be appended.
    pub base_bytes: Option<u64>,
}

/// Reads a checkpoint.
///
/// # Errors
/// As for a segment's header.
pub(crate) fn load(bytes: &[u8]) -> Result<Checkpoint, HeaderError> {
    let Some((covered, sum)) = bytes.split_last_chunk::<SUM_BYTES>() else {
        return Err(HeaderError::Invalid);
    };
    if crc(0, covered) != u32::from_le_bytes(*sum) || !covered.starts_with(&CHECKPOINT_MAGIC) {
        return Err(HeaderError::Invalid);
    }
    let version = Reader(&covered[CHECKPOINT_MAGIC.len()..]).u32().unwrap_or(0) as u16;
    let mut found = Checkpoint::default();
    let read = match version {
        1 | 2 => older::read(&mut found, version, covered),
        VERSION_WITHOUT_SHARES => {
            // No section of another version goes behind one of this.
            found.read(bytes).map(|()| found.base_bytes = None)
        }
        CHECKPOINT_VERSION => found.read(bytes),
        other => return Err(HeaderError::Version(other)),
    };
    read.and_then(|()| found.lanes.end_load(&mut found.pages))
        .map(|unaccounted| found.unaccounted = unaccounted)
        .ok_or(HeaderError::Invalid)?;
    Ok(found)
}

impl Checkpoint {
    /// Reads all sections.
    fn read(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        let mut previous = None;
        while !reader.is_empty() {
            self.section(&mut reader, previous)?;
            previous = Some(reader.u32()?);
            let end = bytes.len() - reader.0.len();
            self.base_bytes.get_or_insert(end as u64);
        }
        Some(())
    }

    /// Reads a section, which follows one with the checksum `previous`.
    fn section(&mut self, reader: &mut Reader<'_>, previous: Option<u32>) -> Option<()> {
        let (version, flags, claimed) = self.header(reader)?;
        let is_delta = flags & FLAG_DELTA != 0;
        // A section that was written over and came back would not follow the one before.
        if is_delta != previous.is_some() || claimed != previous.unwrap_or(0) {
            return None;
        }
        self.segments = segments(reader, version > VERSION_WITHOUT_SHARES)?;
        self.tables = Tables { spans: spans(reader)?, ..Tables::default() };
        self.lanes.begin_section();
        if flags & FLAG_DELIVERED != 0 {
            self.lanes.mark_all();
        }
        blocks(reader, |reader| {
            let queue = QueueId(reader.varint()?);
            let level = u16::try_from(reader.varint()?).ok()?;
            self.lanes.load_removed(Lane { queue, level });
            Some(())
        })?;
        blocks(reader, |reader| relocation(reader, &mut self.tables.relocations))?;
        blocks(reader, |reader| self.lanes.load(reader, true))
    }

    /// Reads a section's header: its version, its flags, and the checksum of the section before.
    fn header(&mut self, reader: &mut Reader<'_>) -> Option<(u16, u32, u32)> {
        let mut reader = Reader(reader.bytes(HEADER_BYTES)?);
        let is_known = reader.bytes(CHECKPOINT_MAGIC.len())? == CHECKPOINT_MAGIC;
        let version = reader.u32()? as u16;
        let (_log, _number) = (reader.u32()?, reader.u64()?);
        let (end, crc) = (Position(reader.u64()?), reader.u32()?);
        self.generation = reader.u32()?;
        self.chain = Chain { end, crc, number: reader.u64()? };
        is_known.then_some((version, reader.u32()?, reader.u32()?))
    }
}

/// Reads a table that comes in blocks.
fn blocks(
    reader: &mut Reader<'_>,
    mut row: impl FnMut(&mut Reader<'_>) -> Option<()>,
) -> Option<()> {
    loop {
        let rows = reader.varint()?;
        if rows == 0 {
            return Some(());
        }
        for _ in 0..rows {
            row(reader)?;
        }
    }
}

/// Reads the table of segments, which says how much all messages' references named if
/// `has_shares`.
fn segments(reader: &mut Reader<'_>, has_shares: bool) -> Option<BTreeMap<u32, Segment>> {
    let mut segments = BTreeMap::new();
    for _ in 0..reader.varint()? {
        let generation = reader.varint32()?;
        let slot = reader.varint32()?;
        let mut segment = Segment {
            slot: slot.checked_sub(1),
            live: reader.varint()?,
            live_bytes: reader.varint()?,
            file_bytes: reader.varint32()?,
            used_bytes: reader.varint32()?,
            pins: reader.varint32()?,
            live_transient: 0,
            live_transient_bytes: 0,
            message_bytes: 0,
            named_bytes: 0,
            is_sealed: true,
            has_settles: true,
        };
        if has_shares {
            (segment.message_bytes, segment.named_bytes) = (reader.varint()?, reader.varint()?);
        } else {
            // As if each message had one reference.
            (segment.message_bytes, segment.named_bytes) = (segment.live_bytes, segment.live_bytes);
        }
        segments.insert(generation, segment);
    }
    Some(segments)
}

fn spans(reader: &mut Reader<'_>) -> Option<Spans> {
    let mut spans = Spans::default();
    for _ in 0..reader.varint()? {
        let start = Position(reader.varint()?);
        let (generation_last, references) = (reader.varint32()?, reader.varint32()?);
        spans.insert(start, Span { generation_last, references, is_transient: false });
    }
    Some(spans)
}

fn relocation(reader: &mut Reader<'_>, table: &mut Relocations) -> Option<()> {
    let (origin, to) = (Position(reader.varint()?), Position(reader.varint()?));
    let references = reader.varint32()?;
    table.insert(origin, Relocation { to, references, is_transient: false });
    Some(())
}
