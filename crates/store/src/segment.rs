//! The header of a segment: which place in the log the file has now.

use alloc::vec::Vec;
use lepus_base::Position;

use crate::checksum::crc;
use crate::disk::LogId;
use crate::key::Key;
use crate::varint::Reader;

/// First bytes of a segment in use.
pub const SEGMENT_MAGIC: [u8; 8] = *b"LEPUSSEG";
/// Version of root records that are written, beside which there may be a key; those of version 1 are read. Newer
/// ones are refused.
pub const FORMAT_VERSION: u16 = 2;
/// Version of segments that are written; those of versions 1 and 2 are read. Newer ones are refused.
pub const SEGMENT_VERSION: u16 = 3;
/// Bytes of the header; the first batch follows.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Bytes of the longest segment.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 28;

/// What the header of a segment says.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | magic `LEPUSSEG` |
/// | 8 | 2 | format version |
/// | 10 | 2 | header length, 64 |
/// | 12 | 4 | log id |
/// | 16 | 4 | generation |
/// | 20 | 4 | length of the segment in bytes |
/// | 24 | 8 | position at which the log before this segment ends |
/// | 32 | 4 | chain checksum of the last batch before this segment |
/// | 36 | 8 | number of the segment's first batch |
/// | 44 | 8 | position known synced when the header was written |
/// | 52 | 8 | the key of its batches; zero without one, as up to version 2 |
/// | 60 | 4 | CRC32C of bytes 0 to 59 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log it belongs to.
    pub log: LogId,
    /// Its place in the order of segments.
    pub generation: u32,
    /// Length of the file.
    pub segment_bytes: u32,
    /// Where the log before it ends; recovery follows these to find the next segment.
    pub previous_end: Position,
    /// Checksum of the batch before it.
    pub previous_crc: u32,
    /// Number of its first batch.
    pub batch_number: u64,
    /// Known synced when it was written.
    pub synced: Position,
    /// The key of its batches.
    pub key: Key,
}

/// Why bytes are no segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Never written, torn, or damaged.
    Invalid,
    /// Written by a newer version.
    Version(u16),
}

impl SegmentHeader {
    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..10].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(SEGMENT_HEADER_BYTES as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.log.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.previous_end.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.previous_crc.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.batch_number.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.synced.0.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.key.stored().to_le_bytes());
        let sum = crc(0, &bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header from the beginning of a file.
    ///
    /// # Errors
    /// [`HeaderError::Version`] for an intact header of another version, otherwise
    /// [`HeaderError::Invalid`].
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        Self::fields(bytes).unwrap_or(Err(HeaderError::Invalid))
    }

    fn fields(bytes: &[u8]) -> Option<Result<SegmentHeader, HeaderError>> {
        let bytes = bytes.get(..SEGMENT_HEADER_BYTES)?;
        let mut reader = Reader(bytes);
        let is_valid = reader.bytes(8)? == SEGMENT_MAGIC
            && Reader(&bytes[60..]).u32()? == crc(0, &bytes[..60]);
        if !is_valid {
            return None;
        }
        let version = (reader.u32()? & 0xFFFF) as u16;
        if !(1..=SEGMENT_VERSION).contains(&version) {
            return Some(Err(HeaderError::Version(version)));
        }
        Some(Ok(SegmentHeader {
            log: LogId(reader.u32()?),
            generation: reader.u32()?,
            segment_bytes: reader.u32()?,
            previous_end: Position(reader.u64()?),
            previous_crc: reader.u32()?,
            batch_number: reader.u64()?,
            synced: Position(reader.u64()?),
            key: Key::from_stored(reader.u64()?),
        }))
    }
}

/// First bytes of a batch without a key.
pub const BATCH_MAGIC: [u8; 4] = *b"LBAT";
/// Bytes of a batch's header; its records follow.
pub const BATCH_HEADER_BYTES: usize = 48;

/// First bytes of a batch with this key, or without one.
pub(crate) fn batch_magic(key: Key) -> [u8; 4] {
    if key.is_none() { BATCH_MAGIC } else { key.first_half().to_le_bytes() }
}

/// What the header of a batch (the records of one write) says.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 4 | first half of the key, or `LBAT` without one |
/// | 4 | 4 | bytes of the records behind the header |
/// | 8 | 8 | batch number, one more than that of the batch before |
/// | 16 | 4 | segment generation, exclusive-or the second half of the key |
/// | 20 | 4 | number of records |
/// | 24 | 8 | position known synced when the batch was handed to the disk |
/// | 32 | 4 | chain checksum of the batch before: its field at 40 |
/// | 36 | 4 | CRC32C over the checksums of the records, in order |
/// | 40 | 4 | chain checksum: CRC32C of bytes 0 to 23 and 32 to 39, seeded as the field at 44; never 0 |
/// | 44 | 4 | CRC32C of bytes 0 to 43, seeded with key, log, generation and the batch's offset |
///
/// The chain checksum is known when the batch is closed, the other one when it is handed to the disk.
/// In segments of version 1 the field at 40 is zero, and the one at 44 is the chain's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Bytes of the records.
    pub length: u32,
    /// Its number in the log.
    pub number: u64,
    /// Generation of the segment it lies in.
    pub generation: u32,
    /// Number of records.
    pub records: u32,
    /// Known synced when it was handed to the disk.
    pub synced: Position,
    /// Chain checksum of the batch before.
    pub previous_crc: u32,
    /// CRC32C over the records' checksums.
    pub records_crc: u32,
}

impl BatchHeader {
    /// The header as bytes, and its chain checksum; `seed` comes from the key and the batch's place.
    pub(crate) fn encode(&self, key: Key, seed: u32) -> ([u8; BATCH_HEADER_BYTES], u32) {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        bytes[..4].copy_from_slice(&batch_magic(key));
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.generation ^ key.second_half()).to_le_bytes());
        bytes[20..24].copy_from_slice(&self.records.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.previous_crc.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.records_crc.to_le_bytes());
        // Zero stands for version 1.
        let chain = crc(crc(seed, &bytes[..24]), &bytes[32..40]).max(1);
        bytes[40..44].copy_from_slice(&chain.to_le_bytes());
        stamp(&mut bytes, self.synced, seed);
        (bytes, chain)
    }

    /// Reads a header and its chain checksum; `None` for anything that was not written for this place.
    pub(crate) fn decode(bytes: &[u8], key: Key, seed: u32) -> Option<(BatchHeader, u32)> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES)?;
        let mut reader = Reader(bytes);
        if reader.bytes(4)? != batch_magic(key) {
            return None;
        }
        let sum = Reader(&bytes[44..]).u32()?;
        if sum != crc(seed, &bytes[..44]) {
            return None;
        }
        let header = BatchHeader {
            length: reader.u32()?,
            number: reader.u64()?,
            generation: reader.u32()? ^ key.second_half(),
            records: reader.u32()?,
            synced: Position(reader.u64()?),
            previous_crc: reader.u32()?,
            records_crc: reader.u32()?,
        };
        let chain = match reader.u32()? {
            0 => sum,
            chain => chain,
        };
        Some((header, chain))
    }
}

/// Puts the position known to be synced into a batch's header, and finishes its checksum.
pub(crate) fn stamp(header: &mut [u8], synced: Position, seed: u32) {
    header[24..32].copy_from_slice(&synced.0.to_le_bytes());
    let sum = crc(seed, &header[..44]);
    header[44..BATCH_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Room for the header; it is filled in when the batch is closed.
pub(crate) fn reserve_batch(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; BATCH_HEADER_BYTES]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::seed;

    const KEY: Key = Key::NONE;

    fn segment() -> SegmentHeader {
        SegmentHeader {
            log: LogId(3),
            generation: 9,
            segment_bytes: 1 << 20,
            previous_end: Position(8 << 32 | 777),
            previous_crc: 0xDEAD_BEEF,
            batch_number: 55,
            synced: Position(8 << 32 | 700),
            key: Key::new(0x0123_4567_89AB_CDEF),
        }
    }

    #[test]
    fn headers_are_read_as_they_were_written() {
        let bytes = segment().encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(segment()));
        for index in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[index] ^= 4;
            assert_eq!(SegmentHeader::decode(&damaged), Err(HeaderError::Invalid));
        }
        assert_eq!(SegmentHeader::decode(&bytes[..63]), Err(HeaderError::Invalid));
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = segment().encode();
        bytes[8] = SEGMENT_VERSION as u8 + 1;
        let sum = crc(0, &bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Version(SEGMENT_VERSION + 1)));
    }

    #[test]
    fn a_batch_is_valid_only_at_its_own_place() {
        let header = BatchHeader {
            length: 100,
            number: 7,
            generation: 3,
            records: 2,
            synced: Position(5),
            previous_crc: 1,
            records_crc: 2,
        };
        let here = seed(LogId(1), 3, 64);
        let (bytes, sum) = header.encode(KEY, here);
        assert_eq!(BatchHeader::decode(&bytes, KEY, here), Some((header, sum)));
        assert_eq!(BatchHeader::decode(&bytes, KEY, seed(LogId(1), 4, 64)), None);
        assert_eq!(BatchHeader::decode(&bytes, KEY, seed(LogId(1), 3, 65)), None);
        assert_eq!(BatchHeader::decode(&bytes, KEY, seed(LogId(2), 3, 64)), None);
        // What was synced is put in later, and changes nothing for the batch behind it.
        let mut later = bytes;
        stamp(&mut later, Position(6), here);
        let header = BatchHeader { synced: Position(6), ..header };
        assert_eq!(BatchHeader::decode(&later, KEY, here), Some((header, sum)));
        assert_eq!(header.encode(KEY, here), (later, sum));
    }

    #[test]
    fn a_batch_of_version_1_is_chained_by_its_only_checksum() {
        let here = seed(LogId(1), 3, 64);
        let header = BatchHeader {
            length: 100,
            number: 7,
            generation: 3,
            records: 2,
            synced: Position(5),
            previous_crc: 1,
            records_crc: 2,
        };
        let (mut bytes, _) = header.encode(KEY, here);
        bytes[40..44].fill(0);
        let sum = crc(here, &bytes[..44]);
        bytes[44..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(BatchHeader::decode(&bytes, KEY, here), Some((header, sum)));
    }
}
