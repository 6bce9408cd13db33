//! Records: what a log holds between the headers of its batches.
//!
//! Each begins with 8 bytes: the CRC32C of everything behind it (seeded with log, generation and
//! the record's offset), then `payload length << 4 | kind`, little-endian.

use alloc::vec::Vec;
use lepus_base::{Position, QueueId};

use crate::varint::{Reader, VARINT_BYTES_MAX, length, put};

/// Bytes before a record's payload.
pub const RECORD_HEADER_BYTES: usize = 8;

/// A message with its references, whole or its first part.
pub(crate) const KIND_MESSAGE: u8 = 1;
/// The rest of a message that began in an earlier segment.
pub(crate) const KIND_FRAGMENT: u8 = 2;
/// Settled references, as runs.
pub(crate) const KIND_SETTLES: u8 = 3;
/// A queue that is gone with everything in it.
pub(crate) const KIND_QUEUE_DROPPED: u8 = 4;
/// Bytes that mean something to the owner of the log.
pub(crate) const KIND_OPAQUE: u8 = 5;
/// Zeros up to the end of a page, so that the next batch begins in one of its own.
pub(crate) const KIND_FILLER: u8 = 6;

const FLAG_TRANSIENT: u8 = 0x01;
const FLAG_LEVELS: u8 = 0x02;
const FLAG_DEADLINES: u8 = 0x04;
const FLAG_FRAGMENTED: u8 = 0x08;
const FLAG_RELOCATED: u8 = 0x10;
const FLAG_NAMES_ELSEWHERE: u8 = 0x20;
const FLAGS_KNOWN: u8 = 0x3F;

/// Set in [`Lane::level`] for messages that are not kept over a restart.
pub const LEVEL_TRANSIENT: u16 = 0x100;

/// One sequence of messages: a queue's messages of one priority, persistent or spilled.
///
/// Sequence numbers grow along a lane. Priorities have lanes of their own so that serving the
/// high ones first leaves no holes in the low ones; spilled transient messages have one so that
/// spilling an old message does not have to be squeezed in between newer persistent ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The queue.
    pub queue: QueueId,
    /// Priority, 0 to 255, with [`LEVEL_TRANSIENT`] for the lane of spilled transient messages.
    pub level: u16,
}

impl Lane {
    /// The lane of persistent messages without priority.
    #[must_use]
    pub fn of(queue: QueueId) -> Lane {
        Lane { queue, level: 0 }
    }

    /// Whether its messages end with the broker's run.
    #[must_use]
    pub fn is_transient(self) -> bool {
        self.level & LEVEL_TRANSIENT != 0
    }
}

/// A message's place in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// Which lane.
    pub lane: Lane,
    /// Sequence number in the lane.
    pub seq: u64,
    /// Wall time in milliseconds when it expires there; 0 for never.
    pub deadline_millis: u64,
}

/// The parts of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// Name of the exchange, at most 255 bytes.
    pub exchange: &'a [u8],
    /// Routing key, at most 255 bytes.
    pub routing_key: &'a [u8],
    /// Flags word and list of the content header, verbatim.
    pub properties: &'a [u8],
    /// Payload.
    pub body: &'a [u8],
}

/// Exchange and routing key of a message record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names<'a> {
    /// In the record itself: exchange, routing key.
    Here(&'a [u8], &'a [u8]),
    /// In the message record at this offset of the same segment.
    At(u32),
}

/// What is to be written before the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'a> {
    pub transient: bool,
    /// Where the message was written first, when this is a copy made by compaction.
    pub origin: Option<Position>,
    pub names: Names<'a>,
    pub properties: &'a [u8],
    /// Length of the whole body, when not all of it follows.
    pub fragmented: Option<u32>,
}

/// What a reference takes at most.
pub(crate) const REFERENCE_BYTES_MAX: usize = VARINT_BYTES_MAX * 3 + 3;

/// What a reference takes at least: a queue and a number.
pub(crate) const REFERENCE_BYTES_MIN: usize = 2;

/// An upper bound of the payload before the body, with references of so many bytes.
pub(crate) fn envelope_bytes_max(references: usize, names: usize, properties: usize) -> usize {
    1 + VARINT_BYTES_MAX * 4 + 8 + references + 2 + names + properties
}

/// An upper bound of what these references take: never more for some of them than for all.
pub(crate) fn references_bytes_max(references: impl Iterator<Item = Reference>) -> usize {
    let bytes = |reference: Reference| {
        let (level, deadline) = (reference.lane.level.into(), reference.deadline_millis);
        length(reference.lane.queue.0) + length(reference.seq) + length(level) + length(deadline)
    };
    references.map(bytes).sum()
}

/// Appends everything of a message's payload but the body.
pub(crate) fn put_envelope(
    out: &mut Vec<u8>,
    envelope: &Envelope<'_>,
    references: impl ExactSizeIterator<Item = Reference> + Clone,
) {
    let has_levels = references.clone().any(|reference| reference.lane.level != 0);
    let has_deadlines = references.clone().any(|reference| reference.deadline_millis != 0);
    let mut flags = 0;
    for (is_set, flag) in [
        (envelope.transient, FLAG_TRANSIENT),
        (has_levels, FLAG_LEVELS),
        (has_deadlines, FLAG_DEADLINES),
        (envelope.fragmented.is_some(), FLAG_FRAGMENTED),
        (envelope.origin.is_some(), FLAG_RELOCATED),
        (matches!(envelope.names, Names::At(_)), FLAG_NAMES_ELSEWHERE),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    out.push(flags);
    put(out, references.len() as u64);
    if references.len() != 1 {
        // Lets a reader of the body skip them.
        let bytes = references.clone().map(|reference| {
            let level = if has_levels { length(reference.lane.level.into()) } else { 0 };
            let deadline = if has_deadlines { length(reference.deadline_millis) } else { 0 };
            length(reference.lane.queue.0) + length(reference.seq) + level + deadline
        });
        put(out, bytes.sum::<usize>() as u64);
    }
    for reference in references {
        put(out, reference.lane.queue.0);
        put(out, reference.seq);
        if has_levels {
            put(out, u64::from(reference.lane.level));
        }
        if has_deadlines {
            put(out, reference.deadline_millis);
        }
    }
    if let Some(origin) = envelope.origin {
        out.extend_from_slice(&origin.0.to_le_bytes());
    }
    match envelope.names {
        Names::Here(exchange, routing_key) => {
            out.push(exchange.len() as u8);
            out.push(routing_key.len() as u8);
            out.extend_from_slice(exchange);
            out.extend_from_slice(routing_key);
        }
        Names::At(offset) => put(out, u64::from(offset)),
    }
    put(out, envelope.properties.len() as u64);
    out.extend_from_slice(envelope.properties);
    if let Some(bytes) = envelope.fragmented {
        put(out, u64::from(bytes));
    }
}

/// A message record taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageRecord<'a> {
    flags: u8,
    count: u64,
    references: Reader<'a>,
    pub origin: Option<Position>,
    pub names: Names<'a>,
    pub properties: &'a [u8],
    /// Length of the whole body; more than `body` for a fragmented message.
    pub body_bytes: u32,
    /// Length of what comes before the body.
    pub envelope_bytes: usize,
    pub body: &'a [u8],
}

impl<'a> MessageRecord<'a> {
    pub(crate) fn decode(payload: &'a [u8]) -> Option<MessageRecord<'a>> {
        let mut reader = Reader(payload);
        let flags = reader.byte()?;
        if flags & !FLAGS_KNOWN != 0 {
            return None;
        }
        let count = reader.varint()?;
        let references = if count == 1 {
            let references = reader;
            reference(&mut reader, flags)?;
            references
        } else {
            let bytes = usize::try_from(reader.varint()?).ok()?;
            Reader(reader.bytes(bytes)?)
        };
        let origin = match flags & FLAG_RELOCATED {
            0 => None,
            _ => Some(Position(reader.u64()?)),
        };
        let names = if flags & FLAG_NAMES_ELSEWHERE != 0 {
            Names::At(reader.varint32()?)
        } else {
            let (exchange, routing_key) = (reader.byte()?, reader.byte()?);
            Names::Here(reader.bytes(exchange.into())?, reader.bytes(routing_key.into())?)
        };
        let length = reader.varint32()?;
        let properties = reader.bytes(length as usize)?;
        let rest = |reader: Reader<'_>| u32::try_from(reader.0.len()).ok();
        let body_bytes = match flags & FLAG_FRAGMENTED {
            0 => rest(reader)?,
            _ => {
                reader.varint32().filter(|&bytes| rest(reader).is_some_and(|here| here < bytes))?
            }
        };
        let body = reader.0;
        Some(MessageRecord {
            flags,
            count,
            references,
            origin,
            names,
            properties,
            body_bytes,
            envelope_bytes: payload.len() - body.len(),
            body,
        })
    }

    pub(crate) fn is_transient(&self) -> bool {
        self.flags & FLAG_TRANSIENT != 0
    }

    pub(crate) fn is_fragmented(&self) -> bool {
        self.flags & FLAG_FRAGMENTED != 0
    }

    /// How many references it says that it has.
    pub(crate) fn reference_count(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    pub(crate) fn references(&self) -> impl Iterator<Item = Reference> + use<'a> {
        let (mut reader, flags) = (self.references, self.flags);
        (0..self.count).map_while(move |_| reference(&mut reader, flags))
    }
}

fn reference(reader: &mut Reader<'_>, flags: u8) -> Option<Reference> {
    let queue = QueueId(reader.varint()?);
    let seq = reader.varint().filter(|&seq| seq < u64::MAX)?;
    let level = match flags & FLAG_LEVELS {
        0 => 0,
        _ => u16::try_from(reader.varint()?).ok()?,
    };
    let deadline_millis = match flags & FLAG_DEADLINES {
        0 => 0,
        _ => reader.varint()?,
    };
    Some(Reference { lane: Lane { queue, level }, seq, deadline_millis })
}

/// Appends one lane's part of a settle record: runs of `(first, end)` in growing order.
pub(crate) fn put_settles(out: &mut Vec<u8>, lane: Lane, runs: &[(u64, u64)]) {
    put(out, lane.queue.0);
    put(out, u64::from(lane.level));
    put(out, runs.len() as u64);
    let mut last = 0;
    for &(first, end) in runs {
        put(out, first - last);
        put(out, end - first);
        last = end;
    }
}

/// Reads a settle record; calls `each` with lane, first and end of every run. False where the
/// bytes are none.
pub(crate) fn each_settle(payload: &[u8], mut each: impl FnMut(Lane, u64, u64)) -> bool {
    let mut reader = Reader(payload);
    while !reader.is_empty() {
        let Some(()) = settle_lane(&mut reader, &mut each) else { return false };
    }
    true
}

fn settle_lane(reader: &mut Reader<'_>, each: &mut impl FnMut(Lane, u64, u64)) -> Option<()> {
    let queue = QueueId(reader.varint()?);
    let level = u16::try_from(reader.varint()?).ok()?;
    let mut last = 0u64;
    for _ in 0..reader.varint()? {
        let first = last.checked_add(reader.varint()?)?;
        let length = reader.varint().filter(|&length| length > 0)?;
        last = first.checked_add(length)?;
        each(Lane { queue, level }, first, last);
    }
    Some(())
}

/// The first word behind a record's checksum.
pub(crate) fn word(kind: u8, payload: usize) -> [u8; 4] {
    (((payload as u32) << 4) | u32::from(kind)).to_le_bytes()
}

/// Kind, payload and length of the record at the front of `bytes`; `None` where no record of this
/// place is.
pub(crate) fn decode(bytes: &[u8], seed: u32) -> Option<(u8, &[u8], u32)> {
    let (kind, length) = peek(bytes)?;
    let whole = bytes.get(..length)?;
    let sum = Reader(whole).u32()?;
    if sum != crate::checksum::crc(seed, &whole[4..]) {
        return None;
    }
    Some((kind, &whole[RECORD_HEADER_BYTES..], sum))
}

/// Kind and whole length of the record at the front, if the bytes could be one; unchecked.
pub(crate) fn peek(bytes: &[u8]) -> Option<(u8, usize)> {
    let word = Reader(bytes.get(4..8)?).u32()?;
    let kind = (word & 0xF) as u8;
    (KIND_MESSAGE..=KIND_FILLER)
        .contains(&kind)
        .then_some((kind, RECORD_HEADER_BYTES + (word >> 4) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const REFERENCES: [Reference; 2] = [
        Reference { lane: Lane { queue: QueueId(5), level: 0 }, seq: 1000, deadline_millis: 0 },
        Reference {
            lane: Lane { queue: QueueId(1 << 40), level: 9 },
            seq: 0,
            deadline_millis: 1_700_000_000_000,
        },
    ];

    #[test]
    fn an_envelope_is_read_as_it_was_written() {
        let envelopes = [
            Envelope {
                transient: false,
                origin: None,
                names: Names::Here(b"x", b"a.b"),
                properties: &[0, 0],
                fragmented: None,
            },
            Envelope {
                transient: true,
                origin: Some(Position(77)),
                names: Names::At(112),
                properties: &[],
                fragmented: Some(100),
            },
        ];
        for envelope in envelopes {
            for references in [&REFERENCES[..], &REFERENCES[..1], &[]] {
                let mut bytes = Vec::new();
                put_envelope(&mut bytes, &envelope, references.iter().copied());
                assert!(bytes.len() <= envelope_bytes_max(references.len(), 4, 2));
                bytes.extend_from_slice(b"body");
                let record = MessageRecord::decode(&bytes).unwrap();
                assert_eq!(record.references().collect::<Vec<_>>(), references);
                assert_eq!(record.names, envelope.names);
                assert_eq!(record.origin, envelope.origin);
                assert_eq!(record.is_transient(), envelope.transient);
                assert_eq!(record.body_bytes, envelope.fragmented.unwrap_or(4));
                assert_eq!((record.properties, record.body), (envelope.properties, &b"body"[..]));
                for length in 0..bytes.len() - 4 {
                    assert!(MessageRecord::decode(&bytes[..length]).is_none());
                }
            }
        }
    }

    #[test]
    fn settles_are_read_as_they_were_written() {
        let lanes = [Lane::of(QueueId(3)), Lane { queue: QueueId(4), level: 255 }];
        let runs = [(0, 1), (5, 10), (u64::MAX - 2, u64::MAX)];
        let mut bytes = Vec::new();
        for lane in lanes {
            put_settles(&mut bytes, lane, &runs);
        }
        let mut found = vec![];
        assert!(each_settle(&bytes, |lane, first, end| found.push((lane, first, end))));
        assert_eq!(found.len(), 6);
        assert_eq!(found[5], (lanes[1], u64::MAX - 2, u64::MAX));
        assert!(!each_settle(&bytes[..bytes.len() - 1], |_, _, _| ()));
    }
}
