//! The file `root` of a log, which names the valid checkpoint in two records, each written in its turn.

use alloc::vec::Vec;

use crate::checksum::crc;
use crate::disk::LogId;
use crate::segment::{FORMAT_VERSION, HeaderError};
use crate::varint::Reader;

/// First bytes of a root record.
pub const ROOT_MAGIC: [u8; 8] = *b"LEPUSROT";
/// Bytes of one root record.
pub const ROOT_RECORD_BYTES: usize = 64;
/// Distance of the two root records in their file.
pub const ROOT_STRIDE_BYTES: usize = 4096;

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
    /// How many bytes of its file count.
    pub length: u64,
    /// Checksum of its file.
    pub crc: u32,
    /// Whether nothing was appended behind it.
    pub is_clean: bool,
}

impl Root {
    /// Of two records that with the higher rank is valid.
    pub(crate) fn rank(&self) -> (u64, u64, bool) {
        (self.number, self.length, !self.is_clean)
    }

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
        if !(1..=FORMAT_VERSION).contains(&version) {
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
